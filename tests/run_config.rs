//! The config of a run: what Harbor writes and reads, what operators type, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

#[path = "run_config/flags.rs"]
mod flags;
#[path = "run_config/names.rs"]
mod names;
#[path = "run_config/recorded.rs"]
mod recorded;
#[path = "run_config/refusals.rs"]
mod refusals;
#[path = "run_config/side_by_side.rs"]
mod side_by_side;
#[path = "run_config/texts.rs"]
mod texts;

use std::path::Path;

use clap::Parser;
use pilothouse::harbor::run_config::{self as rc, HarborVersion, Host, Resolved, RunFlags};

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
pub struct Line {
    #[command(flatten)]
    pub flags: RunFlags,
}

pub fn parse(args: &[&str]) -> RunFlags {
    Line::try_parse_from(args).unwrap_or_else(|e| panic!("{args:?}: {e}")).flags
}

/// Resolves a command line over configs that exist only here. A path that ends in `task` is a task.
pub fn resolve_with(args: &[&str], files: &[(&str, &str)]) -> Result<Resolved, String> {
    let read = |name: &str| {
        let found = files.iter().find(|(n, _)| *n == name);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| "not there".to_string())
    };
    let host = Host {
        read: &read,
        is_task: &|path: &Path| path.to_string_lossy().ends_with("task"),
        now: jiff::civil::date(2026, 8, 30).at(7, 8, 3, 0),
    };
    rc::resolve(&parse(args), HarborVersion::V0_26, &host).map_err(|e| e.to_string())
}

pub fn resolve(args: &[&str]) -> Resolved {
    resolve_with(args, &[]).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

pub fn no_env(_: &str) -> Option<String> {
    None
}
