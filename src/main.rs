//! The `pilothouse` binary: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pilothouse::cli::main())
}
