//! What is watched: roots, job dirs and, of the trials at work, the directories in which something
//! happens now. A job that can not be watched is polled.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::watch::WatchError;
use super::Live;
use crate::job::ProblemKind;

/// Rounds of setting watches and looking again for what happened before they were set.
const ROUNDS: usize = 4;

impl Live<'_> {
    /// True when something was not watched before.
    pub(super) fn watch_roots(&mut self) -> bool {
        if self.polled() {
            return false;
        }
        let wanted: HashSet<PathBuf> = self.follower.root_dirs().into_iter().collect();
        let jobs: HashSet<&PathBuf> = self.follower.jobs.iter().map(|j| &j.path).collect();
        for dir in self.roots_watched.iter().filter(|d| !wanted.contains(*d) && !jobs.contains(d)) {
            self.watches.remove(dir);
        }
        self.roots_watched.retain(|d| wanted.contains(d));
        let mut new = false;
        for dir in wanted {
            if !self.roots_watched.contains(&dir) && self.watches.add(&dir).is_ok() {
                new = true;
                self.roots_watched.insert(dir);
            }
        }
        new
    }

    pub(super) fn watch_job(&mut self, j: usize) {
        let (Some(job), Some(plan)) = (self.follower.jobs.get(j), self.plans.get(j)) else { return };
        if !plan.watched || job.lost.is_some() {
            return;
        }
        match self.watches.add(&job.path.clone()) {
            Ok(()) | Err(WatchError::Gone) => {}
            Err(error) => self.fall_back(j, error),
        }
    }

    /// Watches the state dir's journals, once there are any.
    pub(super) fn watch_notes(&mut self) {
        if self.notes_watched.is_some() || self.polled() {
            return;
        }
        if let Some(notes) = self.follower.env.journals()
            && self.watches.add(&notes).is_ok()
        {
            self.notes_watched = Some(notes);
        }
    }

    /// Gives up watching a job: it is polled from now on.
    fn fall_back(&mut self, j: usize, error: WatchError) {
        self.unwatch(j);
        let words = match error {
            WatchError::Limit => {
                "followed by polling: the system's limit of inotify watches is reached \
                 (raise fs.inotify.max_user_watches)"
            }
            _ => "followed by polling: it can not be watched",
        };
        if let Some(plan) = self.plans.get_mut(j) {
            plan.watched = false;
            let now = Instant::now();
            (plan.files, plan.running, plan.finished) = (now, now, now + Duration::from_secs(60));
        }
        if let Some(job) = self.follower.jobs.get_mut(j) {
            job.note(ProblemKind::Note, words, &mut self.out);
        }
    }

    pub(super) fn unwatch(&mut self, j: usize) {
        let (Some(job), Some(plan)) = (self.follower.jobs.get_mut(j), self.plans.get_mut(j)) else { return };
        for name in std::mem::take(&mut plan.watching) {
            let path = job.path.join(&name);
            let Some(slot) = job.trials.get_mut(&name) else { continue };
            for rel in std::mem::take(&mut slot.watched) {
                self.watches.remove(&inner(&path, &rel));
            }
        }
        if !self.roots_watched.contains(&job.path) {
            self.watches.remove(&job.path);
        }
    }

    /// Brings the watches of these trials in line with what they are doing. Whoever got a new watch
    /// is looked at once more, for what happened before it was set.
    pub(super) fn sync(&mut self, j: usize, names: Vec<OsString>) {
        let mut names = names;
        for _ in 0..ROUNDS {
            if names.is_empty() || !self.plans.get(j).is_some_and(|p| p.watched) {
                return;
            }
            let mut again = Vec::new();
            for name in names {
                match self.sync_one(j, &name) {
                    Ok(true) => again.push(name),
                    Ok(false) => {}
                    Err(error) => return self.fall_back(j, error),
                }
            }
            names = again;
            if let Some(job) = self.follower.jobs.get_mut(j) {
                job.again(&self.follower.env, &names, false, &mut self.out);
            }
        }
    }

    fn sync_one(&mut self, j: usize, name: &OsStr) -> Result<bool, WatchError> {
        let (Some(job), Some(plan)) = (self.follower.jobs.get_mut(j), self.plans.get_mut(j)) else {
            return Ok(false);
        };
        let Some(slot) = job.trials.get_mut(name) else { return Ok(false) };
        let path = job.path.join(name);
        let own = [Box::from("")];
        let wanted: &[Box<str>] = match &slot.memory.unfinished {
            Some(unfinished) if !slot.memory.done => unfinished.dirs(),
            _ if slot.memory.ended.is_some() => &own,
            _ => &[],
        };
        for rel in slot.watched.iter().filter(|rel| !wanted.contains(rel)) {
            self.watches.remove(&inner(&path, rel));
        }
        slot.watched.retain(|rel| wanted.contains(rel));
        let mut new = false;
        for rel in wanted {
            if !slot.watched.contains(rel) {
                match self.watches.add(&inner(&path, rel)) {
                    Ok(()) => {
                        new = true;
                        slot.watched.push(rel.clone());
                    }
                    // It went away since it was seen; an event of its parent tells.
                    Err(WatchError::Gone) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if slot.watched.is_empty() {
            plan.watching.remove(name);
            if !slot.shown && slot.memory.is_blank() {
                job.trials.remove(name);
            }
        } else {
            plan.watching.insert(name.to_os_string());
        }
        Ok(new)
    }
}

fn inner(path: &Path, rel: &str) -> PathBuf {
    if rel.is_empty() { path.to_path_buf() } else { path.join(rel) }
}
