//! All jobs: one line each, the selected one in full below.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fit::{cut, left, right, width, wrap_words};
use super::pane;
use super::style::Pen;
use crate::app::model::Model;
use crate::job::roster::{Entry, OwnerLine, RootLine, RootState};
use crate::job::{Stamp, StateKind, time};

/// Roots that are told above the list for what is wrong with them.
const WRONG: usize = 3;
/// Room of a state: `◼ unreachable~`.
const STATE: usize = 16;

/// Draws the list.
pub fn draw(model: &Model, pen: Pen, frame: &mut Frame<'_>, area: Rect) {
    let jobs = &model.jobs;
    let (shown, all) = (jobs.list.len(), jobs.all);
    let title = if shown == all { format!("6 Jobs {all}") } else { format!("6 Jobs {shown} of {all}") };
    let filter =
        if jobs.filter_text.is_empty() { "filter none".to_string() } else { format!("filter {}", jobs.filter_text) };
    let inverted = if jobs.inverted { ", turned round" } else { "" };
    let marked = if jobs.marks.is_empty() { String::new() } else { format!("{} marked, ", jobs.marks.len()) };
    let fact = format!("{marked}{filter}, by {}{inverted}", jobs.sort.word());
    let inside = pane(frame, area, pen, true, &title, &fact);
    if inside.height == 0 || inside.width < 8 {
        return;
    }
    let columns = usize::from(inside.width);
    let mut y = inside.y;
    let mut put = |line: Line<'static>, y: &mut u16| {
        if *y < inside.bottom() {
            frame.render_widget(line, Rect { y: *y, height: 1, ..inside });
            *y += 1;
        }
    };
    let wrong: Vec<String> = jobs
        .roster
        .roots
        .iter()
        .filter(|root| jobs.roots.contains(&root.path))
        .filter_map(|root| Some(format!("! {}: {}", root.path.display(), root.needs(model.now)?)))
        .collect();
    for text in wrong.iter().take(WRONG) {
        put(Line::styled(cut(text, columns, pen), pen.alarm()), &mut y);
    }
    if wrong.len() > WRONG {
        let more = format!("! {} more directories can not be read; D lists them", wrong.len() - WRONG);
        put(Line::styled(cut(&more, columns, pen), pen.alarm()), &mut y);
    }
    let table = Columns::plan(model, columns);
    put(Line::styled(table.heading(pen), pen.dim()), &mut y);
    let detail = detail(model, pen, columns);
    let room = inside.bottom().saturating_sub(y);
    let below = u16::try_from(detail.len()).unwrap_or(u16::MAX).min(room / 2);
    let height = usize::from(room - below);
    if jobs.list.is_empty() {
        let text = match (all, jobs.roster.is_complete()) {
            (0, true) => "no job: a adds a directory of jobs to look through",
            (0, false) => "looking",
            _ => "no job passes the filter; F shows all",
        };
        put(Line::styled(cut(text, columns, pen), pen.dim()), &mut y);
        return;
    }
    let at = jobs.position().unwrap_or(0);
    let top = (at + 1).saturating_sub(height);
    for (i, entry) in jobs.list.iter().enumerate().skip(top).take(height) {
        let mut line = table.row(model, entry, pen);
        if i == at {
            line = line.patch_style(pen.selected());
        }
        put(line, &mut y);
    }
    let mut y = inside.bottom() - below;
    for line in detail {
        put(line, &mut y);
    }
}

/// The selected job in full, and how far the looking is.
fn detail(model: &Model, pen: Pen, columns: usize) -> Vec<Line<'static>> {
    let jobs = &model.jobs;
    let mut lines: Vec<(String, Style)> = Vec::new();
    if let Some(entry) = jobs.entry() {
        if let Some(rerun) = &entry.rerun {
            lines.push((format!("! {}", rerun.message), pen.alarm()));
        }
        let named = if entry.label() == *entry.name { String::new() } else { format!("  (job name {})", entry.name) };
        lines.push((format!("{}{named}", entry.dir.display()), pen.text()));
        lines.push((format!("{}: {}", entry.state.kind.word(), entry.state.evidence), pen.dim()));
        let facts = [entry.agents.join("+"), entry.models.join("+"), entry.datasets.join("+")];
        let facts: Vec<&str> = facts.iter().map(String::as_str).filter(|f| !f.is_empty()).collect();
        if !facts.is_empty() {
            lines.push((facts.join(&format!(" {} ", pen.dot())), pen.dim()));
        }
        if !entry.exact && entry.score.is_some() {
            lines.push(("figures: as its own result.json says them".to_string(), pen.dim()));
        }
        let problems = entry.problems.iter().filter(|p| p.kind != crate::job::ProblemKind::Note);
        lines.extend(problems.take(2).map(|p| (format!("{}: {}", p.path, p.message), pen.alarm())));
    }
    if let Some(text) = looked(&jobs.roster.roots, model.now) {
        lines.push((text, pen.dim()));
    } else if jobs.roots.is_empty() {
        lines.push((
            "these are the jobs of this screen; a adds a directory of jobs to look through".to_string(),
            pen.dim(),
        ));
    }
    lines
        .into_iter()
        .flat_map(|(text, style)| wrap_words(&text, columns).into_iter().map(move |l| Line::styled(l, style)))
        .collect()
}

/// How many directories were looked through, and when.
fn looked(roots: &[RootLine], now: Stamp) -> Option<String> {
    let n = roots.len();
    if n == 0 {
        return None;
    }
    let reading = roots.iter().filter(|r| r.state == RootState::Reading && r.silent(now).is_none()).count();
    let oldest = roots
        .iter()
        .filter_map(|r| if let RootState::Read(at) = r.state { Some(time::age(at, now)) } else { None })
        .max();
    let gone = roots.iter().filter(|r| r.state == RootState::Gone).count();
    let n = n - gone;
    let mut text = format!("{n} director{} looked through", if n == 1 { "y" } else { "ies" });
    if reading > 0 {
        text.push_str(&format!(", {reading} not yet"));
    } else if let Some(age) = oldest {
        text.push_str(&format!(", {} ago at the longest", time::words(age.as_secs_f64())));
    }
    if gone > 0 {
        text.push_str(&format!("; {gone} {} not there any more (D forgets)", if gone == 1 { "is" } else { "are" }));
    }
    let left_out: Vec<&str> = roots.iter().filter_map(|r| r.left_out.as_deref()).collect();
    if !left_out.is_empty() {
        text.push_str(&format!("; left out: {}", left_out.join("; ")));
    }
    Some(text)
}

/// Widths; 0 = not shown.
struct Columns {
    /// No percents.
    short: bool,
    name: usize,
    state: usize,
    progress: usize,
    raw: usize,
    graded: usize,
    owner: usize,
    last: usize,
    facts: usize,
}

impl Columns {
    fn plan(model: &Model, total: usize) -> Columns {
        let list = &model.jobs.list;
        let longest = |of: &dyn Fn(&Entry) -> usize| list.iter().map(|e| of(e)).max().unwrap_or(0);
        let name = longest(&|e| width(&e.label())).clamp(4, 40);
        // Mark and sign.
        let mut room = total.saturating_sub(2);
        let keep = name.min(if total < 60 { 14 } else { 20 });
        let mut take = |want: usize| {
            if room > keep + want {
                room -= want + 1;
                want
            } else {
                0
            }
        };
        let state = take(STATE);
        let short = total < 78;
        let raw = take(longest(&|e| width(&raw(e, short))).max(3));
        let progress = take(longest(&|e| width(&progress(e))).max(5));
        let last = take(9);
        let graded = take(longest(&|e| width(&graded(e))).max(6));
        let owner = take(longest(&|e| width(&owner(e.owner.as_ref()))).clamp(5, 26));
        let name = name.min(room);
        let facts = room.saturating_sub(name + 1);
        Columns { short, name, state, progress, raw, graded, owner, last, facts: if facts >= 8 { facts } else { 0 } }
    }

    fn heading(&self, pen: Pen) -> String {
        let mut out = format!("  {}", left("job", self.name, pen));
        for (w, text) in [
            (self.state, left("state", self.state, pen)),
            (self.progress, right("ended", self.progress, pen)),
            (self.raw, right("raw", self.raw, pen)),
            (self.graded, right("graded", self.graded, pen)),
            (self.last, right("written", self.last, pen)),
            (self.owner, left("owner", self.owner, pen)),
            (self.facts, left("agent, model, dataset", self.facts, pen)),
        ] {
            if w > 0 {
                out.push(' ');
                out.push_str(&text);
            }
        }
        out
    }

    fn row(&self, model: &Model, entry: &Entry, pen: Pen) -> Line<'static> {
        let (sign, style) = sign(entry, pen);
        let marked = model.jobs.marks.contains(&entry.dir);
        let mark = if marked { "#" } else { " " };
        let alarm = entry.rerun.is_some();
        let name = if alarm { pen.alarm() } else { pen.strong() };
        let mut spans = vec![
            Span::styled(format!("{sign}{mark}"), style),
            Span::styled(left(&entry.label(), self.name, pen), name),
        ];
        let inferred = if entry.state.inferred { "~" } else { "" };
        let word = match &entry.rerun {
            Some(rerun) => format!("! {} run again", rerun.begun),
            None => format!("{}{inferred}", entry.state.kind.word()),
        };
        let age = entry.last_write.map_or(pen.unknown().to_string(), |at| ago(time::age(at, model.now).as_secs()));
        let facts = [entry.agents.join("+"), entry.models.join("+"), entry.datasets.join("+")];
        let facts: Vec<&str> = facts.iter().map(String::as_str).filter(|f| !f.is_empty()).collect();
        let facts = facts.join(&format!(" {} ", pen.dot()));
        for (w, text, style) in [
            (self.state, left(&word, self.state, pen), if alarm { pen.alarm() } else { style }),
            (self.progress, right(&progress(entry), self.progress, pen), pen.text()),
            (self.raw, right(&raw(entry, self.short), self.raw, pen), pen.text()),
            (self.graded, right(&graded(entry), self.graded, pen), pen.dim()),
            (self.last, right(&age, self.last, pen), pen.dim()),
            (self.owner, left(&owner(entry.owner.as_ref()), self.owner, pen), pen.text()),
            (self.facts, left(&facts, self.facts, pen), pen.dim()),
        ] {
            if w > 0 {
                spans.push(Span::raw(" "));
                spans.push(Span::styled(text, style));
            }
        }
        Line::from(spans)
    }
}

fn sign(entry: &Entry, pen: Pen) -> (&'static str, Style) {
    let (unicode, ascii, style) = match entry.state.kind {
        StateKind::Reading => ("◌", ".", pen.dim()),
        StateKind::Running => ("●", "*", pen.good()),
        StateKind::Finished => ("■", "=", pen.strong()),
        StateKind::Interrupted => ("◼", "!", pen.alarm()),
        StateKind::Dead => ("✝", "!", pen.alarm()),
        StateKind::Unreachable => ("?", "?", pen.alarm()),
    };
    (if pen.look.ascii { ascii } else { unicode }, style)
}

/// `12/89`.
fn progress(entry: &Entry) -> String {
    let n = |n: Option<u64>| n.map_or("-".to_string(), |n| n.to_string());
    format!("{}/{}{}", n(entry.done), n(entry.planned), if entry.is_doubtful() { "~" } else { "" })
}

/// `41/89  46.1 %`, in short `41/89`.
fn raw(entry: &Entry, short: bool) -> String {
    match (entry.score, entry.planned) {
        (Some(score), Some(planned)) if short => format!("{}/{planned}", score.passed),
        (Some(score), Some(planned)) => share(score.passed, planned),
        _ => "-".to_string(),
    }
}

/// `41/58  70.7 %`.
fn graded(entry: &Entry) -> String {
    let least = |at_least: bool| if at_least { "~" } else { "" };
    entry.score.map_or("-".to_string(), |s| format!("{}{}", share(s.passed, s.graded), least(s.at_least)))
}

fn share(n: u64, of: u64) -> String {
    if of == 0 {
        return format!("{n}/{of}");
    }
    format!("{n}/{of} {:>5.1} %", 100.0 * n as f64 / of as f64)
}

/// `harbor 4242`, `pilothouse 17 node3`.
fn owner(owner: Option<&OwnerLine>) -> String {
    match owner {
        Some(owner) => {
            let host = owner.host.as_ref().map(|h| format!(" {h}")).unwrap_or_default();
            format!("{} {}{host}", owner.harness.word(), owner.pid)
        }
        None => "-".to_string(),
    }
}

/// An age in one unit.
fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
