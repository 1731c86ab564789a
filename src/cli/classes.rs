//! Which rules hold: those of `--classes`, of the operator's own file, and the shipped ones.

use std::path::PathBuf;

use crate::triage::{Classifier, RulesError};

/// Where the operator's own rules lie: `$XDG_CONFIG_HOME/pilothouse/error-classes.toml`, else below
/// `~/.config`. None where there is no such file.
pub fn own_file() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|d| d.join(".config")))?;
    let file = home.join("pilothouse/error-classes.toml");
    file.symlink_metadata().is_ok().then_some(file)
}

/// The rules of a command: a file that was named, then the operator's own, then the shipped ones.
///
/// # Errors
/// Where a file is wrong: file, line, and what is allowed.
pub fn load(named: Option<&PathBuf>) -> Result<Classifier, RulesError> {
    let files: Vec<PathBuf> = named.cloned().into_iter().chain(own_file()).collect();
    Classifier::load(&files)
}

/// The rules where no file is named and nothing may stop a screen from opening: what is wrong with the
/// operator's own file goes to the log, and the shipped rules hold.
pub fn of_everybody() -> Classifier {
    load(None).unwrap_or_else(|error| {
        tracing::error!(%error, "the shipped rules hold");
        Classifier::shipped()
    })
}
