//! Which trials may be run again: what deserves it by its class or by a person's word, and never a
//! timeout or a valid reward unless somebody says why.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::job::merge::{self, How};
use crate::job::outcome::{is_agent_timeout, is_verifier_timeout};
use crate::job::slots::Slot;
use crate::job::tally::{self, Options, Place, Row, Tally};
use crate::job::trial::short_name;
use crate::job::{
    Class, Classification, Fleet, Job, JobEvent, JobKey, Phase, Stamp, StateKind, Trial, Verdict, Writer, time,
};

/// How often a trial may fail the same way before it is accepted as it is.
pub const CAP: u32 = 3;
/// Seconds that a job which was started may take until its directory is there: Harbor needs up to 20.
const BEGINS: f64 = 120.0;

/// What is to be run again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// These trials, by the names of their directories (or of their tasks).
    pub trials: Vec<Arc<str>>,
    /// All of class infra, suspected or confirmed.
    pub infra: bool,
    /// All without any reward that failed for their surroundings, were stopped, or never ended.
    pub unscored: bool,
}

/// What the operator allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The reason for running again what has a valid reward, ran into its limit, or failed alike too
    /// often.
    pub force: Option<Arc<str>>,
    /// What was wrong with the config is mended.
    pub config_fixed: bool,
    /// How often a trial may fail the same way, see [`CAP`].
    pub cap: u32,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { force: None, config_fixed: false, cap: CAP }
    }
}

/// A requeue that a journal tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Directory name of the trial that was requeued.
    pub trial: Arc<str>,
    /// The directory of the new job.
    pub into: PathBuf,
    /// Whether that directory is there.
    pub there: bool,
    /// When.
    pub at: Option<Stamp>,
}

/// What is known beside the fleet, by job and directory name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Exception types of attempts that were set aside by retries, `-` for one without.
    pub retries: BTreeMap<(JobKey, Arc<str>), Vec<Arc<str>>>,
    /// Requeues of the past.
    pub past: Vec<Past>,
}

/// A trial that is to be run again.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Its job.
    pub job: JobKey,
    /// Directory name.
    pub trial: Arc<str>,
    /// Task short name.
    pub task: Arc<str>,
    /// Result id of the attempt.
    pub result_id: Option<Arc<str>>,
    /// Its class, where it is known.
    pub class: Option<Class>,
    /// `class/sub-class by rule: reason`, or what else speaks for it.
    pub why: String,
    /// Attempts at its slot so far, over all jobs of the lineage, retries included.
    pub attempts: u32,
    /// How many of them failed in the same way.
    pub alike: u32,
    /// It is run again only because the operator insists.
    pub forced: bool,
}

/// What would let a refused trial be run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// `--force --reason TEXT`.
    Force,
    /// `--config-fixed`.
    ConfigFixed,
    /// Waiting for the end of what runs.
    Wait,
    /// Nothing.
    No,
}

impl Way {
    /// In words, for the end of a line; empty where there is none.
    pub fn words(self) -> &'static str {
        match self {
            Way::Force => "--force --reason TEXT runs it all the same",
            Way::ConfigFixed => "--config-fixed says that it is mended",
            Way::Wait => "wait for its end, or stop it",
            Way::No => "",
        }
    }
}

/// A trial that is not run again, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its job; None where no trial fits the name.
    pub job: Option<JobKey>,
    /// Directory name, or the name that was asked for.
    pub trial: Arc<str>,
    /// Task short name, `-` where unknown.
    pub task: Arc<str>,
    /// Why.
    pub why: String,
    /// What would change that.
    pub way: Way,
}

/// What came of a wish.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selection {
    /// These are run again, in the order of the count.
    pub picks: Vec<Pick>,
    /// These are not, though they were wanted.
    pub refused: Vec<Refused>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// The jobs that descend from one another by lineage, seen from one of them: it, its ancestors, their
/// descendants.
pub fn family(fleet: &Fleet, job: JobKey) -> Vec<JobKey> {
    fn descends(child: &Job, parent: &Job) -> bool {
        let lineage = child.facts.lineage.iter().chain(child.notebook.origins());
        let offspring = |dir: &Arc<str>| merge::is_at(dir, child);
        lineage.into_iter().any(|name| merge::names(name, parent)) || parent.notebook.offspring().any(offspring)
    }
    let mut out = vec![job];
    loop {
        let known: Vec<&Job> = out.iter().filter_map(|key| fleet.job(*key)).collect();
        let related = |other: &&Job| known.iter().any(|one| descends(other, one) || descends(one, other));
        let more: Vec<JobKey> =
            fleet.jobs().iter().filter(|j| !out.contains(&j.key)).filter(related).map(|j| j.key).collect();
        if more.is_empty() {
            out.sort();
            return out;
        }
        out.extend(more);
    }
}

/// A part of a fleet as a fleet of its own.
fn part(fleet: &Fleet, keys: &[JobKey]) -> Fleet {
    let mut out = Fleet::default();
    for job in fleet.jobs().iter().filter(|j| keys.contains(&j.key)) {
        out.apply(JobEvent::Job(job.key, Box::new(job.facts.clone())));
        out.apply(JobEvent::Liveness(job.key, job.liveness.clone()));
        for trial in job.trials.values() {
            out.apply(JobEvent::Trial(job.key, Box::new(trial.clone())));
        }
        for (name, class) in &job.classes {
            out.apply(JobEvent::Class(job.key, name.clone(), Some(class.clone())));
        }
        out.apply(JobEvent::Notebook(job.key, Box::new(job.notebook.clone())));
        if job.settled {
            out.apply(JobEvent::Settled(job.key));
        }
        if let Some(problem) = &job.unreachable {
            out.apply(JobEvent::Unreachable(job.key, problem.clone()));
        }
    }
    out
}

/// Chooses among the trials of a job and of those that belong to its lineage.
pub fn select(fleet: &Fleet, job: JobKey, wanted: &Wanted, terms: &Terms, known: &Known, now: Stamp) -> Selection {
    let keys = family(fleet, job);
    let fleet = part(fleet, &keys);
    let how = (keys.len() > 1).then_some(How::Passes);
    let options = Options { how, ..Options::default() };
    let mut out = Selection::default();
    let tally = match tally::count(&fleet, &options, now) {
        Ok(tally) => tally,
        Err(refusal) => {
            out.notes.push(refusal.to_string());
            return out;
        }
    };
    let view = View::new(&fleet, &tally, terms, known, now);
    let names: HashSet<&str> = wanted.trials.iter().map(|name| &**name).collect();
    let mut met: HashSet<&str> = HashSet::new();
    for row in &tally.rows {
        let Some((job, trial)) = view.of(row) else { continue };
        let short = short_name(&trial.name);
        let marked = names.get(&*trial.name).or_else(|| names.get(short)).or_else(|| names.get(&*trial.task)).copied();
        if row.place == Place::Duplicate {
            continue;
        }
        met.extend(marked);
        // By the name of a task the trial that stands in its slot is meant.
        let marked = marked.filter(|name| [&*trial.name, short].contains(name) || row.place == Place::Chosen);
        if marked.is_none() && !view.swept(job, trial, row, wanted) {
            continue;
        }
        match view.judge(job, trial, row) {
            Ok(pick) => out.picks.push(pick),
            Err((why, way)) => out.refused.push(Refused {
                job: Some(job.key),
                trial: trial.name.clone(),
                task: trial.task.clone(),
                why,
                way,
            }),
        }
    }
    for name in wanted.trials.iter().filter(|name| !met.contains(&***name)) {
        let why = "no trial or task of this name in the job".to_string();
        out.refused.push(Refused { job: None, trial: name.clone(), task: "-".into(), why, way: Way::No });
    }
    let idle = |row: &&Row| row.trial.is_none() && row.phase == Phase::Queued && view.writer(row.job) == Writer::Gone;
    let never = tally.rows.iter().filter(idle).count();
    if never > 0 {
        out.notes
            .push(format!("{never} planned trials were never begun: they are not requeued, resume the job for them"));
    }
    out
}

struct View<'a> {
    fleet: &'a Fleet,
    terms: &'a Terms,
    known: &'a Known,
    now: Stamp,
    /// Rows of each slot.
    by_slot: HashMap<&'a Slot, Vec<&'a Row>>,
    /// Trials that are being worked on: job index and name.
    working: HashSet<(usize, &'a str)>,
    /// Jobs that have yet to end a trial of a task, and may.
    open: HashMap<&'a str, Vec<&'a Job>>,
}

impl<'a> View<'a> {
    fn new(fleet: &'a Fleet, tally: &'a Tally, terms: &'a Terms, known: &'a Known, now: Stamp) -> View<'a> {
        let mut by_slot: HashMap<&Slot, Vec<&Row>> = HashMap::new();
        let mut working = HashSet::new();
        for row in tally.rows.iter().filter(|row| row.place != Place::Duplicate) {
            if let Some(slot) = &row.slot {
                by_slot.entry(slot).or_default().push(row);
            }
            if let Some(name) = row.trial.as_deref().filter(|_| row.phase.is_running()) {
                working.insert((row.job, name));
            }
        }
        let mut open: HashMap<&str, Vec<&Job>> = HashMap::new();
        for job in fleet.jobs().iter().filter(|job| job.writer(now) == Writer::Possible) {
            let mut left: HashMap<&str, i64> = HashMap::new();
            for planned in job.facts.planned.iter().flatten() {
                *left.entry(&planned.task).or_default() += i64::from(planned.n);
            }
            for trial in job.trials.values().filter(|t| t.result.is_some()) {
                *left.entry(&trial.task).or_default() -= 1;
            }
            for (task, _) in left.into_iter().filter(|(_, n)| *n > 0) {
                open.entry(task).or_default().push(job);
            }
        }
        View { fleet, terms, known, now, by_slot, working, open }
    }

    fn of(&self, row: &Row) -> Option<(&'a Job, &'a Trial)> {
        let job = self.fleet.jobs().get(row.job)?;
        Some((job, job.trials.get(row.trial.as_ref()?)?))
    }

    fn writer(&self, job: usize) -> Writer {
        self.fleet.jobs().get(job).map_or(Writer::Possible, |job| job.writer(self.now))
    }

    /// Whether a sweep over the whole job takes the trial in. What stands no longer in its slot is left
    /// out silently: somebody else took care of it.
    fn swept(&self, job: &Job, trial: &Trial, row: &Row, wanted: &Wanted) -> bool {
        if row.place != Place::Chosen && !self.holder_works(row) {
            return false;
        }
        let class = self.class(job, trial, row);
        let confirmed = job.verdict_of(trial) == Some(Verdict::InfraConfirmed);
        let unscored = trial.result.as_ref().is_none_or(|r| r.rewards.primary().is_none());
        wanted.infra && (class == Some(Class::Infra) || confirmed)
            || wanted.unscored && unscored && class.is_some_and(Class::is_excluded)
    }

    /// The trial that stands in its slot instead is being worked on: what comes of it is not known.
    fn holder_works(&self, row: &Row) -> bool {
        row.superseded_by.as_ref().is_some_and(|(job, name)| self.working.contains(&(*job, &**name)))
    }

    /// Its class: as the rules say it, else what its result alone says beyond doubt.
    fn class(&self, job: &Job, trial: &Trial, row: &Row) -> Option<Class> {
        if let Some(class) = job.class_of(trial) {
            return Some(class.class);
        }
        let Some(result) = &trial.result else {
            return (row.phase == Phase::Orphaned).then_some(Class::Orphaned);
        };
        match result.exception_type().map(|kind| &**kind) {
            _ if result.is_cancelled() => Some(Class::Cancelled),
            _ if result.is_phantom() => Some(Class::Phantom),
            Some(kind) if is_agent_timeout(kind) => Some(Class::AgentTimeout),
            Some(kind) if is_verifier_timeout(kind) => Some(Class::VerifierTimeout),
            _ if result.is_of_environment() && !result.has_valid_reward() => Some(Class::Infra),
            _ => None,
        }
    }

    fn judge(&self, job: &Job, trial: &Trial, row: &Row) -> Result<Pick, (String, Way)> {
        self.worked_on(job, trial, row)?;
        if let Some((at, instead)) = row.superseded_by.as_ref().filter(|_| row.place == Place::Superseded) {
            let by = self.fleet.jobs().get(*at).map(|j| j.facts.name.clone()).unwrap_or_default();
            return Err((format!("{instead} of {by} stands in its slot"), Way::No));
        }
        let class = self.class(job, trial, row);
        let said = job.class_of(trial);
        let verdict = job.verdict_of(trial);
        let forced = match self.seal(trial, class, verdict) {
            None => false,
            Some((why, way)) if way != Way::Force || self.terms.force.is_none() => return Err((why, way)),
            Some(_) => true,
        };
        let (attempts, alike) = self.history(job, trial, row);
        let capped = alike >= self.terms.cap;
        let why = reason(trial, class, said.map(|c| &**c), verdict);
        if capped && self.terms.force.is_none() {
            return Err((format!("failed the same way {alike} times ({why}): accept it or force it"), Way::Force));
        }
        Ok(Pick {
            job: job.key,
            trial: trial.name.clone(),
            task: trial.task.clone(),
            result_id: trial.result.as_ref().and_then(|r| r.id.clone()),
            class,
            why,
            attempts,
            alike,
            forced: forced || capped,
        })
    }

    /// Somebody works on the trial or on its slot.
    fn worked_on(&self, job: &Job, trial: &Trial, row: &Row) -> Result<(), (String, Way)> {
        let wait = |words: String| Err((words, Way::Wait));
        if trial.result.is_none() && row.phase != Phase::Orphaned && row.phase != Phase::Unreadable {
            return wait(format!("it is still being worked on ({})", row.phase.word()));
        }
        // A slot that another job of the lineage has planned and not yet ended has no row of its own.
        let mut open = self.open.get(&*trial.task).into_iter().flatten();
        if let Some(rival) = open.find(|other| other.key != job.key) {
            return wait(format!("{} works on its task", rival.facts.name));
        }
        for past in self.known.past.iter().filter(|past| past.trial == trial.name) {
            let into = self.fleet.jobs().iter().find(|j| j.facts.dir == past.into);
            let name = past.into.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // It has no plan yet, so that no slot shows it.
            let begins = |j: &Job| {
                j.key != job.key
                    && matches!(j.state(self.now).kind, StateKind::Running | StateKind::Reading)
                    && j.facts.planned.is_none()
            };
            let age = past.at.map_or(f64::INFINITY, |at| time::age(at, self.now).as_secs_f64());
            match into {
                Some(other) if begins(other) => return wait(format!("{name} works on its slot (starting)")),
                None if !past.there && age < BEGINS => {
                    return wait(format!("it was requeued {} ago as {name}, which has not begun", time::words(age)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What keeps a trial as it is, unless the operator says otherwise.
    fn seal(&self, trial: &Trial, class: Option<Class>, verdict: Option<Verdict>) -> Option<(String, Way)> {
        if let Some(regrade) = trial.regrade() {
            return Some((format!("it was graded again, validly ({})", regrade.words()), Way::Force));
        }
        let force = |words: &str| Some((words.to_string(), Way::Force));
        match verdict {
            Some(Verdict::InfraConfirmed) => return None,
            Some(Verdict::Inconclusive) | None => {}
            Some(other) => return force(&format!("its verdict is {}", other.word())),
        }
        match class {
            Some(Class::Infra | Class::Cancelled | Class::Phantom | Class::Orphaned) => return None,
            Some(Class::Config) if self.terms.config_fixed => return None,
            Some(Class::Config) => {
                return Some(("the config was wrong: it would fail again".to_string(), Way::ConfigFixed));
            }
            Some(Class::AgentTimeout) => return force("it had its time: a timeout is never run again"),
            Some(Class::VerifierTimeout) => {
                return force("its tests ran into their limit: a timeout is never run again");
            }
            Some(Class::AgentError) => return force("it failed by its agent's own doing"),
            Some(Class::ContextExceeded) => return force("its agent used up the context of its model"),
            _ => {}
        }
        let result = trial.result.as_ref()?;
        // Whatever its clock says: who set the limit is not known.
        if result.exception_type().is_some_and(|kind| is_agent_timeout(kind) || is_verifier_timeout(kind)) {
            return force("it ended by a timeout: a timeout is never run again");
        }
        match result.rewards.primary() {
            Some(reward) if result.has_valid_reward() => force(&format!("it has a valid reward ({reward})")),
            _ => None,
        }
    }

    /// Attempts at the slot, and how many of them failed like this one.
    fn history(&self, job: &Job, trial: &Trial, row: &Row) -> (u32, u32) {
        let mark = |job: &Job, trial: &Trial| {
            let class = job.class_of(trial).map(|c| (c.class, c.sub.clone()));
            let kind = trial.result.as_ref().and_then(|r| r.exception_type().cloned());
            (class, kind)
        };
        let mine = mark(job, trial);
        // Whoever was stopped did not fail.
        let counts = trial.result.as_ref().is_some_and(|r| !r.is_cancelled() && !r.is_phantom());
        let (mut attempts, mut alike) = (0, 0);
        for other in row.slot.as_ref().and_then(|slot| self.by_slot.get(slot)).into_iter().flatten() {
            let Some((other_job, other_trial)) = self.of(other) else { continue };
            attempts += 1;
            alike += u32::from(counts && mark(other_job, other_trial) == mine);
            let aside = self.known.retries.get(&(other_job.key, other_trial.name.clone()));
            for kind in aside.into_iter().flatten() {
                attempts += 1;
                alike += u32::from(counts && mine.1.as_ref() == Some(kind));
            }
        }
        (attempts.max(1), alike)
    }
}

/// Why a trial is run again, in words.
fn reason(trial: &Trial, class: Option<Class>, said: Option<&Classification>, verdict: Option<Verdict>) -> String {
    let confirmed = if verdict == Some(Verdict::InfraConfirmed) { "confirmed " } else { "" };
    if let Some(said) = said {
        let sub = said.sub.as_ref().map(|sub| format!("/{sub}")).unwrap_or_default();
        return format!("{confirmed}{}{sub} by {}: {}", said.class.word(), said.rule, said.why);
    }
    match (class, trial.result.as_ref().and_then(|r| r.exception_type())) {
        (Some(class), Some(kind)) => format!("{confirmed}{} ({kind})", class.word()),
        (Some(class), None) => format!("{confirmed}{}", class.word()),
        (None, Some(kind)) => format!("{confirmed}{kind}, no class"),
        (None, None) => format!("{confirmed}no class"),
    }
}
