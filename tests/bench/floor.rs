//! What twenty oracle trials cost without any harness: the calls to the engine alone, two trials at a time,
//! nothing written, nothing watched. The measure for `beside_harbor.py`, on the machine at hand.
//!
//!     cargo bench --bench floor
//!
//! Wants a Docker engine and the shared tasks with their image (see `beside_harbor.py`). Each trial: make,
//! start, put its files and the solution in, run that, put the tests in, run them, read the exit code of both, remove by
//! force. It checks that every trial left a reward of 1, and prints wall clock, processor time of this
//! process for a trial, and the most memory it had.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use bollard::Docker;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{RemoveContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use futures_util::StreamExt as _;

const IMAGE: &str = "tb-base:1";
const TASKS: [&str; 4] = ["hello-file", "count-errors", "csv-sum", "json-merge"];
const ATTEMPTS: usize = 5;
const AT_A_TIME: usize = 2;

/// A directory of a task, beneath a name of its own.
fn archive(dir: &Path, under: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_dir_all(under, dir).unwrap();
    tar.into_inner().unwrap()
}

async fn run(docker: &Docker, id: &str, script: &str) -> i64 {
    let cmd = ["sh", "-c", script].map(str::to_string).to_vec();
    let options = CreateExecOptions { attach_stdout: Some(true), cmd: Some(cmd), ..CreateExecOptions::default() };
    let exec = docker.create_exec(id, options).await.unwrap().id;
    let StartExecResults::Attached { mut output, .. } = docker.start_exec(&exec, None).await.unwrap() else {
        panic!("detached");
    };
    while output.next().await.is_some() {}
    docker.inspect_exec(&exec).await.unwrap().exit_code.unwrap()
}

async fn put(docker: &Docker, id: &str, archive: Vec<u8>) {
    let options = UploadToContainerOptionsBuilder::default().path("/").build();
    docker.upload_to_container(id, Some(options), bollard::body_full(archive.into())).await.unwrap();
}

async fn trial(docker: &Docker, task: &Path) -> bool {
    let body = ContainerCreateBody {
        image: Some(IMAGE.to_string()),
        cmd: Some(["sh", "-c", "sleep infinity"].map(str::to_string).to_vec()),
        host_config: Some(HostConfig { init: Some(true), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let id = docker.create_container(None, body).await.unwrap().id;
    docker.start_container(&id, None).await.unwrap();
    put(docker, &id, archive(&task.join("environment"), "app")).await;
    put(docker, &id, archive(&task.join("solution"), "solution")).await;
    run(docker, &id, "mkdir -p /logs/verifier && bash /solution/solve.sh >/dev/null 2>&1").await;
    put(docker, &id, archive(&task.join("tests"), "tests")).await;
    let tests = r#"bash /tests/test.sh >/dev/null 2>&1; grep -Eq '^1|"reward": ?1' /logs/verifier/reward.*"#;
    let passed = run(docker, &id, tests).await == 0;
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    docker.remove_container(&id, Some(options)).await.unwrap();
    passed
}

/// Nanoseconds that all threads of this process ran.
fn ran() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let one =
        |dir: PathBuf| std::fs::read_to_string(dir.join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    threads.filter_map(|thread| one(thread.path())).sum::<u64>()
}

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("PILOTHOUSE_SHARED").map(PathBuf::from);
    let places = named.into_iter().chain([here.join("../shared"), here.join("../../shared")]);
    let Some(tasks) = places.map(|place| place.join("data/tasks")).find(|place| place.is_dir()) else {
        println!("SKIPPED: no shared recordings");
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begin = Instant::now();
    let passed = runtime.block_on(async {
        let docker = Docker::connect_with_defaults().unwrap();
        if let Err(e) = docker.ping().await {
            println!("SKIPPED: no Docker engine: {e}");
            std::process::exit(0);
        }
        let all = (0..ATTEMPTS).flat_map(|_| TASKS).map(|task| {
            let (docker, task) = (docker.clone(), tasks.join(task));
            async move { trial(&docker, &task).await }
        });
        let ends: Vec<bool> = futures_util::stream::iter(all).buffer_unordered(AT_A_TIME).collect().await;
        ends.iter().filter(|passed| **passed).count()
    });
    let trials = ATTEMPTS * TASKS.len();
    assert_eq!(passed, trials, "rewards of 1");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default().trim();
    println!(
        "{trials} trials: {:.1} s wall, {:.2} ms CPU a trial, {most} allocated",
        begin.elapsed().as_secs_f64(),
        ran() as f64 / 1e6 / trials as f64,
    );
}
