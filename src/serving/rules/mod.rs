//! The diagnoses: formula × threshold × figures × advice. Formulas stand beside the thresholds in
//! `configs/serving.toml`.

mod book;
mod demand;
mod fleet;
mod gauges;
mod hang;
mod held;
mod life;
mod pace;
mod router;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(in crate::serving) use book::{Book, Finding, Key};
pub(in crate::serving) use gauges::{pool, queue_full};
pub(in crate::serving) use held::Held;
pub(in crate::serving) use life::{
    clients, crash, down, health_failed, health_well, memory, oom, reach, restart, up, watchdog,
};
pub(in crate::serving) use pace::retraction;
pub(in crate::serving) use router::{circuit, probes, readiness, workers};
pub(in crate::serving) use watch::Watch;

use super::series::Track;
use super::state::clock::Seconds;
use super::state::{Field, Replica, Server};
use super::thresholds::Thresholds;
use super::{Demand, DiagnosisKind, Figures, SourceId};

/// Where and when a rule is asked.
pub(in crate::serving) struct Ctx<'a> {
    pub thresholds: &'a Thresholds,
    pub book: &'a mut Book,
    pub demand: &'a Demand,
    /// Finished logs: samples do, without seconds.
    pub finished: bool,
    /// Whether times are those of the trials.
    pub placed: bool,
    pub t: Seconds,
    pub source: SourceId,
}

impl Ctx<'_> {
    /// Seconds that a condition on gauges must have held.
    fn outright(&self, seconds: f64) -> f64 {
        if self.finished { 0.0 } else { seconds }
    }

    fn when(&self, t: Seconds) -> Option<Seconds> {
        self.placed.then_some(t)
    }

    /// A diagnosis of a whole server.
    fn raise(&mut self, server: &Arc<str>, kind: DiagnosisKind, finding: Finding, since: Seconds) {
        let key = Key { kind, server: server.clone(), replica: None };
        let (since, t) = (self.when(since), self.t);
        self.book.raise(key, finding, since, t);
    }

    fn lower(&mut self, server: &Arc<str>, kind: DiagnosisKind, until: Seconds) {
        let key = Key { kind, server: server.clone(), replica: None };
        let until = self.when(until);
        self.book.lower(&key, until);
    }

    fn is_open(&self, server: &Arc<str>, kind: DiagnosisKind) -> bool {
        self.book.is_open(&Key { kind, server: server.clone(), replica: None })
    }
}

/// Figures that came at once.
pub(in crate::serving) struct Sample {
    pub figures: Figures,
    /// From a log.
    pub log: bool,
    /// From a prefill line.
    pub prefill: bool,
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// It holds since then.
    Holds(Seconds),
    /// It has not held since then, for long enough.
    Over(Seconds),
    /// Neither.
    Unsure,
}

/// Seconds for which a figure of another sample goes with this one.
const TOGETHER: f64 = 15.0;

/// A figure of a sample, or else the row's own if it is about as new.
fn figure(row: &Replica, sample: &Sample, field: Field, t: Seconds) -> Option<f64> {
    field.of(&sample.figures).or_else(|| row.readings.fresh(field, t, TOGETHER))
}

/// Raises, tells anew or ends a diagnosis of a row.
fn judge(
    row: &mut Replica,
    ctx: &mut Ctx<'_>,
    kind: DiagnosisKind,
    verdict: Verdict,
    make: impl FnOnce(&Replica) -> Finding,
) {
    let bit = 1u32 << (kind as u32 % 32);
    let raised = row.watch.raised & bit != 0;
    if matches!(verdict, Verdict::Unsure) || (matches!(verdict, Verdict::Over(_)) && !raised) {
        return;
    }
    let key = Key { kind, server: row.key.server.clone(), replica: Some(row.key.clone()) };
    match verdict {
        Verdict::Holds(since) => {
            let t = ctx.t;
            if raised && ctx.book.told(&key, t) {
                return;
            }
            row.watch.raised |= bit;
            let finding = make(row);
            let since = ctx.when(since);
            ctx.book.raise(key, finding, since, t);
        }
        Verdict::Over(until) => {
            row.watch.raised &= !bit;
            let until = ctx.when(until);
            ctx.book.lower(&key, until);
        }
        Verdict::Unsure => {}
    }
}

/// Ends a diagnosis of a row.
fn over(row: &mut Replica, ctx: &mut Ctx<'_>, kind: DiagnosisKind, until: Seconds) {
    let bit = 1u32 << (kind as u32 % 32);
    if row.watch.raised & bit != 0 {
        row.watch.raised &= !bit;
        let key = Key { kind, server: row.key.server.clone(), replica: Some(row.key.clone()) };
        let until = ctx.when(until);
        ctx.book.lower(&key, until);
    }
}

/// Of a condition over samples: what it says, and when it is over.
fn verdict(held: &Held, ctx: &Ctx<'_>, seconds: f64, clear: f64) -> Verdict {
    if let Some(since) = held.held(seconds, ctx.thresholds.confirm.samples) {
        Verdict::Holds(since)
    } else if let Some(until) = held.not_held(ctx.t, clear) {
        Verdict::Over(until)
    } else {
        Verdict::Unsure
    }
}

/// Figures by name, without what is unknown.
fn figures<const N: usize>(list: [(&'static str, Option<f64>); N]) -> BTreeMap<&'static str, f64> {
    let rounded = |v: f64| (v * 1e4).round() / 1e4;
    list.into_iter().filter_map(|(name, v)| Some((name, rounded(v.filter(|v| v.is_finite())?)))).collect()
}

/// A number for a sentence: as it is, or `-`.
fn say(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_string(), |v| format!("{v:.0}"))
}

/// `1 request`, `3 requests`.
fn requests(n: f64) -> String {
    format!("{n:.0} request{}", if n == 1.0 { "" } else { "s" })
}

/// A figure of a diagnosis of a row that is open already.
fn before(row: &Replica, ctx: &Ctx<'_>, kind: DiagnosisKind, name: &str) -> Option<f64> {
    if row.watch.raised & (1u32 << (kind as u32 % 32)) == 0 {
        return None;
    }
    let key = Key { kind, server: row.key.server.clone(), replica: Some(row.key.clone()) };
    ctx.book.open_of(&key)?.figures.get(name).copied()
}

/// A ratio for a sentence.
fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_string(), |v| format!("{v:.2}"))
}

/// Asks the rules that rest on samples.
pub(in crate::serving) fn sample(row: &mut Replica, ctx: &mut Ctx<'_>, sample: &Sample) {
    let t = ctx.t;
    let tokens = Field::Tokens.of(&sample.figures);
    let kv = Field::Kv.of(&sample.figures);
    if tokens.is_some() || kv.is_some() {
        let tokens = tokens.or_else(|| row.tokens());
        row.watch.growth.add(t, tokens, kv);
    }
    gauges::sample(row, ctx, sample);
    pace::sample(row, ctx, sample);
    hang::sample(row, ctx, sample);
}

/// Counts requests thrown out of the pool, and keeps in mind how fast it was before.
pub(in crate::serving) fn count_retracted(row: &mut Replica, t: Seconds, requests: u32, window: f64) {
    row.retracted = row.retracted.saturating_add(u64::from(requests));
    let before = row.series.recent(Track::Generation, window, t);
    // A handful of seconds is no measure.
    if before.len() >= 5
        && let Some(median) = watch::median(before.into_iter())
    {
        row.watch.before = Some((t, median));
    }
}

/// Asks the rules that time alone can decide, for one server.
pub(in crate::serving) fn sweep(server: &mut Server, ctx: &mut Ctx<'_>) {
    let logged = server.logged;
    let compiling = server.compiling;
    let health = server.health_failed;
    let starting = matches!(server.state(), super::State::Starting | super::State::Restarting | super::State::Dead);
    for row in server.rows.iter_mut() {
        pool(row, ctx);
        retraction(row, ctx);
        pace::sweep(row, ctx);
        if !starting {
            hang::sweep(row, ctx, hang::Around { logged, compiling, health });
        }
        gauges::stale(row, ctx);
    }
    fleet::uneven(server, ctx);
    demand::idle(server, ctx);
    demand::context(server, ctx);
    life::sweep(server, ctx);
    router::sweep(server, ctx);
}

/// The end of a finished log: what rests on samples and did not hold at the last one is over.
pub(in crate::serving) fn settle(server: &mut Server, book: &mut Book, thresholds: &Thresholds, t: Seconds) {
    let demand = Demand::default();
    let placed = server.placed;
    let source = server.source;
    let mut ctx = Ctx { thresholds, book, demand: &demand, finished: true, placed, t, source };
    for row in server.rows.iter_mut() {
        gauges::settle(row, &mut ctx);
        pace::settle(row, &mut ctx);
    }
    let healthy = server.health_failed.is_none();
    if healthy {
        ctx.lower(&server.name.clone(), DiagnosisKind::HealthCheckFailed, t);
    }
}
