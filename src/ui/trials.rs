//! The trials table: only the rows in the window are built.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fit::{cut, left, reward, right, short, width};
use super::pane;
use super::style::Pen;
use crate::app::model::{Model, Room};
use crate::app::rows::{Outcome, Row};
use crate::app::triage::class_words;
use crate::app::works;
use crate::job::trial::{short_name, trial_name};
use crate::job::{Class, Phase, time};
use crate::serving::State;
use crate::serving::join::Doing;

/// Draws the table into `area`.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect, focused: bool) {
    let table = &model.table;
    let filter =
        if table.filter_text.is_empty() { "filter none".to_string() } else { format!("filter {}", table.filter_text) };
    let inverted = if table.inverted { ", turned round" } else { "" };
    let wait = if table.sort_pending { ", order waits" } else { "" };
    let fact = format!("{filter}, by {}{inverted}{wait}", table.sort.word());
    let shown = table.order.len();
    let all = model.rows.len();
    let title = if shown == all { format!("1 Trials {all}") } else { format!("1 Trials {shown} of {all}") };
    let compact = model.room() == Room::Compact;
    let inside = if compact {
        let rule = if pen.look.ascii { "-" } else { "─" };
        let head = format!("{title}, {fact} ");
        let line = Line::from(vec![
            Span::styled(cut(&head, usize::from(area.width), pen), pen.dim()),
            Span::styled(rule.repeat(usize::from(area.width).saturating_sub(width(&head))), pen.dim()),
        ]);
        frame.render_widget(line, Rect { height: 1, ..area });
        Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }
    } else {
        pane(frame, area, pen, focused, &title, &fact)
    };
    if inside.width < 8 || inside.height == 0 {
        return;
    }
    let columns = Columns::plan(model, usize::from(inside.width), compact);
    let mut y = inside.y;
    if !compact {
        frame.render_widget(Line::styled(columns.heading(pen), pen.dim()), Rect { height: 1, ..inside });
        y += 1;
    }
    let height = usize::from(inside.bottom().saturating_sub(y));
    if model.rows.is_empty() || table.order.is_empty() {
        let text = match (model.fleet.jobs(), model.rows.is_empty()) {
            ([], _) => "no job yet",
            (jobs, true) if jobs.iter().any(|j| !j.settled) => "reading",
            (_, true) => "no trial yet: the first directory can take 20 s to appear",
            _ => "no trial passes the filter; F shows all",
        };
        let text = cut(text, usize::from(inside.width), pen);
        frame.render_widget(Line::styled(text, pen.dim()), Rect { y, height: u16::from(height > 0), ..inside });
        return;
    }
    let window = table.visible(height);
    let selected = table.position();
    for (at, y) in window.zip(y..inside.bottom()) {
        let Some(row) = table.order.get(at).and_then(|i| model.rows.get(*i)) else { continue };
        let mut line = columns.row(model, row, pen);
        if selected == Some(at) {
            line = line.patch_style(if focused { pen.selected() } else { pen.selected_elsewhere() });
        }
        frame.render_widget(line, Rect { y, height: 1, ..inside });
    }
}

/// Widths of the columns; 0 = not shown.
struct Columns {
    task: usize,
    job: usize,
    phase: usize,
    episodes: usize,
    timing: usize,
    bar: usize,
    output: usize,
    reward: usize,
    exception: usize,
    class: usize,
}

const ELAPSED: usize = 7;
/// Columns of a command or a reason that say anything.
const TAIL: usize = 8;
const BAR: usize = 6;
/// Columns of a state at the least: `agent setup`, `tearing down`.
const PHASE: usize = 13;

impl Columns {
    fn plan(model: &Model, total: usize, compact: bool) -> Columns {
        // What trials do by their own word, or by their servers, needs more words.
        let told = !compact && !model.steer.works.said.is_empty();
        let served = told || (!compact && crate::app::servers::any(model) && !model.servers.joined.is_empty());
        let wish = match (compact, served) {
            (true, _) => 10,
            (false, true) if told && total >= 126 => 34,
            // `model 42 s, 1.9k reasoning`: wording must not change while figures grow.
            (false, true) if told && total >= 76 => 26,
            (false, true) if total >= 110 => 24,
            (false, true) => 16,
            (false, false) => PHASE,
        };
        let whole = Columns::with(model, total, compact, wish);
        let wanted = || model.rows.iter().any(|r| r.exception.is_some() || r.superseded.is_some());
        if compact || whole.exception > 0 || !wanted() {
            return whole;
        }
        // Why a trial ended is worth more than the longest wording of what others do.
        let mut less = (PHASE..wish).rev().map(|phase| Columns::with(model, total, compact, phase));
        less.find(|c| c.exception > 0).unwrap_or(whole)
    }

    fn with(model: &Model, total: usize, compact: bool, phase: usize) -> Columns {
        let mut c = Columns {
            task: 0,
            job: 0,
            phase: 14,
            episodes: 0,
            timing: 0,
            bar: 0,
            output: 0,
            reward: 0,
            exception: 0,
            class: 0,
        };
        // Glyph and its space.
        let mut room = total.saturating_sub(2);
        let task_wish = if compact { 14 } else { 20 };
        let mut take = |want: usize, keep: usize| -> usize {
            if room >= want + 1 + keep {
                room -= want + 1;
                want
            } else {
                0
            }
        };
        c.phase = take(phase, task_wish);
        c.reward = take(6, task_wish);
        c.timing = take(ELAPSED, task_wish);
        c.output = if compact { 0 } else { take(6, task_wish) };
        c.episodes = if compact { 0 } else { take(3, task_wish) };
        if c.timing > 0 && !compact {
            // Bar and limit make the timing column wider.
            let extra = 1 + BAR + 1 + ELAPSED;
            if take(extra - 1, task_wish) > 0 {
                c.timing += extra;
                c.bar = BAR;
            }
        }
        if model.fleet.jobs().len() > 1 {
            c.job = take(18, task_wish + 4);
        }
        c.exception = take(24, task_wish + 4);
        if c.exception > 0 && model.rows.iter().any(|r| r.class.is_some() || r.verdict.is_some()) {
            c.class = take(22, task_wish + 4);
        }
        c.task = room;
        if c.exception > 0 && c.task > 44 {
            let spare = (c.task - 44).min(30);
            c.exception += spare;
            c.task -= spare;
        }
        c
    }

    fn heading(&self, pen: Pen) -> String {
        let mut out = format!("  {}", left("task", self.task, pen));
        let mut add = |w: usize, text: String| {
            if w > 0 {
                out.push(' ');
                out.push_str(&text);
            }
        };
        add(self.job, left("job", self.job, pen));
        add(self.phase, left("state", self.phase, pen));
        add(self.episodes, right("ep", self.episodes, pen));
        let timing = if self.bar > 0 {
            format!(
                "{} {}",
                right("elapsed", ELAPSED, pen),
                right("of limit", self.timing.saturating_sub(ELAPSED + 1), pen)
            )
        } else {
            right("elapsed", self.timing, pen)
        };
        add(self.timing, timing);
        add(self.output, right("out", self.output, pen));
        add(self.reward, right("reward", self.reward, pen));
        add(self.exception, left("exception", self.exception, pen));
        add(self.class, left("class, verdict", self.class, pen));
        out
    }

    fn row(&self, model: &Model, row: &Row, pen: Pen) -> Line<'static> {
        let faded = row.superseded.is_some();
        let tone = |style: Style| if faded { pen.dim() } else { style };
        let state = tone(pen.outcome(row.outcome));
        let mark = super::triage::mark(model, row);
        let mut spans = vec![Span::styled(format!("{}{mark}", pen.phase_glyph(row.phase, row.outcome)), state)];
        spans.push(Span::styled(left(&self.label(row), self.task, pen), tone(pen.text())));
        let mut add = |w: usize, text: String, style: Style| {
            if w > 0 {
                spans.push(Span::raw(" "));
                spans.push(Span::styled(text, style));
            }
        };
        add(self.job, left(&model.job_name(row.job), self.job, pen), pen.dim());
        let doing = if works::is_long(model, row) { tone(pen.alarm()) } else { state };
        add(self.phase, left(&phase_words(row, model, self.phase), self.phase, pen), doing);
        let number = |n: Option<u32>| n.map_or_else(|| pen.unknown().to_string(), |n| n.to_string());
        add(self.episodes, right(&number(row.episodes), self.episodes, pen), tone(pen.text()));
        if self.timing > 0 {
            let (text, style) = self.timing_cell(model, row, pen);
            add(self.timing, text, tone(style));
        }
        let out = row.output_tokens.map_or_else(|| pen.unknown().to_string(), short);
        add(self.output, right(&out, self.output, pen), tone(pen.text()));
        // Read from the reward file, not from a result.
        let early = if row.phase == Phase::Done { "" } else { "~" };
        let shown = row.reward.map_or_else(|| pen.unknown().to_string(), |r| format!("{}{early}", reward(r)));
        let shown = regraded(&shown, row, self.reward, pen);
        add(self.reward, right(&shown, self.reward, pen), state);
        let exception = match (&row.superseded, &row.exception) {
            (Some(by), _) => format!("superseded by {by}"),
            (None, Some(kind)) => kind.to_string(),
            _ => String::new(),
        };
        add(self.exception, left(&exception, self.exception, pen), tone(pen.text()));
        if self.class > 0 {
            // What a person said stands for what the rules say.
            let (class, style) = match (row.verdict, &row.class) {
                (Some(verdict), _) => (format!("= {}", verdict.title()), pen.good()),
                // A clean pass needs no word of its own.
                (None, Some(class)) if class.class == Class::Passed => {
                    let odd = class.flags.iter().any(|f| f.is_suspicious_pass());
                    (if odd { "passed, odd" } else { "" }.to_string(), pen.alarm())
                }
                (None, Some(class)) => (class_words(class), pen.dim()),
                (None, None) => (String::new(), pen.dim()),
            };
            add(self.class, left(&class, self.class, pen), tone(style));
        }
        Line::from(spans)
    }

    /// Task, with the suffix that tells attempts apart where there is room for it.
    fn label(&self, row: &Row) -> String {
        let suffix = match trial_name(short_name(&row.name)) {
            Some(parts) => (parts.of > 1).then(|| format!("{}-of-{}", parts.attempt, parts.of)),
            None => row.name.rsplit_once("__").map(|(_, s)| s.to_string()).filter(|s| !s.is_empty()),
        };
        match &suffix {
            Some(suffix) if width(&row.task) + 2 + width(suffix) <= self.task => format!("{} {suffix}", row.task),
            _ => row.task.to_string(),
        }
    }

    fn timing_cell(&self, model: &Model, row: &Row, pen: Pen) -> (String, Style) {
        let Some(timing) = row.timing else {
            return (left(&right(pen.unknown(), ELAPSED, pen), self.timing, pen), pen.dim());
        };
        let elapsed = timing.elapsed(model.now);
        let mark = if timing.inferred && timing.until.is_none() { "~" } else { "" };
        let clock = right(&format!("{}{mark}", time::clock(elapsed)), ELAPSED, pen);
        let share = timing.limit.filter(|l| *l > 0.0).map(|l| elapsed / l);
        let style = match share {
            Some(s) if s > 0.9 => pen.hot(),
            _ => pen.text(),
        };
        if self.bar == 0 {
            return (left(&clock, self.timing, pen), style);
        }
        match (share, timing.limit) {
            (Some(share), Some(limit)) => {
                let bar = pen.bar(share, self.bar);
                let limit = right(&time::clock(limit), ELAPSED, pen);
                (left(&format!("{clock} {bar} {limit}"), self.timing, pen), style)
            }
            _ => (left(&clock, self.timing, pen), style),
        }
    }
}

/// A reward, and what the verifier said later: `0→1`; where there is no room for both, the later.
fn regraded(raw: &str, row: &Row, room: usize, pen: Pen) -> String {
    let Some(regrade) = &row.regrade else { return raw.to_string() };
    let arrow = if pen.look.ascii { ">" } else { "→" };
    let now = match (&regrade.but, regrade.reward) {
        (None, Some(now)) => reward(now),
        (Some(_), _) => "!".to_string(),
        (None, None) => pen.unknown().to_string(),
    };
    let both = format!("{raw}{arrow}{now}");
    if width(&both) <= room { both } else { format!("{arrow}{now}") }
}

/// What it does by its files and its servers: `think 38 m ~`, `queued at server ~`.
fn joined_words(row: &Row, model: &Model, room: usize) -> Option<String> {
    let crate::app::rows::RowId::Trial(key) = &row.id else { return None };
    let joined = model.servers.joined.get(key)?;
    let seconds = joined.since.map(|at| time::age(at, model.now).as_secs_f64());
    let long = seconds.filter(|s| *s >= 60.0).map(minutes);
    let mark = if joined.inferred { " ~" } else { "" };
    // The longest wording that fits.
    let fits = |words: &[String]| words.iter().find(|w| width(w) + width(mark) <= room).or(words.last()).cloned();
    let with = |word: &str| match &long {
        Some(long) => vec![format!("{word} {long}"), word.to_string()],
        None => vec![word.to_string()],
    };
    let words = match joined.doing? {
        Doing::Generating => vec!["generating".to_string()],
        Doing::Asked => vec!["no token yet".to_string()],
        Doing::Queued => vec!["queued at server".to_string(), "at queue".to_string()],
        Doing::Thinking => with("think"),
        Doing::Command => with("command"),
        Doing::Endpoint => {
            let how = match joined.endpoint {
                Some(State::Hung) => "endpoint hangs",
                Some(State::Starting | State::Restarting) => "endpoint starts",
                Some(_) => "endpoint down",
                None => "endpoint",
            };
            vec![format!("waiting: {how}"), how.to_string(), "endpoint".to_string()]
        }
        Doing::Verifying => return None,
    };
    let words = fits(&words)?;
    Some(if width(&words) + width(mark) <= room { format!("{words}{mark}") } else { words })
}

/// `38 m`, `2 h 5 m`: seconds say nothing here.
fn minutes(seconds: f64) -> String {
    time::words((seconds / 60.0).floor() * 60.0)
}

/// What the trial itself says that it does: `model 42 s, 1.9k reasoning`, `command 3 s: make -j4`.
fn own_words(row: &Row, model: &Model, room: usize) -> Option<String> {
    let (words, inferred) = works::words_of(model, row)?;
    let long = if works::is_long(model, row) { "! " } else { "" };
    let mark = if inferred { " ~" } else { "" };
    let room = room.saturating_sub(width(long) + width(mark));
    // Some of the tail is worth more than a longer lead.
    let with_tail = words.tail.as_ref().and_then(|tail| {
        let lead = words.leads.iter().find(|lead| width(lead) + 2 + TAIL.min(width(tail)) <= room)?;
        Some(format!("{lead}: {tail}"))
    });
    let whole = with_tail.or_else(|| words.leads.iter().find(|lead| width(lead) <= room).cloned());
    whole.or(words.leads.last().cloned()).map(|words| format!("{long}{words}{mark}"))
}

/// What the trial does, in words that fit into `room` columns.
pub fn phase_words(row: &Row, model: &Model, room: usize) -> String {
    if let Some(words) = own_words(row, model, room) {
        return words;
    }
    match row.phase {
        Phase::AgentRunning(_) if joined_words(row, model, room).is_some() => {
            joined_words(row, model, room).unwrap_or_default()
        }
        // No step for a minute: the model thinks or a command runs, and the files can not say which.
        Phase::AgentRunning(_) => {
            let quiet = row.last_step.map(|at| time::age(at, model.now).as_secs_f64()).filter(|s| *s >= 60.0);
            match quiet {
                Some(seconds) if room >= 13 => format!("quiet {}", time::clock(seconds)),
                Some(_) => "quiet".to_string(),
                None => "agent".to_string(),
            }
        }
        Phase::EnvironmentSetup if room < 11 => "env setup".to_string(),
        Phase::EnvironmentSetup => "environment".to_string(),
        Phase::AgentSetup => if room < 11 { "setup" } else { "agent setup" }.to_string(),
        Phase::TearingDown => if room < 12 { "teardown" } else { "tearing down" }.to_string(),
        Phase::Starting => "starting".to_string(),
        Phase::Verifying => "verifying".to_string(),
        Phase::RetryWait => if room < 13 { "retry" } else { "retry is due" }.to_string(),
        Phase::Done | Phase::Queued | Phase::Orphaned | Phase::Unreadable => {
            let word = match row.outcome {
                Outcome::Error if room < 12 => "error",
                outcome => outcome.word(),
            };
            let whole = format!("{word}, held");
            if row.held && width(&whole) <= room { whole } else { word.to_string() }
        }
    }
}
