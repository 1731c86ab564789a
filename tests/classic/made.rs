//! Small runs made here, by the layout's description, and what damages them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{json, row, score, warnings};

/// A run in the making: its directory and its id.
pub struct Run {
    pub dir: PathBuf,
    pub id: String,
    pub attempts: u32,
    pub results: Vec<Value>,
}

impl Run {
    /// The lock and the first metadata, as written at the start.
    pub fn begin(runs: &Path, id: &str, tasks: &[&str], attempts: u32) -> Run {
        let dir = runs.join(id);
        fs::create_dir_all(&dir).unwrap();
        let lock = json!({
            "lockfile_version": "1.0", "created_at": "2025-08-16T02:28:25+00:00",
            "invocation": {"command": "tb", "args": ["run", "--dataset-name", "core", "--agent", "terminus", "--run-id", id,
                "--task-id", "old", "--agent-kwarg", "api_key=sk-verysecretverysecret1234"]},
            "harness": {"package": "terminal-bench", "version": "0.2.18", "is_editable_installation": false},
            "agent": {"name": "terminus", "import_path": "x:Y", "model_name": "m/1", "extra_kwargs": {"temperature": 0.2}},
            "run_config": {"log_level": "info", "n_concurrent_trials": 2, "n_attempts": attempts, "no_rebuild": false,
                "cleanup": true, "global_timeout_multiplier": 1.0, "global_agent_timeout_sec": 600, "global_test_timeout_sec": null},
            "dataset": {"name": "core", "version": "0.1.1", "local_path": null, "task_ids": tasks},
            "local_config": {"output_path": "runs", "run_id": id, "upload_results": false},
        });
        write(&dir.join("tb.lock"), &lock);
        let run = Run { dir, id: id.to_string(), attempts, results: Vec::new() };
        run.metadata(tasks, None);
        run
    }

    pub fn metadata(&self, tasks: &[&str], end: Option<f64>) {
        write(
            &self.dir.join("run_metadata.json"),
            &json!({
                "run_id": self.id, "uuid": format!("uuid-of-{}", self.id), "dataset_name": "core", "dataset_version": "0.1.1",
                "agent_name": "terminus", "model_name": "m/1", "task_ids": tasks, "n_concurrent_trials": 2,
                "n_attempts": self.attempts, "dataset_size": tasks.len(), "accuracy": end,
                "start_time": "2025-08-16T02:28:25+00:00",
                "end_time": end.map(|_| "2025-08-16T03:32:48+00:00"), "resumed_at": null, "pass_at_k": {},
            }),
        );
    }

    /// The name of a trial and the directory that it has, or would have.
    pub fn trial(&self, task: &str, k: u32) -> (String, PathBuf) {
        let name = format!("{task}.{k}-of-{}.{}", self.attempts, self.id);
        let dir = self.dir.join(task).join(&name);
        (name, dir)
    }

    /// A result, as the trial's own and as the aggregate's entry.
    pub fn result(&self, task: &str, k: u32, resolved: Option<bool>, mode: &str) -> Value {
        let (name, _) = self.trial(task, k);
        let tests =
            resolved.map(|solved| json!({"test_one": "passed", "test_two": if solved { "passed" } else { "failed" }}));
        json!({
            "id": format!("id-{name}"), "trial_name": name, "task_id": task, "instruction": "do it",
            "is_resolved": resolved, "failure_mode": mode, "parser_results": tests,
            "recording_path": format!("{}/{task}/{name}/sessions/agent.cast", self.id),
            "total_input_tokens": 120, "total_output_tokens": 0,
            "trial_started_at": "2025-08-16T02:29:00+00:00", "trial_ended_at": "2025-08-16T02:40:00+00:00",
            "agent_started_at": "2025-08-16T02:29:30+00:00", "agent_ended_at": "2025-08-16T02:39:30+00:00",
            "test_started_at": "2025-08-16T02:39:31+00:00", "test_ended_at": "2025-08-16T02:39:50+00:00",
        })
    }

    /// A trial that ended: its directory with panes, and its entry in the aggregate.
    pub fn end(&mut self, task: &str, k: u32, resolved: Option<bool>, mode: &str) -> PathBuf {
        let (_, dir) = self.trial(task, k);
        fs::create_dir_all(dir.join("panes")).unwrap();
        fs::create_dir_all(dir.join("sessions")).unwrap();
        fs::write(dir.join("panes/pre-agent.txt"), "root@c:/app#\n").unwrap();
        fs::write(dir.join("panes/post-agent.txt"), "root@c:/app# echo done\ndone\n").unwrap();
        fs::write(dir.join("panes/post-test.txt"), "=== short test summary info ===\nPASSED test_one\n").unwrap();
        fs::write(dir.join("commands.txt"), "['echo done', 'Enter']\n").unwrap();
        let cast = "{\"version\": 2, \"width\": 160, \"height\": 40, \"timestamp\": 1755311370}\n[0.5, \"o\", \"hello from the agent\\r\\n\"]\n";
        fs::write(dir.join("sessions/agent.cast"), cast).unwrap();
        fs::write(dir.join("sessions/tests.cast"), cast.replace("the agent", "the tests")).unwrap();
        let result = self.result(task, k, resolved, mode);
        write(&dir.join("results.json"), &result);
        self.known(result);
        dir
    }

    /// Adds an entry to the aggregate alone.
    pub fn known(&mut self, result: Value) {
        self.results.push(result);
        self.aggregate();
    }

    pub fn aggregate(&self) {
        write(&self.dir.join("results.json"), &aggregate(&self.results));
    }

    /// Episodes of terminus in a trial's directory.
    pub fn episode(trial: &Path, n: u32, prompt: &str, response: Option<&str>) {
        let at = trial.join("agent-logs").join(format!("episode-{n}"));
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("prompt.txt"), prompt).unwrap();
        if let Some(response) = response {
            fs::write(at.join("response.txt"), response).unwrap();
        }
    }
}

/// What the harness makes of its results.
pub fn aggregate(results: &[Value]) -> Value {
    let solved = results.iter().filter(|r| r["is_resolved"] == true).count();
    json!({
        "id": results.first().map(|r| r["trial_name"].clone()), "results": results, "pass_at_k": {}, "n_resolved": solved, "n_unresolved": results.len() - solved,
        "accuracy": solved as f64 / results.len().max(1) as f64,
    })
}

pub fn write(path: &Path, value: &Value) {
    fs::write(path, serde_json::to_string_pretty(value).unwrap()).unwrap();
}

#[test]
fn each_failure_mode_has_its_class_and_keeps_its_word() {
    let temp = tempfile::tempdir().unwrap();
    let tasks = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut run = Run::begin(temp.path(), "r1", &tasks, 1);
    let cases: [(&str, Option<bool>, &str, &str); 10] = [
        ("a", Some(true), "agent_timeout", "passed"),
        ("b", Some(false), "agent_timeout", "agent_timeout"),
        ("c", None, "parse_error", "verifier_error"),
        ("d", None, "test_timeout", "verifier_timeout"),
        ("e", None, "unknown_agent_error", "agent_error"),
        ("f", Some(false), "agent_installation_failed", "agent_error"),
        ("g", Some(false), "context_length_exceeded", "context_exceeded"),
        ("h", Some(false), "unset", "failed"),
        ("i", Some(false), "a word of tomorrow", "unclassified"),
        ("j", None, "unset", "phantom"),
    ];
    for (task, resolved, mode, _) in cases {
        run.end(task, 1, resolved, mode);
    }
    let (document, _) = json("tally", &[], std::slice::from_ref(&run.dir));
    for (task, resolved, mode, class) in cases {
        let row = row(&document, &run.trial(task, 1).0);
        assert_eq!(row["class"], class, "{row}");
        assert_eq!(row["reward"], json!(resolved.map(|solved| f64::from(u8::from(solved)))), "{row}");
        let kind = if mode == "unset" { Value::Null } else { json!(mode) };
        assert_eq!(row["exception_type"], kind);
        assert_eq!((&row["n_input_tokens"], &row["n_output_tokens"]), (&json!(120), &Value::Null), "0 is not known");
    }
    assert_eq!(document["jobs"][0]["layout"], "terminal-bench");
    assert_eq!(document["jobs"][0]["harness_version"], "0.2.18");
    assert_eq!(document["jobs"][0]["harbor_version"], Value::Null);
    assert_eq!(score(&document, "raw")["numerator"], 1.0);
    assert!(warnings(&document, "summary_disagrees").is_empty());
}

#[test]
fn a_trial_known_to_the_aggregate_alone_counts_and_its_own_file_counts_more() {
    let temp = tempfile::tempdir().unwrap();
    let mut run = Run::begin(temp.path(), "r1", &["a", "b", "c"], 1);
    run.end("a", 1, Some(true), "unset");
    let alone = run.result("b", 1, Some(true), "unset");
    run.known(alone);
    // Written again by hand, say.
    let (_, dir) = run.trial("c", 1);
    let own = run.result("c", 1, Some(false), "unset");
    run.known(run.result("c", 1, Some(true), "unset"));
    fs::create_dir_all(dir.join("panes")).unwrap();
    write(&dir.join("results.json"), &own);
    run.metadata(&["a", "b", "c"], Some(1.0));
    let (document, _) = json("tally", &[], std::slice::from_ref(&run.dir));
    assert_eq!(document["totals"]["passed"], 2);
    assert_eq!(document["totals"]["finished"], 3);
    assert!(warnings(&document, "note").iter().any(|m| m.contains("its own counts")), "{document}");
    assert_eq!(warnings(&document, "summary_disagrees").len(), 1, "accuracy 1 is not 2 of 3");
    assert_eq!(document["jobs"][0]["state"], "finished");
}

#[test]
fn an_aggregate_alone_is_a_run_under_either_name() {
    for name in ["results.json", "2025-08-15__16-23-45_results.json"] {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("kept");
        fs::create_dir(&dir).unwrap();
        let entry = |k: u32, solved: bool| {
            json!({"uuid": format!("u{k}"), "trial_name": format!("t.easy.{k}-of-3"), "task_id": "t.easy",
                   "is_resolved": solved, "failure_mode": "unset", "parser_results": {"x": "passed"}})
        };
        write(&dir.join(name), &aggregate(&[entry(1, true), entry(2, false)]));
        for root in [dir.clone(), dir.join(name), temp.path().to_path_buf()] {
            let (document, _) = json("tally", &[], std::slice::from_ref(&root));
            assert_eq!(document["totals"]["passed"], 1, "{}", root.display());
            // By the trials' names a third attempt was planned.
            assert_eq!(document["totals"]["planned"], 3, "{}", root.display());
            assert_eq!(row(&document, "t.easy.1-of-3")["task"], "t.easy");
        }
    }
}

#[test]
fn two_aggregates_in_one_directory_are_two_runs() {
    let temp = tempfile::tempdir().unwrap();
    let entry = |run: &str, solved: bool| json!({"id": run, "trial_name": format!("t.1-of-1.{run}"), "task_id": "t", "is_resolved": solved, "failure_mode": "unset"});
    write(&temp.path().join("r1_results.json"), &aggregate(&[entry("r1", true)]));
    write(&temp.path().join("r2_results.json"), &aggregate(&[entry("r2", false)]));
    let (document, _) = json("tally", &[], &[temp.path().to_path_buf()]);
    assert_eq!(document["totals"]["planned"], 1, "not merged in silently");
    assert!(warnings(&document, "note").iter().any(|m| m.contains("the aggregate of another run")), "{document}");
    let both = ["r1_results.json", "r2_results.json"].map(|name| temp.path().join(name));
    let (document, _) = json("tally", &["--as", "samples"], &both);
    assert_eq!((&document["totals"]["planned"], &document["totals"]["passed"]), (&json!(2), &json!(1)), "{document}");
}

#[test]
fn one_trial_by_itself_is_looked_at() {
    let temp = tempfile::tempdir().unwrap();
    let mut run = Run::begin(temp.path(), "r1", &["a", "b"], 1);
    let trial = run.end("a", 1, Some(true), "unset");
    run.end("b", 1, Some(false), "unset");
    // In its run, the run comes with it.
    let (document, _) = json("tally", &[], std::slice::from_ref(&trial));
    assert_eq!(document["totals"]["finished"], 2);
    let alone = temp.path().join("alone");
    fs::create_dir(&alone).unwrap();
    fs::rename(&trial, alone.join("a.1-of-1.r1")).unwrap();
    fs::create_dir(alone.join("something else")).unwrap();
    let (document, _) = json("tally", &[], &[alone.join("a.1-of-1.r1")]);
    assert_eq!((&document["totals"]["planned"], &document["totals"]["passed"]), (&json!(1), &json!(1)), "{document}");
    assert_eq!(document["trials"][0]["task"], "a");
}

#[test]
fn a_nested_run_is_named_and_not_counted() {
    let temp = tempfile::tempdir().unwrap();
    let mut outer = Run::begin(temp.path(), "outer", &["a"], 1);
    outer.end("a", 1, Some(true), "unset");
    let mut inner = Run::begin(&outer.dir, "inner", &["a", "b"], 1);
    inner.end("a", 1, Some(false), "unset");
    inner.end("b", 1, Some(false), "unset");
    fs::create_dir_all(outer.dir.join("stray/deep")).unwrap();
    fs::write(outer.dir.join("notes.txt"), "x").unwrap();
    // What is just being made may become a task's.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    fs::File::open(outer.dir.join("stray")).unwrap().set_modified(old).unwrap();
    let (document, _) = json("tally", &[], std::slice::from_ref(&outer.dir));
    assert_eq!((&document["totals"]["planned"], &document["totals"]["passed"]), (&json!(1), &json!(1)));
    let notes = warnings(&document, "note");
    assert!(notes.iter().any(|m| m.contains("another whole run") && m.contains("2 trials, 0 resolved")), "{notes:?}");
    assert!(notes.iter().any(|m| m.contains("nothing of a trial")), "{notes:?}");
    let (document, _) = json("tally", &[], &[outer.dir.join("inner")]);
    assert_eq!(document["totals"]["planned"], 2);
}

#[test]
fn what_is_missing_torn_or_hostile_costs_only_itself() {
    use std::os::unix::fs::symlink;
    let temp = tempfile::tempdir().unwrap();
    let mut run = Run::begin(temp.path(), "r1", &["a", "b", "c", "d", "e"], 1);
    run.end("a", 1, Some(true), "unset");
    let torn = run.end("b", 1, Some(false), "unset");
    run.end("c", 1, None, "evil \u{1b}[2J\u{202e}mode");
    fs::write(torn.join("results.json"), "{\"trial_name\": \"b.1-of").unwrap();
    // A name that leads out of the run.
    let mut evil = run.result("d", 1, Some(true), "unset");
    evil["trial_name"] = json!("../../../etc/passwd");
    evil["task_id"] = json!("../..");
    run.known(evil);
    let (_, linked) = run.trial("e", 1);
    fs::create_dir_all(&linked).unwrap();
    symlink("/etc/passwd", linked.join("results.json")).unwrap();
    let fifo = run.dir.join("tb.lock");
    fs::remove_file(&fifo).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    fs::write(run.dir.join("run.log"), vec![b'x'; 3 << 20]).unwrap();
    let (document, _) = json("tally", &[], std::slice::from_ref(&run.dir));
    assert_eq!(row(&document, &run.trial("b", 1).0)["reward"], 0.0, "the aggregate stands in");
    assert!(
        warnings(&document, "unreadable").iter().any(|m| m.contains("aggregate counts in its place")),
        "{document}"
    );
    let mode = row(&document, &run.trial("c", 1).0)["exception_type"].as_str().unwrap().to_string();
    assert!(mode.starts_with("evil ") && !mode.contains(['\u{1b}', '\u{202e}']), "{mode:?}");
    for row in document["trials"].as_array().unwrap() {
        let path = row["trial"].as_str().unwrap_or_default();
        assert!(!path.split('/').any(|part| part == ".."), "{path}");
    }
    // Nothing but directories of trials is left.
    for file in ["run_metadata.json", "results.json", "run.log", "tb.lock"] {
        fs::remove_file(run.dir.join(file)).unwrap();
    }
    let (document, _) = json("tally", &[], std::slice::from_ref(&run.dir));
    assert_eq!(document["totals"]["passed"], 1);
    assert_eq!(row(&document, &run.trial("e", 1).0)["phase"], "unreadable", "{document}");
}

#[test]
fn reasons_come_from_the_log_and_make_the_alarm() {
    let temp = tempfile::tempdir().unwrap();
    let tasks: Vec<String> = (0..10).map(|n| format!("task-{n}")).collect();
    let names: Vec<&str> = tasks.iter().map(String::as_str).collect();
    let mut run = Run::begin(temp.path(), "r1", &names, 1);
    let mut log = String::new();
    for (n, task) in names.iter().enumerate() {
        let mut result = run.result(task, 1, None, "unknown_agent_error");
        for key in ["trial_started_at", "trial_ended_at", "agent_started_at", "agent_ended_at", "test_started_at"] {
            result[key] = Value::Null;
        }
        if n == 9 {
            result = run.result(task, 1, Some(true), "unset");
        } else {
            let project = run.trial(task, 1).0.replace('.', "-");
            log.push_str(&format!(
                "Docker compose command failed with exit code 1\nCommand: docker compose -p {project} -f x build\n\
                 STDOUT: y\nSTDERR: failed to solve: registry: i/o timeout number {n}\n\
                 Harness execution failed for /tasks/{task}: Command '['docker', 'compose', '-p', '{project}', 'build']'\n"
            ));
        }
        run.known(result);
    }
    fs::write(run.dir.join("run.log"), log).unwrap();
    run.metadata(&names, Some(0.1));
    let (document, code) = json("status", &[], std::slice::from_ref(&run.dir));
    let alarms = warnings(&document, "systemic");
    assert_eq!(alarms.len(), 1, "{document}");
    assert!(alarms[0].contains("9 of 10") && alarms[0].contains("unknown_agent_error"), "{alarms:?}");
    assert_ne!(code, 0);
    let first = row(&document, &run.trial("task-0", 1).0);
    assert_eq!((&first["class"], &first["sub_class"]), (&json!("infra"), &json!("docker")), "{first}");
    let (triage, _) = json("triage", &[], std::slice::from_ref(&run.dir));
    assert!(triage.to_string().contains("i/o timeout number 3"), "{triage}");
}
