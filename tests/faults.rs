//! What goes wrong around trials: each ends under its own name, the others are unharmed, nothing is left.
//! The long forms run with `PILOTHOUSE_LONG_FAULTS` set.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "faults/daemon.rs"]
mod daemon;
#[path = "faults/disk.rs"]
mod disk;
#[path = "support/daemon.rs"]
mod own_engine;
mod support;
#[path = "support/yard.rs"]
mod yard;

use std::fs;
use std::os::unix::fs::MetadataExt;

use yard::{IMAGE, PASS_INSIDE, Yard, class_of, docker, find, in_containers, json, left_of, nothing, trial_dir, until};

const WAIT: &str = "touch /logs/agent/here; sleep 600";

fn long() -> bool {
    std::env::var_os("PILOTHOUSE_LONG_FAULTS").is_some()
}

#[test]
fn a_container_killed_from_outside_ends_its_own_trial_only() {
    let yard = Yard::new()
        .task("killed", WAIT, PASS_INSIDE, IMAGE)
        .task("first-process", WAIT, PASS_INSIDE, IMAGE)
        .task("removed", WAIT, PASS_INSIDE, IMAGE)
        .task("in-the-tests", "true", "touch /logs/verifier/here; sleep 600", IMAGE)
        .task("fine", "sleep 3", PASS_INSIDE, IMAGE);
    let ran = in_containers(&yard, yard.config("oracle", 5), async |_, plan| {
        let here = |task: &str, part: &str| trial_dir(&plan, task).join(part).join("here").exists();
        until(|| {
            ["killed", "first-process", "removed"].iter().all(|t| here(t, "agent")) && here("in-the-tests", "verifier")
        })
        .await;
        let container = |task: &str| {
            let trial = plan.trials.iter().find(|t| t.task.short_name() == task).unwrap();
            let filter = format!("label={}={}", pilothouse::environment::labels::TRIAL, trial.config.trial_name);
            docker(&["ps", "-q", "--filter", &filter]).trim().to_string()
        };
        docker(&["kill", &container("killed")]);
        docker(&["rm", "-f", &container("removed")]);
        docker(&["kill", &container("in-the-tests")]);
        let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &container("first-process")]);
        std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    });
    let Some((done, id)) = ran else { return };
    assert!(done.complete);
    let read = yard.read();
    for task in ["killed", "first-process", "removed", "in-the-tests"] {
        assert_eq!(read.end(task), (None, Some("RuntimeError")), "{task}");
        let result = json(&find(&yard, &read, task).join("result.json"));
        let message = result["exception_info"]["exception_message"].as_str().unwrap();
        assert!(message.contains("not running any more"), "{task}: {message}");
        assert_eq!(class_of(&yard.dir(), task), ("infra".into(), Some("docker".into())), "{task}");
    }
    assert_eq!(read.end("fine"), (Some(1.0), None));
    assert_eq!(left_of(&id), "");
}

#[test]
fn a_command_killed_by_the_memory_limit_is_no_fault_of_the_environment() {
    // One line of 200 MB is held in memory.
    let eat = "head -c 200M /dev/zero | tail -n 1 > /dev/null; exit ${PIPESTATUS[1]}";
    let small = format!("{IMAGE}\nmemory_mb = 48");
    let yard = Yard::new()
        .task("solution", eat, "echo 0 > /logs/verifier/reward.txt", &small)
        .task("tests", "true", eat, &small)
        .task("fine", "true", PASS_INSIDE, &small);
    let Some((done, id)) = in_containers(&yard, yard.config("oracle", 2), nothing) else { return };
    assert!(done.complete);
    let read = yard.read();
    assert_eq!(read.end("solution"), (Some(0.0), None));
    assert_eq!(read.end("tests"), (None, Some("RewardFileNotFoundError")));
    assert_eq!(read.end("fine"), (Some(1.0), None));
    for task in ["solution", "tests"] {
        let (class, sub) = class_of(&yard.dir(), task);
        assert_ne!(class, "infra", "{task}: {sub:?}");
    }
    let dir = find(&yard, &read, "solution");
    assert_eq!(fs::read_to_string(dir.join("agent/exit-code.txt")).unwrap(), "137");
    let said = &json(&dir.join("result.json"))["agent_result"]["metadata"];
    assert!(said["oom_kills"].as_u64() >= Some(1) && said["oom_kill_count"].as_u64() >= Some(1), "{said}");
    assert_eq!(said["exit_code"], 137);
    let note = json(&dir.join("pilothouse.json"));
    assert!(note["commands"][0]["oom_kill_count"].as_u64() >= Some(1), "{note}");
    assert!(fs::read_to_string(dir.join("trial.log")).unwrap().contains("the memory limit killed"));
    let result = json(&find(&yard, &read, "tests").join("result.json"));
    let message = result["exception_info"]["exception_message"].as_str().unwrap();
    assert!(message.contains("exit code 137") && message.contains("the kernel counts"), "{message}");
    assert_eq!(left_of(&id), "");
}

#[test]
fn a_verifier_that_floods_ignores_signals_or_forks_without_end_is_held_in() {
    let (mib, cap) = if long() { (1024, 256) } else { (60, 2) };
    let flood = format!("yes flooding | head -c {mib}M; {PASS_INSIDE}");
    let late = format!("[verifier]\ntimeout_sec = 4.0\n{IMAGE}");
    let bomb = "bomb() { bomb | bomb & }; bomb; sleep 600";
    let yard = Yard::new()
        .task("floods", "true", &flood, IMAGE)
        .task("deaf", "true", "trap '' TERM INT HUP; echo deaf; while :; do sleep 1; done", &late)
        .task("bomb", "true", bomb, &late)
        .task("fine", "true", PASS_INSIDE, IMAGE);
    let mut config = yard.config("oracle", 2);
    config.environment.kwargs.insert("pids_limit".to_string(), 256.into());
    config.environment.kwargs.insert("output_cap_mb".to_string(), cap.into());
    let Some((done, id)) = in_containers(&yard, config, nothing) else { return };
    assert!(done.complete);
    let read = yard.read();
    assert_eq!(read.end("floods"), (Some(1.0), None));
    assert_eq!(read.end("deaf"), (None, Some("VerifierTimeoutError")));
    assert_eq!(read.end("bomb"), (None, Some("VerifierTimeoutError")));
    for task in ["deaf", "bomb"] {
        assert_eq!(class_of(&yard.dir(), task).0, "verifier_timeout", "{task}");
    }
    assert_eq!(read.end("fine"), (Some(1.0), None));
    let output = find(&yard, &read, "floods").join("verifier/test-stdout.txt");
    let size = fs::metadata(&output).unwrap().size();
    assert!(size <= (cap << 20) + 100, "{size}");
    let text = fs::read(&output).unwrap();
    assert!(text.ends_with(b"[output cut here by pilothouse: too long]\n"));
    assert_eq!(fs::read_to_string(find(&yard, &read, "deaf").join("verifier/test-stdout.txt")).unwrap(), "deaf\n");
    assert_eq!(left_of(&id), "");
}
