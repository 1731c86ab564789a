//! The report of `triage`: what is no clean pass, worst first, with class, rule, evidence and verdict.
//!
//! JSON, `schema_version` 1:
//!
//! | key | what |
//! |---|---|
//! | `jobs[]` | `dir`, `job_name`, `job_id`, `harbor_version` |
//! | `rules[]` | files of rules in the order in which they are asked; `shipped` is the program's own |
//! | `total` | `trials` (with a class, copies left out), `listed`, `looked_at` (of the listed, with a verdict) |
//! | `classes` | class → trials, over all `trials` |
//! | `trials[]` | worst first, see below |
//!
//! One of `trials[]`: `job`, `job_dir`, `trial`, `id` (result id, else null), `task`, `slot`, `chosen` (false
//! where another trial counts instead), `class`, `sub_class`, `rule`, `why`, `evidence[]` (`path` below the trial's
//! directory, `line` from 1 or null, `text`), `flags[]`, `suggested` and `verdict` (null without), `reward`,
//! `exception_type`, `harbor_policy` (what Harbor's own error policy does where it differs from what the
//! class means: `should_retry`, `should_grade`, `has_valid_reward`; else null), `action` (the next step in
//! words).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::regrade::{RegradeJson, regrades};
use super::{UNKNOWN, line};
use crate::job::policy::ErrorPolicy;
use crate::job::tally::{Place, Row, Tally};
use crate::job::text::json_for_terminal;
use crate::job::{Class, Classification, Fleet, Job, Trial, Verdict};

/// One trial of the report.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// Its job.
    pub job: &'a Job,
    /// The trial.
    pub trial: &'a Trial,
    /// Its place in the count.
    pub row: &'a Row,
    /// What became of it.
    pub class: &'a Classification,
    /// What an operator said.
    pub verdict: Option<Verdict>,
}

impl Item<'_> {
    /// Whether it counts.
    pub fn is_chosen(&self) -> bool {
        self.row.place == Place::Chosen
    }

    /// Whether its verifier, run again, gave a reward that counts.
    pub fn is_regraded(&self) -> bool {
        self.trial.regrade().is_some()
    }
}

/// All trials with a class, copies left out, worst first, of a class the newest first.
pub fn items<'a>(fleet: &'a Fleet, tally: &'a Tally) -> Vec<Item<'a>> {
    let item = |row: &'a Row| {
        let job = fleet.jobs().get(row.job)?;
        let trial = job.trials.get(row.trial.as_ref()?)?;
        let class = job.class_of(trial)?;
        Some(Item { job, trial, row, class, verdict: job.verdict_of(trial) })
    };
    let mut items: Vec<Item<'_>> = tally.rows.iter().filter(|r| r.place != Place::Duplicate).filter_map(item).collect();
    let end = |i: &Item<'_>| i.trial.result.as_ref().and_then(|r| r.finished);
    items.sort_by_cached_key(|i| {
        (i.class.turn(), std::cmp::Reverse(end(i)), i.job.facts.dir.clone(), i.trial.name.clone())
    });
    items
}

/// Those that are no clean pass, and of these classes where any are given.
pub fn listed<'a>(items: &[Item<'a>], classes: &[Class]) -> Vec<Item<'a>> {
    let wanted = |i: &&Item<'_>| !i.class.is_clean_pass() && (classes.is_empty() || classes.contains(&i.class.class));
    items.iter().filter(wanted).copied().collect()
}

/// The next step, in words.
fn action(item: &Item<'_>) -> &'static str {
    if item.verdict.is_some() {
        return "done: it has a verdict";
    }
    if item.is_regraded() {
        return "done: it counts by its regrade";
    }
    match item.class.class {
        Class::Config => "put it right, then run it again",
        Class::Infra => "run it again (requeue --infra)",
        Class::Phantom | Class::Orphaned => "run it again",
        Class::Cancelled => "run it again if it should count",
        Class::Unclassified => "look at its files, then give a verdict",
        Class::VerifierError | Class::VerifierTimeout => "look at the verifier's output, then give a verdict",
        Class::AgentError | Class::ContextExceeded | Class::AgentTimeout | Class::Failed | Class::Partial => {
            "nothing: it counts as it is"
        }
        Class::Passed => "look at it before it counts",
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    jobs: Vec<JobJson<'a>>,
    rules: &'a [String],
    total: TotalJson,
    classes: BTreeMap<&'static str, usize>,
    trials: Vec<TrialJson<'a>>,
}

#[derive(Serialize)]
struct JobJson<'a> {
    dir: Cow<'a, str>,
    job_name: &'a str,
    job_id: Option<&'a str>,
    harbor_version: Option<&'a str>,
}

#[derive(Serialize)]
struct TotalJson {
    trials: usize,
    listed: usize,
    looked_at: usize,
}

#[derive(Serialize)]
struct TrialJson<'a> {
    job: &'a str,
    job_dir: Cow<'a, str>,
    trial: &'a str,
    id: Option<&'a str>,
    task: &'a str,
    slot: Option<String>,
    chosen: bool,
    class: &'static str,
    sub_class: Option<&'a str>,
    rule: &'a str,
    why: &'a str,
    evidence: Vec<ExcerptJson<'a>>,
    flags: Vec<&'static str>,
    suggested: Option<&'static str>,
    verdict: Option<&'static str>,
    reward: Option<f64>,
    exception_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    regrades: Vec<RegradeJson<'a>>,
    harbor_policy: Option<ErrorPolicy>,
    action: &'static str,
}

#[derive(Serialize)]
struct ExcerptJson<'a> {
    path: &'a str,
    line: Option<u64>,
    text: &'a str,
}

/// The JSON document; `rules` are the files of rules by name.
pub fn json(fleet: &Fleet, items: &[Item<'_>], listed: &[Item<'_>], rules: &[String]) -> String {
    let mut classes = BTreeMap::new();
    for item in items {
        *classes.entry(item.class.class.word()).or_insert(0) += 1;
    }
    let job = |job| {
        let job: &Job = job;
        JobJson {
            dir: job.facts.dir.to_string_lossy(),
            job_name: &job.facts.name,
            job_id: job.facts.id.as_deref(),
            harbor_version: job.facts.harbor_version.as_deref().filter(|_| !job.facts.layout.is_classic()),
        }
    };
    let document = Document {
        schema_version: 1,
        jobs: fleet.jobs().iter().map(job).collect(),
        rules,
        total: TotalJson {
            trials: items.len(),
            listed: listed.len(),
            looked_at: listed.iter().filter(|i| i.verdict.is_some()).count(),
        },
        classes,
        trials: listed.iter().map(trial).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    match json_for_terminal(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(safe) => safe,
    }
}

fn trial<'a>(item: &Item<'a>) -> TrialJson<'a> {
    let result = item.trial.result.as_deref();
    let excerpt = |e: &'a crate::job::Excerpt| ExcerptJson { path: &e.path, line: e.line, text: &e.text };
    TrialJson {
        job: &item.job.facts.name,
        job_dir: item.job.facts.dir.to_string_lossy(),
        trial: &item.trial.name,
        id: result.and_then(|r| r.id.as_deref()),
        task: result.map_or(&*item.trial.task, |r| &*r.task_name),
        slot: item.row.slot.as_ref().map(ToString::to_string),
        chosen: item.is_chosen(),
        class: item.class.class.word(),
        sub_class: item.class.sub.as_deref(),
        rule: &item.class.rule,
        why: &item.class.why,
        evidence: item.class.evidence.iter().map(excerpt).collect(),
        flags: item.class.flags.iter().map(|f| f.word()).collect(),
        suggested: item.class.suggested.map(Verdict::word),
        verdict: item.verdict.map(Verdict::word),
        reward: result.and_then(|r| r.rewards.primary()).filter(|r| r.is_finite()),
        exception_type: result.and_then(|r| r.exception_type()).map(|k| &**k),
        regrades: regrades(item.trial),
        harbor_policy: item.class.harbor_differs,
        action: action(item),
    }
}

/// The report for people.
pub fn plain(items: &[Item<'_>], listed: &[Item<'_>]) -> String {
    let mut out = String::new();
    let looked = listed.iter().filter(|i| i.verdict.is_some()).count();
    let _ = writeln!(
        out,
        "{} of {} trials are no clean pass; {looked} of {} looked at",
        listed.len(),
        items.len(),
        listed.len()
    );
    let mut rest = listed;
    while let Some(first) = rest.first() {
        let same = |i: &&Item<'_>| i.class.turn() == first.class.turn() && i.class.class == first.class.class;
        let n = rest.iter().take_while(same).count();
        let (group, after) = rest.split_at(n);
        rest = after;
        let title = if first.class.is_suspicious_pass() { "suspicious pass" } else { first.class.class.word() };
        let _ = writeln!(out, "\n{} ({n})", title.replace('_', " "));
        for item in group {
            one(&mut out, item);
        }
    }
    out
}

fn one(out: &mut String, item: &Item<'_>) {
    let class = item.class;
    let sub = class.sub.as_deref().map_or(String::new(), |s| format!("  {}", line(s)));
    let place = if item.is_chosen() { "" } else { "  (another trial counts)" };
    let _ = writeln!(out, "  {}{sub}{place}", line(&item.trial.name));
    let _ = writeln!(out, "    why       {} [{}]", line(&class.why), line(&class.rule));
    for excerpt in class.evidence.iter().take(4) {
        let _ = writeln!(out, "    {:<9} {}", line(&excerpt.place()), line(&excerpt.text));
    }
    if !class.flags.is_empty() {
        let flags: Vec<&str> = class.flags.iter().map(|f| f.title()).collect();
        let _ = writeln!(out, "    odd       {}", flags.join("; "));
    }
    if let Some(policy) = class.harbor_differs {
        let yes = |b: bool| if b { "yes" } else { "no" };
        let _ = writeln!(
            out,
            "    harbor    would retry: {}, counts the reward: {}",
            yes(policy.should_retry),
            yes(policy.has_valid_reward)
        );
    }
    for regrade in item.trial.regrades_of_this() {
        let _ = writeln!(out, "    regraded  {} ({})", line(&regrade.words()), line(&regrade.operator));
    }
    let suggested = class.suggested.map_or(UNKNOWN, Verdict::word);
    let verdict = item.verdict.map_or(UNKNOWN, Verdict::word);
    let _ = writeln!(out, "    verdict   {verdict} (suggested {suggested}); {}", action(item));
}
