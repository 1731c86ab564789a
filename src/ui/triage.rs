//! Triage: one item, large; the list beside it where there is room; the score before and after.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fit::{Piece, cut, left, piece, reward, short, spread, width, wrap_words};
use super::pane;
use super::style::Pen;
use super::trial_tabs::mark_style;
use crate::app::detail::doc::Mark;
use crate::app::detail::evidence;
use crate::app::model::{Model, Room};
use crate::app::rows::{Row, RowId};
use crate::app::triage::class_words;
use crate::job::tally::Tally;
use crate::job::trial::short_name;
use crate::job::{Class, Job, Trial, time};

/// The list is so wide, its frame included.
const LIST: u16 = 46;

/// Draws it.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    if area.height < 4 {
        return;
    }
    let below = Rect { y: area.bottom() - 2, height: 2, ..area };
    let area = Rect { height: area.height - 2, ..area };
    let columns = usize::from(below.width);
    frame.render_widget(score_line(model, pen, columns), Rect { height: 1, ..below });
    frame.render_widget(notes_line(model, pen, columns), Rect { y: below.y + 1, height: 1, ..below });
    if model.room() == Room::Double && !model.zoom {
        let list = Rect { width: LIST.max(area.width / 4).min(66), ..area };
        let rest = Rect { x: list.right(), width: area.width - list.width, ..area };
        draw_list(model, pen, frame, list);
        draw_item(model, pen, frame, rest);
    } else {
        draw_item(model, pen, frame, area);
    }
}

fn draw_list(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let triage = &model.triage;
    let n = triage.order.len();
    let title = if n == triage.total { format!("4 Triage {n}") } else { format!("4 Triage {n} of {}", triage.total) };
    let fact = if triage.filter_text.is_empty() { String::new() } else { "filtered".to_string() };
    let inside = pane(frame, area, pen, false, &title, &fact);
    let (columns, height) = (usize::from(inside.width), usize::from(inside.height));
    let at = triage.position();
    let first = triage.first(height);
    let shown = triage.order.iter().enumerate().skip(first);
    for ((i, index), y) in shown.zip(inside.y..inside.bottom()) {
        let Some(row) = model.rows.get(*index) else { continue };
        let line = list_row(model, row, pen, columns);
        let line = if at == Some(i) { line.patch_style(pen.selected()) } else { line };
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

/// Marked or not, looked at or not, which, what.
fn list_row(model: &Model, row: &Row, pen: Pen, columns: usize) -> Line<'static> {
    let seen = match (row.verdict, row.looked, pen.look.ascii) {
        (Some(_), _, false) => "✓",
        (Some(_), _, true) => "+",
        (None, true, _) => "n",
        (None, false, _) => " ",
    };
    let what = match (row.verdict, &row.class) {
        (Some(verdict), _) => verdict.title().to_string(),
        (None, Some(class)) if class.class == Class::Passed && class.flags.iter().any(|f| f.is_suspicious_pass()) => {
            "passed, odd".to_string()
        }
        (None, Some(class)) => class_words(class),
        (None, None) => row.exception.as_ref().map_or_else(|| row.outcome.word().to_string(), |k| k.to_string()),
    };
    let what = cut(&what, columns / 2 + 1, pen);
    let name = columns.saturating_sub(width(&what) + 6);
    Line::from(vec![
        Span::styled(format!("{}{}", pen.glyph(row.outcome), mark(model, row)), pen.outcome(row.outcome)),
        Span::styled(format!("{seen} "), pen.good()),
        Span::raw(left(&row.task, name, pen)),
        Span::raw("  "),
        Span::styled(what, if row.verdict.is_some() { pen.good() } else { pen.dim() }),
    ])
}

/// The sign of a marked trial.
pub fn mark(model: &Model, row: &Row) -> &'static str {
    match &row.id {
        RowId::Trial(key) if model.marked.contains(key) => "#",
        id @ RowId::Slot(..) if model.marked_slots.contains(id) => "#",
        _ => " ",
    }
}

fn draw_item(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let triage = &model.triage;
    let place =
        triage.position().map_or_else(|| "nothing".to_string(), |at| format!("{} of {}", at + 1, triage.order.len()));
    let compact = model.room() == Room::Compact;
    let filtered =
        if triage.filter_text.is_empty() { String::new() } else { format!(", filter {}", triage.filter_text) };
    let title = format!("4 Triage: {place}{filtered}");
    let fact = format!("{} of {} looked at", triage.looked, triage.total);
    // How far one is matters more than a long filter.
    let title = cut(&title, usize::from(area.width).saturating_sub(width(&fact) + 12).max(20), pen);
    let inside = if compact {
        let line = spread(
            vec![piece(title, pen.strong(), 0)],
            vec![piece(fact, pen.dim(), 1)],
            " ",
            usize::from(area.width),
            pen,
        );
        frame.render_widget(line, Rect { height: 1, ..area });
        Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }
    } else {
        pane(frame, area, pen, true, &title, &fact)
    };
    let columns = usize::from(inside.width);
    let Some((row, job, trial)) = item(model) else {
        let text = nothing(model);
        for (text, y) in wrap_words(text, columns).into_iter().zip(inside.y..inside.bottom()) {
            frame.render_widget(Line::styled(text, pen.dim()), Rect { y, height: 1, ..inside });
        }
        return;
    };
    let mut head = head(model, row, job, pen, columns);
    head.truncate(usize::from(inside.height));
    let mut y = inside.y;
    for line in head {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
        y += 1;
    }
    let height = usize::from(inside.bottom().saturating_sub(y));
    let lines = text(job, trial, pen, columns);
    let hidden = lines.len().saturating_sub(height);
    let top = triage.top.min(hidden);
    let below = lines.len().saturating_sub(top + height);
    for (line, y) in lines.into_iter().skip(top).zip(y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
    if below > 0 && height > 0 {
        let more = format!(" {below} more line{}: Ctrl-d ", if below == 1 { "" } else { "s" });
        let at = inside.right().saturating_sub(u16::try_from(width(&more)).unwrap_or(0));
        let at =
            Rect { x: at.max(inside.x), y: inside.bottom() - 1, width: inside.right() - at.max(inside.x), height: 1 };
        frame.render_widget(Line::styled(more, pen.selected()), at);
    }
}

fn item(model: &Model) -> Option<(&Row, &Job, &Trial)> {
    let row = model.triage.row(&model.rows)?;
    let job = model.fleet.job(row.job)?;
    Some((row, job, job.trials.get(&row.name)?))
}

fn nothing(model: &Model) -> &'static str {
    let jobs = model.fleet.jobs();
    if model.triage.total > 0 {
        "nothing here passes the filter; F shows all"
    } else if jobs.is_empty() || jobs.iter().any(|j| !j.settled) {
        "nothing yet: the jobs are being read"
    } else {
        "nothing to look at: every trial that has ended passed cleanly"
    }
}

/// Which trial it is, and its figures.
fn head(model: &Model, row: &Row, job: &Job, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut names = vec![
        piece(format!("{}{}", pen.glyph(row.outcome), mark(model, row)), pen.outcome(row.outcome), 0),
        piece(short_name(&row.name).to_string(), pen.strong(), 0),
    ];
    if model.fleet.jobs().len() > 1 {
        names.push(piece(job.facts.name.to_string(), pen.dim(), 1));
    }
    let dash = "-".to_string();
    let raw = row.reward.map_or_else(|| "none".to_string(), reward);
    let mut facts = match &row.regrade {
        None => vec![format!("reward {raw}")],
        Some(r) => vec![format!("raw {raw}, regrade {}: {}", r.n, super::trial::regrade_words(r, pen))],
    };
    if let Some(kind) = &row.exception {
        facts.push(kind.to_string());
    }
    if let Some(timing) = row.timing {
        let of = timing.limit.map_or_else(String::new, |l| format!(" of {}", time::words(l)));
        facts.push(format!("{}{of}", time::words(timing.elapsed(model.now))));
    }
    let plural = if row.episodes == Some(1) { "" } else { "s" };
    facts.push(format!("{} episode{plural}", row.episodes.map_or(dash.clone(), |n| n.to_string())));
    facts.push(format!("{} tokens out", row.output_tokens.map_or(dash, short)));
    let mut out = vec![spread(names, Vec::new(), " ", columns, pen)];
    let dot = format!(" {} ", pen.dot());
    out.extend(wrap_words(&facts.join(&dot), columns).into_iter().map(|l| Line::styled(l, pen.dim())));
    out
}

/// The text about it, wrapped; what is indented stays so.
fn text(job: &Job, trial: &Trial, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let doc = evidence::doc(job, trial);
    let mut out = Vec::new();
    for line in &doc.lines {
        let style: Style = mark_style(line.mark, pen);
        let text = line.text();
        if text.is_empty() {
            out.push(Line::raw(""));
            continue;
        }
        for part in super::dialog::paragraph(text, columns) {
            out.push(Line::styled(part, style));
        }
        if line.mark == Mark::Good {
            out.push(Line::raw(""));
        }
    }
    out
}

/// A score by its name.
fn score(tally: &Tally, name: &str, pen: Pen) -> Option<String> {
    let score = tally.scores.iter().find(|s| s.name == name)?;
    let of = score.numerator.map_or(pen.unknown().to_string(), |n| format!("{n}"));
    let value = score.value.map_or(pen.unknown().to_string(), |v| format!("{:.1} %", v * 100.0));
    Some(format!("{of}/{} {value}", score.denominator))
}

/// The score before and after what was said, on one line.
fn score_line(model: &Model, pen: Pen, columns: usize) -> Line<'static> {
    let arrow = if pen.look.ascii { "->" } else { "→" };
    let words = match &model.derived.tally {
        Some(tally) => {
            let said = model.rows.iter().filter(|r| r.verdict.is_some()).count();
            let raw = score(tally, "raw", pen).unwrap_or_else(|| pen.unknown().to_string());
            let corrected = score(tally, "corrected", pen).unwrap_or_else(|| pen.unknown().to_string());
            let said = format!("{said} verdict{}", if said == 1 { "" } else { "s" });
            vec![
                piece(format!("raw {raw}"), pen.text(), 0),
                piece(arrow, pen.dim(), 0),
                piece(format!("corrected {corrected}"), pen.strong(), 0),
                piece(said, pen.dim(), 1),
            ]
        }
        None => vec![piece("no score yet", pen.dim(), 0)],
    };
    let marked = match model.marked.len() {
        0 => Vec::new(),
        n => vec![piece(format!("{n} marked"), pen.strong(), 2)],
    };
    spread(words, marked, "  ", columns, pen)
}

/// Where what is said goes.
fn notes_line(model: &Model, pen: Pen, columns: usize) -> Line<'static> {
    if let Some(why) = crate::app::triage::ledger::why_not(model) {
        return Line::styled(cut(&why, columns, pen), pen.dim());
    }
    let Some(job) = crate::app::steer::job(model) else { return Line::raw("") };
    let pieces: Vec<Piece> = match model.ledger.places.get(&job.key) {
        Some((path, Some(why))) => {
            vec![piece(format!("verdicts go to {}", path.display()), pen.alarm(), 0), piece(why.clone(), pen.dim(), 1)]
        }
        Some((path, None)) => vec![piece(format!("verdicts go to {}", path.display()), pen.dim(), 0)],
        None if job.facts.layout.is_classic() => {
            let words = "verdicts will go to the state dir: nothing is written into a run of terminal-bench";
            vec![piece(words, pen.dim(), 0)]
        }
        None => {
            let path = job.facts.dir.join("pilothouse.jsonl");
            vec![piece(format!("verdicts will go to {}", path.display()), pen.dim(), 0)]
        }
    };
    spread(pieces, Vec::new(), "  ", columns, pen)
}
