//! History of a replica for sparklines: a fixed number of buckets, fine for the last minutes, coarse for
//! hours. What was not seen stays a gap.

/// What has a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// Requests in the decode batch.
    Running,
    /// Requests that wait.
    Queued,
    /// Share of the KV pool in use.
    Kv,
    /// Generated tokens per second.
    Generation,
    /// Prefilled tokens per second.
    Prefill,
}

impl Track {
    /// All of them.
    pub const ALL: [Track; 5] = [Track::Running, Track::Queued, Track::Kv, Track::Generation, Track::Prefill];
}

const TRACKS: usize = Track::ALL.len();
/// Seconds and number of the fine buckets: ten minutes.
const FINE: (f64, usize) = (2.0, 300);
/// Seconds and number of the coarse buckets: eight hours.
const COARSE: (f64, usize) = (30.0, 960);
/// Seconds that a value is drawn on where none came after it: vLLM speaks every 10 s.
const HOLD: f64 = 12.0;
/// Seconds from 1970 beyond which nothing happens.
const FARTHEST: f64 = 1e13;
/// So many values in a row older than all buckets: the clock was set back, and history begins anew.
const LATE: u32 = 64;

/// Means of one span of time; a count of 0 is a gap.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    mean: [f32; TRACKS],
    count: [u8; TRACKS],
}

impl Cell {
    fn add(&mut self, track: usize, value: f32) {
        if let (Some(mean), Some(count)) = (self.mean.get_mut(track), self.count.get_mut(track)) {
            // Beyond 255 values the mean follows the newest ones.
            *count = count.saturating_add(1);
            *mean += (value - *mean) / f32::from(*count);
        }
    }

    fn get(&self, track: Track) -> Option<f32> {
        let track = track as usize;
        (*self.count.get(track)? > 0).then(|| self.mean.get(track).copied()).flatten()
    }
}

/// Buckets of one width; the last is number `head`, counted from 1970.
#[derive(Debug, Clone)]
struct Ring {
    width: f64,
    most: usize,
    cells: std::collections::VecDeque<Cell>,
    head: i64,
}

impl Ring {
    fn new((width, most): (f64, usize)) -> Ring {
        Ring { width, most, cells: std::collections::VecDeque::new(), head: 0 }
    }

    fn bucket(&self, t: f64) -> i64 {
        (t / self.width).floor() as i64
    }

    /// Puts values; false when they are older than all that is kept.
    fn put(&mut self, t: f64, values: &[Option<f32>; TRACKS]) -> bool {
        let bucket = self.bucket(t);
        if self.cells.is_empty() {
            self.head = bucket;
            self.cells.push_back(Cell::default());
        }
        let ahead = bucket.saturating_sub(self.head);
        if ahead > 0 {
            if ahead >= self.most as i64 {
                self.cells.clear();
                self.cells.push_back(Cell::default());
            } else {
                for _ in 0..ahead {
                    self.cells.push_back(Cell::default());
                }
                while self.cells.len() > self.most {
                    self.cells.pop_front();
                }
            }
            self.head = bucket;
        }
        let back = self.head.saturating_sub(bucket);
        if back >= self.most as i64 {
            return false;
        }
        while (self.cells.len() as i64) <= back {
            self.cells.push_front(Cell::default());
        }
        let at = self.cells.len() - 1 - back as usize;
        if let Some(cell) = self.cells.get_mut(at) {
            for (track, value) in values.iter().enumerate() {
                if let Some(value) = value.filter(|v| v.is_finite()) {
                    cell.add(track, value);
                }
            }
        }
        true
    }

    fn cell(&self, bucket: i64) -> Option<&Cell> {
        let back = usize::try_from(self.head.checked_sub(bucket)?).ok()?;
        self.cells.get(self.cells.len().checked_sub(back + 1)?)
    }
}

/// The history of one replica.
#[derive(Debug, Clone)]
pub struct Series {
    fine: Ring,
    coarse: Ring,
    late: u32,
}

impl Default for Series {
    fn default() -> Self {
        Series { fine: Ring::new(FINE), coarse: Ring::new(COARSE), late: 0 }
    }
}

impl Series {
    /// Adds values seen at second `t` since 1970, in the order of [`Track::ALL`]; they may come out of
    /// order.
    pub fn put(&mut self, t: f64, values: [Option<f32>; TRACKS]) {
        if t.is_nan() || t.abs() > FARTHEST || values.iter().all(Option::is_none) {
            return;
        }
        self.fine.put(t, &values);
        if self.coarse.put(t, &values) {
            self.late = 0;
        } else {
            self.late += 1;
            if self.late >= LATE {
                *self = Series::default();
                self.put(t, values);
            }
        }
    }

    /// `n` columns over the `span` seconds before second `now`, the oldest first: the mean of what was
    /// seen in each, None where nothing was.
    pub fn columns(&self, track: Track, n: usize, span: f64, now: f64) -> Vec<Option<f32>> {
        let n = n.min(4_096);
        if n == 0 || !span.is_finite() || span <= 0.0 || now.is_nan() || now.abs() > FARTHEST {
            return vec![None; n];
        }
        let ring = if span <= FINE.0 * FINE.1 as f64 { &self.fine } else { &self.coarse };
        let (width, begin) = (span / n as f64, now - span);
        // Which value is drawn on, and until when.
        let mut held: Option<(f32, f64)> = None;
        let mut out = Vec::with_capacity(n);
        for column in 0..n {
            let from = begin + width * column as f64;
            let (first, last) = (ring.bucket(from), ring.bucket(from + width));
            // A column narrower than a bucket shows the bucket that it lies in.
            let last = if last > first { last - 1 } else { last };
            let last = if column + 1 == n { ring.bucket(now) } else { last };
            let (mut sum, mut count) = (0.0f64, 0u32);
            for bucket in first..=last.min(first.saturating_add(COARSE.1 as i64)) {
                if let Some(value) = ring.cell(bucket).and_then(|cell| cell.get(track)) {
                    sum += f64::from(value);
                    count += 1;
                    held = Some((value, (bucket + 1) as f64 * ring.width + HOLD));
                }
            }
            out.push(if count > 0 {
                Some((sum / f64::from(count)) as f32)
            } else {
                held.filter(|(_, until)| from < *until).map(|(value, _)| value)
            });
        }
        out
    }

    /// Values of the last `span` seconds before `now`, not older than the fine buckets.
    pub fn recent(&self, track: Track, span: f64, now: f64) -> Vec<f32> {
        let (first, last) = (self.fine.bucket(now - span), self.fine.bucket(now));
        let first = first.max(last.saturating_sub(FINE.1 as i64));
        (first..=last).filter_map(|bucket| self.fine.cell(bucket)?.get(track)).collect()
    }

    /// Bytes on the heap, about.
    pub fn heap(&self) -> usize {
        (self.fine.cells.capacity() + self.coarse.cells.capacity()) * size_of::<Cell>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(generation: f32) -> [Option<f32>; TRACKS] {
        [None, None, None, Some(generation), None]
    }

    #[test]
    fn gaps_stay_gaps_and_values_are_means() {
        let mut series = Series::default();
        let now = 1_000_000.0;
        for second in 0..60 {
            // Nothing between 16 and 44 seconds.
            if !(16..44).contains(&second) {
                series.put(now - 60.0 + f64::from(second), of(if second % 2 == 0 { 10.0 } else { 20.0 }));
            }
        }
        let columns = series.columns(Track::Generation, 6, 60.0, now - 1.0);
        assert_eq!(columns.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false, true, true]);
        assert!(columns.iter().flatten().all(|v| (v - 15.0).abs() < 1.0), "{columns:?}");
        assert_eq!(series.columns(Track::Kv, 3, 60.0, now), [None, None, None]);
        assert!(series.columns(Track::Kv, 0, 60.0, now).is_empty());
    }

    #[test]
    fn hours_are_kept_and_memory_is_flat() {
        let mut series = Series::default();
        let start = 1_700_000_000.0;
        for second in 0..100_000 {
            series.put(start + f64::from(second), of(5.0));
        }
        let heap = series.heap();
        for second in 100_000..140_000 {
            series.put(start + f64::from(second), of(7.0));
        }
        assert_eq!(series.heap(), heap);
        let columns = series.columns(Track::Generation, 80, 8.0 * 3600.0, start + 140_000.0);
        assert!(columns.iter().all(|c| c.is_some()), "{columns:?}");
        assert!(series.columns(Track::Generation, 10, 600.0, start + 139_999.0).iter().all(|c| *c == Some(7.0)));
    }

    #[test]
    fn jumps_of_the_clock_are_survived() {
        let mut series = Series::default();
        series.put(1e9, of(1.0));
        series.put(1e12, of(2.0));
        series.put(f64::NAN, of(3.0));
        series.put(-1e18, of(3.0));
        for second in 0..200 {
            series.put(1e9 + f64::from(second), of(4.0));
        }
        assert_eq!(series.columns(Track::Generation, 1, 60.0, 1e9 + 199.0), [Some(4.0)]);
    }
}
