//! `pilothouse report`: one file to publish.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::Value;

use super::tally::Counted;
use super::{USAGE, load};
use crate::harbor::{Dir, particulars};
use crate::job::tally::{self, Place, Tally};
use crate::job::{Fleet, Harness, Job};
use crate::report::publish::{self, Particulars};
use crate::scheduler::trial::NOTE;

/// Print one file to publish: the run in figures, scores with their rules, the audit table of the
/// verdicts with evidence, how it was run, every task.
///
/// Exit code: 0 nothing needs a person, 1 something does, 2 wrong arguments or jobs that do not go
/// together without --as, 3 infra errors are among the trials that count.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// What is counted
    #[command(flatten)]
    pub counted: Counted,
    /// Print markdown (the default)
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
}

/// Largest note of a trial, and largest result, that is read.
const NOTE_CAP: u64 = 1 << 20;
const RESULT_CAP: u64 = 8 << 20;
/// Results of a job that are asked for their agent's version, notes that are asked for what differs, and
/// different answers that are kept.
const ASKED: usize = 20;
const NOTES: usize = 20_000;
const KEPT: usize = 200;

/// Runs the command; the exit code.
pub fn run(args: &ReportArgs) -> u8 {
    let Some((fleet, options)) = args.counted.read("report") else { return USAGE };
    let tally = match tally::count(&fleet, &options, load::now()) {
        Ok(tally) => tally,
        Err(refusal) => {
            load::complain("report", &[refusal.to_string()]);
            return USAGE;
        }
    };
    let details: Vec<Particulars> =
        fleet.jobs().iter().enumerate().map(|(at, job)| details(&fleet, &tally, at, job)).collect();
    let report = publish::report(&fleet, &tally, &details);
    load::print(&if args.json { publish::json(&report) } else { publish::markdown(&report) });
    super::status::code(&fleet, &tally)
}

/// What the chosen trials' own files tell of a job beyond its summary.
fn details(fleet: &Fleet, tally: &Tally, at: usize, job: &Job) -> Particulars {
    let mut out = Particulars::default();
    let Ok(dir) = Dir::open(&job.facts.dir) else { return out };
    let chosen: Vec<&str> = tally
        .rows
        .iter()
        .filter(|row| row.job == at && row.place == Place::Chosen)
        .filter_map(|row| row.trial.as_deref())
        .filter(|name| fleet.jobs().get(at).is_some_and(|j| j.trials.get(*name).is_some_and(|t| t.result.is_some())))
        .collect();
    let mut agents = BTreeSet::new();
    for name in chosen.iter().take(ASKED) {
        let bytes = dir.read_condensed(&format!("{name}/result.json"), RESULT_CAP);
        let read = bytes.ok().and_then(|bytes| particulars(&bytes.data).ok());
        let agent = read.and_then(|p| p.identity.into_iter().find(|(what, _)| *what == "agent"));
        agents.extend(agent.map(|(_, text)| text));
    }
    out.agents = agents.into_iter().collect();
    if job.facts.harness == Harness::Pilothouse {
        for name in chosen.iter().take(NOTES) {
            note(&dir, name, &mut out.deviations);
        }
    }
    out
}

fn note(dir: &Dir, trial: &str, deviations: &mut BTreeMap<String, u64>) {
    let Ok(bytes) = dir.read_all(&format!("{trial}/{NOTE}"), NOTE_CAP) else { return };
    let Ok(note) = serde_json::from_slice::<Value>(&bytes.data) else { return };
    let texts = note.get("environment").and_then(|e| e.get("deviations")).and_then(Value::as_array);
    for text in texts.into_iter().flatten().filter_map(Value::as_str).take(KEPT) {
        if deviations.len() < KEPT || deviations.contains_key(text) {
            *deviations.entry(text.to_string()).or_default() += 1;
        }
    }
}
