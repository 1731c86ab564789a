//! Bytes of a log → lines → observations, in batches.

use crate::job::Stamp;
use crate::serving::clock::Placer;
use crate::serving::line::{LONGEST_READ, Reader};
use crate::serving::source::Options;
use crate::serving::{Line, LineTime, Observation, Seen, SourceId};

/// Most observations of a batch.
pub(super) const BATCH: usize = 256;

/// Cuts bytes into lines. Of a long line the beginning is kept.
#[derive(Default)]
pub(super) struct Cutter {
    line: Vec<u8>,
}

impl Cutter {
    /// Gives the lines that end in these bytes.
    pub(super) fn cut(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8])) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                take(line);
            } else {
                self.keep(line);
                take(&self.line);
                self.line.clear();
            }
        }
        self.keep(bytes);
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LONGEST_READ.saturating_sub(self.line.len());
        self.line.extend_from_slice(part.get(..room).unwrap_or(part));
    }

    /// The line that has no end yet.
    pub(super) fn rest(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.line)).filter(|line| !line.is_empty())
    }
}

/// When a line was read.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    /// As it was written.
    Live(Stamp),
    /// It was there before.
    Before(Stamp),
}

/// Makes observations of lines.
pub(super) struct Feed {
    source: SourceId,
    reader: Reader,
    placer: Placer,
    last: Option<Stamp>,
    pub(super) batch: Vec<Observation>,
}

impl Feed {
    /// `file_time`: when the log was last written.
    pub(super) fn new(source: SourceId, options: &Options, file_time: Stamp) -> Feed {
        let placer = match &options.zone {
            Some(zone) => Placer::zoned(zone.clone(), file_time),
            None => Placer::new(),
        };
        Feed { source, reader: Reader::new(), placer, last: None, batch: Vec::new() }
    }

    /// Takes a line.
    pub(super) fn line(&mut self, raw: &[u8], when: When) {
        let line = self.reader.read(raw);
        self.put(line, when);
        while let Some(line) = self.reader.more() {
            self.put(line, when);
        }
        if let Some(info) = self.reader.take_info() {
            self.see(Seen::Info(info));
        }
    }

    fn put(&mut self, line: Line, when: When) {
        let at = match (line.time, when) {
            (Some(time), When::Live(arrival)) => self.placer.live(time, arrival),
            (Some(time), When::Before(arrival)) => self.placer.backlog(time, arrival),
            // What has no time of its own belongs to the line before it.
            (None, When::Live(arrival)) => Some(arrival),
            (None, When::Before(_)) => self.last,
        };
        self.last = at;
        self.batch.push(Observation { source: self.source, at, seen: Seen::Line(line) });
    }

    /// Learns from a line when it was written, without taking it.
    pub(super) fn learn(&mut self, time: LineTime, written: Stamp) {
        self.placer.live(time, written);
    }

    /// Tells something else.
    pub(super) fn see(&mut self, seen: Seen) {
        let at = match &seen {
            Seen::Info(_) => self.last,
            _ => Some(Stamp::now()),
        };
        self.batch.push(Observation { source: self.source, at, seen });
    }

    /// A batch that is full, or all there is.
    pub(super) fn take(&mut self) -> Vec<Observation> {
        if self.batch.len() <= BATCH {
            return std::mem::take(&mut self.batch);
        }
        let rest = self.batch.split_off(BATCH);
        std::mem::replace(&mut self.batch, rest)
    }
}

/// The time of the last line that has one.
pub(super) fn last_time(bytes: &[u8]) -> Option<LineTime> {
    let mut reader = Reader::new();
    let lines = bytes.split(|b| *b == b'\n');
    lines.filter_map(|line| reader.read(line).time).last()
}
