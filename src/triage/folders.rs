//! The directories of one trial, each opened and listed at most once: most of what is asked for is not
//! there, and a list answers that for all names together.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::rc::Rc;

use crate::harbor::{Dir, Entry, EntryKind};

/// A directory, with what lies in it once that was asked.
#[derive(Debug)]
pub(super) struct Folder {
    /// The directory.
    pub dir: Dir,
    /// Sorted by name; None where it can not be listed.
    entries: OnceCell<Option<Vec<Entry>>>,
}

impl Folder {
    fn entries(&self) -> Option<&[Entry]> {
        let list = || {
            let mut entries = self.dir.list().ok()?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Some(entries)
        };
        self.entries.get_or_init(list).as_deref()
    }

    /// Whether something of this name may be there.
    pub fn may_hold(&self, name: &str) -> bool {
        self.entries().is_none_or(|e| e.binary_search_by(|e| e.name.as_os_str().cmp(OsStr::new(name))).is_ok())
    }

    /// Names of entries that fit, sorted, of the first `most` entries.
    pub fn names(&self, most: usize, fits: impl Fn(EntryKind, &str) -> bool) -> Vec<String> {
        let entries = self.entries().unwrap_or_default().iter().take(most);
        entries.filter_map(|e| e.name.to_str().filter(|name| fits(e.kind, name)).map(str::to_string)).collect()
    }
}

/// The directories of a trial by their paths below it; the empty path is the trial's own.
#[derive(Debug)]
pub(super) struct Folders(RefCell<BTreeMap<String, Option<Rc<Folder>>>>);

impl Folders {
    /// Of a trial's directory, where there is one.
    pub fn new(dir: Option<Dir>) -> Folders {
        let own = dir.map(|dir| Rc::new(Folder { dir, entries: OnceCell::new() }));
        Folders(RefCell::new(BTreeMap::from([(String::new(), own)])))
    }

    /// The trial's own directory.
    pub fn own(&self) -> Option<Rc<Folder>> {
        self.get("")
    }

    /// The directory at a path; None where there is none that can be opened, never through a link.
    pub fn get(&self, path: &str) -> Option<Rc<Folder>> {
        if let Some(known) = self.0.borrow().get(path) {
            return known.clone();
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.get(parent)?;
        // A list that was read anyway saves the attempt; it is not read for this.
        let absent = parent.entries.get().is_some() && !parent.may_hold(name);
        let dir = if absent { None } else { parent.dir.sub(name).ok() };
        let found = dir.map(|dir| Rc::new(Folder { dir, entries: OnceCell::new() }));
        self.0.borrow_mut().insert(path.to_string(), found.clone());
        found
    }

    /// The directory that holds the file at a path, and its name there; None where it is not there.
    pub fn holding<'p>(&self, path: &'p str) -> Option<(Rc<Folder>, &'p str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = self.get(parent)?;
        folder.may_hold(name).then_some((folder, name))
    }
}
