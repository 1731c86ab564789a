//! A line of text being typed.

use super::key::Key;

/// One line with a cursor, counted in characters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Input {
    chars: Vec<char>,
    /// Cursor position in characters.
    pub cursor: usize,
}

impl Input {
    /// Starts with a text, cursor at its end.
    pub fn new(text: &str) -> Input {
        let chars: Vec<char> = text.chars().collect();
        Input { cursor: chars.len(), chars }
    }

    /// The text.
    pub fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// Takes a key; true when it was one for editing.
    pub fn key(&mut self, key: Key) -> bool {
        match key {
            Key::Char(c) if !crate::job::text::is_unsafe(c) && self.chars.len() < 500 => {
                self.chars.insert(self.cursor.min(self.chars.len()), c);
                self.cursor += 1;
            }
            Key::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.chars.remove(self.cursor);
            }
            Key::Delete if self.cursor < self.chars.len() => {
                self.chars.remove(self.cursor);
            }
            Key::Left => self.cursor = self.cursor.saturating_sub(1),
            Key::Right => self.cursor = (self.cursor + 1).min(self.chars.len()),
            Key::Home | Key::Ctrl('a') => self.cursor = 0,
            Key::End | Key::Ctrl('e') => self.cursor = self.chars.len(),
            Key::Ctrl('u') => {
                self.chars.drain(..self.cursor);
                self.cursor = 0;
            }
            Key::Ctrl('w') => {
                let mut from = self.cursor;
                while from > 0 && self.chars.get(from - 1).is_some_and(|c| c.is_whitespace()) {
                    from -= 1;
                }
                while from > 0 && self.chars.get(from - 1).is_some_and(|c| !c.is_whitespace()) {
                    from -= 1;
                }
                self.chars.drain(from..self.cursor);
                self.cursor = from;
            }
            Key::Backspace | Key::Delete => {}
            _ => return false,
        }
        true
    }

    /// Takes pasted text: one line, nothing that is not printable.
    pub fn paste(&mut self, text: &str) {
        // Line by line: what is copied from a coloured terminal brings its sequences along.
        let lines: Vec<_> = text.lines().map(crate::job::text::strip_ansi).collect();
        for c in lines.join(" ").chars().take(500) {
            self.key(Key::Char(if c.is_whitespace() { ' ' } else { c }));
        }
    }
}
