//! Writing configuration values as JSON or YAML. Both come out the same on every terminal: characters
//! that a terminal would act on are escaped.

use super::layers::Format;
use super::node::{Entry, Value};
use super::yaml_text::plain;
use crate::job::text::is_unsafe;

/// The value as a document that ends with a line end.
pub(super) fn emit(value: &Value, format: Format) -> String {
    let mut out = String::new();
    match format {
        Format::Json => json(value, 0, &mut out),
        Format::Yaml => {
            yaml(value, 0, &mut out);
            if out.starts_with('\n') {
                out.remove(0);
            }
        }
    }
    let end = out.trim_end().len();
    out.truncate(end);
    out.push('\n');
    out
}

fn newline(depth: usize, out: &mut String) {
    out.push('\n');
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn json(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::List(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                newline(depth + 1, out);
                json(&item.value, depth + 1, out);
            }
            newline(depth, out);
            out.push(']');
        }
        Value::Map(entries) if !entries.is_empty() => {
            out.push('{');
            for (i, entry) in entries.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                newline(depth + 1, out);
                quoted(&entry.key, Format::Json, out);
                out.push_str(": ");
                json(&entry.node.value, depth + 1, out);
            }
            newline(depth, out);
            out.push('}');
        }
        other => scalar(other, Format::Json, out),
    }
}

fn yaml(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::List(items) if !items.is_empty() => {
            for item in items {
                newline(depth, out);
                out.push('-');
                match &item.value {
                    Value::Map(entries) if !entries.is_empty() => {
                        out.push(' ');
                        for (i, entry) in entries.iter().enumerate() {
                            if i > 0 {
                                newline(depth + 1, out);
                            }
                            yaml_entry(entry, depth + 1, out);
                        }
                    }
                    other => yaml_value(other, depth + 1, out),
                }
            }
        }
        Value::Map(entries) if !entries.is_empty() => {
            for entry in entries {
                newline(depth, out);
                yaml_entry(entry, depth, out);
            }
        }
        other => scalar(other, Format::Yaml, out),
    }
}

fn yaml_entry(entry: &Entry, depth: usize, out: &mut String) {
    text(&entry.key, out);
    out.push(':');
    yaml_value(&entry.node.value, depth + 1, out);
}

fn yaml_value(value: &Value, depth: usize, out: &mut String) {
    let nested = matches!(value, Value::List(items) if !items.is_empty())
        || matches!(value, Value::Map(entries) if !entries.is_empty());
    if !nested {
        out.push(' ');
    }
    yaml(value, depth, out);
}

fn scalar(value: &Value, format: Format, out: &mut String) {
    match (value, format) {
        (Value::Null, _) => out.push_str("null"),
        (Value::Bool(b), _) => out.push_str(if *b { "true" } else { "false" }),
        (Value::Int(n), _) => out.push_str(&n.to_string()),
        (Value::Float(n), _) => out.push_str(&float(*n)),
        (Value::Str(s), Format::Json) => quoted(s, Format::Json, out),
        (Value::Str(s), Format::Yaml) => text(s, out),
        (Value::List(_), _) => out.push_str("[]"),
        (Value::Map(_), _) => out.push_str("{}"),
    }
}

/// A form that is a float in JSON and in YAML 1.1, which wants a point and a signed exponent.
fn float(n: f64) -> String {
    let short = format!("{n:?}");
    let Some((mantissa, exponent)) = short.split_once('e') else { return short };
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{mantissa}{point}e{sign}{exponent}")
}

/// Text in YAML: bare where nothing could take it for something else.
fn text(s: &str, out: &mut String) {
    let tame = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '+' | '@');
    let first = s.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '/'));
    let bare =
        first && s.chars().all(tame) && matches!(plain(s), Some(Value::Str(_))) && !matches!(s, "y" | "Y" | "n" | "N");
    if bare { out.push_str(s) } else { quoted(s, Format::Yaml, out) }
}

fn quoted(s: &str, format: Format, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_unsafe(c) || matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff) => escape(c, format, out),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn escape(c: char, format: Format, out: &mut String) {
    match (u32::from(c), format) {
        (n @ 0x1_0000.., Format::Yaml) => out.push_str(&format!("\\U{n:08x}")),
        _ => {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
}
