//! Directories of other people's jobs, opened so that nothing can lead out of them.
//!
//! Every access goes through an open directory and never follows a symbolic link, so that a link
//! (or a directory swapped for one meanwhile) can not make us read, or wait for, something else.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::json_scan::Condenser;
use crate::job::{Stamp, time};

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link, wherever it leads.
    Symlink,
    /// FIFO, socket, device.
    Other,
}

impl EntryKind {
    fn of(kind: FileType) -> EntryKind {
        match kind {
            FileType::Directory => EntryKind::Dir,
            FileType::RegularFile => EntryKind::File,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        }
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, as it is on disk.
    pub name: OsString,
    /// What it was when it was listed.
    pub kind: EntryKind,
}

/// What `lstat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// What it is; links are not followed.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Modification time; 1970 where the file system gives a time outside the years -9999 to 9999.
    pub modified: Stamp,
    /// Modification time in nanoseconds since 1970, as the file system keeps it.
    pub mtime_nanos: i128,
    /// Inode number.
    pub inode: u64,
    /// Device number.
    pub device: u64,
    /// Owner.
    pub uid: u32,
    /// Hard links.
    pub links: u64,
}

/// The contents of a file with the metadata from before it was read: a write during the reading
/// shows as a difference at the next look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBytes {
    /// The bytes read.
    pub data: Vec<u8>,
    /// Metadata of the very file that was read.
    pub meta: Meta,
    /// True when there was more than the cap.
    pub truncated: bool,
}

/// Why a file could not be opened or read. The text names the next step where there is one.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such file, or a directory on the way is missing.
    #[error("not there")]
    Missing,
    /// The file or a directory on the way is a symbolic link.
    #[error("a symbolic link; links inside a job dir are not followed: put the file itself there")]
    Symlink,
    /// Something that is no regular file: `a directory`, `a FIFO`, `a socket`, `a device`.
    #[error("{0}, not a regular file")]
    NotRegular(&'static str),
    /// No permission; the owner's uid where it could be found out.
    #[error("permission denied{}: run as {} or chmod", owner_words(*owner), owner_name(*owner))]
    Denied {
        /// Owner of the file.
        owner: Option<u32>,
    },
    /// Larger than the caller wants to take.
    #[error("{size} bytes, more than the {cap} that are read")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The cap in bytes.
        cap: u64,
    },
    /// It was there and went away while it was read.
    #[error("vanished while it was read")]
    Vanished,
    /// Anything else.
    #[error("{0}")]
    Io(io::Error),
}

fn owner_name(owner: Option<u32>) -> String {
    match owner {
        Some(0) => "root".to_string(),
        Some(uid) => format!("uid {uid}"),
        None => "its owner".to_string(),
    }
}

fn owner_words(owner: Option<u32>) -> String {
    owner.map_or(String::new(), |_| format!(" (owner {})", owner_name(owner)))
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// False once the kernel (or a sandbox around us) refused `openat2`.
#[cfg(target_os = "linux")]
static HAS_OPENAT2: AtomicBool = AtomicBool::new(true);

/// What [`Dir::read_condensed`] leaves out.
const UNREAD_KEYS: &[&str] = &[
    "rollout_details",
    "all_messages",
    "api_request_times_msec",
    "model_usage",
    "exception_traceback",
    "trial_results",
];
/// Bytes kept of a string by [`Dir::read_condensed`].
const LONG_STRING: usize = 256 * 1024;
/// Bytes read at a time.
const BLOCK: usize = 256 * 1024;

const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// `O_NONBLOCK`: a FIFO must not make us wait. `O_NOCTTY`: nor a terminal adopt us.
const FILE_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Dir {
    /// Opens a directory that the operator named; that path may lead through links.
    ///
    /// # Errors
    /// As `open(2)`; `NotADirectory` for anything else.
    pub fn open(path: &Path) -> io::Result<Dir> {
        Ok(Dir { fd: rustix::fs::open(path, DIR_FLAGS, Mode::empty())? })
    }

    /// Opens a directory beneath this one; `rel` may have several parts.
    ///
    /// # Errors
    /// `InvalidInput` for an absolute path or one with `..`; `ELOOP` or `ENOTDIR` for a link.
    pub fn sub(&self, rel: &str) -> io::Result<Dir> {
        self.sub_os(OsStr::new(rel))
    }

    /// As [`Dir::sub`], for [`Dir::stat`] alone: what is not opened in earnest wakes nobody's watches.
    ///
    /// # Errors
    /// As [`Dir::sub`].
    pub fn glance(&self, rel: &str) -> io::Result<Dir> {
        Ok(Dir { fd: self.beneath(OsStr::new(rel), DIR_FLAGS.union(OFlags::PATH))? })
    }

    /// As [`Dir::sub`], for names that are not UTF-8.
    ///
    /// # Errors
    /// As [`Dir::sub`].
    pub fn sub_os(&self, rel: &OsStr) -> io::Result<Dir> {
        Ok(Dir { fd: self.beneath(rel, DIR_FLAGS)? })
    }

    /// The names in the directory, in the order of the file system, without `.` and `..`.
    ///
    /// # Errors
    /// As `getdents(2)`.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let mut out = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not keep the kind in the directory.
                FileType::Unknown => match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => EntryKind::of(FileType::from_raw_mode(stat.st_mode)),
                    Err(Errno::NOENT) => continue,
                    Err(_) => EntryKind::Other,
                },
                kind => EntryKind::of(kind),
            };
            out.push(Entry { name: OsStr::from_bytes(name.to_bytes()).to_os_string(), kind });
        }
        Ok(out)
    }

    /// Metadata of something beneath this directory, of the link itself where it is one. An empty
    /// `rel` is the directory.
    ///
    /// # Errors
    /// As `lstat(2)`; a link or a file on the way is an error, too.
    pub fn stat(&self, rel: &str) -> io::Result<Meta> {
        let rel = OsStr::new(rel);
        let stat = if rel.is_empty() {
            rustix::fs::fstat(&self.fd)?
        } else if is_plain_name(rel) {
            rustix::fs::statat(&self.fd, rel, AtFlags::SYMLINK_NOFOLLOW)?
        } else {
            let (parent, name) = split(rel)?;
            // Without opening it in earnest: who only looks wakes nobody's watches.
            let parent = self.beneath(parent, DIR_FLAGS.union(OFlags::PATH))?;
            rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?
        };
        Ok(meta(&stat))
    }

    /// Opens a regular file for reading; never waits for a FIFO, never follows a link. Hard links
    /// are files like any other.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_file(&self, rel: &str) -> Result<File, OpenError> {
        self.open_with_meta(rel).map(|(file, _)| file)
    }

    /// The first `cap` bytes of a file.
    ///
    /// # Errors
    /// See [`OpenError`]; never `TooLarge`.
    pub fn read(&self, rel: &str, cap: u64) -> Result<FileBytes, OpenError> {
        let (file, meta) = self.open_with_meta(rel)?;
        take(file, meta, cap)
    }

    /// A whole file.
    ///
    /// # Errors
    /// See [`OpenError`]; `TooLarge` when it holds more than `cap` bytes.
    pub fn read_all(&self, rel: &str, cap: u64) -> Result<FileBytes, OpenError> {
        let (file, meta) = self.open_with_meta(rel)?;
        if meta.size > cap {
            return Err(OpenError::TooLarge { size: meta.size, cap });
        }
        let bytes = take(file, meta, cap)?;
        if bytes.truncated { Err(OpenError::TooLarge { size: cap.saturating_add(1), cap }) } else { Ok(bytes) }
    }

    /// A JSON file of any size without the parts that no reader here looks at (token ids, chat
    /// messages, tracebacks, trial results embedded in a job's) and with strings cut at 256 KiB; to
    /// be parsed as the file itself would be. Takes about as long as reading the file, and memory
    /// for what is left.
    ///
    /// # Errors
    /// See [`OpenError`]; `TooLarge` when more than `cap` bytes are left of it.
    pub fn read_condensed(&self, rel: &str, cap: u64) -> Result<FileBytes, OpenError> {
        let (mut file, meta) = self.open_with_meta(rel)?;
        let mut condenser = Condenser::new(LONG_STRING, UNREAD_KEYS);
        let mut block = vec![0; BLOCK];
        loop {
            let n = match file.read(&mut block) {
                Ok(0) => return Ok(FileBytes { data: condenser.finish(), meta, truncated: false }),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(while_reading(e)),
            };
            condenser.feed(block.get(..n).unwrap_or_default());
            if condenser.len() as u64 > cap {
                return Err(OpenError::TooLarge { size: meta.size, cap });
            }
        }
    }

    /// The last `cap` bytes of a file; `truncated` tells that something came before them.
    ///
    /// # Errors
    /// See [`OpenError`]; never `TooLarge`.
    pub fn read_tail(&self, rel: &str, cap: u64) -> Result<FileBytes, OpenError> {
        let (mut file, meta) = self.open_with_meta(rel)?;
        let skipped = meta.size.saturating_sub(cap);
        if skipped > 0 {
            file.seek(SeekFrom::Start(skipped)).map_err(while_reading)?;
        }
        let mut bytes = take(file, meta, cap)?;
        bytes.truncated = skipped > 0;
        Ok(bytes)
    }

    fn open_with_meta(&self, rel: &str) -> Result<(File, Meta), OpenError> {
        let fd = match self.beneath(OsStr::new(rel), FILE_FLAGS) {
            Ok(fd) => fd,
            Err(errno) => return Err(self.explain(rel, errno)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| OpenError::Io(e.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((File::from(fd), meta(&stat))),
            other => Err(OpenError::NotRegular(kind_words(other))),
        }
    }

    /// Turns the error of an open into words, looking at what is there where that helps.
    fn explain(&self, rel: &str, errno: Errno) -> OpenError {
        match errno {
            Errno::NOENT => OpenError::Missing,
            Errno::LOOP => OpenError::Symlink,
            Errno::STALE => OpenError::Vanished,
            Errno::ACCESS | Errno::PERM => OpenError::Denied { owner: self.stat(rel).ok().map(|m| m.uid) },
            Errno::NOTDIR => {
                // A link or a file stands where a directory was expected.
                let mut part = String::new();
                for segment in rel.split('/').filter(|s| !s.is_empty()) {
                    if !part.is_empty() {
                        part.push('/');
                    }
                    part.push_str(segment);
                    if self.stat(&part).is_ok_and(|m| m.kind == EntryKind::Symlink) {
                        return OpenError::Symlink;
                    }
                }
                OpenError::Missing
            }
            // What opening a socket gives, or a device without driver.
            Errno::NXIO | Errno::NODEV => OpenError::NotRegular("a socket or device"),
            other => OpenError::Io(other.into()),
        }
    }

    fn beneath(&self, rel: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags.union(OFlags::NOFOLLOW);
        check(rel)?;
        #[cfg(target_os = "linux")]
        if HAS_OPENAT2.load(Ordering::Relaxed) {
            use rustix::fs::ResolveFlags;
            let resolve = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
            match rustix::fs::openat2(&self.fd, rel, flags, Mode::empty(), resolve) {
                // Some sandboxes answer EPERM for system calls they do not know; the slower way
                // finds out whether it was a real one.
                Err(Errno::NOSYS) => HAS_OPENAT2.store(false, Ordering::Relaxed),
                // AGAIN: something was renamed meanwhile.
                Err(Errno::PERM | Errno::AGAIN | Errno::INVAL | Errno::TOOBIG) => {}
                other => return other,
            }
        }
        self.by_parts(rel, flags)
    }

    /// One part at a time, for kernels without `openat2`.
    fn by_parts(&self, rel: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        let step = DIR_FLAGS.union(OFlags::NOFOLLOW);
        let mut parts = Path::new(rel).components().peekable();
        let mut at: Option<OwnedFd> = None;
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_some() { step } else { flags };
            let fd = at.as_ref().map_or(self.fd.as_fd(), |fd| fd.as_fd());
            at = Some(rustix::fs::openat(fd, part.as_os_str(), flags, Mode::empty())?);
        }
        at.ok_or(Errno::INVAL)
    }
}

/// Plain parts only: no root, no `..`.
fn check(rel: &OsStr) -> Result<(), Errno> {
    let plain = Path::new(rel).components().all(|c| matches!(c, Component::Normal(_)));
    if plain && !rel.is_empty() { Ok(()) } else { Err(Errno::INVAL) }
}

fn is_plain_name(rel: &OsStr) -> bool {
    let bytes = rel.as_bytes();
    !bytes.contains(&b'/') && bytes != b"." && bytes != b".."
}

fn split(rel: &OsStr) -> io::Result<(&OsStr, &OsStr)> {
    let path = Path::new(rel);
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if check(rel).is_ok() => Ok((parent.as_os_str(), name)),
        _ => Err(Errno::INVAL.into()),
    }
}

fn kind_words(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a symbolic link",
        _ => "something odd",
    }
}

// The widths of the fields of `stat` differ between platforms.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
fn meta(stat: &rustix::fs::Stat) -> Meta {
    let (seconds, nanos) = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
    Meta {
        kind: EntryKind::of(FileType::from_raw_mode(stat.st_mode)),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: time::from_unix(seconds, nanos).unwrap_or(Stamp::UNIX_EPOCH),
        mtime_nanos: i128::from(seconds) * 1_000_000_000 + i128::from(nanos),
        inode: stat.st_ino as u64,
        device: stat.st_dev as u64,
        uid: stat.st_uid,
        links: stat.st_nlink as u64,
    }
}

fn while_reading(error: io::Error) -> OpenError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::STALE | Errno::NOENT) => OpenError::Vanished,
        _ => OpenError::Io(error),
    }
}

fn take(file: File, meta: Meta, cap: u64) -> Result<FileBytes, OpenError> {
    // A size is a claim: room is reserved for 1 MiB at most, the rest grows with what arrives.
    let room = meta.size.min(cap).min(1 << 20).saturating_add(1);
    let mut data = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
    file.take(cap.saturating_add(1)).read_to_end(&mut data).map_err(while_reading)?;
    let truncated = data.len() as u64 > cap;
    if truncated {
        data.truncate(usize::try_from(cap).unwrap_or(usize::MAX));
    }
    Ok(FileBytes { data, meta, truncated })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Both ways of opening give the same, also where the kernel has the faster one.
    #[test]
    fn the_slow_way_is_as_strict_as_the_fast_one() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("a/b")).unwrap();
        std::fs::write(temp.path().join("a/b/file"), b"x").unwrap();
        std::os::unix::fs::symlink("b", temp.path().join("a/link")).unwrap();
        std::os::unix::fs::symlink("b/file", temp.path().join("a/filelink")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let flags = FILE_FLAGS.union(OFlags::NOFOLLOW);
        for rel in ["a/b/file", "a/link/file", "a/filelink", "a/b", "a/b/file/x", "absent", "absent/x"] {
            let (fast, slow) = (dir.beneath(OsStr::new(rel), FILE_FLAGS), dir.by_parts(OsStr::new(rel), flags));
            let words = |r: &Result<OwnedFd, Errno>| match r {
                Ok(_) => "open".to_string(),
                Err(errno) => dir.explain(rel, *errno).to_string(),
            };
            assert_eq!(words(&fast), words(&slow), "{rel}");
        }
        assert!(dir.beneath(OsStr::new("../x"), FILE_FLAGS).is_err());
    }
}
