//! Holding a container: taken aside and paused, woken again, copied to an image.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use bollard::models::{ContainerConfig, NetworkConnectRequest, NetworkDisconnectRequest};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, InspectContainerOptionsBuilder, RemoveImageOptions, RenameContainerOptionsBuilder,
    StatsOptionsBuilder,
};
use futures_util::StreamExt;

use super::super::held::{SnapshotAsk, TakenAside, VERIFIER_MARK, held_name};
use super::super::labels::{Role, SINCE};
use super::super::{EnvError, Mount, Trouble};
use super::container::{ContainerSpec, DockerEnvironment};
use super::{DockerEngine, calls};
use crate::job::Stamp;

/// Ends every process that a verifier left, wherever it hides: they have a variable of ours. Twice, since a
/// process may fork while it is looked for.
const END_VERIFIER: &str = "command -v grep >/dev/null 2>&1 || { echo no grep; exit 9; }; \
    for round in 1 2; do for e in /proc/[0-9]*/environ; do \
    if grep -q \"$1=1\" \"$e\" 2>/dev/null; then \
    p=${e#/proc/}; kill -9 \"${p%/environ}\" 2>/dev/null; fi; done; done; :";
/// For that.
const ENDING: Duration = Duration::from_secs(20);

/// What an engine says of a container that is held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldFacts {
    /// It runs, paused or not.
    pub running: bool,
    /// It is paused.
    pub paused: bool,
    /// Its image.
    pub image: String,
    /// Bytes of memory that it may use.
    pub memory: Option<u64>,
    /// Mounted directories of this machine: where they were when it was made, and where they are inside.
    pub mounts: Vec<Mount>,
    /// Networks that it is connected to.
    pub networks: Vec<String>,
}

impl DockerEngine {
    /// Looks at a held container.
    ///
    /// # Errors
    /// [`Trouble::NotFound`] when it is gone; no answer.
    pub async fn held_facts(&self, id: &str) -> Result<HeldFacts, EnvError> {
        let asked = self.docker().inspect_container(id, Some(InspectContainerOptionsBuilder::default().build()));
        let found = self.call(&calls::INSPECT, id, asked).await?;
        let state = found.state.unwrap_or_default();
        let host = found.host_config.unwrap_or_default();
        let mounts = found.mounts.unwrap_or_default().into_iter().filter_map(|m| {
            let read_only = m.rw == Some(false);
            Some(Mount { host: PathBuf::from(m.source?), inside: m.destination?, read_only })
        });
        let networks = found.network_settings.and_then(|n| n.networks).unwrap_or_default();
        let mut networks: Vec<String> = networks.into_keys().filter(|name| name != "none").collect();
        networks.sort();
        Ok(HeldFacts {
            running: state.running == Some(true),
            paused: state.paused == Some(true),
            image: found.config.and_then(|c| c.image).unwrap_or_default(),
            memory: host.memory.and_then(|m| u64::try_from(m).ok()).filter(|m| *m > 0),
            mounts: mounts.collect(),
            networks,
        })
    }

    /// Freezes a container; fine when it is.
    ///
    /// # Errors
    /// It does not run; no answer.
    pub async fn pause(&self, id: &str) -> Result<(), EnvError> {
        let done = self.call(&calls::PAUSE, id, self.docker().pause_container(id)).await;
        already(done, "already paused")
    }

    /// Lets a frozen container go on; fine when it does.
    ///
    /// # Errors
    /// It is gone; no answer.
    pub async fn unpause(&self, id: &str) -> Result<(), EnvError> {
        let done = self.call(&calls::UNPAUSE, id, self.docker().unpause_container(id)).await;
        already(done, "not paused")
    }

    /// Connects a container to one more network.
    ///
    /// # Errors
    /// No such network; no answer.
    pub async fn connect_to_network(&self, id: &str, network: &str) -> Result<(), EnvError> {
        let request = NetworkConnectRequest { container: id.to_string(), ..NetworkConnectRequest::default() };
        let done = self.call(&calls::NETWORK_CONNECT, network, self.docker().connect_network(network, request)).await;
        already(done, "already exists in network")
    }

    /// Disconnects a container from a network; fine when it is not in it.
    ///
    /// # Errors
    /// No answer.
    pub async fn disconnect_from_network(&self, id: &str, network: &str) -> Result<(), EnvError> {
        let request = NetworkDisconnectRequest { container: id.to_string(), force: Some(true) };
        let done = self.docker().disconnect_network(network, request);
        match self.call(&calls::NETWORK_CONNECT, network, done).await {
            Err(e) if e.trouble == Trouble::NotFound => Ok(()),
            other => already(other, "is not connected to"),
        }
    }

    /// Bytes of memory that a container uses now, without what the kernel would give back at once.
    async fn memory_of(&self, id: &str) -> Option<u64> {
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let mut stream = std::pin::pin!(self.docker().stats(id, Some(options)));
        let stats = tokio::time::timeout(calls::INSPECT.limit, stream.next()).await.ok()??.ok()?.memory_stats?;
        let kept = stats.stats.as_ref();
        let cache = kept.and_then(|s| s.get("total_inactive_file").or_else(|| s.get("inactive_file"))).copied();
        stats.usage.map(|usage| usage.saturating_sub(cache.unwrap_or(0)))
    }

    /// Removes a container of ours, paused or not; fine when it is gone.
    ///
    /// # Errors
    /// No answer.
    pub async fn remove_by_id(&self, id: &str, name: &str) -> Result<(), EnvError> {
        super::container::remove_container(self, id, name).await
    }

    /// Removes an image by its tag; fine when it is gone.
    ///
    /// # Errors
    /// A container was made of it; no answer.
    pub async fn remove_image_named(&self, tag: &str) -> Result<(), EnvError> {
        let gone = self.docker().remove_image(tag, None::<RemoveImageOptions>, None);
        match self.call(&calls::REMOVE_IMAGE, tag, gone).await {
            Err(e) if !matches!(e.trouble, Trouble::NotFound | Trouble::Image) => Err(e),
            _ => Ok(()),
        }
    }
}

/// The engine's refusal to do what is done already is no failure.
fn already(done: Result<(), EnvError>, words: &str) -> Result<(), EnvError> {
    match done {
        Err(e) if e.detail.to_ascii_lowercase().contains(words) => Ok(()),
        other => other,
    }
}

impl DockerEnvironment {
    /// A container that is there and runs, to go on with: made by this program, at its end here again.
    ///
    /// # Errors
    /// As [`DockerEnvironment::new`]; the engine does not know it.
    pub async fn adopt(
        engine: DockerEngine,
        spec: ContainerSpec,
        id: &str,
        name: &str,
    ) -> Result<DockerEnvironment, EnvError> {
        let mut adopted = DockerEnvironment::new(engine, spec)?;
        adopted.call_it(name);
        let seen = adopted.engine().inner.watch.begin(id);
        {
            let mut state = adopted.state();
            state.id = Some(id.to_string());
            state.seen = Some(seen);
        }
        adopted.has_run();
        adopted.inspected(id).await?;
        Ok(adopted)
    }

    /// Ends what a verifier left running, by its mark; gives what there is to say about it.
    ///
    /// # Errors
    /// The container does not answer.
    pub async fn end_verifier(&self) -> Result<Option<String>, EnvError> {
        let id = self.ready("end the verifier's processes").await?;
        let argv = ["sh", "-c", END_VERIFIER, "sh", VERIFIER_MARK];
        let answer = self.ask(&id, &argv, Some("0"), ENDING).await?;
        Ok((answer.exit == 9).then(|| "no grep inside: the verifier's processes could not be looked for".to_string()))
    }

    /// Takes it aside: under a name that says so, without the verifier's processes, paused. It is nobody's
    /// environment any more then. The name comes first: whatever happens on the way, it is found again.
    pub(super) async fn hold_now(&self, since: Stamp) -> Result<TakenAside, EnvError> {
        let call = format!("hold container {}", self.name());
        let id = self.ready(&call).await?;
        let trial = self.spec().labels.trial.clone().unwrap_or_default();
        let name = held_name(since, &trial);
        let options = RenameContainerOptionsBuilder::default().name(&name).build();
        let renamed = self.engine().docker().rename_container(&id, options);
        self.engine().call(&calls::RENAME, &name, renamed).await?;
        self.end_verifier().await?;
        let memory = self.engine().memory_of(&id).await;
        self.engine().pause(&id).await?;
        self.state().stopped = true;
        self.forget(Some(&id));
        Ok(TakenAside { id, name, memory, bytes: None })
    }

    /// Copies its files to an image. Frozen meanwhile: the copy of one that runs is torn. None of its
    /// processes is in it, nor what is mounted.
    pub(super) async fn copy_now(&self, ask: &SnapshotAsk) -> Result<TakenAside, EnvError> {
        let call = format!("snapshot container {}", self.name());
        let id = self.ready(&call).await?;
        let sized = InspectContainerOptionsBuilder::default().size(true).build();
        let asked = self.engine().docker().inspect_container(&id, Some(sized));
        let written = self.engine().call(&calls::SIZE, self.name(), asked).await?.size_rw;
        let written = written.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        if written > ask.bytes {
            let mib = |n: u64| n >> 20;
            let detail = format!("it has written {} MiB, more than {} MiB", mib(written), mib(ask.bytes));
            return Err(EnvError::new(Trouble::Unsupported, &call, &detail, "raise --snapshot-size"));
        }
        let labels = self.spec().labels.with_role(Role::Snapshot);
        let trial = labels.trial.clone().unwrap_or_default();
        let tag = format!("{}-{}", ask.since.as_millisecond(), std::process::id());
        let repo: String = trial.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        let repo = format!("pilothouse-snapshot/{}", if repo.is_empty() { "trial" } else { &repo });
        let mut pairs: HashMap<String, String> = labels.pairs().into_iter().collect();
        pairs.insert(SINCE.to_string(), ask.since.as_second().to_string());
        let options = CommitContainerOptionsBuilder::default().container(&id).repo(&repo).tag(&tag).pause(true).build();
        let config = ContainerConfig { labels: Some(pairs), ..ContainerConfig::default() };
        let made = self.engine().docker().commit_container(options, config);
        let name = format!("{repo}:{tag}");
        let made = match tokio::time::timeout(ask.time, self.engine().call(&calls::COMMIT, &name, made)).await {
            Ok(made) => made?,
            Err(_) => {
                let detail = format!(
                    "not done in {} s; what the engine still makes of it is listed by pilothouse held",
                    ask.time.as_secs()
                );
                return Err(EnvError::new(Trouble::TimedOut, &call, &detail, "raise --snapshot-time"));
            }
        };
        Ok(TakenAside { id: made.id, name, memory: None, bytes: Some(written) })
    }
}
