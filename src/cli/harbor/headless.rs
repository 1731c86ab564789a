//! A child without a screen: a line for each change, a stop in order on the first signal, the report at
//! the end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::start::{Begun, document};
use super::{HarborArgs, say};
use crate::audit::{self, Note, StopSignal};
use crate::cli::{FINE, NEEDS_PERSON, SIGNAL, STOPPED, classes, load, status};
use crate::follow::Options as FollowOptions;
use crate::job::slots::Rule;
use crate::job::{Fleet, eta, tally, warnings};
use crate::journal::Journal;
use crate::report::json::{StatusPart, Style};
use crate::report::{json, plain};
use crate::supervise::State;

/// Between two looks at the note.
const LOOK: Duration = Duration::from_millis(500);
/// Least time between two looks at the job dir; a look may take a fiftieth of the time.
const PACE: Duration = Duration::from_secs(2);
const SHARE: u32 = 50;
/// Lines of Harbor's output that are shown when it failed.
const TAIL: usize = 20;

/// Follows it to its end; gives the exit code.
pub fn follow(args: &HarborArgs, begun: Begun) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("no event loop: {error}; harbor goes on as pid {}", begun.record.child.pid));
            return NEEDS_PERSON;
        }
    };
    runtime.block_on(following(args, begun))
}

async fn following(args: &HarborArgs, mut begun: Begun) -> u8 {
    let all = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = all else {
        say(&format!("signals can not be caught; harbor goes on as pid {}", begun.record.child.pid));
        return NEEDS_PERSON;
    };
    let dir = begun.record.job_dir.clone().unwrap_or_default();
    let mut said = String::new();
    let mut next = Instant::now();
    let mut stopping = false;
    while begun.record.look(&begun.state_dir) == State::Runs {
        let asked = tokio::select! {
            () = tokio::time::sleep(LOOK) => false,
            // A lost terminal ends nothing.
            _ = hangup.recv() => false,
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
        };
        if asked && stopping {
            say(&format!("left to its end: harbor goes on as pid {}", begun.record.child.pid));
            return SIGNAL;
        }
        if asked {
            stopping = true;
            stop(&begun, &dir);
        }
        if Instant::now() >= next {
            let began = Instant::now();
            if let Some(line) = line(&dir)
                && line != said
            {
                say(&line);
                said = line;
            }
            next = Instant::now() + PACE.max(began.elapsed() * SHARE);
        }
    }
    end(args, &begun, &dir)
}

/// How the job stands, in a line.
fn line(dir: &Path) -> Option<String> {
    let fleet = load::scan(&[dir.to_path_buf()], FollowOptions::default()).ok()?;
    let job = fleet.jobs().first()?;
    let done = job.trials.values().filter(|t| t.result.is_some()).count();
    let solved = job.trials.values().filter(|t| t.result.as_ref().is_some_and(|r| r.rewards.primary() == Some(1.0)));
    let open = job.trials.len() - done;
    let planned = job.facts.n_planned().map_or("-".to_string(), |(n, _)| n.to_string());
    Some(format!("{done} of {planned} trials ended, {} solved, {open} at work", solved.count()))
}

/// Asks Harbor to stop, by the signal that it handles best.
fn stop(begun: &Begun, dir: &Path) {
    let found = audit::find_owner(dir);
    let Some(owner) = found.here().filter(|o| o.pid == begun.record.child.pid || o.program == audit::Program::Harbor)
    else {
        return say(&format!("nothing to stop: {}", found.words()));
    };
    let advice = audit::advice(owner, begun.record.version.as_deref());
    // Where both are handled, the one that leaves no phantoms: the keeper saw to it that it is not ignored.
    let other = advice.other.filter(|_| owner.int == audit::process::Disposition::Handled);
    let signal = other.map_or(advice.signal, |(signal, _)| signal);
    let sent = audit::signal(owner, signal);
    let name = match signal {
        StopSignal::Term => "SIGTERM",
        StopSignal::Int => "SIGINT",
    };
    let mut note = Note::now("stop", &owner.name(), "asked for by the operator, by a signal");
    note.result = match &sent {
        Ok(_) => format!("{name} sent"),
        Err(error) => format!("not sent: {error}"),
    };
    say(&format!("{}: {}; it takes up to a minute", owner.name(), note.result));
    let journal = Journal::open(dir, Some(&begun.state_dir), &begun.record.id);
    if let Err(error) = journal.and_then(|mut journal| journal.write(&note)) {
        say(&format!("the stop is not noted: {error}"));
    }
}

/// The report, and the exit code.
fn end(args: &HarborArgs, begun: &Begun, dir: &Path) -> u8 {
    let record = &begun.record;
    let state = record.state();
    say(&format!("harbor {}; its output: {}", state.words(), record.log.display()));
    let code = match &state {
        State::Ended(ended) => ended.code,
        _ => None,
    };
    let lines = if code == Some(0) { Vec::new() } else { record.tail(TAIL, &begun.secrets) };
    lines.iter().for_each(|line| say(&format!("  | {line}")));
    let report = report(dir, args.json);
    if args.json {
        let status = report.as_ref().and_then(|(text, _)| serde_json::from_str::<Value>(text).ok());
        load::print(&document(begun, &lines, status));
    } else if let Some((text, _)) = &report {
        load::print(text);
    }
    let of_job = report.map_or(NEEDS_PERSON, |(_, code)| code);
    match code {
        Some(0) => of_job,
        Some(130) => {
            say(&format!("what it left behind: pilothouse stop --audit-only {}", dir.display()));
            STOPPED
        }
        _ => NEEDS_PERSON.max(if of_job == FINE { NEEDS_PERSON } else { of_job }),
    }
}

fn report(dir: &Path, as_json: bool) -> Option<(String, u8)> {
    let classifier = classes::of_everybody();
    let dirs: [PathBuf; 1] = [dir.to_path_buf()];
    let fleet: Fleet = load::scan_classified(&dirs, FollowOptions::default(), &classifier).ok()?;
    let now = load::now();
    let tally = tally::count_side_by_side(&fleet, Rule::default(), now);
    let (attention, eta) = (warnings::attention(&fleet, &tally), eta::of_fleet(&fleet, now));
    let part = StatusPart { eta: eta.as_ref(), attention: &attention, works: None, now };
    let text = match as_json {
        true => json::document(&fleet, &tally, Some(&part), Style::Pretty),
        false => plain::status(&fleet, &tally, &part),
    };
    Some((text, status::code(&fleet, &tally)))
}
