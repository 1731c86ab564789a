//! Runs beside each other: scores and head-to-head on top, then who solved what.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::dialog::paragraph;
use super::fit::{left, width};
use super::pane;
use super::style::Pen;
use crate::app::compare::Compare;
use crate::app::model::Model;
use crate::job::compare::{Cell, Comparison, Pair, Run};

/// Columns of one run's results.
const CELL: usize = 16;
/// Pairs that are told of.
const PAIRS: usize = 3;

/// Draws it.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let fact = model.compare.as_ref().map_or_else(String::new, |c| {
        let flips = c.comparison.rows.iter().filter(|r| r.flips()).count();
        format!("{} tasks, {flips} solved by some only", c.comparison.rows.len())
    });
    let inside = pane(frame, area, pen, true, "7 Compare", &fact);
    let columns = usize::from(inside.width);
    let Some(view) = model.compare.as_ref().filter(|c| c.comparison.runs.len() > 1) else {
        let text = "one run alone: attach another job beside it (pilothouse attach DIR DIR); the requeues of a job \
                    belong to its run";
        for (text, y) in paragraph(text, columns).into_iter().zip(inside.y..inside.bottom()) {
            frame.render_widget(Line::styled(text, pen.dim()), Rect { y, height: 1, ..inside });
        }
        return;
    };
    let mut head = head(&view.comparison, pen, columns);
    let height = usize::from(inside.height);
    head.truncate(height.saturating_sub(4).min(height / 2));
    let names = names(&view.comparison, columns);
    head.push(heading(&names, view, pen, columns));
    let above = head.len();
    for (line, y) in head.into_iter().zip(inside.y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
    let rows = height.saturating_sub(above);
    let first = (view.at + 1).saturating_sub(rows);
    let top = inside.y + u16::try_from(above).unwrap_or(0);
    if view.order.is_empty() && top < inside.bottom() {
        let text = super::fit::cut("no task that some solved and others did not; f shows all", columns, pen);
        frame.render_widget(Line::styled(text, pen.dim()), Rect { y: top, height: 1, ..inside });
    }
    for ((i, index), y) in view.order.iter().enumerate().skip(first).zip(top..inside.bottom()) {
        let Some(row) = view.comparison.rows.get(*index) else { continue };
        let (task, cell) = room(&names, columns);
        let mut spans = vec![Span::styled(
            format!("{} ", left(&row.task, task.saturating_sub(1), pen)),
            if row.flips() { pen.strong() } else { pen.text() },
        )];
        for at in 0..names.len() {
            let (words, style) = words(row.cells.get(at).and_then(Option::as_ref), pen);
            spans.push(Span::styled(format!("{} ", left(&words, cell.saturating_sub(1), pen)), style));
        }
        let line = Line::from(spans);
        let line = if i == view.at { line.patch_style(pen.selected()) } else { line };
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

/// Columns of the task and of one run.
fn room(names: &[String], columns: usize) -> (usize, usize) {
    let cell = CELL.max((columns / 2) / names.len().max(1)).min(28).min(columns / (names.len() + 1)).max(4);
    (columns.saturating_sub(cell * names.len()), cell)
}

/// As many runs as there is room for.
fn names(comparison: &Comparison, columns: usize) -> Vec<String> {
    let most = (columns.saturating_sub(14) / 9).max(1);
    comparison.runs.iter().take(most).map(|r| r.name.to_string()).collect()
}

fn heading(names: &[String], view: &Compare, pen: Pen, columns: usize) -> Line<'static> {
    let (task, cell) = room(names, columns);
    let which = if view.flips { "task, flips only" } else { "task, flips first" };
    let mut text = left(which, task, pen);
    for name in names {
        text.push_str(&left(name, cell.saturating_sub(1), pen));
        text.push(' ');
    }
    Line::styled(text, pen.dim())
}

/// What a run made of a task: sign, word, why not.
fn words(cell: Option<&Cell>, pen: Pen) -> (String, ratatui::style::Style) {
    let Some(cell) = cell else { return ("not in it".to_string(), pen.dim()) };
    let sign = match (cell.solved(), pen.look.ascii) {
        (true, false) => "✓",
        (true, true) => "+",
        (false, false) => "✗",
        (false, true) => "x",
    };
    let why = match (cell.solved(), cell.classes.first()) {
        (false, Some(class)) if *class != "failed" => format!(" {class}"),
        _ => String::new(),
    };
    (format!("{sign} {}{why}", cell.words()), if cell.solved() { pen.good() } else { pen.text() })
}

fn head(comparison: &Comparison, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let longest = comparison.runs.iter().map(|r| width(&r.name)).max().unwrap_or(0).min(columns / 3);
    for run in &comparison.runs {
        let mut scores: Vec<String> =
            ["raw", "corrected", "excluding_infra"].iter().filter_map(|name| score(run, name)).collect();
        // Whole ones, as many as there is room for.
        while scores.len() > 1 && width(&scores.join("  ")) + longest + 12 > columns {
            scores.pop();
        }
        let jobs = if run.dirs.len() > 1 { format!("  {} jobs", run.dirs.len()) } else { String::new() };
        out.push(Line::from(vec![
            Span::styled(format!("{}  ", left(&run.name, longest, pen)), pen.strong()),
            Span::raw(super::fit::cut(
                &format!("{}{jobs}", scores.join("  ")),
                columns.saturating_sub(longest + 2),
                pen,
            )),
        ]));
    }
    for pair in comparison.pairs.iter().take(PAIRS) {
        let text = pair_words(comparison, pair);
        out.extend(paragraph(&text, columns).into_iter().map(|row| Line::styled(row, pen.text())));
        if !pair.drift.is_empty() {
            let each: Vec<String> = pair.drift.iter().map(|d| format!("{} {} / {}", d.what, d.base, d.other)).collect();
            let text = format!("  they differ in more than their results: {}", each.join("; "));
            out.extend(paragraph(&text, columns).into_iter().map(|row| Line::styled(row, pen.alarm())));
        }
    }
    if comparison.pairs.len() > PAIRS {
        let more = comparison.pairs.len() - PAIRS;
        out.push(Line::styled(format!("{more} more pairs: pilothouse compare"), pen.dim()));
    }
    out
}

fn score(run: &Run, name: &str) -> Option<String> {
    let score = run.score(name)?;
    let of = score.numerator.map_or_else(|| "-".to_string(), |n| format!("{n}"));
    let value = score.value.map_or_else(|| "-".to_string(), |v| format!("{:.1} %", v * 100.0));
    Some(format!("{} {of}/{} {value}", name.replace('_', " "), score.denominator))
}

/// Head-to-head in one sentence.
fn pair_words(comparison: &Comparison, pair: &Pair) -> String {
    let name = |at: usize| comparison.runs.get(at).map_or("-", |r| &*r.name);
    let mut out = format!(
        "{} against {}: of {} tasks both solved {}, only the first {}, only the second {}, none {}",
        name(pair.a),
        name(pair.b),
        pair.tasks,
        pair.both,
        pair.only_a.len(),
        pair.only_b.len(),
        pair.neither
    );
    if let Some(p) = pair.sign_test {
        out.push_str(&format!("; chance of such a split between equals {:.0} %", p * 100.0));
    }
    if pair.not_common > 0 {
        out.push_str(&format!("; {} tasks in one of them only", pair.not_common));
    }
    out
}
