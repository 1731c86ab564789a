//! Views: pure functions from the model to cells. No I/O, nothing is changed here.

pub mod compare;
pub mod dialog;
pub mod fit;
pub mod header;
pub mod jobs;
pub mod now;
pub mod overlays;
pub mod panes;
pub mod preview;
pub mod replay;
pub mod requeue;
pub mod serving;
pub mod stop;
pub mod style;
pub mod triage;
pub mod trial;
pub mod trial_tabs;
pub mod trials;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType};

use crate::app::model::{Model, Room, View};
use fit::{cut, width};
use style::Pen;

/// Draws one frame of the model.
pub fn draw(model: &Model, frame: &mut Frame<'_>) {
    let pen = Pen::new(model.look);
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    if model.room() == Room::Line {
        let line = header::one_line(model, pen, usize::from(area.width));
        frame.render_widget(line, Rect { height: 1, ..area });
        return;
    }
    let footer = Rect { y: area.bottom() - 1, height: 1, ..area };
    match model.view() {
        // The terminal picture needs every row there is.
        View::Replay => replay::draw(model, pen, frame, Rect { height: area.height - 1, ..area }),
        view => {
            let mut lines = header::lines(model, pen, usize::from(area.width));
            if matches!(
                view,
                View::Trial | View::Stop | View::Triage | View::Requeue | View::Preview | View::Compare | View::Serving
            ) && model.room() == Room::Compact
            {
                // One trial, one stop, one item needs the rows that there are.
                lines.truncate(1);
            }
            let head = u16::try_from(lines.len()).unwrap_or(3).min(area.height - 1);
            for (i, line) in (0..head).zip(lines) {
                frame.render_widget(line, Rect { y: area.y + i, height: 1, ..area });
            }
            let body = Rect { y: area.y + head, height: area.height - 1 - head, ..area };
            match view {
                View::Trial => trial::draw(model, pen, frame, body),
                View::Errors => panes::errors(model, pen, frame, body, true),
                View::Log => panes::log(model, pen, frame, body),
                View::Jobs => jobs::draw(model, pen, frame, body),
                View::Stop => stop::draw(model, pen, frame, body),
                View::Triage => triage::draw(model, pen, frame, body),
                View::Requeue => requeue::draw(model, pen, frame, body),
                View::Preview => preview::draw(model, pen, frame, body),
                View::Compare => compare::draw(model, pen, frame, body),
                View::Serving => serving::draw(model, pen, frame, body),
                View::Trials | View::Replay => home(model, pen, frame, body),
            }
        }
    }
    overlays::footer(model, pen, frame, footer);
    overlays::draw(model, pen, frame, area);
}

/// Rows that the errors keep.
const ERRORS: u16 = 5;

fn home(model: &Model, pen: Pen, frame: &mut Frame<'_>, body: Rect) {
    if model.room() != Room::Double || (model.zoom && !model.focus_errors) {
        return trials::draw(model, pen, frame, body, true);
    }
    if model.zoom {
        return panes::errors(model, pen, frame, body, true);
    }
    let right = (body.width / 3).clamp(40, 60);
    let left = Rect { width: body.width - right, ..body };
    let right = Rect { x: left.right(), width: right, ..body };
    trials::draw(model, pen, frame, left, !model.focus_errors);
    let mut right = right;
    if crate::app::servers::any(model) {
        let rows = u16::try_from(serving::home_rows(model)).unwrap_or(u16::MAX).saturating_add(2);
        let upper = Rect { height: rows.min(right.height / 2), ..right };
        serving::home(model, pen, frame, upper);
        right = Rect { y: upper.bottom(), height: right.height - upper.height, ..right };
    }
    // What the selected trial does, where it says so itself.
    let selected = model.table.selected_row(&model.rows);
    let room = right.height.saturating_sub(ERRORS);
    right.height -= now::at_bottom(model, selected, pen, frame, right, room.min(right.height * 2 / 3));
    panes::errors(model, pen, frame, right, model.focus_errors);
}

/// A pane with a title on the left and a fact on the right; gives the room inside.
pub fn pane(frame: &mut Frame<'_>, area: Rect, pen: Pen, focused: bool, title: &str, fact: &str) -> Rect {
    let room = usize::from(area.width).saturating_sub(4);
    let title = cut(title, room, pen);
    let mut block = Block::bordered()
        .border_type(if pen.look.ascii { BorderType::Plain } else { BorderType::Rounded })
        .border_style(pen.frame(focused))
        .title_top(Line::from(Span::styled(format!(" {title} "), pen.strong())));
    if pen.look.ascii {
        block = block.border_set(ratatui::symbols::border::Set {
            top_left: "+",
            top_right: "+",
            bottom_left: "+",
            bottom_right: "+",
            vertical_left: "|",
            vertical_right: "|",
            horizontal_top: "-",
            horizontal_bottom: "-",
        });
    }
    if width(fact) + width(&title) + 6 < room && !fact.is_empty() {
        block = block.title_top(Line::from(Span::styled(format!(" {fact} "), pen.dim())).right_aligned());
    }
    let inside = block.inner(area);
    frame.render_widget(block, area);
    inside
}
