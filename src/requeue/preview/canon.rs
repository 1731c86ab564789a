//! Configs in one form, so that what Harbor takes for equal is equal: sparse or full, 2 or 2.0, `./jobs` or
//! `jobs`.

use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value, json};

/// Maps whose values are handed on as they are: nothing in them is a default.
const RAW: [&str; 3] = ["kwargs", "env", "headers"];

/// A value without what is at its default, with numbers in one form.
pub fn canon(value: &Value) -> Value {
    strip(value, false).unwrap_or(Value::Null)
}

fn strip(value: &Value, raw: bool) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) if !raw => None,
        Value::Number(n) => Some(n.as_f64().map_or_else(|| value.clone(), |n| json!(n))),
        Value::Array(items) if items.is_empty() && !raw => None,
        Value::Array(items) => Some(items.iter().map(|item| strip(item, raw).unwrap_or(Value::Null)).collect()),
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                let within = raw || RAW.contains(&key.as_str());
                if let Some(value) = strip(value, within) {
                    out.insert(key.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        other => Some(other.clone()),
    }
}

/// Puts Harbor's defaults where a sparse config leaves them out: those that are neither null, nor false,
/// nor empty.
pub fn filled(config: &Value) -> Value {
    let mut out = config.as_object().cloned().unwrap_or_default();
    out.remove("schema_version");
    default(&mut out, "timeout_multiplier", json!(1.0));
    let mut section = |name: &str, defaults: &[(&str, Value)]| {
        if let Value::Object(map) = out.entry(name).or_insert_with(|| json!({})) {
            for (key, value) in defaults {
                default(map, key, value.clone());
            }
        }
    };
    let own = config["environment"]["import_path"].is_string();
    section(
        "environment",
        &[
            ("delete", json!(true)),
            ("cpu_enforcement_policy", json!("auto")),
            ("memory_enforcement_policy", json!("auto")),
        ],
    );
    if !own {
        section("environment", &[("type", json!("docker"))]);
    }
    if !config["agent"]["import_path"].is_string() {
        section("agent", &[("name", json!("oracle"))]);
    }
    for field in ["trials_dir", "task.path"] {
        let (section, key) = field.split_once('.').unwrap_or(("", field));
        let map = match section {
            "" => Some(&mut out),
            name => out.get_mut(name).and_then(Value::as_object_mut),
        };
        if let Some(Value::String(path)) = map.and_then(|map| map.get_mut(key)) {
            *path = plain(path);
        }
    }
    canon(&Value::Object(out))
}

fn default(map: &mut Map<String, Value>, key: &str, value: Value) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_string(), value);
    }
}

/// A path without `.` and doubled `/`, as Python's `Path` has it.
pub fn plain(path: &str) -> String {
    let parts: PathBuf = Path::new(path).components().filter(|c| !matches!(c, Component::CurDir)).collect();
    parts.to_string_lossy().into_owned()
}
