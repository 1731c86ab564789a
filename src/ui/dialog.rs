//! The dialogs: what is asked, and the answers with their prices.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::fit::{cut, left, width, wrap_words};
use super::pane;
use super::style::Pen;
use crate::app::model::Model;
use crate::app::steer::ask::{self, Asking, Offer, Said, Tone};

/// The widest that a dialog becomes: text is read in lines, not along a wall.
const WIDEST: usize = 78;

/// Style of a line.
pub fn tone(tone: Tone, pen: Pen) -> Style {
    match tone {
        Tone::Plain => pen.text(),
        Tone::Strong => pen.strong(),
        Tone::Dim => pen.dim(),
        Tone::Alarm => pen.alarm(),
    }
}

/// Wrapped between words; what is indented stays so.
pub fn paragraph(text: &str, columns: usize) -> Vec<String> {
    let bare = text.trim_start_matches(' ');
    let indent = (text.len() - bare.len()).min(columns / 2);
    let blank = " ".repeat(indent);
    wrap_words(bare, columns - indent).into_iter().map(|row| format!("{blank}{row}")).collect()
}

/// The rows of one thing that is said.
pub fn lines(said: &Said, columns: usize, pen: Pen) -> Vec<Line<'static>> {
    match said {
        Said::Text(t, text) => {
            paragraph(text, columns).into_iter().map(|row| Line::styled(row, tone(*t, pen))).collect()
        }
        Said::Row(name, fact) => {
            let fact = cut(fact, columns / 2, pen);
            let name = left(name, columns.saturating_sub(width(&fact) + 4), pen);
            vec![Line::from(vec![Span::raw(format!("  {name}  ")), Span::styled(fact, pen.dim())])]
        }
    }
}

/// The rows of one answer: its label, its price beside it where both fit, else below.
fn offer(offer: &Offer, focused: bool, columns: usize, labels: usize, pen: Pen) -> Vec<Line<'static>> {
    let mark = match (focused, pen.look.ascii) {
        (true, false) => "▸ ",
        (true, true) => "> ",
        (false, _) => "  ",
    };
    let style = if focused { pen.selected() } else { pen.strong() };
    let beside = columns.saturating_sub(labels + 5);
    let label = Span::styled(cut(&offer.label, columns.saturating_sub(2), pen), style);
    let head = Span::styled(mark, pen.key());
    if beside >= 36 {
        let gap = " ".repeat(labels.saturating_sub(width(&label.content)) + 3);
        let mut rows = wrap_words(&offer.price, beside).into_iter();
        let first = rows.next().unwrap_or_default();
        let mut out = vec![Line::from(vec![head, label, Span::raw(gap), Span::raw(first)])];
        out.extend(rows.map(|row| Line::raw(format!("{}{row}", " ".repeat(labels + 5)))));
        return out;
    }
    let mut out = vec![Line::from(vec![head, label])];
    if !offer.price.is_empty() {
        let rows = wrap_words(&offer.price, columns.saturating_sub(4));
        out.extend(rows.into_iter().map(|row| Line::raw(format!("    {row}"))));
    }
    out
}

/// Draws a dialog over everything. The answers are always whole; of a text that has no room its
/// beginning is shown, and the rest by scrolling.
pub fn draw(model: &Model, asking: &Asking, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let content = ask::content(model, &asking.ask);
    let wide = usize::from(area.width).min(WIDEST);
    let columns = wide.saturating_sub(4);
    let text: Vec<Line<'static>> = content.text.iter().flat_map(|said| lines(said, columns, pen)).collect();
    let at = asking.at(&content);
    let labels = content.offers.iter().map(|o| width(&o.label)).max().unwrap_or(0);
    let most = usize::from(area.height).saturating_sub(1);
    let mut offers = content.offers.clone();
    let rows = |offers: &[Offer]| -> Vec<Vec<Line<'static>>> {
        offers.iter().enumerate().map(|(i, o)| offer(o, i == at, columns, labels, pen)).collect()
    };
    let mut answers = rows(&offers);
    // Where there is no room for every price, the one that has the focus tells its own.
    if answers.iter().map(Vec::len).sum::<usize>() + text.len() + 3 > most {
        let third = most / 3;
        if answers.iter().map(Vec::len).sum::<usize>() + third + 3 > most {
            offers.iter_mut().enumerate().filter(|(i, _)| *i != at).for_each(|(_, o)| o.price.clear());
            answers = rows(&offers);
        }
    }
    // Rows of the focused answer: where not all fit, these do.
    let before: usize = answers.iter().take(at).map(Vec::len).sum();
    let focus = before..before + answers.get(at).map_or(0, Vec::len);
    let answers: Vec<Line<'static>> = answers.into_iter().flatten().collect();
    let tall = (text.len() + answers.len() + 3).min(most);
    let rect = super::overlays::centred(area, wide, tall);
    frame.render_widget(Clear, rect);
    let room = usize::from(rect.height).saturating_sub(3);
    // The text keeps a third of the room at least.
    let below = answers.len().min(room - room.min(text.len()).min(room / 3));
    let above = room - below;
    let top = asking.top.min(text.len().saturating_sub(above));
    let hidden = text.len().saturating_sub(top + above);
    let more = match (hidden, top) {
        (0, 0) => String::new(),
        (0, _) => " PgUp: the text above ".to_string(),
        (n, _) => format!(" Space: {n} more line{} ", if n == 1 { "" } else { "s" }),
    };
    let inside = pane(frame, rect, pen, true, &content.title, "Enter answers, Esc closes");
    let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
    for (line, y) in text.into_iter().skip(top).take(above).zip(inside.y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
    let skip = focus.end.saturating_sub(below).min(focus.start);
    let from = inside.bottom().saturating_sub(u16::try_from(below).unwrap_or(0));
    if from > inside.y {
        let sign = if pen.look.ascii { "-" } else { "─" };
        let rule = sign.repeat(columns.saturating_sub(width(&more) + 2));
        let rule = Line::from(vec![
            Span::styled(rule, pen.dim()),
            Span::styled(more, pen.strong()),
            Span::styled(sign.repeat(2), pen.dim()),
        ]);
        frame.render_widget(rule, Rect { y: from - 1, height: 1, ..inside });
    }
    for (line, y) in answers.into_iter().skip(skip).zip(from..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}
