//! `result.json` of a job: progress, and the stats by agent, model and dataset as Harbor 0.26 computes
//! them from the same trials.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::Number;

use super::config::{MetricConfig, MetricKind};
use super::result::{RewardMap, TrialResult, Utc};
use crate::job::Stamp;
use crate::job::outcome::CANCELLED;

/// A map in the order in which its keys came.
#[derive(Debug, Clone, PartialEq)]
pub struct Ordered<V>(Vec<(String, V)>);

impl<V> Default for Ordered<V> {
    fn default() -> Ordered<V> {
        Ordered(Vec::new())
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(k, v)| (k, v)))
    }
}

impl<V> Ordered<V> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = &(String, V)> {
        self.0.iter()
    }

    fn change(&mut self, key: &str, by: impl FnOnce(&mut V))
    where
        V: Default,
    {
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, value)) => by(value),
            None => {
                let mut value = V::default();
                by(&mut value);
                self.0.push((key.to_string(), value));
            }
        }
    }
}

/// What the stats need of a finished trial; can be made of a result that was read back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ended {
    /// Name of its directory.
    pub trial_name: String,
    /// `task_name`; groups the trials for pass@k.
    pub task_name: String,
    /// `agent_info.name`.
    pub agent: String,
    /// Name of the model, without the provider.
    pub model: Option<String>,
    /// Label of the dataset.
    pub source: Option<String>,
    /// Rewards, valid or not.
    pub rewards: Option<RewardMap>,
    /// Whether they count.
    pub reward_valid: bool,
    /// Types of its exceptions, the trial's and the steps'.
    pub exceptions: Vec<String>,
    /// Prompt tokens, cached ones included.
    pub input: Option<u64>,
    /// Of those, from the cache.
    pub cache: Option<u64>,
    /// Completion tokens.
    pub output: Option<u64>,
    /// Cost in USD.
    pub cost_usd: Option<f64>,
}

impl Ended {
    /// The part of a result that is counted.
    pub fn of(result: &TrialResult) -> Ended {
        let mut ended = Ended {
            trial_name: result.trial_name.clone(),
            task_name: result.task_name.clone(),
            agent: result.agent_info.name.clone(),
            model: result.agent_info.model_info.as_ref().map(|m| m.name.clone()),
            source: result.source.clone(),
            rewards: result.rewards().cloned(),
            reward_valid: result.reward_valid(),
            exceptions: result.exceptions().map(|e| e.exception_type.clone()).collect(),
            ..Ended::default()
        };
        for reported in result.agent_results() {
            ended.report(reported.n_input_tokens, reported.n_cache_tokens, reported.n_output_tokens, reported.cost_usd);
        }
        ended
    }

    /// Adds what an agent reported, once for the trial or once for each step.
    pub(super) fn report(&mut self, input: Option<u64>, cache: Option<u64>, output: Option<u64>, cost: Option<f64>) {
        add(&mut self.input, input);
        add(&mut self.cache, cache);
        add(&mut self.output, output);
        add_cost(&mut self.cost_usd, cost);
    }

    /// Stopped by the operator or by a sibling's crash.
    pub fn is_cancelled(&self) -> bool {
        self.exceptions.iter().any(|e| e == CANCELLED)
    }

    fn eval_key(&self) -> String {
        let dataset = self.source.as_deref().filter(|s| !s.is_empty()).unwrap_or("adhoc");
        match self.model.as_deref().filter(|m| !m.is_empty()) {
            Some(model) => format!("{}__{model}__{dataset}", self.agent),
            None => format!("{}__{dataset}", self.agent),
        }
    }

    fn valid_rewards(&self) -> Option<&RewardMap> {
        self.rewards.as_ref().filter(|_| self.reward_valid)
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

fn add_cost(sum: &mut Option<f64>, more: Option<f64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0.0) + more);
    }
}

/// One reward key: its values, each with the trials that got it.
pub type RewardStats = Ordered<Vec<String>>;

/// The trials of one agent with one model on one dataset.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EvalStats {
    /// Trials with a reward that counts.
    pub n_trials: u64,
    /// Trials with an exception.
    pub n_errors: u64,
    /// One map for each metric; empty as long as no reward counts.
    pub metrics: Vec<Ordered<f64>>,
    /// By k; only in the last write of a job that came to its end.
    pub pass_at_k: Ordered<f64>,
    /// By reward key.
    pub reward_stats: Ordered<RewardStats>,
    /// Trials by exception type.
    pub exception_stats: Ordered<Vec<String>>,
    /// Where in `reward_stats` a value of a key stands, by the number's bits: there can be as many
    /// values as trials.
    #[serde(skip)]
    places: HashMap<(String, u64), usize>,
}

/// The `stats` of a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct JobStats {
    /// Trials that ended, cancelled ones included.
    pub n_completed_trials: u64,
    /// Of those, with an exception.
    pub n_errored_trials: u64,
    /// At work.
    pub n_running_trials: u64,
    /// Neither ended nor at work.
    pub n_pending_trials: u64,
    /// Cancelled.
    pub n_cancelled_trials: u64,
    /// Attempts that were done again.
    pub n_retries: u64,
    /// By agent, model and dataset.
    pub evals: Ordered<EvalStats>,
    /// Prompt tokens, cached ones included; None until a trial reports some.
    pub n_input_tokens: Option<u64>,
    /// Of those, from the cache.
    pub n_cache_tokens: Option<u64>,
    /// Completion tokens.
    pub n_output_tokens: Option<u64>,
    /// Cost in USD.
    pub cost_usd: Option<f64>,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Planned trials.
    pub total: u64,
    /// Trials at work.
    pub running: u64,
    /// Trials cancelled, those included that have not ended yet.
    pub cancelled: u64,
    /// Attempts that were done again.
    pub retries: u64,
    /// Whether the job is over, so that pass@k is due.
    pub over: bool,
}

impl JobStats {
    /// The stats of these trials, in the order in which they ended.
    pub fn of(ended: &[Ended], progress: Progress, metrics: &[MetricConfig]) -> JobStats {
        let mut stats = JobStats {
            n_completed_trials: ended.len() as u64,
            n_running_trials: progress.running,
            n_pending_trials: progress.total.saturating_sub(ended.len() as u64).saturating_sub(progress.running),
            n_cancelled_trials: progress.cancelled,
            n_retries: progress.retries,
            ..JobStats::default()
        };
        for trial in ended {
            stats.evals.change(&trial.eval_key(), |eval| eval.add(trial));
            stats.n_errored_trials += u64::from(!trial.exceptions.is_empty());
            add(&mut stats.n_input_tokens, trial.input);
            add(&mut stats.n_cache_tokens, trial.cache);
            add(&mut stats.n_output_tokens, trial.output);
            add_cost(&mut stats.cost_usd, trial.cost_usd);
        }
        let kinds: Vec<MetricKind> = match metrics {
            [] => vec![MetricKind::Mean],
            some => some.iter().map(|m| m.kind).collect(),
        };
        for (key, eval) in &mut stats.evals.0 {
            let mine: Vec<&Ended> = ended.iter().filter(|t| t.eval_key() == *key).collect();
            let rewards: Vec<&RewardMap> = mine.iter().filter_map(|t| t.valid_rewards()).collect();
            if !rewards.is_empty() {
                eval.metrics = kinds.iter().map(|kind| metric(*kind, &rewards)).collect();
            }
            if progress.over {
                eval.pass_at_k = pass_at_k(&mine);
            }
        }
        stats
    }
}

impl EvalStats {
    fn add(&mut self, trial: &Ended) {
        if let Some(rewards) = trial.valid_rewards() {
            self.n_trials += 1;
            for (key, value) in rewards {
                // Equal numbers are one value, called by the writing that came first; 0 and -0 are equal.
                let bits = (value.as_f64().unwrap_or(f64::NAN) + 0.0).to_bits();
                let place = &mut self.places;
                self.reward_stats.change(key, |values| {
                    let at = *place.entry((key.clone(), bits)).or_insert_with(|| {
                        values.0.push((value.to_string(), Vec::new()));
                        values.0.len() - 1
                    });
                    if let Some((_, names)) = values.0.get_mut(at) {
                        names.push(trial.trial_name.clone());
                    }
                });
            }
        }
        let kinds: BTreeSet<&String> = trial.exceptions.iter().collect();
        self.n_errors += u64::from(!kinds.is_empty());
        for kind in kinds {
            self.exception_stats.change(kind, |names| names.push(trial.trial_name.clone()));
        }
    }
}

/// One reward key in all: one value, called by the metric. Several: a value for each key, where a
/// trial without the key counts as 0.
fn metric(kind: MetricKind, rewards: &[&RewardMap]) -> Ordered<f64> {
    let keys: BTreeSet<&str> = rewards.iter().flat_map(|map| map.iter().map(|(k, _)| k.as_str())).collect();
    let number = |n: Option<&Number>| n.and_then(Number::as_f64).unwrap_or(0.0);
    if keys.len() <= 1 {
        let values: Vec<f64> = rewards.iter().map(|map| number(map.first().map(|(_, v)| v))).collect();
        let name = match kind {
            MetricKind::Sum => "sum",
            MetricKind::Min => "min",
            MetricKind::Max => "max",
            MetricKind::Mean => "mean",
        };
        return Ordered(vec![(name.to_string(), aggregate(kind, &values))]);
    }
    let one = |key: &str| {
        let of = |map: &&RewardMap| number(map.iter().find(|(k, _)| k == key).map(|(_, v)| v));
        aggregate(kind, &rewards.iter().map(of).collect::<Vec<f64>>())
    };
    Ordered(keys.into_iter().map(|key| (key.to_string(), one(key))).collect())
}

fn aggregate(kind: MetricKind, values: &[f64]) -> f64 {
    match kind {
        MetricKind::Sum => sum(values),
        MetricKind::Mean => sum(values) / (values.len().max(1) as f64),
        MetricKind::Min => values.iter().copied().reduce(f64::min).unwrap_or(0.0),
        MetricKind::Max => values.iter().copied().reduce(f64::max).unwrap_or(0.0),
    }
}

/// Sums with the rounding errors carried along (Neumaier), as Python does since 3.12, so that the last
/// digit is the same.
fn sum(values: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        sum = next;
    }
    if lost.is_finite() { sum + lost } else { sum }
}

/// The unbiased estimate for every k that each task has enough trials for; nothing unless every
/// trial has exactly one reward and that is 0 or 1. Trials without a valid reward are left out.
fn pass_at_k(trials: &[&Ended]) -> Ordered<f64> {
    let mut tasks: Ordered<(u64, u64)> = Ordered::default();
    for trial in trials {
        let Some(rewards) = trial.valid_rewards() else { continue };
        let [(_, reward)] = rewards.as_slice() else { return Ordered::default() };
        let passed = match reward.as_f64() {
            Some(1.0) => 1,
            Some(0.0) => 0,
            _ => return Ordered::default(),
        };
        tasks.change(&trial.task_name, |(n, c)| {
            *n += 1;
            *c += passed;
        });
    }
    let most = tasks.iter().map(|(_, (n, _))| *n).min().unwrap_or(0);
    let doubling = std::iter::successors(Some(2_u64), |k| k.checked_mul(2)).take_while(|k| *k <= most);
    let ks: BTreeSet<u64> = doubling.chain((5..=most).step_by(5)).collect();
    let at = |k: u64| {
        let each: Vec<f64> = tasks.iter().map(|(_, (n, c))| one_task(*n, *c, k)).collect();
        sum(&each) / (each.len() as f64)
    };
    Ordered(ks.into_iter().map(|k| (k.to_string(), at(k))).collect())
}

/// The chance that at least one of `k` trials drawn from `n` is among the `c` that passed.
fn one_task(n: u64, c: u64, k: u64) -> f64 {
    let failed = n.saturating_sub(c);
    if failed < k {
        return 1.0;
    }
    let none: f64 = (0..k).map(|i| (failed.saturating_sub(i)) as f64 / (n.saturating_sub(i)) as f64).product();
    1.0 - none
}

/// A time in a job's result: Harbor writes its events in UTC, but begin and end without a zone, in
/// local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobTime {
    /// `2026-11-29T20:03:09.001584Z`.
    Utc(Stamp),
    /// `2026-11-29T20:03:09.001584`, by this machine's zone.
    Local(Stamp),
}

impl Serialize for JobTime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            JobTime::Utc(at) => Utc(*at).serialize(to),
            JobTime::Local(at) => {
                let here = at.to_zoned(jiff::tz::TimeZone::system());
                to.collect_str(&here.strftime("%Y-%m-%dT%H:%M:%S%.6f"))
            }
        }
    }
}

/// A job's `result.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobResult {
    /// 1.
    pub schema_version: u32,
    /// A UUID; stays over resumes.
    pub id: String,
    /// The first start; stays over resumes.
    pub started_at: JobTime,
    /// The last change.
    pub updated_at: JobTime,
    /// None until every planned trial is done.
    pub finished_at: Option<JobTime>,
    /// Planned trials.
    pub n_total_trials: u64,
    /// The counts.
    pub stats: JobStats,
}
