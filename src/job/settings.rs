//! How a job's trials were run, as far as it can change what comes of them: agent arguments, timeouts,
//! resources. Where the model is reached is no part of it.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Settings of a job by name, in the order of names; values as JSON. What is left out or at its default
/// is not listed, so that a sparse and a full config say the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// `timeout_multiplier`, `agent.kwargs.temperature`, `environment.override_cpus`, …; with several
    /// agents `agent[name/model].…`.
    pub values: BTreeMap<Arc<str>, Arc<str>>,
    /// Where the model is reached, secrets masked.
    pub endpoints: Vec<Arc<str>>,
    /// Where the tasks come from: path or name, with version, reference or commit.
    pub datasets: Vec<Arc<str>>,
    /// True once a config was read.
    pub read: bool,
}

/// A setting that is not the same in two jobs; None where it is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    /// Its name.
    pub name: Arc<str>,
    /// Its value here.
    pub here: Option<Arc<str>>,
    /// Its value there.
    pub there: Option<Arc<str>>,
}

impl Settings {
    /// Nothing was read: that nothing is listed means nothing.
    pub fn is_unknown(&self) -> bool {
        !self.read
    }

    /// What is not the same in another job. Jobs of other agents are not compared agent by agent: their
    /// names say it all.
    pub fn differing(&self, there: &Settings, same_agents: bool) -> Vec<Differing> {
        let mut names: Vec<&Arc<str>> = self.values.keys().chain(there.values.keys()).collect();
        names.sort();
        names.dedup();
        let of_agent = |name: &str| name.starts_with("agent.") || name.starts_with("agent[");
        let pair = |name: &Arc<str>| Differing {
            name: name.clone(),
            here: self.values.get(name).cloned(),
            there: there.values.get(name).cloned(),
        };
        let differ = names.into_iter().filter(|name| same_agents || !of_agent(name)).map(pair);
        differ.filter(|d| d.here != d.there).collect()
    }
}
