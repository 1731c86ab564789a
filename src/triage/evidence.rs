//! The files of one trial as evidence: opened on demand, never through a link, by heads and tails.

mod classic;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use serde::Deserialize;

use super::folders::Folders;
use super::pattern::Pattern;
pub use super::source::Source;
use crate::harbor::ctrf::{Ctrf, ctrf};
use crate::harbor::{Dir, EntryKind, Particulars, particulars};
use crate::job::text::{clean, mask_secrets, strip_ansi};
use crate::job::{Excerpt, Trial, TrialResult};

/// Bytes read of a file's beginning, and of its end.
const HEAD: u64 = 128 << 10;
const TAIL: u64 = 192 << 10;
/// Files of one source that are read.
const FILES: usize = 8;
/// Steps of a multi-step trial whose files are looked at, the last ones.
const STEPS: usize = 16;
/// Names of one directory that are looked at.
const NAMES: usize = 2_000;
/// Largest result that is read for a message that no other file has.
const RESULT: u64 = 8 << 20;
/// Bytes of a file's middle through which lines are counted.
const COUNTED: u64 = 64 << 20;
/// Our own note in a trial's directory, and the most that is read of it.
const NOTE: &str = "pilothouse.json";
const NOTE_CAP: u64 = 1 << 20;
/// Characters of an excerpt.
const EXCERPT: usize = 300;

/// A part of a file, or a field of one.
#[derive(Debug)]
pub struct Text {
    /// Path below the trial's directory.
    pub path: Arc<str>,
    /// The text, escape sequences taken out, line for line as in the file. The names of trial and task
    /// are overwritten in it: they are no evidence.
    pub body: String,
    /// The text as it is, where it differs; as long as the other.
    shown: Option<String>,
    base: Base,
}

/// Where a text begins in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Line(u64),
    /// Lines before it were not counted yet: so many bytes come before it.
    After(u64),
    /// A field: it has no line.
    Field,
}

/// What to look for.
#[derive(Debug, Clone)]
pub(super) struct Search {
    /// Sources, any of which may have it.
    pub sources: Vec<Source>,
    pub pattern: Arc<Pattern>,
    /// Lines that match this, too, do not count.
    pub but: Option<Arc<Pattern>>,
    /// Only so many lines at the end of each file.
    pub tail: Option<usize>,
    /// So many lines have to match.
    pub count: usize,
}

/// A trial's files as far as they were asked for.
#[derive(Debug)]
pub struct Gathered<'t> {
    folders: Folders,
    trial: &'t Trial,
    result: &'t TrialResult,
    texts: BTreeMap<Source, Vec<Text>>,
    /// It is laid out as classic terminal-bench does it.
    classic: bool,
    /// The directories in which `agent/` and `verifier/` lie: the trial's own (empty) and its steps'.
    places: Option<Vec<String>>,
    particulars: Option<Option<Box<Particulars>>>,
    ctrf: Option<Option<(Arc<str>, Ctrf)>>,
}

impl<'t> Gathered<'t> {
    /// Of a trial's directory; without one only the result speaks.
    pub fn new(dir: Option<Dir>, classic: bool, trial: &'t Trial, result: &'t TrialResult) -> Gathered<'t> {
        Gathered {
            folders: Folders::new(dir),
            trial,
            result,
            texts: BTreeMap::new(),
            classic,
            places: None,
            particulars: None,
            ctrf: None,
        }
    }

    /// What the trial's own note says of time lost to an endpoint that was away, on clocks that ran on: the
    /// largest share of a phase's limit. None where there is no such note, or no limit.
    pub(super) fn endpoint_lost(&self) -> Option<f64> {
        #[derive(Deserialize)]
        struct Phase {
            lost_sec: f64,
            limit_sec: Option<f64>,
            clock: String,
        }
        #[derive(Deserialize)]
        struct Endpoint {
            phases: Vec<Phase>,
        }
        #[derive(Deserialize)]
        struct Note {
            endpoint: Endpoint,
        }
        let (folder, name) = self.folders.holding(NOTE)?;
        let bytes = folder.dir.read_all(name, NOTE_CAP).ok()?;
        let note: Note = serde_json::from_slice(&bytes.data).ok()?;
        let share = |phase: &Phase| match phase.limit_sec {
            _ if phase.clock == "stood still" => Some(0.0),
            Some(limit) if limit > 0.0 && phase.lost_sec >= 0.0 => Some(phase.lost_sec / limit),
            _ => None,
        };
        note.endpoint.phases.iter().filter_map(share).reduce(f64::max)
    }

    /// The texts of a source.
    pub fn texts(&mut self, source: Source) -> &[Text] {
        if !self.texts.contains_key(&source) {
            let texts = self.read(source);
            self.texts.insert(source, texts);
        }
        self.texts.get(&source).map_or(&[], Vec::as_slice)
    }

    /// The first lines that fit a search, as excerpts; None when there are too few.
    pub(super) fn find(&mut self, search: &Search) -> Option<Vec<Excerpt>> {
        for source in &search.sources {
            self.texts(*source);
            // Compiled only where there is something to read.
            let Some(texts) = self.texts.get(source).filter(|texts| !texts.is_empty()) else { continue };
            let regex = search.pattern.regex()?;
            let mut found: Vec<(usize, usize)> = Vec::new();
            for (index, text) in texts.iter().enumerate() {
                let from = search.tail.map_or(0, |lines| tail_start(&text.body, lines));
                let Some(part) = text.body.get(from..) else { continue };
                let mut last_line = usize::MAX;
                for hit in regex.find_iter(part.as_bytes()) {
                    // Bytes are matched: it may begin within a character.
                    let mut hit = from + hit.start();
                    while !text.body.is_char_boundary(hit) {
                        hit -= 1;
                    }
                    let (start, end) = line_around(&text.body, hit);
                    if start == last_line {
                        continue;
                    }
                    last_line = start;
                    let line = text.body.get(start..end).unwrap_or_default();
                    let but = search.but.as_ref().and_then(|but| but.regex());
                    if but.is_some_and(|but| but.is_match(line.as_bytes())) {
                        continue;
                    }
                    found.push((index, hit));
                    if found.len() >= search.count.max(1) {
                        break;
                    }
                }
                if found.len() >= search.count.max(1) {
                    break;
                }
            }
            if found.len() >= search.count.max(1) {
                let texts = self.texts.get(source).map_or(&[][..], Vec::as_slice);
                let excerpts = found.iter().filter_map(|(i, at)| Some(self.excerpt(texts.get(*i)?, *at)));
                return Some(excerpts.collect());
            }
        }
        None
    }

    /// The first line of the exception's message, unless it is among the evidence already.
    pub(super) fn exception_line(&mut self, known: &[Excerpt]) -> Option<Excerpt> {
        if self.texts(Source::Message).is_empty() {
            return None;
        }
        let text = self.texts.get(&Source::Message)?.first()?;
        let line = self.excerpt(text, 0);
        known.iter().all(|e| e.path != line.path).then_some(line)
    }

    fn excerpt(&self, text: &Text, at: usize) -> Excerpt {
        let shown = text.shown.as_deref().unwrap_or(&text.body);
        let (start, end) = line_around(shown, at);
        let before = |upto: usize| memchr::memchr_iter(b'\n', shown.as_bytes().get(..upto).unwrap_or_default()).count();
        let line = match text.base {
            Base::Line(first) => Some(first + before(start) as u64),
            Base::After(bytes) => self.lines_before(&text.path, bytes).map(|n| n + 1 + before(start) as u64),
            Base::Field => None,
        };
        Excerpt { path: text.path.clone(), line, text: excerpt_text(shown, start, end, at).into() }
    }

    /// Line ends in the first bytes of a file; None where there are too many to count.
    fn lines_before(&self, path: &str, bytes: u64) -> Option<u64> {
        if bytes > COUNTED {
            return None;
        }
        let (folder, name) = self.folders.holding(path)?;
        let mut file = folder.dir.open_file(name).ok()?.take(bytes);
        let mut block = vec![0; 128 << 10];
        let mut lines = 0;
        loop {
            match file.read(&mut block) {
                Ok(0) => return Some(lines),
                Ok(n) => lines += memchr::memchr_iter(b'\n', block.get(..n).unwrap_or_default()).count() as u64,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    fn read(&mut self, source: Source) -> Vec<Text> {
        match source {
            _ if self.classic => self.read_classic(source),
            Source::Message => self.message(),
            Source::Output => self.message().into_iter().filter_map(output_of).collect(),
            Source::Traceback => {
                let texts = self.file("exception.txt");
                if texts.is_empty() { self.fields(|e| e.traceback.clone()) } else { texts }
            }
            Source::TrialLog => self.file("trial.log"),
            Source::SetupLog => self.logs("agent/setup", false),
            Source::AgentLog => self.agent_logs(),
            Source::VerifierLog => self.logs("verifier", true),
            Source::Trajectory => self.in_places("agent/trajectory.json", true),
            Source::Terminal => self.panes(),
            Source::Container => self.container(),
        }
    }

    /// The trial's own directory and those of its last steps.
    fn places(&mut self) -> Vec<String> {
        if let Some(places) = &self.places {
            return places.clone();
        }
        let mut places = vec![String::new()];
        if let Some(steps) = self.folders.get("steps") {
            let mut names = steps.names(NAMES, |kind, _| kind == EntryKind::Dir);
            // Steps in the order in which the result names them, where it does.
            if names.len() > 1
                && let Some(particulars) = self.particulars()
            {
                let order = |name: &String| particulars.steps.iter().position(|s| s.name == *name);
                names.sort_by_key(|name| order(name).unwrap_or(usize::MAX));
            }
            let skip = names.len().saturating_sub(STEPS);
            places.extend(names.into_iter().skip(skip).map(|name| format!("steps/{name}/")));
        }
        self.places = Some(places.clone());
        places
    }

    /// What the result says beyond its summary.
    pub fn particulars(&mut self) -> Option<&Particulars> {
        if self.particulars.is_none() {
            let bytes = self.folders.own().and_then(|own| own.dir.read_all("result.json", RESULT).ok());
            self.particulars = Some(bytes.and_then(|b| particulars(&b.data).ok()).map(Box::new));
        }
        self.particulars.as_ref()?.as_deref()
    }

    /// The first test report that can be read, with its path.
    pub fn ctrf(&mut self) -> Option<&(Arc<str>, Ctrf)> {
        if self.ctrf.is_none() {
            let places = self.places();
            let read = |place: String| {
                let path = format!("{place}verifier/ctrf.json");
                let (folder, name) = self.folders.holding(&path)?;
                let bytes = folder.dir.read_all(name, 4 << 20).ok()?;
                Some((Arc::from(path), ctrf(&bytes.data).ok()?))
            };
            self.ctrf = Some(places.into_iter().find_map(read));
        }
        self.ctrf.as_ref()?.as_ref()
    }

    /// Metadata of a file, in the trial's directory or the first of its steps that has one.
    pub fn meta(&mut self, rel: &str) -> Option<crate::harbor::Meta> {
        self.places().iter().find_map(|place| {
            let path = format!("{place}{rel}");
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
            // No look at the list: of a trial that passed nothing else is asked.
            self.folders.get(parent)?.dir.stat(name).ok()
        })
    }

    /// Whether the trial's directory can be looked at and holds this.
    pub fn holds(&mut self, rel: &str) -> bool {
        self.meta(rel).is_some()
    }

    fn file(&self, rel: &str) -> Vec<Text> {
        let Some((folder, name)) = self.folders.holding(rel) else { return Vec::new() };
        let Ok(head) = folder.dir.read(name, HEAD + TAIL) else { return Vec::new() };
        let text = |bytes: &[u8], base| self.text(rel, &String::from_utf8_lossy(bytes), base);
        if !head.truncated {
            return vec![text(&head.data, Base::Line(1))];
        }
        let first = head.data.get(..HEAD as usize).unwrap_or(&head.data);
        let end = memchr::memrchr(b'\n', first).map_or(first.len(), |n| n + 1);
        let mut out = vec![text(first.get(..end).unwrap_or(first), Base::Line(1))];
        if let Ok(tail) = folder.dir.read_tail(name, TAIL) {
            let skip = memchr::memchr(b'\n', &tail.data).map_or(0, |n| n + 1);
            let before = tail.meta.size.saturating_sub(tail.data.len() as u64) + skip as u64;
            out.push(text(tail.data.get(skip..).unwrap_or_default(), Base::After(before)));
        }
        out
    }

    /// The end of a file.
    fn end(&self, rel: &str) -> Option<Text> {
        let (folder, name) = self.folders.holding(rel)?;
        let tail = folder.dir.read_tail(name, TAIL).ok()?;
        let skip = if tail.truncated { memchr::memchr(b'\n', &tail.data).map_or(0, |n| n + 1) } else { 0 };
        let before = tail.meta.size.saturating_sub(tail.data.len() as u64) + skip as u64;
        let base = if before == 0 { Base::Line(1) } else { Base::After(before) };
        Some(self.text(rel, &String::from_utf8_lossy(tail.data.get(skip..).unwrap_or_default()), base))
    }

    fn in_places(&mut self, rel: &str, only_end: bool) -> Vec<Text> {
        let places = self.places();
        let paths = places.iter().map(|place| format!("{place}{rel}"));
        if only_end {
            paths.filter_map(|p| self.end(&p)).collect()
        } else {
            paths.flat_map(|p| self.file(&p)).collect()
        }
    }

    /// The logs of a directory, in all places.
    fn logs(&mut self, rel: &str, verifier: bool) -> Vec<Text> {
        let mut out = Vec::new();
        for place in self.places() {
            let path = format!("{place}{rel}");
            let Some(folder) = self.folders.get(&path) else { continue };
            let fits = |kind, name: &str| {
                kind == EntryKind::File
                    && is_log(name)
                    && !(verifier && (name.starts_with("reward") || name == "exit-code.txt"))
            };
            for name in folder.names(NAMES, fits).into_iter().take(FILES) {
                out.extend(self.file(&format!("{path}/{name}")));
            }
        }
        out
    }

    fn agent_logs(&mut self) -> Vec<Text> {
        let mut out = self.logs("agent", false);
        for place in self.places() {
            let path = format!("{place}agent");
            let Some(folder) = self.folders.get(&path) else { continue };
            let commands = folder.names(NAMES, |kind, name| kind == EntryKind::Dir && name.starts_with("command-"));
            let skip = commands.len().saturating_sub(FILES / 2);
            for name in commands.iter().skip(skip) {
                for file in ["stdout.txt", "stderr.txt"] {
                    out.extend(self.file(&format!("{path}/{name}/{file}")));
                }
            }
        }
        out
    }

    fn panes(&mut self) -> Vec<Text> {
        let mut out = Vec::new();
        for place in self.places() {
            let path = format!("{place}agent");
            let Some(folder) = self.folders.get(&path) else { continue };
            let panes = folder.names(NAMES, |kind, name| kind == EntryKind::File && name.ends_with(".pane"));
            out.extend(panes.iter().take(2).filter_map(|name| self.end(&format!("{path}/{name}"))));
        }
        out
    }

    /// What a harness kept of the container beside the phases' own files.
    fn container(&self) -> Vec<Text> {
        const BEGINS: [&str; 6] = ["container", "inspect", "docker", "compose", "environment", "sandbox"];
        let Some(own) = self.folders.own() else { return Vec::new() };
        let fits = |kind, name: &str| {
            let kept = name.ends_with(".json") || is_log(name);
            kind == EntryKind::File && kept && BEGINS.iter().any(|b| name.starts_with(b))
        };
        own.names(NAMES, fits).into_iter().take(FILES).flat_map(|name| self.file(&name)).collect()
    }

    /// The exception's message: from `exception.txt`, else from the result.
    fn message(&mut self) -> Vec<Text> {
        if let Some(exception) = &self.result.exception {
            let mut texts = self.file("exception.txt");
            // Of a file with head and tail the message is in the tail, unless it is long itself.
            while let Some(mut text) = texts.pop() {
                if let Some(at) = message_at(&text, &exception.kind, &exception.message) {
                    text.skip_to(at);
                    return vec![text];
                }
            }
        }
        let from_result = self.fields(|e| e.message.clone());
        if !from_result.is_empty() {
            return from_result;
        }
        let known = self.result.exception.as_ref().map(|e| e.message.to_string()).filter(|m| !m.is_empty());
        known.map(|m| self.text("result.json", &m, Base::Field)).into_iter().collect()
    }

    /// A field of all exceptions in the result: of the trial, else of its steps.
    fn fields(&mut self, of: impl Fn(&crate::harbor::FullException) -> String) -> Vec<Text> {
        if self.result.exception.is_none() && self.result.step_exceptions.is_empty() {
            return Vec::new();
        }
        let Some(particulars) = self.particulars() else { return Vec::new() };
        let steps = particulars.steps.iter().rev().filter_map(|s| s.exception.as_ref());
        let all: Vec<String> =
            particulars.exception.iter().chain(steps).map(of).filter(|t| !t.trim().is_empty()).take(FILES).collect();
        all.iter().map(|text| self.text("result.json", text, Base::Field)).collect()
    }

    fn text(&self, path: &str, raw: &str, base: Base) -> Text {
        let mut body = String::with_capacity(raw.len());
        if raw.contains(['\u{1b}', '\r', '\u{9b}', '\u{9d}', '\u{90}']) {
            for line in raw.split_inclusive('\n') {
                let (line, end) = line.strip_suffix('\n').map_or((line, ""), |l| (l, "\n"));
                body.push_str(&strip_ansi(line));
                body.push_str(end);
            }
        } else {
            body.push_str(raw);
        }
        let mut text = Text { path: Arc::from(path), body, shown: None, base };
        let mut names: Vec<&str> = vec![&self.trial.name];
        // One plain word may be said in earnest.
        if self.trial.task.contains(['-', '_']) {
            names.push(&self.trial.task);
        }
        text.hide(&names);
        text
    }
}

impl Text {
    /// Overwrites names, whatever their case.
    fn hide(&mut self, names: &[&str]) {
        let lower = self.body.to_ascii_lowercase();
        for name in names.iter().filter(|name| name.len() >= 4 && name.is_ascii()) {
            let name = name.to_ascii_lowercase();
            let places: Vec<usize> = memchr::memmem::find_iter(lower.as_bytes(), name.as_bytes()).collect();
            self.overwrite(|_| places.into_iter().map(|at| (at, "_".repeat(name.len()))).collect());
        }
    }

    /// Writes other text of the same length over some places; what is shown of it stays.
    fn overwrite(&mut self, places: impl FnOnce(&str) -> Vec<(usize, String)>) {
        let places = places(&self.body);
        if places.is_empty() {
            return;
        }
        let before = self.body.clone();
        for (at, filler) in places {
            self.body.replace_range(at..at + filler.len(), &filler);
        }
        self.shown.get_or_insert(before);
    }

    /// Leaves out what is before this offset.
    fn skip_to(&mut self, at: usize) {
        let lines = memchr::memchr_iter(b'\n', self.body.as_bytes().get(..at).unwrap_or_default()).count() as u64;
        self.base = match self.base {
            Base::Line(first) => Base::Line(first + lines),
            Base::After(bytes) => Base::After(bytes + at as u64),
            Base::Field => Base::Field,
        };
        self.body = self.body.get(at..).unwrap_or_default().to_string();
        self.shown = self.shown.take().map(|s| s.get(at..).unwrap_or_default().to_string());
    }
}

/// Where the message begins in an `exception.txt`: at the line that names the exception and goes on as
/// the message does.
fn message_at(text: &Text, kind: &str, message: &str) -> Option<usize> {
    let shown = text.shown.as_deref().unwrap_or(&text.body);
    let first: String = message.lines().next().unwrap_or_default().chars().take(24).collect();
    // Masked or cleaned, it may differ from the file.
    let first = if first.contains("[masked]") { "" } else { first.trim() };
    let mut at = 0;
    let mut found = None;
    for line in shown.split_inclusive('\n') {
        let head = line.trim_end().split_once(':').map_or(line.trim_end(), |(head, _)| head);
        if head.rsplit('.').next() == Some(kind)
            && !line.starts_with([' ', '\t'])
            && line.contains(first)
            && found.is_none()
        {
            found = Some(at);
        }
        at += line.len();
    }
    found
}

/// What a command printed, out of the message about its failure: what follows `stdout:`, else all but
/// the first line, which holds the command. None for a message that is about no command.
fn output_of(mut text: Text) -> Option<Text> {
    let lower = text.body.to_ascii_lowercase();
    let first_end = lower.find('\n').map_or(lower.len(), |n| n + 1);
    let first = lower.get(..first_end).unwrap_or_default();
    let is_command = first.contains("command") || first.contains("exit code") || first.contains("exited");
    let marks = ["\nstdout:", "\nstderr:", " stdout: ", " stderr: "];
    let at = marks.iter().filter_map(|m| lower.find(m).map(|n| n + m.len())).min();
    match at {
        Some(at) => text.skip_to(at),
        None if is_command => text.skip_to(first_end),
        None => {}
    }
    // The marks of the streams stand before the first line of each.
    text.overwrite(|body| {
        let starts = body.match_indices('\n').map(|(at, _)| at + 1);
        let marks = starts.filter(|at| {
            body.get(*at..).is_some_and(|rest| rest.starts_with("stderr:") || rest.starts_with("stdout:"))
        });
        marks.map(|at| (at, "       ".to_string())).collect()
    });
    Some(text)
}

fn is_log(name: &str) -> bool {
    (name.ends_with(".txt") || name.ends_with(".log")) && !name.starts_with("trajectory")
}

/// Offset of the last so many lines that hold anything.
fn tail_start(body: &str, lines: usize) -> usize {
    let trimmed = body.trim_end();
    let mut left = lines;
    let mut end = trimmed.len();
    while let Some(at) = trimmed.get(..end).and_then(|t| t.rfind('\n')) {
        if trimmed.get(at + 1..end).is_some_and(|line| !line.trim().is_empty()) {
            left = left.saturating_sub(1);
            if left == 0 {
                return at + 1;
            }
        }
        end = at;
    }
    0
}

/// Begin and end of the line around an offset, without its line end.
fn line_around(body: &str, at: usize) -> (usize, usize) {
    let start = body.get(..at).and_then(|b| b.rfind('\n')).map_or(0, |n| n + 1);
    let end = body.get(at..).and_then(|b| b.find('\n')).map_or(body.len(), |n| at + n);
    (start, end)
}

/// The line, or the part of a long one around what was found; masked and clean.
fn excerpt_text(body: &str, start: usize, end: usize, at: usize) -> String {
    let line = body.get(start..end).unwrap_or_default();
    // Secrets are masked in what surrounds the excerpt, too: its edge must not cut one in two.
    const AROUND: usize = 2_000;
    let mut from = at.saturating_sub(start).saturating_sub(AROUND);
    while !line.is_char_boundary(from) {
        from -= 1;
    }
    let mut to = (at.saturating_sub(start) + AROUND).min(line.len());
    while !line.is_char_boundary(to) {
        to += 1;
    }
    let part = line.get(from..to).unwrap_or_default();
    let masked = mask_secrets(part);
    let masked = clean(masked.trim());
    if masked.chars().count() <= EXCERPT {
        return masked.into_owned();
    }
    let skip = (at.saturating_sub(start + from)).min(masked.len());
    let before = masked.char_indices().take_while(|(i, _)| *i < skip).count().saturating_sub(40);
    let before = before.min(masked.chars().count().saturating_sub(EXCERPT));
    masked.chars().skip(before).take(EXCERPT).collect()
}
