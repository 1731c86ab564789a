//! A job without a screen: a line for each change, signals, the report at the end.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::detach::own_group_and_session;
use super::owner::{self, Ended, Owner, Terms};
use super::prepare::{Prepared, Refusal};
use super::tasks::Invalid;
use crate::cli::{classes, load, status};
use crate::follow::{Follower, Options};
use crate::harbor::write::WriteError;
use crate::job::phase::{Phase, Writer, of_trial};
use crate::job::tally::{self, Tally};
use crate::job::{Fleet, Grade, JobEvent, Stamp, Trial};
use crate::report::json::Style;
use crate::report::{json, plain};
use crate::scheduler::{Control, RunError};
use crate::serving::{Thinking, thinking};

/// Time between two looks at the job dir.
const LOOK: Duration = Duration::from_secs(5);
/// How long a job that is being stopped may still take after a second signal.
const SHORTENED: Duration = Duration::from_secs(10);

/// How long a job that has not begun may still take to do so after a signal: half begun is no better.
const BEGINNING: Duration = Duration::from_secs(3);

/// What is printed where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The final report as JSON on standard output, everything else on standard error.
    pub json: bool,
    /// No progress lines.
    pub quiet: bool,
}

impl Output {
    /// Prints a line for people. One that nobody reads is no reason to stop a job.
    pub fn say(self, text: &str) {
        let line = crate::job::text::clean(text);
        let _ = match self.json {
            true => writeln!(std::io::stderr(), "{line}"),
            false => writeln!(std::io::stdout(), "{line}"),
        };
    }
}

/// How far signals have taken a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Nothing new begins, what runs is stopped in order.
    Stop,
    /// As before, and the rest of it has only so long.
    Hurry(Duration),
    /// At once, whatever is left.
    Abort,
}

/// What signals to the owner of a job mean: the first stops it in order, the second shortens the wait,
/// the third ends it.
#[derive(Debug, Default)]
pub struct Stops {
    heard: u32,
    deadline: Option<Instant>,
}

impl Stops {
    /// Takes in one signal and steers the job by it.
    pub fn hear(&mut self, control: &Control) -> Asked {
        self.heard += 1;
        match self.heard {
            1 => {
                control.cancel();
                Asked::Stop
            }
            2 => {
                self.deadline = Some(Instant::now() + SHORTENED);
                Asked::Hurry(SHORTENED)
            }
            _ => Asked::Abort,
        }
    }

    /// True once a signal came.
    pub fn stopped(&self) -> bool {
        self.heard > 0
    }

    /// Waits until the shortened wait is over; for ever when there is none.
    pub async fn over(&self) {
        until(self.deadline).await;
    }
}

/// What the system asks of an owner.
#[derive(Debug)]
pub struct Ears {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// The run was left to itself: keys of the terminal mean others.
    detached: Option<Signal>,
}

impl Ears {
    /// Hears from now on, instead of the default actions. Must be called inside the runtime that waits.
    ///
    /// # Errors
    /// Those of installing a signal handler.
    pub fn new() -> std::io::Result<Ears> {
        Ok(Ears {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            detached: None,
        })
    }

    /// From now on what is typed on the terminal is for somebody else: Ctrl-C and Ctrl-Z there neither
    /// stop the run nor hold it up. A signal that a process sends counts as before.
    ///
    /// # Errors
    /// Those of installing a signal handler.
    pub fn detach(&mut self) -> std::io::Result<()> {
        self.detached = Some(signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?);
        Ok(())
    }

    /// The next signal that asks for an end. A lost terminal does not: the run goes on.
    async fn hear(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {
                    if self.detached.is_some() && in_the_foreground() {
                        tracing::info!("SIGINT from the terminal that was left: not for this run");
                        continue;
                    }
                    return "SIGINT";
                }
                () = typed(&mut self.detached) => {}
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.hangup.recv() => tracing::info!("SIGHUP: the run goes on without a terminal"),
            }
        }
    }
}

/// Whether this process group has the terminal: a key there reaches it.
fn in_the_foreground() -> bool {
    let tty = std::fs::File::open("/dev/tty");
    let its = tty.ok().and_then(|tty| rustix::termios::tcgetpgrp(&tty).ok());
    its.is_some_and(|group| own_group_and_session().is_some_and(|(ours, _)| ours == group.as_raw_pid()))
}

/// Takes a Ctrl-Z in, and does nothing about it.
async fn typed(stop: &mut Option<Signal>) {
    match stop {
        Some(stop) => {
            let _ = stop.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Begins a job, and gives up when a signal says so before it has begun: None then.
///
/// # Errors
/// Why it did not begin.
pub async fn start(
    prepared: Prepared,
    terms: Terms,
    ears: &mut Ears,
    out: Output,
) -> Result<Option<(Owner, Stops)>, Refusal> {
    let mut starting = tokio::task::spawn_blocking(move || owner::start(prepared, terms));
    let (mut stops, mut deadline) = (Stops::default(), None);
    loop {
        tokio::select! {
            started = &mut starting => {
                let owner = started.map_err(|e| Refusal::of(&format!("can not start the job: {e}")))??;
                if deadline.is_some() {
                    stops.hear(&owner.control);
                }
                return Ok(Some((owner, stops)));
            }
            name = ears.hear() => {
                if deadline.is_some() {
                    return Ok(None);
                }
                out.say(&format!("{name}: stopping before the first trial"));
                deadline = Some(Instant::now() + BEGINNING);
            }
            () = until(deadline) => return Ok(None),
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Follows a job, which signals may have reached before, to its end; gives the exit code.
pub async fn follow_to_end(mut owner: Owner, invalid: &[Invalid], out: Output, mut stops: Stops, mut ears: Ears) -> u8 {
    let mut progress = Progress::default();
    let mut long = Long::default();
    let mut looks = Looks::begin(&owner.dir, out.quiet);
    let ended = loop {
        tokio::select! {
            ended = &mut owner.done => break ended.ok(),
            () = looks.next() => {
                progress.print(&looks.fleet, out);
                long.print(&owner.control, out);
            }
            name = ears.hear() => if signalled(&mut stops, &owner.control, name, out) { break None },
            () = stops.over() => break None,
        }
    };
    let (dir, smoke) = (owner.dir.clone(), owner.smoke_failed.clone());
    let Some((ended, left)) = ended else {
        if !stops.stopped() {
            return crate::cli::FAULT;
        }
        out.say(&format!("aborted: {} has trials without result: {}", dir.display(), resume_words(&dir)));
        return crate::cli::SIGNAL;
    };
    owner.join();
    let fleet = looks.last().await;
    let code = report(&dir, fleet.as_ref(), &(ended, left), invalid, stops.stopped(), out, &mut progress);
    if smoke.load(Ordering::Relaxed) && code == crate::cli::STOPPED { crate::cli::INFRA } else { code }
}

/// Looks at the job's own directory, as anybody else would.
struct Looks {
    dir: PathBuf,
    fleet: Fleet,
    /// None while a look is being taken.
    follower: Option<Follower>,
    looking: Option<JoinHandle<(Follower, Vec<JobEvent>)>>,
    /// None where nobody wants to hear of it before the end.
    due: Option<Instant>,
}

impl Looks {
    fn begin(dir: &Path, quiet: bool) -> Looks {
        let options = Options { owner: false, ..Options::default() };
        Looks {
            dir: dir.to_path_buf(),
            fleet: Fleet::default(),
            follower: Some(Follower::new(vec![dir.to_path_buf()], options)),
            looking: None,
            due: (!quiet).then(|| Instant::now() + LOOK),
        }
    }

    /// Waits for the next look and takes in what it saw. Nothing is lost when it is dropped before.
    async fn next(&mut self) {
        if self.looking.is_none() {
            until(self.due).await;
            self.look(Follower::pass);
        }
        self.take_in().await;
        self.due = Some(Instant::now() + LOOK);
    }

    fn look(&mut self, how: impl FnOnce(&mut Follower, &mut dyn FnMut(Vec<JobEvent>) -> bool) + Send + 'static) {
        if let Some(mut follower) = self.follower.take() {
            // On a thread of its own: the disk may be slow, signals are heard all the same.
            self.looking = Some(tokio::task::spawn_blocking(move || {
                let mut events = Vec::new();
                how(&mut follower, &mut |batch| {
                    events.extend(batch);
                    true
                });
                (follower, events)
            }));
        }
    }

    async fn take_in(&mut self) {
        let Some(looking) = &mut self.looking else { return };
        match looking.await {
            Ok((follower, events)) => {
                self.follower = Some(follower);
                events.into_iter().for_each(|event| self.fleet.apply(event));
            }
            Err(error) => tracing::warn!(%error, "a look at the job dir broke off"),
        }
        self.looking = None;
    }

    /// What is there at the end; None when the directory can not be read any more.
    async fn last(mut self) -> Option<Fleet> {
        self.take_in().await;
        self.look(Follower::scan_once);
        self.take_in().await;
        let Looks { dir, mut fleet, .. } = self;
        if !load::wrong_roots(&fleet, &[dir]).is_empty() {
            return None;
        }
        // The rules cost a moment; where everything passed they have little to say.
        let passed = |t: &Trial| t.result.as_ref().is_some_and(|r| r.grade() == Grade::Passed);
        if !fleet.jobs().iter().flat_map(|job| job.trials.values()).all(passed) {
            let classed = move || {
                load::classify(&classes::of_everybody(), &mut fleet, load::now());
                fleet
            };
            return tokio::task::spawn_blocking(classed).await.ok();
        }
        Some(fleet)
    }
}

/// Gives true when the job is to be left at once.
fn signalled(stops: &mut Stops, control: &Control, name: &str, out: Output) -> bool {
    let asked = stops.hear(control);
    tracing::warn!(name, ?asked, "signal");
    match asked {
        Asked::Stop => {
            out.say(&format!("{name}: stopping: nothing new begins, running trials are cancelled and recorded"));
        }
        Asked::Hurry(rest) => {
            out.say(&format!("{name} again: {} s more, then what is left is aborted", rest.as_secs()));
        }
        Asked::Abort => out.say(&format!("{name} a third time: aborting")),
    }
    asked == Asked::Abort
}

/// What was printed of each trial last.
#[derive(Debug, Default)]
struct Progress {
    seen: BTreeMap<String, String>,
}

impl Progress {
    fn print(&mut self, fleet: &Fleet, out: Output) {
        for job in fleet.jobs() {
            let planned = job.facts.n_planned().map(|(n, _)| n);
            let mut done = self.seen.values().filter(|w| w.starts_with("done")).count();
            for trial in job.trials.values() {
                let words = words(trial);
                if self.seen.get(&*trial.name) == Some(&words) {
                    continue;
                }
                done += usize::from(words.starts_with("done"));
                let of = planned.map_or("-".to_string(), |n| n.to_string());
                out.say(&format!("{:.0}  {done}/{of} done  {}  {words}", Stamp::now(), trial.name));
                self.seen.insert(trial.name.to_string(), words);
            }
        }
    }
}

/// Calls of the model that go on unusually long, and of which it was said.
struct Long {
    limits: Thinking,
    said: BTreeMap<Arc<str>, Stamp>,
}

impl Default for Long {
    fn default() -> Long {
        Long { limits: crate::cli::serving::thresholds_of_everybody().thinking, said: BTreeMap::new() }
    }
}

impl Long {
    /// Says it once of each.
    fn print(&mut self, control: &Control, out: Output) {
        let now = Stamp::now();
        let works = control.board().read();
        self.said.retain(|name, _| works.iter().any(|(there, _)| there == name));
        for (name, work) in works {
            let Some(long) = thinking::long(&work, None, &self.limits, now) else { continue };
            if self.said.insert(Arc::clone(&name), long.since) != Some(long.since) {
                out.say(&format!("{now:.0}  {name}  {}", long.text()));
            }
        }
    }
}

/// `agent_running`, `done: passed, reward 1`.
fn words(trial: &Trial) -> String {
    let phase = of_trial(trial, Writer::Possible);
    match phase {
        Phase::Done => format!("done: {}", plain::outcome_words(trial)),
        // Episodes are nothing that a line is wanted for.
        other => other.word().to_string(),
    }
}

/// How to go on with a job.
pub fn resume_words(dir: &Path) -> String {
    format!("pilothouse run --resume {} goes on with it", dir.display())
}

/// The last words on a job, and the exit code.
fn report(
    dir: &Path,
    read: Option<&Fleet>,
    (ended, left): &Ended,
    invalid: &[Invalid],
    signalled: bool,
    out: Output,
    progress: &mut Progress,
) -> u8 {
    let counted =
        read.map(|fleet| (fleet, tally::count_side_by_side(fleet, crate::job::slots::Rule::default(), load::now())));
    // What was written last was still on its way.
    if let (Some(fleet), false) = (read, out.quiet) {
        progress.print(fleet, out);
    }
    match (&counted, out.json) {
        (Some((fleet, tally)), true) => {
            load::print(&json::document(fleet, tally, None, Style::Pretty));
        }
        (Some((fleet, tally)), false) => {
            load::print(&format!("\n{}", plain::tally(fleet, tally)));
        }
        (None, _) => {}
    }
    for task in invalid {
        out.say(&format!("not run: task {}: {}", task.name, task.why));
    }
    for line in left {
        out.say(&format!("left behind: {line}"));
    }
    match ended {
        Err(error) => {
            crate::cli::complain(&error.to_string());
            tracing::error!(%error, "the job broke off");
            match error {
                RunError::Write(WriteError::Lease { .. } | WriteError::Vanished { .. }) => crate::cli::NEEDS_PERSON,
                RunError::Write(_) => {
                    out.say(&resume_words(dir));
                    crate::cli::STOPPED
                }
                RunError::Trial(_) | RunError::Agent(_) => crate::cli::FAULT,
            }
        }
        Ok(finished) if !finished.complete => {
            out.say(&format!(
                "stopped: {} of {} planned trials ended, {} never began: {}",
                finished.ended,
                finished.planned,
                finished.queued,
                resume_words(dir)
            ));
            if signalled { crate::cli::SIGNAL } else { crate::cli::STOPPED }
        }
        Ok(_) => match &counted {
            Some((fleet, tally)) => code(fleet, tally, !invalid.is_empty() || !left.is_empty()),
            None => crate::cli::NEEDS_PERSON,
        },
    }
}

/// Of a job that came to its end: what `status` says of it, and what it can not see.
fn code(fleet: &Fleet, tally: &Tally, more: bool) -> u8 {
    match status::code(fleet, tally) {
        crate::cli::FINE if more => crate::cli::NEEDS_PERSON,
        code => code,
    }
}
