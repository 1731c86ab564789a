//! The demo: the bundled recording is whole, and acting it out gives it back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pilothouse::cli::demo::play::{Stop, play};
use pilothouse::cli::demo::stage::{Act, Stage};
use pilothouse::cli::demo::{Demo, NOTICE, assets, live, tasks};
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use support::escapes::{Allowed, assert_no_foreign_escapes};
use support::pty::Pty;

const SOON: Duration = Duration::from_secs(30);

fn files_below(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_string();
                out.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    out
}

/// The text with every time replaced by one letter.
fn timeless(path: &str, bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let pattern = if path.ends_with(".cast") {
        r#"(?m)^\[[0-9.e-]+,|"timestamp": \d+"#
    } else {
        r#"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)?|"(start|stop)": \d{13}"#
    };
    Regex::new(pattern).unwrap().replace_all(&text, "T").into_owned()
}

#[test]
fn every_file_of_the_recording_is_bundled_and_it_is_small() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/demo");
    let there = files_below(&root);
    let bundled: BTreeMap<String, Vec<u8>> =
        assets::FILES.iter().map(|(path, bytes)| (path.to_string(), bytes.to_vec())).collect();
    assert_eq!(there.keys().collect::<Vec<_>>(), bundled.keys().collect::<Vec<_>>());
    assert!(there == bundled);
    let size: usize = bundled.values().map(Vec::len).sum();
    assert!(size < 300 * 1024, "{size} bytes");
}

#[test]
fn the_end_is_the_recording_itself() {
    let stage = Stage::plan(assets::FILES).unwrap();
    let root = tempfile::tempdir().unwrap();
    let before = jiff::Timestamp::now();
    assert!(play(&stage, root.path(), 100.0, &Stop::default()).unwrap());
    let after = jiff::Timestamp::now();
    let made = files_below(root.path());
    let wanted: BTreeMap<&str, &[u8]> = assets::FILES.iter().copied().collect();
    let derived = |path: &str| path.ends_with("/job.log") || path.ends_with("/terminus_2.pane");
    let names: BTreeSet<&str> = made.keys().map(String::as_str).filter(|p| !derived(p)).collect();
    assert_eq!(names, wanted.keys().copied().collect());
    for (path, bytes) in &wanted {
        assert!(timeless(path, &made[*path]) == timeless(path, bytes), "{path} differs");
    }
    // What is derived holds what it is derived from.
    let job_log = String::from_utf8(made[&format!("{}/job.log", stage.job_dir)].clone()).unwrap();
    for (path, bytes) in wanted.iter().filter(|(path, _)| path.ends_with("trial.log")) {
        for line in std::str::from_utf8(bytes).unwrap().lines() {
            assert!(job_log.contains(line), "{path}: {line}");
        }
    }
    // The times are the present ones.
    let result: serde_json::Value = serde_json::from_slice(&made[&format!("{}/result.json", stage.job_dir)]).unwrap();
    let at = |key: &str| pilothouse::job::time::parse(result[key].as_str().unwrap()).unwrap().at;
    let slack = jiff::SignedDuration::from_secs(1);
    assert!(at("started_at") >= before - slack && at("finished_at") <= after + slack);
    assert!(at("finished_at") > at("started_at"));
}

#[test]
fn the_order_is_that_of_harbor() {
    let stage = Stage::plan(assets::FILES).unwrap();
    assert_eq!(stage.n_trials, 8);
    assert!((60.0..=90.0).contains(&stage.seconds), "{} s", stage.seconds);
    assert!(stage.cues.is_sorted_by(|a, b| a.at <= b.at));
    let path = |act: &Act| match act {
        Act::Dir(p) | Act::Close(p) => p.clone(),
        Act::Json(p, _) | Act::Text(p, _) | Act::Append(p, _) | Act::CastHeader(p, _) | Act::CastEvent(p, _) => {
            p.clone()
        }
    };
    let first = |wanted: &str| stage.cues.iter().position(|cue| path(&cue.act).ends_with(wanted));
    let trials: BTreeSet<String> = assets::FILES
        .iter()
        .filter_map(|(p, _)| p.strip_prefix(&format!("{}/", stage.job_dir))?.split_once('/'))
        .map(|(trial, _)| trial.to_string())
        .collect();
    for trial in &trials {
        let order = [
            "",
            "/lock.json",
            "/config.json",
            "/agent/terminus_2.pane",
            "/agent/recording.cast",
            "/agent/trajectory.json",
            "/artifacts/manifest.json",
            "/verifier/test-stdout.txt",
            "/verifier/reward.txt",
            "/result.json",
        ];
        let seen: Vec<usize> = order.iter().filter_map(|file| first(&format!("{trial}{file}"))).collect();
        assert!(seen.is_sorted(), "{trial}: {seen:?}");
        // The result comes once and nothing of the trial comes after it.
        let result = format!("{}/{trial}/result.json", stage.job_dir);
        let at = stage.cues.iter().position(|cue| path(&cue.act) == result).unwrap();
        let inside = format!("{}/{trial}", stage.job_dir);
        let later = stage.cues[at + 1..].iter().filter(|c| path(&c.act).starts_with(&inside)).count();
        assert_eq!(later, 1, "{trial}: only its closing");
    }
    // Each rewriting of a trajectory is whole, and has one more episode than the one before.
    let mut steps: BTreeMap<String, usize> = BTreeMap::new();
    for cue in &stage.cues {
        if let Act::Json(p, text) = &cue.act {
            let value: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{p}: {e}"));
            if p.ends_with("trajectory.json") {
                let n = value["steps"].as_array().unwrap().len();
                let before = steps.insert(p.clone(), n).unwrap_or(1);
                assert!(n == before + 1 || n == before, "{p}: {before} then {n}");
            }
        }
    }
    // Never more trials at once than the job says.
    let summaries: Vec<i64> = stage
        .cues
        .iter()
        .filter_map(|cue| match &cue.act {
            Act::Json(p, text) if *p == format!("{}/result.json", stage.job_dir) => {
                let value: serde_json::Value = serde_json::from_str(text).unwrap();
                value["stats"]["n_running_trials"].as_i64()
            }
            _ => None,
        })
        .collect();
    assert_eq!(summaries.len(), 2 + 2 * 8);
    assert_eq!(summaries.iter().max(), Some(&4));
}

#[test]
fn it_stops_when_told_and_removes_its_directory() {
    let demo = Demo { replay: true, speed: 1.0, once: false, headless: false, dir: None };
    let (tell, told) = std::sync::mpsc::channel();
    let running = demo.start(move |error| tell.send(error.is_none()).unwrap()).unwrap();
    assert!(running.job_dir().is_dir());
    let root = running.root().to_path_buf();
    std::thread::sleep(Duration::from_millis(700));
    assert!(running.job_dir().join("lock.json").is_file());
    assert!(!running.is_over());
    let began = Instant::now();
    drop(running);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(told.recv().unwrap());
    assert!(!root.exists());
}

#[test]
fn headless_says_what_it_is_and_cleans_up_after_a_signal() {
    let tmp = tempfile::tempdir().unwrap();
    let start = |extra: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_pilothouse"))
            .args(["demo", "--replay", "--headless"])
            .args(extra)
            .env("TMPDIR", tmp.path())
            .env("PILOTHOUSE_STATE_DIR", tmp.path().join("state"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let left = || fs::read_dir(tmp.path()).unwrap().flatten().filter(|e| e.file_name() != "state").count();
    let out = start(&["--speed", "200"]).wait_with_output().unwrap();
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stdout).contains(NOTICE));
    assert_eq!(left(), 0);
    let child = start(&[]);
    let began = Instant::now();
    while left() == 0 && began.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(left(), 0);
    // A named directory stays, and is not taken when it is there already.
    let kept = tmp.path().join("kept");
    let name = kept.to_str().unwrap();
    assert!(start(&["--speed", "200", "--dir", name]).wait_with_output().unwrap().status.success());
    assert!(kept.join("jobs/demo-re-enactment/result.json").is_file());
    let again = start(&["--speed", "200", "--dir", name]).wait_with_output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains(name));
}

#[test]
fn on_the_screen_it_runs_to_its_end_and_leaves() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().to_str().unwrap();
    let env = [("TMPDIR", dir), ("PILOTHOUSE_STATE_DIR", dir)];
    let mut pty = Pty::pilothouse(&["demo", "--replay", "--speed", "8", "--once"], 120, 36, &env);
    pty.wait_for("demo-re-enactment", SOON);
    pty.wait_for("no trial is run", SOON);
    pty.wait_for("running", SOON);
    pty.wait_for("finished", SOON);
    assert!(pty.wait_exit(SOON).success());
    pty.assert_restored();
    assert_no_foreign_escapes(&pty.raw(), Allowed::default());
    let rest: Vec<_> = fs::read_dir(tmp.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!rest.iter().any(|name| name.to_string_lossy().starts_with("pilothouse-demo")), "{rest:?}");
}

#[test]
fn the_tasks_are_bundled_as_they_are() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/demo-tasks");
    let bundled: BTreeMap<String, Vec<u8>> =
        tasks::FILES.iter().map(|(path, bytes)| (path.to_string(), bytes.to_vec())).collect();
    assert!(files_below(&root) == bundled);
    let temp = tempfile::tempdir().unwrap();
    tasks::write(temp.path()).unwrap();
    assert!(files_below(temp.path()) == bundled);
}

/// The job, truly run: with nothing on the path but what a POSIX shell needs, and nothing of Docker.
#[test]
fn the_bundled_job_runs_to_its_end_with_every_kind_of_end() {
    let tmp = tempfile::tempdir().unwrap();
    let bin = tmp.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for name in [
        "sh", "cat", "sleep", "touch", "chmod", "head", "tail", "sort", "test", "ls", "sed", "grep", "awk", "mkdir",
        "mv", "rmdir", "tr", "wc", "stty", "id",
    ] {
        let found =
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|d| d.join(name)).find(|p| p.exists());
        std::os::unix::fs::symlink(found.unwrap_or_else(|| panic!("no {name}")), bin.join(name)).unwrap();
    }
    let kept = tmp.path().join("kept");
    let began = Instant::now();
    let out = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["demo", "--headless", "--dir", kept.to_str().unwrap()])
        .env_clear()
        .env("PATH", &bin)
        .env("PILOTHOUSE_STATE_DIR", tmp.path().join("state"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(began.elapsed() < Duration::from_secs(120));
    assert!(text.contains(live::NOTICE), "{text}");
    let mut ends: Vec<String> = Vec::new();
    for entry in fs::read_dir(kept.join("jobs/demo")).unwrap().flatten() {
        let Ok(bytes) = fs::read(entry.path().join("result.json")) else { continue };
        let result: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let reward = &result["verifier_result"]["rewards"]["reward"];
        let kind = result["exception_info"]["exception_type"].as_str().unwrap_or("-").to_string();
        let task = result["task_name"].as_str().unwrap();
        ends.push(format!("{task} {reward} {kind}"));
        // What the agent did can be replayed, episode by episode.
        let cast = fs::read_to_string(entry.path().join("agent/recording.cast")).unwrap_or_default();
        let episodes = cast.lines().filter(|line| line.contains(r#""m", "episode "#)).count();
        assert!(episodes >= 2 || task == "demo/no-service", "{task}: {episodes} episodes");
        assert!(!cast.contains("not found") && !cast.contains("No such file"), "{task}: {cast}");
        assert_eq!(cast.contains("[m sum of 1 to 10: 45"), task == "demo/fix-script", "{cast}");
    }
    ends.sort();
    let wanted = [
        "demo/count-words 1.0 -",
        "demo/fix-script 1.0 -",
        "demo/half-the-cases 0.25 -",
        "demo/long-think 1.0 AgentTimeoutError",
        "demo/no-reward null RewardFileNotFoundError",
        "demo/no-service null HealthcheckError",
        "demo/slow-tests null VerifierTimeoutError",
        "demo/wrong-turn 0.0 -",
    ];
    assert_eq!(ends, wanted);
    assert!(!kept.join("scratch").exists());
}

#[test]
fn the_bundled_job_is_seen_on_the_screen() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().to_str().unwrap();
    let env = [("TMPDIR", dir), ("PILOTHOUSE_STATE_DIR", dir)];
    let mut pty = Pty::pilothouse(&["demo", "--once"], 120, 36, &env);
    pty.wait_for("scripted", SOON);
    pty.wait_for("running", SOON);
    // A trial that runs is opened, and its terminal is there, by itself and at work.
    pty.send("\r");
    pty.wait_for("[Terminal]", SOON);
    pty.wait_for("live", SOON);
    pty.wait_for("$ ", SOON);
    pty.send("q");
    pty.wait_for("finished", Duration::from_secs(90));
    assert!(pty.wait_exit(SOON).success());
    pty.assert_restored();
    assert_no_foreign_escapes(&pty.raw(), Allowed::default());
    let rest: Vec<_> = fs::read_dir(tmp.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!rest.iter().any(|name| name.to_string_lossy().starts_with("pilothouse-demo")), "{rest:?}");
}

#[test]
fn a_mistyped_directory_is_named() {
    for args in [&["run", "-p", "/no/such/place", "--dry-run"][..], &["clean", "--dry-run", "/no/such/place"]] {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_pilothouse")).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("/no/such/place: no such directory"), "{args:?}: {said}");
    }
}
