//! The way of wishes to a worker: the screen hands over and never waits, what a later wish makes
//! needless is left out, and no more than a fixed number wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Something that a worker is asked for.
pub trait Wish: Sized {
    /// Wishes of this kind that may wait. More are asked for only where a worker hangs on a disk.
    const MOST: usize;

    /// Joins those that wait, oldest first: takes out what it supersedes.
    fn join(self, waiting: &mut Vec<Self>);

    /// Whether it may be given up when too many wait.
    fn may_go(&self) -> bool;
}

#[derive(Debug)]
struct State<W> {
    waiting: Vec<W>,
    asked: bool,
    heard: bool,
}

#[derive(Debug)]
struct Shared<W> {
    state: Mutex<State<W>>,
    bell: Condvar,
}

impl<W> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        // Nothing in here can be left half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It waits.
    Taken,
    /// It waits; the oldest that could be given up had to go.
    Crowded,
    /// Nobody listens any more.
    Gone,
}

/// The end that asks.
#[derive(Debug)]
pub struct Asker<W>(Arc<Shared<W>>);

/// The end of the worker.
#[derive(Debug)]
pub struct Inbox<W>(Arc<Shared<W>>);

/// Both ends.
pub fn inbox<W: Wish>() -> (Asker<W>, Inbox<W>) {
    let state = Mutex::new(State { waiting: Vec::new(), asked: true, heard: true });
    let shared = Arc::new(Shared { state, bell: Condvar::new() });
    (Asker(Arc::clone(&shared)), Inbox(shared))
}

impl<W: Wish> Asker<W> {
    /// Hands a wish over; never waits. The latest is never the one that goes.
    pub fn put(&self, wish: W) -> Put {
        let mut state = self.0.lock();
        if !state.heard {
            return Put::Gone;
        }
        wish.join(&mut state.waiting);
        let mut put = Put::Taken;
        while state.waiting.len() > W::MOST.max(1) {
            let last = state.waiting.len() - 1;
            let oldest = state.waiting.iter().take(last).position(Wish::may_go).unwrap_or(0);
            state.waiting.remove(oldest);
            put = Put::Crowded;
        }
        self.0.bell.notify_all();
        put
    }
}

impl<W> Drop for Asker<W> {
    fn drop(&mut self) {
        self.0.lock().asked = false;
        self.0.bell.notify_all();
    }
}

impl<W> Inbox<W> {
    /// Waits for wishes, at most this long (without limit: as long as it takes), and takes all: none
    /// when the time is over. None when nobody asks any more.
    pub fn take(&self, limit: Option<Duration>) -> Option<Vec<W>> {
        let state = self.0.lock();
        let idle = |s: &mut State<W>| s.asked && s.waiting.is_empty();
        let mut state = match limit {
            None => self.0.bell.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => self.0.bell.wait_timeout_while(state, limit, idle).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.asked.then(|| std::mem::take(&mut state.waiting))
    }
}

impl<W> Drop for Inbox<W> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.heard = false;
        state.waiting.clear();
    }
}
