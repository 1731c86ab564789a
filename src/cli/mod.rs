//! The command line: one file per sub-command.

pub mod agents;
pub mod attach;
pub mod classes;
pub mod clean;
pub mod compare;
pub mod ctl;
pub mod demo;
pub mod desk;
pub mod endpoint;
pub mod harbor;
pub mod held;
pub mod jobs;
pub mod load;
pub mod log;
pub mod regrade;
pub mod remembered;
pub mod replay;
pub mod report;
pub mod requeue;
pub mod resume_preview;
pub mod run;
pub mod screen;
pub mod servers;
pub mod serving;
pub mod status;
pub mod stop;
pub mod tally;
pub mod triage;
pub mod verdict;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::tty::ColorChoice;

/// Exit code: fine, nothing needs a person.
pub const FINE: u8 = 0;
/// Exit code: something needs a person.
pub const NEEDS_PERSON: u8 = 1;
/// Exit code: usage or configuration.
pub const USAGE: u8 = 2;
/// Exit code: errors of the infrastructure (containers, images, disk) are among the results.
pub const INFRA: u8 = 3;
/// Exit code: stopped early, can be gone on with.
pub const STOPPED: u8 = 75;
/// Exit code: pilothouse itself fell over; the same as of a panic that ends the program.
pub const FAULT: u8 = 101;
/// Exit code: stopped by a signal.
pub const SIGNAL: u8 = 130;

/// A terminal control room for live agent-benchmark runs: attach to any Harbor job directory,
/// running or finished, and see the truth at once. Attaching is read-only.
#[derive(Debug, Parser)]
#[command(name = "pilothouse", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Flags that hold everywhere.
    #[command(flatten)]
    pub common: Common,
}

const EXIT_CODES: &str = "\
Exit codes: 0 fine, nothing needs a person; 1 something needs a person; 2 usage or config;
3 infrastructure errors; 75 stopped early, resumable; 101 a fault of pilothouse itself; 130 stopped by a signal.
Logs go to a file in $XDG_STATE_HOME/pilothouse (else ~/.local/state/pilothouse), never to the
terminal.";

/// Flags that hold everywhere.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// What goes to the log file: error, warn, info, debug, trace, or a filter such as
    /// `pilothouse::follow=debug`
    #[arg(long, global = true, env = "PILOTHOUSE_LOG", default_value = "info", value_name = "LEVEL")]
    pub log_level: String,
    /// Colours on the screen; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value_t)]
    pub color: ColorChoice,
    /// Draw with ASCII characters only
    #[arg(long, global = true)]
    pub ascii: bool,
    /// Theme of the screen
    #[arg(long, global = true, value_enum, default_value_t)]
    pub theme: ThemeChoice,
}

/// The `--theme` flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ThemeChoice {
    /// The terminal's own 16 colours, safe for colour-blind eyes
    #[default]
    Default,
    /// For light backgrounds
    Light,
    /// No colours
    Mono,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a job natively: tasks × agents × attempts, in Harbor's job directory
    Run(Box<run::Run>),
    /// Run a real harbor as a child, with a screen: its arguments are passed on untouched
    Harbor(Box<harbor::HarborArgs>),
    /// Show job directories on the screen, live
    Attach(attach::Attach),
    /// List all jobs below directories: state, progress, score, owner
    Jobs(jobs::JobsArgs),
    /// Print how one or several jobs stand
    Status(status::StatusArgs),
    /// Count trials over one or several job directories
    Tally(tally::TallyArgs),
    /// List everything that is not a clean pass: class, evidence, verdict
    Triage(triage::TriageArgs),
    /// Put runs beside each other, task by task
    Compare(compare::CompareArgs),
    /// Print one file to publish: run, scores, audit, setup, tasks
    Report(report::ReportArgs),
    /// Say what became of trials: verdicts for the corrected score
    Verdict(verdict::VerdictArgs),
    /// Run a small bundled job on this machine (without Docker, model or network) and watch it
    Demo(demo::Demo),
    /// Play the terminal recording of a trial
    Replay(replay::Replay),
    /// Print how model servers stand: SGLang, vLLM, the router; from URLs and logs
    Serving(Box<serving::ServingArgs>),
    /// Run trials again in a new, small job: what failed for its surroundings, or what is named
    Requeue(Box<requeue::RequeueArgs>),
    /// Run the verifier of a trial again in its held container, without the agent
    Regrade(Box<regrade::RegradeArgs>),
    /// List the containers and snapshots that are held for regrades, or remove them
    Held(held::HeldArgs),
    /// Tell what `harbor job resume` would delete, keep and run again
    ResumePreview(resume_preview::ResumePreviewArgs),
    /// Stop a job in good order, audit what is left of it and mend that
    Stop(stop::StopArgs),
    /// Steer a job that pilothouse runs here: pause, resume, drain, cancel, slots, order
    Ctl(ctl::CtlArgs),
    /// Call the model of a job that pilothouse runs here at another address, once that was probed
    Endpoint(endpoint::EndpointArgs),
    /// List the agents that `run` knows, or print the file that describes one
    Agents(agents::AgentsArgs),
    /// List what dead trials left on this host, and remove it
    Clean(clean::CleanArgs),
}

/// Where logs and other state live: `PILOTHOUSE_STATE_DIR`, else `$XDG_STATE_HOME/pilothouse`, else
/// `~/.local/state/pilothouse`. None when there is no home.
pub fn state_dir() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    var("PILOTHOUSE_STATE_DIR")
        .or_else(|| var("XDG_STATE_HOME").map(|d| d.join("pilothouse")))
        .or_else(|| var("HOME").map(|d| d.join(".local/state/pilothouse")))
}

/// Runs a command line; gives the exit code.
pub fn main(cli: Cli) -> u8 {
    let _log = log::start(&cli.common.log_level);
    crate::tty::guard::hook_panics();
    match cli.command {
        Command::Run(args) => run::run(&args, &cli.common),
        Command::Harbor(args) => harbor::run(&args, &cli.common),
        Command::Attach(args) => attach::run(&args, &cli.common),
        Command::Jobs(args) => jobs::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Tally(args) => tally::run(&args),
        Command::Triage(args) => triage::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Verdict(args) => verdict::run(&args),
        Command::Demo(args) => demo::run(&args, &cli.common),
        Command::Replay(args) => replay::run(&args, &cli.common),
        Command::Serving(args) => serving::run(&args),
        Command::Requeue(args) => requeue::run(&args),
        Command::Regrade(args) => regrade::run(&args),
        Command::Held(args) => held::run(&args),
        Command::ResumePreview(args) => resume_preview::run(&args),
        Command::Stop(args) => stop::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Endpoint(args) => endpoint::run(&args),
        Command::Agents(args) => agents::run(&args),
        Command::Clean(args) => clean::run(&args),
    }
}

/// Prints a line to standard error; a closed one is nobody's problem.
pub fn complain(text: &str) {
    use std::io::Write;
    let clean: Vec<_> = text.lines().map(crate::job::text::clean).collect();
    let _ = writeln!(std::io::stderr(), "pilothouse: {}", clean.join("\n"));
}
