//! What can happen to the model.

use super::detail;
use super::helm;
use super::key::Key;
use super::replay;
use crate::job::JobEvent;
use crate::job::roster::RosterEvent;
use crate::serving::Observation;

/// One thing that happened.
#[derive(Debug)]
pub enum Msg {
    /// News of the jobs.
    Jobs(Vec<JobEvent>),
    /// News of the list of jobs.
    Roster(Vec<RosterEvent>),
    /// News of the model servers.
    Serving(Vec<Observation>),
    /// A key.
    Key(Key),
    /// Text pasted into the terminal.
    Paste(String),
    /// The terminal has this size now: columns, rows.
    Resize(u16, u16),
    /// Time went by.
    Tick,
    /// The loader of the trial view answers.
    Detail(detail::Reply),
    /// The player answers.
    Replay(replay::Reply),
    /// News from the other side of the helm.
    Helm(helm::News),
    /// Something to tell the operator, from an effect.
    Notice(String),
}
