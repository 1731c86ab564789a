//! What `update` wants done; run by [`super::runtime`].

use std::path::PathBuf;

use super::alert::Alert;
use super::detail;
use super::helm;
use super::replay;
use crate::job::TrialKey;
use crate::serving::Source;

/// One thing to do outside the model.
#[derive(Debug)]
pub enum Effect {
    /// Leave the screen.
    Quit,
    /// Leave the screen; the job that this process runs goes on without one.
    Detach,
    /// Draw everything anew.
    Redraw,
    /// Give the terminal back to the shell until `fg`.
    Suspend,
    /// Put a text on the clipboard.
    Copy(String),
    /// Ring the bell.
    Bell,
    /// Tell an alarm to the notify command.
    Notify(Box<Alert>),
    /// Read these sources of model servers.
    Serve(Vec<Source>),
    /// The operator looks at this trial: follow it more closely.
    Watch(Option<TrialKey>),
    /// Ask the loader of the trial view.
    Detail(detail::Request),
    /// Ask the player.
    Replay(replay::Request),
    /// Look through directories for the list of jobs.
    Roster(super::jobs::Request),
    /// Keep this for other screens.
    Keep(super::memory::Keep),
    /// Leave what is shown for the jobs that the model names as next.
    Elsewhere,
    /// Follow this directory, too.
    Follow(PathBuf),
    /// Steer a job.
    Helm(helm::Order),
}
