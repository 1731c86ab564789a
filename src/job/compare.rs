//! Runs beside each other, task by task: who solved what, and what makes them hard to compare.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::drift::{self, Drift};
use super::fleet::{Fleet, Job};
use super::merge::{self, How};
use super::scores::Score;
use super::tally::{self, Options, Place, Tally};
use super::time::Stamp;
use super::trial::Trial;
use super::verdict::Verdict;

/// One run: a job, with the jobs that were made of it to run some of its trials again.
#[derive(Debug, Clone)]
pub struct Run {
    /// Name of its first job.
    pub name: Arc<str>,
    /// Directories, the first job's first.
    pub dirs: Vec<String>,
    /// Its jobs alone.
    pub fleet: Fleet,
    /// Its count.
    pub tally: Tally,
}

impl Run {
    /// One of its scores.
    pub fn score(&self, name: &str) -> Option<&Score> {
        self.tally.scores.iter().find(|s| s.name == name)
    }

    /// Its first job.
    pub fn first(&self) -> Option<&Job> {
        self.fleet.jobs().first()
    }
}

/// What one run made of one task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cell {
    /// Slots of the task.
    pub slots: u64,
    /// Slots whose trial ended with a primary reward.
    pub graded: u64,
    /// Slots that passed.
    pub passed: u64,
    /// Types of exceptions, one for each slot that has one.
    pub exceptions: Vec<Arc<str>>,
    /// Classes, one for each slot that did not pass and is classified.
    pub classes: Vec<&'static str>,
    /// Verdicts on its trials.
    pub verdicts: Vec<Verdict>,
    /// Rewards of the regrades that count, one for each slot that has one; `passed` is without them.
    pub regraded: Vec<f64>,
}

impl Cell {
    /// Solved: more than half of its slots passed.
    pub fn solved(&self) -> bool {
        2 * self.passed > self.slots
    }

    /// `passed`, `failed`, `no reward`, `-`; with several slots `2/3`.
    pub fn words(&self) -> String {
        match (self.slots, self.passed, self.graded) {
            (0, ..) => "-".to_string(),
            (1, 1, _) => "passed".to_string(),
            (1, 0, 0) => "no reward".to_string(),
            (1, ..) => "failed".to_string(),
            (n, passed, _) => format!("{passed}/{n}"),
        }
    }
}

/// One task over all runs.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRow {
    /// Task; with its agent where a run has several.
    pub task: Arc<str>,
    /// One for each run; None where its plan does not have the task.
    pub cells: Vec<Option<Cell>>,
}

impl TaskRow {
    /// Solved by some and not by others of the runs that have it.
    pub fn flips(&self) -> bool {
        let mut solved = self.cells.iter().flatten().map(Cell::solved);
        let first = solved.next();
        solved.any(|s| Some(s) != first)
    }
}

/// Two runs over the tasks that both have.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Index of the first run.
    pub a: usize,
    /// Index of the other.
    pub b: usize,
    /// Tasks that both have.
    pub tasks: u64,
    /// Solved by both.
    pub both: u64,
    /// Solved by the first alone.
    pub only_a: Vec<Arc<str>>,
    /// Solved by the other alone.
    pub only_b: Vec<Arc<str>>,
    /// Solved by none.
    pub neither: u64,
    /// Tasks that only one of them has.
    pub not_common: u64,
    /// Chance of a split as uneven as that of the tasks that one alone solved, were both equally good
    /// (two-sided sign test); None where there is no such task.
    pub sign_test: Option<f64>,
    /// What else differs.
    pub drift: Vec<Drift>,
}

/// Two or more runs.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The runs, in the order in which their first jobs were named.
    pub runs: Vec<Run>,
    /// All tasks, by name.
    pub rows: Vec<TaskRow>,
    /// Every two of the runs.
    pub pairs: Vec<Pair>,
}

/// Compares the runs of a fleet: every job is one, unless another one's requeue.
pub fn compare(fleet: &Fleet, now: Stamp) -> Comparison {
    let runs: Vec<Run> = merge::families(fleet, now).into_iter().filter_map(|jobs| run(fleet, &jobs, now)).collect();
    let mut tasks: BTreeMap<Arc<str>, Vec<Option<Cell>>> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        for (task, cell) in cells(run) {
            let row = tasks.entry(task).or_insert_with(|| vec![None; runs.len()]);
            if let Some(place) = row.get_mut(at) {
                *place = Some(cell);
            }
        }
    }
    let rows: Vec<TaskRow> = tasks.into_iter().map(|(task, cells)| TaskRow { task, cells }).collect();
    let indices = || 0..runs.len();
    let pairs = indices().flat_map(|a| indices().skip(a + 1).map(move |b| (a, b)));
    let pairs = pairs.map(|(a, b)| pair(&runs, &rows, a, b)).collect();
    Comparison { runs, rows, pairs }
}

fn run(fleet: &Fleet, indices: &[usize], now: Stamp) -> Option<Run> {
    let jobs: Vec<Job> = indices.iter().filter_map(|i| fleet.jobs().get(*i)).cloned().collect();
    let name = jobs.first()?.facts.name.clone();
    let dirs = jobs.iter().map(|j| j.facts.dir.display().to_string()).collect();
    let own = Fleet::of(jobs);
    let tally = tally::count(&own, &Options { how: Some(How::Passes), ..Options::default() }, now).ok()?;
    Some(Run { name, dirs, fleet: own, tally })
}

fn cells(run: &Run) -> BTreeMap<Arc<str>, Cell> {
    let mut out: BTreeMap<Arc<str>, Cell> = BTreeMap::new();
    for row in run.tally.rows.iter().filter(|row| row.place == Place::Chosen) {
        let key = match row.slot.as_ref().and_then(|s| s.agent.as_ref()) {
            Some(agent) => format!("{}@{agent}", row.task).into(),
            None => row.slot.as_ref().map_or(&row.task, |s| &s.task).clone(),
        };
        let cell = out.entry(key).or_default();
        cell.slots += 1;
        let job = run.fleet.jobs().get(row.job);
        let trial: Option<&Trial> = job.zip(row.trial.as_ref()).and_then(|(job, name)| job.trials.get(name));
        let result = trial.and_then(|t| t.result.as_ref());
        let passed = result.is_some_and(|r| r.grade() == super::outcome::Grade::Passed);
        cell.passed += u64::from(passed);
        cell.graded += u64::from(result.is_some_and(|r| r.rewards.primary().is_some()));
        cell.exceptions.extend(result.and_then(|r| r.exception_type()).cloned());
        if let (Some(job), Some(trial), false) = (job, trial, passed) {
            cell.classes.extend(job.class_of(trial).map(|c| c.class.word()));
        }
        cell.verdicts.extend(row.verdict);
        cell.regraded.extend(trial.and_then(Trial::regrade).and_then(|r| r.reward()));
    }
    out
}

fn pair(runs: &[Run], rows: &[TaskRow], a: usize, b: usize) -> Pair {
    let mut out = Pair {
        a,
        b,
        tasks: 0,
        both: 0,
        only_a: Vec::new(),
        only_b: Vec::new(),
        neither: 0,
        not_common: 0,
        sign_test: None,
        drift: Vec::new(),
    };
    for row in rows {
        let cell = |at: usize| row.cells.get(at).and_then(Option::as_ref);
        match (cell(a), cell(b)) {
            (Some(x), Some(y)) => {
                out.tasks += 1;
                match (x.solved(), y.solved()) {
                    (true, true) => out.both += 1,
                    (true, false) => out.only_a.push(row.task.clone()),
                    (false, true) => out.only_b.push(row.task.clone()),
                    (false, false) => out.neither += 1,
                }
            }
            (None, None) => {}
            _ => out.not_common += 1,
        }
    }
    out.sign_test = sign_test(out.only_a.len() as u64, out.only_b.len() as u64);
    if let (Some(x), Some(y)) = (runs.get(a).and_then(Run::first), runs.get(b).and_then(Run::first)) {
        out.drift = drift::between(x, y);
    }
    out
}

/// Two-sided: the chance that of `a + b` fair coins at most `min(a, b)` or at least `max(a, b)` fall one
/// way.
fn sign_test(a: u64, b: u64) -> Option<f64> {
    let n = a + b;
    if n == 0 {
        return None;
    }
    // In logarithms: 2^n has no place in a double beyond 1023.
    let mut log = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for i in 0..=a.min(b) {
        tail += log.exp();
        log += ((n - i) as f64).ln() - ((i + 1) as f64).ln();
    }
    Some((2.0 * tail).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_test_is_exact() {
        let close =
            |got: Option<f64>, want: f64| assert!(got.is_some_and(|p| (p - want).abs() < 1e-9), "{got:?} {want}");
        assert_eq!(sign_test(0, 0), None);
        close(sign_test(1, 0), 1.0);
        close(sign_test(5, 0), 0.0625);
        close(sign_test(2, 8), 0.109_375);
        close(sign_test(7, 7), 1.0);
        assert!(sign_test(3000, 2900).is_some_and(|p| p > 0.15 && p < 0.25));
    }
}
