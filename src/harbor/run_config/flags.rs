//! The flags of `harbor run`, under their own names and with their own meaning.

use clap::Args;

use super::unsupported::SETTINGS;

/// What an operator types for `harbor run`. Flags that only Harbor can follow are known, too, so that
/// they can be refused by name.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct RunFlags {
    /// Job config in YAML or JSON; may be given several times, the later over the earlier
    #[arg(short = 'c', long = "config", value_name = "FILE", help_heading = "Config")]
    pub config: Vec<String>,
    /// Print the resolved config and exit
    #[arg(long, help_heading = "Config")]
    pub print_config: bool,
    /// Variables for `${NAME}` in env values, one NAME=value a line; they win over the surroundings
    #[arg(long, value_name = "FILE", help_heading = "Config")]
    pub env_file: Option<String>,
    /// Don't ask whether the job may read variables of this host
    #[arg(short = 'y', long, help_heading = "Config")]
    pub yes: bool,

    /// A task, or a directory of tasks (inside the repository with --repo)
    #[arg(short = 'p', long, value_name = "DIR", help_heading = "Tasks")]
    pub path: Option<String>,
    /// A dataset by name, name@version or org/name@ref
    #[arg(short = 'd', long, value_name = "NAME", help_heading = "Tasks")]
    pub dataset: Option<String>,
    /// A single task by org/name@ref
    #[arg(short = 't', long, value_name = "NAME", help_heading = "Tasks")]
    pub task: Option<String>,
    /// A git repository of tasks
    #[arg(long, value_name = "URL", help_heading = "Tasks")]
    pub repo: Option<String>,
    /// Take only tasks of this name (glob); repeatable
    #[arg(short = 'i', long = "include-task-name", value_name = "GLOB", help_heading = "Tasks")]
    pub include_task_name: Vec<String>,
    /// Leave out tasks of this name (glob); repeatable
    #[arg(short = 'x', long = "exclude-task-name", value_name = "GLOB", help_heading = "Tasks")]
    pub exclude_task_name: Vec<String>,
    /// At most so many tasks, after -i and -x
    #[arg(short = 'l', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Tasks")]
    pub n_tasks: Option<u32>,
    /// Keep this path of the environment after the trial; repeatable
    #[arg(long, value_name = "PATH", help_heading = "Tasks")]
    pub artifact: Vec<String>,

    /// Name of the job (default: local time)
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub job_name: Option<String>,
    /// Where job directories go (default: jobs)
    #[arg(short = 'o', long, value_name = "DIR", help_heading = "Job")]
    pub jobs_dir: Option<String>,
    /// Trials of each task and agent (default: 1)
    #[arg(short = 'k', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Job")]
    pub n_attempts: Option<u32>,
    /// Trial slots (default: 4)
    #[arg(short = 'n', long = "n-concurrent", value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Job")]
    pub n_concurrent: Option<u32>,
    /// Agents that run at a time, at most as many as slots
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Job")]
    pub n_concurrent_agents: Option<u32>,
    /// No progress display
    #[arg(short = 'q', long, visible_alias = "silent", help_heading = "Job")]
    pub quiet: bool,
    /// More on the console
    #[arg(long, help_heading = "Job")]
    pub debug: bool,

    /// Factor of every time limit (default: 1.0)
    #[arg(long, value_name = "X", help_heading = "Limits")]
    pub timeout_multiplier: Option<f64>,
    /// Factor of the agent's limit, instead of the general one
    #[arg(long, value_name = "X", help_heading = "Limits")]
    pub agent_timeout_multiplier: Option<f64>,
    /// Factor of the verifier's limit, instead of the general one
    #[arg(long, value_name = "X", help_heading = "Limits")]
    pub verifier_timeout_multiplier: Option<f64>,
    /// Factor of the limit of the agent's setup, instead of the general one
    #[arg(long, value_name = "X", help_heading = "Limits")]
    pub agent_setup_timeout_multiplier: Option<f64>,
    /// Factor of the limit for building and starting an environment, instead of the general one
    #[arg(long, value_name = "X", help_heading = "Limits")]
    pub environment_build_timeout_multiplier: Option<f64>,
    /// Attempts after a failed first (default: 0)
    #[arg(short = 'r', long, value_name = "N", help_heading = "Limits")]
    pub max_retries: Option<u32>,
    /// Retry only this exception type; repeatable
    #[arg(long, value_name = "TYPE", help_heading = "Limits")]
    pub retry_include: Vec<String>,
    /// Never retry this exception type; repeatable, replaces the default list
    #[arg(long, value_name = "TYPE", help_heading = "Limits")]
    pub retry_exclude: Vec<String>,

    /// The agent: oracle (the task's solution), nop (does nothing), scripted (the keys of the task's
    /// solution/keys.json, typed into a recorded terminal), terminus-2 (a model at a terminal, asked at
    /// --ak api_base=http://.../v1 with the key in OPENAI_API_KEY), or one that a file describes
    /// (mini-swe-agent; see `pilothouse agents`) (default: oracle)
    #[arg(short = 'a', long, value_name = "NAME", help_heading = "Agent")]
    pub agent: Option<String>,
    /// The model; several give one agent each
    #[arg(short = 'm', long, value_name = "MODEL", help_heading = "Agent")]
    pub model: Vec<String>,
    /// Setting of the agent, key=value, the value as JSON where it is JSON; repeatable
    #[arg(long = "ak", visible_alias = "agent-kwarg", value_name = "KEY=VALUE", help_heading = "Agent")]
    pub ak: Vec<String>,
    /// Variable of the agent; repeatable
    #[arg(long = "ae", visible_alias = "agent-env", value_name = "KEY=VALUE", help_heading = "Agent")]
    pub ae: Vec<String>,

    /// Where trials run: docker or local (default: docker)
    #[arg(short = 'e', long, value_name = "NAME", help_heading = "Environment")]
    pub env: Option<String>,
    /// Setting of the environment, key=value; repeatable
    #[arg(
        long = "ek",
        visible_alias = "environment-kwarg",
        value_name = "KEY=VALUE",
        help_heading = "Environment",
        long_help = settings()
    )]
    pub ek: Vec<String>,
    /// Build even where the task names an image
    #[arg(long, overrides_with = "no_force_build", help_heading = "Environment")]
    pub force_build: bool,
    /// Use the image where the task names one
    #[arg(long, overrides_with = "force_build", help_heading = "Environment")]
    pub no_force_build: bool,
    /// Remove images and volumes afterwards (default)
    #[arg(long, overrides_with = "no_delete", help_heading = "Environment")]
    pub delete: bool,
    /// Keep images and volumes
    #[arg(long, overrides_with = "delete", help_heading = "Environment")]
    pub no_delete: bool,
    /// How cpus are imposed: auto, limit, ignore
    #[arg(long, value_name = "MODE", help_heading = "Environment")]
    pub cpus: Option<String>,
    /// How memory is imposed: auto, limit, ignore
    #[arg(long, value_name = "MODE", help_heading = "Environment")]
    pub memory: Option<String>,
    /// Cpus instead of the task's
    #[arg(long, value_name = "N", help_heading = "Environment")]
    pub override_cpus: Option<f64>,
    /// Memory in MiB instead of the task's
    #[arg(long, value_name = "MB", help_heading = "Environment")]
    pub override_memory_mb: Option<u32>,
    /// More mounts, as a JSON list in the words of compose
    #[arg(long, visible_alias = "mounts-json", value_name = "JSON", help_heading = "Environment")]
    pub mounts: Option<String>,

    /// Variable of the verifier; repeatable
    #[arg(long = "ve", visible_alias = "verifier-env", value_name = "KEY=VALUE", help_heading = "Verifier")]
    pub ve: Vec<String>,
    /// No grading
    #[arg(long, overrides_with = "enable_verification", help_heading = "Verifier")]
    pub disable_verification: bool,
    /// Grading (default)
    #[arg(long, overrides_with = "disable_verification", help_heading = "Verifier")]
    pub enable_verification: bool,
    /// Set the agent up and stop there
    #[arg(long, help_heading = "Verifier")]
    pub install_only: bool,

    /// What only Harbor can do.
    #[command(flatten)]
    pub harbor_only: HarborOnly,
}

/// Declares the flags that are known in order to be refused. `value` flags take any number of values,
/// `switch` flags none.
macro_rules! harbor_only {
    ($(value $field:ident = $flag:literal $([$($alias:literal),+])?,)* ; $(switch $s:ident = $sflag:literal,)*) => {
        /// Flags that Harbor accepts and pilothouse can't follow; not shown in the help.
        #[derive(Debug, Clone, Default, PartialEq, Args)]
        #[allow(missing_docs)]
        pub struct HarborOnly {
            $(#[arg(long = $flag, $(aliases = [$($alias),+],)? hide = true, value_name = "VALUE")]
            pub $field: Vec<String>,)*
            $(#[arg(long = $sflag, hide = true)]
            pub $s: bool,)*
        }

        impl HarborOnly {
            /// The flags that were given, as typed with their full name.
            pub fn given(&self) -> Vec<&'static str> {
                let mut out = Vec::new();
                $(if !self.$field.is_empty() {
                    out.push(concat!("--", $flag));
                })*
                $(if self.$s {
                    out.push(concat!("--", $sflag));
                })*
                out
            }
        }
    };
}

harbor_only! {
    value diff = "diff",
    value registry_url = "registry-url",
    value registry_path = "registry-path",
    value task_git_url = "task-git-url",
    value task_git_commit = "task-git-commit",
    value extra_instruction_path = "extra-instruction-path",
    value extra_instruction = "extra-instruction",
    value agent_import_path = "agent-import-path",
    value allow_agent_host = "allow-agent-host",
    value load_trajectory = "load-trajectory",
    value mcp_config = "mcp-config",
    value skill = "skill" ["skills"],
    value agent_include_logs = "agent-include-logs",
    value agent_exclude_logs = "agent-exclude-logs",
    value base_url = "base-url",
    value api_key_name = "api-key-name",
    value api_format = "api-format",
    value effort = "effort",
    value user_agent = "user-agent",
    value user_model = "user-model",
    value uk = "uk" ["user-agent-kwarg"],
    value user_persona_path = "user-persona-path",
    value user_prompt_template_path = "user-prompt-template-path",
    value bridge = "bridge",
    value bridge_prompt_path = "bridge-prompt-path",
    value bk = "bk" ["bridge-kwarg"],
    value override_storage_mb = "override-storage-mb",
    value override_gpus = "override-gpus",
    value override_tpu = "override-tpu",
    value extra_docker_compose = "extra-docker-compose",
    value allow_environment_host = "allow-environment-host",
    value environment_import_path = "environment-import-path",
    value verifier = "verifier",
    value verifier_kwarg = "verifier-kwarg",
    value verifier_include_logs = "verifier-include-logs",
    value verifier_exclude_logs = "verifier-exclude-logs",
    value verifier_import_path = "verifier-import-path",
    value allow_verifier_host = "allow-verifier-host",
    value plugin = "plugin",
    value pk = "pk" ["plugin-kwarg"],
    value export_episodes = "export-episodes",
    value export_repo = "export-repo",
    value share_user = "share-user",
    value share = "share",
    value share_org = "share-org",
    value org = "org",
    value credential_mode = "credential-mode",
    value one_off_secret = "one-off-secret",
    value stored_secret = "stored-secret",
    value registry_secret = "registry-secret",
    value server = "server",
    ;
    switch resume_trajectory = "resume-trajectory",
    switch skip_model_parsing = "skip-model-parsing-and-provider-mapping",
    switch sm = "sm",
    switch skip_credential_checks = "skip-credential-checks",
    switch stream = "stream",
    switch no_stream = "no-stream",
    switch export_traces = "export-traces",
    switch export_sharegpt = "export-sharegpt",
    switch export_push = "export-push",
    switch export_instruction_metadata = "export-instruction-metadata",
    switch export_verifier_metadata = "export-verifier-metadata",
    switch upload = "upload",
    switch public = "public",
    switch private = "private",
    switch launch = "launch",
    switch use_static_ip = "use-static-ip",
    switch no_secrets = "no-secrets",
    switch watch = "watch",
    switch init = "init",
}

/// The help for `--ek`: what can be set.
fn settings() -> String {
    let lines = SETTINGS.iter().map(|(name, what)| format!("\n  {name}: {what}"));
    format!("Setting of the environment, key=value; repeatable:{}", lines.collect::<String>())
}
