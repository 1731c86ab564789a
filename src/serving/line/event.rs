//! Lines other than batches that tell an operator something, found by what they say and not by where
//! they say it. Wordings: sglang 0.3-0.5.23, vllm 0.6-0.32, sglang-router 0.2-0.3.

use std::sync::{Arc, LazyLock};

use memchr::memmem;
use regex::bytes::Regex;

use super::super::{Circuit, Event, Limits, Severity};
use super::batch::{number, whole};
use super::stamp;

/// Most of a line's text that becomes part of an event.
const LONGEST: usize = 160;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// What was asked of the server, or dumped of it: nothing in it is said by the server.
    Quoted,
    Starting,
    Stage,
    Capacity,
    Memory,
    MambaSlots,
    CacheSize,
    Concurrency,
    ModelLength,
    FiredUp,
    Startup,
    RouterReady,
    Retracted,
    Preempted,
    Aborted,
    Disconnected,
    OutOfMemory,
    ExitCode,
    Crashed,
    Watchdog,
    Dump,
    HealthCheck,
    QueueFull,
    Flushed,
    Probe,
    WorkerUrl,
    Circuit,
    Served,
    Access,
}

/// Texts and what they mean; where one begins with another, the longer one comes first.
const TEXTS: &[(&str, Key)] = &[
    ("Receive: obj=", Key::Quoted),
    ("Finish: obj=", Key::Quoted),
    ("Received request ", Key::Quoted),
    ("Dumping input data", Key::Quoted),
    ("Dumping scheduler ", Key::Quoted),
    ("server_args=", Key::Starting),
    ("non-default args: ", Key::Starting),
    ("args: Namespace(", Key::Starting),
    ("Starting router on ", Key::Starting),
    ("max_total_num_tokens=", Key::Capacity),
    ("max_mamba_cache_size: ", Key::MambaSlots),
    ("Memory pool end. ", Key::Memory),
    ("KV cache size: ", Key::CacheSize),
    ("Maximum concurrency for ", Key::Concurrency),
    ("Using max model len ", Key::ModelLength),
    ("Load weight ", Key::Stage),
    ("Init parallel ", Key::Stage),
    ("Init torch distributed ", Key::Stage),
    ("KV Cache is allocated", Key::Stage),
    ("Mamba Cache is allocated", Key::Stage),
    ("Capturing batches", Key::Stage),
    ("Capturing CUDA graph", Key::Stage),
    ("Capture ", Key::Stage),
    ("Graph capturing ", Key::Stage),
    ("Engine startup timings", Key::Stage),
    ("DeepGEMM JIT Pre-Compile", Key::Stage),
    ("Waiting for application startup", Key::Stage),
    ("Starting to load model ", Key::Stage),
    ("Loading safetensors checkpoint", Key::Stage),
    ("Loading weights took", Key::Stage),
    ("Model loading took", Key::Stage),
    ("Initializing a V1 LLM engine", Key::Stage),
    ("Initializing an LLM engine", Key::Stage),
    ("init engine (profile", Key::Stage),
    ("The server is fired up and ready to roll!", Key::FiredUp),
    ("Application startup complete", Key::Startup),
    ("Router ready", Key::RouterReady),
    ("KV cache pool is full. Retract requests.", Key::Retracted),
    ("Decode out of memory happened.", Key::Retracted),
    ("is preempted by PreemptionMode", Key::Preempted),
    ("aborted last request ", Key::Aborted),
    ("aborted request ", Key::Aborted),
    ("Aborted request(s) ", Key::Aborted),
    ("Aborted request ", Key::Aborted),
    ("Abort queued request", Key::Aborted),
    ("Abort running request", Key::Aborted),
    ("Request is disconnected from the client side", Key::Disconnected),
    ("Prefill out of memory", Key::OutOfMemory),
    ("Decode out of memory", Key::OutOfMemory),
    ("OutOfMemoryError", Key::OutOfMemory),
    ("CUDA out of memory", Key::OutOfMemory),
    ("HIP out of memory", Key::OutOfMemory),
    ("NPU out of memory", Key::OutOfMemory),
    ("alloc_req_slots runs out of memory", Key::OutOfMemory),
    ("Can not alloc mamba cache", Key::OutOfMemory),
    ("Not enough memory. Please try to", Key::OutOfMemory),
    ("crashed with exit code ", Key::ExitCode),
    (" hit an exception", Key::Crashed),
    ("SIGQUIT received", Key::Crashed),
    ("Received sigquit from a child process", Key::Crashed),
    ("Error: token_to_kv_pool_allocator memory leak detected", Key::Crashed),
    ("Error: pool memory leak detected", Key::Crashed),
    ("EngineCore encountered a fatal error", Key::Crashed),
    ("EngineCore failed to start", Key::Crashed),
    ("Engine core initialization failed", Key::Crashed),
    ("EngineDeadError", Key::Crashed),
    ("engine core exited unexpectedly", Key::Crashed),
    ("died unexpectedly", Key::Crashed),
    ("Fatal Python error", Key::Crashed),
    ("atchdog timeout (", Key::Watchdog),
    ("Watchdog caught collective operation timeout", Key::Dump),
    (" debug info:", Key::Dump),
    ("Pyspy dump for PID", Key::Dump),
    ("Pyspy failed to dump PID", Key::Dump),
    ("Health check failed. Server couldn't get a response", Key::HealthCheck),
    ("The request queue is full", Key::QueueFull),
    ("Cache flushed successfully", Key::Flushed),
    ("ealth check failed for ", Key::Probe),
    ("Failed to send typed request worker_url=", Key::WorkerUrl),
    ("ircuit breaker state transition", Key::Circuit),
    ("finished processing request", Key::Served),
    ("request failed with ", Key::Served),
    ("\"GET /", Key::Access),
    ("\"POST /", Key::Access),
    ("\"PUT /", Key::Access),
    ("\"DELETE /", Key::Access),
    ("\"HEAD /", Key::Access),
    ("\"OPTIONS /", Key::Access),
    ("\"PATCH /", Key::Access),
];

/// One expression of literals only, which is searched without backtracking.
static ANY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let all: Vec<String> = TEXTS.iter().map(|(text, _)| regex::escape(text)).collect();
    Regex::new(&all.join("|")).ok()
});

/// What must be known of the log so far to understand a line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Context {
    /// SGLang wrote this line or those before: its ready line is another than uvicorn's.
    pub sglang: bool,
    /// A process died since the last start: dumps are part of that.
    pub crashed: bool,
}

/// Whether any of the texts stands in it.
pub(super) fn mentions(text: &[u8]) -> bool {
    ANY.as_ref().is_some_and(|any| any.is_match(text))
}

/// What a message means. None: nothing that is known.
pub(super) fn read(message: &[u8], context: Context) -> Option<(Event, Severity)> {
    let mut best: Option<(u8, Event, Severity)> = None;
    for (step, found) in ANY.as_ref()?.find_iter(message).enumerate() {
        let Some((_, key)) = TEXTS.iter().find(|(text, _)| text.as_bytes() == found.as_bytes()) else { continue };
        // The first that matters decides what kind of line this is.
        match key {
            Key::Quoted => break,
            Key::Starting => return Some((Event::Starting, Severity::Info)),
            _ => {}
        }
        if let Some((event, severity)) = event(*key, message, found.end(), context) {
            let rank = rank(&event);
            if best.as_ref().is_none_or(|(lowest, ..)| rank < *lowest) {
                best = Some((rank, event, severity));
            }
        }
        if step == 32 {
            break;
        }
    }
    best.map(|(_, event, severity)| (event, severity))
}

/// Which of several texts in one message counts: the lower.
fn rank(event: &Event) -> u8 {
    match event {
        Event::OutOfMemory => 0,
        Event::Crashed { code: Some(_) } => 1,
        Event::Crashed { code: None } => 2,
        Event::Watchdog { after: Some(_) } => 3,
        Event::Watchdog { after: None } => 4,
        Event::Stage(_) => 9,
        Event::Access { .. } => 8,
        _ => 5,
    }
}

fn event(key: Key, message: &[u8], end: usize, context: Context) -> Option<(Event, Severity)> {
    let after = message.get(end..).unwrap_or_default();
    let limits = |limits: Limits| (limits != Limits::default()).then_some((Event::Limits(limits), Severity::Info));
    let stage = || Some((Event::Stage(clip(message)), Severity::Info));
    match key {
        Key::Quoted | Key::Starting => None,
        Key::Stage => stage(),
        Key::Capacity => limits(capacity(message)),
        Key::Memory => limits(Limits { free_gb: gigabytes(message, b"avail mem="), ..Limits::default() }),
        Key::MambaSlots => limits(Limits {
            mamba_slots: whole(digits(after)).and_then(|n| u32::try_from(n).ok()),
            ..Limits::default()
        }),
        Key::CacheSize => limits(Limits {
            capacity: tokens(after, b" tokens"),
            context: memmem::find(after, CONCURRENCY)
                .and_then(|at| tokens(after.get(at + CONCURRENCY.len()..)?, b" tokens per request")),
            ..Limits::default()
        }),
        Key::Concurrency => limits(Limits { context: tokens(after, b" tokens per request"), ..Limits::default() }),
        Key::ModelLength => limits(Limits { context: whole(after.trim_ascii()), ..Limits::default() }),
        Key::FiredUp | Key::RouterReady => Some((Event::Ready, Severity::Info)),
        Key::Startup if context.sglang => stage(),
        Key::Startup => Some((Event::Ready, Severity::Info)),
        Key::Retracted => Some((Event::Retracted { requests: retracted(after) }, Severity::Warning)),
        Key::Preempted => Some((Event::Retracted { requests: Some(1) }, Severity::Warning)),
        Key::Aborted => Some((Event::Aborted(request(after)), Severity::Warning)),
        Key::Disconnected => {
            let rid = memmem::find(after, b"rid=").and_then(|at| request(after.get(at + 4..)?));
            Some((Event::Disconnected(rid), Severity::Warning))
        }
        Key::OutOfMemory => Some((Event::OutOfMemory, Severity::Fatal)),
        Key::ExitCode => Some((Event::Crashed { code: code(after) }, Severity::Fatal)),
        Key::Crashed => Some((Event::Crashed { code: None }, Severity::Fatal)),
        Key::Watchdog => {
            let after_seconds = value(after, b"watchdog_timeout=").and_then(|text| number(text).map(|n| n as f32));
            let soft = memmem::find(after, b"soft=True").is_some();
            let severity = if soft { Severity::Error } else { Severity::Fatal };
            Some((Event::Watchdog { after: after_seconds }, severity))
        }
        Key::Dump if context.crashed => None,
        Key::Dump => Some((Event::Watchdog { after: None }, Severity::Error)),
        Key::HealthCheck => {
            const LAST: &[u8] = b"last_heartbeat time: ";
            let beat = memmem::find(after, LAST).and_then(|at| stamp::time_of_day(after.get(at + LAST.len()..)?));
            Some((Event::HealthCheckFailed { last_heartbeat: beat }, Severity::Error))
        }
        Key::QueueFull => Some((Event::QueueFull, Severity::Error)),
        Key::Flushed => Some((Event::CacheFlushed, Severity::Info)),
        Key::Probe | Key::WorkerUrl => Some((Event::WorkerProbeFailed(worker(after)?), Severity::Warning)),
        Key::Circuit => circuit(after),
        Key::Served => span(message),
        Key::Access => access(message, end),
    }
}

const CONCURRENCY: &[u8] = b"Maximum concurrency for ";

/// Text out of a log for an event: clipped, and without secrets.
fn clip(message: &[u8]) -> Arc<str> {
    let message = message.strip_prefix(b"INFO:").unwrap_or(message).trim_ascii_start();
    let end = message.len().min(LONGEST);
    let text = String::from_utf8_lossy(message.get(..end).unwrap_or_default());
    super::secret::scrub(text.trim(), false).into()
}

/// The digits that a text begins with.
fn digits(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// The value of `name=value`, up to a comma, a space or a bracket.
fn value<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = text.get(memmem::find(text, name)? + name.len()..)?;
    let end = rest.iter().position(|b| matches!(b, b',' | b' ' | b')' | b'}' | b';')).unwrap_or(rest.len());
    rest.get(..end)
}

/// `name` followed by a number and ` GB`.
fn gigabytes(text: &[u8], name: &[u8]) -> Option<f32> {
    let rest = text.get(memmem::find(text, name)? + name.len()..)?;
    let end = memmem::find(rest, b" GB")?;
    number(rest.get(..end)?).map(|n| n as f32)
}

/// `2,097,152` before a unit; a clipped number has lost the unit.
fn tokens(text: &[u8], unit: &[u8]) -> Option<u64> {
    let end = text.iter().position(|b| !b.is_ascii_digit() && *b != b',')?;
    let (figure, rest) = text.split_at(end);
    if !rest.starts_with(unit) || figure.len() > 24 {
        return None;
    }
    let plain: Vec<u8> = figure.iter().copied().filter(|b| *b != b',').collect();
    whole(&plain)
}

fn capacity(message: &[u8]) -> Limits {
    let whole_of = |name: &[u8]| value(message, name).and_then(whole);
    Limits {
        capacity: whole_of(b"max_total_num_tokens="),
        chunk: whole_of(b"chunked_prefill_size="),
        max_running: whole_of(b"max_running_requests=").and_then(|n| u32::try_from(n).ok()),
        context: whole_of(b"context_len="),
        free_gb: gigabytes(message, b"available_gpu_mem=").or_else(|| gigabytes(message, b"available_cpu_mem=")),
        ..Limits::default()
    }
}

fn retracted(after: &[u8]) -> Option<u32> {
    [b"#retracted_reqs: ".as_slice(), b"#aborted_retracted_reqs: "].iter().find_map(|name| {
        let at = memmem::find(after, name)? + name.len();
        whole(digits(after.get(at..)?)).and_then(|n| u32::try_from(n).ok())
    })
}

/// A request's id: what follows, `rid=` and quotes taken off.
fn request(after: &[u8]) -> Option<Arc<str>> {
    let after = match memmem::find(after.get(..after.len().min(24))?, b"rid=") {
        Some(at) => after.get(at + 4..)?,
        None => after,
    };
    let text = after.trim_ascii_start();
    let text = text.strip_prefix(b"'").or_else(|| text.strip_prefix(b"\"")).unwrap_or(text);
    let ends = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'\'' | b'"' | b',' | b')' | b':' | b';');
    let end = text.iter().position(ends).unwrap_or(text.len());
    let id = String::from_utf8_lossy(text.get(..end.min(LONGEST))?);
    let id = id.trim_end_matches('.');
    (!id.is_empty()).then(|| crate::job::text::mask_secrets(id).into())
}

fn code(after: &[u8]) -> Option<i32> {
    let (negative, text) = match after.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, after),
    };
    let figure = digits(text);
    // What ends with the line may be the first half of a number.
    text.get(figure.len())?;
    let value = i32::try_from(whole(figure)?).ok()?;
    Some(if negative { -value } else { value })
}

/// The URL of a worker, without the path of the probe.
fn worker(after: &[u8]) -> Option<Arc<str>> {
    let end = after.iter().position(|b| b.is_ascii_whitespace() || *b == b',').unwrap_or(after.len());
    let url = String::from_utf8_lossy(after.get(..end.min(LONGEST))?);
    let url = url.trim_end_matches([':', '.', '/']);
    let url = url.strip_suffix("/health").unwrap_or(url);
    (url.contains("://") || url.contains(':')).then(|| crate::job::text::mask_secrets(url).into())
}

fn circuit(after: &[u8]) -> Option<(Event, Severity)> {
    let to = after.get(memmem::find(after, b"-> ")? + 3..)?;
    let end = to.iter().position(|b| !b.is_ascii_alphabetic() && *b != b'_').unwrap_or(to.len());
    match to.get(..end)?.to_ascii_lowercase().as_slice() {
        b"open" => Some((Event::Circuit { to: Circuit::Open }, Severity::Error)),
        b"half_open" | b"halfopen" => Some((Event::Circuit { to: Circuit::HalfOpen }, Severity::Warning)),
        b"closed" => Some((Event::Circuit { to: Circuit::Closed }, Severity::Info)),
        _ => None,
    }
}

fn answered(path: &[u8], status: &[u8]) -> Option<(Event, Severity)> {
    let status: u16 = whole(status).and_then(|n| u16::try_from(n).ok()).filter(|n| (100..600).contains(n))?;
    let end = path.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(path.len());
    let path = String::from_utf8_lossy(path.get(..end.min(LONGEST))?);
    let path: Arc<str> = crate::job::text::mask_secrets(&path).into();
    let severity = match status {
        500.. => Severity::Error,
        400.. => Severity::Warning,
        _ => Severity::Info,
    };
    Some((Event::Access { path, status }, severity))
}

/// `"POST /path HTTP/1.1" 200 OK`: the path begins at the byte before `from`.
fn access(message: &[u8], from: usize) -> Option<(Event, Severity)> {
    let rest = message.get(from.checked_sub(1)?..)?;
    let path_end = memchr::memchr2(b' ', b'"', rest)?;
    let close = memchr::memchr(b'"', rest)?;
    let status = rest.get(close + 1..)?.strip_prefix(b" ")?;
    answered(rest.get(..path_end)?, status.get(..3)?)
}

/// The router's span: `http_request{method=POST uri=/v1/… status_code=200 latency=73813}`.
fn span(message: &[u8]) -> Option<(Event, Severity)> {
    let at = memmem::find(message, b"http_request{")?;
    let inner = message.get(at..)?;
    let inner = inner.get(..memchr::memchr(b'}', inner)?)?;
    answered(value(inner, b" uri=")?, value(inner, b"status_code=")?)
}

/// How bad a message sounds that is none of the above.
pub(super) fn sounds(message: &[u8]) -> Severity {
    let text = message.get(..message.len().min(512)).unwrap_or_default();
    let begins = text.trim_ascii_start();
    let word_end = begins.iter().position(|b| *b == b':' || *b == b' ').unwrap_or(begins.len());
    let (word, rest) = begins.split_at(word_end);
    let raised = word.ends_with(b"Error") || word.ends_with(b"Exception") || word == b"error";
    if raised && (rest.first() == Some(&b':') || rest.is_empty()) {
        return Severity::Error;
    }
    if TROUBLE.as_ref().is_some_and(|re| re.is_match(text)) {
        return Severity::Error;
    }
    if DOUBT.as_ref().is_some_and(|re| re.is_match(text)) {
        return Severity::Warning;
    }
    Severity::Info
}

static TROUBLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("Traceback \\(most recent call last\\)|Exception in ASGI application|NCCL error|CUDA error|Segmentation fault|terminate called after|memory leak detected|Dumping input data|Dumping scheduler ").ok()
});

static DOUBT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("Warning: |[Dd]eprecated|^ *Fail(?:ed)? to |^ *Cannot |pool holds .* fewer than|not flushed because|kill_process_tree called")
        .ok()
});
