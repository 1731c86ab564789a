//! The plan of a requeue: what is run again and why, what is not, what differs, the exact command; then
//! what can be chosen, the harmless one first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::dialog::paragraph;
use super::fit::{cut, left, right, width, wrap_words};
use super::pane;
use super::style::Pen;
use crate::app::model::Model;
use crate::app::requeue::{Draft, Field};
use crate::app::steer::ask::trials;
use crate::job::text::mask_secrets;

/// Draws it.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let Some(draft) = &model.requeue else { return };
    let title = match &draft.prepared {
        None => "Requeue".to_string(),
        Some(_) => format!("Requeue: {}", trials(draft.n())),
    };
    let names: Vec<&str> = draft.plans().iter().map(|p| p.name.as_str()).collect();
    let inside = pane(frame, area, pen, true, &title, &names.join(", "));
    let columns = usize::from(inside.width);
    let fields = field_lines(draft, pen, columns);
    let below = u16::try_from(fields.len()).unwrap_or(u16::MAX).min(inside.height.saturating_sub(3));
    let text = text(draft, pen, columns);
    let height = usize::from(inside.height.saturating_sub(below + 1));
    let top = draft.top.min(text.len().saturating_sub(height));
    let hidden = text.len().saturating_sub(top + height);
    for (line, y) in text.into_iter().skip(top).take(height).zip(inside.y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
    let rule = inside.bottom().saturating_sub(below + 1);
    let more = match (hidden, top) {
        (0, 0) => String::new(),
        (0, _) => " PgUp: the text above ".to_string(),
        (n, _) => format!(" Space: {n} more line{} ", if n == 1 { "" } else { "s" }),
    };
    let sign = if pen.look.ascii { "-" } else { "─" };
    let line = Line::from(vec![
        Span::styled(sign.repeat(columns.saturating_sub(width(&more) + 2)), pen.dim()),
        Span::styled(more, pen.strong()),
        Span::styled(sign.repeat(2), pen.dim()),
    ]);
    frame.render_widget(line, Rect { y: rule, height: 1, ..inside });
    // Where not all fit, that with the focus does.
    let at = draft.fields().iter().position(|f| *f == draft.focus).unwrap_or(0);
    let skip = (at + 1).saturating_sub(usize::from(below));
    for (line, y) in fields.into_iter().skip(skip).zip(rule + 1..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

fn say(out: &mut Vec<Line<'static>>, text: &str, style: ratatui::style::Style, columns: usize) {
    // What comes from configs is somebody's text.
    let text = mask_secrets(text);
    out.extend(paragraph(&text, columns).into_iter().map(|row| Line::styled(row, style)));
}

fn text(draft: &Draft, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let Some(prepared) = &draft.prepared else {
        say(&mut out, "making the plan: reading configs and tasks", pen.dim(), columns);
        return out;
    };
    for plan in &prepared.plans {
        for obstacle in plan.obstacles() {
            say(&mut out, &format!("It can not be started: {obstacle}"), pen.alarm(), columns);
        }
        say(&mut out, &format!("{} from {}", plan.name, plan.source_name), pen.strong(), columns);
        table(plan, pen, columns, &mut out);
        for warning in &plan.warnings {
            say(&mut out, warning, pen.alarm(), columns);
        }
        if plan.differs.is_empty() {
            say(&mut out, "Nothing differs: same agent, model, limits and versions.", pen.text(), columns);
        } else {
            say(&mut out, "What will differ:", pen.text(), columns);
            for d in &plan.differs {
                let arrow = if pen.look.ascii { "->" } else { "→" };
                say(&mut out, &format!("  {}: {} {arrow} {}", d.field, d.was, d.now), pen.alarm(), columns);
            }
        }
        say(&mut out, "The command (y copies it):", pen.text(), columns);
        say(&mut out, &format!("  {}", plan.line()), pen.key(), columns);
        out.push(Line::raw(""));
    }
    if !prepared.refused.is_empty() {
        say(&mut out, &format!("Not run again: {}", trials(prepared.refused.len())), pen.strong(), columns);
        for refused in &prepared.refused {
            say(&mut out, &format!("  {}: {}", refused.trial, refused.why), pen.dim(), columns);
        }
    }
    for note in &prepared.notes {
        say(&mut out, note, pen.dim(), columns);
    }
    if prepared.plans.is_empty() && prepared.refused.is_empty() && prepared.notes.is_empty() {
        say(&mut out, "There is nothing to run again.", pen.text(), columns);
    }
    out
}

/// Task, attempts so far, why.
fn table(plan: &crate::app::helm::Plan, pen: Pen, columns: usize, out: &mut Vec<Line<'static>>) {
    let longest = plan.rows.iter().map(|r| width(&r.task)).max().unwrap_or(0);
    let name = longest.clamp(4, (columns / 3).max(4));
    let attempts = if plan.rows.iter().any(|r| r.alike > 1) { 11 } else { 8 };
    let room = columns.saturating_sub(name + attempts + 6);
    let head = format!("  {}  {}  why", left("task", name, pen), right("attempts", attempts, pen));
    out.push(Line::styled(cut(&head, columns, pen), pen.dim()));
    for row in &plan.rows {
        let n = if row.alike > 1 { format!("{}, {} alike", row.attempts, row.alike) } else { row.attempts.to_string() };
        let forced = if row.forced { "forced: " } else { "" };
        let why = wrap_words(&format!("{forced}{}", row.why), room.max(8));
        for (i, why) in why.into_iter().enumerate() {
            let (task, n) = if i == 0 { (&*row.task, n.as_str()) } else { ("", "") };
            out.push(Line::from(vec![
                Span::raw(format!("  {}  ", left(task, name, pen))),
                Span::raw(right(n, attempts, pen)),
                Span::styled(format!("  {why}"), if row.forced { pen.alarm() } else { pen.dim() }),
            ]));
        }
    }
}

fn field_lines(draft: &Draft, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let due = draft.plans().iter().flat_map(|p| &p.rows).any(|r| r.forced);
    let line = |field: Field| {
        let (label, fact) = match field {
            Field::Cancel => ("cancel".to_string(), String::new()),
            Field::Reason => {
                let empty = if due { "due: type it" } else { "none; Enter types one" };
                ("reason".to_string(), if draft.reason.is_empty() { empty.to_string() } else { draft.reason.clone() })
            }
            Field::Endpoint => {
                let as_before = "as before; Enter types another address of the model";
                (
                    "endpoint".to_string(),
                    if draft.endpoint.is_empty() { as_before.to_string() } else { draft.endpoint.clone() },
                )
            }
            Field::Force => ("force".to_string(), on(draft.force, "run again what is refused, for the reason above")),
            Field::ConfigFixed => ("config".to_string(), on(draft.config_fixed, "what was wrong with it is mended")),
            Field::Start => {
                let fact = match draft.why_not() {
                    Some(why) => match draft.plans().iter().map(|p| p.obstacles().len()).sum::<usize>() {
                        0 => why,
                        1 => "not possible: see above".to_string(),
                        n => format!("not possible: {n} reasons above"),
                    },
                    None => {
                        let n = draft.plans().len();
                        let jobs = if n == 1 { "one new job".to_string() } else { format!("{n} new jobs") };
                        format!("{} in {jobs}, beside the old one, which stays as it is", trials(draft.n()))
                    }
                };
                ("start".to_string(), fact)
            }
        };
        let focused = draft.focus == field;
        let mark = match (focused, pen.look.ascii) {
            (true, false) => "▸ ",
            (true, true) => "> ",
            (false, _) => "  ",
        };
        let style = if focused { pen.selected() } else { pen.strong() };
        Line::from(vec![
            Span::raw(mark),
            Span::styled(left(&label, 9, pen), style),
            Span::raw(" "),
            Span::styled(cut(&fact, columns.saturating_sub(12), pen), pen.dim()),
        ])
    };
    draft.fields().into_iter().map(line).collect()
}

fn on(set: bool, what: &str) -> String {
    format!("{}: {what}", if set { "yes" } else { "no" })
}
