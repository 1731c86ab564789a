//! A job that is busy with what nobody asked for: trials that have a score already are run again.
//!
//! A resume that does not recognise the finished trials (the address of the model was changed in the
//! job's own files only), or that is started in another directory than the job was, runs everything
//! again, for hours, and often into a directory that nobody watches.
//!
//! [`of`] is asked with all jobs that are known and the one that is meant; the attention line, `status
//! --json` (warning kind `rerun`) and the list of jobs tell the same by it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::alarms::Alarm;
use super::facts::{JobFacts, Stray};
use super::fleet::{Job, StateKind};
use super::slots::started;
use super::time::Stamp;
use super::trial::Trial;
use super::warnings::WarningKind;

/// What is run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rerun {
    /// Planned trials of the job that have a score already.
    pub scored: u64,
    /// Of those, the ones that were solved.
    pub solved: u64,
    /// Of those with a score, the ones that are at work, or have ended, once more.
    pub begun: u64,
    /// Where it comes from.
    pub from: From,
    /// The first trial that runs again, by its directory's name.
    pub trial: Option<Arc<str>>,
}

/// Where the scores are that a job does not know, or no longer knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// Beside the new trials, in the same job dir.
    Beside,
    /// They were in the job dir, and were deleted while it was watched.
    Deleted,
    /// In another job dir, of a job with the same name and settings or of the one that the process was told.
    Other(PathBuf, Option<Stray>),
    /// In a job dir that is not known here: the process was told it.
    Unknown(Stray),
    /// Here, and the process that was told this job dir writes into another one.
    Here(Stray),
}

/// Says whether `job`, one of `jobs`, is busy with what has a score already. None when it is not, and for
/// jobs that nobody works on. Costs a walk over the trials of the job, and of those of its name.
pub fn of(jobs: &[Job], job: &Job, now: Stamp) -> Option<Rerun> {
    if let Some(stray) = job.liveness.stray.as_ref().filter(|stray| !stray.here) {
        // The job that it writes into tells it, where that is known.
        let there = jobs.iter().any(|j| j.liveness.stray.as_ref().is_some_and(|s| s.here && s.pid == stray.pid));
        let sums = scores(job).values().fold(Score::default(), |sum, s| sum.plus(s));
        let (scored, solved) = (sum(sums.scored), sum(sums.solved));
        let found = Rerun { scored, solved, begun: 0, from: From::Here(stray.clone()), trial: None };
        return (!there && scored > 0).then_some(found);
    }
    // A last write a moment ago is no sign of somebody at work where nobody is.
    let nobody = job.liveness.owner.is_none() && job.liveness.owner_search_conclusive;
    if !job.settled || nobody || job.state(now).kind != StateKind::Running {
        return None;
    }
    let other = elsewhere(jobs, job);
    other.or_else(|| beside(job)).or_else(|| deleted(job))
}

impl Rerun {
    /// In a few words, for a cell: `12 of 85 scored run again`.
    pub fn short(&self) -> String {
        match self.from {
            From::Deleted => format!("{} scored deleted, run again", self.scored),
            From::Unknown(_) => format!("{} run, meant for another dir", self.begun),
            _ => format!("{} of {} scored run again", self.begun, self.scored),
        }
    }

    /// What happens, of how many, and the next step. Raw: clean it before it reaches a terminal.
    pub fn words(&self) -> String {
        let Rerun { scored, solved, begun, .. } = self;
        let trials = if *scored == 1 { "trial" } else { "trials" };
        let so_far = if *begun == 0 { "none of them has begun yet".to_string() } else { format!("{begun} so far") };
        match &self.from {
            From::Beside => format!(
                "busy with what has a score already: {scored} {trials} of it run again beside their results ({solved} \
                 solved), {so_far}: stop it, and see `pilothouse resume-preview` for the field that differs"
            ),
            From::Deleted => format!(
                "busy with what had a score already: {scored} {trials} with a score ({solved} solved) were deleted and \
                 run again: stop it before more is lost"
            ),
            From::Other(dir, stray) => {
                let why = match stray {
                    Some(s) => format!("{} (pid {}) was told {} and writes here", s.command, s.pid, s.meant.display()),
                    None => "the same job by name and settings".to_string(),
                };
                format!(
                    "busy with what has a score already: {scored} {trials} of it have one in {} ({solved} solved), and \
                     are run again here, {so_far}; {why}: stop it, and run only what is missing: pilothouse requeue {}",
                    dir.display(),
                    dir.display()
                )
            }
            From::Unknown(stray) => format!(
                "{} (pid {}) was told {} and writes here: it runs all of that job again, {begun} trials so far: stop \
                 it, or look at what is there: pilothouse attach {}",
                stray.command,
                stray.pid,
                stray.meant.display(),
                stray.meant.display()
            ),
            From::Here(stray) => format!(
                "{} (pid {}) was told this job and writes into {}: it runs all of it again, {scored} {trials} with a \
                 score among them ({solved} solved): stop it, or watch it there: pilothouse attach {}",
                stray.command,
                stray.pid,
                stray.writes.display(),
                stray.writes.display()
            ),
        }
    }

    /// As an alarm of the job.
    pub fn alarm(&self) -> Alarm {
        Alarm { kind: WarningKind::Rerun, message: self.words(), trial: self.trial.clone() }
    }
}

/// Trials of one task, agent and model.
type Group = (Arc<str>, Option<Arc<str>>, Option<Arc<str>>);

#[derive(Debug, Clone, Copy, Default)]
struct Score {
    scored: usize,
    solved: usize,
}

impl Score {
    fn plus(self, other: &Score) -> Score {
        Score { scored: self.scored + other.scored, solved: self.solved + other.solved }
    }
}

fn sum(n: usize) -> u64 {
    n as u64
}

/// Several agents or models make several groups of a task; a job with one of each need not name them.
fn group(facts: &JobFacts, task: &Arc<str>, agent: Option<&Arc<str>>, model: Option<&Arc<str>>) -> Group {
    let many = facts.agents.len() > 1 || facts.models.len() > 1;
    let of = |name: Option<&Arc<str>>| name.filter(|_| many).cloned();
    (task.clone(), of(agent), of(model))
}

fn group_of(job: &Job, trial: &Trial) -> Group {
    group(&job.facts, &trial.task, trial.agent.as_ref(), trial.model.as_ref())
}

fn scored(trial: &Trial) -> Option<bool> {
    let result = trial.result.as_deref().filter(|r| r.has_valid_reward())?;
    Some(result.rewards.primary() == Some(1.0))
}

fn scores(job: &Job) -> BTreeMap<Group, Score> {
    let mut out: BTreeMap<Group, Score> = BTreeMap::new();
    for trial in job.trials.values() {
        if let Some(solved) = scored(trial) {
            let score = out.entry(group_of(job, trial)).or_default();
            score.scored += 1;
            score.solved += usize::from(solved);
        }
    }
    out
}

/// Trials planned of each group; empty where the plan is not known.
fn planned(job: &Job) -> BTreeMap<Group, usize> {
    let mut out = BTreeMap::new();
    for p in job.facts.planned.iter().flatten() {
        *out.entry(group(&job.facts, &p.task, p.agent.as_ref(), p.model.as_ref())).or_default() += p.n as usize;
    }
    out
}

/// More trials of a task than planned, and the late ones began when there were scores enough.
fn beside(job: &Job) -> Option<Rerun> {
    // Hardly ever is there one too many: the quick look first.
    let mut room: HashMap<&str, i64> = HashMap::new();
    for p in job.facts.planned.iter().flatten() {
        *room.entry(&p.task).or_default() += i64::from(p.n);
    }
    let over = |trial: &Trial| {
        let left = room.get_mut(&*trial.task)?;
        *left -= 1;
        (*left < 0).then_some(())
    };
    job.trials.values().find_map(over)?;
    let planned = planned(job);
    let mut trials: BTreeMap<Group, Vec<&Trial>> = BTreeMap::new();
    for trial in job.trials.values() {
        trials.entry(group_of(job, trial)).or_default().push(trial);
    }
    let mut found = Rerun { scored: 0, solved: 0, begun: 0, from: From::Beside, trial: None };
    let mut open = false;
    for (group, trials) in &trials {
        let Some(n) = planned.get(group).copied().filter(|n| *n > 0) else { continue };
        let mut done: Vec<(Stamp, bool)> =
            trials.iter().filter_map(|t| Some((t.result.as_ref()?.finished?, scored(t)?))).collect();
        done.sort();
        // When the last planned one had its score.
        let Some((enough, _)) = done.get(n - 1) else { continue };
        let mut late: Vec<&&Trial> =
            trials.iter().filter(|t| !t.unreadable && started(t).is_some_and(|at| at >= *enough)).collect();
        if late.is_empty() {
            continue;
        }
        late.sort_by_key(|t| (t.result.is_some(), started(t), t.name.clone()));
        open |= late.iter().any(|t| t.result.is_none());
        let again = late.len().min(n);
        found.scored += sum(again);
        found.begun += sum(again);
        found.solved += sum(done.iter().take(n).filter(|(_, solved)| *solved).count().min(again));
        if found.trial.is_none() {
            found.trial = late.first().map(|t| t.name.clone());
        }
    }
    open.then_some(found)
}

fn deleted(job: &Job) -> Option<Rerun> {
    let solved = job.lost.values().filter(|(_, solved)| *solved).count();
    let scored = sum(job.lost.len());
    let found = Rerun { scored, solved: sum(solved), begun: 0, from: From::Deleted, trial: None };
    (scored > 0).then_some(found)
}

/// Another job has the scores of what is planned here.
fn elsewhere(jobs: &[Job], job: &Job) -> Option<Rerun> {
    let stray = job.liveness.stray.as_ref().filter(|stray| stray.here);
    let told = |other: &&Job| {
        let there = other.liveness.stray.as_ref();
        stray.is_some_and(|s| there.is_some_and(|t| !t.here && t.pid == s.pid) || other.facts.dir == s.meant)
    };
    let others = || jobs.iter().filter(|other| other.key != job.key);
    let other = others().find(told).or_else(|| others().find(|other| same(other, job)));
    let Some(other) = other else {
        // The process says so by its command line; what has a score there is not known here.
        let stray = stray?;
        let begun = sum(job.trials.len());
        let trial = job.trials.keys().next().cloned();
        let from = From::Unknown(stray.clone());
        return Some(Rerun { scored: 0, solved: 0, begun, from, trial });
    };
    let (scores, planned) = (scores(other), planned(job));
    let mut begun: BTreeMap<Group, Vec<&Arc<str>>> = BTreeMap::new();
    for trial in job.trials.values() {
        begun.entry(group_of(job, trial)).or_default().push(&trial.name);
    }
    let stray = stray.cloned();
    let mut found =
        Rerun { scored: 0, solved: 0, begun: 0, from: From::Other(other.facts.dir.clone(), stray), trial: None };
    for (group, score) in &scores {
        let n = score.scored.min(planned.get(group).copied().unwrap_or_default());
        let there = begun.get(group);
        found.scored += sum(n);
        found.solved += sum(score.solved.min(n));
        found.begun += sum(there.map_or(0, Vec::len).min(n));
        if n > 0 && found.trial.is_none() {
            found.trial = there.and_then(|names| names.first()).map(|name| (*name).clone());
        }
    }
    (found.scored > 0).then_some(found)
}

/// Whether `other` is an earlier, incomplete state of the same job in another directory: all is the same,
/// down to a jobs dir that is relative to wherever the job was started. Samples on purpose are complete, or
/// differ in their names.
fn same(other: &Job, job: &Job) -> bool {
    let (a, b) = (&other.facts, &job.facts);
    let relative = |facts: &JobFacts| !facts.jobs_dir.as_deref().is_some_and(|dir| Path::new(dir).is_absolute());
    let dir = |facts: &JobFacts| facts.jobs_dir.clone().unwrap_or_else(|| "jobs".into());
    let ids = a.id.is_none() || a.id != b.id;
    let earlier = matches!((a.created, b.created), (Some(a), Some(b)) if a < b);
    // Last of all: it costs a walk over its trials.
    let incomplete = || {
        let scored = other.trials.values().filter(|t| scored(t).is_some()).count() as u64;
        a.n_planned().is_some_and(|(n, _)| scored < n)
    };
    a.name == b.name
        && a.dir != b.dir
        && ids
        && earlier
        && relative(a)
        && relative(b)
        && dir(a) == dir(b)
        && a.agents == b.agents
        && a.models == b.models
        && !a.settings.is_unknown()
        && a.settings.values == b.settings.values
        && a.planned.is_some()
        && a.planned == b.planned
        && incomplete()
}
