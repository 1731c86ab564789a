//! Containers for the trials of a job: images pulled or built, one network for all of them or one each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::limits::{duration, effective};
use super::mounts;
use super::plan::{Plan, PlanError, PlannedTrial};
use super::trial::{Ask, Check, Places};
use crate::environment::docker::{
    BuildSpec, ContainerSpec, DockerEngine, DockerEnvironment, ImageNews, ImageSource, Isolation, JobNetwork,
    NetworkChoice, Pulled, ownership_refusal, proxy_variables,
};
use crate::environment::held::held_of;
use crate::environment::{Act, EnvError, Environment, HeldKind, KeptKind, Labels, Role, Trouble};
use crate::harbor::task::{Image, Network};
use crate::verifier::OUTPUT_CAP;

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;
/// Images that are pulled at a time.
pub const PULLS: usize = 3;
/// After the limit of a trial's start, for its build to be given up.
const SPARE: Duration = Duration::from_secs(10);
/// A build without a limit of its own: none that matters.
const NO_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// An image that trials of a plan need.
#[derive(Debug, Clone)]
pub struct NeededImage {
    /// Its name.
    pub image: String,
    /// The tasks that need it.
    pub tasks: Vec<String>,
    /// Whether it was here, was pulled, or can not be had.
    pub outcome: Result<Pulled, EnvError>,
}

/// Gives every trial a container of its own.
#[derive(Debug)]
pub struct DockerPlaces {
    engine: DockerEngine,
    job: String,
    owner: String,
    network: Option<JobNetwork>,
    /// Whether built images go with the job.
    delete: bool,
    proxy: Vec<(String, String)>,
    isolation: Mutex<Option<Isolation>>,
}

/// What of a plan can not be given in containers, a line each.
fn refused(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |line: String| {
        if !out.contains(&line) {
            out.push(line);
        }
    };
    for trial in &plan.trials {
        if trial.task.image(trial.config.environment.force_build) == Image::None {
            add(format!("task {}: neither a docker_image nor an environment/Dockerfile", trial.task.short_name()));
        }
        let mounts = mounts::read(&trial.config.environment).unwrap_or_default();
        for mount in mounts.iter().chain(&trial.settings.volumes) {
            if let Err(e) = std::fs::metadata(&mount.host) {
                add(format!("the mount of {}: {e}", mount.host.display()));
            }
        }
    }
    out
}

fn labels(job: &str, owner: &str, trial: Option<&str>, role: Role) -> Labels {
    Labels { job: job.to_string(), trial: trial.map(str::to_string), owner: owner.to_string(), role }
}

/// The prebuilt images of a plan, each with its tasks.
fn prebuilt(plan: &Plan) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for trial in &plan.trials {
        if let Image::Prebuilt(image) = trial.task.image(trial.config.environment.force_build) {
            let tasks = out.entry(image.to_string()).or_default();
            if !tasks.contains(&trial.task.name) {
                tasks.push(trial.task.name.clone());
            }
        }
    }
    out
}

/// The name of a task's image in a job: lower-case, and another one for another content.
fn tag(job: &str, trial: &PlannedTrial) -> String {
    let plain = |text: &str, most: usize| -> String {
        let word: String = text.chars().filter(char::is_ascii_alphanumeric).take(most).collect();
        word.to_ascii_lowercase()
    };
    let name: String =
        trial.task.short_name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let name = name.to_ascii_lowercase();
    let parts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
    let name = if parts.is_empty() { "task".to_string() } else { parts.join("-") };
    format!("pilothouse/{name}:{}-{}", plain(job, 12), plain(&trial.checksum, 12))
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

    /// Sees to the prebuilt images of a plan before any trial's clock runs: looks at each, pulls those
    /// that are not here, [`PULLS`] at a time. An image that can not be had, or is made for another
    /// processor, is an outcome with its remedy; its trials would end with `RuntimeError`.
    pub async fn prepare(
        engine: &DockerEngine,
        plan: &Plan,
        news: &(dyn Fn(&str, &ImageNews) + Send + Sync),
    ) -> Vec<NeededImage> {
        let mut needed = prebuilt(plan);
        let images: Vec<String> = needed.keys().cloned().collect();
        let done = engine.pull_all(&images, PULLS, news).await;
        let needed = done.into_iter().map(|(image, outcome)| {
            let tasks = needed.remove(&image).unwrap_or_default();
            NeededImage { image, tasks, outcome }
        });
        let mut out: Vec<NeededImage> = needed.collect();
        out.sort_by(|a, b| a.image.cmp(&b.image));
        out
    }

    /// Makes the job's network, where a task needs one. `owner` is written on all that is made.
    ///
    /// # Errors
    /// An engine that would give files to the wrong owner, or does not see this machine's directories; no
    /// room for the networks that are needed; the engine does not give one.
    pub async fn open(engine: DockerEngine, plan: &Plan, owner: &str) -> Result<DockerPlaces, EnvError> {
        if let Some(refusal) = ownership_refusal(&engine.facts().security) {
            return Err(refusal);
        }
        let connected = plan.trials.iter().filter(|t| t.task.config.environment.network != Network::None);
        let connected: Vec<_> = connected.collect();
        let settings = connected.first().map(|t| &t.settings);
        let pool = settings.and_then(|s| s.pool);
        let each = settings.is_some_and(|s| s.network_per_trial);
        if each {
            let slots = u64::from(plan.config.n_concurrent_trials).min(connected.len() as u64);
            let free = engine.free_networks(pool.as_ref()).await?;
            if free < slots {
                let detail = format!("{slots} trials at a time need a network each; there is room for {free}");
                let remedy = "give a range (network_pool=10.200.0.0/16), fewer trials at a time, or remove unused \
                              networks (pilothouse clean, docker network prune)";
                return Err(EnvError::new(Trouble::AddressPool, "look for address pools", &detail, remedy));
            }
        }
        let network = match !each && !connected.is_empty() {
            true => Some(engine.job_network(&labels(&plan.id, owner, None, Role::Network), pool.as_ref()).await?),
            false => None,
        };
        let proxy = match plan.trials.first().is_some_and(|t| t.settings.proxy) {
            true => proxy_variables(|name| std::env::var(name).ok()),
            false => Vec::new(),
        };
        Ok(DockerPlaces {
            engine,
            job: plan.id.clone(),
            owner: owner.to_string(),
            network,
            delete: plan.config.environment.delete,
            proxy,
            isolation: Mutex::default(),
        })
    }

    /// Asks whether this host keeps the containers of the job's network apart; takes a few seconds and an
    /// image that is here. The answer goes into the record of every trial from then on. None without a
    /// network for all.
    ///
    /// # Errors
    /// Of starting two containers.
    pub async fn probe_isolation(&self, image: &str) -> Result<Option<Isolation>, EnvError> {
        let Some(network) = &self.network else { return Ok(None) };
        let labels = labels(&self.job, &self.owner, None, Role::Probe);
        let found = self.engine.probe_isolation(network, image, &labels).await?;
        *self.isolation.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Ok(Some(found))
    }

    /// Removes what is left of the job: containers whose trials could not remove them, networks, and the
    /// images that were built for it, unless `environment.delete` is off. Only what this owner made, and the
    /// networks of the job, which an earlier owner may have made. What is held stays, and with it what it is
    /// connected to and made from.
    ///
    /// # Errors
    /// The engine does not do it; what could be removed is.
    pub async fn close(&self) -> Result<(), EnvError> {
        let mut failed = Ok(());
        let kept = self.engine.kept_undated(Some(&self.job)).await?;
        let held = held_of(&kept, &[]);
        let holding = held.iter().any(|h| h.kind == HeldKind::Container);
        for thing in kept {
            let ours = thing.labels.owner == self.owner || thing.kind == KeptKind::Network;
            let stays = match thing.kind {
                KeptKind::Container => held.iter().any(|h| h.kept.id == thing.id),
                // A trial's own goes with its container.
                KeptKind::Network => match &thing.labels.trial {
                    None => holding,
                    own => held.iter().any(|h| h.kept.labels.trial == *own),
                },
                KeptKind::Image => thing.labels.role == Role::Snapshot || !held.is_empty() || !self.delete,
            };
            if ours && !stays {
                failed = failed.and(self.engine.remove_kept(&thing).await);
            }
        }
        failed
    }

    fn build(&self, planned: &PlannedTrial) -> BuildSpec {
        let (task, config) = (&planned.task, &planned.config);
        let own = config.environment_build_timeout_multiplier;
        let limit = effective(Some(task.config.build_timeout()), None, own, config.timeout_multiplier);
        BuildSpec {
            tag: tag(&self.job, planned),
            context: task.dir.join("environment"),
            labels: labels(&self.job, &self.owner, None, Role::Image),
            // The start of the trial keeps the limit, under Harbor's name; this is for what hangs on.
            timeout: limit.and_then(duration).map_or(NO_LIMIT, |limit| limit.saturating_add(SPARE)),
            args: self.proxy.clone(),
        }
    }

    /// What differs here from how Harbor starts a container, besides what the container itself says.
    fn remarks(&self, planned: &PlannedTrial) -> Vec<String> {
        let (task, config, settings) =
            (&planned.task.config.environment, &planned.config.environment, &planned.settings);
        let mut out = Vec::new();
        let mut when = |asked: bool, line: String| {
            if asked {
                out.push(line);
            }
        };
        when(true, "log directories are mounted from this machine (auto_mounting)".to_string());
        when(self.network.is_some() && task.network != Network::None, "one network for the job's trials".to_string());
        let isolation = self.isolation.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let open = matches!(isolation, Some(Isolation::NotEnforced));
        when(open, "this host does not keep the trials of the job apart".to_string());
        let unknown = isolation.as_ref().is_some_and(|i| matches!(i, Isolation::Unknown(_)));
        when(unknown, "whether this host keeps the trials of the job apart is not known".to_string());
        let storage = config.override_storage_mb.or(task.storage_mb);
        when(storage.is_some(), "storage is not limited (nor is it by Harbor in Docker)".to_string());
        when(!settings.extra_hosts.is_empty(), format!("extra hosts {}", settings.extra_hosts.join(", ")));
        let inside: Vec<&str> = settings.volumes.iter().map(|v| &*v.inside).collect();
        when(!inside.is_empty(), format!("extra volumes at {}", inside.join(", ")));
        when(!self.proxy.is_empty(), "proxy variables of this machine".to_string());
        when(settings.output_cap != OUTPUT_CAP, format!("output is kept up to {} MiB", settings.output_cap / MIB));
        out
    }
}

impl Places for DockerPlaces {
    fn check(&self) -> Check<'_> {
        Box::pin(self.engine.answers())
    }

    fn release<'a>(&'a self, kind: HeldKind, id: &'a str, name: &'a str) -> Act<'a, ()> {
        Box::pin(async move {
            match kind {
                HeldKind::Container => self.engine.remove_by_id(id, name).await,
                HeldKind::Snapshot => self.engine.remove_image_named(name).await,
            }
        })
    }

    fn stores(&self) -> Vec<(PathBuf, String)> {
        let root = PathBuf::from(&self.engine.facts().root_dir);
        let here = self.engine.address().is_local() && root.is_dir();
        here.then(|| (root, "where Docker keeps its data".to_string())).into_iter().collect()
    }

    fn place(&self, ask: Ask<'_>) -> Result<Box<dyn Environment>, EnvError> {
        let planned = ask.planned;
        let (task, over) = (&planned.task.config.environment, &planned.config.environment);
        let settings = &planned.settings;
        let no = |what: &str| EnvError::new(Trouble::Unsupported, "make a container", what, "run it with Harbor");
        let (image, source) = match planned.task.image(over.force_build) {
            Image::Prebuilt(image) => (image.to_string(), ImageSource::Pull),
            Image::Build => {
                let spec = self.build(planned);
                (spec.tag.clone(), ImageSource::Build(spec))
            }
            Image::None => return Err(no("the task has no image")),
        };
        let trial = Some(&*planned.config.trial_name);
        let mut spec = ContainerSpec::new(&image, labels(&self.job, &self.owner, trial, Role::Trial));
        spec.source = source;
        let ignored = |policy: &str| policy == "ignore";
        let cpus = over.override_cpus.as_ref().and_then(serde_json::Number::as_f64).or(task.cpus);
        spec.cpus = cpus.filter(|_| !ignored(&over.cpu_enforcement_policy));
        let memory = over.override_memory_mb.or(task.memory_mb).map(|mb| mb.saturating_mul(MIB));
        spec.memory = memory.filter(|_| !ignored(&over.memory_enforcement_policy));
        spec.swap = settings.swap;
        spec.pids = settings.pids_limit;
        spec.init = settings.init;
        spec.mounts = ask.mounts;
        spec.volumes = mounts::read(over).map_err(|lines| no(&lines.join("; ")))?;
        spec.volumes.extend(settings.volumes.iter().cloned());
        // The task's and the operator's own win.
        spec.env = self.proxy.iter().filter(|(name, _)| !ask.env.iter().any(|(n, _)| n == name)).cloned().collect();
        spec.env.extend(ask.env);
        spec.workdir = task.workdir.clone();
        spec.extra_hosts = settings.extra_hosts.iter().map(|h| h.replacen('=', ":", 1)).collect();
        spec.network = match (&task.network, &self.network) {
            (Network::None, _) => NetworkChoice::None,
            (Network::Public, _) if settings.network_per_trial => NetworkChoice::Own(settings.pool),
            (Network::Public, Some(network)) => NetworkChoice::Named(network.name.clone()),
            (Network::Public, None) => return Err(no("the job has no network")),
            (Network::Allowlist(_), _) => return Err(no("an allow-list network")),
        };
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        spec.owner = (uid != 0).then_some((uid, gid));
        spec.remarks = self.remarks(planned);
        Ok(Box::new(DockerEnvironment::new(self.engine.clone(), spec)?))
    }
}
