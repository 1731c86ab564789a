//! `pilothouse stop`: the right process, one signal, an honest audit, mends that can be taken back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "stop/own.rs"]
mod own;
#[path = "stop/owner.rs"]
mod owner;
#[path = "stop/real.rs"]
mod real;
#[path = "stop/recorded.rs"]
mod recorded;
#[path = "stop/several.rs"]
mod several;
