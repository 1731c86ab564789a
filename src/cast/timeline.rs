//! Recorded time and playback time: long silences cut to a cap. Both ways monotone.

use super::index::Entry;

/// A silence that is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Number of the event that ends it.
    event: usize,
    /// Recorded time from which on nothing more is shown, in microseconds.
    from: u64,
    /// Time cut away up to the end of this silence.
    total: u64,
}

/// The cuts of a recording; all times in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    cap: Option<u64>,
    cuts: Vec<Cut>,
    events: usize,
}

impl Timeline {
    pub fn new(cap: Option<u64>) -> Timeline {
        Timeline { cap, ..Timeline::default() }
    }

    pub fn cap(&self) -> Option<u64> {
        self.cap
    }

    /// Takes in events that are new; `settled` of those seen before may have changed since.
    pub fn extend(&mut self, entries: &[Entry], settled: usize) {
        let mut first = self.events.min(settled).min(entries.len());
        // The last event seen may have been provisional.
        first = first.saturating_sub(1);
        while self.cuts.last().is_some_and(|c| c.event >= first) {
            self.cuts.pop();
        }
        self.events = entries.len();
        let Some(cap) = self.cap else { return };
        let mut before = first.checked_sub(1).and_then(|i| entries.get(i)).map_or(0, |e| e.time);
        for (event, entry) in entries.iter().enumerate().skip(first) {
            let gap = entry.time - before.min(entry.time);
            if gap > cap {
                let total = self.cuts.last().map_or(0, |c| c.total) + (gap - cap);
                self.cuts.push(Cut { event, from: before + cap, total });
            }
            before = entry.time;
        }
    }

    fn before(&self, cut: usize) -> u64 {
        cut.checked_sub(1).and_then(|i| self.cuts.get(i)).map_or(0, |c| c.total)
    }

    /// Playback time of a recorded time.
    pub fn playback(&self, recorded: u64) -> u64 {
        let n = self.cuts.partition_point(|c| c.from <= recorded);
        let Some(cut) = n.checked_sub(1).and_then(|i| self.cuts.get(i)) else { return recorded };
        let before = self.before(n - 1);
        let until = cut.from + (cut.total - before);
        if recorded < until { cut.from - before } else { recorded - cut.total }
    }

    /// Recorded time of a playback time; at a cut, the end of it, where the next event is.
    pub fn recorded(&self, playback: u64) -> u64 {
        // `from` less what was cut before it grows from cut to cut, so this is sorted.
        let (mut low, mut high) = (0, self.cuts.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.cuts.get(middle) {
                Some(cut) if cut.from - self.before(middle) <= playback => low = middle + 1,
                _ => high = middle,
            }
        }
        playback.saturating_add(self.before(low))
    }

    pub fn memory(&self) -> usize {
        self.cuts.capacity() * size_of::<Cut>()
    }
}
