//! The reports of `compare`: JSON, markdown, plain.
//!
//! `compare --json`, `schema_version` 1:
//!
//! | key | what |
//! |---|---|
//! | `runs[]` | `name`, `dirs` (the first job's first), `planned`, `finished`, `scores[]` (`raw`, `corrected`, `excluding_infra` as in `tally --json`) |
//! | `tasks[]` | `task`, `flips` (solved by some and not by others), `runs[]`: one for each run, null where its plan does not have the task: `slots`, `graded`, `passed`, `solved` (more than half of the slots passed), `exceptions`, `classes`, `verdicts`, `regraded` (rewards of the regrades that count; `passed` and `solved` are without them) |
//! | `pairs[]` | `a`, `b` (indices of runs), `tasks` in common, `both`, `only_a[]`, `only_b[]`, `neither`, `not_common`, `sign_test` (two-sided, over the tasks that one alone solved; null without one), `drift[]` (`what`, `a`, `b`) |

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::markdown::cell;
use super::{UNKNOWN, line, number, quotient, value};
use crate::job::compare::{Cell, Comparison, Pair, TaskRow};
use crate::job::drift::Drift;
use crate::job::text::json_for_terminal;

/// The scores that stand in the head.
const SCORES: [&str; 3] = ["raw", "corrected", "excluding_infra"];

/// One document, with an end of line.
pub fn json(comparison: &Comparison) -> String {
    let cell = |cell: &Option<Cell>| match cell {
        None => Value::Null,
        Some(c) => json!({
            "slots": c.slots, "graded": c.graded, "passed": c.passed, "solved": c.solved(),
            "exceptions": c.exceptions, "classes": c.classes,
            "verdicts": c.verdicts.iter().map(|v| v.word()).collect::<Vec<_>>(),
            "regraded": c.regraded.iter().filter(|r| r.is_finite()).collect::<Vec<_>>(),
        }),
    };
    let drift = |d: &Drift| json!({"what": d.what, "a": d.base, "b": d.other});
    let pair = |p: &Pair| {
        json!({
            "a": p.a, "b": p.b, "tasks": p.tasks, "both": p.both, "only_a": p.only_a, "only_b": p.only_b,
            "neither": p.neither, "not_common": p.not_common, "sign_test": p.sign_test,
            "drift": p.drift.iter().map(drift).collect::<Vec<_>>(),
        })
    };
    let runs: Vec<Value> = comparison
        .runs
        .iter()
        .map(|run| {
            let scores = SCORES.iter().filter_map(|name| run.score(name)).map(|s| {
                json!({"name": s.name, "numerator": count(s.numerator), "denominator": s.denominator, "value": s.value,
                    "ci95": s.ci95.map(|(low, high)| [low, high]), "rule": s.rule})
            });
            json!({
                "name": run.name, "dirs": run.dirs, "planned": run.tally.totals.planned,
                "finished": run.tally.totals.finished, "scores": scores.collect::<Vec<_>>(),
            })
        })
        .collect();
    let tasks: Vec<Value> = comparison
        .rows
        .iter()
        .map(|row| json!({"task": row.task, "flips": row.flips(), "runs": row.cells.iter().map(cell).collect::<Vec<_>>()}))
        .collect();
    let document = json!({
        "schema_version": 1, "runs": runs, "tasks": tasks,
        "pairs": comparison.pairs.iter().map(pair).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    format!("{}\n", json_for_terminal(&text))
}

/// A count is written as a count.
fn count(n: Option<f64>) -> Value {
    match n {
        Some(n) if n.fract() == 0.0 && n.abs() < 9e15 => json!(n as i64),
        other => json!(other),
    }
}

fn letter(at: usize) -> String {
    match u8::try_from(at).ok().filter(|n| *n < 26) {
        Some(n) => char::from(b'A' + n).to_string(),
        None => format!("R{}", at + 1),
    }
}

fn words(cell: &Option<Cell>) -> String {
    let Some(cell) = cell else { return UNKNOWN.to_string() };
    let mut text = cell.words();
    if let Some(kind) = cell.exceptions.first() {
        let _ = write!(text, ", {}", line(kind));
    }
    if let Some(verdict) = cell.verdicts.first() {
        let _ = write!(text, " ({})", verdict.title());
    }
    if let Some(reward) = cell.regraded.first() {
        let _ = write!(text, " (regrade: {})", number(*reward));
    }
    text
}

/// What the pairs came to, in sentences.
fn sentences(pair: &Pair) -> Vec<String> {
    let (a, b) = (letter(pair.a), letter(pair.b));
    let mut out = vec![format!(
        "{a} and {b}, {} tasks in common: {} solved by both, {} only by {a}, {} only by {b}, {} by neither",
        pair.tasks,
        pair.both,
        pair.only_a.len(),
        pair.only_b.len(),
        pair.neither
    )];
    if pair.not_common > 0 {
        out.push(format!("{} tasks are planned in one of them alone and left out here", pair.not_common));
    }
    if let Some(p) = pair.sign_test {
        let n = pair.only_a.len() + pair.only_b.len();
        out.push(format!("were both equally good, a split this uneven of {n} tasks would have chance {}", number(p)));
    }
    for (who, tasks) in [(&a, &pair.only_a), (&b, &pair.only_b)] {
        if !tasks.is_empty() {
            let names: Vec<String> = tasks.iter().map(|t| line(t)).collect();
            out.push(format!("only {who}: {}", names.join(", ")));
        }
    }
    for d in &pair.drift {
        let text = match &*d.what {
            "tasks" => format!("{} in {b} than in {a}", line(&d.other)),
            what => format!("{} {} in {a}, {} in {b}", line(what), line(&d.base), line(&d.other)),
        };
        out.push(format!("differs: {text}"));
    }
    out
}

/// For issues and wikis.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = String::from("| run | name | planned | ended |");
    for name in SCORES {
        let _ = write!(out, " {name} | value | 95 % |");
    }
    out.push_str("\n|---|---|---:|---:|");
    out.push_str(&"---:|---:|---|".repeat(SCORES.len()));
    out.push('\n');
    for (at, run) in comparison.runs.iter().enumerate() {
        let t = &run.tally.totals;
        let _ = write!(out, "| {} | {} | {} | {} |", letter(at), cell(&run.name), t.planned, t.finished);
        for name in SCORES {
            match run.score(name) {
                Some(score) => {
                    let (value, interval) = value(score);
                    let _ = write!(out, " {} | {value} | {interval} |", quotient(score));
                }
                None => out.push_str(" - | - | - |"),
            }
        }
        out.push('\n');
    }
    out.push_str("\nSolved: more than half of a task's trials passed, by reward, without verdicts and regrades.\n");
    for pair in &comparison.pairs {
        out.push('\n');
        for sentence in sentences(pair) {
            let _ = writeln!(out, "- {}", cell(&sentence));
        }
    }
    let names: Vec<String> = (0..comparison.runs.len()).map(letter).collect();
    let _ = writeln!(out, "\n| task | {} | |", names.join(" | "));
    let _ = writeln!(out, "|---|{}---|", "---|".repeat(names.len()));
    for row in &comparison.rows {
        let cells: Vec<String> = row.cells.iter().map(|c| cell(&words(c))).collect();
        let _ = writeln!(out, "| {} | {} | {} |", cell(&row.task), cells.join(" | "), flip(row));
    }
    out
}

fn flip(row: &TaskRow) -> &'static str {
    if row.flips() { "flips" } else { "" }
}

/// For people at a terminal.
pub fn plain(comparison: &Comparison) -> String {
    let mut out = String::new();
    for (at, run) in comparison.runs.iter().enumerate() {
        let _ = writeln!(out, "{}  {}", letter(at), line(&run.name));
        for dir in &run.dirs {
            let _ = writeln!(out, "   {}", line(dir));
        }
        for score in SCORES.iter().filter_map(|name| run.score(name)) {
            let (value, interval) = value(score);
            let _ = writeln!(out, "   {:<16}{:>9}  {value}  {interval}", score.name, quotient(score));
        }
    }
    for pair in &comparison.pairs {
        out.push('\n');
        for sentence in sentences(pair) {
            let _ = writeln!(out, "{sentence}");
        }
    }
    let flips: Vec<&TaskRow> = comparison.rows.iter().filter(|row| row.flips()).collect();
    let _ = writeln!(
        out,
        "\n{} of {} tasks are solved by some and not by others (--markdown and --json list all)",
        flips.len(),
        comparison.rows.len()
    );
    for row in flips {
        let cells: Vec<String> =
            row.cells.iter().enumerate().map(|(at, c)| format!("{} {}", letter(at), words(c))).collect();
        let _ = writeln!(out, "  {}: {}", line(&row.task), cells.join("; "));
    }
    out
}
