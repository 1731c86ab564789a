//! Steering: what an operator does with a job that is at work. Pure.
//!
//! Whatever stops or deletes asks first, in a dialog ([`ask`]) that names what it touches and starts on
//! the harmless choice. An order goes out as [`Effect::Helm`]; what comes of it comes back as
//! [`News`]. Where there is nothing to steer, every key says why.

pub mod ask;
pub mod crowd;
pub mod endpoint;
pub mod live;
pub mod regrade;
pub mod stop;

use super::action::{Action, Context};
use super::derived::Attention;
use super::effect::Effect;
use super::helm::{Crew, Hand, News, Order, Over, Place, Probed, Shut, Side, Stopping, Where};
use super::model::{Model, View};
use super::overlay::Overlay;
use super::rows::{Outcome, Row, RowId};
use super::triage;
use super::update::notice;
use super::works::{self, Works};
use crate::job::{Job, JobKey, Phase, StateKind, TrialKey, time};
use crate::serving::Severity;
use ask::{Ask, Asking};
use regrade::RegradeState;
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
    /// Why nothing begins, as last heard.
    pub shut: Vec<Shut>,
    /// What its trials say that they do.
    pub works: Works,
    /// Who steers.
    pub hand: Hand,
    /// Where the models of the job are served, as last heard.
    pub endpoints: Vec<Where>,
    /// The process that runs the job looks after its endpoints, and notes their outages.
    pub looked_after: bool,
    /// An address that is being probed.
    pub probing: Option<String>,
    /// What a probe found last.
    pub probed: Option<Probed>,
    /// This screen watches a child that another process of ours keeps: leaving it asks.
    pub supervises: bool,
    /// Why the run may not outlive a logout, where that can be told.
    pub logout: Option<String>,
    /// Trial slots that were asked for and are not told yet.
    pub wanted: Option<usize>,
    /// Set when the owner's job is over.
    pub over: Option<Over>,
    /// The stop that was begun last, with its audit.
    pub stop: Option<StopState>,
    /// The regrade that was asked for last, until it has ended.
    pub regrade: Option<RegradeState>,
}

impl Steer {
    /// Whether this process has a job at work.
    pub fn holds(&self) -> bool {
        self.side == Side::Owner && self.over.is_none()
    }

    /// Whether the process that runs the job is heard from another one's screen.
    pub fn linked(&self) -> bool {
        self.side == Side::Attached && self.crew.is_some() && self.over.is_none()
    }

    /// How the job at work stands, on its own screen or a linked one.
    pub fn at_work(&self) -> Option<Crew> {
        self.crew.filter(|_| self.holds() || self.linked())
    }
}

/// The actions that steer; None: it is none of them.
pub fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    Some(match action {
        Action::SlotsMore => slots(model, true),
        Action::SlotsLess => slots(model, false),
        Action::Pause => pause(model),
        Action::First => crowd::first(model),
        Action::TakeHelm => take(model),
        Action::Endpoint => endpoint::begin(model),
        Action::Detach => detach(model),
        Action::CancelTrial if model.context() == Context::List && !crowd::running(model).is_empty() => {
            crowd::cancel(model)
        }
        Action::CancelTrial => cancel(model),
        Action::Stop => stop::begin(model),
        Action::Regrade => regrade::begin(model),
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
    let child = model.steer.supervises && child(model).is_some();
    if !model.steer.holds() && !child {
        return vec![Effect::Quit];
    }
    match &model.overlay {
        // Pressed again in the dialog: the harmless way out of it.
        Some(Overlay::Ask(_)) => model.overlay = None,
        _ => model.overlay = Some(Overlay::Ask(Asking::new(Ask::Leave))),
    }
    Vec::new()
}

/// The child that a supervising screen watches, while it lives: its process.
pub fn child(model: &Model) -> Option<u32> {
    let running = |job: &&Job| model.derived.state(job.key).is_some_and(|s| s.kind == StateKind::Running);
    let job = model.fleet.jobs().first().filter(|job| model.fleet.jobs().len() == 1 || running(job))?;
    job.liveness.owner.as_ref().map(|(pid, _)| *pid)
}

/// The job that the keys are about: that of the trial or row that is looked at, else the only one.
pub fn job(model: &Model) -> Option<&Job> {
    let key = match model.view() {
        View::Trial | View::Replay => model.trial.as_ref().map(|t| t.key.job),
        // A line about another job is about none of these, not about the only one.
        View::Jobs => return super::jobs::attached(model).and_then(|key| model.fleet.job(key)),
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
            None => match &model.steer.hand {
                Hand::Other(who) => Some(format!("{who} steers now: H takes the helm back")),
                Hand::Mine | Hand::Nobody => None,
            },
        },
        Side::Attached if model.steer.linked() => match &model.steer.hand {
            Hand::Mine => None,
            Hand::Other(who) => Some(format!("{who} steers, this screen looks on: H takes the helm")),
            Hand::Nobody => Some("this screen looks on: H takes the helm, then keys steer".to_string()),
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
    if let Some(stray) = job.liveness.stray.as_ref().filter(|stray| !stray.here) {
        let (who, pid, dir) = (&stray.command, stray.pid, stray.writes.display());
        return format!("attached read-only: {who} (pid {pid}) was told {name} and writes into {dir}: attach that");
    }
    match model.derived.state(job.key).map(|s| s.kind) {
        Some(StateKind::Finished) => format!("{name} is finished: nothing runs"),
        _ if job.liveness.owner_search_conclusive => {
            format!("attached read-only: no process on this host works on {name}")
        }
        _ => format!("attached read-only: no process found that works on {name}; it may be on another host"),
    }
}

/// Why the helm can not be taken; None: it can.
pub fn why_not_take(model: &Model) -> Option<String> {
    match (model.steer.side, &model.steer.hand) {
        (Side::Owner | Side::Attached, Hand::Mine) if model.steer.at_work().is_some() => {
            Some("this screen steers already".to_string())
        }
        (Side::Owner | Side::Attached, _) if model.steer.at_work().is_some() => None,
        _ => why_not_owner(model),
    }
}

fn take(model: &mut Model) -> Vec<Effect> {
    match why_not_take(model) {
        Some(why) => {
            notice(model, why);
            Vec::new()
        }
        None => vec![Effect::Helm(Order::TakeHelm)],
    }
}

fn pause(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = why_not_owner(model) {
        notice(model, why);
        return Vec::new();
    }
    let Some(crew) = model.steer.crew else { return Vec::new() };
    let (said, order) = match crew.stopping {
        Stopping::No if crew.paused => (format!("resumed: {} to begin", crew.queued), Some(Order::Resume)),
        Stopping::No => {
            let said = format!("paused: nothing begins, what runs runs on, {} wait; p goes on", crew.queued);
            (said, Some(Order::Pause))
        }
        Stopping::Draining => ("it drains: nothing new begins anyway".to_string(), None),
        Stopping::Cancelling | Stopping::Hurrying => ("it is being stopped: nothing new begins".to_string(), None),
    };
    notice(model, said);
    order.map(Effect::Helm).into_iter().collect()
}

/// Leaves the job to itself; where it might not outlive a logout it asks.
fn detach(model: &mut Model) -> Vec<Effect> {
    match model.steer.side {
        Side::Owner if model.steer.over.is_some() => notice(model, "nothing to detach from: the job is over; q leaves"),
        Side::Owner if model.steer.logout.is_some() => {
            model.overlay = Some(Overlay::Ask(Asking::new(Ask::Detach)));
        }
        Side::Owner => return vec![Effect::Detach],
        Side::Attached => notice(model, "the job runs in another process: q leaves, and it goes on"),
        Side::Reader => notice(model, "nothing runs here: q leaves"),
    }
    Vec::new()
}

/// Puts what holds everything up before all else that needs a person, and calls that go on and on among
/// the rest.
pub fn attention(model: &mut Model) {
    let now = model.now;
    let text = |shut: &Shut| {
        let since = shut.since.and_then(|since| time::seconds_between(since, now));
        let since = since.map_or(String::new(), |s| format!(" for {}", time::words(s)));
        Attention {
            id: format!("gate {}", shut.gate),
            kind: "gate".to_string(),
            severity: Severity::Fatal,
            text: format!("nothing begins{since}: {}: {}", shut.gate, shut.why),
            target: None,
            serving: None,
        }
    };
    let shut: Vec<Attention> = model.steer.shut.iter().map(text).collect();
    let long = works::attention(model);
    model.derived.of_jobs.splice(0..0, shut.into_iter().chain(long));
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
            if model.steer.side == Side::Attached {
                // Somebody goes on with it.
                model.steer.over = None;
            }
            if before.is_none_or(|b| b.slots != crew.slots) || model.steer.wanted == Some(crew.slots) {
                model.steer.wanted = None;
            }
            Vec::new()
        }
        News::Shut(shut) => {
            model.steer.shut = shut;
            model.stale = true;
            Vec::new()
        }
        News::Endpoints(endpoints) => endpoint::heard(model, endpoints),
        News::Probed(probed) => endpoint::probed(model, probed),
        News::Hand(hand) => {
            let before = std::mem::replace(&mut model.steer.hand, hand);
            match &model.steer.hand {
                Hand::Other(who) if before == Hand::Mine => {
                    let text = format!("{who} steers now; this screen looks on, H takes the helm back");
                    notice(model, text);
                }
                Hand::Mine if before != Hand::Mine && model.steer.side == Side::Attached => {
                    notice(model, "this screen steers now");
                }
                _ => {}
            }
            Vec::new()
        }
        News::Work(changes) => works::take(model, changes),
        News::Unlinked => {
            model.steer.crew = None;
            model.steer.works.clear();
            model.steer.hand = Hand::Nobody;
            model.steer.shut.clear();
            model.steer.endpoints.clear();
            model.steer.probing = None;
            model.stale = true;
            Vec::new()
        }
        News::Told(text) => {
            notice(model, text);
            Vec::new()
        }
        News::ChildEnded(text) => {
            model.steer.supervises = false;
            // The question whether to leave it running is none any more.
            if matches!(&model.overlay, Some(Overlay::Ask(asking)) if asking.ask == Ask::Leave) {
                model.overlay = None;
            }
            notice(model, text);
            Vec::new()
        }
        News::Over(over) => {
            model.steer.works.clear();
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
        News::Held(key, found) => {
            regrade::found(model, &key, found);
            Vec::new()
        }
        News::Regrade(key, progress) => {
            regrade::progress(model, &key, progress);
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
