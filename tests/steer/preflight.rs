//! The look at the agents' models before the first trial: what would fail every trial is said, and nothing is
//! begun.

use std::process::{Command, Output, Stdio};

use serde_json::json;

use crate::bench::Bench;
use crate::support::model_server::{Answer, ModelServer};
use crate::yard::{IMAGE, PASS_INSIDE};

const KEY: &str = "sk-test-0123456789abcdefghijklmnopqrstuv";

fn command(bench: &Bench, base: &str, more: &[&str]) -> Command {
    let text = |name: &str| bench.path(name).to_str().unwrap().to_string();
    let mut run = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    run.args(["run", "-a", "terminus-2", "-m", "openai/scripted-1", "--job-name", "job", "--headless"])
        .args(["-p", &text("tasks"), "--jobs-dir", &text("jobs"), "--disk-floor", "0"])
        .args(["--ak", &format!("api_base={base}")])
        .args(more)
        .env("PILOTHOUSE_STATE_DIR", &bench.state)
        .env("OPENAI_API_KEY", KEY)
        .stdin(Stdio::null());
    run
}

/// It is refused: its exit code and what it says, all of it.
#[track_caller]
fn refused(bench: &Bench, base: &str, more: &[&str]) -> String {
    let out = command(bench, base, more).output().unwrap();
    let said = whole(&out);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(!bench.job().exists(), "nothing is begun: {said}");
    assert!(!said.contains(KEY) && said.contains("openai/scripted-1") || said.contains("model scripted-1"), "{said}");
    said
}

fn whole(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// Trials of such agents are in containers.
fn has_engine() -> bool {
    let there = Command::new("docker").args(["image", "inspect", "tb-base:1"]).output();
    let there = there.is_ok_and(|out| out.status.success());
    if !there {
        crate::support::skipped("no engine with the image tb-base:1");
    }
    there
}

fn bench() -> Bench {
    let bench = Bench::new(&[]);
    bench.task("a", "true", PASS_INSIDE, IMAGE);
    bench
}

#[test]
fn what_would_fail_every_trial_is_said_before_the_first_with_its_remedy() {
    if !has_engine() {
        return;
    }
    let bench = bench();
    let server = ModelServer::start();
    server.always(Answer::say("ready"));
    let base = server.base();

    server.set(|face| face.key = Some("another".to_string()));
    let said = refused(&bench, &base, &[]);
    assert!(said.contains("put the key that it wants into OPENAI_API_KEY"), "{said}");
    server.set(|face| face.key = None);

    server.set(|face| {
        face.strict = true;
        face.models = vec!["qwen-a".to_string(), "qwen-b".to_string()];
    });
    let said = refused(&bench, &base, &[]);
    assert!(said.contains("it serves qwen-a, qwen-b: name one of them"), "{said}");
    server.set(|face| {
        face.strict = false;
        face.models = vec!["scripted-1".to_string()];
    });

    server.always(Answer::say("ready").thinking("Let me see."));
    let said = refused(&bench, &base, &["--ak", "reasoning_effort=none"]);
    assert!(said.contains("it thinks though reasoning_effort=none says that it should not"), "{said}");

    server.always(Answer::gateway_page());
    let said = refused(&bench, &base, &[]);
    assert!(said.contains("starts or is overloaded"), "{said}");

    server.kill();
    let said = refused(&bench, &base, &[]);
    assert!(said.contains("look whether the server runs"), "{said}");
}

#[test]
fn what_is_found_is_told_and_the_look_can_be_left_out() {
    if !has_engine() {
        return;
    }
    let bench = bench();
    let server = ModelServer::start();
    server.set(|face| {
        face.models = vec!["scripted-1".to_string()];
        face.context = Some(4096);
    });
    server.always(Answer::say("<think>hm</think>ready"));
    // Its trial may come to whatever it comes to.
    let more = ["--ak", "model_info={\"max_input_tokens\": 131072}", "--ak", "max_turns=1"];
    let out = command(&bench, &server.base(), &more).output().unwrap();
    let said = whole(&out);
    assert!(said.contains("thinks within its answer, context 4k"), "{said}");
    assert!(said.contains("--reasoning-parser") && said.contains("model_info says 131k"), "{said}");
    assert!(bench.job().exists() && !said.contains(KEY), "{said}");
    let asked = server.chats();
    assert_eq!(asked[0].body["max_tokens"], json!(32), "{:?}", asked[0].body);
    assert_eq!(asked[0].body["model"], "scripted-1");

    // Nobody listens, and nobody asks.
    let other = self::bench();
    server.kill();
    let before = server.chats().len();
    let more = ["--no-preflight", "--dry-run"];
    assert!(command(&other, &server.base(), &more).output().unwrap().status.success());
    let mut run = command(&other, &server.base(), &["--no-preflight"]).stdout(Stdio::null()).spawn().unwrap();
    crate::bench::until("a job", || other.job().exists());
    let stopped = rustix::process::Pid::from_child(&run);
    let _ = rustix::process::kill_process(stopped, rustix::process::Signal::TERM);
    let _ = run.wait();
    assert_eq!(server.chats().len(), before);
}
