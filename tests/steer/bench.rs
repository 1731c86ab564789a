//! Tasks that wait for a word, jobs of them, and the commands that steer them. All in the local
//! environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Generous: the machine may be busy.
pub const SOON: Duration = Duration::from_secs(40);
const PASS: &str = "echo 1 > \"$LOGS_DIR/verifier/reward.txt\"";

pub struct Bench {
    pub temp: tempfile::TempDir,
    pub state: PathBuf,
}

/// A job that runs without a screen. Killed when dropped.
pub struct Run(pub Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    /// Its exit code.
    #[track_caller]
    pub fn end(&mut self) -> i32 {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(begin.elapsed() < SOON, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < SOON, "no {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

impl Bench {
    /// With these tasks, each of which runs until [`Bench::go`].
    pub fn new(tasks: &[&str]) -> Bench {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("state");
        let bench = Bench { temp, state };
        for name in tasks {
            let go = bench.path(&format!("go-{name}"));
            let solve = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
            bench.task(name, &solve, PASS, "");
        }
        bench
    }

    pub fn task(&self, name: &str, solve: &str, test: &str, toml: &str) {
        let dir = self.path("tasks").join(name);
        for sub in ["environment", "tests", "solution"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        let head = "schema_version = \"1.1\"\n[agent]\ntimeout_sec = 600.0\n";
        fs::write(dir.join("task.toml"), format!("{head}{toml}\n")).unwrap();
        fs::write(dir.join("instruction.md"), "Do it.\n").unwrap();
        fs::write(dir.join("environment/Dockerfile"), "FROM scratch\n").unwrap();
        fs::write(dir.join("solution/solve.sh"), format!("#!/bin/bash\n{solve}\n")).unwrap();
        fs::write(dir.join("tests/test.sh"), format!("#!/bin/bash\n{test}\n")).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Lets a task end.
    pub fn go(&self, task: &str) {
        fs::write(self.path(&format!("go-{task}")), "").unwrap();
    }

    pub fn job(&self) -> PathBuf {
        self.path("jobs/job")
    }

    /// The arguments that run the job.
    pub fn args(&self, slots: &str, more: &[&str]) -> Vec<String> {
        let text = |name: &str| self.path(name).to_str().unwrap().to_string();
        let mut args: Vec<String> =
            ["run", "-a", "oracle", "-e", "local", "--job-name", "job", "-n", slots, "--disk-floor", "0", "-p"]
                .map(str::to_string)
                .to_vec();
        args.extend([text("tasks"), "--jobs-dir".to_string(), text("jobs")]);
        args.extend(more.iter().map(ToString::to_string));
        args
    }

    /// Begins it without a screen; its output goes to `out`.
    pub fn run(&self, slots: &str, more: &[&str]) -> Run {
        self.begin(&self.args(slots, more))
    }

    /// The arguments that run it in containers with an agent that asks a model.
    pub fn model_args(&self, slots: &str, base: &str, more: &[&str]) -> Vec<String> {
        let api_base = format!("api_base={base}");
        let own = ["-m", "openai/scripted-1", "--ak", &api_base, "-y", "--no-preflight"];
        let swap = |arg: String| match arg.as_str() {
            "oracle" => "terminus-2".to_string(),
            "local" => "docker".to_string(),
            _ => arg,
        };
        let more: Vec<&str> = own.iter().chain(more).copied().collect();
        self.args(slots, &more).into_iter().map(swap).collect()
    }

    /// Begins a job by these arguments, without a screen.
    pub fn begin(&self, args: &[String]) -> Run {
        let out = fs::File::create(self.path("out")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
            .args(args)
            .arg("--headless")
            .env("PILOTHOUSE_STATE_DIR", &self.state)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let run = Run(child);
        until("answer over the socket", || self.ctl(&["status"]).status.success());
        run
    }

    pub fn output(&self) -> String {
        fs::read_to_string(self.path("out")).unwrap_or_default()
    }

    pub fn ctl(&self, args: &[&str]) -> Output {
        self.ctl_of(&self.job(), args)
    }

    pub fn ctl_of(&self, job: &Path, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_pilothouse"))
            .arg("ctl")
            .arg(job)
            .args(args)
            .env("PILOTHOUSE_STATE_DIR", &self.state)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What `ctl` says; it succeeds.
    #[track_caller]
    pub fn ask(&self, args: &[&str]) -> String {
        let out = self.ctl(args);
        assert!(out.status.success(), "{args:?}: {out:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// The exit code of a `ctl` that fails, and its complaint.
    #[track_caller]
    pub fn refused(&self, args: &[&str]) -> (i32, String) {
        let out = self.ctl(args);
        assert!(!out.status.success(), "{args:?}: {out:?}");
        (out.status.code().unwrap(), String::from_utf8(out.stderr).unwrap())
    }

    #[track_caller]
    pub fn status(&self) -> Value {
        let out = self.ctl(&["status", "--json"]);
        let value: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
        assert_eq!(value["schema_version"], 1);
        value["status"].clone()
    }

    /// Waits for numbers at work, queued, ended.
    #[track_caller]
    pub fn wait(&self, running: u64, queued: u64, ended: u64) {
        let begin = Instant::now();
        loop {
            let now = self.status();
            if (now["running"].as_u64(), now["queued"].as_u64(), now["ended"].as_u64())
                == (Some(running), Some(queued), Some(ended))
            {
                return;
            }
            assert!(begin.elapsed() < SOON, "not {running}/{queued}/{ended}: {now}\n{}", self.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The journal's lines.
    pub fn journal(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.job().join("pilothouse.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn acts(&self) -> Vec<String> {
        self.journal().iter().map(|note| note["act"].as_str().unwrap().to_string()).collect()
    }

    /// Results by task: the exception type, or the reward.
    pub fn results(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for entry in fs::read_dir(self.job()).unwrap().flatten() {
            let Ok(text) = fs::read_to_string(entry.path().join("result.json")) else { continue };
            let value: Value = serde_json::from_str(&text).unwrap();
            let task = value["task_name"].as_str().unwrap().to_string();
            let exception = value["exception_info"]["exception_type"].as_str().map(str::to_string);
            out.push((task, exception.unwrap_or_else(|| value["verifier_result"]["rewards"]["reward"].to_string())));
        }
        out.sort();
        out
    }

    /// Names of trials at work, without what makes them unique.
    pub fn running(&self) -> Vec<String> {
        let names = self.status()["running_trials"].clone();
        let names = names.as_array().cloned().unwrap_or_default();
        names.iter().map(|n| n.as_str().unwrap().split("__").next().unwrap().to_string()).collect()
    }
}
