//! For how long a condition has held, over samples.

use crate::serving::state::clock::Seconds;

/// Samples that look back further than this into the past begin anew: the clock was set back.
const BACK: Seconds = 5.0;

/// A condition over the samples so far.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::serving) struct Held {
    since: Option<Seconds>,
    last: Seconds,
    samples: u32,
    not_since: Option<Seconds>,
}

impl Held {
    /// One more sample. Samples further apart than `gap` are not consecutive.
    pub(in crate::serving) fn sample(&mut self, t: Seconds, holds: bool, gap: f64) {
        let broken = t < self.last - BACK || t - self.last > gap;
        if holds {
            let since = self.since.filter(|since| !broken && *since <= t + BACK);
            self.samples = if since.is_some() { self.samples.saturating_add(1) } else { 1 };
            self.since = Some(since.unwrap_or(t));
            self.not_since = None;
        } else {
            // After a long silence nobody knows how long it still held: the last word counts.
            let until = if broken && self.since.is_some() { self.last.min(t) } else { t };
            self.since = None;
            self.samples = 0;
            self.not_since = Some(self.not_since.filter(|not| *not <= t).unwrap_or(until));
        }
        self.last = t;
    }

    /// Since when, where it held for `seconds` and `samples`.
    pub(in crate::serving) fn held(&self, seconds: f64, samples: f64) -> Option<Seconds> {
        let since = self.since?;
        (self.last - since >= seconds && f64::from(self.samples) >= samples).then_some(since)
    }

    /// Since when it has not held, where that is at least `seconds`.
    pub(in crate::serving) fn not_held(&self, now: Seconds, seconds: f64) -> Option<Seconds> {
        self.not_since.filter(|since| now - since >= seconds)
    }

    /// Whether the last sample held.
    pub(in crate::serving) fn holds(&self) -> bool {
        self.since.is_some()
    }

    /// When the last sample was taken; 0 where there was none.
    pub(in crate::serving) fn last(&self) -> Seconds {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_needs_time_and_samples_in_a_row() {
        let mut held = Held::default();
        held.sample(100.0, true, 60.0);
        held.sample(140.0, true, 60.0);
        assert_eq!(held.held(30.0, 3.0), None);
        held.sample(141.0, true, 60.0);
        assert_eq!(held.held(30.0, 3.0), Some(100.0));
        assert_eq!(held.held(60.0, 3.0), None);
        held.sample(150.0, false, 60.0);
        assert_eq!((held.held(0.0, 1.0), held.holds()), (None, false));
        assert_eq!((held.not_held(160.0, 15.0), held.not_held(165.0, 15.0)), (None, Some(150.0)));
        held.sample(160.0, true, 60.0);
        assert_eq!(held.not_held(500.0, 15.0), None);
        // Silence in between, and a clock that was set back.
        held.sample(300.0, true, 60.0);
        assert_eq!(held.held(0.0, 2.0), None);
        held.sample(200.0, true, 60.0);
        held.sample(201.0, true, 60.0);
        assert_eq!((held.held(1.0, 2.0), held.held(0.0, 3.0)), (Some(200.0), None));
    }
}
