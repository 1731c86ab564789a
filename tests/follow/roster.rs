//! All jobs below directories: `pilothouse jobs` on real directories, healthy and hostile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support;
use support::harbor::{document, pilothouse};
use support::mounts::Mounted;

/// A job of `planned` trials, of which so many passed and failed, in the words of its own files alone.
fn job(dir: &Path, planned: usize, passed: usize, failed: usize, end: Option<&str>) {
    fs::create_dir_all(dir).unwrap();
    let names = |n: usize, what: &str| (0..n).map(|i| format!("\"{what}-{i}__aB3dE5f\"")).collect::<Vec<_>>().join(",");
    let done = passed + failed;
    let running = if end.is_some() { 0 } else { usize::from(done < planned) };
    let end = end.map_or("null".to_string(), |at| format!("\"{at}\""));
    let id = dir.file_name().unwrap().to_string_lossy();
    fs::write(
        dir.join("result.json"),
        format!(
            r#"{{"id":"id-{id}","started_at":"2026-11-29T19:00:00","finished_at":{end},"n_total_trials":{planned},"stats":{{
"n_completed_trials":{done},"n_running_trials":{running},"evals":{{"a__m__d":{{"n_trials":{done},"n_errors":0,"metrics":[],
"reward_stats":{{"reward":{{"1.0":[{}],"0.0":[{}]}}}}}}}}}}}}"#,
            names(passed, "p"),
            names(failed, "f")
        ),
    )
    .unwrap();
    fs::write(
        dir.join("config.json"),
        format!(
            r#"{{"job_name":"{id}","n_concurrent_trials":4,"agents":[{{"name":"terminus-2","model_name":"openai/m"}}],"datasets":[{{"name":"tb"}}]}}"#
        ),
    )
    .unwrap();
    fs::write(dir.join("job.log"), "").unwrap();
}

const END: Option<&str> = Some("2026-11-29T20:00:00");

fn listed(roots: &[&Path], more: &[&str], state: &Path) -> (Value, Option<i32>) {
    let mut args = vec!["jobs", "--json"];
    args.extend(roots.iter().map(|r| r.to_str().unwrap()));
    args.extend(more);
    let out = pilothouse(&args, state);
    (document(&out), out.status.code())
}

fn of<'a>(said: &'a Value, name: &str) -> &'a Value {
    let jobs = said["jobs"].as_array().unwrap();
    jobs.iter().find(|j| j["job_name"] == name).unwrap_or_else(|| panic!("no job {name}: {said:#}"))
}

/// Makes files look as old as this.
fn aged(dir: &Path, seconds: u64) {
    let at = std::time::SystemTime::now() - Duration::from_secs(seconds);
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let _ = fs::File::open(entry.path()).and_then(|f| f.set_modified(at));
    }
    fs::File::open(dir).unwrap().set_modified(at).unwrap();
}

#[test]
fn every_job_says_how_it_stands() {
    let tmp = tempfile::tempdir().unwrap();
    let (root, state) = (tmp.path().join("jobs"), tmp.path().join("state"));
    job(&root.join("done"), 4, 2, 1, END);
    job(&root.join("deep/er/one"), 2, 1, 0, END);
    for (name, passed) in [("runs", 1), ("stale", 1), ("early", 1)] {
        job(&root.join(name), 4, passed, 0, None);
    }
    let early = fs::read_to_string(root.join("early/result.json")).unwrap();
    fs::write(root.join("early/result.json"), early.replace("\"n_running_trials\":1", "\"n_running_trials\":0"))
        .unwrap();
    for name in ["stale", "early"] {
        // A trial that began and never ended.
        let trial = root.join(name).join("sum__aB3dE5f");
        fs::create_dir_all(&trial).unwrap();
        if name == "stale" {
            fs::write(
                trial.join("config.json"),
                r#"{"task":{"path":"t/sum"},"trial_name":"sum__aB3dE5f","agent":{"name":"x"}}"#,
            )
            .unwrap();
        }
        aged(&trial, 5000);
        aged(&root.join(name), 5000);
    }
    // Who holds the log open is the owner.
    let log = fs::OpenOptions::new().append(true).open(root.join("runs/job.log")).unwrap();
    let mut owner = Command::new("sleep").arg("60").stdout(log).spawn().unwrap();
    let (said, code) = listed(&[&root], &[], &state);
    let pid = owner.id();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(said["roots"][0]["jobs"], 5, "{said:#}");
    let names: Vec<&str> = said["jobs"].as_array().unwrap().iter().map(|j| j["job_name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["runs", "stale", "early"], "what needs somebody stands first");
    let done = of(&said, "done");
    assert_eq!(done["state"], "finished");
    assert_eq!((&done["progress"]["done"], &done["progress"]["planned"]), (&3.into(), &4.into()));
    let score =
        |j: &Value, name: &str| (j["scores"][name]["numerator"].clone(), j["scores"][name]["denominator"].clone());
    assert_eq!((score(done, "raw"), score(done, "graded")), ((2.into(), 4.into()), (2.into(), 3.into())));
    assert_eq!((&done["figures"], &done["owner"]), (&"result".into(), &Value::Null));
    assert_eq!(
        (&done["agents"][0], &done["models"][0], &done["datasets"][0]),
        (&"terminus-2".into(), &"openai/m".into(), &"tb".into())
    );
    let runs = of(&said, "runs");
    assert_eq!(
        (&runs["state"], &runs["owner"]["pid"], &runs["owner"]["harness"]),
        (&"running".into(), &pid.into(), &"harbor".into())
    );
    assert_eq!(of(&said, "stale")["state"], "dead", "{said:#}");
    assert_eq!(of(&said, "early")["state"], "interrupted", "{said:#}");
    assert!(of(&said, "stale")["age_s"].as_u64().unwrap() >= 4990);
    assert_eq!(said["attention"][0]["kind"], "dead");
    assert_eq!((said["attention"].as_array().unwrap().len(), code), (1, Some(1)));
    assert_eq!(of(&said, "one")["root"], said["roots"][0]["path"], "three levels down it is found, too");

    // Given once, they are remembered; a filter and an order hold.
    let (again, _) = listed(&[], &["--filter", "state:finished", "--sort", "name"], &state);
    let names: Vec<&str> = again["jobs"].as_array().unwrap().iter().map(|j| j["job_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["done", "one"]);
    let plain = pilothouse(&["jobs"], &state);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("2/4 50.0 %") && plain.contains("2/3 66.7 %") && plain.contains("interrupted"), "{plain}");
    // Forgotten, they are not looked through any more, and nothing of them was touched.
    let out = pilothouse(&["jobs", "--forget", root.to_str().unwrap(), "--json"], &state);
    assert_eq!(document(&out)["forgotten"].as_array().unwrap().len(), 1);
    assert_eq!(pilothouse(&["jobs"], &state).status.code(), Some(2));
    assert!(root.join("done/result.json").exists());
    assert_eq!(pilothouse(&["jobs", "--forget", root.to_str().unwrap()], &state).status.code(), Some(2));
    let wrong = pilothouse(&["jobs", root.to_str().unwrap(), "--sort", "colour"], &state);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_job_that_runs_scored_trials_again_is_an_alarm_with_the_count() {
    let job = support::job::Job::begin("resumed", &["alpha", "beta", "gamma"]);
    for (task, reward) in [("alpha", 1.0), ("beta", 1.0), ("gamma", 0.0)] {
        job.done(task, Some(reward), None);
    }
    let state = tempfile::tempdir().unwrap();
    let root = job.dir.parent().unwrap();
    let (said, code) = listed(&[root], &[], state.path());
    let line = of(&said, "resumed");
    assert_eq!((&line["state"], &line["rerun"], code), (&"running".into(), &Value::Null, Some(0)), "{said:#}");
    // A resume that does not find them: two begin once more.
    for task in ["alpha", "gamma"] {
        let again = job.dir.join(format!("{task}__Second1"));
        fs::create_dir(&again).unwrap();
        let config = format!(
            r#"{{"task":{{"path":"tasks/{task}"}},"trial_name":"{task}__Second1","agent":{{"name":"terminus-2","model_name":"lab/small-1"}}}}"#
        );
        fs::write(again.join("config.json"), config).unwrap();
    }
    let (said, code) = listed(&[root], &[], state.path());
    let rerun = &of(&said, "resumed")["rerun"];
    let counts = ["scored", "solved", "begun"].map(|key| rerun[key].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 2], "{said:#}");
    assert_eq!((&said["attention"][0]["kind"], code), (&"rerun".into(), Some(1)));
    assert!(said["attention"][0]["message"].as_str().unwrap().contains("run again"), "{said:#}");
    let plain = pilothouse(&["jobs"], state.path());
    assert!(String::from_utf8(plain.stdout).unwrap().contains("busy with what has a score already"));
}

#[test]
fn recorded_jobs_are_listed_as_status_counts_them() {
    let Some(shared) = support::shared() else { return };
    let tmp = tempfile::tempdir().unwrap();
    let jobs = shared.join("data/jobs");
    let (quick, _) = listed(&[&jobs], &[], tmp.path());
    let mix = of(&quick, "b26-terminus2-mix-0.26.0");
    assert_eq!(mix["figures"], "result, at least", "Harbor lists no reward of three that ended with an exception");
    let (said, _) = listed(&[&jobs], &["--exact"], tmp.path());
    let status = pilothouse(&["tally", "--json", jobs.join("b26-terminus2-mix-0.26.0").to_str().unwrap()], tmp.path());
    let counted = document(&status);
    let mix = of(&said, "b26-terminus2-mix-0.26.0");
    assert_eq!(mix["scores"]["raw"]["numerator"], counted["totals"]["passed"], "{mix:#}");
    assert_eq!(mix["scores"]["raw"]["denominator"], counted["totals"]["planned"]);
    assert_eq!(mix["scores"]["graded"]["denominator"], counted["totals"]["graded"]);
    assert!(said["jobs"].as_array().unwrap().len() >= 15);
}

#[test]
fn what_is_broken_costs_itself_alone() {
    let tmp = tempfile::tempdir().unwrap();
    let (root, state) = (tmp.path().join("jobs"), tmp.path().join("state"));
    job(&root.join("good"), 2, 1, 1, END);
    // Half written, empty, a directory, a FIFO, a link, 10 MB on one line.
    for (name, text) in
        [("half", r#"{"id":"x","stats":{"n_compl"#), ("empty", ""), ("nul", "\0\0\0\0"), ("list", "[[[[")]
    {
        job(&root.join(name), 2, 1, 1, END);
        fs::write(root.join(name).join("result.json"), text).unwrap();
        aged(&root.join(name), 100);
    }
    for name in ["dir", "fifo", "link", "long"] {
        job(&root.join(name), 2, 1, 1, END);
        let file = root.join(name).join("result.json");
        fs::remove_file(&file).unwrap();
        match name {
            "dir" => fs::create_dir(&file).unwrap(),
            "fifo" => super::fifo(&file),
            "link" => symlink("/dev/zero", &file).unwrap(),
            _ => {
                fs::write(&file, format!("{{\"id\":\"long\",\"x\":\"{}\",\"n_total_trials\":3}}", "x".repeat(10 << 20)))
                    .unwrap()
            }
        }
    }
    // Loops, links out and back, nested jobs, odd names, root's own.
    symlink(&root, root.join("loop")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    symlink("../..", root.join("a/b/up")).unwrap();
    job(&root.join("good/inside__aB3dE5f"), 9, 9, 0, END);
    job(&root.join("esc\u{1b}[31m\u{202e}"), 1, 1, 0, END);
    use std::os::unix::ffi::OsStrExt;
    let odd = root.join(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    job(&odd, 1, 1, 0, END);
    fs::write(root.join("a file"), "x").unwrap();
    let began = Instant::now();
    let absent = tmp.path().join("not there");
    let out = pilothouse(&["jobs", "--json", root.to_str().unwrap(), absent.to_str().unwrap()], &state);
    let (said, code) = (document(&out), out.status.code());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let plain = pilothouse(&["jobs", "--no-remember", root.to_str().unwrap()], &state);
    for text in [out.stdout, plain.stdout].map(|bytes| String::from_utf8(bytes).unwrap()) {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "what acts on a terminal is printed");
    }
    assert_eq!(of(&said, "good")["scores"]["raw"]["numerator"], 1);
    let names: Vec<&str> = said["jobs"].as_array().unwrap().iter().map(|j| j["job_name"].as_str().unwrap()).collect();
    for name in ["half", "empty", "nul", "list", "dir", "fifo", "link", "long"] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{name}: {names:?}");
    }
    assert!(!names.contains(&"inside__aB3dE5f"), "a job within a job belongs to it: {names:?}");
    assert!(!of(&said, "half")["problems"].as_array().unwrap().is_empty());
    assert_eq!(of(&said, "fifo")["progress"]["planned"], Value::Null, "unknown is not 0");
    assert_eq!(said["roots"][1]["state"], "gone");
    assert_eq!(code, Some(1));
}

#[test]
fn a_root_that_hangs_costs_nothing_else_and_is_named() {
    let tmp = tempfile::tempdir().unwrap();
    let (good, far, state) = (tmp.path().join("good"), tmp.path().join("far"), tmp.path().join("state"));
    job(&good.join("here"), 2, 2, 0, END);
    job(&far.join("there"), 2, 2, 0, END);
    let Some(mount) = Mounted::bindfs(&far, &tmp.path().join("mount")) else { return };
    let (said, code) = listed(&[&good, &mount.at], &[], &state);
    assert_eq!((said["jobs"].as_array().unwrap().len(), code), (2, Some(0)), "{said:#}");
    assert_eq!(said["roots"][1]["file_system"], "FUSE");

    mount.hang();
    let began = Instant::now();
    let (said, code) = listed(&[], &["--wait", "3"], &state);
    let took = began.elapsed();
    mount.go_on();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(of(&said, "here")["state"], "finished");
    assert_eq!((&said["roots"][1]["state"], code), (&"silent".into(), Some(1)), "{said:#}");
    assert!(said["roots"][1]["why"].as_str().unwrap().contains("does not answer"), "{said:#}");
}

#[test]
fn a_job_costs_its_own_files_however_many_trials_it_has() {
    const JOBS: usize = 40;
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("jobs");
    for j in 0..JOBS {
        let dir = root.join(format!("job-{j:03}"));
        job(&dir, 90, 60, 30, END);
        for t in 0..90 {
            // Whoever reads a trial of one that is over waits for ever.
            let trial = dir.join(format!("task-{t}__aB3dE5f"));
            fs::create_dir(&trial).unwrap();
            if t == 0 {
                super::fifo(&trial.join("result.json"));
            }
        }
    }
    let (said, _) = listed(&[&root], &[], &tmp.path().join("state"));
    assert_eq!(said["jobs"].as_array().unwrap().len(), JOBS);
    assert!(said["jobs"].as_array().unwrap().iter().all(|j| j["figures"] == "result"), "{said:#}");
}
