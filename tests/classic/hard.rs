//! The layout of the evaluation wrapper around terminal-bench-hard. No run of it is recorded anywhere: these are
//! made by its description.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::made::{Run, write};
use super::{json, row, warnings};

/// A run of the wrapper: two tasks, three attempts each, four trials ended.
fn made(output: &Path) -> (PathBuf, PathBuf) {
    let root = output.join("inv-1/terminal-bench-hard");
    let artifacts = root.join("artifacts");
    let mut run = Run::begin(&artifacts, "terminal-bench", &["alpha", "beta"], 3);
    let lock = fs::read(run.dir.join("tb.lock")).unwrap();
    let mut lock: Value = serde_json::from_slice(&lock).unwrap();
    lock["agent"]["extra_kwargs"] =
        json!({"max_episodes": 50, "temperature": 1.0, "max_input_tokens_per_task": 4_000_000});
    lock["run_config"]["failed_samples_policy"] = json!("score_zero");
    lock["local_config"] = Value::Null;
    write(&run.dir.join("tb.lock"), &lock);
    fs::remove_file(run.dir.join("run_metadata.json")).unwrap();
    for (k, resolved, mode) in [(1, true, "none"), (2, false, "token_limit_exceeded"), (3, false, "unsolved")] {
        run.end("alpha", k, Some(resolved), mode);
    }
    run.end("beta", 1, Some(false), "unset");
    fs::remove_file(run.dir.join("results.json")).unwrap();
    let by_name: serde_json::Map<String, Value> = run
        .results
        .iter()
        .map(|r| {
            let mut r = r.clone();
            r["trajectory_length"] = json!(7);
            (r["trial_name"].as_str().unwrap().to_string(), r)
        })
        .collect();
    write(
        &run.dir.join("tb_results.json"),
        &json!({"results": by_name, "accuracy": 0.25, "token_limit_exceeded_count": 1}),
    );
    write(
        &run.dir.join("task_status.json"),
        &json!({
            "alpha": {"status": "success", "outcome": "none", "trial_name": run.trial("alpha", 3).0},
            "beta": {"status": "success", "outcome": "none", "trial_name": run.trial("beta", 1).0},
        }),
    );
    write(&root.join("eval_factory_metrics.json"), &json!({"metrics": {"finish_reason": {"stop": 90, "length": 10}}}));
    fs::create_dir_all(root.join("logs")).unwrap();
    (root, run.dir)
}

#[test]
fn the_wrapper_is_read_from_wherever_it_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let (root, dir) = made(temp.path());
    for named in [dir.clone(), root, temp.path().join("inv-1"), temp.path().to_path_buf()] {
        let (document, _) = json("tally", &[], std::slice::from_ref(&named));
        assert_eq!(document["jobs"][0]["layout"], "terminal-bench-hard", "{}", named.display());
        assert_eq!(document["totals"]["planned"], 6);
        assert_eq!((&document["totals"]["finished"], &document["totals"]["passed"]), (&json!(4), &json!(1)));
    }
}

#[test]
fn what_its_numbers_mean_is_said() {
    let temp = tempfile::tempdir().unwrap();
    let (_, dir) = made(temp.path());
    let (document, _) = json("tally", &[], std::slice::from_ref(&dir));
    let notes = warnings(&document, "note");
    let one = |part: &str| notes.iter().find(|m| m.contains(part)).unwrap_or_else(|| panic!("no {part} in {notes:#?}"));
    let sticky = one("sticky");
    assert!(
        sticky.contains("2 of 2 tasks") && sticky.contains("1 of 4 resolved") && sticky.contains("beta"),
        "{sticky}"
    );
    assert!(one("cumulative limit").contains("4000000") && one("cumulative limit").contains("1 trials"));
    assert!(one("failed_samples_policy").contains("score_zero"));
    assert!(one("task by task").contains("4 of 6") && one("task by task").contains("2 of 2 tasks"));
    assert!(one("finish_reason length").contains("10 of 100"));
    let spent = row(&document, "alpha.2-of-3.terminal-bench");
    assert_eq!((&spent["class"], &spent["exception_type"]), (&json!("failed"), &json!("token_limit_exceeded")));
    let unsolved = row(&document, "alpha.3-of-3.terminal-bench");
    assert_eq!((&unsolved["class"], &unsolved["exception_type"]), (&json!("failed"), &Value::Null), "{unsolved}");
    // A task's success is no trial's.
    assert_eq!(row(&document, "beta.1-of-3.terminal-bench")["reward"], 0.0);
}

#[test]
fn a_trial_that_only_the_state_of_its_task_knows_is_one() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("artifacts/terminal-bench");
    fs::create_dir_all(&dir).unwrap();
    write(
        &dir.join("task_status.json"),
        &json!([{"task_id": "a", "status": "success", "trial_name": "a.1-of-1", "outcome": "none"}]),
    );
    let (document, _) = json("tally", &[], &[temp.path().to_path_buf()]);
    assert_eq!(document["totals"]["passed"], 1, "{document}");
    assert!(document.to_string().contains("sticky"));
}
