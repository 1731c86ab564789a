//! What an exception means for a trial, by its type: Harbor 0.26's error policy.
//!
//! The table is Harbor's own (the `exception_info.policy` of a result says the same); a job's
//! `override_error_policy` changes it type by type.

use std::collections::BTreeMap;

use serde::Serialize;

/// What Harbor does about an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ErrorPolicy {
    /// The trial may be tried again, unless the retry filters say no.
    pub should_retry: bool,
    /// The verifier still runs after it (when the agent raised it).
    pub should_grade: bool,
    /// A reward beside it counts.
    pub has_valid_reward: bool,
}

/// A job's own rule for one exception type; what is None stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ErrorPolicyOverride {
    /// In place of [`ErrorPolicy::should_retry`].
    pub should_retry: Option<bool>,
    /// In place of [`ErrorPolicy::should_grade`].
    pub should_grade: Option<bool>,
    /// In place of [`ErrorPolicy::has_valid_reward`].
    pub has_valid_reward: Option<bool>,
}

/// Rules of a job by exception type: `override_error_policy`.
pub type PolicyOverrides = BTreeMap<String, ErrorPolicyOverride>;

impl ErrorPolicy {
    /// All three.
    pub const fn new(should_retry: bool, should_grade: bool, has_valid_reward: bool) -> ErrorPolicy {
        ErrorPolicy { should_retry, should_grade, has_valid_reward }
    }

    /// By the table, for a bare class name. A type that it does not name may be retried, is graded and
    /// keeps its reward.
    pub fn of(kind: &str) -> ErrorPolicy {
        let found = TABLE.iter().find(|(_, kinds)| kinds.contains(&kind));
        found.map_or(ErrorPolicy::new(true, true, true), |(policy, _)| *policy)
    }

    /// By the table and a job's own rules.
    pub fn under(kind: &str, overrides: &PolicyOverrides) -> ErrorPolicy {
        ErrorPolicy::of(kind).with(&overrides.get(kind).copied().unwrap_or_default())
    }

    /// Changed by a rule of one's own.
    pub fn with(self, own: &ErrorPolicyOverride) -> ErrorPolicy {
        ErrorPolicy {
            should_retry: own.should_retry.unwrap_or(self.should_retry),
            should_grade: own.should_grade.unwrap_or(self.should_grade),
            has_valid_reward: own.has_valid_reward.unwrap_or(self.has_valid_reward),
        }
    }
}

/// The types that are not retried unless a job says so, sorted: the default of
/// `retry.exclude_exceptions`.
pub fn not_retried() -> Vec<String> {
    let kinds = TABLE.iter().filter(|(policy, _)| !policy.should_retry).flat_map(|(_, kinds)| kinds.iter());
    let mut out: Vec<String> = kinds.map(|k| (*k).to_string()).collect();
    out.sort();
    out
}

const TABLE: [(ErrorPolicy, &[&str]); 5] = [
    (
        ErrorPolicy::new(true, false, false),
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
        ErrorPolicy::new(true, true, false),
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
        ErrorPolicy::new(false, true, false),
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
        ErrorPolicy::new(false, false, false),
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
        ErrorPolicy::new(false, true, true),
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
