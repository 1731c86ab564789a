//! The replay view: what is shown of a playing cast, and the wishes to its player.

use std::path::PathBuf;

use super::action::Action;
use super::effect::Effect;

/// What to play.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// A cast file, or a trial dir whose casts are found.
    pub path: PathBuf,
    /// Title in the frame.
    pub title: String,
    /// Index of the episode to start at.
    pub episode: Option<usize>,
}

/// A wish to the player.
#[derive(Debug)]
pub enum Request {
    /// Open this.
    Open(Source),
    /// Nothing is shown any more.
    Close,
}

/// An answer of the player.
#[derive(Debug)]
pub enum Reply {}

/// The view of a playing cast.
#[derive(Debug)]
pub struct ReplayView {
    /// What is played.
    pub source: Source,
}

impl ReplayView {
    /// Opens the view.
    pub fn open(source: Source) -> (ReplayView, Vec<Effect>) {
        (ReplayView { source: source.clone() }, vec![Effect::Replay(Request::Open(source))])
    }

    /// An action of context `Replay`; `size` is columns and rows for the terminal picture.
    pub fn act(&mut self, _action: Action, _size: (u16, u16)) -> Vec<Effect> {
        Vec::new()
    }

    /// The search text was entered.
    pub fn search(&mut self, _text: &str) -> Vec<Effect> {
        Vec::new()
    }

    /// The player answered.
    pub fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        match reply {}
    }
}
