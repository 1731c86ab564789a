//! Where a model is served. Trials share it: it can be moved to another address, and closed while the
//! server is away, and those that wait at their call go on when it opens.

use std::sync::Arc;

use tokio::sync::watch;

/// How an endpoint stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Base URL, with `/v1`, without a slash at its end.
    pub base: Arc<str>,
    /// How often it was moved.
    pub moves: u32,
    /// Why no call is made now, safe to show; None: calls are made.
    pub closed: Option<Arc<str>>,
}

/// An endpoint; clones are the same one.
#[derive(Debug, Clone)]
pub struct Endpoint {
    standing: Arc<watch::Sender<Standing>>,
}

impl Endpoint {
    /// An open one.
    pub fn new(base: &str) -> Endpoint {
        let standing = Standing { base: base.trim_end_matches('/').into(), moves: 0, closed: None };
        Endpoint { standing: Arc::new(watch::Sender::new(standing)) }
    }

    /// How it stands now.
    pub fn now(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Every change of it.
    pub fn changes(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Calls go to another address from now on; those under way are for their callers to give up.
    pub fn move_to(&self, base: &str) {
        self.standing.send_modify(|standing| {
            standing.base = base.trim_end_matches('/').into();
            standing.moves += 1;
            standing.closed = None;
        });
    }

    /// No calls until it opens, for this reason (safe to show); None: opens it.
    pub fn close(&self, why: Option<&str>) {
        self.standing.send_if_modified(|standing| {
            let why = why.map(Arc::from);
            let changed = standing.closed != why;
            standing.closed = why;
            changed
        });
    }
}
