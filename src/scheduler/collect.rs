//! Artifacts: what is kept of an environment after the agent, and `artifacts/manifest.json`.

use std::time::Duration;

use serde::Serialize;

use crate::environment::{Caps, EnvError, Environment, Trouble};
use crate::harbor::task;
use crate::harbor::write::{Folder, WriteError};

/// What every environment has as `/logs/artifacts`; it lies in the trial's `artifacts/` all the time.
const MOUNTED: &str = "/logs/artifacts";
/// Most that is kept of one artifact.
const CAPS: Caps = Caps { bytes: 1 << 30, file_bytes: 1 << 30, entries: 100_000 };
/// For a look at what an artifact is.
const PROBE: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Line {
    source: String,
    destination: String,
    #[serde(rename = "type")]
    kind: &'static str,
    status: &'static str,
    service: Option<String>,
}

/// Copies the artifacts of a task and writes the manifest. What can not be had is `failed` there and
/// no failure of the trial; gives what there is to say about it, a line each.
///
/// # Errors
/// The manifest could not be written.
pub(super) async fn collect(
    environment: Option<&dyn Environment>,
    wanted: &[task::Artifact],
    artifacts: &Folder,
) -> Result<Vec<String>, WriteError> {
    let mounted = artifacts.dir().sub("logs/artifacts").and_then(|dir| dir.list());
    let status = match mounted {
        Ok(entries) if entries.is_empty() => "empty",
        Ok(_) => "ok",
        Err(_) => "failed",
    };
    let mut lines = vec![Line {
        source: MOUNTED.to_string(),
        destination: "artifacts/logs/artifacts".to_string(),
        kind: "directory",
        status,
        service: None,
    }];
    let mut said = Vec::new();
    for artifact in wanted {
        let source = artifact.source.trim_end_matches('/');
        let place = artifact.destination.as_deref().unwrap_or(source).trim_matches('/').to_string();
        let (kind, status) = match environment {
            Some(environment) => match copy(environment, source, &place, artifacts).await {
                Ok(done) => done,
                Err(e) => {
                    said.push(format!("Artifact {source}: {e}"));
                    ("file", "failed")
                }
            },
            None => ("file", "failed"),
        };
        let destination = format!("artifacts/{place}");
        lines.push(Line { source: artifact.source.clone(), destination, kind, status, service: None });
    }
    let text = serde_json::to_string_pretty(&lines).unwrap_or_else(|_| "[]".to_string());
    artifacts.write_once("manifest.json", text.as_bytes())?;
    Ok(said)
}

async fn copy(
    environment: &dyn Environment,
    source: &str,
    place: &str,
    artifacts: &Folder,
) -> Result<(&'static str, &'static str), EnvError> {
    // A container can write there at any time: nothing else is put in it.
    if place == "logs" || place.starts_with("logs/") {
        let remedy = "choose another destination";
        return Err(EnvError::new(Trouble::Path, "keep an artifact", "logs/ is where containers write", remedy));
    }
    let inside = environment.locate(source);
    let is_dir = environment.probe(&["test", "-d", &inside], Some("root"), PROBE).await?.exit == 0;
    let mut parts: Vec<&str> = place.split('/').collect();
    if !is_dir {
        parts.pop();
    }
    let wrong = |e: WriteError| EnvError::new(Trouble::Io, "keep an artifact", &e.to_string(), "");
    let mut into: Option<Folder> = None;
    for part in parts {
        into = Some(into.as_ref().unwrap_or(artifacts).make_or_open(part, 0o755).map_err(wrong)?);
    }
    let path = into.as_ref().unwrap_or(artifacts).path().to_path_buf();
    let fetched = environment.download_tree(source, path, CAPS).await?;
    let kind = if is_dir { "directory" } else { "file" };
    Ok((kind, if fetched.files == 0 { "empty" } else { "ok" }))
}
