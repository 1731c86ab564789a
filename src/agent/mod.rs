//! Who works in a trial: what an agent is to the one who runs it, and those that call no model.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::environment::{EnvError, Environment, Ledger};
use crate::harbor::task::{Task, TaskStep};
use crate::harbor::write::Folder;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::AgentResult;
use crate::model::endpoint::Endpoint;

mod desk;
mod nop;
mod oracle;
pub mod scripted;

pub use desk::Desk;
pub use nop::Nop;
pub use oracle::Oracle;
pub use scripted::Scripted;

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
    fn name(&self) -> &'static str;

    /// Its version, as Harbor has it.
    fn version(&self) -> &'static str;

    /// Makes it ready.
    fn setup<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, ()>;

    /// Works on the step until it is done.
    fn run<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, AgentResult>;
}

/// The agents that there are, by name.
pub const NAMES: [&str; 3] = ["oracle", "nop", scripted::NAME];

/// An agent by its name; None for one that is not ours.
pub fn by_name(name: &str) -> Option<Box<dyn Agent>> {
    match name {
        "oracle" => Some(Box::new(Oracle)),
        "nop" => Some(Box::new(Nop)),
        scripted::NAME => Some(Box::new(Scripted)),
        _ => None,
    }
}

/// A failure of the environment, as Harbor raises it.
pub(crate) fn of_environment(error: &EnvError, during: &str) -> Raised {
    Raised::new("RuntimeError", &error.to_string(), during)
}
