//! Files that are either the old one or the new one, never something between.
//!
//! Everything happens beneath an open directory: a link put in the way can not lead out of it, and a
//! directory that was deleted under us is noticed instead of made anew. A file is written under a new
//! name, synced, renamed, and the directory is synced: kill -9 and power loss leave the old file or the
//! new one, and at worst a file with a name that [`is_temp`] knows.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::lease::LeaseLost;
use crate::harbor::dir::{Dir, EntryKind};

/// End of the name of every file that is still being written.
const TEMP_SUFFIX: &str = ".pilothouse-tmp";
/// Bytes of the final name that a temporary one repeats; names end at 255.
const TEMP_STEM: usize = 120;
/// Mode of a written file, before the umask.
const FILE_MODE: u32 = 0o644;

/// Why something could not be written. Every text names the path and the next step.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file system or the quota is full.
    #[error("{path}: no space left on its file system: free some, then resume the job")]
    NoSpace {
        /// What was to be written.
        path: PathBuf,
    },
    /// The file system can not be written to.
    #[error(
        "{path}: its file system is read-only (after an I/O error systems are remounted so: see dmesg): make it \
         writable, then resume the job"
    )]
    ReadOnly {
        /// What was to be written.
        path: PathBuf,
    },
    /// The directory was deleted, or moved away and unmounted.
    #[error(
        "{path}: its directory is gone, deleted or moved while it was in use: put it back and resume, or start a new job"
    )]
    Vanished {
        /// What was to be written.
        path: PathBuf,
    },
    /// Something has this name already, and it is never overwritten.
    #[error("{path}: already there, and never overwritten: choose another name or move it away")]
    Exists {
        /// What was to be written.
        path: PathBuf,
    },
    /// Something that is no regular file stands where a file is to be written.
    #[error("{path}: {what} is in the way: move it away, then resume the job")]
    InTheWay {
        /// What was to be written.
        path: PathBuf,
        /// What is there, with its article.
        what: &'static str,
    },
    /// No permission.
    #[error("{path}: permission denied: make its directory writable for this user, or run as its owner")]
    Denied {
        /// What was to be written.
        path: PathBuf,
    },
    /// A name that is no plain name.
    #[error("{name:?} is no name for a file: no slash, NUL, `.`, `..` or more than 255 bytes; rename the task or step")]
    Name {
        /// The name.
        name: String,
    },
    /// Somebody else works on the job now.
    #[error("{path}: {lost}: this process writes nothing more there")]
    Lease {
        /// The job dir.
        path: PathBuf,
        /// What was found instead of our lease.
        lost: LeaseLost,
    },
    /// Anything else.
    #[error("{path}: {source}: see to it, then resume the job")]
    Io {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl WriteError {
    /// The error behind what the system said about a path.
    pub fn of(path: &Path, error: &io::Error) -> WriteError {
        let path = path.to_path_buf();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => WriteError::NoSpace { path },
            Some(Errno::ROFS) => WriteError::ReadOnly { path },
            Some(Errno::NOENT | Errno::STALE) => WriteError::Vanished { path },
            Some(Errno::EXIST) => WriteError::Exists { path },
            Some(Errno::ACCESS | Errno::PERM) => WriteError::Denied { path },
            Some(Errno::ISDIR | Errno::NOTEMPTY) => WriteError::InTheWay { path, what: "a directory" },
            Some(Errno::LOOP | Errno::NOTDIR) => WriteError::InTheWay { path, what: "a symbolic link" },
            Some(other) => WriteError::Io { path, source: other.into() },
            None => WriteError::Io { path, source: io::Error::new(error.kind(), error.to_string()) },
        }
    }
}

/// An open directory with the name to call it by in messages.
#[derive(Debug)]
pub struct Folder {
    dir: Dir,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory that the operator named.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn open(path: &Path) -> Result<Folder, WriteError> {
        let dir = Dir::open(path).map_err(|e| WriteError::of(path, &e))?;
        Ok(Folder { dir, path: path.to_path_buf() })
    }

    /// Makes a directory that must not exist yet, with those above it, and opens it.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when anything has this name, else see [`WriteError`].
    pub fn create(path: &Path) -> Result<Folder, WriteError> {
        let wrong = |e: io::Error| WriteError::of(path, &e);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(wrong)?;
        }
        std::fs::create_dir(path).map_err(wrong)?;
        let folder = Folder::open(path)?;
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            Folder::open(parent)?.sync()?;
        }
        Ok(folder)
    }

    /// A directory in this one; links are not followed.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn sub(&self, name: &str) -> Result<Folder, WriteError> {
        let path = self.named(name)?;
        let dir = self.dir.sub(name).map_err(|e| WriteError::of(&path, &e))?;
        Ok(Folder { dir, path })
    }

    /// As [`Folder::sub`], for names that are not UTF-8.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn sub_os(&self, name: &std::ffi::OsStr) -> Result<Folder, WriteError> {
        let path = self.path.join(name);
        let dir = self.dir.sub_os(name).map_err(|e| WriteError::of(&path, &e))?;
        Ok(Folder { dir, path })
    }

    /// Makes a directory in this one, with exactly this mode whatever the umask, and opens it. It is on
    /// the disk after the next [`Folder::sync`] or written file.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when anything has this name, else see [`WriteError`].
    pub fn make(&self, name: &str, mode: u32) -> Result<Folder, WriteError> {
        let path = self.named(name)?;
        let wrong = |e: Errno| WriteError::of(&path, &e.into());
        rustix::fs::mkdirat(&self.dir, name, Mode::from_raw_mode(0o700)).map_err(wrong)?;
        let made = self.sub(name)?;
        rustix::fs::fchmod(&made.dir, Mode::from_raw_mode(mode)).map_err(wrong)?;
        Ok(made)
    }

    /// As [`Folder::make`], but one that is there already will do, as it is.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn make_or_open(&self, name: &str, mode: u32) -> Result<Folder, WriteError> {
        match self.make(name, mode) {
            Err(WriteError::Exists { .. }) => self.sub(name),
            other => other,
        }
    }

    /// The directory, for reading.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The name to call it by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True when the directory was deleted, or something else has its name now.
    pub fn is_gone(&self) -> bool {
        let Ok(mine) = self.dir.stat("") else { return true };
        let there = rustix::fs::stat(&self.path);
        there.is_ok_and(|s| {
            #[allow(clippy::unnecessary_cast)]
            let named = (s.st_dev as u64, s.st_ino as u64);
            named != (mine.device, mine.inode)
        }) || mine.links == 0
            || matches!(there, Err(Errno::NOENT | Errno::STALE))
    }

    /// Writes a file, in place of one that may be there.
    ///
    /// # Errors
    /// See [`WriteError`]; then the old file is as it was.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(name, bytes, false, true)?;
        self.sync()
    }

    /// As [`Folder::replace`], but leaves it to the next [`Folder::sync`] that the name is on disk: after
    /// a power cut the old file may be there. For what is written often or just before another file.
    ///
    /// # Errors
    /// See [`WriteError`]; then the old file is as it was.
    pub fn replace_soon(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(name, bytes, false, true)
    }

    /// As [`Folder::replace`], but nothing is waited for: kill -9 leaves the old file or the new one, a power
    /// cut may leave an empty one. For what is written again in a moment, or can be made again from the rest;
    /// waiting for the disk is a good part of what a short trial costs.
    ///
    /// # Errors
    /// See [`WriteError`]; then the old file is as it was.
    pub fn jot(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(name, bytes, false, false)
    }

    /// Puts a file on the disk that was written by [`Folder::jot`], and its name.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn settle(&self, name: &str) -> Result<(), WriteError> {
        let path = self.named(name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(&self.dir, name, flags, Mode::empty()).map_err(|e| WriteError::of(&path, &e.into()))?;
        sync_all(&File::from(fd)).map_err(|e| WriteError::of(&path, &e))?;
        self.sync()
    }

    /// Writes a file that is never overwritten: by nobody who comes through here.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when anything has this name, else see [`WriteError`].
    pub fn write_once(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(name, bytes, true, true)?;
        self.sync()
    }

    /// As [`Folder::write_once`], but leaves it to the next [`Folder::sync`] that the name is on disk.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when anything has this name, else see [`WriteError`].
    pub fn write_once_soon(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(name, bytes, true, true)
    }

    fn put(&self, name: &str, bytes: &[u8], once: bool, synced: bool) -> Result<(), WriteError> {
        let path = self.named(name)?;
        let temp = temp_name(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, temp.as_str(), flags, Mode::from_raw_mode(FILE_MODE))
            .map_err(|e| WriteError::of(&path, &e.into()))?;
        let done = fill(fd, bytes, synced).and_then(|()| {
            if once {
                Ok(self.rename_new(&temp, name)?)
            } else {
                Ok(rustix::fs::renameat(&self.dir, temp.as_str(), &self.dir, name)?)
            }
        });
        match done {
            Ok(()) => Ok(()),
            Err(error) => {
                // The file is of no use to anybody; if it stays, the next start finds it.
                let _ = rustix::fs::unlinkat(&self.dir, temp.as_str(), AtFlags::empty());
                Err(WriteError::of(&path, &error))
            }
        }
    }

    /// Renames a file within the directory, never onto another.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when anything has the new name, else see [`WriteError`].
    pub fn rename_once(&self, from: &str, to: &str) -> Result<(), WriteError> {
        let path = self.named(to)?;
        self.named(from)?;
        self.rename_new(from, to).map_err(|e| WriteError::of(&path, &e.into()))?;
        self.sync()
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<(), Errno> {
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        {
            use rustix::fs::RenameFlags;
            match rustix::fs::renameat_with(&self.dir, from, &self.dir, to, RenameFlags::NOREPLACE) {
                // Not every file system knows the flag.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                other => return other,
            }
        }
        match rustix::fs::linkat(&self.dir, from, &self.dir, to, AtFlags::empty()) {
            Ok(()) => rustix::fs::unlinkat(&self.dir, from, AtFlags::empty()),
            // Neither: no other writer holds the lease, so that a look before will do.
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {
                match rustix::fs::statat(&self.dir, to, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => rustix::fs::renameat(&self.dir, from, &self.dir, to),
                    Err(other) => Err(other),
                    Ok(_) => Err(Errno::EXIST),
                }
            }
            Err(other) => Err(other),
        }
    }

    /// Opens a log to append to; it must be a regular file with this one name, or not be there.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn log(&self, name: &str) -> Result<Log, WriteError> {
        let path = self.named(name)?;
        let wrong = |e: Errno| match e {
            Errno::NXIO => WriteError::InTheWay { path: path.clone(), what: "a FIFO or socket" },
            other => WriteError::of(&path, &other.into()),
        };
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(FILE_MODE)).map_err(wrong)?;
        let stat = rustix::fs::fstat(&fd).map_err(wrong)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(WriteError::InTheWay { path, what: "something that is no file" });
        }
        if stat.st_nlink > 1 {
            return Err(WriteError::InTheWay { path, what: "a file with a second name" });
        }
        Ok(Log { file: File::from(fd), path })
    }

    /// Removes what an interrupted write left in this directory: regular files of this user with names
    /// that only they have. Gives the names removed.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn clean_temps(&self) -> Result<Vec<String>, WriteError> {
        let me = rustix::process::geteuid().as_raw();
        let mut removed = Vec::new();
        for entry in self.dir.list().map_err(|e| WriteError::of(&self.path, &e))? {
            let Some(name) = entry.name.to_str().filter(|n| is_temp(n)) else { continue };
            let mine = self.dir.stat(name).is_ok_and(|m| m.kind == EntryKind::File && m.uid == me);
            if mine {
                match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
                    Ok(()) => removed.push(name.to_string()),
                    Err(Errno::NOENT) => {}
                    Err(other) => return Err(WriteError::of(&self.path.join(name), &other.into())),
                }
            }
        }
        Ok(removed)
    }

    /// Puts the directory itself on the disk.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn sync(&self) -> Result<(), WriteError> {
        match rustix::fs::fsync(&self.dir) {
            // Some file systems can not, which is no reason to stop.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP | Errno::ROFS | Errno::BADF) => Ok(()),
            Err(other) => Err(WriteError::of(&self.path, &other.into())),
        }
    }

    /// The path of a plain name in it.
    pub(super) fn named(&self, name: &str) -> Result<PathBuf, WriteError> {
        let plain = !name.is_empty() && name != "." && name != ".." && name.len() <= 255;
        if plain && !name.contains(['/', '\0']) {
            Ok(self.path.join(name))
        } else {
            Err(WriteError::Name { name: name.to_string() })
        }
    }
}

/// A log that grows.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Appends a text and an end of line where it has none.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn line(&mut self, text: &str) -> Result<(), WriteError> {
        // One write, so that lines of several writers do not mix.
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let whole = format!("{text}{end}");
        self.file.write_all(whole.as_bytes()).map_err(|e| WriteError::of(&self.path, &e))
    }
}

/// Whether a file of this name is one that was being written when its writer died.
pub fn is_temp(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMP_SUFFIX)
}

pub(super) fn temp_name(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut stem = name.len().min(TEMP_STEM);
    while !name.is_char_boundary(stem) {
        stem -= 1;
    }
    let stem = name.get(..stem).unwrap_or_default();
    // Two processes can have the same number, in two containers over one directory.
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".{stem}.{}-{count}-{nanos:08x}{TEMP_SUFFIX}", std::process::id())
}

fn fill(fd: OwnedFd, bytes: &[u8], synced: bool) -> io::Result<()> {
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    if synced { sync_all(&file) } else { Ok(()) }
}

/// Puts a file on the disk, where the file system can.
pub(super) fn sync_all(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(e) if matches!(e.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::INVAL | Errno::NOTSUP)) => {
            Ok(())
        }
        other => other,
    }
}
