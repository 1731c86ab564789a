//! The filter language of the trials list.
//!
//! Words are joined by "and"; each is a part of the trial's name, task, exception type or job, or
//! `field:value` with the fields `phase`, `outcome`, `exception`, `task`, `trial`, `job`, `reward`,
//! `class`, `sub`, `rule`, `flag`, `verdict`, `held`, `overlaps`; `!` before a word turns it round. `reward` takes
//! `reward:1`, `reward:<1`, `reward:>0`, `reward:none`; `exception`, `class`, `sub`, `flag` and `verdict`
//! take `any` and `none`; `=` before a value wants the whole of it. `overlaps:14:05-14:40` are the
//! trials that ran at that time of any day, UTC, `overlaps:outage` those that ran during a noted outage;
//! `held:any` and `held:none` tell those apart whose container is held for a regrade.
//! Case does not matter.

use super::rows::Row;
use crate::job::Stamp;

/// A parsed filter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    negated: bool,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Any(String),
    Phase(String),
    Outcome(String),
    Exception(String),
    Task(String),
    Trial(String),
    Job(String),
    Reward(RewardTest),
    Class(String),
    Sub(String),
    Rule(String),
    Flag(String),
    Verdict(String),
    Held(bool),
    Overlaps(Window),
    Outage,
}

/// Seconds of a day, from and to; beyond midnight where `to` is the smaller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// From then.
    pub from: i64,
    /// Until then.
    pub to: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RewardTest {
    None,
    Is(f64),
    Below(f64),
    Above(f64),
}

impl Filter {
    /// Parses a line; an unknown field or a bad number is an error that names the word.
    pub fn parse(line: &str) -> Result<Filter, String> {
        let mut terms = Vec::new();
        for word in words(line) {
            let (negated, word) = match word.strip_prefix('!') {
                Some(rest) if !rest.is_empty() => (true, rest.to_string()),
                _ => (false, word),
            };
            let test = match word.split_once(':') {
                Some((field, value)) => {
                    let value = value.to_lowercase();
                    match field.to_lowercase().as_str() {
                        "phase" => Test::Phase(value),
                        "outcome" => Test::Outcome(value),
                        "exception" | "error" => Test::Exception(value),
                        "task" => Test::Task(value),
                        "trial" => Test::Trial(value),
                        "job" => Test::Job(value),
                        "reward" => Test::Reward(reward_test(&value)?),
                        "class" => Test::Class(value),
                        "sub" => Test::Sub(value),
                        "rule" => Test::Rule(value),
                        "flag" => Test::Flag(value),
                        "verdict" => Test::Verdict(value),
                        "held" => match value.as_str() {
                            "any" => Test::Held(true),
                            "none" => Test::Held(false),
                            _ => return Err(format!("`held:{value}` is neither held:any nor held:none")),
                        },
                        "overlaps" if value == "outage" => Test::Outage,
                        "overlaps" => Test::Overlaps(window(&value)?),
                        other => {
                            return Err(format!(
                                "no field `{other}`: use phase, outcome, exception, task, trial, job, reward, class, \
                                 sub, rule, flag, verdict, held or overlaps"
                            ));
                        }
                    }
                }
                None => Test::Any(word.to_lowercase()),
            };
            terms.push(Term { negated, test });
        }
        Ok(Filter { terms })
    }

    /// True when nothing is filtered out.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a row passes.
    pub fn matches(&self, row: &Row, job_name: &str) -> bool {
        self.terms.iter().all(|t| t.test.holds(row, job_name) != t.negated)
    }
}

fn words(line: &str) -> Vec<String> {
    let (mut out, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => {
                if !word.is_empty() {
                    out.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        out.push(word);
    }
    out
}

fn reward_test(value: &str) -> Result<RewardTest, String> {
    let number =
        |text: &str| text.parse::<f64>().map_err(|_| format!("`reward:{value}` is no number: use 1, <1, >0 or none"));
    match value {
        "none" | "-" => Ok(RewardTest::None),
        v if v.starts_with('<') => Ok(RewardTest::Below(number(&v[1..])?)),
        v if v.starts_with('>') => Ok(RewardTest::Above(number(&v[1..])?)),
        v => Ok(RewardTest::Is(number(v)?)),
    }
}

/// Seconds of a day.
pub const DAY: i64 = 86_400;

/// `14:05-14:40`
///
/// # Errors
/// In words, where it is no such time.
pub fn window(value: &str) -> Result<Window, String> {
    let clock = |text: &str| -> Option<i64> {
        let (h, m) = text.trim().split_once(':')?;
        let (h, m) = (h.parse::<i64>().ok()?, m.parse::<i64>().ok()?);
        ((0..24).contains(&h) && (0..60).contains(&m)).then_some(h * 3600 + m * 60)
    };
    let parts = value.split_once('-').and_then(|(from, to)| Some((clock(from)?, clock(to)?)));
    match parts {
        Some((from, to)) if from != to => Ok(Window { from, to }),
        _ => Err(format!("`overlaps:{value}` is no time of day: overlaps:14:05-14:40, UTC, or overlaps:outage")),
    }
}

impl Window {
    /// How long it is.
    pub fn seconds(self) -> u64 {
        (self.to - self.from).rem_euclid(DAY).unsigned_abs()
    }

    /// Whether a trial that ran from `start` to `end` (None: it runs still) was at work in it on any day.
    fn meets(self, start: Option<Stamp>, end: Option<Stamp>) -> bool {
        let Some(start) = start.map(|s| s.as_second()) else { return false };
        let end = end.map_or(start.saturating_add(DAY), |e| e.as_second().max(start));
        if end - start >= DAY {
            return true;
        }
        let length = (self.to - self.from).rem_euclid(DAY);
        // The window of the day of its start, of the one before and of the next.
        let day = start.div_euclid(DAY) * DAY;
        [-DAY, 0, DAY].into_iter().any(|shift| {
            let from = day + shift + self.from;
            from <= end && start <= from + length
        })
    }
}

/// A word against what is wanted: a part of it, or after `=` the whole; `any` and `none`.
fn word(found: Option<&str>, wanted: &str) -> bool {
    match (found, wanted.strip_prefix('='), wanted) {
        (found, _, "any") => found.is_some(),
        (found, _, "none") => found.is_none(),
        (Some(found), Some(whole), _) => found.eq_ignore_ascii_case(whole),
        (Some(found), None, part) => has(found, part),
        (None, ..) => false,
    }
}

/// `needle` is lower case already. ASCII haystacks, nearly all of them, cost no allocation.
fn has(haystack: &str, needle: &str) -> bool {
    if needle.is_empty() {
        return true;
    }
    if haystack.is_ascii() {
        let (h, n) = (haystack.as_bytes(), needle.as_bytes());
        return h.len() >= n.len() && h.windows(n.len()).any(|w| w.eq_ignore_ascii_case(n));
    }
    haystack.to_lowercase().contains(needle)
}

impl Test {
    fn holds(&self, row: &Row, job_name: &str) -> bool {
        let exception = row.exception.as_deref().unwrap_or("");
        match self {
            Test::Any(needle) => {
                has(&row.name, needle)
                    || has(&row.task, needle)
                    || has(exception, needle)
                    || has(row.phase.word(), needle)
                    || has(row.outcome.word(), needle)
                    || row.class.as_ref().is_some_and(|c| has(c.class.word(), needle))
                    || has(job_name, needle)
            }
            Test::Phase(needle) => match needle.as_str() {
                "running" => row.phase.is_running(),
                needle => has(row.phase.word(), needle) || has(&row.phase.word().replace('_', " "), needle),
            },
            Test::Outcome(needle) => {
                has(row.outcome.word(), needle) || has(&row.outcome.word().replace(' ', "_"), needle)
            }
            Test::Exception(wanted) => word(row.exception.as_deref(), wanted),
            Test::Class(wanted) => word(row.class.as_ref().map(|c| c.class.word()), wanted),
            Test::Sub(wanted) => word(row.class.as_ref().and_then(|c| c.sub.as_deref()), wanted),
            Test::Rule(wanted) => word(row.class.as_ref().map(|c| &*c.rule), wanted),
            Test::Verdict(wanted) => {
                word(row.verdict.map(|v| v.word()), wanted) || word(row.verdict.map(|v| v.title()), wanted)
            }
            Test::Flag(wanted) => {
                let flags = row.class.as_ref().map_or(&[][..], |c| &c.flags);
                match wanted.as_str() {
                    "none" => flags.is_empty(),
                    "suspicious" => flags.iter().any(|f| f.is_suspicious_pass()),
                    wanted => flags.iter().any(|f| word(Some(f.word()), wanted)),
                }
            }
            Test::Held(held) => row.held == *held,
            Test::Outage => row.outage,
            Test::Overlaps(window) => window.meets(row.started, row.finished),
            Test::Task(wanted) => match wanted.strip_prefix('=') {
                Some(whole) => row.task.eq_ignore_ascii_case(whole),
                None => has(&row.task, wanted),
            },
            Test::Trial(needle) => has(&row.name, needle),
            Test::Job(needle) => has(job_name, needle),
            Test::Reward(test) => match (test, row.reward) {
                (RewardTest::None, reward) => reward.is_none(),
                (_, None) => false,
                (RewardTest::Is(n), Some(r)) => (r - n).abs() < 1e-9,
                (RewardTest::Below(n), Some(r)) => r < *n,
                (RewardTest::Above(n), Some(r)) => r > *n,
            },
        }
    }
}
