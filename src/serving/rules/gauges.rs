//! What the gauges say outright: pool, queue, state slots.

use super::{Ctx, Finding, Held, Sample, Verdict, before, figure, figures, judge, over, ratio, requests, say, verdict};
use crate::serving::state::clock::Seconds;
use crate::serving::state::{Field, Replica, Server};
use crate::serving::{DiagnosisKind, Severity, SourceId};

pub(super) fn sample(row: &mut Replica, ctx: &mut Ctx<'_>, sample: &Sample) {
    let (t, gap) = (ctx.t, ctx.thresholds.confirm.gap_seconds);
    let of = |field| figure(row, sample, field, t);
    let (running, queued) = (of(Field::Running), of(Field::Queued));
    let (kv, mamba) = (of(Field::Kv), of(Field::Mamba));
    let said = |field: Field| field.of(&sample.figures).is_some();
    if said(Field::Kv)
        && let Some(kv) = kv
    {
        let pool = &ctx.thresholds.pool;
        let filling = || row.watch.growth.full_in(pool.fit_seconds).is_some_and(|s| s <= pool.fills_within_seconds);
        let high = kv >= pool.high && (queued.is_some_and(|q| q > 0.0) || filling());
        let full = kv >= pool.full;
        row.watch.full.sample(t, full, gap);
        row.watch.high.sample(t, high, gap);
        pool_of(row, ctx);
    }
    if said(Field::Queued)
        && let Some(queued) = queued
    {
        row.watch.queue.sample(t, queued > 0.0, gap);
        if let (Some(slots), Some(running)) = (of_row(row, Field::MambaSlots), running.filter(|r| *r > 0.0))
            && queued > 0.0
        {
            row.watch.slots_each = Some(slots / running);
        }
        queueing(row, ctx);
    }
    if said(Field::Mamba)
        && let Some(mamba) = mamba
    {
        let rule = &ctx.thresholds.mamba;
        let over = kv.is_some_and(|kv| mamba >= kv + rule.above_kv) && queued.is_some_and(|q| q > 0.0);
        let full = mamba >= rule.usage;
        row.watch.slots.sample(t, full, gap);
        row.watch.slots_over.sample(t, over, gap);
        slots(row, ctx);
    }
}

fn of_row(row: &Replica, field: Field) -> Option<f64> {
    row.readings.value(field)
}

/// The pool is full, or was so that something was thrown out of it.
pub(in crate::serving) fn pool(row: &mut Replica, ctx: &mut Ctx<'_>) {
    pool_of(row, ctx);
}

fn pool_of(row: &mut Replica, ctx: &mut Ctx<'_>) {
    let rule = &ctx.thresholds.pool;
    let samples = ctx.thresholds.confirm.samples;
    let thrown = row.watch.retractions.within(ctx.t, rule.retraction_seconds);
    let full = row.watch.full.held(ctx.outright(rule.full_seconds), samples);
    let high = row.watch.high.held(ctx.outright(rule.high_seconds), samples);
    let not = |held: &Held, seconds: f64| held.last() == 0.0 || held.not_held(ctx.t, seconds).is_some();
    let since = [thrown.map(|(_, first, _)| first), full, high]
        .into_iter()
        .flatten()
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.min(b))));
    let verdict = match since {
        Some(since) => Verdict::Holds(since),
        None if not(&row.watch.full, rule.full_seconds) && not(&row.watch.high, rule.high_seconds) => {
            let until = row.watch.full.not_held(ctx.t, 0.0).unwrap_or(ctx.t);
            Verdict::Over(until.max(row.watch.high.not_held(ctx.t, 0.0).unwrap_or(until)))
        }
        None => Verdict::Unsure,
    };
    let red = thrown.is_some() || full.is_some();
    let (source, share) = (ctx.source, rule.plan_share);
    let fill = row.watch.growth.full_in(rule.fit_seconds);
    let most_kv = before(row, ctx, DiagnosisKind::PoolSaturated, "most_kv");
    judge(row, ctx, DiagnosisKind::PoolSaturated, verdict, |row| {
        let arithmetic = row.arithmetic();
        let kv = of_row(row, Field::Kv);
        let capacity = row.limits.capacity.map(|c| c as f64);
        let per = arithmetic.tokens_per_request;
        let fits = capacity.zip(per).map(|(c, per)| (share * c / per).floor());
        let thrown = thrown.map(|(n, _, _)| f64::from(n));
        let state = match (full, thrown) {
            (Some(_), _) => "is full",
            (None, Some(_)) => "overran",
            (None, None) => "is nearly full",
        };
        let mut text = format!(
            "the KV pool {state}: {} of it in use, {} running, {} waiting",
            ratio(kv),
            say(of_row(row, Field::Running)),
            say(of_row(row, Field::Queued))
        );
        if let Some(n) = thrown {
            text += &format!(", {} thrown out of it within the last minute", requests(n));
        }
        if let (Some(per), Some(fits)) = (per, fits) {
            text += &format!("; {fits:.0} requests of {per:.0} tokens fit");
        }
        if let Some(fill) = fill.filter(|_| !red) {
            text += &format!("; full in {fill:.0} s at this rate");
        }
        Finding {
            severity: if red { Severity::Error } else { Severity::Warning },
            source,
            figures: figures([
                ("kv", kv),
                ("most_kv", kv.map(|kv| most_kv.map_or(kv, |most| most.max(kv)))),
                ("running", of_row(row, Field::Running)),
                ("queued", of_row(row, Field::Queued)),
                ("tokens", of_row(row, Field::Tokens)),
                ("capacity", capacity),
                ("tokens_per_request", per),
                ("fits", fits),
                ("growth_per_second", arithmetic.growth),
                ("full_in_seconds", fill),
                ("retracted", thrown),
            ]),
            text,
            advice: "run fewer trials at once, or give the pool more memory (mem-fraction, fp8 KV)",
        }
    });
}

/// Why requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Slots,
    State,
    Pool,
    Prefill,
    Unknown,
}

impl Limit {
    fn words(self) -> &'static str {
        match self {
            Limit::Slots => "all request slots are taken",
            Limit::State => "all state slots are taken",
            Limit::Pool => "the KV pool is the limit",
            Limit::Prefill => "prefill is the limit",
            Limit::Unknown => "what limits it is not seen",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Limit::Slots => "run as many trials fewer at once as wait, or raise max-running-requests",
            Limit::State => "run fewer trials at once, or raise --max-mamba-cache-size",
            Limit::Pool => "run as many trials fewer at once as wait, or give the pool more memory",
            Limit::Prefill => "run fewer trials at once; check that the prefix cache hits",
            Limit::Unknown => "look at the server's log; see whether batches go on",
        }
    }
}

fn limit(row: &Replica, ctx: &Ctx<'_>) -> Limit {
    let rule = &ctx.thresholds.queueing;
    let of = |field| of_row(row, field);
    let now = |field| row.readings.fresh(field, ctx.t, super::TOGETHER);
    let most = row.limits.max_running.map(f64::from);
    if of(Field::Mamba).is_some_and(|v| v >= ctx.thresholds.mamba.usage) {
        Limit::State
    } else if of(Field::Running).zip(most).is_some_and(|(r, m)| r >= m - rule.slack) {
        Limit::Slots
    } else if of(Field::Kv).is_some_and(|u| u >= rule.kv) {
        Limit::Pool
    } else if now(Field::PendingTokens)
        .is_some_and(|p| p > rule.chunks * row.limits.chunk.map_or(8_192.0, |c| c as f64))
        || now(Field::Prefill).is_some_and(|p| p > 0.0)
    {
        Limit::Prefill
    } else {
        Limit::Unknown
    }
}

fn queueing(row: &mut Replica, ctx: &mut Ctx<'_>) {
    let seconds = ctx.thresholds.queueing.seconds;
    let verdict = verdict(&row.watch.queue, ctx, ctx.outright(seconds), seconds);
    let limit = limit(row, ctx);
    let (source, median_call, t) = (ctx.source, ctx.demand.median_call, ctx.t);
    let most = before(row, ctx, DiagnosisKind::Queueing, "most_queued");
    judge(row, ctx, DiagnosisKind::Queueing, verdict, |row| told(row, limit, source, median_call, most, t));
}

/// By how much concurrency is above what is served.
fn told(row: &Replica, limit: Limit, source: SourceId, call: Option<f64>, before: Option<f64>, t: Seconds) -> Finding {
    let (running, queued) = (of_row(row, Field::Running), of_row(row, Field::Queued));
    let asked = running.zip(queued).map(|(r, q)| r + q);
    let wait = call.zip(queued).zip(running.filter(|r| *r > 0.0)).map(|((call, q), r)| q * call / r);
    let most = row.limits.max_running;
    let most_queued = queued.map(|q| before.map_or(q, |most| most.max(q)));
    let of = most.map_or(String::new(), |m| format!(" of {m}"));
    let mut text = format!(
        "{} wait, {} run{of}: concurrency is {} above what is served; {}",
        say(queued),
        say(running),
        say(queued),
        limit.words()
    );
    if let Some(most) = most_queued.filter(|most| queued.is_some_and(|q| *most > q)) {
        text += &format!("; {most:.0} waited at most");
    }
    if let Some(wait) = wait {
        text += &format!("; a new request waits about {wait:.0} s");
    }
    Finding {
        severity: Severity::Error,
        source,
        figures: figures([
            ("queued", queued),
            ("most_queued", most_queued),
            ("running", running),
            ("max_running", most.map(f64::from)),
            ("asked", asked),
            ("above", queued),
            ("recommended_concurrency", running.filter(|r| *r > 0.0)),
            ("wait_seconds", wait),
            ("kv", of_row(row, Field::Kv)),
            ("mamba", of_row(row, Field::Mamba)),
            ("pending_tokens", of_row(row, Field::PendingTokens)),
            ("seconds", row.watch.queue.held(0.0, 1.0).map(|since| t - since)),
        ]),
        text,
        advice: limit.advice(),
    }
}

/// A line says that the queue itself is full: clients are refused.
pub(in crate::serving) fn queue_full(server: &mut Server, ctx: &mut Ctx<'_>, rank: Option<u16>) {
    let (source, t, call) = (ctx.source, ctx.t, ctx.demand.median_call);
    if let Some(row) = server.row(None, rank) {
        row.watch.queue.sample(t, true, f64::MAX);
        judge(row, ctx, DiagnosisKind::Queueing, Verdict::Holds(t), |row| {
            let mut finding = told(row, Limit::Slots, source, call, None, t);
            finding.text = format!("the queue is full, requests are refused (503); {}", finding.text);
            finding
        });
    }
}

fn slots(row: &mut Replica, ctx: &mut Ctx<'_>) {
    let seconds = ctx.thresholds.mamba.seconds;
    let one = verdict(&row.watch.slots, ctx, ctx.outright(seconds), seconds);
    let two = verdict(&row.watch.slots_over, ctx, ctx.outright(seconds), seconds);
    let verdict = match (one, two) {
        (Verdict::Holds(a), Verdict::Holds(b)) => Verdict::Holds(a.min(b)),
        (Verdict::Holds(a), _) | (_, Verdict::Holds(a)) => Verdict::Holds(a),
        (Verdict::Over(a), Verdict::Over(b)) => Verdict::Over(a.max(b)),
        _ => Verdict::Unsure,
    };
    let source = ctx.source;
    judge(row, ctx, DiagnosisKind::MambaSlotsExhausted, verdict, |row| {
        let (usage, taken) = (of_row(row, Field::Mamba), of_row(row, Field::MambaSlots));
        let all = row.limits.mamba_slots.map(f64::from);
        let each = row.watch.slots_each;
        let usable = all.zip(each).map(|(all, each)| (all / each).floor());
        let mut text = format!(
            "state slots are {} taken ({} of {}) while the KV pool is at {}: {} running, {} waiting",
            ratio(usage),
            say(taken),
            say(all),
            ratio(of_row(row, Field::Kv)),
            say(of_row(row, Field::Running)),
            say(of_row(row, Field::Queued))
        );
        if let (Some(usable), Some(each)) = (usable, each) {
            text += &format!("; at {each:.1} slots each, {usable:.0} requests run at once, however short");
        }
        Finding {
            severity: Severity::Error,
            source,
            figures: figures([
                ("mamba", usage),
                ("mamba_slots", taken),
                ("all_slots", all),
                ("slots_per_request", each),
                ("usable_concurrency", usable),
                ("kv", of_row(row, Field::Kv)),
                ("running", of_row(row, Field::Running)),
                ("queued", of_row(row, Field::Queued)),
            ]),
            text,
            advice: "raise --max-mamba-cache-size or --mamba-full-memory-ratio, or run fewer trials at once",
        }
    });
}

const OURS: [DiagnosisKind; 3] =
    [DiagnosisKind::PoolSaturated, DiagnosisKind::Queueing, DiagnosisKind::MambaSlotsExhausted];

fn last_of(row: &Replica, kind: DiagnosisKind) -> Seconds {
    let watch = &row.watch;
    match kind {
        DiagnosisKind::Queueing => watch.queue.last(),
        DiagnosisKind::MambaSlotsExhausted => watch.slots.last(),
        _ => {
            let thrown = watch.retractions.within(row.now, f64::MAX).map_or(0.0, |(_, _, last)| last);
            watch.full.last().max(thrown)
        }
    }
}

/// What rests on figures that are old is over: nothing is known any more.
pub(super) fn stale(row: &mut Replica, ctx: &mut Ctx<'_>) {
    for kind in OURS {
        let last = last_of(row, kind);
        if last > 0.0 && ctx.t - last > ctx.thresholds.confirm.stale_seconds {
            over(row, ctx, kind, last);
        }
    }
}

pub(super) fn settle(row: &mut Replica, ctx: &mut Ctx<'_>) {
    let watch = &row.watch;
    let t = ctx.t;
    let ended = |held: &[&Held]| {
        if held.iter().any(|held| held.holds()) {
            return None;
        }
        let last = held.iter().filter_map(|held| held.not_held(t, 0.0)).fold(f64::MIN, f64::max);
        Some(if last == f64::MIN { t } else { last })
    };
    let pool = ended(&[&watch.full, &watch.high]);
    let queue = ended(&[&watch.queue]);
    let slots = ended(&[&watch.slots, &watch.slots_over]);
    for (kind, until) in OURS.into_iter().zip([pool, queue, slots]) {
        if let Some(until) = until {
            over(row, ctx, kind, until);
        }
    }
}
