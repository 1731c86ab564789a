//! The application: one model, one `update`, effects as data. See the map in the crate root.

pub mod action;
pub mod alarm;
pub mod class_worker;
pub mod derived;
pub mod detail;
pub mod detail_worker;
pub mod effect;
pub mod filter;
pub mod helm;
pub mod inbox;
pub mod input;
pub mod key;
pub mod menus;
pub mod message;
pub mod model;
pub mod overlay;
pub mod preview;
pub mod replay;
pub mod replay_worker;
pub mod requeue;
pub mod rows;
pub mod runtime;
pub mod steer;
pub mod table;
pub mod triage;
pub mod update;
