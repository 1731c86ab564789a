//! The verifier's directory of a trial whose container is held: set apart from what it left there.

use rustix::fs::renameat;

use super::atomic::{Folder, WriteError};

/// Where the directory is that a held container sees as `/logs/verifier`: in a trial's directory.
pub const APART: &str = "held";
/// The name of the directory itself, in both places.
const VERIFIER: &str = "verifier";

/// Gives the container's `/logs/verifier` another place, `held/verifier`, and puts what the verifier left
/// there into a new `verifier/`: what the container writes from now on touches none of it. Everything is
/// moved by name, whatever it is: nothing is opened, no link is followed. A mount follows its directory.
///
/// # Errors
/// See [`WriteError`]; the container must not be held then.
pub fn set_verifier_apart(trial: &Folder) -> Result<(), WriteError> {
    let held = trial.make_or_open(APART, 0o755)?;
    let wrong = |e: rustix::io::Errno| WriteError::of(&held.path().join(VERIFIER), &e.into());
    if held.dir().stat(VERIFIER).is_ok() {
        return Err(WriteError::Exists { path: held.path().join(VERIFIER) });
    }
    renameat(trial.dir(), VERIFIER, held.dir(), VERIFIER).map_err(wrong)?;
    let apart = held.sub(VERIFIER)?;
    let kept = trial.make(VERIFIER, 0o755)?;
    for entry in apart.dir().list().map_err(|e| WriteError::of(apart.path(), &e))? {
        renameat(apart.dir(), entry.name.as_os_str(), kept.dir(), entry.name.as_os_str()).map_err(wrong)?;
    }
    kept.sync()?;
    held.sync()?;
    trial.sync()
}
