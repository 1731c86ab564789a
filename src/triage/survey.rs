//! All trials of a fleet, classified in parallel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Classifier, orphaned, unreadable};
use crate::harbor::Dir;
use crate::job::{Class, Classification, Fleet, Job, JobEvent, JobKey, Phase, Stamp, Trial};

/// Threads at most: the work is opening files.
const THREADS: usize = 8;

/// The classes that the fleet does not have yet, as events: of trials with a result, and of those that
/// nobody will finish any more.
pub fn missing(classifier: &Classifier, fleet: &Fleet, now: Stamp) -> Vec<JobEvent> {
    let mut due: Vec<(&Job, &Trial)> = Vec::new();
    let mut events = Vec::new();
    for job in fleet.jobs() {
        let writer = job.writer(now);
        for trial in job.trials.values() {
            let known = job.class_of(trial);
            match (&trial.result, job.phase(trial, writer)) {
                (Some(_), _) if known.is_none() => due.push((job, trial)),
                (None, Phase::Orphaned) if known.is_none() => {
                    let class = Arc::new(orphaned(trial));
                    events.push(JobEvent::Class(job.key, trial.name.clone(), Some(class)));
                }
                (None, Phase::Unreadable) if known.is_none() => {
                    let class = Arc::new(unreadable(trial));
                    events.push(JobEvent::Class(job.key, trial.name.clone(), Some(class)));
                }
                // Somebody works on it again.
                (None, phase) if phase != Phase::Orphaned && known.is_some_and(|c| c.class == Class::Orphaned) => {
                    events.push(JobEvent::Class(job.key, trial.name.clone(), None));
                }
                _ => {}
            }
        }
    }
    let classes = all(classifier, &due);
    let named = due.iter().zip(classes);
    events
        .extend(named.map(|((job, trial), class)| JobEvent::Class(job.key, trial.name.clone(), Some(Arc::new(class)))));
    events
}

/// The classes of these trials, in their order.
pub fn all(classifier: &Classifier, trials: &[(&Job, &Trial)]) -> Vec<Classification> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, THREADS);
    let threads = threads.min(trials.len().div_ceil(32)).max(1);
    let mut dirs: BTreeMap<JobKey, Option<Dir>> = BTreeMap::new();
    for (job, _) in trials {
        dirs.entry(job.key).or_insert_with(|| Dir::open(&job.facts.dir).ok());
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((job, trial)) = trials.get(at) else { return done };
            let dir = dirs.get(&job.key).and_then(Option::as_ref);
            done.push((at, classifier.classify_in(dir, &job.facts, trial)));
        }
    };
    let mut done: Vec<(usize, Classification)> = if threads == 1 {
        work()
    } else {
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            handles.into_iter().flat_map(|h| h.join().unwrap_or_default()).collect()
        })
    };
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, class)| class).collect()
}
