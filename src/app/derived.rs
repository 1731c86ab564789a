//! What the screen says of the jobs as a whole: counts, scores, attention, errors by type.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::rows::{Outcome, Row, RowId};
use crate::job::fleet::StateKind;
use crate::job::{Fleet, JobKey, JobState, Stamp, Tokens, TrialKey};

/// How several jobs are counted together.
#[derive(Debug, Clone, Default)]
pub struct Counting {}

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// What, in words.
    pub text: String,
    /// The trial that it is about.
    pub target: Option<TrialKey>,
}

/// One line of the warnings view.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// Kind, as in the headless JSON.
    pub kind: String,
    /// What, where, next step.
    pub message: String,
    /// Path, possibly with line; empty when there is none.
    pub path: String,
    /// The trial that it is about.
    pub target: Option<TrialKey>,
}

/// One line of the errors pane.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorGroup {
    /// Exception type, or the outcome's word for what ended without one.
    pub kind: Arc<str>,
    /// Trials.
    pub n: usize,
    /// Of these solved all the same.
    pub solved: usize,
    /// Of these with a reward.
    pub graded: usize,
    /// Filter that shows them.
    pub filter: String,
    /// True for exception types, false for other odd ends.
    pub is_exception: bool,
}

/// The sums on the two answer lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Board {
    /// Slots planned.
    pub planned: u64,
    /// Slots whose trial has a result that counts as one.
    pub finished: u64,
    /// Trials with a primary reward.
    pub graded: u64,
    /// Trials with primary reward 1.
    pub passed: u64,
    /// Token sums.
    pub tokens: Tokens,
    /// Trials that reported tokens, of those with a result.
    pub known: (u64, u64),
    /// How jobs were merged, in words; empty for one job.
    pub merge: String,
}

/// Everything derived.
#[derive(Debug, Clone, Default)]
pub struct Derived {
    /// States of the jobs.
    pub states: Vec<(JobKey, JobState)>,
    /// Trials that others stand for.
    pub superseded: HashMap<TrialKey, Arc<str>>,
    /// Rows by outcome, copies and superseded trials left out, in the order of [`Outcome::ALL`].
    pub counts: [usize; Outcome::ALL.len()],
    /// Sums and scores.
    pub board: Board,
    /// What needs a person, worst first.
    pub attention: Vec<Attention>,
    /// Everything odd.
    pub warnings: Vec<Warning>,
    /// Errors by type.
    pub errors: Vec<ErrorGroup>,
    /// Time left: low and high in seconds, and what it rests on.
    pub eta: Option<(f64, Option<f64>, String)>,
}

impl Derived {
    /// State of a job.
    pub fn state(&self, key: JobKey) -> Option<&JobState> {
        self.states.iter().find(|(k, _)| *k == key).map(|(_, s)| s)
    }

    /// The count of one outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        Outcome::ALL.iter().position(|o| *o == outcome).and_then(|i| self.counts.get(i).copied()).unwrap_or(0)
    }
}

/// Derives what does not need the rows. `old` is reused where only the time went on.
pub fn derive(fleet: &Fleet, now: Stamp, _counting: &Counting, old: &Derived, changed: bool) -> Derived {
    let states: Vec<(JobKey, JobState)> = fleet.jobs().iter().map(|j| (j.key, j.state(now))).collect();
    let _ = (old, changed);
    let mut derived = Derived { states, ..Derived::default() };
    for job in fleet.jobs() {
        let Some((_, state)) = derived.states.iter().find(|(k, _)| *k == job.key) else { continue };
        if matches!(state.kind, StateKind::Dead | StateKind::Interrupted | StateKind::Unreachable) {
            derived.attention.push(Attention {
                text: format!("{}: {} ({})", job.facts.name, state.kind.word(), state.evidence),
                target: None,
            });
        }
    }
    derived
}

/// Adds what is counted over the rows.
pub fn finish(derived: &mut Derived, rows: &[Row]) {
    let mut groups: BTreeMap<(bool, Arc<str>), ErrorGroup> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.superseded.is_none()) {
        if let Some(slot) = Outcome::ALL.iter().position(|o| *o == row.outcome).and_then(|i| derived.counts.get_mut(i))
        {
            *slot += 1;
        }
        let (is_exception, kind, filter) = match (&row.exception, row.outcome) {
            (Some(kind), _) => (true, kind.clone(), format!("exception:{kind}")),
            (None, o @ (Outcome::Phantom | Outcome::Orphaned | Outcome::Unreadable | Outcome::NoReward)) => {
                (false, Arc::from(o.word()), format!("outcome:{}", o.word().replace(' ', "_")))
            }
            _ => continue,
        };
        let group = groups.entry((is_exception, kind.clone())).or_insert_with(|| ErrorGroup {
            kind,
            n: 0,
            solved: 0,
            graded: 0,
            filter,
            is_exception,
        });
        group.n += 1;
        group.graded += usize::from(row.reward.is_some());
        group.solved += usize::from(row.reward == Some(1.0));
    }
    derived.errors = groups.into_values().collect();
    derived.errors.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| a.kind.cmp(&b.kind)));
    let _ = RowId::Slot;
}
