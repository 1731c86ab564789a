//! What `result.json` says beyond the summary: read when one trial is looked at.

use super::early::reward_value;
use super::json::{self, Entries, FileProblem, List, Object, Scalar, object};
use crate::job::{RewardValue, Span, Stamp, time};

/// Characters kept of an exception's message.
const MESSAGE_CHARS: usize = 64 * 1024;
/// Characters kept of a traceback.
const TRACEBACK_CHARS: usize = 512 * 1024;

object!(RawSpan<'a> {
    started_at: Scalar<'a> = "started_at",
    finished_at: Scalar<'a> = "finished_at",
});

object!(RawMetadata<'a> {
    api_request_times_msec: List<Scalar<'a>, 100_000> = "api_request_times_msec",
    summarization_count: Scalar<'a> = "summarization_count",
    n_episodes: Scalar<'a> = "n_episodes",
});

object!(RawAgentResult<'a> {
    metadata: Object<'a, RawMetadata<'a>> = "metadata",
});

object!(RawVerifierResult<'a> {
    rewards: Object<'a, Entries<'a, Scalar<'a>>> = "rewards",
});

object!(RawException<'a> {
    exception_type: Scalar<'a> = "exception_type",
    exception_message: Scalar<'a> = "exception_message",
    exception_traceback: Scalar<'a> = "exception_traceback",
    occurred_at: Scalar<'a> = "occurred_at",
});

object!(RawModel<'a> {
    name: Scalar<'a> = "name",
    provider: Scalar<'a> = "provider",
});

object!(RawAgentInfo<'a> {
    name: Scalar<'a> = "name",
    version: Scalar<'a> = "version",
    model_info: Object<'a, RawModel<'a>> = "model_info",
});

object!(RawStep<'a> {
    step_name: Scalar<'a> = "step_name",
    agent_result: Object<'a, RawAgentResult<'a>> = "agent_result",
    verifier_result: Object<'a, RawVerifierResult<'a>> = "verifier_result",
    exception_info: Object<'a, RawException<'a>> = "exception_info",
    agent_execution: Object<'a, RawSpan<'a>> = "agent_execution",
    verifier: Object<'a, RawSpan<'a>> = "verifier",
});

object!(RawTaskId<'a> {
    path: Scalar<'a> = "path",
    git_url: Scalar<'a> = "git_url",
    git_commit_id: Scalar<'a> = "git_commit_id",
    org: Scalar<'a> = "org",
    name: Scalar<'a> = "name",
    reference: Scalar<'a> = "ref",
});

object!(RawTrial<'a> {
    id: Scalar<'a> = "id",
    task_name: Scalar<'a> = "task_name",
    trial_uri: Scalar<'a> = "trial_uri",
    task_id: Object<'a, RawTaskId<'a>> = "task_id",
    source: Scalar<'a> = "source",
    task_checksum: Scalar<'a> = "task_checksum",
    agent_info: Object<'a, RawAgentInfo<'a>> = "agent_info",
    agent_result: Object<'a, RawAgentResult<'a>> = "agent_result",
    verifier_environment_mode: Scalar<'a> = "verifier_environment_mode",
    exception_info: Object<'a, RawException<'a>> = "exception_info",
    step_results: List<Object<'a, RawStep<'a>>, 4096> = "step_results",
});

/// An exception with all that was written down of it. Texts are as in the file: mask and clean them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FullException {
    /// Bare class name.
    pub kind: String,
    /// Message; at most 64 Ki characters.
    pub message: String,
    /// Traceback; at most its last 512 Ki characters.
    pub traceback: String,
    /// When it occurred.
    pub at: Option<Stamp>,
}

/// The model calls of one agent run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calls {
    /// Milliseconds of each successful call, in order.
    pub millis: Vec<f64>,
    /// How often the context was summarised; those calls are among the others.
    pub summaries: Option<u32>,
}

/// One step of a multi-step trial.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepParticulars {
    /// Name.
    pub name: String,
    /// When its agent ran.
    pub agent: Span,
    /// When its verifier ran.
    pub verifier: Span,
    /// Its rewards, None where there is no verifier result.
    pub rewards: Option<Vec<(String, RewardValue)>>,
    /// Its exception.
    pub exception: Option<FullException>,
    /// Its model calls.
    pub calls: Calls,
}

/// What one trial's result says beyond [`super::trial_result`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Particulars {
    /// Facts by name, in words, in the order to be shown: result id, agent, model, task, source.
    pub identity: Vec<(&'static str, String)>,
    /// Exception of the trial.
    pub exception: Option<FullException>,
    /// Model calls of a single-step trial.
    pub calls: Calls,
    /// Steps of a multi-step trial.
    pub steps: Vec<StepParticulars>,
}

/// Reads them.
///
/// # Errors
/// See [`FileProblem`]; `Foreign` for anything but an object.
pub fn particulars(bytes: &[u8]) -> Result<Particulars, FileProblem> {
    let (read, _) =
        json::lenient(bytes, |body| json::document::<Object<'_, RawTrial<'_>>>(body).map(|root| root.get().map(read)))?;
    read.ok_or_else(|| FileProblem::foreign("not a trial's result: no object"))
}

fn span(raw: &Object<'_, RawSpan<'_>>) -> Span {
    let at = |value: &Scalar<'_>| value.str().and_then(time::parse).map(|read| read.at);
    raw.get().map_or(Span::default(), |s| Span { started: at(&s.started_at), finished: at(&s.finished_at) })
}

fn calls(raw: &Object<'_, RawAgentResult<'_>>) -> Calls {
    let Some(metadata) = raw.get().and_then(|a| a.metadata.get()) else { return Calls::default() };
    let list = &metadata.api_request_times_msec;
    let millis: Vec<f64> = list.items.iter().filter_map(Scalar::f64).filter(|m| *m >= 0.0).collect();
    // One that is no number would shift all that come after it.
    let millis = if millis.len() == list.count { millis } else { Vec::new() };
    Calls { millis, summaries: metadata.summarization_count.u32() }
}

fn exception(raw: &Object<'_, RawException<'_>>) -> Option<FullException> {
    let raw = raw.get()?;
    let traceback = raw.exception_traceback.str().unwrap_or_default();
    let skip = traceback.chars().count().saturating_sub(TRACEBACK_CHARS);
    Some(FullException {
        kind: raw.exception_type.text().unwrap_or("no type given").to_string(),
        message: raw.exception_message.str().unwrap_or_default().chars().take(MESSAGE_CHARS).collect(),
        traceback: traceback.chars().skip(skip).collect(),
        at: raw.occurred_at.str().and_then(time::parse).map(|read| read.at),
    })
}

fn read(raw: &RawTrial<'_>) -> Particulars {
    let mut identity = Vec::new();
    let mut add = |name: &'static str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.trim().is_empty()) {
            identity.push((name, value));
        }
    };
    let text = |s: &Scalar<'_>| s.text().map(str::to_string);
    if let Some(agent) = raw.agent_info.get() {
        let parts: Vec<String> = [&agent.name, &agent.version].into_iter().filter_map(text).collect();
        add("agent", Some(parts.join(" ")));
        if let Some(model) = agent.model_info.get() {
            let parts: Vec<String> = [&model.provider, &model.name].into_iter().filter_map(text).collect();
            add("model", Some(parts.join("/")));
        }
    }
    add("result id", text(&raw.id));
    add("task", text(&raw.task_name));
    if let Some(id) = raw.task_id.get() {
        let parts = [&id.git_url, &id.git_commit_id, &id.org, &id.name, &id.reference, &id.path];
        let parts: Vec<String> = parts.into_iter().filter_map(text).collect();
        add("task from", Some(parts.join(" ")));
    }
    add("dataset", text(&raw.source));
    add("task checksum", text(&raw.task_checksum));
    add("verifier environment", text(&raw.verifier_environment_mode));
    add("written as", text(&raw.trial_uri));
    let steps = raw.step_results.items.iter().filter_map(Object::get).map(|s| StepParticulars {
        name: s.step_name.text().unwrap_or("no name").to_string(),
        agent: span(&s.agent_execution),
        verifier: span(&s.verifier),
        rewards: s.verifier_result.get().and_then(|v| v.rewards.get()).map(|entries| {
            let value = |v| reward_value(v).unwrap_or(RewardValue::Unreadable("null".into()));
            entries.0.iter().map(|(k, v)| (k.to_string(), value(v))).collect()
        }),
        exception: exception(&s.exception_info),
        calls: calls(&s.agent_result),
    });
    Particulars {
        identity,
        exception: exception(&raw.exception_info),
        calls: calls(&raw.agent_result),
        steps: steps.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_summary_leaves_out_is_read() {
        let json = br#"{"task_name":"org/t","id":"i1","agent_info":{"name":"a","version":"2","model_info":{"name":"m","provider":"p"}},
            "agent_result":{"rollout_details":[[1,2]],"metadata":{"api_request_times_msec":[10.5,20],"summarization_count":0}},
            "exception_info":{"exception_type":"E","exception_message":"m","exception_traceback":"t"},
            "step_results":[{"step_name":"one","verifier_result":{"rewards":{"reward":1}},
              "agent_execution":{"started_at":"2026-01-01T00:00:00Z","finished_at":null}}, 7]}"#;
        let p = particulars(json).unwrap_or_default();
        assert_eq!(p.identity.first(), Some(&("agent", "a 2".to_string())));
        assert_eq!(p.calls.millis, vec![10.5, 20.0]);
        assert_eq!(p.exception.map(|e| e.traceback), Some("t".to_string()));
        assert_eq!(p.steps.len(), 1);
        assert!(p.steps.iter().all(|s| s.agent.started.is_some() && s.rewards.is_some()));
    }

    #[test]
    fn wrong_kinds_cost_nothing_but_themselves() {
        let p = particulars(br#"{"id":5,"step_results":"x","exception_info":[],"agent_result":{"metadata":{"api_request_times_msec":[1,"x"]}}}"#);
        assert_eq!(p, Ok(Particulars::default()));
        assert!(particulars(b"[]").is_err() && particulars(b"{\"id\"").is_err_and(|p| p.may_heal()));
    }
}
