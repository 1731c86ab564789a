//! The text that grows: the agent's log, then the output of the tests.

use super::super::effect::Effect;
use super::{At, Request, Slot, Tab, TrialView};
use crate::job::{Phase, Stamp};

/// Milliseconds between two looks at files that grow.
const BEAT_MS: i128 = 900;

impl TrialView {
    /// Shows the end of what is written in a phase; `running`: and follows it from phase to phase.
    pub fn go_live(&mut self, phase: Phase, running: bool, now: Stamp) -> Vec<Effect> {
        self.live = running;
        self.live_at = Some(now);
        self.chosen();
        let mut effects = self.grow(phase);
        effects.extend(self.want_terminal());
        effects
    }

    fn live_tab(phase: Phase) -> Tab {
        match phase {
            Phase::Verifying | Phase::TearingDown | Phase::Done => Tab::Verifier,
            _ => Tab::Log,
        }
    }

    fn grow(&mut self, phase: Phase) -> Vec<Effect> {
        self.tab = Self::live_tab(phase);
        self.finding = None;
        let slot = if self.tab == Tab::Verifier { Slot::Verifier } else { Slot::Log };
        self.pane_mut(slot).follow = true;
        self.ask_text(slot, None, At::Live)
    }

    /// Time went by, or files changed.
    pub fn live_beat(&mut self, phase: Phase, now: Stamp) -> Vec<Effect> {
        let early = self.live_at.is_some_and(|at| now.duration_since(at).as_millis() < BEAT_MS);
        if !self.live || early {
            return Vec::new();
        }
        self.live_at = Some(now);
        if !phase.is_running() {
            self.live = false;
        }
        if self.tab != Self::live_tab(phase) {
            return self.grow(phase);
        }
        self.ask(Request::Changed { serial: self.serial })
    }
}
