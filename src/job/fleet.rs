//! All attached jobs and the reducer that keeps them: `apply(event)`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::alarms::Limits as AlarmLimits;
use super::class::Classification;
use super::event::JobEvent;
use super::facts::{JobFacts, Liveness};
use super::phase::{self, Phase, Writer};
use super::time::{self, Stamp};
use super::trial::{JobKey, Problem, ProblemKind, Trial};
use super::verdict::{Notebook, Verdict};

/// How a job stands, with the evidence in words.
#[derive(Debug, Clone, PartialEq)]
pub struct JobState {
    /// Which state.
    pub kind: StateKind,
    /// What it was read from.
    pub evidence: String,
    /// True when it was inferred rather than written down by the job itself.
    pub inferred: bool,
}

/// States of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// Being read for the first time.
    Reading,
    /// Somebody works on it.
    Running,
    /// All trials ended.
    Finished,
    /// It was stopped in good order: nothing running, not everything done.
    Interrupted,
    /// Trials without result and nobody alive to write them.
    Dead,
    /// Its directory can not be reached.
    Unreachable,
}

impl StateKind {
    /// The word in JSON and on the screen.
    pub fn word(self) -> &'static str {
        match self {
            StateKind::Reading => "reading",
            StateKind::Running => "running",
            StateKind::Finished => "finished",
            StateKind::Interrupted => "interrupted",
            StateKind::Dead => "dead",
            StateKind::Unreachable => "unreachable",
        }
    }
}

/// Without a sign of life on a host that can tell, a job counts as dead after this silence. Harbor
/// itself can be silent for 20 s at a time while it imports or builds.
pub const QUIET_CONCLUSIVE: Duration = Duration::from_secs(45);
/// Added to the longest limits of a running trial before silence on a host that can not tell (NFS,
/// another host, foreign processes) is taken for death.
pub const QUIET_SLACK: Duration = Duration::from_secs(900);
/// With every known trial ended, this silence means that no further one will begin: Harbor starts
/// the next within seconds, and its directory is the first thing it makes.
pub const QUIET_NOTHING_OPEN: Duration = Duration::from_secs(120);
/// Limit assumed for a trial whose own is not known: the longest that public task sets use.
pub const ASSUMED_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// One attached job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Key.
    pub key: JobKey,
    /// What its files say.
    pub facts: JobFacts,
    /// Signs of life.
    pub liveness: Liveness,
    /// Trials by directory name.
    pub trials: BTreeMap<Arc<str>, Trial>,
    /// Directories that vanished while their job ran, with nothing in their place yet: a retry is
    /// due.
    pub retry_wait: BTreeMap<Arc<str>, Arc<str>>,
    /// Trials with a reward that counts whose directories went away while the job was watched, and did not
    /// come back: task, and whether it was solved.
    pub lost: BTreeMap<Arc<str>, (Arc<str>, bool)>,
    /// Set while the directory can not be reached.
    pub unreachable: Option<Problem>,
    /// Trials read and directories known while the first scan runs.
    pub scanning: Option<(u32, u32)>,
    /// True once everything was read once.
    pub settled: bool,
    /// Classes by directory name, as far as they are known; ask [`Job::class_of`].
    pub classes: BTreeMap<Arc<str>, Arc<Classification>>,
    /// What operators said of the trials.
    pub notebook: Notebook,
}

impl Job {
    /// A job of which nothing but this is known.
    pub fn new(key: JobKey, facts: JobFacts) -> Job {
        Job {
            key,
            facts,
            liveness: Liveness::default(),
            trials: BTreeMap::new(),
            retry_wait: BTreeMap::new(),
            lost: BTreeMap::new(),
            unreachable: None,
            scanning: None,
            settled: false,
            classes: BTreeMap::new(),
            notebook: Notebook::default(),
        }
    }

    /// The state of the job at `now`.
    pub fn state(&self, now: Stamp) -> JobState {
        let state = |kind, inferred, evidence: String| JobState { kind, evidence, inferred };
        let log = self.facts.layout.log_file();
        if let Some(problem) = &self.unreachable {
            return state(StateKind::Unreachable, false, format!("{}: {}", problem.path, problem.message));
        }
        let summary = self.facts.summary.as_ref();
        if let Some(end) = summary.and_then(|s| s.finished) {
            return state(StateKind::Finished, false, format!("{} {end:.0}", self.facts.layout.end_file()));
        }
        if let Some((pid, command)) = &self.liveness.owner {
            return state(StateKind::Running, false, format!("{command} (pid {pid}) holds {log} open"));
        }
        if !self.settled {
            return state(StateKind::Reading, true, "first scan".to_string());
        }
        let open = self.trials.values().filter(|t| t.result.is_none() && !t.unreadable);
        let begun = open.filter(|t| t.evidence.as_ref().is_some_and(|e| e.config.is_some())).count();
        let Some(last) = self.liveness.last_write else {
            return state(StateKind::Running, true, "no file times yet".to_string());
        };
        let quiet = time::age(last, now);
        let words = time::words(quiet.as_secs_f64());
        let nothing_open = self.trials.values().all(|t| t.result.is_some() || t.unreadable) && !self.trials.is_empty();
        let left = self.liveness.owner_left.as_deref();
        let patience = match (self.liveness.owner_search_conclusive, nothing_open) {
            _ if left.is_some() => Duration::ZERO,
            (true, _) => QUIET_CONCLUSIVE,
            (false, true) => QUIET_NOTHING_OPEN,
            (false, false) => self.patience(),
        };
        if quiet < patience {
            return state(StateKind::Running, true, format!("last write {words} ago"));
        }
        let whence = if let Some(left) = left {
            format!("{left}, last write {words} ago")
        } else if self.liveness.owner_search_conclusive {
            format!("no process holds {log} open, last write {words} ago")
        } else if nothing_open {
            format!("last write {words} ago")
        } else {
            format!("last write {words} ago, longer than any limit here")
        };
        let planned = self.facts.n_planned().map(|(n, _)| n);
        let done = self.trials.values().filter(|t| t.result.is_some()).count() as u64;
        match summary.and_then(|s| s.n_running) {
            Some(0) => state(StateKind::Interrupted, true, format!("result.json: 0 running, no finished_at; {whence}")),
            None if begun == 0 && planned.is_some_and(|n| done >= n) => {
                state(StateKind::Finished, true, format!("all {done} planned trials have a result; {whence}"))
            }
            _ if begun == 0 => state(StateKind::Interrupted, true, format!("no trial without result; {whence}")),
            _ => state(StateKind::Dead, true, format!("{begun} trials without result; {whence}")),
        }
    }

    /// How long silence is normal here: the longest agent, verifier and setup limits of a trial
    /// that has no result.
    fn patience(&self) -> Duration {
        let limit = |t: &Trial| {
            let l = &t.limits;
            [l.environment, l.agent_setup, l.agent, l.verifier].into_iter().flatten().sum::<f64>()
        };
        let longest = self.trials.values().filter(|t| t.result.is_none()).map(limit).fold(0.0, f64::max);
        let known = if longest > 0.0 { Duration::from_secs_f64(longest.min(30.0 * 86_400.0)) } else { ASSUMED_LIMIT };
        known + QUIET_SLACK
    }

    /// Whether trials without result can still be written.
    pub fn writer(&self, now: Stamp) -> Writer {
        match self.state(now).kind {
            StateKind::Running | StateKind::Reading => Writer::Possible,
            StateKind::Unreachable => Writer::Possible,
            StateKind::Finished | StateKind::Interrupted | StateKind::Dead => Writer::Gone,
        }
    }

    /// The class of one of its trials; None while it is not known for this very attempt.
    pub fn class_of(&self, trial: &Trial) -> Option<&Arc<Classification>> {
        let id = trial.result.as_ref().and_then(|r| r.id.as_ref());
        self.classes.get(&trial.name).filter(|class| class.result_id.as_ref() == id)
    }

    /// The verdict that holds for one of its trials.
    pub fn verdict_of(&self, trial: &Trial) -> Option<Verdict> {
        self.notebook.verdict(trial).map(|(verdict, _)| verdict)
    }

    /// The phase of one of its trials.
    pub fn phase(&self, trial: &Trial, writer: Writer) -> Phase {
        phase::of_trial(trial, writer)
    }
}

/// All attached jobs: the one state that screen, JSON and reports are drawn from.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    jobs: Vec<Job>,
    /// Problems that belong to no job.
    pub problems: Vec<Problem>,
    /// Grows with every change; caches compare it.
    pub revision: u64,
    /// From when on alarms are raised.
    pub alarm_limits: AlarmLimits,
}

impl Fleet {
    /// Of these jobs alone.
    pub fn of(jobs: Vec<Job>) -> Fleet {
        Fleet { jobs, ..Fleet::default() }
    }

    /// All jobs, in the order in which they were found.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// One job.
    pub fn job(&self, key: JobKey) -> Option<&Job> {
        self.jobs.iter().find(|j| j.key == key)
    }

    fn job_mut(&mut self, key: JobKey) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|j| j.key == key)
    }

    /// Takes in one event. Unknown jobs in events other than [`JobEvent::Job`] are ignored.
    pub fn apply(&mut self, event: JobEvent) {
        self.revision += 1;
        match event {
            JobEvent::Job(key, facts) => match self.job_mut(key) {
                Some(job) => job.facts = *facts,
                None => {
                    // A root that held no job when it was first looked at does now.
                    let dir = facts.dir.clone();
                    self.problems
                        .retain(|p| p.kind != ProblemKind::Missing || !dir.starts_with(std::path::Path::new(&*p.path)));
                    self.jobs.push(Job::new(key, *facts));
                }
            },
            JobEvent::Liveness(key, liveness) => {
                if let Some(job) = self.job_mut(key) {
                    job.liveness = liveness;
                }
            }
            JobEvent::Trial(key, trial) => {
                if let Some(job) = self.job_mut(key) {
                    job.retry_wait.remove(&trial.name);
                    job.lost.remove(&trial.name);
                    job.trials.insert(trial.name.clone(), *trial);
                }
            }
            JobEvent::TrialGone(key, name) => {
                if let Some(job) = self.job_mut(key)
                    && let Some(trial) = job.trials.remove(&name)
                {
                    job.classes.remove(&name);
                    if let Some(result) = trial.result.as_deref().filter(|r| r.has_valid_reward()) {
                        let solved = result.rewards.primary() == Some(1.0);
                        job.lost.insert(name.clone(), (trial.task.clone(), solved));
                    }
                    job.retry_wait.insert(name, trial.task);
                }
            }
            JobEvent::Class(key, name, class) => {
                if let Some(job) = self.job_mut(key) {
                    match class {
                        Some(class) => job.classes.insert(name, class),
                        None => job.classes.remove(&name),
                    };
                }
            }
            JobEvent::Notebook(key, notebook) => {
                if let Some(job) = self.job_mut(key) {
                    job.notebook = *notebook;
                }
            }
            JobEvent::Unreachable(key, problem) => {
                if let Some(job) = self.job_mut(key) {
                    job.unreachable = Some(problem);
                }
            }
            JobEvent::Reachable(key) => {
                if let Some(job) = self.job_mut(key) {
                    job.unreachable = None;
                }
            }
            JobEvent::Scanning(key, read, known) => {
                if let Some(job) = self.job_mut(key) {
                    job.scanning = Some((read, known));
                }
            }
            JobEvent::Settled(key) => {
                if let Some(job) = self.job_mut(key) {
                    job.settled = true;
                    job.scanning = None;
                }
            }
            JobEvent::Problem(problem) => {
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
        }
    }
}
