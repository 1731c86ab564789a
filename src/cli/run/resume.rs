//! Going on with a job that was ended early: what stands is kept, what is missing is run.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::owner::Terms;
use super::prepare::{Kind, Prepared, Refusal, variables};
use super::repo;
use crate::agent::installed;
use crate::cli::state_dir;
use crate::environment::docker::DockerEngine;
use crate::environment::held::held_of;
use crate::environment::{HeldKind, KeptKind, local};
use crate::harbor::run_config::{self, HarborVersion, Planned, RunConfig, RunFlags, read_config, unsupported_beside};
use crate::harbor::task::{Task, host_variable};
use crate::harbor::write::config::{AgentConfig, JobConfig, TaskConfig};
use crate::harbor::write::lease::{self, LEASE, LeaseNote, Process, Reading};
use crate::harbor::write::reread::{self, Done, JobRead, LockedTask, Standing};
use crate::harbor::write::{Claim, Folder, Lease, May, Observer, QuarantineError, WriteError, ids, quarantine};
use crate::job::Stamp;
use crate::scheduler::plan::Earlier;
use crate::scheduler::{DockerPlaces, Plan};

/// Between two looks at a lease that is waited for, at most.
const LOOK: Duration = Duration::from_millis(500);
/// Tries at a directory that still changes, and the time between.
const SETTLING: u32 = 20;
const SETTLE: Duration = Duration::from_millis(500);
/// Names shown of one kind.
const SHOWN: usize = 12;
/// What stands where a secret was masked.
const MASK: &str = "****";

/// What has to be done before a job is gone on with.
#[derive(Debug, Clone)]
pub struct Again {
    /// Its directory.
    pub dir: PathBuf,
    /// Trial slots, where others than the job's are wanted.
    pub slots: Option<u32>,
    /// Take the job from a process that is there but silent.
    pub take_over: bool,
}

/// How a job stands, and what going on with it means.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Its name.
    pub name: String,
    /// Planned trials.
    pub planned: usize,
    /// Trials that stand, in the order in which they ended.
    pub kept: Vec<Done>,
    /// Directories that leave the job dir for the quarantine, with why.
    pub removed: Vec<(String, &'static str)>,
    /// What of the plan is run.
    pub missing: Vec<Planned>,
    /// Its files say that it came to its end.
    pub finished: bool,
    /// What there is to say.
    pub notes: Vec<String>,
    config: RunConfig,
    read: JobRead,
    agents: usize,
}

impl Survey {
    /// The explanation, a line each.
    pub fn words(&self) -> Vec<String> {
        let list = |names: Vec<&str>| {
            let more = names.len().saturating_sub(SHOWN);
            let shown = names.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ");
            if more > 0 { format!("{shown} and {more} more") } else { shown }
        };
        let mut out = vec![format!(
            "{}: {} of {} planned trials are kept as they are, {} are run",
            self.name,
            self.kept.len(),
            self.planned,
            self.missing.len()
        )];
        if !self.kept.is_empty() {
            out.push(format!("kept: {}", list(self.kept.iter().map(|d| d.ended.trial_name.as_str()).collect())));
        }
        let mut by_why: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, why) in &self.removed {
            by_why.entry(why).or_default().push(name);
        }
        for (why, names) in by_why {
            out.push(format!("to the quarantine ({why}), {}: {}", names.len(), list(names)));
        }
        let mut tasks: BTreeMap<&str, usize> = BTreeMap::new();
        for slot in &self.missing {
            if let Some(task) = self.read.planned.get(slot.task * self.agents) {
                *tasks.entry(&task.name).or_default() += 1;
            }
        }
        if !tasks.is_empty() {
            let words: Vec<String> =
                tasks.iter().map(|(t, n)| if *n > 1 { format!("{t} ×{n}") } else { (*t).to_string() }).collect();
            out.push(format!("run: {}", list(words.iter().map(String::as_str).collect())));
        }
        out.extend(self.notes.clone());
        out
    }
}

/// Looks at a job dir. Nothing is changed.
///
/// # Errors
/// Why it can not be gone on with, by name.
pub fn survey(dir: &Path) -> Result<Survey, Refusal> {
    let shown = dir.display();
    let refuse = |why: &str| Refusal::of(&format!("{shown}: {why}"));
    let folder = Folder::open(dir).map_err(|e| Refusal::of(&e.to_string()))?;
    let has = |name: &str| folder.dir().stat(name).is_ok();
    if !has("config.json") && !has("lock.json") {
        return Err(refuse(
            "ended before its plan was written, or no job: nothing of it was run: remove it and start again",
        ));
    }
    if !has(LEASE) {
        return Err(refuse(
            "no job that pilothouse ran (no pilothouse.lease): go on with it by `harbor job resume -p`",
        ));
    }
    let read = reread::job(&folder).map_err(|why| refuse(&why))?;
    let config = read_config(&read.config, "config.json", HarborVersion::V0_26)
        .map_err(|e| Refusal(e.problems.iter().map(|p| format!("{shown}: {p}")).collect()))?;
    let refused = unsupported_beside(&config, &installed::names());
    if !refused.is_empty() {
        return Err(Refusal(refused.iter().map(|u| format!("{shown}: {u}")).collect()));
    }
    let agents = config.agents.len();
    let attempts = config.n_attempts as usize;
    let tasks = read.planned.len().checked_div(attempts * agents).unwrap_or(0);
    if tasks == 0 || tasks * attempts * agents != read.planned.len() {
        return Err(refuse(&format!(
            "lock.json plans {} trials, which is no multiple of {attempts} attempts × {agents} agents of config.json",
            read.planned.len()
        )));
    }
    let slots: Vec<Planned> = run_config::plan(config.n_attempts, tasks, agents).collect();
    let (mut kept, mut removed, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for (name, standing) in reread::trials(&folder).map_err(|e| Refusal::of(&e.to_string()))? {
        match standing {
            Standing::Done(done) => kept.push(*done),
            Standing::Cancelled => removed.push((name, "was cancelled: run again")),
            Standing::Phantom => removed.push((name, "neither reward nor exception: run again")),
            Standing::Open => removed.push((name, "no result: run again")),
            Standing::Torn(_) => removed.push((name, "a result that can not be read: run again")),
            Standing::Foreign => notes.push(format!("{name}: no trial, left alone")),
        }
    }
    kept.sort_by(|a, b| (a.finished, &a.ended.trial_name).cmp(&(b.finished, &b.ended.trial_name)));
    let documents = JobConfig::of_run(&config, &host_variable);
    let mut free: Vec<Option<Planned>> = slots.into_iter().map(Some).collect();
    let mut standing = Vec::new();
    for done in kept {
        let fits = |slot: &Planned| {
            let task = read.planned.get(slot.task * agents);
            let agent = documents.agents.get(slot.agent);
            task.is_some_and(|t| of_task(&done, t)) && agent.is_some_and(|a| of_agent(&done, a))
        };
        match free.iter_mut().find(|slot| slot.as_ref().is_some_and(fits)) {
            Some(slot) => {
                *slot = None;
                standing.push(done);
            }
            None => notes.push(format!("{}: beyond the plan, left alone", done.ended.trial_name)),
        }
    }
    Ok(Survey {
        name: config.job_name.clone(),
        planned: read.planned.len(),
        kept: standing,
        removed,
        missing: free.into_iter().flatten().collect(),
        finished: read.finished,
        notes,
        config,
        read,
        agents,
    })
}

fn of_task(done: &Done, planned: &LockedTask) -> bool {
    done.task == (planned.path.clone(), planned.git_url.clone())
}

fn of_agent(done: &Done, planned: &AgentConfig) -> bool {
    let text = |key: &str| done.agent.get(key).and_then(|v| v.as_str());
    let whole = serde_json::to_value(planned).is_ok_and(|v| v == done.agent);
    whole || (text("name") == planned.name.as_deref() && text("model_name") == planned.model_name.as_deref())
}

/// The plan of what is missing.
fn plan(survey: &Survey, again: &Again) -> Result<(Plan, Vec<String>), Refusal> {
    let shown = again.dir.display();
    let mut config = JobConfig::of_run(&survey.config, &host_variable);
    unmask(&mut config).map_err(|names| {
        Refusal::of(&format!("{shown}: config.json does not hold the secrets {names}: set variables of these names"))
    })?;
    if let Some(slots) = again.slots {
        config.n_concurrent_trials = slots;
    }
    let wanted: HashSet<usize> = survey.missing.iter().map(|slot| slot.task).collect();
    let (mut tasks, mut at, mut wrong) = (Vec::new(), BTreeMap::new(), Vec::new());
    let verified = !survey.config.verifier.disable;
    let mut sorted: Vec<usize> = wanted.into_iter().collect();
    sorted.sort_unstable();
    for i in sorted {
        let Some(locked) = survey.read.planned.get(i * survey.agents) else { continue };
        match load(locked, verified) {
            Ok(task) => {
                at.insert(i, tasks.len());
                tasks.push((locked.config(), Arc::new(task)));
            }
            Err(why) => wrong.push(format!("task {}: {why}", locked.name)),
        }
    }
    if !wrong.is_empty() {
        return Err(Refusal(wrong));
    }
    let missing = survey.missing.iter().filter_map(|slot| Some(Planned { task: *at.get(&slot.task)?, ..*slot }));
    let earlier = Earlier {
        dir: again.dir.clone(),
        id: match &survey.read.id {
            Some(id) => id.clone(),
            None => ids::uuid().map_err(|e| Refusal::of(&e.to_string()))?,
        },
        started: survey.read.started.unwrap_or_else(Stamp::now),
        ended: survey.kept.iter().map(|done| done.ended.clone()).collect(),
        retries: survey.read.retries,
        missing: missing.collect(),
    };
    let variables = variables(&config, &tasks);
    let plan = Plan::rest(config, &tasks, earlier)?;
    if Kind::of(&plan.config) == Kind::Docker {
        DockerPlaces::check(&plan)?;
    }
    Ok((plan, variables))
}

/// A task as it was when the job began, or why it is not.
fn load(locked: &LockedTask, verified: bool) -> Result<Task, String> {
    let TaskConfig { path, git_url, git_commit_id, .. } = locked.config();
    let path = PathBuf::from(path.ok_or("lock.json does not say where it is")?);
    let dir = match git_url {
        Some(url) => {
            let state = state_dir().ok_or("no place for a clone: set PILOTHOUSE_STATE_DIR")?;
            let commit = git_commit_id.ok_or("lock.json names no commit")?;
            repo::at_commit(&url, &commit, &state).map_err(|e| e.to_string())?.join(path)
        }
        None => path,
    };
    if !dir.is_dir() {
        let hint = if dir.is_relative() { "; the path is relative to where the job was started" } else { "" };
        return Err(format!("{} is not there{hint}", dir.display()));
    }
    let task = Task::load_for(&dir, verified).map_err(|e| e.to_string())?;
    let digest = task.digests().map_err(|e| e.to_string())?.digest;
    if digest != locked.digest {
        return Err(format!(
            "{} has changed since the job began (lock.json: {}, now {digest}): its trials would not be comparable; put \
             it back as it was, or start a new job",
            dir.display(),
            locked.digest
        ));
    }
    Ok(task)
}

/// Puts references in the place of masked secrets whose variables are set; gives the names of others.
fn unmask(config: &mut JobConfig) -> Result<(), String> {
    let mut missing = Vec::new();
    let agents = config.agents.iter_mut().map(|a| &mut a.env);
    for env in agents.chain([&mut config.environment.env, &mut config.verifier.env]) {
        for (name, value) in env.iter_mut().filter(|(_, value)| value.contains(MASK)) {
            match host_variable(name) {
                Some(_) => *value = format!("${{{name}}}"),
                None => missing.push(name.clone()),
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join(", ")) }
}

/// Prepares to go on with a job, by the flags that mean something then.
///
/// # Errors
/// Why it can not be gone on with; a flag that would change what was planned.
pub fn prepare(dir: &Path, flags: &RunFlags, take_over: bool) -> Result<(Prepared, Survey), Refusal> {
    let allowed = RunFlags {
        n_concurrent: flags.n_concurrent,
        yes: flags.yes,
        quiet: flags.quiet,
        debug: flags.debug,
        env_file: flags.env_file.clone(),
        ..RunFlags::default()
    };
    if *flags != allowed {
        return Err(Refusal::of(
            "--resume goes on with what was planned: beside it only -n, -y, -q and --env-file mean something",
        ));
    }
    // For the variables of --env-file.
    super::prepare::ask(&RunFlags { env_file: flags.env_file.clone(), ..RunFlags::default() })?;
    let survey = survey(dir)?;
    let again = Again { dir: dir.to_path_buf(), slots: flags.n_concurrent, take_over };
    let (plan, variables) = plan(&survey, &again)?;
    let kind = Kind::of(&plan.config);
    let prepared = Prepared { plan, invalid: Vec::new(), notes: survey.words(), variables, kind, again: Some(again) };
    Ok((prepared, survey))
}

/// How the lease of a job stands at this moment, for people.
pub fn lease_words(dir: &Path) -> String {
    let note = Folder::open(dir).ok().and_then(|folder| lease::read(folder.dir()).ok());
    match note {
        Some(Reading::Note(note)) if note.released => "nobody holds the job".to_string(),
        Some(Reading::Note(note)) => match note.process() {
            Process::There => format!("{} holds the job (last sign of life {})", note.holder(), note.at),
            Process::Gone => format!("{} held the job and is gone", note.holder()),
            Process::Elsewhere => format!("{} holds the job, or did (last sign of life {})", note.holder(), note.at),
        },
        _ => "the job's lease can not be read".to_string(),
    }
}

/// A job whose lease is held, ready to be written.
pub(super) struct Taken {
    pub plan: Plan,
    pub folder: Folder,
    pub lease: Lease,
}

/// Takes the job, clears away what its last owner left, and plans again what is missing: others may have
/// worked on it since it was looked at.
///
/// # Errors
/// Somebody holds it; what is left of the last owner can not be cleared away.
pub(super) async fn take(again: Again, kind: Kind, terms: &Terms) -> Result<Taken, Refusal> {
    let refuse = |e: WriteError| Refusal::of(&e.to_string());
    let folder = Folder::open(&again.dir).map_err(refuse)?;
    let mut lease = claim(&folder, &again, terms).await?;
    let beat = (terms.who.interval / 2).max(Duration::from_millis(10));
    let cleared = beating(&mut lease, &folder, beat, clear(again.clone(), kind, terms)).await;
    match cleared {
        Ok(Ok(plan)) => Ok(Taken { plan, folder, lease }),
        Ok(Err(refusal)) => {
            let _ = lease.release(&folder, Stamp::now());
            Err(refusal)
        }
        Err(error) => Err(refuse(error)),
    }
}

async fn claim(folder: &Folder, again: &Again, terms: &Terms) -> Result<Lease, Refusal> {
    let shown = again.dir.display();
    let refuse = |e: WriteError| Refusal::of(&e.to_string());
    let may = if again.take_over { May::TakeSilent } else { May::TakeStale };
    let (begin, mut observer) = (Instant::now(), Observer::default());
    let mut first: Option<LeaseNote> = None;
    loop {
        let claim = Lease::claim(folder, &terms.who, may, &mut observer, begin.elapsed(), Stamp::now());
        match claim.map_err(refuse)? {
            Claim::Mine(lease) => return Ok(lease),
            Claim::Silent(note) => {
                return Err(Refusal::of(&format!(
                    "{shown}: {} holds the job, is there, and has given no sign of life for over {:.0} s (the last one \
                     {}): it may be stopped or stuck. Let it go on (kill -CONT {}), end it, or take the job from it \
                     with --take-over",
                    note.holder(),
                    note.patience().as_secs_f64(),
                    note.at,
                    note.pid,
                )));
            }
            Claim::Wait(note, left) => {
                match &first {
                    Some(seen) if (&seen.token, seen.beat) != (&note.token, note.beat) => {
                        return Err(Refusal::of(&format!(
                            "{shown}: {} works on the job; stop it there, or wait for its end",
                            note.holder()
                        )));
                    }
                    Some(_) => {}
                    None => {
                        (terms.tell)(&format!(
                            "{shown}: {} held the job; waiting up to {:.0} s for a sign of life",
                            note.holder(),
                            left.as_secs_f64()
                        ));
                        first = Some(*note);
                    }
                }
                tokio::time::sleep(left.min(LOOK).max(Duration::from_millis(10))).await;
            }
        }
    }
}

/// Shows that the holder lives while something takes its time.
async fn beating<T>(
    lease: &mut Lease,
    folder: &Folder,
    every: Duration,
    work: impl Future<Output = T>,
) -> Result<T, WriteError> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(every) => lease.beat(folder, Stamp::now())?,
        }
    }
}

/// Under the job's lease: containers and networks with this job's label, processes and scratch
/// directories of its local trials, and trials without a result that stands.
async fn clear(again: Again, kind: Kind, terms: &Terms) -> Result<Plan, Refusal> {
    let survey = survey(&again.dir)?;
    let (plan, _) = plan(&survey, &again)?;
    match kind {
        Kind::Docker => {
            let refuse = |e: crate::environment::EnvError| Refusal::of(&e.to_string());
            let engine = DockerEngine::connect().await.map_err(refuse)?;
            let kept = engine.kept(Some(&plan.id)).await.map_err(refuse)?;
            let held = held_of(&kept, &[]);
            let holding = held.iter().any(|h| h.kind == HeldKind::Container);
            for held in &held {
                (terms.tell)(&format!("the {} {} stays held (pilothouse held)", held.kind.word(), held.kept.name));
            }
            for thing in kept {
                let stays = match thing.kind {
                    KeptKind::Container => held.iter().any(|h| h.kept.id == thing.id),
                    KeptKind::Network => match &thing.labels.trial {
                        None => holding,
                        own => held.iter().any(|h| h.kept.labels.trial == *own),
                    },
                    KeptKind::Image => true,
                };
                if !stays {
                    engine.remove_kept(&thing).await.map_err(refuse)?;
                    (terms.tell)(&format!("removed the {} {} that was left", thing.kind.word(), thing.name));
                }
            }
        }
        Kind::Local => {
            let root = match &terms.scratch {
                Some(root) => root.clone(),
                None => super::prepare::scratch_of(&plan.id)?,
            };
            let shown = root.display().to_string();
            let ended = aside(move || local::clear_left(&root)).await?;
            let ended = ended.map_err(|e| Refusal::of(&format!("{shown}: {e}")))?;
            if ended > 0 {
                (terms.tell)(&format!("ended {ended} processes that were left"));
            }
        }
    }
    let state = state_dir().ok_or_else(|| Refusal::of("no place for a quarantine: set PILOTHOUSE_STATE_DIR"))?;
    for (name, why) in survey.removed {
        let (dir, state, id) = (again.dir.clone(), state.clone(), plan.id.clone());
        let trial = name.clone();
        let moved = aside(move || {
            let mut tries = 0;
            loop {
                tries += 1;
                match quarantine(&Folder::open(&dir)?, &trial, &state, &id) {
                    // An owner that went on a moment ago: it sees that it is none any more.
                    Err(QuarantineError::Changed { .. }) if tries < SETTLING => std::thread::sleep(SETTLE),
                    other => return other,
                }
            }
        });
        let moved = moved.await?.map_err(|e| Refusal::of(&e.to_string()))?;
        (terms.tell)(&format!("{name} ({why}) is now {}", moved.place.display()));
    }
    Ok(plan)
}

async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Refusal::of(&format!("a fault of this program: {e}")))
}
