//! `config.json` of jobs and trials as Harbor 0.26 writes them: every field, defaults included.
//!
//! `Default` gives Harbor's defaults. Parts that are only passed on (mounts, MCP servers, artifacts) are
//! JSON. Values of variables that look like secrets are masked when they are written, unless they are
//! a reference such as `${OPENAI_API_KEY}`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::{Map, Number, Value};

use crate::job::policy::{PolicyOverrides, not_retried};

/// Names and values: `env` maps.
pub type Env = BTreeMap<String, String>;
/// Keyword arguments as JSON.
pub type Kwargs = Map<String, Value>;

/// What is written in place of a secret.
const MASKED: &str = "****";
/// Words that make a variable a secret, as in Harbor; `TOKENS` is a number of them.
const SECRET_WORDS: [&str; 6] = ["KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL", "AUTH"];

/// One agent: an entry of a job's `agents`, or a trial's `agent`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)] // The fields are named and described by Harbor.
pub struct AgentConfig {
    pub name: Option<String>,
    pub import_path: Option<String>,
    pub model_name: Option<String>,
    pub base_url: Option<String>,
    pub model_api_key_name: Option<String>,
    pub model_api_format: Option<String>,
    pub skip_model_parsing: bool,
    pub n_concurrent: Option<u32>,
    pub concurrency_group: Option<String>,
    pub skills: Vec<String>,
    pub override_timeout_sec: Option<f64>,
    pub override_setup_timeout_sec: Option<f64>,
    pub max_timeout_sec: Option<f64>,
    pub resume_trajectory: bool,
    pub load_trajectory: Option<String>,
    pub extra_allowed_hosts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_logs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_logs: Vec<String>,
    #[serde(serialize_with = "masked_kwargs")]
    pub kwargs: Kwargs,
    #[serde(skip_serializing_if = "Env::is_empty", serialize_with = "masked_env")]
    pub env: Env,
    pub mcp_servers: Vec<Value>,
}

impl AgentConfig {
    /// Where its model is served, by its own words: `api_base` or `base_url` among its arguments, else the
    /// field of Harbor 0.26. It is no part of what a trial is.
    pub fn api_base(&self) -> Option<&str> {
        let word = |name: &str| self.kwargs.get(name).and_then(Value::as_str);
        let found = word("api_base").or_else(|| word("base_url")).or(self.base_url.as_deref());
        found.map(str::trim).filter(|base| !base.is_empty())
    }
}

/// Where trials run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct EnvironmentConfig {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub import_path: Option<String>,
    pub force_build: bool,
    pub delete: bool,
    pub stream: bool,
    pub cpu_enforcement_policy: String,
    pub memory_enforcement_policy: String,
    pub override_cpus: Option<Number>,
    pub override_memory_mb: Option<u64>,
    pub override_storage_mb: Option<u64>,
    pub override_gpus: Option<u32>,
    pub override_tpu: Option<Value>,
    pub mounts: Option<Vec<Value>>,
    pub extra_docker_compose: Vec<String>,
    #[serde(skip_serializing_if = "Env::is_empty", serialize_with = "masked_env")]
    pub env: Env,
    #[serde(serialize_with = "masked_kwargs")]
    pub kwargs: Kwargs,
    pub extra_allowed_hosts: Vec<String>,
}

impl Default for EnvironmentConfig {
    fn default() -> EnvironmentConfig {
        EnvironmentConfig {
            kind: Some("docker".to_string()),
            import_path: None,
            force_build: false,
            delete: true,
            stream: false,
            cpu_enforcement_policy: "auto".to_string(),
            memory_enforcement_policy: "auto".to_string(),
            override_cpus: None,
            override_memory_mb: None,
            override_storage_mb: None,
            override_gpus: None,
            override_tpu: None,
            mounts: None,
            extra_docker_compose: Vec::new(),
            env: Env::new(),
            kwargs: Kwargs::new(),
            extra_allowed_hosts: Vec::new(),
        }
    }
}

/// How trials are graded.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct VerifierConfig {
    pub override_timeout_sec: Option<f64>,
    pub max_timeout_sec: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_logs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_logs: Vec<String>,
    #[serde(skip_serializing_if = "Env::is_empty", serialize_with = "masked_env")]
    pub env: Env,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import_path: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty", serialize_with = "masked_kwargs")]
    pub kwargs: Kwargs,
    pub disable: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_allowed_hosts: Vec<String>,
}

/// Where a task comes from: `path` alone, `path` in a git repository, or a package's `name`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct TaskConfig {
    pub path: Option<String>,
    pub git_url: Option<String>,
    pub git_commit_id: Option<String>,
    pub name: Option<String>,
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    pub overwrite: bool,
    pub download_dir: Option<String>,
    /// Label of the dataset; groups the trials in the stats.
    pub source: Option<String>,
}

/// A dataset.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct DatasetConfig {
    pub path: Option<String>,
    pub name: Option<String>,
    pub version: Option<String>,
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    pub registry_url: Option<String>,
    pub registry_path: Option<String>,
    pub repo: Option<String>,
    pub overwrite: bool,
    pub download_dir: Option<String>,
    pub task_names: Option<Vec<String>>,
    pub exclude_task_names: Option<Vec<String>>,
    pub n_tasks: Option<u64>,
}

/// When a trial is tried again; waits in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct RetryConfig {
    pub max_retries: u32,
    pub include_exceptions: Option<Vec<String>>,
    pub exclude_exceptions: Option<Vec<String>>,
    pub wait_multiplier: f64,
    pub min_wait_sec: f64,
    pub max_wait_sec: f64,
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        RetryConfig {
            max_retries: 0,
            include_exceptions: None,
            exclude_exceptions: Some(not_retried()),
            wait_multiplier: 1.0,
            min_wait_sec: 1.0,
            max_wait_sec: 60.0,
        }
    }
}

/// How a metric of the whole is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum MetricKind {
    Sum,
    Min,
    Max,
    Mean,
}

/// One of a job's `metrics`; without any, it is the mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricConfig {
    /// What it computes.
    #[serde(rename = "type")]
    pub kind: MetricKind,
    /// Empty: the four kinds take no arguments.
    pub kwargs: Kwargs,
}

/// A job's `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct JobConfig {
    pub schema_version: u32,
    pub job_name: String,
    pub jobs_dir: String,
    pub n_attempts: u32,
    pub install_only: bool,
    pub skip_credential_checks: bool,
    pub timeout_multiplier: f64,
    pub agent_timeout_multiplier: Option<f64>,
    pub verifier_timeout_multiplier: Option<f64>,
    pub agent_setup_timeout_multiplier: Option<f64>,
    pub environment_build_timeout_multiplier: Option<f64>,
    pub debug: bool,
    pub n_concurrent_trials: u32,
    pub quiet: bool,
    pub retry: RetryConfig,
    pub override_error_policy: PolicyOverrides,
    pub environment: EnvironmentConfig,
    pub verifier: VerifierConfig,
    pub metrics: Vec<MetricConfig>,
    pub agents: Vec<AgentConfig>,
    /// Always none: simulated users are Harbor's alone.
    pub user_agent: Option<Value>,
    pub datasets: Vec<DatasetConfig>,
    pub tasks: Vec<TaskConfig>,
    pub artifacts: Vec<Value>,
    pub extra_instruction_paths: Vec<String>,
    pub extra_instructions: Vec<String>,
    /// Always empty: jobs made of jobs are Harbor's alone.
    pub source_jobs: Vec<Value>,
}

impl Default for JobConfig {
    fn default() -> JobConfig {
        JobConfig {
            schema_version: 1,
            job_name: String::new(),
            jobs_dir: "jobs".to_string(),
            n_attempts: 1,
            install_only: false,
            skip_credential_checks: false,
            timeout_multiplier: 1.0,
            agent_timeout_multiplier: None,
            verifier_timeout_multiplier: None,
            agent_setup_timeout_multiplier: None,
            environment_build_timeout_multiplier: None,
            debug: false,
            n_concurrent_trials: 4,
            quiet: false,
            retry: RetryConfig::default(),
            override_error_policy: PolicyOverrides::new(),
            environment: EnvironmentConfig::default(),
            verifier: VerifierConfig::default(),
            metrics: Vec::new(),
            agents: Vec::new(),
            user_agent: None,
            datasets: Vec::new(),
            tasks: Vec::new(),
            artifacts: Vec::new(),
            extra_instruction_paths: Vec::new(),
            extra_instructions: Vec::new(),
            source_jobs: Vec::new(),
        }
    }
}

/// A trial's `config.json`; also the `config` of its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct TrialConfig {
    pub schema_version: u32,
    pub task: TaskConfig,
    pub trial_name: String,
    pub trials_dir: String,
    pub install_only: bool,
    pub timeout_multiplier: f64,
    pub agent_timeout_multiplier: Option<f64>,
    pub verifier_timeout_multiplier: Option<f64>,
    pub agent_setup_timeout_multiplier: Option<f64>,
    pub environment_build_timeout_multiplier: Option<f64>,
    pub agent: AgentConfig,
    pub user_agent: Option<Value>,
    pub environment: EnvironmentConfig,
    pub verifier: VerifierConfig,
    pub override_error_policy: PolicyOverrides,
    pub artifacts: Vec<Value>,
    pub extra_instruction_paths: Vec<String>,
    pub extra_instructions: Vec<String>,
    pub job_id: Option<String>,
    pub source_trial: Option<Value>,
}

impl TrialConfig {
    /// The trial of a job for one task and one of its agents, as Harbor derives it: equal to Harbor's
    /// own, so that its resume accepts the trial.
    pub fn of(job: &JobConfig, job_id: &str, task: TaskConfig, agent: AgentConfig, trial_name: &str) -> TrialConfig {
        let job = job.clone();
        TrialConfig {
            schema_version: 1,
            task,
            trial_name: trial_name.to_string(),
            trials_dir: format!("{}/{}", job.jobs_dir.trim_end_matches('/'), job.job_name),
            install_only: job.install_only,
            timeout_multiplier: job.timeout_multiplier,
            agent_timeout_multiplier: job.agent_timeout_multiplier,
            verifier_timeout_multiplier: job.verifier_timeout_multiplier,
            agent_setup_timeout_multiplier: job.agent_setup_timeout_multiplier,
            environment_build_timeout_multiplier: job.environment_build_timeout_multiplier,
            agent,
            user_agent: None,
            environment: job.environment,
            verifier: job.verifier,
            override_error_policy: job.override_error_policy,
            artifacts: job.artifacts,
            extra_instruction_paths: job.extra_instruction_paths,
            extra_instructions: job.extra_instructions,
            job_id: Some(job_id.to_string()),
            source_trial: None,
        }
    }
}

fn is_secret_name(name: &str) -> bool {
    let upper = name.to_uppercase();
    SECRET_WORDS.iter().any(|word| {
        upper.match_indices(word).any(|(at, _)| {
            let after = upper.get(at + word.len()..).unwrap_or_default();
            *word != "TOKEN" || !after.starts_with('S')
        })
    })
}

/// What may be written of a variable's value: itself, a reference, or a mask.
fn maskable<'a>(name: &str, value: &'a str) -> &'a str {
    let reference = value.starts_with("${") && value.ends_with('}');
    if value.is_empty() || reference || !is_secret_name(name) { value } else { MASKED }
}

fn masked_env<S: Serializer>(env: &Env, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(env.iter().map(|(name, value)| (name, maskable(name, value))))
}

fn masked_kwargs<S: Serializer>(kwargs: &Kwargs, to: S) -> Result<S::Ok, S::Error> {
    masked_map(kwargs).serialize(to)
}

fn masked_map(map: &Kwargs) -> Kwargs {
    map.iter().map(|(name, value)| (name.clone(), masked_value(name, value))).collect()
}

fn masked_value(name: &str, value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(maskable(name, text).to_string()),
        Value::Array(list) => list.iter().map(|v| masked_value(name, v)).collect(),
        Value::Object(map) => Value::Object(masked_map(map)),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name() {
        for name in ["OPENAI_API_KEY", "hf_token", "DbPassword", "AUTHORIZATION"] {
            assert_eq!(maskable(name, "abc"), MASKED, "{name}");
            assert_eq!(maskable(name, "${X}"), "${X}");
        }
        for name in ["max_tokens", "model", "TOKENS_PER_SECOND"] {
            assert_eq!(maskable(name, "abc"), "abc", "{name}");
        }
    }
}
