//! The Files tab: walking through the trial's directories, opening a file.

use super::super::effect::Effect;
use super::doc::Pane;
use super::{At, FileKind, FileRow, Request, Slot, TrialView};

/// The Files tab.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Directory shown, relative to the trial dir; empty for itself.
    pub dir: String,
    /// Its entries; None while they are fetched.
    pub rows: Option<Vec<FileRow>>,
    /// Why it can not be listed.
    pub problem: Option<String>,
    /// Selected entry.
    pub cursor: usize,
    /// The file that is open in [`Slot::File`].
    pub open: Option<String>,
    /// Name to select when the listing comes (the directory that was left).
    pub(super) select: Option<String>,
}

impl TrialView {
    /// Lines of the listing, the one that leads up included.
    pub fn n_files(&self) -> usize {
        self.files.rows.as_ref().map_or(0, Vec::len) + usize::from(!self.files.dir.is_empty())
    }

    /// Entry of the listing at the cursor; None on the line that leads up.
    pub fn file(&self, line: usize) -> Option<&FileRow> {
        let at = line.checked_sub(usize::from(!self.files.dir.is_empty()))?;
        self.files.rows.as_ref()?.get(at)
    }

    /// Opens the entry at the cursor.
    pub(super) fn enter_file(&mut self) -> Vec<Effect> {
        let Some(row) = self.file(self.files.cursor) else {
            return self.list_parent().unwrap_or_default();
        };
        if !row.openable {
            self.files.problem = Some("a name that is not UTF-8: it can not be opened here".to_string());
            return Vec::new();
        }
        let path = join(&self.files.dir, &row.name);
        if row.kind == FileKind::Dir {
            return self.list(path);
        }
        self.files.open = Some(path);
        *self.pane_mut(Slot::File) = Pane::default();
        self.ask_text(Slot::File, None, At::Start)
    }

    /// The directory above; None for the trial's own.
    pub(super) fn list_parent(&mut self) -> Option<Vec<Effect>> {
        let (parent, name) = split(&self.files.dir)?;
        self.files.select = Some(name);
        Some(self.list(parent))
    }

    pub(super) fn list(&mut self, dir: String) -> Vec<Effect> {
        if dir != self.files.dir {
            self.files.rows = None;
            self.files.cursor = 0;
        }
        self.files.dir = dir.clone();
        self.ask(Request::List { serial: self.serial, dir })
    }
}

pub(super) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_string() } else { format!("{dir}/{name}") }
}

/// Parent and name of a relative path; None for the trial dir itself.
fn split(dir: &str) -> Option<(String, String)> {
    if dir.is_empty() {
        return None;
    }
    let (parent, name) = dir.rsplit_once('/').unwrap_or(("", dir));
    Some((parent.to_string(), name.to_string()))
}
