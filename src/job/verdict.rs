//! What a person says of a trial: the verdicts of a job, as its journal holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::time::Stamp;
use super::trial::Trial;

/// Verdicts. They change the score `corrected`, never a raw one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Solved, though no reward says so: one more in the numerator.
    CountsAsPassed,
    /// The task is broken: one less in the denominator (and in the numerator, had it passed).
    TaskInvalid,
    /// The agent's own fault.
    AgentFault,
    /// It had its time.
    TimeoutValid,
    /// The verifier ran into its limit.
    VerifierTimeout,
    /// The evidence is not enough.
    Inconclusive,
    /// The surroundings failed: the slot counts by a later trial that was scored, if there is one.
    InfraConfirmed,
}

impl Verdict {
    /// All of them, in the order of the menu.
    pub const ALL: [Verdict; 7] = [
        Verdict::CountsAsPassed,
        Verdict::TaskInvalid,
        Verdict::AgentFault,
        Verdict::TimeoutValid,
        Verdict::VerifierTimeout,
        Verdict::Inconclusive,
        Verdict::InfraConfirmed,
    ];

    /// The word in JSON, in the journal and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::CountsAsPassed => "counts_as_passed",
            Verdict::TaskInvalid => "task_invalid",
            Verdict::AgentFault => "agent_fault",
            Verdict::TimeoutValid => "timeout_valid",
            Verdict::VerifierTimeout => "verifier_timeout",
            Verdict::Inconclusive => "inconclusive",
            Verdict::InfraConfirmed => "infra_confirmed",
        }
    }

    /// The verdict of a word.
    pub fn of_word(word: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|verdict| verdict.word() == word)
    }

    /// The letter that sets it after `v`.
    pub fn letter(self) -> char {
        match self {
            Verdict::CountsAsPassed => 'p',
            Verdict::TaskInvalid => 'b',
            Verdict::AgentFault => 'a',
            Verdict::TimeoutValid => 't',
            Verdict::VerifierTimeout => 'v',
            Verdict::Inconclusive => 'u',
            Verdict::InfraConfirmed => 'i',
        }
    }

    /// For a person.
    pub fn title(self) -> &'static str {
        match self {
            Verdict::CountsAsPassed => "counts as passed",
            Verdict::TaskInvalid => "task is broken",
            Verdict::AgentFault => "agent's fault",
            Verdict::TimeoutValid => "timeout is valid",
            Verdict::VerifierTimeout => "verifier's timeout",
            Verdict::Inconclusive => "unclear",
            Verdict::InfraConfirmed => "infra, confirmed",
        }
    }
}

/// One operator's word on one trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Directory name of the trial.
    pub trial: Arc<str>,
    /// Result id of what was looked at; None for a trial without result.
    pub result_id: Option<Arc<str>>,
    /// The verdict; None takes an earlier one back, or is a note alone (see `note_only`).
    pub verdict: Option<Verdict>,
    /// A note that leaves the verdict as it is.
    pub note_only: bool,
    /// What the operator wrote to it; may be empty.
    pub note: Arc<str>,
    /// Who.
    pub operator: Arc<str>,
    /// When.
    pub time: Stamp,
    /// Class of the trial at that time, with its sub-class: `infra/docker`.
    pub class: Option<Arc<str>>,
    /// The rule that gave the class.
    pub rule: Option<Arc<str>>,
}

/// A trial was run again, for a reason that was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeued {
    /// Directory name of the trial.
    pub trial: Arc<str>,
    /// Its result id; None for a trial without result.
    pub result_id: Option<Arc<str>>,
    /// Why.
    pub why: Arc<str>,
    /// Who.
    pub operator: Arc<str>,
    /// When.
    pub time: Stamp,
}

/// A time in which the surroundings were at fault, as an operator noted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// From when.
    pub from: Stamp,
    /// Until when.
    pub to: Stamp,
    /// What was wrong.
    pub why: Arc<str>,
    /// Who noted it.
    pub operator: Arc<str>,
}

impl Outage {
    /// Whether a trial was at work in it; `end` None: it still is.
    pub fn meets(&self, start: Option<Stamp>, end: Option<Stamp>) -> bool {
        start.is_some_and(|start| start <= self.to && end.is_none_or(|end| self.from <= end))
    }
}

/// Words and requeues that are kept of one trial: the last ones.
const KEPT: usize = 1000;

/// All that operators said of the trials of a job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Notebook {
    /// Every word per trial directory, oldest first. Of several words the last counts.
    words: BTreeMap<Arc<str>, Vec<Word>>,
    /// Requeues per trial directory, oldest first.
    requeues: BTreeMap<Arc<str>, Vec<Requeued>>,
    /// Jobs that this one was made of: ids, names, directories.
    origins: BTreeSet<Arc<str>>,
    /// Directories of jobs that were made of this one.
    offspring: BTreeSet<Arc<str>>,
    /// Noted outages, in the order of the journals.
    outages: Vec<Outage>,
    /// Lines about regrades, by trial directory: that one came or ended, not what it came to.
    regraded: BTreeMap<Arc<str>, u64>,
    /// What is held of trials, by the last line about each.
    held: BTreeMap<Arc<str>, Arc<str>>,
}

impl Notebook {
    /// Takes in a word, wherever it came from; the same word twice is one.
    pub fn add(&mut self, word: Word) {
        let words = self.words.entry(word.trial.clone()).or_default();
        insert(words, word, |word| word.time);
    }

    /// Takes in a requeue; the same one twice is one.
    pub fn add_requeue(&mut self, requeue: Requeued) {
        let requeues = self.requeues.entry(requeue.trial.clone()).or_default();
        insert(requeues, requeue, |requeue| requeue.time);
    }

    /// The last time that this very attempt was run again with a reason. A line without a result id is
    /// about what had ended by then.
    pub fn requeued(&self, trial: &Trial) -> Option<&Requeued> {
        let result = trial.result.as_ref();
        let this = |r: &&Requeued| match (&r.result_id, result) {
            (Some(id), Some(result)) => result.id.as_ref() == Some(id),
            (Some(_), None) => false,
            (None, Some(result)) => result.finished.is_some_and(|end| end <= r.time),
            (None, None) => true,
        };
        self.requeues.get(&trial.name)?.iter().rev().filter(|r| !r.why.trim().is_empty()).find(this)
    }

    /// Takes in an outage; the same one twice is one.
    pub fn add_outage(&mut self, outage: Outage) {
        if self.outages.len() < KEPT && !self.outages.contains(&outage) {
            self.outages.push(outage);
        }
    }

    /// Noted outages.
    pub fn outages(&self) -> &[Outage] {
        &self.outages
    }

    /// Notes that something was said of a regrade of a trial.
    pub fn add_regraded(&mut self, trial: Arc<str>) {
        *self.regraded.entry(trial).or_default() += 1;
    }

    /// Notes what is held of a trial, in words; None: nothing any more.
    pub fn set_held(&mut self, trial: Arc<str>, words: Option<Arc<str>>) {
        match words {
            Some(words) => drop(self.held.insert(trial, words)),
            None => drop(self.held.remove(&trial)),
        }
    }

    /// What is held of a trial, by the last line about it. Whether it is still there is not said.
    pub fn held(&self, trial: &str) -> Option<&Arc<str>> {
        self.held.get(trial)
    }

    /// Trials with lines about regrades, and how many.
    pub fn regraded(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.regraded.iter().map(|(trial, n)| (trial, *n))
    }

    /// Lines about regrades of a trial.
    pub fn regrades(&self, trial: &str) -> u64 {
        self.regraded.get(trial).copied().unwrap_or(0)
    }

    /// Notes a job that this one was made of: its id, name or directory.
    pub fn add_origin(&mut self, origin: Arc<str>) {
        if self.origins.len() < KEPT {
            self.origins.insert(origin);
        }
    }

    /// Notes the directory of a job that was made of this one.
    pub fn add_offspring(&mut self, dir: Arc<str>) {
        if self.offspring.len() < KEPT {
            self.offspring.insert(dir);
        }
    }

    /// Jobs that this one was made of: ids, names, directories.
    pub fn origins(&self) -> impl Iterator<Item = &Arc<str>> {
        self.origins.iter()
    }

    /// Directories of jobs that were made of this one, where they were then.
    pub fn offspring(&self) -> impl Iterator<Item = &Arc<str>> {
        self.offspring.iter()
    }

    /// All words, by trial, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Word> {
        self.words.values().flatten()
    }

    /// Everything said of a trial directory, oldest first, of all attempts that lay there.
    pub fn words(&self, trial: &str) -> &[Word] {
        self.words.get(trial).map_or(&[], Vec::as_slice)
    }

    /// The verdict that holds for a trial, with the word that gave it. A word on an earlier attempt in
    /// the same directory does not hold for a later one.
    pub fn verdict(&self, trial: &Trial) -> Option<(Verdict, &Word)> {
        let last = self.last_word(trial)?;
        last.verdict.map(|verdict| (verdict, last))
    }

    /// The last word on this very attempt that set a verdict or took one back.
    pub fn last_word(&self, trial: &Trial) -> Option<&Word> {
        let id = trial.result.as_ref().and_then(|r| r.id.as_ref());
        let of_this = |word: &&Word| word.result_id.as_ref() == id && !word.note_only;
        self.words(&trial.name).iter().rev().find(of_this)
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.words.values().map(Vec::len).sum()
    }

    /// Nothing was said.
    pub fn is_empty(&self) -> bool {
        *self == Notebook::default()
    }
}

/// Puts an entry in its place by time. Of equal times the later in the journal is the later one.
fn insert<T: PartialEq>(list: &mut Vec<T>, entry: T, time: impl Fn(&T) -> Stamp) {
    let at = list.partition_point(|other| time(other) <= time(&entry));
    let same = list.iter().take(at).rev().take_while(|other| time(other) == time(&entry));
    if same.into_iter().any(|other| *other == entry) {
        return;
    }
    list.insert(at, entry);
    if list.len() > KEPT {
        list.remove(0);
    }
}
