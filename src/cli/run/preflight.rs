//! A look around before the first trial: what would fail every trial is said at once, with its remedy.

use std::collections::BTreeSet;

use super::owner::Tell;
use super::prepare::Refusal;
use crate::environment::docker::DockerEngine;
use crate::harbor::task::Image;
use crate::scheduler::Plan;

/// Looks at the engine and at the images of a plan. An image that is not here is said, and is no reason
/// to stop: its trials fail by themselves.
///
/// # Errors
/// What would fail every trial.
pub async fn docker(plan: &Plan, tell: &Tell) -> Result<(), Refusal> {
    let engine = DockerEngine::connect().await.map_err(|e| Refusal::of(&e.to_string()))?;
    let images: BTreeSet<&str> = plan
        .trials
        .iter()
        .filter_map(|trial| match trial.task.image(trial.config.environment.force_build) {
            Image::Prebuilt(image) => Some(image),
            Image::Build | Image::None => None,
        })
        .collect();
    let mut missing = Vec::new();
    for image in &images {
        match engine.image(image).await {
            Ok(Some(_)) => {}
            Ok(None) => missing.push(*image),
            Err(error) => return Err(Refusal::of(&error.to_string())),
        }
    }
    for image in &missing {
        tell(&format!("image {image} is not here: its trials will fail; pull or build it beforehand"));
    }
    Ok(())
}
