//! Generated jobs are what they say they are, read by the program itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use support::generate::{finished_job, running_job, trial_name};

fn tally(dir: &std::path::Path) -> serde_json::Value {
    let out = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["tally", "--json"])
        .arg(dir)
        .env("PILOTHOUSE_STATE_DIR", dir.parent().unwrap().join("state"))
        .output()
        .unwrap();
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)))
}

#[test]
fn a_finished_job_counts_as_it_was_made() {
    let tmp = tempfile::tempdir().unwrap();
    let made = finished_job(&tmp.path().join("big"), 200);
    assert_eq!((made.planned, made.finished, made.passed, made.graded, made.errored), (200, 200, 116, 188, 28));
    let json = tally(&made.dir);
    let totals = &json["totals"];
    assert_eq!(totals["planned"], 200);
    assert_eq!(totals["finished"], 200);
    assert_eq!(totals["passed"], 116);
    assert_eq!(totals["graded"], 188);
    assert_eq!(totals["errored"], 28);
    assert_eq!(totals["unreadable"], 0);
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(0), "{}", json["warnings"]);
    let size = std::fs::metadata(made.dir.join(trial_name(0)).join("result.json")).unwrap().len();
    assert!((3500..5500).contains(&size), "{size} bytes");
}

#[test]
fn a_running_job_has_running_trials() {
    let tmp = tempfile::tempdir().unwrap();
    let made = running_job(&tmp.path().join("big"), 20, 8);
    assert_eq!(made.running.len(), 8);
    let json = tally(&made.dir);
    assert_eq!(json["totals"]["planned"], 28);
    assert_eq!(json["totals"]["finished"], 20);
    let running = json["trials"].as_array().unwrap().iter().filter(|t| t["phase"] == "agent_running").count();
    assert_eq!(running, 8);
}

#[test]
fn names_do_not_repeat() {
    let names: BTreeSet<String> = (0..10_000).map(trial_name).collect();
    assert_eq!(names.len(), 10_000);
}
