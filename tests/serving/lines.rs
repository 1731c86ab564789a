//! What log lines say, over the recordings and excerpts of every version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pilothouse::serving::line::{Batch, Reader, fields};
use pilothouse::serving::{
    Circuit, DecodeBatch, Engine, Event, Figures, Limits, Line, LineKind, LineTime, PrefillBatch, Ranks, Severity,
};
use serde_json::Value;

use crate::support;

pub fn folder() -> Option<PathBuf> {
    Some(support::shared()?.join("data/serving"))
}

/// The lines of a log as a tail gives them.
pub fn lines_of(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

/// Every log of the recordings.
pub fn logs() -> Vec<(String, Vec<u8>)> {
    let Some(root) = folder() else { return Vec::new() };
    let mut out = Vec::new();
    let mut todo = vec![root.clone()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "log") {
                out.push((path.strip_prefix(&root).unwrap().display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }
    out.sort();
    assert!(out.len() > 50);
    out
}

pub fn read(raw: impl AsRef<[u8]>) -> Line {
    Reader::new().read(raw.as_ref())
}

fn read_all(path: &Path) -> Vec<Line> {
    let bytes = fs::read(path).unwrap();
    let mut reader = Reader::new();
    lines_of(&bytes).into_iter().map(|line| reader.read(line)).collect()
}

pub fn decode(line: &Line) -> &DecodeBatch {
    match &line.kind {
        LineKind::Decode(batch) | LineKind::Stats { batch, .. } => batch,
        other => panic!("no decode batch: {other:?}"),
    }
}

fn prefill(line: &Line) -> &PrefillBatch {
    match &line.kind {
        LineKind::Prefill(batch) => batch,
        other => panic!("no prefill batch: {other:?}"),
    }
}

fn event(raw: &str) -> (Event, Severity) {
    let line = read(raw);
    match line.kind {
        LineKind::Event(event) => (event, line.severity),
        other => panic!("no event in {raw}: {other:?}"),
    }
}

fn value(raw: &[u8]) -> Option<f64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The figure that a field of the recordings' expectations becomes.
fn figure(figures: &Figures, name: &str) -> Option<f64> {
    let real = |x: Option<f32>| x.map(f64::from);
    match name {
        "#running-req" => figures.running.map(f64::from),
        "#queue-req" => figures.queued.map(f64::from),
        "#token" | "#full token" => figures.tokens.map(|n| n as f64),
        "token usage" | "full token usage" => real(figures.kv),
        "swa token usage" => real(figures.swa),
        "mamba num" => figures.mamba_slots.map(f64::from),
        "mamba usage" => real(figures.mamba),
        "accept len" => real(figures.accept_len),
        "gen throughput (token/s)" => real(figures.generation),
        other => panic!("a field that is not read: {other}"),
    }
}

#[test]
fn every_recording_reads_as_expected() {
    let Some(root) = folder() else { return };
    let expect: Value = serde_json::from_slice(&fs::read(root.join("expect.json")).unwrap()).unwrap();
    let mut files = 0;
    for (name, want) in expect["sglang"].as_object().unwrap().iter().chain(expect["vllm"].as_object().unwrap()) {
        files += 1;
        let bytes = fs::read(root.join(name)).unwrap();
        let raw = lines_of(&bytes);
        let lines = read_all(&root.join(name));
        let count = |is: fn(&LineKind) -> bool| lines.iter().filter(|line| is(&line.kind)).count();
        let check = |what: &str, got: usize| {
            if let Some(want) = want.get(what) {
                assert_eq!(Some(got as u64), want.as_u64(), "{name}: {what}");
            }
        };
        check("lines", lines.len());
        check("decode", count(|kind| matches!(kind, LineKind::Decode(_))));
        check("prefill", count(|kind| matches!(kind, LineKind::Prefill(_))));
        check("stats", count(|kind| matches!(kind, LineKind::Stats { .. })));
        check("retract_lines", count(|kind| matches!(kind, LineKind::Event(Event::Retracted { .. }))));
        check("fired_up", count(|kind| matches!(kind, LineKind::Event(Event::Ready))));

        let mut seen: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for (raw, line) in raw.iter().zip(&lines) {
            let LineKind::Decode(batch) = &line.kind else { continue };
            let (kind, fields) = fields(raw).unwrap();
            assert_eq!(kind, Batch::Decode);
            for (field, text) in fields {
                let (Ok(field), Some(got)) = (std::str::from_utf8(field), value(text)) else { continue };
                let range = seen.entry(field.to_string()).or_insert([got, got]);
                *range = [range[0].min(got), range[1].max(got)];
                // What the field says is what the figure is.
                if want["fields"].get(field).is_some() {
                    let figure = figure(&batch.figures, field).unwrap();
                    assert!((figure - got).abs() <= got.abs() * 1e-6, "{name}: {field}: {figure} {got}");
                }
            }
        }
        for (field, range) in want.get("fields").and_then(Value::as_object).into_iter().flatten() {
            let range = [range[0].as_f64().unwrap(), range[1].as_f64().unwrap()];
            assert_eq!(seen.get(field), Some(&range), "{name}: {field}");
        }
        if let Some(most) = want.get("max_running") {
            let stats: Vec<&DecodeBatch> = lines
                .iter()
                .filter_map(|line| match &line.kind {
                    LineKind::Stats { batch, .. } => Some(&**batch),
                    _ => None,
                })
                .collect();
            let running = stats.iter().filter_map(|batch| batch.figures.running).max();
            assert_eq!(running.map(u64::from), most.as_u64(), "{name}: max_running");
            // `Pending` of v0 is a queue as well, under another name.
            let v0 = stats.iter().any(|batch| batch.other.iter().any(|(name, _)| &**name == "Swapped"));
            let waiting = stats.iter().filter_map(|batch| batch.figures.queued).max().filter(|_| !v0);
            assert_eq!(waiting.map(u64::from), want["max_waiting"].as_u64(), "{name}: max_waiting");
        }
    }
    assert_eq!(files, 52);
}

#[test]
fn every_shape_of_a_batch_is_read_by_name() {
    let line = read(
        "[2026-11-29 12:00:03.250 DP0 PP1 ATTN_CP2 MOE_DP1 TP7 EP3] Decode batch, #running-req: 5, #full token: 182345, full token usage: 0.39, #swa token: 14592, swa token usage: 0.06, mamba num: 24, mamba usage: 0.35, accept len: 3.13, accept rate: 0.71, pre-allocated usage: 0.10, #prealloc-req: 1, #transfer-req: 2, #retracted-req: 0, cuda graph: True, gen throughput (token/s): 312.07, #queue-req: 4, fwd occupancy: nan%, #new-thing: 7",
    );
    assert_eq!(line.time, Some(LineTime { year: Some(2026), date: Some((11, 29)), millis: 43_203_250 }));
    assert_eq!(line.ranks, Ranks { dp: Some(0), tp: Some(7), pp: Some(1), ep: Some(3) });
    let batch = decode(&line);
    assert_eq!(
        batch.figures,
        Figures {
            running: Some(5),
            queued: Some(4),
            tokens: Some(182_345),
            kv: Some(0.39),
            swa: Some(0.06),
            mamba_slots: Some(24),
            mamba: Some(0.35),
            generation: Some(312.07),
            accept_len: Some(3.13),
            graph: Some(true),
            ..Figures::default()
        }
    );
    let others: Vec<(&str, &str)> = batch.other.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert!(others.contains(&("#swa token", "14592")), "{others:?}");
    assert!(others.contains(&("fwd occupancy", "nan%")), "{others:?}");
    assert!(others.contains(&("#new-thing", "7")), "{others:?}");

    // Counted passes; a dot as before 0.5.5; no figure that is unknown; HiSparse's two pools.
    for raw in [
        "[11:22:33 TP0] Decode batch. #running-req: 2, #queue-req: 1",
        "[2026-11-29 12:00:00] Decode batch [1234], #running-req: 2, #queue-req: 1",
        "[2026-11-29 12:00:00] Decode batch, [1234] #running-req: 2, #queue-req: 1",
        "[2026-11-29 12:00:00] Decode batch. [77], #running-req: 2, #queue-req: 1, ",
        "2026-03-25 16:50:26 INFO 300376 [scheduler.py:3468] Decode batch, #running-req: 2, #queue-req: 1",
        "2026-03-25 16:50:26,123 - sglang.srt - INFO - Decode batch, #running-req: 2, #queue-req: 1",
        "[2026-03-25 16:50:26 INFO scheduler.py:12] Decode batch, #running-req: 2, #queue-req: 1",
    ] {
        let line = read(raw);
        let batch = decode(&line);
        assert_eq!((batch.figures.running, batch.figures.queued), (Some(2), Some(1)), "{raw}");
        assert_eq!((batch.figures.tokens, batch.figures.kv, batch.figures.graph), (None, None, None));
        assert!(line.time.is_some(), "{raw}");
    }
    let line = read(
        "[2026-11-29 12:00:04] Decode batch, #running-req: 5, #gpu token: 20800, gpu token usage: 0.29, #cpu token: 91000, cpu token usage: 0.12, cuda graph: True, gen throughput (token/s): 312.07, #queue-req: 0",
    );
    assert_eq!((decode(&line).figures.tokens, decode(&line).figures.kv), (Some(20_800), Some(0.29)));
}

#[test]
fn prefill_says_how_much_the_cache_had() {
    let line = read(
        "[2026-11-29 12:00:00 DP14 TP14 EP14] Prefill batch, #new-seq: 2, #new-token: 4096, #cached-token: 12288, token usage: 0.39, #running-req: 3, #queue-req: 1, #pending-token: 704, #replay-token: 3, input throughput (token/s): 8123.45, npu graph: False",
    );
    let batch = prefill(&line);
    assert_eq!((batch.new_seqs, batch.new_tokens, batch.cached_tokens), (Some(2), Some(4096), Some(12_288)));
    assert_eq!(batch.figures.cache_hit, Some(0.75));
    assert_eq!(batch.figures.pending_tokens, Some(704));
    assert_eq!(batch.figures.prefill, Some(8123.45));
    assert_eq!(batch.figures.graph, Some(false));
    assert_eq!(line.ranks.dp, Some(14));

    // A line of 0.3 with the rate of the whole cache, which is another figure.
    let line = read(
        "[16:43:30 TP0] Prefill batch. #new-seq: 6, #new-token: 8192, #cached-token: 2753, cache hit rate: 14.16%, token usage: 0.18, #running-req: 4, #queue-req: 34",
    );
    assert_eq!(line.time, Some(LineTime { year: None, date: None, millis: 60_210_000 }));
    assert!((prefill(&line).figures.cache_hit.unwrap() - 0.2515).abs() < 1e-3);
    assert_eq!(&*prefill(&line).other[0].1, "14.16%");

    // Clipped in the middle: what is not said is not zero.
    let line = read(
        "[2026-05-30 03:42:59 TP0] Prefill batch, #new-seq: 1, #new-token: 896, #cached-tounning-req: 45, #queue-req: 81, #pending-token: 70187, npu graph: False, input th",
    );
    let batch = prefill(&line);
    assert_eq!((batch.new_tokens, batch.cached_tokens, batch.figures.cache_hit), (Some(896), None, None));
    assert_eq!((batch.figures.running, batch.figures.queued), (None, Some(81)));
}

#[test]
fn vllm_says_its_load_under_any_device() {
    let line = read(
        "(APIServer pid=7) INFO 05-19 10:13:11 [loggers.py:271] Engine 001: Avg prompt throughput: 12268.0 tokens/s, Avg generation throughput: 1072.7 tokens/s, Running: 18 reqs, Waiting: 43 reqs, Deferred: 2 reqs, KV fetch: 1 waiting to start, 2 in progress, 3 completed waiting, CPU KV cache usage: 95.9%, Prefix cache hit rate: 87.0%, External prefix cache hit rate: 1.0%, MM cache hit rate: 2.0%",
    );
    assert_eq!(line.time, Some(LineTime { year: None, date: Some((5, 19)), millis: 36_791_000 }));
    assert_eq!(line.ranks.dp, Some(1));
    let figures = decode(&line).figures;
    assert_eq!((figures.running, figures.queued), (Some(18), Some(43)));
    assert_eq!((figures.prefill, figures.generation), (Some(12_268.0), Some(1072.7)));
    assert_eq!((figures.kv, figures.cache_hit), (Some(0.959), Some(0.87)));

    let line = read(
        "INFO 01-23 06:33:37 metrics.py:396] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 17.0 tokens/s, Running: 16 reqs, Swapped: 1 reqs, Pending: 3 reqs, GPU KV cache usage: 92.1%, CPU KV cache usage: 11.0%.",
    );
    let batch = decode(&line);
    assert_eq!((batch.figures.queued, batch.figures.kv), (Some(3), Some(0.921)));
    assert!(batch.other.iter().any(|(name, value)| &**name == "CPU KV cache usage" && &**value == "11.0%"));

    let line = read(
        "(APIServer pid=7) INFO 05-30 15:21:33 [loggers.py:271] 8 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 67.9 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 32.9%, Prefix cache hit rate: 87.0%",
    );
    assert!(matches!(line.kind, LineKind::Stats { engines: 8, .. }));

    let length = |raw: &str| match read(raw).kind {
        LineKind::Speculation(length) => Some(length),
        _ => None,
    };
    assert_eq!(
        length(
            "(APIServer pid=7) INFO 09-09 11:51:35 [metrics.py:96] SpecDecoding metrics: Draft acceptance rate: 88.8%, Mean acceptance length: 5.44, Accepted throughput: 4.33 tokens/s, Per-position acceptance rate: 0.983, 0.949"
        ),
        Some(5.44)
    );
    assert_eq!(
        length("SpecDecoding metrics: Draft acceptance rate: 100.0%, Accepted: 66 tokens, Drafted: 66 tokens"),
        None
    );
}

#[test]
fn wrappers_and_neighbours_do_not_hide_a_message() {
    const BATCH: &str = "[2025-05-01 12:21:11 TP3] Decode batch, #running-req: 3, #token: 900, token usage: 0.10, gen throughput (token/s): 30.00, #queue-req: 0";
    let bare = read(BATCH);
    for wrapper in [
        "sglang-1  | ",
        "2025-05-01T04:21:11.123456789Z ",
        "2025-05-01T04:21:11+00:00 stdout F ",
        "\u{1b}[36m(SGLangActor pid=99, ip=192.0.2.7)\u{1b}[0m ",
        "> > ",
        "May 01 04:21:11 host sglang[77]: ",
        "Capturing batches (bs=8):  50%|██   | 1/2 [00:01<00:01]\r",
        "Extension modules: numpy.core._multiarray_umath, numpy.random._generator",
    ] {
        let line = read(format!("{wrapper}{BATCH}"));
        assert_eq!((&line.kind, line.time, line.ranks), (&bare.kind, bare.time, bare.ranks), "{wrapper}");
        assert!(!line.text.unwrap().contains(['\u{1b}', '\r']));
    }

    // Two messages in one physical line: none is lost.
    let mut reader = Reader::new();
    let both =
        format!("{BATCH}[2025-05-01 12:21:12 TP1] Scheduler hit an exception: Traceback (most recent call last):");
    let line = reader.read(both.as_bytes());
    assert_eq!((&line.kind, line.time), (&bare.kind, bare.time));
    let more = reader.more().unwrap();
    assert_eq!(more.kind, LineKind::Event(Event::Crashed { code: None }));
    assert_eq!((more.ranks.tp, more.time.unwrap().millis), (Some(1), 44_472_000));
    assert!(reader.more().is_none());
    let line = reader.read(format!("{BATCH}{BATCH}").as_bytes());
    assert_eq!((&line.kind, &reader.more().unwrap().kind), (&bare.kind, &bare.kind));
    let line = reader.read(format!("Received sigquit from a child process. It{BATCH}").as_bytes());
    assert_eq!(line.kind, bare.kind);
    assert_eq!(reader.more().unwrap().kind, LineKind::Event(Event::Crashed { code: None }));

    // Words of a request that was logged are not the server's.
    for quoted in [
        "[2025-05-01 12:21:11] Receive: obj=GenerateReqInput(rid='a', text='x Decode batch, #running-req: 3, #queue-req: 9')",
        "INFO 05-01 12:21:11 [logger.py:41] Received request chatcmpl-1: prompt: 'torch.OutOfMemoryError: CUDA out of memory', params",
        "[2025-05-01 12:21:11] Finish: obj=GenerateReqInput(rid='a', text='Watchdog timeout (self.watchdog_timeout=300)')",
    ] {
        assert_eq!(read(quoted).kind, LineKind::Other, "{quoted}");
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

#[test]
fn batch_lines_can_do_without_their_text() {
    let mut reader = Reader::new();
    reader.keep_text(false);
    let raw = b"[2026-11-29 12:00:00] Decode batch, #running-req: 5, #queue-req: 0";
    assert_eq!(reader.read(raw).text, None);
    assert!(reader.read(b"[2026-11-29 12:00:00] Load weight begin. avail mem=20.09 GB").text.is_some());
    reader.keep_text(true);
    assert_eq!(reader.read(raw).text.as_deref(), std::str::from_utf8(raw).ok());
}
