//! The directories that the operator named, and the jobs found in them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::classic::Run;
use super::discover::{self, DirKind};
use super::scan::{Followed, shown};
use super::{Follower, Out, errno_words, fstype};
use crate::harbor::dir::Dir;
use crate::job::{JobEvent, JobKey, Problem, ProblemKind};

/// Pauses in seconds between two looks at a root that is not there.
const BACK_OFF: [u64; 4] = [2, 5, 10, 30];

/// One directory that the operator named.
#[derive(Debug)]
pub(super) struct Root {
    pub path: PathBuf,
    /// What became of it.
    pub state: RootState,
    /// When to look at it again without being told to.
    pub next: Option<Instant>,
    /// Its file system belongs to this host alone.
    pub local: bool,
    /// Sub-directories that are no jobs, with their modification time at the last look: a job that
    /// begins changes it.
    others: HashMap<OsString, i128>,
    /// A problem was reported.
    reported: bool,
    tries: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RootState {
    /// Not looked at, or nothing there yet.
    Waiting,
    /// A job (or a trial in one): the job is followed by itself.
    Job,
    /// A directory of jobs.
    Jobs,
}

impl Root {
    pub fn new(path: PathBuf) -> Root {
        Root {
            path,
            state: RootState::Waiting,
            next: None,
            local: false,
            others: HashMap::new(),
            reported: false,
            tries: 0,
        }
    }

    /// Looks again later, and later each time.
    fn wait(&mut self) {
        let pause = BACK_OFF.get(self.tries).or(BACK_OFF.last()).copied().unwrap_or(30);
        self.tries += 1;
        self.next = Some(Instant::now() + Duration::from_secs(pause));
    }

    fn report(&mut self, kind: ProblemKind, message: &str, out: &mut Out<'_>) {
        if !std::mem::replace(&mut self.reported, true) {
            let problem = Problem { kind, path: shown(&self.path), message: message.into() };
            out.push(JobEvent::Problem(problem));
        }
    }
}

impl Follower {
    /// Looks at one root: finds out what it is, attaches jobs that are new.
    pub(super) fn look_at_root(&mut self, i: usize, out: &mut Out<'_>) {
        let Some(root) = self.roots.get_mut(i) else { return };
        root.next = None;
        if root.state == RootState::Job {
            return;
        }
        let path = root.path.clone();
        if root.state == RootState::Waiting {
            match discover::kind(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                    if let Some((dir, name)) = discover::aggregate_file(&path) {
                        root.state = RootState::Job;
                        return self.attach_classic(&dir, None, Some(name), out);
                    }
                    let words = "not a directory: name the job dir, or the directory above job dirs";
                    root.report(ProblemKind::Unreachable, words, out);
                    root.wait();
                    return;
                }
                Err(error) => {
                    let words = match error.kind() {
                        std::io::ErrorKind::NotFound => {
                            "no such directory: check the path; it is looked for until it appears".to_string()
                        }
                        std::io::ErrorKind::PermissionDenied => {
                            "permission denied: run as its owner or have it readable".to_string()
                        }
                        _ => errno_words(&error),
                    };
                    root.report(ProblemKind::Unreachable, &words, out);
                    root.wait();
                    return;
                }
                Ok(DirKind::Job) => {
                    root.state = RootState::Job;
                    self.attach(&path, out);
                    return;
                }
                Ok(DirKind::Trial) => {
                    root.state = RootState::Job;
                    match discover::trial_in_job(&path) {
                        Some((job, _)) => {
                            root.report(
                                ProblemKind::Note,
                                "the directory of one trial: its whole job is attached",
                                out,
                            );
                            self.attach(&job, out);
                        }
                        None => root.report(ProblemKind::Foreign, "a trial without a job around it", out),
                    }
                    return;
                }
                Ok(DirKind::Classic) => {
                    root.state = RootState::Job;
                    return self.attach_classic(&path, None, None, out);
                }
                Ok(DirKind::ClassicTrial) => {
                    root.state = RootState::Job;
                    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
                    if let Some((run, name, alone)) = discover::classic_trial(&real) {
                        let words = match alone {
                            true => "the directory of one trial of terminal-bench, without a run around it",
                            false => "the directory of one trial: its whole run is attached",
                        };
                        root.report(ProblemKind::Note, words, out);
                        self.attach_classic(&run, alone.then_some(name), None, out);
                    }
                    return;
                }
                Ok(DirKind::Neither) if discover::classic_inside(&path).is_some() => {
                    root.state = RootState::Job;
                    if let Some(inside) = discover::classic_inside(&path) {
                        self.attach_classic(&inside, None, None, out);
                    }
                    return;
                }
                Ok(DirKind::Neither) => root.local = fstype::of(&path).local,
            }
        }
        self.look_for_new_jobs(i, &path, out);
    }

    fn look_for_new_jobs(&mut self, i: usize, path: &Path, out: &mut Out<'_>) {
        let names = match discover::candidates(path) {
            Ok(names) => names,
            Err(_) => {
                if let Some(root) = self.roots.get_mut(i) {
                    root.state = RootState::Waiting;
                    root.next = Some(Instant::now() + Duration::from_secs(2));
                }
                return;
            }
        };
        let mut found = 0_usize;
        for name in &names {
            let dir = path.join(name);
            if self.jobs.iter().any(|j| j.path == dir || j.classic.is_some() && j.path.starts_with(&dir)) {
                found += 1;
                continue;
            }
            // A directory whose time did not change got no new file.
            let time = Dir::open(&dir).and_then(|d| d.stat("")).map(|m| m.mtime_nanos).unwrap_or(0);
            let known = self.roots.get(i).and_then(|r| r.others.get(name));
            if known == Some(&time) {
                continue;
            }
            match discover::kind(&dir) {
                Ok(DirKind::Job) => {
                    found += 1;
                    if let Some(root) = self.roots.get_mut(i) {
                        root.others.remove(name);
                    }
                    self.attach(&dir, out);
                }
                Ok(kind) if kind == DirKind::Classic || discover::classic_inside(&dir).is_some() => {
                    found += 1;
                    let at = if kind == DirKind::Classic { None } else { discover::classic_inside(&dir) };
                    if let Some(root) = self.roots.get_mut(i) {
                        root.others.remove(name);
                    }
                    self.attach_classic(&at.unwrap_or(dir), None, None, out);
                }
                _ => {
                    if let Some(root) = self.roots.get_mut(i) {
                        root.others.insert(name.clone(), time);
                    }
                }
            }
        }
        let Some(root) = self.roots.get_mut(i) else { return };
        root.others.retain(|n, _| names.binary_search(n).is_ok());
        if found > 0 {
            root.state = RootState::Jobs;
        } else if root.state == RootState::Waiting && !names.is_empty() {
            let message = "no Harbor job in it (none of config.json, lock.json, result.json, job.log of one): \
                           name a job dir or the directory above job dirs; jobs that begin here are shown";
            root.report(ProblemKind::Missing, message, out);
        } else if root.state == RootState::Waiting && has_files(path) {
            let message = "neither a job dir nor a directory of job dirs: name one of those; \
                           jobs that begin here are shown";
            root.report(ProblemKind::Missing, message, out);
        }
    }

    /// Follows a job dir, unless it is followed already under this or another name.
    fn attach(&mut self, path: &Path, out: &mut Out<'_>) {
        self.attach_as(path, None, out);
    }

    /// Follows a run of classic terminal-bench: of a trial that lies by itself only that, of several
    /// aggregates in one directory only the one picked.
    fn attach_classic(&mut self, path: &Path, only: Option<OsString>, pick: Option<String>, out: &mut Out<'_>) {
        self.attach_as(path, Some(Box::new(Run::new(only, pick))), out);
    }

    fn attach_as(&mut self, path: &Path, classic: Option<Box<Run>>, out: &mut Out<'_>) {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        // Two aggregates in one directory are two runs.
        let part = |run: &Option<Box<Run>>| run.as_ref().map(|run| (run.only.clone(), run.pick.clone()));
        if self.jobs.iter().any(|j| j.real == real && part(&j.classic) == part(&classic)) {
            return;
        }
        let key = JobKey(u32::try_from(self.jobs.len()).unwrap_or(u32::MAX));
        let mut job = Followed::new(key, path.to_path_buf(), real);
        job.classic = classic;
        // Its own files at once: the first thing on the screen.
        if let Some(dir) = job.open(out) {
            job.read_files(&dir, &self.env, false, out);
        }
        self.jobs.push(job);
    }

    /// Directories of jobs and those of their sub-directories in which a job may just be beginning.
    pub(super) fn root_dirs(&self) -> Vec<PathBuf> {
        /// Most sub-directories of one root that are watched for a job that begins.
        const WATCHED: usize = 64;
        let mut dirs = Vec::new();
        for root in self.roots.iter().filter(|r| r.state != RootState::Job && r.local) {
            dirs.push(root.path.clone());
            let mut newest: Vec<(&i128, &OsString)> = root.others.iter().map(|(name, time)| (time, name)).collect();
            newest.sort();
            dirs.extend(newest.iter().rev().take(WATCHED).map(|(_, name)| root.path.join(name)));
        }
        dirs
    }
}

fn has_files(path: &Path) -> bool {
    Dir::open(path).and_then(|d| d.list()).is_ok_and(|l| !l.is_empty())
}
