//! `pilothouse serving`: how model servers stand, from their logs and their answers.

pub mod beside;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{FINE, NEEDS_PERSON, SIGNAL, USAGE, load};
use crate::job::Stamp;
use crate::job::time::from_system;
use crate::report::json::Style;
use crate::report::serving;
use crate::serving::clock::{Midnights, Placer, zone};
use crate::serving::line::{LONGEST_READ, Reader};
use crate::serving::source::{self, Options, Spec};
use crate::serving::{
    Demand, LineTime, Observation, Place, Seen, Serving, Severity, Source, SourceId, Thresholds, ThresholdsError,
};

/// Print how model servers stand: sources, replicas, diagnoses.
///
/// A SOURCE is the URL of a server or router (http://HOST:PORT), a log file, metrics:URL, docker:CONTAINER
/// or cmd:COMMAND (such as "cmd:ssh host tail -F /var/log/sglang.log"); NAME= before it says of which server
/// it tells. Log files alone are read to their end, in their own time, and reported on; everything else is
/// asked until a first full picture is there, or followed with --watch.
///
/// Thresholds come from --thresholds, then $XDG_CONFIG_HOME/pilothouse/serving.toml, then the shipped ones.
///
/// Exit code: 0 nothing needs a person, 1 an error or worse holds (at the end of a finished log: what was over
/// by then does not count), 2 wrong arguments, 130 stopped by a signal.
#[derive(Debug, Clone, Args)]
pub struct ServingArgs {
    /// URLs, log files, metrics:URL, docker:CONTAINER, cmd:COMMAND
    #[arg(required = true, value_name = "SOURCE", value_parser = spec)]
    pub sources: Vec<Spec>,
    /// Print one JSON document (schema_version 1); with --watch or --replay-speed one line for each change
    #[arg(long)]
    pub json: bool,
    /// Follow the sources and print again when something changed, until stopped
    #[arg(long, conflicts_with = "replay_speed")]
    pub watch: bool,
    /// Replay finished logs in their own time, so many times as fast; 0 is at once
    #[arg(long, value_name = "N", value_parser = speed)]
    pub replay_speed: Option<f64>,
    /// Zone in which the logs were written: UTC, +08:00, Asia/Shanghai, local; without it the times of a
    /// finished log are not placed
    #[arg(long, value_name = "ZONE", value_parser = tz)]
    pub serving_tz: Option<jiff::tz::TimeZone>,
    /// A job that the servers served: without --serving-tz the times of a finished log are found by its
    /// answers and the turns of the job's trials
    #[arg(long, value_name = "DIR", conflicts_with = "serving_tz")]
    pub beside: Vec<PathBuf>,
    /// Thresholds that differ from the shipped ones, in the form of serving.toml
    #[arg(long, value_name = "FILE")]
    pub thresholds: Option<PathBuf>,
    /// Ask for loads every SECONDS
    #[arg(long, value_name = "SECONDS", value_parser = super::attach::seconds, default_value = "2")]
    pub poll: f64,
    /// Environment variable that holds the servers' API key
    #[arg(long, value_name = "NAME")]
    pub serving_key_env: Option<String>,
}

/// A source, as a value of the command line.
///
/// # Errors
/// What is allowed.
pub fn spec(text: &str) -> Result<Spec, String> {
    source::parse(text).map_err(|error| error.to_string())
}

/// A zone, as a value of the command line.
///
/// # Errors
/// What is allowed.
pub fn tz(text: &str) -> Result<jiff::tz::TimeZone, String> {
    zone(text).ok_or_else(|| "a zone such as UTC, +08:00, Asia/Shanghai or local".to_string())
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.0..=1e6).contains(&n) => Ok(n),
        _ => Err("a number from 0 to 1000000".to_string()),
    }
}

/// Largest file of thresholds, in bytes.
const LARGEST: u64 = 1 << 20;
/// The shortest time between two reports.
const PACE: Duration = Duration::from_secs(2);
/// Longest wait for a first full picture.
const PATIENCE: Duration = Duration::from_secs(12);
/// Longest sleep of a replay in one go.
const NAP: f64 = 1.0;

/// The thresholds of a command: a file that was named, then the operator's own, then the shipped ones.
///
/// # Errors
/// Where a file is wrong: file, line, and what is allowed.
pub fn thresholds(named: Option<&PathBuf>) -> Result<Thresholds, ThresholdsError> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|d| d.join(".config")));
    let own = home.map(|dir| dir.join("pilothouse/serving.toml")).filter(|file| file.symlink_metadata().is_ok());
    let mut texts = Vec::new();
    for path in named.cloned().into_iter().chain(own) {
        let file = path.display().to_string();
        let text = read(&path).map_err(|what| ThresholdsError { file: file.clone(), line: None, what })?;
        texts.push((file, text));
    }
    Thresholds::of_texts(&texts)
}

/// The thresholds where nothing may stop a screen from opening: what is wrong goes to the log.
pub fn thresholds_of_everybody() -> Thresholds {
    thresholds(None).unwrap_or_else(|error| {
        tracing::error!(%error, "the shipped thresholds hold");
        Thresholds::shipped()
    })
}

fn read(path: &Path) -> Result<String, String> {
    use std::io::Read;
    // Asked before it is opened: a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(|e| e.to_string())?.is_file() {
        return Err("not a file".to_string());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > LARGEST { Err(format!("more than {LARGEST} bytes")) } else { Ok(text) }
}

/// Runs the command; the exit code.
pub fn run(args: &ServingArgs) -> u8 {
    let thresholds = match thresholds(args.thresholds.as_ref()) {
        Ok(thresholds) => thresholds,
        Err(error) => {
            load::complain("serving", &[error.to_string()]);
            return USAGE;
        }
    };
    let sources = source::sources(&args.sources);
    let logs = sources.iter().all(|s| matches!(s.place, Place::File(_)));
    if args.replay_speed.is_some() && !logs {
        load::complain("serving", &["--replay-speed is for log files: give no other sources with it".to_string()]);
        return USAGE;
    }
    if logs && !args.watch {
        return replay(args, sources, thresholds);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            load::complain("serving", &[format!("no event loop: {error}")]);
            return NEEDS_PERSON;
        }
    };
    let code = runtime.block_on(following(args, sources, thresholds));
    // A command that hangs in its pipe does not hold this one up.
    runtime.shutdown_timeout(Duration::from_secs(2));
    code
}

/// 1 while an error or worse holds.
fn code(serving: &Serving) -> u8 {
    if serving.open().any(|d| d.severity >= Severity::Error) { NEEDS_PERSON } else { FINE }
}

/// Prints reports of one command, in its form.
struct Printer {
    json: bool,
    last: Option<(Instant, String)>,
}

impl Printer {
    /// What would be printed, without ages: when that changes, there is something to tell.
    fn gist(serving: &Serving) -> String {
        use std::fmt::Write as _;
        let mut out = String::new();
        for row in serving.replicas() {
            let f = row.figures();
            let _ = write!(out, "{:?}{}{:?}{:?}{:?};", row.key, row.state.name(), f.running, f.queued, f.kv);
        }
        for d in serving.diagnoses() {
            let _ = write!(out, "{}{}{:?}{};", d.kind.name(), d.server, d.since, d.over);
        }
        for s in serving.sources() {
            let _ = write!(out, "{:?}{:?};", s.engine, s.trouble);
        }
        out
    }

    /// Prints where something changed and the last report is not too young. False when nobody reads.
    fn changed(&mut self, serving: &Serving, at: Option<Stamp>) -> bool {
        if self.last.as_ref().is_some_and(|(printed, _)| printed.elapsed() < PACE) {
            return true;
        }
        let gist = Printer::gist(serving);
        if self.last.as_ref().is_some_and(|(_, last)| *last == gist) {
            return true;
        }
        let first = self.last.is_none();
        self.last = Some((Instant::now(), gist));
        let text = if self.json {
            serving::json(serving, Style::Line)
        } else {
            let head = at.map_or_else(String::new, |at| format!("at {at:.0}\n"));
            format!("{}{head}{}", if first { "" } else { "\n" }, serving::plain(serving))
        };
        load::print(&text)
    }

    fn whole(&self, serving: &Serving) -> bool {
        load::print(&if self.json { serving::json(serving, Style::Pretty) } else { serving::plain(serving) })
    }
}

/// A finished log: lines, one at a time, with their times where they can be placed.
struct Finished {
    id: SourceId,
    lines: Lines,
    reader: Reader,
    placer: Option<Placer>,
    /// The next observations, with the time that a replay keeps to.
    next: std::collections::VecDeque<Observation>,
    now: Option<Stamp>,
}

/// Lines of a file; of longer ones only as much as is looked at is kept.
struct Lines {
    file: BufReader<File>,
    line: Vec<u8>,
}

impl Lines {
    fn open(path: &Path) -> std::io::Result<Lines> {
        let kind = std::fs::metadata(path)?;
        if !kind.is_file() {
            return Err(std::io::Error::other("not a file: name a log, or cmd:COMMAND for what has to be run"));
        }
        Ok(Lines { file: BufReader::with_capacity(1 << 18, File::open(path)?), line: Vec::new() })
    }

    /// The next line, without more than is read of one. None at the end.
    fn next(&mut self) -> std::io::Result<Option<&[u8]>> {
        self.line.clear();
        let mut any = false;
        loop {
            let (used, ended) = {
                let bytes = self.file.fill_buf()?;
                if bytes.is_empty() {
                    return Ok(any.then_some(self.line.as_slice()));
                }
                any = true;
                let end = memchr::memchr(b'\n', bytes);
                let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
                // One byte more than is read tells the reader that something was cut off.
                let room = (LONGEST_READ + 1).saturating_sub(self.line.len()).min(part.len());
                self.line.extend_from_slice(part.get(..room).unwrap_or_default());
                (end.map_or(part.len(), |end| end + 1), end.is_some())
            };
            self.file.consume(used);
            if ended {
                return Ok(Some(self.line.as_slice()));
            }
        }
    }
}

impl Finished {
    fn open(source: &Source, zone: Option<&jiff::tz::TimeZone>, moments: &[Stamp]) -> std::io::Result<Finished> {
        let Place::File(path) = &source.place else { return Err(std::io::Error::other("not a log file")) };
        let lines = Lines::open(path)?;
        let written = std::fs::metadata(path)?.modified().ok().and_then(from_system);
        let written = written.unwrap_or_else(load::now);
        let placer = match zone {
            None if moments.is_empty() => None,
            None => beside::placer(path, written, moments)?,
            Some(zone) => Some(Placer::zoned(zone.clone(), written).over(midnights(path)?)),
        };
        let reader = Reader::new();
        Ok(Finished { id: source.id, lines, reader, placer, next: Default::default(), now: None })
    }

    /// The next observation and the time on the log's own clock; None at the end.
    fn take(&mut self) -> std::io::Result<Option<(Observation, bool)>> {
        if let Some(seen) = self.next.pop_front() {
            return Ok(Some((seen, false)));
        }
        let Some(raw) = self.lines.next()? else { return Ok(None) };
        let line = self.reader.read(raw);
        let mut at = |time: Option<LineTime>| {
            if let (Some(placer), Some(time)) = (&mut self.placer, time) {
                self.now = placer.place(time).or(self.now);
            }
            self.now
        };
        let first = Observation { source: self.id, at: at(line.time), seen: Seen::Line(line) };
        if let Some(info) = self.reader.take_info() {
            self.next.push_back(Observation { source: self.id, at: first.at, seen: Seen::Info(info) });
        }
        while let Some(more) = self.reader.more() {
            self.next.push_back(Observation { source: self.id, at: at(more.time), seen: Seen::Line(more) });
        }
        Ok(Some((first, true)))
    }
}

/// The midnights of a log whose lines have no date, by reading it once.
fn midnights(path: &Path) -> std::io::Result<Midnights> {
    let mut lines = Lines::open(path)?;
    let mut reader = Reader::new();
    let mut out = Midnights::default();
    let mut undated = 0;
    let mut number = 0u64;
    while let Some(raw) = lines.next()? {
        let Some(time) = reader.read(raw).time else { continue };
        number += 1;
        undated += u64::from(time.date.is_none());
        // Lines have dates, or do not.
        if number == 200 && undated == 0 {
            break;
        }
        out.see(time);
    }
    Ok(out)
}

/// Reads finished logs to their ends, side by side in their own time.
fn replay(args: &ServingArgs, sources: Vec<Source>, thresholds: Thresholds) -> u8 {
    let moments = match args.beside.as_slice() {
        [] => Vec::new(),
        dirs => match beside::moments(dirs) {
            Ok(moments) => moments,
            Err(errors) => {
                load::complain("serving", &errors);
                return USAGE;
            }
        },
    };
    let mut logs = Vec::new();
    let mut wrong = Vec::new();
    for source in &sources {
        match Finished::open(source, args.serving_tz.as_ref(), &moments) {
            Ok(log) => logs.push(log),
            Err(error) => wrong.push(format!("{}: {error}", serving::place_words(&source.place))),
        }
    }
    if !wrong.is_empty() {
        load::complain("serving", &wrong);
        return USAGE;
    }
    let mut state = Serving::new(sources, thresholds).of_finished_logs();
    let mut printer = Printer { json: args.json, last: None };
    let mut pacer = args.replay_speed.filter(|n| *n > 0.0).map(Pacer::new);
    if !merge(&mut logs, &mut state, &mut printer, pacer.as_mut()) {
        return FINE;
    }
    state.settle();
    let reads = match &pacer {
        None => printer.whole(&state),
        Some(_) => {
            printer.last = None;
            printer.changed(&state, None)
        }
    };
    if reads { code(&state) } else { FINE }
}

/// Takes the lines of all logs in the order of their times. False when nobody reads the reports any more.
fn merge(logs: &mut [Finished], state: &mut Serving, printer: &mut Printer, mut pacer: Option<&mut Pacer>) -> bool {
    let mut heads: Vec<Option<(Observation, bool)>> = Vec::new();
    for log in logs.iter_mut() {
        heads.push(head(log));
    }
    loop {
        // Logs without times are read one after the other.
        let first = heads.iter().enumerate().filter_map(|(n, head)| Some((head.as_ref()?.0.at, n))).min();
        let Some((_, n)) = first else { return true };
        let next = logs.get_mut(n).and_then(head);
        let Some(Some((seen, counts))) = heads.get_mut(n).map(|slot| std::mem::replace(slot, next)) else {
            return true;
        };
        if let Some(pacer) = pacer.as_deref_mut() {
            pacer.wait(&seen);
        }
        if counts {
            state.observe(&seen)
        } else {
            state.observe_more(&seen)
        }
        if let Some(pacer) = pacer.as_deref_mut()
            && pacer.told.elapsed() >= PACE
        {
            pacer.told = Instant::now();
            if !printer.changed(state, seen.at) {
                return false;
            }
        }
    }
}

/// The next of a log; what can not be read any more ends it.
fn head(log: &mut Finished) -> Option<(Observation, bool)> {
    log.take().unwrap_or_else(|error| {
        load::complain("serving", &[format!("a log ends early: {error}")]);
        None
    })
}

/// Keeps a replay to the time of its lines.
struct Pacer {
    speed: f64,
    last: Option<f64>,
    told: Instant,
}

impl Pacer {
    fn new(speed: f64) -> Pacer {
        Pacer { speed, last: None, told: Instant::now() }
    }

    fn wait(&mut self, seen: &Observation) {
        let placed = seen.at.map(|at| at.as_microsecond() as f64 / 1e6);
        // Without a zone the differences still count.
        let own = match &seen.seen {
            Seen::Line(line) => line.time.and_then(|time| {
                let (month, day) = time.date.unwrap_or((1, 1));
                let date = jiff::civil::Date::new(time.year.unwrap_or(2000), month, day).ok()?;
                let days = f64::from(date.since(jiff::civil::Date::ZERO).ok()?.get_days());
                Some(days * 86_400.0 + f64::from(time.millis) / 1e3)
            }),
            _ => None,
        };
        let Some(now) = placed.or(own) else { return };
        let Some(last) = self.last.replace(now) else { return };
        // A jump of hours is a cut in the log: nobody waits for that.
        let mut left = ((now - last) / self.speed).clamp(0.0, 3600.0);
        while left > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(left.min(NAP)));
            left -= NAP;
        }
    }
}

/// Follows sources, live.
async fn following(args: &ServingArgs, sources: Vec<Source>, thresholds: Thresholds) -> u8 {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        load::complain("serving", &["signals can not be caught".to_string()]);
        return NEEDS_PERSON;
    };
    let options = Options {
        api_key_env: args.serving_key_env.clone(),
        poll: Duration::from_secs_f64(args.poll),
        zone: args.serving_tz.clone(),
        ..Options::default()
    };
    let problems = options.problems();
    if !problems.is_empty() {
        load::complain("serving", &problems);
        return USAGE;
    }
    let (sender, mut seen) = mpsc::channel::<Vec<Observation>>(source::WAITING);
    let mut state = Serving::new(sources.clone(), thresholds);
    let handle = source::start(sources, &options, sender);
    let mut printer = Printer { json: args.json, last: None };
    let begun = Instant::now();
    let mut full = None;
    let code = loop {
        tokio::select! {
            _ = interrupt.recv() => break SIGNAL,
            _ = terminate.recv() => break SIGNAL,
            batch = seen.recv() => match batch {
                Some(batch) => {
                    state.observe_all(&batch);
                    while let Ok(batch) = seen.try_recv() {
                        state.observe_all(&batch);
                    }
                }
                None => break NEEDS_PERSON,
            },
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
        let now = load::now();
        if state.earliest_due().is_none_or(|due| now >= due) {
            state.tick(now, &Demand::default());
        }
        if args.watch {
            if !printer.changed(&state, Some(now)) {
                break FINE;
            }
            continue;
        }
        // A second picture tells rates, and whether a refusal was one of two.
        if full.is_none() && known(&state) {
            full = Some(Instant::now());
        }
        let settled = full.is_some_and(|at: Instant| at.elapsed().as_secs_f64() >= args.poll.min(3.0) + 0.5);
        if settled || begun.elapsed() >= PATIENCE {
            state.tick(now, &Demand::default());
            printer.whole(&state);
            break code(&state);
        }
    };
    drop(handle);
    code
}

/// Whether every source has said something, or twice that it can not.
fn known(state: &Serving) -> bool {
    state.sources().iter().all(|s| s.answers > 1 || s.lines > 0 || s.has_failed())
}
