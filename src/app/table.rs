//! The trials list: order, selection and window, kept steady while rows change.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::filter::Filter;
use super::rows::{Row, RowId};
use crate::job::{Fleet, JobKey, Phase, Stamp};

/// Seconds without a cursor key after which rows may be sorted anew.
pub const SETTLE_SECONDS: i64 = 2;

/// What the list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum SortKey {
    Phase,
    Task,
    Outcome,
    Elapsed,
    Episodes,
    Output,
    Reward,
    Exception,
    Started,
    Finished,
    Job,
}

impl SortKey {
    /// All keys, for the menu.
    pub const ALL: [SortKey; 11] = [
        SortKey::Phase,
        SortKey::Task,
        SortKey::Outcome,
        SortKey::Elapsed,
        SortKey::Episodes,
        SortKey::Output,
        SortKey::Reward,
        SortKey::Exception,
        SortKey::Started,
        SortKey::Finished,
        SortKey::Job,
    ];

    /// The word in the title and the menu.
    pub fn word(self) -> &'static str {
        match self {
            SortKey::Phase => "phase",
            SortKey::Task => "task",
            SortKey::Outcome => "outcome",
            SortKey::Elapsed => "elapsed",
            SortKey::Episodes => "episodes",
            SortKey::Output => "output tokens",
            SortKey::Reward => "reward",
            SortKey::Exception => "exception type",
            SortKey::Started => "started",
            SortKey::Finished => "finished",
            SortKey::Job => "job",
        }
    }

    /// Whether the order changes with the clock alone.
    fn moves_with_time(self) -> bool {
        self == SortKey::Elapsed
    }
}

/// The list.
#[derive(Debug, Clone)]
pub struct Table {
    /// Sorted by.
    pub sort: SortKey,
    /// Turned round.
    pub inverted: bool,
    /// The filter as typed.
    pub filter_text: String,
    filter: Filter,
    /// Rows that pass the filter: indices into the model's rows, in order.
    pub order: Vec<usize>,
    /// The selected row.
    pub selected: Option<RowId>,
    position: usize,
    /// First row of the window.
    pub top: usize,
    moved: Option<Stamp>,
    /// True while a new order waits for the cursor to rest.
    pub sort_pending: bool,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            sort: SortKey::Phase,
            inverted: false,
            filter_text: String::new(),
            filter: Filter::default(),
            order: Vec::new(),
            selected: None,
            position: 0,
            top: 0,
            moved: None,
            sort_pending: false,
        }
    }
}

impl Table {
    /// Sets the filter; an error leaves the old one in force.
    pub fn set_filter(&mut self, text: &str) -> Result<(), String> {
        self.filter = Filter::parse(text)?;
        self.filter_text = text.trim().to_string();
        Ok(())
    }

    /// The order, in the words that are kept: what by, turned round.
    pub fn memory(&self) -> (String, bool) {
        (self.sort.word().to_string(), self.inverted)
    }

    /// Position of the selection in the order, when it is there.
    pub fn position(&self) -> Option<usize> {
        (!self.order.is_empty()).then(|| self.position.min(self.order.len() - 1))
    }

    /// The selected row.
    pub fn selected_row<'a>(&self, rows: &'a [Row]) -> Option<&'a Row> {
        rows.get(*self.order.get(self.position()?)?)
    }

    /// Takes in changed rows: filters, sorts (or keeps the old order while the cursor moves) and
    /// finds the selection again.
    pub fn refresh(&mut self, rows: &[Row], fleet: &Fleet, now: Stamp, force_sort: bool) {
        let resting = self.moved.is_none_or(|m| now.duration_since(m).as_secs() >= SETTLE_SECONDS);
        let names: HashMap<JobKey, &str> = fleet.jobs().iter().map(|j| (j.key, &*j.facts.name)).collect();
        let passes =
            |row: &Row| self.filter.is_empty() || self.filter.matches(row, names.get(&row.job).copied().unwrap_or(""));
        if force_sort || resting || self.order.is_empty() {
            self.order = rows.iter().enumerate().filter(|(_, r)| passes(r)).map(|(i, _)| i).collect();
            let (sort, inverted) = (self.sort, self.inverted);
            self.order.sort_by(|a, b| match (rows.get(*a), rows.get(*b)) {
                (Some(x), Some(y)) => {
                    let by_key = compare(sort, x, y, now);
                    let by_key = if inverted { by_key.reverse() } else { by_key };
                    by_key.then_with(|| x.task.cmp(&y.task)).then_with(|| x.id.cmp(&y.id))
                }
                _ => Ordering::Equal,
            });
            self.sort_pending = false;
        }
        self.find_selection(rows);
    }

    /// Like [`Table::refresh`] when the rows were rebuilt while the cursor moves: keeps the order by
    /// identity, adds new rows at the end.
    pub fn carry_over(&mut self, old: &[Row], rows: &[Row], fleet: &Fleet, now: Stamp) {
        let resting = self.moved.is_none_or(|m| now.duration_since(m).as_secs() >= SETTLE_SECONDS);
        if resting {
            return self.refresh(rows, fleet, now, true);
        }
        let names: HashMap<JobKey, &str> = fleet.jobs().iter().map(|j| (j.key, &*j.facts.name)).collect();
        let rank: HashMap<&RowId, usize> =
            self.order.iter().enumerate().filter_map(|(at, i)| old.get(*i).map(|r| (&r.id, at))).collect();
        let mut order: Vec<usize> = rows
            .iter()
            .enumerate()
            .filter(|(_, r)| self.filter.is_empty() || self.filter.matches(r, names.get(&r.job).copied().unwrap_or("")))
            .map(|(i, _)| i)
            .collect();
        order.sort_by_key(|i| rows.get(*i).and_then(|r| rank.get(&r.id).copied()).unwrap_or(usize::MAX));
        self.order = order;
        self.sort_pending = true;
        self.find_selection(rows);
    }

    fn find_selection(&mut self, rows: &[Row]) {
        let wanted = self.selected.as_ref();
        let here = |at: usize| self.order.get(at).and_then(|i| rows.get(*i)).map(|r| &r.id);
        if wanted.is_some() && here(self.position) == wanted {
            return;
        }
        let found = wanted
            .and_then(|id| self.order.iter().position(|i| rows.get(*i).is_some_and(|r| r.id == *id || became(id, r))));
        // A row that went away leaves the cursor where it was.
        self.position = found.unwrap_or_else(|| self.position.min(self.order.len().saturating_sub(1)));
        self.selected = self.order.get(self.position).and_then(|i| rows.get(*i)).map(|r| r.id.clone());
    }

    /// Moves the cursor by `by` rows.
    pub fn step(&mut self, by: isize, rows: &[Row], now: Stamp) {
        let at = self.position().unwrap_or(0).saturating_add_signed(by);
        self.go(at, rows, now);
    }

    /// Moves the cursor to a position, clamped.
    pub fn go(&mut self, at: usize, rows: &[Row], now: Stamp) {
        self.position = at.min(self.order.len().saturating_sub(1));
        self.selected = self.order.get(self.position).and_then(|i| rows.get(*i)).map(|r| r.id.clone());
        self.moved = Some(now);
    }

    /// Selects a row by identity, if it is in the order.
    pub fn select(&mut self, id: &RowId, rows: &[Row], now: Stamp) -> bool {
        let found = self.order.iter().position(|i| rows.get(*i).is_some_and(|r| r.id == *id));
        if let Some(at) = found {
            self.go(at, rows, now);
        }
        found.is_some()
    }

    /// Scrolls so that the cursor is inside a window of `height` rows; returns the window's range.
    pub fn window(&mut self, height: usize) -> std::ops::Range<usize> {
        let at = self.position().unwrap_or(0);
        if height == 0 {
            return 0..0;
        }
        if at < self.top {
            self.top = at;
        } else if at >= self.top + height {
            self.top = at + 1 - height;
        }
        self.top = self.top.min(self.order.len().saturating_sub(height));
        self.top..(self.top + height).min(self.order.len())
    }

    /// The same range for a drawing that must not change anything.
    pub fn visible(&self, height: usize) -> std::ops::Range<usize> {
        self.clone_window().window(height)
    }

    fn clone_window(&self) -> Window {
        Window { at: self.position().unwrap_or(0), top: self.top, len: self.order.len() }
    }

    /// Whether a resort is due as time goes by.
    pub fn wants_tick(&self) -> bool {
        self.sort_pending || self.sort.moves_with_time()
    }
}

struct Window {
    at: usize,
    top: usize,
    len: usize,
}

impl Window {
    fn window(&self, height: usize) -> std::ops::Range<usize> {
        if height == 0 {
            return 0..0;
        }
        let mut top = self.top;
        if self.at < top {
            top = self.at;
        } else if self.at >= top + height {
            top = self.at + 1 - height;
        }
        top = top.min(self.len.saturating_sub(height));
        top..(top + height).min(self.len)
    }
}

/// A queued slot that got its trial is the same thing to the eye.
fn became(id: &RowId, row: &Row) -> bool {
    match (id, &row.id) {
        (RowId::Slot(job, label), RowId::Trial(key)) => {
            *job == key.job && label.split(['#', '@']).next() == Some(&*row.task) && row.phase.is_running()
        }
        _ => false,
    }
}

fn phase_rank(phase: Phase) -> u8 {
    match phase {
        Phase::AgentRunning(_) => 0,
        Phase::Verifying => 1,
        Phase::TearingDown => 2,
        Phase::AgentSetup => 3,
        Phase::EnvironmentSetup => 4,
        Phase::Starting => 5,
        Phase::RetryWait => 6,
        Phase::Unreadable => 7,
        Phase::Orphaned => 8,
        Phase::Done => 9,
        Phase::Queued => 10,
    }
}

/// Unknown comes last in every order that is not turned round.
fn known_first<T: PartialOrd>(a: Option<T>, b: Option<T>, order: fn(&T, &T) -> Ordering) -> Ordering {
    match (a, b) {
        (Some(x), Some(y)) => order(&x, &y),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

fn compare(sort: SortKey, a: &Row, b: &Row, now: Stamp) -> Ordering {
    fn up<T: PartialOrd>(x: &T, y: &T) -> Ordering {
        x.partial_cmp(y).unwrap_or(Ordering::Equal)
    }
    fn down<T: PartialOrd>(x: &T, y: &T) -> Ordering {
        y.partial_cmp(x).unwrap_or(Ordering::Equal)
    }
    match sort {
        SortKey::Phase => phase_rank(a.phase).cmp(&phase_rank(b.phase)).then_with(|| match a.phase {
            Phase::Done => a.outcome.cmp(&b.outcome).then_with(|| known_first(a.finished, b.finished, down)),
            _ => known_first(a.started, b.started, up),
        }),
        SortKey::Task => a.task.cmp(&b.task),
        SortKey::Outcome => a.outcome.cmp(&b.outcome),
        SortKey::Elapsed => known_first(a.timing.map(|t| t.elapsed(now)), b.timing.map(|t| t.elapsed(now)), down),
        SortKey::Episodes => known_first(a.episodes, b.episodes, down),
        SortKey::Output => known_first(a.output_tokens, b.output_tokens, down),
        SortKey::Reward => known_first(a.reward, b.reward, up),
        SortKey::Exception => known_first(a.exception.as_deref(), b.exception.as_deref(), up),
        SortKey::Started => known_first(a.started, b.started, down),
        SortKey::Finished => known_first(a.finished, b.finished, down),
        SortKey::Job => a.job.cmp(&b.job),
    }
}
