//! What an agent does at this moment, as its trial tells it: for screens and reports, never for a result.
//!
//! A native agent tells it exactly; of a trial of another process it is inferred elsewhere, and marked so.

use super::Stamp;

/// What an agent does.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Doing {
    /// It is being made ready.
    #[default]
    Setup,
    /// A call of the model is under way.
    Model(Call),
    /// Keys were typed and it waits for what comes of them.
    Command {
        /// The keys, safe to show.
        keys: String,
        /// Seconds that it gives them.
        wait: f64,
        /// Since when.
        since: Stamp,
    },
    /// A call failed and is made again.
    Retry {
        /// Why, safe to show.
        why: String,
        /// The try that comes, from 2.
        attempt: u32,
        /// When; None: as soon as the endpoint is there again.
        at: Option<Stamp>,
        /// Since when.
        since: Stamp,
    },
    /// It writes down what happened so far, since the context is full.
    Summary(Call),
    /// Its work is done.
    Done,
}

/// A call of the model that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// When the request was sent.
    pub since: Stamp,
    /// When the last part of an answer came; None: nothing yet.
    pub heard: Option<Stamp>,
    /// Tokens of reasoning so far: parts of the stream, which servers send token by token or a few at once.
    pub reasoning: u64,
    /// Tokens of the answer so far, counted alike.
    pub answer: u64,
}

/// Tokens of a trial so far, from the usage that the server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokensSoFar {
    /// Prompt tokens of all answered calls.
    pub input: u64,
    /// Of these, found in the server's cache.
    pub cached: u64,
    /// Completion tokens of all answered calls.
    pub output: u64,
    /// Of these, reasoning, where the server tells.
    pub reasoning: u64,
    /// Completion tokens of calls whose answer was cut, failed or cancelled: at least so many.
    pub lost: u64,
}

/// An agent at work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Work {
    /// Its episode, from 1; None before the first, and for agents that have none.
    pub episode: Option<u32>,
    /// What it does.
    pub doing: Doing,
    /// Tokens so far.
    pub tokens: TokensSoFar,
    /// Tokens of context in use at the last answer, and the limit that the server tells.
    pub context: (Option<u64>, Option<u64>),
    /// Generated tokens per second, of the present call or the last one.
    pub rate: Option<f64>,
    /// Calls made again so far.
    pub retries: u32,
    /// What it said last of the state of things, safe to show.
    pub analysis: Option<String>,
    /// What it said last of what it is about to do, safe to show.
    pub plan: Option<String>,
    /// When this was told.
    pub told: Option<Stamp>,
}
