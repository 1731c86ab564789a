//! The agent Terminus as `pilothouse run` starts it, against a scripted model server: in scratch directories
//! of this machine, and in containers where it is about them. The numbers in the names of tests are those of the points that a port of Harbor's Terminus-2 has to hold.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "support/eyes.rs"]
mod eyes;
mod support;
#[path = "support/yard.rs"]
mod yard;

#[path = "terminus/context.rs"]
mod context;
#[path = "terminus/ends.rs"]
mod ends;
#[path = "terminus/options.rs"]
mod options;
#[path = "terminus/places.rs"]
mod places;
#[path = "terminus/shell.rs"]
mod shell;
#[path = "terminus/steps.rs"]
mod steps;
#[path = "terminus/turns.rs"]
mod turns;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use eyes::Eyes;
use support::model_server::{Answer, Asked, ModelServer};
use yard::{IMAGE, Yard};

/// The key of all jobs here.
pub const SECRET: &str = "sk-terminus-0123456789abcdef";
/// Passes where the answer is 42.
pub const CHECK: &str =
    "[ \"$(cat ${APP_DIR:-/app}/answer)\" = 42 ] && r=1 || r=0; echo $r > ${LOGS_DIR:-/logs}/verifier/reward.txt";
/// Writes the answer.
pub const SOLVE: (&str, f64) = ("mkdir -p ${APP_DIR:-/app} && cd ${APP_DIR:-/app} && echo 42 > answer\n", 0.4);

/// An answer in the format.
pub fn turn(analysis: &str, plan: &str, commands: &[(&str, f64)], complete: bool) -> String {
    let commands: Vec<Value> = commands.iter().map(|(keys, s)| json!({"keystrokes": keys, "duration": s})).collect();
    let commands = Value::from(commands);
    let (analysis, plan) = (json!(analysis), json!(plan));
    format!("{{\"analysis\": {analysis}, \"plan\": {plan}, \"commands\": {commands}, \"task_complete\": {complete}}}")
}

/// A plain turn.
pub fn types(commands: &[(&str, f64)]) -> Answer {
    Answer::say(&turn("I see a shell.", "I type.", commands, false))
}

/// It says that it is done.
pub fn done() -> Answer {
    Answer::say(&turn("It is done.", "Nothing more.", &[], true))
}

/// Says that it is done twice, after it has solved the task.
pub fn solved() -> Vec<Answer> {
    vec![types(&[SOLVE]), done(), done()]
}

/// A play: what the model answers, task by task and call by call; the last answer is repeated.
#[derive(Default)]
pub struct Play {
    acts: Vec<(String, Vec<Answer>, String)>,
    args: Vec<String>,
    context: Option<u64>,
    key: Option<String>,
    inside: bool,
    files: Vec<(String, String)>,
}

impl Play {
    pub fn task(self, name: &str, answers: Vec<Answer>) -> Play {
        self.timed(name, answers, "")
    }

    /// With more in its `task.toml`.
    pub fn timed(mut self, name: &str, answers: Vec<Answer>, toml: &str) -> Play {
        self.acts.push((name.to_string(), answers, toml.to_string()));
        self
    }

    /// In containers.
    pub fn inside(self) -> Play {
        Play { inside: true, ..self }
    }

    /// Another file of a task.
    pub fn file(mut self, path: &str, text: &str) -> Play {
        self.files.push((path.to_string(), text.to_string()));
        self
    }

    /// The key that the server wants.
    pub fn key(self, key: &str) -> Play {
        Play { key: Some(key.to_string()), ..self }
    }

    pub fn args(mut self, args: &[&str]) -> Play {
        self.args.extend(args.iter().map(|a| (*a).to_string()));
        self
    }

    /// The context of the model.
    pub fn context(self, tokens: u64) -> Play {
        Play { context: Some(tokens), ..self }
    }

    /// The server, the tasks and what plays them; None, said aloud, where there is no engine and one is
    /// needed.
    pub fn ready(self) -> Option<(ModelServer, Yard, Command)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        if let Some(why) = Some(self.inside).filter(|i| *i).and_then(|_| runtime.block_on(yard::engine()).err()) {
            support::skipped(&format!("in containers: {why}"));
            return None;
        }
        let server = ModelServer::start();
        server.set(|face| {
            face.context = self.context.or(Some(1_000_000));
            face.key.clone_from(&self.key);
        });
        let mut yard = Yard::new();
        let mut plays = HashMap::new();
        for (name, answers, toml) in self.acts {
            let image = if toml.contains("[environment]") || !self.inside { "" } else { IMAGE };
            // The image's table first: what follows may open others.
            yard = yard.task(&name, "exit 1", CHECK, &format!("{image}\n{toml}"));
            let told = format!("[tb:{name}] Write 42 into /app/answer.\n");
            let dir = yard.tasks.last().unwrap();
            fs::write(dir.join("instruction.md"), &told).unwrap();
            for step in toml.split("[[steps]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let at = dir.join("steps").join(step);
                fs::create_dir_all(at.join("tests")).unwrap();
                fs::write(at.join("instruction.md"), &told).unwrap();
                fs::write(at.join("tests/test.sh"), format!("#!/bin/bash\n{CHECK}\n")).unwrap();
            }
            plays.insert(name, answers);
        }
        for (path, text) in self.files {
            let path = yard.temp.path().join("tasks").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let calls: Mutex<HashMap<String, usize>> = Mutex::default();
        server.script(move |asked| {
            let name = task_of(asked).unwrap_or_default();
            let mut calls = calls.lock().unwrap();
            let call = calls.entry(name.clone()).or_default();
            *call += 1;
            let answers = plays.get(&name).unwrap_or_else(|| panic!("no task {name:?} in {:?}", asked.texts()));
            answers.get(*call - 1).or(answers.last()).unwrap().clone()
        });
        let text = |path: PathBuf| path.to_str().unwrap().to_string();
        let (tasks, jobs) = (text(yard.temp.path().join("tasks")), text(yard.temp.path().join("jobs")));
        let base = format!("api_base={}", server.base());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["run", "--headless", "--no-hold", "-p", &tasks, "--jobs-dir", &jobs, "--job-name", "job"]);
        if !self.inside {
            command.args(["-e", "local"]);
        }
        if !self.args.contains(&"-n".to_string()) {
            command.args(["-n", "12"]);
        }
        command.args(["-a", "terminus-2", "-m", "openai/scripted-1", "--no-preflight", "--ak", &base]);
        command
            .args(&self.args)
            .env("OPENAI_API_KEY", SECRET)
            .env("PILOTHOUSE_STATE_DIR", yard.temp.path().join("state"));
        Some((server, yard, command))
    }

    /// Runs it to its end.
    pub fn run(self) -> Option<Ran> {
        let inside = self.inside;
        let (server, yard, mut command) = self.ready()?;
        let eyes = inside.then(|| Eyes::open(&yard.dir()));
        let out = command.output().unwrap();
        // Whatever the play: a key is the harness's own and goes into no container and no command line.
        if let Some(seen) = eyes.map(Eyes::close) {
            assert!(!seen.containers.is_empty() && seen.told.contains("exec_start"));
            assert!(seen.lines.iter().any(|line| line.contains("terminus-2")));
            seen.assert_without(&[SECRET]);
        }
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        let mut trials = BTreeMap::new();
        for entry in fs::read_dir(yard.dir()).into_iter().flatten().flatten() {
            if let Ok(bytes) = fs::read(entry.path().join("result.json")) {
                let result: Value = serde_json::from_slice(&bytes).unwrap();
                if let Some(name) = result["task_name"].as_str() {
                    trials.insert(name.rsplit('/').next().unwrap().to_string(), (entry.path(), result));
                }
            }
        }
        Some(Ran { server: Arc::new(server), yard, trials, said, code: out.status.code() })
    }
}

/// The task that a request is about.
pub fn task_of(asked: &Asked) -> Option<String> {
    let all = asked.texts().join("\n");
    let (_, rest) = all.rsplit_once("[tb:")?;
    Some(rest.split(']').next()?.to_string())
}

/// A job that has run.
pub struct Ran {
    pub server: Arc<ModelServer>,
    pub yard: Yard,
    trials: BTreeMap<String, (PathBuf, Value)>,
    pub said: String,
    pub code: Option<i32>,
}

impl Ran {
    fn trial(&self, task: &str) -> &(PathBuf, Value) {
        self.trials.get(task).unwrap_or_else(|| panic!("no trial of {task}: {}", self.said))
    }

    pub fn result(&self, task: &str) -> &Value {
        &self.trial(task).1
    }

    pub fn dir(&self, task: &str) -> &PathBuf {
        &self.trial(task).0
    }

    /// Reward and exception type.
    pub fn end(&self, task: &str) -> (Option<f64>, Option<&str>) {
        let result = self.result(task);
        let reward = result["verifier_result"]["rewards"]["reward"].as_f64();
        (reward, result["exception_info"]["exception_type"].as_str())
    }

    pub fn agent(&self, task: &str) -> &Value {
        &self.result(task)["agent_result"]
    }

    pub fn episodes(&self, task: &str) -> u64 {
        self.agent(task)["metadata"]["n_episodes"].as_u64().unwrap()
    }

    pub fn own(&self, task: &str) -> &Value {
        &self.agent(task)["metadata"]["pilothouse"]
    }

    pub fn trajectory(&self, task: &str) -> Value {
        yard::json(&self.dir(task).join("agent/trajectory.json"))
    }

    /// Steps of the agent.
    pub fn steps(&self, task: &str) -> Vec<Value> {
        let trajectory = self.trajectory(task);
        let steps = trajectory["steps"].as_array().unwrap();
        steps.iter().filter(|step| step["source"] == "agent").cloned().collect()
    }

    /// What was asked for a task, in order.
    pub fn asked(&self, task: &str) -> Vec<Asked> {
        self.server.chats().into_iter().filter(|asked| task_of(asked).as_deref() == Some(task)).collect()
    }

    /// Number of messages of each request.
    pub fn lengths(&self, task: &str) -> Vec<usize> {
        self.asked(task).iter().map(|asked| asked.texts().len()).collect()
    }

    /// The last message of a request, from 1.
    pub fn told(&self, task: &str, call: usize) -> String {
        self.asked(task).get(call - 1).unwrap_or_else(|| panic!("no call {call} of {task}")).last_text()
    }
}
