//! The note about a child, one file each in `<state dir>/harbor`: by it the child is found again after the
//! screen has gone, and its exit code is known after the child has gone.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::audit::process::start_time;
use crate::harbor::Dir;
use crate::harbor::dir::EntryKind;
use crate::harbor::write::lease::{Process, myself};
use crate::harbor::write::{Folder, WriteError};
use crate::job::text::{clean, mask_secrets};

/// The directory within the state dir.
pub const PLACE: &str = "harbor";
/// Largest note that is read, in bytes.
const LARGEST: u64 = 4 << 20;
/// Bytes of a child's output that are looked at for its last lines.
const TAIL: u64 = 64 << 10;
/// Characters of a line of it that are shown.
const LINE: usize = 400;

/// A process of this host, as it can be told from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pid {
    /// Its number.
    pub pid: u32,
    /// Its start in clock ticks since boot.
    pub started: u64,
    /// One boot of one kernel.
    pub boot_id: String,
    /// The process name space that the number is of.
    pub pid_namespace: String,
}

impl Pid {
    /// A process that lives now.
    pub fn of(pid: u32) -> Pid {
        let me = myself();
        let started = start_time(pid).unwrap_or_default();
        Pid { pid, started, boot_id: me.boot_id, pid_namespace: me.pid_namespace }
    }

    /// Whether it is there; None where its number means nothing here.
    pub fn lives(&self) -> Option<bool> {
        match Process::of(&self.boot_id, &self.pid_namespace, self.pid, self.started) {
            Process::There => Some(true),
            Process::Gone => Some(false),
            Process::Elsewhere => None,
        }
    }
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// UTC.
    pub at: String,
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Ended {
    /// In words: `exit code 1`, `signal 9`.
    pub fn words(&self) -> String {
        match (self.code, self.signal) {
            (Some(130), _) => "exit code 130 (stopped by a signal, in order)".to_string(),
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "exit code unknown".to_string(),
        }
    }
}

/// The note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// 1.
    pub schema_version: u32,
    /// Name of the note, without its ending.
    pub id: String,
    /// The Harbor program.
    pub program: PathBuf,
    /// Its version, where it is known.
    pub version: Option<String>,
    /// The words for it, without secrets.
    pub args: Vec<String>,
    /// Where it was started.
    pub cwd: PathBuf,
    /// The job dir that was asked for; None where its name is made from the time.
    pub asked: Option<PathBuf>,
    /// The job dir that it writes into; None until that is known.
    pub job_dir: Option<PathBuf>,
    /// Where its output goes.
    pub log: PathBuf,
    /// When it was started, UTC.
    pub began: String,
    /// The process that waits for it.
    pub keeper: Pid,
    /// The child, which leads its process group.
    pub child: Pid,
    /// How it ended; None while it lives, or where nobody was there to see it.
    pub ended: Option<Ended>,
}

/// How a child stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It lives.
    Runs,
    /// It has ended.
    Ended(Ended),
    /// It is gone, and the process that waited for it was gone before: its exit code is not known.
    Gone,
    /// It was started on another host, or in another container.
    Elsewhere,
}

impl State {
    /// The word in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            State::Runs => "runs",
            State::Ended(_) => "ended",
            State::Gone => "gone",
            State::Elsewhere => "elsewhere",
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        match self {
            State::Runs => "runs".to_string(),
            State::Ended(ended) => format!("ended with {}", ended.words()),
            State::Gone => "gone, exit code unknown".to_string(),
            State::Elsewhere => "started on another host".to_string(),
        }
    }
}

impl Record {
    /// How it stands now.
    pub fn state(&self) -> State {
        match (&self.ended, self.child.lives()) {
            (Some(ended), _) => State::Ended(ended.clone()),
            (None, Some(true)) => State::Runs,
            // The note follows the end at once.
            (None, Some(false)) if self.keeper.lives() == Some(true) => State::Runs,
            (None, Some(false)) => State::Gone,
            (None, None) => State::Elsewhere,
        }
    }

    /// Reads it again and says how it stands: the end may be noted between a read and a look at the process.
    pub fn look(&mut self, state_dir: &Path) -> State {
        for _ in 0..2 {
            if let Some(record) = Record::read(state_dir, &self.id) {
                *self = record;
            }
            let state = self.state();
            if state != State::Gone {
                return state;
            }
        }
        State::Gone
    }

    /// It writes elsewhere than it was asked to.
    pub fn unexpected(&self) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        matches!((&self.asked, &self.job_dir), (Some(asked), Some(dir)) if real(asked) != real(dir))
    }

    /// Writes it: whole or not at all.
    ///
    /// # Errors
    /// No room, no permission.
    pub fn write(&self, state_dir: &Path) -> Result<(), WriteError> {
        let place = place(state_dir)?;
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        Folder::open(&place)?.replace(&format!("{}.json", self.id), &text)
    }

    /// Reads one again; None where it can not be read.
    pub fn read(state_dir: &Path, id: &str) -> Option<Record> {
        let dir = Dir::open(&state_dir.join(PLACE)).ok()?;
        let bytes = dir.read(&format!("{id}.json"), LARGEST).ok()?;
        serde_json::from_slice(&bytes.data).ok().filter(|r: &Record| r.id == id)
    }

    /// All of a state dir, the newest first.
    pub fn all(state_dir: &Path) -> Vec<Record> {
        let Ok(dir) = Dir::open(&state_dir.join(PLACE)) else { return Vec::new() };
        let seen = |mut record: Record| {
            record.look(state_dir);
            Some(record)
        };
        let names = dir.list().unwrap_or_default().into_iter().filter(|e| e.kind == EntryKind::File);
        let mut out: Vec<Record> =
            names.filter_map(|e| seen(Record::read(state_dir, e.name.to_str()?.strip_suffix(".json")?)?)).collect();
        out.sort_by(|a, b| (&b.began, &b.id).cmp(&(&a.began, &a.id)));
        out
    }

    /// The newest that is meant by a word: its id, its process, the job dir that it writes into.
    pub fn find(state_dir: &Path, word: &str) -> Option<Record> {
        let pid: Option<u32> = word.parse().ok();
        let real = Path::new(word).canonicalize().ok();
        let of_dir = |r: &Record| r.job_dir.as_ref().and_then(|d| d.canonicalize().ok());
        let mut all = Record::all(state_dir);
        // A number is of a process that lives before it is of one that did.
        all.sort_by_key(|r| r.state() != State::Runs);
        let meant = |r: &&Record| r.id == word || pid == Some(r.child.pid) || real.is_some() && of_dir(r) == real;
        all.iter().find(meant).cloned()
    }

    /// The last lines of its output: no escapes, no secrets.
    pub fn tail(&self, lines: usize, secrets: &[String]) -> Vec<String> {
        let read = || {
            let dir = Dir::open(self.log.parent()?).ok()?;
            dir.read_tail(self.log.file_name()?.to_str()?, TAIL).ok()
        };
        let Some(bytes) = read() else { return Vec::new() };
        last_lines(&String::from_utf8_lossy(&bytes.data), lines, secrets)
    }

    /// As JSON; every text safe for a terminal.
    pub fn json(&self) -> Value {
        let text = |s: &str| clean(&mask_secrets(s)).into_owned();
        let path = |p: &Path| clean(&p.to_string_lossy()).into_owned();
        let state = self.state();
        let ended = match &state {
            State::Ended(ended) => Some(ended),
            _ => None,
        };
        json!({
            "id": text(&self.id), "state": state.word(), "pid": self.child.pid,
            "exit_code": ended.and_then(|e| e.code), "signal": ended.and_then(|e| e.signal),
            "began_at": text(&self.began), "ended_at": ended.map(|e| text(&e.at)),
            "harbor": path(&self.program), "harbor_version": self.version.as_deref().map(text),
            "args": self.args.iter().map(|a| text(a)).collect::<Vec<_>>(), "cwd": path(&self.cwd),
            "asked_dir": self.asked.as_deref().map(path), "job_dir": self.job_dir.as_deref().map(path),
            "unexpected_dir": self.unexpected(), "log": path(&self.log),
        })
    }
}

/// The last lines of a program's output that say something.
fn last_lines(text: &str, lines: usize, secrets: &[String]) -> Vec<String> {
    use crate::job::text::strip_ansi;
    let safe = |line: &str| {
        let mut line = strip_ansi(line).into_owned();
        for secret in secrets.iter().filter(|s| s.len() > 5) {
            line = line.replace(secret.as_str(), "****");
        }
        let line = clean(&mask_secrets(&line)).trim_end().to_string();
        match line.char_indices().nth(LINE) {
            Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
            None => line,
        }
    };
    let all: Vec<String> = text.lines().map(safe).filter(|l| !l.trim().is_empty()).collect();
    all.iter().skip(all.len().saturating_sub(lines)).cloned().collect()
}

/// The directory of the notes, made where it is missing, for this user alone.
///
/// # Errors
/// It can not be made.
pub fn place(state_dir: &Path) -> Result<PathBuf, WriteError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let place = state_dir.join(PLACE);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place).map_err(|e| WriteError::of(&place, &e))?;
    Ok(place)
}
