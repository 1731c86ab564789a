//! What a command asks for, with the configs that it names: where the job goes, who works in it, on what.
//!
//! Tolerant: what can not be read is left to Harbor, which says so itself; here it only means that less is
//! known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::command::{Command, Verb};
use crate::harbor::dir::Dir;
use crate::harbor::run_config::{Format, HarborVersion, read_file, read_layer};
use crate::harbor::task::{Selection, Task, list};

/// Largest config of a job dir that is read, in bytes.
const CONFIG: u64 = 16 << 20;
/// Trials at a time, where nothing says it.
const CONCURRENT: u32 = 4;

/// An agent of the job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Worker {
    /// Its name, or its import path.
    pub name: String,
    /// Its model.
    pub model: Option<String>,
    /// Its arguments; what is given on the command line as text.
    pub kwargs: BTreeMap<String, Value>,
    /// Variables that are passed to it.
    pub env: BTreeMap<String, String>,
    /// Fields of 0.26: where its model is, and the name of its key.
    pub base_url: Option<String>,
    /// The variable with its key.
    pub key_name: Option<String>,
}

impl Worker {
    /// It calls its model from Harbor's own process.
    pub fn on_host(&self) -> bool {
        self.name.starts_with("terminus") || self.name == "computer-1"
    }

    /// It calls no model.
    pub fn without_model(&self) -> bool {
        matches!(self.name.as_str(), "oracle" | "nop")
    }

    /// Where its model is, as the command says it.
    pub fn base(&self) -> Option<String> {
        let kwarg = |name: &str| self.kwargs.get(name).and_then(Value::as_str).map(str::to_string);
        let env = |name: &str| self.env.get(name).filter(|v| !v.starts_with("${")).cloned();
        let own = self.base_url.clone().or_else(|| kwarg("api_base")).or_else(|| kwarg("base_url"));
        own.or_else(|| env("OPENAI_BASE_URL")).or_else(|| env("OPENAI_API_BASE"))
    }
}

/// A command and its configs, read.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Which version of Harbor gets it, as far as behaviour is known.
    pub version: Option<HarborVersion>,
    /// Resumed rather than started.
    pub resumes: bool,
    /// Where it is started.
    pub cwd: PathBuf,
    /// Where jobs go, absolute.
    pub jobs_dir: PathBuf,
    /// It was given relative to where it is started, or not at all.
    pub relative: bool,
    /// Its name; None is made from the time.
    pub job_name: Option<String>,
    /// The agents.
    pub workers: Vec<Worker>,
    /// The type of its environment.
    pub environment: String,
    /// Its options.
    pub environment_kwargs: BTreeMap<String, Value>,
    /// Trials at a time.
    pub concurrent: u32,
    /// Trials in all, where the tasks are known.
    pub trials: Option<u64>,
    /// The tasks that lie on this machine and can be loaded.
    pub tasks: Vec<Task>,
    /// All tasks are among those.
    pub all_tasks: bool,
    /// `-y` is given.
    pub yes: bool,
    /// It is run by somebody else's machine, or not run at all: `--launch`, `--server`, `--dry-run`.
    pub not_here: Option<&'static str>,
    /// An old job's own config, whose directory this is.
    pub from_job: Option<PathBuf>,
    /// Exception types that a resume deletes first.
    pub filter: Vec<String>,
    /// Configs that could not be read, in words.
    pub unread: Vec<String>,
}

impl Asked {
    /// Reads what `command` asks for when it is started in `cwd`.
    pub fn read(command: &Command, cwd: &Path, version: Option<HarborVersion>) -> Asked {
        let mut out = Asked { version, cwd: cwd.to_path_buf(), ..Asked::default() };
        let mut config = Value::Null;
        match command.verb {
            Verb::Resume => {
                out.resumes = true;
                out.filter = command.values(&["-f", "--filter-error-type"]).into_iter().map(String::from).collect();
                if let Some(dir) = command.value(&["-p", "--job-path"]) {
                    let dir = normal(&cwd.join(dir));
                    config = of_job(&dir).unwrap_or_else(|| {
                        out.unread.push(format!("{}: no config.json that can be read", dir.display()));
                        Value::Null
                    });
                    out.place_of_resume(&config, &dir);
                }
            }
            Verb::Run => {
                let files = command.values(&["-c", "--config"]);
                for file in &files {
                    match layer(&cwd.join(file)) {
                        Ok(over) => lay(&mut config, over),
                        Err(why) => out.unread.push(why),
                    }
                }
                let own = files.last().map(|f| cwd.join(f)).filter(|f| f.ends_with("config.json"));
                let own = own.and_then(|f| f.parent().map(normal));
                out.from_job = own.filter(|dir| dir.join("lock.json").is_file());
                let jobs = command.value(&["-o", "--jobs-dir"]).map(String::from);
                let jobs = jobs.or_else(|| text(&config, "jobs_dir")).unwrap_or_else(|| "jobs".to_string());
                out.relative = Path::new(&jobs).is_relative();
                out.jobs_dir = normal(&cwd.join(jobs));
                out.job_name = command.value(&["--job-name"]).map(String::from).or_else(|| text(&config, "job_name"));
            }
        }
        out.fields(command, &config);
        out.find_tasks(command, &config);
        out
    }

    /// Where the job will be, as far as its name is known.
    pub fn dir(&self) -> Option<PathBuf> {
        self.job_name.as_ref().filter(|name| !name.is_empty()).map(|name| self.jobs_dir.join(name))
    }

    /// 0.26 works in the directory that it was told; 0.21 goes where the config says, from here.
    fn place_of_resume(&mut self, config: &Value, told: &Path) {
        let named = text(config, "jobs_dir").unwrap_or_else(|| "jobs".to_string());
        self.relative = Path::new(&named).is_relative();
        let there = (told.parent(), told.file_name());
        match (self.version, there) {
            (Some(HarborVersion::V0_21), _) => {
                self.jobs_dir = normal(&self.cwd.join(named));
                self.job_name = text(config, "job_name");
            }
            (_, (Some(parent), Some(name))) => {
                self.jobs_dir = parent.to_path_buf();
                self.job_name = Some(name.to_string_lossy().into_owned());
            }
            _ => {}
        }
        self.from_job = Some(told.to_path_buf());
    }

    fn fields(&mut self, command: &Command, config: &Value) {
        let run = command.verb == Verb::Run;
        let value = |names: &[&str]| command.value(names).filter(|_| run).map(String::from);
        let environment = &config["environment"];
        let import = || value(&["--environment-import-path"]).or_else(|| text(environment, "import_path"));
        let kind = value(&["-e", "--env"]).or_else(|| text(environment, "type")).or_else(import);
        self.environment = kind.unwrap_or_else(|| "docker".to_string());
        self.environment_kwargs = object(&environment["kwargs"]);
        if run {
            let pairs = command.pairs(&["--ek", "--environment-kwarg"]);
            self.environment_kwargs.extend(pairs.into_iter().map(|(k, v)| (k.to_string(), Value::from(v))));
        }
        let n = value(&["-n", "--n-concurrent"]).and_then(|n| n.parse().ok());
        let of_config = config["n_concurrent_trials"].as_u64().and_then(|n| u32::try_from(n).ok());
        self.concurrent = n.or(of_config).unwrap_or(CONCURRENT);
        self.yes = command.flag(&["-y", "--yes"]);
        let elsewhere = ["--launch", "--server", "--dry-run", "--print-config"];
        self.not_here = elsewhere.into_iter().find(|flag| command.flag(&[flag]) || command.value(&[flag]).is_some());
        self.workers = workers(command, config);
    }

    fn find_tasks(&mut self, command: &Command, config: &Value) {
        let run = command.verb == Verb::Run;
        let mut places: Vec<(PathBuf, Selection)> = Vec::new();
        let mut all = true;
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
        };
        let given = |names: &[&str]| if run { command.values(names) } else { Vec::new() };
        let of_flags = |names: &[&str]| given(names).into_iter().map(String::from).collect::<Vec<_>>();
        let picked = Selection {
            include: of_flags(&["-i", "--include-task-name"]),
            exclude: of_flags(&["-x", "--exclude-task-name"]),
            limit: given(&["-l", "--n-tasks"]).last().and_then(|n| n.parse().ok()),
        };
        if let Some(path) = given(&["-p", "--path"]).last() {
            places.push((self.cwd.join(path), picked));
        } else if !given(&["-d", "--dataset", "-t", "--task", "--task-git-url"]).is_empty() {
            all = false;
        } else {
            for task in config["tasks"].as_array().into_iter().flatten() {
                match (task["path"].as_str(), task["git_url"].is_null()) {
                    (Some(path), true) => places.push((self.cwd.join(path), Selection::default())),
                    _ => all = false,
                }
            }
            for dataset in config["datasets"].as_array().into_iter().flatten() {
                let Some(path) = dataset["path"].as_str().filter(|_| dataset["repo"].is_null()) else {
                    all = false;
                    continue;
                };
                let or = |flags: &Vec<String>, key: &str| {
                    if flags.is_empty() { texts(&dataset[key]) } else { flags.clone() }
                };
                let limit = picked.limit.or_else(|| dataset["n_tasks"].as_u64().and_then(|n| usize::try_from(n).ok()));
                let wanted = Selection {
                    include: or(&picked.include, "task_names"),
                    exclude: or(&picked.exclude, "exclude_task_names"),
                    limit,
                };
                places.push((self.cwd.join(path), wanted));
            }
        }
        for (place, wanted) in &places {
            match list(place).map_err(|e| e.to_string()).and_then(|l| wanted.apply(l).map_err(|e| e.to_string())) {
                Ok(found) => {
                    for one in found {
                        match one.task {
                            Ok(task) => self.tasks.push(task),
                            Err(_) => all = false,
                        }
                    }
                }
                Err(why) => {
                    all = false;
                    self.unread.push(why);
                }
            }
        }
        self.all_tasks = all && !places.is_empty();
        let attempts = given(&["-k", "--n-attempts"]).last().and_then(|n| n.parse::<u64>().ok());
        let attempts = attempts.or_else(|| config["n_attempts"].as_u64()).unwrap_or(1);
        let each = attempts.saturating_mul(self.workers.len().max(1) as u64);
        self.trials = self.all_tasks.then(|| each.saturating_mul(self.tasks.len() as u64));
    }
}

fn workers(command: &Command, config: &Value) -> Vec<Worker> {
    let of_config = config["agents"].as_array().into_iter().flatten().map(|agent| Worker {
        name: text(agent, "name").or_else(|| text(agent, "import_path")).unwrap_or_else(|| "oracle".to_string()),
        model: text(agent, "model_name"),
        kwargs: object(&agent["kwargs"]),
        env: object(&agent["env"]).into_iter().filter_map(|(k, v)| Some((k, v.as_str()?.to_string()))).collect(),
        base_url: text(agent, "base_url"),
        key_name: text(agent, "model_api_key_name"),
    });
    let mut out: Vec<Worker> = of_config.collect();
    if command.verb == Verb::Resume {
        return out;
    }
    let agent = command.value(&["-a", "--agent"]).or_else(|| command.value(&["--agent-import-path"]));
    let models = command.values(&["-m", "--model"]);
    if let Some(name) = agent {
        let base = Worker { name: name.to_string(), ..Worker::default() };
        out = match models.as_slice() {
            [] => vec![base],
            some => some.iter().map(|m| Worker { model: Some((*m).to_string()), ..base.clone() }).collect(),
        };
    } else if out.is_empty() {
        out.push(Worker { name: "oracle".to_string(), ..Worker::default() });
    }
    let own = |pairs: Vec<(&str, &str)>| -> Vec<(String, String)> {
        pairs.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    };
    let kwargs = own(command.pairs(&["--ak", "--agent-kwarg"]));
    let mut env = own(command.pairs(&["--ae", "--agent-env"]));
    // A name alone passes the host's variable on.
    let bare = command.values(&["--ae", "--agent-env"]).into_iter().filter(|v| !v.contains('='));
    env.extend(bare.map(|name| (name.to_string(), format!("${{{name}}}"))));
    for worker in &mut out {
        worker.kwargs.extend(kwargs.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))));
        worker.env.extend(env.iter().cloned());
        if let Some(url) = command.value(&["--base-url"]) {
            worker.base_url = Some(url.to_string());
        }
        if let Some(name) = command.value(&["--api-key-name"]) {
            worker.key_name = Some(name.to_string());
        }
    }
    out
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(String::from)
}

fn object(value: &Value) -> BTreeMap<String, Value> {
    value.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn of_job(dir: &Path) -> Option<Value> {
    let bytes = Dir::open(dir).ok()?.read_all("config.json", CONFIG).ok()?;
    serde_json::from_slice(&bytes.data).ok().filter(Value::is_object)
}

fn layer(path: &Path) -> Result<Value, String> {
    let name = path.to_string_lossy().into_owned();
    let format = Format::of(&name).ok_or_else(|| format!("{name}: neither YAML nor JSON: not looked at"))?;
    let bytes = read_file(&name)?;
    read_layer(&bytes, &name, format).map(|node| node.value.to_json()).map_err(|e| e.to_string())
}

/// Lays a config over another: maps key by key, all else is replaced.
fn lay(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                lay(old.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// Without `.` and `..`, as far as that can be told by the words alone.
fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}
