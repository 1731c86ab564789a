//! Typed reading of a configuration map: every key is asked for once, and what nobody asked for is a
//! problem. Values are taken as leniently as Harbor's own models take them (`"4"` is a number, `on` is
//! true), problems are gathered so that an operator sees all of them at once.

use std::cell::RefCell;
use std::path::PathBuf;

use super::node::{Entry, Node, Place, Problem, Value};

/// The problems found so far.
pub(super) type Problems = RefCell<Vec<Problem>>;

pub(super) fn complain(problems: &Problems, place: &Place, message: impl AsRef<str>) {
    problems.borrow_mut().push(Problem::new(place, message));
}

/// A map that is being read.
pub(super) struct Reader<'p> {
    entries: Vec<Entry>,
    /// What it configures: `the job config`, `an agent`.
    what: &'static str,
    /// Where it stands, such as `agents[0].`; empty for the root.
    path: String,
    /// Where it begins.
    pub(super) place: Place,
    pub(super) problems: &'p Problems,
}

impl<'p> Reader<'p> {
    /// None (and a problem) when the node is no map.
    pub(super) fn new(node: Node, path: &str, what: &'static str, problems: &'p Problems) -> Option<Reader<'p>> {
        let place = node.place;
        match node.value {
            Value::Map(entries) => {
                let path = if path.is_empty() { String::new() } else { format!("{path}.") };
                Some(Reader { entries, what, path, place, problems })
            }
            other => {
                complain(problems, &place, format!("{path}: {} instead of a map", other.kind()));
                None
            }
        }
    }

    pub(super) fn complain(&self, place: &Place, message: impl AsRef<str>) {
        complain(self.problems, place, message);
    }

    /// Where a key of this map stands, in words.
    pub(super) fn at(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Node> {
        let at = self.entries.iter().position(|e| e.key == key)?;
        Some(self.entries.remove(at).node)
    }

    /// As [`Reader::take`], with the key.
    pub(super) fn take_entry(&mut self, key: &str) -> Option<Entry> {
        self.take(key).map(|node| Entry { key: key.to_string(), node })
    }

    /// Gives a key a value unless it has one.
    pub(super) fn default(&mut self, key: &str, node: Node) {
        if !self.has(key) {
            self.entries.push(Entry { key: key.to_string(), node });
        }
    }

    /// An old name of a key; the new name counts where both are given.
    pub(super) fn rename(&mut self, old: &str, new: &str) {
        if let Some(node) = self.take(old) {
            self.default(new, node);
        }
    }

    /// An old word for a value.
    pub(super) fn replace_word(&mut self, key: &str, old: &str, new: &str) {
        for entry in self.entries.iter_mut().filter(|e| e.key == key && e.node.as_str() == Some(old)) {
            entry.node.value = Value::Str(new.to_string());
        }
    }

    /// A word whose case does not matter.
    pub(super) fn lower_case(&mut self, key: &str) {
        for entry in self.entries.iter_mut().filter(|e| e.key == key) {
            if let Value::Str(text) = &mut entry.node.value {
                text.make_ascii_lowercase();
            }
        }
    }

    /// Takes a key that says null; true when it did or was not there.
    pub(super) fn is_null(&mut self, key: &str) -> bool {
        match self.entries.iter().find(|e| e.key == key) {
            Some(entry) if matches!(entry.node.value, Value::Null) => self.take(key).is_some(),
            found => found.is_none(),
        }
    }

    /// `agents[0]: ` for a complaint about the map as a whole; nothing at the root.
    pub(super) fn heading(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!("{}: ", self.path.trim_end_matches('.')) }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|e| e.key == key)
    }

    fn wrong(&self, key: &str, node: &Node, wanted: &str) {
        self.complain(&node.place, format!("{}: {} instead of {wanted}", self.at(key), node.value.kind()));
    }

    /// A value that may be null.
    fn optional<T>(&mut self, key: &str, wanted: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let node = self.take(key)?;
        if matches!(node.value, Value::Null) {
            return None;
        }
        let value = read(&node.value);
        if value.is_none() {
            self.wrong(key, &node, wanted);
        }
        value
    }

    /// A value that may be missing, but not null.
    fn plain<T>(&mut self, key: &str, default: T, wanted: &str, read: impl FnOnce(&Value) -> Option<T>) -> T {
        let Some(node) = self.take(key) else { return default };
        match read(&node.value) {
            Some(value) => value,
            None => {
                self.wrong(key, &node, wanted);
                default
            }
        }
    }

    pub(super) fn bool(&mut self, key: &str, default: bool) -> bool {
        self.plain(key, default, "true or false", bool_of)
    }

    pub(super) fn opt_bool(&mut self, key: &str) -> Option<bool> {
        self.optional(key, "true or false", bool_of)
    }

    /// A number of seconds or a factor, from `least` (which is excluded when it is 0 and `positive`).
    pub(super) fn f64(&mut self, key: &str, default: f64, positive: bool) -> f64 {
        self.plain(key, default, wanted_f64(positive), |v| f64_of(v, positive))
    }

    pub(super) fn opt_f64(&mut self, key: &str, positive: bool) -> Option<f64> {
        self.optional(key, wanted_f64(positive), |v| f64_of(v, positive))
    }

    pub(super) fn u32(&mut self, key: &str, default: u32, least: u32) -> u32 {
        let wanted = format!("a whole number from {least}");
        self.plain(key, default, &wanted, |v| u32_of(v, least))
    }

    pub(super) fn opt_u32(&mut self, key: &str, least: u32) -> Option<u32> {
        let wanted = format!("a whole number from {least}");
        self.optional(key, &wanted, |v| u32_of(v, least))
    }

    pub(super) fn str(&mut self, key: &str) -> Option<String> {
        self.optional(key, "text", |v| match v {
            Value::Str(s) => Some(s.clone()),
            _ => None,
        })
    }

    /// Text that must be there.
    pub(super) fn required(&mut self, key: &str) -> String {
        let place = self.place.clone();
        if !self.has(key) {
            self.complain(&place, format!("{} is missing", self.at(key)));
            return String::new();
        }
        self.plain(key, String::new(), "text", |v| match v {
            Value::Str(s) => Some(s.clone()),
            _ => None,
        })
    }

    /// A path that may be missing, but not null.
    pub(super) fn path_or(&mut self, key: &str, default: &str) -> PathBuf {
        self.plain(key, path(default), "text", |v| match v {
            Value::Str(s) => Some(path(s)),
            _ => None,
        })
    }

    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.str(key).map(|p| path(&p))
    }

    /// One of several words.
    pub(super) fn word<T>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T>
    where
        T: Copy,
    {
        let node = self.take(key)?;
        if matches!(node.value, Value::Null) {
            return None;
        }
        let found = node.as_str().and_then(|s| words.iter().find(|(word, _)| *word == s));
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let said = node.as_str().unwrap_or(node.value.kind());
            self.complain(&node.place, format!("{}: {said}, not one of {}", self.at(key), known.join(", ")));
        }
        found.map(|(_, value)| *value)
    }

    /// A list whose items are read one by one; missing is empty.
    pub(super) fn list<T>(&mut self, key: &str, mut read: impl FnMut(Node, &str) -> Option<T>) -> Vec<T> {
        self.opt_list_with(key, false, &mut read).unwrap_or_default()
    }

    pub(super) fn opt_list_with<T>(
        &mut self,
        key: &str,
        nullable: bool,
        mut read: impl FnMut(Node, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let node = self.take(key)?;
        let path = self.at(key);
        match node.value {
            Value::Null if nullable => None,
            Value::List(items) => Some(
                items.into_iter().enumerate().filter_map(|(i, item)| read(item, &format!("{path}[{i}]"))).collect(),
            ),
            other => {
                self.complain(&node.place, format!("{path}: {} instead of a list", other.kind()));
                None
            }
        }
    }

    pub(super) fn strings(&mut self, key: &str) -> Vec<String> {
        let problems = self.problems;
        self.list(key, |node, path| text(node, path, problems))
    }

    pub(super) fn opt_strings(&mut self, key: &str) -> Option<Vec<String>> {
        let problems = self.problems;
        self.opt_list_with(key, true, |node, path| text(node, path, problems))
    }

    pub(super) fn paths(&mut self, key: &str) -> Vec<PathBuf> {
        self.strings(key).iter().map(|p| path(p)).collect()
    }

    /// A map of texts, such as `env`.
    pub(super) fn texts(&mut self, key: &str) -> Vec<(String, String)> {
        let Some(node) = self.take(key) else { return Vec::new() };
        let path = self.at(key);
        let Some(entries) = self.entries_of(node, &path) else { return Vec::new() };
        let read = |entry: Entry| {
            let at = format!("{path}.{}", entry.key);
            text(entry.node, &at, self.problems).map(|value| (entry.key, value))
        };
        entries.into_iter().filter_map(read).collect()
    }

    /// A map of anything, such as `kwargs`.
    pub(super) fn anything(&mut self, key: &str) -> Vec<Entry> {
        let Some(node) = self.take(key) else { return Vec::new() };
        let path = self.at(key);
        self.entries_of(node, &path).unwrap_or_default()
    }

    fn entries_of(&self, node: Node, path: &str) -> Option<Vec<Entry>> {
        match node.value {
            Value::Map(entries) => Some(entries),
            other => {
                self.complain(&node.place, format!("{path}: {} instead of a map", other.kind()));
                None
            }
        }
    }

    /// A map inside this one; missing gives None.
    pub(super) fn section(&mut self, key: &str, what: &'static str) -> Option<Reader<'p>> {
        let node = self.take(key)?;
        Reader::new(node, &self.at(key), what, self.problems)
    }

    /// The keys that nobody asked for are problems.
    pub(super) fn finish(self) {
        for entry in &self.entries {
            let message = format!("unknown key {}{} in {}", self.path, entry.key, self.what);
            complain(self.problems, &entry.node.place, message);
        }
    }
}

fn wanted_f64(positive: bool) -> &'static str {
    if positive { "a number above 0" } else { "a number from 0" }
}

fn text(node: Node, path: &str, problems: &Problems) -> Option<String> {
    match node.value {
        Value::Str(text) => Some(text),
        other => {
            let message = format!("{path}: {} instead of text: put it in quotes", other.kind());
            complain(problems, &node.place, message);
            None
        }
    }
}

fn bool_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => Some(*b),
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        Value::Str(s) => match s.to_ascii_lowercase().as_str() {
            "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn f64_of(value: &Value, positive: bool) -> Option<f64> {
    let number = match value {
        Value::Int(n) => *n as f64,
        Value::Float(n) => *n,
        Value::Str(s) => s.trim().parse().ok()?,
        _ => return None,
    };
    (number.is_finite() && if positive { number > 0.0 } else { number >= 0.0 }).then_some(number)
}

fn u32_of(value: &Value, least: u32) -> Option<u32> {
    let number = match value {
        Value::Int(n) => u32::try_from(*n).ok()?,
        Value::Float(n) if n.fract() == 0.0 && *n >= 0.0 && *n <= f64::from(u32::MAX) => *n as u32,
        Value::Str(s) => s.trim().parse().ok()?,
        _ => return None,
    };
    (number >= least).then_some(number)
}

/// A path as Harbor prints it: without a slash at its end, doubled slashes and `.` segments.
pub(super) fn path(text: &str) -> PathBuf {
    let mut out = String::new();
    for part in text.split('/').filter(|p| !matches!(*p, "" | ".")) {
        if !out.is_empty() {
            out.push('/');
        }
        out.push_str(part);
    }
    match (text.starts_with('/'), out.is_empty()) {
        (true, _) => PathBuf::from(format!("/{out}")),
        (false, true) => PathBuf::from("."),
        (false, false) => PathBuf::from(out),
    }
}
