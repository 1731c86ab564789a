//! What a rule may ask of a trial beside the words of its files.

use std::sync::Arc;

use super::evidence::Gathered;
use super::tests_run::{self, Tests};
use crate::harbor::limit_from_message;
use crate::job::outcome::{is_agent_timeout, is_verifier_timeout};
use crate::job::{AlarmLimits, Excerpt, Grade, JobFacts, Span, TestCounts, Trial, TrialResult};

/// The last phase that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// None of the recorded ones.
    Starting,
    /// Containers.
    EnvironmentSetup,
    /// The agent's installation.
    AgentSetup,
    /// The agent at work.
    AgentRunning,
    /// The tests.
    Verifying,
}

impl Reached {
    /// All, in order.
    pub const ALL: [Reached; 5] =
        [Reached::Starting, Reached::EnvironmentSetup, Reached::AgentSetup, Reached::AgentRunning, Reached::Verifying];

    /// The word in `error-classes.toml`: that of the phase.
    pub fn word(self) -> &'static str {
        match self {
            Reached::Starting => "starting",
            Reached::EnvironmentSetup => "environment_setup",
            Reached::AgentSetup => "agent_setup",
            Reached::AgentRunning => "agent_running",
            Reached::Verifying => "verifying",
        }
    }
}

/// The reward in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reward {
    /// No primary reward that is a number.
    None,
    /// 0, or outside of 0 to 1.
    Zero,
    /// Between 0 and 1.
    Partial,
}

impl Reward {
    /// All that a rule can meet: a reward of 1 is decided before.
    pub const ALL: [Reward; 3] = [Reward::None, Reward::Zero, Reward::Partial];

    /// The word in `error-classes.toml`.
    pub fn word(self) -> &'static str {
        match self {
            Reward::None => "none",
            Reward::Zero => "zero",
            Reward::Partial => "partial",
        }
    }
}

/// Numbers that a rule may compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// Exit code in the message of a failed command.
    ExitCode,
    /// Episodes entered.
    Episodes,
    /// Episodes finished, by the trajectory or the result.
    EpisodesDone,
    /// Prompt tokens.
    InputTokens,
    /// Completion tokens.
    OutputTokens,
    /// Both together, both known.
    Tokens,
    /// Seconds of the agent.
    AgentSeconds,
    /// The same as a share of its limit: the one that a timeout's message names, else the trial's own.
    AgentShare,
    /// Seconds of the verifier.
    VerifierSeconds,
    /// The same as a share of its limit.
    VerifierShare,
    /// Seconds of the agent's setup.
    SetupSeconds,
    /// The same as a share of its limit.
    SetupShare,
    /// Completion tokens per second of the agent.
    TokenRate,
    /// Episodes per hour of the agent.
    EpisodeRate,
    /// Seconds that the agent waited for an endpoint that was away while its clock ran on, as a share of
    /// its limit.
    EndpointLostShare,
}

impl Number {
    /// All of them.
    pub const ALL: [Number; 15] = [
        Number::ExitCode,
        Number::Episodes,
        Number::EpisodesDone,
        Number::InputTokens,
        Number::OutputTokens,
        Number::Tokens,
        Number::AgentSeconds,
        Number::AgentShare,
        Number::VerifierSeconds,
        Number::VerifierShare,
        Number::SetupSeconds,
        Number::SetupShare,
        Number::TokenRate,
        Number::EpisodeRate,
        Number::EndpointLostShare,
    ];

    /// The word in `error-classes.toml`.
    pub fn word(self) -> &'static str {
        match self {
            Number::ExitCode => "exit_code",
            Number::Episodes => "episodes",
            Number::EpisodesDone => "episodes_done",
            Number::InputTokens => "input_tokens",
            Number::OutputTokens => "output_tokens",
            Number::Tokens => "tokens",
            Number::AgentSeconds => "agent_seconds",
            Number::AgentShare => "agent_share",
            Number::VerifierSeconds => "verifier_seconds",
            Number::VerifierShare => "verifier_share",
            Number::SetupSeconds => "setup_seconds",
            Number::SetupShare => "setup_share",
            Number::TokenRate => "token_rate",
            Number::EpisodeRate => "episode_rate",
            Number::EndpointLostShare => "endpoint_lost_share",
        }
    }
}

/// What is known of a trial without its logs.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Harbor's version by the job's lock.
    pub harbor: Option<Arc<str>>,
    /// The trial's file that holds its result.
    pub file: &'static str,
    /// Its tests as the harness counted them.
    counted: Option<TestCounts>,
    /// Type of the exception, of the trial or else of a step.
    pub kind: Option<Arc<str>>,
    /// The last phase that began.
    pub reached: Reached,
    /// The reward; None for 1.
    pub reward: Option<Reward>,
    /// The reward as it is written.
    primary: Option<f64>,
    /// Agent's name.
    pub agent: Option<Arc<str>>,
    /// Whether tests ran; found out when a rule asks.
    tests: Option<Tests>,
    /// Limit in a timeout's message, in seconds.
    pub said_limit: Option<f64>,
    spans: [Option<f64>; 3],
    limits: [Option<f64>; 3],
    exit_code: Option<f64>,
    episodes: Option<f64>,
    episodes_done: Option<f64>,
    input: Option<f64>,
    output: Option<f64>,
    endpoint_lost: Option<f64>,
    multi_step: bool,
}

impl Facts {
    /// Those of a trial.
    pub fn of(
        job: &JobFacts,
        trial: &Trial,
        result: &TrialResult,
        _limits: &AlarmLimits,
        gathered: &mut Gathered<'_>,
    ) -> Facts {
        let message = result.exception.as_ref().map(|e| &*e.message).unwrap_or_default();
        let said_limit = limit_from_message(message);
        let mut reached = reached(result);
        let mut spans = [&result.spans.agent, &result.spans.verifier, &result.spans.agent_setup].map(seconds);
        let mut step_message = None;
        let multi_step =
            !result.step_exceptions.is_empty() || (result.spans.agent.started.is_none() && gathered.holds("steps"));
        // The phases of a multi-step trial are those of the step that went wrong, else of its last.
        if multi_step
            && result.grade() != Grade::Passed
            && let Some(particulars) = gathered.particulars()
        {
            let wrong = particulars.steps.iter().find(|s| s.exception.is_some());
            if let Some(step) = wrong.or(particulars.steps.last()) {
                spans[0] = spans[0].or(seconds(&step.agent));
                spans[1] = spans[1].or(seconds(&step.verifier));
                if step.verifier.started.is_some() {
                    reached = Reached::Verifying;
                } else if step.agent.started.is_some() {
                    reached = reached.max(Reached::AgentRunning);
                }
                step_message = step.exception.as_ref().map(|e| e.message.clone());
            }
        }
        let said_limit = said_limit.or(step_message.as_deref().and_then(limit_from_message));
        let kind = result.exception_type().cloned();
        let said_for = |is: fn(&str) -> bool| said_limit.filter(|_| kind.as_deref().is_some_and(is));
        let limits = [
            said_for(is_agent_timeout).or(trial.limits.agent),
            said_for(is_verifier_timeout).or(trial.limits.verifier),
            said_for(|kind| kind == "AgentSetupTimeoutError").or(trial.limits.agent_setup),
        ];
        let episodes = result.n_episodes.map(f64::from);
        // Of a trial that was cut off, the last episode was not finished.
        let cut = result.exception.is_some();
        let episodes_done = episodes.map(|n| if cut { (n - 1.0).max(0.0) } else { n });
        let timed_out = kind.as_deref().is_some_and(is_agent_timeout);
        let endpoint_lost = if timed_out { gathered.endpoint_lost() } else { None };
        Facts {
            harbor: job.harbor_version.clone().filter(|_| !job.layout.is_classic()),
            file: job.layout.trial_file(),
            counted: result.tests.filter(|tests| tests.of > 0),
            exit_code: exit_code(step_message.as_deref().filter(|_| message.is_empty()).unwrap_or(message)),
            kind,
            reached,
            reward: match result.grade() {
                Grade::Passed => None,
                Grade::Partial => Some(Reward::Partial),
                Grade::Failed => Some(Reward::Zero),
                Grade::NoReward => Some(Reward::None),
            },
            primary: result.rewards.primary(),
            agent: trial.agent.clone(),
            tests: None,
            said_limit,
            spans,
            limits,
            episodes,
            episodes_done,
            input: result.tokens.input.map(|n| n as f64),
            output: result.tokens.output.map(|n| n as f64),
            endpoint_lost,
            multi_step,
        }
    }

    /// A number; None while it is not known, which fits no condition.
    pub fn number(&self, number: Number) -> Option<f64> {
        let share = |i: usize| {
            let (span, limit) = (self.spans.get(i).copied()??, self.limits.get(i).copied()??);
            (limit > 0.0).then_some(span / limit)
        };
        let span = |i: usize| self.spans.get(i).copied().flatten();
        let rate = |n: Option<f64>, per: f64| span(0).filter(|s| *s > 0.0).zip(n).map(|(s, n)| n * per / s);
        match number {
            Number::ExitCode => self.exit_code,
            Number::Episodes => self.episodes,
            Number::EpisodesDone => self.episodes_done,
            Number::InputTokens => self.input,
            Number::OutputTokens => self.output,
            Number::Tokens => self.input.zip(self.output).map(|(a, b)| a + b),
            Number::AgentSeconds => span(0),
            Number::AgentShare => share(0),
            Number::VerifierSeconds => span(1),
            Number::VerifierShare => share(1),
            Number::SetupSeconds => span(2),
            Number::SetupShare => share(2),
            Number::TokenRate => rate(self.output, 1.0),
            Number::EpisodeRate => rate(self.episodes, 3600.0),
            Number::EndpointLostShare => self.endpoint_lost,
        }
    }

    /// Whether tests ran, by the verifier's files.
    pub fn tests(&self, gathered: &mut Gathered<'_>) -> Tests {
        if let Some(tests) = self.counted {
            let text = format!("{} of {} tests passed, by the harness's own count", tests.passed, tests.of);
            return Tests::Ran(Excerpt { path: self.file.into(), line: None, text: text.into() });
        }
        self.tests.clone().unwrap_or_else(|| tests_run::of(self.reached == Reached::Verifying, gathered))
    }

    /// The facts in one line: exception, phase, reward, times, tokens.
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        match &self.kind {
            Some(kind) => parts.push(format!("{kind} after {} began", self.reached.word())),
            None => parts.push(format!("no exception, {} reached", self.reached.word())),
        }
        parts.push(match self.primary {
            Some(reward) => format!("reward {reward}"),
            None => "no reward".to_string(),
        });
        if let Some(seconds) = self.number(Number::AgentSeconds) {
            let limit = self.limits.first().copied().flatten().map_or(String::new(), |l| format!(" of {l:.0}"));
            parts.push(format!("agent {seconds:.0}{limit} s"));
        }
        if let (Reached::Verifying, Some(seconds)) = (self.reached, self.number(Number::VerifierSeconds)) {
            let limit = self.limits.get(1).copied().flatten().map_or(String::new(), |l| format!(" of {l:.0}"));
            parts.push(format!("verifier {seconds:.0}{limit} s"));
        }
        if let Some(share) = self.endpoint_lost.filter(|share| *share > 0.0) {
            parts.push(format!("{:.0} % of its limit waiting for an endpoint that was away", share * 100.0));
        }
        if let Some(n) = self.episodes {
            parts.push(format!("{n:.0} episodes"));
        }
        match (self.input, self.output) {
            (None, None) => parts.push("tokens not known".to_string()),
            (input, output) => {
                let text = |n: Option<f64>| n.map_or("-".to_string(), |n| format!("{n:.0}"));
                parts.push(format!("{} tokens in, {} out", text(input), text(output)));
            }
        }
        if self.multi_step {
            parts.push("several steps".to_string());
        }
        parts.join("; ")
    }
}

fn seconds(span: &Span) -> Option<f64> {
    let seconds = span.finished?.duration_since(span.started?).as_secs_f64();
    (seconds >= 0.0).then_some(seconds)
}

fn reached(result: &TrialResult) -> Reached {
    let spans = &result.spans;
    let began = |span: &Span| span.started.is_some();
    // Classic terminal-bench writes no times in one generation; what it found of the tests tells as much.
    let kind = result.exception.as_ref().map(|e| &*e.kind);
    if began(&spans.verifier) || result.tests.is_some() || matches!(kind, Some("parse_error" | "test_timeout")) {
        Reached::Verifying
    } else if began(&spans.agent) {
        Reached::AgentRunning
    } else if began(&spans.agent_setup) {
        Reached::AgentSetup
    } else if began(&spans.environment_setup) {
        Reached::EnvironmentSetup
    } else {
        Reached::Starting
    }
}

/// The exit code in a message: `Command failed (exit 127): …`, `exit code 2`, `exited with code 137`,
/// `return_code=1`.
fn exit_code(message: &str) -> Option<f64> {
    let lower = message.to_ascii_lowercase();
    let marks = ["(exit ", "exit code ", "exit code: ", "exit status ", "with code ", "return_code=", "return code: "];
    marks.iter().find_map(|mark| {
        let rest = lower.split_once(mark)?.1;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).take(4).collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::exit_code;

    #[test]
    fn exit_codes_are_found() {
        assert_eq!(exit_code("Command failed (exit 127): x"), Some(127.0));
        assert_eq!(exit_code("process exited with code 137"), Some(137.0));
        assert_eq!(exit_code("left (exit x)"), None);
    }
}
