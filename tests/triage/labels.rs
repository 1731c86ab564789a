//! The labelled trials: classes and sub-classes against what a person said of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pilothouse::job::Fleet;
use pilothouse::triage::Classifier;

use crate::support;

/// One labelled trial with what the rules say of it.
#[derive(Debug)]
pub struct Measured {
    pub job: String,
    pub trial: String,
    pub class: String,
    pub sub: Option<String>,
    pub said: String,
    pub said_sub: Option<String>,
    pub rule: String,
    pub evidence: String,
}

pub fn classified(dir: &Path) -> Fleet {
    classified_by(&Classifier::shipped(), dir)
}

pub fn classified_by(classifier: &Classifier, dir: &Path) -> Fleet {
    let options = pilothouse::follow::Options::default();
    let mut fleet = pilothouse::cli::load::scan(&[dir.to_path_buf()], options).unwrap();
    // Long after the last write: nobody works on a recorded job.
    let later = pilothouse::job::Stamp::now() + std::time::Duration::from_secs(400 * 86_400);
    pilothouse::cli::load::classify(classifier, &mut fleet, later);
    fleet
}

fn measure(dir: &Path, labels: &serde_json::Value, out: &mut Vec<Measured>) {
    let fleet = classified(dir);
    let job = &fleet.jobs()[0];
    for (name, label) in labels.as_object().unwrap() {
        let trial = &job.trials[name.as_str()];
        let class = job.class_of(trial).unwrap();
        let text = |key: &str| label[key].as_str().map(str::to_string);
        out.push(Measured {
            job: job.facts.name.to_string(),
            trial: name.clone(),
            class: text("class").unwrap(),
            sub: text("sub"),
            said: class.class.word().to_string(),
            said_sub: class.sub.as_deref().map(str::to_string),
            rule: class.rule.to_string(),
            evidence: class
                .evidence
                .iter()
                .take(2)
                .map(|e| format!("{}: {}", e.place(), e.text))
                .collect::<Vec<_>>()
                .join(" | "),
        });
    }
}

/// All labelled trials of the data folder, and of `PILOTHOUSE_LABELLED` (folders with `labels.json` and
/// `job/`, separated by colons).
pub fn all() -> Option<Vec<Measured>> {
    let data = support::shared()?.join("data");
    let json = |path: PathBuf| -> serde_json::Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let mut out = Vec::new();
    measure(&data.join("labelled/job"), &json(data.join("labelled/labels.json")), &mut out);
    let jobs = json(data.join("jobs/classes.json"));
    for (job, labels) in jobs.as_object().unwrap() {
        measure(&data.join("jobs").join(job), labels, &mut out);
    }
    for more in std::env::var("PILOTHOUSE_LABELLED").unwrap_or_default().split(':').filter(|p| !p.is_empty()) {
        measure(&Path::new(more).join("job"), &json(Path::new(more).join("labels.json")), &mut out);
    }
    Some(out)
}

/// Label × class with counts, then recall and precision of each label, then every difference.
pub fn table(measured: &[Measured]) -> String {
    let mut cells: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for m in measured {
        *cells.entry((&m.class, &m.said)).or_default() += 1;
    }
    let mut text = format!("{} labelled trials\n{:<18} {:<18} {:>6}\n", measured.len(), "label", "said", "trials");
    for ((label, said), n) in &cells {
        text += &format!("{label:<18} {said:<18} {n:>6}{}\n", if label == said { "" } else { "   WRONG" });
    }
    text += &format!("\n{:<18} {:>8} {:>10}\n", "class", "recall", "precision");
    let classes: std::collections::BTreeSet<&str> = measured.iter().map(|m| &*m.class).collect();
    for class in classes {
        let (right, labelled, said) = counts(measured, class);
        text += &format!("{class:<18} {right:>4}/{labelled:<4} {right:>4}/{said:<4}\n");
    }
    for m in measured.iter().filter(|m| m.class != m.said || m.sub != m.said_sub) {
        text += &format!(
            "{} {}/{}: label {}/{} said {}/{} by {}: {}\n",
            if m.class == m.said { "sub  " } else { "CLASS" },
            m.job,
            m.trial,
            m.class,
            m.sub.as_deref().unwrap_or("-"),
            m.said,
            m.said_sub.as_deref().unwrap_or("-"),
            m.rule,
            m.evidence
        );
    }
    text
}

pub fn counts(measured: &[Measured], class: &str) -> (usize, usize, usize) {
    let labelled = measured.iter().filter(|m| m.class == class).count();
    let said = measured.iter().filter(|m| m.said == class).count();
    let right = measured.iter().filter(|m| m.class == class && m.said == class).count();
    (right, labelled, said)
}
