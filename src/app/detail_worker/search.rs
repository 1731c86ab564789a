//! Search through a text that is not loaded: unit by unit, in slices.

use std::fs::File;

use super::pager::{self, BASE, WINDOW};
use super::{OpenTrial, texts};
use crate::app::detail::doc::{DocLine, Mark, Needle, Show};
use crate::app::detail::{Place, Slot};

/// Bytes that are searched between two looks at the requests.
const SLICE: u64 = 4 << 20;

/// A search under way. The text is cut into units (steps, or stretches of a file with what stands
/// above it as the first), which are visited in a circle; the first one comes again at the end for
/// what lies on the other side of the place that the search began at.
#[derive(Debug)]
pub struct Search {
    /// Where.
    pub slot: Slot,
    needle: Needle,
    from: Place,
    back: bool,
    file: Option<(String, File, u64)>,
    units: usize,
    first: usize,
    visited: usize,
}

/// What a slice gave.
#[derive(Debug)]
pub enum Step {
    /// Not found so far; the share that was searched.
    Going(f64),
    /// Over.
    Done {
        /// The match.
        place: Option<Place>,
        /// It lies beyond the end (or the beginning).
        wrapped: bool,
    },
}

impl Search {
    pub(super) fn new(slot: Slot, needle: Needle, from: Place, back: bool, trial: &OpenTrial) -> Search {
        let mut search = Search { slot, needle, from, back, file: None, units: 1, first: 0, visited: 0 };
        match slot {
            Slot::Episode => {}
            Slot::Exception | Slot::Evidence | Slot::About => {}
            Slot::Verifier | Slot::Log | Slot::File => {
                let Ok(dir) = &trial.dir else { return search };
                let path = search.from.path.clone().filter(|_| slot == Slot::File).or_else(|| {
                    let (files, main) = texts::files_of(dir, slot, &trial.order());
                    files.get(search.from.nth.unwrap_or(main)).cloned()
                });
                let opened = path.and_then(|p| Some((p.clone(), dir.open_file(&p).ok()?, dir.stat(&p).ok()?.size)));
                if let Some((_, _, size)) = &opened {
                    search.units = 1 + usize::try_from(size.div_ceil(WINDOW)).unwrap_or(usize::MAX - 1);
                }
                search.file = opened;
                // Found by looking: a line belongs to the unit that it begins in.
                if search.from.offset >= BASE {
                    search.first = 1 + usize::try_from((search.from.offset - BASE) / WINDOW).unwrap_or(0);
                }
            }
        }
        search.first = search.first.min(search.units.saturating_sub(1));
        search
    }

    /// Lines of a unit and the bytes that were read for them.
    fn lines(&self, unit: usize, trial: &OpenTrial) -> (Vec<DocLine>, u64) {
        let Ok(dir) = &trial.dir else { return (Vec::new(), 0) };
        match (self.slot, unit) {
            (Slot::Episode, n) => {
                let head = trial.heads_of(n, 1);
                let lines = trial.steps.doc(n, head.first()).lines;
                let bytes = lines.iter().map(|l| l.text().len() as u64).sum::<u64>() + 4096;
                (lines, bytes)
            }
            (Slot::Exception, _) => (texts::exception(dir, &trial.known).map(|d| d.lines).unwrap_or_default(), 4096),
            (Slot::File, 0) => (Vec::new(), 1),
            (slot, 0) => (trial.head_of(dir, slot, &trial.order()).lines, 4096),
            (_, n) => {
                let Some((_, file, size)) = &self.file else { return (Vec::new(), 1) };
                let from = (n as u64 - 1) * WINDOW;
                let read = pager::lines(file, from, (from + WINDOW).min(*size), *size, |_| Mark::Plain);
                (read.map(|(lines, _, _)| lines).unwrap_or_default(), WINDOW)
            }
        }
    }

    /// Searches on for a while.
    pub(super) fn slice(&mut self, trial: &OpenTrial) -> Step {
        if self.slot == Slot::Episode && self.visited == 0 {
            // Only now: indexing, which comes first, may have found more steps since.
            self.units = trial.steps.len();
            self.first = self.from.step.min(self.units.saturating_sub(1));
        }
        let mut budget = SLICE;
        while budget > 0 {
            if self.visited > self.units || self.units == 0 {
                return Step::Done { place: None, wrapped: false };
            }
            let shift = if self.back { self.units * 2 - self.visited } else { self.visited };
            let unit = (self.first + shift) % self.units;
            let (lines, bytes) = self.lines(unit, trial);
            let (is_first, is_last) = (self.visited == 0, self.visited == self.units);
            let from = &self.from;
            let wanted = |l: &&DocLine| {
                let ahead = if self.back { l.offset < from.offset } else { l.offset > from.offset };
                let ahead = ahead || (from.inclusive && l.offset == from.offset);
                l.show != Show::Folded && (!is_first || ahead) && (!is_last || !ahead) && self.needle.is_in(l.text())
            };
            let hit = if self.back { lines.iter().rfind(wanted) } else { lines.iter().find(wanted) };
            if let Some(line) = hit {
                let wrapped = if self.back { unit > self.first || is_last } else { unit < self.first || is_last };
                let place = Place { step: unit, offset: line.offset, inclusive: false, ..self.from.clone() };
                return Step::Done { place: Some(place), wrapped };
            }
            self.visited += 1;
            budget = budget.saturating_sub(bytes);
        }
        Step::Going(self.visited as f64 / (self.units + 1) as f64)
    }
}
