//! `pilothouse stop`: the right process, one signal, an honest audit, mends that can be taken back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

#[path = "stop/owner.rs"]
mod owner;
#[path = "stop/real.rs"]
mod real;
#[path = "stop/recorded.rs"]
mod recorded;
