//! `agent/trajectory.json` in the Agent Trajectory Interchange Format, v1.0 to v1.8.
//!
//! The file is rewritten as a whole after every episode and can grow to hundreds of MB where token
//! ids are collected, so it is never loaded: [`TrajectoryIndex`] notes where each step lies, and
//! [`TrajectoryIndex::step`] reads the one that is looked at.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::json::{FileProblem, ProblemReason};
use super::json_scan::{Condenser, Root, Scanner, Sink};
pub use super::step::{Observation, Step, StepMetrics, SubagentRef, ToolCall, split_message};
use crate::job::{Progress, Stamp, Tokens, time};

/// Bytes read at a time.
const BLOCK: usize = 256 * 1024;
/// Steps that are kept; the others are counted.
const MAX_STEPS: usize = 500_000;
/// Bytes kept of one text of a step.
const TEXT: usize = 256 * 1024;
/// Bytes of one step, long texts already cut, beyond which it is not shown.
const STEP: usize = 64 * 1024 * 1024;

/// Lists in a step's metrics that are never shown: one entry per token.
const TOKEN_LISTS: &[&str] = &["prompt_token_ids", "completion_token_ids", "logprobs"];

/// Who a step is by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Source {
    /// The harness.
    System,
    /// The task, or a simulated user.
    User,
    /// The agent: one model answer and what came of it.
    Agent,
    /// Not said, or a word unknown to us.
    #[default]
    Other,
}

impl Source {
    /// The word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            Source::System => "system",
            Source::User => "user",
            Source::Agent => "agent",
            Source::Other => "-",
        }
    }

    pub(super) fn of(word: &str) -> Source {
        match word {
            "system" => Source::System,
            "user" => Source::User,
            "agent" => Source::Agent,
            _ => Source::Other,
        }
    }
}

/// Where one step lies, and what lists show of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepPlace {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// `step_id`; counts steps, not episodes.
    pub step_id: Option<u32>,
    /// Who it is by.
    pub source: Source,
    /// When it was recorded, after its commands ran.
    pub timestamp: Option<Stamp>,
    /// Prompt tokens of this step.
    pub prompt_tokens: Option<u64>,
    /// Of those, tokens from the cache.
    pub cached_tokens: Option<u64>,
    /// Completion tokens of this step.
    pub completion_tokens: Option<u64>,
    /// Copied from an earlier trajectory: no episode of this one.
    pub is_copied_context: bool,
    /// Number of tool calls.
    pub tool_calls: u32,
}

/// The root fields of a trajectory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrajectoryHead {
    /// `schema_version`, `ATIF-v1.7`.
    pub schema_version: Option<Arc<str>>,
    /// `session_id`.
    pub session_id: Option<Arc<str>>,
    /// `agent.name`.
    pub agent: Option<Arc<str>>,
    /// `agent.model_name`.
    pub model: Option<Arc<str>>,
    /// `continued_trajectory_ref`: the file that goes on from here.
    pub continued_in: Option<Arc<str>>,
    /// Totals of `final_metrics`.
    pub totals: Tokens,
    /// `final_metrics.total_cost_usd`.
    pub cost_usd: Option<f64>,
    /// True when there is a list of steps.
    pub has_steps: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootKey {
    Schema,
    Session,
    Agent,
    Steps,
    Final,
    Continued,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InnerKey {
    Id,
    Source,
    Timestamp,
    Copied,
    Metrics,
    Tools,
    Prompt,
    Cached,
    Completion,
    Cost,
    Name,
    Model,
    Other,
}

/// Collects the places while the scanner runs.
#[derive(Debug)]
struct Collector {
    /// Places kept at most.
    keep: usize,
    head: TrajectoryHead,
    steps: Vec<StepPlace>,
    count: u64,
    episodes: u64,
    sums: Tokens,
    first: Option<Stamp>,
    last: Option<Stamp>,
    root_key: RootKey,
    /// Key inside `agent` or `final_metrics`.
    outer_key: InnerKey,
    step_key: InnerKey,
    metric_key: InnerKey,
    current: StepPlace,
}

impl Collector {
    fn new(keep: usize) -> Collector {
        Collector {
            keep,
            head: TrajectoryHead::default(),
            steps: Vec::new(),
            count: 0,
            episodes: 0,
            sums: Tokens::default(),
            first: None,
            last: None,
            root_key: RootKey::Other,
            outer_key: InnerKey::Other,
            step_key: InnerKey::Other,
            metric_key: InnerKey::Other,
            current: StepPlace::default(),
        }
    }

    fn end_step(&mut self, end: u64) {
        let mut step = self.current;
        step.len = end.saturating_sub(step.offset);
        self.count += 1;
        if step.source == Source::Agent && !step.is_copied_context {
            self.episodes += 1;
        }
        if !step.is_copied_context {
            self.sums.add(&Tokens {
                input: step.prompt_tokens,
                cache: step.cached_tokens,
                output: step.completion_tokens,
            });
        }
        self.first = self.first.or(step.timestamp);
        self.last = step.timestamp.or(self.last);
        if self.steps.len() < self.keep {
            self.steps.push(step);
        }
    }
}

/// A captured string as text.
fn text(raw: &[u8]) -> Option<Arc<str>> {
    if memchr::memchr(b'\\', raw).is_none() {
        return Some(String::from_utf8_lossy(raw).into());
    }
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(Into::into)
}

fn number(raw: &[u8]) -> Option<f64> {
    std::str::from_utf8(raw).ok()?.parse::<f64>().ok().filter(|n| n.is_finite())
}

fn count(raw: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(raw).ok()?;
    text.parse().ok().or_else(|| number(raw).filter(|n| *n >= 0.0 && *n < 9e15 && n.fract() == 0.0).map(|n| n as u64))
}

impl Sink for Collector {
    fn key(&mut self, level: usize, key: &[u8]) {
        let inner = match key {
            b"step_id" => InnerKey::Id,
            b"source" => InnerKey::Source,
            b"timestamp" => InnerKey::Timestamp,
            b"is_copied_context" => InnerKey::Copied,
            b"metrics" => InnerKey::Metrics,
            b"tool_calls" => InnerKey::Tools,
            b"prompt_tokens" | b"total_prompt_tokens" => InnerKey::Prompt,
            b"cached_tokens" | b"total_cached_tokens" => InnerKey::Cached,
            b"completion_tokens" | b"total_completion_tokens" => InnerKey::Completion,
            b"total_cost_usd" => InnerKey::Cost,
            b"name" => InnerKey::Name,
            b"model_name" => InnerKey::Model,
            _ => InnerKey::Other,
        };
        match level {
            1 => {
                self.root_key = match key {
                    b"schema_version" => RootKey::Schema,
                    b"session_id" => RootKey::Session,
                    b"agent" => RootKey::Agent,
                    b"steps" => RootKey::Steps,
                    b"final_metrics" => RootKey::Final,
                    b"continued_trajectory_ref" => RootKey::Continued,
                    _ => RootKey::Other,
                }
            }
            2 => self.outer_key = inner,
            3 => self.step_key = inner,
            4 => self.metric_key = inner,
            _ => {}
        }
    }

    fn value(&mut self, level: usize, raw: &[u8], is_string: bool) {
        match (level, self.root_key) {
            (1, RootKey::Schema) if is_string => self.head.schema_version = text(raw),
            (1, RootKey::Session) if is_string => self.head.session_id = text(raw),
            (1, RootKey::Continued) if is_string => self.head.continued_in = text(raw),
            (2, RootKey::Agent) if is_string => match self.outer_key {
                InnerKey::Name => self.head.agent = text(raw),
                InnerKey::Model => self.head.model = text(raw),
                _ => {}
            },
            (2, RootKey::Final) if !is_string => match self.outer_key {
                InnerKey::Prompt => self.head.totals.input = count(raw),
                InnerKey::Cached => self.head.totals.cache = count(raw),
                InnerKey::Completion => self.head.totals.output = count(raw),
                InnerKey::Cost => self.head.cost_usd = number(raw),
                _ => {}
            },
            (3, RootKey::Steps) => match self.step_key {
                InnerKey::Id if !is_string => {
                    self.current.step_id = count(raw).and_then(|n| u32::try_from(n).ok());
                }
                InnerKey::Source if is_string => {
                    self.current.source = std::str::from_utf8(raw).map(Source::of).unwrap_or_default();
                }
                InnerKey::Timestamp if is_string => {
                    self.current.timestamp = std::str::from_utf8(raw).ok().and_then(time::parse).map(|t| t.at);
                }
                InnerKey::Copied => self.current.is_copied_context = raw == b"true",
                _ => {}
            },
            (4, RootKey::Steps) if self.step_key == InnerKey::Metrics && !is_string => match self.metric_key {
                InnerKey::Prompt => self.current.prompt_tokens = count(raw),
                InnerKey::Cached => self.current.cached_tokens = count(raw),
                InnerKey::Completion => self.current.completion_tokens = count(raw),
                _ => {}
            },
            _ => {}
        }
    }

    fn open(&mut self, level: usize, is_object: bool, offset: u64) {
        match (level, self.root_key) {
            (1, RootKey::Steps) if !is_object => self.head.has_steps = true,
            (2, RootKey::Steps) => {
                self.current = StepPlace { offset, ..StepPlace::default() };
                self.step_key = InnerKey::Other;
            }
            (3, _) => self.metric_key = InnerKey::Other,
            (4, RootKey::Steps) if self.step_key == InnerKey::Tools => {
                self.current.tool_calls = self.current.tool_calls.saturating_add(1);
            }
            _ => {}
        }
    }

    fn close(&mut self, level: usize, end: u64) {
        if level == 2 && self.root_key == RootKey::Steps {
            self.end_step(end);
        }
    }
}

/// Where the steps of a trajectory lie, found slice by slice while it can already be paged through.
///
/// It belongs to one writing of the file: when size or modification time change, make a new one.
#[derive(Debug)]
pub struct TrajectoryIndex {
    file: File,
    scanner: Scanner,
    found: Collector,
    at_end: bool,
}

impl TrajectoryIndex {
    /// An empty index of an open file.
    pub fn new(file: File) -> TrajectoryIndex {
        TrajectoryIndex { file, scanner: Scanner::new(), found: Collector::new(MAX_STEPS), at_end: false }
    }

    /// Reads on for about `max_bytes`, at least one block. True when the end of the file (or of
    /// anything usable in it) is reached.
    ///
    /// # Errors
    /// As `pread(2)`.
    pub fn build_slice(&mut self, max_bytes: u64) -> io::Result<bool> {
        if !self.at_end {
            self.at_end = scan(&self.file, &mut self.scanner, &mut self.found, max_bytes)?;
        }
        Ok(self.at_end)
    }

    /// The complete steps found so far.
    pub fn steps(&self) -> &[StepPlace] {
        &self.found.steps
    }

    /// Number of complete steps met so far, also of those beyond the ones that are kept.
    pub fn steps_met(&self) -> u64 {
        self.found.count
    }

    /// Root fields found so far.
    pub fn head(&self) -> &TrajectoryHead {
        &self.found.head
    }

    /// Bytes looked at so far.
    pub fn bytes_read(&self) -> u64 {
        self.scanner.offset()
    }

    /// True when the end of the file is reached.
    pub fn is_built(&self) -> bool {
        self.at_end
    }

    /// True when the outermost object has closed: the file is whole.
    pub fn is_whole(&self) -> bool {
        self.scanner.root() == Root::Closed
    }

    /// Bytes of memory that the index holds, about.
    pub fn memory(&self) -> usize {
        self.found.steps.capacity() * size_of::<StepPlace>() + size_of::<Self>()
    }

    /// What the whole file says of the trial's progress.
    ///
    /// # Errors
    /// `Torn` when the file ends before its outermost object does (so the last good reading should
    /// be kept), `Empty`, `Foreign` when it is no trajectory, `NotJson` when more follows.
    pub fn progress(&self) -> Result<Progress, FileProblem> {
        told(&self.scanner, &self.found)
    }

    /// Step `n` (from 0), texts cut at 256 KiB each.
    ///
    /// # Errors
    /// `Foreign` when there is no such step, `TooDeep` or `NotJson` when it can not be parsed (the
    /// file was rewritten meanwhile, most likely).
    pub fn step(&self, n: usize) -> Result<Step, FileProblem> {
        let Some(place) = self.found.steps.get(n) else {
            return Err(FileProblem::foreign(format!("there is no step {n} (of {})", self.found.count)));
        };
        let mut short = Condenser::new(TEXT, TOKEN_LISTS);
        let mut block = vec![0; BLOCK.min(usize::try_from(place.len).unwrap_or(BLOCK)).max(1)];
        let mut done = 0;
        while done < place.len {
            let want = usize::try_from(place.len - done).unwrap_or(BLOCK).min(block.len());
            let n = match self.file.read_at(block.get_mut(..want).unwrap_or_default(), place.offset + done) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(FileProblem::foreign(format!("can not be read: {e}"))),
            };
            if n == 0 {
                break;
            }
            short.feed(block.get(..n).unwrap_or_default());
            done += n as u64;
            if short.len() > STEP {
                return Err(FileProblem::foreign(format!("a step of {} bytes is too large to show", place.len)));
            }
        }
        super::step::parse(&short.finish())
    }
}

/// Feeds the scanner for about `max_bytes`; true at the end of the file.
fn scan(file: &File, scanner: &mut Scanner, found: &mut Collector, max_bytes: u64) -> io::Result<bool> {
    let mut block = vec![0; BLOCK];
    let goal = scanner.offset().saturating_add(max_bytes.max(1));
    while scanner.offset() < goal {
        let n = match file.read_at(&mut block, scanner.offset()) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        scanner.feed(block.get(..n).unwrap_or_default(), found);
        if n == 0 || matches!(scanner.root(), Root::Other | Root::Trailing) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn told(scanner: &Scanner, found: &Collector) -> Result<Progress, FileProblem> {
    let problem = |kind, message: &str| Err(FileProblem { kind, line: 0, column: 0, message: message.to_string() });
    match scanner.root() {
        Root::Blank => return problem(ProblemReason::Empty, "empty"),
        Root::Open => {
            let message = format!("ends in the middle of a value after {} bytes", scanner.offset());
            return problem(ProblemReason::Torn, &message);
        }
        Root::Other => return problem(ProblemReason::Foreign, "not a trajectory: no object"),
        Root::Trailing => return problem(ProblemReason::NotJson, "something follows the trajectory"),
        Root::Closed if !found.head.has_steps => {
            return problem(ProblemReason::Foreign, "not a trajectory: no list of steps");
        }
        Root::Closed => {}
    }
    let totals = found.head.totals;
    Ok(Progress {
        steps: u32::try_from(found.count).unwrap_or(u32::MAX),
        episodes: u32::try_from(found.episodes).unwrap_or(u32::MAX),
        first_step: found.first,
        last_step: found.last,
        tokens: if totals.is_unknown() { found.sums } else { totals },
    })
}

/// The progress that a `trajectory.json` shows, read in one go; no step's place is kept.
///
/// # Errors
/// As [`TrajectoryIndex::progress`]; what can not be read at all is `Foreign`.
pub fn progress(file: &File) -> Result<Progress, FileProblem> {
    let (mut scanner, mut found) = (Scanner::new(), Collector::new(0));
    scan(file, &mut scanner, &mut found, u64::MAX)
        .map_err(|e| FileProblem::foreign(format!("can not be read: {e}")))?;
    told(&scanner, &found)
}

/// The trajectory files of one `agent/` directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrajectoryFiles {
    /// `trajectory.json` is there.
    pub main: bool,
    /// `trajectory.cont-<n>.json` in order of n.
    pub continuations: Vec<(u32, String)>,
    /// `trajectory.summarization-<n>-<part>.json` in order of n, then summary, questions, answers.
    pub summarizations: Vec<(u32, &'static str, String)>,
}

/// Sorts out the trajectory files among the names of a directory.
pub fn trajectory_files<'a>(names: impl IntoIterator<Item = &'a str>) -> TrajectoryFiles {
    const PARTS: [&str; 3] = ["summary", "questions", "answers"];
    let mut out = TrajectoryFiles::default();
    for name in names {
        let Some(middle) = name.strip_prefix("trajectory.").and_then(|n| n.strip_suffix("json")) else { continue };
        let middle = middle.trim_end_matches('.');
        if middle.is_empty() {
            out.main = out.main || name == "trajectory.json";
        } else if let Some(n) = middle.strip_prefix("cont-").and_then(|n| n.parse().ok()) {
            out.continuations.push((n, name.to_string()));
        } else if let Some((n, part)) = middle.strip_prefix("summarization-").and_then(|n| n.split_once('-'))
            && let (Ok(n), Some(part)) = (n.parse(), PARTS.into_iter().find(|p| *p == part))
        {
            out.summarizations.push((n, part, name.to_string()));
        }
    }
    out.continuations.sort();
    let rank = |part: &str| PARTS.iter().position(|p| *p == part);
    out.summarizations.sort_by(|a, b| (a.0, rank(a.1), &a.2).cmp(&(b.0, rank(b.1), &b.2)));
    out
}
