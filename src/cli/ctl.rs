//! `pilothouse ctl <job dir> …`: steers a job that pilothouse runs on this host, from another terminal.

pub mod client;
pub mod endpoint;
pub mod helm;
pub mod link;
pub mod place;
pub mod scribe;
pub mod server;
pub mod wire;
pub mod works;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{FINE, NEEDS_PERSON, USAGE, load};
use crate::job::text::{clean, json_for_terminal};
use crate::job::{Stamp, time};
use client::CtlError;
use wire::{Answer, Op, State};

/// Steer a job that pilothouse runs on this host: pause it, let it drain, cancel trials, change how many
/// run, or which comes first. The process that runs it answers over a socket of this user's alone; what
/// was done is written into the job's journal (pilothouse.jsonl).
///
/// Exit code: 0 done, 1 not done (nobody runs it here, it has ended, it was not confirmed), 2 wrong
/// arguments.
#[derive(Debug, Clone, Args)]
pub struct CtlArgs {
    /// The job dir
    #[arg(value_name = "JOB_DIR")]
    pub dir: PathBuf,
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
    /// Print one JSON document (schema_version 1)
    #[arg(long, global = true)]
    pub json: bool,
    /// Why, for the journal
    #[arg(long, global = true, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Do not ask before something is stopped (needed when standard input is no terminal)
    #[arg(short = 'y', long, global = true)]
    pub yes: bool,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Tell how it stands: slots, gates, what runs and what comes next
    Status,
    /// Tell what trials at work do: episode, call of the model or command and since when, tokens, context,
    /// last analysis and plan
    Work {
        /// Only these: names of trials, or of tasks
        #[arg(value_name = "TRIAL")]
        trials: Vec<String>,
    },
    /// Begin nothing more until `resume`; what runs runs on
    Pause,
    /// Begin trials again after `pause`
    Resume,
    /// Begin nothing more and let what runs end; `run --resume` goes on later (asks first)
    Drain,
    /// Cancel running trials by name or task; without any: stop the whole job (asks first)
    Cancel {
        /// Names of trials, or of tasks
        #[arg(value_name = "TRIAL")]
        trials: Vec<String>,
    },
    /// Run so many trials at a time; what runs runs on
    Slots {
        /// How many
        #[arg(value_name = "N")]
        n: usize,
    },
    /// Let so many agents work at a time; those at work work on
    Agents {
        /// How many
        #[arg(value_name = "N")]
        n: usize,
    },
    /// Begin these before all others, in this order: trials or tasks that have not begun
    First {
        /// Names of trials, or of tasks
        #[arg(value_name = "TRIAL", required = true)]
        trials: Vec<String>,
    },
}

impl Verb {
    fn op(&self) -> Op {
        match self {
            Verb::Status => Op::Status,
            Verb::Work { .. } => Op::Work,
            Verb::Pause => Op::Pause,
            Verb::Resume => Op::Resume,
            Verb::Drain => Op::Drain,
            Verb::Cancel { trials } if trials.is_empty() => Op::Stop,
            Verb::Cancel { trials } => Op::Cancel { trials: trials.clone() },
            Verb::Slots { n } => Op::Slots { n: *n },
            Verb::Agents { n } => Op::Agents { n: *n },
            Verb::First { trials } => Op::First { trials: trials.clone() },
        }
    }
}

/// Runs the command; the exit code.
pub fn run(args: &CtlArgs) -> u8 {
    let op = args.verb.op();
    if let Op::Slots { n: 0 } | Op::Agents { n: 0 } = op {
        load::complain("ctl", &["a number of at least 1".to_string()]);
        return USAGE;
    }
    let state_dir = super::state_dir();
    let asked = |op: Op| client::ask(&args.dir, state_dir.as_deref(), op, &args.reason);
    if matches!(op, Op::Drain | Op::Stop | Op::Cancel { .. }) && !args.yes {
        match asked(Op::Status) {
            Ok(answer) => {
                if let Err(code) = confirmed(args, &op, &answer) {
                    return code;
                }
            }
            Err(error) => return failed(args, &error),
        }
    }
    match asked(op) {
        Ok(answer) => told(args, at_work(args, answer)),
        Err(error) => failed(args, &error),
    }
}

/// What was asked for of what trials do, with what is to be said of it.
fn at_work(args: &CtlArgs, answer: Answer) -> Answer {
    let Verb::Work { trials } = &args.verb else { return answer };
    let mut work = works::wanted(answer.work, trials);
    // The operator's own limits, where they can be read.
    let limits = super::serving::thresholds_of_everybody();
    works::judge(&mut work, &limits.thinking, Stamp::now());
    Answer { work, ..answer }
}

/// Asks before something is stopped.
fn confirmed(args: &CtlArgs, op: &Op, answer: &Answer) -> Result<(), u8> {
    let state = answer.status.clone().unwrap_or_default();
    let what = match op {
        Op::Drain => format!("Let {} at work end and begin none of the {} that wait?", state.running, state.queued),
        Op::Cancel { trials } => {
            format!("Cancel {}? What has been done on them is lost.", clean(&trials.join(", ")))
        }
        _ => {
            format!("Stop the job: cancel {} at work and begin none of the {} that wait?", state.running, state.queued)
        }
    };
    if !std::io::stdin().is_terminal() {
        load::complain("ctl", &["nothing was done: standard input is no terminal, so give -y".to_string()]);
        return Err(USAGE);
    }
    if super::stop::ask(&what) {
        return Ok(());
    }
    if !args.json {
        load::print("nothing was done\n");
    }
    Err(NEEDS_PERSON)
}

fn failed(args: &CtlArgs, error: &CtlError) -> u8 {
    if args.json {
        document(&Answer::not(error.to_string()));
    }
    load::complain("ctl", &[clean(&error.to_string()).into_owned()]);
    match error {
        CtlError::NoJob(_) => USAGE,
        CtlError::Nobody(_) | CtlError::Talk { .. } => NEEDS_PERSON,
    }
}

/// Prints an answer as one JSON document.
pub fn document(answer: &Answer) {
    let value = serde_json::json!({
        "schema_version": 1,
        "ok": answer.ok,
        "error": answer.error,
        "said": answer.said,
        "probe": answer.probe,
        "status": answer.status,
        "work": answer.work,
    });
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    load::print(&format!("{}\n", json_for_terminal(&text)));
}

fn told(args: &CtlArgs, answer: Answer) -> u8 {
    if args.json {
        document(&answer);
    }
    if let Some(why) = &answer.error {
        load::complain("ctl", &[clean(why).into_owned()]);
        return NEEDS_PERSON;
    }
    if !args.json {
        for line in &answer.said {
            load::print(&format!("{}\n", clean(line)));
        }
        if let (Some(state), Op::Status) = (&answer.status, args.verb.op()) {
            load::print(&words(state));
        }
        if let Verb::Work { .. } = args.verb {
            load::print(&work_words(&answer));
        }
    }
    FINE
}

/// What trials do, in lines.
fn work_words(answer: &Answer) -> String {
    let mut lines = works::words(&answer.work, Stamp::now());
    let running = answer.status.as_ref().map_or(0, |state| state.running);
    if lines.is_empty() {
        lines.push(format!("{running} trials at work; none of them tells more than its files do"));
    }
    lines.iter().map(|line| format!("{}\n", clean(line))).collect()
}

/// How a job stands, in lines.
fn words(state: &State) -> String {
    let mut out = Vec::new();
    let held = match (&*state.stop, state.paused) {
        ("drain", _) => ", draining",
        ("cancel", _) => ", stopping",
        (_, true) => ", paused",
        _ => "",
    };
    out.push(format!("{}{held}  pid {}  {}", state.job, state.pid, state.dir));
    out.push(format!(
        "{} of {} slots at work, {} waiting for a retry, {} queued, {} ended",
        state.running, state.slots, state.waiting, state.queued, state.ended
    ));
    if let Some(limit) = state.adaptive_limit {
        let settled = if state.settled { ", settled" } else { "" };
        out.push(format!("adaptive: at most {limit} at a time{settled}: more brought errors of the surroundings"));
    }
    if let Some(agents) = state.agents {
        out.push(format!("{} of {agents} agent slots at work", state.agents_at_work));
    }
    let now = Stamp::now();
    for endpoint in &state.endpoints {
        let moved = if endpoint.moves > 0 { format!(" ({} in the config)", endpoint.named) } else { String::new() };
        let closed = endpoint.closed.as_deref().map_or(String::new(), |why| format!(", no calls: {why}"));
        out.push(format!("endpoint {}{moved}{closed}", endpoint.base));
    }
    for gate in &state.gates {
        let since = time::parse(&gate.since).and_then(|read| time::seconds_between(read.at, now));
        let since = since.map_or("-".to_string(), time::words);
        out.push(format!("nothing begins for {since}: {}: {}", gate.gate, gate.why));
    }
    if let Some(helm) = &state.helm {
        out.push(format!("steered from a screen by {helm}"));
    }
    let list = |title: &str, names: &[String], of: usize| {
        let more = of.saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| format!("{title}: {}{more}", names.join(" ")))
    };
    out.extend(list("running", &state.running_trials, state.running));
    out.extend(list("next", &state.queue, state.queued));
    out.iter().map(|line| format!("{}\n", clean(line))).collect()
}
