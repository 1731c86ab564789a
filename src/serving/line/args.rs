//! What a server says of itself when it starts: its arguments, its version.

use std::sync::Arc;

use memchr::memmem;

use super::super::{Limits, ServerInfo};
use super::batch::{number, whole};

/// Longest value that is taken over.
const LONGEST: usize = 200;

/// Settings that are shown: SGLang's and vLLM's names.
const SETTINGS: [&str; 14] = [
    "tp_size",
    "tensor_parallel_size",
    "ep_size",
    "pp_size",
    "quantization",
    "kv_cache_dtype",
    "mem_fraction_static",
    "gpu_memory_utilization",
    "schedule_conservativeness",
    "speculative_algorithm",
    "reasoning_parser",
    "tool_call_parser",
    "disaggregation_mode",
    "decode_log_interval",
];

/// The server as its line of arguments describes it: `{'name': value, …}` or `ServerArgs(name=value, …)`.
pub(super) fn read(line: &[u8]) -> ServerInfo {
    let text = |name: &str| argument(line, name).map(text_of);
    let count = |name: &str| argument(line, name).and_then(whole);
    let small = |name: &str| count(name).and_then(|n| u32::try_from(n).ok());
    let settings = SETTINGS.iter().filter_map(|name| Some(((*name).into(), text(name)?)));
    ServerInfo {
        engine: None,
        version: None,
        model: text("served_model_name").or_else(|| text("model_path")).or_else(|| text("model")),
        dp_size: count("dp_size").or_else(|| count("data_parallel_size")).and_then(|n| u16::try_from(n).ok()),
        limits: Limits {
            max_running: small("max_running_requests").or_else(|| small("max_num_seqs")),
            context: count("context_length").or_else(|| count("max_model_len")),
            chunk: count("chunked_prefill_size").or_else(|| count("max_num_batched_tokens")),
            watchdog: argument(line, "watchdog_timeout").and_then(number).map(|n| n as f32),
            ..Limits::default()
        },
        settings: settings.collect(),
    }
}

fn text_of(value: &[u8]) -> Arc<str> {
    crate::job::text::mask_secrets(&String::from_utf8_lossy(value)).into()
}

/// The value of an argument without quotes and the bracket of a list; None for `None`.
fn argument<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let value = memmem::find_iter(line, name.as_bytes()).find_map(|at| {
        let before = at.checked_sub(1).and_then(|i| line.get(i))?;
        let rest = line.get(at + name.len()..)?;
        match before {
            b'\'' | b'"' => rest.get(1..)?.strip_prefix(b": "),
            b' ' | b'(' | b',' | b'{' => rest.strip_prefix(b"="),
            _ => None,
        }
    })?;
    let value = value.strip_prefix(b"[").unwrap_or(value);
    let quote = value.first().filter(|b| matches!(b, b'\'' | b'"')).copied();
    let (value, end) = match quote {
        // A value without its end is clipped.
        Some(quote) => {
            let inner = value.get(1..)?;
            (inner, memchr::memchr(quote, inner)?)
        }
        None => (value, value.iter().position(|b| matches!(b, b',' | b')' | b'}' | b']'))?),
    };
    let value = value.get(..end.min(LONGEST))?;
    (!value.is_empty() && value != b"None").then_some(value)
}

/// The version that vLLM names in its banner and in front of its configuration.
pub(super) fn version(message: &[u8]) -> Option<Arc<str>> {
    let names = ["API server version ", "LLM engine (v", "\u{2588}  version "];
    names.iter().find_map(|name| {
        let from = memmem::find(message, name.as_bytes())? + name.len();
        let rest = message.get(from..)?;
        let part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-');
        let end = rest.iter().position(|b| !part(b)).unwrap_or(rest.len()).min(40);
        let version = String::from_utf8_lossy(rest.get(..end)?);
        let version = version.trim_end_matches('.');
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.into())
    })
}
