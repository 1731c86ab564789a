//! One row per trial and per queued slot: what lists sort, filter and show.

use std::collections::HashMap;
use std::sync::Arc;

use crate::job::tally::{Place, Tally};
use crate::job::trial::{Evidence, Limits};
use crate::job::{
    Classification, Fleet, Grade, Job, JobKey, Phase, Stamp, Trial, TrialKey, Verdict, Word, phase, time,
};

/// The one word that sums a row up. Reward and exception stay two columns beside it: a solved
/// timeout is `passed` and still shows its exception type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Somebody works on it.
    Running,
    /// A result without reward or exception.
    Phantom,
    /// Files that can not be read.
    Unreadable,
    /// No result and nobody to write one.
    Orphaned,
    /// Ended with an exception that is no timeout, and not solved.
    Error,
    /// Ended by a timeout, and not solved.
    Timeout,
    /// Ended well, but no primary reward.
    NoReward,
    /// Graded 0.
    Failed,
    /// Reward between 0 and 1.
    Partial,
    /// Reward 1.
    Passed,
    /// Stopped.
    Cancelled,
    /// Not begun.
    Queued,
}

impl Outcome {
    /// All of them in the order of the counts line.
    pub const ALL: [Outcome; 12] = [
        Outcome::Passed,
        Outcome::Partial,
        Outcome::Failed,
        Outcome::Timeout,
        Outcome::Error,
        Outcome::NoReward,
        Outcome::Cancelled,
        Outcome::Phantom,
        Outcome::Orphaned,
        Outcome::Unreadable,
        Outcome::Running,
        Outcome::Queued,
    ];

    /// The word on the screen and in filters.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Running => "running",
            Outcome::Phantom => "phantom",
            Outcome::Unreadable => "unreadable",
            Outcome::Orphaned => "orphaned",
            Outcome::Error => "error",
            Outcome::Timeout => "timeout",
            Outcome::NoReward => "no reward",
            Outcome::Failed => "failed",
            Outcome::Partial => "partial",
            Outcome::Passed => "passed",
            Outcome::Cancelled => "cancelled",
            Outcome::Queued => "queued",
        }
    }

    fn of(trial: &Trial, phase: Phase) -> Outcome {
        let Some(result) = &trial.result else {
            return match phase {
                Phase::Orphaned => Outcome::Orphaned,
                Phase::Unreadable => Outcome::Unreadable,
                Phase::Queued | Phase::RetryWait => Outcome::Queued,
                _ => Outcome::Running,
            };
        };
        match (result.grade(), result.exception_type()) {
            (Grade::Passed, _) => Outcome::Passed,
            (Grade::Partial, _) => Outcome::Partial,
            (_, Some(kind)) if result.is_cancelled() || &**kind == crate::job::outcome::CANCELLED => Outcome::Cancelled,
            (_, Some(kind)) if kind.ends_with("TimeoutError") || &**kind == "Timeout" => Outcome::Timeout,
            (_, Some(_)) => Outcome::Error,
            (Grade::Failed, None) => Outcome::Failed,
            (Grade::NoReward, None) if result.is_phantom() => Outcome::Phantom,
            (Grade::NoReward, None) => Outcome::NoReward,
        }
    }
}

/// Identity of a row, stable while everything moves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowId {
    /// A trial with a directory.
    Trial(TrialKey),
    /// A queued slot: job and slot name.
    Slot(JobKey, Arc<str>),
}

/// Where a trial is in time: elapsed against its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Start of what is measured (the agent phase, the verifier, …).
    pub from: Stamp,
    /// Its end, once it is over.
    pub until: Option<Stamp>,
    /// Limit in seconds, where known.
    pub limit: Option<f64>,
    /// True when the start was inferred from file times.
    pub inferred: bool,
}

impl Timing {
    /// Seconds elapsed at `now`.
    pub fn elapsed(&self, now: Stamp) -> f64 {
        time::seconds_between(self.from, self.until.unwrap_or(now)).unwrap_or(0.0)
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Identity.
    pub id: RowId,
    /// Its job.
    pub job: JobKey,
    /// Directory name; empty for a queued slot.
    pub name: Arc<str>,
    /// Task.
    pub task: Arc<str>,
    /// Phase.
    pub phase: Phase,
    /// Summary word.
    pub outcome: Outcome,
    /// Episode it is in (running) or number entered (done).
    pub episodes: Option<u32>,
    /// Elapsed against limit.
    pub timing: Option<Timing>,
    /// Completion tokens so far or in all.
    pub output_tokens: Option<u64>,
    /// Primary reward, also when it is known before the result.
    pub reward: Option<f64>,
    /// Exception type, also when it is known before the result.
    pub exception: Option<Arc<str>>,
    /// Start of the trial.
    pub started: Option<Stamp>,
    /// End of the trial.
    pub finished: Option<Stamp>,
    /// Last sign of progress of a running trial.
    pub last_step: Option<Stamp>,
    /// Set when another trial stands for its slot, or it is a copy of one: that one's name.
    pub superseded: Option<Arc<str>>,
    /// Class, once it is known.
    pub class: Option<Arc<Classification>>,
    /// What a person said of it.
    pub verdict: Option<Verdict>,
    /// A person said something of it, if only a note.
    pub looked: bool,
    /// It ran during a noted outage.
    pub outage: bool,
    /// Its container, or a copy of it, is held, by the last line of the journal about it.
    pub held: bool,
    /// The verifier's last word on it, where it ran again: of several regrades the one that counts, else the
    /// last.
    pub regrade: Option<Regraded>,
}

/// A regrade, as rows show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Regraded {
    /// Its number.
    pub n: u32,
    /// Its reward.
    pub reward: Option<f64>,
    /// Why there is none, or it does not count, in a word.
    pub but: Option<Arc<str>>,
    /// How many there are.
    pub of: usize,
}

impl Regraded {
    fn of(trial: &Trial) -> Option<Regraded> {
        let last = trial.regrade().or_else(|| trial.regrades_of_this().next_back())?;
        let but = match &last.exception {
            Some(exception) => Some(exception.kind.clone()),
            None if last.task_changed => Some(Arc::from("of a changed task")),
            None => None,
        };
        Some(Regraded { n: last.n, reward: last.reward(), but, of: trial.regrades_of_this().count() })
    }
}

impl Row {
    /// A row of which no more is known.
    fn new(id: RowId, task: Arc<str>, phase: Phase, outcome: Outcome) -> Row {
        let (job, name) = match &id {
            RowId::Trial(key) => (key.job, key.trial.clone()),
            RowId::Slot(job, _) => (*job, Arc::from("")),
        };
        Row {
            id,
            job,
            name,
            task,
            phase,
            outcome,
            episodes: None,
            timing: None,
            output_tokens: None,
            reward: None,
            exception: None,
            started: None,
            finished: None,
            last_step: None,
            superseded: None,
            class: None,
            verdict: None,
            looked: false,
            outage: false,
            held: false,
            regrade: None,
        }
    }

    fn of_trial(job: &Job, trial: &Trial, phase: Phase) -> Row {
        let id = RowId::Trial(TrialKey { job: job.key, trial: trial.name.clone() });
        let mut row = Row::new(id, trial.task.clone(), phase, Outcome::of(trial, phase));
        row.class = job.class_of(trial).cloned();
        row.verdict = job.verdict_of(trial);
        row.looked = looked(job, trial);
        row.held = job.notebook.held(&trial.name).is_some();
        row.regrade = Regraded::of(trial);
        row.outage = {
            let start = trial.result.as_ref().and_then(|r| r.started).or(trial.evidence.as_ref().and_then(|e| e.began));
            let end = trial.result.as_ref().and_then(|r| r.finished);
            job.notebook.outages().iter().any(|o| o.meets(start, end))
        };
        if let Some(result) = &trial.result {
            row.episodes = result.n_episodes;
            row.output_tokens = result.tokens.output;
            row.reward = result.rewards.primary();
            row.exception = result.exception_type().cloned();
            row.started = result.started;
            row.finished = result.finished;
            let agent = result.spans.agent;
            row.timing = match (agent.started, agent.finished) {
                (Some(from), until @ Some(_)) => {
                    Some(Timing { from, until, limit: trial.limits.agent, inferred: false })
                }
                _ => match (result.started, result.finished) {
                    (Some(from), until @ Some(_)) => Some(Timing { from, until, limit: None, inferred: false }),
                    _ => None,
                },
            };
        } else if let Some(evidence) = &trial.evidence {
            row.fill_live(evidence, &trial.limits);
        }
        row
    }

    fn fill_live(&mut self, e: &Evidence, limits: &Limits) {
        self.started = e.began;
        self.last_step = e.trajectory.and_then(|p| p.last_step).or(e.newest);
        self.output_tokens = e.trajectory.and_then(|p| p.tokens.output);
        self.reward = e.reward.and_then(|r| r.value);
        self.exception = e.exception.as_ref().and_then(|x| x.kind.clone());
        self.episodes = match self.phase {
            Phase::AgentRunning(n) => Some(n),
            _ => e.trajectory.map(|p| p.episodes),
        };
        let since = phase::since(e).or(e.began);
        let timing = |from: Option<Stamp>, limit: Option<f64>, inferred| {
            from.map(|from| Timing { from, until: None, limit, inferred })
        };
        self.timing = match self.phase {
            Phase::AgentRunning(_) => match e.trajectory.and_then(|p| p.first_step) {
                Some(first) => timing(Some(first), limits.agent, false),
                None => timing(e.config.map(|c| c.modified).or(e.began), limits.agent, true),
            },
            Phase::EnvironmentSetup => timing(since, limits.environment, true),
            Phase::AgentSetup => timing(since, limits.agent_setup, true),
            Phase::Verifying => timing(since, limits.verifier, true),
            Phase::Orphaned => match (e.began, e.newest) {
                (Some(from), until @ Some(_)) => Some(Timing { from, until, limit: None, inferred: true }),
                _ => None,
            },
            _ => timing(since, None, true),
        };
    }

    /// True when a clock on this row has to go on.
    pub fn ticks(&self) -> bool {
        self.timing.is_some_and(|t| t.until.is_none()) && self.phase.is_running()
    }
}

/// Whether a person said something of this attempt, if only a note.
pub fn looked(job: &Job, trial: &Trial) -> bool {
    let id = trial.result.as_ref().and_then(|r| r.id.as_ref());
    let noted = |w: &Word| w.note_only && w.result_id.as_ref() == id;
    job.verdict_of(trial).is_some() || job.notebook.words(&trial.name).iter().any(noted)
}

/// All rows of the count, in its order.
pub fn build(fleet: &Fleet, tally: &Tally) -> Vec<Row> {
    let mut rows = Vec::with_capacity(tally.rows.len());
    // Directories that a retry has removed and not made again yet, by job and task.
    let mut waiting: HashMap<(usize, &str), u32> = HashMap::new();
    for (at, job) in fleet.jobs().iter().enumerate() {
        for task in job.retry_wait.values() {
            *waiting.entry((at, task)).or_default() += 1;
        }
    }
    for counted in &tally.rows {
        let Some(job) = fleet.jobs().get(counted.job) else { continue };
        let trial = counted.trial.as_ref().and_then(|name| job.trials.get(name));
        let row = match trial {
            Some(trial) => {
                let mut row = Row::of_trial(job, trial, counted.phase);
                row.superseded = match (&counted.superseded_by, counted.place) {
                    (Some((_, by)), _) => Some(by.clone()),
                    (None, Place::Chosen) => None,
                    (None, _) => Some(Arc::from("not in the plan")),
                };
                row
            }
            // Whether it has begun is not known before everything was read.
            None if !job.settled => continue,
            None => {
                let label: Arc<str> = match &counted.slot {
                    Some(slot) => slot.to_string().into(),
                    None => counted.task.clone(),
                };
                let mut row =
                    Row::new(RowId::Slot(job.key, label), counted.task.clone(), Phase::Queued, Outcome::Queued);
                if let Some(n) = waiting.get_mut(&(counted.job, &*counted.task)).filter(|n| **n > 0) {
                    *n -= 1;
                    row.phase = Phase::RetryWait;
                }
                row
            }
        };
        rows.push(row);
    }
    rows
}
