//! What a trajectory is made of. What its validator forbids can not be said: a step of the harness or of
//! the task has no tool calls, a result can only name a call of its own step, an attachment has a type
//! that is known.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::harbor::write::result::Utc;
use crate::job::Stamp;

/// Further fields, by name.
pub type Extra = Map<String, Value>;

/// The version that is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Version {
    /// The newest that Harbor 0.21 takes for valid. It has no sound.
    #[serde(rename = "ATIF-v1.7")]
    V1_7,
    /// The newest, of Harbor 0.26.
    #[default]
    #[serde(rename = "ATIF-v1.8")]
    V1_8,
}

/// What stands before the steps, and does not change.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Head {
    /// The version.
    #[serde(rename = "schema_version")]
    pub version: Version,
    /// The run; those that work on its behalf name themselves after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// This very document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectory_id: Option<String>,
    /// Who worked.
    pub agent: Agent,
}

/// Who worked.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Its version, `unknown` where it has none.
    pub version: String,
    /// The model as the operator named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// Functions that the model was offered, as OpenAI describes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_definitions: Vec<Value>,
    /// `parser` and whatever else there is to say.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

/// What stands behind the steps: written anew every time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Tail {
    /// What a reader should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Sums over the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_metrics: Option<FinalMetrics>,
    /// The file that goes on from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_trajectory_ref: Option<String>,
    /// Whatever else.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

/// Sums over a trajectory. Unknown is None, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct FinalMetrics {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_cached_tokens: Option<u64>,
    #[serde(skip_serializing_if = "no_number")]
    pub total_cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

/// One step. Its number is given when it is written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// When it was.
    pub timestamp: Option<Stamp>,
    /// Who it is by.
    pub by: By,
    /// What was said.
    pub message: Content,
    /// What came back.
    pub observation: Vec<Outcome>,
    /// It was copied from an earlier trajectory: no episode of this one.
    pub copied: bool,
    /// Whatever else.
    pub extra: Extra,
}

/// Who a step is by.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum By {
    /// The harness.
    System,
    /// The task.
    #[default]
    User,
    /// The agent, with what only it has.
    Agent(Box<Turn>),
}

/// What a step of the agent has besides its message.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// The model, by the server's word.
    pub model_name: Option<String>,
    /// How much it was to think.
    pub reasoning_effort: Option<String>,
    /// What it thought.
    pub reasoning_content: Option<String>,
    /// What it called.
    pub tool_calls: Vec<ToolCall>,
    /// Tokens and cost.
    pub metrics: Option<Metrics>,
    /// Calls of the model that this step took.
    pub llm_call_count: Option<std::num::NonZeroU32>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ToolCall {
    /// A name that no other call of the step has.
    #[serde(rename = "tool_call_id")]
    pub id: String,
    /// What was called.
    #[serde(rename = "function_name")]
    pub function: String,
    /// With what.
    pub arguments: Extra,
    /// Whatever else.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Which call it answers, by its place among the step's own calls, from 0; one that is not there is
    /// left out.
    pub of_call: Option<usize>,
    /// What it was.
    pub content: Option<Content>,
    /// Trajectories of agents that worked on this agent's behalf.
    pub subagents: Vec<SubagentRef>,
    /// Whatever else.
    pub extra: Extra,
}

/// Another trajectory, in a file beside this one.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct SubagentRef {
    /// Its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Its file, relative to `agent/`.
    #[serde(rename = "trajectory_path")]
    pub path: String,
    /// `summary`: what it did.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

/// Tokens and cost of a step. Unknown is None.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Metrics {
    /// The whole prompt's, those from the cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Of the prompt, from the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// US dollars.
    #[serde(skip_serializing_if = "no_number")]
    pub cost_usd: Option<f64>,
    /// The prompt's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u64>>,
    /// The answer's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_token_ids: Option<Vec<u64>>,
    /// Their logarithmic probabilities; left out as a whole where JSON has no word for one of them.
    #[serde(skip_serializing_if = "no_numbers")]
    pub logprobs: Option<Vec<f64>>,
    /// `reasoning_tokens` and whatever else.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

fn no_number(number: &Option<f64>) -> bool {
    !number.is_some_and(f64::is_finite)
}

fn no_numbers(numbers: &Option<Vec<f64>>) -> bool {
    !numbers.as_ref().is_some_and(|list| list.iter().all(|n| n.is_finite()))
}

/// A text, or parts of which some are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// A text.
    Text(String),
    /// Texts and attachments.
    Parts(Vec<Part>),
}

impl Default for Content {
    fn default() -> Content {
        Content::Text(String::new())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Text(text.to_string())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Text(text)
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A text.
    Text(String),
    /// A picture in a file or at an address.
    Image(ImageType, String),
    /// Sound in a file or at an address, with its seconds where they are known. Not in version 1.7.
    Audio(AudioType, String, Option<f64>),
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Source<'a, T: Serialize> {
            media_type: T,
            path: &'a str,
            #[serde(skip_serializing_if = "no_number")]
            duration_sec: Option<f64>,
        }
        let mut map = to.serialize_map(Some(2))?;
        match self {
            Part::Text(text) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            Part::Image(media_type, path) => {
                map.serialize_entry("type", "image")?;
                map.serialize_entry("source", &Source { media_type, path, duration_sec: None })?;
            }
            Part::Audio(media_type, path, seconds) => {
                map.serialize_entry("type", "audio")?;
                let duration_sec = seconds.filter(|s| *s >= 0.0);
                map.serialize_entry("source", &Source { media_type, path, duration_sec })?;
            }
        }
        map.end()
    }
}

/// What a picture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub enum ImageType {
    #[serde(rename = "image/jpeg")]
    Jpeg,
    #[serde(rename = "image/png")]
    Png,
    #[serde(rename = "image/gif")]
    Gif,
    #[serde(rename = "image/webp")]
    Webp,
}

/// What sound is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub enum AudioType {
    #[serde(rename = "audio/wav")]
    Wav,
    #[serde(rename = "audio/mpeg")]
    Mpeg,
    #[serde(rename = "audio/mp4")]
    Mp4,
    #[serde(rename = "audio/aac")]
    Aac,
    #[serde(rename = "audio/ogg")]
    Ogg,
    #[serde(rename = "audio/flac")]
    Flac,
    #[serde(rename = "audio/webm")]
    Webm,
    #[serde(rename = "audio/aiff")]
    Aiff,
}

impl Step {
    /// The task speaks.
    pub fn user(message: impl Into<Content>) -> Step {
        Step { timestamp: Some(Stamp::now()), message: message.into(), ..Step::default() }
    }

    /// The harness speaks.
    pub fn system(message: impl Into<Content>) -> Step {
        Step { by: By::System, ..Step::user(message) }
    }

    /// The agent speaks.
    pub fn agent(message: impl Into<Content>, turn: Turn) -> Step {
        Step { by: By::Agent(Box::new(turn)), ..Step::user(message) }
    }

    /// The harness has put a summary in the place of the conversation, which these have made.
    pub fn compaction(message: impl Into<Content>, made_by: Vec<SubagentRef>) -> Step {
        let mut how = Map::new();
        how.insert("type".to_string(), "compaction".into());
        how.insert("boundary".to_string(), "replace".into());
        let mut step = Step::system(message);
        step.extra.insert("context_management".to_string(), how.into());
        step.observation = vec![Outcome { subagents: made_by, ..Outcome::default() }];
        step
    }

    /// Whether it has a sound in it.
    pub(super) fn sounds(&self) -> bool {
        let sound = |content: &Content| match content {
            Content::Text(_) => false,
            Content::Parts(parts) => parts.iter().any(|part| matches!(part, Part::Audio(..))),
        };
        sound(&self.message) || self.observation.iter().filter_map(|o| o.content.as_ref()).any(sound)
    }
}

/// A step as it is written.
#[derive(Serialize)]
pub(super) struct Written<'a> {
    step_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Utc>,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    message: &'a Content,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_calls: &'a [ToolCall],
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a Metrics>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_copied_context: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    llm_call_count: Option<u32>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra: &'a Extra,
}

#[derive(Serialize)]
struct Observation<'a> {
    results: Vec<WrittenOutcome<'a>>,
}

#[derive(Serialize)]
struct WrittenOutcome<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a Content>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    subagent_trajectory_ref: &'a [SubagentRef],
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra: &'a Extra,
}

impl<'a> Written<'a> {
    /// A step under its number.
    pub(super) fn of(step: &'a Step, step_id: u64) -> Written<'a> {
        let (source, turn) = match &step.by {
            By::System => ("system", None),
            By::User => ("user", None),
            By::Agent(turn) => ("agent", Some(&**turn)),
        };
        let tool_calls = turn.map(|t| &*t.tool_calls).unwrap_or_default();
        let outcome = |outcome: &'a Outcome| WrittenOutcome {
            source_call_id: outcome.of_call.and_then(|n| tool_calls.get(n)).map(|call| &*call.id),
            content: outcome.content.as_ref(),
            subagent_trajectory_ref: &outcome.subagents,
            extra: &outcome.extra,
        };
        let results: Vec<_> = step.observation.iter().map(outcome).collect();
        Written {
            step_id,
            timestamp: step.timestamp.map(Utc),
            source,
            model_name: turn.and_then(|t| t.model_name.as_deref()),
            reasoning_effort: turn.and_then(|t| t.reasoning_effort.as_deref()),
            message: &step.message,
            reasoning_content: turn.and_then(|t| t.reasoning_content.as_deref()),
            tool_calls,
            observation: (!results.is_empty()).then_some(Observation { results }),
            metrics: turn.and_then(|t| t.metrics.as_ref()),
            is_copied_context: step.copied,
            llm_call_count: turn.and_then(|t| t.llm_call_count).map(u32::from),
            extra: &step.extra,
        }
    }
}
