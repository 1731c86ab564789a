//! The model servers: replicas with their figures and history, what is wrong with them, their log.

pub mod cells;
pub mod detail;
pub mod lists;
pub mod timeline;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::dialog::paragraph;
use super::fit::{cut, left, width};
use super::pane;
use super::style::Pen;
use crate::app::model::{Model, Room};
use crate::app::servers::{self, Pane};
use crate::serving::{Replica, State, join};
use cells::{Columns, Field};

/// Draws the view.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    if !servers::any(model) {
        let inside = boxed(model, frame, area, pen, true, "2 Serving", "");
        let text = "no model server is watched: start with --serving http://host:port, a log file, docker:NAME or \
                    cmd:COMMAND, as often as there are servers; the endpoint that a running job names is read, too, \
                    where it is on this network and answers";
        for (text, y) in paragraph(text, usize::from(inside.width)).into_iter().zip(inside.y..inside.bottom()) {
            frame.render_widget(Line::styled(text, pen.dim()), Rect { y, height: 1, ..inside });
        }
        return;
    }
    if model.servers.detail.is_some() {
        return detail::draw(model, pen, frame, area);
    }
    let pane = model.servers.pane;
    if model.zoom {
        return one(model, pen, frame, area, pane);
    }
    let rows = replica_rows(model, usize::from(area.width));
    // Replicas as far as they need it, and never so much that nothing is left for the rest.
    let wanted = u16::try_from(rows + around(model)).unwrap_or(u16::MAX);
    let top = wanted.min((area.height / 2).max(4)).min(area.height);
    let (upper, lower) = split(area, top);
    replicas(model, pen, frame, upper, pane == Pane::Replicas);
    if model.room() == Room::Double {
        let (middle, bottom) = split(lower, timeline::ROWS.min(lower.height / 2));
        timeline::draw(model, pen, frame, middle);
        let half = Rect { width: bottom.width / 2, ..bottom };
        let rest = Rect { x: half.right(), width: bottom.width - half.width, ..bottom };
        lists::diagnoses(model, pen, frame, half, pane == Pane::Diagnoses);
        lists::log(model, pen, frame, rest, pane == Pane::Log);
        return;
    }
    match pane {
        Pane::Replicas => {
            // What is wrong, in few lines, then history.
            let open = model.serving.open().count();
            let tall = u16::try_from(open.max(1) * 2).unwrap_or(u16::MAX).saturating_add(2);
            let (wrong, rest) = split(lower, tall.min(lower.height.saturating_sub(timeline::LEAST)));
            if wrong.height > 1 {
                lists::diagnoses(model, pen, frame, wrong, false);
            }
            timeline::draw(model, pen, frame, rest);
        }
        other => one(model, pen, frame, lower, other),
    }
}

fn one(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect, pane: Pane) {
    match pane {
        Pane::Replicas => replicas(model, pen, frame, area, true),
        Pane::Diagnoses => lists::diagnoses(model, pen, frame, area, true),
        Pane::Log => lists::log(model, pen, frame, area, true),
    }
}

fn split(area: Rect, top: u16) -> (Rect, Rect) {
    let top = top.min(area.height);
    let upper = Rect { height: top, ..area };
    (upper, Rect { y: upper.bottom(), height: area.height - top, ..area })
}

/// A pane in a frame; on a small screen under a rule.
pub fn boxed(
    model: &Model,
    frame: &mut Frame<'_>,
    area: Rect,
    pen: Pen,
    focused: bool,
    title: &str,
    fact: &str,
) -> Rect {
    if model.room() != Room::Compact {
        return pane(frame, area, pen, focused, title, fact);
    }
    if area.height == 0 {
        return area;
    }
    let rule = if pen.look.ascii { "-" } else { "─" };
    let columns = usize::from(area.width);
    let head = if fact.is_empty() { format!("{title} ") } else { format!("{title}, {fact} ") };
    let head = cut(&head, columns, pen);
    let rest = rule.repeat(columns.saturating_sub(width(&head)));
    let style = if focused { pen.strong() } else { pen.dim() };
    let line = Line::from(vec![Span::styled(head, style), Span::styled(rest, pen.dim())]);
    frame.render_widget(line, Rect { height: 1, ..area });
    Rect { y: area.y + 1, height: area.height - 1, ..area }
}

/// Rows that frames and heading take.
fn around(model: &Model) -> usize {
    if model.room() == Room::Compact { 1 } else { 3 }
}

fn replica_rows(model: &Model, columns: usize) -> usize {
    let each = if is_narrow(columns) { 2 } else { 1 };
    (model.serving.replicas().count() * each).max(1)
}

fn is_narrow(columns: usize) -> bool {
    columns < 70
}

/// Sign of a state.
pub fn glyph(state: State, pen: Pen) -> &'static str {
    let (unicode, ascii) = match state {
        State::Starting => ("◌", "."),
        State::Ready | State::Idle => ("○", "o"),
        State::Decoding => ("●", "*"),
        State::Saturated => ("◉", "#"),
        State::Retracting => ("↺", "r"),
        State::Hung => ("‖", "="),
        State::Dead => ("✝", "X"),
        State::Restarting => ("↻", "R"),
        State::Unknown => ("?", "?"),
    };
    if pen.look.ascii { ascii } else { unicode }
}

/// Style of a state.
pub fn state_style(state: State, pen: Pen) -> ratatui::style::Style {
    match state {
        State::Decoding => pen.good(),
        State::Ready | State::Idle => pen.text(),
        State::Saturated | State::Starting | State::Restarting => pen.strong(),
        State::Retracting | State::Hung | State::Dead => pen.alarm(),
        State::Unknown => pen.dim(),
    }
}

/// How the servers stand in few words: `router ok, 3/4 replicas`.
pub fn fact(model: &Model) -> String {
    let all = model.serving.replicas().count();
    let up = model.serving.replicas().filter(|r| is_up(r.state)).count();
    let mut routers = model.serving.servers().iter().filter(|s| s.is_router()).peekable();
    let router = match routers.peek() {
        None => String::new(),
        Some(_) => match routers.find_map(|router| servers::gone_router(model, router)) {
            Some(gone) => format!("router {}, ", gone.state.name()),
            None => "router ok, ".to_string(),
        },
    };
    match all {
        0 if !router.is_empty() => router.trim_end_matches(", ").to_string(),
        0 => "nothing heard yet".to_string(),
        all => format!("{router}{up}/{all} replica{} up", if all == 1 { "" } else { "s" }),
    }
}

fn is_up(state: State) -> bool {
    matches!(state, State::Ready | State::Idle | State::Decoding | State::Saturated | State::Retracting)
}

fn replicas(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect, focused: bool) {
    let inside = boxed(model, frame, area, pen, focused, "2 Serving", &fact(model));
    let columns = usize::from(inside.width);
    let mut height = usize::from(inside.height);
    if columns < 12 || height == 0 {
        return;
    }
    let rows: Vec<&Replica> = model.serving.replicas().collect();
    if rows.is_empty() {
        let lines = unheard(model);
        for (text, y) in lines.iter().flat_map(|l| paragraph(l, columns)).zip(inside.y..inside.bottom()) {
            frame.render_widget(Line::styled(text, pen.dim()), Rect { y, height: 1, ..inside });
        }
        return;
    }
    let tops = cells::tops(model);
    let at = rows.iter().position(|r| Some(&r.key) == model.servers.selected.as_ref());
    let style = if focused { pen.selected() } else { pen.selected_elsewhere() };
    let mut y = inside.y;
    let mut put = |line: Line<'static>, frame: &mut Frame<'_>| {
        if y < inside.bottom() {
            frame.render_widget(line, Rect { y, height: 1, ..inside });
            y += 1;
        }
    };
    if is_narrow(columns) {
        let shown = (height / 2).max(1);
        let first = at.map_or(0, |at| (at + 1).saturating_sub(shown));
        for (i, row) in rows.iter().enumerate().skip(first).take(shown) {
            let [upper, lower] = cells::two_lines(row, model, &tops, pen, columns);
            put(if at == Some(i) { upper.patch_style(style) } else { upper }, frame);
            put(lower, frame);
        }
        return;
    }
    let plan = Columns::plan(&rows, columns);
    put(Line::styled(plan.heading(pen), pen.dim()), frame);
    height -= 1;
    let first = at.map_or(0, |at| (at + 1).saturating_sub(height));
    for (i, row) in rows.iter().enumerate().skip(first).take(height) {
        let line = plan.row(row, model, &tops, pen);
        put(if at == Some(i) { line.patch_style(style) } else { line }, frame);
    }
}

/// The sources before any of them told of a replica, with their troubles.
fn unheard(model: &Model) -> Vec<String> {
    let each = model.serving.sources().iter().map(|s| match &s.trouble {
        Some(why) => format!("{}: {why}", s.source.server),
        None if s.lines > 0 => format!("{}: {} lines, no batch among them yet", s.source.server, s.lines),
        None => format!("{}: nothing heard yet", s.source.server),
    });
    each.collect()
}

/// Rows that the pane on the home screen wants.
pub fn home_rows(model: &Model) -> usize {
    model.serving.replicas().count().max(1)
}

/// The replicas beside the trials, those in trouble first.
pub fn home(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let inside = pane(frame, area, pen, false, "2 Serving", &fact(model));
    let columns = usize::from(inside.width);
    let height = usize::from(inside.height);
    let mut rows: Vec<&Replica> = model.serving.replicas().collect();
    if rows.is_empty() {
        for (text, y) in unheard(model).iter().map(|l| cut(l, columns, pen)).zip(inside.y..inside.bottom()) {
            frame.render_widget(Line::styled(text, pen.dim()), Rect { y, height: 1, ..inside });
        }
        return;
    }
    if rows.len() > height {
        rows.sort_by_key(|r| is_up(r.state));
    }
    let tops = cells::tops(model);
    let names = rows.iter().map(|r| width(&join::name(&r.key))).max().unwrap_or(0).min(columns / 3);
    let shown = if rows.len() > height { height.saturating_sub(1) } else { height };
    for (row, y) in rows.iter().take(shown).zip(inside.y..inside.bottom()) {
        let line = cells::short(row, model, &tops, pen, (columns, names));
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
    if rows.len() > shown && inside.height > 0 {
        let more = left(&format!("and {} more: 2", rows.len() - shown), columns, pen);
        let y = inside.bottom() - 1;
        frame.render_widget(Line::styled(more, pen.dim()), Rect { y, height: 1, ..inside });
    }
}

/// Style of a figure: dim where it is old.
pub fn aged(replica: &Replica, field: Field, pen: Pen) -> ratatui::style::Style {
    match replica.age(field) {
        Some(age) if age <= cells::OLD => pen.text(),
        _ => pen.dim(),
    }
}
