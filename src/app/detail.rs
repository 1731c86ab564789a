//! The trial view: what is shown of one trial, and the wishes to its loader.
//!
//! Pure: files are read by [`super::detail_worker`], which answers with texts that are ready to be
//! shown. Everything big is held in windows: a page of step heads, one step, one window of a file.

pub mod about;
pub mod doc;
pub mod timeline;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use self::doc::{Doc, Needle, Pane};
use self::timeline::StepSpan;
use super::action::Action;
use super::effect::Effect;
use super::model::Room;
use crate::job::{Stamp, Trial, TrialKey};

/// Step heads that are held at a time.
pub const HEADS: usize = 240;

/// The tabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tab {
    /// The list of steps; beside the text where there is room for both.
    Steps,
    /// One step in full.
    Episode,
    /// Rewards, cases, output of the tests.
    Verifier,
    /// The exception.
    Exception,
    /// Logs.
    Log,
    /// All files.
    Files,
    /// Identity, limits, problems.
    About,
}

impl Tab {
    /// All tabs, in order.
    pub const ALL: [Tab; 7] =
        [Tab::Steps, Tab::Episode, Tab::Verifier, Tab::Exception, Tab::Log, Tab::Files, Tab::About];

    /// The word on the tab.
    pub fn word(self) -> &'static str {
        match self {
            Tab::Steps => "Steps",
            Tab::Episode => "Episode",
            Tab::Verifier => "Verifier",
            Tab::Exception => "Exception",
            Tab::Log => "Log",
            Tab::Files => "Files",
            Tab::About => "About",
        }
    }

    fn step(self, by: isize) -> Tab {
        let at = Tab::ALL.iter().position(|t| *t == self).unwrap_or(0);
        let n = Tab::ALL.len() as isize;
        let to = (at as isize + by).rem_euclid(n);
        Tab::ALL.get(to as usize).copied().unwrap_or(Tab::Steps)
    }
}

/// The texts that a trial view can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // as the tabs
pub enum Slot {
    Episode,
    Verifier,
    Exception,
    Log,
    File,
    About,
}

impl Slot {
    /// All of them.
    pub const ALL: [Slot; 6] = [Slot::Episode, Slot::Verifier, Slot::Exception, Slot::Log, Slot::File, Slot::About];
}

/// Which part of a text is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// Its beginning.
    Start,
    /// Its end.
    End,
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
    /// Trajectories of helpers that it refers to.
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

/// The Files tab.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Directory shown, relative to the trial dir; empty for itself.
    pub dir: String,
    /// Its entries; None while they are fetched.
    pub rows: Option<Vec<FileRow>>,
    /// Why it can not be listed.
    pub problem: Option<String>,
    /// Selected entry.
    pub cursor: usize,
    /// The file that is open in [`Slot::File`].
    pub open: Option<String>,
    /// Name to select when the listing comes (the directory that was left).
    select: Option<String>,
}

/// How a search stands.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Finding {
    Running(f64),
    Found { wrapped: bool },
    Nothing,
}

/// The view of one trial.
#[derive(Debug)]
pub struct TrialView {
    /// Which.
    pub key: TrialKey,
    /// Its directory.
    pub dir: PathBuf,
    /// Tab shown.
    pub tab: Tab,
    /// What `result.json` says beyond the summary.
    pub facts: Option<Facts>,
    /// Trajectory files, in order; None until the loader looked.
    pub parts: Option<Vec<Part>>,
    /// Index of the first head that is held.
    pub heads_from: usize,
    /// The heads that are held.
    pub heads: Vec<Head>,
    /// Selected step.
    pub cursor: usize,
    /// New steps move the cursor along.
    pub follow: bool,
    /// The step that the Episode text is about.
    pub shown: Option<usize>,
    /// Its file was read anew since.
    outdated: bool,
    /// The Files tab.
    pub files: Files,
    /// What is searched for; empty: nothing.
    pub needle: Needle,
    /// How the search stands.
    pub finding: Option<Finding>,
    panes: [Pane; Slot::ALL.len()],
    serial: u64,
    size: (u16, u16),
    placed: bool,
    at_end: bool,
    revisions: u64,
    asked_heads: Option<usize>,
    summary: Doc,
}

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Columns of the left column where there are two; its frame included.
pub fn left_columns(columns: u16) -> u16 {
    (columns / 5 * 2).clamp(50, 76)
}

/// Lines of the timeline above the text where there is one column.
pub fn timeline_rows(rows: u16) -> u16 {
    if rows < 16 { 1 } else { 2 }
}

/// Text columns and rows of the main pane on a screen of this size: at most what there will be, so
/// that the last line can always be reached.
pub fn body((columns, rows): (u16, u16)) -> (usize, usize) {
    let (w, h) = match Room::of((columns, rows)) {
        // Footer, four lines on top, two of this view, two of the frame.
        Room::Double => (columns.saturating_sub(left_columns(columns) + 2), rows.saturating_sub(9)),
        // Footer, four lines on top, title, tabs, timeline.
        Room::Single => (columns, rows.saturating_sub(7 + timeline_rows(rows))),
        // Footer, one line on top, title, tabs, timeline.
        _ => (columns, rows.saturating_sub(4 + timeline_rows(rows))),
    };
    (usize::from(w.max(1)), usize::from(h.max(1)))
}

impl TrialView {
    /// Opens the view.
    pub fn open(key: TrialKey, dir: PathBuf, trial: &Trial) -> (TrialView, Vec<Effect>) {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let running = trial.result.is_none();
        let failed = trial.result.as_ref().is_some_and(|r| r.exception_type().is_some());
        let request = Request::Open { serial, dir: dir.clone() };
        let mut view = TrialView {
            key,
            dir,
            tab: Tab::Steps,
            facts: None,
            parts: None,
            heads_from: 0,
            heads: Vec::new(),
            cursor: 0,
            follow: running,
            shown: None,
            outdated: false,
            files: Files::default(),
            needle: Needle::default(),
            finding: None,
            panes: Default::default(),
            serial,
            size: (120, 36),
            placed: false,
            at_end: running || failed,
            revisions: 0,
            asked_heads: None,
            summary: Doc::default(),
        };
        view.summarise(trial);
        (view, vec![Effect::Detail(request)])
    }

    /// The terminal has this size.
    pub fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        let (width, height) = body(size);
        self.panes.iter_mut().for_each(|p| p.resize(width, height));
    }

    /// Steps known in all trajectories.
    pub fn n_steps(&self) -> usize {
        self.parts.iter().flatten().map(|p| p.steps).sum()
    }

    /// Head of a step, if it is held.
    pub fn head(&self, n: usize) -> Option<&Head> {
        self.heads.get(n.checked_sub(self.heads_from)?)
    }

    /// The text of a slot.
    pub fn pane(&self, slot: Slot) -> &Pane {
        let at = Slot::ALL.iter().position(|s| *s == slot).unwrap_or(0);
        // One for each slot.
        &self.panes[at.min(Slot::ALL.len() - 1)]
    }

    fn pane_mut(&mut self, slot: Slot) -> &mut Pane {
        let at = Slot::ALL.iter().position(|s| *s == slot).unwrap_or(0);
        &mut self.panes[at.min(Slot::ALL.len() - 1)]
    }

    /// The text that the current tab shows, if it shows one.
    pub fn slot(&self) -> Option<Slot> {
        match self.tab {
            Tab::Steps => None,
            Tab::Episode => Some(Slot::Episode),
            Tab::Verifier => Some(Slot::Verifier),
            Tab::Exception => Some(Slot::Exception),
            Tab::Log => Some(Slot::Log),
            Tab::Files => self.files.open.is_some().then_some(Slot::File),
            Tab::About => Some(Slot::About),
        }
    }

    fn ask(&self, request: Request) -> Vec<Effect> {
        vec![Effect::Detail(request)]
    }

    /// An action of context `Trial`; `height` is the number of text rows of the main pane.
    pub fn act(&mut self, action: Action, _height: usize) -> Vec<Effect> {
        let (_, height) = body(self.size);
        let page = height.saturating_sub(1).max(1) as isize;
        match action {
            Action::NextTab => self.show(self.tab.step(1)),
            Action::PrevTab => self.show(self.tab.step(-1)),
            Action::Down => self.step(1, height),
            Action::Up => self.step(-1, height),
            Action::PageDown => self.step(page, height),
            Action::PageUp => self.step(-page, height),
            Action::Top => self.end(At::Start, height),
            Action::Bottom => self.end(At::End, height),
            Action::Open => self.enter(height),
            Action::Fold => self.fold(height),
            Action::NextEpisode => self.episode_step(1),
            Action::PrevEpisode => self.episode_step(-1),
            Action::NextMatch => self.find(false, false),
            Action::PrevMatch => self.find(true, false),
            _ => Vec::new(),
        }
    }

    /// One step back inside the view: closes the search, an open file, a sub-directory. False when
    /// there is nothing to go back from.
    pub fn back(&mut self) -> Option<Vec<Effect>> {
        if !self.needle.text.is_empty() {
            return Some(self.search(""));
        }
        if self.tab != Tab::Files {
            return None;
        }
        if self.files.open.take().is_some() {
            return Some(self.list(self.files.dir.clone()));
        }
        let (parent, name) = split(&self.files.dir)?;
        self.files.select = Some(name);
        Some(self.list(parent))
    }

    /// Shows a tab and asks for what it needs.
    pub fn show(&mut self, tab: Tab) -> Vec<Effect> {
        self.tab = tab;
        self.finding = None;
        match self.slot() {
            Some(Slot::Episode) => self.want_step(),
            Some(slot) if self.pane(slot).doc.is_none() || self.pane(slot).stale => {
                if matches!(slot, Slot::Log) && self.pane(slot).doc.is_none() {
                    self.pane_mut(slot).follow = true;
                }
                self.again(slot)
            }
            Some(_) => Vec::new(),
            None if tab == Tab::Files => self.list(self.files.dir.clone()),
            None => Vec::new(),
        }
    }

    /// Asks for the text of a slot again, at its present place.
    fn again(&mut self, slot: Slot) -> Vec<Effect> {
        if slot == Slot::About {
            return Vec::new();
        }
        if slot == Slot::Episode {
            self.outdated = true;
            return self.want_step();
        }
        let pane = self.pane(slot);
        let at = match &pane.doc {
            _ if pane.follow => At::End,
            None => At::Start,
            Some(_) => At::Around(pane.offset()),
        };
        let nth = pane.doc.as_ref().map(|d| d.nth.0);
        self.ask_text(slot, nth, at)
    }

    fn ask_text(&mut self, slot: Slot, nth: Option<usize>, at: At) -> Vec<Effect> {
        let pane = self.pane_mut(slot);
        pane.waiting = true;
        pane.stale = false;
        let path = if slot == Slot::File { self.files.open.clone() } else { None };
        self.ask(Request::Text { serial: self.serial, slot, nth, path, at })
    }

    fn step(&mut self, by: isize, height: usize) -> Vec<Effect> {
        match self.slot() {
            Some(slot) => {
                let pane = self.pane_mut(slot);
                pane.follow &= by > 0;
                pane.scroll(by, height);
                self.more(slot, height)
            }
            None if self.tab == Tab::Files => {
                let last = self.n_files().saturating_sub(1);
                self.files.cursor = self.files.cursor.saturating_add_signed(by).min(last);
                Vec::new()
            }
            None => {
                let last = self.n_steps().saturating_sub(1);
                let to = self.cursor.saturating_add_signed(by).min(last);
                self.follow &= by > 0 && to == last;
                self.go(to)
            }
        }
    }

    /// Lines of the listing, the one that leads up included.
    pub fn n_files(&self) -> usize {
        self.files.rows.as_ref().map_or(0, Vec::len) + usize::from(!self.files.dir.is_empty())
    }

    /// Entry of the listing at the cursor; None on the line that leads up.
    pub fn file(&self, line: usize) -> Option<&FileRow> {
        let at = line.checked_sub(usize::from(!self.files.dir.is_empty()))?;
        self.files.rows.as_ref()?.get(at)
    }

    /// Asks for the next window of a file when the end of this one is near.
    fn more(&mut self, slot: Slot, height: usize) -> Vec<Effect> {
        let pane = self.pane(slot);
        let Some(doc) = &pane.doc else { return Vec::new() };
        let near = height * 2;
        let wanted =
            (doc.after > 0 && pane.top + height + near >= pane.rows.len()) || (doc.before > 0 && pane.top < near);
        if pane.waiting || !wanted {
            return Vec::new();
        }
        let (at, nth) = (At::Around(pane.offset()), Some(doc.nth.0));
        self.ask_text(slot, nth, at)
    }

    fn end(&mut self, at: At, height: usize) -> Vec<Effect> {
        let down = at == At::End;
        let Some(slot) = self.slot() else {
            if self.tab == Tab::Files {
                self.files.cursor = if down { self.n_files().saturating_sub(1) } else { 0 };
                return Vec::new();
            }
            self.follow = down;
            return self.go(if down { self.n_steps().saturating_sub(1) } else { 0 });
        };
        if slot == Slot::Episode {
            self.follow = down && self.cursor + 1 >= self.n_steps();
        }
        let pane = self.pane_mut(slot);
        pane.follow = down && slot != Slot::Episode;
        let by = if down { isize::MAX / 2 } else { isize::MIN / 2 };
        pane.scroll(by, height);
        let far = pane.doc.as_ref().is_some_and(|d| if down { d.after > 0 } else { d.before > 0 });
        if !far {
            return Vec::new();
        }
        pane.forget_place();
        let nth = pane.doc.as_ref().map(|d| d.nth.0);
        self.ask_text(slot, nth, at)
    }

    fn enter(&mut self, height: usize) -> Vec<Effect> {
        match (self.tab, self.slot()) {
            (Tab::Steps, _) => self.show(Tab::Episode),
            (Tab::Files, None) => self.enter_file(),
            (Tab::Verifier | Tab::Log, Some(slot)) => {
                let Some((at, n)) = self.pane(slot).doc.as_ref().map(|d| d.nth) else { return Vec::new() };
                if n < 2 {
                    return Vec::new();
                }
                let pane = self.pane_mut(slot);
                pane.forget_place();
                let whence = if pane.follow { At::End } else { At::Start };
                self.ask_text(slot, Some((at + 1) % n), whence)
            }
            _ => self.fold(height),
        }
    }

    fn enter_file(&mut self) -> Vec<Effect> {
        let Some(row) = self.file(self.files.cursor) else {
            return match split(&self.files.dir) {
                Some((parent, name)) => {
                    self.files.select = Some(name);
                    self.list(parent)
                }
                None => Vec::new(),
            };
        };
        if !row.openable {
            return Vec::new();
        }
        let path = join(&self.files.dir, &row.name);
        if row.kind == FileKind::Dir {
            return self.list(path);
        }
        self.files.open = Some(path);
        *self.pane_mut(Slot::File) = Pane::default();
        self.ask_text(Slot::File, None, At::Start)
    }

    fn list(&mut self, dir: String) -> Vec<Effect> {
        if dir != self.files.dir {
            self.files.rows = None;
            self.files.cursor = 0;
        }
        self.files.dir = dir.clone();
        self.ask(Request::List { serial: self.serial, dir })
    }

    fn fold(&mut self, height: usize) -> Vec<Effect> {
        let slot = self.slot().unwrap_or(Slot::Episode);
        let pane = self.pane_mut(slot);
        pane.fold(!pane.unfolded, height);
        Vec::new()
    }

    fn episode_step(&mut self, by: isize) -> Vec<Effect> {
        if !matches!(self.tab, Tab::Steps | Tab::Episode) {
            self.tab = Tab::Episode;
        }
        let last = self.n_steps().saturating_sub(1);
        let mut to = self.cursor;
        loop {
            let next = to.saturating_add_signed(by).min(last);
            if next == to {
                break;
            }
            to = next;
            if self.head(to).is_none_or(|h| h.episode.is_some()) {
                break;
            }
        }
        self.follow &= by > 0 && to == last;
        self.go(to)
    }

    /// Selects a step.
    fn go(&mut self, to: usize) -> Vec<Effect> {
        self.placed = true;
        self.cursor = to.min(self.n_steps().saturating_sub(1));
        let mut effects = self.want_heads(false);
        effects.extend(self.want_step());
        effects
    }

    fn want_heads(&mut self, anew: bool) -> Vec<Effect> {
        let total = self.n_steps();
        let margin = HEADS / 4;
        let held = self.heads_from..self.heads_from + self.heads.len();
        let low = self.cursor.saturating_sub(margin);
        let high = (self.cursor + margin).min(total);
        if total == 0 || (!anew && held.contains(&low) && high <= held.end) {
            return Vec::new();
        }
        let from = self.cursor.saturating_sub(HEADS / 2).min(total.saturating_sub(HEADS));
        if !anew && self.asked_heads == Some(from) {
            return Vec::new();
        }
        self.asked_heads = Some(from);
        self.ask(Request::Heads { serial: self.serial, from, n: HEADS })
    }

    fn want_step(&mut self) -> Vec<Effect> {
        let beside = self.tab == Tab::Steps && Room::of(self.size) == Room::Double;
        let wanted = (self.tab == Tab::Episode || beside) && (self.outdated || self.shown != Some(self.cursor));
        if !wanted || self.cursor >= self.n_steps() {
            return Vec::new();
        }
        self.ask(Request::Step { serial: self.serial, n: self.cursor })
    }

    /// The search text was entered; an empty one ends the search.
    pub fn search(&mut self, text: &str) -> Vec<Effect> {
        self.needle = Needle::new(text);
        self.finding = None;
        self.panes.iter_mut().for_each(|p| p.hit = None);
        if text.is_empty() { Vec::new() } else { self.find(false, true) }
    }

    fn find(&mut self, back: bool, first: bool) -> Vec<Effect> {
        if self.needle.text.is_empty() {
            return Vec::new();
        }
        if self.tab == Tab::Files && self.files.open.is_none() {
            return self.find_name(back, first);
        }
        if self.tab == Tab::About {
            return self.find_here(Slot::About, back, first);
        }
        let slot = self.slot().unwrap_or(Slot::Episode);
        let pane = self.pane(slot);
        // A step that is not the one in the pane is searched from its beginning.
        let (offset, inclusive) = match pane.hit {
            _ if slot == Slot::Episode && self.shown != Some(self.cursor) => (0, true),
            Some(hit) => (hit, false),
            None => (pane.offset(), first || !back),
        };
        let from = Place {
            step: self.cursor,
            offset,
            inclusive,
            nth: pane.doc.as_ref().map(|d| d.nth.0),
            path: self.files.open.clone(),
        };
        self.finding = Some(Finding::Running(0.0));
        let needle = self.needle.clone();
        self.ask(Request::Search { serial: self.serial, slot, needle, from, back })
    }

    fn find_name(&mut self, back: bool, first: bool) -> Vec<Effect> {
        let n = self.n_files();
        let begin = usize::from(!first);
        let mut order =
            (begin..n + begin).map(|i| if back { n * 2 + self.files.cursor - i } else { self.files.cursor + i });
        let hit = order.find(|i| self.file(i % n.max(1)).is_some_and(|f| self.needle.is_in(&f.name)));
        self.finding = Some(match hit {
            Some(at) => {
                self.files.cursor = at % n.max(1);
                Finding::Found { wrapped: false }
            }
            None => Finding::Nothing,
        });
        Vec::new()
    }

    /// Searches a text that is here as a whole.
    fn find_here(&mut self, slot: Slot, back: bool, first: bool) -> Vec<Effect> {
        let (_, height) = body(self.size);
        let pane = self.pane(slot);
        let from = pane.hit.unwrap_or(pane.offset());
        let inclusive = pane.hit.is_none() && (first || !back);
        let all = pane.doc.as_ref().map(|d| d.lines.as_slice()).unwrap_or_default();
        let mut hits: Vec<u64> = all.iter().filter(|l| self.needle.is_in(l.text())).map(|l| l.offset).collect();
        if back {
            hits.reverse();
        }
        let ahead = |o: &&u64| (inclusive && **o == from) || if back { **o < from } else { **o > from };
        let next = hits.iter().find(ahead);
        let (hit, wrapped) = (next.or(hits.first()).copied(), next.is_none());
        self.finding = Some(hit.map_or(Finding::Nothing, |_| Finding::Found { wrapped }));
        if let Some(hit) = hit {
            let pane = self.pane_mut(slot);
            pane.hit = Some(hit);
            pane.reveal(hit, height);
        }
        Vec::new()
    }

    /// The loader answered.
    pub fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        let (width, height) = body(self.size);
        match reply {
            Reply::Facts { serial, facts } if serial == self.serial => {
                self.facts = Some(facts);
                self.tell();
            }
            Reply::Steps { serial, parts } if serial == self.serial => return self.take_parts(parts),
            Reply::Heads { serial, from, heads } if serial == self.serial => {
                (self.heads_from, self.heads) = (from, heads);
                if !self.placed && !self.at_end && !self.heads.is_empty() {
                    self.placed = true;
                    // A finished trial is read from its first episode on.
                    if let Some(at) = self.heads.iter().position(|h| h.episode.is_some()) {
                        return self.go(from + at);
                    }
                }
            }
            Reply::Step { serial, n, doc } if serial == self.serial => {
                let same = self.shown == Some(n) || self.pane(Slot::Episode).doc.is_none();
                self.shown = Some(n);
                self.outdated = false;
                let pane = self.pane_mut(Slot::Episode);
                if !same {
                    pane.forget_place();
                    pane.hit = pane.pending;
                }
                pane.set(doc, width, height);
                if pane.pending.is_none() && n != self.cursor {
                    return self.want_step();
                }
            }
            Reply::Text { serial, slot, doc } if serial == self.serial => {
                let pane = self.pane_mut(slot);
                match doc {
                    Ok(doc) => {
                        pane.note = None;
                        pane.set(doc, width, height);
                        return self.more(slot, height);
                    }
                    Err(words) => pane.fail(words, width, height),
                }
            }
            Reply::Listing { serial, dir, listing } if serial == self.serial && dir == self.files.dir => {
                self.take_listing(listing);
            }
            Reply::Stale { serial, slots, listing } if serial == self.serial => {
                let mut effects = Vec::new();
                for slot in slots {
                    if self.pane(slot).doc.is_none() && self.slot() != Some(slot) {
                        continue;
                    }
                    if self.slot() == Some(slot) {
                        effects.extend(self.again(slot));
                    } else {
                        self.pane_mut(slot).stale = true;
                    }
                }
                if listing && self.tab == Tab::Files && self.files.open.is_none() {
                    effects.extend(self.list(self.files.dir.clone()));
                }
                return effects;
            }
            Reply::Searching { serial, share } if serial == self.serial => {
                if matches!(self.finding, Some(Finding::Running(_))) {
                    self.finding = Some(Finding::Running(share));
                }
            }
            Reply::Found { serial, slot, place, wrapped } if serial == self.serial => {
                return self.take_found(slot, place, wrapped, height);
            }
            _ => {}
        }
        Vec::new()
    }

    fn take_parts(&mut self, parts: Vec<Part>) -> Vec<Effect> {
        let before = self.n_steps();
        let revisions = parts.iter().map(|p| p.revision).sum();
        let anew = revisions != self.revisions;
        self.parts = Some(parts);
        self.revisions = revisions;
        let total = self.n_steps();
        if (self.follow || (!self.placed && self.at_end)) && total > 0 {
            self.cursor = total - 1;
        }
        self.cursor = self.cursor.min(total.saturating_sub(1));
        if self.at_end && total > 0 && self.parts.iter().flatten().all(|p| p.indexed >= 1.0) {
            self.placed = true;
        }
        let mut effects = self.want_heads(anew || before != total);
        self.outdated |= anew;
        effects.extend(self.want_step());
        effects
    }

    fn take_listing(&mut self, listing: Result<Vec<FileRow>, String>) {
        match listing {
            Ok(rows) => {
                // The cursor stays on its name while entries come and go.
                let name = self.files.select.take().or_else(|| self.file(self.files.cursor).map(|f| f.name.clone()));
                let up = usize::from(!self.files.dir.is_empty());
                let at = name.and_then(|n| rows.iter().position(|r| r.name == n));
                self.files.rows = Some(rows);
                self.files.problem = None;
                if let Some(at) = at {
                    self.files.cursor = at + up;
                }
                self.files.cursor = self.files.cursor.min(self.n_files().saturating_sub(1));
            }
            Err(words) => self.files.problem = Some(words),
        }
    }

    fn take_found(&mut self, slot: Slot, place: Option<Place>, wrapped: bool, height: usize) -> Vec<Effect> {
        let Some(place) = place else {
            self.finding = Some(Finding::Nothing);
            return Vec::new();
        };
        self.finding = Some(Finding::Found { wrapped });
        if slot == Slot::Episode {
            self.follow = false;
            if self.tab == Tab::Steps && Room::of(self.size) != Room::Double {
                self.tab = Tab::Episode;
            }
            let shown = self.shown == Some(place.step);
            let pane = self.pane_mut(slot);
            pane.hit = Some(place.offset);
            if shown {
                pane.reveal(place.offset, height);
                self.cursor = place.step;
                return self.want_heads(false);
            }
            pane.pending = Some(place.offset);
            return self.go(place.step);
        }
        let pane = self.pane_mut(slot);
        pane.hit = Some(place.offset);
        pane.follow = false;
        if pane.holds(place.offset) {
            pane.reveal(place.offset, height);
            return self.more(slot, height);
        }
        pane.pending = Some(place.offset);
        self.ask_text(slot, place.nth, At::Around(place.offset))
    }

    /// The trial's summary changed: files moved on.
    pub fn changed(&mut self, trial: &Trial) -> Vec<Effect> {
        self.summarise(trial);
        self.ask(Request::Changed { serial: self.serial })
    }

    fn summarise(&mut self, trial: &Trial) {
        self.summary = about::summary(trial);
        self.tell();
    }

    /// Makes the text of the About tab.
    fn tell(&mut self) {
        let (width, height) = body(self.size);
        let doc = about::doc(&self.dir, self.facts.as_ref(), &self.summary);
        self.pane_mut(Slot::About).set(doc, width, height);
    }

    /// Index (from 0) of the episode that the cursor is in, for the replay.
    pub fn episode(&self) -> Option<usize> {
        let held = self.cursor.checked_sub(self.heads_from)?;
        let upto = self.heads.get(..=held)?;
        match upto.last()?.episode {
            Some(n) => Some((n as usize).saturating_sub(1)),
            // What the user or the system says comes before the next episode.
            None => Some(upto.iter().rev().find_map(|h| h.episode).unwrap_or(0) as usize),
        }
    }

    /// The trajectory file that the selected step stands in.
    pub fn part(&self) -> Option<&Part> {
        let mut left = self.cursor;
        for part in self.parts.iter().flatten() {
            if left < part.steps {
                return Some(part);
            }
            left -= part.steps;
        }
        None
    }

    /// What `y` copies here: the path of what is shown.
    pub fn copy_text(&self) -> String {
        let rel = match (self.tab, self.slot()) {
            (Tab::Steps | Tab::Episode, _) => self.part().map(|p| p.path.clone()),
            (Tab::Files, None) => {
                let name = self.file(self.files.cursor).map(|f| f.name.clone()).unwrap_or_default();
                Some(join(&self.files.dir, &name))
            }
            (_, Some(slot)) => self.pane(slot).doc.as_ref().and_then(|d| d.path.clone()),
            _ => None,
        };
        match rel {
            Some(rel) if !rel.is_empty() => self.dir.join(rel).display().to_string(),
            _ => self.dir.display().to_string(),
        }
    }
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_string() } else { format!("{dir}/{name}") }
}

/// Parent and name of a relative path; None for the trial dir itself.
fn split(dir: &str) -> Option<(String, String)> {
    if dir.is_empty() {
        return None;
    }
    let (parent, name) = dir.rsplit_once('/').unwrap_or(("", dir));
    Some((parent.to_string(), name.to_string()))
}
