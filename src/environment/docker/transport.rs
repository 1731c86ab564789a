//! The connection to a local engine: kept open between calls.
//!
//! The client's own way opens a connection for every call; a trial makes about twenty.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use hyperlocal::UnixConnector;

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
        .build(UnixConnector);
    let client = Arc::new(client);
    // The connector takes the path of the socket, in hexadecimal digits, for the host.
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
