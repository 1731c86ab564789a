//! A program of a few lines that does what its task says.

use std::fs;

use serde_json::json;

use super::{Ran, SECRET, agent, files, pilothouse, ran, tell};
use crate::eyes::Eyes;
use crate::support::skipped;
use crate::yard::{IMAGE, Yard, engine, left_of};

/// A secret that the operator gives with --ae.
const OTHER: &str = "another-secret-of-the-operator";

/// Writes down what it is told and does what its task says; needs a plain `sh` and no more.
const PROGRAM: &str = r#"#!/bin/sh
# usage: fake LOGS MODEL EFFORT FILE
echo "model=$2 effort=$3 key=$FAKE_KEY base=$FAKE_URL ae=$AE$AE_API_KEY $(cat "$4")"
usage() { echo "{\"usage\": {\"in\": $1, \"cached\": $2, \"out\": $3}, \"cost\": $4}" >> "$USAGE"; }
USAGE=$1/usage.jsonl
mode=$(sed -n 's/.*fake:\([a-z-]*\).*/\1/p' "$4")
usage 100 40 7 0.25
echo "no tokens here" >> "$USAGE"
case $mode in
  solve) usage 200 150 9 0.5; mkdir -p /app; echo 42 > /app/answer ;;
  context) echo "rate limit, waiting"; printf 'the conversation no longer\nfits'; exit 3 ;;
  long) i=0; while [ $i -lt 400 ]; do echo "line $i of many"; i=$((i + 1)); done; printf '\033[31mthe end %s\033[0m' "$FAKE_KEY"; exit 9 ;;
  killed) kill -9 $$ ;;
  hang)
    # A server that it lets go, and a command that it waits for.
    (trap '' TERM; echo $$ > /tmp/x; exec sleep 7001) & 
    (setsid sleep 7002 >/dev/null 2>&1 &)
    sleep 7003 ;;
  hostile) rm -f "$USAGE"; mkfifo "$USAGE"; ln -s /etc/passwd "$1/trajectory.json"; mkdir "$1/odd" ;;
esac
"#;

fn file() -> String {
    format!(
        r#"
name = "fake"
model = "required"

[setup]
check = "test -x /opt/fake"
install = '''
mkdir -p /opt
printf %s "$program" > /opt/fake
chmod 755 /opt/fake
echo "$INSTALL_WORD" > "$logs/installed"
'''
user = "root"
version = "echo fake 3.1"
env = {{ program = {PROGRAM:?}, INSTALL_WORD = "yes" }}

[run]
command = 'exec /opt/fake "$logs" "$model_name" "$opt_effort" "$instruction_file"'
pass = ["FAKE_URL"]
keep_alive_sec = 1

[keys]
any = ["FAKE_KEY"]

[options.effort]
choices = ["low", "high"]
default = "low"

[tokens]
file = "usage.jsonl"
form = "jsonl"
sum = true
input = "/usage/in"
cached = "/usage/cached"
output = "/usage/out"
cost = "/cost"

[[errors]]
pattern = 'conversation no longer fits'
kind = "ContextWindowExceededError"
"#
    )
}

const CHECK: &str = "[ \"$(cat /app/answer)\" = 42 ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt";
/// Passes where nothing of the agent is left but the server that it let go.
const LEFT: &str = "r=1; for n in 7001 7003; do pgrep -f \"sleep $n\" && r=0; done; pgrep -f /opt/fake && r=0; \
                    pgrep -f 'sleep 7002' || r=0; echo $r > /logs/verifier/reward.txt";
/// Passes where the agent still works.
const WORKS: &str = "pgrep -f 'sleep 7003' && r=1 || r=0; echo $r > /logs/verifier/reward.txt";

fn job(yard: &Yard, more: &[&str]) -> Option<Ran> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Err(why) = runtime.block_on(engine()) {
        skipped(&format!("in containers: {why}"));
        return None;
    }
    agent(yard, "fake", &file());
    let key = format!("AE_API_KEY={OTHER}");
    let args = ["-a", "fake", "-m", "scripted/one", "--ak", "effort=high", "--ae", "AE=mine", "--ae", &key];
    let args = [&args[..], more].concat();
    let eyes = Eyes::open(&yard.dir());
    let out = pilothouse(yard, &args, &[("FAKE_KEY", SECRET), ("FAKE_URL", "http://there")]);
    // Only the agent's own surroundings have the key: no command line, no container's settings, no event.
    // What was said by --ae on our own command line is the operator's doing.
    let mut seen = eyes.close();
    assert!(!seen.containers.is_empty() && seen.told.contains("exec_start"), "{:?}", seen.containers);
    assert!(seen.lines.iter().any(|line| line.contains("/opt/fake")), "{:?}", seen.lines);
    seen.lines.retain(|line| !line.contains("--ae AE_API_KEY="));
    seen.assert_without(&[SECRET, OTHER]);
    Some(ran(yard, &out))
}

#[test]
fn a_program_is_installed_run_and_understood() {
    let mut yard = Yard::new();
    let short = format!("[agent]\ntimeout_sec = 3\n{IMAGE}");
    let ash = "[environment]\ndocker_image = \"pilothouse-test:1\"";
    for (name, check, toml) in [
        ("solve", CHECK, IMAGE),
        ("context", CHECK, IMAGE),
        ("long", CHECK, IMAGE),
        ("killed", CHECK, IMAGE),
        ("hang", LEFT, &*short),
        ("hostile", CHECK, IMAGE),
        ("ash", CHECK, ash),
    ] {
        yard = yard.task(name, "exit 1", check, toml);
        let mode = if name == "ash" { "solve" } else { name };
        tell(&yard, &format!("Do it: 'fake:{mode}' \"$HOME\" `id`\n"));
    }
    let Some(ran) = job(&yard, &[]) else { return };

    // It works, and what it was told is what the operator said.
    assert_eq!(ran.end("solve"), (Some(1.0), None), "{}", ran.said);
    let printed = ran.text("solve", "fake.txt");
    let told = "model=one effort=high key=**** base=http://there ae=mine**** Do it: 'fake:solve' \"$HOME\" `id`";
    assert!(printed.starts_with(told), "{printed}");
    assert_eq!(ran.text("solve", "installed"), "yes\n");
    assert_eq!(ran.used("solve"), [Some(300.0), Some(190.0), Some(16.0), Some(0.75)]);
    let info = &ran.result("solve")["agent_info"];
    assert_eq!((info["name"].as_str(), info["version"].as_str()), (Some("fake"), Some("3.1")));
    assert_eq!(ran.metadata("solve")["exit_code"], 0);
    assert_eq!(ran.metadata("solve")["pilothouse"]["agent_file"]["of"], "own");
    let usage = &ran.result("solve")["agent_result"]["model_usage"]["scripted/one"];
    assert_eq!(usage["n_input_tokens"], 300);
    let trajectory = ran.trajectory("solve");
    assert_eq!(trajectory["steps"].as_array().unwrap().len(), 2);
    assert!(trajectory["steps"][0]["message"].as_str().unwrap().contains("fake:solve"));
    assert!(trajectory["steps"][1]["observation"]["results"][0]["content"].as_str().unwrap().starts_with("model=one"));
    assert_eq!(trajectory["final_metrics"]["total_prompt_tokens"], 300);
    let session = trajectory["session_id"].as_str().unwrap();
    assert!(session.starts_with("solve__") && session.ends_with("__agent"), "{session}");

    // A plain shell and no bash.
    let ash = ran.result("ash");
    assert_eq!(ran.metadata("ash")["exit_code"], 0, "{ash}");
    assert_eq!(ran.used("ash")[0], Some(300.0));

    // Last words: line ends do not matter, what came before them does not either. It is graded.
    assert_eq!(ran.end("context"), (Some(0.0), Some("ContextWindowExceededError")));
    assert_eq!(ran.metadata("context")["exit_code"], 3);
    assert_eq!(ran.used("context")[0], Some(100.0));
    // Nothing that is known: beginning and end of what it printed, without its key and its colours.
    assert_eq!(ran.end("long"), (Some(0.0), Some("NonZeroAgentExitCodeError")));
    let message = ran.message("long");
    let begins =
        message.starts_with("Command failed (exit 9): exec /opt/fake") && message.contains("stdout: model=one");
    assert!(begins && message.contains(" chars truncated] ... ") && message.contains("line 399 of many"), "{message}");
    assert!(message.ends_with("the end ****\nstderr: None"), "{message}");
    assert_eq!(ran.end("killed").1, Some("NonZeroAgentExitCodeError"));
    assert_eq!(ran.metadata("killed")["exit_code"], 137);

    // Its time is over: tokens so far, its processes ended, the server that it let go not.
    assert_eq!(ran.end("hang"), (Some(1.0), Some("AgentTimeoutError")), "{}", ran.said);
    assert_eq!(ran.used("hang"), [Some(100.0), Some(40.0), Some(7.0), Some(0.25)]);
    let deviations = ran.metadata("hang")["pilothouse"]["deviations"][0].as_str().unwrap();
    assert!(deviations.ends_with("processes of the agent were ended before the tests"), "{deviations}");
    assert_eq!(ran.trajectory("hang")["final_metrics"]["total_prompt_tokens"], 100);

    // A FIFO where tokens are expected, a link where the trajectory goes.
    assert_eq!(ran.end("hostile").1, None);
    assert_eq!(ran.used("hostile"), [None; 4]);
    let remark = ran.metadata("hostile")["remark"].as_str().unwrap();
    assert!(remark.contains("usage.jsonl: a FIFO"), "{remark}");
    assert_eq!(ran.trajectory("hostile")["agent"]["name"], "fake");

    // The key is in no file; nothing is left.
    for path in files(yard.temp.path()) {
        let bytes = fs::read(&path).unwrap();
        for secret in [SECRET, OTHER] {
            assert!(memchr::memmem::find(&bytes, secret.as_bytes()).is_none(), "{}", path.display());
        }
    }
    assert!(!ran.said.contains(SECRET), "{}", ran.said);
    let config = crate::yard::json(&yard.dir().join("config.json"));
    assert_eq!(config["agents"][0]["kwargs"], json!({"effort": "high"}));
    let id = crate::yard::json(&yard.dir().join("result.json"))["id"].as_str().unwrap().to_string();
    assert_eq!(left_of(&id), "");
}

#[test]
fn its_processes_may_go_on_while_the_tests_run() {
    let yard = Yard::new().task("hang", "exit 1", WORKS, &format!("[agent]\ntimeout_sec = 3\n{IMAGE}"));
    tell(&yard, "fake:hang\n");
    let Some(ran) = job(&yard, &["--ak", "end_after_timeout=false"]) else { return };
    assert_eq!(ran.end("hang"), (Some(1.0), Some("AgentTimeoutError")), "{}", ran.said);
    assert_eq!(ran.metadata("hang")["pilothouse"]["deviations"], json!([]));
    assert_eq!(ran.used("hang")[0], Some(100.0));
}

/// Without a container: the same, where paths are what they are here.
#[test]
fn a_program_works_without_a_container() {
    let passes = "[ \"$(cat \"$APP_DIR/answer\")\" = 42 ] && r=1 || r=0; echo $r > \"$LOGS_DIR/verifier/reward.txt\"";
    let slow = "[agent]\ntimeout_sec = 1";
    let yard = Yard::new().task("quick", "exit 1", passes, "").task("slow", "exit 1", passes, slow);
    let text = r#"
name = "plain"
model = "none"
[run]
command = '''
echo "$instruction" | tee "$logs/seen"
echo 42 > "$APP_DIR/answer"
echo "used 1,200 in and 34 out"
case $PWD in *slow*) sleep 7004 ;; esac
'''
[tokens]
file = "plain.txt"
form = "text"
pattern = 'used (?P<input>[\d,]+) in and (?P<output>\d+) out'
"#;
    agent(&yard, "plain", text);
    let ran = ran(&yard, &pilothouse(&yard, &["-a", "plain", "-e", "local"], &[]));
    assert_eq!(ran.end("quick"), (Some(1.0), None), "{}", ran.said);
    assert_eq!(ran.used("quick"), [Some(1200.0), None, Some(34.0), None]);
    assert_eq!(ran.text("quick", "seen"), "Do it.\n\n");
    assert_eq!(ran.result("quick")["agent_info"]["version"], "unknown");
    assert_eq!(ran.end("slow"), (Some(1.0), Some("AgentTimeoutError")), "{}", ran.said);
    assert_eq!(ran.used("slow")[2], Some(34.0));
}

/// Installation that fails is no run: nothing is graded, and its own words are kept.
#[test]
fn an_installation_that_fails_says_why() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Err(why) = runtime.block_on(engine()) {
        return skipped(&format!("in containers: {why}"));
    }
    let yard = Yard::new().task("t", "exit 1", CHECK, IMAGE);
    let text = "name = \"broken\"\n[setup]\ninstall = \"echo looking; echo 'curl: (6) Could not resolve host: x' >&2; \
                exit 6\"\n[run]\ncommand = \"true\"\n";
    agent(&yard, "broken", text);
    let ran = ran(&yard, &pilothouse(&yard, &["-a", "broken"], &[]));
    assert_eq!(ran.end("t"), (None, Some("NetworkConnectionError")), "{}", ran.said);
    assert!(ran.message("t").contains("stdout: looking\ncurl: (6)"), "{}", ran.message("t"));
    assert!(ran.result("t")["agent_execution"].is_null());
    assert!(ran.text("t", "setup/install.txt").starts_with("looking"));
}
