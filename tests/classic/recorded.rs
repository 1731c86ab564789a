//! The public runs, where they are present: their counts are those of their index.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::{json, print_of, row, score, warnings};
use crate::support;

const RUNS: [&str; 4] = ["disaster-with-nested-run", "nested-run-original", "older-schema", "five-attempts"];

fn run(name: &str) -> Option<PathBuf> {
    Some(support::shared()?.join("data/public/classic").join(name))
}

/// `unset 6 true 11 false; …` of the index, as counts by failure mode and verdict.
fn told(text: &str) -> BTreeMap<(String, String), u64> {
    let mut out = BTreeMap::new();
    for part in text.split(';') {
        let mut words = part.split_whitespace();
        let mode = words.next().unwrap().to_string();
        let rest: Vec<&str> = words.collect();
        for pair in rest.chunks(2) {
            out.insert((mode.clone(), pair[1].to_string()), pair[0].parse().unwrap());
        }
    }
    out
}

/// The row of the index about a run, cell by cell.
fn index(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(support::shared().unwrap().join("data/public/INDEX.md")).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("| classic/{name} |"))).unwrap().to_string();
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
}

#[test]
fn totals_are_those_of_the_index() {
    for name in RUNS {
        let Some(dir) = run(name) else { return };
        let told_of = index(name);
        let number = |cell: &str| -> u64 {
            let digits: String =
                cell.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
            digits.parse().unwrap()
        };
        let (document, _) = json("tally", &[], std::slice::from_ref(&dir));
        let totals = &document["totals"];
        assert_eq!(totals["planned"], number(&told_of[1]), "{name}");
        assert_eq!(totals["finished"], number(&told_of[1]), "{name}");
        assert_eq!(totals["passed"], number(&told_of[2]), "{name}");
        let mut found: BTreeMap<(String, String), u64> = BTreeMap::new();
        for row in document["trials"].as_array().unwrap() {
            let mode = row["exception_type"].as_str().unwrap_or("unset").to_string();
            let verdict = match row["reward"].as_f64() {
                Some(1.0) => "true",
                Some(_) => "false",
                None => "null",
            };
            *found.entry((mode, verdict.to_string())).or_default() += 1;
        }
        assert_eq!(found, told(&told_of[3]), "{name}");
        let accuracy: f64 = told_of[4].parse().unwrap();
        assert_eq!(score(&document, "raw")["value"].as_f64(), Some(accuracy), "{name}");
        assert!(warnings(&document, "summary_disagrees").is_empty(), "{name}: {document}");
        let input = number(&told_of[5]);
        assert_eq!(document["tokens"]["input"].as_u64().unwrap_or(0), input, "{name}");
        assert_eq!(document["tokens"]["input"].is_null(), input == 0, "{name}: what is not known is not 0");
        // A quarter of the timeouts was solved all the same; nothing but the verdict counts.
        for row in document["trials"].as_array().unwrap() {
            if row["exception_type"] == "agent_timeout" && row["reward"] == 1.0 {
                assert_eq!(row["class"], "passed", "{name}: {row}");
            }
        }
        assert_eq!(document["jobs"][0]["state"], "finished", "{name}");
    }
}

#[test]
fn the_disaster_alone_raises_the_alarm() {
    for name in RUNS {
        let Some(dir) = run(name) else { return };
        let (document, _) = json("status", &[], &[dir]);
        let alarms = warnings(&document, "systemic");
        assert_eq!(alarms.len(), usize::from(name.starts_with("disaster")), "{name}: {alarms:?}");
        if let Some(alarm) = alarms.first() {
            assert!(alarm.contains("59 of 80"), "{alarm}");
        }
    }
}

#[test]
fn the_run_inside_is_named_and_not_merged() {
    let Some(dir) = run("disaster-with-nested-run") else { return };
    let (document, _) = json("tally", &[], std::slice::from_ref(&dir));
    let notes = warnings(&document, "note");
    assert!(notes.iter().any(|m| m.contains("another whole run") && m.contains("80 trials, 13 resolved")), "{notes:?}");
    let (inner, _) = json("tally", &[], &[dir.join("2025-08-15__16-23-45")]);
    assert_eq!(inner["totals"]["passed"], 13);
    // The same run twice is one run.
    let (both, _) = json("tally", &[], &[dir.join("2025-08-15__16-23-45"), run("nested-run-original").unwrap()]);
    assert_eq!((&both["totals"]["planned"], &both["totals"]["passed"]), (&80.into(), &13.into()), "{}", both["merge"]);
}

#[test]
fn five_attempts_give_the_rates_that_the_harness_states() {
    let Some(dir) = run("five-attempts") else { return };
    let bytes = std::fs::read(dir.join("results.json")).unwrap();
    let stated: Value = serde_json::from_slice(&bytes).unwrap();
    let (document, _) = json("tally", &[], &[dir]);
    for k in ["2", "4", "5"] {
        let ours = score(&document, &format!("pass@{k}"));
        let stated = stated["pass_at_k"][k].as_f64().unwrap();
        assert!((ours["value"].as_f64().unwrap() - stated).abs() < 1e-9, "pass@{k}: {ours} and {stated}");
    }
    assert!(warnings(&document, "note").iter().any(|m| m.contains("own tokenizer")), "{document}");
    assert!((score(&document, "mean@5")["value"].as_f64().unwrap() - 0.1925).abs() < 1e-9);
}

#[test]
fn a_whole_directory_of_runs_is_attached_and_none_is_touched() {
    let Some(shared) = support::shared() else { return };
    let classic = shared.join("data/public/classic");
    let before = print_of(&classic);
    let (document, _) = json("tally", &["--as", "samples"], std::slice::from_ref(&classic));
    assert_eq!(document["jobs"].as_array().unwrap().len(), 4);
    let (triage, _) = json("triage", &[], std::slice::from_ref(&classic));
    assert!(triage.to_string().contains("unknown_agent_error"));
    assert_eq!(print_of(&classic), before);
    let timeout = row(&document, "configure-git-webserver.1-of-1.openhands-sonnet4");
    assert_eq!((&timeout["reward"], &timeout["exception_type"]), (&1.0.into(), &"agent_timeout".into()));
}

#[test]
fn they_stand_in_the_list_of_all_jobs() {
    let Some(shared) = support::shared() else { return };
    let (document, _) = json("jobs", &["--no-remember"], &[shared.join("data/public/classic")]);
    let listed = document["jobs"].as_array().unwrap();
    assert_eq!(listed.len(), RUNS.len(), "{document:#}");
    for name in RUNS {
        let told = index(name);
        let trials: u64 = told[1].split(' ').next().unwrap().parse().unwrap();
        let job = listed.iter().find(|job| job["dir"].as_str().unwrap().ends_with(name)).unwrap();
        assert_eq!(job["progress"], serde_json::json!({"done": trials, "planned": trials}), "{name}");
        assert_eq!(job["scores"]["raw"]["numerator"], told[2].parse::<u64>().unwrap(), "{name}");
        assert_eq!((&job["state"], &job["figures"]), (&"finished".into(), &"trials".into()), "{name}");
    }
}

#[test]
fn runs_are_compared_task_by_task() {
    let (Some(a), Some(b)) = (run("nested-run-original"), run("older-schema")) else { return };
    let (document, code) = json("compare", &[], &[a, b]);
    assert_eq!(code, 0);
    let raw = |at: usize| document["runs"][at]["scores"][0]["numerator"].as_u64();
    assert_eq!((raw(0), raw(1)), (Some(13), Some(32)), "{}", document["runs"]);
    assert_eq!(document["pairs"][0]["tasks"], 80);
    let drift = document["pairs"][0]["drift"].to_string();
    assert!(drift.contains("openhands"), "{drift}");
}
