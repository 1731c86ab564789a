//! When the running jobs will be done: a range, from what finished trials took and from limits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::fleet::{Fleet, Job, StateKind};
use super::slots;
use super::time::{self, Stamp};
use super::trial::{Limits, Trial};

/// Seconds that a trial's container takes to stop, measured: 11 s of grace and removal, and the rest
/// between phases.
pub const TEARDOWN_S: f64 = 12.0;

/// A range of seconds until everything has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Eta {
    /// If what remains takes as long as what has finished; None while nothing has finished.
    pub low_s: Option<f64>,
    /// If every remaining trial uses up its limits; None where no limits are known.
    pub high_s: Option<f64>,
    /// What the range was made from, in words.
    pub basis: String,
}

/// The range over all running jobs, which run side by side. None when nothing is left to run or no
/// job is running.
pub fn of_fleet(fleet: &Fleet, now: Stamp) -> Option<Eta> {
    let mut etas: Vec<Eta> = fleet.jobs().iter().filter_map(|job| of_job(job, now)).collect();
    if etas.len() < 2 {
        return etas.pop();
    }
    let unknown_low = etas.iter().any(|e| e.low_s.is_none());
    let unknown_high = etas.iter().any(|e| e.high_s.is_none());
    let latest = |get: fn(&Eta) -> Option<f64>| etas.iter().filter_map(get).fold(0.0, f64::max);
    let low = latest(|e| e.low_s);
    let high = latest(|e| e.high_s);
    Some(Eta {
        low_s: (!unknown_low).then_some(low),
        high_s: (!unknown_high).then_some(high),
        basis: format!("the last of {} running jobs", etas.len()),
    })
}

/// The range of one job.
pub fn of_job(job: &Job, now: Stamp) -> Option<Eta> {
    if job.state(now).kind != StateKind::Running {
        return None;
    }
    let open: Vec<&Trial> = job.trials.values().filter(|t| t.result.is_none() && !t.unreadable).collect();
    let planned = job.facts.n_planned().map_or(0, |(n, _)| n);
    let queued = planned.saturating_sub(job.trials.len() as u64);
    if open.is_empty() && queued == 0 {
        return None;
    }
    let at_once = job.facts.n_concurrent.map(|n| n.max(1) as usize);
    let lanes = at_once.unwrap_or(1).max(open.len()).max(1);
    let elapsed = |t: &Trial| slots::started(t).map_or(0.0, |start| time::age(start, now).as_secs_f64());

    let median = median(job.trials.values().filter_map(duration).collect());
    let low = median.map(|m| {
        let running = open.iter().map(|t| (m - elapsed(t)).max(0.0));
        let longest = running.clone().fold(if queued > 0 { m } else { 0.0 }, f64::max);
        ((running.sum::<f64>() + queued as f64 * m) / lanes as f64).max(longest)
    });

    let longest = job
        .trials
        .values()
        .filter_map(|t| total(&t.limits))
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    let high = longest.map(|longest| {
        let running = open.iter().map(|t| (total(&t.limits).unwrap_or(longest) - elapsed(t)).max(0.0)).collect();
        schedule(running, queued, longest, lanes)
    });
    let high = high.map(|h| h.max(low.unwrap_or(0.0))).filter(|h| h.is_finite());

    let ended = job.trials.values().filter_map(duration).count();
    let mut basis = match median {
        Some(m) => format!("{} running, {queued} queued; median of {ended} finished {}", open.len(), time::words(m)),
        None => format!("{} running, {queued} queued; none finished yet", open.len()),
    };
    basis.push_str(&match at_once {
        Some(n) => format!("; {n} at a time"),
        None => "; trials at a time not known".to_string(),
    });
    basis.push_str(match longest {
        Some(_) => "; at most the limits of each trial",
        None => "; limits not known",
    });
    Some(Eta { low_s: low, high_s: high, basis })
}

/// How long a finished trial took in seconds. Cancelled ones and phantoms say nothing about it.
fn duration(trial: &Trial) -> Option<f64> {
    let result = trial.result.as_ref().filter(|r| !r.is_phantom() && !r.is_cancelled())?;
    time::seconds_between(result.started?, result.finished?)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values.get(middle).copied(),
        _ => Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0),
    }
}

/// The sum of a trial's limits and the teardown. None where the agent's or verifier's is not known.
fn total(limits: &Limits) -> Option<f64> {
    let setup = limits.environment.unwrap_or(0.0) + limits.agent_setup.unwrap_or(0.0);
    Some(setup + limits.agent? + limits.verifier? + TEARDOWN_S).filter(|t| t.is_finite() && *t >= 0.0)
}

/// The end of the last trial when `queued` trials of `each` seconds follow the running ones, each on
/// the lane that is free first.
fn schedule(running: Vec<f64>, queued: u64, each: f64, lanes: usize) -> f64 {
    // The same to within one trial, for plans that nobody has the time to simulate.
    if queued > 1_000_000 {
        return (running.iter().sum::<f64>() + queued as f64 * each) / lanes as f64 + each;
    }
    let to_key = |seconds: f64| Reverse((seconds.clamp(0.0, 1e12) * 1000.0) as u64);
    let free = lanes.min(running.len().saturating_add(usize::try_from(queued).unwrap_or(usize::MAX)));
    let mut ends: BinaryHeap<Reverse<u64>> = running.into_iter().map(to_key).collect();
    while ends.len() < free {
        ends.push(to_key(0.0));
    }
    let step = to_key(each).0;
    for _ in 0..queued {
        let Some(Reverse(first)) = ends.pop() else { break };
        ends.push(Reverse(first.saturating_add(step)));
    }
    ends.into_iter().map(|Reverse(end)| end).max().unwrap_or(0) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_schedule_fills_the_free_lane_first() {
        // Lanes end at 10 and 4; three more of 6: 4→10, 10→16, 10→16.
        assert_eq!(schedule(vec![10.0, 4.0], 3, 6.0, 2), 16.0);
        assert_eq!(schedule(vec![], 3, 6.0, 2), 12.0);
        assert_eq!(schedule(vec![5.0], 0, 6.0, 4), 5.0);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
