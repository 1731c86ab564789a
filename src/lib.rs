//! Pilothouse: a terminal control room for live agent-benchmark runs.
//!
//! # The map of the house
//!
//! | room | what happens in it | may look into |
//! |---|---|---|
//! | [`job`] | THE DOMAIN, pure: job, trial, phase, outcome, slot, tally, scores, ETA, events | nothing |
//! | [`harbor`] | Harbor on disk: tolerant readers of every file of a job dir, bytes in, types out; `classic`: those of terminal-bench; `write`: the writer | `job` |
//! | [`cast`] | asciicast v1-v3: read, index, keyframes, player (the clock is an argument), screen | `job::text` |
//! | [`environment`] | where a trial happens: a container ([`environment::docker`], the only place that knows the Docker client) or a scratch directory | `job`, `harbor` |
//! | [`terminal`] | the agent's terminal in a trial: keys, screen, what is new, recording | `job`, `harbor`, `cast`, `environment` |
//! | [`model`] | the model as an agent asks it: chat completions, what can go wrong by kind, retries, the endpoint | `job` |
//! | [`agent`] | who works in a trial: oracle, nop, scripted, terminus, programs described by a file | `job`, `harbor`, `environment`, `terminal`, `model` |
//! | [`verifier`] | runs a task's tests, reads the reward they leave, says whether it can be trusted | `job`, `harbor`, `environment` |
//! | [`scheduler`] | the native runner: `policy` (pure), plan, trial, dispatcher | `job`, `harbor`, `environment`, `terminal`, `agent`, `verifier` |
//! | [`follow`] | live knowledge of job dirs: discovery, scan, notify or polling, owner; emits `job::JobEvent`; the list of all jobs below directories | `job`, `harbor`, `journal` |
//! | [`journal`] | `pilothouse.jsonl`: the notes about acts and verdicts, appended and read | `job`, `harbor` |
//! | [`triage`] | why a trial ended as it did: rules over the evidence of its files → class | `job`, `harbor`, `journal` |
//! | [`requeue`] | running trials again: which may be, the plan of the new job, its start; what Harbor's resume would do | `job`, `harbor`, `journal` |
//! | [`serving`] | the model side: log lines, polls and metrics of SGLang, vLLM and the router → replicas, history, diagnoses; its `source` reads them | `job`, `environment` (container logs) |
//! | [`audit`] | ending a job well: who works on it, how to stop that, what is left behind, its mends | `job`, `harbor`, `journal`, `follow`, `environment` |
//! | [`supervise`] | a real harbor as a child: what to know before it starts, who keeps it, where it writes | `job`, `harbor`, `follow`, `requeue`, `audit` |
//! | [`app`] | model, message, `update` (pure), action registry; `app::runtime` runs the effects, `app::helm` is the seam to what can be steered | `job`, `cast`, `harbor`, `follow`, `audit`, `triage`, `journal`, `requeue`, `serving` |
//! | [`ui`] | reads the model, draws; no I/O | `app`, `job`, `cast`, `serving` |
//! | [`tty`] | the terminal: guard, input, output, clipboard; the only writer of escape sequences | `job::text` |
//! | [`report`] | headless reporters of the same state: JSON, markdown, plain | `job`, `serving` |
//! | [`cli`] | one file per sub-command: arguments → domain → reporter or screen | everything |
//!
//! Dependencies run one way: `job ← {harbor, cast} ← follow ← app ← ui`, `harbor ← environment ←
//! {agent, verifier} ← scheduler`, `{cast, environment} ← terminal ← agent`, `model ← agent`, `{follow, environment} ← audit`, `harbor ← journal ← {triage, requeue}`, `{requeue, audit} ← supervise`, `job ← report`, and `cli` on top; nothing imports `cli`. `app` has
//! no tokio, ratatui or I/O outside `app::runtime` (which alone of it looks into `tty` and `ui`),
//! `app::alarm`, `app::notifier` and the workers. A test (`tests/edges.rs`) checks the edges.
//!
//! One reducer: producers send events to a single `update`; views are pure functions of the state;
//! the screen, the JSON and the plain reports are drawn from the same state. Attaching is
//! read-only; what writes below a job dir is [`mod@harbor::write`] alone, for jobs of our own, and
//! on an operator's word [`journal`] (one file of notes) and [`audit`] (what goes to the quarantine).

pub mod agent;
pub mod app;
pub mod audit;
pub mod cast;
pub mod cli;
pub mod environment;
pub mod follow;
pub mod harbor;
pub mod job;
pub mod journal;
pub mod model;
pub mod report;
pub mod requeue;
pub mod scheduler;
pub mod serving;
pub mod supervise;
pub mod terminal;
pub mod triage;
pub mod tty;
pub mod ui;
pub mod verifier;
