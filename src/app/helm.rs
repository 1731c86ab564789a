//! What can be steered from the screen, and what comes back: the seam between the model and whoever
//! holds the job.
//!
//! The screen knows nothing of schedulers, processes and signals. It hands an [`Order`] to the [`Helm`]
//! that the runtime holds; what becomes of it comes back as [`News`], later, by a channel. Nothing here
//! waits.

use std::path::PathBuf;
use std::sync::Arc;

use crate::job::verdict::{Outage, Word};
use crate::job::work::Work;
use crate::job::{Fleet, Job, JobFacts, JobKey, Stamp, TrialKey};
pub use crate::requeue::plan::{Ask, Plan, Prepared};
use crate::requeue::{Terms, Wanted};

/// Takes orders; never blocks. What comes of an order is told as [`News`].
pub trait Helm: Send {
    /// Hands an order over.
    fn order(&mut self, order: Order);

    /// The screen is left: waits a moment for what is still being written down.
    fn finish(&mut self) {}
}

/// How a screen stands to the jobs that it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// It only looks: a recording, a re-enactment.
    #[default]
    Reader,
    /// The jobs belong to other processes; one that is found on this host can be stopped by a signal.
    Attached,
    /// This process runs the job.
    Owner,
}

/// The signals that a stop may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGINT, as Ctrl-C does.
    Int,
}

impl Signal {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Signal::Term => "SIGTERM",
            Signal::Int => "SIGINT",
        }
    }
}

/// A wish of the operator that reaches beyond the screen. Those before [`Order::Survey`] are for the
/// owner's side.
#[derive(Debug, Clone)]
pub enum Order {
    /// So many trial slots; what runs runs on.
    Slots(usize),
    /// Begin nothing until it is resumed.
    Pause,
    /// Begin trials again.
    Resume,
    /// Cancel one running trial, by its directory's name.
    CancelTrial(String),
    /// Cancel several.
    CancelTrials(Vec<String>),
    /// Begin these before all others: names of trials or of tasks.
    First(Vec<String>),
    /// This screen steers from now on.
    TakeHelm,
    /// Probe an address for the model; nothing is changed.
    Probe(String),
    /// Call the model at this address from now on.
    Endpoint(String),
    /// Begin nothing new, let what runs end.
    Drain,
    /// Begin nothing new and cancel what runs.
    Cancel,
    /// Cancel was asked for before: wait less for what is left.
    Hurry,
    /// Look who works on a job and what a stop would touch; nothing is sent.
    Survey(Place, Arc<Job>),
    /// Send a signal to the process that a survey found, then wait for its end.
    Stop(Place, Signal),
    /// Look what a stop left behind.
    Audit(Place),
    /// Mend these findings of the last audit, by their place in it.
    Mend(Place, Vec<usize>),
    /// Write down what the operator says of trials.
    Say(Place, Speech),
    /// Make the plan of a requeue; nothing is started.
    Prepare(Box<Wish>),
    /// Start a requeue.
    Requeue(Box<Plan>),
    /// Look what a resume by Harbor would do.
    Preview(Place),
    /// End one request at its server.
    Abort(Box<Abort>),
    /// Look what is held of a trial, in this directory, for a regrade.
    LookForHeld(TrialKey, PathBuf),
    /// Run the verifier of a trial again.
    Regrade {
        /// The trial.
        trial: TrialKey,
        /// Its directory.
        dir: PathBuf,
        /// What is held of it is removed afterwards.
        release: bool,
    },
}

/// Whether the verifier of a trial can run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Regradable {
    /// It can: what is done, line by line, and in what (`container`, `snapshot`).
    Yes {
        /// What is done.
        lines: Vec<String>,
        /// In what.
        kind: String,
    },
    /// It can not.
    No {
        /// Why.
        why: String,
        /// Commands that help, and what each does.
        offers: Vec<(String, String)>,
    },
}

/// What becomes of a regrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegradeProgress {
    /// What is being done now.
    Told(Arc<str>),
    /// It has ended: `raw 0, regrade 1: reward 1`.
    Done(String),
    /// It came to nothing, and why.
    Failed(String),
}

/// A request that is to be ended at its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort {
    /// Name of the server.
    pub server: Arc<str>,
    /// URL of the worker, behind a router.
    pub worker: Option<Arc<str>>,
    /// The request's own name at the server.
    pub rid: Arc<str>,
    /// On what grounds, in words.
    pub why: String,
    /// The job in whose journal it is noted, and its id; None: in the state dir.
    pub job: Option<(Place, String)>,
}

/// Something that the screen saw, for the journal of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The act of the line.
    pub act: &'static str,
    /// What it is about.
    pub subject: String,
    /// What was seen.
    pub text: String,
}

/// What is to be run again, and on which terms.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Comes back with the answer.
    pub serial: u64,
    /// All that is known of the jobs.
    pub fleet: Arc<Fleet>,
    /// What is wanted, by job.
    pub wanted: Vec<(JobKey, Wanted)>,
    /// What the operator allows.
    pub terms: Terms,
    /// What is asked for beside the trials.
    pub ask: Ask,
}

/// What becomes of a job that runs trials again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Its process runs.
    Started {
        /// Its name.
        name: String,
        /// Where its output goes.
        log: PathBuf,
        /// Its process.
        pid: u32,
    },
    /// Its directory is there.
    Begun {
        /// Its name.
        name: String,
        /// Its directory.
        dir: PathBuf,
    },
    /// Its process has ended.
    Ended {
        /// Its name.
        name: String,
        /// How.
        words: String,
        /// Where its output is.
        log: PathBuf,
        /// As it should.
        fine: bool,
    },
    /// It was not started.
    Failed {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
}

/// What an operator says of trials of one job.
#[derive(Debug, Clone)]
pub struct Speech {
    /// Comes back with the answer.
    pub batch: u64,
    /// The job.
    pub facts: Box<JobFacts>,
    /// The words; their times are those of the screen.
    pub words: Vec<Word>,
    /// An outage to note.
    pub outage: Option<Outage>,
    /// What the screen saw.
    pub remark: Option<Remark>,
}

/// Where words went.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The file.
    pub path: PathBuf,
    /// Why it is not the journal in the job dir; None when it is.
    pub instead: Option<String>,
    /// The words as they were written.
    pub words: Vec<Word>,
}

/// Which job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its key.
    pub job: JobKey,
    /// Its directory.
    pub dir: PathBuf,
}

/// How far the owner's side is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stopping {
    /// Not at all.
    #[default]
    No,
    /// Nothing new begins.
    Draining,
    /// What runs is being cancelled.
    Cancelling,
    /// The same, with little patience.
    Hurrying,
}

/// The owner's side at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crew {
    /// Trial slots.
    pub slots: usize,
    /// Trials at work.
    pub running: usize,
    /// Trials that wait for their next attempt.
    pub waiting: usize,
    /// Trials that have not begun.
    pub queued: usize,
    /// Trials whose result stands.
    pub ended: usize,
    /// How far it is stopped.
    pub stopping: Stopping,
    /// Nothing begins until it is resumed.
    pub paused: bool,
    /// Fewer trials at a time than slots, for errors of their surroundings.
    pub limit: Option<usize>,
    /// Whether that limit has settled.
    pub settled: bool,
    /// Agents that may work at a time, where that is limited, and those at work.
    pub agents: Option<(usize, usize)>,
}

/// Why nothing begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut {
    /// What is not well: `docker`, `disk`, `endpoint`.
    pub gate: String,
    /// Why.
    pub why: String,
    /// Since when.
    pub since: Option<Stamp>,
}

/// Where a model of the job is served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Where {
    /// Its address in the job's config.
    pub named: String,
    /// Where it is now.
    pub base: String,
    /// How often it was moved.
    pub moves: u32,
    /// Why no call is made now; None: calls are made.
    pub closed: Option<String>,
}

/// What a probe of an address found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probed {
    /// The address.
    pub url: String,
    /// Where the model is called now.
    pub now: String,
    /// What was found, a line each.
    pub found: Vec<String>,
    /// What speaks against it, a line each; none: it may be moved there.
    pub problems: Vec<String>,
}

/// Who steers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Hand {
    /// This screen.
    Mine,
    /// Another one.
    Other(String),
    /// No screen.
    #[default]
    Nobody,
}

/// How the owner's job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// Every planned trial ran to its end.
    pub complete: bool,
    /// In words: what happened, what can be done.
    pub words: String,
    /// It broke off by itself: a person must look.
    pub broken: bool,
}

/// One way to stop a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The signal.
    pub signal: Signal,
    /// What it does to this process, and what it costs.
    pub price: String,
}

/// Who works on a job, and what a stop would touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Process id on this host.
    pub pid: u32,
    /// Its command line and where it runs, a line each.
    pub process: Vec<String>,
    /// What runs and what stays behind, a line each.
    pub touched: Vec<String>,
    /// What to beware of, a line each.
    pub warnings: Vec<String>,
    /// The ways to stop it, the advised one first.
    pub ways: Vec<Way>,
}

/// How the wait for the end of a process stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waiting {
    /// What is still there, a line each.
    pub left: Vec<String>,
    /// When patience ends; nothing is killed then.
    pub until: Option<Stamp>,
    /// Patience has ended and it still runs.
    pub expired: bool,
}

/// One thing that a stop left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing, in one or two words.
    pub kind: String,
    /// Which one: a directory, a container, a network.
    pub what: String,
    /// How it was told, or why it matters.
    pub why: String,
    /// What mending does; None when it can not be mended from here.
    pub mend: Option<String>,
    /// What mending it came to, once it was tried.
    pub mended: Option<Result<String, String>>,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Counts of what was looked for, those of nothing too: `0 phantoms, 0 containers left`.
    pub summary: String,
    /// The findings.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
    /// What to do next: how the job is resumed.
    pub next: Option<String>,
}

/// What comes back.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// The owner's side stands so.
    Crew(Crew),
    /// Nothing begins for these; none: everything is well.
    Shut(Vec<Shut>),
    /// What changed of what trials at work do, by name; None: not at work any more.
    Work(Vec<(Arc<str>, Option<Work>)>),
    /// Where the models of its agents are served, as the owner has it.
    Endpoints(Vec<Where>),
    /// What a probe found, or why there was none.
    Probed(Result<Probed, String>),
    /// Who steers.
    Hand(Hand),
    /// The owner's side can not be heard any more.
    Unlinked,
    /// What somebody did.
    Told(String),
    /// The child that this screen watches has ended, in words.
    ChildEnded(String),
    /// The owner's job is over.
    Over(Over),
    /// The survey of a job; the reason when nobody was found or may be stopped.
    Surveyed(JobKey, Result<Survey, String>),
    /// The signal was sent and the wait goes on.
    Waiting(JobKey, Waiting),
    /// The signal was not sent, and why: it runs on.
    NotSent(JobKey, String),
    /// The process has ended, in words.
    Stopped(JobKey, String),
    /// What an audit found, or why there is none.
    Audited(JobKey, Result<Audit, String>),
    /// What became of one finding.
    Mended(JobKey, usize, Result<String, String>),
    /// What became of a speech, by its batch.
    Said(JobKey, u64, Result<Said, String>),
    /// The plan that was asked for by that number.
    Prepared(u64, Box<Prepared>),
    /// What becomes of a requeue.
    Requeue(Progress),
    /// What a resume by Harbor would do, in lines; or why that can not be told.
    Previewed(JobKey, Result<String, String>),
    /// What became of an abort, in words.
    Aborted(Result<String, String>),
    /// What is held of a trial.
    Held(TrialKey, Regradable),
    /// What becomes of a regrade.
    Regrade(TrialKey, RegradeProgress),
    /// An order was not obeyed, and why.
    Refused(String),
}
