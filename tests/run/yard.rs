//! A place for tasks and jobs, and the program that runs them there.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A test that grants the reward.
pub const PASS: &str = "echo 1 > \"$LOGS_DIR/verifier/reward.txt\"";

pub struct Yard {
    temp: tempfile::TempDir,
}

pub fn stdout(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// Whether the engine has an image.
pub fn image(name: &str) -> bool {
    Command::new("docker").args(["image", "inspect", name]).output().is_ok_and(|out| out.status.success())
}

/// Containers and networks of a job that are there, by the engine's own command line.
pub fn labelled(job: &str) -> String {
    let label = format!("label={}={job}", pilothouse::environment::labels::JOB);
    let list = |what: &[&str]| stdout(&Command::new("docker").args(what).args(["--filter", &label]).output().unwrap());
    list(&["ps", "-aq"]) + &list(&["network", "ls", "-q"])
}

impl Yard {
    pub fn new() -> Yard {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["tasks", "state"] {
            fs::create_dir(temp.path().join(dir)).unwrap();
        }
        Yard { temp }
    }

    /// A task of these scripts; `toml` is appended to its `task.toml`.
    pub fn task(self, name: &str, solve: &str, test: &str, toml: &str) -> Yard {
        let dir = self.tasks().join(name);
        for sub in ["environment", "tests", "solution"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        fs::write(dir.join("task.toml"), format!("schema_version = \"1.1\"\n{toml}\n")).unwrap();
        fs::write(dir.join("instruction.md"), "Do it.\n").unwrap();
        fs::write(dir.join("environment/Dockerfile"), "FROM scratch\n").unwrap();
        fs::write(dir.join("solution/solve.sh"), format!("#!/bin/bash\n{solve}\n")).unwrap();
        fs::write(dir.join("tests/test.sh"), format!("#!/bin/bash\n{test}\n")).unwrap();
        self
    }

    pub fn path(&self) -> &Path {
        self.temp.path()
    }

    pub fn tasks(&self) -> PathBuf {
        self.temp.path().join("tasks")
    }

    pub fn dir(&self) -> PathBuf {
        self.temp.path().join("jobs/job")
    }

    /// `pilothouse run` with a state dir of its own.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.arg("run").env("PILOTHOUSE_STATE_DIR", self.temp.path().join("state"));
        command
    }

    /// Where the job goes.
    pub fn place(&self) -> Vec<String> {
        self.place_of("job")
    }

    fn place_of(&self, name: &str) -> Vec<String> {
        let jobs = self.temp.path().join("jobs").to_str().unwrap().to_string();
        ["--jobs-dir", &jobs, "--job-name", name].map(str::to_string).to_vec()
    }

    /// The tasks, here, without a screen.
    pub fn usual(&self) -> Vec<String> {
        self.usual_as("job")
    }

    fn usual_as(&self, name: &str) -> Vec<String> {
        let tasks = self.tasks().to_str().unwrap().to_string();
        let mut args = ["-p", &tasks, "-e", "local", "--headless"].map(str::to_string).to_vec();
        args.extend(self.place_of(name));
        args
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command().args(self.usual()).args(args).output().unwrap()
    }

    pub fn run_as(&self, name: &str, args: &[&str]) -> Output {
        self.command().args(self.usual_as(name)).args(args).output().unwrap()
    }

    /// The program at work on the job, or on going on with it; what it says goes to files.
    pub fn spawn(&self, args: &[String], name: &str) -> Running {
        let file = |end: &str| fs::File::create(self.temp.path().join(format!("{name}.{end}"))).unwrap();
        let child = self.command().args(args).stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Running { child, said: self.temp.path().join(name) }
    }

    /// Arguments that go on with the job.
    pub fn resume(&self, more: &[&str]) -> Vec<String> {
        let dir = self.dir().to_str().unwrap().to_string();
        let mut args = ["--resume", &dir, "--headless"].map(str::to_string).to_vec();
        args.extend(more.iter().map(|s| (*s).to_string()));
        args
    }

    /// Processes of local trials of this yard that are there.
    pub fn processes(&self) -> Vec<String> {
        let place = self.temp.path().to_str().unwrap().as_bytes().to_vec();
        let mut out = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(environ) = fs::read(entry.path().join("environ")) else { continue };
            let mut marks = environ.split(|b| *b == 0).filter(|v| v.starts_with(b"PILOTHOUSE_LOCAL="));
            if marks.any(|mark| mark.windows(place.len()).any(|w| w == place)) {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                out.push(String::from_utf8_lossy(&line).replace('\0', " "));
            }
        }
        out
    }

    /// Trial → its result's bytes, of every trial directory; None where it has none.
    pub fn results(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let dirs = fs::read_dir(self.dir()).into_iter().flatten().flatten().filter(|e| e.path().is_dir());
        dirs.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path().join("result.json")).ok())).collect()
    }

    /// Scratch directories that are still there.
    pub fn left(&self) -> Vec<PathBuf> {
        let scratch = self.temp.path().join("state/scratch");
        fs::read_dir(scratch).into_iter().flatten().flatten().map(|e| e.path()).collect()
    }
}

/// The program at work.
pub struct Running {
    pub child: Child,
    said: PathBuf,
}

impl Running {
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        // It may be over.
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Waits for its end, up to a minute.
    pub fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if begin.elapsed() > Duration::from_secs(60) {
                let _ = self.child.kill();
                panic!("no end: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Both streams.
    pub fn said(&self) -> String {
        let read = |end: &str| fs::read_to_string(self.said.with_extension(end)).unwrap_or_default();
        read("out") + &read("err")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
