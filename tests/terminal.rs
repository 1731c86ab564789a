//! The agent's terminal in containers: against tmux, and its traps one by one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "terminal/bench.rs"]
mod bench;
#[path = "terminal/keys.rs"]
mod keys;
#[path = "terminal/local.rs"]
mod local;
#[path = "terminal/proxy.rs"]
mod proxy;
#[path = "terminal/scripts.rs"]
mod scripts;
mod support;
#[path = "terminal/traps.rs"]
mod traps;
