//! How a trial ended: reward × exception, two axes that are never collapsed into one.

use std::sync::Arc;

/// One reward as the verifier wrote it.
#[derive(Debug, Clone, PartialEq)]
pub enum RewardValue {
    /// A finite number.
    Number(f64),
    /// Something else, kept as text so that the operator can see it (`"1.0"`, `NaN`, `true`).
    Unreadable(Arc<str>),
}

/// The rewards of a finished trial: `verifier_result.rewards` of `result.json`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Rewards {
    /// No verifier result at all, or `rewards: null`.
    #[default]
    None,
    /// A map, possibly empty, in the order of the file.
    Keys(Vec<(Arc<str>, RewardValue)>),
}

impl Rewards {
    /// The primary reward: the key `reward`, else the only key. None when there is no such key or
    /// it is not a number.
    pub fn primary(&self) -> Option<f64> {
        match self.primary_entry() {
            Some((_, RewardValue::Number(n))) => Some(*n),
            _ => None,
        }
    }

    /// The primary entry with its key, readable or not.
    pub fn primary_entry(&self) -> Option<(&Arc<str>, &RewardValue)> {
        let Rewards::Keys(keys) = self else { return None };
        let named = keys.iter().find(|(key, _)| &**key == "reward");
        let entry = match (named, keys.as_slice()) {
            (Some(entry), _) => entry,
            (None, [only]) => only,
            _ => return None,
        };
        Some((&entry.0, &entry.1))
    }

    /// All entries, empty where there are none.
    pub fn entries(&self) -> &[(Arc<str>, RewardValue)] {
        match self {
            Rewards::None => &[],
            Rewards::Keys(keys) => keys,
        }
    }
}

/// The reward axis alone, for counting and for glyphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Grade {
    /// Primary reward is exactly 1.
    Passed,
    /// Primary reward lies strictly between 0 and 1.
    Partial,
    /// Primary reward is 0, negative or above 1 (out of the range that the field uses).
    Failed,
    /// No primary reward that is a number.
    NoReward,
}

impl Grade {
    /// The grade of a primary reward.
    pub fn of(reward: Option<f64>) -> Grade {
        match reward {
            None => Grade::NoReward,
            Some(1.0) => Grade::Passed,
            Some(r) if r > 0.0 && r < 1.0 => Grade::Partial,
            Some(_) => Grade::Failed,
        }
    }

    /// The word on the screen and in filters.
    pub fn word(self) -> &'static str {
        match self {
            Grade::Passed => "passed",
            Grade::Partial => "partial",
            Grade::Failed => "failed",
            Grade::NoReward => "no reward",
        }
    }
}

/// The exception axis: what Harbor recorded first.
#[derive(Debug, Clone, PartialEq)]
pub struct Exception {
    /// Bare class name, for example `AgentTimeoutError`.
    pub kind: Arc<str>,
    /// First 400 characters of the message, secrets masked.
    pub message: Arc<str>,
}

/// Whether an exception type says that the agent ran into its time limit: Harbor's, or the failure mode of
/// classic terminal-bench.
pub fn is_agent_timeout(kind: &str) -> bool {
    matches!(kind, "AgentTimeoutError" | "agent_timeout")
}

/// The same of the verifier.
pub fn is_verifier_timeout(kind: &str) -> bool {
    matches!(kind, "VerifierTimeoutError" | "test_timeout")
}

/// The exception type that Harbor records for a trial that was stopped.
pub const CANCELLED: &str = "CancelledError";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_is_reward_or_the_only_key() {
        let keys = |list: &[(&str, f64)]| {
            Rewards::Keys(list.iter().map(|(k, v)| (Arc::from(*k), RewardValue::Number(*v))).collect())
        };
        assert_eq!(keys(&[("a", 0.2), ("reward", 1.0)]).primary(), Some(1.0));
        assert_eq!(keys(&[("only", 0.5)]).primary(), Some(0.5));
        assert_eq!(keys(&[("a", 0.5), ("b", 1.0)]).primary(), None);
        assert_eq!(Rewards::None.primary(), None);
        assert_eq!(Grade::of(Some(1e308)), Grade::Failed);
        assert_eq!(Grade::of(Some(0.3)), Grade::Partial);
    }
}
