//! What trials of our own say themselves that they do: told by the process that runs them, on its own
//! screen and on linked ones. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::derived::Attention;
use super::effect::Effect;
use super::model::Model;
use super::rows::{Outcome, Row, RowId};
use super::servers;
use crate::job::work::Work;
use crate::job::work::words::{self, Words};
use crate::job::{Stamp, TrialKey};
use crate::serving::Severity;
use crate::serving::join::{Joined, Works as Said};
use crate::serving::thinking::Long;

/// Most trials that are kept: more than ever work at a time.
const KEPT: usize = 10_000;

/// What they say, as last heard.
#[derive(Debug, Default)]
pub struct Works {
    /// By name of the trial.
    pub said: Said,
    /// Trials whose present call goes on unusually long.
    pub long: BTreeMap<TrialKey, Long>,
}

impl Works {
    /// Nobody says anything any more.
    pub fn clear(&mut self) {
        self.said.clear();
        self.long.clear();
    }

    /// What a trial says of this moment.
    pub fn of(&self, key: &TrialKey) -> Option<&Work> {
        self.said.get(&key.trial).filter(|work| work.is_exact())
    }

    /// The same for a row that is at work.
    pub fn of_row(&self, row: &Row) -> Option<&Work> {
        match &row.id {
            RowId::Trial(key) if row.outcome == Outcome::Running => self.of(key),
            _ => None,
        }
    }

    /// Puts what they say into rows, over what their files say.
    pub fn overlay(&self, rows: &mut [Row]) {
        if self.said.is_empty() {
            return;
        }
        for row in rows.iter_mut().filter(|row| row.outcome == Outcome::Running) {
            let Some(work) = self.said.get(&row.name) else { continue };
            row.episodes = work.episode.or(row.episodes);
            if !work.tokens.is_unknown() {
                // With what the present call has brought so far.
                let now = work.call().map_or(0, |call| call.reasoning.saturating_add(call.answer));
                row.output_tokens = Some(work.tokens.output.saturating_add(now));
            }
        }
    }
}

/// Takes in what changed.
pub fn take(model: &mut Model, changes: Vec<(Arc<str>, Option<Work>)>) -> Vec<Effect> {
    let said = &mut model.steer.works.said;
    for (name, work) in changes {
        match work {
            Some(work) if said.len() < KEPT || said.contains_key(&name) => {
                said.insert(name, work);
            }
            Some(_) => {}
            None => {
                said.remove(&name);
            }
        }
    }
    servers::tick(model)
}

/// What a row's trial does, in words for any width, and how it was told where that is inferred; None: only
/// its files can say.
pub fn words_of(model: &Model, row: &Row) -> Option<(Words, bool)> {
    let work = model.steer.works.of_row(row)?;
    let mut said = words::of(work, model.now)?;
    let RowId::Trial(key) = &row.id else { return None };
    // Its place in a server's queue is what it can not know itself.
    let queued = |joined: &&Joined| joined.doing == Some(crate::serving::join::Doing::Queued);
    if let Some(joined) = model.servers.joined.get(key).filter(queued) {
        let took = words::brief(work.seconds(model.now).unwrap_or(0.0));
        let leads = ["queued at the server ", "queued at server ", "queued "].map(|lead| format!("{lead}{took}"));
        said.leads = leads.into_iter().chain(["queued".to_string()]).collect();
        return Some((said, joined.inferred));
    }
    Some((said, false))
}

/// Whether a row's present call goes on unusually long.
pub fn is_long(model: &Model, row: &Row) -> bool {
    matches!(&row.id, RowId::Trial(key) if model.steer.works.long.contains_key(key)) && row.outcome == Outcome::Running
}

/// Calls that go on unusually long, for what needs a person; each is one thing however long it takes.
pub fn attention(model: &Model) -> Vec<Attention> {
    let item = |(key, long): (&TrialKey, &Long)| Attention {
        id: format!("thinking {} {}", key.trial, long.since),
        kind: "thinking".to_string(),
        severity: Severity::Warning,
        text: format!("{}: {}", key.trial, long.text()),
        target: Some(key.clone()),
        serving: None,
    };
    model.steer.works.long.iter().map(item).collect()
}

/// When a trial's present call began, by the name that the server has for it.
pub fn asked_as(model: &Model, rid: &str) -> Option<Stamp> {
    model.steer.works.said.values().filter(|work| work.rid.as_deref() == Some(rid)).find_map(|w| Some(w.call()?.since))
}
