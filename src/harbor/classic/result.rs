//! A trial's `results.json` of both generations, and the run's aggregate of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::json::{self, Entries, FileProblem, List, Object, Scalar, object};
use super::super::particulars::{FullException, Particulars};
use super::trial_name;
use crate::job::text::{clean, mask_secrets};
use crate::job::{Exception, RewardValue, Rewards, Span, Spans, Stamp, TestCounts, Tokens, TrialResult, time};

/// Trials of an aggregate that are kept; no real run comes near it.
const TRIALS: usize = 100_000;
/// Characters of an exception's message in the summary.
const MESSAGE: usize = 400;
/// Characters of a failure mode, which is shown as it stands.
const MODE: usize = 120;
/// The key under which the only truth about a trial stands, and its name among the rewards.
pub const TRUTH: &str = "is_resolved";

object!(RawTrial<'a> {
    id: Scalar<'a> = "id",
    uuid: Scalar<'a> = "uuid",
    trial_name: Scalar<'a> = "trial_name",
    task_id: Scalar<'a> = "task_id",
    instruction: Scalar<'a> = "instruction",
    is_resolved: Scalar<'a> = "is_resolved",
    failure_mode: Scalar<'a> = "failure_mode",
    error_type: Scalar<'a> = "error_type",
    error_message: Scalar<'a> = "error_message",
    parser_results: Object<'a, Entries<'a, Scalar<'a>>> = "parser_results",
    recording_path: Scalar<'a> = "recording_path",
    input: Scalar<'a> = "total_input_tokens",
    output: Scalar<'a> = "total_output_tokens",
    episodes: Scalar<'a> = "trajectory_length",
    trial_started_at: Scalar<'a> = "trial_started_at",
    trial_ended_at: Scalar<'a> = "trial_ended_at",
    agent_started_at: Scalar<'a> = "agent_started_at",
    agent_ended_at: Scalar<'a> = "agent_ended_at",
    test_started_at: Scalar<'a> = "test_started_at",
    test_ended_at: Scalar<'a> = "test_ended_at",
});

object!(RawAggregate<'a> {
    id: Scalar<'a> = "id",
    results: List<Object<'a, RawTrial<'a>>, TRIALS> = "results",
    accuracy: Scalar<'a> = "accuracy",
    pass_at_k: Object<'a, Entries<'a, Scalar<'a>>> = "pass_at_k",
});

/// What a file says of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialFile {
    /// `trial_name`: the name of the trial's directory.
    pub name: Option<Arc<str>>,
    /// `task_id`, else the task in the name.
    pub task: Arc<str>,
    /// The outcome. Its exception is the failure mode, word for word; [`TRUTH`] is its only reward.
    pub result: TrialResult,
    /// Fields that were not what they should be, in words; they count as unknown.
    pub notes: Vec<String>,
}

/// A run's aggregate.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Aggregate {
    /// Its own id; older ones have none.
    pub id: Option<Arc<str>>,
    /// Its trials, in order.
    pub trials: Vec<TrialFile>,
    /// Trials in the file, kept or not.
    pub count: usize,
    /// Resolved trials / trials, as it states it.
    pub accuracy: Option<f64>,
    /// pass@k as it states it, by k.
    pub pass_at_k: BTreeMap<u32, f64>,
    /// What was wrong with the file or entries of it, in words.
    pub notes: Vec<String>,
}

/// Reads a trial's `results.json`.
///
/// # Errors
/// See [`FileProblem`]. `Foreign` for anything but an object with a `task_id` or `trial_name` and a
/// failure mode or a verdict.
pub fn trial_result(bytes: &[u8]) -> Result<TrialFile, FileProblem> {
    let (file, notes) = json::lenient(bytes, |body| {
        json::document::<Object<'_, RawTrial<'_>>>(body).map(|root| root.get().and_then(read))
    })?;
    let mut file = file.ok_or_else(|| FileProblem::foreign("not a trial's results.json of terminal-bench"))?;
    file.notes.extend(notes);
    Ok(file)
}

/// Reads a run's aggregate `results.json`.
///
/// # Errors
/// See [`FileProblem`]. `Foreign` for anything but an object with a list `results`.
pub fn aggregate(bytes: &[u8]) -> Result<Aggregate, FileProblem> {
    let (read, notes) = json::lenient(bytes, |body| {
        json::document::<Object<'_, RawAggregate<'_>>>(body).map(|root| root.get().and_then(whole))
    })?;
    let mut read = read.ok_or_else(|| FileProblem::foreign("not a run's results.json: no list of results"))?;
    read.notes.extend(notes);
    Ok(read)
}

fn whole(raw: &RawAggregate<'_>) -> Option<Aggregate> {
    if !raw.results.present {
        return None;
    }
    let trials: Vec<TrialFile> = raw.results.items.iter().filter_map(|item| item.get().and_then(read)).collect();
    let mut notes = Vec::new();
    if trials.len() < raw.results.count {
        notes.push(format!("{} of {} results are no trials", raw.results.count - trials.len(), raw.results.count));
    }
    let rates = raw.pass_at_k.get().map(|e| e.0.as_slice()).unwrap_or_default();
    Some(Aggregate {
        id: word(&raw.id),
        count: raw.results.count,
        trials,
        accuracy: raw.accuracy.f64(),
        pass_at_k: rates.iter().filter_map(|(k, v)| Some((k.parse().ok()?, v.f64()?))).collect(),
        notes,
    })
}

/// One line of text that says something.
pub(super) fn word(value: &Scalar<'_>) -> Option<Arc<str>> {
    value.text().map(|text| Arc::from(&*clean(text)))
}

/// What a failure mode is called when it is none.
fn is_no_failure(mode: &str) -> bool {
    matches!(mode, "unset" | "none" | "unsolved" | "")
}

/// What a failure mode means, for those whose word does not say it.
fn meaning(mode: &str) -> &'static str {
    match mode {
        "agent_timeout" => "the agent ran into its time limit; the tests ran all the same",
        "test_timeout" => "the tests ran into their time limit",
        "parse_error" => "no summary of tests in what they printed",
        "unknown_agent_error" => "the harness or the agent threw; run.log may tell",
        "fatal_llm_parse_error" => "the model's replies could not be parsed, and the retries were used up",
        "context_length_exceeded" => "the model's context was full, and the retries were used up",
        "output_length_exceeded" => "the model's reply was too long, and the retries were used up",
        "agent_installation_failed" => "the agent could not be installed in the container",
        "token_limit_exceeded" => "the trial's budget of input tokens, summed over all calls, was used up",
        _ => "",
    }
}

fn exception(raw: &RawTrial<'_>) -> Option<Exception> {
    let mode = raw.failure_mode.text().map(str::trim).filter(|mode| !is_no_failure(mode));
    let said: Vec<&str> = [&raw.error_type, &raw.error_message].into_iter().filter_map(Scalar::text).collect();
    let kind = match (mode, raw.error_type.text()) {
        (Some(mode), _) => mode,
        (None, Some(kind)) => kind,
        (None, None) => return None,
    };
    let message = if said.is_empty() { meaning(kind).to_string() } else { said.join(": ") };
    Some(Exception {
        kind: clean(kind).chars().take(MODE).collect::<String>().into(),
        message: mask_secrets(&message).chars().take(MESSAGE).collect::<String>().into(),
    })
}

fn read(raw: &RawTrial<'_>) -> Option<TrialFile> {
    let name = raw.trial_name.text().map(Arc::<str>::from);
    let parts = name.as_deref().and_then(trial_name);
    let task = raw.task_id.text().or(parts.map(|p| p.task));
    let says = !matches!(raw.is_resolved, Scalar::Absent) || raw.failure_mode.str().is_some();
    let task: Arc<str> = Arc::from(task.filter(|_| says)?);
    let mut notes = Vec::new();
    let rewards = match &raw.is_resolved {
        Scalar::Bool(solved) => Rewards::Keys(vec![(TRUTH.into(), RewardValue::Number(f64::from(u8::from(*solved))))]),
        other if other.is_none() => Rewards::None,
        other => Rewards::Keys(vec![(TRUTH.into(), RewardValue::Unreadable(other.shown().into()))]),
    };
    let mut time = |field: &str, value: &Scalar<'_>| -> Option<Stamp> {
        let read = value.str().and_then(time::parse);
        if read.is_none() && !value.is_none() {
            notes.push(format!("{field}: {} is not a time", value.shown()));
        }
        read.map(|read| read.at)
    };
    let (started, finished) =
        (time("trial_started_at", &raw.trial_started_at), time("trial_ended_at", &raw.trial_ended_at));
    let agent = Span {
        started: time("agent_started_at", &raw.agent_started_at),
        finished: time("agent_ended_at", &raw.agent_ended_at),
    };
    let verifier = Span {
        started: time("test_started_at", &raw.test_started_at),
        finished: time("test_ended_at", &raw.test_ended_at),
    };
    // The image is built in it, too.
    let environment_setup = Span { started, finished: agent.started };
    // 0 is what is written where nobody counted: by installed agents, and after a timeout.
    let tokens = |value: &Scalar<'_>| value.u64().filter(|n| *n > 0);
    let tests = raw.parser_results.get().map(|entries| TestCounts {
        passed: count(entries.0.iter().filter(|(_, v)| v.str() == Some("passed")).count()),
        of: count(entries.0.len()),
    });
    let result = TrialResult {
        id: word(&raw.id).or_else(|| word(&raw.uuid)),
        task_name: task.clone(),
        rewards,
        reward_valid: None,
        exception: exception(raw),
        step_exceptions: Vec::new(),
        tokens: Tokens { input: tokens(&raw.input), cache: None, output: tokens(&raw.output) },
        cost_usd: None,
        n_episodes: raw.episodes.u32(),
        started,
        finished,
        spans: Spans { environment_setup, agent_setup: Span::default(), agent, verifier },
        verifier_disabled: false,
        install_only: false,
        task_checksum: None,
        agent: None,
        tests,
    };
    Some(TrialFile { name, task, result, notes })
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What a trial's `results.json` says beyond its summary, as [`super::super::particulars()`].
///
/// # Errors
/// As [`trial_result`].
pub fn particulars(bytes: &[u8]) -> Result<Particulars, FileProblem> {
    let (read, _) =
        json::lenient(bytes, |body| json::document::<Object<'_, RawTrial<'_>>>(body).map(|root| root.get().map(told)))?;
    read.ok_or_else(|| FileProblem::foreign("not a trial's results.json: no object"))
}

fn told(raw: &RawTrial<'_>) -> Particulars {
    let mut identity = Vec::new();
    let mut add = |name: &'static str, value: Option<String>| {
        identity.extend(value.filter(|v| !v.trim().is_empty()).map(|v| (name, v)));
    };
    let text = |s: &Scalar<'_>| s.text().map(str::to_string);
    add("task", text(&raw.task_id));
    add("trial name", text(&raw.trial_name));
    add("result id", text(&raw.id).or_else(|| text(&raw.uuid)));
    add(TRUTH, Some(raw.is_resolved.shown()));
    add("failure mode", text(&raw.failure_mode));
    let tests: &[_] = raw.parser_results.get().map(|e| e.0.as_slice()).unwrap_or_default();
    if !tests.is_empty() {
        let passed = tests.iter().filter(|(_, v)| v.str() == Some("passed")).count();
        add("tests", Some(format!("{passed} of {} passed", tests.len())));
    }
    if raw.input.u64().is_some_and(|n| n > 0) || raw.output.u64().is_some_and(|n| n > 0) {
        add("tokens", Some("estimates of the harness's own tokenizer, no cache, no cost".to_string()));
    }
    add("recording", text(&raw.recording_path));
    let exception = exception(raw).map(|e| FullException {
        kind: e.kind.to_string(),
        message: match raw.error_message.text() {
            Some(whole) => whole.chars().take(64 * 1024).collect(),
            None => e.message.to_string(),
        },
        traceback: String::new(),
        at: None,
    });
    Particulars { identity, exception, ..Particulars::default() }
}

/// The tests of a trial, by name, as the harness's parser found them, in the order of the file.
///
/// # Errors
/// As [`trial_result`].
pub fn cases(bytes: &[u8]) -> Result<Vec<(String, String)>, FileProblem> {
    let (read, _) = json::lenient(bytes, |body| {
        json::document::<Object<'_, RawTrial<'_>>>(body).map(|root| {
            let entries = root.get().and_then(|raw| raw.parser_results.get());
            let words = |v: &Scalar<'_>| v.str().map_or_else(|| v.shown(), str::to_string);
            entries.map(|e| e.0.iter().map(|(k, v)| (k.to_string(), words(v))).collect()).unwrap_or_default()
        })
    })?;
    Ok(read)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_only_truth() {
        let read = |text: &str| trial_result(text.as_bytes());
        let both = read(
            r#"{"id":"i","trial_name":"t.1-of-1.r","task_id":"t","is_resolved":true,"failure_mode":"agent_timeout",
            "parser_results":{"a":"passed","b":"failed"},"total_input_tokens":0,"total_output_tokens":null,
            "trial_started_at":"2025-07-13T11:38:04.657956+00:00"}"#,
        )
        .unwrap()
        .result;
        assert_eq!(both.rewards.primary(), Some(1.0));
        assert_eq!(both.exception_type().map(|k| &**k), Some("agent_timeout"));
        assert_eq!(both.tests, Some(TestCounts { passed: 1, of: 2 }));
        assert!(both.tokens.is_unknown() && both.started.is_some());
        let none =
            read(r#"{"uuid":"u","trial_name":"raman.easy.2-of-5","is_resolved":null,"failure_mode":"parse_error"}"#);
        let none = none.unwrap();
        assert_eq!((&*none.task, none.result.rewards), ("raman.easy", Rewards::None));
        let odd =
            read(r#"{"task_id":"t","is_resolved":"yes","failure_mode":"some \u001b[2J new word"}"#).map(|f| f.result);
        let odd = odd.unwrap();
        assert_eq!(odd.rewards.primary(), None);
        assert!(odd.exception_type().is_some_and(|k| k.starts_with("some ") && !k.contains('\u{1b}')));
        assert!(read("{\"task_id\"").is_err_and(|p| p.may_heal()));
        assert!(read("[]").is_err() && read("{}").is_err() && read(r#"{"results":[]}"#).is_err());
    }

    #[test]
    fn an_aggregate_keeps_what_are_trials() {
        let text = br#"{"results":[{"task_id":"a","is_resolved":true},7,{"x":1},{"trial_name":"b.1-of-1","failure_mode":"unset"}],
            "accuracy":0.5,"pass_at_k":{"2":0.25,"x":1}}"#;
        let read = aggregate(text).unwrap_or_default();
        assert_eq!((read.trials.len(), read.count, read.accuracy), (2, 4, Some(0.5)));
        assert_eq!(read.pass_at_k.get(&2), Some(&0.25));
        assert_eq!(read.notes.len(), 1);
        assert!(aggregate(b"{\"results\":3}").is_err() && aggregate(b"{}").is_err());
    }
}
