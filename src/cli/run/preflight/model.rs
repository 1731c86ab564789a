//! One look at the model of every agent that asks one: key, name, address, one short completion with the
//! job's own settings, whether it thinks as intended, how long its context is.

use std::time::Duration;

use serde_json::Value;

use super::super::owner::Tell;
use super::super::prepare::Refusal;
use crate::agent;
use crate::harbor::write::config::AgentConfig;
use crate::job::text::{clean, mask_secrets};
use crate::job::work::words::tokens;
use crate::model::chat::Sampling;
use crate::model::error::{Kind, ModelError};
use crate::model::{Client, Probe, Served};
use crate::scheduler::Plan;

/// For one short answer, and what the server says of itself.
const LIMIT: Duration = Duration::from_secs(9);
/// A context of fewer tokens than this is hardly meant.
const SHORT: u64 = 8192;
/// Names of models that a line lists.
const NAMED: usize = 8;
const SKIP: &str = "or begin without this look (--no-preflight)";

/// Looks at the models of a job's agents.
///
/// # Errors
/// What would fail every trial of an agent, with the remedy.
pub async fn look(plan: &Plan, tell: &Tell) -> Result<(), Refusal> {
    let asks = |a: &&AgentConfig| agent::asks_a_model(a.name.as_deref().unwrap_or_default());
    let mut looks = Vec::new();
    for config in plan.config.agents.iter().filter(asks) {
        let Some(base) = agent::base(config) else { continue };
        // An agent that can not be made was refused before.
        let client = agent::client_at(config, &base).map_err(|why| Refusal::of(&why))?;
        let config = config.clone();
        looks.push(tokio::spawn(async move {
            let told = tokio::time::timeout(LIMIT, client.served());
            let (served, probed) = tokio::join!(told, client.probe(LIMIT));
            judge(&config, &base, &client, &served.unwrap_or_default(), probed)
        }));
    }
    let mut wrong = Vec::new();
    for look in looks {
        let Ok(judged) = look.await else { continue };
        judged.said.iter().for_each(|line| tell(line));
        wrong.extend(judged.wrong);
    }
    wrong.dedup();
    if wrong.is_empty() { Ok(()) } else { Err(Refusal(wrong)) }
}

/// What is to be said of one agent's model.
#[derive(Debug, Default, PartialEq, Eq)]
struct Judged {
    /// Told, and the job begins.
    said: Vec<String>,
    /// Why it does not begin.
    wrong: Vec<String>,
}

fn safe(text: &str) -> String {
    clean(&mask_secrets(text)).into_owned()
}

fn judge(
    config: &AgentConfig,
    base: &str,
    client: &Client,
    served: &Served,
    probed: Result<Probe, ModelError>,
) -> Judged {
    let mut out = Judged::default();
    let what = format!("model {} at {}", safe(client.model()), safe(base));
    let key = agent::terminus::key_name(config);
    let probe = match probed {
        Ok(probe) => probe,
        Err(error) => {
            let line = format!("{what}: {}: {}", safe(&error.detail), remedy(&error.kind, served, &safe(key)));
            // It comes back by itself, and trials wait for it.
            let passing = matches!(error.kind, Kind::RateLimit(_));
            if passing {
                out.said.push(line)
            } else {
                out.wrong.push(line)
            }
            return out;
        }
    };
    let thinks = match (probe.reasoning, probe.thinks_aloud) {
        (true, _) => "thinks first",
        (_, true) => "thinks within its answer",
        _ => "does not think first",
    };
    let context = served.context.map_or("-".to_string(), tokens);
    let took = probe.took.as_secs_f64();
    out.said.push(format!("{what}: answered in {took:.1} s, {thinks}, context {context}"));
    if client.options().key.is_none() {
        out.said.push(format!("{what}: it takes requests without a key (none in {})", safe(key)));
    }
    if served.listed == Some(false) {
        let names = named(served);
        out.said.push(format!("{what}: the server lists {names} and answers to this name all the same"));
    }
    if probe.thinks_aloud {
        let why = "its thoughts count as answer: start the server with the model's --reasoning-parser";
        out.said.push(format!("{what}: {why}"));
    }
    match (intended(&client.options().sampling), probe.reasoning || probe.thinks_aloud) {
        (Some((false, by)), true) => out.wrong.push(format!(
            "{what}: it thinks though {by} says that it should not: take out what asks for it, switch it off at the \
             server, {SKIP}"
        )),
        (Some((true, by)), false) => {
            out.said.push(format!("{what}: it did not think before this short answer, though {by} asks for it"));
        }
        _ => {}
    }
    length(config, &what, served.context, &mut out);
    out
}

/// Whether the context is as long as the job believes.
fn length(config: &AgentConfig, what: &str, context: Option<u64>, out: &mut Judged) {
    let told = config.kwargs.get("model_info").and_then(|info| info.get("max_input_tokens")).and_then(Value::as_u64);
    match (context, told) {
        (Some(context), Some(told)) if told > context => out.said.push(format!(
            "{what}: model_info says {} tokens of context, the server has {}: the lower one counts",
            tokens(told),
            tokens(context)
        )),
        (Some(context), _) if context < SHORT => out.said.push(format!(
            "{what}: a context of only {} tokens: most tasks need more; the server's own setting is meant?",
            tokens(context)
        )),
        (None, None) => out.said.push(format!(
            "{what}: the server does not tell the length of its context: --ak model_info='{{\"max_input_tokens\": N}}' \
             does, and spares requests that are refused for it"
        )),
        _ => {}
    }
}

/// Whether the settings want the model to think, and which one says so; None: they do not say.
fn intended(sampling: &Sampling) -> Option<(bool, String)> {
    let body = &sampling.extra_body;
    let template = body.get("chat_template_kwargs").and_then(Value::as_object);
    let switch = template.and_then(|kwargs| {
        let found =
            ["enable_thinking", "thinking"].into_iter().find_map(|name| Some((name, kwargs.get(name)?.as_bool()?)));
        found.map(|(name, on)| (on, format!("chat_template_kwargs.{name}={on}")))
    });
    switch.or_else(|| match sampling.reasoning_effort.as_deref()? {
        "none" => Some((false, "reasoning_effort=none".to_string())),
        "default" | "minimal" => None,
        effort => Some((true, format!("reasoning_effort={}", safe(effort)))),
    })
}

/// Names that the server lists, in few words.
fn named(served: &Served) -> String {
    let names: Vec<String> = served.names.iter().take(NAMED).map(|name| safe(name)).collect();
    let more = served.names.len().saturating_sub(names.len());
    match (names.is_empty(), more) {
        (true, _) => "no model".to_string(),
        (_, 0) => names.join(", "),
        _ => format!("{} and {more} more", names.join(", ")),
    }
}

/// What can be done about a failure.
fn remedy(kind: &Kind, served: &Served, key: &str) -> String {
    let server = "look whether the server runs and is reached from here, or name its address (--ak api_base=http://HOST:PORT/v1)";
    match kind {
        Kind::Connect | Kind::Broken => format!("{server}, {SKIP}"),
        Kind::Dns => format!("the host's name is not known here: {server}"),
        Kind::Tls => {
            "trust its certificate (SSL_CERT_FILE), or name an address with http:// inside your own network".to_string()
        }
        Kind::Timeout(_) => format!("it hangs, starts or has a long queue: look at its log, {SKIP}"),
        Kind::RateLimit(_) => "trials will wait for it: fewer at a time (-n) if it stays so".to_string(),
        Kind::Overloaded(_) => format!("it starts or is overloaded: try again when it is ready, {SKIP}"),
        Kind::Auth => format!("put the key that it wants into {key}"),
        Kind::ModelNotFound => {
            format!("it serves {}: name one of them (-m openai/NAME), or another server", named(served))
        }
        Kind::ContextExceeded { .. } => "its context is too short for any task: start it with a longer one".to_string(),
        Kind::Unsupported(Some(what)) => format!("take {} out of the agent's arguments (--ak)", safe(what)),
        Kind::Unsupported(None) | Kind::Refused(_) | Kind::ContentPolicy => {
            format!("mend the agent's arguments (--ak), {SKIP}")
        }
        Kind::Aborted | Kind::Cancelled => format!("try again, {SKIP}"),
        Kind::Malformed => format!("it does not speak OpenAI's protocol there: the address ends in /v1? {SKIP}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_settings_say_whether_it_is_to_think() {
        let of = |effort: Option<&str>, body: Value| {
            let extra_body = body.as_object().cloned().unwrap_or_default();
            let sampling = Sampling { reasoning_effort: effort.map(str::to_string), extra_body, ..Sampling::default() };
            intended(&sampling).map(|(on, by)| format!("{on} by {by}"))
        };
        let switch = |on: bool| json!({"chat_template_kwargs": {"enable_thinking": on}});
        assert_eq!(of(None, json!({})), None);
        assert_eq!(of(Some("default"), json!({})), None);
        assert_eq!(of(Some("none"), json!({})).as_deref(), Some("false by reasoning_effort=none"));
        assert_eq!(of(Some("high"), json!({})).as_deref(), Some("true by reasoning_effort=high"));
        let off = "false by chat_template_kwargs.enable_thinking=false";
        assert_eq!(of(Some("high"), switch(false)).as_deref(), Some(off));
        assert_eq!(of(None, json!({"chat_template_kwargs": {"enable_thinking": "yes"}})), None);
    }

    #[test]
    fn every_failure_has_a_remedy() {
        let served = Served { names: (0..10).map(|n| format!("m{n}")).collect(), ..Served::default() };
        let all = [
            Kind::Connect,
            Kind::Dns,
            Kind::Tls,
            Kind::Timeout(crate::model::error::Clock::Call),
            Kind::Auth,
            Kind::Overloaded(503),
            Kind::Refused(400),
            Kind::Unsupported(Some("top_k".into())),
            Kind::Malformed,
        ];
        for kind in all {
            assert!(remedy(&kind, &served, "KEY").len() > 20, "{kind:?}");
        }
        assert!(remedy(&Kind::Auth, &served, "MY_KEY").contains("MY_KEY"));
        let list = remedy(&Kind::ModelNotFound, &served, "KEY");
        assert!(list.contains("m0, m1") && list.contains("m7 and 2 more"), "{list}");
    }
}
