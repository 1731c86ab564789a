//! The model servers on the screen: which pane and row is looked at, what the trials do by them, and
//! what follows from it: alarms, noted outages, the abort of a request.

pub mod alarms;
pub mod guess;
pub mod log;
pub mod notes;
pub mod request;

use std::collections::BTreeMap;

use super::action::Action;
use super::effect::Effect;
use super::input::Input;
use super::menus;
use super::model::{Model, View};
use super::overlay::{Overlay, PromptKind};
use super::update::notice;
use crate::job::{Stamp, TrialKey, time};
use crate::serving::join::{self, Joined};
use crate::serving::rids::Rids;
use crate::serving::{
    Calm, Diagnosis, DiagnosisKind, Observation, Replica, ReplicaKey, Seen, Server, Severity, State, Thresholds,
};

/// The panes of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// The replicas.
    #[default]
    Replicas,
    /// What is wrong, and what was.
    Diagnoses,
    /// The log of the selected replica's server.
    Log,
}

/// What the screen makes of the servers.
#[derive(Debug, Default)]
pub struct Servers {
    /// The pane that has the keys.
    pub pane: Pane,
    /// The selected replica.
    pub selected: Option<ReplicaKey>,
    /// The selected diagnosis, by its place in [`diagnoses`].
    pub diagnosis_at: usize,
    /// A replica is open, scrolled by so many lines.
    pub detail: Option<usize>,
    /// The log view.
    pub log: log::LogView,
    /// What each running trial does.
    pub joined: BTreeMap<TrialKey, Joined>,
    /// Alarms: which were told, which are to be told.
    pub alarms: alarms::Alarms,
    /// Outages and the history of the run, for the journal.
    pub notes: notes::Notes,
    /// Requests by their ids.
    pub rids: Rids,
    /// The endpoint that the job itself names.
    pub guess: guess::Guess,
    /// From when on something is a diagnosis.
    pub thresholds: Thresholds,
    /// Which of [`SPANS`] the timeline shows.
    pub span_at: usize,
    ticked: Option<Stamp>,
}

/// Seconds that the timeline can show.
pub const SPANS: [f64; 5] = [600.0, 1800.0, 3600.0, 4.0 * 3600.0, 8.0 * 3600.0];

impl Servers {
    /// Seconds that the timeline shows.
    pub fn span(&self) -> f64 {
        SPANS.get(self.span_at).copied().unwrap_or(600.0)
    }
}

/// Between two looks at the trials' side.
const PACE: f64 = 0.25;

/// News of the servers.
pub fn observe(model: &mut Model, observations: Vec<Observation>) -> Vec<Effect> {
    let observations = guess::admit(model, observations);
    for seen in &observations {
        if let Seen::Line(line) = &seen.seen
            && let Some(source) = model.serving.sources().iter().find(|s| s.source.id == seen.source)
        {
            model.servers.rids.line(&source.source.server, line, seen.at);
        }
        model.serving.observe(seen);
    }
    tick(model)
}

/// Whether any server is read.
pub fn any(model: &Model) -> bool {
    !model.serving.sources().is_empty()
}

/// Brings what follows from time and trials up to date.
pub fn tick(model: &mut Model) -> Vec<Effect> {
    let now = model.now;
    let soon = |then: Stamp| time::seconds_between(then, now).is_some_and(|s| s < PACE);
    if model.servers.ticked.is_some_and(soon) {
        return Vec::new();
    }
    model.servers.ticked = Some(now);
    let known = any(model);
    let works = &model.steer.works.said;
    let asked_for = known || !works.is_empty();
    let trials = join::trials(&model.fleet, now, asked_for, works, &model.servers.thresholds.thinking);
    if known {
        model.serving.tick(now, &trials.demand(now));
    }
    let replicas = asked(model);
    model.servers.joined = join::join(&trials, &replicas, now);
    let long = trials.told.into_iter().filter_map(|told| Some((told.key, told.long?)));
    model.steer.works.long = long.collect();
    if !known {
        return Vec::new();
    }
    keep_selection(model);
    notes::keep(model)
}

/// What trials' requests go to: the replicas; where every router is gone the routers, whatever their workers
/// do.
fn asked(model: &Model) -> Vec<join::Replica> {
    let routers: Vec<&Server> = model.serving.servers().iter().filter(|s| s.is_router()).collect();
    let gone: Vec<join::Replica> = routers.iter().filter_map(|router| gone_router(model, router)).collect();
    if !gone.is_empty() && gone.len() == routers.len() {
        return gone;
    }
    model.serving.replicas().map(joinable).collect()
}

/// A router that does not serve, in the shape of a replica that does not.
pub fn gone_router(model: &Model, router: &Server) -> Option<join::Replica> {
    let unreached = || {
        model
            .serving
            .open()
            .find(|d| d.kind == DiagnosisKind::Unreachable && d.server == router.name && router.is_router())
    };
    let (state, since) = match router.state() {
        state if router.is_router() && is_gone(state) => (state, router.since()),
        _ => (State::Hung, unreached()?.since),
    };
    let name = router.name.clone();
    Some(join::Replica { name, state, since, running: None, queued: None, generation: None, age: None })
}

/// It does not serve.
pub fn is_gone(state: State) -> bool {
    matches!(state, State::Dead | State::Hung | State::Restarting)
}

fn joinable(replica: &Replica) -> join::Replica {
    use crate::serving::Field;
    let figures = replica.figures();
    join::Replica {
        name: join::name(&replica.key).into(),
        state: replica.state,
        since: replica.since(),
        running: figures.running,
        queued: figures.queued,
        generation: figures.generation,
        age: replica.age(Field::Running),
    }
}

fn keep_selection(model: &mut Model) {
    let there = |key: &ReplicaKey| model.serving.replicas().any(|r| r.key == *key);
    if !model.servers.selected.as_ref().is_some_and(there) {
        model.servers.selected = model.serving.replicas().next().map(|r| r.key.clone());
    }
    let n = diagnoses(model).len();
    model.servers.diagnosis_at = model.servers.diagnosis_at.min(n.saturating_sub(1));
}

/// The selected replica.
pub fn selected(model: &Model) -> Option<&Replica> {
    let key = model.servers.selected.as_ref()?;
    model.serving.replicas().find(|r| r.key == *key)
}

/// All diagnoses: those that hold first, worst first; then those that are over, the latest first.
pub fn diagnoses(model: &Model) -> Vec<&Diagnosis> {
    let place = |kind| DiagnosisKind::ALL.iter().position(|k| *k == kind);
    let mut all: Vec<&Diagnosis> = model.serving.diagnoses().collect();
    all.sort_by(|a, b| {
        a.over.cmp(&b.over).then_with(|| match a.over {
            false => b.severity.cmp(&a.severity).then_with(|| place(a.kind).cmp(&place(b.kind))),
            true => b.until.cmp(&a.until).then_with(|| b.since.cmp(&a.since)),
        })
    });
    all
}

/// Opens the view at a diagnosis.
pub fn show_diagnosis(model: &mut Model, kind: DiagnosisKind, server: &str, replica: Option<&ReplicaKey>) {
    let at = diagnoses(model)
        .iter()
        .position(|d| d.kind == kind && *d.server == *server && d.replica.as_ref() == replica && !d.over);
    model.servers.diagnosis_at = at.unwrap_or(0);
    model.servers.pane = Pane::Diagnoses;
    model.servers.detail = None;
    select_server(model, server, replica);
}

fn select_server(model: &mut Model, server: &str, replica: Option<&ReplicaKey>) {
    let of_server = |r: &&Replica| *r.key.server == *server;
    let key = replica.cloned().or_else(|| model.serving.replicas().find(of_server).map(|r| r.key.clone()));
    model.servers.selected = key.or(model.servers.selected.take());
}

/// One step back within the view; None: there is none.
pub fn back(model: &mut Model) -> bool {
    if model.servers.detail.take().is_some() {
        return true;
    }
    if model.servers.pane == Pane::Log && !model.servers.log.filter.is_empty() {
        model.servers.log.set_filter("");
        return true;
    }
    if model.servers.pane != Pane::Replicas {
        model.servers.pane = Pane::Replicas;
        return true;
    }
    false
}

/// What `y` copies.
pub fn copy_text(model: &Model) -> Option<String> {
    match model.servers.pane {
        Pane::Diagnoses => {
            diagnoses(model).get(model.servers.diagnosis_at).map(|d| format!("{}; {}", d.text, d.advice))
        }
        Pane::Log => log::last_shown(model).map(|line| line.text.to_string()),
        Pane::Replicas => selected(model).map(|r| r.key.worker.as_ref().unwrap_or(&r.key.server).to_string()),
    }
}

/// Does an action in the view.
pub fn act(model: &mut Model, action: Action, page: usize) -> Vec<Effect> {
    match action {
        Action::Search => {
            model.servers.pane = Pane::Log;
            let input = Input::new(&model.servers.log.filter);
            model.overlay = Some(Overlay::Prompt(PromptKind::ServerLog, input, None));
        }
        Action::ClearFilter => model.servers.log.set_filter(""),
        Action::NextPane => {
            model.servers.detail = None;
            model.servers.pane = match model.servers.pane {
                Pane::Replicas => Pane::Diagnoses,
                Pane::Diagnoses => Pane::Log,
                Pane::Log => Pane::Replicas,
            };
        }
        Action::Zoom => model.zoom = !model.zoom,
        Action::Faster => model.servers.span_at = (model.servers.span_at + 1).min(SPANS.len() - 1),
        Action::Slower => model.servers.span_at = model.servers.span_at.saturating_sub(1),
        Action::Acts => model.overlay = Some(Overlay::Menu(menus::acts(model))),
        Action::AbortRequest => return request::begin(model),
        Action::Open => open(model),
        Action::Down => step(model, 1),
        Action::Up => step(model, -1),
        Action::PageDown => step(model, page as isize),
        Action::PageUp => step(model, -(page as isize)),
        Action::Top => step(model, isize::MIN / 2),
        Action::Bottom => step(model, isize::MAX / 2),
        _ => {}
    }
    Vec::new()
}

fn open(model: &mut Model) {
    if model.servers.detail.is_some() {
        return;
    }
    match model.servers.pane {
        Pane::Replicas if selected(model).is_some() => model.servers.detail = Some(0),
        Pane::Replicas => notice(model, "no replica is known yet"),
        Pane::Log => model.zoom = !model.zoom,
        Pane::Diagnoses => {
            let of = diagnoses(model).get(model.servers.diagnosis_at).map(|d| (d.server.clone(), d.replica.clone()));
            match of {
                Some((server, replica)) => {
                    select_server(model, &server, replica.as_ref());
                    if selected(model).is_some() {
                        model.servers.detail = Some(0);
                    }
                }
                None => notice(model, Calm::of(model.serving.replicas().map(|row| row.state)).words()),
            }
        }
    }
}

fn step(model: &mut Model, by: isize) {
    if let Some(top) = &mut model.servers.detail {
        *top = top.saturating_add_signed(by);
        return;
    }
    match model.servers.pane {
        Pane::Replicas => {
            let keys: Vec<&ReplicaKey> = model.serving.replicas().map(|r| &r.key).collect();
            let at = keys.iter().position(|k| Some(*k) == model.servers.selected.as_ref()).unwrap_or(0);
            let to = at.saturating_add_signed(by).min(keys.len().saturating_sub(1));
            model.servers.selected = keys.get(to).map(|k| (*k).clone());
        }
        Pane::Diagnoses => {
            let n = diagnoses(model).len();
            let at = model.servers.diagnosis_at;
            model.servers.diagnosis_at = at.saturating_add_signed(by).min(n.saturating_sub(1));
        }
        Pane::Log => log::step(model, by),
    }
}

/// Whether the view is on the screen.
pub fn is_open(model: &Model) -> bool {
    model.view() == View::Serving
}

/// The word for a severity in JSON.
pub fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
    }
}
