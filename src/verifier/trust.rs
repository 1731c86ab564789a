//! Whether a verifier's answer can be trusted: where it can not, the container is worth holding, so that
//! the verifier can run again in it. [`doubt`] is pure; [`doubt_of`] reads what it needs.
//!
//! What speaks of faulty surroundings are the wordings of the shipped table of classes
//! (`configs/error-classes.toml`). The bar is lower than there: a container that is held for nothing costs a
//! little memory, one that is gone can not be asked again.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use crate::harbor::Dir;
use crate::harbor::ctrf::ctrf;
use crate::harbor::test_output::{NOTHING_RAN, RUNNERS_PRINT};
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::RewardMap;
use crate::job::Grade;
use crate::job::text::{clean, mask_secrets, strip_ansi};

/// The table that the wordings are taken from.
const TABLE: &str = include_str!("../../configs/error-classes.toml");
/// Lists of it that tell of an installer or a download that failed.
const FAULTS: [&str; 4] = ["package-tool", "download", "dns", "tool-missing"];
/// Bytes that a compiled list may take.
const SIZE: usize = 8 << 20;
/// Bytes read of the output: its last ones.
const OUTPUT: u64 = 1 << 20;
/// Bytes read of a test report.
const REPORT: u64 = 16 << 20;
/// Longest line that is looked at, and characters of it that are told.
const LINE: usize = 4096;
const TOLD: usize = 160;

static OWN: LazyLock<Option<Regex>> = LazyLock::new(|| list(&["own-address"]));
static FAULT: LazyLock<Option<Regex>> = LazyLock::new(|| list(&FAULTS));
static RAN: LazyLock<Option<Regex>> = LazyLock::new(|| any(RUNNERS_PRINT.iter().map(|s| (*s).to_string())));
static NOTHING: LazyLock<Option<Regex>> = LazyLock::new(|| any([NOTHING_RAN.to_string()]));

fn list(names: &[&str]) -> Option<Regex> {
    let table: toml::Table = TABLE.parse().ok()?;
    let patterns = table.get("patterns")?;
    let of = |name: &&str| patterns.get(*name)?.as_array();
    any(names.iter().filter_map(of).flatten().filter_map(toml::Value::as_str).map(str::to_string))
}

fn any(expressions: impl IntoIterator<Item = String>) -> Option<Regex> {
    let all: Vec<String> = expressions.into_iter().map(|e| format!("(?:{e})")).collect();
    let build = |unicode: bool| {
        RegexBuilder::new(&all.join("|"))
            .case_insensitive(true)
            .multi_line(true)
            .unicode(unicode)
            .size_limit(SIZE)
            .dfa_size_limit(SIZE)
            .build()
            .ok()
    };
    build(false).or_else(|| build(true))
}

/// What there is to judge by.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The rewards, or why there are none.
    pub given: &'a Result<RewardMap, Raised>,
    /// The end of what the tests printed.
    pub output: &'a [u8],
    /// A test report says that tests ran.
    pub reported: bool,
}

/// Why the answer can not be trusted, in words; None: it can, or running the verifier again would not help.
pub fn doubt(answer: &Answer<'_>) -> Option<String> {
    match answer.given {
        Err(raised) => match raised.kind.as_str() {
            "VerifierTimeoutError" => Some("the verifier did not end in time".to_string()),
            "RewardFileNotFoundError" | "RewardFileEmptyError" => Some(because("the tests left no reward", answer)),
            "VerifierOutputParseError" => Some("the reward can not be read".to_string()),
            "AddTestsDirError" | "RuntimeError" => Some("the verifier could not be run".to_string()),
            "ValueError" => Some("a variable that the verifier needs is not set".to_string()),
            _ => None,
        },
        Ok(rewards) => {
            let fault = (!passed(rewards) && !ran(answer)).then(|| fault(answer.output)).flatten()?;
            Some(format!("no test ran, and an installer or download failed: {fault}"))
        }
    }
}

fn because(what: &str, answer: &Answer<'_>) -> String {
    match fault(answer.output) {
        Some(fault) => format!("{what}: {fault}"),
        None => what.to_string(),
    }
}

fn passed(rewards: &RewardMap) -> bool {
    primary(rewards).is_some_and(|reward| Grade::of(Some(reward)) == Grade::Passed)
}

/// The key `reward`, else the only one.
fn primary(rewards: &RewardMap) -> Option<f64> {
    let named = rewards.iter().find(|(key, _)| key == "reward");
    match (named, rewards.as_slice()) {
        (Some((_, number)), _) | (None, [(_, number)]) => number.as_f64(),
        _ => None,
    }
}

/// Whether tests can be seen to have run.
fn ran(answer: &Answer<'_>) -> bool {
    let found = |regex: &Option<Regex>| regex.as_ref().is_some_and(|r| r.is_match(answer.output));
    answer.reported || (found(&RAN) && !found(&NOTHING))
}

/// The first line that tells of a fault of the surroundings, safe to show.
fn fault(output: &[u8]) -> Option<String> {
    let regex = FAULT.as_ref()?;
    let own = |line: &[u8]| OWN.as_ref().is_some_and(|own| own.is_match(line));
    let lines = output.split(|b| matches!(b, b'\n' | b'\r')).map(|line| line.get(..LINE).unwrap_or(line));
    let line = lines.filter(|line| !line.is_empty() && !own(line)).find(|line| regex.is_match(line))?;
    let text = String::from_utf8_lossy(line);
    let plain = strip_ansi(text.trim());
    let masked = mask_secrets(&plain);
    Some(clean(&masked).chars().take(TOLD).collect())
}

/// The same of what a verifier left in its directory: regular files alone, without following anything.
pub fn doubt_of(given: &Result<RewardMap, Raised>, logs: &Dir) -> Option<String> {
    if given.as_ref().is_ok_and(passed) {
        return None;
    }
    let output = logs.read_tail("test-stdout.txt", OUTPUT).map(|read| read.data).unwrap_or_default();
    let report = logs.read_all("ctrf.json", REPORT).ok().and_then(|read| ctrf(&read.data).ok());
    let reported = report.is_some_and(|r| r.counts.passed.saturating_add(r.counts.failed) > 0);
    doubt(&Answer { given, output: &output, reported })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::Number;

    fn rewards(reward: f64) -> Result<RewardMap, Raised> {
        Ok(vec![("reward".to_string(), Number::from_f64(reward).unwrap())])
    }

    fn of(given: Result<RewardMap, Raised>, output: &str) -> Option<String> {
        doubt(&Answer { given: &given, output: output.as_bytes(), reported: false })
    }

    #[test]
    fn the_lists_are_in_the_table() {
        assert!(OWN.is_some() && FAULT.is_some() && RAN.is_some() && NOTHING.is_some());
    }

    #[test]
    fn a_verdict_on_merits_is_trusted_and_a_broken_installer_is_not() {
        let network = "curl: (6) Could not resolve host: astral.sh\n/tests/test.sh: line 9: uvx: command not found\n";
        assert!(of(rewards(0.0), network).unwrap().contains("curl: (6)"));
        assert_eq!(of(rewards(1.0), network), None);
        assert_eq!(of(rewards(0.0), "1 failed\nFAILED tests/test_a.py::test_b - AssertionError\n"), None);
        let ran = format!("{network}=== test session starts ===\ncollected 2 items\n1 failed, 1 passed in 0.10s\n");
        assert_eq!(of(rewards(0.0), &ran), None);
        assert_eq!(of(rewards(0.0), "curl: (7) Failed to connect to localhost port 80: Connection refused\n"), None);
        assert_eq!(of(rewards(0.0), ""), None);
        let given = rewards(0.0);
        let answer = Answer { given: &given, output: network.as_bytes(), reported: true };
        assert_eq!(doubt(&answer), None);
    }

    #[test]
    fn without_a_reward_it_is_never_trusted_unless_nothing_would_help() {
        let raised = |kind: &str| Err(Raised::new(kind, "", "a test"));
        for kind in ["VerifierTimeoutError", "RewardFileNotFoundError", "VerifierOutputParseError", "RuntimeError"] {
            assert!(of(raised(kind), "").is_some(), "{kind}");
        }
        for kind in ["CancelledError", "FileNotFoundError"] {
            assert_eq!(of(raised(kind), ""), None, "{kind}");
        }
    }

    #[test]
    fn a_line_of_escapes_is_told_safely() {
        let (escape, bell) = (char::from(27_u8), char::from(7_u8));
        let line = format!("{escape}[31mE: Failed to fetch http://mirror.example/x{escape}]0;evil{bell}\n");
        let told = of(rewards(0.0), &line).unwrap();
        assert!(told.contains("Failed to fetch") && !told.contains(escape), "{told:?}");
    }
}
