//! The report as markdown: scores, totals, the trials that are not a clean pass, warnings.

use std::fmt::Write as _;

use super::{
    UNKNOWN, corrected_line, effort_lines, judged, line, number, outcome, quotient, tokens, total_lines, trial_of,
    value,
};
use crate::job::Fleet;
use crate::job::slots;
use crate::job::tally::{Place, Tally};
use crate::job::time;

/// The report of `tally`.
pub fn tally(fleet: &Fleet, tally: &Tally) -> String {
    let mut out = String::new();
    let mut row = |cells: &[&str]| {
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    };
    row(&["job", "harbor", "state", "planned", "dir"]);
    row(&["---", "---", "---", "---:", "---"]);
    for (job, line_of) in fleet.jobs().iter().zip(&tally.jobs) {
        let planned = line_of.planned.map_or(UNKNOWN.to_string(), |(n, file)| format!("{n} ({file})"));
        let version = job.facts.harbor_version.as_deref().map_or(UNKNOWN.to_string(), cell);
        let dir = cell(&job.facts.dir.display().to_string());
        row(&[&cell(&job.facts.name), &version, line_of.state.kind.word(), &planned, &dir]);
    }
    let merge = &tally.merge;
    let how = merge.how.map_or(String::new(), |h| format!("{}: ", h.word()));
    let _ = writeln!(out, "\nMerged as {how}{}. Rule: {}.", cell(&merge.why), merge.rule.word());
    if let Some(caveat) = merge.caveat() {
        let _ = writeln!(out, "\n**{caveat}**");
    }

    let _ = writeln!(out, "\n{}", corrected_line(tally));
    let _ = writeln!(out, "\n| score | passed or sum / of | value | 95 % interval | rule |\n|---|---:|---:|---|---|");
    for score in &tally.scores {
        let (value, interval) = value(score);
        let cells = [&*score.name, &quotient(score), &value, &interval, &cell(&score.rule)];
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }

    let t = &tally.totals;
    let _ = writeln!(out, "\n{} of {} planned trials have ended.\n", t.finished, t.planned);
    for (label, text) in total_lines(tally) {
        let _ = writeln!(out, "- {label}: {text}");
    }
    let n = &tally.tokens;
    let _ = writeln!(
        out,
        "- tokens: {} input ({} from cache), {} output; known for {} of {} trials",
        tokens(n.sum.input),
        tokens(n.sum.cache),
        tokens(n.sum.output),
        n.known,
        n.of
    );
    for (label, text) in effort_lines(tally) {
        let _ = writeln!(out, "- {label}: {text}");
    }

    let rows: Vec<_> = tally
        .rows
        .iter()
        .filter(|row| matches!(row.place, Place::Chosen | Place::Unplanned))
        .map(|row| (row, trial_of(fleet, row), outcome(trial_of(fleet, row), row.phase)))
        .filter(|(_, _, outcome)| outcome != "passed")
        .collect();
    if !rows.is_empty() {
        let _ = writeln!(out, "\nTrials that are not a clean pass: {} of {}.\n", rows.len(), t.planned);
        let _ = writeln!(out, "| slot | trial | outcome | reward | took |\n|---|---|---|---:|---:|");
    }
    for (row, trial, _) in rows {
        let result = trial.and_then(|t| t.result.as_ref());
        let reward = result.and_then(|r| r.rewards.primary()).map_or(UNKNOWN.to_string(), number);
        let took = trial.and_then(slots::started).zip(result.and_then(|r| r.finished));
        let took = took.and_then(|(a, b)| time::seconds_between(a, b)).map_or(UNKNOWN.to_string(), time::words);
        let slot = row.slot.as_ref().map_or(UNKNOWN.to_string(), |s| cell(&s.to_string()));
        let name = row.trial.as_deref().map_or(UNKNOWN.to_string(), cell);
        let _ = writeln!(out, "| {slot} | {name} | {} | {reward} | {took} |", cell(&judged(fleet, row)));
    }

    if !tally.warnings.is_empty() {
        let _ = writeln!(out, "\n| warning | what | where |\n|---|---|---|");
    }
    for warning in &tally.warnings {
        let cells = [warning.kind.word(), &cell(&warning.message), &cell(&warning.path)];
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// Text of somebody's file inside a table cell: nothing in it is markup.
pub(super) fn cell(text: &str) -> String {
    let text = line(text);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '|' | '`' | '*' | '[' | ']' | '<' | '>' | '&' | '~' | '!') {
            out.push('\\');
        }
        out.push(c);
    }
    out.replace("__", "\\_\\_")
}
