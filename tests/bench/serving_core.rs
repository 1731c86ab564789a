//! What the pure core of serving costs: 16 servers of 8 ranks, polled and logged each second, an hour.
//!
//! `cargo bench --bench serving_core` simulates an hour; `-- --short` five minutes. Fails where it takes
//! more than 2 % of a core, or where memory grows once the history is full.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::time::Instant;

use pilothouse::job::Stamp;
use pilothouse::serving::{
    Counters, DecodeBatch, Demand, Figures, Limits, Line, LineKind, Load, Observation, Place, Ranks, Seen, Serving,
    Severity, Source, SourceId, Thresholds,
};

const SERVERS: u16 = 16;
const RANKS: u16 = 8;
/// Share of a core that the core may take.
const SHARE: f64 = if cfg!(debug_assertions) { 0.3 } else { 0.02 };

fn at(t: f64) -> Stamp {
    Stamp::from_microsecond(1_795_000_000_000_000 + (t * 1e6) as i64).unwrap()
}

fn figures(t: f64, server: u16, rank: u16) -> Figures {
    // Waves of load, each at its own pace: diagnoses come and go.
    let wave = ((t / (60.0 + f64::from(server)) + f64::from(rank)).sin() + 1.0) / 2.0;
    Figures {
        running: Some((wave * 16.0) as u32),
        queued: Some((wave * 20.0) as u32 / 4),
        tokens: Some((wave * 95_000.0) as u64),
        kv: Some(wave as f32),
        mamba: Some((wave * 0.9) as f32),
        mamba_slots: Some((wave * 60.0) as u32),
        generation: Some((wave * 500.0) as f32),
        accept_len: Some(2.5),
        graph: Some(true),
        ..Figures::default()
    }
}

/// A second of it: a poll of every server, a line of every rank, a tick.
fn second(serving: &mut Serving, t: f64, demand: &Demand) {
    for server in 0..SERVERS {
        let loads = (0..RANKS).map(|rank| Load {
            rank: Some(rank),
            figures: figures(t, server, rank),
            limits: Limits {
                max_running: Some(16),
                capacity: Some(100_000),
                context: Some(32_768),
                ..Limits::default()
            },
            age: Some(0.4),
            counters: Counters {
                generated: Some(t * 300.0),
                prefilled: Some(t * 40.0),
                cached: Some(t * 400.0),
                retracted: Some((t / 400.0).floor()),
                ..Counters::default()
            },
        });
        serving.observe(&Observation { source: SourceId(server), at: Some(at(t)), seen: Seen::Loads(loads.collect()) });
        for rank in 0..RANKS {
            let figures = figures(t, server, rank);
            let line = Line {
                time: None,
                ranks: Ranks { dp: Some(rank), ..Ranks::default() },
                severity: Severity::Info,
                kind: LineKind::Decode(Box::new(DecodeBatch { figures, other: Vec::new() })),
                text: Some("[2026-11-29 19:50:21 DP0 TP0] Decode batch, #running-req: 7, #token: 991".into()),
            };
            let seen = Seen::Line(line);
            serving.observe(&Observation { source: SourceId(SERVERS + server), at: Some(at(t)), seen });
        }
    }
    serving.tick(at(t), demand);
}

fn main() {
    let short = std::env::args().any(|arg| arg == "--short");
    let seconds = if short { 300 } else { 3600 };
    let server = |n: u16| format!("s{n}").into();
    let url = |n: u16| Place::Http(format!("http://127.0.0.1:{}", 30_000 + n).into());
    let log = |n: u16| Place::File(std::path::Path::new(&format!("s{n}.log")).into());
    let urls = (0..SERVERS).map(|n| Source { id: SourceId(n), server: server(n), place: url(n) });
    let logs = (0..SERVERS).map(|n| Source { id: SourceId(SERVERS + n), server: server(n), place: log(n) });
    let mut serving = Serving::new(urls.chain(logs).collect(), Thresholds::shipped());
    let demand = Demand { waiting: 90, oldest_wait: Some(40.0), median_call: Some(20.0), ..Demand::default() };
    // History for longer than is kept, so that memory is what it will be.
    let full = 9 * 3600;
    for t in (0..full).step_by(30) {
        second(&mut serving, f64::from(t), &demand);
    }
    for t in full..full + 120 {
        second(&mut serving, f64::from(t), &demand);
    }
    let before = serving.heap_estimate();
    let begun = Instant::now();
    for t in full + 120..full + 120 + seconds {
        second(&mut serving, f64::from(t), &demand);
    }
    let taken = begun.elapsed();
    let (after, rows) = (serving.heap_estimate(), serving.replicas().count());
    let share = taken.as_secs_f64() / f64::from(seconds);
    println!(
        "{rows} replicas, {seconds} s simulated: {:.2} s of work, {:.3} % of a core; memory {} kB before, {} kB after; \
         {} diagnoses kept",
        taken.as_secs_f64(),
        share * 100.0,
        before / 1024,
        after / 1024,
        serving.diagnoses().count(),
    );
    let grown = after.saturating_sub(before) as f64 / before as f64;
    let fails = [
        (rows != usize::from(SERVERS * RANKS), "rows are missing"),
        (share > SHARE, "more of a core than its share"),
        (grown > 0.1, "memory grows"),
    ];
    for (_, why) in fails.iter().filter(|(fails, _)| *fails) {
        println!("FAILED: {why}");
    }
    if fails.iter().any(|(fails, _)| *fails) {
        std::process::exit(1);
    }
}
