//! A job of our own on its screen, in a pty, from the first trial to the resume. Everything runs in
//! the local environment: no Docker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use support::pty::{Pty, key};

/// Generous: the machine may be busy.
const SOON: Duration = Duration::from_secs(30);
const PASS: &str = "echo 1 > \"$LOGS_DIR/verifier/reward.txt\"";

/// Tasks, jobs and state of one test.
struct Yard {
    temp: tempfile::TempDir,
}

impl Yard {
    fn new() -> Yard {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("tasks")).unwrap();
        Yard { temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    fn task(self, name: &str, solve: &str, test: &str) -> Yard {
        let dir = self.path("tasks").join(name);
        for sub in ["environment", "tests", "solution"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        fs::write(dir.join("task.toml"), "schema_version = \"1.1\"\n[agent]\ntimeout_sec = 600.0\n").unwrap();
        fs::write(dir.join("instruction.md"), "Do it.\n").unwrap();
        fs::write(dir.join("environment/Dockerfile"), "FROM scratch\n").unwrap();
        fs::write(dir.join("solution/solve.sh"), format!("#!/bin/bash\n{solve}\n")).unwrap();
        fs::write(dir.join("tests/test.sh"), format!("#!/bin/bash\n{test}\n")).unwrap();
        self
    }

    /// A task that counts on its output until [`Yard::go`].
    fn long(self, name: &str) -> Yard {
        let go = self.text("go");
        let solve = format!("i=0; while [ ! -e {go} ]; do i=$((i+1)); echo \"{name} step $i.\"; sleep 0.1; done");
        self.task(name, &solve, PASS)
    }

    /// A task that takes about two seconds.
    fn quick(self, name: &str) -> Yard {
        self.task(name, "sleep 0.8", &format!("echo checking; sleep 1.2; {PASS}"))
    }

    fn go(&self) {
        fs::write(self.path("go"), "").unwrap();
    }

    fn start(&self, args: &[&str], size: (u16, u16)) -> Pty {
        self.start_with(args, size, &[])
    }

    fn start_with(&self, args: &[&str], size: (u16, u16), env: &[(&str, &str)]) -> Pty {
        let state = self.text("state");
        Pty::pilothouse(args, size.0, size.1, &[&[("PILOTHOUSE_STATE_DIR", &*state)], env].concat())
    }

    fn run(&self, slots: &str, size: (u16, u16)) -> Pty {
        self.run_with(slots, size, &[])
    }

    fn run_with(&self, slots: &str, size: (u16, u16), env: &[(&str, &str)]) -> Pty {
        let (tasks, jobs) = (self.text("tasks"), self.text("jobs"));
        let args = ["-p", &tasks, "-a", "oracle", "-e", "local", "-n", slots, "--jobs-dir", &jobs, "--job-name", "job"];
        self.start_with(&[&["run"], &args[..]].concat(), size, env)
    }

    fn job(&self) -> PathBuf {
        self.path("jobs/job")
    }

    /// Results by task: the exception type, or the reward.
    fn results(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for entry in fs::read_dir(self.job()).unwrap().flatten() {
            let Ok(text) = fs::read_to_string(entry.path().join("result.json")) else { continue };
            let value: Value = serde_json::from_str(&text).unwrap();
            let task = value["task_name"].as_str().unwrap().to_string();
            let exception = value["exception_info"]["exception_type"].as_str().map(str::to_string);
            out.push((task, exception.unwrap_or_else(|| value["verifier_result"]["rewards"]["reward"].to_string())));
        }
        out.sort();
        out
    }

    /// What the journal of the job says was done.
    fn acts(&self) -> Vec<String> {
        let text = fs::read_to_string(self.job().join("pilothouse.jsonl")).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["act"].as_str().unwrap().to_string()).collect()
    }
}

/// Shows one task alone.
fn filter(pty: &mut Pty, task: &str) {
    pty.send("F");
    pty.wait_for("filter none", SOON);
    pty.send(&format!("/{task}\r"));
    pty.wait_for(&format!("filter {task}"), SOON);
}

/// The highest step that a long task shows.
fn step(text: &str) -> Option<u32> {
    let numbers = text.split(" step ").skip(1).filter_map(|rest| rest.split('.').next()?.parse().ok());
    numbers.max()
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < SOON, "no {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn lives(pty: &Pty) -> bool {
    Path::new(&format!("/proc/{}/stat", pty.pid())).exists()
        && !fs::read_to_string(format!("/proc/{}/stat", pty.pid())).unwrap_or_default().contains(") Z ")
}

#[test]
fn a_job_is_run_watched_steered_stopped_audited_and_resumed() {
    let yard = Yard::new().quick("a-quick").long("b-long").long("c-long").quick("d-quick").quick("e-quick");
    let mut pty = yard.run("2", (120, 36));

    // The phases pass by.
    pty.wait_for("2/2 slots", SOON);
    pty.wait_for("owner", SOON);
    pty.wait_for("agent", SOON);
    pty.wait_for("verifying", SOON);
    pty.wait_for("1 passed", SOON);

    // The live output grows without a key.
    filter(&mut pty, "b-long");
    pty.send("w");
    pty.wait_for("b-long step", SOON);
    pty.wait_for("following", SOON);
    let first = step(&pty.text()).unwrap();
    pty.wait_until("further steps", SOON, |text| step(text).is_some_and(|n| n > first + 12));
    pty.send("q");
    pty.wait_for("1 Trials", SOON);

    // One trial is cancelled; the question starts on the harmless answer.
    filter(&mut pty, "c-long");
    pty.wait_for("agent", SOON);
    pty.send("X");
    pty.wait_for("cancel one trial", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("cancel one trial", SOON);
    pty.send("X");
    pty.wait_for("let it run", SOON);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_for("1 cancelled", SOON);

    // Fewer slots: what runs runs on, nothing else begins.
    pty.send("F");
    pty.wait_for("filter none", SOON);
    pty.send("-");
    pty.wait_for("n 1", SOON);
    pty.wait_for("1/1 slots", SOON);
    pty.wait_for("2 passed", SOON);
    pty.settle(Duration::from_millis(700), SOON * 4);
    pty.wait_for("1 queued", SOON);

    // The stop: the focus is on keep running, so Enter does nothing.
    pty.send("s");
    pty.wait_for("keep running", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("keep running", SOON);
    pty.wait_for("1 running", SOON);
    pty.send("s");
    pty.wait_for("stop now", SOON);
    pty.send(key::DOWN);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_for("Stop job", SOON);
    pty.wait_for("0 phantoms", SOON);
    pty.wait_for("pilothouse run --resume", SOON);
    pty.send("q");
    pty.wait_for("job over: q leaves", SOON);
    pty.wait_for("2 cancelled", SOON);
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 75, "{}", pty.text());
    pty.assert_restored();
    let cancelled = |task: &str| (task.to_string(), "CancelledError".to_string());
    let passed = |task: &str| (task.to_string(), "1.0".to_string());
    assert_eq!(yard.results(), [passed("a-quick"), cancelled("b-long"), cancelled("c-long"), passed("d-quick")]);
    let acts = yard.acts();
    for act in ["cancel", "slots", "stop"] {
        assert_eq!(acts.iter().filter(|a| *a == act).count(), 1, "{act} in {acts:?}");
    }

    // Resumed: what is missing is run, and the screen stays and says so when it is over.
    yard.go();
    let job = yard.job();
    let mut pty = yard.start(&["run", "--resume", job.to_str().unwrap(), "-y"], (120, 36));
    pty.wait_for("job over: q leaves", SOON);
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0, "{}", pty.text());
    pty.assert_restored();
    let all: Vec<_> = ["a-quick", "b-long", "c-long", "d-quick", "e-quick"].map(passed).to_vec();
    assert_eq!(yard.results(), all);
}

#[test]
fn a_drained_job_ends_what_runs_and_says_what_is_left() {
    let yard = Yard::new().long("b-long").quick("d-quick");
    let mut pty = yard.run("1", (80, 24));
    pty.wait_for("1/1 slots", SOON);
    pty.wait_for("agent", SOON);
    pty.send("s");
    pty.wait_for("drain", SOON);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_for("draining, 1 to end", SOON);
    // More slots are of no use now, and that is said.
    pty.send("+");
    pty.wait_for("nothing new begins", SOON);
    yard.go();
    pty.wait_for("job over: q leaves", SOON);
    pty.send("s");
    pty.wait_for("0 phantoms", SOON);
    pty.wait_for("1 of 2 trials ended, 1 never began", SOON);
    pty.send("qq");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 75, "{}", pty.text());
    pty.assert_restored();
    assert_eq!(yard.results(), [("b-long".to_string(), "1.0".to_string())]);
    assert_eq!(yard.acts(), ["drain"]);
}

#[test]
fn a_running_job_is_not_left_by_q_or_ctrl_c() {
    let yard = Yard::new().long("b-long");
    let mut pty = yard.run("1", (80, 24));
    pty.wait_for("1/1 slots", SOON);
    for keys in ["q", key::CTRL_C] {
        pty.send(keys);
        pty.wait_for("keep running", SOON);
        pty.send(key::ENTER);
        pty.wait_gone("keep running", SOON);
    }
    // Suspending would stop the job with the screen.
    pty.send(key::CTRL_Z);
    pty.wait_for("not suspended", SOON);
    yard.go();
    pty.wait_for("job over: q leaves", SOON);
    pty.send(key::CTRL_C);
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0, "{}", pty.text());
    pty.assert_restored();
}

#[test]
fn a_lost_terminal_takes_the_screen_and_not_the_job() {
    let yard = Yard::new().long("b-long").quick("d-quick");
    let mut pty = yard.run("1", (80, 24));
    pty.wait_for("1/1 slots", SOON);
    pty.wait_for("agent", SOON);
    pty.kill(Signal::HUP);
    until("terminal given back", || pty.line_modes() == pty.before);
    std::thread::sleep(Duration::from_millis(500));
    assert!(lives(&pty), "the run goes on");
    yard.go();
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0, "{}", pty.text());
    assert_eq!(yard.results().len(), 2);
    assert!(yard.results().iter().all(|(_, reward)| reward == "1.0"), "{:?}", yard.results());
}

#[test]
fn a_screen_that_falls_over_takes_no_trial_with_it() {
    let yard = Yard::new().long("b-long");
    let mut pty = yard.run_with("1", (80, 24), &[("PILOTHOUSE_TEST_PANIC", "draw")]);
    pty.wait_for("asked to panic in draw", SOON);
    pty.wait_for("the run goes on", SOON);
    assert!(lives(&pty));
    yard.go();
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0, "{}", pty.text());
    pty.assert_restored();
    assert_eq!(yard.results(), [("b-long".to_string(), "1.0".to_string())]);
}

#[test]
fn a_signal_stops_the_job_in_order() {
    let yard = Yard::new().long("b-long").quick("d-quick");
    let mut pty = yard.run("1", (80, 24));
    pty.wait_for("1/1 slots", SOON);
    pty.wait_for("agent", SOON);
    pty.kill(Signal::TERM);
    assert_eq!(pty.wait_exit(SOON).exit_code(), 130, "{}", pty.text());
    pty.assert_restored();
    assert_eq!(yard.results(), [("b-long".to_string(), "CancelledError".to_string())]);
    assert!(pty.text().contains("pilothouse run --resume"), "{}", pty.text());
}

#[test]
fn another_screen_is_read_only_and_may_stop_the_job() {
    let yard = Yard::new().long("b-long").long("c-long");
    let mut owner = yard.run("2", (80, 24));
    owner.wait_for("2/2 slots", SOON);
    owner.wait_for("agent", SOON);
    let job = yard.job();
    let mut pty = yard.start(&["attach", job.to_str().unwrap()], (120, 36));
    pty.wait_for("2 running", SOON);
    pty.wait_for("read-only", SOON);
    pty.wait_for("2/2 slots", SOON);
    pty.send("+");
    pty.wait_for("steers, this screen looks on: H takes the helm", SOON);
    pty.send("s");
    pty.wait_for("stop with SIGTERM", SOON);
    pty.wait_for(&format!("pid {}", owner.pid()), SOON);
    pty.send(key::ENTER);
    pty.wait_gone("keep running", SOON);
    assert!(lives(&owner));
    pty.send("s");
    pty.wait_for("stop with SIGTERM", SOON);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_for("Stop job", SOON);
    pty.wait_for("0 phantoms", SOON);
    assert_eq!(owner.wait_exit(SOON).exit_code(), 130, "{}", owner.text());
    owner.assert_restored();
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    pty.wait_for("2 cancelled", SOON);
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0, "{}", pty.text());
    assert_eq!(yard.acts(), ["stop"]);
}

/// Real Harbor, where it is installed: stopped from the screen of somebody who attached, and what a
/// killed one left is mended there.
#[test]
fn harbors_jobs_are_stopped_and_mended_from_an_attached_screen() {
    use support::harbor::{Bench, Left, harbor};
    let Some(harbor) = harbor("0.21") else { return };
    let yard = Yard::new();
    let bench = Bench::new("screen", 2, 30.0, false);
    let long = Duration::from_secs(150);

    let mut child = bench.run(&harbor, "stopped");
    bench.begun("stopped");
    let mut pty = yard.start(&["attach", bench.job("stopped").to_str().unwrap()], (120, 40));
    pty.wait_for("running", SOON);
    // The owner is found with the first look or the second.
    until("a dialog", || {
        pty.send("s");
        std::thread::sleep(Duration::from_secs(2));
        pty.text().contains("stop with SIGINT") || {
            pty.send("1");
            false
        }
    });
    pty.wait_for(&format!("pid {}", child.id()), SOON);
    pty.send(key::ENTER);
    pty.wait_gone("keep running", SOON);
    assert!(child.try_wait().unwrap().is_none(), "the focus is on: keep running");
    pty.send("s");
    pty.wait_for("stop with SIGINT", SOON);
    pty.send(&key::DOWN.repeat(2));
    pty.send(key::ENTER);
    pty.wait_for("SIGINT sent to pid", SOON);
    pty.wait_for("more; nothing is killed after that", SOON);
    pty.wait_for("ended after", long);
    pty.wait_for("0 phantoms", SOON);
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", bench.said("stopped"));
    pty.send("qq");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    pty.assert_restored();
    assert_eq!(bench.in_docker(), Left::default());

    let mut child = bench.run(&harbor, "killed");
    bench.begun("killed");
    until("two containers", || bench.in_docker().containers.len() == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut pty = yard.start(&["attach", bench.job("killed").to_str().unwrap()], (120, 40));
    pty.wait_for("killed", SOON);
    pty.wait_until("everything read", SOON, |text| !text.contains("reading"));
    pty.send("s");
    pty.wait_for("findings", SOON);
    // What Harbor had asked compose for may go on for a moment without it.
    until("compose to end", || {
        std::thread::sleep(Duration::from_secs(1));
        !pty.text().contains("still at work") || {
            pty.send("r");
            false
        }
    });
    pty.wait_for("2 containers", SOON);
    pty.send("m");
    pty.wait_for("leave them as they are", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("leave them as they are", SOON);
    assert!(!bench.in_docker().containers.is_empty(), "the focus is on: leave them");
    pty.send("m");
    pty.wait_for("mend all", SOON);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_for(" mended since, 0 open; r looks again", long);
    pty.send("r");
    pty.wait_for("clean", SOON);
    assert_eq!(bench.in_docker(), Left::default());
    pty.send("qq");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    pty.assert_restored();
}
