//! What a stop will touch, from what is known of the job: pure.

use std::sync::Arc;

use super::advice::StopSignal;
use super::owner::{Owner, Program};
use super::process::Disposition;
use crate::job::phase::Writer;
use crate::job::{Job, Phase, Stamp, Trial, time};

/// A trial that a stop would cancel.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningTrial {
    /// Directory name.
    pub trial: Arc<str>,
    /// Task.
    pub task: Arc<str>,
    /// Where it is.
    pub phase: Phase,
    /// Seconds since it began; None when unknown.
    pub elapsed: Option<f64>,
    /// Seconds until its limits end it at the latest; None when it has none or they are unknown.
    pub at_most: Option<f64>,
}

/// What a stop will touch and cost.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StopPlan {
    /// The job's name.
    pub job: Arc<str>,
    /// Trials that would be cancelled, the longest at work first.
    pub running: Vec<RunningTrial>,
    /// Trials with a result: kept as they are.
    pub finished: u64,
    /// Planned trials; None when unknown.
    pub planned: Option<u64>,
    /// Planned trials that have no directory yet: they stay undone.
    pub queued: Option<u64>,
    /// What such a stop leaves behind, line by line: what it always leaves, and what it can.
    pub stays: Vec<String>,
}

impl StopPlan {
    /// Seconds of trial time that a stop throws away, over the trials whose age is known, and how many
    /// of the running ones those are.
    pub fn lost(&self) -> (f64, usize) {
        let known: Vec<f64> = self.running.iter().filter_map(|t| t.elapsed).collect();
        (known.iter().sum(), known.len())
    }

    /// Seconds until the last running trial would be over if it used up its limits; None when one of
    /// them is unknown.
    pub fn drain_at_most(&self) -> Option<f64> {
        self.running.iter().map(|t| t.at_most).try_fold(0.0, |longest: f64, t| Some(longest.max(t?)))
    }

    /// `cancel 11 running, 4 h 02 m of trial time lost; 41 results kept; 16 queued stay undone`.
    pub fn price(&self) -> String {
        let (lost, known) = self.lost();
        let of = if known == self.running.len() { String::new() } else { format!(" (known for {known})") };
        let lost = if known == 0 { "-".to_string() } else { time::words(lost) };
        let mut out = match self.running.len() {
            0 => "nothing is running".to_string(),
            n => format!("cancel {n} running, {lost} of trial time lost{of}"),
        };
        let planned = self.planned.map_or("-".to_string(), |n| n.to_string());
        out.push_str(&format!("; {} of {planned} results kept", self.finished));
        if let Some(queued) = self.queued.filter(|n| *n > 0) {
            out.push_str(&format!("; {queued} queued stay undone"));
        }
        out
    }
}

/// What stopping a job will touch, `signal` being sent to `owner`.
pub fn plan(job: &Job, now: Stamp, owner: &Owner, signal: StopSignal) -> StopPlan {
    // Somebody works on it: trials without result are running.
    let mut running: Vec<RunningTrial> = job
        .trials
        .values()
        .filter(|trial| job.phase(trial, Writer::Possible).is_running())
        .map(|trial| running(job, trial, now))
        .collect();
    running.sort_by(|a, b| b.elapsed.unwrap_or(0.0).total_cmp(&a.elapsed.unwrap_or(0.0)).then(a.trial.cmp(&b.trial)));
    let planned = job.facts.n_planned().map(|(n, _)| n);
    let begun = job.trials.len() as u64;
    StopPlan {
        job: job.facts.name.clone(),
        finished: job.trials.values().filter(|t| t.result.is_some()).count() as u64,
        planned,
        queued: planned.map(|n| n.saturating_sub(begun)),
        stays: stays(owner, signal, running.len()),
        running,
    }
}

fn running(job: &Job, trial: &Trial, now: Stamp) -> RunningTrial {
    let began = trial.evidence.as_ref().and_then(|e| e.began);
    let elapsed = began.map(|b| time::age(b, now).as_secs_f64());
    let limits = &trial.limits;
    // Without the agent's limit nothing bounds the trial; the others have defaults.
    let whole = limits.agent.map(|agent| {
        agent + [limits.environment, limits.agent_setup, limits.verifier].into_iter().flatten().sum::<f64>()
    });
    RunningTrial {
        trial: trial.name.clone(),
        task: trial.task.clone(),
        phase: job.phase(trial, Writer::Possible),
        elapsed,
        at_most: whole.zip(elapsed).map(|(whole, elapsed)| (whole - elapsed).max(0.0)),
    }
}

fn stays(owner: &Owner, signal: StopSignal, running: usize) -> Vec<String> {
    let mut out = Vec::new();
    if running == 0 {
        out.push("nothing: no trial is running".to_string());
        return out;
    }
    let disposition = match signal {
        StopSignal::Term => owner.term,
        StopSignal::Int => owner.int,
    };
    match (owner.program, disposition) {
        (_, Disposition::Ignored) => out.push(format!("everything: {} is ignored", signal.name())),
        (Program::Pilothouse, _) => {
            out.push(format!("{running} cancelled trials with what they wrote (CancelledError)"));
        }
        (_, Disposition::Default) => {
            out.push(format!("{running} trial directories without result"));
            out.push(format!("{running} containers and networks, per-trial images, temporary files"));
        }
        _ => {
            out.push(format!(
                "up to {running} cancelled trials (CancelledError), which `harbor job resume` deletes and runs again"
            ));
            if signal == StopSignal::Term {
                out.push("perhaps a phantom result or a directory without result, of trials just starting".to_string());
            }
        }
    }
    out
}
