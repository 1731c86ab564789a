//! Directories of tasks, and which of them are meant.

use std::path::{Path, PathBuf};

use super::glob::{BadPattern, Glob};
use super::read::shown;
use super::{Task, TaskProblem};

/// A directory that should be a task; nobody looked into it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The directory's own name, links followed; patterns are held against it, as in Harbor.
    pub name: String,
    /// The directory as it was reached.
    pub dir: PathBuf,
}

/// A directory that is meant as a task.
#[derive(Debug)]
pub struct Listed {
    /// As [`Candidate::name`].
    pub name: String,
    /// As [`Candidate::dir`].
    pub dir: PathBuf,
    /// The task, or why it is none that could run.
    pub task: Result<Task, TaskProblem>,
}

/// What an operator wants of a dataset.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only names that fit one of these; empty for all.
    pub include: Vec<String>,
    /// No names that fit one of these.
    pub exclude: Vec<String>,
    /// At most so many tasks, from the front.
    pub limit: Option<usize>,
}

/// Why nothing could be selected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionProblem {
    /// A pattern that is none.
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    /// No name fits.
    #[error("no task matches {}; there are {count}{}", patterns.join(", "), examples_words(examples))]
    NoMatch {
        /// The patterns that were asked for.
        patterns: Vec<String>,
        /// How many tasks there are.
        count: usize,
        /// Up to five of their names.
        examples: Vec<String>,
    },
}

fn examples_words(examples: &[String]) -> String {
    if examples.is_empty() { String::new() } else { format!(": {} …", examples.join(", ")) }
}

/// The tasks of a directory: the directory itself where it holds a `task.toml`, else the directories
/// in it, sorted. None is dropped for being wrong; hidden directories without `task.toml`
/// are no tasks.
///
/// # Errors
/// A directory that can not be read.
pub fn list(dir: &Path) -> Result<Vec<Candidate>, TaskProblem> {
    let there = |dir: &Path| std::fs::symlink_metadata(dir.join("task.toml")).is_ok();
    if there(dir) {
        return Ok(vec![candidate(dir.to_path_buf())]);
    }
    let fail = |e: std::io::Error| TaskProblem::Unreadable { path: shown(&dir.to_string_lossy()), why: e.to_string() };
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if path.is_dir() && (!hidden || there(&path)) {
            out.push(candidate(path));
        }
    }
    // As Harbor 0.26 sorts them: by the name they have here, wherever a link leads.
    out.sort_by(|a, b| a.dir.file_name().cmp(&b.dir.file_name()));
    Ok(out)
}

fn candidate(dir: PathBuf) -> Candidate {
    let real = std::fs::canonicalize(&dir).unwrap_or_else(|_| dir.clone());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Candidate { name, dir }
}

impl Selection {
    /// Those that are meant, in their order, loaded; the others are not looked into. The limit counts tasks
    /// that can be loaded; the others stay in the list as long as it is not reached.
    ///
    /// # Errors
    /// A bad pattern, or `include` patterns that nothing fits.
    pub fn apply(&self, all: Vec<Candidate>) -> Result<Vec<Listed>, SelectionProblem> {
        let globs = |patterns: &[String]| patterns.iter().map(|p| Glob::new(p)).collect::<Result<Vec<_>, _>>();
        let (include, exclude) = (globs(&self.include)?, globs(&self.exclude)?);
        let fits = |globs: &[Glob], name: &str| globs.iter().any(|g| g.matches(name));
        if !include.is_empty() && !all.iter().any(|l| fits(&include, &l.name)) {
            return Err(SelectionProblem::NoMatch {
                patterns: self.include.iter().map(|p| shown(p)).collect(),
                count: all.len(),
                examples: all.iter().take(5).map(|l| shown(&l.name)).collect(),
            });
        }
        let mut left = self.limit.unwrap_or(usize::MAX);
        let wanted = |name: &str| (include.is_empty() || fits(&include, name)) && !fits(&exclude, name);
        let mut out = Vec::new();
        for Candidate { name, dir } in all.into_iter().filter(|c| wanted(&c.name)) {
            if left == 0 {
                break;
            }
            let task = Task::load(&dir);
            left -= usize::from(task.is_ok());
            out.push(Listed { name, dir, task });
        }
        Ok(out)
    }
}
