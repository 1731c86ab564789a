//! `regrade-<n>.json`: the verifier's later word on a trial, beside its result, which stays as it is.

use rustix::fs::AtFlags;
use serde::Serialize;

use super::atomic::{Folder, WriteError};
use super::result::{Utc, VerifierResult};
use super::scrub::Scrub;
use crate::harbor::regrade::{MOST, file_name};
use crate::harbor::{Dir, OpenError};

/// Most bytes kept of one file of the verifier's.
const LOG_CAP: u64 = 16 << 20;
/// Files of the verifier's that are kept, by name, and what the copy is called.
const LOGS: [&str; 4] = ["test-stdout.txt", "ctrf.json", "reward.json", "reward.txt"];
/// Appended where a copy was cut.
const CUT: &str = "\n[cut here by pilothouse: too long]\n";

/// What was asked for beside the trial's own settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RegradeSettings {
    /// The limit of the verifier in seconds; None: none.
    pub timeout_sec: Option<f64>,
    /// `keep`, `none`, or the network that it was connected to.
    pub network: String,
    /// Whether proxy variables were given.
    pub proxy: bool,
    /// Names of the variables that were given; never a value.
    pub env: Vec<String>,
}

/// Why there is no reward.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegradeException {
    /// Bare class name, Harbor's where it has one.
    pub exception_type: String,
    /// What happened.
    pub exception_message: String,
}

/// What the result says, for comparison.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Original {
    /// The primary reward.
    pub reward: Option<f64>,
    /// The exception's type.
    pub exception_type: Option<String>,
}

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)] // named in `report::json` and here
pub struct RegradeFile {
    pub schema_version: u32,
    pub n: u32,
    pub trial_name: String,
    pub trial_id: Option<String>,
    pub job_id: Option<String>,
    pub task_checksum: Option<String>,
    pub task_changed: bool,
    /// `container` or `snapshot`.
    pub kind: String,
    pub processes_lost: bool,
    pub environment: String,
    pub started_at: Utc,
    pub finished_at: Utc,
    pub operator: String,
    pub why: String,
    pub settings: RegradeSettings,
    pub verifier_result: Option<VerifierResult>,
    pub exception_info: Option<RegradeException>,
    pub original: Original,
    pub logs: Vec<String>,
    pub pilothouse_version: String,
}

/// The number of the next regrade of a trial.
///
/// # Errors
/// [`WriteError::Exists`] where there are too many.
pub fn next_number(trial: &Folder) -> Result<u32, WriteError> {
    let free = |n: &u32| trial.dir().stat(&file_name(*n)).is_err();
    (1..=MOST).find(free).ok_or_else(|| WriteError::Exists { path: trial.path().join(file_name(MOST)) })
}

/// Copies what a verifier left to `regrade-<n>.<name>` in the trial's directory: regular files alone, under
/// a cap, without the known secrets, never through a link. Gives the names of the copies. One that was left
/// by a regrade that never ended is replaced.
///
/// # Errors
/// See [`WriteError`].
pub fn keep_logs(trial: &Folder, n: u32, logs: &Dir, scrub: &Scrub) -> Result<Vec<String>, WriteError> {
    let mut kept = Vec::new();
    for name in LOGS {
        let read = match logs.read(name, LOG_CAP) {
            Ok(read) => read,
            Err(OpenError::Missing | OpenError::Vanished) => continue,
            Err(problem) => {
                tracing::warn!(%problem, name, "of the verifier, not kept");
                continue;
            }
        };
        let text = String::from_utf8_lossy(&read.data);
        let mut text = if scrub.values().is_empty() { text.into_owned() } else { scrub.text(&text) };
        if read.truncated {
            text.push_str(CUT);
        }
        let copy = format!("regrade-{n}.{name}");
        trial.replace(&copy, text.as_bytes())?;
        kept.push(copy);
    }
    Ok(kept)
}

/// Removes copies of a regrade that came to nothing.
pub fn drop_logs(trial: &Folder, names: &[String]) {
    for name in names.iter().filter(|name| name.starts_with("regrade-")) {
        // What stays is replaced by the next one.
        let _ = rustix::fs::unlinkat(trial.dir(), name.as_str(), AtFlags::empty());
    }
}

/// Writes the document: a new name, never another's.
///
/// # Errors
/// [`WriteError::Exists`] when somebody else was faster; else see [`WriteError`].
pub fn write(trial: &Folder, file: &RegradeFile, scrub: &Scrub) -> Result<(), WriteError> {
    let wrong = |e: serde_json::Error| WriteError::of(&trial.path().join(file_name(file.n)), &e.into());
    let text = serde_json::to_string_pretty(file).map_err(wrong)?;
    trial.write_once(&file_name(file.n), scrub.json(text).as_bytes())
}
