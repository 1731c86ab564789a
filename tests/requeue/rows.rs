//! What operators complain of, row by row of the collected evidence: resume, requeue, merge.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::support;
use support::job::Job;
use support::pty::Pty;

/// A program that says it is Harbor and makes the job dir that its config names, with one passed trial for
/// each task.
const HARBOR: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo 0.21.0; exit 0; fi
[ "$1 $2 $4" = "run -c -y" ] || exit 2
field() { sed -n "s/^  \"$1\": \"\(.*\)\",*$/\1/p" "$CONFIG"; }
CONFIG="$3"
DIR="$(field jobs_dir)/$(field job_name)"
mkdir -p "$DIR"
cp "$CONFIG" "$DIR/config.json"
env >"$DIR/environment"
ps -o pgid= -p $$ >"$DIR/group"
for path in $(sed -n 's/^ *"path": "\(.*\)",*$/\1/p' "$CONFIG"); do
  task="${path##*/}"
  trial="$DIR/${task}__NewOne1"
  mkdir -p "$trial/verifier"
  echo 1 >"$trial/verifier/reward.txt"
  printf '{"task": {"path": "%s"}, "trial_name": "%s"}' "$path" "${task}__NewOne1" >"$trial/config.json"
  printf '{"id": "new-%s", "task_name": "%s", "trial_name": "%s", "trial_uri": "x", "task_id": {"path": "%s"}, "task_checksum": "00", "config": {"task": {"path": "%s"}}, "agent_info": {"name": "terminus-2", "version": "2"}, "verifier_result": {"rewards": {"reward": 1.0}}, "started_at": "2099-01-01T00:00:00Z", "finished_at": "2099-01-01T00:01:00Z"}' \
    "$task" "$task" "${task}__NewOne1" "$path" "$path" >"$trial/result.json"
done
echo '{"id": "new-job", "n_total_trials": 1, "finished_at": "2099-01-01T00:01:00", "stats": {"n_completed_trials": 1}}' >"$DIR/result.json"
"#;

/// A job of Harbor's with its tasks, and a harbor.
struct Desk {
    job: Job,
    state: tempfile::TempDir,
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, serde_json::to_vec_pretty(&value).unwrap()).unwrap();
}

impl Desk {
    fn new(name: &str, tasks: &[&str]) -> Desk {
        let desk = Desk { job: Job::begin(name, tasks), state: tempfile::tempdir().unwrap() };
        for task in tasks {
            let dir = desk.base().join("tasks").join(task);
            for (file, text) in [
                ("task.toml", "version = \"1.0\"\n"),
                ("instruction.md", "Do it.\n"),
                ("tests/test.sh", "echo 1\n"),
                ("environment/Dockerfile", "FROM scratch\n"),
            ] {
                fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
                fs::write(dir.join(file), text).unwrap();
            }
        }
        edit(&desk.job.dir.join("config.json"), |c| c["jobs_dir"] = json!("."));
        // The tasks are what they were.
        edit(&desk.job.dir.join("lock.json"), |lock| {
            for trial in lock["trials"].as_array_mut().unwrap() {
                trial["task"].as_object_mut().unwrap().remove("digest");
            }
        });
        let harbor = desk.state.path().join("harbor");
        fs::write(&harbor, HARBOR).unwrap();
        fs::set_permissions(&harbor, fs::Permissions::from_mode(0o755)).unwrap();
        desk
    }

    /// Where the job was started.
    fn base(&self) -> PathBuf {
        self.job.dir.parent().unwrap().to_path_buf()
    }

    /// The job is over.
    fn over(&mut self) {
        self.job.summary(true);
        self.job.leave();
    }

    /// A trial whose environment never came up.
    fn stillborn(&self, task: &str, message: &str) {
        self.job.done(task, None, Some(("RuntimeError", message)));
        let dir = self.job.trial_dir(task);
        fs::remove_dir_all(dir.join("agent")).unwrap();
        fs::write(dir.join("trial.log"), "").unwrap();
        edit(&dir.join("result.json"), |r| {
            for phase in ["agent_result", "agent_setup", "agent_execution", "verifier"] {
                r[phase] = Value::Null;
            }
        });
    }

    /// Sets a field of a trial's config, as the harness would have written it.
    fn config(&self, task: &str, change: impl Fn(&mut Value)) {
        edit(&self.job.trial_dir(task).join("config.json"), &change);
        let result = self.job.trial_dir(task).join("result.json");
        if result.exists() {
            edit(&result, |r| {
                change(&mut r["config"]);
                r["trial_uri"] = json!("file:///x");
            });
        }
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(args).current_dir(self.base()).stdin(Stdio::null());
        command.env("PILOTHOUSE_STATE_DIR", self.state.path().join("state"));
        command.env("PILOTHOUSE_HARBOR", self.state.path().join("harbor"));
        command.env("XDG_CONFIG_HOME", self.state.path()).env("USER", "tester").env_remove("SUDO_USER");
        command.env_remove("OPENAI_API_KEY").env_remove("HF_TOKEN");
        command.output().unwrap()
    }

    /// `requeue <job> … --dry-run --json`.
    fn plan(&self, args: &[&str]) -> Value {
        let all = [&["requeue", self.job.arg(), "--dry-run", "--json"][..], args].concat();
        document(&self.run(&all))
    }

    /// Every file of the job but its journal.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut out = BTreeMap::new();
        let mut todo = vec![self.job.dir.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                match entry.path() {
                    path if path.is_dir() => todo.push(path),
                    path if path.ends_with("pilothouse.jsonl") => {}
                    path => drop(out.insert(path.clone(), fs::read(path).unwrap())),
                }
            }
        }
        out
    }

    fn journal(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.job.dir.join("pilothouse.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn document(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(out)))
}

fn said(out: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Tasks of all plans, sorted.
fn tasks(plan: &Value) -> Vec<String> {
    let plans = plan["plans"].as_array().unwrap().iter();
    let rows = plans.flat_map(|p| p["trials"].as_array().unwrap());
    let mut out: Vec<String> = rows.map(|t| t["task"].as_str().unwrap().to_string()).collect();
    out.sort();
    out
}

fn endpoint(url: &'static str) -> impl Fn(&mut Value) {
    move |config| config["agent"]["kwargs"] = json!({"api_base": url})
}

/// A job of two solved trials and one failed by a full network pool, all by one endpoint; the job's config
/// names another one by now.
fn moved() -> Desk {
    let mut desk = Desk::new("moved", &["one", "two", "three"]);
    desk.job.done("one", Some(1.0), None);
    desk.job.done("two", Some(0.0), None);
    let pools = "failed to create network moved: could not find an available, non-overlapping IPv4 address pool: all \
                 predefined address pools have been fully subnetted";
    desk.stillborn("three", pools);
    for task in ["one", "two", "three"] {
        desk.config(task, endpoint("http://gpu-1:30000/v1"));
        desk.config(task, |c| {
            c["trials_dir"] = json!("moved");
            c["agent"].as_object_mut().unwrap().remove("override_timeout_sec");
        });
    }
    edit(&desk.job.dir.join("config.json"), |c| {
        c["agents"][0]["kwargs"] = json!({"api_base": "http://gpu-2:31234/v1"})
    });
    desk.over();
    desk
}

#[test]
fn row_1_an_endpoint_edited_in_the_job_alone_is_named_before_anything_runs_again() {
    let desk = moved();
    let out = desk.run(&["resume-preview", desk.job.arg(), "--json"]);
    let all = document(&out);
    for one in all["previews"].as_array().unwrap() {
        assert_eq!(one["ending"], "refuses", "{all:#}");
        assert!(one["keeps"].as_array().unwrap().iter().all(|k| k["fits_the_plan"] == false), "{one:#}");
        assert_eq!(one["reruns"].as_array().unwrap().len(), 3);
        assert_eq!(
            one["fields"],
            json!([{"field": "agents[0].kwargs.api_base", "was": "http://gpu-1:30000/v1", "now": "http://gpu-2:31234/v1"}])
        );
    }
    assert_eq!(out.status.code(), Some(1));
    assert!(all["requeue"].as_str().unwrap().starts_with("pilothouse requeue "));
    // The requeue offers only the wanted task, as its trial was run, and says what the job says now.
    let plan = desk.plan(&["--infra"]);
    assert_eq!(tasks(&plan), ["three"]);
    assert_eq!(plan["plans"][0]["differs"][0]["field"], "agents[0].kwargs.api_base");
}

#[test]
fn row_2_an_endpoint_is_replaced_in_the_new_job_and_nowhere_else() {
    let desk = moved();
    let before = desk.files();
    let args = ["requeue", desk.job.arg(), "--infra", "--api-base", "http://gpu-3:32000/v1", "-y", "--json"];
    let out = desk.run(&args);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let new = desk.base().join("moved-requeue-1");
    let config: Value = serde_json::from_slice(&fs::read(new.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["agents"][0]["kwargs"]["api_base"], "http://gpu-3:32000/v1");
    assert_eq!(config["tasks"], json!([{"path": "tasks/three", "source": "tasks"}]));
    assert_eq!(desk.files(), before);
}

#[test]
fn row_3_an_import_path_of_its_own_each_time_is_named() {
    let mut desk = Desk::new("fresh", &["one"]);
    desk.job.done("one", Some(1.0), None);
    let agent = |tail: &str| json!({"import_path": format!("agents.x{tail}:Agent"), "model_name": "lab/small-1"});
    desk.config("one", |c| {
        c["agent"] = agent("aaaa");
        c["trials_dir"] = json!("fresh");
    });
    edit(&desk.job.dir.join("config.json"), |c| c["agents"] = json!([agent("bbbb")]));
    desk.over();
    let all = document(&desk.run(&["resume-preview", desk.job.arg(), "--json"]));
    assert_eq!(all["previews"][1]["fields"][0]["field"], "agents[0].import_path", "{all:#}");
}

#[test]
fn row_4_a_requeue_deletes_nothing() {
    let desk = moved();
    let before = desk.files();
    let args = ["requeue", desk.job.arg(), "--trial", "one", "--force", "--reason", "the seed was wrong", "-y"];
    let out = desk.run(&args);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert_eq!(desk.files(), before);
    // The new job runs in a group of its own, with its output in a file, and names where it came from.
    let new = desk.base().join("moved-requeue-1");
    let group: u32 = fs::read_to_string(new.join("group")).unwrap().trim().parse().unwrap();
    assert_ne!(group, std::process::id());
    assert!(said(&out).contains(&format!("(pid {group})")), "{}", said(&out));
    let origin = fs::read_to_string(new.join("pilothouse.jsonl")).unwrap();
    assert!(origin.contains("\"act\":\"origin\"") && origin.contains("the seed was wrong"), "{origin}");
    // A second one takes the next name.
    let plan = desk.plan(&["--infra"]);
    assert_eq!(plan["plans"][0]["job_name"], "moved-requeue-2");
}

#[test]
fn row_5_the_three_without_a_score_are_found_among_three_hundred() {
    let names: Vec<String> = (0..300).map(|n| format!("task-{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut desk = Desk::new("marin", &names);
    let lost = ["task-007", "task-123", "task-299"];
    for (n, task) in names.iter().enumerate() {
        match lost.contains(task) {
            true => desk.job.done(
                task,
                None,
                Some(("InternalServerError", "litellm.InternalServerError: 504 upstream timeout")),
            ),
            false => desk.job.done(task, Some(f64::from(u8::from(n % 3 == 0))), None),
        }
    }
    desk.over();
    let plan = desk.plan(&["--unscored"]);
    assert_eq!(tasks(&plan), lost);
    assert_eq!(plan["refused"].as_array().unwrap().len(), 0);
    assert!(plan["plans"][0]["trials"].as_array().unwrap().iter().all(|t| t["class"] == "infra"), "{plan:#}");
}

#[test]
fn row_6_a_job_without_its_config_is_not_resumable_and_can_be_requeued() {
    let mut desk = Desk::new("bare", &["one", "two"]);
    desk.job.done("one", Some(1.0), None);
    desk.stillborn("two", "docker compose up failed: Cannot connect to the Docker daemon");
    desk.over();
    fs::remove_file(desk.job.dir.join("config.json")).unwrap();
    let out = desk.run(&["resume-preview", desk.job.arg()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(said(&out).contains("not resumable: config.json missing"), "{}", said(&out));
    let out = desk.run(&["status", desk.job.arg(), "--json"]);
    assert_eq!(document(&out)["totals"]["passed"], 1, "{}", said(&out));
    let plan = desk.plan(&["--infra"]);
    assert_eq!(tasks(&plan), ["two"]);
    assert!(plan["plans"][0]["warnings"][0].as_str().unwrap().contains("config.json"), "{plan:#}");
}

#[test]
fn row_8_a_plain_directory_of_trials_is_enough() {
    let mut desk = Desk::new("plain", &["one", "two"]);
    desk.job.done("one", Some(1.0), None);
    desk.job.done(
        "two",
        None,
        Some(("RuntimeError", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock")),
    );
    desk.over();
    for file in ["lock.json", "job.log"] {
        fs::remove_file(desk.job.dir.join(file)).unwrap();
    }
    let plan = desk.plan(&["--infra"]);
    assert_eq!(tasks(&plan), ["two"]);
    assert_eq!(plan["plans"][0]["problems"], json!([]));
}

#[test]
fn row_16_what_fails_the_same_way_three_times_is_left_alone() {
    let mut desk = Desk::new("cap", &["one"]);
    let pull = ("RuntimeError", "docker compose up failed: Error response from daemon: manifest for x:1 not found");
    desk.stillborn("one", pull.1);
    desk.over();
    assert_eq!(desk.plan(&["--infra"])["plans"][0]["trials"][0]["attempts"], 1);
    // Two attempts before it were set aside: one alike, one not.
    for (n, kind) in [(1, "RuntimeError"), (2, "EnvironmentStartTimeoutError")] {
        let aside = desk.job.trial_dir("one").join(format!("retries/{n}"));
        fs::create_dir_all(&aside).unwrap();
        fs::copy(desk.job.trial_dir("one").join("result.json"), aside.join("result.json")).unwrap();
        edit(&aside.join("result.json"), |r| r["exception_info"]["exception_type"] = json!(kind));
    }
    let row = desk.plan(&["--infra"])["plans"][0]["trials"][0].clone();
    assert_eq!((&row["attempts"], &row["failed_alike"]), (&json!(3), &json!(2)), "{row:#}");
    edit(&desk.job.trial_dir("one").join("retries/2/result.json"), |r| {
        r["exception_info"]["exception_type"] = json!(pull.0)
    });
    let plan = desk.plan(&["--infra"]);
    assert_eq!(tasks(&plan), Vec::<String>::new());
    let why = plan["refused"][0]["why"].as_str().unwrap();
    assert!(why.contains("failed the same way 3 times") && why.contains("accept it or force it"), "{why}");
    let plan = desk.plan(&["--infra", "--force", "--reason", "the registry is back"]);
    assert_eq!(plan["plans"][0]["trials"][0]["forced"], true, "{plan:#}");
}

#[test]
fn row_16_attempts_count_over_the_lineage() {
    let mut desk = Desk::new("chain", &["one"]);
    desk.stillborn("one", "Cannot connect to the Docker daemon");
    desk.over();
    let out = desk.run(&["requeue", desk.job.arg(), "--infra", "-y"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    // The new job failed alike after all.
    let result = desk.job.trial_dir("one").join("result.json");
    let spoil = |n: u32| {
        let new = desk.base().join(format!("chain-requeue-{n}/one__NewOne1"));
        fs::remove_file(new.join("verifier/reward.txt")).unwrap();
        fs::copy(&result, new.join("result.json")).unwrap();
        edit(&new.join("result.json"), |r| {
            r["id"] = json!(format!("again-{n}"));
            r["started_at"] = json!(format!("2099-01-0{n}T00:00:00Z"));
            r["finished_at"] = json!(format!("2099-01-0{n}T00:01:00Z"));
        });
        edit(&desk.base().join(format!("chain-requeue-{n}/result.json")), |r| r["id"] = json!(format!("job-{n}")));
    };
    spoil(1);
    let row = desk.plan(&["--infra"])["plans"][0]["trials"][0].clone();
    assert_eq!((&row["attempts"], &row["failed_alike"]), (&json!(2), &json!(2)), "{row:#}");
    let out = desk.run(&["requeue", desk.job.arg(), "--infra", "-y"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    spoil(2);
    let plan = desk.plan(&["--infra"]);
    assert!(plan["refused"][0]["why"].as_str().unwrap().contains("3 times"), "{plan:#}");
}

#[test]
fn row_17_a_trial_that_nobody_will_finish_can_be_requeued() {
    let mut desk = Desk::new("killed", &["one", "two"]);
    desk.job.done("one", Some(1.0), None);
    desk.job.start("two");
    desk.job.summary(false);
    // While somebody writes there it is none.
    let plan = desk.plan(&["--trial", "two"]);
    assert!(plan["refused"][0]["why"].as_str().unwrap().contains("worked on"), "{plan:#}");
    desk.job.leave();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let mut todo = vec![desk.job.dir.clone()];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().flatten().map(|e| e.path()));
        }
        fs::File::open(&path).unwrap().set_modified(old).unwrap();
    }
    let plan = desk.plan(&["--unscored"]);
    assert_eq!(tasks(&plan), ["two"], "{plan:#}");
    assert_eq!(plan["plans"][0]["trials"][0]["class"], "orphaned");
}

#[test]
fn row_18_one_flag_takes_all_that_failed_for_the_surroundings() {
    let mut desk = Desk::new("infra", &["ok", "zero", "late", "four", "five", "odd"]);
    desk.job.done("ok", Some(1.0), None);
    desk.job.done("zero", Some(0.0), None);
    desk.job.done("late", Some(0.0), Some(("AgentTimeoutError", "Agent execution timed out after 900.0 seconds")));
    desk.stillborn("four", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock");
    desk.stillborn("five", "all predefined address pools have been fully subnetted");
    desk.job.done("odd", None, Some(("KeyError", "'answer'")));
    desk.over();
    let plan = desk.plan(&["--infra"]);
    assert_eq!(tasks(&plan), ["five", "four"]);
    assert_eq!(plan["plans"].as_array().unwrap().len(), 1);
    for row in plan["plans"][0]["trials"].as_array().unwrap() {
        assert!(row["why"].as_str().unwrap().starts_with("infra/"), "{row:#}");
    }
    // A person's word adds to it.
    let odd = desk.job.trial_dir("odd");
    let out = desk.run(&["verdict", odd.to_str().unwrap(), "infra_confirmed", "--note", "the disk was full"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert_eq!(tasks(&desk.plan(&["--infra"])), ["five", "four", "odd"]);
}

#[test]
fn row_20_what_is_scored_or_had_its_time_is_sealed() {
    let mut desk = Desk::new("sealed", &["solved", "zero", "late", "slow-tests", "key"]);
    desk.job.done("solved", Some(1.0), None);
    desk.job.done("zero", Some(0.0), None);
    desk.job.done("late", None, Some(("AgentTimeoutError", "Agent execution timed out after 900.0 seconds")));
    desk.job.done(
        "slow-tests",
        None,
        Some(("VerifierTimeoutError", "Verifier execution timed out after 600.0 seconds")),
    );
    desk.job.done(
        "key",
        None,
        Some(("AuthenticationError", "litellm.AuthenticationError: Incorrect API key provided")),
    );
    desk.over();
    let names = ["solved", "zero", "late", "slow-tests", "key"];
    let marked: Vec<&str> = names.iter().flat_map(|n| ["--trial", *n]).collect();
    let plan = desk.plan(&marked);
    assert_eq!(tasks(&plan), Vec::<String>::new(), "{plan:#}");
    let ways: BTreeMap<&str, &str> = plan["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["task"].as_str().unwrap(), r["way"].as_str().unwrap()))
        .collect();
    for name in ["solved", "zero", "late", "slow-tests"] {
        assert!(ways[name].starts_with("--force"), "{name}: {}", ways[name]);
    }
    assert!(ways["key"].starts_with("--config-fixed"), "{}", ways["key"]);
    // Forced, a wrong config still wants a word of its own.
    let forced = [&marked[..], &["--force", "--reason", "the grader was broken"]].concat();
    assert_eq!(tasks(&desk.plan(&forced)), ["late", "slow-tests", "solved", "zero"]);
    assert_eq!(tasks(&desk.plan(&["--trial", "key", "--config-fixed"])), ["key"]);
    // A reason is no flag without text, and none of it happens silently.
    let out = desk.run(&["requeue", desk.job.arg(), "--trial", "zero", "--force", "--reason", " ", "-y"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(desk.journal().is_empty());
    let out =
        desk.run(&["requeue", desk.job.arg(), "--trial", "zero", "--force", "--reason", "the grader was broken", "-y"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let line = &desk.journal()[0];
    assert_eq!(
        (&line["act"], &line["trial"], &line["result_id"]),
        (&json!("requeue"), &json!("zero__AbCdEfG"), &json!("id-zero"))
    );
    assert!(line["why"].as_str().unwrap().starts_with("the grader was broken"), "{line:#}");
    assert!(line["operator"].as_str().unwrap().starts_with("tester"), "{line:#}");
    // Which the count takes for a reason to let the new one stand.
    let out = desk.run(&["tally", desk.job.arg(), desk.base().join("sealed-requeue-1").to_str().unwrap(), "--json"]);
    let tally = document(&out);
    assert_eq!(
        (&tally["merge"]["as"], &tally["totals"]["planned"], &tally["totals"]["passed"]),
        (&json!("passes"), &json!(5), &json!(2)),
        "{tally:#}"
    );
}

#[test]
fn keys_that_are_not_on_disk_are_asked_for_before_anything_is_made() {
    let mut desk = Desk::new("keys", &["one"]);
    desk.stillborn("one", "Cannot connect to the Docker daemon");
    desk.config("one", |c| {
        c["agent"]["env"] = json!({"HF_TOKEN": "hf_x****abc", "OPENAI_API_KEY": "${OPENAI_API_KEY}"});
    });
    desk.over();
    let out = desk.run(&["requeue", desk.job.arg(), "--infra", "-y"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(said(&out).contains("export HF_TOKEN, OPENAI_API_KEY"), "{}", said(&out));
    assert!(desk.journal().is_empty() && !desk.base().join("keys-requeue-1").exists());
    assert!(!desk.state.path().join("state/requeue").exists());
}

#[test]
fn on_a_terminal_keys_are_asked_for_and_go_nowhere_but_to_the_job() {
    let mut desk = Desk::new("typed", &["one"]);
    desk.stillborn("one", "Cannot connect to the Docker daemon");
    desk.config("one", |c| c["agent"]["env"] = json!({"RQ_TEST_TOKEN": "rq_x****abc"}));
    desk.over();
    let (state, harbor) = (desk.state.path().join("state"), desk.state.path().join("harbor"));
    let env = [
        ("PILOTHOUSE_STATE_DIR", state.to_str().unwrap()),
        ("PILOTHOUSE_HARBOR", harbor.to_str().unwrap()),
        ("XDG_CONFIG_HOME", desk.state.path().to_str().unwrap()),
    ];
    let soon = Duration::from_secs(30);
    let args = ["requeue", desk.job.arg(), "--infra"];
    // Ctrl-C gives up, and the terminal shows again what is typed.
    let mut pty = Pty::pilothouse(&args, 160, 40, &env);
    pty.wait_for("RQ_TEST_TOKEN is not set here", soon);
    pty.send("half\u{3}");
    assert_eq!(pty.wait_exit(soon).exit_code(), 2, "{}", pty.text());
    assert!(pty.line_modes().is_cooked(), "{}", pty.text());
    let mut pty = Pty::pilothouse(&args, 160, 40, &env);
    pty.wait_for("RQ_TEST_TOKEN is not set here", soon);
    pty.send("rq_very-secret-word\r");
    pty.wait_for("Run 1 trials again as planned?", soon);
    pty.send("y\r");
    assert_eq!(pty.wait_exit(soon).exit_code(), 0, "{}", pty.text());
    assert!(!pty.text().contains("very-secret"), "{}", pty.text());
    let new = desk.base().join("typed-requeue-1");
    assert!(fs::read_to_string(new.join("environment")).unwrap().contains("RQ_TEST_TOKEN=rq_very-secret-word"));
    fs::remove_file(new.join("environment")).unwrap();
    let found = Command::new("grep").args(["-rl", "very-secret"]).arg(&state).arg(desk.base()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn a_program_that_does_not_begin_is_said_and_the_next_try_is_free() {
    let mut desk = Desk::new("broken", &["one"]);
    desk.stillborn("one", "Cannot connect to the Docker daemon");
    desk.over();
    let harbor = desk.state.path().join("harbor");
    fs::write(&harbor, "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 0.26.1\necho no such option >&2\nexit 2\n")
        .unwrap();
    let out = desk.run(&["requeue", desk.job.arg(), "--infra", "-y"]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("did not begin") && said(&out).contains("no such option"), "{}", said(&out));
    assert!(said(&out).contains("the job was run by Harbor 0.21.0, and this is 0.26.1"), "{}", said(&out));
    fs::write(&harbor, HARBOR).unwrap();
    let out = desk.run(&["requeue", desk.job.arg(), "--infra", "-y"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
}

#[test]
fn a_reward_without_tests_is_run_again_and_the_later_one_counts() {
    let mut desk = Desk::new("proxy", &["one", "two"]);
    desk.job.done("one", Some(0.0), None);
    desk.job.done("two", Some(1.0), None);
    let output = "Err:1 http://deb.mirror.example/debian bookworm InRelease\n  502  Bad Gateway [IP: 10.0.0.1 3128]\nE: Failed to \
                  fetch http://deb.mirror.example/debian/dists/bookworm/InRelease  502  Bad Gateway\nE: Unable to locate \
                  package curl\ntest.sh: line 5: curl: command not found\ntest.sh: line 9: uvx: command not found\n";
    fs::write(desk.job.trial_dir("one").join("verifier/test-stdout.txt"), output).unwrap();
    desk.over();
    let out = desk.run(&["requeue", desk.job.arg(), "--infra", "-y", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert_eq!(tasks(&document(&out)), ["one"], "{}", said(&out));
    let new = desk.base().join("proxy-requeue-1");
    let tally = document(&desk.run(&["tally", desk.job.arg(), new.to_str().unwrap(), "--json"]));
    let raw = tally["scores"].as_array().unwrap().iter().find(|s| s["name"] == "raw").unwrap();
    assert_eq!((&raw["numerator"], &raw["denominator"]), (&json!(2), &json!(2)), "{tally:#}");
}

#[test]
fn trials_of_two_agents_go_into_two_jobs() {
    let mut desk = Desk::new("pair", &["one", "two"]);
    for task in ["one", "two"] {
        desk.stillborn(task, "Cannot connect to the Docker daemon");
    }
    desk.config("two", |c| c["agent"]["model_name"] = json!("lab/large-1"));
    desk.over();
    let plan = desk.plan(&["--infra", "-n", "1"]);
    let plans = plan["plans"].as_array().unwrap();
    let names: Vec<&str> = plans.iter().map(|p| p["job_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pair-requeue-1", "pair-requeue-2"], "{plan:#}");
    assert_eq!(tasks(&plan), ["one", "two"]);
}

#[test]
fn a_hostile_job_hangs_nothing_and_leads_nowhere() {
    let mut desk = Desk::new("evil", &["one", "two"]);
    desk.stillborn("one", "Cannot connect to the Docker daemon");
    desk.stillborn("two", "Cannot connect to the Docker daemon\u{1b}[2J\u{202e}");
    desk.config("two", |c| {
        c["agent"]["kwargs"] = json!({"api_base": "http://x\u{1b}]0;owned\u{7}/v1"});
        c["trial_name"] = json!("../../../etc");
    });
    desk.over();
    edit(&desk.job.dir.join("config.json"), |c| c["job_name"] = json!("../../outside"));
    let plan = desk.run(&["requeue", desk.job.arg(), "--infra", "--dry-run"]);
    let text = said(&plan);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    assert!(text.contains("evil-requeue-1") && !text.contains("outside-requeue"), "{text}");
    // A pipe nobody writes to, where a config should be.
    for file in [desk.job.dir.join("config.json"), desk.job.trial_dir("two").join("config.json")] {
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    }
    fs::write(desk.job.dir.join("pilothouse.jsonl"), "{\"act\": \"requeue\", \"place\": \"/\"}\n{\"act\"\nnull\n[]\n")
        .unwrap();
    let plan = desk.plan(&["--infra"]);
    assert_eq!(tasks(&plan), ["one", "two"], "{plan:#}");
    let out = desk.run(&["resume-preview", desk.job.arg()]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    // The task is gone: said before anything is made.
    fs::remove_dir_all(desk.base().join("tasks/one")).unwrap();
    let out = desk.run(&["requeue", desk.job.arg(), "--trial", "one", "-y"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(said(&out).contains("task tasks/one: its directory is not there"), "{}", said(&out));
}

#[test]
fn tasks_that_are_not_there_are_one_line() {
    let names = ["one", "two", "three", "four", "five"];
    let mut desk = Desk::new("bare", &names);
    for task in names {
        desk.stillborn(task, "Cannot connect to the Docker daemon");
    }
    desk.over();
    for task in &names[..4] {
        fs::remove_dir_all(desk.base().join("tasks").join(task)).unwrap();
    }
    let plan = desk.plan(&["--infra"]);
    let problems = plan["plans"][0]["problems"].as_array().unwrap();
    let [only] = problems.as_slice() else { panic!("{plan:#}") };
    let only = only.as_str().unwrap();
    assert!(only.contains("4 of 5 tasks are not there") && only.contains("and 1 more"), "{only}");
}

#[test]
fn a_default_that_the_job_does_not_name_is_no_difference() {
    let mut desk = Desk::new("sparse", &["one"]);
    desk.stillborn("one", "Cannot connect to the Docker daemon");
    desk.config("one", |c| {
        c["environment"]["type"] = json!("docker");
        c["environment"]["delete"] = json!(true);
    });
    desk.over();
    edit(&desk.job.dir.join("config.json"), |c| {
        if let Some(environment) = c["environment"].as_object_mut() {
            environment.remove("type");
            environment.remove("delete");
        }
    });
    let plan = desk.plan(&["--infra"]);
    let differs = plan["plans"][0]["differs"].to_string();
    assert!(!differs.contains("environment"), "{plan:#}");
    // What it does name counts.
    edit(&desk.job.dir.join("config.json"), |c| c["environment"]["delete"] = json!(false));
    let plan = desk.plan(&["--infra"]);
    assert!(plan["plans"][0]["differs"].to_string().contains("environment.delete"), "{plan:#}");
}
