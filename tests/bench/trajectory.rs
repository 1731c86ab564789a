//! What it costs to write a trajectory: 1,000 episodes of 20 kB each, saved after every one.
//!
//! `cargo bench --bench trajectory` prints CPU ms and wall ms per episode, of the first and of the last
//! tenth, and the memory held; `-- --short` writes 300 episodes. Both fail when the last tenth costs more
//! than three times the CPU of the first (what grows with the whole would), and where an episode takes
//! more than 5 ms of CPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse::harbor::write::atif::{
    Agent, FinalMetrics, Head, Metrics, Outcome, Step, Tail, ToolCall, Turn, Writer,
};
use pilothouse::harbor::write::{Folder, Scrub};

const MOST: f64 = 5.0;

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Resident memory, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// An episode of about 20 kB: half of it what the terminal showed.
fn step(n: usize) -> Step {
    let line = "drwxr-xr-x 2 root root 4096 \"a name\" with\tblanks\n";
    let arguments = serde_json::json!({"keystrokes": "ls -la /app\n", "duration": 1.0});
    let tool_calls = vec![ToolCall {
        id: format!("call_{n}_1"),
        function: "bash_command".to_string(),
        arguments: arguments.as_object().unwrap().clone(),
        ..ToolCall::default()
    }];
    let metrics = Metrics { prompt_tokens: Some(30_000), completion_tokens: Some(900), ..Metrics::default() };
    let turn = Turn {
        reasoning_content: Some("I think about it for a while. ".repeat(280)),
        tool_calls,
        metrics: Some(metrics),
        ..Turn::default()
    };
    let mut step = Step::agent("Analysis: nothing.\nPlan: look.".repeat(20), turn);
    step.observation = vec![Outcome { of_call: Some(0), content: Some(line.repeat(200).into()), ..Outcome::default() }];
    step
}

fn main() {
    let short = std::env::args().any(|arg| arg == "--short");
    let episodes = if short { 300 } else { 1000 };
    let temp = tempfile::tempdir().expect("a directory");
    let folder = Arc::new(Folder::open(temp.path()).expect("a folder"));
    let agent = Agent { name: "a".to_string(), version: "1".to_string(), ..Agent::default() };
    let head = Head { session_id: Some("s".to_string()), agent, ..Head::default() };
    let scrub = Scrub::new(["sk-live-0123456789abcdef".to_string(), "another-secret-value".to_string()]);
    let mut writer = Writer::begin(folder, "trajectory.json", &head, &scrub).expect("a trajectory");
    let (mut costs, mut waits) = (Vec::new(), Vec::new());
    let mut held = (0, 0);
    for n in 0..episodes {
        let step = step(n);
        let (before, began) = (cpu(), Instant::now());
        writer.push(&step).expect("a step");
        let final_metrics = Some(FinalMetrics { total_prompt_tokens: Some(n as u64), ..FinalMetrics::default() });
        writer.save(&Tail { final_metrics, ..Tail::default() }).expect("saved");
        costs.push((cpu() - before).as_secs_f64() * 1e3);
        waits.push(began.elapsed().as_secs_f64() * 1e3);
        if n == episodes / 10 {
            held.0 = memory();
        }
        held.1 = memory();
    }
    let bytes = writer.bytes();
    writer.finish(&Tail::default()).expect("finished");
    let tenth = episodes / 10;
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    let (first, last, all) = (mean(&costs[..tenth]), mean(&costs[episodes - tenth..]), mean(&costs));
    println!(
        "{episodes} episodes, {:.1} MB: {all:.2} ms CPU per episode (first tenth {first:.2}, last {last:.2}), \
         {:.2} ms wall; memory {} KiB, then {} KiB",
        bytes as f64 / 1e6,
        mean(&waits),
        held.0,
        held.1
    );
    assert!(bytes as usize / episodes > 19_000, "{bytes}");
    assert!(all < MOST, "{all} ms of CPU per episode");
    assert!(last < 3.0 * first + 0.5, "the last tenth costs {last} ms, the first {first} ms");
}
