//! The beginning of a trial in its environment: start, files beside the image, health.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::limits::{duration, runtime_error};
use super::plan::PlannedTrial;
use crate::environment::{Command, Ended, EnvError, Environment, OnTimeout, Upload};
use crate::harbor::task::Healthcheck;
use crate::harbor::write::raised::Raised;

/// For `pwd` in a container.
const PWD: Duration = Duration::from_secs(10);

/// Where commands of the task start.
pub(super) async fn workdir(environment: &dyn Environment, planned: &PlannedTrial) -> Result<String, EnvError> {
    Ok(match &planned.task.config.environment.workdir {
        Some(workdir) => workdir.clone(),
        None => match environment.home() {
            Some(home) => home,
            None => environment.probe(&["pwd"], None, PWD).await?.text.trim().to_string(),
        },
    })
}

/// Starts the environment; files beside a prebuilt image go into its working directory.
pub(super) async fn start(environment: &dyn Environment, planned: &PlannedTrial) -> Result<(), Raised> {
    let failed = runtime_error("the environment's start");
    environment.start().await.map_err(&failed)?;
    let task = &planned.task;
    if task.config.environment.docker_image.is_none() || task.dockerfile || !task.environment_files {
        return Ok(());
    }
    let workdir = workdir(environment, planned).await.map_err(&failed)?;
    environment.upload(Upload::Dir(task.dir.join("environment")), &workdir).await.map_err(&failed)?;
    Ok(())
}

/// Checks until it is healthy. Failures in the start period do not count.
pub(super) async fn healthy(
    environment: &dyn Environment,
    check: &Healthcheck,
    user: Option<String>,
) -> Result<(), Raised> {
    let during = "Healthcheck";
    let begin = Instant::now();
    let (timeout, on_timeout) = (duration(check.timeout_sec), OnTimeout::Kill);
    let command = Command { timeout, on_timeout, user, ..Command::new(&check.command) };
    let mut failures = 0;
    loop {
        let end = environment.exec(&command).await.map_err(runtime_error(during))?;
        if end.ended == Ended::Exited(0) {
            return Ok(());
        }
        let wait = if begin.elapsed().as_secs_f64() < check.start_period_sec {
            check.start_interval_sec
        } else {
            failures += 1;
            if failures >= check.retries {
                let message = format!("Healthcheck failed after {failures} retries");
                return Err(Raised::new("HealthcheckError", &message, during));
            }
            check.interval_sec
        };
        // Never without a breath, whatever the task says.
        sleep(duration(wait).unwrap_or_default().max(Duration::from_millis(10))).await;
    }
}
