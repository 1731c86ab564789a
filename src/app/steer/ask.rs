//! The dialogs: what is asked, what it touches, what can be answered. The text is made anew from the
//! model for every frame, so that it never counts what is not there any more; the answer is checked
//! against it once more.

use super::super::effect::Effect;
use super::super::helm::{Crew, Order, Side, Signal, Stopping};
use super::super::key::Key;
use super::super::model::Model;
use super::super::overlay::Overlay;
use super::super::rows::{Outcome, Row};
use super::super::servers::request;
use super::super::triage;
use super::super::update::notice;
use super::super::works;
use super::{at_work, row, stop};
use crate::job::{JobKey, Phase, Stamp, Trial, TrialKey, time};

/// Running trials that a dialog names; the rest is counted.
const NAMED: usize = 8;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Cancel this trial?
    Cancel(TrialKey),
    /// Stop this job?
    Stop(JobKey),
    /// Cancel these trials?
    CancelMany(Vec<TrialKey>),
    /// Leave the screen that runs the job?
    Leave,
    /// Leave the job to itself, though it may not outlive a logout?
    Detach,
    /// Mend this finding of the audit, or all that can be mended?
    Mend(Option<usize>),
    /// Say one thing of many trials?
    Bulk,
    /// End this request at its server?
    Abort(request::Target),
    /// Call the model at this address from now on?
    Endpoint(String),
    /// Run the verifier of this trial again?
    Regrade(TrialKey),
}

/// An answer. What it does is fixed by the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Nothing: the harmless one, first in every dialog.
    Keep,
    /// Cancel the trial.
    CancelTrial,
    /// Begin nothing new.
    Drain,
    /// Cancel what runs.
    StopNow,
    /// Wait less.
    Hurry,
    /// Send this signal.
    Send(Signal),
    /// Leave the screen.
    Leave,
    /// Ask how to stop.
    AskStop,
    /// Leave the screen; the job goes on.
    Detach,
    /// Mend.
    Mend,
    /// Say it.
    Say,
    /// End the request.
    AbortRequest,
    /// Call the model there.
    Move,
    /// Run the verifier again; its container is held on.
    Regrade,
    /// Run it again, then remove the container.
    RegradeAndRelease,
}

/// How a line of a dialog sounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tone {
    Plain,
    Strong,
    Dim,
    Alarm,
}

/// One answer that is offered.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// What it does.
    pub deed: Deed,
    /// In few words.
    pub label: String,
    /// What it costs; empty for the harmless one.
    pub price: String,
}

/// One line or paragraph of a dialog.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A paragraph.
    Text(Tone, String),
    /// A thing and a fact about it, on one line.
    Row(String, String),
}

/// A dialog as it is to be shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Content {
    /// Title in the frame.
    pub title: String,
    /// What it is about.
    pub text: Vec<Said>,
    /// The answers, the harmless one first.
    pub offers: Vec<Offer>,
}

/// An open dialog.
#[derive(Debug, Clone, PartialEq)]
pub struct Asking {
    /// What is asked.
    pub ask: Ask,
    /// The answer that has the focus; where it is not offered any more, the harmless one has it.
    pub focus: Deed,
    /// Lines of the text that are scrolled away.
    pub top: usize,
}

impl Asking {
    /// Opens a dialog, with the focus on the harmless answer.
    pub fn new(ask: Ask) -> Asking {
        Asking { ask, focus: Deed::Keep, top: 0 }
    }

    /// Place of the focus among what is offered.
    pub fn at(&self, content: &Content) -> usize {
        content.offers.iter().position(|o| o.deed == self.focus).unwrap_or(0)
    }
}

impl Content {
    /// Adds a paragraph.
    pub fn say(&mut self, tone: Tone, text: impl Into<String>) {
        self.text.push(Said::Text(tone, text.into()));
    }

    /// Adds an answer.
    pub fn offer(&mut self, deed: Deed, label: impl Into<String>, price: impl Into<String>) {
        self.offers.push(Offer { deed, label: label.into(), price: price.into() });
    }
}

/// A key while a dialog is open. Letters decide nothing: an answer is chosen, then given.
pub fn key(model: &mut Model, mut asking: Asking, key: Key) -> Vec<Effect> {
    let content = content(model, &asking.ask);
    let at = asking.at(&content);
    let to = match key {
        Key::Esc | Key::Char('q') => return answer(model, &asking.ask, Deed::Keep),
        Key::Enter => {
            let deed = content.offers.get(at).map_or(Deed::Keep, |o| o.deed);
            return answer(model, &asking.ask, deed);
        }
        Key::Down | Key::Char('j') | Key::Tab | Key::Right | Key::Char('l') => at + 1,
        Key::Up | Key::Char('k') | Key::BackTab | Key::Left | Key::Char('h') => at.saturating_sub(1),
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => content.offers.len(),
        Key::PageDown | Key::Ctrl('d') | Key::Char(' ') => {
            asking.top += 4;
            at
        }
        Key::PageUp | Key::Ctrl('u') => {
            asking.top = asking.top.saturating_sub(4);
            at
        }
        _ => at,
    };
    let to = to.min(content.offers.len().saturating_sub(1));
    asking.focus = content.offers.get(to).map_or(Deed::Keep, |o| o.deed);
    model.overlay = Some(Overlay::Ask(asking));
    Vec::new()
}

fn answer(model: &mut Model, ask: &Ask, deed: Deed) -> Vec<Effect> {
    match (ask, deed) {
        (_, Deed::Keep) => {
            model.triage.bulk = None;
            Vec::new()
        }
        (Ask::Bulk, Deed::Say) => triage::bulk::say(model),
        (_, Deed::Leave) => vec![Effect::Quit],
        (_, Deed::AskStop) => stop::begin(model),
        (_, Deed::Detach) => vec![Effect::Detach],
        (Ask::CancelMany(keys), Deed::CancelTrial) => {
            let names: Vec<String> = super::crowd::still(model, keys).map(|row| row.name.to_string()).collect();
            model.marked.retain(|key| !keys.contains(key));
            notice(model, format!("cancelling {}", trials(names.len())));
            vec![Effect::Helm(Order::CancelTrials(names))]
        }
        (Ask::Cancel(key), Deed::AbortRequest) => match request::of_trial(model, key) {
            Some(target) => request::abort(model, &target),
            None => {
                notice(model, "that call has ended by itself");
                Vec::new()
            }
        },
        (Ask::Cancel(key), Deed::CancelTrial) => {
            notice(model, format!("cancelling {}", key.trial));
            vec![Effect::Helm(Order::CancelTrial(key.trial.to_string()))]
        }
        (_, Deed::Drain) => {
            notice(model, "draining: nothing new begins");
            vec![Effect::Helm(Order::Drain)]
        }
        (_, Deed::StopNow) => {
            stop::stopping(model, None);
            vec![Effect::Helm(Order::Cancel)]
        }
        (_, Deed::Hurry) => {
            notice(model, "waiting less for what is left");
            vec![Effect::Helm(Order::Hurry)]
        }
        (Ask::Stop(_), Deed::Send(signal)) => match model.steer.stop.as_ref().map(|s| s.place.clone()) {
            Some(place) => {
                stop::stopping(model, Some(signal));
                vec![Effect::Helm(Order::Stop(place, signal))]
            }
            None => Vec::new(),
        },
        (Ask::Mend(which), Deed::Mend) => stop::mend(model, *which),
        (Ask::Abort(target), Deed::AbortRequest) => request::abort(model, target),
        (Ask::Regrade(key), Deed::Regrade) => super::regrade::go(model, key, false),
        (Ask::Regrade(key), Deed::RegradeAndRelease) => super::regrade::go(model, key, true),
        (Ask::Endpoint(url), Deed::Move) => super::endpoint::go(model, url),
        _ => Vec::new(),
    }
}

/// What a dialog says and offers now.
pub fn content(model: &Model, ask: &Ask) -> Content {
    match ask {
        Ask::Cancel(key) => cancel(model, key),
        Ask::Stop(key) => match model.steer.side {
            Side::Owner => own(model, false),
            _ => stop::content(model, *key),
        },
        Ask::CancelMany(keys) => super::crowd::content(model, keys),
        Ask::Leave if model.steer.side == Side::Attached => supervised(model),
        Ask::Leave => own(model, true),
        Ask::Detach => detach(model),
        Ask::Mend(which) => stop::mend_content(model, *which),
        Ask::Bulk => triage::bulk::content(model),
        Ask::Abort(target) => request::content(model, target),
        Ask::Endpoint(url) => super::endpoint::content(model, url),
        Ask::Regrade(key) => super::regrade::content(model, key),
    }
}

/// `1 trial`, `3 trials`.
pub fn trials(n: usize) -> String {
    format!("{n} trial{}", if n == 1 { "" } else { "s" })
}

/// Seconds that a trial has run.
pub fn ran(row: &Row, now: Stamp) -> Option<f64> {
    row.started.or(row.timing.map(|t| t.from)).and_then(|from| time::seconds_between(from, now))
}

/// Leaving a child that goes on without this screen.
fn supervised(model: &Model) -> Content {
    let mut out = Content { title: "leave".to_string(), ..Content::default() };
    let Some(pid) = super::child(model) else {
        out.say(Tone::Plain, "Harbor has ended.");
        out.offer(Deed::Keep, "stay", "");
        out.offer(Deed::Leave, "leave", "nothing runs any more");
        return out;
    };
    out.say(Tone::Strong, format!("harbor (pid {pid}) works on this job."));
    if let Some(job) = model.fleet.jobs().first() {
        names(model, job.key, &mut out);
    }
    if let Some(why) = &model.steer.logout {
        out.say(Tone::Alarm, why.clone());
    }
    out.offer(Deed::Keep, "stay", "");
    out.offer(Deed::Detach, "leave it running", format!("pilothouse harbor attach {pid} comes back to it"));
    out.offer(Deed::AskStop, "stop it…", "asks how, says what it costs, and audits what is left");
    out
}

fn cancel(model: &Model, key: &TrialKey) -> Content {
    let mut out = Content { title: "cancel one trial".to_string(), ..Content::default() };
    let row = row(model, key);
    out.say(Tone::Strong, key.trial.to_string());
    let Some(row) = row.filter(|r| r.outcome == Outcome::Running && super::why_not_owner(model).is_none()) else {
        let outcome = row.map_or("it is gone", |r| r.outcome.word());
        out.say(Tone::Plain, format!("It does not run any more: {outcome}."));
        out.offer(Deed::Keep, "close", "");
        return out;
    };
    let mut doing = match works::words_of(model, row) {
        Some((said, _)) => said.whole(),
        None => words(row.phase),
    };
    if let Some(t) = row.timing {
        let mark = if t.inferred { "~" } else { "" };
        doing.push_str(&format!(", {}{mark}", time::words(t.elapsed(model.now))));
        if let Some(limit) = t.limit {
            doing.push_str(&format!(" of {}", time::words(limit)));
        }
    }
    out.say(Tone::Plain, doing);
    out.say(
        Tone::Dim,
        "What it has written is kept, its result will say CancelledError, and it is not tried again. The other \
         trials go on.",
    );
    if let Some(long) = model.steer.works.long.get(key) {
        out.say(Tone::Alarm, long.text());
    }
    out.offer(Deed::Keep, "let it run", "");
    if let Some(target) = request::of_trial(model, key) {
        let price = format!("request {} at {}; its agent asks again", target.rid, target.server);
        out.offer(Deed::AbortRequest, "end this call of the model", price);
    }
    let lost =
        ran(row, model.now).map_or("its time so far is lost".to_string(), |s| format!("{} lost", time::words(s)));
    out.offer(Deed::CancelTrial, "cancel it", lost);
    out
}

/// What a trial does, in words.
pub fn words(phase: Phase) -> String {
    match phase {
        Phase::AgentRunning(n) => format!("agent running, episode {n}~"),
        phase => phase.word().replace('_', " "),
    }
}

/// The same in one or two words.
pub fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::AgentRunning(_) => "agent",
        Phase::AgentSetup => "agent setup",
        Phase::EnvironmentSetup => "environment",
        Phase::TearingDown => "tearing down",
        phase => phase.word(),
    }
}

/// Running trials by name, the longest at work first, each with what it does; the rest is counted.
pub fn names(model: &Model, key: JobKey, out: &mut Content) {
    let mut rows: Vec<&Row> = at_work(model, key).collect();
    rows.sort_by_key(|r| r.started);
    for row in rows.iter().take(NAMED) {
        let ran = ran(row, model.now).map_or("-".to_string(), time::words);
        out.text.push(Said::Row(row.task.to_string(), format!("{}, {ran}", doing(row.phase))));
    }
    if rows.len() > NAMED {
        out.say(Tone::Plain, format!("  and {} more", rows.len() - NAMED));
    }
}

/// The longest that a running trial can still take by its limits; None: one of them has none.
fn left(row: &Row, trial: &Trial, now: Stamp) -> Option<f64> {
    let limits = &trial.limits;
    let spent = row.timing.map_or(0.0, |t| t.elapsed(now));
    let of = |limit: Option<f64>| limit.map(|l| (l - spent).max(0.0));
    match row.phase {
        Phase::Verifying => of(limits.verifier),
        Phase::TearingDown => Some(0.0),
        Phase::AgentRunning(_) => Some(of(limits.agent)? + limits.verifier?),
        Phase::AgentSetup => Some(of(limits.agent_setup)? + limits.agent? + limits.verifier?),
        _ => Some(of(limits.environment)? + limits.agent_setup? + limits.agent? + limits.verifier?),
    }
}

fn detach(model: &Model) -> Content {
    let mut out = Content { title: "leave the job to itself?".to_string(), ..Content::default() };
    out.say(Tone::Strong, "It may not outlive your logout.");
    out.say(Tone::Plain, model.steer.logout.clone().unwrap_or_default());
    out.say(Tone::Dim, "Closing this terminal does it no harm.");
    out.offer(Deed::Keep, "stay", "");
    out.offer(Deed::Detach, "detach", "the run goes on without a screen until then");
    out
}

fn own(model: &Model, leave: bool) -> Content {
    let mut out = Content::default();
    let crew = model.steer.crew.unwrap_or_default();
    let job = match model.fleet.jobs() {
        [job, ..] => Some(job),
        [] => None,
    };
    let name = job.map_or("the job".to_string(), |j| j.facts.name.to_string());
    out.title = if leave { format!("leave {name}?") } else { format!("stop {name}?") };
    if let Some(over) = &model.steer.over {
        out.say(Tone::Plain, format!("It is over: {}", over.words));
        out.offer(Deed::Keep, "stay", "");
        out.offer(Deed::Leave, "leave", "");
        return out;
    }
    let Crew { running, waiting, queued, ended, stopping, .. } = crew;
    let mut counts =
        format!("{running} running, {queued} not begun, {ended} of {} ended", running + waiting + queued + ended);
    if waiting > 0 {
        counts.push_str(&format!(", {waiting} waiting for a retry"));
    }
    out.say(Tone::Strong, counts);
    if leave {
        let dir = job.map_or_else(String::new, |j| j.facts.dir.display().to_string());
        out.say(
            Tone::Plain,
            format!(
                "This process runs the job. Detached, it goes on without a screen; pilothouse attach {dir} shows it \
                 again, from any terminal."
            ),
        );
    }
    match stopping {
        Stopping::No => {}
        Stopping::Draining => out.say(Tone::Plain, "It drains: nothing new begins, what runs runs to its end."),
        Stopping::Cancelling => {
            out.say(Tone::Plain, "It is being stopped: what runs is cancelled, its output is kept.")
        }
        Stopping::Hurrying => out.say(Tone::Plain, "It is being stopped, with little patience."),
    }
    let rows: Vec<&Row> = job.map(|j| at_work(model, j.key).collect()).unwrap_or_default();
    if let Some(job) = job {
        names(model, job.key, &mut out);
    }
    let spent: f64 = rows.iter().filter_map(|r| ran(r, model.now)).sum();
    let keep = match stopping {
        Stopping::No => "keep running",
        Stopping::Draining => "keep draining",
        Stopping::Cancelling | Stopping::Hurrying => "wait",
    };
    out.offer(Deed::Keep, keep, "");
    if leave {
        let price = model.steer.logout.clone().unwrap_or_else(|| "the run goes on without a screen".to_string());
        out.offer(Deed::Detach, "detach", price);
    }
    if stopping == Stopping::No {
        let longest = rows
            .iter()
            .map(|r| job.and_then(|j| j.trials.get(&r.name)).and_then(|t| left(r, t, model.now)))
            .try_fold(0.0f64, |most, left| Some(most.max(left?)));
        let until = match longest {
            Some(seconds) if running > 0 => format!(", at most {}~ by their limits", time::words(seconds)),
            None if running > 0 => ", as long as they take: not all have a limit".to_string(),
            _ => String::new(),
        };
        let price = match running {
            0 => format!("nothing runs; {queued} will not begin"),
            n => format!("let {n} running finish{until}; {queued} will not begin"),
        };
        out.offer(Deed::Drain, "drain", price);
    }
    if stopping < Stopping::Cancelling {
        let price = match running {
            0 => "nothing runs; results so far are kept".to_string(),
            n => format!("cancel {n} running, {} of trial time lost; results so far are kept", time::words(spent)),
        };
        out.offer(Deed::StopNow, "stop now", price);
    }
    if stopping == Stopping::Cancelling {
        out.offer(
            Deed::Hurry,
            "wait no longer",
            "as a second signal does: what does not end at once is cut off, its output may be missing",
        );
    }
    out
}
