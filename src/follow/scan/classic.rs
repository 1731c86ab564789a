//! A job that is a run of classic terminal-bench: its own files and the list of its trials.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Instant;

use super::super::Out;
use super::super::probe::{Memory, STABLE, Seen, Sighting};
use super::{Env, Followed};
use crate::harbor::dir::Dir;

impl Followed {
    /// Reads those of the run's own files that changed; looks at trials of which they say something else.
    pub(super) fn read_classic(&mut self, dir: &Dir, env: &Env, last: bool, out: &mut Out<'_>) {
        let Some(mut run) = self.classic.take() else { return };
        self.files_due = None;
        let look = run.look_at_own(dir, &self.path, &env.counters, last);
        self.classic = Some(run);
        self.saw(look.newest, out);
        if look.torn {
            self.files_due = Some(Instant::now() + STABLE);
        }
        if let Some(facts) = look.facts
            && facts != self.own
        {
            self.own = facts;
            self.facts_changed = true;
        }
        self.emit_facts(out);
        let known: Vec<OsString> = look.changed.into_iter().filter(|name| self.trials.contains_key(name)).collect();
        for name in &known {
            if let Some(slot) = self.trials.get_mut(name) {
                // What was read of it before counts no more.
                slot.memory.done = false;
                slot.memory.result = None;
            }
        }
        if !known.is_empty() {
            self.look_at(dir, env, &known, last, out);
        }
    }

    /// Compares the trials of the run with those known.
    pub(super) fn list_classic(&mut self, dir: &Dir, env: &Env, last: bool, out: &mut Out<'_>) {
        let there: BTreeSet<OsString> = self.classic.as_ref().map(|run| run.trials()).unwrap_or_default();
        let gone: Vec<OsString> = self.trials.keys().filter(|n| !there.contains(*n)).cloned().collect();
        let new: Vec<OsString> = there.into_iter().filter(|n| !self.trials.contains_key(n)).collect();
        for name in gone {
            self.apply(&name, Memory::default(), Sighting::of(Seen::Gone), out);
        }
        self.look_at(dir, env, &new, last, out);
    }
}
