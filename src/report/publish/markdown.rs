//! The report as one markdown file.

use std::fmt::Write as _;

use super::super::markdown::cell;
use super::super::{UNKNOWN, number, tokens};
use super::Report;
use crate::job::time;

/// The file.
pub fn markdown(report: &Report<'_>) -> String {
    let mut out = String::new();
    let names: Vec<String> = report.jobs.iter().map(|j| cell(&j.name)).collect();
    let _ = writeln!(out, "# {}\n", names.join(", "));
    run(&mut out, report);
    scores(&mut out, report);
    verdicts(&mut out, report);
    setup(&mut out, report);
    notes(&mut out, report);
    tasks(&mut out, report);
    let _ = writeln!(out, "\nMade by {} from the trials' own files.", report.made_by);
    out
}

fn or_unknown(text: Option<&String>) -> String {
    text.map_or(UNKNOWN.to_string(), |t| cell(t))
}

fn run(out: &mut String, report: &Report<'_>) {
    let run = &report.run;
    let _ = writeln!(out, "## Run\n\n| | |\n|---|---|");
    let mut row = |name: &str, text: String| {
        let _ = writeln!(out, "| {name} | {text} |");
    };
    row("started", or_unknown(run.started.as_ref()));
    row("ended", or_unknown(run.ended.as_ref()));
    row("zone", run.zone.to_string());
    row("duration", run.duration_s.map_or(UNKNOWN.to_string(), time::words));
    row("completed", format!("{}/{}", run.completed, run.planned));
    row("reward 1", run.reward_1.to_string());
    row("reward 0", run.reward_0.to_string());
    if run.partial + run.other_reward > 0 {
        row("other rewards", format!("{} between 0 and 1, {} else", run.partial, run.other_reward));
    }
    row("no reward", run.no_reward.to_string());
    let errors: Vec<String> = run
        .errors
        .iter()
        .map(|e| format!("{} {} ({} of them with a reward)", e.count, cell(&e.kind), e.with_reward))
        .collect();
    let errors = if errors.is_empty() { String::new() } else { format!(" = {}", errors.join(" + ")) };
    row("errored", format!("{}{errors}", run.errored));
    for (name, n) in [
        ("cancelled", run.cancelled),
        ("phantom", run.phantom),
        ("orphaned", run.orphaned),
        ("unreadable", run.unreadable),
        ("running", run.running),
        ("not begun", run.open),
    ] {
        if n > 0 {
            row(name, n.to_string());
        }
    }
    let t = &report.common.tokens;
    row("input tokens", format!("{} ({} from cache)", tokens(t.input), tokens(t.cache)));
    row("output tokens", tokens(t.output));
    row("tokens known for", format!("{} of {} trials", t.known, t.of));
    let c = &report.common.cost;
    let usd = c.usd.map_or(UNKNOWN.to_string(), |usd| format!("{usd:.2} USD"));
    row("cost", format!("{usd}, known for {} of {} trials", c.known, c.of));
    for (name, took) in &report.common.times {
        if let (Some(median), Some(max)) = (took.median_s, took.max_s) {
            let words = format!(
                "median {}, longest {}, known for {} trials",
                time::words(median),
                time::words(max),
                took.known
            );
            row(&format!("time: {}", name.replace('_', " ")), words);
        }
    }
}

fn scores(out: &mut String, report: &Report<'_>) {
    let merge = &report.merge;
    let how = merge.how.map_or(String::new(), |how| format!("{how}: "));
    let _ = writeln!(
        out,
        "\n## Scores\n\nCounted as {how}{}; the {} scored trial of a slot counts.\n",
        cell(&merge.why),
        merge.rule
    );
    let _ = writeln!(out, "| score | passed or sum / of | value | 95 % interval | rule |\n|---|---:|---:|---|---|");
    for score in &report.common.scores {
        let value = score.value.map_or(UNKNOWN.to_string(), |v| format!("{:.2} %", 100.0 * v));
        let interval =
            score.ci95.map_or(UNKNOWN.to_string(), |[a, b]| format!("{:.1} – {:.1} %", 100.0 * a, 100.0 * b));
        let numerator = score.numerator.map_or(UNKNOWN.to_string(), number);
        let _ = writeln!(
            out,
            "| {} | {numerator} / {} | {value} | {interval} | {} |",
            cell(score.name),
            score.denominator,
            cell(score.rule)
        );
    }
}

fn verdicts(out: &mut String, report: &Report<'_>) {
    if report.verdicts.is_empty() {
        let _ = writeln!(out, "\n## Audit\n\nNo verdicts were given.");
        return;
    }
    let _ = writeln!(
        out,
        "\n## Audit\n\n| trial | outcome | class | evidence | verdict | changes | note | by |\n|---|---|---|---|---|---|---|---|"
    );
    for v in &report.verdicts {
        let reward = v.reward.map_or("no reward".to_string(), |r| format!("reward {}", number(r)));
        let outcome = v.exception_type.as_ref().map_or(reward.clone(), |kind| format!("{reward}, {kind}"));
        let class = match (&v.class, &v.rule) {
            (Some(class), Some(rule)) => format!("{class} (rule {rule})"),
            (Some(class), None) => class.clone(),
            _ => UNKNOWN.to_string(),
        };
        let evidence: Vec<String> = v.evidence.iter().map(|e| format!("{}: {}", e.place, e.text)).collect();
        let evidence = if evidence.is_empty() { UNKNOWN.to_string() } else { evidence.join(" · ") };
        let by = format!("{}, {}", v.operator, v.time);
        let cells = [&v.trial, &outcome, &class, &evidence, v.title, v.changes, &v.note, &by].map(cell);
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}

fn setup(out: &mut String, report: &Report<'_>) {
    let _ = writeln!(out, "\n## Setup");
    for job in &report.jobs {
        let _ = writeln!(out, "\n| {} | |\n|---|---|", cell(&job.name));
        let mut row = |name: &str, text: String| {
            let _ = writeln!(out, "| {} | {text} |", cell(name));
        };
        let list = |list: &[String]| if list.is_empty() { UNKNOWN.to_string() } else { cell(&list.join("; ")) };
        row("job id", or_unknown(job.id.as_ref()));
        row("harness", format!("{}, formats of Harbor {}", job.harness, or_unknown(job.version.as_ref())));
        row("agent", list(&job.agents));
        row("model", list(&job.models));
        row("dataset", list(&job.datasets));
        if !job.commits.is_empty() {
            row("commit", list(&job.commits));
        }
        let digest = or_unknown(job.tasks_digest.as_ref());
        row("task digests", format!("{digest} over {} of {} tasks", job.tasks_with_digest, job.tasks));
        row("at a time", job.n_concurrent.map_or(UNKNOWN.to_string(), |n| n.to_string()));
        for (name, (low, high)) in &job.limits {
            let text = if low == high {
                time::words(*low)
            } else {
                format!("{} to {}", time::words(*low), time::words(*high))
            };
            row(&format!("limit: {}", name.replace('_', " ")), text);
        }
        for (name, value) in &job.settings {
            row(name, cell(value));
        }
        for (text, n) in &job.deviations {
            row("differs from Harbor", format!("{} ({n} trials)", cell(text)));
        }
    }
}

fn notes(out: &mut String, report: &Report<'_>) {
    let warnings = &report.common.warnings;
    if report.drift.is_empty() && warnings.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## Notes\n");
    for drift in &report.drift {
        let _ = writeln!(out, "- differs between jobs: {}", cell(drift));
    }
    for warning in warnings.iter().filter(|w| w.kind != "drift") {
        let _ = writeln!(
            out,
            "- {}: {} ({})",
            warning.kind.replace('_', " "),
            cell(&warning.message),
            cell(warning.name())
        );
    }
}

fn tasks(out: &mut String, report: &Report<'_>) {
    let _ = writeln!(
        out,
        "\n## Tasks\n\n| slot | trial | outcome | reward | class | verdict | took | episodes | input | output |\n\
         |---|---|---|---:|---|---|---:|---:|---:|---:|"
    );
    for task in &report.tasks {
        let known = |n: Option<u32>| n.map_or(UNKNOWN.to_string(), |n| n.to_string());
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            or_unknown(task.slot.as_ref()),
            or_unknown(task.trial.as_ref()),
            cell(&task.outcome),
            task.reward.map_or(UNKNOWN.to_string(), number),
            or_unknown(task.class.as_ref()),
            task.verdict.map_or(UNKNOWN.to_string(), |v| v.replace('_', " ")),
            task.took_s.map_or(UNKNOWN.to_string(), time::words),
            known(task.n_episodes),
            tokens(task.n_input_tokens),
            tokens(task.n_output_tokens)
        );
    }
}
