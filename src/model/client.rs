//! One request: a conversation goes out, an answer comes in, in parts where the server can.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::ser::SerializeMap as _;
use serde_json::{Map, Value, json};

use super::answer::{Bad, Gathered};
use super::chat::{Finish, Message, Reply};
use super::endpoint::Standing;
use super::error::{Clock, Kind, Spent};
use super::key::Secrets;
use super::meter::Watch;
use super::options::{Options, served_name};
use super::sse::{self, Event, Events, Garbage};
use super::transport::{self, Failure};
use super::wording::{Refusal, retry_after};
use crate::job::Stamp;
use crate::job::work::{Call, Doing};

/// How long usage is waited for when the answer itself is over.
const AFTERWORDS: Duration = Duration::from_secs(10);
/// Most bytes of a refusal that are read, and for how long.
const REFUSAL: usize = 64 << 10;
const REFUSAL_TIME: Duration = Duration::from_secs(10);
/// Most bytes of an answer in one piece.
const BODY: usize = 64 << 20;

/// What a server turned out not to know; forgotten when the endpoint moves.
#[derive(Debug, Default)]
struct Habits {
    moves: u32,
    /// Fields that are left out.
    without: BTreeSet<String>,
}

/// A try that failed, with what the server said where it refused.
type Failed = (Failure, Option<Box<Refusal>>);

/// A client; clones are the same one.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    headers: HeaderMap,
    secrets: Secrets,
    habits: Mutex<Habits>,
}

/// A try that failed, with what it generated.
#[derive(Debug)]
pub(super) struct Missed {
    pub(super) kind: Kind,
    pub(super) words: String,
    pub(super) spent: Spent,
    pub(super) partial: String,
}

impl Client {
    /// A client.
    ///
    /// # Errors
    /// In words: the endpoint is no address, the model has no name, a header can not be sent.
    pub fn new(options: Options) -> Result<Client, String> {
        transport::address(&options.endpoint.now().base, "").map_err(|failure| failure.words)?;
        if served_name(&options.model).trim().is_empty() {
            return Err("the model has no name".to_string());
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(key) = &options.key {
            headers.insert(AUTHORIZATION, key.header());
        }
        for (name, value) in &options.sampling.headers {
            let bad = || format!("the header {:?} can not be sent", super::answer::safe_name(name));
            let field = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(field, value);
        }
        let secrets = Secrets::of(options.key.as_ref(), &options.sampling.headers);
        Ok(Client { inner: Arc::new(Inner { options, headers, secrets, habits: Mutex::default() }) })
    }

    /// What it was made from.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The name that the server knows the model by.
    pub fn model(&self) -> &str {
        served_name(&self.inner.options.model)
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.inner.headers.clone()
    }

    fn habits(&self, standing: &Standing) -> MutexGuard<'_, Habits> {
        let mut habits = self.inner.habits.lock().unwrap_or_else(PoisonError::into_inner);
        if habits.moves != standing.moves {
            *habits = Habits { moves: standing.moves, ..Habits::default() };
        }
        habits
    }

    /// The fields of the body but its messages. What the operator adds wins.
    fn fields(&self, standing: &Standing, rid: Option<String>) -> Map<String, Value> {
        let options = &self.inner.options;
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_string(), value);
            }
        };
        put("model", Some(json!(self.model())));
        put("temperature", options.sampling.temperature.map(Value::from));
        put("top_p", options.sampling.top_p.map(Value::from));
        put("reasoning_effort", options.sampling.reasoning_effort.clone().map(Value::from));
        put("max_tokens", options.sampling.max_tokens.map(Value::from));
        put("stream", options.stream.then_some(json!(true)));
        put("stream_options", options.stream.then(|| json!({"include_usage": true})));
        put("rid", rid.filter(|_| options.rids).map(Value::from));
        fields.extend(options.sampling.extra_body.clone());
        for name in &self.habits(standing).without {
            fields.remove(name);
        }
        if fields.get("stream") != Some(&Value::Bool(true)) {
            fields.remove("stream_options");
        }
        fields
    }

    /// Asks once; more often only where the server does not know a field that can be left out.
    pub(super) async fn once(
        &self,
        standing: &Standing,
        messages: &[Message],
        watch: &Watch,
        attempt: u32,
    ) -> Result<Reply, Missed> {
        let rid = watch.rid.as_ref().map(|rid| if attempt > 1 { format!("{rid}-{attempt}") } else { rid.to_string() });
        loop {
            let fields = self.fields(standing, rid.clone());
            let mut hearing = Hearing::new(watch);
            let left = self.left_behind(standing, Arc::clone(&hearing.pulse));
            let exchange = self.exchange(standing, &fields, messages, &mut hearing);
            let exchange = async {
                tokio::select! {
                    biased;
                    outcome = exchange => outcome,
                    failure = left => Err((failure, None)),
                }
            };
            let outcome = match watch.unless_cut(exchange).await {
                Some(outcome) => outcome,
                None => Err((Failure::new(Kind::Cancelled, "the call was cut"), None)),
            };
            let (failure, refusal) = match outcome {
                Ok(()) => return Ok(hearing.reply(&self.inner.secrets, attempt)),
                Err(failed) => failed,
            };
            if let Some(field) = refusal.and_then(|refusal| self.dispensable(&fields, &failure, &refusal)) {
                self.habits(standing).without.insert(field);
                continue;
            }
            let partial = scrubbed(&self.inner.secrets, std::mem::take(&mut hearing.gathered.content));
            // The meter has it when `hearing` is dropped.
            let spent = hearing.spent();
            return Err(Missed { kind: failure.kind, words: failure.words, spent, partial });
        }
    }

    /// Ends when the endpoint has moved and the address that it left says nothing more: a server that hangs
    /// keeps its connections. An answer that still comes is let come.
    async fn left_behind(&self, standing: &Standing, pulse: Pulse) -> Failure {
        let mut changes = self.inner.options.endpoint.changes();
        // The sender lives as long as the endpoint that this client holds.
        let _ = changes.wait_for(|now| now.moves != standing.moves).await;
        let (moved, limit) = (Instant::now(), self.inner.options.clocks.left);
        loop {
            let heard = *pulse.lock().unwrap_or_else(PoisonError::into_inner);
            let quiet = heard.max(moved).elapsed();
            if quiet >= limit {
                let words = "the endpoint moved, and the old address says nothing more";
                return Failure::new(Kind::Timeout(Clock::Silence), words);
            }
            tokio::time::sleep(limit - quiet).await;
        }
    }

    /// The field that a server refuses and that it can do without.
    fn dispensable(&self, fields: &Map<String, Value>, failure: &Failure, refusal: &Refusal) -> Option<String> {
        if !matches!(failure.kind, Kind::Unsupported(_) | Kind::Refused(400 | 422 | 501) | Kind::Overloaded(500)) {
            return None;
        }
        let set = &self.inner.options.sampling.extra_body;
        let is_known = |name: &str| failure.kind == Kind::Unsupported(Some(name.to_string())) || refusal.names(name);
        let ours = |name: &str| fields.contains_key(name) && !set.contains_key(name) && is_known(name);
        if ours("stream_options") || (fields.contains_key("stream_options") && refusal.names("include_usage")) {
            return Some("stream_options".to_string());
        }
        if let Some(name) = self.inner.options.optional.iter().find(|name| fields.contains_key(*name) && is_known(name))
        {
            return Some(name.clone());
        }
        // A failure that only speaks of a stream is none of streaming.
        let streams = ours("stream") || (refusal.names("streaming") && fields.contains_key("stream"));
        let is_refused = refusal.is_about_support() && !matches!(failure.kind, Kind::Overloaded(_));
        (streams && is_refused && !set.contains_key("stream")).then(|| "stream".to_string())
    }

    async fn exchange(
        &self,
        standing: &Standing,
        fields: &Map<String, Value>,
        messages: &[Message],
        hearing: &mut Hearing<'_>,
    ) -> Result<(), Failed> {
        let limit = self.inner.options.clocks.call;
        let exchange = self.unlimited(standing, fields, messages, hearing);
        let Some(limit) = limit else { return exchange.await };
        let late = |_| {
            let words = format!("not over after {} s, the limit of a call", limit.as_secs_f32());
            Err((Failure::new(Kind::Timeout(Clock::Call), words), None))
        };
        tokio::time::timeout(limit, exchange).await.unwrap_or_else(late)
    }

    async fn unlimited(
        &self,
        standing: &Standing,
        fields: &Map<String, Value>,
        messages: &[Message],
        hearing: &mut Hearing<'_>,
    ) -> Result<(), Failed> {
        let clocks = self.inner.options.clocks;
        let streamed = fields.get("stream") == Some(&Value::Bool(true));
        let plain = |failure| (failure, None);
        let url = transport::address(&standing.base, "/chat/completions").map_err(plain)?;
        let client = transport::client(&url, clocks.connect).map_err(plain)?;
        let body = serde_json::to_vec(&Body { fields, messages })
            .map_err(|e| plain(Failure::new(Kind::Malformed, format!("the request is no JSON: {e}"))))?;
        let request = client.post(url.clone()).headers(self.headers()).body(body);
        hearing.sent();
        let first = clocks.first.filter(|_| streamed).map(|limit| (limit, Instant::now()));
        let sent = within(Clock::First, first, request.send()).await.map_err(plain)?;
        let response = sent.map_err(|e| plain(transport::unsent(&e, &url, clocks.connect)))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(self.refused(response, &url).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if streamed && !kind.starts_with("application/json") {
            return self.parts(response, hearing, first).await;
        }
        let whole = read_whole(response, BODY).await.map_err(plain)?;
        let value = sse::parse(&whole).ok_or_else(|| plain(self.no_answer(&whole)))?;
        hearing.take(value, true).map_err(|bad| self.bad(bad))
    }

    /// What a status other than 200 means.
    async fn refused(&self, response: reqwest::Response, url: &reqwest::Url) -> Failed {
        let status = response.status().as_u16();
        let after = retry_after(response.headers(), Stamp::now());
        let mut body = Vec::new();
        let mut response = response;
        let read = async {
            while let Ok(Some(piece)) = response.chunk().await {
                body.extend_from_slice(piece.get(..REFUSAL.saturating_sub(body.len())).unwrap_or(&piece));
                if body.len() >= REFUSAL {
                    break;
                }
            }
        };
        // What came is enough.
        let _ = tokio::time::timeout(REFUSAL_TIME, read).await;
        let refusal = Refusal::read(&body);
        let said = refusal.words(&self.inner.secrets);
        let kind = if (300..400).contains(&status) { Kind::Refused(status) } else { refusal.kind(status, after) };
        let mut words = if said.is_empty() { format!("status {status}") } else { format!("status {status}: {said}") };
        if (300..400).contains(&status) {
            words = format!("status {status}: it sends elsewhere, which is not followed");
        } else if kind == Kind::Refused(status) && refusal.is_elsewhere(status) {
            words.push_str(&format!(" (no {} there: does the endpoint end in /v1?)", url.path()));
        }
        (Failure::new(kind, words), Some(Box::new(refusal)))
    }

    /// A body with status 200 that is no answer.
    fn no_answer(&self, body: &[u8]) -> Failure {
        let refusal = Refusal::read(body.get(..REFUSAL).unwrap_or(body));
        let said = refusal.words(&self.inner.secrets);
        let said = if said.is_empty() { "nothing".to_string() } else { said };
        let about = if refusal.is_page() { "instead of an answer" } else { "which is no answer" };
        Failure::new(Kind::Malformed, format!("the server sent {said}, {about}"))
    }

    fn bad(&self, bad: Bad) -> Failed {
        match bad {
            Bad::Aborted(reason) => {
                (Failure::new(Kind::Aborted, format!("the server ended the request ({reason})")), None)
            }
            Bad::Error(value) => {
                let refusal = Refusal::of(&value);
                let kind = refusal.kind(refusal.status().unwrap_or(500), None);
                let words = format!("amid the answer: {}", refusal.words(&self.inner.secrets));
                (Failure::new(kind, words), Some(Box::new(refusal)))
            }
            Bad::Shape => (Failure::new(Kind::Malformed, "an answer without choices"), None),
            Bad::Endless => (Failure::new(Kind::Malformed, "an answer longer than 64 MiB"), None),
        }
    }

    /// Reads a stream to its end.
    async fn parts(
        &self,
        mut response: reqwest::Response,
        hearing: &mut Hearing<'_>,
        first: Option<(Duration, Instant)>,
    ) -> Result<(), Failed> {
        let silence = self.inner.options.clocks.silence;
        let (mut events, mut out) = (Events::default(), Vec::new());
        let mut clock = (Clock::First, first);
        loop {
            let done = hearing.gathered.finish.is_some();
            if done {
                clock.1 = Some((silence.unwrap_or(AFTERWORDS).min(AFTERWORDS), Instant::now()));
            }
            let piece = match within(clock.0, clock.1, response.chunk()).await {
                Ok(Ok(piece)) => piece,
                // The answer was over: only its usage is missing.
                Ok(Err(_)) | Err(_) if done => return Ok(()),
                Ok(Err(error)) => return Err((transport::cut_off(&error), None)),
                Err(late) => return Err((late, None)),
            };
            let over = piece.is_none();
            let mut read = Ok(());
            match &piece {
                Some(piece) => read = events.feed(piece, &mut out),
                None => events.end(&mut out),
            }
            clock = (Clock::Silence, silence.map(|limit| (limit, Instant::now())));
            for event in out.drain(..) {
                match event {
                    Event::Done => {
                        if hearing.gathered.is_empty() {
                            return Err((Failure::new(Kind::Malformed, "an answer without any part"), None));
                        }
                        drain(&mut response).await;
                        return Ok(());
                    }
                    Event::Json(value, true) => return Err(self.bad(Bad::Error(value))),
                    Event::Json(value, false) => hearing.take(value, false).map_err(|bad| self.bad(bad))?,
                }
            }
            match read {
                Ok(()) => {}
                Err(Garbage::NoJson) => {
                    return Err((Failure::new(Kind::Malformed, "a part of the answer is no JSON"), None));
                }
                Err(Garbage::Endless) => {
                    return Err((Failure::new(Kind::Malformed, "a line of the answer has no end"), None));
                }
            }
            if !over {
                continue;
            }
            if hearing.gathered.finish.is_some() {
                return Ok(());
            }
            return Err(match events.stray() {
                Some(stray) => (self.no_answer(stray), None),
                None if hearing.gathered.is_empty() => {
                    (Failure::new(Kind::Broken, "the answer ended before it began"), None)
                }
                None => (Failure::new(Kind::Broken, "the answer ended without an end"), None),
            });
        }
    }
}

/// Reads what is left of a stream that is over, so that the connection can be used again.
async fn drain(response: &mut reqwest::Response) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    let _ = tokio::time::timeout(Duration::from_millis(20), rest).await;
}

/// A body in one piece.
pub(super) async fn read_whole(mut response: reqwest::Response, most: usize) -> Result<Vec<u8>, Failure> {
    let mut whole = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| transport::cut_off(&e))? {
        if whole.len() + piece.len() > most {
            return Err(Failure::new(Kind::Malformed, format!("an answer longer than {} MiB", most >> 20)));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

/// What the future gives within the time that is left of a limit.
async fn within<T>(
    clock: Clock,
    limit: Option<(Duration, Instant)>,
    future: impl Future<Output = T>,
) -> Result<T, Failure> {
    let Some((limit, since)) = limit else { return Ok(future.await) };
    let left = limit.saturating_sub(since.elapsed());
    tokio::time::timeout(left, future).await.map_err(|_| {
        let seconds = limit.as_secs_f32();
        let words = match clock {
            Clock::First => format!("no answer in {seconds} s, not even its beginning"),
            _ => format!("the answer stopped: nothing for {seconds} s"),
        };
        Failure::new(Kind::Timeout(clock), words)
    })
}

/// A key is nothing that a model can know; a server that echoes it shall not get it into files.
fn scrubbed(secrets: &Secrets, text: String) -> String {
    match secrets.scrub(&text) {
        Cow::Owned(scrubbed) => scrubbed,
        Cow::Borrowed(_) => text,
    }
}

/// The body of a request: fields and messages, the conversation not copied.
struct Body<'a> {
    fields: &'a Map<String, Value>,
    messages: &'a [Message],
}

impl Serialize for Body<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(model) = self.fields.get("model") {
            map.serialize_entry("model", model)?;
        }
        if !self.fields.contains_key("messages") {
            map.serialize_entry("messages", self.messages)?;
        }
        for (name, value) in self.fields.iter().filter(|(name, _)| *name != "model") {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// When something was heard last.
type Pulse = Arc<Mutex<Instant>>;

/// A request under way. When it is dropped without a reply, what it generated goes to the meter.
struct Hearing<'a> {
    watch: &'a Watch,
    gathered: Gathered,
    call: Option<Call>,
    began: Instant,
    first: Option<Duration>,
    in_parts: bool,
    answered: bool,
    pulse: Pulse,
}

impl<'a> Hearing<'a> {
    fn new(watch: &'a Watch) -> Hearing<'a> {
        Hearing {
            watch,
            gathered: Gathered::default(),
            call: None,
            began: Instant::now(),
            first: None,
            in_parts: false,
            answered: false,
            pulse: Arc::new(Mutex::new(Instant::now())),
        }
    }

    fn sent(&mut self) {
        self.began = Instant::now();
        self.watch.meter.add(|totals| totals.requests += 1);
        let doing = Doing::Model(Call { since: Stamp::now(), heard: None, reasoning: 0, answer: 0 });
        self.watch.tell(&doing);
        if let Doing::Model(call) = doing {
            self.call = Some(call);
        }
    }

    fn take(&mut self, value: Value, whole: bool) -> Result<(), Bad> {
        self.in_parts |= !whole;
        *self.pulse.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let heard = self.gathered.take(value, whole);
        if !whole && let Some(mut call) = self.call.take() {
            self.first.get_or_insert_with(|| self.began.elapsed());
            call.heard = Some(Stamp::now());
            if let Ok(heard) = &heard {
                call.reasoning += u64::from(heard.reasoning);
                call.answer += u64::from(heard.answer);
            }
            let doing = Doing::Model(call);
            self.watch.tell(&doing);
            if let Doing::Model(call) = doing {
                self.call = Some(call);
            }
        }
        heard.map(|_| ())
    }

    fn spent(&self) -> Spent {
        self.gathered.spent()
    }

    fn reply(mut self, secrets: &Secrets, tries: u32) -> Reply {
        self.answered = true;
        self.watch.meter.add(|totals| totals.answered += 1);
        let reasoning = std::mem::take(&mut self.gathered.reasoning);
        Reply {
            content: scrubbed(secrets, self.gathered.take_content()),
            reasoning: (!reasoning.is_empty()).then(|| scrubbed(secrets, reasoning)),
            finish: self.gathered.finish.take().unwrap_or(Finish::Stop),
            usage: self.gathered.usage,
            model: self.gathered.model.take(),
            id: self.gathered.id.take(),
            took: self.began.elapsed(),
            first: self.first,
            parts: if self.in_parts { self.gathered.parts() } else { 0 },
            tries,
        }
    }
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let spent = self.spent();
            self.watch.meter.add(|totals| totals.lost.add(spent));
        }
    }
}
