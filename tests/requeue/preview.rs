//! The resume preview against what real Harbor then does, for both versions: job dirs of one finished job,
//! each changed in its own way and in a directory of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::support;
use support::harbor::{Bench, Harbor, harbor, result, trial_dirs};

#[test]
fn resumes_of_0_21() {
    resumes("0.21");
}

#[test]
fn resumes_of_0_26() {
    resumes("0.26");
}

/// A copy of the bench with its job.
struct Case<'a> {
    bench: &'a Bench,
    harbor: &'a Harbor,
    dir: PathBuf,
    name: &'a str,
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, serde_json::to_vec_pretty(&value).unwrap()).unwrap();
}

fn raise(result: &mut Value, kind: &str) {
    result["exception_info"] = json!({"exception_type": kind, "exception_message": "", "exception_traceback": "",
        "occurred_at": "2026-01-01T00:00:00Z"});
}

impl Case<'_> {
    fn job(&self) -> PathBuf {
        self.dir.join("jobs/base")
    }

    /// The trial's directory of the n-th task.
    fn trial(&self, n: usize) -> PathBuf {
        let stem = format!("{}-{n}__", self.bench.mark);
        let found =
            trial_dirs(&self.job()).into_iter().find(|p| p.file_name().unwrap().to_string_lossy().starts_with(&stem));
        found.unwrap_or_else(|| panic!("{}: no {stem}", self.name))
    }

    /// Looks ahead, resumes, compares. Gives the preview and how many trials ran.
    fn check(&self, cwd: &Path, path: &str, filter: &[&str]) -> (Value, usize) {
        let filters: Vec<&str> = filter.iter().flat_map(|kind| ["-f", kind]).collect();
        let mut ours = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        ours.args(["resume-preview", path, "--json", "--harbor-version", self.harbor.version]).args(&filters);
        ours.current_dir(cwd).env("PILOTHOUSE_STATE_DIR", self.bench.dir.path().join("state")).stdin(Stdio::null());
        let names = || -> BTreeSet<String> {
            trial_dirs(&self.job()).iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        let before = names();
        let out = ours.output().unwrap();
        assert_eq!(names(), before, "the preview changed something");
        let document: Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
        let said = document["previews"][0].clone();

        let args = [&["job", "resume", "-p", path][..], &filters].concat();
        let (code, log) = self.bench.harbor_in(self.harbor, cwd, &args);
        let about = format!("{} {}\n{said:#}\n{log}", self.name, self.harbor.version);
        let after = names();
        let listed = |key: &str| -> BTreeSet<String> {
            said[key].as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap().to_string()).collect()
        };
        let deleted: BTreeSet<String> = before.difference(&after).cloned().collect();
        assert_eq!(listed("deletes"), deleted, "{about}");
        for name in listed("keeps").union(&listed("stale")) {
            assert!(after.contains(name), "{name} is gone: {about}");
        }
        let fresh: Vec<&String> = after.difference(&before).collect();
        let mut ran: BTreeMap<String, usize> = BTreeMap::new();
        for name in &fresh {
            assert!(result(&self.job().join(name)).is_some(), "{name} has no result: {about}");
            *ran.entry(name.rsplit_once("__").unwrap().0.to_string()).or_default() += 1;
        }
        match said["ending"].as_str().unwrap() {
            "runs" => {
                let mut told: BTreeMap<String, usize> = BTreeMap::new();
                for task in said["reruns"].as_array().unwrap() {
                    *told.entry(task.as_str().unwrap().to_string()).or_default() += 1;
                }
                assert_eq!((code, &told), (Some(0), &ran), "{about}");
            }
            "refuses" => {
                assert_ne!(code, Some(0), "{about}");
                assert_eq!(fresh.len(), 0, "{about}");
                assert!(log.contains(said["error"].as_str().unwrap()), "{about}");
            }
            "new_job" => {
                assert_eq!(fresh.len(), 0, "{about}");
                let there = PathBuf::from(said["why"].as_str().or(said["new_job"].as_str()).unwrap_or_default());
                assert!(there.is_dir(), "{about}");
            }
            other => panic!("{other}: {about}"),
        }
        (document, fresh.len())
    }
}

fn resumes(version: &'static str) {
    let Some(harbor) = harbor(version) else { return };
    let bench = Bench::new(&format!("pv{}", version.replace('.', "")), 3, 0.1, false);
    let status = bench.run(&harbor, "base").wait().unwrap();
    assert!(status.success(), "{}", bench.said("base"));
    let cases = tempfile::tempdir().unwrap();
    let case = |name: &'static str| {
        let dir = cases.path().join(name);
        fs::create_dir(&dir).unwrap();
        copy(&bench.dir.path().join("tasks"), &dir);
        copy(&bench.dir.path().join("jobs"), &dir);
        Case { bench: &bench, harbor: &harbor, dir, name }
    };
    let here = |case: &Case<'_>, filter: &[&str]| case.check(&case.dir.clone(), "jobs/base", filter);
    let main = |document: &Value| document["previews"][0].clone();

    let one = case("finished");
    let (said, ran) = here(&one, &[]);
    assert_eq!((&main(&said)["ending"], ran), (&json!("runs"), 0));
    assert_eq!(main(&said)["keeps"].as_array().unwrap().len(), 3);

    // Killed: a directory without result, one that is no trial's, and an empty result.
    let one = case("interrupted");
    fs::remove_file(one.trial(0).join("result.json")).unwrap();
    fs::write(one.trial(1).join("result.json"), "").unwrap();
    fs::create_dir(one.job().join("mytool")).unwrap();
    fs::write(one.job().join("mytool/notes"), "mine").unwrap();
    let (said, ran) = here(&one, &[]);
    assert_eq!(ran, 2);
    let foreign: Vec<Value> = main(&said)["deletes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["foreign"] == true)
        .map(|d| d["name"].clone())
        .collect();
    assert_eq!(foreign, ["mytool"]);
    assert_eq!(main(&said)["stale"].as_array().unwrap().len(), 1);

    // Stopped: one cancelled, one that looks done and is not.
    let one = case("cancelled");
    edit(&one.trial(0).join("result.json"), |r| raise(r, "CancelledError"));
    edit(&one.trial(1).join("result.json"), |r| r["verifier_result"] = Value::Null);
    let (said, ran) = here(&one, &[]);
    assert_eq!(ran, 1);
    assert!(main(&said)["keeps"].as_array().unwrap().iter().any(|k| k["phantom"] == true));
    // Though its exception came last, the verifier had graded it.
    assert_eq!(main(&said)["deletes"][0]["reward"], "reward 1.0");

    // The endpoint edited in the job's config alone; what has no result is gone before it refuses.
    let one = case("endpoint");
    edit(&one.job().join("config.json"), |c| {
        c["agents"] = json!([{"name": "oracle", "kwargs": {"api_base": "http://other:1/v1"}}]);
    });
    fs::remove_file(one.trial(2).join("result.json")).unwrap();
    let (said, _) = here(&one, &[]);
    assert_eq!((&main(&said)["ending"], &main(&said)["error"]), (&json!("refuses"), &json!("ValueError")));
    assert_eq!(main(&said)["fields"][0]["field"], "agents[0].kwargs.api_base");
    assert_eq!(main(&said)["deletes"].as_array().unwrap().len(), 1);

    // The same with nothing finished: the lock tells.
    let one = case("endpoint-unfinished");
    edit(&one.job().join("config.json"), |c| {
        c["agents"] = json!([{"name": "oracle", "kwargs": {"api_base": "http://other:1/v1"}}]);
    });
    (0..3).for_each(|n| fs::remove_file(one.trial(n).join("result.json")).unwrap());
    let (said, _) = here(&one, &[]);
    assert_eq!(main(&said)["error"], "FileExistsError");
    assert_eq!(main(&said)["fields"][0]["field"], "agents[0].kwargs.api_base");
    assert_eq!(main(&said)["deletes"].as_array().unwrap().len(), 3);

    // A filter of one's own takes the place of the usual one.
    let one = case("filter");
    edit(&one.trial(0).join("result.json"), |r| raise(r, "CancelledError"));
    edit(&one.trial(1).join("result.json"), |r| raise(r, "AgentTimeoutError"));
    let (said, ran) = here(&one, &["AgentTimeoutError"]);
    assert_eq!((ran, main(&said)["deletes"].as_array().unwrap().len()), (1, 1));

    // From another directory, by the whole path: the cancelled one is gone all the same.
    let one = case("elsewhere");
    edit(&one.trial(0).join("result.json"), |r| raise(r, "CancelledError"));
    fs::remove_file(one.trial(1).join("result.json")).unwrap();
    let away = one.dir.join("away");
    fs::create_dir(&away).unwrap();
    let (said, _) = one.check(&away, one.job().to_str().unwrap(), &[]);
    assert_eq!(main(&said)["error"], "FileNotFoundError");
    assert_eq!(said["needs_cwd"], json!(one.dir.canonicalize().unwrap()));
    assert_eq!(main(&said)["deletes"].as_array().unwrap().len(), 1);

    // A task that is not what it was.
    let one = case("task");
    fs::write(one.dir.join(format!("tasks/{}-1/instruction.md", bench.mark)), "Write another file.\n").unwrap();
    fs::remove_file(one.trial(0).join("result.json")).unwrap();
    let (said, _) = here(&one, &[]);
    assert_eq!(main(&said)["error"], "FileExistsError");
    assert_eq!(main(&said)["fields"][0]["field"], format!("task {}-1", bench.mark));

    // More at a time: the trials fit, the lock does not.
    let one = case("slots");
    edit(&one.job().join("config.json"), |c| c["n_concurrent_trials"] = json!(1));
    let (said, _) = here(&one, &[]);
    assert_eq!(main(&said)["fields"][0]["field"], "n_concurrent_trials");
}
