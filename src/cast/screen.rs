//! The emulated terminal screen: the only place, with [`live`], that knows `avt`.
//!
//! Whatever a cast holds ends here as cells: clipboard, title, query and mouse sequences have no
//! effect, controls never become a cell, and a size request inside the stream is ignored.

use std::borrow::Cow;

use avt::observer::{Observation, Observer};
use avt::parser::Function;
use avt::{Operation, Terminal};
use unicode_width::UnicodeWidthChar;

use super::format::{MAX_COLS, MAX_ROWS};
use crate::job::text::is_unsafe;

mod live;

pub use live::LiveScreen;

/// A colour as the stream gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// The terminal's own.
    #[default]
    Default,
    /// One of 256: 0-15 the palette, then the cube and the greys.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Text colour.
    pub fg: Color,
    /// Background colour.
    pub bg: Color,
    /// Bold.
    pub bold: bool,
    /// Faint.
    pub faint: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Blinking.
    pub blink: bool,
    /// Text and background colour swapped.
    pub inverse: bool,
    /// Struck through.
    pub strikethrough: bool,
}

/// One cell of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Never a control or an invisible character.
    pub ch: char,
    /// Columns: 1, 2 for a wide character, 0 for the cell that its right half covers.
    pub width: u8,
    /// Its look.
    pub style: Style,
}

/// What a screen shows at one moment, for views that are drawn elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// All cells, row by row.
    pub cells: Vec<Cell>,
    /// Column and row of the cursor, from 0; None while it is hidden.
    pub cursor: Option<(u16, u16)>,
}

impl Frame {
    /// The cells of one row, from 0; empty below the last.
    pub fn row(&self, row: u16) -> &[Cell] {
        let cols = usize::from(self.cols);
        let from = usize::from(row) * cols;
        self.cells.get(from..from + cols).unwrap_or_default()
    }
}

/// A screen kept for later, see [`Screen::dump`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    cols: u16,
    rows: u16,
    dump: Box<str>,
}

impl Saved {
    /// Bytes of memory it takes, without itself.
    pub fn bytes(&self) -> usize {
        self.dump.len()
    }
}

/// Work after which the rest of one event's output is dropped, in units of about one printed
/// character. Only output made to keep
/// an emulator busy (repeats, full clears) comes near, and it must not stop the program.
const MAX_EVENT_COST: u64 = 40_000_000;

/// Output is fed in pieces of this many bytes, so that the cap above is looked at in between.
const PIECE: usize = 4096;

/// The screen of a terminal, without scrollback.
pub struct Screen {
    terminal: Terminal,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("size", &self.size()).field("text", &self.text()).finish()
    }
}

impl Screen {
    /// An empty screen; the size is clamped to 1 to [`MAX_COLS`] by 1 to [`MAX_ROWS`].
    pub fn new(cols: u16, rows: u16) -> Screen {
        let (cols, rows) = clamp(cols, rows);
        // Without scrollback a dump holds the whole state, so that a restored screen goes on exactly
        // as the original would, also when it is made taller.
        match Terminal::new(cols, rows) {
            Ok(terminal) => Screen { terminal },
            // Unreachable after the clamp: avt only refuses 0.
            Err(_) => Screen::new(80, 24),
        }
    }

    /// Lets the terminal act on output. Gives the work it took, in units of about one printed
    /// character, so that callers can share out their time without a clock.
    pub fn feed(&mut self, output: &str) -> u64 {
        let (cols, rows) = self.terminal.size();
        let mut meter = Meter { cost: 0, line: cols as u64 / 8 + 1, screen: (cols * rows) as u64 / 8 + 1 };
        let mut rest = output;
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(cut(rest));
            self.terminal.feed_with(&*visible(piece), &mut meter);
            if meter.cost > MAX_EVENT_COST {
                break;
            }
            rest = tail;
        }
        meter.cost
    }

    /// Changes the size (clamped); gives the work it took.
    pub fn resize(&mut self, cols: u16, rows: u16) -> u64 {
        let (cols, rows) = clamp(cols, rows);
        let (old_cols, old_rows) = self.terminal.size();
        self.terminal.resize(cols, rows);
        (cols * rows + old_cols * old_rows) as u64
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        let (cols, rows) = self.terminal.size();
        (cols as u16, rows as u16)
    }

    /// Column and row of the cursor, from 0; None while it is hidden. The column is at most the last.
    pub fn cursor(&self) -> Option<(u16, u16)> {
        let (cols, rows) = self.size();
        let (col, row) = self.terminal.cursor().position()?;
        Some(((col as u16).min(cols - 1), (row as u16).min(rows - 1)))
    }

    /// The rows from top to bottom, each with its cells from left to right.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = impl Iterator<Item = Cell> + '_> + '_ {
        self.terminal.screen().visible_lines().map(|line| line.cells().iter().map(cell))
    }

    /// The cells of one row, from 0; nothing below the last.
    pub fn row(&self, row: u16) -> impl Iterator<Item = Cell> + '_ {
        let line = self.terminal.screen().line(usize::from(row));
        line.into_iter().flat_map(|line| line.cells().iter().map(cell))
    }

    /// A copy of all that shows.
    pub fn frame(&self) -> Frame {
        let (cols, rows) = self.size();
        Frame { cols, rows, cells: self.rows().flatten().collect(), cursor: self.cursor() }
    }

    /// The text of every row, trailing blanks trimmed.
    pub fn text(&self) -> Vec<String> {
        self.rows()
            .map(|row| {
                let mut text: String = row.filter(|c| c.width > 0).map(|c| c.ch).collect();
                text.truncate(text.trim_end().len());
                text
            })
            .collect()
    }

    /// Keeps the state: cells, cursor, modes, a half-read escape sequence.
    pub fn dump(&self) -> Saved {
        let (cols, rows) = self.size();
        Saved { cols, rows, dump: self.terminal.dump().into_boxed_str() }
    }

    /// A screen in a state that was kept.
    pub fn restore(saved: &Saved) -> Screen {
        let mut screen = Screen::new(saved.cols, saved.rows);
        screen.terminal.feed(&*saved.dump);
        screen
    }
}

fn clamp(cols: u16, rows: u16) -> (usize, usize) {
    (usize::from(cols.clamp(1, MAX_COLS)), usize::from(rows.clamp(1, MAX_ROWS)))
}

/// Output without the characters that take no column: a terminal joins them to the cell before,
/// which a cell of one character cannot hold, and in a cell of their own they would break the row.
fn visible(text: &str) -> Cow<'_, str> {
    let unseen = |c: char| c == '\u{7f}' || (!c.is_control() && (is_unsafe(c) || c.width() == Some(0)));
    let plain = text.bytes().all(|b| b < 0x7f);
    if plain || !text.chars().any(unseen) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| !unseen(*c)).collect())
}

fn cell(cell: &avt::Cell) -> Cell {
    look(cell, cell.char())
}

fn look(cell: &avt::Cell, ch: char) -> Cell {
    let pen = cell.pen();
    Cell {
        ch: if is_unsafe(ch) { ' ' } else { ch },
        width: cell.width(),
        style: Style {
            fg: color(pen.foreground()),
            bg: color(pen.background()),
            bold: pen.is_bold(),
            faint: pen.is_faint(),
            italic: pen.is_italic(),
            underline: pen.is_underline(),
            blink: pen.is_blink(),
            inverse: pen.is_inverse(),
            strikethrough: pen.is_strikethrough(),
        },
    }
}

fn color(color: Option<avt::Color>) -> Color {
    match color {
        None => Color::Default,
        Some(avt::Color::Indexed(n)) => Color::Indexed(n),
        Some(avt::Color::RGB(c)) => Color::Rgb(c.r, c.g, c.b),
    }
}

/// Adds up what the terminal had to do.
struct Meter {
    cost: u64,
    line: u64,
    screen: u64,
}

impl Observer for Meter {
    type Output = ();

    fn before(&mut self, _: &mut Observation<'_>, operation: &Operation) {
        let Operation::Function(function) = operation else { return };
        self.cost += cost(function, self.line, self.screen);
    }

    fn end(&mut self, _: &mut Observation<'_>) {}
}

/// What a function takes, in units of about one printed character, on such a line and screen.
fn cost(function: &Function, line: u64, screen: u64) -> u64 {
    match function {
        Function::Print(_) => 1,
        Function::Rep(n) => u64::from(*n).max(1),
        Function::Lf | Function::Nel | Function::Ri | Function::El(_) | Function::Ech(_) => line,
        Function::Ich(_) | Function::Dch(_) => line,
        Function::Il(_) | Function::Dl(_) | Function::Su(_) | Function::Sd(_) => screen,
        Function::Ed(_) | Function::Decaln | Function::Ris => screen,
        Function::Decset(_) | Function::Decrst(_) => screen / 2,
        _ => 1,
    }
}

/// A place to cut near `PIECE` bytes, between two characters (`str::floor_char_boundary` is newer than
/// the oldest compiler that this crate allows).
fn cut(text: &str) -> usize {
    if text.len() <= PIECE {
        return text.len();
    }
    (PIECE..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_vanish_and_controls_never_become_cells() {
        let mut screen = Screen::new(20, 2);
        screen.feed("\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[c\u{1b}[6n\u{1b}]0;t\u{7}\u{1b}P+q544e\u{1b}\\\u{1b}[8;9999;9999tok\u{7f}\u{202e}\u{9b}31m!");
        assert_eq!(screen.size(), (20, 2));
        assert_eq!(screen.text(), ["ok!", ""]);
        assert!(screen.rows().flatten().all(|c| !is_unsafe(c.ch)));
        assert_eq!(screen.row(0).nth(2).map(|c| c.style.fg), Some(Color::Indexed(1)));
        assert_eq!(screen.row(9).count(), 0);
    }

    #[test]
    fn a_restored_screen_goes_on_like_the_original() {
        let mut a = Screen::new(30, 4);
        a.feed("\u{1b}[1;38;2;1;2;3mwide 任务\r\nxx\u{1b}[?25l\u{1b}[3");
        let mut b = Screen::restore(&a.dump());
        for screen in [&mut a, &mut b] {
            screen.feed("1mred");
            screen.resize(10, 6);
            screen.feed("end");
        }
        assert!(a.rows().flatten().eq(b.rows().flatten()));
        assert_eq!((a.cursor(), a.size()), (b.cursor(), b.size()));
        assert_eq!(a.cursor(), None);
    }

    #[test]
    fn output_made_to_hang_an_emulator_is_cut() {
        let mut screen = Screen::new(1000, 500);
        let cost = screen.feed(&"a\u{1b}[65535b".repeat(100_000));
        assert!(cost < 2 * MAX_EVENT_COST, "{cost}");
    }
}
