//! The log of a Docker container.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::feed::{BATCH, Cutter, Feed, When};
use super::{FLUSH, send};
use crate::environment::docker::DockerEngine;
use crate::job::Stamp;
use crate::serving::Seen;
use crate::serving::poll::Sink;
use crate::serving::source::Options;

/// Between two looks for a container that has ended or is not there.
const AGAIN: Duration = Duration::from_secs(2);
/// Bytes of a line, on the average, for the number of lines that a backlog is.
const LINE: u64 = 160;
/// Most lines of what was there before.
const LINES: u64 = 100_000;

pub(super) async fn run(container: Arc<str>, sink: Sink, options: Options) {
    let mut feed = Feed::new(sink.source, &options, Stamp::now());
    let mut last: Option<Stamp> = None;
    let mut told: Option<String> = None;
    let tail = u32::try_from((options.backlog / LINE).clamp(10, LINES)).unwrap_or(1000);
    loop {
        let why = match DockerEngine::connect().await {
            Ok(engine) => match once(&engine, &container, tail, &mut last, &mut told, &mut feed, &sink).await {
                Ok(why) => why,
                Err(Stopped) => return,
            },
            Err(e) => e.to_string(),
        };
        if told.as_ref() != Some(&why) {
            feed.see(Seen::LogLost(why.as_str().into()));
            told = Some(why);
        }
        if send(&mut feed, &sink).await.is_err() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Nobody listens.
struct Stopped;

/// Follows it until it ends; gives why.
async fn once(
    engine: &DockerEngine,
    container: &str,
    tail: u32,
    last: &mut Option<Stamp>,
    told: &mut Option<String>,
    feed: &mut Feed,
    sink: &Sink,
) -> Result<String, Stopped> {
    // From the second of the last piece on: what is known of it is passed over.
    let (seen, mut pieces) = (*last, engine.follow_log(container, tail, *last));
    let (mut out, mut err) = (Cutter::default(), Cutter::default());
    let mut due = Instant::now() + FLUSH;
    let why = loop {
        let next = timeout_at(due, pieces.recv()).await;
        let now = Instant::now();
        match next {
            Ok(None) => break "the container has ended".to_string(),
            Ok(Some(Err(e))) => break e.to_string(),
            Ok(Some(Ok(piece))) => {
                let known = seen.zip(piece.at).is_some_and(|(seen, at)| at <= seen);
                if !known {
                    if told.take().is_some() {
                        feed.see(Seen::LogReset);
                    }
                    // The engine says of each piece when it was printed, of old ones too.
                    let at = piece.at.unwrap_or_else(Stamp::now);
                    *last = (*last).max(piece.at);
                    let cutter = if piece.error { &mut err } else { &mut out };
                    cutter.cut(&piece.bytes, |line| feed.line(line, When::Live(at)));
                }
            }
            Err(_) => {}
        }
        if feed.batch.len() >= BATCH || now >= due {
            send(feed, sink).await.map_err(|_| Stopped)?;
        }
        if now >= due {
            due = now + FLUSH;
        }
    };
    for rest in [out.rest(), err.rest()].into_iter().flatten() {
        feed.line(&rest, When::Live((*last).unwrap_or_else(Stamp::now)));
    }
    send(feed, sink).await.map_err(|_| Stopped)?;
    Ok(why)
}
