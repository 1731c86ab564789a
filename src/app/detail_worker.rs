//! The loader of the trial view: all reading of a trial's files, on a thread of its own.
//!
//! Requests come in by an inbox; of those that supersede each other only the latest is done. Long
//! work (indexing, searching) is done in slices between looks at the inbox. [`Loader`] itself knows
//! no thread, so that it can be driven step by step.

mod classic;
mod pager;
mod search;
mod steps;
mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use self::search::Search;
use self::steps::{Stamp3, Steps, stamp};
use self::texts::Known;
use super::detail::doc::{Doc, DocLine, Mark};
use super::detail::timeline::StepSpan;
use super::detail::{At, Facts, FileKind, FileRow, Head, Reply, Request, Slot};
use super::inbox::{Asker, Inbox, Put, Wish, inbox};
use crate::harbor::classic as harbor_classic;
use crate::harbor::{Calls, Dir, EntryKind, OpenError, particulars, trial_config, trial_result};

/// Largest `result.json` that is read for its particulars.
const RESULT_MAX: u64 = 64 << 20;
/// Entries of one directory that are listed.
const ENTRIES: usize = 20_000;
/// Bytes of steps that are read for first lines between two looks at the requests.
const LINE_BYTES: u64 = 8 << 20;

/// Where answers go.
pub type Sink<'a> = &'a mut dyn FnMut(Reply);

/// A running loader; dropping it ends its thread.
#[derive(Debug)]
pub struct Handle {
    requests: Asker<Request>,
}

impl Handle {
    /// Hands a wish over; never waits.
    pub fn ask(&self, request: Request) {
        match self.requests.put(request) {
            Put::Taken => {}
            Put::Crowded => tracing::warn!("the trial loader does not keep up: a wish was given up"),
            Put::Gone => tracing::error!("the trial loader is gone"),
        }
    }
}

/// Starts the loader's thread; `reply` takes the answers there and returns false when nobody listens
/// any more.
pub fn spawn(mut reply: impl FnMut(Reply) -> bool + Send + 'static) -> Handle {
    let (requests, inbox) = inbox();
    let started = std::thread::Builder::new().name("trial-loader".to_string()).spawn(move || run(&inbox, &mut reply));
    if let Err(error) = started {
        tracing::error!(%error, "no thread for the trial loader");
    }
    Handle { requests }
}

fn run(inbox: &Inbox<Request>, reply: &mut dyn FnMut(Reply) -> bool) {
    let mut loader = Loader::default();
    let mut busy = false;
    let mut heard = true;
    while heard {
        let Some(requests) = inbox.take(busy.then_some(Duration::ZERO)) else { return };
        let mut sink = |answer| heard &= reply(answer);
        for request in requests {
            loader.handle(request, &mut sink);
        }
        busy = loader.work(&mut sink);
    }
}

impl Wish for Request {
    // One of each kind, of texts one for each slot.
    const MOST: usize = 8 + Slot::ALL.len();

    fn join(self, waiting: &mut Vec<Request>) {
        match &self {
            Request::Open { .. } | Request::Close => waiting.clear(),
            Request::Text { slot, .. } => waiting.retain(|w| !matches!(w, Request::Text { slot: s, .. } if s == slot)),
            other => waiting.retain(|w| std::mem::discriminant(w) != std::mem::discriminant(other)),
        }
        waiting.push(self);
    }

    fn may_go(&self) -> bool {
        !matches!(self, Request::Open { .. } | Request::Close)
    }
}

/// Heads that wait for their first lines.
#[derive(Debug)]
struct HeadsJob {
    from: usize,
    heads: Vec<Head>,
    next: usize,
}

#[derive(Debug)]
struct OpenTrial {
    serial: u64,
    path: PathBuf,
    dir: Result<Dir, String>,
    /// It is laid out as classic terminal-bench does it.
    classic: bool,
    result_stamp: Option<Stamp3>,
    known: Known,
    steps: Steps,
    heads: Option<HeadsJob>,
    search: Option<Search>,
    watched: BTreeMap<(usize, String), Option<Stamp3>>,
}

/// The loader without its thread.
#[derive(Debug, Default)]
pub struct Loader {
    trial: Option<OpenTrial>,
}

impl Loader {
    /// Does one request.
    pub fn handle(&mut self, request: Request, sink: Sink<'_>) {
        if let Request::Open { serial, dir } = request {
            self.trial = Some(OpenTrial::open(serial, dir, sink));
            return;
        }
        let Some(trial) = &mut self.trial else { return };
        match request {
            Request::Close => self.trial = None,
            Request::Open { .. } => {}
            Request::Changed { serial } if serial == trial.serial => trial.changed(sink),
            Request::Heads { serial, from, n } if serial == trial.serial => trial.start_heads(from, n, sink),
            Request::Step { serial, n } if serial == trial.serial => {
                let heads = trial.heads_of(n, 1);
                let doc = trial.steps.doc(n, heads.first());
                sink(Reply::Step { serial, n, doc });
            }
            Request::Text { serial, slot, nth, path, at } if serial == trial.serial => {
                let doc = trial.text(slot, nth, path.as_deref(), at);
                sink(Reply::Text { serial, slot, doc });
            }
            Request::List { serial, dir } if serial == trial.serial => {
                let listing = trial.list(&dir);
                sink(Reply::Listing { serial, dir, listing });
            }
            Request::Search { serial, slot, needle, from, back } if serial == trial.serial => {
                trial.search = None;
                trial.search = Some(Search::new(slot, needle, from, back, trial));
            }
            _ => {}
        }
    }

    /// Does one slice of the long work; false when there is none left.
    pub fn work(&mut self, sink: Sink<'_>) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        if trial.steps.work() {
            sink(Reply::Steps { serial: trial.serial, parts: trial.steps.parts() });
            if trial.steps.is_outdated() {
                trial.look(sink);
            }
            return true;
        }
        trial.fill_heads(sink) || trial.search_on(sink)
    }
}

impl OpenTrial {
    fn open(serial: u64, path: PathBuf, sink: Sink<'_>) -> OpenTrial {
        let dir = Dir::open(&path).map_err(|e| format!("{}: {}", path.display(), said(&e)));
        let classic = dir.as_ref().is_ok_and(harbor_classic::holds_trial);
        let mut trial = OpenTrial {
            serial,
            path,
            dir,
            classic,
            result_stamp: None,
            known: Known::default(),
            steps: Steps::default(),
            heads: None,
            search: None,
            watched: BTreeMap::new(),
        };
        trial.read_result(sink);
        trial.look(sink);
        trial
    }

    /// Steps of a multi-step trial in the order of its result.
    fn order(&self) -> Vec<String> {
        self.known.particulars.iter().flat_map(|p| &p.steps).map(|s| s.name.clone()).collect()
    }

    fn read_result(&mut self, sink: Sink<'_>) {
        if self.classic || self.dir.is_err() {
            return self.read_classic(sink);
        }
        let Ok(dir) = &self.dir else { return };
        let now = dir.stat("result.json").ok().map(|m| stamp(&m));
        if now == self.result_stamp && now.is_some() {
            return;
        }
        match dir.read_all("result.json", RESULT_MAX) {
            Ok(bytes) => match (trial_result(&bytes.data), particulars(&bytes.data)) {
                (Ok(file), Ok(rest)) => {
                    let steps = rest.steps.iter().map(|s| StepSpan {
                        name: s.name.clone(),
                        agent: s.agent,
                        verifier: s.verifier,
                    });
                    let facts = Facts { identity: rest.identity.clone(), steps: steps.collect() };
                    sink(Reply::Facts { serial: self.serial, facts });
                    self.known = Known { result: Some(file.result), particulars: Some(rest), ..Known::default() };
                }
                // Being written: the old reading stays.
                (Err(p), _) if p.may_heal() && self.known.result.is_some() => return,
                (Err(p), _) | (_, Err(p)) => self.known.problem = Some(format!("result.json: {p}")),
            },
            Err(OpenError::Missing) => {
                if self.known.result.is_none() {
                    self.known.problem = None;
                    let identity = planned_identity(dir);
                    sink(Reply::Facts { serial: self.serial, facts: Facts { identity, steps: Vec::new() } });
                }
            }
            Err(problem) => self.known.problem = Some(format!("result.json: {problem}")),
        }
        self.result_stamp = now;
    }

    fn look(&mut self, sink: Sink<'_>) {
        let order = self.order();
        if self.classic {
            self.steps.of_episodes(self.known.agent_span());
        }
        match &self.dir {
            Ok(dir) => self.steps.look(dir, &order, self.known.result.is_some()),
            Err(words) => {
                let part = super::detail::Part {
                    name: None,
                    path: String::new(),
                    steps: 0,
                    indexed: 1.0,
                    note: Some(self.known.instead.clone().unwrap_or_else(|| words.clone())),
                    revision: 0,
                };
                sink(Reply::Steps { serial: self.serial, parts: vec![part] });
                return;
            }
        }
        // Even a small file is indexed in the first slice: nothing flashes up as empty.
        if !self.steps.work() || self.steps.len() > 0 {
            sink(Reply::Steps { serial: self.serial, parts: self.steps.parts() });
        }
    }

    fn changed(&mut self, sink: Sink<'_>) {
        // A retry deletes the directory and makes it anew.
        match Dir::open(&self.path) {
            Ok(dir) => {
                let id = |d: &Dir| d.stat("").ok().map(|m| (m.device, m.inode));
                if self.dir.as_ref().is_ok_and(|old| id(old) != id(&dir)) {
                    self.known = Known::default();
                    self.classic = harbor_classic::holds_trial(&dir);
                    self.result_stamp = None;
                    self.steps.reset();
                    self.watched.values_mut().for_each(|stamp| *stamp = Some((u64::MAX, 0, 0)));
                }
                self.classic = self.classic || self.dir.is_err() && harbor_classic::holds_trial(&dir);
                self.dir = Ok(dir);
            }
            Err(e) if self.dir.is_err() => self.dir = Err(format!("{}: {}", self.path.display(), said(&e))),
            Err(_) => {}
        }
        self.read_result(sink);
        self.look(sink);
        let Ok(dir) = &self.dir else { return };
        let mut slots = Vec::new();
        for ((slot, path), old) in &self.watched {
            let now = dir.stat(path).ok().map(|m| stamp(&m));
            if now != *old
                && let Some(slot) = Slot::ALL.get(*slot)
                && !slots.contains(slot)
            {
                slots.push(*slot);
            }
        }
        sink(Reply::Stale { serial: self.serial, slots, listing: true });
    }

    fn heads_of(&self, from: usize, n: usize) -> Vec<Head> {
        let p = self.known.particulars.as_ref();
        self.steps.heads(from, n, |name| -> Option<&Calls> {
            match name {
                None => p.map(|p| &p.calls),
                Some(name) => p?.steps.iter().find(|s| s.name == name).map(|s| &s.calls),
            }
        })
    }

    fn start_heads(&mut self, from: usize, n: usize, sink: Sink<'_>) {
        let heads = self.heads_of(from, n);
        self.heads = Some(HeadsJob { from, heads, next: 0 });
        self.fill_heads(sink);
    }

    /// Reads first lines; false when none are waiting.
    fn fill_heads(&mut self, sink: Sink<'_>) -> bool {
        let Some(job) = &mut self.heads else { return false };
        let mut budget = LINE_BYTES;
        while budget > 0 {
            let Some(head) = job.heads.get_mut(job.next) else { break };
            let (line, refs, bytes) = self.steps.line(job.from + job.next);
            (head.line, head.refs) = (line, refs);
            job.next += 1;
            budget = budget.saturating_sub(bytes);
        }
        let whole = job.next >= job.heads.len();
        sink(Reply::Heads { serial: self.serial, from: job.from, heads: job.heads.clone() });
        if whole {
            self.heads = None;
        }
        true
    }

    fn search_on(&mut self, sink: Sink<'_>) -> bool {
        let Some(mut search) = self.search.take() else { return false };
        match search.slice(self) {
            search::Step::Going(share) => {
                sink(Reply::Searching { serial: self.serial, share });
                self.search = Some(search);
                true
            }
            search::Step::Done { place, wrapped } => {
                sink(Reply::Found { serial: self.serial, slot: search.slot, place, wrapped });
                false
            }
        }
    }

    fn watch(&mut self, slot: Slot, paths: Vec<String>) {
        let Ok(dir) = &self.dir else { return };
        let at = Slot::ALL.iter().position(|s| *s == slot).unwrap_or(0);
        self.watched.retain(|(s, _), _| *s != at);
        for path in paths {
            let now = dir.stat(&path).ok().map(|m| stamp(&m));
            self.watched.insert((at, path), now);
        }
    }

    /// The lines above a file's text.
    fn head_of(&self, dir: &Dir, slot: Slot, order: &[String]) -> Doc {
        match slot {
            Slot::Verifier if self.classic => classic::verifier_head(&self.known),
            Slot::Verifier => texts::verifier_head(dir, &self.known, order),
            _ => Doc::default(),
        }
    }

    fn text(&mut self, slot: Slot, nth: Option<usize>, path: Option<&str>, at: At) -> Result<Doc, String> {
        let order = self.order();
        let mut paths = Vec::new();
        if let Ok(dir) = &self.dir {
            paths = match self.classic {
                true => classic::watched(slot),
                false => texts::watched(dir, slot, &order),
            };
        }
        let made = self.make(slot, nth, path, at, &order);
        match &made {
            Ok(doc) => paths.extend(doc.path.clone()),
            Err(_) => paths.extend(path.map(str::to_string)),
        }
        self.watch(slot, paths);
        made
    }

    fn make(
        &self,
        slot: Slot,
        nth: Option<usize>,
        path: Option<&str>,
        at: At,
        order: &[String],
    ) -> Result<Doc, String> {
        if let (Err(_), Some(words)) = (&self.dir, &self.known.instead) {
            return classic::without_files(slot, &self.known, words);
        }
        let dir = self.dir.as_ref().map_err(Clone::clone)?;
        if slot == Slot::Exception {
            return texts::exception(dir, &self.known);
        }
        let (files, main) = match self.classic {
            true => classic::files_of(dir, slot),
            false => texts::files_of(dir, slot, order),
        };
        let mut doc = self.head_of(dir, slot, order);
        let (path, nth) = match path {
            Some(path) => (path.to_string(), (0, 1)),
            None => {
                let main = if at == At::Live { texts::newest(dir, &files).unwrap_or(main) } else { main };
                let at = nth.filter(|n| *n < files.len()).unwrap_or(main);
                match files.get(at) {
                    Some(path) => (path.clone(), (at, files.len())),
                    None if slot == Slot::Verifier => {
                        doc.title("Output");
                        doc.say("no output of the tests", Mark::Remark);
                        return Ok(doc);
                    }
                    None if self.classic => {
                        return Err("no logs: neither panes nor logs of the agent were kept".to_string());
                    }
                    None => return Err("no logs yet: neither trial.log nor a log of the agent".to_string()),
                }
            }
        };
        let opened = dir.open_file(&path);
        let window = match opened {
            Ok(file) => {
                let marks = slot != Slot::File || path.ends_with(".log") || path.ends_with(".txt");
                let mark = |line: &str| if marks { texts::decisive(line) } else { Mark::Plain };
                pager::window(&file, at, mark).map_err(|e| format!("{path}: {}", said(&e)))?
            }
            Err(OpenError::Missing | OpenError::Vanished) => return Err(format!("{path} vanished")),
            Err(problem) if slot == Slot::File => return Err(format!("{path}: {problem}")),
            Err(problem) => {
                doc.title("Output");
                doc.say(format!("{path}: {problem}"), Mark::Remark);
                return Ok(doc);
            }
        };
        if window.before > 0 {
            doc = Doc::default();
        } else if slot != Slot::File {
            doc.title(title(&path, nth, window.size));
        }
        if window.binary {
            doc.say(format!("no text: {} bytes, of which these are the first", window.size), Mark::Remark);
        }
        if window.size == 0 {
            doc.say("empty", Mark::Remark);
        }
        doc.lines.extend(window.lines);
        (doc.before, doc.after) = (window.before, window.after);
        (doc.path, doc.nth) = (Some(path), nth);
        Ok(doc)
    }

    fn list(&self, rel: &str) -> Result<Vec<FileRow>, String> {
        let root = self.dir.as_ref().map_err(Clone::clone)?;
        let words = |e: std::io::Error| format!("{}: {}", if rel.is_empty() { "." } else { rel }, said(&e));
        let sub;
        let dir = if rel.is_empty() {
            root
        } else {
            sub = root.sub(rel).map_err(words)?;
            &sub
        };
        let mut out = Vec::new();
        for entry in dir.list().map_err(words)?.into_iter().take(ENTRIES) {
            let name = entry.name.to_str();
            let meta = name.and_then(|n| dir.stat(n).ok());
            out.push(FileRow {
                name: entry.name.to_string_lossy().into_owned(),
                openable: name.is_some(),
                kind: match entry.kind {
                    EntryKind::Dir => FileKind::Dir,
                    EntryKind::File => FileKind::File,
                    EntryKind::Symlink => FileKind::Symlink,
                    EntryKind::Other => FileKind::Other,
                },
                size: meta.filter(|_| entry.kind == EntryKind::File).map(|m| m.size),
                modified: meta.map(|m| m.modified),
            });
        }
        out.sort_by(|a, b| (a.kind != FileKind::Dir, &a.name).cmp(&(b.kind != FileKind::Dir, &b.name)));
        Ok(out)
    }
}

/// Who a trial without result is, from its config.
fn planned_identity(dir: &Dir) -> Vec<(&'static str, String)> {
    let Some(config) = dir.read_all("config.json", RESULT_MAX).ok().and_then(|b| trial_config(&b.data).ok()) else {
        return Vec::new();
    };
    let facts = [
        ("agent", config.agent),
        ("model", config.model),
        ("task", config.task_name.or(config.task)),
        ("task from", config.git_url.or(config.task_path)),
        ("dataset", config.source),
        ("environment", config.environment),
        ("job id", config.job_id),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?.to_string()))).collect()
}

fn title(path: &str, (at, of): (usize, usize), size: u64) -> String {
    let path = DocLine::new(path, Mark::Plain);
    let more = if of > 1 { format!(", file {} of {of} (Enter: next)", at + 1) } else { String::new() };
    format!("{}, {size} bytes{more}", path.text())
}

/// An error of the system in the operator's words.
fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "not there (any more)".to_string(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        std::io::ErrorKind::NotADirectory => "no directory, or a symbolic link, which is not followed".to_string(),
        _ => error.to_string(),
    }
}
