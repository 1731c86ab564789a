//! Patterns on names and paths: shell globs as `-i` and `-x` take them, and the rules of a
//! `.gitignore`. Both become regular expressions, which can not be made slow by a hostile pattern.
//!
//! They are expressions on bytes: what stands for any number of characters needs no tables of them, and a
//! job compiles many patterns before it begins. Only what stands for one character knows what one is.

use regex::bytes::{Regex, RegexBuilder};

/// A pattern that can not be used, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?}: {why}")]
pub struct BadPattern {
    /// The pattern as written.
    pub pattern: String,
    /// What is wrong with it.
    pub why: &'static str,
}

fn bad(pattern: &str, why: &'static str) -> BadPattern {
    BadPattern { pattern: pattern.chars().take(80).collect(), why }
}

/// Longest pattern in bytes; no path can be longer on Linux.
const MAX_PATTERN: usize = 4096;

fn check_length(pattern: &str) -> Result<(), BadPattern> {
    if pattern.len() > MAX_PATTERN { Err(bad(pattern, "too long")) } else { Ok(()) }
}

/// Compiles with a bound on memory; patterns come out of files.
fn compile(regex: &str, pattern: &str) -> Result<Regex, BadPattern> {
    RegexBuilder::new(regex).unicode(false).size_limit(1 << 20).build().map_err(|_| bad(pattern, "too long"))
}

/// The characters inside of `[…]`.
struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    /// Reads what follows a `[`: the class and what is left, or None where no `]` closes it. The
    /// first character may be a `]` itself; `-` at an edge stands for itself.
    fn read<'p>(after: &'p [char], negations: &[char]) -> Option<(Class, &'p [char])> {
        let negated = after.first().is_some_and(|c| negations.contains(c));
        let body = after.get(usize::from(negated)..)?;
        let end = body.iter().skip(1).position(|c| *c == ']')? + 1;
        let (mut inside, rest) = (body.get(..end)?, body.get(end + 1..)?);
        let mut ranges = Vec::new();
        while let [low, tail @ ..] = inside {
            inside = tail;
            if let ['-', high, tail @ ..] = inside {
                inside = tail;
                ranges.push((*low, *high));
            } else {
                ranges.push((*low, *low));
            }
        }
        Some((Class { negated, ranges }, rest))
    }

    fn has_empty_range(&self) -> bool {
        self.ranges.iter().any(|(low, high)| low > high)
    }

    fn regex(&self, out: &mut String) {
        let ranges: Vec<_> = self.ranges.iter().filter(|(low, high)| low <= high).collect();
        if ranges.is_empty() {
            // `[z-a]` is nothing, `[!z-a]` everything.
            out.push_str(if self.negated { "(?su:.)" } else { r"(?u:[^\x00-\x{10FFFF}])" });
            return;
        }
        out.push_str(if self.negated { "(?u:[^" } else { "(?u:[" });
        for (low, high) in ranges {
            out.push_str(&format!("\\x{{{:X}}}-\\x{{{:X}}}", u32::from(*low), u32::from(*high)));
        }
        out.push_str("])");
    }
}

fn literal(c: char, out: &mut String) {
    out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

/// A shell glob on a whole name, as Python's `fnmatch` takes it: `*` any characters, `?` one, `[…]`
/// and `[!…]` a set; a `[` without `]` stands for itself. Case matters.
#[derive(Debug, Clone)]
pub struct Glob(Regex);

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Only for a pattern of absurd length.
    pub fn new(pattern: &str) -> Result<Glob, BadPattern> {
        check_length(pattern)?;
        let chars: Vec<char> = pattern.chars().collect();
        let mut left = chars.as_slice();
        let mut regex = String::from(r"(?s)\A");
        while let [c, rest @ ..] = left {
            left = rest;
            match c {
                // Several mean the same as one, and cost more.
                '*' if rest.first() == Some(&'*') => {}
                '*' => regex.push_str(".*"),
                '?' => regex.push_str("(?u:.)"),
                '[' => match Class::read(rest, &['!']) {
                    Some((class, rest)) => {
                        class.regex(&mut regex);
                        left = rest;
                    }
                    None => regex.push_str(r"\["),
                },
                c => literal(*c, &mut regex),
            }
        }
        regex.push_str(r"\z");
        compile(&regex, pattern).map(Glob)
    }

    /// Whether the whole name fits.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name.as_bytes())
    }
}

/// The rules of a `.gitignore`; the last one that fits a path decides.
#[derive(Debug, Default)]
pub(super) struct Ignore(Vec<(Regex, bool)>);

impl Ignore {
    /// Reads the rules, one a line.
    pub(super) fn new<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Ignore, BadPattern> {
        let mut rules = Vec::new();
        for line in lines {
            if let Some((regex, ignored)) = rule(line)? {
                rules.push((compile(&regex, line)?, ignored));
            }
        }
        Ok(Ignore(rules))
    }

    /// Whether a file is left out; its path is relative to where the rules stand.
    pub(super) fn ignores(&self, path: &str) -> bool {
        self.0.iter().rev().find(|(regex, _)| regex.is_match(path.as_bytes())).is_some_and(|(_, ignored)| *ignored)
    }
}

/// One rule as a regular expression on paths of files, and whether it leaves out (or brings back).
fn rule(line: &str) -> Result<Option<(String, bool)>, BadPattern> {
    let text = if line.ends_with("\\ ") { line } else { line.trim_end() };
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    check_length(text)?;
    let (text, ignored) = match text.strip_prefix('!') {
        Some(rest) => (rest, false),
        None => (text, true),
    };
    let mut parts: Vec<&str> = text.split('/').collect();
    let only_below = text != "/" && parts.last() == Some(&"");
    match parts.as_slice() {
        // From the root of the rules.
        ["", ..] => drop(parts.remove(0)),
        // A single name fits at any depth.
        ["**"] | ["**", ""] => {}
        [_] | [_, ""] => parts.insert(0, "**"),
        _ => {}
    }
    match parts.last_mut() {
        None => return Err(bad(line, "it names nothing")),
        Some(last) if last.is_empty() => *last = "**",
        Some(_) => {}
    }
    parts.dedup_by(|a, b| *a == "**" && *b == "**");
    let regex = match parts.as_slice() {
        ["**"] if only_below => "/".to_string(),
        ["**"] | ["**", "*"] => ".".to_string(),
        ["**", "*", "**"] => "/".to_string(),
        parts => path_regex(parts, line)?,
    };
    Ok(Some((regex, ignored)))
}

fn path_regex(parts: &[&str], line: &str) -> Result<String, BadPattern> {
    let mut regex = String::new();
    let last = parts.len().saturating_sub(1);
    let mut slash = false;
    for (i, part) in parts.iter().enumerate() {
        match *part {
            "**" if i == 0 => regex.push_str("^(?:.+/)?"),
            "**" if i < last => {
                regex.push_str("(?:/.+)?");
                slash = true;
            }
            "**" => regex.push('/'),
            part => {
                if i == 0 {
                    regex.push('^');
                }
                if slash {
                    regex.push('/');
                }
                if part == "*" {
                    regex.push_str("[^/]+");
                } else {
                    part_regex(part, line, &mut regex)?;
                }
                if i == last {
                    // `dir/*` is for what lies in it, not for what lies deeper.
                    regex.push_str(if part == "*" { "/?$" } else { "(?:/|$)" });
                }
                slash = true;
            }
        }
    }
    Ok(regex)
}

fn part_regex(part: &str, line: &str, regex: &mut String) -> Result<(), BadPattern> {
    let chars: Vec<char> = part.chars().collect();
    let mut left = chars.as_slice();
    while let [c, rest @ ..] = left {
        left = rest;
        match c {
            '\\' => match rest {
                [next, rest @ ..] => {
                    literal(*next, regex);
                    left = rest;
                }
                [] => return Err(bad(line, "it ends in a backslash")),
            },
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("(?u:[^/])"),
            '[' => match Class::read(rest, &['!', '^']) {
                Some((class, _)) if class.has_empty_range() => return Err(bad(line, "a range that runs backwards")),
                Some((class, rest)) => {
                    class.regex(regex);
                    left = rest;
                }
                None => regex.push_str(r"\["),
            },
            c => literal(*c, regex),
        }
    }
    Ok(())
}
