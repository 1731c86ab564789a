//! The About tab: who, under which limits, what is odd.

use std::path::Path;

use super::Facts;
use super::doc::{Doc, Mark, Show};
use crate::job::trial::LimitSource;
use crate::job::{Trial, phase, time};

/// What the trial's summary says beside the row in the list.
pub fn summary(trial: &Trial) -> Doc {
    let mut doc = Doc::default();
    doc.title("Limits");
    let limits = &trial.limits;
    let classic = trial.name.contains('/');
    for (name, limit) in [
        ("environment", limits.environment),
        ("agent setup", limits.agent_setup),
        ("agent", limits.agent),
        ("verifier", limits.verifier),
    ] {
        fact(&mut doc, name, &limit.map_or("-".to_string(), time::words));
    }
    fact(
        &mut doc,
        "limits from",
        match limits.source {
            LimitSource::Unknown => "defaults that hold for every task; the task's own were not found",
            LimitSource::TaskToml if classic => "the task's task.yaml and the run's multiplier",
            LimitSource::Config if classic => "the run's tb.lock",
            LimitSource::Message if classic => "run.log: an agent of this task ran into it",
            LimitSource::TaskToml => "the task's task.toml and the job's overrides",
            LimitSource::Config => "overrides in the trial's config.json",
            LimitSource::Message => "the text of a timeout message",
        },
    );
    if let Some(e) = &trial.evidence {
        doc.title("What the phase was read from");
        fact(&mut doc, "file", phase::evidence_file(e));
        if let Some(since) = phase::since(e) {
            fact(&mut doc, "of", &format!("{} UTC", since.strftime("%F %T")));
        }
        if let Some(newest) = e.newest {
            fact(&mut doc, "last write", &format!("{} UTC", newest.strftime("%F %T")));
        }
    }
    if !trial.problems.is_empty() {
        doc.title("What is odd");
        for problem in &trial.problems {
            doc.text(
                &format!("  {}: {}: {}", problem.kind.word(), problem.path, problem.message),
                Mark::Remark,
                Show::Always,
            );
        }
    }
    doc
}

fn fact(doc: &mut Doc, name: &str, value: &str) {
    doc.text(&format!("  {name:<20} {value}"), Mark::Plain, Show::Always);
}

/// The whole text.
pub fn doc(dir: &Path, facts: Option<&Facts>, summary: &Doc) -> Doc {
    let mut doc = Doc::default();
    doc.title("This trial");
    for (name, value) in facts.iter().flat_map(|f| &f.identity) {
        fact(&mut doc, name, value);
    }
    fact(&mut doc, "directory", &dir.display().to_string());
    doc.say("", Mark::Plain);
    summary.lines.iter().cloned().for_each(|line| doc.push(line));
    doc
}
