//! JSON as Python reads it, with its leniencies (`NaN`, `Infinity`, half of a surrogate pair) and its
//! severities (no control characters in strings, no comma at the end), and with its way to say where
//! and why it stopped: that is what a model is told.

use std::fmt;

/// Deepest nesting. Python gives up near its recursion limit, with an error that ends the trial.
const DEEPEST: u32 = 500;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// Any number; what is too large is infinite.
    Number(f64),
    /// Text. Half of a surrogate pair is U+FFFD.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, in order; of a name that is there twice the last value counts.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// A field of an object.
    pub fn field(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Whether Python takes it for true.
    pub fn is_truthy(&self) -> bool {
        match self {
            Json::Null => false,
            Json::Bool(is) => *is,
            Json::Number(n) => *n != 0.0,
            Json::Text(text) => !text.is_empty(),
            Json::List(items) => !items.is_empty(),
            Json::Object(fields) => !fields.is_empty(),
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A value was expected.
    Value,
    /// `:` was expected.
    Colon,
    /// `,` was expected.
    Comma,
    /// A name in double quotes was expected.
    Name,
    /// A comma before `}`.
    CommaBeforeObjectEnd,
    /// A comma before `]`.
    CommaBeforeListEnd,
    /// A string without an end; the place is its beginning.
    Unterminated,
    /// A control character in a string.
    Control,
    /// No such escape.
    Escape,
    /// `\u` without four hexadecimal digits.
    Unicode,
    /// More behind the value.
    Extra,
    /// Too deep.
    Depth,
}

/// Where and why reading stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Why.
    pub wrong: Wrong,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters before it.
    pub at: usize,
}

impl Fault {
    /// In Python's words.
    pub fn python(&self) -> String {
        let why = match self.wrong {
            Wrong::Value => "Expecting value",
            Wrong::Colon => "Expecting ':' delimiter",
            Wrong::Comma => "Expecting ',' delimiter",
            Wrong::Name => "Expecting property name enclosed in double quotes",
            Wrong::CommaBeforeObjectEnd => "Illegal trailing comma before end of object",
            Wrong::CommaBeforeListEnd => "Illegal trailing comma before end of array",
            Wrong::Unterminated => "Unterminated string starting at",
            Wrong::Control => "Invalid control character at",
            Wrong::Escape => "Invalid \\escape",
            Wrong::Unicode => "Invalid \\uXXXX escape",
            Wrong::Extra => "Extra data",
            Wrong::Depth => "Nested too deeply",
        };
        format!("{why}: line {} column {} (char {})", self.line, self.column, self.at)
    }
}

impl fmt::Display for Fault {
    /// In ours.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.wrong {
            Wrong::Value => "a value is missing",
            Wrong::Colon => "a colon is missing",
            Wrong::Comma => "a comma is missing",
            Wrong::Name => "a field name in double quotes is missing",
            Wrong::CommaBeforeObjectEnd => "there is a comma behind the last field",
            Wrong::CommaBeforeListEnd => "there is a comma behind the last item",
            Wrong::Unterminated => "a string begins and does not end",
            Wrong::Control => "a string holds a raw control character (write a line break as \\n, a tab as \\t)",
            Wrong::Escape => "a string holds an escape that JSON does not have",
            Wrong::Unicode => "a \\u escape is not followed by four hexadecimal digits",
            Wrong::Extra => "more text follows the value",
            Wrong::Depth => "it is nested too deeply",
        };
        write!(f, "{why}, line {} column {}", self.line, self.column)
    }
}

/// Reads a text that is one value.
///
/// # Errors
/// See [`Fault`].
pub fn read(text: &str) -> Result<Json, Fault> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0 };
    let done = reader.whole();
    done.map_err(|(wrong, at)| place(text, wrong, at))
}

fn place(text: &str, wrong: Wrong, at: usize) -> Fault {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before.get(begin..).unwrap_or_default().chars().count() + 1;
    Fault { wrong, line, column, at: before.chars().count() }
}

type Read<T> = Result<T, (Wrong, usize)>;

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn whole(&mut self) -> Read<Json> {
        self.blanks();
        let value = self.value(0)?;
        self.blanks();
        if self.at < self.bytes.len() { Err((Wrong::Extra, self.at)) } else { Ok(value) }
    }

    fn value(&mut self, depth: u32) -> Read<Json> {
        if depth > DEEPEST {
            return Err((Wrong::Depth, self.at));
        }
        match self.peek() {
            Some(b'"') => self.string().map(Json::Text),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Read<Json> {
        let words = [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
            ("NaN", Json::Number(f64::NAN)),
            ("Infinity", Json::Number(f64::INFINITY)),
            ("-Infinity", Json::Number(f64::NEG_INFINITY)),
        ];
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        for (word, value) in words {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.number()
    }

    fn digits(&self, mut at: usize) -> usize {
        while self.bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    }

    fn number(&mut self) -> Read<Json> {
        let begin = self.at;
        let whole = begin + usize::from(self.peek() == Some(b'-'));
        let mut end = match self.bytes.get(whole) {
            Some(b'0') => whole + 1,
            Some(b'1'..=b'9') => self.digits(whole),
            _ => return Err((Wrong::Value, begin)),
        };
        if self.bytes.get(end) == Some(&b'.') && self.digits(end + 1) > end + 1 {
            end = self.digits(end + 1);
        }
        if matches!(self.bytes.get(end), Some(b'e' | b'E')) {
            let sign = end + 1 + usize::from(matches!(self.bytes.get(end + 1), Some(b'+' | b'-')));
            if self.digits(sign) > sign {
                end = self.digits(sign);
            }
        }
        self.at = end;
        let text = self.text.get(begin..end).unwrap_or_default();
        text.parse().map(Json::Number).map_err(|_| (Wrong::Value, begin))
    }

    fn list(&mut self, depth: u32) -> Read<Json> {
        self.at += 1;
        self.blanks();
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    return Ok(Json::List(items));
                }
                Some(b',') => {}
                _ => return Err((Wrong::Comma, self.at)),
            }
            let comma = self.at;
            self.at += 1;
            self.blanks();
            if self.peek() == Some(b']') {
                return Err((Wrong::CommaBeforeListEnd, comma));
            }
        }
    }

    fn object(&mut self, depth: u32) -> Read<Json> {
        self.at += 1;
        self.blanks();
        let mut fields: Vec<(String, Json)> = Vec::new();
        // Many fields are looked up by their names once each; a list is enough for what models write.
        let mut places = std::collections::HashMap::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(fields));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err((Wrong::Name, self.at));
            }
            let name = self.string()?;
            self.blanks();
            if self.peek() != Some(b':') {
                return Err((Wrong::Colon, self.at));
            }
            self.at += 1;
            self.blanks();
            let value = self.value(depth + 1)?;
            let at = *places.entry(name.clone()).or_insert(fields.len());
            match fields.get_mut(at) {
                Some(field) => field.1 = value,
                None => fields.push((name, value)),
            }
            self.blanks();
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Json::Object(fields));
                }
                Some(b',') => {}
                _ => return Err((Wrong::Comma, self.at)),
            }
            let comma = self.at;
            self.at += 1;
            self.blanks();
            if self.peek() == Some(b'}') {
                return Err((Wrong::CommaBeforeObjectEnd, comma));
            }
        }
    }

    fn string(&mut self) -> Read<String> {
        let begin = self.at;
        let endless = (Wrong::Unterminated, begin);
        self.at += 1;
        let mut out = String::new();
        loop {
            let from = self.at;
            while self.peek().is_some_and(|b| b != b'"' && b != b'\\' && b >= 0x20) {
                self.at += 1;
            }
            out.push_str(self.text.get(from..self.at).unwrap_or_default());
            match self.peek() {
                None => return Err(endless),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape(endless)?),
                Some(_) => return Err((Wrong::Control, self.at)),
            }
        }
    }

    fn escape(&mut self, endless: (Wrong, usize)) -> Read<char> {
        let begin = self.at;
        self.at += 1;
        let Some(letter) = self.peek() else { return Err(endless) };
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex().ok_or((Wrong::Unicode, begin + 1))?;
                if (0xD800..0xDC00).contains(&high) && self.bytes.get(self.at..self.at + 2) == Some(b"\\u") {
                    let back = self.at;
                    self.at += 2;
                    match self.hex() {
                        Some(low) if (0xDC00..0xE000).contains(&low) => {
                            let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                            return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
                        }
                        Some(_) => self.at = back,
                        None => return Err((Wrong::Unicode, back + 1)),
                    }
                }
                char::from_u32(high).unwrap_or('\u{fffd}')
            }
            _ => return Err((Wrong::Escape, begin)),
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.bytes.get(self.at..self.at + 4)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let value = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        self.at += 4;
        Some(value)
    }
}

/// A text as Python shows it in an error: quoted, what can not be seen escaped.
pub fn shown(text: &str) -> String {
    use std::fmt::Write as _;
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() && (c as u32) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_python_refuses_is_refused_at_the_same_place() {
        // Asked of Python 3.13.
        for (text, said) in [
            ("", "Expecting value: line 1 column 1 (char 0)"),
            ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
            ("{a: 1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
            ("{\"a\" 1}", "Expecting ':' delimiter: line 1 column 6 (char 5)"),
            ("{\"a\": }", "Expecting value: line 1 column 7 (char 6)"),
            ("{\"a\": 1 \"b\": 2}", "Expecting ',' delimiter: line 1 column 9 (char 8)"),
            ("{\"a\": 1,}", "Illegal trailing comma before end of object: line 1 column 8 (char 7)"),
            ("[1, 2,\n]", "Illegal trailing comma before end of array: line 1 column 6 (char 5)"),
            ("{\"é\":\n \"x\ny\"}", "Invalid control character at: line 2 column 4 (char 9)"),
            ("{\"a\": \"x", "Unterminated string starting at: line 1 column 7 (char 6)"),
            ("\"\\q\"", "Invalid \\escape: line 1 column 2 (char 1)"),
            ("\"\\u12\"", "Invalid \\uXXXX escape: line 1 column 3 (char 2)"),
            ("1 2", "Extra data: line 1 column 3 (char 2)"),
            ("01", "Extra data: line 1 column 2 (char 1)"),
            ("-", "Expecting value: line 1 column 1 (char 0)"),
        ] {
            assert_eq!(read(text).unwrap_err().python(), said, "{text:?}");
        }
        assert_eq!(read(&"[".repeat(100_000)).unwrap_err().wrong, Wrong::Depth);
    }

    #[test]
    fn what_python_reads_is_read() {
        assert_eq!(
            read("[1.5e3, -0, 1e999]"),
            Ok(Json::List(vec![1500.0, 0.0, f64::INFINITY].into_iter().map(Json::Number).collect()))
        );
        assert!(matches!(read("NaN"), Ok(Json::Number(n)) if n.is_nan()));
        assert_eq!(read("-Infinity"), Ok(Json::Number(f64::NEG_INFINITY)));
        assert_eq!(read("\"\\ud83d\\ude00 \\ud83d\""), Ok(Json::Text("\u{1f600} \u{fffd}".into())));
        assert_eq!(read("\"\u{7f}\u{2028}\""), Ok(Json::Text("\u{7f}\u{2028}".into())));
        let twice = read("{\"a\": 1, \"b\": 2, \"a\": 3}").unwrap();
        assert_eq!(twice.field("a"), Some(&Json::Number(3.0)));
        assert_eq!(shown("a'\n\u{1}\\"), "\"a'\\n\\x01\\\\\"");
        assert_eq!(shown("a'\""), "'a\\'\"'");
    }

    proptest! {
        #[test]
        fn whatever_serde_reads_is_read_alike(text in "[\\[\\]{}\",:0-9a-e\\\\ntrulfs. -]{0,24}") {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
                let ours = read(&text);
                prop_assert!(ours.is_ok(), "{:?}", ours);
                if let (Ok(Json::Text(ours)), Some(theirs)) = (&ours, value.as_str()) {
                    prop_assert_eq!(ours, theirs);
                }
            }
        }

        #[test]
        fn nothing_makes_it_fail(text in any::<String>()) {
            let _ = read(&text);
        }
    }
}
