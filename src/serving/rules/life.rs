//! What happens to a server as a whole: deaths, starts, failed checks, clients that leave.

use super::{Ctx, Finding, Key, figures};
use crate::job::time::words;
use crate::serving::state::clock::Seconds;
use crate::serving::state::{Field, Life, Server, SourceView, gone, of_figures};
use crate::serving::{DiagnosisKind, Severity, Unreached};

/// What an exit code says.
fn code_words(code: i32) -> &'static str {
    match code {
        -9 => ": killed, by the kernel for want of memory or by somebody",
        -6 => ": aborted itself, as NCCL does",
        -11 => ": a segmentation fault",
        -15 => ": ended by somebody",
        _ => "",
    }
}

/// A process of the server died.
pub(in crate::serving) fn crash(
    server: &Server,
    ctx: &mut Ctx<'_>,
    code: Option<i32>,
    running: u32,
    rank: Option<u16>,
) {
    let key = Key { kind: DiagnosisKind::Crash, server: server.name.clone(), replica: None };
    // The same death is told by several lines: the first says when, any of them with which code.
    let known = ctx.book.open_of(&key).map(|d| d.figures.clone()).unwrap_or_default();
    let code = code.map(f64::from).or_else(|| known.get("exit_code").copied());
    let running = known.get("running").copied().or((running > 0).then(|| f64::from(running)));
    let mut text = match code {
        Some(code) => format!("a process died with exit code {code:.0}{}", code_words(code as i32)),
        None => "a process of the server died".to_string(),
    };
    if let Some(running) = running {
        text += &format!("; {} ran", super::requests(running));
    }
    let rank = rank.map(f64::from).or_else(|| known.get("rank").copied());
    let finding = Finding {
        severity: Severity::Fatal,
        source: ctx.source,
        figures: figures([("exit_code", code), ("running", running), ("rank", rank)]),
        text,
        advice: "start it again; calls in flight then are faults of the surroundings, not of the model",
    };
    ctx.raise(&server.name, DiagnosisKind::Crash, finding, ctx.t);
    // One death, one word: that it is not reached either follows from it.
    ctx.lower(&server.name, DiagnosisKind::Unreachable, ctx.t);
}

/// Memory ran out.
pub(in crate::serving) fn oom(server: &mut Server, ctx: &mut Ctx<'_>) {
    let starting = matches!(server.life, Life::Starting | Life::Restarting);
    let kv = server
        .own_rows()
        .filter_map(|row| row.readings.value(Field::Kv))
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    let finding = Finding {
        severity: Severity::Fatal,
        source: ctx.source,
        figures: figures([("kv", kv)]),
        text: if starting { "memory ran out while it started" } else { "memory ran out" }.to_string(),
        advice: if starting {
            "lower what else lies in the GPU's memory; where it says that the pool is too small, raise \
             --mem-fraction-static"
        } else {
            "lower --mem-fraction-static, run fewer requests at once"
        },
    };
    ctx.raise(&server.name, DiagnosisKind::Oom, finding, ctx.t);
}

/// Little memory is left after the start.
pub(in crate::serving) fn memory(server: &mut Server, ctx: &mut Ctx<'_>) {
    let least = ctx.thresholds.memory.free_gb;
    let ranks = server.own_rows().filter_map(|row| row.limits.free_gb).collect::<Vec<_>>();
    let free = ranks.into_iter().chain(server.limits.free_gb).map(f64::from).fold(f64::MAX, f64::min);
    let key = Key { kind: DiagnosisKind::Oom, server: server.name.clone(), replica: None };
    if free < least && !ctx.book.is_open(&key) {
        let finding = Finding {
            severity: Severity::Warning,
            source: ctx.source,
            figures: figures([("free_gb", Some(free))]),
            text: format!("only {free:.1} GB were left after the start: memory may run out under load"),
            advice: "lower --mem-fraction-static",
        };
        ctx.raise(&server.name, DiagnosisKind::Oom, finding, ctx.t);
    }
}

/// The watchdog fired: one forward pass took longer than it waits.
pub(in crate::serving) fn watchdog(server: &Server, ctx: &mut Ctx<'_>, after: Option<f64>, rank: Option<u16>) {
    let key = Key { kind: DiagnosisKind::Watchdog, server: server.name.clone(), replica: None };
    let known = ctx.book.open_of(&key).map(|d| d.figures.clone()).unwrap_or_default();
    let after = after.or_else(|| known.get("after_seconds").copied());
    let rank = known.get("rank").copied().or(rank.map(f64::from));
    let finding = Finding {
        severity: Severity::Fatal,
        source: ctx.source,
        figures: figures([("after_seconds", after), ("rank", rank)]),
        text: match after {
            Some(after) => {
                format!("its watchdog fired: one step took longer than {after:.0} s; it ends itself within 5 s")
            }
            None => "its watchdog fired: it ends itself within 5 s".to_string(),
        },
        advice: "start it again; the dump in the log says where it hung",
    };
    ctx.raise(&server.name, DiagnosisKind::Watchdog, finding, ctx.t);
}

/// A health check was not answered by the engine.
pub(in crate::serving) fn health_failed(server: &mut Server, ctx: &mut Ctx<'_>, heartbeat: Option<String>) {
    // One silence, one word.
    if ctx.is_open(&server.name, DiagnosisKind::Unreachable) {
        return;
    }
    let running = server.own_rows().filter_map(|row| row.readings.value(Field::Running)).sum::<f64>();
    let known = server.own_rows().any(|row| row.readings.get(Field::Running).is_some());
    let mut text = "a health check got no answer from the engine".to_string();
    if let Some(heartbeat) = heartbeat {
        text += &format!("; its last sign of life was at {heartbeat} by its own clock");
    }
    if known {
        text += &format!("; {running:.0} requests running");
    }
    let finding = Finding {
        severity: Severity::Error,
        source: ctx.source,
        figures: figures([("running", known.then_some(running))]),
        text,
        advice: "it hangs, or is overloaded beyond measure: see whether batches go on, else restart it",
    };
    ctx.raise(&server.name, DiagnosisKind::HealthCheckFailed, finding, ctx.t);
}

/// A health check was well.
pub(in crate::serving) fn health_well(server: &Server, ctx: &mut Ctx<'_>) {
    ctx.lower(&server.name, DiagnosisKind::HealthCheckFailed, ctx.t);
}

/// It starts again, or did so already.
pub(in crate::serving) fn restart(server: &Server, ctx: &mut Ctx<'_>, why: &str, done: bool) {
    let finding = Finding {
        severity: Severity::Warning,
        source: ctx.source,
        figures: figures([("context", server.limits.context.map(|c| c as f64))]),
        text: if done {
            format!("it was started again: {why}")
        } else {
            format!("{why}: weights and graphs take minutes")
        },
        advice: "calls in flight then are lost: faults of the surroundings, not of the model",
    };
    ctx.raise(&server.name, DiagnosisKind::Restart, finding, ctx.t);
}

/// It works again.
pub(in crate::serving) fn up(server: &Server, ctx: &mut Ctx<'_>) {
    use DiagnosisKind as K;
    for kind in [K::Crash, K::Watchdog, K::Unreachable, K::Restart] {
        ctx.lower(&server.name, kind, ctx.t);
    }
    // A warning about memory after the start is about the time from then on.
    let key = Key { kind: K::Oom, server: server.name.clone(), replica: None };
    if ctx.book.open_of(&key).is_some_and(|d| d.severity > Severity::Warning) {
        ctx.lower(&server.name, K::Oom, ctx.t);
    }
}

/// Its process is gone: what rests on its figures is over.
pub(in crate::serving) fn down(server: &Server, ctx: &mut Ctx<'_>) {
    let until = ctx.placed.then_some(ctx.t);
    let ours = |key: &Key| of_figures(key.kind) && key.replica.as_ref().is_none_or(|r| r.worker.is_none());
    ctx.book.lower_all(&server.name, ours, until);
}

/// Clients went away.
pub(in crate::serving) fn clients(server: &Server, ctx: &mut Ctx<'_>) {
    let rule = &ctx.thresholds.clients;
    let recent = server.disconnects.iter().filter(|at| (0.0..=rule.window).contains(&(ctx.t - **at))).count();
    let Some(first) = server.disconnects.iter().find(|at| (0.0..=rule.window).contains(&(ctx.t - **at))).copied()
    else {
        let last = server.disconnects.back().copied().unwrap_or(ctx.t);
        return ctx.lower(&server.name, DiagnosisKind::ClientTimeouts, last.min(ctx.t));
    };
    if (recent as f64) < rule.disconnects {
        return;
    }
    let window = words(rule.window);
    let finding = Finding {
        severity: Severity::Warning,
        source: ctx.source,
        figures: figures([("disconnects", Some(recent as f64))]),
        text: format!("{recent} clients went away before their answers came, within {window}"),
        advice: "the agent's time-out is shorter than the answers take: raise it, or set max_tokens",
    };
    ctx.raise(&server.name, DiagnosisKind::ClientTimeouts, finding, first);
}

/// Whether its sources reach it.
pub(in crate::serving) fn reach(server: &mut Server, sources: &[SourceView], index: usize, ctx: &mut Ctx<'_>) {
    let rule = &ctx.thresholds.reach;
    // A page of metrics on a port of its own says nothing of the server's.
    let of_server = || sources.iter().filter(|s| s.server == index && s.is_base());
    let mut worst: Option<(&SourceView, bool, Seconds)> = None;
    for source in of_server() {
        let fails = &source.failures;
        let refused = f64::from(fails.refused) >= rule.attempts;
        let silent = f64::from(fails.count) >= rule.attempts && ctx.t - fails.since >= rule.timeout_seconds;
        if (refused || silent) && worst.is_none_or(|(_, r, _)| refused && !r) {
            worst = Some((source, refused, fails.since));
        }
    }
    let Some((source, refused, since)) = worst else {
        if of_server().any(|s| s.failures.count == 0 && s.answers > 0) {
            ctx.lower(&server.name, DiagnosisKind::Unreachable, ctx.t);
        }
        return;
    };
    let count = f64::from(source.failures.count);
    let why = source.trouble.clone();
    let id = source.source.id;
    let starting = matches!(server.life, Life::Starting | Life::Restarting);
    if refused && !starting {
        gone(server, ctx, since);
    }
    // One death, one word.
    if starting || ctx.is_open(&server.name, DiagnosisKind::Crash) {
        return;
    }
    let how = if matches!(source.unreached, Some(Unreached::TimedOut)) && !refused {
        "takes connections and does not answer"
    } else {
        "is not reached"
    };
    let finding = Finding {
        severity: Severity::Fatal,
        source: id,
        figures: figures([("attempts", Some(count)), ("seconds", Some((ctx.t - since).max(0.0)))]),
        text: format!("it {how} since {}: {}", words((ctx.t - since).max(0.0)), why.as_deref().unwrap_or("no answer")),
        advice: "see whether its process and its host are there, and start it again",
    };
    ctx.raise(&server.name, DiagnosisKind::Unreachable, finding, since);
}

/// What ends by time.
pub(super) fn sweep(server: &mut Server, ctx: &mut Ctx<'_>) {
    use DiagnosisKind as K;
    while server.disconnects.front().is_some_and(|at| ctx.t - at > ctx.thresholds.clients.window)
        && server.disconnects.len() > 1
    {
        server.disconnects.pop_front();
    }
    clients(server, ctx);
    let t = ctx.t;
    let event = ctx.thresholds.confirm.event_seconds;
    // It goes on working: a restart that was over when it was seen, a failed check after which batches went on.
    if server.life == Life::Alive && t - server.life_since >= event {
        let restarted = Key { kind: DiagnosisKind::Restart, server: server.name.clone(), replica: None };
        let since = ctx.book.open_of(&restarted).and_then(|d| d.since).map(crate::serving::state::clock::of_stamp);
        if since.is_none_or(|since| t - since >= event) {
            ctx.lower(&server.name, DiagnosisKind::Restart, t);
        }
    }
    if server.life != Life::Alive {
        return;
    }
    // Batches that go on show that it got over it: a check that failed, a watchdog that only warns, a request
    // that died for want of memory.
    let batch = server.own_rows().filter_map(|row| row.watch.last_batch).fold(f64::MIN, f64::max);
    let healthy = server.health_failed.is_none();
    for (kind, after) in [(K::HealthCheckFailed, 10.0), (K::Watchdog, 10.0), (K::Oom, event)] {
        let key = Key { kind, server: server.name.clone(), replica: None };
        let Some(open) = ctx.book.open_of(&key) else { continue };
        let warns = kind == K::Oom && open.severity <= Severity::Warning;
        let since = open.since.map(crate::serving::state::clock::of_stamp);
        if (healthy || kind != K::HealthCheckFailed) && !warns && since.is_some_and(|since| batch > since + after) {
            ctx.lower(&server.name, kind, batch.min(t));
        }
    }
}
