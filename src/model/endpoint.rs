//! Where a model is served. Trials share it: it can be moved to another address, and closed while the
//! server is away, and those that wait at their call go on when it opens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

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

/// The endpoints of a job, each by the address that the job's config names: that is how it is known for
/// ever, wherever it has moved to. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Endpoints(Arc<Mutex<BTreeMap<String, Endpoint>>>);

impl Endpoints {
    /// The one that a config names by this address: the same for all who name it.
    pub fn of(&self, base: &str) -> Endpoint {
        let base = base.trim().trim_end_matches('/');
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(base.to_string()).or_insert_with(|| Endpoint::new(base)).clone()
    }

    /// All of them, with the address in the config.
    pub fn all(&self) -> Vec<(String, Endpoint)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(base, endpoint)| (base.clone(), endpoint.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_one_endpoint_wherever_it_moves() {
        let all = Endpoints::default();
        let (a, b, c) = (all.of("http://a:1/v1/"), all.of("http://a:1/v1"), all.of("http://c:1/v1"));
        a.move_to("http://b:2/v1/");
        a.close(Some("it starts"));
        let now = b.now();
        assert_eq!((&*now.base, now.moves, now.closed.as_deref()), ("http://b:2/v1", 1, Some("it starts")));
        assert_eq!((&*c.now().base, all.all().len()), ("http://c:1/v1", 2));
        assert_eq!(&*all.of("http://a:1/v1").now().base, "http://b:2/v1", "known by its first address");
        b.close(None);
        assert_eq!(a.now().closed, None);
    }
}
