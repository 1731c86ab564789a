//! Time limits of trials: from the task's `task.toml` where it can be found.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::harbor::config::{self, TaskToml, TrialConfigFile};
use crate::harbor::dir::Dir;
use crate::job::{LimitSource, Limits};

/// Most of a `task.toml` that is read; real ones have a few kB.
const TOML_CAP: u64 = 1 << 20;
/// Most keys of Harbor's task cache that are looked through for one task.
const CACHE_KEYS: usize = 4096;

/// The tasks of one job dir, by the name that trials' configs use; None: not found.
type OfJob = HashMap<Arc<str>, Option<Arc<TaskToml>>>;

/// The tasks met so far, found or not, each looked for once.
#[derive(Debug)]
pub(super) struct Tasks {
    found: RwLock<HashMap<PathBuf, OfJob>>,
    /// Directories that tasks would lie in, and whether they are there: the thousands of tasks of a
    /// job share a few.
    parents: Mutex<HashMap<PathBuf, bool>>,
    cwd: Option<PathBuf>,
    home: Option<PathBuf>,
}

impl Tasks {
    pub fn new() -> Tasks {
        Tasks {
            found: RwLock::default(),
            parents: Mutex::default(),
            cwd: std::env::current_dir().ok(),
            home: std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute()),
        }
    }

    /// Effective limits of a trial. `hint` is the agent limit in the timeout message of a sibling.
    pub fn limits(&self, config: &TrialConfigFile, job_dir: &Path, hint: Option<f64>) -> Limits {
        let task = self.task(config, job_dir);
        let mut limits = config::limits(config, task.as_deref());
        if limits.agent.is_none()
            && limits.source == LimitSource::Unknown
            && let Some(hint) = hint
        {
            limits.agent = Some(hint);
            limits.source = LimitSource::Message;
        }
        limits
    }

    fn task(&self, config: &TrialConfigFile, job_dir: &Path) -> Option<Arc<TaskToml>> {
        let named = config.task_path.clone().or_else(|| config.task_name.clone()).or_else(|| config.task.clone())?;
        let known = |all: &HashMap<PathBuf, OfJob>| all.get(job_dir).and_then(|of_job| of_job.get(&named)).cloned();
        if let Some(task) = known(&self.found.read().unwrap_or_else(PoisonError::into_inner)) {
            return task;
        }
        let task = self.search(config, job_dir).map(Arc::new);
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        found.entry(job_dir.to_path_buf()).or_default().insert(named, task.clone());
        task
    }

    fn search(&self, config: &TrialConfigFile, job_dir: &Path) -> Option<TaskToml> {
        // Relative paths of the job's environment count from real directories, not from links.
        let job_dir = job_dir.canonicalize().unwrap_or_else(|_| job_dir.to_path_buf());
        let candidates = config::task_dir_candidates(config, &job_dir, self.cwd.as_deref(), self.home.as_deref());
        if let Some(task) = candidates.iter().filter(|dir| self.may_hold(dir)).find_map(|dir| read(dir)) {
            return Some(task);
        }
        let (root, name) = config::task_cache(config, self.home.as_deref()?)?;
        let keys = Dir::open(&root).ok()?.list().ok()?;
        keys.iter().take(CACHE_KEYS).find_map(|key| read(&root.join(&key.name).join(&*name)))
    }

    /// Whether the directory above a candidate is there at all.
    fn may_hold(&self, task_dir: &Path) -> bool {
        let Some(parent) = task_dir.parent() else { return true };
        let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = parents.get(parent) {
            return *there;
        }
        let there = parent.is_dir();
        parents.insert(parent.to_path_buf(), there);
        there
    }
}

fn read(task_dir: &Path) -> Option<TaskToml> {
    let bytes = Dir::open(task_dir).ok()?.read("task.toml", TOML_CAP).ok()?;
    config::task_toml(&String::from_utf8_lossy(&bytes.data)).ok()
}
