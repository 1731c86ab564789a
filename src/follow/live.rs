//! The live loop: events and deadlines in, looks at what they concern, job events out.

mod watching;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::poll::{self, Budget, Pace};
use super::probe::Counters;
use super::roots::{Root, RootState};
use super::scan::Which;
use super::watch::{Watches, Woken};
use super::{Control, Follower, Out, OwnedSink};
use crate::harbor::write::lease::LEASE;
use crate::job::{Stamp, TrialKey, time};
use crate::journal::JOURNAL;

/// Least time between two passes over everything because events were lost.
const FULL_PAUSE: Duration = Duration::from_secs(2);
/// How soon growth is shown that no phase depends on: of a recording or a log.
const SOFT: Duration = Duration::from_secs(1);
/// Files that grow all the time without telling anything but that they grow.
const GROWING: &[&str] = &["recording.cast", "terminus_2.pane", "trial.log", "test-stdout.txt"];
/// Time between two looks for an owner, and when nothing was written for long.
const OWNER: Duration = Duration::from_secs(10);
const OWNER_QUIET: Duration = Duration::from_secs(60);
/// Silence after which an owner is looked for less often.
const QUIET: Duration = Duration::from_secs(600);
/// Finished trials looked at in one go while polling.
const SLICE: usize = 500;

/// How one job is followed.
#[derive(Debug)]
struct Plan {
    watched: bool,
    files: Instant,
    running: Instant,
    visible: Instant,
    finished: Instant,
    owner: Option<Instant>,
    /// Where the last, unfinished round over the running or finished trials stopped.
    running_at: Option<OsString>,
    finished_at: Option<OsString>,
    /// Trials of which directories are watched.
    watching: BTreeSet<OsString>,
}

/// What the events of one moment concern in one job.
#[derive(Debug, Default)]
struct Touched {
    itself: bool,
    files: bool,
    owner: bool,
    trials: BTreeSet<OsString>,
}

struct Live<'a> {
    follower: Follower,
    out: Out<'a>,
    watches: Watches,
    plans: Vec<Plan>,
    roots_next: Instant,
    roots_watched: HashSet<PathBuf>,
    /// The state dir's journals, once they are watched.
    notes_watched: Option<PathBuf>,
    budget: Budget,
    start: Instant,
    visible: Option<TrialKey>,
    full: Option<Instant>,
    full_due: Option<Instant>,
}

impl Follower {
    /// Follows until [`super::Remote::stop`] is called or the sink finds its receiver gone. Blocks:
    /// give it a thread of its own.
    pub fn run(self, mut sink: OwnedSink) {
        let start = Instant::now();
        let watches = Watches::new(&self.mailbox);
        let mut live = Live {
            follower: self,
            out: Out::new(&mut *sink),
            watches,
            plans: Vec::new(),
            roots_next: start,
            roots_watched: HashSet::new(),
            notes_watched: None,
            budget: Budget::new(start),
            start,
            visible: None,
            full: None,
            full_due: None,
        };
        let mailbox = live.follower.mailbox.clone();
        live.out.mailbox = Some(mailbox.clone());
        live.roots();
        while !live.out.is_closed() {
            let woken = mailbox.wait(live.deadline());
            if woken.stop {
                break;
            }
            live.handle(woken);
            live.timers();
            live.out.flush();
        }
    }
}

impl Live<'_> {
    fn polled(&self) -> bool {
        self.follower.options.poll.is_some() || !self.follower.options.watch
    }

    fn pace(&self, j: usize) -> Pace {
        let over = self.follower.jobs.get(j).is_some_and(|job| job.finished() || job.lost.is_some());
        let watched = self.plans.get(j).is_some_and(|p| p.watched);
        poll::pace(watched, over, self.follower.options.poll)
    }

    /// Looks at all roots, begins to follow new jobs.
    fn roots(&mut self) {
        let polled = self.polled();
        // Watched before they are looked at, so that nothing falls in between.
        self.watch_roots();
        self.follower.look_for_jobs(&mut self.out);
        if self.watch_roots() {
            self.follower.look_for_jobs(&mut self.out);
        }
        let local = self.follower.roots.iter().filter(|r| r.state != RootState::Job).all(|r| r.local);
        let pause = poll::pace(local && !polled, local && !polled, self.follower.options.poll).files;
        self.roots_next = poll::on_grid(self.start, Instant::now(), pause);
        self.begin_new_jobs();
    }

    fn begin_new_jobs(&mut self) {
        while self.plans.len() < self.follower.jobs.len() && !self.out.is_closed() {
            let j = self.plans.len();
            let now = Instant::now();
            // Of a classic run, most of which is over, events are not worth their bookkeeping.
            let local = self.follower.jobs.get(j).is_some_and(|job| job.local && job.classic.is_none());
            self.plans.push(Plan {
                watched: !self.polled() && local,
                files: now,
                running: now,
                visible: now,
                finished: now,
                owner: None,
                running_at: None,
                finished_at: None,
                watching: BTreeSet::new(),
            });
            if self.follower.options.owner
                && let Some(job) = self.follower.jobs.get_mut(j)
            {
                job.find_owner(&self.follower.env, &mut self.out);
            }
            self.pass(j, Which::All);
            self.plan_owner(j);
            self.out.flush();
        }
    }

    /// One complete pass over a job, with its watches and its next deadlines.
    fn pass(&mut self, j: usize, which: Which) {
        if self.follower.jobs.get(j).is_some_and(|job| job.lost.is_some()) {
            // What was watched before it vanished may be another directory by now.
            self.unwatch(j);
        }
        let reached = self.follower.jobs.get_mut(j).is_some_and(|job| job.open(&mut self.out).is_some());
        if !reached {
            return self.unwatch(j);
        }
        // Watched before it is read, so that nothing falls in between.
        self.watch_job(j);
        self.watch_notes();
        let Some(job) = self.follower.jobs.get_mut(j) else { return };
        job.pass(&self.follower.env, which, false, &mut self.out);
        let names: Vec<OsString> = match self.plans.get(j) {
            Some(plan) if plan.watched => job.active.union(&plan.watching).cloned().collect(),
            _ => Vec::new(),
        };
        self.sync(j, names);
        let (now, pace) = (Instant::now(), self.pace(j));
        let at = |pause| poll::on_grid(self.start, now, pause);
        if let Some(plan) = self.plans.get_mut(j) {
            plan.files = at(pace.files);
            plan.running = at(pace.running);
            plan.visible = at(pace.visible.unwrap_or(pace.running));
            if which == Which::All {
                plan.finished = at(pace.finished);
            }
        }
    }

    fn plan_owner(&mut self, j: usize) {
        let (Some(job), Some(plan)) = (self.follower.jobs.get(j), self.plans.get_mut(j)) else { return };
        let wanted = self.follower.options.owner && (!job.finished() || job.owner.is_some()) && job.lost.is_none();
        let quiet = job.last_write().is_none_or(|at| time::age(at, Stamp::now()) > QUIET);
        let pause = if quiet && job.owner.is_none() { OWNER_QUIET } else { OWNER };
        plan.owner = wanted.then(|| poll::on_grid(self.start, Instant::now(), pause));
    }

    /// The next time at which something is due; None when nothing is before an event comes.
    fn deadline(&self) -> Option<Instant> {
        let mut due: Vec<Instant> = Vec::new();
        if self.follower.roots.iter().any(|r| r.state != RootState::Job) {
            due.push(self.roots_next);
        }
        due.extend(self.follower.roots.iter().filter_map(|r| r.next));
        due.extend(self.full_due);
        for (j, (job, plan)) in self.follower.jobs.iter().zip(&self.plans).enumerate() {
            if let Some((_, next)) = job.lost {
                due.push(next);
                continue;
            }
            due.extend([plan.files, plan.running, plan.finished]);
            due.extend(plan.owner);
            due.extend(job.due());
            if !plan.watched && self.visible_name(j).is_some() {
                due.push(plan.visible);
            }
        }
        due.into_iter().min()
    }

    fn visible_name(&self, j: usize) -> Option<OsString> {
        let visible = self.visible.as_ref()?;
        let job = self.follower.jobs.get(j)?;
        (job.key == visible.job).then(|| OsString::from(&*visible.trial))
    }

    fn handle(&mut self, woken: Woken) {
        for message in woken.control {
            match message {
                Control::Visible(trial) => {
                    self.visible = trial;
                    for j in 0..self.plans.len() {
                        if let Some(name) = self.visible_name(j) {
                            self.look(j, &[name]);
                        }
                    }
                }
                Control::Rescan => self.full_due = Some(Instant::now()),
                Control::Follow(path) => {
                    self.follower.roots.push(Root::new(path));
                    self.roots();
                }
            }
        }
        if woken.lost {
            let earliest = self.full.map_or_else(Instant::now, |at| at + FULL_PAUSE);
            self.full_due = Some(self.full_due.map_or(earliest, |due| due.min(earliest)));
        }
        let mut touched: BTreeMap<usize, Touched> = BTreeMap::new();
        let mut roots = false;
        for path in &woken.paths {
            if self.notes_watched.as_deref().is_some_and(|notes| path.starts_with(notes)) {
                // Whose it is shows when the jobs look; that costs a `stat` each.
                (0..self.follower.jobs.len()).for_each(|j| touched.entry(j).or_default().files = true);
                continue;
            }
            roots |= !self.route(path, &mut touched) && self.roots_watched.contains(path.parent().unwrap_or(path));
            roots |= self.roots_watched.contains(path);
        }
        for (j, touched) in touched {
            self.touch(j, touched);
        }
        if roots {
            self.roots();
        }
    }

    /// Notes what a touched path concerns; false when it belongs to no job.
    fn route(&mut self, path: &Path, touched: &mut BTreeMap<usize, Touched>) -> bool {
        let jobs = self.follower.jobs.iter_mut().enumerate();
        let inside = jobs.filter(|(_, job)| path.starts_with(&job.path));
        let Some((j, job)) = inside.max_by_key(|(_, job)| job.path.as_os_str().len()) else { return false };
        let Some(plan) = self.plans.get(j).filter(|p| p.watched) else { return true };
        let Ok(rel) = path.strip_prefix(&job.path) else { return false };
        let touched = touched.entry(j).or_default();
        let mut parts = rel.iter();
        let Some(name) = parts.next() else {
            // The job dir itself was moved, deleted or had its rights changed.
            touched.itself = true;
            self.watches.remove(path);
            return true;
        };
        let rest = parts.as_path();
        match name.to_str() {
            Some("job.log") => {
                let due = Instant::now() + SOFT;
                job.files_due = Some(job.files_due.map_or(due, |d| d.min(due)));
                return true;
            }
            Some("config.json" | "lock.json" | "result.json" | JOURNAL) => {
                touched.files = true;
                return true;
            }
            Some(LEASE) => {
                touched.owner = true;
                return true;
            }
            Some(other) if other.starts_with('.') || other.starts_with("pilothouse.") => return true,
            _ => {}
        }
        if plan.watching.contains(name)
            && let Some(slot) = job.trials.get_mut(name)
        {
            // A watched directory was replaced, moved or deleted, and its watch may be gone.
            let rest_text = rest.to_string_lossy();
            if let Some(i) = slot.watched.iter().position(|rel| **rel == *rest_text) {
                slot.watched.swap_remove(i);
                self.watches.remove(path);
            }
            let only_grows = rest.file_name().and_then(OsStr::to_str).is_some_and(|n| GROWING.contains(&n));
            let visible =
                self.visible.as_ref().is_some_and(|v| v.job == job.key && *v.trial == *name.to_string_lossy());
            if only_grows && !visible && slot.memory.unfinished.as_ref().is_some_and(|u| u.has_grown(&rest_text)) {
                let due = Instant::now() + SOFT;
                slot.memory.due = Some(slot.memory.due.map_or(due, |d| d.min(due)));
                return true;
            }
            if let Some(unfinished) = &mut slot.memory.unfinished {
                unfinished.expect_change();
            }
        }
        touched.trials.insert(name.to_os_string());
        true
    }

    fn touch(&mut self, j: usize, touched: Touched) {
        let Some(job) = self.follower.jobs.get_mut(j) else { return };
        if job.lost.is_some() && !touched.itself {
            return;
        }
        let was_over = job.finished();
        if touched.itself {
            self.pass(j, Which::Active);
        } else {
            let names: Vec<OsString> = touched.trials.into_iter().collect();
            if touched.files
                && let Some(dir) = job.open(&mut self.out)
            {
                job.read_files(&dir, &self.follower.env, false, &mut self.out);
            }
            self.look(j, &names);
        }
        if touched.owner
            && self.follower.options.owner
            && let Some(job) = self.follower.jobs.get_mut(j)
        {
            job.find_owner(&self.follower.env, &mut self.out);
            self.plan_owner(j);
        }
        self.after(j, was_over);
    }

    /// Looks at trials by name, then at their watches.
    fn look(&mut self, j: usize, names: &[OsString]) {
        let Some(job) = self.follower.jobs.get_mut(j) else { return };
        if let Some(dir) = job.open(&mut self.out) {
            job.look_at(&dir, &self.follower.env, names, false, &mut self.out);
        }
        self.sync(j, names.to_vec());
    }

    /// What follows from a job's having vanished, come back, begun or ended.
    fn after(&mut self, j: usize, was_over: bool) {
        let Some(job) = self.follower.jobs.get(j) else { return };
        if job.lost.is_some() {
            self.unwatch(j);
        } else if job.finished() != was_over {
            self.plan_owner(j);
        }
    }

    fn timers(&mut self) {
        let now = Instant::now();
        if self.full_due.is_some_and(|due| due <= now) {
            self.full_due = None;
            self.roots();
            for j in 0..self.plans.len() {
                self.pass(j, Which::All);
                self.after(j, false);
            }
            self.full = Some(Instant::now());
            return;
        }
        let waiting = self.follower.roots.iter().any(|r| r.state != RootState::Job);
        if self.follower.roots.iter().any(|r| r.next.is_some_and(|n| n <= now)) || waiting && self.roots_next <= now {
            self.roots();
        }
        for j in 0..self.plans.len() {
            self.job_timers(j, now);
        }
    }

    fn job_timers(&mut self, j: usize, now: Instant) {
        let Some(job) = self.follower.jobs.get_mut(j) else { return };
        let was_over = job.finished();
        if let Some((_, next)) = job.lost {
            if next <= now {
                self.pass(j, Which::All);
                self.plan_owner(j);
            }
            return;
        }
        let Some(plan) = self.plans.get(j) else { return };
        let (watched, files, running, finished) =
            (plan.watched, plan.files <= now, plan.running <= now, plan.finished <= now);
        let (visible, owner) = (plan.visible <= now, plan.owner.is_some_and(|o| o <= now));
        if job.due().is_some_and(|due| due <= now) {
            let names = job.due_names(Some(now));
            job.again(&self.follower.env, &names, false, &mut self.out);
            job.emit_liveness(&mut self.out, false);
            self.sync(j, names);
        }
        if watched {
            if files || finished {
                self.pass(j, if finished { Which::All } else { Which::Active });
            }
        } else {
            self.poll(j, now, [visible, files, running, finished]);
        }
        if owner && let Some(job) = self.follower.jobs.get_mut(j) {
            job.find_owner(&self.follower.env, &mut self.out);
            self.plan_owner(j);
        }
        self.after(j, was_over);
    }

    /// The looks of a job that is polled, dearest to the operator first, within the budget.
    fn poll(&mut self, j: usize, now: Instant, [visible, files, running, finished]: [bool; 4]) {
        let pace = self.pace(j);
        let at = |pause| poll::on_grid(self.start, now, pause);
        let shown = self.visible_name(j);
        let (Some(job), Some(plan)) = (self.follower.jobs.get_mut(j), self.plans.get_mut(j)) else { return };
        if !(visible && shown.is_some() || files || running || finished) {
            return;
        }
        let Some(dir) = job.open(&mut self.out) else { return };
        let env = &self.follower.env;
        let cost = || cost(&env.counters);
        let mut before = cost();
        if visible && let Some(name) = shown {
            job.look_at(&dir, env, &[name], false, &mut self.out);
            plan.visible = at(pace.visible.unwrap_or(pace.running));
        }
        if files {
            job.read_files(&dir, env, false, &mut self.out);
            job.list(&dir, env, false, &mut self.out);
            plan.files = at(pace.files);
        }
        let mut spend = |budget: &mut Budget| {
            let now = cost();
            budget.spend(now - std::mem::replace(&mut before, now));
            budget.has(Instant::now())
        };
        let mut rich = spend(&mut self.budget);
        if running {
            plan.running = at(pace.running);
            let names: Vec<OsString> = after_name(&job.active, plan.running_at.take());
            for name in names {
                if !rich {
                    plan.running = self.budget.ready();
                    plan.running_at = Some(name);
                    break;
                }
                job.look_at(&dir, env, std::slice::from_ref(&name), false, &mut self.out);
                rich = spend(&mut self.budget);
            }
        }
        if finished {
            let from = plan.finished_at.take().map_or(Bound::Unbounded, Bound::Included);
            let ended = job.trials.range::<OsString, _>((from, Bound::Unbounded)).filter(|(_, s)| s.memory.done);
            let mut names: Vec<OsString> = ended.take(SLICE + 1).map(|(n, _)| n.clone()).collect();
            plan.finished_at = (names.len() > SLICE).then(|| names.pop()).flatten();
            if rich {
                job.look_at(&dir, env, &names, false, &mut self.out);
                spend(&mut self.budget);
            }
            // Slices are spread over the whole time, so that no moment is dearer than another.
            let slices = u32::try_from(job.trials.len().div_ceil(SLICE)).unwrap_or(u32::MAX).max(1);
            plan.finished = at(pace.finished / slices);
        }
    }
}

/// The names from `first` on, then those before it.
fn after_name(names: &BTreeSet<OsString>, first: Option<OsString>) -> Vec<OsString> {
    match first {
        None => names.iter().cloned().collect(),
        Some(first) => names.range(first.clone()..).chain(names.range(..first)).cloned().collect(),
    }
}

fn cost(counters: &Counters) -> u64 {
    [&counters.stats, &counters.files, &counters.lists].iter().map(|c| c.load(Ordering::Relaxed)).sum()
}
