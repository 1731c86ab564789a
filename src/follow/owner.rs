//! Who works on a job: the process on this host that holds its `job.log` open for writing.
//!
//! Harbor records neither pid nor host anywhere, but it keeps `job.log` open from the first moment
//! to the last, so that an open descriptor is the best sign of life there is. A job of our own also has a
//! lease, which is believed before that: it names the process, on this host or on another.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::told;
use crate::harbor::dir::Dir;
use crate::harbor::write::lease::{self, Observer, Process, Reading, Standing};
use crate::job::process::ProcessStat;
use crate::job::{Stray, text};

/// The logs that a harness keeps open: Harbor's, and classic terminal-bench's.
const LOGS: [&str; 2] = ["job.log", "run.log"];

/// A living owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Process id on this host.
    pub pid: u32,
    /// Command name, cleaned for the terminal.
    pub command: Arc<str>,
    /// Start time in clock ticks since boot; tells the process from a later one with the same pid.
    /// None for one that can not be seen from here.
    pub started: Option<u64>,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Search {
    /// The process found.
    pub owner: Option<Owner>,
    /// True when finding none means that there is none on this host.
    pub conclusive: bool,
    /// How the last owner left, in words, where its lease says so.
    pub left: Option<Arc<str>>,
    /// A process that was told this job dir and writes elsewhere, or was told another and writes here.
    pub stray: Option<Stray>,
}

/// What the lease of a job says of its owner; None where there is none, or where it can not be read.
/// `at` is the time of the reader's own clock, which only goes forward.
pub fn by_lease(job: &Dir, observer: &mut Observer, at: Duration) -> Option<Search> {
    let Ok(Reading::Note(note)) = lease::read(job) else { return None };
    let process = note.process();
    let standing = observer.look(&note, process, at);
    let host = || text::clean(&note.host).into_owned();
    let found = |command: String, started| Search {
        owner: Some(Owner { pid: note.pid, command: Arc::from(command), started }),
        conclusive: true,
        ..Search::default()
    };
    let left = |words: String| Search { conclusive: true, left: Some(Arc::from(words)), ..Search::default() };
    Some(match (standing, process) {
        (Standing::Released, _) => left("pilothouse gave the job back".to_string()),
        (_, Process::There) => found("pilothouse".to_string(), Some(note.started)),
        (_, Process::Gone) => left(format!("pilothouse (pid {}) is gone", note.pid)),
        (Standing::Held(_), Process::Elsewhere) => found(format!("pilothouse on {}", host()), None),
        (_, Process::Elsewhere) => left(format!("pilothouse on {} (pid {}) is silent", host(), note.pid)),
    })
}

/// Who on this host holds a file named `job.log` open for writing, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Census {
    writers: Vec<Writer>,
    /// Users with processes whose files could not be looked at.
    hidden: HashSet<u32>,
}

/// One open log.
#[derive(Debug, Clone)]
struct Writer {
    device: u64,
    inode: u64,
    /// The directory of the log, as the kernel names it.
    job_dir: PathBuf,
    owner: Owner,
    /// Its sub-command and the job dir that it was told, where that is another one.
    told: Option<(Arc<str>, PathBuf)>,
    /// It is Harbor's by its name; the other name is not uncommon.
    harbor: bool,
}

impl Census {
    /// Looks through this host's processes.
    pub fn take() -> Census {
        let mut census = Census::default();
        let myself = std::process::id();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            if pid == myself {
                continue;
            }
            let Ok(files) = fs::read_dir(entry.path().join("fd")) else {
                census.hidden.extend(entry.metadata().map(|m| m.uid()));
                continue;
            };
            for file in files.flatten() {
                if let Some((log, job_dir)) = log_behind(&file.path())
                    && writes(pid, &file.file_name().to_string_lossy())
                {
                    let command = fs::read(entry.path().join("comm")).unwrap_or_default();
                    let command = String::from_utf8_lossy(&command);
                    let command = Arc::from(&*text::clean(command.trim()));
                    let owner = Owner { pid, command, started: start_time(pid) };
                    let told = told::by_process(pid, &job_dir);
                    let harbor = fs::read_link(file.path()).is_ok_and(|target| target.ends_with(LOGS[0]));
                    census.writers.push(Writer { device: log.dev(), inode: log.ino(), job_dir, owner, told, harbor });
                }
            }
        }
        census
    }

    /// Who works on a job. `local` says whether the directory's file system belongs to this host
    /// alone; elsewhere the owner may live on another machine and finding none means nothing.
    pub fn search(&self, job_dir: &Path, local: bool) -> Search {
        let log = || LOGS.iter().find_map(|name| fs::symlink_metadata(job_dir.join(name)).ok());
        let Some(log) = log() else {
            // Without a log nobody can hold it open, but another kind of writer may be at work.
            return Search { stray: self.stray(job_dir), ..Search::default() };
        };
        let dir_owner = fs::metadata(job_dir).map(|m| m.uid()).unwrap_or(log.uid());
        let owner = self.holding(&log).next().cloned();
        // What could not be looked at counts only if it could be the writer. Root could, but so many
        // of its processes are hidden from everybody that nothing would ever be certain.
        let hidden = self.hidden.contains(&dir_owner);
        let conclusive = local && (owner.is_some() || !hidden && sees_all(dir_owner) && !foreign_mount(job_dir));
        Search { owner, conclusive, left: None, stray: self.stray(job_dir) }
    }
}

impl Census {
    /// A process that was told one job dir and writes into another one, where this is either of them.
    pub fn stray(&self, job_dir: &Path) -> Option<Stray> {
        let mut astray = self.writers.iter().filter_map(|w| Some((w, w.told.as_ref()?))).peekable();
        // Hardly ever is there one.
        astray.peek()?;
        let real = fs::canonicalize(job_dir).ok()?;
        let (writer, (command, meant)) = astray.find(|(w, (_, meant))| w.job_dir == real || *meant == real)?;
        Some(Stray {
            pid: writer.owner.pid,
            command: command.clone(),
            meant: meant.clone(),
            writes: writer.job_dir.clone(),
            here: writer.job_dir == real,
        })
    }

    fn holding<'a>(&'a self, log: &fs::Metadata) -> impl Iterator<Item = &'a Owner> + use<'a> {
        let wanted = (log.dev(), log.ino());
        self.writers.iter().filter(move |w| (w.device, w.inode) == wanted).map(|w| &w.owner)
    }

    /// Everybody who holds the log of a job open for writing: more than one where somebody collects
    /// it with another program.
    pub fn holders(&self, job_dir: &Path) -> Vec<Owner> {
        let log = fs::symlink_metadata(job_dir.join("job.log"));
        log.map(|log| self.holding(&log).cloned().collect()).unwrap_or_default()
    }

    /// The directories of all logs that are held open on this host, with who holds them; not those whose
    /// path means another directory here, as the paths of a process in a container do.
    pub fn jobs(&self) -> impl Iterator<Item = (&Path, &Owner)> {
        let here = |w: &&Writer| {
            let log = fs::symlink_metadata(w.job_dir.join("job.log"));
            log.is_ok_and(|log| (log.dev(), log.ino()) == (w.device, w.inode))
        };
        self.writers.iter().filter(|w| w.harbor).filter(here).map(|w| (w.job_dir.as_path(), &w.owner))
    }

    /// Everybody who holds any log open.
    pub fn everybody(&self) -> impl Iterator<Item = &Owner> {
        self.writers.iter().filter(|w| w.harbor).map(|w| &w.owner)
    }

    /// True when at least the command lines of all of this host's processes can be seen.
    pub fn sees_everybody(&self) -> bool {
        !inside_container() && Path::new("/proc/1/stat").exists()
    }
}

/// Whether a known owner is still there: one look at its start time.
pub fn alive(owner: &Owner) -> bool {
    owner.started.is_some() && start_time(owner.pid) == owner.started
}

/// Metadata and directory of the open file if it is named as a log. The link's text is looked at first, so that
/// files on a hung network mount are not touched.
fn log_behind(descriptor: &Path) -> Option<(fs::Metadata, PathBuf)> {
    let target = fs::read_link(descriptor).ok()?;
    // `job.log (deleted)` is none.
    let is_log = LOGS.iter().any(|log| target.file_name().is_some_and(|name| name == *log));
    is_log.then(|| Some((fs::metadata(descriptor).ok()?, target.parent()?.to_path_buf()))).flatten()
}

/// True when the descriptor is open for writing; a `tail -f` is no owner.
fn writes(pid: u32, descriptor: &str) -> bool {
    let Ok(info) = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")) else { return false };
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|f| u32::from_str_radix(f.trim(), 8).ok()).is_some_and(|f| f & 0o3 != 0)
}

/// When it started, in clock ticks since boot.
fn start_time(pid: u32) -> Option<u64> {
    Some(ProcessStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)?.started)
}

/// False where other users' processes are hidden from this one altogether (`hidepid`).
fn sees_all(dir_owner: u32) -> bool {
    let me = rustix::process::geteuid();
    me.is_root() || me.as_raw() == dir_owner || Path::new("/proc/1/stat").exists()
}

/// True in a container when the directory is mounted into it: the writer may be outside, where its
/// processes can not be seen.
fn foreign_mount(job_dir: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    inside_container() && device(job_dir) != device(Path::new("/"))
}

/// True where this process sees only a part of the host's processes.
fn inside_container() -> bool {
    /// The first pid name space's number (`PROC_PID_INIT_INO` of the kernel).
    const FIRST: &str = "pid:[4026531836]";
    fs::read_link("/proc/self/ns/pid").is_ok_and(|ns| ns.to_string_lossy() != FIRST)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_writer_is_found_a_reader_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("job.log");
        fs::write(&log, "").unwrap();
        let mut reader =
            Command::new("sleep").arg("30").stdin(fs::File::open(&log).unwrap()).stdout(Stdio::null()).spawn().unwrap();
        assert_eq!(Census::take().search(dir.path(), true).owner, None);
        let append = fs::OpenOptions::new().append(true).open(&log).unwrap();
        let mut writer = Command::new("sleep").arg("30").stdout(append).spawn().unwrap();
        let found = Census::take().search(dir.path(), true).owner.unwrap();
        assert_eq!(found.pid, writer.id());
        assert_eq!(&*found.command, "sleep");
        assert!(alive(&found));
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(!alive(&found));
        assert_eq!(Census::take().search(dir.path(), true).owner, None);
        assert!(!Census::take().search(dir.path(), false).conclusive);
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
}
