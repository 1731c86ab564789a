//! All jobs below some directories: what is listed, not followed.
//!
//! Each root has a thread of its own, so that one whose file system hangs costs nothing but itself: it is
//! told as busy, and never as read. A job costs its own few files, read again when they change; the trials
//! of those at work, and of those on the screen whose own result tells nothing, are read as by a
//! [`super::Follower`]. How often, and how much at once, depends on the file system.

mod again;
mod look;
mod walk;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::owner::Census;
use super::poll::Budget;
use super::{errno_words, fstype};
use crate::job::Stamp;
use crate::job::roster::{RootState, RosterEvent};
use look::Known;
use walk::Walk;

/// Takes news; false when nobody listens any more.
pub type Report = dyn Fn(Vec<RosterEvent>) -> bool + Send + Sync;

/// Roots that are looked at; each has a thread, which a hanging file system may keep for ever.
pub const MAX_ROOTS: usize = 64;
/// Events that go out together.
const BATCH: usize = 64;
/// A look that goes on says so once in this time.
const ALIVE: Duration = Duration::from_secs(1);
/// The share of its time that a root's thread may be at work is one in so many.
const SHARE: u32 = 20;
/// The longest pause that follows from it.
const LONGEST: Duration = Duration::from_secs(300);
/// How old the list of processes may be, and how long it is waited for.
const CENSUS_AGE: Duration = Duration::from_secs(5);
const CENSUS_WAIT: Duration = Duration::from_secs(2);

/// How often a root is looked at, and how dearly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    /// Between two looks at jobs at work.
    open: Duration,
    /// At jobs that are over.
    over: Duration,
    /// Looks (opens, `stat`s, listings) a second, and at once.
    budget: (u32, u32),
}

/// On a file system of this host a look costs microseconds; elsewhere it is a question over the network, and
/// somebody may pay for each.
fn pace(local: bool) -> Pace {
    let seconds = Duration::from_secs;
    if local {
        Pace { open: seconds(2), over: seconds(60), budget: (2000, 200_000) }
    } else {
        Pace { open: seconds(10), over: seconds(300), budget: (200, 20_000) }
    }
}

/// What is wanted of all roots.
#[derive(Debug, Default)]
struct Asked {
    /// Job dirs on the screen.
    visible: Arc<HashSet<PathBuf>>,
    /// Nobody looks at the list.
    paused: bool,
    /// Grows with every wish to look at everything now.
    refresh: u64,
    /// Roots to be looked at.
    roots: Vec<PathBuf>,
    stop: bool,
}

#[derive(Debug, Default)]
struct Shared {
    asked: Mutex<Asked>,
    bell: Condvar,
    processes: Processes,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        // Nothing in here can be left half-changed.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks through roots as long as it lives.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    threads: HashSet<PathBuf>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { shared: Arc::new(Shared::default()), threads: HashSet::new() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.bell.notify_all();
    }
}

impl Watch {
    /// Looks through these roots from now on, and no others; of each what is found is reported. At most
    /// [`MAX_ROOTS`]: further ones are reported as left out.
    pub fn roots(&mut self, roots: &[PathBuf], report: &Arc<Report>) {
        self.shared.lock().roots = roots.to_vec();
        self.shared.bell.notify_all();
        for root in roots {
            if self.threads.contains(root) {
                continue;
            }
            if self.threads.len() >= MAX_ROOTS {
                let why = format!("not looked at: {MAX_ROOTS} directories are; forget one of them");
                report(vec![RosterEvent::Ended(root.clone(), RootState::Failed(why), "-", None)]);
                continue;
            }
            let (shared, report, path) = (self.shared.clone(), report.clone(), root.clone());
            let thread = std::thread::Builder::new().name("roster".into());
            match thread.spawn(move || run(&path, &shared, &*report)) {
                Ok(_) => drop(self.threads.insert(root.clone())),
                Err(error) => tracing::error!(%error, "no thread for a root"),
            }
        }
    }

    /// These job dirs are on the screen.
    pub fn visible(&self, dirs: HashSet<PathBuf>) {
        self.shared.lock().visible = Arc::new(dirs);
        self.shared.bell.notify_all();
    }

    /// Nobody looks at the list, or somebody does again.
    pub fn pause(&self, paused: bool) {
        self.shared.lock().paused = paused;
        self.shared.bell.notify_all();
    }

    /// Everything is to be looked at now.
    pub fn refresh(&self) {
        self.shared.lock().refresh += 1;
        self.shared.bell.notify_all();
    }
}

/// Looks through every root once, all at the same time, and waits so long for the slowest. `exact`: the trials of
/// every job are read of which they tell more than its own result.
pub fn once(roots: &[PathBuf], exact: bool, patience: Duration, mut take: impl FnMut(RosterEvent)) {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Option<Vec<RosterEvent>>>(64);
    let shared = Arc::new(Shared::default());
    let mut left = 0;
    for root in roots {
        let (sender, shared, path) = (sender.clone(), shared.clone(), root.clone());
        let work = move || {
            let mut root = Root::new(&path);
            let tell = sender.clone();
            let report = move |events| tell.send(Some(events)).is_ok();
            root.round(&Wanted { everything: true, exact, ..Wanted::default() }, &shared, &report);
            drop(sender.send(None));
        };
        if std::thread::Builder::new().name("roster".into()).spawn(work).is_ok() {
            left += 1;
        }
    }
    let until = Instant::now() + patience;
    while left > 0 {
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Some(events)) => events.into_iter().for_each(&mut take),
            Ok(None) => left -= 1,
            Err(_) => return,
        }
    }
}

/// What one round is to look at.
#[derive(Debug, Default)]
struct Wanted {
    visible: Arc<HashSet<PathBuf>>,
    /// Whatever is due or not, and without a budget.
    everything: bool,
    /// Trials are read wherever they tell more.
    exact: bool,
}

/// The thread of one root.
fn run(path: &Path, shared: &Shared, report: &Report) {
    let mut root = Root::new(path);
    let (mut refreshed, mut forgotten) = (0, false);
    let mut next: Option<Instant> = None;
    loop {
        let mut asked = shared.lock();
        let wanted = loop {
            if asked.stop {
                return;
            }
            let mine = asked.roots.iter().any(|r| r == path);
            forgotten |= !mine;
            let now = Instant::now();
            let refresh = asked.refresh != refreshed;
            let seen = Arc::ptr_eq(&asked.visible, &root.visible);
            let due = mine && !asked.paused && (refresh || !seen && root.may() || next.is_none_or(|next| next <= now));
            if due {
                if std::mem::take(&mut forgotten) {
                    // What was told of it before is not known there any more.
                    root = Root::new(path);
                }
                refreshed = asked.refresh;
                if refresh {
                    root.forget_times();
                }
                root.visible = asked.visible.clone();
                break Wanted { visible: asked.visible.clone(), everything: false, exact: true };
            }
            asked = match next.filter(|_| mine && !asked.paused) {
                Some(next) => {
                    let wait = next.saturating_duration_since(now).max(Duration::from_millis(10));
                    shared.bell.wait_timeout(asked, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => shared.bell.wait(asked).unwrap_or_else(PoisonError::into_inner),
            };
        };
        drop(asked);
        if !root.round(&wanted, shared, report) {
            return;
        }
        next = Some(root.next());
    }
}

/// What is known of one root.
struct Root {
    path: PathBuf,
    walk: Walk,
    jobs: BTreeMap<PathBuf, Known>,
    local: bool,
    pace: Pace,
    budget: Budget,
    /// Times of leases are counted from here.
    began: Instant,
    visible: Arc<HashSet<PathBuf>>,
    /// Not before this.
    rest: Instant,
    next: Instant,
}

impl Root {
    fn new(path: &Path) -> Root {
        let now = Instant::now();
        let pace = pace(true);
        Root {
            path: path.to_path_buf(),
            walk: Walk::default(),
            jobs: BTreeMap::new(),
            local: true,
            pace,
            budget: Budget::of(now, f64::from(pace.budget.0), f64::from(pace.budget.1)),
            began: now,
            visible: Arc::default(),
            rest: now,
            next: now,
        }
    }

    /// Whether another round may begin although nothing is due.
    fn may(&self) -> bool {
        self.rest <= Instant::now()
    }

    fn next(&self) -> Instant {
        self.next.max(self.rest)
    }

    /// Everything is due.
    fn forget_times(&mut self) {
        self.jobs.values_mut().for_each(|job| job.due = None);
    }

    /// Looks at what is due. False when nobody listens any more.
    fn round(&mut self, wanted: &Wanted, shared: &Shared, report: &Report) -> bool {
        let began = Instant::now();
        let mut out = Out { report, batch: Vec::new(), said: began, open: true, path: self.path.clone() };
        out.alive(true);
        // The first question to the file system, which may never be answered.
        let first = fstype::of(&self.path);
        if first.local != self.local {
            self.local = first.local;
            self.pace = pace(first.local);
            self.budget = Budget::of(began, f64::from(self.pace.budget.0), f64::from(self.pace.budget.1));
        }
        let state = match self.walk.step(&self.path, &mut |dir| out.dir(dir)) {
            Ok(found) => {
                for dir in found.jobs {
                    self.jobs.entry(dir.clone()).or_insert_with(|| Known::new(dir));
                }
                self.budget.spend(found.cost);
                self.look(wanted, shared, &mut out);
                RootState::Read(Stamp::now())
            }
            Err(error) => {
                self.next = Instant::now() + self.pace.open.max(Duration::from_secs(5));
                failed(&error)
            }
        };
        let left_out = self.walk.left_out();
        out.batch.push(RosterEvent::Ended(self.path.clone(), state, first.name, left_out));
        out.flush();
        let took = began.elapsed();
        self.rest = Instant::now() + (took * SHARE).min(LONGEST);
        out.open
    }

    /// Looks at the jobs that are due: those on the screen first, then those at work, then the newest names.
    fn look(&mut self, wanted: &Wanted, shared: &Shared, out: &mut Out<'_>) {
        let now = Instant::now();
        let due = |job: &Known| wanted.everything || job.due.is_none_or(|due| due <= now);
        let mut names: Vec<(bool, bool, PathBuf)> = self
            .jobs
            .values()
            .filter(|job| due(job) || wanted.visible.contains(&job.dir) && job.wants_detail())
            .map(|job| (!wanted.visible.contains(&job.dir), !job.is_open(), job.dir.clone()))
            .collect();
        names.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| b.2.cmp(&a.2)));
        let mut followed = self.jobs.values().filter(|job| job.is_followed()).count();
        let local = self.local;
        let mut put_off = None;
        for (_, _, dir) in names {
            if !out.open {
                return;
            }
            if !wanted.everything && !self.budget.has(Instant::now()) {
                put_off = Some(self.budget.ready());
                break;
            }
            out.alive(false);
            let Some(job) = self.jobs.get_mut(&dir) else { continue };
            let look = look::Look {
                root: &self.path,
                local,
                visible: wanted.everything || wanted.visible.contains(&dir),
                exact: wanted.exact,
                keep: !wanted.everything,
                clock: self.began.elapsed(),
                processes: &shared.processes,
                may_follow: followed < look::FOLLOWED || job.is_followed(),
            };
            let was = job.is_followed();
            let (there, cost) = job.look(&look);
            followed = followed + usize::from(job.is_followed() && !was) - usize::from(was && !job.is_followed());
            self.budget.spend(cost);
            match there {
                Some(news) => out.batch.extend(news.map(|entry| RosterEvent::Entry(Box::new(entry)))),
                None => {
                    self.jobs.remove(&dir);
                    self.walk.forget(&dir);
                    out.batch.push(RosterEvent::Gone(dir));
                    continue;
                }
            }
            let pause = if job.is_open() { self.pace.open } else { self.pace.over };
            job.due = Some(Instant::now() + pause);
            if out.batch.len() >= BATCH {
                out.flush();
            }
        }
        let mut go_on = || {
            out.alive(false);
            out.open
        };
        let again = again::look(&mut self.jobs, &mut go_on);
        out.batch.extend(again.into_iter().map(|entry| RosterEvent::Entry(Box::new(entry))));
        let jobs = self.jobs.values().filter_map(|job| job.due).min();
        let names = Instant::now() + self.pace.open;
        self.next = put_off.or(jobs).map_or(names, |at| at.min(names));
    }
}

/// Why a root can not be read, with what to do.
fn failed(error: &std::io::Error) -> RootState {
    RootState::Failed(match error.kind() {
        std::io::ErrorKind::NotFound => return RootState::Gone,
        std::io::ErrorKind::PermissionDenied => "permission denied: run as its owner or have it readable".to_string(),
        _ => errno_words(error),
    })
}

/// News on their way.
struct Out<'a> {
    report: &'a Report,
    batch: Vec<RosterEvent>,
    said: Instant,
    open: bool,
    path: PathBuf,
}

impl Out<'_> {
    /// Says that the look goes on, when that was not said just now.
    fn alive(&mut self, now: bool) {
        if now || self.said.elapsed() >= ALIVE {
            self.said = Instant::now();
            self.batch.push(RosterEvent::Begun(self.path.clone(), Stamp::now()));
            self.flush();
        }
    }

    fn dir(&mut self, _: &Path) -> bool {
        self.alive(false);
        self.open
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() && self.open {
            self.open = (self.report)(std::mem::take(&mut self.batch));
        }
    }
}

/// This host's processes, looked through by a thread of their own: one of them may have a log open on a
/// file system that hangs, and nobody else is to wait for it.
#[derive(Debug, Default)]
struct Processes {
    last: Arc<(Mutex<Latest>, Condvar)>,
}

#[derive(Debug, Default)]
struct Latest {
    census: Option<(Instant, Arc<Census>)>,
    /// A thread is at it.
    taking: bool,
}

impl Processes {
    /// A recent list; None when none can be had.
    fn recent(&self) -> Option<Arc<Census>> {
        let (lock, bell) = &*self.last;
        let mut latest = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |l: &Latest| l.census.as_ref().filter(|(at, _)| at.elapsed() < CENSUS_AGE).map(|(_, c)| c.clone());
        if let Some(census) = fresh(&latest) {
            return Some(census);
        }
        // One that hangs is not waited for a second time.
        let hangs = latest.taking;
        if !latest.taking {
            let shared = self.last.clone();
            let work = move || {
                let census = Arc::new(Census::take());
                let (lock, bell) = &*shared;
                let mut latest = lock.lock().unwrap_or_else(PoisonError::into_inner);
                *latest = Latest { census: Some((Instant::now(), census)), taking: false };
                bell.notify_all();
            };
            latest.taking = std::thread::Builder::new().name("processes".into()).spawn(work).is_ok();
        }
        let wait = if hangs { Duration::from_millis(50) } else { CENSUS_WAIT };
        let stale = |l: &mut Latest| fresh(l).is_none() && l.taking;
        let (latest, _) = bell.wait_timeout_while(latest, wait, stale).unwrap_or_else(PoisonError::into_inner);
        fresh(&latest)
    }
}
