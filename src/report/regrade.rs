//! Regrades in the JSON documents.

use serde::Serialize;

use crate::job::{Stamp, Trial};

/// Whether regrades count, and what that changes.
#[derive(Debug, Serialize)]
pub(super) struct RegradesJson {
    pub mode: &'static str,
    pub used: u64,
    pub more_passed: u64,
    pub fewer_passed: u64,
    pub ignored: u64,
}

/// One regrade of a trial.
#[derive(Debug, Serialize)]
pub(super) struct RegradeJson<'a> {
    n: u32,
    file: String,
    reward: Option<f64>,
    exception_type: Option<&'a str>,
    counts: bool,
    processes_lost: bool,
    task_changed: bool,
    operator: &'a str,
    why: &'a str,
    started_at: Option<String>,
    finished_at: Option<String>,
}

/// All of a trial's very attempt, oldest first.
pub(super) fn regrades(trial: &Trial) -> Vec<RegradeJson<'_>> {
    let stamp = |at: Option<Stamp>| at.map(|at| format!("{at:.6}"));
    let counts = trial.regrade().map(|r| r.n);
    let one = |r| {
        let r: &crate::job::Regrade = r;
        RegradeJson {
            n: r.n,
            file: r.file(),
            reward: r.reward().filter(|reward| reward.is_finite()),
            exception_type: r.exception.as_ref().map(|x| &*x.kind),
            counts: counts == Some(r.n),
            processes_lost: r.processes_lost,
            task_changed: r.task_changed,
            operator: &r.operator,
            why: &r.why,
            started_at: stamp(r.started),
            finished_at: stamp(r.finished),
        }
    };
    trial.regrades_of_this().map(one).collect()
}
