//! Who steers a job from a screen: one at a time, and whoever did before is told.

use std::sync::Arc;

use tokio::sync::{broadcast, watch};

/// Lines that may wait for somebody who watches.
const WAITING: usize = 64;

/// Number of the owner's own screen.
pub const OWNER: u64 = 0;

/// Somebody at the helm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hand {
    /// Which screen: [`OWNER`], else a connection.
    pub number: u64,
    /// Who, in words.
    pub who: String,
}

/// A line for all who watch but the one who did it.
#[derive(Debug, Clone)]
pub struct Line {
    /// By whom: not told again.
    pub by: u64,
    /// The line.
    pub text: String,
}

#[derive(Debug)]
struct Inner {
    hand: watch::Sender<Option<Hand>>,
    lines: broadcast::Sender<Line>,
}

/// The helm of one job; clones are the same.
#[derive(Debug, Clone)]
pub struct HelmOf(Arc<Inner>);

impl Default for HelmOf {
    fn default() -> HelmOf {
        HelmOf(Arc::new(Inner { hand: watch::channel(None).0, lines: broadcast::channel(WAITING).0 }))
    }
}

impl HelmOf {
    /// Takes it.
    pub fn take(&self, number: u64, who: &str) {
        self.0.hand.send_replace(Some(Hand { number, who: who.to_string() }));
    }

    /// Leaves it, where this one has it.
    pub fn leave(&self, number: u64) {
        self.0.hand.send_if_modified(|hand| {
            let had = hand.as_ref().is_some_and(|h| h.number == number);
            if had {
                *hand = None;
            }
            had
        });
    }

    /// Who has it.
    pub fn hand(&self) -> Option<Hand> {
        self.0.hand.borrow().clone()
    }

    /// Every change of it.
    pub fn changes(&self) -> watch::Receiver<Option<Hand>> {
        self.0.hand.subscribe()
    }

    /// Tells all who watch.
    pub fn tell(&self, by: u64, text: &str) {
        // Nobody may watch.
        let _ = self.0.lines.send(Line { by, text: text.to_string() });
    }

    /// What is told from now on.
    pub fn lines(&self) -> broadcast::Receiver<Line> {
        self.0.lines.subscribe()
    }
}
