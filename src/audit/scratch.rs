//! Scratch directories of local trials that dead owners left: `<state dir>/scratch/<job id>`, with the
//! record of who made it beside it, and the processes that still run there.

use std::fs;
use std::path::{Path, PathBuf};

use super::process;
use crate::environment::OwnerLabel;
use crate::environment::local::{MARK, clear_left};
use crate::harbor::{Dir, EntryKind};
use crate::job::Stamp;

/// End of the name of the record beside a job's scratch directory; it holds an [`OwnerLabel`].
pub const RECORD: &str = ".owner";
/// Bytes of a record that are read.
const CAP: u64 = 16 * 1024;

/// A job's scratch directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scratch {
    /// Where it is.
    pub path: PathBuf,
    /// The job's id.
    pub job_id: String,
    /// Trials with a directory in it.
    pub trials: Vec<String>,
    /// Processes that were started in it and live.
    pub processes: Vec<u32>,
    /// Who made it, where there is a record.
    pub owner: Option<OwnerLabel>,
    /// When it was last changed.
    pub modified: Stamp,
    /// Which directory it was when it was found: device and inode.
    pub identity: (u64, u64),
}

/// Where the scratch directories of a state dir are.
pub fn root(state_dir: &Path) -> PathBuf {
    state_dir.join("scratch")
}

/// Writes down who uses a job's scratch directory, beside it; its place must exist.
///
/// # Errors
/// As `write(2)`.
pub fn record(scratch: &Path, owner: &OwnerLabel) -> std::io::Result<()> {
    fs::write(record_of(scratch), format!("{owner}\n"))
}

/// Takes the record away, once nothing is left of the scratch directory.
pub fn forget(scratch: &Path) {
    if !scratch.exists() {
        let _ = fs::remove_file(record_of(scratch));
    }
}

fn record_of(scratch: &Path) -> PathBuf {
    let name = scratch.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    scratch.with_file_name(format!("{name}{RECORD}"))
}

/// All scratch directories of a state dir.
pub fn find(state_dir: &Path) -> Vec<Scratch> {
    let root = root(state_dir);
    let Ok(dir) = Dir::open(&root) else { return Vec::new() };
    let marked = marked();
    let mut out = Vec::new();
    for entry in dir.list().unwrap_or_default() {
        let Some(job_id) = entry.name.to_str().filter(|_| entry.kind == EntryKind::Dir) else { continue };
        let Ok(inside) = dir.sub(job_id) else { continue };
        let Ok(meta) = inside.stat("") else { continue };
        let path = root.join(job_id);
        let record = dir.read_all(&format!("{job_id}{RECORD}"), CAP).ok();
        let trials = inside.list().unwrap_or_default().into_iter().filter_map(|e| e.name.into_string().ok());
        let mut trials: Vec<String> = trials.collect();
        trials.sort();
        out.push(Scratch {
            job_id: job_id.to_string(),
            trials,
            processes: marked.iter().filter(|(at, _)| at.starts_with(&path)).map(|(_, pid)| *pid).collect(),
            owner: record.and_then(|r| OwnerLabel::parse(String::from_utf8_lossy(&r.data).trim())),
            modified: meta.modified,
            identity: (meta.device, meta.inode),
            path,
        });
    }
    out
}

/// Scratch directories that living processes were started in.
fn marked() -> Vec<(PathBuf, u32)> {
    let begin = format!("{MARK}=");
    let mut out = Vec::new();
    for pid in process::all() {
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let mut marks = environ.split(|b| *b == 0).filter_map(|v| v.strip_prefix(begin.as_bytes()));
        // `<pid of the owner>-<scratch directory>`
        let place = marks.find_map(|m| std::str::from_utf8(m).ok()?.split_once('-'));
        if let Some((_, place)) = place.filter(|_| process::start_time(pid).is_some()) {
            out.push((PathBuf::from(place), pid));
        }
    }
    out
}

/// Ends its processes and removes it, if it is still the same directory.
///
/// # Errors
/// When another directory has its name now, or as `unlink(2)`.
pub fn remove(scratch: &Scratch) -> std::io::Result<()> {
    let meta = match Dir::open(&scratch.path).and_then(|d| d.stat("")) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if (meta.device, meta.inode) != scratch.identity {
        let what = "another directory has this name now: list again";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
    }
    clear_left(&scratch.path)?;
    forget(&scratch.path);
    Ok(())
}
