//! The trial view: what is shown of one trial, and the wishes to its loader.
//!
//! Pure: files are read by [`super::detail_worker`], which answers with texts that are ready to be
//! shown. Everything big is held in windows: a page of step heads, one step, one window of a file.

pub mod about;
pub mod doc;
pub mod evidence;
mod files;
mod find;
mod live;
mod protocol;
mod replies;
pub mod terminal;
pub mod timeline;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use self::doc::{Doc, Needle, Pane};
pub use self::files::Files;
use self::files::join;
pub use self::protocol::{At, Facts, FileKind, FileRow, Head, Part, Place, Reply, Request, Speaker};
use self::terminal::Terminal;
use super::action::Action;
use super::effect::Effect;
use super::model::Room;
use crate::job::{Job, Stamp, Trial, TrialKey};

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
    /// Class, rule, what it rests on, what was said.
    Evidence,
    /// Identity, limits, problems.
    About,
    /// The terminal, live while the trial runs.
    Terminal,
}

impl Tab {
    /// All tabs, in order.
    pub const ALL: [Tab; 9] = [
        Tab::Steps,
        Tab::Episode,
        Tab::Verifier,
        Tab::Exception,
        Tab::Log,
        Tab::Files,
        Tab::Evidence,
        Tab::About,
        // One tab back from the first.
        Tab::Terminal,
    ];

    /// The word on the tab.
    pub fn word(self) -> &'static str {
        match self {
            Tab::Steps => "Steps",
            Tab::Terminal => "Terminal",
            Tab::Episode => "Episode",
            Tab::Verifier => "Verifier",
            Tab::Exception => "Exception",
            Tab::Log => "Log",
            Tab::Files => "Files",
            Tab::Evidence => "Evidence",
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
    Evidence,
    About,
}

impl Slot {
    /// All of them.
    pub const ALL: [Slot; 7] =
        [Slot::Episode, Slot::Verifier, Slot::Exception, Slot::Log, Slot::File, Slot::Evidence, Slot::About];
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
    /// The text that grows is followed, from phase to phase.
    pub live: bool,
    live_at: Option<Stamp>,
    /// The step that the Episode text is about.
    pub shown: Option<usize>,
    /// Its file was read anew since.
    outdated: bool,
    /// The terminal.
    pub terminal: Terminal,
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
            live: false,
            live_at: None,
            shown: None,
            outdated: false,
            terminal: Terminal::default(),
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

    /// Columns and rows of the screen.
    pub fn size(&self) -> (u16, u16) {
        self.size
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
            Tab::Steps | Tab::Terminal => None,
            Tab::Episode => Some(Slot::Episode),
            Tab::Verifier => Some(Slot::Verifier),
            Tab::Exception => Some(Slot::Exception),
            Tab::Log => Some(Slot::Log),
            Tab::Files => self.files.open.is_some().then_some(Slot::File),
            Tab::Evidence => Some(Slot::Evidence),
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
        self.live &= matches!(action, Action::Down | Action::PageDown | Action::Bottom);
        self.chosen();
        if self.tab == Tab::Terminal && self.scroll_terminal(action) {
            let back = action == Action::Bottom && self.terminal.at.take().is_some();
            return if back { vec![Effect::Replay(super::replay::Request::End)] } else { Vec::new() };
        }
        let before = self.cursor;
        let mut effects = match action {
            Action::Terminal => self.show(Tab::Terminal),
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
        };
        if self.cursor != before || matches!(action, Action::Bottom) {
            effects.extend(self.move_terminal());
        }
        effects.extend(self.want_terminal());
        effects
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
        self.list_parent()
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
        if matches!(slot, Slot::Evidence | Slot::About) {
            return Vec::new();
        }
        if slot == Slot::Episode {
            self.outdated = true;
            return self.want_step();
        }
        let pane = self.pane(slot);
        if self.live && pane.follow {
            return self.ask_text(slot, None, At::Live);
        }
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
            None if self.tab == Tab::Terminal => Vec::new(),
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
            if self.tab == Tab::Terminal {
                return Vec::new();
            }
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
            // The replay: see `update`.
            (Tab::Terminal, _) => Vec::new(),
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

    fn fold(&mut self, height: usize) -> Vec<Effect> {
        let slot = self.slot().unwrap_or(Slot::Episode);
        let pane = self.pane_mut(slot);
        pane.fold(!pane.unfolded, height);
        Vec::new()
    }

    fn episode_step(&mut self, by: isize) -> Vec<Effect> {
        if !matches!(self.tab, Tab::Steps | Tab::Episode | Tab::Terminal) {
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

    /// What is said of the trial: its class and the verdicts.
    pub fn judge(&mut self, job: &Job, trial: &Trial) {
        let (width, height) = body(self.size);
        let doc = evidence::doc(job, trial);
        self.pane_mut(Slot::Evidence).set(doc, width, height);
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
            (Tab::Terminal, _) => self.terminal.picture.as_ref().map(|p| p.cast.2.clone()),
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
