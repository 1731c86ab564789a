//! Following what a container prints.

use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptionsBuilder;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::super::EnvError;
use super::{DockerEngine, calls};
use crate::job::Stamp;

/// Pieces that wait to be taken.
const WAITING: usize = 64;

/// A piece of what a container printed: a line, or a part of a long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// When the engine took it.
    pub at: Option<Stamp>,
    /// From the standard error.
    pub error: bool,
    /// The bytes; a line's end is among them.
    pub bytes: Bytes,
}

impl DockerEngine {
    /// Follows the log of a container, by name or id, until it ends or nobody takes the pieces any more.
    /// Begins with the last `tail` lines, of those from `since` (whole seconds) on where that is given.
    pub fn follow_log(
        &self,
        container: &str,
        tail: u32,
        since: Option<Stamp>,
    ) -> mpsc::Receiver<Result<LogPiece, EnvError>> {
        let (tx, rx) = mpsc::channel(WAITING);
        let mut options = LogsOptionsBuilder::default()
            .follow(true)
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .tail(&tail.to_string());
        if let Some(since) = since.and_then(|s| i32::try_from(s.as_second()).ok()) {
            options = options.since(since);
        }
        let (docker, container) = (self.docker().clone(), container.to_string());
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(docker.logs(&container, Some(options.build())));
            loop {
                let next = tokio::select! {
                    next = stream.next() => next,
                    () = tx.closed() => return,
                };
                let piece = match next {
                    None => return,
                    Some(Ok(output)) => Ok(piece(output)),
                    Some(Err(e)) => Err(calls::explain(&calls::LOGS, &container, &e)),
                };
                let is_last = piece.is_err();
                if tx.send(piece).await.is_err() || is_last {
                    return;
                }
            }
        });
        rx
    }
}

fn piece(output: LogOutput) -> LogPiece {
    let error = matches!(output, LogOutput::StdErr { .. });
    let bytes = output.into_bytes();
    // The engine's stamp stands before each piece, also before the parts of a line that it split.
    let end = bytes.iter().take(64).position(|b| *b == b' ');
    let at = end.and_then(|end| std::str::from_utf8(bytes.get(..end)?).ok()?.parse::<Stamp>().ok());
    let bytes = match (at, end) {
        (Some(_), Some(end)) => bytes.slice((end + 1).min(bytes.len())..),
        _ => bytes,
    };
    LogPiece { at, error, bytes }
}
