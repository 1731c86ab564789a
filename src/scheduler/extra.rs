//! What a job adds to every task: instructions and artifacts.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harbor::task::{Artifact, MAIN_SERVICE, sha256_hex};
use crate::harbor::write::config::JobConfig;
use crate::harbor::write::lock::FileLock;
use crate::job::text::clean;

/// Longest instruction that is read from a file.
const LONGEST: u64 = 16 << 20;

/// Texts behind every instruction, with what the lock says of them.
#[derive(Default)]
pub(super) struct Extra {
    pub texts: Vec<String>,
    pub locks: Vec<FileLock>,
}

/// Reads the job's extra instructions: the files in order, then the texts.
pub(super) fn read(config: &JobConfig) -> Result<Extra, Vec<String>> {
    let mut out = Extra::default();
    let mut wrong = Vec::new();
    let mut add = |path: Option<String>, text: String| {
        out.locks.push(FileLock { path, digest: format!("sha256:{}", sha256_hex(text.as_bytes())) });
        out.texts.push(text);
    };
    for path in &config.extra_instruction_paths {
        match text_of(&expand(path)) {
            Ok(text) => add(Some(path.clone()), text),
            Err(why) => wrong.push(format!("the extra instruction {}: {}", clean(path), clean(&why))),
        }
    }
    config.extra_instructions.iter().for_each(|text| add(None, text.clone()));
    if wrong.is_empty() { Ok(out) } else { Err(wrong) }
}

/// `~` as Harbor takes it.
fn expand(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let meta = std::fs::metadata(path).map_err(|e| e.to_string())?;
    // Before it is opened: a FIFO would wait for its other end.
    if !meta.is_file() {
        return Err("it is no regular file".to_string());
    }
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > LONGEST {
        return Err("it is longer than 16 MiB".to_string());
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_string())
}

/// The artifacts of a job, as its config has them.
pub(super) fn artifacts(values: &[Value]) -> Result<Vec<Artifact>, Vec<String>> {
    let mut out = Vec::new();
    let mut wrong = Vec::new();
    for value in values {
        match artifact(value) {
            Some(artifact) => match refused(&artifact) {
                None => out.push(artifact),
                Some(why) => wrong.push(why),
            },
            None => wrong.push(format!("the artifact {}", clean(&value.to_string()))),
        }
    }
    if wrong.is_empty() { Ok(out) } else { Err(wrong) }
}

fn artifact(value: &Value) -> Option<Artifact> {
    if let Some(source) = value.as_str() {
        let source = source.to_string();
        return Some(Artifact { source, destination: None, exclude: Vec::new(), service: None });
    }
    let text = |name: &str| match value.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some(Some(text.clone())),
        Some(_) => None,
    };
    let exclude = match value.get("exclude") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => list.as_array()?.iter().map(|p| p.as_str().map(str::to_string)).collect::<Option<_>>()?,
    };
    Some(Artifact { source: text("source")??, destination: text("destination")?, exclude, service: text("service")? })
}

/// Why an artifact is not kept; None when it is.
pub(super) fn refused(artifact: &Artifact) -> Option<String> {
    let at = || format!("the artifact {}", clean(&artifact.source));
    let leads_out = |path: &str| path.split('/').any(|part| part == "..");
    if let Some(service) = artifact.service.as_deref().filter(|s| *s != MAIN_SERVICE) {
        return Some(format!("{}: the compose service {}", at(), clean(service)));
    }
    if artifact.source.is_empty() || leads_out(&artifact.source) {
        return Some(format!("{}: a path with ..", at()));
    }
    if let Some(to) = artifact.destination.as_deref()
        && (to.starts_with('/') || leads_out(to) || to.trim_matches('/') == "manifest.json")
    {
        return Some(format!("{}: the destination {}", at(), clean(to)));
    }
    if artifact.source.trim_end_matches('/') == "/logs/artifacts"
        && artifact.destination.is_none()
        && !artifact.exclude.is_empty()
    {
        let why = "it lies on this machine all the time: exclude patterns need a destination";
        return Some(format!("{}: {why}", at()));
    }
    crate::environment::Exclude::new(&artifact.exclude).err().map(|e| format!("{}: {}", at(), clean(&e.to_string())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn artifacts_are_paths_or_more() {
        let read = artifacts(&[json!("/a"), json!({"source": "b", "destination": "c/d", "exclude": ["*.o"]})]);
        let read = read.unwrap_or_default();
        assert_eq!(read.iter().map(|a| &*a.source).collect::<Vec<_>>(), ["/a", "b"]);
        for value in [
            json!(5),
            json!({"destination": "x"}),
            json!({"source": "/a", "service": "db"}),
            json!({"source": "/a/../b"}),
            json!({"source": "/a", "destination": "/b"}),
            json!({"source": "/a", "destination": "manifest.json"}),
            json!({"source": "/logs/artifacts", "exclude": ["x"]}),
            json!({"source": "/a", "exclude": "x"}),
        ] {
            assert!(artifacts(std::slice::from_ref(&value)).is_err(), "{value}");
        }
    }
}
