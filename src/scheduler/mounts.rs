//! The operator's own mounts: `environment.mounts` of a config.

use std::path::PathBuf;

use serde_json::Value;

use crate::environment::{Mount, plain_path};
use crate::harbor::write::config::EnvironmentConfig;
use crate::job::text::clean;

/// Where a trial's own directories are.
const TAKEN: [&str; 3] = ["/logs/verifier", "/logs/agent", "/logs/artifacts"];

/// The mounts of a job, in order.
///
/// # Errors
/// What is no bind mount of a place on this machine, a line each.
pub(super) fn read(config: &EnvironmentConfig) -> Result<Vec<Mount>, Vec<String>> {
    let mut out: Vec<Mount> = Vec::new();
    let mut wrong = Vec::new();
    for value in config.mounts.iter().flatten() {
        let read = mount(value).and_then(|mount| {
            let taken = TAKEN.contains(&mount.inside.as_str()) || out.iter().any(|m| m.inside == mount.inside);
            if taken { Err(format!("{} inside is taken already", mount.inside)) } else { Ok(mount) }
        });
        match read {
            Ok(mount) => out.push(mount),
            Err(why) => wrong.push(format!("the mount {}: {}", clean(&value.to_string()), clean(&why))),
        }
    }
    if wrong.is_empty() { Ok(out) } else { Err(wrong) }
}

/// Places inside that more than one of a job's mounts and volumes wants, a line each.
pub(super) fn clashes(mounts: &[Mount], volumes: &[Mount]) -> Vec<String> {
    let mut taken: Vec<&str> = TAKEN.to_vec();
    taken.extend(mounts.iter().map(|m| &*m.inside));
    let mut out = Vec::new();
    for volume in volumes {
        if taken.contains(&volume.inside.as_str()) {
            out.push(format!("the volume at {}: it is taken already", clean(&volume.inside)));
        }
        taken.push(&volume.inside);
    }
    out
}

fn mount(value: &Value) -> Result<Mount, String> {
    let map = value.as_object().ok_or("it is no map")?;
    for (key, value) in map {
        let known = match key.as_str() {
            "type" | "source" | "target" | "read_only" => true,
            // Nothing is created anyway; a label is for systems that have them, where it does no harm.
            "bind" => value.as_object().is_some_and(|bind| {
                bind.iter().all(|(k, v)| (k == "create_host_path" && v == &Value::Bool(false)) || v.is_null())
            }),
            _ => value.is_null(),
        };
        if !known {
            return Err(format!("{key}: no options of mounts"));
        }
    }
    let text = |key: &str| map.get(key).and_then(Value::as_str).ok_or_else(|| format!("{key} is missing"));
    if text("type")? != "bind" {
        return Err("only bind mounts are".to_string());
    }
    let host = PathBuf::from(text("source")?);
    if !host.is_absolute() {
        return Err("source is not absolute".to_string());
    }
    let inside = plain_path("mount", text("target")?).map_err(|_| "target is not absolute and plain".to_string())?;
    let read_only = match map.get("read_only") {
        None | Some(Value::Null) => false,
        Some(flag) => flag.as_bool().ok_or("read_only is neither true nor false")?,
    };
    Ok(Mount { host, inside, read_only })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_plain_bind_mounts_are_taken() {
        let of = |mounts: Value| {
            let mounts = mounts.as_array().cloned();
            read(&EnvironmentConfig { mounts, ..EnvironmentConfig::default() })
        };
        let bind = |target: &str| json!({"type": "bind", "source": "/data", "target": target});
        assert_eq!(of(json!([bind("/mnt/a"), bind("/mnt/b")])).map(|m| m.len()), Ok(2));
        assert!(
            of(json!([{"type": "bind", "source": "/d", "target": "/t", "read_only": true,
            "bind": {"create_host_path": false}}]))
            .is_ok_and(|m| m.iter().all(|m| m.read_only))
        );
        let volume = |inside: &str| Mount { host: "/d".into(), inside: inside.to_string(), read_only: true };
        let mounts = of(json!([bind("/mnt/a")])).unwrap_or_default();
        assert_eq!(clashes(&mounts, &[volume("/mnt/b"), volume("/mnt/c")]), [""; 0]);
        assert_eq!(clashes(&mounts, &[volume("/mnt/a"), volume("/b"), volume("/b"), volume("/logs/agent")]).len(), 3);
        for mounts in [
            json!([bind("/logs/agent")]),
            json!([bind("/a"), bind("/a/")]),
            json!([bind("a")]),
            json!([{"type": "volume", "source": "v", "target": "/a"}]),
            json!([{"type": "bind", "source": "rel", "target": "/a"}]),
            json!([{"type": "bind", "source": "/d", "target": "/a", "bind": {"propagation": "shared"}}]),
            json!(["/a:/b"]),
        ] {
            assert!(of(mounts.clone()).is_err(), "{mounts}");
        }
    }
}
