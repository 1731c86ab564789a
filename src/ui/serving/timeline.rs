//! Throughput, queue and trials on one axis of time.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::fit::{left, right, width};
use super::super::style::Pen;
use super::boxed;
use super::cells::{bars, speed, top};
use crate::app::model::Model;
use crate::app::servers;
use crate::job::{Stamp, time};
use crate::serving::{Replica, Track, join};

/// Rows with its frame.
pub const ROWS: u16 = 8;
/// Rows below which it is not worth drawing.
pub const LEAST: u16 = 6;
/// Columns of the labels, and of the figures at the right.
const LABEL: usize = 9;
const FIGURE: usize = 8;

/// Draws the history of the selected replica.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    if area.height < 3 {
        return;
    }
    let Some(replica) = servers::selected(model) else { return };
    let span = model.servers.span();
    let title = format!("{}, last {}", join::name(&replica.key), time::words(span));
    let inside = boxed(model, frame, area, pen, false, &title, "< > span");
    let lines = lines(model, replica, pen, usize::from(inside.width));
    for (line, y) in lines.into_iter().zip(inside.y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

/// The rows.
pub fn lines(model: &Model, replica: &Replica, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let n = columns.saturating_sub(LABEL + FIGURE + 2);
    if n < 8 {
        return Vec::new();
    }
    let span = model.servers.span();
    let mut out = Vec::new();
    let mut track = |name: &str, track: Track, style: Style| {
        let values = replica.columns_until(track, n, span, model.now);
        let most = top(&values);
        let figure = if values.iter().any(Option::is_some) {
            match track {
                Track::Kv => format!("{:.0}%", most * 100.0),
                Track::Queued => format!("{most:.0}"),
                _ => speed(Some(most), pen),
            }
        } else {
            pen.unknown().to_string()
        };
        let scale = if track == Track::Kv { 1.0 } else { most };
        out.push(Line::from(vec![
            Span::styled(left(name, LABEL, pen), pen.dim()),
            // A line of zeros needs nobody.
            Span::styled(bars(&values, scale, pen), if most > 0.0 { style } else { pen.dim() }),
            Span::styled(right(&figure, FIGURE, pen), pen.text()),
        ]));
    };
    track("t/s", Track::Generation, pen.good());
    track("queued", Track::Queued, pen.alarm());
    track("kv", Track::Kv, pen.text());
    let (ticks, begun, ended) = trials(model, n, span, pen);
    out.push(Line::from(vec![
        Span::styled(left("trials", LABEL, pen), pen.dim()),
        Span::styled(ticks, pen.strong()),
        Span::styled(right(&format!("+{begun} -{ended}"), FIGURE, pen), pen.text()),
    ]));
    let (wrong, n_wrong) = wrong(model, replica, n, span, pen);
    out.push(Line::from(vec![
        Span::styled(left("wrong", LABEL, pen), pen.dim()),
        Span::styled(wrong, pen.alarm()),
        Span::styled(right(&n_wrong.to_string(), FIGURE, pen), pen.text()),
    ]));
    out.push(axis(model.now, n, span, pen));
    out
}

/// The column of a moment; None outside.
fn column(at: Stamp, now: Stamp, n: usize, span: f64) -> Option<usize> {
    let ago = now.duration_since(at).as_secs_f64();
    if !(0.0..=span).contains(&ago) {
        return None;
    }
    let column = ((span - ago) / span * n as f64) as usize;
    Some(column.min(n.saturating_sub(1)))
}

/// Begins and ends of trials, and how many there were.
fn trials(model: &Model, n: usize, span: f64, pen: Pen) -> (String, usize, usize) {
    let (mut begins, mut ends) = (vec![false; n], vec![false; n]);
    let (mut begun, mut ended) = (0, 0);
    let mark = |at: Option<Stamp>, row: &mut Vec<bool>, count: &mut usize| {
        if let Some(place) = at.and_then(|at| column(at, model.now, n, span)).and_then(|at| row.get_mut(at)) {
            *place = true;
            *count += 1;
        }
    };
    for row in &model.rows {
        mark(row.started, &mut begins, &mut begun);
        mark(row.finished, &mut ends, &mut ended);
    }
    let (begin, end, both, rest) = if pen.look.ascii { ('(', ')', 'X', '.') } else { ('▴', '▾', '◆', '·') };
    let sign = |(begin_here, end_here): (&bool, &bool)| match (begin_here, end_here) {
        (true, true) => both,
        (true, false) => begin,
        (false, true) => end,
        (false, false) => rest,
    };
    (begins.iter().zip(&ends).map(sign).collect(), begun, ended)
}

/// When something was wrong with its server: `!` where it began, a line while it held.
fn wrong(model: &Model, replica: &Replica, n: usize, span: f64, pen: Pen) -> (String, usize) {
    let mut cells = vec![' '; n];
    let mut count = 0;
    let line = if pen.look.ascii { '-' } else { '─' };
    let mine = |d: &&crate::serving::Diagnosis| {
        *d.server == *replica.key.server && d.replica.as_ref().is_none_or(|key| *key == replica.key)
    };
    for d in model.serving.diagnoses().filter(mine) {
        let Some(since) = d.since else { continue };
        let until = d.until.unwrap_or(model.now);
        let Some(to) = column(until, model.now, n, span) else { continue };
        count += 1;
        let from = column(since, model.now, n, span);
        for cell in cells.iter_mut().take(to + 1).skip(from.unwrap_or(0)).filter(|c| **c == ' ') {
            *cell = line;
        }
        if let Some(cell) = from.and_then(|from| cells.get_mut(from)) {
            *cell = '!';
        }
    }
    (cells.into_iter().collect(), count)
}

/// Times under it, UTC.
fn axis(now: Stamp, n: usize, span: f64, pen: Pen) -> Line<'static> {
    let clock = |ago: f64| {
        let second = (now.as_second() - ago as i64).rem_euclid(86_400);
        format!("{:02}:{:02}", second / 3600, second / 60 % 60)
    };
    let (begin, middle, end) = (clock(span), clock(span / 2.0), clock(0.0));
    let mut text = begin.clone();
    if n >= 24 {
        let at = n / 2;
        text.push_str(&" ".repeat(at.saturating_sub(width(&text) + width(&middle) / 2)));
        text.push_str(&middle);
    }
    text.push_str(&" ".repeat(n.saturating_sub(width(&text) + width(&end))));
    text.push_str(&end);
    Line::from(vec![
        Span::styled(left("UTC", LABEL, pen), pen.dim()),
        Span::styled(text, pen.dim()),
        Span::styled(right("most", FIGURE, pen), pen.dim()),
    ])
}
