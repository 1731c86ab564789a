//! What Harbor accepts and pilothouse can't do: named, one by one, so that nothing is ignored.

use std::fmt;

use super::types::*;
use crate::job::text::clean;

/// Who can do it.
pub const WAY: &str = "run it with pilothouse harbor run";

/// Agents that pilothouse has.
const AGENTS: [&str; 5] = ["oracle", "nop", "scripted", "terminus-2", "pilothouse-terminus"];
/// Those of them that call no model and have no settings.
const PLAIN: [&str; 3] = ["oracle", "nop", "scripted"];
/// Environments that pilothouse has.
const PLACES: [&str; 2] = ["docker", "local"];
/// Settings of the Docker environment (`environment.kwargs`, `--ek`) that mean something here, with what
/// they do.
pub const SETTINGS: [(&str, &str); 10] = [
    ("auto_mounting", "true; logs are always live on this machine, which is what it asks for"),
    ("pids_limit", "most processes in a container (default 4096)"),
    ("init", "false: no init as PID 1 (default true)"),
    ("swap", "true: as much swap again as memory, as under Harbor (default false)"),
    ("proxy", "true: HTTP_PROXY and the like of this process go into containers and builds (default false)"),
    ("extra_hosts", "name:address,... for the hosts file of containers"),
    ("volumes", "/here:/inside,... more directories or files, not writable inside"),
    ("network_per_trial", "true: a network for each trial instead of one for the job (default false)"),
    ("network_pool", "10.200.0.0/16[:24] where networks are cut from (default: the engine's choice)"),
    ("output_cap_mb", "most MiB kept of what an agent or the tests print (default 256)"),
];

/// Something that pilothouse can't do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The key of the config or the flag, with its value where that is a word.
    pub what: String,
    /// Why, or what there is instead.
    pub why: String,
}

impl Unsupported {
    fn new(what: impl AsRef<str>, why: impl AsRef<str>) -> Unsupported {
        Unsupported { what: clean(what.as_ref()).into_owned(), why: clean(why.as_ref()).into_owned() }
    }

    pub(super) fn flag(flag: &str) -> Unsupported {
        Unsupported::new(flag, "a flag that only harbor can follow")
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {WAY}", self.what, self.why)
    }
}

struct List(Vec<Unsupported>);

impl List {
    /// Names it where it is asked for.
    fn when(&mut self, asked: bool, what: impl AsRef<str>, why: &str) {
        if asked {
            self.0.push(Unsupported::new(what, why));
        }
    }
}

/// Everything in a config that Harbor would do and pilothouse can't, in the config's order. An empty
/// list is the condition for running it.
pub fn unsupported(config: &RunConfig) -> Vec<Unsupported> {
    unsupported_beside(config, &[])
}

/// As [`unsupported`], where there are further agents of these names.
pub fn unsupported_beside(config: &RunConfig, agents: &[String]) -> Vec<Unsupported> {
    let mut list = List(Vec::new());
    environment(&config.environment, &mut list);
    verifier(&config.verifier, &mut list);
    for (i, metric) in config.metrics.iter().enumerate() {
        let plain = metric.kind == "mean" && metric.kwargs.is_empty();
        list.when(!plain, format!("metrics[{i}]: {}", metric.kind), "only the mean is computed");
    }
    list.when(config.agents.is_empty(), "agents: []", "a job without agents runs nothing here");
    for (i, a) in config.agents.iter().enumerate() {
        agent(a, agents, &format!("agents[{i}]"), &mut list);
    }
    list.when(config.user_agent.is_some(), "user_agent", "no simulated users");
    for (i, d) in config.datasets.iter().enumerate() {
        dataset(d, &format!("datasets[{i}]"), &mut list);
    }
    for (i, t) in config.tasks.iter().enumerate() {
        task(t, &format!("tasks[{i}]"), &mut list);
    }
    for (i, artifact) in config.artifacts.iter().enumerate() {
        if let Artifact::Full { service: Some(service), .. } = artifact {
            let what = format!("artifacts[{i}].service: {service}");
            list.when(service != "main", what, "no compose services beside the task's container");
        }
    }
    for (i, source) in config.source_jobs.iter().enumerate() {
        list.when(true, format!("source_jobs[{i}].action: {}", source.action), "no jobs that derive from others");
    }
    list.0
}

fn environment(e: &EnvironmentConfig, list: &mut List) {
    if let Some(kind) = e.kind.as_deref() {
        list.when(!PLACES.contains(&kind), format!("environment.type: {kind}"), "only docker and local");
    }
    list.when(e.import_path.is_some(), "environment.import_path", "no environments written in Python");
    list.when(e.stream, "environment.stream", "no way into a sandbox but the live screen");
    let modes = [
        ("environment.cpu_enforcement_policy", e.cpu_enforcement_policy),
        ("environment.memory_enforcement_policy", e.memory_enforcement_policy),
    ];
    for (key, mode) in modes {
        let reserves = matches!(mode, ResourceMode::Request | ResourceMode::Guarantee);
        list.when(reserves, format!("{key}: {}", mode.word()), "Docker has limits, no reservations");
    }
    list.when(e.override_gpus.is_some_and(|n| n > 0), "environment.override_gpus", "no GPUs");
    list.when(e.override_tpu.is_some(), "environment.override_tpu", "no TPUs");
    for (i, mount) in e.mounts.iter().flatten().enumerate() {
        let what = format!("environment.mounts[{i}]");
        list.when(mount.kind != "bind", format!("{what}.type: {}", mount.kind), "only bind mounts");
        for option in &mount.options {
            let ours = option.key == "bind" && option.node == create_host_path(&option.node);
            list.when(!ours && mount.kind == "bind", format!("{what}.{}", option.key), "no options of mounts");
        }
    }
    list.when(!e.extra_docker_compose.is_empty(), "environment.extra_docker_compose", "no compose");
    for setting in &e.kwargs {
        let known = SETTINGS.iter().any(|(name, _)| *name == setting.key);
        list.when(!known, format!("environment.kwargs.{}", setting.key), "no such setting here");
    }
    list.when(!e.extra_allowed_hosts.is_empty(), "environment.extra_allowed_hosts", "no networks with an allow-list");
}

/// The one option that says what is done anyway: a missing host path is not created.
fn create_host_path(like: &super::node::Node) -> super::node::Node {
    use super::node::{Entry, Node, Value};
    let no = Node::new(&like.place, Value::Bool(false));
    Node::new(&like.place, Value::Map(vec![Entry { key: "create_host_path".into(), node: no }]))
}

fn verifier(v: &VerifierConfig, list: &mut List) {
    list.when(v.import_path.is_some(), "verifier.import_path", "no verifiers written in Python");
    list.when(!v.kwargs.is_empty(), "verifier.kwargs", "the verifier has no settings");
    list.when(!v.include_logs.is_empty(), "verifier.include_logs", "all logs are kept");
    list.when(!v.exclude_logs.is_empty(), "verifier.exclude_logs", "all logs are kept");
    list.when(!v.extra_allowed_hosts.is_empty(), "verifier.extra_allowed_hosts", "no networks with an allow-list");
}

fn agent(a: &AgentConfig, more: &[String], at: &str, list: &mut List) {
    match a.name.as_deref() {
        Some(name) if name.contains(':') => {
            list.when(true, format!("{at}.name: {name}"), "no agents written in Python");
        }
        Some(name) => {
            let known = AGENTS.contains(&name) || more.iter().any(|more| more == name);
            let why = "only oracle, nop, scripted, terminus-2, and those that a file describes (mini-swe-agent)";
            list.when(!known, format!("{at}.name: {name}"), why);
        }
        None => {}
    }
    list.when(a.import_path.is_some(), format!("{at}.import_path"), "no agents written in Python");
    let model = "this agent calls no model";
    let plain = a.name.as_deref().is_none_or(|name| PLAIN.contains(&name));
    list.when(plain && a.base_url.is_some(), format!("{at}.base_url"), model);
    list.when(plain && a.model_api_key_name.is_some(), format!("{at}.model_api_key_name"), model);
    list.when(plain && a.model_api_format.is_some(), format!("{at}.model_api_format"), model);
    list.when(plain && a.skip_model_parsing, format!("{at}.skip_model_parsing"), model);
    list.when(!a.skills.is_empty(), format!("{at}.skills"), "no skills");
    list.when(a.resume_trajectory, format!("{at}.resume_trajectory"), "no sessions that go on");
    list.when(a.load_trajectory.is_some(), format!("{at}.load_trajectory"), "no sessions that go on");
    list.when(!a.extra_allowed_hosts.is_empty(), format!("{at}.extra_allowed_hosts"), "no networks with an allow-list");
    list.when(!a.include_logs.is_empty(), format!("{at}.include_logs"), "all logs are kept");
    list.when(!a.exclude_logs.is_empty(), format!("{at}.exclude_logs"), "all logs are kept");
    let known = a.name.as_deref().is_some_and(|n| PLAIN.contains(&n));
    for setting in a.kwargs.iter().filter(|_| known) {
        list.when(true, format!("{at}.kwargs.{}", setting.key), "this agent has no settings");
    }
    list.when(!a.mcp_servers.is_empty(), format!("{at}.mcp_servers"), "no MCP servers");
}

fn dataset(d: &DatasetConfig, at: &str, list: &mut List) {
    if let Some(name) = &d.name {
        list.when(true, format!("{at}.name: {name}"), "no datasets by name: download it and give its directory");
    }
    list.when(d.registry_url.is_some(), format!("{at}.registry_url"), "no registries");
    list.when(d.registry_path.is_some(), format!("{at}.registry_path"), "no registries");
    // Only meant for what is fetched; with a directory they would be ignored.
    list.when(d.version.is_some() && d.name.is_none(), format!("{at}.version"), "only named datasets have one");
    list.when(d.reference.is_some() && d.name.is_none(), format!("{at}.ref"), "only named datasets have one");
    list.when(d.overwrite, format!("{at}.overwrite"), "there is no cache of tasks");
    list.when(d.download_dir.is_some(), format!("{at}.download_dir"), "there is no cache of tasks");
}

fn task(t: &TaskRef, at: &str, list: &mut List) {
    if let Some(name) = &t.name {
        list.when(true, format!("{at}.name: {name}"), "no tasks by name: download it and give its directory");
    }
    list.when(t.git_url.is_some(), format!("{at}.git_url"), "no single tasks from git: take --repo with -i");
    list.when(t.overwrite, format!("{at}.overwrite"), "there is no cache of tasks");
    list.when(t.download_dir.is_some(), format!("{at}.download_dir"), "there is no cache of tasks");
}
