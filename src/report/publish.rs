//! The report of a run for publication: one document, from which [`json()`] and [`markdown()`] are made.
//!
//! `report --json`, `schema_version` 1:
//!
//! | key | what |
//! |---|---|
//! | `run` | `started`, `ended` (with zone), `started_at`, `ended_at` (UTC), `zone` (how the zone is known), `duration_s`, `planned`, `completed`, `reward_1`, `reward_0`, `partial`, `no_reward`, `errored`, `errors[]` (`type`, `count`, `with_reward`), `open` (planned without an end) and further states; `tokens`, `cost`, `times` as in `tally --json` |
//! | `merge` | `as`, `rule`, `why`, `caveat` |
//! | `scores[]` | as in `tally --json` |
//! | `verdicts[]` | every verdict that holds: `trial`, `task`, `counts`, `verdict`, `note`, `operator`, `time`, `reward`, `exception_type`, `class`, `rule`, `evidence[]` (`place`, `text`), `changes` (what it does to `corrected`) |
//! | `tasks[]` | one for each slot: `slot`, `trial`, `reward`, `exception_type`, `class`, `verdict`, `took_s`, `n_episodes`, tokens |
//! | `jobs[]` | `name`, `id`, `harness`, `version`, agents, models, datasets, commits, `tasks_digest`, `settings`, `limits`, `n_concurrent`, `deviations` |
//! | `drift[]`, `warnings[]` | what else a reader should know |

mod markdown;

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::json::{Common, MergeJson, common, merge};
use super::{line, trial_of};
use crate::job::tally::{Place, Row, Tally};
use crate::job::text::{json_for_terminal, mask_secrets};
use crate::job::{Fleet, Grade, Job, Stamp, Trial, Verdict, drift, slots, time};

pub use markdown::markdown;

/// What a report tells that is read from trials' own files, for each job of the fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Particulars {
    /// Agents with their versions.
    pub agents: Vec<String>,
    /// What our own trials note to differ from how Harbor runs them, and in how many trials.
    pub deviations: BTreeMap<String, u64>,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    schema_version: u32,
    /// Program and version.
    made_by: &'static str,
    run: Run,
    merge: MergeJson<'a>,
    #[serde(flatten)]
    common: Common<'a>,
    verdicts: Vec<VerdictRow>,
    tasks: Vec<TaskRow>,
    jobs: Vec<JobRow>,
    drift: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Run {
    started: Option<String>,
    ended: Option<String>,
    started_at: Option<String>,
    ended_at: Option<String>,
    zone: &'static str,
    duration_s: Option<f64>,
    planned: u64,
    completed: u64,
    reward_1: u64,
    reward_0: u64,
    partial: u64,
    other_reward: u64,
    no_reward: u64,
    errored: u64,
    errors: Vec<ErrorRow>,
    cancelled: u64,
    phantom: u64,
    orphaned: u64,
    unreadable: u64,
    running: u64,
    open: u64,
}

#[derive(Debug, Serialize)]
struct ErrorRow {
    #[serde(rename = "type")]
    kind: String,
    count: u64,
    with_reward: u64,
}

#[derive(Debug, Serialize)]
struct Evidence {
    place: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct VerdictRow {
    trial: String,
    task: String,
    slot: Option<String>,
    counts: bool,
    verdict: &'static str,
    title: &'static str,
    changes: &'static str,
    note: String,
    operator: String,
    time: String,
    reward: Option<f64>,
    exception_type: Option<String>,
    class: Option<String>,
    rule: Option<String>,
    why: Option<String>,
    evidence: Vec<Evidence>,
}

#[derive(Debug, Serialize)]
struct TaskRow {
    slot: Option<String>,
    task: String,
    trial: Option<String>,
    outcome: String,
    reward: Option<f64>,
    exception_type: Option<String>,
    class: Option<String>,
    verdict: Option<&'static str>,
    took_s: Option<f64>,
    n_episodes: Option<u32>,
    n_input_tokens: Option<u64>,
    n_output_tokens: Option<u64>,
}

#[derive(Debug, Serialize)]
struct JobRow {
    name: String,
    id: Option<String>,
    harness: &'static str,
    version: Option<String>,
    state: &'static str,
    planned: Option<u64>,
    n_concurrent: Option<u32>,
    agents: Vec<String>,
    models: Vec<String>,
    datasets: Vec<String>,
    commits: Vec<String>,
    tasks_digest: Option<String>,
    tasks_with_digest: u64,
    tasks: u64,
    settings: BTreeMap<String, String>,
    limits: BTreeMap<&'static str, (f64, f64)>,
    deviations: BTreeMap<String, u64>,
}

/// Makes the report. `particulars` are in the order of [`Fleet::jobs`].
pub fn report<'a>(fleet: &'a Fleet, tally: &'a Tally, particulars: &[Particulars]) -> Report<'a> {
    let none = Particulars::default();
    let jobs = fleet.jobs().iter().zip(&tally.jobs).enumerate().filter(|(_, (_, of))| of.newest);
    let jobs = jobs.map(|(i, (job, _))| job_row(job, tally, i, particulars.get(i).unwrap_or(&none))).collect();
    let mut drift = Vec::new();
    if let Some((base, others)) = fleet.jobs().split_first() {
        for other in others.iter().filter(|other| other.facts.id.is_none() || other.facts.id != base.facts.id) {
            let (a, b) = (line(&base.facts.name), line(&other.facts.name));
            drift.extend(drift::between(base, other).iter().map(|d| match &*d.what {
                "tasks" => format!("{b}: {} than in {a}", line(&d.other)),
                what => format!("{}: {} in {a}, {} in {b}", line(what), line(&d.base), line(&d.other)),
            }));
        }
    }
    Report {
        schema_version: 1,
        made_by: concat!("pilothouse ", env!("CARGO_PKG_VERSION")),
        run: run(fleet, tally),
        merge: merge(tally),
        common: common(tally),
        verdicts: verdicts(fleet, tally),
        tasks: tally.rows.iter().filter(|r| r.place == Place::Chosen).map(|row| task(fleet, row)).collect(),
        jobs,
        drift,
    }
}

/// One document, with an end of line.
pub fn json(report: &Report<'_>) -> String {
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    format!("{}\n", json_for_terminal(&text))
}

fn run(fleet: &Fleet, tally: &Tally) -> Run {
    let newest = || fleet.jobs().iter().zip(&tally.jobs).filter(|(_, of)| of.newest).map(|(job, _)| job);
    let first = newest().min_by_key(|job| slots::known_first(start_of(job)));
    let last = newest().max_by_key(|job| end_of(job));
    let offset = |job: Option<&Job>| job.and_then(|j| j.facts.summary.as_ref()?.zone_offset);
    let started = first.and_then(start_of).or(tally.effort.started);
    let ended = last.and_then(end_of).or(tally.effort.finished).filter(|_| tally.totals.running == 0);
    let naive = newest().any(|job| job.facts.summary.as_ref().is_some_and(|s| s.naive && s.zone_offset.is_none()));
    let zone = match (offset(first), naive) {
        (Some(_), _) => "of the machine that ran it, by comparison of result.json with lock.json",
        (None, true) => "result.json has none and there is no lock.json to compare: taken as this machine's",
        (None, false) => "UTC, as written",
    };
    let t = &tally.totals;
    let mut errors: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for row in tally.rows.iter().filter(|r| r.place == Place::Chosen) {
        let Some(result) = trial_of(fleet, row).and_then(|t| t.result.as_ref()) else { continue };
        if let Some(kind) = result.exception_type() {
            let entry = errors.entry(line(kind)).or_default();
            entry.0 += 1;
            entry.1 += u64::from(result.rewards.primary().is_some());
        }
    }
    let mut errors: Vec<ErrorRow> =
        errors.into_iter().map(|(kind, (count, with_reward))| ErrorRow { kind, count, with_reward }).collect();
    errors.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.kind.cmp(&b.kind)));
    let zero = tally.rows.iter().filter(|r| r.place == Place::Chosen).filter(|row| {
        let result = trial_of(fleet, row).and_then(|t| t.result.as_ref());
        result.is_some_and(|r| r.rewards.primary() == Some(0.0))
    });
    let zero = zero.count() as u64;
    Run {
        started: started.map(|at| zoned(at, offset(first))),
        ended: ended.map(|at| zoned(at, offset(last))),
        started_at: started.map(|at| format!("{at:.0}")),
        ended_at: ended.map(|at| format!("{at:.0}")),
        zone,
        duration_s: started.zip(ended).and_then(|(a, b)| time::seconds_between(a, b)),
        planned: t.planned,
        completed: t.finished,
        reward_1: t.passed,
        reward_0: zero,
        partial: t.partial,
        other_reward: t.failed.saturating_sub(zero),
        no_reward: t.no_reward,
        errored: t.errored,
        errors,
        cancelled: t.cancelled,
        phantom: t.phantom,
        orphaned: t.orphaned,
        unreadable: t.unreadable,
        running: t.running,
        open: t.planned.saturating_sub(t.finished + t.phantom + t.orphaned + t.unreadable + t.running),
    }
}

fn start_of(job: &Job) -> Option<Stamp> {
    job.facts.summary.as_ref().and_then(|s| s.started).or(job.facts.created)
}

fn end_of(job: &Job) -> Option<Stamp> {
    let results = job.trials.values().filter_map(|t| t.result.as_ref()?.finished);
    job.facts.summary.as_ref().and_then(|s| s.finished).or_else(|| results.max())
}

/// `2026-08-14 23:44:31 +08:00`.
fn zoned(at: Stamp, offset: Option<i32>) -> String {
    let offset = offset.and_then(|s| jiff::tz::Offset::from_seconds(s).ok()).unwrap_or(jiff::tz::Offset::UTC);
    at.to_zoned(jiff::tz::TimeZone::fixed(offset)).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
}

fn class_of(job: &Job, trial: &Trial) -> Option<String> {
    job.class_of(trial).map(|c| match &c.sub {
        Some(sub) => format!("{}/{}", c.class.word(), line(sub)),
        None => c.class.word().to_string(),
    })
}

/// Every verdict that holds, those that change the score first.
fn verdicts(fleet: &Fleet, tally: &Tally) -> Vec<VerdictRow> {
    let mut out: Vec<(bool, VerdictRow)> = Vec::new();
    for row in tally.rows.iter().filter(|row| row.place != Place::Duplicate) {
        let (Some(job), Some(trial)) = (fleet.jobs().get(row.job), trial_of(fleet, row)) else { continue };
        // The word may stand in the journal of another copy of the job.
        let words = fleet.jobs().iter().filter_map(|j| j.notebook.last_word(trial));
        let Some(word) = words.max_by_key(|w| w.time) else { continue };
        let Some(verdict) = word.verdict else { continue };
        let result = trial.result.as_ref();
        let passed = result.is_some_and(|r| r.grade() == Grade::Passed);
        let counts = row.place == Place::Chosen;
        let changes = match verdict {
            _ if !counts => "nothing: another trial stands in its slot",
            Verdict::CountsAsPassed if passed => "nothing: it passed",
            Verdict::CountsAsPassed => "one more passed",
            Verdict::TaskInvalid if passed => "one less planned and one less passed",
            Verdict::TaskInvalid => "one less planned",
            Verdict::InfraConfirmed => "nothing, unless a later trial of its slot was scored",
            _ => "nothing",
        };
        let class = job.class_of(trial);
        let evidence = class.into_iter().flat_map(|c| c.evidence.iter().take(3));
        let text = |text: &str| line(text);
        let row = VerdictRow {
            trial: format!("{}/{}", text(&job.facts.name), text(&trial.name)),
            task: text(&trial.task),
            slot: row.slot.as_ref().map(|s| text(&s.to_string())),
            counts,
            verdict: verdict.word(),
            title: verdict.title(),
            changes,
            note: text(&word.note),
            operator: text(&word.operator),
            time: format!("{:.0}", word.time),
            reward: result.and_then(|r| r.rewards.primary()).filter(|r| r.is_finite()),
            exception_type: result.and_then(|r| r.exception_type()).map(|k| text(k)),
            class: class_of(job, trial).or_else(|| word.class.as_deref().map(text)),
            rule: class.map(|c| text(&c.rule)).or_else(|| word.rule.as_deref().map(text)),
            why: class.map(|c| text(&c.why)),
            evidence: evidence.map(|e| Evidence { place: text(&e.place()), text: text(&e.text) }).collect(),
        };
        out.push((row.changes.starts_with("nothing"), row));
    }
    out.sort_by(|(a, x), (b, y)| (a, &x.task, &x.trial).cmp(&(b, &y.task, &y.trial)));
    out.into_iter().map(|(_, row)| row).collect()
}

fn task(fleet: &Fleet, row: &Row) -> TaskRow {
    let trial = trial_of(fleet, row);
    let result = trial.and_then(|t| t.result.as_ref());
    let job = fleet.jobs().get(row.job);
    let took = trial.and_then(slots::started).zip(result.and_then(|r| r.finished));
    TaskRow {
        slot: row.slot.as_ref().map(|s| line(&s.to_string())),
        task: line(&row.task),
        trial: row.trial.as_deref().map(line),
        outcome: super::outcome(trial, row.phase).into_owned(),
        reward: result.and_then(|r| r.rewards.primary()).filter(|r| r.is_finite()),
        exception_type: result.and_then(|r| r.exception_type()).map(|k| line(k)),
        class: job.zip(trial).and_then(|(job, trial)| class_of(job, trial)),
        verdict: row.verdict.map(Verdict::word),
        took_s: took.and_then(|(a, b)| time::seconds_between(a, b)),
        n_episodes: result.and_then(|r| r.n_episodes),
        n_input_tokens: result.and_then(|r| r.tokens.input),
        n_output_tokens: result.and_then(|r| r.tokens.output),
    }
}

fn job_row(job: &Job, tally: &Tally, at: usize, particulars: &Particulars) -> JobRow {
    let facts = &job.facts;
    let lines = |list: &[std::sync::Arc<str>]| list.iter().map(|text| line(text)).collect::<Vec<_>>();
    let mut digests: Vec<(&str, &str)> =
        facts.planned.iter().flatten().filter_map(|p| Some((&*p.task, p.digest.as_deref()?))).collect();
    digests.sort_unstable();
    digests.dedup();
    let mut tasks: Vec<&str> = facts.planned.iter().flatten().map(|p| &*p.task).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let mut limits = BTreeMap::new();
    for trial in job.trials.values() {
        let l = &trial.limits;
        let named = [
            ("environment", l.environment),
            ("agent_setup", l.agent_setup),
            ("agent", l.agent),
            ("verifier", l.verifier),
        ];
        for (name, limit) in named {
            let Some(limit) = limit.filter(|l| l.is_finite()) else { continue };
            let range = limits.entry(name).or_insert((limit, limit));
            *range = (range.0.min(limit), range.1.max(limit));
        }
    }
    let datasets = if facts.settings.datasets.is_empty() { &facts.datasets } else { &facts.settings.datasets };
    JobRow {
        name: line(&facts.name),
        id: facts.id.as_deref().map(line),
        harness: facts.harness.word(),
        version: facts.harbor_version.as_deref().map(line),
        state: tally.jobs.get(at).map_or("-", |j| j.state.kind.word()),
        planned: facts.n_planned().map(|(n, _)| n),
        n_concurrent: facts.n_concurrent,
        agents: match particulars.agents.as_slice() {
            [] => lines(&facts.agents),
            known => known.iter().map(|text| line(text)).collect(),
        },
        models: lines(&facts.models),
        datasets: lines(datasets),
        commits: lines(&facts.commits),
        tasks_digest: (!digests.is_empty()).then(|| digest(&digests)),
        tasks_with_digest: digests.len() as u64,
        tasks: tasks.len() as u64,
        settings: facts.settings.values.iter().map(|(k, v)| (line(k), mask_secrets(&line(v)).into_owned())).collect(),
        limits,
        deviations: particulars.deviations.iter().map(|(text, n)| (line(text), *n)).collect(),
    }
}

/// SHA-256 over `task digest` lines in the order of tasks: one value that two runs over the same content
/// share.
fn digest(tasks: &[(&str, &str)]) -> String {
    let mut hash = Sha256::new();
    for (task, digest) in tasks {
        hash.update(format!("{task} {digest}\n"));
    }
    let bytes = hash.finalize();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}
