//! One replica in full: what it is, what it can take, its figures with their ages, the arithmetic of its
//! capacity, its history, what is wrong with it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::fit::{left, right, short, width, wrap_words};
use super::super::style::Pen;
use super::cells::{self, Field};
use super::{boxed, lists, state_style, timeline};
use crate::app::model::Model;
use crate::app::servers;
use crate::job::time;
use crate::serving::{Calm, Circuit, Replica, join};

/// Draws the open replica.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let Some(replica) = servers::selected(model) else { return };
    let inside = boxed(model, frame, area, pen, true, &format!("2 Serving: {}", join::name(&replica.key)), "Esc back");
    let columns = usize::from(inside.width);
    let lines = lines(model, replica, pen, columns);
    let height = usize::from(inside.height);
    let top = model.servers.detail.unwrap_or(0).min(lines.len().saturating_sub(height));
    for (line, y) in lines.into_iter().skip(top).zip(inside.y..inside.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

/// Label, value and a note.
fn fact(label: &str, value: &str, note: &str, columns: usize, pen: Pen) -> Vec<Line<'static>> {
    let label = left(label, 18.min(columns / 3), pen);
    let room = columns.saturating_sub(width(&label) + 1);
    let mut rows = wrap_words(value, room.max(8)).into_iter();
    let first = rows.next().unwrap_or_default();
    let note = if width(&first) + width(note) + 2 <= room { note.to_string() } else { String::new() };
    let mut out = vec![Line::from(vec![
        Span::styled(format!("{label} "), pen.dim()),
        Span::raw(first),
        Span::styled(if note.is_empty() { note } else { format!("  {note}") }, pen.dim()),
    ])];
    out.extend(rows.map(|row| Line::raw(format!("{}{row}", " ".repeat(width(&label) + 1)))));
    out
}

fn ago(age: Option<f64>) -> String {
    age.map_or_else(|| "never said".to_string(), |age| format!("{} ago", time::words(age)))
}

/// All of it.
pub fn lines(model: &Model, r: &Replica, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let since = r.state_age().map(|s| format!(" for {}", time::words(s))).unwrap_or_default();
    out.push(Line::from(vec![Span::styled(
        format!("{} {}{since}", super::glyph(r.state, pen), r.state.name()),
        state_style(r.state, pen),
    )]));
    out.extend(wrap_words(&r.evidence, columns).into_iter().map(|row| Line::styled(row, pen.dim())));
    out.push(Line::raw(""));
    let mut put = |label: &str, value: String, note: String| out.extend(fact(label, &value, &note, columns, pen));
    put("engine", cells::engine(r), String::new());
    put("model", r.model.as_deref().unwrap_or("-").to_string(), String::new());
    if let Some(worker) = &r.key.worker {
        put("worker", worker.to_string(), String::new());
    }
    if let Some(view) = &r.router {
        let healthy = match view.worker.healthy {
            Some(true) => "healthy",
            Some(false) => "not healthy",
            None => "health -",
        };
        let circuit = match view.worker.circuit {
            Some(Circuit::Closed) => "circuit closed",
            Some(Circuit::Open) => "circuit open",
            Some(Circuit::HalfOpen) => "circuit half open",
            None => "circuit -",
        };
        let load = view.worker.load.map_or_else(|| "-".to_string(), |l| l.to_string());
        put("router", format!("{}: {healthy}, {circuit}, {load} requests of it there", view.router), String::new());
    }
    let l = &r.limits;
    let whole = |n: Option<u64>| n.map_or_else(|| "-".to_string(), |n| n.to_string());
    put("max running", whole(l.max_running.map(u64::from)), "requests at once".to_string());
    let configured = model.serving.demand().configured_context;
    let told = configured.map(|c| format!("the job was told {c}")).unwrap_or_default();
    put("context", whole(l.context), told);
    put("kv capacity", whole(l.capacity), "tokens".to_string());
    if l.mamba_slots.is_some() || r.reading(Field::Mamba).is_some() {
        put("mamba slots", whole(l.mamba_slots.map(u64::from)), String::new());
    }
    if let Some(free) = l.free_gb {
        put("free memory", format!("{free:.1} GB"), "after the start".to_string());
    }
    out.push(Line::raw(""));
    out.extend(figures(r, pen, columns));
    out.push(Line::raw(""));
    out.extend(arithmetic(r, pen, columns));
    out.push(Line::raw(""));
    out.extend(timeline::lines(model, r, pen, columns));
    out.push(Line::raw(""));
    out.extend(sources(model, r, pen, columns));
    out.push(Line::raw(""));
    let mine = |d: &&&crate::serving::Diagnosis| {
        *d.server == *r.key.server && d.replica.as_ref().is_none_or(|key| *key == r.key)
    };
    let all = servers::diagnoses(model);
    let all: Vec<_> = all.iter().filter(mine).collect();
    if all.is_empty() {
        out.push(Line::styled(Calm::of(std::iter::once(r.state)).words(), pen.dim()));
    }
    for d in all {
        let style = if d.over { pen.dim() } else { lists::severity_style(d.severity, pen) };
        let head = format!("{} {}, {}", lists::sign(d.severity), lists::kind(d), lists::lasting(d, model));
        out.push(Line::styled(head, style));
        for row in lists::text(d, columns.saturating_sub(2)) {
            out.push(Line::styled(format!("  {row}"), if d.over { pen.dim() } else { pen.text() }));
        }
    }
    out
}

/// Every figure with its age.
fn figures(r: &Replica, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let f = r.figures();
    let share = |v: Option<f32>| cells::percent(v, pen);
    let whole = |v: Option<u64>| v.map_or_else(|| pen.unknown().to_string(), short);
    let graph = f.graph.map_or_else(|| pen.unknown().to_string(), |g| if g { "yes" } else { "no" }.to_string());
    let accept = f.accept_len.map_or_else(|| pen.unknown().to_string(), |a| format!("{a:.2}"));
    let all = [
        ("running", cells::running(r, pen), Field::Running),
        ("queued", cells::count(f.queued, pen), Field::Queued),
        ("kv in use", share(f.kv), Field::Kv),
        ("kv tokens", whole(f.tokens), Field::Tokens),
        ("mamba in use", share(f.mamba), Field::Mamba),
        ("mamba slots used", cells::count(f.mamba_slots, pen), Field::MambaSlots),
        ("swa in use", share(f.swa), Field::Swa),
        ("generation t/s", cells::speed(f.generation, pen), Field::Generation),
        ("prefill t/s", cells::speed(f.prefill, pen), Field::Prefill),
        ("to prefill", whole(f.pending_tokens), Field::PendingTokens),
        ("cache hit", share(f.cache_hit), Field::CacheHit),
        ("accept length", accept, Field::AcceptLen),
        ("captured graph", graph, Field::Graph),
    ];
    // Those that every engine has, and those that this one told.
    let always = [Field::Running, Field::Queued, Field::Kv, Field::Generation];
    let told: Vec<_> =
        all.into_iter().filter(|(.., field)| always.contains(field) || r.reading(*field).is_some()).collect();
    let per = (columns / 38).clamp(1, 3);
    let wide = columns / per;
    let cell = |(label, value, field): &(&str, String, Field)| {
        let age = ago(r.age(*field));
        let name = left(label, 17.min(wide / 2), pen);
        let value = right(value, 8, pen);
        let age = left(&format!("  {age}"), wide.saturating_sub(width(&name) + 8), pen);
        vec![
            Span::styled(name, pen.dim()),
            Span::styled(value, super::aged(r, *field, pen)),
            Span::styled(age, pen.dim()),
        ]
    };
    told.chunks(per).map(|row| Line::from(row.iter().flat_map(cell).collect::<Vec<_>>())).collect()
}

/// What fits, how fast the pool fills.
fn arithmetic(r: &Replica, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let a = r.arithmetic();
    let f = r.figures();
    let whole = |v: Option<f64>| v.map_or_else(|| "-".to_string(), |v| short(v.max(0.0) as u64));
    let tokens = f.tokens.map_or_else(|| "-".to_string(), short);
    let capacity = r.limits.capacity.map_or_else(|| "-".to_string(), short);
    let run = cells::count(f.running, pen);
    let mut out = fact(
        "tokens a request",
        &whole(a.tokens_per_request),
        &format!("{tokens} tokens / {run} running"),
        columns,
        pen,
    );
    out.extend(fact("requests that fit", &whole(a.fits), &format!("{capacity} of capacity / that"), columns, pen));
    let growth = a.growth.map_or_else(|| "-".to_string(), |g| format!("{g:+.0} tokens/s"));
    out.extend(fact("pool grows by", &growth, "over the last minute", columns, pen));
    let full = a.full_in.map_or_else(|| "-".to_string(), |s| format!("in {}", time::words(s)));
    out.extend(fact("pool is full", &full, "at this rate", columns, pen));
    out
}

/// Where what is known comes from.
fn sources(model: &Model, r: &Replica, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for s in model.serving.sources().iter().filter(|s| s.source.server == r.key.server) {
        let place = place(&s.source.place);
        let heard = match s.last_heard().map(|at| time::age(at, model.now).as_secs_f64()) {
            Some(age) => format!("heard {} ago", time::words(age)),
            None if s.time_unknown() => "its time is unknown".to_string(),
            None => "nothing heard yet".to_string(),
        };
        let offset = s.offset.filter(|o| *o != 0).map(|o| {
            // The clock of the lines against UTC.
            let ahead = -o;
            format!(
                ", its clock is UTC{}{}:{:02}",
                if ahead < 0 { "-" } else { "+" },
                ahead.abs() / 3600,
                ahead.abs() / 60 % 60
            )
        });
        let lines = if s.is_log() {
            format!(
                ", {} lines, {} decode, {} prefill, {} stats",
                s.lines, s.decode_lines, s.prefill_lines, s.stats_lines
            )
        } else {
            String::new()
        };
        let trouble = s.trouble.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let text = format!("{place}: {heard}{lines}{}{trouble}", offset.unwrap_or_default());
        out.extend(fact("source", &text, "", columns, pen));
    }
    out
}

/// What is read, in words.
fn place(place: &crate::serving::Place) -> String {
    use crate::serving::Place;
    match place {
        Place::Http(url) => url.to_string(),
        Place::Metrics(url) => format!("metrics {url}"),
        Place::File(path) => path.display().to_string(),
        Place::Container(name) => format!("container {name}"),
        Place::Command(command) => format!("command {}", crate::job::text::mask_secrets(command)),
    }
}
