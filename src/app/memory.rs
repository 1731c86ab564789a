//! What a screen remembers between two starts: marks, order and filter of its lists. Pure; who keeps it, and
//! where, is told by an effect.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::model::Model;
use super::table::SortKey;
use super::update::notice;
use crate::job::roster::Order;
use crate::job::{Job, JobKey, TrialKey};

/// Marks that are kept of one list.
const MARKS: usize = 5000;

/// Order and filter of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListMemory {
    /// The word of the order; empty: the usual one.
    pub sort: String,
    /// Turned round.
    pub inverted: bool,
    /// The filter as typed.
    pub filter: String,
    /// Marked: job dirs, or trial names.
    pub marks: Vec<String>,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The list of jobs.
    pub jobs: ListMemory,
    /// Order of the trials list, whatever the job: word, turned round.
    pub trials_sort: (String, bool),
    /// Filter and marks of the trials, by job: id, else directory.
    pub trials: BTreeMap<String, ListMemory>,
}

/// What is to be kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Keep {
    /// A directory of jobs, or a job dir, is looked through from now on.
    Root(PathBuf),
    /// It is not any more.
    Forget(PathBuf),
    /// What the screen remembers now.
    Memory(Box<Memory>),
}

/// The name under which a job's marks are kept.
pub fn key_of(job: &Job) -> String {
    match &job.facts.id {
        Some(id) => id.to_string(),
        None => job.facts.dir.to_string_lossy().into_owned(),
    }
}

/// What the screen would have to be told to look like this again: of the trials' lists, those of its jobs.
pub fn of(model: &Model) -> Memory {
    let mut memory = model.jobs.memory();
    memory.trials_sort = model.table.memory();
    let only = matches!(model.fleet.jobs(), [_]);
    for job in model.fleet.jobs() {
        // What is not known yet is not forgotten either.
        let before = model.jobs.kept.trials.get(&key_of(job));
        let restored = model.jobs.restored.contains(&job.key);
        let marks = match before.filter(|_| !restored) {
            Some(before) => before.marks.clone(),
            None => {
                let mine = model.marked.iter().filter(|k| k.job == job.key).map(|k| k.trial.to_string());
                mine.take(MARKS).collect()
            }
        };
        let filter = match before {
            Some(before) if !only => before.filter.clone(),
            _ if only => model.table.filter_text.clone(),
            _ => String::new(),
        };
        let list = ListMemory { filter, marks, ..ListMemory::default() };
        let key = key_of(job);
        // What was kept a moment ago has to be told that it is nothing any more.
        let told = model.jobs.remembered.as_ref().is_some_and(|m| m.trials.contains_key(&key));
        if list != ListMemory::default() || before.is_some() || told {
            memory.trials.insert(key, list);
        }
    }
    memory
}

/// Brings back what was kept, before anything is known of the jobs.
pub fn restore(model: &mut Model, memory: Memory) {
    model.jobs.restore(&memory.jobs);
    let (sort, inverted) = &memory.trials_sort;
    if let Some(sort) = SortKey::ALL.into_iter().find(|s| s.word() == sort) {
        (model.table.sort, model.table.inverted) = (sort, *inverted);
    }
    model.jobs.kept = memory;
}

/// Brings back marks and filter of a job whose trials are known now.
pub fn settled(model: &mut Model, key: JobKey) {
    if !model.jobs.restored.insert(key) {
        return;
    }
    let Some(job) = model.fleet.job(key) else { return };
    let Some(kept) = model.jobs.kept.trials.get(&key_of(job)) else { return };
    let there = |name: &&String| job.trials.contains_key(name.as_str());
    let marks: Vec<TrialKey> =
        kept.marks.iter().filter(there).map(|n| TrialKey { job: key, trial: n.as_str().into() }).collect();
    let filter = kept.filter.clone();
    model.marked.extend(marks);
    // What the operator typed meanwhile is newer.
    let free = matches!(model.fleet.jobs(), [_]) && model.table.filter_text.is_empty();
    if free && !filter.is_empty() && model.table.set_filter(&filter).is_ok() {
        model.stale = true;
        notice(model, format!("the filter of last time: {filter}; F shows all"));
    }
}

/// The word of a job's order.
pub(super) fn order(word: &str) -> Order {
    Order::by_word(word).unwrap_or_default()
}
