//! A job at work: begins trials as the policy says, writes what becomes of them, obeys its [`Control`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::adaptive::{Adapted, of_surroundings};
use super::agents::Pool;
use super::board::Board;
use super::control::{Control, Named, Wanted, Wishes, control};
use super::disk::Disk;
use super::gate::{Floor, Gate, Turned};
use super::health::{Asker, Event, Health, Manners};
use super::plan::{Plan, PlannedTrial};
use super::policy::{Next, Order, Policy, Retry, Stop};
use super::trial::{Attempt, NOTE, Places};
use crate::agent::{self, Agent, Desk};
use crate::environment::Ledger;
use crate::harbor::run_config::RetryConfig;
use crate::harbor::write::config::AgentConfig;
use crate::harbor::write::result::TrialResult;
use crate::harbor::write::{Claimant, JobWriter, Modes, TrialFolder, WriteError};
use crate::job::Stamp;
use crate::model::endpoint::{Endpoints, Standing};

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

/// An attempt that has ended, and why nothing could begin right after it, where it had not begun its work.
struct Done {
    trial: usize,
    result: TrialResult,
    note: Option<String>,
    held: Option<String>,
}

/// A trial is put back at most so often.
const BACKS: u32 = 20;

/// A job that has its directory and its lease, and is to be run.
pub struct Job {
    plan: Plan,
    /// Away while a thread writes with it.
    writer: Option<JobWriter>,
    places: Arc<dyn Places>,
    agents: Agents,
    /// Agent slots by group; those without a limit of their own share the last.
    agent_slots: HashMap<Arc<str>, Arc<Pool>>,
    other_agents: Arc<Pool>,
    /// Rung when an agent takes or leaves a slot.
    moved: Arc<Notify>,
    manners: Manners,
    /// Where the models of its agents are served.
    endpoints: Endpoints,
    /// Something failed for its surroundings: what was seen of them before is old.
    distrust: bool,
    /// When a gate was closed last.
    last_closed: Option<Duration>,
    /// How often trials were put back, and when their attempt began.
    backs: HashMap<usize, u32>,
    began: HashMap<usize, Duration>,
    policy: Policy,
    wishes: Wishes,
    board: Board,
    beat: Duration,
    begin: Instant,
    work: JoinSet<Done>,
    /// Trials at work, with the way to stop each.
    stops: BTreeMap<usize, watch::Sender<bool>>,
    /// Directories of trials at work, and of those whose last attempt failed and that wait for the next.
    disks: HashMap<usize, Disk>,
    failed: Option<RunError>,
}

impl Job {
    /// Makes the job dir of a plan.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn begin(plan: Plan, who: &Claimant, places: Arc<dyn Places>) -> Result<(Job, Control), RunError> {
        // Before anything is made.
        let agents = agents(&plan)?;
        let writer = plan.begin(who)?;
        Ok(Job::of(plan, agents, writer, who, places))
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
        let agents = agents(&plan)?;
        Ok(Job::of(plan, agents, writer, who, places))
    }

    fn of(plan: Plan, agents: Agents, writer: JobWriter, who: &Claimant, places: Arc<dyn Places>) -> (Job, Control) {
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
        let moved: Arc<Notify> = Arc::default();
        let pool = |limit: u32| Pool::new(usize::try_from(limit).unwrap_or(1), Arc::clone(&moved));
        let agent_slots: HashMap<_, _> =
            plan.limits.iter().map(|(group, limit)| (Arc::clone(group), pool(*limit))).collect();
        let other_agents = Pool::new(usize::MAX, Arc::clone(&moved));
        let named = |t: &Arc<PlannedTrial>| Named {
            trial: t.config.trial_name.clone(),
            task: [t.task.name.clone(), t.task.short_name().to_string()],
        };
        let names = plan.trials.iter().map(named).collect();
        let board = Board::default();
        let (control, wishes) = control(names, &policy, counts(&agent_slots, &other_agents), board.clone());
        let endpoints = Endpoints::default();
        for base in plan.config.agents.iter().filter_map(agent::base) {
            endpoints.of(&base);
        }
        let job = Job {
            plan,
            writer: Some(writer),
            places,
            agents,
            agent_slots,
            other_agents,
            moved,
            manners: Manners::default(),
            endpoints,
            distrust: false,
            last_closed: None,
            backs: HashMap::new(),
            began: HashMap::new(),
            policy,
            wishes,
            board,
            // Half of it: one that is late must not look dead.
            beat: (who.interval / 2).max(Duration::from_millis(10)),
            begin: Instant::now(),
            work: JoinSet::new(),
            stops: BTreeMap::new(),
            disks: HashMap::new(),
            failed: None,
        };
        (job, control)
    }

    /// Lets one trial begin, and no other before [`Control::set_slots`].
    pub fn first_alone(&mut self) {
        self.policy.first_alone();
    }

    /// Where the models of its agents are served: what is done to one is done to all trials that use it.
    pub fn endpoints(&self) -> Endpoints {
        self.endpoints.clone()
    }

    /// What it does by itself while it runs.
    pub fn mind(&mut self, manners: Manners) {
        if let Some(pace) = manners.adaptive {
            self.policy.adapt(pace);
        }
        self.manners = manners;
    }

    /// Runs it to its end: until every trial is over, or until it is stopped and nothing runs. To end it
    /// early use its [`Control`]: dropping this future leaves trials without result.
    ///
    /// # Errors
    /// See [`RunError`]. Even then no environment of it is left.
    pub async fn run(mut self) -> Result<Finished, RunError> {
        let mut beaten = Instant::now();
        let mut places = self.places.stores();
        places.insert(0, (self.plan.dir(), "where the job dir is".to_string()));
        let floor = Floor { bytes: self.manners.disk_floor, places };
        let mut health = Health::begin(Arc::clone(&self.places), floor);
        let mut standings: Vec<_> = self.endpoints.all().iter().map(|(_, endpoint)| endpoint.changes()).collect();
        loop {
            let now = self.begin.elapsed();
            if std::mem::take(&mut self.distrust) {
                health.distrust();
            }
            if let Some(adapted) = self.policy.recover(now) {
                self.adapted(adapted).await;
            }
            // Nothing begins on an old look.
            let ready = self.policy.ready(now);
            let looking = ready && self.failed.is_none() && !health.fresh();
            if ready && !looking {
                for order in self.policy.orders(now) {
                    self.obey(order, health.asker()).await;
                }
            }
            self.wishes.tell(&self.policy, counts(&self.agent_slots, &self.other_agents));
            if self.work.is_empty() && (self.policy.is_over() || self.failed.is_some()) {
                break;
            }
            if beaten.elapsed() >= self.beat {
                beaten = Instant::now();
                let beat = self.write(|writer| writer.beat(Stamp::now())).await;
                self.check(beat);
            }
            if self.flush_due() == Some(Duration::ZERO) && self.failed.is_none() {
                let flushed = self.write(JobWriter::flush).await;
                self.check(flushed);
            }
            // While a look is waited for it is what wakes: what is due stays due.
            let due = self.policy.due().filter(|_| !looking).map(|at| at.saturating_sub(self.begin.elapsed()));
            let flush = self.flush_due().filter(|_| self.failed.is_none());
            let beat = self.beat.saturating_sub(beaten.elapsed());
            let wake = [due, flush].into_iter().flatten().fold(beat, Duration::min);
            tokio::select! {
                Some(done) = self.work.join_next(), if !self.work.is_empty() => self.ended(done).await,
                wanted = self.wishes.next() => self.want(&wanted).await,
                seen = health.next() => {
                    for (gate, why) in seen.gates {
                        self.turn(gate, why.as_deref()).await;
                    }
                }
                () = any_changed(&mut standings) => {
                    // Whoever closed it: nothing begins that would have to wait for it.
                    let why = self.endpoints.all().iter().find_map(|(_, endpoint)| endpoint.now().closed);
                    self.turn(Gate::Endpoint, why.as_deref()).await;
                }
                () = self.moved.notified() => {}
                () = sleep(wake) => {}
            }
        }
        drop(health);
        for closed in self.policy.closed() {
            self.tell(Event::Opened(closed, Stamp::now(), true)).await;
        }
        self.wishes.close();
        self.close().await
    }

    /// Writes, on a thread of its own: trials at work and their limits do not wait for the disk. One
    /// write at a time.
    async fn write<T: Send + 'static>(
        &mut self,
        what: impl FnOnce(&mut JobWriter) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let broken = |why: String| WriteError::Io { path: self.plan.dir(), source: std::io::Error::other(why) };
        let Some(mut writer) = self.writer.take() else { return Err(broken("the writer is gone".to_string())) };
        let done = tokio::task::spawn_blocking(move || {
            let done = what(&mut writer);
            (writer, done)
        });
        match done.await {
            Ok((writer, done)) => {
                self.writer = Some(writer);
                done
            }
            Err(e) => Err(broken(e.to_string())),
        }
    }

    fn flush_due(&self) -> Option<Duration> {
        self.writer.as_ref().and_then(JobWriter::due)
    }

    async fn close(mut self) -> Result<Finished, RunError> {
        let now = Stamp::now();
        if let Some(error) = self.failed.take() {
            // As far as it can: the next owner need not wait for the lease to grow stale.
            let _ = self.write(move |writer| writer.leave(now)).await;
            return Err(error);
        }
        let before = self.plan.before();
        let (planned, ended) = (self.plan.trials.len() + before, self.policy.over() + before);
        let queued = self.policy.queued();
        let complete = ended == planned && self.policy.stopped() != Stop::Cancel;
        self.write(move |writer| if complete { writer.finish(now) } else { writer.leave(now) }).await?;
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

    /// Says what it did by itself, in its log and to whoever hears.
    async fn tell(&mut self, event: Event) {
        let line = event.words();
        tracing::info!("{line}");
        if let Some(hear) = &self.manners.hear {
            hear(&event);
        }
        if self.failed.is_none() {
            let logged = self.write(move |writer| writer.log(&line)).await;
            self.check(logged);
        }
    }

    async fn adapted(&mut self, adapted: Adapted) {
        self.tell(Event::Adapted(adapted)).await;
    }

    async fn turn(&mut self, gate: Gate, why: Option<&str>) {
        let turned = self.policy.gate(gate, why, Stamp::now());
        if why.is_some() || turned.is_some() {
            self.last_closed = Some(self.begin.elapsed());
        }
        match turned {
            Some(Turned::Closed(closed)) => self.tell(Event::Closed(closed)).await,
            Some(Turned::Opened(closed)) => self.tell(Event::Opened(closed, Stamp::now(), false)).await,
            None => {}
        }
    }

    async fn obey(&mut self, order: Order, asker: Asker) {
        let (Order::Begin(trial) | Order::Again(trial, _)) = order;
        let Some(planned) = self.plan.trials.get(trial).map(Arc::clone) else { return };
        let begun = match self.failed {
            Some(_) => None,
            None => {
                let begun = self.folder(order, &planned).await;
                self.check(begun)
            }
        };
        let agent = self.agents.iter().find(|(config, _)| *config == planned.config.agent);
        let agent = agent.map(|(_, agent)| Arc::clone(agent));
        let (Some(folder), Some(agent)) = (begun, agent) else {
            // Not begun: nothing of it is there to be written.
            self.policy.ended(trial, &[crate::job::outcome::CANCELLED], false, self.begin.elapsed());
            return;
        };
        let (stop, cancel) = watch::channel(false);
        self.stops.insert(trial, stop);
        let disk = Disk::new(folder);
        self.disks.insert(trial, disk.clone());
        let (places, scrub) = (Arc::clone(&self.places), self.plan.scrub.clone());
        let agents = planned.group.as_ref().and_then(|group| self.agent_slots.get(group));
        let agents = Arc::clone(agents.unwrap_or(&self.other_agents));
        let ledger = Ledger::default();
        let desk = Desk::default();
        let seat = self.board.sit(&planned.config.trial_name, desk.work());
        let endpoint = agent::base(&planned.config.agent).map(|base| self.endpoints.of(&base));
        let (pauses, lost) = (self.manners.pause_clock, Vec::new());
        let holder = self.manners.holder.clone();
        let attempt = Attempt {
            planned,
            places,
            agent,
            disk,
            cancel,
            scrub,
            agents,
            ledger,
            desk,
            endpoint,
            pauses,
            lost,
            holder,
        };
        self.began.insert(trial, self.begin.elapsed());
        self.work.spawn(async move {
            let (result, note) = attempt.run().await;
            drop(seat);
            // What had not begun may have failed for what a gate is about: looked at right then.
            let held = if unbegun(&result) { asker.look().await } else { None };
            Done { trial, result, note, held }
        });
    }

    async fn folder(&mut self, order: Order, planned: &Arc<PlannedTrial>) -> Result<TrialFolder, WriteError> {
        let (planned, modes, now) = (Arc::clone(planned), Modes::default(), Stamp::now());
        if let Order::Again(trial, attempt) = order
            && let Some(last) = self.disks.remove(&trial)
        {
            if let Some(holder) = self.manners.holder.clone() {
                holder.forget_trial(&planned.config.trial_name).await;
            }
            let again = move |writer: &mut JobWriter| {
                let (config, lock) = (&planned.config, &planned.lock);
                writer.log(&format!("Trial {}: attempt {}", config.trial_name, attempt.saturating_add(1)))?;
                last.here(|last| writer.retry_trial(last, config, lock, modes, now))
            };
            return self.write(again).await;
        }
        self.write(move |writer| writer.begin_trial(&planned.config, &planned.lock, modes, now)).await
    }

    /// Puts a trial back whose attempt had not begun its work and failed while a gate was closed.
    async fn put_back(&mut self, done: &Done) -> bool {
        let began = self.began.remove(&done.trial);
        let closed = self.last_closed.zip(began).is_some_and(|(closed, began)| closed >= began);
        let why = match &done.held {
            Some(why) => why.clone(),
            None if closed && unbegun(&done.result) => "what it needs was away meanwhile".to_string(),
            None => return false,
        };
        // A look from before it failed must not let it begin again.
        self.distrust = true;
        let times = self.backs.entry(done.trial).or_default();
        *times += 1;
        if *times > BACKS || self.failed.is_some() || !self.policy.put_back(done.trial) {
            return false;
        }
        if let Some(disk) = self.disks.get(&done.trial).cloned() {
            disk.take_lines();
            let note = done.note.clone();
            let put = move |writer: &mut JobWriter| {
                disk.here_after_lines(|folder| {
                    take_note(folder, note.as_deref());
                    writer.put_back(folder, Stamp::now())
                })
            };
            let put = self.write(put).await;
            self.check(put);
        }
        self.tell(Event::PutBack(done.result.trial_name.clone(), why)).await;
        true
    }

    async fn ended(&mut self, done: Result<Done, JoinError>) {
        let done = match done {
            Ok(done) => done,
            Err(e) => return self.fail(RunError::Trial(e.to_string())),
        };
        self.stops.remove(&done.trial);
        if self.put_back(&done).await {
            return;
        }
        let Done { trial, result, note, .. } = done;
        let kinds: Vec<String> = result.exceptions().map(|e| e.exception_type.clone()).collect();
        let graded = result.reward_valid();
        let line = format!("Trial {} ended: {}", result.trial_name, kinds.first().map_or("no exception", |k| k));
        if let Some(disk) = self.disks.get(&trial).cloned() {
            disk.take_lines();
            let end = move |writer: &mut JobWriter| {
                disk.here_after_lines(|folder| {
                    take_note(folder, note.as_deref());
                    writer.end_trial(folder, &result, Stamp::now())
                })?;
                writer.log(&line)
            };
            let written = self.write(end).await;
            self.check(written);
        }
        let now = self.begin.elapsed();
        self.distrust |= of_surroundings(&kinds);
        if let Some(adapted) = self.policy.learn(trial, &kinds, now) {
            self.adapted(adapted).await;
        }
        if self.policy.ended(trial, &kinds, graded, now) == Next::Over {
            self.disks.remove(&trial);
        }
    }

    async fn want(&mut self, wanted: &Wanted) {
        if let Some(slots) = wanted.slots {
            self.policy.set_slots(slots, self.begin.elapsed());
        }
        if let Some(agents) = wanted.agents {
            self.agent_slots.values().chain([&self.other_agents]).for_each(|pool| pool.set(agents));
        }
        if let Some(pause) = wanted.pause {
            self.policy.pause(pause);
        }
        self.policy.first(&wanted.first);
        for (gate, why) in &wanted.gates {
            self.turn(*gate, why.as_deref()).await;
        }
        let mut stop = wanted.stop.map(|stop| self.policy.stop(stop)).unwrap_or_default();
        stop.extend(wanted.cancel.iter().copied().filter(|t| self.policy.cancel(*t)));
        // All of them first: none waits for another's note.
        stop.iter().for_each(|trial| self.signal(*trial));
        for trial in stop {
            self.cancel(trial).await;
        }
    }

    async fn cancel(&mut self, trial: usize) {
        self.signal(trial);
        if let Some(planned) = self.plan.trials.get(trial).map(Arc::clone)
            && self.failed.is_none()
        {
            let noted = self.write(move |writer| writer.cancelling(&planned.config.trial_name, Stamp::now())).await;
            self.check(noted);
        }
    }
}

/// Writes the note of an attempt, before its result: who reads that finds both.
fn take_note(folder: &mut TrialFolder, note: Option<&str>) {
    if let Some(Err(e)) = note.map(|note| folder.note(NOTE, note)) {
        // That it can not be written shows again at the result, which counts.
        let _ = folder.log(&format!("{NOTE}: {e}"));
    }
}

/// Ends when one of these endpoints stands differently than when it was last looked at.
async fn any_changed(standings: &mut [watch::Receiver<Standing>]) {
    let each = standings.iter_mut().map(|standing| {
        Box::pin(async {
            // An endpoint lives as long as the job.
            if standing.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    });
    let mut each: Vec<_> = each.collect();
    std::future::poll_fn(move |context| {
        let changed = each.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
        if changed { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Whether an attempt failed before its environment stood: nothing of its work had begun.
fn unbegun(result: &TrialResult) -> bool {
    let failed = result.exception_info.as_ref().is_some_and(|e| of_surroundings(&[&e.exception_type]));
    failed && result.agent_setup.is_none() && result.agent_execution.is_none()
}

/// Agents that may work at a time, where that is limited, and that do. Of several limits the sum.
fn counts(groups: &HashMap<Arc<str>, Arc<Pool>>, others: &Pool) -> (Option<usize>, usize) {
    let all: Vec<_> = groups.values().map(|pool| pool.counts()).collect();
    let (limit, at_work) = others.counts();
    let limited = limit < Semaphore::MAX_PERMITS;
    let limits = all.iter().map(|(limit, _)| *limit).reduce(|a, b| a + b);
    let agents = if limited { Some(limits.unwrap_or(limit)) } else { limits };
    (agents, at_work + all.iter().map(|(_, at_work)| at_work).sum::<usize>())
}

/// Agents, each with the config that asks for it.
type Agents = Vec<(AgentConfig, Arc<dyn Agent>)>;

/// The agents of a plan.
fn agents(plan: &Plan) -> Result<Agents, RunError> {
    let mut agents = Agents::new();
    for config in &plan.config.agents {
        let agent = agent::of(config).map_err(|lines| RunError::Agent(lines.join("; ")))?;
        agents.push((config.clone(), Arc::from(agent)));
    }
    Ok(agents)
}
