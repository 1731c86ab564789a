//! Progress of a growing trajectory.

use std::fs::File;
use std::io::BufReader;

use serde::Deserialize;

use crate::job::{Progress, Tokens, time};

#[derive(Deserialize)]
struct Root {
    steps: Vec<Step>,
    #[serde(default)]
    final_metrics: Option<Totals>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    is_copied_context: Option<bool>,
}

#[derive(Deserialize)]
struct Totals {
    total_prompt_tokens: Option<u64>,
    total_completion_tokens: Option<u64>,
    total_cached_tokens: Option<u64>,
}

pub(super) fn progress(file: &File) -> Result<Progress, serde_json::Error> {
    let root: Root = serde_json::from_reader(BufReader::new(file))?;
    let agent = |s: &&Step| s.source.as_deref() == Some("agent") && s.is_copied_context != Some(true);
    let totals = root.final_metrics.as_ref();
    Ok(Progress {
        steps: u32::try_from(root.steps.len()).unwrap_or(u32::MAX),
        episodes: u32::try_from(root.steps.iter().filter(agent).count()).unwrap_or(u32::MAX),
        first_step: root.steps.first().and_then(|s| s.timestamp.as_deref()).and_then(time::parse).map(|t| t.at),
        last_step: root.steps.last().and_then(|s| s.timestamp.as_deref()).and_then(time::parse).map(|t| t.at),
        tokens: Tokens {
            input: totals.and_then(|t| t.total_prompt_tokens),
            cache: totals.and_then(|t| t.total_cached_tokens),
            output: totals.and_then(|t| t.total_completion_tokens),
        },
    })
}
