//! Footer, prompts, menus, help and palette.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::fit::{Piece, cut, left, piece, right, spread, width, wrap_words};
use super::pane;
use super::style::Pen;
use crate::app::action::{Action, Context, Spec, available};
use crate::app::helm::{Hand, Side};
use crate::app::model::{Model, Room, View};
use crate::app::overlay::{Menu, Overlay, Palette, PromptKind};

/// The last line: what is being typed, a message, or the keys that matter here.
pub fn footer(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let columns = usize::from(area.width);
    if let Some(Overlay::Prompt(kind, input, error)) = &model.overlay {
        let label = match kind {
            PromptKind::Filter => "filter / ",
            PromptKind::Search => "search / ",
            PromptKind::ServerLog => "server log / ",
            PromptKind::Note => "note: ",
            PromptKind::Reason | PromptKind::RequeueReason => "why: ",
            PromptKind::Endpoint | PromptKind::NewEndpoint => "endpoint: ",
            PromptKind::Outage => "outage: ",
            PromptKind::JobsFilter => "filter / ",
            PromptKind::AddRoot => "directory of jobs: ",
        };
        let text = input.text();
        let before: String = text.chars().take(input.cursor).collect();
        let hint = match (error, kind) {
            (Some(why), _) => piece(why.clone(), pen.alarm(), 1),
            (None, PromptKind::Filter) => {
                let n = if model.view() == View::Triage { model.triage.order.len() } else { model.table.order.len() };
                piece(format!("{n} shown   Enter keeps, Esc clears"), pen.dim(), 1)
            }
            (None, PromptKind::Note) => piece("Enter notes it, Esc leaves", pen.dim(), 1),
            (None, PromptKind::RequeueReason) => piece("the reason; Enter keeps, Esc leaves", pen.dim(), 1),
            (None, PromptKind::Outage) => piece("14:05-14:40 what it was, UTC; Enter notes it", pen.dim(), 1),
            (None, PromptKind::Endpoint) => piece("empty: as before; Enter keeps", pen.dim(), 1),
            (None, PromptKind::Reason) => piece("the reason; Enter goes on, Esc leaves", pen.dim(), 1),
            (None, PromptKind::ServerLog) => piece("words, !not, error+   Enter keeps, Esc clears", pen.dim(), 1),
            (None, PromptKind::NewEndpoint) => piece("Enter probes it, Esc leaves it", pen.dim(), 1),
            (None, PromptKind::JobsFilter) => {
                piece(format!("{} shown   Enter keeps, Esc clears", model.jobs.list.len()), pen.dim(), 1)
            }
            (None, PromptKind::AddRoot) => piece("Enter looks through it, Esc leaves", pen.dim(), 1),
            (None, PromptKind::Search) => piece("Enter searches, Esc leaves", pen.dim(), 1),
        };
        let room = columns.saturating_sub(width(label) + 1);
        // Keep the end of a long text, where the cursor is, in sight.
        let mut skipped = 0;
        let mut from = 0;
        while width(&before).saturating_sub(skipped) > room.saturating_sub(1) {
            skipped += before.chars().nth(from).map_or(1, |c| width(c.encode_utf8(&mut [0; 4])));
            from += 1;
        }
        let shown: String = text.chars().skip(from).collect();
        let typed = vec![piece(label, pen.key(), 0), piece(shown, pen.text(), 0)];
        let line = match error {
            // Why it does not work is worth a cut.
            Some(_) => {
                let gap = piece("  ", pen.text(), 0);
                spread([typed, vec![gap, Piece { rank: 0, ..hint }]].concat(), Vec::new(), "", columns, pen)
            }
            None => spread(typed, vec![hint], "", columns, pen),
        };
        frame.render_widget(line, area);
        let at = width(label) + width(&before).saturating_sub(skipped);
        let x = area.x + u16::try_from(at.min(columns.saturating_sub(1))).unwrap_or(0);
        frame.set_cursor_position((x, area.y));
        return;
    }
    if let Some(notice) = &model.notice {
        frame.render_widget(Line::styled(cut(&notice.text, columns, pen), pen.strong()), area);
        return;
    }
    let context = model.context();
    let mut pieces = Vec::new();
    if matches!(context, Context::List | Context::Triage | Context::Serving | Context::Jobs)
        && model.room() != Room::Compact
    {
        pieces.push(piece("1-7 views", pen.dim(), 2));
    }
    let mut rank = 1;
    let stop = model.steer.stop.as_ref();
    let useful = |s: &&Spec| match s.action {
        _ if context != Context::Stop => true,
        Action::Open | Action::MendAll => stop.is_some_and(|s| !s.findings().is_empty()),
        Action::Refresh => stop.is_some_and(|s| s.audit.is_some()),
        _ => true,
    };
    for spec in available(context).filter(|s| !s.footer.is_empty()).filter(useful) {
        let Some(key) = spec.keys.first() else { continue };
        // Who runs the job looks for these first.
        let mine = model.steer.holds() && matches!(spec.action, Action::Live | Action::Stop);
        pieces.push(piece(format!("{key} {}", spec.footer), pen.dim(), if mine { 0 } else { rank.min(200) }));
        rank += 1;
    }
    // Help stays in sight however narrow it is.
    for p in &mut pieces {
        let always = ["? ", "q ", "v "];
        if always.iter().any(|key| p.text.starts_with(key)) {
            p.rank = 0;
        }
    }
    let owner = match (model.view(), model.steer.side) {
        // Below the item stands where verdicts go.
        (View::Replay | View::Triage, _) => piece("", pen.dim(), 1),
        (_, Side::Owner) if !model.steer.holds() => piece("job over: q leaves", pen.strong(), 0),
        (_, Side::Owner) => piece(if pen.look.ascii { "* owner" } else { "● owner" }, pen.good(), 0),
        _ if model.steer.linked() && model.steer.hand == Hand::Mine => {
            piece(if pen.look.ascii { "* steering" } else { "● steering" }, pen.good(), 0)
        }
        _ => piece("read-only", pen.dim(), 1),
    };
    let steers = model.steer.holds() || model.steer.linked();
    if context == Context::List && steers && matches!(model.steer.hand, Hand::Other(_)) {
        pieces.push(piece("H steer", pen.strong(), 1));
    } else if context == Context::List && model.steer.linked() && model.steer.hand == Hand::Nobody {
        pieces.push(piece("H steer", pen.dim(), 1));
    } else if context == Context::List && steers {
        let paused = model.steer.crew.is_some_and(|c| c.paused);
        pieces.push(piece(if paused { "p resume" } else { "p pause" }, pen.dim(), 1));
        pieces.push(piece("+ - slots", pen.dim(), 1));
        pieces.push(piece("X cancel", pen.dim(), 1));
        if model.steer.holds() {
            pieces.push(piece("d detach", pen.dim(), 2));
        }
    }
    let line = spread(pieces, vec![owner], "  ", columns, pen);
    frame.render_widget(line, area);
}

/// Whatever lies on top of the view.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    match &model.overlay {
        Some(Overlay::Menu(menu)) => draw_menu(menu, pen, frame, area),
        Some(Overlay::Help(top)) => draw_help(model, *top, pen, frame, area),
        Some(Overlay::Palette(palette)) => draw_palette(palette, pen, frame, area),
        Some(Overlay::Ask(asking)) => super::dialog::draw(model, asking, pen, frame, area),
        Some(Overlay::Prompt(..)) | None => {}
    }
}

/// A rectangle in the middle, as large as wanted and as there is room for.
pub fn centred(area: Rect, wide: usize, tall: usize) -> Rect {
    let wide = u16::try_from(wide).unwrap_or(u16::MAX).min(area.width);
    let tall = u16::try_from(tall).unwrap_or(u16::MAX).min(area.height.saturating_sub(1));
    Rect { x: area.x + (area.width - wide) / 2, y: area.y + (area.height - tall) / 2, width: wide, height: tall }
}

fn draw_menu(menu: &Menu, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let label = menu.items.iter().map(|i| width(&i.label)).max().unwrap_or(0);
    let detail = menu.items.iter().map(|i| width(&i.detail)).max().unwrap_or(0);
    let wide = (label + detail + 6).max(width(&menu.title) + 6).min(usize::from(area.width));
    let at = centred(area, wide, menu.items.len() + 2);
    frame.render_widget(Clear, at);
    let hidden = menu.items.len() + 2 > usize::from(at.height);
    let fact = if hidden { format!("{} of {}", menu.selected + 1, menu.items.len()) } else { String::new() };
    let inside = pane(frame, at, pen, true, &menu.title, &fact);
    let columns = usize::from(inside.width);
    let height = usize::from(inside.height);
    let top = (menu.selected + 1).saturating_sub(height);
    for ((i, item), y) in menu.items.iter().enumerate().skip(top).zip(inside.y..inside.bottom()) {
        // The detail gets what the label leaves, and half of the line at least.
        let room = columns.saturating_sub(width(&item.label) + 4).max(columns / 2);
        let detail = cut(&item.detail, room, pen);
        let mut line = Line::from(vec![
            Span::raw(left(&format!(" {}", item.label), columns.saturating_sub(width(&detail) + 2), pen)),
            Span::styled(format!(" {detail} "), pen.dim()),
        ]);
        if i == menu.selected {
            line = line.patch_style(pen.selected());
        }
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

/// The help text: the registry, this view's keys first.
pub fn help_lines(context: Context, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let keys_room = if columns < 60 { 11 } else { 16 };
    let mut lines = Vec::new();
    let mut heading = None;
    let others = [
        Context::List,
        Context::Jobs,
        Context::Triage,
        Context::Requeue,
        Context::Preview,
        Context::Compare,
        Context::Serving,
        Context::Trial,
        Context::Replay,
        Context::Stop,
    ]
    .into_iter()
    .filter(|c| *c != context);
    let mut specs: Vec<_> = available(context).collect();
    for other in others {
        specs.extend(available(other).filter(|s| s.context == other));
    }
    for spec in specs {
        if heading != Some(spec.context) {
            if heading.is_some() {
                lines.push(Line::raw(""));
            }
            lines.push(Line::styled(spec.context.title(), pen.strong()));
            heading = Some(spec.context);
        }
        let keys = spec.keys.iter().map(|k| k.to_string()).collect::<Vec<_>>().join(" ");
        let text = wrap_words(spec.title, columns.saturating_sub(keys_room + 2));
        for (i, text) in text.into_iter().enumerate() {
            let keys = if i == 0 { format!(" {keys}") } else { String::new() };
            lines.push(Line::from(vec![
                Span::styled(left(&keys, keys_room, pen), pen.key()),
                Span::raw(format!(" {text}")),
            ]));
        }
    }
    lines.push(Line::raw(""));
    lines.push(Line::styled("signs", pen.strong()));
    for outcome in crate::app::rows::Outcome::ALL {
        lines.push(Line::from(vec![
            Span::styled(left(&format!(" {}", pen.glyph(outcome)), keys_room, pen), pen.outcome(outcome)),
            Span::raw(format!(" {}", outcome.word())),
        ]));
    }
    lines
        .push(Line::from(vec![Span::styled(left(" ~", keys_room, pen), pen.key()), Span::raw(" inferred from files")]));
    lines
}

fn draw_help(model: &Model, top: usize, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let wide = usize::from(area.width).min(84);
    let lines = help_lines(model.context(), pen, wide.saturating_sub(2));
    let at = centred(area, wide, lines.len() + 2);
    frame.render_widget(Clear, at);
    let inside = pane(frame, at, pen, true, "help", "j k scroll, any other key closes");
    let height = usize::from(inside.height);
    let top = top.min(lines.len().saturating_sub(height));
    for (line, y) in lines.into_iter().skip(top).zip(inside.y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

fn draw_palette(palette: &Palette, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let at = centred(area, 76, 16);
    frame.render_widget(Clear, at);
    let inside = pane(frame, at, pen, true, "commands", "Enter runs, Esc leaves");
    if inside.height < 2 {
        return;
    }
    let columns = usize::from(inside.width);
    let text = palette.input.text();
    let line = Line::from(vec![Span::styled(": ", pen.key()), Span::raw(cut(&text, columns.saturating_sub(3), pen))]);
    frame.render_widget(line, Rect { height: 1, ..inside });
    let before: String = text.chars().take(palette.input.cursor).collect();
    let x = inside.x + u16::try_from((2 + width(&before)).min(columns.saturating_sub(1))).unwrap_or(0);
    frame.set_cursor_position((x, inside.y));
    let height = usize::from(inside.height) - 1;
    let top = (palette.selected + 1).saturating_sub(height);
    for ((i, spec), y) in palette.matches.iter().enumerate().skip(top).zip(inside.y + 1..inside.bottom()) {
        let key = spec.keys.first().map(|k| k.to_string()).unwrap_or_default();
        let mut line = Line::from(vec![
            Span::raw(left(&format!(" {}", spec.title), columns.saturating_sub(8), pen)),
            Span::styled(right(&key, 7, pen), pen.key()),
        ]);
        if i == palette.selected {
            line = line.patch_style(pen.selected());
        }
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}
