//! From a command line to a job that is ready to begin: nothing is made on disk here but clones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::tasks::{self, Invalid};
use crate::agent::installed;
use crate::cli::state_dir;
use crate::harbor::run_config::{Format, HarborVersion, Host, RunConfig, RunFlags, WAY, resolve};
use crate::harbor::task::{EnvTemplate, host_variable, lay_over};
use crate::harbor::write::config::JobConfig;
use crate::job::Stamp;
use crate::scheduler::{DockerPlaces, Plan, PlanError};

/// Why nothing is run, a line each; safe to print.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Refusal(pub Vec<String>);

impl Refusal {
    /// For one reason.
    pub fn of(line: &str) -> Refusal {
        Refusal(vec![line.to_string()])
    }
}

impl From<PlanError> for Refusal {
    fn from(error: PlanError) -> Refusal {
        match error {
            PlanError::Refused(lines) => {
                let mut out: Vec<String> = lines.iter().map(|line| format!("{line}: not run here; {WAY}")).collect();
                if lines.iter().any(|line| line.starts_with("task ")) {
                    out.push("single tasks are left out with -x NAME".to_string());
                }
                Refusal(out)
            }
            PlanError::Scripts(lines) | PlanError::Agents(lines) => Refusal(lines),
            other => Refusal::of(&other.to_string()),
        }
    }
}

/// Where the trials of a job happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Containers.
    Docker,
    /// Scratch directories on this machine, without any isolation.
    Local,
}

impl Kind {
    /// Of a config; nothing else is left when `unsupported` was asked.
    pub fn of(config: &JobConfig) -> Kind {
        if config.environment.kind.as_deref() == Some("local") { Kind::Local } else { Kind::Docker }
    }
}

/// A job that is ready to begin.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Every trial with its documents.
    pub plan: Plan,
    /// Directories that were meant and hold no task that could run.
    pub invalid: Vec<Invalid>,
    /// What there is to say before it begins.
    pub notes: Vec<String>,
    /// Variables of this host that tasks and agents will read, sorted.
    pub variables: Vec<String>,
    /// Where the trials happen.
    pub kind: Kind,
    /// The job dir is there, and is gone on with.
    pub again: Option<super::resume::Again>,
}

/// A config that can be run, before its tasks are looked at.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The config, complete.
    pub config: RunConfig,
    /// Its printed form and what was masked in it.
    pub printed: String,
    /// What can not be run, a line each.
    pub refused: Vec<String>,
    /// Don't ask about variables.
    pub yes: bool,
}

/// Resolves flags and configs; lays the variables of `--env-file` over those of this process.
///
/// # Errors
/// All that is wrong, by flag or by file and line.
pub fn ask(flags: &RunFlags) -> Result<Asked, Refusal> {
    let resolved = resolve(flags, HarborVersion::V0_26, &Host::real())
        .map_err(|e| Refusal(e.problems.iter().map(ToString::to_string).collect()))?;
    lay_over(resolved.env_file.clone());
    let refused = resolved.unsupported_beside(&installed::names()).iter().map(ToString::to_string).collect();
    let printed = resolved.config.print_config(Format::Yaml, &|name| resolved.variable(name)).text;
    Ok(Asked { config: resolved.config, printed, refused, yes: flags.yes })
}

/// Makes the plan of a job.
///
/// # Errors
/// All that keeps it from being run, by name.
pub fn prepare(flags: &RunFlags) -> Result<Prepared, Refusal> {
    let asked = ask(flags)?;
    if !asked.refused.is_empty() {
        return Err(Refusal(asked.refused));
    }
    plan_of(&asked.config, state_dir().as_deref())
}

/// Makes the plan of a config that can be run; `state` is where clones go.
///
/// # Errors
/// As [`prepare`].
pub fn plan_of(config: &RunConfig, state: Option<&Path>) -> Result<Prepared, Refusal> {
    if config.tasks.is_empty() && config.datasets.is_empty() {
        return Err(Refusal::of("no tasks: give a task or a directory of tasks with -p, or a repository with --repo"));
    }
    let dir = config.jobs_dir.join(&config.job_name);
    if std::fs::symlink_metadata(&dir).is_ok() {
        let dir = dir.display();
        return Err(Refusal::of(&format!(
            "{dir}: there already: go on with it (pilothouse run --resume {dir}), or choose another --job-name"
        )));
    }
    let found = tasks::find(config, state)?;
    if found.tasks.is_empty() {
        let mut lines: Vec<String> = found.invalid.iter().map(|i| format!("{}: {}", i.name, i.why)).collect();
        lines.push(match lines.is_empty() {
            true => "no task is left after -i, -x and -l, or the directory holds none".to_string(),
            false => "no task that could run".to_string(),
        });
        return Err(Refusal(lines));
    }
    let pointers: Vec<String> = found.tasks.iter().flat_map(|(_, task)| super::pointers::refused(task)).collect();
    if !pointers.is_empty() {
        return Err(Refusal(pointers));
    }
    let documents = JobConfig::of_run(config, &host_variable);
    let kind = Kind::of(&documents);
    let variables = variables(&documents, &found.tasks);
    let plan = Plan::of(documents, &found.tasks, Stamp::now())?;
    if kind == Kind::Docker {
        DockerPlaces::check(&plan)?;
    }
    Ok(Prepared { plan, invalid: found.invalid, notes: found.notes, variables, kind, again: None })
}

/// Variables of this host that will be read.
pub fn variables(
    config: &JobConfig,
    tasks: &[(crate::harbor::write::config::TaskConfig, std::sync::Arc<crate::harbor::task::Task>)],
) -> Vec<String> {
    let mut out = BTreeSet::new();
    for (_, task) in tasks {
        let config = &task.config;
        let steps = task.steps.iter().flat_map(|step| config.verifier_env(task.spec(step)));
        let all = steps.chain(config.environment.env.clone()).chain(config.solution_env.clone());
        out.extend(all.filter_map(|(_, value)| value.reads_host().map(str::to_string)));
    }
    let agents = config.agents.iter().flat_map(|a| &a.env);
    // What the operator wrote with a reference is the operator's own wish; only what is missing counts.
    for (_, value) in agents.chain(&config.environment.env).chain(&config.verifier.env) {
        if let EnvTemplate::Host { variable, default: None } = EnvTemplate::new(value)
            && host_variable(&variable).is_none()
        {
            out.insert(variable);
        }
    }
    out.into_iter().collect()
}

/// Where scratch directories of local trials of a job go.
///
/// # Errors
/// No state dir.
pub fn scratch_of(job: &str) -> Result<PathBuf, Refusal> {
    let state = state_dir().ok_or_else(|| {
        Refusal::of("no place for scratch directories: set PILOTHOUSE_STATE_DIR, XDG_STATE_HOME or HOME")
    })?;
    let state = std::path::absolute(&state).unwrap_or(state);
    Ok(state.join("scratch").join(job))
}
