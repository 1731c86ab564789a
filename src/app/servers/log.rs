//! The log of a server: filtered, followed, scrolled.

use std::collections::VecDeque;

use super::super::model::Model;
use crate::serving::{LogLine, Severity, SourceId, SourceView};

/// How the log is looked at.
#[derive(Debug, Clone, Default)]
pub struct LogView {
    /// What was typed: words that must stand in a line, `!word` that must not, `warning`, `error` or
    /// `fatal` with a `+` for lines at least so bad.
    pub filter: String,
    words: Vec<Word>,
    /// The last line that is shown; None: the newest, whatever it is.
    pub at: Option<(SourceId, u64)>,
}

#[derive(Debug, Clone)]
enum Word {
    Has(String),
    HasNot(String),
    AtLeast(Severity),
}

impl LogView {
    /// Sets the filter.
    pub fn set_filter(&mut self, text: &str) {
        self.filter = text.to_string();
        self.words = text.split_whitespace().map(word).collect();
    }

    fn passes(&self, line: &LogLine) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let text = line.text.to_lowercase();
        self.words.iter().all(|word| match word {
            Word::Has(word) => text.contains(word),
            Word::HasNot(word) => !text.contains(word),
            Word::AtLeast(severity) => line.severity >= *severity,
        })
    }
}

fn word(text: &str) -> Word {
    let text = text.to_lowercase();
    match (text.as_str(), text.strip_prefix('!')) {
        ("+warning" | "warning+", _) => Word::AtLeast(Severity::Warning),
        ("+error" | "error+", _) => Word::AtLeast(Severity::Error),
        ("+fatal" | "fatal+", _) => Word::AtLeast(Severity::Fatal),
        (_, Some(not)) if !not.is_empty() => Word::HasNot(not.to_string()),
        _ => Word::Has(text),
    }
}

/// The logs of the selected replica's server; of all where it has none.
pub fn sources(model: &Model) -> Vec<&SourceView> {
    let logs = || model.serving.sources().iter().filter(|s| s.is_log());
    let server = model.servers.selected.as_ref().map(|key| key.server.clone());
    let own: Vec<&SourceView> = logs().filter(|s| Some(&s.source.server) == server.as_ref()).collect();
    if own.is_empty() { logs().collect() } else { own }
}

/// Lines that pass the filter, oldest first.
fn passing(model: &Model) -> Vec<(SourceId, &LogLine)> {
    let view = &model.servers.log;
    sources(model)
        .into_iter()
        .flat_map(|s| s.log().map(move |line| (s.source.id, line)))
        .filter(|(_, line)| view.passes(line))
        .collect()
}

/// The lines of a window of so many rows, oldest first, how many pass and how many there are.
pub fn window(model: &Model, rows: usize) -> (Vec<&LogLine>, usize, usize) {
    let all: usize = sources(model).iter().map(|s| s.log().count()).sum();
    let lines = passing(model);
    let end = end(model, &lines);
    // A window at the very top is a full one.
    let end = end.max(rows.min(lines.len()));
    let shown: VecDeque<&LogLine> =
        lines.iter().take(end).rev().take(rows).map(|(_, line)| *line).collect::<VecDeque<_>>();
    (shown.into_iter().rev().collect(), lines.len(), all)
}

/// One past the last line that is shown.
fn end(model: &Model, lines: &[(SourceId, &LogLine)]) -> usize {
    match model.servers.log.at {
        None => lines.len(),
        Some((source, number)) => {
            let past = lines.iter().rposition(|(id, line)| *id == source && line.number <= number);
            past.map_or_else(|| usize::from(!lines.is_empty()), |at| at + 1)
        }
    }
}

/// The last line that is shown.
pub fn last_shown(model: &Model) -> Option<&LogLine> {
    let lines = passing(model);
    let at = end(model, &lines).checked_sub(1)?;
    lines.get(at).map(|(_, line)| *line)
}

/// Scrolls; at the end it follows again.
pub fn step(model: &mut Model, by: isize) {
    let lines = passing(model);
    let at = end(model, &lines).saturating_add_signed(by);
    let next = match at {
        at if at >= lines.len() => None,
        at => lines.get(at.max(1) - 1).map(|(id, line)| (*id, line.number)),
    };
    model.servers.log.at = next;
}
