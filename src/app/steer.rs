//! Steering: what an operator does with a job that is at work. Pure.
//!
//! Whatever stops or deletes asks first, in a dialog ([`ask`]) that names what it touches and starts on
//! the harmless choice. An order goes out as [`Effect::Helm`]; what comes of it comes back as
//! [`News`]. Where there is nothing to steer, every key says why.

pub mod ask;
pub mod live;
pub mod stop;

use super::action::Action;
use super::effect::Effect;
use super::helm::{Crew, News, Order, Over, Place, Side, Stopping};
use super::model::{Model, View};
use super::overlay::Overlay;
use super::rows::{Outcome, Row, RowId};
use super::triage;
use super::update::notice;
use crate::job::{Job, JobKey, Phase, StateKind, TrialKey};
use ask::{Ask, Asking};
use stop::StopState;

/// What the model knows of the other side of the helm.
#[derive(Debug, Default)]
pub struct Steer {
    /// How this screen stands to its jobs.
    pub side: Side,
    /// What is said of trials is written down.
    pub notes: bool,
    /// The owner's side, as last heard.
    pub crew: Option<Crew>,
    /// Trial slots that were asked for and are not told yet.
    pub wanted: Option<usize>,
    /// Set when the owner's job is over.
    pub over: Option<Over>,
    /// The stop that was begun last, with its audit.
    pub stop: Option<StopState>,
}

impl Steer {
    /// Whether this process has a job at work.
    pub fn holds(&self) -> bool {
        self.side == Side::Owner && self.over.is_none()
    }
}

/// The actions that steer; None: it is none of them.
pub fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    Some(match action {
        Action::SlotsMore => slots(model, true),
        Action::SlotsLess => slots(model, false),
        Action::CancelTrial => cancel(model),
        Action::Stop => stop::begin(model),
        Action::Live => live::open(model),
        // It would stop the job's own process, with its containers and its lease.
        Action::Suspend if model.steer.holds() => {
            notice(model, "not suspended: this process runs the job, and would stand still with it");
            Vec::new()
        }
        action if model.view() == View::Stop => return stop::act(model, action),
        _ => return None,
    })
}

/// Leaves the screen, unless this process has a job at work: then it asks.
pub fn quit(model: &mut Model) -> Vec<Effect> {
    if !model.steer.holds() {
        return vec![Effect::Quit];
    }
    match &model.overlay {
        // Pressed again in the dialog: the harmless way out of it.
        Some(Overlay::Ask(_)) => model.overlay = None,
        _ => model.overlay = Some(Overlay::Ask(Asking::new(Ask::Leave))),
    }
    Vec::new()
}

/// The job that the keys are about: that of the trial or row that is looked at, else the only one.
pub fn job(model: &Model) -> Option<&Job> {
    let key = match model.view() {
        View::Trial | View::Replay => model.trial.as_ref().map(|t| t.key.job),
        View::Jobs => model.fleet.jobs().get(model.jobs_at).map(|j| j.key),
        View::Stop => model.steer.stop.as_ref().map(|s| s.place.job),
        View::Triage => triage::current(model).map(|r| r.job),
        View::Preview => model.preview.as_ref().map(|p| p.place.job),
        _ => model.table.selected_row(&model.rows).map(|r| r.job),
    };
    match key {
        Some(key) => model.fleet.job(key),
        None => match model.fleet.jobs() {
            [job] => Some(job),
            _ => None,
        },
    }
}

/// The trial that the keys are about, with its row.
pub fn trial(model: &Model) -> Option<&Row> {
    match (model.view(), &model.trial) {
        (View::Trial, Some(view)) => row(model, &view.key),
        (View::Trials, _) if !model.focus_errors => model.table.selected_row(&model.rows),
        (View::Triage, _) => triage::current(model),
        (View::Log, _) => row(model, model.derived.warnings.get(model.log_at)?.target.as_ref()?),
        _ => None,
    }
}

/// The row of a trial.
pub fn row<'a>(model: &'a Model, key: &TrialKey) -> Option<&'a Row> {
    model.rows.iter().find(|r| matches!(&r.id, RowId::Trial(k) if k == key))
}

/// Where a job is.
pub fn place(model: &Model, key: JobKey) -> Option<Place> {
    model.fleet.job(key).map(|job| Place { job: key, dir: job.facts.dir.clone() })
}

/// Why an action of the owner can not be done here; None: it can.
pub fn why_not_owner(model: &Model) -> Option<String> {
    match model.steer.side {
        Side::Owner => match &model.steer.over {
            Some(over) => Some(format!("nothing to steer: {}", over.words)),
            None if model.steer.crew.is_none() => Some("the job has not begun yet".to_string()),
            None => None,
        },
        Side::Reader => Some("nothing to steer here: this screen only looks".to_string()),
        Side::Attached => Some(match job(model).map(|j| (j, j.liveness.owner.as_ref())) {
            Some((_, Some((pid, command)))) => {
                format!("attached read-only: {command} (pid {pid}) runs it, only its own screen steers it; s stops it")
            }
            Some((job, None)) => nobody(model, job),
            None => "attached read-only".to_string(),
        }),
    }
}

/// Why a job can not be stopped from here; None: it can be tried.
pub fn why_not_stop(model: &Model) -> Option<String> {
    match model.steer.side {
        Side::Owner => model.steer.over.as_ref().map(|over| format!("nothing to stop: {}", over.words)),
        Side::Reader => Some("nothing to stop here: this screen only looks".to_string()),
        Side::Attached => match job(model) {
            None if model.fleet.jobs().is_empty() => Some("no job yet".to_string()),
            None => Some("several jobs: select a trial or, on 6, the job".to_string()),
            Some(job) if job.liveness.owner.is_none() => Some(nobody(model, job)),
            Some(_) => None,
        },
    }
}

/// Nobody is known to work on a job: in words.
fn nobody(model: &Model, job: &Job) -> String {
    let name = &job.facts.name;
    match model.derived.state(job.key).map(|s| s.kind) {
        Some(StateKind::Finished) => format!("{name} is finished: nothing runs"),
        _ if job.liveness.owner_search_conclusive => {
            format!("attached read-only: no process on this host works on {name}")
        }
        _ => format!("attached read-only: no process found that works on {name}; it may be on another host"),
    }
}

fn slots(model: &mut Model, more: bool) -> Vec<Effect> {
    if let Some(why) = why_not_owner(model) {
        notice(model, why);
        return Vec::new();
    }
    let Some(crew) = model.steer.crew else { return Vec::new() };
    let now = model.steer.wanted.unwrap_or(crew.slots);
    let left = crew.running + crew.waiting + crew.queued;
    let to = if more { now.saturating_add(1) } else { now.saturating_sub(1) };
    let (said, order) = match crew.stopping {
        Stopping::Draining => ("it drains: nothing new begins, whatever n is".to_string(), None),
        Stopping::Cancelling | Stopping::Hurrying => ("it is being stopped: nothing new begins".to_string(), None),
        Stopping::No if to == 0 => ("1 slot is the least; s drains or stops the job".to_string(), None),
        Stopping::No if more && now >= left => (format!("n {now}: every trial that is left has its slot"), None),
        Stopping::No if more => (format!("n {to}: the next trial begins"), Some(to)),
        Stopping::No if crew.running > to => (
            format!("n {to}: what runs runs on, nothing begins before {} of them end", crew.running - to + 1),
            Some(to),
        ),
        Stopping::No => (format!("n {to}"), Some(to)),
    };
    notice(model, said);
    match order {
        Some(to) => {
            model.steer.wanted = Some(to);
            vec![Effect::Helm(Order::Slots(to))]
        }
        None => Vec::new(),
    }
}

/// Why a trial can not be cancelled; None: it can.
pub fn why_not_cancel(model: &Model) -> Option<String> {
    if let Some(why) = why_not_owner(model) {
        return Some(why);
    }
    let Some(row) = trial(model) else { return Some("no trial is selected here".to_string()) };
    let cancelling = model.steer.crew.is_some_and(|c| c.stopping >= Stopping::Cancelling);
    match (row.outcome, row.phase) {
        _ if cancelling => Some("all that runs is being cancelled already".to_string()),
        (_, Phase::RetryWait) => Some(format!("{} waits for its next attempt; nothing of it runs", row.task)),
        (Outcome::Queued, _) => Some(format!("{} has not begun: nothing of it runs", row.task)),
        (Outcome::Running, _) => None,
        (outcome, _) => Some(format!("{} has ended: {}", row.name, outcome.word())),
    }
}

fn cancel(model: &mut Model) -> Vec<Effect> {
    match (why_not_cancel(model), trial(model).map(|r| r.id.clone())) {
        (None, Some(RowId::Trial(key))) => model.overlay = Some(Overlay::Ask(Asking::new(Ask::Cancel(key)))),
        (Some(why), _) => notice(model, why),
        (None, _) => {}
    }
    Vec::new()
}

/// Takes in news from the other side.
pub fn news(model: &mut Model, news: News) -> Vec<Effect> {
    match news {
        News::Crew(crew) => {
            let before = model.steer.crew.replace(crew);
            if before.is_none_or(|b| b.slots != crew.slots) || model.steer.wanted == Some(crew.slots) {
                model.steer.wanted = None;
            }
            Vec::new()
        }
        News::Over(over) => {
            model.stale = true;
            stop::over(model, over)
        }
        News::Said(job, batch, said) => {
            triage::ledger::said(model, job, batch, said);
            super::update::tell_evidence(model);
            Vec::new()
        }
        News::Prepared(serial, prepared) => {
            super::requeue::prepared(model, serial, *prepared);
            Vec::new()
        }
        News::Requeue(progress) => super::requeue::progress(model, progress),
        News::Previewed(job, text) => {
            super::preview::heard(model, job, text);
            Vec::new()
        }
        News::Aborted(done) => {
            notice(model, done.unwrap_or_else(|why| format!("not aborted: {why}")));
            Vec::new()
        }
        News::Refused(why) => {
            notice(model, why);
            Vec::new()
        }
        news => stop::news(model, news),
    }
}

/// Rows of trials that are at work in a job.
pub fn at_work(model: &Model, key: JobKey) -> impl Iterator<Item = &Row> {
    model.rows.iter().filter(move |r| r.job == key && r.outcome == Outcome::Running)
}
