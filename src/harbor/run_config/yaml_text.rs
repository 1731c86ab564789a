//! YAML as Harbor's own loader understands it, with line numbers.
//!
//! Harbor reads its files with a YAML 1.1 loader, so `yes` is true, `010` is eight, `1:30` is ninety
//! and `1e-6` is *text*. A 1.2 loader would give the same file another meaning; the parser's events
//! are therefore resolved here.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

use super::json_text::{DEEPEST, push_unique};
use super::node::{Entry, Node, Place, Problem, Value, set};

/// Values that one file may hold, aliases counted as often as they are used: a few lines of nested
/// aliases would otherwise fill the memory.
const MOST_NODES: usize = 100_000;

/// Reads a single YAML document; None when there is nothing in it.
pub fn read(text: &str, source: &Arc<str>) -> Result<Option<Node>, Problem> {
    let mut load = Load { parser: Parser::new_from_str(text), source, anchors: HashMap::new(), nodes: 0, depth: 0 };
    let mut root = None;
    loop {
        match load.event()? {
            None | Some((Event::StreamEnd, _)) => return Ok(root),
            Some((Event::DocumentStart(_), place)) => {
                if root.is_some() {
                    return Err(Problem::new(&place, "a second YAML document; a config is one document"));
                }
                let first = load.need()?;
                root = Some(load.node(first)?);
            }
            Some(_) => {}
        }
    }
}

struct Load<'t, I: saphyr_parser::Input> {
    parser: Parser<'t, I>,
    source: &'t Arc<str>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    depth: usize,
}

type Next<'t> = (Event<'t>, Place);

impl<'t, I: saphyr_parser::Input> Load<'t, I> {
    fn event(&mut self) -> Result<Option<Next<'t>>, Problem> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, Place::line(self.source, span.start.line())))),
            Some(Err(error)) => {
                let place = Place::line(self.source, error.marker().line());
                Err(Problem::new(&place, format!("not YAML: {}", error.info())))
            }
        }
    }

    fn need(&mut self) -> Result<Next<'t>, Problem> {
        let end = Place::whole(self.source);
        self.event()?.ok_or_else(|| Problem::new(&end, "not YAML: it ends too early"))
    }

    fn count(&mut self, nodes: usize, place: &Place) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MOST_NODES {
            return Err(Problem::new(place, format!("more than {MOST_NODES} values, aliases included")));
        }
        Ok(())
    }

    fn node(&mut self, (event, place): Next<'t>) -> Result<Node, Problem> {
        self.count(1, &place)?;
        let before = self.nodes;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Problem::new(&place, format!("nested deeper than {DEEPEST}")));
        }
        let (value, anchor) = match event {
            Event::Alias(id) => {
                let Some((node, size)) = self.anchors.get(&id).cloned() else {
                    return Err(Problem::new(&place, "an alias of a value that is not complete"));
                };
                self.count(size, &place)?;
                (node.value, 0)
            }
            Event::Scalar(text, style, anchor, tag) => (scalar(&text, style, tag.as_deref(), &place)?, anchor),
            Event::SequenceStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "seq", &place)?;
                let mut items = Vec::new();
                loop {
                    match self.need()? {
                        (Event::SequenceEnd, _) => break,
                        next => items.push(self.node(next)?),
                    }
                }
                (Value::List(items), anchor)
            }
            Event::MappingStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "map", &place)?;
                (Value::Map(self.map()?), anchor)
            }
            _ => return Err(Problem::new(&place, "not YAML: a value is missing")),
        };
        self.depth -= 1;
        let node = Node { place, value };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before + 1));
        }
        Ok(node)
    }

    fn map(&mut self) -> Result<Vec<Entry>, Problem> {
        let mut entries = Vec::new();
        let mut merged: Vec<Entry> = Vec::new();
        loop {
            let (key, place) = match self.need()? {
                (Event::MappingEnd, _) => break,
                (Event::Scalar(text, style, _, tag), place) => {
                    if style == ScalarStyle::Plain && tag.is_none() && text == "<<" {
                        let next = self.need()?;
                        merge(&self.node(next)?, &mut merged)?;
                        continue;
                    }
                    match scalar(&text, style, tag.as_deref(), &place)? {
                        Value::Str(key) => (key, place),
                        other => {
                            let what = format!("{} as a key, not text: put {text} in quotes", other.kind());
                            return Err(Problem::new(&place, what));
                        }
                    }
                }
                (_, place) => return Err(Problem::new(&place, "a key that is not plain text")),
            };
            let next = self.need()?;
            let mut node = self.node(next)?;
            node.place = place;
            push_unique(&mut entries, key, node)?;
        }
        for entry in merged {
            if !entries.iter().any(|e| e.key == entry.key) {
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}

/// The keys behind `<<`: a map, or several of which the first counts most.
fn merge(node: &Node, into: &mut Vec<Entry>) -> Result<(), Problem> {
    match &node.value {
        Value::Map(entries) => {
            for entry in entries {
                if !into.iter().any(|e| e.key == entry.key) {
                    set(into, &entry.key, entry.node.clone());
                }
            }
            Ok(())
        }
        Value::List(items) if items.iter().all(|i| matches!(i.value, Value::Map(_))) => {
            items.iter().try_for_each(|item| merge(item, into))
        }
        _ => Err(Problem::new(&node.place, "<< wants a map or a list of maps")),
    }
}

fn core(tag: &Tag) -> Option<&str> {
    tag.is_yaml_core_schema().then_some(tag.suffix.as_str())
}

fn unknown_tag(tag: &Tag, place: &Place) -> Problem {
    Problem::new(place, format!("the tag {}{} means nothing in a config", tag.handle, tag.suffix))
}

fn collection_tag(tag: Option<&Tag>, wanted: &str, place: &Place) -> Result<(), Problem> {
    match tag {
        Some(tag) if core(tag) != Some(wanted) => Err(unknown_tag(tag, place)),
        _ => Ok(()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, place: &Place) -> Result<Value, Problem> {
    let resolved = |text: &str| plain(text).ok_or_else(|| Problem::new(place, "a number out of range"));
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { resolved(text) } else { Ok(Value::Str(text.to_string())) };
    };
    let value = match core(tag) {
        Some("str") => Value::Str(text.to_string()),
        Some("int" | "bool" | "null") => resolved(text)?,
        Some("float") => match resolved(text)? {
            Value::Int(n) => Value::Float(n as f64),
            other => other,
        },
        _ => return Err(unknown_tag(tag, place)),
    };
    match (core(tag), &value) {
        (Some("str"), Value::Str(_))
        | (Some("int"), Value::Int(_))
        | (Some("bool"), Value::Bool(_))
        | (Some("null"), Value::Null)
        | (Some("float"), Value::Float(_)) => Ok(value),
        _ => Err(Problem::new(place, format!("{} where its tag says {}", value.kind(), tag.suffix))),
    }
}

/// What an unquoted text means in YAML 1.1; None for a number that can not be held, and for the
/// infinities, which JSON does not know.
pub(super) fn plain(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Some(Value::Bool(false)),
        _ => {}
    }
    let (negative, body) = match text.strip_prefix(['-', '+']) {
        Some(body) => (text.starts_with('-'), body),
        None => (false, text),
    };
    if matches!(body, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return None;
    }
    let first = body.as_bytes().first().copied().unwrap_or(b' ');
    // A sign before a leading point makes text of it.
    if !(first.is_ascii_digit() || (first == b'.' && body.len() == text.len())) {
        return Some(Value::Str(text.to_string()));
    }
    match number(body) {
        Number::No => Some(Value::Str(text.to_string())),
        Number::TooLarge => None,
        Number::Int(n) => Some(Value::Int(if negative { -n } else { n })),
        Number::Float(n) => Some(Value::Float(if negative { -n } else { n })),
    }
}

enum Number {
    No,
    TooLarge,
    Int(i128),
    Float(f64),
}

/// An unsigned number that begins with a digit or a point.
fn number(body: &str) -> Number {
    let bare: String = body.chars().filter(|c| *c != '_').collect();
    let radix = |digits: &str, radix: u32| {
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Number::No;
        }
        i128::from_str_radix(digits, radix).map_or(Number::TooLarge, Number::Int)
    };
    if let Some(digits) = bare.strip_prefix("0b") {
        return radix(digits, 2);
    }
    if let Some(digits) = bare.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if body.contains(':') {
        return sexagesimal(&bare);
    }
    if bare.contains('.') {
        return float(body, &bare);
    }
    match bare.strip_prefix('0') {
        Some("") => Number::Int(0),
        Some(octal) => radix(octal, 8),
        None => radix(&bare, 10),
    }
}

/// `1.5`, `.5`, `1.0e+3`; the exponent needs a sign, the mantissa a point.
fn float(body: &str, bare: &str) -> Number {
    let (mantissa, exponent) = match bare.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (bare, None),
    };
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let good_exponent = exponent
        .is_none_or(|e| e.strip_prefix(['-', '+']).is_some_and(|d| !d.is_empty() && digits(d)) && !body.ends_with('_'));
    let Some((whole, fraction)) = mantissa.split_once('.') else { return Number::No };
    if !good_exponent || !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return Number::No;
    }
    match bare.parse::<f64>() {
        Ok(n) if n.is_finite() => Number::Float(n),
        _ => Number::TooLarge,
    }
}

/// `1:30` is 90, `1:30.5` is 90.5; every part after the first lies below 60.
fn sexagesimal(bare: &str) -> Number {
    let mut parts = bare.split(':');
    let first = parts.next().unwrap_or_default();
    let is_float = bare.contains('.');
    if first.is_empty() || !first.chars().all(|c| c.is_ascii_digit()) || (!is_float && first.starts_with('0')) {
        return Number::No;
    }
    let (mut whole, mut fraction) = (first.parse::<i128>().ok(), 0.0);
    let rest: Vec<&str> = parts.collect();
    for (i, part) in rest.iter().enumerate() {
        let digits = match part.split_once('.') {
            Some((digits, tail)) if i + 1 == rest.len() && tail.chars().all(|c| c.is_ascii_digit()) => {
                fraction = format!("0.{tail}0").parse().unwrap_or(0.0);
                digits
            }
            Some(_) => return Number::No,
            None => part,
        };
        match digits.parse::<i128>() {
            Ok(n) if n < 60 && digits.len() <= 2 && digits.chars().all(|c| c.is_ascii_digit()) => {
                whole = whole.and_then(|w| w.checked_mul(60)).and_then(|w| w.checked_add(n));
            }
            _ => return Number::No,
        }
    }
    match whole {
        None => Number::TooLarge,
        Some(whole) if is_float => Number::Float(whole as f64 + fraction),
        Some(whole) => Number::Int(whole),
    }
}
