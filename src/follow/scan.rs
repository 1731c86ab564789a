//! One job: what is known of it and how a look at its directory changes that.

mod classic;
mod liveness;
mod notes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::classic::Run;
use super::discover;
use super::evidence::TICK;
use super::limits::Tasks;
use super::owner::{Census, Owner};
use super::probe::{self, Counters, FileId, Identity, Look, Memory, STABLE, STABLE_AGE, Seen, Sighting};
use super::{Out, fstype};
use crate::harbor::config;
use crate::harbor::dir::{Dir, Meta, OpenError};
use crate::harbor::job_files;
use crate::harbor::write::Observer;
use crate::harbor::write::lease::LEASE;
use crate::job::outcome::is_agent_timeout;
use crate::job::{Harness, JobEvent, JobFacts, JobKey, Liveness, Problem, ProblemKind, Stamp, text, time};

/// Directories from which a first pass is shared between two threads.
const MANY: usize = 128;
/// Threads of a first pass.
const WORKERS: usize = 2;
/// Trials that a worker looks at before it hands them on.
const BUNDLE: usize = 32;
/// Size of a `lock.json` that takes so long to read that the job is shown before, without its plan.
const BIG_LOCK: u64 = 1 << 20;
/// Trials that are looked at before it: more than any screen has rows, fewer than [`MANY`].
const SCREENFUL: usize = 96;
/// Foreign directories that are named one by one.
const MAX_FOREIGN: usize = 100;
/// Pauses between attempts to reach a directory that vanished.
const BACK_OFF: [u64; 5] = [1, 2, 5, 10, 30];
/// A trial's memory and whether it is on the screen.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub memory: Memory,
    pub shown: bool,
    /// Directories that are watched, relative to the trial's.
    pub watched: Vec<Box<str>>,
}

/// What all jobs share.
#[derive(Debug)]
pub(super) struct Env {
    pub tasks: Tasks,
    pub counters: Arc<Counters>,
    /// When following began: times of leases are counted from here.
    began: Instant,
    processes: Mutex<Option<(Instant, Census)>>,
    /// Where journals lie that could not lie with their jobs.
    state_dir: Option<PathBuf>,
}

impl Env {
    pub fn new(state_dir: Option<PathBuf>) -> Env {
        Env {
            tasks: Tasks::new(),
            counters: Arc::default(),
            began: Instant::now(),
            processes: Mutex::default(),
            state_dir,
        }
    }
}

/// One job that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    pub key: JobKey,
    pub path: PathBuf,
    pub real: PathBuf,
    /// The directory's file system belongs to this host alone.
    pub local: bool,
    pub trials: BTreeMap<OsString, Slot>,
    /// Names that are not finished: the only ones that are looked at often.
    pub active: BTreeSet<OsString>,
    /// Attempts to reach it since it vanished, and the time of the next.
    pub lost: Option<(usize, Instant)>,
    /// Something of the job's own files was torn: look again then.
    pub files_due: Option<Instant>,
    /// A change of the last write is to be reported then.
    pub liveness_due: Option<Instant>,
    pub owner: Option<Owner>,
    /// What its lease said before.
    lease: Observer,
    pub settled: bool,
    identity: Option<Identity>,
    files: [Option<FileId>; 3],
    own: JobFacts,
    emitted: Option<JobFacts>,
    /// Something that [`JobFacts`] holds may have changed since.
    facts_changed: bool,
    listing: Option<FileId>,
    foreign: BTreeMap<OsString, Problem>,
    notes: Vec<Problem>,
    hints: HashMap<Arc<str>, f64>,
    liveness: Liveness,
    liveness_sent: Option<(Liveness, Instant)>,
    ahead: Option<Stamp>,
    journal: notes::Notes,
    /// Set where it is a run of classic terminal-bench.
    pub classic: Option<Box<Run>>,
}

/// Which trials of a job a pass looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// All of them.
    All,
    /// Those without result.
    Active,
}

impl Followed {
    pub fn new(key: JobKey, path: PathBuf, real: PathBuf) -> Followed {
        let local = fstype::of(&real).local;
        Followed {
            key,
            path,
            real,
            local,
            trials: BTreeMap::new(),
            active: BTreeSet::new(),
            lost: None,
            files_due: None,
            liveness_due: None,
            owner: None,
            lease: Observer::default(),
            settled: false,
            identity: None,
            files: [None; 3],
            own: JobFacts::default(),
            emitted: None,
            facts_changed: true,
            listing: None,
            foreign: BTreeMap::new(),
            notes: Vec::new(),
            hints: HashMap::new(),
            liveness: Liveness::default(),
            liveness_sent: None,
            ahead: None,
            journal: notes::Notes::default(),
            classic: None,
        }
    }

    /// True once the job's own result says that it ended.
    pub fn finished(&self) -> bool {
        self.own.summary.as_ref().is_some_and(|s| s.finished.is_some())
    }

    /// Newest modification time met.
    pub fn last_write(&self) -> Option<Stamp> {
        self.liveness.last_write
    }

    /// Adds a remark that is shown with the job.
    pub fn note(&mut self, kind: ProblemKind, message: &str, out: &mut Out<'_>) {
        self.remark(Problem { kind, path: shown(&self.path), message: Arc::from(message) }, out);
    }

    fn remark(&mut self, problem: Problem, out: &mut Out<'_>) {
        if !self.notes.contains(&problem) {
            self.notes.push(problem);
            self.facts_changed = true;
            self.emit_facts(out);
        }
    }

    /// Opens the directory; reports when it vanished and when it is back. None while it is away.
    pub fn open(&mut self, out: &mut Out<'_>) -> Option<Dir> {
        match Dir::open(&self.path) {
            Ok(dir) => {
                let identity = Identity::of(&dir);
                if identity != self.identity {
                    self.identity = identity;
                    self.files = [None; 3];
                    self.listing = None;
                }
                if self.lost.take().is_some() {
                    self.listing = None;
                    if self.emitted.is_some() {
                        out.push(JobEvent::Reachable(self.key));
                    }
                }
                Some(dir)
            }
            Err(error) => {
                let tries = self.lost.map_or(0, |(tries, _)| tries + 1);
                let pause = BACK_OFF.get(tries).or(BACK_OFF.last()).copied().unwrap_or(30);
                self.lost = Some((tries, Instant::now() + Duration::from_secs(pause)));
                if tries == 0 {
                    let problem = Problem {
                        kind: ProblemKind::Unreachable,
                        path: shown(&self.path),
                        message: Arc::from(format!(
                            "{}; trying again, what is known stays",
                            super::errno_words(&error)
                        )),
                    };
                    if self.emitted.is_none() {
                        let name = self.path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
                        self.own = JobFacts { dir: self.path.clone(), name: Arc::from(&*name), ..JobFacts::default() };
                        self.emit_facts(out);
                    }
                    out.push(JobEvent::Unreachable(self.key, problem));
                }
                None
            }
        }
    }

    /// Looks at the job's own files and at the trials named by `which`.
    ///
    /// `last`: nobody will look again soon, so that torn files are reported at once.
    pub fn pass(&mut self, env: &Env, which: Which, last: bool, out: &mut Out<'_>) {
        let Some(dir) = self.open(out) else { return };
        self.read_files(&dir, env, last, out);
        self.list(&dir, env, last, out);
        let names: Vec<OsString> = match which {
            Which::All => self.trials.keys().cloned().collect(),
            Which::Active => self.active.iter().cloned().collect(),
        };
        self.look_at(&dir, env, &names, last, out);
        self.settle(out);
    }

    /// Looks again at what was torn, just beginning or put off.
    pub fn again(&mut self, env: &Env, names: &[OsString], last: bool, out: &mut Out<'_>) {
        let Some(dir) = self.open(out) else { return };
        if self.files_due.is_some() {
            self.read_files(&dir, env, last, out);
        }
        self.look_at(&dir, env, names, last, out);
    }

    /// Compares the names in the directory with those known; new ones are looked at at once.
    pub fn list(&mut self, dir: &Dir, env: &Env, last: bool, out: &mut Out<'_>) {
        if self.classic.is_some() {
            return self.list_classic(dir, env, last, out);
        }
        Counters::add(&env.counters.stats);
        let before = dir.stat("").ok();
        let id = before.as_ref().map(FileId::from);
        if id.is_some() && id == self.listing {
            return;
        }
        Counters::add(&env.counters.lists);
        let Ok(entries) = dir.list() else { return };
        // A directory whose time is this young may change once more without its time changing.
        let young = before.is_some_and(|m| time::age(m.modified, Stamp::now()) < STABLE_AGE);
        self.listing = id.filter(|_| !young);
        let there: BTreeSet<OsString> = entries.into_iter().filter(discover::may_be_trial).map(|e| e.name).collect();
        let gone: Vec<OsString> = self.trials.keys().filter(|n| !there.contains(*n)).cloned().collect();
        let new: Vec<OsString> = there.into_iter().filter(|n| !self.trials.contains_key(n)).collect();
        for name in gone {
            self.apply(&name, Memory::default(), Sighting::of(Seen::Gone), out);
        }
        self.look_at(dir, env, &new, last, out);
    }

    /// Looks at these trials, known or not.
    pub fn look_at(&mut self, dir: &Dir, env: &Env, names: &[OsString], last: bool, out: &mut Out<'_>) {
        let mut jobs: Vec<(&OsString, Memory)> = Vec::with_capacity(names.len());
        for name in names {
            let memory = self.trials.get_mut(name).map(|s| std::mem::take(&mut s.memory)).unwrap_or_default();
            jobs.push((name, memory));
        }
        let path = self.path.clone();
        let hints = std::mem::take(&mut self.hints);
        let classic = self.classic.take();
        let regrades = self.own.harness == Harness::Pilothouse;
        let look = || Look {
            classic: classic.as_deref(),
            job: dir,
            path: &path,
            tasks: &env.tasks,
            hints: &hints,
            counters: &env.counters,
            last,
            regrades,
            now: Stamp::now(),
            clock: Instant::now(),
        };
        let mut met = HashMap::new();
        if jobs.len() < MANY || self.settled {
            for (name, mut memory) in jobs {
                if out.is_closed() {
                    break;
                }
                let sighting = look().trial(name, &mut memory);
                met.extend(hint(&sighting));
                self.apply(name, memory, sighting, out);
            }
        } else {
            let known = u32::try_from(names.len()).unwrap_or(u32::MAX);
            out.push(JobEvent::Scanning(self.key, 0, known));
            out.flush();
            // In bundles: a message per trial would cost more than the look itself.
            let mut work: Vec<Mutex<Vec<(&OsString, Memory)>>> = Vec::new();
            let mut jobs = jobs.into_iter().peekable();
            while jobs.peek().is_some() {
                work.push(Mutex::new(jobs.by_ref().take(BUNDLE).collect()));
            }
            let next = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                let (sender, receiver) = mpsc::sync_channel(64);
                for _ in 0..WORKERS {
                    let (sender, work, next, look) = (sender.clone(), &work, &next, &look);
                    scope.spawn(move || {
                        while let Some(bundle) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                            let bundle = std::mem::take(&mut *bundle.lock().unwrap_or_else(PoisonError::into_inner));
                            let seen = bundle.into_iter().map(|(name, mut memory)| {
                                let sighting = look().trial(name, &mut memory);
                                (name, memory, sighting)
                            });
                            if sender.send(seen.collect::<Vec<_>>()).is_err() {
                                return;
                            }
                        }
                    });
                }
                drop(sender);
                for (read, (name, memory, sighting)) in receiver.into_iter().flatten().enumerate() {
                    met.extend(hint(&sighting));
                    self.apply(name, memory, sighting, out);
                    if out.is_closed() {
                        // Ends the workers: their next message finds nobody.
                        break;
                    }
                    if out.is_due() {
                        let read = u32::try_from(read + 1).unwrap_or(u32::MAX);
                        out.push(JobEvent::Scanning(self.key, read, known));
                        out.flush();
                    }
                }
            });
        }
        self.hints = hints;
        self.classic = classic;
        let news: Vec<Arc<str>> =
            met.iter().filter(|(task, limit)| self.hints.get(*task) != Some(limit)).map(|(t, _)| t.clone()).collect();
        self.hints.extend(met);
        if !(news.is_empty() || last) {
            // Siblings of the same task that know no limit have one now.
            let clock = Instant::now();
            for name in &self.active {
                if let Some(slot) = self.trials.get_mut(name)
                    && let Some(unfinished) = slot.memory.unfinished.as_mut()
                    && unfinished.wants_limit(&news)
                {
                    slot.memory.due = Some(clock);
                }
            }
        }
        self.emit_facts(out);
        self.emit_liveness(out, false);
    }

    fn apply(&mut self, name: &OsStr, mut memory: Memory, sighting: Sighting, out: &mut Out<'_>) {
        self.saw(sighting.newest, out);
        memory.due = sighting.again.map(|after| Instant::now() + after);
        let mut slot = self.trials.remove(name).unwrap_or_default();
        let arc: Arc<str> = Arc::from(name.to_string_lossy());
        let mut idle = false;
        let keep = match sighting.seen {
            Seen::Same => {
                idle = self.foreign.contains_key(name);
                true
            }
            Seen::Trial(trial) => {
                if sighting.restarted && slot.shown {
                    out.push(JobEvent::TrialGone(self.key, arc));
                }
                self.not_foreign(name);
                slot.shown = true;
                out.push(JobEvent::Trial(self.key, trial));
                true
            }
            Seen::Gone => {
                self.not_foreign(name);
                if slot.shown {
                    out.push(JobEvent::TrialGone(self.key, arc));
                }
                false
            }
            Seen::NotATrial(problem) => {
                if std::mem::take(&mut slot.shown) {
                    out.push(JobEvent::TrialGone(self.key, arc));
                }
                match problem {
                    Some(problem) => {
                        idle = true;
                        self.facts_changed = true;
                        self.foreign.insert(name.to_os_string(), problem);
                        true
                    }
                    None => {
                        self.not_foreign(name);
                        sighting.again.is_some()
                    }
                }
            }
        };
        if keep && !idle && !(memory.done && memory.torn.is_none() && memory.ended.is_none()) {
            self.active.insert(name.to_os_string());
        } else {
            self.active.remove(name);
        }
        if keep || !slot.watched.is_empty() {
            slot.memory = memory;
            self.trials.insert(name.to_os_string(), slot);
        }
    }

    fn not_foreign(&mut self, name: &OsStr) {
        self.facts_changed |= self.foreign.remove(name).is_some();
    }

    /// Reads those of the job's own files that changed, and its journal.
    pub fn read_files(&mut self, dir: &Dir, env: &Env, last: bool, out: &mut Out<'_>) {
        match self.classic.is_some() {
            true => self.read_classic(dir, env, last, out),
            false => self.read_own(dir, env, last, out),
        }
        self.read_journal(dir, env, out);
    }

    fn read_own(&mut self, dir: &Dir, env: &Env, last: bool, out: &mut Out<'_>) {
        const NAMES: [&str; 3] = ["config.json", "lock.json", "result.json"];
        self.files_due = None;
        for name in ["job.log"].iter().chain(&NAMES) {
            Counters::add(&env.counters.stats);
            let at = dir.stat(name).ok().map(|m| m.modified);
            self.saw(at, out);
        }
        let ids = NAMES.map(|name| dir.stat(name).ok().as_ref().map(FileId::from));
        if self.emitted.is_some() && ids == self.files {
            return;
        }
        let first = self.emitted.is_none();
        if first && ids.get(1).copied().flatten().is_some_and(|lock| lock.size() > BIG_LOCK) {
            self.introduce(dir, env, out);
        }
        let mut bytes: [Option<Vec<u8>>; 3] = [None, None, None];
        let mut problems: Vec<Problem> = Vec::new();
        let (mut fresh, mut young) = (false, false);
        for (i, name) in NAMES.iter().enumerate() {
            let was = self.files.get(i).copied().flatten();
            let is = ids.get(i).copied().flatten();
            // The lock is big and hardly ever changes; the config is read again each time, since its
            // absence is a fact, too.
            if *name == "lock.json" && was == is && !first {
                let path = dir_file(&self.path, name);
                problems.extend(self.own.problems.iter().filter(|p| p.path.starts_with(&*path)).cloned());
                continue;
            }
            Counters::add(&env.counters.files);
            match probe::read_json(dir, name) {
                Ok(file) => {
                    fresh |= is_fresh(&file.meta);
                    young |= time::age(file.meta.modified, Stamp::now()) < TICK;
                    if let Some(slot) = bytes.get_mut(i) {
                        *slot = Some(file.data);
                    }
                }
                Err(OpenError::Missing | OpenError::Vanished) => {}
                Err(error) => problems.push(Problem {
                    kind: ProblemKind::Unreadable,
                    path: Arc::from(dir_file(&self.path, name)),
                    message: Arc::from(error.to_string()),
                }),
            }
        }
        let [config, lock, result] = &bytes;
        let (new, parsed) =
            job_files::job_facts_parsed(&self.path, config.as_deref(), lock.as_deref(), result.as_deref());
        let torn = [(config, parsed.config), (lock, parsed.lock), (result, parsed.result)]
            .iter()
            .any(|(bytes, parsed)| bytes.is_some() && !parsed);
        let mut new = if first { new } else { job_files::merge_last_good(&self.own, new, parsed) };
        if torn && fresh && !last {
            // Being rewritten, most likely: worth a word only when it lasts.
            new.problems.retain(|p| p.kind != ProblemKind::Unreadable);
            self.files_due = Some(Instant::now() + STABLE);
            self.files = [None; 3];
        } else if young && !last {
            // A second write in the same tick of the clock would not show.
            self.files_due = Some(Instant::now() + TICK * 2);
            self.files = [None; 3];
        } else {
            self.files = ids;
        }
        new.problems.extend(problems);
        if dir.stat(LEASE).is_ok() {
            new.harness = Harness::Pilothouse;
        }
        self.own = new;
        self.facts_changed = true;
        self.emit_facts(out);
    }

    /// Says which job this is, and what its first trials are, before its plan of thousands is read.
    fn introduce(&mut self, dir: &Dir, env: &Env, out: &mut Out<'_>) {
        let read = |name: &str| probe::read_json(dir, name).ok().map(|file| file.data);
        let (config, result) = (read("config.json"), read("result.json"));
        let mut facts = job_files::job_facts(&self.path, config.as_deref(), None, result.as_deref());
        // What is wrong is said once, when everything was looked at.
        facts.problems.clear();
        if dir.stat(LEASE).is_ok() {
            facts.harness = Harness::Pilothouse;
        }
        out.push(JobEvent::Job(self.key, Box::new(facts.clone())));
        self.own = facts;
        self.facts_changed = false;
        let mut names: Vec<OsString> = match dir.list() {
            Ok(entries) => entries.into_iter().filter(discover::may_be_trial).map(|e| e.name).collect(),
            Err(_) => Vec::new(),
        };
        let known = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if names.len() > SCREENFUL {
            names.select_nth_unstable(SCREENFUL);
            names.truncate(SCREENFUL);
        }
        self.look_at(dir, env, &names, false, out);
        out.push(JobEvent::Scanning(self.key, u32::try_from(names.len()).unwrap_or(0), known));
        out.flush();
    }

    fn emit_facts(&mut self, out: &mut Out<'_>) {
        if !std::mem::take(&mut self.facts_changed) {
            return;
        }
        let mut facts = self.own.clone();
        facts.problems.extend(self.notes.iter().cloned());
        facts.problems.extend(self.foreign.values().take(MAX_FOREIGN).cloned());
        if let Some(more) = self.foreign.len().checked_sub(MAX_FOREIGN).filter(|n| *n > 0) {
            facts.problems.push(Problem {
                kind: ProblemKind::Foreign,
                path: shown(&self.path),
                message: Arc::from(format!("{more} more directories that are not Harbor's")),
            });
        }
        if self.emitted.as_ref() != Some(&facts) {
            out.push(JobEvent::Job(self.key, Box::new(facts.clone())));
            self.emitted = Some(facts);
        }
    }

    fn settle(&mut self, out: &mut Out<'_>) {
        if !self.settled {
            self.settled = true;
            self.emit_liveness(out, true);
            out.push(JobEvent::Settled(self.key));
        }
        out.flush();
    }

    /// The earliest time at which something has to be looked at again although nothing may happen.
    pub fn due(&self) -> Option<Instant> {
        let trials = self.active.iter().filter_map(|n| self.trials.get(n)?.memory.due);
        trials.chain(self.files_due).chain(self.liveness_due).min()
    }

    /// Names of trials that are due by then, or that are due at all.
    pub fn due_names(&self, clock: Option<Instant>) -> Vec<OsString> {
        let by = |due: Instant| clock.is_none_or(|clock| due <= clock);
        let due = |n: &&OsString| self.trials.get(*n).and_then(|s| s.memory.due).is_some_and(by);
        self.active.iter().filter(due).cloned().collect()
    }
}

/// The agent limit that a timeout message gives away, for siblings of the same task.
fn hint(sighting: &Sighting) -> Option<(Arc<str>, f64)> {
    let Seen::Trial(trial) = &sighting.seen else { return None };
    let exception = trial.result.as_ref()?.exception.as_ref()?;
    let limit = is_agent_timeout(&exception.kind).then(|| config::limit_from_message(&exception.message))??;
    Some((trial.task.clone(), limit))
}

fn is_fresh(meta: &Meta) -> bool {
    time::age(meta.modified, Stamp::now()) < STABLE_AGE
}

fn dir_file(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

/// A path for the screen.
pub(super) fn shown(path: &Path) -> Arc<str> {
    Arc::from(&*text::clean(&path.to_string_lossy()))
}
