//! Agents by a file, as `pilothouse run` starts them: a program of a few lines that does what its task
//! says, in containers and without; and mini-swe-agent itself, where there is an image that has it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "support/eyes.rs"]
mod eyes;
mod support;
#[path = "support/yard.rs"]
mod yard;

#[path = "installed/mini.rs"]
mod mini;
#[path = "installed/program.rs"]
mod program;
#[path = "installed/refused.rs"]
mod refused;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pilothouse::harbor::TrajectoryIndex;
use serde_json::Value;

use yard::Yard;

/// The key of all jobs here.
pub const SECRET: &str = "sk-installed-0123456789abcdef";

/// A job that has run.
pub struct Ran {
    pub said: String,
    pub code: Option<i32>,
    trials: BTreeMap<String, (PathBuf, Value)>,
}

/// `pilothouse run` over the tasks of a yard, with the agents of its `config` folder.
pub fn pilothouse(yard: &Yard, args: &[&str], env: &[(&str, &str)]) -> Output {
    let text = |name: &str| yard.temp.path().join(name).to_str().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(["run", "--headless", "-p", &text("tasks"), "--jobs-dir", &text("jobs"), "--job-name", "job"]);
    command.args(["-n", "12", "--no-preflight", "--no-hold"]).args(args);
    command.env("XDG_CONFIG_HOME", text("config")).env("PILOTHOUSE_STATE_DIR", text("state"));
    for name in ["FAKE_KEY", "OPENAI_API_KEY", "MSWEA_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"] {
        command.env_remove(name);
    }
    command.envs(env.iter().copied()).output().unwrap()
}

pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// Puts an agent's file where the operator's own are.
pub fn agent(yard: &Yard, name: &str, text: &str) {
    let dir = yard.temp.path().join("config/pilothouse/agents");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(format!("{name}.toml")), text).unwrap();
}

/// What a task says.
pub fn tell(yard: &Yard, instruction: &str) {
    fs::write(yard.tasks.last().unwrap().join("instruction.md"), instruction).unwrap();
}

/// What has come of a job.
pub fn ran(yard: &Yard, out: &Output) -> Ran {
    let mut trials = BTreeMap::new();
    for entry in fs::read_dir(yard.dir()).into_iter().flatten().flatten() {
        let Ok(bytes) = fs::read(entry.path().join("result.json")) else { continue };
        let result: Value = serde_json::from_slice(&bytes).unwrap();
        if let Some(name) = result["task_name"].as_str() {
            trials.insert(name.rsplit('/').next().unwrap().to_string(), (entry.path(), result));
        }
    }
    Ran { said: said(out), code: out.status.code(), trials }
}

impl Ran {
    fn trial(&self, task: &str) -> &(PathBuf, Value) {
        self.trials.get(task).unwrap_or_else(|| panic!("no trial of {task}: {}", self.said))
    }

    pub fn result(&self, task: &str) -> &Value {
        &self.trial(task).1
    }

    /// The trial's `agent/`.
    pub fn agent_dir(&self, task: &str) -> PathBuf {
        self.trial(task).0.join("agent")
    }

    /// Reward and exception type.
    pub fn end(&self, task: &str) -> (Option<f64>, Option<&str>) {
        let result = self.result(task);
        let reward = result["verifier_result"]["rewards"]["reward"].as_f64();
        (reward, result["exception_info"]["exception_type"].as_str())
    }

    pub fn message(&self, task: &str) -> &str {
        self.result(task)["exception_info"]["exception_message"].as_str().unwrap_or_default()
    }

    /// Prompt, cached and completion tokens, and cost.
    pub fn used(&self, task: &str) -> [Option<f64>; 4] {
        let agent = &self.result(task)["agent_result"];
        ["n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd"].map(|name| agent[name].as_f64())
    }

    pub fn metadata(&self, task: &str) -> &Value {
        &self.result(task)["agent_result"]["metadata"]
    }

    pub fn text(&self, task: &str, file: &str) -> String {
        let path = self.agent_dir(task).join(file);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub fn trajectory(&self, task: &str) -> Value {
        let path = self.agent_dir(task).join("trajectory.json");
        // Our own reader finds it whole.
        let mut index = TrajectoryIndex::new(fs::File::open(&path).unwrap());
        while !index.build_slice(1 << 20).unwrap() {}
        assert!(index.progress().is_ok(), "{:?}", index.progress());
        yard::json(&path)
    }
}

/// Every regular file beneath a directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            out.extend(files(&entry.path()));
        } else if kind.is_file() {
            out.push(entry.path());
        }
    }
    out
}
