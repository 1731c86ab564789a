//! A job's own files: `config.json`, `lock.json`, `result.json`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::config::{DEFAULT_AGENT, agent_key, shared, short_name, task_key, what};
use super::json::{self, Entries, FileProblem, FromMap, List, Object, Scalar, object};
use super::settings::settings;
use crate::job::roster::Standing;
use crate::job::text::mask_secrets;
use crate::job::{JobFacts, JobSummary, Planned, Problem, ProblemKind, Stamp, time};

/// Planned trials that are kept of a lock; no real job comes near it.
const PLANNED: usize = 200_000;

object!(RawAgentEntry<'a> {
    name: Scalar<'a> = "name",
    import_path: Scalar<'a> = "import_path",
    model_name: Scalar<'a> = "model_name",
});

object!(RawDataset<'a> {
    path: Scalar<'a> = "path",
    name: Scalar<'a> = "name",
    repo: Scalar<'a> = "repo",
});

object!(RawSourceJob<'a> {
    job_id: Scalar<'a> = "job_id",
    path: Scalar<'a> = "path",
});

object!(RawConfig<'a> {
    job_name: Scalar<'a> = "job_name",
    jobs_dir: Scalar<'a> = "jobs_dir",
    n_concurrent_trials: Scalar<'a> = "n_concurrent_trials",
    orchestrator: Object<'a, RawOrchestrator<'a>> = "orchestrator",
    agents: List<Object<'a, RawAgentEntry<'a>>, 1000> = "agents",
    datasets: List<Object<'a, RawDataset<'a>>, 1000> = "datasets",
    source_jobs: List<Object<'a, RawSourceJob<'a>>, 1000> = "source_jobs",
});

object!(RawOrchestrator<'a> {
    n_concurrent_trials: Scalar<'a> = "n_concurrent_trials",
});

object!(RawLockTask<'a> {
    name: Scalar<'a> = "name",
    path: Scalar<'a> = "path",
    git_url: Scalar<'a> = "git_url",
    git_commit_id: Scalar<'a> = "git_commit_id",
    digest: Scalar<'a> = "digest",
    source: Scalar<'a> = "source",
});

object!(RawLockTrial<'a> {
    task: Object<'a, RawLockTask<'a>> = "task",
    agent: Object<'a, RawAgentEntry<'a>> = "agent",
});

object!(RawHarbor<'a> {
    version: Scalar<'a> = "version",
});

object!(RawLock<'a> {
    created_at: Scalar<'a> = "created_at",
    harbor: Object<'a, RawHarbor<'a>> = "harbor",
    n_concurrent_trials: Scalar<'a> = "n_concurrent_trials",
    trials: List<Object<'a, RawLockTrial<'a>>, PLANNED> = "trials",
});

type Numbers<'a> = Object<'a, Entries<'a, Scalar<'a>>>;

/// Trial names by reward, by reward key.
type Graded<'a> = Object<'a, Entries<'a, Object<'a, Entries<'a, List<Scalar<'a>, PLANNED>>>>>;

object!(RawEval<'a> {
    metrics: List<Numbers<'a>, 100> = "metrics",
    reward_stats: Graded<'a> = "reward_stats",
    exception_stats: Object<'a, Entries<'a, List<Scalar<'a>, PLANNED>>> = "exception_stats",
});

object!(RawStats<'a> {
    n_completed: Scalar<'a> = "n_completed_trials",
    n_errored: Scalar<'a> = "n_errored_trials",
    n_running: Scalar<'a> = "n_running_trials",
    n_pending: Scalar<'a> = "n_pending_trials",
    n_cancelled: Scalar<'a> = "n_cancelled_trials",
    n_retries: Scalar<'a> = "n_retries",
    n_trials: Scalar<'a> = "n_trials",
    n_errors: Scalar<'a> = "n_errors",
    updated_at: Scalar<'a> = "updated_at",
    evals: Object<'a, Entries<'a, Object<'a, RawEval<'a>>>> = "evals",
});

object!(RawResult<'a> {
    id: Scalar<'a> = "id",
    started_at: Scalar<'a> = "started_at",
    updated_at: Scalar<'a> = "updated_at",
    finished_at: Scalar<'a> = "finished_at",
    n_total_trials: Scalar<'a> = "n_total_trials",
    stats: Object<'a, RawStats<'a>> = "stats",
    status: Object<'a, RawStats<'a>> = "status",
});

/// Which of a job's files could be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parsed {
    /// `config.json`.
    pub config: bool,
    /// `lock.json`.
    pub lock: bool,
    /// `result.json`.
    pub result: bool,
}

/// What a job's files say; None is a file that is not there. Never fails: what is wrong stands in
/// `problems` with its path and line, and leaves the other files alone.
pub fn job_facts(dir: &Path, config: Option<&[u8]>, lock: Option<&[u8]>, result: Option<&[u8]>) -> JobFacts {
    job_facts_parsed(dir, config, lock, result).0
}

/// As [`job_facts`], with word of which files parsed, for [`merge_last_good`].
pub fn job_facts_parsed(
    dir: &Path,
    config: Option<&[u8]>,
    lock: Option<&[u8]>,
    result: Option<&[u8]>,
) -> (JobFacts, Parsed) {
    let dir_name = dir.file_name().map(|n| n.to_string_lossy()).unwrap_or(Cow::Borrowed("job"));
    let mut facts = JobFacts { dir: dir.to_path_buf(), name: Arc::from(&*dir_name), ..JobFacts::default() };
    let mut parsed = Parsed::default();
    if let Some(bytes) = result {
        parsed.result = part(&mut facts, "result.json", bytes, read_result);
    }
    if let Some(bytes) = lock {
        parsed.lock = part(&mut facts, "lock.json", bytes, read_lock);
    }
    match config {
        Some(bytes) => {
            parsed.config = part(&mut facts, "config.json", bytes, read_config);
            facts.settings = Arc::new(settings(bytes));
        }
        None if result.is_some() || lock.is_some() => {
            // Harbor writes it before the others.
            let message = "not there although the job began; name, agents and models are taken from other files";
            problem(&mut facts, ProblemKind::Missing, "config.json", 0, message);
        }
        None => {}
    }
    if let (Some(summary), Some(created)) = (&mut facts.summary, facts.created) {
        set_zone(summary, created);
    }
    if facts.created.is_none() {
        facts.created = facts.summary.as_ref().and_then(|s| s.started);
    }
    (facts, parsed)
}

/// Finds the zone in which a job's own times are written, and reads them in it: a start without zone
/// and the moment of its lock in UTC lie seconds apart, so that what is more is the zone, a whole number
/// of quarter hours.
fn set_zone(summary: &mut JobSummary, created: Stamp) {
    const QUARTER: i64 = 900;
    const APART: i64 = 120;
    let here = jiff::tz::TimeZone::system();
    let offset_here = |at: Stamp| i64::from(here.to_offset(at).seconds());
    // Only what had no zone was read in ours.
    let Some(started) = summary.started.filter(|_| summary.naive) else { return };
    let ahead = started.as_second() + offset_here(started) - created.as_second();
    let offset = (ahead + QUARTER / 2).div_euclid(QUARTER) * QUARTER;
    if (ahead - offset).abs() > APART || offset.abs() > 14 * 3600 {
        return;
    }
    summary.zone_offset = i32::try_from(offset).ok();
    for at in [&mut summary.started, &mut summary.finished].into_iter().flatten() {
        let shift = jiff::SignedDuration::from_secs(offset_here(*at) - offset);
        *at = at.checked_add(shift).unwrap_or(*at);
    }
}

/// `new` with what its unparsable or missing files would say taken from `old`: a file that is just
/// being rewritten must not blank the screen.
pub fn merge_last_good(old: &JobFacts, mut new: JobFacts, parsed: Parsed) -> JobFacts {
    let old_or = |list: &mut Vec<Arc<str>>, from: &[Arc<str>]| {
        if !from.is_empty() {
            *list = from.to_vec();
        }
    };
    if !parsed.config {
        if !old.name.is_empty() {
            new.name = old.name.clone();
        }
        new.jobs_dir = old.jobs_dir.clone();
        old_or(&mut new.agents, &old.agents);
        old_or(&mut new.models, &old.models);
        old_or(&mut new.datasets, &old.datasets);
        old_or(&mut new.lineage, &old.lineage);
        if new.settings.is_unknown() {
            new.settings = old.settings.clone();
        }
        new.n_concurrent = old.n_concurrent.or(new.n_concurrent);
    }
    if !parsed.lock {
        // Where a sparse config leaves these out, they came from the lock.
        for (list, from) in
            [(&mut new.agents, &old.agents), (&mut new.models, &old.models), (&mut new.datasets, &old.datasets)]
        {
            if list.is_empty() {
                list.clone_from(from);
            }
        }
        new.n_concurrent = new.n_concurrent.or(old.n_concurrent);
        new.harbor_version = old.harbor_version.clone().or(new.harbor_version);
        new.planned = old.planned.clone().or(new.planned);
        old_or(&mut new.commits, &old.commits);
        // The lock's time is exact, the summary's is local time.
        new.created = old.created.or(new.created);
        if let (Some(summary), Some(created), Some(_)) = (&mut new.summary, old.created, &old.planned) {
            set_zone(summary, created);
        }
    }
    if !parsed.result {
        new.id = old.id.clone().or(new.id);
        new.summary = old.summary.clone().or(new.summary);
        if new.created.is_none() {
            new.created = old.created;
        }
    }
    new
}

fn problem(facts: &mut JobFacts, kind: ProblemKind, file: &str, line: usize, message: &str) {
    let path = facts.dir.join(file);
    let path = if line > 0 { format!("{}:{line}", path.display()) } else { path.display().to_string() };
    facts.problems.push(Problem { kind, path: path.into(), message: message.into() });
}

/// A file's readings, before they enter the facts.
type Read = fn(&mut JobFacts, &[u8]) -> Result<Vec<String>, FileProblem>;

fn part(facts: &mut JobFacts, file: &str, bytes: &[u8], read: Read) -> bool {
    match read(facts, bytes) {
        Ok(notes) => {
            for note in notes {
                problem(facts, ProblemKind::Note, file, 0, &note);
            }
            true
        }
        Err(p) => {
            let kind = match p.kind {
                super::ProblemReason::Foreign => ProblemKind::Foreign,
                _ => ProblemKind::Unreadable,
            };
            problem(facts, kind, file, p.line, &p.message);
            false
        }
    }
}

/// Parses an object and makes owned values of it.
fn object_of<R>(
    bytes: &[u8],
    file: &str,
    parse: impl Fn(&[u8]) -> Result<Result<R, &'static str>, serde_json::Error>,
) -> Result<(R, Vec<String>), FileProblem> {
    let (value, notes) = json::lenient(bytes, parse)?;
    value.map(|v| (v, notes)).map_err(|w| FileProblem::foreign(format!("not a job's {file}: {w}")))
}

fn root<'a, T: FromMap<'a>, R>(
    body: &'a [u8],
    read: impl Fn(&T) -> R,
) -> Result<Result<R, &'static str>, serde_json::Error> {
    json::document::<Object<'a, T>>(body).map(|root| match &root {
        Object::Some(raw) => Ok(read(raw)),
        Object::Other(other) => Err(what(other)),
    })
}

/// Adds what is not there yet; a thousand are enough for anybody to read.
fn push_new(list: &mut Vec<Arc<str>>, value: Option<Arc<str>>) {
    if let Some(value) = value
        && list.len() < 1000
        && !list.contains(&value)
    {
        list.push(value);
    }
}

fn read_config(facts: &mut JobFacts, bytes: &[u8]) -> Result<Vec<String>, FileProblem> {
    #[derive(Default)]
    struct Config {
        name: Option<Arc<str>>,
        jobs_dir: Option<Arc<str>>,
        n_concurrent: Option<u32>,
        agents: Vec<Arc<str>>,
        models: Vec<Arc<str>>,
        datasets: Vec<Arc<str>>,
        lineage: Vec<Arc<str>>,
    }
    let (config, notes) = object_of(bytes, "config", |body| {
        root(body, |raw: &RawConfig<'_>| {
            let mut out = Config {
                name: shared(&raw.job_name),
                jobs_dir: shared(&raw.jobs_dir),
                n_concurrent: raw
                    .n_concurrent_trials
                    .u32()
                    .or_else(|| raw.orchestrator.get().and_then(|o| o.n_concurrent_trials.u32())),
                ..Config::default()
            };
            for agent in raw.agents.items.iter().filter_map(Object::get) {
                let key = agent_key(&agent.name, &agent.import_path).or_else(|| Some(DEFAULT_AGENT.into()));
                push_new(&mut out.agents, key);
                push_new(&mut out.models, shared(&agent.model_name));
            }
            for dataset in raw.datasets.items.iter().filter_map(Object::get) {
                let label = match dataset.path.text().and_then(short_name) {
                    Some(base) => Some(Arc::from(base)),
                    None => shared(&dataset.name).or_else(|| shared(&dataset.repo)),
                };
                push_new(&mut out.datasets, label);
            }
            for job in raw.source_jobs.items.iter().filter_map(Object::get) {
                push_new(&mut out.lineage, shared(&job.path).or_else(|| shared(&job.job_id)));
            }
            out
        })
    })?;
    if let Some(name) = config.name {
        facts.name = name;
    }
    facts.jobs_dir = config.jobs_dir;
    facts.n_concurrent = config.n_concurrent.or(facts.n_concurrent);
    for (list, from) in [
        (&mut facts.agents, config.agents),
        (&mut facts.models, config.models),
        (&mut facts.datasets, config.datasets),
        (&mut facts.lineage, config.lineage),
    ] {
        if !from.is_empty() {
            *list = from;
        }
    }
    Ok(notes)
}

fn read_lock(facts: &mut JobFacts, bytes: &[u8]) -> Result<Vec<String>, FileProblem> {
    #[derive(Default)]
    struct Lock {
        created: Option<Stamp>,
        version: Option<Arc<str>>,
        n_concurrent: Option<u32>,
        planned: Option<Vec<Planned>>,
        beyond: usize,
        agents: Vec<Arc<str>>,
        models: Vec<Arc<str>>,
        sources: Vec<Arc<str>>,
        commits: Vec<Arc<str>>,
        odd: Vec<String>,
    }
    let (lock, mut notes) = object_of(bytes, "lock", |body| {
        root(body, |raw: &RawLock<'_>| {
            let mut out = Lock {
                created: raw.created_at.str().and_then(time::parse).map(|t| t.at),
                version: raw.harbor.get().and_then(|h| shared(&h.version)),
                n_concurrent: raw.n_concurrent_trials.u32(),
                beyond: raw.trials.count.saturating_sub(raw.trials.items.len()),
                ..Lock::default()
            };
            if out.created.is_none() && !raw.created_at.is_none() {
                out.odd.push(format!("created_at: {} is not a time", raw.created_at.shown()));
            }
            if !raw.trials.present {
                return out;
            }
            // Ten thousand trials share a few hundred names.
            let mut names = Names::default();
            let no_agent = RawAgentEntry::default();
            let mut planned = Vec::with_capacity(raw.trials.items.len());
            let mut nameless = 0_usize;
            for trial in &raw.trials.items {
                let task = trial.get().and_then(|t| t.task.get());
                let name = task.and_then(|t| task_key(&t.path, &t.name, &t.git_url));
                let agent = trial.get().and_then(|t| t.agent.get());
                let named = agent.unwrap_or(&no_agent);
                let entry = Planned {
                    task: names.one(name).unwrap_or_else(|| {
                        nameless += 1;
                        Arc::from("-")
                    }),
                    agent: names.one(
                        agent_key(&named.name, &named.import_path)
                            .or_else(|| trial.get().map(|_| Arc::from(DEFAULT_AGENT))),
                    ),
                    model: names.one(shared(&named.model_name)),
                    digest: names.one(task.and_then(|t| shared(&t.digest))),
                    n: 1,
                };
                push_new(&mut out.agents, entry.agent.clone());
                push_new(&mut out.models, entry.model.clone());
                push_new(&mut out.sources, names.one(task.and_then(|t| shared(&t.source))));
                let commit = task.and_then(|t| Some((t.git_url.text()?, t.git_commit_id.text()?)));
                let commit = commit.map(|(url, id)| Arc::from(format!("{} {id}", mask_secrets(url))));
                push_new(&mut out.commits, names.one(commit));
                planned.push(entry);
            }
            if nameless > 0 {
                out.odd.push(format!("{nameless} of {} planned trials name no task", planned.len()));
            }
            out.planned = Some(planned);
            out
        })
    })?;
    facts.created = lock.created;
    facts.harbor_version = lock.version;
    facts.n_concurrent = lock.n_concurrent;
    facts.planned = lock.planned;
    facts.agents = lock.agents;
    facts.models = lock.models;
    facts.datasets = lock.sources;
    facts.commits = lock.commits;
    notes.extend(lock.odd);
    if lock.beyond > 0 {
        notes.push(format!("{} planned trials beyond the first {PLANNED} are not shown", lock.beyond));
    }
    Ok(notes)
}

/// Shares equal names.
#[derive(Default)]
struct Names(HashSet<Arc<str>>);

impl Names {
    fn one(&mut self, name: Option<Arc<str>>) -> Option<Arc<str>> {
        let name = name?;
        if let Some(known) = self.0.get(&name) {
            return Some(known.clone());
        }
        self.0.insert(name.clone());
        Some(name)
    }
}

fn read_result(facts: &mut JobFacts, bytes: &[u8]) -> Result<Vec<String>, FileProblem> {
    let (read, mut notes) = object_of(bytes, "result", |body| {
        root(body, |raw: &RawResult<'_>| {
            // Another program's result may lie there, or a trial's.
            if raw.n_total_trials.is_none() && raw.stats.get().is_none() && raw.status.get().is_none() {
                return None;
            }
            let mut odd = Vec::new();
            let (summary, id) = (summary(raw, &mut odd), shared(&raw.id));
            Some((id, summary, odd))
        })
    })?;
    let Some((id, summary, odd)) = read else {
        return Err(FileProblem::foreign("not a job's result: neither n_total_trials nor stats"));
    };
    facts.id = id;
    facts.summary = Some(summary);
    notes.extend(odd);
    Ok(notes)
}

fn summary(raw: &RawResult<'_>, odd: &mut Vec<String>) -> JobSummary {
    let none = RawStats::default();
    let stats = raw.stats.get().unwrap_or(&none);
    // An old generation kept the progress in an object of its own.
    let status = raw.status.get().unwrap_or(&none);
    let count = |new: fn(&RawStats<'_>) -> Option<u64>| new(stats).or_else(|| new(status));
    let mut moment = |field: &str, values: &[&Scalar<'_>]| -> Option<Stamp> {
        let given = values.iter().find(|v| !v.is_none())?;
        let read = given.str().and_then(time::parse).map(|t| t.at);
        if read.is_none() {
            odd.push(format!("{field}: {} is not a time", given.shown()));
        }
        read
    };
    let naive = raw.started_at.str().and_then(time::parse).is_some_and(|read| read.naive);
    JobSummary {
        naive,
        zone_offset: None,
        started: moment("started_at", &[&raw.started_at]),
        updated: moment("updated_at", &[&raw.updated_at, &status.updated_at, &stats.updated_at]),
        finished: moment("finished_at", &[&raw.finished_at]),
        n_total: raw.n_total_trials.u64(),
        n_completed: count(|s| s.n_completed.u64()).or_else(|| count(|s| s.n_trials.u64())),
        n_errored: count(|s| s.n_errored.u64()).or_else(|| count(|s| s.n_errors.u64())),
        n_running: count(|s| s.n_running.u64()),
        n_pending: count(|s| s.n_pending.u64()),
        n_cancelled: count(|s| s.n_cancelled.u64()),
        n_retries: count(|s| s.n_retries.u64()),
        means: means(stats),
        standing: standing(stats),
    }
}

/// Passed and graded by the lists of names. A job that was gone on with names some of them twice.
fn standing(stats: &RawStats<'_>) -> Option<Standing> {
    let mut graded: HashSet<&str> = HashSet::new();
    let mut passed: HashSet<&str> = HashSet::new();
    let mut listed = false;
    for (_, eval) in stats.evals.get().map(|e| e.0.as_slice()).unwrap_or_default() {
        let keys = eval.get().and_then(|e| e.reward_stats.get()).map(|k| k.0.as_slice());
        listed |= keys.is_some();
        let keys = keys.unwrap_or_default();
        let named = keys.iter().find(|(key, _)| key == "reward");
        let only = if let [only] = keys { Some(only) } else { None };
        let Some(values) = named.or(only).and_then(|(_, values)| values.get()) else { continue };
        for (value, names) in &values.0 {
            let Some(value) = value.parse::<f64>().ok().filter(|v| v.is_finite()) else { continue };
            for name in names.items.iter().filter_map(Scalar::str) {
                graded.insert(name);
                if value == 1.0 {
                    passed.insert(name);
                }
            }
        }
    }
    let evals = stats.evals.get().map(|e| e.0.as_slice()).unwrap_or_default().iter();
    let exceptions = evals.filter_map(|(_, eval)| eval.get()?.exception_stats.get()).flat_map(|kinds| &kinds.0);
    let mut ended = exceptions.flat_map(|(_, names)| &names.items).filter_map(Scalar::str);
    let at_least = ended.any(|name| !graded.contains(name));
    listed.then_some(Standing { passed: passed.len() as u64, graded: graded.len() as u64, at_least })
}

fn means(stats: &RawStats<'_>) -> BTreeMap<Arc<str>, f64> {
    let mut out = BTreeMap::new();
    for (key, eval) in stats.evals.get().map(|e| e.0.as_slice()).unwrap_or_default() {
        let metrics = eval.get().map(|e| e.metrics.items.as_slice()).unwrap_or_default();
        let all: Vec<(&str, f64)> = metrics
            .iter()
            .filter_map(Object::get)
            .flat_map(|m| m.0.iter())
            .filter_map(|(name, value)| value.f64().map(|n| (&**name, n)))
            .collect();
        let named = |wanted: &str| all.iter().find(|(name, _)| *name == wanted).map(|(_, n)| *n);
        let only = || if let [(_, n)] = all.as_slice() { Some(*n) } else { None };
        if let Some(mean) = named("reward").or_else(|| named("mean")).or_else(only) {
            out.insert(Arc::from(&**key), mean);
        }
    }
    out
}
