//! `pilothouse tally`: count one or several job dirs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{USAGE, load};
use crate::follow::Options as FollowOptions;
use crate::job::merge::How;
use crate::job::slots::Rule;
use crate::job::tally::{self, Options};
use crate::job::{Fleet, Regrades};
use crate::report::json::Style;
use crate::report::{json, markdown, plain};

/// Count trials over one or several job dirs: totals, scores with denominators, and whatever is
/// missing, duplicate, superseded or in conflict.
///
/// Exit code: 0 nothing needs a person, 1 something does, 2 wrong arguments or jobs that do not go
/// together without --as, 3 infra errors are among the trials that count.
#[derive(Debug, Clone, Args)]
pub struct TallyArgs {
    /// What is counted
    #[command(flatten)]
    pub counted: Counted,
    /// Form of the report
    #[command(flatten)]
    pub format: TallyFormat,
}

/// What is counted, and how.
#[derive(Debug, Clone, Args)]
pub struct Counted {
    /// Job dirs, or directories of job dirs
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// How different jobs go together; chosen from their plans if not given
    #[arg(long = "as", value_enum, value_name = "HOW")]
    pub how: Option<HowArg>,
    /// Which of two scored trials of one slot counts
    #[arg(long, value_enum, default_value = "earlier")]
    pub rule: RuleArg,
    /// Whether the verifier's later word on a trial (regrade-<n>.json) counts in the score `corrected`; in
    /// `raw` it never does. Of several the last one with a valid reward counts, all are listed
    #[arg(long, value_enum, default_value = "use")]
    pub regrades: RegradesArg,
    /// Rules of classes to be asked first, in the form of error-classes.toml
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
}

impl Counted {
    /// The jobs with their classes, and how they are counted. None after what is wrong was said.
    pub fn read(&self, command: &str) -> Option<(Fleet, Options)> {
        let fleet = classified(command, &self.dirs, self.classes.as_ref())?;
        let regrades = self.regrades.into();
        Some((fleet, Options { how: self.how.map(How::from), rule: self.rule.into(), regrades }))
    }
}

/// Form of the report; plain if none is given.
#[derive(Debug, Clone, Copy, Default, Args)]
#[group(multiple = false)]
pub struct TallyFormat {
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
    /// Print markdown tables
    #[arg(long)]
    pub markdown: bool,
    /// Print plain text (the default)
    #[arg(long)]
    pub plain: bool,
}

/// [`How`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HowArg {
    /// A later job ran again what an earlier one could not score: it fills slots without a reward
    Passes,
    /// Independent samples: slots add up, nothing is dropped
    Samples,
}

impl From<HowArg> for How {
    fn from(how: HowArg) -> How {
        match how {
            HowArg::Passes => How::Passes,
            HowArg::Samples => How::Samples,
        }
    }
}

/// [`Rule`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuleArg {
    /// The one that started first
    Earlier,
    /// The one that started last
    Latest,
    /// The one with the higher reward (not publishable)
    Best,
}

impl From<RuleArg> for Rule {
    fn from(rule: RuleArg) -> Rule {
        match rule {
            RuleArg::Earlier => Rule::Earlier,
            RuleArg::Latest => Rule::Latest,
            RuleArg::Best => Rule::Best,
        }
    }
}

/// [`Regrades`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RegradesArg {
    /// They count
    Use,
    /// They are listed only
    Ignore,
}

impl From<RegradesArg> for Regrades {
    fn from(arg: RegradesArg) -> Regrades {
        match arg {
            RegradesArg::Use => Regrades::Use,
            RegradesArg::Ignore => Regrades::Ignore,
        }
    }
}

/// Reads and classifies these directories; says what is wrong where that can not be done.
pub fn classified(command: &str, dirs: &[PathBuf], rules: Option<&PathBuf>) -> Option<Fleet> {
    let classifier = match super::classes::load(rules) {
        Ok(classifier) => classifier,
        Err(error) => {
            load::complain(command, &[error.to_string()]);
            return None;
        }
    };
    match load::scan_classified(dirs, FollowOptions::default(), &classifier) {
        Ok(fleet) => Some(fleet),
        Err(errors) => {
            load::complain(command, &errors);
            None
        }
    }
}

/// Runs the command; the exit code.
pub fn run(args: &TallyArgs) -> u8 {
    let Some((fleet, options)) = args.counted.read("tally") else { return USAGE };
    let tally = match tally::count(&fleet, &options, load::now()) {
        Ok(tally) => tally,
        Err(refusal) => {
            load::complain("tally", &[refusal.to_string()]);
            return USAGE;
        }
    };
    let text = match args.format {
        TallyFormat { json: true, .. } => json::document(&fleet, &tally, None, Style::Pretty),
        TallyFormat { markdown: true, .. } => markdown::tally(&fleet, &tally),
        _ => plain::tally(&fleet, &tally),
    };
    load::print(&text);
    super::status::code(&fleet, &tally)
}
