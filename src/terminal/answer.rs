//! The answers of a terminal to the programs in it.
//!
//! The emulator is silent, and a program that asks waits for its own timeout. Answers are those of tmux
//! 3.3a, asked in a container: status, cursor, attributes, terminal, version. Three differ, each to the
//! good of the program: tmux 3.3a gives the size with columns and rows swapped; it is silent about modes
//! (later ones answer); and it knows no colours as long as nobody is attached.

/// What a program asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Query {
    /// DSR 5: is all well?
    Status,
    /// DSR 6: where is the cursor?
    Cursor,
    /// DA1.
    Attributes,
    /// DA2.
    Terminal,
    /// XTVERSION.
    Version,
    /// The size in characters.
    Size,
    /// DECRQM.
    Mode {
        /// A DEC mode, not an ANSI one.
        private: bool,
        /// Its number.
        mode: u32,
        /// Whether it is set; None for one that is not known.
        set: Option<bool>,
    },
    /// OSC 10 and 11: colour of text (10), of what is behind it (11).
    Colour {
        /// 10 or 11.
        which: u8,
        /// Asked with BEL as end, and answered so.
        bell: bool,
    },
}

/// The bytes to type in answer. The cursor counts columns and rows from 0.
pub(super) fn answer(query: Query, cursor: (u16, u16), size: (u16, u16)) -> Vec<u8> {
    const ESC: char = '\u{1b}';
    let text = match query {
        Query::Status => format!("{ESC}[0n"),
        Query::Cursor => format!("{ESC}[{};{}R", u32::from(cursor.1) + 1, u32::from(cursor.0) + 1),
        Query::Attributes => format!("{ESC}[?1;2c"),
        Query::Terminal => format!("{ESC}[>84;0;0c"),
        Query::Version => format!("{ESC}P>|tmux 3.3a{ESC}\\"),
        Query::Size => format!("{ESC}[8;{};{}t", size.1, size.0),
        Query::Mode { private, mode, set } => {
            let state = match set {
                Some(true) => 1,
                Some(false) => 2,
                None => 0,
            };
            format!("{ESC}[{}{mode};{state}$y", if private { "?" } else { "" })
        }
        Query::Colour { which, bell } => {
            let colour = if which == 10 { "rgb:ffff/ffff/ffff" } else { "rgb:0000/0000/0000" };
            let end = if bell { "\u{7}".to_string() } else { format!("{ESC}\\") };
            format!("{ESC}]{which};{colour}{end}")
        }
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_well_formed() {
        let said = |query| String::from_utf8(answer(query, (159, 39), (160, 40))).unwrap_or_default();
        assert_eq!(said(Query::Cursor), "\u{1b}[40;160R");
        assert_eq!(said(Query::Size), "\u{1b}[8;40;160t");
        assert_eq!(said(Query::Mode { private: true, mode: 7, set: Some(true) }), "\u{1b}[?7;1$y");
        assert_eq!(said(Query::Mode { private: false, mode: 4, set: None }), "\u{1b}[4;0$y");
        assert_eq!(said(Query::Colour { which: 11, bell: true }), "\u{1b}]11;rgb:0000/0000/0000\u{7}");
    }
}
