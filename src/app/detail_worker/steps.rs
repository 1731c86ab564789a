//! The trajectories of a trial: indexed slice by slice, steps read one at a time.

use std::collections::HashMap;

use crate::app::detail::doc::{Doc, DocLine, Mark, Show};
use crate::app::detail::{Head, Part, Speaker};
use crate::harbor::classic::episodes;
use crate::harbor::trajectory::{Source, Step, StepPlace, ToolCall, TrajectoryIndex, split_message, trajectory_files};
use crate::harbor::{Calls, Dir, EntryKind, Meta, OpenError};
use crate::job::{Stamp, time};

/// Bytes that are indexed between two looks at the requests.
const SLICE: u64 = 8 << 20;
/// Step directories that are looked into.
const STEP_DIRS: usize = 200;
/// Bytes of one step's text after which the rest is left out.
const STEP_TEXT: usize = 4 << 20;
/// Lines kept of one text of a step.
const TEXT_LINES: usize = 20_000;
/// First lines of plans that are remembered.
const LINES_KEPT: usize = 4000;

/// Size, time and inode: enough to tell whether a file changed.
pub type Stamp3 = (u64, i128, u64);

/// What makes a file a different one.
pub fn stamp(meta: &Meta) -> Stamp3 {
    (meta.size, meta.mtime_nanos, meta.inode)
}

#[derive(Debug)]
struct Source1 {
    name: Option<String>,
    path: String,
    stamp: Option<Stamp3>,
    /// The last good reading.
    index: Option<TrajectoryIndex>,
    /// The reading under way.
    next: Option<TrajectoryIndex>,
    /// It changed again while it was being read.
    outdated: bool,
    note: Option<String>,
    revision: u64,
}

impl Source1 {
    fn shown(&self) -> Option<&TrajectoryIndex> {
        self.index.as_ref().or(self.next.as_ref())
    }

    fn places(&self) -> &[StepPlace] {
        self.shown().map(TrajectoryIndex::steps).unwrap_or_default()
    }

    fn part(&self) -> Part {
        let size = self.stamp.map_or(0, |s| s.0).max(1);
        let read = self.next.as_ref().map(|n| n.bytes_read() as f64 / size as f64);
        Part {
            name: self.name.clone(),
            path: self.path.clone(),
            steps: self.places().len(),
            indexed: read.map_or(1.0, |r| r.clamp(0.0, 0.999)),
            note: self.note.clone(),
            revision: self.revision,
        }
    }
}

fn is_episode(place: &StepPlace) -> bool {
    place.source == Source::Agent && !place.is_copied_context
}

/// All trajectories of a trial as one list of steps.
#[derive(Debug, Default)]
pub struct Steps {
    sources: Vec<Source1>,
    /// Of a trial of classic terminal-bench: its episodes lie in directories; when its agent worked.
    episodes: Option<Option<(Stamp, Stamp)>>,
    lines: HashMap<(usize, u64, u64), (String, u32)>,
    revision: u64,
}

impl Steps {
    /// Looks which trajectory files there are and which changed; `order` is that of the steps of a
    /// multi-step trial as its result has it.
    pub fn look(&mut self, dir: &Dir, order: &[String], done: bool) {
        let found = match self.episodes {
            Some(_) => vec![(None, episodes::LOGS.to_string())],
            None => discover(dir, order),
        };
        let mut old = std::mem::take(&mut self.sources);
        for (name, path) in found {
            let at = old.iter().position(|s| s.path == path);
            let mut source = at.map(|at| old.swap_remove(at)).unwrap_or(Source1 {
                name,
                path,
                stamp: None,
                index: None,
                next: None,
                outdated: false,
                note: None,
                revision: 0,
            });
            self.refresh(dir, &mut source, done);
            self.sources.push(source);
        }
        // A file that vanished keeps what was read of it, unless it was moved to where it was found.
        for mut gone in old {
            let moved = self.sources.iter().any(|s| s.stamp.is_some() && same_file(s.stamp, gone.stamp));
            if !moved && gone.index.is_some() {
                gone.note = Some(format!("{} vanished; what was read of it is kept", gone.path));
                gone.next = None;
                self.sources.push(gone);
            }
        }
        // Nothing to be said of a place where nothing was, once there is something elsewhere.
        if self.sources.iter().any(|s| s.shown().is_some()) {
            self.sources.retain(|s| s.shown().is_some() || s.stamp.is_some());
        }
    }

    /// The steps are the episodes of a trial of classic terminal-bench, whose agent worked at that time.
    pub fn of_episodes(&mut self, window: Option<(Stamp, Stamp)>) {
        self.episodes = Some(window);
    }

    /// Reads the episodes anew where any changed.
    fn refresh_episodes(&mut self, dir: &Dir, source: &mut Source1, window: Option<(Stamp, Stamp)>, done: bool) {
        let numbers = episodes::numbers(dir);
        if numbers.is_empty() {
            source.note = Some(match done {
                true => "no episodes: only terminus keeps them".to_string(),
                false => "no episode yet".to_string(),
            });
            return;
        }
        let now = episodes::stamp(dir, &numbers);
        if source.stamp == Some(now) && source.shown().is_some() {
            return;
        }
        if source.next.is_some() {
            source.outdated = true;
            return;
        }
        match episodes::as_trajectory(dir, &numbers, window, done) {
            Ok(file) => {
                source.outdated = false;
                source.stamp = Some(now);
                source.next = Some(TrajectoryIndex::new(file));
            }
            Err(error) => source.note = Some(format!("{}: {error}", source.path)),
        }
    }

    fn refresh(&mut self, dir: &Dir, source: &mut Source1, done: bool) {
        source.outdated &= source.next.is_some();
        if let Some(window) = self.episodes {
            return self.refresh_episodes(dir, source, window, done);
        }
        let opened = dir.open_file(&source.path).and_then(|file| {
            let meta = dir.stat(&source.path).map_err(OpenError::Io)?;
            Ok((file, stamp(&meta)))
        });
        match opened {
            Ok((_, now)) if source.stamp == Some(now) && source.shown().is_some() => {}
            // A file that changes faster than it can be read is read to its end all the same, and
            // once more after that.
            Ok(_) if source.next.is_some() => source.outdated = true,
            Ok((file, now)) => {
                source.outdated = false;
                source.stamp = Some(now);
                source.next = Some(TrajectoryIndex::new(file));
            }
            Err(OpenError::Missing) if source.index.is_none() => {
                source.stamp = None;
                if let Some(agent) = without_model(dir) {
                    source.note = Some(format!("no trajectory: the {agent} agent asks no model and writes none"));
                    return;
                }
                let words = if done {
                    "the agent ended before its first episode was complete"
                } else {
                    "the first episode is not complete"
                };
                source.note = Some(format!("no trajectory.json{}: {words}", if done { "" } else { " yet" }));
            }
            Err(OpenError::Missing | OpenError::Vanished) => {
                source.note = Some(format!("{} vanished; what was read of it is kept", source.path));
            }
            Err(problem) => source.note = Some(format!("{}: {problem}", source.path)),
        }
    }

    /// Forgets everything; what is read from now on counts as new.
    pub fn reset(&mut self) {
        *self = Steps { revision: self.revision + 1, episodes: self.episodes, ..Steps::default() };
    }

    /// What is known of each file.
    pub fn parts(&self) -> Vec<Part> {
        self.sources.iter().map(Source1::part).collect()
    }

    /// Whether a file that was just read to its end changed meanwhile: look again.
    pub fn is_outdated(&self) -> bool {
        self.sources.iter().any(|s| s.outdated && s.next.is_none())
    }

    /// Indexes one slice; false when there was nothing to do.
    pub fn work(&mut self) -> bool {
        let Some(source) = self.sources.iter_mut().find(|s| s.next.is_some()) else { return false };
        let Some(next) = &mut source.next else { return false };
        let built = next.build_slice(SLICE);
        match built {
            Ok(false) => {}
            Ok(true) => {
                let problem = next.progress().err();
                let more = next.steps().len() >= source.index.as_ref().map_or(0, |i| i.steps().len());
                // Of a file caught while it is rewritten the last whole reading stays.
                if problem.is_none() || more {
                    source.index = source.next.take();
                    self.revision += 1;
                    source.revision = self.revision;
                }
                source.next = None;
                source.note = problem.map(|p| match p.may_heal() {
                    true => format!("{} {}: being written, or cut off; the complete steps are shown", source.path, p),
                    false => format!("{}: {p}", source.path),
                });
            }
            Err(error) => {
                source.note = Some(format!("{} can not be read: {error}", source.path));
                source.next = None;
            }
        }
        true
    }

    /// Steps known.
    pub fn len(&self) -> usize {
        self.sources.iter().map(|s| s.places().len()).sum()
    }

    fn at(&self, n: usize) -> Option<(usize, usize)> {
        let mut left = n;
        for (i, source) in self.sources.iter().enumerate() {
            let len = source.places().len();
            if left < len {
                return Some((i, left));
            }
            left -= len;
        }
        None
    }

    /// Heads of steps `from..from+n`, without their lines; see [`Steps::line`]. `calls` gives the
    /// model calls of the run of a name.
    pub fn heads<'a>(&self, from: usize, n: usize, calls: impl Fn(Option<&str>) -> Option<&'a Calls>) -> Vec<Head> {
        let mut out = Vec::new();
        let (mut at, mut episode) = (0, 0_u32);
        let several = self.sources.iter().filter(|s| !s.places().is_empty()).count() > 1;
        // Episodes of the run that a source belongs to, before it; a run is one step's files.
        let mut run: (Option<&str>, usize) = (None, 0);
        for (i, source) in self.sources.iter().enumerate() {
            let name = source.name.as_deref();
            if i == 0 || run.0 != name {
                run = (name, 0);
            }
            let in_run = |s: &&Source1| s.name.as_deref() == name;
            let total: usize =
                self.sources.iter().filter(in_run).flat_map(|s| s.places()).filter(|p| is_episode(p)).count();
            let told = calls(name)
                .filter(|c| c.summaries.unwrap_or(0) == 0 && c.millis.len() == total)
                .map(|c| c.millis.as_slice());
            let mut last = None;
            for (k, place) in source.places().iter().enumerate() {
                let mut model = None;
                if is_episode(place) {
                    episode += 1;
                    model = told.and_then(|m| m.get(run.1)).map(|m| m / 1000.0);
                    run.1 += 1;
                }
                if at >= from && at < from + n {
                    let gap = match (last, place.timestamp) {
                        (Some(a), Some(b)) => Some(seconds(a, b)),
                        _ => None,
                    };
                    out.push(Head {
                        speaker: match place.source {
                            Source::Agent if place.is_copied_context => Speaker::Copied,
                            Source::Agent => Speaker::Agent,
                            Source::System => Speaker::System,
                            Source::User | Source::Other => Speaker::User,
                        },
                        episode: is_episode(place).then_some(episode),
                        at: place.timestamp,
                        gap,
                        // A call can not have taken longer than the episode did.
                        model: model.filter(|m| gap.is_some_and(|g| *m <= g + 0.5)),
                        input: place.prompt_tokens,
                        output: place.completion_tokens,
                        line: String::new(),
                        refs: 0,
                        group: (several && k == 0).then(|| label(source)),
                    });
                }
                last = place.timestamp.or(last);
                at += 1;
            }
        }
        out
    }

    /// First line of a step's plan or message, and the number of trajectories that it refers to;
    /// with the bytes that had to be read.
    pub fn line(&mut self, n: usize) -> (String, u32, u64) {
        let Some((i, k)) = self.at(n) else { return (String::new(), 0, 0) };
        let Some((source, place)) = self.sources.get(i).and_then(|s| Some((s, s.places().get(k)?))) else {
            return (String::new(), 0, 0);
        };
        let key = (i, place.offset, place.len);
        if let Some((line, refs)) = self.lines.get(&key) {
            return (line.clone(), *refs, 0);
        }
        let bytes = place.len;
        let read = source.shown().map(|index| index.step(k));
        let (line, refs) = match read {
            Some(Ok(step)) => {
                let refs = step.observations.iter().map(|o| o.subagents.len()).sum::<usize>();
                (first_line(&step), u32::try_from(refs).unwrap_or(u32::MAX))
            }
            Some(Err(problem)) => return (format!("can not be read: {problem}"), 0, bytes),
            None => return (String::new(), 0, 0),
        };
        if self.lines.len() >= LINES_KEPT {
            self.lines.clear();
        }
        self.lines.insert(key, (line.clone(), refs));
        (line, refs, bytes)
    }

    /// The text of a step.
    pub fn doc(&self, n: usize, head: Option<&Head>) -> Doc {
        let mut doc = Doc::default();
        let Some((i, k)) = self.at(n) else {
            doc.say("there is no such step any more", Mark::Remark);
            return doc;
        };
        let Some(source) = self.sources.get(i) else { return doc };
        doc.path = Some(source.path.clone());
        match source.shown().map(|index| index.step(k)) {
            Some(Ok(step)) => write_step(&step, k, source, head, &mut doc),
            Some(Err(problem)) => {
                let words = format!("step {} of {} can not be read: {problem}", k + 1, source.path);
                doc.say(words, Mark::Remark);
                doc.say("the file is being rewritten, most likely; it is read again when it changes", Mark::Remark);
            }
            None => {}
        }
        doc
    }
}

fn label(source: &Source1) -> String {
    match &source.name {
        Some(name) => format!("step {name}"),
        None => source.path.rsplit('/').next().unwrap_or_default().to_string(),
    }
}

/// The trial's agent, where it is one that asks no model.
fn without_model(dir: &Dir) -> Option<&'static str> {
    let config = dir.read("config.json", 1 << 20).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&config.data).ok()?;
    let name = config.get("agent")?.get("name")?.as_str()?;
    ["oracle", "nop", "scripted"].into_iter().find(|known| *known == name)
}

fn same_file(a: Option<Stamp3>, b: Option<Stamp3>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a.2 == b.2 && a.0 == b.0)
}

fn seconds(a: crate::job::Stamp, b: crate::job::Stamp) -> f64 {
    time::seconds_between(a, b).unwrap_or_else(|| -time::seconds_between(b, a).unwrap_or(0.0))
}

/// Names and paths of the trajectory files, in the order of time.
fn discover(dir: &Dir, order: &[String]) -> Vec<(Option<String>, String)> {
    let mut out = Vec::new();
    let mut steps: Vec<(usize, i128, String)> = Vec::new();
    if let Ok(entries) = dir.sub("steps").and_then(|d| d.list()) {
        for entry in entries.into_iter().filter(|e| e.kind == EntryKind::Dir).take(STEP_DIRS) {
            let Ok(name) = entry.name.into_string() else { continue };
            let rank = order.iter().position(|o| *o == name).unwrap_or(usize::MAX);
            let time = dir.stat(&format!("steps/{name}/agent")).map_or(i128::MAX, |m| m.mtime_nanos);
            steps.push((rank, time, name));
        }
    }
    steps.sort();
    for (_, _, name) in steps {
        files_in(dir, &format!("steps/{name}/agent"), Some(&name), &mut out);
    }
    let several = !out.is_empty();
    files_in(dir, "agent", several.then_some("under way"), &mut out);
    if out.is_empty() {
        out.push((None, "agent/trajectory.json".to_string()));
    }
    out
}

fn files_in(dir: &Dir, agent: &str, name: Option<&str>, out: &mut Vec<(Option<String>, String)>) {
    let Ok(entries) = dir.sub(agent).and_then(|d| d.list()) else { return };
    let names: Vec<String> = entries.into_iter().filter_map(|e| e.name.into_string().ok()).collect();
    let files = trajectory_files(names.iter().map(String::as_str));
    let mut add = |file: &str| out.push((name.map(str::to_string), format!("{agent}/{file}")));
    if files.main {
        add("trajectory.json");
    }
    files.continuations.iter().take(STEP_DIRS).for_each(|(_, file)| add(file));
}

fn first_line(step: &Step) -> String {
    let text = match split_message(&step.message) {
        Some((analysis, "")) => analysis,
        Some((_, plan)) => plan,
        None => &step.message,
    };
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let line = if line.is_empty() {
        step.tool_calls.iter().map(typed).collect::<Vec<_>>().join("; ")
    } else {
        line.chars().take(300).collect()
    };
    DocLine::new(line.trim(), Mark::Plain).text().to_string()
}

fn write_step(step: &Step, k: usize, source: &Source1, head: Option<&Head>, doc: &mut Doc) {
    let mut first = vec![match (head.and_then(|h| h.episode), step.source) {
        (Some(n), _) => format!("Episode {n}"),
        (None, Source::Agent) => "Copied episode".to_string(),
        (None, other) => format!("{} step", capital(other.word())),
    }];
    if let Some(name) = &source.name {
        first.push(format!("of step {name}"));
    }
    doc.say(first.join(" "), Mark::Title);
    let mut facts = vec![format!("entry {}", step.step_id.map_or(k + 1, |id| id as usize))];
    if let Some(at) = step.timestamp {
        facts.push(format!("recorded {} UTC", at.strftime("%F %T")));
    }
    if let Some(gap) = head.and_then(|h| h.gap) {
        facts.push(match head.and_then(|h| h.model) {
            _ if gap < 0.0 => format!("clock went back {} since the step before", time::words(-gap)),
            Some(model) => {
                format!("{} ({model:.1} s at the model, {:.1} s in commands)", took(gap), (gap - model).max(0.0))
            }
            None if step.source != Source::Agent => format!("{} after the step before", time::words(gap)),
            None => took(gap),
        });
    }
    doc.say(facts.join(", "), Mark::Dim);
    let m = &step.metrics;
    let mut tokens = Vec::new();
    if let Some(n) = m.prompt_tokens {
        let cached = m.cached_tokens.map_or(String::new(), |c| format!(" ({c} from the cache)"));
        tokens.push(format!("{n} tokens in{cached}"));
    }
    tokens.extend(m.completion_tokens.map(|n| format!("{n} out")));
    tokens.extend(m.cost_usd.map(|c| format!("${c:.4}")));
    tokens.extend(step.model.as_ref().map(|m| format!("model {m}")));
    if !tokens.is_empty() {
        doc.say(tokens.join(", "), Mark::Dim);
    }
    if let Some(reasoning) = step.reasoning.as_ref().filter(|r| !r.trim().is_empty()) {
        folded("Reasoning", reasoning, doc);
    }
    match split_message(&step.message) {
        Some((analysis, plan)) => {
            section("Analysis", analysis, doc);
            section("Plan", plan, doc);
        }
        None => section("Message", step.message.trim_end(), doc),
    }
    let (done, commands): (Vec<&ToolCall>, Vec<&ToolCall>) =
        step.tool_calls.iter().partition(|c| c.function == "mark_task_complete");
    if !commands.is_empty() {
        doc.title(match commands.len() {
            1 => "Command".to_string(),
            n => format!("Commands, {n}"),
        });
        for (i, call) in commands.iter().enumerate() {
            if doc.size() > STEP_TEXT {
                doc.say(format!("+ {} more commands", commands.len() - i), Mark::Remark);
                break;
            }
            command(call, doc);
        }
    }
    if !done.is_empty() {
        doc.title("Says that the task is complete");
    }
    for (i, observation) in step.observations.iter().enumerate() {
        if doc.size() > STEP_TEXT {
            doc.say(format!("+ {} more observations", step.observations.len() - i), Mark::Remark);
            break;
        }
        let of = observation.call_id.as_ref().filter(|_| commands.len() > 1);
        let name = of.map_or("Observation".to_string(), |id| format!("Observation of {id}"));
        section(&name, observation.content.trim_end(), doc);
        for sub in &observation.subagents {
            let what = sub.path.as_deref().or(sub.session_id.as_deref()).unwrap_or("a trajectory without name");
            doc.text(&format!("see {what} (Files, agent/)"), Mark::Remark, Show::Always);
        }
    }
}

fn took(gap: f64) -> String {
    if gap < 10.0 { format!("took {gap:.1} s") } else { format!("took {}", time::words(gap)) }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

fn section(name: &str, text: &str, doc: &mut Doc) {
    if text.trim().is_empty() {
        return;
    }
    doc.title(name);
    let (shown, left) = capped(text);
    doc.text(shown, Mark::Plain, Show::Always);
    if left > 0 {
        doc.say(format!("+ {left} more bytes"), Mark::Remark);
    }
}

fn folded(name: &str, text: &str, doc: &mut Doc) {
    doc.title(name);
    let (shown, left) = capped(text.trim_end());
    let n = shown.lines().count();
    let words = format!("{n} line{}, folded: e unfolds", if n == 1 { "" } else { "s" });
    doc.text(&words, Mark::Dim, Show::Folded);
    doc.text(shown, Mark::Plain, Show::Unfolded);
    if left > 0 {
        doc.text(&format!("+ {left} more bytes"), Mark::Remark, Show::Unfolded);
    }
}

/// The first lines, and the bytes of the rest.
pub fn capped(text: &str) -> (&str, usize) {
    match text.match_indices('\n').nth(TEXT_LINES) {
        Some((at, _)) => (text.get(..at).unwrap_or(text), text.len() - at),
        None => (text, 0),
    }
}

fn command(call: &ToolCall, doc: &mut Doc) {
    let wait = call.duration.map_or("      ".to_string(), |d| format!("{d:>4} s"));
    let shown = typed(call);
    for (i, line) in shown.split('\n').enumerate() {
        let lead = if i == 0 { wait.as_str() } else { "      " };
        doc.text(&format!("{lead}  {line}"), Mark::Typed, Show::Always);
    }
}

/// What a call types, with the keys made visible that leave no mark; another call as its arguments.
fn typed(call: &ToolCall) -> String {
    let Some(keys) = &call.keystrokes else {
        return format!("{} {}", call.function, call.arguments);
    };
    let body = keys.trim_end_matches('\n');
    let enters = keys.len() - body.len();
    let mut out = String::new();
    for c in body.chars() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push_str("[Tab]"),
            '\r' => out.push_str("[Enter]"),
            '\u{1b}' => out.push_str("[Esc]"),
            '\u{7f}' => out.push_str("[Backspace]"),
            '\u{1}'..='\u{1a}' => {
                out.push_str("[C-");
                out.push(char::from(b'a' - 1 + c as u8));
                out.push(']');
            }
            c => out.push(c),
        }
    }
    match (body.is_empty(), enters) {
        (true, 0) => "nothing, waits".to_string(),
        (_, 0) => format!("{out} (no Enter)"),
        (_, n @ 1..=3) => {
            format!("{out} {}", ["[Enter]"; 3].get(..n).unwrap_or_default().join(" ")).trim_start().to_string()
        }
        (_, n) => format!("{out} {n} × [Enter]"),
    }
}
