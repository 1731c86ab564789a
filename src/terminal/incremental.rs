//! What an agent is told about its terminal: what is new, or else the screen.
//!
//! The rules are Terminus-2's. The first time the screen. Later, when all that was there is still
//! there, what came after it, with the last old line (most often the prompt and what was typed) said
//! again; else (cleared, an editor open, a line drawn over) the screen. Blank rows at the end of the
//! screen are kept, long lines are cut into rows.
//!
//! Mended: lines are compared by their number, not searched for as text. So old output is not said
//! again because the first line of the screen was blank, or because the same text was there twice, and
//! output longer than the history is told as far as it is kept, with the number of lines that are not,
//! instead of the last screen alone.

use std::fmt;
use std::sync::Arc;

use super::emulator::{Capture, joined};

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The whole screen, as nothing can be said to be new.
    Screen(String),
    /// What is new.
    Output {
        /// The last old line and what came after it; begins with an end of line where there are older
        /// lines.
        text: String,
        /// Lines that came and were not kept.
        lost: u64,
    },
}

impl fmt::Display for News {
    /// With the words that go before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Screen(text) => write!(f, "Current Terminal Screen:\n{text}"),
            News::Output { text, lost: 0 } => write!(f, "New Terminal Output:\n{text}"),
            News::Output { text, lost } => {
                write!(f, "New Terminal Output:\n[{lost} earlier lines are not kept]\n{text}")
            }
        }
    }
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub struct Teller {
    before: Option<Before>,
}

#[derive(Debug)]
struct Before {
    /// Number of the first of the lines.
    first: u64,
    /// From the first line that is not blank to the last one.
    lines: Vec<Arc<str>>,
    alternate: bool,
    cleared: u64,
}

fn is_blank(line: &Arc<str>) -> bool {
    line.trim().is_empty()
}

impl Before {
    fn of(now: &Capture) -> Before {
        let lines: Vec<Arc<str>> = now.lines().cloned().collect();
        let begin = lines.iter().position(|l| !is_blank(l)).unwrap_or(lines.len());
        let end = lines.iter().rposition(|l| !is_blank(l)).map_or(begin, |at| at + 1);
        Before {
            first: now.first + begin as u64,
            lines: lines.get(begin..end).unwrap_or_default().to_vec(),
            alternate: now.alternate,
            cleared: now.cleared,
        }
    }
}

impl Teller {
    /// What to tell now; from now on this is old.
    pub fn tell(&mut self, now: &Capture) -> News {
        let before = self.before.replace(Before::of(now));
        before.and_then(|before| output(&before, now)).unwrap_or_else(|| News::Screen(now.screen()))
    }
}

fn output(before: &Before, now: &Capture) -> Option<News> {
    if before.alternate || now.alternate || before.cleared != now.cleared {
        return None;
    }
    let lines: Vec<&Arc<str>> = now.lines().collect();
    let line = |number: u64| lines.get(usize::try_from(number.checked_sub(now.first)?).ok()?).copied();
    let Some(last) = before.lines.len().checked_sub(1) else {
        return told(now.lines(), 0);
    };
    for (at, old) in before.lines.iter().enumerate() {
        let number = before.first + at as u64;
        if number < now.first {
            continue;
        }
        let new = line(number)?;
        if if at == last { !new.starts_with(&**old) } else { new != old } {
            return None;
        }
    }
    let last_number = before.first + last as u64;
    match usize::try_from(last_number.checked_sub(now.first).unwrap_or(u64::MAX)) {
        Ok(from) if last_number >= now.first => {
            let begin = if last > 0 { "\n" } else { "" };
            let text = format!("{begin}{}", joined(lines.get(from..)?.iter().copied()));
            (!text.trim().is_empty()).then_some(News::Output { text, lost: 0 })
        }
        // The history is shorter than what came.
        _ => told(now.lines(), now.first - last_number - 1),
    }
}

fn told<'a>(lines: impl Iterator<Item = &'a Arc<str>>, lost: u64) -> Option<News> {
    let text = joined(lines);
    (!text.trim().is_empty()).then_some(News::Output { text, lost })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::terminal::{Emulator, HISTORY, ROWS};

    struct Told(Emulator, Teller);

    impl Told {
        fn new() -> Told {
            Told(Emulator::new(), Teller::default())
        }

        fn after(&mut self, output: &str) -> String {
            self.0.feed(output.replace('\n', "\r\n").as_bytes(), Instant::now());
            self.1.tell(&self.0.capture()).to_string()
        }
    }

    fn blank(text: &str, rows: usize) -> String {
        format!("{text}{}", "\n".repeat(rows))
    }

    #[test]
    fn the_last_old_line_is_said_again_and_nothing_older() {
        let mut told = Told::new();
        let rows = usize::from(ROWS);
        assert_eq!(told.after("\n$ "), blank("Current Terminal Screen:\n\n$", rows - 1));
        assert_eq!(told.after("ls\na b\n$ "), blank("New Terminal Output:\n$ ls\na b\n$", rows - 3));
        assert_eq!(told.after("pwd\n/app\n$ "), blank("New Terminal Output:\n\n$ pwd\n/app\n$", rows - 5));
        // Nothing happened.
        assert_eq!(told.after(""), blank("New Terminal Output:\n\n$", rows - 5));
    }

    #[test]
    fn a_cleared_screen_an_editor_and_a_line_drawn_over_fall_back_to_the_screen() {
        let mut told = Told::new();
        told.after("$ one\n$ ");
        let cleared = told.after("clear\n\u{1b}[H\u{1b}[2J\u{1b}[3J$ ");
        assert!(cleared.starts_with("Current Terminal Screen:\n$\n\n"), "{cleared}");
        let editor = told.after("vi\n\u{1b}[?1049h\u{1b}[Hediting");
        assert!(editor.starts_with("Current Terminal Screen:\nediting\n"), "{editor}");
        let back = told.after("\u{1b}[?1049l$ ");
        assert!(back.starts_with("Current Terminal Screen:\n"), "{back}");
        told.after("\rprogress 10 %");
        let over = told.after("\rprogress 20 %");
        assert!(over.starts_with("Current Terminal Screen:\n"), "{over}");
    }

    #[test]
    fn output_longer_than_the_history_is_told_as_far_as_it_is_kept() {
        let mut told = Told::new();
        told.after("$ ");
        let many: String = (1..=5000).map(|n| format!("{n}\n")).collect();
        let text = told.after(&format!("seq 5000\n{many}$ "));
        let kept = told.0.capture().history.len();
        assert!((HISTORY * 9 / 10..=HISTORY).contains(&kept), "{kept}");
        let lost = 5002 - usize::from(ROWS) - kept - 1;
        let first = lost + 1;
        assert!(
            text.starts_with(&format!("New Terminal Output:\n[{lost} earlier lines are not kept]\n{first}\n")),
            "{}",
            &text[..99]
        );
        assert!(text.ends_with("\n5000\n$\n"), "{text}");
        // And from there on.
        assert!(told.after("x\n$ ").starts_with("New Terminal Output:\n\n$ x\n$\n"));
    }
}
