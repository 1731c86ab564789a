//! The readers of Harbor's files, against recorded jobs, files that are wrong on purpose, and noise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use pilothouse::harbor::{self, ProblemReason};
use pilothouse::job::{RewardValue, Rewards, time};
use serde_json::Value;

fn trials_with(root: &Path, file: &str) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).filter(|p| p.join(file).is_file()).collect();
    out.sort();
    out
}

fn truth(data: &Path) -> serde_json::Map<String, Value> {
    let text = fs::read(data.join("jobs/truth.json")).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap().as_object().unwrap().clone()
}

/// A list stands for the steps of a multi-step trial.
fn sum(value: &Value) -> Option<u64> {
    match value {
        Value::Array(steps) => steps.iter().filter_map(Value::as_u64).reduce(|a, b| a + b),
        other => other.as_u64(),
    }
}

#[test]
fn every_recorded_trial_equals_the_truth() {
    let Some(shared) = support::shared() else { return };
    let data = shared.join("data");
    let mut seen = 0;
    for (job, facts) in truth(&data) {
        for (trial, truth) in facts["trials"].as_object().unwrap() {
            let path = data.join("jobs").join(&job).join(trial).join("result.json");
            if truth["result"] != Value::Bool(true) {
                assert!(!path.exists());
                continue;
            }
            let file = harbor::trial_result(&fs::read(&path).unwrap()).unwrap();
            let result = &file.result;
            let at = format!("{job}/{trial}");
            assert_eq!(&*result.task_name, truth["task_name"].as_str().unwrap(), "{at}");
            match &truth["rewards"] {
                Value::Null => assert_eq!(result.rewards, Rewards::None, "{at}"),
                Value::Object(map) => {
                    assert_eq!(result.rewards.entries().len(), map.len(), "{at}");
                    for (key, value) in result.rewards.entries() {
                        assert_eq!(value, &RewardValue::Number(map[&**key].as_f64().unwrap()), "{at}");
                    }
                }
                other => panic!("{other}"),
            }
            let mut exceptions: Vec<&str> = result.exception.iter().map(|e| &*e.kind).collect();
            exceptions.extend(result.step_exceptions.iter().map(|k| &**k));
            let wanted: Vec<&str> =
                truth["exceptions"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
            assert_eq!(exceptions, wanted, "{at}");
            assert_eq!(result.tokens.input, sum(&truth["n_input_tokens"]), "{at}");
            assert_eq!(result.tokens.cache, sum(&truth["n_cache_tokens"]), "{at}");
            assert_eq!(result.tokens.output, sum(&truth["n_output_tokens"]), "{at}");
            assert_eq!(result.n_episodes.map(u64::from), sum(&truth["n_episodes"]), "{at}");
            let finished = truth["finished_at"].as_str().and_then(time::parse).map(|t| t.at);
            assert_eq!(result.finished, finished, "{at}");
            assert_eq!(file.notes, Vec::<String>::new(), "{at}");
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}

#[test]
fn job_files_tell_plan_and_version() {
    let Some(shared) = support::shared() else { return };
    let data = shared.join("data");
    for (job, truth) in truth(&data) {
        let dir = data.join("jobs").join(&job);
        let read = |name: &str| fs::read(dir.join(name)).ok();
        let facts = harbor::job_facts(
            &dir,
            read("config.json").as_deref(),
            read("lock.json").as_deref(),
            read("result.json").as_deref(),
        );
        assert_eq!(facts.problems, Vec::new(), "{job}");
        assert_eq!(facts.n_planned().map(|(n, _)| n), truth["n_planned"].as_u64(), "{job}");
        assert_eq!(facts.harbor_version.as_deref(), truth["harbor_version"].as_str(), "{job}");
    }
}

#[test]
fn hostile_results_are_marked_not_fatal() {
    let Some(shared) = support::shared() else { return };
    let hostile = shared.join("data/hostile");
    for (path, kind) in [
        ("empty", ProblemReason::Empty),
        ("half", ProblemReason::Torn),
        ("html", ProblemReason::NotJson),
        ("trailing", ProblemReason::NotJson),
        ("array", ProblemReason::Foreign),
        ("string", ProblemReason::Foreign),
        ("deep", ProblemReason::Torn),
        ("dup", ProblemReason::Foreign),
    ] {
        let bytes = fs::read(hostile.join(format!("broken-json/{path}__AAAAAAA/result.json"))).unwrap();
        let problem = harbor::trial_result(&bytes).unwrap_err();
        assert_eq!(problem.kind, kind, "{path}: {problem}");
        assert!(!problem.message.is_empty());
    }
}
