//! What watching costs where change events can not be believed, and how cheap a list of many jobs is,
//! measured on the real binary.
//!
//! `cargo bench --bench mounts` takes 1,000 trials (64 at work) on a read-only mount, with forced polling and
//! through bindfs, and 1,000 jobs of 90 trials; `-- --short` takes less time and fewer jobs. What is asserted in
//! both are shares of a core and ratios; the short form leaves out what change events tell. Without root, or without /dev/fuse and bindfs, parts say that they are
//! left out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::generate::{Made, running_job};
use support::mounts::Mounted;
use support::proc;
use support::pty::Pty;

const LONG: Duration = Duration::from_secs(120);
const TRIALS: usize = 1_000;
const RUNNING: usize = 64;

fn main() {
    let short = std::env::args().any(|arg| arg == "--short");
    let tmp = tempfile::tempdir().unwrap();
    let mut broken: Vec<String> = Vec::new();
    let job = running_job(&tmp.path().join("jobs/live"), TRIALS - RUNNING, RUNNING);
    let state = tmp.path().join("state");
    // Whoever holds the log open is the job's owner, so the job counts as running.
    let _owner = fs::OpenOptions::new().append(true).open(job.dir.join("job.log")).unwrap();
    let seconds = if short { 4.0 } else { 30.0 };
    // Without optimisation everything costs many times as much.
    let limit = if cfg!(debug_assertions) { 0.2 } else { 0.02 };
    let mut watched = |what: &str, dir: &Path, more: &[&str]| {
        let share = share_of_a_core(dir, more, &state, seconds);
        let good = share <= 0.02;
        println!("{what:<52} {:>12.2} %   aim 2 %  {}", share * 100.0, if good { "ok" } else { "MISSED" });
        if share > limit {
            broken.push(format!("{what}: {:.1} % of a core, limit {:.0} %", share * 100.0, limit * 100.0));
        }
    };
    let jobs = job.dir.parent().unwrap();
    if !short {
        watched("1,000 trials, by file events", &job.dir, &[]);
        watched("1,000 trials, forced polling", &job.dir, &["--poll", "2"]);
    }
    if let Some(mount) = Mounted::read_only(jobs, &tmp.path().join("ro")) {
        if !short {
            watched("1,000 trials, read-only mount", &mount.at.join("live"), &[]);
        }
        watched("1,000 trials, read-only mount, forced polling", &mount.at.join("live"), &["--poll", "2"]);
    }
    if let Some(mount) = Mounted::bindfs(jobs, &tmp.path().join("fuse")) {
        watched("1,000 trials, bindfs", &mount.at.join("live"), &[]);
    }
    many_jobs(&mut broken, tmp.path(), &job, &state, if short { 100 } else { 1_000 });
    if !broken.is_empty() {
        println!("\nNOT HELD:\n{}", broken.join("\n"));
        std::process::exit(1);
    }
}

/// Processor time per time while a screen watches.
fn share_of_a_core(dir: &Path, more: &[&str], state: &Path, seconds: f64) -> f64 {
    let mut args = vec!["attach", dir.to_str().unwrap()];
    args.extend(more);
    let mut pty = Pty::pilothouse(&args, 120, 40, &[("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())]);
    pty.wait_until("the running trials", LONG, |screen| screen.contains(&format!("{RUNNING} running")));
    // Past the first pass, and what follows it.
    std::thread::sleep(Duration::from_secs(3));
    let (before, began) = (proc::cpu(pty.pid()).unwrap(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let spent = proc::cpu(pty.pid()).unwrap() - before;
    let share = spent.as_secs_f64() / began.elapsed().as_secs_f64();
    pty.send("q");
    pty.wait_exit(LONG);
    share
}

/// Jobs of 90 trials each, listed by their own files, against counting them all.
fn many_jobs(broken: &mut Vec<String>, tmp: &Path, made: &Made, state: &Path, n: usize) {
    let root = tmp.join("many");
    // The same files under many names: the trials are there to be read by whoever wants to.
    let trial = fs::read_dir(&made.dir).unwrap().flatten().map(|e| e.path());
    let trial = trial.into_iter().find(|p| p.join("result.json").exists()).unwrap();
    let began = Instant::now();
    for j in 0..n {
        let dir = root.join(format!("job-{j:04}"));
        for t in 0..90 {
            let at = dir.join(format!("task-{t:02}__aB3dE5f"));
            fs::create_dir_all(&at).unwrap();
            // One file of each job's own: a file system has an end of names for one.
            match t {
                0 => drop(fs::copy(trial.join("result.json"), at.join("result.json")).unwrap()),
                _ => fs::hard_link(dir.join("task-00__aB3dE5f/result.json"), at.join("result.json")).unwrap(),
            }
        }
        fs::write(dir.join("config.json"), format!(r#"{{"job_name":"job-{j:04}","agents":[{{"name":"a"}}]}}"#))
            .unwrap();
        fs::write(dir.join("job.log"), "").unwrap();
        fs::write(
            dir.join("result.json"),
            format!(
                r#"{{"id":"{j}","started_at":"2026-11-20T08:00:00","finished_at":"2026-11-20T09:00:00","n_total_trials":90,
"stats":{{"n_completed_trials":90,"n_running_trials":0,"evals":{{"a":{{"reward_stats":{{"reward":{{"1.0":["x"]}}}}}}}}}}}}"#
            ),
        )
        .unwrap();
    }
    println!("{n} jobs of 90 trials generated in {:.1} s", began.elapsed().as_secs_f64());
    let least = |args: &[&str]| {
        let times = (0..3).map(|_| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
            command.args(args).arg(&root).env("PILOTHOUSE_STATE_DIR", state);
            let began = Instant::now();
            command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
            began.elapsed()
        });
        times.min().unwrap()
    };
    let listed = least(&["jobs", "--json", "--no-remember"]);
    let counted = least(&["tally", "--json", "--as", "samples"]);
    let ratio = listed.as_secs_f64() / counted.as_secs_f64();
    println!("{:<52} {:>12.0} ms  aim 1000 ms", format!("{n} jobs listed"), listed.as_secs_f64() * 1e3);
    println!("{:<52} {:>12.2} x   aim 0.25 x", "of the time that counting their trials takes", ratio);
    if ratio > 0.5 {
        broken.push(format!("listing {n} jobs takes {ratio:.2} of the time of counting all their trials"));
    }
}
