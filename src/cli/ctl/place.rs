//! Where the control socket of a job is: `<state dir>/ctl/<job id>.sock`, or `/tmp/pilothouse-<uid>/` where
//! that path is too long for a socket or can not be made. Never in the session's runtime directory, which
//! goes at logout.
//!
//! The directory belongs to this user alone (0700, the owner is checked, no link), so that nobody else can
//! put a socket there or reach one.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::harbor::Dir;
use crate::harbor::task::sha256_hex;

/// Longest path of a socket, in bytes (`sun_path` without its NUL, Linux).
const LONGEST: usize = 107;
/// Most that is read of a job's `result.json`, in bytes.
const RESULT: u64 = 64 << 20;
/// Sockets of others that are looked at, at most.
const MOST: usize = 1000;

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// File name of the socket of a job: its id where that is a plain word, else a digest of it.
pub fn name_of(id: &str) -> String {
    let plain = (1..=40).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let stem = if plain { id.to_string() } else { sha256_hex(id.as_bytes()).chars().take(40).collect() };
    format!("{stem}.sock")
}

/// Directories for sockets, the better one first.
fn dirs(state: Option<&Path>) -> Vec<PathBuf> {
    let state = state.map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf()).join("ctl"));
    state.into_iter().chain([PathBuf::from(format!("/tmp/pilothouse-{}", uid()))]).collect()
}

/// Where the socket of a job can be, the better place first.
pub fn candidates(state: Option<&Path>, id: &str) -> Vec<PathBuf> {
    let name = name_of(id);
    let all = dirs(state).into_iter().map(|dir| dir.join(&name));
    all.filter(|path| path.as_os_str().len() <= LONGEST).collect()
}

/// Whether a directory is this user's alone.
///
/// # Errors
/// Why not.
pub fn private(dir: &Path) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(dir)?;
    let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {what}", dir.display())));
    match () {
        () if !meta.is_dir() => wrong("no directory"),
        () if meta.uid() != uid() => wrong("belongs to somebody else"),
        () if meta.mode() & 0o077 != 0 => wrong("others may look into it: chmod 700"),
        () => Ok(()),
    }
}

/// Makes the directory of a socket, where it is not there, and checks it.
///
/// # Errors
/// Why it is not to be used.
pub fn make(dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    private(dir)
}

/// What lies at the path of a socket: its device and number; None: no socket of this user.
pub fn socket(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    (meta.file_type().is_socket() && meta.uid() == uid()).then(|| (meta.dev(), meta.ino()))
}

/// Removes sockets in a directory that nobody listens on any more.
pub fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(MOST) {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "sock")
            && socket(&path).is_some()
            && UnixStream::connect(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The id of the job in a directory.
///
/// # Errors
/// Why it has none that can be read, in words.
pub fn id_of(dir: &Path) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Job {
        id: String,
    }
    let at = || dir.join("result.json");
    let read = Dir::open(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let bytes = read.read("result.json", RESULT).map_err(|e| format!("{}: {e}: no job dir?", at().display()))?;
    let job: Job = serde_json::from_slice(&bytes.data).map_err(|e| format!("{}: no job id: {e}", at().display()))?;
    Ok(job.id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else_and_a_long_path_goes_to_tmp() {
        assert_eq!(name_of("0b5a-1c"), "0b5a-1c.sock");
        for id in ["../x", "", "a/b", &"x".repeat(300)] {
            let name = name_of(id);
            assert!(name.len() == 45 && !name.contains('/'), "{name}");
        }
        let long = PathBuf::from("/").join("d".repeat(90));
        let found = candidates(Some(&long), "0b5a1c-0000-0000-0000-000000000000");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("/tmp"));
        assert!(candidates(Some(Path::new("/s")), "1")[0].starts_with("/s/ctl"));
    }

    #[test]
    fn a_directory_of_others_is_not_used_and_dead_sockets_go() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("ctl");
        make(&dir).unwrap();
        let (dead, alive) = (dir.join("dead.sock"), dir.join("alive.sock"));
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let _listens = std::os::unix::net::UnixListener::bind(&alive).unwrap();
        std::fs::write(dir.join("file.sock"), "").unwrap();
        sweep(&dir);
        assert!(!dead.exists() && alive.exists() && dir.join("file.sock").exists());
        std::os::unix::fs::symlink(&dir, temp.path().join("link")).unwrap();
        assert!(make(&temp.path().join("link")).is_err());
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make(&dir).is_err());
    }
}
