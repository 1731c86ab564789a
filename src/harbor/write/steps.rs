//! The steps of a multi-step trial on disk: what a step left moves to `steps/<step>/`.
//!
//! The directories it moves out of are shared with a container: only names within open directories are
//! renamed, which follows no link, and a directory that is shared stays where it is.

use std::ffi::OsStr;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::atomic::{Folder, WriteError};
use super::trial::TrialFolder;

/// Looks at a directory that somebody may still fill.
const LOOKS: usize = 3;

impl TrialFolder {
    /// Moves everything that a step left in `agent/`, `verifier/` and `artifacts/` into the step's own
    /// directories; `artifacts/logs/artifacts` stays, its contents move.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn archive(&self, step: &Folder) -> Result<(), WriteError> {
        self.held()?;
        for part in ["agent", "verifier"] {
            if let Some(from) = there(self.folder().sub(part))? {
                empty_into(&from, &step.make_or_open(part, 0o755)?, None)?;
            }
        }
        let Some(artifacts) = there(self.folder().sub("artifacts"))? else { return Ok(()) };
        let to = step.make_or_open("artifacts", 0o755)?;
        empty_into(&artifacts, &to, Some("logs"))?;
        let Some(logs) = there(artifacts.sub("logs"))? else { return Ok(()) };
        let Some(published) = there(logs.sub("artifacts"))? else { return Ok(()) };
        let some = published.dir().list().map_err(|e| WriteError::of(published.path(), &e))?;
        if !some.is_empty() {
            empty_into(&published, &to.make_or_open("logs", 0o755)?.make_or_open("artifacts", 0o755)?, None)?;
        }
        Ok(())
    }

    /// Removes the directories that a multi-step trial leaves empty, when no container uses them any
    /// more.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn drop_empty(&self) -> Result<(), WriteError> {
        self.held()?;
        if let Some(artifacts) = there(self.folder().sub("artifacts"))? {
            if let Some(logs) = there(artifacts.sub("logs"))? {
                remove_empty(&logs, "artifacts");
            }
            remove_empty(&artifacts, "logs");
        }
        for part in ["artifacts", "agent", "verifier"] {
            remove_empty(self.folder(), part);
        }
        self.folder().sync()
    }
}

/// A directory, if there is one.
fn there(opened: Result<Folder, WriteError>) -> Result<Option<Folder>, WriteError> {
    match opened {
        Ok(folder) => Ok(Some(folder)),
        Err(WriteError::Vanished { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

fn empty_into(from: &Folder, to: &Folder, but: Option<&str>) -> Result<(), WriteError> {
    for _ in 0..LOOKS {
        let entries = from.dir().list().map_err(|e| WriteError::of(from.path(), &e))?;
        let names: Vec<_> = entries.into_iter().map(|e| e.name).filter(|n| Some(&**n) != but.map(OsStr::new)).collect();
        if names.is_empty() {
            break;
        }
        for name in names {
            match rustix::fs::renameat(from.dir(), name.as_os_str(), to.dir(), name.as_os_str()) {
                // Somebody inside was faster.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(WriteError::of(&to.path().join(&name), &e.into())),
            }
        }
    }
    to.sync()
}

/// One that is not empty stays.
fn remove_empty(folder: &Folder, name: &str) {
    let _ = rustix::fs::unlinkat(folder.dir(), name, AtFlags::REMOVEDIR);
}
