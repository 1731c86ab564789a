//! Job dirs as they are written: read back by our own reader and by Harbor's models, in the face of
//! crashes, second owners and files put in the way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "write/atif.rs"]
mod atif;
#[path = "write/crash.rs"]
mod crash;
#[path = "write/guard.rs"]
mod guard;
#[path = "write/made.rs"]
mod made;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use made::{End, Made, SECRET, at, begin, ends};
use pilothouse::follow::{Follower, Options};
use pilothouse::harbor::write::config::AgentConfig;
use pilothouse::harbor::write::lease::{Reading, read};
use pilothouse::harbor::write::stats::{Ended, JobStats, Progress};
use pilothouse::harbor::write::{
    Claim, Claimant, Folder, JobWriter, Lease, May, Modes, Observer, Resume, WriteError, ids,
};
use pilothouse::job::{Fleet, Stamp, scores, tally};
use serde_json::{Value, json};

fn value(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn fleet(dir: &Path) -> Fleet {
    let mut fleet = Fleet::default();
    let options = Options { owner: false, ..Options::default() };
    Follower::new(vec![dir.to_path_buf()], options).scan_once(&mut |events| {
        events.into_iter().for_each(|event| fleet.apply(event));
        true
    });
    fleet
}

/// A job with every kind of end, finished.
fn finished(jobs: &Path) -> Made {
    let ends = ends();
    let tasks: Vec<&str> = ends.iter().map(|(task, _)| *task).collect();
    let mut made = begin(jobs, "all-ends", &tasks);
    for (i, (_, end)) in ends.iter().enumerate() {
        let mut trial = made.start(i);
        trial.log(&format!("Authorization: Bearer {SECRET}")).unwrap();
        if end.exception.is_some() {
            trial.exception(&format!("Traceback\nX: {SECRET}")).unwrap();
        }
        made.end(i, &trial, end);
    }
    made.job.log("done").unwrap();
    made.job.finish(at(100.0)).unwrap();
    made
}

#[test]
fn our_reader_finds_the_facts_that_were_written() {
    let temp = tempfile::tempdir().unwrap();
    let made = finished(temp.path());
    let fleet = fleet(&made.dir);
    let [job] = fleet.jobs() else { panic!("{} jobs", fleet.jobs().len()) };
    assert!(
        fleet.problems.is_empty() && job.facts.problems.is_empty(),
        "{:?} {:?}",
        fleet.problems,
        job.facts.problems
    );
    assert_eq!(job.facts.id.as_deref(), Some(made.id.as_str()));
    let summary = job.facts.summary.as_ref().unwrap();
    assert_eq!((summary.n_total, summary.n_completed, summary.n_running), (Some(9), Some(9), Some(0)));
    assert_eq!((summary.n_errored, summary.n_cancelled, summary.n_retries), (Some(6), Some(1), Some(0)));
    // Written without a zone, read by the same machine's; the file holds microseconds.
    assert_eq!(summary.started, Some(at(0.0)));
    assert_eq!(summary.finished, Some(at(100.0)));
    assert_eq!(job.trials.len(), 9);
    for (i, (task, end)) in ends().into_iter().enumerate() {
        let name = &made.plan[i].0.trial_name;
        let trial = &job.trials[name.as_str()];
        assert_eq!((&*trial.task, trial.agent.as_deref()), (task, Some("terminus-2")));
        assert!(trial.problems.is_empty(), "{:?}", trial.problems);
        let result = trial.result.as_ref().unwrap();
        let primary = end.rewards.as_ref().map(|r| r.iter().find(|(k, _)| *k == "reward").unwrap().1);
        assert_eq!(result.rewards.primary(), primary, "{task}");
        assert_eq!(result.exception.as_ref().map(|e| &*e.kind), end.exception, "{task}");
        let invalid = ["llm-500", "no-reward", "env-missing-image", "stopped"].contains(&task);
        assert_eq!(result.reward_valid, Some(!invalid), "{task}");
        let (begin, steps) = (10.0 * i as f64, end.steps.len().max(1) as u64);
        assert_eq!((result.started, result.finished), (Some(at(begin)), Some(at(begin + 9.0))));
        assert_eq!(result.tokens.input, end.tokens.map(|t| t.0 * steps), "{task}");
        assert_eq!(result.n_episodes, end.tokens.map(|_| 3 * steps as u32), "{task}");
    }
    let tally = tally::count(&fleet, &tally::Options::default(), at(200.0)).unwrap();
    let score = |name: &str| tally.scores.iter().find(|s: &&scores::Score| s.name == name).unwrap();
    let raw = score("raw");
    assert_eq!((raw.numerator, raw.denominator), (Some(3.0), 9));
    let valid = score("harbor_026");
    assert_eq!((valid.numerator, valid.denominator), (Some(3.5), 5));
    assert_eq!(job.facts.planned.iter().flatten().map(|p| p.n).sum::<u32>(), 9);
}

#[test]
fn harbor_loads_what_was_written() {
    let Ok(pythons) = std::env::var("PILOTHOUSE_HARBOR_PYTHON") else {
        return support::skipped("PILOTHOUSE_HARBOR_PYTHON names no Python with Harbor (several: separated by colons)");
    };
    let temp = tempfile::tempdir().unwrap();
    let made = finished(temp.path());
    // A second job with one reward and several attempts, so that there is a pass@k; and one at work.
    let mut attempts = begin(temp.path(), "attempts", &["a", "a", "a", "a", "a", "b", "b", "b", "b", "b"]);
    for i in 0..10 {
        let trial = attempts.start(i);
        attempts.end(i, &trial, &End::reward(f64::from(u8::from(i % 4 == 0))));
    }
    attempts.job.finish(at(100.0)).unwrap();
    let ks: Vec<String> =
        value(attempts.dir.join("result.json"))["stats"]["evals"]["terminus-2__scripted-1__tasks"]["pass_at_k"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
    assert_eq!(ks, ["2", "4", "5"]);
    let mut live = begin(temp.path(), "live", &["a", "b", "c"]);
    let trial = live.start(0);
    live.end(0, &trial, &End::reward(0.1));
    let _working = live.start(1);
    live.job.flush().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/validate.py");
    for python in pythons.split(':') {
        let out = Command::new(python).arg(&script).args([&made.dir, &attempts.dir, &live.dir]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{python}\n{text}\n{}", String::from_utf8_lossy(&out.stderr));
        // Three files for each trial that is done, two for the one at work, three for each job.
        assert_eq!(text.lines().filter(|l| l.starts_with("OK ")).count(), 20 * 3 + 2 + 3 * 3, "{text}");
        println!("{}: all loaded", text.lines().next().unwrap());
    }
}

/// Harbor's own viewer serves what was written: jobs, tasks, trials, and every file as it is.
#[test]
fn harbors_viewer_serves_what_was_written() {
    let Ok(pythons) = std::env::var("PILOTHOUSE_HARBOR_PYTHON") else {
        return support::skipped("PILOTHOUSE_HARBOR_PYTHON names no Python with Harbor");
    };
    let temp = tempfile::tempdir().unwrap();
    let made = finished(temp.path());
    let valid = |task: &str| !["llm-500", "no-reward", "env-missing-image", "stopped"].contains(&task);
    let facts = |made: &Made, i: usize, task: &str, end: Option<&End>| {
        let rewards = end.and_then(|end| end.rewards.as_ref()).map(|r| r.iter().copied().collect::<BTreeMap<_, _>>());
        let trial = json!({
            // What works has no result, so that its name is that of its directory.
            "task": if end.is_some() { format!("fixture/{task}") } else { task.to_string() },
            "done": end.is_some(),
            "rewards": rewards,
            "valid": valid(task),
            "error": end.and_then(|end| end.exception),
            "step_errors": end.map(|end| end.steps.iter().filter_map(|(_, kind)| *kind).collect::<Vec<_>>()),
        });
        (made.plan[i].0.trial_name.clone(), trial)
    };
    let ends = ends();
    let trials: serde_json::Map<String, Value> =
        ends.iter().enumerate().map(|(i, (task, end))| facts(&made, i, task, Some(end))).collect();
    let all_ends = json!({"total": 9, "completed": 9, "errored": 6, "finished": true, "trials": trials});
    // And one at work: a trial that ended, one that runs, one that has not begun.
    let mut live = begin(temp.path(), "live", &["a", "b", "c"]);
    let trial = live.start(0);
    live.end(0, &trial, &End::reward(0.1));
    let _working = live.start(1);
    live.job.flush().unwrap();
    let end = End::reward(0.1);
    let trials: serde_json::Map<String, Value> =
        [facts(&live, 0, "a", Some(&end)), facts(&live, 1, "b", None)].into_iter().collect();
    let at_work = json!({"total": 3, "completed": 1, "errored": 0, "finished": false, "trials": trials});
    let expected = json!({"all-ends": all_ends, "live": at_work});
    // The check can fail: of wrong facts each is found.
    let mut wrong = expected.clone();
    wrong["all-ends"]["completed"] = json!(8);
    let first = &made.plan[0].0.trial_name;
    wrong["all-ends"]["trials"][first]["rewards"]["reward"] = json!(0.0);
    wrong["live"]["trials"].as_object_mut().unwrap().clear();
    for python in pythons.split(':') {
        let (code, text) = viewer(python, temp.path(), &expected);
        assert_eq!(code, Some(0), "{python}\n{text}");
        assert!(text.contains(" answers compared"), "{text}");
        println!("{}", text.lines().collect::<Vec<_>>().join(": "));
        let (code, text) = viewer(python, temp.path(), &wrong);
        let found = |what: &str| text.lines().any(|line| line.starts_with("BAD ") && line.contains(what));
        assert!(code == Some(1) && found("all-ends alone: completed") && found("live: names of trials"), "{text}");
        assert!(found(&format!("{first}: reward")), "{text}");
    }
}

/// What the viewer of this Python's Harbor serves of a jobs directory, compared with what is expected.
fn viewer(python: &str, jobs: &Path, expected: &Value) -> (Option<i32>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/viewer.py");
    let mut command = Command::new(python);
    command.arg(script).arg(jobs).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(expected.to_string().as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    (out.status.code(), [&*out.stdout, &*out.stderr].map(String::from_utf8_lossy).join("\n"))
}

/// Harbor 0.26 takes a finished job of ours for its own: resuming it runs nothing, deletes nothing and
/// changes no file of a trial.
#[test]
fn harbor_resumes_a_finished_job_and_has_nothing_to_do() {
    let Ok(pythons) = std::env::var("PILOTHOUSE_HARBOR_PYTHON") else {
        return support::skipped("PILOTHOUSE_HARBOR_PYTHON names no Python with Harbor");
    };
    let Some(shared) = support::shared() else { return };
    if !Command::new("docker").arg("info").output().is_ok_and(|out| out.status.success()) {
        return support::skipped("no Docker, which Harbor asks for before it looks at the job");
    }
    let temp = tempfile::tempdir().unwrap();
    let dataset = shared.join("data/tasks").canonicalize().unwrap();
    for python in pythons.split(':') {
        let ask = |code: &str| {
            let out = Command::new(python).args(["-c", code]).env("HARBOR_TELEMETRY", "0").output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap().trim().to_string()
        };
        if !ask("from importlib.metadata import version; print(version('harbor'))").starts_with("0.26.") {
            continue;
        }
        let digest = |task: &str| {
            let path = dataset.join(task);
            ask(&format!(
                "from harbor.publisher.packager import Packager\nfrom pathlib import Path\n\
                 print(Packager.compute_content_hash(Path({:?}))[0])",
                path.to_str().unwrap()
            ))
        };
        let tasks = ["csv-sum", "hello-file", "two-steps"].map(|t| (t.to_string(), digest(t)));
        let agent = AgentConfig { name: Some("oracle".to_string()), ..AgentConfig::default() };
        let mut made = made::try_begin_with(temp.path(), "resume", &agent, dataset.to_str().unwrap(), &tasks).unwrap();
        let steps = vec![(1.0, None), (0.0, None)];
        let two = End { steps, rewards: Some(vec![("reward", 0.5)]), ..End::default() };
        for (i, end) in [End::reward(1.0), End::reward(0.0), two].iter().enumerate() {
            let trial = made.start(i);
            made.end(i, &trial, end);
        }
        made.job.finish(at(100.0)).unwrap();
        let before = files(&made.dir);
        let harbor = Path::new(python).with_file_name("harbor");
        let out = Command::new(harbor)
            .args(["job", "resume", "-p"])
            .arg(&made.dir)
            .env("HARBOR_TELEMETRY", "0")
            .current_dir(temp.path())
            .output()
            .unwrap();
        let words = [&*out.stdout, &*out.stderr].map(String::from_utf8_lossy).join("\n");
        assert!(out.status.success(), "{words}");
        let after = files(&made.dir);
        let in_trials = |all: &BTreeMap<String, Vec<u8>>| {
            all.clone().into_iter().filter(|(path, _)| path.contains('/')).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(in_trials(&after), in_trials(&before), "{words}");
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{words}");
        assert_eq!(after["pilothouse.lease"], before["pilothouse.lease"]);
        // It did come to the end of the job, and its own count is ours.
        let result = |all: &BTreeMap<String, Vec<u8>>| serde_json::from_slice::<Value>(&all["result.json"]).unwrap();
        let (mut ours, mut theirs) = (result(&before), result(&after));
        assert_ne!(ours["finished_at"], theirs["finished_at"], "{words}");
        sort_lists(&mut ours["stats"]);
        sort_lists(&mut theirs["stats"]);
        assert_eq!(ours["stats"], theirs["stats"]);
    }
}

/// Every file beneath a directory.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_string();
                out.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    out
}

/// Stats of recorded jobs, made anew from their trials, are those that Harbor wrote.
#[test]
fn stats_of_recorded_jobs_come_out_as_harbor_computed_them() {
    let Some(shared) = support::shared() else { return };
    for name in ["b26-terminus2-mix-0.26.0", "perf-oracle20-0.26.0", "j26-automount-0.26.0"] {
        let dir = shared.join("data/jobs").join(name);
        let mut trials: Vec<Value> = fs::read_dir(&dir)
            .unwrap()
            .filter_map(|e| fs::read(e.unwrap().path().join("result.json")).ok())
            .map(|bytes| serde_json::from_slice(&bytes).unwrap())
            .collect();
        trials.sort_by_key(|t| t["finished_at"].as_str().unwrap().to_string());
        let text = |v: &Value| v.as_str().map(str::to_string);
        let ended: Vec<Ended> = trials
            .iter()
            .map(|t| {
                let steps = t["step_results"].as_array().cloned().unwrap_or_default();
                let mut reported: Vec<&Value> = steps.iter().map(|s| &s["agent_result"]).collect();
                reported.push(&t["agent_result"]);
                let sum = |key: &str| {
                    let known: Vec<u64> = reported.iter().filter_map(|r| r[key].as_u64()).collect();
                    (!known.is_empty()).then(|| known.iter().sum())
                };
                let costs: Vec<f64> = reported.iter().filter_map(|r| r["cost_usd"].as_f64()).collect();
                let rewards = t["verifier_result"]["rewards"]
                    .as_object()
                    .map(|map| map.iter().map(|(k, v)| (k.clone(), v.as_number().unwrap().clone())).collect());
                Ended {
                    trial_name: text(&t["trial_name"]).unwrap(),
                    task_name: text(&t["task_name"]).unwrap(),
                    agent: text(&t["agent_info"]["name"]).unwrap(),
                    model: text(&t["agent_info"]["model_info"]["name"]),
                    source: text(&t["source"]),
                    rewards,
                    reward_valid: t["reward_valid"].as_bool().unwrap(),
                    exceptions: text(&t["exception_info"]["exception_type"]).into_iter().collect(),
                    input: sum("n_input_tokens"),
                    cache: sum("n_cache_tokens"),
                    output: sum("n_output_tokens"),
                    cost_usd: (!costs.is_empty()).then(|| costs.iter().sum()),
                }
            })
            .collect();
        let progress = Progress { total: ended.len() as u64, over: true, ..Progress::default() };
        let mut ours = serde_json::to_value(JobStats::of(&ended, progress, &[])).unwrap();
        let mut theirs = value(dir.join("result.json"))["stats"].clone();
        for stats in [&mut ours, &mut theirs] {
            // Trials that ended together come in either order, and costs add up in it.
            sort_lists(stats);
            let cost = stats["cost_usd"].as_f64().map(|c| (c * 1e9).round());
            stats["cost_usd"] = json!(cost);
        }
        assert_eq!(ours, theirs, "{name}");
    }
}

/// As many rewards as trials: the time for the stats must not grow with their square.
#[test]
fn many_different_rewards_are_counted_in_no_time() {
    let number = |i: u32| serde_json::Number::from_f64(f64::from(i) / 16_384.0).unwrap();
    let many: Vec<Ended> = (0..20_000_u32)
        .map(|i| Ended {
            trial_name: format!("t__{i:07}"),
            task_name: format!("t{}", i % 1000),
            agent: "a".to_string(),
            rewards: Some(vec![("reward".to_string(), number(i))]),
            reward_valid: true,
            ..Ended::default()
        })
        .collect();
    let begin = std::time::Instant::now();
    let progress = Progress { total: 20_000, over: true, ..Progress::default() };
    let stats = JobStats::of(&many, progress, &[]);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let eval = stats.evals.get("a__adhoc").unwrap();
    assert_eq!(eval.reward_stats.get("reward").unwrap().iter().count(), 20_000);
    assert!(eval.pass_at_k.iter().next().is_none(), "rewards that are neither 0 nor 1");
}

fn sort_lists(value: &mut Value) {
    match value {
        Value::Array(list) => {
            list.iter_mut().for_each(sort_lists);
            list.sort_by_key(ToString::to_string);
        }
        Value::Object(map) => map.values_mut().for_each(sort_lists),
        _ => {}
    }
}

#[test]
fn a_job_grows_as_readers_expect_it() {
    let temp = tempfile::tempdir().unwrap();
    let mut made = begin(temp.path(), "grows", &["a", "b", "c"]);
    let result = |made: &Made| value(made.dir.join("result.json"));
    let counts = |v: &Value| {
        ["completed", "running", "pending", "cancelled", "errored"]
            .map(|k| v["stats"][format!("n_{k}_trials")].as_u64().unwrap())
    };
    let first = result(&made);
    assert_eq!((counts(&first), &first["finished_at"]), ([0, 0, 3, 0, 0], &Value::Null));
    assert_eq!(first["stats"]["n_input_tokens"], Value::Null);
    let naive = |v: &Value| !v.as_str().unwrap().ends_with('Z') && v.as_str().unwrap().len() == 26;
    assert!(naive(&first["started_at"]) && naive(&first["updated_at"]), "{first}");

    let (config, lock) = made.plan[0].clone();
    let modes = Modes { agent: 0o777, ..Modes::default() };
    let a = made.job.begin_trial(&config, &lock, modes, at(1.25)).unwrap();
    let dir = made.dir.join(&config.trial_name);
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode("agent"), mode("verifier"), mode("artifacts")], [0o777, 0o755, 0o755]);
    assert_eq!(fs::metadata(dir.join("trial.log")).unwrap().len(), 0);
    // Right after the first write: it waits, and goes out with the next.
    assert!(made.job.due().is_some_and(|d| d > Duration::ZERO && d <= Duration::from_secs(2)));
    assert_eq!(counts(&result(&made)), [0, 0, 3, 0, 0]);
    let b = made.start(1);
    std::thread::sleep(made.job.due().unwrap() + Duration::from_millis(5));
    made.job.cancelling(b.name(), at(12.0)).unwrap();
    assert_eq!(made.job.due(), None);
    let live = result(&made);
    assert_eq!(counts(&live), [0, 2, 1, 1, 0]);
    assert_eq!(live["updated_at"], "2026-11-29T19:30:12.123456Z");
    made.end(1, &b, &End::error("CancelledError"));
    made.end(0, &a, &End::reward(1.0));
    made.job.flush().unwrap();
    assert_eq!(counts(&result(&made)), [2, 0, 1, 1, 1]);
    let trial = value(dir.join("result.json"));
    assert_eq!(trial["started_at"], "2026-11-29T19:30:00.123456Z");
    assert_eq!(trial["schema_version"], 1);
    assert_eq!(trial["verifier_result"]["rewards"]["reward"].to_string(), "1");

    // Multi-step: each step has its own three.
    let c = made.start(2);
    c.begin_step("first", Modes::default()).unwrap();
    c.begin_step("second", Modes::default()).unwrap();
    assert!(c.folder().path().join("steps/second/verifier").is_dir());
    assert!(matches!(c.begin_step("../x", Modes::default()), Err(WriteError::Name { .. })));
    made.job.leave(at(30.0)).unwrap();
    let left = result(&made);
    assert_eq!((counts(&left), &left["finished_at"]), ([2, 1, 0, 1, 1], &Value::Null));
    let Ok(Reading::Note(note)) = read(made.job.folder().dir()) else { panic!("no lease") };
    assert!(note.released);
}

#[test]
fn nothing_is_overwritten_or_written_through() {
    let temp = tempfile::tempdir().unwrap();
    let mut made = begin(temp.path(), "job", &["a", "b"]);
    let Err(error) = made::try_begin(temp.path(), "job", &["a"]) else { panic!("made twice") };
    assert!(matches!(error, WriteError::Exists { .. }) && error.to_string().contains("job: already there"), "{error}");
    // A result is written once.
    let trial = made.start(0);
    let result = made.end(0, &trial, &End::reward(1.0));
    let path = trial.folder().path().join("result.json");
    let before = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino());
    let again = made.result(0, &End::reward(0.0));
    let error = made.job.end_trial(&trial, &again, at(9.0)).unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");
    assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino()), before);
    // The very same again is no other result; it counts once.
    made.job.end_trial(&trial, &result, at(9.0)).unwrap();
    made.job.flush().unwrap();
    assert_eq!(value(made.dir.join("result.json"))["stats"]["n_completed_trials"], 1);
    assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino()), before);
    // Nor is there a second directory for a trial.
    let (config, lock) = made.plan[0].clone();
    let error = made.job.begin_trial(&config, &lock, Modes::default(), at(1.0)).unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");

    // A link, a FIFO, a second name, a directory where a file is to be.
    let other = made.start(1);
    let (victim, place) = (temp.path().join("victim"), other.folder().path().to_path_buf());
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, place.join("result.json")).unwrap();
    let result = made.result(1, &End::reward(1.0));
    assert!(matches!(made.job.end_trial(&other, &result, at(9.0)), Err(WriteError::Exists { .. })));
    symlink(&victim, place.join("new.json")).unwrap();
    other.folder().replace("new.json", b"{}").unwrap();
    assert!(fs::symlink_metadata(place.join("new.json")).unwrap().is_file());
    symlink(&victim, place.join("link.log")).unwrap();
    fs::hard_link(&victim, place.join("hard.log")).unwrap();
    assert!(Command::new("mkfifo").arg(place.join("fifo.log")).status().unwrap().success());
    fs::create_dir(place.join("dir.json")).unwrap();
    for name in ["link.log", "hard.log", "fifo.log"] {
        let error = other.folder().log(name).unwrap_err();
        assert!(matches!(error, WriteError::InTheWay { .. }), "{name}: {error}");
    }
    assert!(matches!(other.folder().replace("dir.json", b"{}"), Err(WriteError::InTheWay { .. })));
    symlink(temp.path(), place.join("out")).unwrap();
    assert!(other.folder().sub("out").is_err());
    for name in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
        assert!(matches!(other.folder().replace(name, b""), Err(WriteError::Name { .. })), "{name:?}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(other.folder().clean_temps().unwrap(), Vec::<String>::new());
}

#[test]
fn no_secret_reaches_a_file() {
    let temp = tempfile::tempdir().unwrap();
    let made = finished(temp.path());
    let all = files(&made.dir);
    for (path, bytes) in &all {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains("sk-live-0123456789"), "{path}: {text}");
    }
    assert!(all.len() > 40, "{}", all.len());
    let config = value(made.dir.join("config.json"));
    assert_eq!(
        config["agents"][0]["env"],
        json!({"HF_TOKEN": "${HF_TOKEN}", "OPENAI_API_KEY": "****", "PLAIN": "yes"})
    );
    assert_eq!(config["agents"][0]["kwargs"]["limit"], Value::Null);
}

#[test]
fn a_retry_keeps_the_attempt_as_evidence() {
    let temp = tempfile::tempdir().unwrap();
    let mut made = begin(temp.path(), "retries", &["a"]);
    let mut trial = made.start(0);
    for n in 1..=2 {
        made.end(0, &trial, &End::error("InternalServerError"));
        fs::write(trial.folder().path().join("agent/out.txt"), format!("attempt {n}")).unwrap();
        let (config, lock) = made.plan[0].clone();
        trial = made.job.retry_trial(&trial, &config, &lock, Modes::default(), at(20.0)).unwrap();
        let kept = trial.folder().path().join(format!("retries/{n}"));
        assert_eq!(fs::read_to_string(kept.join("agent/out.txt")).unwrap(), format!("attempt {n}"));
        assert_eq!(value(kept.join("result.json"))["exception_info"]["policy"]["should_retry"], true);
        assert!(!trial.folder().path().join("result.json").exists());
    }
    made.end(0, &trial, &End::reward(1.0));
    made.job.finish(at(40.0)).unwrap();
    let stats = value(made.dir.join("result.json"))["stats"].clone();
    assert_eq!((stats["n_retries"].as_u64(), stats["n_completed_trials"].as_u64()), (Some(2), Some(1)));
    assert_eq!(stats["n_errored_trials"], 0);
    let fleet = fleet(&made.dir);
    assert_eq!(fleet.jobs()[0].trials.len(), 1, "evidence is no trial");
}

#[test]
fn a_lease_is_given_back_though_somebody_removed_the_jobs_result() {
    let temp = tempfile::tempdir().unwrap();
    let mut made = begin(temp.path(), "bare", &["a"]);
    made.job.flush().unwrap();
    fs::remove_file(made.dir.join("result.json")).unwrap();
    made.job.leave(at(20.0)).unwrap();
    let (folder, mut observer) = (Folder::open(&made.dir).unwrap(), Observer::default());
    let claim =
        Lease::claim(&folder, &Claimant::default(), May::TakeStale, &mut observer, Duration::ZERO, at(30.0)).unwrap();
    assert!(matches!(claim, Claim::Mine(_)), "{claim:?}");
}

#[test]
fn a_job_is_gone_on_with() {
    let temp = tempfile::tempdir().unwrap();
    let mut made = begin(temp.path(), "resumed", &["a", "b"]);
    let trial = made.start(0);
    let done = made.end(0, &trial, &End::reward(1.0));
    let (dir, id, plan, scrub) = (made.dir.clone(), made.id.clone(), made.plan.clone(), made.scrub.clone());
    made.job.log("first run").unwrap();
    made.job.leave(at(20.0)).unwrap();
    drop(made);
    fs::write(dir.join(".result.json.1-1-0.pilothouse-tmp"), "{").unwrap();
    fs::write(trial.folder().path().join(".config.json.1-1-0.pilothouse-tmp"), "{").unwrap();
    let folder = Folder::open(&dir).unwrap();
    let mut observer = Observer::default();
    let claim =
        Lease::claim(&folder, &Claimant::default(), May::TakeStale, &mut observer, Duration::ZERO, at(30.0)).unwrap();
    let Claim::Mine(lease) = claim else { panic!("it was released") };
    let resume = Resume {
        id: id.clone(),
        started: at(0.0),
        total: 2,
        metrics: Vec::new(),
        ended: vec![Ended::of(&done)],
        retries: 0,
        scrub,
    };
    let before = fs::read(trial.folder().path().join("result.json")).unwrap();
    let (mut job, removed) = JobWriter::reopen(folder, lease, resume, at(30.0)).unwrap();
    assert_eq!(removed.len(), 2, "{removed:?}");
    job.log("second run").unwrap();
    let (config, lock) = plan[1].clone();
    let second = job.begin_trial(&config, &lock, Modes::default(), at(31.0)).unwrap();
    assert!(matches!(second.exception("x"), Ok(())));
    job.flush().unwrap();
    let live = value(dir.join("result.json"));
    assert_eq!((live["id"].as_str(), live["stats"]["n_completed_trials"].as_u64()), (Some(id.as_str()), Some(1)));
    assert_eq!(fs::read(trial.folder().path().join("result.json")).unwrap(), before);
    assert_eq!(fs::read_to_string(dir.join("job.log")).unwrap(), "first run\nsecond run\n");
}

#[test]
fn names_are_made_as_harbor_makes_them() {
    let mut taken = std::collections::HashSet::new();
    let name = ids::trial_name("org/a-task-with-a-very-long-name-and_-more", &mut taken).unwrap();
    let (stem, suffix) = name.rsplit_once("__").unwrap();
    assert_eq!((stem, suffix.len()), ("a-task-with-a-very-long-name-and", 7));
    assert!(suffix.chars().all(|c| c.is_ascii_alphanumeric() && !"01IOl".contains(c)), "{suffix}");
    let cut = ids::trial_name("a-task-with-a-very-long-name-an__x", &mut taken).unwrap();
    assert!(cut.starts_with("a-task-with-a-very-long-name-an__"), "{cut}");
    assert_eq!(taken.len(), 2);
    let (one, other) = (ids::uuid().unwrap(), ids::uuid().unwrap());
    assert_ne!(one, other);
    assert_eq!((one.len(), &one[14..15]), (36, "4"));
    assert!("89ab".contains(&one[19..20]), "{one}");
    let _: Stamp = at(0.0);
}
