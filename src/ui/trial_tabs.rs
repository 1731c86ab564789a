//! The tabs of the trial view and what they show.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fit::{cut, left, right, short, width};
use super::style::Pen;
use crate::app::detail::doc::{DocLine, Mark, Pane, RowAt};
use crate::app::detail::{FileKind, FileRow, Finding, Slot, Tab, TrialView, terminal};
use crate::app::replay::corner;
use crate::job::text;

/// The tabs on one line, the current one marked; those around it where there is no room for all.
/// `alone`: there is no second column that tells about the steps.
pub fn tab_line(view: &TrialView, alone: bool, pen: Pen, columns: usize) -> Line<'static> {
    let at = Tab::ALL.iter().position(|t| *t == view.tab).unwrap_or(0);
    let wide = |from: usize, to: usize| -> usize {
        Tab::ALL.get(from..to).unwrap_or_default().iter().map(|t| width(t.word()) + 3).sum()
    };
    let n = Tab::ALL.len();
    let (mut from, mut to) = (0, n);
    let mut place = if view.tab == Tab::Terminal {
        terminal_place(view, columns)
    } else if alone && view.tab == Tab::Steps {
        super::trial::steps_fact(view)
    } else {
        place(view)
    };
    // That the end is followed must be seen, whatever tabs have to go for it; and what of a terminal is shown.
    let kept = match view.tab {
        Tab::Terminal => width(&place) + 1,
        _ if place.ends_with(FOLLOWING) => width(FOLLOWING) + 1,
        _ => 0,
    };
    while wide(from, to) + 2 + kept > columns && (from < at || to > at + 1) {
        // The farther end goes first.
        if at - from >= to - 1 - at && from < at { from += 1 } else { to -= 1 }
    }
    let mut spans = Vec::new();
    let mut used = 0;
    if from > 0 {
        spans.push(Span::styled(if pen.look.ascii { "<" } else { "‹" }, pen.dim()));
        used += 1;
    }
    for (i, tab) in Tab::ALL.iter().enumerate().skip(from).take(to - from) {
        let (text, style) =
            if i == at { (format!("[{}]", tab.word()), pen.key()) } else { (format!(" {} ", tab.word()), pen.dim()) };
        used += width(&text) + 1;
        spans.push(Span::styled(text, style));
        spans.push(Span::raw(" "));
    }
    if to < n {
        spans.push(Span::styled(if pen.look.ascii { ">" } else { "›" }, pen.dim()));
        used += 1;
    }
    if used + width(&place) >= columns && place.ends_with(FOLLOWING) {
        place = FOLLOWING.to_string();
    }
    if used + width(&place) < columns {
        spans.push(Span::raw(" ".repeat(columns - used - width(&place))));
        spans.push(Span::styled(place, pen.dim()));
    }
    Line::from(spans)
}

const FOLLOWING: &str = "following";

/// Where in the text one is.
fn place(view: &TrialView) -> String {
    let Some(slot) = view.slot().or((view.tab == Tab::Steps).then_some(Slot::Episode)) else {
        return format!("{} entries", view.files.rows.as_ref().map_or(0, Vec::len));
    };
    let pane = view.pane(slot);
    let Some(doc) = &pane.doc else { return String::new() };
    let end = match (pane.follow, view.live) {
        (true, true) => format!(", live, {FOLLOWING}"),
        (true, false) => format!(", {FOLLOWING}"),
        _ => String::new(),
    };
    if doc.before == 0 && doc.after == 0 {
        let n = pane.rows.len();
        return format!("row {} of {n}{end}", (pane.top + 1).min(n));
    }
    let all = pane.rows.len().max(1) as f64;
    let here = doc.lines.iter().map(|l| l.text().len() as f64 + 1.0).sum::<f64>();
    let total = doc.before as f64 + here + doc.after as f64;
    let at = doc.before as f64 + here * pane.top as f64 / all;
    format!("at {:.0} % of {}{end}", at / total * 100.0, bytes(total as u64))
}

/// What of the terminal is shown, and from when it is.
fn terminal_place(view: &TrialView, columns: usize) -> String {
    let Some(picture) = &view.terminal.picture else { return String::new() };
    let at = view.terminal.at.map(|n| match (&picture.note, picture.seeking || picture.indexing.is_some()) {
        (Some(why), false) if picture.episode != Some(n) => why.clone(),
        (_, true) => format!("going to episode {}", n + 1),
        _ => format!("episode {} begins", n + 1),
    });
    let when = match (picture.following, picture.preview, picture.seeking) {
        (true, true, _) => "live~",
        (true, false, true) => "live, catching up",
        (true, false, false) => "live",
        (false, false, true) => "going to its end",
        (false, ..) => "at its end",
    };
    let (size, room) = (picture.size, terminal::room(view.size()));
    let from = corner(size, room, picture.cursor, view.terminal.scroll);
    let long = columns >= 70;
    let part = |name: &str, from: u16, room: u16, all: u16| {
        (room < all).then(|| match long {
            true => format!("{name} {}-{} of {all}", from + 1, from + room),
            false => format!("{}-{}/{all}", from + 1, from + room),
        })
    };
    let parts = [part("columns", from.0, room.0, size.0), part("rows", from.1, room.1, size.1)];
    let words = std::iter::once(at.unwrap_or_else(|| when.to_string())).chain(parts.into_iter().flatten());
    words.collect::<Vec<_>>().join(if long { ", " } else { " " })
}

/// The terminal, or why there is none.
fn terminal_pane(view: &TrialView, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    if let Some(picture) = &view.terminal.picture {
        let from = corner(picture.size, (area.width, area.height), picture.cursor, view.terminal.scroll);
        return super::replay::terminal(picture, from, pen, frame, area);
    }
    let words = view.terminal.missing.as_deref().unwrap_or("opening");
    for (y, row) in (area.y..area.bottom()).zip(super::fit::wrap(words, usize::from(area.width))) {
        frame.render_widget(Line::styled(row, pen.dim()), Rect { y, height: 1, ..area });
    }
}

/// How a search stands, in words; None when there is none.
pub fn status(view: &TrialView, _pen: Pen) -> Option<String> {
    let finding = view.finding.as_ref()?;
    let sought = &view.needle.text;
    Some(match finding {
        Finding::Running(share) => format!("searching {sought}: {:.0} %", share * 100.0),
        Finding::Nothing => format!("{sought}: not found"),
        Finding::Found { wrapped: true } => format!("{sought}: found past the end; . next, next before"),
        Finding::Found { wrapped: false } => format!("{sought}: found; . next , before"),
    })
}

/// What the current tab shows.
pub fn content(view: &TrialView, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    if area.height == 0 || area.width == 0 {
        return;
    }
    match view.slot() {
        Some(slot) => text_pane(view, slot, pen, frame, area),
        None if view.tab == Tab::Terminal => terminal_pane(view, pen, frame, area),
        None if view.tab == Tab::Files => files(view, pen, frame, area),
        None => text_pane(view, Slot::Episode, pen, frame, area),
    }
}

/// Style of a line of text.
pub fn mark_style(mark: Mark, pen: Pen) -> Style {
    match mark {
        Mark::Plain => pen.text(),
        Mark::Title => pen.strong(),
        Mark::Dim => pen.dim(),
        Mark::Typed => pen.key().remove_modifier(ratatui::style::Modifier::BOLD),
        Mark::Decisive => pen.alarm(),
        Mark::Good => pen.good(),
        Mark::Remark => pen.dim().add_modifier(ratatui::style::Modifier::ITALIC),
    }
}

fn text_pane(view: &TrialView, slot: Slot, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let pane = view.pane(slot);
    let columns = usize::from(area.width);
    let Some(doc) = &pane.doc else {
        let words = match slot {
            Slot::Episode => no_step(view),
            _ => "loading".to_string(),
        };
        for (y, row) in (area.y..area.bottom()).zip(super::fit::wrap(&words, columns)) {
            frame.render_widget(Line::styled(row, pen.dim()), Rect { y, height: 1, ..area });
        }
        return;
    };
    let mut area = area;
    if let Some(note) = &pane.note {
        area.height -= 1;
        let at = Rect { y: area.bottom(), height: 1, ..area };
        frame.render_widget(Line::styled(cut(note, columns, pen), pen.alarm()), at);
    }
    let height = usize::from(area.height);
    let top = if pane.follow { pane.last_top(height) } else { pane.top.min(pane.last_top(height)) };
    for (y, row) in (area.y..area.bottom()).zip(pane.rows.iter().skip(top)) {
        let Some(line) = doc.lines.get(row.line) else { continue };
        frame.render_widget(text_row(view, pane, line, row, pen, columns), Rect { y, height: 1, ..area });
    }
}

fn no_step(view: &TrialView) -> String {
    match &view.parts {
        None => "opening".to_string(),
        Some(parts) if view.n_steps() == 0 => {
            let notes: Vec<&str> = parts.iter().filter_map(|p| p.note.as_deref()).collect();
            if notes.is_empty() { "no steps".to_string() } else { notes.join("\n") }
        }
        Some(_) => "loading".to_string(),
    }
}

/// A row of text with the matches marked.
fn text_row(view: &TrialView, pane: &Pane, line: &DocLine, row: &RowAt, pen: Pen, columns: usize) -> Line<'static> {
    let base = mark_style(line.mark, pen);
    let hit = pane.hit == Some(line.offset);
    let mut spans = Vec::new();
    let mut at = row.from;
    let mut put = |from: usize, to: usize, style: Style| {
        if let Some(part) = line.text().get(from..to).filter(|p| !p.is_empty()) {
            // Made safe when it was loaded; made safe again where it becomes cells.
            spans.push(Span::styled(text::clean(part).into_owned(), style));
        }
    };
    for (from, to) in view.needle.ranges(line.text()) {
        let (from, to) = (from.clamp(row.from, row.to), to.clamp(row.from, row.to));
        if from < to {
            put(at, from, base);
            let found = if hit { pen.found().add_modifier(ratatui::style::Modifier::BOLD) } else { pen.found() };
            put(from, to, found);
            at = to;
        }
    }
    put(at, row.to, base);
    // A row is laid out for the pane; on a narrower one it is cut, and says so.
    let used: usize = spans.iter().map(|s| width(&s.content)).sum();
    if used > columns
        && let Some(part) = line.text().get(row.from..row.to)
    {
        return Line::styled(cut(part, columns, pen), base);
    }
    Line::from(spans)
}

fn files(view: &TrialView, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let columns = usize::from(area.width);
    let mut y = area.y;
    let mut put = |frame: &mut Frame<'_>, line: Line<'static>| {
        if y < area.bottom() {
            frame.render_widget(line, Rect { y, height: 1, ..area });
            y += 1;
        }
    };
    let at = if view.files.dir.is_empty() { "the trial's directory".to_string() } else { view.files.dir.clone() };
    put(frame, Line::styled(cut(&at, columns, pen), pen.strong()));
    let mut height = usize::from(area.height).saturating_sub(1);
    if let Some(problem) = &view.files.problem {
        put(frame, Line::styled(cut(problem, columns, pen), pen.alarm()));
        height = height.saturating_sub(1);
    }
    let n = view.n_files();
    if view.files.rows.is_none() {
        put(frame, Line::styled(cut("listing", columns, pen), pen.dim()));
    } else if n == 0 {
        put(frame, Line::styled(cut("empty", columns, pen), pen.dim()));
    }
    let begin = view.files.cursor.saturating_sub(height / 2).min(n.saturating_sub(height));
    for line in begin..(begin + height).min(n) {
        let mut text = match view.file(line) {
            None => Line::styled(left("../", columns, pen), pen.text()),
            Some(file) => file_line(file, pen, columns),
        };
        if line == view.files.cursor {
            text = text.patch_style(pen.selected());
        }
        put(frame, text);
    }
}

fn file_line(file: &FileRow, pen: Pen, columns: usize) -> Line<'static> {
    let (name, kind, style) = match file.kind {
        FileKind::Dir => (format!("{}/", file.name), String::new(), pen.strong()),
        FileKind::File => (file.name.clone(), file.size.map_or("-".to_string(), bytes), pen.text()),
        FileKind::Symlink => (file.name.clone(), "link, not followed".to_string(), pen.dim()),
        FileKind::Other => (file.name.clone(), "FIFO, socket or device, not opened".to_string(), pen.dim()),
    };
    let name = if file.openable { name } else { format!("{name} (name is not UTF-8)") };
    let at = file.modified.filter(|_| columns >= 60).map_or(String::new(), |t| t.strftime("  %F %T").to_string());
    let tail = format!("{kind}{at}");
    let room = columns.saturating_sub(width(&tail) + 1);
    let shown = left(&name, room, pen);
    let rest = right(&tail, columns.saturating_sub(width(&shown)), pen);
    Line::styled(format!("{shown}{rest}"), style)
}

fn bytes(n: u64) -> String {
    if n < 1000 { format!("{n} B") } else { format!("{}B", short(n)) }
}
