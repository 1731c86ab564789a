//! Where evidence may come from, by name.

/// A kind of files of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The message of the exception.
    Message,
    /// What a failed command printed, out of the message: without the command itself.
    Output,
    /// The whole of `exception.txt`.
    Traceback,
    /// `trial.log`.
    TrialLog,
    /// `agent/setup/*`.
    SetupLog,
    /// The agent program's own logs: `agent/*.txt`, `agent/*.log`, `agent/command-*/*.txt`.
    AgentLog,
    /// `verifier/test-stdout.txt`, `test-stderr.txt` and other logs beside them.
    VerifierLog,
    /// The end of `agent/trajectory.json`.
    Trajectory,
    /// The agent's screen: `agent/*.pane`.
    Terminal,
    /// What was kept of the container's state and logs.
    Container,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 10] = [
        Source::Message,
        Source::Output,
        Source::Traceback,
        Source::TrialLog,
        Source::SetupLog,
        Source::AgentLog,
        Source::VerifierLog,
        Source::Trajectory,
        Source::Terminal,
        Source::Container,
    ];

    /// The word in `error-classes.toml`.
    pub fn word(self) -> &'static str {
        match self {
            Source::Message => "message",
            Source::Output => "output",
            Source::Traceback => "traceback",
            Source::TrialLog => "trial_log",
            Source::SetupLog => "setup_log",
            Source::AgentLog => "agent_log",
            Source::VerifierLog => "verifier_log",
            Source::Trajectory => "trajectory",
            Source::Terminal => "terminal",
            Source::Container => "container",
        }
    }
}
