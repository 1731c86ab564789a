//! Notes of a running job, written by a thread of their own: a slow disk holds up nobody who steers.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::journal::{Journal, Note};

/// Notes that may wait for the disk. The queue has its room from the beginning: of pointers, that is little.
const WAITING: usize = 4096;

/// Hands notes over; clones write to the same journal.
#[derive(Debug, Clone)]
pub struct Scribe(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    notes: Mutex<Option<SyncSender<Box<Note>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Scribe {
    /// For the journal of a job.
    ///
    /// # Errors
    /// No thread.
    pub fn begin(dir: &Path, id: &str, state: Option<PathBuf>) -> std::io::Result<Scribe> {
        let (notes, inbox) = sync_channel::<Box<Note>>(WAITING);
        let (dir, id) = (dir.to_path_buf(), id.to_string());
        let thread = std::thread::Builder::new().name("scribe".into()).spawn(move || {
            while let Ok(note) = inbox.recv() {
                let journal = Journal::open(&dir, state.as_deref(), &id);
                if let Err(error) = journal.and_then(|mut journal| journal.write(&note)) {
                    tracing::error!(%error, act = note.act, subject = note.subject, "not noted");
                }
            }
        })?;
        Ok(Scribe(Arc::new(Inner { notes: Mutex::new(Some(notes)), thread: Mutex::new(Some(thread)) })))
    }

    /// Hands a note over; does not wait.
    pub fn note(&self, note: Note) {
        let notes = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.as_ref().is_none_or(|notes| notes.try_send(Box::new(note)).is_err()) {
            tracing::error!("a note is lost: the scribe is gone, or does not come to write");
        }
    }

    /// Waits until all is written that was handed over.
    pub fn finish(&self) {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
