//! What log lines say, over the recordings and excerpts of every version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pilothouse::serving::line::{Batch, Reader, fields, is_answer};
use pilothouse::serving::{DecodeBatch, Event, Figures, Line, LineKind, LineTime, PrefillBatch, Ranks};
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

pub fn read_all(path: &Path) -> Vec<Line> {
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
fn answers_are_told_from_polls() {
    let answers = |raw: &str| is_answer(&read(raw));
    assert!(answers("[2026-11-29 19:49:35] INFO:     127.0.0.1:45156 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK"));
    assert!(answers("(APIServer pid=1) INFO:     127.0.0.1:1 - \"POST /v1/responses HTTP/1.1\" 200 OK"));
    assert!(!answers(
        "[2026-11-29 19:49:35] INFO:     127.0.0.1:45156 - \"POST /v1/chat/completions HTTP/1.1\" 400 Bad Request"
    ));
    assert!(!answers("[2026-11-29 19:49:35] INFO:     127.0.0.1:45156 - \"GET /metrics HTTP/1.1\" 200 OK"));
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
