//! Signs of life of a job: when something was last written, and who works on it.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::super::Out;
use super::super::owner::{self, Census};
use super::{Env, Followed};
use crate::harbor::dir::Dir;
use crate::job::{JobEvent, ProblemKind, Stamp, time};

/// Times this far ahead of our clock are reported.
const SKEW: Duration = Duration::from_secs(300);
/// How long a census of this host's processes is good for.
const CENSUS_AGE: Duration = Duration::from_secs(1);
/// Least time between two reports of the last write.
const LIVENESS_PAUSE: Duration = Duration::from_secs(1);

impl Env {
    /// Asks a census of this host's processes that is at most a second old, so that many jobs cost one.
    fn census<R>(&self, ask: impl FnOnce(&Census) -> R) -> R {
        let mut kept = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let census = match kept.take() {
            Some((at, census)) if at.elapsed() < CENSUS_AGE => (at, census),
            _ => (Instant::now(), Census::take()),
        };
        let answer = ask(&census.1);
        *kept = Some(census);
        answer
    }
}

impl Followed {
    /// Takes a modification time for a sign of life.
    pub(super) fn saw(&mut self, at: Option<Stamp>, out: &mut Out<'_>) {
        let Some(at) = at else { return };
        let now = Stamp::now();
        if at <= now {
            self.liveness.last_write = self.liveness.last_write.max(Some(at));
            return;
        }
        // Ahead of our clock: it counts as now, once for each new time.
        if self.ahead.max(Some(at)) != self.ahead {
            self.ahead = Some(at);
            self.liveness.last_write = Some(now);
            if time::age(now, at) > SKEW {
                self.note(
                    ProblemKind::Clock,
                    "file times lie more than 5 minutes ahead of this machine's clock; ages and last write are off",
                    out,
                );
            }
        }
    }

    /// Reports signs of life that changed: a new owner at once, a later write once a second.
    pub fn emit_liveness(&mut self, out: &mut Out<'_>, now: bool) {
        let clock = Instant::now();
        let due = match &self.liveness_sent {
            None => true,
            Some((sent, _)) if *sent == self.liveness => {
                self.liveness_due = None;
                return;
            }
            Some((sent, at)) => {
                let owner = sent.owner != self.liveness.owner
                    || sent.stray != self.liveness.stray
                    || sent.owner_left != self.liveness.owner_left
                    || sent.owner_search_conclusive != self.liveness.owner_search_conclusive;
                self.liveness_due = Some(*at + LIVENESS_PAUSE);
                owner || clock.saturating_duration_since(*at) >= LIVENESS_PAUSE
            }
        };
        if (due || now) && self.emitted.is_some() {
            out.push(JobEvent::Liveness(self.key, self.liveness.clone()));
            self.liveness_sent = Some((self.liveness.clone(), clock));
            self.liveness_due = None;
        }
    }

    /// Looks for a living owner: cheaply while the known one lives, through all processes otherwise.
    /// A job that ended has none.
    pub fn find_owner(&mut self, env: &Env, out: &mut Out<'_>) {
        let over = self.finished() && self.owner.is_none();
        let leased = match Dir::open(&self.path) {
            Ok(dir) if !over => owner::by_lease(&dir, &mut self.lease, env.began.elapsed()),
            _ => None,
        };
        let search = match leased {
            _ if over => owner::Search { stray: env.census(|census| census.stray(&self.path)), ..Default::default() },
            Some(search) if search.owner.is_some() => search,
            None if self.owner.as_ref().is_some_and(owner::alive) => return,
            // What one of ours left may have been taken up by Harbor.
            leased => {
                let search = env.census(|census| census.search(&self.path, self.local));
                leased.filter(|_| search.owner.is_none()).unwrap_or(search)
            }
        };
        self.liveness.owner = search.owner.as_ref().map(|o| (o.pid, o.command.clone()));
        self.liveness.owner_search_conclusive = search.conclusive;
        self.liveness.owner_left = search.left;
        self.liveness.stray = search.stray;
        self.owner = search.owner;
        self.emit_liveness(out, true);
    }
}
