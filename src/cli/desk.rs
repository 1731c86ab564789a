//! The desk behind a screen: looks who works on a job, sends signals, audits, mends, keeps the journal.
//!
//! All of it waits for files, processes and the Docker engine, so that every order has a thread of its
//! own; what comes of it is told as [`News`].

mod regrade;
mod requeue;
mod say;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;

use super::servers::Remote;
use crate::app::helm::{Abort, Audit, Finding, Helm, News, Order, Place, Signal, Survey, Waiting, Way};
use crate::audit::{self, Advice, Journal, Note, Owner, StopSignal};
use crate::harbor::write::lease::LEASE;
use crate::job::{Job, JobKey, Stamp, time};

/// How long the end of a process is counted down; then it is only watched.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at a process that is waited for.
const LOOK: Duration = Duration::from_secs(1);

/// The longest that what is said last is waited for: a slow disk keeps nobody.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The longest that programs are waited for that a process left at work.
const CHILDREN: Duration = Duration::from_secs(30);

/// What is known of a job that was looked at.
#[derive(Debug, Clone)]
struct Known {
    owner: Owner,
    job_id: String,
}

#[derive(Debug)]
struct Shared {
    news: Sender<News>,
    owners: Mutex<HashMap<JobKey, Known>>,
    audits: Mutex<HashMap<JobKey, audit::Audit>>,
    /// Counts the stops: an older one that still waits leaves the telling to the newest.
    stops: AtomicU64,
    /// Mends happen one after another.
    mending: Mutex<()>,
    /// Writes what is said of trials, one after another.
    scribe: Mutex<Option<say::Scribe>>,
    /// Speeches that are not written yet.
    unwritten: AtomicUsize,
    /// Who reads the model servers.
    servers: Mutex<Option<Remote>>,
}

/// Takes orders; clones share what they know.
#[derive(Debug, Clone)]
pub struct Desk(Arc<Shared>);

impl Desk {
    /// A desk that tells what it does there.
    pub fn new(news: Sender<News>) -> Desk {
        Desk(Arc::new(Shared {
            news,
            owners: Mutex::default(),
            audits: Mutex::default(),
            stops: AtomicU64::new(0),
            mending: Mutex::new(()),
            scribe: Mutex::default(),
            unwritten: AtomicUsize::new(0),
            servers: Mutex::default(),
        }))
    }

    /// With a way to the model servers.
    #[must_use]
    pub fn with_servers(self, remote: Remote) -> Desk {
        *self.0.servers.lock().unwrap_or_else(PoisonError::into_inner) = Some(remote);
        self
    }

    /// Notes what the operator did to a job that this process runs. Does not wait.
    pub fn note(&self, dir: &Path, job_id: &str, act: &str, subject: &str) {
        let (dir, job_id, note) = (dir.to_path_buf(), job_id.to_string(), Note::now(act, subject, WHY));
        self.aside(move |shared| {
            if let Err(error) = write(&dir, &job_id, &note) {
                shared.tell(News::Refused(format!("done, but not noted: {error}")));
            }
        });
    }

    fn aside(&self, work: impl FnOnce(&Shared) + Send + 'static) {
        let shared = self.0.clone();
        let started = std::thread::Builder::new().name("desk".into()).spawn(move || work(&shared));
        if let Err(error) = started {
            tracing::error!(%error, "no thread for an order");
            let _ = self.0.news.try_send(News::Refused(format!("not done: {error}")));
        }
    }
}

/// Why something was done.
const WHY: &str = "asked for by the operator, on the screen";

impl Helm for Desk {
    fn finish(&mut self) {
        let begun = Instant::now();
        while self.0.unwritten.load(Ordering::Relaxed) > 0 && begun.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Survey(place, job) => self.aside(move |shared| {
                let survey = shared.survey(&place, &job);
                shared.tell(News::Surveyed(place.job, survey));
            }),
            Order::Stop(place, signal) => {
                let turn = self.0.stops.fetch_add(1, Ordering::Relaxed) + 1;
                self.aside(move |shared| shared.stop(&place, signal, turn));
            }
            Order::Audit(place) => self.aside(move |shared| {
                let audit = shared.audit(&place);
                shared.tell(News::Audited(place.job, audit));
            }),
            Order::Mend(place, which) => self.aside(move |shared| shared.mend(&place, &which)),
            Order::Say(place, speech) => self.say(place, speech),
            Order::Prepare(wish) => self.aside(move |shared| {
                let prepared = requeue::planned(&wish);
                shared.tell(News::Prepared(wish.serial, Box::new(prepared)));
            }),
            Order::Preview(place) => self.aside(move |shared| {
                shared.tell(News::Previewed(place.job, requeue::preview_of(&place.dir)));
            }),
            Order::Abort(abort) => self.aside(move |shared| shared.abort(*abort)),
            Order::LookForHeld(key, dir) => self.aside(move |shared| {
                let found = regrade::look(&dir);
                shared.tell(News::Held(key, found));
            }),
            Order::Regrade { trial, dir, release } => self.aside(move |shared| shared.regrade(&trial, &dir, release)),
            Order::Requeue(plan) => self.aside(move |shared| shared.requeue(&plan)),
            Order::Slots(_)
            | Order::Pause
            | Order::Resume
            | Order::CancelTrial(_)
            | Order::CancelTrials(_)
            | Order::First(_)
            | Order::TakeHelm
            | Order::Probe(_)
            | Order::Endpoint(_)
            | Order::Drain
            | Order::Cancel
            | Order::Hurry => {
                let _ = self.0.news.try_send(News::Refused("only the screen of the owner can".to_string()));
            }
        }
    }
}

fn raw(signal: Signal) -> StopSignal {
    match signal {
        Signal::Term => StopSignal::Term,
        Signal::Int => StopSignal::Int,
    }
}

fn shown(signal: StopSignal) -> Signal {
    match signal {
        StopSignal::Term => Signal::Term,
        StopSignal::Int => Signal::Int,
    }
}

fn write(dir: &Path, job_id: &str, note: &Note) -> Result<(), String> {
    let journal = Journal::open(dir, super::state_dir().as_deref(), job_id);
    journal.and_then(|mut journal| journal.write(note)).map_err(|e| e.to_string())
}

/// What to know before a signal is sent, and the ways to stop.
fn survey(job: &Job, owner: &Owner, advice: Advice) -> Survey {
    let now = Stamp::now();
    let plan = audit::plan(job, now, owner, advice.signal);
    let way = |signal: StopSignal, why: &str| {
        let stays = audit::plan(job, now, owner, signal).stays.join("; ");
        let objection = audit::objection(owner, signal).map(|o| format!(" {o}.")).unwrap_or_default();
        Way { signal: shown(signal), price: format!("{why}.{objection} Stays behind: {stays}") }
    };
    let mut ways = vec![way(advice.signal, &advice.why)];
    ways.extend(advice.other.as_ref().map(|(signal, why)| way(*signal, why)));
    let cwd = owner.cwd.as_ref().map_or("-".to_string(), |d| d.display().to_string());
    Survey {
        pid: owner.pid,
        process: vec![owner.command.clone(), format!("in {cwd}; {}", owner.evidence)],
        touched: vec![format!("A stop: {}.", plan.price())],
        warnings: advice.warnings,
        ways,
    }
}

impl Shared {
    /// Nobody to hear it is no reason to stop.
    fn tell(&self, news: News) {
        let _ = self.news.blocking_send(news);
    }

    fn known(&self, job: JobKey) -> Option<Known> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(&job).cloned()
    }

    /// Ends one request at its server; noted before it is known what came of it, and after.
    fn abort(&self, abort: Abort) {
        let worker = abort.worker.as_ref().map(|w| format!(" worker {w}")).unwrap_or_default();
        let subject = format!("request {} at {}{worker}", abort.rid, abort.server);
        let why = if abort.why.is_empty() { WHY.to_string() } else { format!("{WHY}: {}", abort.why) };
        let remote = self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let done = match remote {
            Some(remote) => remote.abort(abort.clone()),
            None => Err("no model server is read here".to_string()),
        };
        let mut note = Note::now("abort_request", &subject, &why);
        note.result = match &done {
            Ok(words) => words.clone(),
            Err(error) => format!("not done: {error}"),
        };
        let noted = match &abort.job {
            Some((place, id)) => write(&place.dir, id, &note),
            None => match super::state_dir() {
                Some(dir) => Journal::in_state(&dir, "serving")
                    .and_then(|mut journal| journal.write(&note))
                    .map_err(|e| e.to_string()),
                None => Err("there is no state dir".to_string()),
            },
        };
        if let Err(error) = noted {
            self.tell(News::Refused(format!("the abort is not noted: {error}")));
        }
        self.tell(News::Aborted(done));
    }

    fn survey(&self, place: &Place, job: &Job) -> Result<Survey, String> {
        if job.facts.layout.is_classic() {
            let pid =
                job.liveness.owner.as_ref().map_or(String::new(), |(pid, _)| format!(": kill -INT {pid} ends it"));
            return Err(format!("a run of terminal-bench is not stopped from here{pid}"));
        }
        let found = audit::find_owner(&place.dir);
        let owner = found.here().ok_or_else(|| format!("there is no process here to stop: {}", found.words()))?;
        let advice = audit::advice(owner, job.facts.harbor_version.as_deref());
        let known =
            Known { owner: owner.clone(), job_id: job.facts.id.as_ref().unwrap_or(&job.facts.name).to_string() };
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).insert(place.job, known);
        Ok(survey(job, owner, advice))
    }

    fn stop(&self, place: &Place, signal: Signal, turn: u64) {
        let Some(Known { owner, job_id }) = self.known(place.job) else {
            return self.tell(News::Refused("nothing was sent: it is not known who works on it".to_string()));
        };
        let mut note = Note::now("stop", &owner.name(), WHY);
        let sent = audit::signal(&owner, raw(signal));
        note.result = match &sent {
            Ok(_) => format!("{} sent", signal.word()),
            Err(error) => format!("not sent: {error}"),
        };
        if let Err(error) = write(&place.dir, &job_id, &note) {
            self.tell(News::Refused(format!("the stop is not noted: {error}")));
        }
        let stopping = match sent {
            Ok(stopping) => stopping,
            Err(audit::StopError::Gone(_)) => {
                return self.tell(News::Stopped(place.job, "it had ended by itself before".to_string()));
            }
            Err(error) => {
                self.tell(News::NotSent(place.job, error.to_string()));
                return;
            }
        };
        let until = Stamp::now().saturating_add(PATIENCE);
        let begun = Instant::now();
        let Ok(until) = until else { return };
        loop {
            if self.stops.load(Ordering::Relaxed) != turn {
                return;
            }
            let expired = begun.elapsed() >= PATIENCE;
            self.tell(News::Waiting(place.job, Waiting { left: Vec::new(), until: Some(until), expired }));
            if stopping.wait(LOOK) {
                break;
            }
            if self.news.is_closed() {
                return;
            }
        }
        self.wait_for_children(place);
        self.tell(News::Stopped(place.job, String::new()));
    }

    /// A Harbor that dies at once leaves `docker compose` at work, which may be about to start something
    /// that an audit would miss.
    fn wait_for_children(&self, place: &Place) {
        let until = Instant::now() + CHILDREN;
        let trials = audit::check::trials_of(&place.dir);
        loop {
            let left = audit::check::compose_at_work(&trials);
            if left.is_empty() || Instant::now() >= until || self.news.is_closed() {
                return;
            }
            self.tell(News::Waiting(place.job, Waiting { left, ..Waiting::default() }));
            std::thread::sleep(LOOK / 2);
        }
    }

    fn audit(&self, place: &Place) -> Result<Audit, String> {
        let audit = audit::audit(&place.dir, super::state_dir().as_deref()).map_err(|e| e.to_string())?;
        let complete = audit.planned.is_some_and(|planned| audit.results as u64 >= planned);
        let dir = place.dir.display();
        let cwd = self.known(place.job).and_then(|k| k.owner.cwd);
        let cwd = cwd.map(|d| format!(", in {}", d.display())).unwrap_or_default();
        let next = match (complete, ours(&place.dir)) {
            (true, _) => None,
            (false, true) => Some(format!("What is missing: pilothouse run --resume {dir}")),
            (false, false) => Some(format!("What is missing: harbor job resume -p {dir}{cwd}")),
        };
        let findings = audit.findings.iter().map(finding).collect();
        let shown = Audit { summary: audit.summary(), findings, unseen: audit.unseen.clone(), next };
        self.audits.lock().unwrap_or_else(PoisonError::into_inner).insert(place.job, audit);
        Ok(shown)
    }

    fn mend(&self, place: &Place, which: &[usize]) {
        let _turn = self.mending.lock().unwrap_or_else(PoisonError::into_inner);
        let audit = self.audits.lock().unwrap_or_else(PoisonError::into_inner).get(&place.job).cloned();
        let state = super::state_dir();
        for at in which {
            let finding = audit.as_ref().and_then(|audit| Some((audit, audit.findings.get(*at)?)));
            let done = match (finding, &state) {
                (Some((audit, finding)), Some(state)) => {
                    audit::mend(audit, finding, state).map(|m| m.done).map_err(|e| e.to_string())
                }
                (None, _) => Err("there is no such finding any more".to_string()),
                (_, None) => Err("no place for the quarantine: set HOME or PILOTHOUSE_STATE_DIR".to_string()),
            };
            self.tell(News::Mended(place.job, *at, done));
        }
    }
}

/// Whether a job was run by pilothouse, whose lease lies in its directory.
fn ours(dir: &Path) -> bool {
    std::fs::symlink_metadata(dir.join(LEASE)).is_ok_and(|m| m.is_file())
}

fn finding(found: &audit::Finding) -> Finding {
    let mut why = found.evidence.clone();
    if let Some(age) = found.age {
        why.push_str(&format!("; {} old", time::words(age as f64)));
    }
    let mend = found.mend.does_something().then(|| found.mend.words());
    if mend.is_none() {
        why.push_str(&format!("\n{}", found.mend.words()));
    }
    Finding { kind: found.kind.word().replace('_', " "), what: found.subject.clone(), why, mend, mended: None }
}
