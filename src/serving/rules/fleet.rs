//! The ranks of one server beside each other.

use super::{Ctx, Finding, Key, figures};
use crate::serving::state::{Field, Server};
use crate::serving::{DiagnosisKind, Severity};

/// What is known of a rank now.
struct Rank {
    running: f64,
    queued: Option<f64>,
    kv: Option<f64>,
    most: Option<f64>,
}

/// Least and most of what is known.
fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |a: Option<(f64, f64)>, v| Some(a.map_or((v, v), |(low, high)| (low.min(v), high.max(v)))))
}

/// Some ranks work, others do not.
pub(super) fn uneven(server: &mut Server, ctx: &mut Ctx<'_>) {
    let rule = &ctx.thresholds.ranks;
    let t = ctx.t;
    let mut ranks: Vec<Rank> = Vec::new();
    let mut all = 0usize;
    for row in server.own_rows().filter(|row| row.key.rank.is_some()) {
        all += 1;
        let fresh = |field| row.readings.fresh(field, t, 30.0);
        if let Some(running) = fresh(Field::Running) {
            let most = row.limits.max_running.map(f64::from);
            ranks.push(Rank { running, queued: fresh(Field::Queued), kv: fresh(Field::Kv), most });
        }
    }
    let key = Key { kind: DiagnosisKind::UnevenRanks, server: server.name.clone(), replica: None };
    if all < 2 || ranks.len() < 2 {
        // A rank of its own step is silent when idle: unknown, not uneven.
        if ctx.book.is_open(&key) && t - server.uneven.last() > ctx.thresholds.confirm.stale_seconds {
            let until = ctx.when(server.uneven.last());
            ctx.book.lower(&key, until);
        }
        return;
    }
    let running = span(ranks.iter().map(|r| r.running));
    let kv = span(ranks.iter().filter_map(|r| r.kv));
    let total: f64 = ranks.iter().map(|r| r.running).sum();
    let by_running = running.is_some_and(|(low, high)| {
        total >= 2.0 * ranks.len() as f64 && high - low >= rule.difference && high >= rule.factor * low + rule.factor
    });
    let waits = ranks.iter().any(|r| r.queued.is_some_and(|q| q > 0.0));
    let idles =
        ranks.iter().any(|r| r.queued == Some(0.0) && r.most.is_some_and(|most| r.running <= rule.idle_share * most));
    let by_kv = kv.is_some_and(|(low, high)| high - low > rule.kv);
    server.uneven.sample(t, by_running || (waits && idles) || by_kv, ctx.thresholds.confirm.gap_seconds);
    if let Some(since) = server.uneven.held(rule.seconds, ctx.thresholds.confirm.samples) {
        if ctx.book.told(&key, t) {
            return;
        }
        let (low, high) = running.unwrap_or((0.0, 0.0));
        let mut text = format!("of {} ranks one runs {high:.0} requests, another {low:.0}", ranks.len());
        if let Some((low, high)) = kv {
            text += &format!("; their pools are between {low:.2} and {high:.2} full");
        }
        if waits && idles {
            text += "; requests wait at one while another has room";
        }
        let finding = Finding {
            severity: Severity::Warning,
            source: ctx.source,
            figures: figures([
                ("ranks", Some(ranks.len() as f64)),
                ("least_running", Some(low)),
                ("most_running", Some(high)),
                ("least_kv", kv.map(|k| k.0)),
                ("most_kv", kv.map(|k| k.1)),
            ]),
            text,
            advice: "balance by tokens (--load-balance-method total_tokens), or put a router with --dp-aware before it",
        };
        let since = ctx.when(since);
        ctx.book.raise(key, finding, since, t);
    } else if let Some(until) = server.uneven.not_held(t, rule.seconds) {
        let until = ctx.when(until);
        ctx.book.lower(&key, until);
    }
}
