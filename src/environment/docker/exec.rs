//! Commands in a container.

use std::time::{Duration, Instant};

use bollard::exec::CreateExecOptions;

use super::super::error::tidy;
use super::super::{
    CUT_MARKER, Command, Ended, EnvError, ExecEnd, Life, OnTimeout, OutputFile, PROBE_BYTES, ProbeAnswer, Trouble,
    plain_path,
};
use super::archive::Inside;
use super::calls;
use super::container::{DockerEnvironment, Found, died};
use super::hijack::Output;
use crate::harbor::Dir;

/// Redirects to a file made anew, then becomes the command. Says on the pipe that it got so far, and
/// its number, which is that of the process group too. What it is given: file, shell, `-c`, script.
const INTO_FILE: &str = "rm -f -- \"$1\" || exit 125; \
    if [ -e \"$1\" ] || [ -L \"$1\" ]; then echo \"cannot replace $1\"; exit 125; fi; \
    exec 3>&1 >>\"$1\" 2>&1 || exit 125; shift; echo \"began $$\" >&3; exec 3>&- \"$@\"";
/// The same without a file.
const INTO_NOTHING: &str = "shift; exec 3>&1 >/dev/null 2>&1 || exit 125; echo \"began $$\" >&3; exec 3>&- \"$@\"";
/// Cuts a file at a length and puts a marker there. What it is given: file, length, marker.
const CUT: &str = "[ -f \"$1\" ] && [ ! -L \"$1\" ] && dd if=/dev/null of=\"$1\" bs=1 seek=\"$2\" count=0 2>/dev/null \
    && printf %s \"$3\" >>\"$1\"";

/// Between two looks at the length of an output file that is mounted from this machine.
const LOOK: Duration = Duration::from_millis(200);
/// The same for one that only the engine can look at.
const LOOK_INSIDE: Duration = Duration::from_secs(3);
/// Between two looks whether the container still runs, should its end not be reported.
const STILL: Duration = Duration::from_secs(5);
/// For an engine to report a kill for want of memory after the command ended of it.
const OOM_REPORT: Duration = Duration::from_millis(500);
/// The same where a child of the command may have been the victim.
const OOM_OF_CHILD: Duration = Duration::from_millis(100);
/// For a killed command to end.
const KILLED: Duration = Duration::from_secs(5);
/// For a short question of our own about a running command.
const SHORT: Duration = Duration::from_secs(30);
/// Bytes kept of what arrives on a command's pipe: our own line, or why it could not begin.
const NOTICE: usize = 4096;

/// Why the waiting for a command ended.
enum Woken {
    End,
    Late,
    Died(i64),
}

impl DockerEnvironment {
    pub(super) async fn run(&self, command: &Command) -> Result<ExecEnd, EnvError> {
        let call = format!("run a command in {}", self.name());
        let output = match &command.output {
            Some(file) => Some(OutputFile { path: output_path(&call, &file.path)?, cap: file.cap }),
            None => None,
        };
        let workdir = command.workdir.as_deref().map(|w| plain_path(&call, w)).transpose()?;
        let id = self.ready(&call).await?;
        let (wrapper, path) = match &output {
            Some(file) => (INTO_FILE, file.path.as_str()),
            None => (INTO_NOTHING, "-"),
        };
        let argv = ["sh", "-c", wrapper, "sh", path, &command.shell, "-c", &command.script];
        let env = command.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let oom_before = self.oom_kills();
        let began = Instant::now();
        let prepared = self.prepare(&id, &options(&argv, command.user.as_deref(), workdir, env)).await?;
        let (exec, mut stream) = self.attach(&id, prepared).await?;
        let mut notice = Vec::new();
        let deadline = command.timeout.map(|t| tokio::time::Instant::now() + t);
        let mut cut = false;
        let woken = self.wait(&id, &mut stream, &mut notice, deadline, output.as_ref(), &mut cut).await?;
        if pid(&notice).is_some() {
            self.has_run();
        }
        let ended = match woken {
            Woken::Died(code) => return Err(self.ended(&call, &id, Some(code)).await),
            Woken::End => {
                let exit = self.exit_code(&id, &exec).await?;
                if pid(&notice).is_none() {
                    // It may be the container that was about to end.
                    if let Ok(Found::Ended(code)) = self.inspected(&id).await {
                        return Err(self.ended(&call, &id, code).await);
                    }
                    let words = String::from_utf8_lossy(&notice);
                    let detail = format!("it could not begin (exit code {exit}): {words}");
                    let remedy = "look at its user, its directory and its output file; the image needs sh";
                    return Err(EnvError::new(Trouble::Command, &call, &detail, remedy));
                }
                if exit == 137 {
                    // Killed alone, or with everything: one end is reported before the other.
                    self.await_oom(oom_before, OOM_REPORT).await;
                    if let Life::Dead(code) = self.look_alive().await? {
                        return Err(died(&call, code));
                    }
                } else if exit != 0 && self.spec().memory.is_some() {
                    self.await_oom(oom_before, OOM_OF_CHILD).await;
                }
                Ended::Exited(exit)
            }
            Woken::Late => {
                self.give_up(&id, command, stream, &notice).await;
                Ended::TimedOut
            }
        };
        if let Some(file) = &output {
            // How the command ended is known and stays so, even if nobody can look at its output now.
            match self.cap(&id, file).await {
                Ok(was_cut) => cut |= was_cut,
                Err(e) => self.suspect(&e.to_string()),
            }
        }
        let oom_kills = self.oom_kills().saturating_sub(oom_before);
        Ok(ExecEnd { ended, took: began.elapsed(), oom_kills, output_cut: cut })
    }

    /// A short question: what it prints, and its exit code.
    pub(super) async fn ask(
        &self,
        id: &str,
        argv: &[&str],
        user: Option<&str>,
        limit: Duration,
    ) -> Result<ProbeAnswer, EnvError> {
        let asked = async {
            let prepared = self.prepare(id, &options(argv, user, None, Vec::new())).await?;
            let (exec, mut stream) = self.attach(id, prepared).await?;
            let mut text = Vec::new();
            // Read to the end whatever it prints: an unread stream would hang the container.
            while let Some(item) = stream.next().await {
                let Ok(piece) = item else { break };
                keep(&mut text, &piece, PROBE_BYTES);
            }
            let exit = self.exit_code(id, &exec).await?;
            self.has_run();
            Ok(ProbeAnswer { exit, text: String::from_utf8_lossy(&text).into_owned() })
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                let detail = format!("no answer in {} s", limit.as_secs_f32());
                self.suspect(&format!("a probe got {detail}"));
                let remedy = "the container is suspect until it answers";
                Err(EnvError::new(Trouble::TimedOut, &format!("probe {}", self.name()), &detail, remedy))
            }
        }
    }

    /// An error that may mean that the container is gone.
    pub(super) async fn why(&self, id: &str, error: EnvError) -> EnvError {
        match error.trouble {
            Trouble::TimedOut => {
                self.suspect(&error.to_string());
                error
            }
            Trouble::NotFound | Trouble::Conflict | Trouble::Engine => match self.inspected(id).await {
                Ok(Found::Ended(code)) => self.ended(&error.call, id, code).await,
                Ok(Found::Paused) => {
                    self.suspect("somebody paused it");
                    error
                }
                _ => error,
            },
            _ => error,
        }
    }

    async fn wait(
        &self,
        id: &str,
        stream: &mut Output,
        notice: &mut Vec<u8>,
        deadline: Option<tokio::time::Instant>,
        output: Option<&OutputFile>,
        cut: &mut bool,
    ) -> Result<Woken, EnvError> {
        let mut seen = self.seen();
        let mut look = match output {
            Some(file) if self.mounted(&file.path).is_some() => LOOK,
            Some(_) => LOOK_INSIDE,
            None => STILL,
        };
        let mut still = tokio::time::Instant::now() + STILL;
        loop {
            tokio::select! {
                item = stream.next() => match item {
                    Some(Ok(piece)) => keep(notice, &piece, NOTICE),
                    // An engine that went away shows at the exit code.
                    Some(Err(_)) | None => return Ok(Woken::End),
                },
                () = async {
                    match deadline {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => return Ok(Woken::Late),
                code = end_of(&mut seen) => return Ok(Woken::Died(code)),
                () = tokio::time::sleep(look) => {
                    if let Some(file) = output {
                        match self.cap(id, file).await {
                            Ok(was_cut) => *cut |= was_cut,
                            // Made again at the end; until then not at this pace.
                            Err(_) => look = STILL,
                        }
                    }
                    if tokio::time::Instant::now() >= still {
                        still = tokio::time::Instant::now() + STILL;
                        match self.inspected(id).await {
                            Ok(Found::Ended(code)) => return Ok(Woken::Died(code.unwrap_or(-1))),
                            // Paused by somebody, or an engine that is slow for now: wait on.
                            Ok(Found::Running | Found::Paused) | Err(_) => {}
                        }
                    }
                }
            }
        }
    }

    /// The exit code, once the engine says that the command does not run and has one.
    async fn exit_code(&self, id: &str, exec: &str) -> Result<i64, EnvError> {
        let deadline = tokio::time::Instant::now() + calls::EXEC_INSPECT.limit;
        let mut pause = Duration::from_millis(2);
        loop {
            let asked = self.engine().docker().inspect_exec(exec);
            let found = match self.engine().call(&calls::EXEC_INSPECT, self.name(), asked).await {
                Ok(found) => found,
                Err(e) => return Err(self.why(id, e).await),
            };
            // Some engines report a code while it runs.
            if let (Some(false), Some(code)) = (found.running, found.exit_code) {
                return Ok(code);
            }
            if tokio::time::Instant::now() >= deadline {
                self.suspect("the connection of a command ended, the command did not");
                return Err(calls::late(&calls::EXEC_INSPECT, self.name(), calls::EXEC_INSPECT.limit));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }

    /// After the deadline. The connection is closed: nothing of a dying container may be left unread.
    async fn give_up(&self, id: &str, command: &Command, mut stream: Output, notice: &[u8]) {
        let after = command.timeout.map_or(0.0, |t| t.as_secs_f32());
        let why = format!("a command did not end in {after} s");
        if command.on_timeout == OnTimeout::Kill
            && let Some(pid) = pid(notice)
        {
            let group = format!("-{pid}");
            let killed = self.ask(id, &["sh", "-c", "kill -9 -- \"$1\"", "sh", &group], Some("0"), SHORT).await;
            let ends = async { while let Some(Ok(_)) = stream.next().await {} };
            if killed.is_ok() && tokio::time::timeout(KILLED, ends).await.is_ok() {
                return;
            }
        }
        self.suspect(&why);
    }

    async fn await_oom(&self, before: u32, wait: Duration) {
        if let Some(mut seen) = self.seen() {
            let _ = tokio::time::timeout(wait, seen.wait_for(|s| s.oom > before || s.died.is_some())).await;
        }
    }

    /// The mounted directory of this machine that a path inside lies in, and the rest of the path.
    fn mounted<'a>(&self, path: &'a str) -> Option<(std::path::PathBuf, &'a str)> {
        let fits = self.spec().mounts.iter().filter_map(|m| {
            let rest = path.strip_prefix(m.inside.trim_end_matches('/'))?.strip_prefix('/')?;
            Some((m.inside.len(), m.host.clone(), rest))
        });
        fits.max_by_key(|(len, ..)| *len).map(|(_, host, rest)| (host, rest))
    }

    /// Cuts the output file when it is longer than its cap; true when it was.
    async fn cap(&self, id: &str, file: &OutputFile) -> Result<bool, EnvError> {
        let length = match self.mounted(&file.path) {
            Some((host, rest)) => Dir::open(&host).and_then(|dir| dir.stat(rest)).map_or(0, |m| m.size),
            None => match self.engine().look(id, &file.path).await? {
                Inside::File(length) => length,
                _ => 0,
            },
        };
        // The marker of an earlier cut is not a reason for another.
        if length <= file.cap.saturating_add(CUT_MARKER.len() as u64) {
            return Ok(false);
        }
        let at = file.cap.to_string();
        let answer = self.ask(id, &["sh", "-c", CUT, "sh", &file.path, &at, CUT_MARKER], Some("0"), SHORT).await?;
        if answer.exit == 0 {
            return Ok(true);
        }
        let detail = format!("{} is too long and could not be cut: {}", file.path, tidy(&answer.text));
        Err(EnvError::new(Trouble::Command, "cap the output", &detail, "the image needs dd"))
    }
}

fn options(argv: &[&str], user: Option<&str>, workdir: Option<String>, env: Vec<String>) -> CreateExecOptions<String> {
    CreateExecOptions {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(argv.iter().map(|a| (*a).to_string()).collect()),
        user: user.map(str::to_string),
        working_dir: workdir,
        env: Some(env),
        ..CreateExecOptions::default()
    }
}

/// When the container's end is reported.
async fn end_of(seen: &mut Option<tokio::sync::watch::Receiver<super::events::Seen>>) -> i64 {
    if let Some(seen) = seen
        && let Ok(end) = seen.wait_for(|s| s.died.is_some()).await
        && let Some(code) = end.died
    {
        return code;
    }
    std::future::pending().await
}

fn keep(into: &mut Vec<u8>, bytes: &[u8], cap: usize) {
    let room = cap.saturating_sub(into.len());
    into.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
}

/// The number in the line that says that a command began.
fn pid(notice: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(notice);
    text.lines().find_map(|line| line.strip_prefix("began ")).and_then(|n| n.trim().parse().ok()).filter(|n| *n > 1)
}

/// A path for an output file: never a device.
fn output_path(call: &str, path: &str) -> Result<String, EnvError> {
    let path = plain_path(call, path)?;
    let first = path.split('/').nth(1).unwrap_or_default();
    if matches!(first, "" | "dev" | "proc" | "sys") {
        let remedy = "name a file, for instance beneath /logs";
        return Err(EnvError::new(Trouble::Path, call, &format!("{path} is not taken for output"), remedy));
    }
    Ok(path)
}
