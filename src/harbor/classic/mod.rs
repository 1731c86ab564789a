//! Classic terminal-bench (`tb run`, harness 0.1 and 0.2) and the evaluation wrapper around
//! terminal-bench-hard on disk: tolerant readers, bytes in, types out.
//!
//! Every file is optional: what is published of such runs often lacks the logs, most of the trials'
//! directories or the run's own files, or has them under another name. A trial's own `results.json`
//! counts most; a trial that only the run's aggregate knows is a trial all the same.
//!
//! | part | what |
//! |---|---|
//! | [`result`] | a trial's `results.json`, the run's aggregate |
//! | [`run`] | `tb.lock` and `run_metadata.json`: plan, settings, how it was started |
//! | [`hard`] | `tb_results.json`, `task_status.json`, `eval_factory_metrics.json` of the wrapper |
//! | [`log`] | `run.log`: why trials failed of which nothing else tells |
//! | [`episodes`] | `agent-logs/episode-N` as a trajectory |
//! | [`place`] | what a directory is, by the names in it |

pub mod episodes;
pub mod hard;
pub mod log;
pub mod place;
pub mod result;
pub mod run;

use std::io::Read as _;

use super::dir::{Dir, EntryKind};
pub use crate::job::trial::{TrialName, trial_name};
pub use result::{Aggregate, TrialFile, aggregate, trial_result};
pub use run::{Run, run};

/// Largest result or aggregate that is searched for one trial.
const LARGEST: u64 = 32 << 20;
/// Bytes of a log that are read for one trial.
const LOG: u64 = 256 << 20;

/// The name of a trial's Compose project: the trial's with dots as dashes.
pub fn project(trial: &str) -> String {
    trial.replace('.', "-").to_ascii_lowercase()
}

/// Whether a directory is a trial's, by what lies in it.
pub fn holds_trial(dir: &Dir) -> bool {
    let entries = dir.list().unwrap_or_default();
    let of = |kind: EntryKind| entries.iter().filter(move |e| e.kind == kind).filter_map(|e| e.name.to_str());
    let harbor = ["config.json", "result.json", "trial.log", "lock.json"];
    if of(EntryKind::File).any(|file| harbor.contains(&file)) {
        return false;
    }
    place::is_trial("", of(EntryKind::Dir))
        || dir.read_all(place::RESULTS, LARGEST).is_ok_and(|b| trial_result(&b.data).is_ok())
}

/// What the run's aggregate holds of a trial of which no file was kept, as the text of its own result. `run`
/// is the run's directory.
pub fn from_aggregate(run: &Dir, trial: &str) -> Option<Vec<u8>> {
    let mut files: Vec<String> = run
        .list()
        .ok()?
        .into_iter()
        .filter(|e| e.kind == EntryKind::File)
        .filter_map(|e| e.name.into_string().ok())
        .filter(|name| place::is_called(name, place::RESULTS))
        .collect();
    files.sort_by_key(|name| name != place::RESULTS);
    files.iter().take(20).find_map(|file| {
        let bytes = run.read_all(file, LARGEST).ok()?;
        let value: serde_json::Value = serde_json::from_slice(&bytes.data).ok()?;
        serde_json::to_vec(find(&value, trial, 4)?).ok()
    })
}

fn find<'v>(value: &'v serde_json::Value, trial: &str, depth: usize) -> Option<&'v serde_json::Value> {
    use serde_json::Value;
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Object(map) if map.get("trial_name").and_then(Value::as_str) == Some(trial) => Some(value),
        Value::Object(map) => map.iter().find_map(|(key, item)| match item {
            Value::Object(inner) if key == trial && inner.contains_key(result::TRUTH) => Some(item),
            _ => find(item, trial, depth),
        }),
        Value::Array(items) => items.iter().find_map(|item| find(item, trial, depth)),
        _ => None,
    }
}

/// What the run's log says of a trial that ended with a failure mode. `run` is the run's directory.
pub fn words_of_log(run: &Dir, trial: &str, task: &str, mode: &str) -> Option<String> {
    let mut file = run.open_file(place::LOG).ok()?.take(LOG);
    let mut log = log::RunLog::default();
    let mut block = vec![0; 256 << 10];
    loop {
        match file.read(&mut block) {
            Ok(0) => return log.words(trial, task, mode),
            Ok(n) => log.feed(block.get(..n).unwrap_or_default()),
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_are_named_after_trials() {
        assert_eq!(project("Raman.easy.1-of-1"), "raman-easy-1-of-1");
    }
}
