//! One terminal on the host: bytes in; screen, history and answers out.

use std::sync::Arc;
use std::time::Instant;

use super::answer::{Query, answer};
use super::decode::{Decoder, Sink};
use super::keys::KeyModes;
use crate::cast::{Frame, LiveScreen};

/// Columns of an agent's terminal.
pub const COLS: u16 = 160;
/// Rows of an agent's terminal.
pub const ROWS: u16 = 40;
/// Lines kept above the screen: tmux's own number.
pub const HISTORY: usize = 2000;
/// Most bytes of answers kept for a program that does not read them.
const ANSWERS: usize = 4096;

/// An emulated terminal of [`COLS`] by [`ROWS`].
#[derive(Debug)]
pub struct Emulator {
    decoder: Decoder,
    inner: Inner,
}

#[derive(Debug)]
struct Inner {
    screen: LiveScreen,
    answers: Vec<u8>,
    work: u64,
}

impl Sink for Inner {
    fn text(&mut self, text: &str) {
        self.work += self.screen.feed(text);
    }

    fn ask(&mut self, query: Query) {
        let bytes = answer(query, self.screen.cursor(), self.screen.size());
        if self.answers.len() + bytes.len() <= ANSWERS {
            self.answers.extend(bytes);
        }
    }
}

impl Default for Emulator {
    fn default() -> Emulator {
        Emulator::new()
    }
}

impl Emulator {
    /// An empty terminal.
    pub fn new() -> Emulator {
        let screen = LiveScreen::new(COLS, ROWS, HISTORY);
        Emulator { decoder: Decoder::default(), inner: Inner { screen, answers: Vec::new(), work: 0 } }
    }

    /// Acts on output that came at `now`; gives the work it took, in units of about one printed
    /// character.
    pub fn feed(&mut self, bytes: &[u8], now: Instant) -> u64 {
        self.inner.work = 0;
        self.decoder.feed(bytes, now, &mut self.inner);
        self.inner.work
    }

    /// The answers to what programs asked since the last time, to be typed.
    pub fn answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inner.answers)
    }

    /// What shows, and what is above it.
    pub fn capture(&self) -> Capture {
        let screen = &self.inner.screen;
        let history: Vec<Arc<str>> = screen.history().cloned().collect();
        Capture {
            first: screen.scrolled().saturating_sub(history.len() as u64),
            rows: screen.text().into_iter().map(Arc::from).collect(),
            history,
            alternate: screen.is_alternate(),
            cleared: screen.cleared(),
        }
    }

    /// The rows of the screen alone, trailing spaces trimmed.
    pub fn rows(&self) -> Vec<String> {
        self.inner.screen.text()
    }

    /// The cells of the screen, for drawing.
    pub fn frame(&self) -> Frame {
        self.inner.screen.frame()
    }

    /// Column and row of the cursor, from 0.
    pub fn cursor(&self) -> (u16, u16) {
        self.inner.screen.cursor()
    }

    /// The form in which keys have to be sent now.
    pub fn key_modes(&self) -> KeyModes {
        KeyModes { cursor: self.inner.screen.wants_application_keys(), keypad: self.decoder.keypad() }
    }
}

/// The text of a terminal at one moment. Rows are cut at [`COLS`] columns and never joined, as the
/// agent sees them; trailing spaces are trimmed. Nothing is made safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// Number of the first line of the history, counted from the first line ever.
    pub first: u64,
    /// Lines above the screen, oldest first.
    pub history: Vec<Arc<str>>,
    /// The rows of the screen.
    pub rows: Vec<Arc<str>>,
    /// A program has the alternate screen.
    pub alternate: bool,
    /// How often the history was emptied.
    pub cleared: u64,
}

impl Capture {
    /// The screen, each row with its end of line.
    pub fn screen(&self) -> String {
        joined(self.rows.iter())
    }

    /// History and screen, each line with its end.
    pub fn whole(&self) -> String {
        joined(self.lines())
    }

    /// History and screen, line by line.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &Arc<str>> {
        self.history.iter().chain(&self.rows)
    }
}

pub(super) fn joined<'a>(lines: impl Iterator<Item = &'a Arc<str>>) -> String {
    lines.fold(String::new(), |mut text, line| {
        text.push_str(line);
        text.push('\n');
        text
    })
}
