//! Search in the output text of a recording.
//!
//! The text is the output without escape sequences, joined over event borders: a word typed letter
//! by letter is found. Sequences that move the cursor end a line, as line feeds do; colours and the
//! like don't. Memory is bounded: lines are kept up to a limit, the file is read in stretches.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use super::index::{Index, Reader};
use super::player::{excerpt, output_of};
use super::source::Source;

/// Characters of a line that are kept; a longer line is searched in overlapping parts.
const LINE: usize = 4096;
/// Longest text to search for, in characters.
const LONGEST: usize = 256;
/// Bytes of the file before a stretch that are read for context.
const WARM_UP: u64 = 32 << 10;
/// Bytes of the file in one stretch of a backward search.
const STRETCH: u64 = 512 << 10;

/// A place where the text was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Number of the event that completes it, from 0.
    pub event: usize,
    /// Its time since the start of the recording.
    pub time: Duration,
    /// The line it is in, as far as it was shown then; safe to show.
    pub line: String,
}

/// Where a search stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchStep {
    /// Not yet; at the event with this number.
    More {
        /// Event that is searched next.
        event: usize,
    },
    /// Here.
    Found(Hit),
    /// Nowhere in this direction.
    NotFound,
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search {
    needle: Vec<char>,
    fold: bool,
    forward: bool,
    scanner: Scanner,
    reader: Reader,
    /// Next event to read.
    next: usize,
    /// Hits count from here (the events before are read for context only) …
    from: usize,
    /// … to before here.
    to: usize,
    /// Last hit of this stretch (backwards).
    last: Option<Hit>,
    started: bool,
}

impl Search {
    /// None for an empty text. `position` is the number of events behind it.
    pub fn new(text: &str, forward: bool, position: usize) -> Option<Search> {
        let fold = !text.chars().any(char::is_uppercase);
        let needle: Vec<char> =
            text.chars().filter(|c| !c.is_control()).take(LONGEST).map(|c| folded(c, fold)).collect();
        if needle.is_empty() {
            return None;
        }
        // Going back, a hit of the last event shown is where we are.
        let (from, to) = if forward { (position, usize::MAX) } else { (0, position.saturating_sub(1)) };
        Some(Search {
            needle,
            fold,
            forward,
            scanner: Scanner::default(),
            reader: Reader::default(),
            next: 0,
            from,
            to,
            last: None,
            started: false,
        })
    }

    pub fn work(&mut self, source: &dyn Source, index: &Index, bytes: u64) -> io::Result<SearchStep> {
        let all = index.entries().len();
        self.to = self.to.min(all);
        if !std::mem::replace(&mut self.started, true) {
            if !self.forward {
                self.from = stretch_before(index, self.to, STRETCH);
            }
            self.enter(index);
        }
        let mut done = 0;
        while done < bytes {
            if self.next >= self.to {
                if self.forward {
                    return Ok(SearchStep::NotFound);
                }
                if let Some(hit) = self.last.take() {
                    return Ok(SearchStep::Found(hit));
                }
                if self.from == 0 {
                    return Ok(SearchStep::NotFound);
                }
                self.to = self.from;
                self.from = stretch_before(index, self.to, STRETCH);
                self.enter(index);
                continue;
            }
            let event = self.next;
            self.next += 1;
            let text = output_of(source, index, &mut self.reader, event)?;
            done += text.len() as u64 + 16;
            if self.scanner.feed(&text, &self.needle, self.fold) && event >= self.from {
                let time = Duration::from_micros(index.entries().get(event).map_or(0, |e| e.time));
                let hit = Hit { event, time, line: excerpt(&self.scanner.found) };
                if self.forward {
                    return Ok(SearchStep::Found(hit));
                }
                self.last = Some(hit);
            }
        }
        Ok(SearchStep::More { event: self.next })
    }

    /// Starts reading a stretch, some way before it.
    fn enter(&mut self, index: &Index) {
        self.next = stretch_before(index, self.from.min(index.entries().len()), WARM_UP);
        self.scanner = Scanner::default();
    }
}

/// The first event of the `bytes` of the file before an event; at least one event before it.
fn stretch_before(index: &Index, event: usize, bytes: u64) -> usize {
    let end = index.entries().get(event).map_or(index.read(), |e| e.offset());
    let first = index.entries().partition_point(|e| e.offset() < end.saturating_sub(bytes));
    first.min(event.saturating_sub(1))
}

fn folded(c: char, fold: bool) -> char {
    match fold {
        true if c.is_ascii() => c.to_ascii_lowercase(),
        true => c.to_lowercase().next().unwrap_or(c),
        false => c,
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    /// After `ESC (` and the like: one more character.
    Charset,
    Csi,
    /// OSC, DCS, SOS, PM, APC: to the string terminator.
    Text2End,
    /// An escape inside such a string.
    StringEscape,
}

/// Takes the escape sequences out, keeps the present line and looks for the text at its end.
#[derive(Debug, Default)]
struct Scanner {
    state: State,
    line: VecDeque<char>,
    /// The line as it was when something was found.
    found: String,
}

impl Scanner {
    /// True when the text was completed within this output.
    fn feed(&mut self, text: &str, needle: &[char], fold: bool) -> bool {
        let mut found = false;
        for c in text.chars() {
            match self.state {
                State::Text => match c {
                    '\u{1b}' => self.state = State::Escape,
                    '\u{9b}' => self.state = State::Csi,
                    '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.state = State::Text2End,
                    '\n' | '\r' | '\u{b}' | '\u{c}' => self.line.clear(),
                    '\u{8}' => {
                        self.line.pop_back();
                    }
                    '\t' => found |= self.push(' ', needle, fold),
                    c if c.is_control() => {}
                    c => found |= self.push(c, needle, fold),
                },
                State::Escape => {
                    self.state = match c {
                        '[' => State::Csi,
                        ']' | 'P' | 'X' | '^' | '_' => State::Text2End,
                        '(' | ')' | '*' | '+' | '#' | '%' => State::Charset,
                        '\u{1b}' => State::Escape,
                        _ => State::Text,
                    }
                }
                State::Charset => self.state = State::Text,
                State::Csi => match c {
                    '\u{40}'..='\u{7e}' => {
                        self.state = State::Text;
                        // Anything that moves the cursor: what comes next is not what follows here.
                        if matches!(c, 'A'..='H' | 'J' | 'L' | 'M' | 'S' | 'T' | 'd' | 'f' | 'r' | 'u') {
                            self.line.clear();
                        }
                    }
                    '\u{1b}' => self.state = State::Escape,
                    _ => {}
                },
                State::Text2End => match c {
                    '\u{7}' | '\u{9c}' | '\u{18}' | '\u{1a}' => self.state = State::Text,
                    '\u{1b}' => self.state = State::StringEscape,
                    _ => {}
                },
                State::StringEscape => {
                    self.state = match c {
                        '\\' => State::Text,
                        '[' => State::Csi,
                        ']' | 'P' | 'X' | '^' | '_' => State::Text2End,
                        _ => State::Text,
                    }
                }
            }
        }
        found
    }

    fn push(&mut self, c: char, needle: &[char], fold: bool) -> bool {
        if self.line.len() >= LINE {
            self.line.pop_front();
        }
        self.line.push_back(c);
        let same = |(a, b): (&char, &char)| folded(*a, fold) == *b;
        if self.line.len() < needle.len() || !self.line.iter().rev().zip(needle.iter().rev()).all(same) {
            return false;
        }
        let skip = self.line.len().saturating_sub(160);
        self.found = self.line.iter().skip(skip).collect();
        true
    }
}
