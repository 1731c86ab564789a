//! What is wrong with the servers, and what they log.

use std::borrow::Cow;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::fit::{cut, left, width, wrap_words};
use super::super::style::Pen;
use super::boxed;
use crate::app::model::Model;
use crate::app::servers;
use crate::job::time;
use crate::serving::{Calm, Diagnosis, LogLine, Severity, join};

/// Sign of a severity.
pub fn sign(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => " ",
        Severity::Warning => "w",
        Severity::Error => "!",
        Severity::Fatal => "X",
    }
}

/// Style of a severity.
pub fn severity_style(severity: Severity, pen: Pen) -> Style {
    match severity {
        Severity::Info => pen.text(),
        Severity::Warning => pen.strong(),
        Severity::Error => pen.alarm(),
        Severity::Fatal => pen.hot(),
    }
}

/// Its kind in words.
pub fn kind(d: &Diagnosis) -> String {
    d.kind.name().replace('_', " ")
}

/// `for 4 m`, `over, 2 m long`.
pub fn lasting(d: &Diagnosis, model: &Model) -> String {
    let long = |to| d.since.and_then(|since| time::seconds_between(since, to)).map(time::words);
    match (d.over, d.until) {
        (false, _) => long(model.now).map_or_else(|| "since -".to_string(), |long| format!("for {long}")),
        (true, Some(until)) => {
            let ago = time::words(time::age(until, model.now).as_secs_f64());
            format!("over {ago} ago")
        }
        (true, None) => "over".to_string(),
    }
}

/// Of what it is.
pub fn about(d: &Diagnosis) -> String {
    d.replica.as_ref().map_or_else(|| d.server.to_string(), join::name)
}

/// The list, the selected one in full below where there is room.
pub fn diagnoses(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect, focused: bool) {
    let all = servers::diagnoses(model);
    let open = all.iter().filter(|d| !d.over).count();
    let fact = format!("{open} now, {} over", all.len() - open);
    let inside = boxed(model, frame, area, pen, focused, "Diagnoses", &fact);
    let columns = usize::from(inside.width);
    let height = usize::from(inside.height);
    if all.is_empty() {
        let calm = Calm::of(model.serving.replicas().map(|row| row.state));
        let text = cut(calm.words(), columns, pen);
        frame.render_widget(Line::styled(text, pen.dim()), Rect { height: inside.height.min(1), ..inside });
        return;
    }
    let at = model.servers.diagnosis_at.min(all.len() - 1);
    // Without room for a list and a text below it, each one is told whole.
    let full = all.get(at).filter(|_| height >= 6).map(|d| text(d, columns)).unwrap_or_default();
    let below = full.len().min(height.saturating_sub(3)).min(height * 2 / 3);
    let rows = height - below - usize::from(below > 0);
    let kinds = all.iter().map(|d| width(&kind(d))).max().unwrap_or(0).min(columns / 3);
    let first = if focused { (at + 1).saturating_sub(rows) } else { 0 };
    for ((i, d), y) in all.iter().enumerate().skip(first).take(rows).zip(inside.y..inside.bottom()) {
        let style = if d.over { pen.dim() } else { severity_style(d.severity, pen) };
        let head = format!("{} {}  ", sign(d.severity), left(&kind(d), kinds, pen));
        let rest = format!("{}, {}: {}", about(d), lasting(d, model), d.text);
        let rest = cut(&rest, columns.saturating_sub(width(&head)), pen);
        let faint = if d.over { pen.dim() } else { pen.text() };
        let line = Line::from(vec![Span::styled(head, style), Span::styled(rest, faint)]);
        let line = if focused && i == at { line.patch_style(pen.selected()) } else { line };
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
    if below == 0 {
        return;
    }
    let rule = if pen.look.ascii { "-" } else { "─" };
    let y = inside.y + u16::try_from(rows).unwrap_or(0);
    frame.render_widget(Line::styled(rule.repeat(columns), pen.dim()), Rect { y, height: 1, ..inside });
    for (text, y) in full.into_iter().zip(y + 1..inside.bottom()) {
        frame.render_widget(Line::raw(text), Rect { y, height: 1, ..inside });
    }
}

/// A diagnosis in full: sentence, advice, figures.
pub fn text(d: &Diagnosis, columns: usize) -> Vec<String> {
    let mut out = wrap_words(&d.text, columns);
    if !d.advice.is_empty() {
        out.extend(wrap_words(&format!("do: {}", d.advice), columns));
    }
    if !d.figures.is_empty() {
        out.extend(wrap_words(&figures(d), columns));
    }
    out
}

/// The figures that it rests on.
pub fn figures(d: &Diagnosis) -> String {
    let each = d.figures.iter().map(|(name, value)| format!("{} {}", name.replace('_', " "), plain(*value)));
    each.collect::<Vec<_>>().join(", ")
}

fn plain(value: f64) -> String {
    match value {
        v if !v.is_finite() => "-".to_string(),
        v if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v:.0}"),
        v if v.abs() < 10.0 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    }
}

/// The log of the selected replica's server.
pub fn log(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect, focused: bool) {
    let tall =
        usize::from(area.height).saturating_sub(if model.room() == crate::app::model::Room::Compact { 1 } else { 2 });
    let (lines, passing, all) = servers::log::window(model, tall);
    let view = &model.servers.log;
    let filter = if view.filter.is_empty() { String::new() } else { format!("filter {}, ", view.filter) };
    let of = if passing == all { format!("{all} lines") } else { format!("{passing} of {all} lines") };
    let following = if view.at.is_none() { "at its end" } else { "End follows" };
    let names: Vec<&str> = servers::log::sources(model).iter().map(|s| &*s.source.server).collect();
    let title = match names.first() {
        Some(name) => format!("Log of {name}"),
        None => "Server log".to_string(),
    };
    let inside = boxed(model, frame, area, pen, focused, &title, &format!("{filter}{of}, {following}"));
    let columns = usize::from(inside.width);
    let trouble = servers::log::sources(model).iter().find_map(|s| s.trouble.clone());
    if lines.is_empty() {
        let why = match (names.is_empty(), all, trouble) {
            (true, ..) => "no log of this server is read: --serving NAME=FILE, docker:NAME or cmd:COMMAND".to_string(),
            (_, 0, Some(why)) => why.to_string(),
            (_, 0, None) => "nothing in it yet".to_string(),
            _ => "no line passes the filter; F shows all".to_string(),
        };
        for (text, y) in wrap_words(&why, columns).into_iter().zip(inside.y..inside.bottom()) {
            frame.render_widget(Line::styled(text, pen.dim()), Rect { y, height: 1, ..inside });
        }
        return;
    }
    for (line, y) in lines.into_iter().zip(inside.y..inside.bottom()) {
        frame.render_widget(row(line, columns, pen), Rect { y, height: 1, ..inside });
    }
}

/// Time, severity, text without the stamp that is told already.
fn row(line: &LogLine, columns: usize, pen: Pen) -> Line<'static> {
    let clock = match (line.at, line.time) {
        (Some(at), _) => {
            let second = at.as_second().rem_euclid(86_400);
            format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
        }
        // The server's own clock, in no known zone.
        (None, Some(time)) => {
            let second = time.millis / 1000;
            format!("{:02}:{:02}:{:02}?", second / 3600, second / 60 % 60, second % 60)
        }
        (None, None) => "-".to_string(),
    };
    let style = severity_style(line.severity, pen);
    let head = format!("{} {} ", left(&clock, 9, pen), sign(line.severity));
    let text = cut(&bare(&line.text), columns.saturating_sub(width(&head)), pen);
    Line::from(vec![
        Span::styled(head, if line.severity > Severity::Info { style } else { pen.dim() }),
        Span::styled(text, style),
    ])
}

/// Without the stamp in front, whose time stands beside: `[2026-11-29 10:00:00 DP1] x` is `DP1 x`.
fn bare(text: &str) -> Cow<'_, str> {
    let Some((stamp, rest)) = text.strip_prefix('[').and_then(|t| t.split_once("] ")) else {
        return Cow::Borrowed(text);
    };
    let clock = |part: &&str| part.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | ':' | '.'));
    let parts: Vec<&str> = stamp.split(' ').collect();
    let times = parts.iter().take_while(|part| clock(part)).count();
    let tags = parts.get(times..).unwrap_or_default();
    let tag = |t: &&str| t.len() <= 10 && t.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    match (times, tags) {
        (1 | 2, []) => Cow::Borrowed(rest),
        (1 | 2, tags) if tags.iter().all(tag) => Cow::Owned(format!("{} {rest}", tags.join(" "))),
        _ => Cow::Borrowed(text),
    }
}
