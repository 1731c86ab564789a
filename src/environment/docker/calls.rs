//! The calls of the engine: name, time limit, remedy; and what their errors mean.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::time::Duration;

use bollard::errors::Error;

use super::super::{EnvError, Trouble};

/// One kind of call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// What it does, in words.
    pub(super) name: &'static str,
    /// Longest wait for an answer.
    pub(super) limit: Duration,
    /// What to do when it does not come.
    pub(super) late: &'static str,
}

const fn call(name: &'static str, seconds: u64, late: &'static str) -> Call {
    Call { name, limit: Duration::from_secs(seconds), late }
}

const ENGINE: &str = "the Docker engine hangs: look at its log, restart it";
const BUSY: &str = "the Docker engine is overloaded or its disk slow: run fewer trials at a time, look at its log";
const BROKEN: &str = "the container is broken: it is given up and removed";

pub(super) const VERSION: Call = call("connect to Docker", 10, ENGINE);
pub(super) const INFO: Call = call("ask Docker about itself", 20, ENGINE);
pub(super) const PING: Call = call("ping Docker", 5, ENGINE);
pub(super) const INSPECT_IMAGE: Call = call("inspect image", 20, BUSY);
pub(super) const REMOVE_IMAGE: Call = call("remove image", 60, BUSY);
/// Between two lines of progress.
pub(super) const PULL: Call = call("pull image", 180, "the registry or the network hangs: try docker pull by hand");
pub(super) const BUILD: Call = call("build image", 600, "raise build_timeout_sec, or build the image beforehand");
pub(super) const CREATE: Call = call("create container", 60, BUSY);
pub(super) const START: Call = call("start container", 90, BUSY);
pub(super) const PAUSE: Call = call("pause container", 20, BUSY);
pub(super) const UNPAUSE: Call = call("wake container", 20, BUSY);
pub(super) const RENAME: Call = call("rename container", 20, BUSY);
/// With its size, which the engine counts then.
pub(super) const SIZE: Call = call("measure container", 60, BUSY);
/// Bounded by the caller.
pub(super) const COMMIT: Call = call("copy container to image", 1800, BUSY);
pub(super) const NETWORK_CONNECT: Call = call("connect to network", 30, BUSY);
pub(super) const INSPECT: Call = call("inspect container", 20, BUSY);
pub(super) const LOGS: Call = call("read container log", 10, BUSY);
pub(super) const REMOVE: Call = call("remove container", 45, "remove it by hand: docker rm -f");
pub(super) const EXEC_CREATE: Call = call("prepare a command in container", 20, BROKEN);
pub(super) const EXEC_START: Call = call("start a command in container", 30, BROKEN);
pub(super) const EXEC_INSPECT: Call = call("read the exit code of a command in container", 20, BROKEN);
pub(super) const EXEC_RESIZE: Call = call("set the size of a terminal in container", 20, BROKEN);
pub(super) const STAT: Call = call("look at a file in container", 20, BROKEN);
/// A whole upload.
pub(super) const UPLOAD: Call = call("upload to container", 300, BUSY);
/// Between two pieces of a download.
pub(super) const DOWNLOAD: Call = call("download from container", 60, BUSY);
pub(super) const LIST: Call = call("list what Docker keeps", 60, BUSY);
pub(super) const NETWORK_CREATE: Call = call("create network", 30, BUSY);
pub(super) const NETWORK_REMOVE: Call = call("remove network", 30, "remove it by hand: docker network rm");
pub(super) const NETWORK_LIST: Call = call("list networks", 20, BUSY);

/// A call under its own limit.
pub(super) async fn limited<T>(
    call: &Call,
    subject: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, EnvError> {
    match tokio::time::timeout(call.limit, work).await {
        Ok(answer) => answer.map_err(|e| explain(call, subject, &e)),
        Err(_) => Err(late(call, subject, call.limit)),
    }
}

/// The error of a call that did not answer.
pub(super) fn late(call: &Call, subject: &str, limit: Duration) -> EnvError {
    let detail = format!("no answer in {} s", limit.as_secs());
    EnvError::new(Trouble::TimedOut, &named(call, subject), &detail, call.late)
}

pub(super) fn named(call: &Call, subject: &str) -> String {
    format!("{} {subject}", call.name).trim_end().to_string()
}

/// The texts of engines that have no address pool left, by version; the status differs too.
pub(super) fn no_pool(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    lower.contains("non-overlapping ipv4 address pool")
        || lower.contains("predefined address pools have been fully subnetted")
        || lower.contains("could not find an available predefined network")
}

/// What to do when there is no pool left.
pub(super) const POOL_REMEDY: &str = "remove unused networks (pilothouse clean, docker network prune), or give a range \
     of your own, or add default-address-pools to the engine's daemon.json";

/// An engine's answer in our words.
pub(super) fn explain(call: &Call, subject: &str, error: &Error) -> EnvError {
    let at = named(call, subject);
    let (status, message) = match error {
        Error::DockerResponseServerError { status_code, message } => (*status_code, message.clone()),
        Error::DockerStreamError { error } => (0, error.clone()),
        Error::SocketNotFoundError(path) => {
            let detail = format!("there is no socket {path}");
            return EnvError::new(Trouble::Unreachable, &at, &detail, START_IT);
        }
        Error::RequestTimeoutError => return late(call, subject, call.limit),
        other => return lost(&at, other),
    };
    let lower = message.to_ascii_lowercase();
    let (trouble, remedy) = if no_pool(&message) {
        (Trouble::AddressPool, POOL_REMEDY)
    } else if lower.contains("toomanyrequests") || lower.contains("rate limit") {
        (Trouble::RateLimit, "log in to the registry (docker login) and pull by hand, use a mirror, or wait an hour")
    } else if lower.contains("no space left on device") {
        (Trouble::Io, "free disk space where Docker keeps its data: docker system df")
    } else if lower.contains("bind source path does not exist") {
        (Trouble::Mount, "make the directory on the engine's machine before the start")
    } else if lower.contains("no such image")
        || lower.contains("manifest unknown")
        || lower.contains("pull access denied")
        || (call.name == PULL.name && status == 404)
    {
        (Trouble::Image, "check the name; log in if it is private (docker login); build it beforehand")
    } else if lower.contains("docker-init") {
        (Trouble::Engine, "the engine has no docker-init: install it, or switch the init off")
    } else if lower.contains("requires buildkit") || lower.contains("unknown flag: mount") {
        (Trouble::Build, "this Dockerfile needs BuildKit: build it with docker build and name it as docker_image")
    } else {
        match status {
            404 => (Trouble::NotFound, ""),
            403 => (Trouble::Denied, ""),
            409 => (Trouble::Conflict, ""),
            _ => (Trouble::Engine, ""),
        }
    };
    EnvError::new(trouble, &at, &message, remedy)
}

const START_IT: &str = "start Docker (systemctl start docker), or set DOCKER_HOST";

/// A connection that failed: the reason is in the chain of sources.
fn lost(at: &str, error: &Error) -> EnvError {
    let mut words = error.to_string();
    let mut source = error.source();
    let mut kind = match error {
        Error::IOError { err } => Some(err.kind()),
        _ => None,
    };
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            kind = Some(io.kind());
        }
        words = inner.to_string();
        source = inner.source();
    }
    match kind {
        Some(io::ErrorKind::PermissionDenied) => {
            let remedy = "join the group that owns the socket (usermod -aG docker USER), or run as root";
            EnvError::new(Trouble::Denied, at, "no permission for the Docker socket", remedy)
        }
        Some(io::ErrorKind::ConnectionRefused) => {
            EnvError::new(Trouble::Unreachable, at, "connection refused: nobody listens there", START_IT)
        }
        Some(io::ErrorKind::NotFound) => EnvError::new(Trouble::Unreachable, at, "the socket is gone", START_IT),
        _ => EnvError::new(Trouble::Unreachable, at, &words, "look whether Docker still runs, and at its log"),
    }
}
