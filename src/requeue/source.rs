//! What a plan needs from disk: the configs of the job and its trials, the tasks, the journals, the
//! installed Harbor.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::config::{self, Difference};
use super::plan::{Ask, Harness, Material, Prepared, Trial, plans};
use super::select::{Known, Past, Pick, Refused, Terms, Wanted, Way, family, select};
use crate::harbor::Dir;
use crate::harbor::config::{task_dir_candidates, trial_config};
use crate::harbor::dir::EntryKind;
use crate::harbor::task::Task;
use crate::harbor::write::lease::LEASE;
use crate::job::{Fleet, Job, JobKey, Stamp};
use crate::journal::{JOURNAL, state_files};

/// Largest config that is read, in bytes.
const CONFIG: u64 = 16 << 20;
/// Largest journal that is read, in bytes: a line has a few hundred.
const LARGEST_JOURNAL: u64 = 64 << 20;
/// Largest result that is read for the config in it, in bytes.
const RESULT: u64 = 64 << 20;
/// Longest wait for a program to say its version.
const VERSION: Duration = Duration::from_secs(30);
/// Longest time that the contents of tasks are compared with what they were.
const COMPARING: Duration = Duration::from_secs(5);
/// Most attempts of one trial that are looked at.
const RETRIES: usize = 100;

/// Where this program finds what is no part of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// Where configs and logs of new jobs go.
    pub state_dir: PathBuf,
    /// The Harbor program as the operator named it; None looks for it.
    pub harbor: Option<PathBuf>,
    /// This program.
    pub own: PathBuf,
}

impl Surroundings {
    /// Of this process. `harbor` is what the operator named, before `PILOTHOUSE_HARBOR`.
    pub fn of(state_dir: &Path, harbor: Option<&Path>) -> Surroundings {
        let named = std::env::var_os("PILOTHOUSE_HARBOR").filter(|v| !v.is_empty()).map(PathBuf::from);
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("pilothouse"));
        let state_dir = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_path_buf());
        Surroundings { state_dir, harbor: harbor.map(Path::to_path_buf).or(named), own }
    }

    /// The directory that configs and logs go to.
    pub fn place(&self) -> PathBuf {
        self.state_dir.join("requeue")
    }
}

/// All of a wish: the plans and what is refused. Reads the jobs' files, the tasks, and asks the installed
/// Harbor for its version; writes and starts nothing.
pub fn prepare(
    fleet: &Fleet,
    job: JobKey,
    wanted: &Wanted,
    terms: &Terms,
    ask: &Ask,
    around: &Surroundings,
    now: Stamp,
) -> Prepared {
    let keys = family(fleet, job);
    let members: Vec<&Job> = keys.iter().filter_map(|key| fleet.job(*key)).collect();
    let known = known(&members, &around.state_dir);
    let selection = select(fleet, job, wanted, terms, &known, now);
    let mut out = Prepared { refused: selection.refused, notes: selection.notes, ..Prepared::default() };
    let ask = Ask { configs: around.place(), ..ask.clone() };
    // Trials of a requeue that failed again are run as that job ran them.
    let mut by_job: BTreeMap<JobKey, Vec<Pick>> = BTreeMap::new();
    for pick in selection.picks {
        by_job.entry(pick.job).or_default().push(pick);
    }
    for (key, picks) in by_job {
        let Some(job) = fleet.job(key) else { continue };
        if job.facts.layout.is_classic() {
            refuse_classic(job, picks, &mut out);
            continue;
        }
        let material = material(job, picks, around, &mut out.refused);
        if material.trials.is_empty() {
            continue;
        }
        let jobs_dir = material.source.parent().map(Path::to_path_buf).unwrap_or_default();
        let planned: Vec<String> = out.plans.iter().map(|p| p.name.clone()).collect();
        let past: Vec<&OsStr> = known.past.iter().filter_map(|p| p.into.file_name()).collect();
        let taken = |name: &str| {
            planned.iter().chain(&ask.reserved).any(|p| p == name)
                || past.contains(&OsStr::new(name))
                || std::fs::symlink_metadata(jobs_dir.join(name)).is_ok()
        };
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        out.plans.extend(plans(&material, &ask, &taken, &set));
    }
    out
}

/// Nothing can be added to a run of classic terminal-bench; the command that runs the tasks anew is told.
fn refuse_classic(job: &Job, picks: Vec<Pick>, out: &mut Prepared) {
    let tasks: BTreeSet<String> = picks.iter().map(|pick| pick.task.to_string()).collect();
    for pick in picks {
        out.refused.push(Refused {
            job: Some(job.key),
            trial: pick.trial,
            task: pick.task,
            why: "a run of terminal-bench takes no further trials: its task has to be run anew".to_string(),
            way: Way::No,
        });
    }
    let command = super::classic::again(&job.facts.dir, &tasks);
    out.notes.push(format!("{}: to run these tasks anew, in a run of their own: {command}", job.facts.name));
}

/// The directories that jobs of a fleet name in their journals, as what they were requeued into or came
/// from, that are there and not in the fleet.
pub fn relatives(fleet: &Fleet) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = Vec::new();
    for job in fleet.jobs() {
        for place in job.notebook.origins().chain(job.notebook.offspring()).map(|p| PathBuf::from(&**p)) {
            let known = || fleet.jobs().iter().any(|j| same(&j.facts.dir, &place));
            if place.is_absolute() && is_job(&place) && !out.contains(&place) && !known() {
                out.push(place);
            }
        }
    }
    out
}

/// Whether a directory looks like a job's: anybody can write a journal that names `/`.
fn is_job(place: &Path) -> bool {
    let Ok(dir) = Dir::open(place) else { return false };
    ["config.json", "lock.json", "result.json", "job.log"].iter().any(|file| dir.open_file(file).is_ok())
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// What marks a requeue whose program did not begin.
pub(super) const FAILED: &str = "requeue_failed";

/// A line of a journal, as far as it matters here.
#[derive(Debug, Clone, serde::Deserialize)]
struct Line {
    act: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    trial: Option<String>,
    #[serde(default)]
    place: Option<PathBuf>,
}

/// The lines of a job's journals that can be read: in its directory and in the state dir.
fn notes(job: &Job, state_dir: &Path) -> Vec<Line> {
    let read = |dir: &Path, file: &str| {
        let bytes = Dir::open(dir).ok().and_then(|dir| dir.read(file, LARGEST_JOURNAL).ok());
        bytes.map(|b| b.data).unwrap_or_default()
    };
    let mut data = read(&job.facts.dir, JOURNAL);
    for file in state_files(&job.facts) {
        data.push(b'\n');
        data.extend(read(&state_dir.join("journal"), &file));
    }
    data.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// What the journals and the retries of these jobs tell.
fn known(jobs: &[&Job], state_dir: &Path) -> Known {
    let mut out = Known::default();
    for job in jobs {
        for line in notes(job, state_dir) {
            if line.act == FAILED {
                out.past.retain(|past| Some(&past.into) != line.place.as_ref());
            }
            let (Some(trial), Some(into)) = (line.trial.filter(|_| line.act == "requeue"), line.place) else {
                continue;
            };
            let there = std::fs::symlink_metadata(&into).is_ok();
            out.past.push(Past { trial: trial.into(), into, there, at: line.time.parse().ok() });
        }
        let Ok(dir) = Dir::open(&job.facts.dir) else { continue };
        for trial in job.trials.values() {
            let Ok(aside) = dir.sub(&format!("{}/retries", trial.name)) else { continue };
            let dirs = aside.list().unwrap_or_default().into_iter().filter(|e| e.kind == EntryKind::Dir);
            let kinds = dirs.take(RETRIES).map(|entry| {
                let path = format!("{}/result.json", entry.name.to_string_lossy());
                let result = aside.read_condensed(&path, RESULT).ok();
                let result: Option<Value> = result.and_then(|bytes| serde_json::from_slice(&bytes.data).ok());
                let kind = result.as_ref().and_then(|r| r["exception_info"]["exception_type"].as_str().map(Arc::from));
                kind.unwrap_or_else(|| Arc::from("-"))
            });
            let kinds: Vec<Arc<str>> = kinds.collect();
            out.retries.insert((job.key, trial.name.clone()), kinds);
        }
    }
    out
}

fn json_of(dir: &Dir, path: &str) -> Option<Value> {
    let bytes = dir.read_all(path, CONFIG).ok()?;
    serde_json::from_slice(&bytes.data).ok().filter(Value::is_object)
}

/// A trial's config: its own file, else what its result holds, else what its lock and the job say.
fn config_of(dir: &Dir, trial: &str, job: Option<&Value>) -> Option<Value> {
    let of_result = || {
        let bytes = dir.read_condensed(&format!("{trial}/result.json"), RESULT).ok()?;
        let result: Value = serde_json::from_slice(&bytes.data).ok()?;
        result.get("config").filter(|c| c.is_object()).cloned()
    };
    let of_lock = || config::of_lock(&json_of(dir, &format!("{trial}/lock.json"))?, job?);
    json_of(dir, &format!("{trial}/config.json")).or_else(of_result).or_else(of_lock)
}

fn material(job: &Job, picks: Vec<Pick>, around: &Surroundings, refused: &mut Vec<Refused>) -> Material {
    let source = job.facts.dir.canonicalize().unwrap_or_else(|_| job.facts.dir.clone());
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let mut trials = Vec::new();
    let mut config = None;
    let mut own = false;
    match Dir::open(&source) {
        Ok(dir) => {
            config = json_of(&dir, "config.json");
            own = dir.stat(LEASE).is_ok();
            if config.is_none() {
                let line = "the job's config.json is not there or not readable: the trials' own configs are taken";
                warnings.push(line.to_string());
            }
            for pick in picks {
                match config_of(&dir, &pick.trial, config.as_ref()) {
                    Some(config) => trials.push(Trial { pick, config }),
                    None => refused.push(Refused {
                        job: Some(job.key),
                        trial: pick.trial.clone(),
                        task: pick.task.clone(),
                        why: "neither its config.json nor its result.json or lock.json says how it was run".to_string(),
                        way: Way::No,
                    }),
                }
            }
        }
        Err(e) => problems.push(format!("{}: {e}", source.display())),
    }
    let harness = match own {
        true => Harness::Own { program: around.own.clone() },
        false => {
            let ran = job.facts.harbor_version.as_ref().map(|v| v.to_string());
            let program = program(around.harbor.as_deref());
            let installed = program.as_deref().and_then(version_of);
            Harness::Harbor { program, installed, ran }
        }
    };
    let mut tasks = Vec::new();
    let cwd = places(job, &source, config.as_ref(), &trials, &mut tasks, &mut problems);
    Material {
        job: job.key,
        source,
        name: job.facts.name.clone(),
        id: job.facts.id.clone(),
        config,
        trials,
        harness,
        cwd,
        tasks,
        problems,
        warnings,
    }
}

/// Finds the tasks that lie on this machine and the directory from which their paths count; tells which
/// of them are not what they were.
fn places(
    job: &Job,
    source: &Path,
    config: Option<&Value>,
    trials: &[Trial],
    differs: &mut Vec<Difference>,
    problems: &mut Vec<String>,
) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut bases: Vec<PathBuf> = Vec::new();
    let mut met: HashSet<String> = HashSet::new();
    let began = Instant::now();
    let mut unseen = 0;
    let mut absent = Vec::new();
    for trial in trials {
        let task = trial.config.get("task");
        let text = |key: &str| task.and_then(|t| t.get(key)).and_then(Value::as_str);
        let (Some(path), None) = (text("path"), text("git_url")) else { continue };
        if !met.insert(path.to_string()) {
            continue;
        }
        let bytes = serde_json::to_vec(&trial.config).unwrap_or_default();
        let Ok(config) = trial_config(&bytes) else { continue };
        let candidates = task_dir_candidates(&config, source, Some(&here), None);
        let Some(found) = candidates.iter().find(|dir| dir.join("task.toml").is_file()) else {
            absent.push(path.to_string());
            continue;
        };
        if Path::new(path).is_relative() {
            let depth = Path::new(path).components().filter(|c| !matches!(c, std::path::Component::CurDir)).count();
            if let Some(base) = found.ancestors().nth(depth).filter(|base| base.join(path) == *found) {
                let base = base.to_path_buf();
                if !bases.contains(&base) {
                    bases.push(base);
                }
            }
        }
        let planned = job.facts.planned.iter().flatten().find(|p| p.task == trial.pick.task);
        if began.elapsed() > COMPARING {
            unseen += 1;
            continue;
        }
        if let Some(was) = planned.and_then(|p| p.digest.as_deref())
            && let Some(now) = Task::load_for(found, false).ok().and_then(|task| task.digests().ok()).map(|d| d.digest)
            && now != was
        {
            differs.push(Difference::new(&format!("task {}", trial.pick.task), was, &now));
        }
    }
    problems.extend(missing(&absent, met.len()));
    if unseen > 0 {
        let seen = met.len() - unseen;
        let words = format!("compared for {seen} of {} only: it takes too long", met.len());
        differs.push(Difference::new("tasks", "-", &words));
    }
    if let [first, second, ..] = bases.as_slice() {
        let (first, second) = (first.display(), second.display());
        problems.push(format!("relative paths of tasks count from {first} and from {second}: requeue them one by one"));
    }
    bases.into_iter().next().unwrap_or_else(|| base_of(config, source).unwrap_or(here))
}

/// Tasks whose directories are not there, in one line, however many.
fn missing(absent: &[String], of: usize) -> Option<String> {
    const NAMED: usize = 3;
    let looked = "looked for above the job dir and here";
    match absent {
        [] => None,
        [one] => Some(format!("task {one}: its directory is not there: {looked}")),
        many => {
            let named = many.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = many.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let n = many.len();
            Some(format!("the directories of {n} of {of} tasks are not there, {looked}: {named}{more}"))
        }
    }
}

/// Where a job was started, by its relative `jobs_dir`; None where that does not tell.
pub(super) fn base_of(config: Option<&Value>, source: &Path) -> Option<PathBuf> {
    let named = config.and_then(|c| c.get("jobs_dir")).and_then(Value::as_str).unwrap_or("jobs");
    let parts = Path::new(named).components().filter(|c| !matches!(c, std::path::Component::CurDir));
    let named: PathBuf = parts.collect();
    let parent = source.parent()?;
    if named.is_absolute() || !parent.ends_with(&named) {
        return None;
    }
    parent.ancestors().nth(named.components().count()).map(Path::to_path_buf)
}

/// The Harbor program: as named, else on the PATH; absolute.
pub fn program(named: Option<&Path>) -> Option<PathBuf> {
    let runs = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let named = named.unwrap_or(Path::new("harbor"));
    if named.components().count() > 1 {
        return std::path::absolute(named).ok().filter(|path| runs(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(named)).find(|path| runs(path))
}

/// What `harbor --version` says; None when it says nothing in time.
pub fn version_of(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + VERSION;
    while let Ok(None) = child.try_wait() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut bytes = [0; 4096];
    let n = child.stdout.take()?.read(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(bytes.get(..n)?).into_owned();
    let word = text.split_whitespace().rfind(|w| w.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(word.chars().take(40).collect())
}
