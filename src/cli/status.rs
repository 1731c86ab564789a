//! `pilothouse status`: how jobs stand, once or whenever something changes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::ctl::{client, works};
use super::{FINE, INFRA, NEEDS_PERSON, SIGNAL, USAGE, classes, load};
use crate::follow::{Follower, Options as FollowOptions};
use crate::job::fleet::StateKind;
use crate::job::slots::Rule;
use crate::job::tally::{self, Tally};
use crate::job::{Class, Fleet, JobEvent, Regrades, Stamp, eta, warnings};
use crate::report::json::{StatusPart, Style, Works};
use crate::report::{json, plain};
use crate::triage::Classifier;

/// Print how one or several jobs stand: state, counts, scores, time to the end, what needs a person.
///
/// Exit code: 0 nothing needs a person, 1 something does, 2 wrong arguments, 3 infra errors are among the
/// trials that count, 130 stopped by a signal.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Job dirs, or directories of job dirs
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Print one JSON document (schema_version 1); with --watch one line for each change
    #[arg(long, conflicts_with = "plain")]
    pub json: bool,
    /// Print plain text (the default)
    #[arg(long)]
    pub plain: bool,
    /// Print again when something changed, until all jobs are finished
    #[arg(long)]
    pub watch: bool,
    /// With --watch: look every SECONDS instead of waiting for file events
    #[arg(long, value_name = "SECONDS", value_parser = super::attach::seconds, requires = "watch")]
    pub poll: Option<f64>,
    /// When the time around the job is over (a batch job's limit, say): a time with or without zone, or
    /// +2h30m from now; what may end later needs a person
    #[arg(long, value_name = "TIME", value_parser = super::attach::moment)]
    pub deadline: Option<Stamp>,
}

/// The shortest time between two reports of `--watch`.
const PACE: Duration = Duration::from_secs(2);
/// Batches of events on their way; the follower waits when they are full.
const QUEUE: usize = 64;

/// Runs the command; the exit code.
pub fn run(args: &StatusArgs) -> u8 {
    let classifier = match classes::load(None) {
        Ok(classifier) => classifier.until(args.deadline),
        Err(error) => {
            load::complain("status", &[error.to_string()]);
            return USAGE;
        }
    };
    if args.watch {
        return watch(args, &classifier);
    }
    let fleet = match load::scan_classified(&args.dirs, FollowOptions::default(), &classifier) {
        Ok(fleet) => fleet,
        Err(errors) => {
            load::complain("status", &errors);
            return USAGE;
        }
    };
    let report = Report::new(&fleet, load::now());
    load::print(&report.text(&fleet, args.json, Style::Pretty));
    report.code(&fleet)
}

/// What is printed.
struct Report {
    tally: Tally,
    eta: Option<eta::Eta>,
    attention: Vec<warnings::Attention>,
    works: Works,
    now: Stamp,
}

impl Report {
    fn new(fleet: &Fleet, now: Stamp) -> Report {
        let tally = tally::count_side_by_side(fleet, Rule::default(), now);
        let mut attention = warnings::attention(fleet, &tally);
        let works = works(fleet, &tally, now);
        attention.extend(long(fleet, &works));
        Report { eta: eta::of_fleet(fleet, now), attention, tally, works, now }
    }

    fn text(&self, fleet: &Fleet, as_json: bool, style: Style) -> String {
        let works = Some(&self.works);
        let part = StatusPart { eta: self.eta.as_ref(), attention: &self.attention, works, now: self.now };
        if as_json {
            json::document(fleet, &self.tally, Some(&part), style)
        } else {
            plain::status(fleet, &self.tally, &part)
        }
    }

    fn code(&self, fleet: &Fleet) -> u8 {
        match code(fleet, &self.tally) {
            FINE if self.works.values().any(|told| told.long.is_some()) => NEEDS_PERSON,
            code => code,
        }
    }
}

/// What trials at work say that they do, where pilothouse runs their jobs on this host.
fn works(fleet: &Fleet, tally: &Tally, now: Stamp) -> Works {
    let state = super::state_dir();
    let limits = super::serving::thresholds_of_everybody();
    let mut out = Works::new();
    for (at, (job, line)) in fleet.jobs().iter().zip(&tally.jobs).enumerate() {
        if line.state.kind != StateKind::Running {
            continue;
        }
        let mut told = client::works(&job.facts.dir, state.as_deref());
        works::judge(&mut told, &limits.thinking, now);
        let known = told.into_iter().filter_map(|one| Some((job.trials.get_key_value(&*one.trial)?.0.clone(), one)));
        out.extend(known.map(|(name, one)| ((at, name), one)));
    }
    out
}

/// Calls of the model that go on unusually long.
fn long(fleet: &Fleet, works: &Works) -> Option<warnings::Attention> {
    let mut all = works.iter().filter_map(|((at, name), told)| Some((*at, name, told.long.as_ref()?)));
    let (at, name, long) = all.next()?;
    let path = fleet.jobs().get(at).map(|job| job.facts.dir.join(&**name).display().to_string());
    Some(warnings::Attention {
        kind: "thinking",
        count: 1 + all.count() as u64,
        message: format!("{name}: {long}"),
        path: path.unwrap_or_default(),
    })
}

/// The exit code of a count.
pub fn code(fleet: &Fleet, tally: &Tally) -> u8 {
    if infra(fleet, tally) {
        INFRA
    } else if tally.needs_person() {
        NEEDS_PERSON
    } else {
        FINE
    }
}

/// Faults of the surroundings are among the trials that count.
pub fn infra(fleet: &Fleet, tally: &Tally) -> bool {
    tally.rows.iter().filter(|row| row.place == tally::Place::Chosen).any(|row| {
        let Some(job) = fleet.jobs().get(row.job) else { return false };
        let trial = row.trial.as_ref().and_then(|name| job.trials.get(name));
        let infra = trial.and_then(|trial| job.class_of(trial)).is_some_and(|class| class.class == Class::Infra);
        // What its verifier said later, counts: nobody has to do anything about it any more.
        infra && trial.is_some_and(|trial| tally.regrades == Regrades::Ignore || trial.regrade().is_none())
    })
}

fn watch(args: &StatusArgs, classifier: &Classifier) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            load::complain("status", &[format!("no event loop: {error}")]);
            return NEEDS_PERSON;
        }
    };
    runtime.block_on(watching(args, classifier))
}

async fn watching(args: &StatusArgs, classifier: &Classifier) -> u8 {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        load::complain("status", &["signals can not be caught".to_string()]);
        return NEEDS_PERSON;
    };
    let options = FollowOptions {
        poll: args.poll.map(std::time::Duration::from_secs_f64),
        state_dir: super::state_dir(),
        ..FollowOptions::default()
    };
    let follower = Follower::new(args.dirs.clone(), options);
    let remote = follower.remote();
    let (sender, mut events) = mpsc::channel::<Vec<JobEvent>>(QUEUE);
    let thread = std::thread::spawn(move || follower.run(Box::new(move |batch| sender.blocking_send(batch).is_ok())));

    let mut fleet = Fleet::default();
    let mut printed: Option<Printed> = None;
    let code = loop {
        tokio::select! {
            _ = interrupt.recv() => break SIGNAL,
            _ = terminate.recv() => break SIGNAL,
            batch = events.recv() => match batch {
                Some(batch) => {
                    batch.into_iter().for_each(|event| fleet.apply(event));
                    // What is waiting belongs to the same report.
                    while let Ok(batch) = events.try_recv() {
                        batch.into_iter().for_each(|event| fleet.apply(event));
                    }
                }
                None => break NEEDS_PERSON,
            },
            () = tokio::time::sleep(PACE) => {}
        }
        let errors = load::wrong_roots(&fleet, &args.dirs);
        if !fleet.problems.is_empty() && fleet.jobs().is_empty() && !errors.is_empty() {
            load::complain("status", &errors);
            break USAGE;
        }
        if fleet.jobs().is_empty() || fleet.jobs().iter().any(|job| !job.settled) {
            continue;
        }
        let now = load::now();
        let states: Vec<StateKind> = fleet.jobs().iter().map(|job| job.state(now).kind).collect();
        let finished = states.iter().all(|state| *state == StateKind::Finished);
        let changed = printed.as_ref().is_none_or(|p| p.revision != fleet.revision || p.states != states);
        let due = finished || printed.as_ref().is_none_or(|p| p.at.elapsed() >= PACE);
        if !(changed && due) {
            if finished {
                break printed.as_ref().map_or(FINE, |p| p.code);
            }
            continue;
        }
        load::classify(classifier, &mut fleet, now);
        let report = Report::new(&fleet, now);
        let mut text = report.text(&fleet, args.json, Style::Line);
        if !args.json {
            text = format!("{}at {now:.0}\n{text}", if printed.is_some() { "\n" } else { "" });
        }
        let code = report.code(&fleet);
        if !load::print(&text) || finished {
            break code;
        }
        printed = Some(Printed { at: Instant::now(), revision: fleet.revision, states, code });
    };
    remote.stop();
    // The thread ends at once: its receiver is gone.
    drop(events);
    let _ = thread.join();
    code
}

struct Printed {
    at: Instant,
    revision: u64,
    states: Vec<StateKind>,
    code: u8,
}
