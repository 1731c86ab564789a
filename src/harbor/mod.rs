//! Harbor on disk: tolerant readers of every file of a job dir, Harbor 0.1 to 0.26. Bytes in, types
//! out; [`dir`] is the only part of them that touches the file system. [`mod@write`] writes job dirs of our
//! own.
//!
//! [`classic`] reads what classic terminal-bench left, which is told as the same types.
//!
//! Harbor writes every file by truncating it and writing in place, so an empty or torn file is an
//! everyday event: [`FileProblem::may_heal`] tells those apart from files that stay wrong.

pub mod classic;
pub mod config;
pub mod ctrf;
pub mod dir;
pub mod early;
pub mod job_files;
mod json;
mod json_scan;
pub mod manifest;
pub mod particulars;
pub mod regrade;
pub mod result;
pub mod run_config;
pub mod settings;
mod step;
pub mod task;
pub mod test_output;
pub mod trajectory;
pub mod write;

pub use config::{
    LimitInputs, StepToml, TaskToml, TrialConfigFile, limit_from_message, limits, limits_of_step, task_cache,
    task_dir_candidates, task_toml, trial_config,
};
pub use dir::{Dir, Entry, EntryKind, FileBytes, Meta, OpenError};
pub use early::{exception_kind, reward_json, reward_txt};
pub use job_files::{Parsed, job_facts, job_facts_parsed, merge_last_good};
pub use json::{FileProblem, ProblemReason};
pub use particulars::{Calls, FullException, Particulars, StepParticulars, particulars};
pub use result::{TrialResultFile, trial_result};
pub use task::{Task, TaskProblem};
pub use trajectory::{TrajectoryIndex, progress, trajectory_files};
