//! What the system asks of a program with a screen.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Leave in good order; the number is for the exit code (128 + number by shell custom) and the
    /// name for the log. SIGTERM, SIGHUP, SIGINT sent from outside (in raw mode Ctrl-C is a key).
    Stop(&'static str, i32),
    /// The process was stopped from outside and goes on: take the terminal again
    /// ([`super::guard::Guard::reassert`]), draw everything. It also follows the program's own
    /// suspend, where taking it twice does no harm.
    Continued,
    /// A thread of this program panicked; the terminal was given back and the message printed.
    Fell,
}

/// Receives requests instead of the default actions, as long as it lives.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    hup: Signal,
    int: Signal,
    cont: Signal,
}

impl Signals {
    /// Starts to receive. Must be called inside the runtime.
    ///
    /// # Errors
    /// Those of installing a signal handler.
    pub fn new() -> io::Result<Signals> {
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
            int: signal(SignalKind::interrupt())?,
            cont: signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
        })
    }

    /// Waits for the next request. Safe to drop and call again (in `select!`).
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.term.recv() => Request::Stop("SIGTERM", 15),
            _ = self.hup.recv() => Request::Stop("SIGHUP", 1),
            _ = self.int.recv() => Request::Stop("SIGINT", 2),
            _ = self.cont.recv() => Request::Continued,
            () = super::guard::fell() => Request::Fell,
        }
    }
}
