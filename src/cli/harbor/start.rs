//! The remarks, the question, the start, and the wait for the job dir.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{HarborArgs, KEEP, headless, look, say, shown};
use crate::audit::process::Handle;
use crate::cli::{Common, FINE, NEEDS_PERSON, SIGNAL, STOPPED, USAGE, load};
use crate::harbor::run_config::{HarborVersion, is_sensitive_name};
use crate::job::text::{clean, mask_secrets};
use crate::requeue::source;
use crate::supervise::keeper::{self, Order};
use crate::supervise::remarks::remarks;
use crate::supervise::{Asked, Command, Record, Remark, State};

/// Lines of Harbor's output that are shown when it ends without a job dir.
const TAIL: usize = 20;
/// Between two looks at the note.
const LOOK: Duration = Duration::from_millis(200);
/// After so long without a job dir its last words are shown once.
const LONG: Duration = Duration::from_secs(60);

/// A child that was started, with what has to stay out of everything that is shown.
pub struct Begun {
    /// Its note.
    pub record: Record,
    /// What was said before.
    pub remarks: Vec<Remark>,
    /// Values that are never shown.
    pub secrets: Vec<String>,
    /// Where the notes are.
    pub state_dir: PathBuf,
}

/// Starts Harbor and watches it; gives the exit code.
pub fn run(args: &HarborArgs, command: Command, common: &Common) -> u8 {
    let refuse = |line: String| {
        load::complain("harbor", &[line]);
        USAGE
    };
    let Some(state_dir) = crate::cli::state_dir() else {
        return refuse("no place for its output: set HOME or PILOTHOUSE_STATE_DIR".to_string());
    };
    let state_dir = std::path::absolute(&state_dir).unwrap_or(state_dir);
    let named = args.harbor.clone().or_else(|| source::Surroundings::of(&state_dir, None).harbor);
    let Some(program) = source::program(named.as_deref()) else {
        let named = named.map_or("harbor".to_string(), |p| p.display().to_string());
        return refuse(format!("{named}: no such program: install Harbor, or name it with --harbor PATH"));
    };
    let cwd = match std::env::current_dir() {
        Ok(cwd) => cwd,
        Err(error) => return refuse(format!("no directory to start in: {error}")),
    };
    let version = look::version(&program);
    let (command, remarks) = match weigh(args, command, &cwd, &program, version.as_deref()) {
        Ok(weighed) => weighed,
        Err(code) => return code,
    };
    let asked = Asked::read(&command, &cwd, look::known(version.as_deref()));
    // A resume is asked for where it was told, wherever that version of Harbor goes then.
    let asked = if asked.resumes { asked.from_job.clone() } else { asked.dir() };
    let secrets = secrets(&command);
    let order = Order {
        state_dir: state_dir.clone(),
        program,
        version,
        words: Order::bytes(&command.words),
        shown: command.shown(),
        cwd,
        asked,
    };
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("pilothouse"));
    let record = match keeper::start(&order, &own, &["harbor", KEEP]) {
        Ok(record) => record,
        Err(why) => return refuse(why),
    };
    let begun = Begun { record, remarks, secrets, state_dir };
    let (version, pid) = (begun.record.version.as_deref().unwrap_or("-"), begun.record.child.pid);
    say(&format!("harbor {version} runs as pid {pid}; its output: {}", begun.record.log.display()));
    wait(args, begun, common)
}

/// Waits for the job dir of a child, then watches it; gives the exit code.
pub fn wait(args: &HarborArgs, begun: Begun, common: &Common) -> u8 {
    let pid = begun.record.child.pid;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("no event loop: {error}; harbor goes on: pilothouse harbor attach {pid}"));
            return NEEDS_PERSON;
        }
    };
    let arrived = runtime.block_on(arrive(begun));
    // A screen has a loop of its own.
    drop(runtime);
    match arrived {
        Arrived::There(begun) => watch(args, begun, common),
        Arrived::Ended(begun) => early(args, &begun),
        Arrived::Left(code) => code,
    }
}

fn watch(args: &HarborArgs, begun: Begun, common: &Common) -> u8 {
    let record = &begun.record;
    let dir = record.job_dir.clone().unwrap_or_default();
    if record.unexpected() {
        let asked = record.asked.as_ref().map(|d| d.display().to_string()).unwrap_or_default();
        say(&format!("! it writes into {}, not into {asked}", dir.display()));
    } else {
        say(&format!("job dir {}", dir.display()));
    }
    if args.detach {
        say(&format!("left running: pilothouse harbor attach {}", record.child.pid));
        if args.json {
            load::print(&document(&begun, &[], None));
        }
        return FINE;
    }
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.headless || args.json || !terminal {
        args.serving.complain_without_screen();
        return headless::follow(args, begun);
    }
    shown::show(&args.serving, common, &begun.record, &begun.state_dir)
}

/// Weighs what is to be said against the start, and asks where that is due.
fn weigh(
    args: &HarborArgs,
    mut command: Command,
    cwd: &Path,
    program: &Path,
    version: Option<&str>,
) -> Result<(Command, Vec<Remark>), u8> {
    let judge = |command: &Command| {
        let asked = Asked::read(command, cwd, look::known(version));
        let seen = if args.no_look { look::little(&asked) } else { look::around(&asked, program) };
        remarks(&asked, &seen)
    };
    let mut found = judge(&command);
    let offered = |found: &[Remark]| -> Vec<String> { found.iter().flat_map(|r| r.add.clone()).collect() };
    let mut add = offered(&found);
    if args.fix && !add.is_empty() {
        tell(&found);
        say(&format!("added, as --fix says: {}", add.join(" ")));
        command = command.and(&add);
        found = judge(&command);
        add = offered(&found);
    }
    tell(&found);
    let asks = found.iter().filter(|r| r.asks).count();
    if args.check {
        if args.json {
            let list: Vec<Value> = found.iter().map(remark_json).collect();
            let whole = json!({"schema_version": 1, "started": false, "remarks": list});
            load::print(&format!("{}\n", serde_json::to_string_pretty(&whole).unwrap_or_default()));
        }
        return Err(if asks > 0 { NEEDS_PERSON } else { FINE });
    }
    if args.yes || (asks == 0 && add.is_empty()) {
        return Ok((command, found));
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() || args.json || args.headless {
        if asks == 0 {
            return Ok((command, found));
        }
        let offer = if add.is_empty() { "" } else { ", or --fix for what is offered" };
        load::complain(
            "harbor",
            &[format!("nothing was started: --yes before the command starts it all the same{offer}")],
        );
        return Err(USAGE);
    }
    match question(asks > 0, &add) {
        Choice::Start => Ok((command, found)),
        Choice::Add => {
            command = command.and(&add);
            Ok((command, found))
        }
        Choice::No => {
            say("nothing was started");
            Err(USAGE)
        }
    }
}

enum Choice {
    Start,
    Add,
    No,
}

/// Where something speaks against it, no is the answer unless somebody says yes.
fn question(asks: bool, add: &[String]) -> Choice {
    let mut err = std::io::stderr();
    let text = match (asks, add.is_empty()) {
        (true, true) => "Start it all the same? [y/N] ".to_string(),
        (true, false) => format!("Start it all the same? y: as it is, a: with {}, no: not [y/a/N] ", add.join(" ")),
        (false, _) => format!("Start it with {}? y: yes, as: as it is, no: not [Y/as/no] ", add.join(" ")),
    };
    let _ = write!(err, "{}", clean(&text)).and_then(|()| err.flush());
    let mut answer = String::new();
    if std::io::stdin().read_line(&mut answer).is_err() || answer.is_empty() {
        return Choice::No;
    }
    match (asks, answer.trim().to_ascii_lowercase().as_str()) {
        (true, "y" | "yes") | (false, "as" | "s") => Choice::Start,
        (true, "a" | "add") if !add.is_empty() => Choice::Add,
        (false, "" | "y" | "yes") => Choice::Add,
        _ => Choice::No,
    }
}

/// Says the remarks, each with its remedy.
fn tell(found: &[Remark]) {
    for remark in found {
        let mark = if remark.asks { "!" } else { "-" };
        let remedy = if remark.remedy.is_empty() { String::new() } else { format!("\n    {}", remark.remedy) };
        say(&mask_secrets(&format!("{mark} {}{remedy}", remark.what)));
    }
}

/// As JSON.
pub fn remark_json(remark: &Remark) -> Value {
    let text = |s: &str| clean(&mask_secrets(s)).into_owned();
    json!({"kind": remark.kind, "asks": remark.asks, "what": text(&remark.what), "remedy": text(&remark.remedy),
        "add": remark.add})
}

/// What is never shown: the secrets of the command line and of the environment.
pub fn secrets(command: &Command) -> Vec<String> {
    let mut out: Vec<String> = command.secrets().into_iter().chain(environment_secrets()).collect();
    out.sort_by_key(|value| std::cmp::Reverse(value.len()));
    out.dedup();
    out
}

/// The secrets of this process's environment, by their names.
pub fn environment_secrets() -> Vec<String> {
    let env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    env.filter(|(name, value)| is_sensitive_name(name) && value.len() > 5).map(|(_, value)| value).collect()
}

enum Arrived {
    There(Begun),
    Ended(Begun),
    Left(u8),
}

/// Waits until it is known where Harbor writes, or it has ended.
async fn arrive(mut begun: Begun) -> Arrived {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt()).ok(), signal(SignalKind::terminate()).ok());
    let mut hangup = signal(SignalKind::hangup()).ok();
    let started = Instant::now();
    let (mut told, mut worried) = (false, false);
    loop {
        let state = begun.record.look(&begun.state_dir);
        if begun.record.job_dir.is_some() {
            return Arrived::There(begun);
        }
        if state != State::Runs {
            return Arrived::Ended(begun);
        }
        if !told && started.elapsed() > Duration::from_secs(1) {
            told = true;
            say("waiting for its job dir: it loads for 5 to 20 s; Ctrl-C asks what to do");
        }
        if !worried && started.elapsed() > LONG {
            worried = true;
            say("still no job dir: a dataset or tasks may be on their way; its last words:");
            begun.record.tail(5, &begun.secrets).iter().for_each(|line| say(&format!("  | {line}")));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = heard(&mut interrupt) => if let Some(code) = leave(&begun.record) { return Arrived::Left(code) },
            () = heard(&mut terminate) => return Arrived::Left(left(&begun.record)),
            () = heard(&mut hangup) => return Arrived::Left(SIGNAL),
        }
    }
}

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

fn left(record: &Record) -> u8 {
    say(&format!("harbor goes on as pid {0}: pilothouse harbor attach {0}", record.child.pid));
    SIGNAL
}

/// Ctrl-C before there is a job dir: stop it, leave it, or wait on.
fn leave(record: &Record) -> Option<u8> {
    if !std::io::stdin().is_terminal() {
        return Some(left(record));
    }
    let mut err = std::io::stderr();
    let question = "\nStop harbor, leave it running, or wait on? s: stop, l: leave, Enter: wait ";
    let _ = write!(err, "{question}").and_then(|()| err.flush());
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim() {
        "l" | "leave" => Some(left(record)),
        "s" | "stop" => {
            let sent = Handle::open(record.child.pid, record.child.started)
                .map(|handle| handle.send(rustix::process::Signal::INT));
            match sent {
                Some(Ok(())) => say("SIGINT sent: it ends without having begun a job"),
                _ => say("it is gone already"),
            }
            None
        }
        _ => None,
    }
}

/// Harbor ended before it had a job dir: all there is are its last words.
fn early(args: &HarborArgs, begun: &Begun) -> u8 {
    let record = &begun.record;
    let lines = record.tail(TAIL, &begun.secrets);
    say(&format!("harbor {} before it made a job dir; its last words:", record.state().words()));
    if lines.is_empty() {
        say("  (it said nothing)");
    }
    lines.iter().for_each(|line| say(&format!("  | {line}")));
    say(&format!("all of them: {}", record.log.display()));
    if args.json {
        load::print(&document(begun, &lines, None));
    }
    match record.state() {
        State::Ended(ended) => match ended.code {
            // Nothing to be done, `--print-config` and the like.
            Some(0) => FINE,
            Some(2) => USAGE,
            Some(130) => STOPPED,
            _ => NEEDS_PERSON,
        },
        _ => NEEDS_PERSON,
    }
}

/// What is known at the end as one JSON document.
pub fn document(begun: &Begun, output: &[String], status: Option<Value>) -> String {
    let whole = json!({
        "schema_version": 1, "started": true, "harbor": begun.record.json(),
        "remarks": begun.remarks.iter().map(remark_json).collect::<Vec<_>>(), "output": output, "status": status,
    });
    format!("{}\n", serde_json::to_string_pretty(&whole).unwrap_or_default())
}

/// The behaviour that is known for a version: that of 0.21 or that of 0.26.
pub fn behaviour(version: &str) -> Option<HarborVersion> {
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().ok());
    match (numbers.next()??, numbers.next()??) {
        (0, minor) if minor < 26 => Some(HarborVersion::V0_21),
        _ => Some(HarborVersion::V0_26),
    }
}
