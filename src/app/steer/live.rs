//! The live output of a running trial: the trial view on the text that grows.

use super::super::effect::Effect;
use super::super::model::{Model, View};
use super::super::rows::{Outcome, RowId};
use super::super::update::{notice, open_trial};
use super::{row, trial};
use crate::job::Phase;

/// Opens it for the trial that is looked at.
pub fn open(model: &mut Model) -> Vec<Effect> {
    let Some((id, phase, outcome)) = trial(model).map(|r| (r.id.clone(), r.phase, r.outcome)) else {
        notice(model, "no trial is selected here");
        return Vec::new();
    };
    let RowId::Trial(key) = id else {
        notice(model, "this slot has not begun: there is no output yet");
        return Vec::new();
    };
    let mut effects = Vec::new();
    if model.view() != View::Trial || model.trial.as_ref().is_none_or(|t| t.key != key) {
        effects = open_trial(model, key);
    }
    if outcome != Outcome::Running {
        notice(model, format!("it has ended ({}): this is what it wrote last", outcome.word()));
    }
    if let Some(view) = &mut model.trial {
        effects.extend(view.go_live(phase, outcome == Outcome::Running, model.now));
    }
    effects
}

/// Keeps it growing: once a second, and to the verifier's output when that begins.
pub fn beat(model: &mut Model) -> Vec<Effect> {
    let Some(key) = model.trial.as_ref().filter(|t| t.live).map(|t| t.key.clone()) else { return Vec::new() };
    let known = row(model, &key).map(|r| (r.phase, r.outcome));
    let (phase, outcome) = known.unwrap_or((Phase::Done, Outcome::Running));
    let now = model.now;
    let Some(view) = &mut model.trial else { return Vec::new() };
    let effects = view.live_beat(phase, now);
    if !view.live && outcome != Outcome::Running {
        notice(model, format!("{} has ended: {}", key.trial, outcome.word()));
    }
    effects
}
