//! The audit: what a stop, or a death, left of a job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use super::leftovers::trials_of;
use super::leftovers::{self, Fate, Kind, Leftover, Scope, World};
use super::owner::{Found, Owner, Program};
use super::process;
use crate::environment::EnvError;
use crate::environment::docker::DockerEngine;
use crate::harbor::write::atomic::is_temp;
use crate::harbor::write::lease::{self, Reading};
use crate::harbor::write::reread::is_just_made;
use crate::harbor::{Dir, EntryKind, OpenError, job_facts, trial_result};
use crate::job::text::clean;
use crate::job::{JobFacts, Stamp, time};

/// Bytes of a job's file that are read.
const CAP: u64 = 64 << 20;

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A result without reward or exception: it counts as done, and nothing was done.
    Phantom,
    /// A trial's directory without result.
    NoResult,
    /// A trial's result that can not be read: Harbor passes over it and runs its slot again beside it.
    UnreadableResult,
    /// A container.
    Container,
    /// A network.
    Network,
    /// A volume.
    Volume,
    /// An image built for one trial.
    Image,
    /// A container or snapshot that is held for a regrade, with what it needs: nothing that a stop left.
    Held,
    /// A temporary directory or file.
    Temp,
    /// A lock or lease that nobody holds any more, or that nobody can read.
    Lock,
    /// A directory that is no trial's: `harbor job resume` deletes it.
    ForeignDir,
    /// A result with a reward that `harbor job resume` deletes: the trial was cancelled while it was
    /// being cleaned up.
    GradedButCancelled,
}

impl FindingKind {
    /// All of them, in the order in which they are mended.
    pub const ALL: [FindingKind; 12] = [
        FindingKind::Container,
        FindingKind::Network,
        FindingKind::Volume,
        FindingKind::Image,
        FindingKind::Held,
        FindingKind::Temp,
        FindingKind::Phantom,
        FindingKind::NoResult,
        FindingKind::UnreadableResult,
        FindingKind::GradedButCancelled,
        FindingKind::Lock,
        FindingKind::ForeignDir,
    ];

    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            FindingKind::Phantom => "phantom",
            FindingKind::NoResult => "no_result",
            FindingKind::UnreadableResult => "unreadable_result",
            FindingKind::Container => "container",
            FindingKind::Network => "network",
            FindingKind::Volume => "volume",
            FindingKind::Image => "image",
            FindingKind::Held => "held",
            FindingKind::Temp => "temp",
            FindingKind::Lock => "lock",
            FindingKind::ForeignDir => "foreign_dir",
            FindingKind::GradedButCancelled => "graded_but_cancelled",
        }
    }

    /// Words for `n` of them.
    pub fn words(self, n: usize) -> String {
        let (one, many) = match self {
            FindingKind::Phantom => ("phantom", "phantoms"),
            FindingKind::NoResult => ("directory without result", "directories without result"),
            FindingKind::UnreadableResult => ("unreadable result", "unreadable results"),
            FindingKind::Container => ("container", "containers"),
            FindingKind::Network => ("network", "networks"),
            FindingKind::Volume => ("volume", "volumes"),
            FindingKind::Image => ("image", "images"),
            FindingKind::Held => ("thing held for a regrade", "things held for regrades"),
            FindingKind::Temp => ("temporary directory", "temporary directories"),
            FindingKind::Lock => ("stale lock", "stale locks"),
            FindingKind::ForeignDir => ("foreign directory", "foreign directories"),
            FindingKind::GradedButCancelled => ("graded but cancelled trial", "graded but cancelled trials"),
        };
        format!("{n} {}", if n == 1 { one } else { many })
    }
}

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mend {
    /// The directory of the job dir goes to the quarantine; it can be brought back.
    Quarantine {
        /// Its name in the job dir.
        name: String,
    },
    /// The thing is removed for good.
    Remove(Box<Leftover>),
    /// A temporary file of ours in the job dir is removed.
    RemoveTempFile {
        /// Its name in the job dir.
        name: String,
    },
    /// Nothing: the next resume puts it right, and until then it does no harm; how.
    ByItself(String),
    /// Nothing that pilothouse does: what to do, or why nothing is needed.
    Nothing(String),
}

impl Mend {
    /// True when there is something to do.
    pub fn does_something(&self) -> bool {
        !matches!(self, Mend::Nothing(_) | Mend::ByItself(_))
    }

    /// In words, beginning with a verb where it does something.
    pub fn words(&self) -> String {
        match self {
            Mend::Quarantine { name } => format!("move {name} to the quarantine (it can be brought back)"),
            Mend::Remove(thing) => format!("remove the {}", thing.kind.word()),
            Mend::RemoveTempFile { name } => format!("remove {name}"),
            Mend::Nothing(why) | Mend::ByItself(why) => why.clone(),
        }
    }
}

/// One thing that is wrong. Texts are safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub kind: FindingKind,
    /// What it is about: a trial, a container's name, a path.
    pub subject: String,
    /// The trial, where it is about one.
    pub trial: Option<String>,
    /// What it was read from.
    pub evidence: String,
    /// Seconds since it was made; None when unknown.
    pub age: Option<u64>,
    /// Bytes; None when unknown.
    pub bytes: Option<u64>,
    /// What mends it.
    pub mend: Mend,
}

/// What an audit came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The job dir.
    pub job_dir: PathBuf,
    /// The job's name.
    pub job: Arc<str>,
    /// The job's id, or its directory's name where it has none: names the quarantine.
    pub job_id: String,
    /// Version of Harbor by the lock.
    pub harbor_version: Option<Arc<str>>,
    /// True when it is a job of pilothouse's: it has a lease.
    pub ours: bool,
    /// Who works on it now: while somebody does, nothing is mended.
    pub owner: Found,
    /// Directories of trials.
    pub trials: usize,
    /// Of those, with a result that counts.
    pub results: usize,
    /// Planned trials, where known.
    pub planned: Option<u64>,
    /// Cancelled trials: `harbor job resume` deletes them and runs them again, as it should.
    pub cancelled: usize,
    /// What is wrong, by kind.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unseen: Vec<String>,
}

impl Audit {
    /// How many of a kind.
    pub fn count(&self, kind: FindingKind) -> usize {
        self.findings.iter().filter(|f| f.kind == kind).count()
    }

    /// `0 phantoms, 0 containers, 0 networks left`, with whatever else was found. What could not be looked
    /// at is `-`.
    pub fn summary(&self) -> String {
        use FindingKind::{Container, Network, NoResult, Phantom};
        let always = [Phantom, NoResult, Container, Network];
        let others = FindingKind::ALL.into_iter().filter(|k| !always.contains(k) && self.count(*k) > 0);
        let blind = self.unseen.iter().any(|u| u.starts_with("containers"));
        let part = |kind: FindingKind| {
            let words = kind.words(self.count(kind));
            match kind {
                // Nobody looked: a zero would be a lie.
                Container | Network if blind => words.replacen('0', "-", 1),
                _ => words,
            }
        };
        let parts: Vec<String> = always.into_iter().chain(others).map(part).collect();
        format!("{} left", parts.join(", "))
    }

    /// True when every planned trial has a result that counts and was not cancelled.
    pub fn complete(&self) -> bool {
        self.planned.is_some_and(|planned| (self.results - self.cancelled) as u64 >= planned)
    }

    /// The command that finishes what is missing; None when nothing is, or nobody knows. `owner` is who
    /// worked on it, where that was seen: Harbor's relative paths hold in its directory only.
    pub fn next(&self, owner: Option<&Owner>) -> Option<String> {
        if self.complete() {
            return None;
        }
        let ours = self.ours;
        let dir = clean(&self.job_dir.to_string_lossy()).into_owned();
        match (owner.map(|o| o.program), owner.and_then(|o| o.cwd.as_deref())) {
            (Some(Program::Pilothouse), _) => Some(format!("pilothouse run --resume {dir}")),
            (None, _) if ours => Some(format!("pilothouse run --resume {dir}")),
            (Some(Program::Harbor), Some(cwd)) => {
                let within = self.job_dir.strip_prefix(cwd).unwrap_or(&self.job_dir);
                let within = clean(&within.to_string_lossy()).into_owned();
                Some(format!("cd {} && harbor job resume -p {within}", clean(&cwd.to_string_lossy())))
            }
            (Some(Program::Other), _) => None,
            _ => Some(format!("harbor job resume -p {dir}   (in the directory that it was started in)")),
        }
    }

    /// Findings that something can be done about.
    pub fn mendable(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.mend.does_something())
    }

    /// True when nothing needs a person.
    pub fn clean(&self) -> bool {
        self.findings.iter().all(|f| matches!(f.mend, Mend::ByItself(_))) && self.unseen.is_empty()
    }
}

/// Why a job could not be audited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The directory can not be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, String),
    /// It is no job's.
    #[error("{0}: no job here: a job dir holds config.json, lock.json or result.json")]
    NoJob(PathBuf),
    /// No runtime for the calls to the engine.
    #[error("no event loop: {0}")]
    Runtime(String),
}

/// The id that a job's `result.json` gives it.
pub fn job_id_of(job_dir: &Path) -> Option<String> {
    job_id(job_dir)
}

/// The same.
pub(super) fn job_id(job_dir: &Path) -> Option<String> {
    let dir = Dir::open(job_dir).ok()?;
    facts(&dir, job_dir).id.map(|id| id.to_string())
}

fn facts(dir: &Dir, job_dir: &Path) -> JobFacts {
    let read = |name: &str| dir.read_condensed(name, CAP).ok().map(|b| b.data);
    let (config, lock, result) = (read("config.json"), read("lock.json"), read("result.json"));
    job_facts(job_dir, config.as_deref(), lock.as_deref(), result.as_deref())
}

/// Looks at everything that a job may have left: its directory, the Docker engine, the places of
/// temporary and scratch directories (the latter in `state_dir`). Blocks; not to be called on a thread that runs a tokio runtime.
///
/// # Errors
/// See [`AuditError`].
pub fn audit(job_dir: &Path, state_dir: Option<&Path>) -> Result<Audit, AuditError> {
    block(async {
        let engine = DockerEngine::connect().await;
        audit_with(job_dir, state_dir, engine.as_ref()).await
    })?
}

/// Runs work of this room that talks to the engine.
pub(super) fn block<T>(work: impl Future<Output = T>) -> Result<T, AuditError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map(|runtime| runtime.block_on(work)).map_err(|e| AuditError::Runtime(e.to_string()))
}

/// As [`audit`], with an engine that is connected to, or the reason why there is none.
///
/// # Errors
/// See [`AuditError`].
pub async fn audit_with(
    job_dir: &Path,
    state_dir: Option<&Path>,
    engine: Result<&DockerEngine, &EnvError>,
) -> Result<Audit, AuditError> {
    let unreadable = |e: std::io::Error| AuditError::Unreadable(job_dir.to_path_buf(), e.to_string());
    let job_dir = std::fs::canonicalize(job_dir).map_err(unreadable)?;
    let dir = Dir::open(&job_dir).map_err(unreadable)?;
    let files = ["config.json", "lock.json", "result.json"];
    if !files.iter().any(|f| dir.stat(f).is_ok_and(|m| m.kind == EntryKind::File)) {
        return Err(AuditError::NoJob(job_dir.clone()));
    }
    let facts = facts(&dir, &job_dir);
    let mut world = World::look(std::slice::from_ref(&job_dir));
    let owner = world.owner(&job_dir).clone();
    let mut audit = Audit {
        job: facts.name.clone(),
        job_id: facts.id.as_deref().map_or_else(|| name_of(&job_dir), str::to_string),
        harbor_version: facts.harbor_version.clone(),
        ours: dir.stat(lease::LEASE).is_ok(),
        owner,
        trials: 0,
        results: 0,
        planned: facts.n_planned().map(|(n, _)| n),
        cancelled: 0,
        findings: Vec::new(),
        unseen: Vec::new(),
        job_dir: job_dir.clone(),
    };
    for name in trials_of(&job_dir) {
        look_at_trial(&dir, &name, &mut audit);
    }
    look_at_locks(&dir, &facts, &mut audit);
    let scope = Scope {
        job_dirs: vec![job_dir.clone()],
        ours: true,
        harbor: true,
        state_dir: state_dir.map(Path::to_path_buf),
    };
    look_outside(&mut audit, &facts, &scope, &mut world, engine).await;
    let order = |kind: FindingKind| FindingKind::ALL.iter().position(|k| *k == kind);
    audit.findings.sort_by_key(|f| (order(f.kind), f.subject.clone()));
    Ok(audit)
}

fn name_of(dir: &Path) -> String {
    dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_else(|| "job".to_string())
}

fn safe(text: &str) -> String {
    clean(text).into_owned()
}

/// A directory of the job dir: a trial with a result that counts, or a finding.
fn look_at_trial(dir: &Dir, name: &str, audit: &mut Audit) {
    let has = |file: &str| dir.stat(&format!("{name}/{file}")).is_ok();
    let alive = matches!(audit.owner, Found::Here(_) | Found::Elsewhere(_));
    let age = dir.stat(name).ok().map(|m| time::age(m.modified, Stamp::now()).as_secs());
    let finding = |kind, evidence: &str, mend| Finding {
        kind,
        subject: safe(name),
        trial: Some(safe(name)),
        evidence: safe(evidence),
        age,
        bytes: None,
        mend,
    };
    let away = || Mend::Quarantine { name: name.to_string() };
    if !["config.json", "lock.json", "result.json", "trial.log"].iter().any(|f| has(f)) {
        // Even an empty one may be a trial's first moment.
        if !alive {
            let sub = dir.sub(name);
            let empty = sub.as_ref().is_ok_and(|d| d.list().is_ok_and(|l| l.is_empty()));
            audit.findings.push(if empty {
                finding(FindingKind::NoResult, "an empty directory", away())
            } else if sub.is_ok_and(|d| is_just_made(&d, name)) {
                finding(FindingKind::NoResult, "no file of a trial is finished in it", away())
            } else {
                let advice = "not a trial's: move it away yourself, `harbor job resume` deletes it";
                finding(FindingKind::ForeignDir, "no file of a trial in it", Mend::Nothing(advice.to_string()))
            });
        }
        return;
    }
    audit.trials += 1;
    let file = format!("{name}/result.json");
    let kept = |why: &str| Mend::Nothing(why.to_string());
    match dir.read_condensed(&file, CAP) {
        Err(OpenError::Missing | OpenError::Vanished) if alive => {}
        Err(OpenError::Missing | OpenError::Vanished) => {
            let has_log = if has("trial.log") { "trial.log, but no result.json" } else { "no result.json" };
            audit.findings.push(finding(FindingKind::NoResult, &format!("{file}: {has_log}"), away()));
        }
        Err(error) => {
            audit.findings.push(finding(FindingKind::UnreadableResult, &format!("{file}: {error}"), away()));
        }
        Ok(bytes) => match trial_result(&bytes.data) {
            // Torn at this moment, by somebody who lives.
            Err(_) if alive => {}
            Err(problem) => {
                let evidence = format!("{file}: {problem}");
                audit.findings.push(finding(FindingKind::UnreadableResult, &evidence, away()));
            }
            Ok(read) if read.result.is_phantom() => {
                let evidence = format!("{file}: no reward and no exception, though a verifier was due");
                let mend = if alive { kept("after the job has ended") } else { away() };
                audit.findings.push(finding(FindingKind::Phantom, &evidence, mend));
            }
            Ok(read) => {
                audit.results += 1;
                if read.result.is_cancelled() {
                    audit.cancelled += 1;
                    if let Some(reward) = read.result.rewards.primary() {
                        let evidence = format!("{file}: reward {reward} beside CancelledError");
                        let advice = "`harbor job resume` would delete it: give it `-f` with another type to keep it";
                        audit.findings.push(finding(FindingKind::GradedButCancelled, &evidence, kept(advice)));
                    }
                }
            }
        },
    }
}

/// The job's lease, its lock, and files that an interrupted write of ours left.
fn look_at_locks(dir: &Dir, facts: &JobFacts, audit: &mut Audit) {
    if matches!(audit.owner, Found::Here(_) | Found::Elsewhere(_)) {
        return;
    }
    let mut add = |kind, subject: &str, evidence: &str, mend| {
        let about = dir.stat(subject).ok();
        audit.findings.push(Finding {
            kind,
            subject: safe(subject),
            trial: None,
            evidence: safe(evidence),
            age: about.map(|m| time::age(m.modified, Stamp::now()).as_secs()),
            bytes: about.map(|m| m.size),
            mend,
        });
    };
    match lease::read(dir) {
        Ok(Reading::Note(note)) if !note.released => {
            let mend = Mend::ByItself("`pilothouse run --resume` takes it over".to_string());
            add(FindingKind::Lock, lease::LEASE, &format!("held by {}, which is gone", note.holder()), mend);
        }
        Ok(Reading::Unreadable(why)) => {
            let mend = Mend::Nothing("look at it by hand: nothing can be said of who held it".to_string());
            add(FindingKind::Lock, lease::LEASE, &why, mend);
        }
        _ => {}
    }
    if let Some(problem) =
        facts.problems.iter().find(|p| p.path.ends_with("lock.json") || p.path.contains("lock.json:"))
    {
        let mend =
            Mend::Nothing("`harbor job resume` refuses such a job: start a new one with what is missing".to_string());
        add(FindingKind::Lock, "lock.json", &problem.message, mend);
    }
    for entry in dir.list().unwrap_or_default() {
        if let Some(name) = entry.name.to_str().filter(|n| is_temp(n) && entry.kind == EntryKind::File) {
            let mend = Mend::RemoveTempFile { name: name.to_string() };
            add(FindingKind::Temp, name, "left by an interrupted write of pilothouse", mend);
        }
    }
}

/// What the job has outside of its directory.
async fn look_outside(
    audit: &mut Audit,
    facts: &JobFacts,
    scope: &Scope,
    world: &mut World,
    engine: Result<&DockerEngine, &EnvError>,
) {
    let found = leftovers::collect(scope, world, engine).await;
    audit.unseen.extend(found.unseen);
    let busy = compose_at_work(&trials_of(&audit.job_dir));
    audit.unseen.extend(busy.iter().map(|what| format!("{what}: look again when it has ended")));
    for thing in found.things {
        let mine = thing.job_dir.as_deref() == Some(audit.job_dir.as_path())
            || thing.job_id.is_some() && thing.job_id.as_deref() == facts.id.as_deref();
        if !mine || matches!(thing.fate, Fate::Alive(_)) {
            continue;
        }
        let kind = match thing.kind {
            _ if matches!(thing.fate, Fate::Held(_)) => FindingKind::Held,
            Kind::Container => FindingKind::Container,
            Kind::Network => FindingKind::Network,
            Kind::Volume => FindingKind::Volume,
            Kind::Image => FindingKind::Image,
            Kind::Temp | Kind::Scratch => FindingKind::Temp,
        };
        let mend = match &thing.fate {
            Fate::Unsure(why) => Mend::Nothing(why.clone()),
            Fate::Held(why) => Mend::ByItself(format!("held {why}; pilothouse held lists and removes")),
            _ => Mend::Remove(Box::new(thing.clone())),
        };
        audit.findings.push(Finding {
            kind,
            subject: thing.name.clone(),
            trial: thing.trial.clone(),
            evidence: thing.evidence.clone(),
            age: thing.age,
            bytes: thing.bytes,
            mend,
        });
    }
}

/// `docker compose` processes that still work for one of these trials: Harbor's children, which outlive
/// it when it dies at once, and may still be about to start a container.
pub fn compose_at_work(trials: &[String]) -> Vec<String> {
    let wanted: std::collections::HashSet<String> =
        trials.iter().map(|trial| super::harbor_marks::project_of(trial)).collect();
    let mut out = Vec::new();
    for pid in process::all() {
        let argv = process::argv(pid);
        let Some(at) = argv.iter().position(|w| w == "--project-name" || w == "-p") else { continue };
        if !argv.iter().take(at).any(|w| w == "compose") {
            continue;
        }
        let project = argv.get(at + 1).map(String::as_str).unwrap_or_default();
        let trial = super::harbor_marks::trial_of_session(project).unwrap_or_default();
        // What only runs a command in a container, or copies, makes nothing that stays.
        let harmless = argv.iter().skip(at + 2).any(|w| w == "exec" || w == "cp");
        if wanted.contains(trial) && !harmless && process::start_time(pid).is_some() {
            out.push(safe(&format!("docker compose for {project} (pid {pid}) is still at work")));
        }
    }
    out
}
