//! The state of serving: sources, servers, replicas, diagnoses; observations go in, nothing else does.

mod calm;
pub(in crate::serving) mod clock;
mod events;
mod readings;
mod replica;
mod server;
mod source;
mod standing;
mod take;

pub use calm::Calm;
use clock::{Seconds, of_stamp, stamp};
pub(in crate::serving) use events::{gone, of_figures};
pub use readings::{Field, Reading};
pub use replica::{Arithmetic, Replica, RouterView};
pub(in crate::serving) use server::Life;
pub use server::Server;
pub use source::{LogLine, SourceView};

use super::rules::{self, Book};
use super::thresholds::Thresholds;
use super::{Demand, Diagnosis, Place, ReplicaKey, Seen, Source, SourceId};
use crate::job::Stamp;

/// Seconds between two looks at what changes with time alone.
const SWEEP: Seconds = 1.0;

/// The model side of a run. Deterministic: the same observations and ticks give the same state.
#[derive(Debug, Default)]
pub struct Serving {
    sources: Vec<SourceView>,
    servers: Vec<Server>,
    book: Book,
    thresholds: Thresholds,
    demand: Demand,
    now: Option<Seconds>,
    finished: bool,
    revision: u64,
}

impl Serving {
    /// A state that knows nothing yet.
    pub fn new(sources: Vec<Source>, thresholds: Thresholds) -> Serving {
        let mut out = Serving { thresholds, ..Serving::default() };
        sources.into_iter().for_each(|source| out.add(source));
        out
    }

    /// Adds a source.
    pub fn add(&mut self, source: Source) {
        let at = match self.servers.iter().position(|server| server.name == source.server) {
            Some(at) => at,
            None => {
                self.servers.push(Server::new(source.server.clone(), source.id));
                self.servers.len() - 1
            }
        };
        let view = SourceView::new(source, at);
        if let Some(server) = self.servers.get_mut(at) {
            server.logged |= view.is_log();
            server.polled |= !view.is_log();
        }
        self.sources.push(view);
    }

    /// The same for logs that are finished, read at once: time goes by as their lines say, no tick is
    /// needed, and what the gauges say outright needs samples but no seconds to be told.
    #[must_use]
    pub fn of_finished_logs(mut self) -> Serving {
        self.finished = true;
        self
    }

    /// The thresholds in force.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Takes what was seen. Observations may come in any order and with any times.
    pub fn observe(&mut self, seen: &super::Observation) {
        self.see(seen, true);
    }

    /// Takes a further message that stood in the same physical line as the one before: it is no line more.
    pub fn observe_more(&mut self, seen: &super::Observation) {
        self.see(seen, false);
    }

    fn see(&mut self, seen: &super::Observation, whole: bool) {
        let at = self.position(seen.source);
        let Some(view) = self.sources.get_mut(at) else { return };
        let t = view.moment(seen.at, &seen.seen);
        if t.is_nan() {
            return;
        }
        if let Seen::Line(line) = &seen.seen {
            view.count(line, seen.at, whole);
        }
        let (index, placed) = (view.server, view.placed);
        self.revision += 1;
        if let Some(server) = self.servers.get_mut(index) {
            if !placed && server.placed && server.swept == f64::MIN {
                server.placed = false;
                server.rows.iter_mut().for_each(|row| row.placed = false);
            } else if placed && !server.placed {
                // What had times of its own is not comparable with what is placed.
                server.placed = true;
                server.swept = f64::MIN;
                server.life_since = t;
                server.rows.iter_mut().for_each(|row| {
                    row.placed = true;
                    row.forget();
                    row.series = super::series::Series::default();
                    row.now = t;
                });
            } else if !placed && server.placed {
                // A log without known times beside placed sources: counted and kept, but not on this clock.
                // What the server says of itself is so whenever it was said.
                match &seen.seen {
                    Seen::Info(_) | Seen::LogLost(_) | Seen::LogReset => {}
                    Seen::Line(super::Line {
                        kind: super::LineKind::Event(super::Event::Limits(limits)),
                        ranks,
                        ..
                    }) => {
                        server.take_limits(limits, ranks.dp);
                        return;
                    }
                    _ => return,
                }
            }
        }
        self.take(at, index, t, seen);
        if self.finished {
            let due = self.servers.get(index).is_some_and(|s| t >= s.swept + SWEEP || t < s.swept - 5.0);
            if due {
                self.sweep(index, t);
            }
        } else if let Some(server) = self.servers.get_mut(index)
            && server.swept == f64::MIN
        {
            server.swept = t;
        }
    }

    /// Takes several.
    pub fn observe_all<'a>(&mut self, seen: impl IntoIterator<Item = &'a super::Observation>) {
        seen.into_iter().for_each(|one| self.observe(one));
    }

    /// Time went by: `now` on the clock of the trials, and what the trials wait for.
    pub fn tick(&mut self, now: Stamp, demand: &Demand) {
        let t = of_stamp(now);
        self.demand = *demand;
        let back = self.now.is_some_and(|before| t < before - 5.0);
        self.now = Some(t);
        for index in 0..self.servers.len() {
            if let Some(server) = self.servers.get_mut(index) {
                if !server.placed {
                    // On its own clock it is as late as its last line says.
                    let heard = self.sources.iter().filter(|s| s.server == index).filter_map(|s| s.heard);
                    let own = heard.fold(f64::MIN, f64::max);
                    if own > f64::MIN {
                        self.sweep(index, own);
                    }
                    continue;
                }
                if back {
                    server.life_since = server.life_since.min(t);
                }
                server.rows.iter_mut().for_each(|row| row.now = t);
            }
            self.sweep(index, t);
        }
        self.revision += 1;
    }

    /// The end of finished logs: what did not hold any more is over, without waiting for it to stay so.
    pub fn settle(&mut self) {
        for index in 0..self.servers.len() {
            let Some(t) = self.servers.get(index).map(|s| s.swept) else { continue };
            let heard = self.sources.iter().filter(|s| s.server == index).filter_map(|s| s.heard);
            let t = heard.fold(t, f64::max);
            if t == f64::MIN {
                continue;
            }
            self.sweep(index, t);
            if let Some(server) = self.servers.get_mut(index) {
                rules::settle(server, &mut self.book, &self.thresholds, t);
            }
        }
        self.revision += 1;
    }

    /// What changes with time alone, for one server.
    fn sweep(&mut self, index: usize, t: Seconds) {
        let Some(server) = self.servers.get_mut(index) else { return };
        server.swept = t;
        if self.finished || !server.placed {
            server.rows.iter_mut().for_each(|row| row.now = t);
        }
        let mut ctx = rules::Ctx {
            thresholds: &self.thresholds,
            book: &mut self.book,
            demand: &self.demand,
            finished: self.finished,
            placed: server.placed,
            t,
            source: server.source,
        };
        rules::sweep(server, &mut ctx);
        rules::reach(server, &self.sources, index, &mut ctx);
        standing::stand(server, &self.book, &self.thresholds, t);
    }

    fn position(&self, id: SourceId) -> usize {
        let at = usize::from(id.0);
        if self.sources.get(at).is_some_and(|s| s.source.id == id) {
            return at;
        }
        self.sources.iter().position(|s| s.source.id == id).unwrap_or(usize::MAX)
    }

    /// The server whose URL this is, other than `not`.
    fn server_at(&self, url: &str, not: usize) -> Option<usize> {
        let url = plain_url(url);
        let of = |s: &&SourceView| matches!(&s.source.place, Place::Http(own) if plain_url(own) == url);
        self.sources.iter().filter(|s| s.server != not).find(of).map(|s| s.server)
    }

    /// The sources, in the order in which they were named.
    pub fn sources(&self) -> &[SourceView] {
        &self.sources
    }

    /// A source by its number.
    pub fn source(&self, id: SourceId) -> Option<&SourceView> {
        self.sources.get(self.position(id))
    }

    /// The servers, in the order in which their sources were named.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The rows, server by server.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.servers.iter().flat_map(|server| &server.rows)
    }

    /// A row by its key.
    pub fn replica(&self, key: &ReplicaKey) -> Option<&Replica> {
        self.replicas().find(|row| row.key == *key)
    }

    /// All diagnoses that are kept: those that are over, oldest first, then those that hold, worst first.
    pub fn diagnoses(&self) -> impl Iterator<Item = &Diagnosis> {
        self.book.closed().chain(self.book.open())
    }

    /// The diagnoses that hold, worst kind first.
    pub fn open(&self) -> impl Iterator<Item = &Diagnosis> {
        self.book.open()
    }

    /// The last lines of a source, oldest first.
    pub fn log(&self, id: SourceId) -> impl Iterator<Item = &LogLine> {
        self.source(id).into_iter().flat_map(SourceView::log)
    }

    /// When a tick is due, though nothing was observed: ages, silences and time-outs grow by themselves.
    pub fn earliest_due(&self) -> Option<Stamp> {
        if self.sources.is_empty() { None } else { stamp(self.now? + SWEEP) }
    }

    /// Changes with everything that was taken; the same number, the same state.
    pub fn revision(&self) -> u64 {
        self.revision.wrapping_add(self.book.revision)
    }

    /// What the trials wait for, as told last.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Bytes on the heap, about: to see that they do not grow.
    pub fn heap_estimate(&self) -> usize {
        self.sources.iter().map(SourceView::heap).sum::<usize>()
            + self.servers.iter().map(Server::heap).sum::<usize>()
            + self.book.heap()
    }
}

/// A URL in the form in which two are compared: without slash or `/v1` at the end, with one name for this
/// host.
pub(in crate::serving) fn plain_url(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    let url = url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/').to_ascii_lowercase();
    url.replace("//localhost:", "//127.0.0.1:").replace("//[::1]:", "//127.0.0.1:")
}
