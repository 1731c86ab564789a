//! What classes and verdicts make of the count. Neither changes what was counted: both lie over it.

use std::collections::HashMap;

use super::class::Class;
use super::outcome::Grade;
use super::phase::Phase;
use super::regrade::Regrades;
use super::scores::{Corrected, Excluded};
use super::slots::Standing;
use super::tally::{Count, Fate};
use super::time::Stamp;
use super::trial::Trial;
use super::verdict::{Verdict, Word};

impl Count<'_> {
    fn trial(&self, known: usize) -> Option<&Trial> {
        self.known.get(known).map(|k| k.trial)
    }

    fn passed(&self, known: usize) -> bool {
        self.trial(known).and_then(|t| t.result.as_ref()).is_some_and(|r| r.grade() == Grade::Passed)
    }

    /// Whether it passed, by its regrade where such count and it has one; what that changes is counted.
    fn passed_with(&self, known: usize, out: &mut Corrected) -> bool {
        let passed = self.passed(known);
        let regrade = self.trial(known).and_then(Trial::regrade);
        let Some(regrade) = regrade else { return passed };
        if self.regrades == Regrades::Ignore {
            out.regrades_ignored += 1;
            return passed;
        }
        let now = Grade::of(regrade.reward()) == Grade::Passed;
        out.regraded += 1;
        out.regraded_up += u64::from(now && !passed);
        out.regraded_down += u64::from(!now && passed);
        now
    }

    /// The last word on a trial, of all copies of its job's journal.
    pub(super) fn word(&self, known: usize) -> Option<&Word> {
        let k = self.known.get(known)?;
        let states = std::iter::once((k.job, k.trial)).chain(k.others.iter().map(|(job, trial)| (*job, *trial)));
        let id = |t: &Trial| t.result.as_ref().and_then(|r| r.id.clone());
        let words = states.filter(|(_, trial)| id(trial) == id(k.trial)).filter_map(|(job, trial)| {
            let notebook = &self.fleet.jobs().get(job)?.notebook;
            if notebook.is_empty() { None } else { notebook.last_word(trial) }
        });
        words.max_by_key(|word| word.time)
    }

    /// True when it was run again for a reason that somebody wrote down.
    pub(super) fn requeued(&self, known: usize) -> bool {
        let Some(k) = self.known.get(known) else { return false };
        let mut states = std::iter::once((k.job, k.trial)).chain(k.others.iter().map(|(job, trial)| (*job, *trial)));
        states.any(|(job, trial)| self.fleet.jobs().get(job).is_some_and(|job| job.notebook.requeued(trial).is_some()))
    }

    /// The chosen trials by class, as far as it is known. What the files themselves tell (stopped,
    /// phantom, orphaned) needs no class.
    pub(super) fn excluded(&self) -> Excluded {
        let mut out = Excluded::default();
        for by in self.merged.iter().filter_map(|m| m.by) {
            let (Some(k), Some(phase)) = (self.known.get(by), self.phases.get(by)) else { continue };
            let result = k.trial.result.as_deref();
            let ended = result.is_some() || matches!(phase, Phase::Orphaned | Phase::Unreadable);
            if !ended || self.passed(by) {
                continue;
            }
            out.of += 1;
            let plain = match result {
                Some(r) if r.is_phantom() => Some(Class::Phantom),
                Some(r) if r.is_cancelled() => Some(Class::Cancelled),
                None if *phase == Phase::Orphaned => Some(Class::Orphaned),
                _ => None,
            };
            let said = self.fleet.jobs().get(k.job).and_then(|job| job.class_of(k.trial)).map(|c| c.class);
            let class = said.or(plain);
            out.known += u64::from(class.is_some());
            out.infra += u64::from(class == Some(Class::Infra));
            out.excluded += u64::from(class.is_some_and(Class::is_excluded));
        }
        out
    }

    /// The count with the verdicts: what counts as passed, what is taken out, and where infra was
    /// confirmed, the later trial of the slot that was scored.
    pub(super) fn corrected(&self) -> Corrected {
        let mut out = Corrected { planned: self.planned(), ..Corrected::default() };
        let mut later: HashMap<usize, Vec<usize>> = HashMap::new();
        for (known, fate) in self.fates.iter().enumerate() {
            if let Fate::Lost { slot, .. } = fate
                && self.standing(known) == Standing::Scored
            {
                later.entry(*slot).or_default().push(known);
            }
        }
        for (slot, merged) in self.merged.iter().enumerate() {
            let Some(by) = merged.by else { continue };
            let mut decisive = by;
            let mut verdict = self.word(by).and_then(|w| w.verdict);
            out.verdicts += u64::from(verdict.is_some());
            while verdict == Some(Verdict::InfraConfirmed)
                && let Some(next) = self.next(decisive, later.get(&slot).map_or(&[], Vec::as_slice))
            {
                decisive = next;
                verdict = self.word(next).and_then(|w| w.verdict);
                out.verdicts += u64::from(verdict.is_some());
            }
            out.later += u64::from(decisive != by);
            let passed = self.passed_with(decisive, &mut out);
            match verdict {
                Some(Verdict::TaskInvalid) => {
                    out.invalid += 1;
                    out.planned = out.planned.saturating_sub(1);
                }
                Some(Verdict::CountsAsPassed) if !passed => {
                    out.as_passed += 1;
                    out.passed += 1;
                }
                _ => out.passed += u64::from(passed),
            }
        }
        out
    }

    /// The first of these that started after a trial.
    fn next(&self, known: usize, others: &[usize]) -> Option<usize> {
        let after = self.started(known)?;
        let starts = |other: &usize| -> Option<(Stamp, usize)> { Some((self.started(*other)?, *other)) };
        others.iter().filter_map(starts).filter(|(start, _)| *start > after).min().map(|(_, other)| other)
    }
}
