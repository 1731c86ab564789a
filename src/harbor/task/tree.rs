//! The files of a task directory. Links are followed where Harbor follows them, but never out of
//! the task; nothing that is no regular file is opened.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::TaskProblem;
use super::read::shown;
use crate::harbor::dir::{Dir, EntryKind, OpenError};

/// Entries looked at for one purpose.
const MAX_ENTRIES: usize = 100_000;
/// Directories in each other.
const MAX_DEPTH: usize = 100;

/// What lies at a path, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Dir,
    /// FIFO, socket, device.
    Other,
    /// A link that leads to nothing.
    Dangling,
}

/// Something in the task.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Its name in its directory.
    pub(super) name: String,
    /// The path it was reached by, from the task's directory.
    pub(super) path: String,
    /// The path without links.
    pub(super) real: String,
    pub(super) kind: Kind,
    pub(super) link: bool,
    /// Bytes.
    pub(super) size: u64,
}

/// A task's directory, open.
pub(super) struct Tree {
    /// Absolute, without links.
    pub(super) root: PathBuf,
    dir: Dir,
}

/// Counts down what one walk may look at.
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new() -> Budget {
        Budget(MAX_ENTRIES)
    }

    fn spend(&mut self, depth: usize) -> Result<(), TaskProblem> {
        self.0 = self.0.checked_sub(1).filter(|_| depth < MAX_DEPTH).ok_or(TaskProblem::TooLarge {
            what: format!("more than {MAX_ENTRIES} files, or {MAX_DEPTH} directories in each other"),
        })?;
        Ok(())
    }
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_string() } else { format!("{dir}/{name}") }
}

fn unreadable(path: &str, why: impl std::fmt::Display) -> TaskProblem {
    TaskProblem::Unreadable { path: shown(path), why: why.to_string() }
}

impl Tree {
    pub(super) fn open(path: &Path) -> Result<Tree, TaskProblem> {
        let fail = |e: io::Error| unreadable(&path.to_string_lossy(), e);
        let root = std::fs::canonicalize(path).map_err(fail)?;
        let dir = Dir::open(&root).map_err(fail)?;
        Ok(Tree { root, dir })
    }

    /// What lies at a path; None where there is nothing.
    pub(super) fn at(&self, path: &str) -> Result<Option<Node>, TaskProblem> {
        let name = path.rsplit('/').next().unwrap_or(path);
        match self.dir.stat(path) {
            Ok(meta) if meta.kind != EntryKind::Symlink => {
                let kind = match meta.kind {
                    EntryKind::File => Kind::File,
                    EntryKind::Dir => Kind::Dir,
                    _ => Kind::Other,
                };
                let (name, path) = (name.to_string(), path.to_string());
                Ok(Some(Node { name, real: path.clone(), path, kind, link: false, size: meta.size }))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            // It is a link, or there is one (or a file) on the way.
            _ => self.follow(path, name),
        }
    }

    fn follow(&self, path: &str, name: &str) -> Result<Option<Node>, TaskProblem> {
        let node = |real: &str, kind, size| Node {
            name: name.to_string(),
            path: path.to_string(),
            real: real.to_string(),
            kind,
            link: true,
            size,
        };
        let target = match std::fs::canonicalize(self.root.join(path)) {
            Ok(target) => target,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                let there = std::fs::symlink_metadata(self.root.join(path)).is_ok();
                return Ok(there.then(|| node(path, Kind::Dangling, 0)));
            }
            Err(e) => return Err(unreadable(path, e)),
        };
        let real = target.strip_prefix(&self.root).map_err(|_| TaskProblem::Leaves { path: shown(path) })?;
        let real = real.to_str().ok_or_else(|| TaskProblem::NotUtf8 { path: shown(&real.to_string_lossy()) })?;
        let meta = self.dir.stat(real).map_err(|e| unreadable(path, e))?;
        Ok(Some(match meta.kind {
            EntryKind::File => node(real, Kind::File, meta.size),
            EntryKind::Dir => node(real, Kind::Dir, 0),
            // Swapped for a link meanwhile, or no file.
            _ => node(real, Kind::Other, 0),
        }))
    }

    /// As [`Tree::at`], where only a certain kind will do.
    pub(super) fn find(&self, path: &str, kind: Kind) -> Result<Option<Node>, TaskProblem> {
        Ok(self.at(path)?.filter(|node| node.kind == kind))
    }

    /// What is in a directory, sorted by name.
    pub(super) fn list(&self, dir: &Node, depth: usize, budget: &mut Budget) -> Result<Vec<Node>, TaskProblem> {
        let fail = |e: io::Error| unreadable(&dir.path, e);
        let entries = match dir.real.as_str() {
            "" => self.dir.list(),
            real => self.dir.sub(real).and_then(|d| d.list()),
        };
        let mut nodes = Vec::new();
        for entry in entries.map_err(fail)? {
            budget.spend(depth)?;
            let Some(name) = entry.name.to_str() else {
                return Err(TaskProblem::NotUtf8 { path: shown(&join(&dir.path, &entry.name.to_string_lossy())) });
            };
            // What vanished meanwhile is not there.
            if let Some(node) = self.at(&join(&dir.real, name))? {
                nodes.push(Node { path: join(&dir.path, name), ..node });
            }
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(nodes)
    }

    /// The task's directory itself.
    pub(super) fn top(&self) -> Node {
        let (name, path, real) = (String::new(), String::new(), String::new());
        Node { name, path, real, kind: Kind::Dir, link: false, size: 0 }
    }

    /// Opens a regular file.
    pub(super) fn file(&self, node: &Node) -> Result<File, TaskProblem> {
        self.dir.open_file(&node.real).map_err(|e| unreadable(&node.path, e))
    }

    /// A text as Python reads it: UTF-8, every line end as `\n`. None where there is nothing.
    pub(super) fn text(&self, path: &str, cap: u64) -> Result<Option<String>, TaskProblem> {
        let Some(node) = self.at(path)?.filter(|n| n.kind != Kind::Dangling) else { return Ok(None) };
        let bytes = match self.dir.read_all(&node.real, cap) {
            Ok(bytes) => bytes.data,
            Err(OpenError::Missing | OpenError::Vanished) => return Ok(None),
            Err(e) => return Err(unreadable(path, e)),
        };
        let text = String::from_utf8(bytes).map_err(|_| unreadable(path, "not UTF-8"))?;
        Ok(Some(if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }))
    }

    /// That nothing below leads out of the task, or round in a circle.
    pub(super) fn check(&self, path: &str, budget: &mut Budget) -> Result<(), TaskProblem> {
        match self.find(path, Kind::Dir)? {
            Some(dir) => self.check_dir(&dir, &mut Vec::new(), &mut HashSet::new(), budget),
            None => Ok(()),
        }
    }

    fn check_dir(
        &self,
        dir: &Node,
        above: &mut Vec<String>,
        checked: &mut HashSet<String>,
        budget: &mut Budget,
    ) -> Result<(), TaskProblem> {
        enter(dir, above)?;
        // Once is enough, however many links lead there: links may double what there is.
        if !checked.contains(&dir.real) {
            for node in self.list(dir, above.len(), budget)? {
                if node.kind == Kind::Dir {
                    self.check_dir(&node, above, checked, budget)?;
                }
            }
            checked.insert(dir.real.clone());
        }
        above.pop();
        Ok(())
    }
}

/// Notes that a directory is entered; `above` holds those it is reached through.
pub(super) fn enter(dir: &Node, above: &mut Vec<String>) -> Result<(), TaskProblem> {
    if above.contains(&dir.real) {
        return Err(TaskProblem::Cycle { path: shown(&dir.path) });
    }
    above.push(dir.real.clone());
    Ok(())
}
