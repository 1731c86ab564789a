//! Looks at what everybody on this machine can see while a job runs: command lines, and what the engine
//! tells of containers and of the commands in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pilothouse::environment::labels;

use crate::yard::docker;

/// Between two looks at command lines.
const PAUSE: Duration = Duration::from_millis(100);

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Containers that were asked for.
    pub containers: BTreeSet<String>,
    /// Command lines, each once.
    pub lines: BTreeSet<String>,
    /// What the engine told, one text after another.
    pub told: String,
}

/// The eyes on one job's containers.
pub struct Eyes {
    over: Arc<AtomicBool>,
    looking: JoinHandle<Seen>,
    since: u64,
}

/// Everything that belongs to a job of ours.
fn any() -> String {
    format!("label={}", labels::JOB)
}

/// Whole seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Eyes {
    /// Opens them; containers are those of the job of this directory, which need not be there yet.
    pub fn open(job: &Path) -> Eyes {
        let over = Arc::new(AtomicBool::new(false));
        let (done, dir) = (over.clone(), format!("dir={}", job.display()));
        let looking = std::thread::spawn(move || {
            let (mut seen, mut asked) = (Seen::default(), Instant::now());
            while !done.load(Ordering::Relaxed) {
                for entry in fs::read_dir("/proc").unwrap().flatten() {
                    let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    if !line.is_empty() {
                        seen.lines.insert(String::from_utf8_lossy(&line).replace('\0', " "));
                    }
                }
                if asked.elapsed() > PAUSE * 5 {
                    let format = format!("{{{{.ID}}}} {{{{.Label {:?}}}}}", labels::OWNER);
                    let all = docker(&["ps", "-a", "--no-trunc", "--filter", &any(), "--format", &format]);
                    for id in all.lines().filter(|l| l.ends_with(&dir)).filter_map(|l| l.split(' ').next()) {
                        seen.told += &docker(&["inspect", id]);
                        seen.told += &docker(&["top", id, "-o", "pid,args"]);
                        seen.containers.insert(id.to_string());
                    }
                    asked = Instant::now();
                }
                std::thread::sleep(PAUSE);
            }
            seen
        });
        Eyes { over, looking, since: now() }
    }

    /// Closes them and gives what they saw, the engine's events included: the beginnings of commands stand
    /// in those, word by word.
    pub fn close(self) -> Seen {
        self.over.store(true, Ordering::Relaxed);
        let mut seen = self.looking.join().unwrap();
        let (since, until) = (self.since.to_string(), (now() + 1).to_string());
        let events = ["events", "--since", &since, "--until", &until, "--format", "{{json .}}", "--filter", &any()];
        seen.told += &docker(&events);
        seen
    }
}

impl Seen {
    /// Panics where one of the words was seen.
    #[track_caller]
    pub fn assert_without(&self, words: &[&str]) {
        for word in words {
            assert!(!self.told.contains(word), "the engine tells {word}");
            let line = self.lines.iter().find(|line| line.contains(word));
            assert!(line.is_none(), "a command line tells {word}: {line:?}");
        }
    }
}
