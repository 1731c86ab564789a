//! Scores by name, each with its numerator, denominator and rule in words.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::outcome::{Grade, RewardValue, Rewards};
use super::policy::ErrorPolicy;
use super::tally::Totals;
use super::trial::TrialResult;

/// One score.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What is divided: trials, or a sum of rewards; None when the sum is no finite number.
    pub numerator: Option<f64>,
    /// By how many trials (pass@k: tasks).
    pub denominator: u64,
    /// The quotient; None when the denominator is 0 or the sum no finite number.
    pub value: Option<f64>,
    /// 95 % Wilson interval; None where the numerator is not a number of trials.
    pub ci95: Option<(f64, f64)>,
    /// The rule in words; starts with `partial:` while something has not ended.
    pub rule: String,
}

/// The half width of the 95 % interval in standard deviations.
const Z: f64 = 1.959_963_984_540_054;

/// 95 % Wilson score interval of `passed` out of `n`. None for n = 0.
pub fn wilson(passed: u64, n: u64) -> Option<(f64, f64)> {
    if n == 0 || passed > n {
        return None;
    }
    let total = n as f64;
    let p = passed as f64 / total;
    let z2 = Z * Z;
    let middle = (p + z2 / (2.0 * total)) / (1.0 + z2 / total);
    let half = Z / (1.0 + z2 / total) * (p * (1.0 - p) / total + z2 / (4.0 * total * total)).sqrt();
    // At the ends rounding must not leave a sliver beside 0 or 1.
    let low = if passed == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if passed == n { 1.0 } else { (middle + half).min(1.0) };
    Some((low, high))
}

/// Outcomes of the planned slots of one task: how many are planned, how many passed.
pub type PerTask = BTreeMap<Arc<str>, (u64, u64)>;

/// What classes say of the chosen trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Excluded {
    /// Taken out of the denominator: infra, cancelled, phantom, orphaned; none of them passed.
    pub excluded: u64,
    /// Of those, infra.
    pub infra: u64,
    /// Ended without a pass, and their class is known.
    pub known: u64,
    /// Ended without a pass.
    pub of: u64,
}

/// The count with the verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Corrected {
    /// Passed, or counted as passed.
    pub passed: u64,
    /// Planned without the slots of broken tasks.
    pub planned: u64,
    /// Trials with a verdict that stand in a slot.
    pub verdicts: u64,
    /// More passes by a verdict.
    pub as_passed: u64,
    /// Slots taken out.
    pub invalid: u64,
    /// Slots that count by a later trial.
    pub later: u64,
    /// Slots whose trial counts by its regrade.
    pub regraded: u64,
    /// More passes by a regrade.
    pub regraded_up: u64,
    /// Fewer passes by a regrade.
    pub regraded_down: u64,
    /// Trials that stand in a slot and have a regrade, though regrades are ignored.
    pub regrades_ignored: u64,
}

impl Corrected {
    fn rule(&self) -> String {
        let effects = [
            (self.as_passed, "counted as passed"),
            (self.invalid, "taken out as the task is broken"),
            (self.later, "by a later scored trial after infra"),
        ];
        let effects: Vec<String> =
            effects.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let said = match (self.verdicts, effects.is_empty()) {
            (0, _) => "no verdicts yet".to_string(),
            (n, true) => format!("{n} verdicts, none of which changes it"),
            (n, false) => format!("{n} verdicts: {}", effects.join(", ")),
        };
        let regrades = match (self.regraded, self.regrades_ignored) {
            (0, 0) => String::new(),
            (0, n) => format!("; {n} regrades ignored"),
            (n, _) => format!(
                " and the verifier's later word on {n} (regrades: {} more passed, {} fewer)",
                self.regraded_up, self.regraded_down
            ),
        };
        format!("raw with the operators' verdicts ({said}){regrades}")
    }
}

/// What the scores are made of.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Results of the chosen trials, phantoms included (Harbor counts them).
    pub results: &'a [&'a TrialResult],
    /// Totals.
    pub totals: &'a Totals,
    /// By task; empty where not all tasks are known.
    pub per_task: &'a PerTask,
    /// By class.
    pub excluded: Excluded,
    /// By verdict.
    pub corrected: Corrected,
}

/// All scores over the chosen trials.
pub fn all(input: &Input<'_>) -> Vec<Score> {
    let Input { results, totals, per_task, excluded, corrected } = *input;
    let open = totals.planned.saturating_sub(totals.finished);
    let partial = |rule: &str| match open {
        0 => rule.to_string(),
        _ => format!("{}{rule}", open_words(totals)),
    };
    let count = |name: &'static str, passed: u64, of: u64, rule: &str| Score {
        name: name.into(),
        numerator: Some(passed as f64),
        denominator: of,
        value: (of > 0).then(|| passed as f64 / of as f64),
        ci95: wilson(passed, of),
        rule: partial(rule),
    };
    let real = || results.iter().filter(|r| !r.is_phantom());
    let clean = || real().filter(|r| r.exception_type().is_none());
    let passed = |r: &&&TrialResult| r.grade() == Grade::Passed;
    let unknown = excluded.of.saturating_sub(excluded.known);
    let mut without_infra = "passed / (planned - infra - cancelled - phantom - orphaned)".to_string();
    if unknown > 0 {
        let partly = if open == 0 { "partial: " } else { "" };
        without_infra =
            format!("{partly}{unknown} of {} trials without a pass are not classified; {without_infra}", excluded.of);
    }
    let mut scores = vec![
        count("raw", totals.passed, totals.planned, "passed / planned; whatever has no reward counts as not passed"),
        count("corrected", corrected.passed, corrected.planned, &corrected.rule()),
        count("graded", totals.passed, totals.graded, "passed / trials with a reward"),
        count(
            "without_exceptions",
            clean().filter(passed).count() as u64,
            clean().count() as u64,
            "passed without exception / trials that ended without any exception",
        ),
        count("excluding_infra", totals.passed, totals.planned.saturating_sub(excluded.excluded), &without_infra),
    ];
    scores.extend(harbor_scores(results, partial));
    scores.extend(at_k(per_task, partial));
    scores
}

/// How a score's rule begins while something has not ended.
pub fn open_words(totals: &Totals) -> String {
    format!("partial: {} of {} planned have ended; ", totals.finished, totals.planned)
}

/// The means of these results by the rules of Harbor 0.21 and 0.26, as far as they exist.
pub(super) fn harbor_means(results: &[&TrialResult]) -> Vec<f64> {
    let scores = harbor_scores(results, |rule| rule.to_string());
    scores.into_iter().filter_map(|s| s.value).collect()
}

fn harbor_scores(results: &[&TrialResult], partial: impl Fn(&str) -> String) -> [Score; 2] {
    let key = metric_key(results);
    let reward = |r: &&TrialResult| metric_reward(r, key.as_deref()).unwrap_or(0.0);
    [
        harbor_mean(
            "harbor_021",
            results.iter().map(reward),
            partial("sum of rewards / trials with a result, no reward counts 0, as Harbor 0.21 computes its mean"),
        ),
        harbor_mean(
            "harbor_026",
            results.iter().filter(|r| counts_in_026(r)).map(reward),
            partial("sum of rewards / trials whose reward its error policy accepts, as Harbor 0.26 computes its mean"),
        ),
    ]
}

/// The rewards summed and divided as Harbor does.
fn harbor_mean(name: &'static str, rewards: impl Iterator<Item = f64>, rule: String) -> Score {
    let (mut n, mut sum, mut ones, mut binary) = (0u64, 0.0f64, 0u64, true);
    for reward in rewards {
        n += 1;
        sum += reward;
        ones += u64::from(reward == 1.0);
        binary &= reward == 1.0 || reward == 0.0;
    }
    let numerator = Some(sum).filter(|s| s.is_finite());
    Score {
        name: name.into(),
        numerator,
        denominator: n,
        value: numerator.filter(|_| n > 0).map(|s| s / n as f64),
        ci95: wilson(ones, n).filter(|_| binary),
        rule,
    }
}

/// The key whose mean stands for the job: `reward` where any trial has it, else the only key.
fn metric_key(results: &[&TrialResult]) -> Option<Arc<str>> {
    let keys = || results.iter().flat_map(|r| r.rewards.entries()).map(|(key, _)| key);
    keys()
        .find(|k| &***k == "reward")
        .or_else(|| {
            let first = keys().next()?;
            keys().all(|k| k == first).then_some(first)
        })
        .cloned()
}

/// The reward under the job's key; a key that is missing counts 0 with Harbor.
fn metric_reward(result: &TrialResult, key: Option<&str>) -> Option<f64> {
    let entry = result.rewards.entries().iter().find(|(k, _)| Some(&**k) == key)?;
    match entry.1 {
        RewardValue::Number(n) => Some(n),
        RewardValue::Unreadable(_) => None,
    }
}

/// Whether Harbor 0.26 takes the trial into its mean: its own word where it wrote one, else its
/// default policy applied to what an older version recorded.
fn counts_in_026(result: &TrialResult) -> bool {
    result.reward_valid.unwrap_or_else(|| {
        let kinds = result.exception.iter().map(|e| &e.kind).chain(&result.step_exceptions);
        let has_rewards = matches!(&result.rewards, Rewards::Keys(keys) if !keys.is_empty());
        has_rewards && kinds.into_iter().all(|k| ErrorPolicy::of(k).has_valid_reward)
    })
}

/// The k for which pass@k is given, besides the number of trials that every task has.
const KS: [u64; 5] = [2, 4, 5, 8, 10];

/// mean@k and pass@k of several trials of each task: for k the number of trials that every task has,
/// pass@k also for the usual ones below it. Unbiased estimates per task, then their mean. A trial without
/// reward counts as not passed.
fn at_k(per_task: &PerTask, partial: impl Fn(&str) -> String) -> Vec<Score> {
    let most = per_task.values().map(|(planned, _)| *planned).min().unwrap_or(0);
    if most < 2 {
        return Vec::new();
    }
    let of = per_task.len() as u64;
    let score = |name: String, sum: f64, rule: &str| Score {
        name: name.into(),
        numerator: Some(sum),
        denominator: of,
        value: (of > 0).then(|| sum / of as f64),
        ci95: None,
        rule: partial(rule),
    };
    let share: f64 = per_task.values().map(|(n, passed)| *passed as f64 / (*n).max(1) as f64).sum();
    let rule = "mean over tasks of the share of their trials that passed; no reward counts as not passed";
    let mut out = vec![score(format!("mean@{most}"), share, rule)];
    let ks = KS.into_iter().filter(|k| *k < most).chain([most]);
    out.extend(ks.map(|k| {
        let sum: f64 = per_task.values().map(|(n, passed)| 1.0 - none_of(*n, *passed, k)).sum();
        let rule = format!(
            "mean over tasks of the chance that at least one of {k} trials passes; no reward counts as not passed"
        );
        score(format!("pass@{k}"), sum, &rule)
    }));
    out
}

/// The chance that k trials drawn from n, of which `passed` passed, hold none that passed.
fn none_of(n: u64, passed: u64, k: u64) -> f64 {
    let failed = n.saturating_sub(passed);
    (0..k).map(|i| failed.saturating_sub(i) as f64 / n.saturating_sub(i).max(1) as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_matches_known_values() {
        let close = |got: Option<(f64, f64)>, low: f64, high: f64| {
            assert!(got.is_some_and(|(l, h)| (l - low).abs() < 5e-4 && (h - high).abs() < 5e-4), "{got:?}");
        };
        // Newcombe (1998), table I: 81/263, 15/148, 0/20, 1/29.
        close(wilson(81, 263), 0.2553, 0.3662);
        close(wilson(15, 148), 0.0624, 0.1605);
        close(wilson(0, 20), 0.0, 0.1611);
        close(wilson(1, 29), 0.0061, 0.1718);
        close(wilson(20, 20), 0.8389, 1.0);
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn pass_at_k_is_the_unbiased_estimate() {
        // 3 trials, 1 passed: of the 3 pairs 2 hold the passed one.
        assert!((1.0 - none_of(3, 1, 2) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(none_of(3, 2, 2), 0.0);
        assert_eq!(none_of(3, 0, 2), 1.0);
    }
}
