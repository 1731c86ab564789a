//! `pilothouse jobs`: all jobs below directories that are given or remembered.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{FINE, NEEDS_PERSON, USAGE, load, remembered};
use crate::follow::roster;
use crate::job::Stamp;
use crate::job::roster::{Filter, Order, RootState, Roster, RosterEvent, compare};
use crate::report::jobs;

/// List all jobs below directories: state, progress, score, owner, last write.
///
/// The directories are remembered, and looked through when none is given; the screen lists the same jobs on 6.
/// A job costs its own few files; the trials of those at work are read, too. A directory that does not answer
/// is named and holds up nothing else.
///
/// Exit code: 0 nothing needs a person; 1 something does: a job runs again what was solved, died within the last
/// day, or a directory can not be read or does not answer; 2 wrong arguments.
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Directories of job dirs, however deep (three levels), or job dirs
    #[arg(value_name = "ROOT")]
    pub roots: Vec<PathBuf>,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
    /// Only jobs that pass: words, field:value (state, agent, model, dataset, owner, name), !not
    #[arg(long, value_name = "FILTER", default_value = "")]
    pub filter: String,
    /// What they are sorted by: state, last write, name, progress, raw score, owner, agent, model, dataset
    #[arg(long, value_name = "COLUMN", default_value = "state", value_parser = order)]
    pub sort: Order,
    /// Read the trials of every job of which they tell more than its own result.json: takes longer
    #[arg(long)]
    pub exact: bool,
    /// Look through ROOT this time only
    #[arg(long)]
    pub no_remember: bool,
    /// Look through ROOT no more, when nothing is given; touches no file of it
    #[arg(long, requires = "roots", conflicts_with_all = ["no_remember", "filter"])]
    pub forget: bool,
    /// How long a directory may take; then it is named as one that does not answer
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = super::attach::seconds)]
    pub wait: f64,
}

fn order(word: &str) -> Result<Order, String> {
    let all = || Order::ALL.map(Order::word).join(", ");
    Order::by_word(&word.replace(['-', '_'], " ")).ok_or_else(|| format!("one of {}", all()))
}

/// Runs the command; the exit code.
pub fn run(args: &JobsArgs) -> u8 {
    let complain = |text: String| {
        load::complain("jobs", &[text]);
        USAGE
    };
    let filter = match Filter::parse(&args.filter) {
        Ok(filter) => filter,
        Err(why) => return complain(why),
    };
    let given: Vec<PathBuf> = args.roots.iter().map(|root| remembered::real(root)).collect();
    if args.forget {
        return forget(&given, args.json);
    }
    let roots = if given.is_empty() { remembered::roots() } else { given.clone() };
    if roots.is_empty() {
        return complain(
            "no directory is given or remembered: pilothouse jobs DIR, with the directory above job dirs".into(),
        );
    }
    if roots.len() > roster::MAX_ROOTS {
        return complain(format!("{} directories, more than {}", roots.len(), roster::MAX_ROOTS));
    }
    let mut roster = Roster::of(&roots);
    // What is never heard of again has not answered since now.
    let begun = Stamp::now();
    roots.iter().for_each(|root| roster.apply(RosterEvent::Begun(root.clone(), begun)));
    roster::once(&roots, args.exact, Duration::from_secs_f64(args.wait), |event| roster.apply(event));
    if !given.is_empty() && !args.no_remember {
        // A directory that is not there may be a word mistyped.
        let read = roster.roots.iter().filter(|r| !matches!(r.state, RootState::Gone | RootState::Failed(_)));
        let read: Vec<PathBuf> = read.map(|r| r.path.clone()).collect();
        if let Err(why) = remembered::remember(&read) {
            load::complain("jobs", &[format!("not remembered: {why}")]);
        }
    }
    let mut list: Vec<_> = roster.jobs.values().filter(|e| filter.matches(e, false)).cloned().collect();
    list.sort_by(|a, b| compare(args.sort, a, b));
    let now = Stamp::now();
    let report = jobs::Report { roster: &roster, list: &list, named: !given.is_empty(), now };
    load::print(&if args.json { report.json() } else { report.plain() });
    if report.attention().is_empty() { FINE } else { NEEDS_PERSON }
}

fn forget(roots: &[PathBuf], as_json: bool) -> u8 {
    match remembered::forget(roots) {
        Ok(gone) => {
            let not: Vec<&PathBuf> = roots.iter().filter(|root| !gone.contains(root)).collect();
            load::print(&jobs::forgotten(&gone, &not, as_json));
            if not.is_empty() { FINE } else { USAGE }
        }
        Err(why) => {
            load::complain("jobs", &[why]);
            NEEDS_PERSON
        }
    }
}
