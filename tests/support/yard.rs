//! Jobs of tiny tasks, run by the native runner and read back by our own reader.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse::environment::docker::DockerEngine;
use pilothouse::follow::{Follower, Options};
use pilothouse::harbor::Task;
use pilothouse::harbor::write::Claimant;
use pilothouse::harbor::write::config::{AgentConfig, JobConfig, TaskConfig};
use pilothouse::job::{Fleet, Stamp, Trial, TrialResult, tally};
use pilothouse::scheduler::{Control, DockerPlaces, Finished, Job, LocalPlaces, Plan, PlanError, RunError};
use serde_json::Value;

/// A test that passes, in either environment's words.
pub const PASS: &str = "echo 1 > \"$LOGS_DIR/verifier/reward.txt\"";
/// The same in containers.
pub const PASS_INSIDE: &str = "echo 1 > /logs/verifier/reward.txt";
/// The image of the tests.
pub const IMAGE: &str = "[environment]\ndocker_image = \"tb-base:1\"";

/// A place for tasks, jobs and scratch directories.
pub struct Yard {
    pub temp: tempfile::TempDir,
    pub tasks: Vec<PathBuf>,
}

impl Yard {
    pub fn new() -> Yard {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["tasks", "scratch"] {
            fs::create_dir(temp.path().join(dir)).unwrap();
        }
        Yard { temp, tasks: Vec::new() }
    }

    /// A task of these scripts; `toml` is appended to its `task.toml`.
    pub fn task(mut self, name: &str, solve: &str, test: &str, toml: &str) -> Yard {
        let dir = self.temp.path().join("tasks").join(name);
        for sub in ["environment", "tests", "solution"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        let head = "schema_version = \"1.1\"\n";
        fs::write(dir.join("task.toml"), format!("{head}{toml}\n")).unwrap();
        fs::write(dir.join("instruction.md"), "Do it.\n").unwrap();
        fs::write(dir.join("environment/Dockerfile"), "FROM scratch\n").unwrap();
        fs::write(dir.join("solution/solve.sh"), format!("#!/bin/bash\n{solve}\n")).unwrap();
        fs::write(dir.join("tests/test.sh"), format!("#!/bin/bash\n{test}\n")).unwrap();
        self.tasks.push(dir);
        self
    }

    pub fn config(&self, agent: &str, n: u32) -> JobConfig {
        JobConfig {
            job_name: "job".to_string(),
            jobs_dir: self.temp.path().join("jobs").to_str().unwrap().to_string(),
            n_concurrent_trials: n,
            agents: vec![AgentConfig { name: Some(agent.to_string()), ..AgentConfig::default() }],
            ..JobConfig::default()
        }
    }

    pub fn plan(&self, config: JobConfig) -> Result<Plan, PlanError> {
        let tasks: Vec<_> = self
            .tasks
            .iter()
            .map(|dir| {
                let path = dir.to_str().unwrap().to_string();
                let source = Some("tasks".to_string());
                let from = TaskConfig { path: Some(path), source, ..TaskConfig::default() };
                (from, Arc::new(Task::load(dir).unwrap()))
            })
            .collect();
        Plan::of(config, &tasks, Stamp::now())
    }

    /// Runs a job to its end, with `meanwhile` beside it.
    pub fn run<F: Future<Output = ()>>(
        &self,
        config: JobConfig,
        meanwhile: impl FnOnce(Control, Plan) -> F,
    ) -> Finished {
        self.try_run(config, meanwhile).unwrap()
    }

    pub fn try_run<F: Future<Output = ()>>(
        &self,
        config: JobConfig,
        meanwhile: impl FnOnce(Control, Plan) -> F,
    ) -> Result<Finished, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let done = runtime.block_on(async {
            let plan = self.plan(config).unwrap();
            let who = Claimant { interval: Duration::from_millis(400), ..Claimant::default() };
            let places = LocalPlaces { root: self.temp.path().join("scratch") };
            let (job, control) = Job::begin(plan.clone(), &who, Arc::new(places)).unwrap();
            let both = async { tokio::join!(job.run(), meanwhile(control, plan)).0 };
            tokio::time::timeout(Duration::from_secs(120), both).await.expect("the job hangs")
        });
        runtime.shutdown_timeout(Duration::from_secs(2));
        let left: Vec<_> = fs::read_dir(self.temp.path().join("scratch")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        done
    }

    pub fn dir(&self) -> PathBuf {
        self.temp.path().join("jobs/job")
    }

    /// What our own reader finds.
    pub fn read(&self) -> Read {
        self.read_job("job")
    }

    pub fn read_job(&self, name: &str) -> Read {
        let mut fleet = Fleet::default();
        let options = Options { owner: false, ..Options::default() };
        Follower::new(vec![self.temp.path().join("jobs").join(name)], options).scan_once(&mut |events| {
            events.into_iter().for_each(|event| fleet.apply(event));
            true
        });
        assert!(fleet.problems.is_empty(), "{:?}", fleet.problems);
        let tally = tally::count(&fleet, &tally::Options::default(), Stamp::now()).unwrap();
        Read { fleet, tally }
    }
}

pub struct Read {
    pub fleet: Fleet,
    pub tally: tally::Tally,
}

impl Read {
    pub fn trial(&self, task: &str) -> &Trial {
        let [job] = self.fleet.jobs() else { panic!("{} jobs", self.fleet.jobs().len()) };
        job.trials.values().find(|t| &*t.task == task).unwrap_or_else(|| panic!("no trial of {task}"))
    }

    pub fn result(&self, task: &str) -> &TrialResult {
        let trial = self.trial(task);
        assert!(trial.problems.is_empty(), "{:?}", trial.problems);
        trial.result.as_ref().unwrap()
    }

    /// Primary reward and exception type.
    pub fn end(&self, task: &str) -> (Option<f64>, Option<&str>) {
        let result = self.result(task);
        (result.rewards.primary(), result.exception.as_ref().map(|e| &*e.kind))
    }
}

/// What `triage` says of a task's trial: class and sub-class; `passed` where it lists nothing.
pub fn class_of(job: &Path, task: &str) -> (String, Option<String>) {
    let mut triage = std::process::Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    let out = triage.args(["triage", "--json"]).arg(job).output().unwrap();
    let listed: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let of_task = |trial: &&Value| trial["task"].as_str().unwrap().rsplit('/').next() == Some(task);
    match listed["trials"].as_array().unwrap().iter().find(of_task) {
        Some(trial) => (trial["class"].as_str().unwrap().into(), trial["sub_class"].as_str().map(Into::into)),
        None => ("passed".into(), None),
    }
}

pub async fn nothing(_: Control, _: Plan) {}

pub fn trial_dir(plan: &Plan, task: &str) -> PathBuf {
    let trial = plan.trials.iter().find(|t| t.task.short_name() == task).unwrap();
    plan.dir().join(&trial.config.trial_name)
}

pub fn find(yard: &Yard, read: &Read, task: &str) -> PathBuf {
    yard.dir().join(&*read.trial(task).name)
}

pub async fn until(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Task → rewards and exception type of every result in a job dir, its steps' behind them.
pub fn ends(dir: &Path) -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let Ok(bytes) = fs::read(entry.path().join("result.json")) else { continue };
        let result: Value = serde_json::from_slice(&bytes).unwrap();
        let steps = result["step_results"].as_array().cloned().unwrap_or_default();
        let end = |part: &Value| {
            let name = part["step_name"].as_str().unwrap_or_default();
            let rewards = part["verifier_result"]["rewards"].to_string();
            (format!("{name} {rewards}"), part["exception_info"]["exception_type"].as_str().map(str::to_string))
        };
        let ends = std::iter::once(&result).chain(&steps).map(end).collect();
        out.insert(result["task_name"].as_str().unwrap().to_string(), ends);
    }
    out
}

/// What the engine's own command line says.
pub fn docker(args: &[&str]) -> String {
    let out = std::process::Command::new("docker").args(args).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

/// Containers and networks of a job that are still there.
pub fn left_of(job: &str) -> String {
    let label = format!("label={}={job}", pilothouse::environment::labels::JOB);
    docker(&["ps", "-aq", "--filter", &label]) + &docker(&["network", "ls", "-q", "--filter", &label])
}

/// An engine with the image of the tests; why not, else.
pub async fn engine() -> Result<DockerEngine, String> {
    let engine = DockerEngine::connect().await.map_err(|e| e.to_string())?;
    let here = engine.image("tb-base:1").await.map_err(|e| e.to_string())?;
    here.ok_or("no image tb-base:1 (data/tools/build-base-image.sh)")?;
    Ok(engine)
}

/// Runs a job in containers of an engine; gives its id, too.
pub async fn run_in<F: Future<Output = ()>>(
    engine: DockerEngine,
    yard: &Yard,
    config: JobConfig,
    meanwhile: impl FnOnce(Control, Plan) -> F,
) -> (Result<Finished, RunError>, String) {
    let plan = yard.plan(config).unwrap();
    DockerPlaces::check(&plan).unwrap();
    let places = Arc::new(DockerPlaces::open(engine, &plan, "tests").await.unwrap());
    let (job, control) = Job::begin(plan.clone(), &Claimant::default(), places.clone()).unwrap();
    let id = plan.id.clone();
    let both = async { tokio::join!(job.run(), meanwhile(control, plan)).0 };
    let done = tokio::time::timeout(Duration::from_secs(300), both).await.expect("the job hangs");
    places.close().await.unwrap();
    (done, id)
}

/// Runs a job in containers; gives its id, too. None, said aloud, where there is no engine or image.
pub fn try_in_containers<F: Future<Output = ()>>(
    yard: &Yard,
    config: JobConfig,
    meanwhile: impl FnOnce(Control, Plan) -> F,
) -> Option<(Result<Finished, RunError>, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ran = runtime.block_on(async { Ok::<_, String>(run_in(engine().await?, yard, config, meanwhile).await) });
    runtime.shutdown_timeout(Duration::from_secs(2));
    ran.inspect_err(|why| crate::support::skipped(&format!("in containers: {why}"))).ok()
}

/// As [`try_in_containers`], for a job that comes to its end.
pub fn in_containers<F: Future<Output = ()>>(
    yard: &Yard,
    config: JobConfig,
    meanwhile: impl FnOnce(Control, Plan) -> F,
) -> Option<(Finished, String)> {
    try_in_containers(yard, config, meanwhile).map(|(done, id)| (done.unwrap(), id))
}
