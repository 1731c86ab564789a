//! The trial view: title, timeline, steps and the tabs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::fit::{Piece, cut, left, piece, reward, short, spread, width};
use super::style::Pen;
use super::{now, pane, trial_tabs};
use crate::app::detail::terminal;
use crate::app::detail::timeline::{self, Lane, Timeline};
use crate::app::detail::{Head, Speaker, Tab, TrialView, left_columns, timeline_rows};
use crate::app::model::{Model, Room};
use crate::app::rows::{Row, RowId};
use crate::app::works;
use crate::job::trial::short_name;
use crate::job::work::{Doing, Work};
use crate::job::{Phase, Trial, TrialKey, time};

/// Draws the trial view into `area`.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let Some(view) = &model.trial else { return };
    if area.height == 0 || area.width == 0 {
        return;
    }
    let trial = model.fleet.job(view.key.job).and_then(|j| j.trials.get(&view.key.trial));
    let row = model.rows.iter().find(|r| matches!(&r.id, RowId::Trial(key) if *key == view.key));
    let lanes = trial.map(|t| {
        let phase = row.map_or(Phase::Done, |r| r.phase);
        timeline::of_trial(t, view.facts.as_ref(), phase, model.now)
    });
    let lanes = lanes.unwrap_or_default();
    let columns = usize::from(area.width);
    let line = |y: u16| Rect { y: area.y + y, height: 1, ..area };
    frame.render_widget(title(model, view, trial, row, pen, columns), line(0));
    if model.room() == Room::Double {
        if area.height > 3 {
            frame.render_widget(facts(model, view, trial, row, pen, columns), line(1));
            let body = Rect { y: area.y + 2, height: area.height - 2, ..area };
            let last = pending(model, trial, row, pen);
            wide(model, view, (&lanes, last, row), pen, frame, body);
        }
        return;
    }
    let rows = timeline_rows(model.size.1).min(area.height.saturating_sub(3));
    let mut y = 1;
    if rows > 1 {
        frame.render_widget(bar_line(&lanes, pen, columns), line(y));
        y += 1;
    }
    if rows > 0 {
        let words = match trial_tabs::status(view, pen) {
            Some(status) => Line::from(Span::styled(cut(&status, columns, pen), pen.strong())),
            None => now::line(model, row, pen, columns).unwrap_or_else(|| words_line(&lanes, pen, columns)),
        };
        frame.render_widget(words, line(y));
        y += 1;
    }
    if area.height > y {
        frame.render_widget(trial_tabs::tab_line(view, true, pen, columns), line(y));
        y += 1;
    }
    let body = Rect { y: area.y + y, height: area.height.saturating_sub(y), ..area };
    if view.tab == Tab::Steps {
        // What it does is on the line above already.
        let lines = now::lines(model, row, pen, columns, usize::from(body.height / 2).saturating_add(1));
        let told = u16::try_from(lines.len().saturating_sub(1)).unwrap_or(0);
        for (y, line) in (body.y..body.bottom()).zip(lines.into_iter().skip(1)) {
            frame.render_widget(line, Rect { y, height: 1, ..body });
        }
        let body = Rect { y: body.y + told, height: body.height.saturating_sub(told), ..body };
        steps(view, pending(model, trial, row, pen), pen, frame, body, true);
    } else {
        trial_tabs::content(view, pen, frame, body);
    }
}

/// The episode that is not recorded yet: under way, or cut off. Its number, and what of it.
fn pending(model: &Model, trial: Option<&Trial>, row: Option<&Row>, pen: Pen) -> Option<(u32, String)> {
    let row = row?;
    if let Some(n) = model.steer.works.of_row(row).and_then(|work| work.episode) {
        let (said, _) = works::words_of(model, row)?;
        return Some((n, said.whole()));
    }
    if let Phase::AgentRunning(n) = row.phase {
        let since = row.last_step.map(|at| time::words(time::age(at, model.now).as_secs_f64()));
        return Some((n, format!("under way, {}~ since the last step", since.as_deref().unwrap_or(pen.unknown()))));
    }
    let n = trial?.result.as_ref()?.n_episodes?;
    Some((n, "entered, cut off before it was recorded".to_string()))
}

fn wide(
    model: &Model,
    view: &TrialView,
    (lanes, last, row): (&Timeline, Option<(u32, String)>, Option<&Row>),
    pen: Pen,
    frame: &mut Frame<'_>,
    body: Rect,
) {
    let columns = match view.tab {
        // As much of it as there is room for.
        Tab::Terminal => terminal::beside(model.size.0),
        _ => left_columns(model.size.0),
    };
    let columns = columns.min(body.width);
    let lines = timeline_lines(lanes, pen, usize::from(columns).saturating_sub(2));
    // The steps keep half of the column, however long the timeline is.
    let wanted = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let told = now::lines(model, row, pen, usize::from(columns).saturating_sub(2), usize::from(body.height / 3));
    let share = if told.is_empty() { body.height / 2 } else { body.height / 3 };
    let height = wanted.min(share).max(3);
    let above = Rect { width: columns, height, ..body };
    let fact = lanes.total.map_or(String::new(), |t| format!("{} in all", time::words(t)));
    let inside = pane(frame, above, pen, false, "Timeline", &fact);
    let room = usize::from(inside.height);
    // The end matters most where not everything fits.
    let skip = lines.len().saturating_sub(room);
    for (y, line) in (inside.y..).zip(lines.into_iter().skip(skip).take(room)) {
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
    let mut below = Rect { y: body.y + height, height: body.height - height, width: columns, ..body };
    if let Some(row) = row.filter(|_| !told.is_empty()) {
        let height = u16::try_from(told.len()).unwrap_or(u16::MAX).saturating_add(2).min(below.height);
        now::draw(model, row, told, pen, frame, Rect { height, ..below });
        below = Rect { y: below.y + height, height: below.height - height, ..below };
    }
    let focused = view.tab == Tab::Steps;
    let inside = pane(frame, below, pen, focused, "Steps", &steps_fact(view));
    steps(view, last, pen, frame, inside, focused);
    let right = Rect { x: body.x + columns, width: body.width - columns, ..body };
    let inside = pane(frame, right, pen, !focused, "", "");
    let top = Rect { x: right.x + 2, y: right.y, width: right.width.saturating_sub(4), height: 1 };
    frame.render_widget(trial_tabs::tab_line(view, false, pen, usize::from(top.width)), top);
    if let Some(status) = trial_tabs::status(view, pen) {
        let text = format!(" {} ", cut(&status, usize::from(top.width).saturating_sub(2), pen));
        let w = u16::try_from(width(&text)).unwrap_or(0);
        let at =
            Rect { x: right.right().saturating_sub(w + 2), y: right.bottom().saturating_sub(1), width: w, height: 1 };
        frame.render_widget(Line::styled(text, pen.strong()), at);
    }
    trial_tabs::content(view, pen, frame, inside);
}

/// The trial of a row.
pub fn key_of(row: &Row) -> Option<&TrialKey> {
    match &row.id {
        RowId::Trial(key) => Some(key),
        RowId::Slot(..) => None,
    }
}

/// The phase in words; what the trial says itself is not inferred.
fn phase_words(row: &Row, work: Option<&Work>) -> String {
    match (work.map(|work| &work.doing), work.and_then(|work| work.episode)) {
        (Some(Doing::Verifying { .. }), _) => return "verifying".to_string(),
        (Some(Doing::Slot { .. }), _) => return "waiting for an agent slot".to_string(),
        (Some(_), Some(n)) => return format!("agent running, episode {n}"),
        (Some(_), None) => return "agent running".to_string(),
        (None, _) => {}
    }
    match row.phase {
        Phase::AgentRunning(n) => format!("agent running, episode {n}~"),
        phase if phase.is_running() => format!("{}~", phase.word().replace('_', " ")),
        _ => row.outcome.word().to_string(),
    }
}

fn title(
    model: &Model,
    view: &TrialView,
    trial: Option<&Trial>,
    row: Option<&Row>,
    pen: Pen,
    columns: usize,
) -> Line<'static> {
    let mut lead: Vec<Piece> = vec![piece(short_name(&view.key.trial).to_string(), pen.strong(), 0)];
    let mut tail: Vec<Piece> = Vec::new();
    if trial.is_none() {
        tail.push(piece("its directory vanished: a retry or a resume deletes it", pen.alarm(), 1));
    }
    if let Some(row) = row {
        let style = pen.outcome(row.outcome);
        lead.insert(0, piece(pen.phase_glyph(row.phase, row.outcome), style, 0));
        if !short_name(&view.key.trial).starts_with(&*row.task) {
            lead.push(piece(row.task.to_string(), pen.text(), 4));
        }
        tail.push(piece(phase_words(row, model.steer.works.of_row(row)), style, 0));
        let raw = row.reward.map_or(pen.unknown().to_string(), reward);
        let shown = match &row.regrade {
            None => format!("reward {raw}"),
            Some(r) => format!("raw {raw}, regrade {}: {}", r.n, regrade_words(r, pen)),
        };
        tail.push(piece(shown, pen.text(), 2));
        if let Some(kind) = &row.exception {
            tail.push(piece(kind.to_string(), pen.alarm(), 1));
        }
        if let Some(timing) = row.timing {
            let elapsed = timing.elapsed(model.now);
            let mark = if timing.inferred { "~" } else { "" };
            let (text, hot) = match timing.limit {
                Some(limit) => {
                    (format!("{}{mark} of {}", time::clock(elapsed), time::clock(limit)), elapsed > limit * 0.9)
                }
                None => (format!("{}{mark}", time::clock(elapsed)), false),
            };
            let agent = trial.and_then(|t| t.result.as_ref()).map(|r| r.spans.agent.finished.is_some());
            let text = match agent {
                Some(true) => format!("agent {text}"),
                Some(false) => format!("{text} in all"),
                None => text,
            };
            tail.push(piece(text, if hot { pen.hot() } else { pen.text() }, 3));
        }
    }
    spread(lead, tail, "  ", columns, pen)
}

fn facts(
    whole: &Model,
    view: &TrialView,
    trial: Option<&Trial>,
    row: Option<&Row>,
    pen: Pen,
    columns: usize,
) -> Line<'static> {
    let mut out = Vec::new();
    let fact = |name: &str| {
        let facts = view.facts.as_ref()?;
        facts.identity.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone())
    };
    let agent = fact("agent").or_else(|| trial.and_then(|t| t.agent.as_deref().map(str::to_string)));
    let model = fact("model").or_else(|| trial.and_then(|t| t.model.as_deref().map(str::to_string)));
    for (value, rank) in [(agent, 1), (model, 2)] {
        out.extend(value.map(|v| piece(v, pen.dim(), rank)));
    }
    if let Some(n) = row.and_then(|r| r.episodes) {
        out.push(piece(format!("{n} episode{}", if n == 1 { "" } else { "s" }), pen.dim(), 3));
    }
    if let Some(result) = trial.and_then(|t| t.result.as_ref()) {
        let number = |n: Option<u64>| n.map_or(pen.unknown().to_string(), short);
        let t = &result.tokens;
        if !t.is_unknown() {
            let text = format!("{} tokens in, {} cached, {} out", number(t.input), number(t.cache), number(t.output));
            out.push(piece(text, pen.dim(), 4));
        }
        out.extend(result.cost_usd.map(|c| piece(format!("${c:.3}"), pen.dim(), 5)));
    }
    out.extend(fact("result id").map(|id| piece(format!("id {id}"), pen.dim(), 6)));
    // What it says itself is told in full below.
    let files = whole.steer.works.of(&view.key).is_none();
    if let Some(joined) = whole.servers.joined.get(&view.key).filter(|_| files) {
        let mark = if joined.inferred { "~" } else { "" };
        let doing = joined.doing.map_or("not to be told", |d| d.words());
        out.insert(0, piece(format!("{doing}{mark}: {}", joined.why), pen.strong(), 0));
    }
    if let Some(other) = row.and_then(|r| r.superseded.as_ref()) {
        out.insert(0, piece(format!("counted in its place: {other}"), pen.alarm(), 0));
    }
    if let Some(problem) = trial.and_then(|t| t.problems.first()) {
        out.insert(0, piece(format!("{}: {}", problem.path, problem.message), pen.alarm(), 0));
    }
    spread(out, Vec::new(), &format!(" {} ", pen.dot()), columns, pen)
}

fn hot(lane: &Lane) -> bool {
    lane.limit.zip(lane.seconds).is_some_and(|(limit, seconds)| limit > 0.0 && seconds > limit * 0.9)
}

fn duration(lane: &Lane) -> String {
    let mark = if lane.inferred { "~" } else { "" };
    match lane.seconds {
        Some(s) if s < 10.0 => format!("{s:.1} s{mark}"),
        Some(s) => format!("{}{mark}", time::words(s)),
        None => "cut".to_string(),
    }
}

/// First and last cell of a lane on a bar of so many cells.
fn cells(lane: &Lane, total: f64, columns: usize) -> Option<(usize, usize)> {
    let (from, seconds) = (lane.from?, lane.seconds?);
    let cell = |s: f64| ((s / total).clamp(0.0, 1.0) * columns as f64).round() as usize;
    let first = cell(from).min(columns.saturating_sub(1));
    Some((first, cell(from + seconds).clamp(first + 1, columns.max(first + 1))))
}

/// The timeline as lines: name, limit, place in time, duration.
pub fn timeline_lines(lanes: &Timeline, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let mut out: Vec<Line<'static>> = Vec::new();
    let bar_columns = (columns / 4).clamp(8, 24);
    let names = columns.saturating_sub(bar_columns + 10);
    for lane in &lanes.lanes {
        let style = if lane.gap { pen.dim() } else { pen.text() };
        let lead = if lane.gap { format!("  {}", lane.name) } else { lane.name.clone() };
        let full = match lane.limit {
            Some(limit) if !lane.gap => format!("{lead} (limit {})", time::words(limit)),
            _ => lead.clone(),
        };
        let name = if width(&full) <= names { full } else { lead };
        let (on, off) = if pen.look.ascii {
            ("#", ".")
        } else if lane.gap {
            ("▂", "·")
        } else {
            ("▇", "·")
        };
        let bar = match cells(lane, lanes.total.unwrap_or(0.0).max(0.001), bar_columns) {
            Some((first, last)) => {
                format!(
                    "{}{}{}",
                    off.repeat(first),
                    on.repeat(last - first),
                    off.repeat(bar_columns.saturating_sub(last))
                )
            }
            None => off.repeat(bar_columns),
        };
        let bar_style = if hot(lane) {
            pen.hot()
        } else if lane.gap {
            pen.dim()
        } else {
            pen.good()
        };
        let time_style = if hot(lane) { pen.hot() } else { style };
        out.push(Line::from(vec![
            Span::styled(left(&name, names, pen), style),
            Span::raw(" "),
            Span::styled(bar, bar_style),
            Span::raw(" "),
            Span::styled(super::fit::right(&duration(lane), 8, pen), time_style),
        ]));
    }
    for odd in &lanes.odd {
        for row in super::fit::wrap(odd, columns) {
            out.push(Line::styled(row, pen.alarm()));
        }
    }
    if out.is_empty() {
        out.push(Line::styled(cut("no times known yet", columns, pen), pen.dim()));
    }
    out
}

/// The phases as stretches of one bar.
fn bar_line(lanes: &Timeline, pen: Pen, columns: usize) -> Line<'static> {
    let total = lanes.total.unwrap_or(0.0).max(0.001);
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut at = 0;
    for (i, lane) in lanes.lanes.iter().enumerate() {
        let Some((first, last)) = cells(lane, total, columns) else { continue };
        let (first, last) = (first.max(at), last.max(at));
        spans.push(Span::raw(" ".repeat(first - at)));
        let glyph = match (pen.look.ascii, lane.gap) {
            (true, true) => ".",
            (true, false) if i % 2 == 0 => "=",
            (true, false) => "#",
            (false, true) => "▂",
            (false, false) if i % 2 == 0 => "▆",
            (false, false) => "▇",
        };
        let style = if hot(lane) {
            pen.hot()
        } else if lane.gap {
            pen.dim()
        } else {
            pen.good()
        };
        spans.push(Span::styled(glyph.repeat(last - first), style));
        at = last;
    }
    Line::from(spans)
}

/// The phases in words, the most telling ones where not all fit.
fn words_line(lanes: &Timeline, pen: Pen, columns: usize) -> Line<'static> {
    if let Some(odd) = lanes.odd.first() {
        return Line::styled(cut(odd, columns, pen), pen.alarm());
    }
    if lanes.lanes.is_empty() {
        return Line::styled(cut("no times known yet", columns, pen), pen.dim());
    }
    let pieces = lanes.lanes.iter().map(|lane| {
        let limit = lane.limit.filter(|_| !lane.gap).map_or(String::new(), |l| format!("/{}", time::words(l)));
        let rank = match (&*lane.name, lane.gap) {
            ("agent", _) => 1,
            (_, true) => 3,
            _ => 2,
        };
        let style = if hot(lane) {
            pen.hot()
        } else if lane.gap {
            pen.dim()
        } else {
            pen.text()
        };
        piece(format!("{} {}{limit}", lane.name, duration(lane)), style, rank)
    });
    spread(pieces.collect(), Vec::new(), &format!(" {} ", pen.dot()), columns, pen)
}

/// How far the trajectories are read, and what is to be said of them.
pub fn steps_fact(view: &TrialView) -> String {
    let Some(parts) = &view.parts else { return "opening".to_string() };
    let n = view.n_steps();
    let unread = parts.iter().filter(|p| p.indexed < 1.0).count();
    if unread > 0 {
        let share = parts.iter().map(|p| p.indexed).sum::<f64>() / parts.len().max(1) as f64;
        return format!("{n} so far, indexing {:.0} %", share * 100.0);
    }
    let follow = if view.follow { ", following" } else { "" };
    format!("{} of {n}{follow}", if n == 0 { 0 } else { view.cursor + 1 })
}

/// The list of steps.
fn steps(view: &TrialView, last: Option<(u32, String)>, pen: Pen, frame: &mut Frame<'_>, area: Rect, focused: bool) {
    let (columns, mut height) = (usize::from(area.width), usize::from(area.height));
    if height == 0 || columns == 0 {
        return;
    }
    let notes: Vec<&String> = view.parts.iter().flatten().filter_map(|p| p.note.as_ref()).collect();
    let mut y = area.y;
    let mut put = |frame: &mut Frame<'_>, line: Line<'static>| {
        if y < area.bottom() {
            frame.render_widget(line, Rect { y, height: 1, ..area });
            y += 1;
        }
    };
    for note in notes.iter().take(3) {
        for row in super::fit::wrap(note, columns).into_iter().take(2) {
            if height > 1 {
                put(frame, Line::styled(row, pen.dim()));
                height -= 1;
            }
        }
    }
    let n = view.n_steps();
    if n == 0 {
        if notes.is_empty() {
            put(frame, Line::styled(cut(&steps_fact(view), columns, pen), pen.dim()));
        }
        return;
    }
    if height > 3 {
        put(frame, heading(pen, columns));
        height -= 1;
    }
    let recorded = view.head(n - 1).and_then(|_| view.heads.iter().rev().find_map(|h| h.episode));
    let last = last.filter(|(e, _)| n > 0 && recorded.is_some_and(|r| *e > r));
    // Lines around the cursor: a heading of a trajectory takes one, too.
    let half = height / 2;
    let begin = view.cursor.saturating_sub(half).min(n.saturating_sub(height));
    let mut lines: Vec<(Line<'static>, bool)> = Vec::new();
    for at in begin..(begin + height).min(n) {
        let selected = at == view.cursor;
        let head = view.head(at);
        if let Some(group) = head.and_then(|h| h.group.as_ref()) {
            lines.push((Line::styled(left(group, columns, pen), pen.strong()), false));
        }
        let mut line = match head {
            Some(head) => step_line(head, pen, columns),
            None => Line::styled(left(&format!("{:>4} {}", at + 1, pen.ellipsis()), columns, pen), pen.dim()),
        };
        if selected {
            line = line.patch_style(if focused { pen.selected() } else { pen.selected_elsewhere() });
        }
        lines.push((line, selected));
    }
    if begin + height >= n
        && let Some((episode, what)) = last
    {
        let text = format!("{episode:>width$} {what}", width = if columns >= 60 { 4 } else { 3 });
        lines.push((Line::styled(left(&text, columns, pen), pen.dim()), false));
    }
    let selected = lines.iter().position(|(_, s)| *s).unwrap_or(0);
    let skip = (selected + 1)
        .saturating_sub(height)
        .max(lines.len().saturating_sub(height).min(selected.saturating_sub(half)));
    lines.into_iter().skip(skip).take(height).for_each(|(line, _)| put(frame, line));
}

fn heading(pen: Pen, columns: usize) -> Line<'static> {
    let text = if columns >= 60 {
        format!("{:>4} {:<8} {:>11} {:>6} {:>6}  plan", "ep", "time", "model+cmds", "in", "out")
    } else {
        format!("{:>3} {:<8} {:>6} {:>5}  plan", "ep", "time", "took", "out")
    };
    Line::styled(left(&text, columns, pen), pen.dim())
}

fn step_line(head: &Head, pen: Pen, columns: usize) -> Line<'static> {
    let number = match (head.episode, head.speaker) {
        (Some(n), _) => n.to_string(),
        (None, _) => pen.unknown().to_string(),
    };
    let at = head.at.map_or("-".to_string(), |t| t.strftime("%T").to_string());
    let seconds = |s: f64| if s < 100.0 { format!("{s:.1}") } else { format!("{s:.0}") };
    let took = match (head.gap, head.model) {
        (Some(g), _) if g < 0.0 => "clock!".to_string(),
        (Some(g), Some(m)) if columns >= 60 => format!("{}+{}", seconds(m), seconds((g - m).max(0.0))),
        (Some(g), _) if g < 100.0 => format!("{g:.1} s"),
        (Some(g), _) => time::clock(g),
        (None, _) => pen.unknown().to_string(),
    };
    let count = |n: Option<u64>| n.map_or(pen.unknown().to_string(), short);
    let lead = if columns >= 60 {
        format!("{number:>4} {at:<8} {took:>11} {:>6} {:>6}  ", count(head.input), count(head.output))
    } else {
        format!("{number:>3} {at:<8} {took:>6} {:>5}  ", count(head.output).replace(' ', ""))
    };
    let what = match head.speaker {
        Speaker::Agent => String::new(),
        Speaker::User => "prompt: ".to_string(),
        Speaker::System if head.refs > 0 => format!("system, {} subagent trajectories: ", head.refs),
        Speaker::System => "system: ".to_string(),
        Speaker::Copied => "copied: ".to_string(),
    };
    let style = if head.speaker == Speaker::Agent { pen.text() } else { pen.dim() };
    Line::styled(left(&format!("{lead}{what}{}", head.line), columns, pen), style)
}

/// What the verifier said later, in a word.
pub(super) fn regrade_words(regrade: &crate::app::rows::Regraded, pen: Pen) -> String {
    match (&regrade.but, regrade.reward) {
        (Some(but), _) => but.to_string(),
        (None, Some(now)) => reward(now),
        (None, None) => pen.unknown().to_string(),
    }
}
