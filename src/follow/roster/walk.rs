//! Which directories below a root are jobs.
//!
//! A directory that is no job is remembered with its time: a job that begins in it changes that. Links are
//! followed in the root itself, where an operator made them; a directory is entered once, whatever its name.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use super::super::discover::{self, DirKind};
use crate::harbor::dir::{Dir, EntryKind};
use crate::job::{Stamp, text, time};

/// Directories below the root that are entered: `runs/<experiment>/jobs/<job>`.
const DEEP: usize = 3;
/// Directories of a root that are remembered.
const MOST: usize = 50_000;
/// Jobs of a root.
const JOBS: usize = 20_000;

/// Directories that are named for not being readable.
const DENIED: usize = 1000;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Directories that are no jobs: time at the last look, and how deep they lie.
    levels: BTreeMap<PathBuf, (i128, usize)>,
    jobs: HashSet<PathBuf>,
    /// Devices and inodes that were entered.
    entered: HashSet<(u64, u64)>,
    too_many: bool,
    /// Those that may not be read.
    denied: BTreeSet<PathBuf>,
}

/// What a step came to.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Jobs that were not known before.
    pub jobs: Vec<PathBuf>,
    /// Looks that it cost.
    pub cost: u64,
}

impl Walk {
    /// What was left out.
    pub fn left_out(&self) -> Option<String> {
        let many = format!("more than {JOBS} jobs or {MOST} directories: name the directories further down");
        let many = self.too_many.then_some(many);
        let names: Vec<_> = self.denied.iter().take(3).map(|dir| dir.to_string_lossy()).collect();
        let n = self.denied.len();
        let more = n.checked_sub(names.len()).filter(|more| *more > 0).map(|more| format!(" and {more} more"));
        let denied = (n > 0).then(|| format!("may not be read: {}{}", names.join(", "), more.unwrap_or_default()));
        let all: Vec<String> = many.into_iter().chain(denied).collect();
        (!all.is_empty()).then(|| text::clean(&all.join("; ")).into_owned())
    }

    /// A job dir is gone: what comes under its name is another.
    pub fn forget(&mut self, dir: &Path) {
        self.jobs.remove(dir);
    }

    /// Looks for jobs that are new. `alive` is told each directory and stops it by false.
    ///
    /// # Errors
    /// When the root itself can not be opened or listed.
    pub fn step(&mut self, root: &Path, alive: &mut dyn FnMut(&Path) -> bool) -> io::Result<Found> {
        let mut found = Found::default();
        if self.jobs.contains(root) {
            return Ok(found);
        }
        if !self.levels.contains_key(root) {
            // Nothing of an earlier time under this name counts.
            *self = Walk::default();
            self.enter(root.to_path_buf(), 0, &mut found, alive)?;
            return Ok(found);
        }
        for (dir, (time, depth)) in self.levels.clone() {
            if !alive(&dir) {
                break;
            }
            found.cost += 2;
            match Dir::open(&dir).and_then(|d| d.stat("")) {
                Ok(meta) => {
                    // One that changed just now may change once more without a new time.
                    let young = time::age(meta.modified, Stamp::now()).as_secs() < 2;
                    if meta.mtime_nanos != time || young {
                        self.entered.remove(&(meta.device, meta.inode));
                        let looked = self.enter(dir, depth, &mut found, alive);
                        if depth == 0 {
                            looked?;
                        }
                    }
                }
                Err(error) if depth == 0 => {
                    self.levels.clear();
                    return Err(error);
                }
                Err(_) => drop(self.levels.remove(&dir)),
            }
        }
        Ok(found)
    }

    /// Looks at one directory, and at those in it that are not known.
    fn enter(
        &mut self,
        dir: PathBuf,
        depth: usize,
        found: &mut Found,
        alive: &mut dyn FnMut(&Path) -> bool,
    ) -> io::Result<()> {
        if !alive(&dir) {
            return Ok(());
        }
        if self.levels.len() >= MOST || self.jobs.len() >= JOBS {
            self.too_many = true;
            return Ok(());
        }
        let open = Dir::open(&dir)?;
        let meta = open.stat("")?;
        if !self.entered.insert((meta.device, meta.inode)) {
            return Ok(());
        }
        found.cost += 3;
        // Most are jobs: one question tells.
        if open.stat("job.log").is_ok_and(|log| log.kind == EntryKind::File) {
            self.found(dir, found);
            return Ok(());
        }
        let entries = open.list()?;
        let kind = match discover::kind_of(&open, &entries, true) {
            DirKind::Neither => discover::classic_kind(&dir, &open, &entries),
            kind => kind,
        };
        match kind {
            DirKind::Job | DirKind::Classic => self.found(dir, found),
            DirKind::Trial | DirKind::ClassicTrial => {}
            DirKind::Neither => {
                self.levels.insert(dir.clone(), (meta.mtime_nanos, depth));
                if depth >= DEEP {
                    return Ok(());
                }
                let mut names: Vec<_> = entries
                    .into_iter()
                    .filter(|e| !discover::is_hidden(e))
                    .filter(|e| e.kind == EntryKind::Dir || depth == 0 && e.kind == EntryKind::Symlink)
                    .map(|e| e.name)
                    .collect();
                // Harbor names jobs by their time: the newest first.
                names.sort_by(|a, b| b.cmp(a));
                for name in names {
                    let below = dir.join(name);
                    if !self.jobs.contains(&below) && !self.levels.contains_key(&below) {
                        let looked = self.enter(below.clone(), depth + 1, found, alive);
                        if looked.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied) {
                            if self.denied.len() < DENIED {
                                self.denied.insert(below);
                            }
                        } else {
                            self.denied.remove(&below);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn found(&mut self, dir: PathBuf, found: &mut Found) {
        self.levels.remove(&dir);
        if self.jobs.insert(dir.clone()) {
            found.jobs.push(dir);
        }
    }
}
