//! `lock.json` of jobs and trials: what exactly was run. Written without nulls, as Harbor does.

use serde::Serialize;
use serde_json::{Map, Value};

use super::config::{RetryConfig, TrialConfig};
use super::result::Utc;
use crate::job::Stamp;

/// The task with the digest of its content.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskLock {
    /// The task's short name, for a package `org/name`.
    pub name: String,
    /// The package's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `local`, `git` or `package`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// Label of the dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where it is, as the job names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_url: Option<String>,
    /// The commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit_id: Option<String>,
}

/// A file that goes into a trial, with the digest of its content.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileLock {
    /// None for a text that came without a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
}

/// A skill that an agent gets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SkillLock {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub source: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_url: Option<String>,
    /// The commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit_id: Option<String>,
}

/// What a trial's config alone does not tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resolved {
    /// `shared` or `separate`; None for a multi-step task, where each step has its own.
    pub verifier_environment_mode: Option<String>,
    /// Skills, resolved.
    pub skills: Vec<SkillLock>,
    /// Extra instructions: files in order, then texts; None where the job has none.
    pub extra_instructions: Option<Vec<FileLock>>,
    /// Compose overlays; None where the job has none.
    pub extra_docker_compose: Option<Vec<FileLock>>,
}

/// A trial's `lock.json`; also an entry of the job's.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)] // As in the trial's config.
pub struct TrialLock {
    pub schema_version: u32,
    pub task: TaskLock,
    pub install_only: bool,
    pub timeout_multiplier: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_timeout_multiplier: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifier_timeout_multiplier: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_setup_timeout_multiplier: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment_build_timeout_multiplier: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_instructions: Option<Vec<FileLock>>,
    pub agent: Value,
    pub bridge_inputs: Map<String, Value>,
    pub skills: Vec<SkillLock>,
    pub environment: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_docker_compose: Option<Vec<FileLock>>,
    pub verifier: Value,
    pub artifacts: Value,
    pub override_error_policy: Value,
}

impl TrialLock {
    /// The lock of a trial.
    ///
    /// # Errors
    /// When the config holds what JSON can not.
    pub fn of(config: &TrialConfig, task: TaskLock, resolved: Resolved) -> serde_json::Result<TrialLock> {
        let mut verifier = without_nulls(serde_json::to_value(&config.verifier)?);
        if let (Some(map), Some(mode)) = (verifier.as_object_mut(), resolved.verifier_environment_mode) {
            map.insert("environment_mode".to_string(), Value::String(mode));
        }
        Ok(TrialLock {
            schema_version: 2,
            task,
            install_only: config.install_only,
            timeout_multiplier: config.timeout_multiplier,
            agent_timeout_multiplier: config.agent_timeout_multiplier,
            verifier_timeout_multiplier: config.verifier_timeout_multiplier,
            agent_setup_timeout_multiplier: config.agent_setup_timeout_multiplier,
            environment_build_timeout_multiplier: config.environment_build_timeout_multiplier,
            extra_instructions: resolved.extra_instructions,
            agent: without_nulls(serde_json::to_value(&config.agent)?),
            bridge_inputs: Map::new(),
            skills: resolved.skills,
            environment: without_nulls(serde_json::to_value(&config.environment)?),
            extra_docker_compose: resolved.extra_docker_compose,
            verifier,
            artifacts: without_nulls(serde_json::to_value(&config.artifacts)?),
            override_error_policy: without_nulls(serde_json::to_value(&config.override_error_policy)?),
        })
    }
}

/// Which harness ran the job.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HarborInfo {
    /// Version of Harbor whose formats these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Always none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit_hash: Option<String>,
    /// Always false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_editable: Option<bool>,
}

/// A job's `lock.json`: one entry per planned trial, in the order of the plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobLock {
    /// 3.
    pub schema_version: u32,
    /// When the plan was made.
    pub created_at: Utc,
    /// See [`HarborInfo`].
    pub harbor: HarborInfo,
    /// Trial slots at the start.
    pub n_concurrent_trials: u32,
    /// Retries, without nulls.
    pub retry: Value,
    /// The planned trials.
    pub trials: Vec<TrialLock>,
}

impl JobLock {
    /// The lock of a plan.
    ///
    /// # Errors
    /// When the config holds what JSON can not.
    pub fn of(
        created_at: Stamp,
        harbor: HarborInfo,
        n_concurrent_trials: u32,
        retry: &RetryConfig,
        trials: Vec<TrialLock>,
    ) -> serde_json::Result<JobLock> {
        let retry = without_nulls(serde_json::to_value(retry)?);
        Ok(JobLock { schema_version: 3, created_at: Utc(created_at), harbor, n_concurrent_trials, retry, trials })
    }
}

/// Without the fields that are null. Keyword arguments stay as they are: there, null is a value.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, v)| !v.is_null());
            Value::Object(kept.map(|(k, v)| if k == "kwargs" { (k, v) } else { (k, without_nulls(v)) }).collect())
        }
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
