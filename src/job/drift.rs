//! What is not the same in two jobs, so that their trials do not compare: task versions, agents, models,
//! settings, harness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fleet::Job;

/// One difference between two jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// What differs: `tasks`, `agent`, `model`, `harness`, `version`, or a setting's name.
    pub what: String,
    /// How it is in the first one.
    pub base: String,
    /// How it is in the other one.
    pub other: String,
}

impl Drift {
    /// In one sentence, for a warning about the other job.
    pub fn sentence(&self, base_dir: &str) -> String {
        let Drift { what, base, other } = self;
        match &**what {
            "tasks" => format!("{other} than in {base_dir}; their trials do not compare"),
            "agent" | "model" => {
                format!("{what} {other} here, {base} in {base_dir}: one score over both says nothing about either")
            }
            _ => format!("{what} {other} here, {base} in {base_dir}: say so beside a score over both"),
        }
    }
}

/// All differences, those of the tasks first.
pub fn between(base: &Job, other: &Job) -> Vec<Drift> {
    let mut out = Vec::new();
    let base_tasks = versions(base);
    let other_tasks = versions(other);
    let differing: Vec<&str> = other_tasks
        .iter()
        .filter(|(task, v)| base_tasks.get(*task).is_some_and(|b| b.differs(v)))
        .map(|(task, _)| &**task)
        .collect();
    if !differing.is_empty() {
        let text = format!("{} tasks have other content: {}", differing.len(), shorten(&differing));
        out.push(Drift { what: "tasks".into(), base: "-".into(), other: text });
    }
    let (a, b) = (&base.facts, &other.facts);
    let same_agents = sorted(&a.agents) == sorted(&b.agents);
    for (what, ours, theirs) in [("agent", &a.agents, &b.agents), ("model", &a.models, &b.models)] {
        if sorted(ours) != sorted(theirs) {
            out.push(Drift { what: what.into(), base: names(ours), other: names(theirs) });
        }
    }
    if same_agents {
        // The same name in the config, and another one at work: other prompts make another agent.
        let (ours, theirs) = (at_work(base), at_work(other));
        if !ours.is_empty() && !theirs.is_empty() && ours.is_disjoint(&theirs) {
            let words = |set: BTreeSet<Arc<str>>| names(&set.into_iter().collect::<Vec<_>>());
            out.push(Drift { what: "agent".into(), base: words(ours), other: words(theirs) });
        }
    }
    if a.harness != b.harness {
        out.push(Drift { what: "harness".into(), base: a.harness.word().into(), other: b.harness.word().into() });
    }
    if let (Some(ours), Some(theirs)) = (&a.harbor_version, &b.harbor_version)
        && ours != theirs
    {
        out.push(Drift { what: "version".into(), base: ours.to_string(), other: theirs.to_string() });
    }
    let text = |value: Option<Arc<str>>| value.map_or("not set".to_string(), |v| v.to_string());
    // A job without config says nothing of its settings.
    if !a.settings.is_unknown() && !b.settings.is_unknown() {
        let differing = a.settings.differing(&b.settings, same_agents);
        out.extend(differing.into_iter().map(|d| Drift {
            what: d.name.to_string(),
            base: text(d.here),
            other: text(d.there),
        }));
    }
    out
}

/// Who worked in a job's trials, by the results' own words.
fn at_work(job: &Job) -> BTreeSet<Arc<str>> {
    job.trials.values().filter_map(|trial| trial.result.as_ref()?.agent.clone()).collect()
}

fn sorted(list: &[Arc<str>]) -> Vec<&Arc<str>> {
    let mut list: Vec<&Arc<str>> = list.iter().collect();
    list.sort();
    list
}

fn names(list: &[Arc<str>]) -> String {
    let names: Vec<&str> = list.iter().map(|n| &**n).collect();
    if names.is_empty() { "-".to_string() } else { shorten(&names) }
}

/// The first names of a list, and how many more there are.
pub fn shorten(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let head = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => head,
        more => format!("{head} and {more} more"),
    }
}

/// What tells versions of a task apart.
#[derive(Debug, Default)]
pub struct Version {
    /// Content digest of the lock.
    pub digest: Option<Arc<str>>,
    /// Checksum of a trial's result.
    pub checksum: Option<Arc<str>>,
}

impl Version {
    /// True when both are known and not the same.
    pub fn differs(&self, other: &Version) -> bool {
        match (&self.digest, &other.digest) {
            (Some(a), Some(b)) => a != b,
            _ => matches!((&self.checksum, &other.checksum), (Some(a), Some(b)) if a != b),
        }
    }
}

/// The versions of a job's tasks.
pub fn versions(job: &Job) -> BTreeMap<Arc<str>, Version> {
    let mut out: BTreeMap<Arc<str>, Version> = BTreeMap::new();
    for p in job.facts.planned.iter().flatten() {
        let version = out.entry(p.task.clone()).or_default();
        version.digest = version.digest.take().or_else(|| p.digest.clone());
    }
    for trial in job.trials.values() {
        if let Some(sum) = trial.result.as_ref().and_then(|r| r.task_checksum.as_ref()) {
            out.entry(trial.task.clone()).or_default().checksum.get_or_insert_with(|| sum.clone());
        }
    }
    out
}
