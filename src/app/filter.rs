//! The filter language of the trials list.
//!
//! Words are joined by "and"; each is a part of the trial's name, task, exception type or job, or
//! `field:value` with the fields `phase`, `outcome`, `exception`, `task`, `trial`, `job`, `reward`;
//! `!` before a word turns it round. `reward` takes `reward:1`, `reward:<1`, `reward:>0`,
//! `reward:none`. Case does not matter.

use super::rows::Row;

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
                        other => {
                            return Err(format!(
                                "no field `{other}`: use phase, outcome, exception, task, trial, job or reward"
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
                    || has(job_name, needle)
            }
            Test::Phase(needle) => match needle.as_str() {
                "running" => row.phase.is_running(),
                needle => has(row.phase.word(), needle) || has(&row.phase.word().replace('_', " "), needle),
            },
            Test::Outcome(needle) => {
                has(row.outcome.word(), needle) || has(&row.outcome.word().replace(' ', "_"), needle)
            }
            Test::Exception(needle) => match needle.as_str() {
                "any" => row.exception.is_some(),
                "none" => row.exception.is_none(),
                needle => has(exception, needle),
            },
            Test::Task(needle) => has(&row.task, needle),
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
