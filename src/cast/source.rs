//! Where a cast's bytes come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// Bytes that can be read at any place without moving a cursor. The caller opens files (and sees to
/// it that they are regular ones); nothing here walks paths.
pub trait Source: Send {
    /// Bytes there are now.
    fn len(&self) -> io::Result<u64>;

    /// Reads at `offset`; 0 at the end, fewer than asked for is allowed.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// What tells one file from another, such as device and inode.
    fn identity(&self) -> Option<(u64, u64)> {
        None
    }

    /// True when there are no bytes now.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads until the buffer is full or the end is reached; gives the number of bytes.
    fn fill_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

impl Source for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn identity(&self) -> Option<(u64, u64)> {
        self.metadata().ok().map(|m| (m.dev(), m.ino()))
    }
}

impl Source for Arc<[u8]> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.as_ref().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let all: &[u8] = self;
        let rest = usize::try_from(offset).ok().and_then(|from| all.get(from..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }
}
