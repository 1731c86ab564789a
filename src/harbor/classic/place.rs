//! What a directory is, by the names in it.

use super::trial_name;

/// The run's own files, by what they are called in a run directory. Published runs have them as
/// `<run id>_<name>`, too.
pub const LOCK: &str = "tb.lock";
/// Written at the start and once more at the end.
pub const METADATA: &str = "run_metadata.json";
/// In a run directory the aggregate, in a trial's its result.
pub const RESULTS: &str = "results.json";
/// The harness's log.
pub const LOG: &str = "run.log";
/// The wrapper's aggregate.
pub const HARD_RESULTS: &str = "tb_results.json";
/// The wrapper's state by task.
pub const HARD_STATUS: &str = "task_status.json";
/// The wrapper's statistics of replies, in or above the run directory.
pub const HARD_METRICS: &str = "eval_factory_metrics.json";
/// Where the wrapper's run directory lies below what an operator would name.
pub const HARD_INSIDE: [&str; 2] = ["artifacts/terminal-bench", "terminal-bench-hard/artifacts/terminal-bench"];
/// Directories of a trial.
const OF_A_TRIAL: [&str; 3] = ["panes", "sessions", "agent-logs"];

/// Whether a file is this one, under its own name or with a run's id before it.
pub fn is_called(file: &str, name: &str) -> bool {
    file == name || file.strip_suffix(name).is_some_and(|id| id.len() > 1 && id.ends_with('_'))
}

/// Whether the names of files make a directory a run's.
pub fn is_run<'a>(mut files: impl Iterator<Item = &'a str>) -> bool {
    files.any(|file| is_called(file, LOCK) || is_called(file, METADATA) || file == HARD_RESULTS || file == HARD_STATUS)
}

/// Whether a directory of this name with these directories in it is a trial's, finished or not.
pub fn is_trial<'a>(name: &str, dirs: impl Iterator<Item = &'a str>) -> bool {
    let known = dirs.filter(|dir| OF_A_TRIAL.contains(dir)).count();
    known >= 2 || known >= 1 && trial_name(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        assert!(is_called("results.json", RESULTS) && is_called("2025-08-15__16-23-45_results.json", RESULTS));
        assert!(!is_called("_results.json", RESULTS) && !is_called("xresults.json", RESULTS));
        assert!(is_run(["a", "r1_tb.lock"].into_iter()) && !is_run(["results.json"].into_iter()));
        assert!(is_trial("t.1-of-1", ["panes"].into_iter()) && is_trial("odd", ["panes", "sessions"].into_iter()));
        assert!(!is_trial("odd", ["panes"].into_iter()));
        // The wrapper's aggregate is not called as the harness's.
        assert!(is_called("tb_results.json", RESULTS) && is_run(["tb_results.json"].into_iter()));
    }
}
