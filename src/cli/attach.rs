//! `pilothouse attach <dir>...`: the screen.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc::channel;

use super::Common;
use super::ctl::link::Linked;
use super::desk::Desk;
use super::remembered::{self, Keeper};
use super::screen::{self, Start};
use super::servers::{Servers, ServingArgs};
use super::status::StatusArgs;
use super::tally::{HowArg, RuleArg};
use crate::app::class_worker;
use crate::app::derived::Counting;
use crate::app::helm::{Helm, Side};
use crate::app::model::View;
use crate::app::runtime::{Left, Steering};
use crate::follow::discover::{DirKind, kind, trial_in_job};
use crate::follow::{Control, Follower, Options};
use crate::job::{AlarmLimits, JobEvent, Stamp, time};
use crate::tty::TtyError;

/// Arguments of `attach`.
#[derive(Debug, Clone, Args)]
pub struct Attach {
    /// Job directories, directories of job directories (new jobs appear by themselves), or one trial's
    /// directory; of classic terminal-bench run directories, or what was kept of one
    /// (none: the list of all jobs below the directories that are remembered)
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Look every SECONDS instead of waiting for file events (chosen by itself on NFS, FUSE and
    /// bucket mounts)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub poll: Option<f64>,
    /// How different jobs go together; chosen from their plans if not given
    #[arg(long = "as", value_enum, value_name = "HOW")]
    pub how: Option<HowArg>,
    /// Which of two scored trials of one slot counts
    #[arg(long, value_enum, default_value = "earlier")]
    pub rule: RuleArg,
    /// When the time around the job is over (a batch job's limit, say): a time with or without zone, or
    /// +2h30m from now; what may end later needs you
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub deadline: Option<Stamp>,
    /// The model servers, and who is told of alarms.
    #[command(flatten)]
    pub serving: ServingArgs,
}

/// A point in time: RFC 3339, local time without a zone, or `+` and how long from now.
///
/// # Errors
/// What is allowed.
pub fn moment(text: &str) -> Result<Stamp, String> {
    let wrong = || "a time such as 2026-11-30T18:00:00Z, 2026-11-30T18:00 or +2h30m".to_string();
    match text.strip_prefix('+') {
        Some(span) => {
            let span: jiff::SignedDuration = span.parse().map_err(|_| wrong())?;
            Stamp::now().checked_add(span).map_err(|_| wrong())
        }
        None => time::parse(text).map(|read| read.at).ok_or_else(wrong),
    }
}

/// A number of seconds between 0.1 and a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.1..=86_400.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds between 0.1 and 86400".to_string()),
    }
}

/// Batches of news that may wait for the screen; then the follower waits.
const QUEUE: usize = 64;

/// Runs it; gives the exit code.
pub fn run(args: &Attach, common: &Common) -> u8 {
    for dir in &args.dirs {
        if let Err(error) = std::fs::metadata(dir) {
            super::complain(&format!("{}: {error}: give a job directory or a directory of jobs", dir.display()));
            return super::USAGE;
        }
    }
    if let Err(error) = super::classes::load(None) {
        super::complain(&error.to_string());
        return super::USAGE;
    }
    if args.dirs.is_empty() && (remembered::roots().is_empty() || !std::io::stdout().is_terminal()) {
        super::complain(
            "no directory is given, and none is remembered: pilothouse attach DIR, with a job dir or the \
                         directory above job dirs",
        );
        return super::USAGE;
    }
    if !std::io::stdout().is_terminal() {
        args.serving.complain_without_screen();
        // Lines for a pipe or a log: the same report again whenever something changed.
        let args = StatusArgs {
            dirs: args.dirs.clone(),
            json: false,
            plain: true,
            watch: true,
            poll: args.poll,
            deadline: args.deadline,
        };
        return super::status::run(&args);
    }
    let servers = match args.serving.prepare() {
        Ok(servers) => servers,
        Err(why) => {
            super::complain(&why);
            return super::USAGE;
        }
    };
    for dir in &args.dirs {
        let job = trial_in_job(dir).map(|(job, _)| job);
        let is_job = job.is_some() || kind(dir).is_ok_and(|kind| kind == DirKind::Job);
        let real = [remembered::real(&job.unwrap_or_else(|| dir.clone()))];
        let kept = if is_job { remembered::attached(&real) } else { remembered::remember(&real) };
        if let Err(why) = kept {
            tracing::warn!(why, "what is attached is not remembered");
        }
    }
    let mut console = match screen::Console::open(common) {
        Ok(console) => console,
        Err(error) => return screen::code(Err(error)),
    };
    let left = screens(args, servers, &mut console);
    // The terminal is given back before anything is said.
    drop(console);
    match left {
        Ok(left) => screen::code(left),
        Err(why) => {
            super::complain(&why);
            super::USAGE
        }
    }
}

/// One screen after another: what is opened from the list of jobs has one of its own.
fn screens(args: &Attach, servers: Servers, console: &mut screen::Console) -> Result<Result<Left, TtyError>, String> {
    let (mut args, mut servers) = (args.clone(), servers);
    let mut from_list = args.dirs.is_empty();
    loop {
        let left = one(&args, servers, console, from_list);
        if !matches!(left, Ok(Left::Elsewhere)) {
            return Ok(left);
        }
        // The servers and the deadline that were named belong to the jobs that were.
        let serving =
            ServingArgs { no_bell: args.serving.no_bell, notify: args.serving.notify, ..ServingArgs::default() };
        args = Attach { dirs: std::mem::take(&mut console.next), how: None, deadline: None, serving, ..args };
        servers = args.serving.prepare()?;
        from_list = true;
    }
}

fn one(args: &Attach, servers: Servers, console: &mut screen::Console, from_list: bool) -> Result<Left, TtyError> {
    let counting = Counting { how: args.how.map(Into::into), rule: args.rule.into(), ..Counting::default() };
    // A trial's directory attaches its job and opens the trial.
    let trial = match args.dirs.as_slice() {
        [only] => trial_in_job(only).map(|(_, name)| name.to_string_lossy().into_owned()),
        _ => None,
    };
    let list = args.dirs.is_empty();
    let ended = match args.dirs.as_slice() {
        [only] => super::harbor::notes::how_it_ended(only),
        _ => None,
    };
    let prepare: screen::Prepare = Box::new(move |model| {
        model.open_when_seen = trial.map(Into::into);
        if let Some(ended) = ended {
            crate::app::update::notice(model, ended);
        }
        (model.jobs.opens, model.jobs.home) = (true, from_list);
        if list {
            model.views.push(View::Jobs);
        }
        Vec::new()
    });
    let (news, heard) = channel(QUEUE);
    let desk = Desk::new(news.clone()).with_servers(servers.remote.clone());
    // One job of our own can be steered from here, too.
    let only = match args.dirs.as_slice() {
        [only] => Some(trial_in_job(only).map_or_else(|| only.clone(), |(job, _)| job.to_path_buf())),
        _ => None,
    };
    let linked = only.and_then(|dir| Linked::begin(dir, desk.clone(), news).ok());
    let helm: Box<dyn Helm> = match linked {
        Some(linked) => Box::new(linked),
        None => Box::new(desk),
    };
    let steering = Steering { helm, news: heard };
    let watched = Watched {
        dirs: args.dirs.clone(),
        poll: args.poll,
        counting,
        prepare,
        leave: None,
        steering: Some((Side::Attached, steering)),
        deadline: args.deadline,
        servers: Some(servers),
    };
    watch_on(console, watched)
}

/// Follows `dirs` on the screen until it is left, by the operator or by `leave`.
pub fn on_screen(
    dirs: Vec<PathBuf>,
    poll: Option<f64>,
    counting: Counting,
    common: &Common,
    prepare: screen::Prepare,
    leave: Option<tokio::sync::oneshot::Receiver<()>>,
) -> u8 {
    // Nothing is steered here, but what is said of trials is written down.
    let (news, heard) = channel(QUEUE);
    let steering = Some((Side::Reader, Steering { helm: Box::new(Desk::new(news)), news: heard }));
    screen::code(watch(
        common,
        Watched { dirs, poll, counting, prepare, leave, steering, deadline: None, servers: None },
    ))
}

/// What is watched, and how.
pub struct Watched {
    /// Job dirs and directories of them.
    pub dirs: Vec<PathBuf>,
    /// Seconds between two looks, where they are not to be chosen.
    pub poll: Option<f64>,
    /// How several jobs go together.
    pub counting: Counting,
    /// Prepares the model before the first frame.
    pub prepare: screen::Prepare,
    /// Leaves the screen when something is sent.
    pub leave: Option<tokio::sync::oneshot::Receiver<()>>,
    /// What can be steered from it.
    pub steering: Option<(Side, Steering)>,
    /// When the time around the jobs is over.
    pub deadline: Option<Stamp>,
    /// The model servers.
    pub servers: Option<Servers>,
}

/// Follows directories on the screen until it is left; says how.
///
/// # Errors
/// When there is no screen, or nothing to follow with.
pub fn watch(common: &Common, watched: Watched) -> Result<Left, TtyError> {
    watch_on(&mut screen::Console::open(common)?, watched)
}

/// The same on a terminal that is taken already.
fn watch_on(console: &mut screen::Console, watched: Watched) -> Result<Left, TtyError> {
    let Watched { dirs, poll, counting, prepare, leave, steering, deadline, servers } = watched;
    let poll = poll.map(Duration::from_secs_f64);
    let options = Options { poll, state_dir: super::state_dir(), ..Options::default() };
    let named = dirs.clone();
    let follower = Follower::new(dirs, options);
    let remote = follower.remote();
    let (watching, following) = (remote.clone(), remote.clone());
    let (news, jobs) = channel::<Vec<JobEvent>>(QUEUE);
    let classes = news.clone();
    let classifier = super::classes::of_everybody();
    let limits = AlarmLimits { deadline, ..classifier.alarm_limits() };
    let prepare: screen::Prepare = Box::new(move |model| {
        model.fleet.alarm_limits = limits;
        remembered::prepare(model, &named);
        prepare(model)
    });
    std::thread::Builder::new()
        .name("follow".into())
        .spawn(move || {
            let classes = class_worker::spawn(classifier, move |events| classes.blocking_send(events).is_ok());
            follower.run(Box::new(move |events| {
                crate::app::runtime::panic_if_asked("follow", true);
                classes.show(&events);
                news.blocking_send(events).is_ok()
            }));
        })
        .map_err(TtyError::Setup)?;
    let watch = Box::new(move |key| watching.send(Control::Visible(key)));
    let follow = Box::new(move |dir| following.send(Control::Follow(dir)));
    let keeper = Keeper::begin();
    let keep = keeper.way();
    let start = Start { jobs: Some(jobs), watch, follow, keep, counting, prepare, leave, steering, servers };
    let left = console.show(start);
    remote.stop();
    left
}
