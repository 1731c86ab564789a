//! What of an `env` map may be written down.

use std::sync::LazyLock;

use regex::Regex;

use crate::job::text::{MASK, mask_secrets};

static SENSITIVE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)KEY|SECRET|TOKEN(?:[^S]|$)|PASSWORD|CREDENTIAL|AUTH").ok());

/// True for names whose values are taken for secrets, as Harbor 0.26 does; `MAX_TOKENS` is none.
pub fn is_sensitive_name(name: &str) -> bool {
    // Without the pattern everything is a secret.
    SENSITIVE.as_ref().is_none_or(|re| re.is_match(name))
}

/// `${NAME}` or `${NAME:-default}`, the whole of it.
pub fn template_name(value: &str) -> Option<&str> {
    let inner = value.strip_prefix("${")?.strip_suffix('}')?;
    let name = inner.split_once(":-").map_or(inner, |(name, _)| name);
    let rest = inner.get(name.len()..).unwrap_or_default();
    let good = !name.is_empty() && !name.contains(['}', ':']) && !rest.contains('\n');
    good.then_some(name)
}

/// What is left of a secret: enough of a long one to know it again, as Harbor shows it, nothing of a
/// short one, of which Harbor would show up to seven characters.
pub(super) fn redact(value: &str) -> String {
    let chars: Vec<char> = value.chars().collect();
    if chars.len() < 24 {
        return "****".to_string();
    }
    let head: String = chars.iter().take(4).collect();
    let tail: String = chars.iter().skip(chars.len() - 3).collect();
    format!("{head}****{tail}")
}

/// A value of `env` as it may be written down, and whether it can no longer be read back from there.
/// Templates stay; a secret that the surroundings hold under the same name becomes a template of it;
/// others are masked. Values of harmless names stay, unless they look like a key.
pub(super) fn written(
    name: &str,
    value: &str,
    sensitive: Option<&str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> (String, bool) {
    if value.is_empty() || template_name(value).is_some() {
        return (value.to_string(), false);
    }
    if !is_sensitive_name(name) && sensitive != Some(name) {
        let masked = looks_secret(value);
        return (masked.clone().unwrap_or_else(|| value.to_string()), masked.is_some());
    }
    if env(name).as_deref() == Some(value) {
        return (format!("${{{name}}}"), false);
    }
    (redact(value), true)
}

/// The value without what looks like a key in it; None when nothing does.
pub(super) fn looks_secret(value: &str) -> Option<String> {
    let masked = mask_secrets(value);
    (masked != value && masked.contains(MASK)).then(|| masked.into_owned())
}

/// Words that stand where a key is asked for and none is needed.
pub(super) fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    matches!(lower.as_str(), "" | "empty" | "none" | "null" | "dummy" | "unused" | "no-key" | "not-needed" | "sk-none")
}
