//! Calls of the model that go on unusually long, as the trials themselves tell them: the rule and its
//! numbers are explained in `configs/serving.toml`, table `thinking`.

use super::Thinking;
use crate::job::work::words::{brief, tokens};
use crate::job::work::{Call, Work};
use crate::job::{Stamp, time};

/// A call that goes on unusually long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Long {
    /// When the call began: what tells it from the trial's other calls.
    pub since: Stamp,
    /// In words, without the trial's name: how long, how much, against what.
    pub grounds: String,
}

/// Whether the present call of a trial goes on unusually long; `median`: seconds of the median episode,
/// where one is known.
pub fn long(work: &Work, median: Option<f64>, limits: &Thinking, now: Stamp) -> Option<Long> {
    let call = work.call()?;
    let Call { since, reasoning, answer, .. } = *call;
    let so_far = reasoning.saturating_add(answer);
    let age = time::age(since, now).as_secs_f64();
    let patience = median.map_or(limits.seconds, |median| limits.seconds.max(limits.medians * median));
    let free = match work.context {
        (used, Some(limit)) => Some(limit.saturating_sub(used.unwrap_or(0))),
        _ => None,
    };
    let against = if age >= patience && so_far as f64 >= limits.least_tokens {
        match median {
            Some(median) => format!("the median episode takes {}", brief(median)),
            None => format!("nothing usual takes {}", brief(patience)),
        }
    } else if so_far as f64 > limits.tokens {
        format!("more than {} tokens", tokens(limits.tokens as u64))
    } else if let Some(free) = free.filter(|free| so_far as f64 > limits.context_share * *free as f64 && so_far > 0) {
        format!("the context had {} tokens left for it", tokens(free))
    } else {
        return None;
    };
    let what = match (reasoning, answer) {
        (_, 0) => format!("{} tokens of reasoning", tokens(reasoning)),
        (0, _) => format!("{} tokens of answer", tokens(answer)),
        _ => format!("{} tokens of reasoning, {} of answer", tokens(reasoning), tokens(answer)),
    };
    let episode = work.episode.map_or(String::new(), |n| format!(" in episode {n}"));
    let speed =
        work.rate.filter(|rate| rate.is_finite()).map_or(String::new(), |rate| format!(" at {rate:.0} tokens/s"));
    Some(Long { since, grounds: format!("{}{episode}, {what}{speed}; {against}", brief(age)) })
}

impl Long {
    /// In words: what it is, and the grounds.
    pub fn text(&self) -> String {
        format!("thinking unusually long: {}", self.grounds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Thresholds;
    use super::*;
    use crate::job::work::Doing;

    fn at(seconds: i64) -> Stamp {
        Stamp::from_second(1_800_000_000 + seconds).unwrap_or_default()
    }

    fn work(age: i64, reasoning: u64, answer: u64) -> Work {
        let call = Call { since: at(10_000 - age), heard: None, reasoning, answer };
        Work { doing: Doing::Model(call), episode: Some(7), told: Some(at(10_000)), ..Work::default() }
    }

    fn told(work: &Work, median: Option<f64>) -> Option<String> {
        long(work, median, &Thresholds::shipped().thinking, at(10_000)).map(|long| long.text())
    }

    #[test]
    fn it_takes_time_and_tokens_or_very_many_tokens() {
        assert_eq!(told(&work(179, 9_000, 0), None), None, "not three minutes");
        assert_eq!(told(&work(600, 1_999, 0), None), None, "a slow server, not a long thought");
        assert_eq!(told(&work(600, 9_000, 0), Some(250.0)), None, "not three median episodes");
        let text = "thinking unusually long: 12 m in episode 7, 9k tokens of reasoning; the median episode takes 40 s";
        assert_eq!(told(&work(750, 9_000, 0), Some(40.0)).as_deref(), Some(text));
        let quick = told(&work(60, 32_001, 10), None).unwrap_or_default();
        assert!(quick.ends_with("32k tokens of reasoning, 10 of answer; more than 32k tokens"), "{quick}");
        let full = Work { context: (Some(120_000), Some(131_072)), rate: Some(48.4), ..work(60, 6_000, 0) };
        let full = told(&full, None).unwrap_or_default();
        assert!(full.ends_with("reasoning at 48 tokens/s; the context had 11k tokens left for it"), "{full}");
        let empty = Work { context: (Some(131_072), Some(131_072)), ..work(60, 0, 0) };
        assert_eq!(told(&empty, None), None);
    }

    #[test]
    fn only_a_call_can_be_long() {
        let idle = Work { doing: Doing::Done, told: Some(at(0)), ..Work::default() };
        assert_eq!(told(&idle, Some(1.0)), None);
        // A clock that was set back.
        assert_eq!(told(&work(-500, 9_000, 0), None), None);
    }
}
