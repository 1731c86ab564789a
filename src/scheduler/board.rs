//! The board: what the agents of running trials do now. Written by them, read by whoever shows it.
//!
//! There is no queue: a reader sees the state of the moment, as often as it looks, and what nobody reads
//! costs nothing but the cell that it is kept in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::job::work::Work;

type Cell = Arc<Mutex<Work>>;

/// The board of one job; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Board {
    cells: Arc<Mutex<BTreeMap<Arc<str>, Cell>>>,
}

/// A trial's place on the board, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    board: Board,
    trial: Arc<str>,
    cell: Cell,
}

/// What changed for one trial: what it does now; None: it is not at work any more.
pub type Change = (Arc<str>, Option<Work>);

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can be left half-changed.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Takes a place for a trial.
    pub(super) fn sit(&self, trial: &str, cell: Cell) -> Seat {
        let trial: Arc<str> = trial.into();
        locked(&self.cells).insert(Arc::clone(&trial), Arc::clone(&cell));
        Seat { board: self.clone(), trial, cell }
    }

    /// What every trial at work does that has told it, by name.
    pub fn read(&self) -> Vec<(Arc<str>, Work)> {
        Reader::new(self.clone()).changes().into_iter().filter_map(|(name, work)| Some((name, work?))).collect()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut cells = locked(&self.board.cells);
        // A later attempt may have taken its place.
        if cells.get(&self.trial).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell)) {
            cells.remove(&self.trial);
        }
    }
}

/// One who reads the board again and again, and wants to hear only what changed since.
#[derive(Debug)]
pub struct Reader {
    board: Board,
    told: BTreeMap<Arc<str>, Work>,
}

impl Reader {
    /// One who has heard nothing yet.
    pub fn new(board: Board) -> Reader {
        Reader { board, told: BTreeMap::new() }
    }

    /// What changed since the last time, in order of the names, fit to be shown.
    pub fn changes(&mut self) -> Vec<Change> {
        let cells: Vec<(Arc<str>, Cell)> =
            locked(&self.board.cells).iter().map(|(name, cell)| (Arc::clone(name), Arc::clone(cell))).collect();
        let mut out: Vec<Change> = Vec::new();
        self.told.retain(|name, _| {
            let there = cells.binary_search_by(|(at, _)| at.cmp(name)).is_ok();
            if !there {
                out.push((Arc::clone(name), None));
            }
            there
        });
        for (name, cell) in cells {
            let work = {
                let work = locked(&cell);
                let known = self.told.get(&name);
                // When it was told says nothing where the rest is the same.
                if work.told.is_none() || known.is_some_and(|known| known.told == work.told || same(known, &work)) {
                    continue;
                }
                work.clone()
            };
            self.told.insert(Arc::clone(&name), work.clone());
            out.push((name, Some(work.shown())));
        }
        out.sort_by(|(a, _), (b, _)| a.cmp(b));
        out
    }
}

/// Whether two differ in nothing but when they were told.
fn same(a: &Work, b: &Work) -> bool {
    let Work { episode, doing, tokens, context, rate, rid, retries, analysis, plan, told: _ } = a;
    *episode == b.episode
        && *doing == b.doing
        && *tokens == b.tokens
        && *context == b.context
        && *rate == b.rate
        && *rid == b.rid
        && *retries == b.retries
        && *analysis == b.analysis
        && *plan == b.plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Stamp;
    use crate::job::work::Doing;

    fn cell() -> Cell {
        Arc::default()
    }

    fn tell(cell: &Cell, second: i64, doing: Doing) {
        let told = Stamp::from_second(second).ok();
        *locked(cell) = Work { doing, told, ..Work::default() };
    }

    fn names(changes: &[Change]) -> Vec<(&str, bool)> {
        changes.iter().map(|(name, work)| (&**name, work.is_some())).collect()
    }

    #[test]
    fn only_what_changed_is_heard() {
        let board = Board::default();
        let (a, b) = (cell(), cell());
        let first = board.sit("a", Arc::clone(&a));
        let _second = board.sit("b", Arc::clone(&b));
        let mut reader = Reader::new(board.clone());
        assert!(reader.changes().is_empty(), "nothing was told yet");
        tell(&b, 1, Doing::Setup);
        tell(&a, 1, Doing::Setup);
        assert_eq!(names(&reader.changes()), [("a", true), ("b", true)]);
        assert!(reader.changes().is_empty());
        // Told again, and nothing is different.
        tell(&a, 2, Doing::Setup);
        assert!(reader.changes().is_empty());
        tell(&a, 3, Doing::Done);
        assert_eq!(names(&reader.changes()), [("a", true)]);
        // Another attempt takes its place before the first is gone.
        let again = cell();
        let later = board.sit("a", Arc::clone(&again));
        drop(first);
        tell(&again, 4, Doing::Setup);
        assert_eq!(names(&reader.changes()), [("a", true)]);
        assert_eq!(board.read().len(), 2);
        drop(later);
        assert_eq!(names(&reader.changes()), [("a", false)]);
        assert!(reader.changes().is_empty());
        assert_eq!(board.read().len(), 1);
    }
}
