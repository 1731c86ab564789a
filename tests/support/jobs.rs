//! Job dirs made by the tests, and reports made in the process with a clock of the test's choosing.

use std::fs;
use std::path::{Path, PathBuf};

use pilothouse::follow::{Follower, Options as FollowOptions};
use pilothouse::job::slots::Rule;
use pilothouse::job::{Fleet, JobEvent, Stamp, eta, tally, warnings};
use pilothouse::report::json::{StatusPart, Style};
use pilothouse::report::{json, markdown, plain};
use serde_json::json;

/// Writes a small job of finished trials, one for each task, in the way of Harbor 0.21; a task without
/// reward ended with an exception. Gives its directory.
pub fn write_job(root: &Path, name: &str, tasks: &[(&str, Option<f64>)], finished: bool) -> PathBuf {
    let dir = root.join(name);
    fs::create_dir_all(&dir).unwrap();
    let write = |path: PathBuf, value: serde_json::Value| fs::write(path, value.to_string()).unwrap();
    write(dir.join("config.json"), json!({"job_name": name, "jobs_dir": "jobs", "agents": [{"name": "oracle"}]}));
    let lock = |task: &str| json!({"task": {"name": task, "type": "local", "digest": format!("sha256:{task}"), "path": format!("tasks/{task}")}, "agent": {"name": "oracle"}});
    let trials: Vec<_> = tasks.iter().map(|(task, _)| lock(task)).collect();
    write(
        dir.join("lock.json"),
        json!({"schema_version": 3, "created_at": "2026-01-02T10:00:00Z", "harbor": {"version": "0.21.0"}, "n_concurrent_trials": 1, "trials": trials}),
    );
    for (task, reward) in tasks {
        let trial = dir.join(format!("{task}__AbCdEfG"));
        fs::create_dir_all(&trial).unwrap();
        let config = json!({"task": {"path": format!("tasks/{task}")}, "trial_name": format!("{task}__AbCdEfG"), "agent": {"name": "oracle"}});
        write(trial.join("config.json"), config.clone());
        let exception = json!({"exception_type": "RewardFileNotFoundError", "exception_message": "none", "exception_traceback": "", "occurred_at": "2026-01-02T10:00:50Z"});
        write(
            trial.join("result.json"),
            json!({
                "id": format!("00000000-0000-4000-8000-{name:0>6.6}{task:0>6.6}"),
                "task_name": format!("demo/{task}"),
                "trial_name": format!("{task}__AbCdEfG"),
                "config": config,
                "agent_info": {"name": "oracle", "version": "1.0.0"},
                "agent_result": {"n_input_tokens": null, "n_cache_tokens": null, "n_output_tokens": null},
                "verifier_result": reward.map(|r| json!({"rewards": {"reward": r}})),
                "exception_info": if reward.is_none() { exception } else { json!(null) },
                "started_at": "2026-01-02T10:00:00Z",
                "finished_at": "2026-01-02T10:01:00Z",
            }),
        );
    }
    let errored = tasks.iter().filter(|(_, reward)| reward.is_none()).count();
    write(
        dir.join("result.json"),
        json!({
            "id": format!("job-{name}"),
            "started_at": "2026-01-02T10:00:00",
            "updated_at": "2026-01-02T10:01:01",
            "finished_at": if finished { json!("2026-01-02T10:01:01") } else { json!(null) },
            "n_total_trials": tasks.len(),
            "stats": {"n_completed_trials": tasks.len(), "n_errored_trials": errored, "n_running_trials": 0,
                "n_pending_trials": 0, "n_cancelled_trials": 0, "n_retries": 0, "evals": {}},
        }),
    );
    dir
}

/// The reports of some directories.
pub struct Reports {
    pub json: String,
    pub plain: String,
    pub markdown: String,
    pub status: String,
}

/// The events of one look at these directories, with all that differs between machines made equal:
/// they are shown as `/jobs/<name>`, and nobody's processes are looked at.
pub fn scan(dirs: &[PathBuf]) -> Vec<JobEvent> {
    let mut out = Vec::new();
    let options = FollowOptions { owner: false, ..FollowOptions::default() };
    Follower::new(dirs.to_vec(), options).scan_once(&mut |events| {
        out.extend(events);
        true
    });
    for event in &mut out {
        if let JobEvent::Job(_, facts) = event {
            facts.dir = Path::new("/jobs").join(facts.dir.file_name().unwrap());
            // Local time without a zone, so another one on every machine.
            if let Some(summary) = &mut facts.summary {
                summary.finished = summary.finished.map(|_| "2026-11-29T19:50:00Z".parse().unwrap());
            }
        }
    }
    out
}

/// The reports as they were at `now`.
pub fn reports(dirs: &[PathBuf], now: &str) -> Reports {
    let now: Stamp = now.parse().unwrap();
    let mut fleet = Fleet::default();
    scan(dirs).into_iter().for_each(|event| fleet.apply(event));
    let tally = tally::count(&fleet, &tally::Options::default(), now).unwrap();
    let eta = eta::of_fleet(&fleet, now);
    let attention = warnings::attention(&fleet, &tally);
    let side_by_side = tally::count_side_by_side(&fleet, Rule::default(), now);
    let part = StatusPart { eta: eta.as_ref(), attention: &attention, works: None, now };
    Reports {
        json: json::document(&fleet, &tally, None, Style::Pretty),
        plain: plain::tally(&fleet, &tally),
        markdown: markdown::tally(&fleet, &tally),
        status: plain::status(&fleet, &side_by_side, &part),
    }
}
