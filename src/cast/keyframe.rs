//! Kept screens along a recording, so that a seek has to emulate only a short stretch.

use super::screen::{Saved, Screen};

/// Emulation work between two kept screens at first, in units of [`Screen::feed`]: about 2 ms.
const INTERVAL: u64 = 96 << 10;
/// Memory for kept screens; above it every second one goes and the interval doubles.
const BUDGET: usize = 16 << 20;

#[derive(Debug)]
struct Keyframe {
    /// Events that the screen has seen.
    events: usize,
    saved: Saved,
}

/// The kept screens of one recording.
#[derive(Debug)]
pub(crate) struct Keyframes {
    frames: Vec<Keyframe>,
    /// Events up to which screens were looked at.
    frontier: usize,
    /// Work since the last kept screen.
    since: u64,
    interval: u64,
    bytes: usize,
    budget: usize,
}

impl Keyframes {
    pub fn new() -> Keyframes {
        Keyframes { frames: Vec::new(), frontier: 0, since: 0, interval: INTERVAL, bytes: 0, budget: BUDGET }
    }

    /// Events up to which there are kept screens.
    pub fn frontier(&self) -> usize {
        self.frontier
    }

    /// Tells that `screen` has now seen `events` events, the last of which took `cost`. Only counts
    /// where it goes beyond what was known.
    pub fn note(&mut self, events: usize, cost: u64, screen: &Screen) {
        if events != self.frontier + 1 {
            return;
        }
        self.frontier = events;
        self.since += cost;
        let (cols, rows) = screen.size();
        // Keeping a screen takes about as long as printing it; that must stay a small part.
        if self.since < self.interval.max(4 * u64::from(cols) * u64::from(rows)) {
            return;
        }
        self.since = 0;
        let saved = screen.dump();
        self.bytes += saved.bytes();
        self.frames.push(Keyframe { events, saved });
        if self.bytes > self.budget {
            self.thin();
        }
    }

    fn thin(&mut self) {
        let mut odd = false;
        self.frames.retain(|_| {
            odd = !odd;
            !odd
        });
        self.interval *= 2;
        self.bytes = self.frames.iter().map(|f| f.saved.bytes()).sum();
    }

    /// The last kept screen that has seen at most `events` events, and how many it has seen.
    pub fn before(&self, events: usize) -> Option<(usize, &Saved)> {
        let n = self.frames.partition_point(|f| f.events <= events);
        n.checked_sub(1).and_then(|i| self.frames.get(i)).map(|f| (f.events, &f.saved))
    }

    /// Drops what has seen more than `events` events.
    pub fn truncate(&mut self, events: usize) {
        if self.frontier > events {
            self.frames.retain(|f| f.events <= events);
            self.frontier = events;
            self.bytes = self.frames.iter().map(|f| f.saved.bytes()).sum();
        }
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn memory(&self) -> usize {
        self.frames.capacity() * size_of::<Keyframe>() + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_within_the_budget_and_the_spacing_grows() {
        let mut frames = Keyframes { budget: 20_000, interval: 100, ..Keyframes::new() };
        let mut screen = Screen::new(10, 2);
        for event in 1..=2000 {
            let cost = screen.feed("0123456789\u{1b}[31mabcdefghi\u{1b}[32m") + 100;
            frames.note(event, cost, &screen);
            assert!(frames.bytes <= 20_000);
        }
        assert!(frames.interval > 100 && frames.len() > 20);
        assert_eq!(frames.frontier(), 2000);
        assert!(frames.before(1000).is_some_and(|(n, _)| n <= 1000 && n > 500));
        frames.truncate(500);
        assert!(frames.before(9999).is_some_and(|(n, _)| n <= 500));
    }
}
