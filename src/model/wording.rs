//! What a refusal means: status, headers and body of an answer that is none → its kind, and its words.
//!
//! Statuses alone tell little: one gateway says 400 to an unknown model, another 500 to a conversation that
//! is too long. The wordings are those of SGLang, vLLM, llama.cpp, OpenAI and the gateways and providers that
//! hand such servers on.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use super::error::Kind;
use super::key::Secrets;
use super::sse;
use crate::job::Stamp;
use crate::job::text::{clean, mask_secrets, strip_ansi};

/// Longest text of a server in an error, in characters.
const WORDS: usize = 500;
/// Longest wait that is believed, in seconds.
const FOREVER: f64 = 86_400.0;

/// A refusal, taken apart.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// In words, for people.
    words: String,
    /// All of it that rules look at, in lower case.
    lower: String,
    /// `code` and `type`.
    codes: Vec<String>,
    param: Option<String>,
    /// Limit of the context in a field of its own.
    n_ctx: Option<u64>,
    is_page: bool,
    is_json: bool,
}

impl Refusal {
    /// From a body of any sort.
    pub(super) fn read(body: &[u8]) -> Refusal {
        match sse::parse(body) {
            Some(value) => Refusal::of(&value),
            None => Refusal::of_text(&String::from_utf8_lossy(body)),
        }
    }

    /// From JSON: OpenAI's `error`, vLLM's and SGLang's flat one, FastAPI's `detail`, or any other.
    pub(super) fn of(value: &Value) -> Refusal {
        let inner =
            ["error", "detail", "errors"].iter().filter_map(|key| value.get(key)).find(|inner| !inner.is_null());
        let body = inner.filter(|inner| inner.is_object()).unwrap_or(value);
        let text = |key: &str| match body.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(other @ (Value::Object(_) | Value::Array(_))) => Some(other.to_string()),
            _ => None,
        };
        let said = inner.filter(|inner| !inner.is_object());
        let said = said.map(|said| said.as_str().map_or_else(|| said.to_string(), str::to_string));
        let words =
            text("message").or(said).or_else(|| text("msg")).or_else(|| text("error")).or_else(|| text("detail"));
        let words = words.unwrap_or_else(|| value.to_string());
        let mut codes = Vec::new();
        for from in [body, value] {
            for key in ["code", "type", "status"] {
                match from.get(key) {
                    Some(Value::String(code)) => codes.push(code.to_lowercase()),
                    Some(Value::Number(code)) => codes.push(code.to_string()),
                    _ => {}
                }
            }
        }
        if let Some(code) = body.pointer("/innererror/code").and_then(Value::as_str) {
            codes.push(code.to_lowercase());
        }
        Refusal {
            lower: words.to_lowercase(),
            words,
            codes,
            param: text("param").filter(|param| !param.is_empty()),
            n_ctx: body.get("n_ctx").and_then(Value::as_u64),
            is_page: false,
            is_json: true,
        }
    }

    fn of_text(text: &str) -> Refusal {
        let lower = text.to_lowercase();
        let is_page = lower.contains("<html") || lower.contains("<!doctype") || lower.contains("<head");
        let title = || {
            let start = lower.find("<title")?;
            let start = start + lower.get(start..)?.find('>')? + 1;
            let end = start + lower.get(start..)?.find('<')?;
            // Lower case may have another length: then the text is not cut, but shown from its lower case.
            if lower.len() == text.len() { text.get(start..end) } else { lower.get(start..end) }
        };
        let words = match is_page {
            true => format!("a web page, “{}”", title().unwrap_or("without title").trim()),
            false => text.trim().to_string(),
        };
        Refusal { words, lower, is_page, ..Refusal::default() }
    }

    /// The status that the body tells, for a failure that came with another one.
    pub(super) fn status(&self) -> Option<u16> {
        self.codes.iter().filter_map(|code| code.parse().ok()).find(|status| (400..600).contains(status))
    }

    /// True when a word of the text is this name of a field.
    pub(super) fn names(&self, field: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        self.param.as_deref() == Some(field)
            || self.lower.match_indices(field).any(|(at, _)| {
                let before = self.lower.get(..at).and_then(|text| text.chars().next_back());
                let after = self.lower.get(at + field.len()..).and_then(|text| text.chars().next());
                !before.is_some_and(is_part) && !after.is_some_and(is_part)
            })
    }

    /// What the server said, short, masked and safe to show.
    pub(super) fn words(&self, secrets: &Secrets) -> String {
        safe(&self.words, secrets)
    }

    fn says(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.lower.contains(phrase) || self.codes.iter().any(|code| code == phrase))
    }

    /// What it means.
    pub(super) fn kind(&self, status: u16, after: Option<Duration>) -> Kind {
        let is_limit = status == 429 || self.says(&["rate_limit_exceeded", "tokens per min", "requests per min"]);
        if self.says(NO_MONEY) || status == 402 {
            return Kind::Auth;
        }
        if is_limit {
            return Kind::RateLimit(after.or_else(|| self.said_wait()));
        }
        if matches!(status, 400 | 413 | 422 | 500) && self.is_too_long() {
            return Kind::ContextExceeded { limit: self.limit() };
        }
        if (400..500).contains(&status) && self.says(NOT_WANTED) {
            return Kind::ContentPolicy;
        }
        if matches!(status, 401 | 403 | 407) || (status == 400 && self.says(NO_KEY)) {
            return Kind::Auth;
        }
        if matches!(status, 400 | 404 | 422) && self.is_no_model(status) {
            return Kind::ModelNotFound;
        }
        if matches!(status, 400 | 422) && self.says(UNKNOWN_ARGUMENT) {
            return Kind::Unsupported(self.argument());
        }
        match status {
            // 408: a router's queue was full for too long. A tunnel whose end is gone says 404.
            408 | 409 | 425 | 499 => Kind::Overloaded(status),
            _ if self.lower.contains("err_ngrok") => Kind::Overloaded(status),
            501 | 505 => Kind::Refused(status),
            500.. => Kind::Overloaded(status),
            _ => Kind::Refused(status),
        }
    }

    fn is_too_long(&self) -> bool {
        self.says(TOO_LONG)
            || (self.lower.contains("token") && self.says(&["exceeds the limit of", "exceed the configured limit"]))
            || (self.lower.contains("input") && self.says(&["exceeds the maximum allowed", "longer than the maximum"]))
    }

    fn is_no_model(&self, status: u16) -> bool {
        if self.says(NO_MODEL) {
            return true;
        }
        let missing =
            ["does not exist", "not found", "no such", "not exist", "not available", "is not served", "unknown"];
        status == 404 && self.is_json && self.lower.contains("model") && self.says(&missing)
    }

    /// The limit of the context, where the words tell it.
    fn limit(&self) -> Option<u64> {
        let told = LIMITS.iter().find_map(|before| {
            let at = self.lower.find(before)? + before.len();
            number_soon(self.lower.get(at..)?)
        });
        self.n_ctx.or(told).filter(|limit| (16..1_000_000_000).contains(limit))
    }

    /// The argument that the server does not know.
    fn argument(&self) -> Option<String> {
        if let Some(param) = &self.param {
            return Some(super::answer::safe_name(param));
        }
        let before =
            ["supplied:", "parameter:", "parameter", "argument", "field:", "field", "('body',", "#/", "'loc': ["];
        let name = before.iter().find_map(|before| {
            let at = self.lower.find(before)? + before.len();
            let rest = self.lower.get(at..)?.trim_start_matches(|c: char| !c.is_alphanumeric());
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.')).collect();
            (name.contains('_') || rest.get(name.len()..)?.starts_with(['\'', '"', '`', ','])).then_some(name)
        });
        let name = name.or_else(|| {
            let end = self.lower.find("' does not support")?;
            let start = self.lower.get(..end)?.rfind('\'')? + 1;
            self.lower.get(start..end).map(str::to_string)
        });
        name.map(|name| super::answer::safe_name(name.trim_end_matches('.')))
    }

    /// `Please try again in 1.5s`, `6m0s`, `350ms`.
    fn said_wait(&self) -> Option<Duration> {
        let after = self.lower.split("try again in ").nth(1).or_else(|| self.lower.split("retry after ").nth(1))?;
        let (mut seconds, mut rest) = (0.0, after);
        loop {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let Ok(number) = rest.get(..digits)?.parse::<f64>() else { break };
            rest = rest.get(digits..)?.trim_start();
            let units = [("ms", 0.001), ("m", 60.0), ("h", 3600.0), ("s", 1.0)];
            let Some((unit, worth)) = units.iter().find(|(unit, _)| rest.starts_with(unit)) else { break };
            seconds += number * worth;
            rest = rest.get(unit.len()..)?;
        }
        (seconds > 0.0 && seconds < FOREVER).then(|| Duration::from_secs_f64(seconds))
    }

    /// Where the request went can not be where models are served.
    pub(super) fn is_elsewhere(&self, status: u16) -> bool {
        matches!(status, 404 | 405) && !self.lower.contains("model")
    }

    /// It says that something is not supported, allowed or there.
    pub(super) fn is_about_support(&self) -> bool {
        self.says(UNKNOWN_ARGUMENT)
            || self.says(&["support", "not allowed", "disabled", "must be verified", "not available"])
    }

    /// It is somebody's web page.
    pub(super) fn is_page(&self) -> bool {
        self.is_page
    }
}

/// Text of somebody else's in an error: short, without keys and what looks like one, safe to show.
pub(super) fn safe(text: &str, secrets: &Secrets) -> String {
    // Marks within a key would hide it: they go first.
    let flat = text.replace(['\r', '\n'], " ");
    let plain = strip_ansi(&flat);
    let plain = clean(&plain);
    let scrubbed = secrets.scrub(&plain);
    let masked = mask_secrets(&scrubbed);
    let cleaned = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut chars = cleaned.chars();
    let mut short: String = chars.by_ref().take(WORDS).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// A number at the beginning of the text, or after a few words: `131072`, `(131,072 tokens)`, `of only 4096`.
fn number_soon(text: &str) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_digit()).filter(|start| *start <= 24)?;
    let digits = text.get(start..)?.chars().take_while(|c| c.is_ascii_digit() || matches!(c, ',' | '_'));
    digits.filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// When the server wants to be asked again: seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap, now: Stamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds =
        |seconds: f64| (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(FOREVER)));
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return seconds(ms / 1000.0);
    }
    let value = text(RETRY_AFTER.as_str())?;
    if let Ok(number) = value.parse::<f64>() {
        return seconds(number);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    seconds(date.duration_since(now).as_secs_f64().max(0.0))
}

const NO_MONEY: &[&str] = &[
    "insufficient_quota",
    "exceeded your current quota",
    "insufficient credits",
    "insufficient balance",
    "credit balance is too low",
];

const NO_KEY: &[&str] = &[
    "invalid_api_key",
    "api key not valid",
    "incorrect api key",
    "invalid api key",
    "missing api key",
    "authenticationerror",
];

const NOT_WANTED: &[&str] = &[
    "content_filter",
    "content_policy_violation",
    "contentpolicyviolation",
    "responsibleaipolicyviolation",
    "content management policy",
    "content filtering policy",
    "data_inspection_failed",
    "flagged by our safety",
    "rejected as a result of our safety system",
];

const NO_MODEL: &[&str] = &[
    "model_not_found",
    "invalid model name",
    "is not a valid model id",
    "unknown model",
    "no models loaded",
    "no such model",
];

const UNKNOWN_ARGUMENT: &[&str] = &[
    "unrecognized request argument",
    "extra inputs are not permitted",
    "extra_forbidden",
    "unknown parameter",
    "unknown_parameter",
    "unsupported parameter",
    "unsupported_parameter",
    "unsupported value",
    "unsupported_value",
    "unexpected keyword",
    "unrecognized field",
    "unknown field",
    "additional properties are not allowed",
    "unknown argument",
];

/// Wordings of a conversation that is too long; OpenAI's and vLLM's, SGLang's, llama.cpp's, then others'.
const TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "context length exceeded",
    "maximum context length",
    "maximum model length",
    "max_tokens must be at least 1, got -",
    "model's context length",
    "requested token count exceeds",
    "exceed_context_size_error",
    "available context size",
    "context size has been exceeded",
    "exceed context window",
    "exceeds the context window",
    "context window exceeded",
    "contextwindowexceeded",
    "model_context_window_exceeded",
    "exceed context limit",
    "exceed the context limit",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "maximum prompt length",
    "exceeds the maximum number of tokens",
    "exceeded model token limit",
    "reduce the length of the messages",
    "greater than the context length",
    "loaded with context length",
    "range of input length should be",
    "string_above_max_length",
    // Of a text-generation server: what goes in and what may come out, together.
    "`inputs` tokens + `max_new_tokens`",
];

/// What stands before the limit; the most exact first.
const LIMITS: &[&str] = &[
    "maximum context length is",
    "maximum context length of",
    "maximum model length of",
    "model's context length (",
    "model's context length of",
    "available context size (",
    "maximum allowed length (",
    "maximum allowed input length of",
    "context window of",
    "loaded with context length of only",
    "context length of only",
    "maximum prompt length is",
    "number of tokens allowed (",
    "configured limit of",
    "exceeds the limit of",
    "model token limit:",
    "tokens >",
    "should be [1,",
    "must be <=",
    "too large for model with",
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
