//! What a `task.toml` says, both schema generations (`version = "1.0"` and `schema_version`).

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::env::EnvTemplates;
use super::network::{self, Network};
use super::read::{Log, Section, number_in, shown, whole};
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
        let config = read(&Section::root(table, &log));
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

fn read(root: &Section<'_>) -> TaskConfig {
    // The older name counts where the newer is not written.
    let old = root.raw("version");
    let version = match (root.has("schema_version"), old) {
        (false, Some(_)) => root.text("version"),
        _ => root.text("schema_version"),
    };
    let strategies = [("mean", RewardStrategy::Mean), ("final", RewardStrategy::Final)];
    let config = TaskConfig {
        schema_version: version.unwrap_or_else(|| "1.4".into()),
        source: root.text("source"),
        package: root.section("task").map(|s| package(&s)),
        metadata: root.section("metadata").map(|s| s.all_known().clone()).unwrap_or_default(),
        agent: root.section("agent").map(|s| agent(&s)).unwrap_or_default(),
        verifier: root.section("verifier").map(|s| verifier(&s)).unwrap_or_default(),
        environment: root.section("environment").map(|s| environment(&s)).unwrap_or_default(),
        solution_env: root.section("solution").map(|s| s.env("env")).unwrap_or_default(),
        reward_strategy: root.word("multi_step_reward_strategy", &strategies),
        steps: root.sections("steps").iter().map(step).collect(),
        artifacts: artifacts(root),
    };
    let mut names: Vec<String> = config.steps.iter().map(|s| s.name.to_lowercase()).collect();
    names.sort();
    for pair in names.windows(2) {
        if let [a, b] = pair
            && a == b
        {
            root.problem("steps", format_args!("two are named {:?}", shown(a)));
        }
    }
    config
}

fn package(section: &Section<'_>) -> Package {
    let name = section.needed_text("name");
    let part = |p: &str| {
        p.starts_with(|c: char| c.is_ascii_alphanumeric())
            && p.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    let fits = name.split_once('/').is_some_and(|(org, name)| part(org) && part(name)) && !name.contains("..");
    if section.has("name") && !fits {
        section.problem("name", format_args!("{:?} is not org/name", shown(&name)));
    }
    let version = section.text("version");
    if version.as_deref() == Some("") {
        section.problem("version", "is empty");
    }
    let authors = section.sections("authors");
    Package {
        name,
        version,
        description: section.text("description").unwrap_or_default(),
        authors: authors.iter().map(|a| (a.needed_text("name"), a.text("email"))).collect(),
        keywords: section.texts("keywords").unwrap_or_default(),
    }
}

fn agent(section: &Section<'_>) -> AgentSpec {
    AgentSpec {
        timeout_sec: section.seconds("timeout_sec"),
        user: section.user("user"),
        network: network::of_phase(section),
    }
}

fn verifier(section: &Section<'_>) -> VerifierSpec {
    let mode =
        section.word("environment_mode", &[("shared", VerifierMode::Shared), ("separate", VerifierMode::Separate)]);
    let own = section.section("environment").map(|s| Box::new(environment(&s)));
    if mode == Some(VerifierMode::Shared) && own.is_some() {
        section.problem("environment_mode", "\"shared\" does not go with an environment of its own");
    }
    let hook = |s: &Section<'_>| CollectHook {
        command: s.needed_text("command"),
        service: service(s).unwrap_or_else(|| MAIN_SERVICE.into()),
        timeout_sec: s.seconds("timeout_sec").unwrap_or(60.0),
        user: s.user("user"),
    };
    VerifierSpec {
        timeout_sec: section.seconds("timeout_sec"),
        env: section.env("env"),
        user: section.user("user"),
        mode,
        environment: own,
        collect: section.sections("collect").iter().map(hook).collect(),
        network: network::of_phase(section),
    }
}

fn service(section: &Section<'_>) -> Option<String> {
    let name = section.text("service")?.trim().to_string();
    let fits = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if !fits {
        section.problem("service", format_args!("{:?} is not the name of a service", shown(&name)));
    }
    Some(name)
}

fn environment(section: &Section<'_>) -> EnvironmentSpec {
    let os = section.text("os").map(|os| os.to_lowercase());
    let os = match os.as_deref() {
        None | Some("linux") => Os::Linux,
        Some("windows") => Os::Windows,
        Some(other) => {
            section.problem("os", format_args!("{:?} is not linux or windows", shown(other)));
            Os::Linux
        }
    };
    let cpus = section.float("cpus");
    if cpus.is_some_and(|n| !(0.0..=1e6).contains(&n)) {
        section.problem("cpus", "is not a number of processors");
    }
    let tpu = section
        .section("tpu")
        .map(|s| Tpu { kind: s.needed_text("type"), topology: s.needed_text("topology").trim().to_string() });
    let side = |n: &str| !n.starts_with('0') && !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    if tpu.as_ref().is_some_and(|t| t.kind.is_empty() || !t.topology.contains('x') || !t.topology.split('x').all(side))
    {
        section.problem("tpu", "needs a type and a topology such as 2x4");
    }
    EnvironmentSpec {
        docker_image: section.text("docker_image").filter(|image| !image.is_empty()),
        build_timeout_sec: section.seconds("build_timeout_sec"),
        os,
        cpus: cpus.filter(|n| (0.0..=1e6).contains(n)),
        memory_mb: size(section, "memory_mb", "memory"),
        storage_mb: size(section, "storage_mb", "storage"),
        gpus: section.count("gpus"),
        gpu_types: section.texts("gpu_types"),
        tpu,
        network: network::of_environment(section),
        env: section.env("env"),
        workdir: section.text("workdir"),
        skills_dir: section.text("skills_dir"),
        mcp_servers: section.sections("mcp_servers").iter().map(mcp_server).collect(),
        healthcheck: section.section("healthcheck").map(|s| healthcheck(&s)),
    }
}

/// A size in MiB: the number, or the older text with G, M or K. Both may be written if they agree.
fn size(section: &Section<'_>, key: &'static str, old: &'static str) -> Option<u64> {
    let new = section.count(key);
    let text = match section.raw(old) {
        None => return new,
        Some(Value::String(text)) => text,
        Some(_) => {
            section.note(old, "only text such as \"2G\" counts, this is ignored");
            return new;
        }
    };
    let upper = text.trim().to_uppercase();
    let factors = [('G', 1024.0), ('M', 1.0), ('K', 1.0 / 1024.0)];
    let found = factors.iter().find_map(|(unit, factor)| Some((upper.strip_suffix(*unit)?, *factor)));
    let mb = found.and_then(|(n, factor)| number_in(n).map(|n| (n * factor).trunc())).and_then(whole);
    let Some(mb) = mb.and_then(|n| u64::try_from(n).ok()) else {
        section.problem(old, format_args!("{:?} is not a size such as \"2G\", \"512M\" or \"64K\"", shown(text)));
        return new;
    };
    // Harbor compares before it coerces: a number in quotes never agrees.
    let agrees = match section.raw(key) {
        None => true,
        Some(Value::String(_)) => false,
        Some(_) => new == Some(mb),
    };
    if !agrees {
        section.problem(key, format_args!("{old} = {:?} ({mb} MB) says something else", shown(text)));
    }
    Some(mb)
}

fn healthcheck(section: &Section<'_>) -> Healthcheck {
    Healthcheck {
        command: section.needed_text("command"),
        interval_sec: section.seconds("interval_sec").unwrap_or(5.0),
        timeout_sec: section.seconds("timeout_sec").unwrap_or(30.0),
        start_period_sec: section.seconds("start_period_sec").unwrap_or(0.0),
        start_interval_sec: section.seconds("start_interval_sec").unwrap_or(5.0),
        retries: section.count("retries").unwrap_or(3),
    }
}

fn mcp_server(section: &Section<'_>) -> McpServer {
    let transports = [
        ("stdio", McpTransport::Stdio),
        ("sse", McpTransport::Sse),
        ("streamable-http", McpTransport::StreamableHttp),
        ("http", McpTransport::StreamableHttp),
    ];
    let server = McpServer {
        name: section.needed_text("name"),
        transport: section.word("transport", &transports).unwrap_or(McpTransport::Sse),
        url: section.text("url"),
        command: section.text("command"),
        args: section.texts("args").unwrap_or_default(),
        headers: section.pairs("headers"),
    };
    let empty = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    match server.transport {
        McpTransport::Stdio if empty(&server.command) => section.problem("command", "is required for stdio"),
        McpTransport::Stdio if !server.headers.is_empty() => section.problem("headers", "has no meaning with stdio"),
        McpTransport::Sse | McpTransport::StreamableHttp if empty(&server.url) => {
            section.problem("url", "is required for this transport");
        }
        _ => {}
    }
    server
}

fn artifacts(section: &Section<'_>) -> Vec<Artifact> {
    let mut out = Vec::new();
    for (name, value) in section.list("artifacts") {
        if let Some(source) = value.as_str() {
            check_source(section, &name, source);
            out.push(Artifact { source: source.to_string(), destination: None, exclude: Vec::new(), service: None });
        } else if let Some(entry) = section.entry(name.clone(), value) {
            out.push(artifact(&entry));
        } else {
            section.problem("artifacts", format_args!("{name} is neither a path nor a table"));
        }
    }
    out
}

fn has_dots(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn check_source(section: &Section<'_>, name: &str, source: &str) {
    if has_dots(source) {
        section.problem("artifacts", format_args!("{name}: {:?} has \"..\" in it", shown(source)));
    }
}

fn artifact(section: &Section<'_>) -> Artifact {
    let source = section.needed_text("source");
    if has_dots(&source) {
        section.problem("source", "has \"..\" in it");
    }
    let destination = section.text("destination").filter(|d| !d.is_empty());
    if let Some(path) = &destination {
        let named = path.split('/').any(|p| !matches!(p, "" | "."));
        if path.starts_with('/') || path.contains('\\') || has_dots(path) || !named {
            section.problem("destination", format_args!("{:?} is not a path below the artifacts", shown(path)));
        } else if path.trim_end_matches('/') == "manifest.json" {
            section.problem("destination", "manifest.json is kept for the list of what was collected");
        }
    }
    let service = service(section);
    let drive = matches!(source.as_bytes(), [d, b':', b'/' | b'\\', ..] if d.is_ascii_alphabetic());
    if service.as_deref().is_some_and(|s| s != MAIN_SERVICE) && !source.starts_with('/') && !drive {
        section.problem("source", "must be an absolute path in another service than main");
    }
    Artifact { source, destination, exclude: section.texts("exclude").unwrap_or_default(), service }
}

fn step(section: &Section<'_>) -> StepSpec {
    let name = section.needed_text("name");
    if section.has("name") && !portable(&name) {
        section.problem("name", format_args!("{:?} is not a name for a directory on every system", shown(&name)));
    }
    StepSpec {
        name,
        agent: section.section("agent").map(|s| agent(&s)).unwrap_or_default(),
        verifier: section.section("verifier").map(|s| verifier(&s)).unwrap_or_default(),
        min_reward: section.numbers("min_reward").map(|m| match m {
            Ok(number) => MinReward::Reward(number),
            Err(keys) => MinReward::Keys(keys),
        }),
        healthcheck: section.section("healthcheck").map(|s| healthcheck(&s)),
        artifacts: artifacts(section),
    }
}

/// Whether a name can be a directory's on every system (Harbor 0.26; 0.21 checks nothing).
fn portable(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ').to_uppercase();
    let numbered = |prefix| {
        stem.strip_prefix(prefix).is_some_and(|n: &str| {
            let mut chars = n.chars();
            matches!((chars.next(), chars.next()), (Some('1'..='9' | '¹' | '²' | '³'), None))
        })
    };
    let device = matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$");
    !name.trim().is_empty()
        && !name.ends_with(['.', ' '])
        && !name.chars().any(|c| "<>:\"/\\|?*".contains(c) || c < ' ' || c == '\u{7f}')
        && !(device || numbered("COM") || numbered("LPT"))
        && name.len() <= 255
}
