//! Reading journals: what was written by whomever, torn, merged by hand or made by another program.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::say::OUTAGE;
use super::{HOLD, JOURNAL, REGRADE, file_of};
use crate::harbor::{Dir, OpenError};
use crate::job::text::mask_secrets;
use crate::job::verdict::{Notebook, Outage, Requeued, Verdict, Word};
use crate::job::{JobFacts, time};

/// Bytes read of a journal: its last ones. A word takes a few hundred.
const CAP: u64 = 32 << 20;
/// Longest line that is looked at.
const LINE: usize = 64 << 10;
/// Characters kept of what somebody wrote.
pub(super) const TEXT: usize = 4000;
/// Longest name of a directory, and of a result id.
const NAME: usize = 4096;

/// What the journals of a job say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// What operators said of the trials.
    pub notebook: Notebook,
    /// Lines that could be read, of any act.
    pub lines: u64,
    /// Lines that could not: torn, too long, not ours.
    pub unread: u64,
    /// Journals that are there and can not be read: where, and why.
    pub problems: Vec<(String, String)>,
}

/// What names a job's journal in the state dir: its id, else its directory's name.
pub fn place_name(facts: &JobFacts) -> String {
    match facts.id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => id.to_string(),
        None => facts.dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
    }
}

/// Reads the journal in a job's directory, and those of the state dir that belong to the job. Whatever
/// is wrong with a line costs that line alone; a journal that is not there says nothing.
pub fn read(dir: &Dir, facts: &JobFacts, state_dir: Option<&Path>) -> Reading {
    let mut reading = Reading::default();
    take(&mut reading, dir, JOURNAL, &facts.dir.join(JOURNAL).display().to_string());
    let Some(place) = state_dir.map(|dir| dir.join("journal")) else { return reading };
    let Ok(state) = Dir::open(&place) else { return reading };
    for file in state_files(facts) {
        take(&mut reading, &state, &file, &place.join(&file).display().to_string());
    }
    reading
}

/// Names of a job's files in the state dir's `journal`. It may have had no id when its first line was
/// written.
pub fn state_files(facts: &JobFacts) -> Vec<String> {
    let by_name = JobFacts { id: None, dir: facts.dir.clone(), ..JobFacts::default() };
    let mut files = vec![file_of(&place_name(facts)), file_of(&place_name(&by_name))];
    files.dedup();
    files
}

/// How the result of a line begins that tells of an endpoint's move; then come the old address, ` to `, and
/// the new one up to `; `.
pub const MOVED: &str = "moved from ";

/// Where the endpoints of a job were moved to while it ran, in order: from, to. Of a journal beside the job,
/// else of one in the state dir.
pub fn moves(dir: &Dir, facts: &JobFacts, state_dir: Option<&Path>) -> Vec<(String, String)> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        act: Cow<'a, str>,
        #[serde(borrow, default)]
        result: Cow<'a, str>,
    }
    let state = || Dir::open(&state_dir?.join("journal")).ok();
    let beside = dir.read_tail(JOURNAL, CAP).ok();
    let bytes = beside.or_else(|| state()?.read_tail(state_files(facts).first()?, CAP).ok());
    let Some(bytes) = bytes else { return Vec::new() };
    let read = |line: &[u8]| {
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        let (from, rest) = line.result.strip_prefix(MOVED).filter(|_| line.act == "endpoint")?.split_once(" to ")?;
        let to = rest.split("; ").next()?;
        // An address of which a part was masked leads nowhere.
        let whole = |text: &str| !text.contains(crate::job::text::MASK);
        (whole(from) && whole(to)).then(|| (from.to_string(), to.to_string()))
    };
    bytes.data.split(|b| *b == b'\n').filter(|line| line.len() <= LINE).filter_map(read).collect()
}

fn take(reading: &mut Reading, dir: &Dir, file: &str, shown: &str) {
    let bytes = match dir.read_tail(file, CAP) {
        Ok(bytes) => bytes,
        Err(OpenError::Missing | OpenError::Vanished) => return,
        Err(error) => return reading.problems.push((shown.to_string(), error.to_string())),
    };
    let mut data = bytes.data.as_slice();
    if bytes.truncated {
        // The first line may have lost its beginning.
        let begin = memchr::memchr(b'\n', data).map_or(data.len(), |at| at + 1);
        data = data.get(begin..).unwrap_or_default();
        reading.problems.push((shown.to_string(), format!("longer than {CAP} bytes: only its last lines are read")));
    }
    for line in data.split(|b| *b == b'\n') {
        // NULs are what a crash of the machine leaves where a line was to be.
        let blank = |b: &u8| b.is_ascii_whitespace() || *b == 0;
        let begin = line.iter().position(|b| !blank(b)).unwrap_or(line.len());
        let end = line.iter().rposition(|b| !blank(b)).map_or(begin, |at| at + 1);
        let line = line.get(begin..end).unwrap_or_default();
        if line.is_empty() {
            continue;
        }
        let (entries, torn) = entries(line);
        reading.unread += u64::from(torn);
        for entry in entries {
            reading.lines += 1;
            entry.enter(&mut reading.notebook);
        }
    }
}

/// How a line of ours begins.
const BEGIN: &[u8] = b"{\"schema_version\":";

/// What a line holds, and whether something in it could not be read. More than one entry where journals
/// were put together and the first of them had lost its last end of line, or more.
fn entries(mut line: &[u8]) -> (Vec<Entry<'_>>, bool) {
    let (mut entries, mut torn) = (Vec::new(), false);
    while !line.is_empty() {
        if line.len() > LINE {
            return (entries, true);
        }
        let mut parts = serde_json::Deserializer::from_slice(line).into_iter();
        while let Some(Ok(entry)) = parts.next() {
            entries.push(entry);
        }
        let done = parts.byte_offset();
        line = line.get(done..).unwrap_or_default();
        if line.is_empty() {
            break;
        }
        torn = true;
        // Within a text the quotes would be escaped.
        let next = memchr::memmem::find(line.get(1..).unwrap_or_default(), BEGIN);
        line = next.and_then(|at| line.get(at + 1..)).unwrap_or_default();
    }
    (entries, torn)
}

/// A line, as far as anything here looks at it.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    act: Cow<'a, str>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operator: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    trial: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    verdict: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    why: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    class: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    rule: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    subject: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    place: Option<Cow<'a, str>>,
}

/// At most so many characters, with secrets masked.
fn text(text: Option<&Cow<'_, str>>, most: usize) -> Arc<str> {
    let text = text.map_or("", |t| &**t);
    let cut = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    Arc::from(&*mask_secrets(text.get(..cut).unwrap_or_default()))
}

impl Entry<'_> {
    /// The times of an outage stand in its subject: `2026-11-29T14:05:00Z/2026-11-29T14:40:00Z`.
    fn outage(&self) -> Option<Outage> {
        let (from, to) = self.subject.as_deref()?.split_once('/')?;
        let (from, to) = (time::parse(from)?.at, time::parse(to)?.at);
        let (why, operator) = (text(self.why.as_ref(), TEXT), text(self.operator.as_ref(), 200));
        (from <= to).then_some(Outage { from, to, why, operator })
    }

    /// Takes what it says of a trial into the notebook; acts that are no words leave it as it is.
    fn enter(&self, notebook: &mut Notebook) {
        let name = |text: &Option<Cow<'_, str>>| -> Option<Arc<str>> {
            text.as_deref().filter(|t| !t.is_empty() && t.len() <= NAME).map(Arc::from)
        };
        match &*self.act {
            "origin" => [&self.subject, &self.place].into_iter().filter_map(name).for_each(|o| notebook.add_origin(o)),
            "requeue" => name(&self.place).into_iter().for_each(|place| notebook.add_offspring(place)),
            OUTAGE => self.outage().into_iter().for_each(|outage| notebook.add_outage(outage)),
            _ => {}
        }
        let Some(trial) = name(&self.trial) else { return };
        match &*self.act {
            // Of the words that `run` and `held remove` have for it.
            HOLD => {
                let held = self.result.as_deref().filter(|words| words.contains(" held as "));
                return notebook.set_held(trial, held.map(|_| text(self.result.as_ref(), TEXT)));
            }
            "remove" => return notebook.set_held(trial, None),
            REGRADE => {
                if self.result.as_deref().is_some_and(|words| words.ends_with(" was removed")) {
                    notebook.set_held(trial.clone(), None);
                }
                return notebook.add_regraded(trial);
            }
            _ => {}
        }
        let Some(time) = self.time.as_deref().and_then(time::parse).map(|read| read.at) else { return };
        let (note, operator) = (text(self.why.as_ref(), TEXT), text(self.operator.as_ref(), 200));
        let (verdict, note_only) = match &*self.act {
            "verdict" => match self.verdict.as_deref() {
                Some("none") | None => (None, false),
                // A word of a later version of this program: not known, so it says nothing here.
                Some(word) => match Verdict::of_word(word) {
                    Some(verdict) => (Some(verdict), false),
                    None => return,
                },
            },
            "note" => (None, true),
            "requeue" => {
                let requeue = Requeued { trial, result_id: name(&self.result_id), why: note, operator, time };
                return notebook.add_requeue(requeue);
            }
            _ => return,
        };
        let short = |text: &Option<Cow<'_, str>>| name(text).map(|t| self::text(Some(&Cow::Borrowed(&*t)), 200));
        notebook.add(Word {
            trial,
            result_id: name(&self.result_id),
            verdict,
            note_only,
            note,
            operator,
            time,
            class: short(&self.class),
            rule: short(&self.rule),
        });
    }
}
