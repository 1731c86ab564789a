//! `tally` and `status` on recorded jobs, on files that are wrong on purpose, and on small jobs made here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "support/jobs.rs"]
mod made;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use made::write_job;
use pilothouse::job::slots::Rule;
use pilothouse::job::tally::{Place, Tally, count_side_by_side};
use pilothouse::job::time;
use pilothouse::job::{Fleet, JobEvent, JobKey, Stamp};
use proptest::prelude::*;
use serde_json::{Value, json};

fn pilothouse(args: &[&str], dirs: &[PathBuf]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilothouse")).args(args).args(dirs).output().unwrap()
}

/// The document and the exit code.
fn tally(args: &[&str], dirs: &[PathBuf]) -> (Value, i32) {
    let mut all = vec!["tally", "--json"];
    all.extend(args);
    let out = pilothouse(&all, dirs);
    let text = String::from_utf8(out.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    let document = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text:?}\n{stderr}"));
    (document, out.status.code().unwrap())
}

fn truth(shared: &Path) -> serde_json::Map<String, Value> {
    let text = fs::read(shared.join("data/jobs/truth.json")).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap().as_object().unwrap().clone()
}

fn jobs(shared: &Path, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| shared.join("data/jobs").join(name)).collect()
}

/// A list stands for the steps of a multi-step trial.
fn sum(value: &Value) -> Option<u64> {
    match value {
        Value::Array(steps) => steps.iter().filter_map(Value::as_u64).reduce(|a, b| a + b),
        other => other.as_u64(),
    }
}

fn stamp(value: &Value) -> Option<pilothouse::job::Stamp> {
    value.as_str().map(|text| time::parse(text).unwrap().at)
}

fn score<'a>(document: &'a Value, name: &str) -> &'a Value {
    document["scores"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap()
}

fn kinds(document: &Value) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for warning in document["warnings"].as_array().unwrap() {
        *out.entry(warning["kind"].as_str().unwrap().to_string()).or_default() += 1;
        assert!(!warning["message"].as_str().unwrap().is_empty());
    }
    out
}

/// Compares one row with the truth about its trial.
fn assert_row(row: &Value, truth: &Value, at: &str) {
    if truth["result"] != Value::Bool(true) {
        for key in ["id", "reward", "rewards", "exception_type", "n_input_tokens", "finished_at"] {
            assert_eq!(row[key], Value::Null, "{at} {key}");
        }
        return;
    }
    assert_eq!(row["task"], truth["task_name"], "{at}");
    assert_eq!(row["phase"], "done", "{at}");
    let rewards = |v: &Value| {
        v.as_object().map(|m| m.iter().map(|(k, v)| (k.clone(), v.as_f64().unwrap())).collect::<BTreeMap<_, _>>())
    };
    assert_eq!(rewards(&row["rewards"]), rewards(&truth["rewards"]), "{at}");
    let primary = rewards(&truth["rewards"]).and_then(|m| m.get("reward").copied());
    assert_eq!(row["reward"].as_f64(), primary, "{at}");
    assert_eq!(row["exception_type"], truth["exceptions"].get(0).cloned().unwrap_or(Value::Null), "{at}");
    for key in ["n_input_tokens", "n_cache_tokens", "n_output_tokens", "n_episodes"] {
        assert_eq!(row[key].as_u64(), sum(&truth[key]), "{at} {key}");
    }
    assert_eq!(stamp(&row["finished_at"]), stamp(&truth["finished_at"]), "{at}");
    assert!(row["class"].is_string() && row["rule"].is_string(), "{at}");
}

/// Compares the chosen trials and the totals with the truth about a job.
fn assert_truth(document: &Value, truth: &Value, at: &str) {
    let planned = truth["n_planned"].as_u64().unwrap();
    let totals = &document["totals"];
    assert_eq!(totals["planned"], planned, "{at}");
    let want = &truth["totals"];
    assert_eq!(totals["passed"], want["reward_1"], "{at}");
    assert_eq!(totals["graded"], want["with_reward"], "{at}");
    assert_eq!(totals["errored"], want["with_exception"], "{at}");
    assert_eq!(totals["phantom"], want["phantom"], "{at}");
    let results = totals["finished"].as_u64().unwrap() + totals["phantom"].as_u64().unwrap();
    assert_eq!(results, want["with_result"].as_u64().unwrap(), "{at}");

    let trials = document["trials"].as_array().unwrap();
    let chosen: Vec<&Value> = trials.iter().filter(|t| t["chosen"] == true).collect();
    assert_eq!(chosen.len() as u64, planned, "{at}: one row for each planned slot");
    let slots: BTreeSet<&str> = chosen.iter().map(|t| t["slot"].as_str().unwrap()).collect();
    assert_eq!(slots.len() as u64, planned, "{at}: {slots:?}");
    let names: BTreeSet<&str> = chosen.iter().filter_map(|t| t["trial"].as_str()).collect();
    let want = truth["trials"].as_object().unwrap();
    assert_eq!(names, want.keys().map(String::as_str).collect(), "{at}");
    for row in chosen {
        match row["trial"].as_str() {
            Some(name) => assert_row(row, &want[name], &format!("{at}/{name}")),
            None => assert_eq!(row["phase"], "queued"),
        }
    }
}

#[test]
fn every_recorded_job_equals_the_truth() {
    let Some(shared) = support::shared() else { return };
    let truth = truth(&shared);
    assert_eq!(truth.len(), 18);
    for (job, truth) in &truth {
        let (document, code) = tally(&[], &jobs(&shared, &[job]));
        assert_eq!(document["schema_version"], 1);
        assert_truth(&document, truth, job);
        let one = &document["jobs"][0];
        assert_eq!((&one["harbor_version"], &one["layout"]), (&truth["harbor_version"], &json!("harbor")));
        assert_eq!(one["planned"], truth["n_planned"]);
        // Whatever finished in good order needs nobody: errors alone are the benchmark's business.
        let whole = truth["trials"].as_object().unwrap().len() as u64 == truth["n_planned"].as_u64().unwrap();
        if one["state"] == "finished" && whole {
            let mut kinds = kinds(&document);
            // Rewards beside model errors, which 0.26 grades and does not let count.
            let invalid = kinds.remove("reward_invalid");
            assert_eq!(invalid, (*job == "b26-terminus2-mix-0.26.0").then_some(3), "{job}");
            // What stands out over all trials is checked where the classes are.
            let before = kinds.len();
            for alarm in [
                "systemic",
                "config",
                "infra_burst",
                "zero_tokens",
                "tests_never_ran",
                "timeout_disagrees",
                "suspicious_pass",
                "few_tokens",
                "terminal_killed",
            ] {
                kinds.remove(alarm);
            }
            let alarmed = kinds.len() < before;
            assert_eq!(kinds, BTreeMap::new(), "{job}");
            let infra = document["trials"].as_array().unwrap().iter().any(|t| t["class"] == "infra");
            assert_eq!(code, if infra { 3 } else { i32::from(alarmed) }, "{job}");
        } else {
            assert!(code == 1 || code == 3, "{job}");
        }
    }
}

#[test]
fn means_are_those_that_harbor_states() {
    let Some(shared) = support::shared() else { return };
    let mut compared = 0;
    for job in truth(&shared).keys() {
        let dir = shared.join("data/jobs").join(job);
        let own: Value = serde_json::from_slice(&fs::read(dir.join("result.json")).unwrap()).unwrap();
        let metrics = own["stats"]["evals"].as_object().unwrap().values().next().unwrap()["metrics"][0].clone();
        let Some(mean) = metrics.get("reward").or(metrics.get("mean")).and_then(Value::as_f64) else { continue };
        let (document, _) = tally(&[], &[dir]);
        let name = if job.ends_with("0.26.0") { "harbor_026" } else { "harbor_021" };
        let value = score(&document, name)["value"].as_f64();
        if job == "p-phantom-0.21.0" {
            continue;
        }
        assert!((value.unwrap() - mean).abs() < 1e-9, "{job}: {value:?}, Harbor says {mean}");
        compared += 1;
    }
    assert!(compared >= 16, "{compared}");
}

/// States of trials in these dirs and how many trials they are, by result id, else by name.
fn states_and_trials(dirs: &[PathBuf]) -> (usize, usize) {
    let mut states = 0;
    let mut by_name: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for dir in dirs {
        for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap()).filter(|e| e.path().is_dir()) {
            states += 1;
            let ids = by_name.entry(entry.file_name().into_string().unwrap()).or_default();
            if let Ok(text) = fs::read(entry.path().join("result.json")) {
                ids.insert(serde_json::from_slice::<Value>(&text).unwrap()["id"].as_str().unwrap().to_string());
            }
        }
    }
    (states, by_name.values().map(|ids| ids.len().max(1)).sum())
}

#[test]
fn moments_of_a_resumed_job_merge_to_the_last_one() {
    let Some(shared) = support::shared() else { return };
    let truth = truth(&shared);
    for (names, last) in [
        (vec!["c0-midrun-0.21.0", "c-sigterm-0.21.0", "c2-resumed-0.21.0"], "c2-resumed-0.21.0"),
        (vec!["c2-resumed-0.21.0", "c0-midrun-0.21.0", "c-sigterm-0.21.0"], "c2-resumed-0.21.0"),
        (vec!["d-sigkill-0.21.0", "d2-resumed-0.21.0"], "d2-resumed-0.21.0"),
        (vec!["d2-resumed-0.21.0", "d-sigkill-0.21.0"], "d2-resumed-0.21.0"),
    ] {
        let dirs = jobs(&shared, &names);
        let (document, code) = tally(&[], &dirs);
        assert_truth(&document, &truth[last], last);
        let (states, trials) = states_and_trials(&dirs);
        let rows = document["trials"].as_array().unwrap();
        let listed = rows.iter().filter(|t| !t["trial"].is_null()).count();
        assert_eq!(listed, states, "every directory is listed");
        let left_out: Vec<&Value> = rows.iter().filter(|t| t["chosen"] == false).collect();
        for row in &left_out {
            let by = row["superseded_by"].as_str().unwrap();
            let standing = rows
                .iter()
                .any(|t| t["trial"].as_str().is_some_and(|n| format!("{}/{n}", t["job_dir"].as_str().unwrap()) == by));
            assert!(standing, "{by} is one of the rows");
        }
        let duplicate = states - trials;
        let superseded = trials - truth[last]["trials"].as_object().unwrap().len();
        assert!(duplicate > 0 && superseded > 0);
        assert_eq!(document["totals"]["duplicate"], duplicate);
        assert_eq!(left_out.len(), duplicate + superseded);
        let kinds = kinds(&document);
        assert_eq!((kinds["duplicate"], kinds["superseded"], kinds.len()), (duplicate, superseded, 2), "{kinds:?}");
        assert_eq!(document["merge"]["as"], Value::Null);
        assert_eq!(code, 0, "{names:?}");
    }
}

#[test]
fn three_attempts_at_four_tasks_are_twelve_slots() {
    let Some(shared) = support::shared() else { return };
    let (document, _) = tally(&[], &jobs(&shared, &["f-attempts3-0.21.0"]));
    let slots: Vec<&str> = document["trials"].as_array().unwrap().iter().map(|t| t["slot"].as_str().unwrap()).collect();
    let want: Vec<String> = ["count-errors", "hello-file", "slow-think", "wrong-answer"]
        .iter()
        .flat_map(|task| (1..=3).map(move |k| format!("{task}#{k}")))
        .collect();
    assert_eq!(slots, want);
    assert_eq!(document["totals"]["planned"], 12);
    // As Harbor's own pass_at_k of this job.
    assert_eq!(score(&document, "pass@2")["value"], 0.5);
    assert_eq!(document["trials"][0]["task"], "fixture/count-errors");
}

#[test]
fn a_running_job_has_a_partial_mean() {
    let Some(shared) = support::shared() else { return };
    let (document, _) = tally(&[], &jobs(&shared, &["c26a-midrun-0.26.0"]));
    for s in document["scores"].as_array().unwrap() {
        let rule = s["rule"].as_str().unwrap();
        assert!(rule.starts_with("partial: 5 of 10 planned have ended; "), "{rule}");
    }
    assert_eq!(score(&document, "raw")["numerator"], 5);
    assert_eq!(score(&document, "raw")["denominator"], 10);
    assert_eq!(score(&document, "graded")["denominator"], 5);
}

#[test]
fn passes_and_samples_of_recorded_jobs() {
    let Some(shared) = support::shared() else { return };
    // Three jobs over the same tasks.
    let same = ["a-oracle-all-0.21.0", "b-terminus2-mix-0.21.0", "b26-terminus2-mix-0.26.0"];
    let (document, code) = tally(&[], &jobs(&shared, &same));
    assert_eq!((&document["merge"]["as"], &document["totals"]["planned"]), (&json!("samples"), &json!(69)));
    assert_eq!((kinds(&document).contains_key("drift"), code), (true, 3));
    // A part of another job's tasks.
    let part = ["c2-resumed-0.21.0", "g3-nop-0.21.0"];
    for names in [part, [part[1], part[0]]] {
        let (document, code) = tally(&[], &jobs(&shared, &names));
        assert_eq!((&document["merge"]["as"], &document["totals"]["planned"]), (&json!("passes"), &json!(10)));
        // hello-file and csv-sum have a score in both; no-reward in neither.
        assert_eq!(kinds(&document)["conflict"], 2);
        assert_eq!((&document["totals"]["passed"], code), (&json!(6), 1));
        let (latest, _) = tally(&["--rule", "latest"], &jobs(&shared, &names));
        assert_eq!((&latest["totals"]["passed"], &latest["merge"]["rule"]), (&json!(4), &json!("latest")));
        let (best, _) = tally(&["--rule", "best"], &jobs(&shared, &names));
        assert_eq!(best["totals"]["passed"], 6);
        assert!(best["merge"]["why"].as_str().unwrap().contains("not publishable: only failures were run again"));
        let (samples, _) = tally(&["--as", "samples"], &jobs(&shared, &names));
        assert_eq!((&samples["totals"]["planned"], &samples["totals"]["passed"]), (&json!(13), &json!(6)));
    }
    // Some tasks in common, others not.
    let mixed = jobs(&shared, &["c2-resumed-0.21.0", "g2-mini-swe-agent-0.21.0"]);
    let out = pilothouse(&["tally"], &mixed);
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
    for part in ["--as passes", "--as samples", "c2-resumed-0.21.0", "g2-mini-swe-agent-0.21.0"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert_eq!(tally(&["--as", "samples"], &mixed).0["totals"]["planned"], 15);
    assert_eq!(tally(&["--as", "passes"], &mixed).0["totals"]["planned"], 12);
    // Status does not refuse.
    let out = pilothouse(&["status", "--json"], &mixed);
    let document: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&document["merge"]["as"], &document["totals"]["planned"]), (&Value::Null, &json!(15)));
}

#[test]
fn arguments_that_are_no_job_are_usage_errors() {
    let Some(shared) = support::shared() else { return };
    let temp = tempfile::tempdir().unwrap();
    let good = shared.join("data/jobs/g3-nop-0.21.0");
    let file = temp.path().join("file");
    fs::write(&file, "x").unwrap();
    fs::create_dir(temp.path().join("empty")).unwrap();
    for bad in [temp.path().join("not-there"), file, temp.path().join("empty")] {
        for command in ["tally", "status"] {
            let out = pilothouse(&[command], std::slice::from_ref(&bad));
            let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.code(), Some(2), "{command} {bad:?}: {stderr}");
            assert!(stderr.contains(&*bad.to_string_lossy()), "{stderr}");
            assert!(out.stdout.is_empty());
        }
    }
    let out = pilothouse(&["tally"], &[good, temp.path().join("not-there")]);
    assert_eq!(out.status.code(), Some(2), "a typo must not be counted around");
    for args in [&["tally"][..], &["tally", "--as", "both"], &["tally", "--json", "--plain", "x"], &["status"]] {
        assert_eq!(pilothouse(args, &[]).status.code(), Some(2), "{args:?}");
    }
}

/// No byte that a terminal acts on, and not the key that one of the files holds.
fn assert_harmless(text: &str, at: &str) {
    let bad = text.chars().find(|c| *c != '\n' && pilothouse::job::text::is_unsafe(*c));
    assert_eq!(bad, None, "{at}");
    assert!(!text.contains("not-a-real-key"), "{at}");
}

#[test]
fn hostile_jobs_are_counted_without_harm() {
    let Some(shared) = support::shared() else { return };
    let mut dirs: Vec<PathBuf> =
        fs::read_dir(shared.join("data/hostile")).unwrap().map(|e| e.unwrap().path()).collect();
    dirs.retain(|d| d.is_dir() && d.file_name().unwrap() != "casts");
    dirs.sort();
    assert!(dirs.len() >= 7);
    let mut sets: Vec<Vec<PathBuf>> = dirs.iter().map(|d| vec![d.clone()]).collect();
    sets.push(dirs);
    for set in sets {
        for args in [
            &["tally", "--json"][..],
            &["tally", "--plain"],
            &["tally", "--markdown"],
            &["report", "--json"],
            &["report", "--markdown"],
            &["compare", "--json"],
            &["compare", "--markdown"],
            &["compare"],
            &["status", "--json"],
            &["status"],
        ] {
            let out = pilothouse(args, &set);
            let at = format!("{args:?} {set:?}");
            assert!(matches!(out.status.code(), Some(0..=3)), "{at}: {out:?}");
            assert_harmless(&String::from_utf8(out.stdout).unwrap(), &at);
            assert_harmless(&String::from_utf8(out.stderr).unwrap(), &at);
        }
    }
}

#[test]
fn hostile_jobs_have_the_right_counts() {
    let Some(shared) = support::shared() else { return };
    let count = |name: &str| tally(&[], &[shared.join("data/hostile").join(name)]);
    let totals = |document: &Value, keys: &[&str]| -> Vec<u64> {
        keys.iter().map(|k| document["totals"][k].as_u64().unwrap()).collect()
    };

    let (document, code) = count("foreign-dirs");
    assert_eq!(totals(&document, &["planned", "finished", "passed"]), [178, 1, 1]);
    let kinds_here = kinds(&document);
    assert_eq!((kinds_here["summary_disagrees"], code), (1, 1), "{kinds_here:?}");
    let says = document["warnings"].as_array().unwrap().iter().find(|w| w["kind"] == "summary_disagrees").unwrap();
    assert!(says["message"].as_str().unwrap().contains("job says 178 trials ended, files say 1"), "{says}");
    assert!(kinds_here["foreign"] >= 1, "{kinds_here:?}");

    let (document, code) = count("phantom-and-cancelled");
    let keys = ["planned", "finished", "passed", "errored", "cancelled", "phantom", "no_reward"];
    assert_eq!(totals(&document, &keys), [4, 3, 1, 3, 1, 1, 2]);
    assert_eq!((kinds(&document)["phantom"], code), (1, 3));

    let (document, _) = count("rewards");
    // 1e308 and -1 are graded and failed, 0.333333 is partial; "1.0", NaN, {}, null and two keys without
    // `reward` are not graded.
    assert_eq!(totals(&document, &["planned", "graded", "passed", "partial", "failed"]), [8, 3, 0, 1, 2]);
    assert_eq!(kinds(&document)["reward_unreadable"], 2);
    assert_eq!(kinds(&document)["no_primary_reward"], 1);

    let (document, _) = count("times");
    assert_eq!(totals(&document, &["planned", "passed"]), [6, 6]);
    assert!(kinds(&document)["clock"] >= 2, "{:?}", kinds(&document));

    let (document, _) = count("no-config");
    assert_eq!(totals(&document, &["planned", "passed"]), [1, 1]);

    let (document, code) = count("broken-json");
    assert_eq!(document["totals"]["planned"], 10);
    // A byte order mark and a name in Latin-1 do not hide a result; a list, a string and a record without any
    // sign of a trial are another program's.
    assert_eq!(totals(&document, &["unreadable", "finished"]), [5, 2]);
    assert_eq!(kinds(&document)["foreign"], 3);
    assert_eq!(code, 1);
}

#[test]
fn reports_of_finished_and_unfinished_jobs() {
    let Some(shared) = support::shared() else { return };
    let temp = tempfile::tempdir().unwrap();
    let archive = shared.join("data/jobs-with-mtimes.tar.gz");
    let done = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(temp.path()).status().unwrap();
    assert!(done.success());
    let dirs = |names: &[&str]| -> Vec<PathBuf> { names.iter().map(|n| temp.path().join("jobs").join(n)).collect() };
    // While the trials of c0 were running, and long after.
    let during = "2026-11-29T19:39:50Z";
    let after = "2026-11-30T08:00:00Z";
    for (name, names, now) in [
        ("finished", vec!["g3-nop-0.21.0"], after),
        ("killed", vec!["d-sigkill-0.21.0"], after),
        ("resumed", vec!["d-sigkill-0.21.0", "d2-resumed-0.21.0"], after),
        ("running", vec!["c0-midrun-0.21.0"], during),
    ] {
        let reports = made::reports(&dirs(&names), now);
        insta::assert_snapshot!(format!("{name}_json"), reports.json);
        insta::assert_snapshot!(format!("{name}_plain"), reports.plain);
        insta::assert_snapshot!(format!("{name}_markdown"), reports.markdown);
        insta::assert_snapshot!(format!("{name}_status"), reports.status);
    }
}

/// The contract: names and order of keys, for a small job made here.
#[test]
fn the_json_contract() {
    let temp = tempfile::tempdir().unwrap();
    let dir = write_job(temp.path(), "small", &[("alpha", Some(1.0)), ("beta", None)], true);
    let (document, code) = tally(&[], std::slice::from_ref(&dir));
    assert_eq!(code, 0);
    let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let set = |text: &str| text.split(' ').map(str::to_string).collect::<BTreeSet<String>>();
    assert_eq!(
        keys(&document),
        set("schema_version merge jobs trials totals scores tokens cost wall times warnings regrades")
    );
    assert_eq!(keys(&document["merge"]), set("as rule why"));
    assert_eq!(
        keys(&document["jobs"][0]),
        set("dir job_name job_id layout harbor_version state state_evidence planned")
    );
    assert_eq!(
        keys(&document["trials"][0]),
        set("job job_dir trial id task slot phase reward rewards exception_type class sub_class rule verdict \
             n_episodes n_input_tokens n_cache_tokens n_output_tokens cost_usd started_at finished_at chosen \
             superseded_by")
    );
    assert_eq!(
        keys(&document["totals"]),
        set("planned finished graded passed partial failed errored no_reward cancelled phantom orphaned unreadable \
             duplicate")
    );
    assert_eq!(keys(&document["scores"][0]), set("name numerator denominator value ci95 rule"));
    assert_eq!(keys(&document["tokens"]), set("input cache output known of"));
    let names: Vec<&str> = document["scores"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["raw", "corrected", "graded", "without_exceptions", "excluding_infra", "harbor_021", "harbor_026"]
    );
    let out = pilothouse(&["status", "--json"], std::slice::from_ref(&dir));
    let document: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        keys(&document),
        set("schema_version merge jobs trials totals scores tokens cost wall times warnings regrades eta attention")
    );
    assert_eq!((&document["eta"], &document["attention"]), (&Value::Null, &json!([])));
    assert_eq!(document["trials"][0]["started_at"], "2026-01-02T10:00:00.000000Z");
}

#[test]
fn watching_ends_with_the_job_or_a_signal() {
    let temp = tempfile::tempdir().unwrap();
    let dir = write_job(temp.path(), "done", &[("alpha", Some(1.0))], true);
    let out = pilothouse(&["status", "--watch", "--json"], std::slice::from_ref(&dir));
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!((out.status.code(), text.lines().count()), (Some(0), 1), "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["jobs"][0]["state"], "finished");

    // A job that goes on: a line now, another one when it has finished.
    let dir = write_job(temp.path(), "open", &[("alpha", Some(1.0))], false);
    let mut child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["status", "--watch", "--json"])
        .arg(&dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["jobs"][0]["state"], "running");
    write_job(temp.path(), "open", &[("alpha", Some(1.0)), ("beta", Some(0.0))], true);
    let last = lines.map(|l| l.unwrap()).last().unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["jobs"][0]["state"], &last["totals"]["finished"]), (&json!("finished"), &json!(2)));
    assert_eq!(child.wait().unwrap().code(), Some(0));

    for signal in ["-TERM", "-INT"] {
        let dir = write_job(temp.path(), "stopped", &[("alpha", Some(1.0))], false);
        let mut child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
            .args(["status", "--watch"])
            .arg(&dir)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.next().unwrap().unwrap().starts_with("at "));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

/// What one look at each recorded job tells.
static RECORDED: LazyLock<Vec<Vec<JobEvent>>> = LazyLock::new(|| {
    let Some(shared) = support::shared() else { return Vec::new() };
    truth(&shared).keys().map(|job| made::scan(&[shared.join("data/jobs").join(job)])).collect()
});

/// The fleet of recorded jobs in this order; the second number tells copies of one apart.
fn recorded(order: &[(usize, usize)]) -> Fleet {
    let mut fleet = Fleet::default();
    for (i, (job, copy)) in order.iter().enumerate() {
        let key = JobKey(u32::try_from(i).unwrap());
        for event in &RECORDED[*job] {
            fleet.apply(match event.clone() {
                JobEvent::Job(_, mut facts) => {
                    facts.dir = format!("{}-{copy}", facts.dir.display()).into();
                    JobEvent::Job(key, facts)
                }
                JobEvent::Liveness(_, liveness) => JobEvent::Liveness(key, liveness),
                JobEvent::Trial(_, trial) => JobEvent::Trial(key, trial),
                JobEvent::Settled(_) => JobEvent::Settled(key),
                other => other,
            });
        }
    }
    fleet
}

/// Chosen trials and planned slots of each task, summed over jobs as they stand.
fn chosen_per_task(tally: &Tally) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for row in tally.rows.iter().filter(|r| r.place == Place::Chosen) {
        *out.entry(row.task.to_string()).or_default() += 1;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_set_of_recorded_jobs_counts_the_same_in_any_order(
        picked in prop::collection::vec((0..18usize, 0..2usize), 1..7).prop_flat_map(|mut set| {
            set.sort_unstable();
            set.dedup();
            (Just(set.clone()), Just(set).prop_shuffle())
        }),
        rule in prop_oneof![Just(Rule::Earlier), Just(Rule::Latest), Just(Rule::Best)],
    ) {
        if RECORDED.is_empty() {
            return Ok(());
        }
        let now: Stamp = "2026-11-30T08:00:00Z".parse().unwrap();
        let (sorted, shuffled) = picked;
        let fleet = recorded(&sorted);
        let t = count_side_by_side(&fleet, rule, now);
        let other = count_side_by_side(&recorded(&shuffled), rule, now);
        prop_assert_eq!(t.totals, other.totals);
        prop_assert_eq!(&t.scores, &other.scores);
        prop_assert_eq!(t.warnings.len(), other.warnings.len());

        // A second copy of a job adds duplicates and nothing else.
        let mut once = sorted.clone();
        once.dedup_by_key(|(job, _)| *job);
        let single = count_side_by_side(&recorded(&once), rule, now);
        let n = t.totals;
        let copies: usize = sorted.iter().map(|s| fleet_size(*s)).sum::<usize>() - once.iter().map(|s| fleet_size(*s)).sum::<usize>();
        prop_assert_eq!(n.duplicate, single.totals.duplicate + copies as u64);
        prop_assert_eq!((n.planned, n.passed, n.graded, n.superseded), {
            let s = single.totals;
            (s.planned, s.passed, s.graded, s.superseded)
        });

        // No task has more trials that count than are planned.
        let mut planned: BTreeMap<String, usize> = BTreeMap::new();
        for job in fleet.jobs() {
            for p in job.facts.planned.iter().flatten() {
                *planned.entry(p.task.to_string()).or_default() += p.n as usize;
            }
        }
        for (task, chosen) in chosen_per_task(&t) {
            prop_assert!(chosen <= planned[&task], "{} {}", task, chosen);
        }
        prop_assert_eq!(chosen_per_task(&t).values().sum::<usize>() as u64, n.planned);
        prop_assert_eq!(n.finished, n.graded + n.no_reward);
        prop_assert!(n.finished + n.phantom + n.orphaned + n.unreadable <= n.planned);
    }
}

fn fleet_size((job, _): (usize, usize)) -> usize {
    RECORDED[job].iter().filter(|e| matches!(e, JobEvent::Trial(..))).count()
}
