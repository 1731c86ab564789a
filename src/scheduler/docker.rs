//! Containers for the trials of a job: prebuilt images that are here, one network for all of them.

use crate::environment::docker::{ContainerSpec, DockerEngine, DockerEnvironment, JobNetwork, NetworkChoice};
use crate::environment::{EnvError, Environment, Labels, Role, Trouble};
use crate::harbor::task::{Image, Network};

use super::plan::{Plan, PlanError, PlannedTrial};
use super::trial::{Ask, Places};

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// Gives every trial a container of its own.
#[derive(Debug)]
pub struct DockerPlaces {
    engine: DockerEngine,
    job: String,
    owner: String,
    network: Option<JobNetwork>,
}

/// What of a plan can not be given in containers so far, a line each.
fn refused(plan: &Plan) -> Vec<String> {
    let environment = &plan.config.environment;
    let imposed = |policy: &str| ["auto", "limit", "ignore"].contains(&policy);
    let asked = [
        (environment.mounts.is_some(), "mounts"),
        (!environment.kwargs.is_empty(), "settings of the environment (--ek)"),
        (environment.override_gpus.is_some_and(|n| n > 0), "GPUs"),
        (environment.override_tpu.is_some(), "TPUs"),
        (
            !imposed(&environment.cpu_enforcement_policy) || !imposed(&environment.memory_enforcement_policy),
            "processors or memory as a request or guarantee",
        ),
    ];
    let mut out: Vec<String> = asked.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what.into()).collect();
    for trial in &plan.trials {
        if image(trial).is_none() {
            let line = format!("task {}: an image that is built from a Dockerfile", trial.task.short_name());
            if !out.contains(&line) {
                out.push(line);
            }
        }
    }
    out
}

fn image(trial: &PlannedTrial) -> Option<&str> {
    match trial.task.image(trial.config.environment.force_build) {
        Image::Prebuilt(image) => Some(image),
        Image::Build | Image::None => None,
    }
}

fn labels(job: &str, owner: &str, trial: Option<&str>, role: Role) -> Labels {
    Labels { job: job.to_string(), trial: trial.map(str::to_string), owner: owner.to_string(), role }
}

impl DockerPlaces {
    /// Refuses what can not be given, before anything is made.
    ///
    /// # Errors
    /// [`PlanError::Refused`].
    pub fn check(plan: &Plan) -> Result<(), PlanError> {
        let lines = refused(plan);
        if lines.is_empty() { Ok(()) } else { Err(PlanError::Refused(lines)) }
    }

    /// Makes the job's network, where a task needs one. `owner` is written on all that is made.
    ///
    /// # Errors
    /// The engine does not give one.
    pub async fn open(engine: DockerEngine, plan: &Plan, owner: &str) -> Result<DockerPlaces, EnvError> {
        let needed = plan.trials.iter().any(|t| t.task.config.environment.network != Network::None);
        let network = match needed {
            true => Some(engine.job_network(&labels(&plan.id, owner, None, Role::Network), None).await?),
            false => None,
        };
        Ok(DockerPlaces { engine, job: plan.id.clone(), owner: owner.to_string(), network })
    }

    /// Removes the job's network, when no trial is left in it.
    ///
    /// # Errors
    /// The engine does not do it.
    pub async fn close(&self) -> Result<(), EnvError> {
        match &self.network {
            Some(network) => self.engine.remove_network(network).await,
            None => Ok(()),
        }
    }
}

impl Places for DockerPlaces {
    fn place(&self, ask: Ask<'_>) -> Result<Box<dyn Environment>, EnvError> {
        let (task, over) = (&ask.planned.task.config.environment, &ask.planned.config.environment);
        let no = |what: &str| EnvError::new(Trouble::Unsupported, "make a container", what, "run it with Harbor");
        let image = image(ask.planned).ok_or_else(|| no("the task has no prebuilt image"))?;
        let trial = Some(&*ask.planned.config.trial_name);
        let mut spec = ContainerSpec::new(image, labels(&self.job, &self.owner, trial, Role::Trial));
        let ignored = |policy: &str| policy == "ignore";
        let cpus = over.override_cpus.as_ref().and_then(serde_json::Number::as_f64).or(task.cpus);
        spec.cpus = cpus.filter(|_| !ignored(&over.cpu_enforcement_policy));
        let memory = over.override_memory_mb.or(task.memory_mb).map(|mb| mb.saturating_mul(MIB));
        spec.memory = memory.filter(|_| !ignored(&over.memory_enforcement_policy));
        spec.mounts = ask.mounts;
        spec.env = ask.env;
        spec.workdir = task.workdir.clone();
        spec.network = match (&task.network, &self.network) {
            (Network::None, _) => NetworkChoice::None,
            (Network::Public, Some(network)) => NetworkChoice::Named(network.name.clone()),
            (Network::Public, None) => return Err(no("the job has no network")),
            (Network::Allowlist(_), _) => return Err(no("an allow-list network")),
        };
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        spec.owner = (uid != 0).then_some((uid, gid));
        Ok(Box::new(DockerEnvironment::new(self.engine.clone(), spec)?))
    }
}
