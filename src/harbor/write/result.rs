//! `result.json` of a trial as Harbor 0.26 writes it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::{Map, Number, Value};

use super::config::TrialConfig;
use super::scrub::Scrub;
use crate::job::Stamp;
use crate::job::policy::{ErrorPolicy, ErrorPolicyOverride, PolicyOverrides};

/// A time in UTC with microseconds: `2026-11-29T19:36:42.174422Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(pub Stamp);

impl Serialize for Utc {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
    }
}

/// Where a task came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum TaskId {
    Local {
        path: String,
    },
    Git {
        git_url: String,
        git_commit_id: Option<String>,
        path: String,
    },
    Package {
        org: String,
        name: String,
        #[serde(rename = "ref")]
        reference: Option<String>,
    },
}

/// The model an agent used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelInfo {
    /// Without the provider.
    pub name: String,
    /// None when the operator named none.
    pub provider: Option<String>,
}

impl ModelInfo {
    /// Takes `provider/name` apart.
    pub fn parse(model: &str) -> ModelInfo {
        match model.split_once('/') {
            Some((provider, name)) => ModelInfo { name: name.to_string(), provider: Some(provider.to_string()) },
            None => ModelInfo { name: model.to_string(), provider: None },
        }
    }
}

/// The agent of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentInfo {
    /// Its name.
    pub name: String,
    /// Its version, `unknown` where it has none.
    pub version: String,
    /// Its model.
    pub model_info: Option<ModelInfo>,
}

/// Tokens of one model.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct ModelUsage {
    pub n_input_tokens: u64,
    pub n_cache_tokens: u64,
    pub n_output_tokens: u64,
    pub cost_usd: Option<f64>,
}

/// What the agent reported. Unknown is None, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AgentResult {
    /// Prompt tokens, cached ones included.
    pub n_input_tokens: Option<u64>,
    /// Of those, from the cache.
    pub n_cache_tokens: Option<u64>,
    /// Completion tokens.
    pub n_output_tokens: Option<u64>,
    /// Cost in USD.
    pub cost_usd: Option<f64>,
    /// By model.
    pub model_usage: Option<BTreeMap<String, ModelUsage>>,
    /// Token ids and the like, as Harbor has them.
    pub rollout_details: Option<Vec<Value>>,
    /// `n_episodes` and whatever else the agent has to say.
    pub metadata: Option<Map<String, Value>>,
}

/// Rewards by key, with numbers as the verifier wrote them (`1` stays `1`), in its order.
pub type RewardMap = Vec<(String, Number)>;

/// What the verifier found.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct VerifierResult {
    /// None where it gave nothing that could be read.
    #[serde(serialize_with = "maybe_map")]
    pub rewards: Option<RewardMap>,
}

fn maybe_map<S: Serializer>(rewards: &Option<RewardMap>, to: S) -> Result<S::Ok, S::Error> {
    match rewards {
        Some(list) => to.collect_map(list.iter().map(|(k, v)| (k, v))),
        None => to.serialize_none(),
    }
}

/// An exception; the first of a trial or step is the one that is kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExceptionInfo {
    /// Bare class name, Harbor's where it has one.
    pub exception_type: String,
    /// What happened.
    pub exception_message: String,
    /// Where it happened.
    pub exception_traceback: String,
    /// When.
    pub occurred_at: Utc,
    /// The job's own rule for this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_override: Option<ErrorPolicyOverride>,
    /// What follows from it.
    pub policy: ErrorPolicy,
}

impl ExceptionInfo {
    /// An exception, its texts without secrets, its policy by the table and the job's own rules.
    pub fn new(
        kind: &str,
        message: &str,
        traceback: &str,
        at: Stamp,
        overrides: &PolicyOverrides,
        scrub: &Scrub,
    ) -> ExceptionInfo {
        ExceptionInfo {
            exception_type: kind.to_string(),
            exception_message: scrub.text(message),
            exception_traceback: scrub.text(traceback),
            occurred_at: Utc(at),
            policy_override: overrides.get(kind).copied(),
            policy: ErrorPolicy::under(kind, overrides),
        }
    }
}

/// When a phase ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs)]
pub struct Timing {
    pub started_at: Option<Utc>,
    pub finished_at: Option<Utc>,
}

/// One step of a multi-step trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct StepResult {
    pub step_name: String,
    pub agent_result: Option<AgentResult>,
    pub verifier_result: Option<VerifierResult>,
    pub exception_info: Option<ExceptionInfo>,
    pub agent_execution: Option<Timing>,
    pub verifier: Option<Timing>,
}

/// A finished trial, without what is computed from it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialResult {
    /// A UUID of its own; a retry has another.
    pub id: String,
    /// The task's own name, may be `org/name`.
    pub task_name: String,
    /// Name of its directory.
    pub trial_name: String,
    /// See [`file_uri`].
    pub trial_uri: String,
    /// Where the task came from.
    pub task_id: TaskId,
    /// Label of the dataset.
    pub source: Option<String>,
    /// Hexadecimal.
    pub task_checksum: String,
    /// As in its `config.json`.
    pub config: TrialConfig,
    /// Its agent.
    pub agent_info: AgentInfo,
    /// None when the agent never began, and for a multi-step trial.
    pub agent_result: Option<AgentResult>,
    /// None when the verifier gave no result.
    pub verifier_result: Option<VerifierResult>,
    /// `shared` or `separate`; None for a multi-step trial.
    pub verifier_environment_mode: Option<String>,
    /// The first exception.
    pub exception_info: Option<ExceptionInfo>,
    /// Begin.
    pub started_at: Option<Utc>,
    /// End, teardown included.
    pub finished_at: Option<Utc>,
    /// None when the phase never began; so the three that follow.
    pub environment_setup: Option<Timing>,
    /// Agent installation, terminal start.
    pub agent_setup: Option<Timing>,
    /// The agent at work.
    pub agent_execution: Option<Timing>,
    /// The verifier at work.
    pub verifier: Option<Timing>,
    /// Only for a multi-step trial.
    pub step_results: Option<Vec<StepResult>>,
}

impl TrialResult {
    /// The trial's exception and then those of its steps.
    pub fn exceptions(&self) -> impl Iterator<Item = &ExceptionInfo> {
        let steps = self.step_results.iter().flatten().filter_map(|step| step.exception_info.as_ref());
        self.exception_info.iter().chain(steps)
    }

    /// The rewards, where there are any.
    pub fn rewards(&self) -> Option<&RewardMap> {
        self.verifier_result.as_ref().and_then(|v| v.rewards.as_ref())
    }

    /// Whether the reward counts: there is one, and every exception lets it.
    pub fn reward_valid(&self) -> bool {
        self.rewards().is_some_and(|r| !r.is_empty()) && self.exceptions().all(|e| e.policy.has_valid_reward)
    }

    /// What the agent reported: once for the trial, or once for each step.
    pub fn agent_results(&self) -> impl Iterator<Item = &AgentResult> {
        let steps = self.step_results.iter().flatten().filter_map(|step| step.agent_result.as_ref());
        let steps = steps.filter(|_| self.agent_result.is_none());
        self.agent_result.iter().chain(steps)
    }

    /// The document that goes into `result.json`.
    pub fn document(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Document<'a> {
            schema_version: u32,
            #[serde(flatten)]
            result: &'a TrialResult,
            reward_valid: bool,
        }
        Document { schema_version: 1, result: self, reward_valid: self.reward_valid() }
    }
}

/// `file://` and the path, with everything but plain characters written as `%xx`.
pub fn file_uri(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut out = "file://".to_string();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => out.push(char::from(*byte)),
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}
