//! The answer lines: is it all right, what needs me.

use ratatui::text::Line;

use super::fit::{Piece, piece, short, spread};
use super::style::Pen;
use crate::app::action::Context;
use crate::app::helm::Stopping;
use crate::app::model::{Model, Room};
use crate::app::rows::Outcome;
use crate::job::fleet::StateKind;
use crate::job::tally::{TokenSum, Totals};
use crate::job::{Job, JobState, time};

/// The lines on top of every view: identity and state, counts and scores, attention.
pub fn lines(model: &Model, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    if model.room() == Room::Compact {
        return vec![
            identity(model, pen, columns),
            spread(scores(model, pen), tokens(model, pen), " ", columns, pen),
            spread(counts(model, pen, false), Vec::new(), " ", columns, pen),
            attention(model, pen, columns, false),
        ];
    }
    let scores = scores(model, pen);
    let named = counts(model, pen, true);
    let total = |pieces: &[Piece]| pieces.iter().map(|p| super::fit::width(&p.text) + 2).sum::<usize>();
    let mut lines = vec![identity(model, pen, columns)];
    if total(&named) + total(&scores) <= columns {
        lines.push(spread(named, scores, "  ", columns, pen));
        lines.push(attention(model, pen, columns, true));
        return lines;
    }
    lines.push(spread(scores, tokens(model, pen), "  ", columns, pen));
    // Words rather than signs alone, on two lines where the rows below them are a list.
    let split = fitting(&named, columns);
    if split == named.len() {
        lines.push(spread(named, Vec::new(), "  ", columns, pen));
    } else if total(&named) <= columns + named.len() + 1 {
        lines.push(spread(named, Vec::new(), " ", columns, pen));
    } else if model.context() == Context::List && fitting(&named[split..], columns) == named.len() - split {
        let second = named[split..].to_vec();
        let first = named[..split].to_vec();
        lines.push(spread(first, Vec::new(), "  ", columns, pen));
        lines.push(spread(second, Vec::new(), "  ", columns, pen));
    } else {
        lines.push(spread(counts(model, pen, false), Vec::new(), "  ", columns, pen));
    }
    lines.push(attention(model, pen, columns, false));
    lines
}

/// How many pieces fit into one line.
fn fitting(pieces: &[Piece], columns: usize) -> usize {
    let mut used = 0;
    let fits = |p: &&Piece| {
        used += super::fit::width(&p.text) + 2;
        used <= columns + 2
    };
    pieces.iter().take_while(fits).count()
}

/// Everything in one line, for a terminal that has room for nothing else.
pub fn one_line(model: &Model, pen: Pen, columns: usize) -> Line<'static> {
    let mut pieces = vec![state_piece(model, pen)];
    let totals = totals(model);
    pieces.push(piece(format!("{}/{}", totals.passed, totals.planned), pen.strong(), 0));
    if !model.derived.attention.is_empty() {
        pieces.push(piece(format!("! {}", model.derived.attention.len()), pen.alarm(), 1));
    }
    pieces.push(piece("too small: 40x12", pen.dim(), 2));
    spread(pieces, Vec::new(), " ", columns, pen)
}

fn identity(model: &Model, pen: Pen, columns: usize) -> Line<'static> {
    let mut left = Vec::new();
    let mut words = Vec::new();
    match model.fleet.jobs() {
        [] => left.push(piece(
            match model.fleet.problems.first() {
                None if model.jobs.home => "all jobs: Enter opens one".to_string(),
                Some(problem) => format!("no job: {}: {}", problem.path, problem.message),
                None => "waiting for a job to appear".to_string(),
            },
            pen.strong(),
            0,
        )),
        [job] => {
            left.push(piece(job.facts.name.to_string(), pen.strong(), 0));
            words = facts(job);
        }
        jobs => {
            left.push(piece(format!("{} jobs", jobs.len()), pen.strong(), 0));
            let mut names: Vec<&str> = jobs.iter().map(|j| &*j.facts.name).collect();
            names.dedup();
            left.push(piece(names.join(", "), pen.dim(), 3));
            if let Some(tally) = &model.derived.tally {
                let how = match tally.merge.how {
                    Some(how) => format!("merged as {}", how.word()),
                    None => "side by side".to_string(),
                };
                left.push(piece(how, pen.dim(), 2));
            }
        }
    }
    let mut right = vec![state_piece(model, pen)];
    let slots = slots(model, pen);
    if model.room() == Room::Compact && model.steer.holds() && stopping(model) {
        // The name needs the room more than how long it has run.
        right.clear();
    }
    right.extend(slots);
    // What is being stopped does not end when all of it would.
    if let Some(eta) = model.derived.eta.as_ref().filter(|_| !stopping(model)) {
        let text = match (eta.low_s.map(time::words), eta.high_s.map(time::words)) {
            (Some(low), Some(high)) if low == high => format!("ETA {high}"),
            (Some(low), Some(high)) => format!("ETA {low} - {high}"),
            (Some(low), None) => format!("ETA {low} or more"),
            (None, Some(high)) => format!("ETA at most {high}"),
            (None, None) => "ETA -".to_string(),
        };
        right.push(piece(text, pen.text(), 1));
    }
    // As many facts of the job as there is room for, whole ones.
    let used: usize = left.iter().chain(&right).map(|p| super::fit::width(&p.text) + 2).sum();
    let dot = format!(" {} ", pen.dot());
    while !words.is_empty() && used + super::fit::width(&words.join(&dot)) > columns {
        words.pop();
    }
    if !words.is_empty() {
        left.push(piece(words.join(&dot), pen.dim(), 3));
    }
    spread(left, right, "  ", columns, pen)
}

fn stopping(model: &Model) -> bool {
    model.steer.crew.is_some_and(|c| c.stopping != Stopping::No)
}

/// The trial slots of a job that this process runs: `4/4 running, n 4`.
fn slots(model: &Model, pen: Pen) -> Option<Piece> {
    let crew = model.steer.at_work()?;
    let n = model.steer.wanted.unwrap_or(crew.slots);
    let compact = model.room() == Room::Compact;
    let running = crew.running + crew.waiting;
    let (text, style) = match crew.stopping {
        Stopping::No if crew.paused && compact => ("paused".to_string(), pen.alarm()),
        Stopping::No if crew.paused => (format!("paused, {running} running, n {n}"), pen.alarm()),
        Stopping::No if !model.steer.shut.is_empty() && compact => (format!("waits, n {n}"), pen.alarm()),
        Stopping::No if !model.steer.shut.is_empty() => (format!("waits, {running} running, n {n}"), pen.alarm()),
        Stopping::No if compact => (format!("n {n}"), pen.text()),
        // Fewer slots than trials at work: the fraction would be nonsense.
        Stopping::No if running > n => (format!("{running} running, n {n}"), pen.strong()),
        Stopping::No => match (crew.limit, crew.settled, crew.agents) {
            (Some(limit), true, _) => (format!("{running}/{n} slots, settled at {limit}"), pen.strong()),
            (Some(limit), false, _) => (format!("{running}/{n} slots, at most {limit} now"), pen.strong()),
            (None, _, Some((agents, at_work))) => {
                (format!("{running}/{n} slots, {at_work}/{agents} agents"), pen.text())
            }
            (None, _, None) => (format!("{running}/{n} slots"), pen.text()),
        },
        Stopping::Draining => (format!("draining, {running} to end"), pen.strong()),
        Stopping::Cancelling => (format!("stopping, {running} to end"), pen.alarm()),
        Stopping::Hurrying => (format!("stopping at once, {running} to end"), pen.alarm()),
    };
    Some(piece(text, style, 0))
}

/// Agents, models, datasets, version: the dearest first.
fn facts(job: &Job) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let join = |list: &[std::sync::Arc<str>]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>().join("+");
    for list in [&job.facts.agents, &job.facts.models, &job.facts.datasets] {
        if !list.is_empty() {
            words.push(join(list));
        }
    }
    if let Some(version) = &job.facts.harbor_version {
        let harness = if job.facts.layout.is_classic() { job.facts.harness.word() } else { "harbor" };
        words.push(format!("{harness} {version}"));
    }
    words
}

/// Glyph, word, age of a job's state.
pub fn state_words(job: &Job, state: &JobState, model: &Model, pen: Pen) -> (String, ratatui::style::Style) {
    let (unicode, ascii, style) = match state.kind {
        StateKind::Reading => ("◌", ".", pen.dim()),
        StateKind::Running => ("●", "*", pen.good()),
        StateKind::Finished => ("■", "=", pen.strong()),
        StateKind::Interrupted => ("◼", "!", pen.alarm()),
        StateKind::Dead => ("✝", "!", pen.alarm()),
        StateKind::Unreachable => ("?", "?", pen.alarm()),
    };
    // Also of a job that says it is finished: the counts beside it are not yet those of the end.
    let reading = state.kind == StateKind::Reading || (!job.settled && state.kind != StateKind::Unreachable);
    let (unicode, ascii, style) = if reading { ("◌", ".", pen.dim()) } else { (unicode, ascii, style) };
    let glyph = if pen.look.ascii { ascii } else { unicode };
    let mark = if state.inferred { "~" } else { "" };
    let summary = job.facts.summary.as_ref();
    let start = job.facts.created.or_else(|| summary.and_then(|s| s.started));
    let ended_after = || {
        let ends = job.trials.values().filter_map(|t| t.result.as_ref()?.finished).max();
        start.zip(ends).and_then(|(from, to)| time::seconds_between(from, to))
    };
    let word = state.kind.word();
    let text = match state.kind {
        _ if reading => match job.scanning {
            Some((read, known)) => format!("{glyph} reading {read}/{known}"),
            None => format!("{glyph} reading"),
        },
        StateKind::Running => match start.and_then(|from| time::seconds_between(from, model.now)) {
            Some(seconds) => format!("{glyph} {word}{mark} {}", time::words(seconds)),
            None => format!("{glyph} {word}{mark}"),
        },
        StateKind::Finished => match ended_after() {
            Some(seconds) => format!("{glyph} {word}{mark} in {}", time::words(seconds)),
            None => format!("{glyph} {word}{mark}"),
        },
        _ => match job.liveness.last_write {
            Some(last) => {
                let age = time::words(time::age(last, model.now).as_secs_f64());
                // On a narrow screen the name needs the room more than the explanation.
                match model.room() {
                    Room::Compact => format!("{glyph} {word}{mark} {age}"),
                    _ => format!("{glyph} {word}{mark}, last write {age} ago"),
                }
            }
            None => format!("{glyph} {word}{mark}"),
        },
    };
    (text, style)
}

fn state_piece(model: &Model, pen: Pen) -> Piece {
    match model.fleet.jobs() {
        [] => piece("no job", pen.dim(), 0),
        [job] => match model.derived.state(job.key) {
            Some(state) => {
                let (text, style) = state_words(job, state, model, pen);
                piece(text, style, 0)
            }
            None => piece("reading", pen.dim(), 0),
        },
        _ => {
            let mut parts = Vec::new();
            let mut worst = pen.strong();
            for kind in [
                StateKind::Unreachable,
                StateKind::Dead,
                StateKind::Interrupted,
                StateKind::Reading,
                StateKind::Running,
                StateKind::Finished,
            ] {
                let n = model.derived.states.iter().filter(|(_, s)| s.kind == kind).count();
                if n > 0 {
                    if parts.is_empty()
                        && matches!(kind, StateKind::Unreachable | StateKind::Dead | StateKind::Interrupted)
                    {
                        worst = pen.alarm();
                    }
                    parts.push(format!("{n} {}", kind.word()));
                }
            }
            piece(parts.join(", "), worst, 0)
        }
    }
}

fn counts(model: &Model, pen: Pen, words: bool) -> Vec<Piece> {
    let mut out = Vec::new();
    for outcome in Outcome::ALL {
        let n = model.derived.count(outcome);
        if n == 0 {
            continue;
        }
        let glyph = pen.glyph(outcome);
        let text = if words { format!("{glyph} {n} {}", outcome.word()) } else { format!("{glyph} {n}") };
        out.push(piece(text, pen.outcome(outcome), 0));
    }
    if out.is_empty() {
        let reading = model.fleet.jobs().iter().any(|j| !j.settled);
        out.push(piece(if reading { "reading" } else { "no trials yet" }, pen.dim(), 0));
    }
    out
}

/// `12 %`, with one decimal.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_string() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

fn totals(model: &Model) -> Totals {
    model.derived.tally.as_ref().map(|t| t.totals).unwrap_or_default()
}

fn scores(model: &Model, pen: Pen) -> Vec<Piece> {
    let board = totals(model);
    let so_far = if board.finished < board.planned { " so far" } else { "" };
    vec![
        piece(
            format!("graded {}/{} {}", board.passed, board.graded, percent(board.passed, board.graded)),
            pen.text(),
            1,
        ),
        piece(
            format!("raw {}/{} {}{so_far}", board.passed, board.planned, percent(board.passed, board.planned)),
            pen.strong(),
            0,
        ),
    ]
}

fn tokens(model: &Model, pen: Pen) -> Vec<Piece> {
    let Some(TokenSum { sum, known, of, live }) = model.derived.tally.as_ref().map(|t| t.tokens) else {
        return Vec::new();
    };
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_string(), short);
    let live = (!live.is_unknown())
        .then(|| piece(format!("at work {} in, {} out", number(live.input), number(live.output)), pen.dim(), 3));
    if of == 0 {
        return live.into_iter().collect();
    }
    let ended = [
        piece(
            format!("tokens {} in, {} cached, {} out", number(sum.input), number(sum.cache), number(sum.output)),
            pen.dim(),
            2,
        ),
        piece(format!("known for {known} of {of}"), pen.dim(), 2),
    ];
    ended.into_iter().chain(live).collect()
}

fn attention(model: &Model, pen: Pen, columns: usize, with_tokens: bool) -> Line<'static> {
    let items = &model.derived.attention;
    let over = model.steer.over.as_ref();
    let left = match items.first() {
        _ if over.is_some_and(|o| o.broken) => {
            let words = over.map(|o| o.words.clone()).unwrap_or_default();
            vec![piece("!", pen.alarm(), 0), piece(words, pen.alarm(), 0)]
        }
        None if over.is_some() => {
            let words = over.map(|o| o.words.clone()).unwrap_or_default();
            vec![piece(words, pen.strong(), 0)]
        }
        None => vec![piece("nothing needs you", pen.dim(), 0)],
        Some(first) => {
            let shown = items.get(model.attention_at.saturating_sub(1).min(items.len() - 1)).unwrap_or(first);
            vec![piece(format!("! {}", items.len()), pen.alarm(), 0), piece(shown.text.clone(), pen.text(), 0)]
        }
    };
    let right = if with_tokens { tokens(model, pen) } else { Vec::new() };
    spread(left, right, "  ", columns, pen)
}
