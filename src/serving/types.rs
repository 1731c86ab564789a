//! The words of serving: sources, observations, replicas, diagnoses.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::job::Stamp;

/// Number of a source, in the order in which they were named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u16);

/// What a source reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// Base URL of a server or router, without the path `/v1`.
    Http(Arc<str>),
    /// A Prometheus page where it is not the server's own `/metrics` (router: another port).
    Metrics(Arc<str>),
    /// A log file.
    File(Arc<std::path::Path>),
    /// The log of a Docker container: name or id.
    Container(Arc<str>),
    /// What a command prints, run by `sh -c`.
    Command(Arc<str>),
}

/// A source as it was named.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// Its number.
    pub id: SourceId,
    /// The server that it tells of: sources of one name tell of one server. Raw text.
    pub server: Arc<str>,
    /// What is read.
    pub place: Place,
}

/// What is served by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// SGLang.
    Sglang,
    /// vLLM.
    Vllm,
    /// The SGLang router.
    Router,
}

impl Engine {
    /// Its name in lists and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Sglang => "sglang",
            Engine::Vllm => "vllm",
            Engine::Router => "router",
        }
    }
}

/// A replica: a server, the worker of it if it is a router, and the data-parallel rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaKey {
    /// Name of the server.
    pub server: Arc<str>,
    /// URL of a worker behind a router.
    pub worker: Option<Arc<str>>,
    /// DP rank; None where ranks are not told apart.
    pub rank: Option<u16>,
}

/// How bad a line or a diagnosis is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Normal.
    Info,
    /// To be looked at.
    Warning,
    /// Requests fail or wait.
    Error,
    /// The server is dead or dies.
    Fatal,
}

/// The time that stands on a log line, as far as it stands there. No zone is ever written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineTime {
    /// Year; None on vLLM's lines and on those of old SGLang.
    pub year: Option<i16>,
    /// Month and day; None on lines of old SGLang (0.3-0.4.0).
    pub date: Option<(i8, i8)>,
    /// Milliseconds since midnight.
    pub millis: u32,
}

/// The ranks on a line of SGLang (`DP1 TP3`) or vLLM (`Engine 001`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct Ranks {
    /// Data-parallel rank.
    pub dp: Option<u16>,
    /// Tensor-parallel rank.
    pub tp: Option<u16>,
    /// Pipeline rank.
    pub pp: Option<u16>,
    /// Expert-parallel rank.
    pub ep: Option<u16>,
}

/// Figures of one batch line or one poll, each None where it was not said. Ratios are 0-1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// Requests in the decode batch.
    pub running: Option<u32>,
    /// Requests that wait.
    pub queued: Option<u32>,
    /// KV tokens of live requests (plain or full-attention pool).
    pub tokens: Option<u64>,
    /// Share of the KV pool in use: `token usage`, or `full token usage` where pools are told apart;
    /// vLLM's KV cache usage.
    pub kv: Option<f32>,
    /// Share of the sliding-window pool.
    pub swa: Option<f32>,
    /// State slots in use (hybrid models).
    pub mamba_slots: Option<u32>,
    /// Share of the state slots.
    pub mamba: Option<f32>,
    /// Generated tokens per second.
    pub generation: Option<f32>,
    /// Prefilled tokens per second.
    pub prefill: Option<f32>,
    /// Share of prompt tokens that the prefix cache had.
    pub cache_hit: Option<f32>,
    /// Mean tokens per verify step of speculation, bonus token included.
    pub accept_len: Option<f32>,
    /// Uncached tokens still to prefill.
    pub pending_tokens: Option<u64>,
    /// Whether the step replayed a captured graph.
    pub graph: Option<bool>,
}

/// A `Decode batch` line, or vLLM's line of an engine (which says both halves).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DecodeBatch {
    /// What it says.
    pub figures: Figures,
    /// Fields that the table of known ones does not have, or has for display only: name, value, raw.
    pub other: Vec<(Arc<str>, Arc<str>)>,
}

/// A `Prefill batch` line.
///
/// A clipped line may have lost any of its counts; a missing one is no zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PrefillBatch {
    /// Requests in it.
    pub new_seqs: Option<u32>,
    /// Tokens computed.
    pub new_tokens: Option<u64>,
    /// Tokens that the prefix cache had.
    pub cached_tokens: Option<u64>,
    /// The rest.
    pub figures: Figures,
    /// Fields that the table of known ones does not have.
    pub other: Vec<(Arc<str>, Arc<str>)>,
}

/// What a log line says.
#[derive(Debug, Clone, PartialEq)]
pub enum LineKind {
    /// SGLang decodes.
    Decode(Box<DecodeBatch>),
    /// SGLang prefills.
    Prefill(Box<PrefillBatch>),
    /// vLLM's periodic line. `engines` > 1: an aggregate, whose usage is a mean.
    Stats {
        /// What it says.
        batch: Box<DecodeBatch>,
        /// Engines summed up in it.
        engines: u16,
    },
    /// vLLM's line on speculation: mean acceptance length.
    Speculation(f32),
    /// What else matters.
    Event(Event),
    /// Anything else; kept for the log view.
    Other,
}

/// An event in a log. Texts are raw and have no secrets.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The server (re)starts: its arguments were printed.
    Starting,
    /// A stage of the start: weights, pools, graphs.
    Stage(Arc<str>),
    /// Limits that the start printed.
    Limits(Limits),
    /// Ready for requests.
    Ready,
    /// Requests were thrown out of the pool and wait to be computed again.
    Retracted {
        /// How many; None where the line is clipped before it.
        requests: Option<u32>,
    },
    /// A request was ended: its id if given.
    Aborted(Option<Arc<str>>),
    /// A client went away: rid of its request.
    Disconnected(Option<Arc<str>>),
    /// Memory ran out: GPU, pool or slots. The request or the server dies of it.
    OutOfMemory,
    /// A process of the server died.
    Crashed {
        /// Exit code, negative for a signal.
        code: Option<i32>,
    },
    /// The watchdog fired or dumps.
    Watchdog {
        /// Seconds that it waited.
        after: Option<f32>,
    },
    /// A health check was not answered by the engine.
    HealthCheckFailed {
        /// Last sign of life, as printed.
        last_heartbeat: Option<LineTime>,
    },
    /// The queue is full: clients get 503.
    QueueFull,
    /// The prefix cache was emptied.
    CacheFlushed,
    /// An answer began or ended: an access line.
    Access {
        /// Path asked for.
        path: Arc<str>,
        /// Status code.
        status: u16,
    },
    /// The router could not reach a worker.
    WorkerProbeFailed(Arc<str>),
    /// A circuit of the router changed; the line does not say whose.
    Circuit {
        /// State after it.
        to: Circuit,
    },
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The time on it.
    pub time: Option<LineTime>,
    /// The ranks on it.
    pub ranks: Ranks,
    /// How bad.
    pub severity: Severity,
    /// What it says.
    pub kind: LineKind,
    /// The line itself, without escape sequences and secrets, cut at 4,096 bytes. None on batch lines
    /// of a source whose text nobody reads.
    pub text: Option<Arc<str>>,
}

/// What a replica can take, None where unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Requests that run at once.
    pub max_running: Option<u32>,
    /// Tokens of context per request.
    pub context: Option<u64>,
    /// Tokens of the KV pool.
    pub capacity: Option<u64>,
    /// State slots.
    pub mamba_slots: Option<u32>,
    /// Tokens of a chunk of prefill.
    pub chunk: Option<u64>,
    /// Free memory after the start, GB.
    pub free_gb: Option<f32>,
    /// Seconds after which the watchdog kills the server.
    pub watchdog: Option<f32>,
}

/// The state of a circuit breaker (`smg_worker_cb_state`: 0, 1, 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circuit {
    /// Requests go through.
    Closed,
    /// Requests do not go through.
    Open,
    /// One is tried.
    HalfOpen,
}

/// One rank's part of `/v1/loads`, or of a page of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// DP rank; None where there is one engine only.
    pub rank: Option<u16>,
    /// Figures now.
    pub figures: Figures,
    /// Limits that stand beside them.
    pub limits: Limits,
    /// Seconds between the snapshot and the answer (SGLang 0.5.23); a hung scheduler's grows.
    pub age: Option<f32>,
    /// Counters, as they stand.
    pub counters: Counters,
}

/// Counters of a server, None where it has none. They only grow, unless it was started anew.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counters {
    /// Tokens generated, counted while they are (`realtime_tokens_total{mode="decode"}`,
    /// `vllm:generation_tokens_total`).
    pub generated: Option<f64>,
    /// Tokens prefilled that no cache had.
    pub prefilled: Option<f64>,
    /// Prompt tokens that the cache had.
    pub cached: Option<f64>,
    /// Requests thrown out of the pool (retracted, preempted).
    pub retracted: Option<f64>,
    /// Requests aborted.
    pub aborted: Option<f64>,
    /// Unix time of the process's start.
    pub started: Option<f64>,
}

/// What a server says of itself. Secrets are gone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerInfo {
    /// Engine.
    pub engine: Option<Engine>,
    /// Its version.
    pub version: Option<Arc<str>>,
    /// Name under which the model is served.
    pub model: Option<Arc<str>>,
    /// Ranks.
    pub dp_size: Option<u16>,
    /// Limits of a rank.
    pub limits: Limits,
    /// Settings worth showing: name, value.
    pub settings: Vec<(Arc<str>, Arc<str>)>,
}

/// A worker as its router sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// Its URL without the rank; `@rank` of `--dp-aware` stands in `rank`.
    pub url: Arc<str>,
    /// Rank, where the router is aware of ranks.
    pub rank: Option<u16>,
    /// Probes succeed.
    pub healthy: Option<bool>,
    /// Its circuit, which only the router's metrics tell.
    pub circuit: Option<Circuit>,
    /// Requests of this router at it.
    pub load: Option<u32>,
    /// Model.
    pub model: Option<Arc<str>>,
}

/// How a server was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unreached {
    /// No connection: refused, no route, no name.
    Refused,
    /// It took the connection and did not answer in time.
    TimedOut,
    /// It wants another key (401, 403).
    Unauthorised,
    /// It answered with an error of its own.
    Status(u16),
    /// It answered what nothing here can read.
    Garbled,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A line of a log.
    Line(Line),
    /// The log was begun anew: rotated, cut or another container.
    LogReset,
    /// A tail ended or could not be started: why. It is tried again.
    LogLost(Arc<str>),
    /// What it says of itself.
    Info(ServerInfo),
    /// Load per rank (`/v1/loads`, `/metrics`).
    Loads(Vec<Load>),
    /// The workers of a router, all of them. `/workers` knows no circuits, the metrics no load and no
    /// model: what is None was not said, not gone.
    Workers(Vec<Worker>),
    /// Something seen at a worker through its router's source: its load and what it says of itself,
    /// never [`Seen::Workers`] or a line.
    OfWorker {
        /// Its URL, as in [`Worker::url`].
        worker: Arc<str>,
        /// What.
        seen: Box<Seen>,
    },
    /// Healthy of all workers, as the router counts them.
    Readiness {
        /// Healthy.
        healthy: u32,
        /// All.
        total: u32,
    },
    /// A health check: well or not.
    Health(bool),
    /// A poll got no answer that could be used.
    Unreached {
        /// Path asked for.
        path: &'static str,
        /// How.
        how: Unreached,
        /// In words, without secrets.
        why: Arc<str>,
    },
}

/// Something seen, where and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// By which source.
    pub source: SourceId,
    /// When, on the clock of the trials (UTC). For a finished log the placed time of the line; None
    /// where it can not be placed.
    pub at: Option<Stamp>,
    /// What.
    pub seen: Seen,
}

/// The side of the trials, told at each tick; all zero where no trials are known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// Trials whose agent waits for the model, as far as can be told.
    pub waiting: u32,
    /// Trials that run an agent.
    pub agents: u32,
    /// Seconds that the oldest of those waits.
    pub oldest_wait: Option<f64>,
    /// Median seconds of a call, over the finished ones.
    pub median_call: Option<f64>,
    /// Seconds since any of them got on.
    pub since_progress: Option<f64>,
    /// Least seconds that one of them has left.
    pub least_left: Option<f64>,
    /// Context that the job's agent was told, in tokens.
    pub configured_context: Option<u64>,
}

/// How a replica stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Loads weights, captures graphs.
    Starting,
    /// Answers; nothing was asked of it yet.
    Ready,
    /// Answers; nothing runs.
    Idle,
    /// Runs requests.
    Decoding,
    /// Runs as many as fit, others wait.
    Saturated,
    /// Throws requests out of its pool.
    Retracting,
    /// Has requests and gets nowhere.
    Hung,
    /// Gone.
    Dead,
    /// Was gone or is going, starts anew.
    Restarting,
    /// Nothing is known, or what is known is old.
    Unknown,
}

impl State {
    /// Its name on the screen and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Idle => "idle",
            State::Decoding => "decoding",
            State::Saturated => "saturated",
            State::Retracting => "retracting",
            State::Hung => "hung",
            State::Dead => "dead",
            State::Restarting => "restarting",
            State::Unknown => "unknown",
        }
    }
}

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiagnosisKind {
    /// A process died.
    Crash,
    /// Memory ran out.
    Oom,
    /// The watchdog fired.
    Watchdog,
    /// Requests, and no progress.
    Hang,
    /// A health check was not answered by the engine.
    HealthCheckFailed,
    /// No answer at all.
    Unreachable,
    /// It started anew.
    Restart,
    /// The router has workers that are dead.
    DeadWorkers,
    /// The router's circuit to a worker is open.
    OpenCircuit,
    /// Requests were thrown out of the pool.
    Retraction,
    /// The pool is full.
    PoolSaturated,
    /// All state slots are taken.
    MambaSlotsExhausted,
    /// Requests wait.
    Queueing,
    /// One request goes on and on.
    RunawayGeneration,
    /// Each request is much slower than before.
    ThroughputCollapse,
    /// Some ranks work, others do not.
    UnevenRanks,
    /// The prefix cache does not help.
    PrefixCacheThrash,
    /// Speculation costs more than it gives.
    SpeculationNotPaying,
    /// The context served is not the configured one.
    ContextMismatch,
    /// Trials wait, the server has nothing to do.
    IdleServer,
    /// Clients went away before their answers came.
    ClientTimeouts,
}

impl DiagnosisKind {
    /// All of them, worst first.
    pub const ALL: [DiagnosisKind; 21] = [
        DiagnosisKind::Crash,
        DiagnosisKind::Oom,
        DiagnosisKind::Watchdog,
        DiagnosisKind::Hang,
        DiagnosisKind::HealthCheckFailed,
        DiagnosisKind::Unreachable,
        DiagnosisKind::Restart,
        DiagnosisKind::DeadWorkers,
        DiagnosisKind::OpenCircuit,
        DiagnosisKind::Retraction,
        DiagnosisKind::PoolSaturated,
        DiagnosisKind::MambaSlotsExhausted,
        DiagnosisKind::Queueing,
        DiagnosisKind::RunawayGeneration,
        DiagnosisKind::ThroughputCollapse,
        DiagnosisKind::UnevenRanks,
        DiagnosisKind::PrefixCacheThrash,
        DiagnosisKind::SpeculationNotPaying,
        DiagnosisKind::ContextMismatch,
        DiagnosisKind::IdleServer,
        DiagnosisKind::ClientTimeouts,
    ];

    /// Its name in JSON, the journal and `configs/serving.toml`.
    pub fn name(self) -> &'static str {
        match self {
            DiagnosisKind::Crash => "crash",
            DiagnosisKind::Oom => "oom",
            DiagnosisKind::Watchdog => "watchdog",
            DiagnosisKind::Hang => "hang",
            DiagnosisKind::HealthCheckFailed => "health_check_failed",
            DiagnosisKind::Unreachable => "unreachable",
            DiagnosisKind::Restart => "restart",
            DiagnosisKind::DeadWorkers => "dead_workers",
            DiagnosisKind::OpenCircuit => "open_circuit",
            DiagnosisKind::Retraction => "retraction",
            DiagnosisKind::PoolSaturated => "pool_saturated",
            DiagnosisKind::MambaSlotsExhausted => "mamba_slots_exhausted",
            DiagnosisKind::Queueing => "queueing",
            DiagnosisKind::RunawayGeneration => "runaway_generation",
            DiagnosisKind::ThroughputCollapse => "throughput_collapse",
            DiagnosisKind::UnevenRanks => "uneven_ranks",
            DiagnosisKind::PrefixCacheThrash => "prefix_cache_thrash",
            DiagnosisKind::SpeculationNotPaying => "speculation_not_paying",
            DiagnosisKind::ContextMismatch => "context_mismatch",
            DiagnosisKind::IdleServer => "idle_server",
            DiagnosisKind::ClientTimeouts => "client_timeouts",
        }
    }
}

/// A diagnosis: of what, since when, on what grounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// What.
    pub kind: DiagnosisKind,
    /// How bad.
    pub severity: Severity,
    /// The source whose word decided.
    pub source: SourceId,
    /// The replica that it is about; None where it is about the whole server.
    pub replica: Option<ReplicaKey>,
    /// The server.
    pub server: Arc<str>,
    /// Since when; None where the log's time can not be placed.
    pub since: Option<Stamp>,
    /// Until when; None while it holds.
    pub until: Option<Stamp>,
    /// True once it does not hold any more.
    pub over: bool,
    /// The figures that it rests on, by name.
    pub figures: BTreeMap<&'static str, f64>,
    /// What is the case, in a sentence with its figures. Raw text.
    pub text: Arc<str>,
    /// What can be done.
    pub advice: Arc<str>,
}
