//! The log: a rolling file in the state dir, never the terminal.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::EnvFilter;

/// Files kept, one per day.
const KEPT: usize = 7;
/// Lines that may wait for the disk; more are dropped. The room is taken at the start, 32 bytes a line:
/// the crate's own 128,000 lines cost 4 MB.
const WAITING: usize = 4096;

/// Starts logging. A log that can not be written is said on standard error and is no reason to
/// stop. The guard writes out what is left when it is dropped.
pub fn start(level: &str) -> Option<WorkerGuard> {
    let filter = match EnvFilter::try_new(level) {
        Ok(filter) => filter,
        Err(error) => {
            super::complain(&format!("--log-level `{level}`: {error}; using info"));
            EnvFilter::new("info")
        }
    };
    let dir = super::state_dir()?.join("log");
    let appender = std::fs::create_dir_all(&dir).map_err(|e| e.to_string()).and_then(|()| {
        RollingFileAppender::builder()
            .rotation(Rotation::DAILY)
            .filename_prefix("pilothouse")
            .filename_suffix("log")
            .max_log_files(KEPT)
            .build(&dir)
            .map_err(|e| e.to_string())
    });
    match appender {
        Ok(appender) => {
            let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(WAITING).finish(appender);
            tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(writer).try_init().ok()?;
            tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "start");
            Some(guard)
        }
        Err(error) => {
            super::complain(&format!("no log: {}: {error}", dir.display()));
            None
        }
    }
}
