//! Terminus: an agent that gives a model a terminal, plays keystrokes that it writes as JSON, and shows it
//! what comes of them. It does what Harbor's Terminus-2 does, natively.
//!
//! | file | what it does |
//! |---|---|
//! | [`options`] | what can be set, and what is refused by name |
//! | [`prompts`] | what the model is told: our words, or those of an installed Harbor |
//! | [`json`], [`parse`] | its answers |
//! | `talk` | the conversation and how much of the context it takes |
//! | `run` | the loop |
//! | `recover` | a context that is full |
//! | `tell` | a call, what is told of it while it runs, and what may cut it |
//! | `sums` | what was used, and the report |
//! | `diary` | the trajectory |
//!
//! # Its name
//! With our prompts it is `pilothouse-terminus`: other words are another agent, and its scores are to be
//! compared as such. It is `terminus-2` only with the prompts of an installed Harbor
//! (`prompt_templates=harbor`) and without an option of ours that changes what the model sees
//! (`episode_timeout`, `max_thinking_tokens`). Which prompts, by their hash, and which such options is in the
//! result of every trial (`agent_result.metadata.pilothouse`).
//!
//! # What differs from Harbor's, and what that means for a comparison
//!
//! | Terminus-2 of Harbor 0.21 and 0.26 | here | comparable? |
//! |---|---|---|
//! | tmux and asciinema run in the container, installed over the network where they are missing | a terminal from outside, nothing is installed | fewer failures of the surroundings; the first screen has no banner of a recorder |
//! | `tmux kill-server` ends the trial with an error, without a verdict before 0.26 | there is none to kill; a shell that ends for good ends the agent's work, and the tests run | better for trials that did so |
//! | of more than 2,000 lines of output only the last screen is shown | as far as the history goes, with the number of lines that are lost | better with long output |
//! | a `;` at the end of keystrokes is lost | it is typed | better |
//! | output that was shortened is shortened again, and then names the wrong number of bytes | once | same text but for the note in its middle |
//! | what is new is cut at the wrong line where the old text is not at the beginning | by the number of lines | same, but for old lines that were repeated |
//! | a request ends after 600 s, 27 times | by no time, unless `llm_call_kwargs.timeout` says so | better for long thoughts |
//! | three layers ask again, up to 27 times, also where that can not help | one layer, by the kind of failure | same ends, sooner |
//! | the context is guessed: 1,000,000 tokens for unknown models; tokens are counted with another model's tokenizer | the server is asked, and its own counts are used | summaries come when they are due; fewer refused requests |
//! | near its limit it sums up in every turn | the threshold is at most a quarter of the context, and every second episode is left alone | better with short contexts |
//! | with `proactive_summarization_threshold=0` it sums up late | never beforehand, as is said of it | same but for that |
//! | where the very first prompt does not fit it goes on without task or format | `ContextLengthExceededError` | that trial is lost either way |
//! | a summary that does not fit is given up | it is tried with less of the conversation, three times | better |
//! | when the context is full for good it goes on with made-up answers until the time is over | three in a row, then `ContextLengthExceededError` | that trial is lost either way |
//! | answers that reach the longest length are asked for again without end | ten in a row, then `OutputLengthExceededError` | same |
//! | a summary that was cut is thrown away | it is used as far as it goes | better |
//! | tokens of answers that were cut or failed are lost | counted apart, never in the sums | same sums |
//! | a step that could not be read is in the trajectory with the next good one | at once | same |
//! | sums of the trajectory leave out summaries until its end | they never do | same at the end |
//! | unknown fields of a command are listed in any order; deep nesting and half surrogate pairs end the trial | in their order; an error for the model, U+FFFD | same otherwise |
//! | `NaN` as a duration waits for ever or fails | 1.0, with a warning | same otherwise |
//!
//! Kept as it is, since the model sees it: the observation that overflowed is not in the summary; text in
//! quotes before the object counts; the wait for a command is never cut short.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Map, json};

use super::{Agent, Stage, Work, of_environment};
use crate::harbor::task::{EnvTemplate, host_variable};
use crate::harbor::write::config::AgentConfig;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::AgentResult;
use crate::model::client::Client;
use crate::model::endpoint::Endpoint;
use crate::model::error::ModelError;
use crate::model::key::Key;
use crate::model::limits::{Engine, Served};
use crate::model::meter::Meter;
use crate::model::options::Options as Asking;
use crate::terminal::{FILE_CAP, Recording, Session, SessionSpec};

mod diary;
pub mod json;
pub mod options;
pub mod parse;
pub mod prompts;
mod recover;
mod run;
mod sums;
mod talk;
mod tell;

use diary::{Author, Diary};
use options::Options;
use prompts::{Prompts, Source};
use run::{DURING, Run};
use sums::{Beside, Sums};
use talk::Talk;

/// The name by which it is asked for.
pub const NAME: &str = "terminus-2";
/// Its name with our prompts.
pub const OWN_NAME: &str = "pilothouse-terminus";
/// The version of Harbor's.
const VERSION: &str = "2.0.0";
/// The raw bytes of its terminal are where Harbor's has them.
const PANE: &str = "terminus_2";
/// The variable with the key, where the config names none.
pub const KEY: &str = "OPENAI_API_KEY";
/// Variables with an address, where the config names none.
const ADDRESSES: [&str; 2] = ["OPENAI_BASE_URL", "OPENAI_API_BASE"];
/// Where OpenAI's own models are.
const OPENAI: &str = "https://api.openai.com/v1";
/// Providers before a model's name that speak this protocol.
const PROVIDERS: [&str; 2] = ["openai/", "hosted_vllm/"];
/// Refusals of a key or a model after which it is no slip of the server.
const REFUSALS: u32 = 3;

/// The agent.
pub struct Terminus {
    options: Options,
    prompts: Arc<Prompts>,
    model: String,
    /// The variable that holds the key.
    key_name: String,
    /// The model as the server is asked for it, address, key, clocks.
    asking: Asking,
    trust: Trust,
    /// What the server said of itself, and how often the endpoint had moved then.
    served: tokio::sync::Mutex<Option<(u32, Served)>>,
}

impl std::fmt::Debug for Terminus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminus").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Whether the key and the model's name are known to be good.
#[derive(Debug, Default)]
struct Trust {
    answered: AtomicBool,
    refused: AtomicU32,
}

impl Trust {
    fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
    }

    /// A key or a model was refused. Why nothing more is to be asked; None where it has worked before and
    /// may be the server's slip.
    fn refused(&self, error: &ModelError) -> Option<String> {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let slip = self.answered.load(Ordering::Relaxed) && refused < REFUSALS;
        let what = match error.kind {
            crate::model::error::Kind::Auth => "the key is not accepted",
            _ => "the server does not have the model",
        };
        (!slip).then(|| format!("{what} ({}): mend it, or move the endpoint", error.detail))
    }
}

/// The variable that holds the key.
pub fn key_name(config: &AgentConfig) -> &str {
    config.model_api_key_name.as_deref().unwrap_or(KEY)
}

/// The key.
pub(super) fn key_of(config: &AgentConfig) -> Option<String> {
    variable(config, key_name(config))
}

/// Where its model is, by its config.
pub(super) fn base_of(config: &AgentConfig) -> String {
    let named = config.api_base().map(str::to_string);
    let base = named.or_else(|| ADDRESSES.iter().find_map(|name| variable(config, name)));
    base.map_or_else(|| OPENAI.to_string(), |base| options::address(&base).unwrap_or(base))
}

/// The value of a variable: the agent's own, else this host's.
fn variable(config: &AgentConfig, name: &str) -> Option<String> {
    let own = config.env.get(name).map(|value| EnvTemplate::new(value).resolve(host_variable));
    match own {
        Some(own) => own.ok(),
        None => host_variable(name),
    }
    .filter(|value| !value.trim().is_empty())
}

impl Terminus {
    /// An agent by its config: everything is looked at, and nothing begun.
    ///
    /// # Errors
    /// All that is wrong, a line each, safe to show.
    pub fn of(config: &AgentConfig) -> Result<Terminus, Vec<String>> {
        let mut wrong = Vec::new();
        let options = Options::of(config).unwrap_or_else(|lines| {
            wrong.extend(lines);
            Options::default()
        });
        let model = config.model_name.clone().unwrap_or_default();
        if model.trim().is_empty() {
            wrong.push("no model: name it with -m openai/NAME".to_string());
        } else if !config.skip_model_parsing && !PROVIDERS.iter().any(|provider| model.starts_with(provider)) {
            let shown = crate::job::text::clean(&model);
            wrong.push(format!(
                "model {shown}: only openai/NAME and hosted_vllm/NAME, at a server that speaks OpenAI's protocol"
            ));
        }
        if let Some(format) = config.model_api_format.as_deref().filter(|format| *format != "openai_chat_completions") {
            let shown = crate::job::text::clean(format);
            wrong.push(format!("model_api_format {shown}: only openai_chat_completions"));
        }
        let named = options.api_base.clone().or_else(|| config.base_url.clone());
        let base = match named.or_else(|| ADDRESSES.iter().find_map(|name| variable(config, name))) {
            None => OPENAI.to_string(),
            Some(base) => options::address(&base).unwrap_or_else(|why| {
                wrong.push(format!("api_base: {}", crate::job::text::clean(&why)));
                OPENAI.to_string()
            }),
        };
        let key = key_of(config).and_then(|text| Key::new(&text));
        if key.is_none() && base == OPENAI {
            let name = crate::job::text::clean(key_name(config));
            wrong.push(format!("no key for {OPENAI}: set {name}, or name another server with --ak api_base=…"));
        }
        let prompts = match options.harbor_prompts {
            false => Prompts::own(),
            true => Prompts::harbor().unwrap_or_else(|e| {
                wrong.push(e.to_string());
                Prompts::own()
            }),
        };
        let mut asking = Asking::new(&Endpoint::new(&base), &model);
        asking.key = key;
        asking.sampling = options.sampling.clone();
        asking.stream = options.stream;
        asking.clocks.call = options.call_timeout.map(Duration::from_secs_f64);
        if let Some(retries) = options.retries {
            asking.retries.tries = retries.saturating_add(1);
        }
        if wrong.is_empty()
            && let Err(why) = Client::new(asking.clone())
        {
            wrong.push(crate::job::text::clean(&why).into_owned());
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let (prompts, trust, served) = (Arc::new(prompts), Trust::default(), tokio::sync::Mutex::default());
        let key_name = key_name(config).to_string();
        Ok(Terminus { options, prompts, model, key_name, asking, trust, served })
    }

    /// A client that asks as it does, at another address.
    ///
    /// # Errors
    /// In words, as [`Client::new`].
    pub fn at(&self, base: &str) -> Result<Client, String> {
        Client::new(Asking { endpoint: Endpoint::new(base), ..self.asking.clone() })
    }

    /// What makes it another agent than Harbor's, in words; nothing: it is Harbor's, by all that the model
    /// sees.
    pub fn deviations(&self) -> Vec<String> {
        let own = self.prompts.are_own().then(|| format!("prompts of pilothouse ({})", prompts::VERSION));
        own.into_iter().chain(self.options.deviations()).collect()
    }

    /// What the server says of itself, asked once for each address.
    async fn served(&self, client: &Client) -> Served {
        let moves = client.options().endpoint.now().moves;
        let mut known = self.served.lock().await;
        match &*known {
            // One that told nothing at all may have been away.
            Some((at, served)) if *at == moves && *served != Served::default() => served.clone(),
            _ => {
                let served = client.served().await;
                *known = Some((moves, served.clone()));
                served
            }
        }
    }

    fn about(&self) -> Map<String, serde_json::Value> {
        let prompts = match &self.prompts.source {
            Source::Own => json!({"of": "pilothouse", "version": prompts::VERSION, "sha256": self.prompts.hash}),
            Source::Harbor { version, path } => {
                json!({"of": "harbor", "version": version, "path": path, "sha256": self.prompts.hash})
            }
        };
        let mut about = Map::new();
        about.insert("prompts".into(), prompts);
        about.insert("deviations".into(), self.deviations().into());
        about
    }

    /// Its name: Harbor's only where it is Harbor's.
    fn known_as(&self) -> &'static str {
        if self.deviations().is_empty() { NAME } else { OWN_NAME }
    }

    /// The agent at its desk.
    async fn begin<'a>(&'a self, stage: &'a Stage<'a>) -> Result<Run<'a>, Raised> {
        let session = self.options.session_id.clone().unwrap_or_else(|| {
            let trial = stage.logs.path().parent().and_then(Path::file_name);
            format!("{}__agent", trial.unwrap_or_default().to_string_lossy())
        });
        let mut asking = self.asking.clone();
        if let Some(endpoint) = stage.endpoint {
            asking.endpoint = endpoint.clone();
        }
        let headers = &mut asking.sampling.headers;
        if self.options.session_id.is_some() {
            headers.insert("X-Session-ID".to_string(), session.clone());
        }
        for name in &self.options.session_id_headers {
            headers.insert(name.clone(), session.clone());
        }
        let wrong = |why: String| Raised::new("ValueError", &why, DURING);
        let client = Client::new(asking.clone()).map_err(wrong)?;
        let served = self.served(&client).await;
        asking.rids = served.engine == Some(Engine::Sglang);
        let client = Client::new(asking).map_err(wrong)?;
        let known = [
            served.context.map(|n| (n, "the server")),
            self.options.max_input.map(|n| (n, "model_info.max_input_tokens")),
        ];
        let limit = known.into_iter().flatten().min_by_key(|(n, _)| *n);
        let mut extra = Map::new();
        extra.insert("parser".into(), "json".into());
        if let Some(temperature) = self.options.temperature {
            extra.insert("temperature".into(), temperature.into());
        }
        if let Some(kwargs) = &self.options.llm_kwargs {
            extra.insert("llm_kwargs".into(), kwargs.clone());
        }
        extra.insert("pilothouse".into(), self.about().into());
        let author = Author {
            name: self.known_as(),
            version: VERSION,
            model: self.model.clone(),
            session: session.clone(),
            extra,
            prices: self.options.prices,
        };
        let diary = Diary::begin(Arc::clone(stage.logs), author, stage.scrub.clone()).await;
        Ok(Run {
            agent: self,
            stage,
            client,
            meter: Meter::default(),
            work: stage.desk.work(),
            talk: Talk::new(self.options.interleaved),
            sums: Sums { limit, ..Sums::default() },
            diary,
            beside: Beside { prices: self.options.prices, about: self.about() },
            session,
            limit: limit.map(|(limit, _)| limit),
            compacted: None,
            last_summary: None,
            pending: false,
            made_up: 0,
            ends: 0,
        })
    }

    /// Opens the terminal, where it is not open. That of the step before goes on, with another recording,
    /// where it is the same user's.
    async fn open(&self, stage: &Stage<'_>, during: &'static str) -> Result<(), Raised> {
        let mut desk = stage.desk.terminal().await;
        let config = &stage.task.config;
        let spec = SessionSpec {
            user: config.agent_user(stage.task.spec(stage.step)).map(ToString::to_string),
            workdir: config.environment.workdir.clone(),
            env: self.shell_env(stage),
        };
        if let Some(other) = desk.take_if(|session| *session.spec() != spec) {
            other.close().await;
        }
        if desk.as_ref().is_some_and(|session| session.records() || !self.options.record) {
            return Ok(());
        }
        let recording = match self.options.record {
            false => None,
            true => {
                let (logs, cap) = (Arc::clone(stage.logs), stage.output_cap.min(FILE_CAP));
                let made = tokio::task::spawn_blocking(move || Recording::begin(&logs, PANE, cap)).await;
                let failed = |e: String| Raised::new("OSError", &e, during);
                Some(made.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?)
            }
        };
        if let Some(session) = &*desk {
            session.record(recording);
            return Ok(());
        }
        let opened = Session::open(Arc::clone(stage.environment), spec, recording).await;
        *desk = Some(opened.map_err(|e| of_environment(&e, during))?);
        Ok(())
    }

    /// The operator's variables for the shell: all but the key, which is for this side alone.
    fn shell_env(&self, stage: &Stage<'_>) -> Vec<(String, String)> {
        let given = stage.env.iter().filter(|(name, _)| **name != self.key_name);
        given.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

impl Agent for Terminus {
    fn name(&self) -> &str {
        self.known_as()
    }

    fn version(&self) -> &str {
        VERSION
    }

    fn setup<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            // Of several steps each has its own.
            match stage.task.config.steps.is_empty() {
                true => self.open(stage, "the agent's setup").await,
                false => Ok(()),
            }
        })
    }

    fn run<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, AgentResult> {
        Box::pin(async move {
            self.open(stage, DURING).await?;
            let mut run = self.begin(stage).await?;
            run.work().await
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn of(kwargs: Value) -> Terminus {
        let mut kwargs = kwargs.as_object().unwrap().clone();
        kwargs.insert("api_base".into(), "http://127.0.0.1:9/v1".into());
        let model_name = Some("openai/org/m".to_string());
        let config = AgentConfig { name: Some(NAME.into()), model_name, kwargs, ..AgentConfig::default() };
        Terminus::of(&config).unwrap()
    }

    #[test]
    fn point_29_a_long_answer_is_cut_by_no_clock_unless_one_is_set() {
        assert_eq!(of(json!({})).asking.clocks.call, None);
        let hour = of(json!({"llm_call_kwargs": {"timeout": 3600}}));
        assert_eq!(hour.asking.clocks.call, Some(Duration::from_secs(3600)));
    }

    #[test]
    fn its_name_says_whose_words_it_speaks() {
        let own = of(json!({}));
        assert_eq!((own.name(), own.deviations().len()), (OWN_NAME, 1));
        let mut theirs = of(json!({}));
        let source = Source::Harbor { version: Some("0.26.0".into()), path: "/p".into() };
        let mut prompts = Prompts::own();
        prompts.source = source;
        theirs.prompts = Arc::new(prompts);
        assert_eq!((theirs.name(), theirs.about()["prompts"]["version"].as_str()), (NAME, Some("0.26.0")));
        theirs.options.episode_timeout = Some(9.0);
        assert_eq!((theirs.name(), theirs.deviations().len()), (OWN_NAME, 1));
    }

    #[test]
    fn a_key_that_has_worked_is_refused_three_times_before_that_counts() {
        let refused = || ModelError {
            kind: crate::model::error::Kind::Auth,
            detail: "status 401".into(),
            spent: crate::model::error::Spent::default(),
            partial: String::new(),
            tries: 1,
        };
        let trust = Trust::default();
        assert!(trust.refused(&refused()).unwrap().starts_with("the key is not accepted (status 401)"));
        trust.answered();
        assert_eq!((trust.refused(&refused()), trust.refused(&refused())), (None, None));
        assert!(trust.refused(&refused()).is_some());
    }
}
