//! The keys of a verdict: `v`, then a letter. No digit ever sets one.

use super::super::effect::Effect;
use super::super::input::Input;
use super::super::model::{Model, View};
use super::super::overlay::{Choice, Item, Menu, Overlay, PromptKind};
use super::super::rows::Outcome;
use super::super::steer;
use super::super::update::notice;
use super::ledger::{self, Saying};
use super::{Target, move_on, target};
use crate::job::Verdict;

/// The letter that takes a verdict back.
pub const TAKE_BACK: char = 'd';

/// What a verdict does to the corrected score.
pub fn effect(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::CountsAsPassed => "one more passed",
        Verdict::TaskInvalid => "one planned less",
        Verdict::AgentFault | Verdict::TimeoutValid | Verdict::VerifierTimeout | Verdict::Inconclusive => {
            "the score stays"
        }
        Verdict::InfraConfirmed => "a later scored trial counts",
    }
}

/// The lines of the seven verdicts.
fn items(make: impl Fn(Verdict) -> Choice, suggested: Option<Verdict>) -> Vec<Item> {
    let item = |verdict: Verdict| {
        let mark = if suggested == Some(verdict) { ", suggested" } else { "" };
        Item {
            label: format!("{}  {}", verdict.letter(), verdict.title()),
            detail: format!("{}{mark}", effect(verdict)),
            choice: make(verdict),
            hot: Some(verdict.letter()),
        }
    };
    Verdict::ALL.into_iter().map(item).collect()
}

/// The trial that the keys are about, when something can be said of it.
fn subject(model: &mut Model) -> Option<Target> {
    if let Some(why) = ledger::why_not(model) {
        notice(model, why);
        return None;
    }
    let Some(row) = steer::trial(model) else {
        notice(model, "no trial is selected here");
        return None;
    };
    let why_not = match row.outcome {
        Outcome::Queued => Some("this slot has not begun: there is nothing to judge"),
        Outcome::Running => Some("it still runs: a verdict is for what has ended"),
        _ => None,
    };
    match (why_not, target(model, row)) {
        (None, Some(target)) => Some(target),
        (why, _) => {
            notice(model, why.unwrap_or("there is no trial to judge"));
            None
        }
    }
}

/// Opens the menu for the trial that is looked at.
pub fn verdict(model: &mut Model) -> Vec<Effect> {
    let Some(target) = subject(model) else { return Vec::new() };
    let row = steer::row(model, &target.key);
    let suggested = row.and_then(|r| r.class.as_ref()).and_then(|c| c.suggested);
    let had = row.and_then(|r| r.verdict);
    let name = row.map_or_else(|| target.key.trial.clone(), |r| r.task.clone());
    let mut items = items(|v| Choice::Verdict(target.clone(), Some(v)), suggested);
    if let Some(had) = had {
        items.push(Item {
            label: format!("{TAKE_BACK}  take it back"),
            detail: format!("now: {}", had.title()),
            choice: Choice::Verdict(target.clone(), None),
            hot: Some(TAKE_BACK),
        });
    }
    items.push(Item {
        label: "   leave it".to_string(),
        detail: "Esc".to_string(),
        choice: Choice::Nothing,
        hot: None,
    });
    // Enter confirms what is suggested; without a suggestion it says nothing.
    let at = suggested.and_then(|s| Verdict::ALL.iter().position(|v| *v == s));
    let selected = at.unwrap_or(items.len() - 1);
    model.overlay = Some(Overlay::Menu(Menu { title: format!("verdict on {name}: a letter"), items, selected }));
    Vec::new()
}

/// A verdict was chosen.
pub fn chosen(model: &mut Model, target: &Target, verdict: Option<Verdict>) -> Vec<Effect> {
    let in_turn = model.view() == View::Triage
        && super::current(model).and_then(|row| super::target(model, row)).as_ref() == Some(target);
    let saying = verdict.map_or(Saying::TakeBack, Saying::Verdict);
    let effects = ledger::say(model, std::slice::from_ref(target), saying, "");
    if in_turn && verdict.is_some() && !effects.is_empty() {
        move_on(model);
    }
    effects
}

/// The menu of a verdict for many.
pub fn for_many(n: usize) -> Menu {
    let mut items = items(Choice::Bulk, None);
    items.push(Item {
        label: "   leave them".to_string(),
        detail: "Esc".to_string(),
        choice: Choice::Nothing,
        hot: None,
    });
    let selected = items.len() - 1;
    Menu { title: format!("one verdict for {}", steer::ask::trials(n)), items, selected }
}

/// Asks for a note on the trial that is looked at.
pub fn note(model: &mut Model) -> Vec<Effect> {
    let Some(target) = subject(model) else { return Vec::new() };
    model.triage.noting = Some(target);
    model.overlay = Some(Overlay::Prompt(PromptKind::Note, Input::default(), None));
    Vec::new()
}

/// A note was typed.
pub fn noted(model: &mut Model, text: &str) -> Vec<Effect> {
    let Some(target) = model.triage.noting.take() else { return Vec::new() };
    if text.trim().is_empty() {
        return Vec::new();
    }
    ledger::say(model, &[target], Saying::Note, text.trim())
}
