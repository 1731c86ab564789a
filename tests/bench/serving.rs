//! How fast log lines of servers are read: lines of every kind, as the tail gives them, text included.
//!
//! `cargo bench --bench serving` reads a million of each; `-- --short` fewer. Both fail where a million
//! decode lines would take longer than a second (on a busy machine, four), text included.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use pilothouse::serving::LineKind;
use pilothouse::serving::line::{Reader, fields};

const AIM: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_secs(if cfg!(debug_assertions) { 100 } else { 4 });

/// Lines as servers print them, each another moment and another load.
fn log(count: usize, line: impl Fn(usize) -> String) -> Vec<String> {
    (0..count).map(line).collect()
}

fn stamp(n: usize) -> String {
    format!("2026-11-29 {:02}:{:02}:{:02}", n / 3600 % 24, n / 60 % 60, n % 60)
}

fn main() {
    let short = std::env::args().any(|arg| arg == "--short");
    // Few enough for the caches to matter as little as in a tail, which reads each line once.
    let distinct = 20_000;
    let rounds = if short { 10 } else { 50 };
    let decode = log(distinct, |n| {
        format!(
            "[{} TP0] Decode batch, #running-req: {}, #token: {}, token usage: 0.{:02}, cuda graph: True, gen throughput (token/s): {}.{:02}, #queue-req: {}\n",
            stamp(n),
            n % 64,
            1000 + n * 37 % 900_000,
            n % 100,
            n * 13 % 4000,
            n % 100,
            n % 9
        )
    });
    let hybrid = log(distinct, |n| {
        format!(
            "[{} DP{} TP1 EP1] Decode batch, #running-req: {}, #full token: {}, full token usage: 0.{:02}, #swa token: {}, swa token usage: 0.06, mamba num: 24, mamba usage: 0.35, accept len: 3.13, accept rate: 0.71, cuda graph: True, gen throughput (token/s): {}.07, #queue-req: {}\n",
            stamp(n),
            n % 8,
            n % 64,
            1000 + n * 37 % 900_000,
            n % 100,
            n % 9000,
            n % 4000,
            n % 9
        )
    });
    let wrapped: Vec<String> = decode.iter().map(|line| format!("sglang-1  | {line}")).collect();
    let prefill = log(distinct, |n| {
        format!(
            "[{} TP0] Prefill batch, #new-seq: {}, #new-token: {}, #cached-token: {}, token usage: 0.{:02}, #running-req: {}, #queue-req: 0, #pending-token: {}, cuda graph: False, input throughput (token/s): {}.45\n",
            stamp(n),
            n % 8,
            n % 8192,
            n % 90_000,
            n % 100,
            n % 64,
            n % 5000,
            n % 9000
        )
    });
    let stats = log(distinct, |n| {
        format!(
            "(APIServer pid=4037) INFO 11-{:02} {} [loggers.py:271] Engine 000: Avg prompt throughput: {}.1 tokens/s, Avg generation throughput: {}.7 tokens/s, Running: {} reqs, Waiting: {} reqs, GPU KV cache usage: {}.9%, Prefix cache hit rate: 87.0%\n",
            1 + n % 30,
            stamp(n).split_off(11),
            n % 20_000,
            n % 2000,
            n % 64,
            n % 50,
            n % 100
        )
    });
    let access = log(distinct, |n| {
        format!(
            "[{}] INFO:     192.0.2.10:{} - \"POST /v1/chat/completions HTTP/1.1\" 200 OK\n",
            stamp(n),
            1024 + n % 60_000
        )
    });
    let million = |took: Duration, lines: usize| took.mul_f64(1e6 / lines as f64);
    let mut decode_takes = Duration::ZERO;
    for (name, log) in [
        ("sglang_decode", &decode),
        ("sglang_decode_hybrid", &hybrid),
        ("sglang_decode_wrapped", &wrapped),
        ("sglang_prefill", &prefill),
        ("vllm_stats", &stats),
        ("access", &access),
    ] {
        let mut reader = Reader::new();
        let mut read = 0;
        let start = Instant::now();
        for _ in 0..rounds {
            for line in log {
                read += usize::from(!matches!(black_box(reader.read(line.as_bytes())).kind, LineKind::Other));
            }
        }
        let lines = rounds * log.len();
        let took = million(start.elapsed(), lines);
        assert_eq!(read, lines, "{name}");
        println!("serving.{name}_lines_per_s {:.0}", 1e6 / took.as_secs_f64());
        if name == "sglang_decode" {
            decode_takes = took;
        }
    }
    let mut reader = Reader::new();
    reader.keep_text(false);
    let start = Instant::now();
    for _ in 0..rounds {
        for line in &decode {
            black_box(reader.read(line.as_bytes()));
        }
    }
    let took = million(start.elapsed(), rounds * decode.len());
    println!("serving.sglang_decode_without_text_lines_per_s {:.0}", 1e6 / took.as_secs_f64());
    let start = Instant::now();
    for _ in 0..rounds {
        for line in &decode {
            black_box(fields(line.as_bytes()).map(|(_, fields)| fields.count()));
        }
    }
    let took = million(start.elapsed(), rounds * decode.len());
    println!("serving.fields_only_lines_per_s {:.0}", 1e6 / took.as_secs_f64());
    println!("serving.million_decode_lines_ms {:.0} (aim {})", decode_takes.as_secs_f64() * 1e3, AIM.as_millis());
    assert!(decode_takes < BUSY, "a million decode lines take {decode_takes:?}");
}
