//! The recordings of a trial on disk.

use std::path::Path;

use crate::cast::Player;
use crate::harbor::classic::{self, episodes};
use crate::harbor::dir::{Dir, EntryKind};
use crate::harbor::trajectory::TrajectoryIndex;

/// Whether a trial has no end yet.
pub(super) fn runs(dir: &Path) -> bool {
    let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
    has("config.json") && !has("result.json") || has("sessions") && !has("results.json") && !has("panes/post-test.txt")
}

/// Recordings below a trial dir, relative paths: of the agent first, then of the steps, then others.
pub(super) fn find_casts(dir: &Path) -> Result<Vec<String>, String> {
    let root = Dir::open(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut found = Vec::new();
    let mut look = |at: &str| {
        let Ok(sub) = root.sub(at) else { return };
        let Ok(entries) = sub.list() else { return };
        let mut names: Vec<String> = entries
            .iter()
            .filter(|e| e.kind == EntryKind::File)
            .filter_map(|e| e.name.to_str())
            .filter(|n| n.ends_with(".cast"))
            .map(|n| if at == "." { n.to_string() } else { format!("{at}/{n}") })
            .collect();
        names.sort();
        found.extend(names);
    };
    look("agent");
    let mut steps: Vec<String> = root
        .sub("steps")
        .and_then(|s| s.list())
        .unwrap_or_default()
        .iter()
        .filter(|e| e.kind == EntryKind::Dir)
        .filter_map(|e| e.name.to_str().map(str::to_string))
        .collect();
    steps.sort();
    for step in &steps {
        look(&format!("steps/{step}/agent"));
    }
    look("sessions");
    look(".");
    Ok(found)
}

pub(super) fn open_file(dir: Option<&Path>, name: &str) -> Result<std::fs::File, String> {
    match dir {
        Some(dir) => Dir::open(dir)
            .map_err(|e| format!("{}: {e}", dir.display()))?
            .open_file(name)
            .map_err(|e| format!("{name}: {e}")),
        // A path that the operator typed may be a link; what it leads to must be a file all the same.
        None => {
            use std::os::unix::fs::OpenOptionsExt;
            let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
            let file = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(nonblock)
                .open(name)
                .map_err(|e| format!("{name}: {e}"))?;
            match file.metadata() {
                Ok(meta) if meta.is_file() => Ok(file),
                Ok(_) => Err(format!("{name}: not a regular file")),
                Err(e) => Err(format!("{name}: {e}")),
            }
        }
    }
}

pub(super) fn open_player(dir: Option<&Path>, name: &str) -> Result<Player, String> {
    let file = open_file(dir, name)?;
    Player::open(file, name).map_err(|e| e.to_string())
}

/// The trajectory beside a recording; nothing when there is none that can be read.
pub(super) fn trajectory_beside(dir: &Path, cast: &str) -> Option<TrajectoryIndex> {
    let beside = match cast.rsplit_once('/') {
        Some((parent, _)) => format!("{parent}/trajectory.json"),
        None => "trajectory.json".to_string(),
    };
    let dir = Dir::open(dir).ok()?;
    if cast == "sessions/agent.cast" {
        return of_episodes(&dir);
    }
    Some(TrajectoryIndex::new(dir.open_file(&beside).ok()?))
}

/// The episodes of a trial of classic terminal-bench, whose recording lies elsewhere.
fn of_episodes(dir: &Dir) -> Option<TrajectoryIndex> {
    let numbers = episodes::numbers(dir);
    let result = dir.read_all("results.json", 64 << 20).ok().and_then(|b| classic::trial_result(&b.data).ok());
    let span = result.as_ref().map(|file| file.result.spans.agent);
    let window = span.and_then(|span| span.started.zip(span.finished));
    let file = episodes::as_trajectory(dir, &numbers, window, result.is_some()).ok().filter(|_| !numbers.is_empty())?;
    Some(TrajectoryIndex::new(file))
}
