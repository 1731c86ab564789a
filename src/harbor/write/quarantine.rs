//! A place for what has to leave a job dir: copied and compared before the original goes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::atomic::{Folder, WriteError};
use crate::harbor::dir::{Dir, EntryKind, OpenError};

/// Directories within directories that are followed down.
const DEPTH: usize = 100;
/// Bytes compared at a time.
const BLOCK: usize = 64 * 1024;

/// Why something could not be moved away. The original is as it was, unless only its removal failed.
#[derive(Debug, thiserror::Error)]
pub enum QuarantineError {
    /// The copy could not be written, or the original not be removed (then the copy is whole).
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The original could not be read.
    #[error("{path}: {source}; nothing was moved")]
    Read {
        /// What could not be read.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// The copy is not the original: somebody still writes it.
    #[error("{path}: changed while it was copied; nothing was moved: wait until nobody writes it, then try again")]
    Changed {
        /// What differs.
        path: PathBuf,
    },
    /// Directories in directories without end.
    #[error("{path}: directories nested deeper than {DEPTH}; nothing was moved: move it away by hand")]
    Deep {
        /// How far it went.
        path: PathBuf,
    },
}

/// What was moved where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it is now.
    pub place: PathBuf,
    /// FIFOs, sockets and devices in it, which are not kept: paths beneath the place.
    pub left_out: Vec<PathBuf>,
}

/// Moves a trial or any other entry of a job dir to `<state dir>/quarantine/<job id>/<name>` (with a
/// number when that is taken): copies it without following links, compares every byte, makes it last,
/// and only then removes the original.
///
/// # Errors
/// See [`QuarantineError`].
pub fn quarantine(job: &Folder, name: &str, state_dir: &Path, job_id: &str) -> Result<Quarantined, QuarantineError> {
    let from = job.named(name)?;
    let place = private(state_dir)?.make_or_open("quarantine", 0o700)?.make_or_open(job_id, 0o700)?;
    place.clean_temps()?;
    let stage_name = (1..).map(|n: u32| format!(".{n}.pilothouse-tmp")).find(|n| place.dir().stat(n).is_err());
    let stage = place.make(&stage_name.clone().unwrap_or_default(), 0o700)?;
    let mut left_out = Vec::new();
    let name_os = OsStr::new(name);
    let done = copy(job.dir(), &from, name_os, &stage, 0, &mut left_out)
        .and_then(|()| compare(job.dir(), &from, name_os, stage.dir()));
    if let Err(error) = done {
        // Half a copy is of no use; the original is untouched.
        let _ = remove(place.dir(), place.path(), OsStr::new(&stage_name.unwrap_or_default()));
        return Err(error);
    }
    let target = settle(&stage, name, &place)?;
    rustix::fs::unlinkat(place.dir(), stage_name.unwrap_or_default(), AtFlags::REMOVEDIR)
        .map_err(|e| WriteError::of(stage.path(), &e.into()))?;
    place.sync()?;
    remove(job.dir(), job.path(), name_os)?;
    job.sync()?;
    let left_out = left_out.into_iter().map(|path| target.join(path)).collect();
    Ok(Quarantined { place: target, left_out })
}

/// Brings something back from the quarantine into a job dir, under a name that is free there: copied and
/// compared before it goes from the quarantine.
///
/// # Errors
/// See [`QuarantineError`]; [`WriteError::Exists`] when the job dir has something of this name.
pub fn restore(place: &Path, job: &Folder, name: &str) -> Result<(), QuarantineError> {
    let target = job.named(name)?;
    let named = |path: &Path| path.file_name().and_then(OsStr::to_str).map(str::to_string);
    let (Some(parent), Some(kept)) = (place.parent(), named(place)) else {
        return Err(WriteError::Name { name: place.display().to_string() }.into());
    };
    let from = Folder::open(parent)?;
    if job.dir().stat(name).is_ok() {
        return Err(WriteError::Exists { path: target }.into());
    }
    let kept = OsStr::new(&kept);
    let stage_name = (1..).map(|n: u32| format!(".{n}.pilothouse-tmp")).find(|n| job.dir().stat(n).is_err());
    let stage_name = stage_name.unwrap_or_default();
    let stage = job.make(&stage_name, 0o755)?;
    let mut left_out = Vec::new();
    let done = copy(from.dir(), place, kept, &stage, 0, &mut left_out)
        .and_then(|()| compare(from.dir(), place, kept, stage.dir()))
        .and_then(|()| {
            let renamed = rustix::fs::renameat(stage.dir(), kept, job.dir(), name);
            renamed.map_err(|e| WriteError::of(&target, &e.into()).into())
        });
    remove(job.dir(), job.path(), OsStr::new(&stage_name))?;
    done?;
    job.sync()?;
    remove(from.dir(), from.path(), kept)?;
    Ok(from.sync()?)
}

fn private(state_dir: &Path) -> Result<Folder, WriteError> {
    std::fs::create_dir_all(state_dir).map_err(|e| WriteError::of(state_dir, &e))?;
    Folder::open(state_dir)
}

/// Gives the copy its name, the first that is free.
fn settle(stage: &Folder, name: &str, place: &Folder) -> Result<PathBuf, WriteError> {
    for n in 0_u32.. {
        let to = if n == 0 { name.to_string() } else { format!("{name}.{n}") };
        if place.dir().stat(&to).is_ok() {
            continue;
        }
        return match rustix::fs::renameat(stage.dir(), name, place.dir(), to.as_str()) {
            // Another process was faster with this name; its directory is not empty.
            Err(Errno::EXIST | Errno::NOTEMPTY) => continue,
            Err(other) => Err(WriteError::of(&place.path().join(&to), &other.into())),
            Ok(()) => Ok(place.path().join(&to)),
        };
    }
    Err(WriteError::Exists { path: place.path().join(name) })
}

fn unreadable(path: &Path, error: io::Error) -> QuarantineError {
    QuarantineError::Read { path: path.to_path_buf(), source: OpenError::Io(error) }
}

/// The kind of an entry with a name of any bytes.
fn kind_of(dir: &Dir, path: &Path, name: &OsStr) -> Result<EntryKind, QuarantineError> {
    use rustix::fs::FileType;
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| unreadable(path, e.into()))?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => EntryKind::Dir,
        FileType::RegularFile => EntryKind::File,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    })
}

/// Opens a file of any name for reading, if it is one.
fn open(dir: &Dir, path: &Path, name: &OsStr) -> Result<File, QuarantineError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(|e| unreadable(path, e.into()))?;
    let file = File::from(fd);
    match file.metadata() {
        Ok(meta) if meta.is_file() => Ok(file),
        Ok(_) => Err(QuarantineError::Changed { path: path.to_path_buf() }),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn listed(dir: &Dir, path: &Path) -> Result<Vec<OsString>, QuarantineError> {
    let mut names: Vec<OsString> = dir.list().map_err(|e| unreadable(path, e))?.into_iter().map(|e| e.name).collect();
    names.sort();
    Ok(names)
}

fn link_of(dir: &Dir, path: &Path, name: &OsStr) -> Result<OsString, QuarantineError> {
    let target = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(|e| unreadable(path, e.into()))?;
    Ok(OsStr::from_bytes(target.to_bytes()).to_os_string())
}

fn copy(
    from: &Dir,
    path: &Path,
    name: &OsStr,
    to: &Folder,
    depth: usize,
    left_out: &mut Vec<PathBuf>,
) -> Result<(), QuarantineError> {
    if depth > DEPTH {
        return Err(QuarantineError::Deep { path: path.to_path_buf() });
    }
    let target = to.path().join(name);
    let wrong = |e: io::Error| WriteError::of(&target, &e);
    match kind_of(from, path, name)? {
        EntryKind::Dir => {
            let inside = from.sub_os(name).map_err(|e| unreadable(path, e))?;
            rustix::fs::mkdirat(to.dir(), name, Mode::from_raw_mode(0o700)).map_err(|e| wrong(e.into()))?;
            let into = to.sub_os(name)?;
            for entry in listed(&inside, path)? {
                copy(&inside, &path.join(&entry), &entry, &into, depth + 1, left_out)?;
            }
            into.sync()?;
        }
        EntryKind::File => {
            let mut source = open(from, path, name)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd =
                rustix::fs::openat(to.dir(), name, flags, Mode::from_raw_mode(0o600)).map_err(|e| wrong(e.into()))?;
            let mut file = File::from(fd);
            pour(&mut source, path, &mut file, &target)?;
            if let Ok(times) = source.metadata().and_then(|m| m.modified()) {
                // When a file was written is evidence; a system that can not keep it is no reason to stop.
                let _ = file.set_modified(times);
            }
            file.sync_all().map_err(wrong)?;
        }
        EntryKind::Symlink => {
            let aim = link_of(from, path, name)?;
            rustix::fs::symlinkat(&*aim, to.dir(), name).map_err(|e| wrong(e.into()))?;
        }
        EntryKind::Other => left_out.push(beneath(to, name)),
    }
    Ok(())
}

/// The path of an entry within what is moved: without the stage and the moved thing's own name.
fn beneath(to: &Folder, name: &OsStr) -> PathBuf {
    let whole = to.path().join(name);
    let mut parts = whole.components().skip_while(|c| !c.as_os_str().to_str().is_some_and(super::atomic::is_temp));
    parts.next();
    parts.next();
    parts.collect()
}

/// Copies and tells apart which side an error is of.
fn pour(source: &mut File, path: &Path, file: &mut File, target: &Path) -> Result<(), QuarantineError> {
    let mut block = vec![0; BLOCK];
    loop {
        let n = match source.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(unreadable(path, e)),
        };
        file.write_all(block.get(..n).unwrap_or_default()).map_err(|e| WriteError::of(target, &e))?;
    }
}

/// Both sides, byte by byte.
fn compare(from: &Dir, path: &Path, name: &OsStr, to: &Dir) -> Result<(), QuarantineError> {
    let changed = || QuarantineError::Changed { path: path.to_path_buf() };
    let kind = kind_of(from, path, name)?;
    if kind == EntryKind::Other {
        return Ok(());
    }
    if kind_of(to, path, name).map_err(|_| changed())? != kind {
        return Err(changed());
    }
    match kind {
        EntryKind::Dir => {
            let (one, other) = (from.sub_os(name), to.sub_os(name));
            let (one, other) = (one.map_err(|e| unreadable(path, e))?, other.map_err(|e| unreadable(path, e))?);
            let mut names = listed(&one, path)?;
            let mut kept = Vec::new();
            for entry in names.drain(..) {
                let inner = path.join(&entry);
                if kind_of(&one, &inner, &entry)? != EntryKind::Other {
                    kept.push(entry);
                }
            }
            if kept != listed(&other, path)? {
                return Err(changed());
            }
            kept.iter().try_for_each(|entry| compare(&one, &path.join(entry), entry, &other))
        }
        EntryKind::File => {
            let (mut one, mut other) = (open(from, path, name)?, open(to, path, name)?);
            let (mut a, mut b) = (Vec::new(), Vec::new());
            loop {
                for (file, into) in [(&mut one, &mut a), (&mut other, &mut b)] {
                    into.clear();
                    file.take(BLOCK as u64).read_to_end(into).map_err(|e| unreadable(path, e))?;
                }
                if a != b {
                    return Err(changed());
                }
                if a.is_empty() {
                    return Ok(());
                }
            }
        }
        EntryKind::Symlink if link_of(from, path, name)? != link_of(to, path, name)? => Err(changed()),
        _ => Ok(()),
    }
}

/// Removes an entry with everything in it; never what a link leads to.
fn remove(dir: &Dir, path: &Path, name: &OsStr) -> Result<(), WriteError> {
    let here = path.join(name);
    let wrong = |e: Errno| WriteError::of(&here, &e.into());
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // What unlinking a directory gives, here and on other systems.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(other) => return Err(wrong(other)),
    }
    let inside = dir.sub_os(name).map_err(|e| WriteError::of(&here, &e))?;
    for entry in inside.list().map_err(|e| WriteError::of(&here, &e))? {
        remove(&inside, &here, &entry.name)?;
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).map_err(wrong)
}
