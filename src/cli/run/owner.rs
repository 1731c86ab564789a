//! The owner of a job: a thread of its own that runs it to its end, whoever watches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::lookout::{self, Charge, Contexts};
use super::prepare::{Kind, Prepared, Refusal, scratch_of};
use super::resume::Taken;
use crate::agent;
use crate::audit::scratch;
use crate::cli::ctl::endpoint::Movable;
use crate::cli::ctl::helm::HelmOf;
use crate::cli::ctl::scribe::Scribe;
use crate::cli::ctl::server::{Port, Ship};
use crate::cli::servers::Ear;
use crate::environment::OwnerLabel;
use crate::environment::docker::{Address, DockerEngine, Isolation};
use crate::harbor::Dir;
use crate::harbor::write::config::AgentConfig;
use crate::harbor::write::lease::LeaseNote;
use crate::harbor::write::{Claimant, JobWriter, WriteError};
use crate::job::{JobFacts, Stamp};
use crate::journal::{self, Note};
use crate::model::endpoint::Endpoints;
use crate::scheduler::adaptive::{Adapted, Pace};
use crate::scheduler::hold::{HoldTerms, Holder};
use crate::scheduler::{
    Control, DockerPlaces, Event, Finished, Hear, Job, LocalPlaces, Manners, Places, Plan, RunError,
};

/// After the job's end, for what still runs aside.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Takes a line about what happens before the first trial.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// How a job is run.
pub struct Terms {
    /// Who asks for the lease, and how often it shows that it lives.
    pub who: Claimant,
    /// Where scratch directories go; the state dir when None.
    pub scratch: Option<PathBuf>,
    /// Look at images, disk and the like before the first trial.
    pub preflight: bool,
    /// Run one trial first, and stop when it fails for its surroundings or the config.
    pub smoke: bool,
    /// Hears of what happens before the first trial, and of what the job does by itself.
    pub tell: Tell,
    /// Least free bytes on the disks that are written to; 0: no such floor.
    pub disk_floor: u64,
    /// Fewer trials at a time while their surroundings fail.
    pub adaptive: bool,
    /// What the model servers do; None: nobody looks after the endpoints.
    pub ear: Option<Ear>,
    /// An agent's clock stands still while it waits for an endpoint that is away.
    pub pause_clock: bool,
    /// Which containers outlive their trials; None: none.
    pub hold: Option<HoldTerms>,
}

/// A job at work.
pub struct Owner {
    /// Steers it.
    pub control: Control,
    /// Its directory.
    pub dir: PathBuf,
    /// Its UUID.
    pub id: String,
    /// How it ended; can be taken once.
    pub done: oneshot::Receiver<Ended>,
    /// True when it stopped after its first trial.
    pub smoke_failed: Arc<AtomicBool>,
    /// What others can steer of it, and who does.
    pub ship: Ship,
    /// The socket for others; None where there could be none.
    port: Option<Port>,
    /// Looks after the endpoints; None: nobody does.
    lookout: Option<JoinHandle<()>>,
    thread: JoinHandle<()>,
}

/// How a job ended, and what could not be cleared away afterwards, a line each.
pub type Ended = (Result<Finished, RunError>, Vec<String>);

/// The job dir is there: who steers it.
struct Begun {
    control: Control,
    dir: PathBuf,
    id: String,
    scribe: Scribe,
    endpoints: Endpoints,
    agents: Vec<AgentConfig>,
}

/// Begins a job and returns when its directory is there.
///
/// # Errors
/// Why it did not begin, with the remedy; nothing is left of it then.
pub fn start(prepared: Prepared, mut terms: Terms) -> Result<Owner, Refusal> {
    let ear = terms.ear.take();
    let (tell_begun, begun) = std::sync::mpsc::sync_channel(1);
    let (tell_done, done) = oneshot::channel();
    let smoke_failed = Arc::new(AtomicBool::new(false));
    let failed = smoke_failed.clone();
    let tell = terms.tell.clone();
    let fail = |e: std::io::Error| Refusal::of(&format!("can not start the job: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
    let thread = std::thread::Builder::new()
        .name("owner".into())
        .spawn(move || {
            let ended = runtime.block_on(async {
                let Working { job, places, begun: now, smoke, tell, holder } = match begin(prepared, terms).await {
                    Ok(begun) => begun,
                    Err(refusal) => {
                        let _ = tell_begun.send(Err(refusal));
                        return None;
                    }
                };
                let (control, dir) = (now.control.clone(), now.dir.clone());
                // Nobody to hear it is no reason to leave the job alone.
                let _ = tell_begun.send(Ok(now));
                let ended = match smoke {
                    None => job.run().await,
                    Some(Smoke { trial, slots }) => {
                        let watched = super::smoke::watch(control, &dir, &trial, slots, &failed, &tell);
                        tokio::join!(job.run(), watched).0
                    }
                };
                let left = places.close().await;
                // A screen has other things to show.
                if let Some(holder) = holder.filter(|_| !crate::tty::guard::is_entered()) {
                    holder.summary().await.iter().for_each(|line| tell(line));
                }
                Some((ended, left))
            });
            runtime.shutdown_timeout(SHUTDOWN);
            if let Some((ended, left)) = ended {
                match &ended {
                    Ok(finished) => tracing::info!(?finished, "the job is over"),
                    Err(error) => tracing::error!(%error, "the job broke off"),
                }
                let _ = tell_done.send((ended, left));
            }
        })
        .map_err(fail)?;
    match begun.recv() {
        Ok(Ok(Begun { control, dir, id, scribe, endpoints, agents })) => {
            let helm = HelmOf::default();
            let whole = std::path::absolute(&dir).unwrap_or_else(|_| dir.clone());
            let contexts = Contexts::default();
            let lookout = ear.map(|ear| {
                let charge = Charge {
                    control: control.clone(),
                    endpoints: endpoints.clone(),
                    scribe: scribe.clone(),
                    contexts: contexts.clone(),
                    direct: called_from_here(&agents),
                };
                lookout::begin(ear, charge)
            });
            let lookout = lookout.transpose().map(Option::flatten);
            let lookout = lookout
                .inspect_err(|error| tell(&format!("nobody looks after the model servers: no thread: {error}")))
                .unwrap_or_default();
            let endpoints = Movable::new(endpoints, agents, contexts, super::prober::prober());
            let ship = Ship { control: control.clone(), dir: whole, id: id.clone(), helm, scribe, endpoints };
            let port = Port::open(ship.clone(), crate::cli::state_dir().as_deref());
            let port = port.inspect_err(|why| tell(&format!("pilothouse ctl can not steer this job: {why}"))).ok();
            Ok(Owner { control, dir, id, done, smoke_failed, ship, port, lookout, thread })
        }
        Ok(Err(refusal)) => {
            let _ = thread.join();
            Err(refusal)
        }
        // The panic's own message is printed by the hook.
        Err(_) => Err(Refusal::of("the job's thread fell over before it began")),
    }
}

impl Owner {
    /// Whether somebody looks after its endpoints.
    pub fn looks_after(&self) -> bool {
        self.lookout.is_some()
    }

    /// Waits for the thread, once `done` has been heard from.
    pub fn join(self) {
        let _ = self.thread.join();
        drop(self.port);
        let _ = self.lookout.map(JoinHandle::join);
        self.ship.scribe.finish();
    }
}

/// A job that has begun.
struct Working {
    job: Job,
    places: Open,
    begun: Begun,
    smoke: Option<Smoke>,
    tell: Tell,
    /// Holds containers beyond their trials.
    holder: Option<Arc<Holder>>,
}

/// The trial that goes first, and the slots after it.
struct Smoke {
    trial: String,
    slots: usize,
}

async fn begin(prepared: Prepared, terms: Terms) -> Result<Working, Refusal> {
    let Prepared { plan, kind, again, .. } = prepared;
    let resumed = again.is_some();
    let refuse = |e: WriteError| Refusal::of(&e.to_string());
    let of_engine = |e: crate::environment::EnvError| Refusal::of(&e.to_string());
    let engine = match kind {
        Kind::Docker => Some(DockerEngine::connect().await.map_err(of_engine)?),
        Kind::Local => None,
    };
    let mut image = None;
    let slots = u64::from(plan.config.n_concurrent_trials).min(plan.trials.len() as u64);
    super::descriptors::own(slots, &terms.tell);
    if terms.preflight {
        if let Some(Address::Unix(socket)) = engine.as_ref().map(DockerEngine::address) {
            super::descriptors::engine(Path::new(socket), slots, &terms.tell).await;
        }
        super::preflight::disk(&plan.dir(), &terms.tell)?;
        super::preflight::model::look(&plan, &terms.tell).await?;
        if let Some(engine) = &engine {
            image = super::preflight::docker(engine, &plan, &terms.tell).await?;
            super::holding::list(engine, crate::cli::state_dir().as_deref(), &terms.tell).await;
        }
    }
    // The directory comes first: whatever is made after it can be found by its id.
    let (plan, mut writer) = match again {
        None => {
            let writer = plan.begin(&terms.who).map_err(refuse)?;
            (plan, writer)
        }
        Some(again) => {
            let Taken { plan, folder, lease } = super::resume::take(again, kind, &terms).await?;
            let writer = plan.go_on(folder, lease, Stamp::now()).map_err(refuse)?;
            (plan, writer)
        }
    };
    let (id, dir) = (plan.id.clone(), plan.dir());
    let agents = plan.config.agents.clone();
    let holding = engine.clone().zip(terms.hold);
    let places = match Open::new(engine, &plan, &writer, terms.scratch).await {
        Ok(places) => places,
        Err(refusal) => {
            let _ = writer.give_up(Stamp::now());
            return Err(refusal);
        }
    };
    let slots = usize::try_from(plan.config.n_concurrent_trials).unwrap_or(usize::MAX);
    if slots > 1 && plan.trials.len() > 1 {
        places.probe(image, terms.tell.clone());
    }
    let first = plan.trials.first().map(|trial| trial.config.trial_name.clone());
    let smoke = first.filter(|_| terms.smoke).map(|trial| Smoke { trial, slots });
    match Job::with(plan, writer, &terms.who, places.places()) {
        Ok((mut job, control)) => {
            if smoke.is_some() {
                job.first_alone();
            }
            if resumed {
                follow_moves(&job.endpoints(), &dir, &id, &terms.tell);
            }
            let scribe = Scribe::begin(&dir, &id, crate::cli::state_dir());
            // The list of all jobs has it from now on.
            if let Err(why) = crate::cli::remembered::attached(&[crate::cli::remembered::real(&dir)]) {
                tracing::warn!(why, "the job is not remembered");
            }
            let scribe = scribe.map_err(|e| Refusal::of(&format!("no thread for the journal: {e}")))?;
            let (notes, tell) = (scribe.clone(), terms.tell.clone());
            let hear: Hear = Arc::new(move |event| {
                // A screen shows it by itself.
                if !crate::tty::guard::is_entered() {
                    tell(&format!("{:.0}  {}", Stamp::now(), event.words()));
                }
                if let Some(note) = note_of(event) {
                    notes.note(note);
                }
            });
            let adaptive = terms.adaptive.then(Pace::default);
            let (disk_floor, pause_clock) = (terms.disk_floor, terms.pause_clock);
            let holder = match holding {
                Some((engine, hold)) => {
                    let (notes, tell) = (scribe.clone(), terms.tell.clone());
                    let holder =
                        super::holding::holder(hold, (&id, &dir), (&engine, resumed), places.places(), notes, tell)
                            .await;
                    let keeper = Arc::clone(&holder);
                    // It ends with the runtime.
                    tokio::spawn(async move { keeper.keep_age().await });
                    Some(holder)
                }
                None => None,
            };
            job.mind(Manners { disk_floor, adaptive, pause_clock, hear: Some(hear), holder: holder.clone() });
            let begun = Begun { control, id, dir, scribe, endpoints: job.endpoints(), agents };
            Ok(Working { job, places, begun, smoke, tell: terms.tell, holder })
        }
        Err(error) => {
            places.close().await;
            Err(Refusal::of(&error.to_string()))
        }
    }
}

/// What the journal says of something that the job did by itself: it is part of what was measured.
fn note_of(event: &Event) -> Option<Note> {
    let own = |act: &str, subject: &str, why: &str, result: String| {
        let mut note = Note::now(act, subject, why);
        note.operator = format!("pilothouse (pid {})", std::process::id());
        note.result = result;
        note
    };
    Some(match event {
        Event::Closed(c) => own("gate", c.gate.word(), &c.why, format!("closed at {}: nothing begins", c.since)),
        Event::Opened(c, at, over) => {
            let what = if *over { "closed until the job's end" } else { "open again" };
            own("gate", c.gate.word(), &c.why, format!("{what}: closed from {} to {at}", c.since))
        }
        Event::Adapted(Adapted::Changed { from, to, why }) => {
            own("adaptive", &to.to_string(), why, format!("n {from} -> {to}"))
        }
        Event::Adapted(Adapted::Settled { at, why }) => {
            own("adaptive", &at.to_string(), why, format!("settled at n {at}"))
        }
        Event::PutBack(trial, why) => {
            let mut note = own("put_back", trial, why, "not begun; at the front of the queue again".to_string());
            note.trial = Some(trial.clone());
            note
        }
    })
}

/// The place of a job's trials, open.
pub(super) struct Open {
    docker: Option<Arc<DockerPlaces>>,
    scratch: Option<PathBuf>,
}

impl Open {
    /// Opens it: makes the network or the scratch directory.
    ///
    /// # Errors
    /// With the remedy.
    async fn new(
        engine: Option<DockerEngine>,
        plan: &Plan,
        writer: &JobWriter,
        scratch: Option<PathBuf>,
    ) -> Result<Open, Refusal> {
        match engine {
            None => {
                let root = match scratch {
                    Some(root) => root,
                    None => scratch_of(&plan.id)?,
                };
                let recorded =
                    private(&root).and_then(|()| scratch::record(&root, &owner_label(writer.lease(), &plan.dir())));
                recorded.map_err(|e| Refusal::of(&format!("{}: {e}", root.display())))?;
                Ok(Open { docker: None, scratch: Some(root) })
            }
            Some(engine) => {
                let refuse = |e: crate::environment::EnvError| Refusal::of(&e.to_string());
                let owner = owner_label(writer.lease(), &plan.dir()).to_string();
                let places = DockerPlaces::open(engine, plan, &owner).await.map_err(refuse)?;
                Ok(Open { docker: Some(Arc::new(places)), scratch: None })
            }
        }
    }

    /// Asks, beside the first trials, whether this host keeps containers of the job apart.
    fn probe(&self, image: Option<String>, tell: Tell) {
        let (Some(docker), Some(image)) = (self.docker.clone(), image) else { return };
        tokio::spawn(async move {
            match docker.probe_isolation(&image).await {
                Ok(Some(Isolation::NotEnforced)) => {
                    tell("this host does not keep the containers of the job apart: they can reach each other");
                }
                Ok(found) => tracing::info!(?found, "traffic between trials"),
                Err(error) => tracing::warn!(%error, "traffic between trials: not known"),
            }
        });
    }

    pub(super) fn places(&self) -> Arc<dyn Places> {
        match (&self.docker, &self.scratch) {
            (Some(docker), _) => docker.clone(),
            (None, root) => Arc::new(LocalPlaces { root: root.clone().unwrap_or_default() }),
        }
    }

    /// Clears it away; gives what could not be, a line each.
    pub(super) async fn close(&self) -> Vec<String> {
        let mut left = Vec::new();
        if let Some(docker) = &self.docker
            && let Err(e) = docker.close().await
        {
            left.push(e.to_string());
        }
        if let Some(root) = &self.scratch {
            // Only when nothing is left in it.
            if let Err(e) = std::fs::remove_dir(root)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                left.push(format!("{}: {e}", root.display()));
            }
            scratch::forget(root);
        }
        left
    }
}

/// Endpoints that were moved when the job ran before are where they were moved to.
fn follow_moves(endpoints: &Endpoints, dir: &Path, id: &str, tell: &Tell) {
    let facts = JobFacts { id: Some(id.into()), dir: dir.to_path_buf(), ..JobFacts::default() };
    let Ok(open) = Dir::open(dir) else { return };
    for (from, to) in journal::moves(&open, &facts, crate::cli::state_dir().as_deref()) {
        for (_, endpoint) in endpoints.all() {
            if *endpoint.now().base == *from && from != to {
                endpoint.move_to(&to);
                tell(&format!("the model is called at {to}: moved there from {from} when the job ran before"));
            }
        }
    }
}

/// Addresses that agents call from this process.
fn called_from_here(agents: &[AgentConfig]) -> BTreeSet<String> {
    let asks = |a: &&AgentConfig| agent::asks_a_model(a.name.as_deref().unwrap_or_default());
    let bases = agents.iter().filter(asks).filter_map(agent::base);
    bases.map(|base| base.trim().trim_end_matches('/').to_string()).collect()
}

/// Makes a directory that is only for this user, with those above it.
fn private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Who makes what the labels are on, in the words of its lease.
fn owner_label(lease: &LeaseNote, dir: &Path) -> OwnerLabel {
    OwnerLabel {
        pid: lease.pid,
        started: lease.started,
        boot_id: lease.boot_id.clone(),
        pid_namespace: lease.pid_namespace.clone(),
        host: lease.host.clone(),
        job_dir: std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf()),
    }
}
