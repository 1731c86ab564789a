//! How often a path is asked.

use std::time::Duration;

use tokio::time::Instant;

/// The pace of one path, from start to start. What was missed by a slow answer is not made up for.
pub(super) struct Pace {
    every: Duration,
    next: Instant,
}

impl Pace {
    pub(super) fn new(every: Duration) -> Pace {
        Pace { every, next: Instant::now() }
    }

    /// Waits for the next turn.
    pub(super) async fn turn(&mut self) {
        tokio::time::sleep_until(self.next).await;
        self.next = Instant::now() + self.every;
    }

    /// The next turn comes that much after now, if that is later.
    pub(super) fn rest(&mut self, pause: Duration) {
        self.next = self.next.max(Instant::now() + pause);
    }
}
