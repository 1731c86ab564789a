//! Text that has to fit into so many columns.

use std::borrow::Cow;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style::Pen;
use crate::job::text;

/// Columns that a text takes.
pub fn width(s: &str) -> usize {
    UnicodeWidthStr::width(s)
}

/// The text, sanitised, cut to `columns` with an ellipsis where something is missing.
pub fn cut(s: &str, columns: usize, pen: Pen) -> String {
    let s = text::clean(s);
    if width(&s) <= columns {
        return s.into_owned();
    }
    let sign = pen.ellipsis();
    let room = columns.saturating_sub(width(sign));
    let (mut out, mut used) = (String::new(), 0);
    for c in s.chars() {
        let w = c.width().unwrap_or(0);
        if used + w > room {
            break;
        }
        out.push(c);
        used += w;
    }
    if columns > 0 {
        out.push_str(sign);
    }
    out
}

/// Cut and filled with spaces on the right.
pub fn left(s: &str, columns: usize, pen: Pen) -> String {
    let mut out = cut(s, columns, pen);
    out.push_str(&" ".repeat(columns.saturating_sub(width(&out))));
    out
}

/// Cut and filled with spaces on the left.
pub fn right(s: &str, columns: usize, pen: Pen) -> String {
    let out = cut(s, columns, pen);
    format!("{}{out}", " ".repeat(columns.saturating_sub(width(&out))))
}

/// A piece of a line: text, style and how dear it is (0 = never dropped).
#[derive(Debug, Clone)]
pub struct Piece {
    /// Text.
    pub text: String,
    /// Style.
    pub style: Style,
    /// Pieces with higher numbers are dropped first when room is short.
    pub rank: u8,
}

/// A piece.
pub fn piece(text: impl Into<String>, style: Style, rank: u8) -> Piece {
    Piece { text: text.into(), style, rank }
}

/// A line of pieces, those of `left` from the left edge, those of `right` up to the right edge;
/// pieces are dropped by rank until everything fits, the last resort is a cut.
pub fn spread(mut left: Vec<Piece>, mut right: Vec<Piece>, gap: &str, columns: usize, pen: Pen) -> Line<'static> {
    let total = |side: &[Piece]| {
        side.iter().map(|p| width(&text::clean(&p.text))).sum::<usize>() + width(gap) * side.len().saturating_sub(1)
    };
    loop {
        let between = usize::from(!left.is_empty() && !right.is_empty()) * 2;
        if total(&left) + total(&right) + between <= columns {
            break;
        }
        let worst = left.iter().chain(&right).map(|p| p.rank).max().unwrap_or(0);
        if worst == 0 {
            break;
        }
        let drop = |side: &mut Vec<Piece>| match side.iter().rposition(|p| p.rank == worst) {
            Some(at) => {
                side.remove(at);
                true
            }
            None => false,
        };
        if !drop(&mut right) {
            drop(&mut left);
        }
    }
    let right_width = total(&right);
    let mut room = columns.saturating_sub(right_width + usize::from(right_width > 0) * 2);
    let mut spans: Vec<Span<'static>> = Vec::new();
    let put = |side: Vec<Piece>, room: &mut usize, spans: &mut Vec<Span<'static>>| {
        for (i, p) in side.into_iter().enumerate() {
            if i > 0 && *room > width(gap) {
                spans.push(Span::raw(gap.to_string()));
                *room -= width(gap);
            }
            let shown = cut(&p.text, *room, pen);
            *room = room.saturating_sub(width(&shown));
            spans.push(Span::styled(shown, p.style));
        }
    };
    put(left, &mut room, &mut spans);
    if right_width > 0 {
        let used: usize = spans.iter().map(|s| width(&s.content)).sum();
        spans.push(Span::raw(" ".repeat(columns.saturating_sub(used + right_width))));
        let mut room = right_width.min(columns);
        put(right, &mut room, &mut spans);
    }
    Line::from(spans)
}

/// Whole numbers in few characters: `850`, `12.3 k`, `61 k`, `1.2 M`.
pub fn short(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        1000..10_000 => format!("{:.1} k", n as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} k", n as f64 / 1e3),
        1_000_000..100_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.0} M", n as f64 / 1e6),
    }
}

/// A reward: `1`, `0`, `0.33`.
pub fn reward(r: f64) -> String {
    if r.fract() == 0.0 && r.abs() < 1e6 {
        format!("{r:.0}")
    } else if r.abs() >= 1e6 {
        format!("{r:.0e}")
    } else {
        format!("{r:.2}")
    }
}

/// Text of many lines wrapped to `columns`, sanitised; tabs become four spaces.
pub fn wrap(s: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut out = Vec::new();
    for line in s.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = if line.contains('\t') { Cow::Owned(line.replace('\t', "    ")) } else { Cow::Borrowed(line) };
        let line = text::clean(&line);
        let (mut row, mut used) = (String::new(), 0);
        for c in line.chars() {
            let w = c.width().unwrap_or(0);
            if used + w > columns {
                out.push(std::mem::take(&mut row));
                used = 0;
            }
            row.push(c);
            used += w;
        }
        out.push(row);
    }
    out
}

/// Text wrapped between words to `columns`, sanitised; words longer than a line are cut in two.
pub fn wrap_words(s: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut out = Vec::new();
    for line in s.split('\n') {
        let line = text::clean(line);
        let mut row = String::new();
        for word in line.split(' ') {
            let gap = usize::from(!row.is_empty());
            if width(&row) + gap + width(word) <= columns {
                if gap > 0 {
                    row.push(' ');
                }
                row.push_str(word);
                continue;
            }
            if !row.is_empty() {
                out.push(std::mem::take(&mut row));
            }
            let mut pieces = wrap(word, columns);
            row = pieces.pop().unwrap_or_default();
            out.append(&mut pieces);
        }
        out.push(row);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::model::{Look, Theme};

    const PEN: Pen = Pen { look: Look { ascii: false, theme: Theme::Default } };

    #[test]
    fn texts_are_cut_by_columns_not_by_bytes() {
        assert_eq!(cut("任务数据", 5, PEN), "任务…");
        assert_eq!(width(&left("任务", 7, PEN)), 7);
        assert_eq!(cut("abc", 3, PEN), "abc");
        assert_eq!(cut("abcd", 3, PEN), "ab…");
        assert_eq!(cut("abcd", 0, PEN), "");
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(wrap_words("run the task again", 9), ["run the", "task", "again"]);
        assert_eq!(wrap_words("a/very/long/path x", 6), ["a/very", "/long/", "path x"]);
        assert_eq!(wrap_words("one\n\ntwo", 9), ["one", "", "two"]);
        assert_eq!(wrap_words("任务 数据", 4), ["任务", "数据"]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(999), "999");
        assert_eq!(short(61_000), "61 k");
        assert_eq!(short(1_234_567), "1.2 M");
        assert_eq!(reward(0.333_333), "0.33");
        assert_eq!(reward(1e308), "1e308");
        assert_eq!(reward(-1.0), "-1");
    }

    #[test]
    fn the_dearest_pieces_stay() {
        let line = spread(
            vec![piece("name", Style::new(), 0), piece("unimportant", Style::new(), 5)],
            vec![piece("state", Style::new(), 0)],
            " ",
            12,
            PEN,
        );
        let text: String = line.spans.iter().map(|s| s.content.as_ref()).collect();
        assert_eq!(text, "name   state");
    }
}
