//! One job of a list: its own files, who works on it, and its trials where those are wanted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::discover::{self, DirKind};
use super::super::owner::{self, Search};
use super::super::probe::{self, Counters, FileId};
use super::super::{Follower, Options, errno_words};
use super::Processes;
use crate::harbor::dir::{Dir, Meta};
use crate::harbor::job_files;
use crate::harbor::write::lease::{self, LEASE, Observer, Process, Reading};
use crate::job::fleet::{ASSUMED_LIMIT, QUIET_CONCLUSIVE, QUIET_SLACK};
use crate::job::roster::{Entry, RerunLine};
use crate::job::{
    Fleet, Harness, Job, JobEvent, JobFacts, JobKey, JobState, Liveness, Problem, ProblemKind, Stamp, StateKind, time,
};

/// Jobs of one root whose trials are read again and again.
pub(super) const FOLLOWED: usize = 32;
/// Size up to which a plan is read where the result does not say how many trials there are.
const LOCK: u64 = 8 << 20;
/// A file that was written less long ago may be half written.
const YOUNG: Duration = Duration::from_secs(2);

/// Circumstances of a look.
pub(super) struct Look<'a> {
    pub root: &'a Path,
    /// The file system belongs to this host alone.
    pub local: bool,
    /// On the screen, or printed.
    pub visible: bool,
    /// Trials are read wherever they tell more, not only where nothing else tells.
    pub exact: bool,
    /// There will be another look.
    pub keep: bool,
    /// Time of a clock that only goes forward.
    pub clock: Duration,
    pub processes: &'a Processes,
    /// Its trials may be read again and again.
    pub may_follow: bool,
}

/// A job as it was when its own files were so.
struct Past {
    ids: [Option<FileId>; 3],
    job: Option<Job>,
}

/// One job between two looks.
pub(super) struct Known {
    pub dir: PathBuf,
    /// When to look again; None: now.
    pub due: Option<Instant>,
    ids: [Option<FileId>; 3],
    facts: Option<JobFacts>,
    lease: Observer,
    sent: Option<Entry>,
    trials: Option<Box<(Follower, Fleet)>>,
    /// The job with its trials as they were when its own files were so.
    past: Option<Box<Past>>,
    rerun: Option<RerunLine>,
    /// Of classic terminal-bench, once that is known.
    classic: Option<bool>,
}

impl Known {
    pub fn new(dir: PathBuf) -> Known {
        Known {
            dir,
            due: None,
            ids: [None; 3],
            facts: None,
            lease: Observer::default(),
            sent: None,
            trials: None,
            past: None,
            rerun: None,
            classic: None,
        }
    }

    /// Its name, as far as it is known.
    pub fn name(&self) -> Option<&str> {
        self.facts.as_ref().map(|facts| &*facts.name)
    }

    /// The job whose trials are followed.
    pub fn job(&self) -> Option<&Job> {
        self.trials.as_ref()?.1.jobs().first()
    }

    /// The job with its trials, read once for as long as its own files stay as they are.
    pub fn past(&mut self) -> Option<&Job> {
        if self.trials.is_some() {
            return self.job();
        }
        if self.past.as_ref().is_none_or(|past| past.ids != self.ids) {
            let options = Options { owner: false, watch: false, ..Options::default() };
            let mut fleet = Fleet::default();
            Follower::new(vec![self.dir.clone()], options).scan_once(&mut |events| {
                events.into_iter().for_each(|event| fleet.apply(event));
                true
            });
            self.past = Some(Box::new(Past { ids: self.ids, job: fleet.jobs().first().cloned() }));
        }
        self.past.as_ref()?.job.as_ref()
    }

    /// What it runs again, or that it does not; the entry, when that is new.
    pub fn runs_again(&mut self, line: Option<RerunLine>) -> Option<Entry> {
        if self.rerun == line {
            return None;
        }
        self.rerun = line;
        let entry = self.sent.as_mut()?;
        entry.rerun.clone_from(&self.rerun);
        Some(entry.clone())
    }

    pub fn is_open(&self) -> bool {
        self.sent.as_ref().is_none_or(Entry::is_open)
    }

    pub fn is_followed(&self) -> bool {
        self.trials.is_some()
    }

    /// On the screen its trials would tell more.
    pub fn wants_detail(&self) -> bool {
        self.sent.as_ref().is_some_and(Entry::wants_trials)
    }

    /// Looks. None: it is gone; else what is new. And how many looks at files that cost.
    pub fn look(&mut self, look: &Look<'_>) -> (Option<Option<Entry>>, u64) {
        let dir = match Dir::open(&self.dir) {
            Ok(dir) => dir,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (None, 1),
            Err(error) => {
                self.trials = None;
                return (Some(self.unreadable(look, &error)), 1);
            }
        };
        let classic = || discover::kind(&self.dir).is_ok_and(|kind| kind == DirKind::Classic);
        if *self.classic.get_or_insert_with(classic) {
            return self.look_at_classic(&dir, look);
        }
        let mut liveness = self.read(&dir, look);
        let owner = self.owner(&dir, look, &mut liveness);
        let now = Stamp::now();
        let mut cost = 8;
        let facts = self.facts.clone().unwrap_or_default();
        let mut entry = plain(facts, liveness.clone(), look.root, now);
        // What the trials said of a job that is over stays true while it stays as it is.
        let known = self.sent.as_ref().filter(|b| b.exact && !b.is_open() && !entry.is_open());
        let known = known.filter(|_| liveness.stray.is_none());
        let known = known.filter(|b| b.id == entry.id && b.done >= entry.done && b.last_write >= entry.last_write);
        let astray = liveness.stray.is_some();
        let nothing_else = entry.is_doubtful() || entry.state.kind == StateKind::Dead;
        let tell = look.visible && (nothing_else || look.exact && entry.wants_trials());
        if let Some(known) = known {
            entry = known.clone();
            self.trials = None;
        } else if !((entry.is_open() || astray) && look.may_follow || tell) {
            self.trials = None;
        } else if let Some((exact, spent)) = self.exact(look, &liveness, now) {
            entry = exact;
            cost += spent;
        }
        if !((entry.is_open() || astray) && look.may_follow) {
            self.trials = None;
        }
        entry.owner = entry.owner.map(|mut line| {
            line.host = owner;
            line
        });
        if self.trials.is_none() {
            self.rerun = None;
        }
        entry.rerun.clone_from(&self.rerun);
        if self.sent.as_ref() == Some(&entry) {
            return (Some(None), cost);
        }
        self.sent = Some(entry.clone());
        (Some(Some(entry)), cost)
    }

    /// A run of classic terminal-bench: its own files tell too little, so that its trials are read, once for as
    /// long as its aggregate and its metadata stay as they are.
    fn look_at_classic(&mut self, dir: &Dir, look: &Look<'_>) -> (Option<Option<Entry>>, u64) {
        const NAMES: [&str; 3] = ["tb.lock", "run_metadata.json", "results.json"];
        let now = Stamp::now();
        let metas = NAMES.map(|name| dir.stat(name).ok());
        let ids = metas.each_ref().map(|meta| meta.as_ref().map(FileId::from));
        if ids == self.ids && self.sent.as_ref().is_some_and(|sent| !sent.is_open()) {
            return (Some(None), NAMES.len() as u64);
        }
        let others = ["run.log", ""].map(|name| dir.stat(name).ok());
        let written = metas.iter().chain(&others).flatten().map(|meta| meta.modified.min(now)).max();
        let search = look.processes.recent().map(|census| census.search(&self.dir, look.local)).unwrap_or_default();
        let liveness = Liveness {
            last_write: written,
            owner: search.owner.map(|owner| (owner.pid, owner.command)),
            owner_search_conclusive: search.conclusive,
            owner_left: search.left,
            ..Liveness::default()
        };
        let Some((entry, cost)) = self.exact(look, &liveness, now) else { return (Some(None), NAMES.len() as u64) };
        if !(entry.is_open() && look.may_follow) {
            self.trials = None;
        }
        self.ids = ids;
        if self.sent.as_ref() == Some(&entry) {
            return (Some(None), cost);
        }
        self.sent = Some(entry.clone());
        (Some(Some(entry)), cost)
    }

    /// Reads what changed of the job's own files; gives the newest time met.
    fn read(&mut self, dir: &Dir, look: &Look<'_>) -> Liveness {
        const NAMES: [&str; 3] = ["config.json", "lock.json", "result.json"];
        let now = Stamp::now();
        let mut last: Option<Stamp> = None;
        let mut saw = |meta: &Meta| last = last.max(Some(meta.modified.min(now)));
        let metas = NAMES.map(|name| dir.stat(name).ok());
        metas.iter().flatten().for_each(&mut saw);
        for other in ["job.log", ""] {
            dir.stat(other).iter().for_each(&mut saw);
        }
        let ids = metas.each_ref().map(|meta| meta.as_ref().map(FileId::from));
        if self.facts.is_none() || ids != self.ids {
            let young = metas.iter().flatten().any(|m| time::age(m.modified, now) < YOUNG);
            let read = |name: &str| probe::read_json(dir, name);
            let (mut problems, mut bytes) = (Vec::new(), [None, None, None]);
            for (slot, name) in bytes.iter_mut().zip(NAMES) {
                // The plan is large and tells nothing more than the result, where there is one.
                if name == "lock.json" {
                    continue;
                }
                match read(name) {
                    Ok(file) => *slot = Some(file.data),
                    Err(crate::harbor::OpenError::Missing | crate::harbor::OpenError::Vanished) => {}
                    Err(error) => problems.push(Problem {
                        kind: ProblemKind::Unreadable,
                        path: Arc::from(&*crate::job::text::clean(&self.dir.join(name).to_string_lossy())),
                        message: Arc::from(error.to_string()),
                    }),
                }
            }
            let facts = |bytes: &[Option<Vec<u8>>; 3]| {
                let [config, lock, result] = bytes;
                job_files::job_facts_parsed(&self.dir, config.as_deref(), lock.as_deref(), result.as_deref())
            };
            let (mut new, mut parsed) = facts(&bytes);
            let lock = metas.get(1).and_then(Option::as_ref);
            if new.n_planned().is_none() && lock.is_some_and(|meta| meta.size <= LOCK) {
                if let (Some(slot), Ok(file)) = (bytes.get_mut(1), read("lock.json")) {
                    *slot = Some(file.data);
                }
                (new, parsed) = facts(&bytes);
            }
            let torn = bytes.first().is_some_and(Option::is_some) && !parsed.config
                || bytes.last().is_some_and(Option::is_some) && !parsed.result;
            if let Some(old) = &self.facts {
                new = job_files::merge_last_good(old, new, parsed);
            }
            if torn && young && look.keep {
                // Being rewritten, most likely: worth a word only when it lasts.
                new.problems.retain(|p| p.kind != ProblemKind::Unreadable);
            }
            self.ids = if young { [None; 3] } else { ids };
            new.problems.extend(problems);
            self.facts = Some(new);
        }
        if let Some(facts) = &mut self.facts
            && dir.stat(LEASE).is_ok()
        {
            facts.harness = Harness::Pilothouse;
        }
        Liveness { last_write: last, ..Liveness::default() }
    }

    /// Finds who works on it; gives the host, where that is another one.
    fn owner(&mut self, dir: &Dir, look: &Look<'_>, liveness: &mut Liveness) -> Option<Arc<str>> {
        let facts = self.facts.as_ref()?;
        if facts.summary.as_ref().is_some_and(|s| s.finished.is_some()) {
            // It may be what a process was told that writes elsewhere.
            liveness.stray = look.processes.recent().and_then(|census| census.stray(&self.dir));
            return None;
        }
        let mut host = None;
        let leased =
            (facts.harness == Harness::Pilothouse).then(|| owner::by_lease(dir, &mut self.lease, look.clock)).flatten();
        let search = match leased {
            Some(search) if search.owner.is_some() => {
                if let Ok(Reading::Note(note)) = lease::read(dir)
                    && note.process() == Process::Elsewhere
                {
                    host = Some(Arc::from(&*crate::job::text::clean(&note.host)));
                }
                search
            }
            // What one of ours left may have been taken up by Harbor.
            left => {
                let found = look.processes.recent().map(|census| census.search(&self.dir, look.local));
                match (found, left) {
                    (Some(found), Some(left)) if found.owner.is_none() => Search { stray: found.stray, ..left },
                    (found, left) => found.or(left).unwrap_or_default(),
                }
            }
        };
        liveness.owner = search.owner.map(|owner| (owner.pid, owner.command));
        liveness.owner_search_conclusive = search.conclusive;
        liveness.owner_left = search.left;
        liveness.stray = search.stray;
        host
    }

    /// The job by its trials.
    fn exact(&mut self, look: &Look<'_>, liveness: &Liveness, now: Stamp) -> Option<(Entry, u64)> {
        let fresh = self.trials.is_none();
        let dir = self.dir.clone();
        let pair = self.trials.get_or_insert_with(|| {
            let options = Options { owner: false, watch: false, ..Options::default() };
            Box::new((Follower::new(vec![dir], options), Fleet::default()))
        });
        let (follower, fleet) = &mut **pair;
        let counters = follower.counters();
        let before = spent(&counters);
        let mut take = |events: Vec<JobEvent>| {
            events.into_iter().for_each(|event| fleet.apply(event));
            true
        };
        if fresh && !look.keep {
            follower.scan_once(&mut take);
        } else {
            follower.pass(&mut take);
        }
        let cost = spent(&counters) - before;
        let job = fleet.jobs().first()?;
        let key = job.key;
        let last_write = job.liveness.last_write.max(liveness.last_write);
        fleet.apply(JobEvent::Liveness(key, Liveness { last_write, ..liveness.clone() }));
        let job = fleet.jobs().first()?;
        let entry = Entry::of(job, look.root, job.state(now), true);
        Some((entry, cost))
    }

    fn unreadable(&mut self, look: &Look<'_>, error: &std::io::Error) -> Option<Entry> {
        let name = self.dir.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
        let facts = JobFacts { dir: self.dir.clone(), name: Arc::from(&*name), ..JobFacts::default() };
        let facts = self.facts.clone().unwrap_or(facts);
        let owner = std::os::unix::fs::MetadataExt::uid;
        let whose = std::fs::symlink_metadata(&self.dir).ok().map(|m| match owner(&m) {
            0 => " (owner root)".to_string(),
            uid => format!(" (owner uid {uid})"),
        });
        let state = JobState {
            kind: StateKind::Unreachable,
            evidence: format!("{}{}", errno_words(error), whose.unwrap_or_default()),
            inferred: false,
        };
        let mut entry = plain(facts, Liveness::default(), look.root, Stamp::now());
        entry.state = state;
        if self.sent.as_ref() == Some(&entry) {
            return None;
        }
        self.sent = Some(entry.clone());
        Some(entry)
    }
}

fn spent(counters: &Counters) -> u64 {
    [&counters.stats, &counters.files, &counters.lists].iter().map(|c| c.load(Ordering::Relaxed)).sum()
}

/// The job by its own files alone.
fn plain(facts: JobFacts, liveness: Liveness, root: &Path, now: Stamp) -> Entry {
    let state = stand(&facts, &liveness, now);
    let mut job = Job::new(JobKey(0), facts);
    job.liveness = liveness;
    Entry::of(&job, root, state, false)
}

/// How a job stands whose trials were not looked at: as [`crate::job::Job::state`], but by what its own result says
/// of them.
fn stand(facts: &JobFacts, liveness: &Liveness, now: Stamp) -> JobState {
    let state = |kind, inferred, evidence: String| JobState { kind, evidence, inferred };
    let summary = facts.summary.as_ref();
    if let Some(end) = summary.and_then(|s| s.finished) {
        return state(StateKind::Finished, false, format!("result.json: finished_at {end:.0}"));
    }
    if let Some((pid, command)) = &liveness.owner {
        return state(StateKind::Running, false, format!("{command} (pid {pid}) works on it"));
    }
    let Some(last) = liveness.last_write else {
        return state(StateKind::Running, true, "no file times yet".to_string());
    };
    let quiet = time::age(last, now);
    let words = time::words(quiet.as_secs_f64());
    let patience = match (&liveness.owner_left, liveness.owner_search_conclusive) {
        (Some(_), _) => Duration::ZERO,
        (None, true) => QUIET_CONCLUSIVE,
        (None, false) => ASSUMED_LIMIT + QUIET_SLACK,
    };
    if quiet < patience {
        return state(StateKind::Running, true, format!("last write {words} ago"));
    }
    let whence = match &liveness.owner_left {
        Some(left) => format!("{left}, last write {words} ago"),
        None if liveness.owner_search_conclusive => format!("nobody here works on it, last write {words} ago"),
        None => format!("last write {words} ago"),
    };
    let planned = facts.n_planned().map(|(n, _)| n);
    let done = summary.and_then(|s| s.n_completed);
    match summary.and_then(|s| s.n_running) {
        Some(0) => state(StateKind::Interrupted, true, format!("result.json: 0 running, no finished_at; {whence}")),
        _ if planned.zip(done).is_some_and(|(planned, done)| done >= planned) => {
            state(StateKind::Finished, true, format!("result.json: all {} ended; {whence}", done.unwrap_or(0)))
        }
        Some(n) => state(StateKind::Dead, true, format!("result.json: {n} running; {whence}")),
        None => state(StateKind::Dead, true, whence),
    }
}
