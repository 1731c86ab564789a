//! One look at one trial directory: what changed since the last one.
//!
//! A finished trial costs one file (`result.json`) the first time and one `stat` afterwards. Only
//! where there is no readable result are the other files looked at, and read again only when
//! (modification time, size, inode) differ.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::classic;
use super::evidence::{self, Unfinished};
use super::limits::Tasks;
use crate::harbor::dir::{Dir, EntryKind, FileBytes, Meta, OpenError};
use crate::harbor::{FileProblem, ProblemReason};
use crate::harbor::{regrade, result};
use crate::job::{Problem, ProblemKind, Stamp, Trial, text, time};

/// Size up to which a JSON file is read as it is.
const SMALL: u64 = 1 << 20;
/// Most of a `result.json` that is taken into memory once what nobody reads is left out.
const RESULT_CAP: u64 = 64 << 20;
/// How long a trial that ended is still looked at like a running one.
const GRACE: Duration = Duration::from_secs(60);
/// A file that has not changed for this long is not being written any more.
pub(super) const STABLE: Duration = Duration::from_millis(1500);
/// The same by the file's own time, where its clock and ours may differ a little.
pub(super) const STABLE_AGE: Duration = Duration::from_secs(2);

/// Diagnostics: what the looking costs.
#[derive(Debug, Default)]
pub struct Counters {
    /// Files opened for reading.
    pub files: AtomicU64,
    /// `stat` calls.
    pub stats: AtomicU64,
    /// Directories listed.
    pub lists: AtomicU64,
    /// Complete looks at one trial's directory (finished ones that only cost a `stat` not counted).
    pub probes: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Enough of a file to tell whether it changed; compared with its own former state only, never with
/// our clock. An in-place rewrite may leave the directory's time and the size as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    mtime_nanos: i128,
    size: u64,
    inode: u64,
}

impl FileId {
    /// Bytes.
    pub fn size(self) -> u64 {
        self.size
    }
}

impl From<&Meta> for FileId {
    fn from(meta: &Meta) -> FileId {
        FileId { mtime_nanos: meta.mtime_nanos, size: meta.size, inode: meta.inode }
    }
}

/// Which directory it is, beyond its name: inode numbers are given away again at once, so the time
/// of birth counts, too, where the file system keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    born: Option<(i64, u32)>,
}

impl Identity {
    pub fn of(dir: &Dir) -> Option<Identity> {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        if let Ok(x) = statx(dir.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME) {
            let born =
                (x.stx_mask & StatxFlags::BTIME.bits() != 0).then_some((x.stx_btime.tv_sec, x.stx_btime.tv_nsec));
            let device = u64::from(x.stx_dev_major) << 32 | u64::from(x.stx_dev_minor);
            return Some(Identity { device, inode: x.stx_ino, born });
        }
        dir.stat("").ok().map(|m| Identity { device: m.device, inode: m.inode, born: None })
    }
}

/// What is remembered of one trial between two looks. Small for finished trials.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// `result.json` as last read.
    pub result: Option<FileId>,
    /// A result was shown.
    pub done: bool,
    /// When it was seen to end. A retry deletes such a directory soon, and Harbor rewrites its files
    /// once more, so that it is still looked at like a running one for a while.
    pub ended: Option<Instant>,
    /// A look that found it unreadable, foreign or no trial at all was reported.
    pub settled_problem: Option<Problem>,
    /// An unreadable `result.json` and since when it has been the same.
    pub torn: Option<(FileId, Instant)>,
    /// What is known as long as there is no result.
    pub unfinished: Option<Box<Unfinished>>,
    /// The same of a trial of classic terminal-bench.
    pub classic: Option<Box<classic::Unfinished>>,
    /// When to look again without being told to.
    pub due: Option<Instant>,
}

impl Memory {
    /// True when nothing is remembered.
    pub fn is_blank(&self) -> bool {
        self.result.is_none()
            && !self.done
            && self.settled_problem.is_none()
            && self.unfinished.is_none()
            && self.classic.is_none()
    }
}

/// What a look came to.
#[derive(Debug)]
pub(super) enum Seen {
    /// Nothing new.
    Same,
    /// The trial as it is now.
    Trial(Box<Trial>),
    /// No such directory (any more).
    Gone,
    /// Not a trial: a file, or a directory that is not Harbor's (then with the reason).
    NotATrial(Option<Problem>),
}

/// Outcome of one look.
#[derive(Debug)]
pub(super) struct Sighting {
    pub seen: Seen,
    /// The directory is another one than before under the same name: a new attempt.
    pub restarted: bool,
    /// Newest modification time met.
    pub newest: Option<Stamp>,
    /// When to look again although nothing may happen: something was torn or just beginning.
    pub again: Option<Duration>,
}

impl Sighting {
    pub(super) fn of(seen: Seen) -> Sighting {
        Sighting { seen, restarted: false, newest: None, again: None }
    }
}

/// A JSON file of any size; of a big one without the parts that nobody reads (token ids, messages).
pub(super) fn read_json(dir: &Dir, rel: &str) -> Result<FileBytes, OpenError> {
    match dir.read_all(rel, SMALL) {
        Err(OpenError::TooLarge { .. }) => dir.read_condensed(rel, RESULT_CAP),
        other => other,
    }
}

/// What all looks of one pass have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    /// The open job dir.
    pub job: &'a Dir,
    /// Its path, for messages.
    pub path: &'a Path,
    /// Task limits.
    pub tasks: &'a Tasks,
    /// Agent limits in seconds that timeout messages of siblings gave away, by task.
    pub hints: &'a HashMap<Arc<str>, f64>,
    /// Diagnostics.
    pub counters: &'a Counters,
    /// Nobody will look again soon: a torn file is reported at once.
    pub last: bool,
    /// Trials may have regrades: the job is pilothouse's.
    pub regrades: bool,
    /// Wall clock.
    pub now: Stamp,
    /// Monotonic clock.
    pub clock: Instant,
    /// The run, where the job is one of classic terminal-bench.
    pub classic: Option<&'a classic::Run>,
}

impl Look<'_> {
    pub(super) fn stat(&self, rel: &str) -> Option<Meta> {
        Counters::add(&self.counters.stats);
        self.job.stat(rel).ok()
    }

    /// Looks at the trial directory `name`.
    pub fn trial(&self, name: &OsStr, memory: &mut Memory) -> Sighting {
        if let Some(run) = self.classic {
            return run.trial(self, name, memory);
        }
        memory.due = None;
        let Some(utf8) = name.to_str() else { return self.odd_name(name, memory) };
        let rel = format!("{utf8}/result.json");
        if memory.done {
            let now = self.stat(&rel).map(|m| (FileId::from(&m), m.modified));
            if let Some((id, modified)) = now
                && memory.result == Some(id)
            {
                let left = memory.ended.and_then(|at| GRACE.checked_sub(self.clock.saturating_duration_since(at)));
                if left.is_none() {
                    memory.ended = None;
                }
                return Sighting { newest: Some(modified), again: left, ..Sighting::of(Seen::Same) };
            }
        } else if let Some(unfinished) = &memory.unfinished
            && !self.last
            && memory.torn.is_none()
            && unfinished.unchanged(self, utf8)
        {
            return Sighting { newest: unfinished.newest(), ..Sighting::of(Seen::Same) };
        }
        Counters::add(&self.counters.probes);
        match read_json(self.job, &rel) {
            Ok(bytes) => {
                Counters::add(&self.counters.files);
                let id = FileId::from(&bytes.meta);
                match result::trial_result(&bytes.data) {
                    Ok(file) => {
                        let ended = memory.unfinished.is_some().then_some(self.clock).or(memory.ended);
                        *memory = Memory { result: Some(id), done: true, ended, ..Memory::default() };
                        let limits = self.tasks.limits(&file.config, self.path, None);
                        let mut trial = evidence::finished(file, limits, utf8, &self.file(utf8, "result.json"));
                        if self.regrades {
                            Counters::add(&self.counters.stats);
                            trial.regrades = regrade::regrades(self.job, utf8);
                        }
                        let again = ended.map(|_| GRACE);
                        let seen = Seen::Trial(Box::new(trial));
                        Sighting { newest: Some(bytes.meta.modified), again, ..Sighting::of(seen) }
                    }
                    Err(problem) => self.torn(utf8, memory, id, &bytes.meta, &problem),
                }
            }
            Err(OpenError::Missing) => {
                memory.torn = None;
                self.unfinished(name, memory, None)
            }
            Err(OpenError::Vanished) => {
                let mut sighting = self.unfinished(name, memory, None);
                sighting.again = Some(STABLE);
                sighting
            }
            Err(error) => {
                let problem = self.problem(ProblemKind::Unreadable, utf8, "result.json", &error.to_string());
                self.unfinished(name, memory, Some(problem))
            }
        }
    }

    /// A `result.json` that can not be parsed: being written, or broken for good.
    fn torn(&self, name: &str, memory: &mut Memory, id: FileId, meta: &Meta, problem: &FileProblem) -> Sighting {
        let since = match memory.torn {
            Some((before, since)) if before == id => since,
            _ => self.clock,
        };
        memory.torn = Some((id, since));
        let still = self.clock.saturating_duration_since(since);
        // A time in the future says nothing about the age.
        let old = time::age(meta.modified, self.now) > STABLE_AGE;
        if !(self.last || old || still >= STABLE || memory.result == Some(id)) {
            let again = Some(STABLE.saturating_sub(still));
            if memory.done {
                return Sighting { newest: Some(meta.modified), again, ..Sighting::of(Seen::Same) };
            }
            let mut sighting = self.unfinished(OsStr::new(name), memory, None);
            sighting.again = again;
            return sighting;
        }
        let shown = match problem.line {
            0 => "result.json".to_string(),
            line => format!("result.json:{line}:{}", problem.column),
        };
        let kind = match problem.kind {
            ProblemReason::Foreign => ProblemKind::Foreign,
            _ => ProblemKind::Unreadable,
        };
        let problem = self.problem(kind, name, &shown, &problem.to_string());
        let mut sighting = self.unfinished(OsStr::new(name), memory, Some(problem));
        memory.torn = None;
        memory.result = Some(id);
        sighting.newest = sighting.newest.max(Some(meta.modified));
        sighting
    }

    /// Looks at everything but the result. `broken` is what is wrong with that one, for good.
    fn unfinished(&self, name: &OsStr, memory: &mut Memory, broken: Option<Problem>) -> Sighting {
        let was_done = std::mem::take(&mut memory.done);
        memory.ended = None;
        memory.result = None;
        Counters::add(&self.counters.files);
        let dir = match self.job.sub_os(name) {
            Ok(dir) => dir,
            Err(error) => return self.not_opened(name, memory, &error),
        };
        let sighting = evidence::look(self, &dir, name, memory, broken);
        Sighting { restarted: sighting.restarted || was_done, ..sighting }
    }

    pub(super) fn not_opened(&self, name: &OsStr, memory: &mut Memory, error: &std::io::Error) -> Sighting {
        let shown = name.to_string_lossy();
        let meta = name.to_str().and_then(|n| self.stat(n));
        let kind = meta.map(|m| m.kind);
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                *memory = Memory::default();
                Sighting::of(Seen::Gone)
            }
            std::io::ErrorKind::PermissionDenied => {
                let owner = meta.map_or("unknown".to_string(), |m| match m.uid {
                    0 => "root".to_string(),
                    uid => format!("uid {uid}"),
                });
                let message = format!("permission denied (owner {owner}): run as that user or have it readable");
                let problem = self.problem(ProblemKind::Unreadable, &shown, "", &message);
                self.unreadable(&shown, memory, problem)
            }
            _ => match kind {
                Some(EntryKind::Symlink) => {
                    let message = "a symbolic link; links in a job dir are not followed";
                    self.foreign(memory, self.problem(ProblemKind::Foreign, &shown, "", message))
                }
                Some(EntryKind::Dir) => {
                    let problem = self.problem(ProblemKind::Unreadable, &shown, "", &error.to_string());
                    self.unreadable(&shown, memory, problem)
                }
                Some(_) => Sighting::of(Seen::NotATrial(None)),
                None => {
                    *memory = Memory::default();
                    Sighting::of(Seen::Gone)
                }
            },
        }
    }

    /// A trial of which nothing but a problem is known.
    pub(super) fn unreadable(&self, name: &str, memory: &mut Memory, problem: Problem) -> Sighting {
        if memory.settled_problem.as_ref() == Some(&problem) {
            return Sighting::of(Seen::Same);
        }
        *memory = Memory { settled_problem: Some(problem.clone()), ..Memory::default() };
        let trial = Trial { unreadable: true, problems: vec![problem], ..evidence::blank(name) };
        Sighting::of(Seen::Trial(Box::new(trial)))
    }

    pub(super) fn foreign(&self, memory: &mut Memory, problem: Problem) -> Sighting {
        if memory.settled_problem.as_ref() == Some(&problem) {
            return Sighting::of(Seen::Same);
        }
        *memory = Memory { settled_problem: Some(problem.clone()), ..Memory::default() };
        Sighting::of(Seen::NotATrial(Some(problem)))
    }

    pub(super) fn odd_name(&self, name: &OsStr, memory: &mut Memory) -> Sighting {
        let message = "its name is not UTF-8, which Harbor never writes";
        self.foreign(memory, self.problem(ProblemKind::Foreign, &name.to_string_lossy(), "", message))
    }

    pub(super) fn file(&self, name: &str, rel: &str) -> Arc<str> {
        let mut path = self.path.join(name).into_os_string();
        if !rel.is_empty() {
            path.push(OsString::from("/"));
            path.push(rel);
        }
        Arc::from(&*text::clean(&path.to_string_lossy()))
    }

    pub(super) fn problem(&self, kind: ProblemKind, name: &str, rel: &str, message: &str) -> Problem {
        Problem { kind, path: self.file(name, rel), message: Arc::from(&*text::clean(message)) }
    }
}
