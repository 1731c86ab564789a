//! How often to look, where change events can be believed and where they can not.

use std::time::{Duration, Instant};

/// `stat` calls (and opens, and listings) per second that polling may spend on all jobs together.
const PER_SECOND: f64 = 2000.0;
/// Looks are put off until this much of the budget is there again.
const ENOUGH: f64 = 200.0;
/// Pace of polling without `--poll`: the time between two looks at running trials.
const USUAL: Duration = Duration::from_secs(2);

/// Times between two looks, by what is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// The job's own files and the names in its directory.
    pub files: Duration,
    /// Trials without result.
    pub running: Duration,
    /// The trial that the operator looks at. None: as the others.
    pub visible: Option<Duration>,
    /// All finished trials.
    pub finished: Duration,
}

/// The pace for a job. `watched`: the kernel reports its changes and looking is but a safeguard
/// against lost events. `over`: the job ended. `poll`: the operator's own choice of the time between
/// two looks at running trials; the other times keep their proportion to it.
pub(super) fn pace(watched: bool, over: bool, poll: Option<Duration>) -> Pace {
    let seconds = Duration::from_secs;
    if watched {
        let pause = if over { seconds(60) } else { seconds(30) };
        return Pace { files: pause, running: pause, visible: None, finished: seconds(60) };
    }
    let unit = poll.unwrap_or(USUAL).clamp(Duration::from_millis(50), seconds(3600));
    if over {
        return Pace { files: unit * 10, running: unit * 10, visible: Some(unit), finished: unit * 30 };
    }
    Pace { files: unit, running: unit, visible: Some(unit / 2), finished: unit * 30 }
}

/// The point of a grid nearest to `pause` from now, so that the deadlines of many jobs fall together
/// and wake the thread once. Always after now, and at most one and a half pauses away: a look that is
/// a little late must not put the next one off by a whole pause.
pub(super) fn on_grid(start: Instant, now: Instant, pause: Duration) -> Instant {
    let grid = pause.min(Duration::from_secs(10)).max(Duration::from_millis(1)).as_nanos();
    let point = |ticks: u128| start + Duration::from_nanos(u64::try_from(ticks * grid).unwrap_or(u64::MAX));
    let at = (now + pause).saturating_duration_since(start).as_nanos();
    let nearest = (at + grid / 2) / grid;
    if point(nearest) > now { point(nearest) } else { point(nearest + 1) }
}

/// A budget of looks that fills with time.
#[derive(Debug)]
pub(super) struct Budget {
    left: f64,
    at: Instant,
    per_second: f64,
    most: f64,
}

impl Budget {
    pub fn new(now: Instant) -> Budget {
        Budget::of(now, PER_SECOND, PER_SECOND)
    }

    /// Of this much a second, and at most so much at once.
    pub fn of(now: Instant, per_second: f64, most: f64) -> Budget {
        Budget { left: most, at: now, per_second, most }
    }

    /// Whether there is anything left to spend.
    pub fn has(&mut self, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + seconds * self.per_second).min(self.most);
        self.left > 0.0
    }

    /// Takes what a look cost; it may go into debt.
    pub fn spend(&mut self, cost: u64) {
        self.left -= cost as f64;
    }

    /// When enough will be there again.
    pub fn ready(&self) -> Instant {
        let missing = (ENOUGH.min(self.most) - self.left).max(0.0);
        self.at + Duration::from_secs_f64(missing / self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_of_many_jobs_fall_together() {
        let start = Instant::now();
        let pause = Duration::from_secs(30);
        let first = on_grid(start, start + Duration::from_millis(10), pause);
        let second = on_grid(start, start + Duration::from_millis(9_900), pause);
        assert_eq!(first, start + Duration::from_secs(30));
        assert_eq!(second, start + Duration::from_secs(40));
        let third = on_grid(start, start + Duration::from_secs(12), pause);
        assert_eq!(second, third);
        // A look a little after its time: the next is due a pause later, not two.
        let late = start + Duration::from_millis(2_040);
        assert_eq!(on_grid(start, late, Duration::from_secs(2)), start + Duration::from_secs(4));
        let mut now = start;
        for _ in 0..50 {
            let next = on_grid(start, now, Duration::from_secs(2));
            assert!(next > now && next <= now + Duration::from_secs(3));
            now = next + Duration::from_millis(37);
        }
    }

    #[test]
    fn the_budget_limits_looks_per_second() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let (mut looks, mut now) = (0, start);
        while now < start + Duration::from_secs(10) {
            while budget.has(now) {
                budget.spend(20);
                looks += 20;
            }
            assert!(budget.ready() > now);
            now = budget.ready();
        }
        assert!((20_000..=22_300).contains(&looks), "{looks}");
    }

    #[test]
    fn the_operator_scales_the_pace() {
        let pace = pace(false, false, Some(Duration::from_secs(10)));
        assert_eq!(pace.running, Duration::from_secs(10));
        assert_eq!(pace.visible, Some(Duration::from_secs(5)));
        assert_eq!(pace.finished, Duration::from_secs(300));
    }
}
