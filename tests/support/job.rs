//! A small job of our own, written as Harbor 0.21 writes one, so that tests of the screen need no
//! recorded data.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pilothouse::job::Stamp;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A job dir that is being written. Its owner is alive as long as [`Job::leave`] was not called.
pub struct Job {
    _tmp: TempDir,
    pub dir: PathBuf,
    tasks: Vec<String>,
    log: Option<File>,
    began: Stamp,
}

/// A time `seconds` from now.
pub fn from_now(seconds: i64) -> String {
    let now = Stamp::now().as_second();
    Stamp::from_second(now + seconds).unwrap().to_string()
}

fn put(path: &Path, value: &Value) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, serde_json::to_vec_pretty(value).unwrap()).unwrap();
}

impl Job {
    /// A job that plans one trial of each task and has begun none.
    pub fn begin(name: &str, tasks: &[&str]) -> Job {
        let tmp = TempDir::new().unwrap();
        let dir = tmp.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        let agent = json!({"name": "terminus-2", "model_name": "lab/small-1"});
        put(
            &dir.join("config.json"),
            &json!({
                "job_name": name, "n_concurrent_trials": 2, "agents": [agent], "datasets": [{"path": "tasks"}],
            }),
        );
        let trials: Vec<Value> = tasks
            .iter()
            .map(|task| {
                json!({
                    "schema_version": 2,
                    "task": {"name": task, "type": "local", "digest": format!("sha256:{task}"), "source": "tasks",
                        "path": format!("tasks/{task}")},
                    "timeout_multiplier": 1.0, "agent": agent,
                })
            })
            .collect();
        put(
            &dir.join("lock.json"),
            &json!({
                "schema_version": 3, "created_at": from_now(-120),
                "harbor": {"version": "0.21.0", "is_editable": false}, "n_concurrent_trials": 2, "trials": trials,
            }),
        );
        let log = Some(File::create(dir.join("job.log")).unwrap());
        let tasks = tasks.iter().map(|t| t.to_string()).collect();
        let job = Job { _tmp: tmp, dir, tasks, log, began: Stamp::now() };
        job.summary(false);
        job
    }

    /// A finished job with every everyday outcome, in `tasks` order: solved, failed, solved at the
    /// time limit, an error without reward.
    pub fn finished(name: &str) -> Job {
        let mut job = Job::begin(name, &["alpha-task", "beta-task", "gamma-task", "delta-task"]);
        job.done("alpha-task", Some(1.0), None);
        job.done("beta-task", Some(0.0), None);
        job.done("gamma-task", Some(1.0), Some(("AgentTimeoutError", "Agent execution timed out after 20.0 seconds")));
        job.done("delta-task", None, Some(("RuntimeError", "docker compose up failed")));
        job.summary(true);
        job.leave();
        job
    }

    /// The owner goes: nobody holds the log open any more.
    pub fn leave(&mut self) {
        self.log = None;
    }

    pub fn arg(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    /// The trial's directory name.
    pub fn name(task: &str) -> String {
        format!("{task}__AbCdEfG")
    }

    pub fn trial_dir(&self, task: &str) -> PathBuf {
        self.dir.join(Job::name(task))
    }

    /// The trial's directory appears, its environment is being set up.
    pub fn start(&self, task: &str) -> PathBuf {
        let dir = self.trial_dir(task);
        put(
            &dir.join("config.json"),
            &json!({
                "task": {"path": format!("tasks/{task}"), "source": "tasks"}, "trial_name": Job::name(task),
                "trials_dir": "jobs", "agent": {"name": "terminus-2", "model_name": "lab/small-1",
                    "override_timeout_sec": 900.0},
            }),
        );
        fs::create_dir_all(dir.join("agent")).unwrap();
        fs::write(dir.join("trial.log"), "Uploading environment/ to /app\n").unwrap();
        dir
    }

    /// The agent has finished so many episodes and is in the next one.
    pub fn episodes(&self, task: &str, n: usize) {
        let dir = self.trial_dir(task);
        let mut steps =
            vec![json!({"step_id": 1, "timestamp": from_now(-60), "source": "user", "message": "Do the task."})];
        for i in 0..n {
            steps.push(json!({
                "step_id": i + 2, "timestamp": from_now(-50 + i as i64), "source": "agent", "model_name": "small-1",
                "message": format!("Analysis: step {i} looks fine.\nPlan: list the files."),
                "reasoning_content": "A short thought.",
                "tool_calls": [{"tool_call_id": format!("c{i}"), "function_name": "bash_command",
                    "arguments": {"keystrokes": "ls -la\n", "duration": 0.1}}],
                "observation": {"results": [{"content": format!("total {i}\nroot@box:/app# ")}]},
                "metrics": {"prompt_tokens": 500, "completion_tokens": 40},
            }));
        }
        put(
            &dir.join("agent/trajectory.json"),
            &json!({
                "schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "terminus-2", "version": "2.0.0",
                    "model_name": "lab/small-1"},
                "steps": steps,
                "final_metrics": {"total_prompt_tokens": 500 * n, "total_completion_tokens": 40 * n},
            }),
        );
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 60;
        let mut cast = format!("{{\"version\": 2, \"width\": 80, \"height\": 20, \"timestamp\": {began}}}\n");
        for i in 0..n.max(1) * 10 {
            cast.push_str(&format!("[{}, \"o\", \"line {i} of the recording\\r\\n\"]\n", i as f64 + 0.5));
        }
        fs::write(dir.join("agent/recording.cast"), cast).unwrap();
        fs::write(dir.join("agent/terminus_2.pane"), "root@box:/app# ").unwrap();
    }

    /// The trial from its beginning to its end.
    pub fn done(&self, task: &str, reward: Option<f64>, exception: Option<(&str, &str)>) {
        let dir = self.start(task);
        self.episodes(task, 3);
        if let Some(reward) = reward {
            fs::create_dir_all(dir.join("verifier")).unwrap();
            fs::write(dir.join("verifier/reward.txt"), format!("{reward}")).unwrap();
            fs::write(dir.join("verifier/test-stdout.txt"), "PASSED test_outputs.py::test_file\n").unwrap();
        }
        let exception = exception.map(|(kind, message)| {
            let traceback = format!("Traceback (most recent call last):\n  File \"x.py\", line 1\n{kind}: {message}\n");
            fs::write(dir.join("exception.txt"), &traceback).unwrap();
            json!({"exception_type": kind, "exception_message": message, "exception_traceback": traceback,
                "occurred_at": from_now(-20)})
        });
        put(
            &dir.join("result.json"),
            &json!({
                "id": format!("id-{task}"), "task_name": format!("tasks/{task}"), "trial_name": Job::name(task),
                "task_id": {"path": format!("tasks/{task}")}, "source": "tasks", "task_checksum": "00",
                "config": {"task": {"path": format!("tasks/{task}")}, "trial_name": Job::name(task),
                    "agent": {"name": "terminus-2", "model_name": "lab/small-1"}},
                "agent_info": {"name": "terminus-2", "version": "2.0.0",
                    "model_info": {"name": "small-1", "provider": "lab"}},
                "agent_result": {"n_input_tokens": 1500, "n_cache_tokens": 1000, "n_output_tokens": 120,
                    "cost_usd": 0.01, "metadata": {"n_episodes": 3}},
                "verifier_result": reward.map(|r| json!({"rewards": {"reward": r}})),
                "exception_info": exception,
                "started_at": from_now(-70), "finished_at": from_now(-10),
                "environment_setup": {"started_at": from_now(-70), "finished_at": from_now(-65)},
                "agent_setup": {"started_at": from_now(-65), "finished_at": from_now(-60)},
                "agent_execution": {"started_at": from_now(-60), "finished_at": from_now(-20)},
                "verifier": {"started_at": from_now(-19), "finished_at": from_now(-11)},
            }),
        );
    }

    /// Writes the job's own result with the counts of this moment.
    pub fn summary(&self, finished: bool) {
        let (mut done, mut open, mut errored) = (0, 0, 0);
        for task in &self.tasks {
            let dir = self.trial_dir(task);
            done += usize::from(dir.join("result.json").exists());
            errored += usize::from(dir.join("exception.txt").exists() && dir.join("result.json").exists());
            open += usize::from(dir.is_dir() && !dir.join("result.json").exists());
        }
        let naive = |seconds| from_now(seconds).trim_end_matches('Z').to_string();
        put(
            &self.dir.join("result.json"),
            &json!({
                "id": format!("job-{}", self.began.as_nanosecond()), "started_at": naive(-120), "updated_at": naive(0),
                "finished_at": finished.then(|| naive(0)), "n_total_trials": self.tasks.len(),
                "stats": {"n_completed_trials": done, "n_errored_trials": errored, "n_running_trials": open,
                    "n_pending_trials": self.tasks.len() - done - open, "n_cancelled_trials": 0, "n_retries": 0,
                    "evals": {}},
            }),
        );
    }
}
