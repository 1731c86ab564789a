//! What one trial does now, by its own word: its call of the model or its command, tokens, context, what it
//! said last.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::fit::{cut, wrap_words};
use super::pane;
use super::style::Pen;
use crate::app::model::Model;
use crate::app::rows::Row;
use crate::app::works;
use crate::job::work::words;
use crate::job::work::{Call, Doing};

/// Most rows of one text of the agent's.
const SAID: usize = 4;
/// What the fact of the context begins with.
const CONTEXT: &str = "context ";
/// Columns of the bar of the context.
const BAR: usize = 10;

/// In one line; None: only its files tell.
pub fn line(model: &Model, row: Option<&Row>, pen: Pen, columns: usize) -> Option<Line<'static>> {
    let row = row?;
    let (text, style) = first(model, row, pen)?;
    let episode = model.steer.works.of_row(row)?.episode.map_or(String::new(), |n| format!("episode {n}: "));
    Some(Line::styled(cut(&format!("{episode}{text}"), columns, pen), style))
}

fn first(model: &Model, row: &Row, pen: Pen) -> Option<(String, Style)> {
    let work = model.steer.works.of_row(row)?;
    let (said, inferred) = works::words_of(model, row)?;
    // Queued at the server: the servers know that, not the trial.
    let queued =
        matches!(&work.doing, Doing::Model(Call { heard: None, .. }) | Doing::Summary(Call { heard: None, .. }));
    let text = if queued { said.whole() } else { words::in_full(work, model.now)? };
    let mark = if inferred { "~" } else { "" };
    let style = if works::is_long(model, row) { pen.alarm() } else { pen.strong() };
    Some((format!("{text}{mark}"), style))
}

/// All of it, in at most so many rows; empty: only its files tell.
pub fn lines(model: &Model, row: Option<&Row>, pen: Pen, columns: usize, rows: usize) -> Vec<Line<'static>> {
    let Some((row, work)) = row.and_then(|row| Some((row, model.steer.works.of_row(row)?))) else { return Vec::new() };
    let mut out: Vec<Line<'static>> = Vec::new();
    let mut say = |text: &str, style: Style, most: usize| {
        for part in clipped(wrap_words(text, columns), most, columns, pen) {
            out.push(Line::styled(part, style));
        }
    };
    if let Some((text, style)) = first(model, row, pen) {
        say(&text, style, 2);
    }
    let long = super::trial::key_of(row).and_then(|key| model.steer.works.long.get(key));
    if let Some(long) = long {
        say(&long.text(), pen.alarm(), 3);
    }
    let (context, rest): (Vec<_>, Vec<_>) = words::facts(work).into_iter().partition(|fact| fact.starts_with(CONTEXT));
    for context in context {
        let share = work.context_share();
        let text = match share.filter(|_| columns >= 36) {
            Some(share) => context.replacen(CONTEXT, &format!("{CONTEXT}{} ", pen.bar(share, BAR)), 1),
            None => context,
        };
        say(&text, if share.is_some_and(|share| share > 0.9) { pen.hot() } else { pen.text() }, 1);
    }
    if !rest.is_empty() {
        say(&rest.join(", "), pen.text(), 3);
    }
    for (title, text) in [("plan", &work.plan), ("analysis", &work.analysis)] {
        let text = text.as_deref().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            say(&format!("{title}: {text}"), pen.dim(), SAID);
        }
    }
    out.truncate(rows);
    out
}

/// So many rows, the last with a sign where something is missing.
fn clipped(mut rows: Vec<String>, most: usize, columns: usize, pen: Pen) -> Vec<String> {
    if rows.len() > most {
        rows.truncate(most);
        if let Some(last) = rows.last_mut() {
            let kept = cut(last, columns.saturating_sub(1), pen);
            let sign = if kept == *last { pen.ellipsis() } else { "" };
            *last = format!("{kept}{sign}");
        }
    }
    rows
}

/// A pane of it at the bottom of an area, as tall as it needs and is allowed; gives the rows it took.
pub fn at_bottom(model: &Model, row: Option<&Row>, pen: Pen, frame: &mut Frame<'_>, area: Rect, most: u16) -> u16 {
    if most < 3 || area.width < 20 {
        return 0;
    }
    let columns = usize::from(area.width).saturating_sub(2);
    let lines = lines(model, row, pen, columns, usize::from(most).saturating_sub(2));
    let Some(row) = row.filter(|_| !lines.is_empty()) else { return 0 };
    let height = u16::try_from(lines.len()).unwrap_or(most).saturating_add(2).min(most);
    let below = Rect { y: area.bottom().saturating_sub(height), height, ..area };
    draw(model, row, lines, pen, frame, below);
    height
}

/// The lines in a pane.
pub fn draw(model: &Model, row: &Row, lines: Vec<Line<'static>>, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let episode = model.steer.works.of_row(row).and_then(|work| work.episode);
    let fact = episode.map_or(String::new(), |n| format!("episode {n}"));
    let inside = pane(frame, area, pen, false, &format!("Now {}", row.task), &fact);
    for (y, line) in (inside.y..inside.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}
