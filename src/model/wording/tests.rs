use reqwest::header::HeaderValue;

use super::*;

fn kind(status: u16, body: &str) -> Kind {
    Refusal::read(body.as_bytes()).kind(status, None)
}

/// A body as OpenAI has it.
fn openai(message: &str, code: &str) -> String {
    serde_json::json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}})
        .to_string()
}

/// A body as SGLang and older vLLM have it.
fn flat(message: &str) -> String {
    serde_json::json!({"object": "error", "message": message, "type": "BadRequestError", "param": null, "code": 400})
        .to_string()
}

#[test]
fn conversations_that_are_too_long_are_known_in_all_their_wordings() {
    let cases: &[(u16, String, Option<u64>)] = &[
        // SGLang
        (400, flat("The input (61709 tokens) is longer than the model's context length (40960 tokens)."), Some(40_960)),
        (400, flat("Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total of 202941 tokens: 170941 tokens from the input messages and 32000 tokens for the completion."), Some(202_752)),
        (400, flat("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a shorter input or enable --allow-auto-truncate."), Some(59_862)),
        // vLLM
        (400, flat("This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the completion). Please reduce the length of the messages or completion."), Some(16_384)),
        (400, openai("'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 32768 tokens and your request has 26000 input tokens (8192 > 32768 - 26000).", "400"), Some(32_768)),
        (400, openai("The decoder prompt (length 40123) is longer than the maximum model length of 32768. Make sure that `max_model_len` is no smaller than the number of text tokens.", "400"), Some(32_768)),
        (400, flat("max_tokens must be at least 1, got -186."), None),
        // llama.cpp
        (400, r#"{"error":{"code":400,"message":"request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#.to_string(), Some(8192)),
        (500, r#"{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#.to_string(), Some(256)),
        (400, flat("Requested tokens (2285) exceed context window of 2048"), Some(2048)),
        // OpenAI
        (400, openai("This model's maximum context length is 128,000 tokens. However, your messages resulted in 202868 tokens.", "context_length_exceeded"), Some(128_000)),
        (400, openai("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.", "context_length_exceeded"), Some(272_000)),
        (400, openai("Your input exceeds the context window of this model. Please adjust your input and try again.", "context_length_exceeded"), None),
        // Gateways and others behind them
        (400, openai("litellm.ContextWindowExceededError: litellm.BadRequestError: Hosted_vllmException - This model's maximum context length is 4096 tokens.", "400"), Some(4096)),
        (400, openai("prompt is too long: 208310 tokens > 200000 maximum", "invalid_request_error"), Some(200_000)),
        (400, openai("input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000", ""), None),
        (400, openai("Prompt contains 70000 tokens, too large for model with 32768 maximum context length", ""), Some(32_768)),
        (400, openai("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", ""), Some(131_072)),
        (400, openai("The input token count (1048580) exceeds the maximum number of tokens allowed (1048576).", ""), Some(1_048_576)),
        (400, openai("prompt token count of 200000 exceeds the limit of 128000", "model_max_prompt_tokens_exceeded"), Some(128_000)),
        (413, openai("Please reduce the length of the messages or completion.", "context_length_exceeded"), None),
        (422, r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`"}"#.to_string(), Some(4096)),
        (400, openai("Range of input length should be [1, 129024]", "invalid_parameter_error"), Some(129_024)),
        (400, r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}"#.to_string(), Some(4096)),
    ];
    for (status, body, limit) in cases {
        assert_eq!(kind(*status, body), Kind::ContextExceeded { limit: *limit }, "{body}");
    }
    // A limit of the output that is set too high is not helped by a shorter conversation.
    for body in [
        flat("max_completion_tokens is too large: 99999.This model supports at most 4096 completion tokens"),
        openai(
            "max_tokens=99999 cannot be greater than max_model_len=4096. Please request fewer output tokens. (parameter=max_tokens, value=99999)",
            "400",
        ),
    ] {
        assert_eq!(kind(400, &body), Kind::Refused(400), "{body}");
    }
}

#[test]
fn refusals_have_their_kinds() {
    let unsupported = |name: &str| Kind::Unsupported(Some(name.to_string()));
    let seconds = |s: f64| Kind::RateLimit(Some(Duration::from_secs_f64(s)));
    let page = |title: &str| format!("<!DOCTYPE html><html><head><TITLE>{title}</TITLE></head></html>");
    let cases: &[(u16, String, Kind)] = &[
        (401, r#"{"error":"Unauthorized"}"#.into(), Kind::Auth),
        (401, String::new(), Kind::Auth),
        (403, page("403 Forbidden"), Kind::Auth),
        (400, openai("API key not valid. Please pass a valid API key.", "400"), Kind::Auth),
        (402, openai("Insufficient Balance", "invalid_request_error"), Kind::Auth),
        (429, openai("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota"), Kind::Auth),
        (429, String::new(), Kind::RateLimit(None)),
        (429, openai("Rate limit reached for m on tokens per min (TPM): Limit 10000. Please try again in 1.5s.", "rate_limit_exceeded"), seconds(1.5)),
        (429, openai("Rate limit reached. Please try again in 6m0s.", "rate_limit_exceeded"), seconds(360.0)),
        (429, openai("Rate limit reached. Please try again in 350ms.", "rate_limit_exceeded"), seconds(0.35)),
        (413, openai("Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce the length of the messages", "rate_limit_exceeded"), Kind::RateLimit(None)),
        (404, r#"{"error":{"message":"The model `nope` does not exist. Valid aliases: tiny-llama.","type":"NotFoundError","param":"model","code":404}}"#.into(), Kind::ModelNotFound),
        (404, openai("The model `x` does not exist or you do not have access to it.", "model_not_found"), Kind::ModelNotFound),
        (404, r#"{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error"}}"#.into(), Kind::ModelNotFound),
        (400, openai("xyz is not a valid model ID", "400"), Kind::ModelNotFound),
        (400, r#"{"error":{"message":"400: {'error': 'Invalid model name passed in model=x'}","type":"None","param":"None","code":400}}"#.into(), Kind::ModelNotFound),
        (404, r#"{"detail":"Not Found"}"#.into(), Kind::Refused(404)),
        (404, page("404 Not Found"), Kind::Refused(404)),
        (404, page("ERR_NGROK_3200"), Kind::Overloaded(404)),
        (405, r#"{"detail":"Method Not Allowed"}"#.into(), Kind::Refused(405)),
        (400, openai("The response was filtered due to the prompt triggering a content management policy.", "content_filter"), Kind::ContentPolicy),
        (400, r#"{"error":{"message":"x","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#.into(), Kind::ContentPolicy),
        (400, openai("Output blocked by content filtering policy", ""), Kind::ContentPolicy),
        (400, flat("[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted', 'input': {}}]"), unsupported("stream_options")),
        (400, openai("Unrecognized request argument supplied: return_token_ids", ""), unsupported("return_token_ids")),
        (400, openai("Extra inputs are not permitted, field: 'stream_options', value: {}", ""), unsupported("stream_options")),
        (400, openai("Validation error at #/stream_options: Extra inputs are not permitted", ""), unsupported("stream_options")),
        (400, openai("Unsupported value: 'temperature' does not support 0.2 with this model.", "unsupported_value"), unsupported("temperature")),
        (400, r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#.into(), unsupported("max_tokens")),
        (400, r#"{"error":{"message":"Unknown parameter: 'messages[1].reasoning_content'.","param":"messages[1].reasoning_content"}}"#.into(), unsupported("messages[1].reasoning_content")),
        (400, openai("messages must not be empty", ""), Kind::Refused(400)),
        (400, "garbage \u{0}".into(), Kind::Refused(400)),
        (408, String::new(), Kind::Overloaded(408)),
        (500, openai("The server had an error while processing your request.", "internal_error"), Kind::Overloaded(500)),
        (500, r#"{"error":{"type":"Internal Server Error","code":"call_upstream_request_error","message":"error sending request for url (http://h:1/v1/chat/completions)"}}"#.into(), Kind::Overloaded(500)),
        (503, r#"{"error":{"type":"Service Unavailable","code":"no_available_workers","message":"No available workers (all circuits open or unhealthy)"}}"#.into(), Kind::Overloaded(503)),
        (504, page("504 Gateway Time-out"), Kind::Overloaded(504)),
        (524, page("524: A timeout occurred"), Kind::Overloaded(524)),
        (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#.into(), Kind::Overloaded(529)),
        (501, String::new(), Kind::Refused(501)),
    ];
    for (status, body, expected) in cases {
        assert_eq!(&kind(*status, body), expected, "{status} {body}");
    }
}

#[test]
fn words_are_short_masked_and_safe() {
    let key = crate::model::Key::new("secret-value-of-the-key").unwrap();
    let headers = [("X-Api-Key", "another-secret"), ("X-Session-ID", "session-1")];
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let secrets = Secrets::of(Some(&key), &headers);
    assert_eq!(secrets.scrub("another-secret session-1"), "[masked] session-1");
    let none = Secrets::default();
    let body = openai("Incorrect API key provided: secret-value-of-the-key.\n\u{1b}[31m sk-abcdefghijk \u{202e}", "x");
    let words = Refusal::read(body.as_bytes()).words(&secrets);
    assert_eq!(words, "Incorrect API key provided: [masked]. [masked]");
    let hidden = flat("Bearer secret-\u{1b}[1mvalue-of\u{200b}-the-key and sk-\u{202e}abcdefghijk");
    assert_eq!(Refusal::read(hidden.as_bytes()).words(&secrets), "Bearer [masked] and [masked]");
    let long = Refusal::read("x ".repeat(100_000).as_bytes()).words(&none);
    assert_eq!(long.chars().count(), WORDS + 1);
    let page = Refusal::read(b"<html><head><title>504 Gateway Time-out</title></head><body>secret</body></html>");
    assert_eq!(page.words(&none), "a web page, “504 Gateway Time-out”");
    assert_eq!(Refusal::read(r#"{"error":{"message":{"a":1}}}"#.as_bytes()).words(&none), r#"{"a":1}"#);
    assert_eq!(
        Refusal::read(r#"{"detail":[{"loc":["body","x"],"msg":"bad"}]}"#.as_bytes()).words(&none),
        r#"[{"loc":["body","x"],"msg":"bad"}]"#
    );
    assert_eq!(Refusal::read(b"").words(&none), "");
    assert_eq!(format!("{key:?} {secrets:?}"), "Key([masked]) Secrets([masked])");
}

#[test]
fn the_time_to_come_again_is_read_as_seconds_and_as_a_date() {
    let now: Stamp = "2026-11-30T10:00:00Z".parse().unwrap();
    let read = |name: &'static str, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        retry_after(&headers, now).map(|wait| wait.as_secs_f64())
    };
    assert_eq!(read("retry-after", "7"), Some(7.0));
    assert_eq!(read("retry-after", " 0.5 "), Some(0.5));
    assert_eq!(read("retry-after-ms", "1500"), Some(1.5));
    assert_eq!(read("retry-after", "Mon, 30 Nov 2026 10:02:00 GMT"), Some(120.0));
    assert_eq!(read("retry-after", "Mon, 30 Nov 2026 09:00:00 GMT"), Some(0.0));
    assert_eq!(read("retry-after", "1e300"), Some(FOREVER));
    for bad in ["", "soon", "-3", "NaN", "Mon, 30 Nov"] {
        assert_eq!(read("retry-after", bad), None, "{bad}");
    }
}
