//! What a client is made from, and how long it waits.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::chat::Sampling;
use super::endpoint::Endpoint;
use super::key::Key;
use super::retry::Policy;

/// Longest wait for a connection, if nothing else is said.
pub const CONNECT: Duration = Duration::from_secs(10);
/// Longest wait for the first part of a streamed answer: the request may stand in a queue behind others.
pub const FIRST: Duration = Duration::from_secs(1800);
/// Longest silence between two parts. Servers stand still for minutes while they read long prompts of others
/// or take requests back; SGLang's own watchdog ends a hung one after 300 s.
pub const SILENCE: Duration = Duration::from_secs(600);

/// Longest silence of an address that the endpoint has left.
pub const LEFT: Duration = Duration::from_secs(20);

/// How long what is waited for. Nothing here limits how long an answer may grow, unless `call` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// For a connection.
    pub connect: Duration,
    /// For the first part of a streamed answer; None: for ever. An answer in one piece has only `call`.
    pub first: Option<Duration>,
    /// Between two parts of a streamed answer; None: for ever.
    pub silence: Option<Duration>,
    /// For one request, all of it; None: for ever.
    pub call: Option<Duration>,
    /// For anything more from an address that the endpoint has left: then the call goes on at the new one.
    pub left: Duration,
}

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks { connect: CONNECT, first: Some(FIRST), silence: Some(SILENCE), call: None, left: LEFT }
    }
}

/// What a client is made from.
#[derive(Clone)]
pub struct Options {
    /// Where the model is served.
    pub endpoint: Endpoint,
    /// The model, as the configuration names it: a provider before it is taken off once.
    pub model: String,
    /// The key; None: none is sent.
    pub key: Option<Key>,
    /// What goes with every request.
    pub sampling: Sampling,
    /// Answers come in parts, where the server can.
    pub stream: bool,
    /// The server takes a name for each request (`rid`): SGLang does.
    pub rids: bool,
    /// Fields of the body that are left out where a server refuses them by name.
    pub optional: BTreeSet<String>,
    /// How long what is waited for.
    pub clocks: Clocks,
    /// When a call is made again.
    pub retries: Policy,
}

impl Options {
    /// With everything else as it is by default.
    pub fn new(endpoint: &Endpoint, model: &str) -> Options {
        Options {
            endpoint: endpoint.clone(),
            model: model.to_string(),
            key: None,
            sampling: Sampling::default(),
            stream: true,
            rids: false,
            optional: ["rid", "session_id", "return_token_ids"].map(String::from).into(),
            clocks: Clocks::default(),
            retries: Policy::default(),
        }
    }
}

impl fmt::Debug for Options {
    /// Without what may hold a key: headers, and what the operator adds to the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("model", &self.model).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Providers that a model's name may begin with: all of them speak this protocol.
const PROVIDERS: [&str; 6] = ["openai", "hosted_vllm", "litellm_proxy", "custom_openai", "lm_studio", "llamafile"];

/// The name that a server knows the model by: what comes after the provider.
pub fn served_name(model: &str) -> &str {
    match model.split_once('/') {
        Some((provider, name)) if PROVIDERS.contains(&provider) && !name.is_empty() => name,
        _ => model,
    }
}
