//! What of a directory is left out when it is taken, by the patterns of GNU tar's `--exclude`.

use std::path::Path;

use crate::harbor::task::{BadPattern, Glob};

/// Patterns; an entry is left out when one of them fits its path, a part of it that begins after a `/`,
/// or a directory above it. `*` goes over `/`, as in tar.
#[derive(Debug, Clone, Default)]
pub struct Exclude(Vec<Glob>);

impl Exclude {
    /// Takes patterns.
    ///
    /// # Errors
    /// One that is none.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Exclude, BadPattern> {
        let plain = |p: &S| {
            Glob::new(match p.as_ref().trim_end_matches('/') {
                "" => "/",
                plain => plain,
            })
        };
        patterns.iter().map(plain).collect::<Result<_, _>>().map(Exclude)
    }

    /// Whether the entry at this path, relative to the directory that is taken, stays.
    pub fn keeps(&self, path: &Path) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let text = format!("./{}", path.to_string_lossy());
        let starts = std::iter::once(0).chain(text.match_indices('/').map(|(at, _)| at + 1));
        let mut ends: Vec<usize> = text.match_indices('/').map(|(at, _)| at).collect();
        ends.push(text.len());
        !starts.into_iter().any(|start| {
            let parts = ends.iter().filter(|end| **end > start);
            let mut parts = parts.filter_map(|end| text.get(start..*end));
            parts.any(|part| part != "." && self.0.iter().any(|glob| glob.matches(part)))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn patterns_leave_out_what_tar_leaves_out() {
        let keeps = |patterns: &[&str], path: &str| Exclude::new(patterns).unwrap().keeps(Path::new(path));
        assert!(keeps(&[], "a"));
        assert!(!keeps(&["*.pyc"], "a/b.pyc") && keeps(&["*.pyc"], "a/b.py"));
        assert!(!keeps(&["node_modules"], "x/node_modules/y/z") && keeps(&["node_modules"], "x/node_modules2"));
        assert!(!keeps(&["./logs"], "logs/a") && keeps(&["./logs"], "x/logs"));
        assert!(!keeps(&["a/b"], "x/a/b/c") && keeps(&["a/b"], "a/c/b"));
        assert!(!keeps(&["cache/"], "cache/x"));
    }
}
