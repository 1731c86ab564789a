//! What the server says of itself: how long a conversation may be, and whether a completion comes at all.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::chat::{Finish, Message, Role, Usage};
use super::client::{Client, read_whole};
use super::error::{Clock, Kind, ModelError, Spent};
use super::meter::{Meter, Watch};
use super::options::Options;
use super::retry::Policy;
use super::sse;
use super::transport;

/// Longest wait for one of these pages.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest page. SGLang's has 40 kB.
const PAGE: usize = 4 << 20;
/// Most names that are kept of a list of models.
const NAMES: usize = 200;
/// Tokens of a probe: enough to see whether the model thinks.
const PROBE: u64 = 32;

/// What serves the model, as far as it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// SGLang; it takes a name for each request (`rid`).
    Sglang,
    /// vLLM.
    Vllm,
    /// llama.cpp.
    LlamaCpp,
}

/// What a server tells of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Served {
    /// Tokens that a conversation and its answer may have together; None: it does not tell.
    pub context: Option<u64>,
    /// What serves it; None: it does not tell.
    pub engine: Option<Engine>,
    /// Whether the model is in the server's list; None: there is no list.
    pub listed: Option<bool>,
    /// The names in the list, safe to show; at most 200.
    pub names: Vec<String>,
}

/// What one completion shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// From sending the request to the last byte.
    pub took: Duration,
    /// To the first part of the answer; None: it came in one piece.
    pub first: Option<Duration>,
    /// The model thinks, and the server tells it apart from the answer.
    pub reasoning: bool,
    /// The model thinks within its answer (`<think>`): the server has no parser for that.
    pub thinks_aloud: bool,
    /// Why it ended.
    pub finish: Finish,
    /// What the server counted.
    pub usage: Option<Usage>,
    /// The model, by the server's word.
    pub model: Option<String>,
}

impl Client {
    /// What the server tells of the model; at most a few seconds, and nothing where it does not answer.
    pub async fn served(&self) -> Served {
        let base = self.options().endpoint.now().base;
        let mut served = Served::default();
        if let Some(list) = self.page(transport::address(&base, "/models").ok()).await {
            read_list(&mut served, &list, self.model());
        }
        // vLLM has said all; a list without a length may be SGLang's or that of a router before it.
        let ask = served.engine == Some(Engine::Sglang) || (served.context.is_none() && served.engine.is_none());
        if ask {
            for path in ["/server_info", "/get_server_info"] {
                if let Some(info) = self.page(transport::beside(&base, path).ok()).await {
                    read_info(&mut served, &info);
                    break;
                }
            }
        }
        if served.context.is_none()
            && served.engine != Some(Engine::Sglang)
            && let Some(props) = self.page(transport::beside(&base, "/props").ok()).await
        {
            let n_ctx = props.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
            served.context = n_ctx.filter(|n| *n > 0);
            served.engine = served.engine.or(n_ctx.map(|_| Engine::LlamaCpp));
        }
        served
    }

    async fn page(&self, url: Option<reqwest::Url>) -> Option<Value> {
        let url = url?;
        let client = transport::client(&url, self.options().clocks.connect.min(PATIENCE)).ok()?;
        let read = async {
            let response = client.get(url).headers(self.headers()).send().await.ok()?;
            if response.status().as_u16() != 200 {
                return None;
            }
            sse::parse(&read_whole(response, PAGE).await.ok()?)
        };
        tokio::time::timeout(PATIENCE, read).await.ok().flatten()
    }

    /// Asks for one short completion, with this model, this key and these settings, once.
    ///
    /// # Errors
    /// As [`Client::ask`]; later than `limit` is [`Clock::Call`].
    pub async fn probe(&self, limit: Duration) -> Result<Probe, ModelError> {
        let mut options = Options { retries: Policy::never(), ..self.options().clone() };
        options.sampling.max_tokens = Some(PROBE);
        options.optional.insert("max_tokens".to_string());
        let failed =
            |kind, detail| ModelError { kind, detail, spent: Spent::default(), partial: String::new(), tries: 1 };
        let client = Client::new(options).map_err(|why| failed(Kind::Connect, why))?;
        let content = "Reply with one word: ready.".to_string();
        let messages = [Message { role: Role::User, content, reasoning_content: None }];
        let began = Instant::now();
        let watch = Watch::new(&Meter::default());
        // A closed endpoint is what a probe is to find out about: it does not wait for it.
        let standing = client.options().endpoint.now();
        let once = client.once(&standing, &messages, &watch, 1);
        let reply = match tokio::time::timeout(limit, once).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(missed)) => {
                let error = failed(missed.kind, missed.words);
                return Err(ModelError { spent: missed.spent, partial: missed.partial, ..error });
            }
            Err(_) => {
                let words = format!("no completion in {} s", limit.as_secs_f32());
                return Err(failed(Kind::Timeout(Clock::Call), words));
            }
        };
        Ok(Probe {
            took: began.elapsed(),
            first: reply.first,
            reasoning: reply.reasoning.is_some_and(|reasoning| !reasoning.trim().is_empty())
                || reply.usage.and_then(|usage| usage.reasoning).is_some_and(|tokens| tokens > 0),
            thinks_aloud: reply.content.trim_start().starts_with("<think"),
            finish: reply.finish,
            usage: reply.usage,
            model: reply.model,
        })
    }
}

/// `/v1/models`: SGLang, vLLM, llama.cpp, OpenRouter, LM Studio.
fn read_list(served: &mut Served, list: &Value, model: &str) {
    let Some(entries) = list.get("data").and_then(Value::as_array) else { return };
    let id = |entry: &Value| entry.get("id").and_then(Value::as_str).map(str::to_string);
    served.names = entries.iter().filter_map(id).take(NAMES).map(|name| super::answer::safe_name(&name)).collect();
    let named = entries.iter().find(|entry| id(entry).as_deref() == Some(model));
    served.listed = Some(named.is_some());
    // SGLang answers for its one model whatever it is called.
    let only = entries.first().filter(|_| entries.len() == 1);
    let Some(entry) = named.or(only) else { return };
    let lengths = ["max_model_len", "context_length", "max_context_length", "context_window"];
    served.context = lengths.iter().find_map(|key| entry.get(key).and_then(Value::as_u64)).filter(|length| *length > 0);
    served.engine = match entry.get("owned_by").and_then(Value::as_str) {
        Some("sglang") => Some(Engine::Sglang),
        Some("vllm") => Some(Engine::Vllm),
        Some("llamacpp") => Some(Engine::LlamaCpp),
        _ => None,
    };
}

/// SGLang's `/server_info`. It shows keys in clear: nothing but these numbers is taken from it.
fn read_info(served: &mut Served, info: &Value) {
    let number = |key: &str| info.get(key).and_then(Value::as_u64).filter(|number| *number > 0);
    // A router answers, too, and has none of them.
    if info.get("max_total_num_tokens").is_none() && info.get("context_length").is_none() {
        return;
    }
    served.engine = Some(Engine::Sglang);
    let context = served.context.or(number("context_length"));
    // Where the memory holds less than one whole context, that is the limit.
    let held = [number("max_total_num_tokens"), number("max_req_input_len").map(|input| input + 64)];
    served.context = held.into_iter().flatten().chain(context).min();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_length_of_the_context_is_read_from_what_servers_say() {
        let list = |data: Value, model: &str| {
            let mut served = Served::default();
            read_list(&mut served, &json!({"object": "list", "data": data}), model);
            (served.context, served.engine, served.listed)
        };
        let sglang = json!([{"id": "tiny-llama", "owned_by": "sglang", "root": "tiny-llama", "max_model_len": 4096}]);
        assert_eq!(list(sglang.clone(), "tiny-llama"), (Some(4096), Some(Engine::Sglang), Some(true)));
        assert_eq!(list(sglang, "other"), (Some(4096), Some(Engine::Sglang), Some(false)));
        let two = json!([{"id": "a", "owned_by": "vllm", "max_model_len": 1}, {"id": "b", "owned_by": "vllm", "max_model_len": 8192}]);
        assert_eq!(list(two.clone(), "b"), (Some(8192), Some(Engine::Vllm), Some(true)));
        assert_eq!(list(two, "c"), (None, None, Some(false)));
        assert_eq!(list(json!([{"id": "m", "owned_by": "local"}]), "m"), (None, None, Some(true)));
        let mut none = Served::default();
        read_list(&mut none, &json!(["x", {"data": 4}]), "m");
        assert_eq!(none, Served::default());
    }

    #[test]
    fn sglang_may_hold_less_than_a_context() {
        let info = |context: Option<u64>, value: Value| {
            let mut served = Served { context, ..Served::default() };
            read_info(&mut served, &value);
            (served.context, served.engine)
        };
        let whole =
            json!({"context_length": 4096, "max_total_num_tokens": 6000, "max_req_input_len": 4090, "api_key": "x"});
        assert_eq!(info(None, whole), (Some(4096), Some(Engine::Sglang)));
        let little = json!({"context_length": null, "max_total_num_tokens": 59_900, "max_req_input_len": 59_862});
        assert_eq!(info(Some(163_840), little), (Some(59_900), Some(Engine::Sglang)));
        let router = json!({"router_manager": true, "routers_count": 1, "workers_count": 2});
        assert_eq!(info(None, router), (None, None));
    }
}
