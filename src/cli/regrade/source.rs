//! What is to be graded again: the trial, its task as it is now, what is held of it; or why that can not be
//! done, and what can.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::environment::docker::DockerEngine;
use crate::environment::held::held_of;
use crate::environment::{Held, HeldKind, HeldRecords};
use crate::harbor::task::{Task, host_variable};
use crate::harbor::write::Folder;
use crate::harbor::write::lease::LEASE;
use crate::harbor::{Dir, trial_result};
use crate::job::text::{clean, path_text};
use crate::job::{Regrade, TrialResult};
use crate::scheduler::trial::NOTE;

/// Largest of a trial's files that is read.
const CAP: u64 = 64 << 20;
/// What stands in a config where a secret was masked.
const MASK: &str = "****";

/// Why a trial can not be graded again, and commands that help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Why, in words.
    pub why: String,
    /// What can be done: a command and what it does.
    pub offers: Vec<(String, String)>,
}

impl Refused {
    fn new(why: impl Into<String>) -> Refused {
        Refused { why: why.into(), offers: Vec::new() }
    }

    fn offer(mut self, command: String, what: &str) -> Refused {
        self.offers.push((command, what.to_string()));
        self
    }
}

/// A trial that can be graded again.
pub struct Source {
    /// Its directory, absolute.
    pub dir: PathBuf,
    /// Its job's.
    pub job_dir: PathBuf,
    /// Its name.
    pub trial: String,
    /// Its job's id.
    pub job_id: String,
    /// What its result says.
    pub result: TrialResult,
    /// Its task as it is now.
    pub task: Task,
    /// The task's checksum now.
    pub checksum: Option<String>,
    /// The task is another one than the trial's.
    pub task_changed: bool,
    /// The verifier's own limit in seconds, as it was.
    pub limit: Option<f64>,
    /// The job's variables for the tests.
    pub env: Vec<(String, String)>,
    /// What is held of it, what is best first.
    pub held: Vec<Held>,
    /// What was graded again before.
    pub before: Vec<Regrade>,
}

impl Source {
    /// Looks at a trial. `task` is where its task lies, where that is not where it was.
    ///
    /// # Errors
    /// Why it can not be graded again, and what can be done.
    pub async fn look(
        dir: &Path,
        task: Option<&Path>,
        state_dir: Option<&Path>,
        engine: &DockerEngine,
    ) -> Result<Source, Refused> {
        let found = Files::read(dir)?;
        let held = found.held(state_dir, engine).await?;
        let at = found.task_dir(task, state_dir)?;
        let task = Task::load(&at).map_err(|e| {
            Refused::new(format!("the task {}: {e}: name it with --task DIR", clean(&at.to_string_lossy())))
        })?;
        if !task.config.steps.is_empty() {
            return Err(Refused::new("a task of several steps can not be graded again step by step"));
        }
        let checksum = task.digests().ok().map(|d| d.checksum);
        let task_changed = found.result.task_checksum.as_deref() != checksum.as_deref();
        let limit = found.limit(&task);
        let env = found.env()?;
        let Files { dir, job_dir, trial, job_id, result, before, .. } = found;
        Ok(Source { dir, job_dir, trial, job_id, result, task, checksum, task_changed, limit, env, held, before })
    }

    /// What can be done for a trial of Harbor's; None: it is none.
    pub fn of_harbor(dir: &Path) -> Option<Refused> {
        Files::read(dir).err()
    }

    /// The container, else the snapshot; None only where both are gone.
    pub fn best(&self) -> Option<&Held> {
        let container = self.held.iter().find(|h| h.kind == HeldKind::Container);
        container.or_else(|| self.held.last())
    }
}

/// A trial's own files.
struct Files {
    dir: PathBuf,
    job_dir: PathBuf,
    trial: String,
    job_id: String,
    config: Value,
    result: TrialResult,
    note: Value,
    before: Vec<Regrade>,
}

impl Files {
    fn read(named: &Path) -> Result<Files, Refused> {
        let shown = clean(&named.to_string_lossy()).into_owned();
        let dir = std::fs::canonicalize(named).map_err(|e| Refused::new(format!("{shown}: {e}")))?;
        let open = Dir::open(&dir).map_err(|e| Refused::new(format!("{shown}: {e}")))?;
        let json = |name: &str| -> Result<Value, Refused> {
            let read = open.read_all(name, CAP).map_err(|e| {
                Refused::new(format!("{shown}/{name}: {e}: name the directory of a trial that has ended"))
            })?;
            serde_json::from_slice(&read.data).map_err(|e| Refused::new(format!("{shown}/{name}: {e}")))
        };
        let config = json("config.json")?;
        if config.get("task").is_none() || config.get("trial_name").is_none() {
            return Err(Refused::new(format!("{shown}: no trial: name the directory of one, not of its job")));
        }
        let raw = json("result.json")?;
        let bytes = open.read_all("result.json", CAP).map_err(|e| Refused::new(format!("{shown}/result.json: {e}")))?;
        let read = trial_result(&bytes.data).map_err(|e| Refused::new(format!("{shown}/result.json: {e}")))?;
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let trial = name(&dir);
        let job_dir = dir.parent().map(Path::to_path_buf).unwrap_or_default();
        if std::fs::symlink_metadata(job_dir.join(LEASE)).is_err() {
            return Err(of_harbor(&job_dir, &trial, &raw, &config, &open));
        }
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_string);
        let job_id = text(&config, "job_id").filter(|id| !id.is_empty());
        let job_id = job_id.or_else(|| crate::audit::check::job_id_of(&job_dir));
        let Some(job_id) = job_id else {
            return Err(Refused::new(format!("{shown}: neither its config nor its job says which job it is of")));
        };
        let note = open.read_all(NOTE, CAP).ok().and_then(|read| serde_json::from_slice(&read.data).ok());
        let before = crate::harbor::regrade::regrades(&open, "");
        let note = note.unwrap_or(Value::Null);
        Ok(Files { dir, job_dir, trial, job_id, config, result: read.result, note, before })
    }

    /// What is held of it.
    async fn held(&self, state_dir: Option<&Path>, engine: &DockerEngine) -> Result<Vec<Held>, Refused> {
        let kept = engine.kept(Some(&self.job_id)).await.map_err(|e| Refused::new(e.to_string()))?;
        let records = state_dir.map(|dir| HeldRecords::of(dir).read()).unwrap_or_default();
        let mut held = held_of(&kept, &records);
        held.retain(|h| h.kept.labels.trial.as_deref() == Some(&*self.trial));
        if !held.is_empty() {
            return Ok(held);
        }
        let why = match self.note.get("held").and_then(|h| h.get("words")).and_then(Value::as_str) {
            Some(words) => format!("nothing of it is held any more; when it ended: {}", clean(words)),
            None if self.config.get("environment").and_then(|e| e.get("type")).and_then(Value::as_str)
                == Some("local") =>
            {
                "it ran on this machine without a container: its directory went with it".to_string()
            }
            None => {
                "its container is gone: it went with the trial, whose verifier's answer was not doubted".to_string()
            }
        };
        let job = clean(&path_text(&self.job_dir)).into_owned();
        let command = format!("pilothouse requeue {} --trial {}", quoted(&job), quoted(&self.trial));
        Err(Refused::new(why).offer(command, "runs it again from the beginning, with its agent"))
    }

    fn task_dir(&self, named: Option<&Path>, state_dir: Option<&Path>) -> Result<PathBuf, Refused> {
        if let Some(dir) = named {
            return Ok(dir.to_path_buf());
        }
        let known = self.note.get("held").and_then(|h| h.get("task_dir")).and_then(Value::as_str).map(PathBuf::from);
        if let Some(dir) = known.filter(|dir| dir.is_absolute() && dir.is_dir()) {
            return Ok(dir);
        }
        let task = self.config.get("task");
        let text = |key: &str| task.and_then(|t| t.get(key)).and_then(Value::as_str).filter(|t| !t.is_empty());
        let path = text("path").ok_or_else(|| Refused::new("its config does not say where its task is: --task DIR"))?;
        let dir = match text("git_url") {
            Some(url) => {
                let state = state_dir.ok_or_else(|| Refused::new("no place for a clone: set PILOTHOUSE_STATE_DIR"))?;
                let commit = text("git_commit_id").ok_or_else(|| Refused::new("its config names no commit"))?;
                let at = crate::cli::run::repo::at_commit(url, commit, state);
                at.map_err(|e| Refused::new(format!("its task: {e}")))?.join(path)
            }
            None => PathBuf::from(path),
        };
        if dir.is_dir() {
            return Ok(dir);
        }
        let hint = if dir.is_relative() { ", relative to where the job was started" } else { "" };
        let shown = clean(&dir.to_string_lossy()).into_owned();
        Err(Refused::new(format!("its task is not at {shown} any more{hint}: name it with --task DIR")))
    }

    fn number(&self, path: &[&str]) -> Option<f64> {
        path.iter().try_fold(&self.config, |value, key| value.get(key))?.as_f64()
    }

    /// The verifier's limit, as the trial had it.
    fn limit(&self, task: &Task) -> Option<f64> {
        let step = task.steps.first().and_then(|step| task.spec(step));
        let own = self.number(&["verifier", "override_timeout_sec"]).filter(|s| *s > 0.0);
        let base = own.unwrap_or_else(|| task.config.verifier_timeout(step));
        let most = self.number(&["verifier", "max_timeout_sec"]).filter(|s| *s > 0.0).unwrap_or(f64::INFINITY);
        let general = self.number(&["timeout_multiplier"]).unwrap_or(1.0);
        let factor = self.number(&["verifier_timeout_multiplier"]).unwrap_or(general);
        Some(base.min(most) * factor).filter(|s| s.is_finite() && *s >= 0.0)
    }

    /// The job's variables for the tests; a masked one is taken from this process.
    fn env(&self) -> Result<Vec<(String, String)>, Refused> {
        let env = self.config.get("verifier").and_then(|v| v.get("env")).and_then(Value::as_object);
        let mut out = Vec::new();
        for (name, value) in env.into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            if !value.contains(MASK) {
                let template = crate::harbor::task::EnvTemplate::new(value);
                let one = std::collections::BTreeMap::from([(name.clone(), template)]);
                let resolved = crate::harbor::task::resolve_all(&one, host_variable);
                out.extend(resolved.map_err(|e| Refused::new(e.to_string()))?);
                continue;
            }
            match host_variable(name) {
                Some(value) => out.push((name.clone(), value)),
                None => {
                    let name = clean(name);
                    let why =
                        format!("the trial's config does not hold the secret {name}: set a variable of that name");
                    return Err(Refused::new(why));
                }
            }
        }
        Ok(out)
    }
}

/// What can be done for a trial of Harbor's.
fn of_harbor(job_dir: &Path, trial: &str, result: &Value, config: &Value, dir: &Dir) -> Refused {
    let job = clean(&path_text(job_dir)).into_owned();
    let separate = result.get("verifier_environment_mode").and_then(Value::as_str) == Some("separate");
    let recorded = dir.stat("artifacts/manifest.json").is_ok();
    let requeue = format!("pilothouse requeue {} --trial {}", quoted(&job), quoted(trial));
    if separate && recorded {
        let task = config.get("task");
        let text = |key: &str| task.and_then(|t| t.get(key)).and_then(Value::as_str).filter(|t| !t.is_empty());
        let provider = match (text("path"), text("name"), text("git_url")) {
            (Some(path), _, None) => format!("-p {}", quoted(&clean(path))),
            (_, Some(name), _) => format!("-t {}", quoted(&clean(name))),
            _ => "-p TASK_DIR".to_string(),
        };
        let command = format!("harbor job regrade {} {provider} --job-name {}-regrade", quoted(&job), quoted(trial));
        return Refused::new(
            "Harbor ran it, with a separate verifier and recorded artifacts: Harbor itself can grade it again, into a \
             new job (all trials of the job whose tasks are named; of several steps only from 0.26 on)",
        )
        .offer(command, "runs the verifiers again on the recorded artifacts; the old job stays as it is");
    }
    let why = match separate {
        true => "Harbor ran it, and its artifacts are not recorded: there is nothing to run the verifier on",
        false => {
            "Harbor ran it, and its verifier ran in the agent's own container, which is gone: there is nothing to run \
             the verifier in"
        }
    };
    Refused::new(why).offer(requeue, "runs it again from the beginning, with its agent")
}

/// For a shell, where that is needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_string() } else { crate::environment::quoted(word) }
}

/// The trial's directory for writing.
pub fn folder(dir: &Path) -> Result<Folder, String> {
    Folder::open(dir).map_err(|e| e.to_string())
}
