//! The bytes that a program prints, read as tmux 3.3a reads them.
//!
//! The states are those of the VT500 parser, with tmux's additions (`ESC k` begins a title) and its
//! ways: invalid UTF-8 vanishes without a replacement; a character that was begun is dropped when
//! anything but a continuation follows, together with the bytes that would have been its; a string
//! (OSC, DCS, title) without an end is given up after five seconds; sequences longer than 64
//! characters are dropped; what tmux does not know is dropped too, so that the emulator does not act
//! on it. What comes out is text for the emulator, and the questions that a program asks.

use std::time::{Duration, Instant};

use super::answer::Query;

/// An unfinished string is given up after this time.
const STRING_TIME: Duration = Duration::from_secs(5);
/// Most parameter characters of a sequence.
const PARAMS: usize = 63;
/// Most intermediate characters of a sequence.
const BETWEEN: usize = 3;
/// Most bytes of a string that are looked at; only questions are, and they are short.
const STRING: usize = 64;
/// Text is handed on in pieces of about this many bytes.
const PIECE: usize = 4096;

const ESC: char = '\u{1b}';

/// What becomes of the bytes.
pub(super) trait Sink {
    /// Text and sequences for the emulator.
    fn text(&mut self, text: &str);
    /// A question, at the place in the stream where it was asked.
    fn ask(&mut self, query: Query);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Ground,
    Escape,
    EscapeBetween,
    CsiEnter,
    CsiParams,
    CsiBetween,
    CsiIgnore,
    Osc,
    Dcs,
    DcsEscape,
    /// A string that nobody reads: APC, PM, SOS, title.
    Other,
}

/// The decoder of one terminal.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    state: State,
    utf8: Utf8,
    params: String,
    between: String,
    /// The sequence is too long.
    discard: bool,
    /// The keypad is in its application form.
    keypad: bool,
    string: Vec<u8>,
    string_since: Option<Instant>,
    modes: Modes,
    out: String,
}

impl Decoder {
    /// Reads what came at `now`.
    pub(super) fn feed(&mut self, bytes: &[u8], now: Instant, sink: &mut dyn Sink) {
        if self.string_since.is_some_and(|since| now.saturating_duration_since(since) >= STRING_TIME) {
            self.ground();
        }
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            if self.state == State::Ground {
                let plain = rest.iter().take(PIECE).take_while(|b| (0x20..0x7f).contains(*b)).count();
                if plain > 0 {
                    self.utf8 = Utf8::default();
                    let (run, tail) = rest.split_at(plain);
                    // Plain ASCII.
                    self.out.extend(run.iter().map(|b| char::from(*b)));
                    rest = tail;
                    self.hand_on(sink, PIECE);
                    continue;
                }
            }
            rest = tail;
            self.byte(byte, now, sink);
            self.hand_on(sink, PIECE);
        }
        self.hand_on(sink, 1);
    }

    /// True while the keypad's keys have to be sent in their application form.
    pub(super) fn keypad(&self) -> bool {
        self.keypad
    }

    fn hand_on(&mut self, sink: &mut dyn Sink, at_least: usize) {
        if self.out.len() >= at_least {
            sink.text(&self.out);
            self.out.clear();
        }
    }

    fn ground(&mut self) {
        self.state = State::Ground;
        self.string_since = None;
        self.string.clear();
        self.utf8 = Utf8::default();
    }

    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.params.clear();
        self.between.clear();
        self.discard = false;
        self.string.clear();
        self.string_since =
            matches!(state, State::Osc | State::Dcs | State::Other).then_some(self.string_since.unwrap_or(now));
    }

    fn byte(&mut self, byte: u8, now: Instant, sink: &mut dyn Sink) {
        // In these a control is part of the string.
        match (self.state, byte) {
            (State::Dcs, 0x1b) => return self.state = State::DcsEscape,
            (State::Dcs, _) => return,
            (State::DcsEscape, b'\\') => return self.ground(),
            (State::DcsEscape, _) => return self.state = State::Dcs,
            _ => {}
        }
        match byte {
            0x18 | 0x1a => return self.ground(),
            0x1b => {
                if self.state == State::Osc {
                    self.end_of_osc(false, sink);
                }
                self.ground();
                return self.enter(State::Escape, now);
            }
            _ => {}
        }
        match self.state {
            State::Ground => self.in_ground(byte),
            State::Osc => match byte {
                0x07 => {
                    self.end_of_osc(true, sink);
                    self.ground();
                }
                0x20.. if self.string.len() < STRING => self.string.push(byte),
                _ => {}
            },
            State::Other | State::Dcs | State::DcsEscape => {}
            _ if byte < 0x20 => self.control(byte),
            _ if byte >= 0x7f => {}
            State::Escape => self.in_escape(byte, now),
            State::EscapeBetween => match byte {
                0x20..=0x2f => self.collect_between(byte),
                _ => {
                    self.escape_sequence(byte);
                    self.ground();
                }
            },
            State::CsiEnter | State::CsiParams | State::CsiBetween => self.in_csi(byte, sink),
            State::CsiIgnore => {
                if byte >= 0x40 {
                    self.ground();
                }
            }
        }
    }

    fn in_ground(&mut self, byte: u8) {
        match byte {
            0x00..0x20 => {
                self.utf8 = Utf8::default();
                self.control(byte);
            }
            0x20..0x7f => {
                self.utf8 = Utf8::default();
                self.out.push(char::from(byte));
            }
            0x7f => {}
            // Controls of the second kind are no controls in UTF-8.
            _ => self.out.extend(self.utf8.push(byte).filter(|c| !c.is_control())),
        }
    }

    fn control(&mut self, byte: u8) {
        if let 0x08..=0x0f = byte {
            self.out.push(char::from(byte));
        }
    }

    fn collect_between(&mut self, byte: u8) {
        if self.between.len() >= BETWEEN {
            self.discard = true;
        } else {
            self.between.push(char::from(byte));
        }
    }

    fn in_escape(&mut self, byte: u8, now: Instant) {
        match byte {
            b'[' => self.enter(State::CsiEnter, now),
            b']' => self.enter(State::Osc, now),
            b'P' => self.enter(State::Dcs, now),
            b'X' | b'^' | b'_' | b'k' => self.enter(State::Other, now),
            0x20..=0x2f => {
                self.collect_between(byte);
                self.state = State::EscapeBetween;
            }
            _ => {
                self.escape_sequence(byte);
                self.ground();
            }
        }
    }

    fn escape_sequence(&mut self, last: u8) {
        if self.discard {
            return;
        }
        let known = match self.between.as_str() {
            "" => matches!(last, b'7' | b'8' | b'D' | b'E' | b'H' | b'M' | b'c'),
            "#" => last == b'8',
            "(" | ")" => matches!(last, b'0' | b'B'),
            _ => false,
        };
        match (self.between.as_str(), last) {
            ("", b'=') => self.keypad = true,
            ("", b'>') => self.keypad = false,
            ("", b'c') => {
                self.modes = Modes::default();
                self.keypad = false;
            }
            _ => {}
        }
        if known {
            self.out.push(ESC);
            self.out.push_str(&self.between);
            self.out.push(char::from(last));
        }
    }

    fn in_csi(&mut self, byte: u8, sink: &mut dyn Sink) {
        match (self.state, byte) {
            (_, 0x40..) => {
                self.state = State::Ground;
                if !self.discard {
                    self.csi_sequence(char::from(byte), sink);
                }
                self.ground();
            }
            (_, 0x20..=0x2f) => {
                self.collect_between(byte);
                self.state = State::CsiBetween;
            }
            (State::CsiBetween, _) | (State::CsiParams, 0x3c..=0x3f) => self.state = State::CsiIgnore,
            (_, 0x3c..=0x3f) => {
                self.collect_between(byte);
                self.state = State::CsiParams;
            }
            _ => {
                self.state = State::CsiParams;
                if self.params.len() >= PARAMS {
                    self.discard = true;
                } else {
                    self.params.push(char::from(byte));
                }
            }
        }
    }

    fn csi_sequence(&mut self, last: char, sink: &mut dyn Sink) {
        let number =
            |at: usize| -> u32 { self.params.split(';').nth(at).and_then(|p| p.parse().ok()).unwrap_or_default() };
        let first = number(0);
        let query = match (self.between.as_str(), last) {
            ("", 'n') if first == 5 => Some(Query::Status),
            ("", 'n') if first == 6 => Some(Query::Cursor),
            ("", 'c') if first == 0 => Some(Query::Attributes),
            (">", 'c') if first == 0 => Some(Query::Terminal),
            (">", 'q') if first == 0 => Some(Query::Version),
            ("", 't') if first == 18 => Some(Query::Size),
            ("?$", 'p') => Some(Query::Mode { private: true, mode: first, set: self.modes.is_set(first) }),
            ("$", 'p') => Some(Query::Mode { private: false, mode: first, set: None }),
            _ => None,
        };
        if let Some(query) = query {
            self.hand_on(sink, 1);
            return sink.ask(query);
        }
        match (self.between.as_str(), last) {
            ("?", 'h' | 'l') => {
                let set = last == 'h';
                let params = std::mem::take(&mut self.params);
                for mode in params.split(';').filter_map(|p| p.parse::<u32>().ok()) {
                    self.modes.note(mode, set);
                    match mode {
                        // The alternate screen, by its oldest name.
                        47 => self.emit(&format!("[?1047{last}")),
                        1 | 6 | 7 | 25 | 1047 | 1049 => self.emit(&format!("[?{mode}{last}")),
                        // 80 or 132 columns: the width stays, the screen is cleared.
                        3 => {
                            self.emit("[H");
                            self.emit("[2J");
                        }
                        _ => {}
                    }
                }
            }
            ("", 'h' | 'l') if self.params.split(';').any(|p| p == "4") => self.emit(&format!("[4{last}")),
            (
                "",
                '@'
                | 'A'..='H'
                | 'J'..='M'
                | 'P'
                | 'S'
                | 'T'
                | 'X'
                | 'Z'
                | '`'
                | 'b'
                | 'd'
                | 'f'
                | 'g'
                | 'm'
                | 'r'
                | 's'
                | 'u',
            ) => {
                self.out.push(ESC);
                self.out.push('[');
                self.out.push_str(&self.params);
                self.out.push(last);
            }
            _ => {}
        }
    }

    fn emit(&mut self, sequence: &str) {
        self.out.push(ESC);
        self.out.push_str(sequence);
    }

    fn end_of_osc(&mut self, bell: bool, sink: &mut dyn Sink) {
        let which = match self.string.as_slice() {
            b"10;?" => 10,
            b"11;?" => 11,
            _ => return,
        };
        self.hand_on(sink, 1);
        sink.ask(Query::Colour { which, bell });
    }
}

/// Modes that a program can set and ask for.
const MODES: [u32; 16] = [1, 6, 7, 12, 25, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1047, 1049, 2004];

#[derive(Debug)]
struct Modes(u32);

impl Default for Modes {
    fn default() -> Modes {
        let mut modes = Modes(0);
        modes.note(7, true);
        modes.note(25, true);
        modes
    }
}

impl Modes {
    fn place(mode: u32) -> Option<usize> {
        MODES.iter().position(|m| *m == mode)
    }

    fn note(&mut self, mode: u32, set: bool) {
        if let Some(at) = Modes::place(mode) {
            self.0 = if set { self.0 | 1 << at } else { self.0 & !(1 << at) };
        }
    }

    fn is_set(&self, mode: u32) -> Option<bool> {
        Modes::place(mode).map(|at| self.0 & 1 << at != 0)
    }
}

/// Characters out of bytes from 0x80 up, one byte at a time. Nothing invalid comes out.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Utf8 {
    bytes: [u8; 4],
    have: usize,
    size: usize,
    wrong: bool,
}

impl Utf8 {
    /// Takes a byte from 0x80 up. A byte that can not begin a character vanishes; one that can not go
    /// on with a character spoils it, and counts as a part of it.
    pub(super) fn push(&mut self, byte: u8) -> Option<char> {
        if self.size == 0 {
            self.size = match byte {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => return None,
            };
        } else if byte & 0xc0 != 0x80 {
            self.wrong = true;
        }
        if let Some(place) = self.bytes.get_mut(self.have) {
            *place = byte;
        }
        self.have += 1;
        if self.have < self.size {
            return None;
        }
        let done = std::mem::take(self);
        if done.wrong {
            return None;
        }
        std::str::from_utf8(done.bytes.get(..done.size)?).ok()?.chars().next()
    }
}

/// The text of a byte stream as a recording has it: complete characters, escape sequences as they are,
/// invalid bytes left out.
#[derive(Debug, Default)]
pub(super) struct Text {
    utf8: Utf8,
}

impl Text {
    pub(super) fn of(&mut self, bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len());
        for byte in bytes {
            if byte.is_ascii() {
                self.utf8 = Utf8::default();
                out.push(char::from(*byte));
            } else {
                out.extend(self.utf8.push(*byte));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default, Debug, PartialEq)]
    struct Seen {
        text: String,
        asked: Vec<(usize, Query)>,
    }

    impl Sink for Seen {
        fn text(&mut self, text: &str) {
            self.text.push_str(text);
        }

        fn ask(&mut self, query: Query) {
            self.asked.push((self.text.len(), query));
        }
    }

    fn read(pieces: &[&[u8]]) -> Seen {
        let (mut decoder, mut seen, now) = (Decoder::default(), Seen::default(), Instant::now());
        for piece in pieces {
            decoder.feed(piece, now, &mut seen);
        }
        seen
    }

    #[test]
    fn invalid_bytes_vanish_with_what_they_swallow() {
        assert_eq!(read(&[b"a\xffb\xc3(c\xe2\xe2\x82\xacd\xed\xa0\x80e\xc0\xaff"]).text, "ab(cdef");
        assert_eq!(read(&[b"\xe4\xbb", b"\xbb \xc2\x9b31m"]).text, "\u{4efb} 31m");
        assert_eq!(read(&[b"\x00\x01\x02\x07\x7fz"]).text, "z");
    }

    #[test]
    fn strings_are_nobodys_business_and_end_by_themselves() {
        assert_eq!(
            read(&[b"a\x1b]52;c;ZXZpbA==\x07b\x1bPq\x1bx\x18\x1b\\c\x1bktitle\x1b\\d\x1b^x\x1b\\e"]).text,
            "abcde"
        );
        let (mut decoder, mut seen, now) = (Decoder::default(), Seen::default(), Instant::now());
        decoder.feed(b"a\x1b]0;never ended ", now, &mut seen);
        decoder.feed(b"still in it", now + Duration::from_secs(4), &mut seen);
        decoder.feed(b"out again", now + Duration::from_secs(5), &mut seen);
        assert_eq!(seen.text, "aout again");
    }

    #[test]
    fn only_what_tmux_knows_reaches_the_emulator() {
        assert_eq!(
            read(&[b"\x1b[?47h\x1b[?2004;1049h\x1b[!p\x1b[31m\x1b[1;2H"]).text,
            "\u{1b}[?1047h\u{1b}[?1049h\u{1b}[31m\u{1b}[1;2H"
        );
        assert_eq!(read(&[b"\x1b[", &[b'1'; 80], b"mX"]).text, "X");
        assert_eq!(read(&[b"\x1b[<3\x1b[1<2mY\x1b#8\x1b(0\x1b%G"]).text, "Y\u{1b}#8\u{1b}(0");
    }

    #[test]
    fn questions_are_found_where_they_are_asked() {
        let seen = read(&[b"ab\x1b[6", b"ncd\x1b[?2004h\x1b[?2004$p\x1b]11;?\x1b\\"]);
        assert_eq!(seen.text, "abcd");
        let mode = Query::Mode { private: true, mode: 2004, set: Some(true) };
        assert_eq!(seen.asked, [(2, Query::Cursor), (4, mode), (4, Query::Colour { which: 11, bell: false })]);
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_does_not_matter(
            bytes in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(0x1b), Just(b'['), Just(b']'), Just(b';'), Just(b'?'), Just(0xe4), Just(0xbb),
            ], 0..400),
            cut in 0usize..400,
        ) {
            let cut = cut.min(bytes.len());
            let whole = read(&[&bytes]);
            prop_assert_eq!(&read(&[&bytes[..cut], &bytes[cut..]]), &whole);
            prop_assert_eq!(&read(&bytes.chunks(1).collect::<Vec<_>>()), &whole);
            let controls = whole.text.chars().any(|c| ('\u{7f}'..'\u{a0}').contains(&c));
            prop_assert!(!controls);
        }

        #[test]
        fn valid_text_comes_out_as_it_went_in(text in "[ -~\u{a0}-\u{2fff}\u{1f300}-\u{1f6ff}]{0,200}", cut in 0usize..200) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            prop_assert_eq!(&read(&[&bytes[..cut], &bytes[cut..]]).text, &text);
            let mut plain = Text::default();
            prop_assert_eq!(plain.of(&bytes[..cut]) + &plain.of(&bytes[cut..]), text);
        }
    }
}
