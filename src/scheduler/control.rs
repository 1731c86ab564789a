//! What is wished of a running job, kept as the state that is wanted and not as a list of wishes: it
//! can not fill up, the latest counts, and asking never waits.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::policy::{Policy, Stop};

/// What is wanted and not done yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    /// So many trial slots.
    pub slots: Option<usize>,
    /// The job stopped this far.
    pub stop: Option<Stop>,
    /// These trials stopped, by their place in the plan.
    pub cancel: BTreeSet<usize>,
}

#[derive(Debug)]
struct State {
    wanted: Wanted,
    over: bool,
}

#[derive(Debug)]
struct Shared {
    /// Names of the trials in the order of the plan.
    names: Vec<String>,
    state: Mutex<State>,
    bell: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can be left half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a job stands at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Trial slots.
    pub slots: usize,
    /// Trials at work.
    pub running: usize,
    /// Trials that wait for their next attempt.
    pub waiting: usize,
    /// Trials that have not begun.
    pub queued: usize,
    /// Trials whose result stands.
    pub over: usize,
    /// How far it is stopped.
    pub stop: Stop,
}

impl Status {
    fn of(policy: &Policy) -> Status {
        Status {
            slots: policy.slots(),
            running: policy.running(),
            waiting: policy.waiting(),
            queued: policy.queued(),
            over: policy.over(),
            stop: policy.stopped(),
        }
    }
}

/// Steers a job; clones steer the same. Each wish says whether it was taken: it is not once the job is
/// over.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
    status: watch::Receiver<Status>,
}

impl Control {
    /// How the job stands, and every change of it; closed at the job's end.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    fn want(&self, want: impl FnOnce(&mut Wanted)) -> bool {
        let mut state = self.shared.lock();
        if state.over {
            return false;
        }
        want(&mut state.wanted);
        drop(state);
        self.shared.bell.notify_one();
        true
    }

    /// More or fewer trial slots, at least one; what runs runs on. False: not taken.
    pub fn set_slots(&self, slots: usize) -> bool {
        self.want(|wanted| wanted.slots = Some(slots))
    }

    /// Begins nothing new. False: not taken.
    pub fn drain(&self) -> bool {
        self.stop(Stop::Drain)
    }

    /// Begins nothing new and stops what runs: outputs are recovered, `CancelledError` is recorded.
    /// False: not taken.
    pub fn cancel(&self) -> bool {
        self.stop(Stop::Cancel)
    }

    fn stop(&self, stop: Stop) -> bool {
        self.want(|wanted| wanted.stop = wanted.stop.max(Some(stop)))
    }

    /// Stops one running trial, by its name. False: not taken, or the job has no such trial.
    pub fn cancel_trial(&self, name: &str) -> bool {
        let trial = self.shared.names.iter().position(|n| n == name);
        trial.is_some_and(|trial| self.want(|wanted| wanted.cancel.extend([trial])))
    }
}

/// The job's end of it. Dropping it, the job is over.
#[derive(Debug)]
pub(super) struct Wishes {
    shared: Arc<Shared>,
    status: watch::Sender<Status>,
}

/// Both ends, for a plan with trials of these names.
pub(super) fn control(names: Vec<String>, policy: &Policy) -> (Control, Wishes) {
    let state = Mutex::new(State { wanted: Wanted::default(), over: false });
    let shared = Arc::new(Shared { names, state, bell: Notify::new() });
    let (status, told) = watch::channel(Status::of(policy));
    (Control { shared: Arc::clone(&shared), status: told }, Wishes { shared, status })
}

impl Wishes {
    /// Waits until something is wanted and takes it. Nothing is lost when it is dropped before.
    pub async fn next(&self) -> Wanted {
        loop {
            let wanted = std::mem::take(&mut self.shared.lock().wanted);
            if wanted != Wanted::default() {
                return wanted;
            }
            self.shared.bell.notified().await;
        }
    }

    /// Tells how the job stands, where that has changed.
    pub fn tell(&self, policy: &Policy) {
        let now = Status::of(policy);
        self.status.send_if_modified(|told| std::mem::replace(told, now) != now);
    }

    /// Takes no more.
    pub fn close(&self) {
        self.shared.lock().over = true;
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        self.close();
    }
}
