//! The owner's end of the control socket.
//!
//! Whoever connects is checked (the same user, or root), a line has a limit and a time, and so many may be
//! connected. A socket that vanishes (a cleaned directory, a logout) is made anew.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, broadcast, oneshot};
use tokio::time::{MissedTickBehavior, timeout};

use super::endpoint::Movable;
use super::helm::{HelmOf, OWNER};
use super::place;
use super::scribe::Scribe;
use super::wire::{self, Answer, Gate, LONGEST, Op, Probe, Request, State};
use super::works;
use crate::job::text::clean;
use crate::journal::{MOVED, Note};
use crate::scheduler::board::Reader;
use crate::scheduler::policy::Stop;
use crate::scheduler::{Control, Standing, Status};

/// Who may be connected at a time.
const MOST: usize = 32;
/// For a request to come and an answer to go.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether the socket is still there.
const LOOK: Duration = Duration::from_secs(5);
/// Before a connection is taken again that could not be.
const AGAIN: Duration = Duration::from_secs(1);
/// Names listed by `status`.
const NAMED: usize = 200;
/// Most slots that can be asked for.
const SLOTS: usize = 10_000;

/// What can be steered over the socket.
#[derive(Debug, Clone)]
pub struct Ship {
    /// Steers the job.
    pub control: Control,
    /// The job's directory.
    pub dir: PathBuf,
    /// Its id.
    pub id: String,
    /// Who steers.
    pub helm: HelmOf,
    /// Writes down what is done.
    pub scribe: Scribe,
    /// Where the models of its agents are served.
    pub endpoints: Movable,
}

/// The open socket. Dropping it closes and removes it.
#[derive(Debug)]
pub struct Port {
    path: PathBuf,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Port {
    /// Opens the socket of a job and answers on a thread of its own.
    ///
    /// # Errors
    /// Why there is none, in words; the job can not be steered from elsewhere then.
    pub fn open(ship: Ship, state: Option<&Path>) -> Result<Port, String> {
        let paths = place::candidates(state, &ship.id);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let listener = {
            let _inside = runtime.enter();
            bind(&paths)?
        };
        let path = listener.path.clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("ctl".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(ship, listener, &paths) => {}
                    _ = ended => {}
                }
            });
        });
        let thread = thread.map_err(|e| e.to_string())?;
        Ok(Port { path, end: Some(end), thread: Some(thread) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Not there any more: it has ended by itself.
        let _ = self.end.take().map(|end| end.send(()));
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// A socket that listens, and what it is on disk.
struct Bound {
    listener: UnixListener,
    path: PathBuf,
    is: Option<(u64, u64)>,
}

impl Bound {
    fn there(&self) -> bool {
        self.is.is_some() && place::socket(&self.path) == self.is
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds at the first place where it can be done. The lease is held: what lies there is of somebody who
/// has lost the job, or is dead.
fn bind(paths: &[PathBuf]) -> Result<Bound, String> {
    let mut wrong = Vec::new();
    for path in paths {
        match bind_at(path) {
            Ok(bound) => return Ok(bound),
            Err(e) => wrong.push(format!("{}: {e}", path.display())),
        }
    }
    Err(if wrong.is_empty() { "every place for a socket has too long a path".to_string() } else { wrong.join("; ") })
}

fn bind_at(path: &Path) -> io::Result<Bound> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    place::make(dir)?;
    place::sweep(dir);
    // A new name, then renamed: nobody sees a moment without.
    let new = path.with_extension(format!("{}", std::process::id()));
    let _ = std::fs::remove_file(&new);
    // Its path may be a little too long where that of the socket is not.
    let listener = match UnixListener::bind(&new) {
        Ok(listener) => {
            std::fs::rename(&new, path)?;
            listener
        }
        Err(_) => {
            if place::socket(path).is_some() {
                std::fs::remove_file(path)?;
            }
            UnixListener::bind(path)?
        }
    };
    Ok(Bound { listener, path: path.to_path_buf(), is: place::socket(path) })
}

async fn serve(ship: Ship, mut bound: Bound, paths: &[PathBuf]) {
    let room = Arc::new(Semaphore::new(MOST));
    let numbers = AtomicU64::new(OWNER);
    let mut told = false;
    loop {
        tokio::select! {
            accepted = bound.listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
                if !ours(&stream) {
                    continue;
                }
                let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                    tokio::spawn(refuse(stream));
                    continue;
                };
                let ship = ship.clone();
                tokio::spawn(async move {
                    let helm = ship.helm.clone();
                    Talk::new(ship, number, stream).run().await;
                    helm.leave(number);
                    drop(permit);
                });
            }
            () = tokio::time::sleep(LOOK) => {
                if bound.there() {
                    continue;
                }
                match bind(paths) {
                    Ok(anew) => {
                        tracing::warn!(path = %anew.path.display(), "the control socket was gone: made anew");
                        bound = anew;
                        told = false;
                    }
                    Err(error) if !told => {
                        tracing::error!(%error, "the control socket is gone");
                        told = true;
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

/// Whether the one at the other end is this user, or root.
fn ours(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == me || peer.uid() == 0)
}

async fn refuse(mut stream: UnixStream) {
    let line = wire::line(&Answer::not(format!("{MOST} are connected already")));
    let _ = timeout(PATIENCE, stream.write_all(&line)).await;
}

/// One who is connected.
struct Talk {
    ship: Ship,
    number: u64,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

/// What wakes one who watches.
enum Wake {
    Line(Option<Vec<u8>>),
    Status(bool),
    Helm,
    Told(Option<String>),
    Look,
}

impl Talk {
    fn new(ship: Ship, number: u64, stream: UnixStream) -> Talk {
        let (reader, writer) = stream.into_split();
        Talk { ship, number, reader: BufReader::new(reader), writer }
    }

    async fn run(mut self) {
        let Ok(Some(line)) = timeout(PATIENCE, next_line(&mut self.reader)).await else { return };
        let request = match wire::read(&line) {
            Ok(request) => request,
            Err(why) => {
                self.write(&Answer::not(why)).await;
                return;
            }
        };
        if request.op == Op::Watch {
            return self.watch(&request).await;
        }
        let answer = self.ship.act(&request, self.number, false).await;
        self.write(&answer).await;
    }

    /// False: the other end does not take it in time, or is gone.
    async fn write(&mut self, answer: &Answer) -> bool {
        matches!(timeout(PATIENCE, self.writer.write_all(&wire::line(answer))).await, Ok(Ok(())))
    }

    async fn watch(self, first: &Request) {
        let mut status = self.ship.control.status();
        let mut helm = self.ship.helm.changes();
        let mut lines = self.ship.helm.lines();
        let mut board = Reader::new(self.ship.control.board());
        let mut looks = tokio::time::interval(works::PACE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut over = false;
        let mut said = Vec::new();
        // What was read of a line stays here when something else comes first.
        let (tell, mut heard) = tokio::sync::mpsc::channel(1);
        let mut reader = self.reader;
        let listening = tokio::spawn(async move {
            while let Some(line) = next_line(&mut reader).await {
                if tell.send(line).await.is_err() {
                    return;
                }
            }
        });
        let mut writer = self.writer;
        loop {
            let now = status.borrow_and_update().clone();
            let hand = helm.borrow_and_update().clone();
            let answer = Answer {
                status: Some(self.ship.state(&now)),
                steers: hand.is_some_and(|h| h.number == self.number),
                over,
                ..Answer::done(std::mem::take(&mut said))
            };
            let sent = timeout(PATIENCE, writer.write_all(&wire::line(&answer))).await;
            if !matches!(sent, Ok(Ok(()))) || over {
                break;
            }
            let wake = loop {
                let wake = tokio::select! {
                    line = heard.recv() => Wake::Line(line),
                    changed = status.changed() => Wake::Status(changed.is_ok()),
                    _ = helm.changed() => Wake::Helm,
                    told = lines.recv() => match told {
                        Ok(line) => Wake::Told((line.by != self.number).then_some(line.text)),
                        Err(broadcast::error::RecvError::Lagged(n)) => Wake::Told(Some(format!("{n} lines were missed"))),
                        Err(broadcast::error::RecvError::Closed) => Wake::Told(None),
                    },
                    _ = looks.tick() => Wake::Look,
                };
                match wake {
                    Wake::Look if works::tell(&mut writer, &mut board, PATIENCE).await => {}
                    wake => break wake,
                }
            };
            match wake {
                // The other end does not take it.
                Wake::Look => break,
                Wake::Line(None) => break,
                Wake::Line(Some(line)) => {
                    let answer = match wire::read(&line) {
                        Ok(request) => {
                            let who = if request.who.is_empty() { first.who.clone() } else { request.who.clone() };
                            self.ship.act(&Request { who, ..request }, self.number, true).await
                        }
                        Err(why) => Answer::not(why),
                    };
                    if let Some(why) = answer.error {
                        said.push(why);
                    } else {
                        said.extend(answer.said);
                    }
                }
                Wake::Status(open) => over = !open,
                Wake::Helm => {}
                Wake::Told(text) => said.extend(text),
            }
        }
        listening.abort();
    }
}

/// A line without its end; None at the end, or when it is too long.
async fn next_line(reader: &mut BufReader<OwnedReadHalf>) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = (&mut *reader).take(LONGEST as u64 + 1).read_until(b'\n', &mut line).await.ok()?;
    if read == 0 || line.pop() != Some(b'\n') {
        return None;
    }
    Some(line)
}

impl Ship {
    /// How it stands, without names.
    pub fn state(&self, status: &Status) -> State {
        State {
            job: self.id.clone(),
            dir: clean(&self.dir.to_string_lossy()).into_owned(),
            pid: std::process::id(),
            slots: status.slots,
            adaptive_limit: status.limit.map(|(limit, _)| limit),
            settled: status.limit.is_some_and(|(_, settled)| settled),
            agents: status.agents,
            agents_at_work: status.agents_at_work,
            running: status.running,
            waiting: status.waiting,
            queued: status.queued,
            ended: status.over,
            stop: match status.stop {
                Stop::No => "no",
                Stop::Drain => "drain",
                Stop::Cancel => "cancel",
            }
            .to_string(),
            paused: status.paused,
            gates: status
                .closed
                .iter()
                .map(|c| Gate { gate: c.gate.word().to_string(), why: c.why.clone(), since: c.since.to_string() })
                .collect(),
            endpoints: self.endpoints.all(),
            helm: self.helm.hand().map(|hand| hand.who),
            ..State::default()
        }
    }

    fn whole_state(&self) -> State {
        let status = self.control.status().borrow().clone();
        let trials = self.control.trials();
        let running = trials.iter().filter(|(_, s)| *s == Standing::Running).map(|(name, _)| name.clone());
        let mut queue: Vec<(usize, String)> = trials
            .iter()
            .filter_map(|(name, s)| if let Standing::Queued(at) = s { Some((*at, name.clone())) } else { None })
            .collect();
        queue.sort();
        State {
            running_trials: running.take(NAMED).collect(),
            queue: queue.into_iter().map(|(_, name)| name).take(NAMED).collect(),
            ..self.state(&status)
        }
    }

    /// Does what is asked for. One who watches must have the helm for it.
    pub async fn act(&self, request: &Request, number: u64, watches: bool) -> Answer {
        if request.op == Op::Status {
            return Answer { status: Some(self.whole_state()), ..Answer::done(Vec::new()) };
        }
        if request.op == Op::Work {
            let status = self.state(&self.control.status().borrow().clone());
            let work = works::all(&self.control.board());
            return Answer { status: Some(status), work, ..Answer::done(Vec::new()) };
        }
        if request.op == Op::Take {
            if !watches {
                return Answer::not("only one who watches can take the helm");
            }
            self.helm.take(number, &request.who);
            // Who had it, and all who look on, hear of the change itself.
            return Answer::done(Vec::new());
        }
        if watches && let Some(hand) = self.helm.hand().filter(|hand| hand.number != number) {
            return Answer::not(format!("{} steers: take the helm first", hand.who));
        }
        // The owner's own screen needs no taking when nobody else has it.
        if watches && number != OWNER && self.helm.hand().is_none() {
            return Answer::not("take the helm first");
        }
        let done = match self.endpoint(&request.op).await {
            Some(Ok(Moved::Probed(probe))) => return Answer { probe: Some(probe), ..Answer::done(Vec::new()) },
            Some(Ok(Moved::Moved(done))) => Ok(done),
            Some(Err(why)) => Err(why),
            None => self.deed(&request.op),
        };
        let done = match done {
            Ok(done) => done,
            Err(why) => return Answer::not(why),
        };
        self.written(&request.op, &done, request);
        let line = format!("{}: {}", request.who, done.said.join("; "));
        self.helm.tell(number, &line);
        tracing::info!(who = request.who, op = request.op.word(), "steered");
        // What was asked for is in the state that is told.
        let status = self.settled(&request.op).await;
        Answer { status: Some(status), ..Answer::done(done.said) }
    }

    /// How it stands once the job has taken a wish in, or after a moment.
    async fn settled(&self, op: &Op) -> State {
        let mut status = self.control.status();
        let fits = |now: &Status| match op {
            Op::Pause => now.paused,
            Op::Resume => !now.paused,
            Op::Drain => now.stop >= Stop::Drain,
            Op::Stop => now.stop == Stop::Cancel,
            Op::Slots { n } => now.slots == *n,
            Op::Agents { n } => now.agents.is_some_and(|agents| agents >= *n),
            _ => true,
        };
        let now = timeout(Duration::from_millis(500), status.wait_for(fits)).await;
        drop(now);
        self.state(&self.control.status().borrow().clone())
    }

    fn deed(&self, op: &Op) -> Result<Done, String> {
        let control = &self.control;
        let (running, queued) = {
            let status = control.status();
            let now = status.borrow();
            (now.running + now.waiting, now.queued)
        };
        let (taken, subjects, said) = match op {
            Op::Status | Op::Watch | Op::Take | Op::Work | Op::Endpoint { .. } => return Err("not here".to_string()),
            Op::Pause => {
                (control.pause(), vec![], format!("paused: nothing begins, {running} at work go on, {queued} wait"))
            }
            Op::Resume => (control.resume(), vec![], format!("resumed: {queued} to begin")),
            Op::Drain => (
                control.drain(),
                vec![],
                format!("draining: {running} at work run to their ends, {queued} never begin"),
            ),
            Op::Stop => (control.cancel(), vec![], format!("stopping: {running} at work are cancelled")),
            Op::Slots { n } | Op::Agents { n } if !(1..=SLOTS).contains(n) => {
                return Err(format!("a number from 1 to {SLOTS}"));
            }
            Op::Slots { n } => (control.set_slots(*n), vec![n.to_string()], format!("n {n}: what runs runs on")),
            Op::Agents { n } => {
                (control.set_agents(*n), vec![n.to_string()], format!("{n} agents at a time: those at work work on"))
            }
            Op::Cancel { trials } => {
                let found = self.found(trials)?;
                let (at_work, not): (Vec<_>, Vec<_>) = found
                    .into_iter()
                    .partition(|(_, _, standing)| matches!(standing, Standing::Running | Standing::Waiting));
                if at_work.is_empty() {
                    return Err(format!("nothing cancelled: {}", words(&not)));
                }
                let places: Vec<usize> = at_work.iter().map(|(at, ..)| *at).collect();
                let names: Vec<String> = at_work.into_iter().map(|(_, name, _)| name).collect();
                let mut said = format!("cancelling {}", names.join(", "));
                if !not.is_empty() {
                    said.push_str(&format!("; left alone: {}", words(&not)));
                }
                (control.cancel_trials(&places), names, said)
            }
            Op::First { trials } => {
                let found = self.found(trials)?;
                let (queued, not): (Vec<_>, Vec<_>) =
                    found.into_iter().partition(|(_, _, standing)| matches!(standing, Standing::Queued(_)));
                if queued.is_empty() {
                    return Err(format!("nothing moved: {}", words(&not)));
                }
                let places: Vec<usize> = queued.iter().map(|(at, ..)| *at).collect();
                let names: Vec<String> = queued.into_iter().map(|(_, name, _)| name).collect();
                let mut said = format!("first now: {}", names.join(", "));
                if !not.is_empty() {
                    said.push_str(&format!("; left alone: {}", words(&not)));
                }
                (control.first(&places), names, said)
            }
        };
        if taken {
            Ok(Done { subjects, said: vec![said], ..Done::default() })
        } else {
            Err("too late: it has ended".to_string())
        }
    }

    /// Probes an address, and moves an endpoint there; None: that is not asked for.
    async fn endpoint(&self, op: &Op) -> Option<Result<Moved, String>> {
        let Op::Endpoint { url, of, sure } = op else { return None };
        if !sure {
            return Some(self.endpoints.probe(url, of.as_deref()).await.map(Moved::Probed));
        }
        Some(self.endpoints.go(url, of.as_deref(), &self.control).await.map(|probe| {
            let said = format!("the model is called at {} from now on, {} before", probe.url, probe.now);
            let result = format!("{MOVED}{} to {}; {}", probe.now, probe.url, probe.found.join("; "));
            Moved::Moved(Done { subjects: vec![probe.url], said: vec![said], result })
        }))
    }

    /// The trials that words mean, each once.
    fn found(&self, words: &[String]) -> Result<Vec<(usize, String, Standing)>, String> {
        let mut out: Vec<(usize, String, Standing)> = Vec::new();
        let mut unknown = Vec::new();
        for word in words {
            let places = self.control.find(word);
            if places.is_empty() {
                unknown.push(wire::tame(word));
            }
            for at in places {
                if let Some((name, standing)) = self.control.trial(at)
                    && !out.iter().any(|(there, ..)| *there == at)
                {
                    out.push((at, name, standing));
                }
            }
        }
        match (unknown.is_empty(), words.is_empty()) {
            (_, true) => Err("no trial is named".to_string()),
            (false, _) => Err(format!("no such trial or task in this job: {}", unknown.join(", "))),
            _ => Ok(out),
        }
    }

    /// Writes down who did what, and why.
    fn written(&self, op: &Op, done: &Done, request: &Request) {
        let why = if request.why.is_empty() { "asked for by the operator" } else { &request.why };
        let subjects = if done.subjects.is_empty() { vec![self.id.clone()] } else { done.subjects.clone() };
        for subject in subjects {
            let mut note = Note::now(op.word(), &subject, why);
            if !request.who.is_empty() {
                note.operator.clone_from(&request.who);
            }
            note.result.clone_from(&done.result);
            if matches!(op, Op::Cancel { .. } | Op::First { .. }) {
                note.trial = Some(subject);
            }
            self.scribe.note(note);
        }
    }
}

/// What was done.
#[derive(Default)]
struct Done {
    subjects: Vec<String>,
    said: Vec<String>,
    /// What came of it, for the journal.
    result: String,
}

/// What became of a wish for another address.
enum Moved {
    Probed(Probe),
    Moved(Done),
}

/// `a has ended, b has not begun`.
fn words(trials: &[(usize, String, Standing)]) -> String {
    let word = |standing: &Standing| match standing {
        Standing::Queued(_) => "has not begun",
        Standing::Running => "runs",
        Standing::Waiting => "waits for its next attempt",
        Standing::Over => "has ended",
    };
    let all: Vec<String> = trials.iter().map(|(_, name, standing)| format!("{name} {}", word(standing))).collect();
    all.join(", ")
}
