//! Job dirs made by tests as Harbor 0.21 leaves them, outcome by outcome, with the evidence that such
//! trials really have.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// How a trial ended.
#[derive(Clone)]
pub struct Outcome {
    pub task: String,
    /// Characters after `__` in its directory's name.
    pub suffix: String,
    pub reward: Option<f64>,
    pub exception: Option<(&'static str, String)>,
    /// Whether its agent ever ran.
    pub agent_ran: bool,
    /// Whether its verifier ran.
    pub verified: bool,
    pub tokens: Option<(u64, u64)>,
    /// Seconds from the job's start, and how long it took.
    pub start: i64,
    pub took: i64,
    /// The agent's limit in seconds.
    pub limit: i64,
    pub files: Vec<(&'static str, String)>,
}

const PASSED: &str = "============================= test session starts ==============================
collected 2 items

../tests/test_outputs.py ..                                              [100%]

==================================== PASSES ====================================
============================== 2 passed in 1.31s ===============================
";
const FAILED: &str = "============================= test session starts ==============================
collected 2 items

../tests/test_outputs.py .F                                              [100%]

=========================== short test summary info ============================
FAILED ../tests/test_outputs.py::test_result - AssertionError: not what was asked
========================= 1 failed, 1 passed in 1.42s ==========================
";

impl Outcome {
    fn new(task: &str, reward: Option<f64>) -> Outcome {
        Outcome {
            task: task.to_string(),
            suffix: "AbCdEfG".to_string(),
            reward,
            exception: None,
            agent_ran: true,
            verified: reward.is_some(),
            tokens: Some((1_000_000, 70_000)),
            start: 10,
            took: 1500,
            limit: 5400,
            files: Vec::new(),
        }
    }

    pub fn passed(task: &str) -> Outcome {
        Outcome::new(task, Some(1.0)).tests(true)
    }

    pub fn failed(task: &str) -> Outcome {
        Outcome::new(task, Some(0.0)).tests(false)
    }

    /// Tests ran, and this is what they printed.
    fn tests(self, all: bool) -> Outcome {
        let (n, bad) = if all { (2, 0) } else { (1, 1) };
        let ctrf = json!({"results": {"tool": {"name": "pytest"}, "summary": {"tests": 2, "passed": n, "failed": bad},
            "tests": [{"name": "test_file", "status": "passed"}, {"name": "test_result", "status": if all {"passed"} else {"failed"}}]}});
        self.file("verifier/test-stdout.txt", if all { PASSED } else { FAILED })
            .file("verifier/ctrf.json", &ctrf.to_string())
    }

    /// The agent worked to its limit; the verifier graded what was there, or found nothing to read.
    pub fn timeout(task: &str, reward: Option<f64>) -> Outcome {
        let mut out = match reward {
            Some(reward) => Outcome::new(task, Some(reward)).tests(reward == 1.0),
            None => Outcome::new(task, None).tests(false),
        };
        out.exception = Some(("AgentTimeoutError", format!("Agent execution timed out after {}.0 seconds", out.limit)));
        out.took = out.limit + 120;
        out.tokens = Some((2_000_000, 200_000));
        out
    }

    /// An exception in the agent's phase; graded where there is a reward.
    pub fn raised(task: &str, reward: Option<f64>, kind: &'static str, message: &str) -> Outcome {
        let mut out = Outcome::new(task, reward);
        out.exception = Some((kind, message.to_string()));
        if reward.is_some() { out.tests(false) } else { out }
    }

    /// An exception before the agent had its first turn.
    pub fn at_setup(task: &str, kind: &'static str, message: &str) -> Outcome {
        let mut out = Outcome::raised(task, None, kind, message);
        out.agent_ran = false;
        out.took = 40;
        out.tokens = None;
        out
    }

    /// The verifier printed this and left this reward; no test ran.
    pub fn untested(task: &str, reward: f64, printed: &str) -> Outcome {
        Outcome::new(task, Some(reward)).file("verifier/test-stdout.txt", printed)
    }

    pub fn file(mut self, path: &'static str, text: &str) -> Outcome {
        self.files.retain(|(other, _)| *other != path);
        self.files.push((path, text.to_string()));
        self
    }

    pub fn started(mut self, start: i64) -> Outcome {
        self.start = start;
        self
    }

    pub fn named(mut self, suffix: &str) -> Outcome {
        self.suffix = suffix.to_string();
        self
    }

    pub fn name(&self) -> String {
        let stem: String = self.task.chars().take(32).collect();
        format!("{stem}__{}", self.suffix)
    }
}

/// A job.
pub struct Made {
    pub name: String,
    pub id: String,
    /// Planned trials of each task.
    pub planned: Vec<(String, u32)>,
    pub outcomes: Vec<Outcome>,
    pub agent: &'static str,
    pub model: &'static str,
    pub version: &'static str,
    /// Start in UTC.
    pub began: &'static str,
    /// Times of result.json as Harbor writes them, without zone.
    pub written: Option<(&'static str, &'static str)>,
    /// What the job's own summary says to have ended and errored, where it is not what the files say.
    pub claims: Option<(usize, usize)>,
    pub config: Value,
    pub lineage: Vec<Value>,
}

impl Made {
    pub fn new(name: &str, outcomes: Vec<Outcome>) -> Made {
        let mut planned: Vec<(String, u32)> = Vec::new();
        for outcome in &outcomes {
            if !planned.iter().any(|(task, _)| *task == outcome.task) {
                planned.push((outcome.task.clone(), 1));
            }
        }
        Made {
            name: name.to_string(),
            id: format!("job-{name}"),
            planned,
            outcomes,
            agent: "terminus-2",
            model: "openai/Qwen/Qwen3.8-27B",
            version: "0.21.0",
            began: "2026-08-14T15:44:31Z",
            written: None,
            claims: None,
            config: json!({}),
            lineage: Vec::new(),
        }
    }

    fn at(&self, seconds: i64) -> String {
        let began: jiff::Timestamp = self.began.parse().unwrap();
        format!("{:.6}", began.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap())
    }

    /// Writes it; gives its directory.
    pub fn write(&self, root: &Path) -> PathBuf {
        let dir = root.join(&self.name);
        fs::create_dir_all(&dir).unwrap();
        let put = |path: &str, value: &Value| fs::write(dir.join(path), value.to_string()).unwrap();
        let agent = json!({"name": self.agent, "model_name": self.model, "kwargs": {"api_base": "http://127.0.0.1:30000/v1",
            "temperature": 1.0, "record_terminal_session": true, "llm_call_kwargs": {"top_p": 0.95},
            "model_info": {"max_input_tokens": 262_144, "max_output_tokens": 65536}}});
        let mut config = json!({"job_name": self.name, "n_concurrent_trials": 25, "agent_timeout_multiplier": 6.0,
            "agent_setup_timeout_multiplier": 5.0, "agents": [agent], "datasets": [{"path": "data/terminal-bench-2.1"}]});
        for (key, value) in self.config.as_object().unwrap() {
            config[key] = value.clone();
        }
        if !self.lineage.is_empty() {
            config["source_jobs"] = json!(self.lineage);
        }
        put("config.json", &config);
        let agent = &config["agents"][0];
        let trials: Vec<Value> = self
            .planned
            .iter()
            .flat_map(|(task, n)| {
                let lock = json!({"task": {"name": task, "type": "local", "digest": format!("sha256:{task}"), "source": "terminal-bench-2.1",
                    "path": format!("data/terminal-bench-2.1/{task}")}, "agent": agent, "timeout_multiplier": 1.0, "agent_timeout_multiplier": 6.0});
                vec![lock; *n as usize]
            })
            .collect();
        put(
            "lock.json",
            &json!({"schema_version": 3, "created_at": self.at(0), "harbor": {"version": self.version},
                "n_concurrent_trials": 25, "trials": trials}),
        );
        for outcome in &self.outcomes {
            self.trial(&dir, outcome, agent);
        }
        let total: u32 = self.planned.iter().map(|(_, n)| n).sum();
        let errored = self.outcomes.iter().filter(|o| o.exception.is_some()).count();
        let (ended, errored) = self.claims.unwrap_or((self.outcomes.len(), errored));
        let cancelled =
            self.outcomes.iter().filter(|o| o.exception.as_ref().is_some_and(|e| e.0 == "CancelledError")).count();
        let last = self.outcomes.iter().map(|o| o.start + o.took).max().unwrap_or(0) + 1;
        let naive = |at: i64| self.at(at).trim_end_matches('Z').to_string();
        let (started, finished) = match self.written {
            Some((started, finished)) => (started.to_string(), finished.to_string()),
            None => (naive(0), naive(last)),
        };
        put(
            "result.json",
            &json!({"id": self.id, "started_at": started, "updated_at": self.at(last), "finished_at": finished,
                "n_total_trials": total, "stats": {"n_completed_trials": ended, "n_errored_trials": errored,
                "n_running_trials": 0, "n_pending_trials": 0, "n_cancelled_trials": cancelled, "n_retries": 0, "evals": {}}}),
        );
        dir
    }

    fn trial(&self, dir: &Path, o: &Outcome, agent: &Value) {
        let trial = dir.join(o.name());
        for sub in ["agent", "verifier", "artifacts"] {
            fs::create_dir_all(trial.join(sub)).unwrap();
        }
        let put = |path: &str, text: &str| {
            let path = trial.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let config = json!({"task": {"path": format!("data/terminal-bench-2.1/{}", o.task), "source": "terminal-bench-2.1"},
            "trial_name": o.name(), "trials_dir": format!("jobs/{}", self.name), "agent_timeout_multiplier": 6.0,
            "agent": agent, "environment": {"type": "docker"}, "verifier": {}, "job_id": self.id});
        put("config.json", &config.to_string());
        put("trial.log", "Building environment\nStarting environment\n");
        let span = |from: i64, to: i64| json!({"started_at": self.at(from), "finished_at": self.at(to)});
        let (begin, end) = (o.start, o.start + o.took);
        let work = (begin + 30, (end - 60).max(begin + 31));
        let verifier = o.verified || o.files.iter().any(|(path, _)| path.starts_with("verifier/"));
        let exception = o.exception.as_ref().map(|(kind, message)| {
            let trace = format!("Traceback (most recent call last):\n  ...\n{kind}: {message}\n");
            put("exception.txt", &trace);
            json!({"exception_type": kind, "exception_message": message, "exception_traceback": trace, "occurred_at": self.at(work.1)})
        });
        let result = json!({
            "id": format!("{}-{}", self.id, o.name()),
            "task_name": format!("terminal-bench/{}", o.task),
            "trial_name": o.name(),
            "trial_uri": format!("file:///home/op/jobs/{}/{}", self.name, o.name()),
            "task_id": {"path": format!("data/terminal-bench-2.1/{}", o.task)},
            "source": "terminal-bench-2.1",
            "task_checksum": format!("sum-{}", o.task),
            "config": config,
            "agent_info": {"name": self.agent, "version": "2.0.0", "model_info": {"name": self.model, "provider": "openai"}},
            "agent_result": if o.agent_ran { json!({"n_input_tokens": o.tokens.map(|t| t.0), "n_cache_tokens": null,
                "n_output_tokens": o.tokens.map(|t| t.1), "cost_usd": null, "metadata": {"n_episodes": 24}}) } else { json!(null) },
            "verifier_result": o.reward.map(|r| json!({"rewards": {"reward": r}})),
            "exception_info": exception,
            "started_at": self.at(begin),
            "finished_at": self.at(end),
            "environment_setup": span(begin, begin + 10),
            "agent_setup": if o.agent_ran { span(begin + 10, begin + 30) } else { span(begin + 10, end - 1) },
            "agent_execution": if o.agent_ran { span(work.0, work.1) } else { json!(null) },
            "verifier": if verifier { span(work.1, end - 1) } else { json!(null) },
        });
        put("result.json", &result.to_string());
        if let Some(reward) = o.reward {
            put("verifier/reward.txt", &format!("{reward}\n"));
        }
        for (path, text) in &o.files {
            put(path, text);
        }
    }
}

/// `task-01`, …: as many as are wanted, for the tasks of which nothing special is told.
pub fn others(n: usize) -> Vec<String> {
    (1..=n).map(|i| format!("task-{i:02}")).collect()
}
