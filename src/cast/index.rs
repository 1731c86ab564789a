//! A line index over a cast, without its text: where each event is and when it happened.
//!
//! 16 bytes per event, built in slices, extended when the file has grown. The last line counts as an
//! event as soon as it is complete JSON, also without a line end; it stays provisional until more of
//! the file is there, so that reading a growing file in any pieces gives what one reading would.

use std::io;

use memchr::memchr;
use serde_json::Value;
use serde_json::value::RawValue;

use super::format::{
    CastError, Depth, Header, HeaderFault, Kind, MAX_GAP_US, MAX_HEADER, MAX_LINE, MAX_V1, RawEvent, Version,
    parse_event, parse_size, short,
};
use super::source::Source;

/// Events that are indexed at most (half a gigabyte of index); the rest is left out and told.
pub const MAX_EVENTS: usize = 32 << 20;
/// Markers that are kept at most.
pub const MAX_MARKERS: usize = 10_000;
/// Skipped lines that are listed; all are counted.
const LISTED: usize = 8;
/// Bytes read at once.
const CHUNK: usize = 256 << 10;
/// Bytes at the end of the indexed part that must not change while the file grows.
const GUARD: usize = 4096;

/// Where an event is and when it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Byte offset of the line, times 8, plus the kind.
    place: u64,
    /// Microseconds since the start of the recording.
    pub time: u64,
}

impl Entry {
    fn new(offset: u64, kind: Kind, time: u64) -> Entry {
        Entry { place: offset << 3 | kind.to_bits(), time }
    }

    pub fn offset(self) -> u64 {
        self.place >> 3
    }

    pub fn kind(self) -> Kind {
        Kind::from_bits(self.place & 7)
    }
}

/// A marker of the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Number of its event, from 0.
    pub event: usize,
    /// When, in microseconds since the start of the recording.
    pub(crate) time_us: u64,
    /// Its text, safe to show; may be empty.
    pub label: String,
}

impl Marker {
    /// When, since the start of the recording.
    pub fn time(&self) -> std::time::Duration {
        std::time::Duration::from_micros(self.time_us)
    }
}

/// A line that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// 1-based line of the file.
    pub line: u64,
    /// What is wrong, in words, safe to show.
    pub why: String,
}

/// What was odd about a recording and how it was met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Lines that are no event and were skipped, also those above the size limit.
    pub bad_lines: u64,
    /// The first of them.
    pub first_bad: Vec<BadLine>,
    /// Lines above [`MAX_LINE`] among them.
    pub long_lines: u64,
    /// Times earlier than the one before, or negative: such an event gets the time of the one before.
    pub backward_steps: u64,
    /// Times that are no number, and gaps above a year, which are cut to it.
    pub odd_times: u64,
    /// The last line is cut off (normal for a recording that is being written or was killed).
    pub truncated: bool,
    /// There are more than [`MAX_EVENTS`] events; the rest is left out.
    pub too_many_events: bool,
}

/// The counting state, small enough to be kept for undoing the provisional last line.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    time: u64,
    raw: f64,
    backward_steps: u64,
    odd_times: u64,
    bad_lines: u64,
}

#[derive(Debug, Clone, Copy)]
struct Tail {
    before: Tally,
    events: usize,
    markers: usize,
    end: u64,
}

/// The index. Built by [`Index::slice`], see the module.
#[derive(Debug)]
pub(crate) struct Index {
    pub name: String,
    pub header: Header,
    entries: Vec<Entry>,
    markers: Vec<Marker>,
    oddities: Oddities,
    tally: Tally,
    /// Start of the first line that is not indexed for good.
    pos: u64,
    /// Lines before `pos`.
    lines: u64,
    /// Inside a line that is too long.
    skipping: bool,
    tail: Option<Tail>,
    complete: bool,
    /// Length when the end was last reached.
    len: u64,
    /// The bytes up to `len`, at most [`GUARD`] of them.
    guard: Vec<u8>,
    chunk: usize,
}

impl Index {
    /// Reads the header. A v1 file is read whole here.
    pub fn open(source: &dyn Source, name: &str) -> Result<Index, CastError> {
        let file = || short(name, 400);
        let io = |error| CastError::Io { file: file(), error };
        let mut head = vec![0; MAX_HEADER];
        let mut n = 0;
        // Small steps first: most headers take 200 bytes.
        for want in [4096, MAX_HEADER] {
            n = source.fill_at(head.get_mut(..want).unwrap_or_default(), 0).map_err(io)?;
            if n < want || head.iter().take(n).any(|b| *b == b'\n') {
                break;
            }
        }
        head.truncate(n);
        let ended = n < MAX_HEADER;
        let bom = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let body = head.get(bom..).unwrap_or_default();
        let blank = body.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let skipped = body.get(..blank).map_or(0, |b| b.iter().filter(|c| **c == b'\n').count() as u64);
        let body = body.get(blank..).unwrap_or_default();
        match body.first() {
            None => return Err(CastError::Empty { file: file() }),
            Some(b'{') => {}
            Some(_) => {
                let first = body.split(|b| *b == b'\n').next().unwrap_or_default();
                let starts = short(&String::from_utf8_lossy(first.get(..64.min(first.len())).unwrap_or_default()), 12);
                let starts = if starts.starts_with('<') { "<".to_string() } else { starts };
                return Err(CastError::NotACast { file: file(), starts });
            }
        }
        let (line, has_end) = match memchr(b'\n', body) {
            Some(at) => (body.get(..at).unwrap_or_default(), true),
            None => (body, false),
        };
        let fault = |fault| match fault {
            HeaderFault::Version(version) => CastError::Version { file: file(), version },
            HeaderFault::Other(why) => CastError::Header { file: file(), line: skipped + 1, why, cut: false },
        };
        match serde_json::from_str::<Value>(&String::from_utf8_lossy(line)) {
            Ok(value) => {
                let header = Header::from_value(&value).map_err(fault)?;
                if header.version == Version::V1 {
                    return Index::open_v1(source, name);
                }
                let pos = (bom + blank + line.len() + usize::from(has_end)) as u64;
                let mut index = Index::with_header(file(), header, pos, skipped + 1);
                // An unfinished header line that is complete JSON: its end may still come.
                index.complete = false;
                Ok(index)
            }
            // Only v1 spreads over lines. What is left is a header that is cut off or no JSON.
            Err(error) if error.is_eof() && has_end => Index::open_v1(source, name),
            Err(error) => {
                let cut = error.is_eof() && !has_end && ended;
                let text = error.to_string();
                let text = text.split(" at line ").next().unwrap_or_default();
                let what = if cut { "the header is cut off" } else { "the header is not JSON" };
                let why = format!("{what} (column {}: {})", error.column(), short(text, 120));
                Err(CastError::Header { file: file(), line: skipped + 1, why, cut })
            }
        }
    }

    fn with_header(name: String, header: Header, pos: u64, lines: u64) -> Index {
        Index {
            name,
            header,
            entries: Vec::new(),
            markers: Vec::new(),
            oddities: Oddities::default(),
            tally: Tally::default(),
            pos,
            lines,
            skipping: false,
            tail: None,
            complete: false,
            len: 0,
            guard: Vec::new(),
            chunk: CHUNK,
        }
    }

    /// v1 is one JSON document: read whole (its size is limited), then forgotten again.
    fn open_v1(source: &dyn Source, name: &str) -> Result<Index, CastError> {
        #[derive(serde::Deserialize)]
        struct Document<'a> {
            #[serde(borrow, default)]
            stdout: Option<Vec<&'a RawValue>>,
        }
        let file = || short(name, 400);
        let io = |error| CastError::Io { file: file(), error };
        let len = source.len().map_err(io)?;
        if len > MAX_V1 {
            return Err(CastError::TooLarge { file: file(), bytes: len });
        }
        let mut bytes = vec![0; len as usize];
        let n = source.fill_at(&mut bytes, 0).map_err(io)?;
        bytes.truncate(n);
        let bom = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let text = utf8_of_the_same_length(bytes.split_off(bom));
        let refuse = |error: &serde_json::Error| {
            let why = error.to_string();
            let why = short(why.split(" at line ").next().unwrap_or_default(), 120);
            let why = format!("no header line, and as asciicast v1 not valid JSON (column {}: {why})", error.column());
            CastError::Header { file: file(), line: error.line() as u64, why, cut: error.is_eof() }
        };
        let value: HeaderOnly = serde_json::from_str(&text).map_err(|e| refuse(&e))?;
        let header = Header::from_value(&Value::Object(value.0)).map_err(|fault| match fault {
            HeaderFault::Version(version) => CastError::Version { file: file(), version },
            HeaderFault::Other(why) => CastError::Header { file: file(), line: 1, why, cut: false },
        })?;
        if header.version != Version::V1 {
            let why = "the header of asciicast v2 and v3 has to be on one line".to_string();
            return Err(CastError::Header { file: file(), line: 1, why, cut: false });
        }
        let document: Document<'_> = serde_json::from_str(&text).map_err(|e| refuse(&e))?;
        let mut index = Index::with_header(file(), header, n as u64, 0);
        let (mut line, mut seen) = (1, 0);
        for raw in document.stdout.unwrap_or_default() {
            let at = (raw.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            line += text.as_bytes().get(seen..at).map_or(0, |b| b.iter().filter(|c| **c == b'\n').count() as u64);
            seen = at;
            match parse_event(raw.get().as_bytes(), Version::V1, Depth::Index, true) {
                Ok(event) => index.push((at + bom) as u64, &event),
                Err(why) => index.bad(line, why),
            }
        }
        index.finish(source, n as u64).map_err(io)?;
        Ok(index)
    }

    /// Indexes about `most` more bytes; gives how many were read. [`Index::complete`] tells whether
    /// the end was reached.
    pub fn slice(&mut self, source: &dyn Source, most: u64) -> io::Result<u64> {
        let mut done = 0;
        if self.complete {
            return Ok(0);
        }
        self.withdraw_tail();
        let mut buffer = Vec::new();
        while done < most {
            buffer.resize(self.chunk.max(CHUNK), 0);
            let n = source.fill_at(&mut buffer, self.pos)?;
            done += n as u64;
            let read = buffer.get(..n).unwrap_or_default();
            let at_end = n < buffer.len();
            let mut at = 0;
            while let Some(length) = read.get(at..).and_then(|rest| memchr(b'\n', rest)) {
                let line = read.get(at..at + length).unwrap_or_default();
                self.lines += 1;
                if std::mem::take(&mut self.skipping) {
                    self.long();
                } else {
                    self.line(line, self.pos + at as u64);
                }
                at += length + 1;
            }
            self.pos += at as u64;
            let rest = read.get(at..).unwrap_or_default();
            if self.skipping || rest.len() > MAX_LINE {
                self.skipping = true;
                self.pos += rest.len() as u64;
                if at_end {
                    self.oddities.truncated = true;
                    self.finish(source, self.pos)?;
                    break;
                }
                self.chunk = CHUNK;
                continue;
            }
            if at_end {
                let end = self.pos + rest.len() as u64;
                self.tail(rest, end);
                self.finish(source, end)?;
                break;
            }
            // A line longer than the buffer is read again with a larger one.
            self.chunk = if at == 0 { (self.chunk * 4).min(MAX_LINE + 1) } else { CHUNK };
        }
        Ok(done)
    }

    fn finish(&mut self, source: &dyn Source, len: u64) -> io::Result<()> {
        self.complete = true;
        self.chunk = CHUNK;
        if self.entries.capacity() > self.entries.len() + self.entries.len() / 4 + 1024 {
            self.entries.shrink_to(self.entries.len() + self.entries.len() / 8);
        }
        self.len = len;
        let mut guard = vec![0; GUARD.min(len as usize)];
        let from = len - guard.len() as u64;
        let n = source.fill_at(&mut guard, from)?;
        guard.truncate(n);
        self.guard = guard;
        Ok(())
    }

    fn line(&mut self, bytes: &[u8], offset: u64) {
        let text = bytes.trim_ascii();
        if text.is_empty() || (self.header.version == Version::V3 && text.starts_with(b"#")) {
            return;
        }
        if bytes.len() > MAX_LINE {
            return self.long();
        }
        match parse_event(text, self.header.version, Depth::Index, true) {
            Ok(event) if event.kind == Kind::Resize && parse_size(&event.data).is_none() => {
                let why = format!("`{}` is not a size such as 80x24", short(&event.data, 40));
                self.bad(self.lines, why);
            }
            Ok(event) => self.push(offset, &event),
            Err(why) => self.bad(self.lines, why),
        }
    }

    fn bad(&mut self, line: u64, why: String) {
        self.tally.bad_lines += 1;
        if self.oddities.first_bad.len() < LISTED {
            self.oddities.first_bad.push(BadLine { line, why });
        }
    }

    fn long(&mut self) {
        self.oddities.long_lines += 1;
        self.bad(self.lines, format!("longer than {} MiB", MAX_LINE >> 20));
    }

    fn push(&mut self, offset: u64, event: &RawEvent<'_>) {
        if self.entries.len() >= MAX_EVENTS {
            self.oddities.too_many_events = true;
            return;
        }
        self.clock(event.time);
        let time = self.tally.time;
        if event.kind == Kind::Marker && self.markers.len() < MAX_MARKERS {
            self.markers.push(Marker { event: self.entries.len(), time_us: time, label: short(&event.data, 200) });
        }
        self.entries.push(Entry::new(offset, event.kind, time));
    }

    /// Moves the clock on to an event, never back.
    fn clock(&mut self, seconds: f64) {
        if !seconds.is_finite() {
            self.tally.odd_times += 1;
            return;
        }
        let micros = |s: f64| (s * 1e6).round().max(0.0) as u64;
        let gap = if self.header.version == Version::V2 {
            let back = seconds < self.tally.raw;
            self.tally.raw = seconds;
            self.tally.backward_steps += u64::from(back);
            micros(seconds).saturating_sub(self.tally.time)
        } else {
            self.tally.backward_steps += u64::from(seconds < 0.0);
            micros(seconds)
        };
        self.tally.odd_times += u64::from(gap > MAX_GAP_US);
        self.tally.time = self.tally.time.saturating_add(gap.min(MAX_GAP_US));
    }

    /// The last line, without a line end.
    fn tail(&mut self, rest: &[u8], end: u64) {
        let before = Tail { before: self.tally, events: self.entries.len(), markers: self.markers.len(), end };
        self.oddities.truncated = false;
        let text = rest.trim_ascii();
        if text.is_empty() || (self.header.version == Version::V3 && text.starts_with(b"#")) {
            return;
        }
        match parse_event(text, self.header.version, Depth::Index, true) {
            Ok(event) if event.kind != Kind::Resize || parse_size(&event.data).is_some() => {
                self.push(self.pos, &event);
                self.tail = Some(before);
            }
            _ => self.oddities.truncated = true,
        }
    }

    fn withdraw_tail(&mut self) {
        if let Some(tail) = self.tail.take() {
            self.tally = tail.before;
            self.entries.truncate(tail.events);
            self.markers.truncate(tail.markers);
        }
    }

    /// Goes on after the end was reached once and the file has grown.
    pub fn reopen(&mut self) {
        if self.header.version != Version::V1 {
            self.complete = false;
        }
    }

    /// True when the end of the file was reached.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Number of events that cannot change any more when the file grows.
    pub fn settled(&self) -> usize {
        self.tail.map_or(self.entries.len(), |t| t.events)
    }

    /// True when the file still begins with what was indexed, as far as the guard bytes tell.
    pub fn still_begins(&self, source: &dyn Source) -> io::Result<bool> {
        let mut now = vec![0; self.guard.len()];
        let n = source.fill_at(&mut now, self.len - (self.guard.len() as u64).min(self.len))?;
        Ok(n == now.len() && now == self.guard)
    }

    /// Length of the file when its end was last reached; before that, how far it is read.
    pub fn len(&self) -> u64 {
        if self.complete { self.len } else { self.pos.max(self.len) }
    }

    /// Bytes indexed so far.
    pub fn read(&self) -> u64 {
        if self.complete { self.len } else { self.pos }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn markers(&self) -> &[Marker] {
        &self.markers
    }

    pub fn oddities(&self) -> Oddities {
        Oddities {
            bad_lines: self.tally.bad_lines,
            backward_steps: self.tally.backward_steps,
            odd_times: self.tally.odd_times,
            ..self.oddities.clone()
        }
    }

    /// First byte after the event with this number (which may include skipped lines after it).
    pub fn end_of(&self, event: usize) -> u64 {
        let end = self.tail.map_or(self.read(), |t| t.end);
        self.entries.get(event + 1).map_or(end, |e| e.offset())
    }

    /// Time of the last event, in microseconds; 0 without events.
    pub fn last_time(&self) -> u64 {
        self.entries.last().map_or(0, |e| e.time)
    }

    /// How many events happened up to and at a time.
    pub fn count_at(&self, time: u64) -> usize {
        self.entries.partition_point(|e| e.time <= time)
    }

    /// Bytes of memory that the index takes, spare room included.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.markers.capacity() * size_of::<Marker>() + self.guard.len()
    }
}

/// The members of an object without `stdout`, so that the events are not built as values.
struct HeaderOnly(serde_json::Map<String, Value>);

impl<'de> serde::Deserialize<'de> for HeaderOnly {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> serde::de::Visitor<'de> for V {
            type Value = HeaderOnly;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<HeaderOnly, A::Error> {
                let mut out = serde_json::Map::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "stdout" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    } else {
                        out.insert(key, map.next_value()?);
                    }
                }
                Ok(HeaderOnly(out))
            }
        }
        deserializer.deserialize_map(V)
    }
}

/// Invalid UTF-8 replaced byte by byte, so that offsets stay what they are in the file.
fn utf8_of_the_same_length(mut bytes: Vec<u8>) -> String {
    loop {
        match String::from_utf8(bytes) {
            Ok(text) => return text,
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let length = error.utf8_error().error_len();
                bytes = error.into_bytes();
                let end = length.map_or(bytes.len(), |n| at + n);
                bytes.iter_mut().take(end).skip(at).for_each(|b| *b = b'?');
            }
        }
    }
}

/// Reads events again by their place in the index.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    start: u64,
}

impl Reader {
    /// The bytes of the event with this number; empty when they are gone.
    pub fn bytes(&mut self, source: &dyn Source, index: &Index, event: usize) -> io::Result<&[u8]> {
        let Some(entry) = index.entries.get(event) else { return Ok(&[]) };
        let from = entry.offset();
        // Skipped lines may follow; a line itself is never longer.
        let length = index.end_of(event).saturating_sub(from).min(MAX_LINE as u64 + 1) as usize;
        let have = self.start + self.buffer.len() as u64;
        if from < self.start || from + length as u64 > have {
            if length <= CHUNK && self.buffer.len() > 4 * CHUNK {
                self.buffer = Vec::new();
            }
            self.buffer.resize(length.max(CHUNK), 0);
            let n = source.fill_at(&mut self.buffer, from)?;
            self.buffer.truncate(n);
            self.start = from;
        }
        let at = (from - self.start) as usize;
        let bytes = self.buffer.get(at..(at + length).min(self.buffer.len())).unwrap_or_default();
        if index.header.version == Version::V1 {
            return Ok(bytes);
        }
        Ok(bytes.split(|b| *b == b'\n').next().unwrap_or_default())
    }

    /// Forgets what was read (the file has changed).
    pub fn clear(&mut self) {
        self.buffer = Vec::new();
    }
}
