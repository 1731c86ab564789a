//! How well and how fast trials are classified.
//!
//! `cargo bench --bench classes` prints the confusion table of the labelled trials (those of the data
//! folder, and of the folders in `PILOTHOUSE_LABELLED`, each with `labels.json` and `job/`), then the time
//! that 5,000 trials which are no clean pass take: all of them for `triage`, and until the first and the
//! last of them have a class on a screen. What is asserted are the labels; times are printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../triage/labels.rs"]
mod labels;
#[path = "../triage/stage.rs"]
mod stage;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use pilothouse::app::class_worker;
use pilothouse::follow::{Follower, Options};
use pilothouse::job::slots::Rule;
use pilothouse::job::{Fleet, JobEvent, Stamp, tally};
use pilothouse::report::triage;
use pilothouse::triage::{Classifier, survey};
use stage::{At, PYTEST_FAILED, Trial, job};

const N: usize = 5_000;

fn main() {
    let mut held = true;
    if let Some(measured) = labels::all() {
        println!("{}", labels::table(&measured));
        for class in ["infra", "config"] {
            let (right, labelled, said) = labels::counts(&measured, class);
            held &= right == labelled && right == said;
        }
        held &= !measured.iter().any(|m| m.said == "unclassified" && m.class != "unclassified");
    }
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = (0..N).map(trial).collect();
    let dir = job(temp.path(), "many", &trials);

    let began = Instant::now();
    let mut fleet = Fleet::default();
    let mut all: Vec<JobEvent> = Vec::new();
    Follower::new(vec![dir], Options::default()).scan_once(&mut |events| {
        all.extend(events.iter().cloned());
        events.into_iter().for_each(|event| fleet.apply(event));
        true
    });
    line("read once (without classes)", began.elapsed(), None);
    let began = Instant::now();
    let events = survey::missing(&Classifier::shipped(), &fleet, Stamp::now());
    line("classified, all of them", began.elapsed(), Some(Duration::from_secs(1)));
    events.into_iter().for_each(|event| fleet.apply(event));
    let began = Instant::now();
    let count = tally::count_side_by_side(&fleet, Rule::default(), Stamp::now());
    let items = triage::items(&fleet, &count);
    let listed = triage::listed(&items, &[]);
    let text = triage::json(&fleet, &items, &listed, &[]);
    line("counted, sorted, written as JSON", began.elapsed(), Some(Duration::from_secs(1)));
    held &= listed.len() == N && text.len() > N;

    let (tell, told) = std::sync::mpsc::sync_channel::<Vec<JobEvent>>(64);
    let worker = class_worker::spawn(Classifier::shipped(), move |events| tell.send(events).is_ok());
    let began = Instant::now();
    worker.show(&all);
    line("handed to the worker beside the screen", began.elapsed(), Some(Duration::from_millis(50)));
    let mut classes = 0;
    let mut first = None;
    while classes < N {
        classes += told.recv_timeout(Duration::from_secs(60)).unwrap().len();
        first.get_or_insert(began.elapsed());
    }
    line("first classes on a screen", first.unwrap_or_default(), Some(Duration::from_millis(200)));
    line("the last class on a screen", began.elapsed(), None);
    if !held {
        println!("NOT HELD");
        std::process::exit(1);
    }
}

fn line(what: &str, took: Duration, aim: Option<Duration>) {
    let ms = |d: Duration| format!("{:.0} ms", d.as_secs_f64() * 1e3);
    let aim = aim.map_or(String::new(), |a| format!("   aim {:<9} {}", ms(a), if took <= a { "ok" } else { "MISSED" }));
    println!("{:<46} {:>10}{aim}", format!("{N} trials: {what}"), ms(took));
}

/// Every kind of end in turn, with logs of some size.
fn trial(i: usize) -> Trial {
    let name = format!("work-{i:04}");
    let noise = "a line of a log that says nothing of interest at all\n".repeat(60);
    let mut trial = match i % 8 {
        0 => Trial::new(&name).stdout(PYTEST_FAILED),
        1 => Trial::new(&name).stdout(&format!("{noise}E: Failed to fetch http://x  502\nuvx: command not found\n")),
        2 => Trial::new(&name)
            .raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 1200.0 seconds")
            .reward(0.0)
            .stdout(PYTEST_FAILED),
        3 => Trial::new(&name).raised(At::Agent, "InternalServerError", "504 Gateway Time-out"),
        4 => Trial::new(&name)
            .raised(At::Verifier, "NonZeroAgentExitCodeError", "Command failed (exit 1): mini")
            .reward(0.0)
            .mini(&format!("{noise}step 9\n"))
            .stdout(PYTEST_FAILED),
        5 => {
            Trial::new(&name).raised(At::Environment, "RuntimeError", "Docker compose command failed: manifest unknown")
        }
        6 => Trial::new(&name).raised(At::Verifier, "RewardFileNotFoundError", "none").stdout(&noise),
        _ => Trial::new(&name).stdout(&format!("{noise}wrong\n")),
    };
    trial.start = i as i64 * 7;
    trial.log(&noise)
}
