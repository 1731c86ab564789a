//! Headless reporters of the state that the screen shows, too: [`json`] (the contract), [`plain`]
//! (for people at 80 columns) and [`markdown`] (for issues and wikis); [`publish`] makes the one file of `report`,
//! [`compare`] puts runs beside each other, [`jobs`] lists them. Pure: state in, text out.
//!
//! Nothing that a report prints can act on a terminal: text from files passes `job::text`, and the
//! reports write no escape sequences of their own.

pub mod compare;
pub mod jobs;
pub mod json;
pub mod markdown;
pub mod plain;
pub mod publish;
mod regrade;
pub mod serving;
pub mod triage;
pub mod work;

use std::borrow::Cow;

use crate::job::scores::Score;
use crate::job::tally::{Row, Tally};
use crate::job::text::{clean, mask_secrets, strip_ansi};
use crate::job::time;
use crate::job::{Fleet, Phase, Trial};

/// What is not known.
const UNKNOWN: &str = "-";

/// Text of somebody's file as one printable line.
fn line(text: &str) -> String {
    clean(&mask_secrets(&strip_ansi(text))).into_owned()
}

/// The trial of a row; None for a slot without directory.
fn trial_of<'a>(fleet: &'a Fleet, row: &Row) -> Option<&'a Trial> {
    fleet.jobs().get(row.job)?.trials.get(row.trial.as_ref()?)
}

/// Directory of a row's job joined with a trial's name.
fn path_of(fleet: &Fleet, job: usize, trial: &str) -> String {
    match fleet.jobs().get(job) {
        Some(job) => job.facts.dir.join(trial).display().to_string(),
        None => trial.to_string(),
    }
}

/// A reward, mean or sum without needless digits: `1`, `0.5`, `0.3333`.
fn number(n: f64) -> String {
    if n.fract() == 0.0 && n.abs() < 1e9 {
        return format!("{n:.0}");
    }
    if n.abs() >= 1e9 || n.abs() < 1e-3 {
        return format!("{n:e}");
    }
    let text = format!("{n:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A number of tokens with thin groups: `41,114`; unknown is `-`.
fn tokens(n: Option<u64>) -> String {
    let Some(n) = n else { return UNKNOWN.to_string() };
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `0.600` and `[0.313, 0.832]`; unknown is `-`.
fn value(score: &Score) -> (String, String) {
    let value = score.value.map_or(UNKNOWN.to_string(), |v| if v.abs() < 1e6 { format!("{v:.3}") } else { number(v) });
    let interval = score.ci95.map_or(UNKNOWN.to_string(), |(low, high)| format!("[{low:.3}, {high:.3}]"));
    (value, interval)
}

/// `6 / 10`.
fn quotient(score: &Score) -> String {
    format!("{} / {}", score.numerator.map_or(UNKNOWN.to_string(), number), score.denominator)
}

/// What a row's trial came to, in words: `passed`, `failed, AgentTimeoutError`, `phantom`, `queued`.
fn outcome(trial: Option<&Trial>, phase: Phase) -> Cow<'static, str> {
    let Some(result) = trial.and_then(|t| t.result.as_ref()) else { return phase.word().into() };
    if result.is_phantom() {
        return "phantom".into();
    }
    match result.exception_type() {
        Some(kind) => format!("{}, {}", result.grade().word(), line(kind)).into(),
        None => result.grade().word().into(),
    }
}

/// The outcome of a row with what it is classified as and what operators say of it.
fn judged(fleet: &Fleet, row: &Row) -> String {
    let trial = trial_of(fleet, row);
    let mut text = outcome(trial, row.phase).into_owned();
    let class = fleet.jobs().get(row.job).zip(trial).and_then(|(job, trial)| job.class_of(trial));
    if let Some(class) = class {
        let sub = class.sub.as_deref().map_or(String::new(), |sub| format!("/{}", line(sub)));
        text.push_str(&format!(" · {}{sub}", class.class.word()));
    }
    if let Some(verdict) = row.verdict {
        text.push_str(&format!(" · verdict: {}", verdict.title()));
    }
    for regrade in trial.into_iter().flat_map(|t| t.regrades_of_this()) {
        text.push_str(&format!(" · {}", line(&regrade.words())));
    }
    text
}

/// Money and time, in lines: what it is, and the figures.
fn effort_lines(tally: &Tally) -> Vec<(&'static str, String)> {
    let effort = &tally.effort;
    let cost = &effort.cost;
    let usd = cost.usd.map_or(UNKNOWN.to_string(), |usd| format!("{usd:.2} USD"));
    let mut out = vec![("cost", format!("{usd}; known for {} of {} trials", cost.known, cost.of))];
    if let (Some(start), Some(end), Some(wall)) = (effort.started, effort.finished, effort.wall_s()) {
        out.push(("wall", format!("{} from {start:.0} to {end:.0}", time::words(wall))));
    }
    let phases: Vec<String> = effort
        .times()
        .into_iter()
        .filter_map(|(name, took)| {
            let (median, max) = (took.median_s?, took.max_s?);
            Some(format!("{} {} (longest {})", name.replace('_', " "), time::words(median), time::words(max)))
        })
        .collect();
    if !phases.is_empty() {
        out.push(("time", format!("medians: {}", phases.join(", "))));
    }
    out
}

/// Raw and corrected, side by side.
fn corrected_line(tally: &Tally) -> String {
    let by = |name: &str| tally.scores.iter().find(|s| s.name == name);
    let figure = |name: &str| {
        by(name).map_or(UNKNOWN.to_string(), |s| {
            let percent = s.value.map_or(UNKNOWN.to_string(), |v| format!("{:.2} %", 100.0 * v));
            format!("{} = {percent}", quotient(s))
        })
    };
    let n = tally.corrected.verdicts;
    let s = |n: u64| if n == 1 { "" } else { "s" };
    let regrades = match (tally.corrected.regraded, tally.corrected.regrades_ignored) {
        (0, 0) => String::new(),
        (0, n) => format!(", {n} regrade{} ignored", s(n)),
        (n, _) => format!(", {n} regrade{} used", s(n)),
    };
    format!("raw {} · corrected {} ({n} verdict{}{regrades})", figure("raw"), figure("corrected"), s(n))
}

/// The totals in the words of the report, in groups: what they are about, and the counts.
fn total_lines(tally: &Tally) -> [(&'static str, String); 5] {
    let t = &tally.totals;
    let waiting = t.planned.saturating_sub(t.finished + t.phantom + t.orphaned + t.unreadable + t.running);
    [
        (
            "reward",
            format!(
                "{} of {} graded: {} passed, {} partial, {} failed; {} without reward",
                t.graded, t.finished, t.passed, t.partial, t.failed, t.no_reward
            ),
        ),
        ("exception", format!("{} of {} with an exception, {} of them cancelled", t.errored, t.finished, t.cancelled)),
        ("open", format!("{} running, {waiting} without a trial so far", t.running)),
        ("unusable", format!("{} phantom, {} orphaned, {} unreadable", t.phantom, t.orphaned, t.unreadable)),
        ("left out", format!("{} duplicate, {} superseded", t.duplicate, t.superseded)),
    ]
}
