//! `pilothouse triage`: what is no clean pass, and why.

use std::path::PathBuf;

use clap::Args;

use super::{FINE, INFRA, NEEDS_PERSON, USAGE, classes, load};
use crate::follow::Options as FollowOptions;
use crate::job::slots::Rule;
use crate::job::{Class, tally};
use crate::report::triage;

/// List everything that is not a clean pass, worst first: class, rule, evidence with file and line, the
/// verdict so far and the one that the class suggests.
///
/// Classes come from rules over evidence: those of --classes, then of
/// $XDG_CONFIG_HOME/pilothouse/error-classes.toml, then the shipped ones.
///
/// Exit code: 0 nothing needs a person, 1 something does, 2 wrong arguments or rules, 3 infra errors
/// are among what counts.
#[derive(Debug, Clone, Args)]
pub struct TriageArgs {
    /// Job dirs, or directories of job dirs
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
    /// List this class only; may be given several times
    #[arg(long = "class", value_name = "CLASS", value_parser = class)]
    pub only: Vec<Class>,
    /// Rules to be asked first, in the form of error-classes.toml
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
}

/// A class by its word.
fn class(text: &str) -> Result<Class, String> {
    Class::of_word(text).ok_or_else(|| {
        let words: Vec<&str> = Class::ALL.iter().map(|c| c.word()).collect();
        format!("no class; there are {}", words.join(", "))
    })
}

/// Runs the command; the exit code.
pub fn run(args: &TriageArgs) -> u8 {
    let classifier = match classes::load(args.classes.as_ref()) {
        Ok(classifier) => classifier,
        Err(error) => {
            load::complain("triage", &[error.to_string()]);
            return USAGE;
        }
    };
    let fleet = match load::scan_classified(&args.dirs, FollowOptions::default(), &classifier) {
        Ok(fleet) => fleet,
        Err(errors) => {
            load::complain("triage", &errors);
            return USAGE;
        }
    };
    let tally = tally::count_side_by_side(&fleet, Rule::default(), load::now());
    let items = triage::items(&fleet, &tally);
    let listed = triage::listed(&items, &args.only);
    let text = if args.json {
        triage::json(&fleet, &items, &listed, classifier.rules().files())
    } else {
        triage::plain(&items, &listed)
    };
    load::print(&text);
    code(&listed)
}

/// Of what is listed and counts.
fn code(listed: &[triage::Item<'_>]) -> u8 {
    let counting = || listed.iter().filter(|i| i.is_chosen());
    if counting().any(|i| i.class.class == Class::Infra && !i.is_regraded()) {
        INFRA
    } else if counting().any(|i| i.verdict.is_none() && i.class.needs_person() && !i.is_regraded()) {
        NEEDS_PERSON
    } else {
        FINE
    }
}
