//! Lines that are no batches: what went wrong, who serves what, and what must not be told.

use std::fs;

use pilothouse::serving::line::Reader;
use pilothouse::serving::{Circuit, Engine, Event, Limits, Line, LineKind, LineTime, Severity};

use super::lines::{folder, lines_of, logs, read, read_all};

fn event(raw: &str) -> (Event, Severity) {
    let line = read(raw);
    match line.kind {
        LineKind::Event(event) => (event, line.severity),
        other => panic!("no event in {raw}: {other:?}"),
    }
}

#[test]
fn what_matters_is_told_apart() {
    use Severity::{Error, Fatal, Info, Warning};
    let crash = |code| Event::Crashed { code };
    let rid = |rid: &str| Some(rid.into());
    let cases: Vec<(&str, Event, Severity)> = vec![
        (
            "[2026-11-29 20:00:36] KV cache pool is full. Retract requests. #retracted_reqs: 12, #new_tokens_gained: 429, #new_token_ratio: 0.0054 -> 0.7497",
            Event::Retracted { requests: Some(12) },
            Warning,
        ),
        (
            "[2025-01-23 03:46:52 TP5] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.0980 -> 0.9446",
            Event::Retracted { requests: Some(1) },
            Warning,
        ),
        (
            "[2025-01-23 03:46:52 TP5] KV cache pool is full. Retract requests. #aborted_retracted_reqs: 2, #new_token_ratio: 0.1 -> 0.2",
            Event::Retracted { requests: Some(2) },
            Warning,
        ),
        (
            "[2025-01-23 03:46:52 TP5] KV cache pool is full. Retract requests. #retr",
            Event::Retracted { requests: None },
            Warning,
        ),
        (
            "WARNING 01-23 06:33:37 scheduler.py:1754] Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. total_num_cumulative_preemption=51",
            Event::Retracted { requests: Some(1) },
            Warning,
        ),
        (
            "[2026-01-23 03:46:52 TP0] retract_decode: aborted last request episode-17-turn-3 due to OOM",
            Event::Aborted(rid("episode-17-turn-3")),
            Warning,
        ),
        (
            "INFO 01-23 06:33:37 [async_llm.py:420] Aborted request chatcmpl-4f.",
            Event::Aborted(rid("chatcmpl-4f")),
            Warning,
        ),
        (
            "[2026-01-23 03:46:52] Request is disconnected from the client side (type 1). Abort request obj.rid='3e64'",
            Event::Disconnected(rid("3e64")),
            Warning,
        ),
        ("[2026-01-23 03:46:52 TP0] Prefill out of memory. Try to lower your batch size.", Event::OutOfMemory, Fatal),
        (
            "(EngineCore pid=4037) ERROR 05-01 14:39:06 [core.py:1131] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB.",
            Event::OutOfMemory,
            Fatal,
        ),
        ("RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number", Event::OutOfMemory, Fatal),
        (
            "[2026-11-29 19:53:10] Subprocess scheduler_0 (pid=14121) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
            crash(Some(-9)),
            Fatal,
        ),
        (
            "[2026-11-29 19:53:10] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
            crash(None),
            Fatal,
        ),
        (
            "  File \"<internal>\", line 7 in [2025-05-01 12:21:11] Received sigquit from a child process. It usually means the child failed.",
            crash(None),
            Fatal,
        ),
        (
            "2026-04-12 17:35:06 ERROR 300376 [scheduler.py:3468] Scheduler hit an exception: Traceback (most recent call last):",
            crash(None),
            Fatal,
        ),
        ("ValueError: token_to_kv_pool_allocator memory leak detected! full_available_size=6016", crash(None), Fatal),
        ("ERROR 07-21 13:02:07 [core.py:588] EngineCore encountered a fatal error.", crash(None), Fatal),
        (
            "(APIServer pid=4074) ERROR 05-05 12:36:59 [serving.py:1173] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
            crash(None),
            Fatal,
        ),
        (
            "(APIServer pid=23959) WARNING 11-29 19:38:24 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
            crash(None),
            Fatal,
        ),
        (
            "ERROR 11-29 19:38:24 [multiproc_executor.py:140] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
            crash(None),
            Fatal,
        ),
        (
            "[2025-07-13 07:52:55 DP4 TP4] Watchdog timeout (self.watchdog_timeout=300)",
            Event::Watchdog { after: Some(300.0) },
            Fatal,
        ),
        (
            "[2026-07-13 07:52:55] Scheduler watchdog timeout (self.watchdog_timeout=120.5, self.soft=True)",
            Event::Watchdog { after: Some(120.5) },
            Error,
        ),
        ("[2026-08-10 12:36:50 TP1] Scheduler debug info:", Event::Watchdog { after: None }, Error),
        ("sglang-1  | [2025-11-15 12:05:06 TP6] Pyspy dump for PID 4037:", Event::Watchdog { after: None }, Error),
        (
            "[2025-09-26 06:31:55] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 05:49:14. last_heartbeat time: 05:42:53",
            Event::HealthCheckFailed { last_heartbeat: Some(LineTime { year: None, date: None, millis: 20_573_000 }) },
            Error,
        ),
        ("[2026-01-23 03:46:52] The request queue is full.", Event::QueueFull, Error),
        ("[2026-11-29 19:49:59] Cache flushed successfully!", Event::CacheFlushed, Info),
        ("[2026-11-29 19:49:29] The server is fired up and ready to roll!", Event::Ready, Info),
        ("(APIServer pid=4037) INFO:     Application startup complete.", Event::Ready, Info),
        (
            "INFO:     127.0.0.1:50394 - \"POST /v1/chat/completions?key=abcdefgh HTTP/1.1\" 500 Internal Server Error",
            Event::Access { path: "/v1/chat/completions".into(), status: 500 },
            Error,
        ),
        (
            "[INFO] \"POST /v1/chat/completions\" 200 OK",
            Event::Access { path: "/v1/chat/completions".into(), status: 200 },
            Info,
        ),
        (
            "[2026-11-29 19:59:31] INFO:     127.0.0.1:41422 - \"GET /v1/models HTTP/1.1\" 401 Unauthorized",
            Event::Access { path: "/v1/models".into(), status: 401 },
            Warning,
        ),
        (
            "2026-11-29 19:28:40  WARN smg::core::worker: /x/src/core/worker.rs:948: HTTP health check failed for http://127.0.0.1:31001/health: reqwest::Error { kind: Request }",
            Event::WorkerProbeFailed("http://127.0.0.1:31001".into()),
            Warning,
        ),
        (
            "2026-11-29 19:28:39 ERROR http_request{method=POST uri=/v1/chat/completions}: smg::routers::http::router: /x/router.rs:563: Failed to send typed request worker_url=http://127.0.0.1:31001 route=/v1/chat/completions error=error",
            Event::WorkerProbeFailed("http://127.0.0.1:31001".into()),
            Error,
        ),
        (
            "2026-11-29 19:28:39  INFO smg::core::circuit_breaker: /x/circuit_breaker.rs:220: Circuit breaker state transition: closed -> open",
            Event::Circuit { to: Circuit::Open },
            Error,
        ),
        (
            "2026-11-29 19:28:39  INFO smg::core::circuit_breaker: /x/circuit_breaker.rs:220: Circuit breaker state transition: open -> half_open",
            Event::Circuit { to: Circuit::HalfOpen },
            Warning,
        ),
        (
            "\u{1b}[2m2026-11-29 19:27:57\u{1b}[0m \u{1b}[31mERROR\u{1b}[0m \u{1b}[1mhttp_request\u{1b}[0m\u{1b}[1m{\u{1b}[0m\u{1b}[3mmethod\u{1b}[0m=GET \u{1b}[3muri\u{1b}[0m\u{1b}[2m=\u{1b}[0m/readiness status_code=503 latency=490}: smg::response: /x/middleware.rs:349: request failed with server error",
            Event::Access { path: "/readiness".into(), status: 503 },
            Error,
        ),
    ];
    for (raw, want, severity) in cases {
        assert_eq!(event(raw), (want, severity), "{raw}");
    }

    // A status that was cut off is no status; a code that may have been cut is none.
    assert_eq!(
        read("[2026-05-30 03:42:59] INFO:     127.0.0.1:37664 - \"POST /v1/completions HTTP/1.1\"").kind,
        LineKind::Other
    );
    assert_eq!(event("[2026-11-29 19:53:10] Subprocess scheduler_0 (pid=1) crashed with exit code -1").0, crash(None));
    // A dump after a crash is part of it; uvicorn's word is not SGLang's.
    let mut reader = Reader::new();
    reader.read(b"[2026-11-29 19:53:10] SIGQUIT received. signum=None");
    assert_eq!(reader.read(b"[2026-11-29 19:53:15 TP0] Pyspy dump for PID 4037:").kind, LineKind::Other);
    let line = reader.read(b"[2026-11-29 19:53:15] INFO:     Application startup complete.");
    assert!(matches!(line.kind, LineKind::Event(Event::Stage(_))));
    // The rest of a traceback sounds as its head does.
    let mut reader = Reader::new();
    reader.read(b"[2026-11-29 19:53:10 TP0] Scheduler hit an exception: Traceback (most recent call last):");
    assert_eq!(reader.read(b"  File \"x.py\", line 7, in run").severity, Error);
    assert_eq!(
        reader.read(b"[2026-11-29 19:53:10] Cache not flushed because there are pending requests.").severity,
        Warning
    );
    assert_eq!(reader.read(b"  File \"x.py\", line 7, in run").severity, Info);
}

#[test]
fn limits_and_who_serves_are_learnt_from_the_start() {
    let limits = |raw: &str| match event(raw).0 {
        Event::Limits(limits) => limits,
        other => panic!("{raw}: {other:?}"),
    };
    assert_eq!(
        limits(
            "[2026-11-29 19:49:11] max_total_num_tokens=6000, chunked_prefill_size=4096, max_prefill_tokens=16384, max_running_requests=8, context_len=4096, available_gpu_mem=20.11 GB"
        ),
        Limits {
            capacity: Some(6000),
            chunk: Some(4096),
            max_running: Some(8),
            context: Some(4096),
            free_gb: Some(20.11),
            ..Limits::default()
        }
    );
    assert_eq!(
        limits("[2026-11-29 19:49:11] Mamba Cache is allocated. max_mamba_cache_size: 454, conv_state size: 1.00GB, ssm_state size: 2.00GB").mamba_slots,
        Some(454)
    );
    assert_eq!(limits("[2026-08-01 13:55:44] Memory pool end. avail mem=74.01 GB").free_gb, Some(74.01));
    let vllm = limits(
        "(EngineCore pid=7) INFO 11-29 19:34:31 [kv_cache_utils.py:2327] CPU KV cache size: 2,097,152 tokens, Maximum concurrency for 8,192 tokens per request: 256.00x",
    );
    assert_eq!((vllm.capacity, vllm.context), (Some(2_097_152), Some(8192)));

    let Some(root) = folder() else { return };
    let bytes = fs::read(root.join("sglang/real-cpu2/server.log")).unwrap();
    let mut reader = Reader::new();
    let mut info = None;
    for line in lines_of(&bytes) {
        reader.read(line);
        info = reader.take_info().or(info);
    }
    let info = info.unwrap();
    assert_eq!((info.engine, info.model.as_deref()), (Some(Engine::Sglang), Some("tiny-llama")));
    assert_eq!((info.limits.context, info.limits.max_running, info.limits.capacity), (Some(4096), Some(8), Some(2600)));
    assert_eq!((info.limits.watchdog, info.dp_size), (Some(300.0), Some(1)));

    let bytes = fs::read(root.join("vllm/real-cpu/server-healthy-then-saturated.log")).unwrap();
    let mut reader = Reader::new();
    let mut info = None;
    let mut ready = 0;
    for line in lines_of(&bytes) {
        ready += usize::from(reader.read(line).kind == LineKind::Event(Event::Ready));
        info = reader.take_info().or(info);
    }
    let info = info.unwrap();
    assert_eq!((info.engine, info.version.as_deref()), (Some(Engine::Vllm), Some("0.32.0")));
    assert_eq!((info.model.as_deref(), info.limits.max_running), (Some("tiny-llama"), Some(8)));
    assert_eq!((info.limits.capacity, info.limits.context, ready), (Some(5120), Some(4096), 1));
}

#[test]
fn the_engine_is_recognised() {
    for (name, bytes) in logs() {
        let mut reader = Reader::new();
        for line in lines_of(&bytes) {
            reader.read(line);
        }
        let want = match name.split('/').next().unwrap() {
            "sglang" => Engine::Sglang,
            "vllm" => Engine::Vllm,
            _ => Engine::Router,
        };
        // Lines pasted without anything that only one engine writes.
        let unknown = ["b08", "b13"].iter().any(|part| name.contains(part));
        if !(unknown && reader.engine().is_none()) {
            let custom = name.contains("a22");
            assert!(
                reader.engine() == Some(want) || (custom && reader.engine().is_none()),
                "{name}: {:?}",
                reader.engine()
            );
        }
    }
}

#[test]
fn the_router_tells_of_workers() {
    let Some(root) = folder() else { return };
    let plain = read_all(&root.join("router/router-noansi.log"));
    let circuits: Vec<Circuit> = plain
        .iter()
        .filter_map(|line| match &line.kind {
            LineKind::Event(Event::Circuit { to }) => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(circuits.iter().filter(|to| **to == Circuit::Open).count(), 3);
    let probes = plain.iter().filter(|line| matches!(line.kind, LineKind::Event(Event::WorkerProbeFailed(_)))).count();
    assert_eq!(probes, 22 + 5);
    assert!(plain.iter().all(|line| line.time.is_some_and(|time| time.year == Some(2026))));
    let access =
        |lines: &[Line]| lines.iter().filter(|l| matches!(l.kind, LineKind::Event(Event::Access { .. }))).count();
    assert_eq!(access(&plain), 63);
    // Colours change nothing.
    let coloured = read_all(&root.join("router/router.log"));
    assert!(coloured.iter().all(|line| line.time.is_some() && !line.text.as_ref().unwrap().contains('\u{1b}')));
    assert!(access(&coloured) > 50);
}

#[test]
fn keys_never_reach_the_text() {
    for (name, bytes) in logs() {
        let mut reader = Reader::new();
        for raw in lines_of(&bytes) {
            let line = format!("{:?}", reader.read(raw));
            assert!(!line.contains("KEY-USER") && !line.contains("KEY-ADMIN"), "{name}: {line}");
            if let Some(info) = reader.take_info() {
                let info = format!("{info:?}");
                assert!(!info.contains("KEY-USER") && !info.contains("KEY-ADMIN"), "{name}: {info}");
            }
        }
    }
    for raw in [
        "[2026-11-29 19:57:14] server_args=ServerArgs(model_path='/m', api_key='k1', admin_api_key=\"k1\", port=1)",
        "[2026-11-29 19:57:14] server_args={'api_key': 'k1', 'context_length': 4096, 'ssl_keyfile_password': 'k1', 'hf_token': 'k1'}",
        "[2026-11-29 19:57:14] server_args={'model_loader_extra_config': '{\"api_key\": \"k1\"}', 'x': 1, 'watermark_key': 'k1'}",
        "(APIServer pid=1) INFO 11-29 19:36:31 [api_utils.py:286] non-default args: {'model': 'm', 'api_key': ['k1', 'k1'], 'port': 1}",
        "INFO 11-29 19:36:31 api_server.py:713] args: Namespace(host=None, api_key='k1', lora=None)",
        "python -m sglang.launch_server --api-key k1 --admin-api-key=k1 --port 1",
        "[2026-11-29 19:57:14] server_args={'context_length': 4096, 'api_key': 'k1",
    ] {
        let line = read(raw);
        let text = line.text.unwrap();
        assert!(!text.contains("k1") && text.contains("[masked]"), "{text}");
    }
    // What only sounds like one stays readable.
    let raw = "[2026-11-29 19:57:14] server_args={'tokenizer_path': '/models/x', 'max_total_tokens': 6000, 'api_key': None, 'context_length': 4096}";
    assert_eq!(read(raw).text.as_deref(), Some(raw));
    let raw = "(EngineCore pid=7) INFO 11-29 19:34:31 [kv_cache_utils.py:2327] GPU KV cache size: 2,097,152 tokens, Maximum concurrency for 8,192 tokens per request: 256.00x";
    assert_eq!(read(raw).text.as_deref(), Some(raw));
    // Wherever in a long line it stands, the cut included.
    for at in (3900..4200).chain(8000..8300) {
        let filler = "x".repeat(at);
        let text =
            read(format!("[2026-11-29 19:57:14] server_args={{'a': '{filler}', 'api_key': 'TOP-SECRET-VALUE'}}"))
                .text
                .unwrap();
        assert!(!text.contains("TOP-S") && text.len() <= 4096, "{at}");
    }
}
