//! A trial of classic terminal-bench: its result, its panes, the tests that its harness counted.

use super::steps::stamp;
use super::texts::{self, Known};
use super::{OpenTrial, Sink};
use crate::app::detail::doc::{Doc, Mark, Show};
use crate::app::detail::{Facts, Reply, Slot};
use crate::harbor::classic::{self, episodes, place};
use crate::harbor::{Dir, OpenError, Particulars};

/// Largest result that is read.
const RESULT: u64 = 64 << 20;

impl OpenTrial {
    /// Reads the trial's result; where there is no file of it, what the run's aggregate holds.
    pub(super) fn read_classic(&mut self, sink: Sink<'_>) {
        let run = self.path.parent().and_then(|task| task.parent()).and_then(|run| Dir::open(run).ok());
        let name = self.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let now = self.dir.as_ref().ok().and_then(|dir| dir.stat(place::RESULTS).ok()).map(|m| stamp(&m));
        if self.known.result.is_some() && now == self.result_stamp {
            return;
        }
        let own = self.dir.as_ref().ok().map(|dir| dir.read_all(place::RESULTS, RESULT));
        let (bytes, instead) = match own {
            Some(Ok(bytes)) => (bytes.data, None),
            Some(Err(OpenError::Missing)) | None => {
                let Some(bytes) = run.as_ref().and_then(|run| classic::from_aggregate(run, &name)) else {
                    let facts = Facts { identity: self.begun(), steps: Vec::new() };
                    sink(Reply::Facts { serial: self.serial, facts });
                    return;
                };
                let words = match self.dir.is_err() {
                    true => "no file of it was kept: the run's aggregate alone knows it",
                    false => "no results.json of its own: the run's aggregate alone knows it",
                };
                (bytes, Some(words.to_string()))
            }
            Some(Err(problem)) => {
                self.known.problem = Some(format!("results.json: {problem}"));
                return;
            }
        };
        let read = classic::trial_result(&bytes);
        let (file, mut rest) = match (read, classic::result::particulars(&bytes)) {
            (Ok(file), Ok(rest)) => (file, rest),
            (Err(p), _) if p.may_heal() && self.known.result.is_some() => return,
            (Err(p), _) | (_, Err(p)) => {
                self.known.problem = Some(format!("results.json: {p}"));
                return;
            }
        };
        if let Some(exception) = &mut rest.exception
            && let Some(words) = run.and_then(|run| classic::words_of_log(&run, &name, &file.task, &exception.kind))
        {
            exception.message = format!("{words}\n(from run.log)");
        }
        if let Some(words) = &instead {
            rest.identity.push(("files", words.clone()));
        }
        sink(Reply::Facts { serial: self.serial, facts: Facts { identity: rest.identity.clone(), steps: Vec::new() } });
        self.known = Known {
            result: Some(file.result),
            particulars: Some(rest),
            problem: None,
            cases: classic::result::cases(&bytes).unwrap_or_default(),
            instead: instead.filter(|_| self.dir.is_err()),
        };
        self.result_stamp = now;
    }

    /// Who a trial without result is, by its place.
    fn begun(&self) -> Vec<(&'static str, String)> {
        let name = self.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(parts) = classic::trial_name(&name) else { return Vec::new() };
        vec![
            ("task", parts.task.to_string()),
            ("trial name", name.clone()),
            ("attempt", format!("{} of {}", parts.attempt, parts.of)),
        ]
    }
}

/// Files that a tab pages through, in order, and the one that matters most.
pub(super) fn files_of(dir: &Dir, slot: Slot) -> (Vec<String>, usize) {
    let there = |paths: &[&str]| -> Vec<String> {
        paths.iter().filter(|path| dir.stat(path).is_ok()).map(|path| (*path).to_string()).collect()
    };
    match slot {
        Slot::Verifier => (there(&["panes/post-test.txt", "sessions/tests.log"]), 0),
        Slot::Log => {
            let mut out = there(&["panes/post-agent.txt", "sessions/agent.log", "commands.txt", "panes/pre-agent.txt"]);
            let logs = texts::names(dir, episodes::LOGS);
            let text = |name: &&String| name.ends_with(".txt") || name.ends_with(".log");
            out.extend(logs.iter().filter(text).take(100).map(|name| format!("{}/{name}", episodes::LOGS)));
            (out, 0)
        }
        _ => (Vec::new(), 0),
    }
}

/// Paths whose change changes the text of a slot.
pub(super) fn watched(slot: Slot) -> Vec<String> {
    let mut out = vec![place::RESULTS.to_string()];
    match slot {
        Slot::Verifier => out.extend(["panes", "sessions/tests.log"].map(String::from)),
        Slot::Log => out.extend(["panes", "commands.txt", episodes::LOGS].map(String::from)),
        _ => {}
    }
    out
}

/// What stands above the output of the tests: the verdict, and each test by its word.
pub(super) fn verifier_head(known: &Known) -> Doc {
    let mut doc = Doc::default();
    doc.say("Verdict", Mark::Title);
    match &known.result {
        Some(result) => {
            let entries = result.rewards.entries().iter().map(|(k, v)| (&**k, v));
            texts::rewards(entries, Some(classic::result::TRUTH), &mut doc);
            if result.rewards.entries().is_empty() {
                let why = result.exception.as_ref().map_or(String::new(), |e| format!(": {}", e.kind));
                doc.text(&format!("  no verdict (is_resolved null){why}"), Mark::Remark, Show::Always);
            }
        }
        None => doc.say(known.problem.as_deref().unwrap_or("no results.json yet"), Mark::Remark),
    }
    if !known.cases.is_empty() {
        let passed = known.cases.iter().filter(|(_, word)| word == "passed").count();
        doc.title(format!("Tests, {passed} of {} passed", known.cases.len()));
        // What failed first.
        for good in [false, true] {
            for (name, word) in known.cases.iter().filter(|(_, word)| (word == "passed") == good) {
                let mark = if good { Mark::Good } else { Mark::Decisive };
                doc.text(&format!("  {word:<8} {name}"), mark, Show::Always);
            }
        }
    }
    doc
}

/// The text of a slot of a trial without any file.
pub(super) fn without_files(slot: Slot, known: &Known, words: &str) -> Result<Doc, String> {
    match slot {
        Slot::Verifier => {
            let mut doc = verifier_head(known);
            doc.say("", Mark::Plain);
            doc.say(words, Mark::Remark);
            Ok(doc)
        }
        Slot::Exception => match known.particulars.as_ref().and_then(|p: &Particulars| p.exception.as_ref()) {
            Some(exception) => {
                let mut doc = Doc::default();
                texts::write_exception(None, exception, &mut doc);
                Ok(doc)
            }
            None => Err("no failure mode was recorded".to_string()),
        },
        _ => Err(words.to_string()),
    }
}
