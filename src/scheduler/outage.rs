//! What a trial loses while the endpoint of its model is away: counted always, given back where the
//! operator wants so.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::job::work::{Doing, Work};
use crate::model::endpoint::Endpoint;

/// Between two looks at what a trial does while its endpoint is away.
const LOOK: Duration = Duration::from_millis(100);

/// Counts, for one phase of an agent, the time in which it waited for an endpoint that was away.
pub(super) struct Meter {
    endpoint: Option<Endpoint>,
    work: Arc<Mutex<Work>>,
    lost: Mutex<Sum>,
    /// The lost time is given back.
    pauses: bool,
}

/// Time so far, and since when it grows.
#[derive(Default)]
struct Sum {
    done: Duration,
    since: Option<Instant>,
}

/// What was counted in one phase.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    /// The step; None where the task has one only.
    pub step: Option<String>,
    /// Time in which it waited.
    pub lost: Duration,
    /// The limit of the phase, in seconds.
    pub limit: Option<f64>,
    /// It was given back.
    pub paused: bool,
}

impl Meter {
    pub(super) fn new(endpoint: Option<Endpoint>, work: Arc<Mutex<Work>>, pauses: bool) -> Meter {
        Meter { endpoint, work, lost: Mutex::default(), pauses }
    }

    /// For how long the phase's clock stood still.
    pub(super) fn stood(&self) -> Duration {
        if self.pauses { self.lost() } else { Duration::ZERO }
    }

    fn lost(&self) -> Duration {
        let sum = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        sum.done + sum.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether it waits from now on; what it waited until now is added.
    fn turn(&self, waits: bool) {
        let (mut sum, now) = (self.lost.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if let Some(since) = sum.since.take() {
            sum.done += now - since;
        }
        sum.since = waits.then_some(now);
    }

    /// Counts for as long as it is polled; never ends.
    pub(super) async fn count(&self) {
        let Some(endpoint) = &self.endpoint else { return std::future::pending().await };
        let mut standing = endpoint.changes();
        loop {
            if standing.wait_for(|now| now.closed.is_some()).await.is_err() {
                return std::future::pending().await;
            }
            loop {
                let closed = standing.borrow().closed.is_some();
                self.turn(closed && waits(&self.work));
                if !closed {
                    break;
                }
                tokio::select! {
                    changed = standing.changed() => if changed.is_err() { break },
                    () = sleep(LOOK) => {}
                }
            }
        }
    }

    /// What there is to note; None for an agent that has no endpoint.
    pub(super) fn read(&self, step: Option<&str>, limit: Option<f64>) -> Option<Lost> {
        self.endpoint.as_ref()?;
        Some(Lost { step: step.map(str::to_string), lost: self.lost(), limit, paused: self.pauses })
    }
}

/// Whether a trial waits for its model as far as it tells: not while it waits for a command of its own.
fn waits(work: &Mutex<Work>) -> bool {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner);
    !matches!(work.doing, Doing::Command { .. } | Doing::Done)
}

/// The part of a trial's note about its endpoint. The address is no part of it: it may be moved.
pub(super) fn note(all: &[Lost]) -> Option<Value> {
    let seconds = |d: Duration| (d.as_secs_f64() * 1000.0).round() / 1000.0;
    let one = |l: &Lost| {
        json!({
            "step": l.step,
            "lost_sec": seconds(l.lost),
            "limit_sec": l.limit,
            "clock": if l.paused { "stood still" } else { "ran on" },
        })
    };
    (!all.is_empty()).then(|| {
        json!({
            "lost_sec": seconds(all.iter().map(|l| l.lost).sum()),
            "phases": all.iter().map(one).collect::<Vec<_>>(),
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::harbor::write::raised::Raised;
    use crate::job::Stamp;
    use crate::scheduler::limits::{Limit, phase_beside};

    fn command() -> Doing {
        Doing::Command { keys: "make".to_string(), wait: 60.0, since: Stamp::default() }
    }

    /// An agent that is at its call for 0.4 s while the endpoint is away; then a command takes 0.4 s of the
    /// outage, and then it goes on for as long as it may, which is 1 s.
    fn lived(pauses: bool) -> (f64, f64, Result<(), Raised>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (endpoint, work) = (Endpoint::new("http://m/v1"), Arc::<Mutex<Work>>::default());
            let meter = Meter::new(Some(endpoint.clone()), Arc::clone(&work), pauses);
            let begin = Instant::now();
            let life = async {
                sleep(Duration::from_millis(100)).await;
                endpoint.close(Some("gone"));
                sleep(Duration::from_millis(400)).await;
                work.lock().unwrap().doing = command();
                sleep(Duration::from_millis(400)).await;
                endpoint.close(None);
                sleep(Duration::from_secs(60)).await;
                Ok(())
            };
            let limit = Limit { seconds: Some(1.0), kind: "AgentTimeoutError", what: "Agent execution" };
            let (_stop, mut cancel) = tokio::sync::watch::channel(false);
            let stood = || meter.stood();
            let done = tokio::select! {
                done = phase_beside(&mut cancel, limit, &stood, life) => done,
                () = meter.count() => unreachable!(),
            };
            (begin.elapsed().as_secs_f64(), meter.lost().as_secs_f64(), done)
        })
    }

    #[test]
    fn lost_time_is_counted_always_and_given_back_on_demand() {
        let (took, lost, done) = lived(false);
        assert!((1.0..2.0).contains(&took) && (0.35..0.79).contains(&lost), "{took} {lost}");
        assert_eq!(done.unwrap_err().kind, "AgentTimeoutError");
        let (took, lost, done) = lived(true);
        assert!(took >= 1.0 + lost - 0.01 && (0.35..0.79).contains(&lost), "{took} {lost}");
        assert_eq!(done.unwrap_err().kind, "AgentTimeoutError");
    }

    #[test]
    fn a_note_says_what_every_phase_lost() {
        assert!(note(&[]).is_none());
        let phase = |step: Option<&str>, ms| Lost {
            step: step.map(str::to_string),
            lost: Duration::from_millis(ms),
            limit: Some(60.0),
            paused: false,
        };
        let note = note(&[phase(Some("one"), 1500), phase(Some("two"), 0)]).unwrap();
        assert_eq!((&note["lost_sec"], &note["phases"][1]["lost_sec"]), (&1.5.into(), &0.0.into()));
        assert_eq!((&note["phases"][0]["clock"], &note["phases"][0]["step"]), (&"ran on".into(), &"one".into()));
    }
}
