//! The settings of a job's `config.json` that can change what comes of its trials.

use std::sync::{Arc, LazyLock};

use regex::Regex;
use serde_json::{Map, Value};

use super::json;
use crate::job::settings::Settings;
use crate::job::text::mask_secrets;

/// Largest config that is taken apart.
const LARGEST: usize = 4 << 20;
/// Settings that are kept, and characters of a value.
const KEPT: usize = 500;
const VALUE: usize = 300;
/// How deep agent arguments are taken apart; what lies deeper is one value.
const DEPTH: usize = 4;

const TIMEOUTS: [&str; 5] = [
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
];
const ENVIRONMENT: [&str; 12] = [
    "type",
    "import_path",
    "override_cpus",
    "override_memory_mb",
    "override_storage_mb",
    "override_gpus",
    "override_tpu",
    "cpu_enforcement_policy",
    "memory_enforcement_policy",
    "extra_docker_compose",
    "extra_allowed_hosts",
    "kwargs",
];
const VERIFIER: [&str; 5] = ["override_timeout_sec", "max_timeout_sec", "disable", "environment_mode", "import_path"];
const AGENT: [&str; 9] = [
    "override_timeout_sec",
    "override_setup_timeout_sec",
    "max_timeout_sec",
    "import_path",
    "resume_trajectory",
    "skills",
    "mcp_servers",
    "extra_allowed_hosts",
    "kwargs",
];
/// Values that mean the same as leaving the setting out.
const DEFAULTS: [(&str, &str); 9] = [
    ("timeout_multiplier", "1"),
    ("agent_timeout_multiplier", "1"),
    ("verifier_timeout_multiplier", "1"),
    ("agent_setup_timeout_multiplier", "1"),
    ("environment_build_timeout_multiplier", "1"),
    ("environment.type", "\"docker\""),
    ("environment.cpu_enforcement_policy", "\"auto\""),
    ("environment.memory_enforcement_policy", "\"auto\""),
    ("verifier.environment_mode", "\"shared\""),
];

/// An id that is another one in every run.
static ID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("(?i)[0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12}").ok()
});

/// Reads them; a config that is not there or no config says nothing.
pub fn settings(config: &[u8]) -> Settings {
    let mut out = Settings::default();
    if config.len() > LARGEST {
        return out;
    }
    let Ok((Value::Object(config), _)) = json::lenient(config, |body| serde_json::from_slice::<Value>(body)) else {
        return out;
    };
    out.read = true;
    for name in TIMEOUTS {
        add(&mut out, name, config.get(name), DEPTH);
    }
    for name in ["install_only", "override_error_policy", "extra_instruction_paths", "extra_instructions"] {
        add(&mut out, name, config.get(name), DEPTH);
    }
    let retry = config.get("retry").or_else(|| config.get("orchestrator")?.get("retry"));
    let retries = retry.and_then(|r| r.get("max_retries")).filter(|n| n.as_u64() != Some(0));
    add(&mut out, "retry.max_retries", retries, DEPTH);
    part(&mut out, "environment", config.get("environment"), &ENVIRONMENT);
    part(&mut out, "verifier", config.get("verifier"), &VERIFIER);
    let agents: Vec<&Map<String, Value>> = list(&config, "agents").filter_map(Value::as_object).collect();
    for agent in &agents {
        let text = |key: &str| agent.get(key).and_then(Value::as_str);
        let prefix = match agents.len() {
            1 => "agent".to_string(),
            _ => {
                let name = text("name").or_else(|| text("import_path")).unwrap_or(super::config::DEFAULT_AGENT);
                format!("agent[{}/{}]", without_ids(name), text("model_name").unwrap_or("-"))
            }
        };
        for key in AGENT {
            add(&mut out, &format!("{prefix}.{key}"), agent.get(key), DEPTH);
        }
        let kwargs = agent.get("kwargs").and_then(Value::as_object);
        let urls = kwargs.into_iter().flatten().chain(agent.iter()).filter(|(key, _)| is_endpoint(key));
        for url in urls.filter_map(|(_, value)| value.as_str()) {
            let url: Arc<str> = Arc::from(&*mask_secrets(url));
            if out.endpoints.len() < KEPT && !out.endpoints.contains(&url) {
                out.endpoints.push(url);
            }
        }
    }
    for dataset in list(&config, "datasets").filter_map(Value::as_object).take(KEPT) {
        out.datasets.extend(origin(dataset));
    }
    for task in list(&config, "tasks").filter_map(Value::as_object).take(KEPT) {
        // Tasks by path name themselves in the lock.
        if let Some(git) = task.get("git_url").and_then(Value::as_str) {
            let commit = task.get("git_commit_id").and_then(Value::as_str).unwrap_or("-");
            let text: Arc<str> = format!("{} commit {commit}", mask_secrets(git)).into();
            if !out.datasets.contains(&text) {
                out.datasets.push(text);
            }
        }
    }
    out
}

fn list<'a>(config: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    config.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn part(out: &mut Settings, name: &str, value: Option<&Value>, keys: &[&str]) {
    for key in keys {
        add(out, &format!("{name}.{key}"), value.and_then(|v| v.get(key)), DEPTH);
    }
}

/// Where the model is reached: another one in every session, with the same model behind it.
fn is_endpoint(key: &str) -> bool {
    matches!(key, "api_base" | "base_url" | "port" | "host" | "endpoint" | "server_url" | "url")
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["api_key", "apikey", "token", "secret", "password", "authorization"].iter().any(|word| key.ends_with(word))
}

fn without_ids(text: &str) -> String {
    match &*ID {
        Some(id) => id.replace_all(text, "<id>").into_owned(),
        None => text.to_string(),
    }
}

fn add(out: &mut Settings, name: &str, value: Option<&Value>, depth: usize) {
    let Some(value) = value else { return };
    let last = name.rsplit('.').next().unwrap_or(name);
    if is_endpoint(last) || is_secret(last) || out.values.len() >= KEPT {
        return;
    }
    let text = match value {
        Value::Null | Value::Bool(false) => return,
        Value::Object(map) if depth > 0 => {
            for (key, value) in map {
                add(out, &format!("{name}.{key}"), Some(value), depth - 1);
            }
            return;
        }
        Value::Array(list) if list.is_empty() => return,
        Value::Object(map) if map.is_empty() => return,
        Value::String(text) if text.is_empty() => return,
        // `1` and `1.0` are one number.
        Value::Number(number) => match number.as_f64() {
            Some(n) => format!("{n}"),
            None => number.to_string(),
        },
        Value::String(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => without_ids(&value.to_string()),
    };
    if DEFAULTS.contains(&(name, &*text)) {
        return;
    }
    let text: String = mask_secrets(&text).chars().take(VALUE).collect();
    out.values.insert(Arc::from(name), Arc::from(text));
}

/// `path data/tb, version 2.1, commit abc`.
fn origin(dataset: &Map<String, Value>) -> Option<Arc<str>> {
    let keys =
        ["name", "path", "repo", "git_url", "registry_url", "version", "ref", "commit", "git_commit_id", "digest"];
    let parts: Vec<String> = keys
        .iter()
        .filter_map(|key| Some((key, dataset.get(*key)?.as_str().filter(|text| !text.is_empty())?)))
        .map(|(key, text)| format!("{} {}", key.trim_start_matches("git_").trim_end_matches("_id"), mask_secrets(text)))
        .collect();
    (!parts.is_empty()).then(|| Arc::from(parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_and_a_full_config_say_the_same() {
        let sparse =
            br#"{"job_name":"a","agents":[{"name":"terminus-2","model_name":"m","kwargs":{"api_base":"http://a:1/v1",
            "temperature":1.0,"model_info":{"max_input_tokens":10}}}],"agent_timeout_multiplier":6}"#;
        let full = br#"{"job_name":"b","timeout_multiplier":1.0,"agent_timeout_multiplier":6.0,"verifier_timeout_multiplier":null,
            "environment":{"type":"docker","override_cpus":null,"kwargs":{},"cpu_enforcement_policy":"auto"},
            "verifier":{"disable":false},"agents":[{"name":"terminus-2","model_name":"m","skills":[],"kwargs":{"api_base":"http://b:2/v1",
            "temperature":1,"model_info":{"max_input_tokens":10},"api_key":"sk-abc"}}],"retry":{"max_retries":0}}"#;
        let (sparse, full) = (settings(sparse), settings(full));
        assert_eq!(sparse.values, full.values);
        assert_eq!(sparse.values.len(), 3, "{sparse:?}");
        assert_ne!(sparse.endpoints, full.endpoints);
    }

    #[test]
    fn ids_of_a_run_are_no_difference_and_arguments_are() {
        let config = |id: &str, t: &str| {
            let text =
                format!(r#"{{"agents":[{{"import_path":"pkg.run_{id}:Agent","kwargs":{{"temperature":{t}}}}}]}}"#);
            settings(text.as_bytes())
        };
        let a = config("0f3a2b1c-1111-4222-8333-abcdefabcdef", "1");
        let b = config("ffffffff111142228333abcdefabcdef", "0.6");
        let names: Vec<_> = a.differing(&b, true).into_iter().map(|d| d.name.to_string()).collect();
        assert_eq!(names, ["agent.kwargs.temperature"]);
        assert!(a.differing(&b, false).is_empty());
        assert_eq!(settings(b"[1"), Settings::default());
    }
}
