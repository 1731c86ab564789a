//! What screens remember between two starts, in the state dir: directories of jobs, marks, orders, filters.
//!
//! One small file, written whole under a lock: of two screens at once each keeps what it changed. One that
//! can not be read counts as empty, and is replaced at the next change.

use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::app::memory::{Keep, ListMemory, Memory};
use crate::app::model::Model;
use crate::follow::roster::MAX_ROOTS;
use crate::harbor::Dir;
use crate::harbor::write::Folder;

/// Its name in the state dir, and that of its lock.
const FILE: &str = "screens.json";
const LOCK: &str = "screens.lock";
/// Largest file that is read.
const CAP: u64 = 16 << 20;
/// Jobs of which marks and filter are kept: the latest ones.
const JOBS: usize = 500;
/// Job dirs that are remembered for having been attached.
const ATTACHED: usize = 24;
/// The longest wait for another writer, and of a screen that is left for what it keeps.
const PATIENCE: Duration = Duration::from_secs(2);

/// A path in JSON: text where it is some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum PathJson {
    Text(String),
    Bytes(Vec<u8>),
}

impl PathJson {
    fn of(path: &Path) -> PathJson {
        match path.to_str() {
            Some(text) => PathJson::Text(text.to_string()),
            None => PathJson::Bytes(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            PathJson::Text(text) => PathBuf::from(text),
            PathJson::Bytes(bytes) => {
                PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
            }
        }
    }
}

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    schema_version: u32,
    /// Directories of jobs that somebody named as such, the latest last.
    roots: Vec<PathJson>,
    /// Job dirs that were attached, the latest last.
    attached: Vec<PathJson>,
    jobs: ListMemory,
    trials_sort: (String, bool),
    /// By job, the latest last.
    trials: Vec<(String, ListMemory)>,
}

fn read(state: &Path) -> Kept {
    let bytes = Dir::open(state).ok().and_then(|dir| dir.read_all(FILE, CAP).ok());
    bytes.and_then(|file| serde_json::from_slice(&file.data).ok()).unwrap_or_default()
}

/// Changes the file.
fn change(state: &Path, by: impl FnOnce(&mut Kept)) -> Result<(), String> {
    std::fs::create_dir_all(state).map_err(|e| format!("{}: {e}", state.display()))?;
    let _lock = lock(state)?;
    let before = read(state);
    let mut kept = before.clone();
    by(&mut kept);
    if kept == before {
        return Ok(());
    }
    kept.schema_version = 1;
    let bytes = serde_json::to_vec(&kept).map_err(|e| e.to_string())?;
    Folder::open(state).and_then(|folder| folder.replace(FILE, &bytes)).map_err(|e| e.to_string())
}

fn lock(state: &Path) -> Result<File, String> {
    let path = state.join(LOCK);
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(wrong)?;
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // A file system without locks: better kept unlocked than not at all.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOLCK) => return Ok(file),
            Err(error) if begun.elapsed() >= PATIENCE => return Err(format!("{}: {error}", path.display())),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl Kept {
    fn all(&self) -> Vec<PathBuf> {
        self.roots.iter().chain(&self.attached).map(PathJson::path).collect()
    }
}

/// The directories that are remembered.
pub fn roots() -> Vec<PathBuf> {
    super::state_dir().map(|state| read(&state).all()).unwrap_or_default()
}

/// Remembers job dirs that are attached, where nothing above them is remembered; the oldest go.
///
/// # Errors
/// Why they are not, in words.
pub fn attached(dirs: &[PathBuf]) -> Result<(), String> {
    let Some(state) = super::state_dir() else { return Err("there is no state dir".to_string()) };
    change(&state, |kept| {
        for dir in dirs {
            if !kept.roots.iter().any(|root| dir.starts_with(root.path())) {
                let one = PathJson::of(dir);
                kept.attached.retain(|known| *known != one);
                kept.attached.push(one);
            }
        }
        let more = kept.attached.len().saturating_sub(ATTACHED);
        kept.attached.drain(..more);
    })
}

/// Remembers these, too; the oldest go when there are too many.
///
/// # Errors
/// Why they are not, in words.
pub fn remember(dirs: &[PathBuf]) -> Result<(), String> {
    let Some(state) = super::state_dir() else { return Err("there is no state dir".to_string()) };
    change(&state, |kept| {
        for dir in dirs {
            let one = PathJson::of(dir);
            if !kept.roots.contains(&one) {
                kept.roots.push(one);
            }
        }
        let more = kept.roots.len().saturating_sub(MAX_ROOTS - ATTACHED);
        kept.roots.drain(..more);
        let covered = |one: &PathJson| dirs.iter().any(|dir| one.path().starts_with(dir));
        kept.attached.retain(|one| !covered(one));
    })
}

/// Forgets these; gives those that were remembered.
///
/// # Errors
/// Why they are not, in words.
pub fn forget(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let Some(state) = super::state_dir() else { return Err("there is no state dir".to_string()) };
    let mut gone = Vec::new();
    change(&state, |kept| {
        for list in [&mut kept.roots, &mut kept.attached] {
            list.retain(|root| {
                let path = root.path();
                let goes = dirs.contains(&path);
                if goes {
                    gone.push(path);
                }
                !goes
            });
        }
    })?;
    Ok(gone)
}

/// A path as the system calls it. Where the system does not answer soon, or nothing is there: as it is named,
/// from the root directory.
pub fn real(dir: &Path) -> PathBuf {
    let (sender, receiver) = sync_channel(1);
    let asked = dir.to_path_buf();
    let ask = move || drop(sender.send(asked.canonicalize()));
    let asking = std::thread::Builder::new().name("real-path".into()).spawn(ask);
    let answer = asking.ok().and_then(|_| receiver.recv_timeout(PATIENCE).ok()).and_then(Result::ok);
    answer.unwrap_or_else(|| plain(&std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf())))
}

/// Without `..`, as far as that can be told from the text.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Tells a screen what was kept. `dirs` are what it shows, as they were named.
pub fn prepare(model: &mut Model, dirs: &[PathBuf]) {
    model.jobs.places = (std::env::current_dir().unwrap_or_default(), std::env::var_os("HOME").map(PathBuf::from));
    model.jobs.real = dirs.iter().map(|dir| (dir.clone(), real(dir))).collect();
    if let Some(state) = super::state_dir() {
        let kept = read(&state);
        model.jobs.roots = kept.all();
        let memory =
            Memory { jobs: kept.jobs, trials_sort: kept.trials_sort, trials: kept.trials.into_iter().collect() };
        crate::app::memory::restore(model, memory);
    }
}

/// Keeps what screens remember, on a thread of its own: a slow disk keeps no key waiting.
#[derive(Debug)]
pub struct Keeper {
    sender: Option<SyncSender<Keep>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins.
    pub fn begin() -> Keeper {
        let (sender, receiver) = sync_channel(64);
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || keep(&receiver));
        Keeper { sender: Some(sender), thread: thread.ok() }
    }

    /// The way to it.
    pub fn way(&self) -> Box<dyn FnMut(Keep)> {
        let sender = self.sender.clone();
        Box::new(move |what| {
            // The latest memory holds all before it; a lost one comes again with the next change.
            if sender.as_ref().is_none_or(|s| s.try_send(what).is_err()) {
                tracing::warn!("what the screen remembers is not kept: the disk does not keep up");
            }
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.sender.take());
        let begun = Instant::now();
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn keep(wishes: &Receiver<Keep>) {
    let state = super::state_dir();
    let mut before: Option<Memory> = None;
    while let Ok(first) = wishes.recv() {
        let mut memory = None;
        let mut wish = Some(first);
        while let Some(one) = wish {
            let done = match one {
                Keep::Memory(latest) => {
                    memory = Some(latest);
                    Ok(())
                }
                Keep::Root(dir) => remember(&[real(&dir)]),
                Keep::Forget(dir) => forget(&[dir]).map(drop),
            };
            if let Err(error) = done {
                tracing::warn!(error, "not kept");
            }
            wish = wishes.try_recv().ok();
        }
        let (Some(memory), Some(state)) = (memory, &state) else { continue };
        if let Err(error) = change(state, |kept| merge(kept, before.as_ref(), &memory)) {
            tracing::warn!(error, "not kept");
        }
        before = Some(*memory);
    }
}

/// What this screen changed, into what others may have changed meanwhile.
fn merge(kept: &mut Kept, before: Option<&Memory>, now: &Memory) {
    kept.jobs.clone_from(&now.jobs);
    kept.trials_sort.clone_from(&now.trials_sort);
    for (job, list) in &now.trials {
        let known = kept.trials.iter().position(|(key, _)| key == job);
        let old = before.and_then(|b| b.trials.get(job)).or(known.and_then(|at| kept.trials.get(at)).map(|(_, l)| l));
        if old == Some(list) {
            continue;
        }
        if let Some(at) = known {
            kept.trials.remove(at);
        }
        if *list != ListMemory::default() {
            kept.trials.push((job.clone(), list.clone()));
        }
    }
    let more = kept.trials.len().saturating_sub(JOBS);
    kept.trials.drain(..more);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn of_two_screens_each_keeps_what_it_changed() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let marks = |names: &[&str]| ListMemory {
            marks: names.iter().map(|n| n.to_string()).collect(),
            ..ListMemory::default()
        };
        let memory = |job: &str, names: &[&str]| Memory {
            trials: [(job.to_string(), marks(names))].into(),
            ..Memory::default()
        };
        change(&state, |kept| merge(kept, None, &memory("a", &["x"]))).unwrap();
        change(&state, |kept| merge(kept, None, &memory("b", &["y"]))).unwrap();
        let kept = read(&state);
        assert_eq!(kept.trials, [("a".to_string(), marks(&["x"])), ("b".to_string(), marks(&["y"]))]);
        change(&state, |kept| merge(kept, Some(&memory("a", &["x"])), &memory("a", &[]))).unwrap();
        assert_eq!(read(&state).trials.len(), 1);
        std::fs::write(state.join(FILE), b"{\"roots\": 7").unwrap();
        assert_eq!(read(&state), Kept::default());
        change(&state, |kept| merge(kept, None, &memory("c", &["z"]))).unwrap();
        assert_eq!(read(&state).trials.len(), 1);
    }

    #[test]
    fn paths_that_are_no_text_come_back() {
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/jobs/\xff"));
        let json = serde_json::to_string(&PathJson::of(odd)).unwrap();
        assert_eq!(serde_json::from_str::<PathJson>(&json).unwrap().path(), odd);
        assert_eq!(plain(Path::new("/a/./b/../c")), Path::new("/a/c"));
    }
}
