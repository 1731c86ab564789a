//! Lines of server logs → what they say.
//!
//! One [`Reader`] per log. A line is taken for what it says, wherever in it that stands: wrappers,
//! colours, progress bars and other processes' words may stand around it. A line that is clipped or
//! garbled loses what was clipped and nothing else, and no figure is made up for it.

mod args;
mod batch;
mod event;
mod secret;
mod stamp;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use memchr::memmem;

pub use batch::{Batch, Fields};

use super::{Engine, Event, Limits, Line, LineKind, LineTime, Ranks, ServerInfo, Severity};
use crate::job::text::strip_ansi;
use batch::{Found, Names};
use event::Context;
use stamp::{Head, Shape};

/// Most bytes of a line that are looked at; the rest of a longer one is ignored.
pub const LONGEST_READ: usize = 64 << 10;
/// Most bytes of a line's text that are kept.
pub const LONGEST_TEXT: usize = 4096;
/// Most messages in one physical line.
const MOST_PIECES: usize = 64;
/// Lines without a stamp that are still taken for the rest of a traceback.
const LONGEST_TRACE: u16 = 400;
/// Most bytes that a wrapper puts before a stamp without a bracket.
const LONGEST_WRAPPER: usize = 64;
/// Most bytes between the stamp and the message: what a logging config of one's own writes there.
const LONGEST_FILLER: usize = 200;

/// Reads the lines of one log.
#[derive(Debug)]
pub struct Reader {
    keep_text: bool,
    names: Names,
    seen: [u32; 3],
    info: ServerInfo,
    changed: bool,
    trace: u16,
    crashed: bool,
    more: VecDeque<Line>,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

/// A message of a line before its text is made.
struct Message {
    kind: LineKind,
    severity: Severity,
    time: Option<LineTime>,
    ranks: Ranks,
    shape: Option<Shape>,
}

impl Message {
    /// Which of several messages in one line is given first.
    fn rank(&self) -> u8 {
        match &self.kind {
            LineKind::Decode(_) | LineKind::Prefill(_) | LineKind::Stats { .. } => 0,
            LineKind::Event(_) if self.severity >= Severity::Fatal => 1,
            LineKind::Event(Event::Access { .. } | Event::Stage(_)) => 4,
            LineKind::Event(_) => 2,
            LineKind::Speculation(_) => 3,
            LineKind::Other => 5,
        }
    }
}

impl Reader {
    /// A reader that knows nothing yet and keeps the text of every line.
    pub fn new() -> Reader {
        Reader {
            keep_text: true,
            names: Names::default(),
            seen: [0; 3],
            info: ServerInfo::default(),
            changed: false,
            trace: 0,
            crashed: false,
            more: VecDeque::new(),
        }
    }

    /// Whether SGLang's batch lines keep their text; all other lines do.
    pub fn keep_text(&mut self, keep: bool) {
        self.keep_text = keep;
    }

    /// Whose log this is, by most of the lines so far.
    pub fn engine(&self) -> Option<Engine> {
        let most = self.seen.iter().copied().max().filter(|most| *most > 0)?;
        let at = self.seen.iter().position(|seen| *seen == most)?;
        [Engine::Sglang, Engine::Vllm, Engine::Router].get(at).copied()
    }

    /// The version that the log names.
    pub fn version(&self) -> Option<&str> {
        self.info.version.as_deref()
    }

    /// What the log says of its server, after lines that changed it: engine, version, model, limits.
    pub fn take_info(&mut self) -> Option<ServerInfo> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| ServerInfo { engine: self.engine(), ..self.info.clone() })
    }

    /// What else the last physical line held, where two processes wrote into one.
    pub fn more(&mut self) -> Option<Line> {
        self.more.pop_front()
    }

    /// Reads a physical line, with or without its end. Of several messages in it a batch comes first;
    /// [`Reader::more`] gives the others.
    pub fn read(&mut self, raw: &[u8]) -> Line {
        self.more.clear();
        let cut = raw.len() > LONGEST_READ;
        let raw = trim_end(raw.get(..LONGEST_READ).unwrap_or(raw));
        if raw.is_ascii() && memchr::memchr2(0x1b, b'\r', raw).is_none() {
            return match self.plain_batch(raw) {
                Some(line) => line,
                None => self.pieces(&String::from_utf8_lossy(raw), cut),
            };
        }
        let text = String::from_utf8_lossy(raw);
        // A progress bar writes over itself; what is not written over may still say something.
        let mut best: Option<Line> = None;
        for part in text.split('\r').filter(|part| !part.trim().is_empty()).rev().take(MOST_PIECES) {
            let part = strip_ansi(part);
            let line = match part.is_ascii().then(|| self.plain_batch(trim_end(part.as_bytes()))).flatten() {
                Some(line) => line,
                None => self.pieces(part.trim_end_matches(['\n', '\r']), cut),
            };
            match &best {
                Some(first) if matches!(line.kind, LineKind::Other) || !matches!(first.kind, LineKind::Other) => {
                    if !matches!(line.kind, LineKind::Other) && !progress(&line) {
                        self.more.push_front(line);
                    }
                }
                _ => best = Some(line),
            }
        }
        best.unwrap_or_else(|| self.pieces("", cut))
    }

    /// The fast path: one batch in a plain line.
    fn plain_batch(&mut self, line: &[u8]) -> Option<Line> {
        let found = batch::sglang(line).or_else(|| {
            let start = batch::STATS.find(line)?;
            Some(Found { batch: Batch::Stats, start, body: start })
        })?;
        let body = line.get(found.body..)?;
        // A bracket among the fields may be another message.
        if memchr::memchr(b'[', body).is_some() {
            return None;
        }
        let prefix = line.get(..found.start)?;
        let head = stamp::last(prefix);
        if !said(prefix, head.as_ref()) {
            return None;
        }
        // A wrapper, or the words of another process.
        let wrapper = prefix.get(..head.map_or(0, |head| head.start))?;
        if !wrapper.is_empty() && event::mentions(wrapper) {
            return None;
        }
        let mut ranks = head.map_or(Ranks::default(), |head| head.ranks);
        let kind = match found.batch {
            Batch::Stats => self.stats(prefix, body, &mut ranks)?,
            batch => self.batch(batch, body)?,
        };
        self.trace = 0;
        let text = match kind {
            LineKind::Decode(_) | LineKind::Prefill(_) if !self.keep_text => None,
            _ => Some(batch_text(line, prefix, head.as_ref(), &kind)),
        };
        Some(Line { time: head.and_then(|head| head.time), ranks, severity: Severity::Info, kind, text })
    }

    fn stats(&mut self, prefix: &[u8], body: &[u8], ranks: &mut Ranks) -> Option<LineKind> {
        let batch = batch::stats(body, &mut self.names)?;
        let (rank, engines) = batch::engines(prefix);
        ranks.dp = rank.or(ranks.dp);
        self.saw(Engine::Vllm);
        Some(LineKind::Stats { batch, engines })
    }

    fn batch(&mut self, batch: Batch, body: &[u8]) -> Option<LineKind> {
        let kind = match batch {
            Batch::Decode => LineKind::Decode(batch::decode(Fields::of(body), &mut self.names)?),
            _ => LineKind::Prefill(batch::prefill(Fields::of(body), &mut self.names)?),
        };
        self.saw(Engine::Sglang);
        Some(kind)
    }

    fn saw(&mut self, engine: Engine) {
        if let Some(seen) = self.seen.get_mut(engine as usize) {
            self.changed |= *seen == 0;
            *seen = seen.saturating_add(1);
        }
    }

    /// A line without colours and progress: its messages, one after another.
    fn pieces(&mut self, text: &str, cut: bool) -> Line {
        let line = text.as_bytes();
        let mut starts: Vec<(usize, Option<Head>)> = vec![(0, None)];
        for head in stamp::heads(line) {
            let Some((start, known)) = starts.last_mut() else { break };
            let begins = matches!(head.shape, Shape::Bracket | Shape::Level);
            // A date far into a message is part of what it says.
            if !begins && head.start - *start > LONGEST_WRAPPER {
                continue;
            }
            if known.is_none() && (!begins || !holds_words(line.get(*start..head.start))) {
                *known = Some(head);
            } else if begins && starts.len() < MOST_PIECES {
                starts.push((head.start, Some(head)));
            }
        }
        let mut best: Option<(Message, &str)> = None;
        let mut others = Vec::new();
        let ends: Vec<usize> = starts.iter().skip(1).map(|(start, _)| *start).chain([line.len()]).collect();
        for ((start, head), end) in starts.into_iter().zip(ends) {
            let piece = line.get(start..end).unwrap_or_default();
            let head = head.map(|head| Head { start: head.start - start, end: head.end - start, ..head });
            let message = self.message(piece, head);
            let piece = text.get(start..end).unwrap_or_default();
            match &best {
                Some((first, _))
                    if (message.rank(), message.time.is_none()) >= (first.rank(), first.time.is_none()) =>
                {
                    others.push((message, piece));
                }
                _ => others.extend(best.replace((message, piece))),
            }
        }
        for (message, piece) in others {
            if !matches!(message.kind, LineKind::Other) {
                let text = self.text(piece, &message, cut);
                self.more.push_back(message.into_line(text));
            }
        }
        let Some((message, _)) = best else {
            return Line {
                time: None,
                ranks: Ranks::default(),
                severity: Severity::Info,
                kind: LineKind::Other,
                text: Some("".into()),
            };
        };
        let text = self.text(text, &message, cut);
        message.into_line(text)
    }

    fn text(&self, text: &str, message: &Message, cut: bool) -> Option<Arc<str>> {
        if !self.keep_text && matches!(message.kind, LineKind::Decode(_) | LineKind::Prefill(_)) {
            return None;
        }
        Some(masked(text, cut, matches!(message.kind, LineKind::Event(Event::Starting))))
    }

    /// One message, its head known.
    fn message(&mut self, piece: &[u8], head: Option<Head>) -> Message {
        let mut out = Message {
            kind: LineKind::Other,
            severity: Severity::Info,
            time: head.and_then(|head| head.time),
            ranks: head.map_or(Ranks::default(), |head| head.ranks),
            shape: head.map(|head| head.shape),
        };
        if let Some(kind) = self.any_batch(piece, &mut out) {
            out.kind = kind;
            self.trace = 0;
            return out;
        }
        let said = piece.get(head.map_or(0, |head| head.end)..).unwrap_or_default();
        self.note_engine(piece, head.as_ref());
        let context = Context {
            sglang: matches!(out.shape, Some(Shape::Bracket)) || self.engine() == Some(Engine::Sglang),
            crashed: self.crashed,
        };
        let level = head.and_then(|head| head.level).or_else(|| stamp::level(said));
        match event::read(said, context) {
            Some((event, severity)) => {
                out.severity = severity.max(level.unwrap_or(Severity::Info));
                self.note(&event, piece);
                out.kind = LineKind::Event(event);
            }
            None => {
                if let Some(length) = acceptance(said) {
                    self.saw(Engine::Vllm);
                    out.kind = LineKind::Speculation(length);
                }
                let sound = event::sounds(said);
                out.severity = match level {
                    Some(level) => level.max(if level == Severity::Info { Severity::Info } else { sound }),
                    None => sound,
                };
                self.note_version(said);
            }
        }
        let stamped = out.time.is_some() || level.is_some();
        if memmem::find(said, b"Traceback (most recent call last)").is_some() {
            self.trace = LONGEST_TRACE;
        } else if stamped {
            self.trace = 0;
        } else if self.trace > 0 {
            self.trace -= 1;
            out.severity = out.severity.max(Severity::Error);
        }
        out
    }

    /// A batch or statistics anywhere in a message.
    fn any_batch(&mut self, piece: &[u8], out: &mut Message) -> Option<LineKind> {
        if let Some(Found { batch, start, body }) = batch::sglang(piece) {
            let prefix = piece.get(..start)?;
            let head = stamp::last(prefix);
            if said(prefix, head.as_ref())
                && let Some(kind) = self.batch(batch, piece.get(body..)?)
            {
                out.time = head.and_then(|head| head.time);
                out.ranks = head.map_or(Ranks::default(), |head| head.ranks);
                return Some(kind);
            }
        }
        let at = batch::STATS.find(piece)?;
        let before = piece.get(..at)?;
        if before.iter().any(|b| matches!(b, b'\'' | b'"')) {
            return None;
        }
        self.stats(before, piece.get(at..)?, &mut out.ranks)
    }

    fn note_engine(&mut self, piece: &[u8], head: Option<&Head>) {
        let has = |text: &[u8]| memmem::find(piece.get(..piece.len().min(512)).unwrap_or_default(), text).is_some();
        match head.map(|head| head.shape) {
            Some(Shape::Level) => self.saw(Engine::Vllm),
            Some(Shape::Bracket) => self.saw(Engine::Sglang),
            Some(Shape::Date) if has(b" smg::") || has(b"sglang_router") => self.saw(Engine::Router),
            None if has(b"(APIServer pid=") || has(b"(EngineCore") => self.saw(Engine::Vllm),
            _ => {}
        }
    }

    /// Remembers what an event says of the server.
    fn note(&mut self, event: &Event, piece: &[u8]) {
        match event {
            Event::Starting => {
                self.crashed = false;
                let version = self.info.version.take();
                self.info = args::read(piece);
                self.info.version = version;
                self.changed = true;
            }
            Event::Limits(limits) => {
                merge(&mut self.info.limits, limits);
                self.changed = true;
            }
            Event::Crashed { .. } => self.crashed = true,
            Event::Stage(_) => self.note_version(piece),
            _ => {}
        }
    }

    fn note_version(&mut self, message: &[u8]) {
        if let Some(version) = args::version(message) {
            self.changed |= self.info.version.as_deref() != Some(&*version);
            self.info.version = Some(version);
        }
    }
}

impl Message {
    fn into_line(self, text: Option<Arc<str>>) -> Line {
        Line { time: self.time, ranks: self.ranks, severity: self.severity, kind: self.kind, text }
    }
}

/// Takes over what is said.
fn merge(into: &mut Limits, said: &Limits) {
    into.max_running = said.max_running.or(into.max_running);
    into.context = said.context.or(into.context);
    into.capacity = said.capacity.or(into.capacity);
    into.mamba_slots = said.mamba_slots.or(into.mamba_slots);
    into.chunk = said.chunk.or(into.chunk);
    into.free_gb = said.free_gb.or(into.free_gb);
    into.watchdog = said.watchdog.or(into.watchdog);
}

fn trim_end(raw: &[u8]) -> &[u8] {
    let end = raw.iter().rposition(|b| !matches!(b, b'\r' | b'\n')).map_or(0, |at| at + 1);
    raw.get(..end).unwrap_or_default()
}

/// True for another step of a progress bar.
fn progress(line: &Line) -> bool {
    matches!(&line.kind, LineKind::Event(Event::Stage(_))) && line.time.is_none()
}

/// Whether bytes before a stamp are more than a wrapper or an indent: another process' message.
fn holds_words(before: Option<&[u8]>) -> bool {
    before.is_some_and(|before| !before.trim_ascii().is_empty())
}

/// False where the words stand in a quotation, as in a dump of a request.
fn said(prefix: &[u8], head: Option<&Head>) -> bool {
    let filler = prefix.get(head.map_or(0, |head| head.end)..).unwrap_or_default();
    filler.is_empty() || (filler.len() <= LONGEST_FILLER && !filler.iter().any(|b| matches!(b, b'\'' | b'"')))
}

fn acceptance(message: &[u8]) -> Option<f32> {
    let at = memmem::find(message, b"SpecDecoding metrics: ")?;
    batch::acceptance(message.get(at..)?)
}

/// The text of a batch line. What was read as figures can not be a secret; the rest is searched.
fn batch_text(line: &[u8], prefix: &[u8], head: Option<&Head>, kind: &LineKind) -> Arc<str> {
    let others = match kind {
        LineKind::Decode(batch) | LineKind::Stats { batch, .. } => batch.other.as_slice(),
        LineKind::Prefill(batch) => batch.other.as_slice(),
        _ => &[],
    };
    let figures = |value: &str| value.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'%'));
    let text = String::from_utf8_lossy(line);
    if line.len() > LONGEST_TEXT || !others.iter().all(|(_, value)| figures(value)) {
        return masked(&text, false, false);
    }
    if head.is_some_and(|head| head.start == 0 && head.end == prefix.len()) {
        return text.into();
    }
    match text.split_at_checked(prefix.len()) {
        Some((before, fields)) => match secret::scrub(before, false) {
            Cow::Owned(before) => masked(&(before + fields), false, false),
            Cow::Borrowed(_) => text.into(),
        },
        None => masked(&text, false, false),
    }
}

/// Text without secrets, cut to what is kept.
fn masked(text: &str, cut: bool, arguments: bool) -> Arc<str> {
    // Masking makes text shorter or longer; what is kept must not depend on what lies behind it.
    let end = text.floor_char_boundary_at(2 * LONGEST_TEXT);
    let clipped = cut || end < text.len();
    let head = text.get(..end).unwrap_or(text);
    let clean: Cow<'_, str> = secret::scrub(head, arguments);
    // A secret that the cut went through may not look like one any more.
    let room = if clipped { clean.len().saturating_sub(256) } else { clean.len() };
    let keep = clean.floor_char_boundary_at(room.min(LONGEST_TEXT));
    clean.get(..keep).unwrap_or_default().into()
}

/// `str::floor_char_boundary`, which the oldest supported compiler does not have.
trait Boundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl Boundary for str {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        let mut at = at.min(self.len());
        while !self.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

/// True for a line that says that the model was asked and answered: what a log is matched with trials
/// by, see [`super::clock::Placer::matching`].
pub fn is_answer(line: &Line) -> bool {
    const ASKING: [&str; 5] = ["completions", "/generate", "/responses", "/messages", "/chat"];
    match &line.kind {
        LineKind::Event(Event::Access { path, status: 200..300 }) => ASKING.iter().any(|end| path.ends_with(end)),
        _ => false,
    }
}

/// The batch that a physical line holds, as the reader finds it, and its fields in their order.
///
/// Nothing is allocated. None where the line holds none that can be read; of several the first.
pub fn fields(raw: &[u8]) -> Option<(Batch, Fields<'_>)> {
    let line = trim_end(raw.get(..LONGEST_READ).unwrap_or(raw));
    if let Some(at) = batch::STATS.find(line) {
        let body = line.get(at..)?.trim_ascii_end();
        return Some((Batch::Stats, Fields::of(body.strip_suffix(b".").unwrap_or(body))));
    }
    let found = batch::sglang(line)?;
    let prefix = line.get(..found.start)?;
    said(prefix, stamp::last(prefix).as_ref()).then(|| Some((found.batch, Fields::of(line.get(found.body..)?))))?
}
