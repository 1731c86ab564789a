//! Holding a trial's container where the verifier can not be trusted, and running the verifier again in it:
//! headless and with `V`. Needs an engine with the image tb-base:1, and says so where there is none.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::indexing_slicing,
    clippy::zombie_processes,
    missing_docs
)]

mod support;
#[path = "support/yard.rs"]
mod yard;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::pty::{Pty, key};
use yard::{IMAGE, PASS_INSIDE, Yard, docker, json};

/// The longest that anything here is waited for.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server that answers on all addresses of this machine, until it is dropped.
struct Mirror {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Mirror {
    fn open(port: u16) -> Mirror {
        let begin = Instant::now();
        let listener = loop {
            match TcpListener::bind(("0.0.0.0", port)) {
                Ok(listener) => break listener,
                Err(e) => assert!(begin.elapsed() < PATIENCE, "port {port}: {e}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => {
                        let _ = stream.set_nonblocking(false);
                        let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                        let _ = stream.read(&mut [0; 1024]);
                        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nuv\n");
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        });
        Mirror { stop, thread: Some(thread) }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// A job of tasks in containers, with a state dir of its own. What it holds is removed at the end, whatever
/// happens.
struct Stage {
    yard: Yard,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some(id) = self.id() else { return };
        for (list, remove) in [
            (vec!["ps", "-aq"], vec!["rm", "-f"]),
            (vec!["network", "ls", "-q"], vec!["network", "rm"]),
            (vec!["images", "-q"], vec!["rmi", "-f"]),
        ] {
            let label = format!("label=pilothouse.job={id}");
            let found = docker(&[&list[..], &["--filter", &label]].concat());
            for thing in found.split_whitespace() {
                docker(&[&remove[..], &[thing]].concat());
            }
        }
    }
}

impl Stage {
    fn new(yard: Yard) -> Option<Stage> {
        let here = Command::new("docker").args(["image", "inspect", "tb-base:1"]).output();
        if !here.is_ok_and(|out| out.status.success()) {
            support::skipped("regrades: no engine with the image tb-base:1");
            return None;
        }
        Some(Stage { yard })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.yard.temp.path().join(path)
    }

    fn id(&self) -> Option<String> {
        let bytes = fs::read(self.yard.dir().join("result.json")).ok()?;
        Some(serde_json::from_slice::<Value>(&bytes).ok()?["id"].as_str()?.to_string())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(args).current_dir(self.yard.temp.path()).stdin(Stdio::null());
        command.env("PILOTHOUSE_STATE_DIR", self.at("state")).env("HOME", self.at(""));
        command
    }

    fn call(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What it prints, as JSON, whatever it ends with.
    fn asked(&self, args: &[&str]) -> Value {
        let out = self.call(args);
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {out:?}"))
    }

    const RUN: [&'static str; 11] =
        ["run", "-p", "tasks", "-a", "oracle", "--jobs-dir", "jobs", "--job-name", "job", "-y", "--headless"];

    fn run(&self, more: &[&str]) -> String {
        let out = self.call(&[&Stage::RUN[..], more].concat());
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    }

    fn trial(&self, task: &str) -> PathBuf {
        let dirs = fs::read_dir(self.yard.dir()).unwrap().flatten().map(|e| e.path());
        let of_task = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().starts_with(&format!("{task}__"));
        dirs.into_iter().find(of_task).unwrap_or_else(|| panic!("no trial of {task}"))
    }

    fn held(&self) -> Vec<Value> {
        let all = self.asked(&["held", "--json"])["held"].as_array().unwrap().clone();
        let id = self.id();
        all.into_iter().filter(|h| h["job_id"].as_str() == id.as_deref()).collect()
    }

    fn score(&self, name: &str, more: &[&str]) -> (i64, i64) {
        let tally = self.asked(&[&["tally", "--json", "jobs/job"][..], more].concat());
        let score = tally["scores"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone();
        (score["numerator"].as_i64().unwrap(), score["denominator"].as_i64().unwrap())
    }

    fn left(&self) -> String {
        let label = format!("label=pilothouse.job={}", self.id().unwrap());
        docker(&["ps", "-aq", "--filter", &label])
            + &docker(&["network", "ls", "-q", "--filter", &label])
            + &docker(&["images", "-q", "--filter", &label])
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The agent starts a service with something in its memory that is nowhere else; it counts its own runs.
const SOLVE: &str = "echo run >> /app/runs
cat > /app/service.py <<'END'
import http.server, os
token = os.urandom(8).hex()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(token.encode())
    def log_message(self, *a): pass
http.server.HTTPServer(('127.0.0.1', 8123), Handler).serve_forever()
END
nohup python3 /app/service.py > /dev/null 2>&1 &
for i in $(seq 100); do curl -fs http://127.0.0.1:8123/ > /app/token && break; sleep 0.1; done";

/// The verifier fetches its tool, then asks whether the service is the very same and the agent ran once.
fn needs_network(port: u16) -> String {
    format!(
        "echo begun; mkdir -p /logs/verifier
( sleep 1000 & ) > /dev/null 2>&1
if ! curl -sS --max-time 10 http://172.17.0.1:{port}/install.sh -o /tmp/uv; then
  echo 'uvx: command not found'; echo 0 > /logs/verifier/reward.txt; exit 0
fi
echo 'test session starts'; reward=1
[ \"$(curl -fs http://127.0.0.1:8123/)\" = \"$(cat /app/token)\" ] || reward=0
[ \"$(wc -l < /app/runs)\" = 1 ] || reward=0
[ -z \"$MORE\" ] || echo \"more: $MORE\"
echo $reward > /logs/verifier/reward.txt; echo '1 passed in 0.01s'"
    )
}

fn free_port() -> u16 {
    TcpListener::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port()
}

fn paused(name: &str) -> bool {
    docker(&["inspect", "-f", "{{.State.Paused}}", name]).trim() == "true"
}

#[test]
fn a_verifier_without_network_runs_again_in_the_held_container() {
    let port = free_port();
    let yard = Yard::new().task("net", SOLVE, &needs_network(port), IMAGE).task("good", "true", PASS_INSIDE, IMAGE);
    let Some(stage) = Stage::new(yard) else { return };
    let said = stage.run(&[]);
    assert!(said.contains("held as pilothouse-held-"), "{said}");
    let trial = stage.trial("net");
    let shown = trial.to_str().unwrap();
    let [held] = &stage.held()[..] else { panic!("{said}\n{:?}", stage.held()) };
    let name = held["name"].as_str().unwrap().to_string();
    assert!(paused(&name), "{held}");
    let why = held["why"].as_str().unwrap();
    assert!(why.contains("curl: (7)"), "{held}");
    assert_eq!((held["state"].as_str(), held["owner_alive"].as_bool()), (Some("paused"), Some(false)), "{held}");
    assert!(held["memory_bytes"].as_u64().unwrap() > 0 && held["until"].is_string(), "{held}");
    assert_eq!(json(&trial.join("pilothouse.json"))["held"]["held"], true);
    // Listed as held and not as left over; not removed on a general word.
    let clean = stage.asked(&["clean", "--json", "-y", "jobs/job"]);
    let owners: Vec<_> = clean["things"].as_array().unwrap().iter().map(|t| t["owner"].clone()).collect();
    assert!(owners.len() >= 2 && owners.iter().all(|o| o == "held"), "{clean}");
    assert!(paused(&name));
    let (raw, output) =
        (fs::read(trial.join("result.json")).unwrap(), fs::read(trial.join("verifier/test-stdout.txt")));
    assert_eq!((stage.score("raw", &[]), stage.score("corrected", &[])), ((1, 2), (1, 2)));

    // Not without being asked.
    let out = stage.call(&["regrade", shown]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert!(!trial.join("regrade-1.json").exists());
    // Still without the network: the same answer, on record all the same.
    let first = stage.asked(&["regrade", shown, "-y", "--json"]);
    assert_eq!(first["verifier_result"]["rewards"]["reward"], 0.0, "{first}");
    let mirror = Mirror::open(port);
    let second = stage.asked(&["regrade", shown, "-y", "--json", "--timeout", "60", "--env", "MORE=open-sesame-123"]);
    assert_eq!(second["verifier_result"]["rewards"]["reward"], 1.0, "{second}");
    assert_eq!((second["n"].as_u64(), second["processes_lost"].as_bool()), (Some(2), Some(false)), "{second}");
    assert_eq!(second["settings"]["env"], serde_json::json!(["MORE"]), "{second}");
    let record = fs::read_to_string(trial.join("regrade-2.json")).unwrap();
    assert!(!record.contains("open-sesame-123"), "{record}");
    // The first word stays as it was, with what the verifier printed then.
    assert_eq!(fs::read(trial.join("result.json")).unwrap(), raw);
    assert_eq!(fs::read(trial.join("verifier/test-stdout.txt")).unwrap(), output.unwrap());
    let kept = fs::read_to_string(trial.join("regrade-2.test-stdout.txt")).unwrap();
    assert!(kept.contains("1 passed") && kept.contains("more: open-sesame-123"), "{kept}");
    assert!(paused(&name));
    assert_eq!((stage.score("raw", &[]), stage.score("corrected", &[])), ((1, 2), (2, 2)));
    assert_eq!(stage.score("corrected", &["--regrades", "ignore"]), (1, 2));
    let tally = stage.asked(&["tally", "--json", "jobs/job"]);
    assert_eq!(tally["regrades"]["mode"], "use", "{tally}");
    assert_eq!((&tally["regrades"]["used"], &tally["regrades"]["more_passed"]), (&1.into(), &1.into()));
    let row = tally["trials"].as_array().unwrap().iter().find(|t| t["task"] == "net").unwrap();
    let counts: Vec<_> = row["regrades"].as_array().unwrap().iter().map(|r| r["counts"].as_bool().unwrap()).collect();
    assert_eq!((row["reward"].as_f64(), counts), (Some(0.0), vec![false, true]), "{row}");
    let plain = String::from_utf8(stage.call(&["tally", "jobs/job"]).stdout).unwrap();
    assert!(plain.contains("regrade 1: reward 0 · regrade 2: reward 1"), "{plain}");
    let status = stage.asked(&["status", "--json", "jobs/job"]);
    assert_eq!(status["regrades"], tally["regrades"]);
    let triage = stage.call(&["triage", "jobs/job"]);
    assert_eq!(triage.status.code(), Some(0), "{triage:?}");
    assert!(String::from_utf8_lossy(&triage.stdout).contains("regrade 2: reward 1"), "{triage:?}");
    // The operator is asked of in the journal, before and after.
    let journal = fs::read_to_string(stage.yard.dir().join("pilothouse.jsonl")).unwrap();
    assert_eq!(journal.lines().filter(|l| l.contains("\"act\":\"regrade\"")).count(), 4, "{journal}");

    // No other one at the same time, and none of a task that is another one now.
    let tests = stage.at("tasks/net/tests/test.sh");
    let old = fs::read(&tests).unwrap();
    fs::write(&tests, format!("#!/bin/bash\n{PASS_INSIDE}\n")).unwrap();
    assert_eq!(stage.call(&["regrade", shown, "-y"]).status.code(), Some(1));
    let changed = stage.asked(&["regrade", shown, "-y", "--json", "--changed-task"]);
    assert_eq!((&changed["task_changed"], &changed["n"]), (&true.into(), &3.into()), "{changed}");
    fs::write(&tests, old).unwrap();
    assert_eq!(stage.score("corrected", &[]), (2, 2));

    // On the screen, with another word of the verifier's meanwhile.
    drop(mirror);
    assert_eq!(stage.asked(&["regrade", shown, "-y", "--json"])["verifier_result"]["rewards"]["reward"], 0.0);
    assert_eq!(stage.score("corrected", &[]), (1, 2));
    let mirror = Mirror::open(port);
    on_the_screen(&stage, &trial);
    drop(mirror);
    assert_eq!((stage.score("raw", &[]), stage.score("corrected", &[])), ((1, 2), (2, 2)));
    assert_eq!(fs::read(trial.join("result.json")).unwrap(), raw);

    // Nothing is left once it is removed.
    assert_eq!(stage.call(&["held", "remove", &name]).status.code(), Some(1));
    let out = stage.call(&["held", "remove", &name, "-y"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(stage.left(), "", "{out:?}");
    assert_eq!(stage.held(), Vec::<Value>::new());
    let records = fs::read_dir(stage.at("state/held")).unwrap().count();
    assert_eq!(records, 0);
    let gone = stage.asked(&["regrade", shown, "-y", "--json"]);
    assert!(gone["refused"].as_str().unwrap().contains("held"), "{gone}");
    assert!(gone["offers"][0]["command"].as_str().unwrap().starts_with("pilothouse requeue "), "{gone}");
}

/// `V` on the failed trial: what is done is told, the harmless answer has the focus, what comes of it shows.
fn on_the_screen(stage: &Stage, trial: &Path) {
    let (home, state) = (stage.at(""), stage.at("state"));
    let env = [("HOME", home.to_str().unwrap()), ("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())];
    let dir = stage.yard.dir();
    let mut pty = Pty::pilothouse(&["attach", dir.to_str().unwrap()], 120, 36, &env);
    pty.wait_for("net", PATIENCE);
    // The list says of which trial something is held.
    pty.wait_for("failed, held", PATIENCE);
    pty.send("/held:any");
    pty.send(key::ENTER);
    pty.wait_for("0→0", PATIENCE);
    pty.send("V");
    pty.wait_for("run the verifier again", PATIENCE);
    pty.wait_for("pilothouse-held-", PATIENCE);
    pty.wait_for("let it be", PATIENCE);
    pty.send(key::ENTER);
    pty.wait_gone("let it be", PATIENCE);
    assert!(!trial.join("regrade-5.json").exists());
    pty.send("V");
    pty.wait_for("let it be", PATIENCE);
    pty.wait_for("pilothouse-held-", PATIENCE);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_for("raw 0, regrade 5: 1", PATIENCE);
    pty.send(key::ENTER);
    pty.wait_for("raw 0, regrade 5: 1", PATIENCE);
    pty.send("q");
    pty.send("q");
    // Another trial has nothing that is held: the reason is told.
    pty.send("F");
    pty.send("/good");
    pty.send(key::ENTER);
    pty.send("V");
    pty.wait_for("nothing to run the verifier", PATIENCE);
    pty.send(key::ESC);
    pty.send(key::CTRL_C);
    pty.wait_exit(PATIENCE);
}

/// Its tests never get through.
const UNTRUSTED: &str = "echo 'curl: (6) Could not resolve host: mirror.example.org'; echo 'uvx: command not found'
echo 0 > /logs/verifier/reward.txt";

#[test]
fn caps_are_kept_and_the_age_while_the_run_lives() {
    let late = format!("sleep 1; {UNTRUSTED}");
    let yard = Yard::new().task("one", "true", UNTRUSTED, IMAGE).task("two", "true", &late, IMAGE);
    let Some(stage) = Stage::new(yard) else { return };
    stage.run(&["--hold-max", "1", "-n", "2"]);
    let held = stage.held();
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(held[0]["trial"].as_str().unwrap().starts_with("two__"), "{held:?}");
    let expired = stage.call(&["held", "remove", "--job", "jobs/job", "--expired", "-y"]);
    assert_eq!(expired.status.code(), Some(0), "{expired:?}");
    assert_eq!(stage.held().len(), 1);
    assert_eq!(stage.call(&["held", "remove", "--job", "jobs/job", "-y"]).status.code(), Some(0));
    assert_eq!(stage.left(), "");

    for flags in [&["--no-hold"][..], &["--hold-memory", "0"]] {
        fs::remove_dir_all(stage.at("jobs")).unwrap();
        let said = stage.run(&[flags, &["-n", "2"]].concat());
        assert_eq!((stage.left(), stage.held().len()), (String::new(), 0), "{flags:?} {said}");
        let note = json(&stage.trial("one").join("pilothouse.json"));
        assert!(note["held"]["words"].as_str().unwrap().contains("not held"), "{note}");
        let refused = stage.asked(&["regrade", stage.trial("one").to_str().unwrap(), "--json", "-y"]);
        assert!(refused["refused"].as_str().unwrap().contains("not held"), "{refused}");
    }

    // The run itself lets it go when its age is over.
    fs::remove_dir_all(stage.at("jobs")).unwrap();
    fs::write(stage.at("tasks/two/solution/solve.sh"), "#!/bin/bash\nsleep 3\n").unwrap();
    let said = stage.run(&["--hold-age", "0.5s", "-n", "2"]);
    assert!(said.contains("is not held any more"), "{said}");
    let held = stage.held();
    assert!(held.len() <= 1 && held.iter().all(|h| h["trial"].as_str().unwrap().starts_with("two__")), "{held:?}");
    until("the age is over", || stage.held().iter().all(|h| h["expired"] == true));
    assert_eq!(stage.call(&["held", "remove", "--job", "jobs/job", "--expired", "-y"]).status.code(), Some(0));
}

#[test]
fn an_attempt_that_is_tried_again_lets_its_container_go() {
    let yard = Yard::new().task("none", "true", "echo nothing", IMAGE);
    let Some(stage) = Stage::new(yard) else { return };
    let said = stage.run(&["--max-retries", "1", "--retry-exclude", "NoSuchError"]);
    let trial = stage.trial("none");
    assert!(trial.join("retries/1/held/verifier").is_dir(), "{said}");
    let [held] = &stage.held()[..] else { panic!("{said}: {:?}", stage.held()) };
    assert!(held["why"].as_str().unwrap().contains("no reward"), "{held}");
    // The one that is held is the last attempt's.
    let done = stage.asked(&["regrade", trial.to_str().unwrap(), "-y", "--json", "--release"]);
    assert_eq!(done["exception_info"]["exception_type"], "RewardFileNotFoundError", "{done}");
    assert_eq!(done["logs"], serde_json::json!(["regrade-1.test-stdout.txt"]), "{done}");
    // The network goes with the last thing that was held.
    assert_eq!(stage.left(), "");
}

#[test]
fn what_a_killed_owner_held_is_listed_kept_by_a_resume_and_removable() {
    let yard = Yard::new().task("net", "true", UNTRUSTED, IMAGE).task("slow", "sleep 600", PASS_INSIDE, IMAGE);
    let Some(stage) = Stage::new(yard) else { return };
    let log = fs::File::create(stage.at("log")).unwrap();
    let mut run = stage
        .command(&[&Stage::RUN[..], &["-n", "2", "--heartbeat", "0.4"]].concat())
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("its result", || {
        let dirs = fs::read_dir(stage.yard.dir()).into_iter().flatten().flatten();
        dirs.map(|e| e.path()).any(|p| p.join("result.json").exists() && p.to_string_lossy().contains("net__"))
    });
    run.kill().unwrap();
    run.wait().unwrap();
    let [held] = &stage.held()[..] else { panic!("{:?}", stage.held()) };
    let name = held["name"].as_str().unwrap().to_string();
    assert_eq!((held["owner_alive"].as_bool(), paused(&name)), (Some(false), true), "{held}");
    // Its record may be lost, too: what the engine keeps says enough.
    fs::remove_dir_all(stage.at("state/held")).unwrap();
    assert_eq!(stage.held()[0]["on_record"], false);
    // A stop names it, and what is left over beside it.
    let audit = stage.asked(&["stop", "--audit-only", "--json", "jobs/job"]);
    assert!(audit.to_string().contains(&name), "{audit}");
    let clean = stage.asked(&["clean", "--json", "-y", "jobs/job"]);
    assert!(paused(&name), "{clean}");
    // The other one is run anew; a held one stays.
    fs::write(stage.at("tasks/slow/solution/solve.sh"), "#!/bin/bash\nsleep 600\n").unwrap();
    let mut again = stage.command(&["run", "--resume", "jobs/job", "-y", "--headless", "--heartbeat", "0.4"]);
    let mut again = again.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = format!("label=pilothouse.job={}", stage.id().unwrap());
    until("the other one at work", || {
        docker(&["ps", "-q", "--filter", &id, "--filter", "name=slow__"]).trim().len() > 6
    });
    assert!(paused(&name));
    rustix::process::kill_process(rustix::process::Pid::from_child(&again), rustix::process::Signal::TERM).unwrap();
    again.wait().unwrap();
    assert!(paused(&name));
    let out = stage.call(&["held", "remove", stage.trial("net").to_str().unwrap(), "-y"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(stage.left(), "", "{out:?}");
}

#[test]
fn a_hostile_verifier_is_held_and_its_files_lead_nowhere() {
    let fifo =
        "rm -f /logs/verifier/reward.txt; mkfifo /logs/verifier/reward.txt; ln -s /etc/shadow /logs/verifier/ctrf.json";
    let yard = Yard::new().task("fifo", "true", fifo, IMAGE);
    let Some(stage) = Stage::new(yard) else { return };
    stage.run(&[]);
    let trial = stage.trial("fifo");
    let shown = trial.to_str().unwrap();
    let [held] = &stage.held()[..] else { panic!("{:?}", stage.held()) };
    let name = held["name"].as_str().unwrap().to_string();
    let out = stage.call(&["regrade", shown, "-y", "--json"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let record = json(&trial.join("regrade-1.json"));
    assert_eq!(record["exception_info"]["exception_type"], "VerifierOutputParseError", "{record}");
    assert_eq!(record["logs"], serde_json::json!(["regrade-1.test-stdout.txt"]), "{record}");
    assert!(!trial.join("regrade-1.ctrf.json").exists());
    // The original's own are where they were, whatever they are.
    assert!(fs::symlink_metadata(trial.join("verifier/ctrf.json")).unwrap().is_symlink());
    // A link where the container's directory was: nothing is followed, nothing is done.
    let (apart, elsewhere) = (trial.join("held/verifier"), stage.at("elsewhere"));
    fs::rename(&apart, trial.join("held/moved")).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &apart).unwrap();
    let refused = stage.asked(&["regrade", shown, "-y", "--json"]);
    assert!(refused["refused"].is_string() && !trial.join("regrade-2.json").exists(), "{refused}");
    assert!(paused(&name));
    // Another directory in its place: the container writes elsewhere, which is found out.
    fs::remove_file(&apart).unwrap();
    fs::create_dir(&apart).unwrap();
    let refused = stage.asked(&["regrade", shown, "-y", "--json"]);
    assert!(refused["refused"].as_str().unwrap().contains("another directory"), "{refused}");
    assert!(paused(&name));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // A hostile record is passed over.
    std::os::unix::fs::symlink("/etc/hostname", trial.join("regrade-2.json")).unwrap();
    let tally = stage.asked(&["tally", "--json", "jobs/job"]);
    assert_eq!(tally["trials"][0]["regrades"].as_array().unwrap().len(), 1, "{tally}");
    assert_eq!(stage.call(&["held", "remove", "--job", "jobs/job", "-y"]).status.code(), Some(0));
    assert_eq!(stage.left(), "");
}

#[test]
fn a_snapshot_grades_again_without_processes_and_says_so() {
    let test = "cat /app/answer; if [ \"$GO\" = yes ]; then [ \"$(cat /app/answer)\" = 42 ] && r=1 || r=0
  pgrep -f 'sleep 65[4]' && echo 'still there'; echo $r > /logs/verifier/reward.txt; exit; fi
echo 'curl: (6) Could not resolve host: mirror.example.org'; echo 'uvx: command not found'
echo 0 > /logs/verifier/reward.txt";
    let solve = "echo 42 > /app/answer; nohup sleep 654 >/dev/null 2>&1 &";
    let yard = Yard::new().task("copy", solve, test, IMAGE).task("good", "true", PASS_INSIDE, IMAGE);
    let Some(stage) = Stage::new(yard) else { return };
    let said = stage.run(&["--no-hold", "--snapshot", "-n", "2"]);
    let [held] = &stage.held()[..] else { panic!("{said}: {:?}", stage.held()) };
    assert_eq!((&held["kind"], &held["on_record"]), (&"snapshot".into(), &true.into()), "{held}");
    let trial = stage.trial("copy");
    let done = stage.asked(&["regrade", trial.to_str().unwrap(), "-y", "--json", "-e", "GO=yes", "--release"]);
    assert_eq!(done["verifier_result"]["rewards"]["reward"], 1.0, "{done}");
    assert_eq!((&done["processes_lost"], &done["kind"]), (&true.into(), &"snapshot".into()), "{done}");
    let log = fs::read_to_string(trial.join("regrade-1.test-stdout.txt")).unwrap();
    assert!(log.contains("42") && !log.contains("still there"), "{log}");
    assert!(!trial.join("regrade").exists(), "what was mounted is gone with it");
    let plain = String::from_utf8(stage.call(&["tally", "jobs/job"]).stdout).unwrap();
    assert!(plain.contains("processes lost"), "{plain}");
    assert_eq!((stage.score("raw", &[]), stage.score("corrected", &[])), ((1, 2), (2, 2)));
    assert_eq!(stage.left(), "");
    // Too large to copy, or too slow: given up, the trial goes on.
    fs::remove_dir_all(stage.at("jobs")).unwrap();
    stage.run(&["--no-hold", "--snapshot", "--snapshot-size", "0", "-n", "2"]);
    let log = fs::read_to_string(stage.trial("copy").join("trial.log")).unwrap();
    assert!(log.contains("Snapshot: given up"), "{log}");
    assert_eq!((stage.held().len(), stage.left()), (0, String::new()));
}

#[test]
fn a_trial_of_harbors_is_refused_with_what_can_be_done() {
    let Some(shared) = support::shared() else { return };
    let job = shared.join("data/jobs/b26-terminus2-mix-0.26.0");
    let trial =
        fs::read_dir(&job).unwrap().flatten().map(|e| e.path()).find(|p| p.join("result.json").exists()).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let call = |dir: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        let command = command.args(["regrade", "--json", "-y"]).arg(dir).env("PILOTHOUSE_STATE_DIR", temp.path());
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        serde_json::from_slice::<Value>(&out.stdout).unwrap()
    };
    let refused = call(&trial);
    assert!(refused["refused"].as_str().unwrap().contains("container, which is gone"), "{refused}");
    assert!(refused["offers"][0]["command"].as_str().unwrap().starts_with("pilothouse requeue "), "{refused}");
    // With a separate verifier and artifacts Harbor can do it itself.
    let copy = temp.path().join("a job/t__AbCdEfG");
    fs::create_dir_all(copy.join("artifacts")).unwrap();
    fs::write(copy.join("artifacts/manifest.json"), "[]").unwrap();
    let mut result = json(&trial.join("result.json"));
    result["verifier_environment_mode"] = "separate".into();
    fs::write(copy.join("result.json"), result.to_string()).unwrap();
    fs::copy(trial.join("config.json"), copy.join("config.json")).unwrap();
    let offered = call(&copy);
    let command = offered["offers"][0]["command"].as_str().unwrap();
    assert!(command.starts_with("harbor job regrade '") && command.contains(" -p "), "{offered}");
    // What is no trial at all.
    assert!(call(&job)["refused"].is_string());
    assert!(call(Path::new("/no/such"))["refused"].is_string());
}
