//! Model servers that only look like ones: SGLang, vLLM and the router in the shapes that real ones were
//! recorded in, over real sockets, changed while they run.
//!
//! ```ignore
//! let server = Fake::sglang();
//! server.set(|f| f.ranks[0].running = 3);
//! server.hang();      // takes connections, never answers
//! server.kill();      // the port is closed, connections break
//! server.set(|f| f.context = 8192);
//! server.revive();    // at the same address, started anew
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

/// How often what waits looks whether it still should.
const TURN: Duration = Duration::from_millis(5);

/// What it looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sglang,
    Vllm,
    Router,
    /// The second port of a router.
    RouterMetrics,
}

/// One DP rank's figures.
#[derive(Debug, Clone)]
pub struct Rank {
    pub running: u32,
    pub waiting: u32,
    pub tokens: u64,
    /// Tokens per second; the counters go on by it while something runs and nothing is stuck.
    pub generation: f64,
    /// `tokens` grow by `generation`, as those of a request without end do.
    pub grows: bool,
    pub cache_hit: f64,
    pub generated: f64,
    pub prefilled: f64,
    pub retracted: u32,
}

impl Default for Rank {
    fn default() -> Rank {
        Rank {
            running: 0,
            waiting: 0,
            tokens: 0,
            generation: 60.0,
            grows: false,
            cache_hit: 0.9,
            generated: 22.0,
            prefilled: 16.0,
            retracted: 0,
        }
    }
}

/// A worker as the router shows it.
#[derive(Debug, Clone)]
pub struct RouterWorker {
    pub url: String,
    pub healthy: bool,
    /// 0 closed, 1 open, 2 half open.
    pub circuit: u8,
    pub load: u32,
    /// Its page of metrics, for the merged one: running requests.
    pub running: u32,
}

/// What it shows; changed by [`Fake::set`].
#[derive(Debug, Clone)]
pub struct Face {
    pub version: String,
    pub model: String,
    pub context: u64,
    /// KV tokens of a rank.
    pub capacity: u64,
    pub max_running: u32,
    pub ranks: Vec<Rank>,
    /// `/health` says 200.
    pub healthy: bool,
    /// The engine stands still: figures freeze and grow old, `/server_info` hangs, `/health` fails late.
    pub stuck: bool,
    /// Every answer comes that much later.
    pub delay: Duration,
    /// Paths whose answers come that much later.
    pub slow: BTreeMap<String, Duration>,
    /// Paths that get this status and body instead.
    pub answers: BTreeMap<String, (u16, String)>,
    /// Keys that are wanted.
    pub api_key: Option<String>,
    pub admin_key: Option<String>,
    /// `--enable-metrics` of SGLang.
    pub metrics: bool,
    /// Answers to chats are 500.
    pub failing: bool,
    /// Of a router.
    pub workers: Vec<RouterWorker>,
}

/// What was asked.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub authorization: Option<String>,
    pub body: String,
    pub at: Instant,
}

struct Inner {
    kind: Kind,
    face: Mutex<Face>,
    /// When the figures were brought up to date, and when they froze.
    advanced: Mutex<Instant>,
    started: Mutex<SystemTime>,
    requests: Mutex<Vec<Request>>,
    streams: Mutex<Vec<TcpStream>>,
    hangs: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server; gone when dropped.
pub struct Fake {
    inner: Arc<Inner>,
    at: SocketAddr,
    listening: Mutex<Option<(Arc<AtomicBool>, JoinHandle<()>)>>,
}

impl Fake {
    /// SGLang 0.5.23 with one rank.
    pub fn sglang() -> Fake {
        Fake::new(Kind::Sglang, "0.5.23")
    }

    /// vLLM 0.32 with one engine.
    pub fn vllm() -> Fake {
        Fake::new(Kind::Vllm, "0.32.0")
    }

    /// A router before workers, and its second port with the metrics. Both show one state: the first
    /// one's [`Fake::set`] and [`Fake::set_worker`].
    pub fn router(workers: &[String]) -> (Fake, Fake) {
        let main = Fake::new(Kind::Router, "0.3.2");
        main.set(|face| {
            face.workers = workers
                .iter()
                .map(|url| RouterWorker { url: url.clone(), healthy: true, circuit: 0, load: 0, running: 0 })
                .collect();
        });
        let metrics = Fake::over(Kind::RouterMetrics, &main);
        (main, metrics)
    }

    fn new(kind: Kind, version: &str) -> Fake {
        let face = Face {
            version: version.to_string(),
            model: "tiny-model".to_string(),
            context: 131_072,
            capacity: 400_000,
            max_running: 48,
            ranks: vec![Rank::default()],
            healthy: true,
            stuck: false,
            delay: Duration::ZERO,
            slow: BTreeMap::new(),
            answers: BTreeMap::new(),
            api_key: None,
            admin_key: None,
            metrics: true,
            failing: false,
            workers: Vec::new(),
        };
        Fake::with(kind, face)
    }

    fn with(kind: Kind, face: Face) -> Fake {
        let inner = Arc::new(Inner {
            kind,
            face: Mutex::new(face),
            advanced: Mutex::new(Instant::now()),
            started: Mutex::new(SystemTime::now()),
            requests: Mutex::default(),
            streams: Mutex::default(),
            hangs: AtomicBool::new(false),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let fake = Fake { inner, at, listening: Mutex::new(None) };
        fake.listen(listener);
        fake
    }

    /// The metrics port asks the main one for its state.
    fn over(kind: Kind, main: &Fake) -> Fake {
        let fake = Fake::with(kind, main.face());
        let (theirs, ours) = (Arc::downgrade(&main.inner), Arc::downgrade(&fake.inner));
        std::thread::spawn(move || {
            while let (Some(theirs), Some(ours)) = (theirs.upgrade(), ours.upgrade()) {
                let workers = lock(&theirs.face).workers.clone();
                lock(&ours.face).workers = workers;
                drop((theirs, ours));
                std::thread::sleep(TURN);
            }
        });
        fake
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        self.at.to_string()
    }

    /// Changes what it shows.
    pub fn set(&self, change: impl FnOnce(&mut Face)) {
        self.inner.advance();
        change(&mut lock(&self.inner.face));
    }

    /// Changes a router's worker.
    pub fn set_worker(&self, url: &str, change: impl FnOnce(&mut RouterWorker)) {
        self.set(|face| change(face.workers.iter_mut().find(|w| w.url == url).expect("no such worker")));
    }

    /// What it shows now.
    pub fn face(&self) -> Face {
        lock(&self.inner.face).clone()
    }

    /// Load of the first rank: running, waiting, KV tokens.
    pub fn load(&self, running: u32, waiting: u32, tokens: u64) {
        self.set(|face| {
            let rank = &mut face.ranks[0];
            (rank.running, rank.waiting, rank.tokens) = (running, waiting, tokens);
        });
    }

    /// Takes connections and answers none of them, neither open ones.
    pub fn hang(&self) {
        self.inner.hangs.store(true, Ordering::SeqCst);
    }

    /// Answers again, also what was asked meanwhile.
    pub fn unhang(&self) {
        self.inner.hangs.store(false, Ordering::SeqCst);
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

    /// Listens at the same address again, as a process of its own: counters begin anew, nothing runs.
    pub fn revive(&self) {
        self.kill();
        self.unhang();
        self.set(|face| {
            face.stuck = false;
            let ranks = face.ranks.len();
            face.ranks = vec![Rank { generated: 0.0, prefilled: 0.0, ..Rank::default() }; ranks];
        });
        *lock(&self.inner.started) = SystemTime::now();
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

    /// All that was asked so far.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.inner.requests).clone()
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> usize {
        lock(&self.inner.requests).iter().filter(|r| r.path.split('?').next() == Some(path)).count()
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
                lock(&inner.streams).push(stream.try_clone().unwrap());
                let (inner, until) = (Arc::clone(&inner), Arc::clone(&until));
                std::thread::spawn(move || inner.serve(&stream, &until));
            }
        });
        *lock(&self.listening) = Some((stop, thread));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Status, content type, body.
type Answer = (u16, &'static str, String);

fn as_json(value: &Value) -> Answer {
    (200, "application/json", value.to_string())
}

fn not_found() -> Answer {
    (404, "application/json", r#"{"detail":"Not Found"}"#.to_string())
}

fn unix(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

impl Inner {
    /// Brings the counters up to now. Those of a stuck engine stay where they are.
    fn advance(&self) {
        let mut face = lock(&self.face);
        if face.stuck {
            return;
        }
        let mut advanced = lock(&self.advanced);
        let seconds = advanced.elapsed().as_secs_f64();
        *advanced = Instant::now();
        for rank in face.ranks.iter_mut().filter(|r| r.running > 0) {
            let new = rank.generation * seconds;
            rank.generated += new;
            if rank.grows {
                rank.tokens += new.round() as u64;
            }
        }
    }

    fn serve(&self, stream: &TcpStream, stop: &AtomicBool) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = read_request(&mut reader) {
            lock(&self.requests).push(request.clone());
            let path = request.path.split('?').next().unwrap().to_string();
            let face = lock(&self.face).clone();
            let until = Instant::now() + face.delay + face.slow.get(&path).copied().unwrap_or_default();
            while self.hangs.load(Ordering::SeqCst) || Instant::now() < until {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(TURN);
            }
            let Some((status, kind, body)) = self.answer(&request, &path, stop) else { return };
            let text = format!(
                "HTTP/1.1 {status} Whatever\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            if stop.load(Ordering::SeqCst) || (&*stream).write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// None: the connection ends without an answer.
    fn answer(&self, request: &Request, path: &str, stop: &AtomicBool) -> Option<Answer> {
        self.advance();
        let face = lock(&self.face).clone();
        if let Some((status, body)) = face.answers.get(path) {
            return Some((*status, "text/plain", body.clone()));
        }
        if !self.admits(&face, request, path) {
            let body = if self.kind == Kind::Router { "" } else { r#"{"error":"Unauthorized"}"# };
            return Some((401, "application/json", body.to_string()));
        }
        if request.method == "POST" && path == "/v1/chat/completions" {
            let status = if face.failing { 500 } else { 200 };
            return Some((status, "application/json", chat(&face.model, face.failing).to_string()));
        }
        let get = request.method == "GET";
        match self.kind {
            Kind::Sglang => self.sglang(&face, path, get, stop),
            Kind::Vllm if get => Some(self.vllm(&face, path)),
            Kind::Router if get => Some(router(&face, path)),
            Kind::RouterMetrics if get && path == "/metrics" => Some(router_metrics(&face)),
            _ => Some(not_found()),
        }
    }

    /// As the recorded matrix of keys has it.
    fn admits(&self, face: &Face, request: &Request, path: &str) -> bool {
        let shown = request.authorization.as_deref().and_then(|a| a.strip_prefix("Bearer "));
        let has = |key: &Option<String>| key.as_deref().is_none_or(|key| shown == Some(key));
        match self.kind {
            Kind::Sglang => {
                let open = ["/health", "/ready", "/metrics"].iter().any(|p| path.starts_with(p));
                let admin = ["/abort_request", "/flush_cache"].contains(&path);
                open || if admin && face.admin_key.is_some() { has(&face.admin_key) } else { has(&face.api_key) }
            }
            Kind::Vllm => !(path.starts_with("/v1") || path.starts_with("/inference")) || has(&face.api_key),
            Kind::Router => {
                ["/health", "/liveness", "/readiness", "/get_server_info"].contains(&path) || has(&face.api_key)
            }
            Kind::RouterMetrics => true,
        }
    }

    fn sglang(&self, face: &Face, path: &str, get: bool, stop: &AtomicBool) -> Option<Answer> {
        let wait = |limit: Duration| {
            let began = Instant::now();
            while lock(&self.face).stuck && began.elapsed() < limit && !stop.load(Ordering::SeqCst) {
                std::thread::sleep(TURN);
            }
            !lock(&self.face).stuck
        };
        Some(match path {
            "/abort_request" if !get => (200, "text/plain", String::new()),
            _ if !get => not_found(),
            "/v1/models" => as_json(&json!({"object": "list", "data": [{
                "id": face.model, "object": "model", "created": 1_795_981_798, "owned_by": "sglang",
                "root": face.model, "parent": null, "max_model_len": face.context,
            }]})),
            "/health" | "/health_generate" => {
                let well = wait(Duration::from_secs(20)) && face.healthy;
                (if well { 200 } else { 503 }, "text/plain", String::new())
            }
            "/ready" => (if face.healthy { 200 } else { 503 }, "text/plain", String::new()),
            "/server_info" => wait(Duration::from_secs(600)).then(|| as_json(&server_info(face)))?,
            "/model_info" => as_json(&json!({
                "model_path": format!("/models/{}", face.model), "served_model_name": face.model,
                "is_generation": true, "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            })),
            "/v1/loads" => {
                let now = SystemTime::now();
                let snapshot = unix(now) - lock(&self.advanced).elapsed().as_secs_f64();
                let stamp = jiff::Timestamp::try_from(now).unwrap().strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00");
                let loads: Vec<Value> =
                    face.ranks.iter().enumerate().map(|(n, r)| load(face, n, r, snapshot)).collect();
                as_json(&json!({
                    "timestamp": stamp.to_string(), "version": face.version, "accelerator": null,
                    "num_accelerators": 1, "loads": loads,
                }))
            }
            "/metrics" if face.metrics => (200, "text/plain; version=0.0.4; charset=utf-8", sglang_metrics(face)),
            _ => not_found(),
        })
    }

    fn vllm(&self, face: &Face, path: &str) -> Answer {
        match path {
            "/v1/models" => as_json(&json!({"object": "list", "data": [{
                "id": face.model, "object": "model", "created": 1_795_980_914, "owned_by": "vllm",
                "root": format!("/models/{}", face.model), "parent": null, "max_model_len": face.context,
                "permission": [{"id": "modelperm-1", "object": "model_permission"}],
            }]})),
            "/version" => as_json(&json!({"version": face.version})),
            "/health" => (if face.healthy { 200 } else { 503 }, "text/plain", String::new()),
            "/load" => as_json(&json!({"server_load": 0})),
            "/metrics" => (200, "text/plain; version=0.0.4", vllm_metrics(face, unix(*lock(&self.started)))),
            _ => not_found(),
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let (mut authorization, mut length) = (None, 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => authorization = Some(value.trim().to_string()),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Some(Request { method, path, authorization, body, at: Instant::now() })
}

fn chat(model: &str, failing: bool) -> Value {
    if failing {
        return json!({"object": "error", "message": "fake failure", "type": "InternalServerError", "code": 500});
    }
    json!({
        "id": "16d59ec1134447f6bb42b310320e8eb8", "object": "chat.completion", "created": 1_795_980_477, "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "one two three"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
    })
}

fn server_info(face: &Face) -> Value {
    let state = json!({
        "last_gen_throughput": face.ranks[0].generation, "effective_max_running_requests_per_dp": face.max_running,
        "memory_usage": {"weight": 60.2, "kvcache": 48.1, "token_capacity": face.capacity, "graph": {"decode": 2.1}},
        "admin_api_key": face.admin_key, "api_key": face.api_key,
    });
    json!({
        "model_path": format!("/models/{}", face.model), "served_model_name": face.model, "tp_size": 1, "pp_size": 1,
        "dp_size": face.ranks.len(), "context_length": face.context, "max_running_requests": face.max_running,
        "max_total_num_tokens": face.capacity, "chunked_prefill_size": 8192, "max_req_input_len": face.context - 6,
        "reasoning_parser": "qwen3", "tool_call_parser": "qwen25", "disaggregation_mode": "null",
        "decode_log_interval": 40, "enable_metrics": face.metrics, "watchdog_timeout": 300, "status": "ready",
        "api_key": face.api_key, "admin_api_key": face.admin_key,
        "launch_command": format!("--api-key {:?} --admin-api-key {:?}", face.api_key, face.admin_key),
        "internal_states": vec![state; face.ranks.len()], "version": face.version,
    })
}

fn load(face: &Face, number: usize, rank: &Rank, snapshot: f64) -> Value {
    json!({
        "timestamp": snapshot, "dp_rank": number, "num_running_reqs": rank.running, "num_waiting_reqs": rank.waiting,
        "num_waiting_uncached_tokens": rank.waiting * 80, "num_used_tokens": rank.tokens, "num_total_tokens": rank.tokens,
        "num_active_tokens": rank.tokens, "max_total_num_tokens": face.capacity, "max_running_requests": face.max_running,
        "token_usage": rank.tokens as f64 / face.capacity as f64, "gen_throughput": rank.generation,
        "cache_hit_rate": rank.cache_hit, "utilization": 0.0, "total_prefill_uncached_tokens": rank.prefilled,
        "queues": {"waiting": rank.waiting, "grammar": 0, "paused": 0, "retracted": 0},
    })
}

fn sglang_metrics(face: &Face) -> String {
    let mut out = String::new();
    let dp = face.ranks.len() > 1;
    for (number, rank) in face.ranks.iter().enumerate() {
        let dp = if dp { format!("dp_rank=\"{number}\",") } else { String::new() };
        let base = format!("{dp}engine_type=\"unified\",model_name=\"{}\",moe_ep_rank=\"0\",pp_rank=\"0\"", face.model);
        let mut put = |name: &str, more: &str, value: f64| {
            out.push_str(&format!("sglang:{name}{{{base},{more}tp_rank=\"0\"}} {value:?}\n"));
        };
        put("num_running_reqs", "", f64::from(rank.running));
        put("num_queue_reqs", "", f64::from(rank.waiting));
        put("full_token_usage", "", rank.tokens as f64 / face.capacity as f64);
        put("token_usage", "", rank.tokens as f64 / face.capacity as f64);
        put("num_used_tokens", "", rank.tokens as f64);
        put("kv_used_tokens", "", rank.tokens as f64);
        put("max_total_num_tokens", "", face.capacity as f64);
        put("context_len", "", face.context as f64);
        put("gen_throughput", "", rank.generation);
        put("cache_hit_rate", "", rank.cache_hit);
        put("realtime_tokens_total", "mode=\"decode\",", rank.generated);
        put("realtime_tokens_total", "mode=\"prefill_compute\",", rank.prefilled);
        if rank.retracted > 0 {
            put("num_retracted_requests_total", "", f64::from(rank.retracted));
        }
    }
    out
}

fn vllm_metrics(face: &Face, started: f64) -> String {
    let mut out = format!("process_start_time_seconds {started:?}\n");
    for (number, rank) in face.ranks.iter().enumerate() {
        let base = format!("engine=\"{number}\",model_name=\"{}\"", face.model);
        let mut put = |name: &str, more: &str, value: f64| {
            out.push_str(&format!("vllm:{name}{{{more}{base}}} {value:?}\n"));
        };
        put("num_requests_running", "", f64::from(rank.running));
        put("num_requests_waiting", "", f64::from(rank.waiting));
        put("kv_cache_usage_perc", "", rank.tokens as f64 / face.capacity as f64);
        put("num_preemptions_total", "", f64::from(rank.retracted));
        put("generation_tokens_total", "", rank.generated);
        put("generation_tokens_created", "", started);
        put("prompt_tokens_total", "", rank.prefilled);
        put("prompt_tokens_by_source_total", "source=\"local_compute\",", rank.prefilled);
        let blocks = format!("block_size=\"16\",num_gpu_blocks=\"{}\",", face.capacity / 16);
        put("cache_config_info", &blocks, 1.0);
    }
    out
}

fn router(face: &Face, path: &str) -> Answer {
    let (healthy, total) = (face.workers.iter().filter(|w| w.healthy).count(), face.workers.len());
    match path {
        "/v1/models" => {
            as_json(&json!({"object": "list", "data": [{"id": face.model, "object": "model", "owned_by": "local"}]}))
        }
        "/health" | "/liveness" => (200, "text/plain", "OK".to_string()),
        "/readiness" if healthy > 0 => {
            as_json(&json!({"status": "ready", "healthy_workers": healthy, "total_workers": total}))
        }
        "/readiness" => {
            (503, "application/json", r#"{"status":"not ready","reason":"insufficient healthy workers"}"#.to_string())
        }
        "/get_server_info" => as_json(&json!({"router_manager": true, "routers_count": 1, "workers_count": total})),
        "/workers" => {
            let workers: Vec<Value> = face.workers.iter().map(|w| json!({
                "id": "b666b899-108b-4e8d-9147-30bb79d0faf9", "url": w.url, "model_id": face.model, "priority": 50,
                "cost": 1.0, "worker_type": "regular", "is_healthy": w.healthy, "load": w.load,
                "connection_mode": "HTTP", "metadata": {"dp_size": "1"}, "disable_health_check": false,
            })).collect();
            let stats = json!({"prefill_count": 0, "decode_count": 0, "regular_count": total});
            as_json(&json!({"workers": workers, "total": total, "stats": stats}))
        }
        "/engine_metrics" => {
            let mut out = "# TYPE sglang_num_running_reqs gauge\n".to_string();
            for w in face.workers.iter().filter(|w| w.healthy) {
                out.push_str(&format!(
                    "sglang_num_running_reqs{{engine_type=\"unified\",model_name=\"{}\",pp_rank=\"0\",tp_rank=\"0\",\
                     worker_addr=\"{}\"}} {}\n",
                    face.model, w.url, w.running
                ));
            }
            (200, "text/plain", out)
        }
        _ => (404, "text/plain", String::new()),
    }
}

fn router_metrics(face: &Face) -> Answer {
    let mut out = String::new();
    for w in &face.workers {
        out.push_str(&format!("smg_worker_cb_state{{worker=\"{}\"}} {}\n", w.url, w.circuit));
        out.push_str(&format!("smg_worker_health{{worker=\"{}\"}} {}\n", w.url, u8::from(w.healthy)));
    }
    (200, "text/plain", out)
}
