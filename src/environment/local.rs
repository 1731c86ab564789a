//! The same trial without a container: child processes in a scratch directory.
//!
//! It isolates nothing. Commands run as this user, with this machine's files and network; the paths
//! of the task (`/app`, `/tests`, `/solution`, `/logs`) are directories of the scratch directory, told
//! to commands by variables ([`VARIABLES`]), and commands start in theirs. Terminals are this machine's.
//! For trusted tasks only.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;

mod processes;
mod scratch;
mod terminal;

use self::processes::{kill_group, kill_marked, kill_where};
pub use self::scratch::remove_tree;
use self::terminal::Terminals;
use super::pack::{self, Packed};
use super::pipe::{PipeReader, pipe};
use super::unpack::{Manner, unpack, unpack_part};
use super::{
    Act, CUT_MARKER, Caps, Command, Description, Ended, EnvError, Environment, Exclude, ExecEnd, Fetched, FileBytes,
    Life, Mount, PROBE_BYTES, ProbeAnswer, Pty, PtyCommand, Trouble, Upload, plain_path,
};
use crate::harbor::Dir;

/// Directories of a task and the variables that tell where they are.
pub const VARIABLES: [(&str, &str); 4] =
    [("/app", "APP_DIR"), ("/tests", "TESTS_DIR"), ("/solution", "SOLUTION_DIR"), ("/logs", "LOGS_DIR")];

/// Where a command starts that names no directory.
const HOME: &str = "/app";

/// Variable that marks the processes of one environment, so that those that left their group are found:
/// `<pid of the owner>-<scratch directory>`.
pub const MARK: &str = "PILOTHOUSE_LOCAL";
/// Between two looks at the length of an output file.
const LOOK: Duration = Duration::from_millis(100);

/// A trial's place on this machine.
#[derive(Debug)]
pub struct LocalEnvironment {
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    scratch: PathBuf,
    mounts: Vec<Mount>,
    env: Vec<(String, String)>,
    mark: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    groups: BTreeSet<i32>,
    terminals: Terminals,
}

impl LocalEnvironment {
    /// An environment in `scratch` (made at the start, removed at the stop; must not exist). Mounts
    /// become links beneath it; a read-only mount is read-only by good will only.
    pub fn new(scratch: PathBuf, mounts: Vec<Mount>, env: Vec<(String, String)>) -> LocalEnvironment {
        let mark = format!("{}-{}", std::process::id(), scratch.display());
        LocalEnvironment { place: Arc::new(Place { scratch, mounts, env, mark, state: Mutex::new(State::default()) }) }
    }

    /// Runs file work where waiting for a disk holds up nobody.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> Result<T, EnvError> + Send + 'static,
    ) -> Result<T, EnvError> {
        let place = Arc::clone(&self.place);
        let done = tokio::task::spawn_blocking(move || work(&place)).await;
        done.unwrap_or_else(|e| Err(EnvError::new(Trouble::Io, "local file work", &e.to_string(), "")))
    }
}

impl Place {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn running(&self, call: &str) -> Result<(), EnvError> {
        if self.state().running {
            return Ok(());
        }
        Err(EnvError::new(Trouble::NotRunning, call, "the local environment is not started, or stopped", ""))
    }

    /// Where a path of the task is on this machine.
    fn host(&self, path: &str) -> PathBuf {
        let mount = self
            .mounts
            .iter()
            .filter_map(|m| beneath(path, &m.inside).map(|rest| (m.inside.len(), m.host.join(rest))))
            .max_by_key(|(len, _)| *len);
        match mount {
            Some((_, host)) => host,
            None => self.scratch.join(path.trim_start_matches('/')),
        }
    }

    fn begin(&self) -> Result<(), EnvError> {
        let call = "start the local environment";
        let fail = |e: io::Error| EnvError::io(call, &e);
        fs::create_dir(&self.scratch).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                let detail = format!("{} is there already", self.scratch.display());
                EnvError::new(Trouble::Conflict, call, &detail, "remove it, or choose another scratch directory")
            }
            _ => EnvError::io(call, &e),
        })?;
        for dir in ["app", "tests", "solution", "logs", "tmp", "home"] {
            fs::create_dir(self.scratch.join(dir)).map_err(fail)?;
        }
        for mount in &self.mounts {
            if !mount.host.is_dir() {
                let detail = format!("{} is no directory", mount.host.display());
                return Err(EnvError::new(Trouble::Mount, call, &detail, "make the directory before the start"));
            }
            let link = self.scratch.join(plain_path(call, &mount.inside)?.trim_start_matches('/'));
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent).map_err(fail)?;
            }
            // A mount may take the place of one of the directories above.
            let _ = fs::remove_dir(&link);
            std::os::unix::fs::symlink(&mount.host, &link).map_err(fail)?;
        }
        self.state().running = true;
        Ok(())
    }

    /// A child in a process group of its own.
    fn child(
        &self,
        program: &str,
        args: &[&str],
        workdir: &Path,
        extra: &[(String, String)],
    ) -> tokio::process::Command {
        let mut child = self.command(program, args, workdir, extra);
        child.process_group(0);
        child
    }

    /// A program with the environment's variables, without ours: they may hold keys.
    fn command(
        &self,
        program: &str,
        args: &[&str],
        workdir: &Path,
        extra: &[(String, String)],
    ) -> tokio::process::Command {
        let mut child = tokio::process::Command::new(program);
        child.args(args).current_dir(workdir).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        child.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()));
        child.env("LANG", "C.UTF-8").env("HOME", self.scratch.join("home")).env("TMPDIR", self.scratch.join("tmp"));
        for (path, name) in VARIABLES {
            child.env(name, self.scratch.join(path.trim_start_matches('/')));
        }
        child.envs(self.env.iter().chain(extra).map(|(k, v)| (k, v)));
        child.env(MARK, &self.mark);
        child
    }

    fn spawn(
        &self,
        call: &str,
        child: &mut tokio::process::Command,
    ) -> Result<(tokio::process::Child, Group<'_>), EnvError> {
        let child = child.spawn().map_err(|e| EnvError::new(Trouble::Command, call, &e.to_string(), ""))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
        self.state().groups.insert(id);
        Ok((child, Group { of: self, id, done: false }))
    }

    async fn run(&self, command: &Command) -> Result<ExecEnd, EnvError> {
        let call = "run a command";
        self.running(call)?;
        ours(call, command.user.as_deref())?;
        let workdir = self.host(&plain_path(call, command.workdir.as_deref().unwrap_or(HOME))?);
        let output = match &command.output {
            Some(file) => Some((self.output(call, &file.path)?, file.cap)),
            None => None,
        };
        let mut child = self.child(shell_here(&command.shell), &["-c", &command.script], &workdir, &command.env);
        match &output {
            Some((file, _)) => {
                let twin = || file.try_clone().map(Stdio::from).map_err(|e| EnvError::io(call, &e));
                child.stdout(twin()?).stderr(twin()?);
            }
            None => {
                child.stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let began = Instant::now();
        let (mut child, mut group) = self.spawn(call, &mut child)?;
        let deadline = command.timeout.map(|t| tokio::time::Instant::now() + t);
        let mut cut = false;
        let ended = loop {
            tokio::select! {
                status = child.wait() => break Some(status.map_err(|e| EnvError::io(call, &e))?),
                () = until(deadline) => break None,
                () = tokio::time::sleep(LOOK) => cut |= trim(output.as_ref())?,
            }
        };
        let ended = match ended {
            Some(status) => {
                use std::os::unix::process::ExitStatusExt;
                // What it left in the background lives on until the stop, as in a container.
                group.done = true;
                let signal = status.signal().map(|s| i64::from(128 + s));
                Ended::Exited(status.code().map(i64::from).or(signal).unwrap_or(-1))
            }
            None => {
                group.done = command.on_timeout == super::OnTimeout::Leave;
                if group.done {
                    // Someone has to wait for it, or it stays a zombie.
                    tokio::spawn(async move { child.wait().await });
                }
                Ended::TimedOut
            }
        };
        drop(group);
        cut |= trim(output.as_ref())?;
        Ok(ExecEnd { ended, took: began.elapsed(), oom_kills: 0, output_cut: cut })
    }

    /// A new file, in the place of whatever is there.
    fn output(&self, call: &str, path: &str) -> Result<File, EnvError> {
        let path = self.host(&plain_path(call, path)?);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(EnvError::io(call, &e)),
            _ => {}
        }
        File::options().append(true).create_new(true).mode(0o644).open(&path).map_err(|e| EnvError::io(call, &e))
    }

    async fn ask(&self, argv: &[&str], limit: Duration) -> Result<ProbeAnswer, EnvError> {
        let call = "probe";
        self.running(call)?;
        let (program, args) = argv.split_first().ok_or_else(|| EnvError::new(Trouble::Command, call, "empty", ""))?;
        // What is tested may remove its directory.
        let app = self.scratch.join("app");
        let mut child = self.child(program, args, if app.is_dir() { &app } else { &self.scratch }, &[]);
        child.stdout(Stdio::piped()).stderr(Stdio::null());
        let (mut child, mut group) = self.spawn(call, &mut child)?;
        let mut text = Vec::new();
        let answer = tokio::time::timeout(limit, async {
            if let Some(out) = child.stdout.take() {
                out.take(PROBE_BYTES as u64).read_to_end(&mut text).await?;
            }
            child.wait().await
        });
        match answer.await {
            Ok(Ok(status)) => {
                group.done = true;
                let exit = status.code().map_or(-1, i64::from);
                Ok(ProbeAnswer { exit, text: String::from_utf8_lossy(&text).into_owned() })
            }
            Ok(Err(e)) => Err(EnvError::io(call, &e)),
            Err(_) => {
                Err(EnvError::new(Trouble::TimedOut, call, &format!("no answer in {} s", limit.as_secs_f32()), ""))
            }
        }
    }

    fn put(&self, from: Upload, to: &str) -> Result<Packed, EnvError> {
        let call = format!("upload to {to}");
        self.running(&call)?;
        let fail = |e: io::Error| EnvError::io(&call, &e);
        let target = self.host(&plain_path(&call, to)?);
        match from {
            Upload::Bytes(data, mode) => {
                if let Some(parent) = target.parent() {
                    fs::create_dir_all(parent).map_err(fail)?;
                }
                let _ = fs::remove_file(&target);
                let mut file =
                    File::options().write(true).create_new(true).mode(mode & 0o777).open(&target).map_err(fail)?;
                file.write_all(&data).map_err(fail)?;
                Ok(Packed { files: 1, bytes: data.len() as u64, ..Packed::default() })
            }
            Upload::Dir(path) | Upload::Scripts(path, _) => {
                let source = pack::open_source(&path).map_err(fail)?;
                fs::create_dir_all(&target).map_err(fail)?;
                let target = Dir::open(&target).map_err(fail)?;
                let caps = Caps { bytes: u64::MAX, file_bytes: u64::MAX, entries: u64::MAX };
                let (packed, _) =
                    carry(&source, Path::new(""), &target, caps, Manner::Own, 0, &Exclude::default()).map_err(fail)?;
                Ok(packed)
            }
        }
    }

    fn take_file(&self, from: &str, cap: u64) -> Result<FileBytes, EnvError> {
        let call = format!("download {from}");
        self.running(&call)?;
        let (parent, name) = self.split(&call, from)?;
        let read = parent.read(&name, cap).map_err(|e| {
            let trouble = match &e {
                crate::harbor::OpenError::Missing => Trouble::NotFound,
                crate::harbor::OpenError::Denied { .. } => Trouble::Denied,
                _ => Trouble::Path,
            };
            EnvError::new(trouble, &call, &e.to_string(), "")
        })?;
        Ok(FileBytes { data: read.data, cut: read.truncated })
    }

    fn split(&self, call: &str, from: &str) -> Result<(Dir, String), EnvError> {
        let path = self.host(&plain_path(call, from)?);
        let fail = |e: io::Error| EnvError::io(call, &e);
        let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let parent = path.parent().ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        Ok((Dir::open(parent).map_err(fail)?, name.to_string()))
    }

    fn take_tree(&self, from: &str, into: &Path, caps: Caps, without: &Exclude) -> Result<Fetched, EnvError> {
        let call = format!("download {from}");
        self.running(&call)?;
        let fail = |e: io::Error| EnvError::io(&call, &e);
        let target = Dir::open(into).map_err(fail)?;
        // The root of a mount is a link of our own in the scratch directory: not one to refuse.
        let source = match self.mounts.iter().find(|m| m.inside.trim_end_matches('/') == from.trim_end_matches('/')) {
            Some(mount) => Dir::open(&mount.host),
            None => {
                let (parent, name) = self.split(&call, from)?;
                match parent.sub(&name) {
                    Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                        let file = self.take_file(from, caps.file_bytes.min(caps.bytes))?;
                        let mut builder = tar::Builder::new(Vec::new());
                        pack::pack_bytes(Path::new(&name), &file.data, 0o644, &mut builder).map_err(fail)?;
                        let archive = builder.into_inner().map_err(fail)?;
                        let fetched = unpack(&*archive, &target, caps, Manner::Careful, 0).map_err(fail)?;
                        return Ok(Fetched { cut: fetched.cut || file.cut, ..fetched });
                    }
                    other => other,
                }
            }
        };
        let source = source.map_err(fail)?;
        carry(&source, Path::new("t"), &target, caps, Manner::Careful, 1, without).map(|(_, f)| f).map_err(fail)
    }

    fn end(&self) -> Result<(), EnvError> {
        let (groups, terminals) = {
            let mut state = self.state();
            state.running = false;
            (std::mem::take(&mut state.groups), std::mem::take(&mut state.terminals))
        };
        terminals.end();
        for id in groups {
            kill_group(id);
        }
        // Those that left their group; again, as one may have forked meanwhile.
        for _ in 0..3 {
            if kill_marked(&self.mark) == 0 {
                break;
            }
        }
        remove_tree(&self.scratch).map_err(|e| EnvError::io("remove the scratch directory", &e))
    }
}

/// Copies a tree through the same code that packs for and unpacks from a container.
fn carry(
    from: &Dir,
    prefix: &Path,
    to: &Dir,
    caps: Caps,
    manner: Manner,
    strip: usize,
    without: &Exclude,
) -> io::Result<(Packed, Fetched)> {
    let (writer, rx) = pipe();
    std::thread::scope(|scope| {
        let packing = scope.spawn(move || {
            let mut builder = tar::Builder::new(writer);
            let packed = pack::pack(from, prefix, &mut builder, &pack::Rules::all());
            match (packed, builder.into_inner()) {
                (Ok(packed), Ok(mut writer)) => writer.flush().map(|()| packed),
                (Err(e), Ok(writer)) => {
                    writer.fail(io::Error::new(e.kind(), e.to_string()));
                    Err(e)
                }
                (_, Err(e)) => Err(e),
            }
        });
        let fetched = unpack_part(PipeReader::of(rx), to, caps, manner, strip, without)?;
        match packing.join() {
            Ok(Ok(packed)) => Ok((packed, fetched)),
            // A cap ended the reading: the writer found nobody.
            Ok(Err(_)) if fetched.cut => Ok((Packed::default(), fetched)),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::Error::other("packing failed")),
        }
    })
}

/// There is one user here.
fn ours(call: &str, user: Option<&str>) -> Result<(), EnvError> {
    match user {
        None | Some("root") => Ok(()),
        Some(user) => {
            let detail = format!("something for user {user}: the local environment has one user, ours");
            Err(EnvError::new(Trouble::Unsupported, call, &detail, "use the Docker environment"))
        }
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A shell that is here: plain `sh` takes the place of a bash that is not. What a script needs of bash it
/// asks for itself, in its first line.
fn shell_here(shell: &str) -> &str {
    static BASH: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join("bash").is_file())
    });
    if shell == "bash" && !*BASH { "sh" } else { shell }
}

/// Cuts an output file that is longer than its cap.
fn trim(output: Option<&(File, u64)>) -> Result<bool, EnvError> {
    let Some((file, cap)) = output else { return Ok(false) };
    let cut = || -> io::Result<bool> {
        if file.metadata()?.len() <= *cap {
            return Ok(false);
        }
        file.set_len(*cap)?;
        (&*file).write_all(CUT_MARKER.as_bytes())?;
        Ok(true)
    };
    cut().map_err(|e| EnvError::io("cap the output", &e))
}

/// Kills a process group when a run is given up.
struct Group<'a> {
    of: &'a Place,
    id: i32,
    done: bool,
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !self.done {
            kill_group(self.id);
        }
        // Once its leader is waited for, the number may become somebody else's: from here on only
        // the mark tells whose processes they are.
        self.of.state().groups.remove(&self.id);
    }
}

/// Ends what an owner that is no more left of its local environments beneath `root`: their processes,
/// then the directories. Gives how many processes there were.
///
/// # Errors
/// A directory that can not be removed.
pub fn clear_left(root: &Path) -> io::Result<usize> {
    let mut ended = 0;
    // Again, as one may have forked meanwhile.
    for _ in 0..3 {
        let n = kill_where(|mark| mark.split_once('-').is_some_and(|(_, at)| Path::new(at).starts_with(root)));
        ended += n;
        if n == 0 {
            break;
        }
    }
    remove_tree(root).map(|()| ended)
}

/// What of `path` lies beneath `dir`.
fn beneath<'a>(path: &'a str, dir: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(dir.trim_end_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

impl Environment for LocalEnvironment {
    fn start(&self) -> Act<'_, ()> {
        Box::pin(self.aside(Place::begin))
    }

    fn exec<'a>(&'a self, command: &'a Command) -> Act<'a, ExecEnd> {
        Box::pin(self.place.run(command))
    }

    fn probe<'a>(&'a self, argv: &'a [&'a str], _user: Option<&'a str>, limit: Duration) -> Act<'a, ProbeAnswer> {
        Box::pin(self.place.ask(argv, limit))
    }

    fn upload<'a>(&'a self, from: Upload, to: &'a str) -> Act<'a, Packed> {
        Box::pin(self.aside({
            let to = to.to_string();
            move |place| place.put(from, &to)
        }))
    }

    fn download_file<'a>(&'a self, from: &'a str, cap: u64) -> Act<'a, FileBytes> {
        Box::pin(self.aside({
            let from = from.to_string();
            move |place| place.take_file(&from, cap)
        }))
    }

    fn download_part<'a>(&'a self, from: &'a str, into: PathBuf, caps: Caps, without: Exclude) -> Act<'a, Fetched> {
        Box::pin(self.aside({
            let from = from.to_string();
            move |place| place.take_tree(&from, &into, caps, &without)
        }))
    }

    fn is_alive(&self) -> Act<'_, Life> {
        Box::pin(async { Ok(if self.place.state().running { Life::Alive } else { Life::Absent }) })
    }

    fn hand_over(&self) -> Act<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn stop(&self) -> Act<'_, ()> {
        Box::pin(self.aside(Place::end))
    }

    fn open_pty<'a>(&'a self, command: &'a PtyCommand) -> Act<'a, Pty> {
        Box::pin(self.place.open_terminal(command))
    }

    fn pty_end<'a>(&'a self, id: &'a str) -> Act<'a, Option<i64>> {
        Box::pin(self.place.end_of_terminal(id))
    }

    fn size_pty<'a>(&'a self, id: &'a str, cols: u16, rows: u16) -> Act<'a, ()> {
        Box::pin(async move { self.place.size_terminal(id, cols, rows) })
    }

    fn home(&self) -> Option<String> {
        Some(HOME.to_string())
    }

    fn locate(&self, path: &str) -> String {
        self.place.host(path).to_string_lossy().into_owned()
    }

    fn describe(&self) -> Description {
        Description {
            kind: "local",
            summary: "child processes of this user: isolates nothing, limits nothing; for trusted tasks only"
                .to_string(),
            id: self.place.state().running.then(|| self.place.scratch.to_string_lossy().into_owned()),
            deviations: vec![
                "no container: the task sees this machine's files and network".to_string(),
                "task paths are given by APP_DIR, TESTS_DIR, SOLUTION_DIR and LOGS_DIR".to_string(),
                "no limits of processors, memory or processes".to_string(),
            ],
        }
    }
}

impl Drop for LocalEnvironment {
    fn drop(&mut self) {
        if self.place.state().running {
            let _ = self.place.end();
        }
    }
}
