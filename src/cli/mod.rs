//! One file per sub-command: arguments → domain → reporter or screen.

pub mod load;
pub mod status;
pub mod tally;

use clap::{Parser, Subcommand};

/// A control room for live agent-benchmark runs.
#[derive(Debug, Parser)]
#[command(name = "pilothouse", version)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print how one or several jobs stand
    Status(status::StatusArgs),
    /// Count trials over one or several job dirs
    Tally(tally::TallyArgs),
}

/// Parses the arguments, runs the command; the exit code.
pub fn main() -> u8 {
    match Cli::parse().command {
        Command::Status(args) => status::run(&args),
        Command::Tally(args) => tally::run(&args),
    }
}
