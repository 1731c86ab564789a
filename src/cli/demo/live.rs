//! The demo itself: the bundled job, truly run on this machine, in directories of its own.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::{Demo, DemoError, Root, tasks};
use crate::agent::scripted;
use crate::cli::run::headless::{self, Ears, Output};
use crate::cli::run::owner::{Owner, Terms};
use crate::cli::run::prepare::{Prepared, Refusal, plan_of};
use crate::cli::run::watched::{self, Show};
use crate::cli::{Common, complain};
use crate::environment::local;
use crate::harbor::run_config::{AgentConfig, DatasetConfig, EnvironmentConfig, RunConfig};
use crate::harbor::write::Claimant;

/// What is said wherever the demo is shown.
pub const NOTICE: &str = "A bundled job, run here by a scripted agent: no model, container or network. Some of its \
                          trials fail on purpose.";
/// Name of the job.
const NAME: &str = "demo";
/// Trials at a time.
const SLOTS: u32 = 3;

/// The demo's directory with the job's tasks, which ends with what is in it.
pub struct Place {
    root: Root,
}

impl Drop for Place {
    fn drop(&mut self) {
        // What a job that was aborted left at work.
        if let Err(error) = local::clear_left(&self.scratch()) {
            tracing::warn!(%error, "the demo's scratch directory could not be removed");
        }
    }
}

impl Place {
    /// Makes it.
    ///
    /// # Errors
    /// [`DemoError`].
    pub fn new(demo: &Demo) -> Result<Place, DemoError> {
        let place = Place { root: demo.make_root()? };
        let tasks = place.path().join("tasks");
        tasks::write(&tasks).map_err(|source| DemoError::Dir { path: tasks, source })?;
        Ok(place)
    }

    fn path(&self) -> &Path {
        &self.root.path
    }

    fn scratch(&self) -> PathBuf {
        let scratch = self.root.path.join("scratch");
        std::path::absolute(&scratch).unwrap_or(scratch)
    }

    /// The job, ready to begin.
    ///
    /// # Errors
    /// Why it can not be run.
    pub fn prepare(&self) -> Result<Prepared, Refusal> {
        let config = RunConfig {
            job_name: NAME.to_string(),
            jobs_dir: self.path().join("jobs"),
            n_concurrent_trials: SLOTS,
            agents: vec![AgentConfig { name: Some(scripted::NAME.to_string()), ..AgentConfig::default() }],
            environment: EnvironmentConfig { kind: Some("local".to_string()), ..EnvironmentConfig::default() },
            datasets: vec![DatasetConfig { path: Some(self.path().join("tasks")), ..DatasetConfig::default() }],
            ..RunConfig::default()
        };
        plan_of(&config, None)
    }

    fn terms(&self, out: Output) -> Terms {
        Terms {
            who: Claimant::default(),
            scratch: Some(self.scratch()),
            preflight: true,
            smoke: false,
            tell: Arc::new(move |line| out.say(line)),
            disk_floor: 0,
            adaptive: false,
            ear: None,
            pause_clock: false,
            hold: None,
        }
    }
}

/// Runs it; gives the exit code.
///
/// # Errors
/// [`DemoError`].
pub fn run(demo: &Demo, common: &Common) -> Result<u8, DemoError> {
    let place = Place::new(demo)?;
    let out = Output { json: false, quiet: false };
    out.say(NOTICE);
    let done = (|| {
        let prepared = place.prepare()?;
        let fault = |e: io::Error| Refusal::of(&format!("can not start the job: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
        let mut ears = {
            let _inside = runtime.enter();
            Ears::new().map_err(fault)?
        };
        let started = runtime.block_on(headless::start(prepared, place.terms(out), &mut ears, out))?;
        let Some((owner, stops)) = started else {
            runtime.shutdown_background();
            return Ok(crate::cli::SIGNAL);
        };
        out.say(&format!("job dir {}", owner.dir.display()));
        Ok(match demo.headless || !io::stdout().is_terminal() || stops.stopped() {
            true => runtime.block_on(headless::follow_to_end(owner, &[], out, stops, ears)),
            false => on_screen(demo, owner, out, common, (&runtime, ears)),
        })
    })();
    let code = match done {
        Ok(code) => code,
        Err(Refusal(lines)) => {
            lines.iter().for_each(|line| complain(line));
            crate::cli::NEEDS_PERSON
        }
    };
    // That some of its trials fail is what it is for.
    Ok(if matches!(code, crate::cli::INFRA | crate::cli::NEEDS_PERSON) && is_whole(&place) { 0 } else { code })
}

fn on_screen(demo: &Demo, owner: Owner, out: Output, common: &Common, heard: (&Runtime, Ears)) -> u8 {
    // What was written last is still on its way to the screen.
    let leave_after = demo.once.then_some(Duration::from_secs(2));
    watched::run(owner, &[], out, common, Show { notice: Some(NOTICE), leave_after, servers: None }, heard)
}

/// Whether the job came to its end.
fn is_whole(place: &Place) -> bool {
    let bytes = std::fs::read(place.path().join("jobs").join(NAME).join("result.json")).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&bytes).is_ok_and(|result| result["finished_at"].is_string())
}
