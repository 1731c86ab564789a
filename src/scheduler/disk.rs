//! Writes of a trial, off the threads that keep deadlines: a slow disk holds up only its own trial.

use std::sync::{Arc, Mutex, PoisonError};

use crate::harbor::write::{TrialFolder, WriteError};

/// A trial's directory, written to by one thread at a time. Every write is waited for: nothing piles up.
#[derive(Clone)]
pub(super) struct Disk(Arc<Mutex<TrialFolder>>);

impl Disk {
    pub(super) fn new(folder: TrialFolder) -> Disk {
        Disk(Arc::new(Mutex::new(folder)))
    }

    /// Work that touches the disk.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut TrialFolder) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let folder = Arc::clone(&self.0);
        aside(move || what(&mut folder.lock().unwrap_or_else(PoisonError::into_inner))).await
    }

    /// The same on this thread, for one that is meant for it.
    pub(super) fn here<T>(&self, what: impl FnOnce(&TrialFolder) -> T) -> T {
        what(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs work on a thread that may wait for a disk.
pub(super) async fn aside<T: Send + 'static>(
    what: impl FnOnce() -> Result<T, WriteError> + Send + 'static,
) -> Result<T, WriteError> {
    let broken = |e: tokio::task::JoinError| WriteError::Io {
        path: std::path::PathBuf::new(),
        source: std::io::Error::other(e.to_string()),
    };
    tokio::task::spawn_blocking(what).await.unwrap_or_else(|e| Err(broken(e)))
}
