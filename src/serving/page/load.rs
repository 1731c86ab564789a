//! SGLang's `/v1/loads` (from 0.5.9 on) and `/get_load` (before that).

use std::sync::Arc;

use serde::Deserialize;
use serde::de::MapAccess;

use super::lenient::{Fields, Object, Scalar, Some1024};
use super::{Unreadable, alone, count32, count64, figure, json, share};
use crate::job::Stamp;
use crate::serving::{Counters, Figures, Limits, Load};

/// What `/v1/loads` says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loads {
    /// Version of the server.
    pub version: Option<Arc<str>>,
    /// Per rank.
    pub loads: Vec<Load>,
}

/// One of its `loads`; everything that is not here is passed over.
#[derive(Default)]
struct Raw {
    timestamp: Scalar,
    dp_rank: Scalar,
    running: Scalar,
    waiting: Scalar,
    pending: Scalar,
    used: Scalar,
    capacity: Scalar,
    max_running: Scalar,
    usage: Scalar,
    generation: Scalar,
    cache_hit: Scalar,
    prefilled: Scalar,
    moments: Some1024<Scalar>,
    accept_len: Scalar,
}

#[derive(Default)]
struct Speculative {
    accept_length: Scalar,
}

impl Fields for Speculative {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let value = map.next_value()?;
        if name == "accept_length" {
            self.accept_length = value;
        }
        Ok(())
    }
}

impl Fields for Raw {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let slot = match name {
            "timestamp" => &mut self.timestamp,
            "dp_rank" => &mut self.dp_rank,
            "num_running_reqs" => &mut self.running,
            "num_waiting_reqs" => &mut self.waiting,
            "num_waiting_uncached_tokens" => &mut self.pending,
            "num_used_tokens" => &mut self.used,
            "max_total_num_tokens" => &mut self.capacity,
            "max_running_requests" => &mut self.max_running,
            "token_usage" => &mut self.usage,
            "gen_throughput" => &mut self.generation,
            "cache_hit_rate" => &mut self.cache_hit,
            "total_prefill_uncached_tokens" => &mut self.prefilled,
            "decode_moments" => {
                self.moments = map.next_value()?;
                return Ok(());
            }
            "speculative" => {
                if let Some(Object(speculative)) = map.next_value::<Option<Object<Speculative>>>()? {
                    self.accept_len = speculative.accept_length;
                }
                return Ok(());
            }
            _ => {
                map.next_value::<Scalar>()?;
                return Ok(());
            }
        };
        *slot = map.next_value()?;
        Ok(())
    }
}

#[derive(Default)]
struct Page {
    timestamp: Scalar,
    version: Scalar,
    loads: Option<Some1024<Object<Raw>>>,
}

impl Fields for Page {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "timestamp" => self.timestamp = map.next_value()?,
            "version" => self.version = map.next_value()?,
            "loads" => self.loads = Some(map.next_value()?),
            _ => drop(map.next_value::<Scalar>()?),
        }
        Ok(())
    }
}

/// Reads `/v1/loads`.
///
/// # Errors
/// It has no list of loads.
pub fn loads(body: &[u8]) -> Result<Loads, Unreadable> {
    const WHAT: &str = "an answer of /v1/loads";
    let Object(page) = json::<Object<Page>>(body, WHAT)?;
    let raw = page.loads.ok_or(Unreadable(WHAT))?.0;
    let answered = page.timestamp.text().and_then(|t| t.parse::<Stamp>().ok()).map(|t| t.as_nanosecond() as f64 / 1e9);
    let version = page.version.text().cloned();
    // Up to there each decode report set the rate back to 0.
    let rate_is_reset = version.as_deref().is_some_and(|v| number_of(v) <= (0, 5, 15));
    let loads = raw.into_iter().map(|Object(raw)| load(&raw, answered, rate_is_reset)).collect();
    Ok(Loads { version, loads: alone(loads) })
}

fn load(raw: &Raw, answered: Option<f64>, rate_is_reset: bool) -> Load {
    let number = Scalar::number;
    let running = number(&raw.running).and_then(count32);
    let capacity = number(&raw.capacity).and_then(count64).filter(|c| *c > 0);
    let tokens = number(&raw.used).and_then(count64);
    // `token_usage` may be the largest of several pools; this is the share of tokens.
    let kv = match (tokens, capacity) {
        (Some(tokens), Some(capacity)) => share(tokens as f64 / capacity as f64),
        _ => number(&raw.usage).and_then(share),
    };
    let prefilled = number(&raw.prefilled).filter(|n| *n >= 0.0);
    let cache_hit = number(&raw.cache_hit).and_then(share);
    let hit_is_said = |hit: &f32| *hit > 0.0 || !(rate_is_reset || prefilled.is_none_or(|n| n == 0.0));
    let age = match (answered, number(&raw.timestamp)) {
        // Two clocks of one machine, read one after the other.
        (Some(answered), Some(taken)) if answered - taken > -1.0 => figure((answered - taken).max(0.0)),
        _ => None,
    };
    let figures = Figures {
        running,
        queued: number(&raw.waiting).and_then(count32),
        tokens,
        kv,
        // An idle server holds the last value.
        generation: number(&raw.generation).and_then(figure).filter(|_| running != Some(0)),
        cache_hit: cache_hit.filter(hit_is_said),
        accept_len: number(&raw.accept_len).and_then(figure).filter(|n| *n > 0.0),
        pending_tokens: number(&raw.pending).and_then(count64),
        ..Figures::default()
    };
    let limits = Limits { max_running: number(&raw.max_running).and_then(count32), capacity, ..Limits::default() };
    // The sixth of the sums over decode steps is the tokens: in recordings it is `realtime_tokens_total`
    // of mode decode, as of the snapshot's time.
    let generated = raw.moments.0.get(5).and_then(number).filter(|n| *n >= 0.0);
    let counters = Counters { generated, prefilled, ..Counters::default() };
    Load {
        rank: number(&raw.dp_rank).and_then(count32).and_then(|n| n.try_into().ok()),
        figures,
        limits,
        age,
        counters,
    }
}

/// The leading numbers of a version; 0 for what is missing.
pub(super) fn number_of(version: &str) -> (u32, u32, u32) {
    let mut parts = version.split(['.', '-', '+']).map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part.get(..digits).and_then(|d| d.parse().ok()).unwrap_or(0)
    });
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

#[derive(Deserialize)]
struct OldLoad {
    #[serde(default)]
    dp_rank: Scalar,
    #[serde(default)]
    num_reqs: Scalar,
    #[serde(default)]
    num_waiting_reqs: Scalar,
}

/// Reads `/get_load`, which servers up to 0.5.8 have. Its count of requests has those in it that wait,
/// and its tokens those of their prompts.
///
/// # Errors
/// It is no list of loads.
pub fn get_load(body: &[u8]) -> Result<Vec<Load>, Unreadable> {
    const WHAT: &str = "an answer of /get_load";
    if body.trim_ascii_start().first() != Some(&b'[') {
        return Err(Unreadable(WHAT));
    }
    let list = json::<Some1024<OldLoad>>(body, WHAT)?.0;
    let loads = list.iter().map(|raw| {
        let all = raw.num_reqs.number().and_then(count32);
        let queued = raw.num_waiting_reqs.number().and_then(count32);
        let running = all.map(|all| all.saturating_sub(queued.unwrap_or(0)));
        let figures = Figures { running, queued, ..Figures::default() };
        let rank = raw.dp_rank.number().and_then(count32).and_then(|n| n.try_into().ok());
        Load { rank, figures, ..Load::default() }
    });
    Ok(alone(loads.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(number_of("0.5.15rc1+cu128"), (0, 5, 15));
        assert_eq!(number_of("0.4.6.post5"), (0, 4, 6));
        assert!(number_of("0.5.9") < number_of("0.5.15"));
        assert_eq!(number_of("main"), (0, 0, 0));
    }
}
