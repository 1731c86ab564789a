//! The journals of a job: what operators noted of it, in its directory or in the state dir.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Instant;

use super::super::Out;
use super::super::probe::{Counters, FileId};
use super::{Env, Followed};
use crate::harbor::dir::Dir;
use crate::job::{JobEvent, Notebook, Problem, ProblemKind};
use crate::journal;

/// What is remembered of the journals between two looks.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The files as they were read; None before the first time.
    ids: Option<Vec<Option<FileId>>>,
    sent: Notebook,
}

impl Env {
    /// The directory of journals that could not lie with their jobs.
    pub fn journals(&self) -> Option<PathBuf> {
        self.state_dir.as_ref().map(|dir| dir.join("journal"))
    }
}

impl Followed {
    /// Reads the journals when one of them changed; reports what they say.
    pub(super) fn read_journal(&mut self, dir: &Dir, env: &Env, out: &mut Out<'_>) {
        Counters::add(&env.counters.stats);
        let id = |dir: &Dir, file: &str| dir.stat(file).ok().as_ref().map(FileId::from);
        let mut ids = vec![id(dir, journal::JOURNAL)];
        if let Some(state) = env.journals().and_then(|path| Dir::open(&path).ok()) {
            for file in journal::state_files(&self.own) {
                Counters::add(&env.counters.stats);
                ids.push(id(&state, &file));
            }
        }
        if self.journal.ids.as_ref() == Some(&ids) {
            return;
        }
        let anything = ids.iter().any(Option::is_some);
        self.journal.ids = Some(ids);
        let reading = match anything {
            true => {
                Counters::add(&env.counters.files);
                journal::read(dir, &self.own, env.state_dir.as_deref())
            }
            false => journal::Reading::default(),
        };
        for (path, message) in reading.problems {
            let message = format!("{message}; what was noted there does not count");
            self.remark(Problem { kind: ProblemKind::Note, path: path.into(), message: message.into() }, out);
        }
        for (name, n) in reading.notebook.regraded() {
            // A result does not change when its verifier is run again: what lies beside it does.
            if n != self.journal.sent.regrades(name)
                && let Some(slot) = self.trials.get_mut(OsStr::new(&**name)).filter(|slot| slot.memory.done)
            {
                slot.memory.result = None;
                slot.memory.due = Some(Instant::now());
                self.active.insert(OsStr::new(&**name).to_os_string());
            }
        }
        if reading.notebook != self.journal.sent {
            self.journal.sent = reading.notebook.clone();
            out.push(JobEvent::Notebook(self.key, Box::new(reading.notebook)));
        }
    }
}
