//! Looks what is at an address that an endpoint may move to.

use std::sync::Arc;
use std::time::Duration;

use crate::agent;
use crate::cli::ctl::endpoint::{Ask, Found, Prober};

/// For one short answer.
const ANSWER: Duration = Duration::from_secs(45);

/// Asks there as the agent does: with its key, its model, its settings.
pub fn prober() -> Prober {
    Arc::new(|ask| Box::pin(look(ask)))
}

async fn look(ask: Ask) -> Result<Found, String> {
    let client = agent::client_at(&ask.agent, &ask.base)?;
    let served = client.served().await;
    let answered = if ask.question { Some(client.probe(ANSWER).await) } else { None };
    let mut models = served.names;
    if served.listed == Some(true) && !models.iter().any(|name| name == client.model()) {
        // Beyond what is kept of a long list.
        models.push(client.model().to_string());
    }
    Ok(Found {
        model: client.model().to_string(),
        models: served.listed.map(|_| models),
        context: served.context,
        answered: answered.map(|answered| answered.map(|probe| probe.took).map_err(|error| error.detail)),
    })
}
