//! The connection to a local engine: kept open between calls.
//!
//! The client's own way opens a connection for every call; a trial makes a dozen and more.

use std::fmt::Write as _;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tower_service::Service;

use super::wire::Quiet;

/// Connections that may wait for the next call.
const IDLE: usize = 8;
/// How long one may wait: within a trial call follows call.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// A client of the engine at a socket of this machine.
///
/// # Errors
/// There is no such socket.
pub(super) fn local(path: &str, limit: Duration) -> Result<Docker, Error> {
    if !Path::new(path).exists() {
        return Err(Error::SocketNotFoundError(path.to_string()));
    }
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(IDLE)
        .pool_idle_timeout(IDLE_TIME)
        .build(Connector { path: path.to_string() });
    let client = Arc::new(client);
    // A name for the host that no other socket has: connections are kept by it.
    let host = path.bytes().fold(String::from("unix://"), |mut host, byte| {
        let _ = write!(host, "{byte:02x}");
        host
    });
    let send = move |request: BollardRequest| {
        let client = Arc::clone(&client);
        async move {
            // An engine that was restarted closed what waits here. Only a turn of the runtime takes
            // notice; without it the call would go out on a dead connection and fail.
            tokio::task::yield_now().await;
            client.request(request).await.map_err(Error::from)
        }
    };
    Docker::connect_with_custom_transport(send, Some(host), limit.as_secs(), API_DEFAULT_VERSION)
}

/// Connects to the one socket, whatever address it is asked for.
#[derive(Debug, Clone)]
struct Connector {
    path: String,
}

impl<R> Service<R> for Connector {
    type Response = TokioIo<Quiet>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        let path = self.path.clone();
        Box::pin(async move { Quiet::connect(&path).await.map(TokioIo::new) })
    }
}
