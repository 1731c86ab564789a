//! Looks at what trials need, beside the job: the engine before each begin, the disks. What it sees
//! becomes gates; a look that takes long holds up admission and nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::adaptive::{Adapted, Pace};
use super::gate::{Closed, Floor, Gate};
use super::hold::Holder;
use super::trial::Places;
use crate::job::Stamp;
use crate::job::text::{clean, mask_secrets};

/// A look is good for so long.
const FRESH: Duration = Duration::from_secs(1);
/// Time between two looks that nobody asked for, and while something is closed.
const PACE: Duration = Duration::from_secs(5);
const KNOCK: Duration = Duration::from_secs(1);
/// The engine answers within this time, or is no engine to begin a trial with.
const ANSWER: Duration = Duration::from_secs(5);

/// What a job does by itself while it runs.
#[derive(Clone, Default)]
pub struct Manners {
    /// Least free bytes on the disks that it writes to; 0: no such floor.
    pub disk_floor: u64,
    /// Fewer trials at a time while their surroundings fail, at this pace; None: never.
    pub adaptive: Option<Pace>,
    /// An agent's clock stands still while it waits for a model's endpoint that is away.
    pub pause_clock: bool,
    /// Hears what it did by itself.
    pub hear: Option<Hear>,
    /// Holds containers whose verifier can not be trusted; None: every container goes with its trial.
    pub holder: Option<Arc<Holder>>,
}

/// Hears what a job does by itself. It must not wait.
pub type Hear = Arc<dyn Fn(&Event) + Send + Sync>;

/// What a job did by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A gate closed: nothing begins.
    Closed(Closed),
    /// A gate opened again at this time; or the job ended while it was closed.
    Opened(Closed, Stamp, bool),
    /// The number of trials at a time changed, or settled.
    Adapted(Adapted),
    /// A trial could not begin its work for its surroundings and waits at the front of the queue again.
    PutBack(String, String),
}

impl Event {
    /// In one line.
    pub fn words(&self) -> String {
        match self {
            Event::Closed(c) => format!("{}: nothing begins: {}", c.gate.word(), c.why),
            Event::Opened(c, at, over) => {
                let seconds = at.duration_since(c.since).as_secs_f64().max(0.0);
                let end = if *over { "was closed when the job ended" } else { "well again" };
                format!("{}: {end}, after {}: {}", c.gate.word(), crate::job::time::words(seconds), c.why)
            }
            Event::Adapted(Adapted::Changed { from, to, why }) => format!("n {from} -> {to} (adaptive): {why}"),
            Event::Adapted(Adapted::Settled { at, why }) => format!("n settled at {at} (adaptive): {why}"),
            Event::PutBack(trial, why) => format!("{trial} is put back into the queue: {why}"),
        }
    }
}

/// How gates stood at one look; a gate that could not be looked at is not in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub gates: Vec<(Gate, Option<String>)>,
    /// When the look began.
    at: Option<Instant>,
}

/// Looks, on a task of its own, and remembers the last look.
pub(super) struct Health {
    seen: watch::Receiver<Seen>,
    ask: Arc<Notify>,
    task: JoinHandle<()>,
    /// Looks before this say nothing.
    since: Instant,
}

impl Drop for Health {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Health {
    /// Begins to look. Must be called inside the runtime.
    pub(super) fn begin(places: Arc<dyn Places>, floor: Floor) -> Health {
        let (tell, seen) = watch::channel(Seen::default());
        let ask = Arc::new(Notify::new());
        let asked = Arc::clone(&ask);
        let task = tokio::spawn(async move {
            let mut closed = false;
            loop {
                let at = Some(Instant::now());
                let gates = look(&*places, &floor, closed).await;
                closed = gates.iter().any(|(gate, why)| *gate == Gate::Disk && why.is_some());
                let bad = gates.iter().any(|(_, why)| why.is_some());
                tell.send_replace(Seen { gates, at });
                tokio::select! {
                    () = asked.notified() => {}
                    () = sleep(if bad { KNOCK } else { PACE }) => {}
                }
            }
        });
        Health { seen, ask, task, since: Instant::now() }
    }

    /// Whether the last look is young enough to begin a trial on; asks for another one where it is not.
    pub(super) fn fresh(&self) -> bool {
        let fresh = self.seen.borrow().at.is_some_and(|at| at >= self.since && at.elapsed() < FRESH);
        if !fresh {
            self.ask.notify_one();
        }
        fresh
    }

    /// Something failed that may have to do with what is looked at: looks before now say nothing.
    pub(super) fn distrust(&mut self) {
        self.since = Instant::now();
    }

    /// The next look that is not known yet.
    pub(super) async fn next(&mut self) -> Seen {
        if self.seen.changed().await.is_err() {
            // The task is gone: nothing more will be seen.
            std::future::pending::<()>().await;
        }
        self.seen.borrow_and_update().clone()
    }

    /// For somebody who wants a look of its own.
    pub(super) fn asker(&self) -> Asker {
        Asker { seen: self.seen.clone(), ask: Arc::clone(&self.ask) }
    }
}

/// Asks for looks.
pub(super) struct Asker {
    seen: watch::Receiver<Seen>,
    ask: Arc<Notify>,
}

impl Asker {
    /// Why nothing could begin, by a look that was begun after this call; None: something could.
    pub(super) async fn look(mut self) -> Option<String> {
        let now = Instant::now();
        // One look may be under way already: the one after it is meant.
        for _ in 0..2 {
            self.seen.borrow_and_update();
            self.ask.notify_one();
            if self.seen.changed().await.is_err() {
                return None;
            }
        }
        let seen = self.seen.borrow();
        seen.at.filter(|at| *at >= now)?;
        seen.gates.iter().find_map(|(gate, why)| why.as_ref().map(|why| format!("{}: {why}", gate.word())))
    }
}

async fn look(places: &dyn Places, floor: &Floor, closed: bool) -> Vec<(Gate, Option<String>)> {
    let mut gates = Vec::new();
    let docker = match timeout(ANSWER, places.check()).await {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(safe(&e.to_string())),
        Err(_) => Some(format!("the engine does not answer within {} s", ANSWER.as_secs())),
    };
    gates.push((Gate::Docker, docker));
    if floor.bytes > 0 {
        let dirs: Vec<_> = floor.places.iter().map(|(dir, _)| dir.clone()).collect();
        let free = tokio::task::spawn_blocking(move || dirs.iter().map(|dir| free(dir)).collect::<Vec<_>>());
        // A disk that hangs says nothing about its room.
        if let Ok(Ok(free)) = timeout(ANSWER, free).await {
            gates.push((Gate::Disk, floor.judge(&free, closed).map(|why| safe(&why))));
        }
    }
    gates
}

fn safe(text: &str) -> String {
    clean(&mask_secrets(text)).into_owned()
}

/// Free bytes of the file system that a directory is on.
fn free(dir: &Path) -> Option<u64> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
