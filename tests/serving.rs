//! Serving: log lines, pages and polls of model servers, and what is made of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "serving/pages.rs"]
mod pages;
#[path = "serving/poll.rs"]
mod poll;
