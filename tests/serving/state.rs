//! States and diagnoses: the recordings, and what no recording shows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pilothouse::job::Stamp;
use pilothouse::serving::clock::Placer;
use pilothouse::serving::line::Reader;
use pilothouse::serving::{
    Circuit, Counters, DecodeBatch, Demand, Diagnosis, DiagnosisKind as Kind, Engine, Event, Field, Figures, Limits,
    Line, LineKind, LineTime, Load, Observation, Place, PrefillBatch, Ranks, Seen, ServerInfo, Serving, Severity,
    Source, SourceId, State, Thresholds, Track, Unreached, Worker, page,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::support;

fn folder() -> Option<PathBuf> {
    Some(support::shared()?.join("data/serving"))
}

fn log_source(id: u16, server: &str) -> Source {
    Source { id: SourceId(id), server: server.into(), place: Place::File(Path::new("server.log").into()) }
}

fn url_source(id: u16, server: &str, url: &str) -> Source {
    Source { id: SourceId(id), server: server.into(), place: Place::Http(url.into()) }
}

fn at(seconds: f64) -> Stamp {
    Stamp::from_microsecond(1_795_000_000_000_000 + (seconds * 1e6) as i64).unwrap()
}

fn seen(source: u16, seconds: f64, seen: Seen) -> Observation {
    Observation { source: SourceId(source), at: Some(at(seconds)), seen }
}

/// A log as it is read: every line with its time in UTC, or none where `zoned` is false.
fn observations(path: &Path, zoned: bool) -> Vec<Observation> {
    let bytes = std::fs::read(path).unwrap();
    let mut reader = Reader::new();
    let written = "2026-11-30T12:00:00Z".parse().unwrap();
    let mut placer = Placer::zoned(jiff::tz::TimeZone::UTC, written);
    let mut now = None;
    let mut out = Vec::new();
    for raw in bytes.split_inclusive(|b| *b == b'\n') {
        let mut next = Some(reader.read(raw));
        while let Some(line) = next {
            if zoned {
                now = line.time.and_then(|time| placer.place(time)).or(now);
            }
            out.push(Observation { source: SourceId(0), at: now, seen: Seen::Line(line) });
            next = reader.more();
        }
        if let Some(info) = reader.take_info() {
            out.push(Observation { source: SourceId(0), at: now, seen: Seen::Info(info) });
        }
    }
    out
}

fn kinds(serving: &Serving) -> BTreeSet<&'static str> {
    serving.diagnoses().map(|d| d.kind.name()).collect()
}

fn expected() -> Option<(PathBuf, Value)> {
    let root = folder()?;
    let expect = serde_json::from_slice(&std::fs::read(root.join("expect.json")).unwrap()).unwrap();
    Some((root, expect))
}

fn words<'a>(of: &'a Value, key: &str) -> Vec<&'a str> {
    of[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn check(file: &str, expect: &Value, got: &BTreeSet<&str>, how: &str) {
    for name in words(expect, "fires") {
        assert!(got.contains(name), "{file} ({how}): {name} was not raised, but {got:?}");
    }
    for name in words(expect, "never") {
        assert!(!got.contains(name), "{file} ({how}): {name} was raised");
    }
}

#[test]
fn recorded_logs_raise_what_they_must_and_nothing_they_must_not() {
    let Some((root, expect)) = expected() else { return };
    let mut files = 0;
    for (file, expect) in expect["diagnoses"].as_object().unwrap() {
        if !expect.is_object() {
            continue;
        }
        files += 1;
        for zoned in [false, true] {
            let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped()).of_finished_logs();
            let seen = observations(&root.join(file), zoned);
            serving.observe_all(&seen);
            serving.settle();
            check(file, expect, &kinds(&serving), if zoned { "placed" } else { "time unknown" });
            for diagnosis in serving.diagnoses() {
                assert_eq!(diagnosis.since.is_some(), zoned, "{file}: {diagnosis:?}");
                assert!(!diagnosis.text.is_empty() && !diagnosis.advice.is_empty(), "{file}: {diagnosis:?}");
                if let (Some(since), Some(until)) = (diagnosis.since, diagnosis.until) {
                    assert!(since <= until, "{file}: {diagnosis:?}");
                }
            }
        }
    }
    assert!(files >= 17, "{files}");
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let home = tempfile::tempdir().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .arg("serving")
        .args(arguments)
        .env("HOME", home.path())
        .env_remove("XDG_CONFIG_HOME")
        .env("PILOTHOUSE_STATE_DIR", home.path())
        .output()
        .unwrap();
    (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn the_command_reports_counts_and_diagnoses_of_every_recording() {
    let Some((root, expect)) = expected() else { return };
    let mut files = 0;
    for (file, counts) in expect["sglang"].as_object().unwrap().iter().chain(expect["vllm"].as_object().unwrap()) {
        let path = root.join(file);
        let (code, text, errors) = run(&[path.to_str().unwrap(), "--json"]);
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}: {errors}"));
        let source = &report["sources"][0];
        for (expected, name) in
            [("lines", "lines"), ("decode", "decode_lines"), ("prefill", "prefill_lines"), ("stats", "stats_lines")]
        {
            if let Some(count) = counts[expected].as_u64() {
                assert_eq!(source[name].as_u64(), Some(count), "{file}: {name}");
            }
        }
        let diagnoses = report["diagnoses"].as_array().unwrap();
        let got: BTreeSet<&str> = diagnoses.iter().filter_map(|d| d["name"].as_str()).collect();
        check(file, &expect["diagnoses"][file], &got, "the command");
        let open =
            |d: &&Value| !d["over"].as_bool().unwrap() && ["error", "fatal"].contains(&d["severity"].as_str().unwrap());
        assert_eq!(code, Some(i32::from(diagnoses.iter().any(|d| open(&d)))), "{file}: {text}");
        for diagnosis in diagnoses {
            for key in ["name", "source", "replica", "since", "until", "figures", "advice"] {
                assert!(diagnosis.get(key).is_some(), "{file}: {key} is missing");
            }
        }
        assert!(!text.contains("KEY-USER") && !text.contains("KEY-ADMIN"), "{file} shows a key");
        files += 1;
    }
    assert!(files > 40, "{files}");
}

#[test]
fn a_retraction_of_four_ranks_is_one_and_a_kill_tells_its_exit_code() {
    let Some(root) = folder() else { return };
    let of = |file: &str, kind: Kind| {
        let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped()).of_finished_logs();
        serving.observe_all(&observations(&root.join(file), true));
        serving.settle();
        let found: Vec<Diagnosis> = serving.diagnoses().filter(|d| d.kind == kind).cloned().collect();
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        found.into_iter().next().unwrap()
    };
    let retraction = of("sglang/a04-decode-oom-retract-alltp.log", Kind::Retraction);
    assert_eq!(retraction.figures["retracted"], 1.0);
    let crash = of("sglang/real-cpu/server-4-scheduler-killed.log", Kind::Crash);
    assert_eq!((crash.figures["exit_code"], crash.severity), (-9.0, Severity::Fatal));
    assert_eq!(crash.figures["running"], 1.0);
    let queueing = of("sglang/real-cpu/server-1-startup-light-queueing.log", Kind::Queueing);
    assert_eq!((queueing.figures["most_queued"], queueing.figures["max_running"]), (13.0, 8.0));
    assert_eq!(queueing.since.unwrap().to_string(), "2026-11-29T19:50:21Z");
    assert_eq!(queueing.until.unwrap().to_string(), "2026-11-29T19:51:31Z");
}

#[test]
fn a_snapshot_that_is_old_makes_the_silence_a_hang() {
    let Some(root) = folder() else { return };
    let log = observations(&root.join("sglang/real-cpu/server-3-scheduler-hung-and-resumed.log"), true);
    let body = std::fs::read(root.join("sglang/real-cpu/v1_loads-hung.json")).unwrap();
    let hung: Stamp = "2026-11-29T19:52:45.818956Z".parse().unwrap();
    let loads = page::loads(&body).unwrap().loads;
    let poll = Observation { source: SourceId(1), at: Some(hung), seen: Seen::Loads(loads) };
    for finished in [true, false] {
        let sources = vec![log_source(0, "A"), url_source(1, "A", "http://127.0.0.1:33000")];
        let mut serving = Serving::new(sources, Thresholds::shipped());
        if finished {
            serving = serving.of_finished_logs();
        }
        let mut polled = false;
        let mut states = Vec::new();
        for line in &log {
            if !polled && line.at > Some(hung) {
                polled = true;
                serving.observe(&poll);
            }
            serving.observe(line);
            if !finished {
                serving.tick(line.at.unwrap(), &Demand::default());
            }
            let state = serving.replicas().next().map(|row| row.state);
            if states.last() != Some(&state) {
                states.push(state);
            }
        }
        let hangs: Vec<&Diagnosis> = serving.diagnoses().filter(|d| d.kind == Kind::Hang).collect();
        assert_eq!(hangs.len(), 1, "{hangs:?}");
        assert!(hangs[0].over && hangs[0].severity == Severity::Warning, "{hangs:?}");
        assert!(hangs[0].figures["snapshot_age"] > 20.0 && hangs[0].figures["running"] == 1.0);
        assert_eq!(hangs[0].since.unwrap().to_string(), "2026-11-29T19:52:25Z");
        assert!(states.contains(&Some(State::Hung)) && states.contains(&Some(State::Decoding)), "{states:?}");
        // One row: the log names no rank, the loads one.
        assert_eq!(serving.replicas().count(), 1);
    }
}

fn decode(source: u16, seconds: f64, rank: Option<u16>, figures: Figures) -> Observation {
    let line = Line {
        time: None,
        ranks: Ranks { dp: rank, ..Ranks::default() },
        severity: Severity::Info,
        kind: LineKind::Decode(Box::new(DecodeBatch { figures, other: Vec::new() })),
        text: Some("Decode batch".into()),
    };
    seen(source, seconds, Seen::Line(line))
}

fn event(source: u16, seconds: f64, event: Event) -> Observation {
    let line = Line {
        time: None,
        ranks: Ranks::default(),
        severity: Severity::Error,
        kind: LineKind::Event(event),
        text: Some("event".into()),
    };
    seen(source, seconds, Seen::Line(line))
}

fn busy(running: u32, queued: u32, kv: f32, generation: f32) -> Figures {
    Figures {
        running: Some(running),
        queued: Some(queued),
        kv: Some(kv),
        generation: Some(generation),
        ..Figures::default()
    }
}

fn loads(source: u16, seconds: f64, rank: Option<u16>, figures: Figures, limits: Limits) -> Observation {
    seen(source, seconds, Seen::Loads(vec![Load { rank, figures, limits, ..Load::default() }]))
}

fn polled() -> Serving {
    Serving::new(vec![url_source(0, "A", "http://127.0.0.1:1")], Thresholds::shipped())
}

fn open(serving: &Serving, kind: Kind) -> Option<&Diagnosis> {
    serving.open().find(|d| d.kind == kind)
}

#[test]
fn queueing_needs_its_time_says_by_how_much_and_is_over_only_when_it_stays_so() {
    let mut serving = polled();
    let limits = Limits { max_running: Some(8), ..Limits::default() };
    let demand = Demand { waiting: 12, median_call: Some(20.0), ..Demand::default() };
    let mut step = |t: f64, queued: u32| {
        serving.observe(&loads(0, t, None, busy(8, queued, 0.5, 200.0), limits));
        serving.tick(at(t), &demand);
        open(&serving, Kind::Queueing).cloned()
    };
    for t in 0..15 {
        assert_eq!(step(f64::from(t) * 2.0, 4), None, "after {t} polls");
    }
    let told = step(30.0, 4).unwrap();
    assert_eq!((told.figures["above"], told.figures["recommended_concurrency"]), (4.0, 8.0));
    assert_eq!((told.figures["wait_seconds"], told.since), (10.0, Some(at(0.0))));
    assert!(told.text.contains("concurrency is 4 above what is served"), "{}", told.text);
    // One poll without a queue is no end; half a minute is.
    for (t, queued) in [(32.0, 0), (34.0, 3), (36.0, 0), (50.0, 0), (64.0, 0)] {
        assert!(step(t, queued).is_some(), "at {t}");
    }
    assert_eq!(step(66.0, 0), None);
    let over = serving.diagnoses().find(|d| d.kind == Kind::Queueing).unwrap();
    assert_eq!((over.over, over.until), (true, Some(at(36.0))));
    assert_eq!(serving.replicas().next().unwrap().state, State::Decoding);
}

#[test]
fn a_runaway_is_told_by_the_trials_wait_or_by_time_alone() {
    let limits = Limits { context: Some(40_000), capacity: Some(100_000), ..Limits::default() };
    let run = |demand: Demand, until: u32| {
        let mut serving = polled();
        let mut first = None;
        for second in (0..until).step_by(5) {
            let t = f64::from(second);
            let figures = Figures { tokens: Some(2_000 + u64::from(second) * 50), ..busy(1, 0, 0.1, 50.0) };
            serving.observe(&loads(0, t, None, figures, limits));
            let demand = Demand { oldest_wait: demand.oldest_wait.map(|w| w + t), ..demand };
            serving.tick(at(t), &demand);
            if first.is_none() && open(&serving, Kind::RunawayGeneration).is_some() {
                first = Some(second);
            }
        }
        (first, open(&serving, Kind::RunawayGeneration).cloned())
    };
    let waiting = Demand { waiting: 1, oldest_wait: Some(70.0), median_call: Some(20.0), ..Demand::default() };
    let (first, told) = run(waiting, 300);
    assert_eq!(first, Some(120));
    let told = told.unwrap();
    assert_eq!(told.severity, Severity::Warning);
    assert!((told.figures["tokens_per_second"] - 50.0).abs() < 1.0, "{told:?}");
    // 40,000 of context, 16,750 in use, 50 a second.
    assert!((told.figures["seconds_to_context_limit"] - 465.0).abs() < 10.0, "{told:?}");
    assert_eq!(run(waiting, 400).1.unwrap().severity, Severity::Error, "more than 16,000 tokens");
    // Calls of this job are long: nothing yet. Without trials beside it, only time tells.
    let (first, _) = run(Demand { median_call: Some(600.0), ..waiting }, 400);
    assert_eq!(first, None);
    assert_eq!(run(Demand::default(), 400).0, Some(300));
    // It would not end before its trial does.
    let (_, told) = run(Demand { least_left: Some(100.0), ..waiting }, 200);
    assert_eq!(told.unwrap().severity, Severity::Error);
}

#[test]
fn a_prefill_or_a_flat_pool_is_no_runaway() {
    let mut serving = polled();
    for second in (0..600).step_by(5) {
        let t = f64::from(second);
        // The pool does not grow as the throughput says.
        let figures = Figures { tokens: Some(20_800), ..busy(1, 0, 0.1, 50.0) };
        serving.observe(&loads(0, t, None, figures, Limits::default()));
        serving.tick(at(t), &Demand::default());
    }
    assert_eq!(kinds(&serving), BTreeSet::new());
}

#[test]
fn an_idle_server_while_trials_wait_and_another_context_are_told() {
    let mut serving = polled();
    let limits = Limits { context: Some(32_768), ..Limits::default() };
    for second in (0..120).step_by(2) {
        let t = f64::from(second);
        serving.observe(&loads(0, t, None, busy(0, 0, 0.0, 0.0), limits));
        let demand = Demand {
            waiting: if second < 100 { 3 } else { 0 },
            oldest_wait: Some(t + 1.0),
            configured_context: Some(65_536),
            ..Demand::default()
        };
        serving.tick(at(t), &demand);
        assert_eq!(open(&serving, Kind::IdleServer).is_some(), (60..110).contains(&second), "at {second}");
    }
    let context = open(&serving, Kind::ContextMismatch).unwrap();
    assert_eq!((context.severity, context.figures["served"]), (Severity::Error, 32_768.0));
    serving.tick(at(121.0), &Demand { configured_context: Some(32_768), ..Demand::default() });
    assert!(open(&serving, Kind::ContextMismatch).is_none());
}

#[test]
fn a_throughput_is_slow_only_beside_its_own_at_as_many_requests() {
    let sources = vec![log_source(0, "A")];
    let mut serving = Serving::new(sources, Thresholds::shipped());
    let mut t = 0.0;
    let mut run = |seconds: f64, running: u32, each: f32, graph: bool, serving: &mut Serving| {
        let end = t + seconds;
        while t < end {
            let figures = Figures { graph: Some(graph), ..busy(running, 0, 0.3, each * running as f32) };
            serving.observe(&decode(0, t, None, figures));
            serving.tick(at(t), &Demand::default());
            t += 2.0;
        }
    };
    run(120.0, 1, 100.0, true, &mut serving);
    run(120.0, 8, 30.0, true, &mut serving);
    assert_eq!(kinds(&serving), BTreeSet::new(), "more at once is slower each");
    run(50.0, 8, 8.0, false, &mut serving);
    assert!(open(&serving, Kind::ThroughputCollapse).is_none());
    run(20.0, 8, 8.0, false, &mut serving);
    let told = open(&serving, Kind::ThroughputCollapse).unwrap();
    assert_eq!((told.figures["usual_each"], told.figures["tokens_per_second_each"]), (30.0, 8.0));
    assert!(told.text.contains("graph"), "{}", told.text);
    run(70.0, 8, 30.0, true, &mut serving);
    assert!(open(&serving, Kind::ThroughputCollapse).is_none());
}

#[test]
fn throughput_that_does_not_come_back_after_a_retraction_is_a_collapse() {
    let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped());
    for second in (0..120).step_by(2) {
        serving.observe(&decode(0, f64::from(second), None, busy(4, 0, 0.9, 420.0)));
    }
    serving.observe(&event(0, 120.0, Event::Retracted { requests: Some(1) }));
    serving.tick(at(120.0), &Demand::default());
    assert_eq!(open(&serving, Kind::Retraction).unwrap().severity, Severity::Warning);
    assert!(open(&serving, Kind::PoolSaturated).is_some());
    assert_eq!(serving.replicas().next().unwrap().state, State::Retracting);
    for second in (122..170).step_by(2) {
        serving.observe(&decode(0, f64::from(second), None, busy(4, 0, 0.9, 30.0)));
        serving.tick(at(f64::from(second)), &Demand::default());
    }
    let told = open(&serving, Kind::ThroughputCollapse).unwrap();
    assert!(told.text.contains("after requests were thrown out"), "{}", told.text);
    // Two more: a storm.
    serving.observe(&event(0, 170.0, Event::Retracted { requests: Some(2) }));
    assert_eq!(open(&serving, Kind::Retraction).unwrap().severity, Severity::Error);
}

#[test]
fn ranks_slots_cache_and_speculation_are_told_from_their_gauges() {
    let mut serving = polled();
    for second in (0..400).step_by(2) {
        let t = f64::from(second);
        let load = |rank: u16, running: u32, mamba: f32| Load {
            rank: Some(rank),
            figures: Figures {
                mamba: Some(mamba),
                mamba_slots: Some(running * 4),
                accept_len: Some(1.1),
                ..busy(running, 0, 0.4, 100.0)
            },
            limits: Limits { mamba_slots: Some(64), ..Limits::default() },
            counters: Counters { prefilled: Some(t * 90.0), cached: Some(t * 10.0), ..Counters::default() },
            ..Load::default()
        };
        serving.observe(&seen(0, t, Seen::Loads(vec![load(0, 14, 0.95), load(1, 2, 0.2)])));
        serving.tick(at(t), &Demand::default());
    }
    let all = kinds(&serving);
    for kind in ["uneven_ranks", "mamba_slots_exhausted", "prefix_cache_thrash", "speculation_not_paying"] {
        assert!(all.contains(kind), "{kind}: {all:?}");
    }
    let slots = open(&serving, Kind::MambaSlotsExhausted).unwrap();
    assert_eq!(slots.replica.as_ref().unwrap().rank, Some(0));
    let cache = open(&serving, Kind::PrefixCacheThrash).unwrap();
    assert!((cache.figures["cache_hit"] - 0.1).abs() < 0.01, "{cache:?}");
    // Rates where no gauge says them.
    let row = serving.replicas().next().unwrap();
    assert!((row.reading(Field::Prefill).unwrap().value - 90.0).abs() < 1.0);
}

#[test]
fn a_pool_that_fills_is_a_warning_before_it_is_full() {
    let mut serving = polled();
    for second in (0..200).step_by(2) {
        let t = f64::from(second);
        let kv = (0.80 + 0.001 * t).min(1.0) as f32;
        serving.observe(&loads(
            0,
            t,
            None,
            busy(4, 0, kv, 100.0),
            Limits { capacity: Some(10_000), ..Limits::default() },
        ));
        serving.tick(at(t), &Demand::default());
        let severity = open(&serving, Kind::PoolSaturated).map(|d| d.severity);
        // 0.85 at 50 s, a minute later a warning; 0.95 at 150 s, a quarter minute later an error.
        let expected = match second {
            0..110 => None,
            112..164 => Some(Severity::Warning),
            168.. => Some(Severity::Error),
            _ => continue,
        };
        assert_eq!(severity, expected, "at {second} s, {kv}");
    }
    let row = serving.replicas().next().unwrap();
    assert_eq!(row.arithmetic().fits, Some(4.0));
}

#[test]
fn a_server_that_is_gone_is_told_once_and_comes_back() {
    let mut serving = polled();
    let refused = |t: f64| {
        let why = "connection refused".into();
        seen(0, t, Seen::Unreached { path: "/v1/loads", how: Unreached::Refused, why })
    };
    let well = |t: f64| loads(0, t, None, busy(2, 0, 0.2, 50.0), Limits::default());
    serving.observe(&well(0.0));
    serving.observe(&refused(2.0));
    serving.tick(at(2.0), &Demand::default());
    assert!(open(&serving, Kind::Unreachable).is_none(), "once is no proof");
    serving.observe(&refused(4.0));
    serving.tick(at(4.0), &Demand::default());
    let told = open(&serving, Kind::Unreachable).unwrap();
    assert_eq!((told.since, told.severity), (Some(at(2.0)), Severity::Fatal));
    let row = serving.replicas().next().unwrap();
    assert_eq!((row.state, row.figures()), (State::Dead, Figures::default()));
    for t in 5..60 {
        serving.observe(&refused(f64::from(t)));
        serving.tick(at(f64::from(t)), &Demand::default());
    }
    assert_eq!(serving.diagnoses().count(), 1);
    serving.observe(&well(60.0));
    serving.tick(at(60.0), &Demand::default());
    assert!(serving.open().next().is_none());
    assert_eq!(serving.replicas().next().unwrap().state, State::Decoding);
}

#[test]
fn a_server_that_takes_connections_and_never_answers_hangs() {
    let mut serving = polled();
    serving.observe(&loads(0, 0.0, None, busy(2, 0, 0.2, 50.0), Limits::default()));
    for t in [3.0, 5.0, 7.0, 20.0] {
        let why = "no answer within 3 s".into();
        serving.observe(&seen(0, t, Seen::Unreached { path: "/v1/loads", how: Unreached::TimedOut, why }));
        serving.tick(at(t), &Demand::default());
        assert_eq!(open(&serving, Kind::Unreachable).is_some(), t >= 7.0, "at {t}");
    }
    assert_eq!(serving.replicas().next().unwrap().state, State::Hung);
    // One path that hangs costs nothing while others answer.
    let mut serving = polled();
    for t in 0..40 {
        let t = f64::from(t);
        serving.observe(&loads(0, t, None, busy(2, 0, 0.2, 50.0), Limits::default()));
        let why = "no answer within 3 s".into();
        serving.observe(&seen(0, t + 0.5, Seen::Unreached { path: "/server_info", how: Unreached::TimedOut, why }));
        serving.tick(at(t), &Demand::default());
    }
    assert_eq!(serving.open().next(), None);
}

#[test]
fn counters_that_stand_still_are_a_hang_and_ones_that_fall_a_restart() {
    let mut serving = polled();
    let load = |t: f64, generated: f64, started: f64| {
        let load = Load {
            figures: busy(1, 0, 0.2, 50.0),
            counters: Counters { generated: Some(generated), started: Some(started), ..Counters::default() },
            ..Load::default()
        };
        seen(0, t, Seen::Loads(vec![load]))
    };
    let mut severities = Vec::new();
    for second in 0..100 {
        let t = f64::from(second);
        serving.observe(&load(t, if second < 10 { t * 50.0 } else { 500.0 }, 1.0));
        serving.tick(at(t), &Demand::default());
        let severity = open(&serving, Kind::Hang).map(|d| d.severity);
        if severities.last() != Some(&severity) {
            severities.push(severity);
        }
    }
    assert_eq!(severities, [None, Some(Severity::Warning), Some(Severity::Fatal)]);
    serving.observe(&load(100.0, 7.0, 2_000.0));
    serving.tick(at(100.0), &Demand::default());
    assert!(open(&serving, Kind::Hang).is_none());
    assert!(open(&serving, Kind::Restart).is_some());
    for second in 101..170 {
        serving.observe(&load(f64::from(second), f64::from(second) * 50.0, 2_000.0));
        serving.tick(at(f64::from(second)), &Demand::default());
    }
    assert_eq!(serving.open().next(), None);
    assert_eq!(serving.diagnoses().filter(|d| d.kind == Kind::Restart).count(), 1);
}

#[test]
fn a_life_by_its_log_start_ready_crash_and_start_again() {
    let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped());
    let state = |serving: &mut Serving, t: f64| {
        serving.tick(at(t), &Demand::default());
        serving.replicas().next().map(|row| row.state)
    };
    serving.observe(&event(0, 0.0, Event::Starting));
    serving.observe(&event(
        0,
        1.0,
        Event::Limits(Limits { max_running: Some(4), free_gb: Some(1.0), ..Limits::default() }),
    ));
    serving.observe(&decode(0, -1.0, Some(9), Figures::default()));
    let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped());
    serving.observe(&seen(0, 0.0, Seen::Info(ServerInfo { engine: Some(Engine::Sglang), ..ServerInfo::default() })));
    serving.observe(&event(0, 0.0, Event::Starting));
    assert_eq!(state(&mut serving, 0.0), Some(State::Starting));
    serving.observe(&event(0, 5.0, Event::Stage("loads weights".into())));
    let limits = Limits { max_running: Some(4), free_gb: Some(1.0), ..Limits::default() };
    serving.observe(&event(0, 9.0, Event::Limits(limits)));
    assert_eq!(open(&serving, Kind::Oom).unwrap().severity, Severity::Warning, "little memory is left");
    serving.observe(&event(0, 10.0, Event::Ready));
    assert_eq!(state(&mut serving, 10.0), Some(State::Ready));
    serving.observe(&decode(0, 12.0, None, busy(4, 3, 0.2, 50.0)));
    assert_eq!(state(&mut serving, 12.0), Some(State::Saturated));
    serving.observe(&event(0, 20.0, Event::Crashed { code: Some(-9) }));
    serving.observe(&event(0, 21.0, Event::Crashed { code: None }));
    assert_eq!(state(&mut serving, 21.0), Some(State::Dead));
    let crash = open(&serving, Kind::Crash).unwrap();
    assert_eq!((crash.since, crash.figures["exit_code"], crash.figures["running"]), (Some(at(20.0)), -9.0, 4.0));
    serving.observe(&event(0, 40.0, Event::Starting));
    assert_eq!(state(&mut serving, 40.0), Some(State::Restarting));
    assert!(open(&serving, Kind::Restart).is_some());
    serving.observe(&event(0, 90.0, Event::Ready));
    assert_eq!(state(&mut serving, 90.0), Some(State::Ready));
    assert!(open(&serving, Kind::Crash).is_none() && open(&serving, Kind::Restart).is_none());
    // Silence says nothing: an idle server prints nothing either.
    serving.observe(&decode(0, 100.0, None, busy(1, 0, 0.2, 50.0)));
    assert_eq!(state(&mut serving, 300.0), Some(State::Unknown));
    assert!(open(&serving, Kind::Hang).is_none());
}

#[test]
fn health_checks_are_nobodys_traffic_and_first_lines_after_silence_no_throughput() {
    let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped());
    let prefill = |t: f64, running: u32, tokens: u64, cached: u64| {
        let batch = PrefillBatch {
            new_seqs: Some(1),
            new_tokens: Some(tokens),
            cached_tokens: Some(cached),
            figures: Figures { running: Some(running), queued: Some(0), ..Figures::default() },
            other: Vec::new(),
        };
        let line = Line {
            time: None,
            ranks: Ranks::default(),
            severity: Severity::Info,
            kind: LineKind::Prefill(Box::new(batch)),
            text: None,
        };
        seen(0, t, Seen::Line(line))
    };
    serving.observe(&prefill(0.0, 0, 1, 0));
    let row = serving.replicas().next().unwrap();
    assert_eq!(row.figures(), Figures::default());
    serving.observe(&prefill(10.0, 0, 500, 20));
    serving.observe(&decode(0, 11.0, None, busy(1, 0, 0.1, 0.4)));
    let row = serving.replicas().next().unwrap();
    assert_eq!((row.figures().running, row.figures().generation), (Some(1), None));
    for t in 12..20 {
        serving.observe(&decode(0, f64::from(t), None, busy(1, 0, 0.1, 90.0)));
    }
    serving.observe(&prefill(80.0, 0, 500, 20));
    serving.observe(&decode(0, 80.0, None, busy(1, 0, 0.1, 1.2)));
    serving.tick(at(80.0), &Demand::default());
    let row = serving.replicas().next().unwrap();
    assert_eq!(row.figures().generation, Some(90.0));
    assert!(row.age(Field::Generation).unwrap() >= 60.0 && row.age(Field::Running).unwrap() < 1.0);
    let columns = row.columns(Track::Generation, 8, 80.0);
    assert!(columns.iter().flatten().all(|v| *v == 90.0), "{columns:?}");
    assert_eq!(columns[5], None, "a gap stays one: {columns:?}");
}

#[test]
fn a_routers_workers_are_rows_and_those_that_are_read_themselves_the_same_ones() {
    let sources = vec![
        url_source(0, "R", "http://127.0.0.1:30000"),
        url_source(1, "A", "http://localhost:31000"),
        Source { id: SourceId(2), server: "R".into(), place: Place::Metrics("http://127.0.0.1:29000/metrics".into()) },
    ];
    let mut serving = Serving::new(sources, Thresholds::shipped());
    let worker = |url: &str, healthy: Option<bool>, circuit: Option<Circuit>| Worker {
        url: url.into(),
        rank: None,
        healthy,
        circuit,
        load: None,
        model: None,
    };
    let (own, other) = ("http://127.0.0.1:31000", "http://127.0.0.1:32000");
    let list = |t: f64, well: bool| {
        seen(0, t, Seen::Workers(vec![worker(own, Some(true), None), worker(other, Some(well), None)]))
    };
    serving.observe(&loads(1, 0.0, None, busy(1, 0, 0.1, 20.0), Limits::default()));
    serving.observe(&list(1.0, true));
    serving.observe(&seen(
        0,
        1.0,
        Seen::OfWorker {
            worker: other.into(),
            seen: Box::new(Seen::Loads(vec![Load { figures: busy(3, 0, 0.4, 70.0), ..Load::default() }])),
        },
    ));
    serving.tick(at(1.0), &Demand::default());
    let rows: Vec<(String, Option<u32>, State)> = serving
        .replicas()
        .map(|row| (format!("{} {:?}", row.key.server, row.key.worker), row.figures().running, row.state))
        .collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.contains(&("A None".to_string(), Some(1), State::Decoding)), "{rows:?}");
    assert!(rows.contains(&(format!("R Some({other:?})"), Some(3), State::Decoding)), "{rows:?}");
    assert!(serving.replicas().all(|row| row.router.as_ref().is_some_and(|view| &*view.router == "R")));
    // The metrics tell the circuit, the list the health: neither takes away what the other said.
    serving.observe(&seen(
        2,
        2.0,
        Seen::Workers(vec![worker(own, None, None), worker(other, None, Some(Circuit::Open))]),
    ));
    serving.observe(&list(3.0, false));
    serving.observe(&seen(0, 3.0, Seen::Readiness { healthy: 1, total: 2 }));
    serving.tick(at(3.0), &Demand::default());
    let circuit = open(&serving, Kind::OpenCircuit).unwrap();
    assert_eq!(circuit.replica.as_ref().unwrap().worker.as_deref(), Some(other));
    let dead = open(&serving, Kind::DeadWorkers).unwrap();
    assert!(dead.text.contains("1 of 2 workers") && dead.text.contains(other), "{}", dead.text);
    assert_eq!(serving.replicas().find(|r| r.key.worker.is_some()).unwrap().state, State::Dead);
    serving.observe(&seen(
        2,
        9.0,
        Seen::Workers(vec![worker(own, None, None), worker(other, None, Some(Circuit::Closed))]),
    ));
    serving.observe(&list(9.0, true));
    serving.observe(&seen(0, 9.0, Seen::Readiness { healthy: 2, total: 2 }));
    serving.tick(at(9.0), &Demand::default());
    assert_eq!(serving.open().next(), None);
}

#[test]
fn what_a_running_server_says_of_itself_is_not_taken_for_what_a_dead_one_said() {
    let sources = vec![log_source(0, "A"), url_source(1, "A", "http://127.0.0.1:1")];
    let mut serving = Serving::new(sources, Thresholds::shipped());
    // Per step the log's word, for the state the newest one.
    serving.observe(&decode(0, 10.0, None, Figures { accept_len: Some(3.0), ..busy(4, 0, 0.3, 100.0) }));
    serving.observe(&loads(
        1,
        12.0,
        None,
        Figures { accept_len: Some(2.0), ..busy(6, 1, 0.4, 50.0) },
        Limits::default(),
    ));
    let row = serving.replicas().next().unwrap();
    assert_eq!(
        (row.figures().running, row.figures().generation, row.figures().accept_len),
        (Some(6), Some(100.0), Some(3.0))
    );
    // A log that lags behind does not turn back what a poll said; one that is silent does not stay.
    serving.observe(&decode(0, 11.0, None, busy(5, 0, 0.3, 110.0)));
    serving.observe(&loads(1, 30.0, None, busy(2, 0, 0.1, 40.0), Limits::default()));
    let row = serving.replicas().next().unwrap();
    assert_eq!((row.figures().running, row.figures().generation), (Some(2), Some(40.0)));
    assert_eq!(row.reading(Field::Generation).unwrap().source, SourceId(1));
}

#[test]
fn own_thresholds_go_over_the_shipped_ones_and_wrong_ones_are_told() {
    let Some(root) = folder() else { return };
    let log = root.join("sglang/a10-flat-token-hisparse.log");
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("own.toml");
    std::fs::write(&own, "[pool]\nfull = 0.2\n").unwrap();
    let (code, text, _) = run(&[log.to_str().unwrap(), "--json", "--thresholds", own.to_str().unwrap()]);
    assert!(text.contains("pool_saturated") && code == Some(1), "{text}");
    std::fs::write(&own, "[pool]\nfil = 0.2\n").unwrap();
    let (code, _, errors) = run(&[log.to_str().unwrap(), "--thresholds", own.to_str().unwrap()]);
    assert!(errors.contains("own.toml:2: ") && code == Some(2), "{errors}");
    let (code, _, errors) = run(&["/nowhere/server.log"]);
    assert!(errors.contains("/nowhere/server.log") && code == Some(2), "{errors}");
    let (code, _, errors) = run(&[dir.path().to_str().unwrap()]);
    assert!(errors.contains("not a file") && code == Some(2), "{errors}");
    let (code, _, _) = run(&[log.to_str().unwrap(), "--serving-tz", "Nowhere/City"]);
    assert_eq!(code, Some(2));
}

#[test]
fn a_replay_in_its_own_time_prints_as_it_goes_and_ends_as_the_whole() {
    let Some(root) = folder() else { return };
    let log = root.join("sglang/real-cpu/server-4-scheduler-killed.log");
    let begun = std::time::Instant::now();
    let (code, text, _) = run(&[log.to_str().unwrap(), "--json", "--replay-speed", "4"]);
    // Nine seconds of log.
    assert!(begun.elapsed().as_secs_f64() >= 2.0, "{:?}", begun.elapsed());
    let reports: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(reports.len() >= 2, "{text}");
    assert_eq!(reports.last().unwrap()["replicas"][0]["state"], "dead");
    assert_eq!(code, Some(1));
}

/// 16 servers of 8 ranks, polled each second.
fn fleet(servers: u16) -> Vec<Source> {
    (0..servers).map(|n| url_source(n, &format!("s{n}"), &format!("http://127.0.0.1:{}", 30_000 + n))).collect()
}

#[test]
fn memory_is_flat_over_hours_of_sixteen_servers() {
    let mut serving = Serving::new(fleet(16), Thresholds::shipped());
    let mut heaps = Vec::new();
    let demand = Demand { waiting: 40, oldest_wait: Some(30.0), median_call: Some(20.0), ..Demand::default() };
    // Once a minute for longer than the history holds, then each second. The benchmark goes on for an hour.
    let mut t = 0.0;
    let full = 8.5 * 3600.0;
    while t < full + 600.0 {
        for server in 0..16u16 {
            let loads: Vec<Load> = (0..8u16)
                .map(|rank| {
                    let wave = ((t / 60.0 + f64::from(server * 8 + rank)).sin() + 1.0) / 2.0;
                    Load {
                        rank: Some(rank),
                        figures: busy((wave * 16.0) as u32, (wave * 6.0) as u32, wave as f32, 300.0),
                        limits: Limits { max_running: Some(16), capacity: Some(100_000), ..Limits::default() },
                        counters: Counters {
                            generated: Some(t * 300.0),
                            retracted: Some((t / 90.0).floor()),
                            ..Counters::default()
                        },
                        ..Load::default()
                    }
                })
                .collect();
            serving.observe(&seen(server, t, Seen::Loads(loads)));
        }
        serving.tick(at(t), &demand);
        t += if t < full { 60.0 } else { 1.0 };
        if t >= full + 60.0 && (t as u64).is_multiple_of(60) {
            heaps.push(serving.heap_estimate());
        }
    }
    assert_eq!(serving.replicas().count(), 128);
    let (least, most) = (heaps.iter().min().unwrap(), heaps.iter().max().unwrap());
    println!("{} kB for 128 replicas, {} diagnoses kept", most / 1024, serving.diagnoses().count());
    assert!(*most < 16 << 20, "{most}");
    assert!((*most - *least) < *most / 20, "{heaps:?}");
}

fn any_figures() -> impl Strategy<Value = Figures> {
    let ratio =
        prop_oneof![(0u32..100).prop_map(|n| n as f32 / 100.0), Just(f32::NAN), Just(f32::INFINITY), Just(-1.0)];
    let count = prop_oneof![0u32..20, Just(u32::MAX)];
    (
        proptest::option::of(count.clone()),
        proptest::option::of(count),
        proptest::option::of(prop_oneof![0u64..100_000, Just(u64::MAX)]),
        proptest::option::of(ratio.clone()),
        proptest::option::of(ratio),
    )
        .prop_map(|(running, queued, tokens, kv, generation)| Figures {
            running,
            queued,
            tokens,
            kv,
            generation,
            mamba: kv,
            prefill: generation,
            accept_len: generation,
            ..Figures::default()
        })
}

fn any_seen() -> impl Strategy<Value = Seen> {
    let rank = proptest::option::of(0u16..4);
    let line = |kind: LineKind, dp: Option<u16>, millis: u32| {
        let time =
            Some(LineTime { year: None, date: Some((1 + (millis % 12) as i8, 1 + (millis % 28) as i8)), millis });
        Seen::Line(Line {
            time,
            ranks: Ranks { dp, tp: dp, ..Ranks::default() },
            severity: Severity::Warning,
            kind,
            text: Some("x".into()),
        })
    };
    let events = prop_oneof![
        Just(Event::Starting),
        Just(Event::Ready),
        Just(Event::Stage("weights".into())),
        (0u32..9).prop_map(|n| Event::Retracted { requests: Some(n) }),
        Just(Event::Disconnected(None)),
        Just(Event::OutOfMemory),
        Just(Event::Crashed { code: Some(-9) }),
        Just(Event::Watchdog { after: None }),
        Just(Event::HealthCheckFailed { last_heartbeat: None }),
        Just(Event::QueueFull),
        Just(Event::CacheFlushed),
        Just(Event::WorkerProbeFailed("http://w".into())),
        Just(Event::Circuit { to: Circuit::Open }),
        Just(Event::Limits(Limits {
            free_gb: Some(f32::NAN),
            context: Some(0),
            capacity: Some(0),
            ..Limits::default()
        })),
    ];
    let counters = (0u32..100).prop_map(|n| Counters {
        generated: Some(f64::from(n)),
        prefilled: Some(f64::from(n % 7)),
        cached: Some(f64::from(n % 5)),
        retracted: Some(f64::from(n % 3)),
        aborted: None,
        started: Some(if n == 1 { f64::NAN } else { f64::from(n / 10) }),
    });
    prop_oneof![
        4 => (any_figures(), rank.clone(), 0u32..86_400_000).prop_map(move |(figures, dp, ms)| line(LineKind::Decode(Box::new(DecodeBatch { figures, other: vec![] })), dp, ms)),
        2 => (any_figures(), rank.clone(), 0u32..86_400_000, 0u16..4).prop_map(move |(figures, dp, ms, engines)| line(LineKind::Stats { batch: Box::new(DecodeBatch { figures, other: vec![] }), engines }, dp, ms)),
        2 => (any_figures(), rank.clone(), 0u32..86_400_000).prop_map(move |(figures, dp, ms)| line(LineKind::Prefill(Box::new(PrefillBatch { new_seqs: Some(u32::MAX), new_tokens: Some(u64::MAX), cached_tokens: Some(3), figures, other: vec![] })), dp, ms)),
        3 => (events, rank.clone(), 0u32..86_400_000).prop_map(move |(event, dp, ms)| line(LineKind::Event(event), dp, ms)),
        4 => proptest::collection::vec((any_figures(), rank.clone(), counters, proptest::option::of(-5f32..100.0)), 0..4).prop_map(|loads| {
            Seen::Loads(loads.into_iter().map(|(figures, rank, counters, age)| Load { rank, figures, counters, age, ..Load::default() }).collect())
        }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(a, b)| Seen::Workers(vec![
            Worker { url: "http://w".into(), rank: None, healthy: Some(a), circuit: Some(if b { Circuit::Open } else { Circuit::Closed }), load: Some(1), model: None },
            Worker { url: "http://127.0.0.1:1".into(), rank: Some(1), healthy: Some(b), circuit: None, load: None, model: None },
        ])),
        1 => (0u32..4, 0u32..4).prop_map(|(healthy, total)| Seen::Readiness { healthy, total }),
        1 => any::<bool>().prop_map(Seen::Health),
        1 => Just(Seen::Info(ServerInfo { engine: Some(Engine::Vllm), ..ServerInfo::default() })),
        1 => prop_oneof![Just(Unreached::Refused), Just(Unreached::TimedOut), Just(Unreached::Status(500))].prop_map(|how| Seen::Unreached { path: "/v1/loads", how, why: "why".into() }),
        1 => Just(Seen::LogReset),
        1 => Just(Seen::LogLost("gone".into())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_observations_at_any_times_leave_a_bounded_state(
        steps in proptest::collection::vec((any_seen(), 0u16..5, proptest::option::of(prop_oneof![
            4 => 0f64..400.0, 1 => -1e6..1e6f64, 1 => Just(1e11), 1 => Just(-1e11),
        ])), 0..250),
        finished in any::<bool>(),
        waiting in 0u32..3,
    ) {
        let sources = vec![
            log_source(0, "A"),
            url_source(1, "A", "http://127.0.0.1:1"),
            url_source(2, "R", "http://127.0.0.1:2"),
            log_source(3, "B"),
        ];
        let mut serving = Serving::new(sources, Thresholds::shipped());
        if finished {
            serving = serving.of_finished_logs();
        }
        let demand = Demand { waiting, oldest_wait: Some(1e9), median_call: Some(f64::NAN), ..Demand::default() };
        for (what, source, when) in steps {
            let when = when.map(|s| s + 1_795_000_000.0);
            let stamp = when.and_then(|s| Stamp::from_microsecond((s * 1e6) as i64).ok());
            serving.observe(&Observation { source: SourceId(source), at: stamp, seen: what });
            if let Some(stamp) = stamp {
                serving.tick(stamp, &demand);
            }
        }
        serving.settle();
        prop_assert!(serving.replicas().count() <= 40);
        prop_assert!(serving.diagnoses().count() <= 1_280);
        prop_assert!(serving.heap_estimate() < 16 << 20);
        for row in serving.replicas() {
            prop_assert!(row.newest_age().is_none_or(|age| age >= 0.0 && age.is_finite()));
            prop_assert_eq!(row.columns(Track::Generation, 40, 600.0).len(), 40);
            row.arithmetic();
        }
        for d in serving.diagnoses() {
            prop_assert!(d.figures.values().all(|v| v.is_finite()));
            prop_assert!(!(d.over && d.since > d.until && d.until.is_some()));
        }
        let text = pilothouse::report::serving::json(&serving, pilothouse::report::json::Style::Line);
        prop_assert!(serde_json::from_str::<Value>(&text).unwrap()["replicas"].is_array());
        let _: Arc<str> = pilothouse::report::serving::plain(&serving).into();
    }
}

#[test]
fn polls_beside_the_log_count_nothing_twice_and_alone_see_the_same() {
    let Some(root) = folder() else { return };
    let folder = root.join("sglang/real-cpu2");
    let log = observations(&folder.join("retraction.log"), true);
    for logged in [true, false] {
        let sources = vec![log_source(0, "A"), url_source(1, "A", "http://127.0.0.1:33000")];
        let sources = if logged { sources } else { sources.into_iter().skip(1).collect() };
        let mut serving = Serving::new(sources, Thresholds::shipped());
        let (mut pages, mut polls, mut fed) = (0, 0, 0);
        for line in &log {
            serving.observe(line);
            let Seen::Line(Line { kind: LineKind::Event(Event::Access { path, .. }), .. }) = &line.seen else {
                continue;
            };
            // The n-th request of the recording's poller was kept under its number.
            let loads = match &**path {
                "/metrics" => {
                    pages += 1;
                    let page = std::fs::read(folder.join(format!("metrics-retract-{pages}.prom")));
                    page.ok().map(|body| page::metrics(&body).unwrap().loads)
                }
                "/v1/loads" => {
                    polls += 1;
                    let page = std::fs::read(folder.join(format!("v1_loads-retract-{polls}.json")));
                    page.ok().map(|body| page::loads(&body).unwrap().loads)
                }
                _ => None,
            };
            if let Some(loads) = loads {
                fed += 1;
                serving.observe(&Observation { source: SourceId(1), at: line.at, seen: Seen::Loads(loads) });
            }
            serving.tick(line.at.unwrap(), &Demand::default());
        }
        assert!(fed >= 8, "{fed}");
        let rows: Vec<_> = serving.replicas().collect();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].retracted, 2, "with the log: {logged}");
        let kinds = kinds(&serving);
        assert!(kinds.contains("retraction") && kinds.contains("pool_saturated"), "{kinds:?}");
        for kind in ["restart", "hang", "crash", "unreachable", "runaway_generation", "throughput_collapse"] {
            assert!(!kinds.contains(kind), "{kind}, with the log: {logged}");
        }
    }
}

/// A server that answers a few paths of SGLang.
fn fake() -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut head = Vec::new();
                let mut buffer = [0; 2048];
                while !head.windows(4).any(|w| w == b"\r\n\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(n) if n > 0 => head.extend_from_slice(&buffer[..n]),
                        _ => return,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head
                    .split_whitespace()
                    .nth(1)
                    .unwrap_or_default()
                    .split('?')
                    .next()
                    .unwrap_or_default()
                    .to_string();
                let (status, body) = match path.as_str() {
                    "/v1/models" => (
                        "200 OK",
                        r#"{"object":"list","data":[{"id":"tiny","owned_by":"sglang","max_model_len":4096}]}"#,
                    ),
                    "/server_info" => (
                        "200 OK",
                        r#"{"version":"0.5.23","api_key":"KEY-USER","max_running_requests":8,"max_total_num_tokens":6000}"#,
                    ),
                    "/v1/loads" => (
                        "200 OK",
                        r#"{"timestamp":"2026-11-29T19:52:45+00:00","version":"0.5.23","loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":0,"num_used_tokens":600,"max_total_num_tokens":6000,"max_running_requests":8,"token_usage":0.1,"gen_throughput":50.0}]}"#,
                    ),
                    "/health" => ("200 OK", ""),
                    _ => ("404 Not Found", ""),
                };
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            });
        }
    });
    port
}

#[test]
fn a_url_is_asked_until_there_is_a_first_full_picture() {
    let url = format!("http://127.0.0.1:{}/v1", fake());
    let begun = std::time::Instant::now();
    let (code, text, errors) = run(&[&url, "--json", "--poll", "1"]);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {errors}"));
    let row = &report["replicas"][0];
    assert_eq!(
        (&row["state"], &row["engine"], &row["version"]),
        (&"decoding".into(), &"sglang".into(), &"0.5.23".into()),
        "{text}"
    );
    assert_eq!((&row["figures"]["running"]["value"], &row["limits"]["max_running"]), (&3.0.into(), &8.into()));
    assert_eq!((code, report["diagnoses"].as_array().unwrap().len()), (Some(0), 0), "{text}");
    assert!(!text.contains("KEY-USER"));
    // Nobody there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, text, _) = run(&[&format!("http://{free}")]);
    assert!(text.contains("unreachable") && text.contains("refused") && code == Some(1), "{text}");
}

#[test]
fn what_a_server_got_over_is_over() {
    let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped());
    serving.observe(&decode(0, 0.0, None, busy(1, 0, 0.2, 50.0)));
    serving.observe(&event(0, 1.0, Event::OutOfMemory));
    serving.observe(&event(0, 1.0, Event::Watchdog { after: Some(300.0) }));
    serving.observe(&event(0, 1.0, Event::HealthCheckFailed { last_heartbeat: None }));
    serving.tick(at(2.0), &Demand::default());
    assert_eq!(serving.open().count(), 3);
    assert_eq!(serving.replicas().next().unwrap().state, State::Hung);
    for t in 3..70 {
        serving.observe(&decode(0, f64::from(t), None, busy(1, 0, 0.2, 50.0)));
        serving.tick(at(f64::from(t)), &Demand::default());
        let expected = match t {
            0..12 => 3,
            12..62 => 1,
            _ => 0,
        };
        assert_eq!(serving.open().count(), expected, "at {t}: {:?}", kinds(&serving));
    }
    assert_eq!(serving.replicas().next().unwrap().state, State::Decoding);
}

#[test]
fn a_live_log_whose_time_is_unknown_still_says_how_it_ended() {
    let Some(root) = folder() else { return };
    let mut serving = Serving::new(vec![log_source(0, "A")], Thresholds::shipped());
    serving.observe_all(&observations(&root.join("sglang/real-cpu/server-4-scheduler-killed.log"), false));
    serving.tick(at(0.0), &Demand::default());
    let row = serving.replicas().next().unwrap();
    assert_eq!((row.state, row.since()), (State::Dead, None));
    assert!(serving.sources()[0].time_unknown());
    // Once lines can be placed, they are what counts.
    for t in 0..30 {
        serving.observe(&decode(0, f64::from(t), None, busy(2, 0, 0.2, 50.0)));
        serving.tick(at(f64::from(t)), &Demand::default());
    }
    let row = serving.replicas().next().unwrap();
    assert_eq!((row.state, serving.open().count()), (State::Decoding, 0));
}

#[test]
fn an_old_server_without_proof_hangs_by_its_health_checks() {
    let mut serving = polled();
    let mut severities = Vec::new();
    for t in (0..200).step_by(2) {
        let t = f64::from(t);
        serving.observe(&loads(0, t, None, busy(1, 0, 0.2, 50.0), Limits::default()));
        // Each check takes 25 s, and another follows.
        if t > 30.0 && t % 30.0 == 0.0 {
            let why = "no answer in time".into();
            serving.observe(&seen(0, t, Seen::Unreached { path: "/health", how: Unreached::TimedOut, why }));
        }
        serving.tick(at(t), &Demand::default());
        let severity = open(&serving, Kind::Hang).map(|d| d.severity);
        if severities.last() != Some(&severity) {
            severities.push(severity);
        }
    }
    assert_eq!(severities, [None, Some(Severity::Fatal)]);
    assert!(open(&serving, Kind::HealthCheckFailed).is_some() && open(&serving, Kind::Unreachable).is_none());
    serving.observe(&seen(0, 200.0, Seen::Health(true)));
    serving.tick(at(201.0), &Demand::default());
    assert_eq!(serving.open().next(), None);
}

#[test]
fn following_prints_lines_of_json_until_it_is_stopped() {
    let url = format!("http://127.0.0.1:{}", fake());
    let home = tempfile::tempdir().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["serving", &url, "--json", "--watch", "--poll", "0.5"])
        .env("HOME", home.path())
        .env("PILOTHOUSE_STATE_DIR", home.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(6));
    let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130));
    let text = String::from_utf8(out.stdout).unwrap();
    let reports: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The same picture is not printed twice.
    assert!((1..=3).contains(&reports.len()), "{text}");
    assert_eq!(reports.last().unwrap()["replicas"][0]["state"], "decoding", "{text}");
}
