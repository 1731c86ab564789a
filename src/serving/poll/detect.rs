//! What is behind a URL.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::Missed;
use super::{DEAD, End, INFO, LATER, QUICK, Server, UNSEEN};
use crate::serving::{Engine, Seen, ServerInfo, Unreached, page};

/// What was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) engine: Option<Engine>,
    /// SGLang before `/server_info` and `/v1/loads` (0.5.9), a router before `/workers` (0.3).
    pub(super) old: bool,
    /// What it said of itself.
    pub(super) info: ServerInfo,
    /// It told its limits.
    pub(super) whole: bool,
    /// It wants another key for what is asked for first.
    refused: Option<Missed>,
}

/// Looks until it is found, and tells what it says of itself.
pub(super) async fn detect(server: &Server) -> Result<Found, End> {
    let mut pause = Duration::from_millis(500);
    loop {
        match look(server).await {
            Ok(found) => {
                server.set_engine(found.engine);
                if let Some(missed) = &found.refused {
                    server.missed(missed).await?;
                }
                server.say(Seen::Info(found.info.clone())).await?;
                return Ok(found);
            }
            Err(missed) => {
                server.missed(&missed).await?;
                let longest = match missed.how {
                    _ if server.worker.is_some() && !server.answered.load(Ordering::Relaxed) => UNSEEN,
                    Unreached::Unauthorised => LATER,
                    _ => DEAD,
                };
                tokio::time::sleep(pause.min(longest)).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}

/// One look. What is missed is the most telling of all.
async fn look(server: &Server) -> Result<Found, Missed> {
    let target = &server.target;
    let mut found = Found::default();
    let models = match target.page("/v1/models", QUICK).await {
        Ok(body) => page::models(&body).map_err(|e| Missed::new("/v1/models", Unreached::Garbled, &e.to_string()))?,
        // Paths without a key may tell.
        Err(missed) if missed.how == Unreached::Unauthorised => {
            return match open(server).await {
                Some(found) => Ok(Found { refused: Some(missed), ..found }),
                None => Err(missed),
            };
        }
        Err(missed) if missed.is_absent() => return open(server).await.ok_or(missed),
        Err(missed) => return Err(missed),
    };
    found.info = ServerInfo { engine: models.engine, model: models.model.clone(), ..ServerInfo::default() };
    found.info.limits.context = models.context;
    found.engine = models.engine;
    match models.engine {
        Some(Engine::Sglang) | None => {
            sglang(server, &mut found).await;
            if found.engine.is_none() {
                vllm(server, &mut found).await;
            }
            if found.engine.is_none() {
                router(server, &mut found).await;
            }
        }
        Some(Engine::Vllm) => vllm(server, &mut found).await,
        Some(Engine::Router) => router(server, &mut found).await,
    }
    found.info.engine = found.engine;
    Ok(found)
}

/// What can be found without a key: the names on the page of metrics, and a router's readiness.
async fn open(server: &Server) -> Option<Found> {
    let mut found = Found::default();
    if let Ok(body) = server.target.page("/metrics", QUICK).await {
        let metrics = page::metrics(&body).ok().filter(|m| !m.loads.is_empty());
        if let Some(metrics) = metrics {
            found.engine = metrics.engine;
            found.info.model = metrics.model;
            found.info.limits.context = metrics.context;
        }
    }
    match found.engine {
        Some(Engine::Vllm) => vllm(server, &mut found).await,
        Some(_) => {}
        None => router(server, &mut found).await,
    }
    found.info.engine = found.engine;
    found.engine.map(|_| found)
}

async fn sglang(server: &Server, found: &mut Found) {
    match server.target.page("/server_info", INFO).await {
        Ok(body) => take(found, &body),
        Err(missed) if missed.is_absent() && found.engine == Some(Engine::Sglang) => {
            // A router of old hands the models of its worker on.
            if server.worker.is_none() && is_router(server).await {
                *found = Found { engine: Some(Engine::Router), old: true, ..found.clone() };
                return;
            }
            // Before 0.5.9 it had that name only.
            if let Ok(body) = server.target.page("/get_server_info", INFO).await {
                take(found, &body);
            }
            found.old = true;
        }
        // A scheduler that hangs, a key: asked again later.
        Err(_) => {}
    }
}

fn take(found: &mut Found, body: &[u8]) {
    let Ok(info) = page::server_info(body) else { return };
    let (model, context) = (found.info.model.clone(), found.info.limits.context);
    found.engine = info.engine;
    found.info = info;
    found.info.model = model.or_else(|| found.info.model.clone());
    // Where the argument is not set, the models tell what the model can take.
    found.info.limits.context = found.info.limits.context.or(context);
    found.whole = true;
}

async fn vllm(server: &Server, found: &mut Found) {
    let Ok(body) = server.target.page("/version", QUICK).await else { return };
    if let Ok(version) = page::version(&body) {
        found.engine = Some(Engine::Vllm);
        found.info.version = Some(version);
        found.whole = true;
    }
}

async fn is_router(server: &Server) -> bool {
    server.target.get("/readiness", QUICK).await.is_ok_and(|answer| page::readiness(&answer.body).is_ok())
}

async fn router(server: &Server, found: &mut Found) {
    if is_router(server).await {
        found.engine = Some(Engine::Router);
    }
}

/// Reads what a server says of itself once more, over what its models said.
pub(super) fn renewed(found: &Found, body: &[u8]) -> Result<ServerInfo, page::Unreadable> {
    page::server_info(body)?;
    let mut found = found.clone();
    take(&mut found, body);
    Ok(found.info)
}
