//! The newest figure of each kind, with its age and origin.

use super::clock::Seconds;
use crate::serving::{Figures, SourceId};

/// A kind of figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// [`Figures::running`].
    Running,
    /// [`Figures::queued`].
    Queued,
    /// [`Figures::tokens`].
    Tokens,
    /// [`Figures::kv`].
    Kv,
    /// [`Figures::swa`].
    Swa,
    /// [`Figures::mamba_slots`].
    MambaSlots,
    /// [`Figures::mamba`].
    Mamba,
    /// [`Figures::generation`].
    Generation,
    /// [`Figures::prefill`].
    Prefill,
    /// [`Figures::cache_hit`].
    CacheHit,
    /// [`Figures::accept_len`].
    AcceptLen,
    /// [`Figures::pending_tokens`].
    PendingTokens,
    /// [`Figures::graph`].
    Graph,
}

impl Field {
    /// All of them.
    pub const ALL: [Field; 13] = [
        Field::Running,
        Field::Queued,
        Field::Tokens,
        Field::Kv,
        Field::Swa,
        Field::MambaSlots,
        Field::Mamba,
        Field::Generation,
        Field::Prefill,
        Field::CacheHit,
        Field::AcceptLen,
        Field::PendingTokens,
        Field::Graph,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Field::Running => "running",
            Field::Queued => "queued",
            Field::Tokens => "tokens",
            Field::Kv => "kv",
            Field::Swa => "swa",
            Field::MambaSlots => "mamba_slots",
            Field::Mamba => "mamba",
            Field::Generation => "generation",
            Field::Prefill => "prefill",
            Field::CacheHit => "cache_hit",
            Field::AcceptLen => "accept_len",
            Field::PendingTokens => "pending_tokens",
            Field::Graph => "graph",
        }
    }

    /// What a step does, which a log says for each step and a poll as of the last one: the log's word
    /// holds as long as it is fresh. Of everything else, the current state, the newest word holds: a log
    /// can be 40 steps old.
    fn of_a_step(self) -> bool {
        matches!(self, Field::Generation | Field::Prefill | Field::CacheHit | Field::AcceptLen | Field::Graph)
    }

    /// The figure; a ratio of 0.95 is 0.95, not the nearest `f32`.
    pub fn of(self, f: &Figures) -> Option<f64> {
        let real = |v: Option<f32>| v.filter(|v| v.is_finite()).map(|v| (f64::from(v) * 1e5).round() / 1e5);
        match self {
            Field::Running => f.running.map(f64::from),
            Field::Queued => f.queued.map(f64::from),
            Field::Tokens => f.tokens.map(|v| v as f64),
            Field::Kv => real(f.kv),
            Field::Swa => real(f.swa),
            Field::MambaSlots => f.mamba_slots.map(f64::from),
            Field::Mamba => real(f.mamba),
            Field::Generation => real(f.generation),
            Field::Prefill => real(f.prefill),
            Field::CacheHit => real(f.cache_hit),
            Field::AcceptLen => real(f.accept_len),
            Field::PendingTokens => f.pending_tokens.map(|v| v as f64),
            Field::Graph => f.graph.map(|v| if v { 1.0 } else { 0.0 }),
        }
    }
}

/// Seconds for which a log's word on a step goes before a poll's.
const LOG_FRESH: Seconds = 10.0;

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Its value; true is 1.
    pub value: f64,
    /// Who said so.
    pub source: SourceId,
    /// True where it stood on a line of a log.
    pub log: bool,
    pub(in crate::serving) at: Seconds,
}

/// The newest reading of each field.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::serving) struct Readings([Option<Reading>; Field::ALL.len()]);

impl Readings {
    pub(in crate::serving) fn get(&self, field: Field) -> Option<&Reading> {
        self.0.get(field as usize)?.as_ref()
    }

    pub(in crate::serving) fn value(&self, field: Field) -> Option<f64> {
        self.get(field).map(|r| r.value)
    }

    /// A value not older than `oldest`.
    pub(in crate::serving) fn fresh(&self, field: Field, now: Seconds, oldest: f64) -> Option<f64> {
        self.get(field).filter(|r| now - r.at <= oldest).map(|r| r.value)
    }

    /// Takes what is newer.
    pub(in crate::serving) fn take(&mut self, figures: &Figures, source: SourceId, log: bool, at: Seconds) {
        for field in Field::ALL {
            let Some(value) = field.of(figures) else { continue };
            let Some(place) = self.0.get_mut(field as usize) else { continue };
            // Of one source the order of what it says counts, whatever its clock does; between two the time.
            let older = |r: &Reading| r.source != source && r.at > at;
            let kept = place.is_some_and(|r| {
                older(&r) || (field.of_a_step() && r.log && !log && (0.0..LOG_FRESH).contains(&(at - r.at)))
            });
            if !kept {
                *place = Some(Reading { value, source, log, at });
            }
        }
    }

    /// Says one field outright.
    pub(in crate::serving) fn put(&mut self, field: Field, reading: Reading) {
        if let Some(place) = self.0.get_mut(field as usize) {
            *place = Some(reading);
        }
    }

    pub(in crate::serving) fn newest(&self) -> Option<&Reading> {
        self.0.iter().flatten().max_by(|a, b| a.at.total_cmp(&b.at))
    }

    pub(in crate::serving) fn clear(&mut self) {
        *self = Readings::default();
    }

    /// The values as they are told.
    pub(in crate::serving) fn figures(&self) -> Figures {
        let count = |field| self.value(field).map(|v| v as u32);
        let tokens = |field| self.value(field).map(|v| v as u64);
        let real = |field| self.value(field).map(|v| v as f32);
        Figures {
            running: count(Field::Running),
            queued: count(Field::Queued),
            tokens: tokens(Field::Tokens),
            kv: real(Field::Kv),
            swa: real(Field::Swa),
            mamba_slots: count(Field::MambaSlots),
            mamba: real(Field::Mamba),
            generation: real(Field::Generation),
            prefill: real(Field::Prefill),
            cache_hit: real(Field::CacheHit),
            accept_len: real(Field::AcceptLen),
            pending_tokens: tokens(Field::PendingTokens),
            graph: self.value(Field::Graph).map(|v| v > 0.5),
        }
    }
}
