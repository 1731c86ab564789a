//! Ending one request at its server: the only thing that this program ever changes there. It asks first,
//! names server, worker and request, and is noted in the job's journal.

use std::sync::Arc;

use super::super::effect::Effect;
use super::super::helm::{Abort, Order, Place};
use super::super::model::Model;
use super::super::overlay::{Choice, Item, Menu, Overlay};
use super::super::steer;
use super::super::steer::ask::{Ask, Asking, Content, Deed, Tone};
use super::super::update::notice;
use super::super::works;
use super::{diagnoses, selected};
use crate::job::{TrialKey, time};
use crate::serving::rids::Request;
use crate::serving::{DiagnosisKind, Engine, Replica};

/// A request that may be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name of the server.
    pub server: Arc<str>,
    /// Its worker.
    pub worker: Option<Arc<str>>,
    /// The request.
    pub rid: Arc<str>,
}

/// Requests that a menu offers.
const OFFERED: usize = 40;

/// Why no request can be ended here; None: one can.
pub fn why_not(model: &Model) -> Option<String> {
    let Some(replica) = selected(model) else { return Some("no replica is selected".to_string()) };
    if !model.steer.notes {
        return Some("nothing is steered from here: this screen only looks".to_string());
    }
    match replica.engine {
        Some(Engine::Sglang) | None => {}
        Some(other) => return Some(format!("{} has no way to abort one request from outside", other.name())),
    }
    if model.servers.rids.of(&replica.key.server).next().is_none() {
        return Some("no request's id is known: the server tells them with --log-requests".to_string());
    }
    None
}

/// Asks which request, where several are known, then whether.
pub fn begin(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = why_not(model) {
        notice(model, why);
        return Vec::new();
    }
    let Some(replica) = selected(model) else { return Vec::new() };
    let target = |request: &Request| Target {
        server: replica.key.server.clone(),
        worker: replica.key.worker.clone(),
        rid: request.rid.clone(),
    };
    let known: Vec<&Request> = model.servers.rids.of(&replica.key.server).collect();
    if let [only] = known.as_slice() {
        model.overlay = Some(Overlay::Ask(Asking::new(Ask::Abort(target(only)))));
        return Vec::new();
    }
    let items = known
        .iter()
        .take(OFFERED)
        .map(|request| Item {
            label: request.rid.to_string(),
            detail: age(model, request),
            choice: Choice::Abort(target(request)),
            hot: None,
        })
        .collect();
    model.overlay = Some(Overlay::Menu(Menu { title: "which request? (asks)".to_string(), items, selected: 0 }));
    Vec::new()
}

fn age(model: &Model, request: &Request) -> String {
    let since = request.since.and_then(|at| time::seconds_between(at, model.now));
    let age = since.map_or_else(|| "since -".to_string(), |s| format!("for {}", time::words(s)));
    if request.left { format!("{age}, its client is gone") } else { age }
}

/// How long a request is at work already; None: it is not.
fn at_work(model: &Model, target: &Target) -> Option<String> {
    let known = model.servers.rids.of(&target.server).find(|r| r.rid == target.rid);
    known.map(|request| age(model, request)).or_else(|| {
        let since = works::asked_as(model, &target.rid)?;
        Some(format!("for {}", time::words(time::age(since, model.now).as_secs_f64())))
    })
}

/// Why it is to be ended, in words; empty: nothing speaks for it.
fn why(model: &Model, target: &Target) -> String {
    let works = &model.steer.works;
    let long = works.long.iter().find(|(key, _)| works.of(key).is_some_and(|w| w.rid.as_deref() == Some(&target.rid)));
    match long {
        Some((key, long)) => format!("{}: {}", key.trial, long.text()),
        None => selected(model).and_then(|r| grounds(model, r)).unwrap_or_default(),
    }
}

/// The present call of a trial, where it can be ended: it has a name, and one server could have it.
pub fn of_trial(model: &Model, key: &TrialKey) -> Option<Target> {
    let work = model.steer.works.of(key).filter(|work| work.call().is_some() && model.steer.notes)?;
    let rid: Arc<str> = work.rid.as_deref()?.into();
    let mut places: Vec<(&Arc<str>, &Option<Arc<str>>)> = model
        .serving
        .replicas()
        .filter(|r| r.engine == Some(Engine::Sglang))
        .map(|r| (&r.key.server, &r.key.worker))
        .collect();
    // The ranks of one server are one place.
    places.dedup();
    let logged = |(server, _): &&(&Arc<str>, &Option<Arc<str>>)| model.servers.rids.of(server).any(|r| r.rid == rid);
    let (server, worker) = match places.as_slice() {
        [only] => only,
        several => several.iter().find(logged)?,
    };
    Some(Target { server: Arc::clone(server), worker: (*worker).clone(), rid })
}

/// What holds of the replica that speaks for an abort.
fn grounds(model: &Model, replica: &Replica) -> Option<String> {
    let about = |d: &&&crate::serving::Diagnosis| {
        !d.over
            && *d.server == *replica.key.server
            && d.kind == DiagnosisKind::RunawayGeneration
            && d.replica.as_ref().is_none_or(|key| *key == replica.key)
    };
    diagnoses(model).iter().find(about).map(|d| d.text.to_string())
}

/// The question.
pub fn content(model: &Model, target: &Target) -> Content {
    let mut out = Content { title: "abort one request?".to_string(), ..Content::default() };
    let Some(age) = at_work(model, target) else {
        out.say(Tone::Strong, target.rid.to_string());
        out.say(Tone::Plain, "It is not at work any more.");
        out.offer(Deed::Keep, "close", "");
        return out;
    };
    out.say(Tone::Strong, format!("request {}", target.rid));
    out.say(Tone::Plain, format!("server {}, at work {age}", target.server));
    if let Some(worker) = &target.worker {
        out.say(Tone::Plain, format!("worker {worker}"));
    }
    let why = why(model, target);
    if !why.is_empty() {
        out.say(Tone::Plain, why);
    }
    out.say(
        Tone::Dim,
        "Its client gets what was written so far, as an answer that was cut off. Nothing else is changed at the server. \
         It is noted in the job's journal.",
    );
    out.offer(Deed::Keep, "let it run", "");
    out.offer(Deed::AbortRequest, "abort it", "the tokens of this one answer are lost");
    out
}

/// It is to be done.
pub fn abort(model: &mut Model, target: &Target) -> Vec<Effect> {
    if at_work(model, target).is_none() {
        notice(model, "it is not at work any more");
        return Vec::new();
    }
    let why = why(model, target);
    let job = steer::job(model).map(|job| {
        let place = Place { job: job.key, dir: job.facts.dir.clone() };
        (place, job.facts.id.as_ref().unwrap_or(&job.facts.name).to_string())
    });
    notice(model, format!("aborting {}", target.rid));
    let order =
        Abort { server: target.server.clone(), worker: target.worker.clone(), rid: target.rid.clone(), why, job };
    vec![Effect::Helm(Order::Abort(Box::new(order)))]
}
