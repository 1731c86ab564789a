//! A job that is steered while it runs: over its socket, from its own screen and from others', and by
//! what happens around it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "steer/bench.rs"]
mod bench;
#[path = "steer/ctl.rs"]
mod ctl;
#[path = "steer/endpoint.rs"]
mod endpoint;
#[path = "steer/gates.rs"]
mod gates;
#[path = "steer/load.rs"]
mod load;
#[path = "support/daemon.rs"]
mod own_engine;
#[path = "steer/preflight.rs"]
mod preflight;
#[path = "steer/screens.rs"]
mod screens;
mod support;
#[path = "support/yard.rs"]
mod yard;
