//! JSON that other programs wrote, are just writing, or wrote wrong.
//!
//! The types here accept any kind of value where one kind is expected, so that a wrong field never
//! costs the whole file; what is not asked for is skipped without being kept. Nesting is never
//! followed by recursion on the input's say-so.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Why a file's text is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemReason {
    /// Nothing in it, or white space only: being written, most likely.
    Empty,
    /// Ends in the middle of a value: being written, or cut off.
    Torn,
    /// Not JSON (or not TOML).
    NotJson,
    /// JSON, but not this file of Harbor's.
    Foreign,
    /// Not UTF-8, and not close to it.
    Encoding,
    /// Nested deeper than anybody means it.
    TooDeep,
}

/// A file that could not be used, with the place and the reason in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileProblem {
    /// Kind.
    pub kind: ProblemReason,
    /// Line from 1; 0 when no line is to blame.
    pub line: usize,
    /// Column from 1; 0 when unknown.
    pub column: usize,
    /// What is wrong, in words, without the path.
    pub message: String,
}

impl FileProblem {
    /// True when reading again a moment later may well succeed: the writer truncates and writes in
    /// place.
    pub fn may_heal(&self) -> bool {
        matches!(self.kind, ProblemReason::Empty | ProblemReason::Torn)
    }

    pub(crate) fn foreign(message: impl Into<String>) -> FileProblem {
        FileProblem { kind: ProblemReason::Foreign, line: 0, column: 0, message: message.into() }
    }

    fn of(error: &serde_json::Error, body: &[u8]) -> FileProblem {
        use serde_json::error::Category;
        let text = error.to_string();
        let kind = match error.classify() {
            Category::Eof => ProblemReason::Torn,
            // The parser calls a number that was cut short invalid, and does not know Python's words.
            Category::Syntax if ends_in_word(body) && is_at_end(error, body) => ProblemReason::Torn,
            _ if text.starts_with("recursion limit") => ProblemReason::TooDeep,
            Category::Data => ProblemReason::Foreign,
            _ => ProblemReason::NotJson,
        };
        let message = match kind {
            ProblemReason::Torn => format!("ends in the middle of a value at line {}", error.line()),
            ProblemReason::TooDeep => "nested too deeply".to_string(),
            _ => format!("not JSON: {text}"),
        };
        FileProblem { kind, line: error.line(), column: error.column(), message }
    }
}

/// True for a number or one of Python's words that goes on, or may go on, to the very end.
fn ends_in_word(body: &[u8]) -> bool {
    let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    let from = body.iter().rposition(|b| !word(b)).map_or(0, |n| n + 1);
    let tail = body.get(from..).unwrap_or_default();
    let is_number = matches!(tail.first(), Some(b'-' | b'0'..=b'9'));
    !tail.is_empty() && (is_number || PYTHON.iter().any(|p| p.starts_with(tail)))
}

fn is_at_end(error: &serde_json::Error, body: &[u8]) -> bool {
    let last = body.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
    let lines = 1 + memchr::memchr_iter(b'\n', body).count();
    // Of a word the parser names the first letter.
    error.line() == lines && error.column() + b"-Infinity".len() > body.len() - last
}

/// What Python writes for numbers that JSON does not have.
const PYTHON: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];

/// Marks a bare `NaN` or `Infinity` (as Python writes them) that was made a string to get past the
/// parser.
const LITERAL: &str = "\u{f8ff}literal:";

/// Runs `parse` on the text of a JSON file, forgiving what can be forgiven: a byte order mark, bytes
/// that are not UTF-8, Python's bare `NaN` and `Infinity`, numbers beyond the range of a double and
/// lone surrogates. What was forgiven is noted.
pub(crate) fn lenient<R>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<R, serde_json::Error>,
) -> Result<(R, Vec<String>), FileProblem> {
    let body = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(FileProblem { kind: ProblemReason::Empty, line: 0, column: 0, message: "empty".into() });
    }
    let mut notes = Vec::new();
    if body.len() != bytes.len() {
        notes.push("begins with a byte order mark".to_string());
    }
    let first = match parse(body) {
        Ok(value) => return Ok((value, notes)),
        Err(error) => error,
    };
    if first.is_eof() {
        return Err(FileProblem::of(&first, body));
    }
    if body.starts_with(b"\xff\xfe") || body.starts_with(b"\xfe\xff") || body.iter().take(64).all(|b| *b == 0) {
        let message = if body.starts_with(b"\0") {
            "holds zero bytes: lost in a crash or power failure"
        } else {
            "UTF-16 text, UTF-8 is needed"
        };
        return Err(FileProblem { kind: ProblemReason::Encoding, line: 1, column: 1, message: message.into() });
    }
    // A page of HTML or a log: nothing to be mended.
    if !matches!(body.trim_ascii_start().first(), Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b'N' | b'I')) {
        return Err(FileProblem::of(&first, body));
    }
    let text = String::from_utf8_lossy(body);
    if matches!(text, Cow::Owned(_)) {
        notes.push("not UTF-8: bytes that could not be read show as \u{fffd}".to_string());
    }
    let (repaired, what) = repair(text.as_bytes());
    if let Some(what) = what {
        notes.push(what);
    } else if matches!(text, Cow::Borrowed(_)) {
        return Err(FileProblem::of(&first, body));
    }
    match parse(&repaired) {
        Ok(value) => Ok((value, notes)),
        Err(error) => Err(FileProblem::of(&error, &repaired)),
    }
}

/// A copy with what strict JSON does not allow made readable; None when there was nothing to do.
fn repair(body: &[u8]) -> (Vec<u8>, Option<String>) {
    let mut out = Vec::with_capacity(body.len() + 64);
    let mut what: Option<&str> = None;
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        let rest = body.get(at..).unwrap_or_default();
        let literal = match byte {
            b'N' | b'I' | b'-' => PYTHON.into_iter().find(|l| rest.starts_with(l)),
            _ => None,
        };
        let taken = match byte {
            b'"' => {
                let len = string_len(rest);
                let string = rest.get(..len).unwrap_or(rest);
                if copy_string(string, &mut out) {
                    what = what.or(Some("lone surrogates"));
                }
                len
            }
            _ if literal.is_some() => {
                let name = literal.unwrap_or_default();
                quote(name, &mut out);
                what = Some("NaN or Infinity");
                name.len()
            }
            b'-' | b'0'..=b'9' => {
                let len = rest
                    .iter()
                    .position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
                    .unwrap_or(rest.len());
                let number = rest.get(..len).unwrap_or(rest);
                let value = std::str::from_utf8(number).ok().and_then(|n| n.parse::<f64>().ok());
                if value.is_some_and(f64::is_infinite) {
                    quote(number.get(..40).unwrap_or(number), &mut out);
                    what = what.or(Some("a number beyond the range of a double"));
                } else {
                    out.extend_from_slice(number);
                }
                len
            }
            _ => {
                let plain = |b: &u8| !matches!(b, b'"' | b'N' | b'I' | b'-' | b'0'..=b'9');
                // The first byte was none of those, or an N or I that begins nothing.
                let len = 1 + rest.iter().skip(1).take_while(|b| plain(b)).count();
                out.extend_from_slice(rest.get(..len).unwrap_or(rest));
                len
            }
        };
        at += taken.max(1);
    }
    (out, what.map(|w| format!("not strict JSON: {w}")))
}

fn quote(name: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(LITERAL.as_bytes());
    out.extend_from_slice(name);
    out.push(b'"');
}

/// Length of the string that begins here, quotes included; all there is when it does not end.
fn string_len(bytes: &[u8]) -> usize {
    let mut at = 1;
    loop {
        match bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest).map(|i| at + i)) {
            Some(i) if bytes.get(i) == Some(&b'\\') => at = i + 2,
            Some(i) => return i + 1,
            None => return bytes.len(),
        }
    }
}

/// Copies a string, with surrogate escapes that stand alone replaced; true when there were any.
fn copy_string(string: &[u8], out: &mut Vec<u8>) -> bool {
    let unit = |at: usize| -> Option<u16> {
        let escape = string.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()
    };
    let (mut at, mut replaced) = (0, false);
    while let Some(&byte) = string.get(at) {
        if byte != b'\\' {
            let len = string.get(at..).and_then(|r| memchr::memchr(b'\\', r)).unwrap_or(string.len() - at);
            out.extend_from_slice(string.get(at..at + len).unwrap_or_default());
            at += len.max(1);
            continue;
        }
        let len = match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                out.extend_from_slice(b"\\ufffd");
                replaced = true;
                at += 6;
                continue;
            }
            _ => 2.min(string.len() - at),
        };
        out.extend_from_slice(string.get(at..at + len).unwrap_or_default());
        at += len;
    }
    replaced
}

/// Parses a whole document; anything after it is an error.
pub(crate) fn document<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    let mut de = serde_json::Deserializer::from_slice(bytes);
    let value = T::deserialize(&mut de)?;
    de.end()?;
    Ok(value)
}

/// A single value, or the kind of what stands in its place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Scalar<'a> {
    #[default]
    Absent,
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Cow<'a, str>),
    /// Python's bare `NaN`, `Infinity`, or a number that no double holds.
    Literal(Cow<'a, str>),
    List,
    Object,
}

impl<'a> Scalar<'a> {
    pub(crate) fn str(&self) -> Option<&str> {
        match self {
            Scalar::Str(s) => Some(s),
            _ => None,
        }
    }

    /// A string that says something.
    pub(crate) fn text(&self) -> Option<&str> {
        self.str().filter(|s| !s.is_empty())
    }

    /// A finite number.
    pub(crate) fn f64(&self) -> Option<f64> {
        match self {
            Scalar::Int(n) => Some(*n as f64),
            Scalar::Uint(n) => Some(*n as f64),
            Scalar::Float(n) if n.is_finite() => Some(*n),
            _ => None,
        }
    }

    /// A count: a whole number from 0; a float that is whole counts, too.
    pub(crate) fn u64(&self) -> Option<u64> {
        match self {
            Scalar::Uint(n) => Some(*n),
            Scalar::Int(n) => u64::try_from(*n).ok(),
            Scalar::Float(n) if *n >= 0.0 && *n < 9e15 && n.fract() == 0.0 => Some(*n as u64),
            _ => None,
        }
    }

    pub(crate) fn u32(&self) -> Option<u32> {
        self.u64().map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    pub(crate) fn bool(&self) -> Option<bool> {
        match self {
            Scalar::Bool(b) => Some(*b),
            _ => None,
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Scalar::Absent | Scalar::Null)
    }

    /// The value as a person would recognise it, at most 40 characters.
    pub(crate) fn shown(&self) -> String {
        match self {
            Scalar::Absent => "nothing".to_string(),
            Scalar::Null => "null".to_string(),
            Scalar::Bool(b) => b.to_string(),
            Scalar::Int(n) => n.to_string(),
            Scalar::Uint(n) => n.to_string(),
            Scalar::Float(n) => n.to_string(),
            Scalar::Str(s) => format!("{:?}", s.chars().take(40).collect::<String>()),
            Scalar::Literal(s) => s.to_string(),
            Scalar::List => "a list".to_string(),
            Scalar::Object => "an object".to_string(),
        }
    }
}

fn drain_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn drain_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Scalar<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Scalar::Null)
            }
            fn visit_bool<E>(self, v: bool) -> Result<Self::Value, E> {
                Ok(Scalar::Bool(v))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
                Ok(Scalar::Int(v))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
                Ok(Scalar::Uint(v))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
                Ok(Scalar::Float(v))
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(match v.strip_prefix(LITERAL) {
                    Some(name) => Scalar::Literal(Cow::Borrowed(name)),
                    None => Scalar::Str(Cow::Borrowed(v)),
                })
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Scalar::Str(Cow::Owned(v.to_string())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                drain_seq(seq).map(|()| Scalar::List)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                drain_map(map).map(|()| Scalar::Object)
            }
        }
        de.deserialize_any(V)
    }
}

/// A key, borrowed where it holds no escapes.
pub(crate) struct Key<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(v.to_string())))
            }
        }
        de.deserialize_str(V)
    }
}

/// Something read from an object.
pub(crate) trait FromMap<'de>: Sized {
    fn from_map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error>;
}

/// An object, or what stands in its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Object<'a, T> {
    Some(T),
    Other(Scalar<'a>),
}

impl<T> Default for Object<'_, T> {
    fn default() -> Self {
        Object::Other(Scalar::Absent)
    }
}

impl<'a, T> Object<'a, T> {
    pub(crate) fn get(&self) -> Option<&T> {
        match self {
            Object::Some(value) => Some(value),
            Object::Other(_) => None,
        }
    }

    /// What stands where an object should, unless that is nothing or null.
    pub(crate) fn wrong(&self) -> Option<&Scalar<'a>> {
        match self {
            Object::Other(other) if !other.is_none() => Some(other),
            _ => None,
        }
    }
}

impl<'de, T: FromMap<'de>> Deserialize<'de> for Object<'de, T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: FromMap<'de>> Visitor<'de> for V<T> {
            type Value = Object<'de, T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Object::Other(Scalar::Null))
            }
            fn visit_bool<E>(self, v: bool) -> Result<Self::Value, E> {
                Ok(Object::Other(Scalar::Bool(v)))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
                Ok(Object::Other(Scalar::Int(v)))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
                Ok(Object::Other(Scalar::Uint(v)))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
                Ok(Object::Other(Scalar::Float(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                let v = v.strip_prefix(LITERAL).unwrap_or(v);
                Ok(Object::Other(Scalar::Str(Cow::Owned(v.chars().take(41).collect()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                drain_seq(seq).map(|()| Object::Other(Scalar::List))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::from_map(map).map(Object::Some)
            }
        }
        de.deserialize_any(V(PhantomData))
    }
}

/// A list of which the first `CAP` items are kept; empty for anything that is no list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct List<T, const CAP: usize> {
    pub(crate) items: Vec<T>,
    /// Items in the file, kept or not.
    pub(crate) count: usize,
    /// True where there was a list at all.
    pub(crate) present: bool,
}

impl<T, const CAP: usize> Default for List<T, CAP> {
    fn default() -> Self {
        List { items: Vec::new(), count: 0, present: false }
    }
}

impl<'de, T: Deserialize<'de>, const CAP: usize> Deserialize<'de> for List<T, CAP> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct V<T, const CAP: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const CAP: usize> Visitor<'de> for V<T, CAP> {
            type Value = List<T, CAP>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(List::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(List::default())
            }
            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(List::default())
            }
            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(List::default())
            }
            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(List::default())
            }
            fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
                Ok(List::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                drain_map(map).map(|()| List::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut list = List { items: Vec::new(), count: 0, present: true };
                while list.items.len() < CAP {
                    match seq.next_element::<T>()? {
                        Some(item) => list.items.push(item),
                        None => break,
                    }
                }
                list.count = list.items.len();
                if list.count == CAP {
                    while seq.next_element::<IgnoredAny>()?.is_some() {
                        list.count += 1;
                    }
                }
                Ok(list)
            }
        }
        de.deserialize_any(V(PhantomData))
    }
}

/// The entries of a map whose keys are data, in order, the last of equal keys counting; at most
/// 1000 of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entries<'a, T>(pub(crate) Vec<(Cow<'a, str>, T)>);

impl<'de, T: Deserialize<'de>> FromMap<'de> for Entries<'de, T> {
    fn from_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut out: Vec<(Cow<'de, str>, T)> = Vec::new();
        while out.len() < 1000 {
            let Some(Key(key)) = map.next_key()? else { return Ok(Entries(out)) };
            let value = map.next_value()?;
            match out.iter_mut().find(|(k, _)| *k == key) {
                Some(entry) => entry.1 = value,
                None => out.push((key, value)),
            }
        }
        drain_map(map)?;
        Ok(Entries(out))
    }
}

/// Declares a struct that reads some keys of an object and skips the others; of a key that comes
/// twice the last counts, as in Python.
macro_rules! object {
    ($name:ident<$lt:lifetime> { $($field:ident : $ty:ty = $key:literal),* $(,)? }) => {
        #[derive(Debug, Default)]
        struct $name<$lt> {
            $($field: $ty,)*
        }
        impl<$lt> $crate::harbor::json::FromMap<$lt> for $name<$lt> {
            fn from_map<A: serde::de::MapAccess<$lt>>(mut map: A) -> Result<Self, A::Error> {
                let mut out = Self::default();
                while let Some(key) = map.next_key::<$crate::harbor::json::Key<$lt>>()? {
                    match key.0.as_ref() {
                        $($key => out.$field = map.next_value()?,)*
                        _ => {
                            map.next_value::<serde::de::IgnoredAny>()?;
                        }
                    }
                }
                Ok(out)
            }
        }
    };
}
pub(crate) use object;
