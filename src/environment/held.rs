//! Containers that are held, and snapshots of them, for a verifier that is to run again: how they are
//! recognised, and the records of them in the state dir.
//!
//! What an engine keeps says itself that it is held: a container by its name (an engine changes no label of
//! what is there), a snapshot by its labels. A record adds what the engine does not know; without one a held
//! thing is listed all the same.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::labels::{Kept, KeptKind, Role};
use crate::harbor::write::{Folder, WriteError};
use crate::harbor::{Dir, EntryKind};
use crate::job::text::clean;
use crate::job::{Stamp, time};

/// How the name of a held container begins; then come its second since 1970 and its trial.
const PREFIX: &str = "pilothouse-held-";
/// Directory of the records in the state dir.
const RECORDS: &str = "held";
/// Records that are read, and the largest one.
const MOST: usize = 10_000;
const CAP: u64 = 256 << 10;

/// The variable that every process of a verifier has, so that they can be found and ended.
pub const VERIFIER_MARK: &str = "PILOTHOUSE_VERIFIER";

/// Name of a container that is held since then.
pub fn held_name(since: Stamp, trial: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' };
    let stem: String = trial.chars().map(plain).take(64).collect();
    format!("{PREFIX}{}-{stem}", since.as_second())
}

/// Since when a container of this name is held; None: it is not.
pub fn held_since(name: &str) -> Option<Stamp> {
    let (seconds, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Stamp::from_second(seconds.parse().ok()?).ok()
}

/// What is kept for a regrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldKind {
    /// The trial's container, with its processes.
    Container,
    /// An image of its files from before the tests; processes are lost.
    Snapshot,
}

impl HeldKind {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            HeldKind::Container => "container",
            HeldKind::Snapshot => "snapshot",
        }
    }
}

/// What a container was when it was taken aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenAside {
    /// The engine's id.
    pub id: String,
    /// Its name now; of a snapshot its tag.
    pub name: String,
    /// Bytes of memory that it uses; None: not known.
    pub memory: Option<u64>,
    /// Bytes on the disk; None: not known.
    pub bytes: Option<u64>,
}

/// What a snapshot is to be, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotAsk {
    /// Most bytes that the container may have written.
    pub bytes: u64,
    /// Longest time.
    pub time: Duration,
    /// Since when it is kept.
    pub since: Stamp,
}

/// The record of a held thing: `<state dir>/held/<id>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRecord {
    /// 1.
    pub schema_version: u32,
    /// What it is.
    pub kind: HeldKind,
    /// The engine's id.
    pub id: String,
    /// Its name, or the tag of a snapshot.
    pub name: String,
    /// The job's id.
    pub job_id: String,
    /// The job dir.
    pub job_dir: PathBuf,
    /// The trial's directory name.
    pub trial: String,
    /// Since when.
    pub since: String,
    /// When its age is over. Nobody removes it at that moment once its run has ended.
    pub until: Option<String>,
    /// Why.
    pub why: String,
    /// Bytes of memory when it was paused.
    pub memory: Option<u64>,
    /// Bytes on the disk.
    pub bytes: Option<u64>,
    /// Address of the engine.
    pub engine: String,
}

/// A held thing, as engine and record tell of it together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What the engine has.
    pub kept: Kept,
    /// What it is.
    pub kind: HeldKind,
    /// Since when.
    pub since: Option<Stamp>,
    /// The record; None where it was lost, or another user's or machine's run wrote it.
    pub record: Option<HeldRecord>,
}

impl Held {
    /// When its age is over; None: nobody said.
    pub fn until(&self) -> Option<Stamp> {
        self.record.as_ref()?.until.as_deref().and_then(time::parse).map(|read| read.at)
    }

    /// Whether its age is over.
    pub fn expired(&self, now: Stamp) -> bool {
        self.until().is_some_and(|until| until <= now)
    }

    /// Why it is held, safe for a terminal; empty: nobody knows any more.
    pub fn why(&self) -> String {
        clean(self.record.as_ref().map_or("", |r| r.why.as_str())).into_owned()
    }

    /// The job dir, where it is known.
    pub fn job_dir(&self) -> Option<PathBuf> {
        let owner = super::OwnerLabel::parse(&self.kept.labels.owner).map(|owner| owner.job_dir);
        self.record.as_ref().map(|r| r.job_dir.clone()).or(owner)
    }

    /// How it stands, in a word.
    pub fn state(&self) -> &'static str {
        match self.kind {
            HeldKind::Snapshot => "image",
            HeldKind::Container if self.kept.paused => "paused",
            HeldKind::Container if self.kept.running => "running",
            HeldKind::Container => "ended",
        }
    }
}

/// What of a listing is held, with its records, the oldest first.
pub fn held_of(kept: &[Kept], records: &[HeldRecord]) -> Vec<Held> {
    let mut out: Vec<Held> = kept
        .iter()
        .filter_map(|kept| {
            let (kind, since) = match (kept.kind, kept.labels.role) {
                (KeptKind::Container, Role::Trial) => (HeldKind::Container, Some(held_since(&kept.name)?)),
                (KeptKind::Image, Role::Snapshot) => (HeldKind::Snapshot, kept.since),
                _ => return None,
            };
            let record = records.iter().find(|r| r.id == kept.id && r.kind == kind).cloned();
            Some(Held { kept: kept.clone(), kind, since, record })
        })
        .collect();
    out.sort_by(|a, b| (a.since, &a.kept.name).cmp(&(b.since, &b.kept.name)));
    out
}

/// The records in a state dir.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRecords {
    state_dir: PathBuf,
}

impl HeldRecords {
    /// Those in this state dir. Nothing is opened or made yet.
    pub fn of(state_dir: &Path) -> HeldRecords {
        HeldRecords { state_dir: state_dir.to_path_buf() }
    }

    /// Writes one down.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, record: &HeldRecord) -> Result<(), WriteError> {
        std::fs::create_dir_all(&self.state_dir).map_err(|e| WriteError::of(&self.state_dir, &e))?;
        let place = Folder::open(&self.state_dir)?.make_or_open(RECORDS, 0o700)?;
        let text = serde_json::to_vec_pretty(record)
            .map_err(|e| WriteError::of(place.path(), &io::Error::other(e.to_string())))?;
        place.replace(&file(&record.id), &text)
    }

    /// All of them; what can not be read says nothing.
    pub fn read(&self) -> Vec<HeldRecord> {
        let Ok(dir) = Dir::open(&self.state_dir.join(RECORDS)) else { return Vec::new() };
        let files = dir.list().unwrap_or_default().into_iter().filter(|e| e.kind == EntryKind::File).take(MOST);
        let names = files.filter_map(|e| e.name.into_string().ok()).filter(|name| name.ends_with(".json"));
        let read = |name: String| serde_json::from_slice(&dir.read_all(&name, CAP).ok()?.data).ok();
        names.filter_map(read).filter(|r: &HeldRecord| r.schema_version == 1).collect()
    }

    /// Keeps others from a held thing, as long as the file lives; None: somebody else is at it.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn lock(&self, id: &str) -> Result<Option<File>, WriteError> {
        let place = self.state_dir.join(RECORDS);
        let path = place.join(file(id)).with_extension("lock");
        let made = std::fs::create_dir_all(&place)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(&path));
        let file = made.map_err(|e| WriteError::of(&path, &e))?;
        Ok(rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file))
    }

    /// Forgets one; fine when it is not there.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn forget(&self, id: &str) -> Result<(), WriteError> {
        let place = self.state_dir.join(RECORDS);
        let path = place.join(file(id));
        // Nobody waits for a thing that is gone.
        let _ = std::fs::remove_file(path.with_extension("lock"));
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(WriteError::of(&path, &e)),
            _ => Ok(()),
        }
    }
}

fn file(id: &str) -> String {
    let stem: String = id.chars().filter(char::is_ascii_alphanumeric).take(80).collect();
    format!("{}.json", if stem.is_empty() { "unnamed" } else { &stem })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_since_when() {
        let since = Stamp::from_second(1_800_000_000).unwrap();
        let name = held_name(since, "a b/c__1");
        assert_eq!(name, "pilothouse-held-1800000000-a-b-c__1");
        assert_eq!(held_since(&name), Some(since));
        for other in ["pilothouse-a__1-00ff", "pilothouse-held-x-a", "pilothouse-held-", "held-1-a"] {
            assert_eq!(held_since(other), None, "{other}");
        }
    }

    #[test]
    fn records_come_back_and_rubbish_does_not() {
        let temp = tempfile::tempdir().unwrap();
        let records = HeldRecords::of(temp.path());
        assert_eq!(records.read(), []);
        let record = HeldRecord {
            schema_version: 1,
            kind: HeldKind::Container,
            id: "abc".to_string(),
            name: "n".to_string(),
            job_id: "j".to_string(),
            job_dir: "/jobs/j".into(),
            trial: "t".to_string(),
            since: "2026-11-30T00:00:00Z".to_string(),
            until: None,
            why: "w".to_string(),
            memory: Some(1),
            bytes: None,
            engine: "e".to_string(),
        };
        records.write(&record).unwrap();
        std::fs::write(temp.path().join("held/torn.json"), b"{").unwrap();
        std::os::unix::fs::symlink("abc.json", temp.path().join("held/link.json")).unwrap();
        assert_eq!(records.read(), [record]);
        records.forget("abc").unwrap();
        records.forget("abc").unwrap();
        assert_eq!(records.read(), []);
    }
}
