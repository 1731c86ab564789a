//! What lies on top of a view for a moment: prompts, menus, help, palette.

use std::path::PathBuf;

use super::action::{ACTIONS, Action, Context, Spec};
use super::input::Input;
use super::steer::ask::Asking;
use super::table::SortKey;
use super::triage::Target;
use crate::job::Verdict;
use crate::job::roster::Order;

/// What a prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    /// Filter of the trials list; applied while typing.
    Filter,
    /// Search in the trial view or the replay.
    Search,
    /// A note on a trial.
    Note,
    /// The reason of a verdict for many.
    Reason,
    /// The reason of a requeue.
    RequeueReason,
    /// Another address of the model, for a requeue.
    Endpoint,
    /// Another address of the model, for the job that runs.
    NewEndpoint,
    /// When the surroundings were at fault, and how.
    Outage,
    /// Filter of the server log; applied while typing.
    ServerLog,
    /// Filter of the list of jobs; applied while typing.
    JobsFilter,
    /// A directory of jobs to look through.
    AddRoot,
}

/// What a menu entry does.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// Set the filter.
    Filter(String),
    /// Sort by.
    Sort(SortKey),
    /// Sort the list of jobs by.
    SortJobs(Order),
    /// Look through this directory no more.
    Forget(PathBuf),
    /// Do this.
    Act(Action),
    /// Say this of a trial; none takes back what was said.
    Verdict(Target, Option<Verdict>),
    /// Say this of many.
    Bulk(Verdict),
    /// Ask whether this request is to be ended at its server.
    Abort(super::servers::request::Target),
    /// Nothing: the line only informs.
    Nothing,
}

/// One line of a menu.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Left.
    pub label: String,
    /// Right, dim.
    pub detail: String,
    /// What Enter does.
    pub choice: Choice,
    /// The letter that does it at once.
    pub hot: Option<char>,
}

/// A menu.
#[derive(Debug, Clone, PartialEq)]
pub struct Menu {
    /// Title in the frame.
    pub title: String,
    /// Entries.
    pub items: Vec<Item>,
    /// Selected entry.
    pub selected: usize,
}

/// The palette: every action by name.
#[derive(Debug, Clone)]
pub struct Palette {
    /// What was typed.
    pub input: Input,
    /// Matching actions, best first.
    pub matches: Vec<&'static Spec>,
    /// Selected match.
    pub selected: usize,
    /// Context whose actions are offered, with the global ones.
    pub context: Context,
}

impl Palette {
    /// Opens with everything that applies in a context.
    pub fn new(context: Context) -> Palette {
        let mut palette = Palette { input: Input::default(), matches: Vec::new(), selected: 0, context };
        palette.search();
        palette
    }

    /// Ranks the actions anew by what was typed.
    pub fn search(&mut self) {
        use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
        let text = self.input.text();
        let offered = ACTIONS.iter().filter(|s| s.context == self.context || s.context == Context::Global);
        let mut matcher = nucleo_matcher::Matcher::new(nucleo_matcher::Config::DEFAULT);
        let pattern = Pattern::new(&text, CaseMatching::Ignore, Normalization::Smart, AtomKind::Fuzzy);
        let mut buffer = Vec::new();
        let mut scored: Vec<(u32, &'static Spec)> = offered
            .filter_map(|spec| {
                let hay = format!("{} {}", spec.title, spec.id);
                let hay = nucleo_matcher::Utf32Str::new(&hay, &mut buffer);
                pattern.score(hay, &mut matcher).map(|score| (score, spec))
            })
            .collect();
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        self.matches = scored.into_iter().map(|(_, spec)| spec).collect();
        self.selected = 0;
    }
}

/// Whatever is on top.
#[derive(Debug, Clone)]
pub enum Overlay {
    /// A line being typed at the bottom.
    Prompt(PromptKind, Input, Option<String>),
    /// A menu.
    Menu(Menu),
    /// The help, scrolled by so many lines.
    Help(usize),
    /// The palette.
    Palette(Palette),
    /// A question before something is stopped or deleted.
    Ask(Asking),
}
