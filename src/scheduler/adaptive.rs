//! Fewer trials at a time while their surroundings fail, more again later: pure, the time is an argument.
//!
//! Only attempts that began after the last change say something about the number as it is now: what began
//! before it was begun among more. A number that failed is not tried again at once: each time it fails the
//! wait before the next try doubles, so that the limit settles right below it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::policy::Moment;

/// Exception types that tell of a trial's surroundings, containers, disk, network,
/// the model's server. What a trial did to itself is not among them.
const SURROUNDINGS: [&str; 15] = [
    "RuntimeError",
    "OSError",
    "EnvironmentStartTimeoutError",
    "SandboxBuildFailedError",
    "HealthcheckError",
    "AddTestsDirError",
    "DownloadVerifierDirError",
    "AgentSetupTimeoutError",
    "RateLimitError",
    "APIConnectionError",
    "APITimeoutError",
    "InternalServerError",
    "ServiceUnavailableError",
    "ConnectError",
    "RemoteProtocolError",
];

/// Whether a trial with these exceptions failed for its surroundings.
pub fn of_surroundings<S: AsRef<str>>(kinds: &[S]) -> bool {
    kinds.iter().any(|kind| SURROUNDINGS.contains(&kind.as_ref()))
}

/// How fast it reacts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Time without errors before one more is tried; doubles for a number that failed before.
    pub calm: Duration,
    /// The longest such wait.
    pub longest: Duration,
    /// Trials with errors of their surroundings, among the last ones, that make a cluster.
    pub cluster: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { calm: Duration::from_secs(120), longest: Duration::from_secs(2 * 3600), cluster: 2 }
    }
}

/// An attempt that has ended, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// Which trial, by its place in the plan.
    pub trial: usize,
    /// When it began.
    pub began: Moment,
    /// It failed for its surroundings.
    pub infra: bool,
}

/// A change of the limit, or that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adapted {
    /// The limit is another one now.
    Changed {
        /// Before.
        from: usize,
        /// Now.
        to: usize,
        /// Why, in words.
        why: String,
    },
    /// It holds: one more has failed, and this many go well.
    Settled {
        /// At so many.
        at: usize,
        /// Why, in words.
        why: String,
    },
}

/// The limit at work.
#[derive(Debug, Clone, PartialEq)]
pub struct Adaptive {
    pace: Pace,
    limit: usize,
    /// When the limit changed last: younger attempts count.
    since: Moment,
    /// When something failed last in this time, or it began.
    quiet: Moment,
    /// The last ends that count, newest last: which trial, and whether it failed.
    ends: VecDeque<(usize, bool)>,
    /// As many were at work at once in this time.
    full: bool,
    /// The least number that failed and how often.
    bad: Option<(usize, u32)>,
    /// The largest number that went well.
    good: usize,
    settled: bool,
}

impl Adaptive {
    /// Begins with no limit below `slots`.
    pub fn new(slots: usize, pace: Pace) -> Adaptive {
        Adaptive {
            pace,
            limit: slots.max(1),
            since: Duration::ZERO,
            quiet: Duration::ZERO,
            ends: VecDeque::new(),
            full: false,
            bad: None,
            good: 0,
            settled: false,
        }
    }

    /// So many at a time.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether it has settled.
    pub fn settled(&self) -> bool {
        self.settled
    }

    /// The operator set the slots: the limit begins there anew.
    pub fn reset(&mut self, slots: usize, now: Moment) {
        *self = Adaptive { since: now, quiet: now, ..Adaptive::new(slots, self.pace) };
    }

    /// So many are at work.
    pub fn at_work(&mut self, running: usize) {
        self.full |= running >= self.limit;
    }

    /// Ends of this many trials are looked at.
    fn window(&self) -> usize {
        (2 * self.limit).max(4)
    }

    /// Takes in an end; gives the change that follows.
    pub fn ended(&mut self, end: End, now: Moment) -> Option<Adapted> {
        if end.began < self.since {
            return None;
        }
        if end.infra {
            self.quiet = now;
        }
        self.ends.push_back((end.trial, end.infra));
        while self.ends.len() > self.window() {
            self.ends.pop_front();
        }
        // One trial that fails again and again is its own fault.
        let failed: BTreeSet<usize> = self.ends.iter().filter(|(_, bad)| *bad).map(|(trial, _)| *trial).collect();
        if failed.len() >= self.pace.cluster.max(1) && self.limit > 1 {
            return Some(self.down(failed.len(), now));
        }
        let well = self.full && self.ends.len() >= self.window() && failed.is_empty();
        if well {
            self.good = self.good.max(self.limit);
            // It failed once and goes well now.
            self.bad = self.bad.filter(|(bad, _)| *bad > self.limit);
            let above = self.bad.is_some_and(|(bad, _)| bad == self.limit + 1);
            if above && !self.settled {
                self.settled = true;
                let why =
                    format!("{} at a time brought errors, the last {} ends had none", self.limit + 1, self.window());
                return Some(Adapted::Settled { at: self.limit, why });
            }
        }
        None
    }

    fn down(&mut self, failed: usize, now: Moment) -> Adapted {
        let from = self.limit;
        let times = self.bad.filter(|(bad, _)| *bad == from).map_or(0, |(_, times)| times);
        self.bad = Some((from, times + 1));
        if self.good >= from {
            // It went well once and does not any more: what was learnt is stale.
            self.good = 0;
        }
        // Back to what went well, else a third less.
        let less = from.saturating_sub((from / 3).max(1)).max(1);
        let to = if self.good > 0 { self.good } else { less };
        let why = format!("{failed} of the last {} ends failed for their surroundings", self.ends.len());
        self.turn(to, now);
        Adapted::Changed { from, to, why }
    }

    fn turn(&mut self, to: usize, now: Moment) {
        self.limit = to;
        self.since = now;
        self.quiet = now;
        self.ends.clear();
        self.full = false;
        self.settled = false;
    }

    /// How long it must be calm before one more.
    fn wait(&self) -> Duration {
        let again = match self.bad {
            Some((bad, times)) if bad <= self.limit + 1 => 1u32.checked_shl(times + 1).unwrap_or(u32::MAX),
            _ => 1,
        };
        self.pace.calm.saturating_mul(again).min(self.pace.longest.max(self.pace.calm))
    }

    /// When [`Adaptive::up`] may give one more; None: not by time alone.
    pub fn due(&self, slots: usize) -> Option<Moment> {
        let well = self.full && self.ends.len() >= self.window().min(self.limit.max(2)) && self.clean();
        (self.limit < slots && well).then(|| self.quiet.saturating_add(self.wait()))
    }

    fn clean(&self) -> bool {
        self.ends.iter().all(|(_, bad)| !bad)
    }

    /// One more, where it has been calm for long enough at the number as it is.
    pub fn up(&mut self, slots: usize, now: Moment) -> Option<Adapted> {
        if self.due(slots).is_none_or(|due| due > now) {
            return None;
        }
        let from = self.limit;
        let calm = now.saturating_sub(self.quiet).as_secs_f64();
        let why = format!("no error of the surroundings for {calm:.0} s at {from} at a time");
        self.good = self.good.max(from);
        self.turn(from + 1, now);
        Some(Adapted::Changed { from, to: from + 1, why })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs trials of 10 to 19 s on a limit, in surroundings that fail above `most` at once, for so long;
    /// gives how the limit stood, second by second, and what was said.
    fn simulate(slots: usize, most: usize, seconds: u64) -> (Vec<usize>, Vec<Adapted>) {
        let mut adaptive = Adaptive::new(slots, Pace::default());
        // Trial, begin, end, failed.
        let mut running: Vec<(usize, u64, u64, bool)> = Vec::new();
        let (mut told, mut limits) = (Vec::new(), Vec::new());
        let mut next = 0;
        for second in 0..seconds {
            let now = Duration::from_secs(second);
            let (over, rest): (Vec<_>, Vec<_>) = running.drain(..).partition(|t| t.2 <= second);
            running = rest;
            for (trial, began, _, infra) in over {
                told.extend(adaptive.ended(End { trial, began: Duration::from_secs(began), infra }, now));
            }
            told.extend(adaptive.up(slots, now));
            while running.len() < adaptive.limit().min(slots) {
                running.push((next, second, second + 10 + (next as u64 * 7) % 10, false));
                next += 1;
            }
            if running.len() > most {
                running.iter_mut().for_each(|t| t.3 = true);
            }
            adaptive.at_work(running.len());
            limits.push(adaptive.limit());
        }
        (limits, told)
    }

    #[test]
    fn settles_right_below_what_fails_and_says_so() {
        for slots in [4, 5, 8, 16, 50] {
            let (limits, told) = simulate(slots, 3, 8 * 3600);
            let late = &limits[limits.len() / 2..];
            let at_three = late.iter().filter(|n| **n == 3).count();
            assert!(at_three * 100 > late.len() * 98, "{slots}: {at_three} of {} at 3: {told:?}", late.len());
            assert!(told.iter().any(|a| matches!(a, Adapted::Settled { at: 3, .. })), "{slots}: {told:?}");
            assert!(told.iter().all(|a| !matches!(a, Adapted::Settled { at, .. } if *at != 3)), "{slots}: {told:?}");
            // Slowly: the tries of four become rare.
            let tries = told.iter().filter(|a| matches!(a, Adapted::Changed { to: 4, from: 3, .. })).count();
            assert!((1..12).contains(&tries), "{slots}: {tries}");
        }
    }

    #[test]
    fn recovers_once_the_surroundings_do() {
        let mut adaptive = Adaptive::new(4, Pace::default());
        let s = Duration::from_secs;
        adaptive.at_work(4);
        let end = |trial, began, infra| End { trial, began: s(began), infra };
        assert_eq!(adaptive.ended(end(0, 0, true), s(5)), None, "one is no cluster");
        assert_eq!(adaptive.ended(end(0, 0, true), s(6)), None, "nor is the same one again");
        let down = adaptive.ended(end(1, 0, true), s(7));
        assert!(matches!(down, Some(Adapted::Changed { from: 4, to: 3, .. })), "{down:?}");
        assert_eq!(adaptive.ended(end(2, 6, true), s(8)), None, "it began among four");
        adaptive.at_work(3);
        (3..9).for_each(|t| assert!(!matches!(adaptive.ended(end(t, 8, false), s(20)), Some(Adapted::Changed { .. }))));
        assert_eq!(adaptive.up(4, s(130)), None, "not so soon");
        let due = adaptive.due(4);
        assert!(due.is_some_and(|due| due > s(400)), "{due:?}");
        assert!(matches!(adaptive.up(4, s(500)), Some(Adapted::Changed { from: 3, to: 4, .. })));
        assert_eq!(adaptive.up(4, s(5000)), None, "not above the slots");
        adaptive.reset(9, s(6000));
        assert_eq!(adaptive.limit(), 9);
    }

    proptest! {
        #[test]
        fn stays_between_one_and_the_slots(
            slots in 1..20usize,
            events in prop::collection::vec((0..40usize, any::<bool>(), 0..300u64), 0..300),
        ) {
            let mut adaptive = Adaptive::new(slots, Pace::default());
            let mut now = Duration::ZERO;
            for (trial, infra, pass) in events {
                let began = now;
                now += Duration::from_secs(pass);
                adaptive.at_work(slots);
                let before = adaptive.limit();
                let told = [adaptive.ended(End { trial, began, infra }, now), adaptive.up(slots, now)];
                prop_assert!((1..=slots).contains(&adaptive.limit()));
                let changes = told.iter().flatten().filter(|a| matches!(a, Adapted::Changed { .. })).count();
                prop_assert!(changes > 0 || before == adaptive.limit(), "a change that is not told");
            }
        }
    }
}
