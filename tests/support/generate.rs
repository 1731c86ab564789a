//! Big jobs in the layout of Harbor 0.21, for benchmarks and scale tests. The same number gives the
//! same job.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

/// What was generated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// Planned trials.
    pub planned: usize,
    /// Trials with a result.
    pub finished: usize,
    /// Of those, reward 1.
    pub passed: usize,
    /// Of those, with a reward.
    pub graded: usize,
    /// Of those, with an exception.
    pub errored: usize,
    /// Directories of trials without result, relative to the job dir.
    pub running: Vec<String>,
    /// Path of the job dir.
    pub dir: PathBuf,
}

/// Attempts per task.
const ATTEMPTS: usize = 5;
/// When the job began: 2026-11-20T08:00:00Z, in seconds since 1970.
const BEGAN: i64 = 1_795_161_600;
const JOB_ID: &str = "6b0c2f5e-1d8a-4c36-9f07-0c5f4f1e2a77";

/// How a trial ends: by its index, in fixed shares.
struct End {
    reward: Option<f64>,
    exception: Option<(&'static str, &'static str)>,
}

fn end(i: usize) -> End {
    let e = |reward, exception| End { reward, exception };
    // 37 has no factor in common with 100: neighbours differ, shares are exact over 100 trials.
    match i * 37 % 100 {
        0..56 => e(Some(1.0), None),
        56..84 => e(Some(0.0), None),
        84..86 => e(Some(0.5), None),
        86..88 => e(Some(1.0), Some(("AgentTimeoutError", "Agent execution timed out after 900.0 seconds"))),
        88..94 => e(Some(0.0), Some(("AgentTimeoutError", "Agent execution timed out after 900.0 seconds"))),
        94..96 => e(None, Some(("VerifierTimeoutError", "Verifier execution timed out after 600.0 seconds"))),
        96..98 => e(None, Some(("RewardFileNotFoundError", "No reward file found at jobs/big/verifier/reward.txt"))),
        _ => e(
            None,
            Some((
                "RuntimeError",
                "Docker compose command failed for environment x. Return code: 1. Stderr: failed to create network: \
                 could not find an available, non-overlapping IPv4 address pool",
            )),
        ),
    }
}

fn task(i: usize) -> String {
    format!("task-{:04}", i / ATTEMPTS)
}

/// Directory name of the i-th trial.
pub fn trial_name(i: usize) -> String {
    const LETTERS: &[u8] = b"23456789ABCDEFGHJKMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz";
    // A product with a large odd number spreads the digits; the index itself keeps names apart.
    let mut n = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let mut suffix = String::new();
    for _ in 0..4 {
        suffix.push(char::from(LETTERS[(n % LETTERS.len() as u64) as usize]));
        n /= LETTERS.len() as u64;
    }
    let mut k = i;
    for _ in 0..3 {
        suffix.push(char::from(LETTERS[k % LETTERS.len()]));
        k /= LETTERS.len();
    }
    format!("{}__{suffix}", task(i))
}

fn stamp(seconds: f64) -> String {
    let at = jiff::Timestamp::from_microsecond(BEGAN * 1_000_000 + (seconds * 1e6) as i64).unwrap();
    format!("{at:.6}")
}

fn naive(seconds: f64) -> String {
    stamp(seconds).trim_end_matches('Z').to_string()
}

/// Seconds after the job's begin at which the i-th trial starts, and how long its agent works.
fn times(i: usize) -> (f64, f64) {
    (i as f64 * 7.5, 120.0 + (i * 53 % 700) as f64)
}

const AGENT: &str = r#"{
            "name": "terminus-2",
            "model_name": "openai/big-model-27b",
            "kwargs": {
                "api_base": "http://127.0.0.1:8000/v1",
                "model_info": {
                    "max_input_tokens": 131072,
                    "max_output_tokens": 32768
                },
                "record_terminal_session": true
            }
        }"#;

fn lock_entry(i: usize) -> String {
    let task = task(i);
    format!(
        r#"{{
            "schema_version": 2,
            "task": {{
                "name": "{task}",
                "type": "local",
                "digest": "sha256:{digest:064x}",
                "source": "big-set",
                "path": "tasks/{task}"
            }},
            "install_only": false,
            "timeout_multiplier": 1.0,
            "agent": {AGENT},
            "skills": [],
            "environment": {{
                "type": "docker",
                "force_build": false,
                "delete": true,
                "cpu_enforcement_policy": "auto",
                "memory_enforcement_policy": "auto",
                "extra_docker_compose": [],
                "kwargs": {{}},
                "extra_allowed_hosts": []
            }},
            "verifier": {{
                "disable": false,
                "environment_mode": "shared"
            }}
        }}"#,
        digest = (i / ATTEMPTS) as u128 * 0x0100_0000_01b3 + 7,
    )
}

fn config(i: usize) -> String {
    let (task, name) = (task(i), trial_name(i));
    format!(
        r#"{{
    "task": {{
        "path": "tasks/{task}",
        "source": "big-set"
    }},
    "trial_name": "{name}",
    "trials_dir": "jobs/big",
    "agent": {AGENT},
    "job_id": "{JOB_ID}"
}}"#
    )
}

fn result(i: usize) -> String {
    let (task, name, end) = (task(i), trial_name(i), end(i));
    let (start, work) = times(i);
    // A limit in a message is the time that it took.
    let (work, check) = match end.exception {
        Some(("AgentTimeoutError", _)) => (900.0, 4.0),
        Some(("VerifierTimeoutError", _)) => (work, 600.0),
        _ => (work, 4.0),
    };
    let s = |offset: f64| stamp(start + offset);
    let (input, output) = (4000 + i * 7919 % 90_000, 300 + i * 613 % 9000);
    let agent_ran = !matches!(end.exception, Some(("RuntimeError", _)));
    let span = |from: f64, to: f64| format!(r#"{{"started_at": "{}", "finished_at": "{}"}}"#, s(from), s(to));
    let null = || "null".to_string();
    let exception = end.exception.map_or_else(null, |(kind, message)| {
        let frames = "  File \\\"/opt/harbor/lib/python3.13/site-packages/harbor/trial/trial.py\\\", line 489, in _run\\n    raise\\n";
        format!(
            r#"{{
        "exception_type": "{kind}",
        "exception_message": "{message}",
        "exception_traceback": "Traceback (most recent call last):\n{frames}{frames}{frames}harbor.trial.errors.{kind}: {message}\n",
        "occurred_at": "{}"
    }}"#,
            s(work + 8.0)
        )
    });
    let agent_result = if agent_ran {
        let calls: Vec<String> = (0..8).map(|k| format!("{}.25", 900 + (i * 31 + k * 977) % 9000)).collect();
        format!(
            r#"{{
        "n_input_tokens": {input},
        "n_cache_tokens": {},
        "n_output_tokens": {output},
        "cost_usd": null,
        "rollout_details": [],
        "metadata": {{
            "n_episodes": {},
            "api_request_times_msec": [
                {}
            ],
            "summarization_count": 0
        }}
    }}"#,
            input * 3 / 4,
            4 + i % 30,
            calls.join(",\n                ")
        )
    } else {
        null()
    };
    let verifier_result = end.reward.map_or_else(null, |r| {
        format!("{{\n        \"rewards\": {{\n            \"reward\": {r:?}\n        }}\n    }}")
    });
    format!(
        r#"{{
    "id": "{id:08x}-0000-4000-8000-{id:012x}",
    "task_name": "big/{task}",
    "trial_name": "{name}",
    "trial_uri": "file:///home/op/runs/jobs/big/{name}",
    "task_id": {{
        "path": "tasks/{task}"
    }},
    "source": "big-set",
    "task_checksum": "{sum:064x}",
    "config": {{
        "task": {{
            "path": "tasks/{task}",
            "git_url": null,
            "git_commit_id": null,
            "name": null,
            "ref": null,
            "overwrite": false,
            "download_dir": null,
            "source": "big-set"
        }},
        "trial_name": "{name}",
        "trials_dir": "jobs/big",
        "install_only": false,
        "timeout_multiplier": 1.0,
        "agent_timeout_multiplier": null,
        "verifier_timeout_multiplier": null,
        "agent_setup_timeout_multiplier": null,
        "environment_build_timeout_multiplier": null,
        "agent": {{
            "name": "terminus-2",
            "import_path": null,
            "model_name": "openai/big-model-27b",
            "n_concurrent": null,
            "concurrency_group": null,
            "skills": [],
            "override_timeout_sec": null,
            "override_setup_timeout_sec": null,
            "max_timeout_sec": null,
            "resume_trajectory": false,
            "load_trajectory": null,
            "extra_allowed_hosts": [],
            "kwargs": {{
                "api_base": "http://127.0.0.1:8000/v1",
                "model_info": {{
                    "max_input_tokens": 131072,
                    "max_output_tokens": 32768
                }},
                "record_terminal_session": true
            }},
            "mcp_servers": []
        }},
        "environment": {{
            "type": "docker",
            "import_path": null,
            "force_build": false,
            "delete": true,
            "cpu_enforcement_policy": "auto",
            "memory_enforcement_policy": "auto",
            "override_cpus": null,
            "override_memory_mb": null,
            "override_storage_mb": null,
            "override_gpus": null,
            "override_tpu": null,
            "mounts": null,
            "extra_docker_compose": [],
            "kwargs": {{}},
            "extra_allowed_hosts": []
        }},
        "verifier": {{
            "override_timeout_sec": null,
            "max_timeout_sec": null,
            "disable": false
        }},
        "artifacts": [],
        "extra_instruction_paths": [],
        "job_id": "{JOB_ID}",
        "source_trial": null
    }},
    "agent_info": {{
        "name": "terminus-2",
        "version": "2.0.0",
        "model_info": {{
            "name": "big-model-27b",
            "provider": "openai"
        }}
    }},
    "agent_result": {agent_result},
    "verifier_result": {verifier_result},
    "verifier_environment_mode": "shared",
    "exception_info": {exception},
    "started_at": "{started}",
    "finished_at": "{finished}",
    "environment_setup": {environment},
    "agent_setup": {setup},
    "agent_execution": {agent},
    "verifier": {verifier},
    "step_results": null
}}"#,
        id = i + 1,
        sum = i / ATTEMPTS + 3,
        started = s(0.0),
        finished = s(work + check + 21.0),
        environment = span(0.02, 3.0),
        setup = if agent_ran { span(3.0, 7.0) } else { null() },
        agent = if agent_ran { span(7.0, 7.0 + work) } else { null() },
        verifier = if agent_ran { span(work + 8.0, work + 8.0 + check) } else { null() },
    )
}

/// A trajectory of `episodes` episodes; the tokens of the k-th are 100 + k, so that any growth shows.
pub fn trajectory(i: usize, episodes: usize, begin: jiff::Timestamp) -> String {
    let at = |k: usize| format!("{:.6}", begin + jiff::SignedDuration::from_secs(k as i64)).replace('Z', "+00:00");
    let mut steps = format!(
        "    {{\n      \"step_id\": 1,\n      \"timestamp\": \"{}\",\n      \"source\": \"user\",\n      \"message\": \"Do task {i}.\"\n    }}",
        at(0)
    );
    for k in 1..=episodes {
        let _ = write!(
            steps,
            ",\n    {{\n      \"step_id\": {},\n      \"timestamp\": \"{}\",\n      \"source\": \"agent\",\n      \
             \"model_name\": \"big-model-27b\",\n      \"message\": \"Analysis: step {k} is due.\\nPlan: do it.\",\n      \
             \"tool_calls\": [{{\"tool_call_id\": \"call_{k}\", \"function_name\": \"bash_command\", \"arguments\": \
             {{\"keystrokes\": \"make step{k}\\n\", \"duration\": 1.0}}}}],\n      \
             \"observation\": {{\"results\": [{{\"content\": \"New Terminal Output:\\n\\nstep {k} done\\n\"}}]}},\n      \
             \"metrics\": {{\"prompt_tokens\": {}, \"completion_tokens\": {}}}\n    }}",
            k + 1,
            at(k),
            1000 + 50 * k,
            100 + k
        );
    }
    format!(
        "{{\n  \"schema_version\": \"ATIF-v1.7\",\n  \"session_id\": \"s-{i}\",\n  \"agent\": {{\"name\": \"terminus-2\", \
         \"version\": \"2.0.0\", \"model_name\": \"openai/big-model-27b\"}},\n  \"steps\": [\n{steps}\n  ]\n}}"
    )
}

fn write_trial(dir: &Path, i: usize, done: bool) -> io::Result<()> {
    let trial = dir.join(trial_name(i));
    for sub in ["agent", "verifier", "artifacts/logs/artifacts"] {
        fs::create_dir_all(trial.join(sub))?;
    }
    fs::write(trial.join("lock.json"), lock_entry(i))?;
    fs::write(trial.join("config.json"), config(i))?;
    let name = trial_name(i);
    fs::write(
        trial.join("trial.log"),
        format!("Uploading environment/ to /app\nTrajectory dumped to jobs/big/{name}/agent/trajectory.json\n"),
    )?;
    if !done {
        fs::write(trial.join("agent/trajectory.json"), trajectory(i, 2, jiff::Timestamp::now()))?;
        let header = format!(
            "{{\"version\": 2, \"width\": 100, \"height\": 30, \"timestamp\": {}}}\n",
            jiff::Timestamp::now().as_second()
        );
        fs::write(trial.join("agent/recording.cast"), format!("{header}[0.1, \"o\", \"root@box:/app# \"]\n"))?;
        return fs::write(trial.join("agent/terminus_2.pane"), "root@box:/app# ");
    }
    let begin = jiff::Timestamp::from_second(BEGAN + times(i).0 as i64).unwrap();
    fs::write(trial.join("agent/trajectory.json"), trajectory(i, 2, begin))?;
    fs::write(trial.join("artifacts/manifest.json"), "[]")?;
    let end = end(i);
    if let Some(reward) = end.reward {
        fs::write(trial.join("verifier/reward.txt"), format!("{reward}"))?;
        fs::write(trial.join("verifier/test-stdout.txt"), "PASSED test_outputs.py::test_it\n1 passed\n")?;
    }
    if let Some((kind, message)) = end.exception {
        fs::write(trial.join("exception.txt"), format!("Traceback (most recent call last):\n{kind}: {message}\n"))?;
    }
    fs::write(trial.join("result.json"), result(i))
}

/// A finished job of `n` trials in `dir`, which is created.
pub fn finished_job(dir: &Path, n: usize) -> Made {
    job(dir, n, 0)
}

/// A job in which `done` trials are finished and `running` are in their agent phase.
pub fn running_job(dir: &Path, done: usize, running: usize) -> Made {
    job(dir, done, running)
}

fn job(dir: &Path, done: usize, running: usize) -> Made {
    let planned = done + running;
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("job.log"), "Registered custom model 'openai/big-model-27b'\n").unwrap();
    let config = format!(
        "{{\n    \"job_name\": \"big\",\n    \"n_concurrent_trials\": 64,\n    \"agents\": [\n        {AGENT}\n    ],\n    \
         \"datasets\": [\n        {{\n            \"path\": \"big-set\"\n        }}\n    ]\n}}"
    );
    fs::write(dir.join("config.json"), config).unwrap();
    let entries: Vec<String> = (0..planned).map(lock_entry).collect();
    let lock = format!(
        "{{\n    \"schema_version\": 3,\n    \"created_at\": \"{}\",\n    \"harbor\": {{\n        \"version\": \"0.21.0\",\n        \
         \"is_editable\": false\n    }},\n    \"n_concurrent_trials\": 64,\n    \"retry\": {{\n        \"max_retries\": 0\n    }},\n    \
         \"trials\": [\n        {}\n    ]\n}}",
        stamp(0.0),
        entries.join(",\n        ")
    );
    fs::write(dir.join("lock.json"), lock).unwrap();
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || {
                for i in (worker..planned).step_by(workers) {
                    write_trial(dir, i, i < done).unwrap();
                }
            });
        }
    });
    let ends: Vec<End> = (0..done).map(end).collect();
    let made = Made {
        planned,
        finished: done,
        passed: ends.iter().filter(|e| e.reward == Some(1.0)).count(),
        graded: ends.iter().filter(|e| e.reward.is_some()).count(),
        errored: ends.iter().filter(|e| e.exception.is_some()).count(),
        running: (done..planned).map(trial_name).collect(),
        dir: dir.to_path_buf(),
    };
    let total: f64 = ends.iter().filter_map(|e| e.reward).sum();
    let last = (0..done).map(|i| times(i).0 + times(i).1 + 25.0).fold(0.0, f64::max) + 0.5;
    let finished = if running == 0 { format!("\"{}\"", naive(last)) } else { "null".into() };
    let summary = format!(
        r#"{{
    "id": "{JOB_ID}",
    "started_at": "{}",
    "updated_at": "{}",
    "finished_at": {finished},
    "n_total_trials": {planned},
    "stats": {{
        "n_completed_trials": {done},
        "n_errored_trials": {},
        "n_running_trials": {running},
        "n_pending_trials": 0,
        "n_cancelled_trials": 0,
        "n_retries": 0,
        "evals": {{
            "terminus-2__big-model-27b__big-set": {{
                "n_trials": {},
                "n_errors": {},
                "metrics": [{{"mean": {}}}],
                "pass_at_k": {{}},
                "reward_stats": {{}},
                "exception_stats": {{}}
            }}
        }},
        "n_input_tokens": null,
        "n_cache_tokens": null,
        "n_output_tokens": null,
        "cost_usd": null
    }}
}}"#,
        naive(0.0),
        naive(last),
        made.errored,
        made.graded,
        made.errored,
        total / done.max(1) as f64,
    );
    fs::write(dir.join("result.json"), summary).unwrap();
    made
}
