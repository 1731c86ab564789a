//! Acts out a plan: writes the files at the right moments.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::shift::Shift;
use super::stage::{Act, Stage};
use crate::job::Stamp;

/// Tells a re-enactment to end early.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// End now.
    pub fn stop(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Sleeps until `due`, true when told to end before.
    fn wait_until(&self, due: Instant) -> bool {
        let mut stopped = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if *stopped || left.is_zero() {
                return *stopped;
            }
            stopped = self.0.1.wait_timeout(stopped, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Acts out `stage` in `root`, an empty directory, at `speed` times the recorded speed. True when it
/// came to its end, false when it was stopped.
///
/// # Errors
/// The first error of writing.
pub fn play(stage: &Stage, root: &Path, speed: f64, stop: &Stop) -> io::Result<bool> {
    let start = Instant::now();
    let shift = Shift::new(stage.origin, Stamp::now(), speed);
    let mut open: HashMap<String, File> = HashMap::new();
    for cue in &stage.cues {
        let due = start + Duration::try_from_secs_f64(cue.at / speed).unwrap_or(Duration::ZERO);
        if stop.wait_until(due) {
            return Ok(false);
        }
        act(root, &cue.act, &shift, &mut open)?;
    }
    Ok(true)
}

fn act(root: &Path, act: &Act, shift: &Shift, open: &mut HashMap<String, File>) -> io::Result<()> {
    match act {
        Act::Dir(path) => match fs::create_dir(root.join(path)) {
            // The job dir is made before the play begins, so that it can be attached to.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        },
        Act::Json(path, text) => fs::write(root.join(path), shift.json(text).as_bytes()),
        Act::Text(path, text) => fs::write(root.join(path), text),
        Act::Append(path, text) => append(root, path, text, open),
        Act::CastHeader(path, line) => append(root, path, &format!("{}\n", shift.cast_header(line)), open),
        Act::CastEvent(path, line) => append(root, path, &format!("{}\n", shift.cast_event(line)), open),
        Act::Close(dir) => {
            open.retain(|path, _| !Path::new(path).starts_with(dir));
            Ok(())
        }
    }
}

/// One write, on a file that is opened once: whoever looks sees a process that holds its logs open,
/// as a job's owner does.
fn append(root: &Path, path: &str, text: &str, open: &mut HashMap<String, File>) -> io::Result<()> {
    if let Some(file) = open.get_mut(path) {
        return file.write_all(text.as_bytes());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(root.join(path))?;
    let written = file.write_all(text.as_bytes());
    open.insert(path.to_string(), file);
    written
}
