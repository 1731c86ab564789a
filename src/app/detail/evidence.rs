//! What is said of a trial: verdict, class with its rule, what Harbor makes of it, what is odd, and the
//! lines that it rests on. Shown in triage and in the Evidence tab.

use super::doc::{Doc, Mark, Show};
use crate::job::policy::ErrorPolicy;
use crate::job::{Classification, Job, Trial};

/// The text.
pub fn doc(job: &Job, trial: &Trial) -> Doc {
    let mut doc = Doc::default();
    let class = job.class_of(trial);
    let held = job.notebook.verdict(trial);
    if let Some((verdict, word)) = held {
        let note = if word.note.is_empty() { String::new() } else { format!(": {}", word.note) };
        line(&mut doc, &format!("Verdict: {}, by {}{note}", verdict.title(), word.operator), Mark::Good);
    }
    for regrade in trial.regrades_of_this() {
        let raw = trial.result.as_ref().and_then(|r| r.rewards.primary());
        let raw = raw.map_or("no reward".to_string(), |r| r.to_string());
        let counts = trial.regrade().is_some_and(|r| r.n == regrade.n);
        let mark = if counts { Mark::Good } else { Mark::Plain };
        let why = if regrade.why.is_empty() { String::new() } else { format!(": {}", regrade.why) };
        let only = if counts { "" } else { " (does not count)" };
        line(&mut doc, &format!("Raw {raw}, {}{only}, by {}{why}", regrade.words(), regrade.operator), mark);
        line(&mut doc, &format!("  {}", regrade.file()), Mark::Typed);
    }
    if let Some(held) = job.notebook.held(&trial.name) {
        let again = "V runs the verifier again in it, without the agent";
        line(
            &mut doc,
            &format!(
                "{}{}; {again}",
                held.get(..1).unwrap_or_default().to_uppercase(),
                held.get(1..).unwrap_or_default()
            ),
            Mark::Title,
        );
    }
    match class {
        Some(class) => class_text(&mut doc, class, trial, held.is_some()),
        None if trial.result.is_some() => {
            line(&mut doc, "No class is known yet: its files are being looked at.", Mark::Dim)
        }
        None => line(&mut doc, "No class: there is no result.", Mark::Dim),
    }
    let result = trial.result.as_ref();
    for outage in job.notebook.outages() {
        if outage.meets(result.and_then(|r| r.started), result.and_then(|r| r.finished)) {
            let (from, to) = (outage.from.strftime("%F %H:%M"), outage.to.strftime("%H:%M"));
            line(&mut doc, &format!("It ran during an outage, {from} - {to} UTC: {}", outage.why), Mark::Decisive);
        }
    }
    let raised = trial.result.as_ref().and_then(|r| r.exception.as_ref());
    if let Some(raised) = raised.filter(|x| !x.message.trim().is_empty()) {
        doc.title("Exception");
        let text = format!("{}: {}", raised.kind, raised.message.trim());
        text.lines().for_each(|text| line(&mut doc, &format!("  {text}"), Mark::Plain));
    }
    said(&mut doc, job, trial);
    doc
}

fn line(doc: &mut Doc, text: &str, mark: Mark) {
    doc.text(text, mark, Show::Always);
}

fn class_text(doc: &mut Doc, class: &Classification, trial: &Trial, judged: bool) {
    match class.suggested {
        Some(verdict) if !judged => {
            line(doc, &format!("Suggested: {} (v {})", verdict.title(), verdict.letter()), Mark::Title);
        }
        _ => {}
    }
    if !class.why.is_empty() {
        line(doc, &format!("  {}", class.why), Mark::Plain);
    }
    let sub = class.sub.as_ref().map(|sub| format!(", {sub}")).unwrap_or_default();
    line(doc, &format!("Class: {}{sub}   rule: {}", class.class.word(), class.rule), Mark::Title);
    if let Some(policy) = class.harbor_differs {
        let kind = trial.result.as_ref().and_then(|r| r.exception_type().cloned());
        let kind = kind.map(|kind| format!(" of {kind}")).unwrap_or_default();
        line(doc, &format!("  Harbor's own policy{kind} differs: {}", policy_words(policy)), Mark::Dim);
    }
    for flag in &class.flags {
        line(doc, &format!("  odd: {}", flag.title()), Mark::Decisive);
    }
    if class.evidence.is_empty() {
        return;
    }
    doc.title("Evidence");
    for (at, excerpt) in class.evidence.iter().enumerate() {
        line(doc, &format!("  {}", excerpt.place()), Mark::Typed);
        line(doc, &format!("    {}", excerpt.text), if at == 0 { Mark::Decisive } else { Mark::Plain });
    }
}

/// What Harbor does about an exception, in words.
fn policy_words(policy: ErrorPolicy) -> String {
    let retry = if policy.should_retry { "tries it again" } else { "does not try it again" };
    let grade = if policy.should_grade { "grades it" } else { "does not grade it" };
    let valid = if policy.has_valid_reward { "counts its reward" } else { "counts no reward of it" };
    format!("{retry}, {grade}, {valid}")
}

/// Everything that operators said, of earlier attempts too.
fn said(doc: &mut Doc, job: &Job, trial: &Trial) {
    let words = job.notebook.words(&trial.name);
    if words.is_empty() {
        return;
    }
    let id = trial.result.as_ref().and_then(|r| r.id.as_ref());
    doc.title("Said");
    for word in words.iter().rev() {
        let what = match (word.verdict, word.note_only) {
            (_, true) => "note".to_string(),
            (Some(verdict), false) => verdict.title().to_string(),
            (None, false) => "verdict taken back".to_string(),
        };
        let note = if word.note.is_empty() { String::new() } else { format!(": {}", word.note) };
        let of = if word.result_id.as_ref() == id { "" } else { " (of another attempt)" };
        let at = word.time.strftime("%F %H:%M");
        line(doc, &format!("  {at} UTC  {}  {what}{of}{note}", word.operator), Mark::Plain);
    }
}
