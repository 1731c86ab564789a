//! The native runner: tiny tasks run to their ends in the local environment, read back by our own
//! reader.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "runner/asked.rs"]
mod asked;
#[path = "runner/images.rs"]
mod images;
#[path = "runner/owner.rs"]
mod owner;
#[path = "runner/steps.rs"]
mod steps;
mod support;
#[path = "support/yard.rs"]
mod yard;

use std::fs;
use std::time::Duration;

use pilothouse::harbor::Task;
use pilothouse::harbor::write::WriteError;
use pilothouse::job::{Stamp, StateKind};
use pilothouse::scheduler::{Finished, PlanError, RunError};
use serde_json::Value;

use yard::{PASS, Yard, ends, find, in_containers, json, left_of, nothing, trial_dir, until};

#[test]
fn every_kind_of_end_is_recorded_under_harbors_name() {
    let check = "[ \"$(cat \"$APP_DIR/answer\")\" = 42 ] && r=1 || r=0; echo $r > \"$LOGS_DIR/verifier/reward.txt\"";
    let yard = Yard::new()
        .task("pass", "echo solving; echo 42 > answer; echo kept > \"$LOGS_DIR/artifacts/a\"", check, "")
        .task("fail", "echo 41 > answer; exit 3", check, "")
        .task("partial", "true", "echo '{\"b\": 1, \"reward\": 0.5}' > \"$LOGS_DIR/verifier/reward.json\"", "")
        .task("no-reward", "echo 1 > \"$LOGS_DIR/verifier/reward.txt\"", "echo tested; exit 1", "")
        .task("bad-reward", "true", "echo much > \"$LOGS_DIR/verifier/reward.txt\"", "")
        .task("slow-verifier", "true", "trap '' TERM; sleep 60", "[verifier]\ntimeout_sec = 1.0")
        .task("slow-agent", "echo begun; sleep 60", PASS, "[agent]\ntimeout_sec = 1.0")
        .task(
            "kept",
            "mkdir out; echo x > out/f; echo y > y",
            PASS,
            "artifacts = [\"/app/out\", \"/app/y\", \"/app/no\"]",
        )
        .task("no-variable", "true", PASS, "[verifier.env]\nX = \"${PILOTHOUSE_TEST_NOT_SET}\"")
        .task("sick", "true", PASS, "[environment.healthcheck]\ncommand = \"false\"\nretries = 2\ninterval_sec = 0.1")
        .task("other-user", "true", PASS, "[agent]\nuser = \"somebody\"");
    let done = yard.run(yard.config("oracle", 3), nothing);
    assert_eq!(done, Finished { planned: 11, ended: 11, queued: 0, complete: true });
    let read = yard.read();
    assert_eq!(read.end("pass"), (Some(1.0), None));
    assert_eq!(read.end("fail"), (Some(0.0), None));
    assert_eq!(read.end("partial"), (Some(0.5), None));
    // What the agent had put there was no reward of the tests.
    assert_eq!(read.end("no-reward"), (None, Some("RewardFileNotFoundError")));
    assert_eq!(read.end("bad-reward"), (None, Some("VerifierOutputParseError")));
    assert_eq!(read.end("slow-verifier"), (None, Some("VerifierTimeoutError")));
    // The verifier ran all the same.
    assert_eq!(read.end("slow-agent"), (Some(1.0), Some("AgentTimeoutError")));
    assert_eq!(read.end("kept"), (Some(1.0), None));
    assert_eq!(read.end("no-variable"), (None, Some("ValueError")));
    assert_eq!(read.end("sick"), (None, Some("HealthcheckError")));
    assert_eq!(read.end("other-user"), (Some(1.0), Some("RuntimeError")));
    assert!(read.result("sick").spans.agent.started.is_none());
    assert_eq!(read.tally.jobs[0].state.kind, StateKind::Finished);
    let all = read.tally.totals;
    assert_eq!((all.planned, all.finished, all.passed, all.partial, all.failed), (11, 11, 4, 1, 1));
    assert_eq!((all.errored, all.no_reward, all.phantom, all.cancelled), (7, 5, 0, 0));
    let file = |task: &str, name: &str| fs::read_to_string(find(&yard, &read, task).join(name));
    assert_eq!(file("pass", "agent/oracle.txt").unwrap(), "solving\n");
    assert!(file("pass", "agent/exit-code.txt").is_err());
    assert_eq!(file("fail", "agent/exit-code.txt").unwrap(), "3");
    assert_eq!(file("slow-agent", "agent/oracle.txt").unwrap(), "begun\n");
    assert_eq!(file("no-reward", "verifier/test-stdout.txt").unwrap(), "tested\n");
    assert!(file("slow-agent", "exception.txt").unwrap().ends_with("timed out after 1.0 seconds\n"));
    let status = |task: &str| -> Vec<String> {
        let manifest = json(&find(&yard, &read, task).join("artifacts/manifest.json"));
        let lines = manifest.as_array().unwrap();
        lines
            .iter()
            .map(|a| format!("{} {}", a["destination"].as_str().unwrap(), a["status"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(status("pass"), ["artifacts/logs/artifacts ok"]);
    let kept = ["logs/artifacts empty", "app/out ok", "app/y ok", "app/no failed"].map(|s| format!("artifacts/{s}"));
    assert_eq!(status("kept"), kept);
    assert_eq!(file("kept", "artifacts/app/out/f").unwrap(), "x\n");
    let result = json(&find(&yard, &read, "partial").join("result.json"));
    assert_eq!(result["verifier_result"]["rewards"]["b"], 1);
    assert_eq!(result["agent_info"]["name"], "oracle");
}

#[test]
fn nop_does_nothing() {
    let yard =
        Yard::new().task("t", "touch answer", "[ -e answer ]; echo $((1 - $?)) > $LOGS_DIR/verifier/reward.txt", "");
    assert!(yard.run(yard.config("nop", 1), nothing).complete);
    let read = yard.read();
    assert_eq!(read.end("t"), (Some(0.0), None));
    assert!(fs::read_dir(find(&yard, &read, "t").join("agent")).unwrap().next().is_none());
}

#[test]
fn a_stop_in_the_middle_records_what_ran_and_leaves_no_phantom() {
    let wait = "echo working; touch \"$LOGS_DIR/agent/here\"; sleep 60";
    let grade = "touch \"$LOGS_DIR/verifier/here\"; sleep 60";
    let yard = Yard::new()
        .task("done", "true", PASS, "")
        .task("agent-works", wait, PASS, "")
        .task("late", "sleep 60", grade, "[agent]\ntimeout_sec = 0.5")
        .task("never", "true", PASS, "");
    let done = yard.run(yard.config("oracle", 2), async |control, plan| {
        let there = |task: &str, file: &str| trial_dir(&plan, task).join(file).exists();
        until(|| there("agent-works", "agent/here") && there("late", "verifier/here")).await;
        control.cancel();
    });
    assert_eq!(done, Finished { planned: 4, ended: 3, queued: 1, complete: false });
    let read = yard.read();
    assert_eq!(read.end("done"), (Some(1.0), None));
    assert_eq!(read.end("agent-works"), (None, Some("CancelledError")));
    // Its agent's time was over before; but it was not graded, so it is not done.
    assert_eq!(read.end("late"), (None, Some("CancelledError")));
    let totals = read.tally.totals;
    assert_eq!((totals.phantom, totals.cancelled, totals.orphaned, totals.running), (0, 2, 0, 0));
    // Of files that are so new, a reader can not tell whether somebody goes on.
    let tomorrow = Stamp::now().checked_add(jiff::SignedDuration::from_hours(24)).unwrap();
    assert_eq!(read.fleet.jobs()[0].state(tomorrow).kind, StateKind::Interrupted);
    assert!(!yard.dir().join("never").exists() && read.fleet.jobs()[0].trials.len() == 3);
    let output = find(&yard, &read, "agent-works").join("agent/oracle.txt");
    assert_eq!(fs::read_to_string(output).unwrap(), "working\n");
    let job = json(&yard.dir().join("result.json"));
    assert_eq!((&job["stats"]["n_running_trials"], &job["finished_at"]), (&Value::from(0), &Value::Null));
}

/// Nothing else is written meanwhile that would take it along.
#[test]
fn a_line_is_in_the_log_while_the_agent_still_works() {
    let yard = Yard::new().task("works", "sleep 60", PASS, "");
    let done = yard.run(yard.config("oracle", 1), async |control, plan| {
        let log = trial_dir(&plan, "works").join("trial.log");
        until(|| fs::read_to_string(&log).is_ok_and(|log| log.starts_with("Environment: "))).await;
        control.cancel();
    });
    assert_eq!(done, Finished { planned: 1, ended: 1, queued: 0, complete: false });
    let log = fs::read_to_string(find(&yard, &yard.read(), "works").join("trial.log")).unwrap();
    let at = |text: &str| log.find(text).unwrap_or_else(|| panic!("no {text:?} in {log}"));
    assert!(at("Environment: ") < at("failed: CancelledError"), "{log}");
}

#[test]
fn a_drain_lets_what_runs_end_and_begins_nothing() {
    let wait = "touch \"$LOGS_DIR/agent/here\"; sleep 0.5";
    let yard = Yard::new().task("runs", wait, PASS, "").task("never", "true", PASS, "");
    let done = yard.run(yard.config("oracle", 1), async |control, plan| {
        until(|| trial_dir(&plan, "runs").join("agent/here").exists()).await;
        control.drain();
    });
    assert_eq!(done, Finished { planned: 2, ended: 1, queued: 1, complete: false });
    let read = yard.read();
    assert_eq!((read.end("runs"), read.fleet.jobs()[0].trials.len()), ((Some(1.0), None), 1));
}

#[test]
fn one_trial_can_be_stopped_alone() {
    let wait = "touch \"$LOGS_DIR/agent/here\"; sleep 60";
    let yard = Yard::new().task("long", wait, PASS, "").task("next", "true", PASS, "");
    let mut kept = None;
    let done = yard.run(yard.config("oracle", 1), async |control, plan| {
        until(|| trial_dir(&plan, "long").join("agent/here").exists()).await;
        assert!(!control.cancel_trial("long"), "a task is not a trial");
        assert!(control.cancel_trial(&plan.trials[0].config.trial_name));
        kept = Some((control, plan));
    });
    assert!(done.complete);
    // Wishes that come too late are not taken, and say so.
    let (control, plan) = kept.unwrap();
    assert!(!control.cancel() && !control.drain() && !control.set_slots(2));
    assert!(!control.cancel_trial(&plan.trials[0].config.trial_name));
    let read = yard.read();
    assert_eq!(read.end("long"), (None, Some("CancelledError")));
    assert_eq!(read.end("next"), (Some(1.0), None));
}

#[test]
fn no_more_trials_than_slots_run_at_a_time_and_slots_can_be_changed() {
    let mut yard = Yard::new();
    let count = yard.temp.path().join("count");
    fs::create_dir(&count).unwrap();
    // Each says that it is there, and how many it sees.
    let at = count.display();
    let solve = format!("touch {at}/$$; ls {at} | wc -l; sleep 0.3; rm {at}/$$");
    for i in 0..8 {
        yard = yard.task(&format!("t{i}"), &solve, PASS, "");
    }
    let done = yard.run(yard.config("oracle", 1), async |control, plan| {
        until(|| trial_dir(&plan, "t2").exists()).await;
        // However many wishes come at once: the latest counts.
        assert!((0..10_000).rev().all(|n| control.set_slots(3 + n)));
    });
    assert!(done.complete);
    let read = yard.read();
    let seen: Vec<u32> = (0..8)
        .map(|i| {
            let path = find(&yard, &read, &format!("t{i}")).join("agent/oracle.txt");
            fs::read_to_string(path).unwrap().trim().parse().unwrap()
        })
        .collect();
    assert!(seen[..2].iter().all(|n| *n == 1), "{seen:?}");
    assert!(seen.iter().all(|n| *n <= 3) && seen.iter().any(|n| *n > 1), "{seen:?}");
    let started: Vec<_> = (0..8).map(|i| read.result(&format!("t{i}")).started.unwrap()).collect();
    assert!(started.is_sorted(), "not in the order of the plan");
    assert_eq!(read.tally.totals.passed, 8);
}

#[test]
fn a_retry_keeps_the_failed_attempt() {
    let yard = Yard::new();
    let flag = yard.temp.path().join("flag");
    // The first attempt's verifier variable comes from a check that fails once.
    let health = format!(
        "[environment.healthcheck]\ncommand = \"[ -e {0} ] || (touch {0}; false)\"\nretries = 1",
        flag.display()
    );
    let yard = yard.task("flaky", "true", PASS, &health).task("hopeless", "true", "true", "");
    let mut config = yard.config("oracle", 2);
    config.retry.max_retries = 2;
    config.retry.min_wait_sec = 0.2;
    assert!(yard.run(config, nothing).complete);
    let read = yard.read();
    assert_eq!(read.end("flaky"), (Some(1.0), None));
    let first = json(&find(&yard, &read, "flaky").join("retries/1/result.json"));
    assert_eq!(first["exception_info"]["exception_type"], "HealthcheckError");
    // What the table does not retry is not.
    assert_eq!(read.end("hopeless"), (None, Some("RewardFileNotFoundError")));
    assert!(!find(&yard, &read, "hopeless").join("retries").exists());
    assert_eq!(json(&yard.dir().join("result.json"))["stats"]["n_retries"], 1);
}

#[test]
fn a_job_that_somebody_else_took_over_stops_and_writes_nothing_more() {
    let wait = "touch \"$LOGS_DIR/agent/here\"; sleep 60";
    let yard = Yard::new().task("long", wait, PASS, "").task("next", "true", PASS, "");
    let before = std::cell::RefCell::new(Vec::new());
    let done = yard.try_run(yard.config("oracle", 1), async |_, plan| {
        until(|| trial_dir(&plan, "long").join("agent/here").exists()).await;
        tokio::time::sleep(Duration::from_millis(600)).await;
        let lease = plan.dir().join("pilothouse.lease");
        let mut note = json(&lease);
        note["token"] = "somebody-else".into();
        let other = plan.dir().join("other");
        fs::write(&other, note.to_string()).unwrap();
        fs::rename(other, &lease).unwrap();
        before.replace(fs::read(plan.dir().join("result.json")).unwrap());
    });
    assert!(matches!(done, Err(RunError::Write(WriteError::Lease { .. }))), "{done:?}");
    assert_eq!(fs::read(yard.dir().join("result.json")).unwrap(), *before.borrow());
    assert_eq!(json(&yard.dir().join("pilothouse.lease"))["token"], "somebody-else");
    let read = yard.read();
    assert!(read.trial("long").result.is_none() && read.fleet.jobs()[0].trials.len() == 1);
}

#[test]
fn what_is_not_run_is_refused_by_name_before_anything_is_made() {
    let hook = "[[verifier.collect]]\ncommand = \"true\"\nservice = \"db\"";
    let yard = Yard::new().task("hooks", "true", PASS, hook);
    let mut config = yard.config("no-such-agent", 1);
    config.environment.kwargs.insert("keep_containers".to_string(), true.into());
    config.artifacts.push("/a/../b".into());
    config.extra_instruction_paths.push("/no/such/file".to_string());
    let Err(PlanError::Refused(lines)) = yard.plan(config) else { panic!("planned") };
    let text = lines.join("\n");
    for name in ["no-such-agent", "hooks: the compose service", "keep_containers", "/a/../b", "/no/such/file"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!yard.temp.path().join("jobs").exists());
}

#[test]
fn in_containers_limits_and_stops_leave_outputs_and_nothing_else() {
    let image = "[environment]\ndocker_image = \"tb-base:1\"";
    let limits = format!("[agent]\ntimeout_sec = 2.0\n[verifier]\ntimeout_sec = 2.0\n{image}");
    let pass = "echo 1 > /logs/verifier/reward.txt";
    let yard = Yard::new()
        .task("slow-agent", "echo begun; sleep 60", pass, &limits)
        .task("slow-verifier", "true", "trap '' TERM; echo tested; sleep 60", &limits)
        .task("long", "echo working; touch /logs/agent/here; sleep 600", pass, image);
    let ran = in_containers(&yard, yard.config("oracle", 3), async |control, plan| {
        let there = |task: &str, file: &str| trial_dir(&plan, task).join(file).exists();
        let over = || there("slow-agent", "result.json") && there("slow-verifier", "result.json");
        until(|| over() && there("long", "agent/here")).await;
        control.cancel();
    });
    let Some((done, id)) = ran else { return };
    assert_eq!(done, Finished { planned: 3, ended: 3, queued: 0, complete: false });
    let read = yard.read();
    assert_eq!(read.end("slow-agent"), (Some(1.0), Some("AgentTimeoutError")));
    assert_eq!(read.end("slow-verifier"), (None, Some("VerifierTimeoutError")));
    assert_eq!(read.end("long"), (None, Some("CancelledError")));
    let file = |task: &str, name: &str| fs::read_to_string(find(&yard, &read, task).join(name)).unwrap();
    assert_eq!(file("slow-agent", "agent/oracle.txt"), "begun\n");
    assert_eq!(file("slow-verifier", "verifier/test-stdout.txt"), "tested\n");
    assert_eq!(file("long", "agent/oracle.txt"), "working\n");
    assert_eq!(left_of(&id), "");
}

/// The recorded tasks in containers: rewards and exception types as Harbor recorded them.
#[test]
fn in_containers_the_recorded_tasks_end_as_under_harbor() {
    let Some(shared) = support::shared() else {
        return support::skipped("no recorded jobs beside the checkout");
    };
    for (agent, recorded) in [("oracle", "a-oracle-all-0.21.0"), ("nop", "g3-nop-0.21.0")] {
        let expected = ends(&shared.join("data/jobs").join(recorded));
        let mut yard = Yard::new();
        for entry in fs::read_dir(shared.join("data/tasks")).unwrap().flatten() {
            let task = Task::load(&entry.path()).unwrap();
            if expected.contains_key(&task.name) {
                yard.tasks.push(entry.path());
            }
        }
        yard.tasks.sort();
        let Some((done, id)) = in_containers(&yard, yard.config(agent, 3), nothing) else { return };
        assert!(done.complete, "{done:?}");
        assert_eq!(ends(&yard.dir()), expected, "{agent}");
        assert_eq!(yard.read().tally.totals.phantom, 0);
        assert_eq!(left_of(&id), "");
    }
}
