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

    /// A text of a log or message without secrets.
    pub fn text(&self, text: &str) -> String {
        self.known(&mask_secrets(text))
    }

    /// A JSON document without the known values, also as JSON writes them.
    pub(super) fn json(&self, document: String) -> String {
        let mut out = document;
        for value in &self.values {
            let quoted = serde_json::to_string(value).unwrap_or_default();
            let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or(value);
            if out.contains(inner) {
                out = out.replace(inner, MASK);
            }
        }
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
