//! A finished log of a server in another zone, beside the job that it served.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use jiff::tz::TimeZone;
use pilothouse::job::Stamp;
use serde_json::{Value, json};

use crate::support::job::Job;

/// Turns of a trial, at odd distances: seconds after `begin`.
fn turns(begin: Stamp, n: i64, salt: i64) -> Vec<Stamp> {
    let mut second = 0;
    (0..n)
        .map(|i| {
            second += 20 + (i * i * 37 + salt * 53) % 400;
            Stamp::from_second(begin.as_second() + second).unwrap()
        })
        .collect()
}

fn trajectory(dir: &Path, turns: &[Stamp]) {
    let step = |(i, at): (usize, &Stamp)| {
        json!({
            "step_id": i + 1, "timestamp": at.to_string(), "source": "agent", "message": "ls",
            "metrics": {"prompt_tokens": 100, "completion_tokens": 10},
        })
    };
    let steps: Vec<Value> = turns.iter().enumerate().map(step).collect();
    let document = json!({
        "schema_version": "ATIF-v1.7", "session_id": "s", "steps": steps,
        "agent": {"name": "terminus-2", "version": "2.0.0", "model_name": "openai/m"},
    });
    fs::create_dir_all(dir.join("agent")).unwrap();
    fs::write(dir.join("agent/trajectory.json"), document.to_string()).unwrap();
}

/// A log as SGLang writes it in `zone`: an answer a few seconds before each turn ends.
fn log(turns: &[Stamp], zone: &TimeZone) -> String {
    let mut turns = turns.to_vec();
    turns.sort();
    let mut out = String::new();
    for (i, at) in turns.iter().enumerate() {
        let at = Stamp::from_second(at.as_second() - 2 - (i as i64 % 3)).unwrap();
        let wall = at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
        let _ = writeln!(
            out,
            "[{wall}] Decode batch, #running-req: 1, #token: {}, token usage: 0.10, cuda graph: True, gen throughput \
             (token/s): 90.00, #queue-req: 0",
            500 + i
        );
        let _ = writeln!(out, "[{wall}] INFO:     10.0.0.7:4242 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK");
    }
    out
}

fn report(log: &Path, beside: Option<&str>) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(["serving", "--json"]).arg(log);
    if let Some(job) = beside {
        command.args(["--beside", job]);
    }
    let state = tempfile::tempdir().unwrap();
    let out = command.env("PILOTHOUSE_STATE_DIR", state.path()).output().unwrap();
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)))
}

/// What the log's last line is placed at, beside a job whose trials ran from `begin` on.
fn last_heard(begin: &str, zone: &str) -> (Value, Stamp) {
    let begin: Stamp = begin.parse().unwrap();
    let mut job = Job::finished("served");
    job.leave();
    let mut all = Vec::new();
    let trials = fs::read_dir(&job.dir).unwrap().flatten().map(|e| e.path()).filter(|p| p.is_dir());
    for (salt, dir) in trials.enumerate() {
        let turns = turns(begin, 40, salt as i64 + 1);
        trajectory(&dir, &turns);
        all.extend(turns);
    }
    assert!(all.len() >= 120, "{}", all.len());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.log");
    fs::write(&file, log(&all, &TimeZone::get(zone).unwrap())).unwrap();
    // By itself it says nothing of its zone.
    assert_eq!(report(&file, None)["sources"][0]["time_known"], false);
    (report(&file, Some(job.arg())), *all.iter().max().unwrap())
}

#[test]
fn a_finished_log_of_another_zone_lines_up_with_the_trials_it_served() {
    for (begin, zone) in [
        ("2026-06-10T01:00:00Z", "Asia/Shanghai"),
        ("2026-06-10T01:00:00Z", "UTC"),
        ("2026-06-10T01:00:00Z", "Asia/Kathmandu"),
        // The night in which clocks go back, and the one in which they go forward.
        ("2026-10-24T23:00:00Z", "Europe/Berlin"),
        ("2026-03-28T23:30:00Z", "Europe/Berlin"),
    ] {
        let (seen, last) = last_heard(begin, zone);
        let source = &seen["sources"][0];
        assert_eq!(source["time_known"], true, "{zone} {begin}: {seen:#}");
        let heard: Stamp = source["last_heard"].as_str().unwrap().parse().unwrap();
        let apart = (heard.as_second() - last.as_second()).abs();
        assert!(apart <= 10, "{zone} {begin}: heard {heard}, last turn {last}");
    }
}

#[test]
fn a_log_that_served_somebody_else_stays_without_times() {
    let mut job = Job::finished("other");
    job.leave();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.log");
    let turns = turns("2026-06-10T01:00:00Z".parse().unwrap(), 60, 9);
    fs::write(&file, log(&turns, &TimeZone::UTC)).unwrap();
    assert_eq!(report(&file, Some(job.arg()))["sources"][0]["time_known"], false);
    let out =
        Command::new(env!("CARGO_BIN_EXE_pilothouse")).args(["serving", "--beside", "/nowhere"]).arg(&file).output();
    assert_eq!(out.unwrap().status.code(), Some(2));
}
