//! What is wished of a running job, kept as the state that is wanted and not as a list of wishes: it
//! can not fill up, the latest counts, and asking never waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::board::Board;
use super::gate::{Closed, Gate};
use super::policy::{Policy, Stop};

/// What is wanted and not done yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    /// So many trial slots.
    pub slots: Option<usize>,
    /// So many agent slots.
    pub agents: Option<usize>,
    /// Paused, or not.
    pub pause: Option<bool>,
    /// The job stopped this far.
    pub stop: Option<Stop>,
    /// These trials stopped, by their place in the plan.
    pub cancel: BTreeSet<usize>,
    /// These at the front of the queue, in this order.
    pub first: Vec<usize>,
    /// Gates as somebody outside sees them.
    pub gates: BTreeMap<Gate, Option<String>>,
}

/// Names by which a trial is known.
#[derive(Debug, Clone)]
pub(super) struct Named {
    /// The trial's.
    pub trial: String,
    /// The task's, whole and short.
    pub task: [String; 2],
}

/// Where a trial stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has not begun; so many go before it.
    Queued(usize),
    /// An attempt of it is at work.
    Running,
    /// It waits for its next attempt.
    Waiting,
    /// Its result stands.
    Over,
}

#[derive(Debug)]
struct State {
    wanted: Wanted,
    standing: Vec<Standing>,
    over: bool,
}

#[derive(Debug)]
struct Shared {
    /// Names of the trials in the order of the plan.
    names: Vec<Named>,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Trial slots.
    pub slots: usize,
    /// Fewer trials at a time than slots, for the errors of their surroundings, and whether that has
    /// settled; None: no.
    pub limit: Option<(usize, bool)>,
    /// Agents that may work at a time; None: as many as trials.
    pub agents: Option<usize>,
    /// Agents at work.
    pub agents_at_work: usize,
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
    /// Nothing begins until it is resumed.
    pub paused: bool,
    /// Gates that are closed: nothing begins until they open.
    pub closed: Vec<Closed>,
}

impl Status {
    fn of(policy: &Policy, (agents, agents_at_work): (Option<usize>, usize)) -> Status {
        Status {
            slots: policy.slots(),
            limit: policy.limit(),
            agents,
            agents_at_work,
            running: policy.running(),
            waiting: policy.waiting(),
            queued: policy.queued(),
            over: policy.over(),
            stop: policy.stopped(),
            paused: policy.paused(),
            closed: policy.closed(),
        }
    }
}

/// Steers a job; clones steer the same. Each wish says whether it was taken: it is not once the job is
/// over.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
    status: watch::Receiver<Status>,
    board: Board,
}

impl Control {
    /// What the agents of running trials do.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

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

    /// More or fewer agents at work at a time, at least one; those at work work on. Where agents have
    /// limits of their own each gets this one, as by Harbor's `--n-concurrent-agents`. False: not taken.
    pub fn set_agents(&self, agents: usize) -> bool {
        self.want(|wanted| wanted.agents = Some(agents))
    }

    /// Begins nothing until [`Control::resume`]; what runs runs on. False: not taken.
    pub fn pause(&self) -> bool {
        self.want(|wanted| wanted.pause = Some(true))
    }

    /// Begins trials again. False: not taken.
    pub fn resume(&self) -> bool {
        self.want(|wanted| wanted.pause = Some(false))
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
        let trial = self.shared.names.iter().position(|n| n.trial == name);
        trial.is_some_and(|trial| self.cancel_trials(&[trial]))
    }

    /// Stops running trials, by their place in the plan. False: not taken.
    pub fn cancel_trials(&self, trials: &[usize]) -> bool {
        self.want(|wanted| wanted.cancel.extend(trials))
    }

    /// Puts trials that have not begun to the front of the queue, in this order, by their place in the
    /// plan. False: not taken.
    pub fn first(&self, trials: &[usize]) -> bool {
        self.want(|wanted| {
            wanted.first.retain(|t| !trials.contains(t));
            wanted.first.splice(0..0, trials.iter().copied());
        })
    }

    /// Says how a gate stands as somebody outside sees it: closed for a reason (safe to print), or open.
    /// Nothing begins while one is closed. False: not taken.
    pub fn gate(&self, gate: Gate, why: Option<&str>) -> bool {
        self.want(|wanted| {
            wanted.gates.insert(gate, why.map(str::to_string));
        })
    }

    /// The trials that a word means: one by its name, or those of a task by its whole or short name. By
    /// their place in the plan.
    pub fn find(&self, word: &str) -> Vec<usize> {
        let places = |fits: &dyn Fn(&Named) -> bool| -> Vec<usize> {
            self.shared.names.iter().enumerate().filter(|(_, n)| fits(n)).map(|(at, _)| at).collect()
        };
        let one = places(&|n| n.trial == word);
        if one.is_empty() { places(&|n| n.task.iter().any(|task| task == word)) } else { one }
    }

    /// Name of a trial, and where it stands; None: the plan has no such place.
    pub fn trial(&self, at: usize) -> Option<(String, Standing)> {
        let standing = self.shared.lock().standing.get(at).copied()?;
        Some((self.shared.names.get(at)?.trial.clone(), standing))
    }

    /// Every trial of the plan with where it stands.
    pub fn trials(&self) -> Vec<(String, Standing)> {
        let standing = self.shared.lock().standing.clone();
        self.shared.names.iter().map(|n| n.trial.clone()).zip(standing).collect()
    }
}

/// The job's end of it. Dropping it, the job is over.
#[derive(Debug)]
pub(super) struct Wishes {
    shared: Arc<Shared>,
    status: watch::Sender<Status>,
}

/// Both ends, for a plan with trials of these names.
pub(super) fn control(
    names: Vec<Named>,
    policy: &Policy,
    agents: (Option<usize>, usize),
    board: Board,
) -> (Control, Wishes) {
    let state = State { wanted: Wanted::default(), standing: policy.standings(names.len()), over: false };
    let shared = Arc::new(Shared { names, state: Mutex::new(state), bell: Notify::new() });
    let (status, told) = watch::channel(Status::of(policy, agents));
    (Control { shared: Arc::clone(&shared), status: told, board }, Wishes { shared, status })
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
    pub fn tell(&self, policy: &Policy, agents: (Option<usize>, usize)) {
        let now = Status::of(policy, agents);
        let standing = policy.standings(self.shared.names.len());
        self.shared.lock().standing = standing;
        self.status.send_if_modified(|told| {
            let changed = *told != now;
            *told = now;
            changed
        });
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
