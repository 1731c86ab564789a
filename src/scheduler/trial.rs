//! One attempt at a trial: environment, agent, artifacts, verifier, teardown; and its result.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::agents::Pool;
use super::disk::Disk;
use super::hold::Holder;
use super::limits::{Limit, begun, effective, finished, given, os_error, phase, runtime_error};
use super::outage::{self, Lost};
use super::part::Part;
use super::plan::PlannedTrial;
use super::start::{healthy, start};
use crate::agent::{Agent, Desk, Stage};
use crate::environment::local::LocalEnvironment;
use crate::environment::{Act, EnvError, Environment, HeldKind, Ledger, Mount, Trouble, VERIFIER_MARK};
use crate::harbor::task::{host_variable, resolve_all};
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::{
    AgentInfo, ModelInfo, StepResult, TaskId, Timing, TrialResult, Utc, VerifierResult, file_uri,
};
use crate::harbor::write::{Rooms, Scrub, WriteError, ids};
use crate::job::Stamp;
use crate::model::endpoint::Endpoint;

/// Harbor's limit for the setup of an agent, in seconds.
const SETUP_SEC: f64 = 360.0;
/// For the start of an environment to come to its end after a stop or its limit, before it is taken down.
const START_GRACE: Duration = Duration::from_secs(5);
/// The note of our own in a trial's directory: its environment with what differs from Harbor's, and what
/// its commands came to.
pub const NOTE: &str = "pilothouse.json";

/// What a trial asks of the place it is to happen in.
pub struct Ask<'a> {
    /// The trial.
    pub planned: &'a PlannedTrial,
    /// Directories of the trial that are visible inside.
    pub mounts: Vec<Mount>,
    /// Variables of every process: the task's, the job's over them.
    pub env: Vec<(String, String)>,
}

/// Gives trials their environments.
pub trait Places: Send + Sync {
    /// An environment for one attempt, not started.
    ///
    /// # Errors
    /// What of the trial it can not give.
    fn place(&self, ask: Ask<'_>) -> Result<Box<dyn Environment>, EnvError>;

    /// Whether environments can be had now, asked before trials begin and now and then. Nothing begins
    /// while they can not.
    fn check(&self) -> Check<'_> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes what was held: a container by its id, a snapshot by its tag. Fine when it is gone.
    fn release<'a>(&'a self, _kind: HeldKind, _id: &'a str, name: &'a str) -> Act<'a, ()> {
        let why = "nothing is held here";
        Box::pin(std::future::ready(Err(EnvError::new(Trouble::Unsupported, &format!("remove {name}"), why, ""))))
    }

    /// Directories on this machine where environments keep their data, each with what lies there, in
    /// words: disks that can get full.
    fn stores(&self) -> Vec<(PathBuf, String)> {
        Vec::new()
    }
}

/// Whether environments can be had: why not, else.
pub type Check<'a> = Act<'a, ()>;

/// Scratch directories on this machine, without any isolation.
#[derive(Debug, Clone)]
pub struct LocalPlaces {
    /// Where they are made; must exist.
    pub root: PathBuf,
}

impl Places for LocalPlaces {
    fn place(&self, ask: Ask<'_>) -> Result<Box<dyn Environment>, EnvError> {
        let call = "make a local environment";
        if ask.planned.config.environment.mounts.is_some() {
            return Err(EnvError::new(Trouble::Unsupported, call, "the job has mounts", "use the Docker environment"));
        }
        if let Some(name) = ask.planned.settings.for_containers().next() {
            let detail = format!("the setting {name} is for containers");
            return Err(EnvError::new(Trouble::Unsupported, call, &detail, "use the Docker environment"));
        }
        let scratch = self.root.join(&ask.planned.config.trial_name);
        Ok(Box::new(LocalEnvironment::new(scratch, ask.mounts, ask.env)))
    }

    fn stores(&self) -> Vec<(PathBuf, String)> {
        vec![(self.root.clone(), "for scratch directories".to_string())]
    }
}

/// One attempt, to be run.
pub(super) struct Attempt {
    pub planned: Arc<PlannedTrial>,
    pub places: Arc<dyn Places>,
    pub agent: Arc<dyn Agent>,
    pub disk: Disk,
    pub cancel: watch::Receiver<bool>,
    pub scrub: Scrub,
    /// Slots for agents at work.
    pub agents: Arc<Pool>,
    pub ledger: Ledger,
    /// The agent's terminal.
    pub desk: Desk,
    /// Where its model is served.
    pub endpoint: Option<Endpoint>,
    /// The agent's clock stands still while it waits for an endpoint that is away.
    pub pauses: bool,
    /// What its phases lost so.
    pub lost: Vec<Lost>,
    /// Holds its container, should the verifier's answer not be to be trusted.
    pub holder: Option<Arc<Holder>>,
}

/// What is known of an attempt so far.
#[derive(Default)]
pub(super) struct Sheet {
    pub trial: Part,
    /// The steps that began, for a task of several.
    pub steps: Vec<Part>,
    pub environment_setup: Option<Timing>,
    pub agent_setup: Option<Timing>,
    /// What the verifier of several steps says together.
    pub verdict: Option<VerifierResult>,
    pub collected: bool,
}

impl Attempt {
    /// Runs it to its end. It always has a result, and leaves no environment behind. The other is what is to be
    /// noted beside the result ([`NOTE`]).
    pub(super) async fn run(mut self) -> (TrialResult, Option<String>) {
        let started = Stamp::now();
        let mut sheet = Sheet { environment_setup: begun(), ..Sheet::default() };
        let environment = match self.place() {
            Ok(environment) => Some(environment),
            Err(raised) => {
                finished(&mut sheet.environment_setup);
                self.note(&mut sheet.trial, &raised).await;
                None
            }
        };
        if let Some(environment) = &environment
            && let Err(raised) = self.work(environment, &mut sheet).await
        {
            self.note(&mut sheet.trial, &raised).await;
        }
        // Of several steps each has its own.
        if !sheet.collected && !self.stepwise() {
            let step = self.planned.task.steps.first().cloned();
            self.collect(environment.as_deref(), step.as_ref()).await;
        }
        // What the agent left running lived until here; a stream that is open would hold up the removal.
        self.clear_desk().await;
        let mut note = None;
        if let Some(environment) = environment {
            if let Err(e) = environment.hand_over().await {
                self.say(format!("Teardown: {e}"));
            }
            let (held, words) = self.held(&*environment, &sheet).await;
            if !held && let Err(e) = environment.stop().await {
                self.say(format!("Teardown: {e}"));
            }
            if self.stepwise() {
                self.drop_empty().await;
            }
            note = Some(self.noted(&*environment, held, words));
        }
        (self.result(sheet, started), note)
    }

    /// Whether the task has `[[steps]]`.
    pub(super) fn stepwise(&self) -> bool {
        !self.planned.task.config.steps.is_empty()
    }

    /// A line in `trial.log`.
    pub(super) fn say(&self, text: String) {
        self.disk.say(text);
    }

    /// Records a failure. The first one stays, but for a stop: a trial that was stopped before it was
    /// graded is not done, whatever happened to it before.
    pub(super) async fn note(&self, part: &mut Part, raised: &Raised) {
        let whose = match &part.step {
            None => format!("Trial {}", self.planned.config.trial_name),
            Some(step) => format!("Step {step}"),
        };
        self.say(format!("{whose} failed: {} {}", raised.kind, raised.message));
        if part.exception.is_none() || raised.is_cancelled() {
            if part.step.is_none() {
                let text = raised.traceback();
                // There may be one already.
                let _ = self.disk.work(move |folder| folder.exception(&text)).await;
            }
            let overrides = &self.planned.config.override_error_policy;
            part.exception = Some(raised.info(Stamp::now(), overrides, &self.scrub));
        }
    }

    /// Where the trial ran, and what its commands came to.
    fn noted(&self, environment: &dyn Environment, held: bool, words: Option<String>) -> String {
        let is = environment.describe();
        let commands = self.ledger.all();
        let mut deviations = is.deviations;
        if self.holder.as_ref().is_some_and(|holder| holder.marks()) {
            deviations.push(format!("the tests' processes have the variable {VERIFIER_MARK}"));
        }
        let mut note = json!({
            "schema_version": 1,
            "environment": { "kind": is.kind, "summary": is.summary, "deviations": deviations },
            "commands": commands,
        });
        if let (Some(lost), Some(fields)) = (outage::note(&self.lost), note.as_object_mut()) {
            fields.insert("endpoint".to_string(), lost);
        }
        if let (Some(words), Some(fields)) = (words, note.as_object_mut()) {
            // The config has the path as it was given, which may hold in one directory only.
            let task_dir = self.planned.task.dir.to_string_lossy();
            fields.insert("held".to_string(), json!({ "held": held, "words": words, "task_dir": task_dir }));
        }
        serde_json::to_string_pretty(&note).unwrap_or_default()
    }

    fn place(&self) -> Result<Arc<dyn Environment>, Raised> {
        let during = "the environment's start";
        let (at, kept) = (self.disk.at().to_path_buf(), self.disk.rooms().published());
        let mount = |host: PathBuf, inside: &str| Mount { host, inside: inside.to_string(), read_only: false };
        let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let at = whole(at);
        let mounts = vec![
            mount(at.join("verifier"), "/logs/verifier"),
            mount(at.join("agent"), "/logs/agent"),
            mount(whole(kept), "/logs/artifacts"),
        ];
        let planned = &*self.planned;
        let env = resolve_all(&planned.task.config.environment.env, host_variable);
        let env = env.map_err(|e| Raised::new("ValueError", &e.to_string(), during))?;
        let env = env.into_iter().chain(given(&planned.config.environment.env, during)?).collect();
        self.places.place(Ask { planned, mounts, env }).map(Arc::from).map_err(runtime_error(during))
    }

    /// Everything between start and teardown.
    async fn work(&mut self, environment: &Arc<dyn Environment>, sheet: &mut Sheet) -> Result<(), Raised> {
        let planned = Arc::clone(&self.planned);
        let (task, config) = (&*planned.task, &planned.config);
        let general = config.timeout_multiplier;
        let Some(step) = task.steps.first() else {
            return Err(Raised::new("ValueError", "the task has no step", "the plan"));
        };
        let seconds =
            effective(Some(task.config.build_timeout()), None, config.environment_build_timeout_multiplier, general);
        let (kind, what) = ("EnvironmentStartTimeoutError", "Environment start");
        let begin = start(&**environment, &planned);
        let done = {
            let mut begin = std::pin::pin!(begin);
            let done = phase(&mut self.cancel, Limit { seconds, kind, what }, begin.as_mut()).await;
            if done.as_ref().is_err_and(|e| e.is_cancelled() || e.kind == kind) {
                // What is half started can not be taken down.
                let _ = timeout(START_GRACE, begin).await;
            }
            done
        };
        finished(&mut sheet.environment_setup);
        done?;
        let is = environment.describe();
        self.say(format!("Environment: {}; {}", is.summary, is.deviations.join("; ")));
        if let Some(check) = &task.config.environment.healthcheck {
            let limit = Limit { seconds: None, kind: "HealthcheckError", what: "Healthcheck" };
            phase(&mut self.cancel, limit, healthy(&**environment, check, None)).await?;
        }
        let logs = self.rooms().await.map_err(os_error("the agent's setup"))?.agent;
        let agent = Arc::clone(&self.agent);
        let instruction = planned.instruction(step);
        let own = given(&config.agent.env, "the agent's setup")?;
        let stage = Stage {
            environment,
            task,
            step,
            instruction: &instruction,
            logs: &logs,
            env: &own,
            scrub: &self.scrub,
            output_cap: planned.settings.output_cap,
            ledger: &self.ledger,
            desk: &self.desk,
            endpoint: self.endpoint.as_ref(),
        };
        sheet.agent_setup = begun();
        let base = config.agent.override_setup_timeout_sec.unwrap_or(SETUP_SEC);
        let seconds = effective(Some(base), None, config.agent_setup_timeout_multiplier, general);
        let limit = Limit { seconds, kind: "AgentSetupTimeoutError", what: "Agent setup" };
        let done = phase(&mut self.cancel, limit, agent.setup(&stage)).await;
        finished(&mut sheet.agent_setup);
        done?;
        if config.install_only {
            return Ok(());
        }
        if self.stepwise() {
            return self.steps(environment, sheet).await;
        }
        self.agent_phase(environment, step, &mut sheet.trial).await?;
        sheet.collected = true;
        self.collect(Some(&**environment), Some(step)).await;
        if self.graded(&sheet.trial) {
            let done = self.grade(&**environment, step, &mut sheet.trial).await;
            done?;
        }
        Ok(())
    }

    /// The trial's `agent/`, `verifier/` and `artifacts/` as they are now.
    pub(super) async fn rooms(&self) -> Result<Rooms, WriteError> {
        if !self.stepwise() {
            return Ok(self.disk.rooms().clone());
        }
        self.disk.work(|folder| Rooms::open(folder.folder())).await
    }

    fn result(&self, sheet: Sheet, started: Stamp) -> TrialResult {
        let planned = &*self.planned;
        let config = &planned.config;
        let path = config.task.path.clone().unwrap_or_default();
        let task_id = match &config.task.git_url {
            Some(url) => TaskId::Git { git_url: url.clone(), git_commit_id: config.task.git_commit_id.clone(), path },
            None => TaskId::Local { path },
        };
        let at = self.disk.at();
        let at = std::path::absolute(at).unwrap_or_else(|_| at.to_path_buf());
        let stepwise = self.stepwise();
        let step = |part: Part| StepResult {
            step_name: part.step.unwrap_or_default(),
            agent_result: part.agent_result,
            verifier_result: part.verdict,
            exception_info: part.exception,
            agent_execution: part.agent_execution,
            verifier: part.verifier,
        };
        let Sheet { trial, steps, environment_setup, agent_setup, verdict, .. } = sheet;
        TrialResult {
            // A system without random numbers has made no plan either.
            id: ids::uuid().unwrap_or_default(),
            task_name: planned.task.name.clone(),
            trial_name: config.trial_name.clone(),
            trial_uri: file_uri(&at),
            task_id,
            source: config.task.source.clone(),
            task_checksum: planned.checksum.clone(),
            config: config.clone(),
            agent_info: AgentInfo {
                name: self.agent.name().to_string(),
                version: self.desk.version().unwrap_or_else(|| self.agent.version().to_string()),
                model_info: config.agent.model_name.as_deref().map(ModelInfo::parse),
            },
            agent_result: trial.agent_result,
            verifier_result: if stepwise { verdict } else { trial.verdict },
            verifier_environment_mode: (!stepwise).then(|| "shared".to_string()),
            exception_info: trial.exception,
            started_at: Some(Utc(started)),
            finished_at: Some(Utc(Stamp::now())),
            environment_setup,
            agent_setup,
            agent_execution: trial.agent_execution,
            verifier: trial.verifier,
            step_results: stepwise.then(|| steps.into_iter().map(step).collect()),
        }
    }
}
