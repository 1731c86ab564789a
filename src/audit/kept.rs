//! What lies in the quarantine: listed, never emptied by itself.

use std::path::{Path, PathBuf};

use crate::harbor::{Dir, EntryKind};
use crate::job::{Stamp, time};

/// Entries of a quarantined directory whose sizes are added up.
const ENTRIES: usize = 100_000;

/// One thing in the quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it is: `<state dir>/quarantine/<job id>/<name>`.
    pub place: PathBuf,
    /// Seconds since it was put there; None when unknown.
    pub age: Option<u64>,
    /// Bytes of its files; None when there are too many to add up.
    pub bytes: Option<u64>,
}

/// Everything in the quarantine of a state dir.
pub fn quarantined(state_dir: &Path) -> Vec<Kept> {
    let root = state_dir.join("quarantine");
    let Ok(dir) = Dir::open(&root) else { return Vec::new() };
    let mut out = Vec::new();
    for job in dir.list().unwrap_or_default() {
        let Ok(inside) = dir.sub_os(&job.name) else { continue };
        for entry in inside.list().unwrap_or_default() {
            let Some(name) = entry.name.to_str() else { continue };
            let about = inside.stat(name).ok();
            let mut left = ENTRIES;
            let bytes = match entry.kind {
                EntryKind::Dir => inside.sub(name).ok().and_then(|d| weigh(&d, &mut left)),
                _ => about.map(|m| m.size),
            };
            let age = about.map(|m| time::age(m.modified, Stamp::now()).as_secs());
            out.push(Kept { place: root.join(&job.name).join(name), age, bytes });
        }
    }
    out.sort_by(|a, b| a.place.cmp(&b.place));
    out
}

fn weigh(dir: &Dir, left: &mut usize) -> Option<u64> {
    let mut sum = 0_u64;
    for entry in dir.list().ok()? {
        *left = left.checked_sub(1)?;
        sum = match entry.kind {
            EntryKind::Dir => sum.saturating_add(weigh(&dir.sub_os(&entry.name).ok()?, left)?),
            _ => sum.saturating_add(entry.name.to_str().and_then(|n| dir.stat(n).ok()).map_or(0, |m| m.size)),
        };
    }
    Some(sum)
}
