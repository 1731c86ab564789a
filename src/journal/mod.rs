//! Notes about acts on a job: `pilothouse.jsonl`, one line an act, only ever appended to.
//!
//! It lies in the job dir, or in `<state dir>/journal/<job id>.jsonl` where that can not be appended
//! to. A line goes out in one write at the end of the file, under a lock where the file system has
//! them: of two writers at once none loses anything. A line that somebody's death cut short is closed
//! first.
//!
//! [`read()`] puts both places together, whoever wrote there: of several operators' words on a trial the
//! last one counts, all are kept. [`Verdicts`] writes what a person says of trials. Lines name the
//! trial's directory and its result id, never a path, so that they hold for a copy of the job dir, too.

mod read;
mod say;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::harbor::Dir;
use crate::harbor::write::{Folder, WriteError};
use crate::job::Stamp;
use crate::job::text::{mask_secrets, path_text};

pub use read::{MOVED, Reading, moves, place_name, read, state_files};
pub use say::{Saying, Subject, Verdicts, Written};

/// Its name in a job dir.
pub const JOURNAL: &str = "pilothouse.jsonl";
/// The act of a line about a container that is held, or not any more.
pub const HOLD: &str = "hold";
/// The act of a line about a regrade: its begin, and what it came to.
pub const REGRADE: &str = "regrade";
/// Longest wait for another writer.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// One act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// 1.
    pub schema_version: u32,
    /// When, UTC.
    pub time: String,
    /// `user@host`.
    pub operator: String,
    /// What was done: `stop`, `quarantine`, `remove`, `undo`, `requeue`, `verdict`, `note`, `hold`,
    /// `regrade`.
    pub act: String,
    /// To what.
    pub subject: String,
    /// The trial, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// Why: the evidence, or the operator's reason.
    pub why: String,
    /// What came of it.
    pub result: String,
    /// Where the thing is now, for what was moved.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy")]
    pub place: Option<PathBuf>,
    /// Result id of the trial that was looked at; none for a trial without result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_id: Option<String>,
    /// Of `verdict`: its word, or `none` for one that was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Class of the trial at that time, with its sub-class: `infra/docker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The rule that gave the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A path as text: one that is not UTF-8 must not cost the whole line.
fn lossy<S: serde::Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(path_text).serialize(to)
}

impl Note {
    /// A note of this moment by this operator.
    pub fn now(act: &str, subject: &str, why: &str) -> Note {
        Note {
            schema_version: 1,
            time: Stamp::now().to_string(),
            operator: operator(),
            act: act.to_string(),
            subject: subject.to_string(),
            trial: None,
            why: why.to_string(),
            result: String::new(),
            place: None,
            result_id: None,
            verdict: None,
            class: None,
            rule: None,
        }
    }

    fn line(&self) -> Vec<u8> {
        let masked = |text: &String| mask_secrets(text).into_owned();
        let safe = Note {
            subject: masked(&self.subject),
            why: masked(&self.why),
            result: masked(&self.result),
            ..self.clone()
        };
        let mut line = serde_json::to_vec(&safe).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The user that this process belongs to.
pub fn user() -> String {
    name_of(rustix::process::geteuid().as_raw())
}

/// Who acts: the login name and the host.
pub fn operator() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|v| std::env::var(v).ok().filter(|u| !u.is_empty()));
    let user = user.unwrap_or_else(self::user);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { user } else { format!("{user}@{host}") }
}

/// A user's name by `/etc/passwd`, else the number.
fn name_of(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let fits = |line: &&str| line.split(':').nth(2).and_then(|n| n.parse().ok()) == Some(uid);
    let name = users.lines().find(fits).and_then(|line| line.split(':').next());
    name.map_or_else(|| format!("uid {uid}"), str::to_string)
}

/// Name of a journal's file in the state dir.
fn file_of(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let stem: String = name.trim_start_matches('.').chars().map(plain).take(120).collect();
    format!("{}.jsonl", if stem.is_empty() { "unnamed" } else { &stem })
}

/// A journal that is open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens the journal of a job, in its directory or else in the state dir. `job_id` names the file
    /// there.
    ///
    /// # Errors
    /// When neither place can be appended to; nothing should be done then.
    pub fn open(job_dir: &Path, state_dir: Option<&Path>, job_id: &str) -> Result<Journal, WriteError> {
        match Journal::beside(job_dir) {
            Ok(journal) => Ok(journal),
            Err(why) => Journal::in_state(state_dir.ok_or(why)?, job_id),
        }
    }

    /// Opens the journal in a job dir.
    ///
    /// # Errors
    /// When it can not be appended to there.
    pub fn beside(job_dir: &Path) -> Result<Journal, WriteError> {
        let folder = Folder::open(job_dir)?;
        Journal::within(folder.dir(), &job_dir.join(JOURNAL), JOURNAL)
    }

    /// Opens a journal of the state dir, for what belongs to no job dir.
    ///
    /// # Errors
    /// When it can not be appended to.
    pub fn in_state(state_dir: &Path, name: &str) -> Result<Journal, WriteError> {
        std::fs::create_dir_all(state_dir).map_err(|e| WriteError::of(state_dir, &e))?;
        let place = Folder::open(state_dir)?.make_or_open("journal", 0o700)?;
        let file = file_of(name);
        Journal::within(place.dir(), &place.path().join(&file), &file)
    }

    fn within(dir: &Dir, path: &Path, name: &str) -> Result<Journal, WriteError> {
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let wrong = |e: Errno| WriteError::of(path, &e.into());
        let fd = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644)).map_err(wrong)?;
        let stat = rustix::fs::fstat(&fd).map_err(wrong)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            let what = "something that is not a file of one name";
            return Err(WriteError::InTheWay { path: path.to_path_buf(), what });
        }
        Ok(Journal { file: File::from(fd), path: path.to_path_buf() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a note.
    ///
    /// # Errors
    /// When it can not be written.
    pub fn write(&mut self, note: &Note) -> Result<(), WriteError> {
        self.write_all(std::slice::from_ref(note))
    }

    /// Appends several notes, in one write.
    ///
    /// # Errors
    /// When they can not be written; some of them may be there nevertheless.
    pub fn write_all(&mut self, notes: &[Note]) -> Result<(), WriteError> {
        let lines: Vec<u8> = notes.iter().flat_map(Note::line).collect();
        let locked = self.lock();
        let done = self.append(&lines);
        if locked {
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
        done.map_err(|e| WriteError::of(&self.path, &e))
    }

    fn append(&mut self, line: &[u8]) -> std::io::Result<()> {
        let mut whole = Vec::with_capacity(line.len() + 1);
        let mut last = [0];
        let end = self.file.seek(SeekFrom::End(0))?;
        if end > 0 {
            self.file.seek(SeekFrom::Start(end - 1))?;
            self.file.read_exact(&mut last)?;
            if last != [b'\n'] {
                whole.push(b'\n');
            }
        }
        whole.extend_from_slice(line);
        self.file.write_all(&whole)?;
        match self.file.sync_data() {
            // Some file systems can not.
            Err(e) if matches!(e.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::INVAL | Errno::NOTSUP)) => {
                Ok(())
            }
            other => other,
        }
    }

    /// Takes the lock, where the file system has one and its holder gives it up in time.
    fn lock(&self) -> bool {
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return true,
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn two_writers_lose_nothing_and_a_cut_line_is_closed() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join(JOURNAL), "{\"cut").unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let dir = temp.path();
                scope.spawn(move || {
                    let mut journal = Journal::open(dir, None, "j").unwrap();
                    for n in 0..50 {
                        journal.write(&Note::now("stop", &format!("{writer}-{n}"), "why")).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(temp.path().join(JOURNAL)).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("{\"cut"));
        let mut seen: Vec<String> = lines
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["subject"].as_str().unwrap().to_string())
            .collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 200);
    }

    #[test]
    fn a_link_in_the_way_sends_the_notes_to_the_state_dir() {
        let temp = tempfile::tempdir().unwrap();
        let (job, state, other) = (temp.path().join("job"), temp.path().join("state"), temp.path().join("other"));
        std::fs::create_dir(&job).unwrap();
        std::fs::write(&other, "mine").unwrap();
        std::os::unix::fs::symlink(&other, job.join(JOURNAL)).unwrap();
        let mut journal = Journal::open(&job, Some(&state), "../id/x").unwrap();
        journal.write(&Note::now("stop", "x", "y")).unwrap();
        assert!(journal.path().starts_with(state.join("journal")));
        assert_eq!(std::fs::read_to_string(other).unwrap(), "mine");
    }
}
