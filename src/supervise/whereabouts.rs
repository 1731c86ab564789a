//! Where a child really writes: the job dir whose log it, or a process of its group, holds open.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::follow::owner::Census;
use crate::job::process::ProcessStat;

/// The job dir whose `job.log` a process of the group of `leader` holds open for writing.
pub fn of_group(leader: u32) -> Option<PathBuf> {
    let census = Census::take();
    let dir = census.jobs().find(|(_, owner)| owner.pid == leader || group(owner.pid) == Some(leader));
    dir.map(|(dir, _)| dir.to_path_buf())
}

fn group(pid: u32) -> Option<u32> {
    let stat = ProcessStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)?;
    u32::try_from(stat.group).ok()
}

/// Whether a job dir was written since a time: what ended too fast to be seen at work.
pub fn written_since(dir: &Path, since: SystemTime) -> bool {
    let files = ["job.log", "config.json", "result.json"];
    files.iter().any(|file| fs::symlink_metadata(dir.join(file)).and_then(|m| m.modified()).is_ok_and(|t| t >= since))
}
