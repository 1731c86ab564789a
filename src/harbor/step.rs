//! One step of a trajectory, read on demand.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{self, FileProblem, FromMap, List, Object, Scalar, object};
use super::trajectory::Source;
use crate::job::{Stamp, time};

/// Items kept of a step's lists.
const ITEMS: usize = 2000;

/// One step of a trajectory. Texts are as in the file; clean and mask them before they are shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// `step_id`.
    pub step_id: Option<u32>,
    /// Who it is by.
    pub source: Source,
    /// When it was recorded.
    pub timestamp: Option<Stamp>,
    /// Model of this step.
    pub model: Option<String>,
    /// The message; parts that are no text stand in brackets.
    pub message: String,
    /// The model's reasoning, where the server gives it apart.
    pub reasoning: Option<String>,
    /// What the agent called.
    pub tool_calls: Vec<ToolCall>,
    /// What came back.
    pub observations: Vec<Observation>,
    /// Tokens and cost.
    pub metrics: StepMetrics,
    /// Copied from an earlier trajectory.
    pub is_copied_context: bool,
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolCall {
    /// Its id, which an observation may name.
    pub id: Option<String>,
    /// Function, for Terminus-2 `bash_command` or `mark_task_complete`.
    pub function: String,
    /// `arguments.keystrokes`: what is typed into the terminal.
    pub keystrokes: Option<String>,
    /// `arguments.duration`: seconds that are waited.
    pub duration: Option<f64>,
    /// All arguments, as JSON text.
    pub arguments: String,
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    /// The tool call that it answers, where it is said.
    pub call_id: Option<String>,
    /// Its text.
    pub content: String,
    /// Trajectories of agents that worked on this agent's behalf.
    pub subagents: Vec<SubagentRef>,
}

/// A reference to another trajectory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubagentRef {
    /// Its `session_id`.
    pub session_id: Option<String>,
    /// Its file, relative to `agent/`; not to be followed without [`super::Dir`].
    pub path: Option<String>,
}

/// A step's metrics; None where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepMetrics {
    /// Prompt tokens, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Cached tokens.
    pub cached_tokens: Option<u64>,
    /// Completion tokens.
    pub completion_tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
}

object!(RawPart<'a> {
    kind: Scalar<'a> = "type",
    text: Scalar<'a> = "text",
    source: Object<'a, RawMedia<'a>> = "source",
});

object!(RawMedia<'a> {
    media_type: Scalar<'a> = "media_type",
    path: Scalar<'a> = "path",
});

object!(RawCall<'a> {
    id: Scalar<'a> = "tool_call_id",
    function_name: Scalar<'a> = "function_name",
    arguments: Option<&'a RawValue> = "arguments",
});

object!(RawArguments<'a> {
    keystrokes: Scalar<'a> = "keystrokes",
    duration: Scalar<'a> = "duration",
});

object!(RawRef<'a> {
    session_id: Scalar<'a> = "session_id",
    path: Scalar<'a> = "trajectory_path",
});

object!(RawOutcome<'a> {
    call_id: Scalar<'a> = "source_call_id",
    content: Content<'a> = "content",
    subagents: Refs<'a> = "subagent_trajectory_ref",
});

object!(RawObservation<'a> {
    results: List<Object<'a, RawOutcome<'a>>, ITEMS> = "results",
});

object!(RawMetrics<'a> {
    prompt_tokens: Scalar<'a> = "prompt_tokens",
    cached_tokens: Scalar<'a> = "cached_tokens",
    completion_tokens: Scalar<'a> = "completion_tokens",
    cost_usd: Scalar<'a> = "cost_usd",
});

object!(RawStep<'a> {
    step_id: Scalar<'a> = "step_id",
    source: Scalar<'a> = "source",
    timestamp: Scalar<'a> = "timestamp",
    model_name: Scalar<'a> = "model_name",
    message: Content<'a> = "message",
    reasoning: Scalar<'a> = "reasoning_content",
    tool_calls: List<Object<'a, RawCall<'a>>, ITEMS> = "tool_calls",
    observation: Object<'a, RawObservation<'a>> = "observation",
    metrics: Object<'a, RawMetrics<'a>> = "metrics",
    is_copied_context: Scalar<'a> = "is_copied_context",
});

/// A string, or a list of parts.
#[derive(Debug, Default)]
struct Content<'a> {
    text: Scalar<'a>,
    parts: Vec<Object<'a, RawPart<'a>>>,
}

impl<'de> Deserialize<'de> for Content<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Content<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or parts")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Content::default())
            }
            fn visit_bool<E>(self, v: bool) -> Result<Self::Value, E> {
                Ok(Content { text: Scalar::Bool(v), parts: Vec::new() })
            }
            fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
                Ok(Content { text: Scalar::Int(v), parts: Vec::new() })
            }
            fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
                Ok(Content { text: Scalar::Uint(v), parts: Vec::new() })
            }
            fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
                Ok(Content { text: Scalar::Float(v), parts: Vec::new() })
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Content { text: Scalar::Str(v.into()), parts: Vec::new() })
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Content { text: Scalar::Str(v.to_string().into()), parts: Vec::new() })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Ok(Content { text: Scalar::Absent, parts: vec![Object::Some(RawPart::from_map(map)?)] })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let list: List<Object<'de, RawPart<'de>>, ITEMS> =
                    List::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))?;
                Ok(Content { text: Scalar::Absent, parts: list.items })
            }
        }
        de.deserialize_any(V)
    }
}

impl Content<'_> {
    fn read(&self) -> String {
        match &self.text {
            Scalar::Absent => {}
            Scalar::Str(s) => return s.to_string(),
            other => return other.shown(),
        }
        let parts = self.parts.iter().map(|part| match part {
            Object::Other(other) => other.str().map_or_else(|| other.shown(), str::to_string),
            Object::Some(part) => match part.text.str() {
                Some(text) => text.to_string(),
                None => {
                    let media = part.source.get();
                    let kind = media.and_then(|m| m.media_type.text()).or(part.kind.text()).unwrap_or("part");
                    match media.and_then(|m| m.path.text()) {
                        Some(path) => format!("[{kind} {path}]"),
                        None => format!("[{kind}]"),
                    }
                }
            },
        });
        parts.collect::<Vec<_>>().join("\n")
    }
}

/// One reference, or a list of them.
#[derive(Debug, Default)]
struct Refs<'a>(Vec<Object<'a, RawRef<'a>>>);

impl<'de> Deserialize<'de> for Refs<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let Some(raw) = Option::<&'de RawValue>::deserialize(de)? else { return Ok(Refs::default()) };
        let text = raw.get().as_bytes();
        let one = json::document::<Object<'de, RawRef<'de>>>(text).map_err(serde::de::Error::custom)?;
        if one.get().is_some() {
            return Ok(Refs(vec![one]));
        }
        let list = json::document::<List<Object<'de, RawRef<'de>>, ITEMS>>(text).map_err(serde::de::Error::custom)?;
        Ok(Refs(list.items))
    }
}

/// Reads one step.
pub(super) fn parse(bytes: &[u8]) -> Result<Step, FileProblem> {
    let (step, _) =
        json::lenient(bytes, |body| json::document::<Object<'_, RawStep<'_>>>(body).map(|root| root.get().map(read)))?;
    step.ok_or_else(|| FileProblem::foreign("the step is no object"))
}

fn owned(value: &Scalar<'_>) -> Option<String> {
    value.text().map(str::to_string)
}

fn read(raw: &RawStep<'_>) -> Step {
    let metrics = raw.metrics.get();
    let results = raw.observation.get().map(|o| o.results.items.as_slice()).unwrap_or_default();
    Step {
        step_id: raw.step_id.u32(),
        source: raw.source.str().map(Source::of).unwrap_or_default(),
        timestamp: raw.timestamp.str().and_then(time::parse).map(|t| t.at),
        model: owned(&raw.model_name),
        message: raw.message.read(),
        reasoning: owned(&raw.reasoning),
        tool_calls: raw.tool_calls.items.iter().filter_map(Object::get).map(call).collect(),
        observations: results
            .iter()
            .filter_map(Object::get)
            .map(|r| Observation {
                call_id: owned(&r.call_id),
                content: r.content.read(),
                subagents: r
                    .subagents
                    .0
                    .iter()
                    .filter_map(Object::get)
                    .map(|s| SubagentRef { session_id: owned(&s.session_id), path: owned(&s.path) })
                    .collect(),
            })
            .collect(),
        metrics: StepMetrics {
            prompt_tokens: metrics.and_then(|m| m.prompt_tokens.u64()),
            cached_tokens: metrics.and_then(|m| m.cached_tokens.u64()),
            completion_tokens: metrics.and_then(|m| m.completion_tokens.u64()),
            cost_usd: metrics.and_then(|m| m.cost_usd.f64()),
        },
        is_copied_context: raw.is_copied_context.bool().unwrap_or(false),
    }
}

fn call(raw: &RawCall<'_>) -> ToolCall {
    let arguments = raw.arguments.map(RawValue::get).unwrap_or_default();
    let typed = json::document::<Object<'_, RawArguments<'_>>>(arguments.as_bytes()).ok();
    let typed = typed.as_ref().and_then(Object::get);
    ToolCall {
        id: owned(&raw.id),
        function: raw.function_name.str().unwrap_or("-").to_string(),
        keystrokes: typed.and_then(|a| a.keystrokes.str()).map(str::to_string),
        duration: typed.and_then(|a| a.duration.f64()),
        arguments: arguments.to_string(),
    }
}

/// Terminus-2's `Analysis: …\nPlan: …`, taken apart; None for any other message.
pub fn split_message(message: &str) -> Option<(&str, &str)> {
    let rest = message.trim_start().strip_prefix("Analysis:")?;
    let (analysis, plan) = rest.split_once("\nPlan:")?;
    Some((analysis.trim(), plan.trim()))
}
