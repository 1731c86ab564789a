//! The trial view: what is shown of one trial and what has to be loaded for it.

use std::path::PathBuf;

use super::action::Action;
use super::effect::Effect;
use crate::job::{Trial, TrialKey};

/// A wish to the loader.
#[derive(Debug)]
pub enum Request {
    /// Nothing is shown any more.
    Close,
}

/// An answer of the loader.
#[derive(Debug)]
pub enum Reply {}

/// The view of one trial.
#[derive(Debug)]
pub struct TrialView {
    /// Which.
    pub key: TrialKey,
    /// Its directory.
    pub dir: PathBuf,
}

impl TrialView {
    /// Opens the view.
    pub fn open(key: TrialKey, dir: PathBuf, _trial: &Trial) -> (TrialView, Vec<Effect>) {
        (TrialView { key, dir }, Vec::new())
    }

    /// An action of context `Trial`; `height` is the number of text rows of the main pane.
    pub fn act(&mut self, _action: Action, _height: usize) -> Vec<Effect> {
        Vec::new()
    }

    /// The search text changed (from the prompt).
    pub fn search(&mut self, _text: &str) -> Vec<Effect> {
        Vec::new()
    }

    /// The loader answered.
    pub fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        match reply {}
    }

    /// The trial's summary changed: files moved on.
    pub fn changed(&mut self, _trial: &Trial) -> Vec<Effect> {
        Vec::new()
    }

    /// Index of the episode that the cursor is in, for the replay.
    pub fn episode(&self) -> Option<usize> {
        None
    }

    /// What `y` copies here.
    pub fn copy_text(&self) -> String {
        self.dir.display().to_string()
    }
}
