//! Owners that are killed at random moments of a job: it is gone on with, and nothing is lost, altered
//! or left. `PILOTHOUSE_MOMENTS` says how many moments (5), `PILOTHOUSE_SEED` which.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    missing_docs
)]

#[path = "run/yard.rs"]
mod yard;

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use pilothouse::environment::labels;
use pilothouse::follow::{Follower, Options};
use pilothouse::job::{Fleet, Stamp, tally};
use rustix::process::Signal;
use serde_json::Value;
use yard::{PASS, Running, Yard, json, labelled, stdout, until};

/// Planned trials.
const TRIALS: usize = 12;
/// About as long as the job takes.
const SPAN: Duration = Duration::from_millis(1800);
/// A lease that grows stale soon.
const BEAT: [&str; 2] = ["--heartbeat", "0.1"];

/// Numbers that look random, by a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn new(name: &str) -> Dice {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("PILOTHOUSE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(now);
        eprintln!("{name}: PILOTHOUSE_SEED={seed}");
        Dice(seed | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.below(SPAN.as_micros() as u64))
    }
}

fn moments() -> u64 {
    std::env::var("PILOTHOUSE_MOMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(5)
}

fn yard() -> Yard {
    let mut yard = Yard::new();
    for i in 0..TRIALS {
        let solve = "echo begun; mkdir -p \"$LOGS_DIR/artifacts/x\"; sleep 0.2; echo 42 > answer";
        yard = yard.task(&format!("t{i:02}"), solve, PASS, "");
    }
    yard
}

fn first(yard: &Yard) -> Vec<String> {
    let mut args = yard.usual();
    args.extend(["-n", "3", BEAT[0], BEAT[1]].map(str::to_string));
    args
}

/// Results that stand: with a reward, or an exception that is no stop.
fn standing(yard: &Yard) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for (name, bytes) in yard.results() {
        let Some(bytes) = bytes else { continue };
        let result: Value = serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{name}: torn: {e}"));
        if result["exception_info"]["exception_type"] != "CancelledError" {
            out.insert(name, bytes);
        }
    }
    out
}

/// What goes on: the job where it is, else from the beginning.
fn go_on(yard: &Yard, name: &str) -> Running {
    if yard.dir().join("lock.json").exists() {
        return yard.spawn(&yard.resume(&BEAT), name);
    }
    if yard.dir().exists() {
        // Ended before its plan was written: the program says so, and changes nothing.
        let mut refused = yard.spawn(&yard.resume(&BEAT), "refused");
        assert_eq!(refused.wait().code(), Some(2), "{}", refused.said());
        assert!(refused.said().contains("remove it and start again"), "{}", refused.said());
        fs::remove_dir_all(yard.dir()).unwrap();
    }
    yard.spawn(&first(yard), name)
}

fn check_whole(yard: &Yard, kept: &BTreeMap<String, Vec<u8>>) {
    let results = yard.results();
    for (name, bytes) in kept {
        assert_eq!(results.get(name), Some(&Some(bytes.clone())), "{name} was changed");
    }
    let mut tasks: Vec<&str> = results.keys().map(|name| name.split_once("__").unwrap().0).collect();
    tasks.sort_unstable();
    let wanted: Vec<String> = (0..TRIALS).map(|i| format!("t{i:02}")).collect();
    assert_eq!(tasks, wanted, "not one trial for each slot");
    assert!(results.values().all(Option::is_some), "{results:?}");
    let job = json(&yard.dir().join("result.json"));
    assert!(job["finished_at"].is_string(), "{job}");
    assert_eq!(job["stats"]["n_completed_trials"], TRIALS);
    assert_eq!(
        job["stats"]["evals"]["oracle__tasks"]["reward_stats"]["reward"]["1.0"].as_array().unwrap().len(),
        TRIALS
    );
    let mut fleet = Fleet::default();
    Follower::new(vec![yard.dir()], Options { owner: false, ..Options::default() }).scan_once(&mut |events| {
        events.into_iter().for_each(|event| fleet.apply(event));
        true
    });
    let totals = tally::count(&fleet, &tally::Options::default(), Stamp::now()).unwrap().totals;
    assert_eq!((totals.planned, totals.finished, totals.passed), (12, 12, 12));
    assert_eq!((totals.phantom, totals.orphaned, totals.unreadable, totals.superseded), (0, 0, 0, 0));
    assert!(yard.left().is_empty(), "{:?}", yard.left());
    assert_eq!(yard.processes(), [""; 0]);
    let temps: Vec<_> = walk(&yard.dir()).into_iter().filter(|p| p.contains("pilothouse-tmp")).collect();
    assert!(temps.is_empty(), "{temps:?}");
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        out.push(entry.path().display().to_string());
        if entry.file_type().unwrap().is_dir() {
            out.extend(walk(&entry.path()));
        }
    }
    out
}

#[test]
fn killed_at_any_moment_a_job_is_gone_on_with_to_its_end() {
    let mut dice = Dice::new("kill");
    for moment in 0..moments() {
        let yard = yard();
        let mut kept = BTreeMap::new();
        let mut running = yard.spawn(&first(&yard), "run");
        // Every other time the one that goes on is killed, too.
        for round in 0..1 + dice.below(2) {
            let at = dice.moment();
            std::thread::sleep(at);
            running.signal(Signal::KILL);
            running.wait();
            for (name, bytes) in &kept {
                assert_eq!(yard.results().get(name), Some(&Some(Vec::clone(bytes))), "moment {moment}: {name}");
            }
            kept.extend(standing(&yard));
            eprintln!("kill {moment}.{round} at {at:?}: {} results stand", kept.len());
            running = go_on(&yard, &format!("again-{round}"));
        }
        let status = running.wait();
        assert_eq!(status.code(), Some(0), "moment {moment}: {}", running.said());
        check_whole(&yard, &kept);
    }
}

#[test]
fn stopped_by_sigterm_at_any_moment_nothing_is_half_done() {
    let mut dice = Dice::new("term");
    for moment in 0..moments() {
        let yard = yard();
        let mut running = yard.spawn(&first(&yard), "run");
        let at = dice.moment();
        std::thread::sleep(at);
        running.signal(Signal::TERM);
        let asked = Instant::now();
        let status = running.wait();
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        let said = running.said();
        // A signal that comes before the program can hear anything ends it.
        let early = {
            use std::os::unix::process::ExitStatusExt;
            status.signal() == Some(15)
        };
        assert!(early || [Some(130), Some(0)].contains(&status.code()), "moment {moment} at {at:?}: {status}: {said}");
        let mut cancelled = 0;
        for (name, bytes) in yard.results() {
            let Some(bytes) = bytes else { panic!("moment {moment} at {at:?}: {name} has no result: {said}") };
            let result: Value = serde_json::from_slice(&bytes).unwrap();
            let kind = result["exception_info"]["exception_type"].as_str();
            let reward = &result["verifier_result"]["rewards"]["reward"];
            assert!(kind.is_some() || !reward.is_null(), "{name} is a phantom");
            cancelled += usize::from(kind == Some("CancelledError"));
        }
        assert_eq!(yard.processes(), [""; 0], "{said}");
        assert!(yard.left().is_empty(), "{:?}", yard.left());
        let kept = standing(&yard);
        eprintln!("term {moment} at {at:?}: {} results stand, {cancelled} cancelled", kept.len());
        let mut again = go_on(&yard, "again");
        assert_eq!(again.wait().code(), Some(0), "moment {moment}: {}", again.said());
        check_whole(&yard, &kept);
    }
}

#[test]
fn what_will_happen_is_explained_beforehand_and_nothing_is_touched() {
    let yard = yard();
    let mut running = yard.spawn(&first(&yard), "run");
    until("four results", || standing(&yard).len() >= 4);
    running.signal(Signal::KILL);
    running.wait();
    // What it had started writes its last words; then nobody writes.
    until("its processes have ended", || yard.processes().is_empty());
    let before: Vec<_> = walk(&yard.dir());
    let (kept, all) = (standing(&yard).len(), yard.results().len());
    let mut dry = yard.spawn(&yard.resume(&["--dry-run"]), "dry");
    assert_eq!(dry.wait().code(), Some(0));
    let said = dry.said();
    assert!(
        said.contains(&format!("{kept} of 12 planned trials are kept as they are, {} are run", 12 - kept)),
        "{said}"
    );
    assert!(said.contains(&format!("(no result: run again), {}: ", all - kept)), "{said}");
    assert!(said.contains("is gone"), "{said}");
    assert_eq!(walk(&yard.dir()), before);
    // A task that is another one now.
    let task = yard.tasks().join("t11/tests/test.sh");
    let text = fs::read(&task).unwrap();
    fs::write(&task, "exit 1\n").unwrap();
    let mut changed = yard.spawn(&yard.resume(&[]), "changed");
    assert_eq!(changed.wait().code(), Some(2));
    assert!(changed.said().contains("task t11") && changed.said().contains("has changed"), "{}", changed.said());
    fs::write(&task, text).unwrap();
    let mut other = yard.spawn(&yard.resume(&["-k", "3"]), "other");
    assert_eq!(other.wait().code(), Some(2));
    assert_eq!(walk(&yard.dir()), before);
    let mut again = yard.spawn(&yard.resume(&[]), "again");
    assert_eq!(again.wait().code(), Some(0), "{}", again.said());
    // Half a trial is evidence: it is kept, elsewhere.
    let id = json(&yard.dir().join("result.json"))["id"].as_str().unwrap().to_string();
    let place = yard.path().join("state/quarantine").join(id);
    assert_eq!(fs::read_dir(place).unwrap().count(), all - kept);
    // All is done: nothing changes any more.
    let whole = fs::read(yard.dir().join("result.json")).unwrap();
    let mut over = yard.spawn(&yard.resume(&[]), "over");
    assert_eq!(over.wait().code(), Some(0));
    assert!(over.said().contains("nothing to do"), "{}", over.said());
    assert_eq!(fs::read(yard.dir().join("result.json")).unwrap(), whole);
}

/// The moment between a trial's directory and its first file, which a kill seldom meets.
#[test]
fn a_directory_without_its_first_file_is_no_second_trial() {
    let yard = yard();
    let mut running = yard.spawn(&first(&yard), "run");
    until("a result", || !standing(&yard).is_empty());
    running.signal(Signal::KILL);
    running.wait();
    let kept = standing(&yard);
    let (bare, begun, foreign) =
        (yard.dir().join("t03__ABCDEFG"), yard.dir().join("t04__ABCDEFG"), yard.dir().join("notes"));
    for dir in [&bare, &begun, &foreign] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(begun.join(".lock.json.77-0-00000001.pilothouse-tmp"), "{").unwrap();
    let mut again = yard.spawn(&yard.resume(&BEAT), "again");
    assert_eq!(again.wait().code(), Some(0), "{}", again.said());
    assert!(again.said().contains("notes: no trial, left alone"), "{}", again.said());
    assert!(!bare.exists() && !begun.exists() && foreign.exists());
    fs::remove_dir(&foreign).unwrap();
    check_whole(&yard, &kept);
}

#[test]
fn a_job_of_harbor_is_left_to_harbor() {
    let Some(shared) = support::shared() else { return };
    let yard = Yard::new();
    let job = shared.join("data/jobs/d-sigkill-0.21.0");
    let mut refused = yard.spawn(&["--resume".into(), job.to_str().unwrap().into()], "refused");
    assert_eq!(refused.wait().code(), Some(2));
    assert!(refused.said().contains("harbor job resume"), "{}", refused.said());
}

/// Containers and networks: what a killed owner left goes, what is another job's stays.
#[test]
fn containers_that_were_left_are_removed_by_the_job_s_own_label() {
    if !yard::image("tb-base:1") {
        return support::skipped("crash in containers: no image tb-base:1 (data/tools/build-base-image.sh)");
    }
    let pass = "echo 1 > /logs/verifier/reward.txt";
    let image = "[environment]\ndocker_image = \"tb-base:1\"";
    let mut yard = Yard::new();
    for name in ["a", "b", "c"] {
        yard = yard.task(name, "touch /logs/agent/here; sleep 3", pass, image);
    }
    let mut args = vec!["-p".to_string(), yard.tasks().to_str().unwrap().to_string(), "--headless".into()];
    args.extend(yard.place());
    args.extend(["-n", "2", BEAT[0], BEAT[1]].map(str::to_string));
    let mut running = yard.spawn(&args, "run");
    let there = |name: &str| {
        let dirs = yard.results().into_keys().map(|trial| yard.dir().join(trial).join("agent/here"));
        dirs.filter(|here| here.to_str().unwrap().contains(&format!("/{name}__")) && here.exists()).count() == 1
    };
    until("two containers", || there("a") && there("b"));
    running.signal(Signal::KILL);
    running.wait();
    let id = json(&yard.dir().join("result.json"))["id"].as_str().unwrap().to_string();
    assert!(labelled(&id).lines().count() >= 3, "{}", labelled(&id));
    let other = format!("{id}-other");
    let docker = |args: &[&str]| Command::new("docker").args(args).output().unwrap();
    let label = |name: &str, value: &str| format!("--label={name}={value}");
    let (job, role) = (label(labels::JOB, &other), label(labels::ROLE, "trial"));
    let made = docker(&["create", &job, &role, "tb-base:1", "true"]);
    assert!(made.status.success());
    let mut again = yard.spawn(&yard.resume(&BEAT), "again");
    let status = again.wait();
    let bystander = labelled(&other);
    docker(&["rm", "-f", stdout(&made).trim()]);
    assert_eq!(status.code(), Some(0), "{}", again.said());
    assert_eq!(bystander.lines().count(), 1, "the bystander is gone");
    assert_eq!(labelled(&id), "");
    for left in ["removed the container pilothouse-a__", "removed the container pilothouse-b__", "removed the network"]
    {
        assert!(again.said().contains(left), "{left}: {}", again.said());
    }
    assert_eq!(yard.results().len(), 3);
}
