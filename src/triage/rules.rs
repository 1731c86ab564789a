//! The table: rules in their order, each with conditions and the class that follows.

mod read;

use std::path::PathBuf;
use std::sync::Arc;

use super::evidence::{Gathered, Search};
use super::facts::{Facts, Number, Reached, Reward};
use super::tests_run::{Tests, TestsWord};
use crate::job::{AlarmLimits, Class, Excerpt, Flag, Verdict};

/// The rules that come with the program.
pub const SHIPPED: &str = include_str!("../../configs/error-classes.toml");

/// What is wrong with a file of rules.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {what}", line.map_or(String::new(), |n| format!(":{n}")))]
pub struct RulesError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: Option<usize>,
    /// What is wrong, and what is allowed.
    pub what: String,
}

/// A condition on a number: both ends are included.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Range {
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// One of these, where it is not empty.
    pub among: Vec<f64>,
}

impl Range {
    fn holds(&self, n: f64) -> bool {
        self.min.is_none_or(|min| n >= min)
            && self.max.is_none_or(|max| n <= max)
            && (self.among.is_empty() || self.among.contains(&n))
    }
}

/// A range of Harbor's versions: `>=0.21, <0.26`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Versions(pub Vec<(Order, Vec<u64>)>);

/// How a version is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

impl Versions {
    fn holds(&self, version: Option<&str>) -> bool {
        let Some(version) = version.and_then(numbers) else { return false };
        self.0.iter().all(|(order, wanted)| {
            // `=0.21` means any 0.21.x.
            let cut = |v: &[u64]| -> Vec<u64> { (0..wanted.len()).map(|i| v.get(i).copied().unwrap_or(0)).collect() };
            let whole = |v: &[u64]| -> Vec<u64> { (0..4).map(|i| v.get(i).copied().unwrap_or(0)).collect() };
            match order {
                Order::Less => whole(&version) < whole(wanted),
                Order::AtMost => cut(&version) <= *wanted,
                Order::Equal => cut(&version) == *wanted,
                Order::AtLeast => whole(&version) >= whole(wanted),
                Order::More => cut(&version) > *wanted,
            }
        })
    }
}

/// The numbers of a version, `0.26.0` and `0.26.0rc1` alike.
pub(super) fn numbers(version: &str) -> Option<Vec<u64>> {
    let part = |p: &str| p.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let list: Vec<u64> = version.trim().trim_start_matches('v').split('.').take(4).map_while(part).collect();
    (!list.is_empty()).then_some(list)
}

/// Exception types: names, with `*` for any part.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kinds(pub Vec<String>);

impl Kinds {
    fn holds(&self, kind: Option<&str>) -> bool {
        self.0.iter().any(|wanted| match (wanted.as_str(), kind) {
            ("none", kind) => kind.is_none(),
            ("any", kind) => kind.is_some(),
            (wanted, Some(kind)) => fits(wanted, kind),
            (_, None) => false,
        })
    }
}

/// A name with `*` for any part.
fn fits(wanted: &str, name: &str) -> bool {
    let mut parts = wanted.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(before) = last.replace(part) {
            let Some((_, after)) = rest.split_once(before) else { return false };
            rest = after;
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}

/// A rule: all of its conditions have to hold.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name: `[rules.<name>]`.
    pub name: Arc<str>,
    /// The class that follows.
    pub class: Class,
    /// The sub-class.
    pub sub: Option<Arc<str>>,
    /// Why, in words.
    pub why: Arc<str>,
    /// What a person would probably say.
    pub suggested: Option<Verdict>,
    /// What else is odd.
    pub flags: Vec<Flag>,
    pub(super) harbor: Option<Versions>,
    pub(super) kinds: Option<Kinds>,
    pub(super) phases: Option<Vec<Reached>>,
    pub(super) rewards: Option<Vec<Reward>>,
    pub(super) tests: Option<TestsWord>,
    pub(super) agents: Option<Kinds>,
    pub(super) numbers: Vec<(Number, Range)>,
    pub(super) finds: Vec<Search>,
    pub(super) unless: Vec<Search>,
}

impl Rule {
    /// The lines it rests on, where it holds; the cheap conditions are asked first.
    pub(super) fn holds(&self, facts: &Facts, gathered: &mut Gathered<'_>) -> Option<Vec<Excerpt>> {
        let kind = facts.kind.as_deref();
        let cheap = self.harbor.as_ref().is_none_or(|h| h.holds(facts.harbor.as_deref()))
            && self.kinds.as_ref().is_none_or(|k| k.holds(kind))
            && self.phases.as_ref().is_none_or(|p| p.contains(&facts.reached))
            && self.rewards.as_ref().is_none_or(|r| facts.reward.is_some_and(|reward| r.contains(&reward)))
            && self.agents.as_ref().is_none_or(|a| a.holds(facts.agent.as_deref()))
            && self.numbers.iter().all(|(n, range)| facts.number(*n).is_some_and(|n| range.holds(n)));
        if !cheap {
            return None;
        }
        let mut evidence = Vec::new();
        for search in &self.finds {
            evidence.extend(gathered.find(search)?);
        }
        let mut seen = None;
        if let Some(word) = self.tests {
            let tests = facts.tests(gathered);
            if !word.fits(&tests) {
                return None;
            }
            if let Tests::Ran(excerpt) = tests {
                seen = Some(excerpt);
            }
        }
        if self.unless.iter().any(|search| gathered.find(search).is_some()) {
            return None;
        }
        evidence.extend(seen);
        Some(evidence)
    }
}

/// All rules, first match first, and the thresholds of the alarms.
#[derive(Debug)]
pub struct Rules {
    list: Vec<Rule>,
    files: Vec<String>,
    /// Thresholds of alarms and flags.
    pub alarms: AlarmLimits,
}

impl Rules {
    /// Those that come with the program.
    pub fn shipped() -> Rules {
        // A test reads them; were they wrong all the same, everything would be unclassified.
        read::layered(&[]).unwrap_or_else(|error| {
            tracing::error!(%error, "the shipped rules can not be read");
            Rules { list: Vec::new(), files: Vec::new(), alarms: AlarmLimits::default() }
        })
    }

    /// Files of the operator's own before the shipped ones. A rule of theirs takes the place of all
    /// later ones of its name; their thresholds hold where they give some.
    ///
    /// # Errors
    /// The first file that can not be read or is wrong.
    pub fn load(files: &[PathBuf]) -> Result<Rules, RulesError> {
        let mut texts = Vec::new();
        for path in files {
            let file = path.display().to_string();
            let text = read::file(path).map_err(|what| RulesError { file: file.clone(), line: None, what })?;
            texts.push((file, text));
        }
        read::layered(&texts)
    }

    /// Reads texts as if they were files: name and text, the first first, before the shipped rules.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn of_texts(texts: &[(String, String)]) -> Result<Rules, RulesError> {
        read::layered(texts)
    }

    /// The files in the order in which their rules are asked; `shipped` is the program's own.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The rules in the order in which they are asked.
    pub fn list(&self) -> &[Rule] {
        &self.list
    }

    /// Compiles every pattern; the names of rules with one that can not be.
    pub fn broken(&self) -> Vec<Arc<str>> {
        let bad = |search: &Search| {
            search.pattern.regex().is_none() || search.but.as_ref().is_some_and(|b| b.regex().is_none())
        };
        let broken = |rule: &&Rule| rule.finds.iter().chain(&rule.unless).any(bad);
        self.list.iter().filter(broken).map(|r| r.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_names_compare() {
        let range = Versions(vec![(Order::AtLeast, vec![0, 21]), (Order::Less, vec![0, 26])]);
        assert!(range.holds(Some("0.21.0")) && range.holds(Some("0.25.9")));
        assert!(!range.holds(Some("0.26.0")) && !range.holds(Some("0.9")) && !range.holds(None));
        assert!(Versions(vec![(Order::Equal, vec![0, 21])]).holds(Some("0.21.7")));
        assert!(fits("Api*Error", "ApiOverloadedError") && fits("*Sandbox*", "MySandboxError") && fits("A", "A"));
        assert!(!fits("Api*Error", "ApiX") && !fits("A", "AB") && !fits("*B", "BA"));
    }
}
