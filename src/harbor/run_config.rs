//! The config of a run: what an operator writes (YAML, JSON, flags) and what Harbor dumps, in one type.
//!
//! | file | what it holds |
//! |---|---|
//! | [`types`](self) | [`RunConfig`] and its parts: every field of Harbor 0.21 and 0.26, with defaults |
//! | `flags` | [`RunFlags`]: the command line of `harbor run` |
//! | `resolve` | [`resolve`]: configs, then flags; [`read_config`] for a single file |
//! | `layers`, `yaml_text`, `json_text`, `node` | files as values that know file and line |
//! | `read`, `reader` | from values to types; unknown keys are errors |
//! | `print`, `emit`, `secrets` | the full form, without secrets |
//! | `unsupported` | what Harbor would do and pilothouse can't, by name |
//! | `retry` | which exceptions are retried, by version |
//! | `names` | names of jobs and trials, order of trials |
//!
//! Harbor skips keys that it does not know; here they are errors, since a mistyped key is a job run with
//! the wrong settings. Where Harbor itself leaves a flag out of account (`-m` without `-a`, filters beside
//! a single task), that is an error, too.

mod emit;
mod env_file;
mod flags;
mod json_text;
mod layers;
mod names;
mod node;
mod print;
mod read;
mod reader;
mod resolve;
mod retry;
mod secrets;
mod types;
mod unsupported;
mod yaml_text;

pub use crate::job::policy::{ErrorPolicy, ErrorPolicyOverride};
pub use flags::{HarborOnly, RunFlags};
pub use layers::{Format, read as read_layer};
pub use names::{ALPHABET, Planned, job_name, plan, task_short_name, trial_name};
pub use node::{Entry, Node, Place, Problem, Value};
pub use print::{Env, Printed};
pub use resolve::{ConfigError, Host, Resolved, read_config, read_file, resolve};
pub use retry::{HarborVersion, default_excludes, policy, retryable};
pub use secrets::{is_sensitive_name, template_name};
pub use types::*;
pub use unsupported::{SETTINGS, Unsupported, WAY, unsupported, unsupported_beside};
