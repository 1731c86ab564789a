//! The connection to a local engine: kept open between calls.
//!
//! The client's own way opens a connection for every call; a trial makes a dozen and more.

use std::io;
use std::os::unix::net::UnixStream as Socket;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::wire::Quiet;

/// Connections that are kept, those at work included.
const KEPT: usize = 16;

/// A client of the engine at a socket of this machine.
///
/// # Errors
/// There is no such socket.
pub(super) fn local(path: &str, limit: Duration) -> Result<Docker, Error> {
    if !Path::new(path).exists() {
        return Err(Error::SocketNotFoundError(path.to_string()));
    }
    let lines = Arc::new(Lines { path: path.to_string(), kept: Mutex::default() });
    let send = move |request: BollardRequest| Arc::clone(&lines).send(request);
    Docker::connect_with_custom_transport(send, Some("http://localhost"), limit.as_secs(), API_DEFAULT_VERSION)
}

/// Connections to one socket, each for one request at a time.
struct Lines<B> {
    path: String,
    kept: Mutex<Vec<Line<B>>>,
}

struct Line<B> {
    sender: SendRequest<B>,
    /// The same connection, to look whether the engine closed it.
    socket: Socket,
}

impl<B> Line<B> {
    /// Whether the engine is still there. One that was restarted closed what waited; a call on such a
    /// connection would fail.
    fn is_open(&self) -> bool {
        let mut byte = [0_u8];
        matches!(recv(&self.socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN))
    }
}

impl<B> Lines<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn send(self: Arc<Self>, request: Request<B>) -> Result<Response<Incoming>, Error> {
        let mut request = plain(request);
        loop {
            let (mut line, used) = match self.take().await {
                Some(line) => (line, true),
                None => (connect(&self.path).await.map_err(|err| Error::IOError { err })?, false),
            };
            match line.sender.try_send_request(request).await {
                Ok(answer) => {
                    self.keep(line);
                    return Ok(answer);
                }
                // Closed before anything of it was sent.
                Err(mut failed) => match failed.take_message().filter(|_| used) {
                    Some(unsent) => request = unsent,
                    None => return Err(failed.into_error().into()),
                },
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Line<B>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that waits, the one that was used last first.
    async fn take(&self) -> Option<Line<B>> {
        if let Some(line) = self.idle() {
            return Some(line);
        }
        if self.kept().is_empty() {
            return None;
        }
        // One whose answer has just been read says so in its next turn.
        tokio::task::yield_now().await;
        self.idle()
    }

    fn idle(&self) -> Option<Line<B>> {
        let mut kept = self.kept();
        kept.retain(|line| !line.sender.is_closed());
        while let Some(at) = kept.iter().rposition(|line| line.sender.is_ready()) {
            let line = kept.remove(at);
            if line.is_open() {
                return Some(line);
            }
        }
        None
    }

    /// Keeps one whose answer is under way: it waits once that is read.
    fn keep(&self, line: Line<B>) {
        let mut kept = self.kept();
        if kept.len() < KEPT {
            kept.push(line);
        }
    }
}

/// As it is asked for on a connection: the path alone, the host beside it.
fn plain<B>(mut request: Request<B>) -> Request<B> {
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    request
}

async fn connect<B>(path: &str) -> io::Result<Line<B>>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let quiet = Quiet::connect(path).await?;
    let socket = quiet.socket()?;
    let (sender, connection) = handshake(TokioIo::new(quiet)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the engine ended");
        }
    });
    Ok(Line { sender, socket })
}
