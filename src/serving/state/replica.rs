//! One replica: what it is, its newest figures, its history, and what the rules keep in mind of it.

use std::sync::Arc;

use super::clock::{Seconds, stamp};
use super::readings::{Field, Reading, Readings};
use crate::job::Stamp;
use crate::serving::rules::Watch;
use crate::serving::series::{Series, Track};
use crate::serving::{Circuit, Engine, Figures, Limits, ReplicaKey, SourceId, State, Worker};

/// How a router sees a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterView {
    /// Name of the router's server.
    pub router: Arc<str>,
    /// As it lists the worker.
    pub worker: Worker,
    pub(in crate::serving) at: Seconds,
}

impl RouterView {
    /// Whether the router sends it requests, as far as it says.
    pub fn takes_requests(&self) -> Option<bool> {
        match (self.worker.healthy, self.worker.circuit) {
            (Some(false), _) | (_, Some(Circuit::Open)) => Some(false),
            (Some(true), _) => Some(true),
            (None, _) => None,
        }
    }
}

/// Capacity worked out from the gauges; None where a part is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Arithmetic {
    /// Tokens of a live request: T / R.
    pub tokens_per_request: Option<f64>,
    /// Requests of that size that the pool holds.
    pub fits: Option<f64>,
    /// Tokens by which the pool fills per second.
    pub growth: Option<f64>,
    /// Seconds until it is full, where it has been filling for a minute.
    pub full_in: Option<f64>,
}

/// One row: a server, or a worker of a router, or a rank of either.
#[derive(Debug)]
pub struct Replica {
    /// Which.
    pub key: ReplicaKey,
    /// Engine.
    pub engine: Option<Engine>,
    /// Version of it.
    pub version: Option<Arc<str>>,
    /// Model served.
    pub model: Option<Arc<str>>,
    /// What it can take.
    pub limits: Limits,
    /// How it stands.
    pub state: State,
    /// Why it is thought to stand so, in words. Raw text.
    pub evidence: Arc<str>,
    /// How its router sees it.
    pub router: Option<RouterView>,
    /// Engines summed up in its figures, where a log tells only their sum.
    pub engines: u16,
    /// Requests thrown out of its pool, as far as was seen.
    pub retracted: u64,
    pub(in crate::serving) since: Option<Seconds>,
    pub(in crate::serving) readings: Readings,
    pub(in crate::serving) series: Series,
    pub(in crate::serving) watch: Watch,
    /// The newest time that it was looked at.
    pub(in crate::serving) now: Seconds,
    /// Whether its times are those of the trials.
    pub(in crate::serving) placed: bool,
    pub(in crate::serving) ever_ran: bool,
}

impl Replica {
    pub(in crate::serving) fn new(key: ReplicaKey) -> Replica {
        Replica {
            key,
            engine: None,
            version: None,
            model: None,
            limits: Limits::default(),
            state: State::Unknown,
            evidence: Arc::from("nothing seen yet"),
            router: None,
            engines: 1,
            retracted: 0,
            since: None,
            readings: Readings::default(),
            series: Series::default(),
            watch: Watch::default(),
            now: 0.0,
            placed: true,
            ever_ran: false,
        }
    }

    /// The newest figures. Each has an age of its own: [`Replica::age`].
    pub fn figures(&self) -> Figures {
        self.readings.figures()
    }

    /// The newest reading of a field.
    pub fn reading(&self, field: Field) -> Option<&Reading> {
        self.readings.get(field)
    }

    /// Seconds since a figure was so.
    pub fn age(&self, field: Field) -> Option<f64> {
        self.readings.get(field).map(|r| (self.now - r.at).max(0.0))
    }

    /// Seconds since anything was heard of its figures.
    pub fn newest_age(&self) -> Option<f64> {
        self.readings.newest().map(|r| (self.now - r.at).max(0.0))
    }

    /// Since when it stands so; None where that can not be placed.
    pub fn since(&self) -> Option<Stamp> {
        self.since.filter(|_| self.placed).and_then(stamp)
    }

    /// Seconds for which it has stood so.
    pub fn state_age(&self) -> Option<f64> {
        self.since.map(|since| (self.now - since).max(0.0))
    }

    /// `n` columns over the last `span` seconds, the oldest first; None is a gap.
    pub fn columns(&self, track: Track, n: usize, span: f64) -> Vec<Option<f32>> {
        self.series.columns(track, n, span, self.now)
    }

    /// As [`Replica::columns`], up to a time of the caller's: one time axis for all rows.
    pub fn columns_until(&self, track: Track, n: usize, span: f64, until: Stamp) -> Vec<Option<f32>> {
        if self.placed {
            self.series.columns(track, n, span, super::clock::of_stamp(until))
        } else {
            vec![None; n.min(4_096)]
        }
    }

    /// Requests that it can still take, as far as its slots go.
    pub fn free_slots(&self) -> Option<u32> {
        Some(self.limits.max_running?.saturating_sub(self.figures().running?))
    }

    /// Capacity from the gauges as they are.
    pub fn arithmetic(&self) -> Arithmetic {
        let tokens = self.tokens();
        let running = self.readings.value(Field::Running).filter(|r| *r > 0.0);
        let capacity = self.limits.capacity.map(|c| c as f64).filter(|c| *c > 0.0);
        let per = tokens.zip(running).map(|(t, r)| t / r).filter(|p| *p >= 1.0);
        let growth = self.watch.growth.tokens_per_second();
        let left = capacity.zip(tokens).map(|(c, t)| (c - t).max(0.0));
        Arithmetic {
            tokens_per_request: per,
            fits: capacity.zip(per).map(|(c, p)| (c / p).floor()),
            growth,
            full_in: left.zip(growth.filter(|g| *g > 0.0)).map(|(left, g)| left / g),
        }
    }

    /// Tokens in the pool; worked out from the share where only that is said.
    pub(in crate::serving) fn tokens(&self) -> Option<f64> {
        let said = self.readings.value(Field::Tokens);
        said.or_else(|| Some(self.readings.value(Field::Kv)? * self.limits.capacity? as f64))
    }

    /// Takes figures.
    pub(in crate::serving) fn take(&mut self, figures: &Figures, source: SourceId, log: bool, t: Seconds) {
        self.readings.take(figures, source, log, t);
        if figures.running.is_some_and(|r| r > 0) {
            self.ever_ran = true;
        }
        let real = |v: Option<u32>| v.map(|v| v as f32);
        let tracks = [real(figures.running), real(figures.queued), figures.kv, figures.generation, figures.prefill];
        self.series.put(t, tracks);
        self.now = self.now.max(t);
    }

    /// Forgets what a process knew that is gone.
    pub(in crate::serving) fn forget(&mut self) {
        self.readings.clear();
        self.watch = Watch::default();
    }

    /// Adds limits that are known to those that were.
    pub(in crate::serving) fn limit(&mut self, limits: &Limits) {
        add_limits(&mut self.limits, limits);
    }

    pub(in crate::serving) fn stand(&mut self, state: State, evidence: String, t: Seconds) {
        if self.state != state || self.since.is_none() {
            self.state = state;
            self.since = Some(t);
        }
        if *self.evidence != *evidence {
            self.evidence = Arc::from(evidence);
        }
    }

    pub(in crate::serving) fn heap(&self) -> usize {
        size_of::<Replica>() + self.series.heap() + self.watch.heap() + self.evidence.len()
    }
}

/// Newer limits over older ones, where they are said.
pub(in crate::serving) fn add_limits(to: &mut Limits, from: &Limits) {
    to.max_running = from.max_running.or(to.max_running);
    to.context = from.context.or(to.context);
    to.capacity = from.capacity.or(to.capacity);
    to.mamba_slots = from.mamba_slots.or(to.mamba_slots);
    to.chunk = from.chunk.or(to.chunk);
    to.free_gb = from.free_gb.or(to.free_gb);
    to.watchdog = from.watchdog.or(to.watchdog);
}
