//! The Docker engine: one connection for a job, every call under a time limit of its own.
//!
//! Engines from 20.10 up, over a unix socket or plain TCP. What is known about their behaviour and
//! is relied upon: output of commands is redirected inside; a container that does not answer is
//! suspect; kills for want of memory come by the event stream and not by the inspected state; PID 1
//! does not react to SIGTERM, so that an end is a kill.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bollard::{API_DEFAULT_VERSION, Docker};

use super::{EnvError, Trouble};

mod address;
mod archive;
mod calls;
pub mod compose;
mod container;
mod create;
mod events;
mod exec;
mod held;
mod hijack;
mod images;
mod leftovers;
mod logs;
mod networks;
mod programs;
mod transport;
mod wire;

pub use address::{Address, parse_address};
pub use container::{ContainerSpec, DockerEnvironment, ImageSource, NetworkChoice, PIDS_DEFAULT, proxy_variables};
pub use held::HeldFacts;
pub use images::{BuildSpec, ImageNews, Progress, Pulled};
pub use logs::LogPiece;
pub use networks::{Isolation, JobNetwork};

use calls::Call;

/// Longer than any limit of ours: the client's own must never come first.
const CLIENT_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// An engine that did something so long ago is there.
const LATELY: Duration = Duration::from_secs(1);

/// A Docker engine. Clones share the connection.
#[derive(Debug, Clone)]
pub struct DockerEngine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    docker: Docker,
    address: Address,
    facts: EngineFacts,
    watch: Arc<events::Watch>,
    follower: tokio::task::JoinHandle<()>,
    builds: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<String>>>>>,
    /// When it did what was asked last, and has not failed since.
    answered: Mutex<Option<Instant>>,
    /// Pulls that failed, and when.
    failed_pulls: Mutex<HashMap<String, (Instant, EnvError)>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// What an engine says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// Its version.
    pub version: String,
    /// The interface version agreed on.
    pub api: String,
    /// Processor, in the words of images (`amd64`, `arm64`).
    pub architecture: String,
    /// Directory of its data; with the address it tells two engines apart.
    pub root_dir: String,
    /// Processors, where it says.
    pub cpus: Option<u64>,
    /// Bytes of memory, where it says.
    pub memory: Option<u64>,
    /// Whether it can limit the number of processes.
    pub pids_limit: bool,
    /// `name=rootless`, `name=userns` and the like.
    pub security: Vec<String>,
    /// Version of control groups, 1 or 2, as text.
    pub cgroups: String,
}

impl DockerEngine {
    /// Connects to the engine that `DOCKER_HOST` names, else to the local socket, and agrees on a
    /// version. Begins to follow its events.
    ///
    /// # Errors
    /// A transport that is not spoken (by name), nobody there, no permission, no answer in time.
    pub async fn connect() -> Result<DockerEngine, EnvError> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let tls = var("DOCKER_TLS_VERIFY").is_some();
        let (host, context) = (var("DOCKER_HOST"), var("DOCKER_CONTEXT"));
        Self::connect_to(parse_address(host.as_deref(), tls, context.as_deref())?).await
    }

    /// Connects to a given address.
    ///
    /// # Errors
    /// As [`DockerEngine::connect`].
    pub async fn connect_to(address: Address) -> Result<DockerEngine, EnvError> {
        let subject = address.to_string();
        let docker = match &address {
            Address::Unix(path) => transport::local(path, CLIENT_LIMIT),
            Address::Tcp(_) => Docker::connect_with_http(&subject, CLIENT_LIMIT.as_secs(), API_DEFAULT_VERSION),
        };
        let docker = docker.map_err(|e| calls::explain(&calls::VERSION, &subject, &e))?;
        let docker = calls::limited(&calls::VERSION, &subject, docker.negotiate_version()).await?;
        let info = calls::limited(&calls::INFO, &subject, docker.info()).await?;
        let count = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        let version = docker.client_version();
        let facts = EngineFacts {
            version: info.server_version.unwrap_or_default(),
            api: format!("{}.{}", version.major_version, version.minor_version),
            architecture: images::architecture(&info.architecture.unwrap_or_default()).to_string(),
            root_dir: info.docker_root_dir.unwrap_or_default(),
            cpus: count(info.ncpu),
            memory: count(info.mem_total),
            pids_limit: info.pids_limit.unwrap_or(false),
            security: info.security_options.unwrap_or_default(),
            cgroups: info.cgroup_version.map(|v| v.to_string()).unwrap_or_default(),
        };
        let watch = Arc::new(events::Watch::default());
        // From the engine's own clock on: nothing between now and the first look is lost.
        let since = info.system_time.and_then(|t| t.parse().ok());
        let follower = tokio::spawn(events::follow(docker.clone(), Arc::clone(&watch), since));
        let inner = Inner {
            docker,
            address,
            facts,
            watch,
            follower,
            builds: Mutex::default(),
            answered: Mutex::new(Some(Instant::now())),
            failed_pulls: Mutex::default(),
        };
        Ok(DockerEngine { inner: Arc::new(inner) })
    }

    /// Asks whether it answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), EnvError> {
        self.call(&calls::PING, &self.inner.address.to_string(), self.docker().ping()).await.map(|_| ())
    }

    /// The same, of no use where it did what it was asked less than a second ago.
    ///
    /// # Errors
    /// As [`DockerEngine::ping`].
    pub async fn answers(&self) -> Result<(), EnvError> {
        let lately = self.answered().is_some_and(|at| at.elapsed() < LATELY);
        if lately { Ok(()) } else { self.ping().await }
    }

    fn answered(&self) -> MutexGuard<'_, Option<Instant>> {
        self.inner.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it said about itself.
    pub fn facts(&self) -> &EngineFacts {
        &self.inner.facts
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.inner.address
    }

    fn docker(&self) -> &Docker {
        &self.inner.docker
    }

    async fn call<T>(
        &self,
        call: &Call,
        subject: &str,
        work: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EnvError> {
        let done = calls::limited(call, subject, work).await;
        self.note_answer(done.is_ok());
        done
    }

    /// Notes whether it did what it was asked just now.
    fn note_answer(&self, did: bool) {
        *self.answered() = did.then(Instant::now);
    }

    /// The lock of what must not be built twice at once.
    fn build_lock(&self, tag: &str) -> Arc<tokio::sync::Mutex<Option<String>>> {
        let mut builds = self.inner.builds.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(builds.entry(tag.to_string()).or_default())
    }
}

/// Why files written in mounted directories could not be given to the right owner under such an
/// engine; None when they can.
///
/// Rootless and user-namespaced engines shift the numbers of users: what root writes inside belongs
/// to another number outside, and the final change of owner inside would give it to yet another.
pub fn ownership_refusal(security: &[String]) -> Option<EnvError> {
    let named = |name: &str| security.iter().any(|s| s.split(',').any(|part| part == format!("name={name}")));
    let detail = if named("rootless") {
        "this Docker engine runs rootless: files written in a container would not belong to you"
    } else if named("userns") {
        "this Docker engine remaps users (userns-remap): files written in a container would not belong to you"
    } else {
        return None;
    };
    let remedy = "not supported yet: use an engine that runs as root without remapping, or run with Harbor";
    Some(EnvError::new(Trouble::Unsupported, "check ownership of files", detail, remedy))
}
