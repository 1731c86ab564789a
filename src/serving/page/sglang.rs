//! SGLang's metrics, by the rules of its versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MOST, Metrics, Sample, alone, count32, count64, figure, share};
use crate::serving::{Counters, Engine, Figures, Limits, Load};

/// The name without the engine's; a router's merged page has `sglang_` for `sglang:`.
pub(super) fn short(name: &str) -> Option<&str> {
    name.strip_prefix("sglang:").or_else(|| name.strip_prefix("sglang_"))
}

/// Names that are read.
const WANTED: [&str; 26] = [
    "num_running_reqs",
    "num_queue_reqs",
    "token_usage",
    "full_token_usage",
    "swa_token_usage",
    "swa_used_tokens",
    "swa_available_tokens",
    "swa_evictable_tokens",
    "mamba_usage",
    "mamba_used_tokens",
    "mamba_available_tokens",
    "mamba_evictable_tokens",
    "num_used_tokens",
    "kv_used_tokens",
    "max_total_num_tokens",
    "context_len",
    "gen_throughput",
    "cache_hit_rate",
    "spec_accept_length",
    "is_cuda_graph",
    "num_retracted_requests_total",
    "num_aborted_requests_total",
    "realtime_tokens_total",
    "prefill_effective_tokens_total",
    "graph_memory_usage_gb",
    "num_pages",
];

pub(super) fn wanted(name: &str) -> bool {
    short(name).is_some_and(|name| WANTED.contains(&name))
}

/// Which schedulers' word is kept: with `--enable-metrics-for-all-schedulers` every tensor-parallel and
/// pipeline rank says the same, and a sum would count it many times.
type Part = (u32, u32);

/// The samples of one rank from one scheduler.
#[derive(Debug, Default)]
struct One {
    part: Part,
    /// By name and mode: sums over labels that are not known.
    values: BTreeMap<(&'static str, Option<&'static str>), Value>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Value {
    sum: f64,
    max: f64,
    /// A sum that the server made over its priorities.
    whole: Option<f64>,
}

/// Collects a page.
#[derive(Debug, Default)]
pub(super) struct Gather {
    ranks: BTreeMap<Option<u16>, One>,
    aborted: Option<f64>,
    model: Option<Arc<str>>,
    any: bool,
}

impl Gather {
    pub(super) fn add(&mut self, name: &str, sample: &Sample<'_>) {
        let Some(name) = WANTED.iter().find(|w| **w == name).copied() else { return };
        self.any = true;
        if !sample.value.is_finite() {
            return;
        }
        let number = |label: &str| sample.label(label).and_then(|v| v.parse().ok());
        if name == "num_aborted_requests_total" {
            // The tokenizer's, which knows no ranks.
            self.aborted = Some(self.aborted.unwrap_or(0.0) + sample.value);
            return;
        }
        let rank = number("dp_rank").and_then(|n| u16::try_from(n).ok());
        if self.ranks.len() >= MOST && !self.ranks.contains_key(&rank) {
            return;
        }
        if self.model.is_none() {
            self.model = sample.label("model_name").map(|m| super::lenient::cut(m).into());
        }
        let part = (number("pp_rank").unwrap_or(0), number("tp_rank").unwrap_or(0));
        let one = self.ranks.entry(rank).or_insert_with(|| One { part, ..One::default() });
        if part > one.part {
            return;
        }
        if part < one.part {
            *one = One { part, ..One::default() };
        }
        let mode = match sample.label("mode") {
            None => None,
            Some("decode") => Some("decode"),
            Some("prefill_compute") => Some("prefill_compute"),
            Some("prefill_cache") => Some("prefill_cache"),
            Some(_) => Some("other"),
        };
        let value = one.values.entry((name, mode)).or_default();
        if sample.label("priority") == Some("") {
            value.whole = Some(sample.value);
        } else {
            value.sum += sample.value;
        }
        value.max = value.max.max(sample.value);
    }

    pub(super) fn end(self) -> Option<Metrics> {
        if !self.any {
            return None;
        }
        let context = self.ranks.values().find_map(|one| one.max("context_len")).and_then(count64);
        let only = self.ranks.len() == 1;
        let loads = self.ranks.iter().map(|(rank, one)| {
            let mut load = one.load();
            load.rank = *rank;
            load.counters.aborted = self.aborted.filter(|_| only);
            load
        });
        let loads = alone(loads.collect());
        Some(Metrics { engine: Some(Engine::Sglang), loads, model: self.model, context, drafts: None })
    }
}

impl One {
    fn sum(&self, name: &'static str) -> Option<f64> {
        self.values.get(&(name, None)).map(|v| v.whole.unwrap_or(v.sum))
    }

    fn max(&self, name: &'static str) -> Option<f64> {
        self.values.get(&(name, None)).map(|v| v.max)
    }

    fn realtime(&self, mode: &'static str) -> Option<f64> {
        self.values.get(&("realtime_tokens_total", Some(mode))).map(|v| v.sum)
    }

    /// Size of a pool that only some models have; None where there is none, or nothing tells.
    fn pool(&self, used: &'static str, available: &'static str, evictable: &'static str) -> Option<f64> {
        let size = self.sum(used)? + self.sum(available)? + self.sum(evictable).unwrap_or(0.0);
        (size > 0.0).then_some(size)
    }

    fn load(&self) -> Load {
        let running = self.sum("num_running_reqs").and_then(count32);
        let swa = self.pool("swa_used_tokens", "swa_available_tokens", "swa_evictable_tokens");
        let slots = self.pool("mamba_used_tokens", "mamba_available_tokens", "mamba_evictable_tokens");
        // From 0.5.15 on `token_usage` is the largest over all pools.
        let kv = self.max("full_token_usage").or_else(|| self.max("token_usage"));
        // Up to 0.5.15 each decode report set the rate back to 0; later versions also have these.
        let rate_stays =
            self.values.keys().any(|(n, _)| matches!(*n, "prefill_effective_tokens_total" | "graph_memory_usage_gb"));
        let cache_hit = self.max("cache_hit_rate").and_then(share).filter(|hit| *hit > 0.0 || rate_stays);
        let retracted = self.sum("num_retracted_requests_total").or_else(|| {
            // The series begins with the first one.
            self.realtime("decode").or_else(|| self.realtime("prefill_compute")).map(|_| 0.0)
        });
        Load {
            rank: None,
            figures: Figures {
                running,
                queued: self.sum("num_queue_reqs").and_then(count32),
                tokens: self.sum("kv_used_tokens").or_else(|| self.sum("num_used_tokens")).and_then(count64),
                kv: kv.and_then(share),
                swa: self.max("swa_token_usage").and_then(share).filter(|u| swa.is_some() || *u > 0.0),
                mamba_slots: slots.and(self.sum("mamba_used_tokens")).and_then(count32),
                mamba: self.max("mamba_usage").and_then(share).filter(|u| slots.is_some() || *u > 0.0),
                // An idle server holds the last value.
                generation: self.sum("gen_throughput").and_then(figure).filter(|_| running != Some(0)),
                prefill: None,
                cache_hit,
                accept_len: self.max("spec_accept_length").and_then(figure).filter(|n| *n > 0.0),
                pending_tokens: None,
                graph: self.max("is_cuda_graph").map(|g| g > 0.5).filter(|_| running != Some(0)),
            },
            limits: Limits {
                context: self.max("context_len").and_then(count64),
                capacity: self.max("max_total_num_tokens").and_then(count64).filter(|n| *n > 0),
                mamba_slots: slots.and_then(count32),
                ..Limits::default()
            },
            age: None,
            counters: Counters {
                generated: self.realtime("decode"),
                prefilled: self.realtime("prefill_compute"),
                cached: self.realtime("prefill_cache"),
                retracted,
                aborted: None,
                started: None,
            },
        }
    }
}
