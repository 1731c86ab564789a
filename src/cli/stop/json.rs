//! The document of `stop --json`, schema_version 1.

use serde_json::{Value, json};

use super::Report;
use crate::audit::{Audit, Found, Owner, Program, Progress, StopPlan};
use crate::job::Job;
use crate::job::text::{json_for_terminal, path_text as path};

/// One document, with an end of line.
pub fn document(job: &Job, report: &Report) -> String {
    let stop = report.stop.as_ref().map(|(signal, progress)| {
        let (ended, after) = match progress {
            Progress::Ended { after } => (true, Some(after.as_secs_f64())),
            Progress::StillThere { after } => (false, Some(after.as_secs_f64())),
            _ => (false, None),
        };
        json!({"signal": signal.name(), "ended": ended, "after_sec": after})
    });
    let mends: Vec<Value> = report
        .mends
        .iter()
        .map(|(subject, done)| match done {
            Ok(m) => json!({"subject": subject, "done": m.done, "place": m.place.as_deref().map(path), "journal": path(&m.journal), "error": null}),
            Err(why) => json!({"subject": subject, "done": null, "place": null, "journal": null, "error": why}),
        })
        .collect();
    let advice = report.advice.as_ref().map(|a| {
        let other = a.other.as_ref().map(|(signal, why)| json!({"signal": signal.name(), "why": why}));
        json!({"signal": a.signal.name(), "why": a.why, "other": other, "warnings": a.warnings})
    });
    let value = json!({
        "schema_version": 1,
        "job": job.facts.name,
        "job_dir": path(&job.facts.dir),
        "harbor_version": job.facts.harbor_version,
        "owner": report.owner.as_ref().map(found),
        "advice": advice,
        "plan": report.plan.as_ref().map(plan),
        "stop": stop,
        "audit": report.audit.as_ref().map(audit),
        "mends": mends,
        "audit_after": report.after.as_ref().map(audit),
        "next": report.after.as_ref().or(report.audit.as_ref()).and_then(|a| a.next(report.owner.as_ref()?.here())),
    });
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    format!("{}\n", json_for_terminal(&text))
}

fn found(found: &Found) -> Value {
    let (state, process) = match found {
        Found::Here(o) => ("here", Some(owner(o))),
        Found::Elsewhere(_) => ("elsewhere", None),
        Found::Nobody(_) => ("nobody", None),
        Found::Unknown(..) => ("unknown", None),
    };
    json!({"state": state, "evidence": found.words(), "process": process})
}

fn owner(o: &Owner) -> Value {
    let program = match o.program {
        Program::Harbor => "harbor",
        Program::Pilothouse => "pilothouse",
        Program::Other => "other",
    };
    json!({
        "pid": o.pid,
        "started_at": o.began.map(|b| b.to_string()),
        "program": program,
        "verb": o.verb.words(),
        "command": o.command,
        "cwd": o.cwd.as_deref().map(path),
        "pipes": o.pipes,
        "doubts": o.doubts,
    })
}

fn plan(plan: &StopPlan) -> Value {
    let running: Vec<Value> = plan
        .running
        .iter()
        .map(|t| json!({"trial": t.trial, "task": t.task, "phase": t.phase.word(), "elapsed_sec": t.elapsed, "at_most_sec": t.at_most}))
        .collect();
    json!({
        "running": running,
        "finished": plan.finished,
        "planned": plan.planned,
        "queued": plan.queued,
        "lost_sec": plan.lost().0,
        "stays": plan.stays,
    })
}

fn audit(audit: &Audit) -> Value {
    let findings: Vec<Value> = audit
        .findings
        .iter()
        .map(|f| {
            json!({
                "kind": f.kind.word(),
                "subject": f.subject,
                "trial": f.trial,
                "evidence": f.evidence,
                "age_sec": f.age,
                "bytes": f.bytes,
                "mend": f.mend.words(),
                "mendable": f.mend.does_something(),
            })
        })
        .collect();
    json!({
        "owner": found(&audit.owner),
        "planned": audit.planned,
        "trials": audit.trials,
        "results": audit.results,
        "cancelled": audit.cancelled,
        "complete": audit.complete(),
        "findings": findings,
        "unseen": audit.unseen,
        "summary": audit.summary(),
    })
}
