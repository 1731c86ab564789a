//! The scripted agent in containers: how its trials end, what they record, what is seen of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

mod support;
#[path = "support/yard.rs"]
mod yard;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse::cast::{Player, Target, Work};
use pilothouse::harbor::write::config::AgentConfig;
use pilothouse::job::work::Doing;
use pilothouse::scheduler::{Finished, PlanError};
use pilothouse::terminal::Emulator;

use rustix::process::Signal;
use support::pty::Pty;
use yard::{IMAGE, PASS_INSIDE, Yard, class_of, docker, find, in_containers, json, left_of, nothing, trial_dir, until};

const CHECK: &str = "[ \"$(cat /app/answer)\" = 42 ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt";

/// A yard with a task that has a script beside (or without) its solution.
fn with_keys(yard: Yard, name: &str, keys: &str, test: &str, toml: &str) -> Yard {
    let yard = yard.task(name, "exit 1", test, toml);
    fs::write(yard.tasks.last().unwrap().join("solution/keys.json"), keys).unwrap();
    yard
}

fn player(cast: &Path) -> Player {
    let bytes: Arc<[u8]> = fs::read(cast).unwrap().into();
    let mut player = Player::open(bytes, "recording.cast").unwrap();
    while player.work(500_000) == Work::More {}
    player.seek(Target::Percent(100.0));
    player
}

fn rows(text: &str) -> Vec<String> {
    let mut rows: Vec<String> = text.lines().map(|row| row.trim_end().to_string()).collect();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}

/// What is on the screen at the end, by the player.
fn played(cast: &Path) -> Vec<String> {
    rows(&player(cast).screen().text().join("\n"))
}

/// What is on the screen at the end, by the emulator that agents are told from.
fn emulated(pane: &Path) -> Vec<String> {
    let mut emulator = Emulator::new();
    emulator.feed(&fs::read(pane).unwrap(), Instant::now());
    rows(&emulator.capture().screen())
}

#[test]
fn scripts_end_as_their_tasks_judge_and_leave_recordings() {
    let slow = format!("[agent]\ntimeout_sec = 4.0\n{IMAGE}");
    let typed = r#"[
        {"keys": "mkdir -p /app; cd /app; clear\n", "wait": 0.5},
        {"keys": "cat > draft", "wait": 0.2, "episode": 1},
        {"keys": "Enter", "wait": 0.2},
        {"keys": "42\n", "wait": 0.2},
        {"keys": "C-d", "wait": 0.5},
        {"keys": "sleep 100\n", "wait": 0.5, "episode": 2},
        {"keys": "C-c", "wait": 0.5}, {"keys": "C-c", "wait": 0.5},
        {"keys": "less /etc/passwd\n", "wait": 1},
        {"keys": "q", "wait": 0.5},
        {"keys": "mv draft answer; printf '\\e[1m\u4efb done\\e[m;'\n", "wait": 1}
    ]"#;
    let dying = r#"[
        {"keys": "echo before; kill -9 $$\n", "wait": 1.5},
        {"keys": "echo 42 > /app/answer; echo after\n", "wait": 1, "episode": 1}
    ]"#;
    let late = r#"[{"keys": "echo 42 > /app/answer; (sleep 3; echo kept > /logs/artifacts/late) &\n", "wait": 0.5},
                   {"keys": "sleep 100\n", "wait": 60, "episode": 1}, {"keys": "echo never\n"}]"#;
    let mut yard = with_keys(Yard::new(), "typed", typed, CHECK, IMAGE);
    yard = with_keys(yard, "wrong", r#"[{"keys": "echo 41 > /app/answer\n", "wait": 0.5}]"#, CHECK, IMAGE);
    yard = with_keys(yard, "dying", dying, CHECK, IMAGE);
    // What the agent left behind lives until the tests are done.
    let survivor = format!("while [ ! -e /logs/artifacts/late ]; do sleep 0.1; done; {CHECK}");
    yard = with_keys(yard, "late", late, &survivor, &slow);
    let Some((done, id)) = in_containers(&yard, yard.config("scripted", 4), nothing) else { return };
    assert_eq!(done, Finished { planned: 4, ended: 4, queued: 0, complete: true });
    let read = yard.read();
    let dir = |task: &str| find(&yard, &read, task);
    let said = |task: &str| played(&dir(task).join("agent/recording.cast"));
    assert_eq!(read.end("typed"), (Some(1.0), None), "{:#?}", said("typed"));
    assert_eq!(read.end("wrong"), (Some(0.0), None));
    assert_eq!(read.end("dying"), (Some(1.0), None), "{:#?}", said("dying"));
    assert_eq!(read.end("late"), (Some(1.0), Some("AgentTimeoutError")), "{:#?}", said("late"));
    let episodes = ["typed", "wrong", "dying", "late"].map(|task| read.result(task).n_episodes);
    assert_eq!(episodes, [Some(3), Some(1), Some(2), Some(2)]);
    assert_eq!(json(&dir("typed").join("result.json"))["agent_info"]["name"], "scripted");

    let cast = player(&dir("typed").join("agent/recording.cast"));
    let marks: Vec<_> = cast.markers().iter().map(|m| m.label.clone()).collect();
    assert_eq!(marks, ["episode 0", "episode 1", "episode 2"]);
    assert!(cast.duration() > Duration::from_secs(3) && cast.screen().size() == (160, 40));
    for task in ["typed", "wrong", "late"] {
        let screen = said(task);
        let pane = fs::read_dir(dir(task).join("agent")).unwrap().flatten().map(|e| e.path());
        let pane = pane.filter(|p| p.extension().is_some_and(|e| e == "pane")).collect::<Vec<_>>();
        assert_eq!((pane.len(), screen == emulated(&pane[0])), (1, true), "{task}: {screen:#?}");
    }
    let screen = said("typed").join("\n");
    assert!(screen.contains("^C") && screen.contains("\u{4efb} done;") && !screen.contains("root:x"), "{screen}");
    // The shell that died is on the screen, in the log and in the result.
    let screen = said("dying").join("\n");
    assert!(screen.contains("the shell ended with exit code 137; this is a new one"), "{screen}");
    let log = fs::read_to_string(dir("dying").join("trial.log")).unwrap();
    assert!(log.contains("Terminal: the shell ended with exit code 137: a new one is opened"), "{log}");
    assert_eq!(json(&dir("dying").join("result.json"))["agent_result"]["metadata"]["shells_reopened"], 1);
    assert_eq!(fs::read_to_string(dir("late").join("artifacts/logs/artifacts/late")).unwrap(), "kept\n");
    assert_eq!(left_of(&id), "");
}

#[test]
fn a_container_that_is_killed_is_no_fault_of_the_agent() {
    let keys = r#"[{"keys": "echo up > /logs/agent/up\n", "wait": 60}, {"keys": "echo never\n"}]"#;
    let yard = with_keys(Yard::new(), "killed", keys, PASS_INSIDE, IMAGE);
    // One that does it itself, as root: what its container lives by ends with all else.
    let all = r#"[{"keys": "kill -9 -1\n", "wait": 60}, {"keys": "echo never\n"}]"#;
    let yard = with_keys(yard, "own", all, PASS_INSIDE, IMAGE);
    let begun = Instant::now();
    let ran = in_containers(&yard, yard.config("scripted", 2), async |control, plan| {
        until(|| trial_dir(&plan, "killed").join("agent/up").exists()).await;
        let told = control.board().read();
        let (_, work) =
            told.iter().find(|(name, _)| name.starts_with("killed__")).unwrap_or_else(|| panic!("{told:?}"));
        assert_eq!(work.episode, Some(1), "{told:?}");
        let Doing::Command { keys, wait, since } = &work.doing else { panic!("{work:?}") };
        assert_eq!((keys.as_str(), *wait), ("echo up > /logs/agent/up\n", 60.0));
        assert!(work.told.unwrap() >= *since);
        let trial = plan.trials.iter().find(|t| t.task.short_name() == "killed").unwrap();
        let label = format!("label={}={}", pilothouse::environment::labels::TRIAL, trial.config.trial_name);
        let containers = docker(&["ps", "-q", "--filter", &label]);
        docker(&["kill", containers.lines().next().unwrap()]);
    });
    let Some((done, id)) = ran else { return };
    assert!(done.complete && begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    let read = yard.read();
    assert_eq!(read.end("killed"), (None, Some("RuntimeError")));
    let message = &read.result("killed").exception.as_ref().unwrap().message;
    assert!(message.contains("the container is not running any more") && message.contains("137"), "{message}");
    assert_eq!(class_of(&yard.dir(), "killed").0, "infra");
    assert_eq!(read.end("own"), (None, Some("RuntimeError")));
    assert_eq!(class_of(&yard.dir(), "own").0, "agent_error");
    assert_eq!(read.result("killed").n_episodes, Some(1));
    assert_eq!(left_of(&id), "");
}

#[test]
fn a_stop_in_the_middle_leaves_the_recording_and_nothing_else() {
    let keys = r#"[{"keys": "yes | head -3000; echo up > /logs/agent/up; yes\n", "wait": 600}]"#;
    let yard = with_keys(Yard::new(), "busy", keys, PASS_INSIDE, IMAGE);
    let ran = in_containers(&yard, yard.config("scripted", 1), async |control, plan| {
        until(|| trial_dir(&plan, "busy").join("agent/up").exists()).await;
        control.cancel();
    });
    let Some((done, id)) = ran else { return };
    assert_eq!((done.ended, done.complete), (1, false));
    let read = yard.read();
    assert_eq!(read.end("busy"), (None, Some("CancelledError")));
    assert_eq!((read.tally.totals.phantom, read.result("busy").n_episodes), (0, Some(1)));
    assert_eq!(played(&find(&yard, &read, "busy").join("agent/recording.cast")).last().unwrap(), "y");
    assert_eq!(left_of(&id), "");
}

#[test]
fn what_can_not_be_played_is_refused_before_anything_is_made() {
    let mut yard =
        with_keys(Yard::new(), "broken", "[\n  {\"keys\": \"ls\\n\"},\n  {\"key\": 1}\n]", PASS_INSIDE, IMAGE);
    yard =
        with_keys(yard, "good", "[{\"keys\": \"ls\\n\"}]", PASS_INSIDE, IMAGE).task("without", "", PASS_INSIDE, IMAGE);
    yard = yard.task("fifo", "", PASS_INSIDE, IMAGE);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        yard.tasks.last().unwrap().join("solution/keys.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let Err(PlanError::Scripts(lines)) = yard.plan(yard.config("scripted", 1)) else { panic!("planned") };
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].contains("broken/solution/keys.json:3:8: unknown field `key`") && lines[0].contains("mend it"));
    assert!(lines[1].contains("without/solution/keys.json: the scripted agent has no script; write"), "{lines:#?}");
    assert!(lines[2].contains("fifo/solution/keys.json: ") && lines[2].contains("not a regular file"), "{lines:#?}");
    // Nobody else minds.
    assert!(yard.plan(yard.config("nop", 1)).is_ok());
    let mut both = yard.config("nop", 1);
    both.agents.push(AgentConfig { name: Some("scripted".to_string()), ..AgentConfig::default() });
    assert!(matches!(yard.plan(both), Err(PlanError::Scripts(_))));
    assert!(!yard.temp.path().join("jobs").exists());
}

/// The last number behind `tick-` in a text.
fn last_tick(text: &str) -> Option<u32> {
    text.rsplit("tick-").find_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
}

#[test]
fn the_terminal_of_a_running_trial_is_seen_live_until_the_job_is_stopped() {
    const SOON: Duration = Duration::from_secs(30);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Err(why) = runtime.block_on(yard::engine()) {
        return support::skipped(&format!("in containers: {why}"));
    }
    let keys = r#"[{"keys": "i=0; while :; do i=$((i+1)); echo tick-$i; sleep 0.3; done\n", "wait": 300}]"#;
    let yard = with_keys(Yard::new(), "ticking", keys, PASS_INSIDE, IMAGE);
    let path = |name: &str| yard.temp.path().join(name).to_str().unwrap().to_string();
    let (tasks, jobs, state) = (path("tasks"), path("jobs"), path("state"));
    let args = ["run", "-p", &tasks, "-a", "scripted", "-n", "1", "--jobs-dir", &jobs, "--job-name", "job", "-y"];
    let mut pty = Pty::pilothouse(&args, 170, 50, &[("PILOTHOUSE_STATE_DIR", &state)]);
    let cast = || {
        let trials = fs::read_dir(yard.dir()).into_iter().flatten().flatten();
        trials.map(|trial| trial.path().join("agent/recording.cast")).find(|cast| cast.exists())
    };
    let written = || cast().and_then(|cast| last_tick(&fs::read_to_string(cast).unwrap()));
    let begun = Instant::now();
    while written().is_none_or(|tick| tick < 3) {
        assert!(begun.elapsed() < SOON, "no ticks:\n{}", pty.text());
        std::thread::sleep(Duration::from_millis(20));
    }
    // From the list of trials: the terminal as it is now, and not its beginning.
    pty.send("c");
    let seen = written().unwrap();
    pty.wait_until("the present", SOON, |text| last_tick(text).is_some_and(|tick| tick >= seen));
    let mut lags: Vec<Duration> = Vec::new();
    while lags.len() < 15 {
        let before = written().unwrap();
        let tick = loop {
            match written() {
                Some(tick) if tick > before => break tick,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        lags.push(pty.wait_until("a tick", SOON, |text| last_tick(text).is_some_and(|seen| seen >= tick)));
    }
    lags.sort();
    // A machine that is busy with other tests is late now and then.
    assert!(lags[lags.len() / 2] < Duration::from_millis(100), "{lags:?}");
    let id = json(&yard.dir().join("config.json"));
    assert_eq!(id["agents"][0]["name"], "scripted");
    let id = json(&yard.dir().join("result.json"))["id"].as_str().unwrap().to_string();
    pty.kill(Signal::TERM);
    pty.wait_exit(SOON);
    let read = yard.read();
    assert_eq!(read.end("ticking"), (None, Some("CancelledError")));
    assert_eq!((read.tally.totals.phantom, read.tally.totals.running), (0, 0));
    assert_eq!(left_of(&id), "");
}

/// A yard with a task of two steps, whose second asks for what the first one left in the shell.
fn with_steps(toml: &str, app: &str, check: &str) -> Yard {
    let yard = Yard::new();
    let dir = yard.temp.path().join("tasks/steps");
    let steps = [
        ("a", format!("echo 41 > {app}/answer; kept=42; echo of the''-first\\n")),
        ("b", format!("echo $kept > {app}/answer; echo of the''-second $PPID\\n")),
    ];
    for (step, keys) in steps {
        let at = dir.join("steps").join(step);
        for sub in ["tests", "solution"] {
            fs::create_dir_all(at.join(sub)).unwrap();
        }
        fs::write(at.join("instruction.md"), "Do it.\n").unwrap();
        fs::write(at.join("solution/keys.json"), format!("[{{\"keys\": \"{keys}\", \"wait\": 0.5}}]")).unwrap();
        fs::write(at.join("tests/test.sh"), format!("#!/bin/bash\n{check}\n")).unwrap();
    }
    fs::create_dir_all(dir.join("environment")).unwrap();
    fs::write(dir.join("environment/Dockerfile"), "FROM scratch\n").unwrap();
    let steps = "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n";
    fs::write(dir.join("task.toml"), format!("schema_version = \"1.1\"\n{toml}\n{steps}")).unwrap();
    Yard { tasks: vec![dir], ..yard }
}

/// Each step has its own recording, of one shell.
fn one_shell_in_two_recordings(yard: &Yard) {
    let read = yard.read();
    let agent = |step: &str| find(yard, &read, "steps").join("steps").join(step).join("agent");
    let [first, second] = ["a", "b"].map(|step| played(&agent(step).join("recording.cast")).join("\n"));
    assert_eq!(read.end("steps"), (Some(0.5), None), "{first}\n{second}");
    assert_eq!(read.result("steps").n_episodes, Some(2));
    assert!(first.contains("of the-first") && !first.contains("second"), "{first}");
    // The second begins with what was on the screen, and its raw bytes with what is new.
    assert!(second.contains("of the-first") && second.contains("of the-second"), "{second}");
    let raw = |step: &str| fs::read_to_string(agent(step).join("terminus_2.pane")).unwrap();
    assert!(raw("a").contains("of the-first") && !raw("b").contains("of the-first") && raw("b").contains("-second"));
    for step in ["a", "b"] {
        let cast = player(&agent(step).join("recording.cast"));
        assert_eq!(cast.markers().iter().map(|m| m.label.as_str()).collect::<Vec<_>>(), ["episode 0"], "{step}");
        assert_eq!(fs::read_dir(agent(step)).unwrap().count(), 2, "{step}");
    }
    let log = fs::read_to_string(find(yard, &read, "steps").join("trial.log")).unwrap();
    assert!(!log.contains("a new one is opened"), "{log}");
}

#[test]
fn every_step_has_its_script_and_its_recording_and_all_have_one_shell() {
    let yard = with_steps(IMAGE, "/app", CHECK);
    let Some((done, id)) = in_containers(&yard, yard.config("scripted", 1), nothing) else { return };
    assert!(done.complete);
    one_shell_in_two_recordings(&yard);
    assert_eq!(left_of(&id), "");
}

const CHECK_HERE: &str =
    "[ \"$(cat \"$APP_DIR/answer\")\" = 42 ] && r=1 || r=0; echo $r > \"$LOGS_DIR/verifier/reward.txt\"";

#[test]
fn without_a_container_all_steps_have_one_shell() {
    let yard = with_steps("", "$APP_DIR", CHECK_HERE);
    assert!(yard.run(yard.config("scripted", 1), nothing).complete);
    one_shell_in_two_recordings(&yard);
}

#[test]
fn without_a_container_scripts_end_as_their_tasks_judge() {
    // On a busy machine the first Ctrl-C may come before the command that it is for.
    let typed = r#"[
        {"keys": "cat > draft", "wait": 0.2},
        {"keys": "Enter", "wait": 0.2, "episode": 1},
        {"keys": "42\n", "wait": 0.2},
        {"keys": "C-d", "wait": 0.4},
        {"keys": "sleep 100\n", "wait": 0.4, "episode": 2},
        {"keys": "C-c", "wait": 0.7}, {"keys": "C-c", "wait": 0.7}, {"keys": "C-c", "wait": 0.7},
        {"keys": "mv draft answer; echo \"$APP_DIR\" > where; printf '\\e[1m\u4efb done\\e[m;'\n", "wait": 2}
    ]"#;
    let dying = r#"[
        {"keys": "echo before; kill -9 $$\n", "wait": 1},
        {"keys": "echo 42 > answer; echo after\n", "wait": 2, "episode": 1}
    ]"#;
    let late = r#"[{"keys": "echo 42 > answer; (sleep 2; echo kept > \"$LOGS_DIR/artifacts/late\") & setsid sleep 999 & echo $! > \"$LOGS_DIR/agent/pid\"\n", "wait": 0.5},
                   {"keys": "sleep 100\n", "wait": 60, "episode": 1}, {"keys": "echo never\n"}]"#;
    let survivor = format!("while [ ! -e \"$LOGS_DIR/artifacts/late\" ]; do sleep 0.1; done; {CHECK_HERE}");
    let mut yard = with_keys(Yard::new(), "typed", typed, CHECK_HERE, "");
    yard = with_keys(yard, "dying", dying, CHECK_HERE, "");
    yard = with_keys(yard, "late", late, &survivor, "[agent]\ntimeout_sec = 1.5\n");
    let done = yard.run(yard.config("scripted", 3), nothing);
    assert_eq!(done, Finished { planned: 3, ended: 3, queued: 0, complete: true });
    let read = yard.read();
    let dir = |task: &str| find(&yard, &read, task);
    let said = |task: &str| played(&dir(task).join("agent/recording.cast"));
    assert_eq!(read.end("typed"), (Some(1.0), None), "{:#?}", said("typed"));
    assert_eq!(read.end("dying"), (Some(1.0), None), "{:#?}", said("dying"));
    assert_eq!(read.end("late"), (Some(1.0), Some("AgentTimeoutError")), "{:#?}", said("late"));
    assert_eq!(said("typed"), emulated(&dir("typed").join("agent/terminus_2.pane")));
    let screen = said("typed").join("\n");
    assert!(screen.contains("^C") && screen.contains("\u{4efb} done;"), "{screen}");
    let screen = said("dying").join("\n");
    assert!(screen.contains("the shell ended with exit code 137; this is a new one"), "{screen}");
    assert_eq!(fs::read_to_string(dir("late").join("artifacts/logs/artifacts/late")).unwrap(), "kept\n");
    // What left its group and its session ended with the trial.
    let pid = fs::read_to_string(dir("late").join("agent/pid")).unwrap();
    assert!(!Path::new(&format!("/proc/{}/cmdline", pid.trim())).exists(), "{pid} lives");
}

/// A terminal that prints without end, looked at in the view of its trial: keys are answered at once.
#[test]
fn a_flood_in_a_terminal_that_is_looked_at_holds_up_no_key() {
    const SOON: Duration = Duration::from_secs(30);
    let yard = Yard::new();
    let go = yard.temp.path().join("go");
    let keys = format!(r#"[{{"keys": "while [ ! -e {} ]; do sleep 0.1; done; yes\n", "wait": 300}}]"#, go.display());
    let yard = with_keys(yard, "flooding", &keys, CHECK_HERE, "");
    let path = |name: &str| yard.temp.path().join(name).to_str().unwrap().to_string();
    let (tasks, jobs, state) = (path("tasks"), path("jobs"), path("state"));
    let args = [
        "run",
        "-p",
        &tasks,
        "-a",
        "scripted",
        "-e",
        "local",
        "-n",
        "1",
        "--jobs-dir",
        &jobs,
        "--job-name",
        "job",
        "-y",
    ];
    let mut pty = Pty::pilothouse(&args, 170, 50, &[("PILOTHOUSE_STATE_DIR", &state)]);
    pty.wait_for("flooding", SOON);
    pty.wait_for("running", SOON);
    pty.send("\r");
    pty.wait_for("[Terminal]", SOON);
    let lags = |pty: &mut Pty| {
        let mut lags: Vec<Duration> = Vec::new();
        for _ in 0..10 {
            pty.send("?");
            lags.push(pty.wait_for("any other key closes", SOON));
            pty.send("q");
            lags.push(pty.wait_gone("any other key closes", SOON));
        }
        lags.sort();
        println!("from key to frame: {lags:?}");
        lags[lags.len() / 2]
    };
    let quiet = lags(&mut pty);
    fs::write(yard.temp.path().join("go"), "").unwrap();
    pty.wait_until("the flood", SOON, |text| text.matches("\u{2502}y ").count() > 20);
    let flooded = lags(&mut pty);
    // What is slow without a flood is the machine, busy with other tests, and a build for tests.
    assert!(flooded < quiet * 3 + Duration::from_millis(50), "{quiet:?}, beside a flood {flooded:?}");
    pty.kill(Signal::TERM);
    pty.wait_exit(SOON);
    assert_eq!(yard.read().end("flooding"), (None, Some("CancelledError")));
}
