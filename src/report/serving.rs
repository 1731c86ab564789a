//! The report of `serving`: sources, replicas, diagnoses.
//!
//! JSON, `schema_version` 1:
//!
//! | key | what |
//! |---|---|
//! | `thresholds[]` | files of thresholds, the first over the next; `shipped` is the program's own |
//! | `sources[]` | `name`, `server`, `place`, `engine`, `version`, `lines`, `decode_lines`, `prefill_lines`, `stats_lines`, `answers`, `last_heard`, `time_known` (false: a log whose times can not be placed), `time_offset` (seconds from its stamps to UTC), `trouble` |
//! | `servers[]` | `name`, `engine`, `version`, `model`, `state`, `evidence`, `since`, `healthy_workers` and `workers` of a router |
//! | `replicas[]` | see below |
//! | `diagnoses[]` | those that are over, then those that hold: `name`, `severity`, `source`, `server`, `replica`, `since`, `until`, `over`, `figures`, `text`, `advice` |
//!
//! One of `replicas[]`: `name`, `server`, `worker`, `rank`, `engine`, `version`, `model`, `state`, `evidence`,
//! `since`, `limits` (`max_running`, `context`, `capacity`, `mamba_slots`), `figures` (name → `value`, `age` in seconds,
//! `source`, `from` log or poll), `capacity` (`tokens_per_request`, `fits`, `growth`, `full_in`), `retracted`,
//! `router` (`router`, `healthy`, `circuit`, `load`; null without). What is not known is null or left out,
//! never 0. Times are UTC.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::json::Style;
use super::{UNKNOWN, line};
use crate::job::text::{json_for_terminal, mask_secrets};
use crate::job::{Stamp, time};
use crate::serving::{
    Calm, Circuit, Diagnosis, Field, Place, Replica, ReplicaKey, Serving, Severity, SourceId, SourceView,
};

/// Diagnoses that are over and are printed in full.
const SHOWN: usize = 20;

/// The name of a replica: its server, worker and rank.
pub fn replica_name(key: &ReplicaKey) -> String {
    let mut out = key.server.to_string();
    if let Some(worker) = &key.worker {
        let _ = write!(out, " {worker}");
    }
    if let Some(rank) = key.rank {
        let _ = write!(out, " dp{rank}");
    }
    out
}

/// The word for a severity.
pub fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
    }
}

/// What a source reads, in words without secrets.
pub fn place_words(place: &Place) -> String {
    match place {
        Place::Http(url) => url.to_string(),
        Place::Metrics(url) => format!("metrics:{url}"),
        Place::File(path) => path.display().to_string(),
        Place::Container(name) => format!("docker:{name}"),
        Place::Command(command) => format!("cmd:{}", mask_secrets(command)),
    }
}

/// The name of a source: its server's, and what it is where several tell of one server.
fn source_name(serving: &Serving, source: &SourceView) -> String {
    let server = &source.source.server;
    let same = serving.sources().iter().filter(|s| s.source.server == *server).count();
    let kind = match source.source.place {
        Place::Http(_) => "http",
        Place::Metrics(_) => "metrics",
        _ => "log",
    };
    if same > 1 { format!("{server} {kind}") } else { server.to_string() }
}

fn name_of(serving: &Serving, id: SourceId) -> String {
    serving.source(id).map_or_else(|| UNKNOWN.to_string(), |source| source_name(serving, source))
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    thresholds: &'a [String],
    sources: Vec<SourceOut<'a>>,
    servers: Vec<ServerOut<'a>>,
    replicas: Vec<ReplicaOut<'a>>,
    diagnoses: Vec<DiagnosisOut<'a>>,
}

#[derive(Serialize)]
struct SourceOut<'a> {
    name: String,
    server: &'a str,
    place: String,
    engine: Option<&'static str>,
    version: Option<&'a str>,
    lines: u64,
    decode_lines: u64,
    prefill_lines: u64,
    stats_lines: u64,
    answers: u64,
    last_heard: Option<String>,
    time_known: bool,
    time_offset: Option<i64>,
    trouble: Option<&'a str>,
}

#[derive(Serialize)]
struct ServerOut<'a> {
    name: &'a str,
    engine: Option<&'static str>,
    version: Option<&'a str>,
    model: Option<&'a str>,
    state: &'static str,
    evidence: &'a str,
    since: Option<String>,
    healthy_workers: Option<u32>,
    workers: Option<u32>,
}

#[derive(Serialize)]
struct LimitsOut {
    max_running: Option<u32>,
    context: Option<u64>,
    capacity: Option<u64>,
    mamba_slots: Option<u32>,
}

#[derive(Serialize)]
struct FigureOut {
    value: f64,
    age: Option<f64>,
    source: String,
    from: &'static str,
}

#[derive(Serialize)]
struct CapacityOut {
    tokens_per_request: Option<f64>,
    fits: Option<f64>,
    growth: Option<f64>,
    full_in: Option<f64>,
}

#[derive(Serialize)]
struct RouterOut<'a> {
    router: &'a str,
    healthy: Option<bool>,
    circuit: Option<&'static str>,
    load: Option<u32>,
}

#[derive(Serialize)]
struct ReplicaOut<'a> {
    name: String,
    server: &'a str,
    worker: Option<&'a str>,
    rank: Option<u16>,
    engine: Option<&'static str>,
    version: Option<&'a str>,
    model: Option<&'a str>,
    state: &'static str,
    evidence: &'a str,
    since: Option<String>,
    limits: LimitsOut,
    figures: BTreeMap<&'static str, FigureOut>,
    capacity: CapacityOut,
    retracted: u64,
    router: Option<RouterOut<'a>>,
}

#[derive(Serialize)]
struct DiagnosisOut<'a> {
    name: &'static str,
    severity: &'static str,
    source: String,
    server: &'a str,
    replica: Option<String>,
    since: Option<String>,
    until: Option<String>,
    over: bool,
    figures: &'a BTreeMap<&'static str, f64>,
    text: &'a str,
    advice: &'a str,
}

fn circuit_word(circuit: Circuit) -> &'static str {
    match circuit {
        Circuit::Closed => "closed",
        Circuit::Open => "open",
        Circuit::HalfOpen => "half_open",
    }
}

fn text(at: Option<Stamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn source_out<'a>(serving: &Serving, s: &'a SourceView) -> SourceOut<'a> {
    SourceOut {
        name: source_name(serving, s),
        server: &s.source.server,
        place: place_words(&s.source.place),
        engine: s.engine.map(|e| e.name()),
        version: s.version.as_deref(),
        lines: s.lines,
        decode_lines: s.decode_lines,
        prefill_lines: s.prefill_lines,
        stats_lines: s.stats_lines,
        answers: s.answers,
        last_heard: text(s.last_heard()),
        time_known: !s.time_unknown(),
        time_offset: s.offset,
        trouble: s.trouble.as_deref(),
    }
}

fn replica_out<'a>(serving: &Serving, row: &'a Replica) -> ReplicaOut<'a> {
    let figures = Field::ALL.into_iter().filter_map(|field| {
        let reading = row.reading(field)?;
        let figure = FigureOut {
            value: reading.value,
            age: row.age(field).map(tenth),
            source: name_of(serving, reading.source),
            from: if reading.log { "log" } else { "poll" },
        };
        Some((field.name(), figure))
    });
    let capacity = row.arithmetic();
    ReplicaOut {
        name: replica_name(&row.key),
        server: &row.key.server,
        worker: row.key.worker.as_deref(),
        rank: row.key.rank,
        engine: row.engine.map(|e| e.name()),
        version: row.version.as_deref(),
        model: row.model.as_deref(),
        state: row.state.name(),
        evidence: &row.evidence,
        since: text(row.since()),
        limits: LimitsOut {
            max_running: row.limits.max_running,
            context: row.limits.context,
            capacity: row.limits.capacity,
            mamba_slots: row.limits.mamba_slots,
        },
        figures: figures.collect(),
        capacity: CapacityOut {
            tokens_per_request: capacity.tokens_per_request.map(tenth),
            fits: capacity.fits,
            growth: capacity.growth.map(tenth),
            full_in: capacity.full_in.map(tenth),
        },
        retracted: row.retracted,
        router: row.router.as_ref().map(|view| RouterOut {
            router: &view.router,
            healthy: view.worker.healthy,
            circuit: view.worker.circuit.map(circuit_word),
            load: view.worker.load,
        }),
    }
}

fn diagnosis_out<'a>(serving: &Serving, d: &'a Diagnosis) -> DiagnosisOut<'a> {
    DiagnosisOut {
        name: d.kind.name(),
        severity: severity_word(d.severity),
        source: name_of(serving, d.source),
        server: &d.server,
        replica: d.replica.as_ref().map(replica_name),
        since: text(d.since),
        until: text(d.until),
        over: d.over,
        figures: &d.figures,
        text: &d.text,
        advice: &d.advice,
    }
}

/// The JSON document, see the top of this file.
pub fn json(serving: &Serving, style: Style) -> String {
    let document = Document {
        schema_version: 1,
        thresholds: &serving.thresholds().files,
        sources: serving.sources().iter().map(|s| source_out(serving, s)).collect(),
        servers: serving
            .servers()
            .iter()
            .map(|s| ServerOut {
                name: &s.name,
                engine: s.engine.map(|e| e.name()),
                version: s.version.as_deref(),
                model: s.model.as_deref(),
                state: s.state().name(),
                evidence: s.evidence(),
                since: text(s.since()),
                healthy_workers: s.readiness.map(|r| r.0),
                workers: s.readiness.map(|r| r.1),
            })
            .collect(),
        replicas: serving.replicas().map(|row| replica_out(serving, row)).collect(),
        diagnoses: serving.diagnoses().map(|d| diagnosis_out(serving, d)).collect(),
    };
    let text = match style {
        Style::Pretty => serde_json::to_string_pretty(&document),
        Style::Line => serde_json::to_string(&document),
    };
    // Numbers that are none are left out before, so that nothing here can fail.
    let text = text.unwrap_or_else(|_| "{}".to_string());
    format!("{}\n", json_for_terminal(&text))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| UNKNOWN.to_string(), |v| format!("{v:.digits$}"))
}

/// Columns that the report keeps to; only words longer than that run over.
const WIDTH: usize = 80;
/// Column at which values begin.
const INDENT: usize = 12;

/// A field with its value, wrapped between words.
fn field(out: &mut String, name: &str, value: &str) {
    let _ = write!(out, "{name:<INDENT$}");
    let mut column = INDENT;
    for (n, word) in value.split(' ').enumerate() {
        let width = word.width();
        if n > 0 && column + 1 + width > WIDTH {
            let _ = write!(out, "\n{:<INDENT$}", "");
            column = INDENT;
        } else if n > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

fn source_line(source: &SourceView) -> String {
    let engine = source.engine.map_or(UNKNOWN, |e| e.name());
    let version = source.version.as_deref().map_or(String::new(), |v| format!(" {}", line(v)));
    let mut out = format!("{}: {engine}{version}", line(&place_words(&source.source.place)));
    if source.is_log() {
        let _ = write!(
            out,
            ", {} lines ({} decode, {} prefill, {} stats)",
            source.lines, source.decode_lines, source.prefill_lines, source.stats_lines
        );
        if source.time_unknown() {
            out.push_str(", time unknown (give --serving-tz)");
        } else if let Some(offset) = source.offset {
            let _ = write!(out, ", its stamps are UTC{}", hours(-offset));
        }
    } else {
        let _ = write!(out, ", {} answers", source.answers);
    }
    if let Some(trouble) = &source.trouble {
        let _ = write!(out, "; {}", line(trouble));
    }
    out
}

fn figures_line(row: &Replica) -> String {
    let f = |field: Field| row.reading(field).map(|r| r.value);
    let most = row.limits.max_running.map_or(String::new(), |m| format!(" of {m}"));
    let mut out = format!(
        "{} running{most}, {} waiting, kv {}, {} tokens/s, prefill {}",
        number(f(Field::Running), 0),
        number(f(Field::Queued), 0),
        number(f(Field::Kv), 2),
        number(f(Field::Generation), 0),
        number(f(Field::Prefill), 0)
    );
    for (name, field) in
        [("swa", Field::Swa), ("mamba", Field::Mamba), ("cache", Field::CacheHit), ("accepted", Field::AcceptLen)]
    {
        if let Some(value) = f(field) {
            let _ = write!(out, ", {name} {value:.2}");
        }
    }
    let _ = write!(out, "; {} old", row.newest_age().map_or(UNKNOWN.to_string(), time::words));
    out
}

/// The report for people.
pub fn plain(serving: &Serving) -> String {
    let mut out = String::new();
    for source in serving.sources() {
        field(&mut out, "source", &source_line(source));
    }
    for server in serving.servers().iter().filter(|s| s.is_router()) {
        let workers = server.readiness.map_or(UNKNOWN.to_string(), |(healthy, all)| format!("{healthy}/{all}"));
        field(&mut out, "router", &format!("{}: {workers} workers healthy", line(&server.name)));
    }
    for row in serving.replicas() {
        let name = line(&replica_name(&row.key));
        field(&mut out, "replica", &format!("{name}: {} ({})", row.state.name(), line(&row.evidence)));
        if row.newest_age().is_some() {
            field(&mut out, "", &figures_line(row));
        }
    }
    let (over, open): (Vec<&Diagnosis>, Vec<&Diagnosis>) = serving.diagnoses().partition(|d| d.over);
    for d in &open {
        field(&mut out, severity_word(d.severity), &format!("{} {}: {}", d.kind.name(), about(d), line(&d.text)));
        field(&mut out, "", &format!("since {}; {}", when(d.since), line(&d.advice)));
    }
    let hidden = over.len().saturating_sub(SHOWN);
    if hidden > 0 {
        field(&mut out, "over", &format!("{hidden} earlier ones"));
    }
    for d in over.iter().skip(hidden) {
        let span = format!("{} to {}", when(d.since), when(d.until));
        field(&mut out, "over", &format!("{} {}: {span}: {}", d.kind.name(), about(d), line(&d.text)));
    }
    if open.is_empty() {
        let calm = Calm::of(serving.replicas().map(|row| row.state));
        let more = if calm == Calm::TooSoon { "; --watch goes on looking" } else { "" };
        field(&mut out, "diagnoses", &format!("{}{more}", calm.words()));
    }
    out
}

fn about(d: &Diagnosis) -> String {
    line(&d.replica.as_ref().map_or_else(|| d.server.to_string(), replica_name))
}

fn when(at: Option<Stamp>) -> String {
    at.map_or_else(|| UNKNOWN.to_string(), |at| format!("{at:.0}"))
}

/// `+8`, `-3:30`, nothing for UTC itself.
fn hours(offset: i64) -> String {
    let (sign, rest) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
    match (rest / 3600, rest % 3600 / 60) {
        (0, 0) => String::new(),
        (hours, 0) => format!("{sign}{hours}"),
        (hours, minutes) => format!("{sign}{hours}:{minutes:02}"),
    }
}
