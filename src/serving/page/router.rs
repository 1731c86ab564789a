//! What the SGLang router answers: workers, readiness, loads, and circuits in its metrics.
//!
//! Names of metrics are those of 0.3 (`smg_…`); 0.1 and 0.2 had `sgl_router_…`, of which the same ends
//! are tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::lenient::{Scalar, Some1024};
use super::{MOST, Unreadable, count32, json, samples};
use crate::serving::{Circuit, Worker};

/// A worker's URL and rank out of what a router calls it: with `--dp-aware` it is `http://host:port@rank`.
pub fn worker_url(text: &str) -> (Arc<str>, Option<u16>) {
    let split = text.rsplit_once('@').and_then(|(url, rank)| Some((url, rank.parse().ok()?)));
    // User names and passwords have no business on a screen.
    let (url, rank) = match split {
        Some((url, rank)) => (url, Some(rank)),
        None => (text, None),
    };
    let url = match url.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://{host}"),
            None => url.to_string(),
        },
        None => url.to_string(),
    };
    (Arc::from(url.trim_end_matches('/')), rank)
}

#[derive(Deserialize)]
struct RawWorker {
    #[serde(default)]
    url: Scalar,
    #[serde(default)]
    model_id: Scalar,
    #[serde(default)]
    is_healthy: Scalar,
    #[serde(default)]
    load: Scalar,
}

fn by_place(mut workers: Vec<Worker>) -> Vec<Worker> {
    workers.sort_by(|a, b| (&a.url, a.rank).cmp(&(&b.url, b.rank)));
    workers.dedup_by(|a, b| a.url == b.url && a.rank == b.rank);
    workers
}

/// Reads `/workers`. The order of the answer is not stable; here they are in the order of their URLs.
///
/// # Errors
/// It has no list of workers.
pub fn workers(body: &[u8]) -> Result<Vec<Worker>, Unreadable> {
    #[derive(Deserialize)]
    struct Page {
        workers: Some1024<RawWorker>,
    }
    let page: Page = json(body, "an answer of /workers")?;
    let found = page.workers.0.iter().filter_map(|raw| {
        let (url, rank) = worker_url(raw.url.text()?);
        Some(Worker {
            url,
            rank,
            healthy: raw.is_healthy.flag(),
            circuit: None,
            load: raw.load.number().and_then(count32),
            model: raw.model_id.text().cloned(),
        })
    });
    Ok(by_place(found.collect()))
}

/// Reads `/list_workers` of routers before 0.3: URLs, as a list or beneath `urls`.
///
/// # Errors
/// It has no list of URLs.
pub fn list_workers(body: &[u8]) -> Result<Vec<Worker>, Unreadable> {
    const WHAT: &str = "an answer of /list_workers";
    #[derive(Deserialize)]
    struct Page {
        #[serde(alias = "workers")]
        urls: Some1024<Scalar>,
    }
    let urls = if body.trim_ascii_start().first() == Some(&b'[') {
        json::<Some1024<Scalar>>(body, WHAT)?
    } else {
        json::<Page>(body, WHAT)?.urls
    };
    let found = urls.0.iter().filter_map(|url| {
        let (url, rank) = worker_url(url.text()?);
        Some(Worker { url, rank, healthy: None, circuit: None, load: None, model: None })
    });
    Ok(by_place(found.collect()))
}

/// A worker's URL, its rank, and requests at it.
pub type WorkerLoad = (Arc<str>, Option<u16>, Option<u32>);

/// Reads `/get_loads`: requests at each worker; None where the router could not ask (-1).
///
/// # Errors
/// It has no list of workers.
pub fn get_loads(body: &[u8]) -> Result<Vec<WorkerLoad>, Unreadable> {
    #[derive(Deserialize)]
    struct Page {
        workers: Some1024<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        worker: Scalar,
        #[serde(default)]
        load: Scalar,
    }
    let page: Page = json(body, "an answer of /get_loads")?;
    let found = page.workers.0.iter().filter_map(|one| {
        let (url, rank) = worker_url(one.worker.text()?);
        Some((url, rank, one.load.number().and_then(count32)))
    });
    Ok(found.collect())
}

/// Reads `/readiness`: healthy workers and all. None for all where none is healthy: it does not say.
///
/// # Errors
/// It is nothing that a router says.
pub fn readiness(body: &[u8]) -> Result<(u32, Option<u32>), Unreadable> {
    #[derive(Deserialize)]
    struct Page {
        status: Scalar,
        #[serde(default)]
        healthy_workers: Scalar,
        #[serde(default)]
        total_workers: Scalar,
    }
    const WHAT: &str = "an answer of /readiness";
    let page: Page = json(body, WHAT)?;
    let total = page.total_workers.number().and_then(count32);
    match (page.status.text().map(|t| &**t), page.healthy_workers.number().and_then(count32)) {
        (Some("ready" | "not ready"), Some(healthy)) => Ok((healthy, total)),
        (Some("not ready"), None) => Ok((0, total)),
        _ => Err(Unreadable(WHAT)),
    }
}

fn short(name: &str) -> Option<&str> {
    name.strip_prefix("smg_").or_else(|| name.strip_prefix("sgl_router_"))
}

/// Whether a page of metrics is a router's.
pub(super) fn is_router(body: &[u8]) -> bool {
    samples(body, |name| short(name).is_some()).next().is_some()
}

/// Reads a router's page of metrics: its workers with their circuits and health. Empty as long as the
/// router has none.
///
/// # Errors
/// There is nothing of a router on it.
pub fn circuits(body: &[u8]) -> Result<Vec<Worker>, Unreadable> {
    let wanted = |name: &str| matches!(short(name), Some("worker_cb_state" | "cb_state" | "worker_health"));
    let mut found: BTreeMap<(Arc<str>, Option<u16>), Worker> = BTreeMap::new();
    for sample in samples(body, wanted) {
        let Some(called) = sample.label("worker") else { continue };
        let (url, rank) = worker_url(called);
        if found.len() >= MOST && !found.contains_key(&(Arc::clone(&url), rank)) {
            continue;
        }
        let worker = found.entry((Arc::clone(&url), rank)).or_insert(Worker {
            url,
            rank,
            healthy: None,
            circuit: None,
            load: None,
            model: None,
        });
        match (short(sample.name), sample.value) {
            (Some("worker_health"), value) => worker.healthy = Some(value > 0.5),
            (_, 0.0) => worker.circuit = Some(Circuit::Closed),
            (_, 1.0) => worker.circuit = Some(Circuit::Open),
            (_, 2.0) => worker.circuit = Some(Circuit::HalfOpen),
            _ => {}
        }
    }
    if found.is_empty() && !is_router(body) {
        return Err(Unreadable("metrics of a router"));
    }
    Ok(found.into_values().collect())
}
