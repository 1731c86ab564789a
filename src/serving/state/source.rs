//! What is known of a source: counts, engine, offset of its clock, its last lines.

use std::collections::VecDeque;
use std::sync::Arc;

use super::clock::{OwnClock, Seconds, as_utc, of_stamp, stamp};
use crate::job::Stamp;
use crate::serving::{Engine, Event, Line, LineKind, LineTime, Place, Seen, Severity, Source, Unreached};

/// Lines kept of each source, and as many again of those that are warnings or worse.
const LINES: usize = 2_000;
/// Bytes of text kept in either of them.
const BYTES: usize = 512 * 1024;

/// A line of the log view.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// Its number in its source, from 1.
    pub number: u64,
    /// When, on the clock of the trials.
    pub at: Option<Stamp>,
    /// The time that stands on it.
    pub time: Option<LineTime>,
    /// How bad.
    pub severity: Severity,
    /// Its text.
    pub text: Arc<str>,
}

/// The newest lines, bounded in number and bytes.
#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<LogLine>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(gone) = self.lines.pop_front() else { break };
            self.bytes -= gone.text.len();
        }
    }
}

/// Attempts that got no answer, one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::serving) struct Failures {
    pub count: u32,
    pub refused: u32,
    pub since: Seconds,
}

impl Failures {
    pub(in crate::serving) fn add(&mut self, how: Unreached, t: Seconds) {
        if self.count == 0 || t < self.since {
            self.since = t;
        }
        self.count = self.count.saturating_add(1);
        if how == Unreached::Refused {
            self.refused = self.refused.saturating_add(1);
        }
    }
}

/// A source and what came from it.
#[derive(Debug)]
pub struct SourceView {
    /// As it was named.
    pub source: Source,
    /// The engine behind it.
    pub engine: Option<Engine>,
    /// Its version.
    pub version: Option<Arc<str>>,
    /// Lines of a log.
    pub lines: u64,
    /// `Decode batch` lines among them.
    pub decode_lines: u64,
    /// `Prefill batch` lines.
    pub prefill_lines: u64,
    /// vLLM's periodic lines.
    pub stats_lines: u64,
    /// Answers that could be used.
    pub answers: u64,
    /// Seconds to add to the stamps of the log's lines to get UTC, as they were placed: -28800 for a log
    /// written at UTC+8.
    pub offset: Option<i64>,
    /// Why nothing comes: a poll without answer, a log that is gone. None once something came.
    pub trouble: Option<Arc<str>>,
    /// How a poll failed last.
    pub unreached: Option<Unreached>,
    pub(in crate::serving) server: usize,
    pub(in crate::serving) failures: Failures,
    /// When something came, on the source's clock.
    pub(in crate::serving) heard: Option<Seconds>,
    pub(in crate::serving) placed: bool,
    own: OwnClock,
    tail: Tail,
    bad: Tail,
}

impl SourceView {
    pub(in crate::serving) fn new(source: Source, server: usize) -> SourceView {
        SourceView {
            source,
            engine: None,
            version: None,
            lines: 0,
            decode_lines: 0,
            prefill_lines: 0,
            stats_lines: 0,
            answers: 0,
            offset: None,
            trouble: None,
            unreached: None,
            server,
            failures: Failures::default(),
            heard: None,
            placed: false,
            own: OwnClock::default(),
            tail: Tail::default(),
            bad: Tail::default(),
        }
    }

    /// When it was last heard of; None where that can not be placed.
    pub fn last_heard(&self) -> Option<Stamp> {
        self.heard.filter(|_| self.placed).and_then(stamp)
    }

    /// Whether it is a log.
    pub fn is_log(&self) -> bool {
        !matches!(self.source.place, Place::Http(_) | Place::Metrics(_))
    }

    /// Whether several attempts in a row got nothing.
    pub fn has_failed(&self) -> bool {
        self.failures.count >= 2 || (self.trouble.is_some() && (self.is_log() || self.failures.count == 0))
    }

    /// Whether it is the URL of the server itself.
    pub(in crate::serving) fn is_base(&self) -> bool {
        matches!(self.source.place, Place::Http(_))
    }

    /// Whether its lines have times that can not be placed beside the trials.
    pub fn time_unknown(&self) -> bool {
        self.is_log() && self.lines > 0 && !self.placed
    }

    /// The last lines, oldest first: the newest ones, and older ones that are warnings or worse.
    pub fn log(&self) -> impl Iterator<Item = &LogLine> {
        let first = self.tail.lines.front().map_or(u64::MAX, |line| line.number);
        self.bad.lines.iter().filter(move |line| line.number < first).chain(&self.tail.lines)
    }

    /// The time of an observation on this source's clock, and whether that is the clock of the trials.
    pub(in crate::serving) fn moment(&mut self, at: Option<Stamp>, seen: &Seen) -> Seconds {
        let line = match seen {
            Seen::Line(line) => line.time,
            _ => None,
        };
        let t = match at {
            Some(at) => {
                self.placed = true;
                let t = of_stamp(at);
                if let Some(line) = line.and_then(as_dated) {
                    // The placing rounds to a quarter hour; arrival is some seconds later than the stamp.
                    let offset = ((t - line) / 900.0).round() * 900.0;
                    if offset.abs() <= 86_400.0 {
                        self.offset = Some(offset as i64);
                    }
                }
                t
            }
            None if self.placed => self.heard.unwrap_or(0.0),
            None => self.own.read(line),
        };
        self.heard = Some(t);
        t
    }

    /// Counts a line and keeps its text. `whole`: not a further message in the same physical line.
    pub(in crate::serving) fn count(&mut self, line: &Line, at: Option<Stamp>, whole: bool) {
        self.lines += u64::from(whole);
        let engine = match &line.kind {
            LineKind::Decode(_) => {
                self.decode_lines += 1;
                Some(Engine::Sglang)
            }
            LineKind::Prefill(_) => {
                self.prefill_lines += 1;
                Some(Engine::Sglang)
            }
            LineKind::Stats { .. } => {
                self.stats_lines += 1;
                Some(Engine::Vllm)
            }
            LineKind::Speculation(_) => Some(Engine::Vllm),
            LineKind::Event(Event::WorkerProbeFailed(_) | Event::Circuit { .. }) => Some(Engine::Router),
            LineKind::Event(Event::Retracted { .. } | Event::Watchdog { .. } | Event::HealthCheckFailed { .. }) => {
                Some(Engine::Sglang)
            }
            _ => None,
        };
        if self.engine.is_none() {
            self.engine = engine;
        }
        let Some(text) = line.text.clone().filter(|_| whole) else { return };
        let kept = LogLine { number: self.lines, at, time: line.time, severity: line.severity, text };
        if line.severity >= Severity::Warning {
            self.bad.push(kept.clone());
        }
        self.tail.push(kept);
    }

    /// Bytes on the heap, about.
    pub(in crate::serving) fn heap(&self) -> usize {
        let of = |tail: &Tail| tail.bytes + tail.lines.capacity() * size_of::<LogLine>();
        of(&self.tail) + of(&self.bad)
    }
}

/// With a date and a year; others tell no offset.
fn as_dated(time: LineTime) -> Option<Seconds> {
    time.year.and_then(|_| as_utc(time))
}
