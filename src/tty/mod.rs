//! The terminal: the only place that writes escape sequences.
//!
//! | file | what |
//! |---|---|
//! | [`guard`] | puts the terminal into the state a screen needs, and back exactly once, whatever happens |
//! | [`output`] | [`output::Term`]: frames, one write each, inside a synchronized update, nothing hostile let through |
//! | [`input`] | the thread that reads keys; another that notices when the terminal is gone |
//! | [`signals`] | what the system asks of a program with a screen: stop, continue |
//! | [`clipboard`] | copying by tmux or OSC 52 |
//! | [`caps`] | what the terminal can show: colours, or ASCII alone |
//!
//! Order of use: [`caps::Caps::detect`], [`guard::Guard::enter`], [`output::Term::new`],
//! [`input::spawn`]; then the loop. Dropping the guard gives the terminal back.

pub mod caps;
pub mod clipboard;
pub mod guard;
pub mod input;
pub mod output;
pub mod signals;

pub use caps::{Caps, ColorChoice, ColorLevel};
pub use guard::{Guard, Modes};
pub use input::Input;
pub use output::{Stats, Term};

use std::io;

/// What can go wrong with a terminal.
#[derive(Debug, thiserror::Error)]
pub enum TtyError {
    /// The terminal could not be put into raw mode or written to at the start.
    #[error("the terminal can not be set up: {0}")]
    Setup(#[source] io::Error),
    /// The terminal was closed, or given back because some thread panicked. Time to leave.
    #[error("the terminal is gone: {0}")]
    Gone(#[source] io::Error),
    /// Anything else.
    #[error("the terminal can not be written: {0}")]
    Write(#[from] io::Error),
}

impl TtyError {
    /// Sorts an error of a write: a closed terminal is not the same as one that is merely slow.
    pub(crate) fn of_write(error: io::Error) -> TtyError {
        let gone = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected)
            || matches!(
                rustix::io::Errno::from_io_error(&error),
                Some(rustix::io::Errno::IO | rustix::io::Errno::NXIO | rustix::io::Errno::BADF)
            );
        if gone { TtyError::Gone(error) } else { TtyError::Write(error) }
    }
}
