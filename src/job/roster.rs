//! Every job dir there is below some directories: one entry a job, from its own files alone, and from its
//! trials where those were read. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::facts::{Harness, Layout};
use super::fleet::{Job, JobState, StateKind};
use super::time::{self, Stamp};
use super::trial::Problem;

/// A look at a root that takes longer than this is told: its file system may hang.
pub const SLOW: Duration = Duration::from_secs(5);
/// A job that died longer ago than this needs nobody any more who has not seen it yet.
pub const FRESH: Duration = Duration::from_secs(86_400);
/// Problems that are kept of one job.
const PROBLEMS: usize = 8;

/// Who works on a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerLine {
    /// The program.
    pub harness: Harness,
    /// Its process.
    pub pid: u32,
    /// Command name of the process.
    pub command: Arc<str>,
    /// The host, where it is another one than this.
    pub host: Option<Arc<str>>,
}

/// A score as far as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Trials with primary reward 1.
    pub passed: u64,
    /// Trials with a primary reward that is a number.
    pub graded: u64,
    /// There may be more: Harbor lists no reward of some trials that ended with an exception.
    pub at_least: bool,
}

/// A job that is busy with what nobody asked for: trials that have a score already run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RerunLine {
    /// Its trials that have a score already.
    pub scored: u64,
    /// Of those the solved ones.
    pub solved: u64,
    /// Of those with a score, the ones that run again, or have.
    pub begun: u64,
    /// What happens, with the next step.
    pub message: String,
}

/// One job.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its directory, as it was reached.
    pub dir: PathBuf,
    /// The directory that it was found in; itself where it was named by itself.
    pub root: PathBuf,
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: Option<Arc<str>>,
    /// Which program's layout it has.
    pub layout: Layout,
    /// The program that ran it.
    pub harness: Harness,
    /// The version of it.
    pub version: Option<Arc<str>>,
    /// How it stands.
    pub state: JobState,
    /// Trials that ended.
    pub done: Option<u64>,
    /// Trials that are planned.
    pub planned: Option<u64>,
    /// The score.
    pub score: Option<Standing>,
    /// True when the figures were read from the trials, false when the job's own result says them.
    pub exact: bool,
    /// Who works on it.
    pub owner: Option<OwnerLine>,
    /// Newest modification time met.
    pub last_write: Option<Stamp>,
    /// When it began.
    pub created: Option<Stamp>,
    /// Agent names.
    pub agents: Vec<Arc<str>>,
    /// Model names.
    pub models: Vec<Arc<str>>,
    /// Datasets.
    pub datasets: Vec<Arc<str>>,
    /// What it is busy with that nobody asked for.
    pub rerun: Option<RerunLine>,
    /// What is wrong with its files.
    pub problems: Vec<Problem>,
}

impl Entry {
    /// The entry of a job. `exact`: its trials were read, too; without, its own `result.json` is believed.
    pub fn of(job: &Job, root: &Path, state: JobState, exact: bool) -> Entry {
        let facts = &job.facts;
        let summary = facts.summary.as_ref();
        let results = || job.trials.values().filter_map(|t| t.result.as_ref());
        let (done, score) = if exact {
            let done = results().filter(|r| !r.is_phantom()).count() as u64;
            let graded = results().filter(|r| r.rewards.primary().is_some()).count() as u64;
            let passed = results().filter(|r| r.rewards.primary() == Some(1.0)).count() as u64;
            (Some(done), Some(Standing { passed, graded, at_least: false }))
        } else {
            (summary.and_then(|s| s.n_completed), summary.and_then(|s| s.standing))
        };
        let planned = facts.n_planned().map(|(n, _)| n);
        let owner = job.liveness.owner.as_ref().map(|(pid, command)| OwnerLine {
            harness: facts.harness,
            pid: *pid,
            command: command.clone(),
            host: None,
        });
        Entry {
            dir: facts.dir.clone(),
            root: root.to_path_buf(),
            name: facts.name.clone(),
            id: facts.id.clone(),
            layout: facts.layout,
            harness: facts.harness,
            version: facts.harbor_version.clone(),
            state,
            done,
            planned,
            score,
            exact,
            owner,
            last_write: job.liveness.last_write,
            created: facts.created,
            agents: facts.agents.clone(),
            models: facts.models.clone(),
            datasets: facts.datasets.clone(),
            rerun: None,
            problems: facts.problems.iter().take(PROBLEMS).cloned().collect(),
        }
    }

    /// What it is called in a list: the name of its directory, which tells copies apart.
    pub fn label(&self) -> std::borrow::Cow<'_, str> {
        self.dir.file_name().map_or(std::borrow::Cow::Borrowed(&*self.name), |name| name.to_string_lossy())
    }

    /// True where the job's own result says nothing, or nothing that can be: more ended than planned.
    pub fn is_doubtful(&self) -> bool {
        let more = self.done.zip(self.planned).is_some_and(|(done, planned)| done > planned);
        !self.exact && (self.done.is_none() || self.planned.is_none() || self.score.is_none() || more)
    }

    /// True where only its trials tell how it stands: what its own result says is doubtful, or may not be all.
    pub fn wants_trials(&self) -> bool {
        let more = self.score.is_some_and(|s| s.at_least);
        !self.exact && (self.is_doubtful() || self.state.kind == StateKind::Dead || more)
    }

    /// Whether somebody may still work on it.
    pub fn is_open(&self) -> bool {
        !matches!(self.state.kind, StateKind::Finished | StateKind::Interrupted | StateKind::Dead)
    }

    /// Why it needs a person; None when it does not.
    pub fn needs(&self, now: Stamp) -> Option<(&'static str, String)> {
        if let Some(rerun) = &self.rerun {
            return Some(("rerun", rerun.message.clone()));
        }
        let fresh = self.last_write.is_some_and(|at| time::age(at, now) < FRESH);
        match self.state.kind {
            StateKind::Dead if fresh => Some(("dead", format!("nobody works on it ({})", self.state.evidence))),
            StateKind::Unreachable => Some(("unreachable", self.state.evidence.clone())),
            _ => None,
        }
    }
}

/// What became of a directory that is looked through.
#[derive(Debug, Clone, PartialEq)]
pub enum RootState {
    /// It is being looked through for the first time.
    Reading,
    /// It was, at this time.
    Read(Stamp),
    /// It is not there (any more).
    Gone,
    /// It can not be: why.
    Failed(String),
}

/// A directory that is looked through.
#[derive(Debug, Clone, PartialEq)]
pub struct RootLine {
    /// Its path.
    pub path: PathBuf,
    /// What became of it.
    pub state: RootState,
    /// Since when it is being looked at; None while nobody does.
    pub busy: Option<Stamp>,
    /// Its file system, in a short word.
    pub file_system: &'static str,
    /// What was left out, in words.
    pub left_out: Option<String>,
}

impl RootLine {
    /// Why it needs a person: it can not be read, or does not answer.
    pub fn needs(&self, now: Stamp) -> Option<String> {
        if let Some(since) = self.silent(now) {
            return Some(format!("does not answer for {}", time::words(since.as_secs_f64())));
        }
        match &self.state {
            RootState::Failed(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// How long it has not answered; None when it does.
    pub fn silent(&self, now: Stamp) -> Option<Duration> {
        self.busy.map(|since| time::age(since, now)).filter(|long| *long >= SLOW)
    }
}

/// One piece of news.
#[derive(Debug, Clone, PartialEq)]
pub enum RosterEvent {
    /// A root is being looked at from this moment on. Sent again while work goes on in it.
    Begun(PathBuf, Stamp),
    /// A root was looked at: how it stands, its file system, what was left out.
    Ended(PathBuf, RootState, &'static str, Option<String>),
    /// A root is not looked at any more, nor what was found in it.
    Forgotten(PathBuf),
    /// A job as it is now.
    Entry(Box<Entry>),
    /// A job dir is gone.
    Gone(PathBuf),
}

/// All that is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Roster {
    /// The roots, in the order in which they came.
    pub roots: Vec<RootLine>,
    /// The jobs by directory.
    pub jobs: BTreeMap<PathBuf, Arc<Entry>>,
    /// Grows with every change.
    pub revision: u64,
}

impl Roster {
    /// A roster of these roots, of which nothing is known.
    pub fn of(roots: &[PathBuf]) -> Roster {
        let mut roster = Roster::default();
        for root in roots {
            roster.root(root);
        }
        roster
    }

    fn root(&mut self, path: &Path) -> &mut RootLine {
        let at = self.roots.iter().position(|r| r.path == path).unwrap_or(self.roots.len());
        if at == self.roots.len() {
            self.roots.push(RootLine {
                path: path.to_path_buf(),
                state: RootState::Reading,
                busy: None,
                file_system: "-",
                left_out: None,
            });
        }
        #[allow(clippy::indexing_slicing)] // it was just found or made
        &mut self.roots[at]
    }

    /// Takes in one piece of news.
    pub fn apply(&mut self, event: RosterEvent) {
        self.revision += 1;
        match event {
            RosterEvent::Begun(path, at) => self.root(&path).busy = Some(at),
            RosterEvent::Ended(path, state, file_system, left_out) => {
                let root = self.root(&path);
                (root.state, root.busy, root.file_system, root.left_out) = (state, None, file_system, left_out);
            }
            RosterEvent::Forgotten(path) => {
                self.roots.retain(|r| r.path != path);
                self.jobs.retain(|_, entry| entry.root != path);
            }
            RosterEvent::Entry(entry) => {
                // The same job below two roots is one line: that of the root which found it first.
                if self.jobs.get(&entry.dir).is_none_or(|known| known.root == entry.root) {
                    self.jobs.insert(entry.dir.clone(), Arc::new(*entry));
                }
            }
            RosterEvent::Gone(dir) => drop(self.jobs.remove(&dir)),
        }
    }

    /// True once every root was looked through, or can not be.
    pub fn is_complete(&self) -> bool {
        self.roots.iter().all(|r| r.busy.is_none() && r.state != RootState::Reading)
    }
}

/// What a list of jobs is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Order {
    #[default]
    State,
    LastWrite,
    Name,
    Progress,
    Raw,
    Owner,
    Agent,
    Model,
    Dataset,
}

impl Order {
    /// All, for the menu.
    pub const ALL: [Order; 9] = [
        Order::State,
        Order::LastWrite,
        Order::Name,
        Order::Progress,
        Order::Raw,
        Order::Owner,
        Order::Agent,
        Order::Model,
        Order::Dataset,
    ];

    /// The word for people and files.
    pub fn word(self) -> &'static str {
        match self {
            Order::State => "state",
            Order::LastWrite => "last write",
            Order::Name => "name",
            Order::Progress => "progress",
            Order::Raw => "raw score",
            Order::Owner => "owner",
            Order::Agent => "agent",
            Order::Model => "model",
            Order::Dataset => "dataset",
        }
    }

    /// By its word.
    pub fn by_word(word: &str) -> Option<Order> {
        Order::ALL.into_iter().find(|order| order.word() == word)
    }
}

/// What needs somebody first, then what is at work, then what is over.
fn rank(entry: &Entry) -> u8 {
    match entry.state.kind {
        _ if entry.rerun.is_some() => 0,
        StateKind::Unreachable => 1,
        StateKind::Running => 2,
        StateKind::Reading => 3,
        StateKind::Dead => 4,
        StateKind::Interrupted => 5,
        StateKind::Finished => 6,
    }
}

/// Compares two jobs; what is equal goes by the last write, newest first, then by directory.
pub fn compare(order: Order, a: &Entry, b: &Entry) -> Ordering {
    let share = |n: Option<u64>, of: Option<u64>| n.zip(of).map(|(n, of)| n as f64 / of.max(1) as f64);
    let progress = |e: &Entry| share(e.done, e.planned);
    let raw = |e: &Entry| share(e.score.map(|s| s.passed), e.planned);
    // Unknown comes last.
    let down = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => a.is_none().cmp(&b.is_none()),
    };
    let first = |list: &[Arc<str>]| list.first().cloned();
    let up = |a: Option<Arc<str>>, b: Option<Arc<str>>| (a.is_none(), a).cmp(&(b.is_none(), b));
    let by = match order {
        Order::State => rank(a).cmp(&rank(b)),
        Order::LastWrite => Ordering::Equal,
        Order::Name => a.label().cmp(&b.label()),
        Order::Progress => down(progress(a), progress(b)),
        Order::Raw => down(raw(a), raw(b)),
        Order::Owner => {
            let key = |e: &Entry| e.owner.as_ref().map(|o| (o.host.clone(), o.pid));
            (key(a).is_none(), key(a)).cmp(&(key(b).is_none(), key(b)))
        }
        Order::Agent => up(first(&a.agents), first(&b.agents)),
        Order::Model => up(first(&a.models), first(&b.models)),
        Order::Dataset => up(first(&a.datasets), first(&b.datasets)),
    };
    by.then_with(|| b.last_write.cmp(&a.last_write)).then_with(|| a.dir.cmp(&b.dir))
}

/// A filter of jobs: words, `field:value`, `!not`; all must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    not: bool,
    field: Option<Field>,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    State,
    Agent,
    Model,
    Dataset,
    Owner,
    Name,
    Marked,
}

impl Filter {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Filter, String> {
        let mut terms = Vec::new();
        for word in text.split_whitespace() {
            let (not, word) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest));
            let (field, value) = match word.split_once(':') {
                Some((field, value)) => {
                    let field = match field {
                        "state" => Field::State,
                        "agent" => Field::Agent,
                        "model" => Field::Model,
                        "dataset" => Field::Dataset,
                        "owner" => Field::Owner,
                        "name" | "job" => Field::Name,
                        other => {
                            let known = "state, agent, model, dataset, owner, name";
                            return Err(format!("{other}: no such field; there are {known}, and the word marked"));
                        }
                    };
                    (Some(field), value)
                }
                None if word == "marked" => (Some(Field::Marked), ""),
                None => (None, word),
            };
            // `model:` and `!` are words that are still being typed.
            if !value.is_empty() || field == Some(Field::Marked) {
                terms.push(Term { not, field, value: value.to_lowercase().replace('_', " ") });
            }
        }
        Ok(Filter { terms })
    }

    /// Whether a job passes.
    pub fn matches(&self, entry: &Entry, marked: bool) -> bool {
        self.terms.iter().all(|term| term.hits(entry, marked) != term.not)
    }
}

impl Term {
    fn hits(&self, entry: &Entry, marked: bool) -> bool {
        let has = |text: &str| text.to_lowercase().replace('_', " ").contains(&self.value);
        let any = |list: &[Arc<str>]| list.iter().any(|one| has(one));
        let owner = || match &entry.owner {
            Some(owner) => {
                has(owner.harness.word()) || has(&owner.pid.to_string()) || owner.host.as_ref().is_some_and(|h| has(h))
            }
            None => has("none"),
        };
        let state = || has(entry.state.kind.word());
        match self.field {
            Some(Field::State) => state(),
            Some(Field::Agent) => any(&entry.agents),
            Some(Field::Model) => any(&entry.models),
            Some(Field::Dataset) => any(&entry.datasets),
            Some(Field::Owner) => owner(),
            Some(Field::Name) => has(&entry.name) || has(&entry.label()),
            Some(Field::Marked) => marked,
            None => {
                has(&entry.name)
                    || has(&entry.dir.to_string_lossy())
                    || state()
                    || any(&entry.agents)
                    || any(&entry.models)
                    || any(&entry.datasets)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::job::{Fleet, JobEvent, JobFacts, JobKey};

    fn entry(name: &str, kind: StateKind) -> Entry {
        let mut fleet = Fleet::default();
        let facts = JobFacts { dir: PathBuf::from("/j").join(name), name: name.into(), ..JobFacts::default() };
        fleet.apply(JobEvent::Job(JobKey(0), Box::new(facts)));
        let state = JobState { kind, evidence: String::new(), inferred: false };
        let mut entry = Entry::of(fleet.jobs().first().unwrap(), Path::new("/j"), state, false);
        entry.models = vec!["openai/Big_27B".into()];
        entry
    }

    #[test]
    fn filters_know_fields() {
        let dead = entry("old", StateKind::Dead);
        let hits = |text: &str| Filter::parse(text).unwrap().matches(&dead, true);
        for text in ["", "old", "state:dead", "model:big_27b", "!state:running", "marked", "owner:none", "model:"] {
            assert!(hits(text), "{text}");
        }
        for text in ["new", "state:running", "!old", "!marked", "owner:harbor"] {
            assert!(!hits(text), "{text}");
        }
        assert!(Filter::parse("colour:red").is_err());
        let early = entry("early", StateKind::Interrupted);
        assert!(Filter::parse("state:interrupted").unwrap().matches(&early, false));
    }

    #[test]
    fn what_needs_somebody_stands_first_and_unknown_last() {
        let mut odd = entry("odd", StateKind::Running);
        odd.rerun = Some(RerunLine { scored: 3, solved: 3, begun: 1, message: "3 solved tasks run again".into() });
        let (run, done) = (entry("run", StateKind::Running), entry("done", StateKind::Finished));
        let mut all = [done, run, odd];
        all.sort_by(|a, b| compare(Order::State, a, b));
        assert_eq!(all.each_ref().map(|e| &*e.name), ["odd", "run", "done"]);
        all[2].done = Some(1);
        all[2].planned = Some(2);
        all.sort_by(|a, b| compare(Order::Progress, a, b));
        assert_eq!(&*all[0].name, "done");
        for order in Order::ALL {
            assert_eq!(Order::by_word(order.word()), Some(order));
        }
    }

    #[test]
    fn a_root_that_is_busy_for_long_does_not_answer() {
        let now: Stamp = "2026-11-29T20:00:00Z".parse().unwrap();
        let mut roster = Roster::of(&[PathBuf::from("/j")]);
        roster.apply(RosterEvent::Begun("/j".into(), now));
        assert!(!roster.is_complete());
        assert_eq!(roster.roots[0].needs(now), None);
        assert!(roster.roots[0].needs(now + SLOW).is_some());
        roster.apply(RosterEvent::Entry(Box::new(entry("a", StateKind::Running))));
        roster.apply(RosterEvent::Ended("/j".into(), RootState::Read(now), "ext4", None));
        assert!(roster.is_complete() && roster.roots[0].needs(now + SLOW).is_none());
        roster.apply(RosterEvent::Forgotten("/j".into()));
        assert!(roster.jobs.is_empty() && roster.roots.is_empty());
    }
}
