//! What `harbor job resume` would do to a job.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::dialog::paragraph;
use super::pane;
use super::style::Pen;
use crate::app::model::Model;

/// Draws it.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let Some(preview) = &model.preview else { return };
    let title = format!("What harbor job resume would do to {}", preview.name);
    let inside = pane(frame, area, pen, true, &title, "nothing is changed here");
    let columns = usize::from(inside.width);
    let (text, plain) = match &preview.text {
        None => ("looking at its files", pen.dim()),
        Some(Ok(text)) => (text.as_str(), pen.text()),
        Some(Err(why)) => (why.as_str(), pen.alarm()),
    };
    let mut lines: Vec<Line<'static>> = Vec::new();
    for line in text.lines() {
        let bare = line.trim_start();
        let alarming = ["warning:", "REFUSES", "deletes"].iter().any(|word| bare.starts_with(word));
        let style = if alarming || bare.contains("REFUSES") || bare.contains("BEGINS A NEW ONE") {
            pen.alarm()
        } else if !line.starts_with(' ') {
            pen.strong()
        } else {
            plain
        };
        lines.extend(paragraph(line, columns).into_iter().map(|row| Line::styled(row, style)));
    }
    let height = usize::from(inside.height);
    let top = preview.top.min(lines.len().saturating_sub(height));
    for (line, y) in lines.into_iter().skip(top).zip(inside.y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}
