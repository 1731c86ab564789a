//! Text of the trial view: lines that are safe to show, laid out in rows, with a place kept in them.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

use crate::job::text;

/// Longest line in characters before it is broken in two: a file without line ends must not become
/// one endless line.
pub const LINE_MAX: usize = 2000;

/// What a line is; the style follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// Ordinary text.
    #[default]
    Plain,
    /// A heading.
    Title,
    /// Less important.
    Dim,
    /// Something typed into the terminal.
    Typed,
    /// A line that decides: a failed test, an error.
    Decisive,
    /// Something that went well.
    Good,
    /// A remark of this program, not of the file.
    Remark,
}

/// Whether a line is part of something that can be folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Show {
    /// Shown always.
    #[default]
    Always,
    /// Stands for what is folded.
    Folded,
    /// Shown when unfolded.
    Unfolded,
}

/// One line. Its text has nothing in it that a terminal would act on.
#[derive(Debug, Clone, PartialEq)]
pub struct DocLine {
    text: String,
    /// What it is.
    pub mark: Mark,
    /// When it is shown.
    pub show: Show,
    /// Where it stands; grows from line to line. Bytes in a file, or a running number.
    pub offset: u64,
}

impl DocLine {
    /// A line of somebody's text: escape sequences taken out, tabs spread, made safe.
    pub fn new(raw: &str, mark: Mark) -> DocLine {
        DocLine::safe(&text::mask_secrets(&text::strip_ansi(raw.strip_suffix('\r').unwrap_or(raw))), mark)
    }

    fn safe(plain: &str, mark: Mark) -> DocLine {
        let plain = if plain.contains('\t') { Cow::Owned(plain.replace('\t', "    ")) } else { Cow::Borrowed(plain) };
        DocLine { text: text::clean(plain.trim_end()).into_owned(), mark, show: Show::Always, offset: 0 }
    }

    /// The lines that one line of a file makes: more than one where it is too long.
    pub fn split(raw: &str, mark: Mark) -> Vec<DocLine> {
        let plain = text::strip_ansi(raw.strip_suffix('\r').unwrap_or(raw));
        let plain = text::mask_secrets(&plain);
        let mut out = Vec::new();
        let mut rest: &str = &plain;
        loop {
            let end = rest.char_indices().nth(LINE_MAX).map_or(rest.len(), |(at, _)| at);
            let (head, tail) = rest.split_at(end);
            out.push(DocLine::safe(head, mark));
            if tail.is_empty() {
                return out;
            }
            rest = tail;
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A text that is being put together line by line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Doc {
    /// The lines.
    pub lines: Vec<DocLine>,
    /// Bytes of the file before these lines.
    pub before: u64,
    /// Bytes of the file after these lines.
    pub after: u64,
    /// The file shown, relative to the trial dir.
    pub path: Option<String>,
    /// Which of several files this is, from 0, and how many there are.
    pub nth: (usize, usize),
}

impl Doc {
    /// Adds lines of somebody's text, keys and tokens masked.
    pub fn text(&mut self, raw: &str, mark: Mark, show: Show) {
        for line in raw.split('\n') {
            for mut made in DocLine::split(line, mark) {
                made.show = show;
                self.push(made);
            }
        }
    }

    /// Adds a line; its offset is its number.
    pub fn push(&mut self, mut line: DocLine) {
        line.offset = self.lines.len() as u64;
        self.lines.push(line);
    }

    /// Adds a line of this program's own words.
    pub fn say(&mut self, words: impl AsRef<str>, mark: Mark) {
        self.push(DocLine::new(words.as_ref(), mark));
    }

    /// A heading with an empty line before it.
    pub fn title(&mut self, words: impl AsRef<str>) {
        if !self.lines.is_empty() {
            self.say("", Mark::Plain);
        }
        self.say(words, Mark::Title);
    }

    /// Bytes of text.
    pub fn size(&self) -> usize {
        self.lines.iter().map(|l| l.text.len() + 1).sum()
    }

    /// True when something in it can be folded.
    pub fn folds(&self) -> bool {
        self.lines.iter().any(|l| l.show != Show::Always)
    }
}

/// One row on the screen: bytes `from..to` of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowAt {
    /// Index of the line.
    pub line: usize,
    /// First byte.
    pub from: usize,
    /// Byte after the last.
    pub to: usize,
}

/// A text with the place that the operator is at.
#[derive(Debug, Clone, Default)]
pub struct Pane {
    /// The text, once it came.
    pub doc: Option<Doc>,
    /// Its rows at the present width.
    pub rows: Vec<RowAt>,
    /// First visible row.
    pub top: usize,
    /// The end is followed while it grows.
    pub follow: bool,
    /// What can be folded is unfolded.
    pub unfolded: bool,
    /// Offset of the line with the current match.
    pub hit: Option<u64>,
    /// A window that was asked for and has not come.
    pub waiting: bool,
    /// The file changed since.
    pub stale: bool,
    /// An offset to show as soon as its text comes.
    pub pending: Option<u64>,
    /// A remark on the text: vanished since, say.
    pub note: Option<String>,
    width: usize,
}

impl Pane {
    /// Takes a new text; the place is kept by offset.
    pub fn set(&mut self, doc: Doc, width: usize, height: usize) {
        let place = self.place();
        self.doc = Some(doc);
        self.waiting = false;
        self.lay_out(width);
        match place {
            Some(place) => self.go_to(place, height),
            None => self.clamp(height),
        }
        if let Some(offset) = self.pending.take() {
            self.reveal(offset, height);
        }
    }

    /// There is no text (any more), for the reason given: what was loaded is kept.
    pub fn fail(&mut self, words: String, width: usize, height: usize) {
        self.waiting = false;
        self.pending = None;
        if self.doc.as_ref().is_some_and(|d| d.path.is_some()) {
            self.note = Some(words);
            return;
        }
        let mut doc = Doc::default();
        doc.say(words, Mark::Remark);
        self.set(doc, width, height);
    }

    /// The next text is shown from its beginning.
    pub fn forget_place(&mut self) {
        self.rows.clear();
        self.top = 0;
    }

    /// Whether the line at an offset is here.
    pub fn holds(&self, offset: u64) -> bool {
        let lines = self.doc.as_ref().map(|d| d.lines.as_slice()).unwrap_or_default();
        lines.binary_search_by_key(&offset, |l| l.offset).is_ok()
    }

    /// Offset of the first visible line and rows below its first.
    fn place(&self) -> Option<(u64, usize)> {
        let row = self.rows.get(self.top)?;
        let first = self.rows.partition_point(|r| r.line < row.line);
        Some((self.doc.as_ref()?.lines.get(row.line)?.offset, self.top - first))
    }

    fn go_to(&mut self, (offset, below): (u64, usize), height: usize) {
        let row = self.row_of(offset).unwrap_or(0);
        let line = self.rows.get(row).map_or(0, |r| r.line);
        // On a wider pane the line may have fewer rows.
        let last = self.rows.partition_point(|r| r.line <= line).saturating_sub(1);
        self.top = (row + below).min(last);
        self.clamp(height);
    }

    /// The first row of the last line that begins at or before an offset.
    pub fn row_of(&self, offset: u64) -> Option<usize> {
        let doc = self.doc.as_ref()?;
        let upto = self.rows.partition_point(|r| doc.lines.get(r.line).is_some_and(|l| l.offset <= offset));
        let line = self.rows.get(upto.saturating_sub(1))?.line;
        Some(self.rows.partition_point(|r| r.line < line))
    }

    /// Lays the text out anew if the width changed.
    pub fn resize(&mut self, width: usize, height: usize) {
        if self.width != width && self.doc.is_some() {
            let place = self.place();
            self.lay_out(width);
            if let Some(place) = place {
                self.go_to(place, height);
            }
        }
    }

    /// Folds or unfolds; false when there is nothing to fold.
    pub fn fold(&mut self, unfold: bool, height: usize) -> bool {
        if !self.doc.as_ref().is_some_and(Doc::folds) {
            return false;
        }
        let place = self.place();
        self.unfolded = unfold;
        self.lay_out(self.width);
        if let Some(place) = place {
            self.go_to(place, height);
        }
        true
    }

    /// Scrolls so that an offset is visible, with lines above it; unfolds where it is folded.
    pub fn reveal(&mut self, offset: u64, height: usize) {
        let hidden = self.doc.as_ref().and_then(|d| d.lines.iter().find(|l| l.offset == offset)).map(|l| l.show);
        match hidden {
            Some(Show::Unfolded) if !self.unfolded => {
                self.fold(true, height);
            }
            Some(Show::Folded) if self.unfolded => {
                self.fold(false, height);
            }
            _ => {}
        }
        if let Some(row) = self.row_of(offset)
            && (row < self.top || row >= self.top + height)
        {
            self.top = row.saturating_sub(height / 3);
        }
        self.follow = false;
        self.clamp(height);
    }

    /// Scrolls by rows.
    pub fn scroll(&mut self, by: isize, height: usize) {
        self.top = self.top.saturating_add_signed(by);
        self.clamp(height);
    }

    fn clamp(&mut self, height: usize) {
        let last = self.last_top(height);
        self.top = if self.follow { last } else { self.top.min(last) };
    }

    /// The top with which the last row stands at the bottom.
    pub fn last_top(&self, height: usize) -> usize {
        self.rows.len().saturating_sub(height)
    }

    /// Offset of the first visible line.
    pub fn offset(&self) -> u64 {
        self.place().map_or(0, |(offset, _)| offset)
    }

    fn lay_out(&mut self, width: usize) {
        self.width = width;
        self.rows.clear();
        let hidden = if self.unfolded { Show::Folded } else { Show::Unfolded };
        let lines = self.doc.as_ref().map(|d| d.lines.as_slice()).unwrap_or_default();
        for (line, l) in lines.iter().enumerate().filter(|(_, l)| l.show != hidden) {
            break_line(line, l.text(), width.max(1), &mut self.rows);
        }
    }
}

fn break_line(line: usize, text: &str, width: usize, rows: &mut Vec<RowAt>) {
    if text.len() <= width {
        // No character is wider than its bytes are many.
        rows.push(RowAt { line, from: 0, to: text.len() });
        return;
    }
    let (mut from, mut used) = (0, 0);
    // The last place after a space in this row, with the columns up to there.
    let mut space: Option<(usize, usize)> = None;
    for (at, c) in text.char_indices() {
        let w = c.width().unwrap_or(0);
        if used + w > width && at > from {
            // Words stay whole as long as that costs less than a third of the row.
            match space.filter(|(_, columns)| c != ' ' && *columns * 3 > width * 2) {
                Some((cut, columns)) => {
                    rows.push(RowAt { line, from, to: cut });
                    (from, used) = (cut, used - columns);
                }
                None => {
                    rows.push(RowAt { line, from, to: at });
                    (from, used) = (at, 0);
                }
            }
            space = None;
        }
        used += w;
        if c == ' ' {
            space = Some((at + 1, used));
        }
    }
    rows.push(RowAt { line, from, to: text.len() });
}

/// Finds a text in lines; small letters match capitals, too, as long as nothing typed is a capital.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Needle {
    /// As typed.
    pub text: String,
    exact: bool,
}

impl Needle {
    /// A needle; an empty one finds nothing.
    pub fn new(text: &str) -> Needle {
        Needle { text: text.to_string(), exact: text.chars().any(char::is_uppercase) }
    }

    /// Byte ranges of the matches, in order, not overlapping.
    pub fn ranges(&self, hay: &str) -> Vec<(usize, usize)> {
        let mut out = Vec::new();
        if self.text.is_empty() {
            return out;
        }
        let mut at = 0;
        while let Some(rest) = hay.get(at..) {
            if let Some(len) = self.begins(rest) {
                out.push((at, at + len));
                at += len.max(1);
            } else {
                at += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        out
    }

    /// Whether it is in there.
    pub fn is_in(&self, hay: &str) -> bool {
        if self.text.is_empty() {
            return false;
        }
        if self.exact {
            return hay.contains(&self.text);
        }
        if self.text.is_ascii() && hay.is_ascii() {
            let needle = self.text.as_bytes();
            return hay.as_bytes().windows(needle.len()).any(|w| w.eq_ignore_ascii_case(needle));
        }
        hay.char_indices().any(|(at, _)| hay.get(at..).is_some_and(|rest| self.begins(rest).is_some()))
    }

    /// Bytes that match at the very beginning.
    fn begins(&self, hay: &str) -> Option<usize> {
        if self.exact {
            return hay.starts_with(&self.text).then_some(self.text.len());
        }
        let mut chars = hay.char_indices();
        for wanted in self.text.chars() {
            let (_, c) = chars.next()?;
            if c != wanted && !c.to_lowercase().eq(wanted.to_lowercase()) {
                return None;
            }
        }
        Some(chars.next().map_or(hay.len(), |(at, _)| at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(lines: &[&str]) -> Doc {
        let mut doc = Doc::default();
        lines.iter().for_each(|l| doc.text(l, Mark::Plain, Show::Always));
        doc
    }

    #[test]
    fn the_place_is_kept_when_the_text_or_the_width_changes() {
        let mut pane = Pane::default();
        pane.set(doc(&["aaaa bbbb", "c", "dddd eeee ffff", "g", "h", "i"]), 4, 3);
        assert_eq!(pane.rows.len(), 3 + 1 + 4 + 3);
        pane.scroll(5, 3);
        let before = pane.rows.get(pane.top).map(|r| r.line);
        assert_eq!(before, Some(2));
        pane.resize(40, 3);
        assert_eq!(pane.rows.get(pane.top).map(|r| r.line), before);
        pane.follow = true;
        pane.set(doc(&["a"; 20]), 40, 3);
        assert_eq!(pane.top, 17);
    }

    #[test]
    fn lines_are_broken_by_columns_and_never_lost() {
        let mut pane = Pane::default();
        let text = "任务数据".repeat(30);
        pane.set(doc(&[&text]), 7, 5);
        let joined: String = pane.rows.iter().map(|r| &text[r.from..r.to]).collect();
        assert_eq!(joined, text);
        assert!(pane.rows.iter().all(|r| text[r.from..r.to].chars().count() <= 3));
        assert_eq!(doc(&[&"x".repeat(LINE_MAX * 2 + 1)]).lines.len(), 3);
    }

    #[test]
    fn folded_text_is_revealed_by_a_match() {
        let mut d = Doc::default();
        d.say("head", Mark::Title);
        d.text("folded: 2 lines", Mark::Dim, Show::Folded);
        d.text("one\ntwo", Mark::Plain, Show::Unfolded);
        let mut pane = Pane::default();
        pane.set(d, 20, 10);
        assert_eq!(pane.rows.len(), 2);
        pane.reveal(3, 10);
        assert!(pane.unfolded);
        assert_eq!(pane.rows.len(), 3);
    }

    #[test]
    fn needles_ignore_case_until_a_capital_is_typed() {
        assert_eq!(Needle::new("err").ranges("Err err ERR"), vec![(0, 3), (4, 7), (8, 11)]);
        assert_eq!(Needle::new("Err").ranges("Err err ERR"), vec![(0, 3)]);
        assert_eq!(Needle::new("ü").ranges("Üü"), vec![(0, 2), (2, 4)]);
        assert!(Needle::new("").ranges("x").is_empty());
        assert!(Needle::new("ß").is_in("aß") && !Needle::new("zz").is_in("z"));
    }

    #[test]
    fn escape_sequences_and_keys_do_not_get_in() {
        let d = doc(&["\u{1b}[31mred\u{1b}[0m\tsk-abcdefgh12345\u{202e}\r"]);
        assert_eq!(d.lines[0].text(), "red    [masked]");
    }
}
