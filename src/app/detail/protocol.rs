//! What the view asks its loader for, and what comes back.

use std::path::PathBuf;

use super::Slot;
use super::doc::{Doc, Needle};
use super::timeline::StepSpan;
use crate::job::Stamp;

/// Which part of a text is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// Its beginning.
    Start,
    /// Its end.
    End,
    /// The end of the file that was written last.
    Live,
    /// The lines before and after this offset.
    Around(u64),
}

/// A wish to the loader. `serial` names the view that wishes; answers carry it, too.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Request {
    /// Begin with this trial dir.
    Open { serial: u64, dir: PathBuf },
    /// Files may have changed: say which.
    Changed { serial: u64 },
    /// The heads of `n` steps.
    Heads { serial: u64, from: usize, n: usize },
    /// One step in full.
    Step { serial: u64, n: usize },
    /// A window of a text: `nth` file of the slot (None: the one that matters most), or `path` for
    /// [`Slot::File`].
    Text { serial: u64, slot: Slot, nth: Option<usize>, path: Option<String>, at: At },
    /// The entries of a directory, relative to the trial dir.
    List { serial: u64, dir: String },
    /// The next match after (or before) a place.
    Search { serial: u64, slot: Slot, needle: Needle, from: Place, back: bool },
    /// Nothing is shown any more.
    Close,
}

/// A place in the text of a slot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Place {
    /// The step, in [`Slot::Episode`].
    pub step: usize,
    /// Offset of the line.
    pub offset: u64,
    /// Whether a match in that very line counts.
    pub inclusive: bool,
    /// The file: of several in a slot.
    pub nth: Option<usize>,
    /// The file, in [`Slot::File`].
    pub path: Option<String>,
}

/// An answer of the loader.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Reply {
    /// What `result.json` says beyond the summary.
    Facts { serial: u64, facts: Facts },
    /// How far the trajectories are read.
    Steps { serial: u64, parts: Vec<Part> },
    /// Heads of steps.
    Heads { serial: u64, from: usize, heads: Vec<Head> },
    /// One step in full.
    Step { serial: u64, n: usize, doc: Doc },
    /// A window of a text, or why there is none, in words.
    Text { serial: u64, slot: Slot, doc: Result<Doc, String> },
    /// Entries of a directory.
    Listing { serial: u64, dir: String, listing: Result<Vec<FileRow>, String> },
    /// These texts changed on disk (and the listing).
    Stale { serial: u64, slots: Vec<Slot>, listing: bool },
    /// Share of the text that was searched, 0 to 1.
    Searching { serial: u64, share: f64 },
    /// A match, or none in the whole text; `wrapped` when the search went past the end.
    Found { serial: u64, slot: Slot, place: Option<Place>, wrapped: bool },
}

/// What `result.json` says beyond the summary.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// Facts by name.
    pub identity: Vec<(&'static str, String)>,
    /// Steps of a multi-step trial.
    pub steps: Vec<StepSpan>,
}

/// One trajectory file.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Name of the step of a multi-step trial.
    pub name: Option<String>,
    /// Path relative to the trial dir.
    pub path: String,
    /// Steps known.
    pub steps: usize,
    /// Share that is indexed, 0 to 1.
    pub indexed: f64,
    /// What is to be said of it: missing, torn, vanished, unreadable.
    pub note: Option<String>,
    /// Grows whenever the file was read anew.
    pub revision: u64,
}

/// Who speaks in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Speaker {
    User,
    System,
    Agent,
    /// An agent step copied from before a summary.
    Copied,
}

/// The head of a step: its line in the list.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Who.
    pub speaker: Speaker,
    /// Number of the episode from 1, of agent steps.
    pub episode: Option<u32>,
    /// When it was recorded: after its commands ran.
    pub at: Option<Stamp>,
    /// Seconds since the step before; negative when the clock went back.
    pub gap: Option<f64>,
    /// Of those, seconds at the model, where they can be told apart.
    pub model: Option<f64>,
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Completion tokens.
    pub output: Option<u64>,
    /// First line of the plan, else of the message.
    pub line: String,
    /// Trajectories of subagents that it refers to.
    pub refs: u32,
    /// Set on the first step of a trajectory where there are several: its name.
    pub group: Option<String>,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct FileRow {
    /// Its name, as well as it can be shown.
    pub name: String,
    /// False for names that are not UTF-8: they are shown, not opened.
    pub openable: bool,
    /// What it is.
    pub kind: FileKind,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// Modification time.
    pub modified: Option<Stamp>,
}

/// Kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FileKind {
    Dir,
    File,
    Symlink,
    Other,
}
