//! A look around before the first trial: what would fail every trial is said at once, with its remedy,
//! and images are pulled before any trial's clock runs.

pub mod model;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::owner::Tell;
use super::prepare::Refusal;
use crate::environment::docker::{DockerEngine, ImageNews};
use crate::environment::{EnvError, Trouble};
use crate::harbor::task::Network;
use crate::scheduler::docker::NeededImage;
use crate::scheduler::{DockerPlaces, Plan};

/// Longest look around, pulls apart.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two lines about one pull.
const PACE: Duration = Duration::from_secs(5);
/// Less free space than this, in bytes, is not enough for any job.
const LEAST: u64 = 8 << 20;
/// Less than this is worth a word.
const LITTLE: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Looks at the disk where the job dir goes.
///
/// # Errors
/// There is no room for any job.
pub fn disk(dir: &Path, tell: &Tell) -> Result<(), Refusal> {
    let Some((at, free)) = free(dir) else { return Ok(()) };
    if free < LEAST {
        return Err(Refusal::of(&format!(
            "{}: {} MiB free where the job dir goes: free some, or choose another --jobs-dir",
            at.display(),
            free / MIB
        )));
    }
    if free < LITTLE {
        tell(&format!("{}: only {} MiB free where the job dir goes", at.display(), free / MIB));
    }
    Ok(())
}

/// Free bytes of the file system that a path is on, or will be on.
fn free(path: &Path) -> Option<(&Path, u64)> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    for at in path.ancestors() {
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        if let Ok(stat) = rustix::fs::statvfs(at) {
            return Some((at, stat.f_bavail.saturating_mul(stat.f_frsize)));
        }
    }
    None
}

/// Looks at the engine, its disk and its room for networks, then sees to the images. Gives the name of
/// an image that is here.
///
/// # Errors
/// What would fail every trial.
pub async fn docker(engine: &DockerEngine, plan: &Plan, tell: &Tell) -> Result<Option<String>, Refusal> {
    match tokio::time::timeout(LIMIT, around(engine, plan, tell)).await {
        Ok(done) => done?,
        Err(_) => {
            return Err(Refusal::of(&format!(
                "the look around took longer than {} s: the Docker engine hangs or is overloaded: look at its log, or \
                 begin without it (--no-preflight)",
                LIMIT.as_secs()
            )));
        }
    }
    let said: Mutex<HashMap<String, Instant>> = Mutex::default();
    let news = |image: &str, news: &ImageNews| {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        match news {
            ImageNews::Begun => {
                said.insert(image.to_string(), Instant::now());
                tell(&format!("pulling image {image}"));
            }
            ImageNews::Progress(p) if said.get(image).is_none_or(|at| at.elapsed() >= PACE) => {
                said.insert(image.to_string(), Instant::now());
                let bytes = format!("{} of {} MiB", p.bytes / MIB, p.bytes_known / MIB);
                tell(&format!("pulling image {image}: {} of {} layers, {bytes}", p.layers_done, p.layers));
            }
            ImageNews::Done(Ok(_)) if said.contains_key(image) => tell(&format!("image {image} is here")),
            ImageNews::Progress(_) | ImageNews::Done(_) => {}
        }
    };
    images(DockerPlaces::prepare(engine, plan, &news).await, plan, tell)
}

/// Judges what became of the images: some that can not be had fail their own trials, all of them the job.
fn images(needed: Vec<NeededImage>, plan: &Plan, tell: &Tell) -> Result<Option<String>, Refusal> {
    let mut here = None;
    let mut missing = Vec::new();
    let mut tasks = Vec::new();
    for image in needed {
        match image.outcome {
            Ok(_) => {
                here.get_or_insert(image.image);
            }
            Err(error) => {
                missing.push(format!("{error}; needed by {}", image.tasks.join(", ")));
                tasks.extend(image.tasks);
            }
        }
    }
    let some = plan.trials.iter().any(|trial| !tasks.contains(&trial.task.name));
    if !missing.is_empty() && !some {
        return Err(Refusal(missing));
    }
    for line in &missing {
        tell(&format!("its trials will fail: {line}"));
    }
    Ok(here)
}

async fn around(engine: &DockerEngine, plan: &Plan, tell: &Tell) -> Result<(), Refusal> {
    let refuse = |e: EnvError| Refusal::of(&e.to_string());
    engine.answers().await.map_err(refuse)?;
    let root = engine.facts().root_dir.clone();
    if engine.address().is_local()
        && Path::new(&root).is_dir()
        && let Some((at, free)) = free(Path::new(&root))
        && free < LITTLE
    {
        tell(&format!("{}: only {} MiB free where Docker keeps its data", at.display(), free / MIB));
    }
    let connected = plan.trials.iter().find(|t| t.task.config.environment.network != Network::None);
    if let Some(trial) = connected
        && engine.free_networks(trial.settings.pool.as_ref()).await.map_err(refuse)? == 0
    {
        let remedy = "remove unused networks (pilothouse clean, docker network prune), or give a range of your own \
                      (--ek network_pool=10.200.0.0/16)";
        return Err(refuse(EnvError::new(Trouble::AddressPool, "look for address pools", "none is free", remedy)));
    }
    Ok(())
}
