//! Read-only mounts, mounts without events, forced polling: every command works there, and writes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pilothouse::follow::Options;
use pilothouse::job::Phase;
use serde_json::Value;

#[path = "../support/runs.rs"]
mod runs;

use super::support;
use super::{Attached, begin_trial, done_trial, make_job};
use runs::{Made, Outcome};
use support::harbor::{document, pilothouse};
use support::mounts::Mounted;
use support::pty::Pty;

const SOON: Duration = Duration::from_secs(30);

/// Contents and times of everything below.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut out = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let text = if meta.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
            if meta.is_dir() {
                todo.push(path.clone());
            }
            out.insert(path, (text, meta.modified().unwrap()));
        }
    }
    out
}

const CAST: &str = "{\"version\": 2, \"width\": 80, \"height\": 24, \"timestamp\": 1764500000}\n\
                    [0.1, \"o\", \"$ \"]\n[1.0, \"o\", \"hello from the cast\\r\\n\"]\n";

/// A job with a pass, a failure and what has to be looked at, in a jobs dir.
fn made(root: &Path) -> String {
    let outcomes = vec![
        Outcome::passed("wins"),
        Outcome::failed("loses").file("agent/recording.cast", CAST),
        Outcome::raised("breaks", None, "RuntimeError", "Docker compose command failed: no space left on device"),
    ];
    Made::new("mounted", outcomes).write(root).file_name().unwrap().to_string_lossy().into_owned()
}

/// All commands on a job seen at `at`, of which the files lie below `root`. `writable`: what is written goes
/// through.
fn everything_works(root: &Path, at: &Path, name: &str, state: &Path, writable: bool) {
    let before = tree(root);
    let job = at.join(name);
    let dir = job.to_str().unwrap();
    let run = |args: &[&str]| pilothouse(args, state);

    let status = run(&["status", "--json", dir]);
    assert_eq!(document(&status)["jobs"][0]["state"], "finished", "{}", at.display());
    let tally = document(&run(&["tally", "--json", dir]));
    assert_eq!((&tally["totals"]["passed"], &tally["totals"]["planned"]), (&1.into(), &3.into()), "{tally:#}");
    let triage = document(&run(&["triage", "--json", dir]));
    assert_eq!(triage["trials"].as_array().map(Vec::len), Some(2), "{triage:#}");
    let jobs = document(&run(&["jobs", "--json", "--no-remember", at.to_str().unwrap()]));
    let listed = &jobs["jobs"][0];
    assert_eq!((&listed["state"], &listed["scores"]["raw"]["numerator"]), (&"finished".into(), &1.into()), "{jobs:#}");

    for poll in [None, Some("0.5")] {
        let mut args = vec!["attach", dir];
        args.extend(poll.iter().flat_map(|every| ["--poll", every]));
        let mut pty = Pty::pilothouse(&args, 120, 40, &[("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())]);
        pty.wait_until("all trials", SOON, |screen| screen.contains("1 passed") && screen.contains("finished"));
        pty.send("6");
        pty.wait_until("the list of jobs", SOON, |screen| screen.contains("6 Jobs") && screen.contains(name));
        pty.send("1q");
        assert!(pty.wait_exit(SOON).success());
    }
    let trial = fs::read_dir(&job).unwrap().flatten().map(|e| e.path());
    let trial = trial.into_iter().find(|p| p.join("agent/recording.cast").exists()).unwrap();
    let mut pty = Pty::pilothouse(
        &["replay", trial.to_str().unwrap()],
        120,
        40,
        &[("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())],
    );
    pty.wait_for("recording.cast", SOON);
    pty.send("G");
    pty.wait_for("hello from the cast", SOON);
    pty.send("q");
    assert!(pty.wait_exit(SOON).success());
    assert_eq!(before, tree(root), "something below {} was written", root.display());

    let loses = trial.file_name().unwrap().to_string_lossy().into_owned();
    let said = run(&["verdict", trial.to_str().unwrap(), "agent_fault", "--note", "seen here", "--json"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let after = tree(root);
    if writable {
        assert!(after.keys().any(|p| p.ends_with("pilothouse.jsonl")));
    } else {
        assert_eq!(before, after, "a verdict is noted in the state dir");
        assert!(fs::read_dir(state.join("journal")).unwrap().count() > 0);
    }
    let triage = document(&run(&["triage", "--json", dir]));
    let item = triage["trials"].as_array().unwrap().iter().find(|i| i["trial"] == loses.as_str()).cloned();
    assert_eq!(item.unwrap_or(Value::Null)["verdict"], "agent_fault", "{triage:#}");
}

#[test]
fn every_command_works_on_a_read_only_mount() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("jobs");
    let name = made(&root);
    let Some(mount) = Mounted::read_only(&root, &tmp.path().join("ro")) else { return };
    everything_works(&root, &mount.at, &name, &tmp.path().join("state"), false);
}

#[test]
fn every_command_works_where_nothing_is_reported() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("jobs");
    let name = made(&root);
    let Some(mount) = Mounted::bindfs(&root, &tmp.path().join("fuse")) else { return };
    everything_works(&root, &mount.at, &name, &tmp.path().join("state"), true);
}

#[test]
fn what_happens_behind_a_mount_without_events_is_seen() {
    let tmp = tempfile::tempdir().unwrap();
    let behind = tmp.path().join("jobs");
    make_job(&behind.join("live"));
    let name = "sum-lines__aB3dE5f";
    begin_trial(&behind.join("live"), name);
    let Some(mount) = Mounted::bindfs(&behind, &tmp.path().join("fuse")) else { return };
    let mut attached = Attached::new(&mount.at, Options { owner: false, ..Options::default() });
    attached.until("the trial", |fleet| super::phase_of(fleet, name) == Some(Phase::EnvironmentSetup));
    done_trial(&behind.join("live"), name, 1.0);
    let began = Instant::now();
    while super::phase_of(&attached.fleet, name) != Some(Phase::Done) {
        assert!(began.elapsed() < SOON, "{:#?}", attached.log);
        attached.take(Duration::from_millis(20));
    }
}
