//! What this screen's operator said: it holds at once, is confirmed when it is written, and is taken
//! back where it can not be.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::super::effect::Effect;
use super::super::helm::{Order, Place, Said, Speech};
use super::super::model::Model;
use super::super::rows::RowId;
use super::super::update::notice;
use super::Target;
use crate::job::verdict::Word;
use crate::job::{JobEvent, JobKey, Notebook, Stamp, Verdict};
pub use crate::journal::Saying;
use crate::journal::Subject;

#[derive(Debug, Clone)]
struct Mine {
    batch: u64,
    word: Word,
    written: bool,
}

/// A verdict with what was written to it.
type Held = (Verdict, Arc<str>);

/// What a verdict of this session replaced.
#[derive(Debug, Clone)]
struct Step {
    batches: Vec<u64>,
    before: Vec<(Target, Option<Held>)>,
}

/// The words of this session, over those that were read.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Who speaks: `user@host`.
    pub operator: Arc<str>,
    /// Where the words of a job went, and why not into its directory where that is so.
    pub places: BTreeMap<JobKey, (PathBuf, Option<String>)>,
    base: BTreeMap<JobKey, Notebook>,
    mine: BTreeMap<JobKey, Vec<Mine>>,
    steps: Vec<Step>,
    batch: u64,
    last: Option<Stamp>,
    /// When rows were changed by hand for what was just said.
    patched: Option<Stamp>,
}

/// So long the count of many trials may wait after a word; the rows show it at once.
const HOLD_MS: i128 = 900;

impl Ledger {
    /// What was read of a job's journals, with what is not in them yet.
    pub fn heard(&mut self, key: JobKey, read: Notebook) -> Notebook {
        if let Some(mine) = self.mine.get_mut(&key) {
            mine.retain(|m| !(m.written && read.words(&m.word.trial).contains(&m.word)));
        }
        self.base.insert(key, read);
        self.sum(key)
    }

    fn sum(&self, key: JobKey) -> Notebook {
        let mut sum = self.base.get(&key).cloned().unwrap_or_default();
        for mine in self.mine.get(&key).into_iter().flatten() {
            sum.add(mine.word.clone());
        }
        sum
    }

    /// Whether a word was said just now, which the rows show already.
    pub fn holds_count(&self, now: Stamp) -> bool {
        self.patched.is_some_and(|at| (0..HOLD_MS).contains(&now.duration_since(at).as_millis()))
    }

    /// A number for what is handed over.
    pub(in super::super) fn next_batch(&mut self) -> u64 {
        self.batch += 1;
        self.batch
    }

    /// A later moment than any before: of two words the later one counts.
    fn moment(&mut self, now: Stamp) -> Stamp {
        let next = self.last.and_then(|last| last.checked_add(std::time::Duration::from_micros(1)).ok());
        let moment = next.filter(|next| *next > now).unwrap_or(now);
        self.last = Some(moment);
        moment
    }
}

/// Why nothing can be said here; None: it can.
pub fn why_not(model: &Model) -> Option<String> {
    (!model.steer.notes).then(|| "nothing can be noted here: this screen only looks".to_string())
}

/// Says something of these attempts: on the screen at once, and to whoever writes it down.
pub fn say(model: &mut Model, targets: &[Target], saying: Saying, note: &str) -> Vec<Effect> {
    if let Some(why) = why_not(model) {
        notice(model, why);
        return Vec::new();
    }
    let mut step = Step { batches: Vec::new(), before: Vec::new() };
    let mut words: BTreeMap<JobKey, Vec<Word>> = BTreeMap::new();
    let mut gone = 0;
    for target in targets {
        let Some(word) = word(model, target, saying, note) else {
            gone += 1;
            continue;
        };
        step.before.push((target.clone(), before(model, target)));
        words.entry(target.key.job).or_default().push(word);
    }
    let n = step.before.len();
    let mut effects = Vec::new();
    for (job, words) in words {
        let (batch, effect) = send(model, job, words);
        step.batches.push(batch);
        effects.extend(effect);
    }
    let name = match targets {
        [one] => one.key.trial.to_string(),
        _ => super::super::steer::ask::trials(n),
    };
    let said = match (saying, gone) {
        (_, gone) if n == 0 => format!("nothing said: {gone} of these began anew meanwhile"),
        (Saying::Verdict(v), 0) => format!("{}: {name}; u undoes", v.title()),
        (Saying::Verdict(v), gone) => format!("{}: {name}; {gone} began anew meanwhile and were left out", v.title()),
        (Saying::TakeBack, _) => format!("verdict taken back: {name}; u undoes"),
        (Saying::Note, _) => format!("noted: {name}"),
    };
    notice(model, said);
    if saying != Saying::Note && n > 0 {
        model.ledger.steps.push(step);
    }
    effects
}

/// Hands the words of one job over and shows them.
fn send(model: &mut Model, job: JobKey, words: Vec<Word>) -> (u64, Option<Effect>) {
    let batch = model.ledger.next_batch();
    let mine = model.ledger.mine.entry(job).or_default();
    mine.extend(words.iter().map(|word| Mine { batch, word: word.clone(), written: false }));
    show(model, job);
    patch(model, job, &words);
    let facts = model.fleet.job(job).map(|j| j.facts.clone());
    let effect = facts.map(|facts| {
        let place = Place { job, dir: facts.dir.clone() };
        Effect::Helm(Order::Say(place, Speech { batch, facts: Box::new(facts), words, outage: None, remark: None }))
    });
    (batch, effect)
}

fn show(model: &mut Model, job: JobKey) {
    let sum = model.ledger.sum(job);
    model.fleet.apply(JobEvent::Notebook(job, Box::new(sum)));
}

/// The rows show what was said before all is counted anew.
fn patch(model: &mut Model, job: JobKey, words: &[Word]) {
    let Some(known) = model.fleet.job(job) else { return };
    let names: HashSet<&Arc<str>> = words.iter().map(|w| &w.trial).collect();
    for row in model.rows.iter_mut().filter(|r| r.job == job && names.contains(&r.name)) {
        let Some(trial) = known.trials.get(&row.name) else { continue };
        row.verdict = known.verdict_of(trial);
        row.looked = super::super::rows::looked(known, trial);
    }
    model.ledger.patched = Some(model.now);
    model.triage.recount(&model.rows);
}

fn before(model: &Model, target: &Target) -> Option<Held> {
    let job = model.fleet.job(target.key.job)?;
    let trial = job.trials.get(&target.key.trial)?;
    job.notebook.verdict(trial).map(|(verdict, word)| (verdict, word.note.clone()))
}

/// A word on an attempt that is still the one in its directory.
fn word(model: &mut Model, target: &Target, saying: Saying, note: &str) -> Option<Word> {
    let now = model.now;
    let job = model.fleet.job(target.key.job)?;
    let trial = job.trials.get(&target.key.trial)?;
    if trial.result.as_ref().and_then(|r| r.id.as_ref()) != target.result_id.as_ref() {
        return None;
    }
    let subject = Subject::of(job, trial);
    let moment = model.ledger.moment(now);
    Some(subject.word(saying, note, model.ledger.operator.clone(), moment))
}

/// Undoes the last verdict of this session, or the last one for many: what held before holds again.
pub fn undo(model: &mut Model) -> Vec<Effect> {
    let Some(step) = model.ledger.steps.pop() else {
        notice(model, "no verdict of this session to undo; v d takes that of this trial back");
        return Vec::new();
    };
    let mut words: BTreeMap<JobKey, Vec<Word>> = BTreeMap::new();
    for (target, before) in &step.before {
        let (saying, note) = match before {
            Some((verdict, note)) => (Saying::Verdict(*verdict), note.clone()),
            None => (Saying::TakeBack, Arc::from("")),
        };
        if let Some(word) = word(model, target, saying, &note) {
            words.entry(target.key.job).or_default().push(word);
        }
    }
    let effects = words.into_iter().filter_map(|(job, words)| send(model, job, words).1).collect();
    let said = match step.before.as_slice() {
        [(target, Some((verdict, _)))] => format!("undone: {} is again {}", target.key.trial, verdict.title()),
        [(target, None)] => format!("undone: {} has no verdict again", target.key.trial),
        all => format!("undone: {} are as before", super::super::steer::ask::trials(all.len())),
    };
    notice(model, said);
    if let Some((target, _)) = step.before.first() {
        model.triage.current = Some(RowId::Trial(target.key.clone()));
        model.triage.top = 0;
    }
    effects
}

/// News of what was handed over.
pub fn said(model: &mut Model, job: JobKey, batch: u64, said: Result<Said, String>) {
    match said {
        Ok(said) => {
            if let Some(mine) = model.ledger.mine.get_mut(&job) {
                // As the journal has them now; they may have been read already.
                mine.retain(|m| m.batch != batch);
                let base = model.ledger.base.get(&job);
                let known = |word: &Word| base.is_some_and(|b| b.words(&word.trial).contains(word));
                mine.extend(said.words.into_iter().filter(|w| !known(w)).map(|word| Mine {
                    batch,
                    word,
                    written: true,
                }));
            }
            let told = model.ledger.places.insert(job, (said.path.clone(), said.instead.clone()));
            if let Some(why) = said.instead.filter(|why| told.is_none_or(|(_, before)| before.as_ref() != Some(why))) {
                notice(model, format!("{why}: written to {}", said.path.display()));
            }
        }
        Err(why) => {
            if let Some(mine) = model.ledger.mine.get_mut(&job) {
                mine.retain(|m| m.batch != batch);
            }
            model.ledger.steps.retain(|step| !step.batches.contains(&batch));
            notice(model, format!("not written, so it does not hold: {why}"));
        }
    }
    show(model, job);
}
