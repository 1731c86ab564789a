//! What the directories that the operator names are: a job, a directory of jobs, a trial.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::evidence::looks_like_trial;
use crate::harbor::classic::{self, place, trial_name};
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
    /// A run of classic terminal-bench, or what was kept of one.
    Classic,
    /// A trial of one.
    ClassicTrial,
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
    match kind_of(&dir, &entries, true) {
        DirKind::Neither => Ok(classic_kind(path, &dir, &entries)),
        kind => Ok(kind),
    }
}

/// What a directory without Harbor's files is to classic terminal-bench.
pub(super) fn classic_kind(path: &Path, dir: &Dir, entries: &[Entry]) -> DirKind {
    let of = |kind: EntryKind| entries.iter().filter(move |e| e.kind == kind).filter_map(|e| e.name.to_str());
    if place::is_run(of(EntryKind::File)) {
        return DirKind::Classic;
    }
    if let Some(kind) = classic_results(dir) {
        return kind;
    }
    let own = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    if place::is_trial(&own, of(EntryKind::Dir)) {
        return DirKind::ClassicTrial;
    }
    if of(EntryKind::File).filter(|f| place::is_called(f, place::RESULTS)).take(SNIFF_DIRS).any(|file| {
        let bytes = dir.read_all(file, SNIFF_CAP);
        bytes.ok().and_then(|b| by_keys(file, &b.data)) == Some(DirKind::Classic)
    }) {
        return DirKind::Classic;
    }
    // Trials by their names alone, where nothing else was kept.
    let task = |name: &str| {
        let inner = dir.sub(name).and_then(|sub| sub.list()).unwrap_or_default();
        let mut dirs = inner.iter().filter(|e| e.kind == EntryKind::Dir).filter_map(|e| e.name.to_str());
        dirs.any(|inner| trial_name(inner).is_some_and(|parts| parts.task == name))
    };
    let mut dirs = of(EntryKind::Dir).filter(|name| !name.starts_with('.')).take(SNIFF_DIRS * 4);
    match dirs.any(|name| trial_name(name).is_some() || task(name)) {
        true => DirKind::Classic,
        false => DirKind::Neither,
    }
}

/// What a `results.json` makes of the directory that it lies in.
pub(super) fn classic_results(dir: &Dir) -> Option<DirKind> {
    let bytes = dir.read_all(place::RESULTS, SNIFF_CAP).ok()?;
    by_keys(place::RESULTS, &bytes.data)
}

/// Where a run lies in the directory that an evaluation wrapper made.
pub(super) fn classic_inside(path: &Path) -> Option<PathBuf> {
    place::HARD_INSIDE.iter().map(|rel| path.join(rel)).find(|at| {
        let names = Dir::open(at).and_then(|dir| dir.list()).unwrap_or_default();
        place::is_run(names.iter().filter(|e| e.kind == EntryKind::File).filter_map(|e| e.name.to_str()))
    })
}

/// When `path` is a file that holds the aggregate of a classic run: its directory and its name.
pub fn aggregate_file(path: &Path) -> Option<(PathBuf, String)> {
    let name = path.file_name()?.to_str().filter(|name| place::is_called(name, place::RESULTS))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let bytes = Dir::open(&parent).ok()?.read_all(name, SNIFF_CAP).ok()?;
    (by_keys(name, &bytes.data)? == DirKind::Classic).then(|| (parent, name.to_string()))
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
    if place::is_called(name, place::RESULTS) {
        return by_results(bytes);
    }
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

/// What a `results.json` is: other programs have files of that name, too.
fn by_results(bytes: &[u8]) -> Option<DirKind> {
    match classic::aggregate(bytes) {
        Ok(read) if !read.trials.is_empty() || read.count == 0 && read.accuracy.is_some() => Some(DirKind::Classic),
        Ok(_) => None,
        Err(_) => classic::trial_result(bytes).is_ok().then_some(DirKind::ClassicTrial),
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
    match kind(&real).ok()? {
        DirKind::Trial => {}
        DirKind::ClassicTrial => return classic_trial(&real).map(|(dir, name, _)| (dir, name)),
        _ => return None,
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

/// When `path` names a trial of a classic run that has no directory, as one that only the aggregate knows:
/// the run's directory and the trial's path below that.
pub fn trial_without_dir(path: &Path) -> Option<(PathBuf, OsString)> {
    let (name, task) = (path.file_name()?, path.parent()?);
    let run = task.parent()?.canonicalize().ok()?;
    let mut inside = task.file_name()?.to_os_string();
    inside.push("/");
    inside.push(name);
    kind(&run).is_ok_and(|kind| kind == DirKind::Classic).then_some((run, inside))
}

/// The run that a trial of classic terminal-bench lies in, its path below that, and whether it lies there by
/// itself: then its directory's parent stands for the run.
pub(super) fn classic_trial(real: &Path) -> Option<(PathBuf, OsString, bool)> {
    let (name, parent) = (real.file_name()?, real.parent()?);
    let is_run = |path: &Path| kind(path).is_ok_and(|kind| kind == DirKind::Classic);
    if let (Some(task), Some(run)) = (parent.file_name(), parent.parent())
        && trial_name(&name.to_string_lossy()).is_none_or(|parts| *parts.task == *task.to_string_lossy())
        && is_run(run)
    {
        let mut path = task.to_os_string();
        path.push("/");
        path.push(name);
        return Some((run.to_path_buf(), path, false));
    }
    let files = Dir::open(parent).and_then(|dir| dir.list()).unwrap_or_default();
    let in_run = place::is_run(files.iter().filter(|e| e.kind == EntryKind::File).filter_map(|e| e.name.to_str()));
    Some((parent.to_path_buf(), name.to_os_string(), !in_run))
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
        let trial = r#"{"task_id":"t","is_resolved":true}"#;
        assert_eq!(kind("results.json", trial), Some(DirKind::ClassicTrial));
        assert_eq!(kind("r1_results.json", &format!(r#"{{"results":[{trial}]}}"#)), Some(DirKind::Classic));
        assert_eq!(kind("results.json", r#"{"results":{"hellaswag":{"acc":0.5}},"config":{}}"#), None);
        assert_eq!(kind("results.json", r#"{"results":[{"x":1}]}"#), None);
    }
}
