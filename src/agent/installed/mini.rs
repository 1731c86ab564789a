//! The record of mini-swe-agent 2 (`mini-swe-agent-1.1`), read message by message: it is rewritten as the
//! agent works, and long.
//!
//! A system message and the first one of the user become steps of their own; an answer becomes a step of
//! the agent, with its calls; tools' and later users' messages become observations of the step before.
//! Reasoning is what the server gave as such, never the message once more. The cost is shared out by
//! completion tokens, as Harbor does it; a cost of 0 beside tokens is a price that nobody knew.

use std::fmt;
use std::io::Read;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::record::{Author, Used, head_of};
use crate::harbor::write::atif::{By, Content, Extra, Metrics, Outcome, Step, Tail, ToolCall, Turn, Writer};
use crate::harbor::write::{Folder, Scrub, WriteError};
use crate::job::{Stamp, time};

/// Its name in trajectories.
const NAME: &str = "mini-swe-agent";

/// Why a record was not converted.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It is none, or ends before its end.
    #[error("no record of mini-swe-agent: {0}")]
    Record(#[from] serde_json::Error),
    /// The trajectory could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What comes of a record, in its order.
enum Piece {
    Info(Value),
    Message(Value),
    Format(Value),
}

/// Walks through a record.
struct Walk<'a>(&'a mut dyn FnMut(Piece));

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with info and messages")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "info" => (self.0)(Piece::Info(map.next_value()?)),
                "trajectory_format" => (self.0)(Piece::Format(map.next_value()?)),
                "messages" => map.next_value_seed(Messages(self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Messages<'a>(&'a mut dyn FnMut(Piece));

impl<'de> DeserializeSeed<'de> for Messages<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(message) = list.next_element::<Value>()? {
            (self.0)(Piece::Message(message));
        }
        Ok(())
    }
}

fn walk(from: impl Read, each: &mut dyn FnMut(Piece)) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(from);
    Walk(each).deserialize(&mut json)?;
    json.end()
}

/// Usage of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Usage {
    input: u64,
    output: u64,
    cached: Option<u64>,
    reasoning: Option<u64>,
}

/// The usage of a message, of a chat completion or a response; None where it has none.
fn usage(message: &Value) -> Option<Usage> {
    let usage = message.pointer("/extra/response/usage").filter(|u| u.is_object());
    let usage = usage.or_else(|| message.get("usage").filter(|u| u.is_object()))?;
    let number = |paths: [&str; 2]| paths.iter().find_map(|path| usage.pointer(path).and_then(Value::as_u64));
    Some(Usage {
        input: number(["/prompt_tokens", "/input_tokens"])?,
        output: number(["/completion_tokens", "/output_tokens"])?,
        cached: number(["/prompt_tokens_details/cached_tokens", "/input_tokens_details/cached_tokens"]),
        reasoning: number(["/completion_tokens_details/reasoning_tokens", "/output_tokens_details/reasoning_tokens"]),
    })
}

fn is_answer(message: &Value) -> bool {
    message.get("role").and_then(Value::as_str) == Some("assistant")
        || message.get("object").and_then(Value::as_str) == Some("response")
}

/// What a record says of tokens.
///
/// # Errors
/// It is none, or is being written.
pub fn used(from: impl Read) -> Result<Used, serde_json::Error> {
    let (mut out, mut cost, mut calls) = (Used::default(), None, 0_u32);
    walk(from, &mut |piece| match piece {
        Piece::Info(info) => cost = info.pointer("/model_stats/instance_cost").and_then(Value::as_f64),
        Piece::Message(message) if is_answer(&message) => {
            calls = calls.saturating_add(1);
            let Some(usage) = usage(&message) else { return };
            let add = |into: &mut Option<u64>, more: u64| *into = Some(into.unwrap_or(0).saturating_add(more));
            add(&mut out.input, usage.input);
            add(&mut out.output, usage.output);
            usage.cached.into_iter().for_each(|n| add(&mut out.cached, n));
            usage.reasoning.into_iter().for_each(|n| add(&mut out.reasoning, n));
        }
        _ => {}
    })?;
    out.calls = Some(calls);
    out.cost = cost.filter(|c| c.is_finite() && *c > 0.0);
    Ok(out)
}

/// Writes the trajectory of a record.
///
/// # Errors
/// See [`Problem`].
pub fn convert(
    from: impl Read,
    logs: &Arc<Folder>,
    author: &Author,
    used: &Used,
    scrub: &Scrub,
) -> Result<(), Problem> {
    let mut state =
        Converting { author, used, logs, scrub, info: Value::Null, writer: None, held: None, at: 0, failed: None };
    let mut form = None;
    let whole = walk(from, &mut |piece| match piece {
        Piece::Info(info) => state.info = info,
        Piece::Format(text) => form = text.as_str().map(str::to_string),
        Piece::Message(message) => state.message(&message),
    });
    state.release();
    if let Some(failed) = state.failed {
        return Err(failed.into());
    }
    let Some(writer) = state.writer else {
        whole?;
        return Err(Problem::Record(serde::de::Error::custom("no messages")));
    };
    let form = form.unwrap_or_else(|| "unknown format".to_string());
    let mut notes = format!("Made of the record that mini-swe-agent left ({form})");
    if let Err(e) = whole {
        // It was ended while it wrote: what there is of it is worth more than nothing.
        notes.push_str(&format!("; it is not whole: {e}"));
    }
    let final_metrics = Some(used.totals(writer.steps()));
    writer.finish(&Tail { notes: Some(notes), final_metrics, ..Tail::default() })?;
    Ok(())
}

struct Converting<'a> {
    author: &'a Author,
    used: &'a Used,
    logs: &'a Arc<Folder>,
    scrub: &'a Scrub,
    info: Value,
    writer: Option<Writer>,
    /// A step of the agent that observations may still be added to.
    held: Option<Step>,
    at: usize,
    failed: Option<WriteError>,
}

impl Converting<'_> {
    fn message(&mut self, message: &Value) {
        let at = self.at;
        self.at += 1;
        let text = text_of(message.get("content").unwrap_or(&Value::Null));
        let timestamp = timestamp(message);
        match message.get("role").and_then(Value::as_str) {
            _ if is_answer(message) => {
                self.release();
                self.held = Some(self.answer(message, text, timestamp));
            }
            Some("system") => self.step(Step { timestamp, by: By::System, message: text.into(), ..Step::default() }),
            Some("user") if at <= 1 => {
                self.step(Step { timestamp, by: By::User, message: text.into(), ..Step::default() });
            }
            Some("user" | "tool") => self.observe(message, text),
            _ if message.get("type").and_then(Value::as_str) == Some("function_call_output") => {
                let output = message.get("output").or_else(|| message.pointer("/extra/raw_output"));
                self.observe(message, output.map(text_of).unwrap_or_default());
            }
            // How it ended: `exit`.
            Some(_) if !text.is_empty() => self.observe(message, text),
            _ => {}
        }
    }

    fn observe(&mut self, message: &Value, text: String) {
        let Some(step) = &mut self.held else { return };
        let id = ["tool_call_id", "call_id"].iter().find_map(|key| message.get(*key).and_then(Value::as_str));
        let By::Agent(turn) = &step.by else { return };
        let of_call = id.and_then(|id| turn.tool_calls.iter().position(|call| call.id == id));
        step.observation.push(Outcome { of_call, content: Some(Content::Text(text)), ..Outcome::default() });
    }

    fn answer(&self, message: &Value, text: String, timestamp: Option<Stamp>) -> Step {
        let number = self.writer.as_ref().map_or(0, Writer::steps) + 1;
        let (mut text, mut calls) = (text, Vec::new());
        let mut thoughts: Vec<String> =
            message.get("reasoning_content").and_then(Value::as_str).map(str::to_string).into_iter().collect();
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let id = call.get("id").and_then(Value::as_str);
            let function = call.pointer("/function/name").and_then(Value::as_str);
            calls.push(tool_call(id, function, call.pointer("/function/arguments"), number, calls.len()));
        }
        // A response: its parts are a list.
        for item in message.get("output").and_then(Value::as_array).into_iter().flatten() {
            let word = |key: &str| item.get(key).and_then(Value::as_str);
            match word("type") {
                Some("message") => {
                    let more = text_of(item.get("content").unwrap_or(&Value::Null));
                    text = if text.is_empty() { more } else { format!("{text}\n{more}") };
                }
                Some("reasoning") => {
                    let parts = ["summary", "content"].iter().filter_map(|key| item.get(*key)).map(text_of);
                    thoughts.extend(parts.filter(|t| !t.is_empty()));
                }
                Some("function_call") => {
                    let id = word("call_id").or(word("id"));
                    calls.push(tool_call(id, word("name"), item.get("arguments"), number, calls.len()));
                }
                _ => {}
            }
        }
        let turn = Turn {
            model_name: self.info.pointer("/config/model/model_name").and_then(Value::as_str).map(str::to_string),
            reasoning_content: Some(thoughts.join("\n")).filter(|t| !t.is_empty()),
            tool_calls: calls,
            metrics: usage(message).map(|usage| self.metrics(usage)),
            llm_call_count: NonZeroU32::new(1),
            ..Turn::default()
        };
        Step { timestamp, by: By::Agent(Box::new(turn)), message: text.into(), ..Step::default() }
    }

    fn metrics(&self, usage: Usage) -> Metrics {
        let share = || {
            let (cost, all) = (self.used.cost?, self.used.output.filter(|n| *n > 0)?);
            Some(cost * usage.output as f64 / all as f64)
        };
        let mut extra = Extra::new();
        if let Some(reasoning) = usage.reasoning {
            extra.insert("reasoning_tokens".to_string(), reasoning.into());
        }
        Metrics {
            prompt_tokens: Some(usage.input),
            completion_tokens: Some(usage.output),
            cached_tokens: usage.cached,
            cost_usd: share().filter(|c| *c > 0.0),
            extra,
            ..Metrics::default()
        }
    }

    /// Writes the step that was held.
    fn release(&mut self) {
        if let Some(step) = self.held.take() {
            self.step(step);
        }
    }

    fn step(&mut self, step: Step) {
        if self.failed.is_some() {
            return;
        }
        let version = self.info.get("mini_version").and_then(Value::as_str).map(str::to_string);
        let version = version.or_else(|| self.author.version.clone());
        let pushed = match &mut self.writer {
            Some(writer) => writer.push(&step).map(drop),
            none => {
                let head = head_of(NAME, version, self.author);
                Writer::begin(Arc::clone(self.logs), crate::harbor::write::atif::FILE, &head, self.scrub)
                    .and_then(|writer| none.insert(writer).push(&step).map(drop))
            }
        };
        self.failed = pushed.err();
    }
}

fn tool_call(id: Option<&str>, function: Option<&str>, arguments: Option<&Value>, step: u64, at: usize) -> ToolCall {
    let mut wrapped = Extra::new();
    let arguments = match arguments {
        Some(Value::Object(map)) => map.clone(),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(map)) => map,
            _ => {
                wrapped.insert("command".to_string(), text.clone().into());
                wrapped
            }
        },
        Some(other) => {
            wrapped.insert("command".to_string(), other.to_string().into());
            wrapped
        }
        None => wrapped,
    };
    let id = id.map_or_else(|| format!("call_{step}_{}", at + 1), str::to_string);
    ToolCall { id, function: function.unwrap_or("bash").to_string(), arguments, ..ToolCall::default() }
}

/// The text of a message: itself, or its parts' one below the other.
fn text_of(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let part = |part: &Value| match part.get("text").and_then(Value::as_str).or_else(|| part.as_str()) {
                Some(text) => text.to_string(),
                None => part.to_string(),
            };
            parts.iter().map(part).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

fn timestamp(message: &Value) -> Option<Stamp> {
    let paths = ["/created_at", "/timestamp", "/completed_at", "/extra/timestamp"];
    paths.iter().find_map(|path| match message.pointer(path)? {
        Value::String(text) => time::parse(text).map(|read| read.at),
        other => {
            let seconds = other.as_f64().filter(|s| (0.0..1e11).contains(s))?;
            time::from_unix(seconds.trunc() as i64, (seconds.fract() * 1e9) as i64)
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_summed_over_both_kinds_of_answers() {
        let chat = json!({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}});
        let response = json!({"input_tokens": 7, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}});
        let record = json!({
            "info": {"model_stats": {"instance_cost": 0.5}},
            "messages": [
                {"role": "assistant", "extra": {"response": {"usage": chat}}},
                {"object": "response", "usage": response},
                {"role": "assistant", "extra": "odd"},
                7,
            ],
        });
        let used = used(record.to_string().as_bytes()).unwrap();
        assert_eq!((used.input, used.output, used.cached, used.reasoning), (Some(17), Some(5), Some(4), Some(1)));
        assert_eq!((used.cost, used.calls), (Some(0.5), Some(3)));
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        for text in ["", "[]", "{\"messages\": 3}", "{\"messages\": [{}", "{} {}", "nul"] {
            assert!(used(text.as_bytes()).is_err(), "{text}");
        }
        let deep = format!("{{\"messages\": [{}", "[".repeat(100_000));
        assert!(used(deep.as_bytes()).is_err());
        assert_eq!(used(&b"{}"[..]).unwrap(), Used { calls: Some(0), ..Used::default() });
    }
}
