//! Which tasks a config means: directories, with what is wrong with each that can not run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::prepare::Refusal;
use super::repo;
use crate::harbor::run_config::{DatasetConfig, RunConfig, TaskRef};
use crate::harbor::task::{self, Selection, Task};
use crate::harbor::write::config::TaskConfig;
use crate::job::text::clean;

/// A directory that was meant and is no task that could run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub dir: PathBuf,
    /// What is wrong, in words that are safe to print.
    pub why: String,
}

/// What a config means.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Tasks with where the job says that they come from.
    pub tasks: Vec<(TaskConfig, Arc<Task>)>,
    /// The others.
    pub invalid: Vec<Invalid>,
    /// What there is to say.
    pub notes: Vec<String>,
}

/// Finds the tasks of a config: single ones, then those of the datasets, each set sorted by name.
///
/// # Errors
/// A directory that can not be read, patterns that fit nothing, a repository that can not be had.
pub fn find(config: &RunConfig, state: Option<&Path>) -> Result<Tasks, Refusal> {
    let mut out = Tasks::default();
    let verified = !config.verifier.disable;
    for single in &config.tasks {
        of_one(single, verified, &mut out)?;
    }
    for dataset in &config.datasets {
        of_set(dataset, verified, state, &mut out)?;
    }
    Ok(out)
}

fn of_one(single: &TaskRef, verified: bool, out: &mut Tasks) -> Result<(), Refusal> {
    let Some(path) = &single.path else {
        return Err(Refusal::of("tasks: an entry without a path"));
    };
    let from = TaskConfig {
        path: Some(path.to_string_lossy().into_owned()),
        source: single.source.clone(),
        ..TaskConfig::default()
    };
    match Task::load_for(path, verified) {
        Ok(task) => out.add(from, task),
        Err(problem) => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let name = clean(&name).into_owned();
            out.invalid.push(Invalid { name, dir: path.clone(), why: problem.to_string() });
        }
    }
    Ok(())
}

fn of_set(dataset: &DatasetConfig, verified: bool, state: Option<&Path>, out: &mut Tasks) -> Result<(), Refusal> {
    let set = match &dataset.repo {
        Some(url) => {
            let state = state.ok_or_else(|| Refusal::of("--repo: no place for a clone: set PILOTHOUSE_STATE_DIR"))?;
            let found = repo::fetch(url, dataset.path.as_deref(), state)?;
            out.notes.push(found.said());
            Set { dir: found.dir.join(&found.inside), source: Some(found.source()), git: Some(found) }
        }
        None => {
            let Some(path) = &dataset.path else {
                return Err(Refusal::of("datasets: an entry with neither a path nor a repository"));
            };
            let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let source = real.file_name().map(|n| n.to_string_lossy().into_owned());
            Set { dir: path.clone(), source, git: None }
        }
    };
    if !set.dir.is_dir() {
        let shown = crate::job::text::clean(&set.dir.to_string_lossy()).into_owned();
        return Err(Refusal::of(&format!("{shown}: no such directory: name a task, or a directory of tasks, with -p")));
    }
    let all = task::list(&set.dir).map_err(|e| Refusal::of(&e.to_string()))?;
    let selection = Selection {
        include: dataset.task_names.clone().unwrap_or_default(),
        exclude: dataset.exclude_task_names.clone().unwrap_or_default(),
        limit: dataset.n_tasks.map(|n| n as usize),
    };
    let chosen = selection.apply(all).map_err(|e| Refusal::of(&e.to_string()))?;
    for listed in chosen {
        let task = match listed.task {
            // Without verification a task needs no test script: what is missing may be just that.
            Err(_) if !verified => Task::load_for(&listed.dir, false),
            other => other,
        };
        match task {
            Ok(task) => out.add(set.config(&listed.dir), task),
            Err(problem) => {
                let name = clean(&listed.name).into_owned();
                out.invalid.push(Invalid { name, dir: listed.dir, why: problem.to_string() });
            }
        }
    }
    Ok(())
}

/// A directory of tasks.
struct Set {
    dir: PathBuf,
    source: Option<String>,
    git: Option<repo::Clone>,
}

impl Set {
    fn config(&self, dir: &Path) -> TaskConfig {
        let (path, url, commit) = match &self.git {
            None => (dir, None, None),
            Some(git) => (dir.strip_prefix(&git.dir).unwrap_or(dir), Some(git.url.clone()), Some(git.commit.clone())),
        };
        TaskConfig {
            path: Some(path.to_string_lossy().into_owned()),
            git_url: url,
            git_commit_id: commit,
            source: self.source.clone(),
            ..TaskConfig::default()
        }
    }
}

impl Tasks {
    fn add(&mut self, from: TaskConfig, task: Task) {
        self.tasks.push((from, Arc::new(task)));
    }
}
