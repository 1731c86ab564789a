//! How requests get on: endless ones, retractions, slower than before, speculation, prefix cache.

use super::watch::Alone;
use super::{Ctx, Finding, Sample, Verdict, figure, figures, judge, over, ratio, requests, verdict};
use crate::serving::state::clock::Seconds;
use crate::serving::state::{Field, Replica};
use crate::serving::{DiagnosisKind, Severity};

pub(super) fn sample(row: &mut Replica, ctx: &mut Ctx<'_>, sample: &Sample) {
    let (t, gap) = (ctx.t, ctx.thresholds.confirm.gap_seconds);
    let of = |field| figure(row, sample, field, t);
    let (running, queued) = (of(Field::Running), of(Field::Queued));
    let generation = Field::Generation.of(&sample.figures);
    runaway(row, ctx, sample, running, queued);
    if let (Some(running), Some(generation)) = (running.filter(|r| *r > 0.0), generation)
        && !sample.prefill
    {
        collapse(row, ctx, running, generation);
    }
    if let Some(accepted) = Field::AcceptLen.of(&sample.figures) {
        row.watch.accept_best = row.watch.accept_best.max(accepted);
        let rule = &ctx.thresholds.speculation;
        row.watch.accept.sample(t, accepted < rule.accept_len, gap);
        let verdict = verdict(&row.watch.accept, ctx, rule.seconds, rule.seconds);
        let source = ctx.source;
        judge(row, ctx, DiagnosisKind::SpeculationNotPaying, verdict, |_| Finding {
            severity: Severity::Warning,
            source,
            figures: figures([("accept_len", Some(accepted))]),
            text: format!(
                "speculation gives {accepted:.2} tokens per verified step: the draft costs more than it gives"
            ),
            advice: "switch speculation off, or take another draft model",
        });
    }
    cache(row, ctx, sample);
    if sample.figures.graph == Some(true) {
        row.watch.graph_seen = true;
    }
}

/// Requests that are thrown out of the pool.
pub(in crate::serving) fn retraction(row: &mut Replica, ctx: &mut Ctx<'_>) {
    let rule = &ctx.thresholds.retraction;
    let thrown = row.watch.retractions.within(ctx.t, rule.seconds);
    let verdict = match thrown {
        Some((_, first, _)) => Verdict::Holds(first),
        None => Verdict::Over(last_retraction(row, ctx.t)),
    };
    let (source, storm, seconds) = (ctx.source, rule.storm, rule.seconds);
    judge(row, ctx, DiagnosisKind::Retraction, verdict, |row| {
        let n = thrown.map_or(0.0, |(n, _, _)| f64::from(n));
        Finding {
            severity: if n >= storm { Severity::Error } else { Severity::Warning },
            source,
            figures: figures([
                ("retracted", Some(n)),
                ("retracted_in_all", Some(row.retracted as f64)),
                ("kv", row.readings.value(Field::Kv)),
                ("running", row.readings.value(Field::Running)),
                ("queued", row.readings.value(Field::Queued)),
            ]),
            text: format!(
                "{} thrown out of the full pool within {seconds:.0} s: what was computed for them is computed again",
                requests(n)
            ),
            advice: "run fewer trials at once now; if throughput does not come back, restart the server",
        }
    });
}

fn last_retraction(row: &Replica, t: Seconds) -> Seconds {
    row.watch.retractions.within(t, f64::MAX).map_or(t, |(_, _, last)| last)
}

/// One or two requests that go on and on.
fn runaway(row: &mut Replica, ctx: &mut Ctx<'_>, sample: &Sample, running: Option<f64>, queued: Option<f64>) {
    let t = ctx.t;
    let rule = &ctx.thresholds.runaway;
    // A row that sums up engines tells nothing of one request.
    let (Some(running), true) = (running, row.engines <= 1) else { return };
    let alone = (1.0..=rule.running).contains(&running) && queued.is_none_or(|q| q == 0.0) && !sample.prefill;
    let tokens = row.tokens();
    let generation = row.readings.fresh(Field::Generation, t, super::TOGETHER);
    let before = row.watch.alone.filter(|a| {
        let fell = a.tokens.zip(tokens).is_some_and(|((_, before), now)| now < before - 0.5);
        let prefilled = row.watch.last_prefill.is_some_and(|last| last > a.since);
        alone && !fell && !prefilled && t >= a.last - 5.0 && t - a.last <= ctx.thresholds.confirm.gap_seconds
    });
    if !alone {
        row.watch.alone = None;
        over(row, ctx, DiagnosisKind::RunawayGeneration, t);
        return;
    }
    let Some(mut now) = before else {
        row.watch.alone = Some(Alone { since: t, last: t, samples: 1, tokens: tokens.map(|n| (n, n)), generated: 0.0 });
        over(row, ctx, DiagnosisKind::RunawayGeneration, t);
        return;
    };
    let passed = (t - now.last).max(0.0);
    now.generated += generation.unwrap_or(0.0) * passed;
    now.last = now.last.max(t);
    now.samples = now.samples.saturating_add(1);
    now.tokens = now.tokens.zip(tokens).map(|((first, _), n)| (first, n)).or(tokens.map(|n| (n, n)));
    row.watch.alone = Some(now);
    let seconds = t - now.since;
    if seconds < rule.alone_seconds || f64::from(now.samples) < ctx.thresholds.confirm.samples {
        return;
    }
    let grown = now.tokens.map(|(first, last)| last - first);
    // Slots go in pages and by rounded shares: what is said of the pool has to bear out the throughput.
    let agrees = match (grown, now.generated) {
        (Some(grown), generated) if generated > 0.0 && row.reading(Field::Tokens).is_some() => {
            grown > 0.0 && (grown - generated).abs() <= rule.agree * generated.max(grown)
        }
        (_, generated) => generated > 0.0,
    };
    let demand = ctx.demand;
    let waits = match demand.oldest_wait {
        Some(wait) => {
            let usual = demand.median_call.map_or(0.0, |call| rule.wait_medians * call);
            wait > rule.wait_seconds.max(usual)
        }
        None => seconds >= rule.unseen_seconds,
    };
    if !agrees || !waits {
        return;
    }
    let out = grown.filter(|g| *g > 0.0).unwrap_or(now.generated) / running;
    let speed = (now.generated / seconds / running).max(1e-3);
    let per = tokens.map(|n| n / running);
    let left = row.limits.context.map(|l| l as f64).zip(per).map(|(l, per)| (l - per).max(0.0));
    let end = left.map(|left| left / speed);
    let late = end.zip(demand.least_left).is_some_and(|(end, left)| end > left);
    let (source, many, wait) = (ctx.source, out > rule.tokens, demand.oldest_wait);
    judge(row, ctx, DiagnosisKind::RunawayGeneration, Verdict::Holds(now.since), |_| {
        let who = if running > 1.0 { "two requests have" } else { "one request has" };
        let mut text = format!(
            "{who} been generating alone for {}, {out:.0} tokens at {speed:.0} tokens/s",
            crate::job::time::words(seconds)
        );
        if let Some(end) = end {
            text += &format!("; the context is full in {}", crate::job::time::words(end));
        }
        if late {
            text += ", later than its trial ends";
        }
        Finding {
            severity: if many || late { Severity::Error } else { Severity::Warning },
            source,
            figures: figures([
                ("running", Some(running)),
                ("seconds", Some(seconds)),
                ("tokens_generated", Some(out)),
                ("tokens_per_second", Some(speed)),
                ("seconds_to_context_limit", end),
                ("oldest_wait", wait),
                ("tokens", tokens),
            ]),
            text,
            advice: "abort that request at the server, or set max_tokens",
        }
    });
}

/// Each request is much slower than usual at about so many at once, or than before a retraction.
fn collapse(row: &mut Replica, ctx: &mut Ctx<'_>, running: f64, generation: f64) {
    let (t, gap) = (ctx.t, ctx.thresholds.confirm.gap_seconds);
    let rule = &ctx.thresholds.collapse;
    let speed = generation / running;
    let usual = row.watch.speeds.median(running, rule.medians);
    let prefilled = row.watch.last_prefill.is_some_and(|last| (0.0..rule.seconds).contains(&(t - last)));
    let slow = usual.is_some_and(|usual| speed < rule.share * usual);
    row.watch.slow.sample(t, slow && !prefilled, gap);
    if !slow && !prefilled {
        row.watch.speeds.add(t, running, speed);
    }
    let context = row.tokens().map(|n| n / running);
    if let Some(context) = context.filter(|_| !slow) {
        let usual = &mut row.watch.context_usual;
        *usual = if *usual > 0.0 { *usual + (context - *usual) * 0.02 } else { context };
    }
    let before = row.watch.before.filter(|(at, _)| (0.0..=600.0).contains(&(t - at)));
    row.watch.slow_after.sample(t, before.is_some_and(|(_, was)| generation < rule.after_share * was), gap);

    let by_speed = verdict(&row.watch.slow, ctx, rule.seconds, rule.seconds);
    let after = verdict(&row.watch.slow_after, ctx, rule.after_seconds, rule.after_seconds);
    let both = match (by_speed, after) {
        (Verdict::Holds(a), Verdict::Holds(b)) => Verdict::Holds(a.min(b)),
        (Verdict::Holds(a), _) | (_, Verdict::Holds(a)) => Verdict::Holds(a),
        (Verdict::Over(a), Verdict::Over(b)) => Verdict::Over(a.max(b)),
        _ => Verdict::Unsure,
    };
    let retracted = row.watch.retractions.within(t, rule.after_window).is_some() || matches!(after, Verdict::Holds(_));
    let accept = row.readings.value(Field::AcceptLen);
    let accept_fell = accept.is_some_and(|a| a < (1.0 - rule.accept_fall) * row.watch.accept_best);
    let grown =
        context.is_some_and(|c| row.watch.context_usual > 0.0 && c > rule.context_growth * row.watch.context_usual);
    let graph_lost = row.watch.graph_seen && row.readings.value(Field::Graph) == Some(0.0);
    let source = ctx.source;
    judge(row, ctx, DiagnosisKind::ThroughputCollapse, both, |row| {
        let (why, advice, severity) = if retracted {
            (
                "after requests were thrown out of the pool",
                "run fewer trials at once; if it stays so, restart the server",
                Severity::Error,
            )
        } else if graph_lost {
            (
                "steps do not replay a captured graph any more: the batch is larger than the largest one captured",
                "capture larger graphs, or run fewer trials at once",
                Severity::Error,
            )
        } else if accept_fell {
            (
                "speculation is accepted much less than before",
                "see whether the draft model suits these requests",
                Severity::Warning,
            )
        } else if grown {
            (
                "contexts are much longer than before, so this is to be expected",
                "nothing, or a shorter context",
                Severity::Warning,
            )
        } else {
            (
                "neither retractions, graphs, speculation nor longer contexts explain it: the host or the GPU",
                "look at the GPU's clocks and temperature, and at what else runs on the host",
                Severity::Error,
            )
        };
        Finding {
            severity,
            source,
            figures: figures([
                ("tokens_per_second_each", Some(speed)),
                ("usual_each", usual),
                ("generation", Some(generation)),
                ("generation_before", before.map(|(_, was)| was)),
                ("running", Some(running)),
                ("tokens_per_request", context),
                ("usual_tokens_per_request", Some(row.watch.context_usual).filter(|u| *u > 0.0)),
                ("accept_len", accept),
            ]),
            text: format!(
                "each of {running:.0} requests gets {speed:.1} tokens/s, where {} is usual; {why}",
                usual.or(before.map(|(_, was)| was / running)).map_or("-".to_string(), |u| format!("{u:.1}"))
            ),
            advice,
        }
    });
}

/// The prefix cache does not help.
fn cache(row: &mut Replica, ctx: &mut Ctx<'_>, sample: &Sample) {
    let (t, gap) = (ctx.t, ctx.thresholds.confirm.gap_seconds);
    let rule = &ctx.thresholds.cache;
    let window = rule.window;
    let sums =
        row.watch.prompts.sums(t, window).filter(|(_, all, batches)| *all > 0.0 && f64::from(*batches) >= rule.batches);
    let (verdict, hit, all) = match sums {
        Some((cached, all, _)) => {
            let hit = cached / all;
            row.watch.hits.sample(t, hit < rule.share, window);
            // The window is the time: a sample of it suffices.
            let verdict = match row.watch.hits.held(0.0, 1.0) {
                Some(since) => Verdict::Holds(since - window),
                None => row.watch.hits.not_held(t, 60.0).map_or(Verdict::Unsure, Verdict::Over),
            };
            (verdict, hit, Some(all))
        }
        // vLLM says its own rate, and prefills where its throughput of prompts is not 0.
        None => {
            let Some(hit) = Field::CacheHit.of(&sample.figures) else { return };
            let busy = sample.figures.prefill.is_some_and(|p| p > 0.0);
            if row.watch.prompts.sums(t, 0.0).is_some() || !busy {
                return;
            }
            row.watch.hits.sample(t, hit < rule.share, gap.max(60.0));
            (verdict(&row.watch.hits, ctx, window, window), hit, None)
        }
    };
    let source = ctx.source;
    judge(row, ctx, DiagnosisKind::PrefixCacheThrash, verdict, |row| Finding {
        severity: Severity::Warning,
        source,
        figures: figures([
            ("cache_hit", Some(hit)),
            ("prompt_tokens", all),
            ("seconds", Some(window)),
            ("kv", row.readings.value(Field::Kv)),
        ]),
        text: format!(
            "only {} of the prompt tokens of the last {window:.0} s were cached; turns resend what was said before, so \
             0.80 and more is to be expected",
            ratio(Some(hit))
        ),
        advice: "send each trial to one worker (cache_aware), give the pool more room, and see whether the agent \
                 rewrites what was said before",
    });
}

pub(super) fn sweep(row: &mut Replica, ctx: &mut Ctx<'_>) {
    let (t, stale) = (ctx.t, ctx.thresholds.confirm.stale_seconds);
    if let Some(alone) = row.watch.alone
        && t - alone.last > ctx.thresholds.confirm.gap_seconds
    {
        row.watch.alone = None;
        over(row, ctx, DiagnosisKind::RunawayGeneration, alone.last);
    }
    let lasts = [
        (DiagnosisKind::ThroughputCollapse, row.watch.slow.last()),
        (DiagnosisKind::SpeculationNotPaying, row.watch.accept.last()),
        (DiagnosisKind::PrefixCacheThrash, row.watch.hits.last()),
    ];
    for (kind, last) in lasts {
        if last > 0.0 && t - last > stale.max(if kind == DiagnosisKind::PrefixCacheThrash { 600.0 } else { 0.0 }) {
            over(row, ctx, kind, last);
        }
    }
}

pub(super) fn settle(row: &mut Replica, ctx: &mut Ctx<'_>) {
    let last = last_retraction(row, ctx.t);
    over(row, ctx, DiagnosisKind::Retraction, last);
    if !row.watch.slow.holds() && !row.watch.slow_after.holds() {
        let last = row.watch.slow.last();
        over(row, ctx, DiagnosisKind::ThroughputCollapse, last);
    }
    if !row.watch.accept.holds() {
        let last = row.watch.accept.last();
        over(row, ctx, DiagnosisKind::SpeculationNotPaying, last);
    }
    if !row.watch.hits.holds() {
        let last = row.watch.hits.last();
        over(row, ctx, DiagnosisKind::PrefixCacheThrash, last);
    }
}
