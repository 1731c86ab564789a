//! No secret in any file: known values, and what looks like one.

use crate::job::text::mask_secrets;

/// What is written in place of a secret.
const MASK: &str = "****";
/// Shorter values are no secrets but everyday words, and would be replaced everywhere.
const SHORTEST: usize = 8;

/// Takes secrets out of texts before they are written.
#[derive(Clone, Default)]
pub struct Scrub {
    values: Vec<String>,
}

impl std::fmt::Debug for Scrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrub({} values)", self.values.len())
    }
}

impl Scrub {
    /// For these values, besides everything that looks like a secret. Values of fewer than 8 bytes are
    /// left out.
    pub fn new(values: impl IntoIterator<Item = String>) -> Scrub {
        let mut values: Vec<String> = values.into_iter().filter(|v| v.len() >= SHORTEST).collect();
        // A value that holds another one goes first.
        values.sort_by_key(|v| std::cmp::Reverse(v.len()));
        Scrub { values }
    }

    /// For these values, too.
    pub fn and(&self, more: impl IntoIterator<Item = String>) -> Scrub {
        Scrub::new(self.values.iter().cloned().chain(more))
    }

    /// A text of a log or message without secrets.
    pub fn text(&self, text: &str) -> String {
        self.known(&mask_secrets(text))
    }

    /// A JSON document whose strings are without the known values, also as JSON writes them. Names of
    /// fields and numbers stay, so that it stays one.
    pub(super) fn json(&self, document: String) -> String {
        let quoted = |value: &String| {
            let text = serde_json::to_string(value).unwrap_or_default();
            text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(value).to_string()
        };
        let written: Vec<String> = self.values.iter().map(quoted).collect();
        if !written.iter().any(|value| document.contains(value.as_str())) {
            return document;
        }
        let mut out = String::with_capacity(document.len());
        let mut rest = document.as_str();
        while let Some((before, string)) = rest.split_once('"') {
            let end = end_of_string(string);
            let (inner, after) = (string.get(..end).unwrap_or(string), string.get(end..).unwrap_or_default());
            out.push_str(before);
            out.push('"');
            if after.trim_start_matches('"').trim_start().starts_with(':') {
                out.push_str(inner);
            } else {
                out.push_str(&written.iter().fold(inner.to_string(), |text, value| text.replace(value.as_str(), MASK)));
            }
            rest = match after.strip_prefix('"') {
                Some(after) => {
                    out.push('"');
                    after
                }
                None => after,
            };
        }
        out.push_str(rest);
        out
    }

    fn known(&self, text: &str) -> String {
        let mut out = text.to_string();
        for value in &self.values {
            if out.contains(value.as_str()) {
                out = out.replace(value.as_str(), MASK);
            }
        }
        out
    }
}

/// Where a string ends of which the first quote is gone: at its last one.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn json_without_secrets_stays_json() {
        let secret = "a\"b\\c: 12345";
        let document =
            json!({"n_trials": 12_345_678_901_u64, "n_trialsx": ["\\", secret, format!("\\{secret}\"")], "e": ""});
        let scrub = Scrub::new(["12345678901", "n_trials", secret, "short"].map(str::to_string));
        let out = scrub.json(document.to_string());
        let expected = json!({"n_trials": 12_345_678_901_u64, "n_trialsx": ["\\", "****", "\\****\""], "e": ""});
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
        let plain = json!({"text": "ab\"c", "list": [1, null]}).to_string();
        assert_eq!(scrub.json(plain.clone()), plain);
    }
}
