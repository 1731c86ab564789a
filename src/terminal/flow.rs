//! How much work a terminal may make.
//!
//! A terminal is always read, else its container could not even be removed; but a program that prints
//! without end must wait for us, not the other terminals, the screen and the rest of the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Work per second of all terminals that print without end, in units of about one printed character:
/// half a processor.
const ALL: u64 = 16_000_000;
/// The same of one terminal.
const ONE: u64 = 12_000_000;
/// Work at once, before any waiting.
const BURST: u64 = 8_000_000;
/// Longest wait before the next look at what there is to read.
const LONGEST: Duration = Duration::from_millis(50);

/// Shortest wait that is worth its name: what timers count in.
const SHORTEST: Duration = Duration::from_millis(1);

/// Terminals that wait for their share now.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The account of one terminal.
#[derive(Debug)]
pub(super) struct Flow {
    left: u64,
    /// Work done beyond that.
    debt: u64,
    at: Instant,
    waiting: bool,
}

impl Flow {
    pub(super) fn new(now: Instant) -> Flow {
        Flow { left: BURST, debt: 0, at: now, waiting: false }
    }

    /// Takes what was done by `now`; gives how long to wait before more is read.
    pub(super) fn spend(&mut self, work: u64, now: Instant) -> Duration {
        let others = WAITING.load(Ordering::Relaxed).max(1) as u64;
        let rate = (ALL / others).min(ONE);
        let passed = now.saturating_duration_since(self.at).as_micros().min(10_000_000) as u64;
        self.at = now;
        let earned = rate * passed / 1_000_000;
        let debt = (self.debt + work).saturating_sub(earned + self.left);
        self.left = (self.left + earned).saturating_sub(self.debt + work).min(BURST);
        // A debt older than the longest wait is let off: the terminal is read again all the same.
        self.debt = debt.min(rate * LONGEST.as_millis() as u64 / 1000);
        self.note(debt > 0);
        if debt == 0 { Duration::ZERO } else { Duration::from_micros(self.debt * 1_000_000 / rate).max(SHORTEST) }
    }

    fn note(&mut self, waiting: bool) {
        match (self.waiting, waiting) {
            (false, true) => WAITING.fetch_add(1, Ordering::Relaxed),
            (true, false) => WAITING.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        self.waiting = waiting;
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.note(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_a_flood_is_slowed_to_its_rate() {
        let mut now = Instant::now();
        let mut flow = Flow::new(now);
        assert_eq!(flow.spend(BURST, now), Duration::ZERO);
        let (began, mut done) = (now, 0);
        while now - began < Duration::from_secs(10) {
            now += flow.spend(100_000, now) + Duration::from_micros(100);
            done += 100_000;
        }
        let rate = done / 10;
        assert!((ONE / 4..=ONE * 11 / 10).contains(&rate), "{rate}");
    }
}
