//! Triage: everything that is not a clean pass, worst first, one at a time. Pure.
//!
//! The classes come with the jobs; what a person says of a trial goes out as an order and holds on the
//! screen at once ([`ledger`]). Nothing jumps: whatever comes in or leaves, the current item stays.

pub mod bulk;
pub mod ledger;
pub mod menu;
pub mod outage;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::action::Action;
use super::detail::Tab;
use super::effect::Effect;
use super::filter::Filter;
use super::model::{Model, View};
use super::overlay::{Overlay, PromptKind};
use super::rows::{Outcome, Row, RowId};
use super::update::{notice, open_replay_at, open_trial};
use crate::job::{Class, Fleet, JobKey, Stamp, TrialKey};

/// A trial that something is said of: this very attempt, and no later one in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which.
    pub key: TrialKey,
    /// Its result id; None for a trial without result.
    pub result_id: Option<Arc<str>>,
}

/// The items and the place among them.
#[derive(Debug, Clone, Default)]
pub struct Triage {
    /// The filter as typed.
    pub filter_text: String,
    filter: Filter,
    /// Items that pass the filter, worst first: indices into the model's rows.
    pub order: Vec<usize>,
    /// All items.
    pub total: usize,
    /// Of these, those that somebody said something of.
    pub looked: usize,
    /// The current item.
    pub current: Option<RowId>,
    position: usize,
    /// Rows of the list between its first visible one and the current item.
    pub lead: usize,
    /// Lines of the item's text that are scrolled away.
    pub top: usize,
    /// A verdict for many that is being made up.
    pub bulk: Option<bulk::Bulk>,
    /// What a note that is being typed is about.
    pub noting: Option<Target>,
}

impl Triage {
    /// Sets the filter; an error leaves the old one in force.
    pub fn set_filter(&mut self, text: &str) -> Result<(), String> {
        self.filter = Filter::parse(text)?;
        self.filter_text = text.trim().to_string();
        Ok(())
    }

    /// Place of the current item, when there is one.
    pub fn position(&self) -> Option<usize> {
        (!self.order.is_empty()).then(|| self.position.min(self.order.len() - 1))
    }

    /// The current item.
    pub fn row<'a>(&self, rows: &'a [Row]) -> Option<&'a Row> {
        rows.get(*self.order.get(self.position()?)?)
    }

    /// Goes to an item by its place; `height` rows of the list are shown.
    fn go(&mut self, at: usize, rows: &[Row], height: usize) {
        let before = self.current.take();
        let at = at.min(self.order.len().saturating_sub(1));
        // The list scrolls only where the cursor would leave it.
        let lead = self.lead.min(height.saturating_sub(1));
        self.lead =
            if at >= self.position { lead + (at - self.position) } else { lead.saturating_sub(self.position - at) };
        self.position = at;
        self.current = self.row(rows).map(|r| r.id.clone());
        if self.current != before {
            self.top = 0;
        }
    }

    /// First row of a list of `height` rows that shows the current item.
    pub fn first(&self, height: usize) -> usize {
        let at = self.position().unwrap_or(0);
        let lead = self.lead.min(height.saturating_sub(1));
        at.saturating_sub(lead).min(self.order.len().saturating_sub(height))
    }

    /// Counts anew what was looked at; the items stay as they are.
    pub fn recount(&mut self, rows: &[Row]) {
        self.looked = rows.iter().filter(|r| r.looked && wanted(r)).count();
    }

    /// Takes in changed rows.
    pub fn refresh(&mut self, rows: &[Row], fleet: &Fleet) {
        let all: Vec<usize> = rows.iter().enumerate().filter(|(_, r)| wanted(r)).map(|(i, _)| i).collect();
        self.total = all.len();
        self.looked = all.iter().filter_map(|i| rows.get(*i)).filter(|r| r.looked).count();
        let names: HashMap<JobKey, &str> = fleet.jobs().iter().map(|j| (j.key, &*j.facts.name)).collect();
        let mut alike: HashMap<Kind<'_>, usize> = HashMap::new();
        for row in all.iter().filter_map(|i| rows.get(*i)) {
            *alike.entry(Kind::of(row)).or_default() += 1;
        }
        let passes =
            |row: &Row| self.filter.is_empty() || self.filter.matches(row, names.get(&row.job).copied().unwrap_or(""));
        let mut order: Vec<usize> = all.into_iter().filter(|i| rows.get(*i).is_some_and(passes)).collect();
        order.sort_by_cached_key(|i| {
            rows.get(*i).map(|row| {
                let kind = Kind::of(row);
                let n = alike.get(&kind).copied().unwrap_or(0);
                (class(row).turn(), !suspicious(row), Reverse(n), kind, row.task.clone(), row.id.clone())
            })
        });
        self.order = order;
        let found = match &self.current {
            Some(id) => self.order.iter().position(|i| rows.get(*i).is_some_and(|r| r.id == *id)),
            None => Some(0),
        };
        // An item that went away leaves the place where it was.
        let at = found.unwrap_or(self.position).min(self.order.len().saturating_sub(1));
        let (lead, current) = (self.lead, self.current.take());
        self.position = at;
        self.lead = lead.min(at);
        self.current = self.row(rows).map(|r| r.id.clone());
        if self.current != current {
            self.top = 0;
        }
    }

    /// The next item that nobody said anything of, after the current one, else from the start.
    fn next_open(&self, rows: &[Row]) -> Option<usize> {
        let at = self.position()?;
        let open = |i: &usize| {
            let row = self.order.get(*i).and_then(|r| rows.get(*r));
            *i != at && row.is_some_and(|r| r.verdict.is_none())
        };
        (at + 1..self.order.len()).find(open).or_else(|| (0..at).find(open))
    }
}

/// What makes trials alike: class, sub-class and rule; the exception type where no class is known yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Kind<'a>(Class, &'a str, &'a str);

impl Kind<'_> {
    fn of(row: &Row) -> Kind<'_> {
        match &row.class {
            Some(class) => Kind(class.class, class.sub.as_deref().unwrap_or(""), &class.rule),
            None => Kind(class(row), "", row.exception.as_deref().unwrap_or("")),
        }
    }
}

/// Whether a trial is one to go through: it ended, counts, and is no clean pass.
pub fn wanted(row: &Row) -> bool {
    if row.superseded.is_some() {
        return false;
    }
    match row.outcome {
        Outcome::Running | Outcome::Queued => false,
        Outcome::Passed => {
            row.exception.is_some()
                || row.verdict.is_some()
                || suspicious(row)
                || row.class.as_ref().is_some_and(|c| c.class != Class::Passed)
        }
        _ => true,
    }
}

fn suspicious(row: &Row) -> bool {
    row.class.as_ref().is_some_and(|c| c.flags.iter().any(|f| f.is_suspicious_pass()))
}

/// The class, or what the outcome alone suggests while it is not known.
pub fn class(row: &Row) -> Class {
    match (&row.class, row.outcome) {
        (Some(class), _) => class.class,
        (None, Outcome::Phantom) => Class::Phantom,
        (None, Outcome::Orphaned) => Class::Orphaned,
        (None, Outcome::NoReward) => Class::VerifierError,
        (None, Outcome::Timeout) => Class::AgentTimeout,
        (None, Outcome::Cancelled) => Class::Cancelled,
        (None, Outcome::Failed) => Class::Failed,
        (None, Outcome::Partial) => Class::Partial,
        (None, Outcome::Passed) => Class::Passed,
        (None, Outcome::Error | Outcome::Unreadable | Outcome::Running | Outcome::Queued) => Class::Unclassified,
    }
}

/// Class and sub-class as they are written everywhere: `infra/docker`.
pub fn class_words(class: &crate::job::Classification) -> String {
    match &class.sub {
        Some(sub) => format!("{}/{sub}", class.class.word()),
        None => class.class.word().to_string(),
    }
}

/// The trial of a row, as something to speak of; None for a slot that has not begun.
pub fn target(model: &Model, row: &Row) -> Option<Target> {
    let RowId::Trial(key) = &row.id else { return None };
    let trial = model.fleet.job(key.job)?.trials.get(&key.trial)?;
    Some(Target { key: key.clone(), result_id: trial.result.as_ref().and_then(|r| r.id.clone()) })
}

/// The current item, while triage is what is looked at, or lies under what is.
pub fn current(model: &Model) -> Option<&Row> {
    model.triage.row(&model.rows)
}

/// An action in the triage view.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let at = model.triage.position().unwrap_or(0);
    match action {
        Action::Down => go(model, at + 1),
        Action::Up => go(model, at.saturating_sub(1)),
        Action::Top => go(model, 0),
        Action::Bottom => go(model, usize::MAX),
        Action::PageDown => model.triage.top = model.triage.top.saturating_add(8),
        Action::PageUp => model.triage.top = model.triage.top.saturating_sub(8),
        Action::NextOpen => match model.triage.next_open(&model.rows) {
            Some(at) => go(model, at),
            None => notice(model, "every item here has a verdict"),
        },
        Action::Open => return open(model, Tab::Steps),
        Action::ShowVerifier => return open(model, Tab::Verifier),
        Action::ShowException => return open(model, Tab::Exception),
        Action::ShowLog => return open(model, Tab::Log),
        Action::OpenReplay => return replay(model),
        Action::Similar => similar(model),
        Action::Bulk => bulk::begin(model),
        Action::Filter => {
            let input = super::input::Input::new(&model.triage.filter_text);
            model.overlay = Some(Overlay::Prompt(PromptKind::Filter, input, None));
        }
        Action::ClearFilter => filter(model, ""),
        Action::Acts => model.overlay = Some(Overlay::Menu(super::menus::acts(model))),
        Action::NextPane | Action::Zoom => model.zoom = !model.zoom,
        _ => {}
    }
    Vec::new()
}

/// Goes to an item.
fn go(model: &mut Model, at: usize) {
    // Lines on top, frame, score, footer.
    let height = usize::from(model.size.1).saturating_sub(10);
    model.triage.go(at, &model.rows, height);
}

/// Walks on by one item; false at either end.
pub fn step(model: &mut Model, by: isize) -> bool {
    let Some(at) = model.triage.position() else { return false };
    let to = at.saturating_add_signed(by).min(model.triage.order.len().saturating_sub(1));
    go(model, to);
    to != at
}

/// Goes on after a verdict, to the next that has none.
pub fn move_on(model: &mut Model) {
    match model.triage.next_open(&model.rows) {
        Some(at) => go(model, at),
        None => model.triage.top = 0,
    }
}

/// Sets the filter of this view.
pub fn filter(model: &mut Model, text: &str) {
    match model.triage.set_filter(text) {
        Ok(()) => refresh(model),
        Err(why) => notice(model, why),
    }
}

/// Brings the items up to date.
pub fn refresh(model: &mut Model) {
    model.triage.refresh(&model.rows, &model.fleet);
}

/// Trials that failed alike: the same class by the same rule, else the same exception type; pressed
/// again, all.
fn similar(model: &mut Model) {
    if !model.triage.filter_text.is_empty() {
        filter(model, "");
        return;
    }
    let Some(row) = current(model) else { return };
    let text = match (&row.class, &row.exception) {
        (Some(class), _) if !class.rule.is_empty() => format!("rule:={}", quoted(&class.rule)),
        (_, Some(kind)) => format!("exception:={}", quoted(kind)),
        _ => format!("outcome:{}", row.outcome.word().replace(' ', "_")),
    };
    filter(model, &text);
    let n = model.triage.order.len();
    notice(
        model,
        if n == 1 {
            "no other one is like it; f shows all".to_string()
        } else {
            format!("{n} alike; f shows all again, b says one thing of them")
        },
    );
}

/// A word for the filter: in quotes where it holds blanks.
fn quoted(word: &str) -> String {
    if word.contains(char::is_whitespace) { format!("\"{word}\"") } else { word.to_string() }
}

fn open(model: &mut Model, tab: Tab) -> Vec<Effect> {
    let Some(RowId::Trial(key)) = current(model).map(|r| r.id.clone()) else {
        notice(model, "nothing to open");
        return Vec::new();
    };
    let mut effects = open_trial(model, key);
    if let Some(view) = &mut model.trial {
        effects.extend(view.show(tab));
    }
    effects
}

/// The recording, where the trial took its turn: at its exception, else at its last activity.
fn replay(model: &mut Model) -> Vec<Effect> {
    let Some(RowId::Trial(key)) = current(model).map(|r| r.id.clone()) else {
        notice(model, "nothing to replay");
        return Vec::new();
    };
    let moment = decisive(model, &key);
    open_replay_at(model, &key, moment)
}

/// When a trial took its turn: the end of the agent's work, where it was cut or gave up.
fn decisive(model: &Model, key: &TrialKey) -> Option<Stamp> {
    let trial = model.fleet.job(key.job)?.trials.get(&key.trial)?;
    match (&trial.result, &trial.evidence) {
        (Some(result), _) => result.spans.agent.finished.or(result.finished),
        (None, Some(e)) => e.exception.as_ref().map(|x| x.at).or(e.trajectory.and_then(|p| p.last_step)).or(e.newest),
        (None, None) => None,
    }
}

/// Whether triage lies under the current view: what is judged then moves it on.
pub fn is_open(model: &Model) -> bool {
    model.views.contains(&View::Triage)
}
