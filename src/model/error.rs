//! What can go wrong with a call, by kind.

use std::time::Duration;

use super::chat::Usage;

/// Which time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// For a connection.
    Connect,
    /// For the first byte of an answer.
    First,
    /// Between two parts of an answer.
    Silence,
    /// For the whole call, by the operator's limit.
    Call,
}

/// What kind of failure it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nobody listens, or the connection broke before an answer.
    Connect,
    /// The host's name is not known.
    Dns,
    /// No trust in the connection.
    Tls,
    /// A time ran out.
    Timeout(Clock),
    /// The connection broke amid the answer.
    Broken,
    /// Too many requests; when to come again, by the server.
    RateLimit(Option<Duration>),
    /// The server or a gateway before it can not answer now (5xx, overloaded).
    Overloaded(u16),
    /// The key is missing or wrong, or may not use the model (401, 403).
    Auth,
    /// The server does not have the model.
    ModelNotFound,
    /// The conversation is longer than the model's context.
    ContextExceeded {
        /// The limit, where the server tells.
        limit: Option<u64>,
    },
    /// The server refuses the content.
    ContentPolicy,
    /// The server ended the request (`abort`).
    Aborted,
    /// The server does not know an argument of the request; which, where it tells.
    Unsupported(Option<String>),
    /// Another refusal (4xx).
    Refused(u16),
    /// The answer is not what the protocol says.
    Malformed,
    /// The one who asked does not want it any more.
    Cancelled,
}

/// A call that failed. Its text is masked and safe to show.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct ModelError {
    /// What kind of failure.
    pub kind: Kind,
    /// In words, with what the server said.
    pub detail: String,
    /// What was generated all the same.
    pub spent: Spent,
    /// Text of the answer so far.
    pub partial: String,
    /// Tries made.
    pub tries: u32,
}

/// Tokens of a call that was not answered to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// What the server counted.
    pub usage: Option<Usage>,
    /// Parts of the answer that came: at least so many tokens were generated.
    pub parts: u64,
}
