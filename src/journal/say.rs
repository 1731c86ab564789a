//! What a person says of trials, written down: verdicts, their taking back, notes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read::{TEXT, place_name};
use super::{Journal, Note};
use crate::harbor::write::WriteError;
use crate::job::text::mask_secrets;
use crate::job::verdict::{Outage, Verdict, Word};
use crate::job::{Job, JobFacts, Stamp, Trial};

/// The act of a line that notes an outage.
pub(super) const OUTAGE: &str = "outage";

/// A trial of which something is said, as it was at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Directory name.
    pub trial: Arc<str>,
    /// Result id of what was looked at; None for a trial without result.
    pub result_id: Option<Arc<str>>,
    /// Class, with its sub-class: `infra/docker`.
    pub class: Option<Arc<str>>,
    /// The rule that gave the class.
    pub rule: Option<Arc<str>>,
}

impl Subject {
    /// A trial of a job.
    pub fn of(job: &Job, trial: &Trial) -> Subject {
        let class = job.class_of(trial);
        Subject {
            trial: trial.name.clone(),
            result_id: trial.result.as_ref().and_then(|r| r.id.clone()),
            class: class.map(|c| match &c.sub {
                Some(sub) => format!("{}/{sub}", c.class.word()).into(),
                None => c.class.word().into(),
            }),
            rule: class.map(|c| c.rule.clone()),
        }
    }

    /// A word on it. Of a note its first 4,000 characters are kept, secrets are masked.
    pub fn word(&self, saying: Saying, note: &str, operator: Arc<str>, time: Stamp) -> Word {
        let note: String = note.chars().take(TEXT).collect();
        Word {
            trial: self.trial.clone(),
            result_id: self.result_id.clone(),
            verdict: match saying {
                Saying::Verdict(verdict) => Some(verdict),
                Saying::TakeBack | Saying::Note => None,
            },
            note_only: saying == Saying::Note,
            note: Arc::from(&*mask_secrets(&note)),
            operator,
            time,
            class: self.class.clone(),
            rule: self.rule.clone(),
        }
    }
}

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saying {
    /// A verdict, instead of an earlier one.
    Verdict(Verdict),
    /// An earlier verdict is taken back.
    TakeBack,
    /// A note that leaves the verdict as it is.
    Note,
}

/// Where the words went.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Why it is not the job dir's own journal, in words; None when it is. To be shown.
    pub instead: Option<String>,
    /// The words, as the journal now holds them.
    pub words: Vec<Word>,
}

/// Writes down what is said of the trials of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdicts {
    job_dir: PathBuf,
    name: String,
    state_dir: Option<PathBuf>,
    /// Nothing is written into the job dir: it is another program's, which knows no such file.
    apart: bool,
}

impl Verdicts {
    /// For the trials of this job. Nothing is opened yet.
    pub fn new(facts: &JobFacts, state_dir: Option<&Path>) -> Verdicts {
        Verdicts {
            job_dir: facts.dir.clone(),
            name: place_name(facts),
            state_dir: state_dir.map(Path::to_path_buf),
            apart: facts.layout.is_classic(),
        }
    }

    /// Says something of trials: a line for each, all in one write, by this operator at this moment. See
    /// [`Verdicts::write`].
    ///
    /// # Errors
    /// When neither place could be written to: nothing was said then.
    pub fn say(&self, subjects: &[Subject], saying: Saying, note: &str) -> Result<Written, WriteError> {
        let (operator, now) = (Arc::from(super::operator()), Stamp::now());
        let words: Vec<Word> =
            subjects.iter().map(|subject| subject.word(saying, note, Arc::clone(&operator), now)).collect();
        self.write(&words)
    }

    /// Writes words down, a line for each, all in one write: into the job dir's journal, and where that
    /// can not be appended to, into the state dir's, which [`Written::instead`] tells. Blocks for at most
    /// two seconds while another one writes.
    ///
    /// # Errors
    /// When neither place could be written to: nothing was said then.
    pub fn write(&self, words: &[Word]) -> Result<Written, WriteError> {
        let notes: Vec<Note> = words.iter().map(line).collect();
        let (path, instead) = self.append(&notes)?;
        Ok(Written { path, instead, words: words.to_vec() })
    }

    /// Notes an outage, as [`Verdicts::write`] does words.
    ///
    /// # Errors
    /// When neither place could be written to.
    pub fn outage(&self, outage: &Outage) -> Result<Written, WriteError> {
        let subject = format!("{}/{}", outage.from, outage.to);
        let note = Note {
            operator: outage.operator.to_string(),
            result: "noted".to_string(),
            ..Note::now(OUTAGE, &subject, &outage.why)
        };
        let (path, instead) = self.append(&[note])?;
        Ok(Written { path, instead, words: Vec::new() })
    }

    /// Notes something that was seen, under an act of its own, as [`Verdicts::write`] does words.
    ///
    /// # Errors
    /// When neither place could be written to.
    pub fn remark(&self, act: &str, subject: &str, text: &str) -> Result<Written, WriteError> {
        let text: String = text.chars().take(TEXT).collect();
        let note = Note { result: "noted".to_string(), ..Note::now(act, subject, &text) };
        let (path, instead) = self.append(&[note])?;
        Ok(Written { path, instead, words: Vec::new() })
    }

    /// Lines at the end of a journal; which, and why not the job dir's own.
    fn append(&self, notes: &[Note]) -> Result<(PathBuf, Option<String>), WriteError> {
        if let Some(state_dir) = self.state_dir.as_ref().filter(|_| self.apart) {
            let mut journal = Journal::in_state(state_dir, &self.name)?;
            journal.write_all(notes)?;
            let why = "nothing is written into a run of terminal-bench".to_string();
            return Ok((journal.path().to_path_buf(), Some(why)));
        }
        let beside = Journal::beside(&self.job_dir).and_then(|mut journal| {
            journal.write_all(notes)?;
            Ok(journal.path().to_path_buf())
        });
        Ok(match (beside, &self.state_dir) {
            (Ok(path), _) => (path, None),
            (Err(why), None) => return Err(why),
            (Err(why), Some(state_dir)) => {
                let mut journal = Journal::in_state(state_dir, &self.name)?;
                journal.write_all(notes)?;
                (journal.path().to_path_buf(), Some(format!("the job dir can not be written to ({why})")))
            }
        })
    }
}

fn line(word: &Word) -> Note {
    let owned = |text: &Option<Arc<str>>| text.as_deref().map(str::to_string);
    let (act, verdict, result) = match (word.verdict, word.note_only) {
        (_, true) => ("note", None, "noted"),
        (Some(verdict), false) => ("verdict", Some(verdict.word()), "set"),
        (None, false) => ("verdict", Some("none"), "taken back"),
    };
    Note {
        time: word.time.to_string(),
        operator: word.operator.to_string(),
        trial: Some(word.trial.to_string()),
        result_id: owned(&word.result_id),
        verdict: verdict.map(str::to_string),
        class: owned(&word.class),
        rule: owned(&word.rule),
        result: result.to_string(),
        ..Note::now(act, &word.trial, &word.note)
    }
}
