//! What the model is told: prompts as templates, our own of a version or those of an installed Harbor.
//!
//! Ours lie in `assets/prompts/<version>/`, one file each, and what is said of an answer in its
//! `notices.txt`. A `{name}` is replaced where the prompt has that part ([`PARTS`]); every other brace is
//! text. Harbor's are read at run time from its package on this machine, by the Python that runs it, and
//! are never part of this program. The hash of all texts of a set says which one a trial used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::json;
use super::parse::{Content, Notice, Parsed};
use crate::harbor::task::sha256_hex;
use crate::job::text::clean;

/// The version of our own prompts. A changed text is a new version.
pub const VERSION: &str = "v1";
/// Where the Python of an installed Harbor is named.
pub const PYTHON: &str = "PILOTHOUSE_HARBOR_PYTHON";
/// Bytes of output that are shown in a turn.
pub const OUTPUT_BYTES: usize = 10_000;
/// Reads Harbor's prompts.
const READER: &str = include_str!("../../../assets/prompts/harbor.py");
/// For that to end.
const READING: Duration = Duration::from_secs(20);
/// Most bytes of them.
const LONGEST: usize = 1 << 20;

/// Every prompt with its parts. The notices are in the second half, by the names of [`Notice`].
pub const PARTS: &[(&str, &[&str])] = &[
    ("first", &["instruction", "terminal"]),
    ("parse-error", &["feedback"]),
    ("warned", &["feedback", "terminal"]),
    ("confirm", &["terminal"]),
    ("omitted", &["head", "tail", "limit", "omitted"]),
    ("too-long", &["limit", "remarks"]),
    ("too-long-remarks", &["warnings"]),
    ("limit-tokens", &["tokens"]),
    ("limit-unknown", &[]),
    ("cut-time", &["pending", "seconds"]),
    ("cut-thinking", &["pending", "tokens"]),
    ("summary", &["instruction"]),
    ("questions", &["instruction", "summary", "screen"]),
    ("answers", &["questions"]),
    ("handoff", &["answers"]),
    ("short", &["instruction", "screen"]),
    ("short-handoff", &["instruction", "summary"]),
    ("bare-handoff", &["instruction", "screen"]),
    ("lost", &[]),
    ("error", &["error"]),
    ("error-warnings", &["warnings"]),
    ("warnings", &["warnings"]),
    ("NoJson", &[]),
    ("InvalidJson", &["detail"]),
    ("InvalidWhole", &["fault", "content"]),
    ("InvalidBegin", &["fault", "content"]),
    ("Missing", &["fields"]),
    ("CommandsNoList", &[]),
    ("CommandNoObject", &["n"]),
    ("CommandNoKeys", &["n"]),
    ("CommandKeysNoText", &["n"]),
    ("NoObject", &[]),
    ("TextBefore", &[]),
    ("TextAfter", &[]),
    ("AnalysisNoText", &[]),
    ("PlanNoText", &[]),
    ("CompleteNoBool", &[]),
    ("Order", &["found", "expected"]),
    ("DurationInvalid", &["n"]),
    ("DurationMissing", &["n"]),
    ("UnknownFields", &["n", "fields"]),
    ("NoEndOfLine", &["n"]),
    ("BracesAdded", &[]),
    ("Extracted", &[]),
];

/// Prompts that Harbor does not have: they are ours with every set, and only sent where an option of
/// ours is on.
const OURS_ALONE: [&str; 2] = ["cut-time", "cut-thinking"];

const FILES: &[(&str, &str)] = &[
    ("first", include_str!("../../../assets/prompts/v1/first.txt")),
    ("parse-error", include_str!("../../../assets/prompts/v1/parse-error.txt")),
    ("warned", include_str!("../../../assets/prompts/v1/warned.txt")),
    ("confirm", include_str!("../../../assets/prompts/v1/confirm.txt")),
    ("omitted", include_str!("../../../assets/prompts/v1/omitted.txt")),
    ("too-long", include_str!("../../../assets/prompts/v1/too-long.txt")),
    ("too-long-remarks", include_str!("../../../assets/prompts/v1/too-long-remarks.txt")),
    ("limit-tokens", include_str!("../../../assets/prompts/v1/limit-tokens.txt")),
    ("limit-unknown", include_str!("../../../assets/prompts/v1/limit-unknown.txt")),
    ("cut-time", include_str!("../../../assets/prompts/v1/cut-time.txt")),
    ("cut-thinking", include_str!("../../../assets/prompts/v1/cut-thinking.txt")),
    ("summary", include_str!("../../../assets/prompts/v1/summary.txt")),
    ("questions", include_str!("../../../assets/prompts/v1/questions.txt")),
    ("answers", include_str!("../../../assets/prompts/v1/answers.txt")),
    ("handoff", include_str!("../../../assets/prompts/v1/handoff.txt")),
    ("short", include_str!("../../../assets/prompts/v1/short.txt")),
    ("short-handoff", include_str!("../../../assets/prompts/v1/short-handoff.txt")),
    ("bare-handoff", include_str!("../../../assets/prompts/v1/bare-handoff.txt")),
    ("lost", include_str!("../../../assets/prompts/v1/lost.txt")),
];
const NOTICES: &str = include_str!("../../../assets/prompts/v1/notices.txt");

/// Whose prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Ours, of [`VERSION`].
    Own,
    /// Those of a Harbor that is installed here.
    Harbor {
        /// Its version, where it tells.
        version: Option<String>,
        /// Where they were read.
        path: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Part(String),
}

/// A set of prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    /// Whose.
    pub source: Source,
    /// Of all texts, hexadecimal (SHA-256).
    pub hash: String,
    texts: BTreeMap<&'static str, Vec<Piece>>,
}

/// Why there are no prompts, safe to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("prompt_templates=harbor: {0}")]
pub struct NoPrompts(String);

impl Prompts {
    /// Our own.
    pub fn own() -> Prompts {
        let lines = NOTICES.lines().filter_map(|line| line.split_once(": "));
        let notices: BTreeMap<&str, String> = lines.map(|(name, text)| (name, unescaped(text))).collect();
        let files: BTreeMap<&str, &str> = FILES.iter().copied().collect();
        let text = |name: &str| match files.get(name) {
            Some(file) => file.strip_suffix('\n').unwrap_or(file).to_string(),
            None => notices.get(name).cloned().unwrap_or_default(),
        };
        let texts = PARTS.iter().map(|(name, parts)| (*name, pieces(&text(name), parts))).collect();
        Prompts::of(Source::Own, texts)
    }

    fn of(source: Source, texts: BTreeMap<&'static str, Vec<Piece>>) -> Prompts {
        let hash = sha256_hex(format!("{texts:?}").as_bytes());
        Prompts { source, hash, texts }
    }

    /// Those of the Harbor that is installed here: of the Python that `PILOTHOUSE_HARBOR_PYTHON` names,
    /// else of the one beside the `harbor` that is in the path.
    ///
    /// # Errors
    /// There is none, or what it has is not what is known; by name.
    pub fn harbor() -> Result<Prompts, NoPrompts> {
        let python = python_of(std::env::var_os(PYTHON).map(PathBuf::from), std::env::var_os("PATH"))?;
        Prompts::read(&run(&python)?)
    }

    fn read(bytes: &[u8]) -> Result<Prompts, NoPrompts> {
        #[derive(Deserialize)]
        struct Found {
            version: Option<String>,
            path: String,
            prompts: BTreeMap<String, Vec<Part>>,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Part {
            Text(String),
            Slot { slot: String },
        }
        let odd = |why: String| NoPrompts(clean(&why).into_owned());
        let found: Found = serde_json::from_slice(bytes).map_err(|e| odd(format!("what was read is no JSON: {e}")))?;
        let mut texts = Prompts::own().texts;
        for (name, parts) in PARTS.iter().filter(|(name, _)| !OURS_ALONE.contains(name)) {
            let pieces = found.prompts.get(*name).ok_or_else(|| odd(format!("the prompt {name} is missing")))?;
            let mut out = Vec::new();
            for piece in pieces {
                out.push(match piece {
                    Part::Text(text) => Piece::Text(text.clone()),
                    Part::Slot { slot } if parts.contains(&slot.as_str()) => Piece::Part(slot.clone()),
                    Part::Slot { slot } => return Err(odd(format!("the prompt {name} has a part {slot}"))),
                });
            }
            texts.insert(name, out);
        }
        let shown = |text: &str| clean(text).into_owned();
        let source = Source::Harbor { version: found.version.as_deref().map(shown), path: shown(&found.path) };
        Ok(Prompts::of(source, texts))
    }

    /// Whether they are ours.
    pub fn are_own(&self) -> bool {
        self.source == Source::Own
    }

    /// A prompt with its parts filled in; what is not given is empty.
    pub fn fill(&self, name: &str, parts: &[(&str, &str)]) -> String {
        let mut out = String::new();
        for piece in self.texts.get(name).map(Vec::as_slice).unwrap_or_default() {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Part(part) => {
                    out.push_str(parts.iter().find(|(name, _)| name == part).map_or("", |(_, text)| *text));
                }
            }
        }
        out
    }

    /// A notice in words.
    fn notice(&self, notice: &Notice) -> String {
        let numbered = |name: &str, n: &usize| self.fill(name, &[("n", &n.to_string())]);
        match notice {
            Notice::NoJson => self.fill("NoJson", &[]),
            Notice::InvalidJson { fault, content } => {
                let fault = if self.are_own() { fault.to_string() } else { fault.python() };
                let (name, content) = match content {
                    Content::Whole(text) => ("InvalidWhole", text),
                    Content::Begin(text) => ("InvalidBegin", text),
                };
                let detail = self.fill(name, &[("fault", &fault), ("content", &json::shown(content))]);
                self.fill("InvalidJson", &[("detail", &detail)])
            }
            Notice::Missing { fields } => self.fill("Missing", &[("fields", fields)]),
            Notice::CommandsNoList => self.fill("CommandsNoList", &[]),
            Notice::CommandNoObject { n } => numbered("CommandNoObject", n),
            Notice::CommandNoKeys { n } => numbered("CommandNoKeys", n),
            Notice::CommandKeysNoText { n } => numbered("CommandKeysNoText", n),
            Notice::NoObject => self.fill("NoObject", &[]),
            Notice::TextBefore => self.fill("TextBefore", &[]),
            Notice::TextAfter => self.fill("TextAfter", &[]),
            Notice::AnalysisNoText => self.fill("AnalysisNoText", &[]),
            Notice::PlanNoText => self.fill("PlanNoText", &[]),
            Notice::CompleteNoBool => self.fill("CompleteNoBool", &[]),
            Notice::Order { found, expected } => self.fill("Order", &[("found", found), ("expected", expected)]),
            Notice::DurationInvalid { n } => numbered("DurationInvalid", n),
            Notice::DurationMissing { n } => numbered("DurationMissing", n),
            Notice::UnknownFields { n, fields } => {
                self.fill("UnknownFields", &[("n", &n.to_string()), ("fields", fields)])
            }
            Notice::NoEndOfLine { n } => numbered("NoEndOfLine", n),
            Notice::BracesAdded => self.fill("BracesAdded", &[]),
            Notice::Extracted => self.fill("Extracted", &[]),
        }
    }

    fn list(&self, warnings: &[Notice]) -> String {
        let lines: Vec<String> = warnings.iter().map(|w| format!("- {}", self.notice(w))).collect();
        lines.join("\n")
    }

    /// What is said of an answer: its error and then the warnings, or the warnings alone; None for one
    /// without either.
    pub fn feedback(&self, parsed: &Parsed) -> Option<String> {
        let warnings = (!parsed.warnings.is_empty()).then(|| self.list(&parsed.warnings));
        match (&parsed.error, warnings) {
            (Some(error), warnings) => {
                let mut out = self.fill("error", &[("error", &self.notice(error))]);
                if let Some(warnings) = warnings {
                    out.push_str(&self.fill("error-warnings", &[("warnings", &warnings)]));
                }
                Some(out)
            }
            (None, Some(warnings)) => Some(self.fill("warnings", &[("warnings", &warnings)])),
            (None, None) => None,
        }
    }

    /// For an answer that was cut at its length.
    pub fn too_long(&self, limit: Option<u64>, warnings: &[Notice]) -> String {
        let limit = match limit {
            Some(tokens) => self.fill("limit-tokens", &[("tokens", &tokens.to_string())]),
            None => self.fill("limit-unknown", &[]),
        };
        let remarks = match warnings {
            [] => String::new(),
            warnings => self.fill("too-long-remarks", &[("warnings", &self.list(warnings))]),
        };
        self.fill("too-long", &[("limit", &limit), ("remarks", &remarks)])
    }

    /// Output, or its beginning and end where it is longer than [`OUTPUT_BYTES`].
    pub fn limited(&self, output: &str) -> String {
        if output.len() <= OUTPUT_BYTES {
            return output.to_string();
        }
        let half = OUTPUT_BYTES / 2;
        let (mut end, mut begin) = (half, output.len() - half);
        while !output.is_char_boundary(end) {
            end -= 1;
        }
        while !output.is_char_boundary(begin) {
            begin += 1;
        }
        let (head, tail) = (output.get(..end).unwrap_or_default(), output.get(begin..).unwrap_or_default());
        let (limit, omitted) = (OUTPUT_BYTES.to_string(), (begin - end).to_string());
        self.fill("omitted", &[("head", head), ("tail", tail), ("limit", &limit), ("omitted", &omitted)])
    }
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match (c, c == '\\') {
            (_, true) => match letters.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => {}
            },
            (c, _) => out.push(c),
        }
    }
    out
}

fn pieces(text: &str, parts: &[&str]) -> Vec<Piece> {
    let mut out = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(brace) = rest.get(from..).and_then(|r| r.find('{')).map(|at| from + at) {
        let part = parts.iter().find(|part| {
            rest.get(brace + 1..).and_then(|r| r.strip_prefix(**part)).is_some_and(|r| r.starts_with('}'))
        });
        let Some(part) = part else {
            from = brace + 1;
            continue;
        };
        if brace > 0 {
            out.push(Piece::Text(rest.get(..brace).unwrap_or_default().to_string()));
        }
        out.push(Piece::Part((*part).to_string()));
        (rest, from) = (rest.get(brace + part.len() + 2..).unwrap_or_default(), 0);
    }
    if !rest.is_empty() {
        out.push(Piece::Text(rest.to_string()));
    }
    out
}

/// The Python of an installed Harbor.
fn python_of(named: Option<PathBuf>, path: Option<std::ffi::OsString>) -> Result<PathBuf, NoPrompts> {
    let odd = |why: String| NoPrompts(clean(&why).into_owned());
    if let Some(python) = named.filter(|p| !p.as_os_str().is_empty()) {
        // Several are separated by colons; the first counts.
        let first = std::env::split_paths(&python).next().unwrap_or_default();
        return match first.is_file() {
            true => Ok(first),
            false => Err(odd(format!("{PYTHON}: {}: there is no such program", python.display()))),
        };
    }
    let dirs = path.as_deref().map(std::env::split_paths).into_iter().flatten();
    let Some(harbor) = dirs.map(|dir| dir.join("harbor")).find(|harbor| harbor.is_file()) else {
        return Err(odd(format!("no harbor in the path: install it, or name its Python in {PYTHON}")));
    };
    // A link from elsewhere leads to the script, which has its Python beside it or in its first line.
    let script = std::fs::canonicalize(&harbor).unwrap_or_else(|_| harbor.clone());
    let beside = script.with_file_name("python");
    let first = std::fs::read(&script).ok().and_then(|bytes| {
        let line = bytes.split(|b| *b == b'\n').next()?;
        let line = std::str::from_utf8(line).ok()?.strip_prefix("#!")?.trim();
        line.contains("python").then(|| PathBuf::from(line))
    });
    let found = [Some(beside), first].into_iter().flatten().find(|python| python.is_file());
    found.ok_or_else(|| odd(format!("{}: its Python is not found; name it in {PYTHON}", script.display())))
}

/// Runs the reader of Harbor's prompts; gives what it printed.
fn run(python: &Path) -> Result<Vec<u8>, NoPrompts> {
    use std::io::Read as _;
    let odd = |why: String| NoPrompts(clean(&format!("{}: {why}", python.display())).into_owned());
    let mut child = Command::new(python)
        .args(["-I", "-B", "-c", READER])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| odd(e.to_string()))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = out.map(|out| out.take(LONGEST as u64).read_to_end(&mut bytes));
        let mut said = Vec::new();
        let _ = err.map(|err| err.take(4096).read_to_end(&mut said));
        (read.is_some_and(|r| r.is_ok()), bytes, said)
    });
    let begun = std::time::Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < READING => std::thread::sleep(Duration::from_millis(10)),
            other => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(odd(other.err().map_or("it did not end".to_string(), |e| e.to_string())));
            }
        }
    };
    let (read, bytes, said) = reading.join().unwrap_or_default();
    if status.success() && read {
        return Ok(bytes);
    }
    let said = String::from_utf8_lossy(&said);
    Err(odd(said.lines().last().unwrap_or("it failed without a word").to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    #[test]
    fn every_prompt_is_there_with_every_part() {
        let own = Prompts::own();
        for (name, parts) in PARTS {
            let pieces = &own.texts[name];
            assert!(!pieces.is_empty(), "{name}");
            for part in *parts {
                assert!(pieces.contains(&Piece::Part((*part).to_string())), "{name}: {part}");
            }
        }
        let named: Vec<&str> = NOTICES.lines().filter_map(|l| l.split_once(": ")).map(|(name, _)| name).collect();
        assert!(named.iter().all(|name| own.texts.contains_key(name)), "{named:?}");
        assert_eq!(named.len() + FILES.len(), PARTS.len());
        // The example of the first prompt is what is asked for.
        let first = own.fill("first", &[("instruction", "{terminal} DO IT"), ("terminal", "$ {instruction}")]);
        assert!(first.contains("\n{terminal} DO IT\n") && first.ends_with("\n$ {instruction}"), "{first}");
        let parsed = parse(&first[first.find("{\n").unwrap()..]);
        assert_eq!((parsed.error, parsed.commands.len(), parsed.complete), (None, 2, false));
    }

    #[test]
    fn feedback_has_the_error_and_then_the_warnings() {
        let own = Prompts::own();
        assert_eq!(own.feedback(&parse(r#"{"analysis":"","plan":"","commands":[]}"#)), None);
        let said = own.feedback(&parse("Well: {\"plan\": \"\"} so")).unwrap();
        let expected = "Error: these fields are missing: analysis, commands\nRemarks: \
                        - there is text in front of the JSON object; it was not looked at\n\
                        - there is text behind the JSON object; it was not looked at";
        assert_eq!(said, expected);
        let said = own.feedback(&parse(r#"{"analysis":"","plan":"","commands":[{"keystrokes":"a"},3]}"#)).unwrap();
        assert!(said.starts_with("Error: entry 2 of ") && said.contains("does not end with \\n although"), "{said}");
        let said = own.feedback(&parse(r#"{"analysis":"","plan":"","commands":[{"keystrokes":"a"}]}"#)).unwrap();
        assert_eq!(said, "Remarks: - entry 1 has no \"duration\"; 1.0 was taken");
        let said = own.feedback(&parse("{\"a\": 'b'}")).unwrap();
        assert!(said.contains("a value is missing, line 1 column 7. It is: '{\"a\": \\'b\\'}'"), "{said}");
        let long = own.too_long(Some(8192), &[Notice::NoObject]);
        assert!(
            long.contains("longer than 8192 tokens")
                && long.ends_with("\n- no object with a beginning and an end was found"),
            "{long}"
        );
        assert!(own.too_long(None, &[]).ends_with("several turns."));
    }

    #[test]
    fn long_output_keeps_both_ends_and_whole_characters() {
        let own = Prompts::own();
        let short = "x".repeat(OUTPUT_BYTES);
        assert_eq!(own.limited(&short), short);
        let text = format!("{}{}é{}", "h".repeat(4999), "é".repeat(3000), "t".repeat(4999));
        let shown = own.limited(&text);
        let omitted = text.len() - 4999 - 4999;
        assert!(shown.starts_with(&format!("{}\n[{omitted} bytes", "h".repeat(4999))), "{}", &shown[4990..5100]);
        assert!(shown.ends_with(&format!("]\n{}", "t".repeat(4999))));
    }

    #[test]
    fn harbor_is_looked_for_and_missed_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = || Some(std::ffi::OsString::from(dir.path()));
        let said = python_of(None, path()).unwrap_err().to_string();
        assert!(said.contains("no harbor in the path"), "{said}");
        let said = python_of(Some(dir.path().join("python9")), path()).unwrap_err().to_string();
        assert!(said.contains("python9: there is no such program"), "{said}");
        std::fs::write(dir.path().join("harbor"), "#!/bin/sh\nexit 0\n").unwrap();
        let said = python_of(None, path()).unwrap_err().to_string();
        assert!(said.contains("its Python is not found"), "{said}");
        std::fs::write(dir.path().join("python"), "").unwrap();
        let beside = std::fs::canonicalize(dir.path()).unwrap().join("python");
        assert_eq!(python_of(None, path()), Ok(beside));
        let said = Prompts::read(b"{\"path\": \"/x\", \"prompts\": {}}").unwrap_err().to_string();
        assert!(said.contains("the prompt first is missing"), "{said}");
        let found = r#"{"path": "", "prompts": {"first": [{"slot": "weather"}]}}"#;
        assert!(Prompts::read(found.as_bytes()).unwrap_err().to_string().contains("has a part weather"));
    }
}
