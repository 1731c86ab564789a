//! Texts made of several files: verifier, exception, logs.

use crate::app::detail::Slot;
use crate::app::detail::doc::{Doc, DocLine, Mark, Show};
use crate::harbor::ctrf::{CaseStatus, Ctrf};
use crate::harbor::{Dir, EntryKind, FullException, OpenError, Particulars, ctrf, exception_kind};
use crate::job::{RewardValue, Stamp, TrialResult};

/// Bytes read of small files: rewards, test reports, exceptions.
const SMALL: u64 = 8 << 20;
/// Files offered in one tab.
const FILES: usize = 300;

/// What is known of a trial's result.
#[derive(Debug, Default)]
pub struct Known {
    /// The summary.
    pub result: Option<TrialResult>,
    /// The rest.
    pub particulars: Option<Particulars>,
    /// Why `result.json` is there and can not be used.
    pub problem: Option<String>,
    /// Tests by name and word, as classic terminal-bench keeps them.
    pub cases: Vec<(String, String)>,
    /// From where a trial is known of which there is no file.
    pub instead: Option<String>,
}

impl Known {
    /// When the agent worked, as far as the result tells.
    pub fn agent_span(&self) -> Option<(Stamp, Stamp)> {
        let span = self.result.as_ref()?.spans.agent;
        span.started.zip(span.finished)
    }
}

/// Names in a directory beneath the trial dir that are regular files, sorted.
pub fn names(dir: &Dir, rel: &str) -> Vec<String> {
    let Ok(entries) = dir.sub(rel).and_then(|d| d.list()) else { return Vec::new() };
    let mut out: Vec<String> =
        entries.into_iter().filter(|e| e.kind == EntryKind::File).filter_map(|e| e.name.into_string().ok()).collect();
    out.sort();
    out
}

fn dirs(dir: &Dir, rel: &str) -> Vec<String> {
    let Ok(entries) = dir.sub(rel).and_then(|d| d.list()) else { return Vec::new() };
    let mut out: Vec<String> =
        entries.into_iter().filter(|e| e.kind == EntryKind::Dir).filter_map(|e| e.name.into_string().ok()).collect();
    out.sort();
    out.truncate(FILES);
    out
}

/// The directories of a trial's phases: those of its steps, then its own; `order` is that of the
/// steps.
fn phase_dirs(dir: &Dir, what: &str, order: &[String]) -> Vec<(Option<String>, String)> {
    let mut steps = dirs(dir, "steps");
    steps.sort_by_key(|s| order.iter().position(|o| o == s).unwrap_or(usize::MAX));
    let mut out: Vec<(Option<String>, String)> =
        steps.into_iter().map(|s| (Some(s.clone()), format!("steps/{s}/{what}"))).collect();
    out.push((None, what.to_string()));
    out
}

/// Files that a tab pages through, in order, and the one that matters most.
pub fn files_of(dir: &Dir, slot: Slot, order: &[String]) -> (Vec<String>, usize) {
    let mut out = Vec::new();
    match slot {
        Slot::Verifier => {
            for (_, at) in phase_dirs(dir, "verifier", order) {
                let there = names(dir, &at);
                let mut add = |name: &str| out.push(format!("{at}/{name}"));
                ["test-stdout.txt", "test-stderr.txt"]
                    .iter()
                    .filter(|n| there.iter().any(|t| t == *n))
                    .for_each(|n| add(n));
                let rest = there.iter().filter(|n| {
                    let known = ["test-stdout.txt", "test-stderr.txt", "reward.txt", "reward.json", "ctrf.json"];
                    !known.contains(&n.as_str()) && (n.ends_with(".txt") || n.ends_with(".log"))
                });
                rest.for_each(|n| add(n));
            }
            out.truncate(FILES);
            // Of the steps the last one that has output.
            let main = out.iter().rposition(|p| p.ends_with("/test-stdout.txt")).unwrap_or(0);
            (out, main)
        }
        Slot::Log => {
            if dir.stat("trial.log").is_ok() {
                out.push("trial.log".to_string());
            }
            for (_, at) in phase_dirs(dir, "agent", order) {
                let text = |n: &&String| n.ends_with(".txt") || n.ends_with(".log") || n.ends_with(".pane");
                let mut there = names(dir, &at);
                there.sort_by_key(|n| n.ends_with(".pane"));
                out.extend(there.iter().filter(text).map(|n| format!("{at}/{n}")));
                for sub in dirs(dir, &at).into_iter().filter(|d| d == "setup" || d.starts_with("command-")) {
                    let inner = format!("{at}/{sub}");
                    out.extend(names(dir, &inner).iter().filter(text).map(|n| format!("{inner}/{n}")));
                }
            }
            out.truncate(FILES);
            (out, 0)
        }
        _ => (out, 0),
    }
}

/// Which of these files was written last; `trial.log` only where there is no other.
pub fn newest(dir: &Dir, files: &[String]) -> Option<usize> {
    let written = |at: &usize| {
        let path = files.get(*at)?;
        let modified = dir.stat(path).ok()?.modified;
        Some((path != "trial.log", modified, *at))
    };
    (0..files.len()).filter_map(|at| written(&at)).max().map(|(_, _, at)| at)
}

/// Paths whose change changes the text of a slot.
pub fn watched(dir: &Dir, slot: Slot, order: &[String]) -> Vec<String> {
    let mut out = vec!["result.json".to_string()];
    match slot {
        Slot::Verifier => {
            out.push("steps".to_string());
            for (_, at) in phase_dirs(dir, "verifier", order) {
                out.extend(["reward.txt", "reward.json", "ctrf.json"].iter().map(|n| format!("{at}/{n}")));
                out.push(at);
            }
        }
        Slot::Exception => out.push("exception.txt".to_string()),
        Slot::Log => out.extend(phase_dirs(dir, "agent", order).into_iter().map(|(_, at)| at)),
        _ => {}
    }
    out
}

/// Lines that decide: failures, errors, tracebacks.
pub fn decisive(line: &str) -> Mark {
    const SIGNS: [&str; 7] = ["FAILED", "Error", "ERROR", "Traceback", "assert ", "AssertionError", "FATAL"];
    let plain = line.trim_start();
    if line.starts_with("E  ") || plain.starts_with("assert") || SIGNS.iter().any(|s| line.contains(s)) {
        Mark::Decisive
    } else {
        Mark::Plain
    }
}

/// What stands above the output of the tests.
pub fn verifier_head(dir: &Dir, known: &Known, order: &[String]) -> Doc {
    let mut doc = Doc::default();
    doc.say("Rewards", Mark::Title);
    match &known.result {
        Some(result) => {
            let entries = result.rewards.entries().iter().map(|(k, v)| (&**k, v));
            rewards(entries, result.rewards.primary_entry().map(|(k, _)| &**k), &mut doc);
            if result.rewards.entries().is_empty() {
                let why = match (&result.exception, result.verifier_disabled) {
                    (_, true) => "no reward: the job was told not to verify".to_string(),
                    (Some(e), _) => format!("no reward; the trial ended with {}", e.kind),
                    (None, _) if result.is_phantom() => {
                        "no reward and no exception: the trial was cut off and must be run again".to_string()
                    }
                    (None, _) => "no reward".to_string(),
                };
                doc.say(why, Mark::Remark);
            }
            if result.reward_valid == Some(false) && !result.rewards.entries().is_empty() {
                doc.say("Harbor's error policy does not let this reward count", Mark::Remark);
            }
        }
        None => doc.say(
            known.problem.as_deref().unwrap_or("no result.json yet; what the verifier has written so far:"),
            Mark::Remark,
        ),
    }
    for step in known.particulars.iter().flat_map(|p| &p.steps) {
        doc.text(&format!("step {}", step.name), Mark::Dim, Show::Always);
        match &step.rewards {
            Some(list) => rewards(list.iter().map(|(k, v)| (k.as_str(), v)), None, &mut doc),
            None => doc.say("  no verifier result", Mark::Remark),
        }
        if let Some(e) = &step.exception {
            doc.text(&format!("  {}: {}", e.kind, first(&e.message)), Mark::Decisive, Show::Always);
        }
    }
    for (step, at) in phase_dirs(dir, "verifier", order) {
        for name in ["reward.json", "reward.txt"] {
            match dir.read(&format!("{at}/{name}"), 4096) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes.data);
                    let text = if text.trim().is_empty() { "empty" } else { text.trim() };
                    doc.text(&format!("{at}/{name} as written: {text}"), Mark::Dim, Show::Always);
                }
                Err(OpenError::Missing) => {}
                Err(problem) => doc.text(&format!("{at}/{name}: {problem}"), Mark::Remark, Show::Always),
            }
        }
        match dir.read_all(&format!("{at}/ctrf.json"), SMALL) {
            Ok(bytes) => {
                doc.title(match &step {
                    Some(step) => format!("Tests of step {}", DocLine::new(step, Mark::Plain).text()),
                    None => "Tests".to_string(),
                });
                match ctrf::ctrf(&bytes.data) {
                    Ok(report) => cases(&report, &mut doc),
                    Err(problem) => doc.text(&format!("{at}/ctrf.json: {problem}"), Mark::Remark, Show::Always),
                }
            }
            Err(OpenError::Missing) => {}
            Err(problem) => doc.text(&format!("{at}/ctrf.json: {problem}"), Mark::Remark, Show::Always),
        }
    }
    doc
}

pub fn rewards<'a>(entries: impl Iterator<Item = (&'a str, &'a RewardValue)>, primary: Option<&str>, doc: &mut Doc) {
    for (key, value) in entries {
        let sign = if primary == Some(key) && key != "reward" { " (the one that counts)" } else { "" };
        let (shown, mark) = match value {
            RewardValue::Number(n) if *n == 1.0 => (format!("{n}"), Mark::Good),
            RewardValue::Number(n) => (format!("{n}"), Mark::Plain),
            RewardValue::Unreadable(text) => (format!("{text}, not a number"), Mark::Decisive),
        };
        doc.text(&format!("  {key:<20} {shown}{sign}"), mark, Show::Always);
    }
}

fn cases(report: &Ctrf, doc: &mut Doc) {
    let c = &report.counts;
    let mut counts = vec![format!("{} of {} passed", c.passed, c.tests)];
    let others = [(c.failed, "failed"), (c.skipped, "skipped"), (c.pending, "pending"), (c.other, "other")];
    counts.extend(others.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")));
    if let Some(tool) = &report.tool {
        counts.push(format!("by {tool}"));
    }
    doc.text(&counts.join(", "), Mark::Plain, Show::Always);
    let rank = |s: CaseStatus| match s {
        CaseStatus::Failed => 0,
        CaseStatus::Other => 1,
        CaseStatus::Pending => 2,
        CaseStatus::Skipped => 3,
        CaseStatus::Passed => 4,
    };
    let mut order: Vec<_> = report.cases.iter().collect();
    order.sort_by_key(|case| rank(case.status));
    for case in order {
        let mark = match case.status {
            CaseStatus::Failed | CaseStatus::Other => Mark::Decisive,
            CaseStatus::Passed => Mark::Good,
            _ => Mark::Dim,
        };
        let took = case.duration_ms.map_or(String::new(), |ms| match ms {
            ms if ms < 1000.0 => format!("  {ms:.0} ms"),
            ms => format!("  {:.1} s", ms / 1000.0),
        });
        doc.text(&format!("  {:<8} {}{took}", case.status.word(), case.name), mark, Show::Always);
        if case.status == CaseStatus::Passed {
            continue;
        }
        for line in case.message.iter().flat_map(|m| m.lines()).take(12) {
            doc.text(&format!("           {line}"), Mark::Plain, Show::Always);
        }
        if let Some(trace) = &case.trace {
            let n = trace.lines().count();
            doc.text(&format!("           trace, {n} lines, folded: e unfolds"), Mark::Dim, Show::Folded);
            for line in trace.lines() {
                doc.text(&format!("           {line}"), decisive(line), Show::Unfolded);
            }
        }
    }
    if report.beyond > 0 {
        doc.say(format!("+ {} more cases", report.beyond), Mark::Remark);
    }
}

fn first(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

/// The Exception tab. An error in words when there is none.
pub fn exception(dir: &Dir, known: &Known) -> Result<Doc, String> {
    let mut doc = Doc::default();
    if let Some(p) = &known.particulars {
        let of_steps = p.steps.iter().filter_map(|s| Some((Some(s.name.as_str()), s.exception.as_ref()?)));
        for (step, e) in p.exception.iter().map(|e| (None, e)).chain(of_steps) {
            write_exception(step, e, &mut doc);
        }
        if !doc.lines.is_empty() {
            doc.path = Some("result.json".to_string());
            return Ok(doc);
        }
    }
    match dir.read_tail("exception.txt", SMALL / 16) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes.data);
            let kind = exception_kind(&bytes.data).map_or("no type found".to_string(), |k| k.to_string());
            let whence = if known.result.is_some() {
                "result.json holds none; exception.txt says"
            } else {
                "from exception.txt; result.json is not written yet"
            };
            doc.text(&kind, Mark::Title, Show::Always);
            doc.say(whence, Mark::Dim);
            if bytes.truncated {
                doc.say(format!("the end of {} bytes", bytes.meta.size), Mark::Remark);
            }
            traceback(&text, &mut doc);
            doc.path = Some("exception.txt".to_string());
            Ok(doc)
        }
        Err(OpenError::Missing) => Err(match (&known.result, &known.problem) {
            (_, Some(problem)) => problem.clone(),
            (Some(_), None) => "no exception was recorded".to_string(),
            (None, None) => "no exception so far".to_string(),
        }),
        Err(problem) => Err(format!("exception.txt: {problem}")),
    }
}

pub fn write_exception(step: Option<&str>, e: &FullException, doc: &mut Doc) {
    if !doc.lines.is_empty() {
        doc.say("", Mark::Plain);
    }
    let of = step.map_or(String::new(), |s| format!(" in step {s}"));
    doc.text(&format!("{}{of}", e.kind), Mark::Title, Show::Always);
    if let Some(at) = e.at {
        doc.say(format!("at {} UTC", at.strftime("%F %T")), Mark::Dim);
    }
    if !e.message.trim().is_empty() {
        doc.title("Message");
        doc.text(e.message.trim_end(), Mark::Plain, Show::Always);
    }
    if !e.traceback.trim().is_empty() {
        traceback(&e.traceback, doc);
    }
}

/// A traceback folded to its first and its last frame.
fn traceback(text: &str, doc: &mut Doc) {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let frames: Vec<usize> =
        lines.iter().enumerate().filter(|(_, l)| l.trim_start().starts_with("File \"")).map(|(i, _)| i).collect();
    doc.title(format!("Traceback, {} frame{}", frames.len(), if frames.len() == 1 { "" } else { "s" }));
    let last_line = lines.len().saturating_sub(1);
    let mark = |i: usize, l: &str| {
        if i == last_line || (!l.starts_with([' ', '\t']) && l.contains("Error")) {
            Mark::Decisive
        } else {
            Mark::Plain
        }
    };
    match (frames.get(1), frames.last()) {
        (Some(second), Some(last)) if last > second && lines.len() > 16 => {
            for (i, line) in lines.iter().enumerate() {
                if i == *second {
                    let words = format!("  … {} frames, {} lines, folded: e unfolds", frames.len() - 2, last - second);
                    doc.text(&words, Mark::Dim, Show::Folded);
                }
                let show = if i >= *second && i < *last { Show::Unfolded } else { Show::Always };
                doc.text(line, mark(i, line), show);
            }
        }
        _ => lines.iter().enumerate().for_each(|(i, line)| doc.text(line, mark(i, line), Show::Always)),
    }
}
