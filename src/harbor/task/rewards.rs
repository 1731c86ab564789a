//! Rewards of the steps of a task: what a step must reach, and what they make together.

use std::collections::BTreeMap;

/// Rewards by key, as a verifier gives them.
pub type Rewards = BTreeMap<String, f64>;

/// `min_reward` of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum MinReward {
    /// Of the key `reward`.
    Reward(f64),
    /// Of each of these keys.
    Keys(Rewards),
}

impl MinReward {
    /// The first key that is below its minimum, with what it reached and the minimum. What is not
    /// there, be it a key or the whole result, is below any minimum but minus infinity.
    pub fn unmet(&self, rewards: Option<&Rewards>) -> Option<(&str, Option<f64>, f64)> {
        let check = |key: &'_ str, minimum: f64| {
            let reached = rewards.and_then(|r| r.get(key)).copied();
            (reached.unwrap_or(f64::NEG_INFINITY) < minimum).then_some((reached, minimum))
        };
        match self {
            MinReward::Reward(minimum) => check("reward", *minimum).map(|(r, m)| ("reward", r, m)),
            MinReward::Keys(keys) => {
                keys.iter().find_map(|(key, minimum)| check(key, *minimum).map(|(r, m)| (key.as_str(), r, m)))
            }
        }
    }
}

/// How the rewards of several steps make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RewardStrategy {
    /// Key by key the mean over the steps that have a result; a missing key counts 0.
    #[default]
    Mean,
    /// What the last step that ran has.
    Final,
}

impl RewardStrategy {
    /// The rewards of the trial from those of the steps that ran, in order; None for a step without
    /// a result, and for a trial without one.
    pub fn combine(self, steps: &[Option<Rewards>]) -> Option<Rewards> {
        if self == RewardStrategy::Final {
            return steps.last().cloned().flatten();
        }
        let graded: Vec<&Rewards> = steps.iter().flatten().collect();
        if graded.is_empty() {
            return None;
        }
        let mut sums = Rewards::new();
        for (key, reward) in graded.iter().flat_map(|r| r.iter()) {
            *sums.entry(key.clone()).or_insert(0.0) += reward;
        }
        sums.values_mut().for_each(|sum| *sum /= graded.len() as f64);
        Some(sums)
    }
}
