//! What the files of a trial without readable result show.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::probe::{Counters, FileId, Identity, Look, Memory, STABLE, STABLE_AGE, Seen, Sighting};
use crate::harbor::config::{self, TrialConfigFile};
use crate::harbor::dir::{Dir, EntryKind, Meta};
use crate::harbor::result::TrialResultFile;
use crate::harbor::{early, trajectory};
use crate::job::{
    EarlyException, EarlyReward, Evidence, FileFact, Limits, Problem, ProblemKind, Progress, RewardValue, Stamp, Trial,
    time,
};

/// Names of which at least one makes a directory a trial's.
const OF_A_TRIAL: &[&str] =
    &["lock.json", "config.json", "trial.log", "exception.txt", "agent", "verifier", "artifacts", "steps"];
/// Most of a trial's `config.json` that is read; real ones have a few kB.
const CONFIG_CAP: u64 = 4 << 20;
/// Most of a reward file that is read.
const REWARD_CAP: u64 = 1 << 20;
/// The end of a traceback, where the exception's name is.
const EXCEPTION_TAIL: u64 = 64 << 10;
/// A trajectory above this size is read again at most for a tenth of the time: Harbor writes the
/// whole of it anew with every episode.
const BIG_TRAJECTORY: u64 = 2 << 20;
/// Steps of a multi-step trial that are remembered; more is not a task but an attack.
const MAX_STEPS: usize = 1000;
/// Kernels keep file times in ticks: two writes closer than this may leave the same time, so that a
/// file this young is read once more.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// What is remembered of an unfinished trial.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    identity: Option<Identity>,
    /// Every path that was looked at, with what was there; nothing at all has to be opened while
    /// these are the same.
    print: Vec<(Box<str>, Option<FileId>)>,
    /// Something has to be read again although nothing changed.
    pending: bool,
    config: Option<(Option<FileId>, FileFact, TrialConfigFile)>,
    /// A config that could not be parsed, and since when it has been the same.
    config_torn: Option<(FileId, Instant)>,
    lock: Option<(FileId, TrialConfigFile)>,
    trajectories: BTreeMap<Box<str>, Tracked<Progress>>,
    reward: Option<Reward>,
    exception: Option<(Option<FileId>, EarlyException)>,
    steps: Vec<Arc<str>>,
    shown: Option<Box<Trial>>,
    dirs: Vec<Box<str>>,
}

/// The last good reading of a file, and the state of the file when it was last tried.
#[derive(Debug, Clone)]
struct Tracked<T> {
    tried: Option<FileId>,
    inode_state: u64,
    good: Option<T>,
    parsed: Option<(Instant, Duration)>,
    /// When the last good reading was written.
    written: Option<Stamp>,
}

/// A reward file as last read.
#[derive(Debug)]
struct Reward {
    path: Box<str>,
    read: Option<FileId>,
    reward: EarlyReward,
    /// What is wrong with it.
    odd: Option<Arc<str>>,
}

impl Unfinished {
    /// True when nothing that was looked at last time differs now.
    pub fn unchanged(&self, look: &Look<'_>, name: &str) -> bool {
        if self.pending || self.print.is_empty() {
            return false;
        }
        let dir = look.job.glance(name).ok();
        let same = |(rel, id): &(Box<str>, Option<FileId>)| {
            Counters::add(&look.counters.stats);
            dir.as_ref().and_then(|dir| dir.stat(rel).ok()).as_ref().map(FileId::from) == *id
        };
        self.print.iter().all(same)
    }

    /// Newest modification time met.
    pub fn newest(&self) -> Option<Stamp> {
        self.shown.as_ref().and_then(|t| t.evidence.as_ref()).and_then(|e| e.newest)
    }

    /// The directories in which something may happen next, relative to the trial's own, which comes
    /// first as an empty text.
    pub fn dirs(&self) -> &[Box<str>] {
        &self.dirs
    }

    /// True when the file at `rel` was there, not empty, at the last look, so that its growth tells
    /// nothing new.
    pub fn has_grown(&self, rel: &str) -> bool {
        self.print.iter().any(|(path, id)| **path == *rel && id.is_some_and(|id| id.size() > 0))
    }

    /// Has the next look read everything: there was an event, whatever the times say.
    pub fn expect_change(&mut self) {
        self.pending = true;
    }

    /// True when the limit of one of these tasks would be news; the next look then reads everything
    /// again.
    pub fn wants_limit(&mut self, tasks: &[Arc<str>]) -> bool {
        let wants = self.shown.as_ref().is_some_and(|t| t.limits.agent.is_none() && tasks.contains(&t.task));
        self.pending |= wants;
        wants
    }
}

/// A trial of which nothing but its name is known.
pub(super) fn blank(name: &str) -> Trial {
    Trial {
        name: Arc::from(name),
        task: Arc::from(task_of(name)),
        agent: None,
        model: None,
        result: None,
        evidence: None,
        limits: Limits::default(),
        problems: Vec::new(),
        unreadable: false,
        regrades: Vec::new(),
    }
}

/// The task as far as the directory's name tells: without the random end.
fn task_of(name: &str) -> &str {
    name.rsplit_once("__").map_or(name, |(task, _)| task)
}

/// True for a name as Harbor makes them: `<task>__<7 characters>`.
pub(super) fn looks_like_trial(name: &str) -> bool {
    name.rsplit_once("__").is_some_and(|(task, random)| {
        !task.is_empty() && random.len() == 7 && random.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

/// A finished trial, from its result; its task has been looked up once for all its trials.
pub(super) fn finished(file: TrialResultFile, limits: Limits, name: &str, path: &Arc<str>) -> Trial {
    let mut trial = blank(name);
    let config = &file.config;
    trial.task = config.task.clone().unwrap_or_else(|| {
        let short = file.result.task_name.rsplit('/').next().unwrap_or_default();
        if short.is_empty() { trial.task.clone() } else { Arc::from(short) }
    });
    trial.agent.clone_from(&config.agent);
    trial.model.clone_from(&config.model);
    trial.limits = limits;
    for note in &file.notes {
        trial.problems.push(Problem {
            kind: ProblemKind::Unreadable,
            path: path.clone(),
            message: Arc::from(&*crate::job::text::clean(note)),
        });
    }
    if let Some((key, RewardValue::Unreadable(value))) = file.result.rewards.primary_entry() {
        let message = format!("reward {key} is {value}, not a number");
        trial.problems.push(Problem {
            kind: ProblemKind::RewardUnreadable,
            path: path.clone(),
            message: Arc::from(&*crate::job::text::clean(&message)),
        });
    }
    trial.result = Some(Box::new(file.result));
    trial
}

/// One look at everything but the result.
pub(super) fn look(look: &Look<'_>, dir: &Dir, name: &OsStr, memory: &mut Memory, broken: Option<Problem>) -> Sighting {
    let utf8 = name.to_string_lossy();
    let identity = Identity::of(dir);
    let (mut known, restarted) = match memory.unfinished.take() {
        Some(known) if known.identity == identity => (known, false),
        Some(_) => (Box::default(), true),
        None => (Box::default(), false),
    };
    known.identity = identity;
    let mut gather = Gather { look, dir, print: Vec::new(), newest: None, again: None };
    let own = gather.stat("").map(|m| m.modified);
    gather.stat("result.json");
    let Some(entries) = gather.list("") else {
        let problem = look.problem(ProblemKind::Unreadable, &utf8, "", "can not be listed");
        return Sighting { restarted, ..look.unreadable(&utf8, memory, problem) };
    };
    let has = |wanted: &str, kind| entries.iter().any(|(name, k)| *k == kind && name == wanted);
    if !OF_A_TRIAL.iter().any(|n| entries.iter().any(|(name, _)| name == n)) {
        if let Some(problem) = broken.as_ref().filter(|p| p.kind == ProblemKind::Foreign) {
            return look.foreign(memory, problem.clone());
        }
        if broken.is_none() && memory.torn.is_none() && !looks_like_trial(&utf8) {
            let young = own.is_some_and(|at| time::age(at, look.now) < STABLE_AGE) && !look.last;
            if young {
                memory.unfinished = None;
                return Sighting { again: Some(STABLE_AGE), ..Sighting::of(Seen::NotATrial(None)) };
            }
            let message = "nothing of a trial in it";
            return look.foreign(memory, look.problem(ProblemKind::Foreign, &utf8, "", message));
        }
    }
    let mut problems: Vec<Problem> = broken.iter().cloned().collect();
    let mut e = Evidence { steps: gather.steps(&mut known, has("steps", EntryKind::Dir)), ..Evidence::default() };
    let newest_step = e.steps.last().map(|s| format!("steps/{s}"));
    let lock = gather.file("lock.json");
    e.lock = lock.is_some();
    e.began = lock.map(|m| m.modified).or(own);
    gather.config(&mut known, &utf8, &mut problems);
    e.config = known.config.as_ref().map(|(_, fact, _)| *fact);
    if known.config.is_none() && lock.is_some() {
        gather.lock(&mut known);
    }
    e.log_started = gather.file("trial.log").is_some_and(|m| m.size > 0);
    e.exception = gather.exception(&mut known);
    if has("agent", EntryKind::Dir) {
        gather.agent(&mut known, &mut e);
    } else {
        known.trajectories.clear();
    }
    if e.trajectory.is_none()
        && let Some(step) = &newest_step
    {
        e.trajectory = gather.trajectory(&mut known, &format!("{step}/agent/trajectory.json"));
    }
    // A root file of a multi-step trial moves into its step's directory when the step is over.
    let rooms = std::iter::once(String::new()).chain(newest_step.iter().map(|step| format!("{step}/")));
    for room in rooms {
        if e.manifest.is_none() {
            e.manifest = gather.file(&format!("{room}artifacts/manifest.json")).map(|m| m.modified);
        }
        if e.verifier_output.is_none() {
            e.verifier_output = gather.file(&format!("{room}verifier/test-stdout.txt")).map(|m| fact(&m));
        }
        for file in ["reward.json", "reward.txt"] {
            if e.reward.is_none() {
                e.reward = gather.reward(&mut known, &format!("{room}verifier/{file}"), &utf8, &mut problems);
            }
        }
    }
    if e.reward.is_none() {
        known.reward = None;
    }
    known.dirs = gather.dirs(newest_step.as_deref());
    e.newest = gather.newest;
    let mut trial = blank(&utf8);
    if let Some((_, _, config)) = &known.config {
        if let Some(task) = &config.task {
            trial.task = task.clone();
        }
        trial.agent.clone_from(&config.agent);
        trial.model.clone_from(&config.model);
        let hint = look.hints.get(&trial.task).copied();
        trial.limits = look.tasks.limits(config, look.path, hint);
    } else if let Some((_, lock)) = &known.lock {
        if let Some(task) = &lock.task {
            trial.task = task.clone();
        }
        trial.agent.clone_from(&lock.agent);
        trial.model.clone_from(&lock.model);
    }
    trial.unreadable = broken.is_some();
    trial.problems = problems;
    trial.evidence = Some(Box::new(e));
    known.pending = gather.again.is_some();
    known.print = std::mem::take(&mut gather.print);
    let same = known.shown.as_deref() == Some(&trial);
    let sighting = Sighting {
        seen: if same { Seen::Same } else { Seen::Trial(Box::new(trial.clone())) },
        restarted,
        newest: gather.newest,
        again: gather.again,
    };
    if !same {
        known.shown = Some(Box::new(trial));
    }
    memory.settled_problem = None;
    memory.unfinished = Some(known);
    sighting
}

fn fact(meta: &Meta) -> FileFact {
    FileFact { size: meta.size, modified: meta.modified }
}

/// One look in progress.
struct Gather<'a> {
    look: &'a Look<'a>,
    dir: &'a Dir,
    print: Vec<(Box<str>, Option<FileId>)>,
    newest: Option<Stamp>,
    again: Option<Duration>,
}

impl Gather<'_> {
    fn stat(&mut self, rel: &str) -> Option<Meta> {
        Counters::add(&self.look.counters.stats);
        let meta = self.dir.stat(rel).ok();
        if let Some(meta) = &meta {
            self.newest = self.newest.max(Some(meta.modified));
        }
        self.print.push((rel.into(), meta.as_ref().map(FileId::from)));
        meta
    }

    /// A regular file; anything else of that name counts as absent.
    fn file(&mut self, rel: &str) -> Option<Meta> {
        self.stat(rel).filter(|m| m.kind == EntryKind::File)
    }

    /// Names (lossy) and kinds. None when it can not be listed.
    fn list(&mut self, rel: &str) -> Option<Vec<(String, EntryKind)>> {
        Counters::add(&self.look.counters.lists);
        // The directory was looked at before, so that a change since shows, unless in the same tick.
        let at = self.dir.stat(rel).ok().map(|m| m.modified);
        if at.is_some_and(|at| time::age(at, self.look.now) < TICK) {
            self.look_again(TICK * 2);
        }
        let entries = if rel.is_empty() { self.dir.list() } else { self.dir.sub(rel).and_then(|d| d.list()) };
        let entries = entries.ok()?;
        Some(entries.into_iter().map(|e| (e.name.to_string_lossy().into_owned(), e.kind)).collect())
    }

    fn look_again(&mut self, after: Duration) {
        if self.look.last {
            return;
        }
        self.again = Some(self.again.map_or(after, |a| a.min(after)));
    }

    /// The state of a file whose content was read; None when it is so young that a second write may
    /// not show in its time.
    fn read_state(&mut self, meta: &Meta) -> Option<FileId> {
        if time::age(meta.modified, self.look.now) < TICK && !self.look.last {
            self.look_again(TICK * 2);
            return None;
        }
        Some(FileId::from(meta))
    }

    fn config(&mut self, known: &mut Unfinished, name: &str, problems: &mut Vec<Problem>) {
        let Some(meta) = self.stat("config.json") else {
            known.config = None;
            return;
        };
        let id = FileId::from(&meta);
        if known.config.as_ref().is_some_and(|(read, _, _)| *read == Some(id)) {
            return;
        }
        Counters::add(&self.look.counters.files);
        let (shown, message) = match self.dir.read_all("config.json", CONFIG_CAP) {
            Ok(bytes) => match config::trial_config(&bytes.data) {
                Ok(config) => {
                    let state = self.read_state(&bytes.meta);
                    known.config = Some((state, fact(&bytes.meta), config));
                    return;
                }
                Err(problem) if problem.line > 0 => {
                    (format!("config.json:{}:{}", problem.line, problem.column), problem.to_string())
                }
                Err(problem) => ("config.json".to_string(), problem.to_string()),
            },
            Err(error) => ("config.json".to_string(), error.to_string()),
        };
        // The last good reading stays. A problem is one only when it lasts.
        let since = match known.config_torn {
            Some((before, since)) if before == id => since,
            _ => self.look.clock,
        };
        known.config_torn = Some((id, since));
        let lasts = self.look.clock.saturating_duration_since(since) >= STABLE
            || time::age(meta.modified, self.look.now) > STABLE_AGE;
        if lasts || self.look.last {
            problems.push(self.look.problem(ProblemKind::Unreadable, name, &shown, &message));
        } else {
            self.look_again(STABLE);
        }
    }

    /// Task, agent and model from `lock.json`, for the seconds before there is a config: the keys are
    /// the same.
    fn lock(&mut self, known: &mut Unfinished) {
        let Ok(bytes) = self.dir.read_all("lock.json", CONFIG_CAP) else { return };
        let id = FileId::from(&bytes.meta);
        if known.lock.as_ref().is_none_or(|(read, _)| *read != id) {
            Counters::add(&self.look.counters.files);
            if let Ok(lock) = config::trial_config(&bytes.data) {
                known.lock = Some((id, lock));
            }
        }
    }

    fn exception(&mut self, known: &mut Unfinished) -> Option<EarlyException> {
        let Some(meta) = self.file("exception.txt") else {
            known.exception = None;
            return None;
        };
        let id = FileId::from(&meta);
        if known.exception.as_ref().is_none_or(|(read, _)| *read != Some(id)) {
            Counters::add(&self.look.counters.files);
            let tail = self.dir.read_tail("exception.txt", EXCEPTION_TAIL).ok();
            let kind = tail.as_ref().and_then(|t| early::exception_kind(&t.data));
            let state = self.read_state(&meta);
            known.exception = Some((state, EarlyException { kind, at: meta.modified }));
        }
        known.exception.as_ref().map(|(_, e)| e.clone())
    }

    fn agent(&mut self, known: &mut Unfinished, e: &mut Evidence) {
        self.stat("agent");
        let entries = self.list("agent").unwrap_or_default();
        e.agent_any = !entries.is_empty();
        e.pane = self.file("agent/terminus_2.pane").map(|m| fact(&m));
        e.cast = self.file("agent/recording.cast").map(|m| fact(&m));
        e.agent_output = entries.iter().any(|(name, kind)| is_output(name, *kind));
        let files = trajectory::trajectory_files(entries.iter().map(|(name, _)| name.as_str()));
        let main = files.main.then(|| "trajectory.json".to_string());
        let chain: Vec<String> = main.into_iter().chain(files.continuations.into_iter().map(|(_, n)| n)).collect();
        known.trajectories.retain(|path, _| {
            !path.starts_with("agent/") || chain.iter().any(|name| path.strip_prefix("agent/") == Some(name))
        });
        for name in chain {
            let rel = format!("agent/{name}");
            let Some(part) = self.trajectory(known, &rel) else { continue };
            e.stepped = e.stepped.max(known.trajectories.get(&*rel).and_then(|t| t.written));
            e.trajectory = Some(match e.trajectory {
                None => part,
                Some(sum) => Progress {
                    steps: sum.steps.saturating_add(part.steps),
                    episodes: sum.episodes.saturating_add(part.episodes),
                    first_step: sum.first_step.or(part.first_step),
                    last_step: sum.last_step.max(part.last_step),
                    tokens: if part.tokens.is_unknown() { sum.tokens } else { part.tokens },
                },
            });
        }
    }

    /// The last good reading of a trajectory.
    fn trajectory(&mut self, known: &mut Unfinished, rel: &str) -> Option<Progress> {
        let Some(meta) = self.file(rel) else {
            known.trajectories.remove(rel);
            return None;
        };
        let id = FileId::from(&meta);
        let before = known.trajectories.remove(rel).filter(|t| t.inode_state == meta.inode);
        let mut tracked =
            before.unwrap_or(Tracked { tried: None, inode_state: meta.inode, good: None, parsed: None, written: None });
        let wait = tracked.parsed.filter(|_| meta.size > BIG_TRAJECTORY && !self.look.last).and_then(|(at, cost)| {
            let pause = cost.saturating_mul(9).min(Duration::from_secs(30));
            pause.checked_sub(self.look.clock.saturating_duration_since(at)).filter(|d| !d.is_zero())
        });
        if tracked.tried != Some(id) {
            if let Some(wait) = wait {
                self.look_again(wait);
            } else {
                let begin = Instant::now();
                Counters::add(&self.look.counters.files);
                let progress = self.dir.open_file(rel).ok().and_then(|file| trajectory::progress(&file).ok());
                tracked.tried = self.read_state(&meta);
                tracked.parsed = Some((Instant::now(), begin.elapsed()));
                if progress.is_some() {
                    tracked.written = Some(meta.modified);
                }
                tracked.good = progress.or(tracked.good);
            }
        }
        let good = tracked.good;
        known.trajectories.insert(rel.into(), tracked);
        good
    }

    fn reward(
        &mut self,
        known: &mut Unfinished,
        rel: &str,
        name: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<EarlyReward> {
        let meta = self.file(rel).filter(|m| m.size > 0)?;
        let id = FileId::from(&meta);
        let known_one = known.reward.as_ref().filter(|r| &*r.path == rel && r.read == Some(id));
        if known_one.is_none() {
            Counters::add(&self.look.counters.files);
            let bytes = self.dir.read(rel, REWARD_CAP).map(|b| b.data).unwrap_or_default();
            let rewards = if rel.ends_with(".json") { early::reward_json(&bytes) } else { early::reward_txt(&bytes) };
            let odd = match rewards.primary_entry() {
                Some((key, RewardValue::Unreadable(value))) => {
                    Some(Arc::from(format!("reward {key} is {value}, not a number")))
                }
                _ => None,
            };
            let reward = EarlyReward { value: rewards.primary(), at: meta.modified };
            known.reward = Some(Reward { path: rel.into(), read: self.read_state(&meta), reward, odd });
        }
        let read = known.reward.as_ref()?;
        if let Some(odd) = &read.odd {
            problems.push(self.look.problem(ProblemKind::RewardUnreadable, name, rel, odd));
        }
        Some(read.reward)
    }

    /// Names of `steps/*` in order of appearance: as met before, new ones by their time.
    fn steps(&mut self, known: &mut Unfinished, there: bool) -> Vec<Arc<str>> {
        if !there {
            known.steps.clear();
            return Vec::new();
        }
        self.stat("steps");
        let entries = self.list("steps").unwrap_or_default();
        let dirs: Vec<&String> = entries.iter().filter(|(_, k)| *k == EntryKind::Dir).map(|(n, _)| n).collect();
        known.steps.retain(|s| dirs.iter().any(|d| d.as_str() == &**s));
        let mut new: Vec<(i128, Arc<str>)> = Vec::new();
        for name in dirs.into_iter().take(MAX_STEPS) {
            if !known.steps.iter().any(|s| **s == **name)
                && let Some(meta) = self.dir.stat(&format!("steps/{name}")).ok()
            {
                new.push((meta.mtime_nanos, Arc::from(name.as_str())));
            }
        }
        new.sort();
        known.steps.extend(new.into_iter().map(|(_, name)| name));
        known.steps.clone()
    }

    /// The directories that exist and in which something may happen next.
    fn dirs(&mut self, newest_step: Option<&str>) -> Vec<Box<str>> {
        let mut dirs: Vec<Box<str>> = vec!["".into()];
        let mut candidates: Vec<String> = ["agent", "verifier", "artifacts", "steps"].map(String::from).to_vec();
        if let Some(step) = newest_step {
            candidates.push(step.to_string());
            candidates.extend(["agent", "verifier", "artifacts"].map(|d| format!("{step}/{d}")));
        }
        for rel in candidates {
            if self.stat(&rel).is_some_and(|m| m.kind == EntryKind::Dir) {
                dirs.push(rel.into());
            }
        }
        dirs
    }
}

/// What setup leaves in `agent/` does not count: only a log, an output or a recording does.
fn is_output(name: &str, kind: EntryKind) -> bool {
    let left_by_setup = name == "terminus_2.pane" || name.starts_with("setup") || name.starts_with("install");
    matches!(kind, EntryKind::File | EntryKind::Dir) && !left_by_setup && !name.starts_with("trajectory.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_trials() {
        assert!(looks_like_trial("json-merge__rurvPof"));
        assert!(looks_like_trial("a__b__AzLKGfv"));
        assert!(!looks_like_trial("mytool"));
        assert!(!looks_like_trial("__AzLKGfv"));
        assert!(!looks_like_trial("x__../abc"));
        assert_eq!(task_of("a__b__AzLKGfv"), "a__b");
        assert!(!is_output("terminus_2.pane", EntryKind::File));
        assert!(is_output("codex.txt", EntryKind::File));
        assert!(!is_output("codex.txt", EntryKind::Other));
    }
}
