//! What the kernel says about a process of this host.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::job::process::ProcessStat;
use crate::job::{Stamp, time};

/// Bytes of a command line that are looked at.
const ARGV_BYTES: usize = 64 * 1024;
/// Between two looks where the kernel can not tell when a process ends.
const LOOK: Duration = Duration::from_millis(100);

/// What happens when a signal reaches a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It has a handler.
    Handled,
    /// It ignores the signal.
    Ignored,
    /// The kernel's own answer: it dies at once.
    Default,
    /// Not to be found out from here.
    Unknown,
}

/// A process that can be signalled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Words of its command line, as they are; empty where they can not be read.
    pub argv: Vec<String>,
    /// Its working directory.
    pub cwd: Option<PathBuf>,
    /// Wall-clock time of its start.
    pub began: Option<Stamp>,
    /// The parent's number.
    pub parent: Option<u32>,
    /// User that it runs as.
    pub uid: Option<u32>,
    /// `stdout`, `stderr`: those of the two that are pipes.
    pub pipes: Vec<&'static str>,
    /// What SIGTERM does.
    pub term: Disposition,
    /// What SIGINT does.
    pub int: Disposition,
}

/// Looks at a process; what can not be seen is unknown.
pub fn look(pid: u32, started: u64) -> Facts {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let mask = |name: &str| field(name).and_then(|m| u64::from_str_radix(m, 16).ok());
    let (ignored, caught) = (mask("SigIgn:"), mask("SigCgt:"));
    let disposition = |signal: Signal| {
        let bit = 1_u64 << (signal.as_raw() - 1).clamp(0, 63);
        match (ignored, caught) {
            (Some(i), _) if i & bit != 0 => Disposition::Ignored,
            (_, Some(c)) if c & bit != 0 => Disposition::Handled,
            (Some(_), Some(_)) => Disposition::Default,
            _ => Disposition::Unknown,
        }
    };
    let piped = |fd: &str| fs::metadata(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|m| m.file_type().is_fifo());
    Facts {
        argv: argv(pid),
        cwd: fs::read_link(format!("/proc/{pid}/cwd")).ok(),
        began: wall_clock(started),
        parent: field("PPid:").and_then(|p| p.parse().ok()),
        uid: field("Uid:").and_then(|u| u.split_whitespace().next()?.parse().ok()),
        pipes: [("1", "stdout"), ("2", "stderr")].into_iter().filter(|(fd, _)| piped(fd)).map(|(_, n)| n).collect(),
        term: disposition(Signal::TERM),
        int: disposition(Signal::INT),
    }
}

/// The words of a command line.
pub fn argv(pid: u32) -> Vec<String> {
    use std::io::Read;
    let Ok(file) = fs::File::open(format!("/proc/{pid}/cmdline")) else { return Vec::new() };
    let mut bytes = Vec::new();
    if file.take(ARGV_BYTES as u64).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|b| *b == 0);
    words.map(|w| std::ffi::OsString::from_vec(w.to_vec()).to_string_lossy().into_owned()).collect()
}

/// Numbers of all processes of this host.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Start in clock ticks since boot. None for a process that is gone, or dead and only not collected.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = ProcessStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)?;
    (!stat.dead).then_some(stat.started)
}

/// The wall-clock time of a number of ticks since boot.
pub fn wall_clock(ticks: u64) -> Option<Stamp> {
    /// `USER_HZ`, the unit of `/proc`, is 100 on every machine that this is built for.
    const TICKS: u64 = 100;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    let seconds = i64::try_from(boot.checked_add(ticks / TICKS)?).ok()?;
    time::from_unix(seconds, i64::try_from(ticks % TICKS).ok()? * 10_000_000)
}

/// One process and no other, however its number is used later.
#[derive(Debug)]
pub struct Handle {
    pid: Pid,
    number: u32,
    started: u64,
    /// Where the kernel has such a thing: a descriptor that means this process for ever.
    fd: Option<OwnedFd>,
}

impl Handle {
    /// Takes hold of the process with this number if it is the one that started then.
    pub fn open(number: u32, started: u64) -> Option<Handle> {
        let pid = Pid::from_raw(i32::try_from(number).ok()?)?;
        #[cfg(target_os = "linux")]
        let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
        #[cfg(not(target_os = "linux"))]
        let fd = None;
        // After the descriptor: it is of the process that is looked at now.
        (start_time(number) == Some(started)).then_some(Handle { pid, number, started, fd })
    }

    /// Sends a signal to it; to nobody when it is gone.
    ///
    /// # Errors
    /// As `kill(2)`; `NotFound` when it is gone.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        if !self.lives() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let sent = match &self.fd {
            #[cfg(target_os = "linux")]
            Some(fd) => match rustix::process::pidfd_send_signal(fd, signal) {
                // A sandbox may know the one call and not the other.
                Err(rustix::io::Errno::NOSYS) => rustix::process::kill_process(self.pid, signal),
                other => other,
            },
            _ => rustix::process::kill_process(self.pid, signal),
        };
        sent.map_err(|e| match e {
            rustix::io::Errno::SRCH => io::ErrorKind::NotFound.into(),
            other => other.into(),
        })
    }

    /// Whether it still lives.
    pub fn lives(&self) -> bool {
        start_time(self.number) == Some(self.started)
    }

    /// Waits for its end, at most so long; true when it has ended.
    pub fn wait(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        while self.lives() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            #[cfg(target_os = "linux")]
            if let Some(fd) = &self.fd {
                use rustix::event::{PollFd, PollFlags, Timespec, poll};
                let mut fds = [PollFd::new(fd, PollFlags::IN)];
                let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
                match poll(&mut fds, Some(&limit)) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                    // The end shows there a moment before the process is past its last breath.
                    Ok(_) => {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    }
                    Err(_) => {}
                }
            }
            std::thread::sleep(left.min(LOOK));
        }
        true
    }
}
