//! The view of a stop: the wait with its count-down, then the audit.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::dialog::paragraph;
use super::fit::{left, width};
use super::pane;
use super::style::Pen;
use crate::app::helm::{Audit, Finding, Side, Stopping, Waiting};
use crate::app::model::Model;
use crate::app::steer::ask::{Said, doing, ran, trials};
use crate::app::steer::at_work;
use crate::app::steer::stop::StopState;
use crate::job::time;

/// Draws it.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let Some(stop) = &model.steer.stop else { return };
    let fact = match &stop.audit {
        Some(Ok(audit)) => match audit.findings.len() {
            0 => "clean".to_string(),
            n => format!("{n} finding{}", if n == 1 { "" } else { "s" }),
        },
        _ => String::new(),
    };
    let inside = pane(frame, area, pen, true, &format!("Stop {}", stop.name), &fact);
    let columns = usize::from(inside.width);
    let mut lines = story(model, stop, pen, columns);
    if !matches!(stop.audit, Some(Ok(_))) {
        lines.extend(left_behind(model, stop, pen, columns));
    }
    match &stop.audit {
        Some(Ok(audit)) => findings(audit, stop, lines, pen, frame, inside),
        _ => put(lines, frame, inside),
    }
}

fn put(lines: Vec<Line<'static>>, frame: &mut Frame<'_>, area: Rect) {
    for (line, y) in lines.into_iter().zip(area.y..area.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
}

fn say(out: &mut Vec<Line<'static>>, text: &str, style: ratatui::style::Style, columns: usize) {
    out.extend(paragraph(text, columns).into_iter().map(|row| Line::styled(row, style)));
}

/// What was found first, then how it came to that.
fn story(model: &Model, stop: &StopState, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let known = matches!(stop.audit, Some(Ok(_)));
    match &stop.audit {
        Some(Err(why)) => say(&mut out, &format!("no audit: {why}; r looks again"), pen.alarm(), columns),
        Some(Ok(audit)) => {
            let style = if audit.findings.is_empty() { pen.good() } else { pen.strong() };
            say(&mut out, &audit.summary, style, columns);
            if stop.mended() > 0 {
                let (done, open) = (stop.mended(), stop.open().len());
                let busy = if stop.mending.is_empty() { "" } else { ", others under way" };
                say(&mut out, &format!("{done} mended since, {open} open{busy}; r looks again"), pen.good(), columns);
            }
            for unseen in &audit.unseen {
                say(&mut out, &format!("not looked at: {unseen}"), pen.alarm(), columns);
            }
            if let Some(next) = &audit.next {
                say(&mut out, next, pen.text(), columns);
            }
        }
        None => {}
    }
    let style = if known { pen.dim() } else { pen.strong() };
    if let Some((at, signal)) = stop.asked {
        let who = match (signal, &stop.survey) {
            (Some(signal), Some(Ok(survey))) => format!("{} sent to pid {}", signal.word(), survey.pid),
            (Some(signal), _) => format!("{} sent", signal.word()),
            (None, _) => "asked to stop".to_string(),
        };
        match &stop.ended {
            Some((end, words)) => {
                let took = time::words(time::seconds_between(at, *end).unwrap_or(0.0));
                let words = if words.is_empty() { String::new() } else { format!(": {words}") };
                say(&mut out, &format!("{who}; ended after {took}{words}"), style, columns);
            }
            None => {
                let ago = time::words(time::age(at, model.now).as_secs_f64());
                say(&mut out, &format!("{who} {ago} ago"), style, columns);
                out.extend(patience(model, stop.waiting.as_ref(), pen, columns));
            }
        }
    } else if let Some((_, words)) = &stop.ended {
        say(&mut out, words, style, columns);
    }
    if stop.audit.is_none() && !stop.waits() {
        say(&mut out, "looking what it left behind", pen.dim(), columns);
    }
    out
}

/// The count-down.
fn patience(model: &Model, waiting: Option<&Waiting>, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    if model.steer.side == Side::Owner {
        let hurry = model.steer.crew.is_some_and(|c| c.stopping == Stopping::Hurrying);
        let text = if hurry {
            "What does not end at once is cut off."
        } else {
            "Each trial's output is recovered and its CancelledError recorded. s: wait no longer."
        };
        say(&mut out, text, pen.text(), columns);
    }
    match waiting {
        Some(Waiting { expired: true, .. }) => {
            let text = "It still runs. Nothing was killed. s: send it a signal again; or wait on.";
            say(&mut out, text, pen.alarm(), columns);
        }
        Some(Waiting { until: Some(until), .. }) => {
            let left = time::seconds_between(model.now, *until).unwrap_or(0.0);
            let text = format!("waiting for its end, {} more; nothing is killed after that", time::words(left));
            say(&mut out, &text, pen.text(), columns);
        }
        Some(Waiting { until: None, .. }) => say(&mut out, "waiting for its end", pen.text(), columns),
        None => {}
    }
    out
}

/// Trials that still run, and what else is there.
fn left_behind(model: &Model, stop: &StopState, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    if !stop.waits() {
        return out;
    }
    let mut rows: Vec<_> = at_work(model, stop.place.job).collect();
    rows.sort_by_key(|r| r.started);
    out.push(Line::raw(""));
    let still = match rows.len() {
        0 => "no trial is at work any more".to_string(),
        n => format!("{} still at work", trials(n)),
    };
    say(&mut out, &still, pen.strong(), columns);
    for row in rows {
        let ran = ran(row, model.now).map_or(pen.unknown().to_string(), time::words);
        let said = Said::Row(row.task.to_string(), format!("{}, {ran}", doing(row.phase)));
        out.extend(super::dialog::lines(&said, columns.min(90), pen));
    }
    for left in stop.waiting.iter().flat_map(|w| &w.left) {
        say(&mut out, &format!("  {left}"), pen.dim(), columns);
    }
    out
}

fn sign(finding: &Finding, mending: bool, pen: Pen) -> (&'static str, ratatui::style::Style) {
    let (unicode, ascii, style) = match &finding.mended {
        _ if mending => ("◌", ".", pen.strong()),
        Some(Ok(_)) => ("✓", "+", pen.good()),
        Some(Err(_)) => ("✗", "x", pen.alarm()),
        None if finding.mend.is_some() => ("!", "!", pen.alarm()),
        None => ("·", "-", pen.dim()),
    };
    (if pen.look.ascii { ascii } else { unicode }, style)
}

/// The findings, the selected one in full below.
fn findings(
    audit: &Audit,
    stop: &StopState,
    mut head: Vec<Line<'static>>,
    pen: Pen,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let columns = usize::from(area.width);
    if audit.findings.is_empty() {
        return put(head, frame, area);
    }
    head.push(Line::raw(""));
    let kind = audit.findings.iter().map(|f| width(&f.kind)).max().unwrap_or(0).min(columns / 3);
    let rows: Vec<Line<'static>> = audit
        .findings
        .iter()
        .enumerate()
        .map(|(at, f)| {
            let (sign, style) = sign(f, stop.mending.contains(&at), pen);
            let room = columns.saturating_sub(kind + 5);
            let line = Line::from(vec![
                Span::styled(format!(" {sign} "), style),
                Span::styled(left(&f.kind, kind, pen), style),
                Span::raw("  "),
                Span::raw(left(&f.what, room, pen)),
            ]);
            if at == stop.cursor { line.patch_style(pen.selected()) } else { line }
        })
        .collect();
    let mut detail = Vec::new();
    if let Some(f) = audit.findings.get(stop.cursor) {
        say(&mut detail, &f.what, pen.text(), columns);
        say(&mut detail, &f.why, pen.text(), columns);
        match (&f.mended, &f.mend) {
            _ if stop.mending.contains(&stop.cursor) => say(&mut detail, "being mended", pen.strong(), columns),
            (Some(Ok(words)), _) => say(&mut detail, &format!("mended: {words}"), pen.good(), columns),
            (Some(Err(why)), _) => say(&mut detail, &format!("not mended: {why}"), pen.alarm(), columns),
            (None, Some(mend)) => say(&mut detail, &format!("Enter mends it: {mend}"), pen.strong(), columns),
            (None, None) => say(&mut detail, "it can not be mended from here", pen.dim(), columns),
        }
    }
    let height = usize::from(area.height);
    let below = detail.len().min(height / 2);
    // The list keeps three rows.
    let rest = height.saturating_sub(below + 1);
    let above = head.len().min(rest.saturating_sub(rows.len().min(3)).max(rest / 2));
    let middle = height.saturating_sub(above + below + 1);
    let skip = (stop.cursor + 1).saturating_sub(middle);
    head.truncate(above);
    let mut lines = head;
    lines.extend(rows.into_iter().skip(skip).take(middle));
    lines.push(Line::styled(if pen.look.ascii { "-" } else { "─" }.repeat(columns), pen.dim()));
    lines.extend(detail);
    put(lines, frame, area);
}
