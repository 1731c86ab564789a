//! Taking observations: figures into rows, what servers say of themselves, what routers say of workers.

use std::sync::Arc;

use super::clock::Seconds;
use super::readings::{Field, Reading};
use super::replica::RouterView;
use super::server::{Life, Server};
use super::{Serving, events};
use crate::serving::rules::{self, Ctx, Sample};
use crate::serving::{
    DecodeBatch, Engine, Figures, Line, LineKind, Load, Observation, PrefillBatch, Ranks, Seen, SourceId, Unreached,
    Worker,
};

/// Workers of a router that are believed.
const WORKERS: usize = 256;

impl Serving {
    /// Takes what source number `at` saw of server number `index` at `t`.
    pub(super) fn take(&mut self, at: usize, index: usize, t: Seconds, seen: &Observation) {
        match &seen.seen {
            Seen::Workers(workers) => {
                self.answered(at);
                return self.take_workers(at, index, t, workers);
            }
            Seen::OfWorker { worker, seen: inner } => {
                self.answered(at);
                return self.take_of_worker(index, t, worker, inner, seen.source);
            }
            _ => {}
        }
        let Some(server) = self.servers.get_mut(index) else { return };
        let Some(view) = self.sources.get_mut(at) else { return };
        let mut ctx = Ctx {
            thresholds: &self.thresholds,
            book: &mut self.book,
            demand: &self.demand,
            finished: self.finished,
            placed: server.placed,
            t,
            source: seen.source,
        };
        match &seen.seen {
            Seen::Line(line) => {
                if server.engine.is_none()
                    && let Some(engine) = view.engine
                {
                    set_engine(server, engine);
                }
                view.trouble = None;
                take_line(server, &mut ctx, line);
            }
            Seen::LogReset => {}
            Seen::LogLost(why) => view.trouble = Some(why.clone()),
            Seen::Info(info) => {
                view.engine = info.engine.or(view.engine);
                view.version = info.version.clone().or_else(|| view.version.clone());
                server.take_info(info);
                if !view.is_log() {
                    self.answered(at);
                }
            }
            Seen::Loads(loads) => {
                server.source = seen.source;
                take_loads(server, &mut ctx, None, loads);
                self.answered(at);
            }
            Seen::Readiness { healthy, total } => {
                server.readiness = Some((*healthy, *total));
                server.live(Life::Alive, "the router answers", t);
                rules::readiness(server, &mut ctx);
                self.answered(at);
            }
            Seen::Health(well) => {
                events::health(server, &mut ctx, *well);
                self.answered(at);
            }
            Seen::Unreached { path, how, why } => {
                view.trouble = Some(Arc::from(format!("{path}: {why}")));
                view.unreached = Some(*how);
                match how {
                    // The check waits longest of all: other paths tell whether anything answers.
                    Unreached::TimedOut if *path == "/health" => events::health(server, &mut ctx, false),
                    Unreached::Refused | Unreached::TimedOut => view.failures.add(*how, t),
                    // It answered, if not what was asked for.
                    _ => view.failures = Default::default(),
                }
                if server.rows.is_empty() && !server.is_router() && server.engine.is_none() {
                    server.row(None, None);
                }
            }
            Seen::Workers(_) | Seen::OfWorker { .. } => {}
        }
    }

    /// An answer that could be used.
    fn answered(&mut self, at: usize) {
        if let Some(view) = self.sources.get_mut(at) {
            view.answers += 1;
            view.failures = Default::default();
            view.trouble = None;
            view.unreached = None;
        }
    }

    fn take_workers(&mut self, at: usize, index: usize, t: Seconds, workers: &[Worker]) {
        let Some(router) = self.servers.get_mut(index) else { return };
        set_engine(router, Engine::Router);
        let name = router.name.clone();
        router.live(Life::Alive, "the router answers", t);
        if let Some(view) = self.sources.get_mut(at) {
            view.engine = Some(Engine::Router);
        }
        let mut kept = Vec::new();
        for worker in workers.iter().take(WORKERS) {
            let own = self.server_at(&worker.url, index);
            let view = RouterView { router: name.clone(), worker: worker.clone(), at: t };
            // What is None was not said this time.
            match own {
                // The worker is a server that is read itself: the same rows.
                Some(own) => {
                    let Some(server) = self.servers.get_mut(own) else { continue };
                    if server.rows.is_empty() {
                        server.row(None, worker.rank);
                    }
                    let of_rank = |row: &super::Replica| worker.rank.is_none() || row.key.rank == worker.rank;
                    let rows = server.own_rows().filter(|row| of_rank(row));
                    rows.for_each(|row| Server::routed(row, &view));
                }
                None => {
                    kept.push((worker.url.clone(), worker.rank));
                    let Some(router) = self.servers.get_mut(index) else { continue };
                    let known = router.rows.iter().any(|row| row.key.worker.as_ref() == Some(&worker.url));
                    if worker.rank.is_some() || !known {
                        router.row(Some(&worker.url), worker.rank);
                    }
                    let of_it = |row: &&mut super::Replica| {
                        row.key.worker.as_ref() == Some(&worker.url)
                            && (worker.rank.is_none() || row.key.rank == worker.rank)
                    };
                    router.rows.iter_mut().filter(of_it).for_each(|row| Server::routed(row, &view));
                }
            }
        }
        let Some(router) = self.servers.get_mut(index) else { return };
        router.keep_workers(&kept);
        let mut ctx = Ctx {
            thresholds: &self.thresholds,
            book: &mut self.book,
            demand: &self.demand,
            finished: self.finished,
            placed: router.placed,
            t,
            source: self.sources.get(at).map_or(router.source, |s| s.source.id),
        };
        router.see_workers(workers.get(..WORKERS.min(workers.len())).unwrap_or_default());
        rules::workers(router, &mut ctx);
    }

    /// What a router's source saw at one of its workers. A worker that is read itself speaks for itself.
    fn take_of_worker(&mut self, index: usize, t: Seconds, worker: &Arc<str>, seen: &Seen, source: SourceId) {
        if self.server_at(worker, index).is_some() {
            return;
        }
        let Some(server) = self.servers.get_mut(index) else { return };
        let mut ctx = Ctx {
            thresholds: &self.thresholds,
            book: &mut self.book,
            demand: &self.demand,
            finished: self.finished,
            placed: server.placed,
            t,
            source,
        };
        match seen {
            Seen::Loads(loads) => take_loads(server, &mut ctx, Some(worker), loads),
            Seen::Info(info) => {
                let known = server.rows.iter().any(|row| row.key.worker.as_ref() == Some(worker));
                if !known {
                    server.row(Some(worker), None);
                }
                for row in server.rows.iter_mut().filter(|row| row.key.worker.as_ref() == Some(worker)) {
                    row.engine = info.engine.or(row.engine);
                    row.version = info.version.clone().or_else(|| row.version.clone());
                    row.model = info.model.clone().or_else(|| row.model.clone());
                    row.limit(&info.limits);
                }
            }
            _ => {}
        }
    }
}

fn set_engine(server: &mut Server, engine: Engine) {
    server.engine = Some(engine);
    if engine == Engine::Router {
        server.rows.retain(|row| row.key.worker.is_some());
    }
    server.own_rows().for_each(|row| row.engine = Some(engine));
}

/// A line of a server's log.
fn take_line(server: &mut Server, ctx: &mut Ctx<'_>, line: &Line) {
    match &line.kind {
        LineKind::Decode(batch) => take_decode(server, ctx, line.ranks, batch),
        LineKind::Prefill(batch) => take_prefill(server, ctx, line.ranks, batch),
        LineKind::Stats { batch, engines } => take_stats(server, ctx, line.ranks, batch, *engines),
        LineKind::Speculation(accepted) => {
            let figures = Figures { accept_len: Some(*accepted), ..Figures::default() };
            let (source, t) = (ctx.source, ctx.t);
            if let Some(row) = server.row(None, line.ranks.dp) {
                row.take(&figures, source, true, t);
                rules::sample(row, ctx, &Sample { figures, log: true, prefill: false });
            }
        }
        LineKind::Event(event) => events::take(server, ctx, line, event),
        LineKind::Other => {}
    }
}

/// SGLang decodes: the throughput on the line is that since the line before, so that the first one after
/// a silence is none.
fn take_decode(server: &mut Server, ctx: &mut Ctx<'_>, ranks: Ranks, batch: &DecodeBatch) {
    events::alive(server, ctx, "it decodes");
    let (source, t) = (ctx.source, ctx.t);
    let Some(row) = server.row(None, ranks.dp) else { return };
    let mut figures = batch.figures;
    let watch = &mut row.watch;
    match watch.last_decode.map(|last| t - last) {
        Some(gap) if gap >= 0.0 => {
            // Stamps have whole seconds: less than three are no silence.
            let usual = watch.gaps.median().unwrap_or(0.0).max(1.0);
            if gap > 3.0 * usual || (watch.from_idle && gap >= 3.0) {
                figures.generation = None;
            }
            // Silence is no gap between lines of work.
            if !watch.from_idle {
                watch.gaps.add(gap);
            }
        }
        Some(_) => {}
        None if watch.from_idle => figures.generation = None,
        None => {}
    }
    watch.last_decode = Some(t);
    watch.last_batch = Some(t);
    watch.from_idle = false;
    row.take(&figures, source, true, t);
    rules::sample(row, ctx, &Sample { figures, log: true, prefill: false });
}

/// SGLang prefills. A health check is a prefill of one token on an idle server: nobody's traffic.
fn take_prefill(server: &mut Server, ctx: &mut Ctx<'_>, ranks: Ranks, batch: &PrefillBatch) {
    events::alive(server, ctx, "it prefills");
    let (source, t) = (ctx.source, ctx.t);
    let Some(row) = server.row(None, ranks.dp) else { return };
    let idle = batch.figures.running == Some(0);
    let probe = idle
        && batch.new_seqs == Some(1)
        && batch.new_tokens.is_some_and(|n| n <= 1)
        && batch.cached_tokens == Some(0)
        && batch.figures.queued.unwrap_or(0) == 0;
    let silence = row.watch.last_batch.map(|last| t - last);
    row.watch.last_batch = Some(t);
    if probe {
        return;
    }
    let mut figures = batch.figures;
    // The requests of this batch run, too.
    figures.running = figures.running.map(|running| running.saturating_add(batch.new_seqs.unwrap_or(0)));
    if idle && silence.is_none_or(|gap| gap > 3.0) {
        figures.prefill = None;
    }
    if let (Some(cached), Some(computed)) = (batch.cached_tokens, batch.new_tokens) {
        let (cached, computed) = (cached as f64, computed as f64);
        row.watch.prompts.add(t, cached, computed);
        row.watch.prompts_logged = Some(t);
        if cached + computed > 0.0 {
            figures.cache_hit = figures.cache_hit.or(Some((cached / (cached + computed)) as f32));
        }
    }
    row.watch.from_idle |= idle;
    row.watch.last_prefill = Some(t);
    // The graph of a prefill says nothing of decoding.
    figures.graph = None;
    row.take(&figures, source, true, t);
    rules::sample(row, ctx, &Sample { figures, log: true, prefill: true });
}

/// vLLM's periodic line.
fn take_stats(server: &mut Server, ctx: &mut Ctx<'_>, ranks: Ranks, batch: &DecodeBatch, engines: u16) {
    events::alive(server, ctx, "its periodic line");
    let (source, t) = (ctx.source, ctx.t);
    let sum = engines > 1;
    let Some(row) = server.row(None, if sum { None } else { ranks.dp }) else { return };
    row.engines = engines.max(1);
    let figures = batch.figures;
    if let Some(last) = row.watch.last_decode
        && t >= last
    {
        row.watch.gaps.add(t - last);
    }
    row.watch.last_decode = Some(t);
    row.watch.last_batch = Some(t);
    if figures.prefill.is_some_and(|p| p > 0.0) {
        row.watch.last_prefill = Some(t);
    }
    row.take(&figures, source, true, t);
    rules::sample(row, ctx, &Sample { figures, log: true, prefill: false });
}

/// Loads of all ranks, from `/v1/loads` or a page of metrics.
fn take_loads(server: &mut Server, ctx: &mut Ctx<'_>, worker: Option<&Arc<str>>, loads: &[Load]) {
    let (source, t) = (ctx.source, ctx.t);
    if worker.is_none() {
        events::answers(server, ctx);
    }
    let started = loads
        .iter()
        .filter_map(|load| load.counters.started)
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    if worker.is_none() {
        events::started(server, ctx, started);
    }
    let mut restarted = false;
    for load in loads.iter().take(WORKERS) {
        let Some(row) = server.row(worker, load.rank) else { continue };
        row.limit(&load.limits);
        let mut figures = load.figures;
        restarted |= counters(row, load, &mut figures, t, ctx.thresholds.collapse.after_window);
        // SGLang's throughput keeps its last value on an idle server.
        let idle = figures.running == Some(0) && figures.queued.unwrap_or(0) == 0;
        if idle {
            figures.generation = None;
        }
        row.take(&figures, source, false, t);
        if idle {
            row.readings.put(Field::Generation, Reading { value: 0.0, source, log: false, at: t });
            row.series.put(t, [None, None, None, Some(0.0), None]);
        }
        if let Some(age) = load.age.filter(|age| age.is_finite()) {
            row.watch.snapshot = Some((t, f64::from(age)));
        }
        rules::sample(row, ctx, &Sample { figures, log: false, prefill: false });
    }
    if restarted && worker.is_none() {
        events::restarted(server, ctx, "its counters began anew");
    }
}

/// Rates from counters where no gauge says them, retractions, and whether tokens flow. True where a
/// counter went down: the process is another one.
fn counters(row: &mut super::Replica, load: &Load, figures: &mut Figures, t: Seconds, window: f64) -> bool {
    let new = &load.counters;
    let Some((then, old)) = row.watch.counters.put(t, load) else { return false };
    let passed = t - then;
    let rise = |new: Option<f64>, old: Option<f64>| Some(new.filter(|n| n.is_finite())? - old?);
    let rises = [
        rise(new.generated, old.generated),
        rise(new.prefilled, old.prefilled),
        rise(new.cached, old.cached),
        // A series that appears with the first of them was 0 before.
        rise(new.retracted, old.retracted.or(Some(0.0))),
    ];
    if rises.iter().flatten().any(|r| *r < -0.5) {
        row.watch.flat = None;
        return true;
    }
    let [generated, prefilled, cached, retracted] = rises;
    if (0.2..=120.0).contains(&passed) {
        let rate = |rise: Option<f64>| rise.map(|r| (r / passed) as f32);
        figures.generation = figures.generation.or(rate(generated));
        figures.prefill = figures.prefill.or(rate(prefilled));
    }
    if let (Some(computed), Some(cached)) = (prefilled, cached)
        && computed + cached > 0.0
        && row.watch.prompts_logged.is_none_or(|last| t - last > 300.0)
    {
        row.watch.prompts.add(t, cached, computed);
        figures.cache_hit = figures.cache_hit.or(Some((cached / (cached + computed)) as f32));
    }
    if prefilled.is_some_and(|p| p > 0.0) {
        row.watch.last_prefill = Some(t);
    }
    if let Some(rise) = retracted.filter(|r| *r >= 0.5) {
        let new = row.watch.retractions.counted(then, t, rise.min(1e6) as u32);
        if new > 0 {
            rules::count_retracted(row, t, new, window);
        }
    }
    let runs = figures.running.is_some_and(|r| r > 0);
    match generated {
        Some(rise) if rise < 0.5 && runs && prefilled.is_none_or(|p| p < 0.5) => {
            let flat = row.watch.flat.get_or_insert((then, 0, t));
            flat.1 = flat.1.saturating_add(1);
            flat.2 = t;
        }
        Some(_) => {
            row.watch.flat = None;
            if runs {
                row.watch.last_batch.get_or_insert(t);
            }
        }
        None => {}
    }
    false
}
