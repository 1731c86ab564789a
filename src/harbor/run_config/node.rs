//! Configuration values that remember where they were written, so that every complaint can name file
//! and line.

use std::fmt;
use std::sync::Arc;

use crate::job::text::clean;

/// Where a value was written: a file and a line, or a flag.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    source: Arc<str>,
    line: u32,
}

impl Place {
    /// A line (from 1) of a file.
    pub fn line(file: &Arc<str>, line: usize) -> Place {
        Place { source: file.clone(), line: u32::try_from(line).unwrap_or(u32::MAX) }
    }

    /// A flag, such as `--ak`, or a file as a whole.
    pub fn whole(source: &str) -> Place {
        Place { source: source.into(), line: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&clean(&self.source))?;
        if self.line > 0 { write!(f, ":{}", self.line) } else { Ok(()) }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Something that is wrong with a configuration, and where. Both parts are safe to print.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Problem {
    /// File and line, or flag.
    pub place: Place,
    /// What is wrong, in words that name the key.
    pub message: String,
}

impl Problem {
    /// A problem; the message is made safe to print.
    pub fn new(place: &Place, message: impl AsRef<str>) -> Problem {
        Problem { place: place.clone(), message: clean(message.as_ref()).into_owned() }
    }
}

/// A value with its place. Two nodes are equal when their values are, wherever they were written.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where it was written.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.value == other.value
    }
}

/// One key of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value; the place is the key's.
    pub node: Node,
}

/// A value as JSON knows it, the order of keys kept.
#[derive(Debug, Clone)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A finite number with a fraction or an exponent.
    Float(f64),
    /// Text.
    Str(String),
    /// A list.
    List(Vec<Node>),
    /// A map; no key comes twice.
    Map(Vec<Entry>),
}

impl PartialEq for Value {
    /// As Python compares: `1 == 1.0`, and the order of keys does not count.
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Float(a), Value::Float(b)) => a == b,
            (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => *a as f64 == *b,
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::List(a), Value::List(b)) => a == b,
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len() && a.iter().all(|e| b.iter().any(|f| e.key == f.key && e.node == f.node))
            }
            _ => false,
        }
    }
}

impl Value {
    /// What kind of value it is, in words for a complaint; never the value itself, which may be a key.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Str(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The same value for other code.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(n) => serde_json::Number::from_i128(*n).map_or(Json::Null, Json::Number),
            Value::Float(n) => serde_json::Number::from_f64(*n).map_or(Json::Null, Json::Number),
            Value::Str(s) => Json::String(s.clone()),
            Value::List(items) => Json::Array(items.iter().map(|n| n.value.to_json()).collect()),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|e| (e.key.clone(), e.node.value.to_json())).collect())
            }
        }
    }
}

impl Node {
    /// A value from a place.
    pub fn new(place: &Place, value: Value) -> Node {
        Node { place: place.clone(), value }
    }

    /// Text from a place.
    pub fn text(place: &Place, text: impl Into<String>) -> Node {
        Node::new(place, Value::Str(text.into()))
    }

    /// A list of texts from a place.
    pub fn texts(place: &Place, texts: &[String]) -> Node {
        Node::new(place, Value::List(texts.iter().map(|t| Node::text(place, t.as_str())).collect()))
    }

    /// The value of a key, when this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.node),
            _ => None,
        }
    }

    /// Text, when it is text.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// True or false, when it is one of them.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// Sets a key of a map, in its old position when it was there; no effect on anything else.
    pub fn set(&mut self, key: &str, node: Node) {
        if let Value::Map(entries) = &mut self.value {
            set(entries, key, node);
        }
    }

    /// Takes a key out of a map.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        match &mut self.value {
            Value::Map(entries) => {
                let at = entries.iter().position(|e| e.key == key)?;
                Some(entries.remove(at).node)
            }
            _ => None,
        }
    }

    /// The value of a key to be changed, made by `or` where it was missing; None when this is no map.
    pub fn entry(&mut self, key: &str, or: impl FnOnce() -> Node) -> Option<&mut Node> {
        let Value::Map(entries) = &mut self.value else { return None };
        let at = match entries.iter().position(|e| e.key == key) {
            Some(at) => at,
            None => {
                entries.push(Entry { key: key.to_string(), node: or() });
                entries.len() - 1
            }
        };
        entries.get_mut(at).map(|e| &mut e.node)
    }
}

/// Sets a key among entries.
pub fn set(entries: &mut Vec<Entry>, key: &str, node: Node) {
    match entries.iter_mut().find(|e| e.key == key) {
        Some(entry) => entry.node = node,
        None => entries.push(Entry { key: key.to_string(), node }),
    }
}
