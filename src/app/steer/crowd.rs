//! Steering many: the marked trials, cancelled together or begun before all others.

use super::super::effect::Effect;
use super::super::helm::Order;
use super::super::model::Model;
use super::super::overlay::Overlay;
use super::super::rows::{Outcome, Row, RowId};
use super::super::update::notice;
use super::ask::{Ask, Asking, Content, Deed, Said, Tone, doing, ran, trials};
use super::{row, trial, why_not_owner};
use crate::job::{TrialKey, time};

/// Trials that a dialog names; the rest is counted.
const NAMED: usize = 8;

/// The marked trials that run.
pub fn running(model: &Model) -> Vec<TrialKey> {
    let runs = |key: &&TrialKey| row(model, key).is_some_and(|r| r.outcome == Outcome::Running);
    model.marked.iter().filter(runs).cloned().collect()
}

/// Those of some trials that still run.
pub fn still<'a>(model: &'a Model, keys: &'a [TrialKey]) -> impl Iterator<Item = &'a Row> {
    keys.iter().filter_map(|key| row(model, key)).filter(|r| r.outcome == Outcome::Running)
}

/// Asks whether the marked ones are to be cancelled.
pub fn cancel(model: &mut Model) -> Vec<Effect> {
    match why_not_owner(model) {
        Some(why) => notice(model, why),
        None => model.overlay = Some(Overlay::Ask(Asking::new(Ask::CancelMany(running(model))))),
    }
    Vec::new()
}

/// What the dialog about them says.
pub fn content(model: &Model, keys: &[TrialKey]) -> Content {
    let rows: Vec<&Row> = still(model, keys).collect();
    let mut out = Content { title: "cancel the marked trials".to_string(), ..Content::default() };
    if rows.is_empty() || why_not_owner(model).is_some() {
        out.say(Tone::Plain, "None of them can be cancelled any more.");
        out.offer(Deed::Keep, "close", "");
        return out;
    }
    out.say(Tone::Strong, format!("{} at work", trials(rows.len())));
    for row in rows.iter().take(NAMED) {
        let ran = ran(row, model.now).map_or("-".to_string(), time::words);
        out.text.push(Said::Row(row.task.to_string(), format!("{}, {ran}", doing(row.phase))));
    }
    if rows.len() > NAMED {
        out.say(Tone::Plain, format!("  and {} more", rows.len() - NAMED));
    }
    out.say(
        Tone::Dim,
        "What they have written is kept, their results will say CancelledError, and they are not tried again. The \
         other trials go on.",
    );
    let lost: f64 = rows.iter().filter_map(|row| ran(row, model.now)).sum();
    out.offer(Deed::Keep, "let them run", "");
    out.offer(Deed::CancelTrial, format!("cancel {}", rows.len()), format!("{} of trial time lost", time::words(lost)));
    out
}

/// The tasks of the marked slots that have not begun, else of the one that is looked at; each once.
fn wanted(model: &Model) -> Vec<String> {
    let queued = |r: &&Row| r.outcome == Outcome::Queued && matches!(r.id, RowId::Slot(..));
    let marked: Vec<&Row> = model.rows.iter().filter(|r| model.marked_slots.contains(&r.id)).filter(queued).collect();
    let rows = if marked.is_empty() { trial(model).into_iter().filter(queued).collect() } else { marked };
    let mut out: Vec<String> = Vec::new();
    for row in rows {
        if !out.iter().any(|task| **task == *row.task) {
            out.push(row.task.to_string());
        }
    }
    out
}

/// Why nothing can be put first; None: it can.
pub fn why_not_first(model: &Model) -> Option<String> {
    why_not_owner(model).or_else(|| {
        let none = wanted(model).is_empty();
        none.then(|| "nothing that has not begun is marked or selected: Space marks".to_string())
    })
}

/// Puts the marked ones, or the one that is looked at, to the front of the queue.
pub fn first(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = why_not_first(model) {
        notice(model, why);
        return Vec::new();
    }
    let tasks = wanted(model);
    model.marked_slots.clear();
    notice(model, format!("first now: {}", tasks.join(", ")));
    vec![Effect::Helm(Order::First(tasks))]
}
