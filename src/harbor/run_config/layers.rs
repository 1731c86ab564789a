//! Several configs, one laid over the other.
//!
//! As Harbor 0.26 does it: maps are merged key by key, most lists of things (agents, datasets, tasks,
//! …) grow, everything else is replaced. (0.21 takes one file; of several it reads the last.)

use std::sync::Arc;

use super::node::{Entry, Node, Place, Problem, Value, set};
use super::{json_text, yaml_text};

/// Lists that grow from layer to layer; an empty list in a later layer empties them.
const GROWING: [&str; 17] = [
    "agents",
    "datasets",
    "tasks",
    "metrics",
    "extra_instruction_paths",
    "extra_instructions",
    "retry.include_exceptions",
    "retry.exclude_exceptions",
    "environment.extra_docker_compose",
    "environment.extra_allowed_hosts",
    "verifier.include_logs",
    "verifier.exclude_logs",
    "verifier.extra_allowed_hosts",
    "user_agent.skills",
    "user_agent.extra_allowed_hosts",
    "user_agent.include_logs",
    "user_agent.exclude_logs",
];

/// Keys of which the later layer's choice takes the other out.
const EXCLUSIVE: [(&str, [&str; 2]); 2] =
    [("environment", ["type", "import_path"]), ("user_agent", ["name", "import_path"])];

/// Lays a map over another.
pub(super) fn lay(base: &mut Vec<Entry>, over: Vec<Entry>, path: &str) {
    for (_, keys) in EXCLUSIVE.iter().filter(|(section, _)| *section == path) {
        let chosen = |key: &&str| over.iter().any(|e| e.key == **key);
        if keys.iter().any(chosen) {
            base.retain(|e| !keys.contains(&e.key.as_str()) || chosen(&e.key.as_str()));
        }
    }
    for Entry { key, node } in over {
        let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (base.iter_mut().find(|e| e.key == key).map(|e| &mut e.node.value), node.value) {
            (Some(Value::Map(old)), Value::Map(new)) => lay(old, new, &at),
            (Some(Value::List(old)), Value::List(new)) if !new.is_empty() && GROWING.contains(&at.as_str()) => {
                old.extend(new);
            }
            (_, value) => set(base, &key, Node { place: node.place, value }),
        }
    }
}

/// How a config file is written, by the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `.yaml`, `.yml`
    Yaml,
    /// `.json`
    Json,
}

impl Format {
    /// None for any other ending.
    pub fn of(name: &str) -> Option<Format> {
        let (_, ending) = name.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Format::Yaml),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

/// Reads a config file's text; its root is a map.
///
/// # Errors
/// With file and line: broken YAML or JSON, keys that come twice, a root that is no map.
pub fn read(bytes: &[u8], name: &str, format: Format) -> Result<Node, Problem> {
    let source: Arc<str> = name.into();
    let whole = Place::whole(name);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes.get(..error.valid_up_to()).unwrap_or_default().iter().filter(|b| **b == b'\n').count();
        Problem::new(&Place::line(&source, line + 1), "not UTF-8 text")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = match format {
        Format::Json => Some(json_text::read(text, &source)?),
        Format::Yaml => yaml_text::read(text, &source)?,
    };
    match root {
        Some(Node { value: Value::Map(entries), .. }) => Ok(Node::new(&whole, Value::Map(entries))),
        Some(other) => {
            Err(Problem::new(&whole, format!("a config is a map of keys, and this is {}", other.value.kind())))
        }
        None => Err(Problem::new(&whole, "a config is a map of keys, and there is nothing in this file")),
    }
}
