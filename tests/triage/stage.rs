//! Small jobs written for the rules: one trial after another, as Harbor leaves them.

use std::fs;
use std::path::{Path, PathBuf};

use pilothouse::job::Stamp;
use serde_json::{Value, json};

/// How far a trial got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    Environment,
    Setup,
    Agent,
    Verifier,
}

/// One trial to be written.
#[derive(Debug, Clone)]
pub struct Trial {
    pub name: String,
    pub agent: &'static str,
    pub at: At,
    pub exception: Option<(String, String)>,
    pub reward: Option<f64>,
    pub tokens: Option<(u64, u64)>,
    pub episodes: Option<u64>,
    pub setup_seconds: i64,
    pub agent_seconds: i64,
    pub verifier_seconds: i64,
    pub start: i64,
    pub files: Vec<(String, String)>,
    pub steps: Option<Value>,
    pub valid: Option<bool>,
}

impl Trial {
    pub fn new(task: &str) -> Trial {
        Trial {
            name: format!("{task}__AbCdEfG"),
            agent: "terminus-2",
            at: At::Verifier,
            exception: None,
            reward: Some(0.0),
            tokens: Some((40_000, 3_000)),
            episodes: Some(9),
            setup_seconds: 5,
            agent_seconds: 1_200,
            verifier_seconds: 60,
            start: 0,
            files: Vec::new(),
            steps: None,
            valid: None,
        }
    }

    /// Ended by an exception at this phase; without reward unless one is given later.
    pub fn raised(mut self, at: At, kind: &str, message: &str) -> Trial {
        self.at = at;
        self.exception = Some((kind.to_string(), message.to_string()));
        self.reward = None;
        if at < At::Agent {
            (self.tokens, self.episodes) = (None, None);
        }
        self
    }

    pub fn reward(mut self, reward: f64) -> Trial {
        self.reward = Some(reward);
        self.at = At::Verifier;
        self
    }

    pub fn file(mut self, path: &str, text: &str) -> Trial {
        self.files.push((path.to_string(), text.to_string()));
        self
    }

    /// An installed agent with its log.
    pub fn mini(self, log: &str) -> Trial {
        let mut trial = self.file("agent/mini-swe-agent.txt", log);
        trial.agent = "mini-swe-agent";
        trial.episodes = None;
        trial
    }

    pub fn stdout(self, text: &str) -> Trial {
        self.file("verifier/test-stdout.txt", text)
    }

    pub fn log(self, text: &str) -> Trial {
        self.file("trial.log", text)
    }

    pub fn tokens(mut self, tokens: Option<(u64, u64)>, episodes: Option<u64>) -> Trial {
        (self.tokens, self.episodes) = (tokens, episodes);
        self
    }

    pub fn took(mut self, agent_seconds: i64) -> Trial {
        self.agent_seconds = agent_seconds;
        self
    }

    pub fn write(&self, job: &Path) -> PathBuf {
        let dir = job.join(&self.name);
        fs::create_dir_all(&dir).unwrap();
        let task = self.name.split("__").next().unwrap();
        let mut now = 1_790_000_000 + self.start;
        let mut at = |seconds: i64| {
            let begin = Stamp::from_second(now).unwrap().to_string();
            now += seconds;
            json!({"started_at": begin, "finished_at": Stamp::from_second(now).unwrap().to_string()})
        };
        let environment = at(3);
        let setup = (self.at >= At::Setup).then(|| at(self.setup_seconds));
        let agent = (self.at >= At::Agent).then(|| at(self.agent_seconds));
        let verifier = (self.at >= At::Verifier).then(|| at(self.verifier_seconds));
        let end = Stamp::from_second(now + 10).unwrap().to_string();
        let config = json!({
            "task": {"path": format!("tasks/{task}")}, "trial_name": self.name,
            "agent": {"name": self.agent, "model_name": "openai/m"}, "environment": {"type": "docker"},
        });
        let exception = self.exception.as_ref().map(|(kind, message)| {
            json!({"exception_type": kind, "exception_message": message,
                "exception_traceback": format!("Traceback (most recent call last):\n  ...\n{kind}: {message}\n"),
                "occurred_at": end})
        });
        let mut result = json!({
            "id": format!("id-{}-{}", self.name, self.start), "task_name": format!("tb/{task}"),
            "trial_name": self.name, "config": config, "agent_info": {"name": self.agent, "version": "1"},
            "agent_result": (self.at >= At::Agent).then(|| json!({
                "n_input_tokens": self.tokens.map(|t| t.0), "n_cache_tokens": null,
                "n_output_tokens": self.tokens.map(|t| t.1), "metadata": {"n_episodes": self.episodes}})),
            "verifier_result": self.reward.map(|r| json!({"rewards": {"reward": r}})),
            "exception_info": exception,
            "started_at": environment["started_at"], "finished_at": end,
            "environment_setup": environment, "agent_setup": setup, "agent_execution": agent, "verifier": verifier,
            "step_results": self.steps,
        });
        if let Some(valid) = self.valid {
            result["reward_valid"] = json!(valid);
        }
        fs::write(dir.join("config.json"), config.to_string()).unwrap();
        fs::write(dir.join("trial.log"), "").unwrap();
        if let Some((kind, message)) = &self.exception {
            let text = format!(
                "Traceback (most recent call last):\n  File \"x.py\", line 1, in run\n    go()\n{kind}: {message}\n"
            );
            fs::write(dir.join("exception.txt"), text).unwrap();
        }
        if self.at == At::Verifier {
            fs::create_dir_all(dir.join("verifier")).unwrap();
            fs::write(dir.join("verifier/test-stdout.txt"), "").unwrap();
            if let Some(reward) = self.reward {
                fs::write(dir.join("verifier/reward.txt"), format!("{reward}\n")).unwrap();
            }
        }
        for (path, text) in &self.files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(dir.join("result.json"), result.to_string()).unwrap();
        dir
    }
}

/// A finished job of these trials.
pub fn job(root: &Path, name: &str, trials: &[Trial]) -> PathBuf {
    planned(root, name, trials, trials.len(), true)
}

/// A job that planned more than has ended.
pub fn planned(root: &Path, name: &str, trials: &[Trial], planned: usize, finished: bool) -> PathBuf {
    let dir = root.join(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("config.json"), json!({"job_name": name, "agents": [{"name": "terminus-2"}]}).to_string())
        .unwrap();
    let mut tasks: Vec<String> = trials.iter().map(|t| t.name.split("__").next().unwrap().to_string()).collect();
    tasks.extend((trials.len()..planned).map(|i| format!("later-{i}")));
    let lock: Vec<Value> = tasks
        .iter()
        .map(|t| json!({"task": {"name": t, "type": "local", "digest": format!("sha256:{t}"), "path": format!("tasks/{t}")}, "agent": {"name": "terminus-2"}}))
        .collect();
    let lock = json!({"schema_version": 3, "created_at": "2026-09-21T14:13:00Z", "harbor": {"version": "0.21.0"},
        "n_concurrent_trials": 4, "trials": lock});
    fs::write(dir.join("lock.json"), lock.to_string()).unwrap();
    for trial in trials {
        trial.write(&dir);
    }
    let errored = trials.iter().filter(|t| t.exception.is_some()).count();
    let cancelled = trials.iter().filter(|t| t.exception.as_ref().is_some_and(|e| e.0 == "CancelledError")).count();
    let result = json!({
        "id": format!("job-{name}"), "started_at": "2026-09-21T14:13:00", "updated_at": "2026-09-21T20:00:00",
        "finished_at": finished.then_some("2026-09-21T20:00:00"), "n_total_trials": planned,
        "stats": {"n_completed_trials": trials.len(), "n_errored_trials": errored, "n_running_trials": 0,
            "n_pending_trials": planned - trials.len(), "n_cancelled_trials": cancelled, "n_retries": 0, "evals": {}},
    });
    fs::write(dir.join("result.json"), result.to_string()).unwrap();
    dir
}

pub const PYTEST_FAILED: &str = "============================= test session starts ==============================\n\
    collected 2 items\n\n../tests/test_outputs.py .F [100%]\n\nFAILED ../tests/test_outputs.py::test_1 - AssertionError\n\
    1 passed, 1 failed in 0.41s\n";
