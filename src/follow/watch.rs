//! Change events of the kernel, coalesced: paths that were touched, in a bounded set.
//!
//! Watches are never recursive. The wanted set of directories is handed over as a whole and compared
//! with what is watched.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::Control;

/// Paths kept before the set is given up for a full pass.
const MAX_PATHS: usize = 8192;
/// Control messages kept; more than these can only be a flood of the same ones.
const MAX_CONTROL: usize = 64;
/// Silence after which a burst of events is taken for complete.
const DEBOUNCE: Duration = Duration::from_millis(15);
/// The longest that a first event waits for a burst to end.
const DEBOUNCE_MAX: Duration = Duration::from_millis(60);

/// What woke the follower.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// Files and directories touched since the last time.
    pub paths: HashSet<PathBuf>,
    /// Events were lost: everything has to be looked at.
    pub lost: bool,
    /// Messages of the operator.
    pub control: Vec<Control>,
    /// Stop.
    pub stop: bool,
}

impl Woken {
    fn has_events(&self) -> bool {
        self.lost || !self.paths.is_empty()
    }
}

/// The mail box of the follower's thread, shared with the watcher and the operator's handle.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    state: Mutex<Woken>,
    bell: Condvar,
    /// As in the state, for those who ask often.
    stopped: AtomicBool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Woken> {
        // Nothing in here can be left half-changed, so that a panic elsewhere does not matter.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message of the operator.
    pub fn control(&self, message: Control) {
        let mut state = self.lock();
        let supersedes = !matches!(message, Control::Follow(_));
        state.control.retain(|m| !supersedes || std::mem::discriminant(m) != std::mem::discriminant(&message));
        if state.control.len() < MAX_CONTROL {
            state.control.push(message);
        }
        self.bell.notify_all();
    }

    /// Asks the thread to end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.lock().stop = true;
        self.bell.notify_all();
    }

    /// True once [`Mailbox::stop`] was called.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn touched(&self, paths: Vec<PathBuf>) {
        let mut state = self.lock();
        if state.paths.len() + paths.len() > MAX_PATHS {
            state.paths.clear();
            state.lost = true;
        } else if !state.lost {
            state.paths.extend(paths);
        }
        self.bell.notify_all();
    }

    fn lost(&self) {
        let mut state = self.lock();
        state.lost = true;
        state.paths.clear();
        self.bell.notify_all();
    }

    /// Sleeps until something happens or `deadline` has passed; without one, for as long as it takes.
    /// A burst of events is taken as one.
    pub fn wait(&self, deadline: Option<Instant>) -> Woken {
        let mut state = self.lock();
        while !(state.stop || !state.control.is_empty() || state.has_events()) {
            state = match deadline.map(|d| d.saturating_duration_since(Instant::now())) {
                None => self.bell.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => self.bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        let first = Instant::now();
        // A stop is obeyed at once; control messages and bursts may be read together.
        while state.has_events() && !state.stop && first.elapsed() < DEBOUNCE_MAX {
            let before = state.paths.len();
            let (next, timeout) = self.bell.wait_timeout(state, DEBOUNCE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.paths.len() == before {
                break;
            }
        }
        let stop = state.stop;
        let woken = std::mem::take(&mut *state);
        // A stop stays: whoever asks next must see it too.
        state.stop = stop;
        woken
    }
}

/// Why directories could not be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchError {
    /// The system's limit of watches is reached (`fs.inotify.max_user_watches`).
    Limit,
    /// It is not there (any more).
    Gone,
    /// Anything else: no permission, no inotify.
    Failed,
}

/// The set of watched directories.
pub(super) struct Watches {
    watcher: Option<RecommendedWatcher>,
    watched: HashSet<PathBuf>,
    names: Names,
}

/// Relative directories by the absolute path under which their events come.
type Names = Arc<Mutex<HashMap<PathBuf, PathBuf>>>;

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").field("watched", &self.watched.len()).finish()
    }
}

impl Watches {
    /// No watch yet. Where the kernel gives no instance (their number is limited per user), every
    /// later watch fails and the jobs are polled.
    pub fn new(mailbox: &Arc<Mailbox>) -> Watches {
        let mailbox = mailbox.clone();
        let names = Names::default();
        let known = names.clone();
        let handler = move |event: notify::Result<notify::Event>| match event {
            Ok(event) if event.need_rescan() => mailbox.lost(),
            Ok(event) if matters(&event.kind) => mailbox.touched(as_given(event.paths, &known)),
            Ok(_) => {}
            Err(_) => mailbox.lost(),
        };
        Watches { watcher: notify::recommended_watcher(handler).ok(), watched: HashSet::new(), names }
    }

    /// Watches one directory; does nothing if it is watched already.
    pub fn add(&mut self, dir: &Path) -> Result<(), WatchError> {
        if self.watched.contains(dir) {
            return Ok(());
        }
        let Some(watcher) = &mut self.watcher else { return Err(WatchError::Failed) };
        if dir.is_relative()
            && let Ok(here) = std::env::current_dir()
        {
            self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(here.join(dir), dir.to_path_buf());
        }
        match watcher.watch(dir, RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.watched.insert(dir.to_path_buf());
                Ok(())
            }
            Err(error) => Err(match error.kind {
                ErrorKind::MaxFilesWatch => WatchError::Limit,
                ErrorKind::PathNotFound => WatchError::Gone,
                ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::NotFound => WatchError::Gone,
                _ => WatchError::Failed,
            }),
        }
    }

    /// Stops watching one directory.
    pub fn remove(&mut self, dir: &Path) {
        if self.watched.remove(dir)
            && let Some(watcher) = &mut self.watcher
        {
            // It fails when the directory is gone already, and with it the watch.
            let _ = watcher.unwatch(dir);
        }
    }
}

/// Paths in the words in which their directories were named.
fn as_given(paths: Vec<PathBuf>, names: &Names) -> Vec<PathBuf> {
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    if names.is_empty() {
        return paths;
    }
    let given = |path: PathBuf| {
        if let Some(dir) = names.get(&path) {
            return dir.clone();
        }
        match (path.parent().and_then(|p| names.get(p)), path.file_name()) {
            (Some(dir), Some(name)) => dir.join(name),
            _ => path,
        }
    };
    paths.into_iter().map(given).collect()
}

/// Opening and reading changes nothing, and our own reading must not wake us.
fn matters(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
