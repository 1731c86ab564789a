//! Disks that are full, or that do not answer for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pilothouse::harbor::write::WriteError;
use pilothouse::scheduler::RunError;

use crate::support;
use crate::yard::{IMAGE, PASS, PASS_INSIDE, Yard, json, left_of, nothing, trial_dir, try_in_containers, until};

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|out| out.status.success())
}

/// A file system of the test's own.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf, args: &[&str]) -> Option<Mounted> {
        fs::create_dir_all(&at).unwrap();
        let path = at.to_str().unwrap();
        let mut all = args.to_vec();
        all.push(path);
        if run("mount", &all) {
            Some(Mounted(at))
        } else {
            support::skipped("mounting needs root");
            None
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.0.to_str().unwrap();
        let _ = run("fsfreeze", &["-u", path]);
        let _ = run("umount", &["-l", path]);
    }
}

fn results(dir: &Path) -> Vec<String> {
    let trials = fs::read_dir(dir).unwrap().flatten().map(|e| e.path().join("result.json"));
    let there = trials.filter(|path| path.exists());
    there.map(|path| json(&path)["task_name"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_full_disk_stops_the_job_and_harms_no_result() {
    let yard = Yard::new()
        .task("a-first", "true", PASS_INSIDE, IMAGE)
        .task("b-fills", "sleep 5; head -c 60M /dev/zero > /logs/agent/fill", PASS_INSIDE, IMAGE)
        .task("c-long", "touch /logs/agent/here; sleep 600", PASS_INSIDE, IMAGE)
        .task("d-never", "true", PASS_INSIDE, IMAGE);
    let Some(_disk) = Mounted::new(yard.temp.path().join("jobs"), &["-t", "tmpfs", "-o", "size=32m", "tmpfs"]) else {
        return;
    };
    let Some((done, id)) = try_in_containers(&yard, yard.config("oracle", 2), nothing) else { return };
    let error = done.unwrap_err();
    assert!(matches!(error, RunError::Write(WriteError::NoSpace { .. })), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert_eq!(left_of(&id), "");
    // What is there is whole, and the first is among it.
    assert!(results(&yard.dir()).iter().any(|task| task == "a-first"));
    let job = json(&yard.dir().join("result.json"));
    assert!(job["finished_at"].is_null(), "{job}");
    let read = yard.read();
    assert_eq!(read.end("a-first"), (Some(1.0), None));
    assert!(read.fleet.jobs()[0].trials.values().all(|t| &*t.task != "d-never"));
}

/// The limit of an agent is kept while the job's disk does not answer.
#[test]
fn a_disk_that_hangs_holds_up_no_deadline() {
    let yard = Yard::new();
    let pulse = yard.temp.path().join("pulse");
    let beat = format!("touch {0}; while :; do echo . >> {0}; sleep 0.1; done > /dev/null 2>&1", pulse.display());
    // It ends while the disk hangs: its result is what the job waits to write.
    let yard = yard.task("beats", &beat, PASS, "[agent]\ntimeout_sec = 2.0").task("ends", "sleep 1.5", PASS, "");
    let image = yard.temp.path().join("disk");
    let file = fs::File::create(&image).unwrap();
    file.set_len(64 << 20).unwrap();
    let path = image.to_str().unwrap();
    if !run("mkfs.ext4", &["-q", path]) {
        return support::skipped("no mkfs.ext4");
    }
    let Some(disk) = Mounted::new(yard.temp.path().join("jobs"), &["-o", "loop", path]) else { return };
    let at = disk.0.to_str().unwrap();
    let counts = std::cell::RefCell::new((0, 0));
    let done = yard.run(yard.config("oracle", 2), async |_, plan| {
        until(|| pulse.exists() && trial_dir(&plan, "ends").join("agent").exists()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if !run("fsfreeze", &["-f", at]) {
            return support::skipped("no fsfreeze");
        }
        // Its limit is over, with a second to spare; the disk hangs on.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let beats = || fs::read_to_string(&pulse).unwrap().len();
        let then = beats();
        tokio::time::sleep(Duration::from_secs(1)).await;
        counts.replace((then, beats()));
        assert!(run("fsfreeze", &["-u", at]));
    });
    let (then, later) = counts.into_inner();
    if later == 0 {
        return;
    }
    assert!(done.complete);
    assert_eq!(then, later, "the agent worked on past its limit");
    let read = yard.read();
    assert_eq!(read.end("beats"), (Some(1.0), Some("AgentTimeoutError")));
    assert_eq!(read.end("ends"), (Some(1.0), None));
}
