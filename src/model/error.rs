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
    /// The key is missing or wrong, or may not use the model (401, 403), or its account has no money left.
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

impl Kind {
    /// One word for files and reports.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Connect => "connect",
            Kind::Dns => "dns",
            Kind::Tls => "tls",
            Kind::Timeout(Clock::Connect) => "connect_timeout",
            Kind::Timeout(Clock::First) => "first_byte_timeout",
            Kind::Timeout(Clock::Silence) => "silence_timeout",
            Kind::Timeout(Clock::Call) => "call_timeout",
            Kind::Broken => "broken",
            Kind::RateLimit(_) => "rate_limit",
            Kind::Overloaded(_) => "overloaded",
            Kind::Auth => "auth",
            Kind::ModelNotFound => "model_not_found",
            Kind::ContextExceeded { .. } => "context_exceeded",
            Kind::ContentPolicy => "content_policy",
            Kind::Aborted => "aborted",
            Kind::Unsupported(_) => "unsupported",
            Kind::Refused(_) => "refused",
            Kind::Malformed => "malformed",
            Kind::Cancelled => "cancelled",
        }
    }

    /// The operator's own mistake: no trial of the job can do better.
    pub fn is_config(&self) -> bool {
        matches!(self, Kind::Auth | Kind::ModelNotFound)
    }

    /// The server is away, or as good as: another time or another address may help.
    pub fn is_away(&self) -> bool {
        matches!(self, Kind::Connect | Kind::Dns | Kind::Timeout(_) | Kind::Broken | Kind::Overloaded(_))
    }
}

/// A call that failed. Its text is masked and safe to show.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct ModelError {
    /// What kind of failure.
    pub kind: Kind,
    /// In words, with what the server said.
    pub detail: String,
    /// What was generated all the same, by all tries.
    pub spent: Spent,
    /// Text of the answer so far, of the last try.
    pub partial: String,
    /// Tries made.
    pub tries: u32,
}

/// Tokens of a call that was not answered to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// What the server counted.
    pub usage: Option<Usage>,
    /// Parts of the answer that came and that no usage covers: at least so many tokens were generated.
    pub parts: u64,
    /// How many tokens these parts are about, by the length of their text; never below `parts`.
    pub estimated: u64,
}

impl Spent {
    /// Generated tokens: at least so many.
    pub fn tokens(&self) -> u64 {
        self.usage.map_or(0, |usage| usage.completion).saturating_add(self.parts)
    }

    /// Both together.
    pub fn add(&mut self, other: Spent) {
        self.usage = match (self.usage, other.usage) {
            (Some(a), Some(b)) => Some(a.plus(b)),
            (a, b) => a.or(b),
        };
        self.parts = self.parts.saturating_add(other.parts);
        self.estimated = self.estimated.saturating_add(other.estimated);
    }
}
