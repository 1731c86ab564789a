//! The report for people: aligned, readable at 80 columns, every figure with its denominator.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::json::StatusPart;
use super::{
    UNKNOWN, corrected_line, effort_lines, judged, line, outcome, quotient, tokens, total_lines, trial_of, value,
};
use crate::job::Fleet;
use crate::job::scores::open_words;
use crate::job::tally::{Place, Tally};
use crate::job::time;
use crate::job::warnings::Warning;

/// Columns that the report keeps to; only names longer than that run over.
const WIDTH: usize = 80;
/// Column at which values begin.
const INDENT: usize = 12;
/// Warnings of one kind that are printed in full.
const SHOWN: usize = 5;
/// Trials at work that are told of.
const WORKS: usize = 20;

/// The report of `tally`.
pub fn tally(fleet: &Fleet, tally: &Tally) -> String {
    let mut out = String::new();
    jobs(&mut out, fleet, tally);
    merge(&mut out, tally);
    counts(&mut out, tally);
    scores(&mut out, tally);
    token_line(&mut out, tally);
    not_clean(&mut out, fleet, tally);
    warnings(&mut out, tally);
    out
}

/// The report of `status`: how it stands, when it will be done, what needs a person.
pub fn status(fleet: &Fleet, tally: &Tally, part: &StatusPart<'_>) -> String {
    let mut out = String::new();
    jobs(&mut out, fleet, tally);
    if fleet.jobs().len() > 1 {
        merge(&mut out, tally);
    }
    let eta = match part.eta {
        None => "-".to_string(),
        Some(eta) => {
            let words = |s: Option<f64>| s.map_or(UNKNOWN.to_string(), time::words);
            format!("{} to {} ({})", words(eta.low_s), words(eta.high_s), line(&eta.basis))
        }
    };
    field(&mut out, "ETA", &eta);
    counts(&mut out, tally);
    scores(&mut out, tally);
    token_line(&mut out, tally);
    works(&mut out, part);
    if part.attention.is_empty() {
        field(&mut out, "attention", "nothing needs a person");
    }
    for (i, a) in part.attention.iter().enumerate() {
        let count = if a.count > 1 { format!("{} × ", a.count) } else { String::new() };
        let text = format!("{count}{}: {} ({})", a.kind, line(&a.message), line(&a.path));
        field(&mut out, if i == 0 { "attention" } else { "" }, &text);
    }
    out
}

/// What trials at work say that they do, a line each.
fn works(out: &mut String, part: &StatusPart<'_>) {
    let Some(works) = part.works.filter(|works| !works.is_empty()) else { return };
    for (i, ((_, name), told)) in works.iter().take(WORKS).enumerate() {
        let said = told.work().map(|work| super::work::lines(name, &work, None, part.now));
        let first = said.and_then(|lines| lines.into_iter().next()).unwrap_or_else(|| line(name));
        field(out, if i == 0 { "at work" } else { "" }, &first);
    }
    if works.len() > WORKS {
        field(out, "", &format!("and {} more; pilothouse ctl JOB_DIR work tells of all", works.len() - WORKS));
    }
}

/// What a finished trial came to: `passed, reward 1`, `no reward, VerifierTimeoutError`.
pub fn outcome_words(trial: &crate::job::Trial) -> String {
    let words = outcome(Some(trial), crate::job::Phase::Done);
    match trial.result.as_ref().and_then(|r| r.rewards.primary()) {
        Some(reward) => format!("{words}, reward {}", super::number(reward)),
        None => words.into_owned(),
    }
}

/// A label and its value, wrapped so that values stay in their column.
fn field(out: &mut String, label: &str, text: &str) {
    let mut first = true;
    for part in wrap(text, WIDTH - INDENT) {
        let label = if first { label } else { "" };
        let _ = writeln!(out, "{}", format!("{label:<INDENT$}{part}").trim_end());
        first = false;
    }
}

/// Breaks at spaces; a word longer than the width keeps its line for itself.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let wide = word.width();
        if used > 0 && used + 1 + wide > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(last) = lines.last_mut() {
            if used > 0 {
                last.push(' ');
                used += 1;
            }
            last.push_str(word);
            used += wide;
        }
    }
    lines
}

fn jobs(out: &mut String, fleet: &Fleet, tally: &Tally) {
    for (job, line_of) in fleet.jobs().iter().zip(&tally.jobs) {
        let facts = &job.facts;
        let version = facts.harbor_version.as_deref().unwrap_or("version not known");
        field(out, "job", &format!("{}  ({} {})", line(&facts.name), facts.layout.word(), line(version)));
        let names = |list: &[std::sync::Arc<str>]| list.iter().map(|n| line(n)).collect::<Vec<_>>().join(", ");
        if !facts.agents.is_empty() || !facts.models.is_empty() {
            let both = [names(&facts.agents), names(&facts.models)];
            field(out, "  agent", &both.iter().filter(|t| !t.is_empty()).cloned().collect::<Vec<_>>().join(" · "));
        }
        field(out, "  dir", &line(&facts.dir.display().to_string()));
        let state = &line_of.state;
        let inferred = if state.inferred { ", inferred" } else { "" };
        let older = if line_of.newest { "" } else { "older moment of the same job: " };
        field(out, "  state", &format!("{older}{}{inferred} ({})", state.kind.word(), line(&state.evidence)));
        let planned = match line_of.planned {
            Some((n, file)) => format!("{n} trials (from {file})"),
            None => format!("- (no file tells; {} trials seen)", job.trials.len()),
        };
        field(out, "  planned", &planned);
    }
    out.push('\n');
}

fn merge(out: &mut String, tally: &Tally) {
    let merge = &tally.merge;
    match merge.how {
        Some(how) => field(out, "merged as", &format!("{} ({})", how.word(), line(&merge.why))),
        None => field(out, "merged as", &line(&merge.why)),
    }
    field(out, "rule", &format!("{} scored trial of a slot counts", merge.rule.word()));
    if let Some(caveat) = merge.caveat() {
        field(out, "", caveat);
    }
    out.push('\n');
}

fn counts(out: &mut String, tally: &Tally) {
    let t = &tally.totals;
    field(out, "trials", &format!("{} of {} planned have ended", t.finished, t.planned));
    for (label, text) in total_lines(tally) {
        field(out, &format!("  {label}"), &text);
    }
    out.push('\n');
}

fn scores(out: &mut String, tally: &Tally) {
    let partial = tally.totals.finished < tally.totals.planned;
    let note = if partial {
        format!(
            "partial: {} of {} planned have ended; early tasks are not a fair sample",
            tally.totals.finished, tally.totals.planned
        )
    } else {
        "all planned trials have ended".to_string()
    };
    field(out, "scores", &note);
    let c = &tally.corrected;
    if c.verdicts + c.regraded + c.regrades_ignored > 0 {
        field(out, "", &corrected_line(tally));
    }
    for score in &tally.scores {
        let (value, interval) = value(score);
        let head = format!("  {:<20}{:>12}   {value:>7}   95 % {interval}", score.name, quotient(score));
        let _ = writeln!(out, "{}", head.trim_end().trim_end_matches("95 % -").trim_end());
        // Said once, above.
        let rule = score.rule.strip_prefix(&*open_words(&tally.totals)).unwrap_or(&score.rule);
        for part in wrap(rule, WIDTH - 6) {
            let _ = writeln!(out, "      {part}");
        }
    }
    out.push('\n');
}

fn token_line(out: &mut String, tally: &Tally) {
    let t = &tally.tokens;
    let text = format!(
        "{} input ({} from cache), {} output; known for {} of {} trials",
        tokens(t.sum.input),
        tokens(t.sum.cache),
        tokens(t.sum.output),
        t.known,
        t.of
    );
    field(out, "tokens", &text);
    if !t.live.is_unknown() {
        let text =
            format!("{} input, {} output by trials at work, so far", tokens(t.live.input), tokens(t.live.output));
        field(out, "", &text);
    }
    for (label, text) in effort_lines(tally) {
        field(out, label, &text);
    }
}

/// Every row that is not a clean pass; those left out are named among the warnings.
fn not_clean(out: &mut String, fleet: &Fleet, tally: &Tally) {
    let rows: Vec<[String; 3]> = tally
        .rows
        .iter()
        .filter(|row| matches!(row.place, Place::Chosen | Place::Unplanned))
        .filter_map(|row| {
            let outcome = outcome(trial_of(fleet, row), row.phase);
            if outcome == "passed" {
                return None;
            }
            let slot = row.slot.as_ref().map_or(UNKNOWN.to_string(), |s| line(&s.to_string()));
            let name = row.trial.as_deref().map_or(UNKNOWN.to_string(), line);
            Some([slot, name, judged(fleet, row)])
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    out.push('\n');
    let _ = writeln!(out, "trials that are not a clean pass ({} of {})", rows.len(), tally.totals.planned);
    let width = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.width()).max().unwrap_or(0).min(32);
    let (first, second) = (width(0), width(1));
    let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
    for [slot, name, outcome] in &rows {
        let _ = writeln!(out, "  {slot}{}  {name}{}  {outcome}", pad(slot, first), pad(name, second));
    }
}

fn warnings(out: &mut String, tally: &Tally) {
    out.push('\n');
    if tally.warnings.is_empty() {
        field(out, "warnings", "none");
        return;
    }
    let _ = writeln!(out, "warnings");
    let mut rest: &[Warning] = &tally.warnings;
    while let Some(first) = rest.first() {
        let n = rest.iter().take_while(|w| w.kind == first.kind).count();
        let (group, after) = rest.split_at(n);
        rest = after;
        let _ = writeln!(out, "  {} ({n})", first.kind.word());
        let mut said = "";
        for warning in group.iter().take(SHOWN) {
            // What was just said is not said again, only where.
            let again = std::mem::replace(&mut said, &warning.message) == warning.message;
            for (i, part) in wrap(&line(&warning.message), WIDTH - 6).iter().enumerate().filter(|_| !again) {
                let _ = writeln!(out, "    {}{part}", if i == 0 { "" } else { "  " });
            }
            if !warning.path.is_empty() {
                let _ = writeln!(out, "      {}", line(&warning.path));
            }
        }
        if n > SHOWN {
            let _ = writeln!(out, "    and {} more (--json lists all)", n - SHOWN);
        }
    }
}
