//! Directories → [`Fleet`], by one complete look, for the headless commands.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::follow::{Follower, Options};
use crate::job::text::{clean, mask_secrets};
use crate::job::{Fleet, Problem, ProblemKind, Stamp};
use crate::triage::{Classifier, survey};

/// Reads everything once.
///
/// # Errors
/// One line per argument that is no job, in words.
pub fn scan(roots: &[PathBuf], options: Options) -> Result<Fleet, Vec<String>> {
    let options = Options { state_dir: options.state_dir.or_else(super::state_dir), ..options };
    let mut fleet = Fleet::default();
    let mut follower = Follower::new(roots.to_vec(), options);
    follower.scan_once(&mut |events| {
        events.into_iter().for_each(|event| fleet.apply(event));
        true
    });
    let errors = wrong_roots(&fleet, roots);
    if errors.is_empty() { Ok(fleet) } else { Err(errors) }
}

/// Reads everything once and says of each trial what became of it.
///
/// # Errors
/// As [`scan`].
pub fn scan_classified(roots: &[PathBuf], options: Options, classifier: &Classifier) -> Result<Fleet, Vec<String>> {
    let mut fleet = scan(roots, options)?;
    classify(classifier, &mut fleet, now());
    Ok(fleet)
}

/// Adds the classes that a fleet does not have yet, and the thresholds of alarms.
pub fn classify(classifier: &Classifier, fleet: &mut Fleet, now: Stamp) {
    fleet.alarm_limits = classifier.alarm_limits();
    for event in survey::missing(classifier, fleet, now) {
        fleet.apply(event);
    }
}

/// What is wrong with the arguments themselves.
pub fn wrong_roots(fleet: &Fleet, roots: &[PathBuf]) -> Vec<String> {
    let shown = |path: &Path| path.display().to_string();
    let about_root = |p: &&Problem| {
        let kind = matches!(p.kind, ProblemKind::Unreachable | ProblemKind::Foreign | ProblemKind::Missing);
        kind && roots.iter().any(|root| shown(root).trim_end_matches('/') == p.path.trim_end_matches('/'))
    };
    let mut errors: Vec<String> =
        fleet.problems.iter().filter(about_root).map(|p| format!("{}: {}", p.path, p.message)).collect();
    if errors.is_empty() && fleet.jobs().is_empty() {
        let hint = "no job here: a job dir holds config.json, lock.json or result.json (of classic terminal-bench tb.lock or \
             results.json); name it, or the directory above";
        errors.extend(roots.iter().map(|root| format!("{}: {hint}", shown(root))));
    }
    errors
}

/// Tells what is wrong, on stderr, safe for a terminal.
pub fn complain(command: &str, lines: &[String]) {
    let mut err = io::stderr().lock();
    for line in lines {
        // Nobody is left to tell when stderr is gone, too.
        let _ = writeln!(err, "pilothouse {command}: {}", clean(&mask_secrets(line)));
    }
}

/// Writes a report to stdout. False when nobody reads it any more.
pub fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// The current time.
pub fn now() -> Stamp {
    Stamp::now()
}
