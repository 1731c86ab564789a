//! A program with a terminal of its own inside an environment: raw bytes both ways.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

/// What runs on the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PtyCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// User inside (`name`, `uid` or `uid:gid`); None: the image's.
    pub user: Option<String>,
    /// Working directory inside; None: the image's.
    pub workdir: Option<String>,
    /// Variables, on top of the environment's.
    pub env: Vec<(String, String)>,
}

/// The reading end of a terminal.
pub type PtyReader = Box<dyn AsyncRead + Send + Unpin>;
/// The writing end of a terminal.
pub type PtyWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// An open terminal. Whoever holds it reads it all the time: what a program prints and nobody reads
/// keeps a dying container from being removed. When both ends are dropped the connection is closed;
/// what runs inside runs on, and can not be attached to again. In the local environment it is hung up.
pub struct Pty {
    /// What the engine calls it.
    pub id: String,
    /// What the program prints, byte by byte as it came.
    pub reader: PtyReader,
    /// What is typed. A write that succeeded proves nothing: the engine buffers.
    pub writer: PtyWriter,
}

impl fmt::Debug for Pty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pty").field("id", &self.id).finish_non_exhaustive()
    }
}
