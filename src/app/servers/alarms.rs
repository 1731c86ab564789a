//! What needs a person: the jobs' items and the servers' diagnoses in one list, worst first; and the
//! telling of new ones, by bell and notify command, once each.

use std::sync::Arc;

use super::super::alert::{Alert, Told};
use super::super::derived::Attention;
use super::super::effect::Effect;
use super::super::model::Model;
use super::{join, severity_word};
use crate::job::{Stamp, time};
use crate::serving::{Diagnosis, DiagnosisKind, ReplicaKey, Severity};

/// So long after the first reading an alarm of a job is not news: it is as old as what was read.
const FIRST: f64 = 5.0;
/// Alarms that may wait to be told.
const WAITING: usize = 64;

/// A diagnosis that an item is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Its kind.
    pub kind: DiagnosisKind,
    /// The server.
    pub server: Arc<str>,
    /// The replica.
    pub replica: Option<ReplicaKey>,
}

/// Which alarms were told, and which are to be.
#[derive(Debug, Default)]
pub struct Alarms {
    /// The bell rings for new ones.
    pub bell: bool,
    /// There is a notify command.
    pub notify: bool,
    told: Told,
    waiting: Vec<Alert>,
    /// When everything had been read for the first time.
    read: Option<Stamp>,
}

impl Alarms {
    /// Whether some are to be told.
    pub fn wait(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Puts the servers' diagnoses among what needs a person, and notes what is new. Called once before a
/// frame.
pub fn gather(model: &mut Model) {
    let mut items: Vec<Attention> = model.derived.of_jobs.clone();
    items.extend(model.serving.open().filter(|d| d.severity >= Severity::Warning).map(item));
    // The sort is stable: within a severity the jobs' own order, then that of the diagnoses.
    items.sort_by_key(|item| std::cmp::Reverse(item.severity));
    if items != model.derived.attention {
        model.derived.attention = items;
    }
    news(model);
}

fn item(d: &Diagnosis) -> Attention {
    Attention {
        id: format!("serving {}", id(d)),
        kind: d.kind.name().to_string(),
        severity: d.severity,
        text: format!("{}: {}", name(d), d.text),
        target: None,
        serving: Some(Point { kind: d.kind, server: d.server.clone(), replica: d.replica.clone() }),
    }
}

fn name(d: &Diagnosis) -> String {
    d.replica.as_ref().map_or_else(|| d.server.to_string(), join::name)
}

fn id(d: &Diagnosis) -> String {
    let since = d.since.map_or_else(|| "-".to_string(), |at| at.as_second().to_string());
    format!("{} {} {since}", d.kind.name(), name(d))
}

fn news(model: &mut Model) {
    let now = model.now;
    let reading = model.fleet.jobs().iter().any(|j| !j.settled);
    if model.servers.alarms.read.is_none() && !model.fleet.jobs().is_empty() && !reading {
        model.servers.alarms.read = Some(now);
    }
    let first = model.servers.alarms.read.is_none_or(|at| time::age(at, now).as_secs_f64() < FIRST);
    // A job that is over has nothing that anybody must be woken for.
    let at_work = model.moves();
    let mut new: Vec<Alert> = Vec::new();
    let alarms = &mut model.servers.alarms;
    for item in model.derived.attention.iter().filter(|item| item.serving.is_none()) {
        if alarms.told.is_new(&item.id, now) && !first && at_work {
            let job = item.target.as_ref().and_then(|key| model.fleet.job(key.job)).or(match model.fleet.jobs() {
                [only] => Some(only),
                _ => None,
            });
            new.push(Alert {
                kind: item.kind.clone(),
                severity: severity_word(item.severity).to_string(),
                text: item.text.clone(),
                job: job.map(|j| j.facts.name.to_string()),
                trial: item.target.as_ref().map(|key| key.trial.to_string()),
                ..Alert::default()
            });
        }
    }
    // Those that are over already count, too: a restart may be seen only afterwards. Long past ones do not.
    let recent = |d: &&Diagnosis| !d.over || d.until.is_some_and(|until| time::age(until, now).as_secs_f64() < 60.0);
    for d in model.serving.diagnoses().filter(|d| d.severity >= Severity::Warning).filter(recent) {
        if alarms.told.is_new(&format!("serving {}", id(d)), now) {
            new.push(Alert {
                kind: d.kind.name().to_string(),
                severity: severity_word(d.severity).to_string(),
                text: d.text.to_string(),
                advice: d.advice.to_string(),
                server: Some(d.server.to_string()),
                replica: d.replica.as_ref().map(join::name),
                since: d.since.map(|at| at.to_string()),
                figures: d.figures.clone(),
                ..Alert::default()
            });
        }
    }
    for alert in new {
        if alarms.waiting.len() < WAITING {
            alarms.waiting.push(Alert { time: Some(now.to_string()), ..alert });
        }
    }
}

/// Tells what waits.
pub fn tell(model: &mut Model) -> Vec<Effect> {
    let waiting = std::mem::take(&mut model.servers.alarms.waiting);
    if waiting.is_empty() {
        return Vec::new();
    }
    let mut effects = Vec::new();
    if model.servers.alarms.bell {
        effects.push(Effect::Bell);
    }
    if model.servers.alarms.notify {
        effects.extend(waiting.into_iter().map(|alert| Effect::Notify(Box::new(alert))));
    }
    effects
}
