//! From a configuration map to a [`RunConfig`]: types, ranges, unknown keys, and the rules that tie
//! fields together.

use super::node::{Node, Place, Problem, Value};
use super::reader::{Problems, Reader, complain};
use super::retry::HarborVersion;
use super::types::*;
use crate::job::policy::ErrorPolicyOverride;

/// Built-in environments of either version; pilothouse adds `local`.
pub(super) const ENVIRONMENTS: [&str; 40] = [
    "docker",
    "local",
    "aca-sandbox",
    "ack",
    "apple-container",
    "beam",
    "blaxel",
    "boxd",
    "cua-cloud",
    "cwsandbox",
    "daytona",
    "e2b",
    "ec2",
    "gke",
    "hf-sandbox",
    "hyperbrowser",
    "islo",
    "kata",
    "kernel",
    "langsmith",
    "modal",
    "mosaic",
    "novita",
    "opensandbox",
    "openshift",
    "podman",
    "prime",
    "runloop",
    "runta",
    "sail",
    "sbx",
    "singularity",
    "skypilot",
    "smol",
    "snowflake",
    "superserve",
    "tensorlake",
    "use-computer",
    "vercel",
    "wandb",
];

const API_FORMATS: [&str; 5] = [
    "anthropic_messages",
    "bedrock_converse",
    "google_generate_content",
    "openai_chat_completions",
    "openai_responses",
];

/// Reads a merged configuration; sparse and full ones alike. The job's name stays empty where none is
/// given.
pub(super) fn run_config(root: Node, version: HarborVersion) -> Result<RunConfig, Vec<Problem>> {
    let problems = Problems::default();
    let place = root.place.clone();
    let config = Reader::new(root, "", "the job config", &problems).map(|r| job(r, version));
    if let Some(config) = config.as_ref().filter(|_| problems.borrow().is_empty()) {
        concurrency(config, &place, &problems);
    }
    let problems = problems.into_inner();
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(problems),
    }
}

fn words<'a>(list: &'a [&'a str]) -> Vec<(&'a str, &'a str)> {
    list.iter().map(|w| (*w, *w)).collect()
}

/// One word of a list, as text.
fn word(r: &mut Reader<'_>, key: &str, list: &[&str]) -> Option<String> {
    r.word(key, &words(list)).map(str::to_string)
}

fn job(mut r: Reader<'_>, version: HarborVersion) -> RunConfig {
    orchestrator(&mut r);
    if let Some(node) = r.take("schema_version").filter(|node| node.value != Value::Int(1)) {
        r.complain(&node.place, "schema_version: only 1 is known");
    }
    if let Some(node) = r.take("plugins") {
        let hint = "plugins: Harbor ignores this key; take it out, or run it with harbor itself and --plugin";
        r.complain(&node.place, hint);
    }
    let problems = r.problems;
    let install_only = r.bool("install_only", false);
    let override_error_policy = policies(&mut r);
    let retry_section = r.section("retry", "retry");
    let mut config = RunConfig {
        job_name: job_name(&mut r),
        jobs_dir: r.path_or("jobs_dir", "jobs"),
        n_attempts: r.u32("n_attempts", 1, 1),
        install_only,
        skip_credential_checks: r.bool("skip_credential_checks", false),
        timeout_multiplier: r.f64("timeout_multiplier", 1.0, true),
        agent_timeout_multiplier: r.opt_f64("agent_timeout_multiplier", true),
        verifier_timeout_multiplier: r.opt_f64("verifier_timeout_multiplier", true),
        agent_setup_timeout_multiplier: r.opt_f64("agent_setup_timeout_multiplier", true),
        environment_build_timeout_multiplier: r.opt_f64("environment_build_timeout_multiplier", true),
        debug: r.bool("debug", false),
        n_concurrent_trials: r.u32("n_concurrent_trials", 4, 1),
        quiet: r.bool("quiet", false),
        retry: retry(retry_section, &override_error_policy, version),
        override_error_policy,
        environment: r.section("environment", "environment").map(environment).unwrap_or_default(),
        verifier: r.section("verifier", "verifier").map(verifier).unwrap_or_default(),
        metrics: r.list("metrics", |n, path| Reader::new(n, path, "a metric", problems).map(metric)),
        agents: if r.has("agents") {
            r.list("agents", |n, path| Reader::new(n, path, "an agent", problems).map(agent))
        } else {
            vec![AgentConfig::default()]
        },
        user_agent: user_agent(&mut r),
        datasets: r.list("datasets", |n, path| Reader::new(n, path, "a dataset", problems).map(dataset)),
        tasks: r.list("tasks", |n, path| Reader::new(n, path, "a task", problems).map(task)),
        artifacts: r.list("artifacts", |n, path| artifact(n, path, problems)),
        extra_instruction_paths: r.paths("extra_instruction_paths"),
        extra_instructions: r.strings("extra_instructions"),
        source_jobs: r.list("source_jobs", |n, path| Reader::new(n, path, "a source job", problems).map(source_job)),
    };
    let place = r.place.clone();
    r.finish();
    if config.install_only {
        if !config.source_jobs.is_empty() {
            complain(problems, &place, "install_only can not be combined with source_jobs");
        }
        config.verifier.disable = true;
    }
    if config.source_jobs.iter().any(|s| Some(&s.action) != config.source_jobs.first().map(|f| &f.action)) {
        complain(problems, &place, "source_jobs: all must have the same action");
    }
    config
}

/// A name that is one path segment: it becomes a directory of `jobs_dir`.
fn job_name(r: &mut Reader<'_>) -> String {
    let place = r.take("job_name").map(|node| {
        let name = match &node.value {
            Value::Str(name) => Some(name.clone()),
            other => {
                r.complain(&node.place, format!("job_name: {} instead of text: put it in quotes", other.kind()));
                None
            }
        };
        (node.place, name)
    });
    let Some((place, Some(name))) = place else { return String::new() };
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) || name.len() > 200 {
        r.complain(&place, "job_name: not the name of a directory (no slash, not . or .., 1 to 200 bytes)");
    }
    name
}

/// The section that older configs had; its keys now stand at the top.
fn orchestrator(r: &mut Reader<'_>) {
    let Some(node) = r.take("orchestrator") else { return };
    let Value::Map(entries) = node.value else {
        r.complain(&node.place, format!("orchestrator: {} instead of a map", node.value.kind()));
        return;
    };
    for entry in entries {
        match entry.key.as_str() {
            "n_concurrent_trials" | "quiet" | "retry" => r.default(&entry.key, entry.node),
            _ => r.complain(&entry.node.place, format!("unknown key orchestrator.{} in the job config", entry.key)),
        }
    }
}

fn policies(r: &mut Reader<'_>) -> Vec<(String, ErrorPolicyOverride)> {
    let problems = r.problems;
    let path = r.at("override_error_policy");
    let read = |entry: super::node::Entry| {
        let mut p = Reader::new(entry.node, &format!("{path}.{}", entry.key), "an error policy", problems)?;
        let policy = ErrorPolicyOverride {
            should_retry: p.opt_bool("should_retry"),
            should_grade: p.opt_bool("should_grade"),
            has_valid_reward: p.opt_bool("has_valid_reward"),
        };
        p.finish();
        Some((entry.key, policy))
    };
    r.anything("override_error_policy").into_iter().filter_map(read).collect()
}

/// The error policies change the default list of excluded types, and only that.
fn retry(section: Option<Reader<'_>>, over: &[(String, ErrorPolicyOverride)], version: HarborVersion) -> RetryConfig {
    let defaults = RetryConfig::of(version);
    let by_policy = || {
        let mut names = defaults.exclude_exceptions.clone().unwrap_or_default();
        for (name, policy) in over {
            match policy.should_retry {
                Some(true) => names.retain(|n| n != name),
                Some(false) => names.push(name.clone()),
                None => {}
            }
        }
        Some(sorted(names))
    };
    let Some(mut r) = section else { return RetryConfig { exclude_exceptions: by_policy(), ..defaults } };
    let config = RetryConfig {
        max_retries: r.u32("max_retries", 0, 0),
        include_exceptions: r.opt_strings("include_exceptions").map(sorted),
        exclude_exceptions: if r.has("exclude_exceptions") {
            r.opt_strings("exclude_exceptions").map(sorted)
        } else {
            by_policy()
        },
        wait_multiplier: r.f64("wait_multiplier", defaults.wait_multiplier, false),
        min_wait_sec: r.f64("min_wait_sec", defaults.min_wait_sec, false),
        max_wait_sec: r.f64("max_wait_sec", defaults.max_wait_sec, false),
    };
    r.finish();
    config
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

fn mode(r: &mut Reader<'_>, key: &str) -> ResourceMode {
    r.lower_case(key);
    r.word(key, &ResourceMode::WORDS).unwrap_or_default()
}

fn environment(mut r: Reader<'_>) -> EnvironmentConfig {
    let problems = r.problems;
    r.rename("mounts_json", "mounts");
    // Harbor still takes this key and has long stopped to look at it.
    r.bool("suppress_override_warnings", false);
    env_list(&mut r);
    let mut config = EnvironmentConfig {
        kind: word(&mut r, "type", &ENVIRONMENTS),
        import_path: r.str("import_path"),
        force_build: r.bool("force_build", false),
        delete: r.bool("delete", true),
        stream: r.bool("stream", false),
        cpu_enforcement_policy: mode(&mut r, "cpu_enforcement_policy"),
        memory_enforcement_policy: mode(&mut r, "memory_enforcement_policy"),
        override_cpus: r.opt_f64("override_cpus", true),
        override_memory_mb: r.opt_u32("override_memory_mb", 1),
        override_storage_mb: r.opt_u32("override_storage_mb", 1),
        override_gpus: r.opt_u32("override_gpus", 0),
        override_tpu: tpu(&mut r),
        mounts: r.opt_list_with("mounts", true, |n, path| Reader::new(n, path, "a mount", problems).map(mount)),
        extra_docker_compose: r.paths("extra_docker_compose"),
        env: r.texts("env"),
        kwargs: r.anything("kwargs"),
        extra_allowed_hosts: hosts(&mut r),
    };
    if config.kind.is_none() && config.import_path.is_none() {
        config.kind = Some("docker".to_string());
    }
    r.finish();
    config
}

/// `env` as a list of `KEY=VALUE`, as older configs have it.
fn env_list(r: &mut Reader<'_>) {
    let Some(node) = r.take("env") else { return };
    let Value::List(items) = node.value else {
        r.default("env", node);
        return;
    };
    let mut entries = Vec::new();
    for item in items {
        match item.as_str().and_then(|s| s.split_once('=')) {
            Some((key, value)) => super::node::set(&mut entries, key.trim(), Node::text(&item.place, value.trim())),
            None => r.complain(&item.place, "environment.env: every item of a list must read KEY=VALUE"),
        }
    }
    r.default("env", Node::new(&node.place, Value::Map(entries)));
}

fn tpu(r: &mut Reader<'_>) -> Option<TpuSpec> {
    if r.is_null("override_tpu") {
        return None;
    }
    let mut t = r.section("override_tpu", "override_tpu")?;
    let spec = TpuSpec { kind: t.required("type"), topology: t.required("topology") };
    t.finish();
    Some(spec)
}

fn mount(mut r: Reader<'_>) -> Mount {
    let kind = word(&mut r, "type", &["bind", "volume", "image"]);
    if kind.is_none() {
        let place = r.place.clone();
        r.complain(&place, format!("{}: one of bind, volume, image is needed", r.at("type")));
    }
    let mount = Mount {
        kind: kind.unwrap_or_default(),
        source: r.required("source"),
        target: r.required("target"),
        read_only: r.bool("read_only", false),
        options: ["bind", "volume", "image"].iter().filter_map(|k| r.take_entry(k)).collect(),
    };
    r.finish();
    mount
}

fn verifier(mut r: Reader<'_>) -> VerifierConfig {
    let config = VerifierConfig {
        override_timeout_sec: r.opt_f64("override_timeout_sec", false),
        max_timeout_sec: r.opt_f64("max_timeout_sec", false),
        include_logs: r.strings("include_logs"),
        exclude_logs: r.strings("exclude_logs"),
        env: r.texts("env"),
        import_path: r.str("import_path"),
        kwargs: r.anything("kwargs"),
        disable: r.bool("disable", false),
        extra_allowed_hosts: hosts(&mut r),
    };
    r.finish();
    config
}

fn metric(mut r: Reader<'_>) -> MetricConfig {
    let kind = word(&mut r, "type", &["sum", "min", "max", "mean", "uv-script"]).unwrap_or_else(|| "mean".into());
    let metric = MetricConfig { kind, kwargs: r.anything("kwargs") };
    r.finish();
    metric
}

fn agent_fields(r: &mut Reader<'_>) -> AgentConfig {
    let problems = r.problems;
    let mut config = AgentConfig {
        name: r.str("name"),
        import_path: r.str("import_path"),
        model_name: r.str("model_name"),
        base_url: r.str("base_url"),
        model_api_key_name: r.str("model_api_key_name"),
        model_api_format: word(r, "model_api_format", &API_FORMATS),
        skip_model_parsing: r.bool("skip_model_parsing", false),
        n_concurrent: r.opt_u32("n_concurrent", 1),
        concurrency_group: r.str("concurrency_group"),
        skills: r.strings("skills"),
        override_timeout_sec: r.opt_f64("override_timeout_sec", false),
        override_setup_timeout_sec: r.opt_f64("override_setup_timeout_sec", false),
        max_timeout_sec: r.opt_f64("max_timeout_sec", false),
        resume_trajectory: r.bool("resume_trajectory", false),
        load_trajectory: r.str("load_trajectory"),
        extra_allowed_hosts: hosts(r),
        include_logs: r.strings("include_logs"),
        exclude_logs: r.strings("exclude_logs"),
        kwargs: r.anything("kwargs"),
        env: r.texts("env"),
        mcp_servers: r.list("mcp_servers", |n, path| Reader::new(n, path, "an MCP server", problems).map(mcp_server)),
    };
    if config.name.is_none() && config.import_path.is_none() {
        config.name = AgentConfig::default().name;
    }
    config
}

fn agent(mut r: Reader<'_>) -> AgentConfig {
    let config = agent_fields(&mut r);
    r.finish();
    config
}

fn mcp_server(mut r: Reader<'_>) -> McpServer {
    r.replace_word("transport", "http", "streamable-http");
    let transport = word(&mut r, "transport", &["stdio", "sse", "streamable-http"]).unwrap_or_else(|| "sse".into());
    let server = McpServer {
        name: r.required("name"),
        url: r.str("url"),
        command: r.str("command"),
        args: r.strings("args"),
        headers: r.texts("headers"),
        transport,
    };
    let missing = match server.transport.as_str() {
        "stdio" => server.command.is_none().then_some("command"),
        _ => server.url.is_none().then_some("url"),
    };
    if let Some(key) = missing {
        let place = r.place.clone();
        r.complain(&place, format!("{} is missing (transport {})", r.at(key), server.transport));
    }
    r.finish();
    server
}

fn user_agent(r: &mut Reader<'_>) -> Option<UserAgentConfig> {
    if r.is_null("user_agent") {
        return None;
    }
    let mut u = r.section("user_agent", "user_agent")?;
    let agent = agent_fields(&mut u);
    let user_persona_path = u.path("user_persona_path");
    let user_prompt_template_path = u.path("user_prompt_template_path");
    let place = u.place.clone();
    let bridge = u.section("bridge", "a bridge");
    u.finish();
    let Some(mut b) = bridge else {
        r.complain(&place, "user_agent.bridge is missing");
        return None;
    };
    let config = UserAgentConfig {
        agent,
        user_persona_path,
        user_prompt_template_path,
        bridge_kind: word(&mut b, "kind", &["acp"]).unwrap_or_default(),
        bridge_prompt_path: b.path("prompt_path"),
        bridge_kwargs: b.anything("kwargs"),
    };
    b.finish();
    Some(config)
}

fn dataset(mut r: Reader<'_>) -> DatasetConfig {
    // The nested form that older configs had.
    if let Some(mut registry) = r.section("registry", "a registry") {
        for (old, new) in [("url", "registry_url"), ("path", "registry_path")] {
            if let Some(node) = registry.take(old) {
                r.default(new, node);
            }
        }
        registry.finish();
    }
    let d = DatasetConfig {
        path: r.path("path"),
        name: r.str("name"),
        version: r.str("version"),
        reference: r.str("ref"),
        registry_url: r.str("registry_url"),
        registry_path: r.path("registry_path"),
        repo: r.str("repo"),
        overwrite: r.bool("overwrite", false),
        download_dir: r.path("download_dir"),
        task_names: r.opt_strings("task_names"),
        exclude_task_names: r.opt_strings("exclude_task_names"),
        n_tasks: r.opt_u32("n_tasks", 1),
    };
    let repo = d.repo.is_some();
    let rules = [
        (d.version.is_some() && d.reference.is_some(), "version and ref exclude each other"),
        (!repo && d.path.is_none() && d.name.is_none(), "path or name is needed"),
        (d.path.is_some() && d.name.is_some(), "path and name exclude each other"),
        (repo && d.registry_url.is_some(), "repo and registry_url exclude each other"),
        (repo && d.registry_path.is_some() && d.path.is_some(), "registry_path and path exclude each other with repo"),
        (repo && d.registry_path.is_some() && d.name.is_none(), "registry_path wants a name with repo"),
        (repo && d.name.as_deref().is_some_and(|n| n.contains('/')), "a name with repo has no slash"),
    ];
    check(&r, &rules);
    r.finish();
    d
}

fn task(mut r: Reader<'_>) -> TaskRef {
    let t = TaskRef {
        path: r.path("path"),
        git_url: r.str("git_url"),
        git_commit_id: r.str("git_commit_id"),
        name: r.str("name"),
        reference: r.str("ref"),
        overwrite: r.bool("overwrite", false),
        download_dir: r.path("download_dir"),
        source: r.str("source"),
    };
    let rules = [
        (t.path.is_none() && t.name.is_none(), "path or name is needed"),
        (t.path.is_some() && t.name.is_some(), "path and name exclude each other"),
        (t.name.is_none() && t.reference.is_some(), "ref wants a name"),
        (t.git_url.is_none() && t.git_commit_id.is_some(), "git_commit_id wants a git_url"),
        (t.name.as_deref().is_some_and(|n| !n.contains('/')), "the name of a package reads org/name"),
    ];
    check(&r, &rules);
    r.finish();
    t
}

fn check(r: &Reader<'_>, rules: &[(bool, &str)]) {
    for (_, message) in rules.iter().filter(|(broken, _)| *broken) {
        r.complain(&r.place, format!("{}{message}", r.heading()));
    }
}

fn artifact(node: Node, path: &str, problems: &Problems) -> Option<Artifact> {
    if let Value::Str(source) = node.value {
        return Some(Artifact::Path(source));
    }
    let mut r = Reader::new(node, path, "an artifact", problems)?;
    let source = r.required("source");
    let destination = r.str("destination").filter(|d| !d.is_empty());
    let (exclude, service) = (r.strings("exclude"), r.str("service"));
    let climbs = |p: &str| p.split('/').any(|part| part == "..");
    let bad = destination.as_deref().is_some_and(|d| {
        d.starts_with('/') || d.contains('\\') || climbs(d) || matches!(d.trim_end_matches('/'), "manifest.json" | ".")
    });
    let rules = [
        (climbs(&source), "source must not climb with .."),
        (bad, "destination is a relative path below the trial's artifacts, and not manifest.json"),
    ];
    check(&r, &rules);
    r.finish();
    Some(Artifact::Full { source, destination, exclude, service })
}

fn source_job(mut r: Reader<'_>) -> SourceJob {
    let job = SourceJob {
        action: word(&mut r, "action", &["regrade", "diff"]).unwrap_or_default(),
        kind: word(&mut r, "type", &["local", "hub"]).unwrap_or_default(),
        job_id: r.str("job_id"),
        path: r.path("path"),
    };
    let rules = [
        (job.action.is_empty(), "action is needed"),
        (job.kind == "hub" && (job.job_id.is_none() || job.path.is_some()), "a hub job has a job_id and no path"),
        (job.kind != "hub" && job.path.is_none(), "a local job has a path"),
    ];
    check(&r, &rules);
    r.finish();
    job
}

/// Host names in the form in which Harbor keeps them.
fn hosts(r: &mut Reader<'_>) -> Vec<String> {
    let place = r.place.clone();
    let hosts = r.strings("extra_allowed_hosts");
    let mut out = Vec::new();
    for host in hosts {
        let host = host.trim().to_lowercase();
        let host = host.trim_end_matches('.');
        if host.is_empty() || host.contains(char::is_whitespace) || host.contains("://") {
            let at = r.at("extra_allowed_hosts");
            r.complain(&place, format!("{at}: host names, addresses or CIDR ranges, no URLs and nothing empty"));
        }
        out.push(host.parse::<std::net::Ipv6Addr>().map_or_else(|_| host.to_string(), |ip| ip.to_string()));
    }
    out
}

/// No agent may run more at a time than there are slots; agents that share a pool agree on its size.
fn concurrency(config: &RunConfig, place: &Place, problems: &Problems) {
    let pool = |agent: &AgentConfig| match &agent.concurrency_group {
        Some(group) => (Some(group.clone()), AgentConfig::default()),
        None => (None, AgentConfig { n_concurrent: None, ..agent.clone() }),
    };
    for (i, agent) in config.agents.iter().enumerate() {
        if agent.n_concurrent.is_some_and(|n| n > config.n_concurrent_trials) {
            let (n, slots) = (agent.n_concurrent.unwrap_or(0), config.n_concurrent_trials);
            let message = format!("agents[{i}].n_concurrent is {n}, more than n_concurrent_trials, which is {slots}");
            complain(problems, place, message);
        }
        if let (Some(group), None) = (&agent.concurrency_group, agent.n_concurrent) {
            complain(problems, place, format!("agents[{i}]: concurrency_group {group} without n_concurrent"));
        }
        let key = pool(agent);
        let other = config.agents.iter().take(i).position(|a| pool(a) == key && a.n_concurrent != agent.n_concurrent);
        if let Some(other) = other {
            let message = format!("agents[{other}] and agents[{i}] share a pool, so n_concurrent must be the same");
            complain(problems, place, message);
        }
    }
}
