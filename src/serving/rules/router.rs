//! Routers: workers that are dead, circuits that are open.

use super::{Ctx, Finding, Key, figures};
use crate::serving::state::Server;
use crate::serving::{Circuit, DiagnosisKind, ReplicaKey, Severity, Worker};

fn name_of(worker: &Worker) -> String {
    match worker.rank {
        Some(rank) => format!("{}@{rank}", worker.url),
        None => worker.url.to_string(),
    }
}

fn list(workers: &[&Worker]) -> String {
    let names: Vec<String> = workers.iter().take(4).map(|w| name_of(w)).collect();
    let more = workers.len().saturating_sub(names.len());
    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// The workers as the router sees them.
pub(in crate::serving) fn workers(server: &Server, ctx: &mut Ctx<'_>) {
    let all = server.workers();
    let dead: Vec<&Worker> = all.iter().filter(|w| w.healthy == Some(false)).collect();
    let known = all.iter().any(|w| w.healthy.is_some());
    if !dead.is_empty() {
        dead_workers(server, ctx, dead.len() as f64, all.len() as f64, &list(&dead));
    } else if known && server.readiness.is_none_or(|(healthy, total)| healthy >= total) {
        ctx.lower(&server.name, DiagnosisKind::DeadWorkers, ctx.t);
    }
    for worker in all {
        let replica = ReplicaKey { server: server.name.clone(), worker: Some(worker.url.clone()), rank: worker.rank };
        let key = Key { kind: DiagnosisKind::OpenCircuit, server: server.name.clone(), replica: Some(replica) };
        match worker.circuit {
            Some(Circuit::Open) => {
                if ctx.book.told(&key, ctx.t) {
                    continue;
                }
                let (since, t) = (ctx.when(ctx.t), ctx.t);
                let finding = Finding {
                    severity: Severity::Error,
                    source: ctx.source,
                    figures: figures([("workers", Some(all.len() as f64))]),
                    text: format!("the router's circuit to {} is open: it gets no requests", name_of(worker)),
                    advice: "look at that worker's log; the router tries it again by itself",
                };
                ctx.book.raise(key, finding, since, t);
            }
            Some(Circuit::Closed) => {
                let until = ctx.when(ctx.t);
                ctx.book.lower(&key, until);
            }
            // Half open: it is tried; the word of before holds until it is decided.
            Some(Circuit::HalfOpen) | None => {}
        }
    }
    // Workers that are not listed any more have no circuit.
    let gone = |key: &Key| {
        key.kind == DiagnosisKind::OpenCircuit
            && key
                .replica
                .as_ref()
                .is_some_and(|r| !all.iter().any(|w| r.worker.as_ref() == Some(&w.url) && w.rank == r.rank))
    };
    let until = ctx.when(ctx.t);
    ctx.book.lower_all(&server.name, gone, until);
}

fn dead_workers(server: &Server, ctx: &mut Ctx<'_>, dead: f64, all: f64, names: &str) {
    let healthy = (all - dead).max(0.0);
    let finding = Finding {
        severity: if healthy == 0.0 { Severity::Fatal } else { Severity::Error },
        source: ctx.source,
        figures: figures([("healthy", Some(healthy)), ("workers", Some(all)), ("dead", Some(dead))]),
        text: format!(
            "{healthy:.0} of {all:.0} workers are healthy{}{names}",
            if names.is_empty() { "" } else { "; dead: " }
        ),
        advice: "start the dead worker again; until then run so many fewer trials at once",
    };
    ctx.raise(&server.name, DiagnosisKind::DeadWorkers, finding, ctx.t);
}

/// What `/readiness` counts.
pub(in crate::serving) fn readiness(server: &Server, ctx: &mut Ctx<'_>) {
    let Some((healthy, total)) = server.readiness else { return };
    let listed: Vec<&Worker> = server.workers().iter().filter(|w| w.healthy == Some(false)).collect();
    if healthy < total {
        dead_workers(server, ctx, f64::from(total - healthy), f64::from(total), &list(&listed));
    } else if listed.is_empty() {
        ctx.lower(&server.name, DiagnosisKind::DeadWorkers, ctx.t);
    }
}

/// What a router's log says of failed probes, where the router itself is not asked.
pub(in crate::serving) fn probes(server: &Server, ctx: &mut Ctx<'_>) {
    if server.polled {
        return;
    }
    let rule = &ctx.thresholds.router;
    let dead = |(_, count, last): &&(std::sync::Arc<str>, u32, f64)| {
        f64::from(*count) >= rule.probes && ctx.t - last <= rule.quiet_seconds
    };
    let dead: Vec<&str> = server.probes.iter().filter(dead).map(|(url, _, _)| &**url).collect();
    if dead.is_empty() {
        ctx.lower(&server.name, DiagnosisKind::DeadWorkers, ctx.t);
        return;
    }
    let finding = Finding {
        severity: Severity::Error,
        source: ctx.source,
        figures: figures([("dead", Some(dead.len() as f64))]),
        text: format!("the router's probes of {} fail", dead.join(", ")),
        advice: "start the dead worker again; until then run so many fewer trials at once",
    };
    ctx.raise(&server.name, DiagnosisKind::DeadWorkers, finding, ctx.t);
}

/// A circuit changed; the line does not say whose.
pub(in crate::serving) fn circuit(server: &Server, ctx: &mut Ctx<'_>, to: Circuit) {
    if server.polled && server.workers().iter().any(|w| w.circuit.is_some()) {
        return;
    }
    match to {
        Circuit::Open => {
            let finding = Finding {
                severity: Severity::Error,
                source: ctx.source,
                figures: figures([]),
                text: "a circuit of the router is open; its log does not say to which worker".to_string(),
                advice: "name the router's metrics (--serving metrics:URL), which do say so",
            };
            ctx.raise(&server.name, DiagnosisKind::OpenCircuit, finding, ctx.t);
        }
        Circuit::Closed => ctx.lower(&server.name, DiagnosisKind::OpenCircuit, ctx.t),
        Circuit::HalfOpen => {}
    }
}

pub(super) fn sweep(server: &Server, ctx: &mut Ctx<'_>) {
    if !server.probes.is_empty() {
        probes(server, ctx);
    }
}
