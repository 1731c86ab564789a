//! A job at work: begins trials as the policy says, writes what becomes of them, obeys its [`Control`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::control::{Control, Wanted, Wishes, control};
use super::plan::{Plan, PlannedTrial};
use super::policy::{Next, Order, Policy, Retry, Stop};
use super::trial::{Attempt, Places};
use crate::agent::{self, Agent};
use crate::harbor::run_config::RetryConfig;
use crate::harbor::write::result::TrialResult;
use crate::harbor::write::{Claimant, JobWriter, Modes, TrialFolder, WriteError};
use crate::job::Stamp;

/// Why a job could not go on. Its trials were stopped; it can be resumed when the cause is gone.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A trial broke off without a result: a fault of this program.
    #[error("a trial broke off: {0}")]
    Trial(String),
    /// An agent that is not ours; a plan has none.
    #[error("no agent {0:?}")]
    Agent(String),
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Planned trials.
    pub planned: usize,
    /// Trials with a result, those that were stopped included.
    pub ended: usize,
    /// Trials that never began.
    pub queued: usize,
    /// True when every planned trial was run to its end.
    pub complete: bool,
}

/// A job that has its directory and its lease, and is to be run.
pub struct Job {
    plan: Plan,
    writer: JobWriter,
    places: Arc<dyn Places>,
    agents: HashMap<String, Arc<dyn Agent>>,
    policy: Policy,
    wishes: Wishes,
    beat: Duration,
    begin: Instant,
    work: JoinSet<(usize, TrialFolder, TrialResult)>,
    /// Trials at work, with the way to stop each.
    stops: BTreeMap<usize, watch::Sender<bool>>,
    /// Trials whose last attempt failed and that wait for the next.
    waiting: HashMap<usize, TrialFolder>,
    failed: Option<RunError>,
}

impl Job {
    /// Makes the job dir of a plan.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn begin(plan: Plan, who: &Claimant, places: Arc<dyn Places>) -> Result<(Job, Control), RunError> {
        let writer = plan.begin(who)?;
        Job::with(plan, writer, who, places)
    }

    /// A plan's job, whose directory `writer` writes.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn with(
        plan: Plan,
        writer: JobWriter,
        who: &Claimant,
        places: Arc<dyn Places>,
    ) -> Result<(Job, Control), RunError> {
        let mut agents = HashMap::new();
        for config in &plan.config.agents {
            let name = config.name.clone().unwrap_or_default();
            let agent = agent::by_name(&name).ok_or_else(|| RunError::Agent(name.clone()))?;
            agents.insert(name, Arc::from(agent));
        }
        let config = &plan.config;
        let retry = &config.retry;
        let rules = RetryConfig {
            max_retries: retry.max_retries,
            include_exceptions: retry.include_exceptions.clone(),
            exclude_exceptions: retry.exclude_exceptions.clone(),
            wait_multiplier: retry.wait_multiplier,
            min_wait_sec: retry.min_wait_sec,
            max_wait_sec: retry.max_wait_sec,
        };
        let retry = Retry { rules, overrides: config.override_error_policy.clone() };
        let slots = usize::try_from(config.n_concurrent_trials).unwrap_or(usize::MAX);
        let policy = Policy::new(plan.trials.len(), slots, retry);
        let names = plan.trials.iter().map(|t| t.config.trial_name.clone()).collect();
        let (control, wishes) = control(names, &policy);
        let job = Job {
            plan,
            writer,
            places,
            agents,
            policy,
            wishes,
            // Half of it: one that is late must not look dead.
            beat: (who.interval / 2).max(Duration::from_millis(10)),
            begin: Instant::now(),
            work: JoinSet::new(),
            stops: BTreeMap::new(),
            waiting: HashMap::new(),
            failed: None,
        };
        Ok((job, control))
    }

    /// Runs it to its end: until every trial is over, or until it is stopped and nothing runs. To end it
    /// early use its [`Control`]: dropping this future leaves trials without result.
    ///
    /// # Errors
    /// See [`RunError`]. Even then no environment of it is left.
    pub async fn run(mut self) -> Result<Finished, RunError> {
        let mut beaten = Instant::now();
        loop {
            for order in self.policy.orders(self.begin.elapsed()) {
                self.obey(order);
            }
            self.wishes.tell(&self.policy);
            if self.work.is_empty() && (self.policy.is_over() || self.failed.is_some()) {
                break;
            }
            if beaten.elapsed() >= self.beat {
                beaten = Instant::now();
                let beat = self.writer.beat(Stamp::now());
                self.check(beat);
            }
            if self.writer.due() == Some(Duration::ZERO) && self.failed.is_none() {
                let flushed = self.writer.flush();
                self.check(flushed);
            }
            let due = self.policy.due().map(|at| at.saturating_sub(self.begin.elapsed()));
            let flush = self.writer.due().filter(|_| self.failed.is_none());
            let beat = self.beat.saturating_sub(beaten.elapsed());
            let wake = [due, flush].into_iter().flatten().fold(beat, Duration::min);
            tokio::select! {
                Some(done) = self.work.join_next(), if !self.work.is_empty() => self.ended(done),
                wanted = self.wishes.next() => self.want(&wanted),
                () = sleep(wake) => {}
            }
        }
        self.wishes.close();
        self.close()
    }

    fn close(mut self) -> Result<Finished, RunError> {
        let now = Stamp::now();
        if let Some(error) = self.failed {
            // As far as it can: the next owner need not wait for the lease to grow stale.
            let _ = self.writer.leave(now);
            return Err(error);
        }
        let before = self.plan.before();
        let (planned, ended) = (self.plan.trials.len() + before, self.policy.over() + before);
        let queued = self.policy.queued();
        let complete = ended == planned && self.policy.stopped() != Stop::Cancel;
        if complete { self.writer.finish(now) } else { self.writer.leave(now) }?;
        Ok(Finished { planned, ended, queued, complete })
    }

    /// The first failure stops the job.
    fn check<T>(&mut self, done: Result<T, WriteError>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(e) => {
                self.fail(e.into());
                None
            }
        }
    }

    fn fail(&mut self, error: RunError) {
        self.failed.get_or_insert(error);
        for trial in self.policy.stop(Stop::Cancel) {
            self.signal(trial);
        }
    }

    fn signal(&self, trial: usize) {
        if let Some(stop) = self.stops.get(&trial) {
            stop.send_replace(true);
        }
    }

    fn obey(&mut self, order: Order) {
        let (Order::Begin(trial) | Order::Again(trial, _)) = order;
        let Some(planned) = self.plan.trials.get(trial).map(Arc::clone) else { return };
        let begun = match self.failed {
            Some(_) => None,
            None => {
                let begun = self.folder(order, &planned);
                self.check(begun)
            }
        };
        let agent = planned.config.agent.name.as_ref().and_then(|name| self.agents.get(name)).map(Arc::clone);
        let (Some(folder), Some(agent)) = (begun, agent) else {
            // Not begun: nothing of it is there to be written.
            self.policy.ended(trial, &[crate::job::outcome::CANCELLED], self.begin.elapsed());
            return;
        };
        let (stop, cancel) = watch::channel(false);
        self.stops.insert(trial, stop);
        let (places, scrub) = (Arc::clone(&self.places), self.plan.scrub.clone());
        let attempt = Attempt { planned, places, agent, folder, cancel, scrub };
        self.work.spawn(async move {
            let (folder, result) = attempt.run().await;
            (trial, folder, result)
        });
    }

    fn folder(&mut self, order: Order, planned: &PlannedTrial) -> Result<TrialFolder, WriteError> {
        let (config, lock, modes, now) = (&planned.config, &planned.lock, Modes::default(), Stamp::now());
        if let Order::Again(trial, attempt) = order
            && let Some(last) = self.waiting.remove(&trial)
        {
            self.writer.log(&format!("Trial {}: attempt {}", config.trial_name, attempt.saturating_add(1)))?;
            return self.writer.retry_trial(last, config, lock, modes, now);
        }
        self.writer.begin_trial(config, lock, modes, now)
    }

    fn ended(&mut self, done: Result<(usize, TrialFolder, TrialResult), JoinError>) {
        let (trial, folder, result) = match done {
            Ok(done) => done,
            Err(e) => return self.fail(RunError::Trial(e.to_string())),
        };
        self.stops.remove(&trial);
        let written = self.writer.end_trial(&folder, &result, Stamp::now());
        self.check(written);
        let kinds: Vec<&str> = result.exceptions().map(|e| &*e.exception_type).collect();
        let word = kinds.first().copied().unwrap_or("no exception");
        if self.failed.is_none() {
            let line = self.writer.log(&format!("Trial {} ended: {word}", result.trial_name));
            self.check(line);
        }
        if let Next::RetryAt(_) = self.policy.ended(trial, &kinds, self.begin.elapsed()) {
            self.waiting.insert(trial, folder);
        }
    }

    fn want(&mut self, wanted: &Wanted) {
        if let Some(slots) = wanted.slots {
            self.policy.set_slots(slots);
        }
        let mut stop = wanted.stop.map(|stop| self.policy.stop(stop)).unwrap_or_default();
        stop.extend(wanted.cancel.iter().copied().filter(|t| self.policy.cancel(*t)));
        for trial in stop {
            self.cancel(trial);
        }
    }

    fn cancel(&mut self, trial: usize) {
        self.signal(trial);
        if let Some(planned) = self.plan.trials.get(trial).map(Arc::clone)
            && self.failed.is_none()
        {
            let noted = self.writer.cancelling(&planned.config.trial_name, Stamp::now());
            self.check(noted);
        }
    }
}
