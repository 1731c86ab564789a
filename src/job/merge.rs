//! Which job dirs are one job, which trial dirs are one trial, and how different jobs go together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::fleet::{Fleet, Job, StateKind};
use super::outcome::Rewards;
use super::phase::Writer;
use super::slots::{self, known_first};
use super::time::Stamp;
use super::trial::{Trial, TrialResult};

/// How different jobs go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A later job ran again what an earlier one could not score: trials fill slots.
    Passes,
    /// Independent samples: slots add up, nothing is dropped.
    Samples,
}

impl How {
    /// The word on the command line and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            How::Passes => "passes",
            How::Samples => "samples",
        }
    }
}

/// One job, known from one or several directories.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Its directories as indices into [`Fleet::jobs`], the oldest moment first.
    pub moments: Vec<usize>,
    /// State of the newest moment.
    pub state: StateKind,
    /// Whether anybody still writes to the newest moment.
    pub writer: Writer,
}

impl Whole {
    /// Index of the newest moment.
    pub fn newest(&self) -> usize {
        self.moments.last().copied().unwrap_or_default()
    }
}

/// Finds the jobs among the directories: the same job id is the same job; so is a directory without
/// an id that shares a trial with one that has it (a copy without `result.json`).
///
/// The order is that of first appearance in the fleet.
pub fn unite(fleet: &Fleet, now: Stamp) -> Vec<Whole> {
    let jobs = fleet.jobs();
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    let mut trial_of: HashMap<&str, usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let with_id = jobs.iter().enumerate().filter(|(_, j)| j.facts.id.is_some());
    let without = jobs.iter().enumerate().filter(|(_, j)| j.facts.id.is_none());
    for (i, job) in with_id.chain(without) {
        let known = match &job.facts.id {
            Some(id) => by_id.get(&**id).copied(),
            None => result_ids(job).find_map(|id| trial_of.get(id).copied()),
        };
        let at = known.unwrap_or(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
        if let Some(id) = &job.facts.id {
            by_id.insert(id, at);
        }
        for id in result_ids(job) {
            trial_of.entry(id).or_insert(at);
        }
    }
    groups.sort_by_key(|g| g.iter().min().copied());
    let whole = |mut moments: Vec<usize>| {
        moments.sort_by_key(|i| jobs.get(*i).map(moment));
        let newest = moments.last().and_then(|i| jobs.get(*i));
        let state = newest.map_or(StateKind::Reading, |job| job.state(now).kind);
        Whole { moments, state, writer: newest.map_or(Writer::Possible, |job| job.writer(now)) }
    };
    groups.into_iter().map(whole).collect()
}

fn result_ids(job: &Job) -> impl Iterator<Item = &str> {
    job.trials.values().filter_map(|t| t.result.as_ref()?.id.as_deref())
}

/// Orders copies of one job in time. A finished copy is the last one; else the later write counts.
/// (Harbor writes `updated_at` in UTC while trials run and trial times always; file times do not
/// survive every way of copying and only break ties.)
fn moment(job: &Job) -> (bool, Option<Stamp>, usize, Option<Stamp>, Reverse<String>) {
    let summary = job.facts.summary.as_ref();
    let results = job.trials.values().filter_map(|t| t.result.as_ref());
    let newest = results.clone().filter_map(|r| r.finished).max();
    let finished = summary.is_some_and(|s| s.finished.is_some());
    let updated = summary.and_then(|s| s.updated);
    let files = job.trials.values().filter_map(|t| t.evidence.as_ref()?.newest).max();
    let dir = Reverse(job.facts.dir.to_string_lossy().into_owned());
    (finished, updated.max(newest), results.count(), files, dir)
}

/// One trial, known from one or several directories.
#[derive(Debug, Clone)]
pub struct Known<'a> {
    /// Index into the list of wholes.
    pub whole: usize,
    /// Directory's job: index into [`Fleet::jobs`].
    pub job: usize,
    /// The state that counts.
    pub trial: &'a Trial,
    /// True when it is there in the newest moment of its job.
    pub in_newest: bool,
    /// Other states of the same trial: job index and trial.
    pub others: Vec<(usize, &'a Trial)>,
    /// Another directory that carries the same result id with another record: job index and name.
    /// The two are kept apart.
    pub same_id_as: Option<(usize, Arc<str>)>,
}

#[derive(Clone)]
struct State<'a> {
    whole: usize,
    /// Place of the whole in the order of time.
    turn: usize,
    moment: usize,
    job: usize,
    trial: &'a Trial,
}

impl State<'_> {
    /// The newest state wins: a result beats none, then the later end, then the later moment of the
    /// job that came first.
    #[allow(clippy::type_complexity)]
    fn rank(&self) -> (bool, Option<Stamp>, Reverse<usize>, usize, Reverse<usize>, Reverse<&str>) {
        let result = self.trial.result.as_ref();
        let name = &*self.trial.name;
        let end = result.and_then(|r| r.finished);
        (result.is_some(), end, Reverse(self.turn), self.moment, Reverse(name.len()), Reverse(name))
    }
}

/// Finds the trials among the directories.
///
/// The result id tells; where there is none, job and directory name do. Two directories that carry
/// the same id but differ in name *and* record can not be copies of one trial, whatever wrote them:
/// they are kept apart, so that no result is lost.
///
/// `order` is [`Choice::order`].
pub fn identify<'a>(fleet: &'a Fleet, wholes: &[Whole], order: &[usize]) -> Vec<Known<'a>> {
    let mut states: Vec<State<'a>> = Vec::new();
    for (turn, whole) in order.iter().copied().enumerate() {
        let Some(w) = wholes.get(whole) else { continue };
        for (moment, job) in w.moments.iter().enumerate() {
            let trials = fleet.jobs().get(*job).map(|j| j.trials.values()).into_iter().flatten();
            states.extend(trials.map(|trial| State { whole, turn, moment, job: *job, trial }));
        }
    }
    let id_of = |s: &State<'a>| s.trial.result.as_ref().and_then(|r| r.id.clone());
    let mut by_id: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
    for (i, state) in states.iter().enumerate() {
        if let Some(id) = id_of(state) {
            by_id.entry(id).or_default().push(i);
        }
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut apart: HashMap<usize, usize> = HashMap::new();
    let mut by_name: HashMap<(usize, &str), usize> = HashMap::new();
    // In the order of the states, so that nothing depends on a hash.
    for (i, state) in states.iter().enumerate() {
        let Some(id) = id_of(state) else { continue };
        // The first state with an id takes all others with it.
        let Some(bucket) = by_id.remove(&id) else { continue };
        debug_assert!(bucket.first() == Some(&i));
        let first_group = groups.len();
        for group in split(&states, &bucket) {
            if groups.len() > first_group {
                apart.insert(groups.len(), first_group);
            }
            groups.push(group);
        }
    }
    for (at, group) in groups.iter().enumerate() {
        for state in group.iter().filter_map(|i| states.get(*i)) {
            by_name.entry((state.whole, &state.trial.name)).or_insert(at);
        }
    }
    for (i, state) in states.iter().enumerate() {
        if id_of(state).is_some() {
            continue;
        }
        let at = *by_name.entry((state.whole, &state.trial.name)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    let winner = |group: &Vec<usize>| group.iter().filter_map(|i| states.get(*i)).max_by_key(|s| s.rank()).cloned();
    let winners: Vec<Option<State<'a>>> = groups.iter().map(winner).collect();
    let mut known = Vec::with_capacity(groups.len());
    for (at, group) in groups.iter().enumerate() {
        let Some(best) = winners.get(at).cloned().flatten() else { continue };
        let newest = wholes.get(best.whole).map(Whole::newest);
        let members = || group.iter().filter_map(|i| states.get(*i));
        let mut others: Vec<(usize, &Trial)> =
            members().filter(|s| !std::ptr::eq(s.trial, best.trial)).map(|s| (s.job, s.trial)).collect();
        others.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        let twin = apart.get(&at).and_then(|first| winners.get(*first)).cloned().flatten();
        known.push(Known {
            whole: best.whole,
            job: best.job,
            trial: best.trial,
            in_newest: members().any(|s| s.whole == best.whole && Some(s.job) == newest),
            others,
            same_id_as: twin.map(|t| (t.job, t.trial.name.clone())),
        });
    }
    known
}

/// Splits the states that share a result id into those that can be one trial.
fn split(states: &[State<'_>], bucket: &[usize]) -> Vec<Vec<usize>> {
    if bucket.len() == 1 {
        return vec![bucket.to_vec()];
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut by_record: HashMap<String, usize> = HashMap::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    for i in bucket {
        let Some(state) = states.get(*i) else { continue };
        let Some(result) = &state.trial.result else { continue };
        let record = record(result);
        let known = by_record.get(&record).or_else(|| by_name.get(&*state.trial.name)).copied();
        let at = known.unwrap_or(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(*i),
            None => groups.push(vec![*i]),
        }
        by_record.entry(record).or_insert(at);
        by_name.entry(&state.trial.name).or_insert(at);
    }
    groups
}

/// What two copies of one result have in common.
fn record(r: &TrialResult) -> String {
    let exception = r.exception.as_ref().map(|e| (&e.kind, &e.message));
    let rewards: &Rewards = &r.rewards;
    format!("{:?}", (&r.task_name, r.started, r.finished, rewards, exception, &r.step_exceptions, r.tokens))
}

/// What the default choice between passes and samples looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shape {
    /// Task → number of planned trials.
    tasks: BTreeMap<Arc<str>, u64>,
    /// Indices of wholes that this one descends from.
    ancestors: Vec<usize>,
    /// Job's directory, for messages.
    dir: String,
    /// Start, for the order of passes.
    began: Option<Stamp>,
}

/// How the jobs go together, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The way; None where there is only one job, or where they are shown side by side.
    pub how: Option<How>,
    /// The reason in words.
    pub why: String,
    /// The order in which passes are applied: indices of wholes.
    pub order: Vec<usize>,
}

/// Neither default applies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Chooses passes or samples for the jobs, or takes what was asked for.
///
/// # Errors
/// A message that names both ways when neither default applies.
pub fn choose(fleet: &Fleet, wholes: &[Whole], asked: Option<How>) -> Result<Choice, Refusal> {
    let shapes = shapes(fleet, wholes);
    let order = order(&shapes);
    if let [one] = wholes {
        let why = match one.moments.len() {
            0 | 1 => "one job".to_string(),
            n => format!("one job at {n} moments: the newest state of each trial counts"),
        };
        return Ok(Choice { how: None, why, order });
    }
    if let Some(how) = asked {
        return Ok(Choice { how: Some(how), why: format!("asked for with --as {}", how.word()), order });
    }
    default_choice(&shapes).map(|choice| Choice { order, ..choice })
}

/// The jobs that belong together: each with those that were made of it, as indices into
/// [`Fleet::jobs`], parents first; the families in the order of their first appearance.
pub fn families(fleet: &Fleet, now: Stamp) -> Vec<Vec<usize>> {
    let wholes = unite(fleet, now);
    let shapes = shapes(fleet, &wholes);
    let order = order(&shapes);
    let mut family: Vec<usize> = (0..wholes.len()).collect();
    for i in &order {
        let root = shapes.get(*i).and_then(|s| s.ancestors.first()).and_then(|p| family.get(*p)).copied();
        if let (Some(root), Some(place)) = (root, family.get_mut(*i)) {
            *place = root;
        }
    }
    let members = |root: usize| -> Vec<usize> {
        let of_family = order.iter().filter(|i| family.get(**i) == Some(&root));
        of_family.filter_map(|i| wholes.get(*i)).flat_map(|w| w.moments.iter().copied()).collect()
    };
    (0..wholes.len()).map(members).filter(|jobs| !jobs.is_empty()).collect()
}

/// As [`choose`] without anything asked for, but where neither default applies nothing is merged
/// across jobs.
pub fn choose_or_side_by_side(fleet: &Fleet, wholes: &[Whole]) -> Choice {
    choose(fleet, wholes, None).unwrap_or_else(|Refusal(why)| Choice {
        how: None,
        why: format!("side by side, nothing merged across jobs: {why}"),
        order: order(&shapes(fleet, wholes)),
    })
}

fn shapes(fleet: &Fleet, wholes: &[Whole]) -> Vec<Shape> {
    let job = |i: usize| fleet.jobs().get(i);
    let mut shapes: Vec<Shape> = Vec::new();
    for whole in wholes {
        let moments: Vec<&Job> = whole.moments.iter().rev().filter_map(|i| job(*i)).collect();
        let mut tasks: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        if let Some(plan) = moments.iter().find_map(|j| j.facts.planned.as_ref()) {
            for p in plan {
                *tasks.entry(p.task.clone()).or_default() += u64::from(p.n);
            }
        } else {
            for trial in moments.first().into_iter().flat_map(|j| j.trials.values()) {
                *tasks.entry(trial.task.clone()).or_default() += 1;
            }
        }
        let starts = moments.iter().flat_map(|j| j.trials.values()).filter_map(slots::started);
        shapes.push(Shape {
            tasks,
            ancestors: Vec::new(),
            dir: moments.first().map(|j| j.facts.dir.display().to_string()).unwrap_or_default(),
            began: moments.iter().filter_map(|j| j.facts.created).min().or_else(|| starts.min()),
        });
    }
    for (i, whole) in wholes.iter().enumerate() {
        let own = || whole.moments.iter().filter_map(|m| job(*m));
        let lineage: Vec<&Arc<str>> = own().flat_map(|j| j.facts.lineage.iter().chain(j.notebook.origins())).collect();
        // The journal of either names the other.
        let offspring = |parent: &Job| parent.notebook.offspring().any(|dir| own().any(|j| is_at(dir, j)));
        let parents = wholes.iter().enumerate().filter(|(p, _)| *p != i).filter(|(_, parent)| {
            let named = |j: &Job| lineage.iter().any(|name| names(name, j)) || offspring(j);
            parent.moments.iter().filter_map(|m| job(*m)).any(named)
        });
        let parents: Vec<usize> = parents.map(|(p, _)| p).collect();
        if let Some(shape) = shapes.get_mut(i) {
            shape.ancestors = parents;
        }
    }
    // A child of a child is a child, too.
    for _ in 0..shapes.len() {
        let before = shapes.clone();
        for shape in &mut shapes {
            let further: Vec<usize> =
                shape.ancestors.iter().filter_map(|p| before.get(*p)).flat_map(|s| s.ancestors.clone()).collect();
            shape.ancestors.extend(further);
            shape.ancestors.sort_unstable();
            shape.ancestors.dedup();
        }
        if before == shapes {
            break;
        }
    }
    shapes
}

/// True when a lineage entry (an id, or a path that may be relative to where the job was started)
/// names this job.
pub fn names(lineage: &str, job: &Job) -> bool {
    if job.facts.id.as_deref() == Some(lineage) {
        return true;
    }
    let path = Path::new(lineage.trim_end_matches('/'));
    let path = path.strip_prefix("./").unwrap_or(path);
    !path.as_os_str().is_empty() && (job.facts.dir == path || (path.is_relative() && job.facts.dir.ends_with(path)))
}

/// True when a directory noted in a journal is this job's, here or, by its last two parts, in a copy of
/// the directory above; shards often give their jobs the same name.
pub fn is_at(noted: &str, job: &Job) -> bool {
    let last = |path: &Path| -> Option<(std::ffi::OsString, std::ffi::OsString)> {
        Some((path.parent()?.file_name()?.to_os_string(), path.file_name()?.to_os_string()))
    };
    let noted = Path::new(noted);
    noted == job.facts.dir || last(noted).is_some_and(|parts| last(&job.facts.dir) == Some(parts))
}

/// Parents before children, then by start, then by directory; never by order of arguments.
fn order(shapes: &[Shape]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shapes.len()).collect();
    order.sort_by_key(|i| shapes.get(*i).map(|s| (s.ancestors.len(), known_first(s.began), s.dir.clone())));
    order
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    Equal,
    Disjoint,
    Inside,
    Around,
    Overlap,
}

fn relation(a: &Shape, b: &Shape) -> Relation {
    let within = |x: &Shape, y: &Shape| x.tasks.iter().all(|(task, n)| y.tasks.get(task).is_some_and(|m| n <= m));
    match (within(a, b), within(b, a)) {
        _ if a.tasks.keys().all(|task| !b.tasks.contains_key(task)) => Relation::Disjoint,
        (true, true) => Relation::Equal,
        (true, false) => Relation::Inside,
        (false, true) => Relation::Around,
        (false, false) => Relation::Overlap,
    }
}

fn default_choice(shapes: &[Shape]) -> Result<Choice, Refusal> {
    let choice = |how, why: String| Ok(Choice { how: Some(how), why, order: Vec::new() });
    let later = |child: usize, root: usize| {
        let (Some(c), Some(r)) = (shapes.get(child), shapes.get(root)) else { return None };
        if c.ancestors.contains(&root) {
            Some("names it as its origin")
        } else if relation(c, r) == Relation::Inside {
            Some("plans a part of its tasks")
        } else {
            None
        }
    };
    let indices = || 0..shapes.len();
    let roots: Vec<usize> =
        indices().filter(|root| indices().all(|i| i == *root || later(i, *root).is_some())).collect();
    if let [root] = roots.as_slice() {
        let reasons = indices().filter(|i| i != root).filter_map(|i| {
            let why = later(i, *root)?;
            shapes.get(i).map(|s| format!("{} {why}", s.dir))
        });
        let base = shapes.get(*root).map(|s| s.dir.clone()).unwrap_or_default();
        let reasons: Vec<String> = reasons.collect();
        return choice(How::Passes, format!("of {base}: {}", reasons.join("; ")));
    }
    let mut equal = 0;
    let mut pairs = 0;
    for i in indices() {
        for j in i + 1..shapes.len() {
            let (Some(a), Some(b)) = (shapes.get(i), shapes.get(j)) else { continue };
            pairs += 1;
            let how = match relation(a, b) {
                _ if a.ancestors.contains(&j) || b.ancestors.contains(&i) => "one names the other as its origin",
                Relation::Equal => {
                    equal += 1;
                    continue;
                }
                Relation::Disjoint => continue,
                Relation::Inside | Relation::Around => "one plans a part of the other's tasks",
                Relation::Overlap => "they plan some tasks in common, others not",
            };
            return Err(Refusal(format!(
                "{} and {}: {how}, but no single job is the origin of all; say how they go together: --as passes \
                 (later trials fill slots without a valid reward) or --as samples (independent, slots add up)",
                a.dir, b.dir
            )));
        }
    }
    let why = match (equal, pairs) {
        (e, p) if e == p => "all jobs plan the same tasks",
        (0, _) => "no two jobs plan a task in common",
        _ => "any two jobs plan either the same tasks or none in common",
    };
    choice(How::Samples, why.to_string())
}
