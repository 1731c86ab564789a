//! Reads the bytes that a program sent to its terminal: which modes are set, and whether there is
//! anything in them that our own screen never sends.

/// A piece of terminal output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Printable text.
    Text(String),
    /// A control other than the escape: C0 or DEL.
    Control(u8),
    /// A C1 control, as U+0080-U+009F or as a bare byte.
    C1(u8),
    /// `ESC [ … final`; the part between and the final byte.
    Csi(String, char),
    /// `ESC ] … (BEL or ST)`.
    Osc(String),
    /// `ESC P`, `X`, `^` or `_` strings: the letter and what follows.
    Str(char, String),
    /// Another escape: what follows the ESC.
    Esc(String),
    /// Bytes that are not UTF-8.
    Invalid(Vec<u8>),
}

/// Takes output apart.
pub fn pieces(raw: &[u8]) -> Vec<Piece> {
    let mut out = Vec::new();
    for chunk in raw.utf8_chunks() {
        parse(chunk.valid(), &mut out);
        match chunk.invalid() {
            [] => {}
            [b @ 0x80..=0x9f] => out.push(Piece::C1(*b)),
            bytes => out.push(Piece::Invalid(bytes.to_vec())),
        }
    }
    out
}

fn parse(text: &str, out: &mut Vec<Piece>) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => {
                    let mut body = String::new();
                    let mut last = '\0';
                    for p in chars.by_ref() {
                        if ('\u{40}'..='\u{7e}').contains(&p) {
                            last = p;
                            break;
                        }
                        body.push(p);
                    }
                    out.push(Piece::Csi(body, last));
                }
                Some(kind @ (']' | 'P' | 'X' | '^' | '_')) => {
                    let mut body = String::new();
                    while let Some(p) = chars.next() {
                        if p == '\u{7}' || p == '\u{9c}' {
                            break;
                        }
                        if p == '\u{1b}' {
                            chars.next_if_eq(&'\\');
                            break;
                        }
                        body.push(p);
                    }
                    out.push(if kind == ']' { Piece::Osc(body) } else { Piece::Str(kind, body) });
                }
                Some(inter @ '\u{20}'..='\u{2f}') => {
                    out.push(Piece::Esc([Some(inter), chars.next()].into_iter().flatten().collect()));
                }
                other => out.push(Piece::Esc(other.into_iter().collect())),
            },
            '\u{0}'..='\u{1f}' | '\u{7f}' => out.push(Piece::Control(c as u8)),
            '\u{80}'..='\u{9f}' => out.push(Piece::C1(c as u8)),
            c => match out.last_mut() {
                Some(Piece::Text(text)) => text.push(c),
                _ => out.push(Piece::Text(c.into())),
            },
        }
    }
}

/// Modes of the terminal that a program sets and has to set back. The default is a terminal as a
/// shell expects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// 1049, 1047 or 47.
    pub alternate_screen: bool,
    /// 25.
    pub cursor_visible: bool,
    /// 2004.
    pub bracketed_paste: bool,
    /// Any of 9, 1000-1003, 1005, 1006, 1015, 1016.
    pub mouse: bool,
    /// 1004.
    pub focus: bool,
    /// 2026: true when a synchronized update was begun and not ended.
    pub synchronized: bool,
    /// A colour or attribute is on.
    pub styled: bool,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes {
            alternate_screen: false,
            cursor_visible: true,
            bracketed_paste: false,
            mouse: false,
            focus: false,
            synchronized: false,
            styled: false,
        }
    }
}

/// Modes after `raw` on a fresh terminal.
pub fn modes(raw: &[u8]) -> Modes {
    let mut modes = Modes::default();
    let mut mouse = std::collections::BTreeSet::new();
    for piece in pieces(raw) {
        let Piece::Csi(body, last) = piece else { continue };
        match (body.strip_prefix('?'), last) {
            (Some(list), 'h' | 'l') => {
                let on = last == 'h';
                for mode in list.split(';') {
                    match mode {
                        "1049" | "1047" | "47" => modes.alternate_screen = on,
                        "25" => modes.cursor_visible = on,
                        "2004" => modes.bracketed_paste = on,
                        "1004" => modes.focus = on,
                        "2026" => modes.synchronized = on,
                        "9" | "1000" | "1001" | "1002" | "1003" | "1005" | "1006" | "1015" | "1016" => {
                            if on {
                                mouse.insert(mode.to_string());
                            } else {
                                mouse.remove(mode);
                            }
                        }
                        _ => {}
                    }
                }
            }
            (None, 'm') => {
                let mut parts = body.split(';');
                while let Some(part) = parts.next() {
                    match part {
                        "" | "0" => modes.styled = false,
                        "22" | "23" | "24" | "25" | "27" | "28" | "29" | "39" | "49" | "59" => {}
                        "38" | "48" | "58" => {
                            modes.styled = true;
                            // The colour's own numbers: 5;n or 2;r;g;b.
                            let skip = if parts.next() == Some("2") { 3 } else { 1 };
                            parts.by_ref().take(skip).for_each(drop);
                        }
                        _ => modes.styled = true,
                    }
                }
            }
            _ => {}
        }
    }
    modes.mouse = !mouse.is_empty();
    modes
}

/// What beside the everyday sequences may be there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// OSC 52, the clipboard.
    pub clipboard: bool,
    /// BEL.
    pub bell: bool,
}

/// The modes that our own screen sets and resets.
const OUR_MODES: [&str; 10] = ["1049", "25", "2004", "1000", "1002", "1003", "1006", "1015", "1004", "2026"];

/// What of `raw` our own screen never sends: one line for each.
pub fn foreign(raw: &[u8], allowed: Allowed) -> Vec<String> {
    let mut alternate = false;
    let mut found = Vec::new();
    for piece in pieces(raw) {
        if let Piece::Csi(body, last @ ('h' | 'l')) = &piece
            && body == "?1049"
        {
            alternate = *last == 'h';
        }
        let ours = match &piece {
            Piece::Text(text) => !text.chars().any(is_invisible),
            // Outside the screen there may be plain lines: what a panic or an error prints.
            Piece::Control(b'\r' | b'\n' | b'\t') => !alternate,
            Piece::Control(0x07) => allowed.bell,
            Piece::Csi(body, last) => match last {
                'A' | 'B' | 'C' | 'D' | 'G' | 'H' | 'J' | 'K' | 'd' | 'm' => {
                    body.chars().all(|c| c.is_ascii_digit() || c == ';' || (c == ':' && *last == 'm'))
                }
                'h' | 'l' => {
                    body.strip_prefix('?').is_some_and(|list| list.split(';').all(|mode| OUR_MODES.contains(&mode)))
                }
                _ => false,
            },
            Piece::Osc(body) => allowed.clipboard && body.starts_with("52;c;"),
            Piece::Control(_) | Piece::C1(_) | Piece::Str(..) | Piece::Esc(_) | Piece::Invalid(_) => false,
        };
        if !ours {
            found.push(format!("{piece:?}"));
        }
    }
    found
}

/// Direction overrides and other characters that must have been taken out.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{61c}' | '\u{e0000}'..='\u{e0fff}')
}

/// Panics when `raw` holds anything that our own screen never sends.
#[track_caller]
pub fn assert_no_foreign_escapes(raw: &[u8], allowed: Allowed) {
    let found = foreign(raw, allowed);
    assert!(found.is_empty(), "{} foreign sequences: {:#?}", found.len(), &found[..found.len().min(20)]);
}
