//! The owner of a job: a thread of its own that runs it to its end, whoever watches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::prepare::{Kind, Prepared, Refusal, scratch_of};
use crate::audit::scratch;
use crate::environment::OwnerLabel;
use crate::environment::docker::DockerEngine;
use crate::harbor::write::Claimant;
use crate::scheduler::{Control, DockerPlaces, Finished, Job, LocalPlaces, Places, Plan, RunError};

/// After the job's end, for what still runs aside.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Takes a line about what happens before the first trial.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// How a job is run.
pub struct Terms {
    /// Who asks for the lease, and how often it shows that it lives.
    pub who: Claimant,
    /// Where scratch directories go; the state dir when None.
    pub scratch: Option<PathBuf>,
    /// Look at images, disk and the like before the first trial.
    pub preflight: bool,
    /// Hears of what happens before the first trial.
    pub tell: Tell,
}

/// A job at work.
pub struct Owner {
    /// Steers it.
    pub control: Control,
    /// Its directory.
    pub dir: PathBuf,
    /// Its UUID.
    pub id: String,
    /// How it ended; can be taken once.
    pub done: oneshot::Receiver<Ended>,
    thread: JoinHandle<()>,
}

/// How a job ended, and what could not be cleared away afterwards, a line each.
pub type Ended = (Result<Finished, RunError>, Vec<String>);

/// The job dir is there: who steers it.
struct Begun {
    control: Control,
    dir: PathBuf,
    id: String,
}

/// Begins a job and returns when its directory is there.
///
/// # Errors
/// Why it did not begin, with the remedy; nothing is left of it then.
pub fn start(prepared: Prepared, terms: Terms) -> Result<Owner, Refusal> {
    let (tell_begun, begun) = std::sync::mpsc::sync_channel(1);
    let (tell_done, done) = oneshot::channel();
    let fail = |e: std::io::Error| Refusal::of(&format!("can not start the job: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
    let thread = std::thread::Builder::new()
        .name("owner".into())
        .spawn(move || {
            let ended = runtime.block_on(async {
                let (job, places, now) = match begin(prepared, terms).await {
                    Ok(begun) => begun,
                    Err(refusal) => {
                        let _ = tell_begun.send(Err(refusal));
                        return None;
                    }
                };
                // Nobody to hear it is no reason to leave the job alone.
                let _ = tell_begun.send(Ok(now));
                let ended = job.run().await;
                Some((ended, places.close().await))
            });
            runtime.shutdown_timeout(SHUTDOWN);
            if let Some((ended, left)) = ended {
                match &ended {
                    Ok(finished) => tracing::info!(?finished, "the job is over"),
                    Err(error) => tracing::error!(%error, "the job broke off"),
                }
                let _ = tell_done.send((ended, left));
            }
        })
        .map_err(fail)?;
    match begun.recv() {
        Ok(Ok(Begun { control, dir, id })) => Ok(Owner { control, dir, id, done, thread }),
        Ok(Err(refusal)) => {
            let _ = thread.join();
            Err(refusal)
        }
        // The panic's own message is printed by the hook.
        Err(_) => Err(Refusal::of("the job's thread fell over before it began")),
    }
}

impl Owner {
    /// Waits for the thread, once `done` has been heard from.
    pub fn join(self) {
        let _ = self.thread.join();
    }
}

async fn begin(prepared: Prepared, terms: Terms) -> Result<(Job, Open, Begun), Refusal> {
    let Prepared { plan, kind, .. } = prepared;
    let open = Open::new(kind, &plan, terms.scratch, terms.preflight, &terms.tell).await?;
    let begun = (plan.id.clone(), plan.dir());
    match Job::begin(plan, &terms.who, open.places()) {
        Ok((job, control)) => Ok((job, open, Begun { control, id: begun.0, dir: begun.1 })),
        Err(error) => {
            open.close().await;
            Err(Refusal::of(&error.to_string()))
        }
    }
}

/// The place of a job's trials, open.
pub(super) struct Open {
    docker: Option<Arc<DockerPlaces>>,
    scratch: Option<PathBuf>,
}

impl Open {
    /// Opens it: connects to the engine, makes the network or the scratch directory.
    ///
    /// # Errors
    /// With the remedy.
    pub(super) async fn new(
        kind: Kind,
        plan: &Plan,
        scratch: Option<PathBuf>,
        preflight: bool,
        tell: &Tell,
    ) -> Result<Open, Refusal> {
        match kind {
            Kind::Local => {
                let root = match scratch {
                    Some(root) => root,
                    None => scratch_of(&plan.id)?,
                };
                let recorded = private(&root).and_then(|()| scratch::record(&root, &OwnerLabel::mine(&plan.dir())));
                recorded.map_err(|e| Refusal::of(&format!("{}: {e}", root.display())))?;
                Ok(Open { docker: None, scratch: Some(root) })
            }
            Kind::Docker => {
                let refuse = |e: crate::environment::EnvError| Refusal::of(&e.to_string());
                let engine = DockerEngine::connect().await.map_err(refuse)?;
                if preflight {
                    super::preflight::docker(&engine, plan, tell).await?;
                }
                let owner = OwnerLabel::mine(&plan.dir()).to_string();
                let places = DockerPlaces::open(engine, plan, &owner).await.map_err(refuse)?;
                Ok(Open { docker: Some(Arc::new(places)), scratch: None })
            }
        }
    }

    pub(super) fn places(&self) -> Arc<dyn Places> {
        match (&self.docker, &self.scratch) {
            (Some(docker), _) => docker.clone(),
            (None, root) => Arc::new(LocalPlaces { root: root.clone().unwrap_or_default() }),
        }
    }

    /// Clears it away; gives what could not be, a line each.
    pub(super) async fn close(&self) -> Vec<String> {
        let mut left = Vec::new();
        if let Some(docker) = &self.docker
            && let Err(e) = docker.close().await
        {
            left.push(e.to_string());
        }
        if let Some(root) = &self.scratch {
            // Only when nothing is left in it.
            if let Err(e) = std::fs::remove_dir(root)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                left.push(format!("{}: {e}", root.display()));
            }
            scratch::forget(root);
        }
        left
    }
}

/// Makes a directory that is only for this user, with those above it.
fn private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
