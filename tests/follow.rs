//! Live knowledge of job dirs: discovery, torn files, vanishing directories, hostile ones, polling.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::path::PathBuf;
use std::time::Instant;

use pilothouse::follow::{Follower, Options};
use pilothouse::job::Fleet;

fn scan(roots: Vec<PathBuf>) -> Fleet {
    let mut fleet = Fleet::default();
    let mut follower = Follower::new(roots, Options::default());
    follower.scan_once(&mut |events| {
        events.into_iter().for_each(|e| fleet.apply(e));
        true
    });
    fleet
}

#[test]
fn every_recorded_job_is_read() {
    let Some(shared) = support::shared() else { return };
    let begin = Instant::now();
    let fleet = scan(vec![shared.join("data/jobs")]);
    println!("{:?}", begin.elapsed());
    for job in fleet.jobs() {
        let done = job.trials.values().filter(|t| t.result.is_some()).count();
        println!("{} {done}/{} {:?}", job.facts.dir.display(), job.trials.len(), job.facts.problems);
        for t in job.trials.values() {
            if !t.problems.is_empty() || t.result.is_none() {
                println!("   {:?}", t);
            }
        }
    }
    println!("{:?}", fleet.problems);
}
