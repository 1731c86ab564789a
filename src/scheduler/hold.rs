//! Containers that outlive their trials: held where the verifier's answer can not be trusted, so that it can
//! run again in them.
//!
//! A held container is paused and takes no slot. How many there are, what memory they take and how old they
//! get is bounded per job: the oldest goes first. The age is kept by the job's own process, as long as it
//! lives; afterwards what is too old is listed as such, by every start, `held` and `clean`, and removed on an
//! operator's word.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::trial::Places;
use crate::environment::{Environment, HeldKind, HeldRecord, HeldRecords, SnapshotAsk, TakenAside};
use crate::job::{Stamp, time};

/// Between two looks for what is too old.
const LOOK: Duration = Duration::from_secs(5);

/// What is held that is told of line by line.
const SHOWN: usize = 8;

/// How much may be held of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Most containers, and most snapshots.
    pub max: usize,
    /// Most bytes of memory of all held containers.
    pub memory: u64,
    /// For how long.
    pub age: Duration,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps { max: 4, memory: 4 << 30, age: Duration::from_secs(24 * 3600) }
    }
}

/// How snapshots are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotTerms {
    /// Most bytes that a container may have written.
    pub bytes: u64,
    /// Longest time.
    pub time: Duration,
}

impl Default for SnapshotTerms {
    fn default() -> SnapshotTerms {
        SnapshotTerms { bytes: 2 << 30, time: Duration::from_secs(60) }
    }
}

/// What a job holds, and how.
#[derive(Debug, Clone)]
pub struct HoldTerms {
    /// Containers are held; else only snapshots are kept.
    pub hold: bool,
    /// How much.
    pub caps: Caps,
    /// Snapshots are made before the tests; None: none.
    pub snapshots: Option<SnapshotTerms>,
    /// The state dir, for the records.
    pub state_dir: PathBuf,
}

/// Hears in a line what was held and let go: the trial, why, what was done.
pub type HearHeld = Arc<dyn Fn(&str, &str, &str) + Send + Sync>;

/// Which of what is held has to go before one more comes that takes so much memory, oldest first; None: it
/// can not be held at all. `held` is in order of age, with its memory.
fn room(held: &[u64], memory: u64, caps: &Caps) -> Option<usize> {
    if caps.max == 0 || memory > caps.memory {
        return None;
    }
    let mut go = 0;
    let left = |go: usize| held.iter().skip(go);
    while left(go).count() + 1 > caps.max || left(go).sum::<u64>().saturating_add(memory) > caps.memory {
        go += 1;
        if go > held.len() {
            return None;
        }
    }
    Some(go)
}

/// Holds containers of one job.
pub struct Holder {
    terms: HoldTerms,
    job_id: String,
    job_dir: PathBuf,
    engine: String,
    places: Arc<dyn Places>,
    records: HeldRecords,
    held: Mutex<Vec<HeldRecord>>,
    hear: Option<HearHeld>,
}

impl Holder {
    /// For a job. Nothing is made yet.
    pub fn new(
        terms: HoldTerms,
        (job_id, job_dir): (&str, PathBuf),
        engine: &str,
        places: Arc<dyn Places>,
        hear: Option<HearHeld>,
    ) -> Holder {
        Holder {
            records: HeldRecords::of(&terms.state_dir),
            terms,
            job_id: job_id.to_string(),
            job_dir: std::path::absolute(&job_dir).unwrap_or(job_dir),
            engine: engine.to_string(),
            places,
            held: Mutex::default(),
            hear,
        }
    }

    /// Takes over what an earlier owner of the job held.
    pub async fn take_over(&self, records: Vec<HeldRecord>) {
        self.held.lock().await.extend(records.into_iter().filter(|r| r.job_id == self.job_id));
    }

    /// Whether containers are held.
    pub(super) fn holds(&self) -> bool {
        self.terms.hold
    }

    /// Whether verifiers are to be marked, so that what they leave running can be ended.
    pub(super) fn marks(&self) -> bool {
        self.terms.hold
    }

    fn tell(&self, trial: &str, why: &str, what: &str) {
        if let Some(hear) = &self.hear {
            hear(trial, why, what);
        }
    }

    /// What is held at the end of the run, in lines; none where nothing is.
    pub async fn summary(&self) -> Vec<String> {
        let held = self.held.lock().await;
        let mut out: Vec<String> = held
            .iter()
            .take(SHOWN)
            .map(|r| {
                let until = until(r).map_or("-".to_string(), |until| format!("{until:.0}"));
                format!("held for a regrade until {until}: {} of {}: {}", r.kind.word(), r.trial, r.why)
            })
            .collect();
        if held.len() > SHOWN {
            out.push(format!("and {} more", held.len() - SHOWN));
        }
        if !held.is_empty() {
            out.push(
                "this run has ended: nobody removes them when their age is over; pilothouse regrade TRIAL_DIR runs a \
                 verifier again, pilothouse held lists and removes"
                    .to_string(),
            );
        }
        out
    }

    /// Removes what is too old, for as long as it is polled.
    pub async fn keep_age(&self) {
        // What is being graded again right now has a little longer.
        let free = |r: &HeldRecord| self.records.lock(&r.id).is_ok_and(|lock| lock.is_some());
        loop {
            tokio::time::sleep(LOOK.min(self.terms.caps.age.max(Duration::from_millis(100)))).await;
            let now = Stamp::now();
            let mut held = self.held.lock().await;
            let old = |r: &HeldRecord| until(r).is_some_and(|until| until <= now);
            while let Some(at) = held.iter().position(|r| old(r) && free(r)) {
                let record = held.remove(at);
                self.let_go(&record, "its age is over").await;
            }
        }
    }

    /// Lets go what an earlier attempt of a trial left: the trial begins anew.
    pub(super) async fn forget_trial(&self, trial: &str) {
        let mut held = self.held.lock().await;
        while let Some(at) = held.iter().position(|r| r.trial == trial) {
            let record = held.remove(at);
            self.let_go(&record, "its trial is tried again").await;
        }
    }

    /// Copies a container's files before its tests. What that came to, in a line.
    pub(super) async fn snapshot(&self, environment: &dyn Environment) -> Option<Result<TakenAside, String>> {
        let terms = self.terms.snapshots?;
        let ask = SnapshotAsk { bytes: terms.bytes, time: terms.time, since: Stamp::now() };
        Some(environment.snapshot(&ask).await.map_err(|e| e.to_string()))
    }

    /// Keeps a snapshot, whose tests were not to be trusted.
    pub(super) async fn keep_snapshot(&self, trial: &str, taken: &TakenAside, why: &str) -> Result<String, String> {
        let mut held = self.held.lock().await;
        self.make_room(&mut held, HeldKind::Snapshot, 0).await.ok_or("nothing may be kept (--hold-max)")?;
        let record = self.record(HeldKind::Snapshot, trial, taken, why, Stamp::now());
        let words = self.write(record, &mut held)?;
        self.tell(trial, why, &words);
        Ok(words)
    }

    /// Removes a snapshot that is not needed.
    pub(super) async fn drop_snapshot(&self, taken: &TakenAside) -> Result<(), String> {
        self.places.release(HeldKind::Snapshot, &taken.id, &taken.name).await.map_err(|e| e.to_string())
    }

    /// Holds a container. `apart` moves the verifier's directory once nothing writes there any more. What was
    /// done, in a line.
    ///
    /// # Errors
    /// Why it is not held; it is gone then, or still to be stopped, which `true` tells.
    pub(super) async fn hold(
        &self,
        environment: &dyn Environment,
        trial: &str,
        why: &str,
        apart: impl Future<Output = Result<(), String>>,
    ) -> Result<String, (String, bool)> {
        if self.terms.caps.max == 0 {
            return Err(("none may be (--hold-max 0)".to_string(), true));
        }
        // One at a time: nobody else counts meanwhile.
        let mut held = self.held.lock().await;
        let since = Stamp::now();
        let taken = environment.hold(since).await.map_err(|e| (e.to_string(), true))?;
        let memory = taken.memory.unwrap_or(0);
        if self.make_room(&mut held, HeldKind::Container, memory).await.is_none() {
            let (took, may) = (memory >> 20, self.terms.caps.memory >> 20);
            let why = format!("it takes {took} MiB of memory, and {may} MiB may be held (--hold-memory)");
            return Err((self.give_up(&taken, why).await, false));
        }
        if let Err(why) = apart.await {
            return Err((self.give_up(&taken, why).await, false));
        }
        let record = self.record(HeldKind::Container, trial, &taken, why, since);
        match self.write(record, &mut held) {
            Ok(words) => {
                self.tell(trial, why, &words);
                Ok(words)
            }
            // It is found by its name all the same.
            Err(error) => Ok(format!("held as {}, but not recorded: {error}", taken.name)),
        }
    }

    /// Removes what was taken aside and can not be held; why, and what of it stays.
    async fn give_up(&self, taken: &TakenAside, why: String) -> String {
        match self.places.release(HeldKind::Container, &taken.id, &taken.name).await {
            Ok(()) => why,
            Err(e) => format!("{why}; {e}"),
        }
    }

    /// Lets the oldest go until one more fits; None: it never does.
    async fn make_room(&self, held: &mut Vec<HeldRecord>, kind: HeldKind, memory: u64) -> Option<()> {
        // What is being graded again takes its place, and does not go.
        let busy = |r: &HeldRecord| self.records.lock(&r.id).is_ok_and(|lock| lock.is_none());
        let of_kind: Vec<usize> =
            held.iter().enumerate().filter(|(_, r)| r.kind == kind && !busy(r)).map(|(at, _)| at).collect();
        let takes: Vec<u64> = of_kind.iter().filter_map(|at| held.get(*at)).map(|r| r.memory.unwrap_or(0)).collect();
        let go = room(&takes, memory, &self.terms.caps)?;
        for at in of_kind.into_iter().take(go).rev() {
            let record = held.remove(at);
            self.let_go(&record, "the caps: the oldest goes first").await;
        }
        Some(())
    }

    fn record(&self, kind: HeldKind, trial: &str, taken: &TakenAside, why: &str, since: Stamp) -> HeldRecord {
        let until = since.checked_add(self.terms.caps.age).ok();
        HeldRecord {
            schema_version: 1,
            kind,
            id: taken.id.clone(),
            name: taken.name.clone(),
            job_id: self.job_id.clone(),
            job_dir: self.job_dir.clone(),
            trial: trial.to_string(),
            since: since.to_string(),
            until: until.map(|until| until.to_string()),
            why: why.to_string(),
            memory: taken.memory,
            bytes: taken.bytes,
            engine: self.engine.clone(),
        }
    }

    fn write(&self, record: HeldRecord, held: &mut Vec<HeldRecord>) -> Result<String, String> {
        let age = time::words(self.terms.caps.age.as_secs_f64());
        let words = format!("{} held as {} for {age}: {}", record.kind.word(), record.name, record.why);
        let written = self.records.write(&record).map_err(|e| e.to_string());
        held.push(record);
        written.map(|()| words)
    }

    async fn let_go(&self, record: &HeldRecord, why: &str) {
        match self.places.release(record.kind, &record.id, &record.name).await {
            Ok(()) => {
                let _ = self.records.forget(&record.id);
                self.tell(&record.trial, why, &format!("{} {} is not held any more", record.kind.word(), record.name));
            }
            Err(e) => self.tell(&record.trial, why, &format!("{} {} stays: {e}", record.kind.word(), record.name)),
        }
    }
}

fn until(record: &HeldRecord) -> Option<Stamp> {
    record.until.as_deref().and_then(time::parse).map(|read| read.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let caps = Caps { max: 3, memory: 100, age: Duration::from_secs(1) };
        assert_eq!(room(&[], 10, &caps), Some(0));
        assert_eq!(room(&[10, 10], 10, &caps), Some(0));
        assert_eq!(room(&[10, 10, 10], 10, &caps), Some(1));
        assert_eq!(room(&[60, 30, 10], 50, &caps), Some(1));
        assert_eq!(room(&[60, 30, 10], 95, &caps), Some(3));
        assert_eq!(room(&[60], 101, &caps), None);
        assert_eq!(room(&[], 1, &Caps { max: 0, ..caps }), None);
    }
}
