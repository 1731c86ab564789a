//! What the journal of a job gets of its servers: outages, from when to when, so that the trials that ran
//! then can be looked at together (`overlaps:outage`); and at the job's end what its servers did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::effect::Effect;
use super::super::helm::{Order, Place, Remark, Side, Speech};
use super::super::model::Model;
use super::{gone_router, is_gone};
use crate::job::verdict::Outage;
use crate::job::{Job, JobKey, Stamp, StateKind, time};
use crate::serving::{Replica, ReplicaKey, State, join};

/// Shorter ones are no outage: a client tries again within it.
const SHORTEST: f64 = 1.0;

/// A server that does not serve.
#[derive(Debug, Clone, PartialEq)]
struct Down {
    since: Stamp,
    words: String,
}

/// The most that was seen of a replica.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Peak {
    running: Option<u32>,
    queued: Option<u32>,
    first: Option<Stamp>,
    last: Option<Stamp>,
}

/// What is to be noted.
#[derive(Debug, Default)]
pub struct Notes {
    down: BTreeMap<Arc<str>, Down>,
    peaks: BTreeMap<ReplicaKey, Peak>,
    /// Jobs that were seen at work, and those of which the end was noted.
    at_work: BTreeSet<JobKey>,
    ended: BTreeSet<JobKey>,
}

/// Brings it up to date.
pub fn keep(model: &mut Model) -> Vec<Effect> {
    peaks(model);
    let mut effects = Vec::new();
    for (server, down) in outages(model) {
        effects.extend(note(model, &server, &down, model.now));
    }
    effects.extend(ends(model));
    effects
}

fn peaks(model: &mut Model) {
    let now = model.now;
    let seen: Vec<_> = model.serving.replicas().map(|r| (r.key.clone(), r.figures())).collect();
    for (key, figures) in seen {
        let peak = model.servers.notes.peaks.entry(key).or_default();
        peak.running = peak.running.max(figures.running);
        peak.queued = peak.queued.max(figures.queued);
        peak.first = peak.first.or(Some(now));
        peak.last = Some(now);
    }
}

/// Outages that are over now.
fn outages(model: &mut Model) -> Vec<(Arc<str>, Down)> {
    let now = model.now;
    let mut begun = Vec::new();
    let mut ended = Vec::new();
    for server in model.serving.servers() {
        let known = model.servers.notes.down.contains_key(&server.name);
        let gone = |r: &Replica| match r.state {
            State::Starting | State::Unknown => known,
            state => is_gone(state),
        };
        let rows = server.replicas();
        // Nobody gets past a router that is gone.
        let router = gone_router(model, server);
        let gone = router.is_some() || (!rows.is_empty() && rows.iter().all(gone));
        match (gone, known) {
            (true, false) => {
                let (since, words) = match (router, rows.first()) {
                    (Some(router), _) => (router.since, format!("{} {}", server.name, router.state.name())),
                    (None, Some(row)) => {
                        let since = rows.iter().filter_map(Replica::since).max();
                        (since, format!("{} {}: {}", server.name, row.state.name(), row.evidence))
                    }
                    (None, None) => continue,
                };
                begun.push((server.name.clone(), Down { since: since.unwrap_or(now).min(now), words }));
            }
            (false, true) => ended.push(server.name.clone()),
            _ => {}
        }
    }
    model.servers.notes.down.extend(begun);
    ended.into_iter().filter_map(|server| Some((server.clone(), model.servers.notes.down.remove(&server)?))).collect()
}

/// Notes of outages that last while the screen is left.
pub fn last(model: &mut Model) -> Vec<Effect> {
    let open = std::mem::take(&mut model.servers.notes.down);
    let now = model.now;
    open.into_iter().flat_map(|(server, down)| note(model, &server, &down, now)).collect()
}

/// Whether this screen writes notes of its own accord.
fn may(model: &Model) -> bool {
    model.steer.notes && model.steer.side != Side::Reader
}

fn note(model: &mut Model, server: &Arc<str>, down: &Down, to: Stamp) -> Vec<Effect> {
    let long = time::seconds_between(down.since, to).is_some_and(|s| s >= SHORTEST);
    if !long || !may(model) || model.steer.looked_after {
        return Vec::new();
    }
    let why: Arc<str> = format!("model server {server} down, seen by the screen: {}", down.words).into();
    let outage = Outage { from: down.since, to, why, operator: model.ledger.operator.clone() };
    let touched: Vec<(Place, crate::job::JobFacts)> = model
        .fleet
        .jobs()
        .iter()
        .filter(|job| ran_in(model, job, &outage))
        .map(|job| (Place { job: job.key, dir: job.facts.dir.clone() }, job.facts.clone()))
        .collect();
    let say = |(place, facts): (Place, crate::job::JobFacts)| {
        let batch = model.ledger.next_batch();
        let speech =
            Speech { batch, facts: Box::new(facts), words: Vec::new(), outage: Some(outage.clone()), remark: None };
        Effect::Helm(Order::Say(place, speech))
    };
    touched.into_iter().map(say).collect()
}

/// A job that was at work at some time of an outage.
fn ran_in(model: &Model, job: &Job, outage: &Outage) -> bool {
    let running = model.derived.state(job.key).is_some_and(|s| s.kind == StateKind::Running);
    let end = job.trials.values().filter_map(|t| t.result.as_ref()?.finished).max();
    let end = if running { None } else { end };
    outage.meets(job.facts.created.or(Some(outage.from)), end)
}

/// The summary of jobs that have ended.
fn ends(model: &mut Model) -> Vec<Effect> {
    let mut effects = Vec::new();
    let states: Vec<(JobKey, StateKind)> = model.derived.states.iter().map(|(key, s)| (*key, s.kind)).collect();
    for (key, kind) in states {
        let over = matches!(kind, StateKind::Finished | StateKind::Interrupted | StateKind::Dead);
        if kind == StateKind::Running {
            model.servers.notes.at_work.insert(key);
            // Somebody resumed it: it ends once more.
            model.servers.notes.ended.remove(&key);
        }
        let due = over && model.servers.notes.at_work.contains(&key) && model.servers.notes.ended.insert(key);
        if !due || !may(model) {
            continue;
        }
        let Some(job) = model.fleet.job(key) else { continue };
        let (place, facts) = (Place { job: key, dir: job.facts.dir.clone() }, Box::new(job.facts.clone()));
        let remark = Remark { act: "serving", subject: job.facts.name.to_string(), text: summary(model) };
        let batch = model.ledger.next_batch();
        let speech = Speech { batch, facts, words: Vec::new(), outage: None, remark: Some(remark) };
        effects.push(Effect::Helm(Order::Say(place, speech)));
    }
    effects
}

/// What the servers did while this screen looked, a sentence for each replica.
pub fn summary(model: &Model) -> String {
    let number = |n: Option<u32>| n.map_or_else(|| "-".to_string(), |n| n.to_string());
    let mut out = Vec::new();
    for r in model.serving.replicas() {
        let peak = model.servers.notes.peaks.get(&r.key).copied().unwrap_or_default();
        let seen = peak.first.zip(peak.last).and_then(|(a, b)| time::seconds_between(a, b));
        let engine = r.engine.map_or("engine -", |e| e.name());
        let version = r.version.as_deref().unwrap_or("-");
        let lines: u64 = model
            .serving
            .sources()
            .iter()
            .filter(|s| s.source.server == r.key.server)
            .map(|s| s.decode_lines + s.prefill_lines + s.stats_lines)
            .sum();
        let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
        for d in model.serving.diagnoses() {
            let mine = d.replica.as_ref().map_or(*d.server == *r.key.server, |key| *key == r.key);
            if mine {
                *kinds.entry(d.kind.name()).or_default() += 1;
            }
        }
        let kinds: Vec<String> = kinds.into_iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let kinds = if kinds.is_empty() { "no diagnosis".to_string() } else { kinds.join(", ") };
        out.push(format!(
            "{}: {engine} {version}, watched {}, {lines} batch lines, at most {} running and {} queued, {kinds}",
            join::name(&r.key),
            seen.map_or_else(|| "-".to_string(), time::words),
            number(peak.running),
            number(peak.queued),
        ));
    }
    if out.is_empty() { "no replica was seen".to_string() } else { out.join("; ") }
}
