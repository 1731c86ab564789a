//! Open files: so many as many trials at a time need, for this process and for the Docker engine.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::UnixStream;

use super::owner::Tell;

/// Open files of this process apart from trials: screen, journal, readers, model servers.
const BASE: u64 = 96;
/// Of one trial at work: 7 with its terminal and its recording, measured with 50 at a time; calls of a model and
/// the moments of its begin and end come on top.
const TRIAL: u64 = 16;
/// More than that is of no use to anything here.
const ENOUGH: u64 = 65_536;
/// Open files of the engine apart from the job's containers, and of one container with what is attached to
/// it, amply.
const ENGINE: u64 = 256;
const CONTAINER: u64 = 32;

/// Raises this process's limit as far as it may be; says where that is too little for so many trials.
pub fn own(slots: u64, tell: &Tell) {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    let mut now = limit.current.unwrap_or(ENOUGH);
    if now < most {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }) {
            Ok(()) => now = most,
            Err(error) => tracing::warn!(%error, "the limit of open files stays at {now}"),
        }
    }
    if let Some(why) = short("this process", now, BASE.saturating_add(slots.saturating_mul(TRIAL)), slots) {
        tell(&format!("{why}: raise it (ulimit -n, LimitNOFILE=), or run fewer at a time"));
    }
}

/// Says where the limit of the engine behind a socket on this host is too little for so many trials. What
/// can not be told is not spoken of.
pub async fn engine(socket: &Path, slots: u64, tell: &Tell) {
    let Ok(stream) = UnixStream::connect(socket).await else { return };
    let Some(pid) = stream.peer_cred().ok().and_then(|peer| peer.pid()) else { return };
    // A socket of the system's first process is handed over later: that one's limit says nothing.
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/limits")) else { return };
    let Some(limit) = soft(&text).filter(|_| name.trim() == "dockerd") else { return };
    let used = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |list| list.count() as u64);
    let needed = ENGINE.max(used).saturating_add(slots.saturating_mul(CONTAINER));
    if let Some(why) = short(&format!("the Docker engine (pid {pid})"), limit, needed, slots) {
        tell(&format!("{why}: raise LimitNOFILE of its service and restart it, or run fewer at a time"));
    }
}

/// The soft limit of open files in `/proc/<pid>/limits`.
fn soft(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn short(who: &str, limit: u64, needed: u64, slots: u64) -> Option<String> {
    (limit < needed).then(|| {
        format!("{who} may have {limit} files open at a time; {slots} trials at a time may need about {needed}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_and_judged() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(soft(text), Some(1024));
        assert_eq!(soft("Max open files            unlimited            unlimited            files"), Some(u64::MAX));
        assert_eq!(soft("Max processes 1 2 processes"), None);
        assert!(short("it", 1024, 96 + 80 * 16, 80).is_some_and(|why| why.contains("1024") && why.contains("1376")));
        assert_eq!(short("it", 1024, 96 + 50 * 16, 50), None);
    }
}
