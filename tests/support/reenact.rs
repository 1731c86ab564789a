//! A recorded run once more: from a log of file events and the job's final files, every file grows in
//! the order and with the sizes that were recorded.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `CREATE`, `MODIFY`, `CLOSE_WRITE`, `FOUND`: a file has this size now.
    File,
    /// `CREATE_DIR`, `FOUND_DIR`.
    Dir,
    Delete,
    DeleteDir,
    MovedFrom,
    MovedTo,
}

#[derive(Debug, Clone)]
pub struct Event {
    /// Milliseconds since 1970.
    pub at: u64,
    pub what: What,
    pub size: u64,
    /// Relative to the job dir.
    pub path: String,
}

/// One recorded run, applied step by step to a directory of its own.
pub struct Reenactment {
    pub events: Vec<Event>,
    /// The job dir that is built.
    pub target: PathBuf,
    source: PathBuf,
    next: usize,
    /// Where the content of a path comes from in the final files, for each event.
    origin: Vec<String>,
    trajectories: HashMap<String, Vec<Vec<u8>>>,
}

impl Reenactment {
    /// Loads `logs/<log>.inotify` beside the job `job` below `jobs`; `target` is created.
    pub fn load(jobs: &Path, log: &str, target: &Path) -> Reenactment {
        let text = fs::read_to_string(jobs.join("logs").join(format!("{log}.inotify"))).unwrap();
        let events: Vec<Event> = text.lines().filter_map(parse).collect();
        fs::create_dir_all(target).unwrap();
        let source = jobs.join(log);
        let origin = (0..events.len()).map(|i| origin(&events, i, &source)).collect();
        Reenactment { events, target: target.to_path_buf(), source, next: 0, origin, trajectories: HashMap::new() }
    }

    /// Time of the first event.
    pub fn begin(&self) -> u64 {
        self.events.first().map_or(0, |e| e.at)
    }

    /// Time of the last event.
    pub fn end(&self) -> u64 {
        self.events.last().map_or(0, |e| e.at)
    }

    pub fn is_over(&self) -> bool {
        self.next >= self.events.len()
    }

    /// Applies all events of the next recorded millisecond; gives its time, None at the end.
    pub fn apply_millisecond(&mut self) -> Option<u64> {
        let at = self.events.get(self.next)?.at;
        self.apply_until(at);
        Some(at)
    }

    /// Applies all events up to and including the millisecond `at`.
    pub fn apply_until(&mut self, at: u64) {
        while self.events.get(self.next).is_some_and(|e| e.at <= at) {
            self.apply(self.next);
            self.next += 1;
        }
    }

    /// The whole run in real time, `speed` times faster. `go_on` is asked between events.
    pub fn apply_all_at_speed(&mut self, speed: f64, go_on: impl Fn() -> bool) {
        let (clock, begin) = (Instant::now(), self.begin());
        while let Some(event) = self.events.get(self.next) {
            let due = Duration::from_secs_f64((event.at - begin) as f64 / 1000.0 / speed);
            while let Some(left) = due.checked_sub(clock.elapsed()) {
                if !go_on() {
                    return;
                }
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            self.apply_millisecond();
        }
    }

    fn apply(&mut self, i: usize) {
        let event = self.events[i].clone();
        let path = self.target.join(&event.path);
        match event.what {
            What::Dir => fs::create_dir_all(&path).unwrap(),
            What::Delete => drop(fs::remove_file(&path)),
            What::DeleteDir => drop(fs::remove_dir_all(&path)),
            What::MovedTo => {
                // Done with its MOVED_FROM, unless the other half was not recorded.
                if !path.exists() {
                    self.write(i, &event, &path);
                }
            }
            What::MovedFrom => match partner(&self.events, i) {
                Some(to) => {
                    let to = self.target.join(&self.events[to].path);
                    fs::create_dir_all(to.parent().unwrap()).unwrap();
                    drop(fs::rename(&path, &to));
                }
                None => drop(fs::remove_file(&path)),
            },
            What::File => self.write(i, &event, &path),
        }
    }

    fn write(&mut self, i: usize, event: &Event, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let have = fs::symlink_metadata(path).ok().map(|m| m.len());
        let content = self.content(i, event);
        let appends = [".cast", ".pane", ".log", "stdout.txt"].iter().any(|end| event.path.ends_with(end));
        match have {
            Some(have) if appends && have <= content.len() as u64 => {
                if have < content.len() as u64 {
                    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
                    file.write_all(&content[have as usize..]).unwrap();
                }
            }
            Some(have) if have == content.len() as u64 && fs::read(path).is_ok_and(|old| old == content) => {}
            // In place, as Harbor writes: truncate, then write; never a rename.
            _ => fs::write(path, content).unwrap(),
        }
    }

    fn content(&mut self, i: usize, event: &Event) -> Vec<u8> {
        let size = event.size as usize;
        if size == 0 {
            return Vec::new();
        }
        let origin = self.origin[i].clone();
        if origin.ends_with("trajectory.json") {
            return self.trajectory(&origin, size);
        }
        if event.path == "result.json" && self.events[i + 1..].iter().any(|e| e.path == "result.json") {
            return self.job_result();
        }
        let mut content = fs::read(self.source.join(&origin)).unwrap_or_default();
        content.resize(size, b'\n');
        content
    }

    /// The longest run of whole steps whose file had about this size.
    fn trajectory(&mut self, origin: &str, size: usize) -> Vec<u8> {
        let source = self.source.join(origin);
        let versions = self.trajectories.entry(origin.to_string()).or_insert_with(|| {
            let whole: Value = serde_json::from_slice(&fs::read(source).unwrap()).unwrap();
            let steps = whole["steps"].as_array().unwrap().len();
            let cut = |n: usize| {
                let mut part = whole.clone();
                part["steps"].as_array_mut().unwrap().truncate(n);
                serde_json::to_vec_pretty(&part).unwrap()
            };
            (1..=steps).map(cut).collect()
        });
        versions.iter().min_by_key(|v| v.len().abs_diff(size)).cloned().unwrap_or_default()
    }

    /// The job's own result before the end: the final one with the counts of this moment.
    fn job_result(&self) -> Vec<u8> {
        let mut result: Value = serde_json::from_slice(&fs::read(self.source.join("result.json")).unwrap()).unwrap();
        let trials = fs::read_dir(&self.target).unwrap().flatten().filter(|e| e.path().is_dir());
        let (mut done, mut running) = (0, 0);
        for trial in trials {
            match trial.path().join("result.json").exists() {
                true => done += 1,
                false => running += 1,
            }
        }
        let total = result["n_total_trials"].as_u64().unwrap_or(0);
        result["finished_at"] = Value::Null;
        let stats = &mut result["stats"];
        stats["n_completed_trials"] = done.into();
        stats["n_running_trials"] = running.into();
        stats["n_pending_trials"] = total.saturating_sub(done + running).into();
        stats["evals"] = Value::Object(serde_json::Map::new());
        serde_json::to_vec_pretty(&result).unwrap()
    }
}

fn parse(line: &str) -> Option<Event> {
    let mut parts = line.splitn(4, ' ');
    let (time, what, size, path) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let what = match what {
        "CREATE" | "MODIFY" | "CLOSE_WRITE" | "FOUND" => What::File,
        "CREATE_DIR" | "FOUND_DIR" => What::Dir,
        "DELETE" => What::Delete,
        "DELETE_DIR" => What::DeleteDir,
        "MOVED_FROM" => What::MovedFrom,
        "MOVED_TO" => What::MovedTo,
        _ => return None,
    };
    let size = size.parse::<i64>().unwrap().max(0) as u64;
    // A file that was gone again when the recorder looked has size -1.
    let gone = what == What::File && line.contains(" -1 ");
    let at = time.replace('.', "").parse().unwrap();
    (!gone).then(|| Event { at, what, size, path: path.to_string() })
}

/// The MOVED_TO that belongs to the MOVED_FROM at `i`.
fn partner(events: &[Event], i: usize) -> Option<usize> {
    let name = events[i].path.rsplit('/').next();
    let next = events.get(i + 1)?;
    (next.what == What::MovedTo && next.path.rsplit('/').next() == name).then_some(i + 1)
}

/// Where the file that event `i` touches ends up in the final tree.
fn origin(events: &[Event], i: usize, source: &Path) -> String {
    let mut path = events[i].path.clone();
    let mut from = i + 1;
    'follow: loop {
        for (j, later) in events.iter().enumerate().skip(from) {
            if later.path == path && later.what == What::MovedFrom {
                if let Some(to) = partner(events, j) {
                    path = events[to].path.clone();
                    from = to + 1;
                    continue 'follow;
                }
                break;
            }
            if later.path == path && later.what == What::Delete {
                break;
            }
        }
        break;
    }
    if source.join(&path).is_file() {
        return path;
    }
    // Moved by a rename of which only one half was recorded.
    if let Some((trial, rest)) = path.split_once('/') {
        for step in ["first", "second"] {
            let moved = format!("{trial}/steps/{step}/{rest}");
            if source.join(&moved).is_file() {
                return moved;
            }
        }
    }
    path
}
