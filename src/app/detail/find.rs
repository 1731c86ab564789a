//! Searching in the trial view.

use super::super::effect::Effect;
use super::super::model::Room;
use super::doc::Needle;
use super::{At, Finding, Place, Request, Slot, Tab, TrialView, body};

impl TrialView {
    /// The search text was entered; an empty one ends the search.
    pub fn search(&mut self, text: &str) -> Vec<Effect> {
        self.needle = Needle::new(text);
        self.finding = None;
        self.panes.iter_mut().for_each(|p| p.hit = None);
        if text.is_empty() { Vec::new() } else { self.find(false, true) }
    }

    pub(super) fn find(&mut self, back: bool, first: bool) -> Vec<Effect> {
        if self.needle.text.is_empty() {
            return Vec::new();
        }
        if self.tab == Tab::Files && self.files.open.is_none() {
            return self.find_name(back, first);
        }
        if self.tab == Tab::Evidence {
            return self.find_here(Slot::Evidence, back, first);
        }
        if self.tab == Tab::About {
            return self.find_here(Slot::About, back, first);
        }
        let slot = self.slot().unwrap_or(Slot::Episode);
        let pane = self.pane(slot);
        // A step that is not the one in the pane is searched from its beginning.
        let (offset, inclusive) = match pane.hit {
            _ if slot == Slot::Episode && self.shown != Some(self.cursor) => (0, true),
            Some(hit) => (hit, false),
            None => (pane.offset(), first || !back),
        };
        let from = Place {
            step: self.cursor,
            offset,
            inclusive,
            nth: pane.doc.as_ref().map(|d| d.nth.0),
            path: self.files.open.clone(),
        };
        self.finding = Some(Finding::Running(0.0));
        let needle = self.needle.clone();
        self.ask(Request::Search { serial: self.serial, slot, needle, from, back })
    }

    fn find_name(&mut self, back: bool, first: bool) -> Vec<Effect> {
        let n = self.n_files();
        let begin = usize::from(!first);
        let mut order =
            (begin..n + begin).map(|i| if back { n * 2 + self.files.cursor - i } else { self.files.cursor + i });
        let hit = order.find(|i| self.file(i % n.max(1)).is_some_and(|f| self.needle.is_in(&f.name)));
        self.finding = Some(match hit {
            Some(at) => {
                self.files.cursor = at % n.max(1);
                Finding::Found { wrapped: false }
            }
            None => Finding::Nothing,
        });
        Vec::new()
    }

    /// Searches a text that is here as a whole.
    fn find_here(&mut self, slot: Slot, back: bool, first: bool) -> Vec<Effect> {
        let (_, height) = body(self.size);
        let pane = self.pane(slot);
        let from = pane.hit.unwrap_or(pane.offset());
        let inclusive = pane.hit.is_none() && (first || !back);
        let all = pane.doc.as_ref().map(|d| d.lines.as_slice()).unwrap_or_default();
        let mut hits: Vec<u64> = all.iter().filter(|l| self.needle.is_in(l.text())).map(|l| l.offset).collect();
        if back {
            hits.reverse();
        }
        let ahead = |o: &&u64| (inclusive && **o == from) || if back { **o < from } else { **o > from };
        let next = hits.iter().find(ahead);
        let (hit, wrapped) = (next.or(hits.first()).copied(), next.is_none());
        self.finding = Some(hit.map_or(Finding::Nothing, |_| Finding::Found { wrapped }));
        if let Some(hit) = hit {
            let pane = self.pane_mut(slot);
            pane.hit = Some(hit);
            pane.reveal(hit, height);
        }
        Vec::new()
    }

    pub(super) fn take_found(&mut self, slot: Slot, place: Option<Place>, wrapped: bool, height: usize) -> Vec<Effect> {
        let Some(place) = place else {
            self.finding = Some(Finding::Nothing);
            return Vec::new();
        };
        self.finding = Some(Finding::Found { wrapped });
        if slot == Slot::Episode {
            self.follow = false;
            if self.tab == Tab::Steps && Room::of(self.size) != Room::Double {
                self.tab = Tab::Episode;
            }
            let shown = self.shown == Some(place.step);
            let pane = self.pane_mut(slot);
            pane.hit = Some(place.offset);
            if shown {
                pane.reveal(place.offset, height);
                self.cursor = place.step;
                return self.want_heads(false);
            }
            pane.pending = Some(place.offset);
            return self.go(place.step);
        }
        let pane = self.pane_mut(slot);
        pane.hit = Some(place.offset);
        pane.follow = false;
        if pane.holds(place.offset) {
            pane.reveal(place.offset, height);
            return self.more(slot, height);
        }
        pane.pending = Some(place.offset);
        self.ask_text(slot, place.nth, At::Around(place.offset))
    }
}
