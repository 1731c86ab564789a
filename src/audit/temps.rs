//! Harbor's temporary directories: recognised by exactly what is in them.
//!
//! Harbor 0.21 and 0.26 put generated Compose files into `tmp*` directories of their own each, and
//! remove them at a trial's end; 0.26 with live streams adds `harbor-docker-stream-*` and, in its
//! cache, a directory of keys for each container. A death leaves them, with the environment variables
//! of the trial in them.

use std::path::{Path, PathBuf};

use super::harbor_marks::{session_of_file, trial_dir_of_mounts, trial_of_session};
use crate::harbor::{Dir, EntryKind};
use crate::job::Stamp;

/// Files that Harbor generates under these names, beside the one that names the session.
const GENERATED: [&str; 3] =
    ["docker-compose-environment.json", "docker-compose-mounts.json", "docker-compose-egress-control-services.json"];
/// Beginnings of the names of directories that are Harbor's whatever is in them.
const PREFIXES: [&str; 2] = ["harbor-docker-stream-", "harbor-stream-"];
/// Entries of a directory that are looked at; Harbor's hold one or two.
const ENTRIES: usize = 16;
/// Bytes of a generated file that are read.
const CAP: u64 = 1 << 20;

/// A temporary directory of Harbor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TempDir {
    /// Where it is.
    pub path: PathBuf,
    /// What it is told from.
    pub evidence: String,
    /// The trial's name, where a file in it tells.
    pub trial: Option<String>,
    /// The trial dir, where a file in it tells.
    pub trial_dir: Option<PathBuf>,
    /// The container that it belongs to, for keys.
    pub container: Option<String>,
    /// When it was last changed.
    pub modified: Stamp,
    /// Bytes of its files.
    pub bytes: u64,
    /// Which directory it was when it was found: device and inode.
    pub identity: (u64, u64),
}

/// All such directories of this user. `also` are files that containers were made from.
pub fn find(also: &[PathBuf]) -> Vec<TempDir> {
    let mut roots = vec![std::env::temp_dir(), PathBuf::from("/tmp")];
    // Harbor may have been started with another TMPDIR.
    roots.extend(also.iter().filter(|f| is_generated(f)).filter_map(|f| f.parent()?.parent().map(Path::to_path_buf)));
    roots.sort();
    roots.dedup();
    let mut out: Vec<TempDir> = roots.iter().flat_map(|root| in_root(root)).collect();
    out.extend(keys());
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out.dedup_by(|a, b| a.identity == b.identity);
    out
}

fn is_generated(file: &Path) -> bool {
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    GENERATED.contains(&name) || session_of_file(name).is_some()
}

fn in_root(root: &Path) -> Vec<TempDir> {
    let Ok(dir) = Dir::open(root) else { return Vec::new() };
    let entries = dir.list().unwrap_or_default().into_iter().filter(|e| e.kind == EntryKind::Dir);
    let names = entries.filter_map(|e| e.name.into_string().ok());
    let named = |name: &String| name.starts_with("tmp") || PREFIXES.iter().any(|p| name.starts_with(p));
    names.filter(named).filter_map(|name| recognise(&dir, root, &name)).collect()
}

/// The directory, if it is Harbor's and this user's.
fn recognise(root: &Dir, root_path: &Path, name: &str) -> Option<TempDir> {
    let dir = root.sub(name).ok()?;
    let meta = dir.stat("").ok()?;
    if meta.uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    let files = dir.list().ok()?;
    let streams = PREFIXES.iter().any(|p| name.starts_with(p));
    if files.is_empty() || files.len() > ENTRIES {
        return None;
    }
    let mut found = TempDir {
        path: root_path.join(name),
        evidence: String::new(),
        trial: None,
        trial_dir: None,
        container: None,
        modified: meta.modified,
        bytes: 0,
        identity: (meta.device, meta.inode),
    };
    for file in &files {
        let file = file.name.to_str()?;
        let about = dir.stat(file).ok()?;
        found.bytes += about.size;
        let session = session_of_file(file);
        let known = session.is_some() || GENERATED.contains(&file);
        // One file that is not Harbor's, and the directory is somebody's.
        if about.kind != EntryKind::File || !(known || streams) {
            return None;
        }
        if let Some(trial) = session.and_then(trial_of_session) {
            found.trial = Some(trial.to_string());
        }
        if file == "docker-compose-mounts.json" {
            found.trial_dir = dir.read_all(file, CAP).ok().and_then(|bytes| mounted(&bytes.data));
        }
        found.evidence = if known { format!("holds {file}") } else { "named as Harbor names its streams".to_string() };
    }
    if let Some(dir) = &found.trial_dir
        && found.trial.is_none()
    {
        found.trial = dir.file_name().map(|n| n.to_string_lossy().into_owned());
    }
    Some(found)
}

/// The trial dir that a generated mounts file names.
fn mounted(bytes: &[u8]) -> Option<PathBuf> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let volumes = value.get("services")?.get("main")?.get("volumes")?.as_array()?;
    let text = |v: &serde_json::Value, key: &str| v.get(key).and_then(|t| t.as_str()).map(str::to_string);
    let pairs: Vec<_> = volumes.iter().filter_map(|v| Some((text(v, "source")?, text(v, "target")?))).collect();
    trial_dir_of_mounts(&pairs)
}

/// Keys for containers with streams: `<cache>/harbor/ssh/docker/<context>/<container>`.
fn keys() -> Vec<TempDir> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let Some(cache) = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|h| h.join(".cache"))) else {
        return Vec::new();
    };
    let root = cache.join("harbor/ssh/docker");
    let Ok(dir) = Dir::open(&root) else { return Vec::new() };
    let mut out = Vec::new();
    for context in dir.list().unwrap_or_default() {
        let (Some(context), Ok(inside)) = (context.name.to_str(), dir.sub_os(&context.name)) else { continue };
        for entry in inside.list().unwrap_or_default() {
            let Some(container) = entry.name.to_str().filter(|n| n.len() == 64) else { continue };
            if !container.bytes().all(|b| b.is_ascii_hexdigit()) || entry.kind != EntryKind::Dir {
                continue;
            }
            let Some(about) = inside.stat(container).ok() else { continue };
            out.push(TempDir {
                path: root.join(context).join(container),
                evidence: "keys of a container with streams".to_string(),
                trial: None,
                trial_dir: None,
                container: Some(container.to_string()),
                modified: about.modified,
                bytes: 0,
                identity: (about.device, about.inode),
            });
        }
    }
    out
}

/// Removes a directory that was found, if it is still the same one: its files, then itself. Nothing
/// below it is followed.
///
/// # Errors
/// As `unlink(2)`; `InvalidInput` when it is another directory now, or holds directories.
pub fn remove(temp: &TempDir) -> std::io::Result<()> {
    use rustix::fs::AtFlags;
    let other = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, what.to_string());
    let parent = temp.path.parent().ok_or_else(|| other("no path"))?;
    let name = temp.path.file_name().ok_or_else(|| other("no path"))?;
    let parent = Dir::open(parent)?;
    let dir = match parent.sub_os(name) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let meta = dir.stat("")?;
    if (meta.device, meta.inode) != temp.identity {
        return Err(other("another directory has this name now: list again"));
    }
    let entries = dir.list()?;
    if entries.iter().any(|e| e.kind == EntryKind::Dir) {
        return Err(other("it holds directories now: look at it by hand"));
    }
    for entry in entries {
        rustix::fs::unlinkat(&dir, &*entry.name, AtFlags::empty())?;
    }
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_harbors_by_all_of_its_files() {
        let temp = tempfile::tempdir().unwrap();
        let make = |name: &str, files: &[(&str, &str)]| {
            let dir = temp.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            files.iter().for_each(|(file, text)| std::fs::write(dir.join(file), text).unwrap());
        };
        let mounts =
            r#"{"services":{"main":{"volumes":[{"type":"bind","source":"/j/t__aB/agent","target":"/logs/agent"}]}}}"#;
        make("tmpaaa", &[("t__aB__env-docker-compose-resources.json", "{}")]);
        make("tmpbbb", &[("docker-compose-mounts.json", mounts)]);
        make("tmpccc", &[("docker-compose-environment.json", "{}"), ("notes.txt", "mine")]);
        make("tmpddd", &[]);
        make("other", &[("docker-compose-environment.json", "{}")]);
        make("harbor-docker-stream-x1", &[("compose.json", "{}")]);
        std::os::unix::fs::symlink(temp.path().join("tmpaaa"), temp.path().join("tmplink")).unwrap();
        let mut found = in_root(temp.path());
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let names: Vec<String> =
            found.iter().map(|t| t.path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["harbor-docker-stream-x1", "tmpaaa", "tmpbbb"]);
        assert_eq!(found[1].trial.as_deref(), Some("t__aB"));
        assert_eq!(found[2].trial_dir.as_deref(), Some(Path::new("/j/t__aB")));
        remove(&found[1]).unwrap();
        assert!(!temp.path().join("tmpaaa").exists());
        // Another directory under the same name stays.
        let other = TempDir { identity: (0, 0), ..found[2].clone() };
        assert!(remove(&other).is_err());
        assert!(temp.path().join("tmpbbb/docker-compose-mounts.json").exists());
    }
}
