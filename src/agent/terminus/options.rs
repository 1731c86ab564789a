//! What can be set of the agent (`--ak`, `agents[].kwargs`): Terminus-2's options by their names, and a
//! few of ours. All of it is looked at before any trial begins, and what is not done here is refused by
//! its name.
//!
//! | option | here |
//! |---|---|
//! | `max_turns` (`max_episodes`, `episodes`) | most episodes |
//! | `suppress_max_turns_warning` | taken, without effect: the limit is no warning here |
//! | `api_base` | base URL with `/v1` |
//! | `temperature`, `reasoning_effort` | sent as they are |
//! | `session_id`, `session_id_headers` | sent as they are |
//! | `enable_summarize`, `proactive_summarization_threshold` | as there, by the real limit and measured usage |
//! | `model_info` | `max_input_tokens`, `max_output_tokens`, `*_cost_per_token`; the lower of this and the server's own limit counts |
//! | `tmux_pane_width`, `tmux_pane_height` | 160 and 40 only |
//! | `record_terminal_session`, `store_all_messages`, `interleaved_thinking` | as there |
//! | `llm_kwargs`, `llm_call_kwargs` | see [`Options::of`] |
//! | `extra_env` | given with `--ae` |
//! | `parser_name` | `json` only |
//! | `llm_backend` | `litellm` only, which means a server that speaks OpenAI's protocol |
//! | `collect_rollout_details`, `use_responses_api`, `trajectory_config` | only switched off |
//! | `max_thinking_tokens` | ours: reasoning tokens after which a call is cut (there: of Anthropic models only) |
//! | `episode_timeout` | ours: seconds after which a call is cut |
//! | `model_retries` | ours: how often a call is made again when the server is away or overloaded (13) |
//! | `stream` | ours: `false` asks for answers in one piece |
//! | `prompt_templates` | ours: `own`, or `harbor` for those of an installed Harbor |

use serde_json::{Map, Value};

use crate::harbor::write::config::AgentConfig;
use crate::job::text::clean;
use crate::model::chat::Sampling;
use crate::terminal::{COLS, ROWS};

/// The options, for messages about one that is not there.
pub const NAMES: [&str; 29] = [
    "api_base",
    "collect_rollout_details",
    "enable_summarize",
    "episode_timeout",
    "episodes",
    "interleaved_thinking",
    "llm_backend",
    "llm_call_kwargs",
    "llm_kwargs",
    "max_episodes",
    "max_thinking_tokens",
    "max_turns",
    "model_info",
    "model_retries",
    "parser_name",
    "proactive_summarization_threshold",
    "prompt_templates",
    "reasoning_effort",
    "record_terminal_session",
    "session_id",
    "session_id_headers",
    "store_all_messages",
    "stream",
    "suppress_max_turns_warning",
    "temperature",
    "tmux_pane_height",
    "tmux_pane_width",
    "trajectory_config",
    "use_responses_api",
];
const EFFORTS: [&str; 8] = ["none", "minimal", "low", "medium", "high", "xhigh", "max", "default"];
/// Fields of a request that may be set by name; others go through `extra_body`.
const BODY: [&str; 15] = [
    "chat_template_kwargs",
    "frequency_penalty",
    "logit_bias",
    "max_completion_tokens",
    "metadata",
    "min_p",
    "presence_penalty",
    "repetition_penalty",
    "response_format",
    "seed",
    "service_tier",
    "stop",
    "top_k",
    "user",
    "verbosity",
];
/// Fields of a request that are not for options to say.
const OURS: [&str; 6] = ["model", "messages", "stream", "stream_options", "n", "tools"];
/// Free tokens below which the conversation is summed up.
const THRESHOLD: u64 = 8000;

/// Prices in US dollars for a token.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prices {
    /// Of the prompt.
    pub input: f64,
    /// Of the prompt, where the server had it already; None: as the rest of it.
    pub cached: Option<f64>,
    /// Generated.
    pub output: f64,
}

/// The options of one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Base URL, where the options name one.
    pub api_base: Option<String>,
    /// Most episodes; None: no limit.
    pub max_turns: Option<u64>,
    /// Sent with every request.
    pub sampling: Sampling,
    /// Longest time for a call, in seconds.
    pub call_timeout: Option<f64>,
    /// Sent with every request, and the trajectory's name.
    pub session_id: Option<String>,
    /// Headers that carry it as well.
    pub session_id_headers: Vec<String>,
    /// Whether a full context is summed up.
    pub summarize: bool,
    /// Free tokens below which that is done beforehand; 0: never.
    pub threshold: u64,
    /// Longest prompt, where the operator tells.
    pub max_input: Option<u64>,
    /// Longest answer, where the operator tells.
    pub max_output: Option<u64>,
    /// Where they are told.
    pub prices: Prices,
    /// The terminal is recorded.
    pub record: bool,
    /// The conversation goes into the result.
    pub store_messages: bool,
    /// The conversation carries what the model thought.
    pub interleaved: bool,
    /// Seconds after which a call is cut and the model told.
    pub episode_timeout: Option<f64>,
    /// Tokens of reasoning in one call after which it is cut and the model told.
    pub max_thinking: Option<u64>,
    /// How often a call is made again; None: as the client does it.
    pub retries: Option<u32>,
    /// Answers come in parts.
    pub stream: bool,
    /// The prompts of an installed Harbor.
    pub harbor_prompts: bool,
    /// As given, for the trajectory.
    pub temperature: Option<f64>,
    /// As given, for the trajectory.
    pub llm_kwargs: Option<Value>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            api_base: None,
            max_turns: None,
            sampling: Sampling::default(),
            call_timeout: None,
            session_id: None,
            session_id_headers: Vec::new(),
            summarize: true,
            threshold: THRESHOLD,
            max_input: None,
            max_output: None,
            prices: Prices::default(),
            record: true,
            store_messages: false,
            interleaved: false,
            episode_timeout: None,
            max_thinking: None,
            retries: None,
            stream: true,
            harbor_prompts: false,
            temperature: None,
            llm_kwargs: None,
        }
    }
}

impl Options {
    /// Reads them. `llm_kwargs` and over them `llm_call_kwargs` set `temperature`, `top_p`,
    /// `reasoning_effort`, `max_tokens`, `timeout` (seconds for a call), `extra_headers`, `extra_body`
    /// (fields at the top of the body; of both the fields are taken together), and the fields of a
    /// request that have an established name (`seed`, `stop`, `top_k`, …).
    ///
    /// # Errors
    /// All that is unknown, can not be, or is not done here, a line each, safe to show.
    pub fn of(config: &AgentConfig) -> Result<Options, Vec<String>> {
        let mut out = Options::default();
        let mut wrong = Vec::new();
        let mut note = |name: &str, done: Result<(), String>| {
            if let Err(why) = done {
                wrong.push(format!("option {}: {}", clean(name), clean(&why)));
            }
        };
        // The later ones have the last word.
        let turns = ["episodes", "max_episodes", "max_turns"];
        let first = ["temperature", "reasoning_effort", "llm_kwargs", "llm_call_kwargs"];
        for name in turns.iter().chain(&first) {
            if let Some(value) = config.kwargs.get(*name) {
                note(name, out.set(name, value));
            }
        }
        for (name, value) in &config.kwargs {
            if !turns.contains(&name.as_str()) && !first.contains(&name.as_str()) {
                note(name, out.set(name, value));
            }
        }
        if let Some(id) = &out.session_id {
            out.sampling.extra_body.insert("session_id".to_string(), id.clone().into());
        }
        if wrong.is_empty() { Ok(out) } else { Err(wrong) }
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let none = value.is_null();
        match name {
            // What is null is not set.
            _ if none && NAMES.contains(&name) => {}
            "max_turns" | "max_episodes" | "episodes" => self.max_turns = Some(count(value)?),
            "suppress_max_turns_warning" => drop(flag(value)?),
            "api_base" => self.api_base = Some(address(word(value)?)?),
            "temperature" => {
                self.temperature = Some(number(value)?);
                self.sampling.temperature = self.temperature;
            }
            "reasoning_effort" => self.sampling.reasoning_effort = Some(effort(value)?),
            "session_id" => self.session_id = Some(header_value(word(value)?)?),
            "session_id_headers" => {
                let list = value.as_array().ok_or("a list of names of headers")?;
                let names = list.iter().map(|name| header_name(word(name)?));
                self.session_id_headers = names.collect::<Result<_, _>>()?;
            }
            "enable_summarize" => self.summarize = flag(value)?,
            "proactive_summarization_threshold" => self.threshold = count(value)?,
            "model_info" => self.model_info(value)?,
            "tmux_pane_width" | "tmux_pane_height" => {
                let (asked, is) = (count(value)?, u64::from(if name.ends_with("width") { COLS } else { ROWS }));
                if asked != is {
                    return Err(format!("{asked}: terminals here have {COLS} columns and {ROWS} rows"));
                }
            }
            "record_terminal_session" => self.record = flag(value)?,
            "store_all_messages" => self.store_messages = flag(value)?,
            "interleaved_thinking" => self.interleaved = flag(value)?,
            "llm_kwargs" => {
                self.call(value)?;
                self.llm_kwargs = value.as_object().is_some_and(|map| !map.is_empty()).then(|| value.clone());
            }
            "llm_call_kwargs" => self.call(value)?,
            "parser_name" => only(value, "json", "only the format json is there so far")?,
            "llm_backend" => only(value, "litellm", "only servers that speak OpenAI's protocol")?,
            "collect_rollout_details" => off(value, "token ids and log probabilities are not collected yet")?,
            "use_responses_api" => off(value, "only chat completions are there so far")?,
            "trajectory_config" => {
                let map = value.as_object().ok_or("an object is meant")?;
                for (field, value) in map {
                    match field.as_str() {
                        "raw_content" | "linear_history" => {
                            off(value, "not there yet").map_err(|why| format!("{field}: {why}"))?;
                        }
                        other => return Err(format!("{other}: no such field")),
                    }
                }
            }
            "max_thinking_tokens" => self.max_thinking = Some(positive(count(value)?)?),
            "episode_timeout" => self.episode_timeout = Some(seconds(value)?),
            "model_retries" => self.retries = Some(u32::try_from(count(value)?.min(1000)).unwrap_or(1000)),
            "stream" => self.stream = flag(value)?,
            "prompt_templates" => {
                self.harbor_prompts = match word(value)? {
                    "own" => false,
                    "harbor" => true,
                    other => return Err(format!("{other}: own or harbor")),
                }
            }
            "extra_env" => return Err("give variables with --ae (agents[].env)".to_string()),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn model_info(&mut self, value: &Value) -> Result<(), String> {
        let map = value.as_object().ok_or("an object is meant")?;
        let tokens = |name: &str| map.get(name).filter(|v| !v.is_null()).map(|v| positive(count(v)?)).transpose();
        let price = |name: &str| map.get(name).filter(|v| !v.is_null()).map(number).transpose();
        self.max_input = tokens("max_input_tokens")?.or(tokens("max_tokens")?);
        self.max_output = tokens("max_output_tokens")?;
        self.prices = Prices {
            input: price("input_cost_per_token")?.unwrap_or_default(),
            cached: price("cache_read_input_token_cost")?,
            output: price("output_cost_per_token")?.unwrap_or_default(),
        };
        Ok(())
    }

    /// Arguments of every request.
    fn call(&mut self, value: &Value) -> Result<(), String> {
        let map = value.as_object().ok_or("an object is meant")?;
        for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
            self.call_argument(name, value).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    fn call_argument(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let sampling = &mut self.sampling;
        match name {
            "temperature" => sampling.temperature = Some(number(value)?),
            "top_p" => sampling.top_p = Some(number(value)?),
            "reasoning_effort" => sampling.reasoning_effort = Some(effort(value)?),
            "max_tokens" => sampling.max_tokens = Some(positive(count(value)?)?),
            "timeout" => self.call_timeout = Some(seconds(value)?),
            "litellm_debug" | "drop_params" => drop(flag(value)?),
            "extra_headers" => {
                for (name, value) in value.as_object().ok_or("an object is meant")? {
                    let value = match value {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    if name.eq_ignore_ascii_case("authorization") {
                        return Err("keys are read from an environment variable only".to_string());
                    }
                    sampling.headers.insert(header_name(name)?, header_value(&value)?);
                }
            }
            "extra_body" => {
                for (field, value) in value.as_object().ok_or("an object is meant")? {
                    if OURS.contains(&field.as_str()) {
                        return Err(format!("{field}: not for options to say"));
                    }
                    merge(&mut sampling.extra_body, field, value);
                }
            }
            name if name.contains("api_key") => {
                return Err("keys are read from an environment variable only: name it with \
                            model_api_key_name (else it is OPENAI_API_KEY)"
                    .to_string());
            }
            name if BODY.contains(&name) => merge(&mut sampling.extra_body, name, value),
            _ => return Err("no such argument here; fields of the request's body go into extra_body".to_string()),
        }
        Ok(())
    }

    /// What of it makes the agent another one than Terminus-2, in words.
    pub fn deviations(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(seconds) = self.episode_timeout {
            out.push(format!("episode_timeout={seconds}: longer calls are cut and the model is told"));
        }
        if let Some(tokens) = self.max_thinking {
            out.push(format!("max_thinking_tokens={tokens}: calls with more reasoning are cut and the model is told"));
        }
        out
    }
}

/// Puts a field into a body; objects are merged one level deep.
fn merge(body: &mut Map<String, Value>, field: &str, value: &Value) {
    match (body.get_mut(field), value) {
        (Some(Value::Object(there)), Value::Object(more)) => {
            there.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        _ => drop(body.insert(field.to_string(), value.clone())),
    }
}

fn unknown(name: &str) -> String {
    let like = NAMES.iter().min_by_key(|known| distance(name, known)).filter(|known| distance(name, known) <= 3);
    match like {
        Some(like) => format!("no such option; did you mean {like}?"),
        None => format!("no such option; there are {}", NAMES.join(", ")),
    }
}

/// Letters to change, to put in or to leave out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let best = (corner + usize::from(x != *y)).min(*cell + 1).min(left + 1);
            corner = std::mem::replace(cell, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        other => Err(format!("{other} is neither true nor false")),
    }
}

fn off(value: &Value, why: &str) -> Result<(), String> {
    if flag(value)? { Err(why.to_string()) } else { Ok(()) }
}

fn only(value: &Value, expected: &str, why: &str) -> Result<(), String> {
    let given = word(value)?;
    if given == expected { Ok(()) } else { Err(format!("{given}: {why}")) }
}

fn word(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is no text"))
}

fn count(value: &Value) -> Result<u64, String> {
    let read = match value {
        Value::Number(number) => {
            number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    read.ok_or_else(|| format!("{value} is no whole number from 0"))
}

fn positive(count: u64) -> Result<u64, String> {
    if count == 0 { Err("at least 1".to_string()) } else { Ok(count) }
}

fn number(value: &Value) -> Result<f64, String> {
    let read = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    read.filter(|n: &f64| n.is_finite()).ok_or_else(|| format!("{value} is no number"))
}

fn seconds(value: &Value) -> Result<f64, String> {
    let seconds = number(value)?;
    if (0.001..=31_536_000.0).contains(&seconds) { Ok(seconds) } else { Err(format!("{seconds} s: more than 0")) }
}

fn effort(value: &Value) -> Result<String, String> {
    let word = word(value)?;
    match EFFORTS.contains(&word) {
        true => Ok(word.to_string()),
        false => Err(format!("{word}: one of {}", EFFORTS.join(", "))),
    }
}

fn header_name(name: &str) -> Result<String, String> {
    let fits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if fits { Ok(name.to_string()) } else { Err(format!("{name:?} is no name of a header")) }
}

fn header_value(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if fits { Ok(text.to_string()) } else { Err("can not stand in a header".to_string()) }
}

/// A base URL.
///
/// # Errors
/// It is none, or has a password in it.
pub fn address(text: &str) -> Result<String, String> {
    let text = text.trim().trim_end_matches('/');
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).filter(|host| !host.is_empty());
    match host {
        None => Err(format!("{text}: an address such as http://127.0.0.1:30000/v1")),
        Some(host) if host.contains('@') => Err("no user or password in an address".to_string()),
        Some(_) if text.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Err("a blank in an address".to_string())
        }
        Some(_) => Ok(text.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kwargs: Value) -> Result<Options, String> {
        let kwargs = kwargs.as_object().unwrap().clone();
        Options::of(&AgentConfig { kwargs, ..AgentConfig::default() }).map_err(|w| w.join("\n"))
    }

    #[test]
    fn nothing_is_set_where_nothing_is_said() {
        assert_eq!(of(json!({})).unwrap(), Options::default());
        let nothing: Map<String, Value> = NAMES.iter().map(|name| ((*name).to_string(), Value::Null)).collect();
        assert_eq!(of(Value::Object(nothing)).unwrap(), Options::default());
        assert_eq!(Options::default().sampling, Sampling::default());
    }

    #[test]
    fn options_are_read_as_values_and_as_words() {
        let options = of(json!({
            "max_turns": "7", "episodes": 3, "api_base": "http://h:1/v1/", "temperature": 0.6, "reasoning_effort": "high",
            "session_id": "s-1", "session_id_headers": ["Modal-Session-ID"], "enable_summarize": "false",
            "proactive_summarization_threshold": 0, "tmux_pane_width": 160, "tmux_pane_height": "40",
            "record_terminal_session": false, "store_all_messages": true, "interleaved_thinking": true,
            "parser_name": "json", "llm_backend": "litellm", "use_responses_api": false, "collect_rollout_details": false,
            "trajectory_config": {"raw_content": false}, "suppress_max_turns_warning": true,
            "model_info": {"max_input_tokens": 32768, "max_output_tokens": 8192, "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
            "llm_kwargs": {"top_p": 0.5, "temperature": 0.1, "litellm_debug": true},
            "llm_call_kwargs": {"top_p": 0.95, "max_tokens": 100, "timeout": 7200, "seed": 1,
                "extra_headers": {"X-A": "b"}, "extra_body": {"chat_template_kwargs": {"enable_thinking": false}, "top_k": 20}},
            "episode_timeout": 30, "max_thinking_tokens": 500, "stream": false, "prompt_templates": "own",
        })).unwrap();
        assert_eq!((options.max_turns, options.threshold, options.summarize), (Some(7), 0, false));
        assert_eq!(options.api_base.as_deref(), Some("http://h:1/v1"));
        let sampling = &options.sampling;
        assert_eq!((sampling.temperature, sampling.top_p, sampling.max_tokens), (Some(0.1), Some(0.95), Some(100)));
        assert_eq!(sampling.headers["X-A"], "b");
        let body =
            json!({"seed": 1, "session_id": "s-1", "top_k": 20, "chat_template_kwargs": {"enable_thinking": false}});
        assert_eq!(Value::Object(sampling.extra_body.clone()), body);
        assert_eq!(
            (options.call_timeout, options.max_input, options.max_output),
            (Some(7200.0), Some(32768), Some(8192))
        );
        assert_eq!(options.prices, Prices { input: 1e-6, cached: None, output: 2e-6 });
        assert_eq!(options.deviations().len(), 2);
        assert_eq!(of(json!({"episodes": 3, "max_episodes": 4})).unwrap().max_turns, Some(4));
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for (name, value, why) in [
            ("parser_name", json!("xml"), "xml: only the format json"),
            ("use_responses_api", json!(true), "only chat completions"),
            ("trajectory_config", json!({"linear_history": true}), "linear_history: not there yet"),
            ("trajectory_config", json!({"raw_content": true}), "raw_content: not there yet"),
            ("trajectory_config", json!({"other": true}), "other: no such field"),
            ("collect_rollout_details", json!(true), "not collected"),
            ("llm_backend", json!("tinker"), "tinker: only servers"),
            ("temprature", json!(1), "did you mean temperature?"),
            ("whatever", json!(1), "no such option; there are api_base"),
            ("tmux_pane_width", json!(80), "160 columns"),
            ("max_turns", json!(-1), "no whole number"),
            ("temperature", json!("hot"), "no number"),
            ("reasoning_effort", json!("huge"), "huge: one of none"),
            ("api_base", json!("h:1/v1"), "an address such as"),
            ("api_base", json!("http://me:secret@h/v1"), "no user or password"),
            ("llm_kwargs", json!({"api_key": "sk-12345678"}), "api_key: keys are read from"),
            ("llm_call_kwargs", json!({"extra_headers": {"Authorization": "x"}}), "keys are read from"),
            ("llm_call_kwargs", json!({"n": 2}), "n: no such argument"),
            ("llm_call_kwargs", json!({"extra_body": {"messages": []}}), "messages: not for options"),
            ("llm_call_kwargs", json!({"extra_headers": {"a b": "x"}}), "no name of a header"),
            ("episode_timeout", json!(0), "more than 0"),
            ("max_thinking_tokens", json!(0), "at least 1"),
            ("prompt_templates", json!("mine"), "own or harbor"),
            ("extra_env", json!({"A": "b"}), "--ae"),
            ("session_id", json!("a\nb"), "can not stand in a header"),
            ("model_info", json!({"max_input_tokens": 0}), "at least 1"),
        ] {
            let said = of(json!({ name: value })).unwrap_err();
            assert!(said.starts_with(&format!("option {name}: ")) && said.contains(why), "{name}: {said}");
            assert!(!said.contains("sk-1234"), "{said}");
        }
    }
}
