//! Looks what is at an address that an endpoint may move to.

use std::sync::Arc;

use crate::cli::ctl::endpoint::{Found, Prober};

/// Asks there as the agent would.
pub fn prober() -> Prober {
    Arc::new(|ask| {
        Box::pin(async move {
            let model = ask.agent.model_name.clone().unwrap_or_default();
            Ok(Found { model, answered: Some(Err("no client of models".to_string())), ..Found::default() })
        })
    })
}
