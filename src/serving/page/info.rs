//! SGLang's `/server_info` (`/get_server_info` before 0.5.9): all its arguments in one flat object.
//!
//! It holds the server's keys in clear, three times over. Keys are dropped by name, and whatever holds a
//! value that was dropped goes, too.

use std::sync::Arc;

use serde::de::MapAccess;

use super::lenient::{Fields, Object, Scalar, Some1024};
use super::{Unreadable, count32, count64, figure, json};
use crate::job::text;
use crate::serving::{Engine, Limits, ServerInfo};

/// Most settings that are kept; 0.5.23 has 556.
const MOST_SETTINGS: usize = 2048;

/// Settings that stand first, where they are set.
const FIRST: [&str; 16] = [
    "tp_size",
    "pp_size",
    "ep_size",
    "enable_dp_attention",
    "quantization",
    "kv_cache_dtype",
    "mem_fraction_static",
    "schedule_policy",
    "schedule_conservativeness",
    "reasoning_parser",
    "tool_call_parser",
    "speculative_algorithm",
    "disaggregation_mode",
    "decode_log_interval",
    "enable_metrics",
    "attention_backend",
];

/// One rank's state; `graph` inside `memory_usage` is a number or an object.
#[derive(Default)]
struct State {
    max_running: Scalar,
    capacity: Scalar,
}

#[derive(Default)]
struct Memory {
    capacity: Scalar,
}

impl Fields for Memory {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let value = map.next_value()?;
        if name == "token_capacity" {
            self.capacity = value;
        }
        Ok(())
    }
}

impl Fields for State {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "effective_max_running_requests_per_dp" => self.max_running = map.next_value()?,
            "memory_usage" => {
                if let Some(Object(memory)) = map.next_value::<Option<Object<Memory>>>()? {
                    self.capacity = memory.capacity;
                }
            }
            _ => drop(map.next_value::<Scalar>()?),
        }
        Ok(())
    }
}

#[derive(Default)]
struct Page {
    scalars: Vec<(Box<str>, Scalar)>,
    states: Vec<Object<State>>,
}

impl Fields for Page {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if name == "internal_states" {
            self.states = map.next_value::<Some1024<Object<State>>>()?.0;
            return Ok(());
        }
        let value: Scalar = map.next_value()?;
        if value != Scalar::Other && self.scalars.len() < MOST_SETTINGS && name.len() <= 128 {
            self.scalars.push((name.into(), value));
        }
        Ok(())
    }
}

/// True for names of what is secret, and of what may repeat a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "password", "secret", "launch_command"].iter().any(|word| name.contains(word))
}

/// Reads it. Settings are in their order, those that say most of the server first.
///
/// # Errors
/// It has neither a version nor a model: a router answers with three counts of its own.
pub fn server_info(body: &[u8]) -> Result<ServerInfo, Unreadable> {
    const WHAT: &str = "an answer of /server_info";
    let Object(page) = json::<Object<Page>>(body, WHAT)?;
    let get = |name: &str| page.scalars.iter().find(|(n, _)| &**n == name).map(|(_, v)| v);
    let text = |name: &str| get(name).and_then(Scalar::text).cloned();
    let number = |name: &str| get(name).and_then(Scalar::number);
    let model = text("served_model_name").or_else(|| text("model_path"));
    if model.is_none() && get("version").is_none() {
        return Err(Unreadable(WHAT));
    }
    let dp_size = number("dp_size").and_then(count32).and_then(|n| u16::try_from(n).ok());
    let state = page.states.first().map(|Object(state)| state);
    let of_state = |pick: fn(&State) -> &Scalar| state.and_then(|s| pick(s).number());
    let max_running = of_state(|s| &s.max_running)
        // The argument is the server's, the limit a rank's.
        .or_else(|| number("max_running_requests").filter(|_| dp_size.unwrap_or(1) == 1))
        .and_then(count32);
    let limits = Limits {
        max_running,
        context: number("context_length").and_then(count64),
        capacity: number("max_total_num_tokens").or_else(|| of_state(|s| &s.capacity)).and_then(count64),
        mamba_slots: number("max_mamba_cache_size").and_then(count32),
        chunk: number("chunked_prefill_size").and_then(count64).filter(|n| *n > 0),
        free_gb: None,
        watchdog: number("watchdog_timeout").and_then(figure),
    };
    Ok(ServerInfo {
        engine: Some(Engine::Sglang),
        version: text("version"),
        model: model.map(masked),
        dp_size,
        limits,
        settings: settings(&page.scalars),
    })
}

fn masked(value: Arc<str>) -> Arc<str> {
    match text::mask_secrets(&value) {
        std::borrow::Cow::Borrowed(_) => value,
        std::borrow::Cow::Owned(masked) => masked.into(),
    }
}

fn settings(scalars: &[(Box<str>, Scalar)]) -> Vec<(Arc<str>, Arc<str>)> {
    let secrets: Vec<&str> = scalars
        .iter()
        .filter(|(name, _)| is_secret(name) && &**name != "launch_command")
        .filter_map(|(_, value)| value.text())
        .map(|value| &**value)
        .filter(|value| value.len() >= 4)
        .collect();
    let shown = |name: &str, value: &Scalar| -> Option<(Arc<str>, Arc<str>)> {
        let value = match value {
            _ if is_secret(name) => return None,
            Scalar::Flag(flag) => Arc::from(if *flag { "true" } else { "false" }),
            Scalar::Number(n) => Arc::from(n.to_string()),
            // A value that speaks of a key may hold one: arguments within an argument.
            Scalar::Text(value) if is_secret(value) || secrets.iter().any(|s| value.contains(s)) => return None,
            Scalar::Text(value) => masked(Arc::clone(value)),
            Scalar::Other => return None,
        };
        Some((Arc::from(name), value))
    };
    let rank = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    let mut out: Vec<_> = scalars.iter().filter_map(|(name, value)| shown(name, value)).collect();
    out.sort_by_key(|(name, _)| rank(name));
    out
}
