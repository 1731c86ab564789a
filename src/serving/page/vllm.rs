//! vLLM's metrics in four generations: 0.6 (v0), 0.10, 0.17, 0.32.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MOST, Metrics, Sample, alone, count32, count64, figure, share};
use crate::serving::{Counters, Engine, Figures, Limits, Load};

const START: &str = "process_start_time_seconds";

fn short(name: &str) -> Option<&str> {
    name.strip_prefix("vllm:").or_else(|| name.strip_prefix("vllm_"))
}

/// Names that are read.
const WANTED: [&str; 22] = [
    "num_requests_running",
    "num_requests_waiting",
    // v0: thrown out of the pool into memory of the host.
    "num_requests_swapped",
    "kv_cache_usage_perc",
    "gpu_cache_usage_perc",
    "generation_tokens_total",
    "generation_tokens_created",
    "prompt_tokens_total",
    "prompt_tokens_by_source_total",
    "prompt_tokens_cached_total",
    "prefix_cache_hits_total",
    "prefix_cache_queries_total",
    "gpu_prefix_cache_hits_total",
    "gpu_prefix_cache_hit_rate",
    "num_preemptions_total",
    "request_success_total",
    "cache_config_info",
    "avg_generation_throughput_toks_per_s",
    "avg_prompt_throughput_toks_per_s",
    "spec_decode_num_drafts_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_efficiency",
];

pub(super) fn wanted(name: &str) -> bool {
    name == START || short(name).is_some_and(|name| WANTED.contains(&name))
}

#[derive(Debug, Default)]
struct One {
    values: BTreeMap<(&'static str, Option<&'static str>), f64>,
    blocks: Option<f64>,
    block_size: Option<f64>,
}

/// Collects a page.
#[derive(Debug, Default)]
pub(super) struct Gather {
    engines: BTreeMap<Option<u16>, One>,
    started: Option<f64>,
    model: Option<Arc<str>>,
}

impl Gather {
    pub(super) fn add(&mut self, name: &str, sample: &Sample<'_>) {
        if name == START {
            self.started = Some(sample.value).filter(|s| s.is_finite() && *s > 0.0);
            return;
        }
        let Some(name) = short(name).and_then(|name| WANTED.iter().find(|w| **w == name)).copied() else { return };
        let engine = sample.label("engine").and_then(|v| v.parse().ok());
        if self.engines.len() >= MOST && !self.engines.contains_key(&engine) {
            return;
        }
        if self.model.is_none() {
            self.model = sample.label("model_name").map(|m| super::lenient::cut(m).into());
        }
        let one = self.engines.entry(engine).or_default();
        if name == "cache_config_info" {
            let number = |label: &str| sample.label(label).and_then(|v| v.parse().ok());
            (one.blocks, one.block_size) = (number("num_gpu_blocks"), number("block_size"));
            return;
        }
        if !sample.value.is_finite() {
            return;
        }
        let kind = match (sample.label("source"), sample.label("finished_reason")) {
            (Some("local_compute"), _) => Some("computed"),
            (Some(_), _) => Some("cached"),
            (_, Some("abort")) => Some("abort"),
            (_, Some(_)) => Some("other"),
            _ => None,
        };
        let value = one.values.entry((name, kind)).or_insert(0.0);
        if name.ends_with("_perc") || name.ends_with("_created") {
            *value = value.max(sample.value);
        } else {
            *value += sample.value;
        }
    }

    pub(super) fn end(self) -> Option<Metrics> {
        if self.engines.is_empty() {
            return None;
        }
        let created = self.engines.values().filter_map(|one| one.get("generation_tokens_created"));
        let started = self.started.or_else(|| created.reduce(f64::min));
        let over_all = |name| {
            let values = self.engines.values().filter_map(|one| one.get(name));
            values.reduce(|a, b| a + b)
        };
        let drafts = over_all("spec_decode_num_drafts_total").zip(over_all("spec_decode_num_accepted_tokens_total"));
        let loads = self.engines.iter().map(|(engine, one)| {
            let mut load = one.load();
            load.rank = *engine;
            load.counters.started = started;
            load
        });
        let loads = alone(loads.collect());
        Some(Metrics { engine: Some(Engine::Vllm), loads, model: self.model, context: None, drafts })
    }
}

impl One {
    fn get(&self, name: &'static str) -> Option<f64> {
        self.values.get(&(name, None)).copied()
    }

    fn of(&self, name: &'static str, kind: &'static str) -> Option<f64> {
        self.values.get(&(name, Some(kind))).copied()
    }

    fn load(&self) -> Load {
        let waiting = self.get("num_requests_waiting");
        let queued = waiting.map(|n| n + self.get("num_requests_swapped").unwrap_or(0.0));
        // 0.10 has the old name beside the new one.
        let kv = self.get("kv_cache_usage_perc").or_else(|| self.get("gpu_cache_usage_perc"));
        let hits = self.get("prefix_cache_hits_total").or_else(|| self.get("gpu_prefix_cache_hits_total"));
        let cached = self
            .get("prompt_tokens_cached_total")
            .or_else(|| self.of("prompt_tokens_by_source_total", "cached"))
            .or(hits);
        // Before the split by source all of them are counted; v0 does not say how many the cache had.
        let prefilled = self.of("prompt_tokens_by_source_total", "computed").or_else(|| {
            let all = self.get("prompt_tokens_total")?;
            Some((all - hits?).max(0.0))
        });
        let capacity = self.blocks.zip(self.block_size).map(|(blocks, size)| blocks * size);
        Load {
            rank: None,
            figures: Figures {
                running: self.get("num_requests_running").and_then(count32),
                queued: queued.and_then(count32),
                kv: kv.and_then(share),
                generation: self.get("avg_generation_throughput_toks_per_s").and_then(figure),
                prefill: self.get("avg_prompt_throughput_toks_per_s").and_then(figure),
                cache_hit: self.get("gpu_prefix_cache_hit_rate").and_then(share),
                ..Figures::default()
            },
            limits: Limits { capacity: capacity.and_then(count64).filter(|n| *n > 0), ..Limits::default() },
            age: None,
            counters: Counters {
                generated: self.get("generation_tokens_total"),
                prefilled,
                cached,
                retracted: self.get("num_preemptions_total"),
                aborted: self.of("request_success_total", "abort"),
                started: None,
            },
        }
    }
}
