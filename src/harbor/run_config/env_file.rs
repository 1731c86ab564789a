//! Files of `NAME=value` lines, as `--env-file` takes them.

use std::sync::Arc;

use super::node::{Place, Problem};

/// Reads the lines: comments, `export`, quotes (`'…'` as it stands, `"…"` with `\n`, `\"`, `\\`),
/// and a comment after an unquoted value. A value may go on over several lines inside quotes. Names
/// in values are not expanded.
///
/// # Errors
/// A line that is none of that, by file and line; the value is never part of the message.
pub fn read(text: &str, name: &str) -> Result<Vec<(String, String)>, Problem> {
    let source: Arc<str> = name.into();
    let mut out = Vec::new();
    let mut lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate();
    while let Some((i, line)) = lines.next() {
        let place = Place::line(&source, i + 1);
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |what: &str| Problem::new(&place, what);
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        let Some((key, value)) = line.split_once('=') else { return Err(bad("not NAME=value")) };
        let key = key.trim();
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if key.is_empty() || !key.chars().all(good) {
            return Err(bad("not the name of a variable before the ="));
        }
        let value = value.trim_start();
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let Some(quote) = quote else {
            let end = value.find(" #").or_else(|| value.find("\t#")).unwrap_or(value.len());
            let value = if value.starts_with('#') { "" } else { value.get(..end).unwrap_or(value) };
            out.push((key.to_string(), value.trim_end().to_string()));
            continue;
        };
        let mut body = value.get(1..).unwrap_or_default().to_string();
        let (text, rest) = loop {
            if let Some((text, rest)) = quoted(&body, quote) {
                break (text, rest.to_string());
            }
            let Some((_, more)) = lines.next() else { return Err(bad("a quote that does not end")) };
            body.push('\n');
            body.push_str(more);
        };
        if !(rest.trim().is_empty() || rest.trim_start().starts_with('#')) {
            return Err(bad("something after the closing quote"));
        }
        out.push((key.to_string(), text));
    }
    Ok(out)
}

/// The text up to the closing quote, and what follows it.
fn quoted(body: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((out, body.get(at + c.len_utf8()..).unwrap_or_default()));
        }
        if c != '\\' {
            out.push(c);
            continue;
        }
        match (chars.next().map(|(_, c)| c), quote) {
            (None, _) => return None,
            (Some(c @ ('\\' | '\'')), '\'') => out.push(c),
            (Some('n'), '"') => out.push('\n'),
            (Some('t'), '"') => out.push('\t'),
            (Some('r'), '"') => out.push('\r'),
            (Some(c @ ('"' | '\\' | '\'')), '"') => out.push(c),
            (Some(c), _) => out.extend(['\\', c]),
        }
    }
    None
}
