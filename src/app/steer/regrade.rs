//! The key `V`: the verifier of a trial runs again in its held container, without the agent. The dialog says
//! what is held and what is done, or why nothing can be, and what can. Pure.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::effect::Effect;
use super::super::helm::{Order, Regradable, RegradeProgress, Side};
use super::super::model::Model;
use super::super::overlay::Overlay;
use super::super::rows::{Outcome, RowId};
use super::super::update::notice;
use super::ask::{Ask, Asking, Content, Deed, Said, Tone};
use crate::job::{Stamp, TrialKey, time};

/// A regrade, from the question to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct RegradeState {
    /// The trial.
    pub key: TrialKey,
    /// Its directory.
    pub dir: PathBuf,
    /// What is held of it; None while that is looked for.
    pub found: Option<Regradable>,
    /// Since when the verifier runs, and what was said last.
    pub at_work: Option<(Stamp, Arc<str>)>,
}

/// Why no verifier can be run again from here; None: it can be tried.
pub fn why_not(model: &Model) -> Option<String> {
    if model.steer.side == Side::Reader {
        return Some("no verifier runs again here: this screen only looks".to_string());
    }
    match super::trial(model) {
        None => Some("no trial is selected here".to_string()),
        Some(row) => match (&row.id, row.outcome) {
            (RowId::Slot(..), _) | (_, Outcome::Queued) => Some(format!("{} has not begun", row.task)),
            (_, Outcome::Running) => Some(format!("{} is at work: its verifier has not had its word yet", row.name)),
            _ => None,
        },
    }
}

/// Asks, for the trial that is looked at.
pub fn begin(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = why_not(model) {
        notice(model, why);
        return Vec::new();
    }
    let Some(RowId::Trial(key)) = super::trial(model).map(|row| row.id.clone()) else { return Vec::new() };
    let Some(place) = super::place(model, key.job) else { return Vec::new() };
    let dir = place.dir.join(&*key.trial);
    model.overlay = Some(Overlay::Ask(Asking::new(Ask::Regrade(key.clone()))));
    let busy = model.steer.regrade.as_ref().is_some_and(|r| r.at_work.is_some());
    if busy {
        // The dialog tells how far it is.
        return Vec::new();
    }
    model.steer.regrade = Some(RegradeState { key: key.clone(), dir: dir.clone(), found: None, at_work: None });
    vec![Effect::Helm(Order::LookForHeld(key, dir))]
}

/// What the dialog says.
pub fn content(model: &Model, key: &TrialKey) -> Content {
    let mut out = Content { title: "run the verifier again".to_string(), ..Content::default() };
    out.say(Tone::Strong, key.trial.to_string());
    let Some(state) = &model.steer.regrade else {
        out.offer(Deed::Keep, "close", "");
        return out;
    };
    if let Some((since, said)) = &state.at_work {
        let took = time::words(time::age(*since, model.now).as_secs_f64());
        let whose = if state.key == *key { String::new() } else { format!("Of {}: ", state.key.trial) };
        out.say(Tone::Plain, format!("{whose}{said}, for {took} now. It goes on when this is closed."));
        out.offer(Deed::Keep, "close", "");
        return out;
    }
    match &state.found {
        _ if state.key != *key => out.offer(Deed::Keep, "close", ""),
        None => {
            out.say(Tone::Dim, "Looking what is held of it…");
            out.offer(Deed::Keep, "let it be", "");
        }
        Some(Regradable::No { why, offers }) => {
            out.say(Tone::Plain, format!("There is nothing to run the verifier in: {why}."));
            for (command, what) in offers {
                out.say(Tone::Strong, command.clone());
                out.say(Tone::Dim, what.clone());
            }
            out.offer(Deed::Keep, "close", "");
        }
        Some(Regradable::Yes { lines, kind }) => {
            for line in lines {
                let tone = if line.starts_with('!') { Tone::Alarm } else { Tone::Plain };
                out.text.push(Said::Text(tone, line.clone()));
            }
            let flags = format!(
                "Another limit, network, proxy or variables: pilothouse regrade {} --timeout … --network …",
                state.dir.display()
            );
            out.say(Tone::Dim, flags);
            out.offer(Deed::Keep, "let it be", "");
            out.offer(Deed::Regrade, "run the verifier", format!("the {kind} is held on afterwards"));
            out.offer(Deed::RegradeAndRelease, "run it, then remove", format!("the {kind} is removed when it has run"));
        }
    }
    out
}

/// Orders it.
pub fn go(model: &mut Model, key: &TrialKey, release: bool) -> Vec<Effect> {
    let now = model.now;
    let Some(state) = model.steer.regrade.as_mut().filter(|s| s.key == *key && s.at_work.is_none()) else {
        return Vec::new();
    };
    if !matches!(state.found, Some(Regradable::Yes { .. })) {
        return Vec::new();
    }
    state.at_work = Some((now, Arc::from("the verifier is being started")));
    let dir = state.dir.clone();
    notice(model, format!("the verifier of {} runs again; V tells how far it is", key.trial));
    vec![Effect::Helm(Order::Regrade { trial: key.clone(), dir, release })]
}

/// What is held was found out, or not.
pub fn found(model: &mut Model, key: &TrialKey, found: Regradable) {
    if let Some(state) = model.steer.regrade.as_mut().filter(|s| s.key == *key && s.at_work.is_none()) {
        state.found = Some(found);
    }
}

/// News of one that runs.
pub fn progress(model: &mut Model, key: &TrialKey, progress: RegradeProgress) {
    let said = match progress {
        RegradeProgress::Told(line) => {
            if let Some((_, said)) = model.steer.regrade.as_mut().and_then(|s| s.at_work.as_mut()) {
                *said = line;
            }
            return;
        }
        RegradeProgress::Done(words) => format!("{}: {words}", key.trial),
        RegradeProgress::Failed(why) => format!("! {}: the verifier did not run again: {why}", key.trial),
    };
    model.steer.regrade = None;
    notice(model, said);
}
