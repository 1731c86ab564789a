//! Connections to model servers, and what their failures mean.

use std::error::Error as _;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use reqwest::redirect::Policy;

use super::error::{Clock, Kind};
use super::key::Secrets;
use super::wording;
use crate::job::host::is_near;

/// How long a connection may wait for the next request. Servers close theirs after 5 s.
const IDLE: Duration = Duration::from_secs(4);
/// How often a quiet connection is asked whether the other side is still there, and how often in vain.
const ALIVE: Duration = Duration::from_secs(30);
const ALIVE_TRIES: u32 = 4;

/// A failure before it became an error: without what the call had spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    pub(super) words: String,
}

impl Failure {
    pub(super) fn new(kind: Kind, words: impl Into<String>) -> Failure {
        Failure { kind, words: words.into() }
    }
}

/// One client of each sort for the whole process: they hold the connections, and the machine's certificates,
/// which take milliseconds and megabytes.
static CLIENTS: Mutex<Vec<(Sort, reqwest::Client)>> = Mutex::new(Vec::new());

#[derive(Clone, Copy, PartialEq, Eq)]
struct Sort {
    tls: bool,
    direct: bool,
    connect: Duration,
}

/// The client for an address. Hosts of this machine and its networks are asked directly, all others through
/// the proxy that the environment names.
pub(super) fn client(url: &Url, connect: Duration) -> Result<reqwest::Client, Failure> {
    let sort = Sort { tls: url.scheme() == "https", direct: url.host_str().is_some_and(is_near), connect };
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, client)) = clients.iter().find(|(other, _)| *other == sort) {
        return Ok(client.clone());
    }
    let builder = reqwest::Client::builder()
        .user_agent(concat!("pilothouse/", env!("CARGO_PKG_VERSION")))
        // A key goes to the host that it was meant for, and to no other.
        .redirect(Policy::none())
        .referer(false)
        .http1_only()
        .connect_timeout(connect)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(64)
        .tcp_nodelay(true)
        // A machine that vanished says nothing: without these a long wait for a model would never end.
        .tcp_keepalive(ALIVE)
        .tcp_keepalive_interval(ALIVE)
        .tcp_keepalive_retries(ALIVE_TRIES);
    let builder = if sort.tls { builder } else { builder.tls_built_in_root_certs(false) };
    let builder = if sort.direct { builder.no_proxy() } else { builder };
    let client = builder.build().map_err(|e| Failure::new(Kind::Tls, format!("no HTTP client: {}", innermost(&e))))?;
    // Time-outs are few; who tries many gets clients of his own.
    if clients.len() < 16 {
        clients.push((sort, client.clone()));
    }
    Ok(client)
}

/// The address of a path below the base (`…/v1`), without the password that it may hold.
pub(super) fn address(base: &str, path: &str) -> Result<Url, Failure> {
    let url = Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let mut url =
        url.ok_or_else(|| Failure::new(Kind::Connect, "the endpoint is no address of a server (http://HOST:PORT/v1)"))?;
    let (_, _) = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    let whole = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&whole);
    Ok(url)
}

/// The same server's address of a path beside `/v1`.
pub(super) fn beside(base: &str, path: &str) -> Result<Url, Failure> {
    let mut url = address(base, "")?;
    let root = url.path().trim_end_matches('/').trim_end_matches("/v1").to_string();
    url.set_path(&format!("{root}{path}"));
    Ok(url)
}

/// Host and port, to say where nobody is.
pub(super) fn host(url: &Url) -> String {
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => safe(&format!("{host}:{port}")),
        (host, _) => safe(host.unwrap_or("-")),
    }
}

fn safe(text: &str) -> String {
    wording::safe(text, &Secrets::default())
}

fn innermost(error: &reqwest::Error) -> String {
    let mut words = String::from("unknown");
    let mut source = error.source();
    while let Some(inner) = source {
        words = inner.to_string();
        source = inner.source();
    }
    // What stands there may name an address, and that may hold a password.
    if words.contains("://") || words.contains('@') {
        return "no connection".to_string();
    }
    safe(&words)
}

/// The words of all errors inside, and the kind of the innermost one of the system.
fn inside(error: &reqwest::Error) -> (String, Option<io::ErrorKind>) {
    let (mut words, mut kind) = (String::new(), None);
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            kind = Some(io.kind());
        }
        words.push_str(&inner.to_string().to_lowercase());
        words.push('\n');
        source = inner.source();
    }
    (words, kind)
}

/// A request that got no answer.
pub(super) fn unsent(error: &reqwest::Error, url: &Url, connect: Duration) -> Failure {
    let at = host(url);
    let (words, io) = inside(error);
    if error.is_timeout() {
        let words = format!("no connection to {at} in {} s", connect.as_secs_f32());
        return Failure::new(Kind::Timeout(Clock::Connect), words);
    }
    if words.contains("dns error") || words.contains("failed to lookup address") {
        return Failure::new(Kind::Dns, format!("the name {at} is not known"));
    }
    let tls = ["certificate", "invalidcontenttype", "handshake", "tls", "ssl"];
    if url.scheme() == "https" && tls.iter().any(|word| words.contains(word)) {
        return Failure::new(Kind::Tls, format!("no trust in {at}: {}", innermost(error)));
    }
    if io == Some(io::ErrorKind::ConnectionRefused) {
        return Failure::new(Kind::Connect, format!("connection to {at} refused"));
    }
    if error.is_connect() {
        return Failure::new(Kind::Connect, format!("no connection to {at}: {}", innermost(error)));
    }
    if error.is_request() && (words.contains("invalid http") || words.contains("parse")) {
        return Failure::new(Kind::Malformed, format!("{at} does not speak HTTP: {}", innermost(error)));
    }
    Failure::new(Kind::Connect, format!("{at} closed the connection before an answer"))
}

/// A body that ended too soon.
pub(super) fn cut_off(error: &reqwest::Error) -> Failure {
    Failure::new(Kind::Broken, format!("the connection broke amid the answer: {}", innermost(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_passwords_and_keep_queries() {
        let at = |base: &str, path: &str| address(base, path).map(|url| url.to_string()).ok();
        assert_eq!(at("http://u:pw@h:1/v1/", "/chat/completions").as_deref(), Some("http://h:1/v1/chat/completions"));
        assert_eq!(
            at("https://h/d/x?api-version=1#f", "/models").as_deref(),
            Some("https://h/d/x/models?api-version=1")
        );
        for bad in ["", "h:1/v1", "ftp://h/v1", "http://", "file:///x"] {
            assert_eq!(at(bad, "/x"), None, "{bad}");
        }
        let beside = |base: &str| beside(base, "/server_info").map(|url| url.to_string()).ok();
        assert_eq!(beside("http://h:1/v1").as_deref(), Some("http://h:1/server_info"));
        assert_eq!(beside("http://h:1/m/solve/v1").as_deref(), Some("http://h:1/m/solve/server_info"));
    }
}
