//! The `pilothouse` binary: see the library.
fn main() {}
