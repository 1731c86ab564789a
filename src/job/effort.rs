//! What a job cost: money, wall time, time per phase. Over the chosen trials with a result.

use super::slots;
use super::time::{self, Stamp};
use super::trial::{Span, Trial};

/// Money over the chosen trials with a result.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CostSum {
    /// Sum of what was reported, in US dollars; None when nothing was.
    pub usd: Option<f64>,
    /// Trials that reported a cost.
    pub known: u64,
    /// Trials with a result.
    pub of: u64,
}

/// How long something took, over several trials.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Took {
    /// Trials of which it is known.
    pub known: u64,
    /// Sum in seconds.
    pub sum_s: f64,
    /// Median in seconds; None when it is known of none.
    pub median_s: Option<f64>,
    /// The longest, in seconds.
    pub max_s: Option<f64>,
}

impl Took {
    fn of(mut seconds: Vec<f64>) -> Took {
        seconds.sort_by(f64::total_cmp);
        let n = seconds.len();
        let at = |i: usize| seconds.get(i).copied();
        let median = match n % 2 {
            0 => at((n / 2).wrapping_sub(1)).zip(at(n / 2)).map(|(a, b)| (a + b) / 2.0),
            _ => at(n / 2),
        };
        Took { known: n as u64, sum_s: seconds.iter().sum(), median_s: median, max_s: seconds.last().copied() }
    }
}

/// Time and money.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Effort {
    /// Money.
    pub cost: CostSum,
    /// Start of the first trial.
    pub started: Option<Stamp>,
    /// End of the last one that has a result.
    pub finished: Option<Stamp>,
    /// Whole trials.
    pub trial: Took,
    /// Their environments' set-up.
    pub environment_setup: Took,
    /// Their agents' set-up.
    pub agent_setup: Took,
    /// Their agents at work.
    pub agent: Took,
    /// Their verifiers at work.
    pub verifier: Took,
}

impl Effort {
    /// Of these trials.
    pub fn of(trials: &[&Trial]) -> Effort {
        let results = || trials.iter().filter_map(|t| t.result.as_deref());
        let span = |span: Span| time::seconds_between(span.started?, span.finished?);
        let mut cost = CostSum::default();
        for result in results() {
            cost.of += 1;
            if let Some(usd) = result.cost_usd.filter(|usd| usd.is_finite() && *usd >= 0.0) {
                cost.known += 1;
                cost.usd = Some(cost.usd.unwrap_or(0.0) + usd);
            }
        }
        let took =
            |pick: fn(&super::trial::Spans) -> Span| Took::of(results().filter_map(|r| span(pick(&r.spans))).collect());
        Effort {
            cost,
            started: trials.iter().filter_map(|t| slots::started(t)).min(),
            finished: results().filter_map(|r| r.finished).max(),
            trial: Took::of(
                results().filter_map(|r| span(Span { started: r.started, finished: r.finished })).collect(),
            ),
            environment_setup: took(|s| s.environment_setup),
            agent_setup: took(|s| s.agent_setup),
            agent: took(|s| s.agent),
            verifier: took(|s| s.verifier),
        }
    }

    /// From the first start to the last end, in seconds.
    pub fn wall_s(&self) -> Option<f64> {
        time::seconds_between(self.started?, self.finished?)
    }

    /// The phases by name, whole trials first.
    pub fn times(&self) -> [(&'static str, Took); 5] {
        [
            ("trial", self.trial),
            ("environment_setup", self.environment_setup),
            ("agent_setup", self.agent_setup),
            ("agent", self.agent),
            ("verifier", self.verifier),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(Took::of(vec![3.0, 1.0, 2.0]).median_s, Some(2.0));
        assert_eq!(Took::of(vec![4.0, 1.0, 2.0, 3.0]).median_s, Some(2.5));
        let none = Took::of(Vec::new());
        assert_eq!((none.median_s, none.max_s, none.known), (None, None, 0));
    }
}
