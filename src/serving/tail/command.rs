//! What a command prints: `ssh host tail -F …`, `kubectl logs -f …`.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

use super::feed::{BATCH, Cutter, Feed, When, last_time};
use super::{FLUSH, send};
use crate::job::{Stamp, text};
use crate::serving::Seen;
use crate::serving::poll::Sink;
use crate::serving::source::Options;

/// Pauses before it is started again: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A command that ran so long had no trouble at its start.
const WELL: Duration = Duration::from_secs(60);
/// A silence that ends the burst of old lines that many commands begin with.
const QUIET: Duration = Duration::from_millis(500);
/// Longest burst.
const BURST: Duration = Duration::from_secs(3);
/// How long after it old lines wait for a fresh one, which tells their zone.
const FRESH: Duration = Duration::from_secs(3);
/// Most bytes that wait so.
const HELD: usize = 8 << 20;
/// How long a command may live on after its output has ended.
const LINGER: Duration = Duration::from_secs(2);

/// The processes of a command; they end with it.
struct Group {
    child: Child,
    pid: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

pub(super) async fn run(command: Arc<str>, sink: Sink, options: Options) {
    let mut feed = Feed::new(sink.source, &options, Stamp::now());
    let mut pause = PAUSE.0;
    loop {
        let began = Instant::now();
        let why = match spawn(&command) {
            Ok(group) => match once(group, &mut feed, &sink).await {
                Ok(why) => why,
                Err(Stopped) => return,
            },
            Err(e) => format!("the command can not be started: {e}"),
        };
        feed.see(Seen::LogLost(why.into()));
        // It may print again what it printed before.
        feed.see(Seen::LogReset);
        if send(&mut feed, &sink).await.is_err() {
            return;
        }
        pause = if began.elapsed() >= WELL { PAUSE.0 } else { pause };
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

fn spawn(command: &str) -> std::io::Result<Group> {
    let mut child = Command::new("sh");
    child.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    child.process_group(0).kill_on_drop(true);
    let child = child.spawn()?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    Ok(Group { child, pid })
}

/// Nobody listens.
struct Stopped;

/// Reads a stream that may have ended.
async fn piece(stream: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> Option<usize> {
    let read = match stream {
        None => std::future::pending().await,
        Some(stream) => stream.read(buffer).await.unwrap_or(0),
    };
    if read == 0 {
        *stream = None;
    }
    Some(read)
}

/// Old lines that wait for a fresh one.
#[derive(Default)]
struct Old {
    bytes: Vec<u8>,
    over: bool,
}

impl Old {
    /// Takes them, as soon as `fresh` bytes tell their zone or there is nothing to wait for.
    fn release(&mut self, feed: &mut Feed, fresh: &[u8]) {
        self.over = true;
        let now = Stamp::now();
        if let Some(time) = last_time(fresh) {
            feed.learn(time, now);
        }
        for line in std::mem::take(&mut self.bytes).split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            feed.line(line, When::Before(now));
        }
    }
}

async fn once(mut group: Group, feed: &mut Feed, sink: &Sink) -> Result<String, Stopped> {
    let (mut out, mut err) = (group.child.stdout.take(), group.child.stderr.take());
    let (mut cut_out, mut cut_err) = (Cutter::default(), Cutter::default());
    let (mut from_out, mut from_err) = (vec![0; 32 << 10], vec![0; 8 << 10]);
    // The last line of each stream: why it ended is said in the second, whichever was read last.
    let mut last = [String::new(), String::new()];
    // The first and the last output.
    let (mut began, mut heard): (Option<Instant>, Option<Instant>) = (None, None);
    let mut old = Old::default();
    let mut due = Instant::now() + FLUSH;
    while out.is_some() || err.is_some() {
        let next = async {
            tokio::select! {
                n = piece(&mut out, &mut from_out) => (n.unwrap_or(0), false),
                n = piece(&mut err, &mut from_err) => (n.unwrap_or(0), true),
            }
        };
        let read = timeout_at(due, next).await;
        let now = Instant::now();
        // Without a silence it may all be old; afterwards what comes is fresh.
        let burst = began.is_none_or(|began| now < began + BURST) && heard.is_none_or(|heard| now < heard + QUIET);
        let mut take = |line: &[u8], stream: &mut String, feed: &mut Feed| {
            if !line.trim_ascii().is_empty() {
                *stream = String::from_utf8_lossy(line.get(..line.len().min(2000)).unwrap_or_default()).into_owned();
            }
            if old.over {
                feed.line(line, When::Live(Stamp::now()));
            } else if burst && old.bytes.len() < HELD {
                old.bytes.extend_from_slice(line);
                old.bytes.push(b'\n');
            } else if burst {
                old.release(feed, &[]);
                old.over = false;
                feed.line(line, When::Before(Stamp::now()));
            } else {
                old.release(feed, line);
                feed.line(line, When::Live(Stamp::now()));
            }
        };
        let [last_out, last_err] = &mut last;
        match read {
            Ok((n, false)) => cut_out.cut(from_out.get(..n).unwrap_or_default(), |line| take(line, last_out, feed)),
            Ok((n, true)) => cut_err.cut(from_err.get(..n).unwrap_or_default(), |line| take(line, last_err, feed)),
            Err(_) => {}
        }
        if read.is_ok_and(|(n, _)| n > 0) {
            began = began.or(Some(now));
            heard = Some(now);
        } else if !old.over && heard.is_some_and(|heard| now > heard + FRESH) {
            old.release(feed, &[]);
        }
        if feed.batch.len() >= BATCH || now >= due {
            send(feed, sink).await.map_err(|_| Stopped)?;
        }
        if now >= due {
            due = now + FLUSH;
        }
    }
    if !old.over {
        old.release(feed, &[]);
    }
    for (rest, last) in [cut_out.rest(), cut_err.rest()].into_iter().zip(&mut last) {
        if let Some(rest) = rest {
            *last = String::from_utf8_lossy(&rest).into_owned();
            feed.line(&rest, When::Live(Stamp::now()));
        }
    }
    send(feed, sink).await.map_err(|_| Stopped)?;
    let status = tokio::time::timeout(LINGER, group.child.wait()).await.ok().and_then(Result::ok);
    if status.is_some() {
        // Its number may be another's soon; those that it left behind have closed what they printed to.
        group.pid = None;
    }
    let [out, err] = last;
    Ok(told(status, if err.trim().is_empty() { &out } else { &err }))
}

fn told(status: Option<ExitStatus>, last: &str) -> String {
    let how = match status {
        Some(status) => match status.code() {
            Some(code) => format!("the command ended with status {code}"),
            None => "the command was killed".to_string(),
        },
        None => "the command has closed its output".to_string(),
    };
    let plain = text::strip_ansi(last);
    let masked = text::mask_secrets(&plain);
    let words: String = text::clean(&masked).trim().chars().take(200).collect();
    if words.is_empty() { how } else { format!("{how}: {words}") }
}
