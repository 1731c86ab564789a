//! Keys in log lines: SGLang prints all its arguments, keys in clear, when it starts; vLLM those that
//! differ from the default.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use crate::job::text::{MASK, mask_secrets};

/// A value: quoted (also with its end cut off), a list, or a word.
const VALUE: &str = r#"(\\?"(?:[^"\\]|\\.)*"?|\\?'(?:[^'\\]|\\.)*'?|\[[^\]]*\]?|\([^)]*\)?|[^\s,;)}\]]+)"#;

/// Names that are secrets wherever they stand, of any length; flags with a value after a space.
static STRONG: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let named = r#"(?i)((?:api[_-]?keys?|secrets?|passw(?:or)?d|passphrase|auth[_-]?tokens?|hf[_-]?tokens?)\\?["']?\s*[:=]\s*)"#;
    let flag = r"(--[a-z0-9-]*(?:api-key|token|password|passphrase|secret)(?:\s+|=))";
    Regex::new(&format!("{named}{VALUE}|{flag}{VALUE}")).ok()
});

/// Names that are secrets among arguments.
static ARGUMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let named = r#"(?i)((?:\b|[_-])(?:keys?|tokens?|secrets?|passw(?:or)?d|passphrase)\\?["']?\s*[:=]\s*)"#;
    Regex::new(&format!("{named}{VALUE}")).ok()
});

/// What a secret can not be without. Literals alone, which are found fast.
static HINT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        "(?i)key|secret|passw|passphrase|token|bearer|://|sk-|rk-|pk-|hf_|gh[opsu]_|github_pat|glpat|xox|akia|aiza",
    )
    .ok()
});

/// True for a value that says nothing.
fn harmless(value: &str) -> bool {
    matches!(value, "None" | "True" | "False" | "null" | "true" | "false" | "''" | "\"\"" | "[]" | "()" | MASK)
        || value.starts_with("${")
}

fn mask<'a>(re: &LazyLock<Option<Regex>>, text: Cow<'a, str>, numbers: bool) -> Cow<'a, str> {
    let Some(re) = re.as_ref() else { return text };
    let number = |value: &str| value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !re.is_match(&text) {
        return text;
    }
    let masked = re.replace_all(&text, |c: &regex::Captures<'_>| {
        let pair = |head, value| Some((c.get(head)?.as_str(), c.get(value)?.as_str()));
        match pair(1, 2).or_else(|| pair(3, 4)) {
            Some((head, value)) if harmless(value) || (!numbers && number(value)) => format!("{head}{value}"),
            Some((head, value)) => {
                let quote = value.chars().find(|c| matches!(c, '\'' | '"')).map_or(String::new(), String::from);
                format!("{head}{quote}{MASK}{quote}")
            }
            None => MASK.to_string(),
        }
    });
    Cow::Owned(masked.into_owned())
}

/// The text without secrets. `arguments`: the line lists a program's arguments.
pub(super) fn scrub(text: &str, arguments: bool) -> Cow<'_, str> {
    if HINT.as_ref().is_some_and(|hint| !hint.is_match(text)) {
        return Cow::Borrowed(text);
    }
    let mut text = mask(&STRONG, Cow::Borrowed(text), true);
    if arguments {
        text = mask(&ARGUMENT, text, false);
    }
    match mask_secrets(&text) {
        Cow::Owned(masked) => Cow::Owned(masked),
        Cow::Borrowed(_) => text,
    }
}

/// The value of a field under its name.
pub(super) fn scrub_field(name: &str, value: &str) -> String {
    let both = format!("{name}: {value}");
    let masked = scrub(&both, false);
    masked.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(MASK).to_string()
}
