//! What can go wrong between us and an environment, in words that name the call and the way out.

use std::fmt;
use std::io;

use crate::job::text;

/// Longest text taken over from an engine, in characters.
const LONGEST: usize = 2000;

/// What kind of trouble it is; decides the class of a trial that meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// The engine does not answer at its address, or the connection broke.
    Unreachable,
    /// A way of running that is not supported: the operator's choice, not a fault.
    Unsupported,
    /// The call did not answer within its own time.
    TimedOut,
    /// What the call was about is not there.
    NotFound,
    /// The image is neither here nor to be had.
    Image,
    /// The image is made for another processor or operating system.
    Architecture,
    /// The registry refuses more pulls for now.
    RateLimit,
    /// The Dockerfile does not build.
    Build,
    /// No free address pool for one more network.
    AddressPool,
    /// The host directory of a mount is not there, or not what it should be.
    Mount,
    /// The container does not answer any more.
    Suspect,
    /// The container is not running any more.
    Died,
    /// Used before it was started, or after it was stopped.
    NotRunning,
    /// The command never began: its user, directory or output file is wrong.
    Command,
    /// A path that is not taken: not absolute, with `..`, or not what it should be.
    Path,
    /// No permission.
    Denied,
    /// Something with that name is there already.
    Conflict,
    /// Any other refusal of the engine.
    Engine,
    /// Reading or writing on this machine failed.
    Io,
}

/// A call that failed: which, why, and what to do about it. Safe to print.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct EnvError {
    /// The kind.
    pub trouble: Trouble,
    /// The call and what it was about, such as `create container t1`.
    pub call: String,
    /// What happened.
    pub detail: String,
    /// What to do; empty where nothing helps.
    pub remedy: String,
}

impl EnvError {
    /// A failed call. Texts are made safe for the terminal and cut at 2000 characters.
    pub fn new(trouble: Trouble, call: &str, detail: &str, remedy: &str) -> EnvError {
        EnvError { trouble, call: tidy(call), detail: tidy(detail), remedy: tidy(remedy) }
    }

    /// A failed file operation on this machine.
    pub fn io(call: &str, error: &io::Error) -> EnvError {
        let (trouble, remedy) = match error.kind() {
            io::ErrorKind::NotFound => (Trouble::NotFound, ""),
            io::ErrorKind::PermissionDenied => (Trouble::Denied, "run as the owner of the files, or chmod"),
            io::ErrorKind::StorageFull => (Trouble::Io, "free disk space"),
            _ => (Trouble::Io, ""),
        };
        EnvError::new(trouble, call, &error.to_string(), remedy)
    }
}

impl fmt::Display for EnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.detail)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, " ({})", self.remedy) }
    }
}

/// One line, without escape sequences or secrets, bounded.
pub(super) fn tidy(words: &str) -> String {
    let stripped = text::strip_ansi(words.trim());
    let masked = text::mask_secrets(&stripped);
    let clean = text::clean(&masked);
    match clean.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", clean.get(..at).unwrap_or_default()),
        None => clean.into_owned(),
    }
}
