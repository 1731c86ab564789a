//! The other end of the control socket: asks the process that runs a job.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::place;
use super::wire::{self, Answer, LONGEST, Op, Request, State};
use crate::audit::{self, Found};
use crate::harbor::write::lease::LEASE;
use crate::report::work::WorkJson;

/// For an answer to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// For one that is only asked by the way.
const AT_ONCE: Duration = Duration::from_secs(1);
/// For one that a probe has to be waited for.
pub const PROBE: Duration = Duration::from_secs(150);

/// Why nothing was asked, or no answer came.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// The directory is none of a job, or can not be read.
    #[error("{0}")]
    NoJob(String),
    /// Nobody listens for this job.
    #[error("{0}")]
    Nobody(String),
    /// No answer, or one that can not be read.
    #[error("{path}: {why}")]
    Talk {
        /// The socket.
        path: String,
        /// What went wrong.
        why: String,
    },
}

/// A connection to the process that runs a job.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

/// Connects to the process that runs the job in a directory.
///
/// # Errors
/// See [`CtlError`].
pub fn connect(dir: &Path, state: Option<&Path>) -> Result<Line, CtlError> {
    let id = place::id_of(dir).map_err(CtlError::NoJob)?;
    let mut wrong = None;
    for path in place::candidates(state, &id) {
        let parent = path.parent().unwrap_or(Path::new("/"));
        if place::socket(&path).is_none() {
            continue;
        }
        let connected = place::private(parent).and_then(|()| {
            let stream = UnixStream::connect(&path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok((stream.try_clone()?, stream))
        });
        match connected {
            Ok((read, stream)) => return Ok(Line { stream, reader: BufReader::new(read), path }),
            Err(e) => wrong = Some(format!("{}: {e}", path.display())),
        }
    }
    Err(CtlError::Nobody(nobody(dir, wrong)))
}

/// Nobody listens: in words, with what is known of who works on it.
fn nobody(dir: &Path, wrong: Option<String>) -> String {
    let found = audit::find_owner(dir);
    let mut out = match &found {
        Found::Here(owner) => {
            format!("{} runs it, but takes no orders here: only its own screen steers it", owner.name())
        }
        _ => format!("nobody to steer: {}", found.words()),
    };
    if let Some(wrong) = wrong {
        out.push_str(&format!(" ({wrong})"));
    }
    out
}

impl Line {
    fn wrong(&self, why: impl std::fmt::Display) -> CtlError {
        CtlError::Talk { path: self.path.display().to_string(), why: why.to_string() }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// See [`CtlError`].
    pub fn send(&mut self, request: &Request) -> Result<(), CtlError> {
        self.stream.write_all(&wire::line(request)).map_err(|e| self.wrong(e))
    }

    /// The next answer; waits for so long, without limit where None.
    ///
    /// # Errors
    /// See [`CtlError`].
    pub fn hear(&mut self, patience: Option<Duration>) -> Result<Answer, CtlError> {
        let _ = self.stream.set_read_timeout(patience);
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut line);
        read.map_err(|e| self.wrong(e))?;
        match line.last() {
            None => Err(self.wrong("it has hung up: the job is over, or too many are connected")),
            Some(b'\n') => serde_json::from_slice(&line).map_err(|e| self.wrong(format!("no answer: {e}"))),
            Some(_) => Err(self.wrong("an answer without end")),
        }
    }

    /// A second handle, to send from another thread.
    ///
    /// # Errors
    /// See [`CtlError`].
    pub fn sender(&self) -> Result<UnixStream, CtlError> {
        self.stream.try_clone().map_err(|e| self.wrong(e))
    }
}

/// What trials of a job say that they do; nothing where nobody answers for it at once.
pub fn works(dir: &Path, state: Option<&Path>) -> Vec<WorkJson> {
    if std::fs::symlink_metadata(dir.join(LEASE)).is_err() {
        return Vec::new();
    }
    let asked = connect(dir, state).and_then(|mut line| {
        line.send(&Request::of(Op::Work, ""))?;
        line.hear(Some(AT_ONCE))
    });
    match asked {
        Ok(answer) if answer.status.as_ref().is_some_and(|state| same(dir, state)) => answer.work,
        _ => Vec::new(),
    }
}

/// Whether an answer is about the job in this directory and not about a copy's.
pub fn same(dir: &Path, state: &State) -> bool {
    let of = |path: &Path| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    // Where the other's path can not be seen from here, its id must do.
    match (of(dir), of(Path::new(&state.dir))) {
        (Some(here), Some(there)) => here == there,
        _ => true,
    }
}

/// Asks once.
///
/// # Errors
/// See [`CtlError`].
pub fn ask(dir: &Path, state: Option<&Path>, op: Op, why: &str) -> Result<Answer, CtlError> {
    ask_for(dir, state, op, why, PATIENCE)
}

/// Asks once, and waits so long for the answer.
///
/// # Errors
/// See [`CtlError`].
pub fn ask_for(dir: &Path, state: Option<&Path>, op: Op, why: &str, patience: Duration) -> Result<Answer, CtlError> {
    // Asked first: an order must not reach another job.
    let mut line = connect(dir, state)?;
    line.send(&Request::of(Op::Status, ""))?;
    let answer = line.hear(Some(PATIENCE))?;
    if let Some(state) = &answer.status
        && !same(dir, state)
    {
        let why = format!("that job runs in {}: {} is a copy of it, and nobody runs it", state.dir, dir.display());
        return Err(CtlError::Nobody(why));
    }
    if op == Op::Status {
        return Ok(answer);
    }
    let mut line = connect(dir, state)?;
    line.send(&Request::of(op, why))?;
    line.hear(Some(patience))
}
