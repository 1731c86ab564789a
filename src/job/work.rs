//! What an agent does at this moment, as its trial tells it: for screens and reports, never for a result.
//!
//! A native agent tells it exactly; of a trial of another process it is inferred elsewhere, and marked so.

pub mod words;

use super::text::{mask_secrets, strip_ansi};
use super::{Stamp, time};

/// Longest text that is handed on to screens and other processes, in bytes.
const TEXT: usize = 1000;
/// Longest keys of a command that are handed on, in bytes.
const KEYS: usize = 400;

/// What an agent does.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Doing {
    /// It is being made ready.
    #[default]
    Setup,
    /// It waits for its turn: only so many agents work at a time. Its clock has not begun.
    Slot {
        /// Since when.
        since: Stamp,
    },
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
    /// Its work is done, and the tests run.
    Verifying {
        /// Since when.
        since: Stamp,
    },
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
    /// Name of the present call at the server, where it was given one.
    pub rid: Option<String>,
    /// Calls made again so far.
    pub retries: u32,
    /// What it said last of the state of things, safe to show.
    pub analysis: Option<String>,
    /// What it said last of what it is about to do, safe to show.
    pub plan: Option<String>,
    /// When this was told.
    pub told: Option<Stamp>,
}

impl TokensSoFar {
    /// No call has ended yet: nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == TokensSoFar::default()
    }
}

impl Work {
    /// The call of the model that is under way.
    pub fn call(&self) -> Option<&Call> {
        match &self.doing {
            Doing::Model(call) | Doing::Summary(call) => Some(call),
            _ => None,
        }
    }

    /// Since when it does what it does, where that is known.
    pub fn since(&self) -> Option<Stamp> {
        match &self.doing {
            Doing::Model(call) | Doing::Summary(call) => Some(call.since),
            Doing::Slot { since }
            | Doing::Command { since, .. }
            | Doing::Retry { since, .. }
            | Doing::Verifying { since } => Some(*since),
            Doing::Setup | Doing::Done => None,
        }
    }

    /// Seconds that it has done so at `now`; never negative.
    pub fn seconds(&self, now: Stamp) -> Option<f64> {
        self.since().map(|since| time::age(since, now).as_secs_f64())
    }

    /// Whether it says what its trial does at this moment: else the files do.
    pub fn is_exact(&self) -> bool {
        self.told.is_some() && !matches!(self.doing, Doing::Setup | Doing::Done)
    }

    /// Share of the context that is in use, where both are known.
    pub fn context_share(&self) -> Option<f64> {
        let (used, limit) = self.context;
        let limit = limit.filter(|limit| *limit > 0)?;
        Some(used? as f64 / limit as f64)
    }

    /// As it is handed on: texts masked, without escape sequences, and of a length that many can be
    /// handed on together. Line ends stay.
    #[must_use]
    pub fn shown(mut self) -> Work {
        for text in [&mut self.analysis, &mut self.plan].into_iter().flatten() {
            shorten(text, TEXT);
        }
        match &mut self.doing {
            Doing::Command { keys, .. } => shorten(keys, KEYS),
            Doing::Retry { why, .. } => shorten(why, KEYS),
            _ => {}
        }
        self.rid.iter_mut().for_each(|rid| shorten(rid, KEYS));
        self
    }
}

/// Masks a text and cuts it to so many bytes.
fn shorten(text: &mut String, most: usize) {
    // What lies far behind the end is not looked at; a secret that the cut goes through is masked first.
    let mut far = text.len().min(most * 4);
    while !text.is_char_boundary(far) {
        far -= 1;
    }
    text.truncate(far);
    let masked = mask_secrets(&strip_ansi(text)).into_owned();
    *text = masked;
    if text.len() <= most {
        return;
    }
    let sign = "\u{2026}";
    let mut end = most.saturating_sub(sign.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(sign);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "\u{4efb}".repeat(1000);
        let work =
            Work { analysis: Some(long.clone()), plan: Some("short".into()), rid: Some(long), ..Work::default() };
        let bounded = work.shown();
        let analysis = bounded.analysis.unwrap_or_default();
        assert!(analysis.len() <= TEXT && analysis.len() > TEXT - 8 && analysis.ends_with('\u{2026}'));
        assert_eq!(bounded.plan.as_deref(), Some("short"));
        assert!(bounded.rid.is_some_and(|rid| rid.len() <= KEYS));
    }

    #[test]
    fn what_is_not_known_is_none() {
        let work = Work::default();
        assert_eq!((work.since(), work.context_share(), work.is_exact()), (None, None, false));
        assert!(work.tokens.is_unknown());
        let full = Work { context: (Some(61), Some(0)), ..Work::default() };
        assert_eq!(full.context_share(), None);
        // A clock that was set back.
        let since = Stamp::from_second(2000).unwrap_or_default();
        let ahead = Work { doing: Doing::Verifying { since }, ..Work::default() };
        assert_eq!(ahead.seconds(Stamp::UNIX_EPOCH), Some(0.0));
    }
}
