//! One trial first: a job whose surroundings or config are wrong stops after it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::owner::Tell;
use crate::harbor::write::Folder;
use crate::harbor::write::reread::{self, Standing};
use crate::scheduler::Control;

/// Exception types that say nothing of the agent: the surroundings, or the operator's config.
const NOT_ITS_MERITS: [&str; 14] = [
    "RuntimeError",
    "OSError",
    "EnvironmentStartTimeoutError",
    "SandboxBuildFailedError",
    "HealthcheckError",
    "AddTestsDirError",
    "DownloadVerifierDirError",
    "AgentSetupTimeoutError",
    "ValueError",
    "FileNotFoundError",
    "AuthenticationError",
    "AgentAuthenticationError",
    "PermissionDeniedError",
    "ModelNotFoundError",
];

/// Waits for the first trial of a job that runs one at a time; then lets the others begin, or stops it.
pub(super) async fn watch(
    control: Control,
    dir: &Path,
    trial: &str,
    slots: usize,
    failed: &Arc<AtomicBool>,
    tell: &Tell,
) {
    let mut status = control.status();
    if status.wait_for(|now| now.over > 0).await.is_err() {
        return;
    }
    match verdict(dir, trial) {
        Ok(()) => {
            tell(&format!("smoke: {trial} ended as it may: the others begin"));
            control.set_slots(slots);
        }
        Err(why) => {
            failed.store(true, Ordering::Relaxed);
            tell(&format!("smoke: {trial}: {why}: nothing else begins; see its trial.log and exception.txt"));
            control.cancel();
        }
    }
}

fn verdict(dir: &Path, trial: &str) -> Result<(), String> {
    let found = Folder::open(dir).and_then(|folder| reread::trials(&folder)).map_err(|e| e.to_string())?;
    match found.into_iter().find(|(name, _)| name == trial) {
        Some((_, Standing::Done(done))) => {
            match done.ended.exceptions.iter().find(|kind| NOT_ITS_MERITS.contains(&kind.as_str())) {
                Some(kind) => Err(kind.clone()),
                None => Ok(()),
            }
        }
        Some((_, Standing::Cancelled)) => Err("it was cancelled".to_string()),
        _ => Err("it has no result that can be read".to_string()),
    }
}
