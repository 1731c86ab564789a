//! What is asked of a model and what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Rules for the conversation.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Whose.
    pub role: Role,
    /// Its text.
    pub content: String,
    /// What the model thought before, where the conversation carries that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
}

/// What goes with every request. What is not set is not sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampling {
    /// `temperature`.
    pub temperature: Option<f64>,
    /// `top_p`.
    pub top_p: Option<f64>,
    /// `reasoning_effort`.
    pub reasoning_effort: Option<String>,
    /// `max_tokens`.
    pub max_tokens: Option<u64>,
    /// Further fields of the body, at its top.
    pub extra_body: serde_json::Map<String, Value>,
    /// Further headers: those of the session.
    pub headers: BTreeMap<String, String>,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model was done (`stop`), or the server says nothing.
    Stop,
    /// It reached its limit (`length`).
    Length,
    /// The server kept it back (`content_filter`).
    Filtered,
    /// Another reason, by the server's word. `abort` is none of these: it is an error.
    Other(String),
}

/// Tokens of one call, as the server counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Of the whole prompt.
    pub prompt: u64,
    /// Of these, found in the server's cache; None: not told.
    pub cached: Option<u64>,
    /// Generated.
    pub completion: u64,
    /// Of these, reasoning; None: not told.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// Both together.
    pub fn plus(self, other: Usage) -> Usage {
        let both = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        Usage {
            prompt: self.prompt.saturating_add(other.prompt),
            cached: both(self.cached, other.cached),
            completion: self.completion.saturating_add(other.completion),
            reasoning: both(self.reasoning, other.reasoning),
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Its text.
    pub content: String,
    /// What the model thought before, where the server tells.
    pub reasoning: Option<String>,
    /// Why it ended.
    pub finish: Finish,
    /// What the server counted; None: it told nothing.
    pub usage: Option<Usage>,
    /// The model, by the server's word.
    pub model: Option<String>,
    /// The server's own name of the request.
    pub id: Option<String>,
    /// From sending the request to the last byte, all tries of it.
    pub took: Duration,
    /// From sending the request to its first part, of the last try; None: it did not come in parts.
    pub first: Option<Duration>,
    /// Parts it came in: at least so many tokens were generated. 0 where it did not come in parts.
    pub parts: u64,
    /// Tries made.
    pub tries: u32,
}
