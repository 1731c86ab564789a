//! The thread that does the I/O of the detail view.

use super::detail::{Reply, Request};

/// Talks to the thread.
#[derive(Debug)]
pub struct Handle {}

impl Handle {
    /// Asks for something.
    pub fn ask(&self, _request: Request) {}
}

/// Starts the thread; `reply` takes its answers and returns false when nobody listens any more.
pub fn spawn(_reply: impl FnMut(Reply) -> bool + Send + 'static) -> Handle {
    Handle {}
}
