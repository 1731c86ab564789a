//! Trials run again: which may be, by which job, and what Harbor's own resume would do instead.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "support/fleet.rs"]
#[allow(dead_code)]
mod fleet;

#[path = "requeue/own.rs"]
mod own;
#[path = "requeue/preview.rs"]
mod preview;
#[path = "requeue/real.rs"]
mod real;
#[path = "requeue/rows.rs"]
mod rows;
#[path = "requeue/screen.rs"]
mod screen;
#[path = "requeue/select.rs"]
mod select;
