//! What the rules keep in mind of a replica, all of it bounded.

use std::collections::VecDeque;

use super::held::Held;
use crate::serving::state::clock::Seconds;
use crate::serving::{Counters, Load};

/// The last gaps between batch lines.
#[derive(Debug, Clone, Default)]
pub(in crate::serving) struct Gaps {
    last: VecDeque<f32>,
}

/// Gaps that make a median.
const GAPS: usize = 15;

impl Gaps {
    pub(in crate::serving) fn add(&mut self, gap: f64) {
        if self.last.len() >= GAPS {
            self.last.pop_front();
        }
        self.last.push_back(gap as f32);
    }

    pub(in crate::serving) fn median(&self) -> Option<f64> {
        median(self.last.iter().copied())
    }
}

/// The middle of values; of two, the lower.
pub(in crate::serving) fn median(values: impl Iterator<Item = f32>) -> Option<f64> {
    let mut all: Vec<f32> = values.filter(|v| v.is_finite()).collect();
    all.sort_by(f32::total_cmp);
    let at = all.len().checked_sub(1)? / 2;
    all.get(at).map(|v| f64::from(*v))
}

/// How the pool fills: tokens and share over the last minutes.
#[derive(Debug, Clone, Default)]
pub(in crate::serving) struct Growth {
    points: VecDeque<(Seconds, f32, f32)>,
}

/// Seconds between two points, and how many are kept: two minutes.
const POINT: (f64, usize) = (2.0, 60);

impl Growth {
    /// Adds what is known; NaN what is not.
    pub(in crate::serving) fn add(&mut self, t: Seconds, tokens: Option<f64>, kv: Option<f64>) {
        let point = |v: Option<f64>| v.map_or(f32::NAN, |v| v as f32);
        match self.points.back() {
            Some((last, _, _)) if t < *last - 5.0 => self.points.clear(),
            Some((last, _, _)) if t - last < POINT.0 => return,
            _ => {}
        }
        if self.points.len() >= POINT.1 {
            self.points.pop_front();
        }
        self.points.push_back((t, point(tokens), point(kv)));
    }

    /// Slope of a line through the last `span` seconds, where they are covered by points.
    fn slope(&self, span: f64, of: impl Fn(&(Seconds, f32, f32)) -> f32) -> Option<f64> {
        let last = self.points.back()?.0;
        let within = self.points.iter().filter(|p| last - p.0 <= span && of(p).is_finite());
        let (mut n, mut st, mut sv, mut stt, mut stv, mut first) = (0.0, 0.0, 0.0, 0.0, 0.0, last);
        for p in within {
            let (t, v) = (p.0 - last, f64::from(of(p)));
            n += 1.0;
            st += t;
            sv += v;
            stt += t * t;
            stv += t * v;
            first = p.0.min(first);
        }
        let under = n * stt - st * st;
        // Less than two thirds of the span, or two points, are no trend.
        (n >= 3.0 && last - first >= span * 2.0 / 3.0 && under > 0.0).then(|| (n * stv - st * sv) / under)
    }

    /// Tokens per second over the last minute.
    pub(in crate::serving) fn tokens_per_second(&self) -> Option<f64> {
        self.slope(60.0, |p| p.1)
    }

    /// Seconds until the share is 1.
    pub(in crate::serving) fn full_in(&self, span: f64) -> Option<f64> {
        let slope = self.slope(span, |p| p.2).filter(|s| *s > 1e-6)?;
        let now = f64::from(self.points.back()?.2);
        Some(((1.0 - now) / slope).max(0.0))
    }
}

/// Prompt tokens of the last minutes, in slices.
#[derive(Debug, Clone, Default)]
pub(in crate::serving) struct Prompts {
    slices: VecDeque<Slice>,
}

#[derive(Debug, Clone, Copy)]
struct Slice {
    number: i64,
    cached: f64,
    computed: f64,
    batches: u32,
}

/// Seconds of a slice, and how many are kept at most.
const SLICE: (f64, usize) = (10.0, 400);

impl Prompts {
    pub(in crate::serving) fn add(&mut self, t: Seconds, cached: f64, computed: f64) {
        let number = (t / SLICE.0).floor() as i64;
        match self.slices.back_mut() {
            Some(slice) if slice.number == number => {
                slice.cached += cached;
                slice.computed += computed;
                slice.batches = slice.batches.saturating_add(1);
                return;
            }
            Some(slice) if slice.number > number => self.slices.clear(),
            _ => {}
        }
        if self.slices.len() >= SLICE.1 {
            self.slices.pop_front();
        }
        self.slices.push_back(Slice { number, cached, computed, batches: 1 });
    }

    /// Cached tokens, all tokens, batches within `window` seconds before `t`; None where less than that
    /// is known of.
    pub(in crate::serving) fn sums(&self, t: Seconds, window: f64) -> Option<(f64, f64, u32)> {
        let oldest = ((t - window) / SLICE.0).floor() as i64;
        if self.slices.front()?.number > oldest {
            return None;
        }
        let mut out = (0.0, 0.0, 0u32);
        for slice in self.slices.iter().filter(|s| s.number > oldest) {
            out.0 += slice.cached;
            out.1 += slice.cached + slice.computed;
            out.2 = out.2.saturating_add(slice.batches);
        }
        Some(out)
    }

    pub(in crate::serving) fn clear(&mut self) {
        self.slices.clear();
    }
}

/// The usual speed of a request at about so many at once, over the whole run: when the list is full,
/// every second value goes and the next ones are taken half as often.
#[derive(Debug, Clone, Default)]
pub(in crate::serving) struct Speeds {
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone)]
struct Bucket {
    values: Vec<f32>,
    every: f64,
    next: Seconds,
    median: f64,
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket { values: Vec::new(), every: 2.0, next: f64::MIN, median: 0.0 }
    }
}

/// Values of a bucket; buckets: 1, 2, 3-4, 5-8, … requests.
const SPEEDS: (usize, usize) = (64, 16);

fn bucket(running: f64) -> usize {
    (running.max(1.0).log2().ceil() as usize).min(SPEEDS.1 - 1)
}

impl Speeds {
    pub(in crate::serving) fn add(&mut self, t: Seconds, running: f64, speed: f64) {
        let at = bucket(running);
        while self.buckets.len() <= at {
            self.buckets.push(Bucket::default());
        }
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        // A clock that was set back does not stop the list for good.
        if t < bucket.next && bucket.next - t <= bucket.every {
            return;
        }
        bucket.next = t + bucket.every;
        if bucket.values.len() >= SPEEDS.0 {
            let mut keep = false;
            bucket.values.retain(|_| {
                keep = !keep;
                keep
            });
            bucket.every *= 2.0;
        }
        bucket.values.push(speed as f32);
        bucket.median = median(bucket.values.iter().copied()).unwrap_or(0.0);
    }

    /// The median speed at about `running` requests, of at least `least` values.
    pub(in crate::serving) fn median(&self, running: f64, least: f64) -> Option<f64> {
        let bucket = self.buckets.get(bucket(running))?;
        (bucket.values.len() as f64 >= least).then_some(bucket.median)
    }
}

/// One or two requests that go on without any new one.
#[derive(Debug, Clone, Copy)]
pub(in crate::serving) struct Alone {
    pub since: Seconds,
    pub last: Seconds,
    pub samples: u32,
    /// Tokens in the pool when it began, and now.
    pub tokens: Option<(f64, f64)>,
    /// Tokens generated since, from the throughput.
    pub generated: f64,
}

/// A retraction that several ranks print.
#[derive(Debug, Clone, Copy)]
struct Printed {
    t: Seconds,
    requests: u32,
    /// Ranks that printed it, by bit.
    by: u64,
}

/// Requests thrown out at once.
#[derive(Debug, Clone, Copy)]
struct Thrown {
    t: Seconds,
    requests: u32,
    /// Told by a line; else by a counter.
    logged: bool,
}

/// Seconds by which a poll may see a retraction after its line was written.
const LATER: Seconds = 10.0;

/// Retractions of the last minutes.
#[derive(Debug, Clone, Default)]
pub(in crate::serving) struct Retractions {
    last: VecDeque<Thrown>,
    printed: Option<Printed>,
}

/// Retractions remembered one by one.
const RETRACTIONS: usize = 256;

impl Retractions {
    /// A line of rank `tp`; gives how many requests are new. None when another rank has printed the same
    /// one already: all of them do, within a second or two. Those that a counter told before are not new.
    pub(in crate::serving) fn line(&mut self, t: Seconds, requests: u32, tp: Option<u16>) -> Option<u32> {
        let bit = tp.map_or(0, |tp| 1u64 << (tp % 64));
        if let Some(printed) = &mut self.printed
            && bit != 0
            && printed.requests == requests
            && (0.0..=2.0).contains(&(t - printed.t))
            && printed.by & bit == 0
        {
            printed.by |= bit;
            return None;
        }
        self.printed = Some(Printed { t, requests, by: bit });
        let mut new = requests;
        for told in self.last.iter_mut().filter(|told| !told.logged && (-1.0..=LATER).contains(&(told.t - t))) {
            let known = told.requests.min(new);
            new -= known;
            told.requests -= known;
        }
        self.last.retain(|told| told.requests > 0);
        self.push(Thrown { t, requests, logged: true });
        Some(new)
    }

    /// A counter rose by so many since `then`; gives how many of them no line told.
    pub(in crate::serving) fn counted(&mut self, then: Seconds, t: Seconds, rise: u32) -> u32 {
        let lines = self.last.iter().filter(|told| told.logged && told.t >= then - LATER && told.t <= t + 1.0);
        let told = lines.fold(0u32, |n, told| n.saturating_add(told.requests));
        let new = rise.saturating_sub(told);
        if new > 0 {
            self.push(Thrown { t, requests: new, logged: false });
        }
        new
    }

    fn push(&mut self, thrown: Thrown) {
        if self.last.len() >= RETRACTIONS {
            self.last.pop_front();
        }
        self.last.push_back(thrown);
    }

    /// Requests within `window` seconds before `t`, and when the first and last of them were thrown out.
    pub(in crate::serving) fn within(&self, t: Seconds, window: f64) -> Option<(u32, Seconds, Seconds)> {
        let mut within = self.last.iter().filter(|told| (0.0..=window).contains(&(t - told.t)));
        let first = within.next()?;
        Some(within.fold((first.requests, first.t, first.t), |(n, from, to), told| {
            (n.saturating_add(told.requests), from.min(told.t), to.max(told.t))
        }))
    }
}

/// The last counters of each kind of page: `/v1/loads` and `/metrics` count from different beginnings.
#[derive(Debug, Clone, Default)]
pub(in crate::serving) struct Counted {
    last: Vec<(u8, Seconds, Counters)>,
}

/// Kinds of pages that are told apart.
const PAGES: usize = 4;

impl Counted {
    /// Keeps the counters of a page, and gives those of the last one of its kind.
    pub(in crate::serving) fn put(&mut self, t: Seconds, load: &Load) -> Option<(Seconds, Counters)> {
        let new = load.counters;
        let said = [new.generated.is_some(), new.prefilled.is_some(), new.cached.is_some(), new.started.is_some()];
        let kind = said.into_iter().chain([load.age.is_some()]).fold(0u8, |kind, bit| kind << 1 | u8::from(bit));
        if !said.contains(&true) && new.retracted.is_none() {
            return None;
        }
        match self.last.iter_mut().find(|(known, _, _)| *known == kind) {
            Some(known) => {
                let before = (known.1, known.2);
                (known.1, known.2) = (t, new);
                Some(before)
            }
            None => {
                if self.last.len() >= PAGES {
                    self.last.remove(0);
                }
                self.last.push((kind, t, new));
                None
            }
        }
    }
}

/// All that is kept in mind.
#[derive(Debug, Default)]
pub(in crate::serving) struct Watch {
    /// Diagnoses that were raised, by bit of their kind.
    pub raised: u32,
    pub gaps: Gaps,
    pub last_decode: Option<Seconds>,
    pub last_batch: Option<Seconds>,
    /// The last prefill that was no health probe.
    pub last_prefill: Option<Seconds>,
    /// A prefill began on an idle server since the last decode line.
    pub from_idle: bool,
    pub growth: Growth,
    pub prompts: Prompts,
    pub retractions: Retractions,
    pub speeds: Speeds,
    pub alone: Option<Alone>,
    /// Median throughput before the last retraction, and when that was.
    pub before: Option<(Seconds, f64)>,
    pub full: Held,
    pub high: Held,
    pub queue: Held,
    pub slots: Held,
    pub slots_over: Held,
    pub slow: Held,
    pub slow_after: Held,
    pub accept: Held,
    pub hits: Held,
    pub stalled: Held,
    pub graph_seen: bool,
    pub accept_best: f64,
    pub context_usual: f64,
    /// Slots that a request takes, while others wait.
    pub slots_each: Option<f64>,
    /// When a log last told of prompts.
    pub prompts_logged: Option<Seconds>,
    pub counters: Counted,
    /// Since when the counter of generated tokens stands still while requests run, how many polls, and
    /// the last of them.
    pub flat: Option<(Seconds, u32, Seconds)>,
    /// Age of the scheduler's snapshot, and when it was told.
    pub snapshot: Option<(Seconds, f64)>,
}

impl Watch {
    pub(in crate::serving) fn heap(&self) -> usize {
        let speeds: usize = self.speeds.buckets.iter().map(|b| b.values.capacity() * 4 + size_of::<Bucket>()).sum();
        speeds
            + self.gaps.last.capacity() * 4
            + self.growth.points.capacity() * size_of::<(Seconds, f32, f32)>()
            + self.prompts.slices.capacity() * size_of::<Slice>()
            + self.retractions.last.capacity() * size_of::<Thrown>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retraction_printed_by_every_rank_is_one() {
        let mut seen = Retractions::default();
        assert_eq!(seen.line(10.0, 1, Some(0)), Some(1));
        assert_eq!((seen.line(10.0, 1, Some(5)), seen.line(11.0, 1, Some(7))), (None, None));
        // The same rank again: another one. So is another count, and one later.
        assert_eq!((seen.line(11.0, 1, Some(0)), seen.line(11.0, 2, Some(5))), (Some(1), Some(2)));
        assert_eq!(seen.line(20.0, 2, Some(7)), Some(2));
        // Without ranks each line is one.
        assert_eq!((seen.line(21.0, 1, None), seen.line(21.0, 1, None)), (Some(1), Some(1)));
        assert_eq!(seen.within(21.0, 60.0), Some((8, 10.0, 21.0)));
        assert_eq!(seen.within(100.0, 60.0), None);
    }

    #[test]
    fn a_retraction_of_a_line_and_a_counter_is_one() {
        let mut seen = Retractions::default();
        assert_eq!(seen.line(10.0, 1, None), Some(1));
        assert_eq!((seen.counted(9.0, 11.0, 1), seen.counted(30.0, 32.0, 1)), (0, 1));
        // The counter was faster than the tail.
        assert_eq!((seen.line(31.0, 1, None), seen.line(31.0, 2, None)), (Some(0), Some(2)));
        assert_eq!(seen.within(40.0, 60.0), Some((4, 10.0, 31.0)));
        // Two rises, no log.
        assert_eq!((seen.counted(100.0, 102.0, 1), seen.counted(102.0, 104.0, 1)), (1, 1));
    }

    #[test]
    fn a_line_through_the_last_minute_says_when_the_pool_is_full() {
        let mut growth = Growth::default();
        for second in 0..61 {
            let t = f64::from(second);
            growth.add(1e9 + t, Some(1000.0 + 10.0 * t), Some(0.8 + 0.001 * t));
            if second < 30 {
                assert_eq!(growth.full_in(60.0), None);
            }
        }
        let full = growth.full_in(60.0).unwrap_or_default();
        assert!((full - 140.0).abs() < 5.0, "{full}");
        assert!((growth.tokens_per_second().unwrap_or_default() - 10.0).abs() < 0.1);
    }

    #[test]
    fn speeds_are_those_of_the_whole_run_in_flat_memory() {
        let mut speeds = Speeds::default();
        for second in 0..100_000 {
            speeds.add(f64::from(second), 4.0, if second < 60_000 { 10.0 } else { 2.0 });
        }
        assert_eq!(speeds.median(3.0, 10.0), Some(10.0));
        assert_eq!((speeds.median(1.0, 1.0), speeds.median(4.0, 65.0)), (None, None));
        assert!(speeds.buckets.iter().all(|b| b.values.len() <= SPEEDS.0));
    }

    #[test]
    fn prompt_sums_need_the_whole_window() {
        let mut prompts = Prompts::default();
        for second in 0..400 {
            prompts.add(f64::from(second), 1.0, 3.0);
            assert!(second >= 300 || prompts.sums(f64::from(second), 300.0).is_none());
        }
        let (cached, all, batches) = prompts.sums(399.0, 300.0).unwrap_or_default();
        assert!((all / cached - 4.0).abs() < 1e-9 && (290..=310).contains(&batches), "{cached} {all} {batches}");
    }
}
