//! TOML tables read with Harbor's coercions: numbers in strings, whole floats for integers, true for
//! one. What is wrong is collected, not thrown, so that a task shows all of it at once; what is not
//! known is noted, because Harbor ignores it without a word.

use std::cell::RefCell;
use std::collections::BTreeMap;

use toml::{Table, Value};

use super::config::User;
use super::env::{EnvTemplate, EnvTemplates};
use crate::job::text::clean;

/// Longest time that is taken for one, in seconds: 31 years. Harbor takes any and fails later.
const MAX_SECONDS: f64 = 1e9;
/// Entries read of a list.
const MAX_ENTRIES: usize = 1000;
/// Lines kept of problems and of notes.
const MAX_LINES: usize = 100;

/// What there is to say about a file.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) notes: RefCell<Vec<String>>,
    pub(super) problems: RefCell<Vec<String>>,
}

impl Log {
    pub(super) fn note(&self, text: String) {
        add(&self.notes, text);
    }

    pub(super) fn problem(&self, text: String) {
        add(&self.problems, text);
    }
}

fn add(lines: &RefCell<Vec<String>>, text: String) {
    let mut lines = lines.borrow_mut();
    if lines.len() < MAX_LINES {
        lines.push(text);
    }
}

/// Text of a file inside a message.
pub(super) fn shown(text: &str) -> String {
    let mut out: String = clean(text).chars().take(80).collect();
    if text.chars().count() > 80 {
        out.push('…');
    }
    out
}

fn what(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", shown(text)),
        Value::Array(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(yes) => yes.to_string(),
        Value::Datetime(_) => "a date".into(),
    }
}

/// A number in a string, as Python writes numbers: spaces around, `_` between digits.
pub(super) fn number_in(text: &str) -> Option<f64> {
    plain_digits(text)?.parse().ok()
}

fn plain_digits(text: &str) -> Option<String> {
    let text = text.trim();
    let bytes = text.as_bytes();
    let digit = |i: Option<usize>| i.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_digit);
    let fine = |(i, b): (usize, &u8)| *b != b'_' || (digit(i.checked_sub(1)) && digit(i.checked_add(1)));
    bytes.iter().enumerate().all(fine).then(|| text.replace('_', ""))
}

fn whole_in(text: &str) -> Option<i64> {
    let digits = plain_digits(text)?;
    let whole = match digits.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => whole,
        Some(_) => return None,
        None => &digits,
    };
    whole.parse().ok()
}

fn float_of(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        Value::Boolean(yes) => Some(f64::from(u8::from(*yes))),
        Value::String(text) => number_in(text),
        _ => None,
    }
}

/// A float as an integer, where it is one.
pub(super) fn whole(number: f64) -> Option<i64> {
    // 2^53: beyond it not every integer is a float.
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}

fn int_of(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Boolean(yes) => Some(i64::from(*yes)),
        Value::Float(number) => whole(*number),
        Value::String(text) => whole_in(text),
        _ => None,
    }
}

fn bool_of(value: &Value) -> Option<bool> {
    match value {
        Value::Boolean(yes) => Some(*yes),
        Value::Integer(0) => Some(false),
        Value::Integer(1) => Some(true),
        Value::Float(number) => whole(*number).and_then(|n| bool_of(&Value::Integer(n))),
        Value::String(text) => match text.to_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A table with its name; what nobody asked for is noted when it is dropped.
pub(super) struct Section<'a> {
    table: &'a Table,
    path: String,
    asked: RefCell<Vec<&'static str>>,
    log: &'a Log,
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let asked = self.asked.borrow();
        for key in self.table.keys().filter(|k| !asked.contains(&k.as_str())) {
            self.log.note(format!("{} is not known", self.name(&shown(key))));
        }
    }
}

impl<'a> Section<'a> {
    pub(super) fn root(table: &'a Table, log: &'a Log) -> Section<'a> {
        Section { table, path: String::new(), asked: RefCell::default(), log }
    }

    fn below(&self, table: &'a Table, path: String) -> Section<'a> {
        Section { table, path, asked: RefCell::default(), log: self.log }
    }

    pub(super) fn name(&self, key: &str) -> String {
        match (self.path.as_str(), key) {
            ("", key) => key.to_string(),
            (path, "") => path.to_string(),
            (path, key) => format!("{path}.{key}"),
        }
    }

    pub(super) fn problem(&self, key: &str, why: impl std::fmt::Display) {
        self.log.problem(format!("{}: {why}", self.name(key)));
    }

    pub(super) fn note(&self, key: &str, why: impl std::fmt::Display) {
        self.log.note(format!("{}: {why}", self.name(key)));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn raw(&self, key: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(key);
        self.table.get(key)
    }

    fn take<T>(&self, key: &'static str, wanted: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.raw(key)?;
        let read = read(value);
        if read.is_none() {
            self.problem(key, format_args!("{} is not {wanted}", what(value)));
        }
        read
    }

    pub(super) fn text(&self, key: &'static str) -> Option<String> {
        self.take(key, "a string", |v| v.as_str().map(str::to_string))
    }

    /// As [`Section::text`]; that there is none is a problem.
    pub(super) fn needed_text(&self, key: &'static str) -> String {
        if !self.has(key) {
            self.problem(key, "is required");
        }
        self.text(key).unwrap_or_default()
    }

    pub(super) fn float(&self, key: &'static str) -> Option<f64> {
        self.take(key, "a number", float_of)
    }

    /// A span of time in seconds: finite, not negative, below 31 years.
    pub(super) fn seconds(&self, key: &'static str) -> Option<f64> {
        let fits = |n: &f64| (0.0..=MAX_SECONDS).contains(n);
        self.take(key, "a number of seconds", |v| float_of(v).filter(fits))
    }

    /// An amount: a whole number from 0.
    pub(super) fn count(&self, key: &'static str) -> Option<u64> {
        self.take(key, "a whole number from 0", |v| int_of(v).and_then(|n| u64::try_from(n).ok()))
    }

    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        self.take(key, "true or false", bool_of)
    }

    pub(super) fn user(&self, key: &'static str) -> Option<User> {
        self.take(key, "a user's name or number", |v| match v {
            Value::String(name) => Some(User::Name(name.clone())),
            other => int_of(other).and_then(|n| u32::try_from(n).ok()).map(User::Id),
        })
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let wanted = format!("one of {}", names.join(", "));
        self.take(key, &wanted, |v| words.iter().find(|(w, _)| v.as_str() == Some(w)).map(|(_, t)| *t))
    }

    /// The entries of a list with their names.
    pub(super) fn list(&self, key: &'static str) -> Vec<(String, &'a Value)> {
        let Some(value) = self.raw(key) else { return Vec::new() };
        let Some(list) = value.as_array() else {
            self.problem(key, format_args!("{} is not a list", what(value)));
            return Vec::new();
        };
        if list.len() > MAX_ENTRIES {
            self.problem(key, format_args!("{} entries, more than {MAX_ENTRIES}", list.len()));
        }
        list.iter().take(MAX_ENTRIES).enumerate().map(|(i, v)| (format!("{}[{i}]", self.name(key)), v)).collect()
    }

    pub(super) fn texts(&self, key: &'static str) -> Option<Vec<String>> {
        self.has(key).then(|| {
            let text = |(name, value): (String, &Value)| {
                let text = value.as_str().map(str::to_string);
                if text.is_none() {
                    self.log.problem(format!("{name}: {} is not a string", what(value)));
                }
                text
            };
            self.list(key).into_iter().filter_map(text).collect()
        })
    }

    /// A table of strings.
    pub(super) fn pairs(&self, key: &'static str) -> BTreeMap<String, String> {
        let Some(section) = self.section(key) else { return BTreeMap::new() };
        section.asked.borrow_mut().clear();
        let mut out = BTreeMap::new();
        for (name, value) in section.table {
            match value.as_str() {
                Some(text) => drop(out.insert(name.clone(), text.to_string())),
                None => section.problem(&shown(name), format_args!("{} is not a string", what(value))),
            }
        }
        section.all_known();
        out
    }

    pub(super) fn env(&self, key: &'static str) -> EnvTemplates {
        self.pairs(key).into_iter().map(|(name, text)| (name, EnvTemplate::new(&text))).collect()
    }

    /// A table of numbers, or one number.
    pub(super) fn numbers(&self, key: &'static str) -> Option<Result<f64, BTreeMap<String, f64>>> {
        match self.raw(key)? {
            Value::Table(table) => {
                let number = |(name, value): (&String, &Value)| {
                    let number = float_of(value);
                    if number.is_none() {
                        self.problem(key, format_args!("{} is not a number for {:?}", what(value), shown(name)));
                    }
                    number.map(|n| (name.clone(), n))
                };
                Some(Err(table.iter().filter_map(number).collect()))
            }
            _ => self.float(key).map(Ok),
        }
    }

    pub(super) fn section(&self, key: &'static str) -> Option<Section<'a>> {
        let value = self.raw(key)?;
        let table = value.as_table();
        if table.is_none() {
            self.problem(key, format_args!("{} is not a table", what(value)));
        }
        table.map(|table| self.below(table, self.name(key)))
    }

    pub(super) fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let section = |(name, value): (String, &'a Value)| {
            let table = value.as_table();
            if table.is_none() {
                self.log.problem(format!("{name}: {} is not a table", what(value)));
            }
            table.map(|table| self.below(table, name))
        };
        self.list(key).into_iter().filter_map(section).collect()
    }

    /// The entry of a list, where it is a table.
    pub(super) fn entry(&self, name: String, value: &'a Value) -> Option<Section<'a>> {
        value.as_table().map(|table| self.below(table, name))
    }

    /// The whole table is the author's own; nothing of it is unknown.
    pub(super) fn all_known(mut self) -> &'a Table {
        let table = self.table;
        static NONE: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::new);
        self.table = &NONE;
        table
    }
}
