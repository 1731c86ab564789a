//! What happens around a job: an engine that goes, a disk that fills, surroundings that fail when too
//! much runs at once.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilothouse::environment::docker::{Address, DockerEngine};
use pilothouse::environment::{EnvError, Environment, Trouble};
use pilothouse::harbor::write::Claimant;
use pilothouse::scheduler::adaptive::Adapted;
use pilothouse::scheduler::trial::{Ask, Check};
use pilothouse::scheduler::{DockerPlaces, Event, Gate, Job, LocalPlaces, Manners, Places, Standing};

use crate::bench::{Bench, until};
use crate::own_engine::daemon;
use crate::support;
use crate::yard::{self, IMAGE, PASS_INSIDE, Yard, trial_dir};

/// A small file system of the test's own.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(at: PathBuf) -> Option<Tmpfs> {
        fs::create_dir_all(&at).unwrap();
        let args = ["-t", "tmpfs", "-o", "size=96m", "tmpfs"];
        let done = Command::new("mount").args(args).arg(&at).output();
        if done.is_ok_and(|out| out.status.success()) {
            return Some(Tmpfs(at));
        }
        support::skipped("mounting needs root");
        None
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn nothing_begins_while_a_disk_is_short() {
    let bench = Bench::new(&["a", "b"]);
    let Some(disk) = Tmpfs::new(bench.path("jobs")) else { return };
    // 48 MiB must be free; the later flag wins over the bench's own.
    let args = bench.args("1", &[]);
    let args: Vec<String> = args.iter().map(|a| if a == "0" { "0.046875".to_string() } else { a.clone() }).collect();
    let out = fs::File::create(bench.path("out")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(args)
        .arg("--headless")
        .env("PILOTHOUSE_STATE_DIR", &bench.state)
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap();
    let mut run = crate::bench::Run(child);
    until("answer", || bench.ctl(&["status"]).status.success());
    bench.wait(1, 1, 0);
    let fill = disk.0.join("fill");
    fs::write(&fill, vec![1; 60 << 20]).unwrap();
    until("a closed gate", || bench.status()["gates"][0]["gate"] == "disk");
    let why = bench.status()["gates"][0]["why"].as_str().unwrap().to_string();
    assert!(why.contains("MiB free where the job dir is, the floor is 48 MiB"), "{why}");
    assert!(bench.ask(&["status"]).contains("nothing begins for"), "{}", bench.ask(&["status"]));
    bench.go("a");
    bench.wait(0, 1, 1);
    std::thread::sleep(Duration::from_millis(2500));
    bench.wait(0, 1, 1);
    fs::remove_file(&fill).unwrap();
    bench.wait(1, 0, 1);
    assert_eq!(bench.status()["gates"].as_array().unwrap().len(), 0);
    bench.go("b");
    assert_eq!(run.end(), 0, "{}", bench.output());
    assert!(bench.results().iter().all(|(_, end)| end == "1.0"), "{:?}", bench.results());
    let said = bench.output();
    assert!(said.contains("disk: nothing begins: ") && said.contains("disk: well again, after "), "{said}");
    let notes = bench.journal();
    assert_eq!(bench.acts(), ["gate", "gate"]);
    assert!(notes[0]["result"].as_str().unwrap().starts_with("closed at "), "{notes:?}");
    let result = notes[1]["result"].as_str().unwrap();
    assert!(result.starts_with("open again: closed from ") && result.contains(" to "), "{result}");
}

#[test]
fn settles_where_the_surroundings_stop_failing() {
    let bench = Bench::new(&[]);
    // An environment that is sick when more than three are there.
    let there = bench.path("there");
    fs::create_dir(&there).unwrap();
    let (at, own) = (there.display(), "$(echo \"$LOGS_DIR\" | md5sum | cut -c1-16)");
    fs::write(
        bench.path("check.sh"),
        format!("exec 9>{at}.lock; flock 9; [ $(ls {at} | wc -l) -lt 3 ] || exit 1; touch {at}/{own}\n"),
    )
    .unwrap();
    let check = format!(
        "[environment.healthcheck]\ncommand = \"bash {}\"\nretries = 1\ninterval_sec = 0.1",
        bench.path("check.sh").display()
    );
    let test = format!("rm -f {at}/{own}; echo 1 > \"$LOGS_DIR/verifier/reward.txt\"");
    for n in 0..40 {
        bench.task(&format!("t{n:02}"), "sleep 0.6", &test, &check);
    }
    let mut run = bench.run("8", &["--adaptive"]);
    let mut settled = false;
    until("the end", || {
        let status = bench.ctl(&["status", "--json"]);
        let value: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        settled |= value["status"]["adaptive_limit"] == 3 && value["status"]["settled"] == true;
        run.0.try_wait().unwrap().is_some()
    });
    let said = bench.output();
    assert!(settled, "{said}");
    assert!(said.contains("n settled at 3 (adaptive)"), "{said}");
    let notes = bench.journal();
    let results: Vec<&str> = notes.iter().map(|n| n["result"].as_str().unwrap()).collect();
    assert!(notes.iter().all(|n| n["act"] == "adaptive"), "{notes:?}");
    assert!(results[0].starts_with("n 8 -> "), "{results:?}");
    assert_eq!(results.last(), Some(&"settled at n 3"), "{results:?}");
    assert!(notes.iter().all(|n| !n["why"].as_str().unwrap().is_empty()));
    // It cost few trials, and the many passed.
    let failed = bench.results().iter().filter(|(_, end)| end == "HealthcheckError").count();
    assert!((2..=14).contains(&failed), "{failed}: {said}");
}

/// Runs a plan in an engine's containers, with what is heard of it.
async fn in_engine<F: Future<Output = ()>>(
    address: Address,
    yard: &Yard,
    slots: u32,
    meanwhile: impl FnOnce(pilothouse::scheduler::Control, pilothouse::scheduler::Plan) -> F,
) -> (pilothouse::scheduler::Finished, Vec<Event>) {
    let engine = DockerEngine::connect_to(address).await.unwrap();
    let plan = yard.plan(yard.config("oracle", slots)).unwrap();
    let places = Arc::new(DockerPlaces::open(engine, &plan, "tests").await.unwrap());
    let (mut job, control) = Job::begin(plan.clone(), &Claimant::default(), places.clone()).unwrap();
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let heard = Arc::clone(&events);
    let hear = Arc::new(move |event: &Event| heard.lock().unwrap().push(event.clone()));
    job.mind(Manners { hear: Some(hear), ..Manners::default() });
    let both = async { tokio::join!(job.run(), meanwhile(control, plan)).0 };
    let done = tokio::time::timeout(Duration::from_secs(300), both).await.expect("the job hangs").unwrap();
    places.close().await.unwrap();
    let events = events.lock().unwrap().clone();
    (done, events)
}

#[test]
fn an_engine_that_is_away_costs_no_trial_that_had_not_begun() {
    let engine = match daemon() {
        Ok(engine) => Arc::new(Mutex::new(engine)),
        Err(why) => return support::skipped(why),
    };
    let away = if std::env::var_os("PILOTHOUSE_LONG_FAULTS").is_some() { 60 } else { 6 };
    let toml = format!("{IMAGE}\nallow_internet = false");
    let yard = Yard::new()
        .task("a-runs", "touch /logs/agent/here; sleep 600", PASS_INSIDE, &toml)
        .task("b-after", "true", PASS_INSIDE, &toml)
        .task("c-after", "true", PASS_INSIDE, &toml)
        .task("d-after", "true", PASS_INSIDE, &toml);
    let address = Address::Unix(engine.lock().unwrap().socket().to_str().unwrap().to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (done, events) = runtime.block_on(in_engine(address, &yard, 1, async |control, plan| {
        yard::until(|| trial_dir(&plan, "a-runs").join("agent/here").exists()).await;
        let stopped = Arc::clone(&engine);
        tokio::task::spawn_blocking(move || stopped.lock().unwrap().stop()).await.unwrap();
        let mut status = control.status();
        let shut = status.wait_for(|now| now.closed.iter().any(|c| c.gate == Gate::Docker) && now.over == 1).await;
        // One may have been let in while the engine, on its way out, still answered: it waits, too.
        assert!(shut.unwrap().queued >= 2);
        let held = control.status().borrow().queued;
        tokio::time::sleep(Duration::from_secs(away)).await;
        assert_eq!(control.status().borrow().over, 1);
        assert!(control.status().borrow().queued >= held);
        let started = Arc::clone(&engine);
        tokio::task::spawn_blocking(move || assert!(started.lock().unwrap().start())).await.unwrap();
    }));
    assert!(done.complete, "{done:?}");
    let read = yard.read();
    assert_eq!(read.end("a-runs"), (None, Some("RuntimeError")));
    for task in ["b-after", "c-after", "d-after"] {
        assert_eq!(read.end(task), (Some(1.0), None), "{task}");
    }
    let closed = events.iter().filter(|e| matches!(e, Event::Closed(c) if c.gate == Gate::Docker)).count();
    let opened = events.iter().filter_map(|e| if let Event::Opened(c, at, false) = e { Some((c, at)) } else { None });
    let opened: Vec<_> = opened.collect();
    assert_eq!((closed, opened.len()), (1, 1), "{events:?}");
    assert!(opened[0].1.duration_since(opened[0].0.since).as_secs() >= away as i64, "{events:?}");
    assert!(!events.iter().any(|e| matches!(e, Event::Adapted(Adapted::Changed { .. }))));
}

/// Places that fall ill with the first environment that is asked of them.
struct Frail {
    local: LocalPlaces,
    asked: AtomicBool,
    ill: Arc<AtomicBool>,
}

impl Frail {
    fn trouble() -> EnvError {
        EnvError::new(Trouble::Unreachable, "ask the engine", "nobody answers", "start it")
    }
}

impl Places for Frail {
    fn place(&self, ask: Ask<'_>) -> Result<Box<dyn Environment>, EnvError> {
        if !self.asked.swap(true, Ordering::Relaxed) {
            self.ill.store(true, Ordering::Relaxed);
        }
        if self.ill.load(Ordering::Relaxed) { Err(Frail::trouble()) } else { self.local.place(ask) }
    }

    fn check(&self) -> Check<'_> {
        let ill = self.ill.load(Ordering::Relaxed);
        Box::pin(std::future::ready(if ill { Err(Frail::trouble()) } else { Ok(()) }))
    }
}

#[test]
fn a_trial_that_could_not_begin_goes_back_and_loses_nothing() {
    let yard = Yard::new().task("a", "true", yard::PASS, "").task("b", "true", yard::PASS, "");
    let ill: Arc<AtomicBool> = Arc::default();
    let local = LocalPlaces { root: yard.temp.path().join("scratch") };
    let places = Arc::new(Frail { local, asked: AtomicBool::default(), ill: Arc::clone(&ill) });
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let heard = Arc::clone(&events);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(async {
        let plan = yard.plan(yard.config("oracle", 1)).unwrap();
        let (mut job, control) = Job::begin(plan.clone(), &Claimant::default(), places).unwrap();
        let hear = Arc::new(move |event: &Event| heard.lock().unwrap().push(event.clone()));
        job.mind(Manners { hear: Some(hear), ..Manners::default() });
        let meanwhile = async {
            let mut status = control.status();
            let held = status.wait_for(|now| now.closed.len() == 1 && now.running == 0).await.unwrap().clone();
            assert_eq!((held.queued, held.over), (2, 0));
            assert!(held.closed[0].why.contains("nobody answers"));
            // It goes first, as before.
            assert!(matches!(control.trial(control.find("a")[0]).unwrap().1, Standing::Queued(0)));
            tokio::time::sleep(Duration::from_millis(500)).await;
            ill.store(false, Ordering::Relaxed);
        };
        let both = async { tokio::join!(job.run(), meanwhile).0 };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("the job hangs").unwrap()
    });
    assert!(done.complete && done.ended == 2, "{done:?}");
    let read = yard.read();
    assert_eq!((read.end("a"), read.end("b")), ((Some(1.0), None), (Some(1.0), None)));
    let events = events.lock().unwrap();
    let backs = events.iter().filter(|e| matches!(e, Event::PutBack(trial, _) if trial.starts_with("a__"))).count();
    assert_eq!(backs, 1, "{events:?}");
    assert!(!yard::find(&yard, &read, "a").join("retries/1/result.json").exists(), "it had no result");
}

/// What somebody outside says of the model's endpoint holds everything up, too.
#[test]
fn a_gate_that_is_fed_from_outside_holds_admission() {
    let yard = Yard::new().task("a", "true", yard::PASS, "").task("b", "sleep 1", yard::PASS, "");
    let done = yard.run(yard.config("oracle", 1), async |control, plan| {
        assert!(control.gate(Gate::Endpoint, Some("the endpoint refuses connections")));
        yard::until(|| control.status().borrow().closed.len() == 1).await;
        yard::until(|| control.status().borrow().running == 0).await;
        let before = control.status().borrow().queued;
        tokio::time::sleep(Duration::from_millis(800)).await;
        assert_eq!(control.status().borrow().queued, before);
        assert!(before > 0 && !trial_dir(&plan, "b").exists());
        control.gate(Gate::Endpoint, None);
    });
    assert!(done.complete);
}
