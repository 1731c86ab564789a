//! Files of ours that grow in a directory that a running container can write to.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::atomic::{Folder, WriteError};

/// Mode of such a file, before the umask.
const FILE_MODE: u32 = 0o644;

/// A file that was made new and is appended to. Whatever is done to its name later, what is written
/// goes to this very file.
#[derive(Debug)]
pub struct Growing {
    file: File,
    path: PathBuf,
    written: u64,
}

impl Growing {
    /// Appends. Gives the bytes written to it so far.
    ///
    /// # Errors
    /// See [`WriteError`]; then a part may have been written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64, WriteError> {
        self.file.write_all(bytes).map_err(|e| WriteError::of(&self.path, &e))?;
        self.written += bytes.len() as u64;
        Ok(self.written)
    }

    /// Bytes written to it.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Its name when it was made.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Folder {
    /// Makes a file to append to. It must not exist: something that has its name was put there by
    /// somebody else, and may be a link or a FIFO.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when anything has this name, else see [`WriteError`].
    pub fn grow(&self, name: &str) -> Result<Growing, WriteError> {
        let path = self.named(name)?;
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(self.dir(), name, flags, Mode::from_raw_mode(FILE_MODE))
            .map_err(|e| WriteError::of(&path, &e.into()))?;
        Ok(Growing { file: File::from(fd), path, written: 0 })
    }
}
