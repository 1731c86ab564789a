//! The server beside the trials: idle while they wait, another context than they were told.

use super::{Ctx, Finding, figures};
use crate::job::time::words;
use crate::serving::state::{Field, Server};
use crate::serving::{DiagnosisKind, Severity};

/// Seconds for which figures say how it is now.
const NOW: f64 = 30.0;

/// Trials wait, and nothing runs and nothing waits at the server.
pub(super) fn idle(server: &mut Server, ctx: &mut Ctx<'_>) {
    let (t, demand) = (ctx.t, *ctx.demand);
    let rule = &ctx.thresholds.idle;
    let mut known = 0;
    let mut busy = false;
    for row in server.rows.iter() {
        let fresh = |field| row.readings.fresh(field, t, NOW);
        match fresh(Field::Running) {
            Some(running) => {
                known += 1;
                busy |= running > 0.0 || fresh(Field::Queued).unwrap_or(0.0) > 0.0;
            }
            // A prefill of minutes is work, too.
            None => busy |= row.watch.last_batch.is_some_and(|last| t - last < NOW),
        }
    }
    if known == 0 {
        if ctx.is_open(&server.name, DiagnosisKind::IdleServer) {
            ctx.lower(&server.name, DiagnosisKind::IdleServer, t);
        }
        return;
    }
    server.idle.sample(t, !busy && demand.waiting > 0, ctx.thresholds.confirm.gap_seconds);
    let held = server.idle.held(rule.seconds, ctx.thresholds.confirm.samples);
    // Each of them waits only shortly: the agents work between their calls.
    let long = demand.oldest_wait.is_none_or(|wait| wait >= rule.seconds);
    if let Some(since) = held.filter(|_| long) {
        let finding = Finding {
            severity: Severity::Error,
            source: ctx.source,
            figures: figures([
                ("waiting_trials", Some(f64::from(demand.waiting))),
                ("oldest_wait", demand.oldest_wait),
                ("running", Some(0.0)),
                ("queued", Some(0.0)),
                ("seconds", Some(t - since)),
            ]),
            text: format!(
                "{} trials wait for answers while the server has nothing to do for {}: requests are lost between them",
                demand.waiting,
                words(t - since)
            ),
            advice: "look at what lies between: router, tokenizer, proxy, tunnel, and the agent's own time-out",
        };
        ctx.raise(&server.name, DiagnosisKind::IdleServer, finding, since);
    } else if server.idle.not_held(t, 10.0).is_some() {
        ctx.lower(&server.name, DiagnosisKind::IdleServer, t);
    }
}

/// The context that is served beside the one that the agents were told.
pub(super) fn context(server: &mut Server, ctx: &mut Ctx<'_>) {
    let served = server.rows.iter().filter_map(|row| row.limits.context).chain(server.limits.context).min();
    let (Some(served), Some(told)) = (served, ctx.demand.configured_context) else {
        return;
    };
    if served == told {
        return ctx.lower(&server.name, DiagnosisKind::ContextMismatch, ctx.t);
    }
    let short = served < told;
    let finding = Finding {
        severity: if short { Severity::Error } else { Severity::Warning },
        source: ctx.source,
        figures: figures([("served", Some(served as f64)), ("configured", Some(told as f64))]),
        text: if short {
            format!("{served} tokens of context are served, the agents were told {told}: longer turns will fail")
        } else {
            format!("{served} tokens of context are served, the agents were told only {told}")
        },
        advice: "start the server with the context of the job, or the job with that of the server",
    };
    ctx.raise(&server.name, DiagnosisKind::ContextMismatch, finding, ctx.t);
}
