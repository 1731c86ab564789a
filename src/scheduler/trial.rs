//! One attempt at a trial: environment, agent, artifacts, verifier, teardown; and its result.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::collect::collect;
use super::plan::PlannedTrial;
use crate::agent::{Agent, Stage};
use crate::environment::local::LocalEnvironment;
use crate::environment::{Command, Ended, EnvError, Environment, Mount, OnTimeout, Trouble, Upload};
use crate::harbor::task::{EnvTemplate, Healthcheck, TaskStep, host_variable, resolve_all};
use crate::harbor::write::config::Env;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::{
    AgentInfo, AgentResult, ExceptionInfo, ModelInfo, TaskId, Timing, TrialResult, Utc, VerifierResult, file_uri,
};
use crate::harbor::write::{Folder, Scrub, TrialFolder, WriteError, ids};
use crate::job::Stamp;
use crate::job::policy::ErrorPolicy;
use crate::verifier::{Verification, verify};

/// Harbor's limit for the setup of an agent, in seconds.
const SETUP_SEC: f64 = 360.0;
/// For the start of an environment to come to its end after a stop, before it is taken down.
const START_GRACE: Duration = Duration::from_secs(5);
/// For `pwd` in a container.
const PWD: Duration = Duration::from_secs(10);

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
}

/// Scratch directories on this machine, without any isolation.
#[derive(Debug, Clone)]
pub struct LocalPlaces {
    /// Where they are made; must exist.
    pub root: PathBuf,
}

impl Places for LocalPlaces {
    fn place(&self, ask: Ask<'_>) -> Result<Box<dyn Environment>, EnvError> {
        if ask.planned.config.environment.mounts.is_some() {
            let call = "make a local environment";
            return Err(EnvError::new(Trouble::Unsupported, call, "the job has mounts", "use the Docker environment"));
        }
        let scratch = self.root.join(&ask.planned.config.trial_name);
        Ok(Box::new(LocalEnvironment::new(scratch, ask.mounts, ask.env)))
    }
}

/// One attempt, to be run.
pub(super) struct Attempt {
    pub planned: Arc<PlannedTrial>,
    pub places: Arc<dyn Places>,
    pub agent: Arc<dyn Agent>,
    pub folder: TrialFolder,
    pub cancel: watch::Receiver<bool>,
    pub scrub: Scrub,
}

/// What is known of an attempt so far.
#[derive(Default)]
struct Sheet {
    exception: Option<ExceptionInfo>,
    environment_setup: Option<Timing>,
    agent_setup: Option<Timing>,
    agent_execution: Option<Timing>,
    verifier: Option<Timing>,
    agent_result: Option<AgentResult>,
    verdict: Option<VerifierResult>,
    collected: bool,
}

/// A limit, and what it means when it is over.
struct Limit {
    seconds: Option<f64>,
    kind: &'static str,
    what: &'static str,
}

/// `min(base, max) × factor`, in seconds; the phase's own factor replaces the general one.
fn effective(base: Option<f64>, max: Option<f64>, own: Option<f64>, general: f64) -> Option<f64> {
    let base = base?;
    Some(base.min(max.unwrap_or(f64::INFINITY)) * own.unwrap_or(general))
}

/// Seconds as a duration; none where they are no limit (infinite, or centuries).
fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.max(0.0)).ok().filter(|d| d.as_secs() < u64::from(u32::MAX))
}

fn begun() -> Option<Timing> {
    Some(Timing { started_at: Some(Utc(Stamp::now())), finished_at: None })
}

fn finished(timing: &mut Option<Timing>) {
    if let Some(timing) = timing {
        timing.finished_at = Some(Utc(Stamp::now()));
    }
}

/// An operator's variables, references to the host's replaced by what they stand for.
fn given(env: &Env, during: &str) -> Result<Env, Raised> {
    let templates = env.iter().map(|(name, value)| (name.clone(), EnvTemplate::new(value))).collect();
    resolve_all(&templates, host_variable).map_err(|e| Raised::new("ValueError", &e.to_string(), during))
}

/// Ends when the trial is stopped; never when nobody can stop it any more.
async fn stopped(cancel: &mut watch::Receiver<bool>) {
    if cancel.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A phase: its work, until its limit or a stop.
async fn phase<T>(
    cancel: &mut watch::Receiver<bool>,
    limit: Limit,
    work: impl Future<Output = Result<T, Raised>>,
) -> Result<T, Raised> {
    let limited = async {
        match limit.seconds.and_then(|s| duration(s).map(|d| (s, d))) {
            None => work.await,
            Some((seconds, limit_of)) => timeout(limit_of, work).await.unwrap_or_else(|_| {
                let message = format!("{} timed out after {seconds:?} seconds", limit.what);
                Err(Raised::new(limit.kind, &message, limit.what))
            }),
        }
    };
    tokio::select! {
        biased;
        () = stopped(cancel) => Err(Raised::cancelled(limit.what)),
        done = limited => done,
    }
}

fn os_error(during: &str) -> impl Fn(WriteError) -> Raised {
    move |e| Raised::new("OSError", &e.to_string(), during)
}

fn runtime_error(during: &str) -> impl Fn(EnvError) -> Raised {
    move |e| Raised::new("RuntimeError", &e.to_string(), during)
}

impl Attempt {
    /// Runs it to its end. It always has a result, and leaves no environment behind.
    pub(super) async fn run(mut self) -> (TrialFolder, TrialResult) {
        let started = Stamp::now();
        let mut sheet = Sheet { environment_setup: begun(), ..Sheet::default() };
        let environment = match self.place() {
            Ok(environment) => Some(environment),
            Err(raised) => {
                finished(&mut sheet.environment_setup);
                self.note(&mut sheet, &raised);
                None
            }
        };
        if let Some(environment) = &environment
            && let Err(raised) = self.work(&**environment, &mut sheet).await
        {
            self.note(&mut sheet, &raised);
        }
        if !sheet.collected {
            self.collect(environment.as_deref(), &mut sheet).await;
        }
        if let Some(environment) = environment {
            let over = environment.hand_over().await;
            for done in [over, environment.stop().await] {
                if let Err(e) = done {
                    self.say(&format!("Teardown: {e}"));
                }
            }
        }
        let result = self.result(sheet, started);
        (self.folder, result)
    }

    /// A line in `trial.log`. That it can not be written shows again at the result, which counts.
    fn say(&mut self, text: &str) {
        let _ = self.folder.log(text);
    }

    /// Records a failure. The first one stays, but for a stop: a trial that was stopped before it was
    /// graded is not done, whatever happened to it before.
    fn note(&mut self, sheet: &mut Sheet, raised: &Raised) {
        let trial = self.planned.config.trial_name.clone();
        self.say(&format!("Trial {trial} failed: {} {}", raised.kind, raised.message));
        if sheet.exception.is_none() || raised.is_cancelled() {
            let overrides = &self.planned.config.override_error_policy;
            // There may be one already.
            let _ = self.folder.exception(&raised.traceback());
            sheet.exception = Some(raised.info(Stamp::now(), overrides, &self.scrub));
        }
    }

    fn place(&mut self) -> Result<Box<dyn Environment>, Raised> {
        let during = "the environment's start";
        let folder = self.folder.folder();
        let made = folder.sub("artifacts").and_then(|a| a.make("logs", 0o755)?.make("artifacts", 0o755));
        let kept = made.map_err(os_error(during))?;
        let mount = |host: PathBuf, inside: &str| Mount { host, inside: inside.to_string(), read_only: false };
        let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let at = whole(folder.path().to_path_buf());
        let mounts = vec![
            mount(at.join("verifier"), "/logs/verifier"),
            mount(at.join("agent"), "/logs/agent"),
            mount(whole(kept.path().to_path_buf()), "/logs/artifacts"),
        ];
        let planned = &*self.planned;
        let env = resolve_all(&planned.task.config.environment.env, host_variable);
        let env = env.map_err(|e| Raised::new("ValueError", &e.to_string(), during))?;
        let env = env.into_iter().chain(given(&planned.config.environment.env, during)?).collect();
        self.places.place(Ask { planned, mounts, env }).map_err(runtime_error(during))
    }

    /// Everything between start and teardown.
    async fn work(&mut self, environment: &dyn Environment, sheet: &mut Sheet) -> Result<(), Raised> {
        let planned = Arc::clone(&self.planned);
        let (task, config) = (&*planned.task, &planned.config);
        let general = config.timeout_multiplier;
        let Some(step) = task.steps.first() else {
            return Err(Raised::new("ValueError", "the task has no step", "the plan"));
        };
        let seconds =
            effective(Some(task.config.build_timeout()), None, config.environment_build_timeout_multiplier, general);
        let (kind, what) = ("EnvironmentStartTimeoutError", "Environment start");
        let begin = start(environment, &planned);
        let done = {
            let mut begin = std::pin::pin!(begin);
            let done = phase(&mut self.cancel, Limit { seconds, kind, what }, begin.as_mut()).await;
            if done.as_ref().is_err_and(Raised::is_cancelled) {
                // What is half started can not be taken down.
                let _ = timeout(START_GRACE, begin).await;
            }
            done
        };
        finished(&mut sheet.environment_setup);
        done?;
        if let Some(check) = &task.config.environment.healthcheck {
            let limit = Limit { seconds: None, kind: "HealthcheckError", what: "Healthcheck" };
            phase(&mut self.cancel, limit, healthy(environment, check)).await?;
        }
        let during = "the agent's setup";
        let logs = self.folder.folder().sub("agent").map_err(os_error(during))?;
        let agent = Arc::clone(&self.agent);
        let instruction = &*step.instruction;
        let own = given(&config.agent.env, during)?;
        let stage = Stage { environment, task, step, instruction, logs: &logs, env: &own };
        sheet.agent_setup = begun();
        let base = config.agent.override_setup_timeout_sec.filter(|s| *s > 0.0).unwrap_or(SETUP_SEC);
        let seconds = effective(Some(base), None, config.agent_setup_timeout_multiplier, general);
        let limit = Limit { seconds, kind: "AgentSetupTimeoutError", what: "Agent setup" };
        let done = phase(&mut self.cancel, limit, agent.setup(&stage)).await;
        finished(&mut sheet.agent_setup);
        done?;
        if config.install_only {
            return Ok(());
        }
        sheet.agent_execution = begun();
        sheet.agent_result = Some(AgentResult::default());
        let base = config.agent.override_timeout_sec.filter(|s| *s > 0.0);
        let base = base.or(task.config.agent_timeout(None));
        let seconds = effective(base, config.agent.max_timeout_sec, config.agent_timeout_multiplier, general);
        let limit = Limit { seconds, kind: "AgentTimeoutError", what: "Agent execution" };
        let done = phase(&mut self.cancel, limit, agent.run(&stage)).await;
        finished(&mut sheet.agent_execution);
        match done {
            Ok(result) => sheet.agent_result = Some(result),
            Err(raised) if raised.is_cancelled() => return Err(raised),
            Err(raised) => {
                self.note(sheet, &raised);
                if !ErrorPolicy::under(&raised.kind, &config.override_error_policy).should_grade {
                    return Ok(());
                }
            }
        }
        self.collect(Some(environment), sheet).await;
        if config.verifier.disable { Ok(()) } else { self.grade(environment, step, sheet).await }
    }

    async fn grade(&mut self, environment: &dyn Environment, step: &TaskStep, sheet: &mut Sheet) -> Result<(), Raised> {
        let planned = Arc::clone(&self.planned);
        let (task, config) = (&*planned.task, &planned.config);
        let (verifier, what) = (&config.verifier, "Verifier execution");
        let logs = self.folder.folder().sub("verifier").map_err(os_error(what))?;
        let base = verifier.override_timeout_sec.filter(|s| *s > 0.0);
        let base = base.unwrap_or_else(|| task.config.verifier_timeout(None));
        let (own, general) = (config.verifier_timeout_multiplier, config.timeout_multiplier);
        let seconds = effective(Some(base), verifier.max_timeout_sec, own, general);
        let what_to_do = Verification {
            task,
            step,
            env: given(&verifier.env, what)?.into_iter().collect(),
            limit: seconds.and_then(duration),
            logs: logs.dir(),
        };
        sheet.verifier = begun();
        // The verifier keeps its limit itself: it has processes to kill.
        let limit = Limit { seconds: None, kind: "VerifierTimeoutError", what };
        let done = phase(&mut self.cancel, limit, verify(environment, &what_to_do)).await;
        finished(&mut sheet.verifier);
        sheet.verdict = Some(VerifierResult { rewards: Some(done?) });
        Ok(())
    }

    async fn collect(&mut self, environment: Option<&dyn Environment>, sheet: &mut Sheet) {
        sheet.collected = true;
        self.say("Collecting main service artifacts");
        let wanted = &self.planned.task.config.artifacts;
        let done = match self.folder.folder().sub("artifacts") {
            Ok(folder) => collect(environment, wanted, &folder).await,
            Err(e) => Err(e),
        };
        match done {
            Ok(lines) => lines.iter().for_each(|line| self.say(line)),
            Err(e) => self.say(&format!("Artifacts: {e}")),
        }
    }

    fn result(&self, sheet: Sheet, started: Stamp) -> TrialResult {
        let planned = &*self.planned;
        let config = &planned.config;
        let path = config.task.path.clone().unwrap_or_default();
        let task_id = match &config.task.git_url {
            Some(url) => TaskId::Git { git_url: url.clone(), git_commit_id: config.task.git_commit_id.clone(), path },
            None => TaskId::Local { path },
        };
        let at = Folder::path(self.folder.folder());
        let at = std::path::absolute(at).unwrap_or_else(|_| at.to_path_buf());
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
                version: self.agent.version().to_string(),
                model_info: config.agent.model_name.as_deref().map(ModelInfo::parse),
            },
            agent_result: sheet.agent_result,
            verifier_result: sheet.verdict,
            verifier_environment_mode: Some("shared".to_string()),
            exception_info: sheet.exception,
            started_at: Some(Utc(started)),
            finished_at: Some(Utc(Stamp::now())),
            environment_setup: sheet.environment_setup,
            agent_setup: sheet.agent_setup,
            agent_execution: sheet.agent_execution,
            verifier: sheet.verifier,
            step_results: None,
        }
    }
}

/// Starts the environment; files beside a prebuilt image go into its working directory.
async fn start(environment: &dyn Environment, planned: &PlannedTrial) -> Result<(), Raised> {
    let failed = runtime_error("the environment's start");
    environment.start().await.map_err(&failed)?;
    let task = &planned.task;
    let files = task.dir.join("environment");
    let some = std::fs::read_dir(&files).is_ok_and(|mut entries| entries.next().is_some());
    if task.config.environment.docker_image.is_none() || task.dockerfile || !some {
        return Ok(());
    }
    let workdir = match &task.config.environment.workdir {
        Some(workdir) => workdir.clone(),
        None if environment.describe().kind == "local" => "/app".to_string(),
        None => environment.probe(&["pwd"], None, PWD).await.map_err(&failed)?.text.trim().to_string(),
    };
    environment.upload(Upload::Dir(files), &workdir).await.map_err(&failed)?;
    Ok(())
}

/// Checks until it is healthy. Failures in the start period do not count.
async fn healthy(environment: &dyn Environment, check: &Healthcheck) -> Result<(), Raised> {
    let during = "Healthcheck";
    let begin = Instant::now();
    let command =
        Command { timeout: duration(check.timeout_sec), on_timeout: OnTimeout::Kill, ..Command::new(&check.command) };
    let mut failures = 0;
    loop {
        let end = environment.exec(&command).await.map_err(runtime_error(during))?;
        if end.ended == Ended::Exited(0) {
            return Ok(());
        }
        let wait = if begin.elapsed().as_secs_f64() < check.start_period_sec {
            check.start_interval_sec
        } else {
            failures += 1;
            if failures >= check.retries {
                let message = format!("Healthcheck failed after {failures} retries");
                return Err(Raised::new("HealthcheckError", &message, during));
            }
            check.interval_sec
        };
        // Never without a breath, whatever the task says.
        sleep(duration(wait).unwrap_or_default().max(Duration::from_millis(10))).await;
    }
}
