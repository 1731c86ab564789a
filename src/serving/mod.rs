//! The model side of a run: SGLang, vLLM and the router before them, on one clock with the trials.
//!
//! A *source* is one thing that is read: a URL that is polled or a log that is tailed. What it says
//! becomes an [`Observation`], with the time at which it was so. [`Serving`] takes observations and
//! the side of the trials ([`Demand`]), and holds *replicas* (one per server, worker and rank) with
//! their history, and *diagnoses*. It is pure: the clock is an argument, nothing in it reads or waits.
//!
//! Formats, versions and thresholds were measured on sglang 0.3-0.5.23, vllm 0.6-0.32 and
//! sglang-router 0.3.2; where a rule of reading needs a reason, it stands beside the rule.

pub mod clock;
pub mod join;
pub mod line;
pub mod page;
mod poll;
mod reach;
pub mod rids;
mod rules;
mod series;
pub mod source;
mod state;
mod tail;
pub mod thinking;
mod thresholds;
mod types;

pub use reach::Away;
pub use series::Track;
pub use state::{Arithmetic, Calm, Field, LogLine, Reading, Replica, RouterView, Server, Serving, SourceView};
pub use thresholds::{Thinking, Thresholds, ThresholdsError};
pub use types::*;
