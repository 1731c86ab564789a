//! `pilothouse stop <job dir>`: ends a job in good order, then says what is left of it.

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{FINE, NEEDS_PERSON, USAGE, load};
use crate::audit::{
    self, Audit, Found, Journal, Mended, Note, Owner, Program, Progress, StopPlan, StopSignal, Stopping, advice, check,
};
use crate::follow::Options as FollowOptions;
use crate::job::{Job, Stamp, time};

mod json;
pub(super) mod text;

/// Longest wait for Harbor's own children after Harbor has ended.
const CHILDREN: Duration = Duration::from_secs(30);

/// Stop a job in good order, then list what the stop left behind and mend it.
///
/// For jobs of pilothouse and for any Harbor job whose process is found on this host (by its open
/// job.log). Shows exactly what will be touched and asks first. Sends one signal to that one process,
/// waits, and never kills by itself. Then the audit: results without reward or exception, directories
/// without result, containers, networks, images and temporary files left over, each with its mend.
/// Trials are never deleted: they go to the quarantine in the state directory. A job that nobody works
/// on is only audited.
///
/// Exit code: 0 it has ended and nothing is left, 1 something needs a person (it did not end in time,
/// it runs elsewhere, something is left), 2 wrong arguments.
#[derive(Debug, Clone, Args)]
pub struct StopArgs {
    /// The job dir
    #[arg(value_name = "JOB_DIR")]
    pub dir: PathBuf,
    /// Signal to send; chosen by what the process handles if not given. Harbor can leave phantom results
    /// after TERM, INT is not known to; `harbor job resume` and `trial start` handle only INT
    #[arg(long, value_enum, ignore_case = true, value_name = "TERM|INT")]
    pub signal: Option<SignalArg>,
    /// How long to wait for its end
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = super::attach::seconds)]
    pub wait: f64,
    /// Do not ask before stopping (needed when standard input is no terminal)
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Mend what the audit finds; with -y without asking
    #[arg(long, conflicts_with = "audit_only")]
    pub mend: bool,
    /// Stop nothing and mend nothing: only the audit
    #[arg(long)]
    pub audit_only: bool,
    /// Print one JSON document (schema_version 1) at the end
    #[arg(long)]
    pub json: bool,
}

/// The `--signal` flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum SignalArg {
    /// SIGTERM
    #[value(alias = "SIGTERM")]
    Term,
    /// SIGINT, as Ctrl-C sends it
    #[value(alias = "SIGINT")]
    Int,
}

impl From<SignalArg> for StopSignal {
    fn from(arg: SignalArg) -> StopSignal {
        match arg {
            SignalArg::Term => StopSignal::Term,
            SignalArg::Int => StopSignal::Int,
        }
    }
}

/// What is told at the end.
#[derive(Debug, Default)]
struct Report {
    owner: Option<Found>,
    advice: Option<audit::Advice>,
    plan: Option<StopPlan>,
    stop: Option<(StopSignal, Progress)>,
    audit: Option<Audit>,
    mends: Vec<(String, Result<Mended, String>)>,
    after: Option<Audit>,
}

/// Runs the command; the exit code.
pub fn run(args: &StopArgs) -> u8 {
    let fleet = match load::scan(std::slice::from_ref(&args.dir), FollowOptions::default()) {
        Ok(fleet) => fleet,
        Err(errors) => {
            load::complain("stop", &errors);
            return USAGE;
        }
    };
    let [job] = fleet.jobs() else {
        let line = format!("{}: {} jobs in it: name one job dir", args.dir.display(), fleet.jobs().len());
        load::complain("stop", &[line]);
        return USAGE;
    };
    if job.facts.layout.is_classic() {
        return stop_classic(args, job);
    }
    let mut report = Report::default();
    let code = act(args, job, &mut report).unwrap_or_else(|code| code);
    if args.json {
        load::print(&json::document(job, &report));
    }
    code
}

/// A run of classic terminal-bench is not stopped from here: who works on it, and what to do.
fn stop_classic(args: &StopArgs, job: &Job) -> u8 {
    let next = match &job.liveness.owner {
        Some((pid, command)) => {
            let command = crate::job::text::clean(command);
            format!("{command} (pid {pid}) works on it: kill -INT {pid} ends it as Ctrl-C does in its terminal")
        }
        None => "nobody on this host holds its run.log open".to_string(),
    };
    let why = "a run of terminal-bench is not stopped or audited from here, for want of a known end of it in order";
    load::complain("stop", &[format!("{}: {why}; {next}", args.dir.display())]);
    USAGE
}

/// Says a line: on standard output, or on standard error where that is for the document.
fn say(args: &StopArgs, text: &str) {
    let text = format!("{}\n", text.trim_end());
    if args.json {
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        load::print(&text);
    }
}

/// Asks a question whose answer is no unless somebody says yes.
pub(super) fn ask(question: &str) -> bool {
    let mut err = std::io::stderr();
    let _ = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Stop, audit, mend. An early end is an error with its exit code.
fn act(args: &StopArgs, job: &Job, report: &mut Report) -> Result<u8, u8> {
    let dir = &job.facts.dir;
    let found = audit::find_owner(dir);
    report.owner = Some(found.clone());
    if !args.audit_only {
        match &found {
            Found::Here(owner) => stop(args, job, owner, report)?,
            Found::Elsewhere(_) => {
                load::complain("stop", &[format!("{} works on it: stop it there", found.words())]);
                return Err(NEEDS_PERSON);
            }
            Found::Nobody(_) | Found::Unknown(..) => say(args, &format!("nothing to stop: {}", found.words())),
        }
    }
    let audit = look(args, job)?;
    say(args, &text::audit(&audit));
    report.audit = Some(audit.clone());
    let owner = found.here().filter(|_| !args.audit_only);
    let next = |audit: &Audit| {
        if let Some(next) = audit.next(owner) {
            say(args, &format!("  for what is missing: {next}"));
        }
    };
    if args.audit_only || audit.mendable().next().is_none() || !wanted(args, &audit) {
        next(&audit);
        return Ok(verdict(&audit));
    }
    mend(args, &audit, report);
    let after = look(args, job)?;
    say(args, &text::summary(&after));
    next(&after);
    let code = verdict(&after);
    report.after = Some(after);
    Ok(code)
}

fn look(args: &StopArgs, job: &Job) -> Result<Audit, u8> {
    audit::audit(&job.facts.dir, super::state_dir().as_deref()).map_err(|e| {
        load::complain("stop", &[e.to_string()]);
        if args.audit_only { USAGE } else { NEEDS_PERSON }
    })
}

fn verdict(audit: &Audit) -> u8 {
    if audit.clean() { FINE } else { NEEDS_PERSON }
}

/// Whether to mend: by flag, or by word.
fn wanted(args: &StopArgs, audit: &Audit) -> bool {
    let n = audit.mendable().count();
    if args.mend && args.yes {
        return true;
    }
    if !std::io::stdin().is_terminal() {
        let hint = if args.mend { "give -y too" } else { "give --mend -y" };
        say(args, &format!("nothing is mended: {hint} to mend {n}"));
        return false;
    }
    ask(&format!("Mend {n} as listed?"))
}

/// Shows, asks, sends, waits.
fn stop(args: &StopArgs, job: &Job, owner: &Owner, report: &mut Report) -> Result<(), u8> {
    let advice = advice(owner, job.facts.harbor_version.as_deref());
    let signal = args.signal.map_or(advice.signal, StopSignal::from);
    let plan = audit::plan(job, Stamp::now(), owner, signal);
    say(args, &text::dialog(owner, &advice, signal, &plan));
    report.advice = Some(advice);
    report.plan = Some(plan);
    if let Some(why) = audit::objection(owner, signal) {
        if !audit::advice::works(owner, signal) {
            load::complain("stop", &[why]);
            return Err(USAGE);
        }
        say(args, &format!("  ! {why}"));
    }
    if owner.program == Program::Other && args.yes {
        let line = format!("{} is neither harbor nor pilothouse: stop it without -y, on a terminal", owner.name());
        load::complain("stop", &[line]);
        return Err(NEEDS_PERSON);
    }
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            load::complain("stop", &["nothing was sent: standard input is no terminal, so give -y".to_string()]);
            return Err(USAGE);
        }
        if !ask(&format!("Stop it with {}? (no keeps it running)", signal.name())) {
            say(args, "it keeps running");
            return Err(NEEDS_PERSON);
        }
    }
    let wait = Duration::from_secs_f64(args.wait);
    let mut told = Duration::ZERO;
    let mut on = |_: &Stopping, progress: Progress| {
        match progress {
            Progress::Sent => say(args, &format!("{} sent to pid {}", signal.name(), owner.pid)),
            Progress::Waiting { waited, left } => {
                // Often at first, then less so.
                let pace = if waited < Duration::from_secs(20) { 5 } else { 15 };
                if waited.saturating_sub(told) >= Duration::from_secs(pace) {
                    told = waited;
                    say(args, &format!("waiting: {} s, {} s left", waited.as_secs(), left.as_secs()));
                }
            }
            Progress::Ended { after } => say(args, &format!("ended after {}", time::words(after.as_secs_f64()))),
            Progress::StillThere { .. } => {}
        }
        true
    };
    let ended = audit::stop(owner, signal, wait, &mut on);
    let result = match &ended {
        Ok(Progress::Ended { after }) => format!("{} sent, ended after {:.1} s", signal.name(), after.as_secs_f64()),
        Ok(_) => format!("{} sent, still there after {:.0} s", signal.name(), args.wait),
        Err(error) => format!("not sent: {error}"),
    };
    note(args, job, owner, &result);
    match ended {
        Err(audit::StopError::Gone(_)) => {
            say(args, "it has ended by itself meanwhile");
            Ok(())
        }
        Err(error) => {
            load::complain("stop", &[error.to_string()]);
            Err(NEEDS_PERSON)
        }
        Ok(progress) => {
            report.stop = Some((signal, progress));
            if matches!(progress, Progress::Ended { .. }) {
                wait_for_children(args, job);
                return Ok(());
            }
            let again = "nothing more was done; wait with `pilothouse stop --audit-only`, or stop again: a second signal \
                         makes Harbor drop its cleaning up";
            load::complain("stop", &[format!("{} is still there after {:.0} s: {again}", owner.name(), args.wait)]);
            Err(NEEDS_PERSON)
        }
    }
}

/// A Harbor that dies at once leaves `docker compose` at work, which may be about to start something.
fn wait_for_children(args: &StopArgs, job: &Job) {
    let until = std::time::Instant::now() + CHILDREN;
    let trials: Vec<String> = check::trials_of(&job.facts.dir);
    let mut told = false;
    while let Some(first) = check::compose_at_work(&trials).into_iter().next() {
        if !told {
            say(args, &format!("{first}: waiting for it"));
            told = true;
        }
        if std::time::Instant::now() >= until {
            break;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Notes the stop. One that can not be noted is said, and was done all the same: it is for emergencies.
fn note(args: &StopArgs, job: &Job, owner: &Owner, result: &str) {
    let id = job.facts.id.as_deref().unwrap_or(&job.facts.name);
    let state = super::state_dir();
    let mut note = Note::now("stop", &owner.name(), "asked for by the operator");
    note.result = result.to_string();
    let journal = Journal::open(&job.facts.dir, state.as_deref(), id);
    match journal.and_then(|mut journal| journal.write(&note).map(|()| journal)) {
        Ok(journal) if !journal.path().starts_with(&job.facts.dir) => {
            say(args, &format!("the job dir can not be written: noted in {}", journal.path().display()));
        }
        Ok(_) => {}
        Err(error) => load::complain("stop", &[format!("the stop is not noted: {error}")]),
    }
}

fn mend(args: &StopArgs, audit: &Audit, report: &mut Report) {
    let Some(state) = super::state_dir() else {
        load::complain("stop", &["no place for the quarantine: set HOME or PILOTHOUSE_STATE_DIR".to_string()]);
        return;
    };
    for finding in audit.mendable() {
        let done = audit::mend(audit, finding, &state).map_err(|e| e.to_string());
        say(args, &text::mended(finding, &done));
        report.mends.push((finding.subject.clone(), done));
    }
}
