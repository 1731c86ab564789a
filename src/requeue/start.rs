//! Starting what was planned: first the journal, then the program, so that whatever is cut short leaves a
//! trace and nothing else.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::plan::Plan;
use super::source::FAILED;
use crate::harbor::write::{Folder, WriteError};
use crate::journal::{Journal, Note};

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The plan says why, a line each.
    #[error("{}", .0.join("\n"))]
    NotReady(Vec<String>),
    /// Something has the name of the new job by now.
    #[error("{0}: there by now: plan again")]
    Taken(PathBuf),
    /// What has to be written could not be.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The program could not be started.
    #[error("{program}: {why}")]
    Program {
        /// Its path.
        program: String,
        /// What the system says.
        why: std::io::Error,
    },
}

/// A job that was started. Dropping it leaves the program at work.
#[derive(Debug)]
pub struct Started {
    /// Its process, which leads a process group of its own.
    pub pid: u32,
    /// Where its output goes.
    pub log: PathBuf,
    /// The directory of the job, which is not there at once.
    pub dir: PathBuf,
    /// Where the notes about the requeue were written.
    pub journal: PathBuf,
    child: Child,
    plan: Plan,
    state_dir: PathBuf,
    told: bool,
}

/// Writes the requeue down in the old job's journal and starts the new job: in a process group of its own,
/// with its output in a file, so that it goes on without this process.
///
/// # Errors
/// See [`StartError`]; then nothing runs.
pub fn start(plan: &Plan, state_dir: &Path) -> Result<Started, StartError> {
    start_with(plan, state_dir, &[])
}

/// As [`start`], with variables that this process does not have: the keys that the plan misses, by name.
/// They go into the program's environment and nowhere else.
///
/// # Errors
/// See [`StartError`]; then nothing runs.
pub fn start_with(plan: &Plan, state_dir: &Path, keys: &[(String, String)]) -> Result<Started, StartError> {
    let given = |name: &String| keys.iter().any(|(key, value)| key == name && !value.is_empty());
    if !plan.problems.is_empty() || plan.rows.is_empty() || !plan.missing.iter().all(given) {
        return Err(StartError::NotReady(plan.obstacles()));
    }
    if std::fs::symlink_metadata(&plan.dir).is_ok() {
        return Err(StartError::Taken(plan.dir.clone()));
    }
    let place = plan.config_path.parent().unwrap_or(state_dir).to_path_buf();
    std::fs::create_dir_all(&place).map_err(|e| WriteError::of(&place, &e))?;
    let name = plan.config_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Folder::open(&place)?.replace(&name, plan.config.as_bytes())?;
    let log = place.join(format!("{}.log", plan.name));
    let wrong = |e: std::io::Error| StartError::Write(WriteError::of(&log, &e));
    let flags = rustix::fs::OFlags::NOFOLLOW.bits();
    let out = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(flags as i32).open(&log);
    let out = out.map_err(wrong)?;
    let again = out.try_clone().map_err(wrong)?;
    let mut journal = Journal::open(&plan.source, Some(state_dir), plan.source_id.as_deref().unwrap_or(&plan.name))?;
    let note = |row: &super::Row| Note {
        trial: Some(row.trial.to_string()),
        result: format!("requeued as {}", plan.name),
        place: Some(plan.dir.clone()),
        result_id: row.result_id.as_ref().map(ToString::to_string),
        class: row.class.map(|class| class.word().to_string()),
        ..Note::now("requeue", &row.trial, &why(plan, &row.why))
    };
    journal.write_all(&plan.rows.iter().map(note).collect::<Vec<_>>())?;
    let (program, args) = plan.command.split_first().ok_or_else(|| StartError::NotReady(plan.obstacles()))?;
    let child = Command::new(program)
        .args(args)
        .envs(keys.iter().map(|(name, value)| (name, value)))
        .current_dir(&plan.cwd)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(again)
        .process_group(0)
        .spawn();
    let child = match child {
        Ok(child) => child,
        Err(why) => {
            failed(&mut journal, plan, &why.to_string());
            return Err(StartError::Program { program: program.clone(), why });
        }
    };
    Ok(Started {
        pid: child.id(),
        log,
        dir: plan.dir.clone(),
        journal: journal.path().to_path_buf(),
        child,
        plan: plan.clone(),
        state_dir: state_dir.to_path_buf(),
        told: false,
    })
}

/// The reason of one trial: the operator's, then that of the rules.
fn why(plan: &Plan, row: &str) -> String {
    match &plan.reason {
        Some(reason) => format!("{reason} ({row})"),
        None => row.to_string(),
    }
}

fn failed(journal: &mut Journal, plan: &Plan, words: &str) {
    let note = Note {
        place: Some(plan.dir.clone()),
        result: words.to_string(),
        ..Note::now(FAILED, &plan.name, "did not begin")
    };
    // It is said on the screen, too.
    let _ = journal.write(&note);
}

impl Started {
    /// Looks at it: writes the origin into the new job's journal as soon as its directory is there, and
    /// tells how the program ended, once it has.
    ///
    /// # Errors
    /// When the origin can not be written, or the process not be asked.
    pub fn look(&mut self) -> Result<Option<ExitStatus>, StartError> {
        let ended =
            self.child.try_wait().map_err(|why| StartError::Program { program: self.plan.command.join(" "), why })?;
        let there = self.dir.is_dir();
        if !self.told && there {
            self.told = true;
            let id = self.plan.source_id.as_deref().unwrap_or(&self.plan.source_name);
            let trials: Vec<&str> = self.plan.rows.iter().take(20).map(|r| &*r.trial).collect();
            let more = self.plan.rows.len().saturating_sub(trials.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let words = format!("requeue of {}{more}", trials.join(", "));
            let why = self.plan.reason.as_deref().unwrap_or("its trials are run again");
            let note = Note { place: Some(self.plan.source.clone()), result: words, ..Note::now("origin", id, why) };
            // The name of its own file, should it be needed: the new job's id is not known yet.
            Journal::open(&self.dir, Some(&self.state_dir), &self.plan.name)?.write(&note)?;
        }
        if ended.is_some() && !self.told {
            self.told = true;
            let id = self.plan.source_id.as_deref().unwrap_or(&self.plan.name);
            let mut journal = Journal::open(&self.plan.source, Some(&self.state_dir), id)?;
            let words = ended.map(|status| status.to_string()).unwrap_or_default();
            failed(&mut journal, &self.plan, &words);
        }
        Ok(ended)
    }

    /// The new job's directory is there and names its origin.
    pub fn begun(&self) -> bool {
        self.told && self.dir.is_dir()
    }

    /// The plan it was started from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}
