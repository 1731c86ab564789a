//! Figures for large casts: `cargo bench --bench cast`. A cast of a million events and some 59 MiB is
//! generated in a temporary folder. Prints one figure a line; asserts nothing.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

use std::fs::File;
use std::time::{Duration, Instant};

use pilothouse::cast::{Player, Target, Work};
use support::big_cast::{self, Dice};

const EVENTS: u64 = 1_000_000;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("million.cast");
    let bytes = big_cast::generate(&path, EVENTS);
    println!("cast.events {EVENTS}");
    println!("cast.size_mib {:.1} (aim 59)", bytes as f64 / f64::from(1 << 20));

    let mut opens: Vec<f64> = (0..5).map(|_| open(&path).1).collect();
    println!("cast.open_ms {:.0} (aim 250)", percentile(&mut opens, 50));

    let (mut player, _) = open(&path);
    let start = Instant::now();
    player.seek(Target::End);
    while player.is_seeking() {
        player.work(1 << 20);
    }
    println!("cast.first_jump_to_end_ms {:.0}", millis(start));
    let start = Instant::now();
    while player.work(1 << 20) == Work::More {}
    println!("cast.rest_of_keyframes_ms {:.0}", millis(start));

    let mut dice = Dice(11);
    let mut seeks: Vec<f64> = (0..500)
        .map(|_| {
            let to = player.duration().mul_f64(dice.below(1_000_000) as f64 / 1e6);
            let start = Instant::now();
            player.seek(Target::Time(to));
            while player.is_seeking() {
                player.work(1 << 20);
            }
            millis(start)
        })
        .collect();
    println!("cast.seek_p50_ms {:.1}", percentile(&mut seeks, 50));
    println!("cast.seek_p95_ms {:.1} (aim 16)", percentile(&mut seeks, 95));
    println!("cast.seek_max_ms {:.1}", percentile(&mut seeks, 100));

    player.seek(Target::Time(Duration::ZERO));
    let start = Instant::now();
    let hit = player.search("no such text", true);
    println!("cast.search_all_ms {:.0} (hit: {})", millis(start), hit.is_some());

    println!("cast.keyframes {}", player.keyframes());
    println!("cast.memory_mib {:.1} (index, cuts and keyframes)", player.memory() as f64 / f64::from(1 << 20));
}

/// Opens and indexes; gives the milliseconds.
fn open(path: &std::path::Path) -> (Player, f64) {
    let start = Instant::now();
    let mut player = Player::open(File::open(path).unwrap(), "million.cast").unwrap();
    while !player.progress().indexed {
        player.work(1 << 20);
    }
    (player, millis(start))
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn percentile(values: &mut [f64], p: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * p / 100).min(values.len() - 1)]
}
