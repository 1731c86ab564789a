//! The row of a replica at every width.

use std::collections::BTreeMap;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::fit::{Piece, cut, left, piece, right, short as number, spread, width};
use super::super::style::Pen;
use super::{aged, glyph, state_style};
use crate::app::model::Model;
use crate::job::time;
pub use crate::serving::Field;
use crate::serving::{Replica, Track, join};

/// Figures older than this are dimmed, and carry their age.
pub const OLD: f64 = 15.0;
/// Seconds of the small history on a row.
const SPAN: f64 = 600.0;

/// A history as a line of bars; gaps are blanks, zero is the lowest bar. `top` is the value of the highest.
pub fn bars(values: &[Option<f32>], top: f32, pen: Pen) -> String {
    let signs: &[char] = if pen.look.ascii {
        &['_', '.', '-', ':', '=', '+', '*', '#']
    } else {
        &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    };
    let most = signs.len() - 1;
    let bar = |v: &Option<f32>| match v {
        None => ' ',
        Some(v) => {
            let share = if top > 0.0 { (v / top).clamp(0.0, 1.0) } else { 0.0 };
            // What is not zero is more than the lowest bar.
            let level = (share * most as f32).ceil() as usize;
            signs.get(level.min(most)).copied().unwrap_or(' ')
        }
    };
    values.iter().map(bar).collect()
}

/// The highest of some values.
pub fn top(values: &[Option<f32>]) -> f32 {
    values.iter().flatten().copied().fold(0.0, f32::max)
}

/// A number or the sign for unknown.
pub fn count(n: Option<u32>, pen: Pen) -> String {
    n.map_or_else(|| pen.unknown().to_string(), |n| n.to_string())
}

/// `62%`.
pub fn percent(share: Option<f32>, pen: Pen) -> String {
    share.filter(|s| s.is_finite()).map_or_else(|| pen.unknown().to_string(), |s| format!("{:.0}%", s * 100.0))
}

/// Tokens per second.
pub fn speed(v: Option<f32>, pen: Pen) -> String {
    match v.filter(|v| v.is_finite()) {
        None => pen.unknown().to_string(),
        Some(v) if v < 10.0 => format!("{v:.1}"),
        Some(v) if v < 10_000.0 => format!("{v:.0}"),
        Some(v) => number(v as u64),
    }
}

/// `5/16` of what may run at once.
pub fn running(replica: &Replica, pen: Pen) -> String {
    let run = count(replica.figures().running, pen);
    replica.limits.max_running.map_or(run.clone(), |most| format!("{run}/{most}"))
}

/// Age of the newest figure, where it is old.
pub fn age_words(replica: &Replica) -> String {
    match replica.newest_age() {
        Some(age) if age >= 60.0 => time::words((age / 60.0).floor() * 60.0),
        Some(age) if age > OLD => time::words(age),
        _ => String::new(),
    }
}

/// The highest throughput of each server within the small history: its rows are drawn on one scale.
pub type Tops<'a> = BTreeMap<&'a str, f32>;

/// Of all servers, worked out once for a frame.
pub fn tops(model: &Model) -> Tops<'_> {
    let mut out = Tops::new();
    for r in model.serving.replicas() {
        let most = top(&r.columns_until(Track::Generation, TOPS, SPAN, model.now));
        let of_server = out.entry(&*r.key.server).or_insert(0.0);
        *of_server = of_server.max(most);
    }
    out
}

/// Columns over which the highest throughput is looked for.
const TOPS: usize = 20;

fn spark(replica: &Replica, model: &Model, n: usize, tops: &Tops<'_>, pen: Pen) -> String {
    let values = replica.columns_until(Track::Generation, n, SPAN, model.now);
    let most = tops.get(&*replica.key.server).copied().unwrap_or(0.0);
    bars(&values, most, pen)
}

/// Widths of the columns; 0 = not shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Columns {
    name: usize,
    state: usize,
    engine: usize,
    running: usize,
    queued: usize,
    kv: usize,
    swa: usize,
    mamba: usize,
    speed: usize,
    prefill: usize,
    cache: usize,
    accept: usize,
    retracted: usize,
    age: usize,
    model: usize,
    spark: usize,
}

impl Columns {
    /// What fits.
    pub fn plan(rows: &[&Replica], total: usize) -> Columns {
        let longest = rows.iter().map(|r| width(&join::name(&r.key))).max().unwrap_or(0);
        let mut c = Columns { name: longest.clamp(7, (total / 4).max(7)), ..Columns::default() };
        // Sign and its space.
        let mut room = total.saturating_sub(2 + c.name);
        let mut take = |want: usize, keep: usize| {
            let fits = room > want + keep;
            if fits {
                room -= want + 1;
                want
            } else {
                0
            }
        };
        let any = |field: Field| rows.iter().any(|r| r.reading(field).is_some());
        c.state = take(10, 0);
        c.running = take(7, 0);
        c.queued = take(6, 0);
        c.speed = take(6, 0);
        c.kv = take(4, 0);
        c.mamba = if any(Field::Mamba) { take(5, 8) } else { 0 };
        c.swa = if any(Field::Swa) { take(4, 8) } else { 0 };
        c.age = take(7, 8);
        c.engine = take(14, 16);
        c.prefill = take(7, 16);
        c.cache = take(5, 16);
        c.accept = if any(Field::AcceptLen) { take(6, 16) } else { 0 };
        c.retracted = if rows.iter().any(|r| r.retracted > 0) { take(9, 16) } else { 0 };
        c.model = if rows.iter().any(|r| r.model.is_some()) { take(24, 40) } else { 0 };
        c.spark = room.saturating_sub(1).min(120);
        c
    }

    /// The words above.
    pub fn heading(&self, pen: Pen) -> String {
        let mut out = format!("  {}", left("replica", self.name, pen));
        let mut add = |w: usize, text: String| {
            if w > 0 {
                out.push(' ');
                out.push_str(&text);
            }
        };
        add(self.state, left("state", self.state, pen));
        add(self.running, right("running", self.running, pen));
        add(self.queued, right("queued", self.queued, pen));
        add(self.speed, right("t/s", self.speed, pen));
        add(self.kv, right("kv", self.kv, pen));
        add(self.mamba, right("mamba", self.mamba, pen));
        add(self.swa, right("swa", self.swa, pen));
        add(self.age, left("age", self.age, pen));
        add(self.engine, left("engine", self.engine, pen));
        add(self.prefill, right("prefill", self.prefill, pen));
        add(self.cache, right("cache", self.cache, pen));
        add(self.accept, right("accept", self.accept, pen));
        add(self.retracted, right("retracted", self.retracted, pen));
        add(self.model, left("model", self.model, pen));
        add(self.spark, left("t/s, last 10 m", self.spark, pen));
        out
    }

    /// One replica.
    pub fn row(&self, r: &Replica, model: &Model, tops: &Tops<'_>, pen: Pen) -> Line<'static> {
        let f = r.figures();
        let state = state_style(r.state, pen);
        let mut spans = vec![Span::styled(format!("{} ", glyph(r.state, pen)), state)];
        spans.push(Span::styled(left(&join::name(&r.key), self.name, pen), pen.strong()));
        let mut add = |w: usize, text: String, style: Style| {
            if w > 0 {
                spans.push(Span::raw(" "));
                spans.push(Span::styled(text, style));
            }
        };
        add(self.state, left(r.state.name(), self.state, pen), state);
        add(self.running, right(&running(r, pen), self.running, pen), aged(r, Field::Running, pen));
        let waits = f.queued.is_some_and(|q| q > 0);
        let queued = match aged(r, Field::Queued, pen) {
            style if waits && style == pen.text() => pen.strong(),
            style => style,
        };
        add(self.queued, right(&count(f.queued, pen), self.queued, pen), queued);
        add(self.speed, right(&speed(f.generation, pen), self.speed, pen), aged(r, Field::Generation, pen));
        add(self.kv, right(&percent(f.kv, pen), self.kv, pen), full(r, Field::Kv, f.kv, pen));
        add(self.mamba, right(&percent(f.mamba, pen), self.mamba, pen), full(r, Field::Mamba, f.mamba, pen));
        add(self.swa, right(&percent(f.swa, pen), self.swa, pen), aged(r, Field::Swa, pen));
        add(self.age, left(&age_words(r), self.age, pen), pen.dim());
        add(self.engine, left(&engine(r), self.engine, pen), pen.dim());
        add(self.prefill, right(&speed(f.prefill, pen), self.prefill, pen), aged(r, Field::Prefill, pen));
        add(self.cache, right(&percent(f.cache_hit, pen), self.cache, pen), aged(r, Field::CacheHit, pen));
        let accept = f.accept_len.map_or_else(|| pen.unknown().to_string(), |a| format!("{a:.2}"));
        add(self.accept, right(&accept, self.accept, pen), aged(r, Field::AcceptLen, pen));
        add(self.retracted, right(&r.retracted.to_string(), self.retracted, pen), pen.text());
        add(self.model, left(r.model.as_deref().unwrap_or(pen.unknown()), self.model, pen), pen.dim());
        if self.spark > 0 {
            add(self.spark, spark(r, model, self.spark, tops, pen), pen.good());
        }
        Line::from(spans)
    }
}

/// A share that nearly fills its pool stands out.
fn full(r: &Replica, field: Field, share: Option<f32>, pen: Pen) -> Style {
    match aged(r, field, pen) {
        style if style == pen.text() && share.is_some_and(|s| s >= 0.95) => pen.hot(),
        style => style,
    }
}

/// `sglang 0.5.23`.
pub fn engine(r: &Replica) -> String {
    match (r.engine, &r.version) {
        (Some(engine), Some(version)) => format!("{} {version}", engine.name()),
        (Some(engine), None) => engine.name().to_string(),
        (None, _) => "-".to_string(),
    }
}

/// `figures 40 s old`, where they are old.
fn old(r: &Replica) -> String {
    match age_words(r) {
        age if age.is_empty() => age,
        age => format!("figures {age} old"),
    }
}

/// The figures in one line, the dearest first.
fn figures(r: &Replica, pen: Pen) -> Vec<Piece> {
    let f = r.figures();
    let mut out = vec![
        piece(format!("{} run", running(r, pen)), aged(r, Field::Running, pen), 0),
        piece(format!("{} q", count(f.queued, pen)), aged(r, Field::Queued, pen), 0),
        piece(format!("{} t/s", speed(f.generation, pen)), aged(r, Field::Generation, pen), 1),
        piece(format!("kv {}", percent(f.kv, pen)), full(r, Field::Kv, f.kv, pen), 2),
    ];
    if f.mamba.is_some() {
        out.push(piece(format!("m {}", percent(f.mamba, pen)), full(r, Field::Mamba, f.mamba, pen), 3));
    }
    out
}

/// Two lines for a narrow screen.
pub fn two_lines(r: &Replica, model: &Model, tops: &Tops<'_>, pen: Pen, columns: usize) -> [Line<'static>; 2] {
    let style = state_style(r.state, pen);
    let upper = spread(
        vec![piece(glyph(r.state, pen), style, 0), piece(join::name(&r.key), pen.strong(), 0)],
        vec![piece(old(r), pen.dim(), 1), piece(r.state.name(), style, 0)],
        " ",
        columns,
        pen,
    );
    let pieces = figures(r, pen);
    let used: usize = pieces.iter().map(|p| width(&p.text) + 1).sum();
    let room = columns.saturating_sub(used + 3);
    let history = if room >= 4 { spark(r, model, room, tops, pen) } else { String::new() };
    let mut left = vec![piece(" ", pen.text(), 0)];
    left.extend(pieces);
    [upper, spread(left, vec![piece(history, pen.good(), 4)], " ", columns, pen)]
}

/// One line beside the trials: `A dp0 ● 5 run 0 q kv 62% 212 t/s ▃▄▅`.
pub fn short(r: &Replica, model: &Model, tops: &Tops<'_>, pen: Pen, (columns, name): (usize, usize)) -> Line<'static> {
    use crate::serving::State;
    let style = state_style(r.state, pen);
    let mut spans = vec![
        Span::styled(left(&join::name(&r.key), name, pen), pen.strong()),
        Span::styled(format!(" {} ", glyph(r.state, pen)), style),
    ];
    let room = columns.saturating_sub(name + 3);
    let told = !matches!(r.state, State::Decoding | State::Saturated | State::Retracting | State::Idle | State::Ready);
    if told {
        let since = r.state_age().map(|s| format!(" {}", time::words(s))).unwrap_or_default();
        spans.push(Span::styled(cut(&format!("{}{since}", r.state.name()), room, pen), style));
        return Line::from(spans);
    }
    let f = r.figures();
    let old = age_words(r);
    let mut used = 0;
    let mut add = |text: String, field: Field| {
        if used + width(&text) <= room {
            used += width(&text);
            spans.push(Span::styled(text, aged(r, field, pen)));
        }
    };
    let digits = if room < 36 { 1 } else { 2 };
    let padded = |n: Option<u32>| match count(n, pen) {
        text if text.len() >= digits => text,
        text => right(&text, digits, pen),
    };
    add(format!("{} run ", padded(f.running)), Field::Running);
    add(format!("{} q ", padded(f.queued)), Field::Queued);
    add(format!("kv {} ", right(&percent(f.kv, pen), 3, pen)), Field::Kv);
    if f.mamba.is_some() && room >= 42 {
        add(format!("m {} ", right(&percent(f.mamba, pen), 3, pen)), Field::Mamba);
    }
    add(format!("{} t/s ", right(&speed(f.generation, pen), 4, pen)), Field::Generation);
    let rest = room.saturating_sub(used);
    if !old.is_empty() {
        // Where figures are old their age is worth more than the history.
        spans.push(Span::styled(cut(&format!("{old} old"), rest, pen), pen.dim()));
    } else if rest >= 3 {
        spans.push(Span::styled(spark(r, model, rest, tops, pen), pen.good()));
    }
    Line::from(spans)
}
