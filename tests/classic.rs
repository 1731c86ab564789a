//! Runs of classic terminal-bench: recorded ones where they are present, and small ones made here by the
//! layout's description; attached, counted, classified, looked at, followed live, and never written into.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

mod support;

#[path = "classic/acts.rs"]
mod acts;
#[path = "classic/hard.rs"]
mod hard;
#[path = "classic/live.rs"]
mod live;
#[path = "classic/made.rs"]
mod made;
#[path = "classic/recorded.rs"]
mod recorded;
#[path = "classic/screens.rs"]
mod screens;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program with a state dir of its own.
fn pilothouse(state: &Path, args: &[&OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.env("PILOTHOUSE_STATE_DIR", state).env("HOME", state).env_remove("XDG_CONFIG_HOME");
    command.args(args).output().unwrap()
}

/// A command with `--json` on directories: the document and the exit code.
fn json(command: &str, args: &[&str], dirs: &[PathBuf]) -> (Value, i32) {
    let state = tempfile::tempdir().unwrap();
    json_in(state.path(), command, args, dirs)
}

fn json_in(state: &Path, command: &str, args: &[&str], dirs: &[PathBuf]) -> (Value, i32) {
    let mut all: Vec<&OsStr> = vec![command.as_ref(), "--json".as_ref()];
    all.extend(args.iter().map(|arg| -> &OsStr { arg.as_ref() }));
    all.extend(dirs.iter().map(|dir| dir.as_os_str()));
    let out = pilothouse(state, &all);
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let document = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{command}: {e} in {text:?}\n{errors}"));
    (document, out.status.code().unwrap())
}

/// The messages of a kind of warning.
fn warnings(document: &Value, kind: &str) -> Vec<String> {
    let all = document["warnings"].as_array().unwrap().iter();
    all.filter(|w| w["kind"] == kind).map(|w| w["message"].as_str().unwrap().to_string()).collect()
}

fn score(document: &Value, name: &str) -> Value {
    document["scores"].as_array().unwrap().iter().find(|s| s["name"] == name).cloned().unwrap_or(Value::Null)
}

/// The row of a trial whose path ends so.
fn row(document: &Value, trial: &str) -> Value {
    let rows = document["trials"].as_array().unwrap().iter();
    let found = |row: &&Value| row["trial"].as_str().is_some_and(|name| name.ends_with(trial));
    rows.into_iter().find(found).cloned().unwrap_or_else(|| panic!("no {trial}"))
}

/// Everything below a directory: paths, sizes, times.
fn print_of(dir: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(&at).unwrap().flatten() {
            let meta = entry.path().symlink_metadata().unwrap();
            if meta.is_dir() {
                todo.push(entry.path());
            }
            out.push((entry.path(), meta.len(), meta.modified().unwrap()));
        }
    }
    out.sort();
    out
}
