//! A failure of a trial under the name that Harbor has for it.

use super::result::ExceptionInfo;
use super::scrub::Scrub;
use crate::job::Stamp;
use crate::job::outcome::CANCELLED;
use crate::job::policy::PolicyOverrides;

/// A failure: what Python would have raised in Harbor, and where it came from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    /// Bare class name.
    pub kind: String,
    /// What happened, safe to show.
    pub message: String,
    /// What was being done, in words.
    pub during: String,
}

impl Raised {
    /// A failure of this type.
    pub fn new(kind: &str, message: &str, during: &str) -> Raised {
        Raised { kind: kind.to_string(), message: message.to_string(), during: during.to_string() }
    }

    /// What stopping a trial leaves; its message is empty, as Harbor's is.
    pub fn cancelled(during: &str) -> Raised {
        Raised::new(CANCELLED, "", during)
    }

    /// Whether the trial was stopped.
    pub fn is_cancelled(&self) -> bool {
        self.kind == CANCELLED
    }

    /// The text for `exception.txt`, in the form of a traceback, so that every reader of one finds the
    /// type in it.
    pub fn traceback(&self) -> String {
        let head = format!("Traceback (most recent call last):\n  in pilothouse: {}\n", self.during);
        if self.message.is_empty() {
            format!("{head}{}\n", self.kind)
        } else {
            format!("{head}{}: {}\n", self.kind, self.message)
        }
    }

    /// For a `result.json`.
    pub fn info(&self, at: Stamp, overrides: &PolicyOverrides, scrub: &Scrub) -> ExceptionInfo {
        ExceptionInfo::new(&self.kind, &self.message, &self.traceback(), at, overrides, scrub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harbor::exception_kind;

    #[test]
    fn readers_find_the_type_in_the_traceback() {
        for raised in [
            Raised::new("RuntimeError", "two\nlines: of it", "the environment's start"),
            Raised::cancelled("the agent's run"),
        ] {
            assert_eq!(exception_kind(raised.traceback().as_bytes()).as_deref(), Some(&*raised.kind));
        }
    }
}
