//! The files of the run itself, and what lies in its directory.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::super::discover;
use super::super::probe::{Counters, FileId, STABLE_AGE, read_json};
use super::super::scan::shown;
use super::{Group, Run};
use crate::harbor::FileProblem;
use crate::harbor::classic::{self, Aggregate, TrialFile, hard, place};
use crate::harbor::dir::{Dir, Entry, EntryKind, FileBytes, OpenError};
use crate::job::text::clean;
use crate::job::{
    Exception, JobFacts, JobSummary, Layout, Planned, Problem, ProblemKind, RewardValue, Rewards, Spans, Stamp, Tokens,
    TrialResult, time,
};

/// Directories in one task's that are looked into to find out whether they are trials.
const LOOKED: usize = 2_000;
/// Bytes of the log that one look reads.
const LOG_SLICE: u64 = 64 << 20;
/// Names that are printed of a list.
const NAMED: usize = 5;

/// What a look at the run's own files came to.
#[derive(Debug, Default)]
pub(in super::super) struct OwnLook {
    /// The facts, where anything changed.
    pub facts: Option<JobFacts>,
    /// Trials of which something else is known than before.
    pub changed: Vec<OsString>,
    /// A file was torn and may heal.
    pub torn: bool,
    /// Newest modification time of the run's own files.
    pub newest: Option<Stamp>,
}

/// One part of a path, that leads nowhere else.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn plain(name: &str) -> String {
    if is_plain(name) {
        return name.to_string();
    }
    let name: String = name.chars().map(|c| if matches!(c, '/' | '\0') { '_' } else { c }).take(200).collect();
    if is_plain(&name) { name } else { format!("_{name}") }
}

fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let head = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{head} and {more} more") } else { head }
}

impl Run {
    /// Looks at the run's own files. `last`: nobody will look again soon.
    pub fn look_at_own(&mut self, dir: &Dir, path: &Path, counters: &Counters, last: bool) -> OwnLook {
        let mut out = OwnLook::default();
        self.look_at_groups(dir, path, counters);
        self.read_log(dir, last, &mut out);
        let files = self.files(dir);
        let ids: Vec<(String, Option<FileId>)> = files
            .iter()
            .map(|name| {
                Counters::add(&counters.stats);
                let meta = dir.stat(name).ok();
                out.newest = out.newest.max(meta.as_ref().map(|m| m.modified));
                (name.clone(), meta.as_ref().map(FileId::from))
            })
            .collect();
        if ids == self.read && !self.read.is_empty() {
            return out;
        }
        let mut problems = Vec::new();
        let mut young = false;
        let mut get = |name: Option<&String>| -> Option<FileBytes> {
            Counters::add(&counters.files);
            match read_json(dir, name?) {
                Ok(bytes) => {
                    young |= time::age(bytes.meta.modified, Stamp::now()) < STABLE_AGE;
                    Some(bytes)
                }
                Err(OpenError::Missing | OpenError::Vanished) => None,
                Err(error) => {
                    problems.push(self::problem(path, name?, ProblemKind::Unreadable, &error.to_string()));
                    None
                }
            }
        };
        let called = |wanted: &str| files.iter().find(|f| place::is_called(f, wanted) && !f.starts_with("tb_"));
        let lock = get(called(place::LOCK).or_else(|| files.iter().find(|f| *f == place::LOCK)));
        let metadata = get(called(place::METADATA));
        let tb_results = get(files.iter().find(|f| *f == place::HARD_RESULTS));
        let status = get(files.iter().find(|f| *f == place::HARD_STATUS));
        self.hard = tb_results.is_some() || status.is_some();
        let mut own = classic::run(path, bytes(&lock), bytes(&metadata));
        let aggregate_name = self.aggregate_name(dir, &files, own.run_id.as_deref());
        let aggregate = get(aggregate_name.as_ref());
        let mut parsed: Vec<Aggregate> = Vec::new();
        let mut torn = false;
        let mut keep = |name: &str, read: Result<Aggregate, FileProblem>, out: &mut Vec<Aggregate>| match read {
            Ok(read) => out.push(read),
            Err(problem) if problem.may_heal() && young && !last => torn = true,
            Err(problem) => {
                problems.push(self::problem(path, name, ProblemKind::Unreadable, &problem.to_string()));
            }
        };
        if let (Some(file), Some(name)) = (&aggregate, &aggregate_name) {
            keep(name, classic::aggregate(&file.data), &mut parsed);
        }
        if let Some(file) = &tb_results {
            keep(place::HARD_RESULTS, hard::results(&file.data), &mut parsed);
        }
        if let Some(file) = &status {
            match hard::status(&file.data) {
                Ok(read) => self.status = read,
                Err(problem) if problem.may_heal() && young && !last => torn = true,
                Err(problem) => {
                    let words = problem.to_string();
                    problems.push(self::problem(path, place::HARD_STATUS, ProblemKind::Unreadable, &words));
                }
            }
        }
        // Of a torn lock or metadata the last good reading stays.
        let own_torn =
            own.facts.problems.iter().any(|p| p.message.contains("ends in the middle") || &*p.message == "empty");
        if own_torn && young && !last {
            torn = true;
            if !self.read.is_empty() {
                own = self.own.clone();
            }
            own.facts.problems.clear();
        }
        if !parsed.is_empty() || !torn {
            self.aggregate = parsed.into_iter().reduce(|mut all, more| {
                all.trials.extend(more.trials);
                all.count = all.count.max(more.count);
                all.accuracy = more.accuracy.or(all.accuracy);
                all.notes.extend(more.notes);
                all
            });
        }
        self.own = own;
        for other in files.iter().filter(|f| is_aggregate_name(f) && Some(*f) != aggregate_name.as_ref()) {
            let message = "the aggregate of another run: not counted here; attach it by its own path";
            problems.push(self::problem(path, other, ProblemKind::Note, message));
        }
        let aggregate_notes = self.aggregate.iter().flat_map(|a| a.notes.iter());
        let named = aggregate_name.as_deref().unwrap_or(place::HARD_RESULTS);
        problems.extend(aggregate_notes.map(|note| self::problem(path, named, ProblemKind::Unreadable, note)));
        out.changed.extend(self.take_entries());
        out.torn = torn;
        self.read = if torn || young && !last { Vec::new() } else { ids };
        let facts = self.facts(dir, path, problems);
        out.facts = Some(facts);
        out
    }

    /// The names of the run's own files that are there; where the directory did not change, from memory.
    fn files(&mut self, dir: &Dir) -> Vec<String> {
        let meta = dir.stat("").ok();
        let id = meta.as_ref().map(FileId::from);
        if id.is_none() || self.names.0 != id {
            let young = meta.is_some_and(|m| time::age(m.modified, Stamp::now()) < STABLE_AGE);
            let mut names: Vec<String> = Vec::new();
            let known = [place::LOCK, place::METADATA, place::RESULTS, place::HARD_STATUS];
            for entry in dir.list().unwrap_or_default() {
                if let Some(name) = entry.name.to_str().filter(|_| entry.kind == EntryKind::File)
                    && known.iter().any(|known| place::is_called(name, known))
                {
                    names.push(name.to_string());
                }
            }
            names.sort();
            names.truncate(100);
            if self.only.is_some() {
                names.clear();
            }
            self.names = (id.filter(|_| !young), names);
        }
        self.names.1.clone()
    }

    /// Which of several aggregates is this run's: the one picked, the one of the usual name, that of the
    /// run's id, else the newest.
    fn aggregate_name(&self, dir: &Dir, files: &[String], run_id: Option<&str>) -> Option<String> {
        let all: Vec<&String> = files.iter().filter(|f| is_aggregate_name(f)).collect();
        let named = |name: String| all.iter().find(|f| ***f == name).map(|f| (*f).clone());
        self.pick
            .clone()
            .or_else(|| named(place::RESULTS.to_string()))
            .or_else(|| named(format!("{}_{}", run_id?, place::RESULTS)))
            .or_else(|| {
                let time = |f: &&&String| dir.stat(f).map_or(0, |m| m.mtime_nanos);
                all.iter().max_by_key(|f| (time(f), (**f).clone())).map(|f| (*f).clone())
            })
    }

    /// Takes the aggregate's trials in; gives the paths of those of which something else is said now.
    fn take_entries(&mut self) -> Vec<OsString> {
        // Where the directory of a trial lies, if it has one.
        let mut places: BTreeMap<&OsStr, &OsString> = BTreeMap::new();
        for path in self.groups.values().flat_map(|group| &group.trials) {
            places.insert(Path::new(path).file_name().unwrap_or(path), path);
        }
        let mut entries: BTreeMap<OsString, TrialFile> = BTreeMap::new();
        let mut nameless: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for file in self.aggregate.iter().flat_map(|a| &a.trials) {
            let name = match &file.name {
                Some(name) => plain(name),
                None => {
                    let k = nameless.entry(file.task.clone()).or_default();
                    *k += 1;
                    format!("{}#{k}", plain(&file.task))
                }
            };
            let path = match places.get(OsStr::new(&name)) {
                Some(path) => (*path).clone(),
                None => OsString::from(format!("{}/{name}", plain(&file.task))),
            };
            entries.insert(path, file.clone());
        }
        for status in &self.status {
            let Some(name) = status.trial.as_deref().map(plain) else { continue };
            let path = OsString::from(format!("{}/{name}", plain(&status.task)));
            if !places.contains_key(OsStr::new(&name)) && !entries.contains_key(&path) {
                entries.insert(path, of_status(status, &name));
            }
        }
        let same = |path: &OsString| self.entries.get(path) == entries.get(path);
        let mut changed: Vec<OsString> =
            entries.keys().chain(self.entries.keys()).filter(|path| !same(path)).cloned().collect();
        changed.sort();
        changed.dedup();
        self.entries = entries;
        changed
    }

    /// The run's facts, with what is to be said of them.
    fn facts(&self, dir: &Dir, path: &Path, problems: Vec<Problem>) -> JobFacts {
        let mut facts = self.own.facts.clone();
        facts.problems.extend(problems);
        if self.hard {
            facts.layout = Layout::Hard;
            facts.name = if self.own.run_id.is_some() { facts.name } else { name_of_hard(path) };
        }
        if self.own.run_id.is_none() && !self.hard && self.pick.is_some() {
            let pick = self.pick.as_deref().unwrap_or_default();
            facts.name = pick.strip_suffix(place::RESULTS).unwrap_or(pick).trim_end_matches('_').into();
        }
        if facts.id.is_none() {
            facts.id = self.aggregate.as_ref().and_then(|a| a.id.clone());
        }
        let summary = facts.summary.get_or_insert_with(JobSummary::default);
        if let Some(aggregate) = &self.aggregate {
            summary.n_completed = Some(aggregate.count as u64);
            if let Some(accuracy) = aggregate.accuracy {
                summary.means = [(Arc::from("accuracy"), accuracy)].into_iter().collect();
            }
        }
        if facts.planned.is_none() && facts.summary.as_ref().is_none_or(|s| s.n_total.is_none()) {
            facts.planned = self.plan_of_names();
            facts.planned_by = facts.planned.as_ref().map(|_| "the trials' names");
        } else if facts.planned.is_some() && !self.own.locked {
            facts.planned_by = Some(place::METADATA);
        }
        if self.entries.values().any(|file| !file.result.tokens.is_unknown()) {
            let message = "tokens are estimates of the harness's own tokenizer, without the cache and without cost; 0 there \
                           means that nobody counted and is shown as unknown";
            let file = if self.hard { place::HARD_RESULTS } else { place::RESULTS };
            facts.problems.push(problem(path, file, ProblemKind::Note, message));
        }
        facts.problems.extend(self.groups.values().filter_map(|group| group.odd.clone()));
        if self.hard {
            self.remarks(dir, path, &mut facts);
        }
        facts
    }

    /// Planned trials as the names of trials tell them: `k-of-n`.
    fn plan_of_names(&self) -> Option<Vec<Planned>> {
        let mut tasks: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for path in self.trials() {
            let name = Path::new(&path).file_name().and_then(OsStr::to_str).unwrap_or_default();
            let parts = classic::trial_name(name)?;
            let of = if self.only.is_some() { 1 } else { parts.of.clamp(1, 10_000) };
            let known = tasks.entry(Arc::from(parts.task)).or_default();
            *known = (*known).max(of);
        }
        let agent = self.own.facts.agents.first().cloned();
        let model = self.own.facts.models.first().cloned();
        let planned = tasks.into_iter().map(|(task, n)| Planned {
            task,
            agent: agent.clone(),
            model: model.clone(),
            digest: None,
            n,
        });
        Some(planned.collect::<Vec<_>>()).filter(|planned| !planned.is_empty())
    }

    /// What has to be known of numbers of the wrapper.
    fn remarks(&self, dir: &Dir, path: &Path, facts: &mut JobFacts) {
        let mut say = |file: &str, message: String| {
            facts.problems.push(problem(path, file, ProblemKind::Note, &message));
        };
        // A task stays `success` there once one of its trials was; of the trials each has its own word.
        let mut doubted: Vec<String> = Vec::new();
        for status in self.status.iter().filter(|s| s.success) {
            let mut of_task = self.entries.values().filter(|file| file.task == status.task).peekable();
            if of_task.peek().is_some() && !of_task.any(|file| file.result.rewards.primary() == Some(1.0)) {
                doubted.push(clean(&status.task).into_owned());
            }
        }
        let successes = self.status.iter().filter(|s| s.success).count();
        if successes > 0 {
            let solved = self.entries.values().filter(|f| f.result.rewards.primary() == Some(1.0)).count();
            let ended = self.entries.len();
            let doubt = match doubted.is_empty() {
                true => String::new(),
                false => format!("; no trial of these was: {}", list(&doubted)),
            };
            say(
                place::HARD_STATUS,
                format!(
                    "success is sticky there, set by any trial of a task and never taken back: {successes} of {} tasks; \
                     the counts here are the trials' own: {solved} of {ended} resolved{doubt}",
                    self.status.len()
                ),
            );
        }
        let spent = |mode: &str| {
            let is = |file: &&TrialFile| file.result.exception.as_ref().is_some_and(|e| &*e.kind == mode);
            self.entries.values().filter(is).count()
        };
        let over = spent("token_limit_exceeded");
        if self.own.token_budget.is_some() || over > 0 {
            let budget = self.own.token_budget.map_or("-".to_string(), |n| n.to_string());
            say(
                place::LOCK,
                format!(
                    "cumulative limit: {budget} input tokens for a task, summed over all calls; {over} trials ended by it"
                ),
            );
        }
        if let Some(policy) = &self.own.policy {
            say(
                place::LOCK,
                format!(
                    "failed_samples_policy {policy}: unknown, unknown_agent_error and agent_installation_failed stop the \
                     evaluation, every other failure scores 0"
                ),
            );
        }
        let planned = facts.planned.as_ref().map(|p| (p.iter().map(|p| u64::from(p.n)).sum::<u64>(), p.len()));
        let ended = self.entries.len() as u64;
        let over = facts.summary.as_ref().is_some_and(|s| s.finished.is_some());
        if let Some((n, tasks)) = planned.filter(|(n, _)| ended > 0 && ended < *n && !over) {
            let met: std::collections::BTreeSet<&Arc<str>> = self.entries.values().map(|f| &f.task).collect();
            facts.problems.push(problem(
                path,
                place::HARD_RESULTS,
                ProblemKind::Note,
                &format!(
                    "trials run task by task: the {ended} of {n} that have ended are of {} of {tasks} tasks, the first \
                     ones, and the score so far is theirs",
                    met.len()
                ),
            ));
        }
        let mut above = vec![path.to_path_buf()];
        above.extend(path.ancestors().skip(1).take(3).map(Path::to_path_buf));
        let metrics = above.iter().enumerate().find_map(|(up, at)| {
            let opened = if up == 0 { None } else { Some(Dir::open(at).ok()?) };
            let dir = opened.as_ref().unwrap_or(dir);
            let bytes = dir.read_all(place::HARD_METRICS, 16 << 20).ok()?;
            Some((at.clone(), hard::finish_reasons(&bytes.data).ok()?))
        });
        if let Some((at, reasons)) = metrics {
            let all: u64 = reasons.iter().map(|(_, n)| n).sum();
            if let Some((_, n)) = reasons.iter().find(|(reason, n)| reason == "length" && *n > 0) {
                facts.problems.push(problem(
                    &at,
                    place::HARD_METRICS,
                    ProblemKind::Note,
                    &format!("finish_reason length: {n} of {all} replies were cut off at the model's output limit"),
                ));
            }
        }
    }

    /// Reads on in the log.
    fn read_log(&mut self, dir: &Dir, last: bool, out: &mut OwnLook) {
        let Ok(meta) = dir.stat(place::LOG) else { return };
        out.newest = out.newest.max(Some(meta.modified));
        if meta.inode != self.log_read.0 || meta.size < self.log_read.1 {
            self.log = Default::default();
            self.log_read = (meta.inode, 0);
        }
        if meta.size <= self.log_read.1 || self.only.is_some() {
            return;
        }
        let Ok(mut file) = dir.open_file(place::LOG) else { return };
        if file.seek(SeekFrom::Start(self.log_read.1)).is_err() {
            return;
        }
        let before = self.log.revision();
        let mut block = vec![0; 256 << 10];
        let mut left = if last { LOG_SLICE * 8 } else { LOG_SLICE };
        while left > 0 {
            match file.read(&mut block) {
                Ok(0) | Err(_) => break,
                Ok(n) => {
                    self.log.feed(block.get(..n).unwrap_or_default());
                    self.log_read.1 += n as u64;
                    left = left.saturating_sub(n as u64);
                }
            }
        }
        if self.log.revision() != before {
            let mut open = self.unexplained.lock().unwrap_or_else(PoisonError::into_inner);
            out.changed.extend(std::mem::take(&mut *open));
        }
    }

    /// Looks which trials lie in the directory, and what else does.
    fn look_at_groups(&mut self, dir: &Dir, path: &Path, counters: &Counters) {
        let Ok(entries) = dir.list() else { return };
        Counters::add(&counters.lists);
        let dirs: Vec<Entry> =
            entries.into_iter().filter(|e| e.kind == EntryKind::Dir && discover::may_be_trial(e)).collect();
        self.groups.retain(|name, _| dirs.iter().any(|e| e.name == *name));
        for entry in dirs {
            if self.only.as_ref().is_some_and(|only| *only != entry.name) {
                continue;
            }
            Counters::add(&counters.stats);
            let meta = dir.sub_os(&entry.name).and_then(|sub| sub.stat("")).ok();
            let id = meta.as_ref().map(FileId::from);
            if id.is_some() && self.groups.get(&entry.name).is_some_and(|known| known.id == id) {
                continue;
            }
            Counters::add(&counters.lists);
            let young = meta.is_some_and(|m| time::age(m.modified, Stamp::now()) < STABLE_AGE);
            let mut group = group(dir, path, &entry.name);
            group.id = id.filter(|_| !young);
            if young {
                // Its trials may only just be beginning.
                group.odd = group.odd.filter(|p| p.message.contains("another whole run"));
            }
            self.groups.insert(entry.name, group);
        }
    }
}

fn bytes(file: &Option<FileBytes>) -> Option<&[u8]> {
    file.as_ref().map(|f| f.data.as_slice())
}

fn is_aggregate_name(file: &str) -> bool {
    place::is_called(file, place::RESULTS) && file != place::HARD_RESULTS
}

fn problem(dir: &Path, file: &str, kind: ProblemKind, message: &str) -> Problem {
    Problem { kind, path: shown(&dir.join(file)), message: Arc::from(&*clean(message)) }
}

/// `<invocation>/terminal-bench-hard` of `…/<invocation>/terminal-bench-hard/artifacts/terminal-bench`.
fn name_of_hard(path: &Path) -> Arc<str> {
    let mut up = path.ancestors().filter_map(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    let parts: Vec<String> = up.by_ref().take(4).collect();
    match parts.as_slice() {
        [last, artifacts, hard, invocation] if last == "terminal-bench" && artifacts == "artifacts" => {
            format!("{invocation}/{hard}").into()
        }
        [last, ..] => last.as_str().into(),
        [] => "terminal-bench-hard".into(),
    }
}

/// A trial that only the state of its task tells of.
fn of_status(status: &hard::TaskStatus, name: &str) -> TrialFile {
    let mode = status.outcome.as_deref().filter(|word| !matches!(*word, "none" | "unset" | "unsolved" | "success"));
    let exception = mode
        .filter(|_| !status.success)
        .map(|word| Exception { kind: word.into(), message: "by task_status.json alone".into() });
    let solved = f64::from(u8::from(status.success));
    TrialFile {
        name: Some(name.into()),
        task: status.task.clone(),
        result: TrialResult {
            id: None,
            task_name: status.task.clone(),
            rewards: Rewards::Keys(vec![(classic::result::TRUTH.into(), RewardValue::Number(solved))]),
            reward_valid: None,
            exception,
            step_exceptions: Vec::new(),
            tokens: Tokens::default(),
            cost_usd: None,
            n_episodes: None,
            started: None,
            finished: None,
            spans: Spans::default(),
            verifier_disabled: false,
            install_only: false,
            task_checksum: None,
            agent: None,
            tests: None,
        },
        notes: vec!["no file of its own: by the state of its task alone, which is sticky".to_string()],
    }
}

/// What a directory in a run's is.
fn group(dir: &Dir, path: &Path, name: &OsStr) -> Group {
    let mut out = Group::default();
    let Ok(sub) = dir.sub_os(name) else { return out };
    let Ok(entries) = sub.list() else { return out };
    let of = |kind: EntryKind| entries.iter().filter(move |e| e.kind == kind).filter_map(|e| e.name.to_str());
    let utf8 = name.to_string_lossy();
    let whole = || discover::classic_results(&sub) == Some(discover::DirKind::Classic);
    if place::is_run(of(EntryKind::File)) || whole() {
        let counts = sub.read_all(place::RESULTS, 64 << 20).ok().and_then(|b| classic::aggregate(&b.data).ok());
        let counts = counts.map_or(String::new(), |a| {
            let solved = a.trials.iter().filter(|t| t.result.rewards.primary() == Some(1.0)).count();
            format!(" ({} trials, {solved} resolved)", a.count)
        });
        let message = format!("another whole run lies in here{counts}: not counted; attach it by its own path");
        out.odd = Some(problem(path, &utf8, ProblemKind::Note, &message));
        return out;
    }
    if place::is_trial(&utf8, of(EntryKind::Dir))
        || discover::classic_results(&sub) == Some(discover::DirKind::ClassicTrial)
    {
        out.trials.push(name.to_os_string());
        return out;
    }
    for inner in of(EntryKind::Dir).take(LOOKED) {
        let is_trial = classic::trial_name(inner).is_some()
            || sub.sub(inner).is_ok_and(|trial| {
                let names = trial.list().unwrap_or_default();
                let dirs = names.iter().filter(|e| e.kind == EntryKind::Dir).filter_map(|e| e.name.to_str());
                place::is_trial(inner, dirs)
                    || discover::classic_results(&trial) == Some(discover::DirKind::ClassicTrial)
            });
        if is_trial {
            let mut path = name.to_os_string();
            path.push("/");
            path.push(inner);
            out.trials.push(path);
        }
    }
    if out.trials.is_empty() && !entries.is_empty() {
        out.odd = Some(problem(path, &utf8, ProblemKind::Note, "nothing of a trial in it: not counted"));
    }
    out
}
