//! The paths of a router, and its workers asked directly where they can be reached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::client::{Missed, Target};
use super::pace::Pace;
use super::{End, LATER, QUICK, Server, Sink, Task, start};
use crate::job::Stamp;
use crate::serving::{Observation, Seen, Unreached, Worker, page};

/// Workers that are asked directly.
const DIRECT: usize = 64;
/// Where a router's metrics are when nobody says otherwise.
const METRICS_PORT: u16 = 29_000;

/// A worker that is asked directly, by its URL.
type Direct = BTreeMap<Arc<str>, (Arc<Server>, Task)>;

async fn miss(server: &Server, missed: &Missed, pace: &mut Pace) -> Result<(), End> {
    server.missed(missed).await?;
    match missed.how {
        _ if missed.is_gone() => return Err(End::Anew),
        Unreached::Unauthorised => pace.rest(LATER),
        _ => pace.rest(server.every.min(Duration::from_secs(2))),
    }
    Ok(())
}

/// The workers as the router sees them, and their own word.
pub(super) async fn workers(server: Arc<Server>, old: bool) -> End {
    let mut pace = Pace::new(server.every);
    let mut direct = Direct::new();
    let merged = AtomicBool::new(true);
    loop {
        pace.turn().await;
        let read = if old { listed(&server.target).await } else { own(&server.target).await };
        let workers = match read {
            Ok(workers) => workers,
            Err(missed) if missed.is_absent() => return End::Anew,
            Err(missed) => match miss(&server, &missed, &mut pace).await {
                Ok(()) => continue,
                Err(end) => return end,
            },
        };
        renew(&server, &mut direct, &workers);
        server.know(&workers);
        if let Err(end) = server.say(Seen::Workers(workers)).await {
            return end;
        }
        let unseen = direct.values().any(|(worker, _)| !worker.alive.load(Ordering::Relaxed));
        if unseen
            && merged.load(Ordering::Relaxed)
            && let Err(end) = merge(&server, &direct, &merged).await
        {
            return end;
        }
    }
}

async fn own(target: &Target) -> Result<Vec<Worker>, Missed> {
    let body = target.page("/workers", QUICK).await?;
    page::workers(&body).map_err(|e| Missed::new("/workers", Unreached::Garbled, &e.to_string()))
}

/// Of a router before `/workers`: the list, and the loads where it could ask for them.
async fn listed(target: &Target) -> Result<Vec<Worker>, Missed> {
    let body = target.page("/list_workers", QUICK).await?;
    let mut workers =
        page::list_workers(&body).map_err(|e| Missed::new("/list_workers", Unreached::Garbled, &e.to_string()))?;
    if let Ok(body) = target.page("/get_loads", QUICK).await
        && let Ok(loads) = page::get_loads(&body)
    {
        for worker in &mut workers {
            let of = loads.iter().find(|(url, rank, _)| *url == worker.url && *rank == worker.rank);
            worker.load = of.and_then(|(_, _, load)| *load);
        }
    }
    Ok(workers)
}

/// Asks those that are there, and no others. They get no key: the router names them, not the operator.
fn renew(server: &Server, direct: &mut Direct, workers: &[Worker]) {
    direct.retain(|url, _| workers.iter().any(|worker| worker.url == *url));
    for worker in workers {
        if direct.len() >= DIRECT || direct.contains_key(&worker.url) {
            continue;
        }
        let Some(target) = server.target.other(&worker.url) else { continue };
        let sink = Sink { tx: server.sink.tx.clone(), source: server.sink.source };
        let mut of_it = Server::new(target, sink, server.every);
        of_it.worker = Some(Arc::clone(&worker.url));
        let of_it = Arc::new(of_it);
        direct.insert(Arc::clone(&worker.url), (Arc::clone(&of_it), start(of_it)));
    }
}

/// The merged page of metrics, for those that can not be asked directly.
async fn merge(server: &Server, direct: &Direct, merged: &AtomicBool) -> Result<(), End> {
    let body = match server.target.page("/engine_metrics", QUICK).await {
        Ok(body) => body,
        Err(missed) if missed.is_absent() => {
            merged.store(false, Ordering::Relaxed);
            return Ok(());
        }
        // The workers and the readiness are its word; this is a help.
        Err(_) => return Ok(()),
    };
    let read = if body.len() < 64 << 10 {
        page::workers_metrics(&body)
    } else {
        tokio::task::spawn_blocking(move || page::workers_metrics(&body)).await.unwrap_or_default()
    };
    let mut batch = Vec::new();
    for (called, metrics) in read {
        let (url, rank) = page::worker_url(&called);
        if direct.get(&url).is_some_and(|(worker, _)| worker.alive.load(Ordering::Relaxed)) {
            continue;
        }
        let mut loads = metrics.loads;
        if let (Some(rank), [only]) = (rank, loads.as_mut_slice()) {
            only.rank = Some(rank);
        }
        let seen = Seen::OfWorker { worker: url, seen: Box::new(Seen::Loads(loads)) };
        batch.push(Observation { source: server.sink.source, at: Some(Stamp::now()), seen });
    }
    if batch.is_empty() {
        return Ok(());
    }
    server.sink.tx.send(batch).await.map_err(|_| End::Closed)
}

/// How many of its workers are healthy. With none it answers 503 and does not say of how many.
pub(super) async fn readiness(server: Arc<Server>) -> End {
    let mut pace = Pace::new(server.every);
    let mut known = 0;
    loop {
        pace.turn().await;
        let answer = match server.target.get("/readiness", QUICK).await {
            Ok(answer) => answer,
            Err(missed) => match miss(&server, &missed, &mut pace).await {
                Ok(()) => continue,
                Err(end) => return end,
            },
        };
        let said = match page::readiness(&answer.body) {
            Ok((healthy, total)) => {
                known = total.unwrap_or(known);
                server.say(Seen::Readiness { healthy, total: total.unwrap_or(known) }).await
            }
            Err(why) => {
                let garbled = Missed::new("/readiness", Unreached::Garbled, &why.to_string());
                miss(&server, &super::client::refusal("/readiness", answer.status).unwrap_or(garbled), &mut pace).await
            }
        };
        if let Err(end) = said {
            return end;
        }
    }
}

/// The circuits, which only the metrics tell, where they are at the port that a router takes by itself.
/// It may be another router's: then its workers are others.
pub(super) async fn circuits(server: Arc<Server>) -> End {
    let ours = server.target.port_number();
    let Some(target) = server.target.port(METRICS_PORT).filter(|_| ours != Some(METRICS_PORT)) else {
        return End::Absent;
    };
    let mut pace = Pace::new(server.every);
    let mut was_ours = false;
    loop {
        pace.turn().await;
        let read = target.page("/metrics", QUICK).await.ok().and_then(|body| page::circuits(&body).ok());
        let workers = read.filter(|workers| !workers.is_empty() && server.knows(workers));
        match workers {
            Some(workers) => {
                was_ours = true;
                if let Err(end) = server.say(Seen::Workers(workers)).await {
                    return end;
                }
            }
            None if was_ours => {}
            None => pace.rest(LATER),
        }
    }
}
