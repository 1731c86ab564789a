//! Logs that grow: a file, a container's, what a command prints.
//!
//! Lines are read as they come and sent in batches, at the latest after a tenth of a second (of a file
//! two). When nobody takes them, reading waits.

mod command;
mod container;
mod feed;
mod file;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::poll::{Sink, Task};
use super::source::Options;
use super::{Observation, Seen};
use crate::job::Stamp;
use feed::Feed;

/// Longest wait of a line for others.
const FLUSH: Duration = Duration::from_millis(100);

/// Reads a log until it is dropped.
pub(in crate::serving) enum Tail {
    Thread(Arc<AtomicBool>),
    Task { _task: Task },
}

impl Drop for Tail {
    fn drop(&mut self) {
        if let Tail::Thread(stop) = self {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Follows a file.
pub(in crate::serving) fn file(path: &Arc<Path>, sink: Sink, options: &Options) -> Tail {
    let stop = Arc::new(AtomicBool::new(false));
    let tailer = file::Tailer::new(Arc::clone(path), sink.clone(), options.clone(), Arc::clone(&stop));
    let thread = std::thread::Builder::new().name("tail".to_string()).spawn(move || tailer.run());
    if let Err(e) = thread {
        let seen = Seen::LogLost(format!("no thread to read it: {e}").into());
        let _ = sink.tx.try_send(vec![Observation { source: sink.source, at: Some(Stamp::now()), seen }]);
    }
    Tail::Thread(stop)
}

/// Follows a container's log.
pub(in crate::serving) fn container(name: &Arc<str>, sink: Sink, options: &Options) -> Tail {
    let run = container::run(Arc::clone(name), sink, options.clone());
    Tail::Task { _task: Task(tokio::spawn(run)) }
}

/// Follows what a command prints.
pub(in crate::serving) fn command(command: &Arc<str>, sink: Sink, options: &Options) -> Tail {
    let run = command::run(Arc::clone(command), sink, options.clone());
    Tail::Task { _task: Task(tokio::spawn(run)) }
}

/// Sends all that was read.
async fn send(feed: &mut Feed, sink: &Sink) -> Result<(), ()> {
    while !feed.batch.is_empty() {
        sink.tx.send(feed.take()).await.map_err(drop)?;
    }
    Ok(())
}
