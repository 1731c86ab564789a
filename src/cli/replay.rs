//! `pilothouse replay <file|trial dir>`.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;

use super::Common;
use super::screen::{self, Start};
use crate::app::derived::Counting;
use crate::app::replay::Source;
use crate::app::update;

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// A cast file (asciicast v1, v2 or v3), or a trial directory whose recordings are played
    pub path: PathBuf,
}

/// Runs it.
pub fn run(args: &Replay, common: &Common) -> u8 {
    if let Err(error) = std::fs::metadata(&args.path) {
        super::complain(&format!("{}: {error}: give a cast file or a trial directory", args.path.display()));
        return super::USAGE;
    }
    if !std::io::stdout().is_terminal() {
        super::complain("replay needs a terminal on standard output");
        return super::USAGE;
    }
    let path = args.path.clone();
    let title = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let source = Source { path, title, episode: None, moment: None };
    screen::run(
        common,
        Start {
            jobs: None,
            watch: Box::new(|_| {}),
            follow: Box::new(|_| {}),
            keep: Box::new(|_| {}),
            counting: Counting::default(),
            prepare: Box::new(move |model| update::replay_only(model, source)),
            leave: None,
            steering: None,
            servers: None,
        },
    )
}
