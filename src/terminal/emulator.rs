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

    /// What makes an empty terminal show what this one shows.
    pub fn dump(&self) -> String {
        self.inner.screen.dump()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes as a program sends them that means no good.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let sequence = ("[0-9;]{0,8}", "[ -/]?", "[@-~]")
            .prop_map(|(params, between, last)| format!("\u{1b}[{params}{between}{last}").into_bytes());
        let private = (0u32..2100, any::<bool>())
            .prop_map(|(mode, set)| format!("\u{1b}[?{mode}{}", if set { 'h' } else { 'l' }).into_bytes());
        let piece = prop_oneof![
            4 => sequence,
            1 => private,
            1 => prop::sample::select(vec![47u32, 1047, 1049, 6, 7]).prop_map(|m| format!("\u{1b}[?{m}h").into_bytes()),
            1 => "\u{1b}[78DEHMc#()0B=>]{1,2}".prop_map(String::into_bytes),
            2 => "\\PC{0,20}".prop_map(String::into_bytes),
            1 => "[\u{300}-\u{36f}\u{4e00}-\u{4e20}\u{1f600}-\u{1f610}\u{f0000}-\u{f0003}\u{38000}-\u{38003}]{1,20}".prop_map(String::into_bytes),
            2 => prop::collection::vec(any::<u8>(), 0..40),
            1 => (0usize..400).prop_map(|n| vec![b'w'; n]),
            1 => prop::sample::select(vec![&b"\r\n"[..], b"\n\n\n", b"\t\t", b"\x08\x08"]).prop_map(<[u8]>::to_vec),
        ];
        prop::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn nothing_that_is_printed_breaks_it(bytes in hostile(), cut in 0usize..2000) {
            let (mut whole, mut pieces, now) = (Emulator::new(), Emulator::new(), Instant::now());
            whole.feed(&bytes, now);
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            pieces.feed(first, now);
            pieces.feed(second, now);
            let capture = whole.capture();
            prop_assert_eq!(&capture, &pieces.capture());
            prop_assert_eq!(whole.cursor(), pieces.cursor());
            prop_assert_eq!(capture.rows.len(), usize::from(ROWS));
            prop_assert!(capture.history.len() <= HISTORY);
            let frame = whole.frame();
            prop_assert_eq!(frame.cells.len(), usize::from(ROWS) * usize::from(COLS));
            prop_assert!(frame.cells.iter().all(|c| !crate::job::text::is_unsafe(c.ch)));
            prop_assert!(capture.lines().all(|l| l.chars().count() <= 21 * usize::from(COLS)));
            prop_assert!(whole.answers().len() <= ANSWERS);
        }
    }

    #[test]
    fn a_full_history_takes_little_memory_and_what_is_stood_in_for_stays_itself() {
        let mut emulator = Emulator::new();
        let now = Instant::now();
        for n in 0..3000 {
            emulator.feed(format!("{n} \u{f0000}\u{38001} e\u{301} \u{4efb}\u{308}\r\n").as_bytes(), now);
        }
        let capture = emulator.capture();
        assert!((1801..=HISTORY).contains(&capture.history.len()));
        let last = capture.history.last().map(|l| l.to_string());
        assert_eq!(last.as_deref(), Some("2960 \u{f0000}\u{38001} e\u{301} \u{4efb}\u{308}"));
        assert_eq!(emulator.frame().row(0).get(9).map(|c| c.ch), Some('e'));
    }
}
