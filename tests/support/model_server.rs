//! A model server that speaks OpenAI's protocol and answers what a test tells it, over real sockets.
//!
//! ```ignore
//! let server = ModelServer::start();
//! server.always(Answer::say("ready"));                                // whoever asks
//! server.on(When::nth(2), Answer::say("two").thinking("hm").rate(50.0)); // the second chat, from 1
//! server.on(When::last("Are you sure"), Answer::say("yes"));          // text in the last message
//! server.on(When::nth(3), Answer::rate_limit(Some("1")));
//! server.on(When::nth(4), Answer::say("a long one").fault(Fault::Reset(5)));
//! server.script(|asked| Answer::say(&asked.last_text()));             // instead of rules
//! // … pilothouse run --ak api_base={server.base()} …
//! assert_eq!(server.chats()[0].body["model"], "scripted-1");
//! server.kill();
//! server.revive();                                                    // same address
//! ```
//!
//! The first rule that fits is taken; a rule may be limited by [`When::times`]. A token is four characters:
//! every token is one part of a stream, and usage counts them. Where the one who asks goes away, or a fault
//! ends an answer, [`Asked::generated`] says how many tokens were sent all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How often what waits looks whether it still should.
const TURN: Duration = Duration::from_millis(5);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What goes wrong with an answer. Parts are counted from its beginning, reasoning included.
#[derive(Debug, Clone)]
pub enum Fault {
    /// After so many parts the connection is reset.
    Reset(usize),
    /// After so many parts half of the next one is sent, and the connection ends as if all were well.
    HalfJson(usize),
    /// After so many parts the stream ends as if all were well: no reason, no `[DONE]`.
    End(usize),
    /// After so many parts nothing comes any more; the connection stays.
    Stall(usize),
    /// The connection is taken and nothing is ever answered.
    Silent,
    /// These bytes are the answer, head and all; then the connection ends.
    Raw(Vec<u8>),
}

/// An answer of the server.
#[derive(Debug, Clone)]
pub struct Answer {
    pub content: String,
    pub reasoning: String,
    /// The field that reasoning comes in.
    pub reasoning_field: &'static str,
    pub finish: String,
    /// Status other than 200: the body and the headers with it.
    pub status: u16,
    pub body: String,
    pub headers: Vec<(String, String)>,
    /// Parts per second; None: at once.
    pub rate: Option<f64>,
    /// Before the head of the answer.
    pub delay: Duration,
    /// No usage is told.
    pub mute: bool,
    /// `data: [DONE]` is left out.
    pub no_done: bool,
    /// Usage that is told instead of what was counted.
    pub usage: Option<Value>,
    pub fault: Option<Fault>,
}

/// How servers and gateways say that a conversation is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    Sglang,
    Vllm,
    LlamaCpp,
    OpenAi,
    /// A gateway that hands on its upstream's words.
    Gateway,
}

impl Answer {
    /// An ordinary answer.
    pub fn say(content: &str) -> Answer {
        Answer {
            content: content.to_string(),
            reasoning: String::new(),
            reasoning_field: "reasoning_content",
            finish: "stop".to_string(),
            status: 200,
            body: String::new(),
            headers: Vec::new(),
            rate: None,
            delay: Duration::ZERO,
            mute: false,
            no_done: false,
            usage: None,
            fault: None,
        }
    }

    /// A refusal with this body.
    pub fn status(status: u16, body: &str) -> Answer {
        Answer { status, body: body.to_string(), ..Answer::say("") }
    }

    /// A refusal as OpenAI words it.
    pub fn error(status: u16, message: &str, kind: &str, code: Value) -> Answer {
        let error = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
        Answer::status(status, &error.to_string())
    }

    /// 429; `after` becomes `Retry-After`.
    pub fn rate_limit(after: Option<&str>) -> Answer {
        let answer = Answer::error(429, "Rate limit reached.", "requests", json!("rate_limit_exceeded"));
        match after {
            Some(after) => answer.header("Retry-After", after),
            None => answer,
        }
    }

    /// The page that a gateway shows when the server behind it did not answer in time.
    pub fn gateway_page() -> Answer {
        let page = "<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n<body>\r\n<center><h1>504 Gateway \
                    Time-out</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n";
        Answer::status(504, page).header("Content-Type", "text/html")
    }

    /// 401, with the key that came in clear, as some servers do.
    pub fn wrong_key(key: &str) -> Answer {
        let message = format!("Incorrect API key provided: {key}.");
        Answer::error(401, &message, "invalid_request_error", json!("invalid_api_key"))
    }

    /// The model is not served.
    pub fn no_model(model: &str) -> Answer {
        Answer::error(404, &format!("The model `{model}` does not exist."), "NotFoundError", json!(404))
    }

    /// The conversation is too long.
    pub fn too_long(wording: Wording, asked: u64, limit: u64) -> Answer {
        let openai = format!(
            "This model's maximum context length is {limit} tokens. However, your messages resulted in {asked} tokens. \
             Please reduce the length of the messages."
        );
        match wording {
            Wording::Sglang => {
                let message =
                    format!("The input ({asked} tokens) is longer than the model's context length ({limit} tokens).");
                let body = json!({"object": "error", "message": message, "type": "BadRequestError", "param": null, "code": 400});
                Answer::status(400, &body.to_string())
            }
            Wording::Vllm => {
                let message = format!(
                    "This model's maximum context length is {limit} tokens. However, your request has {asked} input \
                     tokens. Please reduce the length of the input messages."
                );
                Answer::error(400, &message, "BadRequestError", json!(400))
            }
            Wording::LlamaCpp => {
                let message = format!(
                    "request ({asked} tokens) exceeds the available context size ({limit} tokens), try increasing it"
                );
                let error = json!({"code": 400, "message": message, "type": "exceed_context_size_error",
                    "n_prompt_tokens": asked, "n_ctx": limit});
                Answer::status(400, &json!({"error": error}).to_string())
            }
            Wording::OpenAi => Answer::error(400, &openai, "invalid_request_error", json!("context_length_exceeded")),
            Wording::Gateway => {
                let message =
                    format!("litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - {openai}");
                Answer::error(400, &message, "None", json!("400"))
            }
        }
    }

    /// What the model thinks before it answers.
    pub fn thinking(self, reasoning: &str) -> Answer {
        Answer { reasoning: reasoning.to_string(), ..self }
    }

    /// Why it ends: `length`, `abort`, …
    pub fn finish(self, reason: &str) -> Answer {
        Answer { finish: reason.to_string(), ..self }
    }

    /// Parts per second.
    pub fn rate(self, rate: f64) -> Answer {
        Answer { rate: Some(rate), ..self }
    }

    /// Later, by this much.
    pub fn after(self, delay: Duration) -> Answer {
        Answer { delay, ..self }
    }

    pub fn fault(self, fault: Fault) -> Answer {
        Answer { fault: Some(fault), ..self }
    }

    /// With another header of the answer.
    pub fn header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    /// Nothing is ever answered.
    pub fn silent() -> Answer {
        Answer::say("").fault(Fault::Silent)
    }
}

/// Which chats a rule is for.
#[derive(Debug, Clone, Default)]
pub struct When {
    nth: Option<usize>,
    last: Option<String>,
    any: Option<String>,
    times: Option<usize>,
}

impl When {
    /// The nth chat that the server is asked, from 1.
    pub fn nth(n: usize) -> When {
        When { nth: Some(n), ..When::default() }
    }

    /// Chats whose last message has this text.
    pub fn last(text: &str) -> When {
        When { last: Some(text.to_string()), ..When::default() }
    }

    /// Chats of which any message has this text, such as the mark of a task.
    pub fn any(text: &str) -> When {
        When { any: Some(text.to_string()), ..When::default() }
    }

    /// Both: its last message has this text as well.
    pub fn and_last(self, text: &str) -> When {
        When { last: Some(text.to_string()), ..self }
    }

    /// Only so many times.
    pub fn times(self, times: usize) -> When {
        When { times: Some(times), ..self }
    }

    fn fits(&self, asked: &Asked) -> bool {
        self.times != Some(0)
            && self.nth.is_none_or(|n| n == asked.number)
            && self.last.as_ref().is_none_or(|text| asked.last_text().contains(text))
            && self.any.as_ref().is_none_or(|text| asked.texts().iter().any(|said| said.contains(text)))
    }
}

/// A request that came, and what became of it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its number among chats, from 1; 0 for other requests.
    pub number: usize,
    pub method: String,
    pub path: String,
    /// Names in lower case. A key is masked here: [`Asked::key`].
    pub headers: BTreeMap<String, String>,
    /// Length of the key that came, and whether it is the wanted one (true where none is wanted).
    pub key: Option<(usize, bool)>,
    pub body: Value,
    pub at: Instant,
    /// Status that was answered; None: nothing yet.
    pub status: Option<u16>,
    /// When the answer was over.
    pub ended: Option<Instant>,
    /// The one who asked went away before the end.
    pub gone: bool,
    /// Tokens of the prompt, by the server's count.
    pub prompt: u64,
    /// Of these, in its cache: all but the last message of a conversation that goes on.
    pub cached: u64,
    /// Tokens that were generated, also of an answer that did not reach its end.
    pub generated: u64,
    /// Of these, reasoning.
    pub reasoned: u64,
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

impl Asked {
    /// The texts of its messages.
    pub fn texts(&self) -> Vec<String> {
        self.body["messages"].as_array().map(|list| list.iter().map(text_of).collect()).unwrap_or_default()
    }

    /// The text of its last message.
    pub fn last_text(&self) -> String {
        self.texts().pop().unwrap_or_default()
    }

    /// The roles of its messages.
    pub fn roles(&self) -> Vec<String> {
        let list = self.body["messages"].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|message| message["role"].as_str().map(str::to_string)).collect()
    }

    /// Answers of the model that it carries: the episodes before this one.
    pub fn episode(&self) -> usize {
        self.roles().iter().filter(|role| *role == "assistant").count()
    }
}

/// What the server is, beside its answers.
#[derive(Debug, Clone)]
pub struct Face {
    /// Names of the models it lists; it answers for every name unless `strict`.
    pub models: Vec<String>,
    /// Names that it does not list are refused with 404.
    pub strict: bool,
    /// `max_model_len` of its list.
    pub context: Option<u64>,
    /// `owned_by` of its list: `sglang`, `vllm`, …
    pub engine: String,
    /// What `/server_info` and `/get_server_info` show; None: 404.
    pub server_info: Option<Value>,
    /// The key that is wanted.
    pub key: Option<String>,
    /// Fields of a chat that are refused by name.
    pub refuses: BTreeSet<String>,
    /// Refuses to stream.
    pub no_streams: bool,
}

type Script = dyn Fn(&Asked) -> Answer + Send + Sync;

struct Inner {
    face: Mutex<Face>,
    rules: Mutex<Vec<(When, Answer)>>,
    otherwise: Mutex<Answer>,
    script: Mutex<Option<Arc<Script>>>,
    log: Mutex<Vec<Asked>>,
    streams: Mutex<Vec<TcpStream>>,
}

/// A server; gone when dropped.
pub struct ModelServer {
    inner: Arc<Inner>,
    at: SocketAddr,
    listening: Mutex<Option<(Arc<AtomicBool>, JoinHandle<()>)>>,
}

impl ModelServer {
    /// On a free port of this machine.
    pub fn start() -> ModelServer {
        ModelServer::bind("127.0.0.1:0")
    }

    /// On an address, such as one that containers reach.
    pub fn bind(at: &str) -> ModelServer {
        let face = Face {
            models: vec!["scripted-1".to_string()],
            strict: false,
            context: Some(32_768),
            engine: "fixture".to_string(),
            server_info: None,
            key: None,
            refuses: BTreeSet::new(),
            no_streams: false,
        };
        let inner = Arc::new(Inner {
            face: Mutex::new(face),
            rules: Mutex::default(),
            otherwise: Mutex::new(Answer::say("ready")),
            script: Mutex::default(),
            log: Mutex::default(),
            streams: Mutex::default(),
        });
        let listener = TcpListener::bind(at).unwrap();
        let at = listener.local_addr().unwrap();
        let server = ModelServer { inner, at, listening: Mutex::new(None) };
        server.listen(listener);
        server
    }

    /// `http://127.0.0.1:PORT/v1`.
    pub fn base(&self) -> String {
        format!("http://{}/v1", self.at)
    }

    pub fn port(&self) -> u16 {
        self.at.port()
    }

    /// Changes what it is.
    pub fn set(&self, change: impl FnOnce(&mut Face)) {
        change(&mut lock(&self.inner.face));
    }

    /// Another rule, after those that there are.
    pub fn on(&self, when: When, answer: Answer) {
        lock(&self.inner.rules).push((when, answer));
    }

    /// What is answered where no rule fits.
    pub fn always(&self, answer: Answer) {
        *lock(&self.inner.otherwise) = answer;
    }

    /// Answers come from here; rules are not looked at any more.
    pub fn script(&self, script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
        *lock(&self.inner.script) = Some(Arc::new(script));
    }

    /// All that was asked so far, in the order it came.
    pub fn requests(&self) -> Vec<Asked> {
        lock(&self.inner.log).clone()
    }

    /// The chats among them.
    pub fn chats(&self) -> Vec<Asked> {
        self.requests().into_iter().filter(|asked| asked.number > 0).collect()
    }

    /// Waits until so many chats have ended, answered or not.
    pub fn ended(&self, chats: usize) -> Vec<Asked> {
        let began = Instant::now();
        loop {
            let all = self.chats();
            if all.iter().filter(|asked| asked.ended.is_some()).count() >= chats {
                return all;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "not {chats} chats ended: {all:#?}");
            std::thread::sleep(TURN);
        }
    }

    /// Tokens of all chats that were answered with 200: prompt, cached, generated; answers that did not
    /// reach their end are in `generated` as far as they came.
    pub fn counted(&self) -> (u64, u64, u64) {
        let chats = self.chats().into_iter().filter(|asked| asked.status == Some(200));
        chats.fold((0, 0, 0), |sum, asked| (sum.0 + asked.prompt, sum.1 + asked.cached, sum.2 + asked.generated))
    }

    /// Closes the port and breaks what is open.
    pub fn kill(&self) {
        if let Some((stop, thread)) = lock(&self.listening).take() {
            stop.store(true, Ordering::SeqCst);
            thread.join().unwrap();
        }
        for stream in lock(&self.inner.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens at the same address again.
    pub fn revive(&self) {
        self.kill();
        let began = Instant::now();
        let listener = loop {
            match TcpListener::bind(self.at) {
                Ok(listener) => break listener,
                Err(e) => assert!(began.elapsed() < Duration::from_secs(10), "{}: {e}", self.at),
            }
            std::thread::sleep(TURN);
        };
        self.listen(listener);
    }

    fn listen(&self, listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (inner, until) = (Arc::clone(&self.inner), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(TURN);
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                stream.set_nodelay(true).unwrap();
                {
                    let mut streams = lock(&inner.streams);
                    // Those that are over are forgotten: a descriptor each.
                    streams.retain(|stream| stream.peer_addr().is_ok());
                    streams.push(stream.try_clone().unwrap());
                }
                let (inner, until) = (Arc::clone(&inner), Arc::clone(&until));
                std::thread::spawn(move || inner.serve(&stream, &until));
            }
        });
        *lock(&self.listening) = Some((stop, thread));
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Four characters each.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(4).map(|part| part.iter().collect()).collect()
}

fn count(text: &str) -> u64 {
    text.chars().count().div_ceil(4).max(1) as u64
}

/// True when the other side has closed.
fn is_gone(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let gone = match stream.peek(&mut [0]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    };
    let _ = stream.set_nonblocking(false);
    gone
}

/// From now on its end is no farewell: the other side's read fails.
fn without_farewell(stream: &TcpStream) {
    // What was sent shall arrive before.
    std::thread::sleep(Duration::from_millis(30));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let stream = stream.try_clone().unwrap();
        stream.set_nonblocking(true).unwrap();
        tokio::net::TcpStream::from_std(stream).unwrap().set_zero_linger().unwrap();
    });
}

fn read_request(reader: &mut BufReader<TcpStream>, wanted: Option<&str>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let (mut headers, mut length, mut key) = (BTreeMap::new(), 0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        let (name, mut value) = (name.to_ascii_lowercase(), value.trim().to_string());
        if name == "content-length" {
            length = value.parse().ok()?;
        }
        if name == "authorization" {
            let given = value.strip_prefix("Bearer ").unwrap_or_default();
            key = Some((given.len(), wanted.is_none_or(|wanted| wanted == given)));
            value = "Bearer [masked]".to_string();
        }
        headers.insert(name, value);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Asked {
        number: 0,
        method,
        path,
        headers,
        key,
        body,
        at: Instant::now(),
        status: None,
        ended: None,
        gone: false,
        prompt: 0,
        cached: 0,
        generated: 0,
        reasoned: 0,
    })
}

/// How a connection goes on after an answer.
#[derive(PartialEq, Eq)]
enum Then {
    Next,
    Close,
    Reset,
}

impl Inner {
    fn note(&self, index: usize, change: impl FnOnce(&mut Asked)) {
        change(&mut lock(&self.log)[index]);
    }

    fn serve(&self, stream: &TcpStream, until: &AtomicBool) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let wanted = lock(&self.face).key.clone();
            let Some(asked) = read_request(&mut reader, wanted.as_deref()) else { break };
            let (index, asked, answer) = self.take(asked);
            let then = match answer {
                Some(answer) => self.chat(stream, until, index, &asked, &answer),
                None => self.page(stream, index, &asked),
            };
            self.note(index, |asked| asked.ended = Some(Instant::now()));
            if then == Then::Reset {
                without_farewell(stream);
                let peer = stream.peer_addr().ok();
                lock(&self.streams).retain(|other| other.peer_addr().ok() != peer);
                return;
            }
            if then == Then::Close {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Puts a request into the log and finds the answer to a chat.
    fn take(&self, mut asked: Asked) -> (usize, Asked, Option<Answer>) {
        let is_chat = asked.method == "POST" && asked.path.split('?').next().unwrap().ends_with("/chat/completions");
        let mut log = lock(&self.log);
        if is_chat {
            asked.number = log.iter().filter(|asked| asked.number > 0).count() + 1;
            let texts: Vec<u64> = asked.texts().iter().map(|text| count(text) + 4).collect();
            asked.prompt = texts.iter().sum();
            asked.cached = if asked.episode() > 0 { texts[..texts.len() - 1].iter().sum() } else { 0 };
        }
        log.push(asked.clone());
        let index = log.len() - 1;
        drop(log);
        let answer = is_chat.then(|| self.refusal(&asked).unwrap_or_else(|| self.answer(&asked)));
        (index, asked, answer)
    }

    fn refusal(&self, asked: &Asked) -> Option<Answer> {
        let face = lock(&self.face);
        if face.key.is_some() && asked.key.is_none_or(|(_, right)| !right) {
            return Some(Answer::error(
                401,
                "Incorrect API key provided.",
                "invalid_request_error",
                json!("invalid_api_key"),
            ));
        }
        let model = asked.body["model"].as_str().unwrap_or_default();
        if face.strict && !face.models.iter().any(|served| served == model) {
            return Some(Answer::no_model(model));
        }
        if let Some(name) = face.refuses.iter().find(|name| asked.body.get(name.as_str()).is_some()) {
            let message = format!(
                "[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs are not permitted'}}]"
            );
            return Some(Answer::error(400, &message, "BadRequestError", json!(400)));
        }
        if face.no_streams && asked.body["stream"] == true {
            return Some(Answer::error(
                400,
                "Streaming is not supported by this server.",
                "BadRequestError",
                json!(400),
            ));
        }
        None
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let script = lock(&self.script).clone();
        if let Some(script) = script {
            return script(asked);
        }
        let mut rules = lock(&self.rules);
        let Some((when, answer)) = rules.iter_mut().find(|(when, _)| when.fits(asked)) else {
            return lock(&self.otherwise).clone();
        };
        when.times = when.times.map(|times| times - 1);
        answer.clone()
    }

    /// What is not a chat.
    fn page(&self, stream: &TcpStream, index: usize, asked: &Asked) -> Then {
        let face = lock(&self.face).clone();
        let path = asked.path.split('?').next().unwrap();
        let allowed = face.key.is_none() || asked.key.is_some_and(|(_, right)| right);
        let (status, body) = match path {
            "/health" => (200, String::new()),
            _ if !allowed => (401, r#"{"error":"Unauthorized"}"#.to_string()),
            "/v1/models" => {
                let data: Vec<Value> = face
                    .models
                    .iter()
                    .map(|id| {
                        let mut model =
                            json!({"id": id, "object": "model", "created": 1_795_980_914, "owned_by": face.engine});
                        if let Some(context) = face.context {
                            model["max_model_len"] = json!(context);
                        }
                        model
                    })
                    .collect();
                (200, json!({"object": "list", "data": data}).to_string())
            }
            "/server_info" | "/get_server_info" if face.server_info.is_some() => {
                (200, face.server_info.unwrap_or_default().to_string())
            }
            _ => (404, r#"{"detail":"Not Found"}"#.to_string()),
        };
        self.note(index, |asked| asked.status = Some(status));
        send(stream, status, &[], "application/json", &body)
    }

    fn chat(&self, stream: &TcpStream, until: &AtomicBool, index: usize, asked: &Asked, answer: &Answer) -> Then {
        let leaves = |wait: Duration| {
            let began = Instant::now();
            while began.elapsed() < wait {
                if until.load(Ordering::SeqCst) || is_gone(stream) {
                    return true;
                }
                std::thread::sleep(TURN.min(wait));
            }
            false
        };
        let gone = || {
            self.note(index, |asked| asked.gone = true);
            Then::Close
        };
        if matches!(answer.fault, Some(Fault::Silent)) {
            leaves(Duration::from_secs(3600));
            return gone();
        }
        if leaves(answer.delay) {
            return gone();
        }
        if let Some(Fault::Raw(bytes)) = &answer.fault {
            let _ = (&mut &*stream).write_all(bytes);
            self.note(index, |asked| asked.status = Some(200));
            // Its bytes shall arrive before the end does.
            leaves(Duration::from_millis(30));
            return Then::Close;
        }
        self.note(index, |asked| asked.status = Some(answer.status));
        if answer.status != 200 {
            return send(stream, answer.status, &answer.headers, "application/json", &answer.body);
        }
        let reasoned = tokens(&answer.reasoning);
        let said = tokens(&answer.content);
        let streamed = asked.body["stream"] == true;
        let all = reasoned.iter().map(|part| (true, part)).chain(said.iter().map(|part| (false, part)));
        let pause = answer.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let id = format!("chatcmpl-{}", asked.number);
        let model = asked.body["model"].as_str().unwrap_or("scripted-1");
        let chunk = |delta: Value, finish: Option<&str>| {
            json!({"id": id, "object": "chat.completion.chunk", "created": 1_795_980_914, "model": model,
                "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]})
        };
        let event = |value: &Value| chunked(stream, format!("data: {value}\n\n").as_bytes());
        if streamed {
            let mut head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
                    .to_string();
            for (name, value) in &answer.headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
            let first = chunk(json!({"role": "assistant", "content": ""}), None);
            if (&mut &*stream).write_all(head.as_bytes()).is_err() || event(&first).is_err() {
                return gone();
            }
        }
        let began = Instant::now();
        for (sent, (reasoning, part)) in all.enumerate() {
            match answer.fault {
                Some(Fault::Reset(at)) if sent == at => return Then::Reset,
                Some(Fault::End(at)) if sent == at => {
                    let _ = chunked(stream, b"");
                    return Then::Close;
                }
                Some(Fault::Stall(at)) if sent == at => {
                    leaves(Duration::from_secs(3600));
                    return gone();
                }
                Some(Fault::HalfJson(at)) if sent == at => {
                    let whole = format!("data: {}", chunk(json!({"content": part}), None));
                    let _ = chunked(stream, &whole.as_bytes()[..whole.len() / 2]);
                    let _ = chunked(stream, b"");
                    return Then::Close;
                }
                _ => {}
            }
            let due = pause.mul_f64((sent + 1) as f64);
            if pause > Duration::ZERO && leaves(due.saturating_sub(began.elapsed())) {
                return gone();
            }
            if streamed {
                let delta = if reasoning { json!({answer.reasoning_field: part}) } else { json!({"content": part}) };
                if event(&chunk(delta, None)).is_err() {
                    return gone();
                }
            }
            self.note(index, |asked| {
                asked.generated += 1;
                asked.reasoned += u64::from(reasoning);
            });
        }
        let done = self.usage(index, answer);
        if !streamed {
            let mut message = json!({"role": "assistant", "content": answer.content});
            if !answer.reasoning.is_empty() {
                message[answer.reasoning_field] = json!(answer.reasoning);
            }
            let mut whole = json!({"id": id, "object": "chat.completion", "created": 1_795_980_914, "model": model,
                "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": answer.finish}]});
            if !answer.mute {
                whole["usage"] = done;
            }
            return send(stream, 200, &answer.headers, "application/json", &whole.to_string());
        }
        let told = asked.body["stream_options"]["include_usage"] == true && !answer.mute;
        let mut last = vec![chunk(json!({}), Some(&answer.finish))];
        if told {
            let mut usage = chunk(json!({}), None);
            usage["choices"] = json!([]);
            usage["usage"] = done;
            last.push(usage);
        }
        let mut sent = last.iter().try_for_each(&event);
        if !answer.no_done {
            sent = sent.and_then(|()| chunked(stream, b"data: [DONE]\n\n"));
        }
        match sent.and_then(|()| chunked(stream, b"")) {
            Ok(()) => Then::Next,
            Err(_) => gone(),
        }
    }

    fn usage(&self, index: usize, answer: &Answer) -> Value {
        let asked = lock(&self.log)[index].clone();
        answer.usage.clone().unwrap_or_else(|| {
            json!({"prompt_tokens": asked.prompt, "completion_tokens": asked.generated,
                "total_tokens": asked.prompt + asked.generated,
                "prompt_tokens_details": {"cached_tokens": asked.cached},
                "completion_tokens_details": {"reasoning_tokens": asked.reasoned}})
        })
    }
}

/// A part of a body; an empty one ends it.
fn chunked(mut stream: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut part = format!("{:x}\r\n", bytes.len()).into_bytes();
    part.extend_from_slice(bytes);
    part.extend_from_slice(b"\r\n");
    stream.write_all(&part)
}

fn send(mut stream: &TcpStream, status: u16, headers: &[(String, String)], kind: &str, body: &str) -> Then {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head.push_str(&format!("Content-Type: {kind}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    if sent.is_ok() { Then::Next } else { Then::Close }
}
