//! A place for tasks and jobs, and the program that runs them there.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

    /// Scratch directories that are still there.
    pub fn left(&self) -> Vec<PathBuf> {
        let scratch = self.temp.path().join("state/scratch");
        fs::read_dir(scratch).into_iter().flatten().flatten().map(|e| e.path()).collect()
    }
}
