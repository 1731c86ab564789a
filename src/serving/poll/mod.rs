//! Asking servers over HTTP: what is there, then each of its paths at its own pace.
//!
//! Detection asks in an order that no server minds: `/v1/models` (whose `owned_by` tells), then what only
//! that engine has. Paths that new versions call deprecated are asked of old ones alone: each such call
//! writes a warning into the log that is being read. Each path has its own task, so that one that hangs
//! delays no other.

pub(in crate::serving) mod client;
mod detect;
mod pace;
mod paths;
mod router;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::{Engine, Observation, Seen, SourceId, Worker};
use crate::job::Stamp;
use client::{Missed, Target};

/// Longest wait for what is asked all the time. With the pace of 2 s a hang is known within 5 s.
const QUICK: Duration = Duration::from_millis(2500);
/// Longest wait for what a server has to ask its scheduler for: a hung one never answers.
const INFO: Duration = Duration::from_secs(3);
/// Longest wait for a health check: SGLang gives up after 20 s itself.
const HEALTH: Duration = Duration::from_secs(25);
/// Between health checks: each is a request to the model where nothing else runs.
const HEALTH_EVERY: Duration = Duration::from_secs(20);
/// Between looks at what hardly changes.
const INFO_EVERY: Duration = Duration::from_secs(60);
/// Until what was not to be had is asked for again: a key that is wanted, a scheduler that hangs.
const LATER: Duration = Duration::from_secs(15);
/// Until a server that was started anew is looked at.
const ANEW: Duration = Duration::from_millis(200);
/// Longest pause between two attempts at a dead server.
const DEAD: Duration = Duration::from_secs(3);
/// The same for a worker that never answered: it may not be reachable from here at all.
const UNSEEN: Duration = Duration::from_secs(60);

/// A task that ends with its owner.
pub(in crate::serving) struct Task(pub(in crate::serving) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a path is not asked any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nobody listens.
    Closed,
    /// It was started anew, or is gone: look again at what is there.
    Anew,
    /// It has no such path.
    Absent,
}

/// Where observations go.
#[derive(Clone)]
pub(in crate::serving) struct Sink {
    pub(in crate::serving) tx: mpsc::Sender<Vec<Observation>>,
    pub(in crate::serving) source: SourceId,
}

/// Whether a page is to be had, as far as is known.
const UNKNOWN: u8 = 0;
const THERE: u8 = 1;
const ABSENT: u8 = 2;

/// A server that is asked.
pub(in crate::serving) struct Server {
    pub(in crate::serving) target: Target,
    pub(in crate::serving) sink: Sink,
    /// Of which router it is a worker.
    pub(in crate::serving) worker: Option<Arc<str>>,
    /// Between two looks at its load.
    pub(in crate::serving) every: Duration,
    /// The page of metrics has a source of its own.
    pub(in crate::serving) metrics_elsewhere: bool,
    /// What it is, once that is known.
    pub(in crate::serving) engine: Arc<Mutex<Option<Engine>>>,
    /// It has answered.
    answered: AtomicBool,
    /// Whether it answers just now.
    alive: AtomicBool,
    loads: AtomicU8,
    metrics: AtomicU8,
    /// Of a router: who its workers are.
    workers: Mutex<Vec<(Arc<str>, Option<u16>)>>,
}

impl Server {
    pub(in crate::serving) fn new(target: Target, sink: Sink, every: Duration) -> Server {
        Server {
            target,
            sink,
            worker: None,
            every,
            metrics_elsewhere: false,
            engine: Arc::default(),
            answered: AtomicBool::new(false),
            alive: AtomicBool::new(false),
            loads: AtomicU8::new(UNKNOWN),
            metrics: AtomicU8::new(UNKNOWN),
            workers: Mutex::default(),
        }
    }

    /// Tells what was seen.
    async fn say(&self, seen: Seen) -> Result<(), End> {
        let seen = match &self.worker {
            None => seen,
            Some(worker) => Seen::OfWorker { worker: Arc::clone(worker), seen: Box::new(seen) },
        };
        self.answered.store(true, Ordering::Relaxed);
        self.alive.store(true, Ordering::Relaxed);
        self.send(seen).await
    }

    async fn send(&self, seen: Seen) -> Result<(), End> {
        let observation = Observation { source: self.sink.source, at: Some(Stamp::now()), seen };
        self.sink.tx.send(vec![observation]).await.map_err(|_| End::Closed)
    }

    /// Tells that there was no answer. Of a worker that never answered nothing is told: its address may
    /// mean something only where the router is.
    async fn missed(&self, missed: &Missed) -> Result<(), End> {
        if matches!(missed.how, super::Unreached::Refused | super::Unreached::TimedOut) {
            self.alive.store(false, Ordering::Relaxed);
        }
        let seen = Seen::Unreached { path: missed.path, how: missed.how, why: Arc::clone(&missed.why) };
        match &self.worker {
            None => self.send(seen).await,
            Some(_) if !self.answered.load(Ordering::Relaxed) => Ok(()),
            Some(worker) => self.send(Seen::OfWorker { worker: Arc::clone(worker), seen: Box::new(seen) }).await,
        }
    }

    fn know(&self, workers: &[Worker]) {
        let places = workers.iter().map(|w| (Arc::clone(&w.url), w.rank)).collect();
        *self.workers.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    /// Whether these are workers of this router, as far as is known.
    fn knows(&self, workers: &[Worker]) -> bool {
        let known = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().all(|w| known.iter().any(|(url, rank)| *url == w.url && *rank == w.rank))
    }

    fn set_engine(&self, engine: Option<Engine>) {
        *self.engine.lock().unwrap_or_else(PoisonError::into_inner) = engine;
    }
}

/// Starts asking a server, for as long as the task lives and somebody listens.
pub(in crate::serving) fn start(server: Arc<Server>) -> Task {
    Task(tokio::spawn(watch(server)))
}

/// Starts asking a page of metrics that stands apart.
pub(in crate::serving) fn start_metrics(server: Arc<Server>) -> Task {
    Task(tokio::spawn(async move {
        let _ = paths::apart(server).await;
    }))
}

async fn watch(server: Arc<Server>) {
    let mut pause = ANEW;
    loop {
        let Ok(found) = detect::detect(&server).await else { return };
        let began = tokio::time::Instant::now();
        server.loads.store(UNKNOWN, Ordering::Relaxed);
        server.metrics.store(if server.metrics_elsewhere { ABSENT } else { UNKNOWN }, Ordering::Relaxed);
        match ask(&server, found).await {
            End::Closed => return,
            End::Anew => {
                // One that seems new all the time is not asked all the time.
                pause = if began.elapsed() < LATER { (pause * 2).min(LATER) } else { ANEW };
                tokio::time::sleep(pause).await;
            }
            // An interface of models without anything that could be watched but that.
            End::Absent if paths::listed(&server).await.is_err() => return,
            End::Absent => {}
        }
    }
}

/// Asks for all paths of what was found until one says that it is not that any more.
async fn ask(server: &Arc<Server>, found: detect::Found) -> End {
    let mut tasks = JoinSet::new();
    let each = || Arc::clone(server);
    match found.engine {
        Some(Engine::Router) if server.worker.is_none() => {
            tasks.spawn(router::workers(each(), found.old));
            tasks.spawn(router::readiness(each()));
            if !server.metrics_elsewhere {
                tasks.spawn(router::circuits(each()));
            }
        }
        // A router behind a router: what it has is its own business.
        Some(Engine::Router) => {}
        engine => {
            if engine != Some(Engine::Vllm) {
                tasks.spawn(paths::loads(each(), found.old));
                tasks.spawn(paths::info(each(), found.clone()));
            }
            if !server.metrics_elsewhere {
                tasks.spawn(paths::metrics(each()));
            }
            // A router asks its workers itself.
            if server.worker.is_none() {
                tasks.spawn(paths::health(each()));
            }
        }
    }
    // A health check alone says nothing of what is there.
    let mut absent = 0;
    while let Some(end) = tasks.join_next().await {
        match end {
            Ok(End::Absent) => absent += 1,
            Ok(end) => return end,
            Err(_) => return End::Anew,
        }
        if absent >= 2 && tasks.len() <= 1 && found.engine != Some(Engine::Router) {
            break;
        }
    }
    End::Absent
}
