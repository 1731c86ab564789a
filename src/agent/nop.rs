//! The agent that does nothing: what a task is worth untouched.

use super::{Agent, Stage, Work};
use crate::harbor::write::result::AgentResult;

/// Does nothing.
#[derive(Debug, Clone, Copy)]
pub struct Nop;

impl Agent for Nop {
    fn name(&self) -> &str {
        "nop"
    }

    fn version(&self) -> &str {
        "1.0.0"
    }

    fn setup<'a>(&'a self, _: &'a Stage<'a>) -> Work<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn run<'a>(&'a self, _: &'a Stage<'a>) -> Work<'a, AgentResult> {
        Box::pin(async { Ok(AgentResult::default()) })
    }
}
