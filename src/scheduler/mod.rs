//! The native runner: a plan of trials, run on so many slots, into Harbor's job dir.
//!
//! | part | what it does |
//! |---|---|
//! | [`policy`] | pure: what begins when, retries, more and fewer slots, stop |
//! | [`plan`] | tasks × agents × attempts with their documents; what can not be run is refused by name |
//! | [`trial`] | one attempt from the environment's start to its teardown; every failure under Harbor's name |
//! | `part`, `steps` | what a trial of one step and each of several have in common; `steps/` |
//! | [`settings`] | settings of the environment (`--ek`), by name |
//! | [`docker`] | containers for trials: images pulled or built, networks, limits, what differs from Harbor |
//! | [`dispatcher`] | the job: starts trials, writes what becomes of them, obeys its [`Control`] |
//! | [`control`] | what is wished of it while it runs |
//! | [`board`] | what the agents of running trials do now |
//! | [`gate`], `health` | why nothing begins now: engine, disks, endpoint; looked at before each begin |
//! | [`adaptive`] | pure: fewer trials at a time while their surroundings fail |
//! | [`hold`] | containers that are held for a verifier that is to run again |
//! | `agents` | agent slots, apart from the trial slots |
//! | `outage` | what a trial loses while its model's endpoint is away |
//!
//! A result is written once, by the dispatcher, which alone holds the job's writer. Limits run on the
//! monotonic clock; the wall clock is only written down. Nothing waits for a disk on a thread that keeps
//! deadlines.

pub mod adaptive;
mod agents;
pub mod board;
mod collect;
pub mod control;
mod disk;
pub mod dispatcher;
pub mod docker;
mod extra;
pub mod gate;
mod health;
pub mod hold;
mod limits;
mod mounts;
mod outage;
mod part;
pub mod plan;
pub mod policy;
pub mod settings;
mod start;
mod steps;
pub mod trial;

pub use board::Board;
pub use control::{Control, Standing, Status};
pub use dispatcher::{Finished, Job, RunError};
pub use docker::DockerPlaces;
pub use gate::Gate;
pub use health::{Event, Hear, Manners};
pub use plan::{Plan, PlanError, PlannedTrial};
pub use settings::Settings;
pub use trial::{LocalPlaces, Places};
