//! One verdict for all that the filter shows, with a reason: which, why, then the question.

use std::collections::{HashMap, HashSet};

use super::super::effect::Effect;
use super::super::input::Input;
use super::super::model::Model;
use super::super::overlay::{Overlay, PromptKind};
use super::super::rows::{Row, RowId};
use super::super::steer::ask::{Ask, Asking, Content, Deed, Said, Tone, trials};
use super::super::update::notice;
use super::ledger::{self, Saying};
use super::{Target, class_words, menu, target};
use crate::job::{TrialKey, Verdict};

/// A verdict for many that is being made up.
#[derive(Debug, Clone, PartialEq)]
pub struct Bulk {
    /// The trials: what was shown, without a verdict, when the key was pressed.
    pub targets: Vec<Target>,
    /// Shown, but with a verdict already.
    pub kept: usize,
    /// The filter that showed them.
    pub filter: String,
    /// Which verdict.
    pub verdict: Option<Verdict>,
    /// Why.
    pub reason: String,
}

/// Begins: which verdict?
pub fn begin(model: &mut Model) {
    if let Some(why) = ledger::why_not(model) {
        notice(model, why);
        return;
    }
    let shown = || model.triage.order.iter().filter_map(|i| model.rows.get(*i));
    let targets: Vec<Target> = shown().filter(|r| r.verdict.is_none()).filter_map(|r| target(model, r)).collect();
    let kept = shown().filter(|r| r.verdict.is_some()).count();
    if targets.is_empty() {
        notice(model, "nothing shown here is without a verdict");
        return;
    }
    let menu = menu::for_many(targets.len());
    model.triage.bulk =
        Some(Bulk { targets, kept, filter: model.triage.filter_text.clone(), verdict: None, reason: String::new() });
    model.overlay = Some(Overlay::Menu(menu));
}

/// The verdict was chosen: why?
pub fn chosen(model: &mut Model, verdict: Verdict) -> Vec<Effect> {
    if let Some(bulk) = &mut model.triage.bulk {
        bulk.verdict = Some(verdict);
        model.overlay = Some(Overlay::Prompt(PromptKind::Reason, Input::default(), None));
    }
    Vec::new()
}

/// The reason was typed: really? Gives back what is wrong with it.
pub fn reasoned(model: &mut Model, text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("a reason is needed for a verdict on many; Esc leaves".to_string());
    }
    if let Some(bulk) = &mut model.triage.bulk {
        bulk.reason = text.to_string();
        model.overlay = Some(Overlay::Ask(Asking::new(Ask::Bulk)));
    }
    Ok(())
}

/// The question, with every name.
pub fn content(model: &Model) -> Content {
    let mut out = Content { title: "one verdict for many?".to_string(), ..Content::default() };
    let Some((bulk, verdict)) = model.triage.bulk.as_ref().and_then(|b| Some((b, b.verdict?))) else {
        out.offer(Deed::Keep, "close", "");
        return out;
    };
    let n = bulk.targets.len();
    out.title = format!("{} for {}?", verdict.title(), trials(n));
    out.say(Tone::Strong, format!("{}: {}", verdict.title(), menu::effect(verdict)));
    out.say(Tone::Plain, format!("why: {}", bulk.reason));
    let from = match &bulk.filter {
        filter if filter.is_empty() => "all of triage".to_string(),
        filter => format!("the filter {filter}"),
    };
    let kept = match bulk.kept {
        0 => String::new(),
        n => format!("; {n} that have a verdict keep it"),
    };
    out.say(Tone::Dim, format!("{} of {from}{kept}:", trials(n)));
    let wanted: HashSet<&TrialKey> = bulk.targets.iter().map(|t| &t.key).collect();
    let rows: HashMap<&TrialKey, &Row> = model
        .rows
        .iter()
        .filter_map(|row| match &row.id {
            RowId::Trial(key) => wanted.contains(key).then_some((key, row)),
            RowId::Slot(..) => None,
        })
        .collect();
    for target in &bulk.targets {
        let row = rows.get(&target.key);
        let class = row.and_then(|r| r.class.as_ref()).map_or_else(|| "-".to_string(), |c| class_words(c));
        out.text.push(Said::Row(target.key.trial.to_string(), class));
    }
    out.offer(Deed::Keep, "cancel", "");
    out.offer(
        Deed::Say,
        format!("say it of {}", if n == 1 { "this one".to_string() } else { format!("all {n}") }),
        "u undoes it",
    );
    out
}

/// Says it.
pub fn say(model: &mut Model) -> Vec<Effect> {
    let Some(bulk) = model.triage.bulk.take() else { return Vec::new() };
    let Some(verdict) = bulk.verdict else { return Vec::new() };
    let effects = ledger::say(model, &bulk.targets, Saying::Verdict(verdict), &bulk.reason);
    if !effects.is_empty() {
        super::super::update::settle(model);
        super::move_on(model);
    }
    effects
}
