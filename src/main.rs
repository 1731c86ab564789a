//! The `pilothouse` binary; everything is in the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ExitCode::from(pilothouse::cli::main(pilothouse::cli::Cli::parse()))
}
