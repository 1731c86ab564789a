//! Opening and leaving the screen, for the commands that have one.

use std::path::PathBuf;

use tokio::sync::mpsc::Receiver;

use super::servers::Servers;
use super::{Common, ThemeChoice};
use crate::app::derived::Counting;
use crate::app::effect::Effect;
use crate::app::helm::Side;
use crate::app::memory::Keep;
use crate::app::model::{Look, Model, Theme};
use crate::app::runtime::{self, Left, Steering, Wiring};
use crate::job::{JobEvent, Stamp, TrialKey};
use crate::tty::{Caps, Guard, Input, Modes, Term, TtyError};

/// Prepares the model before the first frame; the effects are run at once.
pub type Prepare = Box<dyn FnOnce(&mut Model) -> Vec<Effect>>;

/// What the screen is opened on.
pub struct Start {
    /// News of jobs.
    pub jobs: Option<Receiver<Vec<JobEvent>>>,
    /// Told which trial the operator looks at.
    pub watch: Box<dyn FnMut(Option<TrialKey>)>,
    /// Told which directory is to be followed, too.
    pub follow: Box<dyn FnMut(std::path::PathBuf)>,
    /// Keeps what the screen remembers.
    pub keep: Box<dyn FnMut(Keep)>,
    /// How jobs are counted together.
    pub counting: Counting,
    /// Prepares the model before the first frame.
    pub prepare: Prepare,
    /// Leaves the screen when something is sent.
    pub leave: Option<tokio::sync::oneshot::Receiver<()>>,
    /// What can be steered, and how this screen stands to it.
    pub steering: Option<(Side, Steering)>,
    /// The model servers.
    pub servers: Option<Servers>,
}

/// Runs the screen until it is left; gives the exit code.
pub fn run(common: &Common, start: Start) -> u8 {
    code(show(common, start))
}

/// The exit code of a screen that was left.
pub fn code(left: Result<Left, TtyError>) -> u8 {
    match left {
        Ok(Left::Quit | Left::Detached | Left::Gone | Left::Elsewhere) => super::FINE,
        Ok(Left::Signal(_)) => super::SIGNAL,
        Ok(Left::Fell) => super::FAULT,
        Err(error) => {
            super::complain(&error.to_string());
            super::NEEDS_PERSON
        }
    }
}

/// Runs the screen until it is left; says how.
///
/// # Errors
/// When there is no terminal to show it on, or it can not be set up.
pub fn show(common: &Common, start: Start) -> Result<Left, TtyError> {
    Console::open(common)?.show(start)
}

/// The terminal, taken for one screen after another.
pub struct Console {
    look: Look,
    runtime: tokio::runtime::Runtime,
    // Before the guard, which gives the terminal back when it is dropped.
    term: Term,
    guard: Guard,
    input: Receiver<Input>,
    /// What the last screen was left for.
    pub next: Vec<PathBuf>,
}

impl Console {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When there is none, or it can not be set up.
    pub fn open(common: &Common) -> Result<Console, TtyError> {
        let caps = Caps::detect(common.color, common.ascii);
        let theme = match (common.theme, caps.color) {
            (_, crate::tty::ColorLevel::None) | (ThemeChoice::Mono, _) => Theme::Mono,
            (ThemeChoice::Light, _) => Theme::Light,
            (ThemeChoice::Default, _) => Theme::Default,
        };
        let look = Look { ascii: caps.ascii, theme };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(TtyError::Setup)?;
        let guard = Guard::enter(Modes::default())?;
        let term = Term::new(caps.color)?;
        let input = runtime::listen()?;
        Ok(Console { look, runtime, term, guard, input, next: Vec::new() })
    }

    /// Runs one screen until it is left; says how.
    ///
    /// # Errors
    /// When the terminal can not be set up or written.
    pub fn show(&mut self, start: Start) -> Result<Left, TtyError> {
        let Console { look, runtime, term, guard, input, next } = self;
        let size = term.size();
        let mut model = Model::new(Stamp::now(), (size.width, size.height), *look, start.counting);
        let (side, steering) = start.steering.unzip();
        model.steer.notes = steering.is_some();
        model.steer.side = side.unwrap_or_default();
        model.ledger.operator = crate::journal::operator().into();
        let mut first = (start.prepare)(&mut model);
        if let Some(servers) = &start.servers {
            first.extend(servers.prepare(&mut model));
        }
        let (serving, notify, serve): (_, _, runtime::Serve) = match start.servers {
            Some(servers) => {
                let remote = servers.remote;
                (Some(servers.heard), servers.notify, Box::new(move |sources| remote.read(sources)))
            }
            None => (None, None, Box::new(|_| {})),
        };
        let wiring = Wiring {
            jobs: start.jobs,
            watch: start.watch,
            follow: start.follow,
            keep: start.keep,
            first,
            leave: start.leave,
            steering,
            serving,
            serve,
            notify,
        };
        term.clear();
        let left = runtime.block_on(runtime::run(&mut model, term, guard, input, wiring));
        *next = std::mem::take(&mut model.jobs.next);
        tracing::info!(?left, frames = term.stats().frames, bytes = term.stats().bytes, "screen left");
        left
    }
}
