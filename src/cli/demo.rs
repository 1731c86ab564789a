//! `pilothouse demo`: a small bundled job, truly run on this machine ([`live`]); or, with `--replay`, a
//! bundled recording of a job whose agent had a model, re-enacted live.
//!
//! The re-enactment's files appear and grow in a temporary directory as they do when Harbor runs trials, so
//! that terminals and episodes can be looked at without Docker, a model or Harbor.

pub mod assets;
pub mod live;
pub mod play;
pub mod shift;
pub mod stage;
pub mod tasks;

use std::fs::{self, DirBuilder};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use clap::Args;

use super::attach;
use crate::app::derived::Counting;
use crate::app::update;
use crate::tty::signals::{Request, Signals};
use play::{Stop, play};
use stage::{Stage, StageError};

/// What is said wherever the re-enactment is shown.
pub const NOTICE: &str = "This is a re-enactment of a bundled recording: no trial is run.";

/// Arguments of `pilothouse demo`.
#[derive(Debug, Clone, Args)]
pub struct Demo {
    /// Re-enact a recorded job of an agent with a model, with its terminals; no trial is run
    #[arg(long)]
    pub replay: bool,
    /// With --replay: how many recorded seconds pass in one second; at 1 it takes about 80 seconds
    #[arg(long, default_value_t = 1.0, value_name = "N", value_parser = speed, requires = "replay")]
    pub speed: f64,
    /// Leave the screen when it is over
    #[arg(long)]
    pub once: bool,
    /// Without a screen
    #[arg(long)]
    pub headless: bool,
    /// Write into this new directory and leave it there, instead of a temporary one
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Runs it; gives the exit code.
pub fn run(args: &Demo, common: &super::Common) -> u8 {
    let done = if !args.replay {
        live::run(args, common)
    } else if args.headless || !io::stdout().is_terminal() {
        args.headless(&mut io::stdout())
    } else {
        args.on_screen(common)
    };
    done.unwrap_or_else(|error| {
        super::complain(&error.to_string());
        super::NEEDS_PERSON
    })
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.01..=10_000.0).contains(&n) => Ok(n),
        _ => Err("a number from 0.01 to 10000 is wanted".into()),
    }
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The recording.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The directory can not be made or written.
    #[error("{}: {source}", path.display())]
    Dir {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A re-enactment in progress. Dropping it ends it and removes its directory (unless it was asked to
/// leave it).
#[derive(Debug)]
pub struct Running {
    root: Root,
    job_dir: PathBuf,
    seconds: f64,
    n_trials: usize,
    stop: Stop,
    thread: Option<JoinHandle<io::Result<bool>>>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    keep: bool,
}

impl Drop for Root {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = crate::environment::local::remove_tree(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the demo's directory could not be removed");
        }
    }
}

impl Demo {
    /// Makes the directory and begins to write into it, on a thread. `over` is called at its end,
    /// early or not, with the error if there was one.
    ///
    /// # Errors
    /// [`DemoError`]; nothing is left behind then.
    pub fn start(&self, over: impl FnOnce(Option<io::Error>) + Send + 'static) -> Result<Running, DemoError> {
        let stage = Stage::plan(assets::FILES)?;
        let root = self.make_root()?;
        let job_dir = root.path.join(&stage.job_dir);
        // Whoever attaches finds the job dir there, whatever the thread has done by then.
        let dir_error = |source| DemoError::Dir { path: job_dir.clone(), source };
        fs::create_dir_all(&job_dir).map_err(dir_error)?;
        let (seconds, n_trials) = (stage.seconds / self.speed, stage.n_trials);
        let stop = Stop::default();
        let (path, speed, told) = (root.path.clone(), self.speed, stop.clone());
        let thread = std::thread::Builder::new()
            .name("demo".into())
            .spawn(move || {
                let played = play(&stage, &path, speed, &told);
                over(played.as_ref().err().map(|e| io::Error::new(e.kind(), e.to_string())));
                played
            })
            .map_err(dir_error)?;
        Ok(Running { root, job_dir, seconds, n_trials, stop, thread: Some(thread) })
    }

    /// Without a screen: says what it is, acts, and returns the exit code.
    ///
    /// # Errors
    /// [`DemoError`].
    pub fn headless(&self, out: &mut impl Write) -> Result<u8, DemoError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let dir_error = |path: &Path, source| DemoError::Dir { path: path.to_path_buf(), source };
        let runtime = runtime.map_err(|e| dir_error(Path::new("."), e))?;
        runtime.block_on(async {
            let mut signals = Signals::new().map_err(|e| dir_error(Path::new("."), e))?;
            let (tell, told) = tokio::sync::oneshot::channel();
            let running = self.start(move |error| drop(tell.send(error)))?;
            // A closed standard output is no reason to stop writing the job.
            let _ = writeln!(out, "{NOTICE}");
            let _ =
                writeln!(out, "{}: {} trials, {:.0} s", running.job_dir().display(), running.n_trials, running.seconds);
            let _ = out.flush();
            tokio::pin!(told);
            loop {
                tokio::select! {
                    ended = &mut told => match ended {
                        Ok(Some(error)) => return Err(dir_error(running.job_dir(), error)),
                        _ => return Ok(super::FINE),
                    },
                    request = signals.next() => match request {
                        Request::Stop(..) => return Ok(super::SIGNAL),
                        Request::Continued => {}
                        Request::Fell => return Ok(super::FAULT),
                    },
                }
            }
        })
    }

    /// With the screen attached to it, as to any other job.
    fn on_screen(&self, common: &super::Common) -> Result<u8, DemoError> {
        let once = self.once;
        let (tell, leave) = tokio::sync::oneshot::channel();
        let running = self.start(move |error| {
            if let Some(error) = error {
                tracing::error!(%error, "the re-enactment stopped");
            } else if once {
                // What was written last is still on its way to the screen.
                std::thread::sleep(std::time::Duration::from_secs(2));
                let _ = tell.send(());
            }
        })?;
        let prepare: super::screen::Prepare = Box::new(|model| {
            update::notice(model, NOTICE);
            Vec::new()
        });
        let dirs = vec![running.job_dir().to_path_buf()];
        let code = attach::on_screen(dirs, None, Counting::default(), common, prepare, Some(leave));
        drop(running);
        let _ = writeln!(io::stdout(), "{NOTICE}");
        Ok(code)
    }

    fn make_root(&self) -> Result<Root, DemoError> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        if let Some(dir) = &self.dir {
            builder.create(dir).map_err(|source| DemoError::Dir { path: dir.clone(), source })?;
            return Ok(Root { path: dir.clone(), keep: true });
        }
        let base = std::env::temp_dir();
        let mut n = 0;
        loop {
            let path = base.join(format!("pilothouse-demo-{}-{n}", std::process::id()));
            match builder.create(&path) {
                Ok(()) => return Ok(Root { path, keep: false }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < 100 => n += 1,
                Err(source) => return Err(DemoError::Dir { path, source }),
            }
        }
    }
}

impl Running {
    /// The job dir to attach to; it exists.
    pub fn job_dir(&self) -> &Path {
        &self.job_dir
    }

    /// True when there is nothing more to come.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Where the files are: the parent of `jobs` and `tasks`.
    pub fn root(&self) -> &Path {
        &self.root.path
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // Its error was told to `over`; a panic of its own is printed by the hook.
            let _ = thread.join();
        }
    }
}
