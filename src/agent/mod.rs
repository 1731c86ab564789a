//! Who works in a trial: what an agent is to the one who runs it, and those that call no model.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::environment::{EnvError, Environment, Ledger};
use crate::harbor::task::{Task, TaskStep};
use crate::harbor::write::config::AgentConfig;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::AgentResult;
use crate::harbor::write::{Folder, Scrub};
use crate::model::endpoint::Endpoint;
use crate::model::{Client, Key, Options};

mod desk;
pub mod installed;
mod nop;
mod oracle;
pub mod scripted;
pub mod terminus;

pub use desk::Desk;
pub use nop::Nop;
pub use oracle::Oracle;
pub use scripted::Scripted;
pub use terminus::Terminus;

/// What a part of an agent's work gives: a future that may move between threads. Dropping it ends the
/// work where the environment can end it.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Raised>> + Send + 'a>>;

/// Where an agent works.
pub struct Stage<'a> {
    /// The environment, started.
    pub environment: &'a Arc<dyn Environment>,
    /// The task.
    pub task: &'a Task,
    /// The step of it.
    pub step: &'a TaskStep,
    /// What the agent is told, with what the job adds.
    pub instruction: &'a str,
    /// The trial's `agent/`, for what is written from outside.
    pub logs: &'a Arc<Folder>,
    /// The operator's variables for the agent.
    pub env: &'a BTreeMap<String, String>,
    /// What must not be written anywhere.
    pub scrub: &'a Scrub,
    /// Most bytes kept of what it prints.
    pub output_cap: u64,
    /// Where the ends of its commands are noted.
    pub ledger: &'a Ledger,
    /// The agent's terminal, and what it has to report so far.
    pub desk: &'a Desk,
    /// Where its model is served, shared with the trials that name the same address; None where its config
    /// names none.
    pub endpoint: Option<&'a Endpoint>,
}

/// Who works on a task.
pub trait Agent: Send + Sync {
    /// Its name, as Harbor has it.
    fn name(&self) -> &str;

    /// Its version, as Harbor has it, unless [`Desk::version`] knows better.
    fn version(&self) -> &str;

    /// Makes it ready.
    fn setup<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, ()>;

    /// Works on the step until it is done.
    fn run<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, AgentResult>;

    /// Its work was cut short, and what worked on it is gone: ends what is left of it where it is, and
    /// reports at its desk what can still be known.
    fn settle<'a>(&'a self, _stage: &'a Stage<'a>, _cut: Cut) -> Work<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// What cut an agent's work short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Its time was over; the tests come next.
    TimeUp,
    /// The trial was stopped; its place is about to be taken down.
    Stopped,
}

/// The agents that there are, by name.
pub const NAMES: [&str; 5] = ["oracle", "nop", scripted::NAME, terminus::NAME, terminus::OWN_NAME];

/// Whether there is an agent of this name: built in, or by a file of its own.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || installed::names().iter().any(|installed| installed == name)
}

/// All names, for a message.
pub fn all_names() -> String {
    let installed = installed::names();
    NAMES.into_iter().chain(installed.iter().map(String::as_str)).collect::<Vec<_>>().join(", ")
}

/// Whether an agent of this name has settings of its own, and a way to a model.
pub fn has_settings(name: &str) -> bool {
    asks_a_model(name) || (!NAMES.contains(&name) && is_known(name))
}

/// Whether an agent of this name asks a model from here.
pub fn asks_a_model(name: &str) -> bool {
    [terminus::NAME, terminus::OWN_NAME].contains(&name)
}

/// The agent that a config asks for, with all that it needs; nothing is begun.
///
/// # Errors
/// A name that is not ours, or settings that cannot be, a line each, safe to show.
pub fn of(config: &AgentConfig) -> Result<Box<dyn Agent>, Vec<String>> {
    match config.name.as_deref().unwrap_or_default() {
        "oracle" => Ok(Box::new(Oracle)),
        "nop" => Ok(Box::new(Nop)),
        scripted::NAME => Ok(Box::new(Scripted)),
        name if asks_a_model(name) => Ok(Box::new(Terminus::of(config)?)),
        _ => match installed::of(config) {
            Some(made) => Ok(Box::new(made?)),
            None => Err(vec![format!("only {} are", all_names())]),
        },
    }
}

/// The key that a config's agent asks its model with, for those who must not write it.
pub fn key(config: &AgentConfig) -> Option<String> {
    let name = config.name.as_deref().unwrap_or_default();
    match asks_a_model(name) {
        true => terminus::key_of(config),
        // One by a file is given it where it works.
        false if !NAMES.contains(&name) => installed::of(config)?.ok()?.secrets().next(),
        false => None,
    }
}

/// Where the model of a config's agent is served, by its config and this host's variables; None for one that
/// names no address and asks none. A program that is installed asks from where it works: its address means
/// something there.
pub fn base(config: &AgentConfig) -> Option<String> {
    let name = config.name.as_deref().unwrap_or_default();
    match asks_a_model(name) {
        true => Some(terminus::base_of(config)),
        false if has_settings(name) => None,
        false => config.api_base().map(str::to_string),
    }
}

/// A client that asks the model of a config's agent as that does, at this address.
///
/// # Errors
/// In words, safe to show.
pub fn client_at(config: &AgentConfig, base: &str) -> Result<Client, String> {
    if asks_a_model(config.name.as_deref().unwrap_or_default()) {
        return Terminus::of(config).map_err(|lines| lines.join("; "))?.at(base);
    }
    let model = config.model_name.as_deref().unwrap_or_default();
    let name = config.model_api_key_name.as_deref().unwrap_or(terminus::KEY);
    Client::new(Options { key: Key::from_env(name), ..Options::new(&Endpoint::new(base), model) })
}

/// A failure of the environment, as Harbor raises it.
pub(crate) fn of_environment(error: &EnvError, during: &str) -> Raised {
    Raised::new("RuntimeError", &error.to_string(), during)
}
