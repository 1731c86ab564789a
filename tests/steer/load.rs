//! Many trials at a time, each with a terminal in a container: nobody starves, keys act at once, memory and
//! open files are counted.
//!
//! The short form runs 8. The figures of the README are those of a release:
//! `PILOTHOUSE_LOAD=25,50 PILOTHOUSE_BIN=$PWD/target/release/pilothouse cargo test --test steer load -- --nocapture`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bench::{Bench, until};
use crate::support::pty::Pty;
use crate::support::{self, proc};

/// Waits, prints more than a terminal keeps, in whole rows, then sleeps.
const KEYS: &str = "touch /logs/agent/up; until [ -e /logs/agent/go ]; do sleep 1; done; \
                    for n in $(seq 2600); do printf '%0159d\\n' $n; done; touch /logs/agent/full; sleep 3000\n";
/// Keys pressed for the figure.
const PRESSED: usize = 20;

/// Figures of one run.
struct Figures {
    trials: usize,
    up_sec: f64,
    /// Key to frame: median, longest.
    idle_ms: (f64, f64),
    busy_ms: (f64, f64),
    idle_mib: f64,
    full_mib: f64,
    full_sec: f64,
    files: usize,
    limit: (u64, u64),
}

/// Opens and closes the help; milliseconds from the key to the frame, median and longest.
fn key_to_frame(pty: &mut Pty) -> (f64, f64) {
    let mut all = Vec::new();
    for n in 0..PRESSED {
        let began = Instant::now();
        if n % 2 == 0 {
            pty.send("?");
            pty.wait_for("everywhere", Duration::from_secs(10));
        } else {
            pty.send("q");
            pty.wait_gone("everywhere", Duration::from_secs(10));
        }
        all.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[all.len() - 1])
}

/// The program that is measured in place of the one that was built with this test: an optimised one.
fn other() -> Option<String> {
    std::env::var("PILOTHOUSE_BIN").ok().filter(|path| !path.is_empty())
}

fn mib(pid: u32) -> f64 {
    proc::rss_kib(pid).unwrap() as f64 / 1024.0
}

/// Soft and hard limit of open files.
fn limit(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().map(|n| n.parse().unwrap_or(u64::MAX));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn measured(trials: usize) -> Figures {
    let bench = Bench::new(&[]);
    let keys = serde_json::json!([{"keys": KEYS, "wait": 3000}]).to_string();
    for n in 0..trials {
        let name = format!("t{n:02}");
        bench.task(&name, "true", "true", "[environment]\ndocker_image = \"tb-base:1\"");
        fs::write(bench.path("tasks").join(&name).join("solution/keys.json"), &keys).unwrap();
    }
    let swap = |arg: String| match arg.as_str() {
        "oracle" => "scripted".to_string(),
        "local" => "docker".to_string(),
        _ => arg,
    };
    let args: Vec<String> = bench.args(&trials.to_string(), &["-y"]).into_iter().map(swap).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let began = Instant::now();
    // A low soft limit, as login shells have it.
    let program = other().unwrap_or_else(|| env!("CARGO_BIN_EXE_pilothouse").to_string());
    let words = format!("ulimit -Sn 1024; exec {program} {}", args.join(" "));
    let state = bench.state.to_str().unwrap();
    let mut pty = Pty::spawn("/bin/bash", &["-c", &words], 160, 50, &[("PILOTHOUSE_STATE_DIR", state)]);
    let marked = |name: &str| -> usize {
        let dirs = fs::read_dir(bench.job()).into_iter().flatten().flatten();
        dirs.filter(|dir| dir.path().join("agent").join(name).exists()).count()
    };
    let most = Duration::from_secs(120 + 4 * trials as u64);
    let wait = |name: &str| {
        let began = Instant::now();
        while marked(name) < trials {
            assert!(began.elapsed() < most, "{} of {trials} are {name}", marked(name));
            std::thread::sleep(Duration::from_millis(50));
        }
        began.elapsed().as_secs_f64()
    };
    wait("up");
    let up_sec = began.elapsed().as_secs_f64();
    pty.wait_for(&format!("{trials}/{trials} slots"), Duration::from_secs(20));
    let pid = u32::try_from(bench.status()["pid"].as_u64().unwrap()).unwrap();
    // What the beginning took is given back in a moment.
    std::thread::sleep(Duration::from_secs(3));
    let (idle_ms, idle_mib) = (key_to_frame(&mut pty), mib(pid));
    for dir in fs::read_dir(bench.job()).unwrap().flatten().map(|e| e.path()).filter(|p| p.join("agent").is_dir()) {
        fs::write(dir.join("agent/go"), "").unwrap();
    }
    let filling = Instant::now();
    let busy_ms = key_to_frame(&mut pty);
    wait("full");
    // All that was printed has come through the emulators, too.
    let printed = |dir: &fs::DirEntry| fs::metadata(dir.path().join("agent/recording.cast")).map_or(0, |m| m.len());
    let behind = || {
        let dirs = fs::read_dir(bench.job()).unwrap().flatten().filter(|d| d.path().join("agent").is_dir());
        dirs.filter(|dir| printed(dir) < 2600 * 160).count()
    };
    while behind() > 0 {
        assert!(began.elapsed() < 2 * most, "{} are behind", behind());
        std::thread::sleep(Duration::from_millis(50));
    }
    let full_sec = filling.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs(1));
    let (full_mib, files) = (mib(pid), fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count());
    let limit = limit(pid);
    bench.ask(&["cancel", "-y"]);
    let over = Instant::now();
    until("the end of all", || {
        assert!(over.elapsed() < most);
        bench.results().len() == trials
    });
    assert!(bench.results().iter().all(|(_, end)| end == "CancelledError"));
    pty.wait_for("job over", Duration::from_secs(60));
    pty.send("q");
    pty.wait_exit(Duration::from_secs(30));
    Figures { trials, up_sec, idle_ms, busy_ms, idle_mib, full_mib, full_sec, files, limit }
}

fn containers() -> bool {
    let there = Command::new("docker").args(["image", "inspect", "tb-base:1"]).output();
    there.is_ok_and(|out| out.status.success())
}

#[test]
fn load() {
    if !containers() {
        return support::skipped("in containers: no engine, or no image tb-base:1");
    }
    let asked = std::env::var("PILOTHOUSE_LOAD").unwrap_or_else(|_| "8".to_string());
    for trials in asked.split(',').map(|n| n.trim().parse::<usize>().unwrap()) {
        let figures = measured(trials);
        let Figures { trials, up_sec, idle_ms, busy_ms, idle_mib, full_mib, full_sec, files, limit } = figures;
        println!(
            "{trials} trials: all at work after {up_sec:.1} s; key to frame, median and longest: {:.1} and {:.1} ms \
             asleep, {:.1} and {:.1} ms while all print; {idle_mib:.1} MiB asleep, {full_mib:.1} MiB with full \
             scrollbacks, which took {full_sec:.1} s; {files} files open, limits {limit:?}",
            idle_ms.0, idle_ms.1, busy_ms.0, busy_ms.1
        );
        // A build for tests is slower, and keeps more.
        let (frame, idle, full) =
            if cfg!(debug_assertions) && other().is_none() { (1000.0, 150.0, 450.0) } else { (50.0, 60.0, 300.0) };
        // While all of them print at once it may be later, not by seconds.
        assert!(idle_ms.0 < frame && busy_ms.0 < 10.0 * frame, "{idle_ms:?} {busy_ms:?}");
        assert!(idle_mib < idle && full_mib < full, "{idle_mib} {full_mib}");
        assert!(files < 96 + 16 * trials, "{files}");
        assert!(limit.0 == limit.1.min(65_536), "{limit:?}: the soft limit is raised");
    }
}

/// Files that trials leave open would be many.
#[test]
fn a_trial_that_has_ended_has_no_file_open() {
    let bench = Bench::new(&["a", "b", "c", "d", "e", "f"]);
    let mut run = bench.run("2", &[]);
    let count = || -> usize {
        let dir = PathBuf::from(format!("/proc/{}/fd", run.0.id()));
        fs::read_dir(dir).unwrap().count()
    };
    bench.wait(2, 4, 0);
    let before = count();
    for (n, task) in ["a", "b", "c", "d"].iter().enumerate() {
        bench.go(task);
        let ended = n as u64 + 1;
        bench.wait(2, 4 - ended, ended);
    }
    std::thread::sleep(Duration::from_millis(500));
    let after = count();
    assert!(after <= before + 2, "{before} files open, {after} after four trials");
    bench.go("e");
    bench.go("f");
    assert_eq!(run.end(), 0);
}
