//! What `stop` says to people.

use std::fmt::Write as _;

use crate::audit::{Advice, Audit, Finding, FindingKind, Mended, Owner, StopPlan, StopSignal};
use crate::job::text::clean;
use crate::job::time;

/// Running trials that are named one by one.
const NAMED: usize = 40;

/// What will be touched, before the question.
pub fn dialog(owner: &Owner, advice: &Advice, signal: StopSignal, plan: &StopPlan) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "Stop {}", clean(&plan.job));
    let _ = writeln!(out, "  process    {}", owner.name());
    let _ = writeln!(out, "             {}", owner.evidence);
    let _ = writeln!(out, "  command    {}", owner.command);
    if let Some(cwd) = &owner.cwd {
        let _ = writeln!(out, "  directory  {}", clean(&cwd.to_string_lossy()));
    }
    let chosen = if signal == advice.signal { advice.why.clone() } else { "chosen by --signal".to_string() };
    let _ = writeln!(out, "  signal     {}: {chosen}", signal.name());
    if let Some((other, why)) = advice.other.as_ref().filter(|(other, _)| *other != signal) {
        let _ = writeln!(out, "             --signal {}: {why}", other.name().trim_start_matches("SIG"));
    }
    let _ = writeln!(out, "  price      {}", plan.price());
    for trial in plan.running.iter().take(NAMED) {
        let elapsed = trial.elapsed.map_or("-".to_string(), time::words);
        let _ = writeln!(out, "             {}  {}  {elapsed}", clean(&trial.trial), trial.phase.word());
    }
    if plan.running.len() > NAMED {
        let _ = writeln!(out, "             and {} more", plan.running.len() - NAMED);
    }
    if let Some(drain) = plan.drain_at_most().filter(|_| !plan.running.is_empty()) {
        let _ = writeln!(out, "  otherwise  what runs now ends by itself within {} at the latest", time::words(drain));
    }
    for (n, line) in plan.stays.iter().enumerate() {
        let _ = writeln!(out, "  {}{line}", if n == 0 { "stays      " } else { "           " });
    }
    for warning in advice.warnings.iter().filter(|w| signal == StopSignal::Term || !w.contains("after SIGTERM")) {
        let _ = writeln!(out, "  ! {warning}");
    }
    out
}

/// The audit, by kind.
pub fn audit(audit: &Audit) -> String {
    let mut out = String::new();
    let planned = audit.planned.map_or("-".to_string(), |n| n.to_string());
    let _ = writeln!(out, "Audit of {}", clean(&audit.job));
    let _ = writeln!(out, "  owner      {}", clean(&audit.owner.words()));
    let _ = writeln!(
        out,
        "  results    {} of {planned} planned, {} cancelled among them, {} trial directories",
        audit.results, audit.cancelled, audit.trials
    );
    for kind in FindingKind::ALL {
        let found: Vec<&Finding> = audit.findings.iter().filter(|f| f.kind == kind).collect();
        if found.is_empty() {
            continue;
        }
        let _ = writeln!(out, "  {}", kind.words(found.len()));
        for finding in found {
            let about = [
                finding.trial.clone().filter(|t| *t != finding.subject).map(|t| format!("trial {t}")),
                finding.age.map(|s| time::words(s as f64)),
                finding.bytes.map(size),
            ];
            let about: Vec<String> = about.into_iter().flatten().collect();
            let about = if about.is_empty() { String::new() } else { format!("  ({})", about.join(", ")) };
            let _ = writeln!(out, "    {}{about}", finding.subject);
            let _ = writeln!(out, "      {}", finding.evidence);
            let _ = writeln!(out, "      mend: {}", finding.mend.words());
        }
    }
    for line in &audit.unseen {
        let _ = writeln!(out, "  not seen   {}", clean(line));
    }
    out.push_str(&summary(audit));
    out
}

/// The last line.
pub fn summary(audit: &Audit) -> String {
    format!("  {}\n", audit.summary())
}

/// One mend.
pub fn mended(finding: &Finding, done: &Result<Mended, String>) -> String {
    match done {
        Ok(mended) => format!("  {}: {}", finding.subject, mended.done),
        Err(why) => format!("  {}: not mended: {}", finding.subject, clean(why)),
    }
}

/// Bytes in the fewest words.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}
