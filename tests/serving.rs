//! The model servers beside the trials.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "serving/screen.rs"]
mod screen;
