//! Recorded runs once more, millisecond by millisecond: what the follower says of every trial must be
//! what the files say, judged by a function of this test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pilothouse::follow::{Follower, Options};
use pilothouse::job::phase::{self, Writer};
use pilothouse::job::{Fleet, JobEvent, Phase};
use serde_json::Value;
use support::reenact::Reenactment;

const LOGS: [&str; 4] =
    ["b-terminus2-mix-0.21.0", "b26-terminus2-mix-0.26.0", "h-retry-0.21.0", "j26-automount-0.26.0"];

/// What a person would remember of one trial while looking at its files again and again.
#[derive(Default)]
struct Eye {
    steps: Vec<String>,
    episodes: HashMap<String, usize>,
}

fn size(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().filter(|m| m.is_file()).map(|m| m.len())
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The phase table of the contract, line by line from the end: later evidence wins. Files of a
/// multi-step trial count in the root and in the newest step, where they are moved.
fn phase_by_eye(trial: &Path, eye: &mut Eye) -> Option<String> {
    // An empty directory is a trial's already: its name tells.
    fs::read_dir(trial).ok()?;
    if json(&trial.join("result.json")).is_some() {
        return Some("done".into());
    }
    let mut there: Vec<String> = fs::read_dir(trial.join("steps"))
        .map(|d| d.flatten().map(|e| e.file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    there.retain(|s| !eye.steps.contains(s));
    assert!(there.len() < 2, "two steps in one millisecond: their order can not be told");
    eye.steps.extend(there);
    let newest = eye.steps.last().map(|s| trial.join("steps").join(s));
    let rooms = || std::iter::once(trial.to_path_buf()).chain(newest.clone());
    let graded =
        rooms().any(|r| ["reward.txt", "reward.json"].iter().any(|f| size(&r.join("verifier").join(f)) > Some(0)));
    if graded || size(&trial.join("exception.txt")).is_some() {
        return Some("tearing_down".into());
    }
    if rooms().any(|r| size(&r.join("artifacts/manifest.json")).is_some()) {
        return Some("verifying".into());
    }
    for room in rooms() {
        let path = room.join("agent/trajectory.json");
        let key = path.display().to_string();
        if size(&path).is_none() {
            eye.episodes.remove(&key);
            continue;
        }
        if let Some(value) = json(&path) {
            let agent = value["steps"].as_array().unwrap().iter().filter(|s| s["source"] == "agent").count();
            eye.episodes.insert(key.clone(), agent);
        }
        // An empty or torn one keeps the last good reading.
        if let Some(episodes) = eye.episodes.get(&key) {
            return Some(format!("agent_running {}", episodes + 1));
        }
    }
    if json(&trial.join("config.json")).is_none() {
        return Some("starting".into());
    }
    if size(&trial.join("agent/recording.cast")).is_some() || eye.steps.len() > 1 {
        return Some("agent_running 1".into());
    }
    let agent_holds = fs::read_dir(trial.join("agent")).is_ok_and(|mut d| d.next().is_some());
    if agent_holds || size(&trial.join("trial.log")) > Some(0) {
        return Some("agent_setup".into());
    }
    Some("environment_setup".into())
}

fn by_eye(job: &Path, eyes: &mut HashMap<String, Eye>) -> BTreeMap<String, String> {
    let mut phases = BTreeMap::new();
    for entry in fs::read_dir(job).unwrap().flatten().filter(|e| e.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        if let Some(phase) = phase_by_eye(&entry.path(), eyes.entry(name.clone()).or_default()) {
            phases.insert(name, phase);
        }
    }
    eyes.retain(|name, _| job.join(name).is_dir());
    phases
}

fn by_follower(fleet: &Fleet) -> BTreeMap<String, String> {
    let Some(job) = fleet.jobs().first() else { return BTreeMap::new() };
    let word = |phase: Phase| match phase {
        Phase::AgentRunning(n) => format!("agent_running {n}"),
        other => other.word().to_string(),
    };
    // The recording's own clock is not ours: whether anybody could still write is not the question.
    job.trials.iter().map(|(n, t)| (n.to_string(), word(phase::of_trial(t, Writer::Possible)))).collect()
}

fn no_problem(fleet: &Fleet, when: u64) {
    for job in fleet.jobs() {
        assert!(job.facts.problems.is_empty(), "{when}: {:?}", job.facts.problems);
        for trial in job.trials.values() {
            let broken = trial.problems.iter().find(|p| p.kind == pilothouse::job::ProblemKind::Unreadable);
            assert!(broken.is_none(), "{when}: {broken:?}");
        }
    }
}

/// Every phase that was seen, to make sure that the comparison compared something.
fn assert_covered(seen: &BTreeMap<String, u64>, log: &str) {
    let all = [
        "starting",
        "environment_setup",
        "agent_setup",
        "agent_running 1",
        "agent_running 2",
        "verifying",
        "tearing_down",
        "done",
    ];
    for phase in all {
        // Without mounted logs nothing shows the first episode while it runs, and the only trial of the
        // retry job never gets as far as the verifier.
        let exempt = phase == "agent_running 1" && log.starts_with("b26")
            || log.starts_with("h-") && phase.starts_with("agent_running 2");
        assert!(exempt || seen.contains_key(phase), "{log}: {phase} never occurred: {seen:?}");
    }
}

fn sweep(log: &str) {
    let Some(shared) = support::shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join(log);
    let mut run = Reenactment::load(&shared.join("data/jobs"), log, &job);
    let mut follower = Follower::new(vec![dir.path().to_path_buf()], Options::default());
    let (mut fleet, mut eyes, mut seen) = (Fleet::default(), HashMap::new(), BTreeMap::new());
    while let Some(at) = run.apply_millisecond() {
        follower.pass(&mut |events| {
            events.into_iter().for_each(|e| fleet.apply(e));
            true
        });
        let expected = by_eye(&job, &mut eyes);
        assert_eq!(by_follower(&fleet), expected, "{log} at {at}");
        no_problem(&fleet, at);
        expected.into_values().for_each(|p| *seen.entry(p).or_default() += 1);
    }
    assert_covered(&seen, log);
    finished(&fleet, &shared.join("data/jobs"), log);
}

fn live(log: &str, options: Options) {
    let Some(shared) = support::shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join(log);
    let mut run = Reenactment::load(&shared.join("data/jobs"), log, &job);
    let follower = Follower::new(vec![dir.path().to_path_buf()], options);
    let remote = follower.remote();
    let (sender, receiver) = mpsc::sync_channel::<Vec<JobEvent>>(64);
    let thread = std::thread::spawn(move || follower.run(Box::new(move |events| sender.send(events).is_ok())));
    let (mut fleet, mut eyes) = (Fleet::default(), HashMap::new());
    let mut slowest = Duration::ZERO;
    while let Some(at) = run.apply_millisecond() {
        let expected = by_eye(&job, &mut eyes);
        let begin = Instant::now();
        loop {
            while let Ok(events) = receiver.try_recv() {
                events.into_iter().for_each(|e| fleet.apply(e));
            }
            if by_follower(&fleet) == expected {
                break;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(2),
                "{log} at {at}: {:?}\nwanted {expected:?}",
                by_follower(&fleet)
            );
            if let Ok(events) = receiver.recv_timeout(Duration::from_millis(5)) {
                events.into_iter().for_each(|e| fleet.apply(e));
            }
        }
        slowest = slowest.max(begin.elapsed());
        no_problem(&fleet, at);
    }
    println!("{log}: slowest answer {slowest:?}");
    // The job's own result is the last thing written.
    let begin = Instant::now();
    while fleet.jobs()[0].facts.summary.as_ref().is_none_or(|s| s.finished.is_none()) {
        assert!(begin.elapsed() < Duration::from_secs(4), "the job's end is not seen");
        if let Ok(events) = receiver.recv_timeout(Duration::from_millis(50)) {
            events.into_iter().for_each(|e| fleet.apply(e));
        }
    }
    finished(&fleet, &shared.join("data/jobs"), log);
    remote.stop();
    drop(receiver);
    thread.join().unwrap();
}

/// At the end the follower must know what one look at the recorded job tells.
fn finished(fleet: &Fleet, jobs: &Path, log: &str) {
    let mut whole = Fleet::default();
    Follower::new(vec![jobs.join(log)], Options::default()).scan_once(&mut |events| {
        events.into_iter().for_each(|e| whole.apply(e));
        true
    });
    let (ours, theirs) = (&fleet.jobs()[0], &whole.jobs()[0]);
    assert_eq!(ours.trials.len(), theirs.trials.len());
    for (name, trial) in &theirs.trials {
        assert_eq!(ours.trials[name].result, trial.result, "{name}");
    }
    assert_eq!(ours.facts.summary, theirs.facts.summary);
    assert_eq!(ours.facts.planned, theirs.facts.planned);
}

fn polling() -> Options {
    Options { poll: Some(Duration::from_millis(50)), ..Options::default() }
}

#[test]
fn sweep_b() {
    sweep(LOGS[0]);
}

#[test]
fn sweep_b26() {
    sweep(LOGS[1]);
}

#[test]
fn sweep_h() {
    sweep(LOGS[2]);
}

#[test]
fn sweep_j26() {
    sweep(LOGS[3]);
}

#[test]
fn live_b() {
    live(LOGS[0], Options::default());
}

#[test]
fn live_b26() {
    live(LOGS[1], Options::default());
}

#[test]
fn live_h() {
    live(LOGS[2], Options::default());
}

#[test]
fn live_j26() {
    live(LOGS[3], Options::default());
}

#[test]
fn polled_h() {
    live(LOGS[2], polling());
}

#[test]
fn polled_j26() {
    live(LOGS[3], polling());
}

/// Time runs on while the follower works: nothing may ever look broken, and the end must be right.
fn in_time(log: &str, speed: f64) {
    let Some(shared) = support::shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut run = Reenactment::load(&shared.join("data/jobs"), log, &dir.path().join(log));
    let follower = Follower::new(vec![dir.path().to_path_buf()], Options::default());
    let remote = follower.remote();
    let (sender, receiver) = mpsc::sync_channel::<Vec<JobEvent>>(64);
    let thread = std::thread::spawn(move || follower.run(Box::new(move |events| sender.send(events).is_ok())));
    let writer = std::thread::spawn(move || run.apply_all_at_speed(speed, || true));
    let mut fleet = Fleet::default();
    let begin = Instant::now();
    let over = |fleet: &Fleet| {
        let summary = fleet.jobs().first().and_then(|j| j.facts.summary.as_ref());
        summary.is_some_and(|s| s.finished.is_some())
    };
    while !over(&fleet) {
        assert!(begin.elapsed() < Duration::from_secs(30), "the end is not seen");
        let Ok(events) = receiver.recv_timeout(Duration::from_millis(100)) else { continue };
        events.into_iter().for_each(|e| fleet.apply(e));
        no_problem(&fleet, 0);
        assert!(!by_follower(&fleet).values().any(|p| p == "unreadable"));
    }
    writer.join().unwrap();
    finished(&fleet, &shared.join("data/jobs"), log);
    remote.stop();
    drop(receiver);
    thread.join().unwrap();
}

#[test]
fn in_time_h() {
    in_time(LOGS[2], 100.0);
}

#[test]
fn in_time_b26() {
    in_time(LOGS[1], 100.0);
}
