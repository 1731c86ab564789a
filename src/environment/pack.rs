//! A directory of this machine as a tar stream: owner root, nothing followed out of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::harbor::{Dir, EntryKind};

/// Deepest directory that is packed.
const DEEPEST: usize = 64;
/// Names kept of what was left out.
const NAMED: usize = 100;

/// What was packed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packed {
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// FIFOs, sockets, devices and unreadable entries that were left out, the first 100 by name.
    pub skipped: Vec<String>,
    /// True when the file that [`Rules::program`] names went in, as a file that everybody may execute.
    pub program: bool,
}

/// What goes into an archive, and how.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Says for each path relative to the directory (and whether it is a directory) whether it goes in.
    pub keep: &'a dyn Fn(&str, bool) -> bool,
    /// A file of the directory itself that everybody may execute there, whatever its mode is here.
    pub program: Option<&'a str>,
}

impl std::fmt::Debug for Rules<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Rules<'_> {
    /// Everything, as it is.
    pub fn all() -> Rules<'static> {
        Rules { keep: &|_, _| true, program: None }
    }
}

/// Opens the directory that is to be packed. Its own name must not be a link: in a repository of
/// tasks `tests` could lead anywhere.
///
/// # Errors
/// As `open(2)`; `NotADirectory` for a link or a file.
pub fn open_source(path: &Path) -> io::Result<Dir> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Dir::open(parent)?.sub_os(name)
}

/// Writes the contents of `dir` as tar entries beneath `prefix` (relative, may be empty), sorted by
/// name. Links go in as links; nothing is followed.
///
/// # Errors
/// Of reading a file that changed meanwhile, or of writing to `out`.
pub fn pack<W: Write>(dir: &Dir, prefix: &Path, out: &mut tar::Builder<W>, rules: &Rules<'_>) -> io::Result<Packed> {
    let mut packed = Packed::default();
    level(dir, prefix, Path::new(""), out, rules, &mut packed, 0)?;
    Ok(packed)
}

/// Writes one file.
///
/// # Errors
/// Of writing to `out`.
pub fn pack_bytes<W: Write>(path: &Path, data: &[u8], mode: u32, out: &mut tar::Builder<W>) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, 0);
    header.set_size(data.len() as u64);
    out.append_data(&mut header, path, data)
}

/// Writes a directory.
///
/// # Errors
/// Of writing to `out`.
pub fn pack_dir<W: Write>(path: &Path, out: &mut tar::Builder<W>) -> io::Result<()> {
    let mut header = header(tar::EntryType::Directory, 0o755, 0);
    out.append_data(&mut header, path, io::empty())
}

fn level<W: Write>(
    dir: &Dir,
    prefix: &Path,
    rel: &Path,
    out: &mut tar::Builder<W>,
    rules: &Rules<'_>,
    packed: &mut Packed,
    depth: usize,
) -> io::Result<()> {
    let mut entries = dir.list()?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let rel = rel.join(&entry.name);
        let path = prefix.join(&rel);
        let is_dir = entry.kind == EntryKind::Dir;
        let wanted = (rules.keep)(&rel.to_string_lossy(), is_dir);
        if !wanted && !is_dir {
            continue;
        }
        match entry.kind {
            // A directory that is left out may hold something that is kept after all.
            EntryKind::Dir if depth < DEEPEST => match dir.sub_os(&entry.name) {
                Ok(sub) => {
                    if wanted {
                        let mode = rustix::fs::fstat(&sub)?.st_mode;
                        let mut header = header(tar::EntryType::Directory, mode, 0);
                        out.append_data(&mut header, &path, io::empty())?;
                    }
                    level(&sub, prefix, &rel, out, rules, packed, depth + 1)?;
                }
                Err(_) => skip(packed, &rel),
            },
            EntryKind::File => match open(dir, &entry.name) {
                Ok(file) => {
                    let program = depth == 0 && rules.program.is_some_and(|name| entry.name == *name);
                    append(file, &path, out, packed, if program { 0o111 } else { 0 })?;
                    packed.program |= program;
                }
                Err(_) => skip(packed, &rel),
            },
            EntryKind::Symlink => match rustix::fs::readlinkat(dir, &entry.name, Vec::new()) {
                Ok(target) => {
                    let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                    let target = PathBuf::from(OsStr::from_bytes(target.to_bytes()));
                    out.append_link(&mut header, &path, target)?;
                }
                Err(_) => skip(packed, &rel),
            },
            EntryKind::Dir | EntryKind::Other => skip(packed, &rel),
        }
    }
    Ok(())
}

fn skip(packed: &mut Packed, rel: &Path) {
    if packed.skipped.len() < NAMED {
        packed.skipped.push(super::error::tidy(&rel.to_string_lossy()));
    }
}

fn open(dir: &Dir, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// `more` is added to its mode.
fn append<W: Write>(
    file: File,
    path: &Path,
    out: &mut tar::Builder<W>,
    packed: &mut Packed,
    more: u32,
) -> io::Result<()> {
    let meta = file.metadata()?;
    let mode = meta.permissions().mode() | more;
    let mut header = header(tar::EntryType::Regular, mode, u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_size(meta.len());
    // Exactly as many bytes as announced, whatever happens to the file meanwhile.
    let mut exact = file.take(meta.len());
    out.append_data(&mut header, path, &mut exact)?;
    if exact.limit() > 0 {
        return Err(io::Error::other(format!("{} became shorter while it was read", path.display())));
    }
    packed.files += 1;
    packed.bytes += meta.len();
    Ok(())
}

fn header(kind: tar::EntryType, mode: u32, mtime: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    // No set-uid bits: the owner becomes root.
    header.set_mode(mode & 0o777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(mtime);
    header.set_size(0);
    header
}

/// The rules of a `.dockerignore`: later lines win, `!` takes back, a rule for a directory holds for
/// all in it. The engine leaves applying it to its client.
#[derive(Debug, Clone, Default)]
pub struct Ignore {
    rules: Vec<(Vec<String>, bool)>,
}

impl Ignore {
    /// Reads the rules.
    pub fn parse(text: &str) -> Ignore {
        let mut rules = Vec::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (line, keep) = match line.strip_prefix('!') {
                Some(rest) => (rest.trim(), true),
                None => (line, false),
            };
            let parts: Vec<String> =
                line.split('/').filter(|p| !p.is_empty() && *p != ".").map(str::to_string).collect();
            if !parts.is_empty() {
                rules.push((parts, keep));
            }
        }
        Ignore { rules }
    }

    /// True when the path (relative, `/` between parts) goes into the build. The Dockerfile and the
    /// rules always do: the engine wants them, and takes them out itself.
    pub fn keeps(&self, path: &str) -> bool {
        if matches!(path, "Dockerfile" | ".dockerignore") {
            return true;
        }
        let parts: Vec<&str> = path.split('/').collect();
        let mut kept = true;
        for (rule, keep) in &self.rules {
            if *keep != kept && (1..=parts.len()).any(|n| parts.get(..n).is_some_and(|head| matches(rule, head))) {
                kept = *keep;
            }
        }
        kept
    }
}

fn matches(rule: &[String], parts: &[&str]) -> bool {
    match rule.split_first() {
        None => parts.is_empty(),
        Some((first, rest)) if first == "**" => {
            (0..=parts.len()).any(|n| parts.get(n..).is_some_and(|tail| matches(rest, tail)))
        }
        Some((first, rest)) => parts.split_first().is_some_and(|(part, tail)| glob(first, part) && matches(rest, tail)),
    }
}

/// `*`, `?` and plain characters, in time of the product of both lengths.
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // reach[j]: the pattern so far matches the first j characters.
    let mut reach = vec![false; name.len() + 1];
    if let Some(first) = reach.first_mut() {
        *first = true;
    }
    for p in pattern {
        let mut next = vec![false; name.len() + 1];
        for (j, slot) in next.iter_mut().enumerate() {
            let before = j.checked_sub(1);
            *slot = match p {
                '*' => reach.iter().take(j + 1).any(|r| *r),
                _ => before.is_some_and(|b| reach.get(b) == Some(&true) && (p == '?' || name.get(b) == Some(&p))),
            };
        }
        reach = next;
    }
    reach.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_fits_decides() {
        let ignore = Ignore::parse("\u{feff}# comment\n\n/a\n**/*.pyc\nb*/c?\n!a/keep\n  tail  \n!\nDockerfile\n");
        for (path, kept) in [
            ("a", false),
            ("a/x/y", false),
            ("a/keep", true),
            ("a/keep/x", true),
            ("x/a", true),
            ("x.pyc", false),
            ("d/e/x.pyc", false),
            ("x.py", true),
            ("bb/c1", false),
            ("bb/c12", true),
            ("tail", false),
            ("Dockerfile", true),
            (".dockerignore", true),
        ] {
            assert_eq!(ignore.keeps(path), kept, "{path}");
        }
        // A pattern of many stars takes no time.
        assert!(!glob(&"*a".repeat(200), &"a".repeat(199)));
    }
}
