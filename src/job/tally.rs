//! The count: every directory's place, totals over the trials that count, scores, warnings.

use std::collections::HashMap;
use std::sync::Arc;

use super::effort::Effort;
use super::fleet::{Fleet, JobState};
use super::merge::{self, Choice, How, Known, Refusal, Whole};
use super::outcome::Grade;
use super::phase::{self, Phase, Writer};
use super::regrade::Regrades;
use super::scores::{self, Corrected, PerTask, Score};
use super::slots::{self, Candidate, Rule, Slot, Slots, Standing, known_first};
use super::time::Stamp;
use super::trial::{Tokens, Trial};
use super::verdict::Verdict;
use super::warnings::{self, Warning};

/// What the operator chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Passes or samples; None takes the default that the jobs' plans give.
    pub how: Option<How>,
    /// Which of two scored trials of one slot counts.
    pub rule: Rule,
    /// Whether regrades count in the score `corrected`.
    pub regrades: Regrades,
}

/// How the directories were put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// Passes or samples; None for one job and for jobs shown side by side.
    pub how: Option<How>,
    /// The rule for conflicts.
    pub rule: Rule,
    /// Why, in words.
    pub why: String,
}

impl Merge {
    /// What a reader must know before quoting a score, where there is such a thing.
    pub fn caveat(&self) -> Option<&'static str> {
        (self.rule == Rule::Best).then_some("not publishable: only failures were run again")
    }
}

/// One attached job dir.
#[derive(Debug, Clone, PartialEq)]
pub struct JobLine {
    /// State with its evidence.
    pub state: JobState,
    /// Planned trials and the file that says so; None when no file tells.
    pub planned: Option<(u64, &'static str)>,
    /// False for an older moment of a job that another directory shows, too.
    pub newest: bool,
}

/// What became of a directory or slot in the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// It counts.
    Chosen,
    /// An older or copied state of a trial that is counted elsewhere.
    Duplicate,
    /// Another trial stands in its slot.
    Superseded,
    /// The plan does not know its task.
    Unplanned,
}

/// One line of the count: a trial directory, or a planned slot that has none yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index into [`Fleet::jobs`].
    pub job: usize,
    /// Directory name; None for a slot without directory.
    pub trial: Option<Arc<str>>,
    /// Task short name.
    pub task: Arc<str>,
    /// The slot it stands in or lost; None where the plan has none for it.
    pub slot: Option<Slot>,
    /// Phase.
    pub phase: Phase,
    /// What became of it.
    pub place: Place,
    /// The trial that counts instead: job index and directory name.
    pub superseded_by: Option<(usize, Arc<str>)>,
    /// The verdict that holds for it, from whichever copy of the job's journal.
    pub verdict: Option<Verdict>,
}

/// Counts over the chosen trials; `duplicate` counts the states that were left out as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Planned trials.
    pub planned: u64,
    /// Results that are not phantoms.
    pub finished: u64,
    /// With a primary reward that is a number.
    pub graded: u64,
    /// Primary reward 1.
    pub passed: u64,
    /// Primary reward between 0 and 1.
    pub partial: u64,
    /// Any other primary reward.
    pub failed: u64,
    /// With any exception, those of steps included.
    pub errored: u64,
    /// Finished without a primary reward.
    pub no_reward: u64,
    /// Stopped (`CancelledError`).
    pub cancelled: u64,
    /// Result with neither reward nor exception.
    pub phantom: u64,
    /// No result, nobody alive to write one.
    pub orphaned: u64,
    /// Not readable.
    pub unreadable: u64,
    /// Being worked on.
    pub running: u64,
    /// States left out because the same trial is counted elsewhere.
    pub duplicate: u64,
    /// Trials left out because another one stands in their slot.
    pub superseded: u64,
}

/// Tokens over the chosen trials with a result.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TokenSum {
    /// Sums of what was reported.
    pub sum: Tokens,
    /// Trials that reported input or output.
    pub known: u64,
    /// Trials with a result.
    pub of: u64,
    /// What chosen trials that are at work used so far, by their trajectories; not in `sum`.
    pub live: Tokens,
}

/// The whole count.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    /// How the directories were put together.
    pub merge: Merge,
    /// One line for each of [`Fleet::jobs`], in that order.
    pub jobs: Vec<JobLine>,
    /// Rows in order of job, slot, chosen first, start, name.
    pub rows: Vec<Row>,
    /// Totals.
    pub totals: Totals,
    /// Scores.
    pub scores: Vec<Score>,
    /// Tokens.
    pub tokens: TokenSum,
    /// Money and time.
    pub effort: Effort,
    /// What the verdicts and regrades change.
    pub corrected: Corrected,
    /// Whether regrades count there.
    pub regrades: Regrades,
    /// What a reader should know and what a person should look at.
    pub warnings: Vec<Warning>,
}

impl Tally {
    /// True when something needs a person.
    pub fn needs_person(&self) -> bool {
        use super::fleet::StateKind;
        self.warnings.iter().any(|w| w.kind.needs_person())
            || self.jobs.iter().any(|j| j.newest && matches!(j.state.kind, StateKind::Dead | StateKind::Unreachable))
    }
}

/// One slot of the merged count.
pub(super) struct Merged {
    pub whole: usize,
    pub slot: Slot,
    /// Index into the known trials.
    pub by: Option<usize>,
}

/// What became of a known trial.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Chosen(usize),
    Lost { slot: usize, conflict: bool },
    Unplanned,
}

/// Everything the warnings look at.
pub(super) struct Count<'a> {
    pub fleet: &'a Fleet,
    pub wholes: Vec<Whole>,
    pub known: Vec<Known<'a>>,
    pub phases: Vec<Phase>,
    pub slots: Vec<Slots>,
    pub merged: Vec<Merged>,
    pub fates: Vec<Fate>,
    pub choice: Choice,
    pub rule: Rule,
    pub regrades: Regrades,
    pub now: Stamp,
}

/// Counts the fleet.
///
/// # Errors
/// When several jobs are attached, nothing was asked for and neither default applies.
pub fn count(fleet: &Fleet, options: &Options, now: Stamp) -> Result<Tally, Refusal> {
    let wholes = merge::unite(fleet, now);
    let choice = merge::choose(fleet, &wholes, options.how)?;
    Ok(counted(fleet, wholes, choice, options, now))
}

/// Counts the fleet; where neither default applies, the jobs are counted side by side.
pub fn count_side_by_side(fleet: &Fleet, rule: Rule, now: Stamp) -> Tally {
    let wholes = merge::unite(fleet, now);
    let choice = merge::choose_or_side_by_side(fleet, &wholes);
    counted(fleet, wholes, choice, &Options { rule, ..Options::default() }, now)
}

fn counted(fleet: &Fleet, wholes: Vec<Whole>, choice: Choice, options: &Options, now: Stamp) -> Tally {
    let known = merge::identify(fleet, &wholes, &choice.order);
    let phase = |k: &Known<'_>| {
        let writer = wholes.get(k.whole).filter(|_| k.in_newest).map_or(Writer::Gone, |w| w.writer);
        phase::of_trial(k.trial, writer)
    };
    let phases: Vec<Phase> = known.iter().map(phase).collect();
    let mut count = Count {
        fleet,
        slots: Vec::new(),
        merged: Vec::new(),
        fates: vec![Fate::Unplanned; known.len()],
        wholes,
        known,
        phases,
        choice,
        rule: options.rule,
        regrades: options.regrades,
        now,
    };
    count.assign();
    count.finish()
}

impl Count<'_> {
    pub(super) fn standing(&self, known: usize) -> Standing {
        match (self.known.get(known), self.phases.get(known)) {
            (Some(k), Some(phase)) => Standing::of(k.trial, *phase),
            _ => Standing::Dead,
        }
    }

    pub(super) fn started(&self, known: usize) -> Option<Stamp> {
        self.known.get(known).and_then(|k| slots::started(k.trial))
    }

    fn set(&mut self, known: usize, fate: Fate) {
        if let Some(place) = self.fates.get_mut(known) {
            *place = fate;
        }
    }

    /// Gives the trials of each job their slots, then puts the jobs together.
    fn assign(&mut self) {
        let mut of_whole: Vec<Vec<usize>> = vec![Vec::new(); self.wholes.len()];
        for (i, k) in self.known.iter().enumerate() {
            if let Some(list) = of_whole.get_mut(k.whole) {
                list.push(i);
            }
        }
        let passes = self.choice.how == Some(How::Passes);
        let order = if passes { self.choice.order.clone() } else { (0..self.wholes.len()).collect() };
        let mut all: Vec<Slots> = vec![Slots::default(); self.wholes.len()];
        let mut passed: Passes = Passes::default();
        for whole in order {
            let ids = of_whole.get(whole).cloned().unwrap_or_default();
            let slots = self.slots_of(whole, &ids);
            let places =
                if passes { self.pass(whole, &slots, &ids, &mut passed) } else { self.add(whole, &slots, &ids) };
            for lost in &slots.surplus {
                let (Some(id), Some(slot)) = (ids.get(lost.candidate), places.get(lost.slot)) else { continue };
                self.set(*id, Fate::Lost { slot: *slot, conflict: lost.conflict });
            }
            if let Some(place) = all.get_mut(whole) {
                *place = slots;
            }
        }
        self.slots = all;
    }

    fn slots_of(&self, whole: usize, ids: &[usize]) -> Slots {
        let candidates: Vec<Candidate<'_>> = ids
            .iter()
            .filter_map(|i| {
                let (k, phase) = (self.known.get(*i)?, *self.phases.get(*i)?);
                let standing = Standing::of(k.trial, phase);
                Some(Candidate { trial: k.trial, phase, standing, in_newest: k.in_newest })
            })
            .collect();
        let moments = self.wholes.get(whole).map_or(&[][..], |w| &w.moments);
        let facts = || moments.iter().rev().filter_map(|i| self.fleet.jobs().get(*i)).map(|j| &j.facts);
        let planned = facts().find_map(|f| f.planned.as_deref());
        let n_total = facts().find_map(|f| f.summary.as_ref()?.n_total);
        slots::assign(&candidates, planned, n_total, self.rule)
    }

    /// Samples: the slots of the job are added as they are. Returns where each of them went.
    fn add(&mut self, whole: usize, slots: &Slots, ids: &[usize]) -> Vec<usize> {
        let mut places = Vec::with_capacity(slots.slots.len());
        for filled in &slots.slots {
            let by = filled.by.and_then(|i| ids.get(i)).copied();
            places.push(self.merged.len());
            if let Some(id) = by {
                self.set(id, Fate::Chosen(self.merged.len()));
            }
            self.merged.push(Merged { whole, slot: filled.slot.clone(), by });
        }
        places
    }

    /// Passes: the trials of the job are offered to the slots of their tasks that are there already;
    /// only what goes beyond them is added. Returns where each of the job's slots went.
    fn pass(&mut self, whole: usize, slots: &Slots, ids: &[usize], passes: &mut Passes) -> Vec<usize> {
        let mut places = vec![usize::MAX; slots.slots.len()];
        let mut own: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
        let mut tasks: Vec<Arc<str>> = Vec::new();
        for (i, filled) in slots.slots.iter().enumerate() {
            let list = own.entry(filled.slot.task.clone()).or_default();
            if list.is_empty() {
                tasks.push(filled.slot.task.clone());
            }
            list.push(i);
        }
        for task in tasks {
            let mut mine = own.remove(&task).unwrap_or_default();
            let id_at = |i: &usize| slots.slots.get(*i).and_then(|f| f.by).and_then(|i| ids.get(i)).copied();
            let targets = passes.by_task.entry(task).or_default();
            for i in mine.iter().skip(targets.len()) {
                let Some(filled) = slots.slots.get(*i) else { continue };
                let mut slot = filled.slot.clone();
                let taken = |s: &Slot, targets: &[usize]| {
                    targets.iter().filter_map(|t| self.merged.get(*t)).any(|m| m.slot == *s)
                };
                while taken(&slot, targets) {
                    slot.k += 1;
                }
                targets.push(self.merged.len());
                self.merged.push(Merged { whole, slot, by: None });
            }
            // What is worth most is offered first; a slot takes one trial of each job.
            mine.sort_by_key(|i| (id_at(i).is_none(), id_at(i).map(|id| self.standing(id)), *i));
            let mut free = targets.clone();
            for i in mine {
                let agent = slots.slots.get(i).and_then(|f| f.slot.agent.clone());
                let key = |at: &usize| {
                    let target = free.get(*at).and_then(|t| self.merged.get(*t));
                    let scored = target.and_then(|m| m.by).is_some_and(|b| self.standing(b) == Standing::Scored);
                    (scored, target.is_none_or(|m| m.slot.agent != agent), *at)
                };
                let Some(at) = (0..free.len()).min_by_key(key) else { continue };
                let target = free.remove(at);
                if let Some(place) = places.get_mut(i) {
                    *place = target;
                }
                if let Some(id) = id_at(&i) {
                    self.contend(target, id);
                }
            }
        }
        places
    }

    /// A trial wants a slot in which another may stand already.
    fn contend(&mut self, target: usize, new: usize) {
        let old = self.merged.get(target).and_then(|m| m.by);
        let (takes, conflict) = match old {
            None => (true, false),
            Some(old) => match (self.standing(old), self.standing(new)) {
                (Standing::Scored, Standing::Scored) => {
                    let (a, b) = (self.started(old), self.started(new));
                    let swapped = matches!((a, b), (Some(a), Some(b)) if b < a);
                    let (first, second) = if swapped { (new, old) } else { (old, new) };
                    let trial = |i: usize| self.known.get(i).map(|k| k.trial);
                    // Run again for a reason that was written down: no conflict, the later one was meant.
                    let meant = self.requeued(first);
                    let replaced = meant
                        || trial(first)
                            .zip(trial(second))
                            .is_some_and(|(first, second)| self.rule.replaces(first, second));
                    (replaced != swapped, !meant)
                }
                (Standing::Scored, _) => (false, false),
                (_, Standing::Scored) => (true, false),
                (Standing::Dead, _) => (true, false),
                (_, Standing::Dead) => (false, false),
                _ => (true, false),
            },
        };
        if !takes {
            self.set(new, Fate::Lost { slot: target, conflict });
            return;
        }
        self.set(new, Fate::Chosen(target));
        if let Some(old) = old {
            self.set(old, Fate::Lost { slot: target, conflict });
        }
        if let Some(merged) = self.merged.get_mut(target) {
            merged.by = Some(new);
        }
    }

    /// The trial that stands in a merged slot: job index and directory name.
    pub(super) fn holder(&self, slot: usize) -> Option<(usize, Arc<str>)> {
        let known = self.known.get(self.merged.get(slot)?.by?)?;
        Some((known.job, known.trial.name.clone()))
    }

    /// All planned trials, slots of unknown task included.
    pub(super) fn planned(&self) -> u64 {
        match self.choice.how {
            Some(How::Passes) => {
                let most = self.slots.iter().map(|s| s.planned).max().unwrap_or(0);
                most.max(self.merged.len() as u64)
            }
            _ => self.slots.iter().map(|s| s.planned).fold(0, u64::saturating_add),
        }
    }

    fn finish(self) -> Tally {
        let rows = self.rows();
        let totals = self.totals(&rows);
        let chosen: Vec<&Trial> = self.merged.iter().filter_map(|m| self.known.get(m.by?)).map(|k| k.trial).collect();
        let results: Vec<_> = chosen.iter().filter_map(|t| t.result.as_deref()).collect();
        let mut tokens = TokenSum::default();
        for result in &results {
            tokens.of += 1;
            tokens.known += u64::from(result.tokens.input.is_some() || result.tokens.output.is_some());
            tokens.sum.add(&result.tokens);
        }
        for i in self.merged.iter().filter_map(|m| m.by) {
            let running = self.phases.get(i).is_some_and(|phase| phase.is_running());
            let trajectory = self.known.get(i).and_then(|k| k.trial.evidence.as_ref()?.trajectory);
            if let Some(progress) = trajectory.filter(|_| running) {
                tokens.live.add(&progress.tokens);
            }
        }
        let corrected = self.corrected();
        let scores = scores::all(&scores::Input {
            results: &results,
            totals: &totals,
            per_task: &self.per_task(),
            excluded: self.excluded(),
            corrected,
        });
        let effort = Effort::of(&chosen);
        let warnings = warnings::all(&self);
        let line = |(i, job): (usize, &super::fleet::Job)| JobLine {
            state: job.state(self.now),
            planned: job.facts.n_planned(),
            newest: self.wholes.iter().any(|w| w.newest() == i),
        };
        Tally {
            merge: Merge { how: self.choice.how, rule: self.rule, why: self.choice.why.clone() },
            jobs: self.fleet.jobs().iter().enumerate().map(line).collect(),
            rows,
            totals,
            scores,
            tokens,
            effort,
            corrected,
            regrades: self.regrades,
            warnings,
        }
    }

    /// Planned and passed slots per task; empty where not all tasks are known.
    fn per_task(&self) -> PerTask {
        let mut out = PerTask::new();
        if self.slots.iter().any(|s| s.anonymous() > 0) {
            return out;
        }
        for merged in &self.merged {
            let key = match &merged.slot.agent {
                Some(agent) => format!("{}@{agent}", merged.slot.task).into(),
                None => merged.slot.task.clone(),
            };
            let result = merged.by.and_then(|i| self.known.get(i)).and_then(|k| k.trial.result.as_ref());
            let entry = out.entry(key).or_default();
            entry.0 += 1;
            entry.1 += u64::from(result.is_some_and(|r| r.grade() == Grade::Passed));
        }
        out
    }

    fn rows(&self) -> Vec<Row> {
        let slot_of = |slot: usize| self.merged.get(slot).map(|m| m.slot.clone());
        let mut rows = Vec::with_capacity(self.known.len() + self.merged.len());
        let mut waiting: Vec<Vec<(Arc<str>, Arc<str>)>> = Vec::new();
        for job in self.fleet.jobs() {
            waiting.push(job.retry_wait.iter().rev().map(|(name, task)| (name.clone(), task.clone())).collect());
        }
        for (i, k) in self.known.iter().enumerate() {
            let (place, slot, by) = match self.fates.get(i) {
                Some(Fate::Chosen(slot)) => (Place::Chosen, slot_of(*slot), None),
                Some(Fate::Lost { slot, .. }) => (Place::Superseded, slot_of(*slot), self.holder(*slot)),
                _ => (Place::Unplanned, None, None),
            };
            let verdict = self.word(i).and_then(|word| word.verdict);
            let row = |job: usize, trial: &Trial, phase, place, superseded_by| Row {
                verdict,
                job,
                trial: Some(trial.name.clone()),
                task: trial.task.clone(),
                slot: slot.clone(),
                phase,
                place,
                superseded_by,
            };
            let phase = self.phases.get(i).copied().unwrap_or(Phase::Unreadable);
            rows.push(row(k.job, k.trial, phase, place, by));
            for (job, trial) in &k.others {
                let instead = Some((k.job, k.trial.name.clone()));
                rows.push(row(*job, trial, phase::of_trial(trial, Writer::Gone), Place::Duplicate, instead));
            }
        }
        for merged in self.merged.iter().filter(|m| m.by.is_none()) {
            let job = self.wholes.get(merged.whole).map(Whole::newest).unwrap_or_default();
            // A directory that vanished a moment ago holds the slot of its retry.
            let retry = waiting.get_mut(job).and_then(|list| {
                let at = list.iter().rposition(|(_, task)| *task == merged.slot.task)?;
                Some(list.remove(at).0)
            });
            rows.push(Row {
                job,
                phase: if retry.is_some() { Phase::RetryWait } else { Phase::Queued },
                trial: retry,
                task: merged.slot.task.clone(),
                slot: Some(merged.slot.clone()),
                place: Place::Chosen,
                superseded_by: None,
                verdict: None,
            });
        }
        let start = |row: &Row| {
            let job = self.fleet.jobs().get(row.job)?;
            slots::started(job.trials.get(row.trial.as_ref()?)?)
        };
        rows.sort_by_cached_key(|row| {
            let no_slot = row.slot.is_none();
            (row.job, no_slot, row.slot.clone(), row.place as u8, known_first(start(row)), row.trial.clone())
        });
        rows
    }

    fn totals(&self, rows: &[Row]) -> Totals {
        let mut t = Totals { planned: self.planned(), ..Totals::default() };
        for row in rows {
            match row.place {
                Place::Duplicate => t.duplicate += 1,
                Place::Superseded => t.superseded += 1,
                Place::Chosen | Place::Unplanned => {}
            }
        }
        for merged in &self.merged {
            let Some(id) = merged.by else { continue };
            let (Some(k), Some(phase)) = (self.known.get(id), self.phases.get(id)) else { continue };
            let Some(result) = &k.trial.result else {
                t.orphaned += u64::from(*phase == Phase::Orphaned);
                t.unreadable += u64::from(*phase == Phase::Unreadable);
                t.running += u64::from(phase.is_running());
                continue;
            };
            if result.is_phantom() {
                t.phantom += 1;
                continue;
            }
            t.finished += 1;
            t.errored += u64::from(result.exception_type().is_some());
            t.cancelled += u64::from(result.is_cancelled());
            match result.grade() {
                Grade::Passed => t.passed += 1,
                Grade::Partial => t.partial += 1,
                Grade::Failed => t.failed += 1,
                Grade::NoReward => t.no_reward += 1,
            }
        }
        t.graded = t.passed + t.partial + t.failed;
        t
    }
}

/// What passes remember between jobs.
#[derive(Default)]
struct Passes {
    /// Merged slots of each task.
    by_task: HashMap<Arc<str>, Vec<usize>>,
}
