//! A plan: every trial with its name and documents, in Harbor's order, before anything is on disk.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::extra::{self, Extra};
use super::mounts;
use super::settings::Settings;
use crate::agent;
use crate::harbor::run_config::{self, is_sensitive_name};
use crate::harbor::task::{Artifact, Task, TaskProblem, TaskStep, sha256_hex, with_extra};
use crate::harbor::write::config::{AgentConfig, JobConfig, TaskConfig, TrialConfig};
use crate::harbor::write::lock::{HarborInfo, JobLock, Resolved, TaskLock, TrialLock};
use crate::harbor::write::{Claimant, JobWriter, Lease, Scrub, Start, WriteError, ids};
use crate::job::Stamp;

/// The version of Harbor whose documents are written.
const HARBOR: &str = "0.26.0";

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// What this runner does not do, everything that was found, a line each.
    #[error("not run by pilothouse itself:\n{}", .0.join("\n"))]
    Refused(Vec<String>),
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
    /// The trials: attempts, in each the tasks, for each the agents.
    pub trials: Vec<Arc<PlannedTrial>>,
    /// What must not be written anywhere.
    pub scrub: Scrub,
    /// Agents that may work at a time, by [`PlannedTrial::group`].
    pub limits: BTreeMap<Arc<str>, u32>,
    lock: JobLock,
    started: Stamp,
}

impl Plan {
    /// A plan for these tasks, each with where the job says that it comes from.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn of(config: JobConfig, tasks: &[(TaskConfig, Arc<Task>)], now: Stamp) -> Result<Plan, PlanError> {
        let mut refused = of_job(&config);
        let settings = Settings::of(&config.environment).unwrap_or_else(|lines| {
            refused.extend(lines);
            Settings::default()
        });
        let settings = Arc::new(settings);
        let Extra { texts, locks } = extra::read(&config).unwrap_or_else(|lines| {
            refused.extend(lines);
            Extra::default()
        });
        let kept = extra::artifacts(&config.artifacts).unwrap_or_else(|lines| {
            refused.extend(lines);
            Vec::new()
        });
        let (groups, limits) = groups(&config).unwrap_or_else(|lines| {
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
        let problem = |task: &Task, problem| PlanError::Task { task: task.name.clone(), problem };
        let digests = tasks.iter().map(|(_, task)| task.digests().map_err(|e| problem(task, e)));
        let digests = digests.collect::<Result<Vec<_>, _>>()?;
        let id = ids::uuid()?;
        let mut taken = HashSet::new();
        let mut trials = Vec::new();
        for planned in run_config::plan(config.n_attempts, tasks.len(), config.agents.len()) {
            let (Some((from, task)), Some(digests), Some(agent)) =
                (tasks.get(planned.task), digests.get(planned.task), config.agents.get(planned.agent))
            else {
                continue;
            };
            let name = ids::trial_name(task.short_name(), &mut taken)?;
            let trial = TrialConfig::of(&config, &id, from.clone(), agent.clone(), &name);
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
        let harbor =
            HarborInfo { version: Some(HARBOR.to_string()), is_editable: Some(false), ..HarborInfo::default() };
        let locks = trials.iter().map(|t| t.lock.clone()).collect();
        let lock = JobLock::of(now, harbor, config.n_concurrent_trials, &config.retry, locks)?;
        let scrub = Scrub::new(secrets(&config));
        Ok(Plan { id, config, trials, scrub, limits, lock, started: now })
    }

    /// Where the job dir is to be.
    pub fn dir(&self) -> PathBuf {
        Path::new(&self.config.jobs_dir).join(&self.config.job_name)
    }

    /// Makes the job dir and takes its lease.
    ///
    /// # Errors
    /// See [`JobWriter::create`].
    pub fn begin(&self, who: &Claimant) -> Result<JobWriter, WriteError> {
        let Plan { id, config, lock, started, scrub, .. } = self;
        let start = Start { id, config, lock, started: *started, scrub: scrub.clone() };
        JobWriter::create(&self.dir(), &start, |folder| Lease::create(folder, who, *started))
    }
}

/// Values of variables that are secrets by their names.
fn secrets(config: &JobConfig) -> Vec<String> {
    let agents = config.agents.iter().flat_map(|a| &a.env);
    let all = agents.chain(&config.environment.env).chain(&config.verifier.env);
    all.filter(|(name, _)| is_sensitive_name(name)).map(|(_, value)| value.clone()).collect()
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
    if config.import_path.is_some() || agent::by_name(name).is_none() {
        out.push(format!("agent {name}: only {} are", agent::NAMES.join(", ")));
        return out;
    }
    let model = config.base_url.is_some() || config.model_api_key_name.is_some() || config.model_api_format.is_some();
    let asked = [
        (!config.skills.is_empty(), "skills"),
        (!config.mcp_servers.is_empty(), "MCP servers"),
        (!config.include_logs.is_empty() || !config.exclude_logs.is_empty(), "a choice of the agent's logs"),
        (!config.extra_allowed_hosts.is_empty(), "allow-list networks"),
        (config.load_trajectory.is_some() || config.resume_trajectory, "earlier sessions"),
        (!config.kwargs.is_empty(), "settings (--ak): it has none"),
        (model || config.skip_model_parsing, "a way to a model: it calls none"),
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
