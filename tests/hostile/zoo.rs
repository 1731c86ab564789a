//! A job with one trial for each thing that an agent, another program or a broken disk can do.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::job::Job;
use super::support::pty::{Pty, key};
use super::{LIMIT, OUTSIDE, SOON, STATE, at_home, clean, headless, hears, reports, tree, walk};

/// Controls, sequences that act, direction overrides, wide and invisible characters.
const POISON: &str = "\u{0}\u{1b}[31m\u{1b}]0;owned\u{7}\u{1b}[?1049l\u{9b}2J\u{202e}\u{2066}任务\u{200b}\u{1b}Pq\u{1b}\\\
                      \r\n\t\u{8}e\u{301} ";
/// A key as it stands in messages and in what terminals show.
const LEAK: &str = " API_KEY=hunter2hunter2 ";
/// Where people's words and programs' output are.
const PROSE: [&str; 6] =
    ["exception_message", "exception_traceback", "message", "content", "keystrokes", "reasoning_content"];

/// Puts the poison in front of every string; of the keys in `spare` the value stays as it is.
fn poison(value: &mut Value, spare: &[&str]) {
    match value {
        Value::String(text) => *text = format!("{POISON}{text}{POISON}"),
        Value::Array(items) => items.iter_mut().for_each(|v| poison(v, spare)),
        Value::Object(map) => {
            for (name, v) in map.iter_mut().filter(|(name, _)| !spare.contains(&name.as_str())) {
                poison(v, spare);
                if let (Value::String(text), true) = (v, PROSE.contains(&name.as_str())) {
                    text.push_str(LEAK);
                }
            }
        }
        _ => {}
    }
}

fn poison_file(path: &Path, spare: &[&str]) {
    let Ok(bytes) = fs::read(path) else { return };
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(mut value) => {
            poison(&mut value, spare);
            fs::write(path, serde_json::to_vec(&value).unwrap()).unwrap();
        }
        Err(_) => {
            let text = String::from_utf8_lossy(&bytes).replace('\n', &format!("\n{POISON}"));
            fs::write(path, format!("{POISON}{text}{LEAK}\n{POISON}")).unwrap();
        }
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries
        .flat_map(|e| if e.file_type().unwrap().is_dir() { files_below(&e.path()) } else { vec![e.path()] })
        .collect()
}

fn fifo(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

fn replace_by_dir(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir_all(path.join("inside")).unwrap();
}

struct Zoo {
    job: Job,
    locked: Vec<PathBuf>,
}

impl Drop for Zoo {
    fn drop(&mut self) {
        for path in &self.locked {
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        }
    }
}

impl Zoo {
    fn build() -> Zoo {
        let name = "zoo \u{1b}[31m\u{202e}任务\u{7}";
        let kinds = ["plain", "poisoned", "poisoned-all", "link-out", "link-loop", "pipes", "pipe-result", "hard-link"];
        let more = ["mode-000", "dirs", "foreign", "socket", "running-pipes", "ghost"];
        let tasks: Vec<&str> = kinds.iter().chain(&more).copied().collect();
        let mut job = Job::begin(name, &tasks);
        let done = |task: &str| {
            job.done(task, Some(1.0), Some(("RuntimeError", "it fell")));
            job.trial_dir(task)
        };
        let outside = job.dir.parent().unwrap().join("outside");
        fs::create_dir_all(outside.join("verifier")).unwrap();
        for file in ["secret", "verifier/test-stdout.txt", "verifier/reward.txt"] {
            fs::write(outside.join(file), format!("{OUTSIDE}\n")).unwrap();
        }
        let cast = format!("{{\"version\": 2, \"width\": 80, \"height\": 24}}\n[0.1, \"o\", \"{OUTSIDE}\"]\n");
        fs::write(outside.join("x.cast"), cast).unwrap();
        let mut locked = Vec::new();

        done("plain");
        // Every string of every file, first so that it is still a trial's result, then all of them.
        let structure = ["schema_version", "source", "role", "type", "id", "timestamp", "started_at", "finished_at"];
        for (task, spare) in [("poisoned", &structure[..]), ("poisoned-all", &[])] {
            for file in files_below(&done(task)) {
                if file.extension() == Some(OsStr::new("cast")) {
                    let lines = serde_json::to_string(&json!([0.2, "o", POISON])).unwrap();
                    let head = json!({"version": 2, "width": 80, "height": 24, "title": POISON,
                        "env": {"TERM": POISON}});
                    let marker = serde_json::to_string(&json!([0.3, "m", POISON])).unwrap();
                    fs::write(&file, format!("{head}\n{lines}\n{marker}\n")).unwrap();
                } else {
                    poison_file(&file, spare);
                }
            }
        }
        let dir = done("link-out");
        for (file, to) in [
            ("agent/trajectory.json", "secret"),
            ("agent/recording.cast", "x.cast"),
            ("exception.txt", "secret"),
            ("trial.log", "secret"),
        ] {
            fs::remove_file(dir.join(file)).unwrap();
            symlink(outside.join(to), dir.join(file)).unwrap();
        }
        fs::remove_dir_all(dir.join("verifier")).unwrap();
        symlink(outside.join("verifier"), dir.join("verifier")).unwrap();
        let dir = done("link-loop");
        fs::remove_file(dir.join("agent/trajectory.json")).unwrap();
        symlink("trajectory.json", dir.join("agent/trajectory.json")).unwrap();
        symlink("..", dir.join("agent/again")).unwrap();
        symlink(".", dir.join("steps")).unwrap();
        let dir = done("pipes");
        for file in ["agent/recording.cast", "agent/trajectory.json", "verifier/test-stdout.txt", "exception.txt"] {
            fifo(&dir.join(file));
        }
        let dir = done("pipe-result");
        fifo(&dir.join("result.json"));
        let dir = job.start("running-pipes");
        for file in ["agent/trajectory.json", "agent/recording.cast", "verifier/reward.txt", "trial.log"] {
            fifo(&dir.join(file));
        }
        let dir = done("hard-link");
        fs::remove_file(dir.join("agent/trajectory.json")).unwrap();
        fs::hard_link(dir.join("result.json"), dir.join("agent/trajectory.json")).unwrap();
        fs::hard_link(dir.join("agent/recording.cast"), dir.join("agent/second.cast")).unwrap();
        let dir = done("mode-000");
        for file in ["agent/trajectory.json", "agent/recording.cast", "verifier"] {
            fs::set_permissions(dir.join(file), fs::Permissions::from_mode(0o000)).unwrap();
            locked.push(dir.join(file));
        }
        let dir = done("dirs");
        for file in ["result.json", "config.json", "agent/trajectory.json", "agent/recording.cast", "exception.txt"] {
            replace_by_dir(&dir.join(file));
        }
        let dir = done("foreign");
        fs::write(dir.join("result.json"), r#"{"tests": 3, "ok": true}"#).unwrap();
        fs::write(dir.join("agent/trajectory.json"), "[1, 2, 3]").unwrap();
        let dir = done("socket");
        fs::remove_file(dir.join("agent/recording.cast")).unwrap();
        // A relative name: socket paths are short.
        let short = std::env::temp_dir().join(format!("ph-{}.sock", std::process::id()));
        let _ = fs::remove_file(&short);
        drop(std::os::unix::net::UnixListener::bind(&short).unwrap());
        if fs::rename(&short, dir.join("agent/recording.cast")).is_err() {
            fifo(&dir.join("agent/recording.cast"));
        }

        // Names of directories.
        for bytes in [&b"\x1b[32mgreen\x07__AbCdEfG"[..], b"\xff\xfe\x80__AbCdEfG", b"new\nline__AbCdEfG"] {
            let dir = job.dir.join(OsStr::from_bytes(bytes));
            copy(&job.trial_dir("plain"), &dir);
        }
        let rtl = job.dir.join("\u{202e}\u{200b}任务任务__AbCdEfG");
        copy(&job.trial_dir("plain"), &rtl);
        // A trial that is a link to its job, and one that leads nowhere.
        symlink(".", job.dir.join("self__AbCdEfG")).unwrap();
        symlink("/nonexistent", job.dir.join("nowhere__AbCdEfG")).unwrap();
        symlink(&outside, job.dir.join("out__AbCdEfG")).unwrap();
        let unreadable = job.dir.join("closed__AbCdEfG");
        fs::create_dir(&unreadable).unwrap();
        fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).unwrap();
        locked.push(unreadable);
        fs::write(job.dir.join("a-file__AbCdEfG"), "not a directory").unwrap();
        // The job's own files.
        for file in ["config.json", "lock.json"] {
            poison_file(&job.dir.join(file), &["schema_version", "created_at", "type"]);
        }
        job.leave();
        Zoo { job, locked }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn the_zoo_is_walked_through() {
    let zoo = Zoo::build();
    walk(&zoo.job.dir);
    reports(&[&zoo.job.dir]);
}

#[test]
fn what_is_no_file_is_not_played() {
    let zoo = Zoo::build();
    for (task, word) in [("pipes", "regular"), ("dirs", "no recording"), ("link-out", "no recording")] {
        let dir = zoo.job.trial_dir(task);
        for path in [dir.join("agent/recording.cast"), dir.clone()] {
            if task == "link-out" && path != dir {
                // The operator named this very path: it may be a link.
                continue;
            }
            let before = tree(&dir);
            let mut pty = Pty::pilothouse(&["replay", path.to_str().unwrap()], 100, 30, &[STATE]);
            pty.wait_until("a reason", SOON, |text| {
                text.contains("no recording") || text.contains("regular") || text.contains(word)
            });
            hears(&mut pty);
            pty.send("q");
            assert_eq!(pty.wait_exit(LIMIT).exit_code(), 0);
            pty.assert_restored();
            clean(&pty);
            assert_eq!(before, tree(&dir));
        }
    }
}

/// 30 MB here, ten times as much in release builds.
fn huge_job() -> Job {
    let mut job = Job::begin("huge", &["huge-task", "long-line"]);
    let megabytes = if cfg!(debug_assertions) { 30 } else { 300 };
    job.done("huge-task", Some(1.0), None);
    let path = job.trial_dir("huge-task").join("agent/trajectory.json");
    let mut out = String::from(r#"{"schema_version": "ATIF-v1.7", "agent": {"name": "terminus-2"}, "steps": ["#);
    let filler = "word ".repeat(20_000);
    let mut n = 1;
    while out.len() < megabytes << 20 {
        let comma = if n > 1 { ",\n" } else { "" };
        out.push_str(&format!(
            r#"{comma}{{"step_id": {n}, "source": "agent", "timestamp": "2026-01-01T00:00:00Z", "message": "Analysis: {filler}\nPlan: go on."}}"#,
        ));
        n += 1;
    }
    out.push_str("]}");
    fs::write(path, out).unwrap();
    // Lines of 10 MB in each kind of text.
    job.done("long-line", Some(0.0), Some(("RuntimeError", "long")));
    let dir = job.trial_dir("long-line");
    let line = "x".repeat(10 << 20);
    for file in ["verifier/test-stdout.txt", "exception.txt", "trial.log"] {
        fs::write(dir.join(file), format!("{line}\nthe end\n")).unwrap();
    }
    let cast = format!("{{\"version\": 2, \"width\": 80, \"height\": 24}}\n[0.1, \"o\", \"{line}\"]\n");
    fs::write(dir.join("agent/recording.cast"), cast).unwrap();
    let result = dir.join("result.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    value["exception_info"]["exception_message"] = line.into();
    fs::write(result, serde_json::to_vec(&value).unwrap()).unwrap();
    job.summary(true);
    job.leave();
    job
}

#[test]
fn huge_files_do_not_hold_up_the_keys() {
    let job = huge_job();
    walk(&job.dir);
    let (out, _) = headless(&["tally", "--json"], &[&job.dir]);
    assert!(out.len() < 200_000, "{} bytes of report", out.len());
}

#[test]
fn files_that_change_their_kind_or_vanish_while_they_are_shown() {
    let mut job = Job::finished("moving");
    job.leave();
    let mut pty = Pty::pilothouse(&["attach", job.arg()], 110, 30, &[STATE]);
    pty.wait_for("alpha-task", SOON);
    pty.send("/gamma\r");
    pty.wait_for("1 of 4", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("1 Trials", SOON);
    let dir = job.trial_dir("gamma-task");
    for file in ["agent/trajectory.json", "exception.txt", "verifier/test-stdout.txt", "result.json"] {
        fifo(&dir.join(file));
    }
    for _ in 0..8 {
        pty.send(key::TAB);
        pty.settle(Duration::from_millis(20), SOON);
    }
    hears(&mut pty);
    fs::remove_dir_all(&dir).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        pty.send(key::TAB);
        hears(&mut pty);
    }
    pty.send("q");
    pty.wait_for("1 Trials", LIMIT);
    assert!(at_home(&pty));
    fs::remove_dir_all(&job.dir).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    hears(&mut pty);
    pty.send(key::CTRL_C);
    assert_eq!(pty.wait_exit(LIMIT).exit_code(), 0);
    pty.assert_restored();
    clean(&pty);
}
