//! Which failures are tried again, by version of Harbor, as data.
//!
//! 0.21 keeps a list of types that are never retried. 0.26 derives that list from a table of policies
//! ([`crate::job::policy`]) which also says whether the verifier still runs and whether the reward counts.

use super::types::RetryConfig;
use crate::job::policy::{ErrorPolicy, not_retried};

/// The versions of Harbor whose rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum HarborVersion {
    /// 0.21 and what came before.
    V0_21,
    /// 0.26 and, until something else is known, later.
    #[default]
    V0_26,
}

/// What 0.21 does not retry unless it is told to.
const EXCLUDED_0_21: [&str; 9] = [
    "AgentAuthenticationError",
    "AgentSafetyRefusalError",
    "AgentTimeoutError",
    "ApiUsageLimitError",
    "ModelNotFoundError",
    "RewardFileEmptyError",
    "RewardFileNotFoundError",
    "VerifierOutputParseError",
    "VerifierTimeoutError",
];

/// After these (they and their sub-classes) 0.21 still runs the verifier; after nothing else.
const GRADED_0_21: [&str; 18] = [
    "AgentAuthenticationError",
    "AgentSafetyRefusalError",
    "AgentTimeoutError",
    "ApiConnectionClosedError",
    "ApiConnectionError",
    "ApiError",
    "ApiInternalServerError",
    "ApiOverloadedError",
    "ApiProviderResourceNotFoundError",
    "ApiRateLimitError",
    "ApiResponseStalledError",
    "ApiUsageLimitError",
    "ContextWindowExceededError",
    "ModelNotFoundError",
    "NetworkConnectionError",
    "NonZeroAgentExitCodeError",
    "OutputTokenExceededError",
    "UnknownApiError",
];

/// How a version treats an exception type; the bare class name counts.
pub fn policy(version: HarborVersion, exception_type: &str) -> ErrorPolicy {
    match version {
        HarborVersion::V0_21 => ErrorPolicy::new(
            !EXCLUDED_0_21.contains(&exception_type),
            GRADED_0_21.contains(&exception_type),
            // 0.21 counts every reward that there is.
            true,
        ),
        HarborVersion::V0_26 => ErrorPolicy::of(exception_type),
    }
}

/// The types that a version never retries by default, sorted.
pub fn default_excludes(version: HarborVersion) -> Vec<String> {
    match version {
        HarborVersion::V0_21 => EXCLUDED_0_21.map(str::to_string).to_vec(),
        HarborVersion::V0_26 => not_retried(),
    }
}

/// Whether a trial with these exceptions (the trial's own and those of its steps) is retried when a
/// config says nothing about it. No exception, no retry.
pub fn retryable<S: AsRef<str>>(version: HarborVersion, exception_types: &[S]) -> bool {
    RetryConfig::of(version).retryable(version, exception_types)
}

impl RetryConfig {
    /// Whether a trial with these exceptions (its own first, then those of its steps) is retried.
    /// 0.21 looks at the trial's own only; since 0.26 every one must be retryable. `max_retries` is not
    /// looked at.
    pub fn retryable<S: AsRef<str>>(&self, version: HarborVersion, exception_types: &[S]) -> bool {
        let among =
            |list: &Option<Vec<String>>, name: &str| list.as_deref().unwrap_or_default().iter().any(|n| n == name);
        let looked_at = match version {
            HarborVersion::V0_21 => exception_types.get(..1).unwrap_or_default(),
            HarborVersion::V0_26 => exception_types,
        };
        let good = |name: &str| {
            let all = self.include_exceptions.as_deref().unwrap_or_default().is_empty();
            !among(&self.exclude_exceptions, name) && (all || among(&self.include_exceptions, name))
        };
        !looked_at.is_empty() && looked_at.iter().all(|name| good(name.as_ref()))
    }

    /// Seconds between the end of a failed attempt and the next; `attempt` counts from 0.
    pub fn wait_sec(&self, attempt: u32) -> f64 {
        let exponent = i32::try_from(attempt).unwrap_or(i32::MAX);
        let wait = self.min_wait_sec * self.wait_multiplier.powi(exponent);
        if wait.is_finite() { wait.min(self.max_wait_sec).max(0.0) } else { self.max_wait_sec }
    }
}
