//! A real `harbor` as a child: what it is told, what to know before it starts, who keeps it, where it
//! writes.
//!
//! | part | what it does |
//! |---|---|
//! | [`command`] | the words for Harbor, which are passed on as they are, and what they ask for |
//! | [`asked`] | command line and configs together: job dir, agents, tasks, environment |
//! | [`remarks`] | what to know before the start, each with its remedy; pure, of what was looked up |
//! | [`clouds`] | Harbor's environments on other machines, and what each wants to be let in |
//! | [`rerun`] | what a start over an old job deletes, keeps and runs again |
//! | [`keeper`] | the process between us and Harbor: starts it, waits for it, notes how it ended |
//! | [`record`] | the note about a child in the state dir, by which it is found again |
//! | [`whereabouts`] | the job dir that a child really writes into |
//!
//! Harbor gets a process group in a session without terminal, `/dev/null` for its standard input and a
//! file for its output, never a pipe. The keeper is the only one that waits for it: a screen that is
//! closed or killed takes nothing with it, and the exit code is known afterwards. Nothing is written into
//! the job dir.

pub mod asked;
pub mod clouds;
pub mod command;
pub mod keeper;
pub mod record;
pub mod remarks;
pub mod rerun;
pub mod whereabouts;

pub use asked::{Asked, Worker};
pub use command::{Command, Verb};
pub use record::{Ended, Record, State};
pub use remarks::{Remark, Seen};
