//! `pilothouse harbor run …`: a real harbor as a child, with a screen.
//!
//! | part | what it does |
//! |---|---|
//! | [`look`] | looks up what the remarks before the start need: keys, models, Docker, images |
//! | [`start`] | the remarks, the question, the start, the wait for the job dir |
//! | [`shown`] | the ordinary screen on its job dir, with the question when it is left |
//! | [`headless`] | a line for each change, to the end |
//! | [`notes`] | `harbor list`, `harbor attach` |

pub mod headless;
pub mod look;
pub mod notes;
pub mod shown;
pub mod start;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::servers::ServingArgs;
use super::{Common, USAGE, load};
use crate::supervise::{Command, keeper};

/// What `--help` says at its end.
const ABOUT: &str = "\
The rule: pilothouse's own flags come before COMMAND; everything from COMMAND on is harbor's and is
passed on untouched, whatever it looks like.

  pilothouse harbor [FLAGS] run …            harbor run …
  pilothouse harbor [FLAGS] job start …      harbor job start …
  pilothouse harbor [FLAGS] job resume …     harbor job resume …
  pilothouse harbor list                     what was started so, alive or not, with exit codes
  pilothouse harbor attach JOB_DIR|PID|ID    the screen once more; a process that has ended is told of

Harbor gets a process group in a session without terminal, /dev/null as its standard input, a file in
the state directory for its output, this directory and these environment variables. It goes on
whatever happens to the screen or the shell, and its exit code is known afterwards. What would go wrong
is said before it starts, each with its remedy; some of it wants a yes.

Exit codes: 0 nothing needs a person, or it was left running; 1 something does, or harbor failed;
2 wrong arguments, or nothing was started; 3 infrastructure errors; 75 stopped early, resumable;
130 left by a signal.";

/// Arguments of `pilothouse harbor`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = ABOUT, override_usage = "pilothouse harbor [FLAGS] COMMAND [HARBOR'S ARGUMENTS]...")]
pub struct HarborArgs {
    /// The harbor program; else PILOTHOUSE_HARBOR, else the one on the PATH
    #[arg(long, value_name = "PATH")]
    pub harbor: Option<PathBuf>,
    /// No screen: a line for each change, until harbor has ended
    #[arg(long, visible_alias = "plain")]
    pub headless: bool,
    /// No screen; at the end one JSON document (schema_version 1), all else on standard error
    #[arg(long)]
    pub json: bool,
    /// Start it and leave at once, when its job dir is known
    #[arg(long)]
    pub detach: bool,
    /// Start whatever is to be said against it (needed without a terminal where something is)
    #[arg(long)]
    pub yes: bool,
    /// Add what the remarks offer: -y, --ek auto_mounting=true, …
    #[arg(long)]
    pub fix: bool,
    /// Say what is to be said, and start nothing
    #[arg(long)]
    pub check: bool,
    /// Start without looking at keys, models, Docker and images
    #[arg(long)]
    pub no_look: bool,
    /// The model servers, and who is told of alarms.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// Harbor's command with its arguments, or list, or attach
    #[arg(value_name = "COMMAND", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Runs it; gives the exit code.
pub fn run(args: &HarborArgs, common: &Common) -> u8 {
    let first = args.words.first().map(|w| w.to_string_lossy().into_owned()).unwrap_or_default();
    match first.as_str() {
        KEEP => return keep(),
        "list" => return notes::list(args),
        "attach" => return notes::attach(args, common),
        _ => {}
    }
    match Command::read(&args.words) {
        Some(command) => start::run(args, command, common),
        None => {
            let line = match first.starts_with('-') {
                true => format!("{first}: no flag of pilothouse harbor; harbor's own come after its command"),
                false => format!(
                    "{first}: only run, job start and job resume work on a job that can be watched: call harbor itself \
                     for the rest"
                ),
            };
            load::complain("harbor", &[line]);
            USAGE
        }
    }
}

/// The process that keeps a child. No signal ends it; what is handled here is at its default in the child: a
/// shell that put us into the background may have had SIGINT ignored, and Harbor could not be stopped by it.
fn keep() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let ears = runtime.as_ref().ok().map(|runtime| {
        let _inside = runtime.enter();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        kinds.map(signal)
    });
    let code = keeper::main();
    drop(ears);
    code
}

/// The word for a keeper: not for use by hand.
pub const KEEP: &str = "keep";

/// Says a line on standard error, safe for a terminal.
pub fn say(text: &str) {
    super::complain(text);
}
