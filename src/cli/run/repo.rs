//! Tasks in a git repository: cloned into the state dir, at one commit, which is recorded.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::prepare::Refusal;
use crate::job::text::{clean, mask_secrets, strip_ansi};

/// Longest time for one call of git.
const LIMIT: Duration = Duration::from_secs(900);
/// Bytes kept of what git says.
const SAID: u64 = 4096;
/// Where tasks are in a repository when nothing is said.
const USUAL: &str = "tasks";

/// A repository, at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clone {
    /// Its URL, without user and password.
    pub url: String,
    /// The commit.
    pub commit: String,
    /// The clone.
    pub dir: PathBuf,
    /// The directory of tasks in it; empty for its root.
    pub inside: PathBuf,
}

/// What an operator may write: a URL of git's, `org/name` for GitHub, `/tree/<ref>/<dir>` or `@<ref>`
/// behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    url: String,
    reference: Option<String>,
    inside: Option<PathBuf>,
}

fn parse(text: &str) -> Result<Wanted, Refusal> {
    let refuse = |why: &str| Refusal::of(&format!("--repo {}: {why}", mask_secrets(text)));
    if text.starts_with('-') || text.chars().any(char::is_control) {
        return Err(refuse("not the address of a repository"));
    }
    let (head, tree) = match text.split_once("/tree/") {
        Some((head, tree)) => (head, Some(tree)),
        None => (text, None),
    };
    let (head, at) = match head.rsplit_once('@') {
        // The @ of `user@host` is followed by more of the address.
        Some((before, after)) if !before.is_empty() && !after.contains([':', '/']) && before.contains('/') => {
            (before, Some(after.to_string()))
        }
        _ => (head, None),
    };
    let (reference, inside) = match tree.map(|t| t.split_once('/').unwrap_or((t, ""))) {
        Some((reference, inside)) => (Some(reference.to_string()), Some(PathBuf::from(inside))),
        None => (at, None),
    };
    let url = if head.contains("://") || head.contains(':') {
        head.to_string()
    } else if head.starts_with(['/', '.']) {
        return Err(refuse("a directory of this machine: give it with -p, or as file://…"));
    } else {
        match head.split('/').count() {
            2 => format!("https://github.com/{head}"),
            n if n > 2 => format!("https://{head}"),
            _ => return Err(refuse("not the address of a repository: org/name, or a URL")),
        }
    };
    if reference.as_ref().is_some_and(|r| r.is_empty() || r.starts_with('-')) {
        return Err(refuse("no branch, tag or commit behind @ or /tree/"));
    }
    Ok(Wanted { url, reference, inside: inside.filter(|p| !p.as_os_str().is_empty()) })
}

/// Without `user:password@`.
fn without_user(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => url.to_string(),
    }
}

impl Clone {
    /// Label of its tasks, as Harbor writes it: `host/org/name/tree/<commit>/<dir>`.
    pub fn source(&self) -> String {
        let bare = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let bare = bare.trim_end_matches('/').trim_end_matches(".git");
        let inside = self.inside.to_string_lossy();
        format!("{bare}/tree/{}/{inside}", self.commit).trim_end_matches('/').to_string()
    }

    /// A line for the operator.
    pub fn said(&self) -> String {
        format!("{} at commit {}, in {}", clean(&self.url), self.commit, self.dir.display())
    }
}

/// Fetches a repository, unless that commit of it is here already. `inside` is the directory of tasks in
/// it; else what the address says; else `tasks` where there is one.
///
/// # Errors
/// In words: no git, no such repository or commit, a directory that leads out of it.
pub fn fetch(text: &str, inside: Option<&Path>, state: &Path) -> Result<Clone, Refusal> {
    let wanted = parse(text)?;
    let url = without_user(&wanted.url);
    let (commit, dir) = clone(&wanted.url, &url, wanted.reference.as_deref().unwrap_or("HEAD"), state)?;
    let inside = match inside.map(Path::to_path_buf).or(wanted.inside) {
        Some(inside) => inside,
        None if dir.join(USUAL).is_dir() => PathBuf::from(USUAL),
        None => PathBuf::new(),
    };
    let inside: PathBuf = inside.components().filter(|c| *c != Component::CurDir).collect();
    if inside.components().any(|c| !matches!(c, Component::Normal(_))) {
        return Err(Refusal::of(&format!("-p {}: a path inside the repository is wanted", inside.display())));
    }
    Ok(Clone { url, commit, dir, inside })
}

/// The clone of a commit that was recorded; fetched again when it is gone.
///
/// # Errors
/// As [`fetch`].
pub fn at_commit(url: &str, commit: &str, state: &Path) -> Result<PathBuf, Refusal> {
    if commit.is_empty() || !commit.chars().all(|c| c.is_ascii_hexdigit()) || url.starts_with('-') {
        return Err(Refusal::of(&format!("{}: not a repository at a commit", mask_secrets(url))));
    }
    clone(url, url, commit, state).map(|(_, dir)| dir)
}

/// Gives the commit and its directory.
fn clone(full: &str, url: &str, reference: &str, state: &Path) -> Result<(String, PathBuf), Refusal> {
    let wrong = |what: &str| Refusal::of(&format!("--repo {}: {what}", mask_secrets(url)));
    let place = state.join("repos").join(digest(url));
    let whole = reference.len() >= 40 && reference.chars().all(|c| c.is_ascii_hexdigit());
    if whole && place.join(reference).is_dir() {
        return Ok((reference.to_string(), place.join(reference)));
    }
    std::fs::create_dir_all(&place).map_err(|e| wrong(&format!("{}: {e}", place.display())))?;
    // Made under a name of its own: a clone that was broken off is never taken for a whole one.
    let stage = place.join(format!(".{}.pilothouse-tmp", std::process::id()));
    let _ = std::fs::remove_dir_all(&stage);
    let done = (|| {
        std::fs::create_dir(&stage).map_err(|e| wrong(&e.to_string()))?;
        git(&stage, &["init", "--quiet"], url)?;
        git(&stage, &["fetch", "--quiet", "--depth", "1", "--no-tags", "--", full, reference], url)?;
        git(&stage, &["checkout", "--quiet", "--force", "FETCH_HEAD"], url)?;
        git(&stage, &["rev-parse", "HEAD"], url)
    })();
    let commit = match done {
        Ok(commit) => commit.trim().to_string(),
        Err(refusal) => {
            let _ = std::fs::remove_dir_all(&stage);
            return Err(refusal);
        }
    };
    let dir = place.join(&commit);
    if dir.is_dir() || (std::fs::rename(&stage, &dir).is_err() && dir.is_dir()) {
        let _ = std::fs::remove_dir_all(&stage);
    }
    if dir.is_dir() { Ok((commit, dir)) } else { Err(wrong(&format!("{} could not be made", dir.display()))) }
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(10).map(|b| format!("{b:02x}")).collect()
}

/// Runs git without questions, hooks or large files; gives what it prints.
fn git(dir: &Path, args: &[&str], url: &str) -> Result<String, Refusal> {
    let wrong = |what: &str| Refusal::of(&format!("--repo {}: {what}", mask_secrets(url)));
    let mut child = Command::new("git")
        .args(["-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never"])
        .args(args)
        .current_dir(dir)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_LFS_SKIP_SMUDGE", "1")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| wrong(&format!("git: {e}: install git, or download the tasks and give -p")))?;
    let begin = Instant::now();
    let readers = [child.stdout.take().map(read_all), child.stderr.take().map(read_all)];
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begin.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(wrong(&format!(
                    "git {} took longer than {} s",
                    args.first().unwrap_or(&""),
                    LIMIT.as_secs()
                )));
            }
            Err(e) => return Err(wrong(&e.to_string())),
        }
    };
    let [out, err] = readers.map(|reader| reader.and_then(|r| r.join().ok()).unwrap_or_default());
    if status.success() {
        return Ok(out);
    }
    let last = err.lines().rev().map(str::trim).find(|l| !l.is_empty()).unwrap_or("no reason given").to_string();
    Err(wrong(&format!("git {}: {}", args.first().unwrap_or(&""), clean(&mask_secrets(&strip_ansi(&last))))))
}

fn read_all(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = from.by_ref().take(SAID).read_to_end(&mut kept);
        // The rest has to go somewhere, or git waits for it.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_harbor_reads_them() {
        let wanted = |text: &str| {
            let Wanted { url, reference, inside } = parse(text).unwrap();
            (url, reference.unwrap_or_default(), inside.unwrap_or_default().to_string_lossy().into_owned())
        };
        let of =
            |url: &str, reference: &str, inside: &str| (url.to_string(), reference.to_string(), inside.to_string());
        assert_eq!(wanted("org/name"), of("https://github.com/org/name", "", ""));
        assert_eq!(wanted("org/name@v1"), of("https://github.com/org/name", "v1", ""));
        assert_eq!(wanted("host.org/a/b"), of("https://host.org/a/b", "", ""));
        assert_eq!(wanted("git@host:org/name.git"), of("git@host:org/name.git", "", ""));
        assert_eq!(wanted("https://u:p@host/o/n/tree/main/sub/dir"), of("https://u:p@host/o/n", "main", "sub/dir"));
        assert_eq!(wanted("file:///srv/repo@abc"), of("file:///srv/repo", "abc", ""));
        for bad in ["/srv/repo", "./x", "name", "--upload-pack=x", "org/name@", "org/name/tree/-x/y"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(without_user("https://u:p@host/o/n"), "https://host/o/n");
    }
}
