//! The smaller lists: errors by type, warnings.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fit::{cut, left, right, wrap_words};
use super::pane;
use super::style::Pen;
use crate::app::model::{Model, View};
use crate::job::Class;

/// Draws `lines` from such a row on that the selected one is visible.
fn list(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, selected: Option<usize>, style: Style) {
    let height = usize::from(area.height);
    let top = selected.map_or(0, |s| (s + 1).saturating_sub(height));
    for (i, (line, y)) in
        lines.into_iter().enumerate().skip(top).zip(area.y..area.bottom()).map(|((i, l), y)| (i, (l, y)))
    {
        let line = if selected == Some(i) { line.patch_style(style) } else { line };
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
}

/// Errors by exception type, with what was solved all the same.
pub fn errors(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect, focused: bool) {
    let groups = &model.derived.errors;
    let n: usize = groups.iter().filter(|g| g.class.is_none()).map(|g| g.n).sum();
    let inside = pane(frame, area, pen, focused, "3 Errors", &format!("{n} trials"));
    let columns = usize::from(inside.width);
    if groups.is_empty() {
        let text = cut("no exception, no odd end so far", columns, pen);
        frame.render_widget(Line::styled(text, pen.dim()), Rect { height: inside.height.min(1), ..inside });
        return;
    }
    let figures = 4;
    // As wide as the longest name, as long as that leaves room for the figures.
    let longest = groups.iter().map(|g| super::fit::width(&g.kind)).max().unwrap_or(0);
    let name = longest.max(16).min(columns.saturating_sub(figures)).min(60);
    let lines = groups
        .iter()
        .map(|g| {
            let mut words = Vec::new();
            if g.solved > 0 {
                words.push(format!("{} solved", g.solved));
            }
            if g.graded > 0 && g.is_exception {
                words.push(format!("{} graded", g.graded));
            }
            let room = columns.saturating_sub(name + figures + 2);
            let hint = if pen.look.ascii { g.hint.replace('→', "->") } else { g.hint.clone() };
            // Rather one whole fact than two halves; what can be done is worth most.
            let whole = |words: &[String]| {
                let facts = words.join(", ");
                if facts.is_empty() || hint.is_empty() { format!("{facts}{hint}") } else { format!("{facts}  {hint}") }
            };
            while super::fit::width(&whole(&words)) > room && words.pop().is_some() {}
            let style = match (g.is_exception, g.class) {
                (true, _) => pen.text(),
                (false, None | Some(Class::Infra | Class::Config | Class::Unclassified)) => pen.alarm(),
                (false, Some(_)) => pen.dim(),
            };
            Line::from(vec![
                Span::styled(left(&g.kind, name, pen), style),
                Span::styled(right(&g.n.to_string(), figures, pen), pen.strong()),
                Span::styled(left(&format!("  {}", whole(&words)), room + 2, pen), pen.dim()),
            ])
        })
        .collect();
    let selected = (focused || model.view() == View::Errors).then_some(model.errors_at);
    list(frame, inside, lines, selected, pen.selected());
}

/// All warnings, the selected one in full below.
pub fn log(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let warnings = &model.derived.warnings;
    let inside = pane(frame, area, pen, true, "5 Warnings", &format!("{}", warnings.len()));
    let columns = usize::from(inside.width);
    if warnings.is_empty() {
        let text = cut("nothing odd in these job dirs", columns, pen);
        frame.render_widget(Line::styled(text, pen.dim()), Rect { height: inside.height.min(1), ..inside });
        return;
    }
    let kind = 18.min(columns / 3);
    let place = if columns >= 96 { (columns / 4).min(40) } else { 0 };
    let lines: Vec<Line<'static>> = warnings
        .iter()
        .map(|w| {
            let mut spans = vec![Span::styled(left(&w.kind.replace('_', " "), kind, pen), pen.alarm()), Span::raw(" ")];
            if place > 0 {
                spans.push(Span::styled(left(&below_job(model, &w.path), place, pen), pen.dim()));
                spans.push(Span::raw(" "));
            }
            let used = kind + 1 + if place > 0 { place + 1 } else { 0 };
            spans.push(Span::raw(cut(&w.message, columns.saturating_sub(used), pen)));
            Line::from(spans)
        })
        .collect();
    let detail = warnings.get(model.log_at).map(|w| {
        let mut text = w.message.clone();
        if !w.path.is_empty() && !text.contains(&w.path) {
            text = format!("{text}\n{}", w.path);
        }
        wrap_words(&text, columns)
    });
    let detail = detail.unwrap_or_default();
    let below = u16::try_from(detail.len()).unwrap_or(u16::MAX).min(inside.height / 2);
    let rule = inside.height.saturating_sub(below + 1);
    list(frame, Rect { height: rule, ..inside }, lines, Some(model.log_at), pen.selected());
    let sign = if pen.look.ascii { "-" } else { "─" };
    frame.render_widget(
        Line::styled(sign.repeat(columns), pen.dim()),
        Rect { y: inside.y + rule, height: inside.height.min(1), ..inside },
    );
    for (line, y) in detail.into_iter().zip(inside.y + rule + 1..inside.bottom()) {
        frame.render_widget(Line::raw(line), Rect { y, height: 1, ..inside });
    }
}

/// A path as seen from its job dir, whose own name stays where it is the whole of it.
fn below_job(model: &Model, path: &str) -> String {
    let path = std::path::Path::new(path);
    let below = model.fleet.jobs().iter().find_map(|job| path.strip_prefix(&job.facts.dir).ok());
    let shown = match below {
        Some(rest) if rest.as_os_str().is_empty() => path.file_name().map(std::path::Path::new).unwrap_or(path),
        Some(rest) => rest,
        None => path,
    };
    shown.display().to_string()
}
