//! `pilothouse compare`: runs beside each other, task by task.

use std::path::PathBuf;

use clap::Args;

use super::tally::{TallyFormat, classified};
use super::{FINE, USAGE, load};
use crate::job::compare::compare;
use crate::report::compare as report;

/// Put two or more runs beside each other, task by task: who solved what, which tasks flip, and what
/// else differs between the runs. A job that was made of another one to run some of its trials again
/// belongs to that one's run.
///
/// Exit code: 0 compared, 2 wrong arguments or fewer than two runs.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// Job dirs, or directories of job dirs
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Rules of classes to be asked first, in the form of error-classes.toml
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// Form of the report
    #[command(flatten)]
    pub format: TallyFormat,
}

/// Runs the command; the exit code.
pub fn run(args: &CompareArgs) -> u8 {
    let Some(fleet) = classified("compare", &args.dirs, args.classes.as_ref()) else { return USAGE };
    let comparison = compare(&fleet, load::now());
    if comparison.runs.len() < 2 {
        let why = match fleet.jobs().len() {
            1 => "one job alone: name two or more runs",
            _ => "these directories are one run (one job at several moments, or a job and its requeues): name another",
        };
        load::complain("compare", &[why.to_string()]);
        return USAGE;
    }
    let text = match args.format {
        TallyFormat { json: true, .. } => report::json(&comparison),
        TallyFormat { markdown: true, .. } => report::markdown(&comparison),
        _ => report::plain(&comparison),
    };
    load::print(&text);
    FINE
}
