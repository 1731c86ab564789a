//! Classes while a job is on the screen: a thread that looks at finished trials, newest first, and
//! tells the reducer.
//!
//! News pass by it on their way to the screen. Nothing is looked at before a job has been read once, so
//! that the first frame waits for nobody. What waits is one entry for each trial at most.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inbox::{Asker, Inbox, Put, Wish, inbox};
use crate::job::{Class, Fleet, JobEvent, JobKey, Stamp, Trial};
use crate::triage::{Classifier, orphaned, unreadable};

/// Classes that are told at once, and the longest that one waits for others.
const BATCH: usize = 128;
const PACE: Duration = Duration::from_millis(60);
/// While trials are open, so often it is asked whether somebody still works on them.
const LOOK: Duration = Duration::from_secs(10);

/// What has passed by since the last look: of each job and trial the newest state.
#[derive(Debug, Default)]
struct News {
    /// Events about jobs, in order; of each kind and job the last.
    jobs: Vec<JobEvent>,
    trials: HashMap<(JobKey, Arc<str>), Option<Box<Trial>>>,
}

impl Wish for News {
    const MOST: usize = 1;

    fn join(mut self, waiting: &mut Vec<News>) {
        let Some(last) = waiting.last_mut() else {
            waiting.push(self);
            return;
        };
        last.trials.extend(self.trials);
        for event in self.jobs.drain(..) {
            let like = std::mem::discriminant(&event);
            let key = key_of(&event);
            last.jobs.retain(|e| std::mem::discriminant(e) != like || key_of(e) != key);
            last.jobs.push(event);
        }
    }

    fn may_go(&self) -> bool {
        false
    }
}

fn key_of(event: &JobEvent) -> Option<JobKey> {
    match event {
        JobEvent::Job(key, _)
        | JobEvent::Liveness(key, _)
        | JobEvent::Settled(key)
        | JobEvent::Unreachable(key, _)
        | JobEvent::Reachable(key) => Some(*key),
        _ => None,
    }
}

/// A running worker. Dropping it ends its thread.
#[derive(Debug)]
pub struct Handle {
    news: Asker<News>,
}

impl Handle {
    /// Shows it what goes to the screen; never waits.
    pub fn show(&self, events: &[JobEvent]) {
        let mut news = News::default();
        for event in events {
            match event {
                JobEvent::Trial(key, trial) => {
                    news.trials.insert((*key, trial.name.clone()), Some(trial.clone()));
                }
                JobEvent::TrialGone(key, name) => {
                    news.trials.insert((*key, name.clone()), None);
                }
                event if key_of(event).is_some() => news.jobs.push(event.clone()),
                _ => {}
            }
        }
        if news.jobs.is_empty() && news.trials.is_empty() {
            return;
        }
        if self.news.put(news) == Put::Gone {
            tracing::error!("the classifier is gone: trials stay without class");
        }
    }
}

/// Starts the thread; `tell` takes classes as events there and returns false when nobody listens any
/// more.
pub fn spawn(classifier: Classifier, tell: impl FnMut(Vec<JobEvent>) -> bool + Send + 'static) -> Handle {
    let (news, inbox) = inbox();
    let worker = Worker { classifier, tell: Box::new(tell), ..Worker::default() };
    let started = std::thread::Builder::new().name("classes".to_string()).spawn(move || worker.run(&inbox));
    if let Err(error) = started {
        tracing::error!(%error, "no thread for the classifier");
    }
    Handle { news }
}

type Tell = Box<dyn FnMut(Vec<JobEvent>) -> bool + Send>;

struct Worker {
    classifier: Classifier,
    tell: Tell,
    /// The jobs, with only those of their trials that have no result.
    open: Fleet,
    /// Finished trials without class, by their end: the newest is the last.
    due: BTreeMap<(Option<Stamp>, JobKey, Arc<str>), Box<Trial>>,
    /// Where in `due` a trial stands.
    places: HashMap<(JobKey, Arc<str>), Option<Stamp>>,
    ready: Vec<JobEvent>,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker {
            classifier: Classifier::shipped(),
            tell: Box::new(|_| false),
            open: Fleet::default(),
            due: BTreeMap::new(),
            places: HashMap::new(),
            ready: Vec::new(),
        }
    }
}

impl Worker {
    fn run(mut self, inbox: &Inbox<News>) {
        let mut told = Instant::now();
        loop {
            let next = self.next();
            let limit = match (&next, self.ready.is_empty()) {
                (Some(_), _) | (None, false) => Some(Duration::ZERO),
                (None, true) if self.has_open() => Some(LOOK),
                (None, true) => None,
            };
            let Some(news) = inbox.take(limit) else { return };
            let heard = !news.is_empty();
            for news in news {
                self.take_in(news);
            }
            if heard {
                // What is newest may have changed.
                if let Some(((at, key, name), trial)) = next {
                    self.places.entry((key, name.clone())).or_insert_with(|| {
                        self.due.insert((at, key, name), trial);
                        at
                    });
                }
                self.look_at_open();
            } else if let Some(((_, key, _), trial)) = next {
                if let Some(job) = self.open.job(key) {
                    let class = self.classifier.classify(&job.facts.dir, &job.facts, &trial);
                    self.ready.push(JobEvent::Class(key, trial.name.clone(), Some(Arc::new(class))));
                }
            } else {
                self.look_at_open();
            }
            let done = self.due.is_empty();
            let full = self.ready.len() >= BATCH || told.elapsed() >= PACE;
            if !self.ready.is_empty() && (done || full) {
                if !(self.tell)(std::mem::take(&mut self.ready)) {
                    return;
                }
                told = Instant::now();
            }
        }
    }

    fn has_open(&self) -> bool {
        self.open.jobs().iter().any(|job| !job.trials.is_empty())
    }

    fn take_in(&mut self, news: News) {
        for event in news.jobs {
            self.open.apply(event);
        }
        for ((key, name), trial) in news.trials {
            if let Some(at) = self.places.remove(&(key, name.clone())) {
                self.due.remove(&(at, key, name.clone()));
            }
            match trial {
                Some(trial) if trial.result.is_none() => self.open.apply(JobEvent::Trial(key, trial)),
                other => {
                    self.open.apply(JobEvent::TrialGone(key, name.clone()));
                    if let Some(trial) = other {
                        let at = trial.result.as_ref().and_then(|r| r.finished);
                        self.places.insert((key, name.clone()), at);
                        self.due.insert((at, key, name), trial);
                    }
                }
            }
        }
    }

    /// Takes out the newest trial of a job that has been read once.
    #[allow(clippy::type_complexity)]
    fn next(&mut self) -> Option<((Option<Stamp>, JobKey, Arc<str>), Box<Trial>)> {
        let settled = |key: JobKey| self.open.job(key).is_some_and(|job| job.settled);
        let place = self.due.keys().rev().find(|(_, key, _)| settled(*key)).cloned()?;
        let trial = self.due.remove(&place)?;
        self.places.remove(&(place.1, place.2.clone()));
        Some((place, trial))
    }

    /// Trials without result: whether somebody may still write one.
    fn look_at_open(&mut self) {
        let now = Stamp::now();
        let mut events = Vec::new();
        for job in self.open.jobs().iter().filter(|j| j.settled) {
            let gone = job.writer(now) == crate::job::Writer::Gone;
            for trial in job.trials.values() {
                let known = job.class_of(trial).map(|c| c.class);
                let is = match (trial.unreadable, gone) {
                    (true, _) => Some(Class::Unclassified),
                    (false, true) => Some(Class::Orphaned),
                    (false, false) => None,
                };
                if is != known {
                    let class = is.map(|c| if c == Class::Orphaned { orphaned(trial) } else { unreadable(trial) });
                    let class = class.map(Arc::new);
                    events.push(JobEvent::Class(job.key, trial.name.clone(), class));
                }
            }
        }
        for event in &events {
            self.open.apply(event.clone());
        }
        self.ready.extend(events);
    }
}
