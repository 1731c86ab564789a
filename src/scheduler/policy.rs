//! Which trial begins when: pure, the time is an argument.
//!
//! Trials begin in the order of the plan. A trial holds its slot from its begin to its end, the wait
//! before a retry included, as under Harbor. Fewer slots end nothing: what runs runs on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::harbor::run_config::{HarborVersion, RetryConfig};
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
    /// Attempt, from 0.
    running: BTreeMap<usize, u32>,
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
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            over: 0,
        }
    }

    /// What is to be begun now; everything named counts as begun.
    pub fn orders(&mut self, now: Moment) -> Vec<Order> {
        let mut out = Vec::new();
        if self.stop != Stop::No {
            return out;
        }
        // Those that wait hold a slot already, unless there are fewer now.
        let due: Vec<(usize, u32)> =
            self.waiting.iter().filter(|(_, (_, at))| *at <= now).map(|(t, (attempt, _))| (*t, *attempt)).collect();
        for (trial, attempt) in due {
            if self.running.len() < self.slots {
                self.waiting.remove(&trial);
                self.running.insert(trial, attempt);
                out.push(Order::Again(trial, attempt));
            }
        }
        let held = self.first_alone && (self.over > 0 || self.running.len() + self.waiting.len() > 0);
        let slots = if self.first_alone { 1 } else { self.slots };
        while !held
            && self.running.len() + self.waiting.len() < slots
            && let Some(trial) = self.queue.pop_front()
        {
            self.running.insert(trial, 0);
            out.push(Order::Begin(trial));
        }
        out
    }

    /// An attempt has ended with these exceptions, its own and those of its steps, and with or without a
    /// reward that counts. One that does not run changes nothing.
    pub fn ended<S: AsRef<str>>(&mut self, trial: usize, kinds: &[S], graded: bool, now: Moment) -> Next {
        let Some(attempt) = self.running.remove(&trial) else { return Next::Over };
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

    /// More or fewer slots, at least one.
    pub fn set_slots(&mut self, slots: usize) {
        self.slots = slots.max(1);
        self.first_alone = false;
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
        let free = self.stop == Stop::No && self.running.len() < self.slots;
        self.waiting.values().map(|(_, at)| *at).min().filter(|_| free)
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
        policy.set_slots(0);
        assert_eq!(policy.ended(1, &[""; 0], false, s(7)), Next::Over);
        assert_eq!((policy.slots(), policy.orders(s(7))), (1, vec![]));
        assert_eq!(policy.ended(0, &["RuntimeError"], false, s(8)), Next::Over);
        policy.set_slots(3);
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
        policy.set_slots(2);
        assert_eq!(policy.orders(s(2)), [Order::Begin(1), Order::Begin(2)]);
    }

    #[derive(Debug, Clone)]
    enum Event {
        End(usize, bool),
        Slots(usize),
        Pass(u64),
        Cancel(usize),
        Stop(bool),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => (any::<usize>(), any::<bool>()).prop_map(|(i, bad)| Event::End(i, bad)),
            2 => (0..6usize).prop_map(Event::Slots),
            4 => (0..3000u64).prop_map(Event::Pass),
            1 => (0..24usize).prop_map(Event::Cancel),
            1 => any::<bool>().prop_map(Event::Stop),
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
            let mut stopped = false;
            let mut events = events.into_iter();
            let mut steps = 0;
            while !policy.is_over() {
                steps += 1;
                prop_assert!(steps < 2000, "no end");
                for order in policy.orders(now) {
                    prop_assert!(!stopped, "begun after a stop");
                    prop_assert!(running.len() < policy.slots());
                    let trial = match order {
                        Order::Begin(trial) => { begun.push(trial); trial }
                        Order::Again(trial, attempt) => { prop_assert_eq!(attempt, attempts[trial]); trial }
                    };
                    prop_assert!(!running.contains(&trial));
                    attempts[trial] += 1;
                    running.push(trial);
                }
                prop_assert_eq!(running.len(), policy.running());
                // When the events are used up, everything ends well.
                match events.next() {
                    Some(Event::Slots(n)) => policy.set_slots(n),
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
            prop_assert!(begun.windows(2).all(|w| w[0] < w[1]), "not in the order of the plan");
            prop_assert!(attempts.iter().all(|a| *a <= retries + 1));
            prop_assert!(final_ends.iter().all(|n| *n <= 1));
            prop_assert_eq!(policy.over() + policy.queued(), trials);
            prop_assert_eq!(begun.len() + policy.queued(), trials);
            if !stopped {
                prop_assert_eq!(policy.over(), trials);
            }
        }
    }
}
