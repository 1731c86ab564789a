//! Which trial begins when: pure, the time is an argument.
//!
//! Trials begin in the order of the plan. A trial holds its slot from its begin to its end, the wait
//! before a retry included, as under Harbor. Fewer slots end nothing: what runs runs on. While it is
//! paused, or a gate is closed, nothing begins; neither ends anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::adaptive::{Adapted, Adaptive, End, Pace, of_surroundings};
use super::control::Standing;
use super::gate::{Closed, Gate, Gates, Turned};
use crate::harbor::run_config::{HarborVersion, RetryConfig};
use crate::job::Stamp;
use crate::job::outcome::CANCELLED;
use crate::job::policy::PolicyOverrides;

/// Time since the job's begin on a clock that never goes back.
pub type Moment = Duration;

/// What is tried again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Retry {
    /// Harbor's rules.
    pub rules: RetryConfig,
    /// The job's own rules by exception type: they win over the rules' list of exclusions.
    pub overrides: PolicyOverrides,
}

impl Retry {
    /// How long to wait before the attempt after `attempt` (from 0), which ended with these exceptions;
    /// None: it was the last. A trial that was stopped is never tried again, one with a reward that counts
    /// (`graded`) only where the operator names the exception.
    pub fn wait<S: AsRef<str>>(&self, kinds: &[S], graded: bool, attempt: u32) -> Option<Duration> {
        let of = |kind: &S| self.overrides.get(kind.as_ref()).and_then(|o| o.should_retry);
        let listed = self.rules.include_exceptions.as_deref().unwrap_or_default();
        let named = |kind: &S| of(kind) == Some(true) || listed.iter().any(|l| l == kind.as_ref());
        let never = kinds.iter().any(|k| k.as_ref() == CANCELLED || of(k) == Some(false) || (graded && !named(k)));
        if kinds.is_empty() || never || attempt >= self.rules.max_retries {
            return None;
        }
        let rest: Vec<&str> = kinds.iter().filter(|k| of(k).is_none()).map(AsRef::as_ref).collect();
        let again = rest.is_empty() || self.rules.retryable(HarborVersion::V0_26, &rest);
        let wait = self.rules.wait_sec(attempt);
        again.then(|| Duration::try_from_secs_f64(wait).unwrap_or(Duration::ZERO))
    }
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Begin the first attempt of a trial, given by its place in the plan.
    Begin(usize),
    /// Set the last attempt of a trial aside and begin the next, counted from 1.
    Again(usize, u32),
}

/// What becomes of a trial whose attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Its result stands.
    Over,
    /// It is tried again at this time, unless the job is stopped before.
    RetryAt(Moment),
}

/// How far a stop has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Not stopped.
    No,
    /// Nothing new begins, what runs runs to its end.
    Drain,
    /// What runs is stopped, too.
    Cancel,
}

/// The plan at work.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    slots: usize,
    retry: Retry,
    stop: Stop,
    queue: VecDeque<usize>,
    /// Only one trial begins, until slots are set.
    first_alone: bool,
    paused: bool,
    gates: Gates,
    adaptive: Option<Adaptive>,
    /// Attempt, from 0, and when it began.
    running: BTreeMap<usize, (u32, Moment)>,
    /// Attempts of trials in the queue that were put back.
    back: BTreeMap<usize, u32>,
    /// The attempt to come, and when it is due.
    waiting: BTreeMap<usize, (u32, Moment)>,
    cancelled: BTreeSet<usize>,
    over: usize,
}

impl Policy {
    /// A plan of that many trials on so many slots, at least one.
    pub fn new(trials: usize, slots: usize, retry: Retry) -> Policy {
        Policy {
            slots: slots.max(1),
            retry,
            stop: Stop::No,
            queue: (0..trials).collect(),
            first_alone: false,
            paused: false,
            gates: Gates::default(),
            adaptive: None,
            running: BTreeMap::new(),
            back: BTreeMap::new(),
            waiting: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            over: 0,
        }
    }

    /// Lets the number of trials at a time follow the errors of their surroundings.
    pub fn adapt(&mut self, pace: Pace) {
        self.adaptive = Some(Adaptive::new(self.slots, pace));
    }

    /// Trials that may be at work at a time now.
    fn room(&self) -> usize {
        let slots = if self.first_alone { 1 } else { self.slots };
        self.adaptive.as_ref().map_or(slots, |adaptive| adaptive.limit().min(slots))
    }

    /// Whether nothing may begin, for whatever reason.
    fn held(&self) -> bool {
        self.stop != Stop::No || self.paused || !self.gates.open()
    }

    /// Whether [`Policy::orders`] would name something now.
    pub fn ready(&self, now: Moment) -> bool {
        !self.clone().orders(now).is_empty()
    }

    /// What is to be begun now; everything named counts as begun.
    pub fn orders(&mut self, now: Moment) -> Vec<Order> {
        let mut out = Vec::new();
        if self.held() {
            return out;
        }
        let room = self.room();
        // Those that wait hold a slot already, unless there are fewer now.
        let due: Vec<(usize, u32)> =
            self.waiting.iter().filter(|(_, (_, at))| *at <= now).map(|(t, (attempt, _))| (*t, *attempt)).collect();
        for (trial, attempt) in due {
            if self.running.len() < room {
                self.waiting.remove(&trial);
                self.running.insert(trial, (attempt, now));
                out.push(Order::Again(trial, attempt));
            }
        }
        let held = self.first_alone && (self.over > 0 || self.running.len() + self.waiting.len() > 0);
        while !held
            && self.running.len() + self.waiting.len() < room
            && let Some(trial) = self.queue.pop_front()
        {
            let back = self.back.remove(&trial);
            self.running.insert(trial, (back.unwrap_or(0), now));
            out.push(back.map_or(Order::Begin(trial), |attempt| Order::Again(trial, attempt)));
        }
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.at_work(self.running.len());
        }
        out
    }

    /// An attempt has ended with these exceptions, its own and those of its steps, and with or without a
    /// reward that counts. One that does not run changes nothing.
    pub fn ended<S: AsRef<str>>(&mut self, trial: usize, kinds: &[S], graded: bool, now: Moment) -> Next {
        let Some((attempt, _)) = self.running.remove(&trial) else { return Next::Over };
        let stopped = self.stop != Stop::No || self.cancelled.contains(&trial);
        match self.retry.wait(kinds, graded, attempt).filter(|_| !stopped) {
            Some(wait) => {
                let at = now.saturating_add(wait);
                self.waiting.insert(trial, (attempt + 1, at));
                Next::RetryAt(at)
            }
            None => {
                self.over += 1;
                Next::Over
            }
        }
    }

    /// Takes in, before [`Policy::ended`], what an end says of the surroundings; gives the change of the
    /// limit that follows. An end while a gate is closed says what the gate says already.
    pub fn learn<S: AsRef<str>>(&mut self, trial: usize, kinds: &[S], now: Moment) -> Option<Adapted> {
        let (_, began) = *self.running.get(&trial)?;
        let stopped = self.stop == Stop::Cancel || self.cancelled.contains(&trial);
        let adaptive = self.adaptive.as_mut().filter(|_| self.gates.open() && !stopped)?;
        adaptive.ended(End { trial, began, infra: of_surroundings(kinds) }, now)
    }

    /// One more trial at a time, where it has been calm for long enough.
    pub fn recover(&mut self, now: Moment) -> Option<Adapted> {
        let slots = self.slots;
        self.adaptive.as_mut().filter(|_| self.gates.open())?.up(slots, now)
    }

    /// An attempt had not begun its work when a gate closed: the trial goes back to the front of the queue
    /// and has lost no attempt. False: it does not run, or is being stopped.
    pub fn put_back(&mut self, trial: usize) -> bool {
        if self.stop != Stop::No || self.cancelled.contains(&trial) {
            return false;
        }
        let Some((attempt, _)) = self.running.remove(&trial) else { return false };
        self.back.insert(trial, attempt);
        self.queue.push_front(trial);
        true
    }

    /// Begins nothing until it is resumed; what runs runs on.
    pub fn pause(&mut self, pause: bool) {
        self.paused = pause;
    }

    /// Whether it is paused.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// How a gate stands: closed for a reason, or open. Gives what changed.
    pub fn gate(&mut self, gate: Gate, why: Option<&str>, now: Stamp) -> Option<Turned> {
        self.gates.set(gate, why, now)
    }

    /// Gates that are closed.
    pub fn closed(&self) -> Vec<Closed> {
        self.gates.closed()
    }

    /// Trials that have not begun go to the front of the queue, in this order. Those that have are left
    /// alone.
    pub fn first(&mut self, trials: &[usize]) {
        for trial in trials.iter().rev() {
            if let Some(at) = self.queue.iter().position(|t| t == trial) {
                self.queue.remove(at);
                self.queue.push_front(*trial);
            }
        }
    }

    /// Fewer trials at a time than there are slots, for now, and whether that has settled; None: no.
    pub fn limit(&self) -> Option<(usize, bool)> {
        self.adaptive.as_ref().map(|a| (a.limit(), a.settled())).filter(|(limit, _)| *limit < self.slots)
    }

    /// More or fewer slots, at least one.
    pub fn set_slots(&mut self, slots: usize, now: Moment) {
        self.slots = slots.max(1);
        self.first_alone = false;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.reset(self.slots, now);
        }
    }

    /// Lets one trial begin, and no other before slots are set.
    pub fn first_alone(&mut self) {
        self.first_alone = true;
    }

    /// Stops the job this far; a stop is never taken back. The results of trials that waited for a retry
    /// stand. Gives the running trials that are to be stopped now, in the order of the plan.
    pub fn stop(&mut self, stop: Stop) -> Vec<usize> {
        if stop == Stop::No || self.stop == Stop::Cancel {
            return Vec::new();
        }
        self.stop = stop;
        self.over += self.waiting.len();
        self.waiting.clear();
        if stop != Stop::Cancel {
            return Vec::new();
        }
        self.running.keys().copied().filter(|t| self.cancelled.insert(*t)).collect()
    }

    /// Stops one trial: true when it runs and is to be stopped. One that waits for a retry ends with the
    /// result it has. One that has not begun, or is over, is left alone: it has no files to say so in.
    pub fn cancel(&mut self, trial: usize) -> bool {
        if self.waiting.remove(&trial).is_some() {
            self.over += 1;
        }
        self.running.contains_key(&trial) && self.cancelled.insert(trial)
    }

    /// When [`Policy::orders`] has something new without anything else happening; None: never.
    pub fn due(&self) -> Option<Moment> {
        if self.held() {
            return None;
        }
        let free = self.running.len() < self.room();
        let waiting = self.waiting.values().map(|(_, at)| *at).min().filter(|_| free);
        let more = self.adaptive.as_ref().and_then(|a| a.due(self.slots));
        waiting.into_iter().chain(more).min()
    }

    /// Whether nothing runs and nothing will.
    pub fn is_over(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && (self.queue.is_empty() || self.stop != Stop::No)
    }

    /// Trial slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Trials at work.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Trials that wait for their next attempt.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Trials whose result stands.
    pub fn over(&self) -> usize {
        self.over
    }

    /// Trials that never began.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Where each of so many trials stands.
    pub fn standings(&self, trials: usize) -> Vec<Standing> {
        let mut out = vec![Standing::Over; trials];
        let mut put = |trial: usize, standing| out.get_mut(trial).into_iter().for_each(|at| *at = standing);
        self.queue.iter().enumerate().for_each(|(before, trial)| put(*trial, Standing::Queued(before)));
        self.running.keys().for_each(|trial| put(*trial, Standing::Running));
        self.waiting.keys().for_each(|trial| put(*trial, Standing::Waiting));
        out
    }

    /// How far the job is stopped.
    pub fn stopped(&self) -> Stop {
        self.stop
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::job::policy::ErrorPolicyOverride;

    fn retry(max_retries: u32, wait: f64) -> Retry {
        let rules = RetryConfig { max_retries, min_wait_sec: wait, ..RetryConfig::default() };
        Retry { rules, overrides: PolicyOverrides::new() }
    }

    #[test]
    fn retries_follow_the_table_and_the_job() {
        let mut retry = retry(2, 1.0);
        retry.rules.wait_multiplier = 3.0;
        assert_eq!(retry.wait(&["RuntimeError"], false, 0), Some(Duration::from_secs(1)));
        assert_eq!(retry.wait(&["RuntimeError"], false, 1), Some(Duration::from_secs(3)));
        assert_eq!(retry.wait(&["RuntimeError"], false, 2), None);
        // A reward that counts is not put at stake, unless the operator says so.
        assert_eq!(retry.wait(&["RuntimeError"], true, 0), None);
        retry.rules.include_exceptions = Some(vec!["RuntimeError".into()]);
        assert!(retry.wait(&["RuntimeError"], true, 0).is_some());
        retry.rules.include_exceptions = None;
        assert_eq!(retry.wait::<&str>(&[], false, 0), None);
        assert_eq!(retry.wait(&["AgentTimeoutError"], false, 0), None);
        assert_eq!(retry.wait(&["RuntimeError", "AgentTimeoutError"], false, 0), None);
        let own =
            |should_retry| ErrorPolicyOverride { should_retry: Some(should_retry), ..ErrorPolicyOverride::default() };
        retry.overrides.insert("AgentTimeoutError".into(), own(true));
        retry.overrides.insert("RuntimeError".into(), own(false));
        assert!(retry.wait(&["AgentTimeoutError"], false, 0).is_some());
        assert_eq!(retry.wait(&["RuntimeError"], false, 0), None);
        retry.rules.exclude_exceptions = None;
        retry.overrides.insert(CANCELLED.into(), own(true));
        assert_eq!(retry.wait(&[CANCELLED], false, 0), None);
    }

    #[test]
    fn a_wait_holds_its_slot_and_fewer_slots_let_what_runs_run() {
        let mut policy = Policy::new(4, 2, retry(1, 1.0));
        let s = Duration::from_secs;
        assert_eq!(policy.orders(s(0)), [Order::Begin(0), Order::Begin(1)]);
        assert_eq!(policy.ended(0, &["RuntimeError"], false, s(5)), Next::RetryAt(s(6)));
        assert_eq!((policy.orders(s(5)), policy.due()), (vec![], Some(s(6))));
        assert_eq!(policy.orders(s(6)), [Order::Again(0, 1)]);
        policy.set_slots(0, s(6));
        assert_eq!(policy.ended(1, &[""; 0], false, s(7)), Next::Over);
        assert_eq!((policy.slots(), policy.orders(s(7))), (1, vec![]));
        assert_eq!(policy.ended(0, &["RuntimeError"], false, s(8)), Next::Over);
        policy.set_slots(3, s(8));
        assert_eq!(policy.orders(s(8)), [Order::Begin(2), Order::Begin(3)]);
        assert!(policy.cancel(3) && !policy.cancel(3));
        assert_eq!(policy.stop(Stop::Cancel), [2]);
    }

    #[test]
    fn the_first_is_alone_until_slots_are_set() {
        let mut policy = Policy::new(3, 2, Retry::default());
        policy.first_alone();
        let s = Duration::from_secs;
        assert_eq!((policy.orders(s(0)), policy.orders(s(0))), (vec![Order::Begin(0)], vec![]));
        assert_eq!(policy.ended(0, &[""; 0], true, s(1)), Next::Over);
        assert_eq!((policy.orders(s(1)), policy.is_over(), policy.slots()), (vec![], false, 2));
        policy.set_slots(2, s(1));
        assert_eq!(policy.orders(s(2)), [Order::Begin(1), Order::Begin(2)]);
    }

    #[test]
    fn a_pause_and_a_closed_gate_begin_nothing_and_end_nothing() {
        let mut policy = Policy::new(4, 2, retry(1, 1.0));
        let s = Duration::from_secs;
        let at = Stamp::UNIX_EPOCH;
        assert_eq!(policy.orders(s(0)).len(), 2);
        policy.pause(true);
        assert_eq!(policy.ended(0, &["RuntimeError"], false, s(1)), Next::RetryAt(s(2)));
        assert_eq!((policy.orders(s(9)), policy.due(), policy.is_over()), (vec![], None, false));
        policy.pause(false);
        assert!(policy.gate(Gate::Disk, Some("full"), at).is_some() && policy.orders(s(9)).is_empty());
        // What could not begin for the gate has lost nothing.
        assert!(policy.put_back(1) && !policy.put_back(1));
        assert_eq!((policy.queued(), policy.running()), (3, 0));
        policy.first(&[3, 9]);
        policy.gate(Gate::Disk, None, at);
        assert_eq!(policy.orders(s(9)), [Order::Again(0, 1), Order::Begin(3)]);
        policy.set_slots(9, s(9));
        assert_eq!(policy.orders(s(9)), [Order::Again(1, 0), Order::Begin(2)]);
        policy.stop(Stop::Drain);
        assert!(!policy.put_back(2), "what is stopped ends");
    }

    #[test]
    fn fewer_at_a_time_while_the_surroundings_fail() {
        let mut policy = Policy::new(20, 4, Retry::default());
        policy.adapt(Pace::default());
        let s = Duration::from_secs;
        assert_eq!((policy.orders(s(0)).len(), policy.limit()), (4, None));
        assert_eq!(policy.learn(0, &["AgentTimeoutError"], s(1)), None);
        policy.gate(Gate::Docker, Some("away"), Stamp::UNIX_EPOCH);
        assert_eq!(policy.learn(1, &["RuntimeError"], s(1)), None, "the gate tells it");
        policy.gate(Gate::Docker, None, Stamp::UNIX_EPOCH);
        assert_eq!(policy.learn(1, &["RuntimeError"], s(1)), None);
        assert!(matches!(policy.learn(2, &["OSError"], s(1)), Some(Adapted::Changed { from: 4, to: 3, .. })));
        assert_eq!(policy.limit(), Some((3, false)));
        for trial in 0..4 {
            policy.ended(trial, &[""; 0], true, s(2));
        }
        assert_eq!(policy.orders(s(2)).len(), 3);
        policy.set_slots(5, s(3));
        assert_eq!((policy.limit(), policy.orders(s(3)).len()), (None, 2));
    }

    #[derive(Debug, Clone)]
    enum Event {
        End(usize, bool),
        Slots(usize),
        Pass(u64),
        Cancel(usize),
        Stop(bool),
        Pause(bool),
        Gate(bool),
        First(Vec<usize>),
        Back(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => (any::<usize>(), any::<bool>()).prop_map(|(i, bad)| Event::End(i, bad)),
            2 => (0..6usize).prop_map(Event::Slots),
            4 => (0..3000u64).prop_map(Event::Pass),
            1 => (0..24usize).prop_map(Event::Cancel),
            1 => any::<bool>().prop_map(Event::Stop),
            1 => any::<bool>().prop_map(Event::Pause),
            1 => any::<bool>().prop_map(Event::Gate),
            1 => prop::collection::vec(0..24usize, 0..4).prop_map(Event::First),
            1 => any::<usize>().prop_map(Event::Back),
        ]
    }

    proptest! {
        #[test]
        fn slots_hold_and_every_trial_ends_once(
            trials in 0..20usize,
            slots in 1..5usize,
            retries in 0..3u32,
            events in prop::collection::vec(event(), 0..120),
        ) {
            let mut policy = Policy::new(trials, slots, retry(retries, 1.0));
            let mut now = Duration::ZERO;
            let mut running: Vec<usize> = Vec::new();
            let (mut attempts, mut final_ends) = (vec![0u32; trials], vec![0u32; trials]);
            let mut begun = Vec::new();
            let (mut stopped, mut paused, mut closed, mut moved) = (false, false, false, false);
            let mut backs = vec![0u32; trials];
            let mut events = events.into_iter();
            let mut steps = 0;
            while !policy.is_over() {
                steps += 1;
                prop_assert!(steps < 2000, "no end");
                for order in policy.orders(now) {
                    prop_assert!(!stopped && !paused && !closed, "begun while it must not");
                    prop_assert!(running.len() < policy.slots());
                    let trial = match order {
                        Order::Begin(trial) => { begun.push(trial); trial }
                        Order::Again(trial, attempt) => { prop_assert_eq!(attempt, attempts[trial] - backs[trial]); trial }
                    };
                    prop_assert!(!running.contains(&trial));
                    attempts[trial] += 1;
                    running.push(trial);
                }
                prop_assert_eq!(running.len(), policy.running());
                let event = events.next();
                if event.is_none() {
                    // When the events are used up, everything ends well.
                    (paused, closed) = (false, false);
                    policy.pause(false);
                    policy.gate(Gate::Docker, None, Stamp::UNIX_EPOCH);
                }
                match event {
                    Some(Event::Slots(n)) => policy.set_slots(n, now),
                    Some(Event::Pause(to)) => { paused = to; policy.pause(to); }
                    Some(Event::Gate(to)) => {
                        closed = to;
                        policy.gate(Gate::Docker, to.then_some("away"), Stamp::UNIX_EPOCH);
                    }
                    Some(Event::First(list)) => { moved |= !list.is_empty(); policy.first(&list); }
                    Some(Event::Back(i)) if !running.is_empty() => {
                        let trial = running[i % running.len()];
                        if policy.put_back(trial) {
                            running.retain(|t| *t != trial);
                            backs[trial] += 1;
                            moved = true;
                        }
                    }
                    Some(Event::Pass(ms)) => now += Duration::from_millis(ms),
                    Some(Event::Cancel(t)) => prop_assert!(!policy.cancel(t) || running.contains(&t)),
                    Some(Event::Stop(hard)) => {
                        stopped = true;
                        for t in policy.stop(if hard { Stop::Cancel } else { Stop::Drain }) {
                            prop_assert!(running.contains(&t));
                        }
                    }
                    other => {
                        let (i, bad) = match other { Some(Event::End(i, bad)) => (i, bad), _ => (0, false) };
                        if running.is_empty() {
                            now = policy.due().unwrap_or(now).max(now);
                            continue;
                        }
                        let trial = running.swap_remove(i % running.len());
                        let kinds: &[&str] = if bad { &["RuntimeError"] } else { &[] };
                        if policy.ended(trial, kinds, false, now) == Next::Over {
                            final_ends[trial] += 1;
                        }
                    }
                }
            }
            prop_assert!(running.is_empty() && policy.orders(now).is_empty());
            prop_assert!(moved || begun.windows(2).all(|w| w[0] < w[1]), "not in the order of the plan");
            prop_assert!(attempts.iter().zip(&backs).all(|(a, b)| *a <= retries + 1 + b));
            prop_assert!(final_ends.iter().all(|n| *n <= 1));
            prop_assert_eq!(policy.over() + policy.queued(), trials);
            let waits_again = policy.back.len();
            prop_assert_eq!(begun.len() + policy.queued() - waits_again, trials);
            if !stopped {
                prop_assert_eq!(policy.over(), trials);
            }
        }
    }
}
