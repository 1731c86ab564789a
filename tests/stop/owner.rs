//! The process that is stopped: small scripts that hold a job's log open as Harbor does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pilothouse::audit::{self, Found, Program, Progress, StopError, StopSignal, Verb};
use serde_json::Value;

use super::support;
use support::harbor::{document, pilothouse};
use support::proc;

/// A job dir with a trial at work, and a script called `harbor` that works on it.
struct Stage {
    tmp: tempfile::TempDir,
    job: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let tmp = tempfile::tempdir().unwrap();
        let job = tmp.path().join("jobs/j");
        let trial = job.join("task__abc");
        fs::create_dir_all(&trial).unwrap();
        fs::write(job.join("config.json"), r#"{"job_name": "j", "n_concurrent_trials": 1}"#).unwrap();
        fs::write(
            job.join("lock.json"),
            r#"{"schema_version": 3, "harbor": {"version": "0.21.0"}, "trials": [{"task": {"name": "task", "path": "tasks/task"}}, {"task": {"name": "other", "path": "tasks/other"}}]}"#,
        )
        .unwrap();
        fs::write(job.join("job.log"), "").unwrap();
        fs::write(trial.join("lock.json"), "{}").unwrap();
        fs::write(trial.join("config.json"), r#"{"task": {"path": "tasks/task"}, "trial_name": "task__abc"}"#).unwrap();
        fs::write(trial.join("trial.log"), "up\n").unwrap();
        Stage { tmp, job }
    }

    fn state(&self) -> PathBuf {
        self.tmp.path().join("state")
    }

    /// Starts a shell script under a name, with words after it.
    fn start(&self, name: &str, words: &[&str], body: &str, out: Stdio) -> Owner {
        let script = self.tmp.path().join(name);
        let ready = self.tmp.path().join("ready");
        let _ = fs::remove_file(&ready);
        let text = format!("exec 9>>jobs/j/job.log\n{body}\n: >ready\nwhile :; do sleep 0.05 9>&-; done\n");
        fs::write(&script, text).unwrap();
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", "--default-signal=TERM", "bash"]).arg(&script).args(words);
        let child = command.current_dir(self.tmp.path()).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        let owner = Owner { child: child.spawn().unwrap() };
        for _ in 0..500 {
            if ready.exists() {
                return owner;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the script did not start");
    }

    fn journal(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.job.join("pilothouse.jsonl")).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }
}

struct Owner {
    child: Child,
}

impl Owner {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn lives(&self) -> bool {
        proc::state(self.pid()).is_some_and(|s| s != 'Z')
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const RUN: &[&str] = &["run", "-p", "tasks", "-o", "jobs", "--job-name", "j"];
/// Ends in order half a second after the signal.
const ORDERLY: &str = "trap 'sleep 0.5; exit 130' TERM INT";

#[test]
fn the_owner_is_found_with_what_a_stop_must_know() {
    let stage = Stage::new();
    let Found::Nobody(_) = audit::find_owner(&stage.job) else { panic!("nobody works on it") };
    let owner = stage.start("harbor", RUN, ORDERLY, Stdio::null());
    let found = audit::find_owner(&stage.job);
    let here = found.here().unwrap();
    assert_eq!((here.pid, here.program, &here.verb), (owner.pid(), Program::Harbor, &Verb::Run));
    assert_eq!(here.cwd.as_deref(), Some(fs::canonicalize(stage.tmp.path()).unwrap().as_path()));
    assert_eq!((here.pipes.len(), here.doubts.len()), (0, 0), "{here:?}");
    let advice = audit::advice(here, Some("0.21.0"));
    assert_eq!(advice.signal, StopSignal::Term);
    assert_eq!(advice.other.map(|(signal, _)| signal), Some(StopSignal::Int));
    drop(owner);

    // `job resume` has no handler for SIGTERM; started for another job, and into a pipe.
    let words = ["job", "resume", "-p", "jobs/j"];
    let owner = stage.start("harbor", &words, "trap 'exit 130' INT", Stdio::piped());
    let found = audit::find_owner(&stage.job);
    let here = found.here().unwrap();
    assert_eq!((here.pid, &here.verb, here.pipes.as_slice()), (owner.pid(), &Verb::Resume, &["stdout"][..]));
    let advice = audit::advice(here, Some("0.26.0"));
    assert_eq!(advice.signal, StopSignal::Int);
    assert!(advice.warnings.iter().any(|w| w.contains("pipe")), "{advice:?}");
    drop(owner);

    let owner = stage.start("harbor", &["run", "--job-name", "another"], ORDERLY, Stdio::null());
    assert_eq!(audit::find_owner(&stage.job).here().unwrap().doubts.len(), 1);
    drop(owner);
    // Whoever only reads is no owner.
    let log = fs::File::open(stage.job.join("job.log")).unwrap();
    let mut reader = Command::new("sleep").arg("30").stdin(log).spawn().unwrap();
    assert!(audit::find_owner(&stage.job).here().is_none());
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn a_stop_asks_sends_waits_audits_and_notes() {
    let stage = Stage::new();
    let owner = stage.start("harbor", RUN, ORDERLY, Stdio::null());
    let dir = stage.job.to_str().unwrap();
    // Without a word nothing happens.
    let out = pilothouse(&["stop", dir], &stage.state());
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    for wanted in [
        "SIGTERM: harbor run handles it",
        "--signal INT",
        "cancel 1 running",
        "0 of 2 results kept; 1 queued stay undone",
        "task__abc  agent_setup",
        "phantom",
    ] {
        assert!(said.contains(wanted), "{wanted}\n{said}");
    }
    assert!(owner.lives() && stage.journal().is_empty());
    // An audit of a living job finds nothing wrong with what is at work, and touches nothing.
    let out = pilothouse(&["stop", dir, "--audit-only", "--json"], &stage.state());
    assert_eq!(document(&out)["audit"]["findings"], Value::Array(Vec::new()));

    let out = pilothouse(&["stop", dir, "-y", "--json", "--mend"], &stage.state());
    let said = document(&out);
    assert!(!owner.lives());
    assert_eq!(said["owner"]["process"]["pid"], owner.pid());
    assert_eq!(said["stop"]["signal"], "SIGTERM");
    assert_eq!(said["stop"]["ended"], true);
    assert!(said["stop"]["after_sec"].as_f64().unwrap() >= 0.4);
    assert_eq!(said["plan"]["running"][0]["trial"], "task__abc");
    assert_eq!(said["audit"]["findings"][0]["kind"], "no_result");
    assert!(!stage.job.join("task__abc").exists());
    let acts: Vec<Value> = stage.journal().iter().map(|n| n["act"].clone()).collect();
    assert_eq!(acts, ["stop", "quarantine"]);
    // Nobody is left to stop: it is an audit only.
    let out = pilothouse(&["stop", dir, "-y"], &stage.state());
    assert!(String::from_utf8_lossy(&out.stdout).contains("nothing to stop"));
}

#[test]
fn what_does_not_end_is_left_alone() {
    let stage = Stage::new();
    let owner = stage.start("harbor", RUN, "trap 'echo x >>term' TERM; trap '' INT", Stdio::null());
    let dir = stage.job.to_str().unwrap();
    let out = pilothouse(&["stop", dir, "-y", "--mend", "--wait", "1.5"], &stage.state());
    assert_eq!(out.status.code(), Some(1));
    assert!(owner.lives());
    assert_eq!(fs::read_to_string(stage.tmp.path().join("term")).unwrap(), "x\n", "one signal and no more");
    assert!(stage.job.join("task__abc").exists());
    assert!(String::from_utf8_lossy(&out.stderr).contains("is still there after"));
    // A signal that it ignores is not worth sending, and is said.
    let out = pilothouse(&["stop", dir, "-y", "--signal", "INT"], &stage.state());
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("ignores SIGINT"));
    // While somebody works on it, nothing is mended.
    let mut found = audit::audit(&stage.job, None).unwrap();
    let finding = audit::Finding {
        kind: audit::FindingKind::NoResult,
        subject: "task__abc".to_string(),
        trial: None,
        evidence: String::new(),
        age: None,
        bytes: None,
        mend: audit::Mend::Quarantine { name: "task__abc".to_string() },
    };
    found.owner = Found::Nobody(String::new());
    let refused = audit::mend(&found, &finding, &stage.state());
    assert!(matches!(refused, Err(audit::MendError::Owned(_))), "{refused:?}");
    assert!(stage.job.join("task__abc").exists());
}

#[test]
fn only_this_very_process_gets_the_signal() {
    let stage = Stage::new();
    let owner = stage.start("harbor", RUN, ORDERLY, Stdio::null());
    let found = audit::find_owner(&stage.job);
    let mut other = found.here().unwrap().clone();
    // As if the number had been given to a later process.
    other.started -= 1;
    let sent = audit::stop(&other, StopSignal::Term, Duration::from_secs(1), &mut |_, _| true);
    assert_eq!(sent, Err(StopError::Gone(other.name())));
    std::thread::sleep(Duration::from_millis(700));
    assert!(owner.lives());
    // The waiting can be given up; the process is not bothered again.
    let here = found.here().unwrap();
    let last = audit::stop(here, StopSignal::Int, Duration::from_secs(20), &mut |_, p| p != Progress::Sent).unwrap();
    assert!(matches!(last, Progress::StillThere { .. }), "{last:?}");
}

#[test]
fn a_stranger_is_not_stopped_without_a_person() {
    let stage = Stage::new();
    let owner = stage.start("collector.sh", &["run"], ORDERLY, Stdio::null());
    let out = pilothouse(&["stop", stage.job.to_str().unwrap(), "-y"], &stage.state());
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stdout).contains("names neither harbor nor pilothouse"));
    assert!(owner.lives());
    // Beside a Harbor it is passed over.
    let harbor = stage.start("harbor", RUN, ORDERLY, Stdio::null());
    assert_eq!(audit::find_owner(&stage.job).here().unwrap().pid, harbor.pid());
}

#[test]
fn a_job_dir_that_can_not_be_written_is_noted_elsewhere() {
    let stage = Stage::new();
    let owner = stage.start("harbor", RUN, ORDERLY, Stdio::null());
    // Root may write anywhere, but not into a directory.
    fs::create_dir(stage.job.join("pilothouse.jsonl")).unwrap();
    let out = pilothouse(&["stop", stage.job.to_str().unwrap(), "-y"], &stage.state());
    assert!(!owner.lives());
    assert!(String::from_utf8_lossy(&out.stdout).contains("noted in"));
    let notes = fs::read_to_string(stage.state().join("journal/j.jsonl")).unwrap();
    assert!(notes.contains("\"act\":\"stop\""), "{notes}");
    assert!(Path::new(&stage.job).exists());
}
