//! THE DOMAIN, pure: jobs, trials, phases, outcomes, slots, scores. No I/O, no clock, no screen.

pub mod alarms;
pub mod class;
pub mod compare;
pub mod drift;
pub mod effort;
pub mod eta;
pub mod event;
pub mod facts;
pub mod fleet;
pub mod host;
pub mod merge;
pub mod outcome;
mod overlay;
pub mod phase;
pub mod policy;
pub mod process;
pub mod regrade;
pub mod rerun;
pub mod roster;
pub mod scores;
pub mod settings;
pub mod slots;
pub mod tally;
pub mod text;
pub mod time;
pub mod trial;
pub mod verdict;
pub mod warnings;
pub mod work;

pub use alarms::Limits as AlarmLimits;
pub use class::{Class, Classification, Excerpt, Flag};
pub use event::JobEvent;
pub use facts::{Harness, JobFacts, JobSummary, Layout, Liveness, Planned, Stray};
pub use fleet::{Fleet, Job, JobState, StateKind};
pub use outcome::{Exception, Grade, RewardValue, Rewards};
pub use phase::{Phase, Writer};
pub use regrade::{Regrade, Regrades};
pub use time::Stamp;
pub use trial::{
    EarlyException, EarlyReward, Evidence, FileFact, JobKey, LimitSource, Limits, Problem, ProblemKind, Progress, Span,
    Spans, TestCounts, Tokens, Trial, TrialKey, TrialResult,
};
pub use verdict::{Notebook, Outage, Requeued, Verdict, Word};
