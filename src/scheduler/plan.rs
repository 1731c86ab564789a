//! A plan: every trial with its name and documents, in Harbor's order, before anything is on disk.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::agent;
use crate::harbor::run_config::{self, Planned, is_sensitive_name, template_name};
use crate::harbor::task::{EnvTemplate, Task, TaskProblem, host_variable};
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
        let (trials, scrub) = trials(&config, &id, tasks, &slots, HashSet::new())?;
        let harbor =
            HarborInfo { version: Some(HARBOR.to_string()), is_editable: Some(false), ..HarborInfo::default() };
        let locks = trials.iter().map(|t| t.lock.clone()).collect();
        let lock = JobLock::of(now, harbor, config.n_concurrent_trials, &config.retry, locks)?;
        Ok(Plan { id, config, trials, scrub, dir, started: now, begin: Begin::New(Box::new(lock)) })
    }

    /// The plan of what is missing of a job; `tasks` are those of the whole job, in its order.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn rest(config: JobConfig, tasks: &[(TaskConfig, Arc<Task>)], earlier: Earlier) -> Result<Plan, PlanError> {
        let Earlier { dir, id, started, ended, retries, missing } = earlier;
        let taken = ended.iter().map(|t| t.trial_name.clone()).collect();
        let (trials, scrub) = trials(&config, &id, tasks, &missing, taken)?;
        Ok(Plan { id, config, trials, scrub, dir, started, begin: Begin::Again { ended, retries } })
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

type Trials = (Vec<Arc<PlannedTrial>>, Scrub);

/// The trials for these places in the plan, after a look at whether all of it can be run.
fn trials(
    config: &JobConfig,
    id: &str,
    tasks: &[(TaskConfig, Arc<Task>)],
    slots: &[Planned],
    mut taken: HashSet<String>,
) -> Result<Trials, PlanError> {
    let mut refused = of_job(config);
    for (_, task) in tasks {
        refused.extend(of_task(task).into_iter().map(|why| format!("task {}: {why}", task.short_name())));
    }
    if !refused.is_empty() {
        return Err(PlanError::Refused(refused));
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
        let resolved = Resolved { verifier_environment_mode: Some("shared".to_string()), ..Resolved::default() };
        let lock = TrialLock::of(&trial, task_lock, resolved)?;
        let (task, checksum) = (Arc::clone(task), digests.checksum.clone());
        trials.push(Arc::new(PlannedTrial { task, config: trial, lock, checksum }));
    }
    Ok((trials, Scrub::new(secrets(config, tasks))))
}

/// Values of variables that are secrets, by their names or by how they look: the operator's, and those
/// of this host that tasks read.
fn secrets(config: &JobConfig, tasks: &[(TaskConfig, Arc<Task>)]) -> Vec<String> {
    let agents = config.agents.iter().flat_map(|a| &a.env);
    let own = agents.chain(&config.environment.env).chain(&config.verifier.env);
    let mut out = Vec::new();
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

/// What of a job is not done here.
fn of_job(config: &JobConfig) -> Vec<String> {
    let (environment, verifier) = (&config.environment, &config.verifier);
    let asked = [
        (config.user_agent.is_some(), "a simulated user"),
        (!config.source_jobs.is_empty(), "jobs made of jobs"),
        (!config.artifacts.is_empty(), "artifacts of the job (those of tasks are kept)"),
        (
            !config.extra_instruction_paths.is_empty() || !config.extra_instructions.is_empty(),
            "extra instructions (its agents read none)",
        ),
        (environment.import_path.is_some(), "an environment of one's own"),
        (!environment.extra_docker_compose.is_empty(), "compose files"),
        (!environment.extra_allowed_hosts.is_empty(), "allow-list networks"),
        (environment.stream, "a way into the sandbox (stream)"),
        (verifier.import_path.is_some(), "a verifier of one's own"),
        (!verifier.include_logs.is_empty() || !verifier.exclude_logs.is_empty(), "a choice of the verifier's logs"),
        (!verifier.extra_allowed_hosts.is_empty(), "allow-list networks"),
    ];
    let mut out: Vec<String> = asked.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what.into()).collect();
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
    }
    let asked = [
        (config.n_concurrent.is_some() || config.concurrency_group.is_some(), "a limit of agents at a time"),
        (!config.skills.is_empty(), "skills"),
        (!config.mcp_servers.is_empty(), "MCP servers"),
        (!config.include_logs.is_empty() || !config.exclude_logs.is_empty(), "a choice of the agent's logs"),
        (!config.extra_allowed_hosts.is_empty(), "allow-list networks"),
        (config.load_trajectory.is_some() || config.resume_trajectory, "earlier sessions"),
    ];
    out.extend(asked.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| format!("agent {name}: {what}")));
    out
}

fn of_task(task: &Task) -> Vec<String> {
    let hindering = task.unsupported.iter().filter(|u| u.hinders_every_agent());
    let mut out: Vec<String> = hindering.map(ToString::to_string).collect();
    let config = &task.config;
    let asked = [
        (!config.steps.is_empty(), "several steps ([[steps]])"),
        (!config.verifier.collect.is_empty(), "collect hooks ([[verifier.collect]])"),
        (config.artifacts.iter().any(|a| !a.exclude.is_empty()), "artifacts with exclude patterns"),
    ];
    out.extend(asked.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what.to_string()));
    out
}
