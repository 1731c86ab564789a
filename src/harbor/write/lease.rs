//! Who works on a job: `pilothouse.lease`, a file in its directory.
//!
//! The lease is made exclusively. Its holder shows that it lives by changing the beat *in place*,
//! through the file it has open: when somebody else has put another lease under the name, a late beat
//! goes into a file that nobody sees. For the same reason it is not deleted at the end but marked as
//! released in place.
//!
//! To take over, one moves the old lease to a name made of its token, never onto another file, and
//! only then makes a new one exclusively: of two who saw the same stale lease one wins. The moved file
//! stays, so that one who looked long ago can not do it again.
//!
//! A holder reads the token again before and after everything that must not be written by two. What is
//! left is the moment between a look and a rename: a process that is stopped right there for longer
//! than three beats writes that one file. Results of trials are never overwritten even then.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::atomic::{Folder, WriteError};
use super::ids;
use crate::harbor::dir::{Dir, OpenError};
use crate::job::Stamp;

/// Name of the lease in a job dir.
pub const LEASE: &str = "pilothouse.lease";
/// Time between two beats, unless the holder chooses another.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Beats that may be missed.
const PATIENCE: u32 = 3;
/// Bytes of a lease: always the same, so that a beat can be written in place.
const SIZE: usize = 1024;
/// How often a lease that can not be parsed is read, and the time between.
const READS: u32 = 4;
const REREAD: Duration = Duration::from_millis(5);
/// Bytes of a host's or scheduler's name that are kept.
const NAME: usize = 128;

/// What a lease says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseNote {
    /// 1.
    pub schema_version: u32,
    /// Random; tells this lease from every other.
    pub token: String,
    /// Counts up with every beat.
    pub beat: u64,
    /// True once the holder is done.
    pub released: bool,
    /// The host's name, for people.
    pub host: String,
    /// One boot of one kernel; empty where the system does not tell.
    pub boot_id: String,
    /// The holder's process name space: numbers of processes mean something only within it.
    pub pid_namespace: String,
    /// The holder's process.
    pub pid: u32,
    /// Its start in clock ticks since boot; tells it from a later one with the same number.
    pub started: u64,
    /// The cluster scheduler's number of the job that the holder runs in.
    pub scheduler_job: Option<String>,
    /// Seconds between two beats.
    pub interval_sec: f64,
    /// Wall-clock time of the last beat, for people: nothing is decided by it.
    pub at: String,
}

impl LeaseNote {
    /// How long a lease may stay as it is before it is stale.
    pub fn patience(&self) -> Duration {
        // A number in a file is a claim.
        let seconds = if self.interval_sec.is_finite() { self.interval_sec.clamp(0.01, 3600.0) } else { 10.0 };
        Duration::from_secs_f64(seconds) * PATIENCE
    }

    /// `host pid 123` for messages.
    pub fn holder(&self) -> String {
        format!("pid {} on {}", self.pid, self.host)
    }

    /// What can be found out about the holder's process from here.
    pub fn process(&self) -> Process {
        Process::of(&self.boot_id, &self.pid_namespace, self.pid, self.started)
    }
}

/// A holder's process as seen by a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// On this host, and it lives (it may be stopped).
    There,
    /// It was on this host, and is no more.
    Gone,
    /// On another host or in another container: not to be seen from here.
    Elsewhere,
}

impl Process {
    /// The process with this number and start, of one boot and name space.
    pub fn of(boot_id: &str, pid_namespace: &str, pid: u32, started: u64) -> Process {
        let here = Here::look();
        let same = !here.boot_id.is_empty()
            && here.boot_id == boot_id
            && !here.pid_namespace.is_empty()
            && here.pid_namespace == pid_namespace;
        match (same, start_time(pid)) {
            (false, _) => Process::Elsewhere,
            (true, Some(there)) if there == started => Process::There,
            (true, _) => Process::Gone,
        }
    }
}

/// What a lease is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its holder gave it back.
    Released,
    /// Held, as far as one can tell; it can be stale after this time at the earliest.
    Held(Duration),
    /// No beat for three intervals, and no process that could give one: free to be taken.
    Stale,
    /// No beat for three intervals, but the process is there: stopped or stuck. Only a person may take it.
    Silent,
}

/// What a lease is worth that has not changed for `unchanged` by the reader's own clock.
pub fn standing(note: &LeaseNote, unchanged: Duration, process: Process) -> Standing {
    if note.released {
        return Standing::Released;
    }
    match note.patience().checked_sub(unchanged) {
        Some(left) if !left.is_zero() => Standing::Held(left),
        _ if process == Process::There => Standing::Silent,
        _ => Standing::Stale,
    }
}

/// A reader's memory of a lease: times are the reader's own, by a clock that only goes forward, since
/// the clocks of two hosts differ.
#[derive(Debug, Clone, Default)]
pub struct Observer {
    /// Token and beat, and when they were first seen so.
    seen: Option<(String, u64, Duration)>,
}

impl Observer {
    /// Takes in what the lease says at `at`.
    pub fn look(&mut self, note: &LeaseNote, process: Process, at: Duration) -> Standing {
        let since = match &self.seen {
            Some((token, beat, since)) if *token == note.token && *beat == note.beat => *since,
            _ => {
                self.seen = Some((note.token.clone(), note.beat, at));
                at
            }
        };
        standing(note, at.saturating_sub(since), process)
    }
}

/// What stands under the lease's name.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// Nothing.
    Absent,
    /// A lease.
    Note(Box<LeaseNote>),
    /// Something else, in words.
    Unreadable(String),
}

/// Reads the lease of a job. A beat may be written at this very moment: what can not be parsed is
/// read again some milliseconds later.
///
/// # Errors
/// When the system refuses (too many open files, no permission, an I/O error), which says nothing of
/// the lease.
pub fn read(job: &Dir) -> io::Result<Reading> {
    let mut why = String::new();
    for attempt in 0..READS {
        if attempt > 0 {
            std::thread::sleep(REREAD);
        }
        match job.read_all(LEASE, SIZE as u64 * 4) {
            Ok(bytes) => match serde_json::from_slice(&bytes.data) {
                Ok(note) => return Ok(Reading::Note(Box::new(note))),
                Err(error) => why = error.to_string(),
            },
            Err(OpenError::Missing | OpenError::Vanished) => return Ok(Reading::Absent),
            Err(OpenError::Io(error)) => return Err(error),
            Err(OpenError::Denied { .. }) => return Err(io::ErrorKind::PermissionDenied.into()),
            Err(error) => return Ok(Reading::Unreadable(error.to_string())),
        }
    }
    Ok(Reading::Unreadable(why))
}

/// Why a holder is none any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseLost {
    /// Another process holds the job.
    #[error("{holder} has taken over the job")]
    Taken {
        /// Who, in words.
        holder: String,
    },
    /// The lease was deleted.
    #[error("the lease of the job (pilothouse.lease) is gone")]
    Removed,
    /// The lease can not be read any more.
    #[error("the lease of the job (pilothouse.lease) can not be read: {0}")]
    Unreadable(String),
}

/// What an attempt to get a lease came to.
#[derive(Debug)]
pub enum Claim {
    /// Ours.
    Mine(Lease),
    /// Somebody else's; look again after this time at the latest.
    Wait(Box<LeaseNote>, Duration),
    /// The holder is silent but there; only with [`May::TakeSilent`].
    Silent(Box<LeaseNote>),
}

/// What may be taken from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// Leases that are released or stale.
    TakeStale,
    /// Also those of a process that is there but silent: on a person's word.
    TakeSilent,
}

/// Who asks for a lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimant {
    /// The cluster scheduler's number of the job that this process runs in.
    pub scheduler_job: Option<String>,
    /// Time between two beats.
    pub interval: Duration,
}

impl Default for Claimant {
    fn default() -> Claimant {
        Claimant { scheduler_job: None, interval: INTERVAL }
    }
}

/// A lease that is held.
#[derive(Debug)]
pub struct Lease {
    file: File,
    note: LeaseNote,
}

impl Lease {
    /// Takes the lease of a job that has none.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when it has one.
    pub fn create(job: &Folder, who: &Claimant, now: Stamp) -> Result<Lease, WriteError> {
        let token = ids::uuid().map_err(|e| WriteError::of(job.path(), &e))?;
        let here = Here::look();
        let note = LeaseNote {
            schema_version: 1,
            token,
            beat: 0,
            released: false,
            host: short(&here.host),
            boot_id: short(&here.boot_id),
            pid_namespace: short(&here.pid_namespace),
            pid: std::process::id(),
            started: start_time(std::process::id()).unwrap_or(0),
            scheduler_job: who.scheduler_job.as_deref().map(short),
            interval_sec: who.interval.as_secs_f64(),
            at: now.to_string(),
        };
        let path = job.path().join(LEASE);
        let wrong = |e: io::Error| WriteError::of(&path, &e);
        job.write_once(LEASE, &bytes(&note).map_err(wrong)?)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(job.dir(), LEASE, flags, Mode::empty()).map_err(|e| wrong(e.into()))?;
        let lease = Lease { file: File::from(fd), note };
        let mut back = vec![0; SIZE];
        lease.file.read_exact_at(&mut back, 0).map_err(wrong)?;
        let mine = serde_json::from_slice::<LeaseNote>(&back).is_ok_and(|n| n.token == lease.note.token);
        if mine { Ok(lease) } else { lease.check(job).map(|()| lease) }
    }

    /// One attempt to get the lease of a job, however it stands. `at` is the caller's own clock, the
    /// same for every attempt with this observer.
    ///
    /// # Errors
    /// When the lease can not be read or written.
    pub fn claim(
        job: &Folder,
        who: &Claimant,
        may: May,
        observer: &mut Observer,
        at: Duration,
        now: Stamp,
    ) -> Result<Claim, WriteError> {
        let path = job.path().join(LEASE);
        let note = match read(job.dir()).map_err(|e| WriteError::of(&path, &e))? {
            Reading::Note(note) => note,
            Reading::Absent => {
                return match Lease::create(job, who, now) {
                    Ok(lease) => Ok(Claim::Mine(lease)),
                    // Somebody was faster.
                    Err(WriteError::Exists { .. }) => Lease::claim(job, who, may, observer, at, now),
                    Err(other) => Err(other),
                };
            }
            Reading::Unreadable(why) => {
                let source = io::Error::new(io::ErrorKind::InvalidData, format!("no lease of this program: {why}"));
                return Err(WriteError::Io { path, source });
            }
        };
        match observer.look(&note, note.process(), at) {
            Standing::Held(left) => Ok(Claim::Wait(note, left)),
            Standing::Silent if may == May::TakeStale => Ok(Claim::Silent(note)),
            Standing::Released | Standing::Stale | Standing::Silent => match Lease::take_over(job, who, &note, now) {
                Ok(lease) => Ok(Claim::Mine(lease)),
                Err(WriteError::Exists { .. }) => Ok(Claim::Wait(note, Duration::from_millis(10))),
                Err(other) => Err(other),
            },
        }
    }

    /// Takes the place of the lease that was seen.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when somebody else was faster.
    pub fn take_over(job: &Folder, who: &Claimant, seen: &LeaseNote, now: Stamp) -> Result<Lease, WriteError> {
        let path = job.path().join(LEASE);
        let aside = format!(".{LEASE}.{}", seen.token);
        match job.rename_once(LEASE, &aside) {
            // Gone: somebody moved it and may be about to make another.
            Ok(()) | Err(WriteError::Vanished { .. }) => {}
            Err(other) => return Err(other),
        }
        let moved = job.dir().read(&aside, SIZE as u64).ok();
        let token = moved.and_then(|f| serde_json::from_slice::<LeaseNote>(&f.data).ok()).map(|n| n.token);
        if token.is_some_and(|token| token != seen.token) {
            // Another lease was put there between the look and the move: it goes back.
            job.rename_once(&aside, LEASE)?;
            return Err(WriteError::Exists { path });
        }
        Lease::create(job, who, now)
    }

    /// What the lease says.
    pub fn note(&self) -> &LeaseNote {
        &self.note
    }

    /// Reads the token again.
    ///
    /// # Errors
    /// [`WriteError::Vanished`] when the job dir is gone, [`WriteError::Lease`] when the lease is
    /// somebody else's.
    pub fn check(&self, job: &Folder) -> Result<(), WriteError> {
        if job.is_gone() {
            return Err(WriteError::Vanished { path: job.path().to_path_buf() });
        }
        let lost = match read(job.dir()).map_err(|e| WriteError::of(&job.path().join(LEASE), &e))? {
            Reading::Note(note) if note.token == self.note.token => return Ok(()),
            Reading::Note(note) => LeaseLost::Taken { holder: note.holder() },
            Reading::Absent => LeaseLost::Removed,
            Reading::Unreadable(why) => LeaseLost::Unreadable(why),
        };
        Err(WriteError::Lease { path: job.path().to_path_buf(), lost })
    }

    /// Shows that the holder lives.
    ///
    /// # Errors
    /// As [`Lease::check`]; or when the file can not be written.
    pub fn beat(&mut self, job: &Folder, now: Stamp) -> Result<(), WriteError> {
        self.check(job)?;
        self.note.beat += 1;
        self.note.at = now.to_string();
        self.write(job)
    }

    /// Gives the lease back; the file stays, and says so.
    ///
    /// # Errors
    /// As [`Lease::check`]; or when the file can not be written.
    pub fn release(&mut self, job: &Folder, now: Stamp) -> Result<(), WriteError> {
        self.check(job)?;
        self.note.released = true;
        self.note.at = now.to_string();
        self.write(job)
    }

    /// Into the file that was made, whatever has its name now.
    fn write(&self, job: &Folder) -> Result<(), WriteError> {
        let done = bytes(&self.note).and_then(|bytes| self.file.write_all_at(&bytes, 0));
        done.map_err(|e| WriteError::of(&job.path().join(LEASE), &e))
    }
}

/// A lease as its file holds it: one line, blanks up to the fixed size.
fn bytes(note: &LeaseNote) -> io::Result<Vec<u8>> {
    let mut out = serde_json::to_vec(note)?;
    if out.len() >= SIZE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a lease of more than 1 KiB"));
    }
    out.resize(SIZE - 1, b' ');
    out.push(b'\n');
    Ok(out)
}

fn short(name: &str) -> String {
    let plain = name.trim().chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'));
    plain.take(NAME).collect()
}

/// This process, as others can find it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Myself {
    /// The host's name, for people.
    pub host: String,
    /// One boot of one kernel.
    pub boot_id: String,
    /// The process name space.
    pub pid_namespace: String,
    /// The process.
    pub pid: u32,
    /// Its start in clock ticks since boot.
    pub started: u64,
}

/// Who this process is.
pub fn myself() -> Myself {
    let (here, pid) = (Here::look(), std::process::id());
    let started = start_time(pid).unwrap_or(0);
    Myself { host: here.host, boot_id: here.boot_id, pid_namespace: here.pid_namespace, pid, started }
}

/// Where this process is.
struct Here {
    host: String,
    boot_id: String,
    pid_namespace: String,
}

impl Here {
    fn look() -> Here {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let namespace = std::fs::read_link("/proc/self/ns/pid").map(|p| p.to_string_lossy().into_owned());
        Here {
            host: Some(read("/proc/sys/kernel/hostname"))
                .filter(|h| !h.is_empty())
                .or_else(|| std::env::var("HOSTNAME").ok())
                .unwrap_or_else(|| "unknown".to_string()),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            pid_namespace: namespace.unwrap_or_default(),
        }
    }
}

/// Field 22 of `/proc/<pid>/stat`; None for a process that is gone, or dead and only not collected. The
/// command name before it may hold spaces and brackets.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}
