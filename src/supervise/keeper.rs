//! The process between us and Harbor. It leads a session of its own, without a terminal, so that nothing
//! that happens to a screen or a shell reaches it or its child; it starts Harbor, looks where that
//! writes, waits for it and notes how it ended. It does nothing else, and no signal ends it.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::record::{Ended, Pid, Record, place};
use super::whereabouts;
use crate::job::Stamp;

/// Largest order that is read, in bytes.
const LARGEST: u64 = 16 << 20;
/// Between two looks at a child whose job dir is not known, in the beginning and later.
const SOON: Duration = Duration::from_millis(250);
const LATER: Duration = Duration::from_secs(2);
/// What counts as the beginning: looks of the first kind.
const EARLY: u32 = 480;

/// What a keeper is told, on its standard input: command lines are seen by everybody.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// The state dir.
    pub state_dir: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// Its version, where it is known.
    pub version: Option<String>,
    /// The words for it, byte by byte.
    pub words: Vec<Vec<u8>>,
    /// The same as they may be kept.
    pub shown: Vec<String>,
    /// Where it is started.
    pub cwd: PathBuf,
    /// The job dir that was asked for.
    pub asked: Option<PathBuf>,
}

impl Order {
    /// The words as a keeper gets them.
    pub fn bytes(words: &[std::ffi::OsString]) -> Vec<Vec<u8>> {
        words.iter().map(|w| w.as_bytes().to_vec()).collect()
    }
}

/// What a keeper answers, in one line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The child runs; the id of its note.
    Started(String),
    /// It was not started, and why.
    Failed(String),
}

/// Starts a keeper, which starts Harbor. `own` is this program, `verb` its words for a keeper.
///
/// # Errors
/// In words, with what to do; nothing runs then.
pub fn start(order: &Order, own: &Path, verb: &[&str]) -> Result<Record, String> {
    let text = serde_json::to_vec(order).map_err(|e| e.to_string())?;
    let nothing = |e: std::io::Error| format!("{}: nothing was started: {e}", own.display());
    let mut keeper = Command::new(own)
        .args(verb)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(nothing)?;
    if let Some(mut input) = keeper.stdin.take() {
        input.write_all(&text).map_err(nothing)?;
    }
    let mut answer = String::new();
    if let Some(output) = keeper.stdout.take() {
        output.take(LARGEST).read_to_string(&mut answer).map_err(nothing)?;
    }
    // It is not waited for: it lives as long as Harbor does.
    std::thread::spawn(move || keeper.wait());
    match serde_json::from_str(answer.trim()) {
        Ok(Answer::Started(id)) => {
            let lost = || format!("harbor runs, but its note {id} can not be read in {}", order.state_dir.display());
            Record::read(&order.state_dir, &id).ok_or_else(lost)
        }
        Ok(Answer::Failed(why)) => Err(why),
        Err(_) => Err("nothing was started: the process that was to keep harbor gave no answer".to_string()),
    }
}

/// A keeper's life; gives its exit code. Reads the order, answers, and ends when the child has ended. Whoever
/// calls it sees to it that no signal ends it.
pub fn main() -> u8 {
    // In a session of its own no terminal and no shell reaches it. It fails only for what leads one already.
    let _ = rustix::process::setsid();
    let answer = |answer: &Answer| {
        let line = serde_json::to_string(answer).unwrap_or_default();
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    let mut text = Vec::new();
    let read = std::io::stdin().take(LARGEST).read_to_end(&mut text);
    let order: Order = match read.map(|_| serde_json::from_slice(&text)) {
        Ok(Ok(order)) => order,
        _ => {
            answer(&Answer::Failed("this is how pilothouse keeps a harbor: it is not for use by hand".to_string()));
            return 2;
        }
    };
    let began = SystemTime::now();
    let (mut child, mut record) = match begin(&order) {
        Ok(begun) => begun,
        Err(why) => {
            answer(&Answer::Failed(why));
            return 1;
        }
    };
    answer(&Answer::Started(record.id.clone()));
    // Whoever reads the answer waits for its end.
    give_up_output();
    let status = wait(&mut child, &mut record, &order.state_dir);
    if record.job_dir.is_none()
        && let Some(asked) = record.asked.clone().filter(|dir| whereabouts::written_since(dir, began))
    {
        record.job_dir = Some(asked);
    }
    let (code, signal) = match status {
        Ok(status) => (status.code(), status.signal()),
        Err(error) => {
            tracing::error!(%error, "harbor's end was not seen");
            (None, None)
        }
    };
    record.ended = Some(Ended { at: Stamp::now().to_string(), code, signal });
    if let Err(error) = record.write(&order.state_dir) {
        tracing::error!(%error, "how harbor ended is not noted");
    }
    0
}

fn begin(order: &Order) -> Result<(Child, Record), String> {
    let place = place(&order.state_dir).map_err(|e| e.to_string())?;
    let now = Stamp::now();
    let me = std::process::id();
    let stamp: String = now.to_string().chars().take(19).filter(char::is_ascii_alphanumeric).collect();
    let id = format!("{stamp}-{me}");
    let log = place.join(format!("{id}.log"));
    let wrong = |e: std::io::Error| format!("{}: {e}: harbor was not started", log.display());
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let out = OpenOptions::new().create_new(true).append(true).mode(0o600).custom_flags(flags).open(&log);
    let out = out.map_err(wrong)?;
    let again = out.try_clone().map_err(wrong)?;
    let words = order.words.iter().map(|w| std::ffi::OsString::from_vec(w.clone()));
    let child = Command::new(&order.program)
        .args(words)
        .current_dir(&order.cwd)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(again)
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{}: {e}: name the program with --harbor", order.program.display()))?;
    let record = Record {
        schema_version: 1,
        id,
        program: order.program.clone(),
        version: order.version.clone(),
        args: order.shown.clone(),
        cwd: order.cwd.clone(),
        asked: order.asked.clone(),
        job_dir: None,
        log,
        began: now.to_string(),
        keeper: Pid::of(me),
        child: Pid::of(child.id()),
        ended: None,
    };
    if let Err(error) = record.write(&order.state_dir) {
        // It would run, and nobody could find it.
        let mut child = child;
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{error}: harbor was not started"));
    }
    Ok((child, record))
}

/// Waits for the end, and looks where it writes until that is known.
fn wait(child: &mut Child, record: &mut Record, state_dir: &Path) -> std::io::Result<std::process::ExitStatus> {
    let mut looks = 0_u32;
    while record.job_dir.is_none() {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(dir) = whereabouts::of_group(record.child.pid) {
            record.job_dir = Some(dir);
            if let Err(error) = record.write(state_dir) {
                tracing::error!(%error, "where harbor writes is not noted");
            }
            break;
        }
        looks = looks.saturating_add(1);
        std::thread::sleep(if looks < EARLY { SOON } else { LATER });
    }
    child.wait()
}

fn give_up_output() {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null");
    let done = nothing.map(|nothing| {
        rustix::stdio::dup2_stdin(&nothing)
            .and_then(|()| rustix::stdio::dup2_stdout(&nothing))
            .and_then(|()| rustix::stdio::dup2_stderr(&nothing))
    });
    if !matches!(done, Ok(Ok(()))) {
        tracing::warn!("the keeper's output stays open");
    }
}
