//! Where a trial is: derived from files alone, since Harbor writes no state file.

use super::time::Stamp;
use super::trial::{Evidence, Trial};

/// The phases of a trial, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Planned, no directory yet.
    Queued,
    /// Directory exists, the agent object is being built.
    Starting,
    /// Image pull, build, container start.
    EnvironmentSetup,
    /// Agent installation, terminal start.
    AgentSetup,
    /// The agent is at work in this episode (from 1; 1 also while none is finished).
    AgentRunning(u32),
    /// The agent is over, the tests run.
    Verifying,
    /// The reward or the exception is known, the container is being removed.
    TearingDown,
    /// The result is written.
    Done,
    /// Between two attempts of a retried trial: its directory is gone for a moment.
    RetryWait,
    /// No result, and nobody alive who would write one.
    Orphaned,
    /// Its files can not be read.
    Unreadable,
}

impl Phase {
    /// The word in JSON, filters and docs.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Queued => "queued",
            Phase::Starting => "starting",
            Phase::EnvironmentSetup => "environment_setup",
            Phase::AgentSetup => "agent_setup",
            Phase::AgentRunning(_) => "agent_running",
            Phase::Verifying => "verifying",
            Phase::TearingDown => "tearing_down",
            Phase::Done => "done",
            Phase::RetryWait => "retry_wait",
            Phase::Orphaned => "orphaned",
            Phase::Unreadable => "unreadable",
        }
    }

    /// A trial that somebody is working on.
    pub fn is_running(self) -> bool {
        matches!(
            self,
            Phase::Starting
                | Phase::EnvironmentSetup
                | Phase::AgentSetup
                | Phase::AgentRunning(_)
                | Phase::Verifying
                | Phase::TearingDown
        )
    }
}

/// Whether anybody could still write to the job's trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Somebody may: trials without result are running.
    Possible,
    /// Nobody: the job is finished, interrupted or dead; trials without result are orphaned.
    Gone,
}

/// The phase of a trial that has a directory.
///
/// The table is that of Harbor 0.21 and 0.26 as measured on their runs: later evidence wins over
/// earlier, a result over everything. Phases other than done are inferences from files.
pub fn of_trial(trial: &Trial, writer: Writer) -> Phase {
    if trial.result.is_some() {
        return Phase::Done;
    }
    if trial.unreadable {
        return Phase::Unreadable;
    }
    match (&trial.evidence, writer) {
        (_, Writer::Gone) => Phase::Orphaned,
        (Some(evidence), Writer::Possible) => of_evidence(evidence),
        (None, Writer::Possible) => Phase::Starting,
    }
}

/// The phase that the files of an unfinished trial show.
pub fn of_evidence(e: &Evidence) -> Phase {
    if e.reward.is_some() || e.exception.is_some() {
        return Phase::TearingDown;
    }
    if e.manifest.is_some() {
        return Phase::Verifying;
    }
    if let Some(progress) = e.trajectory {
        return Phase::AgentRunning(progress.episodes.saturating_add(1));
    }
    if e.config.is_none() {
        return Phase::Starting;
    }
    // From the second step on the container and the agent are up; root files begin anew.
    if e.cast.is_some() || e.agent_output || e.steps.len() > 1 {
        return Phase::AgentRunning(1);
    }
    if e.agent_any || e.log_started {
        return Phase::AgentSetup;
    }
    Phase::EnvironmentSetup
}

/// When the current phase of an unfinished trial began, as well as files can tell.
pub fn since(e: &Evidence) -> Option<Stamp> {
    match of_evidence(e) {
        Phase::TearingDown => e.reward.map(|r| r.at).or_else(|| e.exception.as_ref().map(|x| x.at)),
        Phase::Verifying => e.manifest,
        Phase::AgentRunning(_) => {
            e.trajectory.and_then(|p| p.last_step).or_else(|| e.cast.map(|c| c.modified)).or(e.newest)
        }
        Phase::AgentSetup | Phase::EnvironmentSetup => e.config.map(|c| c.modified),
        _ => e.began,
    }
}

/// The file that the phase was read from, relative to the trial dir; the evidence shown to people.
pub fn evidence_file(e: &Evidence) -> &'static str {
    if let Some(file) = e.shown_by {
        return file;
    }
    match of_evidence(e) {
        Phase::TearingDown if e.reward.is_some() => "verifier/reward.*",
        Phase::TearingDown => "exception.txt",
        Phase::Verifying => "artifacts/manifest.json",
        Phase::AgentRunning(_) if e.trajectory.is_some() => "agent/trajectory.json",
        Phase::AgentRunning(_) if e.cast.is_some() => "agent/recording.cast",
        Phase::AgentRunning(_) => "agent/",
        Phase::AgentSetup if e.agent_any => "agent/",
        Phase::AgentSetup => "trial.log",
        Phase::EnvironmentSetup => "config.json",
        _ => "lock.json",
    }
}
