//! What is read: sources as they are named, started, and the one act on a server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use tokio::sync::mpsc;

use super::poll::client::{Clients, Missed, Target, bearer};
use super::poll::{self, Server, Sink, Task};
use super::tail;
use super::{Engine, Observation, Place, Seen, Source, SourceId, Unreached};
use crate::job::{Stamp, text};

/// Most batches of observations that wait to be taken. Whoever does not take them stops the reading.
pub const WAITING: usize = 256;

/// Longest wait for the answer to an act.
const ACT: Duration = Duration::from_secs(5);

/// A value of `--serving` that can not be read. Safe to print: it does not repeat what was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Nothing, or a name and nothing.
    #[error("it is empty: name a URL, a log file, docker:CONTAINER or cmd:COMMAND")]
    Empty,
    /// No URL.
    #[error("that is no URL of a server: http://HOST:PORT or https://HOST")]
    Url,
    /// A user name, a password or a query.
    #[error("keys do not belong in a URL: name a variable by --serving-key-env instead")]
    Key,
}

/// One value of `--serving`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Its name, where it has one.
    pub name: Option<Arc<str>>,
    /// What is read.
    pub place: Place,
}

/// Reads a value of `--serving`: `http(s)://HOST:PORT` with or without `/v1`, `metrics:URL`, a path of a
/// log or `file:PATH`, `docker:CONTAINER`, `cmd:COMMAND`; `NAME=` may stand before each.
///
/// # Errors
/// It is empty, or a URL that can not be used.
pub fn parse(value: &str) -> Result<Spec, Wrong> {
    let value = value.trim();
    let is_name = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
    };
    let (name, rest) = match value.split_once('=') {
        Some((name, rest)) if is_name(name) => (Some(Arc::from(name)), rest.trim()),
        _ => (None, value),
    };
    let some = |text: &str| if text.trim().is_empty() { Err(Wrong::Empty) } else { Ok(text.trim().to_string()) };
    let place = if let Some(url) = rest.strip_prefix("metrics:") {
        let mut url = url_of(url.trim())?;
        if matches!(url.path(), "" | "/") {
            url.set_path("/metrics");
        }
        Place::Metrics(url.as_str().into())
    } else if let Some(path) = rest.strip_prefix("file:") {
        Place::File(PathBuf::from(some(path)?).into())
    } else if let Some(container) = rest.strip_prefix("docker:") {
        Place::Container(some(container)?.into())
    } else if let Some(command) = rest.strip_prefix("cmd:") {
        Place::Command(some(command)?.into())
    } else if rest.contains("://") {
        Place::Http(base(&url_of(rest)?))
    } else if is_host_and_port(rest) {
        Place::Http(base(&url_of(&format!("http://{rest}"))?))
    } else {
        Place::File(PathBuf::from(some(rest)?).into())
    };
    Ok(Spec { name, place })
}

/// `localhost:30000`: nobody calls a log that.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.trim_end_matches('/').trim_end_matches("/v1").rsplit_once(':') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok()
}

fn url_of(text: &str) -> Result<Url, Wrong> {
    let url = Url::parse(text).map_err(|_| Wrong::Url)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Wrong::Url);
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(Wrong::Key);
    }
    let mut url = url;
    url.set_fragment(None);
    Ok(url)
}

/// Without the path that clients of models are given.
fn base(url: &Url) -> Arc<str> {
    let text = url.as_str().trim_end_matches('/');
    Arc::from(text.strip_suffix("/v1").unwrap_or(text).trim_end_matches('/'))
}

/// The server behind a job's `api_base`, as seen from here: a container's name for its host is this
/// machine. None for what is no HTTP address, and for public services (HTTPS without a port at a name with
/// dots): they are asked only when somebody names them.
pub fn guess(api_base: &str) -> Option<Spec> {
    let mut url =
        Url::parse(api_base.trim()).ok().filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host())?;
    let (_, _) = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    let host = url.host_str()?.to_string();
    let is_name = host.contains('.') && !host.starts_with('[') && host.parse::<std::net::IpAddr>().is_err();
    if matches!(host.as_str(), "host.docker.internal" | "host.containers.internal" | "0.0.0.0") {
        url.set_host(Some("127.0.0.1")).ok()?;
    } else if is_name && url.scheme() == "https" && url.port().is_none() {
        return None;
    }
    Some(Spec { name: None, place: Place::Http(base(&url)) })
}

/// The source of an address that an endpoint was moved to: whoever knows which endpoint it is (by its place
/// in the order of their addresses in the config) and how often it was moved gives it the same number.
pub fn moved_to(base: &str, endpoint: usize, moves: u32) -> Option<Source> {
    let mut source = sources(&[guess(base)?]).pop()?;
    let place = u16::try_from(endpoint.min(0x7f)).unwrap_or_default();
    source.id = SourceId(0x8000 | (place << 8) | u16::try_from(moves & 0xff).unwrap_or_default());
    Some(source)
}

/// The sources, numbered in their order. Those of one name tell of one server. Without names one URL, one
/// log and one page of metrics belong together; of several, each is a server of its own, called after its
/// host and port or its file. What is named twice is read once.
pub fn sources(specs: &[Spec]) -> Vec<Source> {
    let mut seen: Vec<&Spec> = Vec::new();
    for spec in specs {
        if !seen.iter().any(|other| other.place == spec.place) {
            seen.push(spec);
        }
    }
    let unnamed = |pick: fn(&Place) -> bool| seen.iter().filter(|s| s.name.is_none() && pick(&s.place)).count();
    let is_log = |place: &Place| matches!(place, Place::File(_) | Place::Container(_) | Place::Command(_));
    let urls = unnamed(|p| matches!(p, Place::Http(_)));
    let alone = urls == 1;
    let one_log = unnamed(is_log) == 1;
    let one_page = unnamed(|p| matches!(p, Place::Metrics(_))) == 1;
    let url = seen.iter().find(|s| s.name.is_none() && matches!(s.place, Place::Http(_)));
    let whole = url.map(|spec| called(&spec.place));
    let mut taken: Vec<Arc<str>> = Vec::new();
    let mut out = Vec::new();
    for (number, spec) in seen.iter().enumerate() {
        let joins = alone
            && match &spec.place {
                Place::Http(_) => true,
                Place::Metrics(_) => one_page,
                place => one_log && is_log(place),
            };
        let server = match (&spec.name, &whole) {
            (Some(name), _) => Arc::clone(name),
            (None, Some(whole)) if joins => Arc::clone(whole),
            (None, _) => {
                let plain = called(&spec.place);
                let mut name = Arc::clone(&plain);
                let mut count = 1;
                while taken.contains(&name) {
                    count += 1;
                    name = format!("{plain} ({count})").into();
                }
                taken.push(Arc::clone(&name));
                name
            }
        };
        let Ok(id) = u16::try_from(number) else { break };
        out.push(Source { id: SourceId(id), server, place: spec.place.clone() });
    }
    out
}

/// What an unnamed server is called.
fn called(place: &Place) -> Arc<str> {
    match place {
        Place::Http(url) | Place::Metrics(url) => {
            let Ok(url) = Url::parse(url) else { return Arc::clone(url) };
            let host = url.host_str().unwrap_or_default();
            match url.port() {
                Some(port) => format!("{host}:{port}").into(),
                None => host.into(),
            }
        }
        Place::File(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into(),
        Place::Container(name) => Arc::clone(name),
        Place::Command(command) => {
            let masked = text::mask_secrets(command);
            let short: String = masked.chars().take(40).collect();
            if short.len() < masked.len() { format!("{short}…").into() } else { short.into() }
        }
    }
}

/// How sources are read.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the environment variable that holds the servers' key. Sent only to the hosts that were
    /// named, never to a worker that a router names, never along a redirection.
    pub api_key_env: Option<String>,
    /// Name of the one that holds their admin key, for [`Handle::abort`] alone.
    pub admin_key_env: Option<String>,
    /// Between two looks at a server's load; 0.2 s at least.
    pub poll: Duration,
    /// Bytes of a log that are read of what was there before.
    pub backlog: u64,
    /// Zone of the stamps in logs; None: found out by when lines arrive.
    pub zone: Option<jiff::tz::TimeZone>,
}

impl Default for Options {
    fn default() -> Options {
        Options { api_key_env: None, admin_key_env: None, poll: Duration::from_secs(2), backlog: 8 << 20, zone: None }
    }
}

impl Options {
    /// What of it can not be had, in words: a variable that is not set, or whose text is no key.
    pub fn problems(&self) -> Vec<String> {
        let names = [&self.api_key_env, &self.admin_key_env];
        let broken = names.into_iter().flatten().filter(|name| key(Some(name)).is_none());
        broken.map(|name| format!("the variable {} holds no key", text::clean(name))).collect()
    }
}

fn key(name: Option<&String>) -> Option<HeaderValue> {
    let value = std::env::var(name?).ok()?;
    if value.trim().is_empty() { None } else { bearer(&value) }
}

/// A server that something can be done at.
struct Actor {
    target: Target,
    engine: Arc<Mutex<Option<Engine>>>,
}

/// What reads the sources; everything ends when it is dropped, child processes too.
pub struct Handle {
    actors: BTreeMap<Arc<str>, Actor>,
    clients: Option<Clients>,
    admin: Option<HeaderValue>,
    plain: Option<HeaderValue>,
    _tasks: Vec<Task>,
    _tails: Vec<tail::Tail>,
}

/// Starts reading, on the runtime that it is called on. Batches hold observations of one source in their
/// order; when nobody takes them, reading waits.
pub fn start(sources: Vec<Source>, options: &Options, tx: mpsc::Sender<Vec<Observation>>) -> Handle {
    let plain = key(options.api_key_env.as_ref());
    let admin = key(options.admin_key_env.as_ref());
    let every = options.poll.max(Duration::from_millis(200));
    let clients = if sources.iter().any(|s| matches!(s.place, Place::Http(_) | Place::Metrics(_))) {
        Some(Clients::new())
    } else {
        None
    };
    let mut handle = Handle {
        actors: BTreeMap::new(),
        clients: clients.clone().and_then(Result::ok),
        admin,
        plain: plain.clone(),
        _tasks: Vec::new(),
        _tails: Vec::new(),
    };
    let apart = |server: &Arc<str>| {
        sources.iter().any(|other| other.server == *server && matches!(other.place, Place::Metrics(_)))
    };
    for source in &sources {
        let sink = Sink { tx: tx.clone(), source: source.id };
        match &source.place {
            Place::Http(url) | Place::Metrics(url) => {
                let target = match &clients {
                    Some(Ok(clients)) => Target::new(clients, url, plain.clone()),
                    Some(Err(why)) => Err(Arc::clone(why)),
                    None => Err(Arc::from("no HTTP client")),
                };
                let target = match target {
                    Ok(target) => target,
                    Err(why) => {
                        handle._tasks.push(complain(sink, why));
                        continue;
                    }
                };
                let mut server = Server::new(target.clone(), sink, every);
                if matches!(source.place, Place::Metrics(_)) {
                    handle._tasks.push(poll::start_metrics(Arc::new(server)));
                    continue;
                }
                server.metrics_elsewhere = apart(&source.server);
                let engine = Arc::clone(&server.engine);
                handle.actors.entry(Arc::clone(&source.server)).or_insert(Actor { target, engine });
                handle._tasks.push(poll::start(Arc::new(server)));
            }
            Place::File(path) => handle._tails.push(tail::file(path, sink, options)),
            Place::Container(name) => handle._tails.push(tail::container(name, sink, options)),
            Place::Command(command) => handle._tails.push(tail::command(command, sink, options)),
        }
    }
    handle
}

/// Tells once why a URL is not read.
fn complain(sink: Sink, why: Arc<str>) -> Task {
    Task(tokio::spawn(async move {
        let seen = Seen::Unreached { path: "/v1/models", how: Unreached::Refused, why };
        let _ = sink.tx.send(vec![Observation { source: sink.source, at: Some(Stamp::now()), seen }]).await;
    }))
}

/// How an act went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acted {
    /// The server took it.
    pub done: bool,
    /// In words, for the screen and the journal.
    pub words: Arc<str>,
}

impl Acted {
    fn no(words: impl Into<Arc<str>>) -> Acted {
        Acted { done: false, words: words.into() }
    }
}

impl Handle {
    /// Whether something can be done at a server.
    pub fn knows(&self, server: &str) -> bool {
        self.actors.contains_key(server)
    }

    /// Ends one request at a server, by the id under which the server has it. `worker`: its URL, where
    /// the server is a router.
    ///
    /// SGLang takes any id and does not say whether it had it. vLLM has such a path from 0.32 on, and not
    /// always. The admin key is sent where one is set, else the plain one.
    pub fn abort(
        &self,
        server: &str,
        worker: Option<&str>,
        rid: &str,
    ) -> impl Future<Output = Acted> + Send + 'static + use<> {
        let actor = self.actors.get(server).map(|actor| {
            let engine = *actor.engine.lock().unwrap_or_else(PoisonError::into_inner);
            (actor.target.clone(), engine)
        });
        let key = self.admin.clone().or_else(|| self.plain.clone());
        let at_worker = worker.map(|url| {
            let clients = self.clients.as_ref()?;
            Target::new(clients, url, key.clone()).ok()
        });
        let (rid, has_admin) = (rid.to_string(), self.admin.is_some());
        async move {
            let (target, engine) = match (actor, at_worker) {
                (_, Some(Some(target))) => (target, None),
                (_, Some(None)) => return Acted::no("the worker's address can not be used"),
                (None, None) => return Acted::no("that server has no URL that could be asked"),
                (Some((_, Some(Engine::Router))), None) => {
                    return Acted::no("a router can not end a request: name the worker that has it");
                }
                (Some((target, engine)), None) => (target.with_key(key), engine),
            };
            abort(&target, engine, &rid, has_admin).await
        }
    }
}

/// The path of SGLang, or that of vLLM where the server has it.
async fn abort(target: &Target, engine: Option<Engine>, rid: &str, has_admin: bool) -> Acted {
    const SGLANG: &str = "/abort_request";
    const VLLM: &str = "/inference/v1/abort_requests";
    if rid.is_empty() || rid.len() > 256 || rid.chars().any(char::is_control) {
        return Acted::no("that is no id of a request");
    }
    let engine = match engine {
        Some(engine) => engine,
        None => match which(target).await {
            Ok(engine) => engine,
            Err(missed) => return Acted::no(format!("the request was not ended: {}", missed.why)),
        },
    };
    let (path, body) = match engine {
        Engine::Sglang => (SGLANG, serde_json::json!({ "rid": rid })),
        Engine::Vllm => {
            let routes = target.page("/openapi.json", ACT).await;
            let has = routes.is_ok_and(|body| memchr::memmem::find(&body, VLLM.as_bytes()).is_some());
            if !has {
                return Acted::no("this vLLM has no path for it: close the client's connection instead");
            }
            (VLLM, serde_json::json!({ "request_ids": [rid] }))
        }
        Engine::Router => return Acted::no("a router can not end a request: name the worker that has it"),
    };
    match target.post(path, body.to_string(), ACT).await {
        Ok(answer) if matches!(answer.status, 200..300) => {
            let mut words = format!("asked to end request {}", text::clean(rid));
            if engine == Engine::Sglang {
                let _ = write!(words, "; it says yes whether or not it has it");
            }
            Acted { done: true, words: words.into() }
        }
        Ok(answer) if matches!(answer.status, 401 | 403) => Acted::no(match has_admin {
            true => "refused: it wants another admin key",
            false => "refused: it wants its admin key (--serving-admin-key-env NAME)",
        }),
        Ok(answer) => Acted::no(format!("not ended: status {}", answer.status)),
        Err(missed) => Acted::no(format!("not known whether it was ended: {}", missed.why)),
    }
}

/// The engine of a worker, by its models.
async fn which(target: &Target) -> Result<Engine, Missed> {
    let body = target.page("/v1/models", ACT).await;
    match body {
        Ok(body) => match super::page::models(&body).map(|m| m.engine) {
            Ok(Some(engine)) => Ok(engine),
            _ => Err(Missed::new("/v1/models", Unreached::Garbled, "it is no server that is known")),
        },
        // A server with an admin key keeps its models for the plain one.
        Err(missed) if missed.how == Unreached::Unauthorised => Ok(Engine::Sglang),
        Err(missed) => Err(missed),
    }
}
