//! Busy with what has a score already: told with the count, and never where it is meant so.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::fake::{until, write};
use crate::support::job::{Job, from_now};

/// The warnings of that kind that `status --json` gives.
fn reruns(dirs: &[&Path]) -> Vec<Value> {
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.arg("status").args(dirs).arg("--json").env("PILOTHOUSE_STATE_DIR", state.path()).stdin(Stdio::null());
    let out = command.output().unwrap();
    let status: Value = serde_json::from_slice(&out.stdout).unwrap();
    let attention = status["attention"].as_array().unwrap().iter().any(|a| a["kind"] == "rerun");
    let found: Vec<Value> =
        status["warnings"].as_array().unwrap().iter().filter(|w| w["kind"] == "rerun").cloned().collect();
    assert_eq!(attention, !found.is_empty(), "{status:#}");
    if attention {
        assert_ne!(out.status.code(), Some(0));
    }
    found
}

fn message(found: &[Value]) -> String {
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0]["message"].as_str().unwrap().to_string()
}

/// Another trial of a task, at work since `seconds` from now.
fn another(job: &Job, task: &str, suffix: &str, seconds: i64) {
    let dir = job.dir.join(format!("{task}__{suffix}"));
    let name = format!("{task}__{suffix}");
    let agent = json!({"name": "terminus-2", "model_name": "lab/small-1"});
    write(dir.join("lock.json"), "{}");
    write(
        dir.join("config.json"),
        &json!({"task": {"path": format!("tasks/{task}"), "source": "tasks"}, "trial_name": name, "agent": agent})
            .to_string(),
    );
    fs::create_dir_all(dir.join("agent")).unwrap();
    let at = std::time::SystemTime::now();
    let at = if seconds < 0 { at - std::time::Duration::from_secs(seconds.unsigned_abs()) } else { at };
    for file in ["lock.json", "config.json"] {
        fs::File::options().append(true).open(dir.join(file)).unwrap().set_modified(at).unwrap();
    }
}

#[test]
fn trials_beside_their_own_results_are_counted() {
    let job = Job::begin("again", &["a-task", "b-task", "c-task"]);
    job.done("a-task", Some(1.0), None);
    job.done("b-task", Some(0.0), None);
    job.start("c-task");
    assert_eq!(reruns(&[&job.dir]), [] as [Value; 0]);
    another(&job, "a-task", "ZZZZZZZ", 0);
    let one = message(&reruns(&[&job.dir]));
    assert!(one.contains("1 trial of it run again") && one.contains("(1 solved)"), "{one}");
    another(&job, "b-task", "YYYYYYY", 0);
    let two = message(&reruns(&[&job.dir]));
    assert!(two.contains("2 trials of it run again") && two.contains("(1 solved)"), "{two}");
}

#[test]
fn attempts_that_were_planned_are_none() {
    let job = Job::begin("attempts", &["a-task", "a-task", "b-task"]);
    job.done("a-task", Some(1.0), None);
    another(&job, "a-task", "ZZZZZZZ", 0);
    job.start("b-task");
    assert_eq!(reruns(&[&job.dir]), [] as [Value; 0]);
    // A third one is.
    another(&job, "a-task", "YYYYYYY", 0);
    let dir = job.dir.join("a-task__ZZZZZZZ");
    let mut result: Value =
        serde_json::from_slice(&fs::read(job.trial_dir("a-task").join("result.json")).unwrap()).unwrap();
    result["id"] = "second".into();
    result["trial_name"] = "a-task__ZZZZZZZ".into();
    write(dir.join("result.json"), &result.to_string());
    assert!(message(&reruns(&[&job.dir])).contains("1 trial of it run again"));
}

#[test]
fn a_job_that_nobody_works_on_is_not_busy() {
    let mut job = Job::begin("idle", &["a-task"]);
    job.done("a-task", Some(1.0), None);
    another(&job, "a-task", "ZZZZZZZ", 0);
    assert_eq!(reruns(&[&job.dir]).len(), 1);
    job.summary(true);
    job.leave();
    assert_eq!(reruns(&[&job.dir]), [] as [Value; 0]);
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// An earlier, incomplete job of the name, and a later one that somebody works on, with other addresses.
fn pair() -> (Job, Job) {
    let tasks = ["a-task", "b-task", "c-task"];
    let mut first = Job::begin("same", &tasks);
    first.done("a-task", Some(1.0), None);
    first.done("b-task", Some(0.0), None);
    first.done("c-task", None, Some(("RuntimeError", "docker compose up failed")));
    first.leave();
    edit(&first.dir.join("lock.json"), |lock| lock["created_at"] = from_now(-4000).into());
    edit(&first.dir.join("result.json"), |r| r["id"] = "first".into());
    let second = Job::begin("same", &tasks);
    second.start("a-task");
    edit(&second.dir.join("config.json"), |c| c["agents"][0]["kwargs"] = json!({"api_base": "http://new:1/v1"}));
    edit(&first.dir.join("config.json"), |c| c["agents"][0]["kwargs"] = json!({"api_base": "http://old:1/v1"}));
    (first, second)
}

#[test]
fn the_same_job_in_another_directory_is_counted() {
    let (first, second) = pair();
    assert_eq!(reruns(&[&second.dir]), [] as [Value; 0]);
    let said = message(&reruns(&[&first.dir, &second.dir]));
    assert!(said.contains("2 trials of it have one in") && said.contains("(1 solved)"), "{said}");
    assert!(said.contains("1 so far") && said.contains(first.arg()), "{said}");
}

#[test]
fn samples_and_other_settings_are_none() {
    // Complete: nothing was missing, somebody wants more of it.
    let (first, second) = pair();
    first.done("c-task", Some(1.0), None);
    assert_eq!(reruns(&[&first.dir, &second.dir]), [] as [Value; 0]);
    // Other settings.
    let (first, second) = pair();
    edit(&second.dir.join("config.json"), |c| c["agents"][0]["kwargs"]["temperature"] = json!(0.3));
    assert_eq!(reruns(&[&first.dir, &second.dir]), [] as [Value; 0]);
    // Another place on purpose.
    let (first, second) = pair();
    edit(&second.dir.join("config.json"), |c| c["jobs_dir"] = "/runs/second".into());
    assert_eq!(reruns(&[&first.dir, &second.dir]), [] as [Value; 0]);
    // Another name.
    let (first, second) = pair();
    edit(&second.dir.join("config.json"), |c| c["job_name"] = "other".into());
    assert_eq!(reruns(&[&first.dir, &second.dir]), [] as [Value; 0]);
}

/// A process that looks like `harbor job resume -p <told>` and holds the log of another job.
struct Stray(Child);

impl Stray {
    fn new(place: &Path, told: &Path, writes: &Path) -> Stray {
        let program: PathBuf = place.join("harbor");
        write(program.clone(), &format!("#!/bin/sh\nexec 9>>'{}/job.log'\nsleep 120 &\nwait\n", writes.display()));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        command.args(["job", "resume", "-p"]).arg(told).stdin(Stdio::null()).process_group_of_its_own();
        let child = command.spawn().unwrap();
        let fds = PathBuf::from(format!("/proc/{}/fd", child.id()));
        let holds = || {
            let links = fs::read_dir(&fds).into_iter().flatten().flatten().filter_map(|e| fs::read_link(e.path()).ok());
            links.into_iter().any(|link| link.ends_with("job.log"))
        };
        until("the log is open", holds);
        Stray(child)
    }
}

trait Alone {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl Alone for Command {
    fn process_group_of_its_own(&mut self) -> &mut Command {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_was_told_one_job_and_writes_into_another() {
    let (first, mut second) = pair();
    // Not the same by its settings: the process alone tells that they belong together.
    edit(&second.dir.join("config.json"), |c| c["jobs_dir"] = "/runs/second".into());
    second.leave();
    let place = tempfile::tempdir().unwrap();
    let stray = Stray::new(place.path(), &first.dir, &second.dir);
    let pid = format!("harbor job resume (pid {})", stray.0.id());
    let both = message(&reruns(&[&first.dir, &second.dir]));
    assert!(both.contains(&pid) && both.contains("2 trials of it have one in"), "{both}");
    let told = message(&reruns(&[&first.dir]));
    assert!(told.contains(&pid) && told.contains(second.arg()) && told.contains("2 trials with a score"), "{told}");
    let written = message(&reruns(&[&second.dir]));
    assert!(
        written.contains(&pid) && written.contains(first.arg()) && written.contains("1 trials so far"),
        "{written}"
    );
    drop(stray);
    assert_eq!(reruns(&[&first.dir]), [] as [Value; 0]);
    // One that writes where it was told is none.
    let right = Stray::new(place.path(), &second.dir, &second.dir);
    assert_eq!(reruns(&[&second.dir]), [] as [Value; 0]);
    drop(right);
}
