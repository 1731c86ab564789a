//! Where a trial happens: a container, or a scratch directory on this machine.
//!
//! [`Environment`] is what a trial needs of either: start, run a command with its output in a file
//! inside, put files in, take files out, look whether it is alive, end it now. [`docker`] is the only
//! place that knows the client of the Docker engine; [`local`] isolates nothing and says so.
//!
//! Output never travels through the connection of a command: it is redirected inside, capped there,
//! and read from the file. Files that a trial can reach are hostile: what comes out is unpacked
//! beneath an open directory, regular files only, new names only, under caps ([`unpack`]).

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

pub mod docker;
mod error;
mod exclude;
pub mod held;
pub mod labels;
mod ledger;
pub mod local;
pub mod pack;
mod pipe;
mod pty;
pub mod subnet;
pub mod unpack;

pub use error::{EnvError, Trouble};
pub use exclude::Exclude;
pub use held::{Held, HeldKind, HeldRecord, HeldRecords, SnapshotAsk, TakenAside, VERIFIER_MARK};
pub use labels::{Kept, KeptKind, Labels, OwnerLabel, Role};
pub use ledger::{Ledger, Noted};
pub use pty::{Pty, PtyCommand, PtyReader, PtyWriter};
pub use unpack::{Caps, Fetched};

/// What a call of an [`Environment`] gives: a future that may move between threads.
pub type Act<'a, T> = Pin<Box<dyn Future<Output = Result<T, EnvError>> + Send + 'a>>;

/// Appended where output was cut at its cap.
pub const CUT_MARKER: &str = "\n[output cut here by pilothouse: too long]\n";

/// Most bytes taken of what a [`probe`](Environment::probe) prints.
pub const PROBE_BYTES: usize = 16 * 1024;

/// The place where one trial happens.
///
/// Dropping the future of a call gives up waiting, not the work: what was begun in a container goes
/// on there until [`stop`](Environment::stop). In the local environment a dropped
/// [`exec`](Environment::exec) kills its processes.
pub trait Environment: Send + Sync {
    /// Brings it up. The image is expected to be there.
    fn start(&self) -> Act<'_, ()>;

    /// Runs a command to its end, or to its timeout.
    ///
    /// A non-zero exit is a result, not an error. Errors are about the environment: it is not
    /// running, died meanwhile ([`Trouble::Died`]), does not answer ([`Trouble::Suspect`]), or the
    /// command never began ([`Trouble::Command`]).
    fn exec<'a>(&'a self, command: &'a Command) -> Act<'a, ExecEnd>;

    /// Runs a short question of our own, without redirection, and returns what it prints (cut at
    /// [`PROBE_BYTES`]). No answer within the limit makes the environment suspect.
    fn probe<'a>(&'a self, argv: &'a [&'a str], user: Option<&'a str>, limit: Duration) -> Act<'a, ProbeAnswer>;

    /// Puts the contents of a directory beneath `to`, or one file's bytes at `to`; owner root.
    /// Directories on the way are made; existing files are replaced, existing links not followed.
    fn upload<'a>(&'a self, from: Upload, to: &'a str) -> Act<'a, pack::Packed>;

    /// The first `cap` bytes of a regular file; a link is not followed, a FIFO not opened.
    fn download_file<'a>(&'a self, from: &'a str, cap: u64) -> Act<'a, FileBytes>;

    /// Copies a directory's contents (or one file) beneath the directory `into`, which must exist:
    /// regular files and directories only, under new names only, under caps.
    fn download_tree<'a>(&'a self, from: &'a str, into: PathBuf, caps: Caps) -> Act<'a, Fetched> {
        self.download_part(from, into, caps, Exclude::default())
    }

    /// As [`download_tree`](Environment::download_tree), without what is excluded.
    fn download_part<'a>(&'a self, from: &'a str, into: PathBuf, caps: Caps, without: Exclude) -> Act<'a, Fetched>;

    /// Looks whether it runs *and answers*. An answer lifts the suspicion that a timeout left.
    fn is_alive(&self) -> Act<'_, Life>;

    /// Gives what was written in the mounted directories to the owner of this process. A no-op
    /// where that is root or where nothing is mounted.
    fn hand_over(&self) -> Act<'_, ()>;

    /// Ends it at once and removes it; fine when it is already gone. Bounded in time.
    fn stop(&self) -> Act<'_, ()>;

    /// Takes it aside for a verifier that is to run again: the verifier's processes ended, all else as it
    /// is, paused. After that it is nobody's environment any more: it is not stopped with the trial.
    ///
    /// # Errors
    /// It does not answer; [`Trouble::Unsupported`] where that can not be done. It is still to be stopped
    /// then.
    fn hold(&self, _since: crate::job::Stamp) -> Act<'_, TakenAside> {
        Box::pin(async {
            let detail = "only a container can be held";
            Err(EnvError::new(Trouble::Unsupported, "hold the environment", detail, "run trials in containers"))
        })
    }

    /// Copies its files, so that a verifier can run again in the copy.
    ///
    /// # Errors
    /// It is larger, or takes longer, than it may; [`Trouble::Unsupported`] where that can not be done.
    fn snapshot<'a>(&'a self, _ask: &'a SnapshotAsk) -> Act<'a, TakenAside> {
        Box::pin(async {
            let detail = "only a container can be copied";
            Err(EnvError::new(Trouble::Unsupported, "copy the environment", detail, "run trials in containers"))
        })
    }

    /// Starts a program on a terminal of its own, of a size that is not set yet. A start whose answer
    /// was lost is not repeated: the program may run.
    ///
    /// # Errors
    /// As [`exec`](Environment::exec); [`Trouble::Unsupported`] where there are no terminals.
    fn open_pty<'a>(&'a self, _command: &'a PtyCommand) -> Act<'a, Pty> {
        Box::pin(async {
            let detail = "this environment has no terminals";
            Err(EnvError::new(Trouble::Unsupported, "open a terminal", detail, "run the agent in a container"))
        })
    }

    /// The exit code of the program on a terminal; None while it runs.
    ///
    /// # Errors
    /// [`Trouble::Died`] when the whole environment ended, [`Trouble::NotFound`] when nobody knows it
    /// any more.
    fn pty_end<'a>(&'a self, _id: &'a str) -> Act<'a, Option<i64>> {
        Box::pin(async {
            Err(EnvError::new(Trouble::Unsupported, "look at a terminal", "this environment has no terminals", ""))
        })
    }

    /// Sets the size of a terminal.
    ///
    /// # Errors
    /// The environment does not answer, or nobody knows the terminal.
    fn size_pty<'a>(&'a self, _id: &'a str, _cols: u16, _rows: u16) -> Act<'a, ()> {
        Box::pin(async {
            Err(EnvError::new(Trouble::Unsupported, "size a terminal", "this environment has no terminals", ""))
        })
    }

    /// The directory where a command starts that names none, once that is known.
    fn home(&self) -> Option<String>;

    /// Where a path of the task (`/tests/test.sh`) is for a command that runs here.
    fn locate(&self, path: &str) -> String;

    /// What it is, for the trial's record and the screen.
    fn describe(&self) -> Description;
}

/// A command, run as `<shell> -c <script>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The script.
    pub script: String,
    /// The shell, `bash` unless the image has none.
    pub shell: String,
    /// User inside (`name`, `uid` or `uid:gid`); None: the image's.
    pub user: Option<String>,
    /// Working directory inside; None: the image's.
    pub workdir: Option<String>,
    /// Variables for this command alone, on top of the environment's.
    pub env: Vec<(String, String)>,
    /// Longest run; None: unlimited.
    pub timeout: Option<Duration>,
    /// What happens to it at its timeout.
    pub on_timeout: OnTimeout,
    /// Where both streams go inside; None: nowhere.
    pub output: Option<OutputFile>,
}

impl Command {
    /// A bash script with nothing else set.
    pub fn new(script: &str) -> Command {
        Command {
            script: script.to_string(),
            shell: "bash".to_string(),
            user: None,
            workdir: None,
            env: Vec::new(),
            timeout: None,
            on_timeout: OnTimeout::Leave,
            output: None,
        }
    }
}

/// What happens to a command whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// It runs on, as under Harbor. The container is suspect until it is asked
    /// ([`Environment::is_alive`], or the next command) and answers.
    Leave,
    /// Its process group is killed inside. When it ends of that, nothing is suspect; processes that
    /// left the group live on.
    Kill,
}

/// A file inside that takes a command's output, made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Absolute path inside.
    pub path: String,
    /// Most bytes kept; what follows is cut, with [`CUT_MARKER`] at the cut. Looked at while the
    /// command runs: between two looks the file may be longer.
    pub cap: u64,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecEnd {
    /// Exit code, or that its time was over.
    pub ended: Ended,
    /// From the start call to the end, monotonic.
    pub took: Duration,
    /// Kills for want of memory seen in the container while it ran, from the event stream. Several
    /// at once may be reported as one.
    pub oom_kills: u32,
    /// True when the output file was cut at its cap. Where it could not be looked at any more the
    /// environment is suspect instead.
    pub output_cut: bool,
}

/// The end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its exit code, 128 + signal where one ended it.
    Exited(i64),
    /// Its time was over.
    TimedOut,
}

/// The answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Exit code.
    pub exit: i64,
    /// Both streams as they came, invalid UTF-8 replaced; hostile.
    pub text: String,
}

/// What to upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upload {
    /// The contents of a directory of this machine. Links in it are uploaded as links.
    Dir(PathBuf),
    /// The same, of which one file is to be executable for everybody; [`pack::Packed::program`] says
    /// whether it is.
    Scripts(PathBuf, String),
    /// One file's contents and its mode (`0o644`).
    Bytes(Vec<u8>, u32),
}

/// The beginning of a file from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBytes {
    /// The bytes; hostile.
    pub data: Vec<u8>,
    /// True when there was more.
    pub cut: bool,
}

/// What a look at an environment says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// Runs and answers.
    Alive,
    /// Seems to run, does not answer; why.
    Suspect(String),
    /// Not running; the exit code of its first process where known.
    Dead(Option<i64>),
    /// Not started, or already removed.
    Absent,
}

/// A directory of this machine that is visible inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Absolute path on this machine; must exist, is never made.
    pub host: PathBuf,
    /// Absolute path inside.
    pub inside: String,
    /// Not writable inside.
    pub read_only: bool,
}

/// What an environment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// `docker` or `local`.
    pub kind: &'static str,
    /// One line: image, limits, network; or that nothing is isolated.
    pub summary: String,
    /// Container id or scratch directory; None before the start.
    pub id: Option<String>,
    /// What differs from how Harbor starts one, a line each.
    pub deviations: Vec<String>,
}

/// A word for the shell, whatever is in it.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An absolute path without `.`, `..`, empty parts or NUL; a trailing `/` is dropped.
pub(crate) fn plain_path(call: &str, path: &str) -> Result<String, EnvError> {
    let trimmed = path.trim_end_matches('/');
    let plain = path.starts_with('/')
        && !path.contains('\0')
        && trimmed.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    if plain {
        Ok(if trimmed.is_empty() { "/".to_string() } else { trimmed.to_string() })
    } else {
        let remedy = "give an absolute path without . and ..";
        Err(EnvError::new(Trouble::Path, call, &format!("{path:?} is not taken"), remedy))
    }
}
