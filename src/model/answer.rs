//! An answer as it comes: parts of a stream, or the whole of it.

use serde_json::Value;

use super::chat::{Finish, Usage};
use super::error::Spent;
use crate::job::text::{clean, mask_secrets};

/// Most text of one answer, in bytes: 16 million tokens.
const MOST: usize = 64 << 20;
/// Longest name that a server gives a model, a request or a reason, in characters.
const NAME: usize = 200;

/// Why an answer can not be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bad {
    /// The server ended it.
    Aborted(String),
    /// It is a failure: its body.
    Error(Value),
    /// Not what the protocol says.
    Shape,
    /// Longer than anybody wants.
    Endless,
}

/// What one part held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) reasoning: bool,
    pub(super) answer: bool,
}

/// What came so far.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) finish: Option<Finish>,
    pub(super) usage: Option<Usage>,
    pub(super) model: Option<String>,
    pub(super) id: Option<String>,
    refusal: String,
    parts: u64,
    /// Parts, and their characters, since the server last counted.
    uncounted: (u64, u64),
}

impl Gathered {
    /// Takes a part of a stream (`delta`) or the whole answer (`message`).
    pub(super) fn take(&mut self, mut value: Value, whole: bool) -> Result<Heard, Bad> {
        if is_error(&value) {
            return Err(Bad::Error(value));
        }
        let mut heard = Heard::default();
        name(&mut self.model, &value, "model");
        name(&mut self.id, &value, "id");
        let usage = value.get("usage").and_then(read_usage);
        let Some(choices) = value.get_mut("choices").and_then(Value::as_array_mut) else {
            // Some servers tell their usage, or say hello, in a document of its own.
            self.count(usage);
            return if usage.is_some() || (!whole && value.is_object()) { Ok(heard) } else { Err(Bad::Shape) };
        };
        if whole && choices.is_empty() {
            return Err(Bad::Shape);
        }
        let mut ended = None;
        for choice in choices.iter_mut().filter(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0)
        {
            ended = choice.get("finish_reason").and_then(Value::as_str).map(str::to_string).or(ended);
            let key = if choice.get("delta").is_some_and(Value::is_object) { "delta" } else { "message" };
            let Some(said) = choice.get_mut(key) else { continue };
            let mut reasoning = text(said.get_mut("reasoning_content"));
            if reasoning.is_empty() {
                // vLLM and OpenRouter call it so; some send both.
                reasoning = text(said.get_mut("reasoning"));
            }
            let content = text(said.get_mut("content"));
            self.refusal.push_str(&text(said.get_mut("refusal")));
            heard.reasoning |= !reasoning.is_empty();
            heard.answer |= !content.is_empty();
            self.uncounted.1 += chars(&reasoning) + chars(&content);
            append(&mut self.reasoning, reasoning);
            append(&mut self.content, content);
        }
        let new = u64::from(heard.reasoning) + u64::from(heard.answer);
        self.parts += new;
        self.uncounted.0 += new;
        self.count(usage);
        if self.content.len() + self.reasoning.len() + self.refusal.len() > MOST {
            return Err(Bad::Endless);
        }
        if let Some(reason) = ended.filter(|reason| !reason.is_empty()) {
            self.finish = Some(match reason.as_str() {
                "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => Finish::Stop,
                "length" | "max_tokens" => Finish::Length,
                "content_filter" => Finish::Filtered,
                "abort" | "aborted" | "error" | "cancelled" => return Err(Bad::Aborted(safe_name(&reason))),
                other => Finish::Other(safe_name(other)),
            });
        }
        Ok(heard)
    }

    /// Nothing came but, at most, a role.
    pub(super) fn is_empty(&self) -> bool {
        self.parts == 0 && self.finish.is_none() && self.usage.is_none() && self.refusal.is_empty()
    }

    /// Parts with text.
    pub(super) fn parts(&self) -> u64 {
        self.parts
    }

    /// The text, or what the model says instead of one.
    pub(super) fn take_content(&mut self) -> String {
        if self.content.is_empty() { std::mem::take(&mut self.refusal) } else { std::mem::take(&mut self.content) }
    }

    /// What was generated, should the answer come no further.
    pub(super) fn spent(&self) -> Spent {
        let (parts, chars) = self.uncounted;
        // English text has some four characters a token; a part is a token or more.
        Spent { usage: self.usage, parts, estimated: parts.max(chars.div_ceil(4)) }
    }

    fn count(&mut self, usage: Option<Usage>) {
        if usage.is_some() {
            self.usage = usage;
            self.uncounted = (0, 0);
        }
    }
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

fn append(to: &mut String, text: String) {
    if to.is_empty() { *to = text } else { to.push_str(&text) }
}

/// A name, safe to show.
pub(super) fn safe_name(name: &str) -> String {
    let short: String = name.chars().take(NAME).collect();
    clean(&mask_secrets(&short)).into_owned()
}

fn name(field: &mut Option<String>, value: &Value, key: &str) {
    if field.is_none() {
        *field = value.get(key).and_then(Value::as_str).filter(|name| !name.is_empty()).map(safe_name);
    }
}

/// A text, or a list of parts with texts.
fn text(value: Option<&mut Value>) -> String {
    match value {
        Some(Value::String(text)) => std::mem::take(text),
        Some(Value::Array(parts)) => parts.iter_mut().map(|part| text(part.get_mut("text"))).collect(),
        _ => String::new(),
    }
}

/// A failure that came with status 200, or amid a stream.
pub(super) fn is_error(value: &Value) -> bool {
    let object = value.get("object").and_then(Value::as_str);
    let error = value.get("error").is_some_and(|error| !error.is_null() && error != &Value::Bool(false));
    error || object == Some("error")
}

/// `usage` of an answer; None unless it says both what was asked and what was generated.
fn read_usage(usage: &Value) -> Option<Usage> {
    let number = |value: Option<&Value>| value.and_then(Value::as_u64);
    let detail = |of: &str, key: &str| number(usage.get(of).and_then(|details| details.get(key)));
    Some(Usage {
        prompt: number(usage.get("prompt_tokens"))?,
        completion: number(usage.get("completion_tokens"))?,
        cached: detail("prompt_tokens_details", "cached_tokens")
            .or_else(|| number(usage.get("prompt_cache_hit_tokens")))
            .or_else(|| number(usage.get("cached_tokens"))),
        // SGLang has it at the top.
        reasoning: detail("completion_tokens_details", "reasoning_tokens")
            .or_else(|| number(usage.get("reasoning_tokens"))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(delta: Value) -> Value {
        json!({"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    #[test]
    fn parts_of_every_shape_make_one_answer() {
        let mut all = Gathered::default();
        let heard = |reasoning, answer| Ok(Heard { reasoning, answer });
        assert_eq!(
            all.take(part(json!({"role": "assistant", "content": "", "reasoning_content": null})), false),
            heard(false, false)
        );
        assert!(all.is_empty());
        assert_eq!(all.take(part(json!({"reasoning_content": "a"})), false), heard(true, false));
        assert_eq!(all.take(part(json!({"reasoning": "b"})), false), heard(true, false));
        // Both: the same said twice.
        assert_eq!(all.take(part(json!({"reasoning": "c", "reasoning_content": "c"})), false), heard(true, false));
        assert_eq!(all.take(part(json!({"content": [{"type": "text", "text": "d"}]})), false), heard(false, true));
        assert_eq!(
            all.take(json!({"choices": [{"index": 1, "delta": {"content": "other"}}]}), false),
            heard(false, false)
        );
        assert_eq!(all.take(json!({"choices": null}), false), heard(false, false));
        assert_eq!(
            all.take(json!({"choices": [{"finish_reason": "length"}], "usage": null}), false),
            heard(false, false)
        );
        assert_eq!((&*all.reasoning, &*all.content, &all.finish), ("abc", "d", &Some(Finish::Length)));
        assert_eq!(all.spent(), Spent { usage: None, parts: 4, estimated: 4 });
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 16, "completion_tokens": 6, "prompt_tokens_details": null,
            "completion_tokens_details": null, "reasoning_tokens": 2}});
        assert_eq!(all.take(usage, false), heard(false, false));
        assert_eq!(all.usage, Some(Usage { prompt: 16, cached: None, completion: 6, reasoning: Some(2) }));
        assert_eq!(all.spent(), Spent { usage: all.usage, parts: 0, estimated: 0 });
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let take = |value: Value, whole| Gathered::default().take(value, whole).err();
        let abort = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "abort"}]});
        assert_eq!(take(abort, true), Some(Bad::Aborted("abort".to_string())));
        let error = json!({"error": {"message": "no"}});
        assert_eq!(take(error.clone(), false), Some(Bad::Error(error)));
        for whole in [json!({}), json!([]), json!("x"), json!({"choices": []}), json!({"detail": "Not Found"})] {
            assert_eq!(take(whole.clone(), true), Some(Bad::Shape), "{whole}");
        }
        assert_eq!(take(json!(4), false), Some(Bad::Shape));
    }
}
