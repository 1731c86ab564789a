//! What owners left on this host: containers, networks, volumes, images, temporary directories; ours and
//! Harbor's, each mapped to job and trial, with what is known of whether its owner lives.
//!
//! A thing may go only when its owner is proved dead: the job that it belongs to has no living owner,
//! no living job on this host has a trial of that name, and where no job is known, no Harbor lives here
//! that could have made it. Everything else is listed as it is and left alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::harbor_marks::{Index, Project, project_named, project_of, projects};
use super::owner::{Found, Program, find_owner_in, recognise};
use super::process;
use super::scratch::{self, Scratch};
use super::temps::{self, TempDir};
use crate::environment::docker::DockerEngine;
use crate::environment::docker::compose::{Composed, ComposedKind};
use crate::environment::held::held_of;
use crate::environment::{EnvError, Held, HeldKind, HeldRecords, Kept, KeptKind, OwnerLabel};
use crate::follow::owner::Census;
use crate::harbor::write::lease::Process;
use crate::harbor::{Dir, EntryKind};
use crate::job::text::clean;
use crate::job::{Stamp, time};

/// Bytes of a trial's config that are read.
const CONFIG_CAP: u64 = 4 << 20;
/// Sub-directories of a job that are taken for its trials.
const TRIALS: usize = 100_000;

/// Who made a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// Pilothouse.
    Ours,
    /// Harbor.
    Harbor,
}

/// Whether a thing may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its owner is dead: why.
    Dead(String),
    /// Its owner lives: who.
    Alive(String),
    /// Nothing is proved: why.
    Unsure(String),
    /// It is held for a regrade, or needed by what is: why. Only `pilothouse held remove` removes it.
    Held(String),
}

/// The thing itself, as it was found: what a removal compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Of ours, in the engine.
    Kept(Kept),
    /// Of a Compose project.
    Composed(Composed),
    /// A temporary directory of Harbor's.
    Temp(TempDir),
    /// A scratch directory of ours.
    Scratch(Scratch),
}

/// The kinds, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A container.
    Container,
    /// A network.
    Network,
    /// A volume.
    Volume,
    /// An image built for one trial.
    Image,
    /// A temporary directory.
    Temp,
    /// A scratch directory of local trials, with the processes in it.
    Scratch,
}

impl Kind {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Container => "container",
            Kind::Network => "network",
            Kind::Volume => "volume",
            Kind::Image => "image",
            Kind::Temp => "temp dir",
            Kind::Scratch => "scratch dir",
        }
    }
}

/// A thing that somebody left, or that somebody living has. Texts are safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its kind.
    pub kind: Kind,
    /// Its name or path.
    pub name: String,
    /// Who made it.
    pub maker: Maker,
    /// The job dir, where known; it need not exist any more.
    pub job_dir: Option<PathBuf>,
    /// The job's id, where known.
    pub job_id: Option<String>,
    /// The trial, where known.
    pub trial: Option<String>,
    /// Seconds since it was made; None when unknown.
    pub age: Option<u64>,
    /// Bytes of its own; None when unknown.
    pub bytes: Option<u64>,
    /// True when it runs.
    pub running: bool,
    /// What it was recognised by.
    pub evidence: String,
    /// Whether it may go.
    pub fate: Fate,
    /// The thing.
    pub item: Item,
}

impl Leftover {
    /// True for what lies on this host's disk and not in an engine.
    pub fn is_dir(&self) -> bool {
        matches!(self.item, Item::Temp(_) | Item::Scratch(_))
    }

    /// True when it may be removed.
    pub fn removable(&self) -> bool {
        matches!(self.fate, Fate::Dead(_))
    }
}

/// A look at everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Containers first, then networks (which go only without containers), volumes, images, directories;
    /// the oldest first.
    pub things: Vec<Leftover>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

/// Where to look and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Jobs that are known, to map things to by name.
    pub job_dirs: Vec<PathBuf>,
    /// Things of ours.
    pub ours: bool,
    /// Things of Harbor's.
    pub harbor: bool,
    /// Where our scratch directories are.
    pub state_dir: Option<PathBuf>,
}

/// The kernel's times of starts are rounded, and reckoned from a clock that may have been set since.
const CLOCK_SLACK: i64 = 10;

/// A Harbor that lives: anything younger may be its.
#[derive(Debug, Clone)]
struct Living {
    pid: u32,
    began: Option<Stamp>,
    /// True when its job is known: then its trials are, too, and what names another trial is not its.
    placed: bool,
}

/// What is known of this host at one moment.
pub struct World {
    census: Census,
    living: Vec<Living>,
    index: Index,
    ids: HashMap<String, PathBuf>,
    jobs: HashSet<PathBuf>,
    owners: HashMap<PathBuf, Found>,
}

impl World {
    /// Looks at this host's processes and at the jobs that are known.
    pub fn look(job_dirs: &[PathBuf]) -> World {
        let census = Census::take();
        let holders: HashSet<u32> = census.everybody().map(|owner| owner.pid).collect();
        let known: HashSet<u32> = census.jobs().map(|(_, owner)| owner.pid).collect();
        let mut living = Vec::new();
        for pid in process::all() {
            if !holders.contains(&pid) && recognise(&process::argv(pid)).0 != Program::Harbor {
                continue;
            }
            if let Some(started) = process::start_time(pid) {
                living.push(Living { pid, began: process::wall_clock(started), placed: known.contains(&pid) });
            }
        }
        let mut world = World {
            census,
            living,
            index: Index::default(),
            ids: HashMap::new(),
            jobs: HashSet::new(),
            owners: HashMap::new(),
        };
        for dir in job_dirs {
            let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
            for trial in trials_of(&dir) {
                world.index.add(&dir, &trial);
            }
            if let Some(id) = super::check::job_id(&dir) {
                world.ids.insert(id, dir.clone());
            }
            world.jobs.insert(dir);
        }
        world
    }

    /// Who works on a job, by the census of this look.
    pub fn owner(&mut self, job_dir: &Path) -> &Found {
        let census = &self.census;
        self.owners.entry(job_dir.to_path_buf()).or_insert_with(|| find_owner_in(job_dir, census))
    }

    /// Whether a thing belongs to one of the jobs that are known.
    pub fn knows(&self, thing: &Leftover) -> bool {
        let by_dir = thing.job_dir.as_ref().is_some_and(|dir| self.jobs.contains(dir));
        by_dir || thing.job_id.as_ref().is_some_and(|id| self.ids.contains_key(id))
    }

    /// The living job on this host that has a trial of this name, letters aside.
    fn living_with(&self, trial: &str) -> Option<String> {
        let wanted = project_of(trial);
        let has = |dir: &Path| trials_of(dir).iter().any(|name| project_of(name) == wanted);
        let mut jobs = self.census.jobs();
        jobs.find(|(dir, _)| has(dir)).map(|(dir, owner)| format!("pid {} works on {}", owner.pid, dir.display()))
    }

    /// What becomes of a thing of Harbor's. `created` is when it was made.
    fn fate(&mut self, job_dir: Option<&Path>, trial: Option<&str>, created: Option<Stamp>, local: bool) -> Fate {
        if let Some(living) = trial.and_then(|trial| self.living_with(trial)) {
            return Fate::Alive(living);
        }
        if let Some(dir) = job_dir.filter(|dir| dir.is_dir()) {
            let found = self.owner(dir).clone();
            return match (&found, found.forbids()) {
                (Found::Here(_) | Found::Elsewhere(_), Some(who)) => Fate::Alive(who),
                (_, Some(why)) => Fate::Unsure(why),
                (_, None) => Fate::Dead(format!("its job has no owner: {}", found.evidence())),
            };
        }
        let job = match job_dir {
            Some(dir) => format!("its job dir {} is gone", dir.display()),
            None => "its job is not known (name the jobs directory)".to_string(),
        };
        if !local {
            return Fate::Unsure(format!("{job}, and the Docker engine is another machine's"));
        }
        if !self.census.sees_everybody() {
            return Fate::Unsure(format!("{job}, and not all processes of this host can be seen"));
        }
        let could = |living: &&Living| {
            let older = match (living.began, created) {
                (Some(began), Some(created)) => began.as_second() <= created.as_second().saturating_add(CLOCK_SLACK),
                _ => true,
            };
            // A directory of a trial that is just starting may not name it yet.
            older && !(living.placed && trial.is_some())
        };
        match self.living.iter().find(could) {
            Some(living) => Fate::Unsure(format!("{job}, and harbor (pid {}) may have made it", living.pid)),
            None => Fate::Dead(format!("{job}, and no harbor that lives on this host could have made it")),
        }
    }

    /// What becomes of a thing of ours.
    fn fate_of_ours(&mut self, owner: Option<&OwnerLabel>, job_dir: Option<&Path>) -> Fate {
        let process = owner.map(|o| Process::of(&o.boot_id, &o.pid_namespace, o.pid, o.started));
        if let (Some(owner), Some(Process::There)) = (owner, process) {
            return Fate::Alive(format!("pilothouse (pid {}) made it and lives", owner.pid));
        }
        // Whoever took the job over may still use it, or is about to remove it.
        if let Some(dir) = job_dir.filter(|dir| dir.is_dir()) {
            let found = self.owner(dir).clone();
            return match (&found, found.forbids(), process) {
                (Found::Here(_) | Found::Elsewhere(_), Some(who), _) => Fate::Alive(who),
                (_, _, Some(Process::Gone)) => Fate::Dead("the process that made it is gone".to_string()),
                (_, Some(why), _) => Fate::Unsure(why),
                (_, None, _) => Fate::Dead(format!("its job has no owner: {}", found.evidence())),
            };
        }
        match (owner, process) {
            (Some(owner), Some(Process::Gone)) => Fate::Dead(format!("pid {} made it and is gone", owner.pid)),
            (Some(o), _) => Fate::Unsure(format!("pid {} on {} made it, not to be seen from here", o.pid, o.host)),
            (None, _) => {
                Fate::Unsure("its label or record names neither a process nor a job that is known".to_string())
            }
        }
    }
}

/// Names of directories of a job that can be trials.
pub fn trials_of(job_dir: &Path) -> Vec<String> {
    let entries = Dir::open(job_dir).and_then(|dir| dir.list()).unwrap_or_default().into_iter().take(TRIALS);
    let dirs = entries.filter(|e| e.kind == EntryKind::Dir).filter_map(|e| e.name.into_string().ok());
    dirs.filter(|name| !name.starts_with('.')).collect()
}

/// Looks at everything in scope. `engine` is None where there is none; the reason stands in `unseen`.
///
/// # Errors
/// None of its own: what an engine does not tell stands in `unseen`.
pub async fn collect(scope: &Scope, world: &mut World, engine: Result<&DockerEngine, &EnvError>) -> Leftovers {
    let mut out = Leftovers::default();
    let mut composed = Vec::new();
    let mut now = None;
    match engine {
        Err(why) => out.unseen.push(format!("containers, networks and images: {why}")),
        Ok(engine) => {
            if scope.ours {
                match engine.kept(None).await {
                    Ok(kept) => {
                        let records = scope.state_dir.as_deref().map(|dir| HeldRecords::of(dir).read());
                        let held = held_of(&kept, &records.unwrap_or_default());
                        out.things.extend(kept.into_iter().map(|kept| of_ours(kept, &held, world)));
                    }
                    Err(why) => out.unseen.push(format!("containers, networks and images of ours: {why}")),
                }
            }
            if scope.harbor {
                match engine.composed().await {
                    Ok(list) => (composed, now) = (list.things, list.now),
                    Err(why) => out.unseen.push(format!("containers, networks and images of Harbor's: {why}")),
                }
            }
        }
    }
    if scope.harbor {
        let local = engine.is_ok_and(|engine| engine.address().is_local());
        of_harbor(composed, now, local, engine.is_ok(), world, &mut out);
    }
    if let Some(state_dir) = scope.state_dir.as_deref().filter(|_| scope.ours) {
        out.things.extend(scratch::find(state_dir).into_iter().map(|found| of_scratch(found, world)));
    }
    out.things.sort_by(|a, b| (a.kind, b.age, &a.name).cmp(&(b.kind, a.age, &b.name)));
    out
}

/// Why a thing is held, or needed by something that is.
fn held_words(kept: &Kept, held: &[Held]) -> Option<String> {
    if let Some(found) = held.iter().find(|h| h.kept.id == kept.id) {
        let why = match found.why() {
            why if why.is_empty() => "why is not on record".to_string(),
            why => why,
        };
        let until = match (found.until(), found.expired(Stamp::now())) {
            (None, _) => String::new(),
            (Some(until), false) => format!(" until {until:.0}"),
            (Some(until), true) => format!(", expired since {until:.0}"),
        };
        return Some(format!("for a regrade{until}: {why}"));
    }
    let mut of_job = held.iter().filter(|h| h.kept.labels.job == kept.labels.job);
    match kept.kind {
        KeptKind::Container => None,
        KeptKind::Network => of_job
            .any(|h| {
                h.kind == HeldKind::Container
                    && (kept.labels.trial.is_none() || kept.labels.trial == h.kept.labels.trial)
            })
            .then(|| "on, as a held container may be connected to it".to_string()),
        KeptKind::Image => of_job.next().map(|_| "on, as what is held was made from it".to_string()),
    }
}

fn of_ours(kept: Kept, held: &[Held], world: &mut World) -> Leftover {
    let owner = OwnerLabel::parse(&kept.labels.owner);
    let dir = world.ids.get(&kept.labels.job).cloned().or_else(|| owner.as_ref().map(|o| o.job_dir.clone()));
    let fate = match held_words(&kept, held) {
        Some(why) => Fate::Held(why),
        None => world.fate_of_ours(owner.as_ref(), dir.as_deref()),
    };
    Leftover {
        kind: match kept.kind {
            KeptKind::Container => Kind::Container,
            KeptKind::Network => Kind::Network,
            KeptKind::Image => Kind::Image,
        },
        name: safe(&kept.name),
        maker: Maker::Ours,
        job_dir: dir,
        job_id: Some(safe(&kept.labels.job)),
        trial: kept.labels.trial.as_deref().map(safe),
        age: kept.age,
        bytes: kept.bytes,
        running: kept.running,
        evidence: format!("label pilothouse.job={}", safe(&kept.labels.job)),
        fate: tidy(fate),
        item: Item::Kept(kept),
    }
}

fn of_scratch(found: Scratch, world: &mut World) -> Leftover {
    let dir = world.ids.get(&found.job_id).cloned().or_else(|| found.owner.as_ref().map(|o| o.job_dir.clone()));
    let fate = world.fate_of_ours(found.owner.as_ref(), dir.as_deref());
    let inside =
        format!("directories of {} in it, started there and alive: {}", found.trials.len(), found.processes.len());
    Leftover {
        kind: Kind::Scratch,
        name: safe(&found.path.to_string_lossy()),
        maker: Maker::Ours,
        job_dir: dir,
        job_id: Some(safe(&found.job_id)),
        trial: only(&found.trials).map(|t| safe(t)),
        age: Some(time::age(found.modified, Stamp::now()).as_secs()),
        bytes: None,
        running: !found.processes.is_empty(),
        evidence: inside,
        fate: tidy(fate),
        item: Item::Scratch(found),
    }
}

fn of_harbor(
    composed: Vec<Composed>,
    now: Option<i64>,
    local: bool,
    seen: bool,
    world: &mut World,
    out: &mut Leftovers,
) {
    let known = projects(&composed, &world.index);
    let alive: HashSet<String> =
        composed.iter().filter(|c| c.kind == ComposedKind::Container).map(|c| c.id.clone()).collect();
    let files: Vec<PathBuf> = known.values().flat_map(|p| p.files.iter().cloned()).collect();
    let places: BTreeMap<String, (Option<PathBuf>, Option<String>)> =
        known.iter().map(|(name, project)| (name.clone(), place(project, local, &world.index))).collect();
    for thing in composed {
        let Some(project) = project_named(&thing, &world.index, &known).and_then(|name| known.get(&name)) else {
            continue;
        };
        let (job_dir, trial) = places.get(&project.name).cloned().unwrap_or_default();
        let created = thing.created.and_then(|s| crate::job::time::from_unix(s, 0));
        let fate = match kept_on_purpose(job_dir.as_deref(), trial.as_deref(), &thing) {
            Some(why) => Fate::Unsure(why),
            None => world.fate(job_dir.as_deref(), trial.as_deref(), created, local),
        };
        out.things.push(Leftover {
            kind: match thing.kind {
                ComposedKind::Container => Kind::Container,
                ComposedKind::Network => Kind::Network,
                ComposedKind::Volume => Kind::Volume,
                ComposedKind::Image => Kind::Image,
            },
            name: safe(&thing.name),
            maker: Maker::Harbor,
            job_id: None,
            trial: trial.as_deref().map(safe),
            age: now.zip(thing.created).and_then(|(now, then)| u64::try_from(now.saturating_sub(then)).ok()),
            bytes: thing.bytes,
            running: thing.running,
            evidence: safe(&project.evidence),
            fate: tidy(fate),
            job_dir,
            item: Item::Composed(thing),
        });
    }
    let here = Stamp::now();
    for temp in temps::find(&files) {
        // A file in it that a container was made from says more than its own contents.
        let by_container = known.values().find(|p| p.files.iter().any(|f| f.parent() == Some(temp.path.as_path())));
        let (mut job_dir, mut trial) = by_container.and_then(|p| places.get(&p.name).cloned()).unwrap_or_default();
        trial = trial.or_else(|| temp.trial.clone());
        job_dir = job_dir.or_else(|| temp.trial_dir.as_ref().and_then(|d| d.parent().map(Path::to_path_buf)));
        if job_dir.is_none()
            && let Some(trial) = &trial
        {
            let project = format!("{}__env", project_of(trial));
            job_dir = only(world.index.of_project(&project)).map(|k| k.job_dir.clone());
        }
        let fate = match &temp.container {
            Some(id) if !seen => Fate::Unsure(format!("whether container {id} lives can not be seen")),
            Some(id) if alive.contains(id) => Fate::Alive(format!("container {id} is still there")),
            Some(_) => Fate::Dead("its container is gone".to_string()),
            None => world.fate(job_dir.as_deref(), trial.as_deref(), Some(temp.modified), true),
        };
        out.things.push(Leftover {
            kind: Kind::Temp,
            name: safe(&temp.path.to_string_lossy()),
            maker: Maker::Harbor,
            job_dir,
            job_id: None,
            trial: trial.as_deref().map(safe),
            age: Some(time::age(temp.modified, here).as_secs()),
            bytes: Some(temp.bytes),
            running: false,
            evidence: safe(&temp.evidence),
            fate: tidy(fate),
            item: Item::Temp(temp),
        });
    }
}

/// Why Harbor itself left a thing, where the trial's config told it to.
fn kept_on_purpose(job_dir: Option<&Path>, trial: Option<&str>, thing: &Composed) -> Option<String> {
    let dir = Dir::open(job_dir?).ok()?;
    let config = dir.read_all(&format!("{}/config.json", trial?), CONFIG_CAP).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&config.data).ok()?;
    let environment = config.get("environment")?;
    let is = |value: Option<&serde_json::Value>, wanted: bool| value.and_then(|v| v.as_bool()) == Some(wanted);
    // Only what a trial leaves at its own end: one that was running when its owner died was not over.
    let over = dir.stat(&format!("{}/result.json", trial?)).is_ok();
    let keeps = is(environment.get("kwargs").and_then(|k| k.get("keep_containers")), true);
    match thing.kind {
        _ if !over => None,
        ComposedKind::Container | ComposedKind::Network | ComposedKind::Volume if keeps && !thing.running => {
            Some("kept on purpose: the trial was run with keep_containers".to_string())
        }
        ComposedKind::Image if keeps || is(environment.get("delete"), false) => {
            Some("kept on purpose: the trial was run with --no-delete or keep_containers".to_string())
        }
        _ => None,
    }
}

/// Job dir and trial of a project.
fn place(project: &Project, local: bool, index: &Index) -> (Option<PathBuf>, Option<String>) {
    // Paths in mounts are those of the engine's machine.
    let mounted = project.trial_dir.as_ref().filter(|_| local);
    if let Some(dir) = mounted {
        let trial = dir.file_name().map(|n| n.to_string_lossy().into_owned());
        return (dir.parent().map(Path::to_path_buf), trial);
    }
    let known = index.of_project(&project.name);
    let exact: Vec<_> =
        known.iter().filter(|k| project.trial.as_ref().is_none_or(|t| *t == k.trial)).cloned().collect();
    match only(&exact) {
        Some(known) => (Some(known.job_dir.clone()), Some(known.trial.clone())),
        None => (None, project.trial.clone()),
    }
}

/// The only one of a list: of two copies of a job nobody knows which it was.
fn only<T>(list: &[T]) -> Option<&T> {
    match list {
        [one] => Some(one),
        _ => None,
    }
}

fn safe(text: &str) -> String {
    clean(text).into_owned()
}

fn tidy(fate: Fate) -> Fate {
    match fate {
        Fate::Dead(why) => Fate::Dead(safe(&why)),
        Fate::Alive(who) => Fate::Alive(safe(&who)),
        Fate::Unsure(why) => Fate::Unsure(safe(&why)),
        Fate::Held(why) => Fate::Held(safe(&why)),
    }
}

/// Removes a thing that was listed, if it is still the same.
///
/// # Errors
/// In words: another thing has its name now, in use, no answer.
pub async fn remove(thing: &Leftover, engine: Result<&DockerEngine, &EnvError>) -> Result<(), String> {
    match (&thing.item, engine) {
        (Item::Scratch(found), _) => scratch::remove(found).map_err(|e| format!("{}: {e}", found.path.display())),
        (Item::Temp(temp), _) => temps::remove(temp).map_err(|e| format!("{}: {e}", temp.path.display())),
        (Item::Kept(kept), Ok(engine)) => engine.remove_kept(kept).await.map_err(|e| e.to_string()),
        (Item::Composed(composed), Ok(engine)) => engine.remove_composed(composed).await.map_err(|e| e.to_string()),
        (_, Err(why)) => Err(why.to_string()),
    }
}
