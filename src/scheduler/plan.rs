//! A plan: every trial with its name and documents, in Harbor's order, before anything is on disk.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::extra::{self, Extra};
use super::mounts;
use super::settings::Settings;
use crate::agent::{self, scripted, scripted::Script};
use crate::harbor::run_config::{self, Planned, is_sensitive_name, template_name};
use crate::harbor::task::{Artifact, EnvTemplate, Task, TaskProblem, TaskStep, host_variable, sha256_hex, with_extra};
use crate::harbor::write::config::{AgentConfig, JobConfig, TaskConfig, TrialConfig};
use crate::harbor::write::lock::{HarborInfo, JobLock, Resolved, TaskLock, TrialLock};
use crate::harbor::write::stats::Ended;
use crate::harbor::write::{Claimant, Folder, JobWriter, Lease, Resume, Scrub, Start, WriteError, ids};
use crate::job::Stamp;
use crate::job::text::mask_secrets;

/// The version of Harbor whose documents are written.
const HARBOR: &str = "0.26.0";

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// What this runner does not do, everything that was found, a line each.
    #[error("not run by pilothouse itself:\n{}", .0.join("\n"))]
    Refused(Vec<String>),
    /// What the scripted agent can not play: file, line and what to do, a line each.
    #[error("{}", .0.join("\n"))]
    Scripts(Vec<String>),
    /// What is wrong with the settings of agents, a line each.
    #[error("{}", .0.join("\n"))]
    Agents(Vec<String>),
    /// A task whose content can not be read.
    #[error("{task}: {problem}")]
    Task {
        /// Its name.
        task: String,
        /// The reason.
        problem: TaskProblem,
    },
    /// No random numbers for names.
    #[error("names for trials: {0}")]
    Names(#[from] io::Error),
    /// The config holds what JSON can not.
    #[error("the config as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// One planned trial.
#[derive(Debug, Clone)]
pub struct PlannedTrial {
    /// Its task.
    pub task: Arc<Task>,
    /// Its `config.json`.
    pub config: TrialConfig,
    /// Its `lock.json`.
    pub lock: TrialLock,
    /// `task_checksum` of its result.
    pub checksum: String,
    /// What is kept of it: the task's artifacts, then the job's.
    pub artifacts: Vec<Artifact>,
    /// Texts that the job puts behind every instruction.
    pub extra: Arc<[String]>,
    /// Settings of its environment.
    pub settings: Arc<Settings>,
    /// Which agents it shares a limit with; None without one.
    pub group: Option<Arc<str>>,
}

impl PlannedTrial {
    /// What the agent is told in a step.
    pub fn instruction(&self, step: &TaskStep) -> String {
        with_extra(&step.instruction, &self.extra)
    }
}

/// The trials of a job, in the order in which they begin.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The job's UUID.
    pub id: String,
    /// The job's `config.json`.
    pub config: JobConfig,
    /// The trials: attempts, in each the tasks, for each the agents. Of a job that is gone on with,
    /// those that are missing.
    pub trials: Vec<Arc<PlannedTrial>>,
    /// What must not be written anywhere.
    pub scrub: Scrub,
    /// Agents that may work at a time, by [`PlannedTrial::group`].
    pub limits: BTreeMap<Arc<str>, u32>,
    dir: PathBuf,
    started: Stamp,
    begin: Begin,
}

/// How a plan's job dir comes to be.
#[derive(Debug, Clone)]
enum Begin {
    /// It is made, with this `lock.json`.
    New(Box<JobLock>),
    /// It is there.
    Again { ended: Vec<Ended>, retries: u64 },
}

/// What is known of a job that is gone on with.
#[derive(Debug, Clone)]
pub struct Earlier {
    /// Its directory.
    pub dir: PathBuf,
    /// Its UUID.
    pub id: String,
    /// Its first start.
    pub started: Stamp,
    /// Trials that stand, in the order in which they ended.
    pub ended: Vec<Ended>,
    /// Attempts that were done again so far.
    pub retries: u64,
    /// What of the plan has no trial that stands.
    pub missing: Vec<Planned>,
}

impl Plan {
    /// Trials of the job that were over before this plan was made.
    pub fn before(&self) -> usize {
        match &self.begin {
            Begin::New(_) => 0,
            Begin::Again { ended, .. } => ended.len(),
        }
    }

    /// A plan for these tasks, each with where the job says that it comes from.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn of(config: JobConfig, tasks: &[(TaskConfig, Arc<Task>)], now: Stamp) -> Result<Plan, PlanError> {
        let slots: Vec<Planned> = run_config::plan(config.n_attempts, tasks.len(), config.agents.len()).collect();
        let (id, dir) = (ids::uuid()?, Path::new(&config.jobs_dir).join(&config.job_name));
        let (trials, scrub, limits) = trials(&config, &id, tasks, &slots, HashSet::new())?;
        let harbor =
            HarborInfo { version: Some(HARBOR.to_string()), is_editable: Some(false), ..HarborInfo::default() };
        let locks = trials.iter().map(|t| t.lock.clone()).collect();
        let lock = JobLock::of(now, harbor, config.n_concurrent_trials, &config.retry, locks)?;
        Ok(Plan { id, config, trials, scrub, limits, dir, started: now, begin: Begin::New(Box::new(lock)) })
    }

    /// The plan of what is missing of a job; `tasks` are those of the whole job, in its order.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn rest(config: JobConfig, tasks: &[(TaskConfig, Arc<Task>)], earlier: Earlier) -> Result<Plan, PlanError> {
        let Earlier { dir, id, started, ended, retries, missing } = earlier;
        let taken = ended.iter().map(|t| t.trial_name.clone()).collect();
        let (trials, scrub, limits) = trials(&config, &id, tasks, &missing, taken)?;
        Ok(Plan { id, config, trials, scrub, limits, dir, started, begin: Begin::Again { ended, retries } })
    }

    /// Where the job dir is, or is to be.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    /// Makes the job dir and takes its lease.
    ///
    /// # Errors
    /// See [`JobWriter::create`]; [`WriteError::Exists`] for a job that is there already.
    pub fn begin(&self, who: &Claimant) -> Result<JobWriter, WriteError> {
        let Plan { id, config, started, scrub, .. } = self;
        let Begin::New(lock) = &self.begin else { return Err(WriteError::Exists { path: self.dir() }) };
        let start = Start { id, config, lock, started: *started, scrub: scrub.clone() };
        JobWriter::create(&self.dir, &start, |folder| Lease::create(folder, who, *started))
    }

    /// Goes on with the job dir, whose lease is held.
    ///
    /// # Errors
    /// See [`JobWriter::reopen`].
    pub fn go_on(&self, folder: Folder, lease: Lease, now: Stamp) -> Result<JobWriter, WriteError> {
        let (ended, retries) = match &self.begin {
            Begin::New(_) => (Vec::new(), 0),
            Begin::Again { ended, retries } => (ended.clone(), *retries),
        };
        let resume = Resume {
            id: self.id.clone(),
            started: self.started,
            total: (self.trials.len() + ended.len()) as u64,
            metrics: self.config.metrics.clone(),
            ended,
            retries,
            scrub: self.scrub.clone(),
        };
        let (mut writer, removed) = JobWriter::reopen(folder, lease, resume, now)?;
        for name in removed {
            writer.log(&format!("Removed what an interrupted write left: {name}"))?;
        }
        Ok(writer)
    }
}

type Trials = (Vec<Arc<PlannedTrial>>, Scrub, BTreeMap<Arc<str>, u32>);

/// The trials for these places in the plan, after a look at whether all of it can be run.
fn trials(
    config: &JobConfig,
    id: &str,
    tasks: &[(TaskConfig, Arc<Task>)],
    slots: &[Planned],
    mut taken: HashSet<String>,
) -> Result<Trials, PlanError> {
    let mut refused = of_job(config);
    let settings = Settings::of(&config.environment).unwrap_or_else(|lines| {
        refused.extend(lines);
        Settings::default()
    });
    refused.extend(mounts::clashes(&mounts::read(&config.environment).unwrap_or_default(), &settings.volumes));
    let settings = Arc::new(settings);
    let Extra { texts, locks } = extra::read(config).unwrap_or_else(|lines| {
        refused.extend(lines);
        Extra::default()
    });
    let kept = extra::artifacts(&config.artifacts).unwrap_or_else(|lines| {
        refused.extend(lines);
        Vec::new()
    });
    let (groups, limits) = groups(config).unwrap_or_else(|lines| {
        refused.extend(lines);
        Default::default()
    });
    let extra: Arc<[String]> = texts.into();
    for (_, task) in tasks {
        refused.extend(of_task(task).into_iter().map(|why| format!("task {}: {why}", task.short_name())));
    }
    if !refused.is_empty() {
        return Err(PlanError::Refused(refused));
    }
    let wrong: Vec<String> = config.agents.iter().flat_map(settings_of).collect();
    if !wrong.is_empty() {
        return Err(PlanError::Agents(wrong));
    }
    let scripts = scripts(config, tasks);
    if !scripts.is_empty() {
        return Err(PlanError::Scripts(scripts));
    }
    let problem = |task: &Task, problem| PlanError::Task { task: task.name.clone(), problem };
    let digests = tasks.iter().map(|(_, task)| task.digests().map_err(|e| problem(task, e)));
    let digests = digests.collect::<Result<Vec<_>, _>>()?;
    let mut trials = Vec::new();
    for planned in slots {
        let (Some((from, task)), Some(digests), Some(agent)) =
            (tasks.get(planned.task), digests.get(planned.task), config.agents.get(planned.agent))
        else {
            continue;
        };
        let name = ids::trial_name(task.short_name(), &mut taken)?;
        let trial = TrialConfig::of(config, id, from.clone(), agent.clone(), &name);
        let task_lock = TaskLock {
            name: task.short_name().to_string(),
            version: None,
            kind: if from.git_url.is_some() { "git" } else { "local" },
            digest: digests.digest.clone(),
            source: from.source.clone(),
            path: from.path.clone(),
            git_url: from.git_url.clone(),
            git_commit_id: from.git_commit_id.clone(),
        };
        // Of several steps each has its own.
        let mode = task.config.steps.is_empty().then(|| "shared".to_string());
        let resolved = Resolved {
            verifier_environment_mode: mode,
            extra_instructions: (!locks.is_empty()).then(|| locks.clone()),
            ..Resolved::default()
        };
        let lock = TrialLock::of(&trial, task_lock, resolved)?;
        trials.push(Arc::new(PlannedTrial {
            task: Arc::clone(task),
            config: trial,
            lock,
            checksum: digests.checksum.clone(),
            artifacts: task.config.artifacts.iter().chain(&kept).cloned().collect(),
            extra: Arc::clone(&extra),
            settings: Arc::clone(&settings),
            group: groups.get(planned.agent).cloned().flatten(),
        }));
    }
    Ok((trials, Scrub::new(secrets(config, tasks)), limits))
}

/// What is wrong with the scripts of the tasks, where an agent plays them.
fn scripts(config: &JobConfig, tasks: &[(TaskConfig, Arc<Task>)]) -> Vec<String> {
    if !config.agents.iter().any(plays) {
        return Vec::new();
    }
    let steps = tasks.iter().flat_map(|(_, task)| task.steps.iter().map(move |step| (task, step)));
    let mut wrong: Vec<String> =
        steps.filter_map(|(task, step)| Script::of(task, step).err()).map(|e| e.to_string()).collect();
    // Steps may share one.
    wrong.dedup();
    wrong
}

/// What is wrong with what an agent is set to.
fn settings_of(agent: &AgentConfig) -> Vec<String> {
    let name = agent.name.as_deref().unwrap_or("-");
    let out = agent::of(agent).err().unwrap_or_default();
    out.iter().map(|why| format!("agent {name}: {why}")).collect()
}

fn plays(agent: &AgentConfig) -> bool {
    agent.name.as_deref() == Some(scripted::NAME)
}

/// Values of variables that are secrets, by their names or by how they look: the operator's, and those
/// of this host that tasks read.
fn secrets(config: &JobConfig, tasks: &[(TaskConfig, Arc<Task>)]) -> Vec<String> {
    let agents = config.agents.iter().flat_map(|a| &a.env);
    let own = agents.chain(&config.environment.env).chain(&config.verifier.env);
    let mut out: Vec<String> = config.agents.iter().filter_map(agent::key).collect();
    for (name, value) in own {
        let template = template_name(value);
        if is_sensitive_name(name) || template.is_some_and(is_sensitive_name) || mask_secrets(value) != value.as_str() {
            out.extend(EnvTemplate::new(value).resolve(host_variable).ok());
        }
    }
    for (_, task) in tasks {
        let config = &task.config;
        let steps = task.steps.iter().flat_map(|step| config.verifier_env(task.spec(step)));
        let all = steps.chain(config.environment.env.clone()).chain(config.solution_env.clone());
        for (name, value) in all {
            if let Some(host) = value.reads_host()
                && (is_sensitive_name(host) || is_sensitive_name(&name))
            {
                out.extend(host_variable(host));
            }
        }
    }
    out
}

/// The group of each agent that has a limit, and the limits; two limits for one group are a mistake.
#[allow(clippy::type_complexity)]
fn groups(config: &JobConfig) -> Result<(Vec<Option<Arc<str>>>, BTreeMap<Arc<str>, u32>), Vec<String>> {
    let mut limits: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut groups = Vec::new();
    for agent in &config.agents {
        let Some(limit) = agent.n_concurrent else {
            groups.push(None);
            continue;
        };
        let key: Arc<str> = match &agent.concurrency_group {
            Some(group) => format!("group:{group}").into(),
            // Everything else about it makes it one of its kind, as in Harbor.
            None => {
                let alone = AgentConfig { n_concurrent: None, concurrency_group: None, ..agent.clone() };
                sha256_hex(format!("{alone:?}").as_bytes()).into()
            }
        };
        if limit == 0 {
            wrong.push("n_concurrent of an agent: at least 1".to_string());
        }
        if *limits.entry(Arc::clone(&key)).or_insert(limit) != limit {
            let group = agent.concurrency_group.as_deref().unwrap_or("-");
            wrong.push(format!("agents of the group {group} name different limits (n_concurrent)"));
        }
        groups.push(Some(key));
    }
    if wrong.is_empty() { Ok((groups, limits)) } else { Err(wrong) }
}

/// What of a job is not done here.
fn of_job(config: &JobConfig) -> Vec<String> {
    let (environment, verifier) = (&config.environment, &config.verifier);
    let local = environment.kind.as_deref() == Some("local");
    let asked = [
        (config.user_agent.is_some(), "a simulated user"),
        (!config.source_jobs.is_empty(), "jobs made of jobs"),
        (environment.import_path.is_some(), "an environment of one's own"),
        (!environment.extra_docker_compose.is_empty(), "compose files"),
        (!environment.extra_allowed_hosts.is_empty(), "allow-list networks"),
        (environment.stream, "a way into the sandbox (stream)"),
        (environment.override_gpus.is_some_and(|n| n > 0), "GPUs"),
        (environment.override_tpu.is_some(), "TPUs"),
        (verifier.import_path.is_some(), "a verifier of one's own"),
        (!verifier.kwargs.is_empty(), "settings of the verifier"),
        (!verifier.include_logs.is_empty() || !verifier.exclude_logs.is_empty(), "a choice of the verifier's logs"),
        (!verifier.extra_allowed_hosts.is_empty(), "allow-list networks"),
        (local && environment.mounts.is_some(), "mounts in the local environment"),
    ];
    let mut out: Vec<String> = asked.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what.into()).collect();
    if let Some(kind) = environment.kind.as_deref().filter(|kind| !["docker", "local"].contains(kind)) {
        out.push(format!("the environment {kind}: there are docker and local"));
    }
    for policy in [&environment.cpu_enforcement_policy, &environment.memory_enforcement_policy] {
        if !["auto", "limit", "ignore"].contains(&policy.as_str()) {
            out.push(format!("processors or memory as a {policy}: Docker has limits only"));
        }
    }
    out.extend(mounts::read(environment).err().unwrap_or_default());
    if let (true, Ok(settings)) = (local, Settings::of(environment)) {
        out.extend(settings.for_containers().map(|name| format!("{name} in the local environment")));
    }
    out.extend(config.agents.iter().flat_map(of_agent));
    if config.agents.is_empty() {
        out.push("a job without agents".into());
    }
    out
}

fn of_agent(config: &AgentConfig) -> Vec<String> {
    let name = config.name.as_deref().unwrap_or("-");
    let mut out = Vec::new();
    if config.import_path.is_some() || !agent::is_known(name) {
        out.push(format!("agent {name}: only {} are", agent::all_names()));
        return out;
    }
    let model = config.base_url.is_some() || config.model_api_key_name.is_some() || config.model_api_format.is_some();
    let asks = agent::has_settings(name);
    let asked = [
        (!config.skills.is_empty(), "skills"),
        (!config.mcp_servers.is_empty(), "MCP servers"),
        (!config.include_logs.is_empty() || !config.exclude_logs.is_empty(), "a choice of the agent's logs"),
        (!config.extra_allowed_hosts.is_empty(), "allow-list networks"),
        (config.load_trajectory.is_some() || config.resume_trajectory, "earlier sessions"),
        (!asks && !config.kwargs.is_empty(), "settings (--ak): it has none"),
        (!asks && (model || config.skip_model_parsing), "a way to a model: it calls none"),
    ];
    out.extend(asked.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| format!("agent {name}: {what}")));
    out
}

fn of_task(task: &Task) -> Vec<String> {
    let hindering = task.unsupported.iter().filter(|u| u.hinders_every_agent());
    let mut out: Vec<String> = hindering.map(ToString::to_string).collect();
    let steps = task.config.steps.iter().flat_map(|step| &step.artifacts);
    out.extend(task.config.artifacts.iter().chain(steps).filter_map(extra::refused));
    out
}
