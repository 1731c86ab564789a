//! A place for what reads sources.

use std::sync::Arc;

use super::{Observation, Place, Source};

/// One value of `--serving`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Its name, where it has one.
    pub name: Option<Arc<str>>,
    /// What is read.
    pub place: Place,
}

/// How sources are read.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Variable with the key.
    pub api_key_env: Option<String>,
    /// Variable with the admin key.
    pub admin_key_env: Option<String>,
    /// Zone of logs.
    pub zone: Option<jiff::tz::TimeZone>,
    /// Backlog.
    pub backlog: u64,
}

impl Options {
    /// What can not be had.
    pub fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// How an act went.
#[derive(Debug, Clone)]
pub struct Acted {
    /// Done.
    pub done: bool,
    /// In words.
    pub words: Arc<str>,
}

/// What reads.
#[derive(Debug)]
pub struct Handle {
    _tx: tokio::sync::mpsc::Sender<Vec<Observation>>,
}

impl Handle {
    /// Ends a request.
    pub fn abort(&self, _server: &str, _worker: Option<&str>, _rid: &str) -> impl Future<Output = Acted> + use<> {
        async { Acted { done: false, words: "nothing reads it".into() } }
    }
}

/// Reads a value.
///
/// # Errors
/// Never here.
pub fn parse(value: &str) -> Result<Spec, String> {
    Ok(Spec { name: None, place: Place::Http(value.into()) })
}

/// The sources.
pub fn sources(specs: &[Spec]) -> Vec<Source> {
    let of = |(n, s): (usize, &Spec)| Source {
        id: super::SourceId(n as u16),
        server: s.name.clone().unwrap_or_else(|| "server".into()),
        place: s.place.clone(),
    };
    specs.iter().enumerate().map(of).collect()
}

/// Starts.
pub fn start(_: Vec<Source>, _: &Options, tx: tokio::sync::mpsc::Sender<Vec<Observation>>) -> Handle {
    Handle { _tx: tx }
}

/// Guesses.
pub fn guess(_: &str) -> Option<Spec> {
    None
}
