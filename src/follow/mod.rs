//! Live knowledge of job dirs: what is there, what changes, who works on it.
//!
//! A [`Follower`] reads the directories that the operator names and reports everything as
//! [`JobEvent`]s, each with the whole new state of what it names. Nothing is written or locked below a
//! job dir.
//!
//! | part | what it knows |
//! |---|---|
//! | [`discover`] | what a directory is: job, jobs dir, trial |
//! | `roots` | the directories that were named, and jobs that appear in them |
//! | `scan` | one job: its own files, its trials, its state between two looks |
//! | `probe`, `evidence` | one look at one trial |
//! | `classic` | one run of classic terminal-bench, and one look at a trial of it |
//! | `limits` | where a trial's task lies and what it allows |
//! | `watch`, `live` | change events, deadlines, the loop |
//! | `poll` | how often to look where events can not be believed |
//! | [`fstype`] | whether they can |
//! | [`owner`] | the process that works on a job |
//! | [`roster`] | all jobs below some directories, from their own files, each root on a thread of its own |
//! | [`told`] | which job dir a Harbor was told by its command line |

mod classic;
pub mod discover;
mod evidence;
pub mod fstype;
mod limits;
mod live;
pub mod owner;
mod poll;
mod probe;
mod roots;
pub mod roster;
mod scan;
pub mod told;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use probe::Counters;

use crate::job::{JobEvent, TrialKey};
use roots::Root;
use scan::{Env, Followed, Which};
use watch::Mailbox;

/// Takes a batch of events; false when the receiver is gone, which ends the follower.
pub type Sink<'a> = dyn FnMut(Vec<JobEvent>) -> bool + 'a;

/// A [`Sink`] that can go to the follower's own thread.
pub type OwnedSink = Box<dyn FnMut(Vec<JobEvent>) -> bool + Send>;

/// Events that are collected before they are handed on.
const BATCH: usize = 512;
/// The longest that an event waits for others during a first pass.
const BATCH_TIME: Duration = Duration::from_millis(40);
/// How old a torn file may be for [`Follower::scan_once`] to wait for its writer, and how long it
/// waits.
const PATIENCE: Duration = Duration::from_millis(300);

/// How to follow.
#[derive(Debug, Clone)]
pub struct Options {
    /// Forces polling, with this time between two looks at running trials; None decides by file
    /// system.
    pub poll: Option<Duration>,
    /// False never watches, so that everything is polled at the usual pace.
    pub watch: bool,
    /// Whether to look for the process that works on a job.
    pub owner: bool,
    /// The state dir, below which journals lie that could not lie with their jobs; None reads none.
    pub state_dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options { poll: None, watch: true, owner: true, state_dir: None }
    }
}

/// What the operator's side tells the follower.
#[derive(Debug, Clone, PartialEq)]
pub enum Control {
    /// This trial is being looked at (or none): it is polled faster.
    Visible(Option<TrialKey>),
    /// Everything is to be looked at now.
    Rescan,
    /// This job dir, or directory of job dirs, is to be followed, too.
    Follow(PathBuf),
}

/// A handle for other threads.
#[derive(Debug, Clone)]
pub struct Remote {
    mailbox: Arc<Mailbox>,
}

impl Remote {
    /// Sends a message; a newer one of a kind replaces the older, but for [`Control::Follow`].
    pub fn send(&self, message: Control) {
        self.mailbox.control(message);
    }

    /// Ends [`Follower::run`] soon.
    pub fn stop(&self) {
        self.mailbox.stop();
    }
}

/// Follows job dirs.
#[derive(Debug)]
pub struct Follower {
    roots: Vec<Root>,
    jobs: Vec<Followed>,
    env: Env,
    options: Options,
    mailbox: Arc<Mailbox>,
}

impl Follower {
    /// Follows `roots`: job dirs, directories of job dirs, trial dirs. Nothing is touched yet.
    pub fn new(roots: Vec<PathBuf>, options: Options) -> Follower {
        Follower {
            roots: roots.into_iter().map(Root::new).collect(),
            jobs: Vec::new(),
            env: Env::new(options.state_dir.clone()),
            options,
            mailbox: Arc::default(),
        }
    }

    /// A handle to stop it and to tell it what the operator looks at.
    pub fn remote(&self) -> Remote {
        Remote { mailbox: self.mailbox.clone() }
    }

    /// Diagnostics.
    pub fn counters(&self) -> Arc<Counters> {
        self.env.counters.clone()
    }

    /// One complete look at everything: for headless use. A file that is torn and was written just
    /// now is tried again for up to 300 ms, then reported as it is.
    pub fn scan_once(&mut self, sink: &mut dyn FnMut(Vec<JobEvent>) -> bool) {
        let mut out = Out::new(sink);
        self.look_for_jobs(&mut out);
        let Follower { jobs, env, options, .. } = self;
        for job in jobs.iter_mut() {
            if options.owner {
                job.find_owner(env, &mut out);
            }
            job.pass(env, Which::All, false, &mut out);
            if out.is_closed() {
                return;
            }
        }
        out.flush();
        let begin = Instant::now();
        // What is due later than this is no torn file.
        let soon = |job: &Followed| job.due().is_some_and(|due| due <= Instant::now() + Duration::from_secs(3));
        while jobs.iter().any(soon) && begin.elapsed() < PATIENCE {
            std::thread::sleep(PATIENCE / 6);
            for job in jobs.iter_mut().filter(|j| soon(j)) {
                let names = job.due_names(None);
                job.again(env, &names, false, &mut out);
            }
        }
        for job in jobs.iter_mut().filter(|j| soon(j)) {
            let names = job.due_names(None);
            job.again(env, &names, true, &mut out);
            job.emit_liveness(&mut out, true);
        }
        out.flush();
    }

    /// One look at everything without waiting for anybody: what the live loop does when events were
    /// lost. For tests and for those who bring their own loop.
    pub fn pass(&mut self, sink: &mut dyn FnMut(Vec<JobEvent>) -> bool) {
        let mut out = Out::new(sink);
        self.look_for_jobs(&mut out);
        for job in &mut self.jobs {
            job.pass(&self.env, Which::All, false, &mut out);
        }
        out.flush();
    }

    /// Looks at the roots; attaches the jobs that are new.
    fn look_for_jobs(&mut self, out: &mut Out<'_>) {
        for i in 0..self.roots.len() {
            self.look_at_root(i, out);
        }
        out.flush();
    }
}

/// Events on their way to the sink.
pub(crate) struct Out<'a> {
    batch: Vec<JobEvent>,
    sink: &'a mut Sink<'a>,
    flushed: Instant,
    closed: bool,
    mailbox: Option<Arc<Mailbox>>,
}

impl<'a> Out<'a> {
    fn new(sink: &'a mut Sink<'a>) -> Out<'a> {
        Out { batch: Vec::new(), sink, flushed: Instant::now(), closed: false, mailbox: None }
    }

    fn push(&mut self, event: JobEvent) {
        self.batch.push(event);
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        if !self.batch.is_empty() && !self.closed {
            self.closed = !(self.sink)(std::mem::take(&mut self.batch));
        }
    }

    /// True when what was collected has waited long enough.
    fn is_due(&self) -> bool {
        !self.batch.is_empty() && self.flushed.elapsed() >= BATCH_TIME
    }

    /// True once the receiver is gone or a stop was asked for.
    fn is_closed(&self) -> bool {
        self.closed || self.mailbox.as_ref().is_some_and(|m| m.stopped())
    }
}

/// Why a directory can not be reached, in words.
fn errno_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => "no such directory".to_string(),
        ErrorKind::NotADirectory => "not a directory".to_string(),
        ErrorKind::PermissionDenied => "permission denied".to_string(),
        ErrorKind::StaleNetworkFileHandle => "stale file handle (the server does not know it any more)".to_string(),
        ErrorKind::NotConnected => "the mount is not connected any more".to_string(),
        ErrorKind::TimedOut => "the server does not answer".to_string(),
        _ => error.to_string(),
    }
}
