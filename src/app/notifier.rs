//! The notify command: the operator's own way to be told of alarms while nobody looks at the screen.
//!
//! It is run by `sh -c` with the alarm as one line of JSON on its standard input, for ten seconds at
//! most; then it is ended with all that it started. No more than six times a minute: what comes beyond
//! that waits and is told summed up in one call. What goes wrong is shown on the screen.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::alert::{self, Alert};
use crate::job::text;

/// The longest that the command may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Calls in [`WINDOW`].
const CALLS: usize = 6;
const WINDOW: Duration = Duration::from_secs(60);
/// Alarms that may wait for the worker, and in it.
const QUEUE: usize = 64;
/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// What is kept of its errors.
const KEPT: usize = 400;

/// A running worker. Dropping it ends its thread once the call at work is over.
#[derive(Debug)]
pub struct Handle {
    alerts: SyncSender<Alert>,
}

impl Handle {
    /// Hands an alarm over; never waits.
    ///
    /// # Errors
    /// In words, when so many wait that it can not be taken.
    pub fn tell(&self, alert: Alert) -> Result<(), String> {
        let text = alert.text.clone();
        self.alerts.try_send(alert).map_err(|_| format!("notify: too many wait, not told: {text}"))
    }
}

/// Starts it; `report` shows what goes wrong, and gives false when nobody looks any more.
///
/// # Errors
/// When there is no thread to be had.
pub fn spawn(command: String, report: impl Fn(String) -> bool + Send + 'static) -> std::io::Result<Handle> {
    spawn_with(command, Pace { limit: LIMIT, calls: CALLS, window: WINDOW }, report)
}

/// How patient it is, and how often it calls.
#[derive(Debug, Clone, Copy)]
struct Pace {
    limit: Duration,
    calls: usize,
    window: Duration,
}

fn spawn_with(
    command: String,
    pace: Pace,
    report: impl Fn(String) -> bool + Send + 'static,
) -> std::io::Result<Handle> {
    let (alerts, heard) = sync_channel(QUEUE);
    std::thread::Builder::new().name("notify".into()).spawn(move || work(&command, pace, &heard, &report))?;
    Ok(Handle { alerts })
}

fn work(command: &str, pace: Pace, heard: &Receiver<Alert>, report: &dyn Fn(String) -> bool) {
    let mut calls: VecDeque<Instant> = VecDeque::new();
    let mut waiting: Vec<Alert> = Vec::new();
    let mut more = 0usize;
    loop {
        while calls.front().is_some_and(|at| at.elapsed() >= pace.window) {
            calls.pop_front();
        }
        let full = calls.len() >= pace.calls;
        let next = match (waiting.is_empty(), full) {
            // Nothing to do before something comes.
            (true, _) => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (false, false) => heard.try_recv().map_err(|e| match e {
                std::sync::mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
                std::sync::mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            (false, true) => {
                let due = calls.front().map_or(Duration::ZERO, |at| pace.window.saturating_sub(at.elapsed()));
                heard.recv_timeout(due)
            }
        };
        match next {
            Ok(alert) if waiting.len() < QUEUE => waiting.push(alert),
            Ok(_) => more += 1,
            // The screen is left: what still waits for its turn is told by nobody.
            Err(RecvTimeoutError::Disconnected) if full || waiting.is_empty() => return,
            Err(_) if full => {}
            Err(_) => {
                // One call for each, unless there are more than calls left.
                let one_each = more == 0 && waiting.len() <= pace.calls - calls.len();
                let line = if one_each || (waiting.len() == 1 && more == 0) {
                    waiting.remove(0).json()
                } else {
                    let all = std::mem::take(&mut waiting);
                    alert::summary(&all, std::mem::take(&mut more))
                };
                calls.push_back(Instant::now());
                if let Err(why) = call(command, &line, pace.limit)
                    && !report(format!("notify command: {why}"))
                {
                    return;
                }
            }
        }
    }
}

/// Runs the command once.
fn call(command: &str, line: &str, limit: Duration) -> Result<(), String> {
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Its own group, so that it can be ended with all that it started.
        .process_group(0)
        .spawn()
        .map_err(|e| format!("not started: {e}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Smaller than any pipe: this does not wait. Who does not read it need not.
        let _ = stdin.write_all(line.as_bytes());
        let _ = stdin.write_all(b"\n");
    }
    let begun = Instant::now();
    let mut errors = Errors::of(&mut child);
    loop {
        errors.drain();
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                errors.drain();
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("exit code {code}"),
                    (None, Some(signal)) => format!("ended by signal {signal}"),
                    (None, None) => "failed".to_string(),
                };
                return Err(errors.words(how));
            }
            Ok(None) if begun.elapsed() < limit => std::thread::sleep(LOOK),
            Ok(None) => {
                end(&mut child);
                return Err(errors.words(format!("ended after {} s, it took longer", limit.as_secs_f64())));
            }
            Err(error) => {
                end(&mut child);
                return Err(error.to_string());
            }
        }
    }
}

/// Ends it and what it started.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// What a command writes to its standard error: read so that it never waits, of which the beginning is
/// kept.
struct Errors {
    pipe: Option<std::process::ChildStderr>,
    kept: Vec<u8>,
}

impl Errors {
    fn of(child: &mut Child) -> Errors {
        let pipe = child.stderr.take().filter(|pipe| {
            let flags = rustix::fs::fcntl_getfl(pipe);
            flags.is_ok_and(|f| rustix::fs::fcntl_setfl(pipe, f | rustix::fs::OFlags::NONBLOCK).is_ok())
        });
        Errors { pipe, kept: Vec::new() }
    }

    fn drain(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut buffer = [0u8; 4096];
        // An endless writer has its turn again in a moment.
        for _ in 0..16 {
            match pipe.read(&mut buffer) {
                Ok(0) => return self.pipe = None,
                Ok(n) => {
                    let room = KEPT.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(buffer.get(..n.min(room)).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// How it failed, with the first line of its errors.
    fn words(&self, how: String) -> String {
        let said = String::from_utf8_lossy(&self.kept);
        match said.lines().map(str::trim).find(|line| !line.is_empty()) {
            Some(line) => {
                let line = text::strip_ansi(line);
                format!("{how}: {}", text::clean(&text::mask_secrets(&line)))
            }
            None => how,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn alert(text: &str) -> Alert {
        Alert { kind: "hang".to_string(), text: text.to_string(), ..Alert::default() }
    }

    fn pace(limit_ms: u64, calls: usize, window_ms: u64) -> Pace {
        Pace { limit: Duration::from_millis(limit_ms), calls, window: Duration::from_millis(window_ms) }
    }

    /// What the command read and what was shown, after all these alarms.
    fn run(pace: Pace, command: &str, texts: &[&str], wait: Duration) -> (Vec<serde_json::Value>, Vec<String>) {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().join("out");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let to = shown.clone();
        let command = command.replace("OUT", out.to_str().unwrap());
        let handle = spawn_with(command, pace, move |said| {
            to.lock().unwrap().push(said);
            true
        });
        let handle = handle.unwrap();
        texts.iter().for_each(|text| handle.tell(alert(text)).unwrap());
        std::thread::sleep(wait);
        drop(handle);
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let calls = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let shown = shown.lock().unwrap().clone();
        (calls, shown)
    }

    #[test]
    fn each_alarm_is_one_call_and_what_is_too_much_is_summed_up() {
        let texts = ["a", "b", "c", "d", "e"];
        let (calls, shown) = run(pace(5000, 2, 600), "cat >> OUT", &texts[..2], Duration::from_millis(400));
        assert_eq!(calls.iter().map(|c| c["text"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(calls[0]["event"], "alarm");
        assert_eq!(shown, Vec::<String>::new());
        let (calls, _) = run(pace(5000, 2, 600), "sleep 0.1; cat >> OUT", &texts, Duration::from_millis(1500));
        let told: u64 = calls.iter().map(|c| c["alarms"].as_array().map_or(1, |a| a.len() as u64)).sum();
        assert_eq!(told, 5, "{calls:?}");
        assert!(calls.len() <= 4 && calls.iter().any(|c| c["event"] == "alarms"), "{calls:?}");
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let temp = tempfile::tempdir().unwrap();
        let late = temp.path().join("late");
        let command = format!("(sleep 1; touch {}) & wait", late.display());
        let (_, shown) = run(pace(200, 6, 60_000), &command, &["a"], Duration::from_millis(600));
        assert_eq!(shown, ["notify command: ended after 0.2 s, it took longer"]);
        std::thread::sleep(Duration::from_millis(900));
        assert!(!late.exists());
    }

    #[test]
    fn a_failure_says_how_and_its_secrets_stay_in() {
        let command =
            "printf 'oops \\033[31m sk-abcdefghijklmnopqrstuvwxyz123456 \\n' >&2; yes x | head -c 500000 >&2; exit 3";
        let (_, shown) = run(pace(5000, 6, 60_000), command, &["a"], Duration::from_millis(800));
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0].starts_with("notify command: exit code 3: oops") && !shown[0].contains("abcdefghij"));
        assert!(!shown[0].contains('\u{1b}'));
    }
}
