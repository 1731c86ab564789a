//! What the trial view makes of its loader's answers.

use super::super::effect::Effect;
use super::{FileRow, Finding, Part, Reply, Slot, Tab, TrialView, body};

impl TrialView {
    /// The loader answered.
    pub fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        let (width, height) = body(self.size);
        match reply {
            Reply::Facts { serial, facts } if serial == self.serial => {
                self.facts = Some(facts);
                self.tell();
            }
            Reply::Steps { serial, parts } if serial == self.serial => return self.take_parts(parts),
            Reply::Heads { serial, from, heads } if serial == self.serial => {
                (self.heads_from, self.heads) = (from, heads);
                if !self.placed && !self.at_end && !self.heads.is_empty() {
                    self.placed = true;
                    // A finished trial is read from its first episode on.
                    if let Some(at) = self.heads.iter().position(|h| h.episode.is_some()) {
                        return self.go(from + at);
                    }
                }
            }
            Reply::Step { serial, n, doc } if serial == self.serial => {
                let same = self.shown == Some(n) || self.pane(Slot::Episode).doc.is_none();
                self.shown = Some(n);
                self.outdated = false;
                let pane = self.pane_mut(Slot::Episode);
                if !same {
                    pane.forget_place();
                    pane.hit = pane.pending;
                }
                pane.set(doc, width, height);
                if pane.pending.is_none() && n != self.cursor {
                    return self.want_step();
                }
            }
            Reply::Text { serial, slot, doc } if serial == self.serial => {
                let pane = self.pane_mut(slot);
                match doc {
                    Ok(doc) => {
                        pane.note = None;
                        pane.set(doc, width, height);
                        return self.more(slot, height);
                    }
                    Err(words) => pane.fail(words, width, height),
                }
            }
            Reply::Listing { serial, dir, listing } if serial == self.serial && dir == self.files.dir => {
                self.take_listing(listing);
            }
            Reply::Stale { serial, slots, listing } if serial == self.serial => {
                let mut effects = Vec::new();
                for slot in slots {
                    if self.pane(slot).doc.is_none() && self.slot() != Some(slot) {
                        continue;
                    }
                    if self.slot() == Some(slot) {
                        effects.extend(self.again(slot));
                    } else {
                        self.pane_mut(slot).stale = true;
                    }
                }
                if listing && self.tab == Tab::Files && self.files.open.is_none() {
                    effects.extend(self.list(self.files.dir.clone()));
                }
                return effects;
            }
            Reply::Searching { serial, share } if serial == self.serial => {
                if matches!(self.finding, Some(Finding::Running(_))) {
                    self.finding = Some(Finding::Running(share));
                }
            }
            Reply::Found { serial, slot, place, wrapped } if serial == self.serial => {
                return self.take_found(slot, place, wrapped, height);
            }
            _ => {}
        }
        Vec::new()
    }

    fn take_parts(&mut self, parts: Vec<Part>) -> Vec<Effect> {
        let before = self.n_steps();
        let revisions = parts.iter().map(|p| p.revision).sum();
        let anew = revisions != self.revisions;
        self.parts = Some(parts);
        self.revisions = revisions;
        let total = self.n_steps();
        if (self.follow || (!self.placed && self.at_end)) && total > 0 {
            self.cursor = total - 1;
        }
        self.cursor = self.cursor.min(total.saturating_sub(1));
        if self.at_end && total > 0 && self.parts.iter().flatten().all(|p| p.indexed >= 1.0) {
            self.placed = true;
        }
        let mut effects = self.want_heads(anew || before != total);
        self.outdated |= anew;
        effects.extend(self.want_step());
        effects.extend(self.want_terminal());
        effects
    }

    fn take_listing(&mut self, listing: Result<Vec<FileRow>, String>) {
        match listing {
            Ok(rows) => {
                // The cursor stays on its name while entries come and go.
                let name = self.files.select.take().or_else(|| self.file(self.files.cursor).map(|f| f.name.clone()));
                let up = usize::from(!self.files.dir.is_empty());
                let at = name.and_then(|n| rows.iter().position(|r| r.name == n));
                self.files.rows = Some(rows);
                self.files.problem = None;
                if let Some(at) = at {
                    self.files.cursor = at + up;
                }
                self.files.cursor = self.files.cursor.min(self.n_files().saturating_sub(1));
            }
            Err(words) => self.files.problem = Some(words),
        }
    }
}
