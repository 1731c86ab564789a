//! What an exception means for a trial, by its type: Harbor 0.26's error policy.
//!
//! The table is Harbor's own (its `exception_info.policy` says the same); a job's
//! `override_error_policy` changes it type by type.

use std::collections::BTreeMap;

use serde::Serialize;

/// What Harbor does about an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Whether the trial may be tried again.
    pub should_retry: bool,
    /// Whether the verifier still runs when the agent raised it.
    pub should_grade: bool,
    /// Whether a reward of the trial counts.
    pub has_valid_reward: bool,
}

/// A job's own rule for one exception type; what is None stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PolicyOverride {
    /// In place of [`Policy::should_retry`].
    pub should_retry: Option<bool>,
    /// In place of [`Policy::should_grade`].
    pub should_grade: Option<bool>,
    /// In place of [`Policy::has_valid_reward`].
    pub has_valid_reward: Option<bool>,
}

/// Rules of a job by exception type: `override_error_policy`.
pub type PolicyOverrides = BTreeMap<String, PolicyOverride>;

/// (should_retry, should_grade, has_valid_reward) and the types for which it holds.
type Group = ((bool, bool, bool), &'static [&'static str]);

const TABLE: &[Group] = &[
    (
        (true, false, false),
        &[
            "EnvironmentStartTimeoutError",
            "SandboxBuildFailedError",
            "AgentSetupTimeoutError",
            "HealthcheckError",
            "SandboxLikelyOutOfMemoryError",
            "MemoryLimitExceededError",
            "SSHAccessError",
            "GKEExecStreamClosedError",
            "GKEPodNotFoundError",
            "RuntimeRequestError",
            "AddTestsDirError",
            "DownloadVerifierDirError",
        ],
    ),
    (
        (true, true, false),
        &[
            "ApiError",
            "ApiRateLimitError",
            "ApiInternalServerError",
            "ApiOverloadedError",
            "ApiConnectionClosedError",
            "ApiResponseStalledError",
            "UnknownApiError",
            "NetworkConnectionError",
            "ApiConnectionError",
            "ApiUsageLimitError",
            "RateLimitError",
            "InternalServerError",
            "ServiceUnavailableError",
            "APIConnectionError",
            "APIError",
            "Timeout",
        ],
    ),
    (
        (false, true, false),
        &[
            "UnsupportedModelParametersError",
            "BadRequestError",
            "UnprocessableEntityError",
            "UnsupportedParamsError",
            "APIResponseValidationError",
            "BudgetExceededError",
            "VerifierTimeoutError",
            "RewardFileNotFoundError",
            "RewardFileEmptyError",
            "VerifierOutputParseError",
        ],
    ),
    (
        (false, false, false),
        &[
            "AgentAuthenticationError",
            "ModelNotFoundError",
            "ApiProviderResourceNotFoundError",
            "AuthenticationError",
            "PermissionDeniedError",
            "NotFoundError",
            "ServiceOperationsUnsupportedError",
            "VercelScopeError",
            "DspyImportError",
            "MissingExtraError",
            "RegradeError",
            "CancelledError",
        ],
    ),
    (
        (false, true, true),
        &[
            "NonZeroAgentExitCodeError",
            "AgentTimeoutError",
            "ContextWindowExceededError",
            "OutputTokenExceededError",
            "ContextLengthExceededError",
            "OutputLengthExceededError",
            "AgentSafetyRefusalError",
            "ContentPolicyViolationError",
        ],
    ),
];

/// The policy for an exception type; types that the table does not name may be retried, are graded
/// and keep their reward.
pub fn policy(kind: &str, overrides: &PolicyOverrides) -> Policy {
    let found = TABLE.iter().find(|(_, kinds)| kinds.contains(&kind)).map_or((true, true, true), |(p, _)| *p);
    let own = overrides.get(kind).copied().unwrap_or_default();
    Policy {
        should_retry: own.should_retry.unwrap_or(found.0),
        should_grade: own.should_grade.unwrap_or(found.1),
        has_valid_reward: own.has_valid_reward.unwrap_or(found.2),
    }
}

/// The types that are not retried unless a job says so, sorted: Harbor 0.26's default for
/// `retry.exclude_exceptions`.
pub fn not_retried() -> Vec<String> {
    let kinds = TABLE.iter().filter(|(p, _)| !p.0).flat_map(|(_, kinds)| kinds.iter());
    let mut out: Vec<String> = kinds.map(|k| (*k).to_string()).collect();
    out.sort();
    out
}
