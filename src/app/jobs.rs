//! The list of all jobs: those that this screen shows, and every other one below the directories that are
//! remembered. Pure.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::action::Action;
use super::derived::Attention;
use super::effect::Effect;
use super::input::Input;
use super::memory::{self, Keep, ListMemory, Memory};
use super::model::{Model, View};
use super::overlay::{Choice, Item, Menu, Overlay, PromptKind};
use super::table::Table;
use super::update::{self, notice};
use crate::job::roster::{self, Entry, Filter, Order, RootState, Roster, RosterEvent};
use crate::job::{JobKey, Stamp, time};
use crate::serving::Severity;

/// What is wanted of the threads that look through roots.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Look through these from now on.
    Roots(Vec<PathBuf>),
    /// These jobs are on the screen.
    Visible(HashSet<PathBuf>),
    /// Nobody looks at the list.
    Pause,
    /// Look at everything now.
    Refresh,
}

/// The list.
#[derive(Debug, Default)]
pub struct Jobs {
    /// What is known of all jobs.
    pub roster: Roster,
    /// Directories that are looked through while the list is on the screen.
    pub roots: Vec<PathBuf>,
    /// What was kept of screens before.
    pub kept: Memory,
    /// Jobs of which the marks were brought back.
    pub restored: BTreeSet<JobKey>,
    /// Marked job dirs.
    pub marks: BTreeSet<PathBuf>,
    /// Sorted by.
    pub sort: Order,
    /// Turned round.
    pub inverted: bool,
    /// The filter as typed.
    pub filter_text: String,
    filter: Filter,
    /// The jobs that pass the filter, in order.
    pub list: Vec<Arc<Entry>>,
    /// How many there are without a filter.
    pub all: usize,
    /// The selected one.
    pub selected: Option<PathBuf>,
    position: usize,
    /// Other jobs can be opened on this screen instead of its own.
    pub opens: bool,
    /// The screen was started on the list, or came from it: it is where `q` leads.
    pub home: bool,
    /// Directories as they were named, and what they are called by the system.
    pub real: Vec<(PathBuf, PathBuf)>,
    /// Where a relative path begins, and `~`.
    pub places: (PathBuf, Option<PathBuf>),
    /// What is to be shown when the screen is left for it.
    pub next: Vec<PathBuf>,
    shown: bool,
    told: HashSet<PathBuf>,
    built: Option<(u64, u64, bool)>,
    built_at: Option<Stamp>,
    pub(super) remembered: Option<Memory>,
}

impl Jobs {
    /// What is remembered of the list.
    pub(super) fn memory(&self) -> Memory {
        let jobs = ListMemory {
            sort: self.sort.word().to_string(),
            inverted: self.inverted,
            filter: self.filter_text.clone(),
            marks: self.marks.iter().map(|dir| dir.to_string_lossy().into_owned()).collect(),
        };
        Memory { jobs, ..Memory::default() }
    }

    pub(super) fn restore(&mut self, kept: &ListMemory) {
        self.sort = memory::order(&kept.sort);
        self.inverted = kept.inverted;
        self.marks = kept.marks.iter().map(PathBuf::from).collect();
        let _ = self.set_filter(&kept.filter);
    }

    /// Sets the filter; an error leaves the old one in force.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn set_filter(&mut self, text: &str) -> Result<(), String> {
        self.filter = Filter::parse(text)?;
        self.filter_text = text.trim().to_string();
        self.built = None;
        Ok(())
    }

    /// Position of the selection.
    pub fn position(&self) -> Option<usize> {
        (!self.list.is_empty()).then(|| self.position.min(self.list.len() - 1))
    }

    /// The selected job.
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        self.list.get(self.position()?)
    }

    /// What the system calls a directory that was named here.
    fn real(&self, dir: &Path) -> PathBuf {
        let named = self.real.iter().filter_map(|(given, real)| Some(real.join(dir.strip_prefix(given).ok()?)));
        let real = named.max_by_key(|real| real.as_os_str().len());
        let real = real.unwrap_or_else(|| self.places.0.join(dir));
        // `join` of nothing leaves a slash.
        real.components().collect()
    }

    fn go(&mut self, at: usize) {
        self.position = at.min(self.list.len().saturating_sub(1));
        self.selected = self.entry().map(|e| e.dir.clone());
    }
}

/// The job of this screen that a line of the list is about.
pub fn attached(model: &Model) -> Option<JobKey> {
    let dir = &model.jobs.entry()?.dir;
    model.fleet.jobs().iter().find(|job| model.jobs.real(&job.facts.dir) == *dir).map(|job| job.key)
}

/// Makes the list anew where something changed.
pub fn refresh(model: &mut Model) {
    if model.view() != View::Jobs {
        model.jobs.built = None;
        return;
    }
    let aged = model.jobs.built_at.is_none_or(|at| time::age(at, model.now).as_millis() >= 900);
    let key = (model.jobs.roster.revision, model.fleet.revision, model.jobs.inverted);
    if model.jobs.built == Some(key) && !aged {
        return;
    }
    let mut own: Vec<Arc<Entry>> = Vec::new();
    for job in model.fleet.jobs() {
        let Some(state) = model.derived.state(job.key) else { continue };
        let dir = model.jobs.real(&job.facts.dir);
        let mut entry = Entry::of(job, &dir, state.clone(), true);
        if let Some(known) = model.jobs.roster.jobs.get(&dir) {
            entry.root.clone_from(&known.root);
            entry.rerun.clone_from(&known.rerun);
            if let (Some(owner), Some(known)) = (&mut entry.owner, &known.owner) {
                owner.host.clone_from(&known.host);
            }
        }
        entry.dir = dir;
        own.push(Arc::new(entry));
    }
    let jobs = &mut model.jobs;
    let mut list: Vec<Arc<Entry>> =
        jobs.roster.jobs.values().filter(|e| own.iter().all(|o| o.dir != e.dir)).cloned().collect();
    list.extend(own);
    jobs.all = list.len();
    list.retain(|entry| jobs.filter.matches(entry, jobs.marks.contains(&entry.dir)));
    let (sort, inverted) = (jobs.sort, jobs.inverted);
    list.sort_by(|a, b| {
        let by = roster::compare(sort, a, b);
        if inverted { by.reverse() } else { by }
    });
    jobs.list = list;
    let found = jobs.selected.as_ref().and_then(|dir| jobs.list.iter().position(|e| e.dir == *dir));
    jobs.position = found.unwrap_or(jobs.position).min(jobs.list.len().saturating_sub(1));
    if found.is_none() {
        jobs.selected = jobs.entry().map(|e| e.dir.clone());
    }
    jobs.built = Some(key);
    jobs.built_at = Some(model.now);
}

/// What other jobs are busy with that nobody asked for needs somebody here, too.
pub(super) fn attention(model: &mut Model) {
    let own: Vec<PathBuf> = model.fleet.jobs().iter().map(|job| model.jobs.real(&job.facts.dir)).collect();
    for entry in model.jobs.roster.jobs.values().filter(|e| e.rerun.is_some() && !own.contains(&e.dir)) {
        let text = entry.rerun.as_ref().map(|r| r.message.clone()).unwrap_or_default();
        model.derived.of_jobs.push(Attention {
            id: format!("rerun {}", entry.dir.display()),
            kind: "rerun".to_string(),
            severity: Severity::Error,
            text: format!("{}: {text}", entry.label()),
            target: None,
            serving: None,
        });
    }
}

/// Takes in news of other jobs.
pub fn heard(model: &mut Model, events: Vec<RosterEvent>) -> Vec<Effect> {
    let alarms = |model: &Model| model.jobs.roster.jobs.values().filter(|e| e.rerun.is_some()).count();
    let before = alarms(model);
    events.into_iter().for_each(|event| model.jobs.roster.apply(event));
    if alarms(model) != before {
        // What needs somebody is told anew.
        model.built = u64::MAX;
    }
    Vec::new()
}

/// What follows from what is on the screen now: who looks through roots is told what for, and what the
/// screen remembers is kept. Called after every message.
pub fn follow_up(model: &mut Model, by_key: bool) -> Vec<Effect> {
    let mut effects = Vec::new();
    let shows = model.view() == View::Jobs;
    if shows != model.jobs.shown {
        model.jobs.shown = shows;
        effects.push(Effect::Roster(if shows { Request::Roots(model.jobs.roots.clone()) } else { Request::Pause }));
    }
    if shows {
        let rows = usize::from(model.size.1);
        let from = model.jobs.position().unwrap_or(0).saturating_sub(rows);
        let visible: HashSet<PathBuf> =
            model.jobs.list.iter().skip(from).take(2 * rows).map(|e| e.dir.clone()).collect();
        if visible != model.jobs.told {
            model.jobs.told.clone_from(&visible);
            effects.push(Effect::Roster(Request::Visible(visible)));
        }
    }
    if by_key && !model.replay_only {
        effects.extend(remember(model));
    }
    effects
}

/// What the screen remembers, if it is something else than before.
pub fn remember(model: &mut Model) -> Option<Effect> {
    let memory = memory::of(model);
    let same = match &model.jobs.remembered {
        Some(before) => *before == memory,
        None => {
            let kept = &model.jobs.kept;
            let list = |(job, list): (&String, &ListMemory)| {
                kept.trials.get(job).map_or(*list == ListMemory::default(), |k| k == list)
            };
            let usual =
                |sort: &String| if sort.is_empty() { Order::default().word().to_string() } else { sort.clone() };
            let jobs = ListMemory { sort: usual(&kept.jobs.sort), ..kept.jobs.clone() };
            let trials = (kept.trials_sort.0.is_empty() && memory.trials_sort == Table::default().memory())
                || kept.trials_sort == memory.trials_sort;
            jobs == memory.jobs && trials && memory.trials.iter().all(list)
        }
    };
    if same {
        return None;
    }
    model.jobs.remembered = Some(memory.clone());
    Some(Effect::Keep(Keep::Memory(Box::new(memory))))
}

/// An action in the list.
pub fn act(model: &mut Model, action: Action, page: usize) -> Vec<Effect> {
    model.jobs.built = None;
    match action {
        Action::Down | Action::Up | Action::PageDown | Action::PageUp | Action::Top | Action::Bottom => {
            let page = page as isize;
            let by = match action {
                Action::Down => 1,
                Action::Up => -1,
                Action::PageDown => page,
                Action::PageUp => -page,
                Action::Top => isize::MIN / 2,
                _ => isize::MAX / 2,
            };
            let at = model.jobs.position().unwrap_or(0).saturating_add_signed(by);
            model.jobs.go(at);
        }
        Action::Open => return open(model),
        Action::OpenMarked => return open_marked(model),
        Action::Mark => match model.jobs.entry().map(|e| e.dir.clone()) {
            Some(dir) => {
                if !model.jobs.marks.remove(&dir) {
                    model.jobs.marks.insert(dir);
                }
                let next = model.jobs.position().unwrap_or(0) + 1;
                model.jobs.go(next);
            }
            None => notice(model, "no job is selected here"),
        },
        Action::Filter => {
            let input = Input::new(&model.jobs.filter_text);
            model.overlay = Some(Overlay::Prompt(PromptKind::JobsFilter, input, None));
        }
        Action::ClearFilter => drop(model.jobs.set_filter("")),
        Action::SortMenu => {
            let item = |order: Order| Item {
                label: order.word().to_string(),
                detail: if order == model.jobs.sort { "now" } else { "" }.to_string(),
                choice: Choice::SortJobs(order),
                hot: None,
            };
            let items = Order::ALL.into_iter().map(item).collect();
            let selected = Order::ALL.iter().position(|o| *o == model.jobs.sort).unwrap_or(0);
            model.overlay = Some(Overlay::Menu(Menu { title: "order".to_string(), items, selected }));
        }
        Action::InvertSort => model.jobs.inverted = !model.jobs.inverted,
        Action::AddRoot => {
            model.overlay = Some(Overlay::Prompt(PromptKind::AddRoot, Input::default(), None));
        }
        Action::ForgetRoot => forget_menu(model),
        Action::Refresh => {
            notice(model, "all directories are looked at again");
            return vec![Effect::Roster(Request::Refresh)];
        }
        _ => {}
    }
    Vec::new()
}

/// Sorts by this.
pub(super) fn sort(model: &mut Model, order: Order) {
    (model.jobs.sort, model.jobs.inverted, model.jobs.built) = (order, false, None);
}

fn open(model: &mut Model) -> Vec<Effect> {
    let Some(entry) = model.jobs.entry().cloned() else {
        notice(model, "no job is selected here");
        return Vec::new();
    };
    if let Some(key) = attached(model) {
        let name = model.job_name(key);
        let filter = if model.fleet.jobs().len() > 1 { format!("job:\"{name}\"") } else { String::new() };
        update::show_filtered(model, &filter);
        return Vec::new();
    }
    elsewhere(model, vec![entry.dir.clone()])
}

fn open_marked(model: &mut Model) -> Vec<Effect> {
    let dirs: Vec<PathBuf> = model.jobs.marks.iter().cloned().collect();
    if dirs.is_empty() {
        notice(model, "no job is marked: Space marks one");
        return Vec::new();
    }
    elsewhere(model, dirs)
}

/// Leaves what this screen shows for something else.
fn elsewhere(model: &mut Model, dirs: Vec<PathBuf>) -> Vec<Effect> {
    if !model.jobs.opens {
        let first = dirs.first().map(|d| d.display().to_string()).unwrap_or_default();
        notice(model, format!("this screen stays with its job; in another terminal: pilothouse attach {first}"));
        return Vec::new();
    }
    model.jobs.next = dirs;
    vec![Effect::Elsewhere]
}

/// A directory was typed.
///
/// # Errors
/// Why it can not be one.
pub(super) fn add(model: &mut Model, text: &str) -> Result<Vec<Effect>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let (here, home) = &model.jobs.places;
    let path = match (text.strip_prefix('~'), home) {
        (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
        _ => here.join(text),
    };
    let path: PathBuf = path.components().collect();
    if model.jobs.roots.contains(&path) {
        return Err("it is looked through already".to_string());
    }
    model.jobs.roots.push(path.clone());
    notice(model, format!("{} is looked through, and remembered; D forgets it", path.display()));
    Ok(vec![Effect::Roster(Request::Roots(model.jobs.roots.clone())), Effect::Keep(Keep::Root(path))])
}

fn forget_menu(model: &mut Model) {
    let jobs = &model.jobs;
    let item = |root: &PathBuf| {
        let n = jobs.roster.jobs.values().filter(|e| e.root == *root).count();
        let line = jobs.roster.roots.iter().find(|r| r.path == *root);
        let gone = line.filter(|line| line.state == RootState::Gone).map(|_| "no such directory".to_string());
        let wrong = line.and_then(|line| line.needs(model.now)).or(gone);
        Item {
            label: root.display().to_string(),
            detail: wrong.unwrap_or_else(|| format!("{n} job{}", if n == 1 { "" } else { "s" })),
            choice: Choice::Forget(root.clone()),
            hot: None,
        }
    };
    let items: Vec<Item> = jobs.roots.iter().map(item).collect();
    if items.is_empty() {
        return notice(model, "nothing is remembered: a adds a directory of jobs");
    }
    let of = jobs.entry().and_then(|entry| jobs.roots.iter().position(|root| *root == entry.root));
    let title = "forget: not looked through any more (no file is touched)".to_string();
    model.overlay = Some(Overlay::Menu(Menu { title, items, selected: of.unwrap_or(0) }));
}

/// Forgets a directory.
pub(super) fn forget(model: &mut Model, root: PathBuf) -> Vec<Effect> {
    model.jobs.roots.retain(|r| *r != root);
    model.jobs.roster.apply(RosterEvent::Forgotten(root.clone()));
    notice(model, format!("{} is forgotten; a adds it again", root.display()));
    vec![Effect::Roster(Request::Roots(model.jobs.roots.clone())), Effect::Keep(Keep::Forget(root))]
}

/// What `y` copies.
pub(super) fn copy_text(model: &Model) -> Option<String> {
    model.jobs.entry().map(|e| e.dir.display().to_string())
}
