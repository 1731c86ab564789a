//! Lines that are cut, mixed up and made up: nothing panics, hangs or grows, and no figure is invented.

use std::time::{Duration, Instant};

use pilothouse::serving::line::{LONGEST_TEXT, Reader, fields};
use pilothouse::serving::{Event, Figures, Limits, Line, LineKind};
use proptest::prelude::*;

use super::lines::{lines_of, logs, read};
use crate::support::big_cast::Dice;

/// Every number that a line says, by name.
fn figures(line: &Line) -> Vec<(&'static str, Option<f64>)> {
    fn of(figures: &Figures) -> Vec<(&'static str, Option<f64>)> {
        let Figures {
            running,
            queued,
            tokens,
            kv,
            swa,
            mamba_slots,
            mamba,
            generation,
            prefill,
            cache_hit,
            accept_len,
            pending_tokens,
            graph,
        } = *figures;
        vec![
            ("running", running.map(f64::from)),
            ("queued", queued.map(f64::from)),
            ("tokens", tokens.map(|n| n as f64)),
            ("kv", kv.map(f64::from)),
            ("swa", swa.map(f64::from)),
            ("mamba slots", mamba_slots.map(f64::from)),
            ("mamba", mamba.map(f64::from)),
            ("generation", generation.map(f64::from)),
            ("prefill", prefill.map(f64::from)),
            ("cache hit", cache_hit.map(f64::from)),
            ("accept len", accept_len.map(f64::from)),
            ("pending", pending_tokens.map(|n| n as f64)),
            ("graph", graph.map(|b| f64::from(u8::from(b)))),
        ]
    }
    match &line.kind {
        LineKind::Decode(batch) => of(&batch.figures),
        LineKind::Prefill(batch) => {
            let mut out = of(&batch.figures);
            out.push(("new seqs", batch.new_seqs.map(f64::from)));
            out.push(("new tokens", batch.new_tokens.map(|n| n as f64)));
            out.push(("cached tokens", batch.cached_tokens.map(|n| n as f64)));
            out
        }
        LineKind::Stats { batch, engines } => {
            let mut out = of(&batch.figures);
            out.push(("engines", Some(f64::from(*engines))));
            out
        }
        LineKind::Speculation(length) => vec![("length", Some(f64::from(*length)))],
        LineKind::Event(Event::Limits(Limits {
            max_running,
            context,
            capacity,
            mamba_slots,
            chunk,
            free_gb,
            watchdog,
        })) => vec![
            ("max running", max_running.map(f64::from)),
            ("context", context.map(|n| n as f64)),
            ("capacity", capacity.map(|n| n as f64)),
            ("slots", mamba_slots.map(f64::from)),
            ("chunk", chunk.map(|n| n as f64)),
            ("free", free_gb.map(f64::from)),
            ("watchdog", watchdog.map(f64::from)),
        ],
        LineKind::Event(Event::Retracted { requests }) => vec![("retracted", requests.map(f64::from))],
        LineKind::Event(Event::Crashed { code }) => vec![("code", code.map(f64::from))],
        LineKind::Event(Event::Access { status, .. }) => vec![("status", Some(f64::from(*status)))],
        _ => Vec::new(),
    }
}

/// What holds for any bytes.
fn sane(raw: &[u8], line: &Line) {
    if let Some(text) = &line.text {
        assert!(text.len() <= LONGEST_TEXT, "{}", text.len());
        assert!(!text.contains(['\u{1b}', '\r', '\u{9b}']), "{text:?}");
    }
    for (name, figure) in figures(line) {
        assert!(figure.is_none_or(f64::is_finite), "{name}: {}", String::from_utf8_lossy(raw));
        if ["kv", "swa", "mamba", "cache hit"].contains(&name) {
            assert!(figure.is_none_or(|n| (0.0..=1.06).contains(&n)), "{name}: {figure:?}");
        }
    }
    if let LineKind::Decode(batch) | LineKind::Stats { batch, .. } = &line.kind {
        assert!(batch.other.len() <= 32 && batch.other.iter().all(|(name, value)| name.len() + value.len() <= 600));
    }
    if let Some(time) = line.time {
        assert!(time.millis < 86_400_000);
        assert!(time.date.is_none_or(|(month, day)| (1..=12).contains(&month) && (1..=31).contains(&day)));
    }
}

/// Different lines of all recordings, by their shape: digits do not make a shape.
fn corpus() -> Vec<Vec<u8>> {
    let mut seen = std::collections::BTreeSet::new();
    let mut out = Vec::new();
    for (_, bytes) in logs() {
        for line in lines_of(&bytes) {
            let shape: Vec<u8> = line.iter().filter(|b| !b.is_ascii_digit()).copied().collect();
            if seen.insert(shape) {
                out.push(line.to_vec());
            }
        }
    }
    out
}

/// A figure of a cut line is that of the whole line, unless the cut went through its digits.
#[test]
fn a_cut_at_any_byte_invents_nothing() {
    for raw in corpus() {
        if raw.len() > 1500 {
            continue;
        }
        let whole = read(&raw);
        // Lines without figures have none to lose.
        let step = if matches!(whole.kind, LineKind::Other) { 5 } else { 1 };
        let whole = figures(&whole);
        for cut in (0..raw.len()).step_by(step) {
            let line = read(&raw[..cut]);
            sane(&raw[..cut], &line);
            let through =
                raw[..cut].last().is_some_and(u8::is_ascii_digit) && raw[cut].is_ascii_digit() || raw[cut] == b'.';
            let mut differ = Vec::new();
            for (name, figure) in figures(&line) {
                let same = whole.iter().find(|(other, _)| *other == name).is_some_and(|(_, whole)| *whole == figure);
                if figure.is_some() && !same {
                    differ.push(name);
                }
            }
            // The share of the cache follows from one of its two counts.
            differ.retain(|name| *name != "cache hit" || differ_needs(&line));
            assert!(differ.len() <= usize::from(through), "{differ:?} in {}", String::from_utf8_lossy(&raw[..cut]));
        }
        // From the front: the words that make it a batch go first.
        for cut in (1..raw.len()).step_by(step) {
            let line = read(&raw[cut..]);
            sane(&raw[cut..], &line);
            if !matches!(line.kind, LineKind::Decode(_) | LineKind::Prefill(_)) {
                continue;
            }
            for (name, figure) in figures(&line) {
                let same = whole.iter().find(|(other, _)| *other == name).is_some_and(|(_, whole)| *whole == figure);
                assert!(figure.is_none() || same, "{name} in {}", String::from_utf8_lossy(&raw[cut..]));
            }
        }
    }
}

fn differ_needs(line: &Line) -> bool {
    !matches!(&line.kind, LineKind::Prefill(batch) if batch.cached_tokens.is_some())
}

/// A line in colours says what it says without.
fn same_in_colour(raw: &[u8]) {
    if raw.contains(&0x1b) || raw.contains(&b'\r') || raw.len() > 60_000 {
        return;
    }
    let plain = read(raw);
    let coloured = read([b"\x1b[1m", raw, b"\x1b[0m"].concat());
    assert_eq!(plain.kind, coloured.kind, "{}", String::from_utf8_lossy(raw));
    assert_eq!((plain.time, plain.ranks, plain.severity), (coloured.time, coloured.ranks, coloured.severity));
}

/// One change to a line: cut, doubled, mixed with another, bytes that no line should have.
fn mutate(dice: &mut Dice, line: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let mut below = |n: usize| dice.below(n.max(1) as u64) as usize;
    let at = below(line.len() + 1);
    let to = at + below(line.len() - at + 1);
    match below(10) {
        0 => line.truncate(at),
        1 => drop(line.drain(..at)),
        2 => drop(line.drain(at..to)),
        3 => {
            let part = line[at..to].to_vec();
            line.splice(at..at, part);
        }
        4 => {
            let other = &corpus[below(corpus.len())];
            let from = below(other.len() + 1);
            line.splice(at..at, other[from..].iter().copied());
        }
        5 => {
            let other = &corpus[below(corpus.len())];
            line.truncate(at);
            line.extend_from_slice(&other[below(other.len() + 1)..]);
        }
        6 if at < line.len() => line[at] = below(256) as u8,
        7 => {
            const ODD: [&[u8]; 22] = [
                b"\x1b[31m",
                b"\x1b]0;",
                b"\r",
                b"\0",
                b"\xff\xfe",
                "\u{202e}".as_bytes(),
                "\u{9b}31m".as_bytes(),
                b": ",
                b", ",
                b"[",
                b"] ",
                b"Decode batch, ",
                b"Prefill batch. ",
                b"Avg prompt throughput: ",
                b"99999999999999999999",
                b"-1",
                b"1e309",
                b"nan",
                b"inf",
                b"[2026-11-29 12:00:00 TP0] ",
                b"'",
                "任务".as_bytes(),
            ];
            line.splice(at..at, ODD[below(ODD.len())].iter().copied());
        }
        8 => {
            for byte in line.iter_mut().filter(|b| b.is_ascii_digit()).skip(below(8)).take(below(12)) {
                *byte = b'0' + below(10) as u8;
            }
        }
        _ => {
            let part: Vec<u8> = line[at..to].iter().copied().take(64).collect();
            for _ in 0..below(20) {
                line.splice(at..at, part.iter().copied());
            }
        }
    }
    line.truncate(100_000);
}

/// What this thread has used of a processor: a busy machine makes nothing slow.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A line has no end that can be relied on.
#[test]
fn endless_lines_cost_no_more_than_long_ones() {
    for part in [
        "a",
        " ",
        ", ",
        ": ",
        "[",
        "12:00:00",
        "[2026-11-29 12:00:00 TP0] ",
        "Decode batch, ",
        "Avg prompt throughput: ",
        "a: 1, ",
        "\u{1b}[",
        "\u{1b}]0;",
        "\r",
        "\r[2026-11-29 12:00:00] ",
        "\"POST /",
        "api_key='",
        "任",
        "Received sigquit from a child process",
        "INFO 11-29 12:00:00 ",
        "Capturing batches\r",
        "--api-key ",
        "password=",
    ] {
        for head in
            ["", "[2026-11-29 12:00:00] Decode batch, #running-req: 1, ", "[2026-11-29 12:00:00] server_args={'a': "]
        {
            let raw = format!("{head}{}", part.repeat(10_000_000 / part.len()));
            let mut reader = Reader::new();
            let start = cpu();
            let line = reader.read(raw.as_bytes());
            let mut more = 0;
            while let Some(line) = reader.more() {
                sane(raw.as_bytes(), &line);
                more += 1;
            }
            assert!(cpu() - start < Duration::from_secs(2), "{head}{part}");
            sane(raw.as_bytes(), &line);
            assert!(more <= 4096, "{more}");
        }
    }
}

/// Seconds: `PILOTHOUSE_FUZZ_SECONDS`, else 10. The seed is fixed: what fails, fails again.
#[test]
fn fuzz_lines() {
    let corpus = corpus();
    if corpus.is_empty() {
        return;
    }
    let seconds = std::env::var("PILOTHOUSE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut dice = Dice(20_261_130);
    let mut reader = Reader::new();
    let mut count = 0u64;
    while Instant::now() < end {
        let mut line = corpus[dice.below(corpus.len() as u64) as usize].clone();
        for _ in 0..=dice.below(4) {
            mutate(&mut dice, &mut line, &corpus);
        }
        let start = cpu();
        let read = reader.read(&line);
        sane(&line, &read);
        while let Some(more) = reader.more() {
            sane(&line, &more);
        }
        reader.take_info();
        for (name, value) in fields(&line).into_iter().flat_map(|(_, fields)| fields) {
            assert!(!name.is_empty() && !value.is_empty());
        }
        assert!(cpu() - start < Duration::from_secs(2), "{}", String::from_utf8_lossy(&line));
        if count.is_multiple_of(16) {
            same_in_colour(&line);
        }
        count += 1;
    }
    println!("fuzz_lines: {count} lines in {seconds} s");
    assert!(count > 100);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_line(raw in proptest::collection::vec(any::<u8>(), 0..600)) {
        let line = read(&raw);
        sane(&raw, &line);
        let batch = matches!(line.kind, LineKind::Decode(_) | LineKind::Prefill(_) | LineKind::Stats { .. });
        prop_assert!(!batch);
        same_in_colour(&raw);
    }

    #[test]
    fn any_text_after_the_words_is_no_figure(text in "[^\r\n\u{1b}]{0,200}") {
        let raw = format!("[2026-11-29 12:00:00 TP0] Decode batch, {text}");
        let line = read(&raw);
        sane(raw.as_bytes(), &line);
        if !text.contains("#running-req: ") {
            prop_assert!(figures(&line).iter().all(|(name, figure)| *name != "running" || figure.is_none()));
        }
    }

    #[test]
    fn figures_are_read_as_they_are_written(
        running in any::<u32>(), tokens in 0u64..1_000_000_000_000, usage in 0u32..=100, speed in 0u32..10_000_000, queued in any::<u32>(),
        dp in proptest::option::of(0u16..300), dot in any::<bool>(), tail in any::<bool>(),
    ) {
        let tag = dp.map_or(String::new(), |dp| format!(" DP{dp} TP{dp}"));
        let raw = format!(
            "[2026-11-29 12:00:00{tag}] Decode batch{} #running-req: {running}, #token: {tokens}, token usage: {:.2}, cuda graph: True, gen throughput (token/s): {:.2}, #queue-req: {queued}{}",
            if dot { "." } else { "," }, f64::from(usage) / 100.0, f64::from(speed) / 100.0, if tail { ", " } else { "" },
        );
        let line = read(&raw);
        prop_assert_eq!(line.ranks.dp, dp);
        let LineKind::Decode(batch) = &line.kind else { panic!("{raw}") };
        prop_assert_eq!(batch.figures.running, Some(running));
        prop_assert_eq!(batch.figures.tokens, Some(tokens));
        prop_assert_eq!(batch.figures.queued, Some(queued));
        prop_assert_eq!(batch.figures.kv, Some((f64::from(usage) / 100.0) as f32));
        prop_assert_eq!(batch.figures.generation, Some((f64::from(speed) / 100.0) as f32));
        prop_assert_eq!(line.text.as_deref(), Some(raw.as_str()));
    }
}
