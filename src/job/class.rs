//! What became of a trial, in one word with its reasons: the class, said by the rules of
//! `triage`, not by a person.

use std::sync::Arc;

use super::policy::ErrorPolicy;
use super::verdict::Verdict;

/// Classes. A class says why, not how much: reward and exception stay beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Reward 1, whatever was raised beside it.
    Passed,
    /// Reward between 0 and 1.
    Partial,
    /// Graded 0 on its merits.
    Failed,
    /// The agent worked to its limit.
    AgentTimeout,
    /// The agent's own doing: it broke its terminal, its program failed.
    AgentError,
    /// More context than the model takes.
    ContextExceeded,
    /// The tests ran into their limit.
    VerifierTimeout,
    /// The tests ended without a usable reward, and nothing points to the surroundings.
    VerifierError,
    /// The surroundings: containers, network, disk, the model's server.
    Infra,
    /// The operator's own mistake, such as a wrong key: every trial would end so.
    Config,
    /// Stopped.
    Cancelled,
    /// A result with neither reward nor exception.
    Phantom,
    /// No result, and nobody to write one.
    Orphaned,
    /// Nothing says why.
    Unclassified,
}

impl Class {
    /// All of them; in triage the order of going through: what may cost a score unjustly comes first.
    pub const ALL: [Class; 14] = [
        Class::Config,
        Class::Infra,
        Class::Unclassified,
        Class::VerifierError,
        Class::VerifierTimeout,
        Class::Phantom,
        Class::Orphaned,
        Class::AgentError,
        Class::ContextExceeded,
        Class::AgentTimeout,
        Class::Cancelled,
        Class::Failed,
        Class::Partial,
        Class::Passed,
    ];

    /// The word in JSON, in filters, in `error-classes.toml` and on the screen.
    pub fn word(self) -> &'static str {
        match self {
            Class::Passed => "passed",
            Class::Partial => "partial",
            Class::Failed => "failed",
            Class::AgentTimeout => "agent_timeout",
            Class::AgentError => "agent_error",
            Class::ContextExceeded => "context_exceeded",
            Class::VerifierTimeout => "verifier_timeout",
            Class::VerifierError => "verifier_error",
            Class::Infra => "infra",
            Class::Config => "config",
            Class::Cancelled => "cancelled",
            Class::Phantom => "phantom",
            Class::Orphaned => "orphaned",
            Class::Unclassified => "unclassified",
        }
    }

    /// The class of a word.
    pub fn of_word(word: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.word() == word)
    }

    /// Its place in triage, 0 first.
    pub fn turn(self) -> usize {
        Class::ALL.iter().position(|class| *class == self).unwrap_or(Class::ALL.len())
    }

    /// Taken out of the denominator of `excluding_infra`.
    pub fn is_excluded(self) -> bool {
        matches!(self, Class::Infra | Class::Cancelled | Class::Phantom | Class::Orphaned)
    }
}

/// A line that speaks for a class: where it stands, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Path below the trial's directory, for example `verifier/test-stdout.txt`.
    pub path: Arc<str>,
    /// Line, from 1; None where the whole file, its absence or a field is meant.
    pub line: Option<u64>,
    /// The line or the fact in words, at most 300 characters, escape sequences stripped, secrets masked.
    pub text: Arc<str>,
}

impl Excerpt {
    /// `path:line`, or the path alone.
    pub fn place(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", self.path),
            None => self.path.to_string(),
        }
    }
}

/// Something odd about a trial that its class alone does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flag {
    /// A pass after one episode, or without a token.
    ThinPass,
    /// A pass without output of the verifier.
    PassWithoutOutput,
    /// The reward file is older than the verifier's start.
    RewardBeforeVerifier,
    /// Episodes, but not one token.
    ZeroTokens,
    /// The limit in the timeout's message is not the time that it took.
    TimeoutDisagrees,
    /// Few output tokens in a long timeout: waiting for the model rather than working.
    FewTokens,
    /// Very few episodes in a long timeout: thinking without end.
    Runaway,
    /// The verifier never began its tests.
    TestsNeverRan,
    /// The agent ended its own terminal.
    TerminalKilled,
}

impl Flag {
    /// All of them.
    pub const ALL: [Flag; 9] = [
        Flag::ThinPass,
        Flag::PassWithoutOutput,
        Flag::RewardBeforeVerifier,
        Flag::ZeroTokens,
        Flag::TimeoutDisagrees,
        Flag::FewTokens,
        Flag::Runaway,
        Flag::TestsNeverRan,
        Flag::TerminalKilled,
    ];

    /// The word in JSON and filters.
    pub fn word(self) -> &'static str {
        match self {
            Flag::ThinPass => "thin_pass",
            Flag::PassWithoutOutput => "pass_without_output",
            Flag::RewardBeforeVerifier => "reward_before_verifier",
            Flag::ZeroTokens => "zero_tokens",
            Flag::TimeoutDisagrees => "timeout_disagrees",
            Flag::FewTokens => "few_tokens",
            Flag::Runaway => "runaway",
            Flag::TestsNeverRan => "tests_never_ran",
            Flag::TerminalKilled => "terminal_killed",
        }
    }

    /// For a person.
    pub fn title(self) -> &'static str {
        match self {
            Flag::ThinPass => "passed after one episode or without a token",
            Flag::PassWithoutOutput => "passed without any output of the verifier",
            Flag::RewardBeforeVerifier => "the reward file is older than the verifier's start",
            Flag::ZeroTokens => "episodes without a single token",
            Flag::TimeoutDisagrees => "the timeout's message disagrees with the clock",
            Flag::FewTokens => "few output tokens in a long timeout",
            Flag::Runaway => "very few episodes in a long timeout",
            Flag::TestsNeverRan => "the verifier never ran its tests",
            Flag::TerminalKilled => "the agent ended its own terminal",
        }
    }

    /// A pass that a person should look at.
    pub fn is_suspicious_pass(self) -> bool {
        matches!(self, Flag::ThinPass | Flag::PassWithoutOutput | Flag::RewardBeforeVerifier)
    }
}

/// The class of one trial, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Classification {
    /// Result id of what was looked at; None for a trial without result. A new attempt in the same
    /// directory is another trial, for which this says nothing.
    pub result_id: Option<Arc<str>>,
    /// Class.
    pub class: Class,
    /// Sub-class, such as `docker`, `package-mirror`, `model-api` for `infra`.
    pub sub: Option<Arc<str>>,
    /// Name of the rule that said so: `[rules.<name>]` of `error-classes.toml`, or one of the built-in
    /// ones.
    pub rule: Arc<str>,
    /// The reason in one sentence.
    pub why: Arc<str>,
    /// What it rests on, the decisive line first.
    pub evidence: Vec<Excerpt>,
    /// What else is odd.
    pub flags: Vec<Flag>,
    /// What a person would probably say; counts for nothing until confirmed.
    pub suggested: Option<Verdict>,
    /// What Harbor's own error policy does about the exception, where it differs from what the class
    /// means.
    pub harbor_differs: Option<ErrorPolicy>,
}

impl Classification {
    /// Nothing that triage goes through: a pass about which nothing is odd.
    pub fn is_clean_pass(&self) -> bool {
        self.class == Class::Passed && !self.is_suspicious_pass()
    }

    /// A pass that a person should look at before it counts.
    pub fn is_suspicious_pass(&self) -> bool {
        self.class == Class::Passed && self.flags.iter().any(|f| f.is_suspicious_pass())
    }

    /// Its place in triage, 0 first: that of its class, a suspicious pass behind what has no result.
    pub fn turn(&self) -> usize {
        if self.is_suspicious_pass() { Class::Orphaned.turn() } else { self.class.turn() }
    }

    /// Whether somebody has to look at it before its count can be trusted, as long as there is no
    /// verdict. What was graded on its merits needs nobody, nor does a timeout.
    pub fn needs_person(&self) -> bool {
        self.is_suspicious_pass()
            || matches!(
                self.class,
                Class::Config
                    | Class::Infra
                    | Class::Unclassified
                    | Class::VerifierError
                    | Class::VerifierTimeout
                    | Class::Phantom
                    | Class::Orphaned
            )
    }
}
