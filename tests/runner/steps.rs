//! Trials of several steps.

use std::fs;
use std::path::PathBuf;

use pilothouse::scheduler::Finished;

use crate::yard::{PASS, Yard, find, json, nothing, trial_dir, until};

/// A step: name, solution, test, lines of its table.
type Step<'a> = (&'a str, &'a str, &'a str, &'a str);

fn task(mut yard: Yard, name: &str, head: &str, steps: &[Step<'_>]) -> Yard {
    let dir = yard.temp.path().join("tasks").join(name);
    fs::create_dir_all(dir.join("environment")).unwrap();
    fs::write(dir.join("environment/Dockerfile"), "FROM scratch\n").unwrap();
    let mut toml = format!("schema_version = \"1.1\"\n{head}\n");
    for (step, solve, test, table) in steps {
        toml += &format!("[[steps]]\nname = \"{step}\"\n{table}\n");
        let at = dir.join("steps").join(step);
        for sub in ["tests", "solution", "workdir"] {
            fs::create_dir_all(at.join(sub)).unwrap();
        }
        fs::write(at.join("instruction.md"), format!("Do {step}.\n")).unwrap();
        fs::write(at.join("solution/solve.sh"), format!("#!/bin/bash\n{solve}\n")).unwrap();
        fs::write(at.join("tests/test.sh"), format!("#!/bin/bash\n{test}\n")).unwrap();
    }
    fs::write(dir.join("task.toml"), toml).unwrap();
    yard.tasks.push(dir);
    yard
}

fn reward(text: &str) -> String {
    format!("echo '{text}' > \"$LOGS_DIR/verifier/reward.json\"")
}

fn setup(yard: &Yard, task: &str, step: &str, script: &str) {
    let path: PathBuf = yard.temp.path().join("tasks").join(task).join("steps").join(step).join("workdir/setup.sh");
    fs::write(path, script).unwrap();
}

#[test]
fn steps_are_graded_one_by_one_and_make_one_reward() {
    let (half, one, two_keys) =
        (reward(r#"{"reward": 0.5}"#), reward(r#"{"reward": 1}"#), reward(r#"{"reward": 1, "b": 1}"#));
    let low = "min_reward = 0.9";
    let by_key = "min_reward = { b = 0.5 }";
    let solve =
        "echo said; echo x > \"$LOGS_DIR/artifacts/$(ls \"$APP_DIR\" | wc -l)\"; touch \"$APP_DIR/$RANDOM$RANDOM\"";
    // A step sees neither the tests nor the reward of the one before.
    let clean =
        "[ -z \"$(ls -A \"$TESTS_DIR\" \"$LOGS_DIR/verifier\" | grep -v :)\" ] && echo clean > \"$APP_DIR/clean\"";
    let is_clean = format!("[ -e \"$APP_DIR/clean\" ] && {one} || {half}");
    let hook =
        "verifier.collect = [{ command = \"echo hooked > $LOGS_DIR/artifacts/hook\" }]\nartifacts = [\"/app/clean\"]";
    let yard = Yard::new();
    let yard = task(yard, "mean", "", &[("a", solve, &half, ""), ("b", solve, &two_keys, "")]);
    let yard =
        task(yard, "last", "multi_step_reward_strategy = \"final\"", &[("a", "", &one, ""), ("b", "", &half, "")]);
    let yard = task(yard, "low", "", &[("a", "", &half, low), ("b", "", &one, "")]);
    let yard = task(yard, "keyed", "", &[("a", "", &two_keys, by_key), ("b", "", &one, by_key), ("c", "", &one, "")]);
    let yard = task(yard, "ungraded", "", &[("a", "", "true", ""), ("b", "", &one, "")]);
    let late = "agent.timeout_sec = 0.5";
    let yard = task(yard, "late", "", &[("a", "sleep 60", &one, late), ("b", "", &half, "")]);
    let yard = task(yard, "setup", "", &[("a", "", &one, ""), ("b", "", &one, ""), ("c", "", &one, "")]);
    setup(&yard, "setup", "b", "exit 3\n");
    let yard = task(yard, "clean", "", &[("a", "", &one, ""), ("b", clean, &is_clean, hook)]);
    let sick = "healthcheck = { command = \"false\", retries = 1 }";
    let yard = task(yard, "sick", "", &[("a", "", &one, ""), ("b", "", &one, sick)]);
    let done = yard.run(yard.config("oracle", 3), nothing);
    assert_eq!(done, Finished { planned: 9, ended: 9, queued: 0, complete: true });
    let read = yard.read();
    let steps = |task: &str| -> Vec<String> {
        let result = json(&find(&yard, &read, task).join("result.json"));
        assert!(result["verifier_environment_mode"].is_null() && result["agent_execution"].is_null());
        let steps = result["step_results"].as_array().unwrap();
        let say = |s: &serde_json::Value| {
            let kind = s["exception_info"]["exception_type"].as_str().unwrap_or("-");
            format!("{} {} {kind}", s["step_name"].as_str().unwrap(), s["verifier_result"]["rewards"])
        };
        steps.iter().map(say).collect()
    };
    assert_eq!(read.end("mean"), (Some(0.75), None));
    assert_eq!(steps("mean"), [r#"a {"reward":0.5} -"#, r#"b {"b":1,"reward":1} -"#]);
    let whole = json(&find(&yard, &read, "mean").join("result.json"));
    assert_eq!(whole["verifier_result"]["rewards"]["b"], 0.5);
    assert_eq!(read.end("last"), (Some(0.5), None));
    assert_eq!((read.end("low"), steps("low").len()), ((Some(0.5), None), 1));
    assert_eq!(steps("keyed").len(), 2);
    assert_eq!((read.end("ungraded").0, steps("ungraded")), (None, vec!["a null RewardFileNotFoundError".to_string()]));
    // A late agent is graded, and the next step runs.
    assert_eq!(steps("late"), [r#"a {"reward":1} AgentTimeoutError"#, r#"b {"reward":0.5} -"#]);
    assert_eq!(steps("setup"), [r#"a {"reward":1} -"#, "b null RuntimeError"]);
    assert_eq!(read.end("setup").0, Some(1.0));
    assert_eq!(steps("sick"), [r#"a {"reward":1} -"#, "b null HealthcheckError"]);
    assert_eq!(read.end("clean"), (Some(1.0), None));
    let dir = find(&yard, &read, "mean");
    let file = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
    assert_eq!(
        (file("steps/a/agent/oracle.txt"), file("steps/b/agent/oracle.txt")),
        ("said\n".into(), "said\n".into())
    );
    assert!(dir.join("steps/b/verifier/reward.json").exists() && dir.join("steps/a/artifacts/manifest.json").exists());
    assert_eq!(fs::read_dir(dir.join("steps/b/artifacts/logs/artifacts")).unwrap().count(), 1);
    for empty in ["agent", "verifier", "artifacts", "exception.txt"] {
        assert!(!dir.join(empty).exists(), "{empty}");
    }
    let dir = find(&yard, &read, "clean");
    assert_eq!(fs::read_to_string(dir.join("steps/b/artifacts/app/clean")).unwrap(), "clean\n");
    assert!(dir.join("steps/b/artifacts/logs/artifacts/hook").exists());
    assert!(!dir.join("steps/a/artifacts/logs").exists());
}

#[test]
fn a_stop_in_a_step_keeps_those_before_and_is_no_reward() {
    let wait = "touch \"$LOGS_DIR/agent/here\"; sleep 60";
    let yard = task(Yard::new(), "t", "", &[("a", "", PASS, ""), ("b", wait, PASS, ""), ("c", "", PASS, "")]);
    let done = yard.run(yard.config("oracle", 1), async |control, plan| {
        until(|| trial_dir(&plan, "t").join("agent/here").exists()).await;
        control.cancel();
    });
    assert_eq!(done, Finished { planned: 1, ended: 1, queued: 0, complete: false });
    let read = yard.read();
    assert_eq!(read.end("t"), (None, Some("CancelledError")));
    let result = json(&find(&yard, &read, "t").join("result.json"));
    assert_eq!(result["step_results"].as_array().unwrap().len(), 2);
    assert_eq!(result["step_results"][0]["verifier_result"]["rewards"]["reward"], 1.0);
    assert_eq!(result["reward_valid"], false);
}
