//! JSON with line numbers.

use std::sync::Arc;

use super::node::{Entry, Node, Place, Problem, Value};

/// Deepest nesting that is read, here and in YAML.
pub(super) const DEEPEST: usize = 64;

/// Reads a JSON document. Keys that come twice, numbers that no double holds and anything that is no
/// strict JSON are problems.
pub fn read(text: &str, source: &Arc<str>) -> Result<Node, Problem> {
    // The grammar is serde's business; what follows only has to walk over text that is known good.
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        let message = error.to_string();
        let cut = message.rfind(" at line").unwrap_or(message.len());
        let what = message.get(..cut).unwrap_or(&message);
        return Err(Problem::new(&Place::line(source, error.line()), format!("not JSON: {what}")));
    }
    let mut walk = Walk { rest: text, line: 1, source, depth: 0 };
    walk.node()
}

struct Walk<'t> {
    rest: &'t str,
    line: usize,
    source: &'t Arc<str>,
    depth: usize,
}

impl<'t> Walk<'t> {
    fn place(&self) -> Place {
        Place::line(self.source, self.line)
    }

    fn skip(&mut self, len: usize) -> &'t str {
        let (head, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.line += head.matches('\n').count();
        self.rest = rest;
        head
    }

    fn space(&mut self) {
        let len = self.rest.len() - self.rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        self.skip(len);
    }

    /// Skips space and one character when it is the one asked for.
    fn eat(&mut self, c: char) -> bool {
        self.space();
        let found = self.rest.starts_with(c);
        if found {
            self.skip(c.len_utf8());
        }
        found
    }

    fn string(&mut self) -> Result<String, Problem> {
        let place = self.place();
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, c)| {
            let end = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            end
        });
        let len = end.map_or(self.rest.len(), |(at, _)| at + 1);
        let text = self.skip(len);
        serde_json::from_str(text).map_err(|_| Problem::new(&place, "not JSON: a string that does not end"))
    }

    fn node(&mut self) -> Result<Node, Problem> {
        self.space();
        let place = self.place();
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Problem::new(&place, format!("nested deeper than {DEEPEST}")));
        }
        let value = match self.rest.chars().next() {
            Some('{') => self.map()?,
            Some('[') => {
                self.skip(1);
                let mut items = Vec::new();
                while !self.eat(']') && !self.rest.is_empty() {
                    items.push(self.node()?);
                    self.eat(',');
                }
                Value::List(items)
            }
            Some('"') => Value::Str(self.string()?),
            _ => {
                let len = self.rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(self.rest.len());
                scalar(self.skip(len)).ok_or_else(|| Problem::new(&place, "a number out of range"))?
            }
        };
        self.depth -= 1;
        Ok(Node { place, value })
    }

    fn map(&mut self) -> Result<Value, Problem> {
        self.skip(1);
        let mut entries: Vec<Entry> = Vec::new();
        while !self.eat('}') && !self.rest.is_empty() {
            let place = self.place();
            let key = self.string()?;
            self.eat(':');
            let mut node = self.node()?;
            node.place = place;
            push_unique(&mut entries, key, node)?;
            self.eat(',');
        }
        Ok(Value::Map(entries))
    }
}

/// Adds a key that must be new.
pub(super) fn push_unique(entries: &mut Vec<Entry>, key: String, node: Node) -> Result<(), Problem> {
    if let Some(first) = entries.iter().find(|e| e.key == key) {
        return Err(Problem::new(&node.place, format!("the key {key} comes twice, first at {}", first.node.place)));
    }
    entries.push(Entry { key, node });
    Ok(())
}

fn scalar(text: &str) -> Option<Value> {
    Some(match text {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        number if number.contains(['.', 'e', 'E']) => {
            Value::Float(number.parse().ok().filter(|n: &f64| n.is_finite())?)
        }
        number => Value::Int(number.parse().ok()?),
    })
}
