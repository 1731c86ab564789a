//! The log: a rolling file in the state dir, never the terminal.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Files kept, one per day.
const KEPT: usize = 7;
/// Lines that may wait for the disk; more are dropped. The room is taken at the start, 32 bytes a line:
/// the crate's own 128,000 lines cost 4 MB.
const WAITING: usize = 4096;

/// Starts logging. A log that can not be written is said on standard error and is no reason to
/// stop. The guard writes out what is left when it is dropped.
pub fn start(level: &str) -> Option<WorkerGuard> {
    let filter = level.parse().unwrap_or_else(|error| {
        super::complain(&format!("--log-level `{level}`: {error}; using info"));
        Targets::new().with_default(tracing::Level::INFO)
    });
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
            let lines = layer().with_ansi(false).with_writer(writer);
            tracing_subscriber::registry().with(filter).with(lines).try_init().ok()?;
            tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "start");
            Some(guard)
        }
        Err(error) => {
            super::complain(&format!("no log: {}: {error}", dir.display()));
            None
        }
    }
}
