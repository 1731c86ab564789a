//! Jobs that are busy with what has a score already, as [`crate::job::rerun`] knows it: a job at work beside those
//! of its name below the same root, and the one that its process was told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::look::Known;
use crate::job::roster::{Entry, RerunLine};
use crate::job::{Job, JobKey, Stamp, rerun, text};

/// Other jobs of a name that are read for one at work.
const OTHERS: usize = 8;
/// Trials of a job with which it is compared at every look.
const TRIALS: usize = 20_000;

/// Looks at the jobs of which the trials are followed; gives those of which something else is told now. `alive`
/// says that it goes on, before each job that has to be read; false ends it.
pub(super) fn look(jobs: &mut BTreeMap<PathBuf, Known>, alive: &mut dyn FnMut() -> bool) -> Vec<Entry> {
    let mut out = Vec::new();
    let followed: Vec<PathBuf> = jobs.values().filter(|k| k.is_followed()).map(|k| k.dir.clone()).collect();
    for dir in followed {
        let Some(job) = jobs.get(&dir).and_then(Known::job).filter(|job| job.trials.len() <= TRIALS) else { continue };
        let (name, meant) = (job.facts.name.clone(), job.liveness.stray.as_ref().map(|s| s.meant.clone()));
        let mut all: Vec<Job> = vec![job.clone()];
        let related = |k: &&Known| k.dir != dir && (k.name() == Some(&*name) || meant.as_ref() == Some(&k.dir));
        let others: Vec<PathBuf> = jobs.values().filter(related).take(OTHERS).map(|k| k.dir.clone()).collect();
        for other in others {
            if !alive() {
                return out;
            }
            if let Some(known) = jobs.get_mut(&other).and_then(|k| k.past().cloned()) {
                let key = JobKey(u32::try_from(all.len()).unwrap_or(u32::MAX));
                all.push(Job { key, ..known });
            }
        }
        if let Some(first) = all.first_mut() {
            first.key = JobKey(0);
        }
        let found = all.first().and_then(|job| rerun::of(&all, job, Stamp::now()));
        let line = found.map(|found| RerunLine {
            scored: found.scored,
            solved: found.solved,
            begun: found.begun,
            message: text::clean(&found.words()).into_owned(),
        });
        out.extend(jobs.get_mut(&dir).and_then(|k| k.runs_again(line)));
    }
    out
}
