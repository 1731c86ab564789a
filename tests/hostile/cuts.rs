//! A result cut at every byte: one trial per cut in one job.

use std::fs;

use serde_json::{Value, json};

use super::support::job::Job;
use super::{headless, walk};

/// A small result as it is when it is whole.
fn result(name: &str) -> String {
    let value = json!({
        "id": name, "task_name": format!("tasks/{name}"), "trial_name": name,
        "config": {"trial_name": name, "agent": {"name": "oracle"}},
        "verifier_result": {"rewards": {"reward": 1.0}}, "exception_info": null,
        "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:01:00Z",
    });
    serde_json::to_string_pretty(&value).unwrap()
}

fn cut_job(step: usize) -> (Job, usize) {
    let mut job = Job::begin("cuts", &[]);
    job.leave();
    // No plan: each directory is a trial of its own.
    for file in ["lock.json", "result.json"] {
        fs::remove_file(job.dir.join(file)).unwrap();
    }
    let length = result("small__00000").len();
    let mut made = 0;
    for cut in (0..=length).rev().step_by(step) {
        let name = format!("small__{cut:05}");
        let dir = job.dir.join(&name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("result.json"), &result(&name)[..cut]).unwrap();
        made += 1;
    }
    (job, made)
}

#[test]
fn a_result_cut_at_any_byte_is_never_a_result() {
    let (job, made) = cut_job(1);
    assert!(made > 300);
    let (out, code) = headless(&["tally", "--json"], &[&job.dir]);
    assert_eq!(code, 1, "something needs a person");
    let json: Value = serde_json::from_str(&out).unwrap();
    let trials = json["trials"].as_array().unwrap();
    assert_eq!(trials.len(), made, "each is a row");
    let whole: Vec<&Value> = trials.iter().filter(|t| !t["reward"].is_null()).collect();
    assert_eq!(whole.len(), 1, "{whole:?}");
    assert_eq!(json["totals"]["passed"], 1);
    assert_eq!(json["totals"]["finished"], 1);
    // Each of the others is called by its name in a warning.
    let warnings = serde_json::to_string(&json["warnings"]).unwrap();
    let missing: Vec<&str> = trials
        .iter()
        .filter(|t| t["reward"].is_null())
        .filter_map(|t| t["trial"].as_str())
        .filter(|name| !warnings.contains(*name))
        .collect();
    assert!(missing.is_empty(), "{} without a warning, such as {:?}", missing.len(), missing.first());
}

#[test]
fn cut_results_are_marked_on_the_screen() {
    let (job, _) = cut_job(60);
    walk(&job.dir);
}
