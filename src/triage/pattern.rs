//! Patterns: several regular expressions in one, compiled when they are first asked for.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use regex::bytes::{Regex, RegexBuilder};

/// Bytes that a compiled pattern may take.
const SIZE: usize = 4 << 20;
/// Longest single expression, in bytes.
pub(super) const LONGEST: usize = 4096;

/// One or several expressions, any of which may match; case does not matter, `^` and `$` are those of a
/// line.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    compiled: OnceLock<Option<Regex>>,
}

/// Patterns by their text: the same list is often asked by several rules.
static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Pattern>>>> = LazyLock::new(Mutex::default);
/// Patterns that are kept for others; an operator's file has few, a program that reads many files in turn
/// must not keep them all.
const KEPT: usize = 4_000;

impl Pattern {
    /// Of several expressions; the same one for the same expressions.
    pub fn shared(expressions: &[String]) -> Arc<Pattern> {
        let pattern = Pattern::of(expressions);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&pattern.source) {
            return Arc::clone(found);
        }
        let pattern = Arc::new(pattern);
        if known.len() < KEPT {
            known.insert(pattern.source.clone(), Arc::clone(&pattern));
        }
        pattern
    }

    pub fn of(expressions: &[String]) -> Pattern {
        let source = match expressions {
            [one] => one.clone(),
            many => many.iter().map(|e| format!("(?:{e})")).collect::<Vec<_>>().join("|"),
        };
        Pattern { source, compiled: OnceLock::new() }
    }

    /// The expression compiled; None where it can not be (which loading has ruled out for an operator's
    /// own file, and a test for the shipped one).
    pub fn regex(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| build(&self.source).ok()).as_ref()
    }
}

/// Compiles an expression within the limits. Logs are ASCII nearly everywhere: classes and cases of all
/// of Unicode, which take most of the time to compile, are for expressions that name such characters.
pub(super) fn build(source: &str) -> Result<Regex, regex::Error> {
    let of = |unicode: bool| {
        RegexBuilder::new(source)
            .case_insensitive(true)
            .multi_line(true)
            .unicode(unicode)
            .size_limit(SIZE)
            .dfa_size_limit(SIZE)
            .nest_limit(64)
            .build()
    };
    if source.is_ascii()
        && let Ok(regex) = of(false)
    {
        return Ok(regex);
    }
    of(true)
}
