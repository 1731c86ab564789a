//! Keystrokes of an agent as bytes of a terminal.
//!
//! A string that is exactly the name of a key, in tmux's spelling (`C-c`, `Enter`, `M-x`, `PgUp`, `^d`),
//! is that key; every other string is typed as it is, byte by byte: a name with an end of line behind
//! it is text. Codes are those of tmux 3.3a, asked in a container.
//!
//! What differs from typing through `tmux send-keys`, and is meant to:
//! - a `;` at the end is typed; there it is lost, and a `;` alone sends nothing;
//! - `0x41` and `User0` are text; there the first is the character of that number, the second nothing;
//! - Ctrl with a key that has no such code (`C-1`, `C-Enter`) is the key as xterm sends it; there nothing;
//! - there is no longest command: 16 kB are typed like 16 bytes, and an end of line stays one (there
//!   long ones are pasted, with carriage returns).

/// The forms of keys that a program can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyModes {
    /// Application cursor keys (DECCKM).
    pub cursor: bool,
    /// Application keypad (DECKPAM).
    pub keypad: bool,
}

/// The bytes to type.
pub fn encode(keystrokes: &str, modes: KeyModes) -> Vec<u8> {
    key(keystrokes, modes).unwrap_or_else(|| keystrokes.as_bytes().to_vec())
}

/// True for the name of a key.
pub fn is_key(keystrokes: &str) -> bool {
    key(keystrokes, KeyModes::default()).is_some()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Modifiers {
    ctrl: bool,
    meta: bool,
    shift: bool,
}

impl Modifiers {
    /// xterm's number for them; 1 is none.
    fn number(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.meta) + 4 * u8::from(self.ctrl)
    }
}

const ESC: u8 = 0x1b;

enum Special {
    /// A single code.
    Plain(u8),
    /// `ESC [ code`, in the application form `ESC O code`.
    Cursor(u8),
    /// `ESC [ number ~`; with modifiers the letter where there is one.
    Numbered(u8, Option<u8>),
    /// `ESC O code`.
    Function(u8),
    /// A code, in the application form `ESC O code`.
    Keypad(u8, u8),
    /// Tab backwards.
    BackTab,
}

fn special(name: &str) -> Option<Special> {
    use Special::{BackTab, Cursor, Function, Keypad, Numbered, Plain};
    Some(match name.to_ascii_lowercase().as_str() {
        "f1" => Function(b'P'),
        "f2" => Function(b'Q'),
        "f3" => Function(b'R'),
        "f4" => Function(b'S'),
        "f5" => Numbered(15, None),
        "f6" => Numbered(17, None),
        "f7" => Numbered(18, None),
        "f8" => Numbered(19, None),
        "f9" => Numbered(20, None),
        "f10" => Numbered(21, None),
        "f11" => Numbered(23, None),
        "f12" => Numbered(24, None),
        "ic" | "insert" => Numbered(2, None),
        "dc" | "delete" => Numbered(3, None),
        "home" => Numbered(1, Some(b'H')),
        "end" => Numbered(4, Some(b'F')),
        "npage" | "pagedown" | "pgdn" => Numbered(6, None),
        "ppage" | "pageup" | "pgup" => Numbered(5, None),
        "tab" => Plain(b'\t'),
        "btab" => BackTab,
        "space" => Plain(b' '),
        "bspace" => Plain(0x7f),
        "enter" => Plain(b'\r'),
        "escape" => Plain(ESC),
        "up" => Cursor(b'A'),
        "down" => Cursor(b'B'),
        "right" => Cursor(b'C'),
        "left" => Cursor(b'D'),
        "kp/" => Keypad(b'/', b'o'),
        "kp*" => Keypad(b'*', b'j'),
        "kp-" => Keypad(b'-', b'm'),
        "kp+" => Keypad(b'+', b'k'),
        "kp." => Keypad(b'.', b'n'),
        "kpenter" => Keypad(b'\n', b'M'),
        "kp0" => Keypad(b'0', b'p'),
        "kp1" => Keypad(b'1', b'q'),
        "kp2" => Keypad(b'2', b'r'),
        "kp3" => Keypad(b'3', b's'),
        "kp4" => Keypad(b'4', b't'),
        "kp5" => Keypad(b'5', b'u'),
        "kp6" => Keypad(b'6', b'v'),
        "kp7" => Keypad(b'7', b'w'),
        "kp8" => Keypad(b'8', b'x'),
        "kp9" => Keypad(b'9', b'y'),
        _ => return None,
    })
}

/// The bytes of a key; None for what is no key's name.
fn key(name: &str, modes: KeyModes) -> Option<Vec<u8>> {
    let (modifiers, name) = modifiers(name)?;
    let mut chars = name.chars();
    let first = chars.next()?;
    if chars.next().is_none() {
        return character(first, modifiers);
    }
    let special = special(name)?;
    let with = modifiers.number();
    let csi = |tail: String| [&[ESC, b'['], tail.as_bytes()].concat();
    let meta = |bytes: Vec<u8>| if modifiers.meta { [vec![ESC], bytes].concat() } else { bytes };
    Some(match special {
        Special::Plain(_) | Special::Keypad(..) | Special::BackTab if modifiers.shift => return None,
        Special::Plain(b' ') if modifiers.ctrl => meta(vec![0]),
        Special::Plain(code) => meta(vec![code]),
        Special::BackTab => meta(csi("Z".to_string())),
        Special::Keypad(_, code) if modes.keypad && !modifiers.ctrl => meta(vec![ESC, b'O', code]),
        Special::Keypad(code, _) => meta(vec![code]),
        Special::Cursor(code) | Special::Function(code) if with > 1 => csi(format!("1;{with}{}", char::from(code))),
        Special::Cursor(code) if !modes.cursor => vec![ESC, b'[', code],
        Special::Cursor(code) | Special::Function(code) => vec![ESC, b'O', code],
        Special::Numbered(_, Some(letter)) if with > 1 => csi(format!("1;{with}{}", char::from(letter))),
        Special::Numbered(number, _) if with > 1 => csi(format!("{number};{with}~")),
        Special::Numbered(number, _) => csi(format!("{number}~")),
    })
}

/// The modifiers before a name, and the rest.
fn modifiers(name: &str) -> Option<(Modifiers, &str)> {
    let mut modifiers = Modifiers::default();
    let mut rest = name;
    if let Some(short) = rest.strip_prefix('^').filter(|short| !short.is_empty()) {
        modifiers.ctrl = true;
        rest = short;
    }
    while let [letter, b'-', ..] = rest.as_bytes() {
        match letter {
            b'C' | b'c' => modifiers.ctrl = true,
            b'M' | b'm' => modifiers.meta = true,
            b'S' | b's' => modifiers.shift = true,
            _ => return None,
        }
        rest = rest.get(2..)?;
    }
    Some((modifiers, rest))
}

/// A character with modifiers; None for one without, which is text.
fn character(c: char, modifiers: Modifiers) -> Option<Vec<u8>> {
    if modifiers.shift || modifiers == Modifiers::default() || (c.is_ascii() && c < ' ') {
        return None;
    }
    let mut bytes = Vec::new();
    if modifiers.meta {
        bytes.push(ESC);
    }
    match u8::try_from(c).ok().filter(u8::is_ascii) {
        Some(byte) if modifiers.ctrl => bytes.push(control(byte)?),
        _ => bytes.extend(c.to_string().bytes()),
    }
    Some(bytes)
}

/// The code of a character with Ctrl; None where tmux takes the name for text.
fn control(byte: u8) -> Option<u8> {
    Some(match byte {
        b'a'..=b'z' | b'@'..=b'_' => byte & 0x1f,
        b'?' | b'8' => 0x7f,
        b' ' | b'2' => 0,
        b'3' => 0x1b,
        b'4' => 0x1c,
        b'5' => 0x1d,
        b'6' => 0x1e,
        b'/' | b'-' | b'7' => 0x1f,
        b'!' | b'#' | b'(' | b')' | b'+' | b',' | b'.' | b'0' | b'1' | b'9' | b':' | b';' | b'<' | b'=' | b'>'
        | b'\'' | b'`' => byte,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(keys: &str) -> String {
        String::from_utf8_lossy(&encode(keys, KeyModes::default())).into_owned()
    }

    #[test]
    fn names_are_keys_and_everything_else_is_text() {
        for (name, bytes) in [
            ("C-c", "\u{3}"),
            ("^D", "\u{4}"),
            ("c-x", "\u{18}"),
            ("C-?", "\u{7f}"),
            ("Enter", "\r"),
            ("escape", "\u{1b}"),
            ("M-x", "\u{1b}x"),
            ("C-M-a", "\u{1b}\u{1}"),
            ("M-é", "\u{1b}é"),
            ("Up", "\u{1b}[A"),
            ("C-S-Up", "\u{1b}[1;6A"),
            ("Home", "\u{1b}[1~"),
            ("M-Home", "\u{1b}[1;3H"),
            ("F12", "\u{1b}[24~"),
            ("S-F1", "\u{1b}[1;2P"),
            ("BSpace", "\u{7f}"),
            ("C-Space", "\u{0}"),
            ("C-^", "\u{1e}"),
        ] {
            assert_eq!(sent(name), bytes, "{name}");
        }
        for text in [
            "", "C-c\n", "ls -l\n", ";", "a;", "0x41", "User0", "None", "C-", "^", "S-a", "C-$", "a-b", "é", "\n",
            "Up\n",
        ] {
            assert_eq!(sent(text), text);
        }
        let application = KeyModes { cursor: true, keypad: true };
        assert_eq!(encode("Up", application), b"\x1bOA");
        assert_eq!(encode("C-Up", application), b"\x1b[1;5A");
        assert_eq!(encode("KP7", application), b"\x1bOw");
    }

    proptest! {
        #[test]
        fn text_with_an_end_of_line_is_never_a_key(text in "\\PC{0,40}") {
            let line = format!("{text}\n");
            prop_assert_eq!(encode(&line, KeyModes::default()), line.into_bytes());
            let _ = encode(&text, KeyModes::default());
        }
    }
}
