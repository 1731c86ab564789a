//! Requeue: a new, small job of the same harness with only the wanted tasks, and a look ahead at what
//! Harbor's own resume would do.
//!
//! | part | what it does |
//! |---|---|
//! | [`select`] | which trials may be run again, and why the others may not; pure |
//! | [`config`] | from the config of the trials to that of the new job; pure |
//! | [`plan`] | the plan as data: rows, what differs, the exact command; pure |
//! | [`source`] | what the plan needs from disk: configs, tasks, journals, the installed Harbor |
//! | [`start`] | the journal lines and the process |
//! | [`classic`] | runs of classic terminal-bench: what their resume would do, and why nothing is requeued there |
//! | [`preview`] | what `harbor job resume` would delete, keep and run again |
//!
//! Nothing of the old job is touched but its journal; the new job lies beside it, and `tally` of both
//! counts it as a pass.

pub mod classic;
pub mod config;
pub mod plan;
pub mod preview;
pub mod select;
pub mod source;
pub mod start;

pub use plan::{Difference, Harness, Plan, Row};
pub use select::{Pick, Refused, Selection, Terms, Wanted, Way};
pub use source::{Surroundings, prepare};
pub use start::{StartError, Started, start, start_with};

/// A word for a shell: as it is where nothing in it needs quoting.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
