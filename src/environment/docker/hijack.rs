//! Commands and terminals in a container: the raw stream of the engine, byte by byte.
//!
//! Only its preparation and start are spoken by hand, on one connection. The client's own decoder guesses at every chunk whether a header
//! of the multiplexed format begins it, and takes output that begins with a byte from 0 to 2 for one:
//! bytes are lost, and up to 4 GiB waited for. A terminal's stream has no headers at all; that of a command
//! without one always has.
//!
//! What the engine does, seen with 20.10: it answers 101 also when the program can not be run and puts
//! the reason into the stream (the exit code decides, see [`DockerEnvironment::end_of_pty`]); a second
//! start of the same program answers 101 too. So a start whose answer was lost is never repeated.

use std::future::Future;
use std::io;
use std::time::Duration;

use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, ResizeExecOptions};
use bollard::query_parameters::InspectContainerOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::super::{EnvError, Pty, PtyCommand, Trouble, plain_path};
use super::address::Address;
use super::calls::{self, Call};
use super::container::DockerEnvironment;
use super::wire::Wire;

/// For the connection alone.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest head of an answer, in bytes.
const HEAD: usize = 16 * 1024;
/// Longest reason of a refusal, in bytes.
const REASON: usize = 64 * 1024;
/// For the reason after the head.
const REASON_TIME: Duration = Duration::from_secs(5);
const LOOK_WHO: &str = "look who stopped it: the engine's log, another user, a restart";
/// Keys that would detach. There have to be some, else the engine takes Ctrl-P Ctrl-Q: it would keep
/// Ctrl-P back until the next key, and end the session at Ctrl-Q. Nobody types these; only Ctrl-^ alone
/// waits for the key after it.
const DETACH: &str = "ctrl-^,ctrl-],ctrl-^,ctrl-_,ctrl-^,ctrl-@,ctrl-^,ctrl-_,ctrl-],ctrl-^,ctrl-@,ctrl-_";

impl DockerEnvironment {
    pub(super) async fn begin_pty(&self, command: &PtyCommand) -> Result<Pty, EnvError> {
        let call = format!("open a terminal in {}", self.name());
        let workdir = command.workdir.as_deref().map(|w| plain_path(&call, w)).transpose()?;
        let id = self.ready(&call).await?;
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(true),
            detach_keys: Some(DETACH.to_string()),
            cmd: Some(command.argv.clone()),
            user: command.user.clone(),
            working_dir: workdir,
            env: Some(command.env.iter().map(|(k, v)| format!("{k}={v}")).collect()),
            privileged: None,
        };
        let Prepared { id: exec, wire } = self.prepare(&id, &options).await?;
        match self.spoken().start(wire, &exec, true).await {
            Ok((rest, wire)) => {
                self.has_run();
                let (reader, writer) = tokio::io::split(wire);
                let reader = Box::new(io::Cursor::new(rest).chain(reader));
                Ok(Pty { id: exec, reader, writer: Box::new(writer) })
            }
            Err(lost) => Err(self.why(&id, lost.explained(&calls::EXEC_START, self.name())).await),
        }
    }

    fn spoken(&self) -> Spoken<'_> {
        Spoken { address: self.engine().address(), api: &self.engine().facts().api }
    }

    /// Prepares a command in a container.
    pub(super) async fn prepare(
        &self,
        container: &str,
        options: &CreateExecOptions<String>,
    ) -> Result<Prepared, EnvError> {
        let prepared = self.spoken().prepare(container, options).await;
        self.engine().note_answer(prepared.is_ok());
        match prepared {
            Ok(prepared) => Ok(prepared),
            // Nothing runs yet: nothing is lost.
            Err(lost) => {
                let lost = Lost { sent: false, ..lost };
                Err(self.why(container, lost.explained(&calls::EXEC_CREATE, self.name())).await)
            }
        }
    }

    /// Starts a command that was prepared, and listens to what it prints; gives its id too.
    pub(super) async fn attach(&self, container: &str, prepared: Prepared) -> Result<(String, Output), EnvError> {
        let Prepared { id, wire } = prepared;
        match self.spoken().start(wire, &id, false).await {
            Ok((rest, wire)) => Ok((id, Output::new(rest, wire))),
            // The container may have ended in between.
            Err(lost) => Err(self.why(container, lost.explained(&calls::EXEC_START, self.name())).await),
        }
    }

    /// The exit code once the engine says that the program does not run and has one. What the stream
    /// said is no evidence: it carries the engine's own errors as text.
    pub(super) async fn end_of_pty(&self, exec: &str) -> Result<Option<i64>, EnvError> {
        let id = self.id("look at a terminal")?;
        let asked = self.engine().docker().inspect_exec(exec);
        let found = match self.engine().call(&calls::EXEC_INSPECT, self.name(), asked).await {
            Ok(found) => found,
            Err(e) => return Err(self.why(&id, e).await),
        };
        let Some(code) = found.exit_code.filter(|_| found.running == Some(false)) else { return Ok(None) };
        // A container takes its programs with it, and their end may be reported first.
        match self.last_words(&id).await? {
            Some(words) => Err(EnvError::new(Trouble::Died, "look at a terminal", &words, LOOK_WHO)),
            None => Ok(Some(code)),
        }
    }

    /// What the engine says about the end of the container; None while it runs.
    async fn last_words(&self, id: &str) -> Result<Option<String>, EnvError> {
        let asked = self.engine().docker().inspect_container(id, None::<InspectContainerOptions>);
        let state = match self.engine().call(&calls::INSPECT, self.name(), asked).await {
            Ok(found) => found.state.unwrap_or_default(),
            Err(e) if e.trouble == Trouble::NotFound => return Ok(Some("the container was removed".to_string())),
            Err(e) => return Err(e),
        };
        if state.running == Some(true) {
            return Ok(None);
        }
        let mut words = "the container is not running any more".to_string();
        if let Some(status) = state.status {
            words.push_str(&format!(", {status}"));
        }
        if let Some(code) = state.exit_code {
            words.push_str(&format!(" (exit code {code})"));
        }
        if let Some(error) = state.error.filter(|e| !e.is_empty()) {
            words.push_str(&format!(": {error}"));
        }
        // The state says nothing reliable about memory, the events do.
        match self.oom_kills() {
            0 => {}
            n => words.push_str(&format!("; {n} kills for want of memory")),
        }
        Ok(Some(words))
    }

    pub(super) async fn resize_pty(&self, exec: &str, cols: u16, rows: u16) -> Result<(), EnvError> {
        let id = self.id("set the size of a terminal")?;
        let asked = self.engine().docker().resize_exec(exec, ResizeExecOptions { height: rows, width: cols });
        match self.engine().call(&calls::EXEC_RESIZE, self.name(), asked).await {
            Ok(()) => Ok(()),
            Err(e) => Err(self.why(&id, e).await),
        }
    }
}

/// A start that failed.
#[derive(Debug)]
struct Lost {
    error: Error,
    /// True when the request was on its way and no answer came.
    sent: bool,
}

impl Lost {
    fn before(error: io::Error) -> Lost {
        Lost { error: Error::IOError { err: error }, sent: false }
    }

    fn refused(status_code: u16, message: String) -> Lost {
        Lost { error: Error::DockerResponseServerError { status_code, message }, sent: false }
    }

    fn explained(self, call: &Call, name: &str) -> EnvError {
        let error = calls::explain(call, name, &self.error);
        if !self.sent {
            return error;
        }
        // Nobody knows whether it runs.
        let detail = format!("{}: it may have begun, and is not begun again", error.detail);
        EnvError::new(error.trouble, &error.call, &detail, &error.remedy)
    }
}

/// What a command without a terminal prints: frames of eight bytes (the stream, three zeros, a length) and
/// so many more; of both streams alike.
pub(super) struct Output {
    wire: Wire,
    got: Vec<u8>,
    /// What is left of the frame that is being read.
    left: usize,
}

impl Output {
    fn new(rest: Vec<u8>, wire: Wire) -> Output {
        Output { wire, got: rest, left: 0 }
    }

    /// The next piece; None at the end. Nothing is lost when it is dropped before.
    ///
    /// # Errors
    /// The connection broke, or what came is no frame.
    pub(super) async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        loop {
            match self.piece() {
                Ok(None) => {}
                Ok(Some(piece)) => return Some(Ok(piece)),
                Err(e) => return Some(Err(e)),
            }
            let mut more = [0; 4096];
            match self.wire.read(&mut more).await {
                Ok(0) => return None,
                Ok(n) => self.got.extend_from_slice(more.get(..n).unwrap_or_default()),
                Err(e) => return Some(Err(e)),
            }
        }
    }

    /// The piece that is here already.
    fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        while self.left == 0 {
            let Some((head, rest)) = self.got.split_first_chunk::<8>() else { return Ok(None) };
            let [stream, 0, 0, 0, length @ ..] = *head else { return Err(no_frame()) };
            if stream > 3 {
                return Err(no_frame());
            }
            self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            self.got = rest.to_vec();
        }
        let n = self.left.min(self.got.len());
        if n == 0 {
            return Ok(None);
        }
        let rest = self.got.split_off(n);
        self.left -= n;
        Ok(Some(std::mem::replace(&mut self.got, rest)))
    }
}

fn no_frame() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the engine sent something that is no frame of a command's output")
}

/// A command that is prepared, and the connection that it is to be started on.
pub(super) struct Prepared {
    id: String,
    wire: Wire,
}

/// How an engine is spoken to.
#[derive(Clone, Copy)]
struct Spoken<'a> {
    address: &'a Address,
    api: &'a str,
}

impl Spoken<'_> {
    fn request(self, path: &str, more: &str, body: &str) -> String {
        let host = match self.address {
            Address::Unix(_) => "localhost",
            Address::Tcp(at) => at.as_str(),
        };
        format!(
            "POST /v{}{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pilothouse\r\n{more}Content-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.api,
            body.len()
        )
    }

    async fn prepare(self, container: &str, options: &CreateExecOptions<String>) -> Result<Prepared, Lost> {
        let mut wire = in_time(CONNECT, Wire::connect(self.address)).await.map_err(Lost::before)?;
        let body = serde_json::to_string(options).map_err(|e| Lost::before(e.into()))?;
        let request = self.request(&format!("/containers/{container}/exec"), "", &body);
        let answer = async {
            wire.write_all(request.as_bytes()).await?;
            let (head, rest) = head(&mut wire).await?;
            Ok((head.status, if head.status == 201 { body_of(&mut wire, &head, rest).await? } else { rest }))
        };
        let (status, got) = in_limit(&calls::EXEC_CREATE, answer).await?;
        if status != 201 {
            return Err(Lost::refused(status, reason(&mut wire, got).await));
        }
        let id = document(&got).and_then(|d| d.get("Id")?.as_str().map(str::to_string));
        let strange = || Lost::before(io::Error::new(io::ErrorKind::InvalidData, "the answer names no command"));
        Ok(Prepared { id: id.ok_or_else(strange)?, wire })
    }

    /// Starts what was prepared: what came behind the head of the answer, and the connection.
    async fn start(self, mut wire: Wire, exec: &str, tty: bool) -> Result<(Vec<u8>, Wire), Lost> {
        let body = format!(r#"{{"Detach":false,"Tty":{tty}}}"#);
        let more = "Connection: Upgrade\r\nUpgrade: tcp\r\n";
        let request = self.request(&format!("/exec/{exec}/start"), more, &body);
        let answer = async {
            wire.write_all(request.as_bytes()).await?;
            let mut wire = wire.answered().await?;
            head(&mut wire).await.map(|(head, rest)| (head.status, rest, wire))
        };
        let (status, rest, mut wire) = in_limit(&calls::EXEC_START, answer).await?;
        // Engines that do not know of upgrades say 200, and the stream follows all the same.
        if status != 101 && status != 200 {
            return Err(Lost::refused(status, reason(&mut wire, rest).await));
        }
        Ok((rest, wire))
    }
}

/// An answer to a request that was sent, within the limit of its call.
async fn in_limit<T>(call: &Call, answer: impl Future<Output = io::Result<T>>) -> Result<T, Lost> {
    match tokio::time::timeout(call.limit, answer).await {
        Ok(answer) => answer.map_err(|err| Lost { error: Error::IOError { err }, sent: true }),
        Err(_) => Err(Lost { error: Error::RequestTimeoutError, sent: true }),
    }
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", limit.as_secs()))),
    }
}

/// What the head of an answer says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Bytes of its body; None where it comes in chunks.
    length: Option<usize>,
}

impl Head {
    fn parse(text: &str) -> Option<Head> {
        let mut lines = text.lines();
        let mut words = lines.next()?.split_ascii_whitespace();
        words.next().filter(|version| version.starts_with("HTTP/1."))?;
        let status = words.next()?.parse().ok()?;
        let length =
            lines.filter_map(|line| line.split_once(':')).find(|(k, _)| k.eq_ignore_ascii_case("content-length"));
        Some(Head { status, length: length.and_then(|(_, n)| n.trim().parse().ok()) })
    }
}

/// Reads the head of an answer, and what came behind it.
async fn head(wire: &mut (impl AsyncRead + Unpin)) -> io::Result<(Head, Vec<u8>)> {
    let mut got = Vec::new();
    loop {
        more(wire, &mut got).await?;
        if let Some(end) = memchr::memmem::find(&got, b"\r\n\r\n") {
            let rest = got.split_off(end + 4);
            let strange = || broken("the answer is not HTTP: is this address an engine's?");
            return Ok((Head::parse(&String::from_utf8_lossy(&got)).ok_or_else(strange)?, rest));
        }
        if got.len() > HEAD {
            return Err(broken("the answer has no end of its head"));
        }
    }
}

/// Reads the body of a short answer to its end, so that the connection can be used again; in chunks where
/// it comes so.
async fn body_of(wire: &mut (impl AsyncRead + Unpin), head: &Head, mut got: Vec<u8>) -> io::Result<Vec<u8>> {
    let whole = |got: &[u8]| match head.length {
        Some(length) => got.len() >= length,
        None => got.ends_with(b"0\r\n\r\n"),
    };
    while !whole(&got) {
        if got.len() > REASON {
            return Err(broken("the answer has no end"));
        }
        more(wire, &mut got).await?;
    }
    Ok(got)
}

async fn more(wire: &mut (impl AsyncRead + Unpin), got: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = [0; 4096];
    let n = wire.read(&mut piece).await?;
    if n == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the engine closed the connection"));
    }
    got.extend_from_slice(piece.get(..n).unwrap_or_default());
    Ok(())
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

/// The first JSON document in an answer.
fn document(got: &[u8]) -> Option<serde_json::Value> {
    let from = got.iter().position(|b| *b == b'{')?;
    serde_json::Deserializer::from_slice(got.get(from..)?).into_iter().next()?.ok()
}

/// The engine's own words for a refusal.
async fn reason(wire: &mut (impl AsyncRead + Unpin), mut got: Vec<u8>) -> String {
    // The connection may stay open behind the body: the whole document is the end.
    let words = |got: &[u8]| Some(document(got)?.get("message")?.as_str()?.to_string());
    let whole = async { while words(&got).is_none() && got.len() < REASON && more(wire, &mut got).await.is_ok() {} };
    let _ = tokio::time::timeout(REASON_TIME, whole).await;
    words(&got).unwrap_or_else(|| String::from_utf8_lossy(&got).trim().to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn read(answer: &str) -> io::Result<(Head, Vec<u8>)> {
        let mut from = answer.as_bytes();
        let (head, rest) = head(&mut from).await?;
        let body = body_of(&mut from, &head, rest).await?;
        Ok((head, body))
    }

    /// In pieces of any size, with a length and in chunks; never beyond the end, nor for ever.
    #[test]
    fn an_answer_is_read_to_its_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let long = "HTTP/1.1 201 Created\r\ncontent-LENGTH: 12\r\nX: y\r\n\r\n{\"Id\":\"ab\"}\n";
            let (head, body) = read(long).await.unwrap();
            assert_eq!(head, Head { status: 201, length: Some(12) });
            assert_eq!(document(&body).unwrap()["Id"], "ab");
            let chunks = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{\"Id\":\"ab\"}\r\n0\r\n\r\n";
            let (head, body) = read(chunks).await.unwrap();
            assert_eq!((head.length, document(&body).unwrap()["Id"].as_str()), (None, Some("ab")));
            let cut = read("HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"Id\"").await.unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
            assert!(read("SSH-2.0-OpenSSH\r\n\r\n").await.unwrap_err().to_string().contains("is not HTTP"));
            let endless = format!("HTTP/1.1 201 Created\r\n\r\n{}", "x".repeat(2 * REASON));
            assert!(read(&endless).await.unwrap_err().to_string().contains("no end"));
        });
    }
}
