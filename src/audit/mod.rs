//! Ending a job well, and finding out what is left of it.
//!
//! For jobs of our own and for Harbor's: who works on it ([`find_owner`]), how to stop that
//! ([`advice`](fn@advice), [`plan`](fn@plan), [`stop`](fn@stop)), what the stop left behind
//! ([`audit`](fn@audit)), and to mend it ([`mend`](fn@mend)). The same look over everything that dead
//! owners left on this host is [`leftovers`].
//!
//! Everything here waits for files, processes and the Docker engine: it belongs on a thread of its own,
//! never on one that draws or that runs a tokio runtime. Only [`advice`](fn@advice) and
//! [`plan`](fn@plan) are pure. Nothing is killed, moved or removed without a call that says so, and
//! every such act is noted in the [`crate::journal`].

pub mod advice;
pub mod check;
pub mod harbor_marks;
pub mod kept;
pub mod leftovers;
pub mod mend;
pub mod owner;
pub mod plan;
pub mod process;
pub mod scratch;
pub mod stop;
pub mod temps;

pub use crate::journal::{Journal, Note};
pub use advice::{Advice, StopSignal, advice, objection};
pub use check::{Audit, AuditError, Finding, FindingKind, Mend, audit, audit_with};
pub use kept::{Kept, quarantined};
pub use mend::{MendError, Mended, mend, mend_with, remove_leftover, undo};
pub use owner::{Found, Owner, Program, Verb, find_owner};
pub use plan::{RunningTrial, StopPlan, plan};
pub use stop::{Progress, StopError, Stopping, signal, stop};
