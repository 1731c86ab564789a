//! Running trials of classic terminal-bench again: what its own resume would do, and the command line that
//! does what pilothouse does not.
//!
//! Nothing can be added to such a run, so that a requeue is refused; a resume there goes by whole tasks: of a
//! task of which one attempt lacks its result, the directory with all attempts is deleted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::quoted;
use crate::harbor::classic::{self, Run, place};
use crate::harbor::dir::{Dir, EntryKind};
use crate::job::text::{clean, mask_secrets};

/// Largest file of the run that is read.
const LARGEST: u64 = 64 << 20;
/// Names that are printed of a list.
const SHOWN: usize = 20;

/// A task whose directory the resume deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedTask {
    /// Task id.
    pub task: String,
    /// Attempts in it that have a result, and are deleted with the others: name and verdict in words.
    pub results: Vec<(String, &'static str)>,
    /// Attempts that lack one.
    pub missing: u32,
}

/// What the resume would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resume {
    /// The run's directory.
    pub dir: PathBuf,
    /// Version of terminal-bench that made it.
    pub version: Option<String>,
    /// Attempts planned for each task.
    pub attempts: u32,
    /// Planned tasks.
    pub planned: usize,
    /// Tasks all of whose attempts have a result: kept.
    pub keeps: Vec<String>,
    /// Tasks whose directory is deleted before they are run again.
    pub deletes: Vec<DeletedTask>,
    /// Tasks without a directory: run.
    pub runs: Vec<String>,
    /// Trials that only the aggregate knows, and that would be run again.
    pub forgotten: usize,
    /// Why it would refuse.
    pub obstacles: Vec<String>,
    /// The command.
    pub command: String,
}

/// Whether a directory is a classic run's, by its own files.
pub fn is_run(dir: &Path) -> bool {
    let names = Dir::open(dir).and_then(|dir| dir.list()).unwrap_or_default();
    let files = || names.iter().filter(|e| e.kind == EntryKind::File).filter_map(|e| e.name.to_str());
    let harbor = files().any(|name| ["config.json", "lock.json", "result.json"].contains(&name));
    !harbor && (place::is_run(files()) || files().any(|name| place::is_called(name, place::RESULTS)))
}

fn read(dir: &Path) -> std::io::Result<(Dir, Run)> {
    let real = dir.canonicalize()?;
    let open = Dir::open(&real)?;
    let names = open.list()?;
    let get = |wanted: &str| {
        let name = names.iter().filter_map(|e| e.name.to_str()).find(|name| place::is_called(name, wanted))?;
        open.read_all(name, LARGEST).ok().map(|bytes| bytes.data)
    };
    let run = classic::run(&real, get(place::LOCK).as_deref(), get(place::METADATA).as_deref());
    Ok((open, run))
}

/// Looks ahead. Nothing is changed.
///
/// # Errors
/// When the directory can not be read.
pub fn resume(dir: &Path) -> std::io::Result<Resume> {
    let real = dir.canonicalize()?;
    let (open, run) = read(dir)?;
    let attempts = run.attempts.unwrap_or(1).max(1);
    let planned: Vec<String> =
        run.facts.planned.iter().flatten().map(|p| p.task.to_string()).collect::<BTreeSet<_>>().into_iter().collect();
    let name = real.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = real.parent().map(Path::to_path_buf).unwrap_or_default();
    let id = run.run_id.as_deref().unwrap_or(&name).to_string();
    let mut out = Resume {
        dir: real.clone(),
        version: run.facts.harbor_version.as_deref().map(str::to_string),
        attempts,
        planned: planned.len(),
        command: format!("tb runs resume --run-id {} --runs-dir {}", quoted(&id), quoted(&parent.to_string_lossy())),
        ..Resume::default()
    };
    if open.stat(place::LOCK).is_err() {
        out.obstacles.push(format!("there is no {} to compare with", place::LOCK));
    }
    if name != id {
        out.obstacles.push(format!("the directory has to be called {id}, and it is called {name}"));
    }
    let known: BTreeSet<String> = open
        .read_all(place::RESULTS, LARGEST)
        .ok()
        .and_then(|bytes| classic::aggregate(&bytes.data).ok())
        .map(|a| a.trials.iter().filter_map(|t| Some(t.name.as_deref()?.to_string())).collect())
        .unwrap_or_default();
    let mut there = BTreeSet::new();
    for task in planned {
        let Ok(sub) = open.sub(&task) else {
            out.runs.push(task);
            continue;
        };
        let mut results = Vec::new();
        for entry in sub.list().unwrap_or_default().iter().filter(|e| e.kind == EntryKind::Dir) {
            let Some(trial) = entry.name.to_str() else { continue };
            if let Ok(bytes) = sub.read_all(&format!("{trial}/{}", place::RESULTS), LARGEST) {
                let verdict = match classic::trial_result(&bytes.data).map(|f| f.result.rewards.primary()) {
                    Ok(Some(1.0)) => "resolved",
                    Ok(Some(_)) => "not resolved",
                    Ok(None) => "no verdict",
                    Err(_) => "can not be read",
                };
                there.insert(trial.to_string());
                results.push((trial.to_string(), verdict));
            }
        }
        results.sort();
        let n = u32::try_from(results.len()).unwrap_or(u32::MAX);
        match attempts.checked_sub(n) {
            Some(missing) if missing > 0 => out.deletes.push(DeletedTask { task, results, missing }),
            _ => out.keeps.push(task),
        }
    }
    out.forgotten = known.iter().filter(|name| !there.contains(*name)).count();
    Ok(out)
}

fn safe(text: &str) -> String {
    clean(&mask_secrets(text)).into_owned()
}

fn names(list: &[String]) -> String {
    let more = list.len().saturating_sub(SHOWN);
    let shown = list.iter().take(SHOWN).map(|n| safe(n)).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

impl Resume {
    /// Nothing that counts gets lost.
    pub fn harmless(&self) -> bool {
        self.obstacles.is_empty() && self.forgotten == 0 && self.deletes.iter().all(|task| task.results.is_empty())
    }

    /// In words.
    pub fn plain(&self) -> String {
        let mut out = format!("{}\n", safe(&self.dir.to_string_lossy()));
        let version = self.version.as_deref().map_or("-".to_string(), safe);
        out.push_str(&format!(
            "  run by terminal-bench {version}; {} tasks planned, {} attempt{} each\n",
            self.planned,
            self.attempts,
            if self.attempts == 1 { "" } else { "s" }
        ));
        for why in &self.obstacles {
            out.push_str(&format!("tb runs resume REFUSES: {}\n", safe(why)));
        }
        let lost: usize = self.deletes.iter().map(|task| task.results.len()).sum();
        out.push_str(&format!(
            "  deletes {} task directories whole, since an attempt in each lacks its results.json; {lost} results \
             in them are lost\n",
            self.deletes.len()
        ));
        for task in self.deletes.iter().take(SHOWN) {
            let results: Vec<String> =
                task.results.iter().map(|(name, verdict)| format!("{name} ({verdict})")).collect();
            let lost = if results.is_empty() { "none".to_string() } else { names(&results) };
            out.push_str(&format!("    {}: {} missing; results lost: {lost}\n", safe(&task.task), task.missing));
        }
        if self.deletes.len() > SHOWN {
            out.push_str(&format!("    and {} more\n", self.deletes.len() - SHOWN));
        }
        out.push_str(&format!("  keeps {} tasks as done: {}\n", self.keeps.len(), names(&self.keeps)));
        out.push_str(&format!("  runs {} tasks without a directory: {}\n", self.runs.len(), names(&self.runs)));
        if self.forgotten > 0 {
            out.push_str(&format!(
                "warning: {} trials are known to the aggregate alone: without directories of their own they are run \
                 again, and the aggregate is written anew without them\n",
                self.forgotten
            ));
        }
        out.push_str(&format!("to resume: {}\n", safe(&self.command)));
        out
    }

    /// As a document.
    pub fn json(&self) -> Value {
        let deletes: Vec<Value> = self
            .deletes
            .iter()
            .map(|task| {
                let results: Vec<Value> =
                    task.results.iter().map(|(name, verdict)| json!({"trial": name, "verdict": verdict})).collect();
                json!({"task": task.task, "results_lost": results, "missing": task.missing})
            })
            .collect();
        json!({
            "schema_version": 1, "job_dir": self.dir.to_string_lossy(), "layout": "terminal-bench",
            "harness_version": self.version, "attempts": self.attempts, "planned_tasks": self.planned,
            "keeps": self.keeps, "deletes": deletes, "runs": self.runs, "known_to_aggregate_alone": self.forgotten,
            "refuses": self.obstacles, "command": self.command,
        })
    }
}

/// The command line that runs these tasks anew, as the run was started.
pub fn again(dir: &Path, tasks: &BTreeSet<String>) -> String {
    let run = read(dir).map(|(_, run)| run).unwrap_or_default();
    let mut words: Vec<String> = Vec::new();
    // What names the old run, or tasks, is not taken along.
    const WITH_VALUE: [&str; 8] =
        ["--run-id", "--task-id", "-t", "--n-tasks", "--exclude-task-id", "-e", "--task-ids", "--exclude-task-ids"];
    let mut args = run.command.iter();
    while let Some(arg) = args.next() {
        let name = arg.split_once('=').map_or(arg.as_str(), |(name, _)| name);
        if WITH_VALUE.contains(&name) {
            if name == arg {
                args.next();
            }
            continue;
        }
        words.push(quoted(arg));
    }
    if words.is_empty() {
        words = vec!["tb".to_string(), "run".to_string()];
        if let Some(dataset) = run.facts.datasets.first() {
            words.extend(["--dataset".to_string(), quoted(dataset)]);
        }
        for (flag, value) in [("--agent", run.facts.agents.first()), ("--model", run.facts.models.first())] {
            words.extend(value.into_iter().flat_map(|value| [flag.to_string(), quoted(value)]));
        }
        if let Some(n) = run.attempts.filter(|n| *n > 1) {
            words.extend(["--n-attempts".to_string(), n.to_string()]);
        }
    }
    for task in tasks {
        words.extend(["--task-id".to_string(), quoted(task)]);
    }
    mask_secrets(&words.join(" ")).into_owned()
}
