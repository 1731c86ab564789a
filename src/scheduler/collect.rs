//! Artifacts: what is kept of an environment after the agent, and `artifacts/manifest.json`.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::disk::{Disk, aside};
use super::limits::duration;
use super::plan::PlannedTrial;
use super::start::workdir;
use crate::environment::{Caps, Command, Ended, EnvError, Environment, Exclude, OnTimeout, Trouble};
use crate::harbor::task::{Artifact, CollectHook};
use crate::harbor::write::{Folder, WriteError};

/// What every environment has as `/logs/artifacts`; it lies in the trial's `artifacts/` all the time.
const MOUNTED: &str = "/logs/artifacts";
/// Where it lies there.
const PLACE: &str = "logs/artifacts";
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
    exclude: Vec<String>,
}

/// What is to be kept, in order; the published directory is always among it.
pub(super) struct Wanted(Vec<Artifact>);

impl Wanted {
    pub(super) fn of(artifacts: impl Iterator<Item = Artifact>) -> Wanted {
        let mut all: Vec<Artifact> = artifacts.collect();
        if !all.iter().any(|a| a.source.trim_end_matches('/') == MOUNTED) {
            let source = MOUNTED.to_string();
            all.insert(0, Artifact { source, destination: None, exclude: Vec::new(), service: None });
        }
        Wanted(all)
    }
}

/// Where an artifact lies below `artifacts/`.
fn place(artifact: &Artifact) -> String {
    let path = artifact.destination.as_deref().unwrap_or(&artifact.source);
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    parts.join("/")
}

/// Whether one path is the other or above it.
fn overlap(a: &str, b: &str) -> bool {
    let above = |a: &str, b: &str| a.is_empty() || b.strip_prefix(a).is_some_and(|rest| rest.starts_with('/'));
    a == b || above(a, b) || above(b, a)
}

/// Whether an earlier entry brings this one along, at the same place (Harbor 0.26).
fn covered(prior: &Artifact, artifact: &Artifact) -> bool {
    let rest = |whole: &str, part: &str| {
        let (whole, part) = (whole.trim_end_matches('/'), part.trim_end_matches('/'));
        let rest = part.strip_prefix(whole)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_string())
    };
    let Some(below) = rest(&prior.source, &artifact.source) else { return false };
    let (prior_place, own) = (place(prior), place(artifact));
    if below.is_empty() && prior_place == own {
        return prior.exclude == artifact.exclude;
    }
    prior.exclude.is_empty() && own == format!("{prior_place}{below}")
}

/// Runs the hooks before a collection, one after the other. What they fail of is a line, no failure.
pub(super) async fn run_hooks(
    environment: &dyn Environment,
    hooks: &[&CollectHook],
    workdir: Option<&str>,
) -> Vec<String> {
    let mut said = Vec::new();
    for hook in hooks {
        let command = Command {
            // Harbor counts in whole seconds.
            timeout: duration(hook.timeout_sec.trunc()),
            on_timeout: OnTimeout::Kill,
            user: hook.user.as_ref().map(ToString::to_string),
            workdir: workdir.map(str::to_string),
            ..Command::new(&hook.command)
        };
        match environment.exec(&command).await.map(|end| end.ended) {
            Ok(Ended::Exited(0)) => {}
            Ok(Ended::Exited(code)) => said.push(format!("Collect hook exited with code {code}: {:?}", hook.command)),
            Ok(Ended::TimedOut) => said.push(format!("Collect hook timed out: {:?}", hook.command)),
            Err(e) => said.push(format!("Collect hook failed ({:?}): {e}", hook.command)),
        }
    }
    said
}

/// Copies the artifacts and writes the manifest. What can not be had is `failed` there and no failure of
/// the trial; gives what there is to say about it, a line each.
///
/// # Errors
/// The manifest could not be written.
pub(super) async fn collect(
    environment: Option<&dyn Environment>,
    wanted: Wanted,
    planned: &PlannedTrial,
    artifacts: Arc<Folder>,
    disk: &Disk,
) -> Result<Vec<String>, WriteError> {
    let mut lines = Vec::new();
    let mut said = Vec::new();
    if let [only] = wanted.0.as_slice()
        && is_published(only, &place(only))
    {
        // Nearly every task: one visit to the disk instead of two.
        let only = only.clone();
        let done = disk.work(move |_| {
            let (found, said) = match published(&artifacts) {
                Ok(found) => (found, Vec::new()),
                Err(e) => (("directory", "failed"), vec![format!("Artifact {}: {e}", only.source)]),
            };
            write_manifest(&artifacts, &[line(only, PLACE, found)]).map(|()| said)
        });
        return done.await;
    }
    let mut claimed: Vec<(String, Artifact)> = Vec::new();
    for artifact in wanted.0 {
        let place = place(&artifact);
        let looks_like_file = std::path::Path::new(&artifact.source).extension().is_some();
        let guess = if looks_like_file { "file" } else { "directory" };
        let again = |prior: &Artifact| prior.source == artifact.source && covered(prior, &artifact);
        let prior = claimed.iter().find(|(at, prior)| !again(prior) && overlap(at, &place)).map(|(_, prior)| prior);
        let (kind, status) = match prior {
            Some(prior) => {
                if !covered(prior, &artifact) {
                    said.push(format!("Artifact {}: its place is that of {}; skipped", artifact.source, prior.source));
                }
                (guess, "skipped")
            }
            None => {
                claimed.push((place.clone(), artifact.clone()));
                match keep(environment, &artifact, &place, planned, &artifacts).await {
                    Ok(done) => done,
                    Err(e) => {
                        said.push(format!("Artifact {}: {e}", artifact.source));
                        (guess, "failed")
                    }
                }
            }
        };
        lines.push(line(artifact, &place, (kind, status)));
    }
    disk.work(move |_| write_manifest(&artifacts, &lines)).await?;
    Ok(said)
}

fn line(artifact: Artifact, place: &str, (kind, status): (&'static str, &'static str)) -> Line {
    let destination = if place.is_empty() { "artifacts".to_string() } else { format!("artifacts/{place}") };
    let Artifact { source, service, exclude, .. } = artifact;
    let exclude = if kind == "directory" { exclude } else { Vec::new() };
    Line { source, destination, kind, status, service, exclude }
}

fn write_manifest(artifacts: &Folder, lines: &[Line]) -> Result<(), WriteError> {
    let text = serde_json::to_string_pretty(lines).unwrap_or_else(|_| "[]".to_string());
    artifacts.jot("manifest.json", text.as_bytes())
}

/// Whether it is the published directory, whole and where it lies anyway.
fn is_published(artifact: &Artifact, place: &str) -> bool {
    artifact.source.trim_end_matches('/') == MOUNTED && place == PLACE && artifact.exclude.is_empty()
}

/// What the published directory holds.
fn published(artifacts: &Folder) -> Result<(&'static str, &'static str), WriteError> {
    let listed = artifacts.dir().sub(PLACE).and_then(|dir| dir.list());
    let empty = listed.map_err(|e| WriteError::of(artifacts.path(), &e))?.is_empty();
    Ok(("directory", if empty { "empty" } else { "ok" }))
}

async fn keep(
    environment: Option<&dyn Environment>,
    artifact: &Artifact,
    place: &str,
    planned: &PlannedTrial,
    artifacts: &Arc<Folder>,
) -> Result<(&'static str, &'static str), EnvError> {
    let call = "keep an artifact";
    let wrong = |e: WriteError| EnvError::new(Trouble::Io, call, &e.to_string(), "");
    if is_published(artifact, place) {
        let folder = Arc::clone(artifacts);
        return aside(move || published(&folder)).await.map_err(wrong);
    }
    // A container can write there at any time: nothing else is put in it.
    if place == PLACE || place.starts_with("logs/artifacts/") {
        let remedy = "choose another destination";
        return Err(EnvError::new(Trouble::Path, call, "logs/artifacts is where containers write", remedy));
    }
    let gone = || EnvError::new(Trouble::NotRunning, call, "there is no environment", "");
    let environment = environment.ok_or_else(gone)?;
    let plain = artifact.source.trim_end_matches('/');
    let source = match plain.starts_with('/') {
        true => plain.to_string(),
        false => format!("{}/{plain}", workdir(environment, planned).await?.trim_end_matches('/')),
    };
    let inside = environment.locate(&source);
    let is_dir = environment.probe(&["test", "-d", &inside], Some("root"), PROBE).await?.exit == 0;
    let mut parts: Vec<String> = place.split('/').filter(|p| !p.is_empty()).map(str::to_string).collect();
    if !is_dir {
        parts.pop();
    }
    let folder = Arc::clone(artifacts);
    let into = aside(move || {
        let mut into: Option<Folder> = None;
        for part in parts {
            into = Some(into.as_ref().unwrap_or(&folder).make_or_open(&part, 0o755)?);
        }
        Ok(into.as_ref().unwrap_or(&folder).path().to_path_buf())
    });
    let into = into.await.map_err(wrong)?;
    let without = Exclude::new(&artifact.exclude);
    let without = without.map_err(|e| EnvError::new(Trouble::Path, call, &e.to_string(), "correct the pattern"))?;
    let fetched = environment.download_part(&source, into, CAPS, without).await?;
    let kind = if is_dir { "directory" } else { "file" };
    let none = fetched.files == 0 && !is_dir;
    if none {
        let detail = "nothing of it could be taken";
        return Err(EnvError::new(Trouble::Path, call, detail, ""));
    }
    Ok((kind, if fetched.files == 0 { "empty" } else { "ok" }))
}
