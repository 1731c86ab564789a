//! `pilothouse harbor`: words passed on untouched, remarks with remedies, a child that outlives its screen
//! and is found again; and the alarm for jobs that are busy with what has a score already.
//!
//! The part with real Harbor needs `PILOTHOUSE_HARBOR_0_21` and `PILOTHOUSE_HARBOR_0_26`, Docker with the
//! images of the recorded data, and python3: a minute or more for each version, most of it waiting.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "supervise/alarm.rs"]
mod alarm;
#[path = "supervise/child.rs"]
mod child;
#[path = "supervise/fake.rs"]
mod fake;
#[path = "supervise/real.rs"]
mod real;
#[path = "supervise/said.rs"]
mod said;
#[path = "supervise/screen.rs"]
mod screen;
