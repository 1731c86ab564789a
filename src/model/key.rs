//! The key of an endpoint: held where it can not be printed, and taken out of what servers send back.

use std::borrow::Cow;
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

    /// The text without the key in it.
    pub(super) fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.secret.len() < SHORTEST || !text.contains(&*self.secret) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(text.replace(&*self.secret, MASK))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({MASK})")
    }
}
