//! Asking one server: limits of time and size, the key, and errors in words that hold neither.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;

use crate::job::host::is_near;
use crate::job::text;
use crate::serving::{Unreached, page};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a connection may wait for the next request. Servers close theirs after 5 s.
const IDLE: Duration = Duration::from_secs(4);
/// Longest error text of somebody else's, in characters.
const WORDS: usize = 160;

/// An answer, whatever its status.
pub(in crate::serving) struct Answer {
    pub(in crate::serving) status: u16,
    pub(in crate::serving) body: Vec<u8>,
}

/// No answer that could be used.
#[derive(Debug, Clone)]
pub(in crate::serving) struct Missed {
    pub(in crate::serving) path: &'static str,
    pub(in crate::serving) how: Unreached,
    /// In words, without address and key.
    pub(in crate::serving) why: Arc<str>,
}

impl Missed {
    pub(in crate::serving) fn new(path: &'static str, how: Unreached, why: &str) -> Missed {
        Missed { path, how, why: Arc::from(why) }
    }

    /// Nobody is there. A new connection that was taken and broke is another thing: somebody is.
    pub(in crate::serving) fn is_gone(&self) -> bool {
        self.how == Unreached::Refused && &*self.why != BROKEN
    }

    /// The server does not have that path.
    pub(in crate::serving) fn is_absent(&self) -> bool {
        matches!(self.how, Unreached::Status(404 | 405 | 501))
    }
}

/// The clients: hosts of this machine and its networks are asked directly, all others through the proxy
/// that the environment names.
#[derive(Clone)]
pub(in crate::serving) struct Clients {
    direct: reqwest::Client,
    proxied: reqwest::Client,
}

impl Clients {
    /// # Errors
    /// The machine's certificates can not be read, in words.
    pub(in crate::serving) fn new() -> Result<Clients, Arc<str>> {
        let build = |direct: bool| {
            let builder = reqwest::Client::builder()
                .user_agent(concat!("pilothouse/", env!("CARGO_PKG_VERSION")))
                // A key goes to the host that it was meant for, and to no other.
                .redirect(Policy::none())
                .referer(false)
                .http1_only()
                .connect_timeout(CONNECT)
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(8)
                .tcp_nodelay(true);
            let builder = if direct { builder.no_proxy() } else { builder };
            builder.build().map_err(|e| Arc::from(format!("no HTTP client: {}", innermost(&e))))
        };
        Ok(Clients { direct: build(true)?, proxied: build(false)? })
    }

    fn of(&self, url: &Url) -> &reqwest::Client {
        if url.host_str().is_some_and(is_near) { &self.direct } else { &self.proxied }
    }
}

/// A server and how it is asked.
#[derive(Clone)]
pub(in crate::serving) struct Target {
    clients: Clients,
    /// Without path.
    base: Url,
    key: Option<HeaderValue>,
}

impl Target {
    /// # Errors
    /// It is no address of a server.
    pub(in crate::serving) fn new(clients: &Clients, base: &str, key: Option<HeaderValue>) -> Result<Target, Arc<str>> {
        let url = Url::parse(base).ok().filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
        let mut base = url.ok_or_else(|| Arc::from("it is no address of a server"))?;
        let (_, _) = (base.set_username(""), base.set_password(None));
        base.set_query(None);
        base.set_fragment(None);
        Ok(Target { clients: clients.clone(), base, key })
    }

    /// The same host with another port and without the key.
    pub(in crate::serving) fn port(&self, port: u16) -> Option<Target> {
        let mut base = self.base.clone();
        base.set_port(Some(port)).ok()?;
        base.set_path("");
        Some(Target { clients: self.clients.clone(), base, key: None })
    }

    pub(in crate::serving) fn port_number(&self) -> Option<u16> {
        self.base.port_or_known_default()
    }

    /// The same with another key.
    pub(in crate::serving) fn with_key(mut self, key: Option<HeaderValue>) -> Target {
        self.key = key;
        self
    }

    /// Another server, without the key.
    pub(in crate::serving) fn other(&self, base: &str) -> Option<Target> {
        Target::new(&self.clients, base, None).ok()
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let whole = format!("{}{path}", self.base.path().trim_end_matches('/'));
        url.set_path(&whole);
        url
    }

    /// Gets a path. An answer that is not 200 is missed.
    pub(in crate::serving) async fn page(&self, path: &'static str, limit: Duration) -> Result<Vec<u8>, Missed> {
        let answer = self.get(path, limit).await?;
        match refusal(path, answer.status) {
            None => Ok(answer.body),
            Some(missed) => Err(missed),
        }
    }

    /// Gets a path.
    pub(in crate::serving) async fn get(&self, path: &'static str, limit: Duration) -> Result<Answer, Missed> {
        self.twice(path, None, limit).await
    }

    /// Posts JSON, of which a second time changes nothing.
    pub(in crate::serving) async fn post(
        &self,
        path: &'static str,
        body: String,
        limit: Duration,
    ) -> Result<Answer, Missed> {
        self.twice(path, Some(body), limit).await
    }

    /// A connection that was kept may have been closed at that moment: once more with a new one.
    async fn twice(&self, path: &'static str, body: Option<String>, limit: Duration) -> Result<Answer, Missed> {
        match self.send(path, body.clone(), limit).await {
            Err(missed) if &*missed.why == BROKEN => self.send(path, body, limit).await,
            other => other,
        }
    }

    async fn send(&self, path: &'static str, body: Option<String>, limit: Duration) -> Result<Answer, Missed> {
        let url = self.url(path);
        let client = self.clients.of(&url);
        let mut request = match body {
            None => client.get(url),
            Some(body) => client.post(url).header(reqwest::header::CONTENT_TYPE, "application/json").body(body),
        };
        request = request.header(ACCEPT, "*/*");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let read = async {
            let mut answer = request.send().await.map_err(|e| missed(path, &e))?;
            let status = answer.status().as_u16();
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await.map_err(|e| missed(path, &e))? {
                if body.len() + piece.len() > page::LONGEST {
                    let why = format!("more than {} MiB", page::LONGEST >> 20);
                    return Err(Missed::new(path, Unreached::Garbled, &why));
                }
                body.extend_from_slice(&piece);
            }
            Ok(Answer { status, body })
        };
        let late = |_| {
            let why = format!("no answer in {} s", limit.as_secs_f32());
            Err(Missed::new(path, Unreached::TimedOut, &why))
        };
        tokio::time::timeout(limit, read).await.unwrap_or_else(late)
    }
}

/// What a status other than 200 means.
pub(in crate::serving) fn refusal(path: &'static str, status: u16) -> Option<Missed> {
    let missed = |how, why: &str| Some(Missed::new(path, how, why));
    match status {
        200 => None,
        401 | 403 => missed(Unreached::Unauthorised, &format!("status {status}: it wants another key")),
        300..=399 => {
            missed(Unreached::Status(status), &format!("status {status}: it sends elsewhere, which is not followed"))
        }
        status => missed(Unreached::Status(status), &format!("status {status}")),
    }
}

const BROKEN: &str = "the connection broke";

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
    text::mask_secrets(&words).chars().take(WORDS).collect()
}

fn missed(path: &'static str, error: &reqwest::Error) -> Missed {
    let mut kind = None;
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            kind = Some(io.kind());
        }
        source = inner.source();
    }
    let why = match kind {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_string(),
        _ if error.is_connect() && error.is_timeout() => format!("no connection in {} s", CONNECT.as_secs()),
        _ if error.is_connect() => innermost(error),
        _ if error.is_timeout() => return Missed::new(path, Unreached::TimedOut, "no answer in time"),
        _ if error.is_decode() => return Missed::new(path, Unreached::Garbled, "the answer breaks off"),
        Some(_) => BROKEN.to_string(),
        // Not what HTTP looks like, or an end before the head.
        None => match innermost(error) {
            words if words.contains("closed") || words.contains("incomplete") => BROKEN.to_string(),
            words => return Missed::new(path, Unreached::Garbled, &words),
        },
    };
    Missed::new(path, Unreached::Refused, &why)
}

/// `Bearer KEY`, kept out of every debug output. None for a key that can not stand in a header.
pub(in crate::serving) fn bearer(key: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_near_by_are_asked_directly() {
        let near =
            |host: &str| Url::parse(&format!("http://{host}:1/")).map(|url| url.host_str().is_some_and(is_near)).ok();
        for host in ["localhost", "127.0.0.1", "10.1.2.3", "192.168.0.4", "[::1]", "[fd00::1]", "gpu7", "gpu7.local"] {
            assert_eq!(near(host), Some(true), "{host}");
        }
        for host in ["example.com", "8.8.8.8", "[2001:db8::1]", "172.32.0.1"] {
            assert_eq!(near(host), Some(false), "{host}");
        }
    }
}
