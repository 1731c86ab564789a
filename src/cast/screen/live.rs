//! The screen of a terminal that is alive, with what left it at the top.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use avt::observer::{Observation, Observer};
use avt::parser::{AnsiMode, AnsiModes, DecMode, DecModes, EdScope, Function, TbcScope};
use avt::{Parser, Terminal};
use unicode_width::UnicodeWidthChar;

use super::{Frame, Screen, cost, look};
use crate::cast::format::MAX_ROWS;
use crate::job::text::is_unsafe;

/// The screen of a running terminal with the lines that left it, kept as tmux 3.3a keeps them, so that
/// what an agent is shown is what it would be shown there.
///
/// Where the emulator has another mind, this decides: lines are rows of the screen (never joined);
/// erasing the screen from its first cell on moves it into the history, and ED 3 empties that; a reset
/// keeps both; a backspace behind the last column goes to the last column; marks without a column of
/// their own stay with the character before. The history is text alone, without looks: a line takes
/// its bytes and not 16 per column.
pub struct LiveScreen {
    parser: Parser,
    terminal: Terminal,
    kept: Kept,
    graphemes: Graphemes,
    insert: bool,
    /// First and last row of the scrolled region.
    region: (usize, usize),
}

/// What leaves the screen at the top.
#[derive(Default)]
struct Kept {
    lines: VecDeque<Arc<str>>,
    /// Lines that ever left the screen.
    scrolled: u64,
    /// How often the history was emptied.
    cleared: u64,
    /// Set while lines are deleted, not scrolled.
    drop: bool,
    limit: usize,
    meter: u64,
}

impl Kept {
    fn push(&mut self, line: Arc<str>) {
        // A tenth at a time, as tmux does.
        if self.limit > 0 && self.lines.len() >= self.limit {
            self.lines.drain(..(self.limit / 10).max(1).min(self.lines.len()));
        }
        self.scrolled += 1;
        if self.limit > 0 {
            self.lines.push_back(line);
        }
    }
}

/// Collects the rows that one function moves out.
struct Leaving<'a> {
    kept: &'a mut Kept,
    graphemes: &'a Graphemes,
}

impl Observer for Leaving<'_> {
    type Output = ();

    fn evicted(&mut self, _: &mut Observation<'_>, line: &avt::Line) {
        if !self.kept.drop {
            self.kept.push(self.graphemes.text(line).into());
        }
    }

    fn end(&mut self, _: &mut Observation<'_>) {}
}

impl std::fmt::Debug for LiveScreen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveScreen").field("text", &self.text()).field("scrolled", &self.kept.scrolled).finish()
    }
}

impl LiveScreen {
    /// An empty screen (clamped as [`Screen::new`]) that keeps at most `history` lines above it.
    pub fn new(cols: u16, rows: u16, history: usize) -> LiveScreen {
        LiveScreen {
            parser: Parser::new(),
            terminal: Screen::new(cols, rows).terminal,
            kept: Kept { limit: history, ..Kept::default() },
            graphemes: Graphemes::default(),
            insert: false,
            region: (0, usize::from(rows.clamp(1, MAX_ROWS)) - 1),
        }
    }

    /// Lets the terminal act on output. Gives the work it took, in units of about one printed character.
    pub fn feed(&mut self, output: &str) -> u64 {
        self.kept.meter = 0;
        for ch in output.chars() {
            if let Some(function) = self.parser.feed(ch) {
                self.act(function);
            }
        }
        self.kept.meter
    }

    fn act(&mut self, function: Function) {
        let (cols, rows) = self.terminal.size();
        self.kept.meter += cost(&function, cols as u64 / 8 + 1, (cols * rows) as u64 / 8 + 1);
        let cursor = self.terminal.cursor();
        let behind = cursor.col >= cols;
        self.keep_of_region(&function, cursor.row, behind);
        match function {
            Function::Print(ch) => self.print(ch),
            Function::Ed(EdScope::SavedLines) => {
                self.kept.lines.clear();
                self.kept.cleared += 1;
            }
            Function::Ed(EdScope::Below) if cursor.col == 0 && cursor.row == 0 => self.run(Function::Ed(EdScope::All)),
            Function::Bs if behind => self.run(Function::Cha(as_u16(cols))),
            Function::Cub(n) if behind => match n.max(1) - 1 {
                0 => self.run(Function::Cha(as_u16(cols))),
                n => {
                    self.run(Function::Cha(as_u16(cols)));
                    self.run(Function::Cub(n));
                }
            },
            Function::Ht if cursor.col + 1 >= cols => {}
            Function::Ich(_) | Function::Dch(_) if behind => {}
            // As many as fit into the row.
            Function::Rep(n) => match as_u16(cols.saturating_sub(cursor.col)).min(n.max(1)) {
                0 => {}
                n => self.run(Function::Rep(n)),
            },
            // Rows that are deleted are not history.
            Function::Dl(n) => {
                self.kept.drop = true;
                self.run(Function::Dl(n));
                self.kept.drop = false;
            }
            Function::Ris => self.reset(),
            Function::Decstbm(top, bottom) => {
                let last = match usize::from(bottom) {
                    0 => rows,
                    n => n.min(rows),
                };
                let first = usize::from(top.max(1)) - 1;
                if first + 1 < last {
                    self.region = (first, last - 1);
                    self.run(Function::Decstbm(top, as_u16(last)));
                }
            }
            Function::Sm(modes) => {
                self.insert |= modes.as_slice().contains(&AnsiMode::Insert);
                self.run(Function::Sm(modes));
            }
            Function::Rm(modes) => {
                self.insert &= !modes.as_slice().contains(&AnsiMode::Insert);
                self.run(Function::Rm(modes));
            }
            other => self.run(other),
        }
    }

    /// A row that scrolls out of a region is history, wherever the region begins; for the emulator only
    /// where it begins at the top.
    fn keep_of_region(&mut self, function: &Function, row: usize, behind: bool) {
        let (first, last) = self.region;
        if first == 0 || self.is_alternate() {
            return;
        }
        let rows = match function {
            Function::Lf | Function::Nel if row == last => 1,
            Function::Print(ch) if behind && row == last && ch.width() != Some(0) => 1,
            Function::Su(n) => usize::from((*n).max(1)).min(last + 1 - first),
            _ => return,
        };
        for row in first..first + rows {
            if let Some(line) = self.terminal.screen().line(row) {
                self.kept.push(self.graphemes.text(line).into());
            }
        }
    }

    fn run(&mut self, function: Function) {
        let leaving = Leaving { kept: &mut self.kept, graphemes: &self.graphemes };
        self.terminal.execute_with(function, leaving);
    }

    fn print(&mut self, ch: char) {
        if ch == '\u{7f}' || ch.is_control() {
            return;
        }
        if ch.is_ascii() || (ch.width() != Some(0) && !Graphemes::reserves(ch)) {
            return self.run(Function::Print(ch));
        }
        if ch.width() != Some(0) {
            let ch = self.graphemes.stand_in(&ch.to_string(), ch.width() == Some(2)).unwrap_or('\u{fffd}');
            return self.run(Function::Print(ch));
        }
        // A mark: the character before it is printed again, together with it.
        let cursor = self.terminal.cursor();
        let Some(line) = self.terminal.screen().line(cursor.row) else { return };
        let cells = line.cells();
        let Some(before) = (0..cursor.col).rev().find(|col| cells.get(*col).is_some_and(|c| c.width() > 0)) else {
            return;
        };
        let Some(cell) = cells.get(before) else { return };
        let mut text = String::new();
        self.graphemes.push(&mut text, cell.char());
        text.push(ch);
        let wide = cell.width() == 2;
        if text.len() > LONGEST_GRAPHEME {
            return;
        }
        let Some(stand_in) = self.graphemes.stand_in(&text, wide) else { return };
        let insert = || AnsiModes::from(vec![AnsiMode::Insert]);
        if self.insert {
            self.run(Function::Rm(insert()));
        }
        self.run(Function::Cha(as_u16(before + 1)));
        self.run(Function::Print(stand_in));
        if self.insert {
            self.run(Function::Sm(insert()));
        }
    }

    /// A full reset; the emulator's own would forget what is on the screen and above it.
    fn reset(&mut self) {
        self.insert = false;
        self.region = (0, self.terminal.size().1 - 1);
        self.run(Function::Decstr);
        self.run(Function::Rm(AnsiModes::from(vec![AnsiMode::Insert, AnsiMode::NewLine])));
        self.run(Function::Decrst(DecModes::from(vec![DecMode::CursorKeys, DecMode::Origin])));
        self.run(Function::Decset(DecModes::from(vec![DecMode::AutoWrap, DecMode::TextCursorEnable])));
        self.run(Function::Tbc(TbcScope::All));
        let (cols, _) = self.terminal.size();
        for stop in (8..cols).step_by(8) {
            self.run(Function::Cha(as_u16(stop + 1)));
            self.run(Function::Hts);
        }
        self.run(Function::Cup(1, 1));
        self.run(Function::Ed(EdScope::All));
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        let (cols, rows) = self.terminal.size();
        (as_u16(cols), as_u16(rows))
    }

    /// Column and row of the cursor, from 0, hidden or not. The column equals the number of columns
    /// behind a character in the last one.
    pub fn cursor(&self) -> (u16, u16) {
        let cursor = self.terminal.cursor();
        (as_u16(cursor.col), as_u16(cursor.row))
    }

    /// True while a program has the alternate screen.
    pub fn is_alternate(&self) -> bool {
        self.terminal.active_screen_kind() == avt::ScreenKind::Alternate
    }

    /// True while a program wants cursor keys in their application form.
    pub fn wants_application_keys(&self) -> bool {
        self.terminal.cursor_key_app_mode()
    }

    /// The rows of the screen, trailing spaces trimmed. As the program wrote them: not made safe for a
    /// terminal.
    pub fn text(&self) -> Vec<String> {
        self.terminal.screen().visible_lines().map(|line| self.graphemes.text(line)).collect()
    }

    /// The lines above the screen, oldest first. Not made safe for a terminal.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Arc<str>> + ExactSizeIterator {
        self.kept.lines.iter()
    }

    /// Lines that left the screen at its top since the beginning: the number of the first row of the
    /// screen, when lines are numbered from 0. The history holds the numbers just before it, unless it
    /// was emptied.
    pub fn scrolled(&self) -> u64 {
        self.kept.scrolled
    }

    /// How often a program emptied the history.
    pub fn cleared(&self) -> u64 {
        self.kept.cleared
    }

    /// Most lines kept above the screen.
    pub fn limit(&self) -> usize {
        self.kept.limit
    }

    /// What makes an empty screen of the same size show what this one shows, cursor and modes too. What is
    /// above the screen, and a sequence that has begun, are left out.
    pub fn dump(&self) -> String {
        let dump = self.terminal.dump();
        dump.chars().fold(String::with_capacity(dump.len()), |mut text, ch| {
            self.graphemes.push(&mut text, ch);
            text
        })
    }

    /// A copy of all that shows; marks are left out.
    pub fn frame(&self) -> Frame {
        let (cols, rows) = self.size();
        let safe = |ch: char| if is_unsafe(ch) { ' ' } else { ch };
        let cell = |cell: &avt::Cell| look(cell, safe(self.graphemes.base(cell.char())));
        let cells = self.terminal.screen().visible_lines().flat_map(|line| line.cells().iter().map(cell)).collect();
        let cursor = self.terminal.cursor().position();
        let cursor = cursor.map(|(col, row)| (as_u16(col).min(cols - 1), as_u16(row).min(rows - 1)));
        Frame { cols, rows, cells, cursor }
    }
}

/// Bytes of a character with its marks (tmux: 21).
const LONGEST_GRAPHEME: usize = 21;
/// Different characters with marks that are told apart in one terminal; others lose their marks.
const MOST_GRAPHEMES: usize = 0x4000;
/// Characters that stand for one with marks, in a cell that can hold a single one: of one column
/// (private use) and of two (unassigned, and wide by the standard).
const STAND_INS: [u32; 2] = [0xf_0000, 0x3_8000];

/// Characters with marks, and what stands for them in cells.
#[derive(Default)]
struct Graphemes {
    texts: [Vec<Box<str>>; 2],
    known: HashMap<Box<str>, char>,
}

impl Graphemes {
    fn place(ch: char) -> Option<(usize, usize)> {
        STAND_INS.iter().enumerate().find_map(|(which, first)| {
            let at = (ch as u32).checked_sub(*first)? as usize;
            (at < MOST_GRAPHEMES).then_some((which, at))
        })
    }

    fn reserves(ch: char) -> bool {
        Graphemes::place(ch).is_some()
    }

    fn stand_in(&mut self, text: &str, wide: bool) -> Option<char> {
        if let Some(ch) = self.known.get(text) {
            return Some(*ch);
        }
        let which = usize::from(wide);
        let (texts, first) = (self.texts.get_mut(which)?, STAND_INS.get(which)?);
        if texts.len() >= MOST_GRAPHEMES {
            return None;
        }
        let ch = char::from_u32(first + texts.len() as u32)?;
        texts.push(text.into());
        self.known.insert(text.into(), ch);
        Some(ch)
    }

    fn of(&self, ch: char) -> Option<&str> {
        let (which, at) = Graphemes::place(ch)?;
        self.texts.get(which)?.get(at).map(|text| &**text)
    }

    fn base(&self, ch: char) -> char {
        self.of(ch).and_then(|text| text.chars().next()).unwrap_or(ch)
    }

    fn push(&self, to: &mut String, ch: char) {
        match self.of(ch) {
            Some(text) => to.push_str(text),
            _ => to.push(ch),
        }
    }

    fn text(&self, line: &avt::Line) -> String {
        let cells = line.cells();
        let end = cells.iter().rposition(|c| c.char() != ' ').map_or(0, |last| last + 1);
        let mut text = String::with_capacity(end);
        for cell in cells.iter().take(end).filter(|c| c.width() > 0) {
            match cell.char() {
                ch if ch.is_ascii() => text.push(ch),
                ch => self.push(&mut text, ch),
            }
        }
        text
    }
}

fn as_u16(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}
