//! A job of ours read back from its directory, to be gone on with: what was planned, what stands.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Number, Value};

use super::atomic::{self, Folder, WriteError};
use super::config::TaskConfig;
use super::ids;
use super::result::RewardMap;
use super::stats::Ended;
use crate::harbor::dir::{Dir, Entry, EntryKind, OpenError};
use crate::job::outcome::CANCELLED;
use crate::job::{Stamp, time};

/// Largest document that is read, in bytes.
const LARGEST: u64 = 256 << 20;
/// Files by which a directory shows that it is a trial's.
const MARKS: [&str; 4] = ["lock.json", "config.json", "trial.log", "result.json"];

/// A planned trial as a job's `lock.json` has it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct LockedTask {
    /// Short name.
    pub name: String,
    /// `sha256:…`.
    pub digest: String,
    /// Label of the dataset.
    pub source: Option<String>,
    /// Where it is, as the job names it.
    pub path: Option<String>,
    /// The repository.
    pub git_url: Option<String>,
    /// The commit.
    pub git_commit_id: Option<String>,
}

impl LockedTask {
    /// Where the job says that the task comes from.
    pub fn config(&self) -> TaskConfig {
        TaskConfig {
            path: self.path.clone(),
            git_url: self.git_url.clone(),
            git_commit_id: self.git_commit_id.clone(),
            source: self.source.clone(),
            ..TaskConfig::default()
        }
    }
}

/// What the files of a job itself say.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRead {
    /// `config.json`, as it is.
    pub config: Vec<u8>,
    /// The task of every planned trial, in the order of the plan.
    pub planned: Vec<LockedTask>,
    /// When the plan was made.
    pub started: Option<Stamp>,
    /// The job's UUID; None when it was ended before its first `result.json`.
    pub id: Option<String>,
    /// Attempts that were done again.
    pub retries: u64,
    /// The job came to its end.
    pub finished: bool,
}

/// What stands in a directory of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// A finished trial.
    Done(Box<Done>),
    /// A trial that was stopped.
    Cancelled,
    /// A result with neither reward nor exception.
    Phantom,
    /// A trial without result.
    Open,
    /// A trial whose result can not be read; why.
    Torn(String),
    /// No trial.
    Foreign,
}

/// A finished trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// What of it is counted.
    pub ended: Ended,
    /// Its end.
    pub finished: Option<Stamp>,
    /// Where its task comes from: path and repository.
    pub task: (Option<String>, Option<String>),
    /// Its agent's config, as it was written.
    pub agent: Value,
}

/// Rewards in their order.
#[derive(Debug, Clone, PartialEq, Default)]
struct Rewards(RewardMap);

impl<'de> Deserialize<'de> for Rewards {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Rewards, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Rewards;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of rewards")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rewards, A::Error> {
                let mut out = Vec::new();
                while let Some(entry) = map.next_entry::<String, Number>()? {
                    out.push(entry);
                }
                Ok(Rewards(out))
            }
        }
        from.deserialize_map(InOrder)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAgentResult {
    n_input_tokens: Option<u64>,
    n_cache_tokens: Option<u64>,
    n_output_tokens: Option<u64>,
    cost_usd: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawVerdict {
    rewards: Option<Rewards>,
}

#[derive(Deserialize)]
struct RawException {
    exception_type: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawStep {
    agent_result: Option<RawAgentResult>,
    exception_info: Option<RawException>,
}

#[derive(Deserialize, Default)]
struct RawName {
    name: String,
}

#[derive(Deserialize, Default)]
struct RawAgentInfo {
    name: String,
    model_info: Option<RawName>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawVerifier {
    disable: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawConfig {
    task: LockedTaskPath,
    agent: Value,
    verifier: RawVerifier,
    install_only: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LockedTaskPath {
    path: Option<String>,
    git_url: Option<String>,
}

#[derive(Deserialize)]
struct RawTrial {
    task_name: String,
    trial_name: String,
    source: Option<String>,
    config: RawConfig,
    agent_info: RawAgentInfo,
    agent_result: Option<RawAgentResult>,
    verifier_result: Option<RawVerdict>,
    #[serde(default)]
    reward_valid: bool,
    exception_info: Option<RawException>,
    step_results: Option<Vec<RawStep>>,
    finished_at: Option<String>,
}

/// Reads the files of a job itself.
///
/// # Errors
/// In words, by file: what is missing of it, or can not be read.
pub fn job(folder: &Folder) -> Result<JobRead, String> {
    #[derive(Deserialize)]
    struct Lock {
        created_at: Option<String>,
        trials: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        task: LockedTask,
    }
    #[derive(Deserialize, Default)]
    struct Stats {
        #[serde(default)]
        n_retries: u64,
    }
    #[derive(Deserialize)]
    struct Summary {
        id: String,
        finished_at: Option<String>,
        #[serde(default)]
        stats: Stats,
    }
    let file = |name: &str| match folder.dir().read_all(name, LARGEST) {
        Ok(read) => Ok(Some(read.data)),
        Err(OpenError::Missing | OpenError::Vanished) => Ok(None),
        Err(e) => Err(format!("{name}: {e}")),
    };
    let none = |name: &str| {
        format!(
            "{name} is missing: ended before its plan was written: nothing of it was run: remove it and start again"
        )
    };
    let config = file("config.json")?.ok_or_else(|| none("config.json"))?;
    let lock = file("lock.json")?.ok_or_else(|| none("lock.json"))?;
    let lock: Lock = serde_json::from_slice(&lock).map_err(|e| format!("lock.json: {e}"))?;
    let summary: Option<Summary> = match file("result.json")? {
        Some(bytes) => Some(serde_json::from_slice(&bytes).map_err(|e| format!("result.json: {e}"))?),
        None => None,
    };
    Ok(JobRead {
        config,
        planned: lock.trials.into_iter().map(|t| t.task).collect(),
        started: lock.created_at.as_deref().and_then(time::parse).map(|t| t.at),
        id: summary.as_ref().map(|s| s.id.clone()),
        retries: summary.as_ref().map_or(0, |s| s.stats.n_retries),
        finished: summary.is_some_and(|s| s.finished_at.is_some()),
    })
}

/// Every directory of a job with what stands in it, sorted by name.
///
/// # Errors
/// The job dir can not be read.
pub fn trials(folder: &Folder) -> Result<Vec<(String, Standing)>, WriteError> {
    let entries = folder.dir().list().map_err(|e| WriteError::of(folder.path(), &e))?;
    let names: BTreeSet<String> =
        entries.into_iter().filter(|e| e.kind == EntryKind::Dir).filter_map(|e| e.name.into_string().ok()).collect();
    Ok(names
        .into_iter()
        .map(|name| {
            let standing = folder.dir().sub(&name).map_or(Standing::Foreign, |dir| trial(&dir, &name));
            (name, standing)
        })
        .collect())
}

/// A trial's directory whose owner ended before its first file was in place: it has such a name, and
/// nothing but unfinished files of ours.
pub fn is_just_made(dir: &Dir, name: &str) -> bool {
    let ours = |entries: Vec<Entry>| {
        entries.iter().all(|e| e.kind == EntryKind::File && e.name.to_str().is_some_and(atomic::is_temp))
    };
    ids::is_trial_name(name) && dir.list().is_ok_and(ours)
}

fn trial(dir: &Dir, name: &str) -> Standing {
    if !MARKS.iter().any(|mark| dir.stat(mark).is_ok()) {
        return if is_just_made(dir, name) { Standing::Open } else { Standing::Foreign };
    }
    let bytes = match dir.read_all("result.json", LARGEST) {
        Ok(read) => read.data,
        Err(OpenError::Missing | OpenError::Vanished) => return Standing::Open,
        Err(e) => return Standing::Torn(e.to_string()),
    };
    let raw: RawTrial = match serde_json::from_slice(&bytes) {
        Ok(raw) => raw,
        Err(e) => return Standing::Torn(format!("result.json: {e}")),
    };
    if raw.trial_name != name {
        return Standing::Torn(format!("result.json is that of {}", raw.trial_name));
    }
    standing(raw)
}

fn standing(raw: RawTrial) -> Standing {
    let steps = raw.step_results.unwrap_or_default();
    let step_exceptions = steps.iter().filter_map(|s| s.exception_info.as_ref());
    let exceptions: Vec<String> =
        raw.exception_info.iter().chain(step_exceptions).map(|e| e.exception_type.clone()).collect();
    if exceptions.iter().any(|kind| kind == CANCELLED) {
        return Standing::Cancelled;
    }
    let rewards = raw.verifier_result.and_then(|v| v.rewards).map(|r| r.0);
    let ungraded = raw.config.verifier.disable || raw.config.install_only;
    if exceptions.is_empty() && rewards.is_none() && !ungraded {
        return Standing::Phantom;
    }
    let mut ended = Ended {
        trial_name: raw.trial_name,
        task_name: raw.task_name,
        agent: raw.agent_info.name,
        model: raw.agent_info.model_info.map(|m| m.name),
        source: raw.source,
        rewards,
        reward_valid: raw.reward_valid,
        exceptions,
        ..Ended::default()
    };
    let of_steps = steps.iter().filter_map(|s| s.agent_result.as_ref()).filter(|_| raw.agent_result.is_none());
    for reported in raw.agent_result.iter().chain(of_steps) {
        ended.report(reported.n_input_tokens, reported.n_cache_tokens, reported.n_output_tokens, reported.cost_usd);
    }
    Standing::Done(Box::new(Done {
        ended,
        finished: raw.finished_at.as_deref().and_then(time::parse).map(|t| t.at),
        task: (raw.config.task.path, raw.config.task.git_url),
        agent: raw.config.agent,
    }))
}
