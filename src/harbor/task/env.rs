//! Values of environment variables as a task writes them: text, or `${VAR}` and `${VAR:-default}`,
//! which stand for a variable of the host and are read when the value is needed, not before.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// Variables that an operator laid over those of this process.
static LAID_OVER: RwLock<BTreeMap<String, String>> = RwLock::new(BTreeMap::new());

/// Lays variables (of an `--env-file`) over those of this process, for everything that reads the host's.
pub fn lay_over(variables: impl IntoIterator<Item = (String, String)>) {
    LAID_OVER.write().unwrap_or_else(PoisonError::into_inner).extend(variables);
}

/// A variable of the host.
pub fn host_variable(name: &str) -> Option<String> {
    let laid = LAID_OVER.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    laid.or_else(|| std::env::var(name).ok())
}

/// A variable of the host that a task needs and that is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} needs the environment variable {variable}, which is not set")]
pub struct MissingVariable {
    /// The variable that is missing on the host.
    pub variable: String,
    /// The variable of the task whose value it should be; empty where a single value was asked for.
    pub key: String,
}

/// One value. Only a whole value is a template; `a${B}` is text (Harbor 0.21 and 0.26).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvTemplate {
    /// Text.
    Literal(String),
    /// A variable of the host.
    Host {
        /// Its name.
        variable: String,
        /// What stands for it where it is not set.
        default: Option<String>,
    },
}

/// The variables of one table, by name.
pub type EnvTemplates = BTreeMap<String, EnvTemplate>;

impl EnvTemplate {
    /// Reads a value as it is written.
    pub fn new(text: &str) -> EnvTemplate {
        let template = || {
            let inside = text.strip_prefix("${")?.strip_suffix('}')?;
            let (variable, default) = match inside.find([':', '}']) {
                None => (inside, None),
                Some(at) => {
                    let (variable, rest) = inside.split_at_checked(at)?;
                    (variable, Some(rest.strip_prefix(":-").filter(|d| !d.contains('\n'))?))
                }
            };
            let default = default.map(str::to_string);
            (!variable.is_empty()).then(|| EnvTemplate::Host { variable: variable.to_string(), default })
        };
        template().unwrap_or_else(|| EnvTemplate::Literal(text.to_string()))
    }

    /// The variable of the host that the value stands for.
    pub fn reads_host(&self) -> Option<&str> {
        match self {
            EnvTemplate::Literal(_) => None,
            EnvTemplate::Host { variable, .. } => Some(variable),
        }
    }

    /// The value; `lookup` knows the host's variables. One that is set to nothing is set.
    ///
    /// # Errors
    /// A variable that is not set and has no default.
    pub fn resolve(&self, lookup: impl Fn(&str) -> Option<String>) -> Result<String, MissingVariable> {
        match self {
            EnvTemplate::Literal(text) => Ok(text.clone()),
            EnvTemplate::Host { variable, default } => lookup(variable)
                .or_else(|| default.clone())
                .ok_or_else(|| MissingVariable { variable: variable.clone(), key: String::new() }),
        }
    }
}

/// All values of a table.
///
/// # Errors
/// The first variable that is not set and has no default.
pub fn resolve_all(
    templates: &EnvTemplates,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, MissingVariable> {
    let resolve = |(key, template): (&String, &EnvTemplate)| match template.resolve(&lookup) {
        Ok(value) => Ok((key.clone(), value)),
        Err(missing) => Err(MissingVariable { key: key.clone(), ..missing }),
    };
    templates.iter().map(resolve).collect()
}
