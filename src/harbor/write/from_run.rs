//! From what an operator asks for ([`RunConfig`]) to the documents that say so ([`JobConfig`]): the one
//! place where the one becomes the other.

use serde_json::{Map, Number, Value, json};

use super::config::{
    AgentConfig, DatasetConfig, Env, EnvironmentConfig, JobConfig, Kwargs, MetricConfig, MetricKind, RetryConfig,
    TaskConfig, VerifierConfig,
};
use crate::harbor::run_config::{self as run, Entry, RunConfig, is_sensitive_name, template_name};

/// Looks a variable of the surroundings up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl JobConfig {
    /// The config of a job. A variable that is a secret by its name and that `lookup` knows with the
    /// same value becomes a reference to it, so that a resumed job finds it again. What pilothouse can
    /// not run at all (`run_config::unsupported`) is left out: ask first.
    pub fn of_run(config: &RunConfig, lookup: Lookup<'_>) -> JobConfig {
        let retry = &config.retry;
        JobConfig {
            schema_version: 1,
            job_name: config.job_name.clone(),
            jobs_dir: text(&config.jobs_dir),
            n_attempts: config.n_attempts,
            install_only: config.install_only,
            skip_credential_checks: config.skip_credential_checks,
            timeout_multiplier: config.timeout_multiplier,
            agent_timeout_multiplier: config.agent_timeout_multiplier,
            verifier_timeout_multiplier: config.verifier_timeout_multiplier,
            agent_setup_timeout_multiplier: config.agent_setup_timeout_multiplier,
            environment_build_timeout_multiplier: config.environment_build_timeout_multiplier,
            debug: config.debug,
            n_concurrent_trials: config.n_concurrent_trials,
            quiet: config.quiet,
            retry: RetryConfig {
                max_retries: retry.max_retries,
                include_exceptions: retry.include_exceptions.clone(),
                exclude_exceptions: retry.exclude_exceptions.clone(),
                wait_multiplier: retry.wait_multiplier,
                min_wait_sec: retry.min_wait_sec,
                max_wait_sec: retry.max_wait_sec,
            },
            override_error_policy: config.override_error_policy.iter().cloned().collect(),
            environment: environment(&config.environment, lookup),
            verifier: verifier(&config.verifier, lookup),
            metrics: config.metrics.iter().filter_map(metric).collect(),
            agents: config.agents.iter().map(|a| agent(a, lookup)).collect(),
            user_agent: None,
            datasets: config.datasets.iter().map(dataset).collect(),
            tasks: config.tasks.iter().map(task).collect(),
            artifacts: config.artifacts.iter().map(artifact).collect(),
            extra_instruction_paths: config.extra_instruction_paths.iter().map(text).collect(),
            extra_instructions: config.extra_instructions.clone(),
            source_jobs: Vec::new(),
        }
    }
}

fn text(path: impl AsRef<std::path::Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

fn env(list: &[(String, String)], lookup: Lookup<'_>) -> Env {
    let one = |(name, value): &(String, String)| {
        let known = is_sensitive_name(name)
            && template_name(value).is_none()
            && lookup(name).as_deref() == Some(value.as_str());
        (name.clone(), if known { format!("${{{name}}}") } else { value.clone() })
    };
    list.iter().map(one).collect()
}

fn kwargs(entries: &[Entry]) -> Kwargs {
    entries.iter().map(|e| (e.key.clone(), e.node.value.to_json())).collect()
}

fn whole_or_not(number: f64) -> Option<Number> {
    // Without a point where there is nothing behind it, as in Harbor's own files.
    if number.fract() == 0.0 && number.abs() < 1e15 {
        Some(Number::from(number as i64))
    } else {
        Number::from_f64(number)
    }
}

fn environment(e: &run::EnvironmentConfig, lookup: Lookup<'_>) -> EnvironmentConfig {
    let mount = |m: &run::Mount| {
        let mut out = Map::new();
        for (key, value) in [("type", &m.kind), ("source", &m.source), ("target", &m.target)] {
            out.insert(key.to_string(), Value::from(value.as_str()));
        }
        if m.read_only {
            out.insert("read_only".to_string(), Value::Bool(true));
        }
        out.extend(kwargs(&m.options));
        Value::Object(out)
    };
    EnvironmentConfig {
        kind: e.kind.clone(),
        import_path: e.import_path.clone(),
        force_build: e.force_build,
        delete: e.delete,
        stream: e.stream,
        cpu_enforcement_policy: e.cpu_enforcement_policy.word().to_string(),
        memory_enforcement_policy: e.memory_enforcement_policy.word().to_string(),
        override_cpus: e.override_cpus.and_then(whole_or_not),
        override_memory_mb: e.override_memory_mb.map(u64::from),
        override_storage_mb: e.override_storage_mb.map(u64::from),
        override_gpus: e.override_gpus,
        override_tpu: e.override_tpu.as_ref().map(|t| json!({"type": t.kind, "topology": t.topology})),
        mounts: e.mounts.as_ref().map(|list| list.iter().map(mount).collect()),
        extra_docker_compose: e.extra_docker_compose.iter().map(text).collect(),
        env: env(&e.env, lookup),
        kwargs: kwargs(&e.kwargs),
        extra_allowed_hosts: e.extra_allowed_hosts.clone(),
    }
}

fn verifier(v: &run::VerifierConfig, lookup: Lookup<'_>) -> VerifierConfig {
    VerifierConfig {
        override_timeout_sec: v.override_timeout_sec,
        max_timeout_sec: v.max_timeout_sec,
        include_logs: v.include_logs.clone(),
        exclude_logs: v.exclude_logs.clone(),
        env: env(&v.env, lookup),
        import_path: v.import_path.clone(),
        kwargs: kwargs(&v.kwargs),
        disable: v.disable,
        extra_allowed_hosts: v.extra_allowed_hosts.clone(),
    }
}

fn metric(m: &run::MetricConfig) -> Option<MetricConfig> {
    let kind = match m.kind.as_str() {
        "sum" => MetricKind::Sum,
        "min" => MetricKind::Min,
        "max" => MetricKind::Max,
        "mean" => MetricKind::Mean,
        _ => return None,
    };
    Some(MetricConfig { kind, kwargs: kwargs(&m.kwargs) })
}

fn agent(a: &run::AgentConfig, lookup: Lookup<'_>) -> AgentConfig {
    let server = |m: &run::McpServer| {
        let headers: Map<String, Value> = m.headers.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect();
        json!({"name": m.name, "transport": m.transport, "url": m.url, "command": m.command, "args": m.args,
               "headers": headers})
    };
    AgentConfig {
        name: a.name.clone(),
        import_path: a.import_path.clone(),
        model_name: a.model_name.clone(),
        base_url: a.base_url.clone(),
        model_api_key_name: a.model_api_key_name.clone(),
        model_api_format: a.model_api_format.clone(),
        skip_model_parsing: a.skip_model_parsing,
        n_concurrent: a.n_concurrent,
        concurrency_group: a.concurrency_group.clone(),
        skills: a.skills.clone(),
        override_timeout_sec: a.override_timeout_sec,
        override_setup_timeout_sec: a.override_setup_timeout_sec,
        max_timeout_sec: a.max_timeout_sec,
        resume_trajectory: a.resume_trajectory,
        load_trajectory: a.load_trajectory.clone(),
        extra_allowed_hosts: a.extra_allowed_hosts.clone(),
        include_logs: a.include_logs.clone(),
        exclude_logs: a.exclude_logs.clone(),
        kwargs: kwargs(&a.kwargs),
        env: env(&a.env, lookup),
        mcp_servers: a.mcp_servers.iter().map(server).collect(),
    }
}

fn dataset(d: &run::DatasetConfig) -> DatasetConfig {
    DatasetConfig {
        path: d.path.as_ref().map(text),
        name: d.name.clone(),
        version: d.version.clone(),
        reference: d.reference.clone(),
        registry_url: d.registry_url.clone(),
        registry_path: d.registry_path.as_ref().map(text),
        repo: d.repo.clone(),
        overwrite: d.overwrite,
        download_dir: d.download_dir.as_ref().map(text),
        task_names: d.task_names.clone(),
        exclude_task_names: d.exclude_task_names.clone(),
        n_tasks: d.n_tasks.map(u64::from),
    }
}

fn task(t: &run::TaskRef) -> TaskConfig {
    TaskConfig {
        path: t.path.as_ref().map(text),
        git_url: t.git_url.clone(),
        git_commit_id: t.git_commit_id.clone(),
        name: t.name.clone(),
        reference: t.reference.clone(),
        overwrite: t.overwrite,
        download_dir: t.download_dir.as_ref().map(text),
        source: t.source.clone(),
    }
}

fn artifact(a: &run::Artifact) -> Value {
    match a {
        run::Artifact::Path(path) => Value::from(path.as_str()),
        run::Artifact::Full { source, destination, exclude, service } => {
            json!({"source": source, "destination": destination, "exclude": exclude, "service": service})
        }
    }
}
