//! What producers tell the reducer about jobs.

use std::sync::Arc;

use super::class::Classification;
use super::facts::{JobFacts, Liveness};
use super::trial::{JobKey, Problem, Trial};
use super::verdict::Notebook;

/// One change of what is known. Every event carries the whole new state of what it names, so that
/// repeating or losing one can not corrupt the sum.
#[derive(Debug, Clone)]
pub enum JobEvent {
    /// A job was found or its own files changed.
    Job(JobKey, Box<JobFacts>),
    /// Signs of life changed.
    Liveness(JobKey, Liveness),
    /// A trial was found or changed.
    Trial(JobKey, Box<Trial>),
    /// A trial's directory vanished (a retry deletes it, a resume too).
    TrialGone(JobKey, Arc<str>),
    /// The job dir can not be reached at the moment; what is known stays.
    Unreachable(JobKey, Problem),
    /// The job dir is back.
    Reachable(JobKey),
    /// Scan progress: trials read so far, directories known.
    Scanning(JobKey, u32, u32),
    /// Everything in the job dir has been read once.
    Settled(JobKey),
    /// The class of a trial was found; None takes it back.
    Class(JobKey, Arc<str>, Option<Arc<Classification>>),
    /// What operators said of the job's trials: the whole of it.
    Notebook(JobKey, Box<Notebook>),
    /// Something that belongs to no job: a root that is no job dir, say.
    Problem(Problem),
}
