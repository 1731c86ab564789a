//! The part of the player that looks at the file again, and at its text.

use std::time::Duration;

use super::{AT_ONCE, Change, Player, Target};
use crate::cast::format::Version;
use crate::cast::index::Index;
use crate::cast::keyframe::Keyframes;
use crate::cast::screen::Screen;
use crate::cast::search::{Hit, Search, SearchStep};
use crate::cast::source::Source;
use crate::cast::timeline::Timeline;

impl Player {
    /// Follows a growing cast: goes to the end now and after each [`Player::refresh`] that found more.
    /// Any other seek ends it.
    pub fn follow(&mut self, on: bool) {
        self.following = on;
        if on {
            self.seek(Target::End);
        }
    }

    /// True while the end is followed.
    pub fn is_following(&self) -> bool {
        self.following
    }

    /// Looks whether the file has grown, shrunk or been replaced. `reopened` is the file that the
    /// path names now, where the caller opened it again (recorders replace casts by renaming); without
    /// it only the open file is looked at. New content is taken in by [`Player::work`].
    pub fn refresh(&mut self, reopened: Option<Box<dyn Source>>) -> Change {
        let mut replaced = self.stale;
        if let Some(source) = reopened {
            replaced |= source.identity() != self.source.identity();
            self.source = source;
        }
        let look = |index: &Index, source: &dyn Source| -> std::io::Result<(u64, bool)> {
            Ok((source.len()?, index.still_begins(source)?))
        };
        let (len, same) = match look(&self.index, &*self.source) {
            Ok(found) => found,
            Err(error) => {
                self.noted(Err(error));
                return Change::Unreadable;
            }
        };
        self.size = len;
        if replaced || !same || len < self.index.read() {
            return self.restart();
        }
        self.fault = None;
        if !self.index.complete() || len == self.index.len() {
            return Change::Same;
        }
        if self.index.header.version == Version::V1 {
            return self.restart();
        }
        let (settled, last) = (self.index.settled(), self.index.entries().last().copied());
        let events = self.events();
        self.reader.clear();
        self.index.reopen();
        let read = self.index.slice(&*self.source, 1 << 20);
        self.noted(read);
        if self.index.entries().get(events.wrapping_sub(1)).copied() != last {
            // The line that was last turned out to go on; nothing may have seen it.
            self.keys.truncate(settled);
            self.builder = None;
            self.goal = self.goal.min(settled);
            if self.applied > settled {
                let (cols, rows) = (self.index.header.cols, self.index.header.rows);
                let kept = self.keys.before(settled);
                (self.applied, self.screen) =
                    kept.map_or((0, Screen::new(cols, rows)), |(n, saved)| (n, Screen::restore(saved)));
            }
        }
        self.indexed();
        self.feed_at_once(AT_ONCE);
        Change::Grew
    }

    fn restart(&mut self) -> Change {
        self.stale = true;
        let index = match Index::open(&*self.source, &self.index.name) {
            Ok(index) => index,
            Err(error) => {
                self.fault = Some(error);
                return Change::Unreadable;
            }
        };
        self.pending = Some(if self.following {
            Target::End
        } else {
            self.pending.unwrap_or(Target::Time(Duration::from_micros(self.at)))
        });
        self.index = index;
        self.timeline = Timeline::new(self.timeline.cap());
        self.keys = Keyframes::new();
        self.reader.clear();
        self.screen = Screen::new(self.index.header.cols, self.index.header.rows);
        (self.applied, self.goal, self.builder, self.search) = (0, 0, None, None);
        (self.fault, self.stale) = (None, false);
        self.size = self.size.max(self.index.read());
        self.indexed();
        // A small file is back on the screen at once instead of after a blank frame.
        self.work(AT_ONCE);
        Change::Restarted
    }

    /// Searches the output text (without escape sequences, also across events) from the position on,
    /// forwards or backwards, to the end of what is indexed. All lower case ignores case. May take
    /// long in a large recording; see [`Player::search_start`] for slices. Does not move: seek to
    /// [`Target::Event`] of the hit.
    pub fn search(&mut self, text: &str, forward: bool) -> Option<Hit> {
        self.search_start(text, forward);
        loop {
            match self.search_work(u64::MAX) {
                SearchStep::More { .. } => {}
                SearchStep::Found(hit) => return Some(hit),
                SearchStep::NotFound => return None,
            }
        }
    }

    /// Begins a search that [`Player::search_work`] carries out.
    pub fn search_start(&mut self, text: &str, forward: bool) {
        self.search = Search::new(text, forward, self.goal);
    }

    /// Searches through about `bytes` more of the file.
    pub fn search_work(&mut self, bytes: u64) -> SearchStep {
        let Some(mut search) = self.search.take() else { return SearchStep::NotFound };
        match search.work(&*self.source, &self.index, bytes) {
            Ok(step) => {
                if matches!(step, SearchStep::More { .. }) {
                    self.search = Some(search);
                }
                step
            }
            Err(error) => {
                self.noted(Err(error));
                SearchStep::NotFound
            }
        }
    }
}
