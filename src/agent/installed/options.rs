//! What is set with `--ak`: by the agent's file, and what all installed agents have.

use std::collections::BTreeMap;

use serde_json::Value;

use super::spec::{Choice, Kind, Spec};
use crate::harbor::write::config::Kwargs;
use crate::job::text::clean;

/// What all installed agents have, with what it does.
pub const COMMON: [(&str, &str); 4] = [
    ("version", "the version that is to be installed"),
    ("skip_install", "true: it is there already, nothing is installed"),
    ("end_after_timeout", "false: its processes go on while the tests run, as under Harbor"),
    ("keep_alive_sec", "seconds between two short questions while it works; 0: none"),
];

/// What holds for a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// The version that is wanted.
    pub version: Option<String>,
    /// Nothing is installed.
    pub skip_install: bool,
    /// Its processes are ended when its time is over.
    pub end_after_timeout: bool,
    /// Seconds between two short questions; 0: none.
    pub keep_alive_sec: u32,
    /// By name: what the script sees.
    pub own: BTreeMap<String, String>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
}

impl Options {
    /// What is set, with the defaults of the agent's file.
    ///
    /// # Errors
    /// All that can not be, a line each, safe to show.
    pub fn of(spec: &Spec, kwargs: &Kwargs) -> Result<Options, Vec<String>> {
        let mut out = Options {
            end_after_timeout: spec.run.end_after_timeout,
            keep_alive_sec: spec.run.keep_alive_sec,
            ..Options::default()
        };
        let mut wrong = Vec::new();
        for (name, choice) in &spec.options {
            out.own.insert(name.clone(), choice.default.clone().unwrap_or_default());
        }
        for (name, value) in kwargs {
            let done = match spec.options.get(name) {
                Some(choice) => word(value).and_then(|text| fits(choice, &text)).map(|text| {
                    out.own.insert(name.clone(), text);
                }),
                None => out.common(name, value).unwrap_or_else(|| Err(unknown(spec))),
            };
            if let Err(why) = done {
                wrong.push(clean(&format!("{name}: {why}")).into_owned());
            }
        }
        for (name, choice) in &spec.options {
            if let Some(value) = out.own.get(name).filter(|v| !v.is_empty()) {
                out.env.extend(choice.env.iter().map(|variable| (variable.clone(), value.clone())));
            }
        }
        if wrong.is_empty() { Ok(out) } else { Err(wrong) }
    }

    /// One that all have; None where it is none.
    fn common(&mut self, name: &str, value: &Value) -> Option<Result<(), String>> {
        let flag = |value: &Value| word(value).and_then(|text| truth(&text));
        Some(match name {
            "version" => word(value).and_then(|text| {
                // It stands in an install command of the file.
                let plain = |c: char| c.is_ascii_alphanumeric() || ".-+_!~:^".contains(c);
                if text.is_empty() || text.starts_with('-') || !text.chars().all(plain) {
                    return Err(format!("{text:?} is no version"));
                }
                self.version = Some(text);
                Ok(())
            }),
            "skip_install" => flag(value).map(|is| self.skip_install = is),
            "end_after_timeout" => flag(value).map(|is| self.end_after_timeout = is),
            "keep_alive_sec" => word(value).and_then(|text| {
                let seconds = text.parse::<u32>().ok().filter(|s| *s <= 86_400);
                self.keep_alive_sec = seconds.ok_or(format!("{text:?} is not from 0 to 86400"))?;
                Ok(())
            }),
            _ => return None,
        })
    }
}

fn unknown(spec: &Spec) -> String {
    let own = spec.options.keys().map(String::as_str);
    let all: Vec<&str> = own.chain(COMMON.iter().map(|(name, _)| *name)).collect();
    format!("no such setting of {}; there are {}", spec.name, all.join(", "))
}

/// A value as a word.
fn word(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if text.contains('\0') => Err("a NUL in it".to_string()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null => Ok(String::new()),
        _ => Err("a text, a number, or true or false".to_string()),
    }
}

fn truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" | "" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// What the script sees of a value.
///
/// # Errors
/// Why it can not be, in words.
pub fn fits(choice: &Choice, text: &str) -> Result<String, String> {
    match choice.kind {
        Kind::Flag => Ok(if truth(text)? { "true".to_string() } else { String::new() }),
        Kind::Number if !text.parse::<f64>().is_ok_and(f64::is_finite) => Err(format!("{text:?} is no number")),
        _ if !choice.choices.is_empty() && !choice.choices.iter().any(|word| word == text) => {
            Err(format!("{text:?} is none of {}", choice.choices.join(", ")))
        }
        _ => Ok(text.to_string()),
    }
}
