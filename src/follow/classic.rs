//! What is known of one run of classic terminal-bench between two looks, and one look at a trial of it.
//!
//! Its trials are named by their paths below the run directory, `<task>/<trial>`. Those that only the run's
//! aggregate knows are trials, too; a trial's own file counts more than the aggregate.

mod own;
mod unfinished;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, PoisonError};

use super::probe::{Counters, FileId, Look, Memory, STABLE, STABLE_AGE, Seen, Sighting, read_json};
use crate::harbor::classic::hard::TaskStatus;
use crate::harbor::classic::log::RunLog;
use crate::harbor::classic::{self, Aggregate, TrialFile, episodes};
use crate::harbor::dir::{Dir, OpenError};
use crate::job::{LimitSource, Limits, Problem, ProblemKind, RewardValue, Rewards, Trial, time};

pub(super) use unfinished::Unfinished;

/// Most of a `task.yaml` that is read.
const YAML_CAP: u64 = 1 << 20;

/// Limits of a task's agent and verifier by its own file, in seconds.
type TaskLimits = (Option<f64>, Option<f64>);

/// What is known of one run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Only this trial, which lies by itself.
    pub only: Option<OsString>,
    /// This aggregate, of several in one directory.
    pub pick: Option<String>,
    /// The run's own files.
    pub own: classic::Run,
    /// The last aggregate that could be read.
    pub aggregate: Option<Aggregate>,
    /// What the wrapper says of tasks.
    status: Vec<TaskStatus>,
    /// It is the wrapper's.
    hard: bool,
    /// Trials of the aggregate by their paths.
    entries: BTreeMap<OsString, TrialFile>,
    /// `run.log`, and how far it was read.
    log: RunLog,
    log_read: (u64, u64),
    /// Directories in the run's, by name, and what is in them.
    groups: BTreeMap<OsString, Group>,
    /// Names of the run's own files, and the state of the directory at that time.
    names: (Option<FileId>, Vec<String>),
    /// State of the files that were read.
    read: Vec<(String, Option<FileId>)>,
    /// Failed trials of which the log said nothing yet.
    unexplained: Mutex<BTreeSet<OsString>>,
    /// Limits of tasks by their own files.
    limits: Mutex<HashMap<String, TaskLimits>>,
}

/// A directory in a run's.
#[derive(Debug, Default)]
struct Group {
    id: Option<FileId>,
    /// Paths of its trials below the run's directory.
    trials: Vec<OsString>,
    /// What it is, where it holds none.
    odd: Option<Problem>,
}

impl Run {
    /// Of which nothing was read yet: of only one trial, by one aggregate of several.
    pub fn new(only: Option<OsString>, pick: Option<String>) -> Run {
        Run { only, pick, ..Run::default() }
    }

    /// The paths of all trials known.
    pub fn trials(&self) -> BTreeSet<OsString> {
        let on_disk = self.groups.values().flat_map(|group| group.trials.iter());
        let all = on_disk.chain(self.entries.keys());
        match &self.only {
            Some(only) => all.filter(|name| *name == only).cloned().chain([only.clone()]).collect(),
            None => all.cloned().collect(),
        }
    }

    /// One look at a trial, as [`Look::trial`].
    pub fn trial(&self, look: &Look<'_>, name: &OsStr, memory: &mut Memory) -> Sighting {
        memory.due = None;
        let Some(utf8) = name.to_str() else { return look.odd_name(name, memory) };
        let rel = format!("{utf8}/results.json");
        let entry = self.entries.get(name);
        if memory.done {
            let now = look.stat(&rel);
            if now.as_ref().map(FileId::from) == memory.result {
                return Sighting { newest: now.map(|m| m.modified), ..Sighting::of(Seen::Same) };
            }
        } else if let Some(known) = &memory.classic
            && !look.last
            && memory.torn.is_none()
            && entry.is_none()
            && known.unchanged(look, utf8)
        {
            return Sighting { newest: known.newest, ..Sighting::of(Seen::Same) };
        }
        Counters::add(&look.counters.probes);
        match read_json(look.job, &rel) {
            Ok(bytes) => {
                Counters::add(&look.counters.files);
                let id = FileId::from(&bytes.meta);
                match classic::trial_result(&bytes.data) {
                    Ok(file) => {
                        let mut sighting = self.ended(look, utf8, memory, Some(id), file, entry);
                        sighting.newest = Some(bytes.meta.modified);
                        sighting
                    }
                    Err(problem) => {
                        let since = memory.torn.filter(|(before, _)| *before == id).map_or(look.clock, |t| t.1);
                        let still = look.clock.saturating_duration_since(since);
                        let old = time::age(bytes.meta.modified, look.now) > STABLE_AGE;
                        memory.torn = Some((id, since));
                        if !(look.last || old || still >= STABLE || memory.done) {
                            let mut sighting = self.begun(look, name, memory, None);
                            sighting.again = Some(STABLE.saturating_sub(still));
                            return sighting;
                        }
                        memory.torn = None;
                        let place = match problem.line {
                            0 => "results.json".to_string(),
                            line => format!("results.json:{line}:{}", problem.column),
                        };
                        let broken = look.problem(ProblemKind::Unreadable, utf8, &place, &problem.to_string());
                        self.without_own(look, name, memory, Some(broken))
                    }
                }
            }
            Err(OpenError::Missing) => {
                memory.torn = None;
                self.without_own(look, name, memory, None)
            }
            Err(OpenError::Vanished) => {
                let mut sighting = self.without_own(look, name, memory, None);
                sighting.again = Some(STABLE);
                sighting
            }
            Err(error) => {
                let broken = look.problem(ProblemKind::Unreadable, utf8, "results.json", &error.to_string());
                self.without_own(look, name, memory, Some(broken))
            }
        }
    }

    /// A trial whose own result is not there or can not be read: as the aggregate knows it, else as its files
    /// show it.
    fn without_own(&self, look: &Look<'_>, name: &OsStr, memory: &mut Memory, broken: Option<Problem>) -> Sighting {
        let utf8 = name.to_string_lossy();
        let Some(entry) = self.entries.get(name) else { return self.begun(look, name, memory, broken) };
        let id = look.stat(&format!("{utf8}/results.json")).as_ref().map(FileId::from);
        let mut sighting = self.ended(look, &utf8, memory, id, entry.clone(), None);
        if let (Seen::Trial(trial), Some(broken)) = (&mut sighting.seen, broken) {
            trial.problems.push(Problem {
                message: format!("{}; the run's aggregate counts in its place", broken.message).into(),
                ..broken
            });
        }
        sighting
    }

    fn begun(&self, look: &Look<'_>, name: &OsStr, memory: &mut Memory, broken: Option<Problem>) -> Sighting {
        let was_done = std::mem::take(&mut memory.done);
        memory.result = None;
        let dir = match look.job.sub_os(name) {
            Ok(dir) => dir,
            Err(error) => return look.not_opened(name, memory, &error),
        };
        let sighting = unfinished::look(self, look, &dir, &name.to_string_lossy(), memory, broken);
        Sighting { restarted: sighting.restarted || was_done, ..sighting }
    }

    /// A trial with a result.
    fn ended(
        &self,
        look: &Look<'_>,
        name: &str,
        memory: &mut Memory,
        id: Option<FileId>,
        file: TrialFile,
        entry: Option<&TrialFile>,
    ) -> Sighting {
        *memory = Memory { result: id, done: true, ..Memory::default() };
        let mut trial = self.blank(name);
        trial.task = file.task.clone();
        trial.limits = self.limits_of(&file.task);
        let mut result = file.result;
        result.agent = self.own.facts.agents.first().cloned();
        let own_name = file.name.as_deref().unwrap_or_else(|| name.rsplit('/').next().unwrap_or(name));
        if let Some(exception) = &mut result.exception {
            match self.log.words(own_name, &file.task, &exception.kind) {
                Some(words) => exception.message = format!("{}: {words}", classic::place::LOG).into(),
                None => {
                    let mut open = self.unexplained.lock().unwrap_or_else(PoisonError::into_inner);
                    open.insert(OsString::from(name));
                }
            }
        }
        if result.n_episodes.is_none()
            && let Ok(dir) = look.job.sub(name)
        {
            Counters::add(&look.counters.lists);
            let n = episodes::numbers(&dir).len();
            result.n_episodes = u32::try_from(n).ok().filter(|n| *n > 0);
        }
        let path = look.file(name, "results.json");
        let mut problem = |kind, message: String| {
            trial.problems.push(Problem { kind, path: path.clone(), message: message.into() });
        };
        for note in &file.notes {
            problem(ProblemKind::Unreadable, crate::job::text::clean(note).into_owned());
        }
        if let Some((key, RewardValue::Unreadable(value))) = result.rewards.primary_entry() {
            problem(ProblemKind::RewardUnreadable, format!("{key} is {value}, neither true nor false"));
        }
        if let Some(entry) = entry
            && entry.result.rewards != result.rewards
        {
            let said = |rewards: &Rewards| match rewards.primary() {
                Some(1.0) => "resolved",
                Some(_) => "not resolved",
                None => "no verdict",
            };
            let (here, there) = (said(&result.rewards), said(&entry.result.rewards));
            problem(ProblemKind::Note, format!("{here} by its own file, {there} by the run's: its own counts"));
        }
        trial.result = Some(Box::new(result));
        Sighting::of(Seen::Trial(Box::new(trial)))
    }

    /// A trial of which nothing but its path is known.
    fn blank(&self, name: &str) -> Trial {
        let last = name.rsplit('/').next().unwrap_or(name);
        let task = classic::trial_name(last).map_or_else(
            || name.rsplit_once('/').map_or(last, |(task, _)| task.rsplit('/').next().unwrap_or(task)),
            |parts| parts.task,
        );
        let mut trial = super::evidence::blank(name);
        trial.task = task.into();
        trial.agent = self.own.facts.agents.first().cloned();
        trial.model = self.own.facts.models.first().cloned();
        trial
    }

    /// A task's limits: the run's own, else the task's, else those that trials of it ran into.
    fn limits_of(&self, task: &str) -> Limits {
        let mut out = Limits { agent: self.own.agent_limit, verifier: self.own.test_limit, ..Limits::default() };
        out.source = if out.agent.is_some() { LimitSource::Config } else { LimitSource::Unknown };
        if out.agent.is_some() && out.verifier.is_some() {
            return out;
        }
        let (agent, tests) = self.task_file(task);
        let times = |limit: Option<f64>| limit.map(|l| l * self.own.multiplier.unwrap_or(1.0));
        if out.agent.is_none() && agent.is_some() {
            (out.agent, out.source) = (times(agent), LimitSource::TaskToml);
        }
        out.verifier = out.verifier.or(times(tests)).or_else(|| self.log.test_limit(task));
        if out.agent.is_none()
            && let Some(limit) = self.log.agent_limit(task)
        {
            (out.agent, out.source) = (Some(limit), LimitSource::Message);
        }
        out
    }

    fn task_file(&self, task: &str) -> TaskLimits {
        let mut known = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limits) = known.get(task) {
            return *limits;
        }
        let cache = || {
            let label = self.own.facts.datasets.first()?;
            let (name, version) = label.split_once("==")?;
            let home = std::env::var_os("HOME").map(std::path::PathBuf::from).filter(|home| home.is_absolute())?;
            own::is_plain(name).then_some(())?;
            own::is_plain(version).then(|| home.join(".cache/terminal-bench").join(name).join(version))
        };
        let place = self.own.tasks_dir.clone().filter(|dir| dir.is_absolute()).or_else(cache);
        let read = || {
            let dir = place.filter(|_| own::is_plain(task))?.join(task);
            let bytes = Dir::open(&dir).ok()?.read("task.yaml", YAML_CAP).ok()?;
            Some(classic::run::task_limits(&String::from_utf8_lossy(&bytes.data)))
        };
        let limits = read().unwrap_or_default();
        known.insert(task.to_string(), limits);
        limits
    }
}
