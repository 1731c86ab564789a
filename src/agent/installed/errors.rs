//! What a program's last words mean. Patterns are looked for in the end of what it printed, and the one
//! that is found last wins: retries come first, and what ended it comes at the end.

use std::sync::LazyLock;

use regex::Regex;

use super::Words;
use super::spec::{ErrorRule, compiled};
use crate::harbor::write::raised::Raised;

/// The type where nothing is recognised.
pub const UNKNOWN: &str = "NonZeroAgentExitCodeError";
/// Characters of an output in a message …
const SHOWN: usize = 1000;
/// … of which so many are from its beginning.
const HEAD: usize = 250;

/// What model servers, gateways and client libraries say, by Harbor's names for it.
const WORDS: &[(&str, &str)] = &[
    // Context: OpenAI and vLLM, SGLang, llama.cpp, gateways, Anthropic, Google, the client library.
    (
        "ContextWindowExceededError",
        r"context_length_exceeded|maximum context length|exceeds? (the|its) context (length|size|window)",
    ),
    (
        "ContextWindowExceededError",
        r"longer than the model'?s? context length|exceeds the maximum allowed (input )?length",
    ),
    (
        "ContextWindowExceededError",
        r"the request exceeds the available context size|prompt is too long|input is too long for",
    ),
    ("ContextWindowExceededError", r"input token count .{0,40}exceeds the maximum|\bContextWindowExceeded(Error)?\b"),
    ("OutputTokenExceededError", r"exceed(ed|s) .{0,60}output token (maximum|limit)"),
    ("ApiRateLimitError", r"rate[ _-]?limit|too many requests|\bRateLimitError\b"),
    ("ApiUsageLimitError", r"(usage|spending) limits?\b.{0,40}(reached|hit|exceeded)|(hit|reached) your usage limit"),
    (
        "ApiUsageLimitError",
        r"quota (was |has been )?exceeded|insufficient_quota|credit balance is too low|no credits remaining",
    ),
    ("ApiUsageLimitError", r"budget has been exceeded|unpaid invoice"),
    ("ApiInternalServerError", r"api error: (500|server error)|\bInternalServerError\b|unexpected status 500"),
    ("ApiOverloadedError", r"\bServiceUnavailableError\b|overloaded_error|api error: overloaded|model is at capacity"),
    (
        "ApiOverloadedError",
        r"unexpected status 50[234]|\b(502 bad gateway|503 service unavailable|504 gateway time-?out)",
    ),
    (
        "ApiConnectionClosedError",
        r"(connection|stream) (was )?(closed|lost|reset)[^\n]{0,40}(mid-response|before completion)|connection to the api was lost",
    ),
    ("ApiResponseStalledError", r"(response|stream) (stalled|idle timeout)"),
    (
        "AgentAuthenticationError",
        r"not logged in|invalid_api_key|(invalid|incorrect) api key|api key is invalid|unexpected status 401",
    ),
    ("AgentAuthenticationError", r"\b(litellm|openai|anthropic)\.AuthenticationError\b|invalid proxy server token"),
    (
        "ModelNotFoundError",
        r"\b(litellm|openai|anthropic)\.NotFoundError\b|cannot use this model|model_not_found|the model `?[^`\n]{1,120}`? does not exist",
    ),
    (
        "UnsupportedModelParametersError",
        r"\bUnsupportedParamsError\b|unsupported_parameter\b|does not support parameters:",
    ),
    (
        "AgentSafetyRefusalError",
        r"blocked by our safety systems|blocked by content filtering policy|violates? our usage polic|ContentPolicyViolationError|ContentFilterError",
    ),
    ("UnknownApiError", r"\bapi error\b|\bAPIError\b"),
    (
        "NetworkConnectionError",
        r"could not resolve host|connection refused|connection timed out|no route to host|network is unreachable",
    ),
    (
        "NetworkConnectionError",
        r"SSL_ERROR_SYSCALL|SSL_connect|curl: \(\d+\)|name or service not known|temporary failure in name resolution",
    ),
    ("NetworkConnectionError", r"request timed out|\bAPIConnectionError\b"),
];

static RULES: LazyLock<Vec<(Regex, &str)>> =
    LazyLock::new(|| WORDS.iter().filter_map(|(kind, words)| Some((compiled(words).ok()?, *kind))).collect());

/// The type of a failure by the end of what was printed. Of two patterns that end at the same place the
/// agent's own one counts, then the more special one, which stands first.
pub fn kind(own: &[ErrorRule], output: &str) -> String {
    // Lines are broken where a terminal ends: a phrase goes on behind it.
    let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
    let own = own.iter().map(|rule| (&rule.pattern, rule.kind.as_str()));
    let all = own.chain(RULES.iter().map(|(pattern, kind)| (pattern, *kind)));
    let mut best: Option<(usize, &str)> = None;
    for (pattern, kind) in all {
        let Some(end) = pattern.find_iter(&output).last().map(|found| found.end()) else { continue };
        if best.is_none_or(|(at, _)| end > at) {
            best = Some((end, kind));
        }
    }
    best.map_or(UNKNOWN, |(_, kind)| kind).to_string()
}

/// A text as it stands in a message: its beginning and its end.
pub fn shortened(text: &str) -> String {
    between(text, text, text.chars().count(), 0)
}

/// The beginning of one text and the end of another, `count` characters and `skipped` more in all.
fn between(first: &str, last: &str, count: usize, skipped: u64) -> String {
    if last.is_empty() {
        return "None".to_string();
    }
    if count <= SHOWN && skipped == 0 {
        return last.to_string();
    }
    let head: String = first.chars().take(HEAD).collect();
    let tail: String = last.chars().skip(last.chars().count().saturating_sub(SHOWN - HEAD)).collect();
    let cut = (count.saturating_sub(SHOWN) as u64).saturating_add(skipped);
    format!("{head} ... [{cut} chars truncated] ... {tail}")
}

/// A command that failed, with what it printed; both of its streams are one.
pub fn failed(own: &[ErrorRule], command: &str, exit: i64, words: &Words, during: &str) -> Raised {
    let Words { first, last, skipped } = words;
    let printed = match first.is_empty() {
        true => shortened(last.trim_end()),
        false => between(first, last.trim_end(), first.chars().count() + last.trim_end().chars().count(), *skipped),
    };
    let command = shortened(command.trim());
    let message = format!("Command failed (exit {exit}): {command}\nstdout: {printed}\nstderr: None");
    Raised::new(&kind(own, last), &message, during)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_are_good() {
        assert_eq!(RULES.len(), WORDS.len());
    }

    #[test]
    fn last_words_count() {
        for (text, expected) in [
            ("", UNKNOWN),
            ("Traceback: KeyError", UNKNOWN),
            ("litellm.exceptions.ContextWindowExceededError: ...", "ContextWindowExceededError"),
            ("This model's maximum context length is 4096 tokens.", "ContextWindowExceededError"),
            (
                "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
                "ContextWindowExceededError",
            ),
            ("the request exceeds the available context size, try increasing it", "ContextWindowExceededError"),
            ("rate limit, waiting\nrate limit, waiting\nAPI Error: 500 x", "ApiInternalServerError"),
            ("API Error: 500\nHTTP 429 Too Many Requests", "ApiRateLimitError"),
            ("API Error: something new", "UnknownApiError"),
            ("litellm.AuthenticationError: AuthenticationError: no", "AgentAuthenticationError"),
            ("curl: (6) Could not resolve host: x", "NetworkConnectionError"),
            ("The model `x` does not exist", "ModelNotFoundError"),
            ("maximum context\nlength", "ContextWindowExceededError"),
        ] {
            assert_eq!(kind(&[], text), expected, "{text}");
        }
        let own = [ErrorRule { pattern: compiled("keyerror").unwrap(), kind: "MineError".to_string() }];
        assert_eq!(kind(&own, "api error, then KeyError"), "MineError");
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let text = format!("{}{}", "a".repeat(300), "é".repeat(900));
        let expected = format!("{} ... [200 chars truncated] ... {}", "a".repeat(250), "é".repeat(750));
        assert_eq!(shortened(&text), expected);
        let words = Words { last: text, ..Words::default() };
        let raised = failed(&[], " run it \n", 3, &words, "x");
        assert_eq!(raised.message, format!("Command failed (exit 3): run it\nstdout: {expected}\nstderr: None"));
        let words = Words { first: "begin ".repeat(100), last: "end ".repeat(1000), skipped: 7 };
        let message = failed(&[], "x", 3, &words, "x").message;
        let begins = message.contains("stdout: begin begin") && message.contains("[3606 chars truncated]");
        assert!(begins && message.ends_with("end end\nstderr: None"), "{message}");
        assert!(failed(&[], "x", 3, &Words::default(), "x").message.contains("stdout: None\n"));
    }
}
