//! The plan in words.

use crate::job::text::{clean, mask_secrets};
use crate::requeue::plan::Prepared;
use crate::requeue::{Harness, Plan, Refused, Way};

/// Rows of a list that are printed.
const SHOWN: usize = 200;

fn safe(text: &str) -> String {
    clean(&mask_secrets(text)).into_owned()
}

/// Columns under their heads, each as wide as its widest cell; the last as it is.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| unicode_width::UnicodeWidthStr::width(cell.as_str())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        out.push_str("  ");
        for (at, cell) in row.iter().enumerate() {
            out.push_str(cell);
            if at + 1 < row.len() {
                let gap = widths.get(at).copied().unwrap_or(0) + 2;
                let own = unicode_width::UnicodeWidthStr::width(cell.as_str());
                out.push_str(&" ".repeat(gap.saturating_sub(own)));
            }
        }
        out.push('\n');
    }
    out
}

/// All of it.
pub fn prepared(prepared: &Prepared) -> String {
    let mut out = String::new();
    for plan in &prepared.plans {
        out.push_str(&one(plan));
        out.push('\n');
    }
    if prepared.plans.is_empty() {
        out.push_str("nothing to run again\n");
    }
    if !prepared.refused.is_empty() {
        out.push_str(&refused(&prepared.refused));
    }
    for note in &prepared.notes {
        out.push_str(&format!("note: {}\n", safe(note)));
    }
    out
}

fn one(plan: &Plan) -> String {
    let by = match &plan.harness {
        Harness::Harbor { installed, .. } => {
            format!("harbor {}", installed.as_deref().map_or_else(|| "(version unknown)".to_string(), safe))
        }
        Harness::Own { .. } => "pilothouse".to_string(),
    };
    let n = plan.rows.len();
    let trials = if n == 1 { "trial" } else { "trials" };
    let mut out = format!("{}: {n} {trials} of {} again, by {by}\n", safe(&plan.name), safe(&plan.source_name));
    let head = ["task", "trial", "tried", "why"].map(str::to_string).to_vec();
    let mut rows = vec![head];
    for row in plan.rows.iter().take(SHOWN) {
        let tried =
            if row.alike > 1 { format!("{} ({} alike)", row.attempts, row.alike) } else { row.attempts.to_string() };
        let forced = if row.forced { "FORCED: " } else { "" };
        rows.push(vec![safe(&row.task), safe(&row.trial), tried, format!("{forced}{}", safe(&row.why))]);
    }
    out.push_str(&table(&rows));
    if n > SHOWN {
        out.push_str(&format!("  and {} more\n", n - SHOWN));
    }
    match plan.differs.as_slice() {
        [] => out.push_str("what differs from before: nothing but the job's name and its tasks\n"),
        differs => {
            out.push_str("what differs from before:\n");
            let rows: Vec<Vec<String>> =
                differs.iter().map(|d| vec![safe(&d.field), format!("{} → {}", safe(&d.was), safe(&d.now))]).collect();
            out.push_str(&table(&rows));
        }
    }
    if let Some(reason) = &plan.reason {
        out.push_str(&format!("reason: {}\n", safe(reason)));
    }
    out.push_str(&format!("job dir: {}\n", safe(&plan.dir.to_string_lossy())));
    out.push_str(&format!("command: {}\n", safe(&plan.line())));
    for warning in &plan.warnings {
        out.push_str(&format!("warning: {}\n", safe(warning)));
    }
    out
}

/// Those that are not run, the many of one reason together.
fn refused(list: &[Refused]) -> String {
    let mut groups: Vec<(&str, Way, Vec<String>)> = Vec::new();
    for one in list {
        match groups.iter_mut().find(|(why, way, _)| *why == one.why && *way == one.way) {
            Some((.., names)) => names.push(safe(&one.trial)),
            None => groups.push((&one.why, one.way, vec![safe(&one.trial)])),
        }
    }
    let mut out = format!("not run again: {}\n", list.len());
    for (why, way, names) in groups {
        let more = names.len().saturating_sub(12);
        let shown = names.iter().take(12).cloned().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let way = if way.words().is_empty() { String::new() } else { format!("; {}", way.words()) };
        out.push_str(&format!("  {shown}{more}: {}{way}\n", safe(why)));
    }
    out
}
