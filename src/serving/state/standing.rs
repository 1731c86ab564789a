//! How each row stands, and on what evidence.

use super::clock::Seconds;
use super::readings::Field;
use super::replica::Replica;
use super::server::{Life, Server};
use crate::job::time::words;
use crate::serving::rules::{Book, Key};
use crate::serving::thresholds::Thresholds;
use crate::serving::{Circuit, DiagnosisKind, State};

/// Seconds for which figures tell the state.
const FRESH: f64 = 30.0;

pub(super) fn stand(server: &mut Server, book: &Book, thresholds: &Thresholds, t: Seconds) {
    let around = Around {
        life: server.life,
        words: server.life_words.clone(),
        life_since: server.life_since,
        watchdog: server.watchdog_at,
        polled: server.polled,
        name: server.name.clone(),
    };
    for row in server.rows.iter_mut() {
        let (state, evidence) = if row.key.worker.is_some() {
            worker(row, t, around.life).unwrap_or_else(|| of_figures(row, book, thresholds, t, &around))
        } else {
            of_server(row, book, thresholds, t, &around)
        };
        row.stand(state, evidence, t);
    }
}

struct Around {
    life: Life,
    words: std::sync::Arc<str>,
    life_since: Seconds,
    watchdog: Option<Seconds>,
    polled: bool,
    name: std::sync::Arc<str>,
}

/// What a router says of a worker decides where it takes no requests.
fn worker(row: &Replica, t: Seconds, router: Life) -> Option<(State, String)> {
    let view = row.router.as_ref()?;
    if router == Life::Dead {
        return Some((State::Unknown, "its router is not reached".to_string()));
    }
    if t - view.at > 90.0 {
        return Some((State::Unknown, format!("its router last told of it {} ago", words(t - view.at))));
    }
    if view.worker.healthy == Some(false) {
        return Some((State::Dead, "the router's health checks of it fail".to_string()));
    }
    if view.worker.circuit == Some(Circuit::Open) {
        return Some((State::Dead, "the router's circuit to it is open".to_string()));
    }
    None
}

fn of_server(row: &Replica, book: &Book, thresholds: &Thresholds, t: Seconds, around: &Around) -> (State, String) {
    let since = words((t - around.life_since).max(0.0));
    match around.life {
        Life::Dead => (State::Dead, format!("{}, {since} ago", around.words)),
        Life::Restarting => (State::Restarting, format!("{}, {since} ago", around.words)),
        Life::Starting => (State::Starting, format!("{}, {since} ago", around.words)),
        Life::Alive | Life::Unknown => {
            if let Some(at) = around.watchdog {
                return (State::Hung, format!("its watchdog fired {} ago", words((t - at).max(0.0))));
            }
            of_figures(row, book, thresholds, t, around)
        }
    }
}

fn of_figures(row: &Replica, book: &Book, thresholds: &Thresholds, t: Seconds, around: &Around) -> (State, String) {
    let open = |kind| {
        let key = Key { kind, server: row.key.server.clone(), replica: Some(row.key.clone()) };
        book.open_of(&key)
    };
    if row.watch.raised != 0
        && let Some(hang) = open(DiagnosisKind::Hang)
    {
        return (State::Hung, hang.text.to_string());
    }
    let unreachable = Key { kind: DiagnosisKind::Unreachable, server: around.name.clone(), replica: None };
    if let Some(unreachable) = book.open_of(&unreachable).filter(|_| row.key.worker.is_none()) {
        return (State::Hung, unreachable.text.to_string());
    }
    let thrown = row.watch.retractions.within(t, thresholds.retraction.seconds.min(FRESH));
    if let Some((requests, _, last)) = thrown {
        let ago = words((t - last).max(0.0));
        return (State::Retracting, format!("{requests} thrown out of the pool, the last {ago} ago"));
    }
    let running = row.readings.get(Field::Running);
    let Some(running) = running else {
        return match around.life {
            Life::Alive => (State::Ready, around.words.to_string()),
            _ => (State::Unknown, "no figures yet".to_string()),
        };
    };
    let age = (t - running.at).max(0.0);
    let fresh = age <= FRESH.max(3.0 * row.watch.gaps.median().unwrap_or(0.0));
    let (r, q) = (running.value, row.readings.value(Field::Queued));
    if !fresh {
        // vLLM says so once before it falls silent; SGLang says nothing when idle, and in a hang neither.
        return if r == 0.0 && q.unwrap_or(0.0) == 0.0 {
            (State::Idle, format!("nothing was running {} ago, and nothing was said since", words(age)))
        } else if around.polled {
            (State::Unknown, format!("its last figures are {} old", words(age)))
        } else {
            (State::Unknown, format!("no batch line for {}: idle servers print none, hung ones neither", words(age)))
        };
    }
    let queued = q.map_or(String::new(), |q| format!(", {q:.0} waiting"));
    if r == 0.0 && q.unwrap_or(0.0) == 0.0 {
        let ran = row.ever_ran;
        let state = if ran { State::Idle } else { State::Ready };
        return (state, if ran { "nothing runs".to_string() } else { "nothing has run yet".to_string() });
    }
    let most = row.limits.max_running.map(f64::from);
    let slots = most.is_some_and(|m| r >= m - thresholds.queueing.slack);
    let full = row.readings.value(Field::Kv).is_some_and(|u| u >= thresholds.queueing.kv);
    let state_slots = row.readings.value(Field::Mamba).is_some_and(|v| v >= thresholds.mamba.usage);
    if q.is_some_and(|q| q > 0.0) && (slots || full || state_slots || open(DiagnosisKind::Queueing).is_some()) {
        let why = if slots {
            "all slots taken".to_string()
        } else if state_slots {
            "state slots taken".to_string()
        } else if full {
            format!("pool at {:.2}", row.readings.value(Field::Kv).unwrap_or(0.0))
        } else {
            "a queue that stays".to_string()
        };
        return (State::Saturated, format!("{r:.0} running{queued}: {why}"));
    }
    (State::Decoding, format!("{r:.0} running{queued}"))
}
