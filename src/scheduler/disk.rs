//! Writes of a trial, off the threads that keep deadlines: a slow disk holds up only its own trial.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::harbor::write::{Rooms, TrialFolder, WriteError};

/// Longest time until a line is in the log. What is written before takes it along: a visit to the disk for
/// every line would be a good part of what a short trial costs.
const LATE: Duration = Duration::from_secs(1);

/// A trial's directory, written to by one thread at a time. Every write but that of a line is waited for:
/// nothing piles up.
#[derive(Clone)]
pub(super) struct Disk {
    folder: Arc<Mutex<TrialFolder>>,
    lines: Arc<Mutex<Lines>>,
    /// Known without waiting for whoever writes.
    at: Arc<Path>,
    rooms: Rooms,
}

/// Lines that are not in the log yet, and who brings them there when nobody else does.
#[derive(Default)]
struct Lines {
    waiting: Vec<String>,
    late: Option<AbortHandle>,
}

impl Disk {
    pub(super) fn new(folder: TrialFolder) -> Disk {
        let (at, rooms) = (Arc::from(folder.folder().path()), folder.rooms().clone());
        Disk { folder: Arc::new(Mutex::new(folder)), lines: Arc::default(), at, rooms }
    }

    /// Work that touches the disk.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut TrialFolder) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, WriteError> {
        self.take_lines();
        let disk = self.clone();
        aside(move || what(&mut disk.up_to_date())).await
    }

    /// Where the trial is.
    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// The directories of its phases, as they were made.
    pub(super) fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// The same on this thread, for one that is meant for it: it waits for whoever writes.
    pub(super) fn here<T>(&self, what: impl FnOnce(&TrialFolder) -> T) -> T {
        what(&self.folder())
    }

    /// The same, with all lines written before.
    pub(super) fn here_after_lines<T>(&self, what: impl FnOnce(&mut TrialFolder) -> T) -> T {
        what(&mut self.up_to_date())
    }

    /// Nobody need come for the lines that wait: they are taken along now.
    pub(super) fn take_lines(&self) {
        if let Some(late) = self.lines().late.take() {
            late.abort();
        }
    }

    /// A line in `trial.log`, in a moment. That it can not be written shows again at the result, which counts.
    pub(super) fn say(&self, text: String) {
        let mut lines = self.lines();
        lines.waiting.push(text);
        if lines.late.is_none() {
            let disk = self.clone();
            let late = tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                let _ = disk.work(|_| Ok(())).await;
            });
            lines.late = Some(late.abort_handle());
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> MutexGuard<'_, TrialFolder> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory, once the lines that wait are written.
    fn up_to_date(&self) -> MutexGuard<'_, TrialFolder> {
        let mut folder = self.folder();
        let waiting = std::mem::take(&mut self.lines().waiting);
        for line in waiting {
            if folder.log(&line).is_err() {
                break;
            }
        }
        folder
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
