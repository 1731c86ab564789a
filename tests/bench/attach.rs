//! How fast and how cheap attaching is, measured on the real binary in a pty.
//!
//! `cargo bench --bench attach` measures with 10,000 trials and prints every figure beside its aim;
//! `-- --short` takes 2,000 trials and little time. What is asserted in both are ratios and counts,
//! which hold on a busy machine too; times are printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use regex::Regex;
use support::big_cast;
use support::generate::{Made, finished_job, running_job, trajectory, trial_name};
use support::proc;
use support::pty::Pty;

const LONG: Duration = Duration::from_secs(120);

/// Figures with their aims, and what must hold.
#[derive(Default)]
struct Report {
    broken: Vec<String>,
}

impl Report {
    fn line(&self, what: &str, value: &str, aim: &str, good: bool) {
        println!("{what:<52} {value:>14}   aim {aim:<12} {}", if good { "ok" } else { "MISSED" });
    }

    /// A figure that depends on the machine: printed only.
    fn time(&self, what: &str, took: Duration, aim: Duration) {
        let ms = |d: Duration| format!("{:.0} ms", d.as_secs_f64() * 1e3);
        self.line(what, &ms(took), &ms(aim), took <= aim);
    }

    /// A count or a ratio: `limit` must hold anywhere, `aim` is what it should be.
    fn must(&mut self, what: &str, value: f64, unit: &str, aim: f64, limit: f64) {
        self.line(what, &format!("{value:.2} {unit}"), &format!("{aim} {unit}"), value <= aim);
        if value > limit {
            self.broken.push(format!("{what}: {value:.2} {unit}, limit {limit}"));
        }
    }
}

fn main() {
    let short = std::env::args().any(|arg| arg == "--short");
    let n = if short { 2_000 } else { 10_000 };
    let mut report = Report::default();
    let tmp = tempfile::tempdir().unwrap();
    let state = tmp.path().join("state");
    let state = state.to_str().unwrap();
    println!("machine: {}", machine());

    let began = Instant::now();
    let big = finished_job(&tmp.path().join("jobs-a/big"), n);
    println!("{n} finished trials generated in {:.1} s", began.elapsed().as_secs_f64());
    // Without optimisation the short form still finds what costs many times as much.
    let most = if cfg!(debug_assertions) { 60.0 } else { 5.0 };
    tally_against_cat(&mut report, &big, state, if short { (3, most) } else { (7, 3.0) });
    opening(&mut report, &big, state, short);
    cast_besides(&mut report, &big, state, short);

    let live = running_job(&tmp.path().join("jobs-b/live"), 40, 64);
    wakeups_while_running(&mut report, &live, state, short);

    let few = running_job(&tmp.path().join("jobs-c/few"), 10, 6);
    let samples = if short { 8 } else { 40 };
    let p95 = append_to_screen(&few, &[], state, samples);
    report.time("append to screen, p95, by file events", p95, Duration::from_millis(100));
    let p95 = append_to_screen(&few, &["--poll", "2"], state, samples / 2);
    report.time("append to screen, p95, --poll 2", p95, Duration::from_millis(2500));

    if !report.broken.is_empty() {
        println!("\nNOT HELD:\n{}", report.broken.join("\n"));
        std::process::exit(1);
    }
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|l| l.strip_prefix("model name")).map_or("", |m| m.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{cores} cores, {model}, {profile}")
}

/// The least time of `runs` runs of a command, output thrown away; its exit code is not looked at
/// (a tally with failures says so by its code).
fn least(runs: usize, mut command: impl FnMut() -> Command) -> Duration {
    (0..runs)
        .map(|_| {
            let mut command = command();
            command.stdout(Stdio::null());
            let began = Instant::now();
            command.status().unwrap();
            began.elapsed()
        })
        .min()
        .unwrap()
}

fn tally_against_cat(report: &mut Report, big: &Made, state: &str, (runs, limit): (usize, f64)) {
    // The list is made beforehand: reading the files is all that `cat` has to do.
    let list = Path::new(state).with_extension("list");
    let names: Vec<u8> = fs::read_dir(&big.dir)
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("result.json"))
        .filter(|path| path.is_file())
        .flat_map(|path| [path.into_os_string().into_encoded_bytes(), vec![0]].concat())
        .collect();
    fs::write(&list, names).unwrap();
    let cat = || {
        let mut command = Command::new("xargs");
        command.args(["-0", "cat"]).stdin(fs::File::open(&list).unwrap());
        command
    };
    let tally = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["tally", "--json"]).arg(&big.dir).env("PILOTHOUSE_STATE_DIR", state).stdin(Stdio::null());
        command
    };
    // Both read from the page cache.
    least(1, cat);
    // In turns, so that what else the machine does hits both; more of them where it does much.
    let (mut by_cat, mut by_tally) = (Duration::MAX, Duration::MAX);
    for _ in 0..4 {
        for _ in 0..runs {
            by_cat = by_cat.min(least(1, cat));
            by_tally = by_tally.min(least(1, tally));
        }
        if by_tally < by_cat.mul_f64(2.9) {
            break;
        }
    }
    let (cat, tally) = (by_cat, by_tally);
    println!("{:<52} {:>11.0} ms", "cat of all result.json, least", cat.as_secs_f64() * 1e3);
    println!("{:<52} {:>11.0} ms", "tally --json, least", tally.as_secs_f64() * 1e3);
    // `cat` reads the results alone; the tally also classifies, from the other files of each trial that is
    // no clean pass. What that costs at the least weighs more on a small job.
    report.must("tally --json / cat", tally.as_secs_f64() / cat.as_secs_f64(), "x", 3.0, limit);
}

fn attach(dir: &Path, extra: &[&str], state: &str) -> Pty {
    let mut args = vec!["attach", dir.to_str().unwrap()];
    args.extend(extra);
    Pty::pilothouse(&args, 120, 40, &[("PILOTHOUSE_STATE_DIR", state)])
}

/// True when the screen says `n what`, with whatever stands between the digits of a large number.
fn says(screen: &str, n: usize, what: &str) -> bool {
    let digits: String = n.to_string().chars().map(|c| format!(r"{c}[\s,.\u{{202f}}]?")).collect();
    Regex::new(&format!(r"(^|\D){digits}\s*{what}")).unwrap().is_match(screen)
}

fn opening(report: &mut Report, big: &Made, state: &str, short: bool) {
    let mut firsts = Vec::new();
    let mut wholes = Vec::new();
    let mut peak = 0;
    let runs = if short { 2 } else { 5 };
    for run in 0..runs {
        let mut pty = attach(&big.dir, &[], state);
        // Useful: the job is named and there are trials to look at.
        pty.wait_until("the first useful frame", LONG, |screen| screen.contains("big") && screen.contains("task-"));
        firsts.push(pty.started.elapsed());
        pty.wait_until("all trials counted", LONG, |screen| {
            says(screen, big.passed, "passed") && screen.contains("finished")
        });
        wholes.push(pty.started.elapsed());
        if run + 1 == runs {
            pty.settle(Duration::from_millis(1500), LONG);
            // The log's writer may still be at its last line.
            sleep(Duration::from_secs(1));
            let seconds = if short { 5.0 } else { 20.0 };
            let switches = switches_over(pty.pid(), seconds);
            // One stray wake-up of a short run counts for four.
            let limit = if short { 4.0 } else { 2.0 };
            report.must("idle on a finished job, wake-ups in 20 s", switches * 20.0 / seconds, "", 2.0, limit);
            peak = proc::peak_rss_kib(pty.pid()).unwrap_or(0);
        }
        pty.send("q");
        assert!(pty.wait_exit(LONG).success());
        pty.assert_restored();
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    report.time("first useful frame, median", median(firsts), Duration::from_millis(150));
    report.time("all trials on the screen, median", median(wholes), Duration::from_secs(1));
    let mib = peak as f64 / 1024.0;
    // The program without optimisation is many times as large.
    report.must("peak memory of the screen", mib, "MiB", 60.0, if cfg!(debug_assertions) { 90.0 } else { 60.0 });
}

/// What the screen keeps when a large cast is played to its end besides all the trials.
fn cast_besides(report: &mut Report, big: &Made, state: &str, short: bool) {
    let trial = big.dir.join(trial_name(0));
    let cast = trial.join("agent/recording.cast");
    fs::create_dir_all(trial.join("agent")).unwrap();
    let bytes = big_cast::generate(&cast, if short { 200_000 } else { 1_000_000 });
    let mut pty = attach(&trial, &[], state);
    pty.wait_until("the trial", LONG, |screen| screen.contains(&trial_name(0)));
    pty.settle(Duration::from_millis(500), LONG);
    pty.send("c");
    pty.wait_until("the cast", LONG, |screen| screen.contains("recording.cast"));
    // The last output is on the screen at once; the exact screen and the keyframes follow.
    pty.send("\x1b[F");
    pty.wait_until("the end of the cast", LONG, |screen| screen.contains(big_cast::LAST));
    pty.settle(Duration::from_secs(2), LONG);
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let peak = proc::peak_rss_kib(pty.pid()).unwrap_or(0) as f64 * 1024.0;
    let what = format!("peak memory with a cast of {:.0} MiB besides", mib(bytes as f64));
    report.must(&what, mib(peak), "MiB", 120.0, 120.0);
    pty.send("qqq");
    assert!(pty.wait_exit(LONG).success());
    fs::remove_file(&cast).unwrap();
}

fn switches_over(pid: u32, seconds: f64) -> f64 {
    let before = proc::voluntary_switches(pid);
    sleep(Duration::from_secs_f64(seconds));
    (proc::voluntary_switches(pid) - before) as f64
}

/// 64 trials run and nothing is written: what the clock on the screen costs.
fn wakeups_while_running(report: &mut Report, live: &Made, state: &str, short: bool) {
    // Whoever holds the log open is the job's owner, so the job counts as running.
    let _owner = fs::OpenOptions::new().append(true).open(live.dir.join("job.log")).unwrap();
    let mut pty = attach(&live.dir, &[], state);
    pty.wait_until("64 running trials", LONG, |screen| says(screen, live.running.len(), "running"));
    sleep(Duration::from_secs(3));
    let seconds = if short { 5.0 } else { 20.0 };
    let rate = switches_over(pty.pid(), seconds) / seconds;
    // The runtime's timer wheel may need a second look at a timer of a second.
    report.must("64 running trials, wake-ups a second", rate, "/s", 2.0, 3.0);
    pty.send("q");
    pty.wait_exit(LONG);
}

/// Rewrites a trajectory with one more episode and waits for the number in the trial's row; p95.
fn append_to_screen(few: &Made, extra: &[&str], state: &str, samples: usize) -> Duration {
    let _owner = fs::OpenOptions::new().append(true).open(few.dir.join("job.log")).unwrap();
    for name in &few.running {
        write_episodes(few, name, 2);
    }
    let mut pty = attach(&few.dir, extra, state);
    pty.wait_until("the running trials", LONG, |screen| {
        says(screen, few.running.len(), "running") && few.running.iter().all(|name| episode(screen, name) == Some(3))
    });
    let mut times = Vec::new();
    for k in 0..samples {
        let name = &few.running[k % few.running.len()];
        let episodes = 3 + k / few.running.len();
        // Not in step with any clock of the program, and past its pause after a frame.
        sleep(Duration::from_millis(700 + (k as u64 * 137) % 400));
        let began = Instant::now();
        write_episodes(few, name, episodes);
        pty.wait_until("the new episode", LONG, |screen| episode(screen, name) == Some(episodes + 1));
        times.push(began.elapsed());
    }
    pty.send("q");
    pty.wait_exit(LONG);
    times.sort();
    times[(times.len() * 95).div_ceil(100).min(times.len()) - 1]
}

fn write_episodes(few: &Made, name: &str, episodes: usize) {
    fs::write(few.dir.join(name).join("agent/trajectory.json"), trajectory(1, episodes, jiff::Timestamp::now()))
        .unwrap();
}

/// The episode in the row of a trial: the first number after the word `agent`. Rows show the task
/// and the random part of the name.
fn episode(screen: &str, name: &str) -> Option<usize> {
    let (_, suffix) = name.split_once("__")?;
    let row = screen.lines().find(|line| line.contains(suffix))?;
    row.split_once(" agent ")?.1.split_whitespace().next()?.parse().ok()
}
