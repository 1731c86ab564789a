//! One server: whether it lives, its settings, its rows.

use std::sync::Arc;

use super::clock::{Seconds, stamp};
use super::replica::{Replica, RouterView, add_limits};
use crate::job::Stamp;
use crate::serving::{Engine, Limits, ReplicaKey, ServerInfo, SourceId, State, Worker};

/// Rows of one server at most; what claims more is not believed.
const ROWS: usize = 512;

/// Where a server is in its life, as its log and its answers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serving) enum Life {
    Unknown,
    Starting,
    Alive,
    Dead,
    Restarting,
}

/// A server and its rows.
#[derive(Debug)]
pub struct Server {
    /// Its name: that of its sources.
    pub name: Arc<str>,
    /// Engine.
    pub engine: Option<Engine>,
    /// Version.
    pub version: Option<Arc<str>>,
    /// Model served.
    pub model: Option<Arc<str>>,
    /// Limits of a rank.
    pub limits: Limits,
    /// Settings worth showing: name, value. Raw text without secrets.
    pub settings: Vec<(Arc<str>, Arc<str>)>,
    /// Of a router: healthy workers and all.
    pub readiness: Option<(u32, u32)>,
    /// Requests that were ended before they were done, as far as the log tells.
    pub aborted: u64,
    pub(in crate::serving) rows: Vec<Replica>,
    pub(in crate::serving) workers: Vec<Worker>,
    pub(in crate::serving) life: Life,
    pub(in crate::serving) life_since: Seconds,
    pub(in crate::serving) life_words: Arc<str>,
    /// Whether it was seen alive, so that a start is a restart.
    pub(in crate::serving) was_alive: bool,
    /// Unix time of its process's start, from its metrics.
    pub(in crate::serving) started: Option<f64>,
    /// Since when kernels are compiled or graphs captured, on a server that is ready.
    pub(in crate::serving) compiling: Option<Seconds>,
    pub(in crate::serving) compiling_log: bool,
    /// When a health check failed first since one was well, and when last.
    pub(in crate::serving) health_failed: Option<(Seconds, Seconds)>,
    pub(in crate::serving) watchdog_at: Option<Seconds>,
    pub(in crate::serving) disconnects: std::collections::VecDeque<Seconds>,
    /// Probes of workers that failed, from a router's log: URL, how many, when last.
    pub(in crate::serving) probes: Vec<(Arc<str>, u32, Seconds)>,
    pub(in crate::serving) uneven: crate::serving::rules::Held,
    pub(in crate::serving) idle: crate::serving::rules::Held,
    pub(in crate::serving) swept: Seconds,
    pub(in crate::serving) placed: bool,
    /// A source that tells of it, for diagnoses of the whole server.
    pub(in crate::serving) source: SourceId,
    /// Whether a log of it is read, and whether it is polled.
    pub(in crate::serving) logged: bool,
    pub(in crate::serving) polled: bool,
}

impl Server {
    pub(in crate::serving) fn new(name: Arc<str>, source: SourceId) -> Server {
        Server {
            name,
            engine: None,
            version: None,
            model: None,
            limits: Limits::default(),
            settings: Vec::new(),
            readiness: None,
            aborted: 0,
            rows: Vec::new(),
            workers: Vec::new(),
            life: Life::Unknown,
            life_since: 0.0,
            life_words: Arc::from(""),
            was_alive: false,
            started: None,
            compiling: None,
            compiling_log: false,
            health_failed: None,
            watchdog_at: None,
            disconnects: std::collections::VecDeque::new(),
            probes: Vec::new(),
            uneven: crate::serving::rules::Held::default(),
            idle: crate::serving::rules::Held::default(),
            swept: f64::MIN,
            placed: true,
            source,
            logged: false,
            polled: false,
        }
    }

    /// Its rows: ranks, or the workers of a router that are not servers of their own.
    pub fn replicas(&self) -> &[Replica] {
        &self.rows
    }

    /// Whether it is a router.
    pub fn is_router(&self) -> bool {
        self.engine == Some(Engine::Router)
    }

    /// Whether it is up, starting or gone, as a whole.
    pub fn state(&self) -> State {
        match self.life {
            Life::Unknown => State::Unknown,
            Life::Starting => State::Starting,
            Life::Alive => State::Ready,
            Life::Dead => State::Dead,
            Life::Restarting => State::Restarting,
        }
    }

    /// Since when, where it can be placed.
    pub fn since(&self) -> Option<Stamp> {
        (self.placed && self.life != Life::Unknown).then(|| stamp(self.life_since)).flatten()
    }

    /// Why, in words. Raw text.
    pub fn evidence(&self) -> &str {
        &self.life_words
    }

    pub(in crate::serving) fn live(&mut self, life: Life, words: impl AsRef<str>, t: Seconds) {
        if self.life != life {
            self.life = life;
            self.life_since = t;
        }
        if life == Life::Alive {
            self.was_alive = true;
        }
        if *self.life_words != *words.as_ref() {
            self.life_words = Arc::from(words.as_ref());
        }
    }

    /// The row of a rank or worker, made where there is none yet. One engine that is not told apart (its
    /// log says no rank, its `/v1/loads` say 0) is one row.
    pub(in crate::serving) fn row(&mut self, worker: Option<&Arc<str>>, rank: Option<u16>) -> Option<&mut Replica> {
        let same = |row: &Replica| row.key.worker.as_ref() == worker;
        let found = self.rows.iter().position(|row| same(row) && row.key.rank == rank);
        let found = found.or_else(|| {
            let mut of_worker = self.rows.iter().enumerate().filter(|(_, row)| same(row));
            let (at, only) = of_worker.next()?;
            let alone = of_worker.next().is_none();
            let one = match (only.key.rank, rank) {
                (None, Some(0)) | (Some(0), None) => true,
                // A second rank: the one so far was the first.
                _ => false,
            };
            (alone && one && only.engines <= 1).then_some(at)
        });
        if let Some(at) = found {
            return self.rows.get_mut(at);
        }
        if rank.is_none() && self.rows.iter().any(|row| same(row) && row.key.rank.is_some()) {
            // What is said of no rank is of none of them.
            return None;
        }
        if self.rows.len() >= ROWS {
            return None;
        }
        if rank.is_some()
            && let Some(one) = self.rows.iter().position(|row| same(row) && row.key.rank.is_none())
        {
            let first = self.rows.get_mut(one)?;
            // What was one row becomes the first rank, or the sum of ranks that are now told apart.
            if rank == Some(0) || first.engines > 1 {
                first.key.rank = rank;
                first.engines = 1;
                first.forget();
                return self.rows.get_mut(one);
            }
            first.key.rank = Some(0);
        }
        let key = ReplicaKey { server: self.name.clone(), worker: worker.cloned(), rank };
        let at = self.rows.partition_point(|row| row.key < key);
        let mut row = Replica::new(key);
        row.placed = self.placed;
        self.rows.insert(at, row);
        if worker.is_none() {
            let (engine, version, model, limits) = (self.engine, self.version.clone(), self.model.clone(), self.limits);
            let row = self.rows.get_mut(at)?;
            (row.engine, row.version, row.model) = (engine, version, model);
            row.limit(&limits);
        }
        self.rows.get_mut(at)
    }

    /// Its own rows: not those of workers that a router only lists.
    pub(in crate::serving) fn own_rows(&mut self) -> impl Iterator<Item = &mut Replica> {
        self.rows.iter_mut().filter(|row| row.key.worker.is_none())
    }

    /// Takes what it says of itself.
    pub(in crate::serving) fn take_info(&mut self, info: &ServerInfo) {
        self.engine = info.engine.or(self.engine);
        self.version = info.version.clone().or_else(|| self.version.clone());
        self.model = info.model.clone().or_else(|| self.model.clone());
        if !info.settings.is_empty() {
            self.settings = info.settings.clone();
            self.settings.truncate(256);
        }
        if self.is_router() {
            self.rows.retain(|row| row.key.worker.is_some());
        } else if self.rows.is_empty() {
            self.row(None, None);
        }
        self.take_limits(&info.limits, None);
        let (engine, version, model) = (self.engine, self.version.clone(), self.model.clone());
        for row in self.own_rows() {
            (row.engine, row.version, row.model) = (engine, version.clone(), model.clone());
        }
    }

    /// Takes limits of a rank, or of all.
    pub(in crate::serving) fn take_limits(&mut self, limits: &Limits, rank: Option<u16>) {
        match rank {
            Some(rank) => {
                if let Some(row) = self.row(None, Some(rank)) {
                    row.limit(limits);
                }
            }
            None => {
                add_limits(&mut self.limits, limits);
                self.own_rows().for_each(|row| row.limit(limits));
            }
        }
    }

    /// The rows of workers as their router lists them now; those that it does not list any more go.
    pub(in crate::serving) fn keep_workers(&mut self, kept: &[(Arc<str>, Option<u16>)]) {
        self.rows.retain(|row| match &row.key.worker {
            None => true,
            Some(url) => kept.iter().any(|(k, rank)| k == url && (rank.is_none() || *rank == row.key.rank)),
        });
    }

    /// Gives a row the view of its router: what is None was not said this time.
    pub(in crate::serving) fn routed(row: &mut Replica, view: &RouterView) {
        if row.model.is_none() {
            row.model = view.worker.model.clone();
        }
        match &mut row.router {
            Some(known) if known.router == view.router => {
                add_view(&mut known.worker, &view.worker);
                known.at = view.at;
            }
            other => *other = Some(view.clone()),
        }
    }

    /// Of a router: its workers as it lists them; what is None was not said this time.
    pub(in crate::serving) fn see_workers(&mut self, workers: &[Worker]) {
        let known = std::mem::take(&mut self.workers);
        for worker in workers {
            let mut merged = worker.clone();
            if let Some(before) = known.iter().find(|k| k.url == worker.url && k.rank == worker.rank) {
                merged = before.clone();
                add_view(&mut merged, worker);
            }
            self.workers.push(merged);
        }
    }

    /// Of a router: its workers, as it sees them.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    pub(in crate::serving) fn heap(&self) -> usize {
        self.rows.iter().map(Replica::heap).sum::<usize>() + self.probes.len() * 64
    }
}

fn add_view(to: &mut Worker, from: &Worker) {
    to.healthy = from.healthy.or(to.healthy);
    to.circuit = from.circuit.or(to.circuit);
    to.load = from.load.or(to.load);
    to.model = from.model.clone().or_else(|| to.model.take());
}
