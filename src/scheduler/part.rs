//! What a trial of one step and each step of a longer one have in common: the agent's phase, artifacts,
//! the verifier.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::collect::{Wanted, collect, run_hooks};
use super::limits::{Limit, begun, duration, effective, finished, given, os_error, phase, phase_beside, stopped};
use super::outage::Meter;
use super::trial::{Attempt, Sheet};
use crate::agent::{Cut, Stage};
use crate::environment::{Environment, TakenAside};
use crate::harbor::task::TaskStep;
use crate::harbor::write::held::set_verifier_apart;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::{AgentResult, ExceptionInfo, Timing, VerifierResult};
use crate::job::Stamp;
use crate::job::outcome::CANCELLED;
use crate::job::work::Doing;
use crate::verifier::{Verification, Verified, verify};

/// For outputs to be recovered after a stop.
const RECOVERY: Duration = Duration::from_secs(60);

/// What an agent is ended by when its time is over.
const TIMEOUT: &str = "AgentTimeoutError";

/// A trial of one step, or a step of a trial.
#[derive(Default)]
pub(super) struct Part {
    /// Name of the step; None for the trial itself.
    pub step: Option<String>,
    pub exception: Option<ExceptionInfo>,
    pub agent_execution: Option<Timing>,
    pub verifier: Option<Timing>,
    pub agent_result: Option<AgentResult>,
    pub verdict: Option<VerifierResult>,
    /// Why the verifier's answer can not be trusted.
    pub doubt: Option<String>,
    /// Its container as it was before the tests.
    pub snapshot: Option<TakenAside>,
}

impl Attempt {
    /// The agent at work. What it fails of is noted and no failure of this; a stop is.
    pub(super) async fn agent_phase(
        &mut self,
        environment: &Arc<dyn Environment>,
        step: &TaskStep,
        part: &mut Part,
    ) -> Result<(), Raised> {
        let planned = Arc::clone(&self.planned);
        let (task, config) = (&*planned.task, &planned.config);
        let what = "Agent execution";
        let since = Stamp::now();
        self.desk.tell(|work| work.doing = Doing::Slot { since });
        // Before the clock starts: the wait for a permit is nobody's time.
        let _slot = tokio::select! {
            biased;
            () = stopped(&mut self.cancel) => return Err(Raised::cancelled(what)),
            slot = self.agents.take() => slot,
        };
        self.desk.tell(|work| work.doing = Doing::Setup);
        part.agent_execution = begun();
        part.agent_result = Some(AgentResult::default());
        let logs = self.rooms().await.map_err(os_error(what))?.agent;
        let instruction = planned.instruction(step);
        let env = given(&config.agent.env, what)?;
        let stage = Stage {
            environment,
            task,
            step,
            instruction: &instruction,
            logs: &logs,
            env: &env,
            scrub: &self.scrub,
            output_cap: planned.settings.output_cap,
            ledger: &self.ledger,
            desk: &self.desk,
            endpoint: self.endpoint.as_ref(),
        };
        let base = config.agent.override_timeout_sec.filter(|s| *s > 0.0);
        let base = base.or(task.config.agent_timeout(task.spec(step)));
        let (own, general) = (config.agent_timeout_multiplier, config.timeout_multiplier);
        let seconds = effective(base, config.agent.max_timeout_sec, own, general);
        let limit = Limit { seconds, kind: TIMEOUT, what };
        let agent = Arc::clone(&self.agent);
        let meter = Meter::new(self.endpoint.clone(), self.desk.work(), self.pauses);
        let stood = || meter.stood();
        let done = tokio::select! {
            biased;
            done = phase_beside(&mut self.cancel, limit, &stood, agent.run(&stage)) => done,
            // It never ends.
            () = meter.count() => return Err(Raised::cancelled(what)),
        };
        finished(&mut part.agent_execution);
        self.desk.tell(|work| work.doing = Doing::Done);
        if let Some(lost) = meter.read(part.step.as_deref(), seconds) {
            if lost.lost.as_secs() > 0 {
                let clock = if lost.paused { "the agent's clock stood still" } else { "the agent's clock ran on" };
                self.say(format!("Endpoint: away for {:.0} s of its waits; {clock}", lost.lost.as_secs_f64()));
            }
            self.lost.push(lost);
        }
        self.settle(&stage, &done).await;
        // What it had to say when it was cut short.
        part.agent_result = Some(self.desk.reported());
        for line in self.desk.notes().await {
            self.say(format!("Terminal: {line}"));
        }
        match done {
            Ok(result) => part.agent_result = Some(result),
            Err(raised) if raised.is_cancelled() => return Err(raised),
            Err(raised) => self.note(part, &raised).await,
        }
        self.say_remarks();
        Ok(())
    }

    /// Lets an agent that was cut short end what is left of its work.
    async fn settle(&self, stage: &Stage<'_>, done: &Result<AgentResult, Raised>) {
        let cut = match done {
            Err(raised) if raised.is_cancelled() => Cut::Stopped,
            Err(raised) if raised.kind == TIMEOUT => Cut::TimeUp,
            _ => return,
        };
        match timeout(RECOVERY, self.agent.settle(stage, cut)).await {
            Ok(Ok(())) => {}
            Ok(Err(raised)) => self.say(format!("Agent: {} {}", raised.kind, raised.message)),
            Err(_) => self.say("Agent: what was left of its work was given up".to_string()),
        }
    }

    /// Closes the agent's terminal.
    pub(super) async fn clear_desk(&self) {
        for line in self.desk.clear().await {
            self.say(format!("Terminal: {line}"));
        }
    }

    /// Ends the recording of the agent's terminal and leaves the terminal open.
    pub(super) async fn rest_desk(&self) {
        for line in self.desk.rest().await {
            self.say(format!("Terminal: {line}"));
        }
    }

    /// What the commands so far came to, where it is worth a line.
    fn say_remarks(&self) {
        if let Some(remark) = self.ledger.all().last().and_then(|noted| noted.remark()) {
            self.say(remark);
        }
    }

    /// Whether it is to be graded after what happened to it.
    pub(super) fn graded(&self, part: &Part) -> bool {
        !self.planned.config.verifier.disable && part.exception.as_ref().is_none_or(|e| e.policy.should_grade)
    }

    /// Runs the tests. Their time is in the part, whatever comes of it.
    pub(super) async fn grade(
        &mut self,
        environment: &dyn Environment,
        step: &TaskStep,
        part: &mut Part,
    ) -> Result<(), Raised> {
        let planned = Arc::clone(&self.planned);
        let (task, config) = (&*planned.task, &planned.config);
        let (verifier, what) = (&config.verifier, "Verifier execution");
        let logs = self.rooms().await.map_err(os_error(what))?.verifier;
        let base = verifier.override_timeout_sec.filter(|s| *s > 0.0);
        let base = base.unwrap_or_else(|| task.config.verifier_timeout(task.spec(step)));
        let (own, general) = (config.verifier_timeout_multiplier, config.timeout_multiplier);
        let seconds = effective(Some(base), verifier.max_timeout_sec, own, general);
        let what_to_do = Verification {
            task,
            step,
            env: given(&verifier.env, what)?.into_iter().collect(),
            limit: seconds.and_then(duration),
            logs: &logs,
            output_cap: planned.settings.output_cap,
            ledger: &self.ledger,
            mark: self.holder.as_ref().is_some_and(|holder| holder.marks()),
            judge: self.holder.is_some(),
        };
        self.take_snapshot(environment, part).await;
        part.verifier = begun();
        let since = Stamp::now();
        self.desk.tell(|work| work.doing = Doing::Verifying { since });
        // The verifier keeps its limit itself: it has processes to kill.
        let limit = Limit { seconds: None, kind: "VerifierTimeoutError", what };
        let verified = async { Ok(verify(environment, &what_to_do).await) };
        let done = phase(&mut self.cancel, limit, verified).await;
        finished(&mut part.verifier);
        self.desk.tell(|work| work.doing = Doing::Done);
        self.say_remarks();
        let Verified { rewards, doubt } = done?;
        part.doubt = doubt;
        part.verdict = Some(VerifierResult { rewards: Some(rewards?) });
        Ok(())
    }

    /// Copies the container before its tests, where that is asked for; given up with a line.
    async fn take_snapshot(&self, environment: &dyn Environment, part: &mut Part) {
        let Some(holder) = self.holder.as_ref().filter(|_| part.step.is_none()) else { return };
        match holder.snapshot(environment).await {
            None => {}
            Some(Ok(taken)) => {
                self.say(format!("Snapshot: {} made before the tests", taken.name));
                part.snapshot = Some(taken);
            }
            Some(Err(why)) => self.say(format!("Snapshot: given up: {why}")),
        }
    }

    /// Holds the container where the verifier's answer can not be trusted; true: it is not this trial's to
    /// remove any more. With what there is to say about it, where the answer is doubted.
    pub(super) async fn held(&self, environment: &dyn Environment, sheet: &Sheet) -> (bool, Option<String>) {
        let Some(holder) = &self.holder else { return (false, None) };
        let part = &sheet.trial;
        let cancelled = part.exception.as_ref().is_some_and(|e| e.exception_type == CANCELLED);
        let doubt = part.doubt.as_deref().filter(|_| !cancelled && !self.stepwise());
        let trial = self.planned.config.trial_name.clone();
        if let Some(taken) = &part.snapshot {
            let said = match doubt {
                Some(why) => holder.keep_snapshot(&trial, taken, why).await,
                None => holder.drop_snapshot(taken).await.map(|()| "Snapshot: not needed, removed".to_string()),
            };
            self.say(said.unwrap_or_else(|why| format!("Snapshot: {why}")));
        }
        let Some(why) = doubt else { return (false, None) };
        if !holder.holds() {
            return (false, Some(format!("not held (--no-hold), though {why}")));
        }
        let disk = self.disk.clone();
        let apart = async move {
            let moved = disk.work(|folder| set_verifier_apart(folder.folder())).await;
            moved.map_err(|e| e.to_string())
        };
        match holder.hold(environment, &trial, why, apart).await {
            Ok(words) => {
                self.say(words.clone());
                (true, Some(words))
            }
            Err((cause, stop)) => {
                let words = format!("not held, though {why}: {cause}");
                self.say(words.clone());
                (!stop, Some(words))
            }
        }
    }

    /// Keeps what is to be kept; after a stop not for ever.
    pub(super) async fn collect(&self, environment: Option<&dyn Environment>, step: Option<&TaskStep>) {
        let mut cancel = self.cancel.clone();
        let work = self.collect_all(environment, step);
        tokio::pin!(work);
        tokio::select! {
            () = &mut work => {}
            () = stopped(&mut cancel) => {
                if timeout(RECOVERY, work).await.is_err() {
                    self.say("Artifacts: given up, the trial was stopped".to_string());
                }
            }
        }
    }

    /// Runs the hooks of the task and the step, then keeps the artifacts.
    async fn collect_all(&self, environment: Option<&dyn Environment>, step: Option<&TaskStep>) {
        self.say("Collecting main service artifacts".to_string());
        let planned = &*self.planned;
        let config = &planned.task.config;
        let spec = step.and_then(|step| planned.task.spec(step));
        if let Some(environment) = environment {
            let own = spec.map(|s| &*s.verifier.collect).unwrap_or_default();
            let hooks: Vec<_> = config.verifier.collect.iter().chain(own).collect();
            for line in run_hooks(environment, &hooks, config.environment.workdir.as_deref()).await {
                self.say(line);
            }
        }
        let own = spec.map(|s| s.artifacts.clone()).unwrap_or_default();
        let wanted = Wanted::of(planned.artifacts.iter().cloned().chain(own));
        let done = match self.rooms().await {
            Ok(rooms) => collect(environment, wanted, planned, rooms.artifacts, &self.disk).await,
            Err(e) => Err(e),
        };
        match done {
            Ok(lines) => {
                for line in lines {
                    self.say(line);
                }
            }
            Err(e) => self.say(format!("Artifacts: {e}")),
        }
    }
}
