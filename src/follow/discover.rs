//! What the directories that the operator names are: a job, a directory of jobs, a trial.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::evidence::looks_like_trial;
use crate::harbor::dir::{Dir, Entry, EntryKind};

/// Most of a file that is read to find out whose it is.
const SNIFF_CAP: u64 = 16 << 20;
/// Sub-directories that are looked into for trials before a directory without job files is given up.
const SNIFF_DIRS: usize = 32;

/// What a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirKind {
    /// A job: `config.json`, `lock.json` or `result.json` of one, or sub-directories that are trials.
    Job,
    /// A trial's.
    Trial,
    /// Neither, or nothing to tell yet.
    Neither,
}

/// What a directory is, judged by its files.
///
/// # Errors
/// When it can not be opened or listed.
pub fn kind(path: &Path) -> io::Result<DirKind> {
    let dir = Dir::open(path)?;
    let entries = dir.list()?;
    Ok(kind_of(&dir, &entries, true))
}

pub(super) fn kind_of(dir: &Dir, entries: &[Entry], deep: bool) -> DirKind {
    let has = |name: &str| entries.iter().any(|e| e.kind == EntryKind::File && e.name == name);
    // Both logs are made before any other file, and nobody else's files are called so.
    if has("trial.log") {
        return DirKind::Trial;
    }
    if has("job.log") {
        return DirKind::Job;
    }
    for name in ["config.json", "lock.json", "result.json"] {
        if has(name)
            && let Some(kind) = dir.read_all(name, SNIFF_CAP).ok().and_then(|f| by_keys(name, &f.data))
        {
            return kind;
        }
    }
    let mut looked = 0;
    for entry in entries.iter().filter(|e| deep && e.kind == EntryKind::Dir && !is_hidden(e)) {
        let trial_like = entry.name.to_str().is_some_and(looks_like_trial);
        looked += usize::from(!trial_like);
        if looked > SNIFF_DIRS && !trial_like {
            continue;
        }
        let Ok(sub) = dir.sub_os(&entry.name) else { continue };
        let Ok(names) = sub.list() else { continue };
        if kind_of(&sub, &names, false) == DirKind::Trial {
            return DirKind::Job;
        }
    }
    DirKind::Neither
}

/// Whose a JSON file is, by its top-level keys.
fn by_keys(name: &str, bytes: &[u8]) -> Option<DirKind> {
    let keys: HashMap<String, IgnoredAny> = serde_json::from_slice(bytes).ok()?;
    let any = |wanted: &[&str]| wanted.iter().any(|k| keys.contains_key(*k));
    let (job, trial): (&[&str], &[&str]) = match name {
        "config.json" => (
            &[
                "n_attempts",
                "jobs_dir",
                "job_name",
                "n_concurrent_trials",
                "datasets",
                "tasks",
                "agents",
                "orchestrator",
            ],
            &["task", "trial_name", "trials_dir"],
        ),
        "lock.json" => (&["trials"], &["task"]),
        _ => (&["n_total_trials", "stats"], &["task_name", "trial_name"]),
    };
    // A trial's config has no key of the other list, but some that a job's has, too.
    if any(trial) {
        Some(DirKind::Trial)
    } else if any(job) {
        Some(DirKind::Job)
    } else {
        None
    }
}

pub(super) fn is_hidden(entry: &Entry) -> bool {
    entry.name.as_encoded_bytes().starts_with(b".")
}

/// Whether a name in a job dir can be a trial's directory at all.
pub(super) fn may_be_trial(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Dir | EntryKind::Symlink) && !is_hidden(entry)
}

/// Sub-directories of a jobs dir that may be jobs, sorted by name. Links are followed here: the
/// operator made them, no agent can.
///
/// # Errors
/// When it can not be opened or listed.
pub(super) fn candidates(jobs_dir: &Path) -> io::Result<Vec<OsString>> {
    let mut names: Vec<OsString> =
        Dir::open(jobs_dir)?.list()?.into_iter().filter(may_be_trial).map(|e| e.name).collect();
    names.sort();
    Ok(names)
}

/// When `path` is a trial's directory inside a job dir: the job dir and the trial's name. For
/// `attach <trial dir>`, which attaches the job and opens the trial.
pub fn trial_in_job(path: &Path) -> Option<(PathBuf, OsString)> {
    // `..` and `.` must not hide the parent.
    let real = path.canonicalize().ok()?;
    if kind(&real).ok()? != DirKind::Trial {
        return None;
    }
    let name = real.file_name()?.to_os_string();
    // As given where that names the parent plainly, so that messages show the operator's own path.
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty() && path.file_name() == Some(&name));
    let parent = match parent {
        Some(parent) if parent.canonicalize().ok().as_deref() == real.parent() => parent.to_path_buf(),
        _ => real.parent()?.to_path_buf(),
    };
    Some((parent, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_whose_they_are() {
        let kind = |name, text: &str| by_keys(name, text.as_bytes());
        assert_eq!(kind("config.json", r#"{"job_name":"x","agents":[]}"#), Some(DirKind::Job));
        assert_eq!(kind("config.json", r#"{"task":{},"trial_name":"x","agent":{}}"#), Some(DirKind::Trial));
        assert_eq!(kind("lock.json", r#"{"trials":[]}"#), Some(DirKind::Job));
        assert_eq!(kind("lock.json", r#"{"task":{}}"#), Some(DirKind::Trial));
        assert_eq!(kind("result.json", r#"{"id":"x","stats":{}}"#), Some(DirKind::Job));
        assert_eq!(kind("config.json", "{}"), None);
        assert_eq!(kind("result.json", r#"{"id""#), None);
    }
}
