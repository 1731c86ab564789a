//! The model's endpoint: it goes, comes back, is found elsewhere; trials that have not begun wait for it.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, SOON, until};
use crate::support;
use crate::support::model_server::{Answer, Asked, ModelServer};
use crate::support::pty::{Pty, key};
use crate::support::servers::Fake;
use crate::yard::class_of;

/// How long it is away.
fn away() -> Duration {
    Duration::from_secs(if std::env::var_os("PILOTHOUSE_LONG_FAULTS").is_some() { 90 } else { 3 })
}

fn gate(bench: &Bench) -> Option<String> {
    let gates = bench.status()["gates"].clone();
    let gate = gates.as_array().unwrap().iter().find(|g| g["gate"] == "endpoint")?;
    Some(gate["why"].as_str().unwrap().to_string())
}

#[test]
fn nothing_begins_while_the_endpoint_is_away() {
    let bench = Bench::new(&["a", "b", "c"]);
    let server = Fake::sglang();
    let named = format!("gpu={}", server.url());
    let mut run = bench.run("1", &["--serving", &named]);
    bench.wait(1, 2, 0);
    assert_eq!(gate(&bench), None);

    server.kill();
    until("a closed gate", || gate(&bench).is_some());
    let why = gate(&bench).unwrap();
    assert_eq!(why, "model server gpu is gone");
    bench.go("a");
    bench.wait(0, 2, 1);
    std::thread::sleep(away());
    bench.wait(0, 2, 1);
    server.revive();
    bench.wait(1, 1, 1);
    assert_eq!(gate(&bench), None);

    // It takes connections and answers nothing: away, too.
    server.hang();
    until("a closed gate again", || gate(&bench).is_some_and(|why| why.contains("gpu")));
    bench.go("b");
    bench.wait(0, 1, 2);
    server.unhang();
    bench.wait(1, 0, 2);
    bench.go("c");
    assert_eq!(run.end(), 0, "{}", bench.output());
    assert!(bench.results().iter().all(|(_, end)| end == "1.0"), "{:?}", bench.results());

    let said = bench.output();
    assert!(said.contains("endpoint: nothing begins: model server gpu is gone"), "{said}");
    assert!(said.contains("endpoint: well again, after "), "{said}");
    let notes = bench.journal();
    let of = |act: &str| notes.iter().filter(|n| n["act"] == act).collect::<Vec<_>>();
    assert_eq!((of("gate").len(), of("outage").len()), (4, 2), "{notes:?}");
    assert!(of("gate")[0]["subject"] == "endpoint" && of("gate")[0]["result"].as_str().unwrap().starts_with("closed"));
    // In the form that `overlaps:outage` understands.
    let outage = of("outage")[0];
    let (from, to) = outage["subject"].as_str().unwrap().split_once('/').unwrap();
    let read = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    let lasted = read(to).duration_since(read(from));
    assert!(lasted.as_secs() >= away().as_secs() as i64, "{outage}");
    assert!(outage["why"].as_str().unwrap().contains("model server gpu is gone"), "{outage}");
}

#[test]
fn trials_begin_whatever_servers_do_where_the_operator_says_so() {
    let bench = Bench::new(&["a", "b"]);
    let server = Fake::sglang();
    let named = format!("gpu={}", server.url());
    server.kill();
    let mut run = bench.run("1", &["--serving", &named, "--no-endpoint-gate"]);
    bench.go("a");
    bench.wait(1, 0, 1);
    assert_eq!(gate(&bench), None);
    bench.go("b");
    assert_eq!(run.end(), 0, "{}", bench.output());
}

const PASS: &str = "[ -e /tmp/two ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt";

fn containers() -> bool {
    let there = Command::new("docker").args(["image", "inspect", "tb-base:1"]).output();
    let there = there.is_ok_and(|out| out.status.success());
    if !there {
        support::skipped("in containers: no engine, or no image tb-base:1");
    }
    there
}

/// Plays a task in three answers; the first command takes so many seconds.
fn plays(seconds: f64) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    move |asked| {
        let say = |value: Value| Answer::say(&value.to_string());
        match asked.episode() {
            // A probe, or the first turn.
            0 if asked.last_text().contains("one word") => Answer::say("ready"),
            0 => say(json!({"analysis": "nothing yet", "plan": "make it", "commands":
                [{"keystrokes": "touch /tmp/one\n", "duration": seconds}]})),
            _ => say(json!({"analysis": "made", "plan": "none", "commands":
                [{"keystrokes": "mv /tmp/one /tmp/two\n", "duration": 0.3}], "task_complete": true})),
        }
    }
}

fn server(seconds: f64) -> ModelServer {
    let server = ModelServer::start();
    server.script(plays(seconds));
    server
}

fn endpoint(bench: &Bench, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .arg("endpoint")
        .arg(bench.job())
        .args(args)
        .env("PILOTHOUSE_STATE_DIR", &bench.state)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

/// The note of pilothouse's own in a task's trial.
fn own_note(bench: &Bench, task: &str) -> Value {
    let dirs = std::fs::read_dir(bench.job()).unwrap().flatten().map(|e| e.path());
    let begins = format!("{task}__");
    let of = |dir: &PathBuf| dir.file_name().unwrap().to_string_lossy().starts_with(&begins);
    let dir = dirs.into_iter().find(of).unwrap();
    serde_json::from_str(&std::fs::read_to_string(dir.join("pilothouse.json")).unwrap()).unwrap()
}

#[test]
fn a_trial_waits_at_its_call_and_goes_on_elsewhere() {
    if !containers() {
        return;
    }
    let bench = Bench::new(&[]);
    let toml = "[environment]\ndocker_image = \"tb-base:1\"";
    ["a", "b"].iter().for_each(|task| bench.task(task, "true", PASS, toml));
    let here = server(4.0);
    let base = here.base();
    let mut run = bench.begin(&bench.model_args("1", &base, &[]));
    until("a first answer", || here.chats().iter().any(|c| c.status == Some(200) && c.ended.is_some()));
    let status = bench.status();
    assert_eq!(status["endpoints"], json!([{"named": base, "base": base, "moves": 0, "closed": null}]));
    here.kill();
    until("a closed gate", || gate(&bench).is_some());
    until("a closed endpoint", || !bench.status()["endpoints"][0]["closed"].is_null());
    std::thread::sleep(away());
    bench.wait(1, 1, 0);

    // What is not as good as before is refused, and says why.
    let there = server(0.5);
    there.set(|face| face.context = Some(8_192));
    let out = endpoint(&bench, &[&there.base(), "-y"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("context is shorter: 8192 tokens, 32768 before"), "{out:?}");
    there.set(|face| {
        face.context = Some(32_768);
        face.models = vec!["other-1".to_string()];
    });
    let out = endpoint(&bench, &[&there.base(), "-y"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("does not serve scripted-1: its models are other-1"), "{said}");
    there.set(|face| face.models = vec!["scripted-1".to_string()]);
    there.script(|_| Answer::error(500, "no memory", "server_error", Value::Null));
    let out = endpoint(&bench, &[&there.base(), "-y"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("answers no question"), "{out:?}");
    assert_eq!(endpoint(&bench, &["not a url", "-y"]).status.code(), Some(1));
    there.script(plays(0.5));
    let out = endpoint(&bench, &[&there.base()]);
    assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("give -y"), "{out:?}");
    assert_eq!(bench.status()["endpoints"][0]["moves"], 0);

    // Moved: the one that waited goes on, the other begins.
    let out = endpoint(&bench, &[&there.base(), "-y", "--json", "--reason", "the old host died"]);
    let value: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    assert_eq!((&value["ok"], &value["probe"]["problems"]), (&true.into(), &json!([])), "{value}");
    assert_eq!(value["status"]["endpoints"][0]["base"], there.base());
    assert_eq!(run.end(), 0, "{}", bench.output());
    assert!(bench.results().iter().all(|(_, end)| end == "1.0") && bench.results().len() == 2, "{:?}", bench.results());
    assert!(there.chats().iter().any(|chat| chat.episode() > 0));

    // What was lost stands in the trial; one that did not wait lost nothing.
    let (a, b) = (own_note(&bench, "a")["endpoint"].clone(), own_note(&bench, "b")["endpoint"].clone());
    assert!(a["lost_sec"].as_f64().unwrap() >= 1.0 && a["phases"][0]["clock"] == "ran on", "{a}");
    assert_eq!((&b["lost_sec"], &b["phases"][0]["limit_sec"]), (&0.0.into(), &600.0.into()));
    let notes = bench.journal();
    let of = |act: &str| notes.iter().find(|n| n["act"] == act).unwrap_or_else(|| panic!("no {act}: {notes:?}"));
    let moved = of("endpoint");
    assert_eq!((&moved["subject"], &moved["why"]), (&there.base().into(), &"the old host died".into()));
    let result = moved["result"].as_str().unwrap();
    assert!(result.starts_with(&format!("moved from {base} to ")) && result.contains("serves scripted-1"), "{result}");
    assert!(of("outage")["subject"].as_str().unwrap().contains('/') && of("gate")["subject"] == "endpoint");
}

/// Where a model is served is no part of what a trial is; and what was moved stays moved.
#[test]
fn a_resume_keeps_what_was_done_elsewhere_and_goes_on_there() {
    if !containers() {
        return;
    }
    let bench = Bench::new(&[]);
    let toml = "[environment]\ndocker_image = \"tb-base:1\"";
    ["a", "b", "c"].iter().for_each(|task| bench.task(task, "true", PASS, toml));
    let (here, there) = (server(0.2), server(0.2));
    let mut run = bench.begin(&bench.model_args("1", &here.base(), &[]));
    until("the first trial's end", || bench.results().len() == 1);
    let out = endpoint(&bench, &[&there.base(), "-y"]);
    assert!(out.status.success(), "{out:?}");
    until("the second trial's end", || bench.results().len() == 2);
    run.0.kill().unwrap();
    run.0.wait().unwrap();
    here.kill();
    let (job, asked) = (bench.job(), there.chats().len());
    let args = ["run", "--resume", job.to_str().unwrap(), "-y", "--no-preflight", "--disk-floor", "0"];
    let mut again = bench.begin(&args.map(str::to_string));
    assert_eq!(again.end(), 0, "{}", bench.output());
    let said = bench.output();
    assert!(said.contains("2 of 3 planned trials are kept as they are, 1 are run"), "{said}");
    assert!(
        said.contains(&format!("the model is called at {}: moved there from {}", there.base(), here.base())),
        "{said}"
    );
    assert!(bench.results().iter().all(|(_, end)| end == "1.0") && bench.results().len() == 3, "{:?}", bench.results());
    assert!(there.chats().len() > asked);
}

#[test]
fn time_lost_to_an_outage_is_not_the_agents() {
    if !containers() {
        return;
    }
    // The same outage twice: the clock runs on, and it stands still.
    let ran = [&[][..], &["--pause-clock-on-outage"]].map(|more| {
        std::thread::spawn(move || {
            let bench = Bench::new(&[]);
            let toml = "[environment]\ndocker_image = \"tb-base:1\"";
            bench.task("a", "true", PASS, toml);
            let config = bench.path("tasks/a/task.toml");
            let text = std::fs::read_to_string(&config).unwrap().replace("600.0", "12.0");
            std::fs::write(&config, text).unwrap();
            let server = server(1.0);
            let mut run = bench.begin(&bench.model_args("1", &server.base(), more));
            until("a first answer", || server.chats().iter().any(|c| c.ended.is_some()));
            server.kill();
            until("a closed endpoint", || !bench.status()["endpoints"][0]["closed"].is_null());
            std::thread::sleep(Duration::from_secs(13));
            server.revive();
            run.end();
            bench
        })
    });
    let [on, still] = ran.map(|thread| thread.join().unwrap());
    assert_eq!(on.results(), [("a".to_string(), "AgentTimeoutError".to_string())]);
    assert_eq!(class_of(&on.job(), "a"), ("infra".to_string(), Some("model-api".to_string())));
    let note = own_note(&on, "a")["endpoint"].clone();
    assert!(note["lost_sec"].as_f64().unwrap() > 1.2 && note["phases"][0]["limit_sec"] == 12.0, "{note}");
    assert_eq!(still.results(), [("a".to_string(), "1.0".to_string())], "{}", still.output());
    let note = own_note(&still, "a")["endpoint"].clone();
    assert!(note["lost_sec"].as_f64().unwrap() > 10.0 && note["phases"][0]["clock"] == "stood still", "{note}");
}

#[test]
fn a_key_probes_asks_and_moves() {
    if !containers() {
        return;
    }
    let bench = Bench::new(&[]);
    bench.task("a", "true", PASS, "[environment]\ndocker_image = \"tb-base:1\"");
    let (here, there) = (server(300.0), server(0.5));
    let args = bench.model_args("1", &here.base(), &[]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let state = bench.state.to_str().unwrap();
    let mut pty = Pty::pilothouse(&args, 140, 40, &[("PILOTHOUSE_STATE_DIR", state)]);
    pty.wait_for("1/1 slots", SOON);
    until("a first answer", || here.chats().iter().any(|c| c.ended.is_some()));
    let typed = |pty: &mut Pty, url: &str| {
        pty.send("E");
        pty.wait_for("Enter probes it", SOON);
        pty.send("\u{15}");
        pty.send(url);
        pty.send("\r");
        pty.wait_for("call the model elsewhere?", SOON);
    };
    // What is not as good is shown, and nothing else is offered.
    there.set(|face| face.context = Some(1_024));
    typed(&mut pty, &there.base());
    pty.wait_for("! its context is shorter: 1024 tokens", SOON);
    assert!(!pty.text().contains("move it"), "{}", pty.text());
    pty.send(key::ENTER);
    pty.wait_gone("call the model elsewhere?", SOON);
    there.set(|face| face.context = Some(65_536));
    typed(&mut pty, &there.base());
    pty.wait_for("serves scripted-1", SOON);
    pty.wait_for("context 65536 tokens", SOON);
    // The focus is on the harmless answer.
    pty.send(key::ENTER);
    pty.wait_gone("call the model elsewhere?", SOON);
    assert_eq!(bench.status()["endpoints"][0]["moves"], 0);
    typed(&mut pty, &there.base());
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    until("a move", || bench.status()["endpoints"][0]["moves"] == 1);
    assert_eq!(bench.status()["endpoints"][0]["base"], there.base());
    bench.ask(&["cancel", "-y"]);
    pty.wait_for("job over", SOON);
    pty.send("q");
    pty.wait_exit(SOON);
    pty.assert_restored();
    // Beside what is noted by itself: what the servers did, an outage on a machine that is busy.
    let notes = bench.journal();
    let mine: Vec<&Value> = notes.iter().filter(|n| n["act"] == "endpoint" || n["act"] == "stop").collect();
    assert_eq!(mine.iter().map(|n| n["act"].as_str().unwrap()).collect::<Vec<_>>(), ["endpoint", "stop"]);
    assert!(mine[0]["why"].as_str().unwrap().contains("on the screen"));
}
