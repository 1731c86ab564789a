//! The config of the new job, made of those of the old one and of its trials. What is not understood is
//! passed on as it is, so that every version of the harness finds what it wrote.
//!
//! No secret is copied: what the old job stored as a reference stays one, what it masked becomes one, and
//! what it stored in clear under a secret's name does, too.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::harbor::run_config::{is_sensitive_name, template_name};

/// Fields that a trial takes over from its job, beside the version of the schema.
pub(super) const FROM_JOB: [&str; 13] = [
    "install_only",
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
    "environment",
    "verifier",
    "user_agent",
    "override_error_policy",
    "artifacts",
    "extra_instruction_paths",
    "extra_instructions",
];
const VERSION: &str = "schema_version";
/// Fields of a trial's config that say which trial it is.
const IDENTITY: [&str; 5] = ["task", "trial_name", "trials_dir", "job_id", "schema_version"];
/// Where agents keep the address of their model, by preference.
const ENDPOINTS: [&str; 2] = ["api_base", "base_url"];
/// Variables by which agents are told that address.
const ENDPOINT_VARIABLES: [&str; 4] = ["OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL", "LLM_BASE_URL"];
/// What is put in the place of a key that no server asks for.
const NO_KEYS: [&str; 8] = ["EMPTY", "empty", "none", "None", "dummy", "not-needed", "sk-dummy", "unused"];

/// What is asked for beside the tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Name of the new job.
    pub name: String,
    /// The directory that it goes into.
    pub jobs_dir: String,
    /// Another address of the model.
    pub api_base: Option<String>,
    /// Trials at a time, where it is to be another number.
    pub n_concurrent: Option<u32>,
}

/// A field that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its path, such as `agents[0].kwargs.api_base`.
    pub field: String,
    /// What it was; `-` for nothing.
    pub was: String,
    /// What it is now.
    pub now: String,
}

impl Difference {
    /// One of these three.
    pub fn new(field: &str, was: &str, now: &str) -> Difference {
        Difference { field: field.to_string(), was: was.to_string(), now: now.to_string() }
    }
}

/// A config that is ready to be written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Built {
    /// The document.
    pub config: Value,
    /// What differs from how the trials were run, the tasks aside.
    pub differs: Vec<Difference>,
    /// Variables of this host that the job will read.
    pub variables: BTreeSet<String>,
    /// Why it can not be run.
    pub problems: Vec<String>,
}

/// What trials have in common that can go into one job: their config without what tells them apart.
pub fn group_of(trial: &Value) -> String {
    let mut copy = trial.as_object().cloned().unwrap_or_default();
    for field in IDENTITY {
        copy.remove(field);
    }
    Value::Object(copy).to_string()
}

/// The task of a trial, as its config names it.
pub fn task_of(trial: &Value) -> Option<Value> {
    trial.get("task").filter(|task| task.is_object()).cloned()
}

/// The config of a trial that was ended before it wrote one: its task by its `lock.json`, the rest as its
/// job has it. None where the job has several agents of its name and model.
pub fn of_lock(lock: &Value, job: &Value) -> Option<Value> {
    let task = lock.get("task")?.as_object()?;
    let agent = lock.get("agent")?;
    let default = json!({});
    let agents = job.get("agents").and_then(Value::as_array).filter(|a| !a.is_empty());
    let agents: Vec<&Value> = agents.map_or_else(|| vec![&default], |a| a.iter().collect());
    let named = |a: &&&Value| {
        let name = a.get("name").and_then(Value::as_str).or(Some("oracle").filter(|_| a.get("import_path").is_none()));
        name == agent.get("name").and_then(Value::as_str) && a.get("model_name") == agent.get("model_name")
    };
    let fit: Vec<&&Value> = agents.iter().filter(named).collect();
    let [agent] = fit.as_slice() else { return None };
    let mut out = Map::new();
    for field in FROM_JOB.into_iter().chain([VERSION]) {
        if let Some(value) = job.get(field) {
            out.insert(field.to_string(), value.clone());
        }
    }
    let mut of_task = Map::new();
    let package = task.get("type").and_then(Value::as_str) == Some("package");
    let keys: &[&str] = if package { &["name", "source"] } else { &["path", "git_url", "git_commit_id", "source"] };
    for key in keys {
        if let Some(value) = task.get(*key) {
            of_task.insert((*key).to_string(), value.clone());
        }
    }
    if package {
        // Its content, rather than whatever has the name by now.
        of_task.insert("ref".to_string(), task.get("digest")?.clone());
    }
    out.insert("task".to_string(), Value::Object(of_task));
    out.insert("agent".to_string(), (**agent).clone());
    Some(Value::Object(out))
}

/// Builds the config of a job of these tasks, each for one trial. `job` is the old job's, where there is
/// one; what `trial` says counts more.
pub fn build(job: Option<&Value>, trial: &Value, tasks: Vec<Value>, change: &Change) -> Built {
    let mut out = Built::default();
    let mut config = job.and_then(Value::as_object).cloned().unwrap_or_default();
    let trial_agent = trial.get("agent").cloned().unwrap_or_else(|| json!({}));
    if let Some(old) = job {
        drift(old, trial, &mut out);
    }
    for field in FROM_JOB.into_iter().chain([VERSION]) {
        match trial.get(field) {
            Some(value) => config.insert(field.to_string(), value.clone()),
            // A sparse config leaves out what is at its default.
            None => config.remove(field),
        };
    }
    if trial.get("source_trial").is_some_and(|source| !source.is_null()) {
        out.problems.push("the trials graded again what other trials did: run `harbor job regrade` again".to_string());
    }
    config.insert("job_name".to_string(), change.name.clone().into());
    config.insert("jobs_dir".to_string(), change.jobs_dir.clone().into());
    config.insert("n_attempts".to_string(), 1.into());
    config.insert("datasets".to_string(), json!([]));
    config.insert("tasks".to_string(), Value::Array(tasks));
    config.remove("source_jobs");
    // Of old versions: the same fields in an object of their own.
    if let Some(Value::Object(orchestrator)) = config.remove("orchestrator") {
        for field in ["n_concurrent_trials", "quiet", "retry"] {
            if let Some(value) = orchestrator.get(field).filter(|_| !config.contains_key(field)) {
                config.insert(field.to_string(), value.clone());
            }
        }
    }
    let mut agent = trial_agent.as_object().cloned().unwrap_or_default();
    if let Some(url) = &change.api_base {
        endpoint(&mut agent, url, &mut out);
    }
    if let Some(n) = change.n_concurrent {
        let was = config.get("n_concurrent_trials").map_or("4".to_string(), shown);
        if was != n.to_string() {
            out.differs.push(Difference::new("n_concurrent_trials", &was, &n.to_string()));
        }
        config.insert("n_concurrent_trials".to_string(), n.into());
        let above = |v: &Value| v.as_u64().is_some_and(|own| own > u64::from(n));
        if agent.get("n_concurrent").is_some_and(above) {
            agent.insert("n_concurrent".to_string(), n.into());
        }
    }
    let model = agent.get("model_name").and_then(Value::as_str).unwrap_or_default().to_string();
    secrets(&mut agent, &model, &mut out);
    credential(&agent, &model, &mut out);
    config.insert("agents".to_string(), json!([agent]));
    for section in ["environment", "verifier"] {
        if let Some(Value::Object(section_of)) = config.get_mut(section) {
            variables(section, section_of, &mut out);
            literals(section, section_of, "", &mut out);
        }
    }
    if let Some(Value::Object(user)) = config.get_mut("user_agent")
        && let Some(Value::Object(agent)) = user.get_mut("agent")
    {
        variables("user_agent.agent", agent, &mut out);
        literals("user_agent.agent", agent, "", &mut out);
    }
    out.config = Value::Object(config);
    out
}

/// What the job's config says now, and did not when the trials were run. What it does not name is the
/// trials' default, which the new job keeps.
fn drift(job: &Value, trial: &Value, out: &mut Built) {
    let null = Value::Null;
    let said = |(_, _, now): &(String, String, String)| now != "-";
    for field in FROM_JOB {
        let unlike = unlike(field, trial.get(field).unwrap_or(&null), job.get(field).unwrap_or(&null));
        for (path, was, now) in unlike.into_iter().filter(said) {
            out.differs.push(kept(&path, &was, &now));
        }
    }
    let agents = job.get("agents").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let agent = trial.get("agent").unwrap_or(&null);
    if !agents.is_empty() && !agents.contains(agent) {
        // Of several the one with the same name and model is meant.
        let same = |a: &&Value| a.get("name") == agent.get("name") && a.get("model_name") == agent.get("model_name");
        let at = agents.iter().position(|a| same(&a)).unwrap_or(0);
        let Some(now) = agents.get(at) else { return };
        for (path, was, now) in unlike(&format!("agents[{at}]"), agent, now).into_iter().filter(said) {
            out.differs.push(kept(&path, &was, &now));
        }
    }
}

fn kept(path: &str, was: &str, now: &str) -> Difference {
    let now = format!("{was} (the trials'; the job's config.json says {now} by now)");
    Difference::new(path, was, &now)
}

/// Paths at which two values differ, with both in words. Empty and absent are the same: sparse configs
/// leave such things out.
pub fn unlike(path: &str, a: &Value, b: &Value) -> Vec<(String, String, String)> {
    fn walk(path: &str, a: &Value, b: &Value, out: &mut Vec<(String, String, String)>) {
        let nothing = |v: &Value| match v {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        let same_number = || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a == b);
        if a == b || nothing(a) && nothing(b) || same_number() {
            return;
        }
        let empty = Value::Object(Map::new());
        let (a, b) = match (a, b) {
            (Value::Object(_), Value::Null) => (a, &empty),
            (Value::Null, Value::Object(_)) => (&empty, b),
            other => other,
        };
        match (a, b) {
            (Value::Object(x), Value::Object(y)) => {
                let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
                for key in keys {
                    let (x, y) = (x.get(key).unwrap_or(&Value::Null), y.get(key).unwrap_or(&Value::Null));
                    walk(&format!("{path}.{key}"), x, y, out);
                }
            }
            (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
                for (i, (x, y)) in x.iter().zip(y).enumerate() {
                    walk(&format!("{path}[{i}]"), x, y, out);
                }
            }
            _ => {
                let name = path.rsplit('.').next().unwrap_or(path);
                let hide =
                    |v: &Value| if is_sensitive_name(name) && !v.is_null() { "****".to_string() } else { shown(v) };
                out.push((path.to_string(), hide(a), hide(b)));
            }
        }
    }
    let mut out = Vec::new();
    walk(path, a, b, &mut out);
    out
}

/// A value in a line: text bare, the rest as JSON, shortened.
pub fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let cut: String = text.chars().take(120).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

/// Puts another address of the model where the agent has one.
fn endpoint(agent: &mut Map<String, Value>, url: &str, out: &mut Built) {
    let mut put = |map: &mut Map<String, Value>, key: &str, path: &str| {
        let was = map.insert(key.to_string(), url.into()).map_or("-".to_string(), |v| shown(&v));
        if was != url {
            out.differs.push(Difference::new(&format!("agents[0].{path}{key}"), &was, url));
        }
    };
    let name = agent.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
    let text = |v: Option<&Value>| v.is_some_and(Value::is_string);
    if let Some(Value::Object(kwargs)) = agent.get_mut("kwargs")
        && let Some(key) = ENDPOINTS.iter().find(|key| text(kwargs.get(**key)))
    {
        return put(kwargs, key, "kwargs.");
    }
    if text(agent.get("base_url")) {
        return put(agent, "base_url", "");
    }
    if let Some(Value::Object(env)) = agent.get_mut("env")
        && let Some(key) = ENDPOINT_VARIABLES.iter().find(|key| text(env.get(**key)))
    {
        return put(env, key, "env.");
    }
    if name.starts_with("terminus")
        && let Value::Object(kwargs) = agent.entry("kwargs").or_insert_with(|| json!({}))
    {
        return put(kwargs, "api_base", "kwargs.");
    }
    if agent.contains_key("base_url") {
        return put(agent, "base_url", "");
    }
    let line = format!("the config of agent {name} names no endpoint that --api-base could replace");
    out.problems.push(line);
}

/// Secrets of an agent: references stay, everything else under a secret's name becomes one.
fn secrets(agent: &mut Map<String, Value>, model: &str, out: &mut Built) {
    variables("agents[0]", agent, out);
    literals("agents[0]", agent, model, out);
}

fn masked(text: &str) -> bool {
    text.contains("****")
}

/// Variables of a section's `env`: what is masked, or a secret in clear, becomes a reference to the
/// variable of its own name.
fn variables(section: &str, of: &mut Map<String, Value>, out: &mut Built) {
    let Some(Value::Object(env)) = of.get_mut("env") else { return };
    for (name, value) in env.iter_mut() {
        let Value::String(text) = value else { continue };
        if let Some(variable) = template_name(text) {
            if !text.contains(":-") {
                out.variables.insert(variable.to_string());
            }
        } else if masked(text) || is_sensitive_name(name) && !text.is_empty() && !harmless(text) {
            out.differs.push(Difference::new(
                &format!("{section}.env.{name}"),
                "not on disk",
                &format!("the variable {name} of this host"),
            ));
            out.variables.insert(name.clone());
            *text = format!("${{{name}}}");
        }
    }
}

/// Words such as `true`, `1` or `EMPTY`, which are no secret whatever their name.
fn harmless(text: &str) -> bool {
    NO_KEYS.contains(&text) || matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "1" | "0" | "yes" | "no")
}

/// Secrets outside of `env`, which no harness fills in: a key of the model is left to the variable that
/// its provider's client reads, anything else is a problem.
fn literals(section: &str, of: &mut Map<String, Value>, model: &str, out: &mut Built) {
    fn walk(path: &str, name: &str, value: &mut Value, model: &str, out: &mut Built) -> bool {
        match value {
            Value::Object(map) => {
                let mut gone = Vec::new();
                for (key, value) in map.iter_mut() {
                    if walk(&format!("{path}.{key}"), key, value, model, out) {
                        gone.push(key.clone());
                    }
                }
                gone.iter().for_each(|key| drop(map.remove(key)));
            }
            Value::Array(list) => {
                for (i, value) in list.iter_mut().enumerate() {
                    walk(&format!("{path}[{i}]"), name, value, model, out);
                }
            }
            Value::String(text) => {
                let whole = text.trim().rsplit(' ').next().unwrap_or_default();
                let reference = template_name(whole).is_some();
                if let Some(variable) =
                    template_name(whole).filter(|_| path.contains(".mcp_servers[") && !whole.contains(":-"))
                {
                    out.variables.insert(variable.to_string());
                }
                if !masked(text) && (!is_sensitive_name(name) || reference || harmless(text) || text.is_empty()) {
                    return false;
                }
                // Names of variables and files that hold secrets are none.
                if !masked(text) && (name.ends_with("_name") || name.ends_with("_path") || name.ends_with("_type")) {
                    return false;
                }
                match key_of(model).filter(|_| name == "api_key") {
                    Some(variable) => {
                        let now = format!("left out: the variable {variable} of this host is read");
                        out.differs.push(Difference::new(path, "a key", &now));
                        out.variables.insert(variable.to_string());
                        return true;
                    }
                    None => out.problems.push(format!(
                        "{path}: a secret that is not on disk or must not be copied, and nothing can fill it in: run \
                         the tasks with a config of your own"
                    )),
                }
            }
            _ => {}
        }
        false
    }
    for (key, value) in of.iter_mut().filter(|(key, _)| *key != "env") {
        walk(&format!("{section}.{key}"), key, value, model, out);
    }
}

/// The variable that the client of a model's provider reads its key from; None where it needs none, or
/// where that is not known.
pub fn key_of(model: &str) -> Option<&'static str> {
    let (provider, _) = model.split_once('/')?;
    Some(match provider {
        "openai" => "OPENAI_API_KEY",
        "anthropic" => "ANTHROPIC_API_KEY",
        "gemini" | "google" => "GEMINI_API_KEY",
        "openrouter" => "OPENROUTER_API_KEY",
        "deepseek" => "DEEPSEEK_API_KEY",
        "together_ai" => "TOGETHERAI_API_KEY",
        "fireworks_ai" => "FIREWORKS_AI_API_KEY",
        "groq" => "GROQ_API_KEY",
        "mistral" => "MISTRAL_API_KEY",
        "xai" => "XAI_API_KEY",
        _ => return None,
    })
}

/// The key that the agent's own model call needs. Only of agents that work on the host: those that are
/// installed have ways of their own to log in.
fn credential(agent: &Map<String, Value>, model: &str, out: &mut Built) {
    if let Some(name) = agent.get("model_api_key_name").and_then(Value::as_str) {
        out.variables.insert(name.to_string());
        return;
    }
    let host_side = agent.get("name").and_then(Value::as_str).is_some_and(|name| name.starts_with("terminus"));
    let has = |section: &str, name: &str| {
        agent.get(section).and_then(|map| map.get(name)).and_then(Value::as_str).is_some_and(|v| !v.is_empty())
    };
    let Some(variable) = key_of(model).filter(|_| host_side) else { return };
    if !has("kwargs", "api_key") && !has("env", variable) {
        out.variables.insert(variable.to_string());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn change() -> Change {
        Change { name: "j-requeue-1".into(), jobs_dir: "/jobs".into(), ..Change::default() }
    }

    #[test]
    fn the_trials_config_counts_and_sparse_stays_sparse() {
        let job = json!({"job_name": "j", "n_concurrent_trials": 3, "timeout_multiplier": 2.0,
            "agents": [{"name": "terminus-2", "model_name": "openai/m", "kwargs": {"api_base": "http://new"}}],
            "datasets": [{"path": "tasks"}], "retry": {"max_retries": 1}});
        let trial = json!({"task": {"path": "tasks/a", "source": "tasks"}, "trial_name": "a__1", "trials_dir": "jobs/j",
            "agent": {"name": "terminus-2", "model_name": "openai/m", "kwargs": {"api_base": "http://old"}}});
        let built = build(Some(&job), &trial, vec![task_of(&trial).unwrap()], &change());
        assert_eq!(
            built.config,
            json!({"job_name": "j-requeue-1", "jobs_dir": "/jobs", "n_attempts": 1, "n_concurrent_trials": 3,
                "retry": {"max_retries": 1}, "datasets": [], "tasks": [{"path": "tasks/a", "source": "tasks"}],
                "agents": [{"name": "terminus-2", "model_name": "openai/m", "kwargs": {"api_base": "http://old"}}]})
        );
        let fields: Vec<&str> = built.differs.iter().map(|d| d.field.as_str()).collect();
        assert_eq!(fields, ["timeout_multiplier", "agents[0].kwargs.api_base"]);
        assert_eq!(built.variables.into_iter().collect::<Vec<_>>(), ["OPENAI_API_KEY"]);

        let change = Change { api_base: Some("http://third".into()), ..change() };
        let built = build(Some(&job), &trial, Vec::new(), &change);
        assert_eq!(built.config["agents"][0]["kwargs"]["api_base"], "http://third");
        assert!(built.differs.contains(&Difference::new("agents[0].kwargs.api_base", "http://old", "http://third")));
    }

    #[test]
    fn no_secret_is_copied() {
        let agent = json!({"name": "claude-code", "model_name": "anthropic/m",
            "env": {"ANTHROPIC_API_KEY": "${ANTHROPIC_API_KEY}", "HF_TOKEN": "hf_a****xyz", "MODE": "fast",
                "MY_SECRET": "in-clear", "USE_AUTH": "1", "OTHER_KEY": "${OTHER:-none}"},
            "kwargs": {"api_key": "sk-abcdefgh", "max_tokens": 5, "key_path": "/k"},
            "mcp_servers": [{"headers": {"Authorization": "Bearer ${MCP}"}}]});
        let trial = json!({"task": {"path": "a"}, "agent": agent, "verifier": {"env": {"JUDGE_KEY": "****"}}});
        let built = build(None, &trial, Vec::new(), &change());
        let text = built.config.to_string();
        for secret in ["in-clear", "sk-abcdefgh", "hf_a", "****"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        let agent = &built.config["agents"][0];
        assert_eq!(agent["env"]["HF_TOKEN"], "${HF_TOKEN}");
        assert_eq!((&agent["env"]["USE_AUTH"], &agent["env"]["OTHER_KEY"]), (&json!("1"), &json!("${OTHER:-none}")));
        assert_eq!(agent["kwargs"], json!({"max_tokens": 5, "key_path": "/k"}));
        assert_eq!(built.config["verifier"]["env"]["JUDGE_KEY"], "${JUDGE_KEY}");
        let wanted = ["ANTHROPIC_API_KEY", "HF_TOKEN", "JUDGE_KEY", "MCP", "MY_SECRET"];
        assert_eq!(built.variables.into_iter().collect::<Vec<_>>(), wanted);
        assert_eq!(built.problems, Vec::<String>::new());
        // What nothing can fill in is said.
        let trial = json!({"agent": {"name": "x", "kwargs": {"password": "abc"}}});
        assert!(build(None, &trial, Vec::new(), &change()).problems[0].starts_with("agents[0].kwargs.password"));
    }
}
