//! A tar stream from inside, written beneath a directory of this machine, or taken as bytes.
//!
//! The stream is hostile. Only directories and regular files are made, each through an open
//! directory, never through a link; an existing name is never written to; sizes in headers are
//! claims, and every byte that arrives counts against the caps.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::error::tidy;
use super::{Exclude, FileBytes};
use crate::harbor::Dir;

/// Names kept of what was left out.
const NAMED: usize = 100;
/// Deepest directory that is made.
const DEEPEST: usize = 64;

/// How much is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Bytes in all, also of what is left out.
    pub bytes: u64,
    /// Bytes of one file; it is cut there.
    pub file_bytes: u64,
    /// Entries in all.
    pub entries: u64,
}

/// What arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Regular files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// True when a cap ended it or cut a file.
    pub cut: bool,
    /// Links, FIFOs, devices, odd names and names that were there already.
    pub skipped: u64,
    /// The first 100 of them, with the reason.
    pub skipped_names: Vec<String>,
}

impl Fetched {
    fn skip(&mut self, path: &Path, why: &str) {
        self.skipped += 1;
        if self.skipped_names.len() < NAMED {
            self.skipped_names.push(format!("{} ({why})", tidy(&path.to_string_lossy())));
        }
    }
}

/// How entries are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// From inside: new names only, no links.
    Careful,
    /// Our own upload into a scratch directory: names are replaced, links are made.
    Own,
}

/// Writes a tar stream beneath `into`. `strip` parts are taken off each name; a name with no more
/// parts than that is a single file and keeps its last one.
pub(super) fn unpack(from: impl Read, into: &Dir, caps: Caps, manner: Manner, strip: usize) -> io::Result<Fetched> {
    unpack_part(from, into, caps, manner, strip, &Exclude::default())
}

/// As [`unpack`], without what is excluded.
pub(super) fn unpack_part(
    from: impl Read,
    into: &Dir,
    caps: Caps,
    manner: Manner,
    strip: usize,
    without: &Exclude,
) -> io::Result<Fetched> {
    let mut fetched = Fetched::default();
    let mut archive = tar::Archive::new(from);
    let (mut taken, mut entries) = (0_u64, 0_u64);
    for entry in archive.entries()? {
        let mut entry = entry?;
        entries += 1;
        if entries > caps.entries {
            fetched.cut = true;
            return Ok(fetched);
        }
        let full = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        let mut parts: Vec<&OsStr> = Vec::new();
        let plain = full.components().all(|part| match part {
            Component::Normal(name) => {
                parts.push(name);
                true
            }
            Component::CurDir => true,
            _ => false,
        });
        if !plain || parts.len() > DEEPEST {
            fetched.skip(&full, "an odd name");
            continue;
        }
        let strip = if parts.len() <= strip && !kind.is_dir() { parts.len().saturating_sub(1) } else { strip };
        let parts = parts.get(strip..).unwrap_or_default();
        let Some((name, parents)) = parts.split_last() else { continue };
        if !without.keeps(&parts.iter().collect::<std::path::PathBuf>()) {
            taken = taken.saturating_add(entry.size());
            if taken > caps.bytes {
                fetched.cut = true;
                return Ok(fetched);
            }
            continue;
        }
        let parent = match down(into, parents) {
            Ok(dir) => dir,
            Err(why) => {
                fetched.skip(&full, &why.to_string());
                taken = taken.saturating_add(entry.size());
                if taken > caps.bytes {
                    fetched.cut = true;
                    return Ok(fetched);
                }
                continue;
            }
        };
        let parent = parent.as_ref().unwrap_or(into);
        match kind {
            tar::EntryType::Directory => {
                if let Err(why) = make(parent, name) {
                    fetched.skip(&full, &why.to_string());
                }
            }
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                let mode = 0o644 | (entry.header().mode().unwrap_or(0) & 0o111);
                let mut file = match create(parent, name, mode, manner) {
                    Ok(file) => Some(file),
                    Err(why) if is_full(&why) => return Err(why),
                    Err(why) => {
                        fetched.skip(&full, &why.to_string());
                        None
                    }
                };
                let left = caps.bytes.saturating_sub(taken);
                let (written, read, cut) = copy(&mut entry, file.as_mut(), caps.file_bytes, left)?;
                taken = taken.saturating_add(read);
                if file.is_some() {
                    fetched.files += 1;
                    fetched.bytes += written;
                }
                fetched.cut |= cut;
                if cut && taken >= caps.bytes {
                    return Ok(fetched);
                }
            }
            // A second name of a file that came before.
            tar::EntryType::Link => {
                let target = entry.link_name()?.map(|t| t.into_owned()).unwrap_or_default();
                let left = caps.bytes.saturating_sub(taken);
                match second_name(into, &target, strip, parent, name, caps.file_bytes.min(left)) {
                    Ok(written) => {
                        fetched.files += 1;
                        fetched.bytes += written;
                        taken = taken.saturating_add(written);
                    }
                    Err(why) => fetched.skip(&full, &format!("a hard link: {why}")),
                }
            }
            tar::EntryType::Symlink if manner == Manner::Own => {
                let target = entry.link_name()?.map(|t| t.into_owned()).unwrap_or_default();
                let _ = rustix::fs::unlinkat(parent, *name, AtFlags::empty());
                rustix::fs::symlinkat(&target, parent, *name)?;
            }
            tar::EntryType::Symlink => fetched.skip(&full, "a symbolic link"),
            tar::EntryType::Fifo => fetched.skip(&full, "a FIFO"),
            _ => fetched.skip(&full, "no regular file"),
        }
    }
    Ok(fetched)
}

/// The first `cap` bytes of the one regular file that an archive holds; `Err(Ok(what))` names what it
/// is instead.
pub(super) fn only_file(from: impl Read, cap: u64) -> Result<FileBytes, Result<&'static str, io::Error>> {
    let mut archive = tar::Archive::new(from);
    let mut entries = archive.entries().map_err(Err)?;
    let Some(entry) = entries.next() else { return Err(Ok("nothing")) };
    let mut entry = entry.map_err(Err)?;
    match entry.header().entry_type() {
        tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {}
        tar::EntryType::Directory => return Err(Ok("a directory")),
        tar::EntryType::Symlink => return Err(Ok("a symbolic link")),
        tar::EntryType::Fifo => return Err(Ok("a FIFO")),
        _ => return Err(Ok("no regular file")),
    }
    let mut data = Vec::new();
    (&mut entry).take(cap.saturating_add(1)).read_to_end(&mut data).map_err(Err)?;
    let cut = data.len() as u64 > cap;
    if cut {
        data.truncate(usize::try_from(cap).unwrap_or(usize::MAX));
    }
    Ok(FileBytes { data, cut })
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// The directory beneath `into` at these parts, made where it is missing; None for `into` itself.
fn down(into: &Dir, parts: &[&OsStr]) -> io::Result<Option<Dir>> {
    let mut at: Option<Dir> = None;
    for part in parts {
        let from = at.as_ref().unwrap_or(into);
        at = Some(make(from, part)?);
    }
    Ok(at)
}

fn make(parent: &Dir, name: &OsStr) -> io::Result<Dir> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => parent.sub_os(name),
        Err(errno) => Err(errno.into()),
    }
}

fn create(parent: &Dir, name: &OsStr, mode: u32, manner: Manner) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::openat(parent, name, flags, mode) {
        Err(Errno::EXIST) if manner == Manner::Own => {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            Ok(File::from(rustix::fs::openat(parent, name, flags, mode)?))
        }
        Err(Errno::EXIST) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "there already")),
        other => Ok(File::from(other?)),
    }
}

/// Copies an entry: bytes written, bytes read, whether it was cut.
fn copy(from: &mut impl Read, mut to: Option<&mut File>, cap: u64, left: u64) -> io::Result<(u64, u64, bool)> {
    let mut block = vec![0_u8; 64 * 1024];
    let (mut written, mut read, mut cut) = (0_u64, 0_u64, false);
    loop {
        let n = from.read(&mut block)?;
        let got = block.get(..n).unwrap_or_default();
        if got.is_empty() {
            return Ok((written, read, cut));
        }
        let allowed = cap.saturating_sub(written).min(left.saturating_sub(read));
        let part = got.get(..usize::try_from(allowed).unwrap_or(usize::MAX).min(n)).unwrap_or_default();
        if let Some(file) = to.as_mut() {
            file.write_all(part)?;
            written += part.len() as u64;
        }
        read += n as u64;
        cut |= part.len() < n && to.is_some();
        if read > left {
            return Ok((written, read, true));
        }
    }
}

fn second_name(into: &Dir, target: &Path, strip: usize, parent: &Dir, name: &OsStr, cap: u64) -> io::Result<u64> {
    let rel: std::path::PathBuf = target.components().skip(strip).collect();
    let rel = rel.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let mut from = into.open_file(rel).map_err(|e| io::Error::other(e.to_string()))?;
    let mut to = create(parent, name, 0o644, Manner::Careful)?;
    let (written, _, _) = copy(&mut from, Some(&mut to), cap, u64::MAX)?;
    Ok(written)
}
