//! `pilothouse verdict`: say what became of trials, in their job's journal.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use serde_json::{Value, json};

use super::{FINE, NEEDS_PERSON, USAGE, load};
use crate::follow::discover;
use crate::job::text::{clean, json_for_terminal};
use crate::job::{Fleet, Job, Trial, Verdict, Word};
use crate::journal::{Saying, Subject, Verdicts, Written};

/// Say what became of trials. It goes into the journal of their job (pilothouse.jsonl in the job dir;
/// where that can not be written to, a file of the state dir, which the command says) and changes the
/// score `corrected`, never a raw one. The last word on a trial counts, earlier ones are kept.
///
/// Exit code: 0 written down, 1 it could not be, 2 wrong arguments (nothing is written then).
#[derive(Debug, Clone, Args)]
#[command(after_help = WORDS)]
pub struct VerdictArgs {
    /// Directories of trials
    #[arg(required = true, num_args = 1.., value_name = "TRIAL_DIR")]
    pub dirs: Vec<PathBuf>,
    /// The verdict, or `none` to take an earlier one back
    #[arg(required = true, value_name = "VERDICT")]
    pub verdict: String,
    /// Why: what the verdict rests on
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
}

const WORDS: &str = "\
Verdicts and what they do to the score `corrected`:
  counts_as_passed   solved, though no reward says so: one more passed
  task_invalid       the task is broken: taken out of the count
  agent_fault        the agent's own fault: nothing changes
  timeout_valid      it had its time: nothing changes
  verifier_timeout   the verifier ran into its limit: nothing changes
  inconclusive       the evidence is not enough: nothing changes
  infra_confirmed    the surroundings failed: a later scored trial of its slot counts instead
  none               takes an earlier verdict back";

/// One trial of which something is to be said.
struct Target<'a> {
    job: &'a Job,
    trial: &'a Trial,
    was: Option<Verdict>,
}

/// Runs the command; the exit code.
pub fn run(args: &VerdictArgs) -> u8 {
    let Some(saying) = saying(&args.verdict) else {
        let words: Vec<&str> = Verdict::ALL.into_iter().map(Verdict::word).chain(["none"]).collect();
        load::complain("verdict", &[format!("{:?} is no verdict: one of {}", args.verdict, words.join(", "))]);
        return USAGE;
    };
    let (places, errors) = places(&args.dirs);
    if !errors.is_empty() {
        load::complain("verdict", &errors);
        return USAGE;
    }
    let mut jobs: Vec<PathBuf> = places.iter().map(|(job, _)| job.clone()).collect();
    jobs.sort();
    jobs.dedup();
    // The class goes into the journal, too.
    let Some(fleet) = super::tally::classified("verdict", &jobs, None) else { return USAGE };
    let mut targets: Vec<Target<'_>> = Vec::new();
    for (dir, name) in &places {
        match target(&fleet, dir, name) {
            Some(found) if targets.iter().any(|t| std::ptr::eq(t.trial, found.trial)) => {}
            Some(found) => targets.push(found),
            None => {
                let why = format!("{}: no trial of a job that can be read", dir.join(name).display());
                load::complain("verdict", &[why]);
                return USAGE;
            }
        }
    }
    say(&fleet, &targets, saying, args)
}

fn saying(word: &str) -> Option<Saying> {
    match word {
        "none" => Some(Saying::TakeBack),
        word => Verdict::of_word(word).map(Saying::Verdict),
    }
}

/// Job dir and name of each trial; what is wrong with the others.
fn places(dirs: &[PathBuf]) -> (Vec<(PathBuf, String)>, Vec<String>) {
    let (mut places, mut errors) = (Vec::new(), Vec::new());
    for dir in dirs {
        let wrong = |why: &str| format!("{}: {why}", dir.display());
        match dir.canonicalize() {
            // Of a classic run's trial there may be no directory.
            Err(error) => match discover::trial_without_dir(dir) {
                Some((run, name)) => places.push((run, name.to_string_lossy().into_owned())),
                None => errors.push(wrong(&error.to_string())),
            },
            Ok(real) => match discover::trial_in_job(&real) {
                Some((job, name)) => places.push((job, name.to_string_lossy().into_owned())),
                None => errors.push(wrong("not the directory of a trial in a job dir")),
            },
        }
    }
    (places, errors)
}

fn target<'a>(fleet: &'a Fleet, dir: &Path, name: &str) -> Option<Target<'a>> {
    let job = fleet.jobs().iter().find(|job| job.facts.dir == dir)?;
    let trial = job.trials.get(name)?;
    Some(Target { job, trial, was: job.verdict_of(trial) })
}

/// Says it job by job.
fn say(fleet: &Fleet, targets: &[Target<'_>], saying: Saying, args: &VerdictArgs) -> u8 {
    let state_dir = super::state_dir();
    let mut said: Vec<Said<'_>> = Vec::new();
    let mut warnings: Vec<String> = Vec::new();
    let mut code = FINE;
    for job in fleet.jobs() {
        let of_job = || targets.iter().filter(|t| std::ptr::eq(t.job, job));
        // There is nothing to take back where nothing was said.
        let (wanted, idle): (Vec<_>, Vec<_>) = of_job().partition(|t| saying != Saying::TakeBack || t.was.is_some());
        said.extend(idle.into_iter().map(|target| Said { target, word: None, place: None }));
        if wanted.is_empty() {
            continue;
        }
        let subjects: Vec<Subject> = wanted.iter().map(|t| Subject::of(t.job, t.trial)).collect();
        match Verdicts::new(&job.facts, state_dir.as_deref()).say(&subjects, saying, &args.note) {
            Ok(written) => {
                warnings.extend(fallen_back(&written));
                let place = Rc::new((written.path, written.instead));
                let words = wanted.into_iter().zip(written.words);
                said.extend(words.map(|(target, word)| Said { target, word: Some(word), place: Some(place.clone()) }));
            }
            Err(error) => {
                let why = format!("{}: not written down: {error}", job.facts.dir.display());
                load::complain("verdict", &[why]);
                code = NEEDS_PERSON;
            }
        }
    }
    load::complain("verdict", &warnings);
    load::print(&if args.json { document(&said) } else { lines(&said) });
    code
}

/// A trial of which something was said: the word and the place that it was written to, or None where there
/// was nothing to say.
struct Said<'a> {
    target: &'a Target<'a>,
    word: Option<Word>,
    place: Option<Rc<(PathBuf, Option<String>)>>,
}

fn fallen_back(written: &Written) -> Option<String> {
    let why = written.instead.as_ref()?;
    Some(format!("{why}: written to {}, which a copy of the job dir does not take along", written.path.display()))
}

fn lines(said: &[Said<'_>]) -> String {
    let word = |verdict: Option<Verdict>| verdict.map_or("none", Verdict::word);
    let mut out = String::new();
    let mut places: Vec<&Path> = Vec::new();
    for Said { target, word: now, place } in said {
        let name = clean(&target.trial.name);
        let Some(now) = now else {
            out.push_str(&format!("{name}: none, there was no verdict to take back\n"));
            continue;
        };
        out.push_str(&format!("{name}: {} (was {})\n", word(now.verdict), word(target.was)));
        if let Some((path, _)) = place.as_deref()
            && !places.contains(&&**path)
        {
            places.push(path);
        }
    }
    for place in places {
        out.push_str(&format!("written to {}\n", clean(&place.display().to_string())));
    }
    out
}

fn document(said: &[Said<'_>]) -> String {
    let verdicts: Vec<Value> = said
        .iter()
        .map(|Said { target, word, place }| {
            let subject = Subject::of(target.job, target.trial);
            json!({
                "job_dir": target.job.facts.dir.to_string_lossy(),
                "trial": target.trial.name,
                "result_id": subject.result_id,
                "task": target.trial.task,
                "verdict": word.as_ref().and_then(|w| w.verdict).map(Verdict::word),
                "was": target.was.map(Verdict::word),
                "note": word.as_ref().map(|w| &*w.note),
                "class": subject.class,
                "rule": subject.rule,
                "written_to": place.as_ref().map(|p| p.0.to_string_lossy()),
                "instead_of_job_dir": place.as_ref().and_then(|p| p.1.as_ref()),
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&json!({"schema_version": 1, "verdicts": verdicts})).unwrap_or_default();
    format!("{}\n", json_for_terminal(&text))
}
