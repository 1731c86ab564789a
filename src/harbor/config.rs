//! A trial's `config.json`, a task's `task.toml`, and the time limits that follow from both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::json::{self, FileProblem, Object, ProblemReason, Scalar, object};
use super::task::{self, DEFAULT_BUILD_SEC, DEFAULT_VERIFIER_SEC, TaskConfig};
use crate::job::text::mask_secrets;
use crate::job::{LimitSource, Limits};

object!(RawTask<'a> {
    path: Scalar<'a> = "path",
    name: Scalar<'a> = "name",
    git_url: Scalar<'a> = "git_url",
    git_commit_id: Scalar<'a> = "git_commit_id",
    reference: Scalar<'a> = "ref",
    source: Scalar<'a> = "source",
});

object!(RawKwargs<'a> {
    api_base: Scalar<'a> = "api_base",
    base_url: Scalar<'a> = "base_url",
});

object!(RawAgent<'a> {
    name: Scalar<'a> = "name",
    import_path: Scalar<'a> = "import_path",
    model_name: Scalar<'a> = "model_name",
    base_url: Scalar<'a> = "base_url",
    override_timeout_sec: Scalar<'a> = "override_timeout_sec",
    override_setup_timeout_sec: Scalar<'a> = "override_setup_timeout_sec",
    max_timeout_sec: Scalar<'a> = "max_timeout_sec",
    kwargs: Object<'a, RawKwargs<'a>> = "kwargs",
});

object!(RawEnvironmentKwargs<'a> {
    auto_mounting: Scalar<'a> = "auto_mounting",
});

object!(RawEnvironment<'a> {
    kind: Scalar<'a> = "type",
    kwargs: Object<'a, RawEnvironmentKwargs<'a>> = "kwargs",
});

object!(RawVerifier<'a> {
    override_timeout_sec: Scalar<'a> = "override_timeout_sec",
    max_timeout_sec: Scalar<'a> = "max_timeout_sec",
    disable: Scalar<'a> = "disable",
});

object!(RawConfigFields<'a> {
    task: Object<'a, RawTask<'a>> = "task",
    trial_name: Scalar<'a> = "trial_name",
    job_id: Scalar<'a> = "job_id",
    install_only: Scalar<'a> = "install_only",
    timeout_multiplier: Scalar<'a> = "timeout_multiplier",
    agent_timeout_multiplier: Scalar<'a> = "agent_timeout_multiplier",
    verifier_timeout_multiplier: Scalar<'a> = "verifier_timeout_multiplier",
    agent_setup_timeout_multiplier: Scalar<'a> = "agent_setup_timeout_multiplier",
    environment_build_timeout_multiplier: Scalar<'a> = "environment_build_timeout_multiplier",
    agent: Object<'a, RawAgent<'a>> = "agent",
    environment: Object<'a, RawEnvironment<'a>> = "environment",
    verifier: Object<'a, RawVerifier<'a>> = "verifier",
});

/// A trial's config as it stands in `config.json` and inside `result.json`.
#[derive(Debug, Default)]
pub(super) struct RawConfig<'a>(RawConfigFields<'a>);

impl<'a> json::FromMap<'a> for RawConfig<'a> {
    fn from_map<A: serde::de::MapAccess<'a>>(map: A) -> Result<Self, A::Error> {
        RawConfigFields::from_map(map).map(RawConfig)
    }
}

/// What a trial's config says about its time limits; None where it says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LimitInputs {
    /// General multiplier, default 1.
    pub multiplier: Option<f64>,
    /// Replaces the general one for the agent.
    pub agent_multiplier: Option<f64>,
    /// Replaces the general one for the verifier.
    pub verifier_multiplier: Option<f64>,
    /// Replaces the general one for the agent's setup.
    pub agent_setup_multiplier: Option<f64>,
    /// Replaces the general one for the environment.
    pub environment_multiplier: Option<f64>,
    /// Agent limit in seconds instead of the task's.
    pub agent_override: Option<f64>,
    /// Upper bound in seconds of the agent limit, before the multiplier.
    pub agent_max: Option<f64>,
    /// Agent setup limit in seconds.
    pub agent_setup_override: Option<f64>,
    /// Verifier limit in seconds instead of the task's.
    pub verifier_override: Option<f64>,
    /// Upper bound in seconds of the verifier limit, before the multiplier.
    pub verifier_max: Option<f64>,
}

/// A trial's `config.json`, sparse (Harbor up to 0.21) or full.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrialConfigFile {
    /// Task short name: last path segment, without organisation.
    pub task: Option<Arc<str>>,
    /// `task.path`, as written; relative to where Harbor was started.
    pub task_path: Option<Arc<str>>,
    /// `task.name`, `org/name`.
    pub task_name: Option<Arc<str>>,
    /// `task.git_url`, secrets masked.
    pub git_url: Option<Arc<str>>,
    /// Dataset label.
    pub source: Option<Arc<str>>,
    /// Agent name, else its import path; `oracle` where a sparse config leaves the default out.
    pub agent: Option<Arc<str>>,
    /// `agent.import_path`.
    pub import_path: Option<Arc<str>>,
    /// Model as given, with provider prefix.
    pub model: Option<Arc<str>>,
    /// Where the agent reaches its model, secrets masked.
    pub api_base: Option<Arc<str>>,
    /// Trial name, equal to the directory's unless somebody renamed it.
    pub trial_name: Option<Arc<str>>,
    /// Job id.
    pub job_id: Option<Arc<str>>,
    /// Environment type, `docker` where a sparse config leaves the default out.
    pub environment: Option<Arc<str>>,
    /// `environment.kwargs.auto_mounting`: live files of the container on the host (Harbor 0.26).
    pub auto_mounting: Option<bool>,
    /// Inputs of [`limits`].
    pub limits: LimitInputs,
    /// `verifier.disable`.
    pub verifier_disabled: bool,
    /// `install_only`.
    pub install_only: bool,
    /// What was odd about it.
    pub notes: Vec<String>,
}

/// Last segment of a path, URL or `org/name`; None when nothing is left.
pub(super) fn short_name(path: &str) -> Option<&str> {
    path.rsplit('/')
        .find(|part| !matches!(*part, "" | "." | ".."))
        .map(|part| part.strip_suffix(".git").unwrap_or(part))
}

/// The short name of a task that is named by a path, a name or a repository.
pub(super) fn task_key(path: &Scalar<'_>, name: &Scalar<'_>, git_url: &Scalar<'_>) -> Option<Arc<str>> {
    [path, name, git_url].into_iter().find_map(|s| s.text().and_then(short_name)).map(Arc::from)
}

/// Text from a file, shared.
pub(super) fn shared(value: &Scalar<'_>) -> Option<Arc<str>> {
    value.text().map(Arc::from)
}

/// Agent name, else import path.
pub(super) fn agent_key(name: &Scalar<'_>, import_path: &Scalar<'_>) -> Option<Arc<str>> {
    shared(name).or_else(|| shared(import_path))
}

/// The agent that Harbor runs when none is named; sparse configs leave it out.
pub(super) const DEFAULT_AGENT: &str = "oracle";

/// A multiplier or a limit: a finite number from 0; anything else is noted.
fn seconds(value: &Scalar<'_>, field: &str, notes: &mut Vec<String>) -> Option<f64> {
    if value.is_none() {
        return None;
    }
    let number = value.f64().filter(|n| *n >= 0.0);
    if number.is_none() {
        notes.push(format!("{field}: {} is not a number of seconds or a factor", value.shown()));
    }
    number
}

impl RawConfig<'_> {
    /// Everything of it; `agent` is None where it names none.
    pub(super) fn read(&self) -> TrialConfigFile {
        let raw = &self.0;
        let (no_task, no_agent, no_env, no_verifier) =
            (RawTask::default(), RawAgent::default(), RawEnvironment::default(), RawVerifier::default());
        let mut notes = Vec::new();
        for (field, wrong) in [
            ("task", raw.task.wrong()),
            ("agent", raw.agent.wrong()),
            ("environment", raw.environment.wrong()),
            ("verifier", raw.verifier.wrong()),
        ] {
            if let Some(wrong) = wrong {
                notes.push(format!("{field}: {} instead of an object", wrong.shown()));
            }
        }
        let task = raw.task.get().unwrap_or(&no_task);
        let agent = raw.agent.get().unwrap_or(&no_agent);
        let environment = raw.environment.get().unwrap_or(&no_env);
        let verifier = raw.verifier.get().unwrap_or(&no_verifier);
        let kwargs = agent.kwargs.get();
        let api_base = kwargs
            .and_then(|k| k.api_base.text().or(k.base_url.text()))
            .or(agent.base_url.text())
            .map(|url| Arc::from(&*mask_secrets(url)));
        let mut number = |value: &Scalar<'_>, field: &str| seconds(value, field, &mut notes);
        let limits = LimitInputs {
            multiplier: number(&raw.timeout_multiplier, "timeout_multiplier"),
            agent_multiplier: number(&raw.agent_timeout_multiplier, "agent_timeout_multiplier"),
            verifier_multiplier: number(&raw.verifier_timeout_multiplier, "verifier_timeout_multiplier"),
            agent_setup_multiplier: number(&raw.agent_setup_timeout_multiplier, "agent_setup_timeout_multiplier"),
            environment_multiplier: number(
                &raw.environment_build_timeout_multiplier,
                "environment_build_timeout_multiplier",
            ),
            agent_override: number(&agent.override_timeout_sec, "agent.override_timeout_sec"),
            agent_max: number(&agent.max_timeout_sec, "agent.max_timeout_sec"),
            agent_setup_override: number(&agent.override_setup_timeout_sec, "agent.override_setup_timeout_sec"),
            verifier_override: number(&verifier.override_timeout_sec, "verifier.override_timeout_sec"),
            verifier_max: number(&verifier.max_timeout_sec, "verifier.max_timeout_sec"),
        };
        TrialConfigFile {
            task: task_key(&task.path, &task.name, &task.git_url),
            task_path: shared(&task.path),
            task_name: shared(&task.name),
            git_url: task.git_url.text().map(|url| Arc::from(&*mask_secrets(url))),
            source: shared(&task.source),
            agent: agent_key(&agent.name, &agent.import_path),
            import_path: shared(&agent.import_path),
            model: shared(&agent.model_name),
            api_base,
            trial_name: shared(&raw.trial_name),
            job_id: shared(&raw.job_id),
            environment: shared(&environment.kind).or_else(|| Some(Arc::from("docker"))),
            auto_mounting: environment.kwargs.get().and_then(|k| k.auto_mounting.bool()),
            limits,
            verifier_disabled: verifier.disable.bool().unwrap_or(false),
            install_only: raw.install_only.bool().unwrap_or(false),
            notes,
        }
    }

    fn is_trial_config(&self) -> bool {
        self.0.task.get().is_some()
    }
}

/// Reads a trial's `config.json`.
///
/// # Errors
/// See [`FileProblem`]; `Foreign` for an object without `task`.
pub fn trial_config(bytes: &[u8]) -> Result<TrialConfigFile, FileProblem> {
    let (config, notes) = json::lenient(bytes, |body| {
        json::document::<Object<'_, RawConfig<'_>>>(body).map(|root| match root {
            Object::Some(raw) if raw.is_trial_config() => {
                let mut config = raw.read();
                config.agent.get_or_insert_with(|| DEFAULT_AGENT.into());
                Ok(config)
            }
            Object::Some(_) => Err("an object without the key task"),
            Object::Other(other) => Err(what(&other)),
        })
    })?;
    let mut config = config.map_err(|w| FileProblem::foreign(format!("not a trial's config: {w}")))?;
    config.notes.extend(notes);
    Ok(config)
}

/// What a document is that should have been an object.
pub(super) fn what(value: &Scalar<'_>) -> &'static str {
    match value {
        Scalar::List => "a list",
        Scalar::Null => "null",
        Scalar::Str(_) => "a string",
        Scalar::Bool(_) => "true or false",
        _ => "a number",
    }
}

/// Time limits of one step of a multi-step task, in seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepToml {
    /// Step name.
    pub name: Option<Arc<str>>,
    /// `[steps.agent].timeout_sec`.
    pub agent_timeout: Option<f64>,
    /// `[steps.verifier].timeout_sec`.
    pub verifier_timeout: Option<f64>,
}

/// What a task's `task.toml` says, both schema generations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskToml {
    /// `[task].name`, `org/name`.
    pub name: Option<Arc<str>>,
    /// `[metadata].difficulty`.
    pub difficulty: Option<Arc<str>>,
    /// `[metadata].category`.
    pub category: Option<Arc<str>>,
    /// `[agent].timeout_sec`.
    pub agent_timeout: Option<f64>,
    /// `[verifier].timeout_sec`.
    pub verifier_timeout: Option<f64>,
    /// `[environment].build_timeout_sec`.
    pub build_timeout: Option<f64>,
    /// `[[steps]]`, in order; empty for a task without.
    pub steps: Vec<StepToml>,
}

/// Reads a `task.toml`.
///
/// # Errors
/// `NotJson` where it is not TOML, with line and column.
pub fn task_toml(text: &str) -> Result<TaskToml, FileProblem> {
    let table = task::table(text).map_err(|(line, column, message)| FileProblem {
        kind: ProblemReason::NotJson,
        line,
        column,
        message: format!("not TOML: {message}"),
    })?;
    // What Harbor would refuse is as if it were not written: the job did run with some version.
    let (config, _, _) = TaskConfig::read(&table);
    let metadata = |key: &str| config.metadata.get(key).and_then(toml::Value::as_str).map(Arc::from);
    let step = |step: &task::StepSpec| StepToml {
        name: Some(step.name.as_str()).filter(|n| !n.is_empty()).map(Arc::from),
        agent_timeout: step.agent.timeout_sec,
        verifier_timeout: step.verifier.timeout_sec,
    };
    Ok(TaskToml {
        name: config.package.as_ref().map(|p| p.name.as_str()).filter(|n| !n.is_empty()).map(Arc::from),
        difficulty: metadata("difficulty"),
        category: metadata("category"),
        agent_timeout: config.agent.timeout_sec,
        verifier_timeout: config.verifier.timeout_sec,
        build_timeout: config.environment.build_timeout_sec,
        steps: config.steps.iter().map(step).collect(),
    })
}

/// Harbor's limit for agent setup, in seconds.
const DEFAULT_SETUP: f64 = 360.0;

/// The effective limits of a trial: `min(base, max) × multiplier`, base being an override that is
/// not 0, else the task's, else Harbor's default (Harbor 0.21 and 0.26). Of a multi-step task the
/// longest step counts; see [`limits_of_step`] for the one that runs.
pub fn limits(config: &TrialConfigFile, task: Option<&TaskToml>) -> Limits {
    let longest = |of: fn(&StepToml) -> Option<f64>, task_wide: Option<f64>| {
        let steps = task.map(|t| t.steps.as_slice()).unwrap_or_default();
        steps.iter().map(|s| of(s).or(task_wide)).fold(None, |a: Option<f64>, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        })
    };
    let agent = task.and_then(|t| longest(|s| s.agent_timeout, t.agent_timeout).or(t.agent_timeout));
    // A step that sets no limit for its verifier has Harbor's default, whatever the task sets.
    let verifier =
        task.and_then(|t| longest(|s| s.verifier_timeout, Some(DEFAULT_VERIFIER_SEC)).or(t.verifier_timeout));
    effective(config, task, agent, verifier)
}

/// The effective limits while the named step of a multi-step task runs; as [`limits`] when there is
/// no such step.
pub fn limits_of_step(config: &TrialConfigFile, task: &TaskToml, step: &str) -> Limits {
    match task.steps.iter().find(|s| s.name.as_deref() == Some(step)) {
        Some(s) => effective(
            config,
            Some(task),
            s.agent_timeout.or(task.agent_timeout),
            s.verifier_timeout.or(Some(DEFAULT_VERIFIER_SEC)),
        ),
        None => limits(config, Some(task)),
    }
}

fn effective(config: &TrialConfigFile, task: Option<&TaskToml>, agent: Option<f64>, verifier: Option<f64>) -> Limits {
    let inputs = &config.limits;
    let set = |n: Option<f64>| n.filter(|n| *n > 0.0);
    let general = inputs.multiplier.unwrap_or(1.0);
    let limit = |base: Option<f64>, max: Option<f64>, multiplier: Option<f64>| {
        base.map(|base| base.min(set(max).unwrap_or(f64::INFINITY)) * multiplier.unwrap_or(general))
            .filter(|n| n.is_finite())
    };
    // Without the task's own file only what needs none of it is known.
    let known = |n: Option<f64>, default: f64| task.map(|_| n.unwrap_or(default));
    // Harbor 0.26 gives this agent 1200 s, 0.21 the usual 360; a config does not tell which it is.
    let setup_base = if config.agent.as_deref() == Some("hermes") { None } else { Some(DEFAULT_SETUP) };
    let overridden = set(inputs.agent_override).is_some() || set(inputs.verifier_override).is_some();
    Limits {
        environment: limit(
            known(task.and_then(|t| t.build_timeout), DEFAULT_BUILD_SEC),
            None,
            inputs.environment_multiplier,
        ),
        agent_setup: limit(set(inputs.agent_setup_override).or(setup_base), None, inputs.agent_setup_multiplier),
        agent: limit(set(inputs.agent_override).or(agent), inputs.agent_max, inputs.agent_multiplier),
        verifier: limit(
            set(inputs.verifier_override).or(known(verifier, DEFAULT_VERIFIER_SEC)),
            inputs.verifier_max,
            inputs.verifier_multiplier,
        ),
        source: match (task, overridden) {
            (Some(_), _) => LimitSource::TaskToml,
            (None, true) => LimitSource::Config,
            (None, false) => LimitSource::Unknown,
        },
    }
}

/// The limit in the message of a timeout, in seconds: `Agent execution timed out after 900.0 seconds`.
pub fn limit_from_message(message: &str) -> Option<f64> {
    let rest = message.split_once("timed out after ")?.1;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = rest.split_at_checked(end)?;
    let unit = unit.trim_start();
    let short = unit.strip_prefix('s').is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()));
    if !(short || unit.starts_with("sec")) {
        return None;
    }
    number.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0)
}

/// Directories in which the task of a trial may lie, most likely first; nothing is looked at. An
/// absolute path is the only one of its kind; a relative one may start in any directory above the job
/// dir, in the current directory or in the job dir (Harbor keeps it relative to where it was started). Tasks
/// that were downloaded: see also [`task_cache`].
pub fn task_dir_candidates(
    config: &TrialConfigFile,
    job_dir: &Path,
    cwd: Option<&Path>,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = Vec::new();
    let mut push = |path: PathBuf| {
        if !out.contains(&path) {
            out.push(path);
        }
    };
    if let (Some(path), None) = (&config.task_path, &config.git_url) {
        let path = Path::new(&**path);
        if path.is_absolute() {
            push(path.to_path_buf());
        } else {
            // Harbor is mostly started beside its jobs dir; where the viewer was started says less.
            for above in job_dir.ancestors().skip(1).filter(|a| !a.as_os_str().is_empty()).take(32) {
                push(above.join(path));
            }
            if let Some(cwd) = cwd {
                push(cwd.join(path));
            }
            push(job_dir.join(path));
        }
    }
    if let (Some(home), Some(task)) = (home, &config.task) {
        push(home.join(".cache/harbor/tasks").join(&**task));
    }
    out
}

/// Where Harbor keeps downloaded tasks, and the name to look for: `<root>/<key>/<name>`, the keys
/// being hashes. None for tasks that are not downloaded.
pub fn task_cache(config: &TrialConfigFile, home: &Path) -> Option<(PathBuf, Arc<str>)> {
    if config.git_url.is_none() && config.task_path.is_some() {
        return None;
    }
    config.task.clone().map(|task| (home.join(".cache/harbor/tasks"), task))
}
