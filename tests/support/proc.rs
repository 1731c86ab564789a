//! What the kernel says about a process.

use std::fs;
use std::time::{Duration, Instant};

fn status_field(path: &str, field: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.strip_prefix(field).is_some_and(|rest| rest.starts_with(':')))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Voluntary context switches of all threads: how often the process went to sleep, so how often
/// something woke it.
pub fn voluntary_switches(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    tasks
        .flatten()
        .filter_map(|task| status_field(&task.path().join("status").to_string_lossy(), "voluntary_ctxt_switches"))
        .sum()
}

/// Peak resident memory in KiB.
pub fn peak_rss_kib(pid: u32) -> Option<u64> {
    status_field(&format!("/proc/{pid}/status"), "VmHWM")
}

/// Resident memory in KiB.
pub fn rss_kib(pid: u32) -> Option<u64> {
    status_field(&format!("/proc/{pid}/status"), "VmRSS")
}

/// The state letter: `R` running, `S` sleeping, `T` stopped, `Z` ended. None: no such process.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Waits until a process is in this state.
#[track_caller]
pub fn wait_state(pid: u32, wanted: char, limit: Duration) {
    let began = Instant::now();
    while state(pid) != Some(wanted) {
        assert!(began.elapsed() < limit, "{pid} is in state {:?}, not {wanted}", state(pid));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether anybody on this machine, in a container or not, runs this command line.
pub fn runs(command: &str) -> bool {
    let is = |line: Vec<u8>| line.strip_suffix(b"\0").is_some_and(|line| line.split(|b| *b == 0).eq(words(command)));
    fs::read_dir("/proc").is_ok_and(|all| all.flatten().any(|e| fs::read(e.path().join("cmdline")).is_ok_and(is)))
}

fn words(command: &str) -> impl Iterator<Item = &[u8]> {
    command.split(' ').map(str::as_bytes)
}

/// Ids of the children of `pid`, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Processor time spent so far, in user space and in the kernel.
pub fn cpu(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit_once(')')?.1;
    // Fields 14 and 15, of which the third stands first here; a tick is a hundredth of a second.
    let ticks = rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>());
    Some(Duration::from_millis(ticks.flatten().sum::<u64>() * 10))
}
