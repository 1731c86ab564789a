//! What operators met while merging and counting, as small job dirs: each test is named by its row of the
//! evidence. And what passes, samples, requeues and verdicts come to.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "support/runs.rs"]
mod runs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runs::{Made, Outcome};
use serde_json::{Value, json};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, args: &[&str], dirs: &[&PathBuf]) -> Output {
        let state = self.root().join("state");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(args).args(dirs).env("PILOTHOUSE_STATE_DIR", &state).env("XDG_CONFIG_HOME", &state);
        command.output().unwrap()
    }

    fn json(&self, args: &[&str], dirs: &[&PathBuf]) -> (Value, i32) {
        let out = self.run(args, dirs);
        let text = String::from_utf8(out.stdout).unwrap();
        let value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
        (value, out.status.code().unwrap())
    }

    fn tally(&self, dirs: &[&PathBuf]) -> Value {
        self.json(&["tally", "--json"], dirs).0
    }

    fn say(&self, job: &Path, name: &str, verdict: &str) {
        let out = self.run(&["verdict", "--note", "seen", job.join(name).to_str().unwrap(), verdict], &[]);
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

fn score(document: &Value, name: &str) -> (f64, u64) {
    let score = document["scores"].as_array().unwrap().iter().find(|s| s["name"] == name);
    let score = score.unwrap_or_else(|| panic!("no {name} in {}", document["scores"]));
    (score["numerator"].as_f64().unwrap(), score["denominator"].as_u64().unwrap())
}

fn warnings<'a>(document: &'a Value, kind: &str) -> Vec<&'a str> {
    let all = document["warnings"].as_array().unwrap().iter().filter(|w| w["kind"] == kind);
    all.map(|w| w["message"].as_str().unwrap()).collect()
}

fn dead(task: &str) -> Outcome {
    Outcome::raised(task, None, "SandboxError", "Sandbox API error (500): connection lost while running command")
}

/// The trial that counts for a task.
fn chosen<'a>(document: &'a Value, task: &str) -> &'a Value {
    let rows = document["trials"].as_array().unwrap();
    rows.iter().find(|t| t["chosen"] == true && t["slot"].as_str().unwrap().starts_with(&format!("{task}#"))).unwrap()
}

const TASKS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

fn all(outcome: impl Fn(&str) -> Outcome) -> Vec<Outcome> {
    TASKS.iter().map(|task| outcome(task)).collect()
}

#[test]
fn row_06_a_restored_job_without_its_config_is_shown_and_says_so() {
    let place = Place::new();
    let job = Made::new("restored", all(Outcome::passed)).write(place.root());
    fs::remove_file(job.join("config.json")).unwrap();
    let document = place.tally(&[&job]);
    assert_eq!(score(&document, "raw"), (4.0, 4));
    assert_eq!(warnings(&document, "missing").len(), 1, "{}", document["warnings"]);
}

#[test]
fn row_07_attempts_in_directories_of_their_own_are_one_run_and_what_is_broken_is_listed() {
    let place = Place::new();
    let first =
        Made::new("2026-08-14__10-00-00", vec![Outcome::passed("alpha"), dead("beta"), dead("gamma"), dead("delta")]);
    let mut second = Made::new(
        "2026-08-14__12-00-00",
        vec![dead("alpha"), Outcome::failed("beta"), Outcome::passed("gamma"), dead("delta")],
    );
    second.began = "2026-08-14T17:44:31Z";
    let mut third = Made::new("2026-08-14__14-00-00", all(Outcome::passed));
    third.began = "2026-08-14T19:44:31Z";
    let dirs = [first, second, third].map(|made| made.write(place.root()));
    // The pod went away in the middle of the last one.
    for (task, text) in [("alpha", ""), ("beta", "{\"id\": \"x\", \"task_na"), ("gamma", "[]")] {
        fs::write(dirs[2].join(format!("{task}__AbCdEfG/result.json")), text).unwrap();
    }
    let dirs: Vec<&PathBuf> = dirs.iter().collect();
    let (document, code) = place.json(&["tally", "--json", "--as", "passes"], &dirs);
    assert_eq!((score(&document, "raw"), code), ((3.0, 4), 1));
    assert_eq!(chosen(&document, "alpha")["job"], "2026-08-14__10-00-00");
    assert_eq!(chosen(&document, "delta")["job"], "2026-08-14__14-00-00");
    let broken = warnings(&document, "unreadable").len() + warnings(&document, "foreign").len();
    assert!(broken >= 3, "{}", document["warnings"]);
}

#[test]
fn row_09_a_killed_job_shows_what_was_finished_and_a_retry_keeps_its_own_id() {
    let place = Place::new();
    let killed = Made::new("killed", all(Outcome::passed)).write(place.root());
    for task in ["gamma", "delta"] {
        fs::remove_file(killed.join(format!("{task}__AbCdEfG/result.json"))).unwrap();
    }
    let mut result: Value = serde_json::from_slice(&fs::read(killed.join("result.json")).unwrap()).unwrap();
    result["finished_at"] = Value::Null;
    fs::write(killed.join("result.json"), result.to_string()).unwrap();
    let document = place.tally(&[&killed]);
    assert_eq!((score(&document, "raw"), &document["totals"]["finished"]), ((2.0, 4), &json!(2)));
    let retry = Made::new("retry", all(Outcome::failed)).write(place.root());
    let document = place.tally(&[&killed, &retry]);
    let jobs: Vec<&Value> = document["jobs"].as_array().unwrap().iter().map(|j| &j["job_id"]).collect();
    assert_eq!(jobs, ["job-killed", "job-retry"]);
    assert_eq!(
        (&document["merge"]["as"], score(&document, "raw")),
        (&json!("samples"), (2.0, 8)),
        "stale results stay apart"
    );
}

#[test]
fn row_10_a_later_dead_attempt_never_shadows_an_earlier_score_and_no_merge_lowers_it() {
    let place = Place::new();
    let first =
        Made::new("first", vec![Outcome::passed("alpha"), Outcome::failed("beta"), dead("gamma")]).write(place.root());
    let mut later = Made::new("later", vec![dead("alpha"), dead("beta"), dead("gamma").named("Later22")]);
    later.began = "2026-08-16T00:00:00Z";
    let later = later.write(place.root());
    for dirs in [[&first, &later], [&later, &first]] {
        for rule in ["earlier", "latest", "best"] {
            let (document, _) = place.json(&["tally", "--json", "--as", "passes", "--rule", rule], &dirs);
            assert_eq!(score(&document, "raw"), (1.0, 3), "{rule}");
            assert_eq!(chosen(&document, "alpha")["job"], "first");
            assert_eq!(chosen(&document, "beta")["reward"], 0.0);
        }
    }
    // Within one job, too: an attempt that died after the scored one.
    let mut made = Made::new("one", vec![Outcome::passed("alpha"), dead("alpha").named("Zzzzzz1").started(9000)]);
    made.planned = vec![("alpha".into(), 1)];
    let one = made.write(place.root());
    assert_eq!(score(&place.tally(&[&one]), "raw"), (1.0, 1));
}

#[test]
fn row_11_a_summary_that_counts_twice_is_flagged_and_not_believed() {
    let place = Place::new();
    let mut made = Made::new("twice", all(Outcome::passed));
    made.claims = Some((178, 12));
    let job = made.write(place.root());
    let (document, code) = place.json(&["tally", "--json"], &[&job]);
    assert_eq!((&document["totals"]["finished"], code), (&json!(4), 1));
    let said = warnings(&document, "summary_disagrees");
    assert!(said[0].contains("job says 178 trials ended, files say 4"), "{said:?}");
    assert!(said[0].contains("job says 12 with exception, files say 0"), "{said:?}");
}

#[test]
fn row_12_no_reward_is_no_zero_and_a_reward_beside_an_exception_stays() {
    let place = Place::new();
    let outcomes =
        vec![Outcome::passed("alpha"), Outcome::timeout("beta", Some(1.0)), dead("gamma"), Outcome::failed("delta")];
    let job = Made::new("main", outcomes).write(place.root());
    let document = place.tally(&[&job]);
    assert_eq!((score(&document, "graded"), score(&document, "raw")), ((2.0, 3), (2.0, 4)));
    let kept = chosen(&document, "beta");
    assert_eq!((&kept["reward"], &kept["exception_type"]), (&json!(1.0), &json!("AgentTimeoutError")));
    assert_eq!(chosen(&document, "gamma")["reward"], Value::Null);
    // The same directory twice is counted once.
    let again = job.join(".");
    assert_eq!(place.tally(&[&job, &again])["totals"]["planned"], 4);
    let copy = place.root().join("copy");
    assert!(Command::new("cp").arg("-r").args([&job, &copy]).status().unwrap().success());
    let document = place.tally(&[&job, &copy]);
    assert_eq!((&document["totals"]["planned"], &document["totals"]["duplicate"]), (&json!(4), &json!(4)));
}

#[test]
fn row_13_both_generations_of_a_jobs_result_give_the_same_numbers() {
    let place = Place::new();
    let new = Made::new("new", all(Outcome::passed)).write(place.root());
    let before = place.tally(&[&new]);
    let mut result: Value = serde_json::from_slice(&fs::read(new.join("result.json")).unwrap()).unwrap();
    result["stats"] = json!({"n_trials": 4, "n_errors": 0, "evals": {}});
    fs::write(new.join("result.json"), result.to_string()).unwrap();
    let after = place.tally(&[&new]);
    assert_eq!(
        (&before["totals"], &before["scores"], &before["warnings"]),
        (&after["totals"], &after["scores"], &after["warnings"])
    );
    // And the old names are compared with the files, too.
    result["stats"]["n_trials"] = json!(9);
    fs::write(new.join("result.json"), result.to_string()).unwrap();
    assert!(warnings(&place.tally(&[&new]), "summary_disagrees")[0].contains("job says 9 trials ended"));
}

#[test]
fn row_14_what_is_missing_unexpected_duplicate_or_drifted_is_listed() {
    let place = Place::new();
    let mut made = Made::new("base", all(Outcome::passed));
    made.planned.push(("epsilon".into(), 1));
    made.planned.retain(|(task, _)| task != "delta");
    let base = made.write(place.root());
    let mut other = Made::new("other", vec![Outcome::passed("alpha"), Outcome::passed("beta")]);
    other.began = "2026-08-16T00:00:00Z";
    let other = other.write(place.root());
    let lock = fs::read_to_string(other.join("lock.json")).unwrap().replace("sha256:alpha", "sha256:changed");
    fs::write(other.join("lock.json"), lock).unwrap();
    let copy = place.root().join("copy");
    assert!(Command::new("cp").arg("-r").args([&other, &copy]).status().unwrap().success());
    let document = place.tally(&[&base, &other, &copy]);
    assert!(warnings(&document, "missing")[0].contains("epsilon#1"), "{}", document["warnings"]);
    assert!(warnings(&document, "foreign")[0].contains("delta is not in the job's plan"));
    assert_eq!(warnings(&document, "duplicate").len(), 2);
    let drift = warnings(&document, "drift");
    assert!(drift.iter().any(|d| d.contains("1 tasks have other content: alpha")), "{drift:?}");
}

#[test]
fn row_14_other_arguments_timeouts_versions_and_harnesses_drift_and_another_endpoint_does_not() {
    let place = Place::new();
    let agent = |base: &str, temperature: f64| {
        json!([{"name": "terminus-2", "model_name": "openai/Qwen/Qwen3.8-27B", "kwargs": {
        "api_base": base, "temperature": temperature, "record_terminal_session": true, "llm_call_kwargs": {"top_p": 0.95},
        "model_info": {"max_input_tokens": 262_144, "max_output_tokens": 65536}}}])
    };
    let base = Made::new("base", all(Outcome::passed)).write(place.root());
    let mut same = Made::new("same", vec![Outcome::passed("alpha")]);
    same.config = json!({"agents": agent("https://elsewhere.example.org:31234/v1", 1.0), "timeout_multiplier": 1.0});
    let same = same.write(place.root());
    assert_eq!(warnings(&place.tally(&[&base, &same]), "drift"), Vec::<&str>::new());
    let mut other = Made::new("other", vec![Outcome::passed("alpha")]);
    other.config = json!({"agents": agent("http://127.0.0.1:30000/v1", 0.6), "agent_timeout_multiplier": 3.0});
    other.version = "0.26.0";
    let other = other.write(place.root());
    fs::write(other.join("pilothouse.lease"), "{}").unwrap();
    let document = place.tally(&[&base, &other]);
    let drift = warnings(&document, "drift");
    for part in [
        "temperature 0.6 here, 1 in",
        "agent_timeout_multiplier 3 here, 6 in",
        "version 0.26.0 here, 0.21.0 in",
        "harness pilothouse here, harbor in",
    ] {
        assert!(drift.iter().any(|d| d.contains(part)), "{part}: {drift:?}");
    }
    assert_eq!(drift.len(), 4, "{drift:?}");
}

#[test]
fn row_31_reward_and_exception_are_two_axes() {
    let place = Place::new();
    let outcomes = vec![
        Outcome::timeout("alpha", Some(1.0)),
        Outcome::timeout("beta", Some(0.0)),
        Outcome::timeout("gamma", None),
        Outcome::passed("delta"),
    ];
    let job = Made::new("j", outcomes).write(place.root());
    let (report, _) = place.json(&["report", "--json"], &[&job]);
    assert_eq!(report["run"]["errors"], json!([{"type": "AgentTimeoutError", "count": 3, "with_reward": 2}]));
    let document = place.tally(&[&job]);
    assert_eq!((score(&document, "raw"), score(&document, "without_exceptions")), ((2.0, 4), (1.0, 1)));
}

#[test]
fn row_36_an_empty_list_of_metrics_is_no_mean_of_zero() {
    let place = Place::new();
    let job = Made::new("j", all(dead)).write(place.root());
    let mut result: Value = serde_json::from_slice(&fs::read(job.join("result.json")).unwrap()).unwrap();
    result["stats"] =
        json!({"n_trials": 0, "n_errors": 0, "evals": {"terminus-2__m__d": {"metrics": [], "n_trials": 0}}});
    result["n_total_trials"] = json!(4);
    fs::write(job.join("result.json"), result.to_string()).unwrap();
    let (document, code) = place.json(&["tally", "--json"], &[&job]);
    let by = |name: &str| {
        document["scores"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!(
        (by("graded"), by("excluding_infra"), code),
        (Value::Null, Value::Null, 3),
        "of nothing there is no mean"
    );
    let empty = Made::new("empty", Vec::new()).write(place.root());
    let (document, _) = place.json(&["tally", "--json"], &[&empty]);
    assert!(document["scores"].as_array().unwrap().iter().all(|s| s["value"] == Value::Null), "{}", document["scores"]);
}

#[test]
fn row_48_two_means_always_with_their_denominators() {
    let place = Place::new();
    let job = Made::new("j", vec![Outcome::passed("alpha"), Outcome::failed("beta"), dead("gamma"), dead("delta")])
        .write(place.root());
    let document = place.tally(&[&job]);
    assert_eq!((score(&document, "raw"), score(&document, "graded")), ((1.0, 4), (1.0, 2)));
    let text = String::from_utf8(place.run(&["tally"], &[&job]).stdout).unwrap();
    assert!(text.contains("1 / 4") && text.contains("1 / 2"), "{text}");
}

#[test]
fn row_51_a_mean_in_the_middle_says_that_it_is_partial_and_of_how_many() {
    let place = Place::new();
    let mut made = Made::new("j", vec![Outcome::passed("alpha"), Outcome::passed("beta")]);
    made.planned = TASKS.iter().map(|t| ((*t).to_string(), 1)).collect();
    let job = made.write(place.root());
    let document = place.tally(&[&job]);
    for score in document["scores"].as_array().unwrap() {
        let rule = score["rule"].as_str().unwrap();
        assert!(rule.starts_with("partial: 2 of 4 planned have ended; "), "{rule}");
    }
}

#[test]
fn rows_53_and_55_unknown_tokens_and_costs_are_unknown_and_sums_say_of_how_many() {
    let place = Place::new();
    let mut outcomes = all(|task| Outcome::timeout(task, Some(0.0)));
    for outcome in &mut outcomes[1..] {
        outcome.tokens = None;
    }
    let job = Made::new("j", outcomes).write(place.root());
    let document = place.tally(&[&job]);
    let tokens = &document["tokens"];
    assert_eq!([&tokens["input"], &tokens["known"], &tokens["of"]], [2_000_000, 1, 4]);
    assert_eq!(document["cost"], json!({"usd": null, "known": 0, "of": 4}));
    assert_eq!(chosen(&document, "beta")["n_input_tokens"], Value::Null);
    for args in [&["tally"][..], &["report", "--markdown"]] {
        let text = String::from_utf8(place.run(args, &[&job]).stdout).unwrap();
        assert!(!text.contains("0.00 USD") && text.contains("known for 0 of 4 trials"), "{text}");
    }
}

#[test]
fn eight_jobs_of_one_sample_are_eight_slots_a_task() {
    let place = Place::new();
    let dirs: Vec<PathBuf> = (0..8)
        .map(|i| {
            let outcomes = vec![
                Outcome::passed("alpha"),
                if i % 2 == 0 { Outcome::passed("beta") } else { Outcome::failed("beta") },
                Outcome::failed("gamma"),
                dead("delta"),
            ];
            let mut made = Made::new(&format!("sample-{i}"), outcomes);
            made.began = ["2026-08-01T00:00:00Z", "2026-08-02T00:00:00Z"][i % 2];
            made.write(place.root())
        })
        .collect();
    let dirs: Vec<&PathBuf> = dirs.iter().collect();
    let document = place.tally(&dirs);
    assert_eq!((&document["merge"]["as"], &document["totals"]["planned"]), (&json!("samples"), &json!(32)));
    assert_eq!((score(&document, "raw"), score(&document, "excluding_infra")), ((12.0, 32), (12.0, 24)));
    assert_eq!(score(&document, "mean@8"), (1.5, 4));
    assert_eq!(score(&document, "pass@8"), (2.0, 4));
    // Of 8 trials 4 passed: two drawn are both failures in 6 of 28 cases.
    let (sum, of) = score(&document, "pass@2");
    assert!((sum - (1.0 + 1.0 - 6.0 / 28.0)).abs() < 1e-9 && of == 4);
    assert!(document["trials"].as_array().unwrap().iter().all(|t| t["chosen"] == true), "nothing is dropped");
}

#[test]
fn three_attempts_are_three_slots_a_task() {
    let place = Place::new();
    let attempt = |task: &str, n: usize| {
        let outcome = if n == 0 && task == "alpha" { Outcome::failed(task) } else { Outcome::passed(task) };
        outcome.named(["Aaaaaa1", "Bbbbbb2", "Cccccc3"][n]).started(100 * n as i64)
    };
    let outcomes = (0..3).flat_map(|n| TASKS.iter().map(move |task| attempt(task, n))).collect();
    let mut made = Made::new("k3", outcomes);
    made.planned = TASKS.iter().map(|t| ((*t).to_string(), 3)).collect();
    let job = made.write(place.root());
    let document = place.tally(&[&job]);
    assert_eq!((score(&document, "raw"), score(&document, "pass@3")), ((11.0, 12), (4.0, 4)));
    let (mean, of) = score(&document, "mean@3");
    assert!((mean - (3.0 + 2.0 / 3.0)).abs() < 1e-9 && of == 4);
}

#[test]
fn a_mop_up_pass_fills_and_an_ambiguous_pair_is_refused_with_both_ways() {
    let place = Place::new();
    let first =
        Made::new("first", vec![Outcome::passed("alpha"), dead("beta"), dead("gamma"), Outcome::failed("delta")])
            .write(place.root());
    let mut mop_up = Made::new("mop-up", vec![Outcome::passed("beta"), Outcome::failed("gamma")]);
    mop_up.began = "2026-08-16T00:00:00Z";
    let mop_up = mop_up.write(place.root());
    for dirs in [[&first, &mop_up], [&mop_up, &first]] {
        let document = place.tally(&dirs);
        assert_eq!((&document["merge"]["as"], score(&document, "raw")), (&json!("passes"), (2.0, 4)));
        assert_eq!(warnings(&document, "superseded").len(), 2);
    }
    let strange = Made::new("strange", vec![Outcome::passed("alpha"), Outcome::passed("omega")]).write(place.root());
    let out = place.run(&["tally"], &[&first, &strange]);
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
    assert!(stderr.contains("--as passes") && stderr.contains("--as samples"), "{stderr}");
    for command in ["tally", "report"] {
        let (document, _) = place.json(&[command, "--json", "--as", "samples"], &[&first, &strange]);
        assert_eq!(score(&document, "raw"), (3.0, 6), "{command}");
    }
}

#[test]
fn infra_that_is_confirmed_gives_its_slot_to_the_later_scored_trial_of_the_corrected_score_alone() {
    let place = Place::new();
    let first = Made::new("first", vec![Outcome::failed("alpha"), Outcome::failed("beta"), Outcome::passed("gamma")])
        .write(place.root());
    let mut again = Made::new("again", vec![Outcome::passed("alpha"), Outcome::passed("beta")]);
    again.began = "2026-08-16T00:00:00Z";
    let again = again.write(place.root());
    place.say(&first, "alpha__AbCdEfG", "infra_confirmed");
    place.say(&first, "gamma__AbCdEfG", "infra_confirmed");
    let document = place.tally(&[&first, &again]);
    assert_eq!(warnings(&document, "conflict").len(), 2);
    assert_eq!(
        (score(&document, "raw"), score(&document, "corrected")),
        ((1.0, 3), (2.0, 3)),
        "beta stays, gamma has no later trial"
    );
    // A verdict on the later one holds there.
    place.say(&again, "alpha__AbCdEfG", "task_invalid");
    assert_eq!(score(&place.tally(&[&first, &again]), "corrected"), (1.0, 2));
    // Said in a copy, it holds for the job.
    let copy = place.root().join("copy");
    assert!(Command::new("cp").arg("-r").args([&first, &copy]).status().unwrap().success());
    place.say(&copy, "beta__AbCdEfG", "counts_as_passed");
    place.say(&copy, "alpha__AbCdEfG", "none");
    let document = place.tally(&[&first, &copy]);
    assert_eq!(
        (&document["totals"]["planned"], score(&document, "corrected")),
        (&json!(3), (2.0, 3)),
        "the last word, wherever it was written"
    );
}

#[test]
fn a_requeue_with_a_reason_is_meant_to_replace_and_its_origin_makes_it_a_pass() {
    let place = Place::new();
    let first = Made::new("first", vec![Outcome::failed("alpha"), Outcome::failed("beta")]).write(place.root());
    let mut again = Made::new("requeued", vec![Outcome::passed("alpha"), Outcome::passed("beta")]);
    again.began = "2026-08-16T00:00:00Z";
    let again = again.write(place.root());
    // The same tasks: samples, as nothing says otherwise.
    assert_eq!(place.tally(&[&first, &again])["merge"]["as"], "samples");
    let line = |act: &str, rest: Value| {
        let mut line = json!({"schema_version": 1, "time": "2026-08-15T20:00:00Z", "operator": "ann@host", "act": act});
        rest.as_object().unwrap().iter().for_each(|(k, v)| line[k] = v.clone());
        format!("{line}\n")
    };
    let origin = line("origin", json!({"subject": "job-first", "why": "x", "result": "", "place": "/elsewhere/first"}));
    fs::write(again.join("pilothouse.jsonl"), origin).unwrap();
    let document = place.tally(&[&again, &first]);
    assert_eq!((&document["merge"]["as"], score(&document, "raw")), (&json!("passes"), (0.0, 2)));
    assert_eq!(warnings(&document, "conflict").len(), 2);
    fs::remove_file(again.join("pilothouse.jsonl")).unwrap();
    // Forced for alpha with a reason; of beta nothing is written.
    let requeue = json!({"subject": "alpha__AbCdEfG", "trial": "alpha__AbCdEfG", "why": "the mirror was down (infra)", "result": "requeued", "place": again});
    fs::write(first.join("pilothouse.jsonl"), line("requeue", requeue)).unwrap();
    let document = place.tally(&[&again, &first]);
    assert_eq!((&document["merge"]["as"], score(&document, "raw")), (&json!("passes"), (1.0, 2)));
    assert_eq!(chosen(&document, "alpha")["job"], "requeued");
    assert_eq!(warnings(&document, "conflict").len(), 1);
}

#[test]
fn what_our_own_trials_note_to_differ_is_in_the_report_with_its_count() {
    let place = Place::new();
    let job = Made::new("own", all(Outcome::passed)).write(place.root());
    let note = |task: &str, texts: &[&str]| {
        let note = json!({"schema_version": 1, "environment": {"kind": "docker", "summary": "x", "deviations": texts}, "commands": []});
        fs::write(job.join(format!("{task}__AbCdEfG/pilothouse.json")), note.to_string()).unwrap();
    };
    note("alpha", &["one network for all trials", "no tmux\u{1b}[31m"]);
    note("beta", &["one network for all trials"]);
    fs::write(job.join("gamma__AbCdEfG/pilothouse.json"), "{").unwrap();
    // Harbor's trials note nothing.
    let (report, _) = place.json(&["report", "--json"], &[&job]);
    assert_eq!((&report["jobs"][0]["harness"], &report["jobs"][0]["deviations"]), (&json!("harbor"), &json!({})));
    fs::write(job.join("pilothouse.lease"), "{}").unwrap();
    let (report, _) = place.json(&["report", "--json"], &[&job]);
    let own = &report["jobs"][0];
    assert_eq!((&own["harness"], &own["deviations"]["one network for all trials"]), (&json!("pilothouse"), &json!(2)));
    let text = String::from_utf8(place.run(&["report"], &[&job]).stdout).unwrap();
    assert!(text.contains("| differs from Harbor | one network for all trials (2 trials) |"), "{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_thousand_verdicts_are_one_command_and_counted_at_once() {
    let place = Place::new();
    let n = 1000;
    let outcomes: Vec<Outcome> =
        (0..n).map(|i| Outcome::raised(&format!("t{i:04}"), None, "RuntimeError", "gone")).collect();
    let job = Made::new("large", outcomes).write(place.root());
    let mut dirs: Vec<PathBuf> = (0..n).map(|i| job.join(format!("t{i:04}__AbCdEfG"))).collect();
    dirs.push(PathBuf::from("counts_as_passed"));
    let begin = std::time::Instant::now();
    let out = place.run(&["verdict", "--note", "all of them"], &dirs.iter().collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(fs::read_to_string(job.join("pilothouse.jsonl")).unwrap().lines().count(), n);
    let document = place.tally(&[&job]);
    assert_eq!(score(&document, "corrected"), (n as f64, n as u64));
    // In a debug build on a busy machine; what grows with the square takes minutes.
    assert!(begin.elapsed() < std::time::Duration::from_secs(120), "{:?}", begin.elapsed());
}
