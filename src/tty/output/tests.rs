use std::sync::{Arc, Mutex, PoisonError};

use ratatui::style::{Color, Style};
use ratatui::widgets::Paragraph;

use super::*;

/// What was written, one entry per call.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<Vec<u8>>>>);

impl Tape {
    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn term(columns: u16, rows: u16, level: ColorLevel) -> (Term, Tape) {
    let tape = Tape::default();
    match Term::into_writer(tape.clone(), Size::new(columns, rows), level) {
        Ok(term) => (term, tape),
        Err(error) => unreachable!("{error}"),
    }
}

fn show(term: &mut Term, text: &str) {
    let drawn = term.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area()));
    assert!(drawn.is_ok(), "{drawn:?}");
}

#[test]
fn a_frame_is_one_write_inside_a_synchronized_update() {
    let (mut term, tape) = term(20, 3, ColorLevel::Ansi16);
    show(&mut term, "one\ntwo");
    let writes = tape.take();
    assert_eq!(writes.len(), 1);
    let text = String::from_utf8_lossy(&writes[0]).into_owned();
    assert!(text.starts_with("\u{1b}[?2026h") && text.ends_with("\u{1b}[?2026l"), "{text:?}");
    assert_eq!(text.matches("2026").count(), 2);
    let stats = term.stats();
    assert_eq!((stats.frames, stats.written, stats.writes), (1, 1, 1));
    assert_eq!(stats.bytes, writes[0].len() as u64);
}

#[test]
fn a_frame_without_change_writes_nothing() {
    let (mut term, tape) = term(20, 3, ColorLevel::Ansi16);
    show(&mut term, "same");
    tape.take();
    show(&mut term, "same");
    assert!(tape.take().is_empty());
    assert_eq!(term.stats().frames, 2);
    show(&mut term, "sane");
    let text = tape.take().concat();
    assert!(text.len() < 60, "one changed cell took {} bytes", text.len());
}

#[test]
fn hostile_cells_never_get_out() {
    let (mut term, tape) = term(30, 2, ColorLevel::TrueColor);
    let hostile = ["\u{1b}]0;x\u{7}", "\u{9b}2J", "a\u{202e}", "\u{0}", "\u{7f}", "", "\r\n"];
    let drawn = term.draw(|frame| {
        for (x, symbol) in hostile.iter().enumerate() {
            if let Some(cell) = frame.buffer_mut().cell_mut((x as u16 * 2, 0)) {
                cell.set_symbol(symbol);
            }
        }
    });
    assert!(drawn.is_ok());
    let bytes = tape.take().concat();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert_eq!(text.matches('\u{fffd}').count(), 6);
    assert!(!text.contains(['\u{9b}', '\u{202e}', '\0', '\u{7f}', '\u{7}', '\r', '\n']));
    assert!(!text.contains("\u{1b}]"));
}

#[test]
fn without_colours_only_attributes_are_left() {
    let (mut term, tape) = term(30, 1, ColorLevel::None);
    let drawn = term.draw(|frame| {
        let style = Style::new().fg(Color::Rgb(200, 10, 10)).bg(Color::Blue).bold();
        frame.render_widget(Paragraph::new("loud").style(style), frame.area());
    });
    assert!(drawn.is_ok());
    let text = String::from_utf8_lossy(&tape.take().concat()).into_owned();
    assert!(text.contains("\u{1b}[1m"), "{text:?}");
    assert!(!text.contains("38;") && !text.contains("48;"), "{text:?}");
}

#[test]
fn a_resize_repaints_every_cell_without_clearing() {
    let (mut term, tape) = term(20, 4, ColorLevel::Ansi16);
    let mut vt = avt::Terminal::new(20, 4).ok();
    let mut feed = |tape: &Tape, size: Option<(usize, usize)>| -> (String, Vec<String>) {
        let text = String::from_utf8_lossy(&tape.take().concat()).into_owned();
        let Some(vt) = vt.as_mut() else { return (text, Vec::new()) };
        if let Some((columns, rows)) = size {
            vt.resize(columns, rows);
            // What a terminal leaves behind after a resize is anybody's guess.
            vt.feed("\u{1b}[H####################\u{1b}[2;1H##########");
        }
        vt.feed(text.as_str());
        let lines = vt.screen().visible_lines().map(|l| l.text().trim_end().to_string()).collect();
        (text, lines)
    };
    show(&mut term, "first line\nsecond");
    let (first, lines) = feed(&tape, None);
    assert!(first.contains("\u{1b}[2J"));
    assert_eq!(lines[..2], ["first line", "second"]);
    for (columns, rows) in [(12, 3), (30, 6), (30, 2)] {
        term.set_writer_size(Size::new(columns, rows));
        show(&mut term, "new\nsize");
        assert_eq!(term.size(), Size::new(columns, rows));
        let (text, lines) = feed(&tape, Some((columns.into(), rows.into())));
        assert!(!text.contains("\u{1b}[2J"), "{text:?}");
        assert_eq!(lines[..2], ["new", "size"], "{columns}x{rows}");
        assert!(lines[2..].iter().all(String::is_empty));
    }
    term.clear();
    show(&mut term, "new\nsize");
    let (text, lines) = feed(&tape, None);
    assert!(text.contains("\u{1b}[2J"));
    assert_eq!(lines[..2], ["new", "size"]);
}

#[test]
fn the_cursor_is_shown_where_the_view_puts_it() {
    let (mut term, tape) = term(20, 2, ColorLevel::Ansi16);
    let input = |term: &mut Term, text: &str, x: u16| {
        let drawn = term.draw(|frame| {
            frame.render_widget(Paragraph::new(text), frame.area());
            frame.set_cursor_position((x, 0));
        });
        assert!(drawn.is_ok());
    };
    input(&mut term, "/a", 2);
    let text = String::from_utf8_lossy(&tape.take().concat()).into_owned();
    assert!(text.ends_with("\u{1b}[?25h\u{1b}[1;3H\u{1b}[?2026l"), "{text:?}");
    input(&mut term, "/a", 2);
    assert!(tape.take().is_empty());
    input(&mut term, "/a", 1);
    let text = String::from_utf8_lossy(&tape.take().concat()).into_owned();
    assert_eq!(text, "\u{1b}[?2026h\u{1b}[1;2H\u{1b}[?2026l");
    show(&mut term, "/a");
    assert!(String::from_utf8_lossy(&tape.take().concat()).contains("\u{1b}[?25l"));
}

#[test]
fn a_closed_terminal_is_an_error_not_a_panic() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(rustix::io::Errno::IO.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let term = Term::into_writer(Closed, Size::new(5, 1), ColorLevel::None);
    let drawn = term.map(|mut term| term.draw(|frame| frame.render_widget(Paragraph::new("x"), frame.area())));
    assert!(matches!(drawn, Ok(Err(TtyError::Gone(_)))), "{drawn:?}");
}
