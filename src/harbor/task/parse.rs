//! From the table of a `task.toml` to its types, with Harbor's defaults and checks.

use toml::Value;

use super::config::{
    AgentSpec, Artifact, CollectHook, EnvironmentSpec, Healthcheck, MAIN_SERVICE, McpServer, McpTransport, Os, Package,
    StepSpec, TaskConfig, Tpu, VerifierMode, VerifierSpec,
};
use super::network;
use super::read::{Section, number_in, shown, whole};
use super::rewards::{MinReward, RewardStrategy};

pub(super) fn task(root: &Section<'_>) -> TaskConfig {
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
    let reserved = device || numbered("COM") || numbered("LPT");
    let forbidden = |c: char| "<>:\"/\\|?*".contains(c) || c < ' ' || c == '\u{7f}';
    if reserved || name.trim().is_empty() || name.ends_with(['.', ' ']) || name.chars().any(forbidden) {
        return false;
    }
    name.len() <= 255
}
