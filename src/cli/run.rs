//! `pilothouse run`: runs a job of its own, natively.
//!
//! | part | what it does |
//! |---|---|
//! | [`prepare`](mod@prepare) | from a command line to a plan; what can not be run is refused by name |
//! | [`tasks`], [`repo`], [`pointers`] | which tasks are meant, cloned where need be, without LFS pointers |
//! | [`resume`] | going on with a job: what stands is kept, what is missing is planned |
//! | [`owner`] | a thread that runs the job to its end, whoever watches |
//! | [`preflight`] | what would fail every trial is said before the first |
//! | [`headless`] | progress lines, signals, the report, the exit code |
//! | `descriptors` | open files for many trials at a time |
//! | [`detach`] | the run goes on without a terminal |
//! | [`holding`] | which containers outlive their trials |
//! | [`lookout`] | looks after the endpoints of the models: closes them and the gate, opens them again |
//! | `prober` | what is at an address that an endpoint may move to |
//! | [`watched`] | the same job on a screen of its own, steered by keys |

mod descriptors;
pub mod detach;
pub mod headless;
pub mod holding;
pub mod lookout;
pub mod owner;
pub mod pointers;
pub mod preflight;
pub mod prepare;
mod prober;
pub mod repo;
pub mod resume;
mod smoke;
pub mod tasks;
pub mod watched;

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::harbor::run_config::RunFlags;
use crate::harbor::write::Claimant;
use headless::{Ears, Output};
use owner::Terms;
use prepare::{Kind, Prepared, Refusal};

/// What `--help` says at its end.
const ABOUT: &str = "\
The flags of `harbor run` mean the same here; what only Harbor can do is refused by name.
Each trial runs in a container of its own, or with -e local on this machine without any
isolation.

The first SIGTERM or SIGINT stops the job in order (running trials are recorded as
cancelled), the second shortens the wait to 10 s, the third aborts. A lost terminal ends
nothing. Whatever ended it, --resume goes on: finished trials stay as they are.

Exit codes: 0 nothing needs a person; 1 something does; 2 wrong arguments or config;
3 infrastructure errors; 75 stopped early, resumable; 130 stopped by a signal.";

/// Arguments of `pilothouse run`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = ABOUT)]
pub struct Run {
    /// The flags of `harbor run`.
    #[command(flatten)]
    pub flags: RunFlags,
    /// No screen: a line for each change
    #[arg(long, visible_alias = "plain", help_heading = "Output")]
    pub headless: bool,
    /// No screen; at the end print the tally as one JSON document (schema_version 1), all else on
    /// standard error
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print what would be run, and run nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Go on with a job of pilothouse's: finished trials stay as they are, what is missing is run
    #[arg(long, value_name = "DIR", help_heading = "Job")]
    pub resume: Option<PathBuf>,
    /// With --resume: take the job from a process of this host that is there but gives no sign of life
    #[arg(long, requires = "resume", help_heading = "Job")]
    pub take_over: bool,
    /// Run one trial first; stop when it fails for its surroundings or the config
    #[arg(long, help_heading = "Job")]
    pub smoke: bool,
    /// Begin without a look at engine, images, disk and the agents' models
    #[arg(long, help_heading = "Job")]
    pub no_preflight: bool,
    /// Begin nothing while less than GIB GiB are free where the job dir, or Docker's data, is; 0: never
    /// mind
    #[arg(long, value_name = "GIB", default_value = "1", value_parser = floor, help_heading = "Job")]
    pub disk_floor: f64,
    /// Fewer trials at a time while errors of their surroundings cluster, slowly more again; every change
    /// is written into the journal
    #[arg(long, help_heading = "Job")]
    pub adaptive: bool,
    /// While the endpoint of its model is away, an agent that waits for it does not use its time up: its clock
    /// stands still, unlike Harbor's; what was lost is in the trial's pilothouse.json either way
    #[arg(long, help_heading = "Job")]
    pub pause_clock_on_outage: bool,
    /// Begin trials, and let agents call their model, whatever the model servers look like
    #[arg(long, help_heading = "Job")]
    pub no_endpoint_gate: bool,
    /// Seconds between two signs of life in the job's lease
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = super::attach::seconds, hide = true)]
    pub heartbeat: f64,
    /// Which containers outlive their trials.
    #[command(flatten)]
    pub holding: holding::HoldArgs,
    /// The model servers, and who is told of alarms.
    #[command(flatten)]
    pub serving: super::servers::ServingArgs,
}

/// A size in GiB.
///
/// # Errors
/// What is allowed.
pub fn floor(text: &str) -> Result<f64, String> {
    let size = text.parse::<f64>().ok().filter(|size| (0.0..=1_000_000.0).contains(size));
    size.ok_or_else(|| "a number of GiB, 0 for none".to_string())
}

/// Runs it; gives the exit code.
pub fn run(args: &Run, common: &super::Common) -> u8 {
    match begin(args, common) {
        Ok(code) => code,
        Err(Refusal(lines)) => {
            super::load::complain("run", &lines);
            super::USAGE
        }
    }
}

fn begin(args: &Run, common: &super::Common) -> Result<u8, Refusal> {
    let out = Output { json: args.json, quiet: args.flags.quiet };
    let mut servers = args.serving.prepare().map_err(|why| Refusal::of(&why))?;
    if args.flags.print_config {
        let asked = prepare::ask(&args.flags)?;
        super::load::print(&asked.printed);
        return match asked.refused.is_empty() {
            true => Ok(super::FINE),
            false => Err(Refusal(asked.refused)),
        };
    }
    let prepared = match &args.resume {
        None => prepare::prepare(&args.flags)?,
        Some(dir) => match resumed(dir, args, out)? {
            Some(prepared) => prepared,
            None => return Ok(super::FINE),
        },
    };
    announce(&prepared, out);
    if args.dry_run {
        for trial in prepared.plan.trials.iter().filter(|_| args.resume.is_none()) {
            out.say(&trial.config.trial_name);
        }
        return Ok(super::FINE);
    }
    consent(&prepared.variables, args.flags.yes)?;
    let invalid = prepared.invalid.clone();
    let fault = |e: std::io::Error| Refusal::of(&format!("can not start the job: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
    let mut ears = {
        let _inside = runtime.enter();
        Ears::new().map_err(fault)?
    };
    let terms = Terms { ear: servers.ear().filter(|_| !args.no_endpoint_gate), ..terms(args, out) };
    let started = runtime.block_on(headless::start(prepared, terms, &mut ears, out))?;
    let Some((owner, stops)) = started else {
        // What was begun is left to the end of this process.
        runtime.shutdown_background();
        return Ok(super::SIGNAL);
    };
    out.say(&format!("job dir {}", owner.dir.display()));
    let watched = !args.headless && !args.json && !args.flags.quiet && !stops.stopped();
    if watched && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        let show = watched::Show { servers: Some(servers), ..watched::Show::default() };
        return Ok(watched::run(owner, &invalid, out, common, show, (&runtime, ears)));
    }
    if args.no_endpoint_gate {
        args.serving.complain_without_screen();
    }
    // What is read is for whoever looks after the endpoints alone.
    drop(servers);
    Ok(runtime.block_on(headless::follow_to_end(owner, &invalid, out, stops, ears)))
}

/// A job to go on with; None when there is nothing to be done.
fn resumed(dir: &Path, args: &Run, out: Output) -> Result<Option<Prepared>, Refusal> {
    let (prepared, survey) = resume::prepare(dir, &args.flags, args.take_over)?;
    if survey.finished && survey.missing.is_empty() && survey.removed.is_empty() {
        out.say(&format!("{}: all {} planned trials have ended: nothing to do", survey.name, survey.planned));
        return Ok(None);
    }
    if args.dry_run {
        out.say(&resume::lease_words(dir));
    }
    Ok(Some(prepared))
}

fn terms(args: &Run, out: Output) -> Terms {
    let scheduler_job = ["SLURM_JOB_ID", "JOB_ID", "PBS_JOBID"].iter().find_map(|name| std::env::var(name).ok());
    Terms {
        who: Claimant { scheduler_job, interval: Duration::from_secs_f64(args.heartbeat) },
        scratch: None,
        preflight: !args.no_preflight,
        smoke: args.smoke,
        tell: Arc::new(move |line| out.say(line)),
        // Of a checked size: no more than 2^50.
        disk_floor: (args.disk_floor * (1u64 << 30) as f64) as u64,
        adaptive: args.adaptive,
        ear: None,
        pause_clock: args.pause_clock_on_outage,
        hold: args.holding.terms(super::state_dir().as_deref()),
    }
}

/// What is about to be run, and what is not.
fn announce(prepared: &Prepared, out: Output) {
    let plan = &prepared.plan;
    let tasks: std::collections::BTreeSet<&str> = plan.trials.iter().map(|t| t.task.short_name()).collect();
    let agents: Vec<&str> = plan.config.agents.iter().filter_map(|a| a.name.as_deref()).collect();
    let place = match prepared.kind {
        Kind::Docker => "in containers",
        Kind::Local => "on this machine WITHOUT ANY ISOLATION (-e local)",
    };
    out.say(&format!(
        "{}: {} trials of {} tasks, agent {}, {} at a time, {place}",
        plan.config.job_name,
        plan.trials.len(),
        tasks.len(),
        agents.join(", "),
        plan.config.n_concurrent_trials,
    ));
    if let (Kind::Docker, Some(trial)) = (prepared.kind, plan.trials.first()) {
        let init = if trial.settings.init { ", an init as its first process" } else { "" };
        out.say(&format!("unlike Harbor's, a container has at most {} processes{init}", trial.settings.pids_limit));
    }
    for note in &prepared.notes {
        out.say(note);
    }
    for task in &prepared.invalid {
        out.say(&format!("not run: task {}: {}", task.name, task.why));
    }
}

/// Asks whether the job may read variables of this host, where somebody can answer.
fn consent(variables: &[String], yes: bool) -> Result<(), Refusal> {
    if variables.is_empty() || yes {
        return Ok(());
    }
    let names = variables.join(", ");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Refusal::of(&format!("the job reads variables of this host: {names}: allow it with -y")));
    }
    let _ = write!(
        std::io::stderr(),
        "The job reads variables of this host: {}. Go on? [y/N] ",
        crate::job::text::clean(&names)
    );
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Refusal::of("not allowed to read variables of this host")),
    }
}
