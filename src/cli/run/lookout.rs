//! Looks after the endpoints of a job while it runs: by what is known of the model servers it closes them,
//! and the gate, and opens them again. Beside the job and any screen, on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::app::servers::guess::is_near;
use crate::cli::ctl::scribe::Scribe;
use crate::cli::servers::Ear;
use crate::job::Stamp;
use crate::journal::Note;
use crate::model::endpoint::Endpoints;
use crate::scheduler::{Control, Gate};
use crate::serving::{Away, Demand, Serving, Source, source};

/// Between two looks at what changes with time alone.
const LOOK: Duration = Duration::from_millis(500);
/// Shorter ones are no outage: a client tries again within it.
const SHORTEST: f64 = 1.0;

/// What is known of the contexts of endpoints, by the address in the config: tokens.
pub type Contexts = Arc<Mutex<BTreeMap<String, u64>>>;

/// What a lookout looks after.
pub struct Charge {
    /// The job.
    pub control: Control,
    /// Its endpoints.
    pub endpoints: Endpoints,
    /// Where outages are noted.
    pub scribe: Scribe,
    /// Contexts that servers tell of.
    pub contexts: Contexts,
    /// Addresses in the config that are called from this process: what can not be reached from here can not
    /// be called. Others may mean something in a container only.
    pub direct: BTreeSet<String>,
}

/// The sources that are read for a job: those that were named; without any the endpoints of the job, where
/// they are near.
fn sources(ear: &Ear, endpoints: &Endpoints) -> Vec<Source> {
    if !ear.sources.is_empty() || !ear.guess {
        return ear.sources.clone();
    }
    let near = endpoints.all().into_iter().map(|(_, e)| e.now().base).filter(|base| is_near(base, true));
    source::sources(&near.filter_map(|base| source::guess(&base)).collect::<Vec<_>>())
}

/// Begins to look; None where there is nothing to read.
///
/// # Errors
/// No thread.
pub fn begin(ear: Ear, charge: Charge) -> std::io::Result<Option<JoinHandle<()>>> {
    let sources = sources(&ear, &charge.endpoints);
    if sources.is_empty() && charge.endpoints.all().is_empty() {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = std::thread::Builder::new().name("lookout".into()).spawn(move || {
        let named = !ear.sources.is_empty();
        if !sources.is_empty() {
            ear.remote.read(sources.clone());
        }
        let serving = Serving::new(sources, ear.thresholds.clone());
        let watch = Watch { charge, serving, named, down: BTreeMap::new(), shut: None, near: ear.guess };
        runtime.block_on(watch.run(ear));
    })?;
    Ok(Some(thread))
}

/// An endpoint that is away.
struct Down {
    since: Stamp,
    words: String,
}

struct Watch {
    charge: Charge,
    serving: Serving,
    /// The sources were named by the operator: one that never answered counts, too.
    named: bool,
    /// An address that an endpoint moves to may be read, where it is near.
    near: bool,
    /// Endpoints that are away, by their addresses in the config; the empty one where the config names none.
    down: BTreeMap<String, Down>,
    /// What the gate was told last.
    shut: Option<String>,
}

impl Watch {
    async fn run(mut self, mut ear: Ear) {
        let mut status = self.charge.control.status();
        let mut hears = true;
        let mut ticked = Instant::now();
        loop {
            tokio::select! {
                batch = ear.heard.recv(), if hears => match batch {
                    Some(batch) => self.serving.observe_all(&batch),
                    None => hears = false,
                },
                () = tokio::time::sleep(LOOK) => {}
                changed = status.changed() => if changed.is_err() { break },
            }
            if ticked.elapsed() >= LOOK {
                ticked = Instant::now();
                self.follow(&ear);
                self.serving.tick(Stamp::now(), &Demand::default());
                self.look();
            }
        }
        let now = Stamp::now();
        let down = std::mem::take(&mut self.down);
        down.values().for_each(|down| self.note(down, now));
    }

    /// Reads an address that an endpoint was moved to.
    fn follow(&mut self, ear: &Ear) {
        for (place, (_, endpoint)) in self.charge.endpoints.all().into_iter().enumerate() {
            let now = endpoint.now();
            if now.moves == 0 || self.serving.server_at_base(&now.base).is_some() {
                continue;
            }
            let near = self.near && is_near(&now.base, true);
            if let Some(source) = source::moved_to(&now.base, place, now.moves).filter(|_| near || self.named) {
                self.serving.add(source.clone());
                ear.remote.also(source);
            }
        }
    }

    /// Judges every endpoint anew.
    fn look(&mut self) {
        let all = self.charge.endpoints.all();
        for (named, endpoint) in &all {
            let now = endpoint.now();
            let server = self.serving.server_at_base(&now.base);
            if let Some(context) = server.and_then(|s| s.limits.context) {
                let mut contexts = self.charge.contexts.lock().unwrap_or_else(PoisonError::into_inner);
                contexts.insert(named.clone(), context);
            }
            // Of an address that it moved to, other servers say nothing.
            let known = server.is_some() || now.moves == 0;
            let heard = !self.named && !self.charge.direct.contains(named);
            let away = if known { self.serving.away(Some(&now.base), heard) } else { None };
            self.take(named, away);
        }
        if all.is_empty() {
            // Agents that find their model by themselves: any server that works will do.
            let away = self.serving.away(None, !self.named);
            self.take("", away);
        }
        // An agent may have found out that nobody can call it: the key is wrong, say.
        let closed = || self.charge.endpoints.all().into_iter().find_map(|(_, e)| e.now().closed);
        let shut = self.down.values().next().map(|down| down.words.clone());
        let shut = shut.or_else(|| closed().map(|why| why.to_string()));
        if shut != self.shut && self.charge.control.gate(Gate::Endpoint, shut.as_deref()) {
            self.shut = shut;
        }
    }

    fn take(&mut self, named: &str, away: Option<Away>) {
        let now = Stamp::now();
        let endpoint = || self.charge.endpoints.all().into_iter().find(|(base, _)| base == named).map(|(_, e)| e);
        match (away, self.down.get_mut(named)) {
            (Some(away), Some(down)) => {
                down.words.clone_from(&away.words);
                // It may have been opened by a move.
                if let Some(endpoint) = endpoint() {
                    endpoint.close(Some(&away.words));
                }
            }
            (Some(away), None) => {
                if let Some(endpoint) = endpoint() {
                    endpoint.close(Some(&away.words));
                }
                let since = away.since.filter(|since| *since <= now).unwrap_or(now);
                self.down.insert(named.to_string(), Down { since, words: away.words });
            }
            (None, Some(_)) => {
                if let Some(endpoint) = endpoint() {
                    endpoint.close(None);
                }
                if let Some(down) = self.down.remove(named) {
                    self.note(&down, now);
                }
            }
            (None, None) => {}
        }
    }

    /// Notes an outage that is over, in the form in which an operator's word of one stands.
    fn note(&self, down: &Down, to: Stamp) {
        let long = crate::job::time::seconds_between(down.since, to).is_some_and(|s| s >= SHORTEST);
        if !long {
            return;
        }
        let mut note = Note::now("outage", &format!("{}/{to}", down.since), &format!("endpoint away: {}", down.words));
        note.operator = format!("pilothouse (pid {})", std::process::id());
        note.result = "noted".to_string();
        self.charge.scribe.note(note);
    }
}
