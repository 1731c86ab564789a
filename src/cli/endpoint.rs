//! `pilothouse endpoint <job dir> URL`: calls the model of a living run at another address.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;

use super::ctl::client::{self, CtlError};
use super::ctl::wire::{Answer, Op, Probe};
use super::{FINE, NEEDS_PERSON, USAGE, ctl, load};
use crate::job::text::clean;

/// Call the model of a job that pilothouse runs on this host at another address, from now on.
///
/// The address is probed first: whether it serves the model, whether its context is not shorter than before,
/// whether it answers one short question. What was found is shown, then asked about. Trials that wait for
/// their model go on there. The address of a model is no part of what a trial is: resume, requeue and tally
/// take no notice of it. The move is written into the job's journal (pilothouse.jsonl).
///
/// Exit code: 0 moved (or, with --probe, it could be), 1 not moved, 2 wrong arguments.
#[derive(Debug, Clone, Args)]
pub struct EndpointArgs {
    /// The job dir
    #[arg(value_name = "JOB_DIR")]
    pub dir: PathBuf,
    /// The new address, as the config names one: http://HOST:PORT/v1
    #[arg(value_name = "URL")]
    pub url: String,
    /// Which endpoint, of a job with several: its address in the config, or where it is now
    #[arg(long, value_name = "URL")]
    pub of: Option<String>,
    /// Probe it and show what was found; move nothing
    #[arg(long)]
    pub probe: bool,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
    /// Why, for the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Do not ask (needed when standard input is no terminal)
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// Runs the command; the exit code.
pub fn run(args: &EndpointArgs) -> u8 {
    let state_dir = super::state_dir();
    let asked = |sure: bool| {
        let op = Op::Endpoint { url: args.url.clone(), of: args.of.clone(), sure };
        client::ask_for(&args.dir, state_dir.as_deref(), op, &args.reason, client::PROBE)
    };
    if !args.json {
        load::print(&format!("probing {}\n", clean(&args.url)));
    }
    let answer = match asked(false) {
        Ok(answer) => answer,
        Err(error) => return failed(args, &error),
    };
    let Some(probe) = answer.probe.clone().filter(|_| answer.error.is_none()) else {
        return told(args, &answer);
    };
    if !args.json {
        load::print(&words(&probe));
    }
    if !probe.problems.is_empty() || args.probe {
        let ok = probe.problems.is_empty();
        let error = (!ok).then(|| format!("not moved: {}", probe.problems.join("; ")));
        return told(args, &Answer { ok, error, ..answer });
    }
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            load::complain("endpoint", &["nothing was done: standard input is no terminal, so give -y".to_string()]);
            return USAGE;
        }
        if !super::stop::ask(&format!("Call the model at {} from now on?", clean(&probe.url))) {
            if !args.json {
                load::print("nothing was done\n");
            }
            return NEEDS_PERSON;
        }
    }
    match asked(true) {
        Ok(answer) => told(args, &Answer { probe: Some(probe), ..answer }),
        Err(error) => failed(args, &error),
    }
}

/// What was found, in lines.
fn words(probe: &Probe) -> String {
    let mut out = format!("now {}\n", clean(&probe.now));
    probe.found.iter().for_each(|line| out.push_str(&format!("  {}\n", clean(line))));
    probe.problems.iter().for_each(|line| out.push_str(&format!("! {}\n", clean(line))));
    out
}

fn failed(args: &EndpointArgs, error: &CtlError) -> u8 {
    if args.json {
        ctl::document(&Answer::not(error.to_string()));
    }
    load::complain("endpoint", &[clean(&error.to_string()).into_owned()]);
    match error {
        CtlError::NoJob(_) => USAGE,
        CtlError::Nobody(_) | CtlError::Talk { .. } => NEEDS_PERSON,
    }
}

fn told(args: &EndpointArgs, answer: &Answer) -> u8 {
    if args.json {
        ctl::document(answer);
    }
    if let Some(why) = &answer.error {
        load::complain("endpoint", &[clean(why).into_owned()]);
        return NEEDS_PERSON;
    }
    if !args.json {
        answer.said.iter().for_each(|line| {
            load::print(&format!("{}\n", clean(line)));
        });
    }
    FINE
}
