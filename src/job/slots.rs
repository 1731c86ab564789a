//! Slots: the unit of counting. A slot is the k-th planned trial of a task in one job.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::facts::Planned;
use super::phase::Phase;
use super::time::Stamp;
use super::trial::Trial;

/// Names one slot of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Task short name.
    pub task: Arc<str>,
    /// `agent/model`, only where the job has several of them.
    pub agent: Option<Arc<str>>,
    /// Which of the planned trials of this task, from 1.
    pub k: u32,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.agent {
            Some(agent) => write!(f, "{}@{}#{}", self.task, agent, self.k),
            None => write!(f, "{}#{}", self.task, self.k),
        }
    }
}

/// What a trial is worth when several want one slot; the smaller the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Has a reward that counts.
    Scored,
    /// Ended without one: an exception, a cancel, several keys and none primary.
    Ended,
    /// Somebody works on it.
    Running,
    /// Phantom, orphaned or unreadable.
    Dead,
}

impl Standing {
    /// The standing of a trial in this phase.
    pub fn of(trial: &Trial, phase: Phase) -> Standing {
        match &trial.result {
            Some(result) if result.has_valid_reward() => Standing::Scored,
            Some(result) if result.is_phantom() => Standing::Dead,
            Some(_) => Standing::Ended,
            None if matches!(phase, Phase::Orphaned | Phase::Unreadable) => Standing::Dead,
            None => Standing::Running,
        }
    }
}

/// A trial that wants a slot of its job.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// The trial.
    pub trial: &'a Trial,
    /// Its phase.
    pub phase: Phase,
    /// Its standing.
    pub standing: Standing,
    /// True when it exists in the newest known moment of its job.
    pub in_newest: bool,
}

impl Candidate<'_> {
    /// Start, as well as it is known.
    pub fn started(&self) -> Option<Stamp> {
        started(self.trial)
    }

    /// End by its result, else the last thing that was written.
    fn ended(&self) -> Option<Stamp> {
        match &self.trial.result {
            Some(result) => result.finished,
            None => self.trial.evidence.as_ref().and_then(|e| e.newest),
        }
    }
}

/// When a trial started: by its result, else by its files.
pub fn started(trial: &Trial) -> Option<Stamp> {
    match &trial.result {
        Some(result) => result.started,
        None => trial.evidence.as_ref().and_then(|e| e.began),
    }
}

/// Sorts unknown times last.
pub fn known_first(at: Option<Stamp>) -> (bool, Option<Stamp>) {
    (at.is_none(), at)
}

/// Which of two scored trials of one slot counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// The one that started first; the only rule that can not be used to fish for passes.
    #[default]
    Earlier,
    /// The one that started last.
    Latest,
    /// The one with the higher reward.
    Best,
}

impl Rule {
    /// The word on the command line and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Rule::Earlier => "earlier",
            Rule::Latest => "latest",
            Rule::Best => "best",
        }
    }

    /// True when `new` is to stand instead of `old`; both are scored, `old` started first.
    pub fn replaces(self, old: &Trial, new: &Trial) -> bool {
        match self {
            Rule::Earlier => false,
            Rule::Latest => true,
            Rule::Best => reward(new) > reward(old),
        }
    }
}

fn reward(trial: &Trial) -> f64 {
    trial.result.as_ref().and_then(|r| r.rewards.primary()).unwrap_or(f64::NEG_INFINITY)
}

/// One slot and the candidate that stands in it.
#[derive(Debug, Clone)]
pub struct Filled {
    /// Which slot.
    pub slot: Slot,
    /// Index of the candidate; None while nobody has begun.
    pub by: Option<usize>,
}

/// A candidate that got no slot although its task is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surplus {
    /// Index of the candidate.
    pub candidate: usize,
    /// Index of the slot in question.
    pub slot: usize,
    /// True when both were scored, so that a rule had to decide.
    pub conflict: bool,
}

/// All slots of one job.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    /// Slots in order of task, agent, k.
    pub slots: Vec<Filled>,
    /// Candidates that lost a slot.
    pub surplus: Vec<Surplus>,
    /// Candidates whose task the plan does not know.
    pub unplanned: Vec<usize>,
    /// Planned trials, slots without a known task included.
    pub planned: u64,
}

impl Slots {
    /// Planned trials of which not even the task is known (no lock, no directory).
    pub fn anonymous(&self) -> u64 {
        self.planned.saturating_sub(self.slots.len() as u64)
    }
}

type Group = (Arc<str>, Option<Arc<str>>);

/// `agent/model` of a trial or plan entry, as in [`Slot::agent`].
fn agent_label(agent: &Option<Arc<str>>, model: &Option<Arc<str>>) -> Option<Arc<str>> {
    match (agent, model) {
        (Some(agent), Some(model)) => Some(format!("{agent}/{model}").into()),
        (Some(one), None) | (None, Some(one)) => Some(one.clone()),
        (None, None) => None,
    }
}

/// Gives every candidate of one job a slot, as far as the plan goes.
///
/// `planned` is the plan of `lock.json`; without it `n_total` of `result.json` says how many there
/// are; without both there are as many slots as trials.
pub fn assign(candidates: &[Candidate<'_>], planned: Option<&[Planned]>, n_total: Option<u64>, rule: Rule) -> Slots {
    let mut labels: Vec<Option<Arc<str>>> = match planned {
        Some(plan) => plan.iter().map(|p| agent_label(&p.agent, &p.model)).collect(),
        None => candidates.iter().map(|c| agent_label(&c.trial.agent, &c.trial.model)).collect(),
    };
    labels.retain(Option::is_some);
    labels.sort();
    labels.dedup();
    let several = labels.len() > 1;
    let label = |agent, model| if several { agent_label(agent, model) } else { None };

    let mut sizes: HashMap<Group, u32> = HashMap::new();
    let mut members: HashMap<Group, Vec<usize>> = HashMap::new();
    let mut out = Slots::default();
    if let Some(plan) = planned {
        for p in plan {
            let n = sizes.entry((p.task.clone(), label(&p.agent, &p.model))).or_default();
            *n = n.saturating_add(p.n);
        }
        let finder = Finder::new(&sizes);
        for (i, c) in candidates.iter().enumerate() {
            match finder.find(c.trial, &label(&c.trial.agent, &c.trial.model)) {
                Some(group) => members.entry(group).or_default().push(i),
                None => out.unplanned.push(i),
            }
        }
        out.planned = sizes.values().map(|n| u64::from(*n)).sum();
    } else {
        for (i, c) in candidates.iter().enumerate() {
            let group = (c.trial.task.clone(), label(&c.trial.agent, &c.trial.model));
            members.entry(group).or_default().push(i);
        }
        let too_many = n_total.map_or(0, |n| (candidates.len() as u64).saturating_sub(n));
        sizes = sizes_without_plan(candidates, &members, too_many);
        let seen: u64 = sizes.values().map(|n| u64::from(*n)).sum();
        out.planned = n_total.unwrap_or(seen).max(seen);
    }

    let mut groups: Vec<(Group, u32)> = sizes.into_iter().collect();
    groups.sort();
    for (group, n) in groups {
        let wanting = members.remove(&group).unwrap_or_default();
        fill(candidates, &group, n, wanting, rule, &mut out);
    }
    out
}

/// Without a plan every trial is a slot, except that trials beyond the job's own total which never
/// ended (what a resume leaves lying about) give way to others of their task.
fn sizes_without_plan(
    candidates: &[Candidate<'_>],
    members: &HashMap<Group, Vec<usize>>,
    mut too_many: u64,
) -> HashMap<Group, u32> {
    let mut groups: Vec<&Group> = members.keys().collect();
    groups.sort();
    let mut sizes = HashMap::new();
    for group in groups {
        let of_group = members.get(group).map_or(&[][..], Vec::as_slice);
        let n = of_group.len() as u64;
        let dead = of_group.iter().filter(|i| candidates.get(**i).is_some_and(|c| c.standing == Standing::Dead)).count()
            as u64;
        let dropped = dead.min(n.saturating_sub(1)).min(too_many);
        too_many -= dropped;
        sizes.insert(group.clone(), u32::try_from(n - dropped).unwrap_or(u32::MAX));
    }
    sizes
}

/// Finds the planned group of a trial.
struct Finder<'a> {
    exact: &'a HashMap<Group, u32>,
    by_task: HashMap<&'a str, Vec<&'a Group>>,
    by_directory: HashMap<String, Vec<&'a Group>>,
}

impl<'a> Finder<'a> {
    fn new(exact: &'a HashMap<Group, u32>) -> Finder<'a> {
        let mut by_task: HashMap<&str, Vec<&Group>> = HashMap::new();
        let mut by_directory: HashMap<String, Vec<&Group>> = HashMap::new();
        let mut groups: Vec<&Group> = exact.keys().collect();
        groups.sort();
        for group in groups {
            by_task.entry(&group.0).or_default().push(group);
            by_directory.entry(directory_stem(&group.0)).or_default().push(group);
        }
        Finder { exact, by_task, by_directory }
    }

    /// By task and agent; then by task alone; then by the start of the directory's name, which is
    /// all there is while a trial's config is not readable.
    fn find(&self, trial: &Trial, agent: &Option<Arc<str>>) -> Option<Group> {
        let wanted = (trial.task.clone(), agent.clone());
        if self.exact.contains_key(&wanted) {
            return Some(wanted);
        }
        let stem = trial.name.rsplit_once("__").map_or(&*trial.name, |(stem, _)| stem);
        let result_task = trial.result.as_ref().map(|r| r.task_name.rsplit('/').next().unwrap_or_default());
        let found = self
            .by_task
            .get(&*trial.task)
            .or_else(|| result_task.and_then(|t| self.by_task.get(t)))
            .or_else(|| self.by_directory.get(stem))?;
        let same_agent = found.iter().find(|g| g.1 == *agent);
        same_agent.or_else(|| found.first().filter(|_| agent.is_none() || found.len() == 1)).map(|g| (*g).clone())
    }
}

/// What Harbor makes of a task's name in front of `__` in a trial directory's name: 32 characters,
/// trailing `_` and `-` cut.
fn directory_stem(task: &str) -> String {
    let cut: String = task.chars().take(32).collect();
    cut.trim_end_matches(['_', '-']).to_string()
}

fn fill(candidates: &[Candidate<'_>], group: &Group, n: u32, mut wanting: Vec<usize>, rule: Rule, out: &mut Slots) {
    let get = |i: &usize| candidates.get(*i);
    // A reward is never given up for something without one; among the rest what still exists wins.
    wanting.sort_by_cached_key(|i| {
        get(i).map(|c| {
            let scored = c.standing == Standing::Scored;
            let order = known_first(c.started());
            (!scored, !scored && !c.in_newest, c.standing, order, c.trial.name.clone())
        })
    });
    let rest = wanting.split_off(wanting.len().min(n as usize));
    let mut chosen = wanting;
    let mut lost: Vec<(usize, bool)> = Vec::new();
    for i in rest {
        let both_scored = get(&i).is_some_and(|c| c.standing == Standing::Scored);
        // More scored trials than slots: every one of `chosen` is scored, too, and started before.
        let out_of = both_scored.then(|| worst(candidates, &chosen, rule)).flatten();
        match out_of.and_then(|at| chosen.get_mut(at)) {
            Some(place) if get(place).zip(get(&i)).is_some_and(|(old, new)| rule.replaces(old.trial, new.trial)) => {
                lost.push((std::mem::replace(place, i), true));
            }
            _ => lost.push((i, both_scored)),
        }
    }
    chosen.sort_by_cached_key(|i| get(i).map(|c| (known_first(c.started()), c.trial.name.clone())));
    let first = out.slots.len();
    for k in 0..n {
        let slot = Slot { task: group.0.clone(), agent: group.1.clone(), k: k + 1 };
        out.slots.push(Filled { slot, by: chosen.get(k as usize).copied() });
    }
    for (i, conflict) in lost {
        let ended = get(&i).and_then(Candidate::ended);
        let after = |c: &Candidate<'_>| matches!((c.started(), ended), (Some(start), Some(end)) if start >= end);
        let successor = chosen.iter().position(|c| get(c).is_some_and(after));
        let at = successor.or_else(|| chosen.len().checked_sub(1));
        match at {
            Some(at) => out.surplus.push(Surplus { candidate: i, slot: first + at, conflict }),
            None => out.unplanned.push(i),
        }
    }
}

/// Which of the scored ones would have to go first by this rule.
fn worst(candidates: &[Candidate<'_>], chosen: &[usize], rule: Rule) -> Option<usize> {
    let key = |i: &usize| candidates.get(*i).map(|c| (reward(c.trial), known_first(c.started())));
    match rule {
        Rule::Earlier => None,
        Rule::Latest => (0..chosen.len()).min_by_key(|at| chosen.get(*at).and_then(key).map(|k| k.1)),
        Rule::Best => (0..chosen.len()).min_by(|a, b| {
            let a = chosen.get(*a).and_then(key);
            let b = chosen.get(*b).and_then(key);
            let reward = |k: &Option<(f64, (bool, Option<Stamp>))>| k.map_or(f64::NEG_INFINITY, |k| k.0);
            reward(&a).total_cmp(&reward(&b)).then(Reverse(a.map(|k| k.1)).cmp(&Reverse(b.map(|k| k.1))))
        }),
    }
}
