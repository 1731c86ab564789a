//! The endpoints of a job, to be moved while it runs: probed first, and only where what was found there is
//! as good as what was before.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::wire::{Endpoint, Probe};
use crate::agent;
use crate::cli::run::lookout::Contexts;
use crate::harbor::write::config::AgentConfig;
use crate::job::text::{clean, mask_secrets};
use crate::model::endpoint::Endpoints;
use crate::scheduler::{Control, Gate};
use crate::serving::source;

/// A probe is good for so long.
const GOOD: Duration = Duration::from_secs(600);
/// Longest probe of one model.
const LONGEST: Duration = Duration::from_secs(60);
/// For the present address to tell of its context.
const TOLD: Duration = Duration::from_secs(5);
/// Names of models that a line lists.
const NAMED: usize = 8;

/// What is to be probed.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The address.
    pub base: String,
    /// Who would call it: names the model, and where its key is.
    pub agent: AgentConfig,
    /// Ask one short question there; else only what it tells of itself is wanted.
    pub question: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The name under which the model is asked for.
    pub model: String,
    /// Models that it serves by its own list; None: it has no such list.
    pub models: Option<Vec<String>>,
    /// Tokens of context, where it tells.
    pub context: Option<u64>,
    /// How long one short answer took, or why there was none.
    pub answered: Option<Result<Duration, String>>,
}

/// Looks what is at an address: lists, asks for one short answer. Errors in words, safe to show.
pub type Prober = Arc<dyn Fn(Ask) -> Pin<Box<dyn Future<Output = Result<Found, String>> + Send>> + Send + Sync>;

struct Kept {
    at: Instant,
    probe: Probe,
    context: Option<u64>,
}

struct Inner {
    endpoints: Endpoints,
    agents: Vec<AgentConfig>,
    contexts: Contexts,
    prober: Prober,
    kept: Mutex<Option<Kept>>,
}

/// The endpoints of one job; clones are the same.
#[derive(Clone)]
pub struct Movable(Arc<Inner>);

impl fmt::Debug for Movable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Movable").field("endpoints", &self.0.endpoints).finish_non_exhaustive()
    }
}

fn safe(text: &str) -> String {
    clean(&mask_secrets(text)).into_owned()
}

/// An address as it is called.
fn plain(url: &str) -> Result<String, String> {
    let url = url.trim().trim_end_matches('/');
    if url.is_empty() {
        return Err("no address: give the URL of the model's server, as http://HOST:PORT/v1".to_string());
    }
    // What can be read of a server can be called, too; and no key hides in it.
    match source::parse(url) {
        Ok(spec) if matches!(spec.place, crate::serving::Place::Http(_)) && url.contains("://") => {}
        Ok(_) => return Err(format!("{}: no URL of a model's server, as http://HOST:PORT/v1", safe(url))),
        Err(why) => return Err(why.to_string()),
    }
    Ok(url.to_string())
}

impl Movable {
    /// The endpoints of a job whose agents these are.
    pub fn new(endpoints: Endpoints, agents: Vec<AgentConfig>, contexts: Contexts, prober: Prober) -> Movable {
        Movable(Arc::new(Inner { endpoints, agents, contexts, prober, kept: Mutex::default() }))
    }

    /// All of them, as they stand.
    pub fn all(&self) -> Vec<Endpoint> {
        let shown = |(named, endpoint): (String, crate::model::endpoint::Endpoint)| {
            let now = endpoint.now();
            let closed = now.closed.as_deref().map(str::to_string);
            Endpoint { named: safe(&named), base: safe(&now.base), moves: now.moves, closed }
        };
        self.0.endpoints.all().into_iter().map(shown).collect()
    }

    /// Which one is meant: by its address in the config, or its present one.
    fn which(&self, of: Option<&str>) -> Result<(String, crate::model::endpoint::Endpoint), String> {
        let all = self.0.endpoints.all();
        let list = || all.iter().map(|(named, _)| safe(named)).collect::<Vec<_>>().join(", ");
        let of = of.map(|of| of.trim().trim_end_matches('/'));
        match (of, all.as_slice()) {
            (_, []) => Err("no agent of this job calls a model at an address of the job's config".to_string()),
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err(format!("several endpoints, say which: {}", list())),
            (Some(of), _) => {
                let found = all.iter().find(|(named, e)| named == of || *e.now().base == *of);
                found.cloned().ok_or_else(|| format!("no endpoint {} in this job: {}", safe(of), list()))
            }
        }
    }

    /// Looks what is at an address; nothing is changed.
    ///
    /// # Errors
    /// Why nothing could be looked at, in words.
    pub async fn probe(&self, url: &str, of: Option<&str>) -> Result<Probe, String> {
        self.looked(url, of).await.map(|(probe, _)| probe)
    }

    async fn looked(&self, url: &str, of: Option<&str>) -> Result<(Probe, Option<u64>), String> {
        let url = plain(url)?;
        let (named, endpoint) = self.which(of)?;
        let now = endpoint.now();
        let mut probe = Probe { url: safe(&url), named: safe(&named), now: safe(&now.base), ..Probe::default() };
        if *now.base == *url {
            probe.found.push("it is called there already".to_string());
        }
        let mut agents: Vec<&AgentConfig> =
            self.0.agents.iter().filter(|a| agent::base(a).is_some_and(|b| b.trim_end_matches('/') == named)).collect();
        agents.dedup_by(|a, b| a.model_name == b.model_name);
        let known = self.0.contexts.lock().unwrap_or_else(PoisonError::into_inner).get(&named).copied();
        let mut context: Option<u64> = None;
        for agent in agents {
            let ask = Ask { base: url.clone(), agent: agent.clone(), question: true };
            let found = match tokio::time::timeout(LONGEST, (self.0.prober)(ask)).await {
                Ok(Ok(found)) => found,
                Ok(Err(why)) => {
                    probe.problems.push(safe(&why));
                    continue;
                }
                Err(_) => {
                    probe.problems.push(format!("no answer within {} s", LONGEST.as_secs()));
                    continue;
                }
            };
            let before = match known {
                Some(known) => Some(known),
                None => self.told_context(&now.base, agent).await.or(said_context(agent)),
            };
            judge(&found, before, &mut probe);
            context = [context, found.context].into_iter().flatten().min();
        }
        if probe.problems.is_empty() {
            let kept = Kept { at: Instant::now(), probe: probe.clone(), context };
            *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        }
        Ok((probe, context))
    }

    /// The context that the present address tells, where it still answers.
    async fn told_context(&self, base: &str, agent: &AgentConfig) -> Option<u64> {
        let ask = Ask { base: base.to_string(), agent: agent.clone(), question: false };
        tokio::time::timeout(TOLD, (self.0.prober)(ask)).await.ok()?.ok()?.context
    }

    /// Moves one there, by a probe that is not old or a new one.
    ///
    /// # Errors
    /// Why it was not moved, in words.
    pub async fn go(&self, url: &str, of: Option<&str>, control: &Control) -> Result<Probe, String> {
        let plain = plain(url)?;
        let (named, endpoint) = self.which(of)?;
        let kept = {
            let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            let same = |k: &Kept| k.probe.url == safe(&plain) && k.probe.named == safe(&named) && k.at.elapsed() < GOOD;
            kept.filter(same).map(|k| (k.probe, k.context))
        };
        let (mut probe, context) = match kept {
            Some(kept) => kept,
            None => self.looked(&plain, of).await?,
        };
        if !probe.problems.is_empty() {
            return Err(format!("not moved to {}: {}", probe.url, probe.problems.join("; ")));
        }
        probe.now = safe(&endpoint.now().base);
        if let Some(context) = context {
            self.0.contexts.lock().unwrap_or_else(PoisonError::into_inner).insert(named, context);
        }
        endpoint.move_to(&plain);
        // It has just answered; whoever looks after it judges it anew.
        if self.0.endpoints.all().iter().all(|(_, e)| e.now().closed.is_none()) {
            control.gate(Gate::Endpoint, None);
        }
        Ok(probe)
    }
}

/// The context that an agent's own arguments name.
fn said_context(agent: &AgentConfig) -> Option<u64> {
    agent.kwargs.get("model_info")?.get("max_input_tokens")?.as_u64()
}

/// What was found, in lines, and what speaks against it.
fn judge(found: &Found, before: Option<u64>, probe: &mut Probe) {
    let model = safe(&found.model);
    match &found.models {
        Some(models) if models.contains(&found.model) => probe.found.push(format!("serves {model}")),
        Some(models) => {
            let more = models.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let list: Vec<String> = models.iter().take(NAMED).map(|m| safe(m)).collect();
            let list = if list.is_empty() { "none".to_string() } else { list.join(", ") };
            probe.problems.push(format!("does not serve {model}: its models are {list}{more}"));
        }
        None => probe.found.push(format!("has no list of models; asked for {model}")),
    }
    let tokens = |n: Option<u64>| n.map_or("-".to_string(), |n| n.to_string());
    match (found.context, before) {
        (Some(new), Some(old)) if new < old => {
            probe.problems.push(format!("its context is shorter: {new} tokens, {old} before"));
        }
        (new, old) => probe.found.push(format!("context {} tokens, {} before", tokens(new), tokens(old))),
    }
    match &found.answered {
        Some(Ok(took)) => probe.found.push(format!("answered one question in {:.1} s", took.as_secs_f64())),
        Some(Err(why)) => probe.problems.push(format!("answers no question: {}", safe(why))),
        None => probe.problems.push("was not asked a question".to_string()),
    }
}
