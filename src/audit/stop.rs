//! The stop itself: one signal to one process, then waiting. It never kills by itself.

use std::time::{Duration, Instant};

use super::advice::StopSignal;
use super::owner::Owner;
use super::process::Handle;

/// Why no signal was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// The process has ended meanwhile, or its number belongs to another one now.
    #[error("{0} has ended already: nothing was sent")]
    Gone(String),
    /// It belongs to another user.
    #[error("{0} belongs to another user: run as that user or as root")]
    Denied(String),
    /// The system refused.
    #[error("{0}: the signal could not be sent: {1}")]
    Io(String, String),
}

/// How a stop goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The signal is sent.
    Sent,
    /// Still there.
    Waiting {
        /// Since the signal.
        waited: Duration,
        /// Until the waiting ends (not the process).
        left: Duration,
    },
    /// It has ended.
    Ended {
        /// Since the signal.
        after: Duration,
    },
    /// It is still there, and the waiting is over. Nothing more was done.
    StillThere {
        /// Since the signal.
        after: Duration,
    },
}

/// A process that was sent a signal.
#[derive(Debug)]
pub struct Stopping {
    handle: Handle,
    name: String,
    sent: Instant,
}

impl Stopping {
    /// Waits for its end, at most so long; true when it has ended.
    pub fn wait(&self, most: Duration) -> bool {
        self.handle.wait(most)
    }

    /// Time since the first signal.
    pub fn waited(&self) -> Duration {
        self.sent.elapsed()
    }

    /// A second signal, on the operator's word. Harbor takes it as an order to drop its cleaning up.
    ///
    /// # Errors
    /// See [`StopError`].
    pub fn again(&self, signal: StopSignal) -> Result<(), StopError> {
        send(&self.handle, &self.name, signal)
    }
}

/// Sends a signal to the owner: to this very process, never to another one that has its number now.
///
/// # Errors
/// See [`StopError`].
pub fn signal(owner: &Owner, signal: StopSignal) -> Result<Stopping, StopError> {
    let name = owner.name();
    let handle = Handle::open(owner.pid, owner.started).ok_or_else(|| StopError::Gone(name.clone()))?;
    send(&handle, &name, signal)?;
    Ok(Stopping { handle, name, sent: Instant::now() })
}

fn send(handle: &Handle, name: &str, signal: StopSignal) -> Result<(), StopError> {
    handle.send(signal.raw()).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => StopError::Gone(name.to_string()),
        std::io::ErrorKind::PermissionDenied => StopError::Denied(name.to_string()),
        _ => StopError::Io(name.to_string(), e.to_string()),
    })
}

/// Sends the signal and waits at most `wait`, telling `on` about it at least once a second; the waiting
/// ends early when `on` says false. Gives the last [`Progress`].
///
/// # Errors
/// See [`StopError`].
pub fn stop(
    owner: &Owner,
    how: StopSignal,
    wait: Duration,
    on: &mut dyn FnMut(&Stopping, Progress) -> bool,
) -> Result<Progress, StopError> {
    let stopping = signal(owner, how)?;
    let mut go = on(&stopping, Progress::Sent);
    let last = loop {
        let waited = stopping.waited();
        let left = wait.saturating_sub(waited);
        if stopping.wait(if go { left.min(Duration::from_secs(1)) } else { Duration::ZERO }) {
            break Progress::Ended { after: stopping.waited() };
        }
        if !go || left.is_zero() {
            break Progress::StillThere { after: stopping.waited() };
        }
        let waited = stopping.waited();
        go = on(&stopping, Progress::Waiting { waited, left: wait.saturating_sub(waited) });
    };
    on(&stopping, last);
    Ok(last)
}
