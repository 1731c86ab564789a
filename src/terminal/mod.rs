//! The agent's terminal in a trial.
//!
//! A shell with a terminal of 160 columns and 40 rows in the container (or, in the local environment, beside
//! us), emulated and recorded on this machine: neither tmux nor asciinema is needed inside, and nothing is
//! installed.
//!
//! | file | what it does |
//! |---|---|
//! | `session` | the terminal of an agent: opened, typed into, read, opened again, closed |
//! | `link` | the connection to one shell: a task that always reads, a task that types |
//! | `flow` | how much work a flood of output may make |
//! | `inside` | the scripts that run in the container |
//! | [`keys`] | keystrokes as bytes |
//! | `decode`, `answer` | what a program prints, read as tmux reads it; answers to its questions |
//! | `emulator` | screen, history, text |
//! | `incremental` | what is new to the agent |
//! | `record` | the asciicast and the raw bytes |
//!
//! # How to use it
//! ```no_run
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use pilothouse::environment::Environment;
//! # use pilothouse::harbor::write::Folder;
//! # use pilothouse::terminal::{FILE_CAP, Recording, Session, SessionSpec};
//! # async fn work(environment: Arc<dyn Environment>, logs: &Folder) -> Result<(), Box<dyn std::error::Error>> {
//! let recording = Recording::begin(logs, "terminus_2", FILE_CAP)?;
//! let mut session = Session::open(environment, SessionSpec::default(), Some(recording)).await?;
//! let first = session.incremental().to_string(); // "Current Terminal Screen: …"
//! session.mark(0);
//! session.send_and_wait("ls -l\n", Duration::from_millis(500)).await?;
//! let told = session.incremental().to_string(); // "New Terminal Output: …"
//! let view = session.view(); // for a screen elsewhere: view.frame(), view.changes()
//! for line in session.notes() { /* into the trial's log */ }
//! session.close().await; // after the verifier, before the container is removed
//! # Ok(()) }
//! ```

mod answer;
mod decode;
mod emulator;
mod flow;
mod incremental;
mod inside;
pub mod keys;
mod link;
mod record;
mod session;

pub use emulator::{COLS, Capture, Emulator, HISTORY, ROWS};
pub use incremental::{News, Teller};
pub use keys::KeyModes;
pub use record::{FILE_CAP, Recording};
pub use session::{LONGEST_LINE, Sent, Session, SessionSpec, Standing, View};
