//! Finished logs of unknown zone beside jobs: their answers against the turns of the trials.

use std::path::{Path, PathBuf};

use super::{Lines, midnights};
use crate::cli::load;
use crate::follow::Options;
use crate::harbor::Dir;
use crate::harbor::trajectory::TrajectoryIndex;
use crate::job::{Job, Stamp, Trial};
use crate::serving::LineTime;
use crate::serving::clock::Placer;
use crate::serving::line::{Reader, is_answer};

/// Moments of trials that are compared at most; so many tell a zone beyond doubt.
const MOMENTS: usize = 20_000;
/// Answers of a log that are compared at most, its first ones.
const ANSWERS: usize = 20_000;
/// Bytes of one trajectory that are read for its turns.
const LOOK: u64 = 64 << 20;

/// When trials of these jobs called the model or got its answer: the ends of their turns.
///
/// # Errors
/// One line per argument that is no job, in words.
pub fn moments(dirs: &[PathBuf]) -> Result<Vec<Stamp>, Vec<String>> {
    let fleet = load::scan(dirs, Options::default())?;
    let mut out = Vec::new();
    for job in fleet.jobs() {
        for trial in job.trials.values() {
            turns(job, trial, &mut out);
            if out.len() >= MOMENTS {
                return Ok(out);
            }
        }
    }
    Ok(out)
}

fn turns(job: &Job, trial: &Trial, out: &mut Vec<Stamp>) {
    let open = || Dir::open(&job.facts.dir).ok()?.sub(&trial.name).ok()?.open_file("agent/trajectory.json").ok();
    let Some(file) = open() else { return };
    let mut index = TrajectoryIndex::new(file);
    // What can not be read to its end tells as much as was read.
    let _ = index.build_slice(LOOK);
    let steps = index.steps().iter().filter(|step| !step.is_copied_context && step.completion_tokens.is_some());
    out.extend(steps.filter_map(|step| step.timestamp));
}

/// Places the lines of a finished log by what it answered. None where nothing fits, or several zones do.
///
/// # Errors
/// As reading the file.
pub fn placer(path: &Path, written: Stamp, moments: &[Stamp]) -> std::io::Result<Option<Placer>> {
    let mut lines = Lines::open(path)?;
    let mut reader = Reader::new();
    reader.keep_text(false);
    let mut answers: Vec<LineTime> = Vec::new();
    while let Some(raw) = lines.next()? {
        let mut line = Some(reader.read(raw));
        while let Some(one) = line.take() {
            if is_answer(&one) {
                answers.extend(one.time);
            }
            line = reader.more();
        }
        if answers.len() >= ANSWERS {
            break;
        }
    }
    Ok(Placer::matching_over(&answers, moments, written, midnights(path)?))
}
