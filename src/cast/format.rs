//! The asciicast formats v1, v2 and v3: header and events, read leniently.
//!
//! Sources: the asciicast v1, v2 and v3 format descriptions of the asciinema project. v1 is one JSON
//! object with `stdout: [[delta, text], …]`; v2 is JSON lines with absolute times; v3 is JSON lines
//! with deltas, `term: {cols, rows}` and `#` comments.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::job::text::clean;

/// Longest header line that is read, in bytes.
pub const MAX_HEADER: usize = 1 << 20;
/// Longest event line that is read, in bytes; longer ones are skipped and counted.
pub const MAX_LINE: usize = 16 << 20;
/// Largest v1 file that is read, in bytes (v1 is one JSON document and has to be parsed whole).
pub const MAX_V1: u64 = 64 << 20;
/// Most columns of a screen; larger sizes are clamped.
pub const MAX_COLS: u16 = 1000;
/// Most rows of a screen; larger sizes are clamped.
pub const MAX_ROWS: u16 = 500;
/// Longest gap between two events, in microseconds (366 days); longer ones are cut to it.
pub const MAX_GAP_US: u64 = 366 * 86_400 * 1_000_000;

/// Why a file cannot be played at all.
#[derive(Debug, thiserror::Error)]
pub enum CastError {
    /// The file has no bytes (yet).
    #[error("{file}: empty file")]
    Empty {
        /// The name given when it was opened.
        file: String,
    },
    /// The first characters are not those of a cast.
    #[error("{file}: line 1: not an asciicast (starts with `{starts}`)")]
    NotACast {
        /// The name given when it was opened.
        file: String,
        /// The first characters of the file, made safe to show.
        starts: String,
    },
    /// A version other than 1, 2 and 3.
    #[error("{file}: line 1: asciicast version {version} is not known (1, 2 and 3 are)")]
    Version {
        /// The name given when it was opened.
        file: String,
        /// What the header says.
        version: String,
    },
    /// The header is cut off, not JSON, or lacks the screen size.
    #[error("{file}: line {line}: {why}")]
    Header {
        /// The name given when it was opened.
        file: String,
        /// 1-based line.
        line: u64,
        /// What is wrong, in words.
        why: String,
        /// True when the file ends inside the header, so that it may be complete a moment later.
        cut: bool,
    },
    /// A v1 file above [`MAX_V1`].
    #[error("{file}: asciicast v1 of {bytes} bytes (at most {MAX_V1} are read)")]
    TooLarge {
        /// The name given when it was opened.
        file: String,
        /// Its size.
        bytes: u64,
    },
    /// The file could not be read.
    #[error("{file}: {error}")]
    Io {
        /// The name given when it was opened.
        file: String,
        /// The system's answer.
        error: std::io::Error,
    },
}

impl CastError {
    /// True when a recorder may still be writing the header, so that opening again later can work.
    pub fn may_recover(&self) -> bool {
        matches!(self, CastError::Empty { .. } | CastError::Header { cut: true, .. })
    }
}

/// Which of the three formats a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One JSON document, deltas.
    V1,
    /// JSON lines, absolute times.
    V2,
    /// JSON lines, deltas, comments.
    V3,
}

/// What the header tells. Environment and theme are ignored.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The format.
    pub version: Version,
    /// Columns at the start, 1 to [`MAX_COLS`].
    pub cols: u16,
    /// Rows at the start, 1 to [`MAX_ROWS`].
    pub rows: u16,
    /// True when the header's size had to be clamped.
    pub clamped: bool,
    /// Start of the recording in seconds since 1970.
    pub timestamp: Option<f64>,
    /// The title, safe to show; None when missing or blank.
    pub title: Option<String>,
    /// Longest pause that the author wants shown, in seconds; only values above 0.
    pub idle_time_limit: Option<f64>,
}

impl Header {
    /// Reads a header object. The error is what is wrong, in words.
    pub(crate) fn from_value(value: &Value) -> Result<Header, HeaderFault> {
        let Some(object) = value.as_object() else {
            return Err(HeaderFault::Other("the header is not an object".into()));
        };
        let version = match object.get("version") {
            Some(Value::Number(n)) if n.as_f64() == Some(1.0) => Version::V1,
            Some(Value::Number(n)) if n.as_f64() == Some(2.0) => Version::V2,
            Some(Value::Number(n)) if n.as_f64() == Some(3.0) => Version::V3,
            Some(other) => return Err(HeaderFault::Version(short(&other.to_string(), 40))),
            None => return Err(HeaderFault::Other("not an asciicast (the header has no `version`)".into())),
        };
        let term = object.get("term").and_then(Value::as_object);
        let size = |flat: &str, nested: &str, most: u16| -> Result<(u16, bool), HeaderFault> {
            let found = match version {
                Version::V3 => term.and_then(|t| t.get(nested)).or_else(|| object.get(flat)),
                _ => object.get(flat),
            };
            let name = if version == Version::V3 { nested } else { flat };
            match found.and_then(Value::as_f64) {
                Some(n) => Ok(clamp_size(n, most)),
                None => Err(HeaderFault::Other(format!("the header has no `{name}` (a number is expected)"))),
            }
        };
        let (cols, c) = size("width", "cols", MAX_COLS)?;
        let (rows, r) = size("height", "rows", MAX_ROWS)?;
        let number = |key: &str| object.get(key).and_then(Value::as_f64).filter(|n| n.is_finite());
        let title = object.get("title").and_then(Value::as_str).map(|t| short(t, 200)).filter(|t| !t.trim().is_empty());
        Ok(Header {
            version,
            cols,
            rows,
            clamped: c || r,
            timestamp: number("timestamp"),
            title,
            idle_time_limit: number("idle_time_limit").filter(|n| *n > 0.0),
        })
    }
}

pub(crate) enum HeaderFault {
    Version(String),
    Other(String),
}

/// A size between 1 and `most`, and whether that took a change.
fn clamp_size(n: f64, most: u16) -> (u16, bool) {
    let whole = if n.is_nan() { 1.0 } else { n.clamp(1.0, f64::from(most)).trunc() };
    (whole as u16, whole != n)
}

/// `100x30`, clamped. None for anything else.
pub(crate) fn parse_size(text: &str) -> Option<(u16, u16)> {
    let (cols, rows) = text.trim().split_once(['x', 'X'])?;
    let (cols, rows): (u64, u64) = (cols.trim().parse().ok()?, rows.trim().parse().ok()?);
    Some((clamp_size(cols as f64, MAX_COLS).0, clamp_size(rows as f64, MAX_ROWS).0))
}

/// The first `most` characters, safe to show.
pub(crate) fn short(text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    clean(&cut).into_owned()
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `o`: bytes that the terminal showed.
    Output,
    /// `i`: bytes that were typed.
    Input,
    /// `r`: the terminal changed its size.
    Resize,
    /// `m`: a marker.
    Marker,
    /// `x`: the recorded program ended.
    Exit,
    /// A code that is not known; kept, and ignored in playing.
    Other,
}

impl Kind {
    pub(crate) fn from_code(code: &[u8]) -> Kind {
        match code {
            b"o" => Kind::Output,
            b"i" => Kind::Input,
            b"r" => Kind::Resize,
            b"m" => Kind::Marker,
            b"x" => Kind::Exit,
            _ => Kind::Other,
        }
    }

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Kind::Output => 0,
            Kind::Input => 1,
            Kind::Resize => 2,
            Kind::Marker => 3,
            Kind::Exit => 4,
            Kind::Other => 5,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Kind {
        match bits {
            0 => Kind::Output,
            1 => Kind::Input,
            2 => Kind::Resize,
            3 => Kind::Marker,
            4 => Kind::Exit,
            _ => Kind::Other,
        }
    }
}

/// One event as the file has it. `time` is in seconds, absolute in v2 and a delta otherwise; NaN when
/// the file says `NaN` or an infinity, as some JSON writers do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawEvent<'a> {
    pub time: f64,
    pub kind: Kind,
    /// Lossily decoded; empty for codes whose data is ignored, and for output in [`Depth::Index`].
    pub data: Cow<'a, str>,
}

/// How much of an event is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Everything.
    Full,
    /// Time and kind; the data of markers and resizes only. Still checks the whole line.
    Index,
}

/// Reads one event. With `whole`, nothing but white space may follow it. The error is in words.
pub(crate) fn parse_event(bytes: &[u8], version: Version, depth: Depth, whole: bool) -> Result<RawEvent<'_>, String> {
    if depth == Depth::Index
        && let Ok(event) = attempt(bytes, version, depth, whole)
    {
        return Ok(event);
    }
    // The quick look insists on UTF-8 and on escaped controls; the full reading repairs both.
    match attempt(bytes, version, Depth::Full, whole) {
        Ok(event) => Ok(event),
        Err(error) => match without_nan(bytes) {
            Some(mended) => attempt(&mended, version, Depth::Full, whole)
                .map(|e| RawEvent { time: f64::NAN, kind: e.kind, data: Cow::Owned(e.data.into_owned()) })
                .map_err(|e| words(&e)),
            None => Err(words(&error)),
        },
    }
}

/// `[NaN, …` and `[Infinity, …` with a 0 in that place.
fn without_nan(bytes: &[u8]) -> Option<Vec<u8>> {
    let rest = bytes.trim_ascii_start().strip_prefix(b"[")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"-").unwrap_or(rest);
    let rest = rest.strip_prefix(b"NaN").or_else(|| rest.strip_prefix(b"Infinity"))?;
    Some([b"[0", rest].concat())
}

fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let text = text.split(" for bytes").next().unwrap_or_default();
    short(&format!("column {}: {text}", error.column()), 160)
}

fn attempt(bytes: &[u8], version: Version, depth: Depth, whole: bool) -> serde_json::Result<RawEvent<'_>> {
    let mut de = serde_json::Deserializer::from_slice(bytes);
    let event = de.deserialize_seq(EventVisitor { v1: version == Version::V1, depth })?;
    if whole {
        de.end()?;
    }
    Ok(event)
}

struct EventVisitor {
    v1: bool,
    depth: Depth,
}

impl<'de> Visitor<'de> for EventVisitor {
    type Value = RawEvent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.v1 { "an event [delay, \"text\"]" } else { "an event [time, \"code\", \"data\"]" })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawEvent<'de>, A::Error> {
        let missing = |n| de::Error::invalid_length(n, &"[time, \"code\", \"data\"]");
        let time: f64 = seq.next_element()?.ok_or_else(|| missing(0))?;
        let kind = if self.v1 {
            Kind::Output
        } else {
            Kind::from_code(&seq.next_element::<Bytes>()?.ok_or_else(|| missing(1))?.0)
        };
        let data = match (kind, self.depth) {
            (Kind::Exit | Kind::Other, _) => {
                // Exit status and unknown data may be of any type; some writers leave it out.
                if seq.next_element::<IgnoredAny>()?.is_none() {
                    return Ok(RawEvent { time, kind, data: Cow::Borrowed("") });
                }
                Cow::Borrowed("")
            }
            (Kind::Output | Kind::Input, Depth::Index) => {
                let raw: &RawValue = seq.next_element()?.ok_or_else(|| missing(2))?;
                if !raw.get().starts_with('"') {
                    return Err(de::Error::custom("the data is not a string"));
                }
                Cow::Borrowed("")
            }
            _ => lossy(seq.next_element::<Bytes>()?.ok_or_else(|| missing(2))?.0),
        };
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(RawEvent { time, kind, data })
    }
}

fn lossy(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        Cow::Borrowed(b) => String::from_utf8_lossy(b),
        Cow::Owned(b) => Cow::Owned(match String::from_utf8(b) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }),
    }
}

/// A JSON string as bytes: unlike `str`, serde_json gives these also for invalid UTF-8, lone
/// surrogates and unescaped controls.
struct Bytes<'a>(Cow<'a, [u8]>);

impl<'de> de::Deserialize<'de> for Bytes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Bytes<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_bytes<E: de::Error>(self, v: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Bytes(Cow::Borrowed(v)))
            }
            fn visit_bytes<E: de::Error>(self, v: &[u8]) -> Result<Self::Value, E> {
                Ok(Bytes(Cow::Owned(v.to_vec())))
            }
        }
        deserializer.deserialize_bytes(V)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(text: &[u8]) -> Result<RawEvent<'_>, String> {
        parse_event(text, Version::V2, Depth::Full, true)
    }

    #[test]
    fn strings_that_serde_refuses_are_repaired() {
        assert_eq!(
            full(b"[1,\"o\",\"a\\ud800b\"]").map(|e| e.data.into_owned()),
            Ok("a\u{fffd}\u{fffd}\u{fffd}b".into())
        );
        assert_eq!(full(b"[1,\"o\",\"a\xffb\x01\"]").map(|e| e.data.into_owned()), Ok("a\u{fffd}b\u{1}".into()));
        assert!(parse_event(b"[1,\"o\",\"a\xffb\"]", Version::V2, Depth::Index, true).is_ok());
    }

    #[test]
    fn wrong_types_are_told_in_words() {
        for (text, why) in [
            (&b"[1,5,\"x\"]"[..], "a string"),
            (b"[1,\"o\",true]", "a string"),
            (b"lol!", "column"),
            (b"[1,\"o\",\"x\"] y", "trailing"),
            (b"[1,\"o\"]", "invalid length 2"),
        ] {
            for depth in [Depth::Full, Depth::Index] {
                let error = parse_event(text, Version::V2, depth, true).err().unwrap_or_default();
                assert!(error.contains(why), "{error}");
            }
        }
        assert_eq!(full(b"[1,\"x\",0]").map(|e| e.kind), Ok(Kind::Exit));
        assert!(full(b"[NaN,\"o\",\"x\"]").is_ok_and(|e| e.time.is_nan() && e.data == "x"));
        assert_eq!(parse_size("100x30"), Some((100, 30)));
        assert_eq!(parse_size("99999999x0"), Some((1000, 1)));
        assert_eq!(parse_size("-1x3"), None);
    }
}
