//! The directory of a trial at work.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::fs::AtFlags;

use super::atomic::{Folder, Log, WriteError};
use super::lease::LeaseLost;
use super::scrub::Scrub;

/// The directories of a trial that containers may get to see.
pub(super) const MOUNTED: [&str; 3] = ["agent", "verifier", "artifacts"];
/// What lies in the last of them, one in the other.
const PUBLISHED: [&str; 2] = ["logs", "artifacts"];
/// Mode of every directory that no container gets to see.
pub(super) const PRIVATE: u32 = 0o755;

/// Modes of the directories of a trial that are handed to containers: 0o777 where one is mounted into a
/// container whose user is not ours, 0o755 else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// `agent/`.
    pub agent: u32,
    /// `verifier/`.
    pub verifier: u32,
    /// `artifacts/`.
    pub artifacts: u32,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes { agent: PRIVATE, verifier: PRIVATE, artifacts: PRIVATE }
    }
}

impl Modes {
    /// Makes the three in a trial or a step.
    pub(super) fn make(self, folder: &Folder) -> Result<Rooms, WriteError> {
        let make = |name: &str, mode: u32| folder.make(name, mode).map(Arc::new);
        let [agent, verifier, artifacts] = MOUNTED;
        Ok(Rooms {
            agent: make(agent, self.agent)?,
            verifier: make(verifier, self.verifier)?,
            artifacts: make(artifacts, self.artifacts)?,
        })
    }
}

/// The directories of a trial's phases, open.
#[derive(Debug, Clone)]
pub struct Rooms {
    /// `agent/`.
    pub agent: Arc<Folder>,
    /// `verifier/`.
    pub verifier: Arc<Folder>,
    /// `artifacts/`.
    pub artifacts: Arc<Folder>,
}

impl Rooms {
    /// Those that are in a trial now.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn open(trial: &Folder) -> Result<Rooms, WriteError> {
        let open = |name: &str| trial.sub(name).map(Arc::new);
        let [agent, verifier, artifacts] = MOUNTED;
        Ok(Rooms { agent: open(agent)?, verifier: open(verifier)?, artifacts: open(artifacts)? })
    }

    /// `artifacts/logs/artifacts`, where containers publish theirs.
    pub fn published(&self) -> PathBuf {
        PUBLISHED.iter().fold(self.artifacts.path().to_path_buf(), |path, name| path.join(name))
    }

    /// Makes it.
    pub(super) fn publish(&self) -> Result<(), WriteError> {
        let [outer, inner] = PUBLISHED;
        self.artifacts.make(outer, PRIVATE)?.make(inner, PRIVATE).map(drop)
    }
}

/// Why nothing is written any more, once it is known; shared by a job and its trials.
pub(super) type Lost = Arc<OnceLock<LeaseLost>>;

pub(super) fn still_held(lost: &Lost, folder: &Folder) -> Result<(), WriteError> {
    match lost.get() {
        Some(lost) => Err(WriteError::Lease { path: folder.path().to_path_buf(), lost: lost.clone() }),
        None => Ok(()),
    }
}

/// The directory of one trial at work.
#[derive(Debug)]
pub struct TrialFolder {
    pub(super) name: String,
    pub(super) folder: Folder,
    pub(super) log: Log,
    pub(super) scrub: Scrub,
    pub(super) lost: Lost,
    pub(super) rooms: Rooms,
}

impl TrialFolder {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The directories of its phases, as they were made.
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// Whether something may still be written here.
    pub(super) fn held(&self) -> Result<(), WriteError> {
        still_held(&self.lost, &self.folder)
    }

    /// Appends to `trial.log`.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn log(&mut self, text: &str) -> Result<(), WriteError> {
        self.held()?;
        self.log.line(&self.scrub.text(text))
    }

    /// Writes `exception.txt`, the first sign of a failure long before the result.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when there is one: the first exception stays.
    pub fn exception(&self, traceback: &str) -> Result<(), WriteError> {
        self.held()?;
        self.folder.write_once("exception.txt", self.scrub.text(traceback).as_bytes())
    }

    /// Makes `steps/<step>` with its three directories.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn begin_step(&self, step: &str, modes: Modes) -> Result<Folder, WriteError> {
        self.held()?;
        let made = self.folder.make_or_open("steps", PRIVATE)?.make(step, PRIVATE)?;
        modes.make(&made)?;
        Ok(made)
    }

    /// Writes a note of our own beside Harbor's files, in place of one that may be there. The text is
    /// JSON.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn note(&self, name: &str, json: &str) -> Result<(), WriteError> {
        self.held()?;
        self.folder.jot(name, self.scrub.json(json.to_string()).as_bytes())
    }
}

/// Removes what was made of a trial that could not be begun, and nothing else.
pub(super) fn unmake(trial: &Folder) {
    let remove = |folder: &Folder, name: &str, flags| {
        // What is not empty holds something else, and stays.
        let _ = rustix::fs::unlinkat(folder.dir(), name, flags);
    };
    if let Ok(artifacts) = trial.sub("artifacts") {
        let [outer, inner] = PUBLISHED;
        if let Ok(logs) = artifacts.sub(outer) {
            remove(&logs, inner, AtFlags::REMOVEDIR);
        }
        remove(&artifacts, outer, AtFlags::REMOVEDIR);
    }
    ["lock.json", "trial.log", "config.json"].iter().for_each(|name| remove(trial, name, AtFlags::empty()));
    MOUNTED.iter().for_each(|name| remove(trial, name, AtFlags::REMOVEDIR));
}
