//! `/v1/models`, `/version` and `/model_info`.

use std::sync::Arc;

use serde::Deserialize;

use super::lenient::{Scalar, Some1024};
use super::{Unreadable, count64, json};
use crate::serving::Engine;

/// What `/v1/models` says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models {
    /// Whose the first one is, as far as that tells the engine; a router says `local`.
    pub engine: Option<Engine>,
    /// Name of the first model.
    pub model: Option<Arc<str>>,
    /// Tokens of context per request.
    pub context: Option<u64>,
}

#[derive(Deserialize)]
struct Page {
    data: Some1024<Model>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    id: Scalar,
    #[serde(default)]
    owned_by: Scalar,
    #[serde(default)]
    max_model_len: Scalar,
}

/// Reads `/v1/models`. The first model is the server's own; adapters follow it.
///
/// # Errors
/// It has no list of models.
pub fn models(body: &[u8]) -> Result<Models, Unreadable> {
    let page: Page = json(body, "an answer of /v1/models")?;
    let Some(first) = page.data.0.first() else { return Ok(Models::default()) };
    let engine = match first.owned_by.text().map(|t| &**t) {
        Some("sglang") => Some(Engine::Sglang),
        Some("vllm") => Some(Engine::Vllm),
        Some("local") => Some(Engine::Router),
        _ => None,
    };
    Ok(Models {
        engine,
        model: first.id.text().cloned(),
        context: first.max_model_len.number().and_then(count64).filter(|n| *n > 0),
    })
}

/// Reads vLLM's `/version`.
///
/// # Errors
/// It has no version.
pub fn version(body: &[u8]) -> Result<Arc<str>, Unreadable> {
    #[derive(Deserialize)]
    struct Page {
        version: Scalar,
    }
    const WHAT: &str = "an answer of /version";
    json::<Page>(body, WHAT)?.version.text().cloned().ok_or(Unreadable(WHAT))
}

/// Reads the served name out of SGLang's `/model_info`, else the path.
///
/// # Errors
/// It has neither.
pub fn model_info(body: &[u8]) -> Result<Arc<str>, Unreadable> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        served_model_name: Scalar,
        #[serde(default)]
        model_path: Scalar,
    }
    const WHAT: &str = "an answer of /model_info";
    let page: Page = json(body, WHAT)?;
    page.served_model_name.text().or(page.model_path.text()).cloned().ok_or(Unreadable(WHAT))
}
