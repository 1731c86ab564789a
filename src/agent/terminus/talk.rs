//! The conversation with the model, and how much of its context it takes.
//!
//! Measured, not guessed: after an answer the server has said how many tokens the prompt and the answer
//! had. What it has not seen yet, or not in this form, is estimated from what its bytes took so far.

use crate::model::chat::{Message, Reply, Role, Usage};

/// Tokens for a byte where nothing was measured yet.
const DENSITY: f64 = 0.3;
/// Tokens of a message beside its text.
const FRAME: u64 = 4;

/// A conversation.
#[derive(Debug, Clone, Default)]
pub struct Talk {
    messages: Vec<Message>,
    interleaved: bool,
    /// Tokens of the whole conversation, where the server has told for exactly this one.
    measured: Option<u64>,
    /// Tokens for a byte, by the last prompt.
    density: Option<f64>,
}

/// A message.
pub fn message(role: Role, content: &str) -> Message {
    Message { role, content: content.to_string(), reasoning_content: None }
}

fn bytes(message: &Message) -> u64 {
    (message.content.len() + message.reasoning_content.as_ref().map_or(0, String::len)) as u64
}

impl Talk {
    /// An empty one, which carries what the model thought or not.
    pub fn new(interleaved: bool) -> Talk {
        Talk { interleaved, ..Talk::default() }
    }

    /// What was said.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What was said, and this.
    pub fn with(&self, prompt: &str) -> Vec<Message> {
        let mut all = self.messages.clone();
        all.push(message(Role::User, prompt));
        all
    }

    /// The prompt was sent and answered.
    pub fn answered(&mut self, prompt: &str, reply: &Reply) {
        self.messages.push(message(Role::User, prompt));
        let before: u64 = self.messages.iter().map(bytes).sum();
        let reasoning = reply.reasoning.clone().filter(|text| self.interleaved && !text.is_empty());
        self.messages.push(Message { reasoning_content: reasoning, ..message(Role::Assistant, &reply.content) });
        self.measured = reply.usage.map(|usage| self.taken(&usage));
        self.learn(before, reply.usage);
    }

    /// Tokens of the conversation after an answer with this usage.
    fn taken(&self, usage: &Usage) -> u64 {
        let dropped = if self.interleaved { 0 } else { usage.reasoning.unwrap_or(0) };
        usage.prompt + usage.completion.saturating_sub(dropped)
    }

    fn learn(&mut self, bytes: u64, usage: Option<Usage>) {
        if let Some(usage) = usage.filter(|u| u.prompt > 0 && bytes > 0) {
            // A chat template adds its own; a prompt that is short says little.
            self.density = Some((usage.prompt as f64 / bytes as f64).clamp(0.05, 2.0));
        }
    }

    /// Another conversation takes the place of this one.
    pub fn replace(&mut self, messages: Vec<Message>) {
        self.messages = messages;
        self.measured = None;
    }

    /// Tokens of these messages, estimated.
    pub fn estimate(&self, messages: &[Message]) -> u64 {
        let density = self.density.unwrap_or(DENSITY);
        messages.iter().map(|m| (bytes(m) as f64 * density).ceil() as u64 + FRAME).sum()
    }

    /// Tokens of the conversation.
    pub fn tokens(&self) -> u64 {
        self.measured.unwrap_or_else(|| self.estimate(&self.messages))
    }

    /// Drops the last question and its answer until so many tokens of the limit are free; at least one
    /// message stays. Gives how many messages were dropped.
    pub fn unwind(&mut self, limit: u64, free: u64) -> usize {
        let before = self.messages.len();
        while self.messages.len() > 1 && self.tokens().saturating_add(free) > limit {
            if !self.pop() {
                // An answer that takes all the room alone.
                self.messages.truncate(1);
                self.measured = None;
            }
        }
        before - self.messages.len()
    }

    /// Drops the last question and its answer, if something stays; whether it did.
    pub fn pop(&mut self) -> bool {
        let there = self.messages.len();
        if there > 2 {
            self.messages.truncate(there - 2);
            self.measured = None;
        }
        self.messages.len() < there
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::chat::Finish;

    fn reply(content: &str, prompt: u64, completion: u64, reasoning: Option<u64>) -> Reply {
        Reply {
            content: content.to_string(),
            reasoning: Some("thought".to_string()),
            finish: Finish::Stop,
            usage: Some(Usage { prompt, cached: None, completion, reasoning }),
            model: None,
            id: None,
            took: Duration::ZERO,
            first: None,
            parts: 0,
            tries: 1,
        }
    }

    #[test]
    fn what_was_measured_counts_and_the_rest_is_estimated_by_it() {
        let mut talk = Talk::new(false);
        assert_eq!(talk.tokens(), 0);
        talk.answered(&"x".repeat(1000), &reply("y", 500, 80, Some(60)));
        assert_eq!(talk.tokens(), 520);
        talk.answered("z", &reply(&"y".repeat(10), 600, 80, None));
        assert_eq!((talk.tokens(), talk.messages().len()), (680, 4));
        assert!(talk.messages().iter().all(|m| m.reasoning_content.is_none()));
        // 1,002 bytes were 600 tokens.
        talk.replace(vec![message(Role::User, &"x".repeat(1002))]);
        assert!((600..=606).contains(&talk.tokens()), "{}", talk.tokens());
        let mut carried = Talk::new(true);
        carried.answered("x", &reply("y", 500, 80, Some(60)));
        assert_eq!(carried.tokens(), 580);
        assert_eq!(carried.messages().last().and_then(|m| m.reasoning_content.as_deref()), Some("thought"));
    }

    #[test]
    fn unwinding_frees_what_is_asked_and_keeps_the_first_message() {
        let mut talk = Talk::new(false);
        for turn in 1..=5 {
            talk.answered(&"x".repeat(1000), &reply(&"y".repeat(1000), turn * 1000, 500, None));
        }
        assert_eq!((talk.tokens(), talk.messages().len()), (5500, 10));
        let dropped = talk.unwind(6000, 4000);
        assert!(talk.tokens() <= 2000 && dropped == 8, "{dropped} {}", talk.tokens());
        assert_eq!((talk.pop(), talk.messages().len()), (false, 2));
        assert_eq!((talk.unwind(100, 4000), talk.messages().len()), (1, 1));
        assert_eq!(talk.unwind(100, 4000), 0);
    }
}
