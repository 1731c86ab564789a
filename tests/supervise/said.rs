//! What is said before the start: every remark where it belongs and nowhere else, each with its remedy.

use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::fake::{Place, document, text, write};

/// The remarks on a command; variables are added to the environment.
fn said(place: &Place, words: &[&str], env: &[(&str, &str)]) -> Vec<Value> {
    let mut command = place.command(&["harbor", "--check", "--json"]);
    let out = command.args(words).envs(env.iter().copied()).output().unwrap();
    let document = document(&out);
    assert_eq!(document["started"], false);
    let remarks = document["remarks"].as_array().unwrap().clone();
    let asks = remarks.iter().any(|r| r["asks"] == true);
    assert_eq!(out.status.code(), Some(i32::from(asks)), "{document:#}");
    for remark in &remarks {
        assert!(
            !remark["what"].as_str().unwrap().is_empty() && !remark["remedy"].as_str().unwrap().is_empty(),
            "{remark}"
        );
    }
    assert!(!place.path("args").exists(), "it was started");
    remarks
}

fn of<'a>(remarks: &'a [Value], kind: &str) -> Option<&'a Value> {
    remarks.iter().find(|r| r["kind"] == kind)
}

/// A command without anything to be said of it but for Docker, which is not there.
const FINE: [&str; 11] =
    ["run", "-p", "tasks", "-a", "oracle", "-y", "-o", "/tmp/nowhere", "--ek", "auto_mounting=true", "-q"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    FINE.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn a_command_without_fault_has_no_remark() {
    let place = Place::new();
    let remarks = said(&place, &FINE, &[]);
    let kinds: Vec<&str> = remarks.iter().map(|r| r["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["docker"], "{remarks:#?}");
    assert_eq!(remarks[0]["asks"], true);
}

#[test]
fn a_question_that_nobody_can_answer() {
    let place = Place::new();
    let words = ["run", "-p", "tasks", "-a", "oracle", "-o", "/tmp/nowhere"];
    let quiet = of(&said(&place, &words, &[]), "no_yes").unwrap().clone();
    assert_eq!((&quiet["asks"], &quiet["add"]), (&false.into(), &json!(["-y"])));
    place.task("beta-task", "", "\n[environment.env]\nTOKEN = \"${LAB_TOKEN}\"\n");
    let loud = of(&said(&place, &words, &[]), "no_yes").unwrap().clone();
    assert!(loud["asks"] == true && loud["what"].as_str().unwrap().contains("LAB_TOKEN"), "{loud}");
    // Of a dataset that is not here nothing is known.
    let far = said(&place, &["run", "-d", "lab/far", "-a", "oracle"], &[]);
    assert_eq!(of(&far, "no_yes").unwrap()["asks"], true);
    assert!(of(&said(&place, &with(&[]), &[]), "no_yes").is_none());
    assert!(of(&said(&place, &["run", "-p", "tasks", "-qy"], &[]), "no_yes").is_none());
}

#[test]
fn live_logs_by_version_and_environment() {
    let place = Place::new();
    let words = ["run", "-p", "tasks", "-a", "oracle", "-y", "-o", "/tmp/nowhere"];
    let new = said(&place, &words, &[]);
    assert_eq!(of(&new, "live_logs").unwrap()["add"], json!(["--ek", "auto_mounting=true"]));
    assert!(of(&said(&place, &words, &[("FAKE_VERSION", "0.21.0")]), "live_logs").is_none());
    write(place.path("c.yaml"), "environment:\n  kwargs:\n    auto_mounting: true\n");
    let by_config: Vec<&str> = words.iter().copied().chain(["-c", "c.yaml"]).collect();
    assert!(of(&said(&place, &by_config, &[]), "live_logs").is_none());
    let far = said(&place, &["run", "-p", "tasks", "-a", "oracle", "-y", "-e", "daytona"], &[("DAYTONA_API_KEY", "k")]);
    assert_eq!(of(&far, "live_logs").unwrap()["add"], json!([]));
}

#[test]
fn keys_of_agents_on_the_host_and_in_the_container() {
    let place = Place::new();
    let host = with(&["-a", "terminus-2", "-m", "openai/small"]);
    let missing = said(&place, &host, &[]);
    let remark = of(&missing, "key_missing").unwrap();
    assert!(remark["asks"] == true && remark["remedy"].as_str().unwrap().contains("export OPENAI_API_KEY"), "{remark}");
    assert!(of(&said(&place, &host, &[("OPENAI_API_KEY", "EMPTY")]), "key_missing").is_none());
    let kwarg = with(&["-a", "terminus-2", "-m", "openai/small", "--ak", "api_key=x"]);
    assert!(of(&said(&place, &kwarg, &[]), "key_missing").is_none());
    let named = with(&["-a", "terminus-2", "-m", "openai/small", "--api-key-name", "LAB_KEY"]);
    assert!(of(&said(&place, &named, &[]), "key_missing").unwrap()["what"].as_str().unwrap().contains("LAB_KEY"));

    let inside = with(&["-a", "mini-swe-agent", "-m", "anthropic/big"]);
    let remarks = said(&place, &inside, &[]);
    assert!(of(&remarks, "key_missing").unwrap()["remedy"].as_str().unwrap().contains("--ae ANTHROPIC_API_KEY"));
    let remarks = said(&place, &inside, &[("ANTHROPIC_API_KEY", "x")]);
    assert!(of(&remarks, "key_missing").is_none());
    assert_eq!(of(&remarks, "key_not_forwarded").unwrap()["asks"], false);
    for passed in ["ANTHROPIC_API_KEY=${ANTHROPIC_API_KEY}", "ANTHROPIC_API_KEY=direct"] {
        let words = with(&["-a", "mini-swe-agent", "-m", "anthropic/big", "--ae", passed]);
        let remarks = said(&place, &words, &[("ANTHROPIC_API_KEY", "x")]);
        assert!(of(&remarks, "key_missing").is_none() && of(&remarks, "key_not_forwarded").is_none(), "{remarks:?}");
    }
    let hollow = with(&["-a", "mini-swe-agent", "-m", "anthropic/big", "--ae", "ANTHROPIC_API_KEY=${ELSEWHERE}"]);
    assert!(of(&said(&place, &hollow, &[]), "key_missing").is_some());
}

#[test]
fn a_model_that_does_not_answer() {
    let place = Place::new();
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = there.local_addr().unwrap().port();
    let base = format!("api_base=http://127.0.0.1:{port}/v1");
    let words = with(&["-a", "terminus-2", "-m", "openai/small", "--ak", &base]);
    let key = [("OPENAI_API_KEY", "x")];
    assert!(of(&said(&place, &words, &key), "api_base").is_none());
    drop(there);
    let remarks = said(&place, &words, &key);
    let remark = of(&remarks, "api_base").unwrap();
    assert!(remark["asks"] == true && remark["what"].as_str().unwrap().contains(&port.to_string()), "{remark}");
    // Within a container, this host has another name.
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let inside = format!("OPENAI_BASE_URL=http://localhost:{}/v1", there.local_addr().unwrap().port());
    let words = with(&["-a", "mini-swe-agent", "-m", "openai/small", "--ae", &inside]);
    let remarks = said(&place, &words, &key);
    assert!(
        of(&remarks, "api_base").unwrap()["what"].as_str().unwrap().contains("the container itself"),
        "{remarks:?}"
    );
    // By 0.26's own flag, and by a config.
    let flag = with(&["-a", "terminus-2", "-m", "openai/small", "--base-url", "http://127.0.0.1:9/v1"]);
    assert!(of(&said(&place, &flag, &key), "api_base").is_some());
    write(
        place.path("c.json"),
        r#"{"agents": [{"name": "terminus-2", "model_name": "openai/s", "kwargs": {"api_base": "http://127.0.0.1:9/v1"}}]}"#,
    );
    let config = ["run", "-p", "tasks", "-y", "-c", "c.json"];
    assert!(of(&said(&place, &config, &key), "api_base").is_some());
}

#[test]
fn a_jobs_dir_that_is_relative() {
    let place = Place::new();
    let here = said(&place, &["run", "-p", "tasks", "-a", "oracle", "-y", "--job-name", "mine"], &[]);
    let what = of(&here, "relative_dir").unwrap()["what"].as_str().unwrap().to_string();
    assert!(what.contains("/jobs/mine"), "{what}");
    assert!(of(&said(&place, &FINE, &[]), "relative_dir").is_none());
}

/// A job dir with one solved trial and one without result.
fn old_job(place: &Place, jobs: &str) -> std::path::PathBuf {
    let dir = place.path(jobs).join("old");
    let config =
        json!({"job_name": "old", "jobs_dir": jobs, "agents": [{"name": "oracle"}], "datasets": [{"path": "tasks"}]});
    let agent = json!({"name": "oracle"});
    let trial = |task: &str, name: &str| json!({"task": {"path": format!("tasks/{task}"), "source": "tasks"}, "trial_name": name, "trials_dir": format!("{jobs}/old"), "agent": agent, "job_id": "j"});
    write(dir.join("config.json"), &config.to_string());
    write(dir.join("lock.json"), &json!({"schema_version": 3, "created_at": "2026-01-01T00:00:00Z", "harbor": {"version": "0.26.0"}, "n_concurrent_trials": 4, "trials": []}).to_string());
    let done = dir.join("alpha-task__AAAAAAA");
    write(done.join("config.json"), &trial("alpha-task", "alpha-task__AAAAAAA").to_string());
    write(
        done.join("result.json"),
        &json!({"id": "1", "task_name": "demo/alpha-task", "trial_name": "alpha-task__AAAAAAA", "trial_uri": "file:///x", "task_checksum": "0",
            "task_id": {"path": "tasks/alpha-task"}, "config": {}, "agent_info": {"name": "oracle", "version": "1"},
            "verifier_result": {"rewards": {"reward": 1.0}}, "exception_info": null}).to_string(),
    );
    fs::create_dir_all(dir.join("half__BBBBBBB/agent")).unwrap();
    dir
}

#[test]
fn a_job_that_is_there_already() {
    let place = Place::new();
    let dir = old_job(&place, "jobs");
    let again = said(&place, &["run", "-p", "tasks", "-a", "oracle", "-y", "-o", "jobs", "--job-name", "old"], &[]);
    let remark = of(&again, "job_exists").unwrap();
    let what = remark["what"].as_str().unwrap();
    assert!(remark["asks"] == true && what.contains("deletes 1 directories") && what.contains("keeps 1"), "{remark}");
    // The same config from elsewhere: everything runs again there.
    fs::create_dir(place.path("other")).unwrap();
    let config = dir.join("config.json");
    let out = place
        .command(&["harbor", "--check", "--json", "job", "start", "-y", "-c", config.to_str().unwrap()])
        .current_dir(place.path("other"))
        .output()
        .unwrap();
    let remarks = document(&out)["remarks"].as_array().unwrap().clone();
    let remark = of(&remarks, "job_exists").unwrap();
    let what = remark["what"].as_str().unwrap();
    assert!(what.contains("1 finished trial of it would be run again") && what.contains("other/jobs/old"), "{remark}");
    // A resume from another directory, by 0.21.
    let out = place
        .command(&["harbor", "--check", "--json", "job", "resume", "-p", dir.to_str().unwrap(), "-y"])
        .current_dir(place.path("other"))
        .env("FAKE_VERSION", "0.21.0")
        .output()
        .unwrap();
    let remarks = document(&out)["remarks"].as_array().unwrap().clone();
    let remark = of(&remarks, "resume").unwrap();
    assert!(remark["asks"] == true, "{remark}");
    let missing = said(&place, &["job", "resume", "-p", "jobs/none", "-y"], &[]);
    assert_eq!(of(&missing, "job_exists").unwrap()["asks"], true);
}

#[test]
fn environments_elsewhere_want_to_know_who_comes() {
    let place = Place::new();
    let on = |name: &'static str| vec!["run", "-p", "tasks", "-a", "oracle", "-y", "-o", "/tmp/nowhere", "-e", name];
    let cases: [(&str, &[(&str, &str)]); 6] = [
        ("daytona", &[("DAYTONA_API_KEY", "k")]),
        ("daytona", &[("DAYTONA_JWT_TOKEN", "k"), ("DAYTONA_ORGANIZATION_ID", "o")]),
        ("e2b", &[("E2B_API_KEY", "k")]),
        ("modal", &[("MODAL_TOKEN_ID", "k"), ("MODAL_TOKEN_SECRET", "s")]),
        ("hf-sandbox", &[("HF_TOKEN", "k")]),
        ("vercel", &[("VERCEL_TOKEN", "k")]),
    ];
    for (name, keys) in cases {
        let without = said(&place, &on(name), &keys[1..]);
        let remark = of(&without, "credentials").unwrap_or_else(|| panic!("{name}: {without:?}"));
        assert!(remark["asks"] == true && remark["remedy"].as_str().unwrap().contains(keys[0].0), "{remark}");
        let with = said(&place, &on(name), keys);
        assert!(of(&with, "credentials").is_none() && of(&with, "leaks").is_some(), "{with:?}");
        assert!(of(&with, "docker").is_none(), "{with:?}");
    }
    write(place.path("home/.modal.toml"), "x");
    assert!(of(&said(&place, &on("modal"), &[]), "credentials").is_none());
    // What this version does not have; what a later one says that it has.
    let old = said(&place, &on("vercel"), &[("FAKE_VERSION", "0.21.0"), ("VERCEL_TOKEN", "k")]);
    assert!(of(&old, "environment").is_some(), "{old:?}");
    assert!(of(&said(&place, &on("moonbase"), &[]), "environment").is_none());
    let none = said(&place, &on("atlantis"), &[]);
    assert!(of(&none, "environment").unwrap()["remedy"].as_str().unwrap().contains("moonbase"), "{none:?}");
}

#[test]
fn sandboxes_that_are_idle_or_too_many() {
    let place = Place::new();
    let token = [("HF_TOKEN", "k"), ("OPENAI_API_KEY", "k")];
    let words = |more: &[&'static str]| -> Vec<&'static str> {
        ["run", "-p", "tasks", "-y", "-o", "/tmp/nowhere", "-e", "hf-sandbox", "-m", "openai/s"]
            .into_iter()
            .chain(more.iter().copied())
            .collect()
    };
    let mini = said(&place, &words(&["-a", "mini-swe-agent", "-n", "8"]), &token);
    assert_eq!(of(&mini, "idle_timeout").unwrap()["add"], json!(["--ek", "job_timeout=2h"]));
    assert!(of(&mini, "concurrency").unwrap()["remedy"].as_str().unwrap().contains("-n 3"));
    for fine in ["job_timeout=2h", "job_timeout=none", "job_timeout=7200"] {
        let remarks = said(
            &place,
            &words(&["-a", "mini-swe-agent", "-n", "3", "--ek", Box::leak(fine.to_string().into_boxed_str())]),
            &token,
        );
        assert!(of(&remarks, "idle_timeout").is_none() && of(&remarks, "concurrency").is_none(), "{fine}: {remarks:?}");
    }
    // Terminus calls the sandbox all the time.
    assert!(of(&said(&place, &words(&["-a", "terminus-2"]), &token), "idle_timeout").is_none());
    assert!(of(&mini, "no_image").is_none());
    place.task("built-task", "", "");
    let remarks = said(&place, &words(&["-a", "oracle"]), &token);
    assert!(of(&remarks, "no_image").unwrap()["what"].as_str().unwrap().contains("built-task"), "{remarks:?}");
}

#[test]
fn nothing_starts_before_somebody_says_yes() {
    let place = Place::new();
    let words = with(&["-a", "terminus-2", "-m", "openai/small"]);
    let run = |ours: &[&str]| {
        let mut args = vec!["harbor"];
        args.extend(ours);
        args.extend(&words);
        place.run(&args)
    };
    for ours in [&["--headless"][..], &["--json"], &["--detach"], &[]] {
        let out = run(ours);
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains("OPENAI_API_KEY") && said.contains("--yes"), "{said}");
    }
    assert!(!place.path("args").exists());
    assert_eq!(run(&["--detach", "--yes"]).status.code(), Some(0));
    let args = fs::read(place.path("args")).unwrap();
    assert_eq!(args.split(|b| *b == 0).filter(|w| !w.is_empty()).count(), words.len());
}

#[test]
fn what_is_offered_is_added_only_by_word() {
    let place = Place::new();
    let out = place.run(&[
        "harbor",
        "--detach",
        "--yes",
        "--fix",
        "run",
        "-p",
        "tasks",
        "-a",
        "oracle",
        "-o",
        "jobs",
        "--job-name",
        "watched",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let args = text(&fs::read(place.path("args")).unwrap()).replace('\0', " ");
    assert_eq!(args.trim(), "run -p tasks -a oracle -o jobs --job-name watched -y --ek auto_mounting=true");
}

#[test]
fn what_harbor_runs_elsewhere_is_not_supervised() {
    let place = Place::new();
    for flag in [&["--launch"][..], &["--server", "http://x"]] {
        assert_eq!(of(&said(&place, &with(flag), &[]), "not_here").unwrap()["asks"], true);
    }
}
