//! What model servers answer over HTTP: bytes in, types out.
//!
//! Pages differ by version and by settings of the server; what is missing is None, what is new is passed
//! over, and what is no page of that kind is [`Unreadable`]. Keys never come out of here.

mod info;
mod lenient;
mod load;
mod models;
mod prometheus;
mod router;
mod sglang;
mod vllm;

pub use info::server_info;
pub use load::{Loads, get_load, loads};
pub use models::{Models, model_info, models, version};
pub use prometheus::{Sample, samples};
pub use router::{WorkerLoad, circuits, get_loads, list_workers, readiness, worker_url, workers};

use std::sync::Arc;

use super::{Engine, Load};

/// Most bytes of a page that are read. A page of metrics of eight ranks is about 0.6 MB, the longest seen.
pub const LONGEST: usize = 8 << 20;

/// Most ranks, workers or models that a page may name; the rest is passed over.
pub const MOST: usize = 1024;

/// A page that is not what was asked for: what it should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct Unreadable(pub &'static str);

/// Reads JSON. Nesting is bounded by the reader (128), length here.
fn json<'a, T: serde::Deserialize<'a>>(body: &'a [u8], what: &'static str) -> Result<T, Unreadable> {
    if body.len() > LONGEST {
        return Err(Unreadable(what));
    }
    serde_json::from_slice(body).map_err(|_| Unreadable(what))
}

/// A page of metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Whose, by the names on it.
    pub engine: Option<Engine>,
    /// Figures, limits and counters per rank.
    pub loads: Vec<Load>,
    /// Name of the model.
    pub model: Option<Arc<str>>,
    /// Tokens of context per request.
    pub context: Option<u64>,
    /// Verify steps of speculation and tokens accepted in them, over all ranks, since the start (vLLM).
    pub drafts: Option<(f64, f64)>,
}

/// Reads a server's own page of metrics (SGLang with `--enable-metrics`, vLLM). That of a router has no
/// loads, see [`circuits`].
///
/// # Errors
/// No sample on it that is known.
pub fn metrics(body: &[u8]) -> Result<Metrics, Unreadable> {
    if body.len() > LONGEST {
        return Err(Unreadable("a page of metrics"));
    }
    let mut all = workers_metrics(body);
    match all.len() {
        0 if router::is_router(body) => Ok(Metrics { engine: Some(Engine::Router), ..Metrics::default() }),
        0 => Err(Unreadable("metrics of a model server")),
        _ => Ok(all.swap_remove(0).1),
    }
}

/// Reads a router's `/engine_metrics`: the pages of all its workers, merged, where names have lost their
/// colon and samples have got a `worker_addr`. By worker, in order of their addresses; also reads pages
/// that are not merged, whose address is empty.
pub fn workers_metrics(body: &[u8]) -> Vec<(Arc<str>, Metrics)> {
    let mut found: std::collections::BTreeMap<String, (sglang::Gather, vllm::Gather)> =
        std::collections::BTreeMap::new();
    let body = body.get(..LONGEST).unwrap_or(body);
    for sample in samples(body, |name| sglang::wanted(name) || vllm::wanted(name)) {
        let worker = sample.label("worker_addr").unwrap_or_default();
        if !found.contains_key(worker) {
            if found.len() >= MOST {
                continue;
            }
            found.insert(worker.to_string(), Default::default());
        }
        let Some((sglang, vllm)) = found.get_mut(worker) else { continue };
        if let Some(name) = sglang::short(sample.name) {
            sglang.add(name, &sample);
        } else {
            vllm.add(sample.name, &sample);
        }
    }
    let read = found.into_iter().filter_map(|(worker, (sglang, vllm))| {
        let metrics = sglang.end().or_else(|| vllm.end())?;
        Some((Arc::from(worker), metrics))
    });
    read.collect()
}

/// A rank that stands alone is none: servers without data parallelism number their only one 0.
fn alone(mut loads: Vec<Load>) -> Vec<Load> {
    if let [only] = loads.as_mut_slice() {
        only.rank = only.rank.filter(|rank| *rank != 0);
    }
    loads
}

/// A count from a float that servers print.
fn count32(value: f64) -> Option<u32> {
    (value.is_finite() && (0.0..4.0e9).contains(&value)).then_some(value as u32)
}

/// A count from a float that servers print.
fn count64(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..1.0e18).contains(&value)).then_some(value as u64)
}

/// A figure that is not negative.
fn figure(value: f64) -> Option<f32> {
    (value.is_finite() && (0.0..1.0e12).contains(&value)).then_some(value as f32)
}

/// A share. Rounding may push it a little over 1.
fn share(value: f64) -> Option<f32> {
    (value.is_finite() && (0.0..=1.5).contains(&value)).then_some(value as f32)
}
