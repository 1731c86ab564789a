//! Ends processes of this machine: groups, sessions, and those that carry a mark.

use std::fs;

use rustix::process::{Pid, Signal};

use super::MARK;
use crate::job::process::ProcessStat;

/// Kills a process group.
pub(super) fn kill_group(id: i32) {
    // 0 and 1 would be our own group and everybody.
    if let Some(pid) = Pid::from_raw(id).filter(|_| id > 1) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

/// Kills the processes that carry the mark in their environment; how many there were.
pub(super) fn kill_marked(mark: &str) -> usize {
    kill_where(|found| found == mark)
}

/// Kills the processes with such a mark in their environment; how many there were.
pub(super) fn kill_where(fits: impl Fn(&str) -> bool) -> usize {
    let begin = format!("{MARK}=");
    let mut killed = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(environ) = fs::read(entry.path().join("environ")) else { continue };
        let mut marks = environ.split(|b| *b == 0).filter_map(|v| v.strip_prefix(begin.as_bytes()));
        if marks.any(|mark| std::str::from_utf8(mark).is_ok_and(&fits))
            && let Some(pid) = Pid::from_raw(id).filter(|_| id > 1)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            killed += 1;
        }
    }
    killed
}

/// The processes of a session that are not dead yet, but for what waits to be waited for.
pub(super) fn of_session(session: i32) -> Vec<Pid> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let fits = |id: &i32| {
        let stat = ProcessStat::parse(&fs::read(format!("/proc/{id}/stat")).unwrap_or_default());
        stat.is_some_and(|stat| !stat.dead && stat.session == session)
    };
    numbers.filter(|id| *id > 1).filter(fits).filter_map(Pid::from_raw).collect()
}

/// Kills all processes of a session, whatever groups they are in.
pub(super) fn kill_session(session: i32) {
    if session < 2 {
        return;
    }
    // Again, as one may have forked meanwhile.
    for _ in 0..5 {
        let found = of_session(session);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
