//! What following costs while nothing happens. Alone in its file: the whole process is measured.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pilothouse::follow::{Follower, Options};
use pilothouse::job::JobEvent;

/// Voluntary context switches of all threads of this process.
fn switches() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .flatten()
        .map(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            line.map_or(0, |n| n.trim().parse::<u64>().unwrap())
        })
        .sum()
}

fn job(dir: &Path, trials: usize, done: bool) {
    let end = if done { "\"2026-11-29T20:00:00\"" } else { "null" };
    fs::write(dir.join("config.json"), r#"{"job_name":"made","agents":[{"name":"terminus-2"}]}"#).unwrap();
    fs::write(dir.join("job.log"), "").unwrap();
    fs::write(
        dir.join("result.json"),
        format!(r#"{{"id":"j","started_at":"2026-11-29T19:00:00","finished_at":{end},"n_total_trials":{trials},"stats":{{"n_completed_trials":0}}}}"#),
    )
    .unwrap();
    for i in 0..trials {
        let trial = dir.join(format!("task-{i}__aB3dE5f"));
        for sub in ["agent", "verifier", "artifacts"] {
            fs::create_dir_all(trial.join(sub)).unwrap();
        }
        fs::write(trial.join("config.json"), r#"{"task":{"path":"tasks/t"},"agent":{"name":"terminus-2"}}"#).unwrap();
        fs::write(trial.join("agent/trajectory.json"), r#"{"steps":[{"source":"agent"}]}"#).unwrap();
        if done {
            fs::write(
                trial.join("result.json"),
                r#"{"id":"x","task_name":"t","trial_name":"t","config":{"task":{"path":"tasks/t"}},"verifier_result":{"rewards":{"reward":1.0}}}"#,
            )
            .unwrap();
        }
    }
}

/// Context switches per second while nothing happens for `time`.
fn idle(dir: &Path, time: Duration) -> f64 {
    let follower = Follower::new(vec![dir.to_path_buf()], Options::default());
    let remote = follower.remote();
    let (sender, receiver) = mpsc::sync_channel::<Vec<JobEvent>>(1024);
    let thread = std::thread::spawn(move || follower.run(Box::new(move |events| sender.send(events).is_ok())));
    let begin = Instant::now();
    let mut settled = false;
    while !settled {
        assert!(begin.elapsed() < Duration::from_secs(10));
        settled = receiver.recv().unwrap().iter().any(|e| matches!(e, JobEvent::Settled(_)));
    }
    // Files that are seconds old are looked at once more; that is not idle yet.
    std::thread::sleep(Duration::from_secs(4));
    let before = switches();
    std::thread::sleep(time);
    // One of them is this thread's own sleep.
    let count = switches() - before - 1;
    println!("{count} context switches in {time:?}");
    remote.stop();
    drop(receiver);
    thread.join().unwrap();
    count as f64 / time.as_secs_f64()
}

#[test]
fn nothing_happens_and_nothing_is_done() {
    let time = Duration::from_secs(20);
    let finished = tempfile::tempdir().unwrap();
    job(finished.path(), 500, true);
    let per_second = idle(finished.path(), time);
    assert!(per_second * 20.0 <= 2.0, "{per_second} wake-ups per second on a finished job");
    let running = tempfile::tempdir().unwrap();
    job(running.path(), 64, false);
    let per_second = idle(running.path(), time);
    assert!(per_second <= 1.0, "{per_second} wake-ups per second while 64 trials run");
}
