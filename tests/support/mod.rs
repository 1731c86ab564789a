//! Shared by the integration tests.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

pub mod big_cast;
pub mod escapes;
pub mod generate;
pub mod harbor;
pub mod job;
pub mod model_server;
pub mod mounts;
pub mod proc;
pub mod pty;
pub mod reenact;
pub mod server_log;
pub mod servers;
pub mod shell;

use std::io::Write;
use std::path::PathBuf;

/// The folder with recorded jobs, casts and hostile inputs, where it is present: `PILOTHOUSE_SHARED`,
/// else `shared` beside the checkout or one level further up. Prints a line and gives None when it is
/// absent, so that a test can skip visibly.
pub fn shared() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let candidates = [
        std::env::var_os("PILOTHOUSE_SHARED").map(PathBuf::from),
        Some(here.join("../shared")),
        Some(here.join("../../shared")),
    ];
    let found = candidates.into_iter().flatten().find(|p| p.join("data/jobs").is_dir());
    if found.is_none() {
        skipped("no recorded data (set PILOTHOUSE_SHARED to the folder that holds data/jobs)");
    }
    found
}

/// Says that a test leaves something out, past the test runner, which swallows what a passing test
/// prints.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}

/// tmux, where it is installed; says so when it is not. With `CI=true` its absence is a failure.
pub fn tmux() -> Option<()> {
    let found = std::process::Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
    if !found {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "tmux is missing");
        skipped("no tmux");
    }
    found.then_some(())
}
