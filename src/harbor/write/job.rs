//! A job dir as it grows: the files of the job and of its trials, written as things happen.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::AtFlags;
use serde::Serialize;

use super::atomic::{Folder, Log, WriteError};
use super::config::{JobConfig, MetricConfig, TrialConfig};
use super::lease::{LEASE, Lease, LeaseNote};
use super::lock::{JobLock, TrialLock};
use super::result::TrialResult;
use super::scrub::Scrub;
use super::stats::{Ended, JobResult, JobStats, JobTime, Progress};
use super::trial::{Lost, MOUNTED, Modes, PRIVATE, TrialFolder, still_held, unmake};
use crate::harbor::dir::EntryKind;
use crate::job::Stamp;

/// Shortest time between two writes of a job's live result; what happens in between goes into the next.
const SPACING: Duration = Duration::from_secs(1);
/// Of a large job or on a slow disk it is this many times what the last write took, up to a limit.
const SPACING_WRITES: u32 = 8;
const LONGEST_SPACING: Duration = Duration::from_secs(2);

/// A job whose directory is to be made.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The job's UUID.
    pub id: &'a str,
    /// Its config.
    pub config: &'a JobConfig,
    /// Its plan.
    pub lock: &'a JobLock,
    /// When it began.
    pub started: Stamp,
    /// What must not be written anywhere.
    pub scrub: Scrub,
}

/// What is known of a job that is to be gone on with.
#[derive(Debug, Clone)]
pub struct Resume {
    /// The job's UUID, as in its `result.json`.
    pub id: String,
    /// The first start.
    pub started: Stamp,
    /// Planned trials.
    pub total: u64,
    /// Its metrics.
    pub metrics: Vec<MetricConfig>,
    /// The trials that are done, in the order in which they ended.
    pub ended: Vec<Ended>,
    /// Attempts that were done again so far.
    pub retries: u64,
    /// What must not be written anywhere.
    pub scrub: Scrub,
}

/// The only writer of a job dir, as long as it holds the lease.
#[derive(Debug)]
pub struct JobWriter {
    folder: Folder,
    lease: Lease,
    log: Log,
    id: String,
    started: Stamp,
    total: u64,
    metrics: Vec<MetricConfig>,
    ended: Vec<Ended>,
    running: BTreeSet<String>,
    /// Trials whose directories a power cut may take.
    unsynced: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    retries: u64,
    scrub: Scrub,
    /// The time of a change that is not on disk yet.
    unwritten: Option<Stamp>,
    written: Option<Instant>,
    spacing: Duration,
    lost: Lost,
}

impl JobWriter {
    /// Makes a job dir, with the directories above it: the lease, `job.log`, `config.json`, `lock.json`
    /// and a first `result.json`, in this order. `lease` gets the new directory and gives its lease.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when anything has this name already; else see [`WriteError`], and then
    /// nothing is left of it.
    pub fn create(
        path: &Path,
        start: &Start<'_>,
        lease: impl FnOnce(&Folder) -> Result<Lease, WriteError>,
    ) -> Result<JobWriter, WriteError> {
        let folder = Folder::create(path)?;
        JobWriter::begin(folder, start, lease).inspect_err(|_| take_back(path))
    }

    fn begin(
        folder: Folder,
        start: &Start<'_>,
        lease: impl FnOnce(&Folder) -> Result<Lease, WriteError>,
    ) -> Result<JobWriter, WriteError> {
        let lease = lease(&folder)?;
        let log = folder.log("job.log")?;
        let resume = Resume {
            id: start.id.to_string(),
            started: start.started,
            total: start.lock.trials.len() as u64,
            metrics: start.config.metrics.clone(),
            ended: Vec::new(),
            retries: 0,
            scrub: start.scrub.clone(),
        };
        let mut job = JobWriter::with(folder, lease, log, resume);
        job.folder.write_once_soon("config.json", &json(&job.folder, &job.scrub, start.config)?)?;
        job.folder.write_once_soon("lock.json", &json(&job.folder, &job.scrub, start.lock)?)?;
        job.folder.sync()?;
        job.write(JobTime::Local(start.started), None)?;
        Ok(job)
    }

    /// Goes on with a job whose lease is held: removes what interrupted writes left, keeps every
    /// result. Gives also the names of what was removed.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn reopen(
        folder: Folder,
        lease: Lease,
        resume: Resume,
        now: Stamp,
    ) -> Result<(JobWriter, Vec<String>), WriteError> {
        lease.check(&folder)?;
        let removed = clean_temps(&folder)?;
        let log = folder.log("job.log")?;
        let mut job = JobWriter::with(folder, lease, log, resume);
        job.write(JobTime::Local(now), None)?;
        Ok((job, removed))
    }

    fn with(folder: Folder, lease: Lease, log: Log, resume: Resume) -> JobWriter {
        let cancelled = resume.ended.iter().filter(|t| t.is_cancelled()).map(|t| t.trial_name.clone()).collect();
        JobWriter {
            folder,
            lease,
            log,
            id: resume.id,
            started: resume.started,
            total: resume.total,
            metrics: resume.metrics,
            ended: resume.ended,
            running: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            cancelled,
            retries: resume.retries,
            scrub: resume.scrub,
            unwritten: None,
            written: None,
            spacing: SPACING,
            lost: Lost::default(),
        }
    }

    /// The lease under which the job is written.
    pub fn lease(&self) -> &LeaseNote {
        self.lease.note()
    }

    /// A job that can not begin after all: one without any trial goes away, any other is left.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn give_up(&mut self, now: Stamp) -> Result<(), WriteError> {
        self.hold()?;
        if directories(&self.folder)?.is_empty() && self.ended.is_empty() {
            take_back(self.folder.path());
            return Ok(());
        }
        self.leave(now)
    }

    /// The job dir.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Appends to `job.log`.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn log(&mut self, text: &str) -> Result<(), WriteError> {
        self.hold()?;
        self.log.line(&self.scrub.text(text))
    }

    /// Makes the directory of a trial, in the order in which readers expect its files: `lock.json`,
    /// `trial.log`, `config.json`, then the three that containers may see.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when the trial has a directory already; else see [`WriteError`].
    pub fn begin_trial(
        &mut self,
        config: &TrialConfig,
        lock: &TrialLock,
        modes: Modes,
        now: Stamp,
    ) -> Result<TrialFolder, WriteError> {
        self.hold()?;
        let name = config.trial_name.clone();
        let folder = self.folder.make(&name, PRIVATE)?;
        self.unsynced.insert(name.clone());
        let trial = self.fill(&name, folder, config, lock, modes).inspect_err(|_| self.take_back(&name))?;
        self.running.insert(name);
        self.changed(now)?;
        Ok(trial)
    }

    /// Removes a trial that could not be begun, so that it can be begun again.
    fn take_back(&self, name: &str) {
        if let Ok(trial) = self.folder.sub(name) {
            unmake(&trial);
            let _ = rustix::fs::unlinkat(self.folder.dir(), name, AtFlags::REMOVEDIR);
        }
    }

    fn fill(
        &self,
        name: &str,
        folder: Folder,
        config: &TrialConfig,
        lock: &TrialLock,
        modes: Modes,
    ) -> Result<TrialFolder, WriteError> {
        folder.write_once_soon("lock.json", &json(&folder, &self.scrub, lock)?)?;
        let log = folder.log("trial.log")?;
        // The result brings all names in here to the disk; until then a power cut may take them.
        folder.write_once_soon("config.json", &json(&folder, &self.scrub, config)?)?;
        let rooms = modes.make(&folder)?;
        rooms.publish()?;
        let (scrub, lost) = (self.scrub.clone(), self.lost.clone());
        Ok(TrialFolder { name: name.to_string(), folder, log, scrub, lost, rooms })
    }

    /// Notes that a trial is being cancelled, before it has ended.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn cancelling(&mut self, trial: &str, now: Stamp) -> Result<(), WriteError> {
        self.hold()?;
        self.cancelled.insert(trial.to_string());
        self.changed(now)
    }

    /// Writes a trial's result, once, and counts it.
    ///
    /// # Errors
    /// [`WriteError::Exists`] when it has another one, which stays; else see [`WriteError`]. Unless it is
    /// [`WriteError::Lease`], the same call can be made again when the cause is gone: it counts the trial
    /// once, whatever of it was on disk already.
    pub fn end_trial(&mut self, trial: &TrialFolder, result: &TrialResult, now: Stamp) -> Result<(), WriteError> {
        self.hold()?;
        let document = json(&trial.folder, &self.scrub, &result.document())?;
        // The directory's own name comes first: with it those of all that began meanwhile.
        if self.unsynced.contains(&trial.name) {
            self.folder.sync()?;
            self.unsynced.clear();
        }
        match trial.folder.write_once("result.json", &document) {
            // This very result, by an earlier call that failed later on.
            Err(WriteError::Exists { .. }) if holds(&trial.folder, "result.json", &document) => {}
            other => other?,
        }
        self.hold()?;
        self.running.remove(&trial.name);
        let ended = Ended::of(result);
        if ended.is_cancelled() {
            self.cancelled.insert(trial.name.clone());
        }
        self.ended.retain(|t| t.trial_name != trial.name);
        self.ended.push(ended);
        self.changed(now)
    }

    /// An attempt that could not begin its work: it has no result and does not run any more. The trial is
    /// begun again by [`JobWriter::retry_trial`].
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn put_back(&mut self, trial: &TrialFolder, now: Stamp) -> Result<(), WriteError> {
        self.hold()?;
        self.running.remove(&trial.name);
        self.changed(now)
    }

    /// Sets a finished attempt aside, into `retries/<n>/` of its trial, and begins the trial again under
    /// its name: the attempt is no longer counted, the retry is. The result is moved first, so that a
    /// crash leaves a trial without result, to be run, and never one with the files of two attempts.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn retry_trial(
        &mut self,
        trial: &TrialFolder,
        config: &TrialConfig,
        lock: &TrialLock,
        modes: Modes,
        now: Stamp,
    ) -> Result<TrialFolder, WriteError> {
        self.hold()?;
        let name = trial.name.clone();
        let folder = self.folder.sub(&name)?;
        set_aside(&folder)?;
        self.ended.retain(|t| t.trial_name != name);
        self.cancelled.remove(&name);
        self.retries += 1;
        let trial = self.fill(&name, folder, config, lock, modes)?;
        self.running.insert(name);
        self.changed(now)?;
        Ok(trial)
    }

    /// The stats as of now.
    pub fn stats(&self, over: bool) -> JobStats {
        let progress = Progress {
            total: self.total,
            running: self.running.len() as u64,
            cancelled: self.cancelled.len() as u64,
            retries: self.retries,
            over,
        };
        JobStats::of(&self.ended, progress, &self.metrics)
    }

    /// How long until [`JobWriter::flush`] is due; None when everything is on disk.
    pub fn due(&self) -> Option<Duration> {
        self.unwritten?;
        Some(self.written.map_or(Duration::ZERO, |at| self.spacing.saturating_sub(at.elapsed())))
    }

    /// Writes the live result if something has changed.
    ///
    /// # Errors
    /// See [`WriteError`]; the change stays due.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        match self.unwritten {
            Some(at) => self.write(JobTime::Utc(at), None),
            None => Ok(()),
        }
    }

    /// Shows that the job is alive.
    ///
    /// # Errors
    /// [`WriteError::Lease`] when somebody else holds the job; else see [`WriteError`].
    pub fn beat(&mut self, now: Stamp) -> Result<(), WriteError> {
        self.hold()?;
        self.lease.beat(&self.folder, now)
    }

    /// The end of a job: every planned trial is done. Writes the last result, with pass@k, and gives
    /// the lease back.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn finish(&mut self, now: Stamp) -> Result<(), WriteError> {
        self.write(JobTime::Local(now), Some(now))?;
        self.lease.release(&self.folder, now)
    }

    /// Leaves a job that is not done, to be resumed: writes what is due and gives the lease back.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn leave(&mut self, now: Stamp) -> Result<(), WriteError> {
        self.flush()?;
        self.hold()?;
        // It can be made again, so that it is no reason to keep the lease: somebody may have removed it.
        let _ = self.folder.settle("result.json");
        self.lease.release(&self.folder, now)
    }

    /// Goes on only as the holder of the lease; once lost it stays lost.
    fn hold(&mut self) -> Result<(), WriteError> {
        still_held(&self.lost, &self.folder)?;
        let held = self.lease.check(&self.folder);
        if let Err(WriteError::Lease { lost, .. }) = &held {
            let _ = self.lost.set(lost.clone());
        }
        held
    }

    fn changed(&mut self, now: Stamp) -> Result<(), WriteError> {
        self.unwritten = Some(now);
        if self.due() == Some(Duration::ZERO) { self.flush() } else { Ok(()) }
    }

    fn write(&mut self, updated_at: JobTime, finished: Option<Stamp>) -> Result<(), WriteError> {
        self.hold()?;
        let begin = Instant::now();
        let result = JobResult {
            schema_version: 1,
            id: self.id.clone(),
            started_at: JobTime::Local(self.started),
            updated_at,
            finished_at: finished.map(JobTime::Local),
            n_total_trials: self.total,
            stats: self.stats(finished.is_some()),
        };
        let document = json(&self.folder, &self.scrub, &result)?;
        match finished {
            Some(_) => self.folder.replace("result.json", &document)?,
            // It can be made again from the trials' own results.
            None => self.folder.jot("result.json", &document)?,
        }
        self.unwritten = None;
        self.written = Some(Instant::now());
        self.spacing = (begin.elapsed() * SPACING_WRITES).clamp(SPACING, LONGEST_SPACING);
        Ok(())
    }
}

/// Removes what interrupted writes left in a job dir, in its trials with their steps, and in the
/// directories of those that are shared with containers; only under the job's lease. Gives the paths
/// beneath the job dir.
///
/// # Errors
/// See [`WriteError`]; directories that can not be read are left out.
pub fn clean_temps(job: &Folder) -> Result<Vec<String>, WriteError> {
    let mut removed = job.clean_temps()?;
    for name in directories(job)? {
        let Ok(trial) = job.sub(&name) else { continue };
        clean_trial(&trial, &name, &mut removed)?;
        let Ok(steps) = trial.sub("steps") else { continue };
        for step in directories(&steps)? {
            if let Ok(folder) = steps.sub(&step) {
                clean_trial(&folder, &format!("{name}/steps/{step}"), &mut removed)?;
            }
        }
    }
    Ok(removed)
}

fn directories(folder: &Folder) -> Result<Vec<String>, WriteError> {
    let entries = folder.dir().list().map_err(|e| WriteError::of(folder.path(), &e))?;
    let inner = entries.into_iter().filter(|e| e.kind == EntryKind::Dir);
    Ok(inner.filter_map(|e| e.name.into_string().ok()).collect())
}

fn clean_trial(trial: &Folder, at: &str, removed: &mut Vec<String>) -> Result<(), WriteError> {
    removed.extend(trial.clean_temps()?.into_iter().map(|file| format!("{at}/{file}")));
    for part in MOUNTED {
        if let Ok(folder) = trial.sub(part) {
            removed.extend(folder.clean_temps()?.into_iter().map(|file| format!("{at}/{part}/{file}")));
        }
    }
    Ok(())
}

fn holds(folder: &Folder, name: &str, bytes: &[u8]) -> bool {
    folder.dir().read_all(name, bytes.len() as u64).is_ok_and(|there| there.data == bytes)
}

/// Removes a job dir that could not be begun, so that its name is free for the next try: a directory
/// without config can not be resumed. Only what was made here; anything else in it keeps it.
fn take_back(path: &Path) {
    for name in [LEASE, "job.log", "config.json", "lock.json", "result.json"] {
        let _ = std::fs::remove_file(path.join(name));
    }
    let _ = std::fs::remove_dir(path);
}

/// Moves everything of a trial into the next free `retries/<n>`, the result first.
fn set_aside(trial: &Folder) -> Result<(), WriteError> {
    let retries = trial.make_or_open("retries", PRIVATE)?;
    let listed = |folder: &Folder| folder.dir().list().map_err(|e| WriteError::of(folder.path(), &e));
    let numbers = listed(&retries)?;
    let last = numbers.iter().filter_map(|e| e.name.to_str()?.parse::<u32>().ok()).max().unwrap_or(0);
    let place = retries.make(&last.saturating_add(1).to_string(), PRIVATE)?;
    let mut names: Vec<_> = listed(trial)?.into_iter().map(|e| e.name).filter(|n| n != "retries").collect();
    names.sort_by_key(|name| name != "result.json");
    for name in names {
        // The place is new and ours: nothing there can be overwritten.
        rustix::fs::renameat(trial.dir(), name.as_os_str(), place.dir(), name.as_os_str())
            .map_err(|e| WriteError::of(&trial.path().join(&name), &e.into()))?;
    }
    place.sync()?;
    trial.sync()
}

/// A document as Harbor lays it out, without secrets.
fn json(folder: &Folder, scrub: &Scrub, document: &impl Serialize) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut to = serde_json::Serializer::with_formatter(&mut out, indent);
    let wrong = |source: std::io::Error| WriteError::Io { path: folder.path().to_path_buf(), source };
    document.serialize(&mut to).map_err(|e| wrong(e.into()))?;
    let text = String::from_utf8(out).map_err(|e| wrong(std::io::Error::other(e)))?;
    Ok(scrub.json(text).into_bytes())
}
