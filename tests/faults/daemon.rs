//! An engine that goes away in the middle and comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilothouse::environment::docker::{Address, DockerEngine};

use crate::own_engine::daemon;
use crate::support;
use crate::yard::{IMAGE, PASS_INSIDE, Yard, class_of, json, run_in, trial_dir, until};

#[test]
fn an_engine_that_restarts_ends_what_ran_and_nothing_else() {
    let daemon = match daemon() {
        Ok(daemon) => Arc::new(Mutex::new(daemon)),
        Err(why) => return support::skipped(why),
    };
    let toml = format!("{IMAGE}\nallow_internet = false");
    let wait = "touch /logs/agent/here; sleep 600";
    let yard = Yard::new()
        .task("a-before", "true", PASS_INSIDE, &toml)
        .task("b-runs", wait, PASS_INSIDE, &toml)
        .task("c-runs", wait, PASS_INSIDE, &toml)
        .task("d-after", "true", PASS_INSIDE, &toml)
        .task("e-after", "true", PASS_INSIDE, &toml);
    let config = yard.config("oracle", 2);
    let address = Address::Unix(daemon.lock().unwrap().socket().to_str().unwrap().to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (done, id) = runtime.block_on(async {
        let engine = DockerEngine::connect_to(address).await.unwrap();
        run_in(engine, &yard, config, async |_, plan| {
            let here = |task: &str| trial_dir(&plan, task).join("agent/here").exists();
            until(|| here("b-runs") && here("c-runs")).await;
            let daemon = Arc::clone(&daemon);
            let restart = move || {
                let mut daemon = daemon.lock().unwrap();
                daemon.stop();
                // What has not begun waits for it.
                std::thread::sleep(Duration::from_secs(2));
                assert!(daemon.start());
            };
            tokio::task::spawn_blocking(restart).await.unwrap();
        })
        .await
    });
    let done = done.unwrap();
    assert!(done.complete, "{done:?}");
    let read = yard.read();
    for task in ["a-before", "d-after", "e-after"] {
        assert_eq!(read.end(task), (Some(1.0), None), "{task}");
    }
    for task in ["b-runs", "c-runs"] {
        assert_eq!(read.end(task), (None, Some("RuntimeError")), "{task}");
        assert_eq!(class_of(&yard.dir(), task), ("infra".into(), Some("docker".into())), "{task}");
    }
    let job = json(&yard.dir().join("result.json"));
    assert_eq!((&job["stats"]["n_completed_trials"], job["finished_at"].is_string()), (&5.into(), true));
    let label = format!("label={}={id}", pilothouse::environment::labels::JOB);
    assert_eq!(daemon.lock().unwrap().docker(&["ps", "-aq", "--filter", &label]).unwrap(), "");
}
