//! A trial whose verifier was run again, without its agent: what that came to. It lies over the result,
//! which stays as it is.

use std::sync::Arc;

use super::outcome::{Exception, Grade, Rewards};
use super::time::Stamp;
use super::trial::Trial;

/// Whether regrades count, in the one score that they may count in: `corrected`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Regrades {
    /// The last one with a valid reward counts instead of the result's own.
    #[default]
    Use,
    /// They are listed and count for nothing.
    Ignore,
}

impl Regrades {
    /// The word on the command line and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Regrades::Use => "use",
            Regrades::Ignore => "ignore",
        }
    }
}

/// One `regrade-<n>.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Regrade {
    /// Its number, from 1.
    pub n: u32,
    /// Id of the result that it is about; another attempt's says nothing of this one.
    pub result_id: Option<Arc<str>>,
    /// What the verifier gave this time.
    pub rewards: Rewards,
    /// Why it gave nothing.
    pub exception: Option<Exception>,
    /// When the verifier began.
    pub started: Option<Stamp>,
    /// When it ended.
    pub finished: Option<Stamp>,
    /// Who had it run.
    pub operator: Arc<str>,
    /// Why.
    pub why: Arc<str>,
    /// It ran in a copy of the container's files: processes, and what lay in memory, were lost.
    pub processes_lost: bool,
    /// The task was another one than the trial's, so that it is listed and counts for nothing.
    pub task_changed: bool,
}

impl Regrade {
    /// Name of its file in the trial's directory.
    pub fn file(&self) -> String {
        file_name(self.n)
    }

    /// The primary reward.
    pub fn reward(&self) -> Option<f64> {
        self.rewards.primary()
    }

    /// Whether it may count: a reward, no exception, the task of the trial.
    pub fn is_valid(&self) -> bool {
        self.reward().is_some() && self.exception.is_none() && !self.task_changed
    }

    /// In a few words: `regrade 2: reward 1`.
    pub fn words(&self) -> String {
        let what = match (self.reward(), &self.exception) {
            (_, Some(exception)) => exception.kind.to_string(),
            (Some(reward), None) => format!("reward {reward}"),
            (None, None) => "no reward".to_string(),
        };
        let mut out = format!("regrade {}: {what}", self.n);
        if self.processes_lost {
            out.push_str(", processes lost");
        }
        if self.task_changed {
            out.push_str(", of a changed task: does not count");
        }
        out
    }
}

/// Name of the n-th in a trial's directory.
pub fn file_name(n: u32) -> String {
    format!("regrade-{n}.json")
}

impl Trial {
    /// The regrades of this very attempt, oldest first.
    pub fn regrades_of_this(&self) -> impl DoubleEndedIterator<Item = &Regrade> {
        let id = self.result.as_ref().and_then(|r| r.id.as_ref());
        self.regrades.iter().filter(move |r| r.result_id.is_none() || r.result_id.as_ref() == id)
    }

    /// The regrade that counts: the last one with a valid reward.
    pub fn regrade(&self) -> Option<&Regrade> {
        self.result.as_ref()?;
        self.regrades_of_this().rev().find(|r| r.is_valid())
    }

    /// The grade with regrades, or without.
    pub fn grade_with(&self, regrades: Regrades) -> Option<Grade> {
        let own = self.result.as_ref()?.grade();
        match regrades {
            Regrades::Ignore => Some(own),
            Regrades::Use => Some(self.regrade().map_or(own, |r| Grade::of(r.reward()))),
        }
    }
}
