//! Rules from TOML. What is wrong is told by file and line, with what is allowed there.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::{Kinds, Order, Range, Rule, Rules, RulesError, SHIPPED, Versions, numbers};
use crate::job::{AlarmLimits, Class, Flag, Verdict};
use crate::triage::evidence::{Search, Source};
use crate::triage::facts::{Number, Reached, Reward};
use crate::triage::pattern::{LONGEST, Pattern, build};
use crate::triage::tests_run::TestsWord;

/// Largest file, in bytes.
const LARGEST: u64 = 1 << 20;
/// Rules of one file.
const MOST: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    schema_version: Option<Spanned<u32>>,
    #[serde(default)]
    alarms: RawAlarms,
    #[serde(default)]
    patterns: BTreeMap<String, Vec<Spanned<String>>>,
    #[serde(default)]
    rules: BTreeMap<String, Spanned<RawRule>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAlarms {
    systemic_share: Option<f64>,
    systemic_trials: Option<u32>,
    systemic_minutes: Option<f64>,
    burst_errors: Option<u32>,
    burst_minutes: Option<f64>,
    clock_share: Option<f64>,
    few_tokens_per_second: Option<f64>,
    few_tokens_seconds: Option<f64>,
    runaway_episodes_per_hour: Option<f64>,
    runaway_episodes: Option<u32>,
    runaway_seconds: Option<f64>,
    thin_episodes: Option<u32>,
    not_started_seconds: Option<f64>,
    slow_start_seconds: Option<f64>,
    over_budget_share: Option<f64>,
    silent_seconds: Option<f64>,
    all_timeouts: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    enabled: Option<bool>,
    harbor: Option<Spanned<String>>,
    exception: Option<Vec<String>>,
    phase: Option<Vec<Spanned<String>>>,
    reward: Option<Vec<Spanned<String>>>,
    tests: Option<Spanned<String>>,
    agent: Option<Vec<String>>,
    #[serde(default)]
    when: BTreeMap<Spanned<String>, RawRange>,
    #[serde(default, rename = "match")]
    finds: Vec<RawSearch>,
    #[serde(default)]
    unless: Vec<RawSearch>,
    class: Option<Spanned<String>>,
    sub: Option<Spanned<String>>,
    why: Option<Spanned<String>>,
    suggest: Option<Spanned<String>>,
    #[serde(default)]
    flags: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRange {
    min: Option<f64>,
    max: Option<f64>,
    #[serde(default)]
    among: Vec<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSearch {
    #[serde(rename = "in")]
    sources: Vec<Spanned<String>>,
    any: Vec<Spanned<String>>,
    #[serde(default)]
    but: Vec<Spanned<String>>,
    tail: Option<usize>,
    count: Option<usize>,
}

/// A file's text; in words why not.
pub(super) fn file(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    if !file.metadata().map_err(|e| e.to_string())?.is_file() {
        return Err("not a file".to_string());
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("more than {LARGEST} bytes"));
    }
    Ok(text)
}

/// One text with its name, for errors.
struct Text<'a> {
    file: &'a str,
    text: &'a str,
    /// Patterns that other files gave before: of the shipped rules for those of the operator.
    named: BTreeMap<String, Vec<String>>,
    /// Whether every pattern is compiled at once.
    strict: bool,
}

/// The operator's texts before the shipped one.
pub(super) fn layered(own: &[(String, String)]) -> Result<Rules, RulesError> {
    let mut list: Vec<Rule> = Vec::new();
    let mut off: Vec<String> = Vec::new();
    let mut layers = Vec::new();
    let mut shipped =
        Text { file: "error-classes.toml (shipped)", text: SHIPPED, named: BTreeMap::new(), strict: false };
    let base = shipped.parse()?;
    shipped.named = names(&base);
    for (file, text) in own {
        let mut layer = Text { file, text, named: shipped.named.clone(), strict: true };
        let raw = layer.parse()?;
        layer.named.extend(names(&raw));
        layers.push((layer, raw));
    }
    layers.push((shipped, base));
    let mut alarms = AlarmLimits::default();
    for (_, raw) in layers.iter().rev() {
        set(&mut alarms, &raw.alarms);
    }
    for (layer, raw) in layers {
        layer.check(&raw)?;
        let mut in_order: Vec<(String, Spanned<RawRule>)> = raw.rules.into_iter().collect();
        in_order.sort_by_key(|(_, rule)| rule.span().start);
        let mut names_here = Vec::new();
        for (name, rule) in in_order {
            let span = rule.span();
            let rule = rule.into_inner();
            if rule.enabled == Some(false) {
                names_here.push(name);
                continue;
            }
            let rule = layer.rule(&name, span, rule)?;
            names_here.push(name.clone());
            if !off.contains(&name) {
                list.push(rule);
            }
        }
        off.append(&mut names_here);
    }
    let files = own.iter().map(|(file, _)| file.clone()).chain(["shipped".to_string()]).collect();
    Ok(Rules { list, files, alarms })
}

fn names(raw: &RawFile) -> BTreeMap<String, Vec<String>> {
    let list = |list: &Vec<Spanned<String>>| list.iter().map(|s| s.get_ref().clone()).collect();
    raw.patterns.iter().map(|(name, patterns)| (name.clone(), list(patterns))).collect()
}

fn set(alarms: &mut AlarmLimits, raw: &RawAlarms) {
    fn put<T: Copy>(place: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *place = value;
        }
    }
    put(&mut alarms.systemic_share, raw.systemic_share);
    put(&mut alarms.systemic_trials, raw.systemic_trials);
    put(&mut alarms.systemic_minutes, raw.systemic_minutes);
    put(&mut alarms.burst_errors, raw.burst_errors);
    put(&mut alarms.burst_minutes, raw.burst_minutes);
    put(&mut alarms.clock_share, raw.clock_share);
    put(&mut alarms.few_tokens_per_second, raw.few_tokens_per_second);
    put(&mut alarms.few_tokens_seconds, raw.few_tokens_seconds);
    put(&mut alarms.runaway_episodes_per_hour, raw.runaway_episodes_per_hour);
    put(&mut alarms.runaway_episodes, raw.runaway_episodes);
    put(&mut alarms.runaway_seconds, raw.runaway_seconds);
    put(&mut alarms.thin_episodes, raw.thin_episodes);
    put(&mut alarms.not_started_seconds, raw.not_started_seconds);
    put(&mut alarms.slow_start_seconds, raw.slow_start_seconds);
    put(&mut alarms.over_budget_share, raw.over_budget_share);
    put(&mut alarms.silent_seconds, raw.silent_seconds);
    put(&mut alarms.all_timeouts, raw.all_timeouts);
}

/// `one, two or three`.
fn list<T>(all: &[T], word: impl Fn(&T) -> &'static str) -> String {
    let words: Vec<&str> = all.iter().map(word).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

impl Text<'_> {
    fn wrong(&self, at: usize, what: String) -> RulesError {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        RulesError { file: self.file.to_string(), line: Some(line), what }
    }

    fn parse(&self) -> Result<RawFile, RulesError> {
        toml::from_str(self.text).map_err(|error: toml::de::Error| {
            let what = error.message().trim_end().replace('\n', "; ");
            match error.span() {
                Some(span) => self.wrong(span.start, what),
                None => RulesError { file: self.file.to_string(), line: None, what },
            }
        })
    }

    /// What is wrong outside of the rules.
    fn check(&self, raw: &RawFile) -> Result<(), RulesError> {
        if let Some(version) = &raw.schema_version
            && *version.get_ref() != 1
        {
            let what = format!("schema_version {}: only 1 is known", version.get_ref());
            return Err(self.wrong(version.span().start, what));
        }
        if raw.rules.len() > MOST {
            return Err(self.wrong(0, format!("{} rules: at most {MOST} are read", raw.rules.len())));
        }
        for patterns in raw.patterns.values() {
            for pattern in patterns {
                self.pattern(pattern, 0)?;
            }
        }
        Ok(())
    }

    /// The word of a list of allowed ones.
    fn word<T: Copy>(
        &self,
        what: &str,
        given: &Spanned<String>,
        all: &[T],
        word: impl Fn(&T) -> &'static str,
    ) -> Result<T, RulesError> {
        let found = all.iter().find(|one| word(one) == given.get_ref());
        found.copied().ok_or_else(|| {
            let what = format!("{what} \"{}\": allowed is {}", given.get_ref(), list(all, word));
            self.wrong(given.span().start, what)
        })
    }

    fn rule(&self, name: &str, span: std::ops::Range<usize>, raw: RawRule) -> Result<Rule, RulesError> {
        let missing = |key: &str| self.wrong(span.start, format!("rule {name} has no {key}: give class and why"));
        let class_given = raw.class.as_ref().ok_or_else(|| missing("class"))?;
        let class = self.word("class", class_given, &Class::ALL, |c| c.word())?;
        let why = raw.why.as_ref().ok_or_else(|| missing("why"))?;
        let mut rule = Rule {
            name: Arc::from(name),
            class,
            sub: raw.sub.as_ref().map(|s| Arc::from(s.get_ref().as_str())),
            why: Arc::from(why.get_ref().as_str()),
            suggested: None,
            flags: Vec::new(),
            harbor: None,
            kinds: raw.exception.map(Kinds),
            phases: None,
            rewards: None,
            tests: None,
            agents: raw.agent.map(Kinds),
            numbers: Vec::new(),
            finds: Vec::new(),
            unless: Vec::new(),
        };
        if let Some(suggest) = &raw.suggest {
            rule.suggested = Some(self.word("suggest", suggest, &Verdict::ALL, |v| v.word())?);
        }
        for flag in &raw.flags {
            rule.flags.push(self.word("flag", flag, &Flag::ALL, |f| f.word())?);
        }
        if let Some(range) = &raw.harbor {
            rule.harbor = Some(self.versions(range)?);
        }
        if let Some(phases) = &raw.phase {
            let words = phases.iter().map(|p| self.word("phase", p, &Reached::ALL, |r| r.word()));
            rule.phases = Some(words.collect::<Result<_, _>>()?);
        }
        if let Some(rewards) = &raw.reward {
            let words = rewards.iter().map(|r| self.word("reward", r, &Reward::ALL, |r| r.word()));
            rule.rewards = Some(words.collect::<Result<_, _>>()?);
        }
        if let Some(tests) = &raw.tests {
            rule.tests = Some(self.word("tests", tests, &TestsWord::ALL, |t| t.word())?);
        }
        for (number, range) in &raw.when {
            let number = self.word("number", number, &Number::ALL, |n| n.word())?;
            rule.numbers.push((number, Range { min: range.min, max: range.max, among: range.among.clone() }));
        }
        for search in &raw.finds {
            rule.finds.push(self.search(search)?);
        }
        for search in &raw.unless {
            rule.unless.push(self.search(search)?);
        }
        let conditions = rule.kinds.is_some() || rule.phases.is_some() || rule.rewards.is_some();
        let conditions = conditions || rule.tests.is_some() || !rule.finds.is_empty() || !rule.numbers.is_empty();
        if !conditions {
            let what = format!(
                "rule {name} has no condition: give exception, phase, reward, tests, when or match, or it would hold \
                 for every trial"
            );
            return Err(self.wrong(span.start, what));
        }
        Ok(rule)
    }

    fn search(&self, raw: &RawSearch) -> Result<Search, RulesError> {
        let words = raw.sources.iter().map(|s| self.word("source", s, &Source::ALL, |s| s.word()));
        let mut any = Vec::new();
        for pattern in &raw.any {
            any.extend(self.pattern(pattern, 1)?);
        }
        let mut but = Vec::new();
        for pattern in &raw.but {
            but.extend(self.pattern(pattern, 1)?);
        }
        Ok(Search {
            sources: words.collect::<Result<_, _>>()?,
            pattern: Pattern::shared(&any),
            but: (!but.is_empty()).then(|| Pattern::shared(&but)),
            tail: raw.tail,
            count: raw.count.unwrap_or(1),
        })
    }

    /// A pattern, or those of the name after `@`.
    fn pattern(&self, given: &Spanned<String>, depth: u8) -> Result<Vec<String>, RulesError> {
        let at = given.span().start;
        let text = given.get_ref();
        if depth > 0
            && let Some(name) = text.strip_prefix('@')
        {
            return self.named.get(name).cloned().ok_or_else(|| {
                let known: Vec<&str> = self.named.keys().map(String::as_str).collect();
                self.wrong(at, format!("no [patterns] are called {name}; there are {}", known.join(", ")))
            });
        }
        if text.len() > LONGEST {
            return Err(self.wrong(at, format!("a pattern of {} bytes: at most {LONGEST} are allowed", text.len())));
        }
        if self.strict
            && let Err(error) = build(text)
        {
            let words = error.to_string();
            let words: Vec<&str> = words.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            let what = format!(
                "not a pattern: {}; allowed are the regular expressions of the Rust regex crate, without look-around \
                 and back-references",
                words.join(" ")
            );
            return Err(self.wrong(at, what));
        }
        Ok(vec![text.clone()])
    }

    fn versions(&self, given: &Spanned<String>) -> Result<Versions, RulesError> {
        let mut out = Vec::new();
        for part in given.get_ref().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let signs = [
                ("<=", Order::AtMost),
                (">=", Order::AtLeast),
                ("<", Order::Less),
                (">", Order::More),
                ("=", Order::Equal),
                ("", Order::Equal),
            ];
            let found = signs.iter().find_map(|(sign, order)| Some((*order, part.strip_prefix(sign)?)));
            let read = found.and_then(|(order, rest)| Some((order, numbers(rest)?)));
            let Some(one) = read else {
                let what = format!("harbor \"{}\": give versions such as \">=0.21, <0.26\"", given.get_ref());
                return Err(self.wrong(given.span().start, what));
            };
            out.push(one);
        }
        Ok(Versions(out))
    }
}
