//! The types of a job config: every field that Harbor 0.21 and 0.26 know, with Harbor's defaults.

use crate::job::policy::ErrorPolicyOverride;
use std::path::PathBuf;

use super::node::{Entry, Node};
use super::retry::HarborVersion;

/// A whole job config. `Default` is what Harbor runs when a config says nothing, but for the job's
/// name, which is empty until it is resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct RunConfig {
    /// Name of the job and of its directory.
    pub job_name: String,
    /// Where job directories go.
    pub jobs_dir: PathBuf,
    /// Trials of each task and agent, from 1.
    pub n_attempts: u32,
    /// Set the agent up and stop there.
    pub install_only: bool,
    /// Harbor 0.26.
    pub skip_credential_checks: bool,
    /// Factor of every limit that has no factor of its own.
    pub timeout_multiplier: f64,
    /// Replaces the general factor for the agent.
    pub agent_timeout_multiplier: Option<f64>,
    /// Replaces the general factor for the verifier.
    pub verifier_timeout_multiplier: Option<f64>,
    /// Replaces the general factor for the agent's setup.
    pub agent_setup_timeout_multiplier: Option<f64>,
    /// Replaces the general factor for building and starting the environment.
    pub environment_build_timeout_multiplier: Option<f64>,
    /// More on the console.
    pub debug: bool,
    /// Trial slots, from 1.
    pub n_concurrent_trials: u32,
    /// No progress display.
    pub quiet: bool,
    /// What is tried again.
    pub retry: RetryConfig,
    /// Harbor 0.26: how single exception types are treated.
    pub override_error_policy: Vec<(String, ErrorPolicyOverride)>,
    /// Where trials run.
    pub environment: EnvironmentConfig,
    /// How they are graded.
    pub verifier: VerifierConfig,
    /// How rewards become a figure; empty is the mean.
    pub metrics: Vec<MetricConfig>,
    /// Who works; one trial for each of them, task and attempt.
    pub agents: Vec<AgentConfig>,
    /// Harbor 0.26: a simulated user.
    pub user_agent: Option<UserAgentConfig>,
    /// Sets of tasks.
    pub datasets: Vec<DatasetConfig>,
    /// Single tasks.
    pub tasks: Vec<TaskRef>,
    /// Files kept from the environment.
    pub artifacts: Vec<Artifact>,
    /// Files appended to every instruction.
    pub extra_instruction_paths: Vec<PathBuf>,
    /// Harbor 0.26: texts appended to every instruction.
    pub extra_instructions: Vec<String>,
    /// Jobs that this one derives from.
    pub source_jobs: Vec<SourceJob>,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            job_name: String::new(),
            jobs_dir: PathBuf::from("jobs"),
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
            override_error_policy: Vec::new(),
            environment: EnvironmentConfig::default(),
            verifier: VerifierConfig::default(),
            metrics: Vec::new(),
            agents: vec![AgentConfig::default()],
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

/// What is tried again, how often, and after what wait. `Default` is that of Harbor 0.26.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryConfig {
    /// Attempts after the first.
    pub max_retries: u32,
    /// Only these exception types; None (and an empty list) is all.
    pub include_exceptions: Option<Vec<String>>,
    /// Never these, whatever `include_exceptions` says; sorted.
    pub exclude_exceptions: Option<Vec<String>>,
    /// Factor from one wait to the next.
    pub wait_multiplier: f64,
    /// First wait in seconds.
    pub min_wait_sec: f64,
    /// Longest wait in seconds.
    pub max_wait_sec: f64,
}

impl RetryConfig {
    /// What a version of Harbor does when a config says nothing.
    pub fn of(version: HarborVersion) -> RetryConfig {
        RetryConfig {
            max_retries: 0,
            include_exceptions: None,
            exclude_exceptions: Some(super::retry::default_excludes(version)),
            wait_multiplier: 1.0,
            min_wait_sec: 1.0,
            max_wait_sec: 60.0,
        }
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        RetryConfig::of(HarborVersion::V0_26)
    }
}

/// How cpus or memory are imposed on an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResourceMode {
    /// As the environment does it; a limit in Docker.
    #[default]
    Auto,
    /// No more than that.
    Limit,
    /// At least that.
    Request,
    /// Exactly that.
    Guarantee,
    /// What the task asks for is not looked at.
    Ignore,
}

impl ResourceMode {
    pub(super) const WORDS: [(&'static str, ResourceMode); 5] = [
        ("auto", ResourceMode::Auto),
        ("limit", ResourceMode::Limit),
        ("request", ResourceMode::Request),
        ("guarantee", ResourceMode::Guarantee),
        ("ignore", ResourceMode::Ignore),
    ];

    /// The word for it in a config.
    pub fn word(self) -> &'static str {
        ResourceMode::WORDS.iter().find(|(_, mode)| *mode == self).map_or("auto", |(word, _)| word)
    }
}

/// A TPU slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TpuSpec {
    /// Such as `v6e`.
    pub kind: String,
    /// Such as `2x4`.
    pub topology: String,
}

/// A mount in the words of compose.
#[derive(Debug, Clone, PartialEq)]
pub struct Mount {
    /// `bind`, `volume` or `image`.
    pub kind: String,
    /// Host path or name.
    pub source: String,
    /// Path inside.
    pub target: String,
    /// The environment can not write to it.
    pub read_only: bool,
    /// The options under `bind`, `volume` and `image`, as written.
    pub options: Vec<Entry>,
}

/// Where trials run.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvironmentConfig {
    /// Name of a built-in environment; None only with an import path.
    pub kind: Option<String>,
    /// `module:Class`.
    pub import_path: Option<String>,
    /// Build even where the task names an image.
    pub force_build: bool,
    /// Remove images and volumes afterwards.
    pub delete: bool,
    /// Harbor 0.26: a way into the sandbox.
    pub stream: bool,
    /// How cpus are imposed.
    pub cpu_enforcement_policy: ResourceMode,
    /// How memory is imposed.
    pub memory_enforcement_policy: ResourceMode,
    /// Cpus instead of the task's; fractions since Harbor 0.26.
    pub override_cpus: Option<f64>,
    /// Memory in MiB instead of the task's.
    pub override_memory_mb: Option<u32>,
    /// Disk in MiB instead of the task's.
    pub override_storage_mb: Option<u32>,
    /// GPUs instead of the task's.
    pub override_gpus: Option<u32>,
    /// TPU instead of the task's.
    pub override_tpu: Option<TpuSpec>,
    /// More mounts.
    pub mounts: Option<Vec<Mount>>,
    /// Compose files laid over the task's.
    pub extra_docker_compose: Vec<PathBuf>,
    /// Variables, in clear.
    pub env: Vec<(String, String)>,
    /// For the environment's own use.
    pub kwargs: Vec<Entry>,
    /// Hosts that may be reached beside the task's.
    pub extra_allowed_hosts: Vec<String>,
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        EnvironmentConfig {
            kind: Some("docker".to_string()),
            import_path: None,
            force_build: false,
            delete: true,
            stream: false,
            cpu_enforcement_policy: ResourceMode::Auto,
            memory_enforcement_policy: ResourceMode::Auto,
            override_cpus: None,
            override_memory_mb: None,
            override_storage_mb: None,
            override_gpus: None,
            override_tpu: None,
            mounts: None,
            extra_docker_compose: Vec::new(),
            env: Vec::new(),
            kwargs: Vec::new(),
            extra_allowed_hosts: Vec::new(),
        }
    }
}

/// How trials are graded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VerifierConfig {
    /// Seconds instead of the task's; 0 counts as unset.
    pub override_timeout_sec: Option<f64>,
    /// Upper bound in seconds, before the factor.
    pub max_timeout_sec: Option<f64>,
    /// Log files that are kept (globs); empty is all.
    pub include_logs: Vec<String>,
    /// Log files that are not kept (globs).
    pub exclude_logs: Vec<String>,
    /// Variables, in clear.
    pub env: Vec<(String, String)>,
    /// `module:Class` of another verifier.
    pub import_path: Option<String>,
    /// For the verifier's own use.
    pub kwargs: Vec<Entry>,
    /// No grading.
    pub disable: bool,
    /// Harbor 0.26: hosts that may be reached beside the task's.
    pub extra_allowed_hosts: Vec<String>,
}

/// How rewards become a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricConfig {
    /// `sum`, `min`, `max`, `mean` or `uv-script`.
    pub kind: String,
    /// For the metric's own use.
    pub kwargs: Vec<Entry>,
}

/// Who works.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    /// Name of a built-in agent, or `module:Class`; None only with an import path.
    pub name: Option<String>,
    /// `module:Class`.
    pub import_path: Option<String>,
    /// Model, with the provider's prefix.
    pub model_name: Option<String>,
    /// Harbor 0.26: another endpoint.
    pub base_url: Option<String>,
    /// Harbor 0.26: variable that holds the key.
    pub model_api_key_name: Option<String>,
    /// Harbor 0.26: protocol of the endpoint.
    pub model_api_format: Option<String>,
    /// Harbor 0.26: hand the model's name over unchanged.
    pub skip_model_parsing: bool,
    /// Agents of this kind that run at a time.
    pub n_concurrent: Option<u32>,
    /// Agents of one group share that number.
    pub concurrency_group: Option<String>,
    /// Skill directories or sources.
    pub skills: Vec<String>,
    /// Seconds instead of the task's; 0 counts as unset.
    pub override_timeout_sec: Option<f64>,
    /// Seconds for the setup.
    pub override_setup_timeout_sec: Option<f64>,
    /// Upper bound in seconds, before the factor.
    pub max_timeout_sec: Option<f64>,
    /// Go on with the session of the step before.
    pub resume_trajectory: bool,
    /// Begin with a recorded session.
    pub load_trajectory: Option<String>,
    /// Hosts that the agent may reach beside the task's.
    pub extra_allowed_hosts: Vec<String>,
    /// Log files that are kept (globs); empty is all.
    pub include_logs: Vec<String>,
    /// Log files that are not kept (globs).
    pub exclude_logs: Vec<String>,
    /// For the agent's own use.
    pub kwargs: Vec<Entry>,
    /// Variables, in clear.
    pub env: Vec<(String, String)>,
    /// MCP servers, as written.
    pub mcp_servers: Vec<McpServer>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        AgentConfig {
            name: Some(crate::harbor::config::DEFAULT_AGENT.to_string()),
            import_path: None,
            model_name: None,
            base_url: None,
            model_api_key_name: None,
            model_api_format: None,
            skip_model_parsing: false,
            n_concurrent: None,
            concurrency_group: None,
            skills: Vec::new(),
            override_timeout_sec: None,
            override_setup_timeout_sec: None,
            max_timeout_sec: None,
            resume_trajectory: false,
            load_trajectory: None,
            extra_allowed_hosts: Vec::new(),
            include_logs: Vec::new(),
            exclude_logs: Vec::new(),
            kwargs: Vec::new(),
            env: Vec::new(),
            mcp_servers: Vec::new(),
        }
    }
}

impl AgentConfig {
    /// A value of `kwargs`.
    pub fn kwarg(&self, key: &str) -> Option<&Node> {
        self.kwargs.iter().find(|e| e.key == key).map(|e| &e.node)
    }
}

/// An MCP server that an agent may use.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// `stdio`, `sse` or `streamable-http`.
    pub transport: String,
    /// Of the last two.
    pub url: Option<String>,
    /// Of the first.
    pub command: Option<String>,
    /// Of the command.
    pub args: Vec<String>,
    /// Harbor 0.26: headers for the last two, in clear.
    pub headers: Vec<(String, String)>,
}

/// A simulated user (Harbor 0.26).
#[derive(Debug, Clone, PartialEq)]
pub struct UserAgentConfig {
    /// The agent that plays the user.
    pub agent: AgentConfig,
    /// Who the user is.
    pub user_persona_path: Option<PathBuf>,
    /// How the user is told.
    pub user_prompt_template_path: Option<PathBuf>,
    /// Kind of the bridge between both, `acp`.
    pub bridge_kind: String,
    /// The bridge's prompt.
    pub bridge_prompt_path: Option<PathBuf>,
    /// For the bridge's own use.
    pub bridge_kwargs: Vec<Entry>,
}

/// A set of tasks: a directory, a repository, or a name in a registry.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DatasetConfig {
    /// A directory of tasks; inside the repository when there is one.
    pub path: Option<PathBuf>,
    /// Name in a registry, or `org/name` of a package.
    pub name: Option<String>,
    /// Version in a registry.
    pub version: Option<String>,
    /// Tag, revision or digest of a package.
    pub reference: Option<String>,
    /// Registry by URL.
    pub registry_url: Option<String>,
    /// Registry by file.
    pub registry_path: Option<PathBuf>,
    /// A git repository.
    pub repo: Option<String>,
    /// Fetch again what is cached.
    pub overwrite: bool,
    /// Where fetched tasks go.
    pub download_dir: Option<PathBuf>,
    /// Tasks to take (globs); None and empty is all.
    pub task_names: Option<Vec<String>>,
    /// Tasks to leave out (globs).
    pub exclude_task_names: Option<Vec<String>>,
    /// At most so many, after both filters.
    pub n_tasks: Option<u32>,
}

/// A single task: a directory, a git repository, or a package.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskRef {
    /// Its directory; inside the repository when there is one.
    pub path: Option<PathBuf>,
    /// A git repository.
    pub git_url: Option<String>,
    /// A commit of it.
    pub git_commit_id: Option<String>,
    /// `org/name` of a package.
    pub name: Option<String>,
    /// Tag, revision or digest of a package.
    pub reference: Option<String>,
    /// Fetch again what is cached.
    pub overwrite: bool,
    /// Where fetched tasks go.
    pub download_dir: Option<PathBuf>,
    /// Label of the dataset that it belongs to.
    pub source: Option<String>,
}

/// A file or directory that is kept from the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Artifact {
    /// A path inside.
    Path(String),
    /// A path inside, and more about it.
    Full {
        /// The path inside.
        source: String,
        /// Where it goes, below the trial's artifacts.
        destination: Option<String>,
        /// Patterns that are left out of a directory.
        exclude: Vec<String>,
        /// Compose service that has it; None and `main` is the agent's.
        service: Option<String>,
    },
}

/// A job that this one derives from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceJob {
    /// `regrade`, or (Harbor 0.26) `diff`.
    pub action: String,
    /// `local` or `hub`.
    pub kind: String,
    /// Its id.
    pub job_id: Option<String>,
    /// Its directory.
    pub path: Option<PathBuf>,
}
