//! The replay: the terminal in its own size, a scrubber, what the player says.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::fit::{cut, piece, spread, wrap};
use super::style::Pen;
use crate::app::model::{Model, Theme};
use crate::app::replay::{Picture, corner};
use crate::cast::{self, Cell};
use crate::job::time;

/// Draws the replay into `area`: one line on top, the terminal, two lines below.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let Some(view) = &model.replay else { return };
    let columns = usize::from(area.width);
    let top = Rect { height: 1, ..area };
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(3), ..area };
    if let Some(why) = &view.refused {
        let head = spread(vec![piece(view.source.title.clone(), pen.strong(), 0)], Vec::new(), "", columns, pen);
        frame.render_widget(head, top);
        for (line, y) in wrap(why, columns).into_iter().zip(body.y..body.bottom()) {
            frame.render_widget(Line::raw(line), Rect { y, height: 1, ..area });
        }
        return;
    }
    let Some(picture) = &view.picture else {
        let head = vec![piece(view.source.title.clone(), pen.strong(), 0), piece("opening", pen.dim(), 0)];
        frame.render_widget(spread(head, Vec::new(), "  ", columns, pen), top);
        return;
    };
    let room = (body.width, body.height);
    let from = corner(picture.size, room, picture.cursor, view.scroll);
    frame.render_widget(title(picture, &view.source.title, from, room, pen, columns), top);
    terminal(picture, from, pen, frame, body);
    frame.render_widget(scrubber(picture, pen, columns), Rect { y: area.bottom() - 2, height: 1, ..area });
    frame.render_widget(said(picture, pen, columns), Rect { y: area.bottom() - 1, height: 1, ..area });
}

fn title(p: &Picture, name: &str, from: (u16, u16), room: (u16, u16), pen: Pen, columns: usize) -> Line<'static> {
    let (n, of, path) = &p.cast;
    let mut left = vec![piece(name.to_string(), pen.strong(), 0)];
    if !path.ends_with(name) {
        let which = if *of > 1 { format!("{path} ({n} of {of}, Tab next)") } else { path.clone() };
        left.push(piece(which, pen.dim(), 2));
    }
    let mut right = Vec::new();
    if p.size.0 > room.0 || p.size.1 > room.1 {
        let part = |from: u16, room: u16, all: u16| {
            if room < all { format!("{}-{} of {all}", from + 1, from + room) } else { all.to_string() }
        };
        right.push(piece(
            format!("columns {}, rows {}", part(from.0, room.0, p.size.0), part(from.1, room.1, p.size.1)),
            pen.alarm(),
            0,
        ));
    } else {
        right.push(piece(format!("{}x{}", p.size.0, p.size.1), pen.dim(), 1));
    }
    spread(left, right, "  ", columns, pen)
}

/// Draws a part of the terminal, with its edges where it is smaller than the room.
pub(super) fn terminal(p: &Picture, from: (u16, u16), pen: Pen, frame: &mut Frame<'_>, body: Rect) {
    let buffer = frame.buffer_mut();
    for (row, y) in p.rows.iter().skip(usize::from(from.1)).zip(body.y..body.bottom()) {
        let mut column: u16 = 0;
        for cell in row {
            let at = column;
            column = column.saturating_add(1);
            if at < from.0 || cell.width == 0 {
                continue;
            }
            let x = body.x + (at - from.0);
            if x + u16::from(cell.width) > body.right() {
                break;
            }
            let cursor =
                p.cursor.is_some_and(|(cx, cy)| cx == at && u32::from(cy) == u32::from(from.1) + u32::from(y - body.y));
            if let Some(target) = buffer.cell_mut((x, y)) {
                let ch = if pen.look.ascii && !cell.ch.is_ascii() { '?' } else { cell.ch };
                target.set_char(ch).set_style(cell_style(cell, pen));
                if cursor {
                    target.modifier.toggle(Modifier::REVERSED);
                }
            }
        }
    }
    // The edge of a terminal that is smaller than the room for it.
    let edge = p.size.0.saturating_sub(from.0);
    if edge < body.width {
        let sign = if pen.look.ascii { "|" } else { "│" };
        for y in body.y..body.bottom().min(body.y.saturating_add(p.size.1.saturating_sub(from.1))) {
            if let Some(target) = buffer.cell_mut((body.x + edge, y)) {
                target.set_symbol(sign).set_style(pen.dim());
            }
        }
    }
    let below = p.size.1.saturating_sub(from.1);
    if below < body.height {
        let sign = if pen.look.ascii { "-" } else { "─" };
        for x in body.x..body.right().min(body.x.saturating_add(edge)) {
            if let Some(target) = buffer.cell_mut((x, body.y + below)) {
                target.set_symbol(sign).set_style(pen.dim());
            }
        }
    }
}

fn colour(c: cast::Color) -> Option<Color> {
    match c {
        cast::Color::Default => None,
        cast::Color::Indexed(i) => Some(Color::Indexed(i)),
        cast::Color::Rgb(r, g, b) => Some(Color::Rgb(r, g, b)),
    }
}

fn cell_style(cell: &Cell, pen: Pen) -> Style {
    let s = &cell.style;
    let mut style = Style::new();
    if pen.look.theme != Theme::Mono {
        if let Some(fg) = colour(s.fg) {
            style = style.fg(fg);
        }
        if let Some(bg) = colour(s.bg) {
            style = style.bg(bg);
        }
    }
    for (on, modifier) in [
        (s.bold, Modifier::BOLD),
        (s.faint, Modifier::DIM),
        (s.italic, Modifier::ITALIC),
        (s.underline, Modifier::UNDERLINED),
        (s.inverse, Modifier::REVERSED),
        (s.strikethrough, Modifier::CROSSED_OUT),
    ] {
        if on {
            style = style.add_modifier(modifier);
        }
    }
    style
}

fn scrubber(p: &Picture, pen: Pen, columns: usize) -> Line<'static> {
    let sign = match (p.playing, pen.look.ascii) {
        (true, false) => "▶",
        (true, true) => ">",
        (false, false) => "⏸",
        (false, true) => "=",
    };
    let clocks = format!("{} / {}", time::clock(p.at.as_secs_f64()), time::clock(p.length.as_secs_f64()));
    let speed = if (p.speed - 1.0).abs() < 1e-9 { String::new() } else { format!(" {}x", p.speed) };
    let idle = match p.idle_cap {
        Some(cap) => format!(" silences {}", time::words(cap.as_secs_f64())),
        None => " silences full".to_string(),
    };
    let head = format!("{sign} {clocks}{speed}");
    let tail = if columns >= 70 { idle } else { String::new() };
    let room = columns.saturating_sub(super::fit::width(&head) + super::fit::width(&tail) + 3).max(4);
    let share = if p.length.is_zero() { 1.0 } else { p.at.as_secs_f64() / p.length.as_secs_f64() };
    let bar = pen.bar(share, room);
    let mut cells: Vec<(String, Style)> = bar.chars().map(|c| (c.to_string(), pen.good())).collect();
    let mut put = |share: f64, sign: &str, style: Style| {
        let at = ((share * room as f64) as usize).min(room.saturating_sub(1));
        if let Some(cell) = cells.get_mut(at) {
            *cell = (sign.to_string(), style);
        }
    };
    for share in p.episodes.iter().flatten().flatten() {
        put(*share, if pen.look.ascii { "'" } else { "╵" }, pen.strong());
    }
    for (share, _) in &p.markers {
        put(*share, if pen.look.ascii { "m" } else { "◆" }, pen.alarm());
    }
    if let Some(share) = p.found {
        put(share, if pen.look.ascii { "/" } else { "▲" }, pen.found());
    }
    let mut spans = vec![Span::styled(cut(&head, columns, pen), pen.strong()), Span::raw(" ")];
    spans.extend(cells.into_iter().map(|(text, style)| Span::styled(text, style)));
    spans.push(Span::styled(tail, pen.dim()));
    Line::from(spans)
}

fn said(p: &Picture, pen: Pen, columns: usize) -> Line<'static> {
    let mut left = Vec::new();
    if let Some(note) = &p.note {
        left.push(piece(note.clone(), pen.strong(), 0));
    }
    if let Some(share) = p.indexing {
        left.push(piece(format!("indexing {:.0} %", share * 100.0), pen.dim(), 0));
    }
    if p.preview {
        left.push(piece("end, from its last output; the exact screen follows", pen.alarm(), 0));
    } else if p.seeking && p.indexing.is_none() {
        left.push(piece("seeking", pen.dim(), 0));
    }
    match (&p.episodes, p.episode) {
        (Some(all), Some(n)) => left.push(piece(format!("episode {} of {}", n + 1, all.len()), pen.text(), 1)),
        (Some(all), None) => left.push(piece(format!("before episode 1 of {}", all.len()), pen.text(), 1)),
        (None, _) => left.push(piece("no episode index", pen.dim(), 2)),
    }
    let reached = p
        .markers
        .iter()
        .rev()
        .find(|(share, _)| *share <= p.at.as_secs_f64() / p.length.as_secs_f64().max(1e-9) + 1e-9);
    if let Some((_, label)) = reached.filter(|(_, l)| !l.is_empty()) {
        left.push(piece(format!("marker {label}"), pen.text(), 2));
    }
    if p.following {
        left.push(piece("follows the end", pen.good(), 1));
    }
    let right = p.oddities.iter().map(|o| piece(o.clone(), pen.dim(), 3)).collect();
    spread(left, right, "   ", columns, pen)
}
