//! Screens as text: what is in the cells, then how it is styled.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use pilothouse::app::model::Model;
use pilothouse::app::update;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

/// One frame of a model.
pub fn draw(model: &mut Model) -> Buffer {
    update::settle(model);
    let mut terminal = Terminal::new(TestBackend::new(model.size.0, model.size.1)).unwrap();
    terminal.draw(|frame| pilothouse::ui::draw(model, frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of a buffer, without spaces at their ends.
pub fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    (area.top()..area.bottom())
        .map(|y| {
            let mut line = String::new();
            let mut skip = 0;
            for x in area.left()..area.right() {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let symbol = buffer[(x, y)].symbol();
                skip = symbol.width().saturating_sub(1);
                line.push_str(symbol);
            }
            line.trim_end().to_string()
        })
        .collect()
}

/// The text of a buffer, then the runs of cells of one style in each line: `y: from-to style`.
/// Unstyled cells are left out.
pub fn dump(buffer: &Buffer) -> String {
    let mut out = lines(buffer).join("\n");
    out.push_str("\n\n");
    let area = buffer.area;
    for y in area.top()..area.bottom() {
        let mut runs: Vec<(u16, u16, String)> = Vec::new();
        for x in area.left()..area.right() {
            let style = words(&buffer[(x, y)]);
            match runs.last_mut() {
                Some((_, to, last)) if *last == style => *to = x,
                _ => runs.push((x, x, style)),
            }
        }
        let shown: Vec<String> = runs
            .into_iter()
            .filter(|(_, _, style)| !style.is_empty())
            .map(|(from, to, style)| format!("{from}-{to} {style}"))
            .collect();
        if !shown.is_empty() {
            out.push_str(&format!("{y}: {}\n", shown.join(" | ")));
        }
    }
    out
}

fn words(cell: &ratatui::buffer::Cell) -> String {
    use ratatui::style::Color;
    let mut parts = Vec::new();
    if cell.fg != Color::Reset {
        parts.push(format!("{}", cell.fg).to_lowercase());
    }
    if cell.bg != Color::Reset {
        parts.push(format!("on-{}", cell.bg).to_lowercase());
    }
    if !cell.modifier.is_empty() {
        parts.push(format!("{:?}", cell.modifier).to_lowercase().replace(" | ", "+"));
    }
    parts.join("+")
}

/// Characters in cells that a terminal would act on; empty when all is well.
pub fn unsafe_cells(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let mut out = Vec::new();
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            let symbol = buffer[(x, y)].symbol();
            if symbol.chars().any(pilothouse::job::text::is_unsafe) {
                out.push(format!("{x},{y}: {symbol:?}"));
            }
        }
    }
    out
}

/// The trial view alone, as it stands between the lines on top and the footer.
pub fn draw_trial(model: &mut Model) -> Buffer {
    use pilothouse::app::model::Room;
    update::settle(model);
    let (columns, rows) = model.size;
    let around = if model.room() == Room::Compact { 2 } else { 5 };
    let mut terminal = Terminal::new(TestBackend::new(columns, rows.saturating_sub(around))).unwrap();
    let pen = pilothouse::ui::style::Pen::new(model.look);
    terminal.draw(|frame| pilothouse::ui::trial::draw(model, pen, frame, frame.area())).unwrap();
    terminal.backend().buffer().clone()
}
