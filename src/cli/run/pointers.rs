//! Git LFS pointers that stand where a file should be: a task with one fails in ways nobody understands.

use std::path::Path;

use crate::harbor::Task;
use crate::job::text::clean;

/// How every pointer begins.
const BEGIN: &[u8] = b"version https://git-lfs.github.com/spec/v1";
/// No pointer is longer, in bytes.
const LONGEST: u64 = 1024;
/// Files looked at in one task, and directories within directories.
const MOST: usize = 20_000;
const DEEPEST: usize = 32;
/// Names shown of one task.
const SHOWN: usize = 3;

/// Lines about the pointers of a task; none when there are none.
pub fn refused(task: &Task) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = MOST;
    look(&task.dir, &task.dir, 0, &mut left, &mut found);
    if found.is_empty() {
        return Vec::new();
    }
    found.sort();
    let names: Vec<String> = found.iter().take(SHOWN).map(|n| clean(n).into_owned()).collect();
    let more = found.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    vec![format!(
        "task {}: Git LFS pointers instead of files: {}{more}: fetch them (git -C {} lfs pull), or leave the task out",
        task.short_name(),
        names.join(", "),
        clean(&task.dir.to_string_lossy()),
    )]
}

fn look(root: &Path, dir: &Path, depth: usize, left: &mut usize, found: &mut Vec<String>) {
    // What can not be read is told by those who need it.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        // Not through links: they lead to files that are looked at anyway, or out of the task.
        let Ok(meta) = std::fs::symlink_metadata(entry.path()) else { continue };
        if meta.is_dir() && depth < DEEPEST {
            look(root, &entry.path(), depth + 1, left, found);
        } else if meta.is_file()
            && (BEGIN.len() as u64..=LONGEST).contains(&meta.len())
            && std::fs::read(entry.path()).is_ok_and(|bytes| bytes.starts_with(BEGIN))
        {
            let path = entry.path();
            found.push(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned());
        }
    }
}
