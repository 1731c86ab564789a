//! The trial view of a large trajectory. Alone in its process, since memory is measured.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "support/screen.rs"]
mod screen;
#[path = "support/stage.rs"]
mod stage;

use std::fs;
use std::time::{Duration, Instant};

use pilothouse::app::detail::{Reply, Request};
use pilothouse::app::detail_worker;
use stage::{Stage, live_job, trajectory};

fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}

#[test]
fn a_large_trajectory_opens_at_once_in_little_memory() {
    let (_keep, job, trial) = live_job();
    let path = trial.join("agent/trajectory.json");
    // `BIG=10000` makes each step ten times as large: 300 MB.
    let wide = std::env::var("BIG").ok().and_then(|b| b.parse().ok()).unwrap_or(1000) * 10;
    fs::write(&path, trajectory(3000, &"x".repeat(wide))).unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 30_000_000);
    let mut stage = Stage::new(&[&job], (120, 40));
    let (memory, begin) = (resident(), Instant::now());
    let mut first = None;
    let mut loader = detail_worker::Loader::default();
    loader.handle(Request::Open { serial: 0, dir: trial.clone() }, &mut |reply| {
        if let Reply::Steps { parts, .. } = &reply {
            first = Some((begin.elapsed(), parts[0].steps, parts[0].indexed));
        }
    });
    let (time, steps, share) = first.expect("the first slice is answered with");
    println!("first screen after {time:?}: {steps} steps, {:.0} % indexed", share * 100.0);
    assert!(time < Duration::from_secs(2) && steps > 50 && share < 0.9, "{time:?} {steps} {share}");
    drop(loader);
    stage.open("grow");
    println!("all indexed after {:?}, {} kB more", begin.elapsed(), resident().saturating_sub(memory) / 1000);
    assert!(resident().saturating_sub(memory) < 25_000_000, "{}", resident().saturating_sub(memory));
    assert!(stage.text().contains("3000 of 3000"), "{}", stage.text());
    stage.keys("g");
    for _ in 0..40 {
        stage.keys(" ");
        let view = stage.model.trial.as_ref().unwrap();
        assert!(view.heads.len() <= 240 && view.head(view.cursor).is_some());
    }
    stage.keys("/plan number 2222<Enter>");
    assert_eq!(stage.model.trial.as_ref().unwrap().cursor, 2221);
    assert!(resident().saturating_sub(memory) < 40_000_000);
}
