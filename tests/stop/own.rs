//! Jobs of pilothouse's own: stopped in order, or killed and then audited.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support;
use support::harbor::{docker, docker_lines, document, pilothouse, result, trial_dirs};

/// Tasks that take their time, and a job of them.
struct Own {
    tmp: tempfile::TempDir,
    child: Child,
}

impl Own {
    /// Starts a job of three tasks, two at a time, and waits until both agents are at work.
    fn start(environment: &str) -> Own {
        let tmp = tempfile::tempdir().unwrap();
        for n in 0..3 {
            let task = tmp.path().join(format!("tasks/own-{n}"));
            for (file, text) in [
                (
                    "task.toml",
                    "version = \"1.0\"\n[agent]\ntimeout_sec = 300.0\n[environment]\ndocker_image = \"tb-base:1\"\n",
                ),
                ("instruction.md", "Wait.\n"),
                ("solution/solve.sh", "#!/bin/bash\necho at work\nsleep 300\n"),
                ("tests/test.sh", "#!/bin/bash\necho 1 >\"${LOGS_DIR:-/logs}/verifier/reward.txt\"\n"),
                ("environment/Dockerfile", "FROM tb-base:1\n"),
            ] {
                fs::create_dir_all(task.join(file).parent().unwrap()).unwrap();
                fs::write(task.join(file), text).unwrap();
            }
        }
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_pilothouse")]);
        command.args(["run", "-p", "tasks", "-a", "oracle", "-n", "2", "-o", "jobs", "--job-name", "own", "-y"]);
        command.args(["--headless", "-e", environment]).env("PILOTHOUSE_STATE_DIR", tmp.path().join("state"));
        let out = fs::File::create(tmp.path().join("out")).unwrap();
        command.current_dir(tmp.path()).stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        let mut own = Own { child: command.spawn().unwrap(), tmp };
        let until = Instant::now() + Duration::from_secs(60);
        // The live result is written, too: nothing is in the middle of a write when the job is killed.
        while own.at_work() < 2 || own.told_running() != Some(2) {
            let ended = own.child.try_wait().unwrap();
            let said = fs::read_to_string(own.tmp.path().join("out")).unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{ended:?}\n{said}");
            std::thread::sleep(Duration::from_millis(50));
        }
        own
    }

    fn job(&self) -> PathBuf {
        self.tmp.path().join("jobs/own")
    }

    fn state(&self) -> PathBuf {
        self.tmp.path().join("state")
    }

    fn at_work(&self) -> usize {
        let begun = |trial: &&PathBuf| fs::read_to_string(trial.join("agent/oracle.txt")).is_ok_and(|t| !t.is_empty());
        let whole = trial_dirs(&self.job());
        // In a container the output comes out at the end: there the container's log file shows the start.
        let up = |trial: &&PathBuf| fs::read_to_string(trial.join("trial.log")).is_ok_and(|t| t.contains("agent"));
        whole.iter().filter(|t| begun(t) || up(t)).count()
    }

    /// Trials at work by the live result.
    fn told_running(&self) -> Option<u64> {
        let value: Value = serde_json::from_slice(&fs::read(self.job().join("result.json")).ok()?).ok()?;
        value["stats"]["n_running_trials"].as_u64()
    }

    fn id(&self) -> String {
        let value: Value = serde_json::from_slice(&fs::read(self.job().join("result.json")).unwrap()).unwrap();
        value["id"].as_str().unwrap().to_string()
    }

    fn stop(&self, args: &[&str]) -> (Value, Option<i32>) {
        let job = self.job();
        let mut all = vec!["stop", job.to_str().unwrap(), "--json"];
        all.extend(args);
        let out = pilothouse(&all, &self.state());
        (document(&out), out.status.code())
    }

    /// Kills it, at a moment when it writes nothing: what a write that was cut off leaves is another test's.
    fn kill(&mut self) {
        let pid = self.child.id().to_string();
        let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            signal("-STOP");
            // A stop reaches every thread before the state says so.
            while support::proc::state(self.child.id()) != Some('T') {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !half_written(&self.job()) {
                break;
            }
            assert!(Instant::now() < until, "it never comes to an end with its writing");
            signal("-CONT");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Whatever went wrong, nothing of this job stays.
        let _ = pilothouse(&["clean", "-y", self.job().to_str().unwrap()], &self.state());
    }
}

/// Whether a file below a job dir is being written.
fn half_written(job: &Path) -> bool {
    let dirs = [job.to_path_buf()].into_iter().chain(trial_dirs(job));
    let names = dirs.flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    names.into_iter().any(|e| e.file_name().to_string_lossy().ends_with(".pilothouse-tmp"))
}

fn kinds(audit: &Value) -> Vec<&str> {
    audit["findings"].as_array().unwrap().iter().map(|f| f["kind"].as_str().unwrap()).collect()
}

/// Processes that were started in a scratch directory.
fn started_in(place: &Path) -> usize {
    let mark = format!("-{}", place.display());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let marked = |e: &fs::DirEntry| {
        fs::read(e.path().join("environ")).is_ok_and(|v| String::from_utf8_lossy(&v).contains(&mark))
    };
    entries.filter(marked).count()
}

#[test]
fn a_job_of_ours_is_stopped_in_order() {
    let mut own = Own::start("local");
    let (said, code) = own.stop(&["-y"]);
    assert_eq!(own.child.wait().unwrap().code(), Some(130));
    let process = &said["owner"]["process"];
    assert_eq!((&process["program"], &process["verb"]), (&"pilothouse".into(), &"run".into()), "{said:#}");
    assert_eq!(process["pid"], own.child.id());
    assert_eq!((&said["stop"]["signal"], &said["stop"]["ended"]), (&"SIGTERM".into(), &true.into()));
    assert_eq!(said["plan"]["running"].as_array().unwrap().len(), 2);
    assert_eq!(said["plan"]["queued"], 1);
    let audit = &said["audit"];
    assert_eq!(kinds(audit), [""; 0], "{audit:#}");
    assert_eq!((&audit["results"], &audit["cancelled"], &audit["planned"]), (&2.into(), &2.into(), &3.into()));
    assert!(said["next"].as_str().unwrap().starts_with("pilothouse run --resume "), "{said:#}");
    let unseen = audit["unseen"].as_array().unwrap().is_empty();
    assert_eq!(code, Some(i32::from(!unseen)));
    for trial in trial_dirs(&own.job()) {
        assert_eq!(result(&trial).unwrap()["exception_info"]["exception_type"], "CancelledError");
    }
    assert_eq!(started_in(&own.state().join("scratch")), 0);
    let journal = fs::read_to_string(own.job().join("pilothouse.jsonl")).unwrap();
    assert!(journal.contains("\"act\":\"stop\"") && journal.lines().count() == 1, "{journal}");
}

#[test]
fn what_a_killed_local_job_left_is_mended() {
    let mut own = Own::start("local");
    let scratch = own.state().join("scratch").join(own.id());
    own.kill();
    assert!(scratch.is_dir() && started_in(&scratch) > 0);
    let out = pilothouse(&["clean", "--json", own.job().to_str().unwrap()], &own.state());
    let listed = document(&out);
    let thing = listed["things"].as_array().unwrap().iter().find(|t| t["kind"] == "scratch_dir").unwrap();
    assert_eq!(
        (&thing["removable"], &thing["running"], &thing["removed"]),
        (&true.into(), &true.into(), &false.into())
    );
    assert_eq!(thing["job_id"], own.id());

    let (said, code) = own.stop(&["-y", "--mend"]);
    assert_eq!(kinds(&said["audit"]), ["temp", "no_result", "no_result", "lock"], "{said:#}");
    assert_eq!(kinds(&said["audit_after"]), ["lock"]);
    let unseen = said["audit_after"]["unseen"].as_array().unwrap().is_empty();
    assert_eq!(code, Some(i32::from(!unseen)), "a lease that the next resume takes over needs nobody");
    assert!(!scratch.exists() && started_in(&scratch) == 0);
    assert!(!scratch.with_extension("owner").exists());
    assert_eq!(trial_dirs(&own.job()), Vec::<PathBuf>::new());
    assert_eq!(trial_dirs(&own.state().join("quarantine").join(own.id())).len(), 2);
}

#[test]
fn what_a_killed_job_left_in_docker_is_mended() {
    if !docker(&["image", "inspect", "tb-base:1"]).status.success() {
        support::skipped("a killed job in Docker: no image tb-base:1, or no Docker");
        return;
    }
    let mut own = Own::start("docker");
    let label = format!("label=pilothouse.job={}", own.id());
    let kept = || {
        let mut all = docker_lines(&["ps", "-a", "--filter", &label, "--format", "{{.Names}}"]);
        all.extend(docker_lines(&["network", "ls", "--filter", &label, "--format", "{{.Name}}"]));
        all.sort();
        all
    };
    // A living owner's are no leftovers.
    let (said, _) = own.stop(&["--audit-only"]);
    assert_eq!(kinds(&said["audit"]), [""; 0], "{said:#}");
    own.kill();
    // What the engine was asked for in the last moment comes, or goes, all the same.
    std::thread::sleep(Duration::from_secs(2));
    let left = kept();
    assert!(left.len() >= 3, "{left:?}");
    let (said, code) = own.stop(&["-y", "--mend"]);
    let found = said["audit"]["findings"].as_array().unwrap().iter();
    let mut outside: Vec<String> = found
        .filter(|f| ["container", "network"].contains(&f["kind"].as_str().unwrap()))
        .map(|f| f["subject"].as_str().unwrap().to_string())
        .collect();
    outside.sort();
    assert_eq!(outside, left, "{said:#}");
    assert_eq!(kept(), [""; 0]);
    assert_eq!((kinds(&said["audit_after"]), code), (vec!["lock"], Some(0)), "{said:#}");
}
