//! What is odd about a trial beside its class.

use std::sync::Arc;

use super::evidence::Gathered;
use super::facts::{Facts, Number};
use crate::job::outcome::{is_agent_timeout, is_verifier_timeout};
use crate::job::{AlarmLimits, Class, Classification, Excerpt, Flag, Grade, Trial, TrialResult};

/// Seconds by which a reward file may seem older than its verifier: clocks of file systems are coarse.
const SLACK: f64 = 2.0;
/// The sub-class of a pass that a person should look at.
const SUSPICIOUS: &str = "suspicious";

/// Adds the flags of a trial to its class, with what they rest on.
pub(super) fn add(
    class: &mut Classification,
    facts: &Facts,
    result: &TrialResult,
    trial: &Trial,
    gathered: &mut Gathered<'_>,
    limits: &AlarmLimits,
) {
    let mut found: Vec<(Flag, Excerpt)> = Vec::new();
    let mut flag = |flag: Flag, path: &str, text: String| {
        found.push((flag, Excerpt { path: Arc::from(path), line: None, text: text.into() }));
    };
    let number = |n: Number| facts.number(n);
    let zero = number(Number::Tokens) == Some(0.0) && number(Number::Episodes).is_some_and(|n| n >= 1.0);
    if result.grade() == Grade::Passed {
        if let Some(text) = thin(facts, limits) {
            flag(Flag::ThinPass, facts.file, text);
        }
        if let Some((path, text)) = without_output(trial, gathered) {
            flag(Flag::PassWithoutOutput, path, text);
        }
        if let Some((path, text)) = before_verifier(result, gathered) {
            flag(Flag::RewardBeforeVerifier, path, text);
        }
    } else if zero {
        let n = number(Number::Episodes).unwrap_or_default();
        flag(Flag::ZeroTokens, facts.file, format!("{n:.0} episodes, 0 tokens in, 0 out"));
    }
    if let Some(text) = disagrees(facts, limits) {
        flag(Flag::TimeoutDisagrees, facts.file, text);
    }
    let timeout = facts.kind.as_deref().is_some_and(is_agent_timeout) || class.class == Class::AgentTimeout;
    if timeout && let Some(seconds) = number(Number::AgentSeconds) {
        let few = has_few_tokens(facts, limits);
        if few {
            let out = number(Number::OutputTokens).unwrap_or_default();
            flag(Flag::FewTokens, facts.file, format!("{out:.0} output tokens in {seconds:.0} s"));
        }
        if is_runaway(facts, few, limits) {
            let n = number(Number::Episodes).map_or("not known how many".to_string(), |n| format!("{n:.0}"));
            flag(Flag::Runaway, facts.file, format!("episodes in {seconds:.0} s: {n}"));
            if class.class == Class::AgentTimeout && class.sub.is_none() {
                class.sub = Some("runaway".into());
            }
        }
    }
    for (flag, excerpt) in found {
        if !class.flags.contains(&flag) {
            class.flags.push(flag);
            class.evidence.push(excerpt);
        }
    }
    if class.class == Class::Passed && class.flags.iter().any(|f| f.is_suspicious_pass()) {
        class.sub = Some(SUSPICIOUS.into());
        class.why = "reward 1, and something about it is odd: look before it counts".into();
    }
}

/// Fewer output tokens than a model at work gives in that time.
fn has_few_tokens(facts: &Facts, limits: &AlarmLimits) -> bool {
    facts.number(Number::AgentSeconds).is_some_and(|s| s >= limits.few_tokens_seconds)
        && facts.number(Number::TokenRate).is_some_and(|rate| rate < limits.few_tokens_per_second)
}

/// Episodes so few for the time that the model thought without end; where nobody counted them, too few
/// tokens tell it.
fn is_runaway(facts: &Facts, few_tokens: bool, limits: &AlarmLimits) -> bool {
    let slow = facts.number(Number::EpisodeRate).is_some_and(|rate| rate <= limits.runaway_episodes_per_hour);
    facts.number(Number::AgentSeconds).is_some_and(|s| s >= limits.runaway_seconds)
        && facts.number(Number::Episodes).is_none_or(|n| n <= f64::from(limits.runaway_episodes))
        && (slow || few_tokens)
}

/// The time that a timeout took against the limit that its message names.
fn disagrees(facts: &Facts, limits: &AlarmLimits) -> Option<String> {
    let said = facts.said_limit?;
    let took = match facts.kind.as_deref()? {
        kind if is_agent_timeout(kind) => facts.number(Number::AgentSeconds),
        kind if is_verifier_timeout(kind) => facts.number(Number::VerifierSeconds),
        "AgentSetupTimeoutError" => facts.number(Number::SetupSeconds),
        _ => None,
    }?;
    (took < limits.clock_share * said).then(|| format!("the message says {said:.0} s, the clock {took:.0} s"))
}

fn thin(facts: &Facts, limits: &AlarmLimits) -> Option<String> {
    let episodes = facts.number(Number::Episodes);
    if let Some(n) = episodes
        && n <= f64::from(limits.thin_episodes)
    {
        return Some(format!("passed after {n:.0} episodes"));
    }
    (facts.number(Number::Tokens) == Some(0.0)).then(|| "passed without a token".to_string())
}

/// A pass of which the verifier left no output. The oracle's answer is known beforehand, and where no
/// directories were kept, nothing is missing.
fn without_output(trial: &Trial, gathered: &mut Gathered<'_>) -> Option<(&'static str, String)> {
    const OUTPUT: &str = "verifier/test-stdout.txt";
    if trial.agent.as_deref() == Some("oracle") {
        return None;
    }
    let output = gathered.meta(OUTPUT);
    if output.is_some_and(|m| m.size > 0) || gathered.meta("verifier/ctrf.json").is_some_and(|m| m.size > 0) {
        return None;
    }
    let kept = gathered.holds("verifier") || gathered.holds("agent");
    let words = if output.is_some() { "reward 1, and the output is empty" } else { "reward 1, and there is no output" };
    kept.then(|| (OUTPUT, words.to_string()))
}

/// A reward file that is older than the verifier's start, where file times can be trusted: the result
/// was written after it.
fn before_verifier(result: &TrialResult, gathered: &mut Gathered<'_>) -> Option<(&'static str, String)> {
    let start = result.spans.verifier.started?;
    let written = gathered.meta("result.json")?;
    if written.modified < start {
        return None;
    }
    ["verifier/reward.json", "verifier/reward.txt"].into_iter().find_map(|path| {
        let meta = gathered.meta(path)?;
        let early = start.duration_since(meta.modified).as_secs_f64();
        let words = format!("written {early:.0} s before the verifier's start");
        Some((early > SLACK).then_some((path, words)))
    })?
}
