//! Where trials happen: the local environment always, the Docker one where an engine answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "environment/docker.rs"]
mod docker;
#[path = "environment/local.rs"]
mod local;
mod support;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use pilothouse::environment::{Command, EnvError, Environment, OutputFile};

/// Runs a test on the kind of runtime that the program has.
fn block<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(90), work).await });
    // Threads that wait for something must not keep the test alive.
    runtime.shutdown_timeout(Duration::from_secs(2));
    done.expect("the test hangs")
}

/// A script for `sh`, as the small image has nothing else.
fn sh(script: &str) -> Command {
    Command { shell: "sh".to_string(), timeout: Some(Duration::from_secs(60)), ..Command::new(script) }
}

fn into(path: &str, cap: u64) -> Option<OutputFile> {
    Some(OutputFile { path: path.to_string(), cap })
}

/// Runs a script and gives its exit code and what it printed.
async fn said(env: &dyn Environment, command: Command) -> (pilothouse::environment::Ended, String) {
    let command = Command { output: into("/tmp/said", 1 << 20), ..command };
    let end = env.exec(&command).await.unwrap();
    let file = env.download_file("/tmp/said", 1 << 20).await.unwrap();
    (end.ended, String::from_utf8(file.data).unwrap())
}

fn failed<T: std::fmt::Debug>(result: Result<T, EnvError>) -> EnvError {
    let error = result.unwrap_err();
    assert!(!error.call.is_empty() && !error.detail.is_empty(), "{error:?}");
    error
}

/// A directory to upload: a script, a sub-directory, a link out of it, a FIFO.
fn tree(at: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(at.join("sub/empty")).unwrap();
    std::fs::write(at.join("test.sh"), "echo tested\n").unwrap();
    std::fs::set_permissions(at.join("test.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(at.join("sub/data.txt"), "data\n").unwrap();
    std::fs::write(at.join(format!("sub/{}", "long-name-".repeat(20))), "long\n").unwrap();
    std::fs::write(at.with_file_name("secret"), "host secret\n").unwrap();
    std::os::unix::fs::symlink("../secret", at.join("out")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
}
