//! What happens to a server: starts, deaths, failed checks, as its log and its answers tell.

use std::sync::Arc;

use super::clock::Seconds;
use super::server::{Life, Server};
use crate::serving::rules::{self, Ctx, Key};
use crate::serving::{DiagnosisKind, Event, Line, LineTime};

/// Seconds after a death within which other processes of the server still print.
const DYING: Seconds = 10.0;
/// Clients that went away, remembered one by one.
const DISCONNECTS: usize = 512;
/// Workers whose failed probes are counted.
const PROBES: usize = 64;

/// A line shows that the engine works.
pub(super) fn alive(server: &mut Server, ctx: &mut Ctx<'_>, words: &str) {
    let t = ctx.t;
    server.health_failed = server.health_failed.filter(|(_, last)| *last > t);
    match server.life {
        Life::Alive => {}
        Life::Dead if t - server.life_since < DYING && t >= server.life_since => return,
        _ => {
            server.live(Life::Alive, words, t);
            rules::up(server, ctx);
        }
    }
    if server.compiling_log {
        server.compiling_log = false;
    } else {
        server.compiling = None;
    }
    server.watchdog_at = None;
}

/// An answer shows that the server is there. One that starts by its own log stays so until it is ready.
pub(super) fn answers(server: &mut Server, ctx: &mut Ctx<'_>) {
    let t = ctx.t;
    match server.life {
        Life::Alive => {}
        // A crash that its log tells leaves processes that answer for a while. One that was only not reached
        // is back.
        Life::Dead if t - server.life_since < DYING && t >= server.life_since && crashed(server, ctx) => {}
        Life::Starting | Life::Restarting if server.logged && t - server.life_since < 1_800.0 => {}
        _ => {
            server.live(Life::Alive, "it answers", t);
            rules::up(server, ctx);
        }
    }
}

fn failed(server: &mut Server, t: Seconds) {
    let first = server.health_failed.map_or(t, |(first, _)| first.min(t));
    server.health_failed = Some((first, t));
}

fn crashed(server: &Server, ctx: &Ctx<'_>) -> bool {
    ctx.book.is_open(&Key { kind: DiagnosisKind::Crash, server: server.name.clone(), replica: None })
}

/// A health check was answered, well or badly.
pub(super) fn health(server: &mut Server, ctx: &mut Ctx<'_>, well: bool) {
    if well {
        server.health_failed = None;
        answers(server, ctx);
        rules::health_well(server, ctx);
    } else if !matches!(server.life, Life::Starting | Life::Restarting) {
        failed(server, ctx.t);
        rules::health_failed(server, ctx, None);
    }
}

/// The Unix time of the process's start.
pub(super) fn started(server: &mut Server, ctx: &mut Ctx<'_>, at: Option<f64>) {
    let Some(at) = at.filter(|at| at.is_finite()) else { return };
    let before = server.started.replace(at);
    // The clock of its host may be corrected a little.
    if before.is_some_and(|before| at - before > 5.0) {
        restarted(server, ctx, "its process is a new one");
    }
}

/// It is another process than before, and answers already.
pub(super) fn restarted(server: &mut Server, ctx: &mut Ctx<'_>, why: &str) {
    forget(server, ctx);
    if server.life == Life::Alive {
        rules::restart(server, ctx, why, true);
    }
}

/// What was known of the process that is gone holds no more.
fn forget(server: &mut Server, ctx: &mut Ctx<'_>) {
    rules::down(server, ctx);
    server.own_rows().for_each(super::Replica::forget);
    server.health_failed = None;
    server.watchdog_at = None;
    server.compiling = None;
}

/// It is gone.
fn dead(server: &mut Server, ctx: &mut Ctx<'_>, words: &str) {
    let t = ctx.t;
    server.was_alive = true;
    if server.life != Life::Dead {
        forget(server, ctx);
    }
    server.live(Life::Dead, words, t);
}

/// Attempts to reach it were refused.
pub(in crate::serving) fn gone(server: &mut Server, ctx: &mut Ctx<'_>, since: Seconds) {
    if !matches!(server.life, Life::Dead | Life::Restarting | Life::Starting) {
        let was = server.was_alive;
        dead(server, ctx, "connections are refused");
        server.was_alive = was;
        server.life_since = since.min(ctx.t);
    }
}

fn words_of(time: LineTime) -> String {
    let s = time.millis / 1000;
    format!("{:02}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60)
}

/// Takes an event of a log.
pub(super) fn take(server: &mut Server, ctx: &mut Ctx<'_>, line: &Line, event: &Event) {
    let t = ctx.t;
    match event {
        Event::Starting => {
            let again = server.was_alive || server.life == Life::Dead;
            // Several processes print their arguments.
            if matches!(server.life, Life::Starting | Life::Restarting) {
                return;
            }
            forget(server, ctx);
            if again {
                server.live(Life::Restarting, "its arguments were printed again", t);
                rules::restart(server, ctx, "it starts again", false);
            } else {
                server.live(Life::Starting, "its arguments were printed", t);
            }
        }
        Event::Stage(stage) => match server.life {
            Life::Starting | Life::Restarting => {
                let life = server.life;
                server.live(life, stage, t);
            }
            Life::Unknown => server.live(Life::Starting, stage, t),
            Life::Alive => {
                server.compiling = Some(t);
                server.compiling_log = true;
            }
            Life::Dead => {}
        },
        Event::Limits(limits) => {
            server.take_limits(limits, line.ranks.dp);
            rules::memory(server, ctx);
        }
        Event::Ready => {
            server.live(Life::Alive, "it said that it is ready", t);
            rules::up(server, ctx);
        }
        Event::Retracted { requests } => {
            let requests = requests.unwrap_or(1).max(1);
            if let Some(row) = server.row(None, line.ranks.dp)
                && let Some(new) = row.watch.retractions.line(t, requests, line.ranks.tp)
            {
                rules::count_retracted(row, t, new, ctx.thresholds.collapse.after_window);
                rules::retraction(row, ctx);
                rules::pool(row, ctx);
            }
        }
        Event::Aborted(_) => server.aborted = server.aborted.saturating_add(1),
        Event::Disconnected(_) => {
            if server.disconnects.len() >= DISCONNECTS {
                server.disconnects.pop_front();
            }
            server.disconnects.push_back(t);
            rules::clients(server, ctx);
        }
        Event::OutOfMemory => rules::oom(server, ctx),
        Event::Crashed { code } => {
            let running = server.own_rows().filter_map(|row| row.figures().running).fold(0, u32::saturating_add);
            rules::crash(server, ctx, *code, running, line.ranks.dp);
            let words = match code {
                Some(code) => format!("a process of it died with exit code {code}"),
                None => "a process of it died".to_string(),
            };
            dead(server, ctx, &words);
        }
        Event::Watchdog { after } => {
            server.watchdog_at = Some(t);
            rules::watchdog(server, ctx, after.map(f64::from), line.ranks.dp);
        }
        Event::HealthCheckFailed { last_heartbeat } => {
            failed(server, t);
            rules::health_failed(server, ctx, last_heartbeat.map(words_of));
        }
        Event::QueueFull => rules::queue_full(server, ctx, line.ranks.dp),
        Event::CacheFlushed => server.own_rows().for_each(|row| row.watch.prompts.clear()),
        Event::Access { .. } => {}
        Event::WorkerProbeFailed(url) => {
            let quiet = ctx.thresholds.router.quiet_seconds;
            if let Some((_, count, last)) = server.probes.iter_mut().find(|(known, _, _)| known == url) {
                *count = if t - *last > quiet { 1 } else { count.saturating_add(1) };
                *last = t;
            } else if server.probes.len() < PROBES {
                server.probes.push((Arc::clone(url), 1, t));
            }
            rules::probes(server, ctx);
        }
        Event::Circuit { to } => rules::circuit(server, ctx, *to),
    }
}

/// Kinds that rest on the figures of a process, and end with it.
pub(in crate::serving) fn of_figures(kind: DiagnosisKind) -> bool {
    use DiagnosisKind as K;
    matches!(
        kind,
        K::Hang
            | K::HealthCheckFailed
            | K::Retraction
            | K::PoolSaturated
            | K::MambaSlotsExhausted
            | K::Queueing
            | K::RunawayGeneration
            | K::ThroughputCollapse
            | K::UnevenRanks
            | K::PrefixCacheThrash
            | K::SpeculationNotPaying
            | K::IdleServer
            | K::ClientTimeouts
    )
}
