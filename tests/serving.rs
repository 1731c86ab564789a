//! Serving: log lines, clocks, polls, states and diagnoses against recordings of real servers, and against
//! servers that only look like ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "serving/beside.rs"]
mod beside;
#[path = "serving/clock.rs"]
mod clock;
#[path = "serving/events.rs"]
mod events;
#[path = "serving/fuzz.rs"]
mod fuzz;
#[path = "serving/lines.rs"]
mod lines;
#[path = "serving/live.rs"]
mod live;
#[path = "serving/pages.rs"]
mod pages;
#[path = "serving/poll.rs"]
mod poll;
#[path = "serving/router.rs"]
mod router;
#[path = "serving/screen.rs"]
mod screen;
#[path = "serving/state.rs"]
mod state;
#[path = "serving/tail.rs"]
mod tail;
