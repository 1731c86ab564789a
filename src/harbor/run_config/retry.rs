//! Which failures are tried again, by version of Harbor, as data.
//!
//! 0.21 keeps a list of types that are never retried. 0.26 derives that list from a table of policies
//! which also says whether the verifier still runs and whether the reward counts.

use super::types::{ErrorPolicyOverride, RetryConfig};

/// The versions of Harbor whose rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum HarborVersion {
    /// 0.21 and what came before.
    V0_21,
    /// 0.26 and, until something else is known, later.
    #[default]
    V0_26,
}

/// How an exception type is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorPolicy {
    /// Tried again, unless the retry filters say no.
    pub should_retry: bool,
    /// The verifier still runs after it (when the agent raised it).
    pub should_grade: bool,
    /// A reward beside it counts.
    pub has_valid_reward: bool,
}

const fn policy_of(should_retry: bool, should_grade: bool, has_valid_reward: bool) -> ErrorPolicy {
    ErrorPolicy { should_retry, should_grade, has_valid_reward }
}

/// What the table of 0.26 does not name.
const UNLISTED: ErrorPolicy = policy_of(true, true, true);

/// The table of 0.26.
const POLICIES_0_26: [(ErrorPolicy, &[&str]); 5] = [
    (
        policy_of(true, false, false),
        &[
            "AddTestsDirError",
            "AgentSetupTimeoutError",
            "DownloadVerifierDirError",
            "EnvironmentStartTimeoutError",
            "GKEExecStreamClosedError",
            "GKEPodNotFoundError",
            "HealthcheckError",
            "MemoryLimitExceededError",
            "RuntimeRequestError",
            "SSHAccessError",
            "SandboxBuildFailedError",
            "SandboxLikelyOutOfMemoryError",
        ],
    ),
    (
        policy_of(true, true, false),
        &[
            "APIConnectionError",
            "APIError",
            "ApiConnectionClosedError",
            "ApiConnectionError",
            "ApiError",
            "ApiInternalServerError",
            "ApiOverloadedError",
            "ApiRateLimitError",
            "ApiResponseStalledError",
            "ApiUsageLimitError",
            "InternalServerError",
            "NetworkConnectionError",
            "RateLimitError",
            "ServiceUnavailableError",
            "Timeout",
            "UnknownApiError",
        ],
    ),
    (
        policy_of(false, true, false),
        &[
            "APIResponseValidationError",
            "BadRequestError",
            "BudgetExceededError",
            "RewardFileEmptyError",
            "RewardFileNotFoundError",
            "UnprocessableEntityError",
            "UnsupportedModelParametersError",
            "UnsupportedParamsError",
            "VerifierOutputParseError",
            "VerifierTimeoutError",
        ],
    ),
    (
        policy_of(false, false, false),
        &[
            "AgentAuthenticationError",
            "ApiProviderResourceNotFoundError",
            "AuthenticationError",
            "CancelledError",
            "DspyImportError",
            "MissingExtraError",
            "ModelNotFoundError",
            "NotFoundError",
            "PermissionDeniedError",
            "RegradeError",
            "ServiceOperationsUnsupportedError",
            "VercelScopeError",
        ],
    ),
    (
        policy_of(false, true, true),
        &[
            "AgentSafetyRefusalError",
            "AgentTimeoutError",
            "ContentPolicyViolationError",
            "ContextLengthExceededError",
            "ContextWindowExceededError",
            "NonZeroAgentExitCodeError",
            "OutputLengthExceededError",
            "OutputTokenExceededError",
        ],
    ),
];

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
        HarborVersion::V0_21 => policy_of(
            !EXCLUDED_0_21.contains(&exception_type),
            GRADED_0_21.contains(&exception_type),
            // 0.21 counts every reward that there is.
            true,
        ),
        HarborVersion::V0_26 => POLICIES_0_26
            .iter()
            .find(|(_, names)| names.contains(&exception_type))
            .map_or(UNLISTED, |(policy, _)| *policy),
    }
}

impl ErrorPolicy {
    /// With what a config says about it.
    pub fn with(self, over: &ErrorPolicyOverride) -> ErrorPolicy {
        ErrorPolicy {
            should_retry: over.should_retry.unwrap_or(self.should_retry),
            should_grade: over.should_grade.unwrap_or(self.should_grade),
            has_valid_reward: over.has_valid_reward.unwrap_or(self.has_valid_reward),
        }
    }
}

/// The types that a version never retries by default, sorted.
pub fn default_excludes(version: HarborVersion) -> Vec<String> {
    let mut names: Vec<String> = match version {
        HarborVersion::V0_21 => EXCLUDED_0_21.iter().map(|n| n.to_string()).collect(),
        HarborVersion::V0_26 => POLICIES_0_26
            .iter()
            .filter(|(policy, _)| !policy.should_retry)
            .flat_map(|(_, names)| names.iter().map(|n| n.to_string()))
            .collect(),
    };
    names.sort();
    names
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
