//! What Harbor would plan now, held against the finished trials and the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::canon::{canon, filled, plain};
use crate::harbor::run_config::{HarborVersion, default_excludes};
use crate::harbor::task::{Selection, Task as LocalTask, list};
use crate::requeue::config::{Difference, FROM_JOB, unlike};

/// A task that is planned.
#[derive(Debug, Clone)]
pub struct Task {
    /// As a trial's config has it.
    config: Value,
    /// Its config is not known to the letter: only a name is.
    loose: bool,
}

impl Task {
    /// Its short name.
    pub fn name(&self) -> String {
        let text = |key: &str| self.config[key].as_str();
        let named = text("path").or_else(|| text("name")).unwrap_or("-");
        named.trim_end_matches('/').rsplit('/').next().unwrap_or(named).to_string()
    }
}

/// A trial that is planned.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Task short name.
    pub task: String,
    config: Value,
    loose: bool,
}

/// The tasks of a config, in order: its own list, then those of its datasets. Of datasets that are not on
/// this machine the lock tells.
///
/// # Errors
/// A directory that is not there.
pub fn tasks(config: &Value, lock: Option<&Value>, cwd: &Path) -> Result<Vec<Task>, String> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = Vec::new();
    for task in array(&config["tasks"]) {
        if let (Some(path), true) = (task["path"].as_str(), task["git_url"].is_null())
            && !cwd.join(path).is_dir()
        {
            return Err(format!("task {path}: not in {}", cwd.display()));
        }
        out.push(Task { config: task, loose: false });
    }
    let mut remote = false;
    for dataset in array(&config["datasets"]) {
        let Some(path) = dataset["path"].as_str().filter(|_| dataset["repo"].is_null()) else {
            remote = true;
            continue;
        };
        let dir = cwd.join(path);
        if !dir.is_dir() {
            return Err(format!("dataset {path}: no such directory in {}", cwd.display()));
        }
        let source = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let source = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let texts = |key: &str| array(&dataset[key]).iter().filter_map(|v| v.as_str().map(str::to_string)).collect();
        let limit = dataset["n_tasks"].as_u64().map(|n| n as usize);
        let wanted = Selection { include: texts("task_names"), exclude: texts("exclude_task_names"), limit };
        let all = list(&dir).map_err(|e| e.to_string())?;
        let all = wanted.apply(all).map_err(|e| e.to_string())?;
        let mut names: Vec<String> = all
            .iter()
            .filter(|l| l.task.is_ok())
            .map(|l| l.dir.file_name().unwrap_or_default().to_string_lossy().into_owned())
            .collect();
        if limit.is_some() {
            // 0.21 takes the first ones in the order of the file system: what it took is in the lock.
            let locked = locked_names(lock, path);
            if locked.len() == names.len() {
                names = locked;
            }
        }
        for name in names {
            out.push(Task {
                config: json!({"path": plain(&format!("{path}/{name}")), "source": source}),
                loose: false,
            });
        }
    }
    if remote {
        let known: BTreeSet<String> = out.iter().map(Task::name).collect();
        let mut met = BTreeSet::new();
        for trial in lock.and_then(|l| l["trials"].as_array()).into_iter().flatten() {
            let task = &trial["task"];
            let named = task["path"].as_str().or_else(|| task["name"].as_str()).unwrap_or_default();
            let one = Task { config: json!({"path": task["path"], "name": task["name"]}), loose: true };
            if task["type"] != "local" && !known.contains(&one.name()) && met.insert(named.to_string()) {
                out.push(one);
            }
        }
    }
    Ok(out)
}

fn locked_names(lock: Option<&Value>, dataset: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for trial in lock.and_then(|l| l["trials"].as_array()).into_iter().flatten() {
        let Some(path) = trial["task"]["path"].as_str().map(plain) else { continue };
        if let Some(name) = path.strip_prefix(&format!("{}/", plain(dataset)))
            && !out.iter().any(|n| n == name)
        {
            out.push(name.to_string());
        }
    }
    out
}

/// Every trial of the plan, in Harbor's order.
pub fn trials(config: &Value, tasks: &[Task]) -> Vec<Planned> {
    let default = [json!({})];
    let agents = config["agents"].as_array().filter(|a| !a.is_empty()).map_or(&default[..], Vec::as_slice);
    let jobs_dir = config["jobs_dir"].as_str().unwrap_or("jobs");
    let trials_dir = format!("{jobs_dir}/{}", config["job_name"].as_str().unwrap_or_default());
    let mut out = Vec::new();
    for _ in 0..config["n_attempts"].as_u64().unwrap_or(1) {
        for task in tasks {
            for agent in agents {
                let mut trial = Map::new();
                for field in FROM_JOB {
                    if let Some(value) = config.get(field) {
                        trial.insert(field.to_string(), value.clone());
                    }
                }
                trial.insert("task".to_string(), task.config.clone());
                trial.insert("agent".to_string(), agent.clone());
                trial.insert("trials_dir".to_string(), trials_dir.clone().into());
                out.push(Planned { task: task.name(), config: Value::Object(trial), loose: task.loose });
            }
        }
    }
    out
}

/// What is compared of a trial's config.
fn key(config: &Value, version: HarborVersion, loose: bool) -> Value {
    let mut map = config.as_object().cloned().unwrap_or_default();
    map.remove("trial_name");
    map.remove("job_id");
    if version == HarborVersion::V0_26 {
        // It puts its own directory there.
        map.remove("trials_dir");
    }
    if loose && let Some(task) = map.get("task") {
        let named = Task { config: task.clone(), loose }.name();
        map.insert("task".to_string(), json!({"name": named}));
    }
    filled(&Value::Object(map))
}

/// For each finished trial the planned one that it stands for: the first free one with an equal config.
pub fn matching(planned: &[Planned], finished: &[&Value], version: HarborVersion) -> Vec<Option<usize>> {
    let exact: Vec<String> = finished.iter().map(|c| key(c, version, false).to_string()).collect();
    let loose: Vec<String> = finished.iter().map(|c| key(c, version, true).to_string()).collect();
    let mut by: [BTreeMap<&str, Vec<usize>>; 2] = [BTreeMap::new(), BTreeMap::new()];
    for (map, keys) in by.iter_mut().zip([&exact, &loose]) {
        for (i, key) in keys.iter().enumerate().rev() {
            map.entry(key.as_str()).or_default().push(i);
        }
    }
    let mut out = vec![None; finished.len()];
    for (slot, one) in planned.iter().enumerate() {
        let key = key(&one.config, version, one.loose).to_string();
        let Some(waiting) = by.get_mut(usize::from(one.loose)).and_then(|map| map.get_mut(key.as_str())) else {
            continue;
        };
        while let Some(i) = waiting.pop() {
            if let Some(place @ None) = out.get_mut(i) {
                *place = Some(slot);
                break;
            }
        }
    }
    out
}

/// In which fields a finished trial is unlike the planned trial that it comes closest to.
pub fn why(planned: &[Planned], finished: &Value, version: HarborVersion) -> Vec<Difference> {
    let task = Task { config: finished["task"].clone(), loose: false }.name();
    let agents: Vec<&Planned> = planned.iter().filter(|p| p.task == task).collect();
    if agents.is_empty() {
        return vec![Difference::new("tasks", &task, "not planned")];
    }
    let differences = |one: &Planned| -> Vec<Difference> {
        let (was, now) = (key(finished, version, one.loose), key(&one.config, version, one.loose));
        let fields = unlike("", &was, &now);
        fields.into_iter().map(|(field, was, now)| Difference::new(&named(&field), &was, &now)).collect()
    };
    let best = agents.iter().map(|one| differences(one)).min_by_key(Vec::len).unwrap_or_default();
    match best.is_empty() {
        // Another one has taken its place already.
        true => vec![Difference::new("n_attempts", "more trials of this task than planned", "fewer")],
        false => best,
    }
}

/// The path as a job's config has it.
fn named(field: &str) -> String {
    let field = field.trim_start_matches('.');
    match field.strip_prefix("agent.") {
        Some(rest) => format!("agents[0].{rest}"),
        None => field.to_string(),
    }
}

/// In which fields the lock is unlike what would be locked now.
pub fn against_lock(
    config: &Value,
    tasks: &[Task],
    lock: &Value,
    cwd: &Path,
    version: HarborVersion,
) -> Vec<Difference> {
    let mut out = Vec::new();
    let mut compare = |field: &str, was: &Value, now: &Value| {
        for (field, was, now) in unlike(field, &canon(was), &canon(now)) {
            let difference = Difference::new(&field, &was, &now);
            if !out.contains(&difference) {
                out.push(difference);
            }
        }
    };
    let now = config.get("n_concurrent_trials").cloned().unwrap_or(json!(4));
    compare("n_concurrent_trials", &lock["n_concurrent_trials"], &now);
    let (was, now) = (retry(&lock["retry"], version), retry(&config["retry"], version));
    compare("retry", &was, &now);
    let trials = lock["trials"].as_array().cloned().unwrap_or_default();
    let planned = self::trials(config, tasks);
    if trials.len() != planned.len() {
        compare("trials", &json!(trials.len()), &json!(planned.len()));
    }
    let mut digests: BTreeMap<String, Option<String>> = BTreeMap::new();
    for one in &planned {
        let of_task = |t: &&Value| {
            Task { config: json!({"path": t["task"]["path"], "name": t["task"]["name"]}), loose: false }.name()
                == one.task
        };
        let agent = filled(&json!({"agent": one.config["agent"]}))["agent"].clone();
        let same: Vec<&Value> = trials.iter().filter(of_task).collect();
        let Some(entry) = same.iter().find(|t| lock_agent(t) == agent_key(&agent)).or(same.first()) else {
            compare(&format!("task {}", one.task), &Value::Null, &json!("planned"));
            continue;
        };
        if let Some(path) =
            one.config["task"]["path"].as_str().filter(|_| !one.loose && one.config["task"]["git_url"].is_null())
        {
            let digest = digests.entry(path.to_string()).or_insert_with(|| {
                let task = LocalTask::load_for(&cwd.join(path), false).ok()?;
                task.digests().ok().map(|d| d.digest)
            });
            if let Some(digest) = digest {
                compare(&format!("task {}", one.task), &entry["task"]["digest"], &json!(digest));
            }
        }
        compare("agents[0]", &lock_agent(entry), &agent_key(&agent));
        let shape = |value: &Value, skipped: &[&str]| {
            let mut map = value.as_object().cloned().unwrap_or_default();
            skipped.iter().for_each(|key| drop(map.remove(*key)));
            Value::Object(map)
        };
        let all = filled(&one.config);
        let locked = filled(entry);
        compare(
            "environment",
            &shape(&locked["environment"], &["extra_docker_compose"]),
            &shape(&all["environment"], &["extra_docker_compose"]),
        );
        compare(
            "verifier",
            &shape(&locked["verifier"], &["environment_mode"]),
            &shape(&all["verifier"], &["environment_mode"]),
        );
        for field in FROM_JOB.iter().filter(|f| f.ends_with("multiplier") || **f == "install_only") {
            compare(field, &locked[*field], &all[*field]);
        }
        if version == HarborVersion::V0_26 {
            compare("artifacts", &locked["artifacts"], &all["artifacts"]);
            compare("override_error_policy", &locked["override_error_policy"], &all["override_error_policy"]);
        }
    }
    out
}

fn agent_key(agent: &Value) -> Value {
    let mut map = agent.as_object().cloned().unwrap_or_default();
    map.remove("skills");
    canon(&Value::Object(map))
}

fn lock_agent(entry: &Value) -> Value {
    agent_key(&filled(&json!({"agent": entry["agent"]}))["agent"])
}

/// The rules for retries in full, lists as sets.
fn retry(rules: &Value, version: HarborVersion) -> Value {
    let mut out = rules.as_object().cloned().unwrap_or_default();
    let mut default = |key: &str, value: Value| {
        if out.get(key).is_none_or(Value::is_null) {
            out.insert(key.to_string(), value);
        }
    };
    default("exclude_exceptions", json!(default_excludes(version)));
    default("wait_multiplier", json!(1.0));
    default("min_wait_sec", json!(1.0));
    default("max_wait_sec", json!(60.0));
    default("max_retries", json!(0));
    for key in ["exclude_exceptions", "include_exceptions"] {
        if let Some(Value::Array(list)) = out.get_mut(key) {
            list.sort_by_key(ToString::to_string);
        }
    }
    Value::Object(out)
}
