//! Harbor's job directory, written: the layout and the documents of Harbor 0.26 (readable for 0.21),
//! by one writer at a time, each file whole or not at all.
//!
//! | part | what it does |
//! |---|---|
//! | [`atomic`] | files beneath an open directory: temporary name, sync, rename; errors with a next step |
//! | `growing` | files that grow where a running container can write |
//! | [`twin`] | a file that grows at its end and is seen whole at any time |
//! | [`atif`] | trajectories, step by step |
//! | [`config`], [`lock`], [`result`], [`stats`] | the documents, as Harbor names their fields |
//! | [`from_run`] | from an operator's config to those documents |
//! | [`raised`] | a failure under its name |
//! | [`reread`] | a job read back, to be gone on with |
//! | [`lease`] | who works on the job: `pilothouse.lease` |
//! | [`job`], `trial` | the job dir as it grows, trial by trial |
//! | [`mod@quarantine`] | a safe place for what has to leave a job dir |
//! | [`scrub`], [`ids`] | no secrets in files; names that nobody else has |

pub mod atif;
pub mod atomic;
pub mod config;
pub mod from_run;
mod growing;
pub mod held;
pub mod ids;
pub mod job;
pub mod lease;
pub mod lock;
pub mod quarantine;
pub mod raised;
pub mod regrade;
pub mod reread;
pub mod result;
pub mod scrub;
pub mod stats;
mod steps;
mod trial;
pub mod twin;

pub use atomic::{Folder, Log, WriteError};
pub use growing::Growing;
pub use job::{JobWriter, Resume, Start, clean_temps};
pub use lease::{Claim, Claimant, Lease, May, Observer};
pub use quarantine::{QuarantineError, Quarantined, quarantine, restore};
pub use raised::Raised;
pub use scrub::Scrub;
pub use trial::{Modes, Rooms, TrialFolder};
