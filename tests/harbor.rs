//! The readers of Harbor's files, against recorded jobs, files that are wrong on purpose, and noise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pilothouse::harbor::{self, ProblemReason, TrialConfigFile, TrialResultFile};
use pilothouse::job::{Grade, LimitSource, ProblemKind, RewardValue, Rewards, time};
use proptest::prelude::*;
use serde_json::{Value, json};

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

fn result(value: &Value) -> TrialResultFile {
    harbor::trial_result(value.to_string().as_bytes()).unwrap()
}

/// A small result with some fields replaced.
fn with(changes: Value) -> Value {
    let mut base = json!({
        "id": "6d0c5a1e", "task_name": "demo/hello", "trial_name": "hello__AAAAAAA",
        "config": {"task": {"path": "tasks/hello"}, "agent": {"name": "oracle"}},
        "verifier_result": {"rewards": {"reward": 1.0}},
        "started_at": "2026-08-30T15:44:31.000001Z", "finished_at": "2026-08-30T15:50:31.000001Z",
    });
    for (key, value) in changes.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

#[test]
fn every_recorded_trial_equals_the_truth() {
    let Some(shared) = support::shared() else { return };
    let data = shared.join("data");
    let mut seen = 0;
    for (job, facts) in truth(&data) {
        for (trial, truth) in facts["trials"].as_object().unwrap() {
            let dir = data.join("jobs").join(&job).join(trial);
            let path = dir.join("result.json");
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
            // The config inside the result and the one beside it name the same things.
            let beside = harbor::trial_config(&fs::read(dir.join("config.json")).unwrap()).unwrap();
            assert_eq!(
                (&beside.task, &beside.agent, &beside.model, &beside.limits.agent_override),
                (&file.config.task, &file.config.agent, &file.config.model, &file.config.limits.agent_override),
                "{at}"
            );
            // exception.txt tells the same type before the result does.
            if let (Ok(text), Some(exception)) = (fs::read(dir.join("exception.txt")), &result.exception) {
                assert_eq!(harbor::exception_kind(&text).as_deref(), Some(&*exception.kind), "{at}");
            }
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}

#[test]
fn labelled_exceptions_are_named_early() {
    let Some(shared) = support::shared() else { return };
    let mut seen = 0;
    for dir in fs::read_dir(shared.join("data/labelled/job")).unwrap().map(|e| e.unwrap().path()) {
        let Ok(bytes) = fs::read(dir.join("result.json")) else { continue };
        let result = harbor::trial_result(&bytes).unwrap().result;
        if let (Ok(text), Some(exception)) = (fs::read(dir.join("exception.txt")), &result.exception) {
            assert_eq!(harbor::exception_kind(&text).as_deref(), Some(&*exception.kind), "{dir:?}");
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn an_embedded_traceback_is_not_taken_for_the_exception() {
    let kind = |text: &str| harbor::exception_kind(text.as_bytes()).map(|k| k.to_string());
    let trace = "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n    f()\n";
    let error = "harbor.errors.NonZeroAgentExitCodeError: Command failed\nstdout: None\n";
    assert_eq!(kind(&format!("{trace}{error}{trace}KeyError: 'inner'\n")).unwrap(), "NonZeroAgentExitCodeError");
    let chain = "\nDuring handling of the above exception, another exception occurred:\n\n";
    assert_eq!(kind(&format!("{trace}KeyError: 1\n{chain}{trace}{error}")).unwrap(), "NonZeroAgentExitCodeError");
    assert_eq!(kind(&format!("{trace}asyncio.exceptions.CancelledError\n")).unwrap(), "CancelledError");
    assert_eq!(kind("    cut off above\n  File \"y.py\", line 2\n    g()\nValueError: late\n").unwrap(), "ValueError");
    let group = "  + Exception Group Traceback (most recent call last):\n  |   File \"z.py\", line 3\n  | ExceptionGroup: two (2 sub-exceptions)\n  +-+---- 1 ----\n    | Traceback (most recent call last):\n    | KeyError: 1\n";
    assert_eq!(kind(group).unwrap(), "ExceptionGroup");
    assert_eq!(kind("\u{1b}[31mboom"), None);
    assert_eq!(kind(""), None);
}

#[test]
fn job_files_tell_plan_and_version() {
    let Some(shared) = support::shared() else { return };
    let data = shared.join("data");
    for (job, truth) in truth(&data) {
        let dir = data.join("jobs").join(&job);
        let read = |name: &str| fs::read(dir.join(name)).ok();
        let (config, lock, result) = (read("config.json"), read("lock.json"), read("result.json"));
        let facts = harbor::job_facts(&dir, config.as_deref(), lock.as_deref(), result.as_deref());
        assert_eq!(facts.problems, Vec::new(), "{job}");
        assert_eq!(facts.n_planned().map(|(n, _)| n), truth["n_planned"].as_u64(), "{job}");
        assert_eq!(facts.harbor_version.as_deref(), truth["harbor_version"].as_str(), "{job}");
        assert_eq!(facts.agents.len(), 1, "{job}");
        assert!(facts.created.is_some() && facts.n_concurrent.is_some(), "{job}");
        // Every trial's task is one of the planned tasks, under the same key.
        let planned = facts.planned.as_ref().unwrap();
        for (trial, _) in truth["trials"].as_object().unwrap() {
            if let Ok(bytes) = fs::read(dir.join(trial).join("config.json")) {
                let config = harbor::trial_config(&bytes).unwrap();
                let same = |p: &&pilothouse::job::Planned| {
                    Some(&p.task) == config.task.as_ref() && p.agent == config.agent && p.model == config.model
                };
                assert!(planned.iter().any(|p| same(&p)), "{job}/{trial}");
            }
        }
        // A torn or empty file keeps what was known.
        let cut = lock.as_deref().map(|l| &l[..l.len() / 2]);
        let (torn, parsed) = harbor::job_facts_parsed(&dir, config.as_deref(), cut, Some(b""));
        assert_eq!((parsed.config, parsed.lock, parsed.result), (true, false, false));
        assert!(torn.problems.iter().all(|p| p.kind == ProblemKind::Unreadable) && torn.problems.len() == 2);
        let mut merged = harbor::merge_last_good(&facts, torn, parsed);
        merged.problems.clear();
        assert_eq!(merged, facts, "{job}");
    }
    let b26 = data.join("jobs/b26-terminus2-mix-0.26.0");
    let facts = harbor::job_facts(&b26, None, None, fs::read(b26.join("result.json")).ok().as_deref());
    let means = facts.summary.unwrap().means;
    assert_eq!(means.keys().map(|k| &**k).collect::<Vec<_>>(), ["terminus-2__scripted-1__tasks"]);
    assert!((means.values().next().unwrap() - 0.6538).abs() < 1e-3);
}

#[test]
fn both_generations_of_job_stats() {
    let dir = Path::new("/jobs/j");
    let facts = |text: &str| harbor::job_facts(dir, Some(b"{}"), None, Some(text.as_bytes()));
    let old = facts(
        r#"{"id": "x", "started_at": "2026-08-30T23:44:31", "n_total_trials": 178, "trial_results": [{"a": [1]}],
            "status": {"n_running_trials": 2, "updated_at": "2026-08-30T23:50:00Z"},
            "stats": {"n_trials": 9, "n_errors": 3, "evals": {"k": {"metrics": [{"accuracy": 0.5}]}, "none": {"metrics": []}}}}"#,
    );
    let summary = old.summary.unwrap();
    assert_eq!((summary.n_completed, summary.n_errored, summary.n_running), (Some(9), Some(3), Some(2)));
    assert_eq!(summary.means, BTreeMap::from([(Arc::from("k"), 0.5)]));
    assert_eq!(summary.updated, time::parse("2026-08-30T23:50:00Z").map(|t| t.at));
    assert_eq!(old.created, summary.started);
    assert_eq!(facts(r#"{"status":"ok","score":12,"items":[]}"#).problems[0].kind, ProblemKind::Foreign);
    assert_eq!(facts("\u{feff}{\"stats\": {}}").problems[0].kind, ProblemKind::Note);
    let torn = facts("{\n\"id\": \"x\",\n\"stats\": {");
    assert_eq!(&*torn.problems[0].path, "/jobs/j/result.json:3");
    assert_eq!(torn.summary, None);
}

#[test]
fn broken_files_say_why() {
    let Some(shared) = support::shared() else { return };
    let hostile = shared.join("data/hostile");
    let read = |name: &str| fs::read(hostile.join(name).join("result.json")).unwrap();
    for (name, kind) in [
        ("broken-json/empty__AAAAAAA", ProblemReason::Empty),
        ("broken-json/half__AAAAAAA", ProblemReason::Torn),
        ("broken-json/html__AAAAAAA", ProblemReason::NotJson),
        ("broken-json/trailing__AAAAAAA", ProblemReason::NotJson),
        ("broken-json/array__AAAAAAA", ProblemReason::Foreign),
        ("broken-json/string__AAAAAAA", ProblemReason::Foreign),
        // 100,000 brackets that open and never close.
        ("broken-json/deep__AAAAAAA", ProblemReason::Torn),
        ("broken-json/dup__AAAAAAA", ProblemReason::Foreign),
        ("foreign-dirs/another-program", ProblemReason::Foreign),
    ] {
        let problem = harbor::trial_result(&read(name)).unwrap_err();
        assert_eq!(problem.kind, kind, "{name}: {problem}");
        assert_eq!(problem.may_heal(), matches!(kind, ProblemReason::Empty | ProblemReason::Torn));
    }
    let trailing = harbor::trial_result(&read("broken-json/trailing__AAAAAAA")).unwrap_err();
    assert_eq!((trailing.line, trailing.column), (2, 1), "{trailing}");
    let latin1 = harbor::trial_result(&read("broken-json/latin1__AAAAAAA")).unwrap();
    assert_eq!(&*latin1.result.task_name, "demo/h\u{fffd}llo");
    assert!(latin1.notes[0].contains("UTF-8"), "{:?}", latin1.notes);
    assert_eq!(&*harbor::trial_result(&read("broken-json/bom__AAAAAAA")).unwrap().result.task_name, "demo/hello");
}

#[test]
fn odd_rewards_stay_visible() {
    let Some(shared) = support::shared() else { return };
    let read = |name: &str| {
        let path = shared.join(format!("data/hostile/rewards/{name}__AAAAAAA/result.json"));
        harbor::trial_result(&fs::read(path).unwrap()).unwrap()
    };
    let primary = |name: &str| read(name).result.rewards.primary();
    assert_eq!(primary("frac"), Some(0.333333));
    assert_eq!(primary("neg"), Some(-1.0));
    assert_eq!(read("huge").result.grade(), Grade::Failed);
    assert_eq!(read("null").result.rewards, Rewards::None);
    assert_eq!(read("empty").result.rewards, Rewards::Keys(vec![]));
    assert_eq!(read("multi").result.rewards.entries().len(), 2);
    assert_eq!(primary("multi"), None);
    for (name, shown) in [("nan", "NaN"), ("str", "\"1.0\"")] {
        let file = read(name);
        assert_eq!(file.result.rewards.entries()[0].1, RewardValue::Unreadable(shown.into()), "{name}");
        assert!(file.notes.iter().any(|n| n.contains(shown)), "{:?}", file.notes);
        assert!(!file.result.is_phantom());
    }
    let infinite = br#"{"id":"a","task_name":"t","verifier_result":{"rewards":{"reward":-Infinity,"NaN":1e999}}}"#;
    let file = harbor::trial_result(infinite).unwrap();
    let texts: Vec<&RewardValue> = file.result.rewards.entries().iter().map(|(_, v)| v).collect();
    assert_eq!(texts, [&RewardValue::Unreadable("-Infinity".into()), &RewardValue::Unreadable("1e999".into())]);
    assert_eq!(result(&with(json!({"verifier_result": {"reward": 1.0}}))).result.rewards.primary(), Some(1.0));
    let flag = result(&with(json!({"verifier_result": {"rewards": {"reward": true}}}))).result;
    assert_eq!(flag.rewards.entries()[0].1, RewardValue::Unreadable("true".into()));
    assert!(!result(&with(json!({"verifier_result": {"rewards": 1.0}}))).result.is_phantom());
}

#[test]
fn odd_times_and_texts_cost_one_field() {
    let Some(shared) = support::shared() else { return };
    let read = |name: &str| {
        let path = shared.join(format!("data/hostile/{name}__AAAAAAA/result.json"));
        harbor::trial_result(&fs::read(path).unwrap()).unwrap()
    };
    let garbage = read("times/garbage");
    assert_eq!(garbage.result.started, None);
    assert!(garbage.result.finished.is_some());
    assert_eq!(garbage.notes, ["started_at: \"yesterday\" is not a time"]);
    assert_eq!(read("times/null").notes, Vec::<String>::new());
    assert_eq!(read("times/backwards").notes, ["finished_at is before started_at"]);
    assert_eq!(read("times/offset").result.started, time::parse("2026-08-30T15:44:31Z").map(|t| t.at));
    assert!(read("times/naive").notes[0].contains("zone"));
    assert!(read("times/future").result.finished.is_some());
    assert!(read("phantom-and-cancelled/phantom").result.is_phantom());
    assert!(read("phantom-and-cancelled/cancel").result.is_cancelled());
    assert_eq!(read("phantom-and-cancelled/timeout-solved").result.grade(), Grade::Passed);
    let begun = Instant::now();
    let big = read("phantom-and-cancelled/bigmsg").result.exception.unwrap();
    assert!(begun.elapsed().as_millis() < 500, "{:?}", begun.elapsed());
    assert_eq!(big.message.chars().count(), 400);
    assert!(!big.message.contains("sk-test"), "{}", big.message);
    for name in ["esc", "long", "nul", "rtl", "wide"] {
        assert!(!read(&format!("ansi-and-wide-names/{name}")).result.task_name.is_empty());
    }
}

#[test]
fn wrong_types_never_fail_a_result() {
    let odd = [json!(null), json!(true), json!(-7), json!(1.5), json!("x"), json!([1, {"a": 2}]), json!({"b": [3]})];
    let full = with(json!({
        "agent_info": {"name": "a", "model_info": {"name": "m", "provider": "p"}}, "task_checksum": "00", "source": "s",
        "agent_result": {"n_input_tokens": 1, "metadata": {"n_episodes": 2}}, "reward_valid": true,
        "exception_info": {"exception_type": "E", "exception_message": "m"}, "step_results": [],
        "environment_setup": {}, "agent_setup": {}, "agent_execution": {}, "verifier": {}, "task_id": {},
    }));
    for key in full.as_object().unwrap().keys().filter(|k| *k != "task_name") {
        for value in &odd {
            let mut changed = full.clone();
            changed[key] = value.clone();
            assert_eq!(&*result(&changed).result.task_name, "demo/hello", "{key} {value}");
        }
    }
    let file = result(&with(json!({"agent_result": {"n_input_tokens": -3, "n_output_tokens": "7", "cost_usd": []}})));
    assert!(file.result.tokens.is_unknown());
    assert_eq!(file.notes.len(), 3, "{:?}", file.notes);
    let named = result(&with(
        json!({"config": null, "agent_info": {"name": "a", "model_info": {"name": "m", "provider": "p"}}}),
    ));
    assert_eq!(named.config.model.as_deref(), Some("p/m"));
    assert_eq!(named.config.task.as_deref(), Some("hello"));
    assert_eq!(harbor::trial_result(br#"{"task_name": 5, "id": "x"}"#).unwrap_err().kind, ProblemReason::Foreign);
    // The last of equal keys counts, as in Python; a lone surrogate is replaced.
    let twice = br#"{"id": "a", "task_name": "one", "task_name": "t\ud800wo"}"#;
    assert_eq!(&*harbor::trial_result(twice).unwrap().result.task_name, "t\u{fffd}wo");
}

#[test]
fn secrets_at_the_edge_of_a_message_are_masked() {
    let exception = |message: String| {
        let info = json!({"exception_type": "RuntimeError", "exception_message": message});
        result(&with(json!({"exception_info": info}))).result.exception.unwrap().message
    };
    for lead in 380..402 {
        let message =
            exception(format!("{} OPENAI_API_KEY=sk-proj-abcdefghijklmnop {}", "x".repeat(lead), "y ".repeat(9000)));
        assert!(!message.contains("abc"), "{message}");
        assert!(message.chars().count() <= 400);
    }
    // So many secrets before it that the masked text reaches the end of what was searched.
    let many = exception(format!("{}{}", "sk-abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop ".repeat(300), "z"));
    assert!(!many.contains("sk-"), "{many}");
    assert_eq!(exception(String::new()).len(), 0);
}

#[test]
fn every_truncation_is_an_error_or_the_same() {
    let Some(shared) = support::shared() else { return };
    let dir = shared.join("data/jobs/b26-terminus2-mix-0.26.0");
    let trial =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).find(|p| p.to_string_lossy().contains("half-done"));
    let bytes = fs::read(trial.unwrap().join("result.json")).unwrap();
    let whole = harbor::trial_result(&bytes).unwrap();
    for end in 0..bytes.len() {
        match harbor::trial_result(&bytes[..end]) {
            Ok(file) => assert_eq!(file, whole, "{end}"),
            Err(problem) => assert!(problem.may_heal(), "{end}: {problem:?}"),
        }
    }
    for name in ["config.json", "lock.json", "result.json"] {
        let bytes = fs::read(dir.join(name)).unwrap();
        for end in (0..bytes.len()).step_by(397) {
            let cut = Some(&bytes[..end]);
            let facts = harbor::job_facts(&dir, cut, cut, cut);
            assert!(!facts.problems.is_empty());
        }
    }
}

#[test]
fn huge_inputs_stay_cheap() {
    let begun = Instant::now();
    let line = "x".repeat(10_000_000);
    let ids = vec!["123456, 7.5e-3"; 700_000].join(", ");
    let text = format!(
        r#"{{"id": "a", "task_name": "t", "other": "{line}", "agent_result": {{"n_input_tokens": 5,
            "rollout_details": [{{"prompt_token_ids": [[{ids}]]}}], "metadata": {{"all_messages": ["{line}"]}}}}}}"#
    );
    assert_eq!(harbor::trial_result(text.as_bytes()).unwrap().result.tokens.input, Some(5));
    assert!(harbor::trial_result(line.as_bytes()).is_err());
    assert!(harbor::trial_config(line.as_bytes()).is_err());
    for open in ["[", "{\"a\":", "{\"config\":{\"agent\":{\"kwargs\":", "{\"steps\":[{\"observation\":"] {
        let deep = open.repeat(100_000);
        assert!(harbor::trial_result(deep.as_bytes()).is_err());
        assert!(harbor::trial_config(deep.as_bytes()).is_err());
        assert!(harbor::ctrf::ctrf(deep.as_bytes()).is_err());
        assert!(harbor::manifest::manifest(deep.as_bytes()).is_err());
        harbor::reward_json(deep.as_bytes());
        assert!(!harbor::job_facts(Path::new("j"), Some(deep.as_bytes()), None, None).problems.is_empty());
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn limits_follow_the_rule() {
    let task = harbor::task_toml(
        "[task]\nname = \"o/t\"\n[agent]\ntimeout_sec = 900\n[verifier]\ntimeout_sec = 30.0\n[environment]\nbuild_timeout_sec = 60.0\n",
    )
    .unwrap();
    let mut config = TrialConfigFile { agent: Some("terminus-2".into()), ..TrialConfigFile::default() };
    let limits = harbor::limits(&config, Some(&task));
    assert_eq!((limits.environment, limits.agent_setup), (Some(60.0), Some(360.0)));
    assert_eq!((limits.agent, limits.verifier, limits.source), (Some(900.0), Some(30.0), LimitSource::TaskToml));
    // The multiplier comes after the cap, so that the cap can be exceeded; 0 is no override.
    config.limits.multiplier = Some(2.0);
    config.limits.agent_multiplier = Some(3.0);
    config.limits.agent_max = Some(500.0);
    config.limits.agent_override = Some(0.0);
    let limits = harbor::limits(&config, Some(&task));
    assert_eq!((limits.agent, limits.verifier, limits.environment), (Some(1500.0), Some(60.0), Some(120.0)));
    // Without the task's file only what every task has is known.
    let limits = harbor::limits(&config, None);
    assert_eq!((limits.agent, limits.environment, limits.source), (None, None, LimitSource::Unknown));
    config.limits.agent_override = Some(100.0);
    let limits = harbor::limits(&config, None);
    assert_eq!((limits.agent, limits.source), (Some(300.0), LimitSource::Config));
    let bare = harbor::task_toml("").unwrap();
    let limits = harbor::limits(&TrialConfigFile::default(), Some(&bare));
    assert_eq!((limits.environment, limits.agent, limits.verifier), (Some(600.0), None, Some(600.0)));

    let problem = harbor::task_toml("[agent]\n  timeout_sec = = 3\n").unwrap_err();
    assert_eq!((problem.kind, problem.line), (ProblemReason::NotJson, 2), "{problem}");
    let from = harbor::limit_from_message;
    assert_eq!(from("Agent execution timed out after 900.0 seconds"), Some(900.0));
    assert_eq!(from("Agent setup timed out after 360 seconds."), Some(360.0));
    assert_eq!(from("timed out after a while"), None);
    assert_eq!(from("timed out after 5"), None);
}

#[test]
fn limits_of_recorded_tasks_equal_the_messages() {
    let Some(shared) = support::shared() else { return };
    let data = shared.join("data");
    let mut seen = 0;
    for job in ["b-terminus2-mix-0.21.0", "b26-terminus2-mix-0.26.0"] {
        let job_dir = data.join("jobs").join(job);
        for trial in fs::read_dir(&job_dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
            let file = harbor::trial_result(&fs::read(trial.join("result.json")).unwrap()).unwrap();
            // The tasks lie beside the recorded jobs, as they did when the job was started.
            let places = harbor::task_dir_candidates(&file.config, &job_dir, None, None);
            let toml = places.iter().map(|p| p.join("task.toml")).find(|p| p.is_file()).unwrap();
            let task = harbor::task_toml(&fs::read_to_string(toml).unwrap()).unwrap();
            let limits = harbor::limits(&file.config, Some(&task));
            if let Some(stated) = file.result.exception.as_ref().and_then(|e| harbor::limit_from_message(&e.message)) {
                let verifier = file.result.exception.as_ref().unwrap().kind.starts_with("Verifier");
                assert_eq!(if verifier { limits.verifier } else { limits.agent }, Some(stated), "{trial:?}");
                seen += 1;
            }
            if &*file.result.task_name == "fixture/two-steps" {
                assert_eq!((task.steps.len(), limits.agent, limits.verifier), (2, Some(60.0), Some(30.0)));
                assert_eq!(harbor::limits_of_step(&file.config, &task, "first").agent, Some(60.0));
            }
        }
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn tasks_are_looked_for_where_they_may_lie() {
    let config = |text: &str| harbor::trial_config(text.as_bytes()).unwrap();
    let places = |text: &str| {
        harbor::task_dir_candidates(&config(text), Path::new("/r/jobs/j"), Some(Path::new("/w")), Some(Path::new("/h")))
    };
    let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(
        places(r#"{"task": {"path": "tasks/a"}}"#),
        paths(&[
            "/r/jobs/tasks/a",
            "/r/tasks/a",
            "/tasks/a",
            "/w/tasks/a",
            "/r/jobs/j/tasks/a",
            "/h/.cache/harbor/tasks/a"
        ])
    );
    assert_eq!(places(r#"{"task": {"path": "/t/a/"}}"#), paths(&["/t/a/", "/h/.cache/harbor/tasks/a"]));
    let package = config(
        r#"{"task": {"name": "org/a", "ref": "x"}, "agent": {"import_path": "m:C", "kwargs": {"api_base": "http://u:secret1@h/v1"}}}"#,
    );
    assert_eq!((package.task.as_deref(), package.agent.as_deref()), (Some("a"), Some("m:C")));
    assert_eq!(package.api_base.as_deref(), Some("http://u:[masked]@h/v1"));
    assert_eq!(
        harbor::task_cache(&package, Path::new("/h")).unwrap(),
        (PathBuf::from("/h/.cache/harbor/tasks"), "a".into())
    );
    assert_eq!(config(r#"{"task": {"git_url": "https://x/y/b.git"}}"#).task.as_deref(), Some("b"));
    assert_eq!(harbor::trial_config(b"{}").unwrap_err().kind, ProblemReason::Foreign);
}

#[test]
fn early_rewards() {
    let one = |value: RewardValue| Rewards::Keys(vec![(Arc::from("reward"), value)]);
    assert_eq!(harbor::reward_txt(b"1.0\n"), one(RewardValue::Number(1.0)));
    assert_eq!(harbor::reward_txt(b" \n"), Rewards::None);
    assert_eq!(harbor::reward_txt(b"nan"), one(RewardValue::Unreadable("nan".into())));
    assert_eq!(harbor::reward_txt(b"passed"), one(RewardValue::Unreadable("passed".into())));
    assert_eq!(harbor::reward_json(br#"{"a": 1, "reward": 0.5}"#).primary(), Some(0.5));
    assert_eq!(harbor::reward_json(br#"{"a": 1, "rew"#), Rewards::None);
    assert_eq!(harbor::reward_json(b"").primary(), None);
    assert_eq!(harbor::reward_json(b"0.5"), one(RewardValue::Unreadable("0.5".into())));
    assert_eq!(harbor::reward_json(br#"{"x": NaN}"#).entries()[0].1, RewardValue::Unreadable("NaN".into()));
}

#[test]
fn test_reports_and_manifests() {
    let Some(shared) = support::shared() else { return };
    let path = shared.join("data/labelled/job/verifier-tests-ran-and-failed__4KF3VM5/verifier/ctrf.json");
    let report = harbor::ctrf::ctrf(&fs::read(path).unwrap()).unwrap();
    assert_eq!((report.counts.tests, report.counts.passed, report.counts.failed), (3, 2, 1));
    assert_eq!(report.cases[2].status, harbor::ctrf::CaseStatus::Failed);
    let bare = harbor::ctrf::ctrf(br#"{"results": {"tests": [{"name": "a", "status": "passed", "duration": 12}, 7]}}"#);
    let bare = bare.unwrap();
    assert_eq!((bare.counts.tests, bare.counts.passed, bare.cases[0].duration_ms), (2, 1, Some(12.0)));
    assert_eq!(harbor::ctrf::ctrf(b"[]").unwrap_err().kind, ProblemReason::Foreign);
    let mut seen = 0;
    for (job, facts) in truth(&shared.join("data")) {
        for (trial, _) in facts["trials"].as_object().unwrap() {
            let path = shared.join("data/jobs").join(&job).join(trial).join("artifacts/manifest.json");
            let Ok(bytes) = fs::read(path) else { continue };
            let list = harbor::manifest::manifest(&bytes).unwrap();
            // Where the container never ran, the entry is a file that could not be had.
            let as_told = |a: &harbor::manifest::Artifact| a.is_dir == (a.status != "failed");
            assert!(list.iter().all(|a| a.source == "/logs/artifacts" && as_told(a)), "{job}/{trial}");
            seen += list.len();
        }
    }
    assert!(seen > 100, "{seen}");
    assert_eq!(harbor::manifest::manifest(b"{}").unwrap_err().kind, ProblemReason::Foreign);
}

/// Bytes that look enough like JSON to get past the first characters.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\u",
        "\\ud800",
        "\"task_name\":\"t\"",
        "\"id\":\"i\"",
        "\"config\":{",
        "\"steps\":[",
        "\"rewards\":",
        "NaN",
        "-Infinity",
        "null",
        "true",
        "1e999",
        "-0",
        "\u{e9}",
        "\"results\":",
        "\"stats\":",
        "\"trials\":",
        "\"task\":{",
        "Traceback (most recent call last):\n",
        "  File \"",
        "\n",
        " ",
        "\"message\":",
        "\"metrics\":{",
    ]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(words, 0..60).prop_map(|w| w.concat().into_bytes()),
    ]
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in soup()) {
        let _ = harbor::trial_result(&bytes);
        let _ = harbor::trial_config(&bytes);
        let _ = harbor::job_facts(Path::new("/j"), Some(&bytes), Some(&bytes), Some(&bytes));
        let _ = harbor::task_toml(&String::from_utf8_lossy(&bytes));
        let _ = (harbor::reward_txt(&bytes), harbor::reward_json(&bytes), harbor::exception_kind(&bytes));
        let _ = (harbor::ctrf::ctrf(&bytes), harbor::manifest::manifest(&bytes));
        let _ = harbor::limit_from_message(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn ten_thousand_trials_parse_in_a_moment() {
    let Some(shared) = support::shared() else { return };
    let dir = shared.join("data/jobs/b26-terminus2-mix-0.26.0");
    let trial =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).find(|p| p.to_string_lossy().contains("hello-file"));
    let bytes = fs::read(trial.unwrap().join("result.json")).unwrap();
    let begun = Instant::now();
    for _ in 0..10_000 {
        assert!(harbor::trial_result(&bytes).is_ok());
    }
    let results = begun.elapsed();
    let mut lock: Value = serde_json::from_slice(&fs::read(dir.join("lock.json")).unwrap()).unwrap();
    let one = lock["trials"].as_array().unwrap().clone();
    lock["trials"] = one.iter().cycle().take(10_000).cloned().collect();
    let text = serde_json::to_vec_pretty(&lock).unwrap();
    let begun = Instant::now();
    let facts = harbor::job_facts(&dir, None, Some(&text), None);
    let plan = begun.elapsed();
    assert_eq!(facts.n_planned(), Some((10_000, "lock.json")));
    println!("10,000 results of {} bytes: {results:?}; lock of {} kB: {plan:?}", bytes.len(), text.len() / 1000);
    // Without optimisation some twenty times slower.
    let slack = if cfg!(debug_assertions) { 20 } else { 1 };
    assert!(results.as_millis() < 1000 * slack && plan.as_millis() < 500 * slack);
}

#[test]
fn every_hostile_job_dir_gives_facts() {
    let Some(shared) = support::shared() else { return };
    let mut seen = 0;
    for dir in fs::read_dir(shared.join("data/hostile")).unwrap().map(|e| e.unwrap().path()) {
        let read = |name: &str| fs::read(dir.join(name)).ok();
        let Some(result) = read("result.json") else { continue };
        let facts = harbor::job_facts(&dir, read("config.json").as_deref(), None, Some(&result));
        // Without a config the directory's name is the job's.
        assert_eq!(&*facts.name, dir.file_name().unwrap().to_str().unwrap());
        let (planned, file) = facts.n_planned().unwrap();
        assert!(planned > 0 && file == "result.json");
        let kinds: Vec<ProblemKind> = facts.problems.iter().map(|p| p.kind).collect();
        let wanted = if facts.name.contains("no-config") { vec![ProblemKind::Missing] } else { vec![] };
        assert_eq!(kinds, wanted, "{dir:?}");
        seen += 1;
    }
    assert_eq!(seen, 7);
}
