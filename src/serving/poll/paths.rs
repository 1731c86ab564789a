//! The paths of an engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::Missed;
use super::detect::{self, Found};
use super::pace::Pace;
use super::{ABSENT, End, HEALTH, HEALTH_EVERY, INFO, INFO_EVERY, LATER, QUICK, Server, THERE};
use crate::serving::{Counters, Engine, Figures, Load, Seen, Unreached, page};

/// What follows from an answer that did not come.
enum Then {
    /// Ask again.
    Again,
    /// Not of this server.
    End(End),
}

/// Tells of it, and decides.
async fn miss(server: &Server, missed: &Missed, pace: &mut Pace) -> Then {
    if let Err(end) = server.missed(missed).await {
        return Then::End(end);
    }
    if missed.is_gone() {
        return Then::End(End::Anew);
    }
    match missed.how {
        Unreached::Unauthorised => pace.rest(LATER),
        // It hangs or is swamped: no need to add to that.
        Unreached::TimedOut => pace.rest(server.every.min(Duration::from_secs(2))),
        Unreached::Refused | Unreached::Status(_) | Unreached::Garbled => pace.rest(server.every),
    }
    Then::Again
}

fn garbled(path: &'static str, why: page::Unreadable) -> Missed {
    Missed::new(path, Unreached::Garbled, &why.to_string())
}

/// Pages of many ranks take milliseconds, which the screen's thread does not have.
async fn aside<T: Send + 'static>(body: Vec<u8>, read: fn(&[u8]) -> T) -> Option<T> {
    if body.len() < 64 << 10 {
        return Some(read(&body));
    }
    tokio::task::spawn_blocking(move || read(&body)).await.ok()
}

/// Whether a server was started anew between two looks at the same page.
#[derive(Default)]
struct Grown {
    last: Vec<(Option<u16>, Counters)>,
}

impl Grown {
    /// Whether the tokens generated are fewer than before, and those prefilled are not.
    fn only_generated_fell(&self, loads: &[Load]) -> bool {
        loads.iter().any(|load| {
            let before = self.last.iter().find(|(rank, _)| *rank == load.rank).map(|(_, c)| c);
            before.is_some_and(|before| {
                let now = &load.counters;
                now.generated.zip(before.generated).is_some_and(|(now, before)| now < before)
                    && now.prefilled.zip(before.prefilled).is_some_and(|(now, before)| now >= before)
            })
        })
    }

    fn fell(&mut self, loads: &[Load]) -> bool {
        let less = |now: Option<f64>, before: Option<f64>| now.zip(before).is_some_and(|(now, before)| now < before);
        let fell = loads.iter().any(|load| {
            let before = self.last.iter().find(|(rank, _)| *rank == load.rank).map(|(_, c)| c);
            before.is_some_and(|before| {
                let now = &load.counters;
                let moved = now.started.zip(before.started).is_some_and(|(a, b)| (a - b).abs() > 0.5);
                moved
                    || less(now.generated, before.generated)
                    || less(now.prefilled, before.prefilled)
                    || less(now.retracted, before.retracted)
            })
        });
        self.last = loads.iter().map(|load| (load.rank, load.counters)).collect();
        fell
    }
}

/// Of a server that has nothing else: whether it still lists its models. Until it does not, or it is time to
/// look anew what is there.
pub(super) async fn listed(server: &Server) -> Result<(), End> {
    let begun = tokio::time::Instant::now();
    let mut pace = Pace::new(server.every.max(Duration::from_secs(1)));
    while begun.elapsed() < INFO_EVERY {
        pace.turn().await;
        match server.target.page("/v1/models", QUICK).await {
            Ok(_) => server.say(Seen::Health(true)).await?,
            Err(missed) => {
                server.missed(&missed).await?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// SGLang's load per rank.
pub(super) async fn loads(server: Arc<Server>, old: bool) -> End {
    let mut pace = Pace::new(server.every);
    let mut grown = Grown::default();
    let mut version: Option<Arc<str>> = None;
    // Sums over decode steps that begin anew while the server goes on are no counters.
    let mut trusted = true;
    let path = if old { "/get_load" } else { "/v1/loads" };
    loop {
        pace.turn().await;
        let read = match server.target.page(path, QUICK).await {
            Ok(body) if old => page::get_load(&body).map(|loads| page::Loads { version: None, loads }),
            Ok(body) => page::loads(&body),
            Err(missed) if missed.is_absent() => {
                server.loads.store(ABSENT, Ordering::Relaxed);
                return End::Absent;
            }
            Err(missed) => {
                if missed.how == Unreached::Unauthorised {
                    server.loads.store(ABSENT, Ordering::Relaxed);
                }
                match miss(&server, &missed, &mut pace).await {
                    Then::Again => continue,
                    Then::End(end) => return end,
                }
            }
        };
        let mut read = match read {
            Ok(read) => read,
            Err(why) => match miss(&server, &garbled(path, why), &mut pace).await {
                Then::Again => continue,
                Then::End(end) => return end,
            },
        };
        server.loads.store(THERE, Ordering::Relaxed);
        let other = version.is_some() && read.version.is_some() && version != read.version;
        version = read.version.or(version);
        trusted = trusted && !grown.only_generated_fell(&read.loads);
        if !trusted {
            read.loads.iter_mut().for_each(|load| load.counters.generated = None);
        }
        let anew = grown.fell(&read.loads) || other;
        if server.metrics.load(Ordering::Relaxed) != ABSENT {
            // Each counter from one page only: this one is a snapshot, a little older than the metrics,
            // and a counter that falls is a server that was started anew.
            read.loads.iter_mut().for_each(|load| load.counters = Counters::default());
        }
        if let Err(end) = server.say(Seen::Loads(read.loads)).await {
            return end;
        }
        if anew {
            return End::Anew;
        }
    }
}

/// Leaves in a load from the metrics what `/v1/loads` does not say. Schedulers bring their metrics up to
/// date every few dozen steps only.
fn beside_loads(load: &mut Load) {
    let Figures { swa, mamba_slots, mamba, graph, accept_len, .. } = load.figures;
    load.figures = Figures { swa, mamba_slots, mamba, graph, accept_len, ..Figures::default() };
}

/// A page of metrics at the server itself.
pub(super) async fn metrics(server: Arc<Server>) -> End {
    let mut pace = Pace::new(server.every);
    let mut look = Look::default();
    loop {
        pace.turn().await;
        let body = match server.target.page("/metrics", QUICK).await {
            Ok(body) => body,
            Err(missed) if missed.is_absent() => {
                server.metrics.store(ABSENT, Ordering::Relaxed);
                return End::Absent;
            }
            Err(missed) => match miss(&server, &missed, &mut pace).await {
                Then::Again => continue,
                Then::End(end) => return end,
            },
        };
        match look.at(&server, body).await {
            Ok(true) => return End::Anew,
            Ok(false) => {}
            Err(Stop::End(end)) => return end,
            Err(Stop::Missed(missed)) => {
                if let Then::End(end) = miss(&server, &missed, &mut pace).await {
                    return end;
                }
            }
        }
    }
}

enum Stop {
    End(End),
    Missed(Missed),
}

/// What is remembered from one page of metrics to the next.
#[derive(Default)]
struct Look {
    grown: Grown,
    drafts: Option<(f64, f64)>,
}

impl Look {
    /// Reads a page and tells what it says; true when the server was started anew.
    async fn at(&mut self, server: &Server, body: Vec<u8>) -> Result<bool, Stop> {
        let unreadable = || Stop::Missed(garbled("/metrics", page::Unreadable("metrics of a model server")));
        let read = aside(body, page::metrics).await.ok_or_else(unreadable)?;
        let mut read = read.map_err(|why| Stop::Missed(garbled("/metrics", why)))?;
        if read.loads.is_empty() {
            return Err(unreadable());
        }
        server.metrics.store(THERE, Ordering::Relaxed);
        let anew = self.grown.fell(&read.loads);
        self.speculation(&mut read);
        if server.loads.load(Ordering::Relaxed) == THERE {
            read.loads.iter_mut().for_each(beside_loads);
        }
        server.say(Seen::Loads(read.loads)).await.map_err(Stop::End)?;
        Ok(anew)
    }

    /// Mean tokens per verify step since the last page; vLLM counts steps and accepted tokens only.
    fn speculation(&mut self, read: &mut page::Metrics) {
        if let (Some((drafts, accepted)), Some((drafts0, accepted0)), [load]) =
            (read.drafts, self.drafts, read.loads.as_mut_slice())
        {
            let (steps, tokens) = (drafts - drafts0, accepted - accepted0);
            if steps > 0.0 && tokens >= 0.0 {
                // With the bonus token.
                load.figures.accept_len = Some((1.0 + tokens / steps) as f32);
            }
        }
        self.drafts = read.drafts;
    }
}

/// A page of metrics with a source of its own: an engine's, or a router's with the circuits.
pub(super) async fn apart(server: Arc<Server>) -> End {
    let mut pace = Pace::new(server.every);
    let mut look = Look::default();
    let mut told = None;
    loop {
        pace.turn().await;
        let body = match server.target.page("", QUICK).await {
            Ok(body) => body,
            Err(missed) => {
                let missed = Missed { path: "/metrics", ..missed };
                let pause = server.every.max(Duration::from_secs(1)).min(Duration::from_secs(3));
                pace.rest(if missed.how == Unreached::Unauthorised { LATER } else { pause });
                match server.missed(&missed).await {
                    Ok(()) => continue,
                    Err(end) => return end,
                }
            }
        };
        let workers = page::circuits(&body);
        let told_now = if workers.is_ok() { Engine::Router } else { Engine::Sglang };
        if told != Some(told_now) {
            (look, told) = (Look::default(), Some(told_now));
        }
        let said = match workers {
            Ok(workers) => server.say(Seen::Workers(workers)).await.map_err(Stop::End),
            Err(_) => look.at(&server, body).await.map(drop),
        };
        match said {
            Ok(()) => {}
            Err(Stop::End(end)) => return end,
            Err(Stop::Missed(missed)) => {
                if let Err(end) = server.missed(&missed).await {
                    return end;
                }
            }
        }
    }
}

/// Health: seldom, with patience.
pub(super) async fn health(server: Arc<Server>) -> End {
    let mut pace = Pace::new(HEALTH_EVERY);
    // At the start the other paths tell enough.
    pace.rest(Duration::from_secs(5));
    loop {
        pace.turn().await;
        let said = match server.target.get("/health", HEALTH).await {
            Ok(answer) if matches!(answer.status, 200..300) => server.say(Seen::Health(true)).await,
            Ok(answer) if answer.status == 503 => server.say(Seen::Health(false)).await,
            Ok(answer) if answer.status == 404 => return End::Absent,
            Ok(answer) => match super::client::refusal("/health", answer.status) {
                Some(missed) => server.missed(&missed).await,
                None => Ok(()),
            },
            Err(missed) => match miss(&server, &missed, &mut pace).await {
                Then::Again => Ok(()),
                Then::End(end) => Err(end),
            },
        };
        if let Err(end) = said {
            return end;
        }
    }
}

/// What SGLang says of itself: seldom, and with little patience, as it asks the scheduler.
pub(super) async fn info(server: Arc<Server>, found: Found) -> End {
    let path = if found.old { "/get_server_info" } else { "/server_info" };
    // Detection has just asked.
    let mut pace = Pace::new(if found.whole { INFO_EVERY } else { LATER });
    pace.turn().await;
    loop {
        pace.turn().await;
        let said = match server.target.page(path, INFO).await {
            Ok(body) => match detect::renewed(&found, &body) {
                Ok(info) => {
                    pace = Pace::new(INFO_EVERY);
                    pace.rest(INFO_EVERY);
                    server.say(Seen::Info(info)).await
                }
                Err(why) => server.missed(&garbled(path, why)).await,
            },
            Err(missed) if missed.is_absent() => return End::Absent,
            Err(missed) => match miss(&server, &missed, &mut pace).await {
                Then::Again => Ok(()),
                Then::End(end) => Err(end),
            },
        };
        if let Err(end) = said {
            return end;
        }
    }
}
