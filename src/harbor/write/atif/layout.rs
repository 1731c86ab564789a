//! JSON as Harbor lays a trajectory out: two blanks for each level, a list of numbers on one line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

/// What is open around the value that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Object {
        any: bool,
    },
    /// A list of which nothing is written yet.
    Fresh,
    /// A list of nothing but numbers so far.
    Inline,
    /// A list with a value on each line.
    Lines,
}

/// The layout, from a level on.
#[derive(Debug)]
struct Layout {
    base: usize,
    open: Vec<Frame>,
    /// A value of a list is about to come; what kind, the next call tells.
    awaited: bool,
}

impl Layout {
    fn line<W: ?Sized + Write>(&self, to: &mut W) -> io::Result<()> {
        to.write_all(b"\n")?;
        for _ in 0..self.base + self.open.len() {
            to.write_all(b"  ")?;
        }
        Ok(())
    }

    /// Before a value: goes to its place if it stands in a list.
    fn place<W: ?Sized + Write>(&mut self, to: &mut W, number: bool) -> io::Result<()> {
        if !std::mem::take(&mut self.awaited) {
            return Ok(());
        }
        let Some(frame) = self.open.last_mut() else { return Ok(()) };
        let before = *frame;
        *frame = if number && matches!(before, Frame::Fresh | Frame::Inline) { Frame::Inline } else { Frame::Lines };
        match (before, number) {
            (Frame::Fresh, true) => Ok(()),
            (Frame::Inline, true) => to.write_all(b", "),
            (Frame::Fresh, false) => self.line(to),
            _ => {
                to.write_all(b",")?;
                self.line(to)
            }
        }
    }
}

/// The numbers of a [`Formatter`]: each goes to its place first.
macro_rules! numbers {
    ($($name:ident: $kind:ty),* $(,)?) => {$(
        fn $name<W: ?Sized + Write>(&mut self, to: &mut W, value: $kind) -> io::Result<()> {
            self.place(to, true)?;
            to.write_all(value.to_string().as_bytes())
        }
    )*};
}

impl Formatter for Layout {
    numbers!(
        write_i8: i8, write_i16: i16, write_i32: i32, write_i64: i64, write_i128: i128,
        write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128,
    );

    fn write_f32<W: ?Sized + Write>(&mut self, to: &mut W, value: f32) -> io::Result<()> {
        self.write_f64(to, f64::from(value))
    }

    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        self.place(to, true)?;
        // As short as it can be said, and as a float: `1.0`, `1e-7`.
        write!(to, "{value:?}")
    }

    fn write_number_str<W: ?Sized + Write>(&mut self, to: &mut W, value: &str) -> io::Result<()> {
        self.place(to, true)?;
        to.write_all(value.as_bytes())
    }

    fn write_null<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.place(to, false)?;
        to.write_all(b"null")
    }

    fn write_bool<W: ?Sized + Write>(&mut self, to: &mut W, value: bool) -> io::Result<()> {
        self.place(to, false)?;
        to.write_all(if value { b"true" } else { b"false" })
    }

    fn begin_string<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.place(to, false)?;
        to.write_all(b"\"")
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        self.place(to, false)?;
        to.write_all(fragment.as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.place(to, false)?;
        self.open.push(Frame::Fresh);
        to.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        if self.open.pop() == Some(Frame::Lines) {
            self.line(to)?;
        }
        to.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, _: &mut W, _: bool) -> io::Result<()> {
        self.awaited = true;
        Ok(())
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.place(to, false)?;
        self.open.push(Frame::Object { any: false });
        to.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        if self.open.pop() == Some(Frame::Object { any: true }) {
            self.line(to)?;
        }
        to.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(b",")?;
        }
        if let Some(frame) = self.open.last_mut() {
            *frame = Frame::Object { any: true };
        }
        self.line(to)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// A value as text, as it stands `base` levels deep.
pub(super) fn text(value: &impl Serialize, base: usize) -> Result<String, serde_json::Error> {
    let mut out = Vec::new();
    let layout = Layout { base, open: Vec::new(), awaited: false };
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, layout))?;
    String::from_utf8(out).map_err(|e| serde::ser::Error::custom(e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn lists_of_numbers_take_one_line() {
        let value = json!({"a": [1, -2.5, 3e-9], "b": [], "c": {}, "d": [[1, 2], ["x", 1]], "e": [{"f": [0]}, null]});
        let expected = "{\n  \"a\": [1, -2.5, 3e-9],\n  \"b\": [],\n  \"c\": {},\n  \"d\": [\n    [1, 2],\n    [\n      \"x\",\n      1\n    ]\n  ],\n  \"e\": [\n    {\n      \"f\": [0]\n    },\n    null\n  ]\n}";
        assert_eq!(text(&value, 0).unwrap(), expected);
    }

    #[test]
    fn what_is_laid_out_reads_as_it_was() {
        let value = json!([[1, "a", 2, [3]], 1.0, u64::MAX, i64::MIN, "\u{0}\u{1b}\"\\\u{2028}é", [1, {"k": [true]}]]);
        for base in [0, 2, 9] {
            assert_eq!(serde_json::from_str::<Value>(&text(&value, base).unwrap()).unwrap(), value);
        }
    }
}
