//! A running job, re-enacted, beside servers that fail before its eyes: the pane, what trials are said to do
//! and the alarms agree within seconds, and each alarm is told once.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::pty::{Pty, key};
use crate::support::reenact::Reenactment;
use crate::support::server_log::ServerLog;
use crate::support::servers::Fake;
use crate::support::{self, escapes};

const JOB: &str = "b-terminus2-mix-0.21.0";
/// A moment at which one trial has its model think and others begin.
const MOMENT: u64 = 1_795_980_835_000;
/// Nothing may take longer from the event to the screen.
const SOON: Duration = Duration::from_secs(5);
const START: Duration = Duration::from_secs(20);
const SIZE: (u16, u16) = (180, 50);
/// Context that its agent was told, in tokens.
const TOLD: u64 = 32_768;
const THINKER: &str = "slow-think";

/// A job at work and a screen on it.
struct Stage {
    pty: Pty,
    log: ServerLog,
    told: PathBuf,
    job: PathBuf,
    _held: File,
    _temp: tempfile::TempDir,
}

impl Stage {
    fn new(shared: &Path, server: &str) -> Stage {
        Stage::with(shared, server, None)
    }

    /// With thresholds of the operator's own.
    fn with(shared: &Path, server: &str, thresholds: Option<&str>) -> Stage {
        let temp = tempfile::tempdir().unwrap();
        let job = temp.path().join(JOB);
        let mut run = Reenactment::load(&shared.join("data/jobs"), JOB, &job);
        run.apply_until(MOMENT);
        // Harbor has its log open as long as it lives.
        let held = OpenOptions::new().create(true).append(true).open(job.join("job.log")).unwrap();
        let mut log = ServerLog::new(&temp.path().join("server.log"));
        log.start(400_000, 48, TOLD);
        let told = temp.path().join("told");
        let notify = format!("cat >> {}", told.display());
        let of_log = format!("gpu={}", log.path().display());
        let of_url = format!("gpu={server}");
        let job_dir = job.to_str().unwrap().to_string();
        let args = ["attach", &job_dir, "--serving", &of_url, "--serving", &of_log, "--notify", &notify];
        let (state, config) = (temp.path().join("state"), temp.path().join("config"));
        if let Some(thresholds) = thresholds {
            std::fs::create_dir_all(config.join("pilothouse")).unwrap();
            std::fs::write(config.join("pilothouse/serving.toml"), thresholds).unwrap();
        }
        let env = [("PILOTHOUSE_STATE_DIR", state.to_str().unwrap()), ("XDG_CONFIG_HOME", config.to_str().unwrap())];
        let pty = Pty::pilothouse(&args, SIZE.0, SIZE.1, &env);
        Stage { pty, log, told, job, _held: held, _temp: temp }
    }

    /// Waits until all of these stand on the screen at once.
    #[track_caller]
    fn sees(&self, what: &str, within: Duration, holds: impl Fn(&str) -> bool) {
        let took = self.pty.wait_until(what, within, |text| holds(text));
        if std::env::var_os("SHOW").is_some() {
            println!("==== {what}, after {took:?}\n{}", self.pty.text());
        }
    }

    /// What the notify command was given so far: kinds, in order.
    fn told(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.told).unwrap_or_default();
        let of = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(event["event"], "alarm", "{line}");
            event["kind"].as_str().unwrap().to_string()
        };
        text.lines().map(of).collect()
    }

    /// Waits for the call for a new alarm of this kind; the calls since `before` are given.
    #[track_caller]
    fn is_told(&self, kind: &str, before: usize) -> Vec<String> {
        let began = Instant::now();
        loop {
            let new = self.told().split_off(before);
            if new.iter().any(|k| k == kind) {
                return new;
            }
            assert!(began.elapsed() < SOON, "{kind} was not told: {new:?}\n{}", self.pty.text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The row of a trial in the list.
fn row<'a>(text: &'a str, trial: &str) -> &'a str {
    text.lines().find(|line| line.contains(trial) && line.starts_with('│')).unwrap_or_default()
}

/// The first line that has something to do.
fn attention(text: &str) -> &str {
    text.lines().take(5).find(|line| line.starts_with("! ")).unwrap_or_default()
}

#[test]
fn a_server_saturates_dies_and_comes_back_shorter_beside_a_running_job() {
    let Some(shared) = support::shared() else { return };
    let fake = Fake::sglang();
    fake.load(1, 0, 20_000);
    fake.set(|face| {
        face.ranks[0].grows = true;
        face.context = TOLD;
    });
    let mut stage = Stage::new(&shared, &fake.url());
    stage.sees("the pane and the thinking trial", START, |text| {
        text.contains("1/1 replica up") && row(text, THINKER).contains("generating ~") && text.contains("1 run")
    });
    assert_eq!(stage.told(), Vec::<String>::new());

    // A queue: the latest to ask is at its end.
    fake.load(1, 1, 60_000);
    stage.sees("the queue in the pane", SOON, |text| text.contains("1 q"));
    fake.load(0, 3, 60_000);
    stage.sees("the trial in the queue", SOON, |text| row(text, THINKER).contains("queued at server"));
    fake.load(1, 0, 60_000);
    stage.sees("generating again", SOON, |text| row(text, THINKER).contains("generating ~"));

    // The log goes on after a rotation.
    stage.log.decode(1, 60_100, 400_000, 61.0, 0);
    stage.log.rotate();
    stage.log.decode(1, 60_200, 400_000, 62.0, 0);
    stage.pty.send("2");
    stage.pty.send("\t");
    stage.pty.send("\t");
    stage.sees("the line after the rotation", SOON, |text| {
        text.contains("#token: 60200") && text.contains("Log of gpu")
    });
    stage.pty.send("q");
    stage.pty.send("1");
    stage.sees("home", SOON, |text| text.contains("1 Trials"));

    // Slow answers harm nothing else: keys act at once.
    fake.set(|face| face.delay = Duration::from_millis(1500));
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    stage.pty.send("?");
    stage.sees("the help", SOON, |text| text.contains("everywhere"));
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    stage.pty.send("q");
    fake.set(|face| face.delay = Duration::ZERO);
    stage.sees("generating after the slow answers", SOON, |text| row(text, THINKER).contains("generating ~"));
    assert_eq!(stage.told(), Vec::<String>::new(), "{}", stage.pty.text());

    // Death.
    let before = stage.told().len();
    fake.kill();
    stage.sees("the death, in pane, row and attention at once", SOON, |text| {
        text.contains("dead") && row(text, THINKER).contains("endpoint down") && attention(text).contains("gpu")
    });
    let new = stage.is_told("unreachable", before);
    assert_eq!(new, ["unreachable"]);

    // Long enough for an outage.
    std::thread::sleep(Duration::from_secs(2));

    // Back, with a shorter context than the job was told.
    fake.set(|face| face.context = 8192);
    fake.revive();
    fake.load(1, 0, 9_000);
    stage.log.start(400_000, 48, 8192);
    stage.sees("the return, in pane and row", SOON, |text| {
        text.contains("1/1 replica up") && row(text, THINKER).contains("generating ~")
    });
    stage.is_told("context_mismatch", before + 1);
    // Each alarm once, whatever its figures did meanwhile.
    std::thread::sleep(Duration::from_secs(3));
    let mut kinds = stage.told();
    kinds.sort();
    let all = kinds.len();
    kinds.dedup();
    assert_eq!(kinds.len(), all, "{kinds:?}");
    // From when to when it was away stands in the job's journal.
    let journal = std::fs::read_to_string(stage.job.join("pilothouse.jsonl")).unwrap();
    let outages: Vec<&str> = journal.lines().filter(|line| line.contains("\"act\":\"outage\"")).collect();
    assert_eq!(outages.len(), 1, "{journal}");
    assert!(outages[0].contains("gpu"), "{journal}");

    stage.pty.send("q");
    assert_eq!(stage.pty.wait_exit(SOON).exit_code(), 0);
    stage.pty.assert_restored();
    let allowed = escapes::Allowed { bell: true, ..escapes::Allowed::default() };
    escapes::assert_no_foreign_escapes(&stage.pty.raw(), allowed);
}

#[test]
fn a_full_server_is_told_once_with_the_operators_own_patience() {
    let Some(shared) = support::shared() else { return };
    let fake = Fake::sglang();
    fake.load(1, 0, 20_000);
    fake.set(|face| face.context = TOLD);
    let thresholds = "schema_version = 1\n[queueing]\nseconds = 2\n[confirm]\nsamples = 2\n";
    let mut stage = Stage::with(&shared, &fake.url(), Some(thresholds));
    stage.sees("the thinking trial", START, |text| row(text, THINKER).contains("generating ~"));
    fake.load(48, 7, 200_000);
    stage.sees("the queue, in pane and attention", 2 * SOON, |text| {
        text.contains("7 q") && attention(text).contains("7 wait") && text.contains("◉")
    });
    let new = stage.is_told("queueing", 0);
    // Its figures change, it stays the same alarm.
    fake.load(48, 9, 210_000);
    stage.sees("the longer queue", SOON, |text| attention(text).contains("9 wait"));
    assert_eq!(new, ["queueing"]);
    fake.load(1, 0, 20_000);
    stage.sees("calm", 4 * SOON, |text| text.contains("nothing needs you"));
    assert_eq!(stage.told(), ["queueing"]);
    // A trial that is opened tells on what grounds.
    stage.pty.send(key::ENTER);
    stage.sees("the grounds", SOON, |text| {
        text.contains("generating~: no step for") && text.contains("1 run, 0 queued")
    });
    stage.pty.send("q");
    stage.sees("home", SOON, |text| text.contains("1 Trials"));
    stage.pty.send("q");
    assert_eq!(stage.pty.wait_exit(SOON).exit_code(), 0);
}

#[test]
fn a_server_that_takes_connections_and_never_answers_is_seen_and_the_keys_go_on() {
    let Some(shared) = support::shared() else { return };
    let fake = Fake::vllm();
    fake.load(1, 0, 20_000);
    fake.set(|face| face.context = TOLD);
    let mut stage = Stage::new(&shared, &fake.url());
    stage.sees("the thinking trial", START, |text| row(text, THINKER).contains("generating ~"));
    fake.hang();
    let began = Instant::now();
    // Two answers that did not come in time, ten seconds apart: a busy server is slow, too.
    stage.sees("the silence, in pane, row and attention at once", Duration::from_secs(16), |text| {
        attention(text).contains("gpu") && row(text, THINKER).contains("endpoint hangs") && text.contains("hung")
    });
    println!("seen after {:?}", began.elapsed());
    stage.pty.send("2");
    stage.sees("the view", SOON, |text| text.contains("Diagnoses"));
    // The command that is told runs beside the screen.
    let began = Instant::now();
    while stage.told().is_empty() && began.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(stage.told().len(), 1, "{:?}", stage.told());
    fake.unhang();
    stage.pty.send("1");
    stage.sees("generating again", Duration::from_secs(10), |text| row(text, THINKER).contains("generating ~"));
    stage.pty.send("q");
    assert_eq!(stage.pty.wait_exit(SOON).exit_code(), 0);
}

#[test]
fn one_request_is_aborted_at_its_server_and_noted() {
    let Some(shared) = support::shared() else { return };
    let fake = Fake::sglang();
    fake.load(1, 0, 20_000);
    let mut stage = Stage::new(&shared, &fake.url());
    stage.log.line("", "Receive: obj=GenerateReqInput(rid='episode-3-turn-17', text='x')");
    stage.sees("the server", START, |text| text.contains("1/1 replica up"));
    stage.pty.send("2");
    stage.sees("the view", SOON, |text| text.contains("Diagnoses"));
    stage.sees("the request in the log", SOON, |text| text.contains("episode-3-turn-17"));
    stage.pty.send("X");
    stage.sees("the question", SOON, |text| text.contains("abort one request?") && text.contains("let it run"));
    stage.pty.send("j");
    stage.pty.send(key::ENTER);
    let began = Instant::now();
    while fake.asked("/abort_request") == 0 {
        assert!(began.elapsed() < SOON, "nothing was asked\n{}", stage.pty.text());
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = fake.requests().into_iter().filter(|r| r.method == "POST").collect::<Vec<_>>();
    assert_eq!(asked.len(), 1, "nothing but that is ever changed at a server: {asked:?}");
    assert!(asked[0].body.contains("episode-3-turn-17"), "{asked:?}");
    let journal = stage.job.join("pilothouse.jsonl");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains("\"act\":\"abort_request\"") {
        assert!(began.elapsed() < SOON, "it is not noted");
        std::thread::sleep(Duration::from_millis(20));
    }
    // What is left while it lasts is noted, too.
    fake.kill();
    stage.pty.send("1");
    stage.sees("the death", SOON, |text| text.contains("dead"));
    std::thread::sleep(Duration::from_secs(3));
    stage.pty.send("q");
    assert_eq!(stage.pty.wait_exit(SOON).exit_code(), 0);
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(text.contains("\"act\":\"outage\""), "{text}");
}

#[test]
fn the_endpoint_that_a_running_job_names_is_found_and_only_spoken_of_once_it_answers() {
    let Some(shared) = support::shared() else { return };
    let fake = Fake::sglang();
    fake.set(|face| face.context = TOLD);
    fake.load(1, 0, 20_000);
    let temp = tempfile::tempdir().unwrap();
    let job = temp.path().join(JOB);
    let mut run = Reenactment::load(&shared.join("data/jobs"), JOB, &job);
    run.apply_until(MOMENT);
    let _held = OpenOptions::new().create(true).append(true).open(job.join("job.log")).unwrap();
    let config = std::fs::read_to_string(job.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["agents"][0]["kwargs"]["api_base"] = format!("{}/v1", fake.url()).into();
    std::fs::write(job.join("config.json"), config.to_string()).unwrap();
    let state = temp.path().join("state");
    let env = [("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())];
    let found = |text: &str| text.contains("1/1 replica up") && row(text, THINKER).contains("generating ~");
    let mut pty = Pty::pilothouse(&["attach", job.to_str().unwrap()], SIZE.0, SIZE.1, &env);
    pty.wait_until("the guessed server", START, found);
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    // Whoever does not want that says so; and nobody is asked.
    let before = fake.requests().len();
    let mut pty = Pty::pilothouse(&["attach", "--no-guess", job.to_str().unwrap()], SIZE.0, SIZE.1, &env);
    pty.wait_for(THINKER, START);
    std::thread::sleep(Duration::from_secs(2));
    assert!(!pty.text().contains("2 Serving"), "{}", pty.text());
    assert_eq!(fake.requests().len(), before);
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    // One that does not answer is no alarm: it may be another machine's.
    fake.kill();
    let mut pty = Pty::pilothouse(&["attach", job.to_str().unwrap()], SIZE.0, SIZE.1, &env);
    pty.wait_for(THINKER, START);
    std::thread::sleep(Duration::from_secs(5));
    let text = pty.text();
    assert!(!text.contains("2 Serving") && !text.contains("not reached"), "{text}");
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
}
