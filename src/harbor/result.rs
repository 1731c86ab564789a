//! A trial's `result.json`: written once, at the very end.

use std::sync::Arc;

use super::config::{DEFAULT_AGENT, RawConfig, TrialConfigFile, shared, short_name, task_key, what};
use super::early::reward_value;
use super::json::{self, Entries, FileProblem, List, Object, Scalar, object};
use crate::job::text::mask_secrets;
use crate::job::{Exception, RewardValue, Rewards, Span, Spans, Stamp, Tokens, TrialResult, time};

/// Characters kept of an exception's message.
const MESSAGE_CHARS: usize = 400;
/// Steps of a multi-step trial that are taken into account.
const STEPS: usize = 4096;

object!(RawSpan<'a> {
    started_at: Scalar<'a> = "started_at",
    finished_at: Scalar<'a> = "finished_at",
});

object!(RawPrompts<'a> {
    of: Scalar<'a> = "of",
    sha256: Scalar<'a> = "sha256",
});

object!(RawOwn<'a> {
    prompts: Object<'a, RawPrompts<'a>> = "prompts",
});

object!(RawMetadata<'a> {
    n_episodes: Scalar<'a> = "n_episodes",
    pilothouse: Object<'a, RawOwn<'a>> = "pilothouse",
});

object!(RawAgentResult<'a> {
    n_input_tokens: Scalar<'a> = "n_input_tokens",
    n_cache_tokens: Scalar<'a> = "n_cache_tokens",
    n_output_tokens: Scalar<'a> = "n_output_tokens",
    cost_usd: Scalar<'a> = "cost_usd",
    metadata: Object<'a, RawMetadata<'a>> = "metadata",
});

object!(RawVerifierResult<'a> {
    rewards: Object<'a, Entries<'a, Scalar<'a>>> = "rewards",
    reward: Scalar<'a> = "reward",
});

object!(RawException<'a> {
    exception_type: Scalar<'a> = "exception_type",
    exception_message: Scalar<'a> = "exception_message",
});

object!(RawModel<'a> {
    name: Scalar<'a> = "name",
    provider: Scalar<'a> = "provider",
});

object!(RawAgentInfo<'a> {
    name: Scalar<'a> = "name",
    model_info: Object<'a, RawModel<'a>> = "model_info",
});

object!(RawStep<'a> {
    agent_result: Object<'a, RawAgentResult<'a>> = "agent_result",
    exception_info: Object<'a, RawException<'a>> = "exception_info",
});

object!(RawTaskId<'a> {
    path: Scalar<'a> = "path",
    name: Scalar<'a> = "name",
});

object!(RawTrial<'a> {
    id: Scalar<'a> = "id",
    task_name: Scalar<'a> = "task_name",
    trial_name: Scalar<'a> = "trial_name",
    task_id: Object<'a, RawTaskId<'a>> = "task_id",
    source: Scalar<'a> = "source",
    task_checksum: Scalar<'a> = "task_checksum",
    config: Object<'a, RawConfig<'a>> = "config",
    agent_info: Object<'a, RawAgentInfo<'a>> = "agent_info",
    agent_result: Object<'a, RawAgentResult<'a>> = "agent_result",
    verifier_result: Object<'a, RawVerifierResult<'a>> = "verifier_result",
    exception_info: Object<'a, RawException<'a>> = "exception_info",
    started_at: Scalar<'a> = "started_at",
    finished_at: Scalar<'a> = "finished_at",
    environment_setup: Object<'a, RawSpan<'a>> = "environment_setup",
    agent_setup: Object<'a, RawSpan<'a>> = "agent_setup",
    agent_execution: Object<'a, RawSpan<'a>> = "agent_execution",
    verifier: Object<'a, RawSpan<'a>> = "verifier",
    step_results: List<Object<'a, RawStep<'a>>, STEPS> = "step_results",
    reward_valid: Scalar<'a> = "reward_valid",
});

/// A trial's `result.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialResultFile {
    /// What lists and counts need.
    pub result: TrialResult,
    /// The config inside it, completed by what the result says of task, agent and model.
    pub config: TrialConfigFile,
    /// Fields that were not what they should be, in words; they count as unknown.
    pub notes: Vec<String>,
}

/// Reads a trial's `result.json` of any generation. A field of a wrong type becomes unknown and is
/// noted; what is not needed (tracebacks, token ids, messages) is skipped without being kept.
///
/// # Errors
/// See [`FileProblem`]. `Foreign` for anything but an object with a string `task_name` and one of
/// `trial_name`, `config`, `id`, `agent_info`.
pub fn trial_result(bytes: &[u8]) -> Result<TrialResultFile, FileProblem> {
    let (file, notes) = json::lenient(bytes, |body| {
        json::document::<Object<'_, RawTrial<'_>>>(body).map(|root| match root {
            Object::Some(raw) => read(&raw),
            Object::Other(other) => Err(FileProblem::foreign(format!("not a trial's result: {}", what(&other)))),
        })
    })?;
    let mut file = file?;
    file.notes.extend(notes);
    Ok(file)
}

/// Collects what was wrong with single fields.
#[derive(Default)]
struct Notes {
    list: Vec<String>,
    naive: bool,
}

impl Notes {
    fn wrong(&mut self, field: &str, value: &Scalar<'_>, wanted: &str) {
        self.list.push(format!("{field}: {} is not {wanted}", value.shown()));
    }

    fn object<T>(&mut self, field: &str, value: &Object<'_, T>) {
        if let Some(other) = value.wrong() {
            self.wrong(field, other, "an object");
        }
    }

    fn time(&mut self, field: &str, value: &Scalar<'_>) -> Option<Stamp> {
        if value.is_none() {
            return None;
        }
        match value.str().and_then(time::parse) {
            Some(read) => {
                self.naive |= read.naive;
                Some(read.at)
            }
            None => {
                self.wrong(field, value, "a time");
                None
            }
        }
    }

    fn count(&mut self, field: &str, value: &Scalar<'_>) -> Option<u64> {
        let n = value.u64();
        if n.is_none() && !value.is_none() {
            self.wrong(field, value, "a count");
        }
        n
    }

    fn span(&mut self, field: &str, value: &Object<'_, RawSpan<'_>>) -> Span {
        self.object(field, value);
        value.get().map_or(Span::default(), |s| Span {
            started: self.time(&format!("{field}.started_at"), &s.started_at),
            finished: self.time(&format!("{field}.finished_at"), &s.finished_at),
        })
    }
}

fn read(raw: &RawTrial<'_>) -> Result<TrialResultFile, FileProblem> {
    let Some(task_name) = raw.task_name.str() else {
        return Err(FileProblem::foreign("not a trial's result: an object without a string task_name"));
    };
    let known = [&raw.trial_name, &raw.id].iter().any(|s| s.str().is_some())
        || raw.config.get().is_some()
        || raw.agent_info.get().is_some();
    if !known {
        return Err(FileProblem::foreign(
            "not a trial's result: beside task_name there is no trial_name, config, id or agent_info",
        ));
    }
    let mut notes = Notes::default();
    let config = config(raw, task_name, &mut notes);
    let rewards = rewards(raw, &mut notes);
    notes.object("agent_result", &raw.agent_result);
    let work = match raw.agent_result.get() {
        Some(whole) => Work::of(whole, "agent_result", &mut notes),
        None => raw.step_results.items.iter().filter_map(Object::get).filter_map(|s| s.agent_result.get()).fold(
            Work::default(),
            |mut sum, step| {
                sum.add(&Work::of(step, "step_results.agent_result", &mut notes));
                sum
            },
        ),
    };
    if raw.step_results.count > STEPS {
        notes.list.push(format!("step_results: {} steps, the first {STEPS} are counted", raw.step_results.count));
    }
    let steps = raw.step_results.items.iter().filter_map(Object::get);
    let reward_valid = raw.reward_valid.bool();
    if reward_valid.is_none() && !raw.reward_valid.is_none() {
        notes.wrong("reward_valid", &raw.reward_valid, "true or false");
    }
    let (started, finished) = (notes.time("started_at", &raw.started_at), notes.time("finished_at", &raw.finished_at));
    if let (Some(started), Some(finished)) = (started, finished)
        && finished < started
    {
        notes.list.push("finished_at is before started_at".to_string());
    }
    let result = TrialResult {
        id: shared(&raw.id),
        task_name: Arc::from(task_name),
        rewards,
        reward_valid,
        exception: exception(&raw.exception_info),
        step_exceptions: steps.filter_map(|s| exception_type(&s.exception_info)).collect(),
        tokens: work.tokens,
        cost_usd: work.cost,
        n_episodes: work.episodes,
        started,
        finished,
        spans: Spans {
            environment_setup: notes.span("environment_setup", &raw.environment_setup),
            agent_setup: notes.span("agent_setup", &raw.agent_setup),
            agent: notes.span("agent_execution", &raw.agent_execution),
            verifier: notes.span("verifier", &raw.verifier),
        },
        verifier_disabled: config.verifier_disabled,
        install_only: config.install_only,
        task_checksum: shared(&raw.task_checksum),
        agent: who(raw),
        tests: None,
    };
    let mut list = notes.list;
    if notes.naive {
        list.push("times without a zone are read as local times of this machine".to_string());
    }
    list.extend(config.notes.iter().map(|note| format!("config.{note}")));
    Ok(TrialResultFile { result, config, notes: list })
}

fn config(raw: &RawTrial<'_>, task_name: &str, notes: &mut Notes) -> TrialConfigFile {
    notes.object("config", &raw.config);
    notes.object("agent_info", &raw.agent_info);
    let mut config = raw.config.get().map(RawConfig::read).unwrap_or_default();
    if config.task.is_none() {
        let none = Scalar::Absent;
        config.task = raw
            .task_id
            .get()
            .and_then(|id| task_key(&id.path, &id.name, &none))
            .or_else(|| short_name(task_name).map(Arc::from));
    }
    let info = raw.agent_info.get();
    if config.agent.is_none() {
        config.agent = match info {
            Some(info) => shared(&info.name),
            None => raw.config.get().map(|_| Arc::from(DEFAULT_AGENT)),
        };
    }
    if config.model.is_none() {
        config.model = info.and_then(|i| i.model_info.get()).and_then(|m| {
            let name = m.name.text()?;
            Some(m.provider.text().map_or_else(|| Arc::from(name), |p| Arc::from(format!("{p}/{name}"))))
        });
    }
    if config.source.is_none() {
        config.source = shared(&raw.source);
    }
    if config.trial_name.is_none() {
        config.trial_name = shared(&raw.trial_name);
    }
    config
}

/// Who worked, and with which prompts where they are none of Harbor's.
fn who(raw: &RawTrial<'_>) -> Option<Arc<str>> {
    let name = raw.agent_info.get()?.name.text()?;
    let steps = raw.step_results.items.iter().filter_map(Object::get).filter_map(|s| s.agent_result.get());
    let worked = raw.agent_result.get().into_iter().chain(steps).next()?;
    let own = worked.metadata.get().and_then(|m| m.pilothouse.get()).and_then(|own| own.prompts.get());
    let prompts = own.filter(|p| p.of.text().is_some_and(|of| of != "harbor")).and_then(|p| p.sha256.text());
    Some(match prompts {
        Some(hash) => format!("{name} (prompts {})", hash.chars().take(8).collect::<String>()).into(),
        None => Arc::from(name),
    })
}

fn rewards(raw: &RawTrial<'_>, notes: &mut Notes) -> Rewards {
    notes.object("verifier_result", &raw.verifier_result);
    let Some(verifier) = raw.verifier_result.get() else { return Rewards::None };
    let keys = match &verifier.rewards {
        Object::Some(entries) => entries
            .0
            .iter()
            .filter_map(|(key, value)| match reward_value(value) {
                Some(read) => Some((Arc::from(&**key), read)),
                None => {
                    notes.wrong(&format!("rewards.{key}"), value, "a number");
                    None
                }
            })
            .collect(),
        Object::Other(other) => match (reward_value(other), reward_value(&verifier.reward)) {
            // The verifier did give something, so it must not look like a phantom.
            (Some(read), _) => {
                notes.wrong("rewards", other, "an object");
                vec![(Arc::from("rewards"), RewardValue::Unreadable(text_of(&read)))]
            }
            // As the first releases wrote it.
            (None, Some(read)) => vec![(Arc::from("reward"), read)],
            (None, None) => return Rewards::None,
        },
    };
    for (key, value) in &keys {
        if let RewardValue::Unreadable(text) = value {
            let note = format!("rewards.{key}: {text} is not a number");
            if !notes.list.contains(&note) {
                notes.list.push(note);
            }
        }
    }
    Rewards::Keys(keys)
}

fn text_of(value: &RewardValue) -> Arc<str> {
    match value {
        RewardValue::Number(n) => n.to_string().into(),
        RewardValue::Unreadable(text) => text.clone(),
    }
}

/// What an agent did, of a trial or of one of its steps.
#[derive(Default)]
struct Work {
    tokens: Tokens,
    cost: Option<f64>,
    episodes: Option<u32>,
}

impl Work {
    fn of(raw: &RawAgentResult<'_>, field: &str, notes: &mut Notes) -> Work {
        let mut count = |key: &str, value: &Scalar<'_>| notes.count(&format!("{field}.{key}"), value);
        let tokens = Tokens {
            input: count("n_input_tokens", &raw.n_input_tokens),
            cache: count("n_cache_tokens", &raw.n_cache_tokens),
            output: count("n_output_tokens", &raw.n_output_tokens),
        };
        let episodes = raw.metadata.get().map(|m| &m.n_episodes);
        let episodes = episodes.and_then(|n| count("metadata.n_episodes", n).and(n.u32()));
        let cost = raw.cost_usd.f64();
        if cost.is_none() && !raw.cost_usd.is_none() {
            notes.wrong(&format!("{field}.cost_usd"), &raw.cost_usd, "a number");
        }
        Work { tokens, cost, episodes }
    }

    fn add(&mut self, other: &Work) {
        self.tokens.add(&other.tokens);
        if let Some(cost) = other.cost {
            self.cost = Some(self.cost.unwrap_or(0.0) + cost);
        }
        if let Some(n) = other.episodes {
            self.episodes = Some(self.episodes.unwrap_or(0).saturating_add(n));
        }
    }
}

/// The type of an exception; `unknown` where something stands there that names none.
fn exception_type(raw: &Object<'_, RawException<'_>>) -> Option<Arc<str>> {
    match raw {
        Object::Some(e) => {
            let kind = e.exception_type.text().and_then(|t| t.rsplit('.').next()).filter(|t| !t.is_empty());
            Some(kind.map_or_else(|| Arc::from("unknown"), |t| t.chars().take(200).collect::<String>().into()))
        }
        Object::Other(other) if other.is_none() => None,
        Object::Other(_) => Some(Arc::from("unknown")),
    }
}

fn exception(raw: &Object<'_, RawException<'_>>) -> Option<Exception> {
    let kind = exception_type(raw)?;
    let message = match raw {
        Object::Some(e) => shorten(e.exception_message.str().unwrap_or("")),
        Object::Other(other) => shorten(&other.shown()),
    };
    Some(Exception { kind, message: message.into() })
}

/// The first characters of a message with its secrets masked. Messages can hold hundreds of kB of
/// container output, so only a window is searched; what the window's edge could have cut in two is
/// left out before the rest is shortened.
fn shorten(message: &str) -> String {
    const WINDOW: usize = 8 * MESSAGE_CHARS;
    let end = message.char_indices().nth(WINDOW).map_or(message.len(), |(at, _)| at);
    let window = message.get(..end).unwrap_or(message);
    let masked = mask_secrets(window);
    let whole = if end == message.len() {
        &*masked
    } else {
        let edge = masked.rfind(char::is_whitespace).unwrap_or(0);
        masked.get(..edge).filter(|w| !w.is_empty()).unwrap_or("")
    };
    if whole.is_empty() && end < message.len() {
        // One word longer than the window: its beginning may be a secret only if the mask saw it.
        return masked.chars().take(MESSAGE_CHARS).collect();
    }
    whole.chars().take(MESSAGE_CHARS).collect()
}
