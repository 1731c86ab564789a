//! Real Harbor: trials whose image is not there, the image made, requeued by the same version.

use std::fs;

use super::own::Place;
use super::support;
use support::harbor::{document, harbor, trial_dirs};

#[test]
fn harbor_0_21_runs_the_requeue() {
    requeue("0.21");
}

#[test]
fn harbor_0_26_runs_the_requeue() {
    requeue("0.26");
}

fn requeue(version: &'static str) {
    let Some(harbor) = harbor(version) else { return };
    let mark = format!("rq{}p{}", version.replace('.', ""), std::process::id());
    let place = Place::new(&mark, 1, 0.1, Some(&harbor.program));
    let out = fs::File::create(place.tmp.path().join("harbor.out")).unwrap();
    let mut first = std::process::Command::new(&harbor.program);
    first.args(["run", "-p", "tasks", "-a", "oracle", "-n", "2", "-o", "jobs", "--job-name", "first", "-y"]);
    first.current_dir(place.tmp.path()).env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    let status =
        first.stdin(std::process::Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).status().unwrap();
    let log = || fs::read_to_string(place.tmp.path().join("harbor.out")).unwrap();
    assert!(status.success(), "{}", log());
    let before = place.results("first");
    assert_eq!(before.len(), 2, "{}", log());

    // Another version is said to be one.
    let plan = document(&place.run(&["requeue", "jobs/first", "--infra", "--dry-run", "--json"]));
    let one = &plan["plans"][0];
    assert_eq!(one["trials"][0]["task"], format!("{mark}-bad0"), "{plan:#}");
    assert_eq!((&one["harness"], one["warnings"].as_array().unwrap().len()), (&"harbor".into(), 0));
    assert!(one["harness_version"].as_str().unwrap().starts_with(version));
    assert_eq!(one["differs"].as_array().unwrap().len(), 0, "{plan:#}");

    place.make_image();
    let out = place.run(&["requeue", "jobs/first", "--infra", "-y", "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let log = fs::read_to_string(place.tmp.path().join("state/requeue/first-requeue-1.log")).unwrap_or_default();
    assert_eq!(out.status.code(), Some(0), "{said}\n{log}");
    assert_eq!(trial_dirs(&place.job("first-requeue-1")).len(), 1);
    assert_eq!(place.results("first"), before);
    assert_eq!(place.journal("first-requeue-1")[0]["act"], "origin");

    let tally = document(&place.run(&["tally", "jobs/first", "jobs/first-requeue-1", "--json"]));
    assert_eq!(
        (&tally["merge"]["as"], &tally["totals"]["planned"], &tally["totals"]["passed"]),
        (&"passes".into(), &2.into(), &2.into()),
        "{tally:#}"
    );
    // The same agent, the same limits: the trials differ in nothing but their identity.
    let config = |job: &str| {
        let dir = trial_dirs(&place.job(job))
            .into_iter()
            .find(|d| d.file_name().unwrap().to_string_lossy().contains("-bad0"))
            .unwrap();
        let mut config: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.join("result.json")).unwrap()).unwrap();
        let mut config = config["config"].take();
        for key in ["trial_name", "trials_dir", "job_id"] {
            config.as_object_mut().unwrap().remove(key);
        }
        config
    };
    assert_eq!(config("first"), config("first-requeue-1"));
}
