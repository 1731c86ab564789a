//! The owner's screen, detached and attached again, and several who look on.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::{Bench, SOON, until};
use crate::support::pty::{Pty, key};

/// The job on its own screen.
fn owner(bench: &Bench, slots: &str, size: (u16, u16)) -> Pty {
    let args = bench.args(slots, &[]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Pty::pilothouse(&args, size.0, size.1, &[("PILOTHOUSE_STATE_DIR", bench.state.to_str().unwrap())])
}

fn attach(bench: &Bench, size: (u16, u16)) -> Pty {
    let state = bench.state.to_str().unwrap();
    let job = bench.job();
    Pty::pilothouse(&["attach", job.to_str().unwrap()], size.0, size.1, &[("PILOTHOUSE_STATE_DIR", state)])
}

fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn state_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().unwrap_or_default().chars().take(1).collect()
}

/// Shows one task alone.
fn filter(pty: &mut Pty, task: &str) {
    pty.send("F");
    pty.wait_for("filter none", SOON);
    pty.send(&format!("/{task}\r"));
    pty.wait_for(&format!("filter {task}"), SOON);
}

#[test]
fn keys_pause_put_first_and_cancel_many() {
    let bench = Bench::new(&["a-one", "b-two", "c-three", "d-four", "e-five"]);
    let mut pty = owner(&bench, "2", (140, 40));
    pty.wait_for("2/2 slots", SOON);
    pty.wait_for("p pause", SOON);
    pty.send("p");
    pty.wait_for("paused, 2 running, n 2", SOON);
    pty.wait_for("p resume", SOON);
    bench.go("a-one");
    pty.wait_for("paused, 1 running", SOON);
    pty.wait_for("3 queued", SOON);

    // The marked one goes first.
    filter(&mut pty, "e-five");
    pty.send(" ");
    pty.send("u");
    pty.wait_for("first now: e-five", SOON);
    pty.send("F");
    pty.send("p");
    pty.wait_for("2/2 slots", SOON);
    until("e-five begun", || bench.running() == ["b-two", "e-five"]);

    // Two are marked and cancelled; the focus is on the harmless answer.
    for task in ["b-two", "e-five"] {
        filter(&mut pty, task);
        pty.wait_for("agent", SOON);
        pty.send(" ");
    }
    pty.send("X");
    pty.wait_for("let them run", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("let them run", SOON);
    pty.send("X");
    pty.wait_for("2 trials at work", SOON);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_for("2 cancelled", SOON);
    bench.go("c-three");
    bench.go("d-four");
    pty.wait_for("job over", SOON);
    pty.send("qq");
    pty.wait_exit(SOON);
    pty.assert_restored();
    assert_eq!(bench.acts(), ["pause", "first", "resume", "cancel", "cancel"]);
    assert!(bench.journal()[0]["why"].as_str().unwrap().contains("on the screen"));
}

#[test]
fn detached_it_outlives_its_terminal_and_is_attached_again() {
    let bench = Bench::new(&["a-one", "b-two", "c-three"]);
    // A shell with job control, as an operator has it.
    let state = bench.state.to_str().unwrap();
    let runtime = bench.path("run-user");
    fs::create_dir(&runtime).unwrap();
    let env = [("PILOTHOUSE_STATE_DIR", state), ("XDG_RUNTIME_DIR", runtime.to_str().unwrap()), ("PS1", "ready> ")];
    let mut shell = Pty::spawn("/bin/bash", &["--norc", "--noprofile", "-i"], 120, 36, &env);
    shell.wait_for("ready>", SOON);
    let args = bench.args("1", &[]).join(" ");
    shell.send(&format!("{} {args}\r", env!("CARGO_BIN_EXE_pilothouse")));
    shell.wait_for("1/1 slots", SOON);
    shell.wait_for("agent", SOON);
    let pid = u32::try_from(bench.status()["pid"].as_u64().unwrap()).unwrap();
    shell.send("d");
    shell.wait_for("detached: the run goes on as pid", SOON);
    shell.wait_for("pilothouse attach", SOON);
    // The prompt is back, and what is typed is the shell's.
    shell.wait_until("a prompt", SOON, |text| text.trim_end().ends_with("ready>"));
    until("in the background at work", || state_of(pid) == "S");
    shell.send("echo back-$((40+2))\r");
    shell.wait_for("back-42", SOON);
    shell.send(key::CTRL_C);
    // The shell forgets what was typed before it has seen the key, whenever that is: asked until answered.
    let asked = Instant::now();
    while !shell.text().contains("Running") {
        assert!(asked.elapsed() < SOON, "no answer to jobs:\n{}", shell.text());
        shell.send("jobs\r");
        std::thread::sleep(Duration::from_millis(700));
    }
    assert!(alive(pid) && bench.status()["running"] == 1);
    assert_eq!(state_of(pid), "S");

    // The terminal is closed, and what belongs to the session goes.
    drop(shell);
    std::thread::sleep(Duration::from_millis(300));
    fs::remove_dir_all(&runtime).unwrap();
    fs::remove_dir_all(bench.state.join("ctl")).unwrap();
    assert!(alive(pid));
    bench.go("a-one");
    until("the next one", || bench.ctl(&["status"]).status.success() && bench.running() == ["b-two"]);

    // Attached again, it only looks on until it is told to steer.
    let mut pty = attach(&bench, (120, 36));
    pty.wait_for("1/1 slots", SOON);
    pty.wait_for("read-only", SOON);
    pty.send("+");
    pty.wait_for("H takes the helm", SOON);
    assert_eq!(bench.status()["slots"], 1);
    pty.send("H");
    pty.wait_for("this screen steers now", SOON);
    pty.wait_for("● steering", SOON);
    pty.send("+");
    pty.wait_for("2/2 slots", SOON);
    pty.send("d");
    pty.wait_for("runs in another process", SOON);
    bench.go("b-two");
    bench.go("c-three");
    until("its end", || !alive(pid));
    pty.wait_for("the process that ran it has ended", SOON);
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    assert!(bench.results().iter().all(|(_, end)| end == "1.0") && bench.results().len() == 3);
    assert_eq!(bench.acts(), ["slots"]);
    assert!(bench.journal()[0]["why"].as_str().unwrap().contains("attached screen"));
}

/// Without a shell that could take it over: the terminal is closed right after the key.
#[test]
fn a_terminal_that_is_closed_right_after_the_key_ends_nothing() {
    let bench = Bench::new(&["a-one"]);
    let state = bench.state.to_str().unwrap();
    let args = bench.args("1", &[]).join(" ");
    let script = format!("{} {args}; true", env!("CARGO_BIN_EXE_pilothouse"));
    let mut pty = Pty::spawn("/bin/bash", &["-c", &script], 100, 30, &[("PILOTHOUSE_STATE_DIR", state)]);
    pty.wait_for("1/1 slots", SOON);
    pty.wait_for("agent", SOON);
    let status = bench.status();
    let pid = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();
    pty.send("d");
    drop(pty);
    std::thread::sleep(Duration::from_millis(500));
    assert!(alive(pid));
    assert_eq!(bench.status()["running"], 1);
    bench.go("a-one");
    until("its end", || !alive(pid));
    assert_eq!(bench.results(), [("a-one".to_string(), "1.0".to_string())]);
    // Its last words are where it said, once it could still say so.
    let log = bench.state.join("detached").join(format!("{}.log", status["job"].as_str().unwrap()));
    if Path::new(&log).exists() {
        assert!(fs::read_to_string(log).unwrap().contains("done: passed"));
    }
}

#[test]
fn two_look_on_and_one_at_a_time_steers() {
    let bench = Bench::new(&["a-one", "b-two"]);
    let mut pty = owner(&bench, "1", (120, 36));
    pty.wait_for("1/1 slots", SOON);
    let mut first = attach(&bench, (120, 36));
    let mut second = attach(&bench, (100, 30));
    for viewer in [&first, &second] {
        viewer.wait_for("1/1 slots", SOON);
        viewer.wait_for("H steer", SOON);
    }
    // Taken: the owner's own screen is told, and looks on.
    first.send("H");
    first.wait_for("this screen steers now", SOON);
    pty.wait_for("steers now", SOON);
    pty.send("+");
    pty.wait_for("H takes the helm back", SOON);
    assert_eq!(bench.status()["slots"], 1);
    // All see what one does.
    first.send("p");
    for screen in [&pty, &first, &second] {
        screen.wait_for("paused, 1 running", SOON);
    }
    second.send("H");
    second.wait_for("this screen steers now", SOON);
    first.wait_for("steers now", SOON);
    first.send("p");
    first.wait_for("H takes the helm", SOON);
    second.send("p");
    for screen in [&pty, &first, &second] {
        screen.wait_for("1/1 slots", SOON);
    }
    // The one who steers leaves: nobody does, and the owner's screen may again.
    second.send("q");
    second.wait_exit(SOON);
    until("nobody steers", || bench.status()["helm"].is_null());
    pty.send("+");
    pty.wait_for("2/2 slots", SOON);
    first.wait_for("2/2 slots", SOON);
    bench.go("a-one");
    bench.go("b-two");
    // Said for a moment.
    first.wait_for("the process that ran it has ended", SOON);
    pty.wait_for("job over", SOON);
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    first.send("q");
    assert_eq!(first.wait_exit(SOON).exit_code(), 0);
    assert_eq!(bench.acts(), ["pause", "resume", "slots"]);
}

/// What the trials themselves say is on every screen and in every answer, and only one agent may work.
#[test]
fn what_trials_do_is_told_wherever_somebody_looks() {
    let bench = Bench::new(&["a-one", "c-waits"]);
    // Its tests wait for a word, too.
    let go = bench.path("go-tests");
    let test =
        format!("while [ ! -e {} ]; do sleep 0.05; done; echo 1 > \"$LOGS_DIR/verifier/reward.txt\"", go.display());
    let solve = format!("while [ ! -e {} ]; do sleep 0.05; done", bench.path("go-b-tests").display());
    bench.task("b-tests", &solve, &test, "");
    let args = bench.args("3", &["--n-concurrent-agents", "1"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut pty = Pty::pilothouse(&args, 160, 40, &[("PILOTHOUSE_STATE_DIR", bench.state.to_str().unwrap())]);
    // Whoever comes first has the slot, and keeps it until it is let go.
    pty.wait_for("agent slot", SOON);
    let mut other = attach(&bench, (160, 40));
    other.wait_for("agent slot", SOON);
    let told = bench.ask(&["work"]);
    assert!(told.contains("waiting for an agent slot"), "{told}");
    ["a-one", "b-tests", "c-waits"].iter().for_each(|task| bench.go(task));
    for screen in [&pty, &other] {
        screen.wait_for("verifying", SOON);
    }
    until("exactly told", || bench.ask(&["work", "b-tests"]).contains("verifying"));
    let out = bench.ctl(&["work", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let tests = value["work"].as_array().unwrap().iter().find(|w| w["trial"].as_str().unwrap().starts_with("b-tests"));
    let tests = tests.unwrap();
    assert_eq!((&tests["doing"], &tests["call"], &tests["tokens"]), (&"verifying".into(), &().into(), &().into()));
    // The same in what `status` says, beside the trial that it is about.
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["status", "--json"])
        .arg(bench.job())
        .env("PILOTHOUSE_STATE_DIR", &bench.state)
        .output()
        .unwrap();
    let value: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let trials = value["trials"].as_array().unwrap();
    let at_work: Vec<_> = trials.iter().filter(|t| t["work"]["doing"] == "verifying").collect();
    assert_eq!(at_work.len(), 1, "{value}");
    assert_eq!(at_work[0]["task"], "b-tests");
    fs::write(go, "").unwrap();
    pty.wait_for("job over", SOON);
    other.wait_for("the process that ran it has ended", SOON);
    pty.send("qq");
    pty.wait_exit(SOON);
    other.send("q");
    other.wait_exit(SOON);
    assert!(bench.results().iter().all(|(_, end)| end == "1.0") && bench.results().len() == 3);
}
