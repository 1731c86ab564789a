//! The key of an endpoint: held where it can not be printed, and taken out of what servers send back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use reqwest::header::HeaderValue;

use crate::job::text::MASK;

/// Shorter keys are no secrets, and taking them out would garble the text around them.
const SHORTEST: usize = 4;

/// A key. It can not be printed; it leaves only in the header of a request.
#[derive(Clone)]
pub struct Key {
    secret: Arc<str>,
    header: HeaderValue,
}

impl Key {
    /// From its text; None when that is empty, or can not stand in a header.
    pub fn new(text: &str) -> Option<Key> {
        let text = text.trim();
        let mut header = HeaderValue::from_str(&format!("Bearer {text}")).ok()?;
        header.set_sensitive(true);
        (!text.is_empty()).then(|| Key { secret: Arc::from(text), header })
    }

    /// From an environment variable of this process; None where it is not set, or is no key.
    pub fn from_env(name: &str) -> Option<Key> {
        Key::new(&std::env::var(name).ok()?)
    }

    /// `Bearer …`, kept out of debug output.
    pub(super) fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

/// What must not come back in anything that a server sends: the key, and the values of headers that hold one.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<Arc<str>>);

impl Secrets {
    pub(super) fn of(key: Option<&Key>, headers: &BTreeMap<String, String>) -> Secrets {
        let holds_one = |name: &str| {
            let name = name.to_ascii_lowercase();
            ["key", "auth", "token", "secret", "cookie"].iter().any(|part| name.contains(part))
        };
        let held = headers.iter().filter(|(name, _)| holds_one(name));
        let held = held.map(|(_, value)| Arc::from(value.trim().trim_start_matches("Bearer ").trim_start()));
        let all = key.map(|key| Arc::clone(&key.secret)).into_iter().chain(held);
        Secrets(all.filter(|secret: &Arc<str>| secret.len() >= SHORTEST).collect())
    }

    /// The text without them.
    pub(super) fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.0 {
            if text.contains(&**secret) {
                text = Cow::Owned(text.replace(&**secret, MASK));
            }
        }
        text
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({MASK})")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({MASK})")
    }
}
