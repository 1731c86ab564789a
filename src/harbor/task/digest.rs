//! The two figures by which Harbor names what a task contains, found out from Harbor 0.21.0 and
//! 0.26.0 (`task.digest` in `lock.json`; `task_checksum` in `result.json`) and held by a test on
//! recorded jobs; and files that are only pointers to Git LFS.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, LazyLock};

use super::glob::{BadPattern, Ignore};
use super::sha256::Sha256;
use super::tree::{Budget, Kind, Node, Tree, enter};
use super::{Task, TaskProblem};

/// Bytes hashed for one task: 16 GiB.
const MAX_BYTES: u64 = 16 << 30;
/// Bytes read of a file at a time.
const BLOCK: usize = 256 * 1024;
/// What is left out of the digest where a task has no `.gitignore`.
const DEFAULT_IGNORES: [&str; 6] = ["__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~"];
/// Rules for files, of Harbor 0.26; the file itself never counts.
const HARBOR_IGNORE: &str = ".harborignore";
/// Longest `.gitignore` that is read.
const MAX_RULES: u64 = 1 << 20;
/// First line of a pointer to Git LFS, and of its predecessor.
const LFS_LINES: [&str; 2] =
    ["version https://git-lfs.github.com/spec/v1", "version https://hawser.github.com/spec/v1"];
/// Pointers are shorter than this, in bytes (the format says so).
const LFS_LENGTH: u64 = 1024;
/// Directories of a task that its contents lie in.
const CONTENTS: [&str; 4] = ["environment", "tests", "solution", "steps"];

/// What Harbor computes over a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    /// `task.digest` of a `lock.json`: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// `task_checksum` of a trial's `result.json`: 64 hexadecimal digits.
    pub checksum: String,
}

/// Files that were hashed already, by where they lie.
struct Hashes<'a> {
    tree: &'a Tree,
    known: HashMap<String, String>,
    /// The same of directories; None for those without files.
    dirs: HashMap<String, Option<String>>,
    bytes: u64,
    /// What is read of a file at a time.
    block: Vec<u8>,
}

impl Hashes<'_> {
    fn of(&mut self, node: &Node) -> Result<String, TaskProblem> {
        if let Some(hash) = self.known.get(&node.real) {
            return Ok(hash.clone());
        }
        let unreadable = |e: std::io::Error| TaskProblem::Unreadable { path: node.path.clone(), why: e.to_string() };
        let mut file = self.tree.file(node)?;
        let mut hash = Sha256::new();
        loop {
            match file.read(&mut self.block) {
                Ok(0) => break,
                Ok(n) => {
                    self.bytes += n as u64;
                    if self.bytes > MAX_BYTES {
                        let what = format!("more than {} GiB", MAX_BYTES >> 30);
                        return Err(TaskProblem::TooLarge { what });
                    }
                    hash.update(self.block.get(..n).unwrap_or_default());
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(unreadable(e)),
            }
        }
        let hash = hash.hex();
        self.known.insert(node.real.clone(), hash.clone());
        Ok(hash)
    }
}

/// Files below a directory that is not entered through a link.
fn files(tree: &Tree, dir: &Node, depth: usize, budget: &mut Budget, out: &mut Vec<Node>) -> Result<(), TaskProblem> {
    for node in tree.list(dir, depth, budget)? {
        match node.kind {
            Kind::Dir if !node.link => files(tree, &node, depth + 1, budget, out)?,
            Kind::File => out.push(node),
            _ => {}
        }
    }
    Ok(())
}

fn contents(tree: &Tree, of: &[&str]) -> Result<Vec<Node>, TaskProblem> {
    let (mut out, mut budget) = (Vec::new(), Budget::new());
    for name in of {
        if let Some(dir) = tree.find(name, Kind::Dir)? {
            files(tree, &dir, 0, &mut budget, &mut out)?;
        }
    }
    Ok(out)
}

/// The rules of the task's `.gitignore`, else Harbor's own.
fn ignores(tree: &Tree) -> Result<Arc<Ignore>, TaskProblem> {
    /// The same for almost every task.
    static OWN: LazyLock<Result<Arc<Ignore>, BadPattern>> =
        LazyLock::new(|| Ignore::new(DEFAULT_IGNORES.into_iter()).map(Arc::new));
    let rules = match tree.text(".gitignore", MAX_RULES)? {
        // Line ends as Python's `splitlines` knows them.
        Some(text) => Ignore::new(
            text.split(['\n', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}']),
        )
        .map(Arc::new),
        None => OWN.clone(),
    };
    rules.map_err(|e| TaskProblem::Unreadable { path: ".gitignore".into(), why: e.to_string() })
}

/// Over the files that make a package: SHA-256 over a line for each, path, NUL, hash of the file.
fn digest(tree: &Tree, hashes: &mut Hashes<'_>) -> Result<String, TaskProblem> {
    let mut all = Vec::new();
    for name in ["task.toml", "instruction.md", "README.md", "trajectory.json"] {
        all.extend(tree.find(name, Kind::File)?);
    }
    all.extend(contents(tree, &CONTENTS)?);
    let ignores = ignores(tree)?;
    all.retain(|node| node.name != HARBOR_IGNORE && !ignores.ignores(&node.path));
    all.sort_by(|a, b| a.path.cmp(&b.path));
    let mut hash = Sha256::new();
    for node in &all {
        hash.update(format!("{}\0{}\n", node.path, hashes.of(node)?).as_bytes());
    }
    Ok(format!("sha256:{}", hash.hex()))
}

/// Over everything there is, directory by directory (the "dirhash" protocol): each entry as its kind
/// with its hash and its name, sorted. Links are followed; what holds no files does not count.
fn checksum(
    tree: &Tree,
    dir: &Node,
    above: &mut Vec<String>,
    budget: &mut Budget,
    hashes: &mut Hashes<'_>,
) -> Result<Option<String>, TaskProblem> {
    enter(dir, above)?;
    if let Some(hash) = hashes.dirs.get(&dir.real).cloned() {
        above.pop();
        return Ok(hash);
    }
    let mut entries = Vec::new();
    for node in tree.list(dir, above.len(), budget)? {
        let entry = match node.kind {
            _ if node.name == HARBOR_IGNORE => None,
            Kind::Dir => checksum(tree, &node, above, budget, hashes)?.map(|hash| ("dirhash", hash)),
            Kind::File => Some(("data", hashes.of(&node)?)),
            Kind::Other | Kind::Dangling => None,
        };
        entries.extend(entry.map(|(kind, hash)| format!("{kind}:{hash}\0name:{}", node.name)));
    }
    above.pop();
    entries.sort();
    let hash = (!entries.is_empty()).then(|| Sha256::hex_of(entries.join("\0\0").as_bytes()));
    hashes.dirs.insert(dir.real.clone(), hash.clone());
    Ok(hash)
}

impl Task {
    /// What Harbor computes over the task as it lies there now; reads every file.
    ///
    /// # Errors
    /// What can not be read, leads out of the task or is too large; a `.gitignore` or a name that
    /// Harbor could not deal with; a `.harborignore`, whose rules are not known here.
    pub fn digests(&self) -> Result<Digests, TaskProblem> {
        let tree = Tree::open(&self.dir)?;
        if let Some(path) = harbor_ignore(&tree)? {
            return Err(TaskProblem::Unreadable { path, why: "its rules are not known here".into() });
        }
        let mut hashes =
            Hashes { tree: &tree, known: HashMap::new(), dirs: HashMap::new(), bytes: 0, block: vec![0; BLOCK] };
        let digest = digest(&tree, &mut hashes)?;
        let checksum = checksum(&tree, &tree.top(), &mut Vec::new(), &mut Budget::new(), &mut hashes)?;
        let checksum = checksum.ok_or_else(|| TaskProblem::Missing { path: "task.toml".into() })?;
        Ok(Digests { digest, checksum })
    }

    /// Files of the environment, the tests and the solution that hold a pointer to Git LFS instead of
    /// what they should hold: paths in the task, sorted.
    ///
    /// # Errors
    /// What can not be read or leads out of the task.
    pub fn lfs_pointers(&self) -> Result<Vec<String>, TaskProblem> {
        let tree = Tree::open(&self.dir)?;
        let mut out = Vec::new();
        for node in contents(&tree, &CONTENTS)?.iter().filter(|n| n.size < LFS_LENGTH) {
            let mut start = Vec::new();
            let read = tree.file(node)?.take(LFS_LENGTH).read_to_end(&mut start);
            read.map_err(|e| TaskProblem::Unreadable { path: node.path.clone(), why: e.to_string() })?;
            let line = start.split(|b| matches!(b, b'\n' | b'\r')).next().unwrap_or_default();
            if LFS_LINES.iter().any(|l| l.as_bytes() == line) {
                out.push(node.path.clone());
            }
        }
        out.sort();
        Ok(out)
    }
}

/// The first `.harborignore` whose rules Harbor 0.26 would apply.
pub(super) fn harbor_ignore(tree: &Tree) -> Result<Option<String>, TaskProblem> {
    let scoped = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        matches!(parts.as_slice(), ["tests" | "solution", ..] | ["steps", _, "tests" | "solution", ..])
    };
    let mut paths = contents(tree, &["tests", "solution", "steps"])?
        .into_iter()
        .filter(|n| n.name == HARBOR_IGNORE)
        .map(|n| n.path);
    Ok(paths.find(|path| scoped(path)))
}
