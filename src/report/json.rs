//! The JSON document of `tally --json` and `status --json`: a contract, `schema_version` 1.
//!
//! | key | what |
//! |---|---|
//! | `schema_version` | 1; grows when a key changes its meaning or goes, not when one is added |
//! | `merge` | `as` (`passes`, `samples`, null for one job or jobs side by side), `rule` (`earlier`, `latest`, `best`), `why` in words |
//! | `jobs[]` | in the order in which they were attached: `dir`, `job_name`, `job_id`, `layout` (harbor, terminal-bench, terminal-bench-hard), `harness` and `harness_version` (of others than Harbor), `harbor_version`, `state`, `state_evidence`, `planned` |
//! | `trials[]` | every trial directory and every planned slot without one, in order of job, slot (those without last), chosen first, start, name; see below |
//! | `totals` | over chosen trials: `planned`, `finished` (results that are not phantoms), `graded` (a primary reward that is a number), `passed`, `partial`, `failed`, `errored` (any exception, those of steps included), `no_reward` (finished, no primary reward), `cancelled`, `phantom`, `orphaned`, `unreadable`; and `duplicate`, the states left out because the same trial is counted elsewhere |
//! | `scores[]` | `name`, `numerator` (trials or a sum of rewards; null when no finite number), `denominator`, `value` (null for denominator 0), `ci95` ([low, high], Wilson; null where the numerator is no count), `rule` in words |
//! | `tokens` | over chosen trials with a result: `input` (cached ones included), `cache`, `output` (sums of what was reported, null when nothing was), `known` (trials that reported input or output), `of` (trials with a result); `live` (`input`, `cache`, `output` of the trials at work so far, not in the sums; left out where nothing is known) |
//! | `cost` | over chosen trials with a result: `usd` (null when none reported one), `known`, `of` |
//! | `wall` | `started_at` of the first chosen trial, `finished_at` of the last, `seconds` between them |
//! | `times` | over chosen trials with a result, for `trial` and its phases `environment_setup`, `agent_setup`, `agent`, `verifier`: `known` trials, `sum_s`, `median_s`, `max_s` in seconds, null when known of none |
//! | `warnings[]` | `kind`, `message`, `path`; the worst kind first |
//! | `regrades` | `mode` (`use`, `ignore`: whether they count in the score `corrected`; in `raw` never), `used` (slots whose trial counts by its regrade), `more_passed`, `fewer_passed`, `ignored` |
//! | `eta` | only `status`: `low_s`, `high_s` (seconds, null when not known), `basis`; null when nothing is left or nobody works |
//! | `attention[]` | only `status`: what needs a person: `kind`, `count`, `message`, `path` (of the first) |
//!
//! One of `trials[]`:
//!
//! | key | what |
//! |---|---|
//! | `job`, `job_dir` | name and directory of its job |
//! | `trial` | directory name; null for a planned slot without directory |
//! | `id` | result id, else null |
//! | `task` | `task_name` of the result, else the short name |
//! | `slot` | `task#k`, or `task@agent/model#k` where the job has several agents or models; null where the plan has no place for it. Planned slots whose task nothing tells (no lock file, no directory) are only in `totals.planned` |
//! | `phase` | `queued`, `starting`, `environment_setup`, `agent_setup`, `agent_running`, `verifying`, `tearing_down`, `done`, `retry_wait`, `orphaned`, `unreadable` |
//! | `reward` | the primary reward (key `reward`, else the only key) or null |
//! | `rewards` | key → number, null for one that is no number; null without verifier result |
//! | `exception_type` | of the trial, else of its first step with one; null without |
//! | `class`, `sub_class`, `rule` | what became of it, and the rule that says so; null where it is not classified |
//! | `verdict` | the operators' last word on it, else null |
//! | `n_episodes`, `n_input_tokens`, `n_cache_tokens`, `n_output_tokens`, `cost_usd` | as reported; of a multi-step trial the sum of its steps; null is unknown |
//! | `started_at`, `finished_at` | UTC, microseconds; the start of an unfinished trial is that of its directory |
//! | `regrades` | its verifier run again, oldest first: `n`, `file`, `reward`, `exception_type`, `counts` (the last one with a valid reward), `processes_lost`, `task_changed`, `operator`, `why`, `started_at`, `finished_at`; left out where there are none. `reward` above stays the raw one |
//! | `chosen` | true when it counts |
//! | `superseded_by` | `job_dir/trial` of the one that counts instead, for duplicates, too |
//! | `work` | only `status`, of a trial at work whose job pilothouse runs on this host: what its agent says that it does, see [`super::work::WorkJson`]; left out else |
//!
//! No number in it is infinite or NaN. Characters that a terminal would act on are written as `\u`
//! escapes; the values stay the same.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::regrade::{RegradeJson, RegradesJson, regrades};
use super::work::WorkJson;
use super::{path_of, trial_of};
use crate::job::effort::Took;
use crate::job::eta::Eta;
use crate::job::tally::{Place, Row, Tally};
use crate::job::text::{json_for_terminal, mask_secrets};
use crate::job::warnings::Attention;
use crate::job::{Fleet, RewardValue, Rewards, Stamp, Tokens, Verdict, slots};

/// What only `status` adds.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusPart<'a> {
    /// When it will be done.
    pub eta: Option<&'a Eta>,
    /// What needs a person.
    pub attention: &'a [Attention],
    /// What trials at work say that they do, where a process here could be asked.
    pub works: Option<&'a Works>,
    /// When it is told.
    pub now: Stamp,
}

/// Layout of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Indented, with a line end.
    Pretty,
    /// One line, with a line end.
    Line,
}

/// The document as text, ready for a terminal or a file.
pub fn document(fleet: &Fleet, tally: &Tally, status: Option<&StatusPart<'_>>, style: Style) -> String {
    let document = Document {
        schema_version: 1,
        merge: merge(tally),
        jobs: jobs(fleet, tally),
        trials: tally.rows.iter().map(|row| trial(fleet, row, status.and_then(|s| s.works))).collect(),
        totals: totals(tally),
        common: common(tally),
        regrades: RegradesJson {
            mode: tally.regrades.word(),
            used: tally.corrected.regraded,
            more_passed: tally.corrected.regraded_up,
            fewer_passed: tally.corrected.regraded_down,
            ignored: tally.corrected.regrades_ignored,
        },
        status: status.map(|s| StatusJson {
            eta: s.eta.map(|e| EtaJson { low_s: finite(e.low_s), high_s: finite(e.high_s), basis: &e.basis }),
            attention: s.attention.iter().map(attention).collect(),
        }),
    };
    let text = match style {
        Style::Pretty => serde_json::to_string_pretty(&document),
        Style::Line => serde_json::to_string(&document),
    };
    // Nothing in the document can fail to serialise: no maps with keys other than text.
    let mut text =
        text.unwrap_or_else(|e| serde_json::json!({"schema_version": 1, "error": e.to_string()}).to_string());
    text.push('\n');
    match json_for_terminal(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(safe) => safe,
    }
}

fn finite(n: Option<f64>) -> Option<f64> {
    n.filter(|n| n.is_finite())
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    merge: MergeJson<'a>,
    jobs: Vec<JobJson<'a>>,
    trials: Vec<TrialJson<'a>>,
    totals: TotalsJson,
    #[serde(flatten)]
    common: Common<'a>,
    regrades: RegradesJson,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    status: Option<StatusJson<'a>>,
}

/// What the documents of `tally` and `report` have in common.
#[derive(Debug, Serialize)]
pub(super) struct Common<'a> {
    pub scores: Vec<ScoreJson<'a>>,
    pub tokens: TokensJson,
    pub cost: CostJson,
    pub wall: WallJson,
    pub times: BTreeMap<&'static str, TookJson>,
    pub warnings: Vec<WarningJson<'a>>,
}

pub(super) fn merge(tally: &Tally) -> MergeJson<'_> {
    MergeJson {
        how: tally.merge.how.map(|h| h.word()),
        rule: tally.merge.rule.word(),
        why: match tally.merge.caveat() {
            Some(caveat) => format!("{}; {caveat}", tally.merge.why).into(),
            None => Cow::Borrowed(&tally.merge.why),
        },
    }
}

pub(super) fn common(tally: &Tally) -> Common<'_> {
    let effort = &tally.effort;
    Common {
        scores: tally.scores.iter().map(score).collect(),
        tokens: TokensJson {
            input: tally.tokens.sum.input,
            cache: tally.tokens.sum.cache,
            output: tally.tokens.sum.output,
            known: tally.tokens.known,
            of: tally.tokens.of,
            live: (!tally.tokens.live.is_unknown()).then_some({
                let Tokens { input, cache, output } = tally.tokens.live;
                LiveTokensJson { input, cache, output }
            }),
        },
        cost: CostJson { usd: finite(effort.cost.usd), known: effort.cost.known, of: effort.cost.of },
        wall: WallJson { started_at: effort.started, finished_at: effort.finished, seconds: effort.wall_s() },
        times: effort.times().into_iter().map(|(name, took)| (name, TookJson::of(&took))).collect(),
        warnings: tally
            .warnings
            .iter()
            .map(|w| WarningJson { kind: w.kind.word(), message: mask_secrets(&w.message), path: &w.path })
            .collect(),
    }
}

#[derive(Debug, Serialize)]
pub(super) struct MergeJson<'a> {
    #[serde(rename = "as")]
    pub how: Option<&'static str>,
    pub rule: &'static str,
    pub why: Cow<'a, str>,
}

#[derive(Serialize)]
struct JobJson<'a> {
    dir: Cow<'a, str>,
    job_name: &'a str,
    job_id: Option<&'a str>,
    layout: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    harness: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    harness_version: Option<&'a str>,
    harbor_version: Option<&'a str>,
    state: &'static str,
    state_evidence: &'a str,
    planned: Option<u64>,
}

fn jobs<'a>(fleet: &'a Fleet, tally: &'a Tally) -> Vec<JobJson<'a>> {
    let job = |(job, line): (&'a crate::job::Job, &'a crate::job::tally::JobLine)| JobJson {
        dir: job.facts.dir.to_string_lossy(),
        job_name: &job.facts.name,
        job_id: job.facts.id.as_deref(),
        layout: job.facts.layout.word(),
        harness: job.facts.layout.is_classic().then(|| job.facts.harness.word()),
        harness_version: job.facts.harbor_version.as_deref().filter(|_| job.facts.layout.is_classic()),
        harbor_version: job.facts.harbor_version.as_deref().filter(|_| !job.facts.layout.is_classic()),
        state: line.state.kind.word(),
        state_evidence: &line.state.evidence,
        planned: line.planned.map(|(n, _)| n),
    };
    fleet.jobs().iter().zip(&tally.jobs).map(job).collect()
}

/// What trials at work say that they do, by the place of their job and their name.
pub type Works = BTreeMap<(usize, Arc<str>), WorkJson>;

#[derive(Serialize)]
struct TrialJson<'a> {
    job: &'a str,
    job_dir: Cow<'a, str>,
    trial: Option<&'a str>,
    id: Option<&'a str>,
    task: &'a str,
    #[serde(serialize_with = "display")]
    slot: &'a Option<slots::Slot>,
    phase: &'static str,
    reward: Option<f64>,
    rewards: RewardsJson<'a>,
    exception_type: Option<&'a str>,
    class: Option<&'a str>,
    sub_class: Option<&'a str>,
    rule: Option<&'a str>,
    verdict: Option<&'static str>,
    n_episodes: Option<u32>,
    n_input_tokens: Option<u64>,
    n_cache_tokens: Option<u64>,
    n_output_tokens: Option<u64>,
    cost_usd: Option<f64>,
    #[serde(serialize_with = "stamp")]
    started_at: Option<Stamp>,
    #[serde(serialize_with = "stamp")]
    finished_at: Option<Stamp>,
    chosen: bool,
    superseded_by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    regrades: Vec<RegradeJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<&'a WorkJson>,
}

fn trial<'a>(fleet: &'a Fleet, row: &'a Row, works: Option<&'a Works>) -> TrialJson<'a> {
    let job = fleet.jobs().get(row.job);
    let trial = trial_of(fleet, row);
    let result = trial.and_then(|t| t.result.as_ref());
    let class = job.zip(trial).and_then(|(job, trial)| job.class_of(trial));
    TrialJson {
        job: job.map_or("", |j| &j.facts.name),
        job_dir: job.map_or("".into(), |j| j.facts.dir.to_string_lossy()),
        trial: row.trial.as_deref(),
        id: result.and_then(|r| r.id.as_deref()),
        task: result.map(|r| &*r.task_name).filter(|name| !name.is_empty()).unwrap_or(&row.task),
        slot: &row.slot,
        phase: row.phase.word(),
        reward: finite(result.and_then(|r| r.rewards.primary())),
        rewards: RewardsJson(result.map(|r| &r.rewards)),
        exception_type: result.and_then(|r| r.exception_type()).map(|kind| &**kind),
        class: class.map(|c| c.class.word()),
        sub_class: class.and_then(|c| c.sub.as_deref()),
        rule: class.map(|c| &*c.rule),
        verdict: row.verdict.map(Verdict::word),
        n_episodes: result.and_then(|r| r.n_episodes),
        n_input_tokens: result.and_then(|r| r.tokens.input),
        n_cache_tokens: result.and_then(|r| r.tokens.cache),
        n_output_tokens: result.and_then(|r| r.tokens.output),
        cost_usd: finite(result.and_then(|r| r.cost_usd)),
        started_at: trial.and_then(slots::started),
        finished_at: result.and_then(|r| r.finished),
        chosen: row.place == Place::Chosen,
        superseded_by: row.superseded_by.as_ref().map(|(job, name)| path_of(fleet, *job, name)),
        regrades: trial.map(regrades).unwrap_or_default(),
        work: works.and_then(|works| works.get(&(row.job, row.trial.clone()?))),
    }
}

fn display<S: Serializer>(slot: &Option<slots::Slot>, serializer: S) -> Result<S::Ok, S::Error> {
    match slot {
        Some(slot) => serializer.collect_str(slot),
        None => serializer.serialize_none(),
    }
}

fn stamp<S: Serializer>(at: &Option<Stamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(&format_args!("{at:.6}")),
        None => serializer.serialize_none(),
    }
}

/// Rewards in the order of the file.
struct RewardsJson<'a>(Option<&'a Rewards>);

impl Serialize for RewardsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(Rewards::Keys(keys)) = self.0 else { return serializer.serialize_none() };
        serializer.collect_map(keys.iter().map(|(key, value)| {
            let number = match value {
                RewardValue::Number(n) => finite(Some(*n)),
                RewardValue::Unreadable(_) => None,
            };
            (&**key, number)
        }))
    }
}

#[derive(Serialize)]
struct TotalsJson {
    planned: u64,
    finished: u64,
    graded: u64,
    passed: u64,
    partial: u64,
    failed: u64,
    errored: u64,
    no_reward: u64,
    cancelled: u64,
    phantom: u64,
    orphaned: u64,
    unreadable: u64,
    duplicate: u64,
}

fn totals(tally: &Tally) -> TotalsJson {
    let t = &tally.totals;
    TotalsJson {
        planned: t.planned,
        finished: t.finished,
        graded: t.graded,
        passed: t.passed,
        partial: t.partial,
        failed: t.failed,
        errored: t.errored,
        no_reward: t.no_reward,
        cancelled: t.cancelled,
        phantom: t.phantom,
        orphaned: t.orphaned,
        unreadable: t.unreadable,
        duplicate: t.duplicate,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ScoreJson<'a> {
    pub name: &'a str,
    #[serde(serialize_with = "whole")]
    pub numerator: Option<f64>,
    pub denominator: u64,
    pub value: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    pub rule: &'a str,
}

fn score(score: &crate::job::scores::Score) -> ScoreJson<'_> {
    ScoreJson {
        name: &score.name,
        numerator: finite(score.numerator),
        denominator: score.denominator,
        value: finite(score.value),
        ci95: score.ci95.map(|(low, high)| [low, high]),
        rule: &score.rule,
    }
}

/// A count is written as a count: `6`, not `6.0`.
fn whole<S: Serializer>(n: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match n {
        Some(n) if n.fract() == 0.0 && n.abs() < 9e15 => serializer.serialize_i64(*n as i64),
        Some(n) => serializer.serialize_f64(*n),
        None => serializer.serialize_none(),
    }
}

#[derive(Debug, Serialize)]
pub(super) struct TokensJson {
    pub input: Option<u64>,
    pub cache: Option<u64>,
    pub output: Option<u64>,
    pub known: u64,
    pub of: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveTokensJson>,
}

#[derive(Debug, Serialize)]
pub(super) struct LiveTokensJson {
    pub input: Option<u64>,
    pub cache: Option<u64>,
    pub output: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct CostJson {
    pub usd: Option<f64>,
    pub known: u64,
    pub of: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct WallJson {
    #[serde(serialize_with = "stamp")]
    pub started_at: Option<Stamp>,
    #[serde(serialize_with = "stamp")]
    pub finished_at: Option<Stamp>,
    pub seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct TookJson {
    pub known: u64,
    pub sum_s: Option<f64>,
    pub median_s: Option<f64>,
    pub max_s: Option<f64>,
}

impl TookJson {
    fn of(took: &Took) -> TookJson {
        // Times are written to the microsecond, sums of them no finer.
        let micro = |s: f64| (s * 1e6).round() / 1e6;
        let sum = (took.known > 0).then(|| micro(took.sum_s));
        TookJson { known: took.known, sum_s: sum, median_s: took.median_s.map(micro), max_s: took.max_s.map(micro) }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct WarningJson<'a> {
    pub kind: &'static str,
    pub message: Cow<'a, str>,
    pub path: &'a str,
}

impl WarningJson<'_> {
    /// The last part of its path: reports are read elsewhere.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("-")
    }
}

#[derive(Serialize)]
struct StatusJson<'a> {
    eta: Option<EtaJson<'a>>,
    attention: Vec<AttentionJson<'a>>,
}

#[derive(Serialize)]
struct EtaJson<'a> {
    low_s: Option<f64>,
    high_s: Option<f64>,
    basis: &'a str,
}

#[derive(Serialize)]
struct AttentionJson<'a> {
    kind: &'static str,
    count: u64,
    message: Cow<'a, str>,
    path: &'a str,
}

fn attention(a: &Attention) -> AttentionJson<'_> {
    AttentionJson { kind: a.kind, count: a.count, message: mask_secrets(&a.message), path: &a.path }
}
