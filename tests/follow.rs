//! Live knowledge of job dirs: discovery, torn files, vanishing directories, hostile ones, polling.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "follow/mounts.rs"]
mod mounts;
#[path = "follow/roster.rs"]
mod roster;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pilothouse::follow::{Control, Follower, Options, Remote};
use pilothouse::job::phase::{self, Writer};
use pilothouse::job::{Fleet, Grade, Job, JobEvent, Phase, ProblemKind, Trial, TrialKey};

const NAME: &str = "sum-lines__aB3dE5f";

fn result(task: &str, reward: f64) -> String {
    format!(
        r#"{{"id":"{task}-1","task_name":"{task}","trial_name":"{task}__aB3dE5f","config":{{"task":{{"path":"tasks/{task}"}},"agent":{{"name":"terminus-2"}}}},
"agent_info":{{"name":"terminus-2","version":"2.0.0"}},"agent_result":{{"n_input_tokens":10}},"verifier_result":{{"rewards":{{"reward":{reward:.1}}}}},
"exception_info":null,"started_at":"2026-11-29T19:00:00Z","finished_at":"2026-11-29T19:01:00Z"}}"#
    )
}

fn job_result(total: usize, finished: bool) -> String {
    let end = if finished { "\"2026-11-29T20:00:00\"" } else { "null" };
    format!(
        r#"{{"id":"job-1","started_at":"2026-11-29T19:00:00","finished_at":{end},"n_total_trials":{total},"stats":{{"n_completed_trials":0,"n_running_trials":0}}}}"#
    )
}

fn make_job(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    fs::write(
        dir.join("config.json"),
        r#"{"job_name":"made","n_concurrent_trials":4,"agents":[{"name":"terminus-2"}]}"#,
    )
    .unwrap();
    fs::write(dir.join("result.json"), job_result(2, false)).unwrap();
}

/// A trial that has just begun.
fn begin_trial(job: &Path, name: &str) -> PathBuf {
    let trial = job.join(name);
    for sub in ["agent", "verifier", "artifacts"] {
        fs::create_dir_all(trial.join(sub)).unwrap();
    }
    fs::write(trial.join("lock.json"), r#"{"task":{"path":"tasks/sum-lines"},"agent":{"name":"terminus-2"}}"#).unwrap();
    fs::write(trial.join("trial.log"), "").unwrap();
    fs::write(
        trial.join("config.json"),
        r#"{"task":{"path":"tasks/sum-lines"},"trial_name":"x","agent":{"name":"terminus-2","model_name":"openai/m"}}"#,
    )
    .unwrap();
    trial
}

fn done_trial(job: &Path, name: &str, reward: f64) {
    fs::create_dir_all(job.join(name)).unwrap();
    fs::write(job.join(name).join("result.json"), result(name.rsplit_once("__").unwrap().0, reward)).unwrap();
}

fn take(fleet: &mut Fleet) -> impl FnMut(Vec<JobEvent>) -> bool + '_ {
    |events| {
        events.into_iter().for_each(|e| fleet.apply(e));
        true
    }
}

fn scan(roots: &[&Path]) -> Fleet {
    let mut fleet = Fleet::default();
    let roots = roots.iter().map(|r| r.to_path_buf()).collect();
    Follower::new(roots, Options { owner: false, ..Options::default() }).scan_once(&mut take(&mut fleet));
    fleet
}

fn only(fleet: &Fleet) -> &Job {
    assert_eq!(fleet.jobs().len(), 1, "{:?}", fleet.problems);
    &fleet.jobs()[0]
}

fn trial<'a>(fleet: &'a Fleet, name: &str) -> &'a Trial {
    &only(fleet).trials[name]
}

fn kinds(job: &Job) -> Vec<ProblemKind> {
    job.facts.problems.iter().map(|p| p.kind).collect()
}

/// A follower at work, with everything that it reported.
struct Attached {
    remote: Remote,
    receiver: mpsc::Receiver<Vec<JobEvent>>,
    thread: Option<std::thread::JoinHandle<()>>,
    fleet: Fleet,
    log: Vec<String>,
}

impl Attached {
    fn new(root: &Path, options: Options) -> Attached {
        let follower = Follower::new(vec![root.to_path_buf()], options);
        let remote = follower.remote();
        let (sender, receiver) = mpsc::sync_channel(64);
        let run = move || follower.run(Box::new(move |events| sender.send(events).is_ok()));
        let thread = Some(std::thread::spawn(run));
        Attached { remote, receiver, thread, fleet: Fleet::default(), log: Vec::new() }
    }

    fn take(&mut self, wait: Duration) {
        let Ok(events) = self.receiver.recv_timeout(wait) else { return };
        for event in events {
            self.log.push(match &event {
                JobEvent::Job(..) => "job".into(),
                JobEvent::Liveness(..) => "liveness".into(),
                JobEvent::Trial(_, t) => {
                    format!("trial {} {}", t.name, phase::of_trial(t, Writer::Possible).word())
                }
                JobEvent::TrialGone(_, name) => format!("gone {name}"),
                JobEvent::Unreachable(_, p) => format!("unreachable {}: {}", p.path, p.message),
                JobEvent::Reachable(_) => "reachable".into(),
                JobEvent::Scanning(..) => "scanning".into(),
                JobEvent::Settled(_) => "settled".into(),
                JobEvent::Class(_, name, _) => format!("class {name}"),
                JobEvent::Notebook(..) => "notebook".into(),
                JobEvent::Problem(p) => format!("problem {}: {}", p.path, p.message),
            });
            self.fleet.apply(event);
        }
    }

    /// Waits until `met` holds; fails after 5 s.
    fn until(&mut self, what: &str, met: impl Fn(&Fleet) -> bool) {
        let begin = Instant::now();
        while !met(&self.fleet) {
            assert!(begin.elapsed() < Duration::from_secs(5), "{what} never came: {:#?}", self.log);
            self.take(Duration::from_millis(10));
        }
    }

    fn until_phase(&mut self, name: &str, wanted: Phase) {
        self.until(&format!("{name} {wanted:?}"), |fleet| phase_of(fleet, name) == Some(wanted));
    }

    /// Takes what comes for a while.
    fn during(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.take(Duration::from_millis(20));
        }
    }

    fn met(&self, start: &str) -> bool {
        self.log.iter().any(|l| l.starts_with(start))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.remote.stop();
        // The thread may be waiting for room in the channel.
        while self.receiver.try_recv().is_ok() {}
        let thread = self.thread.take().unwrap();
        let begin = Instant::now();
        while !thread.is_finished() && begin.elapsed() < Duration::from_secs(2) {
            while self.receiver.recv_timeout(Duration::from_millis(5)).is_ok() {}
        }
        assert!(std::thread::panicking() || thread.is_finished(), "the follower does not stop");
    }
}

fn phase_of(fleet: &Fleet, name: &str) -> Option<Phase> {
    let trial = fleet.jobs().first()?.trials.get(name)?;
    Some(phase::of_trial(trial, Writer::Possible))
}

fn notify() -> Options {
    Options { owner: false, ..Options::default() }
}

fn polling() -> Options {
    Options { poll: Some(Duration::from_millis(50)), owner: false, ..Options::default() }
}

// ---- discovery ----

#[test]
fn every_recorded_job_is_read() {
    let Some(shared) = support::shared() else { return };
    let fleet = scan(&[&shared.join("data/jobs")]);
    assert!(fleet.problems.is_empty(), "{:?}", fleet.problems);
    let truth: serde_json::Value =
        serde_json::from_slice(&fs::read(shared.join("data/jobs/truth.json")).unwrap()).unwrap();
    let jobs =
        fs::read_dir(shared.join("data/jobs")).unwrap().flatten().filter(|e| e.path().join("config.json").is_file());
    assert_eq!(fleet.jobs().len(), jobs.count());
    assert!(truth.is_object() || truth.is_array());
    for job in fleet.jobs() {
        assert!(job.settled);
        assert!(job.facts.problems.is_empty(), "{:?}", job.facts.problems);
        let dirs = fs::read_dir(&job.facts.dir).unwrap().flatten().filter(|e| e.path().is_dir()).count();
        assert_eq!(job.trials.len(), dirs, "{}", job.facts.dir.display());
        for (name, trial) in &job.trials {
            let has_result = job.facts.dir.join(&**name).join("result.json").is_file();
            assert_eq!(trial.result.is_some(), has_result, "{name}");
            assert!(!trial.unreadable);
            assert!(trial.agent.is_some(), "{name}");
        }
    }
}

#[test]
fn a_job_dir_a_jobs_dir_and_the_same_twice() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = dir.path().join("jobs");
    for job in ["one", "two"] {
        make_job(&jobs.join(job));
        done_trial(&jobs.join(job), NAME, 1.0);
    }
    assert_eq!(scan(&[&jobs]).jobs().len(), 2);
    assert_eq!(only(&scan(&[&jobs.join("one")])).trials.len(), 1);
    let link = dir.path().join("link");
    symlink(jobs.join("one"), &link).unwrap();
    let again = jobs.join("./one/.");
    let fleet = scan(&[&jobs.join("one"), &link, &again, &jobs]);
    let dirs: Vec<_> = fleet.jobs().iter().map(|j| j.facts.dir.clone()).collect();
    assert_eq!(dirs, [jobs.join("one"), jobs.join("two")]);
    assert!(fleet.problems.is_empty());
}

#[test]
fn a_trial_dir_attaches_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    make_job(&job);
    done_trial(&job, NAME, 1.0);
    begin_trial(&job, "other__aB3dE5f");
    let fleet = scan(&[&job.join("other__aB3dE5f")]);
    assert_eq!(only(&fleet).trials.len(), 2);
    assert_eq!(fleet.problems.iter().map(|p| p.kind).collect::<Vec<_>>(), [ProblemKind::Note]);
    let (parent, name) = pilothouse::follow::discover::trial_in_job(&job.join("other__aB3dE5f")).unwrap();
    assert_eq!((parent, name.to_str()), (job.clone(), Some("other__aB3dE5f")));
    assert_eq!(pilothouse::follow::discover::trial_in_job(&job), None);
}

#[test]
fn a_job_without_its_own_files_is_known_by_its_trials() {
    let dir = tempfile::tempdir().unwrap();
    done_trial(dir.path(), NAME, 1.0);
    begin_trial(dir.path(), "other__aB3dE5f");
    assert_eq!(only(&scan(&[dir.path()])).trials.len(), 2);
}

#[test]
fn roots_that_are_no_jobs_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    // An empty one waits for jobs and is no error.
    assert!(scan(&[dir.path()]).problems.is_empty());
    fs::create_dir_all(dir.path().join("photos/2024")).unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let says = |path: &Path| {
        let fleet = scan(&[path]);
        assert!(fleet.jobs().is_empty());
        let [problem] = &fleet.problems[..] else { panic!("{:?}", fleet.problems) };
        assert!(problem.path.contains(path.to_str().unwrap()));
        problem.message.to_string()
    };
    assert!(says(&dir.path().join("nowhere")).contains("check the path"));
    assert!(says(dir.path()).contains("name a job dir"));
    assert!(says(&dir.path().join("file")).contains("not a directory: name"));
}

#[test]
fn jobs_inside_trials_are_not_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    make_job(&job);
    let trial = begin_trial(&job, NAME);
    make_job(&trial.join("artifacts/jobs/inner"));
    assert_eq!(only(&scan(&[dir.path()])).facts.dir, job);
}

#[test]
fn a_job_appears_in_an_empty_jobs_dir() {
    for options in [notify(), polling()] {
        let dir = tempfile::tempdir().unwrap();
        let mut attached = Attached::new(dir.path(), options);
        attached.during(Duration::from_millis(100));
        let job = dir.path().join("2026-11-29__20-00-00");
        fs::create_dir(&job).unwrap();
        attached.during(Duration::from_millis(100));
        fs::write(job.join("job.log"), "").unwrap();
        attached.until("the job", |f| f.jobs().len() == 1);
        make_job(&job);
        attached.until("its name", |f| &*only(f).facts.name == "made");
        begin_trial(&job, NAME);
        attached.until_phase(NAME, Phase::EnvironmentSetup);
    }
}

#[test]
fn a_root_named_from_here_is_watched_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    make_job(&job);
    let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    let from_here = up.join(job.strip_prefix("/").unwrap());
    assert!(from_here.is_relative() && from_here.is_dir());
    let mut attached = Attached::new(&from_here, notify());
    attached.until("the job", |f| f.jobs().first().is_some_and(|j| j.settled));
    // Sooner than anything is looked at without an event.
    let begin = Instant::now();
    begin_trial(&job, NAME);
    attached.until_phase(NAME, Phase::EnvironmentSetup);
    done_trial(&job, NAME, 1.0);
    attached.until_phase(NAME, Phase::Done);
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn a_root_that_does_not_exist_yet_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("later");
    let mut attached = Attached::new(&job, notify());
    attached.until("a problem", |f| !f.problems.is_empty());
    make_job(&job);
    attached.until("the job", |f| f.jobs().len() == 1);
}

// ---- files that change ----

#[test]
fn a_torn_result_is_never_shown_as_broken_while_it_is_being_written() {
    for options in [notify(), polling()] {
        let dir = tempfile::tempdir().unwrap();
        make_job(dir.path());
        let trial = begin_trial(dir.path(), NAME);
        fs::write(trial.join("trial.log"), "up\n").unwrap();
        let mut attached = Attached::new(dir.path(), options);
        attached.until_phase(NAME, Phase::AgentSetup);
        let text = result("sum-lines", 1.0);
        for cut in [0, 1, text.len() / 2, text.len() - 1] {
            fs::write(trial.join("result.json"), &text[..cut]).unwrap();
            attached.during(Duration::from_millis(150));
            assert_eq!(phase_of(&attached.fleet, NAME), Some(Phase::AgentSetup), "cut to {cut}");
        }
        fs::write(trial.join("result.json"), &text).unwrap();
        attached.until_phase(NAME, Phase::Done);
        // Torn again by a second writer: the last good reading stays.
        fs::write(trial.join("result.json"), &text[..40]).unwrap();
        attached.during(Duration::from_millis(300));
        assert_eq!(phase_of(&attached.fleet, NAME), Some(Phase::Done));
        fs::write(trial.join("result.json"), result("sum-lines", 0.0)).unwrap();
        attached.until("the new reward", |f| trial_grade(f, NAME) == Some(Grade::Failed));
        assert!(!attached.met(&format!("trial {NAME} unreadable")), "{:?}", attached.log);
    }
}

fn trial_grade(fleet: &Fleet, name: &str) -> Option<Grade> {
    Some(only(fleet).trials.get(name)?.result.as_ref()?.grade())
}

#[test]
fn a_result_that_stays_torn_is_unreadable_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let path = begin_trial(dir.path(), NAME);
    let text = result("sum-lines", 1.0);
    fs::write(path.join("result.json"), &text[..text.len() / 2]).unwrap();
    let begin = Instant::now();
    let fleet = scan(&[dir.path()]);
    assert!(begin.elapsed() < Duration::from_secs(1));
    let broken = trial(&fleet, NAME);
    assert!(broken.unreadable);
    assert_eq!(phase_of(&fleet, NAME), Some(Phase::Unreadable));
    let problem = &broken.problems[0];
    assert!(problem.path.contains(&format!("{NAME}/result.json:2:")), "{}", problem.path);
    assert!(problem.message.contains("ends in the middle"), "{}", problem.message);
    // Live, it takes a moment until that is certain.
    let mut attached = Attached::new(dir.path(), notify());
    attached.until_phase(NAME, Phase::Unreadable);
    fs::write(path.join("result.json"), &text).unwrap();
    attached.until_phase(NAME, Phase::Done);
}

#[test]
fn a_torn_job_result_keeps_what_was_known() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let mut attached = Attached::new(dir.path(), notify());
    attached.until("the job", |f| f.jobs().iter().any(|j| j.facts.summary.is_some()));
    for _ in 0..10 {
        fs::write(dir.path().join("result.json"), "").unwrap();
        attached.during(Duration::from_millis(40));
        let facts = &only(&attached.fleet).facts;
        assert!(facts.summary.is_some() && facts.problems.is_empty(), "{facts:?}");
        fs::write(dir.path().join("result.json"), job_result(2, false)).unwrap();
    }
    fs::write(dir.path().join("result.json"), job_result(2, true)).unwrap();
    attached.until("the end", |f| only(f).facts.summary.as_ref().is_some_and(|s| s.finished.is_some()));
    // One that stays torn gets a word, and the last good reading stays.
    fs::write(dir.path().join("result.json"), "{\"id\":").unwrap();
    attached.until("a problem", |f| kinds(only(f)) == [ProblemKind::Unreadable]);
    assert!(only(&attached.fleet).facts.summary.is_some());
}

#[test]
fn an_in_place_rewrite_of_the_same_size_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    done_trial(dir.path(), NAME, 1.0);
    let mut fleet = Fleet::default();
    let mut follower = Follower::new(vec![dir.path().to_path_buf()], notify());
    follower.pass(&mut take(&mut fleet));
    assert_eq!(trial_grade(&fleet, NAME), Some(Grade::Passed));
    let path = dir.path().join(NAME).join("result.json");
    let (before, size) =
        (fs::metadata(dir.path().join(NAME)).unwrap().modified().unwrap(), fs::metadata(&path).unwrap().len());
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&path, result("sum-lines", 0.0)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    assert_eq!(fs::metadata(dir.path().join(NAME)).unwrap().modified().unwrap(), before);
    follower.pass(&mut take(&mut fleet));
    assert_eq!(trial_grade(&fleet, NAME), Some(Grade::Failed));
}

#[test]
fn a_result_put_in_place_by_rename_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let path = begin_trial(dir.path(), NAME);
    let mut attached = Attached::new(dir.path(), notify());
    attached.until_phase(NAME, Phase::EnvironmentSetup);
    fs::write(path.join(".result.tmp"), result("sum-lines", 0.5)).unwrap();
    fs::rename(path.join(".result.tmp"), path.join("result.json")).unwrap();
    attached.until_phase(NAME, Phase::Done);
    assert_eq!(trial_grade(&attached.fleet, NAME), Some(Grade::Partial));
    fs::rename(dir.path().join(NAME), dir.path().join("renamed__aB3dE5f")).unwrap();
    attached.until_phase("renamed__aB3dE5f", Phase::Done);
    attached.until("the old name's end", |f| phase_of(f, NAME).is_none());
}

// ---- directories that vanish ----

#[test]
fn a_retried_trial_begins_anew() {
    for options in [notify(), polling()] {
        let dir = tempfile::tempdir().unwrap();
        make_job(dir.path());
        let path = begin_trial(dir.path(), NAME);
        let mut attached = Attached::new(dir.path(), options);
        fs::write(path.join("agent/recording.cast"), "x").unwrap();
        fs::write(path.join("agent/trajectory.json"), r#"{"steps":[{"source":"agent"},{"source":"agent"}]}"#).unwrap();
        attached.until_phase(NAME, Phase::AgentRunning(3));
        fs::write(path.join("exception.txt"), "Traceback (most recent call last):\nRuntimeError: x\n").unwrap();
        attached.until_phase(NAME, Phase::TearingDown);
        fs::remove_dir_all(&path).unwrap();
        attached.until("its end", |f| phase_of(f, NAME).is_none());
        assert!(only(&attached.fleet).retry_wait.contains_key(NAME));
        begin_trial(dir.path(), NAME);
        attached.until_phase(NAME, Phase::EnvironmentSetup);
        fs::write(path.join("agent/recording.cast"), "x").unwrap();
        // Nothing of the first attempt is left, not even what a torn file would keep.
        fs::write(path.join("agent/trajectory.json"), "{").unwrap();
        attached.until_phase(NAME, Phase::AgentRunning(1));
    }
}

#[test]
fn a_trial_replaced_between_two_looks_is_another_attempt() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let path = begin_trial(dir.path(), NAME);
    fs::write(path.join("agent/trajectory.json"), r#"{"steps":[{"source":"agent"}]}"#).unwrap();
    let mut events = Vec::new();
    let mut follower = Follower::new(vec![dir.path().to_path_buf()], notify());
    let mut keep = |batch: Vec<JobEvent>| {
        events.extend(batch);
        true
    };
    follower.pass(&mut keep);
    fs::remove_dir_all(&path).unwrap();
    begin_trial(dir.path(), NAME);
    fs::write(path.join("agent/trajectory.json"), "").unwrap();
    follower.pass(&mut keep);
    let gone = events.iter().filter(|e| matches!(e, JobEvent::TrialGone(..))).count();
    assert_eq!(gone, 1);
    let mut fleet = Fleet::default();
    events.into_iter().for_each(|e| fleet.apply(e));
    assert_eq!(trial(&fleet, NAME).evidence.as_ref().unwrap().trajectory, None);
}

#[test]
fn a_job_dir_that_is_moved_away_and_back() {
    for options in [notify(), polling()] {
        let dir = tempfile::tempdir().unwrap();
        let (job, away) = (dir.path().join("job"), dir.path().join("away"));
        make_job(&job);
        done_trial(&job, NAME, 1.0);
        let running = begin_trial(&job, "other__aB3dE5f");
        let mut attached = Attached::new(&job, options);
        attached.until("all", |f| f.jobs().iter().any(|j| j.settled));
        fs::rename(&job, &away).unwrap();
        attached.until("the loss", |f| only(f).unreachable.is_some());
        let problem = only(&attached.fleet).unreachable.clone().unwrap();
        assert!(problem.path.contains("/job") && problem.message.contains("no such directory"), "{problem:?}");
        assert_eq!(only(&attached.fleet).trials.len(), 2, "what is known stays");
        fs::write(away.join("other__aB3dE5f/result.json"), result("other", 0.0)).unwrap();
        done_trial(&away, "third__aB3dE5f", 1.0);
        fs::rename(&away, &job).unwrap();
        attached.until("the return", |f| only(f).unreachable.is_none());
        attached.until_phase("other__aB3dE5f", Phase::Done);
        attached.until_phase("third__aB3dE5f", Phase::Done);
        // It is watched as before.
        drop(running);
        begin_trial(&job, "fourth__aB3dE5f");
        attached.until_phase("fourth__aB3dE5f", Phase::EnvironmentSetup);
    }
}

// ---- hostile directories ----

fn fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

#[test]
fn nothing_odd_hangs_or_leads_out() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    make_job(&job);
    let outside = dir.path().join("outside");
    done_trial(&outside, "secret__aB3dE5f", 1.0);
    let at = |name: &str| job.join(format!("{name}__aB3dE5f"));
    // A FIFO where each file should be.
    let trial = begin_trial(&job, "fifos__aB3dE5f");
    for file in [
        "result.json",
        "exception.txt",
        "agent/recording.cast",
        "agent/trajectory.json",
        "verifier/reward.txt",
        "artifacts/manifest.json",
    ] {
        fifo(&trial.join(file));
    }
    fs::remove_file(trial.join("config.json")).unwrap();
    fifo(&trial.join("config.json"));
    // Links.
    symlink(outside.join("secret__aB3dE5f"), at("linked")).unwrap();
    symlink(at("loop"), at("loop")).unwrap();
    let trial = begin_trial(&job, "inner-link__aB3dE5f");
    symlink(outside.join("secret__aB3dE5f/result.json"), trial.join("result.json")).unwrap();
    fs::remove_dir(trial.join("agent")).unwrap();
    symlink(&outside, trial.join("agent")).unwrap();
    // A directory where the result should be.
    let trial = begin_trial(&job, "directory__aB3dE5f");
    fs::create_dir(trial.join("result.json")).unwrap();
    // Named like a trial, but its only file is another program's.
    fs::create_dir(at("array")).unwrap();
    fs::write(at("array").join("result.json"), "[1, 2]").unwrap();
    // Other programs' things.
    fs::create_dir_all(job.join("mytool/cache")).unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    fs::File::open(job.join("mytool")).unwrap().set_modified(old).unwrap();
    fs::create_dir(job.join("webapp")).unwrap();
    fs::write(job.join("webapp/result.json"), r#"{"coverage": 0.9}"#).unwrap();
    fs::create_dir_all(job.join(".sources/abc")).unwrap();
    fs::write(job.join("notes.txt"), "x").unwrap();
    let before = tree(dir.path());
    let begin = Instant::now();
    let fleet = scan(&[&job]);
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    let job_state = only(&fleet);
    let names: Vec<&str> = job_state.trials.keys().map(|n| &**n).collect();
    assert_eq!(names, ["directory__aB3dE5f", "fifos__aB3dE5f", "inner-link__aB3dE5f"]);
    for trial in job_state.trials.values() {
        assert!(trial.unreadable && trial.result.is_none(), "{trial:?}");
    }
    assert!(trial_says(&fleet, "fifos__aB3dE5f", "a FIFO"));
    assert!(trial_says(&fleet, "directory__aB3dE5f", "a directory"));
    assert!(trial_says(&fleet, "inner-link__aB3dE5f", "a symbolic link"));
    let inner = self::trial(&fleet, "inner-link__aB3dE5f").evidence.as_ref().unwrap();
    assert!(!inner.agent_any && inner.trajectory.is_none());
    let mut foreign: Vec<String> =
        job_state.facts.problems.iter().map(|p| format!("{:?} {}", p.kind, p.path)).collect();
    foreign.sort();
    let expected = ["array__aB3dE5f/result.json", "linked__aB3dE5f", "loop__aB3dE5f", "mytool", "webapp/result.json"];
    assert_eq!(foreign.len(), expected.len(), "{foreign:?}");
    for (is, wanted) in foreign.iter().zip(expected) {
        assert!(is.starts_with("Foreign ") && is.contains(wanted), "{is}");
    }
    assert_eq!(tree(dir.path()), before, "something was written");
    // And live, without an end.
    let mut attached = Attached::new(&job, notify());
    attached.until("all", |f| f.jobs().iter().any(|j| j.settled));
    attached.until_phase("fifos__aB3dE5f", Phase::Unreadable);
    fs::write(job.join("mytool/lock.json"), "{}").unwrap();
    attached.remote.send(Control::Rescan);
    attached.until("the tool's turning into a trial", |f| only(f).trials.contains_key("mytool"));
}

fn trial_says(fleet: &Fleet, name: &str, words: &str) -> bool {
    trial(fleet, name).problems.iter().any(|p| p.kind == ProblemKind::Unreadable && p.message.contains(words))
}

/// Every path below `dir` with its size and times.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (u64, Option<std::time::SystemTime>)> {
    let mut out = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let meta = entry.metadata().unwrap();
            out.insert(entry.path(), (meta.len(), meta.modified().ok()));
            if meta.is_dir() {
                todo.push(entry.path());
            }
        }
    }
    out
}

#[test]
fn names_with_control_characters_are_cleaned_in_messages() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let odd = dir.path().join("evil\u{1b}[2Jname");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("result.json"), "[1]").unwrap();
    let fleet = scan(&[dir.path()]);
    let problem = &only(&fleet).facts.problems[0];
    assert!(!problem.path.contains('\u{1b}') && problem.path.contains("name"), "{problem:?}");
}

#[test]
fn a_directory_that_may_not_be_read_names_its_owner() {
    if rustix::process::geteuid().is_root() {
        support::skipped("root may read everything");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let path = begin_trial(dir.path(), NAME);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let fleet = scan(&[dir.path()]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(trial(&fleet, NAME).unreadable);
    assert!(trial_says(&fleet, NAME, "permission denied (owner uid "));
}

#[test]
fn clocks_ahead_are_reported_once_and_break_nothing() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let path = begin_trial(dir.path(), NAME);
    let ahead = std::time::SystemTime::now() + Duration::from_secs(3600);
    for file in ["lock.json", "config.json", "trial.log"] {
        fs::File::options().append(true).open(path.join(file)).unwrap().set_modified(ahead).unwrap();
    }
    fs::write(path.join("result.json"), "{\"id\"").unwrap();
    fs::File::options().append(true).open(path.join("result.json")).unwrap().set_modified(ahead).unwrap();
    let mut attached = Attached::new(dir.path(), notify());
    attached.until_phase(NAME, Phase::Unreadable);
    assert_eq!(kinds(only(&attached.fleet)), [ProblemKind::Clock]);
    let last = only(&attached.fleet).liveness.last_write.unwrap();
    assert!(last <= pilothouse::job::Stamp::now());
    fs::write(path.join("result.json"), result("sum-lines", 1.0)).unwrap();
    attached.until_phase(NAME, Phase::Done);
}

// ---- limits ----

#[test]
fn limits_come_from_the_task_else_from_a_siblings_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("jobs/job");
    make_job(&job);
    begin_trial(&job, NAME);
    let fleet = scan(&[&job]);
    assert_eq!(trial(&fleet, NAME).limits.agent, None);
    // A sibling of the same task ran into its limit.
    let timeout = result("sum-lines", 0.0).replace(
        "\"exception_info\":null",
        r#""exception_info":{"exception_type":"AgentTimeoutError","exception_message":"Agent execution timed out after 900.0 seconds"}"#,
    );
    fs::create_dir(job.join("sum-lines__zzzzzzz")).unwrap();
    fs::write(job.join("sum-lines__zzzzzzz/result.json"), timeout).unwrap();
    let mut attached = Attached::new(&job, notify());
    attached.until("the sibling's limit", |f| {
        f.jobs().first().is_some_and(|j| j.trials.get(NAME).is_some_and(|t| t.limits.agent == Some(900.0)))
    });
    drop(attached);
    fs::create_dir_all(dir.path().join("tasks/sum-lines")).unwrap();
    fs::write(
        dir.path().join("tasks/sum-lines/task.toml"),
        "[agent]\ntimeout_sec = 120.0\n[verifier]\ntimeout_sec = 60\n",
    )
    .unwrap();
    let fleet = scan(&[&job]);
    assert_eq!(trial(&fleet, NAME).limits.agent, Some(120.0));
    assert_eq!(trial(&fleet, NAME).limits.verifier, Some(60.0));
}

// ---- cost ----

#[test]
fn a_finished_trial_costs_one_file_and_then_none() {
    const N: u64 = 2000;
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    for i in 0..N {
        let name = format!("task-{i:04}__aB3dE5f");
        done_trial(dir.path(), &name, f64::from(i % 2 == 0));
        fs::create_dir(dir.path().join(&name).join("agent")).unwrap();
        fs::write(dir.path().join(&name).join("config.json"), "{}").unwrap();
    }
    let mut follower = Follower::new(vec![dir.path().to_path_buf()], notify());
    let counters = follower.counters();
    let mut fleet = Fleet::default();
    let (mut first, mut kinds) = (None, Vec::new());
    let begin = Instant::now();
    follower.scan_once(&mut |events| {
        first.get_or_insert(begin.elapsed());
        for event in events {
            kinds.push(std::mem::discriminant(&event));
            fleet.apply(event);
        }
        true
    });
    assert_eq!(only(&fleet).trials.len() as u64, N);
    // The job has config.json and result.json, and an absent lock.json that is asked for.
    let files = counters.files.load(Ordering::Relaxed);
    assert!(files <= N + 3, "{files} files opened for {N} trials");
    assert!(first.unwrap() < Duration::from_millis(100), "first event after {first:?}");
    let job = JobEvent::Settled(pilothouse::job::JobKey(0));
    assert_eq!(kinds.iter().filter(|k| **k == std::mem::discriminant(&job)).count(), 1);
    let before = counters.files.load(Ordering::Relaxed);
    follower.pass(&mut take(&mut fleet));
    assert_eq!(counters.files.load(Ordering::Relaxed), before, "nothing changed, nothing is opened");
}

#[test]
fn a_gone_receiver_ends_the_follower() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    for i in 0..300 {
        done_trial(dir.path(), &format!("task-{i:04}__aB3dE5f"), 1.0);
    }
    let follower = Follower::new(vec![dir.path().to_path_buf()], notify());
    let thread = std::thread::spawn(move || follower.run(Box::new(|_| false)));
    let begin = Instant::now();
    while !thread.is_finished() {
        assert!(begin.elapsed() < Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(5));
    }
}

// ---- polling ----

/// The same script once watched and once polled: in the end both must know the same.
#[test]
fn polling_and_watching_come_to_the_same() {
    let script = |options: Options| -> (BTreeMap<String, Trial>, usize) {
        let dir = tempfile::tempdir().unwrap();
        let mut attached = Attached::new(dir.path(), options);
        let job = dir.path().join("job");
        make_job(&job);
        let trial = begin_trial(&job, NAME);
        let other = begin_trial(&job, "other__aB3dE5f");
        attached.until_phase(NAME, Phase::EnvironmentSetup);
        fs::write(trial.join("agent/terminus_2.pane"), "$ ").unwrap();
        attached.until_phase(NAME, Phase::AgentSetup);
        fs::write(trial.join("agent/recording.cast"), "{}").unwrap();
        attached.until_phase(NAME, Phase::AgentRunning(1));
        for n in 1..4 {
            let steps = vec![r#"{"source":"agent"}"#; n].join(",");
            fs::write(trial.join("agent/trajectory.json"), format!("{{\"steps\":[{steps}]}}")).unwrap();
            attached.until_phase(NAME, Phase::AgentRunning(n as u32 + 1));
        }
        fs::write(trial.join("artifacts/manifest.json"), "[]").unwrap();
        attached.until_phase(NAME, Phase::Verifying);
        fs::write(trial.join("verifier/reward.txt"), "").unwrap();
        attached.during(Duration::from_millis(120));
        assert_eq!(phase_of(&attached.fleet, NAME), Some(Phase::Verifying));
        fs::write(trial.join("verifier/reward.txt"), "0.25\n").unwrap();
        attached.until_phase(NAME, Phase::TearingDown);
        attached.until("the early reward", |f| {
            self::trial(f, NAME).evidence.as_ref().and_then(|e| e.reward).is_some_and(|r| r.value == Some(0.25))
        });
        fs::remove_dir_all(&other).unwrap();
        attached.until("the other's end", |f| phase_of(f, "other__aB3dE5f").is_none());
        fs::write(trial.join("result.json"), result("sum-lines", 0.2)).unwrap();
        attached.until_phase(NAME, Phase::Done);
        fs::write(job.join("result.json"), job_result(1, true)).unwrap();
        attached.until("the end", |f| only(f).facts.summary.as_ref().is_some_and(|s| s.finished.is_some()));
        let trials = only(&attached.fleet).trials.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
        (trials, only(&attached.fleet).retry_wait.len())
    };
    let watched = script(notify());
    assert_eq!(watched.0.len(), 1);
    assert_eq!(script(polling()), watched);
}

// ---- memory between two looks ----

/// A small generator, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// After any change whatever, one look that remembers must tell the same as a look that does not.
#[test]
fn what_is_remembered_never_hides_a_change() {
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let dir = tempfile::tempdir().unwrap();
        make_job(dir.path());
        let mut fleet = Fleet::default();
        let mut follower = Follower::new(vec![dir.path().to_path_buf()], notify());
        let mut script = Vec::new();
        for _ in 0..150 {
            script.push(change(dir.path(), &mut dice));
            follower.pass(&mut take(&mut fleet));
            let mut fresh = Fleet::default();
            Follower::new(vec![dir.path().to_path_buf()], notify()).pass(&mut take(&mut fresh));
            let (ours, theirs) = (&only(&fleet).trials, &only(&fresh).trials);
            assert_eq!(ours, theirs, "seed {seed}, after {:#?}", &script[script.len().saturating_sub(8)..]);
            assert_eq!(only(&fleet).facts, only(&fresh).facts);
        }
    }
}

/// Changes one thing in one of three trials. Never leaves a file torn: that is where memory may
/// differ.
fn change(job: &Path, dice: &mut Dice) -> String {
    let name = ["one__aB3dE5f", "two__aB3dE5f", "three__aB3dE5f"][dice.roll(3) as usize];
    let trial = job.join(name);
    if !trial.exists() {
        begin_trial(job, name);
        return format!("begin {name}");
    }
    let steps = format!(r#"{{"steps":[{}]}}"#, vec![r#"{"source":"agent"}"#; dice.roll(4) as usize].join(","));
    let reward = format!("{}.{}", dice.roll(2), dice.roll(10));
    let finished = result("sum-lines", dice.roll(2) as f64);
    let written: [(&str, &str); 10] = [
        ("agent/trajectory.json", &steps),
        ("agent/recording.cast", "x"),
        ("agent/terminus_2.pane", "x"),
        ("agent/codex.txt", "x"),
        ("trial.log", "up\n"),
        ("artifacts/manifest.json", "[]"),
        ("verifier/reward.txt", &reward),
        ("verifier/test-stdout.txt", "ok"),
        ("exception.txt", "Traceback (most recent call last):\nValueError: x\n"),
        ("result.json", &finished),
    ];
    let (file, text) = written[dice.roll(10) as usize];
    match dice.roll(12) {
        0 => {
            fs::remove_dir_all(&trial).unwrap();
            format!("remove {name}")
        }
        1 => {
            fs::remove_dir_all(&trial).unwrap();
            begin_trial(job, name);
            format!("replace {name}")
        }
        2..5 => {
            drop(fs::remove_file(trial.join(file)));
            format!("remove {name}/{file}")
        }
        5 => {
            let step = trial.join("steps/first");
            fs::create_dir_all(step.join("agent")).unwrap();
            drop(fs::rename(trial.join("agent/trajectory.json"), step.join("agent/trajectory.json")));
            format!("move the trajectory of {name}")
        }
        _ => {
            fs::write(trial.join(file), text).unwrap();
            format!("write {name}/{file}: {text}")
        }
    }
}

#[test]
fn the_trial_on_the_screen_is_looked_at_first() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let path = begin_trial(dir.path(), NAME);
    let slow = Options { poll: Some(Duration::from_secs(60)), owner: false, ..Options::default() };
    let mut attached = Attached::new(dir.path(), slow);
    attached.until_phase(NAME, Phase::EnvironmentSetup);
    // Whatever is still young is looked at once more.
    attached.during(Duration::from_millis(300));
    fs::write(path.join("agent/recording.cast"), "x").unwrap();
    attached.during(Duration::from_millis(300));
    assert_eq!(phase_of(&attached.fleet, NAME), Some(Phase::EnvironmentSetup));
    let key = TrialKey { job: only(&attached.fleet).key, trial: NAME.into() };
    attached.remote.send(Control::Visible(Some(key)));
    attached.until_phase(NAME, Phase::AgentRunning(1));
}

#[test]
fn the_process_that_writes_the_log_is_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    make_job(dir.path());
    let log = fs::OpenOptions::new().create(true).append(true).open(dir.path().join("job.log")).unwrap();
    let mut writer = std::process::Command::new("sleep").arg("60").stdout(log).spawn().unwrap();
    let owner = || {
        let mut fleet = Fleet::default();
        Follower::new(vec![dir.path().to_path_buf()], Options::default()).scan_once(&mut take(&mut fleet));
        only(&fleet).liveness.clone()
    };
    let found = owner();
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(found.owner.as_ref().map(|(pid, name)| (*pid, &**name)), Some((writer.id(), "sleep")));
    assert_eq!(owner().owner, None);
    assert!(found.last_write.is_some());
    // A job that ended has no owner to be looked for.
    fs::write(dir.path().join("result.json"), job_result(0, true)).unwrap();
    assert_eq!(owner().owner, None);
}
