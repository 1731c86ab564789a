//! Batch lines: `name: value` joined by `, `, read by name and never by position.
//!
//! Versions move, rename, add and drop fields, and terminals clip lines. A part is split at its last
//! `: `; a name counts only if it is known as a whole, so that a clipped one (`token usaccept rate`)
//! becomes no figure. What is not known is kept as it stands.

use std::sync::{Arc, LazyLock};

use memchr::memmem::{self, Finder};

use super::super::{DecodeBatch, Figures, PrefillBatch};
use crate::job::text::mask_secrets;

/// Which batch a line tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// SGLang's `Decode batch`.
    Decode,
    /// SGLang's `Prefill batch`.
    Prefill,
    /// vLLM's line of an engine, or of several summed up.
    Stats,
}

/// Fields of a line beyond these are not kept.
const MOST_OTHERS: usize = 32;
/// Names that a reader remembers so as not to allocate them again.
const MOST_NAMES: usize = 64;
/// Longest name and value that are kept.
const LONGEST: usize = 96;

/// The fields of the batch in a line, in their order: name, value.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(body: &'a [u8]) -> Fields<'a> {
        Fields { rest: body }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let bytes = self.rest;
            let mut split = None;
            let mut end = bytes.len();
            let mut next = bytes.len();
            // Fields are shorter than what a vectorised search needs to pay.
            for (at, pair) in bytes.windows(2).enumerate() {
                if pair == b": " {
                    split = Some(at);
                } else if pair == b", " {
                    (end, next) = (at, at + 2);
                    break;
                }
            }
            if next == bytes.len() && bytes.last() == Some(&b',') {
                end = end.min(bytes.len() - 1);
            }
            self.rest = bytes.get(next..).unwrap_or_default();
            if let Some(split) = split {
                let name = bytes.get(..split).unwrap_or_default().trim_ascii();
                let value = bytes.get(split + 2..end).unwrap_or_default().trim_ascii();
                if !name.is_empty() && !value.is_empty() {
                    return Some((name, value));
                }
            }
        }
    }
}

/// Where a batch begins in a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub batch: Batch,
    /// Where its first word begins.
    pub start: usize,
    /// Where its fields begin.
    pub body: usize,
}

/// Finds the word that both of SGLang's lines have.
pub(super) static WORD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b" batch"));

/// Finds what vLLM's statistics begin with in every version.
pub(super) static STATS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"Avg prompt throughput: "));

/// Finds `Decode batch` and `Prefill batch`: `.` after it up to 0.5.3, then `,`; ` [n]` where passes
/// are counted.
pub(super) fn sglang(line: &[u8]) -> Option<Found> {
    WORD.find_iter(line).find_map(|at| {
        let before = line.get(..at)?;
        let (batch, start) = match before {
            _ if before.ends_with(b"Decode") => (Batch::Decode, at - 6),
            _ if before.ends_with(b"Prefill") => (Batch::Prefill, at - 7),
            _ => return None,
        };
        let mut body = at + b" batch".len();
        body += usize::from(matches!(line.get(body), Some(b'.' | b',')));
        if line.get(body..body + 2) == Some(b" [") {
            let digits = line.get(body + 2..)?.iter().take_while(|b| b.is_ascii_digit()).count();
            if digits > 0 && line.get(body + 2 + digits) == Some(&b']') {
                body += digits + 3;
                body += usize::from(line.get(body) == Some(&b','));
            }
        }
        (line.get(body) == Some(&b' ')).then_some(Found { batch, start, body: body + 1 })
    })
}

/// `Engine 001: ` before a line of statistics: its number. `8 Engines Aggregated: `: how many.
pub(super) fn engines(before: &[u8]) -> (Option<u16>, u16) {
    let tail = before.get(before.len().saturating_sub(40)..).unwrap_or_default();
    let Some(tail) = tail.strip_suffix(b": ") else { return (None, 1) };
    if let Some(count) = tail.strip_suffix(b" Engines Aggregated") {
        let digits = count.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let several = super::stamp::small(count, count.len() - digits).map_or(1, |(number, _)| number);
        return (None, several.max(1));
    }
    let digits = tail.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (head, _) = tail.split_at(tail.len() - digits);
    let number = super::stamp::small(tail, tail.len() - digits).map(|(number, _)| number);
    (number.filter(|_| head.ends_with(b"Engine ")), 1)
}

/// Digits with at most one point among them; nothing else is a figure.
pub(super) fn number(value: &[u8]) -> Option<f64> {
    const TENS: [f64; 17] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16];
    if value.len() > 16 {
        return None;
    }
    let mut whole = 0u64;
    let mut point = None;
    for (at, byte) in value.iter().enumerate() {
        match byte {
            b'0'..=b'9' => whole = whole * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() && at > 0 => point = Some(at),
            _ => return None,
        }
    }
    let decimals = match point {
        Some(at) => value.len() - at - 1,
        None => 0,
    };
    // `12.` has lost what came after the point.
    if value.is_empty() || (point.is_some() && decimals == 0) {
        return None;
    }
    Some(whole as f64 / TENS.get(decimals)?)
}

/// Digits only.
pub(super) fn whole(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 {
        return None;
    }
    value.iter().try_fold(0u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

fn count(value: &[u8]) -> Option<u32> {
    whole(value).and_then(|value| u32::try_from(value).ok())
}

fn real(value: &[u8]) -> Option<f32> {
    number(value).map(|value| value as f32)
}

/// A share of 1. More than a little above 1 is two numbers that ran into each other.
fn ratio(value: &[u8]) -> Option<f32> {
    real(value).filter(|value| *value <= 1.05)
}

/// Sets what is not set yet: of a name that comes twice, two lines ran into each other, and the first
/// is the one that began here. True if the value could be read.
fn set<T>(into: &mut Option<T>, value: Option<T>) -> bool {
    let read = value.is_some();
    if into.is_none() {
        *into = value;
    }
    read
}

/// What the two kinds of SGLang's lines have in common. None: a name that is not known.
fn common(figures: &mut Figures, name: &[u8], value: &[u8]) -> Option<bool> {
    Some(match name {
        b"#running-req" => set(&mut figures.running, count(value)),
        b"#queue-req" => set(&mut figures.queued, count(value)),
        b"token usage" | b"full token usage" => set(&mut figures.kv, ratio(value)),
        b"#token" | b"#full token" => set(&mut figures.tokens, whole(value)),
        b"swa token usage" => set(&mut figures.swa, ratio(value)),
        b"mamba num" => set(&mut figures.mamba_slots, count(value)),
        b"mamba usage" => set(&mut figures.mamba, ratio(value)),
        b"#pending-token" => set(&mut figures.pending_tokens, whole(value)),
        _ if graph(name) => set(&mut figures.graph, truth(value)),
        _ => return None,
    })
}

/// `cuda graph`, `npu graph` …: the word before it is the device.
fn graph(name: &[u8]) -> bool {
    name.strip_suffix(b" graph")
        .is_some_and(|device| (2..=8).contains(&device.len()) && device.iter().all(u8::is_ascii_lowercase))
}

fn truth(value: &[u8]) -> Option<bool> {
    match value {
        b"True" => Some(true),
        b"False" => Some(false),
        _ => None,
    }
}

/// Names seen, and what is kept of fields without a figure.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Arc<str>>);

impl Names {
    fn keep(&mut self, others: &mut Vec<(Arc<str>, Arc<str>)>, name: &[u8], value: &[u8]) {
        if others.len() >= MOST_OTHERS || name.len() > LONGEST || value.len() > LONGEST {
            return;
        }
        let known = self.0.iter().find(|known| known.as_bytes() == name).cloned();
        let known = known.unwrap_or_else(|| {
            let name: Arc<str> = mask_secrets(&String::from_utf8_lossy(name)).into();
            if self.0.len() < MOST_NAMES {
                self.0.push(name.clone());
            }
            name
        });
        let plain = value.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'%'));
        let text = String::from_utf8_lossy(value);
        let value: Arc<str> = if plain { text.into() } else { super::secret::scrub_field(&known, &text).into() };
        others.push((known, value));
    }
}

/// Reads a `Decode batch`; None where no known field can be read.
pub(super) fn decode(fields: Fields<'_>, names: &mut Names) -> Option<Box<DecodeBatch>> {
    let mut batch = Box::<DecodeBatch>::default();
    let mut hot = (None, None);
    let mut known = false;
    for (name, value) in fields {
        let figures = &mut batch.figures;
        let read = match name {
            b"gen throughput (token/s)" => set(&mut figures.generation, real(value)),
            b"accept len" => set(&mut figures.accept_len, real(value)),
            _ => match common(figures, name, value) {
                Some(read) => read,
                None => {
                    match name {
                        b"#gpu token" => _ = set(&mut hot.0, whole(value)),
                        b"gpu token usage" => _ = set(&mut hot.1, ratio(value)),
                        _ => {}
                    }
                    false
                }
            },
        };
        known |= read;
        if !read {
            names.keep(&mut batch.other, name, value);
        }
    }
    // HiSparse tells two pools apart and no whole; the one on the GPU is what requests compete for.
    batch.figures.tokens = batch.figures.tokens.or(hot.0);
    batch.figures.kv = batch.figures.kv.or(hot.1);
    known.then_some(batch)
}

/// Reads a `Prefill batch`; None where no known field can be read.
pub(super) fn prefill(fields: Fields<'_>, names: &mut Names) -> Option<Box<PrefillBatch>> {
    let mut batch = Box::<PrefillBatch>::default();
    let mut known = false;
    for (name, value) in fields {
        let read = match name {
            b"#new-seq" => set(&mut batch.new_seqs, count(value)),
            b"#new-token" => set(&mut batch.new_tokens, whole(value)),
            b"#cached-token" => set(&mut batch.cached_tokens, whole(value)),
            b"input throughput (token/s)" => set(&mut batch.figures.prefill, real(value)),
            _ => common(&mut batch.figures, name, value).unwrap_or(false),
        };
        known |= read;
        if !read {
            names.keep(&mut batch.other, name, value);
        }
    }
    if let (Some(new), Some(cached)) = (batch.new_tokens, batch.cached_tokens) {
        let all = new.saturating_add(cached);
        batch.figures.cache_hit = (all > 0).then(|| (cached as f64 / all as f64) as f32);
    }
    known.then_some(batch)
}

/// Reads vLLM's line of statistics from `Avg prompt throughput`; None where no known field can be read.
///
/// The device stands in the name of the main cache (`GPU`, `CPU` on a CPU build); only where requests
/// are swapped out (v0) is the CPU's the swap space.
pub(super) fn stats(body: &[u8], names: &mut Names) -> Option<Box<DecodeBatch>> {
    let mut batch = Box::<DecodeBatch>::default();
    let mut known = false;
    let mut swaps = false;
    let body = body.trim_ascii_end();
    for (name, value) in Fields::of(body.strip_suffix(b".").unwrap_or(body)) {
        let figures = &mut batch.figures;
        let rate = |value: &[u8]| value.strip_suffix(b" tokens/s").and_then(real);
        let requests = |value: &[u8]| value.strip_suffix(b" reqs").and_then(count);
        let percent = |value: &[u8]| {
            let value = number(value.strip_suffix(b"%")?)?;
            (value <= 105.0).then_some((value / 100.0) as f32)
        };
        let read = match name {
            b"Avg prompt throughput" => set(&mut figures.prefill, rate(value)),
            b"Avg generation throughput" => set(&mut figures.generation, rate(value)),
            b"Running" => set(&mut figures.running, requests(value)),
            b"Waiting" | b"Pending" => set(&mut figures.queued, requests(value)),
            b"Prefix cache hit rate" => set(&mut figures.cache_hit, percent(value)),
            b"Swapped" => {
                swaps = true;
                false
            }
            _ if name.ends_with(b" KV cache usage") && !(swaps && name.starts_with(b"CPU ")) => {
                figures.kv.is_none() && set(&mut figures.kv, percent(value))
            }
            _ => false,
        };
        known |= read;
        if !read {
            names.keep(&mut batch.other, name, value);
        }
    }
    known.then_some(batch)
}

/// Mean accepted tokens per step on vLLM's line on speculation. The list of rates per position has
/// commas inside and is not touched.
pub(super) fn acceptance(message: &[u8]) -> Option<f32> {
    const NAME: &[u8] = b"Mean acceptance length: ";
    let at = memmem::find(message, NAME)? + NAME.len();
    let rest = message.get(at..)?;
    let end = memchr::memchr2(b',', b' ', rest).unwrap_or(rest.len());
    real(rest.get(..end)?)
}
