//! A trial: one attempt of an agent at a task, known by its directory.

use std::sync::Arc;

use super::outcome::{CANCELLED, Exception, Grade, Rewards};
use super::regrade::Regrade;
use super::time::Stamp;

/// A job among those that are attached; an index that stays the same for the life of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey(pub u32);

/// A trial among those of all jobs: its job and the name of its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrialKey {
    /// The job whose directory holds it.
    pub job: JobKey,
    /// Directory name as found (not sanitised; lossy where it is not UTF-8); of a classic run the path
    /// `<task>/<trial>`.
    pub trial: Arc<str>,
}

/// The name of a trial's directory without those above it, which a classic run's trials have.
pub fn short_name(trial: &str) -> &str {
    trial.rsplit('/').next().unwrap_or(trial)
}

/// A trial's directory name, `<task>.<attempt>-of-<attempts>[.<run id>]`, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialName<'a> {
    /// Task id; may hold dots.
    pub task: &'a str,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Attempts planned.
    pub of: u32,
    /// The run's id; older harnesses leave it out.
    pub run: Option<&'a str>,
}

/// Takes a trial's name apart; None for a name of another form.
pub fn trial_name(name: &str) -> Option<TrialName<'_>> {
    if name.len() > 512 || name.contains('/') {
        return None;
    }
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    name.match_indices('.').filter(|(at, _)| *at > 0).find_map(|(at, _)| {
        let rest = name.get(at + 1..)?;
        let (attempt, rest) = rest.split_once("-of-")?;
        let (of, run) = match rest.split_once('.') {
            Some((of, run)) => (of, Some(run).filter(|run| !run.is_empty())),
            None => (rest, None),
        };
        Some(TrialName { task: name.get(..at)?, attempt: number(attempt)?, of: number(of)?, run })
    })
}

/// Tokens as reported; unknown is None, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tokens {
    /// Prompt tokens, cached ones included.
    pub input: Option<u64>,
    /// Of those, tokens read from the prefix cache.
    pub cache: Option<u64>,
    /// Completion tokens.
    pub output: Option<u64>,
}

impl Tokens {
    /// True when nothing was reported.
    pub fn is_unknown(&self) -> bool {
        self.input.is_none() && self.cache.is_none() && self.output.is_none()
    }

    /// Adds what is known of `other`.
    pub fn add(&mut self, other: &Tokens) {
        fn sum(a: &mut Option<u64>, b: Option<u64>) {
            if let Some(b) = b {
                *a = Some(a.unwrap_or(0).saturating_add(b));
            }
        }
        sum(&mut self.input, other.input);
        sum(&mut self.cache, other.cache);
        sum(&mut self.output, other.output);
    }
}

/// When one phase of a trial ran, from `result.json`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Span {
    /// Begin; None when the phase never started.
    pub started: Option<Stamp>,
    /// End; None when it was cut.
    pub finished: Option<Stamp>,
}

/// The four recorded phases of a finished trial.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spans {
    /// Image pull or build and container start.
    pub environment_setup: Span,
    /// Agent installation, terminal start.
    pub agent_setup: Span,
    /// The agent at work.
    pub agent: Span,
    /// The verifier at work.
    pub verifier: Span,
}

/// Effective limits of a trial in seconds (multipliers applied); None = no limit or not known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Environment build and start.
    pub environment: Option<f64>,
    /// Agent setup.
    pub agent_setup: Option<f64>,
    /// Agent execution.
    pub agent: Option<f64>,
    /// Verifier.
    pub verifier: Option<f64>,
    /// Where the agent and verifier limits come from.
    pub source: LimitSource,
}

/// Where limits were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitSource {
    /// Nothing found: only defaults that hold for every task.
    #[default]
    Unknown,
    /// From the task's `task.toml` (and the job's overrides and multipliers).
    TaskToml,
    /// From overrides in the trial's config alone.
    Config,
    /// Inferred from the limit in a timeout message of this or a sibling trial.
    Message,
}

/// The facts of `result.json` that lists, counts and scores need; the rest is read on demand.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialResult {
    /// Result `id`; new for every attempt.
    pub id: Option<Arc<str>>,
    /// `task_name`, may be `org/name`.
    pub task_name: Arc<str>,
    /// Rewards of the verifier.
    pub rewards: Rewards,
    /// Harbor 0.26: whether its error policy lets the reward count.
    pub reward_valid: Option<bool>,
    /// First exception of the trial.
    pub exception: Option<Exception>,
    /// Exceptions of the steps of a multi-step trial, by type.
    pub step_exceptions: Vec<Arc<str>>,
    /// Tokens; of a multi-step trial the sum of its steps.
    pub tokens: Tokens,
    /// Cost in USD as Harbor computed it; None when unknown.
    pub cost_usd: Option<f64>,
    /// Episodes entered (`metadata.n_episodes`); of a multi-step trial the sum of its steps.
    pub n_episodes: Option<u32>,
    /// Start of the trial.
    pub started: Option<Stamp>,
    /// End of the trial, teardown included.
    pub finished: Option<Stamp>,
    /// Phases.
    pub spans: Spans,
    /// True when the job was told not to verify, so that a missing reward is no anomaly.
    pub verifier_disabled: bool,
    /// True for `install_only` jobs.
    pub install_only: bool,
    /// `task_checksum`, for drift.
    pub task_checksum: Option<Arc<str>>,
    /// Who worked, by the result's own word, for drift: `agent_info.name`, and which prompts where they
    /// are not Harbor's. None where no agent worked.
    pub agent: Option<Arc<str>>,
    /// The tests as the harness itself counted them, which classic terminal-bench alone does.
    pub tests: Option<TestCounts>,
}

/// Tests of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TestCounts {
    /// Passed.
    pub passed: u32,
    /// In all.
    pub of: u32,
}

impl TrialResult {
    /// A result without reward and without exception although a verifier was due: what SIGTERM at a
    /// bad moment leaves behind. It must not count as done.
    pub fn is_phantom(&self) -> bool {
        self.exception.is_none()
            && self.step_exceptions.is_empty()
            && self.rewards == Rewards::None
            && !self.verifier_disabled
            && !self.install_only
    }

    /// Stopped by the operator or by a sibling's crash.
    pub fn is_cancelled(&self) -> bool {
        self.exception.as_ref().is_some_and(|e| &*e.kind == CANCELLED)
    }

    /// The reward axis.
    pub fn grade(&self) -> Grade {
        Grade::of(self.rewards.primary())
    }

    /// A primary reward that Harbor's policy does not forbid to count.
    pub fn has_valid_reward(&self) -> bool {
        self.rewards.primary().is_some() && self.reward_valid != Some(false)
    }

    /// Whether it failed for want of its surroundings rather than on its merits: container, image, disk,
    /// by the exception types that this program and Harbor give such failures (`RuntimeError`, which
    /// others raise, too, only where no reward counts).
    pub fn is_of_environment(&self) -> bool {
        const TYPES: [&str; 7] = [
            "EnvironmentStartTimeoutError",
            "SandboxBuildFailedError",
            "HealthcheckError",
            "AddTestsDirError",
            "DownloadVerifierDirError",
            "SandboxLikelyOutOfMemoryError",
            "OSError",
        ];
        let kind = self.exception.as_ref().map(|e| &*e.kind);
        match kind {
            Some("RuntimeError") => !self.has_valid_reward(),
            Some(kind) => TYPES.contains(&kind),
            None => false,
        }
    }

    /// The type of the first exception, of the trial or else of a step.
    pub fn exception_type(&self) -> Option<&Arc<str>> {
        self.exception.as_ref().map(|e| &e.kind).or_else(|| self.step_exceptions.first())
    }
}

/// One observed file: enough to tell whether it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFact {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Stamp,
}

/// What is known of a growing `trajectory.json` (a torn one keeps the last good reading).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Steps recorded.
    pub steps: u32,
    /// Episodes finished: steps with source `agent`, copied context left out.
    pub episodes: u32,
    /// Time stamp of the first step: the agent's start.
    pub first_step: Option<Stamp>,
    /// Time stamp of the last step.
    pub last_step: Option<Stamp>,
    /// Tokens so far, from `final_metrics`, else summed over the steps.
    pub tokens: Tokens,
}

/// The exception that `exception.txt` shows before `result.json` exists.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlyException {
    /// Class name of the traceback's last line; None when the file is there but not readable as a
    /// traceback.
    pub kind: Option<Arc<str>>,
    /// When the file was written.
    pub at: Stamp,
}

/// What the directory of a trial without a readable result shows; the input of the phase table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    /// Modification time of the oldest thing known about the directory (`lock.json`, else itself).
    pub began: Option<Stamp>,
    /// `lock.json` is there.
    pub lock: bool,
    /// `config.json`, parsed.
    pub config: Option<FileFact>,
    /// `agent/` holds anything at all.
    pub agent_any: bool,
    /// `agent/` holds more than setup leaves: a log, an output or a recording (not the pane).
    pub agent_output: bool,
    /// `agent/recording.cast`.
    pub cast: Option<FileFact>,
    /// `agent/terminus_2.pane`.
    pub pane: Option<FileFact>,
    /// `trial.log` has at least one line: the container is up.
    pub log_started: bool,
    /// The newest `agent/trajectory.json` that could be parsed.
    pub trajectory: Option<Progress>,
    /// When the newest `agent/trajectory.json` was written: on the clock of the files, as the terminal's
    /// recording, where the steps in it have that of the agent's host.
    pub stepped: Option<Stamp>,
    /// `artifacts/manifest.json`: the agent is over.
    pub manifest: Option<Stamp>,
    /// `verifier/test-stdout.txt`.
    pub verifier_output: Option<FileFact>,
    /// Early reward from `verifier/reward.json` or `reward.txt`, size > 0; None inside: not readable
    /// as a number.
    pub reward: Option<EarlyReward>,
    /// `exception.txt`.
    pub exception: Option<EarlyException>,
    /// Names of `steps/*` in order of appearance, for multi-step tasks.
    pub steps: Vec<Arc<str>>,
    /// Newest modification time met anywhere in the directory.
    pub newest: Option<Stamp>,
    /// The file that the phase was read from, where the layout is not Harbor's.
    pub shown_by: Option<&'static str>,
}

/// A reward file seen before `result.json`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EarlyReward {
    /// The primary reward; None when the file holds none that is a number.
    pub value: Option<f64>,
    /// When the file was written.
    pub at: Stamp,
}

/// Why something on disk could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind, one of the warning kinds of the headless JSON (`unreadable`, `foreign`, …).
    pub kind: ProblemKind,
    /// Path that it is about, with `:line` where a line is known.
    pub path: Arc<str>,
    /// What happened, in words.
    pub message: Arc<str>,
}

/// Kinds of [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProblemKind {
    /// A file or directory that could not be read or parsed.
    Unreadable,
    /// Something inside a job dir that is not Harbor's (another program's directory or result).
    Foreign,
    /// A reward that is not a number.
    RewardUnreadable,
    /// Times that contradict each other or this machine's clock.
    Clock,
    /// A file of the job that should be there and is not.
    Missing,
    /// The directory itself can not be reached at the moment.
    Unreachable,
    /// Nothing wrong, but worth a word: how something is followed, what a root turned out to be.
    Note,
}

impl ProblemKind {
    /// The word in JSON and on the screen.
    pub fn word(self) -> &'static str {
        match self {
            ProblemKind::Unreadable => "unreadable",
            ProblemKind::Foreign => "foreign",
            ProblemKind::RewardUnreadable => "reward_unreadable",
            ProblemKind::Clock => "clock",
            ProblemKind::Missing => "missing",
            ProblemKind::Unreachable => "unreachable",
            ProblemKind::Note => "note",
        }
    }
}

/// Everything known about one trial directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Directory name; of a classic run the path below its directory.
    pub name: Arc<str>,
    /// Task as the trial's config names it: last path segment, without organisation.
    pub task: Arc<str>,
    /// Agent name, where known.
    pub agent: Option<Arc<str>>,
    /// Model name, where known.
    pub model: Option<Arc<str>>,
    /// The result, once it parses.
    pub result: Option<Box<TrialResult>>,
    /// What the files show as long as there is no result.
    pub evidence: Option<Box<Evidence>>,
    /// Limits.
    pub limits: Limits,
    /// Why it is unreadable or odd; the first problem is the one shown in the row.
    pub problems: Vec<Problem>,
    /// True when `result.json` is there, stable and can not be parsed, and nothing else tells the
    /// phase.
    pub unreadable: bool,
    /// Its verifier run again, oldest first; nothing of it changes the result.
    pub regrades: Vec<Regrade>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let parts = |name| trial_name(name).map(|n| (n.task, n.attempt, n.of, n.run));
        assert_eq!(parts("hello-world.1-of-5"), Some(("hello-world", 1, 5, None)));
        let dated = "raman-fitting.easy.2-of-3.2025-08-15__16-23-45";
        assert_eq!(parts(dated), Some(("raman-fitting.easy", 2, 3, Some("2025-08-15__16-23-45"))));
        assert_eq!(parts("t.1-of-1.run.with.dots"), Some(("t", 1, 1, Some("run.with.dots"))));
        for odd in
            ["hello-world", "a.b", ".1-of-1", "x.1-of-", "x.-of-2", "x.1-of-2a", "a/b.1-of-1", "json-merge__rurvPof"]
        {
            assert_eq!(parts(odd), None, "{odd}");
        }
    }
}
