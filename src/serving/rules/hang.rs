//! Requests, and no progress.

use super::{Ctx, Finding, Sample, Verdict, figure, figures, judge, over};
use crate::job::time::words;
use crate::serving::state::clock::Seconds;
use crate::serving::state::{Field, Replica};
use crate::serving::{DiagnosisKind, Engine, Severity};

/// What is known of the server around a row.
pub(super) struct Around {
    /// A log of it is read.
    pub logged: bool,
    /// Since when it compiles.
    pub compiling: Option<Seconds>,
    /// When a health check failed first and last, and none was well since.
    pub health: Option<(Seconds, Seconds)>,
}

/// vLLM's lines go on in a hang: what they say stands still.
pub(super) fn sample(row: &mut Replica, ctx: &mut Ctx<'_>, sample: &Sample) {
    let rule = &ctx.thresholds.hang;
    let t = ctx.t;
    let timed = sample.log && row.engine == Some(Engine::Vllm);
    if let (true, Some(generation), Some(running)) =
        (timed, Field::Generation.of(&sample.figures), figure(row, sample, Field::Running, t))
    {
        let still = running > 0.0 && generation < rule.token_rate && sample.figures.prefill.unwrap_or(0.0) <= 0.0;
        row.watch.stalled.sample(t, still, ctx.thresholds.confirm.gap_seconds);
    }
}

/// Why it is thought to hang.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Proof {
    /// The scheduler's snapshot is that old.
    Snapshot(f64),
    /// No token was counted for so long.
    Flat(f64),
    /// Health checks fail since so long.
    Health(f64),
    /// vLLM's own lines say so, for so long.
    Lines(f64),
}

impl Proof {
    fn words(self) -> String {
        match self {
            Proof::Snapshot(age) => format!("the scheduler's last snapshot is {age:.0} s old"),
            Proof::Flat(for_) => format!("no token was counted for {for_:.0} s"),
            Proof::Health(for_) => format!("health checks have failed for {for_:.0} s"),
            Proof::Lines(for_) => format!("its lines have said no tokens for {for_:.0} s"),
        }
    }

    fn seconds(self) -> f64 {
        match self {
            Proof::Snapshot(s) | Proof::Flat(s) | Proof::Health(s) | Proof::Lines(s) => s,
        }
    }
}

pub(super) fn sweep(row: &mut Replica, ctx: &mut Ctx<'_>, around: Around) {
    let rule = &ctx.thresholds.hang;
    let t = ctx.t;
    let running = row.readings.value(Field::Running);
    let compiles = around.compiling.is_some_and(|since| (0.0..rule.compile_seconds).contains(&(t - since)));
    if compiles || running.is_none_or(|r| r <= 0.0) {
        return over(row, ctx, DiagnosisKind::Hang, t);
    }
    // What was told some seconds ago has aged since, as long as nothing newer says otherwise.
    let recent = |at: Seconds| (0.0..=30.0).contains(&(t - at));
    let snapshot = row.watch.snapshot.filter(|(at, _)| recent(*at)).map(|(_, age)| age);
    let flat = row.watch.flat.filter(|(_, polls, last)| *polls >= 2 && recent(*last));
    let flat = flat.map(|(since, _, last)| last - since);
    let health = around.health.filter(|(_, last)| (0.0..=90.0).contains(&(t - last)));
    let health = health.map(|(first, _)| (t - first).max(0.0));
    let stalled = row.watch.stalled.held(rule.seconds, ctx.thresholds.confirm.samples);
    let stalled = stalled.filter(|_| t - row.watch.stalled.last() <= ctx.thresholds.confirm.gap_seconds);
    let stalled = stalled.map(|since| t - since);
    // Silence of the log. Where it can not be heard, the proof's own time has to do.
    let silence = row.watch.last_batch.filter(|_| around.logged).map(|last| t - last);
    let usual = row.watch.gaps.median().unwrap_or(0.0);
    let long = rule.seconds.max(rule.gaps * usual);
    let timed = row.engine == Some(Engine::Vllm);
    let proof = stalled
        .map(Proof::Lines)
        .or(snapshot.filter(|age| *age > rule.snapshot_seconds).map(Proof::Snapshot))
        .or(flat.filter(|f| *f >= rule.flat_seconds).map(Proof::Flat))
        .or(health.map(Proof::Health));
    let Some(proof) = proof else {
        let last = row_last(row, t);
        return over(row, ctx, DiagnosisKind::Hang, last);
    };
    let silent_for = match (proof, silence) {
        (Proof::Lines(for_), _) => for_,
        (_, Some(silence)) if !timed => silence,
        (proof, _) => proof.seconds(),
    };
    let direct = matches!(proof, Proof::Snapshot(_) | Proof::Flat(_));
    let red = silent_for >= long;
    let early = direct && silent_for >= rule.early_seconds;
    if !red && !early {
        if silent_for < rule.early_seconds {
            over(row, ctx, DiagnosisKind::Hang, t - silent_for);
        }
        return;
    }
    let since = t - silent_for;
    let kill = row.limits.watchdog.map(|w| f64::from(w) + 5.0 - silent_for).filter(|left| *left > 0.0 && !timed);
    let wait = ctx.demand.oldest_wait;
    let source = row.reading(Field::Running).map_or(ctx.source, |r| r.source);
    judge(row, ctx, DiagnosisKind::Hang, Verdict::Holds(since), |row| {
        let mut text =
            format!("{} running and no progress for {}: {}", super::say(running), words(silent_for), proof.words());
        if !red {
            text += "; a long prefill looks the same";
        }
        if let Some(left) = kill {
            text += &format!("; its watchdog ends it in {}", words(left));
        }
        Finding {
            severity: if red { Severity::Fatal } else { Severity::Warning },
            source,
            figures: figures([
                ("running", running),
                ("queued", row.readings.value(Field::Queued)),
                ("seconds", Some(silent_for)),
                ("snapshot_age", snapshot),
                ("counter_flat_seconds", flat),
                ("health_failed_seconds", health),
                ("usual_gap", Some(usual).filter(|u| *u > 0.0)),
                ("watchdog_in_seconds", kill),
                ("oldest_wait", wait),
            ]),
            text,
            advice: "if it stays so, restart the server; calls in flight are lost, which is no fault of the model",
        }
    });
}

fn row_last(row: &Replica, t: Seconds) -> Seconds {
    row.watch.last_batch.unwrap_or(t).min(t)
}
