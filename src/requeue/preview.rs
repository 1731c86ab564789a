//! What `harbor job resume` would do to a job: what it deletes, keeps and runs again, and what makes it
//! refuse. Harbor has no such look ahead, and what it deletes first stays deleted when it then refuses.
//!
//! The order of Harbor's own steps is kept: filter, config, tasks, directories, match, lock.

mod canon;
mod planned;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::config::{Difference, build};
use super::quoted;
use super::source::base_of;
use crate::harbor::Dir;
use crate::harbor::dir::EntryKind;
use crate::harbor::run_config::HarborVersion;
use crate::harbor::write::lease::LEASE;
use crate::job::outcome::CANCELLED;
use crate::job::text::{clean, mask_secrets};

/// Largest document that is read, in bytes.
const LARGEST: u64 = 256 << 20;

/// A directory that the resume deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: Why,
    /// It is no trial's: nothing in it shows that Harbor made it.
    pub foreign: bool,
    /// Its reward, where it has one that would be lost.
    pub reward: Option<String>,
}

/// Why a directory is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its exception type is in the filter.
    Filter(String),
    /// It has no `result.json`.
    NoResult,
}

impl Why {
    /// In words.
    pub fn words(&self) -> String {
        match self {
            Why::Filter(kind) => format!("{kind}, which the filter names"),
            Why::NoResult => "no result.json".to_string(),
        }
    }
}

/// A trial that stays and counts as done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Directory name.
    pub name: String,
    /// A result with neither reward nor exception: it was cut short, and is never run again.
    pub phantom: bool,
    /// Its exception type.
    pub exception: Option<String>,
    /// No planned trial has its config.
    pub unmatched: bool,
}

/// How the resume ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It runs what is missing.
    Runs,
    /// It refuses, after what it deletes by then. The exception's type, and why.
    Refuses(String, String),
    /// It leaves the job as it is and begins another one here.
    Elsewhere(PathBuf),
}

/// What one version of Harbor would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The version.
    pub version: HarborVersion,
    /// It is the version that the job was run by, as far as that is known.
    pub same_version: Option<bool>,
    /// What is deleted, whatever comes then.
    pub deletes: Vec<Deleted>,
    /// What stays and counts.
    pub keeps: Vec<Kept>,
    /// What stays and does not count: its slot is run again beside it. Name and why.
    pub stale: Vec<(String, String)>,
    /// Tasks that are run again, one entry for each trial.
    pub reruns: Vec<String>,
    /// Planned trials.
    pub planned: usize,
    /// What breaks the equality of configs: was is what the trials or the lock say, now is the plan.
    pub fields: Vec<Difference>,
    /// How it ends.
    pub ending: Ending,
    /// What else to know.
    pub notes: Vec<String>,
}

/// Everything that is told of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Previews {
    /// The job dir, absolute.
    pub job_dir: PathBuf,
    /// Version that ran the job.
    pub ran: Option<String>,
    /// The directory that the resume is thought to be started in.
    pub cwd: PathBuf,
    /// The directory in which relative paths of the config hold; None where that can not be told.
    pub needs_cwd: Option<PathBuf>,
    /// Exception types that it would delete.
    pub filter: BTreeSet<String>,
    /// For 0.21 and for 0.26.
    pub of: Vec<Preview>,
    /// Jobs of pilothouse are gone on with by itself.
    pub own: bool,
    /// How many trials it has that may be requeued.
    pub hazards: Vec<String>,
}

/// Why nothing can be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreviewError {
    /// The directory can not be read.
    #[error("{0}: {1}")]
    Unreadable(String, String),
    /// Harbor's resume needs the config, and it is not there.
    #[error(
        "{0}: not resumable: config.json missing or not readable (Harbor stops before it changes anything); requeue works without it"
    )]
    NoConfig(String),
}

/// A directory of the job, read.
struct Found {
    name: String,
    state: State,
    config: Option<Value>,
    mark: bool,
}

enum State {
    NoResult,
    Stale(&'static str),
    Whole(Box<Value>),
}

/// Looks ahead, for a resume that is started in `cwd` with these filters; None is Harbor's default. Nothing
/// is changed.
///
/// # Errors
/// See [`PreviewError`].
pub fn preview(job_dir: &Path, cwd: &Path, filter: Option<&[String]>) -> Result<Previews, PreviewError> {
    let shown = job_dir.display().to_string();
    let unreadable = |e: std::io::Error| PreviewError::Unreadable(shown.clone(), e.to_string());
    let real = job_dir.canonicalize().map_err(unreadable)?;
    let dir = Dir::open(&real).map_err(unreadable)?;
    let config = match dir.read_all("config.json", LARGEST) {
        Ok(bytes) => serde_json::from_slice::<Value>(&bytes.data).ok().filter(Value::is_object),
        Err(_) => return Err(PreviewError::NoConfig(shown)),
    };
    let lock = match dir.read_all("lock.json", LARGEST) {
        Ok(bytes) => Some(serde_json::from_slice::<Value>(&bytes.data).ok().filter(Value::is_object)),
        Err(_) => None,
    };
    let entries = dir.list().map_err(|e| PreviewError::Unreadable(shown.clone(), e.to_string()))?;
    let mut found: Vec<Found> = Vec::new();
    for entry in entries.iter().filter(|e| e.kind == EntryKind::Dir) {
        found.push(look(&dir, &entry.name.to_string_lossy()));
    }
    let filter: BTreeSet<String> = match filter {
        Some(kinds) => kinds.iter().cloned().collect(),
        None => BTreeSet::from([CANCELLED.to_string()]),
    };
    let ran = lock
        .as_ref()
        .and_then(|l| l.as_ref())
        .and_then(|l| l["harbor"]["version"].as_str())
        .map(|v| v.chars().take(40).collect::<String>());
    let needs_cwd = needed(config.as_ref(), &real);
    let scene = Scene {
        real: &real,
        cwd,
        config: config.as_ref(),
        lock: &lock,
        found: &found,
        filter: &filter,
        ran: ran.as_deref(),
        needs_cwd: needs_cwd.as_deref(),
    };
    let of = [HarborVersion::V0_21, HarborVersion::V0_26].map(|version| scene.play(version)).to_vec();
    let own = dir.stat(LEASE).is_ok();
    let hazards = hazards(config.as_ref(), &found);
    Ok(Previews { job_dir: real.clone(), ran, cwd: cwd.to_path_buf(), needs_cwd, filter, of, own, hazards })
}

fn look(dir: &Dir, name: &str) -> Found {
    let read = |file: &str| dir.read_all(&format!("{name}/{file}"), LARGEST);
    let state = match dir.stat(&format!("{name}/result.json")) {
        Err(_) => State::NoResult,
        Ok(_) => match read("result.json") {
            Ok(bytes) if bytes.data.iter().all(u8::is_ascii_whitespace) => State::Stale("its result.json is empty"),
            Ok(bytes) => match serde_json::from_slice::<Value>(&bytes.data) {
                Ok(result) if is_result(&result) => State::Whole(Box::new(result)),
                Ok(_) => State::Stale("its result.json is no trial's result"),
                Err(_) => State::Stale("its result.json can not be parsed"),
            },
            Err(_) => State::Stale("its result.json can not be read"),
        },
    };
    let config = read("config.json").ok().and_then(|bytes| serde_json::from_slice(&bytes.data).ok());
    let marks = ["lock.json", "config.json", "trial.log", "result.json"];
    let mark = marks.iter().any(|file| dir.stat(&format!("{name}/{file}")).is_ok());
    Found { name: name.to_string(), state, config: config.filter(Value::is_object), mark }
}

/// Whether Harbor takes it for a trial's result: what its type asks for is there.
fn is_result(result: &Value) -> bool {
    let texts = ["task_name", "trial_name", "trial_uri", "task_checksum"];
    let objects = ["task_id", "config", "agent_info"];
    texts.iter().all(|key| result[*key].is_string()) && objects.iter().all(|key| result[*key].is_object())
}

fn exception(result: &Value) -> Option<String> {
    result["exception_info"]["exception_type"].as_str().map(str::to_string)
}

fn rewards(result: &Value) -> Option<String> {
    let rewards = result["verifier_result"]["rewards"].as_object().filter(|r| !r.is_empty())?;
    Some(rewards.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", "))
}

/// Where the job has to be resumed: from there its relative paths lead to it and to its tasks.
fn needed(config: Option<&Value>, real: &Path) -> Option<PathBuf> {
    base_of(config, real)
}

/// Values that were masked when they were written: a resumed trial gets the mask itself.
fn hazards(config: Option<&Value>, found: &[Found]) -> Vec<String> {
    let Some(config) = config else { return Vec::new() };
    let mut out = Vec::new();
    let agents = config["agents"].as_array().map_or(&[][..], Vec::as_slice);
    for (i, agent) in agents.iter().enumerate() {
        for (name, value) in agent["env"].as_object().into_iter().flatten() {
            if value.as_str().is_some_and(|text| text.contains("****")) {
                out.push(format!(
                    "agents[{i}].env.{name} is masked on disk: resumed trials get the mask instead of the key"
                ));
            }
        }
        let trial = json!({"agent": agent});
        let missing = build(None, &trial, Vec::new(), &super::config::Change::default()).variables;
        let unset = missing.into_iter().filter(|name| std::env::var_os(name).is_none_or(|v| v.is_empty()));
        out.extend(unset.map(|name| format!("{name} is not set here: the agent will want it")));
    }
    let phantoms = found.iter().filter(|f| matches!(&f.state, State::Whole(r) if is_phantom(r))).count();
    if phantoms > 0 {
        out.push(format!("{phantoms} results have neither reward nor exception: a resume takes them for done"));
    }
    out.dedup();
    out
}

fn is_phantom(result: &Value) -> bool {
    let unverified = result["config"]["verifier"]["disable"] == true || result["config"]["install_only"] == true;
    result["exception_info"].is_null() && result["verifier_result"].is_null() && !unverified
}

/// What a resume meets.
struct Scene<'a> {
    real: &'a Path,
    cwd: &'a Path,
    config: Option<&'a Value>,
    /// None: not there; Some(None): not readable.
    lock: &'a Option<Option<Value>>,
    found: &'a [Found],
    filter: &'a BTreeSet<String>,
    ran: Option<&'a str>,
    needs_cwd: Option<&'a Path>,
}

impl Scene<'_> {
    fn play(&self, version: HarborVersion) -> Preview {
        let number = words(version);
        let mut out = Preview {
            version,
            same_version: self.ran.map(|ran| ran.starts_with(number)),
            deletes: Vec::new(),
            keeps: Vec::new(),
            stale: Vec::new(),
            reruns: Vec::new(),
            planned: 0,
            fields: Vec::new(),
            ending: Ending::Runs,
            notes: Vec::new(),
        };
        // Before anything is looked at, what the filter names goes.
        let mut left: Vec<&Found> = Vec::new();
        for found in self.found {
            match &found.state {
                State::Whole(result) if exception(result).is_some_and(|kind| self.filter.contains(&kind)) => {
                    let kind = exception(result).unwrap_or_default();
                    out.deletes.push(Deleted {
                        name: found.name.clone(),
                        why: Why::Filter(kind),
                        foreign: false,
                        reward: rewards(result),
                    });
                }
                _ => left.push(found),
            }
        }
        let Some(config) = self.config else {
            return self.refuse(out, &left, "ValidationError", "config.json can not be parsed".to_string());
        };
        // 0.21 goes where the config says, from the directory that it is started in.
        if version == HarborVersion::V0_21
            && let Some(elsewhere) = self.elsewhere(config)
        {
            out.notes.extend(self.needs_cwd.map(|cwd| format!("start it in {}", cwd.display())));
            match planned::tasks(config, self.lock_value(), self.cwd) {
                Err(why) => return self.refuse(out, &left, "FileNotFoundError", why),
                Ok(tasks) => {
                    out.planned = planned::trials(config, &tasks).len();
                    out.reruns =
                        tasks.iter().flat_map(|t| std::iter::repeat_n(t.name(), self.copies(config))).collect();
                }
            }
            out.ending = Ending::Elsewhere(elsewhere);
            self.stand(&mut out, &left);
            return out;
        }
        let tasks = match planned::tasks(config, self.lock_value(), self.cwd) {
            Ok(tasks) => tasks,
            Err(why) => {
                out.notes.extend(self.needs_cwd.map(|cwd| format!("start it in {}", cwd.display())));
                return self.refuse(out, &left, "FileNotFoundError", why);
            }
        };
        let planned = planned::trials(config, &tasks);
        out.planned = planned.len();
        // From here on everything without a result is gone.
        for found in &left {
            if matches!(found.state, State::NoResult) {
                out.deletes.push(Deleted {
                    name: found.name.clone(),
                    why: Why::NoResult,
                    foreign: !found.mark,
                    reward: None,
                });
            }
        }
        let mut whole: Vec<&Found> = Vec::new();
        for found in &left {
            match &found.state {
                State::Whole(_) => whole.push(found),
                State::Stale(why) => out.stale.push((found.name.clone(), (*why).to_string())),
                State::NoResult => {}
            }
        }
        if let Some(bare) = whole.iter().find(|f| f.config.is_none()) {
            let why = format!("{}: no config.json that can be read", bare.name);
            self.stand(&mut out, &whole);
            out.ending = Ending::Refuses("FileNotFoundError".to_string(), why);
            return out;
        }
        let matched =
            planned::matching(&planned, &whole.iter().filter_map(|f| f.config.as_ref()).collect::<Vec<_>>(), version);
        for (found, slot) in whole.iter().zip(&matched) {
            out.keeps.push(Kept { unmatched: slot.is_none(), ..kept(found) });
        }
        let used: BTreeSet<usize> = matched.iter().flatten().copied().collect();
        out.reruns = (0..planned.len())
            .filter(|i| !used.contains(i))
            .filter_map(|i| planned.get(i))
            .map(|p| p.task.clone())
            .collect();
        let mut fields: BTreeMap<String, Difference> = BTreeMap::new();
        for (found, slot) in whole.iter().zip(&matched) {
            if let (None, Some(config)) = (slot, &found.config) {
                for difference in planned::why(&planned, config, version) {
                    fields.entry(difference.field.clone()).or_insert(difference);
                }
            }
        }
        out.fields = fields.into_values().collect();
        if matched.iter().any(Option::is_none) {
            let n = matched.iter().filter(|slot| slot.is_none()).count();
            let why = format!("{n} of {} finished trials fit no planned one", matched.len());
            out.ending = Ending::Refuses("ValueError".to_string(), why);
            out.notes.push("older versions of Harbor ran such trials again without a word".to_string());
            return out;
        }
        match self.lock {
            None => out.notes.push("no lock.json: what the tasks and agents were is not checked".to_string()),
            Some(None) => {
                out.ending = Ending::Refuses("FileExistsError".to_string(), "lock.json can not be parsed".to_string());
            }
            Some(Some(lock)) => {
                let unlike = planned::against_lock(config, &tasks, lock, self.cwd, version);
                if !unlike.is_empty() {
                    let why = format!("lock.json does not match what is planned now ({})", unlike.len());
                    out.fields.extend(unlike);
                    out.ending = Ending::Refuses("FileExistsError".to_string(), why);
                }
            }
        }
        out
    }

    fn lock_value(&self) -> Option<&Value> {
        self.lock.as_ref().and_then(Option::as_ref)
    }

    /// The number of trials of one task.
    fn copies(&self, config: &Value) -> usize {
        let attempts = config["n_attempts"].as_u64().unwrap_or(1) as usize;
        attempts * config["agents"].as_array().map_or(1, Vec::len).max(1)
    }

    /// The job dir that 0.21 would work on, where that is not this one.
    fn elsewhere(&self, config: &Value) -> Option<PathBuf> {
        let jobs = self.cwd.join(config["jobs_dir"].as_str().unwrap_or("jobs"));
        // A name that its config leaves out is made anew from the time.
        let Some(name) = config["job_name"].as_str() else { return Some(jobs.join("<the time>")) };
        let there = jobs.join(name);
        let same = there.canonicalize().is_ok_and(|there| there == self.real);
        (!same).then_some(there)
    }

    /// It refuses before it looks at the directories: what has no result stays, too.
    fn refuse(&self, mut out: Preview, left: &[&Found], kind: &str, why: String) -> Preview {
        self.stand(&mut out, left);
        out.ending = Ending::Refuses(kind.to_string(), why);
        out
    }

    /// These stay as they are.
    fn stand(&self, out: &mut Preview, left: &[&Found]) {
        for found in left {
            match &found.state {
                State::Whole(_) => out.keeps.push(kept(found)),
                State::Stale(why) if !out.stale.iter().any(|(name, _)| *name == found.name) => {
                    out.stale.push((found.name.clone(), (*why).to_string()));
                }
                _ => {}
            }
        }
    }
}

fn kept(found: &Found) -> Kept {
    let result = match &found.state {
        State::Whole(result) => Some(&**result),
        _ => None,
    };
    Kept {
        name: found.name.clone(),
        phantom: result.is_some_and(is_phantom),
        exception: result.and_then(exception),
        unmatched: false,
    }
}

/// `0.21`, `0.26`.
pub fn words(version: HarborVersion) -> &'static str {
    match version {
        HarborVersion::V0_21 => "0.21",
        HarborVersion::V0_26 => "0.26",
    }
}

impl Previews {
    /// The command that would do it, in the directory that it needs.
    pub fn resume_command(&self) -> String {
        let cwd = self.needs_cwd.as_deref().unwrap_or(&self.cwd);
        let within = self.job_dir.strip_prefix(cwd).unwrap_or(&self.job_dir);
        format!("cd {} && harbor job resume -p {}", quoted(&cwd.to_string_lossy()), quoted(&within.to_string_lossy()))
    }

    /// The safer way.
    pub fn requeue_command(&self) -> String {
        format!("pilothouse requeue {} --unscored", quoted(&self.job_dir.to_string_lossy()))
    }

    /// The preview for the version that ran the job, else for the newest.
    pub fn main(&self) -> Option<&Preview> {
        self.of.iter().find(|p| p.same_version == Some(true)).or(self.of.last())
    }

    /// As JSON; every text safe for a terminal.
    pub fn json(&self) -> Value {
        let text = |s: &str| clean(&mask_secrets(s)).into_owned();
        let path = |p: &Path| text(&p.to_string_lossy());
        let one = |p: &Preview| {
            let (ending, error, why) = match &p.ending {
                Ending::Runs => ("runs", None, None),
                Ending::Refuses(kind, why) => ("refuses", Some(text(kind)), Some(text(why))),
                Ending::Elsewhere(dir) => ("new_job", None, Some(path(dir))),
            };
            json!({
                "harbor": words(p.version), "ran_the_job": p.same_version, "ending": ending, "error": error, "why": why,
                "planned": p.planned, "reruns": p.reruns.iter().map(|t| text(t)).collect::<Vec<_>>(),
                "deletes": p.deletes.iter().map(|d| json!({
                    "name": text(&d.name), "why": d.why.words(), "foreign": d.foreign,
                    "reward": d.reward.as_deref().map(text)})).collect::<Vec<_>>(),
                "keeps": p.keeps.iter().map(|k| json!({
                    "name": text(&k.name), "phantom": k.phantom, "exception": k.exception.as_deref().map(text),
                    "fits_the_plan": !k.unmatched})).collect::<Vec<_>>(),
                "stale": p.stale.iter().map(|(name, why)| json!({"name": text(name), "why": why})).collect::<Vec<_>>(),
                "fields": p.fields.iter().map(|d| json!({
                    "field": text(&d.field), "was": text(&d.was), "now": text(&d.now)})).collect::<Vec<_>>(),
                "notes": p.notes.iter().map(|n| text(n)).collect::<Vec<_>>(),
            })
        };
        json!({
            "schema_version": 1, "job_dir": path(&self.job_dir), "harbor_version_of_job": self.ran.as_deref().map(text),
            "cwd": path(&self.cwd), "needs_cwd": self.needs_cwd.as_deref().map(path), "filter": self.filter,
            "own_job": self.own, "previews": self.of.iter().map(one).collect::<Vec<_>>(),
            "hazards": self.hazards.iter().map(|h| text(h)).collect::<Vec<_>>(),
            "resume": text(&self.resume_command()), "requeue": text(&self.requeue_command()),
        })
    }
}
