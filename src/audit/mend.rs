//! Putting right what an audit found: one act at a time, each looked at again before, each noted.

use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use super::check::{Audit, AuditError, Finding, FindingKind, Mend, block};
use super::leftovers::{self, Leftover};
use super::owner::find_owner;
use crate::environment::EnvError;
use crate::environment::docker::DockerEngine;
use crate::harbor::write::atomic::is_temp;
use crate::harbor::write::{Folder, QuarantineError, WriteError, quarantine, restore};
use crate::harbor::{OpenError, trial_result};
use crate::job::text::clean;
use crate::journal::{Journal, Note};

/// Bytes of a result that are read.
const CAP: u64 = 64 << 20;

/// Why a mend was not done. Nothing was changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    /// Somebody works on the job.
    #[error("{0}: nothing is changed")]
    Owned(String),
    /// It is not as the audit found it any more.
    #[error("{0}: not as it was found any more: audit again")]
    Changed(String),
    /// The finding has no mend.
    #[error("{0}")]
    Nothing(String),
    /// Nothing is done that can not be noted.
    #[error("the journal can not be written: {0}")]
    Journal(WriteError),
    /// The quarantine failed.
    #[error(transparent)]
    Quarantine(#[from] QuarantineError),
    /// The job dir could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The engine or the system refused, in words.
    #[error("{0}")]
    Refused(String),
    /// No event loop.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// What the finding was about.
    pub subject: String,
    /// What was done, in words.
    pub done: String,
    /// Where it is now, for what was moved: [`undo`] brings it back.
    pub place: Option<PathBuf>,
    /// The journal that it is noted in.
    pub journal: PathBuf,
}

/// Mends one finding of an audit. Blocks; not to be called on a thread that runs a tokio runtime.
///
/// # Errors
/// See [`MendError`].
pub fn mend(audit: &Audit, finding: &Finding, state_dir: &Path) -> Result<Mended, MendError> {
    let needs_engine = matches!(&finding.mend, Mend::Remove(thing) if !thing.is_dir());
    block(async {
        let engine = match needs_engine {
            true => DockerEngine::connect().await,
            false => Err(EnvError::new(crate::environment::Trouble::NotRunning, "connect to Docker", "not needed", "")),
        };
        mend_with(audit, finding, state_dir, engine.as_ref()).await
    })?
}

/// As [`mend`], with an engine that is connected to.
///
/// # Errors
/// See [`MendError`].
pub async fn mend_with(
    audit: &Audit,
    finding: &Finding,
    state_dir: &Path,
    engine: Result<&DockerEngine, &EnvError>,
) -> Result<Mended, MendError> {
    if let Mend::Nothing(why) | Mend::ByItself(why) = &finding.mend {
        return Err(MendError::Nothing(why.clone()));
    }
    if let Some(who) = find_owner(&audit.job_dir).forbids() {
        return Err(MendError::Owned(who));
    }
    let mut journal = Journal::open(&audit.job_dir, Some(state_dir), &audit.job_id).map_err(MendError::Journal)?;
    let mut note = Note::now("", &finding.subject, &finding.evidence);
    note.trial.clone_from(&finding.trial);
    match &finding.mend {
        Mend::Quarantine { name } => {
            let folder = Folder::open(&audit.job_dir)?;
            same(&folder, name, finding.kind)?;
            let moved = quarantine(&folder, name, state_dir, &audit.job_id)?;
            note.act = "quarantine".to_string();
            note.result = match moved.left_out.len() {
                0 => "moved".to_string(),
                n => format!("moved; {n} FIFOs, sockets or devices were not kept"),
            };
            note.place = Some(moved.place);
        }
        Mend::Remove(thing) => {
            leftovers::remove(thing, engine).await.map_err(MendError::Refused)?;
            note.act = "remove".to_string();
            note.result = format!("{} removed", thing.kind.word());
        }
        Mend::RemoveTempFile { name } => {
            let folder = Folder::open(&audit.job_dir)?;
            if !is_temp(name) {
                return Err(MendError::Changed(finding.subject.clone()));
            }
            match rustix::fs::unlinkat(folder.dir(), name.as_str(), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(e) => return Err(WriteError::of(&folder.path().join(name), &e.into()).into()),
            }
            note.act = "remove".to_string();
            note.result = "temporary file removed".to_string();
        }
        Mend::Nothing(why) | Mend::ByItself(why) => return Err(MendError::Nothing(why.clone())),
    }
    journal.write(&note).map_err(MendError::Journal)?;
    let done = match &note.place {
        Some(place) => format!("{} to {}", note.result, clean(&place.to_string_lossy())),
        None => note.result.clone(),
    };
    Ok(Mended { subject: finding.subject.clone(), done, place: note.place, journal: journal.path().to_path_buf() })
}

/// Brings back what a mend moved to the quarantine.
///
/// # Errors
/// See [`MendError`]; [`MendError::Nothing`] for what was removed for good.
pub fn undo(audit: &Audit, mended: &Mended, finding: &Finding, state_dir: &Path) -> Result<(), MendError> {
    let (Some(place), Mend::Quarantine { name }) = (&mended.place, &finding.mend) else {
        return Err(MendError::Nothing(format!("{} was removed for good", mended.subject)));
    };
    if let Some(who) = find_owner(&audit.job_dir).forbids() {
        return Err(MendError::Owned(who));
    }
    let mut journal = Journal::open(&audit.job_dir, Some(state_dir), &audit.job_id).map_err(MendError::Journal)?;
    restore(place, &Folder::open(&audit.job_dir)?, name)?;
    let mut note = Note::now("undo", &finding.subject, "brought back from the quarantine");
    note.trial.clone_from(&finding.trial);
    note.result = "moved back".to_string();
    journal.write(&note).map_err(MendError::Journal)
}

/// Looks whether a trial is still what the audit found.
fn same(folder: &Folder, name: &str, kind: FindingKind) -> Result<(), MendError> {
    let changed = || MendError::Changed(clean(name).into_owned());
    let read = folder.dir().read_condensed(&format!("{name}/result.json"), CAP);
    let as_found = match (kind, read) {
        (FindingKind::NoResult, Err(OpenError::Missing | OpenError::Vanished)) => folder.dir().stat(name).is_ok(),
        (FindingKind::Phantom, Ok(bytes)) => trial_result(&bytes.data).is_ok_and(|r| r.result.is_phantom()),
        (FindingKind::UnreadableResult, Ok(bytes)) => trial_result(&bytes.data).is_err(),
        (FindingKind::UnreadableResult, Err(OpenError::Missing | OpenError::Vanished)) => false,
        (FindingKind::UnreadableResult, Err(_)) => true,
        _ => false,
    };
    as_found.then_some(()).ok_or_else(changed)
}

/// Removes a leftover that was listed and is nobody's: noted in its job's journal where the job is known,
/// else in the state dir.
///
/// # Errors
/// See [`MendError`]; [`MendError::Owned`] for what may not go.
pub async fn remove_leftover(
    thing: &Leftover,
    state_dir: &Path,
    engine: Result<&DockerEngine, &EnvError>,
) -> Result<Mended, MendError> {
    let why = match &thing.fate {
        leftovers::Fate::Dead(why) => why,
        leftovers::Fate::Alive(why) | leftovers::Fate::Unsure(why) => return Err(MendError::Owned(why.clone())),
        leftovers::Fate::Held(why) => return Err(MendError::Owned(format!("held {why}"))),
    };
    let dir = thing.job_dir.as_deref().filter(|dir| dir.is_dir());
    if let Some(who) = dir.and_then(|dir| find_owner(dir).forbids())
        && thing.maker == leftovers::Maker::Harbor
    {
        return Err(MendError::Owned(who));
    }
    let mut journal = match dir {
        Some(dir) => Journal::open(dir, Some(state_dir), &super::check::job_id(dir).unwrap_or_default()),
        None => Journal::in_state(state_dir, "clean"),
    }
    .map_err(MendError::Journal)?;
    leftovers::remove(thing, engine).await.map_err(MendError::Refused)?;
    let mut note = Note::now("remove", &thing.name, &format!("{}; {why}", thing.evidence));
    note.trial.clone_from(&thing.trial);
    note.result = format!("{} removed", thing.kind.word());
    journal.write(&note).map_err(MendError::Journal)?;
    let journal = journal.path().to_path_buf();
    Ok(Mended { subject: thing.name.clone(), done: note.result, place: None, journal })
}
