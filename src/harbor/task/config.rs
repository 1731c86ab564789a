//! What a `task.toml` says, both schema generations (`version = "1.0"` and `schema_version`).

use std::collections::BTreeMap;

use toml::Table;

use super::env::EnvTemplates;
use super::network::Network;
use super::parse;
use super::read::{Log, Section, shown};
use super::rewards::{MinReward, RewardStrategy};

/// Harbor's limit for a verifier whose task (or step) sets none, in seconds.
pub const DEFAULT_VERIFIER_SEC: f64 = 600.0;
/// Harbor's limit for the start of an environment whose task sets none, in seconds.
pub const DEFAULT_BUILD_SEC: f64 = 600.0;
/// The service that an agent works in.
pub const MAIN_SERVICE: &str = "main";

/// Who runs a command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// By name, or a number in quotes.
    Name(String),
    /// By number.
    Id(u32),
}

/// As Docker takes it.
impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            User::Name(name) => f.write_str(name),
            User::Id(id) => write!(f, "{id}"),
        }
    }
}

/// `[task]`: the task as a package.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Package {
    /// `org/name`.
    pub name: String,
    /// Version, any text.
    pub version: Option<String>,
    /// Description.
    pub description: String,
    /// Authors: name and mail address.
    pub authors: Vec<(String, Option<String>)>,
    /// Keywords.
    pub keywords: Vec<String>,
}

/// `[agent]`, of the task or a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentSpec {
    /// Limit in seconds; none is no limit.
    pub timeout_sec: Option<f64>,
    /// Who sets the agent up and runs it; none for the image's user.
    pub user: Option<User>,
    /// What may be reached while it runs; none for the environment's.
    pub network: Option<Network>,
}

/// Where a verifier runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifierMode {
    /// In the agent's container.
    Shared,
    /// In a container of its own.
    Separate,
}

/// A command between the agent and the verifier.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectHook {
    /// Shell command.
    pub command: String,
    /// Compose service.
    pub service: String,
    /// Limit in seconds.
    pub timeout_sec: f64,
    /// Who runs it.
    pub user: Option<User>,
}

/// `[verifier]`, of the task or a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VerifierSpec {
    /// Limit in seconds as it is written; see [`TaskConfig::verifier_timeout`].
    pub timeout_sec: Option<f64>,
    /// Variables of the test script.
    pub env: EnvTemplates,
    /// Who runs it; none for the image's user.
    pub user: Option<User>,
    /// `environment_mode`, as it is written.
    pub mode: Option<VerifierMode>,
    /// The environment of a separate verifier.
    pub environment: Option<Box<EnvironmentSpec>>,
    /// Commands before it.
    pub collect: Vec<CollectHook>,
    /// What may be reached while it runs; none for the environment's.
    pub network: Option<Network>,
}

/// System of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Os {
    /// Linux.
    #[default]
    Linux,
    /// Windows.
    Windows,
}

/// A check that is run until the environment is ready.
#[derive(Debug, Clone, PartialEq)]
pub struct Healthcheck {
    /// Shell command; exit code 0 is healthy.
    pub command: String,
    /// Seconds between two checks.
    pub interval_sec: f64,
    /// Seconds one check may take.
    pub timeout_sec: f64,
    /// Seconds from the start in which failures do not count.
    pub start_period_sec: f64,
    /// Seconds between two checks in that time.
    pub start_interval_sec: f64,
    /// Failures in a row that make it fail.
    pub retries: u64,
}

/// `[environment.tpu]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tpu {
    /// Kind.
    pub kind: String,
    /// `NxM` or `NxMxK`.
    pub topology: String,
}

/// How an MCP server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpTransport {
    /// A process.
    Stdio,
    /// Server-sent events.
    Sse,
    /// HTTP.
    StreamableHttp,
}

/// A server of tools that the agent may use.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// Name.
    pub name: String,
    /// Transport.
    pub transport: McpTransport,
    /// Address, for all but `stdio`.
    pub url: Option<String>,
    /// Command, for `stdio`.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// HTTP headers, templates inside of them as they are written (Harbor 0.26).
    pub headers: BTreeMap<String, String>,
}

/// `[environment]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EnvironmentSpec {
    /// A prebuilt image.
    pub docker_image: Option<String>,
    /// Limit of the whole start, pull and build included, in seconds, as it is written.
    pub build_timeout_sec: Option<f64>,
    /// System.
    pub os: Os,
    /// Processors, also parts of one (Harbor 0.21 refuses parts).
    pub cpus: Option<f64>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Disk in MiB; Docker does not enforce it.
    pub storage_mb: Option<u64>,
    /// Graphics processors.
    pub gpus: Option<u64>,
    /// Which of them will do; none for any.
    pub gpu_types: Option<Vec<String>>,
    /// TPU slice.
    pub tpu: Option<Tpu>,
    /// What may be reached.
    pub network: Network,
    /// Variables of the container.
    pub env: EnvTemplates,
    /// Where commands start; none for the image's directory.
    pub workdir: Option<String>,
    /// Where the image keeps skills.
    pub skills_dir: Option<String>,
    /// Servers of tools.
    pub mcp_servers: Vec<McpServer>,
    /// Check after the start.
    pub healthcheck: Option<Healthcheck>,
}

/// What is kept of a container after the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Path in the container.
    pub source: String,
    /// Path below the trial's `artifacts/`; none for the source's own.
    pub destination: Option<String>,
    /// Patterns left out of a directory.
    pub exclude: Vec<String>,
    /// Compose service; none for the main one.
    pub service: Option<String>,
}

/// One of `[[steps]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct StepSpec {
    /// Name, also of its directory below `steps/`.
    pub name: String,
    /// Its own `agent`.
    pub agent: AgentSpec,
    /// Its own `verifier`.
    pub verifier: VerifierSpec,
    /// What it must reach for the next one to run.
    pub min_reward: Option<MinReward>,
    /// Check before its agent.
    pub healthcheck: Option<Healthcheck>,
    /// Kept besides the task's.
    pub artifacts: Vec<Artifact>,
}

/// A whole `task.toml`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskConfig {
    /// `schema_version`, or the older `version`; `1.4` where neither is written.
    pub schema_version: String,
    /// Where the task comes from, as its author says.
    pub source: Option<String>,
    /// `[task]`.
    pub package: Option<Package>,
    /// `[metadata]`, free-form.
    pub metadata: Table,
    /// `[agent]`.
    pub agent: AgentSpec,
    /// `[verifier]`.
    pub verifier: VerifierSpec,
    /// `[environment]`.
    pub environment: EnvironmentSpec,
    /// `[solution].env`, for the oracle.
    pub solution_env: EnvTemplates,
    /// `multi_step_reward_strategy`, as it is written; the mean where it is not.
    pub reward_strategy: Option<RewardStrategy>,
    /// `[[steps]]`; empty for a task of one step.
    pub steps: Vec<StepSpec>,
    /// `artifacts`.
    pub artifacts: Vec<Artifact>,
}

/// The table of a `task.toml`, whatever is in it.
///
/// # Errors
/// Line, column (from 1) and what is wrong there.
pub(crate) fn table(text: &str) -> Result<Table, (usize, usize, String)> {
    text.strip_prefix('\u{feff}').unwrap_or(text).parse().map_err(|e: toml::de::Error| {
        let before = e.span().and_then(|s| text.get(..s.start)).unwrap_or("");
        let column = before.rsplit('\n').next().map_or(1, |l| l.chars().count() + 1);
        (before.matches('\n').count() + 1, column, shown(e.message()))
    })
}

impl TaskConfig {
    /// Reads a table, whatever is in it: what is wrong is as if it were not written. Gives the
    /// problems (Harbor would refuse the task) and the notes besides.
    pub fn read(table: &Table) -> (TaskConfig, Vec<String>, Vec<String>) {
        let log = Log::default();
        let config = parse::task(&Section::root(table, &log));
        (config, log.problems.into_inner(), log.notes.into_inner())
    }

    /// Limit of the agent in a step (or of the task's only one) in seconds; none is no limit.
    pub fn agent_timeout(&self, step: Option<&StepSpec>) -> Option<f64> {
        step.and_then(|s| s.agent.timeout_sec).or(self.agent.timeout_sec)
    }

    /// Limit of the verifier in seconds. A step that sets none has Harbor's default, not the task's
    /// (Harbor 0.21 and 0.26: the default fills the step's own field).
    pub fn verifier_timeout(&self, step: Option<&StepSpec>) -> f64 {
        step.map_or(self.verifier.timeout_sec, |s| s.verifier.timeout_sec).unwrap_or(DEFAULT_VERIFIER_SEC)
    }

    /// Who sets the agent up and runs it.
    pub fn agent_user<'a>(&'a self, step: Option<&'a StepSpec>) -> Option<&'a User> {
        step.and_then(|s| s.agent.user.as_ref()).or(self.agent.user.as_ref())
    }

    /// Who runs the verifier.
    pub fn verifier_user<'a>(&'a self, step: Option<&'a StepSpec>) -> Option<&'a User> {
        step.and_then(|s| s.verifier.user.as_ref()).or(self.verifier.user.as_ref())
    }

    /// Variables of the test script: the task's, a step's over them.
    pub fn verifier_env(&self, step: Option<&StepSpec>) -> EnvTemplates {
        let own = step.map(|s| s.verifier.env.clone()).unwrap_or_default();
        self.verifier.env.clone().into_iter().chain(own).collect()
    }

    /// What may be reached while the agent runs.
    pub fn agent_network<'a>(&'a self, step: Option<&'a StepSpec>) -> &'a Network {
        let own = step.and_then(|s| s.agent.network.as_ref()).or(self.agent.network.as_ref());
        own.unwrap_or(&self.environment.network)
    }

    /// What may be reached while the verifier runs, in the agent's environment.
    pub fn verifier_network<'a>(&'a self, step: Option<&'a StepSpec>) -> &'a Network {
        let own = step.and_then(|s| s.verifier.network.as_ref()).or(self.verifier.network.as_ref());
        own.unwrap_or(&self.environment.network)
    }

    /// Where the verifier runs. An environment of its own makes it separate.
    pub fn verifier_mode(&self, step: Option<&StepSpec>) -> VerifierMode {
        let own = |v: &VerifierSpec| v.mode.or(v.environment.as_ref().map(|_| VerifierMode::Separate));
        step.and_then(|s| own(&s.verifier)).or(own(&self.verifier)).unwrap_or(VerifierMode::Shared)
    }

    /// The system the test script is for: of a separate verifier the system of its environment.
    pub fn verifier_os(&self, step: Option<&StepSpec>) -> Os {
        if self.verifier_mode(step) == VerifierMode::Shared {
            return self.environment.os;
        }
        let own = step.and_then(|s| s.verifier.environment.as_ref()).or(self.verifier.environment.as_ref());
        own.map_or(self.environment.os, |e| e.os)
    }

    /// Limit of the start of the environment in seconds.
    pub fn build_timeout(&self) -> f64 {
        self.environment.build_timeout_sec.unwrap_or(DEFAULT_BUILD_SEC)
    }

    /// How the rewards of several steps make one.
    pub fn strategy(&self) -> RewardStrategy {
        self.reward_strategy.unwrap_or_default()
    }

    /// The steps that run, None standing for that of a task without `[[steps]]`.
    pub fn runs(&self) -> impl Iterator<Item = Option<&StepSpec>> {
        self.steps.iter().map(Some).chain(self.steps.is_empty().then_some(None))
    }
}
