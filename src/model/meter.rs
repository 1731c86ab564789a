//! What calls cost and what is heard of them: handles that outlive a call that is given up.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::error::Spent;
use crate::job::work::Doing;

/// Sums over the calls of one agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests sent.
    pub requests: u64,
    /// Of these, answered to their end (also one that the limit of its length ended).
    pub answered: u64,
    /// Calls made again after a failure.
    pub retries: u32,
    /// Tokens of requests that were not answered to their end: failed, cut off, cancelled.
    pub lost: Spent,
    /// Time at a closed endpoint.
    pub away: Duration,
    /// Time between a failure and the next try.
    pub waited: Duration,
}

/// Sums that are kept while calls run and when they are given up; clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    totals: Arc<Mutex<Totals>>,
}

impl Meter {
    /// The sums so far. What a call that still runs has generated is not yet in them.
    pub fn totals(&self) -> Totals {
        *self.lock()
    }

    pub(super) fn add(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the time until it is dropped to one of the sums.
pub(super) struct Passing<'a> {
    meter: &'a Meter,
    since: Instant,
    of: fn(&mut Totals) -> &mut Duration,
}

impl<'a> Passing<'a> {
    pub(super) fn new(meter: &'a Meter, of: fn(&mut Totals) -> &mut Duration) -> Passing<'a> {
        Passing { meter, since: Instant::now(), of }
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let (passed, of) = (self.since.elapsed(), self.of);
        self.meter.add(|totals| *of(totals) += passed);
    }
}

/// Told what a call does.
type Tell = dyn Fn(&Doing) + Send + Sync;

#[derive(Default)]
struct Scissors {
    cut: AtomicBool,
    wake: Notify,
}

/// How one call is watched; clones are the same one.
///
/// [`Watch::cut`] ends the call with [`Kind::Cancelled`](super::error::Kind::Cancelled) and what it said so
/// far. Whoever needs neither drops the call's future: what it generated is in the meter all the same.
#[derive(Clone)]
pub struct Watch {
    pub(super) meter: Meter,
    tell: Option<Arc<Tell>>,
    pub(super) rid: Option<Arc<str>>,
    scissors: Arc<Scissors>,
}

impl Watch {
    /// For one call, whose costs go to this meter.
    pub fn new(meter: &Meter) -> Watch {
        Watch { meter: meter.clone(), tell: None, rid: None, scissors: Arc::default() }
    }

    /// With somebody who is told of every part that comes ([`Doing::Model`]) and every wait
    /// ([`Doing::Retry`]). It is called often: some 50 times a second for each call.
    #[must_use]
    pub fn telling(mut self, tell: impl Fn(&Doing) + Send + Sync + 'static) -> Watch {
        self.tell = Some(Arc::new(tell));
        self
    }

    /// With a name of the request, for servers that take one. Later tries get `-2`, `-3`, … after it.
    #[must_use]
    pub fn named(mut self, rid: &str) -> Watch {
        self.rid = Some(Arc::from(rid));
        self
    }

    /// Ends the call as soon as it can be.
    pub fn cut(&self) {
        self.scissors.cut.store(true, Ordering::Release);
        self.scissors.wake.notify_waiters();
    }

    pub(super) fn tell(&self, doing: &Doing) {
        if let Some(tell) = &self.tell {
            tell(doing);
        }
    }

    async fn is_cut(&self) {
        loop {
            // It counts from here on, not from when it is first polled.
            let woken = self.scissors.wake.notified();
            if self.scissors.cut.load(Ordering::Acquire) {
                return;
            }
            woken.await;
        }
    }

    /// What the future gives; None when the call is cut before.
    pub(super) async fn unless_cut<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.is_cut() => None,
            done = future => Some(done),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("meter", &self.meter).field("rid", &self.rid).finish_non_exhaustive()
    }
}
